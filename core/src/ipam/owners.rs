//! Who holds an address, and the two owner slots of it (`calico.md` 2.12).

use super::desk::Desk;
use super::release::find_block;
use super::session::{Session, Step, Stop, unreadable};
use super::{Attributes, Error, Held, OwnerChange, SlotChange, SlotPrecondition};
use crate::net::Address;
use crate::objects::Handle;
use crate::objects::keys::handle_key;

/// Who holds an address. See [`super::held`].
pub(super) fn held(session: &mut Session<'_, '_>, address: Address) -> Step<Option<Held>> {
    let mut desk = Desk::default();
    let Some(prefix) = find_block(session, &mut desk, address)? else { return Ok(None) };
    let block = desk.blocks.get(&prefix).map(|slot| &slot.block.object);
    Ok(block.and_then(|block| block.held(block.ordinal(address)?)))
}

/// The addresses of a handle. See [`super::addresses_by_handle`].
pub(super) fn addresses_by_handle(session: &mut Session<'_, '_>, id: &str) -> Step<Vec<Held>> {
    let id = Handle::sanitise(id);
    let key = handle_key(id);
    let Some(entry) = session.get(&key)? else { return Ok(Vec::new()) };
    let handle = Handle::parse(&entry.value).map_err(unreadable(&key))?;
    let mut found = Vec::new();
    for prefix in handle.counts().keys().copied() {
        let Some(block) = session.block(prefix)? else { continue };
        let mut ordinals = block.object.ordinals_of_handle(id);
        ordinals.sort_unstable();
        found.extend(ordinals.into_iter().filter_map(|ordinal| block.object.held(ordinal)));
    }
    Ok(found)
}

fn check_slot(name: &str, now: &Attributes, change: &SlotChange, must_be: &SlotPrecondition) -> Result<(), Error> {
    if *change == SlotChange::Keep {
        return Ok(());
    }
    match must_be {
        SlotPrecondition::Any => Ok(()),
        SlotPrecondition::Empty if now.is_empty() => Ok(()),
        SlotPrecondition::Empty => Err(Error::OwnerDiffers(format!("the {name} owner is not empty"))),
        SlotPrecondition::OwnedBy { namespace, pod } => {
            let is = |key: &str, wanted: &String| now.get(key) == Some(wanted);
            if is("namespace", namespace) && is("pod", pod) {
                return Ok(());
            }
            let of = |key: &str| now.get(key).map_or("none", String::as_str);
            Err(Error::OwnerDiffers(format!(
                "the {name} owner is pod {} in namespace {}, not {pod} in {namespace}",
                of("pod"),
                of("namespace")
            )))
        }
    }
}

fn is_so(now: &Attributes, change: &SlotChange) -> bool {
    match change {
        SlotChange::Keep => true,
        SlotChange::Clear => now.is_empty(),
        SlotChange::Set(attributes) => now == attributes,
    }
}

/// Changes the owner slots of an address. See [`super::set_owner_attributes`].
pub(super) fn change(session: &mut Session<'_, '_>, item: &OwnerChange, attempt: u32) -> Step<()> {
    if item.active == SlotChange::Keep && item.alternate == SlotChange::Keep {
        return Ok(());
    }
    let mut desk = Desk::default();
    let not_found = || Stop::Fail(Error::NotFound(item.address.to_string()));
    let prefix = find_block(session, &mut desk, item.address)?.ok_or_else(not_found)?;
    let slot = desk.blocks.get_mut(&prefix).ok_or_else(not_found)?;
    let block = &mut slot.block.object;
    let ordinal = block.ordinal(item.address).ok_or_else(not_found)?;
    let held = block.held(ordinal).ok_or_else(not_found)?;
    if held.cooling_since.is_some() || held.handle.as_deref() != Some(Handle::sanitise(&item.handle)) {
        return Err(Error::NotYours(held.handle).into());
    }
    // An earlier attempt may have been made without being told.
    if attempt > 0 && is_so(&held.active, &item.active) && is_so(&held.alternate, &item.alternate) {
        return Ok(());
    }
    check_slot("active", &held.active, &item.active, &item.active_must_be)?;
    check_slot("alternate", &held.alternate, &item.alternate, &item.alternate_must_be)?;
    block.set_owners(ordinal, &item.active, &item.alternate);
    slot.is_changed = true;
    let event = session.event("owner-changed", super::address_name(item.address), &item.handle);
    desk.events.push(event);
    desk.write(session).map(drop)
}
