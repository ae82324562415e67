//! plat-core's store and clock over the imported ones.

use crate::bindings::plat::ipam::{clock as wit_clock, store as wit};
use plat_core::clock::{Clock, Instant};
use plat_core::store::{Action, Durability, Entry, Error, Event, Expected, Page, Store, Version, Write};

/// The imported store.
pub(crate) struct HostStore;

impl Store for HostStore {
    fn read(&mut self, keys: &[String], fresh: bool) -> Result<Vec<Option<Entry>>, Error> {
        let entries = wit::read(keys, fresh).map_err(error)?;
        Ok(entries.into_iter().map(|found| found.map(entry)).collect())
    }

    fn scan(
        &mut self,
        prefix: &str,
        from: Option<&str>,
        limit: u32,
        keys_only: bool,
        fresh: bool,
    ) -> Result<Page, Error> {
        let page = wit::scan(prefix, from, limit, keys_only, fresh).map_err(error)?;
        Ok(Page { entries: page.entries.into_iter().map(entry).collect(), next: page.next })
    }

    fn count(&mut self, prefix: &str, from: Option<&str>, until: Option<&str>, fresh: bool) -> Result<u64, Error> {
        wit::count(prefix, from, until, fresh).map_err(error)
    }

    fn commit(&mut self, batch: &[Write], journal: &[Event], durability: Durability) -> Result<Vec<Version>, Error> {
        let batch: Vec<wit::Write> = batch.iter().map(write).collect();
        let journal: Vec<wit::Event> = journal.iter().map(event).collect();
        let durability = match durability {
            Durability::Process => wit::Durability::Process,
            Durability::Power => wit::Durability::Power,
        };
        let versions = wit::commit(&batch, &journal, durability).map_err(error)?;
        Ok(versions.into_iter().map(Version).collect())
    }

    fn atomic_writes(&mut self) -> u32 {
        wit::atomic_writes()
    }
}

/// The imported clock. It is asked at most once in its life, which is one exported call: everything that a call does
/// happens at one time.
#[derive(Default)]
pub(crate) struct HostClock {
    now: Option<Instant>,
    boot_id: Option<Option<String>>,
}

impl Clock for HostClock {
    fn now(&mut self) -> Instant {
        *self.now.get_or_insert_with(|| {
            let now = wit_clock::now();
            Instant { seconds: now.seconds, nanoseconds: now.nanoseconds }
        })
    }

    fn boot_id(&mut self) -> Option<String> {
        self.boot_id.get_or_insert_with(wit_clock::boot_id).clone()
    }
}

fn entry(entry: wit::Entry) -> Entry {
    Entry { key: entry.key, value: entry.value, version: Version(entry.version) }
}

fn write(write: &Write) -> wit::Write {
    wit::Write {
        key: write.key.clone(),
        expected: match &write.expected {
            Expected::Absent => wit::Expected::Absent,
            Expected::At(version) => wit::Expected::At(version.0.clone()),
        },
        action: match &write.action {
            Action::Put(value) => wit::Action::Put(value.clone()),
            Action::Delete => wit::Action::Delete,
            Action::Check => wit::Action::Check,
        },
    }
}

fn event(event: &Event) -> wit::Event {
    wit::Event {
        seconds: event.at.seconds,
        nanoseconds: event.at.nanoseconds,
        what: event.what.clone(),
        key: event.key.clone(),
        owner: event.owner.clone(),
        why: event.why.clone(),
    }
}

fn error(error: wit::Error) -> Error {
    match error {
        wit::Error::Conflict(keys) => Error::Conflict(keys),
        wit::Error::UnknownOutcome => Error::UnknownOutcome,
        wit::Error::Unavailable(why) => Error::Unavailable(why),
        wit::Error::TooLarge => Error::TooLarge,
        wit::Error::Denied(why) => Error::Denied(why),
    }
}
