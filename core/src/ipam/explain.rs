//! Why a request got less than it asked for: each pool, how full it is, why it was passed over, what to do.

use super::choose::{Choice, family_text};
use super::search::{count_blocks, lengths};
use super::session::{Session, Step};
use super::{Error, Granted, PassOver, PoolReport, Use};
use crate::limits::ROOMS_COUNTED_MAX;
use crate::net::{AddressSet, Count, Prefix};
use crate::objects::keys::{Room, room_key, room_of_key, rooms_prefix};
use crate::resources::Pool;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The report of each pool that could have mattered, in the order in which they were looked at.
pub(super) fn reports(
    session: &mut Session<'_, '_>,
    choice: &Choice,
    stopped: &BTreeMap<usize, PassOver>,
) -> Step<Vec<PoolReport>> {
    let mut reports = Vec::new();
    for (index, pool) in choice.pools() {
        let (in_use, free) = fill(session, pool)?;
        let why = stopped.get(&index).cloned().unwrap_or_else(|| {
            let reserved = choice
                .world
                .reserved
                .intersection(&AddressSet::from_ranges([pool.cidr.range()]))
                .count(pool.cidr.family());
            if free.is_zero() || reserved.is_zero() { PassOver::Full } else { PassOver::Reserved }
        });
        reports.push(report(pool, in_use, free, why));
    }
    for (index, why) in &choice.passed_over {
        if matches!(why, PassOver::OtherFamily | PassOver::NotRequested) {
            continue;
        }
        if let Some(pool) = choice.world.pools.get(*index) {
            let (in_use, free) = fill(session, pool)?;
            reports.push(report(pool, in_use, free, why.clone()));
        }
    }
    Ok(reports)
}

fn report(pool: &Pool, in_use: Count, free: Count, why: PassOver) -> PoolReport {
    let remedy = remedy(pool, &why);
    PoolReport {
        pool: pool.name.clone(),
        cidr: pool.cidr,
        capacity: pool.cidr.range().len(),
        in_use,
        free,
        why,
        remedy,
    }
}

/// Whether some block in the pool, of whatever length, has an address that is free or cooling and not reserved; but for
/// the blocks of `mine`.
pub(super) fn has_room(
    session: &mut Session<'_, '_>,
    pool: &Pool,
    reserved: &AddressSet,
    mine: &[Prefix],
) -> Step<bool> {
    for length in lengths(pool.cidr.family()).filter(|length| *length >= pool.cidr.length()) {
        let prefix = rooms_prefix(pool.cidr.family(), length);
        let from = Prefix::new(pool.cidr.first(), length).map(room_key).unwrap_or_default();
        let (mut has_room, mut seen) = (false, 0);
        session.walk(&prefix, Some(&from), false, &mut |_, entry| {
            let Some(block) = room_of_key(&entry.key).filter(|block| pool.cidr.covers(block)) else { return Ok(false) };
            seen += 1;
            has_room =
                !mine.contains(&block) && !AddressSet::from_ranges([block.range()]).difference(reserved).is_empty();
            Ok(!has_room && seen < ROOMS_COUNTED_MAX)
        })?;
        if has_room {
            return Ok(true);
        }
    }
    Ok(false)
}

/// How many addresses of a pool are held, and how many free, by the counts of blocks and the index of those with room.
fn fill(session: &mut Session<'_, '_>, pool: &Pool) -> Step<(Count, Count)> {
    let family = pool.cidr.family();
    let capacity = pool.cidr.range().len();
    let mut held: u128 = 0;
    for length in lengths(family).filter(|length| *length >= pool.cidr.length()) {
        let blocks = count_blocks(session, length, pool.cidr.first(), pool.cidr.last())?;
        if blocks == 0 {
            continue;
        }
        let size = 1u128 << u32::from(family.bits() - length);
        held = held.saturating_add(size.saturating_mul(blocks.into()));
        let prefix = rooms_prefix(family, length);
        let from = Prefix::new(pool.cidr.first(), length).map(room_key).unwrap_or_default();
        let mut seen = 0;
        session.walk(&prefix, Some(&from), false, &mut |_, entry| {
            if !room_of_key(&entry.key).is_some_and(|block| pool.cidr.covers(&block)) {
                return Ok(false);
            }
            held = held.saturating_sub(Room::parse(&entry.value).map_or(0, |room| room.free).into());
            seen += 1;
            Ok(seen < ROOMS_COUNTED_MAX)
        })?;
    }
    let in_use = Count::from(held);
    Ok((in_use, capacity.checked_sub(in_use).unwrap_or(Count::ZERO)))
}

/// `Workload`, `Tunnel` or `LoadBalancer`.
pub(super) fn use_text(purpose: Use) -> &'static str {
    match purpose {
        Use::Workload => "Workload",
        Use::Tunnel => "Tunnel",
        Use::LoadBalancer => "LoadBalancer",
    }
}

/// Why a pool was passed over, in words.
fn why_text(why: &PassOver) -> String {
    match why {
        PassOver::Disabled => "it is disabled".into(),
        PassOver::Deleting => "it is being deleted".into(),
        PassOver::NotAllocatable(reason) => format!("it is not allocatable ({reason})"),
        PassOver::OtherFamily => "it is of the other family".into(),
        PassOver::NotRequested => "it was not requested".into(),
        PassOver::Manual => "its assignmentMode is Manual and it was not requested".into(),
        PassOver::NodeSelector(selector) => format!("its nodeSelector {selector} does not match the node"),
        PassOver::NamespaceSelector(selector) => {
            format!("its namespaceSelector {selector} does not match the namespace")
        }
        PassOver::NotForThisUse(purpose) => format!("its allowedUses do not have {}", use_text(*purpose)),
        PassOver::BlockTooSmall(length) => {
            format!("its blocks have no address beside those that the host keeps: /{length} would do")
        }
        PassOver::Full => "it is full".into(),
        PassOver::Reserved => "what is free is reserved".into(),
        PassOver::StrictAffinity => {
            "its blocks are all claimed, and strict affinity forbids to borrow from other nodes".into()
        }
        PassOver::BlockLimit(limit) => format!("the node has as many blocks as it may: {limit}"),
        PassOver::AddressLimit(limit) => format!("the node has as many addresses as it may: {limit}"),
        PassOver::NoAutoAllocate => "autoAllocateBlocks is false, and the node's blocks are full".into(),
        PassOver::RefusedBy(policy) => format!("the policy {policy} refused it"),
        PassOver::SearchLimit => "its free space is too scattered to be found in one call".into(),
    }
}

fn remedy(pool: &Pool, why: &PassOver) -> String {
    let name = &pool.name;
    match why {
        PassOver::Disabled => format!("set disabled: false in the pool {name}"),
        PassOver::Deleting => "use another pool".into(),
        PassOver::NotAllocatable(_) => format!("see the conditions in the status of the pool {name}"),
        PassOver::OtherFamily | PassOver::NotRequested => format!("request the pool {name}"),
        PassOver::Manual => format!("request the pool {name}, or set assignmentMode: Automatic in it"),
        PassOver::NodeSelector(_) => format!("label the node, or change the nodeSelector of the pool {name}"),
        PassOver::NamespaceSelector(_) => {
            format!("label the namespace, or change the namespaceSelector of the pool {name}")
        }
        PassOver::NotForThisUse(purpose) => {
            format!("add {} to allowedUses of the pool {name}", use_text(*purpose))
        }
        PassOver::BlockTooSmall(length) => format!("use a pool with blockSize {length} or less"),
        PassOver::Full => "add a pool, or release addresses that nobody uses".into(),
        PassOver::Reserved => "remove a reservation, or add a pool".into(),
        PassOver::StrictAffinity => {
            "add a pool, release empty blocks of other nodes, or set strictAffinity: false".into()
        }
        PassOver::BlockLimit(_) => "raise maxBlocksPerHost, or use a pool with larger blocks".into(),
        PassOver::AddressLimit(_) => "raise plat-ipam/max-addresses-per-host".into(),
        PassOver::NoAutoAllocate => "claim a block for the node, or set autoAllocateBlocks: true".into(),
        PassOver::RefusedBy(policy) => format!("ask whoever runs the policy {policy}"),
        PassOver::SearchLimit => "try again, or add a pool".into(),
    }
}

/// A refusal in words: each pool, how full it is, why it was passed over, and what to do; a line for each pool.
pub fn text(granted: &Granted) -> String {
    let mut text = granted.failed.as_ref().map(ToString::to_string).unwrap_or_default();
    if granted.passed_over.is_empty() && matches!(granted.failed, Some(Error::NoPool(_))) {
        text.push_str(": there is no pool; create one");
    }
    for report in &granted.passed_over {
        let PoolReport { pool, cidr, capacity, in_use, free, why, remedy } = report;
        let separator = if text.is_empty() { "" } else { "\n" };
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "{separator}pool {pool} ({cidr}): {}; {in_use} of {capacity} addresses in use, {free} free: {remedy}",
            why_text(why)
        );
    }
    text
}

impl std::fmt::Display for PassOver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&why_text(self))
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let holder = |holder: &Option<super::Holder>| holder.as_ref().map_or("nobody".into(), ToString::to_string);
        match self {
            Self::Exhausted { family, wanted, obtained } => {
                write!(f, "assigned {obtained} out of {wanted} requested {} addresses", family_text(*family))
            }
            Self::Taken { handle, owner } => {
                write!(f, "the address is already assigned")?;
                if let Some(handle) = handle {
                    write!(f, " to the handle {handle}")?;
                }
                match (owner.get("namespace"), owner.get("pod")) {
                    (Some(namespace), Some(pod)) => write!(f, " (pod {pod} in namespace {namespace})"),
                    _ => Ok(()),
                }
            }
            Self::NotFound(name) => write!(f, "{name}: not found"),
            Self::NoSuchPool { pool, why } => write!(f, "pool {pool}: {why}"),
            Self::NoPool(family) => write!(f, "no configured {} pool may serve the request", family_text(*family)),
            Self::NotInAPool(address) => write!(f, "the provided IP address {address} is not in a configured pool"),
            Self::NotYours(Some(handle)) => write!(f, "the address is held by another handle: {handle}"),
            Self::NotYours(None) => f.write_str("the address is held without a handle, or cooling"),
            Self::StrictAffinity(other) => {
                write!(f, "strict affinity is on, and the block belongs to {}", holder(other))
            }
            Self::ClaimedBy(other) => write!(f, "the block belongs to {}", holder(other)),
            Self::StaleSequence(stored) => {
                write!(f, "the sequence number differs, it is {stored}: the address or block changed meanwhile")
            }
            Self::OwnerDiffers(why) => f.write_str(why),
            Self::NotEmpty(block) => write!(f, "addresses of the block {block} are held"),
            Self::HandleLimit(max) => write!(f, "the handle may have at most {max} addresses of a family"),
            Self::Overlap(one, other) => write!(f, "the blocks {one} and {other} overlap"),
            Self::Contended => f.write_str("other callers changed the store again and again: try again"),
            Self::Invalid { field, value, remedy } => write!(f, "{field} {value:?}: {remedy}"),
            Self::Unreadable { key, why } => write!(f, "{key} cannot be read: {why}"),
            Self::RefusedByPolicy(policy, why) => write!(f, "the policy {policy} refused the request: {why}"),
            Self::Unavailable(why) | Self::Denied(why) => f.write_str(why),
            Self::Unsettled => {
                f.write_str("the store did not say whether the last change was made: repeat the request")
            }
        }
    }
}

impl std::error::Error for Error {}
