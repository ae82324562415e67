//! The system calls of the directory store, one function each, with a place where a test can cut in.
//!
//! A test gives a hook that is called before each step that changes something; it may end the process or give an
//! error that is returned instead of making the call.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, AtFlags, Mode, OFlags, RenameFlags, Stat};
use rustix::io::{Errno, retry_on_intr};

/// Called with the name of a step before it; an error answer takes the step's place.
pub type Hook = Box<dyn FnMut(&'static str) -> Option<Errno> + Send>;

/// Makes the calls.
#[derive(Default)]
pub(super) struct Sys {
    pub(super) hook: Option<Hook>,
}

impl Sys {
    pub(super) fn step(&mut self, name: &'static str) -> Result<(), Errno> {
        match self.hook.as_mut().and_then(|hook| hook(name)) {
            Some(errno) => Err(errno),
            None => Ok(()),
        }
    }

    /// Makes a new file with this content; an older one of the name is removed first, never written to, because it
    /// may be another name of a file in use.
    pub(super) fn create(
        &mut self,
        folder: impl AsFd,
        name: &str,
        content: &[u8],
        sync: bool,
    ) -> Result<Stat, (&'static str, Errno)> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        self.step("open").map_err(|errno| ("open", errno))?;
        let file = match retry_on_intr(|| fs::openat(&folder, name, flags, mode)) {
            Err(Errno::EXIST) => {
                fs::unlinkat(&folder, name, AtFlags::empty()).map_err(|errno| ("remove", errno))?;
                retry_on_intr(|| fs::openat(&folder, name, flags, mode))
            }
            other => other,
        }
        .map_err(|errno| ("open", errno))?;
        let written = (|| {
            self.step("write")?;
            write_all(&file, content)?;
            if sync {
                fs::fsync(&file)?;
            }
            fs::fstat(&file)
        })();
        written.map_err(|errno| {
            // What is left of it is of no use; the error that is told is the first.
            let _ = fs::unlinkat(&folder, name, AtFlags::empty());
            ("write", errno)
        })
    }

    /// Moves a file to a name that must not be taken.
    pub(super) fn publish(
        &mut self,
        from: impl AsFd,
        from_name: &str,
        to: impl AsFd,
        to_name: &str,
    ) -> Result<(), Errno> {
        self.step("publish")?;
        match fs::renameat_with(&from, from_name, &to, to_name, RenameFlags::NOREPLACE) {
            // File systems that do not know the flag (NFS, some FUSE) still refuse to link to a taken name.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                fs::linkat(&from, from_name, &to, to_name, AtFlags::empty())?;
                self.step("unlink after link")?;
                fs::unlinkat(&from, from_name, AtFlags::empty())
            }
            other => other,
        }
    }

    /// Moves a file over another.
    pub(super) fn replace(
        &mut self,
        from: impl AsFd,
        from_name: &str,
        to: impl AsFd,
        to_name: &str,
    ) -> Result<(), Errno> {
        self.step("replace")?;
        fs::renameat(from, from_name, to, to_name)
    }

    pub(super) fn unlink(&mut self, folder: impl AsFd, name: &str) -> Result<(), Errno> {
        self.step("unlink")?;
        fs::unlinkat(folder, name, AtFlags::empty())
    }

    /// Writes a file in place, as host-local writes its cursors: the name stays the same file. The old content is
    /// written over before it is cut, so that a full disk cannot take it away.
    pub(super) fn overwrite(
        &mut self,
        folder: impl AsFd,
        name: &str,
        content: &[u8],
        sync: bool,
    ) -> Result<Stat, Errno> {
        self.step("open cursor")?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = retry_on_intr(|| fs::openat(&folder, name, flags, Mode::RUSR | Mode::WUSR))?;
        self.step("write cursor")?;
        write_all(&file, content)?;
        let mut stat = fs::fstat(&file)?;
        if u64::try_from(stat.st_size).unwrap_or(0) > content.len() as u64 {
            self.step("cut cursor")?;
            fs::ftruncate(&file, content.len() as u64)?;
            stat = fs::fstat(&file)?;
        }
        if sync {
            fs::fsync(&file)?;
        }
        Ok(stat)
    }

    pub(super) fn append(&mut self, file: &OwnedFd, bytes: &[u8], offset: u64) -> Result<(), Errno> {
        self.step("append")?;
        let mut done = 0;
        while done < bytes.len() {
            match rustix::io::pwrite(file, &bytes[done..], offset + done as u64) {
                Ok(0) => return Err(Errno::NOSPC),
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}

pub(super) fn write_all(file: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(file, bytes) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Reads at most `limit` bytes.
pub(super) fn read_up_to(file: &OwnedFd, limit: usize) -> Result<Vec<u8>, Errno> {
    // One read gets all of a small file, and a short count ends it: address files have some 80 bytes.
    let mut first = [0; 512];
    let mut bytes = Vec::new();
    let mut room = first.len().min(limit);
    loop {
        match rustix::io::read(file, &mut first[..room]) {
            Ok(count) => {
                bytes.extend_from_slice(&first[..count]);
                if count < room || bytes.len() == limit {
                    return Ok(bytes);
                }
                room = first.len().min(limit - bytes.len());
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// A file's change time.
pub(super) fn ctime(stat: &Stat) -> (i64, u32) {
    (stat.st_ctime, stat.st_ctime_nsec as u32)
}

/// A file's modification time.
pub(super) fn mtime(stat: &Stat) -> (i64, u32) {
    (stat.st_mtime, stat.st_mtime_nsec as u32)
}
