//! A store of a few keys that watches what the core may ask of it, and that can fail once.

use plat_core::clock::{Clock, Instant};
use plat_core::net::Address;
use plat_core::network::{Keys, Place, Record, holdings_to_bytes};
use plat_core::store::{
    Action, Durability, Entry, Error, Event, Expected, KEY_BYTES_MAX, Page, READ_KEYS_MAX, Store, Version, Write,
};
use std::collections::BTreeMap;

/// The current boot.
pub(crate) const BOOT: &str = "boot-2";

/// A clock that stands still.
pub(crate) struct StandstillClock;

impl Clock for StandstillClock {
    fn now(&mut self) -> Instant {
        Instant { seconds: 1_800_000_000, nanoseconds: 0 }
    }

    fn boot_id(&mut self) -> Option<String> {
        Some(BOOT.into())
    }
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The store does not answer, and nothing was applied.
    Unavailable,
    /// Another writer was faster. To a read, as unavailable.
    Conflict,
    /// A commit was applied, but its answer is lost. To a read, as unavailable.
    ReplyLost,
    /// A commit was lost, and nobody knows. To a read, as unavailable.
    RequestLost,
}

/// All faults, in the order of their numbers.
pub(crate) const FAULTS: [Fault; 4] = [Fault::Unavailable, Fault::Conflict, Fault::ReplyLost, Fault::RequestLost];

/// The store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TinyStore {
    /// Values and the revision in which they were written.
    keys: BTreeMap<String, (Vec<u8>, u64)>,
    revision: u64,
    /// How many writes a commit may hold.
    pub(crate) atomic_writes: u32,
    fault: Fault,
    /// The fault happens at this call from now on; 0: never.
    calls_to_fault: u32,
}

impl Default for TinyStore {
    fn default() -> Self {
        Self { keys: BTreeMap::new(), revision: 0, atomic_writes: 256, fault: Fault::Unavailable, calls_to_fault: 0 }
    }
}

/// The network and the place that a key names.
fn split(key: &str) -> Option<(&str, Place)> {
    let (network, ending) = key.strip_prefix("network/")?.split_once('/')?;
    Some((network, Place::parse(ending)?))
}

impl TinyStore {
    /// Sets a key before the calls begin.
    pub(crate) fn put(&mut self, key: &str, value: Vec<u8>) {
        self.revision += 1;
        self.keys.insert(key.into(), (value, self.revision));
    }

    /// The value of a key that is not derived.
    pub(crate) fn value(&self, key: &str) -> Option<&Vec<u8>> {
        self.keys.get(key).map(|(value, _)| value)
    }

    /// Makes the store fail once, at its `call`-th call from now on; 0: never.
    pub(crate) fn fault(&mut self, fault: Fault, call: u32) {
        (self.fault, self.calls_to_fault) = (fault, call);
    }

    /// Whether the store is one that an adapter could present: no derived keys of its own, keys of known forms, and
    /// records as values.
    pub(crate) fn is_sound(&self) -> bool {
        self.keys.iter().all(|(key, (value, _))| match split(key) {
            Some((_, Place::Address(_) | Place::Stray(_))) => Record::parse(value).is_some_and(|record| {
                // A record names an owner or says why it does not; an owner has a container id.
                record.foreign.is_some() == record.container.is_none()
                    && (record.container.is_some() || record.ifname.is_none())
                    && record.container.as_deref().is_none_or(plat_core::network::is_container_id)
                    && record.ifname.as_deref().is_none_or(plat_core::network::is_ifname)
            }),
            Some((_, Place::Cursor(_))) => true,
            Some((_, Place::Owner { .. } | Place::Boot { .. })) => false,
            None => key.starts_with("file//"),
        })
    }

    /// The records of the network `net` and their keys.
    fn records(&self) -> impl Iterator<Item = (&String, Record)> {
        self.keys
            .iter()
            .filter(|(key, _)| matches!(split(key), Some(("net", Place::Address(_) | Place::Stray(_)))))
            .filter_map(|(key, (value, _))| Record::parse(value).map(|record| (key, record)))
    }

    /// The keys of the network `net` whose records name just this container and interface.
    pub(crate) fn held_by(&self, owner: (&str, &str)) -> Vec<String> {
        let is_owner =
            |record: &Record| (record.container.as_deref(), record.ifname.as_deref()) == (Some(owner.0), Some(owner.1));
        self.records().filter(|(_, record)| is_owner(record)).map(|(key, _)| key.clone()).collect()
    }

    /// Whether any network holds the address.
    pub(crate) fn holds(&self, address: Address) -> bool {
        self.keys.keys().any(|key| matches!(split(key), Some((_, Place::Address(held))) if held == address))
    }

    /// Whether the owner holds the address in the network `net`.
    pub(crate) fn is_held_by(&self, address: Address, owner: (&str, &str)) -> bool {
        self.held_by(owner).contains(&Keys::new("net").key(&Place::Address(address)))
    }

    /// Whether the address is held in the network `net` by a record of this boot, or of no known one.
    pub(crate) fn is_current(&self, address: Address) -> bool {
        let key = Keys::new("net").key(&Place::Address(address));
        self.records().any(|(held, record)| *held == key && record.boot.is_none_or(|boot| boot == BOOT))
    }

    /// Asserts that all records of `before` that are of this boot, or of no known one, are as they were.
    pub(crate) fn assert_keeps(&self, before: &Self) {
        for (key, record) in before.records() {
            if record.boot.as_deref().is_none_or(|boot| boot == BOOT) {
                assert_eq!(self.value(key), before.value(key), "{key} was changed");
            }
        }
    }

    /// All keys with the derived ones (`docs/formats.md`), each with its version. Keys that were put where derived
    /// ones belong win.
    fn view(&self) -> BTreeMap<String, (Vec<u8>, Version)> {
        let mut owners: BTreeMap<String, Vec<Place>> = BTreeMap::new();
        let mut view = BTreeMap::new();
        let version = Version(format!("derived {}", self.revision).into_bytes());
        for (key, (value, _)) in &self.keys {
            let (Some((network, place)), Some(record)) = (split(key), Record::parse(value)) else { continue };
            if !matches!(place, Place::Address(_) | Place::Stray(_)) {
                continue;
            }
            if let (Place::Address(address), Some(boot)) = (&place, &record.boot) {
                let boot = Place::Boot { boot: boot.clone(), address: *address };
                view.insert(format!("network/{network}/{boot}"), (Vec::new(), version.clone()));
            }
            if let Some(owner) = record.owner() {
                owners.entry(format!("network/{network}/{owner}")).or_default().push(place);
            }
        }
        for (key, places) in owners {
            view.insert(key, (holdings_to_bytes(&places), version.clone()));
        }
        for (key, (value, revision)) in &self.keys {
            view.insert(key.clone(), (value.clone(), Version(revision.to_be_bytes().to_vec())));
        }
        view
    }

    /// Whether the fault happens in this call.
    fn fails(&mut self) -> Option<Fault> {
        let fails = self.calls_to_fault == 1;
        self.calls_to_fault = self.calls_to_fault.saturating_sub(1);
        fails.then_some(self.fault)
    }

    fn fail_read(&mut self) -> Result<(), Error> {
        match self.fails() {
            Some(fault) => Err(Error::Unavailable(format!("{fault:?}"))),
            None => Ok(()),
        }
    }

    fn apply(&mut self, batch: &[Write]) -> Result<Vec<Version>, Error> {
        let view = self.view();
        let version = |key: &String| view.get(key).map(|(_, version)| version.clone());
        let conflicts: Vec<String> = batch
            .iter()
            .filter(|write| match &write.expected {
                Expected::Absent => version(&write.key).is_some(),
                Expected::At(expected) => version(&write.key).as_ref() != Some(expected),
            })
            .map(|write| write.key.clone())
            .collect();
        if !conflicts.is_empty() {
            return Err(Error::Conflict(conflicts));
        }
        self.revision += 1;
        let mut versions = Vec::new();
        for write in batch {
            versions.push(match &write.action {
                Action::Put(value) => {
                    self.keys.insert(write.key.clone(), (value.clone(), self.revision));
                    Version(self.revision.to_be_bytes().to_vec())
                }
                Action::Delete => {
                    self.keys.remove(&write.key);
                    Version::default()
                }
                Action::Check => version(&write.key).unwrap_or_default(),
            });
        }
        Ok(versions)
    }
}

/// Asserts that a key is one that the core may ask for.
fn watch(key: &str) {
    assert!(key.len() <= KEY_BYTES_MAX, "a key of {} bytes, at most {KEY_BYTES_MAX}: {key}", key.len());
}

impl Store for TinyStore {
    fn read(&mut self, keys: &[String], _fresh: bool) -> Result<Vec<Option<Entry>>, Error> {
        assert!(keys.len() <= READ_KEYS_MAX, "{} keys in a read", keys.len());
        keys.iter().for_each(|key| watch(key));
        self.fail_read()?;
        let view = self.view();
        let entry = |key: &String| {
            view.get(key).map(|(value, version)| Entry {
                key: key.clone(),
                value: value.clone(),
                version: version.clone(),
            })
        };
        Ok(keys.iter().map(entry).collect())
    }

    fn scan(
        &mut self,
        prefix: &str,
        from: Option<&str>,
        limit: u32,
        keys_only: bool,
        _fresh: bool,
    ) -> Result<Page, Error> {
        watch(prefix);
        from.into_iter().for_each(watch);
        assert!(limit > 0, "a scan of no entries");
        self.fail_read()?;
        // Pages of at most 3 entries, so that paging is met.
        let size = usize::try_from(limit).unwrap_or(usize::MAX).min(3);
        let view = self.view();
        let mut matching =
            view.into_iter().filter(|(key, _)| key.starts_with(prefix) && from.is_none_or(|from| key.as_str() >= from));
        let mut entries = Vec::new();
        for (key, (value, version)) in matching.by_ref().take(size) {
            entries.push(Entry { key, value: if keys_only { Vec::new() } else { value }, version });
        }
        Ok(Page { entries, next: matching.next().map(|(key, _)| key) })
    }

    fn count(&mut self, prefix: &str, from: Option<&str>, until: Option<&str>, _fresh: bool) -> Result<u64, Error> {
        watch(prefix);
        from.into_iter().chain(until).for_each(watch);
        self.fail_read()?;
        let view = self.view();
        let inside = |key: &&String| {
            key.starts_with(prefix)
                && from.is_none_or(|from| key.as_str() >= from)
                && until.is_none_or(|until| key.as_str() < until)
        };
        Ok(view.keys().filter(inside).count() as u64)
    }

    fn commit(&mut self, batch: &[Write], journal: &[Event], _durability: Durability) -> Result<Vec<Version>, Error> {
        if batch.is_empty() {
            // It asks whether this store could be written.
            assert!(journal.is_empty(), "a commit of nothing has nothing to tell");
            return Ok(Vec::new());
        }
        assert!(batch.len() <= self.atomic_writes as usize, "{} writes, at most {}", batch.len(), self.atomic_writes);
        for (i, write) in batch.iter().enumerate() {
            watch(&write.key);
            assert!(batch[..i].iter().all(|other| other.key != write.key), "{} twice in a commit", write.key);
            let writable =
                matches!(split(&write.key), Some((_, Place::Address(_) | Place::Stray(_) | Place::Cursor(_))));
            if write.action != Action::Check && !writable {
                // Only a store that contradicts itself can lead the core there.
                assert!(!self.is_sound(), "{} is read-only", write.key);
                return Err(Error::Denied(format!("{} is read-only", write.key)));
            }
            assert!(
                write.action != Action::Delete || write.expected != Expected::Absent,
                "{} is to be deleted and absent",
                write.key
            );
        }
        for event in journal {
            assert!(!event.what.is_empty() && !event.key.is_empty() && !event.why.is_empty(), "{event:?}");
        }
        match self.fails() {
            None => self.apply(batch),
            Some(Fault::Unavailable) => Err(Error::Unavailable("as asked".into())),
            Some(Fault::Conflict) => {
                Err(Error::Conflict(batch.iter().take(1).map(|write| write.key.clone()).collect()))
            }
            Some(Fault::ReplyLost) => self.apply(batch).and(Err(Error::UnknownOutcome)),
            Some(Fault::RequestLost) => Err(Error::UnknownOutcome),
        }
    }

    fn atomic_writes(&mut self) -> u32 {
        self.atomic_writes
    }
}
