//! One call's view of the store: typed reading and writing, and what is read once for all items.

use super::{Attributes, Call, Error, Holder};
use crate::clock::Instant;
use crate::limits::{SCAN_ENTRIES, SCAN_PAGES_MAX};
use crate::net::{AddressSet, Prefix};
use crate::objects::keys::{affinity_key, block_key};
use crate::objects::{Affinity, Block, Unreadable};
use crate::resources::{self, Configuration, Pool, Reservation};
use crate::store::{self, Action, Durability, Entry, Event, Expected, READ_KEYS_MAX, Version, Write};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Why a step of an operation did not go through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Another writer was faster: read again and decide again.
    Again,
    /// There is no use in trying again.
    Fail(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Fail(error)
    }
}

/// What a failed read means; a failed write is looked at where it was made.
impl From<store::Error> for Stop {
    fn from(error: store::Error) -> Self {
        match error {
            store::Error::Conflict(_) | store::Error::UnknownOutcome => Self::Again,
            store::Error::Unavailable(why) => Self::Fail(Error::Unavailable(why)),
            store::Error::TooLarge => {
                Self::Fail(Error::Denied("the change is larger than the store can take at once".into()))
            }
            store::Error::Denied(why) => Self::Fail(Error::Denied(why)),
        }
    }
}

pub(super) type Step<T> = Result<T, Stop>;

/// An object as it was read, and the version that a write must expect.
#[derive(Clone, Debug)]
pub(super) struct Versioned<T> {
    pub(super) object: T,
    pub(super) version: Version,
}

/// What administrators wrote, read once in a call.
#[derive(Debug)]
pub(super) struct World {
    pub(super) configuration: Configuration,
    /// All pools, by priority and then by name.
    pub(super) pools: Vec<Pool>,
    /// All reserved addresses.
    pub(super) reserved: AddressSet,
}

impl World {
    /// The pool that contains a prefix, whatever its state; pools do not overlap.
    pub(super) fn pool_of(&self, prefix: Prefix) -> Option<&Pool> {
        self.pools.iter().find(|pool| pool.cidr.covers(&prefix))
    }

    /// As `pool_of`, among those from which addresses may be assigned.
    pub(super) fn enabled_pool_of(&self, prefix: Prefix) -> Option<&Pool> {
        self.pools.iter().find(|pool| is_enabled(pool) && pool.cidr.covers(&prefix))
    }
}

/// Whether addresses may be assigned from a pool (`calico.md` 1.1).
pub(super) fn is_enabled(pool: &Pool) -> bool {
    !pool.disabled && !pool.deleting && pool.not_allocatable.is_none()
}

/// One call: store, time, and what was read already.
pub(super) struct Session<'s, 'a> {
    call: &'s mut Call<'a>,
    pub(super) now: Instant,
    /// How many writes a commit may hold.
    pub(super) writes_max: usize,
    /// Indexes must not lag: what was looked up before was not enough, and an answer depends on it.
    pub(super) is_wary: bool,
    /// Somebody else was faster: a write was not made, or what was written was taken back.
    pub(super) is_beaten: bool,
    configuration: Option<Configuration>,
    world: Option<Rc<World>>,
    labels: BTreeMap<String, Rc<Attributes>>,
}

/// A write that makes an object.
pub(super) fn create(key: String, value: Vec<u8>) -> Write {
    Write { key, expected: Expected::Absent, action: Action::Put(value) }
}

/// A write that replaces an object.
pub(super) fn replace(key: String, version: &Version, value: Vec<u8>) -> Write {
    Write { key, expected: Expected::At(version.clone()), action: Action::Put(value) }
}

/// A write that removes an object.
pub(super) fn remove(key: String, version: &Version) -> Write {
    Write { key, expected: Expected::At(version.clone()), action: Action::Delete }
}

pub(super) fn unreadable(key: &str) -> impl FnOnce(Unreadable) -> Error {
    let key = key.to_owned();
    move |why| Error::Unreadable { key, why: why.0 }
}

impl<'s, 'a> Session<'s, 'a> {
    pub(super) fn new(call: &'s mut Call<'a>) -> Self {
        let now = call.clock.now();
        let writes_max = usize::try_from(call.store.atomic_writes()).unwrap_or(usize::MAX).max(1);
        Self {
            call,
            now,
            writes_max,
            is_wary: false,
            is_beaten: false,
            configuration: None,
            world: None,
            labels: BTreeMap::new(),
        }
    }

    /// Whether an address and what points to it are written in one commit.
    pub(super) fn is_atomic(&self) -> bool {
        self.writes_max >= super::ATOMIC_WRITES_MIN
    }

    /// The time in seconds since 1970.
    pub(super) fn seconds(&self) -> i64 {
        i64::try_from(self.now.seconds).unwrap_or(i64::MAX)
    }

    /// Reads any number of keys.
    pub(super) fn read(&mut self, keys: &[String], fresh: bool) -> Step<Vec<Option<Entry>>> {
        let mut entries = Vec::with_capacity(keys.len());
        for chunk in keys.chunks(READ_KEYS_MAX) {
            entries.extend(self.call.store.read(chunk, fresh)?);
        }
        // A store that breaks its promise must not make the core take one key for another.
        entries.resize(keys.len(), None);
        Ok(entries)
    }

    /// Reads one key, fresh.
    pub(super) fn get(&mut self, key: &str) -> Step<Option<Entry>> {
        Ok(self.read(&[key.to_owned()], true)?.into_iter().next().flatten())
    }

    /// All entries under a prefix.
    pub(super) fn scan(&mut self, prefix: &str, fresh: bool) -> Step<Vec<Entry>> {
        Ok(store::scan_all(self.call.store, prefix, false, fresh)?)
    }

    /// Visits the entries under a prefix from a key on, until told to stop by `false`.
    pub(super) fn walk(
        &mut self,
        prefix: &str,
        from: Option<&str>,
        fresh: bool,
        visit: &mut dyn FnMut(&mut Self, Entry) -> Step<bool>,
    ) -> Step<()> {
        let mut from = from.map(str::to_owned);
        for _ in 0..SCAN_PAGES_MAX {
            let page = self.call.store.scan(prefix, from.as_deref(), SCAN_ENTRIES, false, fresh)?;
            for entry in page.entries {
                if !visit(self, entry)? {
                    return Ok(());
                }
            }
            match page.next {
                Some(next) if from.as_ref().is_none_or(|from| *from < next) => from = Some(next),
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    /// One page of a scan.
    pub(super) fn page(&mut self, prefix: &str, from: &str, limit: u32) -> Step<store::Page> {
        Ok(self.call.store.scan(prefix, Some(from), limit, false, self.is_wary)?)
    }

    pub(super) fn count(&mut self, prefix: &str, from: &str, until: &str) -> Step<u64> {
        Ok(self.call.store.count(prefix, Some(from), Some(until), true)?)
    }

    pub(super) fn count_all(&mut self, prefix: &str) -> Step<u64> {
        Ok(self.call.store.count(prefix, None, None, true)?)
    }

    pub(super) fn commit(&mut self, batch: &[Write], journal: &[Event]) -> Result<Vec<Version>, store::Error> {
        let done = self.call.store.commit(batch, journal, Durability::Process);
        self.is_beaten |= matches!(done, Err(store::Error::Conflict(_) | store::Error::UnknownOutcome));
        let mut versions = done?;
        versions.resize(batch.len(), Version::default());
        Ok(versions)
    }

    /// A commit of a single write.
    pub(super) fn write(&mut self, write: Write, journal: &[Event]) -> Result<Version, store::Error> {
        Ok(self.commit(&[write], journal)?.into_iter().next().unwrap_or_default())
    }

    pub(super) fn event(&self, what: &str, key: String, owner: &str) -> Event {
        Event { at: self.now, what: what.into(), key, owner: owner.into(), why: self.call.why.into() }
    }

    /// The configuration. It may lag behind other hosts.
    ///
    /// Releases need no more than this: a pool that cannot be read must not keep an address held.
    pub(super) fn configuration(&mut self) -> Step<Configuration> {
        if let Some(configuration) = &self.configuration {
            return Ok(configuration.clone());
        }
        let entries = self.read(&[resources::CONFIG_KEY.to_owned()], false)?;
        let configuration = match entries.into_iter().next().flatten() {
            None => Configuration::default(),
            Some(entry) => Configuration::parse(&entry.value).map_err(unreadable(&entry.key))?.0,
        };
        self.configuration = Some(configuration.clone());
        Ok(configuration)
    }

    /// Pools, reservations and configuration. They may lag behind other hosts.
    pub(super) fn world(&mut self) -> Step<Rc<World>> {
        if let Some(world) = &self.world {
            return Ok(Rc::clone(world));
        }
        let configuration = self.configuration()?;
        let mut pools = Vec::new();
        for entry in self.scan(resources::POOLS_PREFIX, false)? {
            pools.push(Pool::parse(&entry.value).map_err(unreadable(&entry.key))?.0);
        }
        // Stable: pools of one priority stay in the order of their names.
        pools.sort_by_key(|pool| pool.priority);
        let mut reserved = Vec::new();
        for entry in self.scan(resources::RESERVATIONS_PREFIX, false)? {
            let (reservation, _) = Reservation::parse(&entry.value).map_err(unreadable(&entry.key))?;
            reserved.extend(reservation.prefixes.iter().map(Prefix::range));
        }
        let world = Rc::new(World { configuration, pools, reserved: AddressSet::from_ranges(reserved) });
        self.world = Some(Rc::clone(&world));
        Ok(world)
    }

    /// The labels of a node or namespace; none where the store has no such object.
    fn labels(&mut self, key: String) -> Step<Rc<Attributes>> {
        if let Some(labels) = self.labels.get(&key) {
            return Ok(Rc::clone(labels));
        }
        let entry = self.read(std::slice::from_ref(&key), false)?.into_iter().next().flatten();
        let labels = match entry {
            None => Attributes::new(),
            Some(entry) => resources::labels_of(&entry.value).map_err(unreadable(&key))?,
        };
        let labels = Rc::new(labels);
        self.labels.insert(key, Rc::clone(&labels));
        Ok(labels)
    }

    /// What node selectors see. A virtual owner has no labels.
    pub(super) fn holder_labels(&mut self, holder: &Holder) -> Step<Rc<Attributes>> {
        match holder {
            Holder::Host(name) => self.labels(resources::node_key(name)),
            Holder::Virtual(_) => Ok(Rc::default()),
        }
    }

    pub(super) fn namespace_labels(&mut self, namespace: Option<&str>) -> Step<Rc<Attributes>> {
        match namespace {
            Some(name) => self.labels(resources::namespace_key(name)),
            None => Ok(Rc::default()),
        }
    }

    /// A block, fresh, its cold ordinals freed in memory (`calico.md` 2.9).
    pub(super) fn block(&mut self, prefix: Prefix) -> Step<Option<Versioned<Block>>> {
        let key = block_key(prefix);
        let Some(entry) = self.get(&key)? else { return Ok(None) };
        self.parse_block(entry).map(Some)
    }

    pub(super) fn parse_block(&mut self, entry: Entry) -> Step<Versioned<Block>> {
        let mut object = Block::parse(&entry.value).map_err(unreadable(&entry.key))?;
        let cooldown = self.configuration()?.cooldown_seconds;
        object.thaw(self.now, cooldown);
        Ok(Versioned { object, version: entry.version })
    }

    /// An affinity, fresh.
    pub(super) fn affinity(&mut self, holder: &Holder, block: Prefix) -> Step<Option<Versioned<Affinity>>> {
        let key = affinity_key(holder, block);
        let Some(entry) = self.get(&key)? else { return Ok(None) };
        let object = Affinity::parse(&entry.value).map_err(unreadable(&key))?;
        Ok(Some(Versioned { object, version: entry.version }))
    }
}

/// Runs one item again and again while others are faster, within bounds.
pub(super) fn tried<'a, T>(
    call: &mut Call<'a>,
    mut attempt: impl FnMut(&mut Session<'_, 'a>, u32) -> Step<T>,
) -> Result<T, Error> {
    for number in 0..crate::limits::COMMIT_TRIES_MAX {
        match attempt(&mut Session::new(call), number) {
            Ok(done) => return Ok(done),
            Err(Stop::Again) => {}
            Err(Stop::Fail(error)) => return Err(error),
        }
    }
    Err(Error::Contended)
}
