//! Assigning an address that the caller chooses (`calico.md` 2.8).

use super::assign::{check_handle, check_holder};
use super::claim::claim;
use super::desk::{Desk, Taken};
use super::release::find_block;
use super::search::overlapping;
use super::session::{Session, Step, Stop};
use super::{Error, Grant, Specific};
use crate::net::Prefix;
use crate::objects::Handle;

/// Assigns an address. Reservations, selectors, the assignment mode and the block limit do not matter.
/// See [`super::assign_ip`].
pub(super) fn assign(session: &mut Session<'_, '_>, item: &Specific, attempt: u32) -> Step<Grant> {
    check_holder(&item.holder)?;
    if let Some(handle) = &item.handle {
        check_handle(handle)?;
    }
    let address = item.address;
    let alone = Prefix::new(address, address.family().bits()).ok_or(Stop::Again)?;
    let world = session.world()?;
    let pool = world.enabled_pool_of(alone).ok_or(Error::NotInAPool(address))?;
    if let Some(purpose) = item.purpose
        && !pool.uses.contains(&purpose)
    {
        let why = format!("its allowedUses do not have {}", super::explain::use_text(purpose));
        return Err(Error::NoSuchPool { pool: pool.name.clone(), why }.into());
    }
    let mut desk = Desk::default();
    let prefix = match find_block(session, &mut desk, address)? {
        Some(prefix) => prefix,
        None => {
            let prefix = Prefix::new(address, pool.block_length)
                .and_then(|around| Prefix::new(around.network(), pool.block_length))
                .ok_or(Stop::Again)?;
            if let Some(other) = overlapping(session, prefix)? {
                return Err(Error::Overlap(prefix, other).into());
            }
            let affinity = session.affinity(&item.holder, prefix)?;
            // None: somebody was faster; the next attempt sees whose it is.
            let block = claim(session, &item.holder, prefix, affinity, item.edges.as_ref())?.ok_or(Stop::Again)?;
            desk.put(block);
            prefix
        }
    };
    let grant = |sequence: u64, held_before: bool| Grant {
        address,
        block: prefix,
        pool: pool.name.clone(),
        pool_cidr: pool.cidr,
        sequence,
        held_before,
    };
    let handle = item.handle.as_deref().map(Handle::sanitise);
    let slot = desk.blocks.get_mut(&prefix).ok_or(Stop::Again)?;
    let block = &mut slot.block.object;
    let holder = block.holder();
    if world.configuration.strict_affinity && holder.as_ref() != Some(&item.holder) {
        return Err(Error::StrictAffinity(holder).into());
    }
    let ordinal = block.ordinal(address).ok_or(Stop::Again)?;
    if let Some(held) = block.held(ordinal) {
        let is_own = held.cooling_since.is_none() && handle.is_some() && held.handle.as_deref() == handle;
        if is_own && item.per_handle_max.is_some() {
            return Ok(grant(held.sequence, true));
        }
        return Err(Error::Taken { handle: held.handle, owner: held.active }.into());
    }
    let sequence = block.sequence();
    if !block.take_ordinal(ordinal, item.handle.as_deref(), &item.attributes) {
        return Err(Stop::Again);
    }
    slot.is_changed = true;
    slot.taken.push(Taken { ordinal, handle: item.handle.clone(), sequence });
    if let Some(handle) = handle {
        let look = attempt > 0 || item.per_handle_max.is_some();
        let slot = desk.handle(session, handle, look)?;
        let counts = slot.handle.counts().iter();
        let has: u32 = counts.filter(|(block, _)| block.family() == address.family()).map(|(_, count)| *count).sum();
        if let Some(max) = item.per_handle_max
            && has >= max
        {
            return Err(Error::HandleLimit(max).into());
        }
        slot.add(prefix, 1);
    }
    let owner = item.handle.clone().unwrap_or_else(|| item.holder.to_string());
    let event = session.event("granted", super::address_name(address), &owner);
    desk.events.push(event);
    desk.write(session)?;
    Ok(grant(sequence, false))
}
