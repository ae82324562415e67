//! What follows from a write in stores that keep the derived keys beside the others (`docs/formats.md`): the owners and
//! boots of address records, and the indexes of blocks.

use crate::structured::{Put, check_write, split};
use plat_core::network::{Keys, Place, Record, holdings_to_bytes, parse_holdings};
use plat_core::objects::keys::{block_of_key, derived, is_derived};
use plat_core::store::{Action, Error, Write};

/// Keys and values, without versions and without what follows from them.
pub(crate) trait Kept {
    /// The value of a key.
    fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, Error>;
    /// Writes a key.
    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), Error>;
    /// Removes a key; one that does not exist is no error.
    fn remove(&mut self, key: &str) -> Result<(), Error>;
}

/// What a write does besides its key.
#[derive(Debug)]
pub(crate) enum Kind {
    /// Nothing.
    Plain,
    /// A block's indexes follow.
    Block,
    /// Owners and boots follow.
    Place(Keys, Place, Option<Put>),
}

/// What kind of key a write is for.
///
/// # Errors
/// [`Error::Denied`] if such a key is not written, or not this way.
pub(crate) fn check(write: &Write) -> Result<Kind, Error> {
    if is_derived(&write.key) && !matches!(write.action, Action::Check) {
        return Err(Error::Denied(format!("{}: derived from the blocks and not written", write.key)));
    }
    match split(&write.key) {
        Some((keys, place)) => {
            let put = check_write(&place, write)?;
            Ok(Kind::Place(keys, place, put))
        }
        None if write.key.starts_with("network/") => {
            Err(Error::Denied(format!("{}: no key of a network has this form", write.key)))
        }
        None if block_of_key(&write.key).is_some() => Ok(Kind::Block),
        None => Ok(Kind::Plain),
    }
}

/// Makes a write that was checked, and what follows from it.
pub(crate) fn apply(kept: &mut dyn Kept, write: &Write, kind: &Kind) -> Result<(), Error> {
    match (&write.action, kind) {
        (Action::Check, _) => Ok(()),
        (Action::Put(value), Kind::Plain) => kept.put(&write.key, value),
        (Action::Delete, Kind::Plain) => kept.remove(&write.key),
        (Action::Put(value), Kind::Block) => put_block(kept, &write.key, Some(value)),
        (Action::Delete, Kind::Block) => put_block(kept, &write.key, None),
        (Action::Put(_), Kind::Place(keys, place, Some(Put::Record(record)))) => put_record(kept, keys, place, record),
        (Action::Put(_), Kind::Place(_, _, Some(Put::Cursor(value)))) => kept.put(&write.key, value),
        // Strays and derived places are refused by the check.
        (Action::Put(_), Kind::Place(_, _, None)) => Ok(()),
        (Action::Delete, Kind::Place(keys, place @ (Place::Address(_) | Place::Stray(_)), _)) => {
            remove_record(kept, keys, place, None)
        }
        (Action::Delete, Kind::Place(..)) => kept.remove(&write.key),
    }
}

fn put_block(kept: &mut dyn Kept, key: &str, value: Option<&[u8]>) -> Result<(), Error> {
    let new = value.map(|value| derived(key, value)).unwrap_or_default();
    if let Some(old) = kept.get(key)? {
        for (gone, _) in derived(key, &old) {
            if !new.iter().any(|(key, _)| *key == gone) {
                kept.remove(&gone)?;
            }
        }
    }
    for (key, value) in &new {
        kept.put(key, value)?;
    }
    match value {
        Some(value) => kept.put(key, value),
        None => kept.remove(key),
    }
}

/// Puts a record and what follows from it.
pub(crate) fn put_record(kept: &mut dyn Kept, keys: &Keys, place: &Place, record: &Record) -> Result<(), Error> {
    remove_record(kept, keys, place, record.owner().as_ref())?;
    if let Some(owner) = record.owner() {
        hold(kept, keys, &owner, place, true)?;
    }
    if let (Place::Address(address), Some(boot)) = (place, &record.boot) {
        kept.put(&keys.key(&Place::Boot { boot: boot.clone(), address: *address }), &[])?;
    }
    kept.put(&keys.key(place), &record.to_bytes())
}

/// Removes a record and what follows from it, but for the holdings of `heir`, who takes the place over.
fn remove_record(kept: &mut dyn Kept, keys: &Keys, place: &Place, heir: Option<&Place>) -> Result<(), Error> {
    let key = keys.key(place);
    let Some(value) = kept.get(&key)? else { return Ok(()) };
    kept.remove(&key)?;
    let Some(record) = Record::parse(&value) else { return Ok(()) };
    if let Some(owner) = record.owner()
        && Some(&owner) != heir
    {
        hold(kept, keys, &owner, place, false)?;
    }
    if let (Place::Address(address), Some(boot)) = (place, record.boot) {
        kept.remove(&keys.key(&Place::Boot { boot, address: *address }))?;
    }
    Ok(())
}

/// Adds a place to an owner's holdings, or takes it away.
fn hold(kept: &mut dyn Kept, keys: &Keys, owner: &Place, place: &Place, holds: bool) -> Result<(), Error> {
    let key = keys.key(owner);
    let mut places = kept.get(&key)?.and_then(|value| parse_holdings(&value)).unwrap_or_default();
    if places.contains(place) == holds {
        return Ok(());
    }
    places.retain(|held| held != place);
    if holds {
        places.push(place.clone());
    }
    if places.is_empty() { kept.remove(&key) } else { kept.put(&key, &holdings_to_bytes(&places)) }
}
