//! ADD: one address from each range set, all of them or none (`cni.md` B.4).
//!
//! The call plans first and writes once. The original reserves set by set and, when a later set fails, gives back
//! everything of the owner, even what an earlier ADD had got; here a failed call has taken nothing. Only the cursors
//! of the sets that had succeeded move on, as they do in the original.

use super::config::{Config, DuplicateAdd, RangeSet, absolute};
use super::{Call, Holdings, Output, free, owner_text, store_failure};
use crate::clock::Instant;
use crate::cni::Level;
use crate::cni::failure::Failure;
use crate::cni::result::{AddResult, IpConfig};
use crate::limits;
use crate::net::Address;
use crate::network::{Place, Record};
use crate::resolv::Dns;
use crate::store::{self, Action, Durability, Entry, Event, Expected, Version, Write};

/// What one set gives.
struct Grant {
    set: usize,
    address: Address,
    ip: IpConfig,
    /// Whether the owner had it before this call.
    kept: bool,
}

/// How a commit ended, where it was no error.
#[derive(PartialEq, Eq)]
enum Ended {
    Granted,
    /// Somebody else was faster: plan again.
    Lost(Vec<String>),
}

pub(crate) fn add(call: &mut Call<'_>) -> Result<Output, Failure> {
    let config = call.load()?;
    let dns = read_dns(call, &config.resolv_conf)?;
    if call.surroundings.netns_is_own == Some(true) && !call.environment.allows_own_netns {
        return Err(Failure::own_netns());
    }
    if let Some((policy, reason)) =
        call.advice.iter().find_map(|advice| Some((&advice.policy, advice.refuse.as_ref()?)))
    {
        return Err(Failure::internal(format!("refused by the policy {policy}: {reason}")));
    }
    let mut lost = Vec::new();
    for _ in 0..limits::COMMIT_TRIES_MAX {
        let (holdings, cursors) = read_state(call, &config)?;
        let grants = plan(call, &config, &holdings, &cursors)?;
        let first = grants.first().map_or(0, |grant| grant.set);
        let ended = commit(call, &grants, &cursors)
            .map_err(|failure| failure.within(&format!("failed to allocate for range {first}: ")))?;
        match ended {
            Ended::Granted => {
                for grant in &grants {
                    let verb = if grant.kept { "kept" } else { "assigned" };
                    let text = format!(
                        "{verb} {} for {}/{} in network {}",
                        grant.address, call.environment.container, call.environment.ifname, call.network
                    );
                    call.note(Level::Info, text);
                }
                let ips = grants.into_iter().map(|grant| grant.ip).collect();
                let result = AddResult { ips, routes: config.routes, dns };
                return result.to_text(call.version).map(String::into_bytes);
            }
            Ended::Lost(keys) => lost = keys,
        }
    }
    Err(store_failure(store::Error::Conflict(lost)))
}

pub(crate) fn read_dns(call: &mut Call<'_>, path: &str) -> Result<Dns, Failure> {
    if path.is_empty() {
        return Ok(Dns::default());
    }
    let found = match absolute(path, &call.surroundings.working_directory) {
        Some(whole) => call.read(&[format!("file/{whole}")])?.into_iter().next().flatten(),
        None => None,
    };
    match found {
        Some(entry) => Ok(Dns::from_resolv_conf(&entry.value)),
        None => Err(Failure::internal(format!("open {path}: no such file or directory"))),
    }
}

/// The owner's holdings and the cursors of all sets.
fn read_state(call: &mut Call<'_>, config: &Config) -> Result<(Holdings, Vec<Option<Entry>>), Failure> {
    let keys = call.keys();
    let cursors: Vec<String> = (0..config.sets.len()).map(|set| keys.key(&cursor(set))).collect();
    call.holdings_and(&cursors)
}

fn cursor(set: usize) -> Place {
    // A configuration has at most limits::RANGES_MAX sets.
    Place::Cursor(u32::try_from(set).unwrap_or(u32::MAX))
}

/// The address that a cursor names; none if it is not one.
fn last_reserved(cursor: Option<&Entry>) -> Option<Address> {
    Address::parse(std::str::from_utf8(&cursor?.value).ok()?)
}

/// The addresses that places stand for, in the order in which the original comes upon them. A file at depth counts by
/// its own name.
fn addresses_of(places: &[Place]) -> Vec<Address> {
    let mut named: Vec<(Vec<String>, Address)> = places
        .iter()
        .filter_map(|place| {
            let path = match place {
                Place::Address(address) => address.to_string(),
                Place::Stray(path) => path.clone(),
                _ => return None,
            };
            let parts: Vec<String> = path.split('/').map(String::from).collect();
            let address = Address::parse(parts.last()?)?;
            Some((parts, address))
        })
        .collect();
    named.sort();
    named.into_iter().map(|(_, address)| address).collect()
}

/// Chooses an address from each set. When a set refuses, the cursors of the sets before it move on.
fn plan(
    call: &mut Call<'_>,
    config: &Config,
    holdings: &Holdings,
    cursors: &[Option<Entry>],
) -> Result<Vec<Grant>, Failure> {
    let mut pending = config.requested.clone();
    let mut grants: Vec<Grant> = Vec::with_capacity(config.sets.len());
    let returns = config.settings.duplicate_add == DuplicateAdd::Return;
    for (index, set) in config.sets.iter().enumerate() {
        let requested = pending.iter().position(|address| set.range_for(*address).is_some());
        let requested = requested.map(|position| pending.remove(position));
        let kept = if returns { kept_address(call, set, holdings, requested) } else { Ok(None) };
        let chosen = match kept {
            Ok(Some(address)) => Ok((address, true)),
            Ok(None) => {
                let last = last_reserved(cursors.get(index).and_then(Option::as_ref));
                choose(call, config, index, set, holdings, requested, last).map(|address| (address, false))
            }
            Err(failure) => Err(failure),
        };
        let granted = chosen.and_then(|(address, kept)| {
            let range =
                set.range_for(address).ok_or_else(|| Failure::internal("no range for an address of its set"))?;
            let with_length =
                range.with_length(address).ok_or_else(|| Failure::internal("a subnet longer than its addresses"))?;
            let ip = IpConfig { address: with_length, gateway: range.gateway };
            Ok(Grant { set: index, address, ip, kept })
        });
        match granted {
            Ok(grant) => grants.push(grant),
            Err(failure) => {
                advance_cursors(call, &grants, cursors);
                return Err(failure.within(&format!("failed to allocate for range {index}: ")));
            }
        }
    }
    if pending.is_empty() {
        return Ok(grants);
    }
    advance_cursors(call, &grants, cursors);
    let addresses: Vec<String> = pending.iter().map(ToString::to_string).collect();
    let sets: Vec<String> = config.sets.iter().map(ToString::to_string).collect();
    Err(Failure::internal(format!("failed to allocate all requested IPs: {}", addresses.join(" "))).with_details(
        format!(
            "each range set gives one address, and these lie in none of them or are one too many; the range sets are {}. \
             Request at most one address of each set",
            sets.join("; ")
        ),
    ))
}

/// The address that a repeated ADD keeps; none if the owner holds nothing in the set.
fn kept_address(
    call: &Call<'_>,
    set: &RangeSet,
    holdings: &Holdings,
    requested: Option<Address>,
) -> Result<Option<Address>, Failure> {
    let inside = |places: &[Place]| -> Vec<Address> {
        addresses_of(places).into_iter().filter(|address| set.range_for(*address).is_some()).collect()
    };
    let held = inside(&holdings.exact);
    let refuse = |address: &Address, details: String| {
        let msg = format!(
            "{address} has been allocated to {}, duplicate allocation is not allowed",
            call.environment.container
        );
        Err(Failure::internal(msg).with_details(details))
    };
    if let Some(old) = inside(&holdings.container_only).first() {
        return refuse(
            old,
            format!(
                "{old} is recorded for the container alone, in the form of host-local before 0.8.0: release it with DEL"
            ),
        );
    }
    match (held.as_slice(), requested) {
        ([], _) => Ok(None),
        ([only], None) => Ok(Some(*only)),
        ([only], Some(requested)) if *only == requested => Ok(Some(*only)),
        ([only], Some(requested)) => {
            refuse(only, format!("this call requests {requested} of the same range set: release {only} with DEL first"))
        }
        ([first, ..], _) => {
            let all: Vec<String> = held.iter().map(ToString::to_string).collect();
            refuse(
                first,
                format!(
                    "{}/{} holds {} addresses of one range set ({}), so that none of them is the one to return: \
                     release them with DEL",
                    call.environment.container,
                    call.environment.ifname,
                    all.len(),
                    all.join(", ")
                ),
            )
        }
    }
}

/// Chooses an address of one set.
fn choose(
    call: &mut Call<'_>,
    config: &Config,
    index: usize,
    set: &RangeSet,
    holdings: &Holdings,
    requested: Option<Address>,
    last: Option<Address>,
) -> Result<Address, Failure> {
    if let Some(requested) = requested {
        return check_requested(call, config, set, requested);
    }
    let mut places = holdings.exact.clone();
    places.extend_from_slice(&holdings.container_only);
    if let Some(address) = addresses_of(&places).into_iter().find(|address| set.range_for(*address).is_some()) {
        let Call { environment, network, .. } = &*call;
        return Err(Failure::internal(format!(
            "{address} has been allocated to {}, duplicate allocation is not allowed",
            environment.container
        ))
        .with_details(format!(
            "{}/{} already holds {address} in network {network}: release it with DEL first, or set \
             ipam.duplicateAdd to \"return\" to get it again",
            environment.container, environment.ifname
        )));
    }
    if let Some(address) = free::first(call, set, &config.excluded, last)? {
        return Ok(address);
    }
    if config.settings.reclaims_boots && reclaim(call, set)? {
        // The way round the set starts anew, so that the freed addresses come up in the usual order.
        if let Some(address) = free::first(call, set, &config.excluded, last)? {
            return Ok(address);
        }
    }
    Err(free::exhausted(call, index, set, &config.excluded)?)
}

/// Frees what containers of earlier boots hold in a full set. Whether there was anything.
fn reclaim(call: &mut Call<'_>, set: &RangeSet) -> Result<bool, Failure> {
    let ghosts = free::ghosts(call, set, limits::RECLAIM_MAX)?;
    if ghosts.is_empty() {
        return Ok(false);
    }
    let keys = call.keys();
    let (freed, failed) = call.delete(ghosts, "reclaimed", "earlier boot");
    for entry in freed.iter().take(limits::LOG_LINES_MAX) {
        let owner = Record::parse(&entry.value).map(|record| owner_text(&record)).unwrap_or_default();
        let text = format!(
            "range set full: freed {} of {owner}, recorded in an earlier boot of this machine",
            super::place_text(&keys, &entry.key)
        );
        call.note(Level::Warning, text);
    }
    if freed.len() > limits::LOG_LINES_MAX {
        let text = format!("range set full: freed {} addresses of earlier boots in all", freed.len());
        call.note(Level::Warning, text);
    }
    match failed {
        // Conflicts mean that somebody else has freed or taken them.
        None | Some(store::Error::Conflict(_)) => Ok(true),
        Some(error) => Err(store_failure(error)),
    }
}

/// Checks a requested address: not its range's gateway, not excluded, not held.
fn check_requested(
    call: &mut Call<'_>,
    config: &Config,
    set: &RangeSet,
    requested: Address,
) -> Result<Address, Failure> {
    if set.range_for(requested).is_some_and(|range| range.gateway == Some(requested)) {
        return Err(Failure::internal(format!("requested ip {requested} is subnet's gateway")).with_details(
            format!("a range never gives out its own gateway, {requested}: request another address, or configure another gateway"),
        ));
    }
    let not_available =
        || Failure::internal(format!("requested IP address {requested} is not available in range set {set}"));
    if config.excluded.contains(requested) {
        return Err(not_available().with_details(format!("{requested} is excluded by ipam.exclude")));
    }
    let key = call.keys().key(&Place::Address(requested));
    match call.read(&[key])?.into_iter().next().flatten() {
        None => Ok(requested),
        Some(entry) => {
            let owner = Record::parse(&entry.value).map(|record| owner_text(&record)).unwrap_or_default();
            Err(not_available().with_details(format!(
                "{requested} is held by {owner}: release it there with DEL, or request another address"
            )))
        }
    }
}

/// The write that moves a set's cursor to an address.
fn cursor_write(call: &Call<'_>, grant: &Grant, cursors: &[Option<Entry>]) -> Write {
    let expected = match cursors.get(grant.set).and_then(Option::as_ref) {
        Some(entry) => Expected::At(entry.version.clone()),
        None => Expected::Absent,
    };
    Write {
        key: call.keys().key(&cursor(grant.set)),
        expected,
        action: Action::Put(grant.address.to_string().into_bytes()),
    }
}

/// Moves the cursors of sets whose addresses are not taken after all. Nothing depends on it, so a failure is only
/// logged.
fn advance_cursors(call: &mut Call<'_>, grants: &[Grant], cursors: &[Option<Entry>]) {
    let writes: Vec<Write> =
        grants.iter().filter(|grant| !grant.kept).map(|grant| cursor_write(call, grant, cursors)).collect();
    commit_cursors(call, &writes);
}

fn commit_cursors(call: &mut Call<'_>, writes: &[Write]) {
    for chunk in writes.chunks(writes_at_once(call)) {
        if let Err(error) = call.store.commit(chunk, &[], Durability::Process) {
            let text =
                format!("the address last reserved could not be noted, so the next search starts earlier: {error}");
            call.note(Level::Warning, text);
        }
    }
}

fn writes_at_once(call: &mut Call<'_>) -> usize {
    usize::try_from(call.store.atomic_writes()).unwrap_or(1).max(1)
}

/// Takes the planned addresses: in one commit where the store can hold it, else one by one, giving back what this
/// call took when a later one is lost.
fn commit(call: &mut Call<'_>, grants: &[Grant], cursors: &[Option<Entry>]) -> Result<Ended, Failure> {
    let at = call.clock.now();
    let boot = call.clock.boot_id();
    let Call { environment, .. } = &*call;
    let record = Record::owned(&environment.container, &environment.ifname, boot);
    let fresh: Vec<&Grant> = grants.iter().filter(|grant| !grant.kept).collect();
    if fresh.is_empty() {
        return Ok(Ended::Granted);
    }
    let keys = call.keys();
    let address_writes: Vec<Write> = fresh
        .iter()
        .map(|grant| Write {
            key: keys.key(&Place::Address(grant.address)),
            expected: Expected::Absent,
            action: Action::Put(record.to_bytes()),
        })
        .collect();
    let cursor_writes: Vec<Write> = fresh.iter().map(|grant| cursor_write(call, grant, cursors)).collect();
    if address_writes.len() + cursor_writes.len() <= writes_at_once(call) {
        let count = address_writes.len();
        let mut all = address_writes;
        all.extend(cursor_writes);
        return match take(call, &all, count, &record, at)? {
            Ok(_) => Ok(Ended::Granted),
            Err(keys) => Ok(Ended::Lost(keys)),
        };
    }
    let mut taken: Vec<Entry> = Vec::new();
    for write in &address_writes {
        let outcome = take(call, std::slice::from_ref(write), 1, &record, at);
        match outcome {
            Ok(Ok(versions)) => taken.push(Entry {
                key: write.key.clone(),
                value: record.to_bytes(),
                version: versions.into_iter().next().unwrap_or_default(),
            }),
            Ok(Err(_)) | Err(_) => {
                let (_, failed) = call.delete(taken, "released", "a later range set failed");
                if let Some(error) = failed {
                    let text =
                        format!("an address of this failed call could not be given back: {error}. DEL will do it");
                    call.note(Level::Error, text);
                }
                return outcome.map(|lost| Ended::Lost(lost.err().unwrap_or_default()));
            }
        }
    }
    commit_cursors(call, &cursor_writes);
    Ok(Ended::Granted)
}

/// Commits writes of which the first `count` take addresses for `record`. The versions, or the keys that were lost.
///
/// An unknown outcome is settled by making the same commit again: where that succeeds the first has not been applied
/// and never will be, and where it conflicts the records tell whether it was.
fn take(
    call: &mut Call<'_>,
    writes: &[Write],
    count: usize,
    record: &Record,
    at: Instant,
) -> Result<Result<Vec<Version>, Vec<String>>, Failure> {
    let events: Vec<Event> = writes
        .iter()
        .take(count)
        .map(|write| Event {
            at,
            what: "granted".into(),
            key: write.key.clone(),
            owner: owner_text(record),
            why: "ADD".into(),
        })
        .collect();
    let mut is_repeated = false;
    for _ in 0..limits::COMMIT_TRIES_MAX {
        match call.store.commit(writes, &events, Durability::Process) {
            Ok(versions) => return Ok(Ok(versions)),
            Err(store::Error::UnknownOutcome) => is_repeated = true,
            Err(store::Error::Conflict(keys)) if is_repeated => {
                let wanted: Vec<String> = writes.iter().take(count).map(|write| write.key.clone()).collect();
                let found = call.read(&wanted)?;
                let mine: Vec<Version> = found
                    .into_iter()
                    .flatten()
                    .filter(|entry| {
                        Record::parse(&entry.value)
                            .is_some_and(|found| found.container == record.container && found.ifname == record.ifname)
                    })
                    .map(|entry| entry.version)
                    .collect();
                return Ok(if mine.len() == count { Ok(mine) } else { Err(keys) });
            }
            Err(store::Error::Conflict(keys)) => return Ok(Err(keys)),
            Err(error) => return Err(store_failure(error)),
        }
    }
    Err(store_failure(store::Error::UnknownOutcome))
}
