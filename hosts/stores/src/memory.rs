//! A store in memory: for tests, for the playground, and as the reference that other adapters are compared with.

use crate::counted::CountedMap;
use crate::files::check_read;
use crate::structured::{Put, after_prefix, check_batch, check_key, check_write, split};
use plat_core::network::{Keys, Place, Record, holdings_to_bytes, parse_holdings};
use plat_core::objects::keys::{block_of_key, derived, is_derived};
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
        self.put_record(keys, place, record);
    }

    /// The newest events, oldest first.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.events.iter()
    }

    /// All keys with their values, in order: the state as a whole, for comparisons.
    pub fn dump(&self) -> Vec<(String, Vec<u8>)> {
        self.slots.from("").map(|(key, slot)| (key.clone(), slot.value.clone())).collect()
    }

    /// Puts any value, and the keys that follow from it.
    fn put(&mut self, key: String, value: Vec<u8>) {
        if block_of_key(&key).is_some() {
            let new = derived(&key, &value);
            self.remove_derived(&key, &new);
            for (key, value) in new {
                self.slots.insert(key, Slot { value, version: self.version_last });
            }
        }
        self.slots.insert(key, Slot { value, version: self.version_last });
    }

    /// Removes any key, and those that follow from it.
    fn remove(&mut self, key: &str) {
        if block_of_key(key).is_some() {
            self.remove_derived(key, &[]);
        }
        self.slots.remove(key);
    }

    /// Removes the keys that follow from the present value of a key, but for those that will be there again.
    fn remove_derived(&mut self, key: &str, again: &[(String, Vec<u8>)]) {
        let Some(slot) = self.slots.get(key) else { return };
        for (old, _) in derived(key, &slot.value) {
            if !again.iter().any(|(key, _)| *key == old) {
                self.slots.remove(old.as_str());
            }
        }
    }

    fn put_record(&mut self, keys: &Keys, place: &Place, record: &Record) {
        self.remove_record(keys, place, record.owner().as_ref());
        if let Some(owner) = record.owner() {
            self.hold(keys, &owner, place, true);
        }
        if let (Place::Address(address), Some(boot)) = (place, &record.boot) {
            self.put(keys.key(&Place::Boot { boot: boot.clone(), address: *address }), Vec::new());
        }
        self.put(keys.key(place), record.to_bytes());
    }

    /// Removes a record and what follows from it, but for the holdings of `heir`, who takes the place over.
    fn remove_record(&mut self, keys: &Keys, place: &Place, heir: Option<&Place>) {
        let Some(slot) = self.slots.remove(keys.key(place).as_str()) else { return };
        let Some(record) = Record::parse(&slot.value) else { return };
        if let Some(owner) = record.owner()
            && Some(&owner) != heir
        {
            self.hold(keys, &owner, place, false);
        }
        if let (Place::Address(address), Some(boot)) = (place, record.boot) {
            self.slots.remove(keys.key(&Place::Boot { boot, address: *address }).as_str());
        }
    }

    /// Adds a place to an owner's holdings, or takes it away.
    fn hold(&mut self, keys: &Keys, owner: &Place, place: &Place, holds: bool) {
        let key = keys.key(owner);
        let mut places = self.slots.get(key.as_str()).and_then(|slot| parse_holdings(&slot.value)).unwrap_or_default();
        if places.contains(place) == holds {
            return;
        }
        places.retain(|held| held != place);
        if holds {
            places.push(place.clone());
        }
        if places.is_empty() {
            self.slots.remove(key.as_str());
        } else {
            self.put(key, holdings_to_bytes(&places));
        }
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
        let mut puts = Vec::with_capacity(batch.len());
        let mut conflicts = Vec::new();
        for write in batch {
            let place = split(&write.key);
            if place.is_none() && write.key.starts_with("network/") {
                return Err(Error::Denied(format!("{}: no key of a network has this form", write.key)));
            }
            if is_derived(&write.key) && !matches!(write.action, Action::Check) {
                return Err(Error::Denied(format!("{}: derived from the blocks and not written", write.key)));
            }
            puts.push(match &place {
                Some((_, place)) => check_write(place, write)?,
                None => None,
            });
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
        let mut versions = Vec::with_capacity(batch.len());
        for (write, put) in batch.iter().zip(puts) {
            versions.push(match &write.action {
                Action::Check => match &write.expected {
                    Expected::Absent => Version::default(),
                    Expected::At(version) => version.clone(),
                },
                Action::Delete => {
                    match split(&write.key) {
                        Some((keys, place @ (Place::Address(_) | Place::Stray(_)))) => {
                            self.remove_record(&keys, &place, None);
                        }
                        _ => self.remove(&write.key),
                    }
                    Version::default()
                }
                Action::Put(value) => {
                    match (split(&write.key), put) {
                        (Some((keys, place)), Some(Put::Record(record))) => self.put_record(&keys, &place, &record),
                        (_, Some(Put::Cursor(value))) => self.put(write.key.clone(), value),
                        _ => self.put(write.key.clone(), value.clone()),
                    }
                    version(self.version_last)
                }
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
