//! Giving addresses back (`calico.md` 2.9, 2.11).

use super::claim::{Unclaim, unclaim};
use super::desk::{Desk, Written};
use super::search::lengths;
use super::session::{Session, Step, Stop, remove, replace, tried, unreadable};
use super::{Call, Error, Holder, Release, Released, address_name};
use crate::clock::Instant;
use crate::limits::COMMIT_WRITES_MAX;
use crate::net::{Address, Prefix};
use crate::objects::keys::{block_key, handle_key};
use crate::objects::{Block, Handle};
use crate::store::{self, Event, Write};
use std::collections::{BTreeMap, BTreeSet};

/// The blocks around an address, on the desk; of those that exist the one in which it is held comes first. No pool is
/// needed for that, so that addresses of deleted pools and of pools with another block size are found too.
pub(super) fn find_block(session: &mut Session<'_, '_>, desk: &mut Desk, address: Address) -> Step<Option<Prefix>> {
    let around: Vec<Prefix> = lengths(address.family())
        .filter_map(|length| Prefix::new(Prefix::new(address, length)?.network(), length))
        .collect();
    let missing: Vec<Prefix> = around.iter().copied().filter(|block| !desk.blocks.contains_key(block)).collect();
    if missing.len() == around.len() {
        let keys: Vec<String> = missing.iter().map(|block| block_key(*block)).collect();
        for entry in session.read(&keys, true)?.into_iter().flatten() {
            let block = session.parse_block(entry)?;
            desk.put(block);
        }
    }
    let found: Vec<Prefix> = around.into_iter().filter(|block| desk.blocks.contains_key(block)).collect();
    let holds = |block: &&Prefix| {
        desk.blocks.get(*block).is_some_and(|slot| {
            slot.block.object.ordinal(address).is_some_and(|ordinal| slot.block.object.held(ordinal).is_some())
        })
    };
    Ok(found.iter().find(holds).or(found.first()).copied())
}

/// Releases addresses. See [`super::release`].
pub(super) fn release(call: &mut Call<'_>, items: &[Release]) -> Vec<Result<Released, Error>> {
    let mut firsts: BTreeMap<Address, usize> = BTreeMap::new();
    let unique: Vec<usize> = (0..items.len())
        .filter(|index| items.get(*index).is_some_and(|item| *firsts.entry(item.address).or_insert(*index) == *index))
        .collect();
    let mut answers: BTreeMap<usize, Result<Released, Error>> = BTreeMap::new();
    let mut emptied = BTreeSet::new();
    if unique.len() > 1 {
        release_together(&mut Session::new(call), items, &unique, &mut answers, &mut emptied);
    }
    for index in unique {
        let Some(item) = items.get(index) else { continue };
        answers.entry(index).or_insert_with(|| {
            tried(call, |session, _| {
                let mut desk = Desk::default();
                let released = prepare(session, &mut desk, item)?;
                let now_empty = emptied_blocks(&desk);
                desk.write(session)?;
                emptied.extend(now_empty);
                Ok(released)
            })
        });
    }
    tidy(&mut Session::new(call), emptied);
    let answer = |item: &Release| {
        let first = firsts.get(&item.address)?;
        answers.get(first).cloned()
    };
    items.iter().map(|item| answer(item).unwrap_or(Err(Error::Contended))).collect()
}

/// As many items as possible with shared commits. What conflicts has no answer afterwards.
fn release_together(
    session: &mut Session<'_, '_>,
    items: &[Release],
    unique: &[usize],
    answers: &mut BTreeMap<usize, Result<Released, Error>>,
    emptied: &mut BTreeSet<(Holder, Prefix)>,
) {
    if !session.is_atomic() {
        return;
    }
    let mut desk = Desk::default();
    let mut waiting = Vec::new();
    for (position, index) in unique.iter().enumerate() {
        let Some(item) = items.get(*index) else { continue };
        match prepare(session, &mut desk, item) {
            Ok(released) => waiting.push((*index, Ok(released))),
            Err(Stop::Fail(error)) => waiting.push((*index, Err(error))),
            Err(Stop::Again) => {}
        }
        // One more item adds a block and a handle.
        if desk.writes() + 2 > session.writes_max.min(COMMIT_WRITES_MAX) || position + 1 == unique.len() {
            let now_empty = emptied_blocks(&desk);
            match desk.write(session) {
                Ok(written) => {
                    answers.extend(waiting.drain(..));
                    emptied.extend(now_empty);
                    if written == Written::Dropped {
                        desk = Desk::default();
                    }
                }
                Err(_) => {
                    waiting.clear();
                    desk = Desk::default();
                }
            }
        }
    }
}

fn emptied_blocks(desk: &Desk) -> Vec<(Holder, Prefix)> {
    let changed = desk.blocks.iter().filter(|(_, slot)| slot.is_changed && slot.block.object.is_empty());
    changed.filter_map(|(prefix, slot)| Some((slot.block.object.holder()?, *prefix))).collect()
}

/// Whether a block goes with its last address: one of nobody does, unless its sequence numbers are ahead of the clock, and
/// might come again in a block made later.
fn goes(block: &Block, now: Instant) -> bool {
    block.is_empty() && block.holder().is_none() && block.sequence() < now.seconds.saturating_mul(1_000_000_000)
}

fn prepare(session: &mut Session<'_, '_>, desk: &mut Desk, item: &Release) -> Step<Released> {
    let cooldown = session.configuration()?.cooldown_seconds;
    let Some(prefix) = find_block(session, desk, item.address)? else { return Ok(Released::NotAssigned) };
    let now = session.now;
    let Some(slot) = desk.blocks.get(&prefix) else { return Err(Stop::Again) };
    let block = &slot.block.object;
    let Some(ordinal) = block.ordinal(item.address) else { return Ok(Released::NotAssigned) };
    let held = block.held(ordinal);
    let stored = held.as_ref().map_or(0, |held| held.sequence);
    if item.sequence.is_some_and(|sequence| sequence != stored) {
        return Err(Error::StaleSequence(stored).into());
    }
    let Some(held) = held.filter(|held| held.cooling_since.is_none()) else { return Ok(Released::NotAssigned) };
    if let Some(handle) = &item.handle
        && held.handle.as_deref() != Some(Handle::sanitise(handle))
    {
        return Err(Error::NotYours(held.handle).into());
    }
    // Read before anything is changed: what fails must leave the desk as it was, for the other items are written from it.
    if let Some(handle) = &held.handle {
        desk.handle(session, handle, true)?;
    }
    let Some(slot) = desk.blocks.get_mut(&prefix) else { return Err(Stop::Again) };
    let block = &mut slot.block.object;
    block.release(&[ordinal], now, cooldown);
    slot.is_changed = true;
    let released = if block.held(ordinal).is_some() { Released::Cooling } else { Released::Freed };
    slot.is_deleted = goes(block, now);
    let event = session.event("released", address_name(item.address), held.handle.as_deref().unwrap_or_default());
    desk.events.push(event);
    if let Some(handle) = held.handle {
        desk.handle(session, &handle, true)?.subtract(prefix, 1);
    }
    Ok(released)
}

/// Gives blocks back that became empty and whose pool no longer selects their host (`calico.md` 2.11). What fails here
/// is done by the next assignment or release.
fn tidy(session: &mut Session<'_, '_>, emptied: BTreeSet<(Holder, Prefix)>) {
    for (holder, prefix) in emptied {
        if matches!(holder, Holder::Virtual(_)) {
            continue;
        }
        let Ok(world) = session.world() else { return };
        let Ok(labels) = session.holder_labels(&holder) else { return };
        if world.enabled_pool_of(prefix).is_some_and(|pool| !pool.node_selector.matches(&labels)) {
            let asked = Unclaim { must_be_empty: true, sequence: None };
            if unclaim(session, &holder, prefix, asked).is_err() {
                continue;
            }
        }
    }
}

/// Releases all addresses of each handle. See [`super::release_by_handle`].
pub(super) fn release_by_handle(call: &mut Call<'_>, handles: &[String]) -> Vec<Result<Vec<Address>, Error>> {
    let mut emptied = BTreeSet::new();
    let mut answers = Vec::with_capacity(handles.len());
    for handle in handles {
        let mut released = BTreeSet::new();
        let done =
            tried(call, |session, attempt| release_handle(session, handle, attempt, &mut released, &mut emptied));
        answers.push(done.map(|()| released.into_iter().collect()));
    }
    tidy(&mut Session::new(call), emptied);
    answers
}

fn release_handle(
    session: &mut Session<'_, '_>,
    id: &str,
    attempt: u32,
    released: &mut BTreeSet<Address>,
    emptied: &mut BTreeSet<(Holder, Prefix)>,
) -> Step<()> {
    let id = Handle::sanitise(id);
    let key = handle_key(id);
    let Some(entry) = session.get(&key)? else {
        // An earlier attempt may have removed it without being told.
        return if attempt > 0 { Ok(()) } else { Err(Error::NotFound(id.to_owned()).into()) };
    };
    let handle = Handle::parse(&entry.value).map_err(unreadable(&key))?;
    let cooldown = session.configuration()?.cooldown_seconds;
    let mut writes = Vec::new();
    let mut now_empty = Vec::new();
    for prefix in handle.counts().keys().copied() {
        let Some(mut block) = session.block(prefix)? else { continue };
        let ordinals = block.object.ordinals_of_handle(id);
        let addresses: Vec<Address> = ordinals.iter().filter_map(|ordinal| block.object.address(*ordinal)).collect();
        // A block without an address of the handle is written too: whoever is about to take one for this handle loses.
        block.object.release(&ordinals, session.now, cooldown);
        let is_empty = block.object.is_empty();
        match block.object.holder() {
            None if goes(&block.object, session.now) => {
                writes.push((remove(block_key(prefix), &block.version), addresses));
                continue;
            }
            Some(holder) if is_empty => now_empty.push((holder, prefix)),
            _ => {}
        }
        block.object.advance();
        writes.push((replace(block_key(prefix), &block.version, block.object.to_bytes()), addresses));
    }
    // The handle goes last.
    writes.push((remove(key, &entry.version), Vec::new()));
    let at_once = if session.is_atomic() { session.writes_max.min(COMMIT_WRITES_MAX) } else { 1 };
    for part in writes.chunks(at_once) {
        let batch: Vec<Write> = part.iter().map(|(write, _)| write.clone()).collect();
        let addresses = part.iter().flat_map(|(_, addresses)| addresses).copied();
        let events: Vec<Event> =
            addresses.clone().map(|address| session.event("released", address_name(address), id)).collect();
        let done = session.commit(&batch, &events);
        // Where the outcome is not known, they may have been; what others released is not answered for.
        if matches!(done, Ok(_) | Err(store::Error::UnknownOutcome)) {
            released.extend(addresses);
        }
        done?;
    }
    emptied.extend(now_empty);
    Ok(())
}
