//! Assigning addresses that the core chooses (`calico.md` 2.3 to 2.7).
//!
//! First a plan is made without changing any block but those newly claimed; only a plan that gives what was asked is
//! carried out. So a request that fails leaves no address behind.

use super::choose::{Choice, choose};
use super::claim::{claim, take_over};
use super::desk::{Desk, Own, Taken, Written};
use super::explain;
use super::search::{Found, Slices, find_slice, lengths};
use super::session::{Session, Step, Stop, Versioned, World, tried};
use super::{Assignment, Call, Edges, Error, Grant, Granted, Holder, PassOver};
use crate::limits::{
    ASSIGN_MAX, CLAIM_TRIES_MAX, COLD_LOOK_MAX, COMMIT_TRIES_MAX, COMMIT_WRITES_MAX, RECLAIM_AGE_SECONDS,
    RECLAIM_LOOK_MAX, ROOMS_PAGE,
};
use crate::net::{AddressSet, Family, Prefix, Range};
use crate::objects::keys::{
    Empty, Room, affinity_key, block_key, empties_prefix, empty_key, empty_of_key, handle_key, room_of_key,
    rooms_prefix,
};
use crate::objects::{Block, Handle};
use crate::resources::Pool;
use crate::store::{KEY_BYTES_MAX, Version};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Assigns addresses. See [`super::assign`].
pub(super) fn assign(call: &mut Call<'_>, items: &[Assignment]) -> Vec<Granted> {
    let mut answers = Vec::with_capacity(items.len());
    loop {
        let rest = items.get(answers.len()..).unwrap_or_default();
        if rest.len() > 1 {
            answers.extend(assign_together(&mut Session::new(call), rest));
        }
        // What could not be done with others is done alone, in its turn.
        let Some(item) = items.get(answers.len()) else { return answers };
        let alone = tried(call, |session, attempt| assign_alone(session, item, attempt));
        answers.push(alone.unwrap_or_else(failed));
    }
}

fn failed(error: Error) -> Granted {
    Granted { failed: Some(error), ..Granted::default() }
}

/// Carries out items from the first on with shared commits, and answers for those that are done: up to one that must be
/// done alone.
fn assign_together(session: &mut Session<'_, '_>, items: &[Assignment]) -> Vec<Granted> {
    let mut answers = Vec::new();
    if !session.is_atomic() {
        return answers;
    }
    let writes_max = session.writes_max.min(COMMIT_WRITES_MAX);
    let mut desk = Desk::default();
    let mut waiting: Vec<Granted> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let mut is_last = index + 1 == items.len();
        match prepare(session, &mut desk, item, 0, false) {
            // That nothing is free is looked at twice, alone.
            Ok(granted) if granted.is_exhausted() && granted.grants.is_empty() => is_last = true,
            Ok(granted) => waiting.push(granted),
            Err(Stop::Fail(error)) => waiting.push(failed(error)),
            Err(Stop::Again) => is_last = true,
        }
        if is_last || desk.writes() + WRITES_PER_ITEM > writes_max {
            match desk.write(session) {
                Ok(Written::Known) => answers.append(&mut waiting),
                Ok(Written::Dropped) => {
                    answers.append(&mut waiting);
                    desk = Desk::default();
                }
                Err(_) => return answers,
            }
        }
        if is_last {
            break;
        }
    }
    answers
}

/// About how many writes one more item may add: a block and a handle for each family.
const WRITES_PER_ITEM: usize = 4;

fn assign_alone(session: &mut Session<'_, '_>, item: &Assignment, attempt: u32) -> Step<Granted> {
    let mut desk = Desk::default();
    let mut granted = prepare(session, &mut desk, item, attempt, false)?;
    if granted.is_exhausted() {
        // While one looks, a block may be taken over and claimed anew: there when free slices are looked for, gone when
        // addresses are. So nothing is refused before a second look, without lag, in which nobody else was faster and
        // which ends as it began.
        session.is_wary = true;
        session.is_beaten = false;
        desk = Desk::default();
        granted = prepare(session, &mut desk, item, attempt.max(1), false)?;
        if granted.is_exhausted() && (session.is_beaten || has_slice(session, item, &granted)?) {
            return Err(Stop::Again);
        }
    }
    desk.write(session)?;
    Ok(granted)
}

/// Whether a pool that was found full has a slice that no block overlaps.
fn has_slice(session: &mut Session<'_, '_>, item: &Assignment, granted: &Granted) -> Step<bool> {
    if item.advice.iter().any(|advice| advice.blocks.is_some()) {
        return Ok(false);
    }
    let world = session.world()?;
    let was_full = |pool: &&Pool| {
        let mut reports = granted.passed_over.iter().filter(|report| report.pool == pool.name);
        reports.any(|report| matches!(report.why, PassOver::Full | PassOver::StrictAffinity))
    };
    for pool in world.pools.iter().filter(was_full) {
        let set = unavailable(&world, item, Some(pool));
        if matches!(find_slice(session, pool, &item.holder, &set, &[])?, Found::Slice(_)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What [`assign`] would answer. Nothing is written.
pub(super) fn explain_each(call: &mut Call<'_>, items: &[Assignment]) -> Vec<Granted> {
    let each = items.iter().map(|item| {
        tried(call, |session, _| prepare(session, &mut Desk::default(), item, 1, true)).unwrap_or_else(failed)
    });
    each.collect()
}

fn invalid(field: &str, value: impl ToString, remedy: &str) -> Error {
    Error::Invalid { field: field.into(), value: value.to_string(), remedy: remedy.into() }
}

/// Checks who asks, for every operation that names a holder.
pub(super) fn check_holder(holder: &Holder) -> Result<(), Error> {
    if holder.name().is_empty() {
        return Err(invalid("holder", "", "name the node"));
    }
    let longest = Prefix::new(crate::net::Address::highest(Family::V6), Family::V6.bits());
    if longest.is_some_and(|block| affinity_key(holder, block).len() > KEY_BYTES_MAX) {
        return Err(invalid("holder", holder.name(), "shorten the name: node names have at most 253 characters"));
    }
    Ok(())
}

/// Checks a handle id.
pub(super) fn check_handle(handle: &str) -> Result<(), Error> {
    if handle.is_empty() {
        return Err(invalid("handle", "", "leave the handle out, or name it"));
    }
    if handle_key(handle).len() > KEY_BYTES_MAX {
        return Err(invalid("handle", handle, "shorten it: its key in the store has at most 1,024 bytes"));
    }
    Ok(())
}

fn check(item: &Assignment) -> Result<(), Error> {
    check_holder(&item.holder)?;
    if let Some(handle) = &item.handle {
        check_handle(handle)?;
    }
    for (field, count) in [("v4", item.v4), ("v6", item.v6)] {
        if count > ASSIGN_MAX {
            return Err(invalid(field, count, "ask for at most 65,536 addresses at once"));
        }
    }
    if let Some((policy, why)) = item.advice.iter().find_map(|advice| Some((&advice.policy, advice.refuse.as_ref()?))) {
        return Err(Error::RefusedByPolicy(policy.clone(), why.clone()));
    }
    Ok(())
}

/// Some addresses of one block.
#[derive(Clone, Copy, Debug)]
struct Part {
    block: Prefix,
    count: u32,
}

/// What one family of a request would get.
#[derive(Debug)]
struct Plan {
    choice: Choice,
    parts: Vec<Part>,
    wanted: u32,
    /// Addresses that the handle has already, instead of or beside the parts.
    held: Vec<Grant>,
    /// Why usable pools gave no more; by the index of the pool.
    stopped: BTreeMap<usize, PassOver>,
    /// Slices that could not be claimed.
    lost: u32,
}

impl Plan {
    fn obtained(&self) -> u32 {
        let taken: u32 = self.parts.iter().map(|part| part.count).fold(0, u32::saturating_add);
        taken.saturating_add(u32::try_from(self.held.len()).unwrap_or(u32::MAX))
    }

    fn missing(&self) -> u32 {
        self.wanted.saturating_sub(self.obtained())
    }
}

/// Puts what an item takes on the desk. With `imagined` nothing is written, not even claims.
fn prepare(
    session: &mut Session<'_, '_>,
    desk: &mut Desk,
    item: &Assignment,
    attempt: u32,
    imagined: bool,
) -> Step<Granted> {
    check(item)?;
    // The first attempt takes a handle not to exist: that it does is found out by the commit and costs no request.
    let look = attempt > 0 || item.handle.as_ref().is_some_and(|handle| desk.has_handle(handle));
    let mut plans = Vec::new();
    for family in [Family::V4, Family::V6] {
        if item.wanted(family) > 0 {
            plans.push((family, plan(session, desk, item, family, look, imagined)?));
        }
    }
    let short = plans.iter().find(|(_, plan)| plan.missing() > 0);
    let mut granted = Granted::default();
    if let Some((family, plan)) = short {
        granted.failed = Some(if plan.choice.usable.is_empty() {
            Error::NoPool(*family)
        } else {
            Error::Exhausted { family: *family, wanted: plan.wanted, obtained: plan.obtained() }
        });
        for (_, plan) in plans.iter().filter(|(_, plan)| plan.missing() > 0) {
            granted.passed_over.extend(explain::reports(session, &plan.choice, &plan.stopped)?);
        }
        if !item.partial {
            return Ok(granted);
        }
    }
    for (family, plan) in plans {
        carry_out(session, desk, item, family, plan, look, &mut granted.grants)?;
    }
    Ok(granted)
}

/// What a pool cannot give to a request: reserved addresses and those that the request avoids.
fn unavailable<'w>(world: &'w World, item: &Assignment, pool: Option<&Pool>) -> Cow<'w, AddressSet> {
    let mut more: Vec<Range> = item.avoid.iter().filter_map(|address| Range::new(*address, *address)).collect();
    if let Some(pool) = pool.filter(|_| item.avoid_pool_edges) {
        let (first, last) = (pool.cidr.first(), pool.cidr.last());
        if pool.cidr.family().bits().saturating_sub(pool.cidr.length()) > 1 {
            more.extend(Range::new(first, first));
            if pool.cidr.family() == Family::V4 {
                more.extend(Range::new(last, last));
            }
        }
    }
    if more.is_empty() {
        return Cow::Borrowed(&world.reserved);
    }
    Cow::Owned(world.reserved.union(&AddressSet::from_ranges(more)))
}

fn is_wholly_in(block: Prefix, set: &AddressSet) -> bool {
    AddressSet::from_ranges([block.range()]).difference(set).is_empty()
}

/// Whether a block may have an address to give, by what the store's index says of it.
fn may_give(room: Option<&Room>, now: i64, cooldown: i64) -> bool {
    room.is_some_and(|room| {
        room.free > 0 || room.cooling > 0 && room.coolest.is_none_or(|since| now.saturating_sub(since) >= cooldown)
    })
}

/// Decides from which blocks a family of a request is served.
fn plan(
    session: &mut Session<'_, '_>,
    desk: &mut Desk,
    item: &Assignment,
    family: Family,
    look: bool,
    imagined: bool,
) -> Step<Plan> {
    let choice = match choose(session, item, family) {
        Ok(choice) if !choice.usable.is_empty() => choice,
        refused => {
            // What the handle has already is the answer, also where no pool would give it now.
            if let Some(held) = held_in_full(session, desk, item, family)? {
                let choice = Choice { world: session.world()?, usable: Vec::new(), passed_over: Vec::new() };
                let wanted = item.wanted(family);
                return Ok(Plan { choice, parts: Vec::new(), wanted, held, stopped: BTreeMap::new(), lost: 0 });
            }
            refused?
        }
    };
    let mut plan = Plan {
        choice,
        parts: Vec::new(),
        wanted: item.wanted(family),
        held: Vec::new(),
        stopped: BTreeMap::new(),
        lost: 0,
    };
    if let (Some(handle), Some(max)) = (&item.handle, item.per_handle_max) {
        if look {
            plan.held = held_before(session, desk, handle, family)?;
            if plan.missing() == 0 {
                return Ok(plan);
            }
        }
        if plan.wanted > max {
            return Err(Error::HandleLimit(max).into());
        }
    }
    if plan.choice.usable.is_empty() {
        return Ok(plan);
    }
    let world = plan.choice.world.clone();
    let all_own = desk.own(session, &item.holder, family)?;
    if !imagined {
        leave_deselected(session, desk, item, &plan.choice, &all_own)?;
    }
    let mut own: Vec<Own> = all_own.into_iter().filter(|own| plan.choice.pool_of(own.prefix).is_some()).collect();
    let ranked = item.advice.iter().find_map(|advice| Some((&advice.policy, advice.blocks.as_ref()?)));
    let rank = |prefix: Prefix| {
        ranked
            .map_or(Some(0), |(_, blocks)| blocks.iter().position(|block| *block == (prefix.first(), prefix.length())))
    };
    let mut owned = u32::try_from(own.len()).unwrap_or(u32::MAX);
    let addresses_max = [world.configuration.addresses_per_host_max, item.addresses_max].into_iter().flatten().min();
    let mut allowance = u32::MAX;
    if let Some(max) = addresses_max {
        allowance = max.saturating_sub(held_in(session, desk, &own)?);
    }
    own.retain(|own| rank(own.prefix).is_some());
    own.sort_by_key(|own| rank(own.prefix));

    // Phase 1: the holder's own blocks, in the order of their keys.
    let mut stale = Vec::new();
    for own in &own {
        if plan.missing().min(allowance) == 0 {
            break;
        }
        match take_from_own(session, desk, item, &mut plan, own, allowance, imagined)? {
            Some(given) => allowance = allowance.saturating_sub(given),
            None => stale.push(own.prefix),
        }
    }
    // An affinity told of a block that is another's: it counts no more, and may be borrowed from.
    own.retain(|own| !stale.contains(&own.prefix));
    owned = owned.saturating_sub(u32::try_from(stale.len()).unwrap_or(u32::MAX));

    // The handle may have addresses already; that it has costs no request as long as one of the own blocks serves, and
    // the commit finds out. Before anything new is claimed, and before anything is refused, it is read.
    if plan.missing() > 0
        && !look
        && item.per_handle_max.is_some()
        && let Some(handle) = &item.handle
    {
        let held = held_before(session, desk, handle, family)?;
        if !held.is_empty() {
            plan.parts.clear();
            plan.held = held;
            if plan.missing() > 0 {
                return Err(Stop::Again);
            }
            return Ok(plan);
        }
    }

    // Phase 2: new blocks.
    let limit = [Some(world.configuration.blocks_per_host_max), item.blocks_max.filter(|max| *max > 0)];
    let limit = limit.into_iter().flatten().min().unwrap_or(u32::MAX);
    let mut may_borrow = !world.configuration.strict_affinity;
    let usable = plan.choice.usable.clone();
    let stop_all = |plan: &mut Plan, why: PassOver| {
        for index in &usable {
            plan.stopped.insert(*index, why.clone());
        }
    };
    let mut tried = Vec::new();
    while plan.missing().min(allowance) > 0 {
        if owned >= limit {
            stop_all(&mut plan, PassOver::BlockLimit(limit));
            may_borrow = false;
            break;
        }
        if !world.configuration.auto_allocate_blocks {
            stop_all(&mut plan, PassOver::NoAutoAllocate);
            break;
        }
        let listed = ranked.map(|(_, blocks)| blocks.as_slice());
        let Some(block) = new_block(session, desk, item, &mut plan, listed, &mut tried, imagined)? else { break };
        owned = owned.saturating_add(1);
        let set = unavailable(&world, item, plan.choice.pool_of(block));
        let Some(slot) = desk.blocks.get(&block) else { break };
        let free = slot.block.object.free_unless(&mut |address| set.contains(address));
        let count = free.min(plan.missing()).min(allowance);
        if count == 0 {
            tried.push(block);
            if tried.len() > usize::try_from(CLAIM_TRIES_MAX).unwrap_or(usize::MAX) {
                break;
            }
            continue;
        }
        plan.parts.push(Part { block, count });
        allowance = allowance.saturating_sub(count);
    }
    if plan.missing() > 0 && allowance == 0 {
        stop_all(&mut plan, PassOver::AddressLimit(addresses_max.unwrap_or_default()));
        may_borrow = false;
    }

    // Phase 3: single addresses of other holders' blocks.
    if plan.missing() > 0 && may_borrow {
        let own: Vec<Prefix> = own.iter().map(|own| own.prefix).collect();
        borrow(session, desk, item, &mut plan, &own, &|prefix| rank(prefix).is_some())?;
    }
    if plan.missing() > 0 && world.configuration.strict_affinity {
        let planned = plan.parts.iter().map(|part| part.block);
        let mine: Vec<Prefix> = own.iter().map(|own| own.prefix).chain(planned).collect();
        for (index, pool) in plan.choice.pools() {
            let full = !plan.stopped.contains_key(&index);
            if full && explain::has_room(session, pool, &world.reserved, &mine)? {
                plan.stopped.insert(index, PassOver::StrictAffinity);
            }
        }
    }
    Ok(plan)
}

/// How many addresses are held in blocks.
fn held_in(session: &mut Session<'_, '_>, desk: &mut Desk, own: &[Own]) -> Step<u32> {
    let mut held = 0u32;
    for own in own {
        let size = 1u32.checked_shl(u32::from(own.prefix.family().bits() - own.prefix.length())).unwrap_or(u32::MAX);
        let free = match (desk.blocks.get(&own.prefix), &own.room) {
            (Some(slot), _) => slot.block.object.free(),
            (None, Some(room)) => room.free,
            (None, None) => desk.load(session, own.prefix)?.map_or(size, |slot| slot.block.object.free()),
        };
        held = held.saturating_add(size.saturating_sub(free));
    }
    Ok(held)
}

/// Gives empty blocks back whose pool no longer selects the node (`calico.md` 2.3, step 8).
fn leave_deselected(
    session: &mut Session<'_, '_>,
    desk: &Desk,
    item: &Assignment,
    choice: &Choice,
    own: &[Own],
) -> Step<()> {
    if !matches!(item.holder, Holder::Host(_)) {
        return Ok(());
    }
    let labels = session.holder_labels(&item.holder)?;
    // What is empty in the store may be taken from on the desk.
    let idle = own.iter().filter(|own| choice.pool_of(own.prefix).is_none() && !desk.is_changed(own.prefix));
    for own in idle {
        let is_deselected =
            choice.world.enabled_pool_of(own.prefix).is_some_and(|pool| !pool.node_selector.matches(&labels));
        if is_deselected && session.read(&[empty_key(own.prefix)], false)?.iter().any(Option::is_some) {
            let asked = super::claim::Unclaim { must_be_empty: true, sequence: None };
            match super::claim::unclaim(session, &item.holder, own.prefix, asked) {
                // It is a service to others; the request does not depend on it.
                Ok(()) | Err(Stop::Again | Stop::Fail(_)) => {}
            }
        }
    }
    Ok(())
}

/// Plans addresses of one of the holder's blocks, and says how many. None: it is not the holder's after all.
fn take_from_own(
    session: &mut Session<'_, '_>,
    desk: &mut Desk,
    item: &Assignment,
    plan: &mut Plan,
    own: &Own,
    allowance: u32,
    imagined: bool,
) -> Step<Option<u32>> {
    let world = plan.choice.world.clone();
    let is_known = desk.blocks.contains_key(&own.prefix);
    let cooldown = world.configuration.cooldown_seconds;
    // A full block that is on the desk may have got cold addresses back by being loaded.
    if own.is_full
        || !is_known
            && own.is_confirmed
            && own.room.is_some()
            && !may_give(own.room.as_ref(), session.seconds(), cooldown)
    {
        return Ok(Some(0));
    }
    let set = unavailable(&world, item, plan.choice.pool_of(own.prefix));
    if is_wholly_in(own.prefix, &set) {
        return Ok(Some(0));
    }
    let edges = item.edges(own.prefix.family());
    let Some(slot) = desk.load_own(session, &item.holder, own, edges, imagined)? else { return Ok(None) };
    let free = slot.block.object.free_unless(&mut |address| set.contains(address));
    let is_full = slot.block.object.free() == 0;
    let count = free.min(plan.missing()).min(allowance);
    if count > 0 {
        plan.parts.push(Part { block: own.prefix, count });
    } else if is_full {
        desk.mark_full(&item.holder, own.prefix);
    }
    Ok(Some(count))
}

/// Claims a block for the holder: a free one, or an empty one of another holder. None: there is none to be had, and
/// `plan.stopped` says so.
fn new_block(
    session: &mut Session<'_, '_>,
    desk: &mut Desk,
    item: &Assignment,
    plan: &mut Plan,
    listed: Option<&[(crate::net::Address, u8)]>,
    tried: &mut Vec<Prefix>,
    imagined: bool,
) -> Step<Option<Prefix>> {
    let world = plan.choice.world.clone();
    let family = plan.choice.pools().next().map_or(Family::V4, |(_, pool)| pool.cidr.family());
    let edges = item.edges(family);
    let usable = plan.choice.usable.clone();
    let pools = || usable.iter().filter_map(|index| Some((*index, world.pools.get(*index)?)));
    for (index, pool) in pools() {
        let set = unavailable(&world, item, Some(pool));
        loop {
            let found = match listed {
                Some(blocks) => listed_slice(session, pool, blocks, tried)?,
                None => find_slice(session, pool, &item.holder, &set, tried)?,
            };
            let slice = match found {
                Found::Slice(slice) => slice,
                Found::Full => break,
                Found::GivenUp => {
                    plan.stopped.insert(index, PassOver::SearchLimit);
                    break;
                }
            };
            tried.push(slice);
            if imagined {
                let block = Block::new(slice, &item.holder, session.now, 0, edges);
                desk.put(Versioned { object: block, version: Version::default() });
                return Ok(Some(slice));
            }
            if let Some(block) = claim(session, &item.holder, slice, None, edges)? {
                return Ok(Some(keep(desk, &item.holder, block)?));
            }
            plan.lost += 1;
            if plan.lost >= CLAIM_TRIES_MAX {
                return Err(Stop::Again);
            }
        }
    }
    for (_, pool) in pools() {
        if listed.is_some() {
            break;
        }
        let set = unavailable(&world, item, Some(pool));
        if let Some(block) = reclaim(session, desk, item, pool, &set, tried, imagined)? {
            return Ok(Some(block));
        }
    }
    // What was lost to others may be free again, or never was anybody's: a commit may conflict for other reasons.
    if plan.lost > 0 { Err(Stop::Again) } else { Ok(None) }
}

fn keep(desk: &mut Desk, holder: &Holder, block: Versioned<Block>) -> Step<Prefix> {
    let prefix = block.object.prefix();
    if desk.is_changed(prefix) {
        // Somebody has taken the block away from an earlier item, whose commit will fail.
        return Err(Stop::Again);
    }
    desk.put(block);
    desk.remember(holder, prefix);
    Ok(prefix)
}

/// The first of the blocks that a policy lists that is a free slice of the pool.
fn listed_slice(
    session: &mut Session<'_, '_>,
    pool: &Pool,
    blocks: &[(crate::net::Address, u8)],
    tried: &[Prefix],
) -> Step<Found> {
    for (base, length) in blocks {
        let Some(block) = Prefix::new(*base, *length).filter(|block| !block.has_host_bits()) else { continue };
        let fits = *length == pool.block_length && pool.cidr.covers(&block) && !tried.contains(&block);
        if fits && super::search::overlapping(session, block)?.is_none() && session.get(&block_key(block))?.is_none() {
            return Ok(Found::Slice(block));
        }
    }
    Ok(Found::Full)
}

/// Looks at a block that an index lists and at what it says of it; false: enough was seen.
type Visit<'v> = &'v mut dyn FnMut(&mut Session<'_, '_>, Prefix, &[u8]) -> Step<bool>;

/// Visits the entries of an index that lie in a pool, from the holder's place on and then from the beginning.
fn around_pool(
    session: &mut Session<'_, '_>,
    pool: &Pool,
    length: u8,
    holder: &Holder,
    prefix_of: &dyn Fn(&str) -> Option<Prefix>,
    keys: &str,
    visit: Visit<'_>,
) -> Step<()> {
    let slices = Slices::between(pool.cidr, length);
    let start = slices.nth(slices.start(holder));
    let Some(start) = start else { return Ok(()) };
    let key = |prefix: Prefix| block_key(prefix).replacen(&format!("{}/", KIND), keys, 1);
    let parts = [(start, pool.cidr.last(), true), (slices.nth(0).unwrap_or(start), start.first(), false)];
    for (first, last, includes_last) in parts {
        let family_keys = key(first);
        let Some((directory, _)) = family_keys.rsplit_once('/') else { return Ok(()) };
        let directory = format!("{directory}/");
        let mut from = Some(key(first));
        while let Some(at) = from.take() {
            let page = session.page(&directory, &at, ROOMS_PAGE)?;
            from = page.next;
            for entry in page.entries {
                let Some(prefix) = prefix_of(&entry.key) else { continue };
                if prefix.first() > last || (prefix.first() == last && !includes_last) {
                    from = None;
                    break;
                }
                if !visit(session, prefix, &entry.value)? {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

/// The first part of a block's key.
const KIND: &str = "block";

/// Blocks of other holders that nothing keeps from being empty but addresses that are cold by now: the index does not know
/// until somebody has looked at them, and their holder may never do so. Where addresses can be borrowed they are used
/// without this.
fn cold_blocks(
    session: &mut Session<'_, '_>,
    desk: &Desk,
    item: &Assignment,
    pool: &Pool,
    set: &AddressSet,
    tried: &[Prefix],
) -> Step<Vec<Prefix>> {
    let cooldown = session.configuration()?.cooldown_seconds;
    let (now, mut looked, mut cold) = (session.seconds(), 0, Vec::new());
    let size = 1u32.checked_shl(u32::from(pool.cidr.family().bits() - pool.block_length)).unwrap_or(u32::MAX);
    around_pool(
        session,
        pool,
        pool.block_length,
        &item.holder,
        &room_of_key,
        "room/",
        &mut |session, prefix, value| {
            looked += 1;
            let room = Room::parse(value).unwrap_or_default();
            if room.cooling > 0
                && room.free.saturating_add(room.cooling) == size
                && may_give(Some(&Room { free: 0, ..room }), now, cooldown)
                && !tried.contains(&prefix)
                && !desk.is_changed(prefix)
                && !is_wholly_in(prefix, set)
            {
                let block = session.block(prefix)?;
                let is_cold = |block: &Versioned<Block>| {
                    block.object.is_empty() && block.object.holder().as_ref() != Some(&item.holder)
                };
                cold.extend(block.filter(is_cold).map(|_| prefix));
            }
            Ok(looked < COLD_LOOK_MAX && cold.is_empty())
        },
    )?;
    Ok(cold)
}

/// Takes an empty block of another holder over that is old enough.
fn reclaim(
    session: &mut Session<'_, '_>,
    desk: &mut Desk,
    item: &Assignment,
    pool: &Pool,
    set: &AddressSet,
    tried: &mut Vec<Prefix>,
    imagined: bool,
) -> Step<Option<Prefix>> {
    let mut candidates = Vec::new();
    let now = session.seconds();
    let index = empties_prefix(pool.cidr.family(), pool.block_length);
    let directory = index.split('/').next().map(|kind| format!("{kind}/")).unwrap_or_default();
    around_pool(session, pool, pool.block_length, &item.holder, &empty_of_key, &directory, &mut |_, prefix, value| {
        let Some(empty) = Empty::parse(value) else { return Ok(true) };
        let is_old = empty.holder.is_none()
            || empty.claimed.is_none_or(|claimed| now.saturating_sub(claimed) >= RECLAIM_AGE_SECONDS);
        if is_old
            && empty.holder.as_ref() != Some(&item.holder)
            && !tried.contains(&prefix)
            && !desk.is_changed(prefix)
            && !is_wholly_in(prefix, set)
        {
            candidates.push(prefix);
        }
        Ok(candidates.len() < RECLAIM_LOOK_MAX)
    })?;
    let configuration = session.configuration()?;
    if candidates.is_empty() && configuration.strict_affinity && configuration.cooldown_seconds > 0 {
        candidates = cold_blocks(session, desk, item, pool, set, tried)?;
    }
    for prefix in candidates {
        tried.push(prefix);
        let edges = item.edges(prefix.family());
        if imagined {
            let block = Block::new(prefix, &item.holder, session.now, 0, edges);
            desk.put(Versioned { object: block, version: Version::default() });
            return Ok(Some(prefix));
        }
        if let Some(block) = take_over(session, &item.holder, prefix, edges)? {
            return Ok(Some(keep(desk, &item.holder, block)?));
        }
    }
    Ok(None)
}

/// Plans addresses of other holders' blocks (`calico.md` 2.7). Only blocks that have some are looked at.
fn borrow(
    session: &mut Session<'_, '_>,
    desk: &mut Desk,
    item: &Assignment,
    plan: &mut Plan,
    own: &[Prefix],
    is_allowed: &dyn Fn(Prefix) -> bool,
) -> Step<()> {
    let world = plan.choice.world.clone();
    let cooldown = world.configuration.cooldown_seconds;
    let usable = plan.choice.usable.clone();
    for pool in usable.iter().filter_map(|index| world.pools.get(*index)) {
        let set = unavailable(&world, item, Some(pool));
        let family = pool.cidr.family();
        let other_lengths = lengths(family).filter(|length| *length != pool.block_length);
        for length in std::iter::once(pool.block_length).chain(other_lengths) {
            if plan.missing() == 0 {
                return Ok(());
            }
            let index = rooms_prefix(family, length);
            if length < pool.cidr.length() || length != pool.block_length && session.count_all(&index)? == 0 {
                continue;
            }
            let directory = index.split('/').next().map(|kind| format!("{kind}/")).unwrap_or_default();
            let mut planned = std::mem::take(&mut plan.parts);
            let mut missing = plan.wanted.saturating_sub(
                u32::try_from(plan.held.len())
                    .unwrap_or(u32::MAX)
                    .saturating_add(planned.iter().map(|part| part.count).fold(0, u32::saturating_add)),
            );
            around_pool(
                session,
                pool,
                length,
                &item.holder,
                &room_of_key,
                &directory,
                &mut |session, prefix, value| {
                    let room = Room::parse(value);
                    if own.contains(&prefix)
                        || planned.iter().any(|part| part.block == prefix)
                        || !is_allowed(prefix)
                        || !may_give(room.as_ref(), session.seconds(), cooldown)
                        || is_wholly_in(prefix, &set)
                    {
                        return Ok(true);
                    }
                    let Some(slot) = desk.load(session, prefix)? else { return Ok(true) };
                    let count = slot.block.object.free_unless(&mut |address| set.contains(address)).min(missing);
                    if count > 0 {
                        planned.push(Part { block: prefix, count });
                        missing -= count;
                    }
                    Ok(missing > 0)
                },
            )?;
            plan.parts = planned;
        }
    }
    Ok(())
}

/// All that is wanted of a family, if the handle may have no more than some number of addresses and has as many already.
fn held_in_full(
    session: &mut Session<'_, '_>,
    desk: &mut Desk,
    item: &Assignment,
    family: Family,
) -> Step<Option<Vec<Grant>>> {
    let (Some(handle), Some(_)) = (&item.handle, item.per_handle_max) else { return Ok(None) };
    let held = held_before(session, desk, handle, family)?;
    Ok((held.len() as u64 >= u64::from(item.wanted(family))).then_some(held))
}

/// The addresses of a family that a handle has, by what its blocks say. A block that the handle counts and that has none
/// is written anew with this request, so that whoever was about to take one there loses.
pub(super) fn held_before(
    session: &mut Session<'_, '_>,
    desk: &mut Desk,
    id: &str,
    family: Family,
) -> Step<Vec<Grant>> {
    let world = session.world()?;
    let counts: Vec<(Prefix, u32)> = {
        let slot = desk.handle(session, id, true)?;
        slot.handle.counts().iter().map(|(block, count)| (*block, *count)).collect()
    };
    let mut grants = Vec::new();
    for (prefix, count) in counts.into_iter().filter(|(prefix, _)| prefix.family() == family) {
        let Some(slot) = desk.load(session, prefix)? else { continue };
        let mut ordinals = slot.block.object.ordinals_of_handle(id);
        ordinals.sort_unstable();
        if (ordinals.len() as u64) < u64::from(count) {
            slot.is_changed = true;
        }
        let pool = world.pool_of(prefix);
        for ordinal in ordinals {
            if let Some(held) = slot.block.object.held(ordinal) {
                grants.push(Grant {
                    address: held.address,
                    block: prefix,
                    pool: pool.map(|pool| pool.name.clone()).unwrap_or_default(),
                    pool_cidr: pool.map_or(prefix, |pool| pool.cidr),
                    sequence: held.sequence,
                    held_before: true,
                });
            }
        }
    }
    Ok(grants)
}

/// Takes the planned addresses.
fn carry_out(
    session: &mut Session<'_, '_>,
    desk: &mut Desk,
    item: &Assignment,
    family: Family,
    plan: Plan,
    look: bool,
    grants: &mut Vec<Grant>,
) -> Step<()> {
    let wanted = usize::try_from(item.wanted(family)).unwrap_or(usize::MAX);
    grants.extend(plan.held.iter().take(wanted).cloned());
    for part in &plan.parts {
        let pool = plan.choice.pool_of(part.block);
        let set = unavailable(&plan.choice.world, item, pool);
        let Some(slot) = desk.blocks.get_mut(&part.block) else { return Err(Stop::Again) };
        let block = &mut slot.block.object;
        let sequence = block.sequence();
        let ordinals =
            block.take(part.count, item.handle.as_deref(), &item.attributes, &mut |address| set.contains(address));
        slot.is_changed = true;
        let mut events = Vec::new();
        for ordinal in &ordinals {
            slot.taken.push(Taken { ordinal: *ordinal, handle: item.handle.clone(), sequence });
            let Some(address) = slot.block.object.address(*ordinal) else { return Err(Stop::Again) };
            events.push(address);
            grants.push(Grant {
                address,
                block: part.block,
                pool: pool.map(|pool| pool.name.clone()).unwrap_or_default(),
                pool_cidr: pool.map_or(part.block, |pool| pool.cidr),
                sequence,
                held_before: false,
            });
        }
        for address in events {
            let event = session.event("granted", super::address_name(address), &owner_text(item));
            desk.events.push(event);
        }
        if let Some(handle) = item.handle.as_deref().map(Handle::sanitise) {
            let count = u32::try_from(ordinals.len()).unwrap_or(u32::MAX);
            desk.handle(session, handle, look)?.add(part.block, count);
        }
    }
    Ok(())
}

/// Who an address is granted to, for the journal.
fn owner_text(item: &Assignment) -> String {
    item.handle.clone().unwrap_or_else(|| item.holder.to_string())
}

/// Sees to it that a host has a block (`calico.md` 2.10, EnsureBlock).
pub(super) fn ensure_block(
    session: &mut Session<'_, '_>,
    holder: &Holder,
    family: Family,
    pools: &[String],
    edges: Option<&Edges>,
) -> Step<Result<Prefix, Error>> {
    let mut item = Assignment::new(holder.clone(), 1, 1);
    match family {
        Family::V4 => (item.v4_pools, item.v4_edges) = (pools.to_vec(), edges.cloned()),
        Family::V6 => (item.v6_pools, item.v6_edges) = (pools.to_vec(), edges.cloned()),
    }
    check(&item)?;
    let choice = choose(session, &item, family)?;
    if choice.usable.is_empty() {
        return Ok(Err(Error::NoPool(family)));
    }
    let mut desk = Desk::default();
    let own = desk.own(session, holder, family)?;
    let own: Vec<Own> = own.into_iter().filter(|own| choice.pool_of(own.prefix).is_some()).collect();
    for own in &own {
        if desk.load_own(session, holder, own, edges, false)?.is_some() {
            return Ok(Ok(own.prefix));
        }
    }
    let limit = choice.world.configuration.blocks_per_host_max;
    if u64::from(limit) <= own.len() as u64 || !choice.world.configuration.auto_allocate_blocks {
        return Ok(Err(Error::Exhausted { family, wanted: 1, obtained: 0 }));
    }
    let mut plan = Plan { choice, parts: Vec::new(), wanted: 1, held: Vec::new(), stopped: BTreeMap::new(), lost: 0 };
    let block = new_block(session, &mut desk, &item, &mut plan, None, &mut Vec::new(), false)?;
    Ok(block.ok_or(Error::Exhausted { family, wanted: 1, obtained: 0 }))
}

/// How often [`tried`] begins anew; here so that the bound of one call is seen beside what it bounds.
const _: () = assert!(COMMIT_TRIES_MAX > 1, "the second attempt reads the handle");
