//! What several tests of the stores share.
#![allow(dead_code, reason = "each test file uses its part")]

use plat_core::net::Address;
use plat_core::network::{Keys, Place, Record};
use plat_core::store::{Action, Durability, Entry, Error, Event, Expected, Page, Store, Version, Write};
use plat_stores::directory::{DirectoryStore, Options};
use plat_stores::sqlite::{self, SqliteStore};
use std::path::{Path, PathBuf};

pub(crate) const NETWORK: &str = "net";

pub(crate) fn keys() -> Keys {
    Keys::new(NETWORK)
}

pub(crate) fn at(text: &str) -> Place {
    Place::Address(Address::parse(text).unwrap())
}

pub(crate) fn key(text: &str) -> String {
    keys().key(&at(text))
}

pub(crate) fn boot() -> String {
    Options::system().boot_id.expect("Linux tells the boot")
}

pub(crate) fn record(container: &str) -> Record {
    Record::owned(container, "eth0", Some(boot()))
}

pub(crate) fn open(data_dir: &Path) -> DirectoryStore {
    DirectoryStore::new(data_dir.to_owned(), NETWORK.into(), Options::system())
}

pub(crate) fn create(address: &str, container: &str) -> Write {
    Write { key: key(address), expected: Expected::Absent, action: Action::Put(record(container).to_bytes()) }
}

pub(crate) fn read(store: &mut dyn Store, key: &str) -> Option<Entry> {
    store.read(&[key.to_owned()], true).unwrap().remove(0)
}

pub(crate) fn holder(store: &mut dyn Store, address: &str) -> Option<Record> {
    read(store, &key(address)).map(|entry| Record::parse(&entry.value).unwrap())
}

pub(crate) fn delete(store: &mut dyn Store, key: &str) -> Write {
    let entry = read(store, key).expect("what is deleted is there");
    Write { key: entry.key, expected: Expected::At(entry.version), action: Action::Delete }
}

pub(crate) fn cursor(store: &mut dyn Store, set: u32, text: &str) -> Write {
    let key = keys().key(&Place::Cursor(set));
    let expected = read(store, &key).map_or(Expected::Absent, |entry| Expected::At(entry.version));
    Write { key, expected, action: Action::Put(text.into()) }
}

pub(crate) fn commit(store: &mut dyn Store, batch: &[Write]) -> Result<Vec<Version>, Error> {
    store.commit(batch, &[], Durability::Process)
}

/// All keys and values, page by page; and that counts agree.
pub(crate) fn dump(store: &mut dyn Store) -> Vec<(String, Vec<u8>)> {
    let keys = keys();
    let mut all = Vec::new();
    let mut from = None;
    loop {
        let page = store.scan(keys.prefix(), from.as_deref(), 50, false, true).unwrap();
        all.extend(page.entries.into_iter().map(|entry| (entry.key, entry.value)));
        from = page.next;
        if from.is_none() {
            break;
        }
    }
    assert_eq!(store.count(keys.prefix(), None, None, true).unwrap(), all.len() as u64);
    all
}

/// Opens the directory anew for each call, so that everything passes through the files.
pub(crate) struct Reopening {
    pub(crate) data_dir: PathBuf,
    /// The least grave level of notice that fails the test; by default all but those of a first start.
    pub(crate) quiet: bool,
}

impl Reopening {
    fn call<T>(&self, make: impl FnOnce(&mut DirectoryStore) -> T) -> T {
        let mut store = open(&self.data_dir);
        let answer = make(&mut store);
        for notice in store.take_notices() {
            let first = notice.text.ends_with("there was none");
            assert!(first || !self.quiet, "{notice:?}");
        }
        answer
    }
}

impl Store for Reopening {
    fn read(&mut self, keys: &[String], fresh: bool) -> Result<Vec<Option<Entry>>, Error> {
        self.call(|store| store.read(keys, fresh))
    }
    fn scan(
        &mut self,
        prefix: &str,
        from: Option<&str>,
        limit: u32,
        keys_only: bool,
        fresh: bool,
    ) -> Result<Page, Error> {
        self.call(|store| store.scan(prefix, from, limit, keys_only, fresh))
    }
    fn count(&mut self, prefix: &str, from: Option<&str>, until: Option<&str>, fresh: bool) -> Result<u64, Error> {
        self.call(|store| store.count(prefix, from, until, fresh))
    }
    fn commit(&mut self, batch: &[Write], journal: &[Event], durability: Durability) -> Result<Vec<Version>, Error> {
        self.call(|store| store.commit(batch, journal, durability))
    }
    fn atomic_writes(&mut self) -> u32 {
        self.call(DirectoryStore::atomic_writes)
    }
}

pub(crate) fn sqlite_options(exclusive: bool) -> sqlite::Options {
    sqlite::Options { exclusive, lock_wait_max: std::time::Duration::from_secs(60), create: true }
}

/// The store in the file `ipam.db` of a folder, as a CNI call opens it.
pub(crate) fn open_sqlite(folder: &Path) -> SqliteStore {
    SqliteStore::new(folder.join("ipam.db"), sqlite_options(true))
}

/// Opens the SQLite file anew for each call; by turns with and without the lock for the whole call.
pub(crate) struct ReopeningSqlite {
    pub(crate) folder: PathBuf,
    pub(crate) calls: u32,
}

impl ReopeningSqlite {
    fn open(&mut self) -> SqliteStore {
        self.calls += 1;
        SqliteStore::new(self.folder.join("ipam.db"), sqlite_options(self.calls.is_multiple_of(2)))
    }
}

impl Store for ReopeningSqlite {
    fn read(&mut self, keys: &[String], fresh: bool) -> Result<Vec<Option<Entry>>, Error> {
        self.open().read(keys, fresh)
    }
    fn scan(
        &mut self,
        prefix: &str,
        from: Option<&str>,
        limit: u32,
        keys_only: bool,
        fresh: bool,
    ) -> Result<Page, Error> {
        self.open().scan(prefix, from, limit, keys_only, fresh)
    }
    fn count(&mut self, prefix: &str, from: Option<&str>, until: Option<&str>, fresh: bool) -> Result<u64, Error> {
        self.open().count(prefix, from, until, fresh)
    }
    fn commit(&mut self, batch: &[Write], journal: &[Event], durability: Durability) -> Result<Vec<Version>, Error> {
        self.open().commit(batch, journal, durability)
    }
    fn atomic_writes(&mut self) -> u32 {
        self.open().atomic_writes()
    }
}

/// A file system mounted for a test, and unmounted after it.
pub(crate) struct Mounted {
    pub(crate) path: PathBuf,
    _folder: tempfile::TempDir,
    _image: Option<tempfile::NamedTempFile>,
}

impl Mounted {
    /// None, with the reason printed, where this machine or this user cannot mount it.
    pub(crate) fn new(kind: &str, options: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mount");
        std::fs::create_dir(&path).unwrap();
        let mut command = std::process::Command::new("mount");
        let mut image = None;
        if kind == "ext4" {
            let file = tempfile::NamedTempFile::new().unwrap();
            file.as_file().set_len(32 << 20).unwrap();
            let made = std::process::Command::new("mkfs.ext4")
                .arg("-q")
                .args(options.split_whitespace())
                .arg(file.path())
                .output();
            if !made.is_ok_and(|made| made.status.success()) {
                println!("SKIPPED {kind}: mkfs.ext4 does not run");
                return None;
            }
            command.args(["-o", "loop"]).arg(file.path()).arg(&path);
            image = Some(file);
        } else {
            command.args(["-t", kind, "-o", options, "none"]).arg(&path);
        }
        match command.output() {
            Ok(output) if output.status.success() => Some(Self { path, _folder: folder, _image: image }),
            Ok(output) => {
                println!("SKIPPED {kind}: mount: {}", String::from_utf8_lossy(&output.stderr).trim());
                None
            }
            Err(error) => {
                println!("SKIPPED {kind}: mount: {error}");
                None
            }
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.path, rustix::mount::UnmountFlags::DETACH);
    }
}
