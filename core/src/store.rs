//! The storage that a host lends the core: versioned keys with compare-and-swap, as `wit/store.wit` has it.
//!
//! Which keys and values the core uses is told in `docs/formats.md`; [`crate::network`] makes and reads them.

use crate::limits::{SCAN_ENTRIES, SCAN_PAGES_MAX};

/// The largest number of keys in one [`Store::read`].
pub const READ_KEYS_MAX: usize = 256;
/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 1024;
/// About how many bytes of values a page of a scan holds at most.
pub const PAGE_BYTES_MAX: usize = 1 << 20;
/// The longest version, in bytes.
pub const VERSION_BYTES_MAX: usize = 128;

/// The state of one key at one moment. Opaque: never compared by order, never repeated for a key. Empty: the version
/// that a commit reports for a deleted key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Version(pub Vec<u8>);

/// A key that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Its value; empty where only keys were asked for.
    pub value: Vec<u8>,
    /// Its version.
    pub version: Version,
}

/// What must hold of a key for a commit to be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// The key does not exist.
    Absent,
    /// The key exists in this very version.
    At(Version),
}

/// What a commit does to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Write this value.
    Put(Vec<u8>),
    /// Delete the key.
    Delete,
    /// Change nothing; only hold the commit to what is expected.
    Check,
}

/// One key's part in a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The key; each key at most once in a commit.
    pub key: String,
    /// What must hold before.
    pub expected: Expected,
    /// What is done.
    pub action: Action,
}

/// One line of the journal: what a commit meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub at: crate::clock::Instant,
    /// What happened, a word: `granted`, `released`, `reclaimed`.
    pub what: String,
    /// The key it happened to.
    pub key: String,
    /// Who held or holds it; may be empty.
    pub owner: String,
    /// Why: the CNI verb or the rule that led to it.
    pub why: String,
}

/// What a commit must outlive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The death of the process.
    Process,
    /// A power cut.
    Power,
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// Nothing was applied. The keys that were not as expected: at least one, not always all.
    Conflict(Vec<String>),
    /// It may have been applied, or may still be. Only a later successful commit on that key settles it.
    UnknownOutcome,
    /// Nothing was applied; trying again later may help.
    Unavailable(String),
    /// Nothing was applied: over the number of writes or of bytes that a commit may hold.
    TooLarge,
    /// Nothing was applied, and trying again will not help.
    Denied(String),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Conflict(keys) => write!(f, "other writers changed {}", keys.join(", ")),
            Self::UnknownOutcome => f.write_str("the outcome of a write is unknown"),
            Self::Unavailable(why) | Self::Denied(why) => f.write_str(why),
            Self::TooLarge => f.write_str("the change is larger than the store can take at once"),
        }
    }
}

impl std::error::Error for Error {}

/// A part of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The entries, in byte order of their keys. May be fewer than asked, even none, though `next` is given.
    pub entries: Vec<Entry>,
    /// Where to go on (as `from`); none: the end was reached.
    pub next: Option<String>,
}

/// Versioned keys with compare-and-swap.
pub trait Store {
    /// The entries in the order of `keys`, none where absent. At most [`READ_KEYS_MAX`] keys. Not a snapshot.
    /// With `fresh` each key is linearizable; without, an answer may lag behind other hosts, never behind this host's
    /// own commits.
    fn read(&mut self, keys: &[String], fresh: bool) -> Result<Vec<Option<Entry>>, Error>;

    /// Keys that start with `prefix`, in byte order, from `from` on (inclusive). At most `limit` entries and about
    /// [`PAGE_BYTES_MAX`] of values a page; `keys_only` leaves the values empty.
    fn scan(
        &mut self,
        prefix: &str,
        from: Option<&str>,
        limit: u32,
        keys_only: bool,
        fresh: bool,
    ) -> Result<Page, Error>;

    /// How many keys start with `prefix` and lie in [`from`, `until`), in a time that does not grow with the answer.
    fn count(&mut self, prefix: &str, from: Option<&str>, until: Option<&str>, fresh: bool) -> Result<u64, Error>;

    /// All of it or nothing. The new versions in the order of `batch`: empty for a deletion, unchanged for a check.
    /// An empty batch changes nothing, and fails where a write could not succeed, as far as the store can tell.
    fn commit(&mut self, batch: &[Write], journal: &[Event], durability: Durability) -> Result<Vec<Version>, Error>;

    /// How many writes one commit may hold, at least 1.
    fn atomic_writes(&mut self) -> u32;
}

/// All entries under a prefix, page by page.
///
/// # Errors
/// The first of the store's.
pub(crate) fn scan_all(store: &mut dyn Store, prefix: &str, keys_only: bool, fresh: bool) -> Result<Vec<Entry>, Error> {
    let mut entries = Vec::new();
    let mut from: Option<String> = None;
    for _ in 0..SCAN_PAGES_MAX {
        let page = store.scan(prefix, from.as_deref(), SCAN_ENTRIES, keys_only, fresh)?;
        entries.extend(page.entries);
        match page.next {
            // A store that does not go on must not make the core read a page for ever.
            Some(next) if from.as_ref().is_none_or(|from| *from < next) => from = Some(next),
            _ => break,
        }
    }
    Ok(entries)
}
