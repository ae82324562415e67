//! The objects that one commit is to change, as they will be, and how they are written.
//!
//! Where the store takes several writes at once, blocks and handles change in one commit. Where it does not, the handle
//! is counted up first and the block decides (`calico.md` 2.6): what a crash leaves is a handle that counts too much,
//! never an address that no handle names. A desk is thrown away after any failure: a changed block is never used again.

use super::Error;
use super::Holder;
use super::claim::load_own;
use super::session::{Session, Step, Stop, Versioned, create, remove, replace, unreadable};
use crate::limits::COMMIT_TRIES_MAX;
use crate::net::{Family, Prefix};
use crate::objects::keys::{
    Room, affinities_prefix, affinity_of_key, block_key, handle_key, owned_of_key, owned_prefix,
};
use crate::objects::{Affinity, Block, Handle, State};
use crate::store::{self, Event, Version, Write};
use std::collections::BTreeMap;

/// An ordinal that an item took: what a settled commit must show.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    pub(super) ordinal: u32,
    pub(super) handle: Option<String>,
    pub(super) sequence: u64,
}

/// A block on the desk.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) block: Versioned<Block>,
    pub(super) is_changed: bool,
    pub(super) taken: Vec<Taken>,
    /// It is to be deleted.
    pub(super) is_deleted: bool,
}

/// A handle on the desk.
#[derive(Clone, Debug)]
pub(super) struct HandleSlot {
    /// None: it does not exist, or is taken not to.
    version: Option<Version>,
    pub(super) handle: Handle,
    is_changed: bool,
    /// What this desk added, to be taken back if a block cannot be written.
    added: Vec<(Prefix, u32)>,
    /// What this desk took away.
    removed: Vec<(Prefix, u32)>,
}

/// A block of a holder, as its affinity and the store's index tell.
#[derive(Clone, Debug)]
pub(super) struct Own {
    pub(super) prefix: Prefix,
    pub(super) is_confirmed: bool,
    /// None: the index does not list it under this holder.
    pub(super) room: Option<Room>,
    /// Nothing was left in it when it was looked at.
    pub(super) is_full: bool,
}

#[derive(Debug, Default)]
pub(super) struct Desk {
    pub(super) blocks: BTreeMap<Prefix, Slot>,
    handles: BTreeMap<String, HandleSlot>,
    own: BTreeMap<(Holder, Family), Vec<Own>>,
    pub(super) events: Vec<Event>,
}

/// How a commit ended that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// The desk knows the new versions and can be used further.
    Known,
    /// It was made, but the versions are not known: the desk must be dropped.
    Dropped,
}

impl Desk {
    /// How many writes the changes are.
    pub(super) fn writes(&self) -> usize {
        self.blocks.values().filter(|slot| slot.is_changed).count()
            + self.handles.values().filter(|slot| slot.is_changed).count()
    }

    /// The blocks of a holder, in the order of their keys.
    pub(super) fn own(&mut self, session: &mut Session<'_, '_>, holder: &Holder, family: Family) -> Step<Vec<Own>> {
        let key = (holder.clone(), family);
        if let Some(own) = self.own.get(&key) {
            return Ok(own.clone());
        }
        let mut rooms = BTreeMap::new();
        for entry in session.scan(&owned_prefix(holder, family), session.is_wary)? {
            if let Some((_, prefix)) = owned_of_key(&entry.key) {
                rooms.insert(prefix, Room::parse(&entry.value));
            }
        }
        let mut own = Vec::new();
        for entry in session.scan(&affinities_prefix(holder, family), true)? {
            let Some((_, prefix)) = affinity_of_key(&entry.key) else { continue };
            let affinity = Affinity::parse(&entry.value).map_err(unreadable(&entry.key))?;
            let is_confirmed = affinity.state() == State::Confirmed;
            own.push(Own { prefix, is_confirmed, room: rooms.remove(&prefix).flatten(), is_full: false });
        }
        // Blocks of the holder whose affinity was lost: a claimer that finds its affinity gone makes it again.
        own.extend(rooms.into_iter().map(|(prefix, room)| Own { prefix, is_confirmed: false, room, is_full: false }));
        own.sort_by_key(|own| (own.prefix.length(), own.prefix));
        self.own.insert(key, own.clone());
        Ok(own)
    }

    pub(super) fn remember(&mut self, holder: &Holder, prefix: Prefix) {
        let own = Own { prefix, is_confirmed: true, room: None, is_full: false };
        let known = self.own.entry((holder.clone(), prefix.family())).or_default();
        known.push(own);
        known.sort_by_key(|own| (own.prefix.length(), own.prefix));
    }

    pub(super) fn mark_full(&mut self, holder: &Holder, prefix: Prefix) {
        if let Some(own) = self.own.get_mut(&(holder.clone(), prefix.family()))
            && let Some(own) = own.iter_mut().find(|own| own.prefix == prefix)
        {
            own.is_full = true;
        }
    }

    /// Whether an item has taken from a block or given back to it, and the store does not know yet.
    pub(super) fn is_changed(&self, prefix: Prefix) -> bool {
        self.blocks.get(&prefix).is_some_and(|slot| slot.is_changed)
    }

    pub(super) fn put(&mut self, block: Versioned<Block>) {
        let slot = Slot { is_changed: false, taken: Vec::new(), is_deleted: false, block };
        self.blocks.insert(slot.block.object.prefix(), slot);
    }

    /// A block of the holder, its claim completed if that was left half done. Nothing is written for an `imagined` answer.
    pub(super) fn load_own(
        &mut self,
        session: &mut Session<'_, '_>,
        holder: &Holder,
        own: &Own,
        edges: Option<&super::Edges>,
        imagined: bool,
    ) -> Step<Option<&mut Slot>> {
        if !self.blocks.contains_key(&own.prefix) {
            let found = if imagined {
                let found = session.block(own.prefix)?;
                found.filter(|block| block.object.holder().as_ref() == Some(holder))
            } else {
                load_own(session, holder, own.prefix, own.is_confirmed, edges)?
            };
            let Some(found) = found else { return Ok(None) };
            self.put(found);
        }
        Ok(self.blocks.get_mut(&own.prefix))
    }

    /// A block of whomever.
    pub(super) fn load(&mut self, session: &mut Session<'_, '_>, prefix: Prefix) -> Step<Option<&mut Slot>> {
        if !self.blocks.contains_key(&prefix) {
            let Some(found) = session.block(prefix)? else { return Ok(None) };
            self.put(found);
        }
        Ok(self.blocks.get_mut(&prefix))
    }

    /// A handle. It is read only if `look`; otherwise one that is not on the desk is taken not to exist, and the commit
    /// finds out.
    pub(super) fn handle(&mut self, session: &mut Session<'_, '_>, id: &str, look: bool) -> Step<&mut HandleSlot> {
        if !self.handles.contains_key(id) {
            let key = handle_key(id);
            let found = if look { session.get(&key)? } else { None };
            let (handle, version) = match found {
                None => (Handle::new(id, session.now), None),
                Some(entry) => (Handle::parse(&entry.value).map_err(unreadable(&key))?, Some(entry.version)),
            };
            let slot = HandleSlot { version, handle, is_changed: false, added: Vec::new(), removed: Vec::new() };
            self.handles.insert(id.to_owned(), slot);
        }
        self.handles.get_mut(id).ok_or(Stop::Again)
    }

    /// Whether the store has the handle, or will have.
    pub(super) fn has_handle(&self, id: &str) -> bool {
        self.handles.get(id).is_some_and(|slot| slot.version.is_some() || slot.is_changed)
    }

    /// The block's entry in the batch.
    fn block_write(slot: &mut Slot) -> Write {
        let key = block_key(slot.block.object.prefix());
        if slot.is_deleted {
            return remove(key, &slot.block.version);
        }
        slot.block.object.advance();
        replace(key, &slot.block.version, slot.block.object.to_bytes())
    }

    fn handle_write(id: &str, slot: &HandleSlot) -> Option<Write> {
        let key = handle_key(id);
        match &slot.version {
            Some(version) if slot.handle.is_empty() => Some(remove(key, version)),
            Some(version) => Some(replace(key, version, slot.handle.to_bytes())),
            None if slot.handle.is_empty() => None,
            None => Some(create(key, slot.handle.to_bytes())),
        }
    }

    /// Writes everything, blocks and handles at once where the store can.
    ///
    /// # Errors
    /// [`Stop::Again`] if nothing is written; the desk must be dropped then.
    pub(super) fn write(&mut self, session: &mut Session<'_, '_>) -> Step<Written> {
        if self.writes() == 0 {
            return Ok(Written::Known);
        }
        if session.is_atomic() { self.write_at_once(session) } else { self.write_in_turn(session) }
    }

    fn write_at_once(&mut self, session: &mut Session<'_, '_>) -> Step<Written> {
        let mut batch = Vec::new();
        for slot in self.blocks.values_mut().filter(|slot| slot.is_changed) {
            batch.push(Self::block_write(slot));
        }
        let blocks = batch.len();
        let mut written = Vec::new();
        for (id, slot) in self.handles.iter().filter(|(_, slot)| slot.is_changed) {
            if let Some(write) = Self::handle_write(id, slot) {
                batch.push(write);
                written.push(id.clone());
            }
        }
        let events = std::mem::take(&mut self.events);
        match session.commit(&batch, &events) {
            Ok(versions) => {
                let (of_blocks, of_handles) = versions.split_at(blocks.min(versions.len()));
                let changed = self.blocks.values_mut().filter(|slot| slot.is_changed);
                for (slot, version) in changed.zip(of_blocks) {
                    slot.block.version = version.clone();
                    slot.is_changed = false;
                    slot.taken.clear();
                }
                self.blocks.retain(|_, slot| !slot.is_deleted);
                for (id, version) in written.iter().zip(of_handles) {
                    if let Some(slot) = self.handles.get_mut(id) {
                        slot.version = (!slot.handle.is_empty()).then(|| version.clone());
                        slot.is_changed = false;
                        slot.added.clear();
                    }
                }
                Ok(Written::Known)
            }
            Err(store::Error::UnknownOutcome) => {
                let first = self.blocks.values().find(|slot| !slot.taken.is_empty());
                match first {
                    // Nothing was taken: what was given back can be given back again.
                    None => Err(Stop::Again),
                    Some(slot) if settle(session, slot)? => Ok(Written::Dropped),
                    Some(_) => Err(Stop::Again),
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The handle first, for one item; then its blocks one by one. If one cannot be written, what was is taken back.
    fn write_in_turn(&mut self, session: &mut Session<'_, '_>) -> Step<Written> {
        let takes = self.blocks.values().any(|slot| !slot.taken.is_empty());
        let mut events = std::mem::take(&mut self.events);
        if takes {
            for (id, slot) in self.handles.iter().filter(|(_, slot)| slot.is_changed) {
                if let Some(write) = Self::handle_write(id, slot) {
                    session.write(write, &[])?;
                }
            }
        }
        let mut done: Vec<Slot> = Vec::new();
        let mut stopped = None;
        for slot in self.blocks.values_mut().filter(|slot| slot.is_changed) {
            let write = Self::block_write(slot);
            // The journal goes with the first block: it is a list of what the item meant.
            let journal = std::mem::take(&mut events);
            let written = match session.write(write, &journal) {
                Ok(_) => true,
                Err(store::Error::UnknownOutcome) if slot.taken.is_empty() => {
                    stopped = Some(Stop::Again);
                    false
                }
                Err(store::Error::UnknownOutcome) => match settle(session, slot) {
                    Ok(true) => true,
                    Ok(false) => {
                        stopped = Some(Stop::Again);
                        false
                    }
                    // It may still be made: its handle must go on naming it.
                    Err(stop) => return Err(stop),
                },
                Err(error) => {
                    stopped = Some(error.into());
                    false
                }
            };
            if !written {
                break;
            }
            done.push(slot.clone());
        }
        if let Some(stop) = stopped {
            if takes {
                for slot in &done {
                    give_back(session, slot);
                }
                for (id, slot) in self.handles.iter().filter(|(_, slot)| !slot.added.is_empty()) {
                    count_down(session, id, &slot.added);
                }
            }
            return Err(stop);
        }
        if !takes {
            for (id, slot) in self.handles.iter().filter(|(_, slot)| slot.is_changed) {
                count_down(session, id, &slot.removed);
            }
        }
        Ok(Written::Dropped)
    }
}

impl HandleSlot {
    /// Counts addresses of a block in.
    pub(super) fn add(&mut self, block: Prefix, count: u32) {
        self.handle.add(block, count);
        self.added.push((block, count));
        self.is_changed = true;
    }

    /// Counts addresses of a block out. A handle that does not count them is left as it is.
    pub(super) fn subtract(&mut self, block: Prefix, count: u32) {
        if self.version.is_some() && self.handle.subtract(block, count) {
            self.removed.push((block, count));
            self.is_changed = true;
        }
    }
}

/// Finds out whether a write was made whose outcome was not told; if it was not, that it cannot be made any more.
fn settle(session: &mut Session<'_, '_>, slot: &Slot) -> Step<bool> {
    let prefix = slot.block.object.prefix();
    for _ in 0..COMMIT_TRIES_MAX {
        // A block that is gone will not come back in the version that the write expects.
        let Some(mut found) = session.block(prefix)? else { return Ok(false) };
        if holds_all(&found.object, &slot.taken) {
            return Ok(true);
        }
        found.object.advance();
        match session.write(replace(block_key(prefix), &found.version, found.object.to_bytes()), &[]) {
            Ok(_) => return Ok(false),
            Err(store::Error::Conflict(_) | store::Error::UnknownOutcome) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Error::Unsettled.into())
}

fn holds(block: &Block, taken: &Taken) -> bool {
    block.held(taken.ordinal).is_some_and(|held| {
        held.sequence == taken.sequence
            && held.cooling_since.is_none()
            && held.handle.as_deref() == taken.handle.as_deref().map(Handle::sanitise)
    })
}

fn holds_all(block: &Block, taken: &[Taken]) -> bool {
    taken.iter().all(|taken| holds(block, taken))
}

/// Gives back what was taken from a block and written, as far as it is still so.
fn give_back(session: &mut Session<'_, '_>, slot: &Slot) {
    let prefix = slot.block.object.prefix();
    for _ in 0..COMMIT_TRIES_MAX {
        let Ok(Some(mut found)) = session.block(prefix) else { return };
        let ordinals: Vec<u32> =
            slot.taken.iter().filter(|taken| holds(&found.object, taken)).map(|taken| taken.ordinal).collect();
        if ordinals.is_empty() {
            return;
        }
        // Nobody was told of them: they need not cool down.
        found.object.release(&ordinals, session.now, 0);
        found.object.advance();
        let write = replace(block_key(prefix), &found.version, found.object.to_bytes());
        match session.write(write, &[]) {
            Ok(_) => return,
            Err(store::Error::Conflict(_) | store::Error::UnknownOutcome) => {}
            Err(_) => return,
        }
    }
}

/// Counts a handle down. Counting too little would lose addresses, counting too much does not: in doubt it is left.
pub(super) fn count_down(session: &mut Session<'_, '_>, id: &str, counts: &[(Prefix, u32)]) {
    let key = handle_key(id);
    let mut unknown: Option<Version> = None;
    for _ in 0..COMMIT_TRIES_MAX {
        let Ok(Some(entry)) = session.get(&key) else { return };
        if unknown.as_ref().is_some_and(|version| *version != entry.version) {
            return;
        }
        let Ok(mut handle) = Handle::parse(&entry.value) else { return };
        let mut is_changed = false;
        for (block, count) in counts {
            is_changed |= handle.subtract(*block, *count);
        }
        if !is_changed {
            return;
        }
        let write = if handle.is_empty() {
            remove(key.clone(), &entry.version)
        } else {
            replace(key.clone(), &entry.version, handle.to_bytes())
        };
        match session.write(write, &[]) {
            Err(store::Error::Conflict(_)) => {}
            // Either that write or the next one in the same version is made, not both.
            Err(store::Error::UnknownOutcome) => unknown = Some(entry.version),
            Ok(_) | Err(_) => return,
        }
    }
}
