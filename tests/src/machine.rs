//! Mounts that only one test sees.

use std::io;
use std::path::Path;

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change, mount_remount};
use rustix::thread::UnshareFlags;

/// Gives this thread, and the threads and processes that it starts from now on, mounts of their own: what they mount
/// nobody else sees, and it is gone when they are. Only root can.
pub fn private_mounts() -> io::Result<()> {
    // SAFETY: the thread leaves the mount namespace and the file system attributes (working directory, umask) that it
    // shares with the others; memory and file descriptors stay shared, and the test harness expects nothing of either.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    Ok(())
}

/// Mounts a tmpfs, with options such as `size=64k`. To be called after [`private_mounts`].
pub fn mount_tmpfs(folder: &Path, options: &str) -> io::Result<()> {
    let options = std::ffi::CString::new(options).expect("options without a zero byte");
    mount("tmpfs", folder, "tmpfs", MountFlags::empty(), options.as_c_str())?;
    Ok(())
}

/// Makes what is mounted at `folder` writable or not.
pub fn set_read_only(folder: &Path, read_only: bool) -> io::Result<()> {
    let flags = if read_only { MountFlags::RDONLY } else { MountFlags::empty() };
    mount_remount(folder, flags, c"")?;
    Ok(())
}
