//! The life of a claim: absent, pending, confirmed, pendingDeletion, absent (`calico.md` 2.5, 2.10).
//!
//! A claim is an affinity and a block, which a store may not be able to write together. The affinity announces the
//! block, creating the block decides, and only a confirmed affinity lets addresses be taken. What was left half done is
//! completed by its owner when next met; others leave it alone until they have seen it twice.

use super::search::{lengths, overlapping};
use super::session::{Session, Step, Stop, Versioned, create, remove, replace, unreadable};
use super::{Edges, Error, Holder};
use crate::limits::{COMMIT_TRIES_MAX, RECLAIM_AGE_SECONDS, SIGHTING_GRACE_SECONDS};
use crate::net::Prefix;
use crate::objects::keys::{affinity_key, block_key};
use crate::objects::{Affinity, Block, State};
use crate::store::{self, Action, Expected, Version, Write};
use serde::{Deserialize, Serialize};

/// Where the highest sequence number is kept that a deleted block had, if it was ahead of the clock.
const SEQUENCE_KEY: &str = "plat/sequence";

/// What others' writes mean to a step that can be begun again: an outcome that is not known is found out by reading.
fn again(error: store::Error) -> Stop {
    error.into()
}

/// Nanoseconds since 1970.
fn nanoseconds(session: &Session<'_, '_>) -> u64 {
    session.now.seconds.saturating_mul(1_000_000_000).saturating_add(session.now.nanoseconds.into())
}

/// The sequence number of a new block: no allocation of an earlier block of this prefix had it (`calico.md` 7.2, 2).
fn new_sequence(session: &mut Session<'_, '_>) -> Step<u64> {
    let entry = session.get(SEQUENCE_KEY)?;
    let kept = entry.and_then(|entry| std::str::from_utf8(&entry.value).ok()?.parse::<u64>().ok());
    Ok(nanoseconds(session).max(kept.map_or(0, |kept| kept.saturating_add(1))))
}

/// What must be written before a block is deleted, so that its sequence numbers do not come again: nothing, unless they
/// are ahead of the clock.
fn keep_sequence(session: &mut Session<'_, '_>, block: &Block) -> Step<Option<Write>> {
    let last = block.sequence();
    if last < nanoseconds(session) {
        return Ok(None);
    }
    let value = last.to_string().into_bytes();
    Ok(match session.get(SEQUENCE_KEY)? {
        None => Some(create(SEQUENCE_KEY.into(), value)),
        Some(entry) => {
            let kept = std::str::from_utf8(&entry.value).ok().and_then(|text| text.parse::<u64>().ok());
            (kept < Some(last)).then(|| replace(SEQUENCE_KEY.into(), &entry.version, value))
        }
    })
}

/// Writes one after the other, or all at once where the store can.
///
/// # Errors
/// The first that fails; those before it are made where the store takes them one by one.
pub(super) fn write_in_order(
    session: &mut Session<'_, '_>,
    writes: Vec<Write>,
    events: &[store::Event],
) -> Result<Vec<Version>, store::Error> {
    if session.is_atomic() {
        return session.commit(&writes, events);
    }
    let mut versions = Vec::with_capacity(writes.len());
    let count = writes.len();
    for (index, write) in writes.into_iter().enumerate() {
        let journal = if index + 1 == count { events } else { &[] };
        versions.push(session.write(write, journal)?);
    }
    Ok(versions)
}

/// Claims a block that does not exist, for a holder. None: somebody else was faster, or another block overlaps it.
///
/// `affinity`: what was read of the holder's affinity to it.
pub(super) fn claim(
    session: &mut Session<'_, '_>,
    holder: &Holder,
    prefix: Prefix,
    affinity: Option<Versioned<Affinity>>,
    edges: Option<&Edges>,
) -> Step<Option<Versioned<Block>>> {
    let sequence = new_sequence(session)?;
    let block = Block::new(prefix, holder, session.now, sequence, edges);
    let affinity_key = affinity_key(holder, prefix);
    let block_write = create(block_key(prefix), block.to_bytes());
    let announce = match &affinity {
        None => {
            let pending = Affinity::new(holder, prefix, State::Pending, session.now);
            Some(create(affinity_key.clone(), pending.to_bytes()))
        }
        Some(found) if found.object.state() == State::Pending => None,
        Some(found) => {
            let mut pending = found.object.clone();
            pending.set_state(State::Pending);
            Some(replace(affinity_key.clone(), &found.version, pending.to_bytes()))
        }
    };
    let known = affinity.as_ref().map(|found| found.version.clone()).unwrap_or_default();
    let event = session.event("claimed", block_write.key.clone(), &holder.to_string());
    let (pending_version, created) = if session.is_atomic() {
        let announced = announce.is_some();
        let mut writes: Vec<Write> = announce.into_iter().collect();
        writes.push(block_write);
        let around = lengths(prefix.family())
            .filter(|length| *length < prefix.length())
            .filter_map(|length| Prefix::new(Prefix::new(prefix.first(), length)?.network(), length));
        writes.extend(around.map(|around| Write {
            key: block_key(around),
            expected: Expected::Absent,
            action: Action::Check,
        }));
        match session.commit(&writes, &[event]) {
            Ok(versions) => {
                let mut versions = versions.into_iter();
                let pending = if announced { versions.next().unwrap_or_default() } else { known };
                (pending, Ok(versions.next().unwrap_or_default()))
            }
            Err(error) => (known, Err(error)),
        }
    } else {
        let pending = match announce {
            Some(write) => session.write(write, &[]).map_err(again)?,
            None => known,
        };
        (pending, session.write(block_write, &[event]))
    };
    let version = match created {
        Ok(version) => version,
        Err(store::Error::Conflict(_)) => return lost(session, holder, prefix),
        Err(error) => return Err(again(error)),
    };
    if overlapping(session, prefix)?.is_some() {
        let affinity = Affinity::new(holder, prefix, State::Pending, session.now);
        let affinity = Versioned { object: affinity, version: pending_version };
        withdraw(session, holder, Versioned { object: block, version }, Some(affinity))?;
        return Ok(None);
    }
    confirm(session, holder, prefix, &pending_version)?;
    Ok(Some(Versioned { object: block, version }))
}

/// After a block could not be created: whose it is. If another's, the own announcement is taken back.
fn lost(session: &mut Session<'_, '_>, holder: &Holder, prefix: Prefix) -> Step<Option<Versioned<Block>>> {
    match session.block(prefix)? {
        // Another process of this holder, or a block of another length, or gone again.
        None => return Ok(None),
        Some(block) if block.object.holder().as_ref() == Some(holder) => return Err(Stop::Again),
        Some(_) => {}
    }
    drop_stale(session, holder, prefix)?;
    Ok(None)
}

/// Removes the affinity of a holder to a block that is not the holder's.
fn drop_stale(session: &mut Session<'_, '_>, holder: &Holder, prefix: Prefix) -> Step<()> {
    if let Some(stale) = session.affinity(holder, prefix)? {
        let event = session.event("unclaimed", affinity_key(holder, prefix), &holder.to_string());
        session.write(remove(affinity_key(holder, prefix), &stale.version), &[event]).map_err(again)?;
    }
    Ok(())
}

/// Makes an affinity confirmed that was pending at `version`.
fn confirm(session: &mut Session<'_, '_>, holder: &Holder, prefix: Prefix, version: &Version) -> Step<()> {
    let key = affinity_key(holder, prefix);
    let confirmed = Affinity::new(holder, prefix, State::Confirmed, session.now);
    match session.write(replace(key.clone(), version, confirmed.to_bytes()), &[]) {
        Ok(_) => Ok(()),
        Err(store::Error::Conflict(_)) => match session.affinity(holder, prefix)? {
            Some(found) if found.object.state() == State::Confirmed => Ok(()),
            // A claimer that finds its affinity gone makes it again.
            None => session.write(create(key, confirmed.to_bytes()), &[]).map(drop).map_err(again),
            Some(_) => Err(Stop::Again),
        },
        Err(error) => Err(again(error)),
    }
}

/// Takes a new block back that overlaps another. One from which addresses were taken meanwhile is left.
fn withdraw(
    session: &mut Session<'_, '_>,
    holder: &Holder,
    block: Versioned<Block>,
    affinity: Option<Versioned<Affinity>>,
) -> Step<()> {
    session.is_beaten = true;
    if !block.object.is_empty() {
        return Ok(());
    }
    let key = affinity_key(holder, block.object.prefix());
    let event = session.event("withdrawn", block_key(block.object.prefix()), &holder.to_string());
    let delete_block = remove(block_key(block.object.prefix()), &block.version);
    let mut writes: Vec<Write> = keep_sequence(session, &block.object)?.into_iter().collect();
    let mut leaving_version = None;
    if !session.is_atomic()
        && let Some(affinity) = &affinity
    {
        let leaving = Affinity::new(holder, block.object.prefix(), State::PendingDeletion, session.now);
        leaving_version =
            Some(session.write(replace(key.clone(), &affinity.version, leaving.to_bytes()), &[]).map_err(again)?);
    }
    writes.push(delete_block);
    if let Some(affinity) = affinity {
        writes.push(remove(key, &leaving_version.unwrap_or(affinity.version)));
    }
    write_in_order(session, writes, &[event]).map(drop).map_err(again)
}

/// A block that its holder's affinity names, ready to be taken from. None: it is not the holder's after all, and the
/// affinity is gone; or it overlaps another block.
///
/// What a crash left half done is completed here (`calico.md` 2.5).
pub(super) fn load_own(
    session: &mut Session<'_, '_>,
    holder: &Holder,
    prefix: Prefix,
    is_confirmed: bool,
    edges: Option<&Edges>,
) -> Step<Option<Versioned<Block>>> {
    let found = session.block(prefix)?;
    if let Some(block) = &found
        && is_confirmed
        && block.object.holder().as_ref() == Some(holder)
    {
        return Ok(found);
    }
    let affinity = session.affinity(holder, prefix)?;
    let Some(block) = found else { return claim(session, holder, prefix, affinity, edges) };
    if block.object.holder().as_ref() != Some(holder) {
        drop_stale(session, holder, prefix)?;
        return Ok(None);
    }
    if affinity.as_ref().is_some_and(|affinity| affinity.object.state() == State::Confirmed) {
        return Ok(Some(block));
    }
    if overlapping(session, prefix)?.is_some() {
        withdraw(session, holder, block, affinity)?;
        return Ok(None);
    }
    complete(session, holder, block, affinity).map(Some)
}

/// Completes a claim: the block is written anew, so that whoever was deleting it loses, and the affinity confirmed.
fn complete(
    session: &mut Session<'_, '_>,
    holder: &Holder,
    mut block: Versioned<Block>,
    affinity: Option<Versioned<Affinity>>,
) -> Step<Versioned<Block>> {
    let prefix = block.object.prefix();
    let key = affinity_key(holder, prefix);
    let to_state = |state: State, at: Option<&Version>| {
        let mut object = affinity
            .as_ref()
            .map_or_else(|| Affinity::new(holder, prefix, state, session.now), |affinity| affinity.object.clone());
        object.set_state(state);
        match at {
            None => create(key.clone(), object.to_bytes()),
            Some(version) => replace(key.clone(), version, object.to_bytes()),
        }
    };
    let known = affinity.as_ref().map(|affinity| affinity.version.clone());
    block.object.advance();
    let rewrite = replace(block_key(prefix), &block.version, block.object.to_bytes());
    if session.is_atomic() {
        let confirm = to_state(State::Confirmed, known.as_ref());
        let versions = session.commit(&[rewrite, confirm], &[]).map_err(again)?;
        block.version = versions.into_iter().next().unwrap_or_default();
        return Ok(block);
    }
    let is_pending = affinity.as_ref().is_some_and(|affinity| affinity.object.state() == State::Pending);
    let announce = (!is_pending).then(|| to_state(State::Pending, known.as_ref()));
    let pending = match (announce, known) {
        (Some(write), _) => session.write(write, &[]).map_err(again)?,
        (None, known) => known.unwrap_or_default(),
    };
    block.version = session.write(rewrite, &[]).map_err(again)?;
    confirm(session, holder, prefix, &pending)?;
    Ok(block)
}

/// What a release of an affinity requires.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unclaim {
    /// No address of the block may be held.
    pub(super) must_be_empty: bool,
    /// The block must have this sequence number.
    pub(super) sequence: Option<u64>,
}

/// Releases one affinity (`calico.md` 2.10). An empty block is deleted, another lives on without a holder.
pub(super) fn unclaim(session: &mut Session<'_, '_>, holder: &Holder, prefix: Prefix, asked: Unclaim) -> Step<()> {
    let affinity = session.affinity(holder, prefix)?;
    let key = affinity_key(holder, prefix);
    let Some(mut block) = session.block(prefix)? else {
        // The block is gone and the affinity was left: nobody else would ever clear it away.
        return match affinity {
            None => Err(Error::NotFound(prefix.to_string()).into()),
            Some(left) => session.write(remove(key, &left.version), &[]).map(drop).map_err(again),
        };
    };
    if block.object.holder().as_ref() != Some(holder) {
        drop_stale(session, holder, prefix)?;
        return Err(Error::ClaimedBy(block.object.holder()).into());
    }
    if let Some(sequence) = asked.sequence
        && sequence != block.object.sequence()
    {
        return Err(Error::StaleSequence(block.object.sequence()).into());
    }
    let is_empty = block.object.is_empty();
    if asked.must_be_empty && !is_empty {
        return Err(Error::NotEmpty(prefix).into());
    }
    let event = session.event("unclaimed", block_key(prefix), &holder.to_string());
    let mut writes = Vec::new();
    if is_empty {
        writes.extend(keep_sequence(session, &block.object)?);
        writes.push(remove(block_key(prefix), &block.version));
    } else {
        block.object.set_holder(None, session.now);
        block.object.advance();
        writes.push(replace(block_key(prefix), &block.version, block.object.to_bytes()));
    }
    let Some(affinity) = affinity else {
        return write_in_order(session, writes, &[event]).map(drop).map_err(again);
    };
    if session.is_atomic() {
        writes.push(remove(key, &affinity.version));
        return write_in_order(session, writes, &[event]).map(drop).map_err(again);
    }
    let mut leaving = affinity.object;
    leaving.set_state(State::PendingDeletion);
    let version = session.write(replace(key.clone(), &affinity.version, leaving.to_bytes()), &[]).map_err(again)?;
    write_in_order(session, writes, &[event]).map_err(again)?;
    match session.write(remove(key, &version), &[]) {
        Ok(_) => Ok(()),
        // The block is released. If its holder is claiming it anew, that is another claim: to release that one too would
        // make the two chase each other.
        Err(store::Error::Conflict(_)) => match session.affinity(holder, prefix)? {
            Some(found) if found.object.state() == State::PendingDeletion => Err(Stop::Again),
            _ => Ok(()),
        },
        Err(error) => Err(again(error)),
    }
}

/// Takes over an empty block of another holder, or of nobody. None: it cannot be had.
pub(super) fn take_over(
    session: &mut Session<'_, '_>,
    holder: &Holder,
    prefix: Prefix,
    edges: Option<&Edges>,
) -> Step<Option<Versioned<Block>>> {
    let Some(block) = session.block(prefix)? else { return Ok(None) };
    if !block.object.is_empty() {
        return Ok(None);
    }
    let other = block.object.holder();
    if other.as_ref() == Some(holder) {
        return load_own(session, holder, prefix, false, edges);
    }
    let is_old =
        block.object.claimed().is_none_or(|claimed| session.seconds().saturating_sub(claimed) >= RECLAIM_AGE_SECONDS);
    let affinity = match &other {
        None => None,
        Some(_) if !is_old => return Ok(None),
        Some(other) => session.affinity(other, prefix)?,
    };
    if let (Some(other), Some(affinity)) = (&other, &affinity)
        && affinity.object.state() != State::Confirmed
        && !seen_before(session, &affinity_key(other, prefix), &affinity.version)?
    {
        return Ok(None);
    }
    let own = session.affinity(holder, prefix)?;
    let sequence = new_sequence(session)?.max(block.object.sequence().saturating_add(1));
    if session.is_atomic() {
        let fresh = Block::new(prefix, holder, session.now, sequence, edges);
        let event = session.event("reclaimed", block_key(prefix), &holder.to_string());
        let confirmed = Affinity::new(holder, prefix, State::Confirmed, session.now).to_bytes();
        let own_key = affinity_key(holder, prefix);
        let mut writes = vec![
            replace(block_key(prefix), &block.version, fresh.to_bytes()),
            match own {
                None => create(own_key, confirmed),
                Some(own) => replace(own_key, &own.version, confirmed),
            },
        ];
        if let (Some(other), Some(affinity)) = (&other, &affinity) {
            writes.push(remove(affinity_key(other, prefix), &affinity.version));
        }
        return match session.commit(&writes, &[event]) {
            Ok(versions) => {
                let version = versions.into_iter().next().unwrap_or_default();
                Ok(Some(Versioned { object: fresh, version }))
            }
            Err(error) => Err(again(error)),
        };
    }
    let gone = match &other {
        Some(other) => {
            let asked = Unclaim { must_be_empty: true, sequence: Some(block.object.sequence()) };
            let mut gone = unclaim(session, other, prefix, asked);
            // What was begun is gone on with here: to the next attempt it would be another's half-done release.
            for _ in 1..COMMIT_TRIES_MAX {
                if gone != Err(Stop::Again) {
                    break;
                }
                gone = unclaim(session, other, prefix, asked);
            }
            gone
        }
        None => {
            let mut writes: Vec<Write> = keep_sequence(session, &block.object)?.into_iter().collect();
            writes.push(remove(block_key(prefix), &block.version));
            write_in_order(session, writes, &[]).map(drop).map_err(again)
        }
    };
    match gone {
        // None: somebody else was faster, or it is free still; the next attempt sees.
        Ok(()) => claim(session, holder, prefix, own, edges)?.map(Some).ok_or(Stop::Again),
        // Somebody else has it.
        Err(Stop::Fail(Error::ClaimedBy(_) | Error::NotEmpty(_))) => Ok(None),
        Err(Stop::Fail(Error::NotFound(_) | Error::StaleSequence(_))) => Err(Stop::Again),
        Err(stop) => Err(stop),
    }
}

/// A half-done claim of somebody else, as it was first seen in this version.
#[derive(Serialize, Deserialize)]
struct Sighting {
    version: Vec<u8>,
    seconds: i64,
}

/// Whether another's half-done claim was seen in this very version a grace period ago; if not, that it was seen now is
/// noted.
fn seen_before(session: &mut Session<'_, '_>, key: &str, version: &Version) -> Step<bool> {
    let note = format!("plat/sighting/{}", crate::network::encode(key));
    let found = session.get(&note)?;
    let earlier = found.as_ref().and_then(|entry| serde_json::from_slice::<Sighting>(&entry.value).ok());
    if let Some(earlier) = earlier
        && earlier.version == version.0
    {
        return Ok(session.seconds().saturating_sub(earlier.seconds) >= SIGHTING_GRACE_SECONDS);
    }
    let sighting = Sighting { version: version.0.clone(), seconds: session.seconds() };
    let value = serde_json::to_vec(&sighting)
        .map_err(|error| unreadable(&note)(crate::objects::Unreadable(error.to_string())))?;
    let write = match found {
        None => create(note, value),
        Some(entry) => replace(note, &entry.version, value),
    };
    match session.write(write, &[]) {
        Ok(_) | Err(store::Error::Conflict(_) | store::Error::UnknownOutcome) => Ok(false),
        Err(error) => Err(again(error)),
    }
}
