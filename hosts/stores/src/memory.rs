//! A store in memory: for tests, for the playground, and as the reference that other adapters are compared with.

use crate::counted::CountedMap;
use crate::files::check_read;
use crate::kept::{Kept, apply, check, put_record};
use crate::structured::{after_prefix, check_batch, check_key};
use plat_core::network::{Keys, Place, Record};
use plat_core::store::{
    Action, Durability, Entry, Error, Event, Expected, PAGE_BYTES_MAX, Page, Store, Version, Write,
};
use std::collections::VecDeque;

/// How many writes a commit may hold unless told otherwise: far more than any operation of the core makes.
pub const ATOMIC_WRITES: u32 = 1 << 16;

/// How many bytes of keys and values a commit may hold: what a host call may carry.
pub const COMMIT_BYTES_MAX: usize = 4 << 20;

/// How many of the newest events are kept.
pub const EVENTS_MAX: usize = 4096;

#[derive(Clone, Debug)]
struct Slot {
    value: Vec<u8>,
    version: u64,
}

/// A store in memory. A clone is an independent copy of its state.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    slots: CountedMap<String, Slot>,
    /// The version given last; it never goes back, so that no version repeats.
    version_last: u64,
    atomic_writes: u32,
    events: VecDeque<Event>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

fn version(number: u64) -> Version {
    Version(number.to_be_bytes().to_vec())
}

impl MemoryStore {
    /// An empty store that takes [`ATOMIC_WRITES`] writes in a commit.
    pub fn new() -> Self {
        Self::with_atomic_writes(ATOMIC_WRITES)
    }

    /// An empty store that takes `atomic_writes` writes in a commit; 1 is what the Kubernetes API offers.
    pub fn with_atomic_writes(atomic_writes: u32) -> Self {
        Self { slots: CountedMap::new(), version_last: 0, atomic_writes: atomic_writes.max(1), events: VecDeque::new() }
    }

    /// Puts a record that no commit writes: a stray, or an address that names no owner. For tests and imports.
    pub fn seed(&mut self, keys: &Keys, place: &Place, record: &Record) {
        self.version_last += 1;
        let mut raw = Raw { slots: &mut self.slots, version: self.version_last };
        // Slots in memory do not fail.
        let _ = put_record(&mut raw, keys, place, record);
    }

    /// The newest events, oldest first.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.events.iter()
    }

    /// All keys with their values, in order: the state as a whole, for comparisons.
    pub fn dump(&self) -> Vec<(String, Vec<u8>)> {
        self.slots.from("").map(|(key, slot)| (key.clone(), slot.value.clone())).collect()
    }
}

/// The slots, written in one version.
struct Raw<'s> {
    slots: &'s mut CountedMap<String, Slot>,
    version: u64,
}

impl Kept for Raw<'_> {
    fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.slots.get(key).map(|slot| slot.value.clone()))
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), Error> {
        self.slots.insert(key.to_owned(), Slot { value: value.to_vec(), version: self.version });
        Ok(())
    }

    fn remove(&mut self, key: &str) -> Result<(), Error> {
        self.slots.remove(key);
        Ok(())
    }
}

impl Store for MemoryStore {
    fn read(&mut self, keys: &[String], _fresh: bool) -> Result<Vec<Option<Entry>>, Error> {
        check_read(keys)?;
        keys.iter().try_for_each(|key| check_key(key))?;
        Ok(keys
            .iter()
            .map(|key| {
                self.slots.get(key.as_str()).map(|slot| Entry {
                    key: key.clone(),
                    value: slot.value.clone(),
                    version: version(slot.version),
                })
            })
            .collect())
    }

    fn scan(
        &mut self,
        prefix: &str,
        from: Option<&str>,
        limit: u32,
        keys_only: bool,
        _fresh: bool,
    ) -> Result<Page, Error> {
        let mut page = Page::default();
        let mut bytes = 0;
        for (key, slot) in self.slots.from(from.unwrap_or(prefix).max(prefix)) {
            if !key.starts_with(prefix) {
                break;
            }
            if page.entries.len() as u64 >= u64::from(limit.max(1)) || bytes >= PAGE_BYTES_MAX {
                page.next = Some(key.clone());
                break;
            }
            let value = if keys_only { Vec::new() } else { slot.value.clone() };
            bytes += key.len() + value.len();
            page.entries.push(Entry { key: key.clone(), value, version: version(slot.version) });
        }
        Ok(page)
    }

    fn count(&mut self, prefix: &str, from: Option<&str>, until: Option<&str>, _fresh: bool) -> Result<u64, Error> {
        let start = self.slots.rank(from.unwrap_or(prefix).max(prefix));
        let until = match (after_prefix(prefix), until) {
            (Some(end), Some(until)) => Some(end.min(until.to_owned())),
            (Some(end), None) => Some(end),
            (None, until) => until.map(str::to_owned),
        };
        let end = until.map_or_else(|| self.slots.len(), |until| self.slots.rank(until.as_str()));
        Ok(end.saturating_sub(start))
    }

    fn commit(&mut self, batch: &[Write], journal: &[Event], _: Durability) -> Result<Vec<Version>, Error> {
        check_batch(batch, self.atomic_writes)?;
        let mut bytes = 0;
        let mut kinds = Vec::with_capacity(batch.len());
        let mut conflicts = Vec::new();
        for write in batch {
            kinds.push(check(write)?);
            bytes += write.key.len();
            if let Action::Put(value) = &write.action {
                bytes += value.len();
            }
            let have = self.slots.get(write.key.as_str()).map(|slot| version(slot.version));
            let holds = match &write.expected {
                Expected::Absent => have.is_none(),
                Expected::At(version) => have.as_ref() == Some(version),
            };
            if !holds {
                conflicts.push(write.key.clone());
            }
        }
        if bytes > COMMIT_BYTES_MAX {
            return Err(Error::TooLarge);
        }
        if !conflicts.is_empty() {
            return Err(Error::Conflict(conflicts));
        }
        self.version_last += 1;
        let mut raw = Raw { slots: &mut self.slots, version: self.version_last };
        let mut versions = Vec::with_capacity(batch.len());
        for (write, kind) in batch.iter().zip(&kinds) {
            apply(&mut raw, write, kind)?;
            versions.push(match (&write.action, &write.expected) {
                (Action::Check, Expected::At(version)) => version.clone(),
                (Action::Put(_), _) => version(self.version_last),
                (Action::Delete | Action::Check, _) => Version::default(),
            });
        }
        self.events.extend(journal.iter().cloned());
        while self.events.len() > EVENTS_MAX {
            self.events.pop_front();
        }
        Ok(versions)
    }

    fn atomic_writes(&mut self) -> u32 {
        self.atomic_writes
    }
}
