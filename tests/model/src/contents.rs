//! The shared store as a value: keys with values and versions, cheap to copy and with a hash.
//!
//! A key's version is the number of writes that it has seen, deletions among them: it never repeats, and states that
//! were reached by writing the same keys equally often merge, in whatever order that was. The indexes that follow from
//! blocks are worked out when they are asked for.

use crate::hash::{hash_bytes, mix};
use plat_core::net::{Address, Prefix};
use plat_core::objects::keys::{affinity_of_key, block_of_key, derived, handle_of_key};
use plat_core::objects::{Affinity, Block, Handle, Holder, State};
use plat_core::store::{Action, Entry, Error, Event, Expected, Page, Version, Write};
use std::collections::HashMap;
use std::rc::Rc;

/// An address that a block holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The address.
    pub address: Address,
    /// Its handle.
    pub handle: Option<Rc<str>>,
    /// Whether it is cooling.
    pub is_cooling: bool,
}

/// What a value means.
#[derive(Clone, Debug)]
pub enum Meaning {
    /// A block: its holder and what it holds.
    Block(Prefix, Option<Holder>, Vec<Held>),
    /// A handle: its id and how many addresses it counts in each block.
    Handle(Rc<str>, Vec<(Prefix, u32)>),
    /// An affinity.
    Affinity(Holder, Prefix, State),
    /// Something else.
    Other,
}

/// A value, read once.
#[derive(Debug)]
pub struct Value {
    /// As it is stored.
    pub bytes: Vec<u8>,
    /// Of key and bytes.
    pub hash: u128,
    /// What it means.
    pub meaning: Meaning,
    /// The index entries that follow from it.
    pub derived: Vec<(Rc<str>, Rc<Value>)>,
}

/// All values that were ever written, so that each is read once.
#[derive(Debug, Default)]
pub struct Values {
    known: HashMap<(Rc<str>, Vec<u8>), Rc<Value>>,
    keys: HashMap<String, Rc<str>>,
}

impl Values {
    /// The shared form of a text.
    pub fn text(&mut self, text: &str) -> Rc<str> {
        if let Some(known) = self.keys.get(text) {
            return Rc::clone(known);
        }
        let shared: Rc<str> = text.into();
        self.keys.insert(text.to_owned(), Rc::clone(&shared));
        shared
    }

    /// The value of a key.
    ///
    /// # Panics
    /// If a block, a handle or an affinity cannot be read.
    pub fn value(&mut self, key: &str, bytes: &[u8]) -> Rc<Value> {
        let key = self.text(key);
        let looked_for = (Rc::clone(&key), bytes.to_vec());
        if let Some(known) = self.known.get(&looked_for) {
            return Rc::clone(known);
        }
        let follows = derived(&key, bytes).into_iter().map(|(key, bytes)| {
            let value = Value {
                hash: mix(hash_bytes(key.as_bytes()), hash_bytes(&bytes)),
                bytes,
                meaning: Meaning::Other,
                derived: Vec::new(),
            };
            (key.as_str().into(), Rc::new(value))
        });
        let value = Rc::new(Value {
            bytes: bytes.to_vec(),
            hash: mix(hash_bytes(key.as_bytes()), hash_bytes(bytes)),
            derived: follows.collect(),
            meaning: self.meaning(&key, bytes),
        });
        self.known.insert(looked_for, Rc::clone(&value));
        value
    }

    fn meaning(&mut self, key: &str, bytes: &[u8]) -> Meaning {
        if let Some(prefix) = block_of_key(key) {
            let block = Block::parse(bytes).unwrap_or_else(|why| panic!("{key}: {why}"));
            let held = block.all_held().into_iter().map(|held| Held {
                address: held.address,
                handle: held.handle.map(|handle| self.text(&handle)),
                is_cooling: held.cooling_since.is_some(),
            });
            return Meaning::Block(prefix, block.holder(), held.collect());
        }
        if let Some(id) = handle_of_key(key) {
            let handle = Handle::parse(bytes).unwrap_or_else(|why| panic!("{key}: {why}"));
            return Meaning::Handle(self.text(&id), handle.counts().iter().map(|(b, n)| (*b, *n)).collect());
        }
        if let Some((holder, prefix)) = affinity_of_key(key) {
            let affinity = Affinity::parse(bytes).unwrap_or_else(|why| panic!("{key}: {why}"));
            return Meaning::Affinity(holder, prefix, affinity.state());
        }
        Meaning::Other
    }
}

/// What a key was before its last write.
#[derive(Clone, Debug)]
pub struct Before {
    /// Its value then.
    pub value: Option<Rc<Value>>,
    /// Its version then.
    pub version: u32,
    /// The client who made the last write.
    pub writer: u8,
}

/// One key, also after its deletion, so that its versions do not come again.
#[derive(Debug)]
pub struct Slot {
    /// The key.
    pub key: Rc<str>,
    /// Its value; none: it was deleted.
    pub value: Option<Rc<Value>>,
    /// How often it was written.
    pub version: u32,
    /// Kept where stale answers are among the faults.
    pub before: Option<Before>,
    hash: u128,
}

/// Keys and values.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    slots: Vec<Rc<Slot>>,
}

/// An entry that is found, without a copy of its value.
#[derive(Clone, Debug)]
pub struct Found {
    /// The key.
    pub key: Rc<str>,
    /// Its value.
    pub value: Rc<Value>,
    /// Its version.
    pub version: u32,
}

impl Found {
    /// As the core gets it.
    pub fn entry(&self, keys_only: bool) -> Entry {
        Entry {
            key: self.key.to_string(),
            value: if keys_only { Vec::new() } else { self.value.bytes.clone() },
            version: to_version(self.version),
        }
    }

    /// Of everything.
    pub fn hash(&self) -> u128 {
        mix(self.value.hash, u128::from(self.version))
    }
}

fn to_version(number: u32) -> Version {
    Version(number.to_be_bytes().to_vec())
}

/// A version as a number.
pub fn number_of(version: &Version) -> u32 {
    version.0.as_slice().try_into().map_or(0, u32::from_be_bytes)
}

impl Contents {
    /// Of everything.
    pub fn hash(&self) -> u128 {
        self.slots.iter().fold(0, |hash, slot| mix(hash, slot.hash))
    }

    fn find(&self, key: &str) -> Result<usize, usize> {
        self.slots.binary_search_by(|slot| slot.key.as_ref().cmp(key))
    }

    /// Every key that exists.
    pub fn live(&self) -> impl Iterator<Item = (&Rc<str>, &Rc<Value>)> {
        self.slots.iter().filter_map(|slot| Some((&slot.key, slot.value.as_ref()?)))
    }

    /// A key; none if it does not exist.
    pub fn get(&self, key: &str) -> Option<Found> {
        let slot = &self.slots[self.find(key).ok()?];
        let value = Rc::clone(slot.value.as_ref()?);
        Some(Found { key: Rc::clone(&slot.key), value, version: slot.version })
    }

    /// The index entries, in the order of their keys; those of `lagging` are as they were before others' last writes.
    pub fn index(&self, lagging: Option<u8>) -> Vec<Found> {
        let mut all = Vec::new();
        for slot in &self.slots {
            let (value, version) = match (&slot.before, lagging) {
                (Some(before), Some(client)) if before.writer != client => (&before.value, before.version),
                _ => (&slot.value, slot.version),
            };
            let Some(value) = value else { continue };
            all.extend(value.derived.iter().map(|(key, value)| Found {
                key: Rc::clone(key),
                value: Rc::clone(value),
                version,
            }));
        }
        all.sort_by(|a, b| a.key.cmp(&b.key));
        all
    }

    /// The keys of a range, in order.
    pub fn range<'c>(&'c self, prefix: &'c str, from: &'c str, until: Option<&'c str>) -> impl Iterator<Item = Found> {
        let start = self.slots.partition_point(|slot| slot.key.as_ref() < from.max(prefix));
        self.slots[start..]
            .iter()
            .take_while(move |slot| {
                slot.key.starts_with(prefix) && until.is_none_or(|until| slot.key.as_ref() < until)
            })
            .filter_map(|slot| {
                let value = Rc::clone(slot.value.as_ref()?);
                Some(Found { key: Rc::clone(&slot.key), value, version: slot.version })
            })
    }

    /// The version of a key that exists.
    pub fn version(&self, key: &str) -> Option<u32> {
        let slot = &self.slots[self.find(key).ok()?];
        slot.value.as_ref().map(|_| slot.version)
    }

    /// Whether a key is as expected.
    pub fn is_as_expected(&self, write: &Write) -> bool {
        match &write.expected {
            Expected::Absent => self.version(&write.key).is_none(),
            Expected::At(version) => self.version(&write.key) == Some(number_of(version)),
        }
    }

    /// Whether a key can still come to be as expected: versions do not come again.
    pub fn may_be_as_expected(&self, write: &Write) -> bool {
        matches!(write.expected, Expected::Absent) || self.is_as_expected(write)
    }

    /// Makes a commit, or tells which keys are not as expected.
    pub fn commit(&mut self, values: &mut Values, batch: &[Write], maker: Maker) -> Result<Vec<Version>, Error> {
        let differ: Vec<String> =
            batch.iter().filter(|write| !self.is_as_expected(write)).map(|write| write.key.clone()).collect();
        if !differ.is_empty() {
            return Err(Error::Conflict(differ));
        }
        Ok(batch.iter().map(|write| self.write(values, write, maker)).collect())
    }

    /// Makes a write, whatever is there.
    pub fn write(&mut self, values: &mut Values, write: &Write, maker: Maker) -> Version {
        let value = match &write.action {
            Action::Put(bytes) => Some(values.value(&write.key, bytes)),
            Action::Delete => None,
            Action::Check => {
                return match &write.expected {
                    Expected::At(version) => version.clone(),
                    Expected::Absent => Version::default(),
                };
            }
        };
        let found = self.find(&write.key);
        let old = found.ok().map(|index| &self.slots[index]);
        let version = old.map_or(0, |old| old.version) + 1;
        let before = (maker.keeps_before && write.key.starts_with("block/")).then(|| Before {
            value: old.and_then(|old| old.value.clone()),
            version: version - 1,
            writer: maker.client,
        });
        let mut hash = mix(hash_bytes(write.key.as_bytes()), u128::from(version));
        hash = mix(hash, value.as_ref().map_or(1, |value| value.hash));
        if let Some(before) = &before {
            hash = mix(hash, before.value.as_ref().map_or(2, |value| value.hash));
            hash = mix(hash, u128::from(before.writer));
        }
        let is_put = value.is_some();
        let slot = Rc::new(Slot { key: values.text(&write.key), value, version, before, hash });
        match found {
            Ok(index) => self.slots[index] = slot,
            Err(index) => self.slots.insert(index, slot),
        }
        if is_put { to_version(version) } else { Version::default() }
    }
}

/// Who makes a write.
#[derive(Clone, Copy, Debug)]
pub struct Maker {
    /// The client.
    pub client: u8,
    /// Whether to keep what was before, for stale answers.
    pub keeps_before: bool,
}

/// The keys that nobody writes while operations run: pools, reservations, configuration, labels.
#[derive(Clone, Debug, Default)]
pub struct Fixed {
    entries: Vec<Found>,
}

impl Fixed {
    /// Whether a key is one of them.
    pub fn has_kind(key: &str) -> bool {
        ["pool/", "reservation/", "config", "node/", "namespace/"].iter().any(|kind| key.starts_with(kind))
    }

    /// Puts a key.
    pub fn put(&mut self, values: &mut Values, key: &str, bytes: &[u8]) {
        let found = Found { key: values.text(key), value: values.value(key, bytes), version: 1 };
        match self.entries.binary_search_by(|entry| entry.key.as_ref().cmp(key)) {
            Ok(index) => self.entries[index] = found,
            Err(index) => self.entries.insert(index, found),
        }
    }

    /// A key.
    pub fn get(&self, key: &str) -> Option<Found> {
        self.entries.iter().find(|entry| entry.key.as_ref() == key).cloned()
    }

    /// The keys of a range, in order.
    pub fn range<'c>(&'c self, prefix: &'c str, from: &'c str) -> impl Iterator<Item = Found> {
        self.entries
            .iter()
            .filter(move |entry| entry.key.starts_with(prefix) && entry.key.as_ref() >= from)
            .cloned()
    }
}

/// Whether a key is of an index that follows from blocks.
pub fn is_index(key: &str) -> bool {
    ["room/", "empty/", "owned/"].iter().any(|kind| key.starts_with(kind))
}

/// A call to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// [`plat_core::store::Store::read`].
    Read(Vec<String>, bool),
    /// [`plat_core::store::Store::scan`]: prefix, from, limit, keys only, fresh.
    Scan(String, String, u32, bool, bool),
    /// [`plat_core::store::Store::count`]: prefix, from, until.
    Count(String, String, Option<String>),
    /// [`plat_core::store::Store::commit`].
    Commit(Vec<Write>),
}

impl Call {
    /// Whether the answer is the same at any time.
    pub fn is_fixed(&self) -> bool {
        match self {
            Self::Read(keys, _) => keys.iter().all(|key| Fixed::has_kind(key)),
            Self::Scan(prefix, ..) | Self::Count(prefix, ..) => Fixed::has_kind(prefix),
            Self::Commit(_) => false,
        }
    }

    /// Whether the answer may lag.
    pub fn may_lag(&self) -> bool {
        match self {
            Self::Read(keys, fresh) => !fresh && keys.iter().any(|key| is_index(key)),
            Self::Scan(prefix, _, _, _, fresh) => !fresh && is_index(prefix),
            Self::Count(..) | Self::Commit(_) => false,
        }
    }
}

/// An answer of the store, without copies of values.
#[derive(Clone, Debug)]
pub enum Answered {
    /// To a read.
    Read(Vec<Option<Found>>),
    /// To a scan: entries, whether only keys were asked for, and where to go on.
    Scan(Vec<Found>, bool, Option<Rc<str>>),
    /// To a count.
    Count(u64),
    /// To a commit.
    Commit(Vec<Version>),
    /// A failure.
    Failed(Error),
}

/// An answer as the core gets it.
#[derive(Clone, Debug)]
pub enum Reply {
    /// To a read.
    Read(Vec<Option<Entry>>),
    /// To a scan.
    Scan(Page),
    /// To a count.
    Count(u64),
    /// To a commit.
    Commit(Vec<Version>),
    /// A failure.
    Failed(Error),
}

impl Answered {
    /// Of everything.
    pub fn hash(&self) -> u128 {
        match self {
            Self::Read(found) => {
                found.iter().fold(11, |hash, found| mix(hash, found.as_ref().map_or(1, Found::hash)))
            }
            Self::Scan(found, _, next) => {
                let hash = found.iter().fold(12, |hash, found| mix(hash, found.hash()));
                mix(hash, next.as_ref().map_or(1, |next| hash_bytes(next.as_bytes())))
            }
            Self::Count(count) => mix(13, u128::from(*count)),
            Self::Commit(versions) => versions.iter().fold(14, |hash, version| mix(hash, hash_bytes(&version.0))),
            Self::Failed(Error::Conflict(keys)) => {
                keys.iter().fold(15, |hash, key| mix(hash, hash_bytes(key.as_bytes())))
            }
            Self::Failed(error) => mix(16, hash_bytes(format!("{error:?}").as_bytes())),
        }
    }

    /// As the core gets it.
    pub fn reply(&self) -> Reply {
        match self {
            Self::Read(found) => {
                Reply::Read(found.iter().map(|found| found.as_ref().map(|found| found.entry(false))).collect())
            }
            Self::Scan(found, keys_only, next) => Reply::Scan(Page {
                entries: found.iter().map(|found| found.entry(*keys_only)).collect(),
                next: next.as_ref().map(ToString::to_string),
            }),
            Self::Count(count) => Reply::Count(*count),
            Self::Commit(versions) => Reply::Commit(versions.clone()),
            Self::Failed(error) => Reply::Failed(error.clone()),
        }
    }
}

/// Answers a call that changes nothing.
///
/// # Panics
/// If it is a commit.
pub fn look(contents: &Contents, fixed: &Fixed, call: &Call, lagging: Option<u8>) -> Answered {
    match call {
        Call::Read(keys, _) => {
            let index = if keys.iter().any(|key| is_index(key)) { contents.index(lagging) } else { Vec::new() };
            let one = |key: &String| {
                if Fixed::has_kind(key) {
                    fixed.get(key)
                } else if is_index(key) {
                    index.iter().find(|found| found.key.as_ref() == key).cloned()
                } else {
                    contents.get(key)
                }
            };
            Answered::Read(keys.iter().map(one).collect())
        }
        Call::Scan(prefix, from, limit, keys_only, _) => {
            let mut found: Vec<Found> = if Fixed::has_kind(prefix) {
                fixed.range(prefix, from).collect()
            } else if is_index(prefix) {
                let mut index = contents.index(lagging);
                index.retain(|found| found.key.starts_with(prefix.as_str()) && found.key.as_ref() >= from.as_str());
                index
            } else {
                contents.range(prefix, from, None).collect()
            };
            let limit = *limit as usize;
            let next = found.get(limit).map(|found| Rc::clone(&found.key));
            found.truncate(limit);
            Answered::Scan(found, *keys_only, next)
        }
        Call::Count(prefix, from, until) => {
            let count = if Fixed::has_kind(prefix) {
                fixed.range(prefix, from).count()
            } else if is_index(prefix) {
                let inside = |found: &&Found| {
                    found.key.starts_with(prefix.as_str())
                        && found.key.as_ref() >= from.as_str()
                        && until.as_ref().is_none_or(|until| found.key.as_ref() < until.as_str())
                };
                contents.index(None).iter().filter(inside).count()
            } else {
                contents.range(prefix, from, until.as_deref()).count()
            };
            Answered::Count(count as u64)
        }
        Call::Commit(_) => panic!("a commit is not a look"),
    }
}

/// A store for one caller alone: what a scope begins with, and what a repair does at its end.
pub struct Alone<'a> {
    /// The keys.
    pub contents: &'a mut Contents,
    /// The keys that nobody writes.
    pub fixed: &'a Fixed,
    /// All values.
    pub values: &'a mut Values,
    /// How many writes a commit may hold.
    pub atomic_writes: u32,
}

impl plat_core::store::Store for Alone<'_> {
    fn read(&mut self, keys: &[String], fresh: bool) -> Result<Vec<Option<Entry>>, Error> {
        match look(self.contents, self.fixed, &Call::Read(keys.to_vec(), fresh), None).reply() {
            Reply::Read(entries) => Ok(entries),
            other => panic!("{other:?}"),
        }
    }

    fn scan(
        &mut self,
        prefix: &str,
        from: Option<&str>,
        limit: u32,
        keys_only: bool,
        fresh: bool,
    ) -> Result<Page, Error> {
        let call = Call::Scan(prefix.into(), from.unwrap_or_default().into(), limit, keys_only, fresh);
        match look(self.contents, self.fixed, &call, None).reply() {
            Reply::Scan(page) => Ok(page),
            other => panic!("{other:?}"),
        }
    }

    fn count(&mut self, prefix: &str, from: Option<&str>, until: Option<&str>, _fresh: bool) -> Result<u64, Error> {
        let call = Call::Count(prefix.into(), from.unwrap_or_default().into(), until.map(str::to_owned));
        match look(self.contents, self.fixed, &call, None).reply() {
            Reply::Count(count) => Ok(count),
            other => panic!("{other:?}"),
        }
    }

    fn commit(
        &mut self,
        batch: &[Write],
        _journal: &[Event],
        _durability: plat_core::store::Durability,
    ) -> Result<Vec<Version>, Error> {
        if batch.len() > self.atomic_writes as usize {
            return Err(Error::TooLarge);
        }
        self.contents.commit(self.values, batch, Maker { client: u8::MAX, keeps_before: false })
    }

    fn atomic_writes(&mut self) -> u32 {
        self.atomic_writes
    }
}
