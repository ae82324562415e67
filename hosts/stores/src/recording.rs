//! A store that writes down every call and its answer, and one that answers from such a record.
//!
//! A record is a list of [`Exchange`]s that any serde format can hold; bytes that are text stay readable.

use plat_core::clock::Instant;
use plat_core::store::{Action, Durability, Entry, Error, Event, Expected, Page, Store, Version, Write};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Bytes, as text where they are UTF-8 and as hex digits where not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bytes {
    /// UTF-8.
    Text(String),
    /// Two lower-case digits a byte.
    Hex(String),
}

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Hex(hex(bytes)),
        }
    }
}

impl Bytes {
    /// The bytes. Digits that are none read as nothing.
    pub fn to_vec(&self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.clone().into_bytes(),
            Self::Hex(digits) => unhex(digits),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(digits: &str) -> Vec<u8> {
    digits
        .as_bytes()
        .chunks(2)
        .filter_map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}

/// A write of a commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteRecord {
    /// The key.
    pub key: String,
    /// The version expected, in hex; none: absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// What is done.
    pub action: ActionRecord,
}

/// What a write does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActionRecord {
    /// See [`Action::Put`].
    Put(Bytes),
    /// See [`Action::Delete`].
    Delete,
    /// See [`Action::Check`].
    Check,
}

/// An event of a commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventRecord {
    /// Seconds since 1970.
    pub seconds: u64,
    /// The fraction of that second.
    pub nanoseconds: u32,
    /// See [`Event::what`].
    pub what: String,
    /// See [`Event::key`].
    pub key: String,
    /// See [`Event::owner`].
    pub owner: String,
    /// See [`Event::why`].
    pub why: String,
}

/// A call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// [`Store::read`].
    Read {
        /// The keys.
        keys: Vec<String>,
        /// See [`Store::read`].
        fresh: bool,
    },
    /// [`Store::scan`].
    Scan {
        /// What the keys begin with.
        prefix: String,
        /// The first key.
        from: Option<String>,
        /// How many at most.
        limit: u32,
        /// Without values.
        keys_only: bool,
        /// See [`Store::read`].
        fresh: bool,
    },
    /// [`Store::count`].
    Count {
        /// What the keys begin with.
        prefix: String,
        /// The first key.
        from: Option<String>,
        /// The key after the last.
        until: Option<String>,
        /// See [`Store::read`].
        fresh: bool,
    },
    /// [`Store::commit`].
    Commit {
        /// The writes.
        batch: Vec<WriteRecord>,
        /// The events.
        journal: Vec<EventRecord>,
        /// Whether it must outlive a power cut.
        power: bool,
    },
    /// [`Store::atomic_writes`].
    AtomicWrites,
}

/// A key that exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryRecord {
    /// The key.
    pub key: String,
    /// Its value.
    pub value: Bytes,
    /// Its version, in hex.
    pub version: String,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// To [`Call::Read`].
    Read(Vec<Option<EntryRecord>>),
    /// To [`Call::Scan`].
    Scan {
        /// The entries.
        entries: Vec<EntryRecord>,
        /// Where to go on.
        next: Option<String>,
    },
    /// To [`Call::Count`].
    Count(u64),
    /// To [`Call::Commit`]: versions in hex.
    Commit(Vec<String>),
    /// To [`Call::AtomicWrites`].
    AtomicWrites(u32),
    /// [`Error::Conflict`].
    Conflict(Vec<String>),
    /// [`Error::UnknownOutcome`].
    UnknownOutcome,
    /// [`Error::Unavailable`].
    Unavailable(String),
    /// [`Error::TooLarge`].
    TooLarge,
    /// [`Error::Denied`].
    Denied(String),
}

/// A call and its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchange {
    /// What was asked.
    pub call: Call,
    /// What was answered.
    pub answer: Answer,
}

impl From<&Entry> for EntryRecord {
    fn from(entry: &Entry) -> Self {
        Self { key: entry.key.clone(), value: entry.value.as_slice().into(), version: hex(&entry.version.0) }
    }
}

impl From<&EntryRecord> for Entry {
    fn from(entry: &EntryRecord) -> Self {
        Self { key: entry.key.clone(), value: entry.value.to_vec(), version: Version(unhex(&entry.version)) }
    }
}

impl From<&Write> for WriteRecord {
    fn from(write: &Write) -> Self {
        Self {
            key: write.key.clone(),
            at: match &write.expected {
                Expected::Absent => None,
                Expected::At(version) => Some(hex(&version.0)),
            },
            action: match &write.action {
                Action::Put(value) => ActionRecord::Put(value.as_slice().into()),
                Action::Delete => ActionRecord::Delete,
                Action::Check => ActionRecord::Check,
            },
        }
    }
}

impl From<&WriteRecord> for Write {
    fn from(write: &WriteRecord) -> Self {
        Self {
            key: write.key.clone(),
            expected: write.at.as_ref().map_or(Expected::Absent, |at| Expected::At(Version(unhex(at)))),
            action: match &write.action {
                ActionRecord::Put(value) => Action::Put(value.to_vec()),
                ActionRecord::Delete => Action::Delete,
                ActionRecord::Check => Action::Check,
            },
        }
    }
}

impl From<&Event> for EventRecord {
    fn from(event: &Event) -> Self {
        Self {
            seconds: event.at.seconds,
            nanoseconds: event.at.nanoseconds,
            what: event.what.clone(),
            key: event.key.clone(),
            owner: event.owner.clone(),
            why: event.why.clone(),
        }
    }
}

impl From<&EventRecord> for Event {
    fn from(event: &EventRecord) -> Self {
        Self {
            at: Instant { seconds: event.seconds, nanoseconds: event.nanoseconds },
            what: event.what.clone(),
            key: event.key.clone(),
            owner: event.owner.clone(),
            why: event.why.clone(),
        }
    }
}

impl From<&Error> for Answer {
    fn from(error: &Error) -> Self {
        match error {
            Error::Conflict(keys) => Self::Conflict(keys.clone()),
            Error::UnknownOutcome => Self::UnknownOutcome,
            Error::Unavailable(why) => Self::Unavailable(why.clone()),
            Error::TooLarge => Self::TooLarge,
            Error::Denied(why) => Self::Denied(why.clone()),
        }
    }
}

impl Call {
    /// Makes the call.
    pub fn make(&self, store: &mut dyn Store) -> Answer {
        fn answer<T>(result: Result<T, Error>, good: impl FnOnce(T) -> Answer) -> Answer {
            result.map_or_else(|error| (&error).into(), good)
        }
        match self {
            Self::Read { keys, fresh } => answer(store.read(keys, *fresh), |entries| {
                Answer::Read(entries.iter().map(|entry| entry.as_ref().map(Into::into)).collect())
            }),
            Self::Scan { prefix, from, limit, keys_only, fresh } => {
                answer(store.scan(prefix, from.as_deref(), *limit, *keys_only, *fresh), |page| Answer::Scan {
                    entries: page.entries.iter().map(Into::into).collect(),
                    next: page.next,
                })
            }
            Self::Count { prefix, from, until, fresh } => {
                answer(store.count(prefix, from.as_deref(), until.as_deref(), *fresh), Answer::Count)
            }
            Self::Commit { batch, journal, power } => {
                let batch: Vec<Write> = batch.iter().map(Into::into).collect();
                let journal: Vec<Event> = journal.iter().map(Into::into).collect();
                let durability = if *power { Durability::Power } else { Durability::Process };
                answer(store.commit(&batch, &journal, durability), |versions| {
                    Answer::Commit(versions.iter().map(|version| hex(&version.0)).collect())
                })
            }
            Self::AtomicWrites => Answer::AtomicWrites(store.atomic_writes()),
        }
    }
}

/// The answer as the store gave it; none if it belongs to another kind of call.
fn unpack<T>(answer: Answer, good: impl FnOnce(Answer) -> Option<T>) -> Option<Result<T, Error>> {
    Some(Err(match answer {
        Answer::Conflict(keys) => Error::Conflict(keys),
        Answer::UnknownOutcome => Error::UnknownOutcome,
        Answer::Unavailable(why) => Error::Unavailable(why),
        Answer::TooLarge => Error::TooLarge,
        Answer::Denied(why) => Error::Denied(why),
        other => return good(other).map(Ok),
    }))
}

/// Something that turns a call into an answer; both adapters here are one.
trait Answers {
    fn answer(&mut self, call: Call) -> Answer;
}

/// Passes calls to a store and writes them down.
#[derive(Clone, Debug)]
pub struct RecordingStore<S> {
    store: S,
    exchanges: Vec<Exchange>,
}

impl<S: Store> RecordingStore<S> {
    /// Around `store`.
    pub fn new(store: S) -> Self {
        Self { store, exchanges: Vec::new() }
    }

    /// What was asked and answered so far.
    pub fn exchanges(&self) -> &[Exchange] {
        &self.exchanges
    }

    /// Takes what was asked and answered so far.
    pub fn take_exchanges(&mut self) -> Vec<Exchange> {
        std::mem::take(&mut self.exchanges)
    }

    /// The store behind.
    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    /// The store behind.
    pub fn into_inner(self) -> S {
        self.store
    }
}

impl<S: Store> Answers for RecordingStore<S> {
    fn answer(&mut self, call: Call) -> Answer {
        let answer = call.make(&mut self.store);
        self.exchanges.push(Exchange { call, answer: answer.clone() });
        answer
    }
}

/// Answers from a record, as long as the calls are those of the record in their order.
#[derive(Clone, Debug)]
pub struct ReplayStore {
    exchanges: VecDeque<Exchange>,
    answered: u64,
}

impl ReplayStore {
    /// Answers from `exchanges`.
    pub fn new(exchanges: impl IntoIterator<Item = Exchange>) -> Self {
        Self { exchanges: exchanges.into_iter().collect(), answered: 0 }
    }

    /// How many exchanges of the record were not asked for yet.
    pub fn left(&self) -> usize {
        self.exchanges.len()
    }
}

impl Answers for ReplayStore {
    fn answer(&mut self, call: Call) -> Answer {
        match self.exchanges.front() {
            Some(exchange) if exchange.call == call => {
                self.answered += 1;
                self.exchanges.pop_front().map_or(Answer::UnknownOutcome, |exchange| exchange.answer)
            }
            Some(exchange) => Answer::Denied(format!(
                "call {} is not the recorded one: {call:?} instead of {:?}",
                self.answered + 1,
                exchange.call
            )),
            None => Answer::Denied(format!("the record ends after {} calls: {call:?}", self.answered)),
        }
    }
}

fn mismatch<T>() -> Result<T, Error> {
    Err(Error::Denied("the recorded answer belongs to another kind of call".to_owned()))
}

macro_rules! answering_store {
    ($($head:tt)*) => {
        $($head)* {
            fn read(&mut self, keys: &[String], fresh: bool) -> Result<Vec<Option<Entry>>, Error> {
                let answer = self.answer(Call::Read { keys: keys.to_vec(), fresh });
                unpack(answer, |answer| match answer {
                    Answer::Read(entries) => {
                        Some(entries.iter().map(|entry| entry.as_ref().map(Into::into)).collect())
                    }
                    _ => None,
                })
                .unwrap_or_else(mismatch)
            }

            fn scan(
                &mut self,
                prefix: &str,
                from: Option<&str>,
                limit: u32,
                keys_only: bool,
                fresh: bool,
            ) -> Result<Page, Error> {
                let answer = self.answer(Call::Scan {
                    prefix: prefix.to_owned(),
                    from: from.map(str::to_owned),
                    limit,
                    keys_only,
                    fresh,
                });
                unpack(answer, |answer| match answer {
                    Answer::Scan { entries, next } => {
                        Some(Page { entries: entries.iter().map(Into::into).collect(), next })
                    }
                    _ => None,
                })
                .unwrap_or_else(mismatch)
            }

            fn count(
                &mut self,
                prefix: &str,
                from: Option<&str>,
                until: Option<&str>,
                fresh: bool,
            ) -> Result<u64, Error> {
                let answer = self.answer(Call::Count {
                    prefix: prefix.to_owned(),
                    from: from.map(str::to_owned),
                    until: until.map(str::to_owned),
                    fresh,
                });
                unpack(answer, |answer| match answer {
                    Answer::Count(count) => Some(count),
                    _ => None,
                })
                .unwrap_or_else(mismatch)
            }

            fn commit(
                &mut self,
                batch: &[Write],
                journal: &[Event],
                durability: Durability,
            ) -> Result<Vec<Version>, Error> {
                let answer = self.answer(Call::Commit {
                    batch: batch.iter().map(Into::into).collect(),
                    journal: journal.iter().map(Into::into).collect(),
                    power: durability == Durability::Power,
                });
                unpack(answer, |answer| match answer {
                    Answer::Commit(versions) => {
                        Some(versions.iter().map(|version| Version(unhex(version))).collect())
                    }
                    _ => None,
                })
                .unwrap_or_else(mismatch)
            }

            fn atomic_writes(&mut self) -> u32 {
                match self.answer(Call::AtomicWrites) {
                    Answer::AtomicWrites(writes) => writes,
                    _ => 1,
                }
            }
        }
    };
}

answering_store!(impl<S: Store> Store for RecordingStore<S>);
answering_store!(impl Store for ReplayStore);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryStore;

    #[test]
    fn a_record_survives_json_and_replays() {
        let mut store = RecordingStore::new(MemoryStore::new());
        let put =
            |value: &[u8]| Write { key: "k".into(), expected: Expected::Absent, action: Action::Put(value.to_vec()) };
        let run = |store: &mut dyn Store| {
            let event = Event {
                at: Instant { seconds: 1, nanoseconds: 2 },
                what: "granted".into(),
                key: "k".into(),
                owner: "c".into(),
                why: "ADD".into(),
            };
            format!(
                "{:?} {:?} {:?} {:?} {:?} {}",
                store.commit(&[put(&[0xff, 0])], &[event], Durability::Power),
                store.commit(&[put(b"text")], &[], Durability::Process),
                store.read(&["k".into(), "l".into()], true),
                store.scan("", None, 9, false, false),
                store.count("", Some("a"), None, true),
                store.atomic_writes()
            )
        };
        let first = run(&mut store);
        let json = serde_json::to_string(store.exchanges()).unwrap();
        let exchanges: Vec<Exchange> = serde_json::from_str(&json).unwrap();
        assert_eq!(exchanges, store.exchanges());
        let mut replay = ReplayStore::new(exchanges);
        assert_eq!(run(&mut replay), first);
        assert_eq!(replay.left(), 0);
        assert!(matches!(replay.count("", None, None, true), Err(Error::Denied(_))));
    }
}
