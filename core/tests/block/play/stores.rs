//! Stores around a store in memory: one in which others act between two calls, and one that counts calls.

use plat_core::store::{Durability, Entry, Error, Event, Page, Store, Version, Write};
use plat_stores::memory::MemoryStore;

/// What happens at a commit.
pub enum Incident<'a> {
    /// Something else happens to the store first; then the commit is made.
    Meanwhile(Box<dyn FnMut(&mut MemoryStore) + 'a>),
    /// The caller is cut off before the commit is made.
    CutBefore,
    /// The caller is cut off after the commit was made, without an answer.
    CutAfter,
    /// The commit is made, and its answer is lost once.
    ReplyLost,
}

/// A store in which something happens at the first commit that writes a key of a certain beginning.
pub struct Eventful<'a> {
    store: &'a mut MemoryStore,
    incidents: Vec<(String, Incident<'a>)>,
    is_cut_off: bool,
}

impl<'a> Eventful<'a> {
    pub fn new(store: &'a mut MemoryStore, incidents: Vec<(String, Incident<'a>)>) -> Self {
        Self { store, incidents, is_cut_off: false }
    }

    /// What never happened, since no such key was written.
    pub fn unhappened(&self) -> Vec<&str> {
        self.incidents.iter().map(|(key, _)| key.as_str()).collect()
    }

    fn check(&self) -> Result<(), Error> {
        if self.is_cut_off { Err(Error::Unavailable("cut off".into())) } else { Ok(()) }
    }
}

impl Store for Eventful<'_> {
    fn read(&mut self, keys: &[String], fresh: bool) -> Result<Vec<Option<Entry>>, Error> {
        self.check()?;
        self.store.read(keys, fresh)
    }

    fn scan(
        &mut self,
        prefix: &str,
        from: Option<&str>,
        limit: u32,
        keys_only: bool,
        fresh: bool,
    ) -> Result<Page, Error> {
        self.check()?;
        self.store.scan(prefix, from, limit, keys_only, fresh)
    }

    fn count(&mut self, prefix: &str, from: Option<&str>, until: Option<&str>, fresh: bool) -> Result<u64, Error> {
        self.check()?;
        self.store.count(prefix, from, until, fresh)
    }

    fn commit(&mut self, batch: &[Write], journal: &[Event], durability: Durability) -> Result<Vec<Version>, Error> {
        self.check()?;
        let happens = self
            .incidents
            .iter()
            .position(|(start, _)| batch.iter().any(|write| write.key.starts_with(start.as_str())));
        let Some(index) = happens else { return self.store.commit(batch, journal, durability) };
        let (_, incident) = self.incidents.remove(index);
        match incident {
            Incident::Meanwhile(mut act) => {
                act(self.store);
                // What is to happen next may be due at this very commit.
                self.commit(batch, journal, durability)
            }
            Incident::CutBefore => {
                self.is_cut_off = true;
                self.check().map(|()| Vec::new())
            }
            Incident::CutAfter => {
                self.is_cut_off = true;
                self.store.commit(batch, journal, durability)?;
                Err(Error::UnknownOutcome)
            }
            Incident::ReplyLost => {
                self.store.commit(batch, journal, durability)?;
                Err(Error::UnknownOutcome)
            }
        }
    }

    fn atomic_writes(&mut self) -> u32 {
        self.store.atomic_writes()
    }
}

/// A store whose answers lag behind, where they need not be fresh: they are those of an older state, until the caller
/// itself commits.
pub struct Lagging<'a> {
    pub store: &'a mut MemoryStore,
    pub old: MemoryStore,
}

impl Store for Lagging<'_> {
    fn read(&mut self, keys: &[String], fresh: bool) -> Result<Vec<Option<Entry>>, Error> {
        if fresh { self.store.read(keys, fresh) } else { self.old.read(keys, fresh) }
    }

    fn scan(
        &mut self,
        prefix: &str,
        from: Option<&str>,
        limit: u32,
        keys_only: bool,
        fresh: bool,
    ) -> Result<Page, Error> {
        let store = if fresh { &mut *self.store } else { &mut self.old };
        store.scan(prefix, from, limit, keys_only, fresh)
    }

    fn count(&mut self, prefix: &str, from: Option<&str>, until: Option<&str>, fresh: bool) -> Result<u64, Error> {
        let store = if fresh { &mut *self.store } else { &mut self.old };
        store.count(prefix, from, until, fresh)
    }

    fn commit(&mut self, batch: &[Write], journal: &[Event], durability: Durability) -> Result<Vec<Version>, Error> {
        let versions = self.store.commit(batch, journal, durability)?;
        self.old = self.store.clone();
        Ok(versions)
    }

    fn atomic_writes(&mut self) -> u32 {
        self.store.atomic_writes()
    }
}

/// How much a store was asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    pub reads: u32,
    /// Keys in all reads.
    pub keys: u32,
    /// Keys of blocks that were read and do not exist.
    pub absent_blocks: u32,
    pub scans: u32,
    /// Entries in all answers to scans.
    pub entries: u32,
    pub counts: u32,
    pub commits: u32,
    /// Writes in all commits.
    pub writes: u32,
}

impl Asked {
    /// All calls.
    pub fn calls(&self) -> u32 {
        self.reads + self.scans + self.counts + self.commits
    }
}

/// A store that counts what it is asked.
pub struct Counting<S> {
    pub store: S,
    pub asked: Asked,
}

impl<S: Store> Counting<S> {
    pub fn new(store: S) -> Self {
        Self { store, asked: Asked::default() }
    }

    /// What was asked since the last look.
    pub fn take(&mut self) -> Asked {
        std::mem::take(&mut self.asked)
    }
}

fn number(length: usize) -> u32 {
    u32::try_from(length).expect("a small number")
}

impl<S: Store> Store for Counting<S> {
    fn read(&mut self, keys: &[String], fresh: bool) -> Result<Vec<Option<Entry>>, Error> {
        self.asked.reads += 1;
        self.asked.keys += number(keys.len());
        let entries = self.store.read(keys, fresh)?;
        let absent = keys.iter().zip(&entries).filter(|(key, entry)| key.starts_with("block/") && entry.is_none());
        self.asked.absent_blocks += number(absent.count());
        Ok(entries)
    }

    fn scan(
        &mut self,
        prefix: &str,
        from: Option<&str>,
        limit: u32,
        keys_only: bool,
        fresh: bool,
    ) -> Result<Page, Error> {
        self.asked.scans += 1;
        let page = self.store.scan(prefix, from, limit, keys_only, fresh)?;
        self.asked.entries += number(page.entries.len());
        Ok(page)
    }

    fn count(&mut self, prefix: &str, from: Option<&str>, until: Option<&str>, fresh: bool) -> Result<u64, Error> {
        self.asked.counts += 1;
        self.store.count(prefix, from, until, fresh)
    }

    fn commit(&mut self, batch: &[Write], journal: &[Event], durability: Durability) -> Result<Vec<Version>, Error> {
        self.asked.commits += 1;
        self.asked.writes += number(batch.len());
        self.store.commit(batch, journal, durability)
    }

    fn atomic_writes(&mut self) -> u32 {
        self.store.atomic_writes()
    }
}
