//! The keys `file/<absolute path>`, which a host answers from its own files beside any store.
//!
//! The core reads one file by them: the resolv.conf that a configuration names. Nothing is written.

use crate::trouble::{Trouble, reason};
use plat_core::store::{Action, Durability, Entry, Error, Event, Page, READ_KEYS_MAX, Store, Version, Write};
use rustix::io::Errno;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

/// The largest file that is handed to the core. A resolv.conf has a few hundred bytes; the limit keeps a wrong path
/// (a log, a device) out of memory.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// What the keys begin with.
pub const PREFIX: &str = "file/";

/// Answers `file/` keys and passes everything else to a store.
#[derive(Clone, Debug)]
pub struct WithHostFiles<S> {
    store: S,
}

impl<S: Store> WithHostFiles<S> {
    /// Beside `store`.
    pub fn new(store: S) -> Self {
        Self { store }
    }

    /// The store behind.
    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    /// The store behind.
    pub fn into_inner(self) -> S {
        self.store
    }
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// Reads a host's file.
///
/// # Errors
/// [`Error::Denied`] with Go's text for everything but an absent file.
pub fn read_file(path: &str) -> Result<Option<Entry>, Error> {
    let denied = |operation, errno| Error::Denied(Trouble::new(operation, path, errno).to_string());
    if !path.starts_with('/') {
        return Err(Error::Denied(format!("open {path}: a file's path must be absolute")));
    }
    // Without O_NONBLOCK a fifo would hold the call until somebody writes to it.
    let opened = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0))
        .open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(denied("open", errno(&error))),
    };
    let mut value = Vec::new();
    (&file).take(FILE_BYTES_MAX + 1).read_to_end(&mut value).map_err(|error| denied("read", errno(&error)))?;
    if value.len() as u64 > FILE_BYTES_MAX {
        return Err(Error::Denied(format!("read {path}: larger than {FILE_BYTES_MAX} bytes, {}", reason(Errno::FBIG))));
    }
    let meta = file.metadata().map_err(|error| denied("stat", errno(&error)))?;
    let mut version = Vec::with_capacity(28);
    version.extend(meta.ino().to_be_bytes());
    version.extend(meta.mtime().to_be_bytes());
    version.extend(meta.mtime_nsec().to_be_bytes());
    version.extend(crc32fast::hash(&value).to_be_bytes());
    Ok(Some(Entry { key: format!("{PREFIX}{path}"), value, version: Version(version) }))
}

impl<S: Store> Store for WithHostFiles<S> {
    fn read(&mut self, keys: &[String], fresh: bool) -> Result<Vec<Option<Entry>>, Error> {
        if !keys.iter().any(|key| key.starts_with(PREFIX)) {
            return self.store.read(keys, fresh);
        }
        check_read(keys)?;
        let others: Vec<String> = keys.iter().filter(|key| !key.starts_with(PREFIX)).cloned().collect();
        let mut entries = if others.is_empty() { Vec::new() } else { self.store.read(&others, fresh)? }.into_iter();
        keys.iter()
            .map(|key| match key.strip_prefix(PREFIX) {
                Some(path) => read_file(path),
                None => Ok(entries.next().flatten()),
            })
            .collect()
    }

    fn scan(
        &mut self,
        prefix: &str,
        from: Option<&str>,
        limit: u32,
        keys_only: bool,
        fresh: bool,
    ) -> Result<Page, Error> {
        refuse_listing(prefix)?;
        self.store.scan(prefix, from, limit, keys_only, fresh)
    }

    fn count(&mut self, prefix: &str, from: Option<&str>, until: Option<&str>, fresh: bool) -> Result<u64, Error> {
        refuse_listing(prefix)?;
        self.store.count(prefix, from, until, fresh)
    }

    fn commit(&mut self, batch: &[Write], journal: &[Event], durability: Durability) -> Result<Vec<Version>, Error> {
        if let Some(write) =
            batch.iter().find(|write| write.key.starts_with(PREFIX) && !matches!(write.action, Action::Check))
        {
            return Err(Error::Denied(format!("{}: files of the host are not written", write.key)));
        }
        if let Some(write) = batch.iter().find(|write| write.key.starts_with(PREFIX)) {
            return Err(Error::Denied(format!("{}: files of the host cannot be part of a commit", write.key)));
        }
        self.store.commit(batch, journal, durability)
    }

    fn atomic_writes(&mut self) -> u32 {
        self.store.atomic_writes()
    }
}

fn refuse_listing(prefix: &str) -> Result<(), Error> {
    if prefix.starts_with(PREFIX) {
        return Err(Error::Denied(format!("{prefix}: files of the host are not listed")));
    }
    Ok(())
}

/// Refuses a read of more keys than the contract allows.
pub(crate) fn check_read(keys: &[String]) -> Result<(), Error> {
    if keys.len() > READ_KEYS_MAX {
        return Err(Error::TooLarge);
    }
    Ok(())
}

/// For calls that need no store: every use is refused.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoStore;

fn none() -> Error {
    Error::Denied("this call was opened without a store".to_owned())
}

impl Store for NoStore {
    fn read(&mut self, _: &[String], _: bool) -> Result<Vec<Option<Entry>>, Error> {
        Err(none())
    }

    fn scan(&mut self, _: &str, _: Option<&str>, _: u32, _: bool, _: bool) -> Result<Page, Error> {
        Err(none())
    }

    fn count(&mut self, _: &str, _: Option<&str>, _: Option<&str>, _: bool) -> Result<u64, Error> {
        Err(none())
    }

    fn commit(&mut self, _: &[Write], _: &[Event], _: Durability) -> Result<Vec<Version>, Error> {
        Err(none())
    }

    fn atomic_writes(&mut self) -> u32 {
        1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str) -> Result<Option<Vec<u8>>, Error> {
        let mut store = WithHostFiles::new(NoStore);
        store.read(&[format!("file/{path}")], true).map(|mut found| found.remove(0).map(|entry| entry.value))
    }

    #[test]
    fn files_are_read_and_troubles_are_told_in_gos_words() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("resolv.conf");
        std::fs::write(&path, "nameserver 10.0.0.1\n").unwrap();
        assert_eq!(read(path.to_str().unwrap()), Ok(Some(b"nameserver 10.0.0.1\n".to_vec())));
        assert_eq!(read("/no/such/file"), Ok(None));
        let text = folder.path().to_str().unwrap();
        assert_eq!(read(text), Err(Error::Denied(format!("read {text}: is a directory"))));
        let below = format!("{text}/resolv.conf/x");
        assert_eq!(read(&below), Err(Error::Denied(format!("open {below}: not a directory"))));
        std::fs::File::create(&path).unwrap().set_len(FILE_BYTES_MAX + 1).unwrap();
        assert!(matches!(read(path.to_str().unwrap()), Err(Error::Denied(_))));
        assert!(matches!(read("relative"), Err(Error::Denied(_))));
    }

    #[test]
    fn other_keys_go_to_the_store_and_keep_their_order() {
        let mut store = WithHostFiles::new(crate::memory::MemoryStore::new());
        let put =
            Write { key: "a".into(), expected: plat_core::store::Expected::Absent, action: Action::Put(b"1".to_vec()) };
        store.commit(&[put], &[], Durability::Process).unwrap();
        let keys = ["x", "file/no", "file//no/such", "a"].map(String::from);
        assert!(matches!(store.read(&keys, true), Err(Error::Denied(_))), "a relative path is refused");
        let found = store.read(&[keys[0].clone(), keys[2].clone(), keys[3].clone()], true).unwrap();
        assert_eq!(found.iter().map(Option::is_some).collect::<Vec<_>>(), [false, false, true]);
        assert!(matches!(store.scan("file/", None, 1, true, true), Err(Error::Denied(_))));
    }
}
