//! The `ranges` strategy: one address from each range set of a configuration, host-local's way (`cni.md` B).
//!
//! It knows range sets, cursors and records. It does not know where they are stored: an address is taken when a
//! commit that expects its key absent has succeeded, and at no other moment.

mod add;
mod collect;
pub(crate) mod config;
mod free;

use crate::clock::{Clock, Instant};
use crate::cni::failure::{Failure, code};
use crate::cni::{Advice, Environment, Level, Line, Personality, Surroundings};
use crate::json::Json;
use crate::limits;
use crate::network::{self, Keys, Place, Record};
use crate::store::{self, Action, Durability, Entry, Event, Expected, READ_KEYS_MAX, Store, Write};
use config::Location;

/// One CNI call, checked as far as the protocol goes, and what it may use.
pub(crate) struct Call<'a> {
    pub(crate) environment: &'a Environment,
    pub(crate) document: &'a Json,
    /// `cniVersion` as written.
    pub(crate) version: &'a str,
    /// The network's name.
    pub(crate) network: &'a str,
    pub(crate) personality: Personality,
    pub(crate) surroundings: &'a Surroundings,
    pub(crate) advice: &'a [Advice],
    pub(crate) store: &'a mut dyn Store,
    pub(crate) clock: &'a mut dyn Clock,
    pub(crate) log: &'a mut Vec<Line>,
}

/// Standard output of a call that succeeded.
pub(crate) type Output = Vec<u8>;

impl Call<'_> {
    fn keys(&self) -> Keys {
        Keys::new(self.network)
    }

    pub(crate) fn note(&mut self, level: Level, text: impl AsRef<str>) {
        self.log.push(Line::new(level, text.as_ref()));
    }

    /// Loads the whole configuration and logs what is odd about it.
    fn load(&mut self) -> Result<config::Config, Failure> {
        let loaded = config::load(self.document, &self.environment.args, self.personality)?;
        Location::read(self.document, &self.surroundings.working_directory)?;
        for warning in loaded.warnings {
            self.note(Level::Warning, warning);
        }
        Ok(loaded.config)
    }

    /// Reads any number of keys.
    fn read(&mut self, keys: &[String]) -> Result<Vec<Option<Entry>>, Failure> {
        let mut entries = Vec::with_capacity(keys.len());
        for chunk in keys.chunks(READ_KEYS_MAX) {
            entries.extend(self.store.read(chunk, true).map_err(store_failure)?);
        }
        // A store that breaks its promise must not make the core take one key for another.
        entries.resize(keys.len(), None);
        Ok(entries)
    }

    /// What the owner of this call holds.
    fn holdings(&mut self) -> Result<Holdings, Failure> {
        Ok(self.holdings_and(&[])?.0)
    }

    /// What the owner of this call holds, and the entries of other keys, read at once.
    fn holdings_and(&mut self, others: &[String]) -> Result<(Holdings, Vec<Option<Entry>>), Failure> {
        let keys = self.keys();
        let owner = |ifname: &str| {
            keys.key(&Place::Owner { container: self.environment.container.clone(), ifname: ifname.into() })
        };
        let mut wanted = vec![owner(&self.environment.ifname), owner("")];
        wanted.extend_from_slice(others);
        let mut entries = self.read(&wanted)?.into_iter();
        let mut places = || {
            let entry = entries.next().flatten();
            let mut places = entry.and_then(|entry| network::parse_holdings(&entry.value)).unwrap_or_default();
            // Nothing else can be held, whatever a store says.
            places.retain(|place| matches!(place, Place::Address(_) | Place::Stray(_)));
            places
        };
        let holdings = Holdings { exact: places(), container_only: places() };
        Ok((holdings, entries.collect()))
    }

    /// Deletes records, as many at once as the store takes. What another writer has changed or deleted since it was
    /// read is left alone and counted out.
    fn delete(&mut self, entries: Vec<Entry>, what: &str, why: &str) -> (Vec<Entry>, Option<store::Error>) {
        let at = self.clock.now();
        let chunk_len = usize::try_from(self.store.atomic_writes()).unwrap_or(1).clamp(1, limits::COMMIT_WRITES_MAX);
        let mut deleted = Vec::with_capacity(entries.len());
        let mut failed = None;
        for chunk in entries.chunks(chunk_len) {
            match self.delete_chunk(chunk, at, what, why) {
                Ok(()) => deleted.extend_from_slice(chunk),
                // One of them changed: the others are tried alone.
                Err(store::Error::Conflict(_)) if chunk.len() > 1 => {
                    for entry in chunk {
                        match self.delete_chunk(std::slice::from_ref(entry), at, what, why) {
                            Ok(()) => deleted.push(entry.clone()),
                            Err(error) => failed = Some(error),
                        }
                    }
                }
                Err(error) => failed = Some(error),
            }
        }
        (deleted, failed)
    }

    fn delete_chunk(&mut self, chunk: &[Entry], at: Instant, what: &str, why: &str) -> Result<(), store::Error> {
        let writes: Vec<Write> = chunk
            .iter()
            .map(|entry| Write {
                key: entry.key.clone(),
                expected: Expected::At(entry.version.clone()),
                action: Action::Delete,
            })
            .collect();
        let events: Vec<Event> = chunk
            .iter()
            .map(|entry| Event {
                at,
                what: what.into(),
                key: entry.key.clone(),
                owner: Record::parse(&entry.value).map(|record| owner_text(&record)).unwrap_or_default(),
                why: why.into(),
            })
            .collect();
        self.store.commit(&writes, &events, Durability::Process).map(drop)
    }
}

/// How a record's owner is written for people and in the journal: `container/ifname`.
fn owner_text(record: &Record) -> String {
    match (&record.container, &record.ifname) {
        (Some(container), Some(ifname)) => format!("{container}/{ifname}"),
        (Some(container), None) => container.clone(),
        (None, _) => record.foreign.clone().unwrap_or_default(),
    }
}

/// The places that one owner holds.
#[derive(Clone, Debug, Default)]
struct Holdings {
    /// Under its container and interface.
    exact: Vec<Place>,
    /// Under its container alone, as host-local before 0.8.0 recorded it.
    container_only: Vec<Place>,
}

/// What a store error means to the runtime.
pub(crate) fn store_failure(error: store::Error) -> Failure {
    match error {
        store::Error::Unavailable(why) => Failure::new(code::TRY_AGAIN_LATER, why),
        store::Error::UnknownOutcome => Failure::new(
            code::TRY_AGAIN_LATER,
            "the store did not say whether the last change was made: repeat the call",
        ),
        store::Error::Conflict(keys) => Failure {
            contended: true,
            ..Failure::new(
                code::TRY_AGAIN_LATER,
                format!("other callers changed the store {} times in a row: try again", limits::COMMIT_TRIES_MAX),
            )
            .with_details(format!("changed meanwhile: {}", keys.join(", ")))
        },
        store::Error::TooLarge => Failure::internal("the change is larger than the store can take at once"),
        store::Error::Denied(why) => Failure::internal(why),
    }
}

pub(crate) use add::{add, read_dns};
pub(crate) use collect::{WITHOUT_LIST, gc, valid_containers};

/// DEL: releases what the owner holds, wherever it lies, whatever the ranges say today (`cni.md` B.6).
///
/// Unlike the original it does not need a sound configuration: network, dataDir and owner are enough.
pub(crate) fn del(call: &mut Call<'_>) -> Result<Output, Failure> {
    Location::read(call.document, &call.surroundings.working_directory)?;
    if let Err(failure) = call.load() {
        let text = format!("the configuration has an error, which does not matter to DEL: {}", failure.msg);
        call.note(Level::Warning, text);
    }
    let keys = call.keys();
    for _ in 0..limits::COMMIT_TRIES_MAX {
        let holdings = call.holdings()?;
        // Records of a container alone are looked at only where nothing else is found, as in the original.
        let places = if holdings.exact.is_empty() { holdings.container_only } else { holdings.exact };
        if places.is_empty() {
            return Ok(Output::new());
        }
        let full: Vec<String> = places.iter().map(|place| keys.key(place)).collect();
        let entries: Vec<Entry> = call.read(&full)?.into_iter().flatten().collect();
        let (deleted, failed) = call.delete(entries, "released", "DEL");
        for entry in &deleted {
            let text = format!("released {}", place_text(&keys, &entry.key));
            call.note(Level::Info, text);
        }
        match failed {
            None => return Ok(Output::new()),
            Some(store::Error::Conflict(_) | store::Error::UnknownOutcome) => {}
            Some(error) => return Err(store_failure(error)),
        }
    }
    Err(store_failure(store::Error::Conflict(vec![format!("records of {}", call.environment.container)])))
}

/// How a key is written for people: the address or the path of a stray.
fn place_text(keys: &Keys, key: &str) -> String {
    match keys.place(key) {
        Some(Place::Address(address)) => address.to_string(),
        Some(Place::Stray(path)) => path,
        _ => key.into(),
    }
}

/// CHECK: the owner holds something, whatever it is (`cni.md` B.6).
pub(crate) fn check(call: &mut Call<'_>) -> Result<Output, Failure> {
    call.load()?;
    let holdings = call.holdings()?;
    if holdings.exact.is_empty() && holdings.container_only.is_empty() {
        return Err(Failure::internal(format!(
            "host-local: Failed to find address added by container {}",
            call.environment.container
        ))
        .with_details(format!(
            "network {} holds nothing of container {} and interface {}: it was released, or its ADD went to another \
             network, dataDir or node. Delete the sandbox and make it again",
            call.network, call.environment.container, call.environment.ifname
        )));
    }
    Ok(Output::new())
}

/// STATUS: whether an ADD could succeed.
pub(crate) fn status(call: &mut Call<'_>) -> Result<Output, Failure> {
    let unavailable = |failure: Failure| Failure { code: code::NOT_AVAILABLE, contended: false, ..failure };
    let config = call.load().map_err(unavailable)?;
    // A store that cannot be written is found out here; the sets below need reading alone.
    call.store.commit(&[], &[], Durability::Process).map_err(|error| unavailable(store_failure(error)))?;
    for (index, set) in config.sets.iter().enumerate() {
        let free = free::first(call, set, &config.excluded, None).map_err(unavailable)?;
        if free.is_some() || (config.settings.reclaims_boots && free::has_ghost(call, set).map_err(unavailable)?) {
            continue;
        }
        let failure = free::exhausted(call, index, set, &config.excluded).map_err(unavailable)?;
        if config.settings.fails_status_when_full {
            return Err(unavailable(failure));
        }
        let text = format!("{}: {}", failure.msg, failure.details);
        call.note(Level::Warning, text);
    }
    Ok(Output::new())
}
