//! Mounts and networks that only one test sees.

use std::ffi::CString;
use std::io;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, mount_remount, unmount};
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

/// Gives this thread, and the threads and processes that it starts from now on, a network of their own, with nothing in
/// it but a loopback interface that is down. Only root can.
pub fn private_network() -> io::Result<()> {
    // SAFETY: as for the mounts; sockets that are open stay where they are.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
    Ok(())
}

/// A mounted tmpfs, which goes when this is dropped.
#[derive(Debug)]
pub struct Mounted(PathBuf);

impl Mounted {
    /// Leaves it mounted as long as the mounts of the thread exist.
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// Mounts a tmpfs, with options such as `size=64k`. To be called after [`private_mounts`].
pub fn mount_tmpfs(folder: &Path, options: &str) -> io::Result<Mounted> {
    let options = CString::new(options).expect("options without a zero byte");
    mount("tmpfs", folder, "tmpfs", MountFlags::empty(), options.as_c_str())?;
    Ok(Mounted(folder.to_owned()))
}

/// Makes what is mounted at `folder` writable or not.
pub fn set_read_only(folder: &Path, read_only: bool) -> io::Result<()> {
    let flags = if read_only { MountFlags::RDONLY } else { MountFlags::empty() };
    mount_remount(folder, flags, c"")?;
    Ok(())
}
