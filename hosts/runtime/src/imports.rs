//! The component's imports over a lent store and clock.

use crate::bindings::plat::ipam::{clock as wit_clock, store as wit};
use crate::limits::{INSTANCES_MAX, MEMORY_BYTES_MAX};
use plat_core::clock::{Clock, Instant};
use plat_core::store::{Action, Durability, Entry, Error, Event, Expected, Store, Version, Write};
use std::ptr::NonNull;
use wasmtime::ResourceLimiter;

/// What belongs to one instance on the host's side.
#[derive(Default)]
pub(crate) struct State {
    lent: Option<Lent>,
    pub(crate) memory: MemoryLimit,
}

/// A store and a clock, borrowed for the time of one call. wasmtime wants its state to outlive every borrow, so they are
/// kept as pointers, and [`State::lend`] sees to it that none outlives the borrow.
#[derive(Clone, Copy)]
struct Lent {
    store: NonNull<dyn Store>,
    clock: NonNull<dyn Clock>,
}

impl State {
    /// Lends store and clock to the component until [`State::take_back`].
    ///
    /// # Safety
    ///
    /// The caller calls `take_back` before the borrows end, and does not use them before that.
    pub(crate) unsafe fn lend(&mut self, store: &mut dyn Store, clock: &mut dyn Clock) {
        let (store, clock): (NonNull<dyn Store + '_>, NonNull<dyn Clock + '_>) = (store.into(), clock.into());
        // SAFETY: only the lifetime changes, and the caller keeps it.
        let (store, clock) = unsafe {
            (
                std::mem::transmute::<NonNull<dyn Store + '_>, NonNull<dyn Store>>(store),
                std::mem::transmute::<NonNull<dyn Clock + '_>, NonNull<dyn Clock>>(clock),
            )
        };
        self.lent = Some(Lent { store, clock });
    }

    /// Ends what `lend` began.
    pub(crate) fn take_back(&mut self) {
        self.lent = None;
    }

    /// None while nothing is lent: in `locate`, which is pure by contract.
    fn store(&mut self) -> Option<&mut dyn Store> {
        // SAFETY: `lend`'s caller keeps the borrow alive and unused while `lent` is set; `&mut self` makes it exclusive.
        self.lent.map(|mut lent| unsafe { lent.store.as_mut() })
    }

    fn clock(&mut self) -> Option<&mut dyn Clock> {
        // SAFETY: as in `store`.
        self.lent.map(|mut lent| unsafe { lent.clock.as_mut() })
    }
}

/// The answer to a store call in `locate`.
fn nothing_lent() -> wit::Error {
    wit::Error::Denied("this call may not use the store".to_owned())
}

impl wit::Host for State {
    fn read(&mut self, keys: Vec<String>, fresh: bool) -> Result<Vec<Option<wit::Entry>>, wit::Error> {
        let entries = self.store().ok_or_else(nothing_lent)?.read(&keys, fresh).map_err(error)?;
        Ok(entries.into_iter().map(|found| found.map(entry)).collect())
    }

    fn scan(
        &mut self,
        prefix: String,
        from: Option<String>,
        limit: u32,
        keys_only: bool,
        fresh: bool,
    ) -> Result<wit::Page, wit::Error> {
        let store = self.store().ok_or_else(nothing_lent)?;
        let page = store.scan(&prefix, from.as_deref(), limit, keys_only, fresh).map_err(error)?;
        Ok(wit::Page { entries: page.entries.into_iter().map(entry).collect(), next: page.next })
    }

    fn count(
        &mut self,
        prefix: String,
        from: Option<String>,
        until: Option<String>,
        fresh: bool,
    ) -> Result<u64, wit::Error> {
        let store = self.store().ok_or_else(nothing_lent)?;
        store.count(&prefix, from.as_deref(), until.as_deref(), fresh).map_err(error)
    }

    fn commit(
        &mut self,
        batch: Vec<wit::Write>,
        journal: Vec<wit::Event>,
        durability: wit::Durability,
    ) -> Result<Vec<wit::Version>, wit::Error> {
        let store = self.store().ok_or_else(nothing_lent)?;
        let batch: Vec<Write> = batch.into_iter().map(write).collect();
        let journal: Vec<Event> = journal.into_iter().map(event).collect();
        let durability = match durability {
            wit::Durability::Process => Durability::Process,
            wit::Durability::Power => Durability::Power,
        };
        let versions = store.commit(&batch, &journal, durability).map_err(error)?;
        Ok(versions.into_iter().map(|version| version.0).collect())
    }

    fn atomic_writes(&mut self) -> u32 {
        self.store().map_or(1, |store| store.atomic_writes())
    }
}

impl wit_clock::Host for State {
    fn now(&mut self) -> wit_clock::Instant {
        let now = self.clock().map(|clock| clock.now()).unwrap_or_default();
        wit_clock::Instant { seconds: now.seconds, nanoseconds: now.nanoseconds }
    }

    fn boot_id(&mut self) -> Option<String> {
        self.clock()?.boot_id()
    }
}

/// A request for more memory than the component may have, or than the system gives.
#[derive(Debug, thiserror::Error)]
#[error("the component's memory cannot grow to {desired_bytes} bytes")]
pub(crate) struct MemoryRefused {
    desired_bytes: usize,
}

/// Keeps the component's memory within its limit.
#[derive(Default)]
pub(crate) struct MemoryLimit {
    /// Whether the component asked for more memory than there is for it.
    pub(crate) refused: bool,
}

impl ResourceLimiter for MemoryLimit {
    fn memory_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        if desired > MEMORY_BYTES_MAX {
            self.refused = true;
            // An error ends the call here; "no" would have the guest abort, which looks like a fault of the core.
            return Err(MemoryRefused { desired_bytes: desired }.into());
        }
        Ok(true)
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        self.refused = true;
        Err(error)
    }

    fn table_growing(&mut self, _: usize, _: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        // The core's tables are as large as they were compiled.
        Ok(true)
    }

    fn instances(&self) -> usize {
        INSTANCES_MAX
    }

    fn tables(&self) -> usize {
        INSTANCES_MAX
    }

    fn memories(&self) -> usize {
        INSTANCES_MAX
    }
}

fn entry(entry: Entry) -> wit::Entry {
    wit::Entry { key: entry.key, value: entry.value, version: entry.version.0 }
}

fn write(write: wit::Write) -> Write {
    Write {
        key: write.key,
        expected: match write.expected {
            wit::Expected::Absent => Expected::Absent,
            wit::Expected::At(version) => Expected::At(Version(version)),
        },
        action: match write.action {
            wit::Action::Put(value) => Action::Put(value),
            wit::Action::Delete => Action::Delete,
            wit::Action::Check => Action::Check,
        },
    }
}

fn event(event: wit::Event) -> Event {
    Event {
        at: Instant { seconds: event.seconds, nanoseconds: event.nanoseconds },
        what: event.what,
        key: event.key,
        owner: event.owner,
        why: event.why,
    }
}

fn error(error: Error) -> wit::Error {
    match error {
        Error::Conflict(keys) => wit::Error::Conflict(keys),
        Error::UnknownOutcome => wit::Error::UnknownOutcome,
        Error::Unavailable(why) => wit::Error::Unavailable(why),
        Error::TooLarge => wit::Error::TooLarge,
        Error::Denied(why) => wit::Error::Denied(why),
    }
}
