//! Writing: one commit, all of it or nothing, also when the process dies in the middle.
//!
//! The files are made complete before anything is visible; a redo record says what is to happen; then the files are
//! moved into place, cursors written, files removed; then the directory is stamped and the journal says that the
//! commit is done. Whoever takes the lock after a death in between completes the commit or rolls it back.

use super::apply::{Failed, apply, mtime_of, prepare};
use super::files::Seen;
use super::held::{Body, Held, NOT_A_FILE};
use super::image::Draft;
use super::journal::{self, Operation, Redo, enter};
use super::limits::{ATOMIC_WRITES, CONTENT_BYTES_MAX, JOURNAL_BYTES_LATER_MAX, JOURNAL_BYTES_MAX};
use super::query::{misrouted, version};
use super::{Context, Open, Stop, Writer, history};
use crate::structured::{Put, check_batch, check_write};
use crate::trouble::{Trouble, reason};
use plat_core::cni::Level;
use plat_core::net::Address;
use plat_core::network::{Place, encode};
use plat_core::store::{Action, Durability, Error, Event, Expected, Version, Write};
use rustix::fs::{self, Access, AtFlags};
use std::collections::BTreeSet;

/// A write after its key was read and its value checked.
struct Planned<'a> {
    write: &'a Write,
    place: Place,
    put: Option<Put>,
}

impl Open {
    pub(super) fn commit(
        &mut self,
        context: &mut Context,
        batch: &[Write],
        events: &[Event],
        durability: Durability,
    ) -> Result<Vec<Version>, Stop> {
        if batch.is_empty() && events.is_empty() {
            return self.check_writable().map(|()| Vec::new());
        }
        check_batch(batch, ATOMIC_WRITES)?;
        let planned = plan(context, batch)?;
        let number = self.version_last + 1;
        let mut conflicts = Vec::new();
        let mut operations = Vec::new();
        for planned in &planned {
            if let Some(operation) = self.operation(context, planned, number, &mut conflicts)? {
                operations.push(operation);
            }
        }
        if !conflicts.is_empty() {
            return Err(Error::Conflict(conflicts).into());
        }
        self.touch_owners(&mut operations, number)?;
        // What may fail for want of space comes first, what cannot be had back comes last.
        operations.sort_by_key(|operation| match operation {
            Operation::Put { old: None, .. } => 0,
            Operation::Put { .. } => 1,
            Operation::Cursor { .. } => 2,
            Operation::Remove { .. } | Operation::RemoveStray { .. } => 3,
            Operation::Touch { .. } => 4,
        });
        let mut cursors = Vec::new();
        if !operations.is_empty() {
            self.version_last = number;
            let redo = Redo { version: number, mtime: mtime_of(number), operations };
            cursors = self.carry_out(context, redo, durability == Durability::Power)?;
        }
        if let Some(plat) = self.folders.plat.as_ref().filter(|_| !events.is_empty()) {
            let kept = context.sys.step("history").and_then(|()| history::append(plat, events));
            if let Err(errno) = kept {
                let path = format!("{}/history", self.folders.plat_path);
                context.notice(Level::Warning, Trouble::new("write", path, errno).to_string());
            }
        }
        self.commits += 1;
        self.fold(context);
        Ok(planned.iter().map(|planned| planned.version(number, &cursors)).collect())
    }

    /// Whether files could be made, as far as the system says without making one.
    fn check_writable(&self) -> Result<(), Stop> {
        fs::accessat(&self.folders.dir, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)
            .map_err(|errno| Trouble::new("open", self.folders.path.clone(), errno).into())
    }

    /// What a write does to a file, if the key is as expected.
    fn operation(
        &mut self,
        context: &mut Context,
        planned: &Planned<'_>,
        number: u64,
        conflicts: &mut Vec<String>,
    ) -> Result<Option<Operation>, Stop> {
        let Planned { write, place, put } = planned;
        let mut compare = |have: Option<&Version>| {
            let holds = match &write.expected {
                Expected::Absent => have.is_none(),
                Expected::At(version) => have == Some(version),
            };
            if !holds {
                conflicts.push(write.key.clone());
            }
            holds && !matches!(write.action, Action::Check)
        };
        let denied = |why: &str| Stop::from(Error::Denied(format!("{}: {why}", write.key)));
        match place {
            Place::Address(address) => {
                let (found, in_base) = self.verified(*address)?;
                let have = found.as_ref().map(|(held, _)| version(held.version));
                if !compare(have.as_ref()) {
                    return Ok(None);
                }
                let address = *address;
                let old = match found {
                    None => None,
                    Some((held, Seen::File(_, content))) => {
                        if content.len() > CONTENT_BYTES_MAX {
                            return Err(denied("the file is too long to be an address file; remove it by hand"));
                        }
                        Some((held, content))
                    }
                    Some((held, _)) => {
                        let why = match &held.body {
                            Body::Foreign(why) if why != NOT_A_FILE => why.as_str(),
                            _ => NOT_A_FILE,
                        };
                        return Err(denied(&format!(
                            "{why}; remove {} by hand",
                            self.folders.name(&address.to_string())
                        )));
                    }
                };
                if let Some(Put::Record(record)) = put {
                    let boot = record.boot.as_deref().map(Into::into).or_else(|| context.boot.clone());
                    let held = Held {
                        body: Body::of(record),
                        boot,
                        version: number,
                        owner_version: 0,
                        inode: 0,
                        ctime: (0, 0),
                    };
                    let old = old.map(|(_, content)| content);
                    return Ok(Some(Operation::Put { address, in_base, old, held }));
                }
                Ok(old.map(|(_, old)| Operation::Remove { address, in_base, old }))
            }
            Place::Cursor(set) => {
                let found = self.entry(context, place)?;
                if !compare(found.as_ref().map(|(_, version)| version)) {
                    return Ok(None);
                }
                let old = found.map(|(content, _)| content);
                let new = match put {
                    Some(Put::Cursor(value)) => Some(value.clone()),
                    _ => None,
                };
                Ok((old.is_some() || new.is_some()).then_some(Operation::Cursor { set: *set, old, new }))
            }
            Place::Stray(path) => {
                let found = self.strays().get(&encode(path)).cloned();
                if !compare(found.as_ref().map(|stray| &stray.version)) {
                    return Ok(None);
                }
                match found {
                    None => Ok(None),
                    Some(stray) => match stray.content {
                        None => Err(denied("the file cannot be read or is too long; remove it by hand")),
                        Some(old) => Ok(Some(Operation::RemoveStray { path: stray.path, old })),
                    },
                }
            }
            Place::Owner { .. } | Place::Boot { .. } => {
                let found = self.entry(context, place)?;
                compare(found.as_ref().map(|(_, version)| version));
                Ok(None)
            }
        }
    }

    /// The owner of something that goes away gets a new version, kept with what is left to the owner.
    fn touch_owners(&mut self, operations: &mut Vec<Operation>, number: u64) -> Result<(), Stop> {
        let mut losers: BTreeSet<String> = BTreeSet::new();
        let mut touched: BTreeSet<Address> = BTreeSet::new();
        for operation in operations.iter() {
            match operation {
                Operation::Put { address, old, .. } => {
                    touched.insert(*address);
                    losers.extend(old.iter().filter_map(|old| owner_of(old)));
                }
                Operation::Remove { address, old, .. } => {
                    touched.insert(*address);
                    losers.extend(owner_of(old));
                }
                Operation::RemoveStray { old, .. } => losers.extend(owner_of(old)),
                Operation::Cursor { .. } | Operation::Touch { .. } => {}
            }
        }
        for loser in losers {
            let Some(holdings) = self.holdings(&loser)? else { continue };
            for address in holdings.addresses {
                if touched.insert(address)
                    && let (Some(mut held), in_base) = self.held(address)?
                {
                    held.owner_version = number;
                    operations.push(Operation::Touch { address, in_base, held });
                }
            }
        }
        Ok(())
    }

    /// Does the operations. The versions of the cursors that were written.
    fn carry_out(
        &mut self,
        context: &mut Context,
        mut redo: Redo,
        sync: bool,
    ) -> Result<Vec<(u32, Option<Version>)>, Stop> {
        let folders = &self.folders;
        let prepared = prepare(folders, &mut context.sys, &mut redo, sync)?;
        if let Some(writer) = &mut self.journal {
            let (bytes, chain) = journal::redo(&redo, writer.chain);
            if let Err(errno) = append(context, writer, &bytes, chain, sync) {
                // The commit is worth more than the index.
                give_up(&mut self.journal, context, &folders.plat_path, errno);
            }
        }
        let applied = match apply(folders, &mut context.sys, &redo, prepared, sync) {
            Ok(applied) => applied,
            Err(failed) => {
                let stop = match failed {
                    Failed::Taken(address) => Stop::Stale(format!("{address} is taken, and the index did not know")),
                    Failed::Trouble(trouble) => trouble.into(),
                };
                self.finish(context, &redo, true, &[]);
                return Err(stop);
            }
        };
        self.finish(context, &redo, false, &applied.ctimes);
        let strays = redo.operations.iter().filter_map(|operation| match operation {
            Operation::RemoveStray { path, .. } => Some(encode(path)),
            _ => None,
        });
        for stray in strays {
            if let Some(known) = &mut self.strays {
                known.remove(&stray);
            }
        }
        enter(&mut self.changes, redo.operations, &applied.ctimes);
        self.derived = None;
        Ok(applied.cursors)
    }

    /// Stamps the directory and writes that the commit is over. It is over even if that fails; then the next call
    /// makes the index anew.
    fn finish(&mut self, context: &mut Context, redo: &Redo, undone: bool, ctimes: &[(i64, u32)]) {
        if self.journal.is_none() {
            return;
        }
        let stamp = if self.untrusted {
            None
        } else {
            match self.folders.stamp(&mut context.sys, redo.mtime) {
                Ok(stamp) => stamp,
                Err(trouble) => {
                    context.notice(Level::Warning, format!("{trouble}; the next call makes the index anew"));
                    None
                }
            }
        };
        if let Some(writer) = &mut self.journal {
            let (bytes, chain) = journal::done(undone, redo.version, stamp.as_ref(), ctimes, writer.chain);
            if let Err(errno) = append(context, writer, &bytes, chain, false) {
                give_up(&mut self.journal, context, &self.folders.plat_path, errno);
            }
        }
    }

    /// Folds the journal into a new index when it has grown long.
    fn fold(&mut self, context: &mut Context) {
        let length_max = if self.commits == 1 { JOURNAL_BYTES_MAX } else { JOURNAL_BYTES_LATER_MAX };
        if self.journal.as_ref().is_none_or(|writer| writer.end <= length_max) {
            return;
        }
        let folded = (|| {
            let mut draft = Draft::default();
            draft.strays.clone_from(&self.stray_paths);
            draft.reserve(self.image.len() as usize + self.changes.len());
            for place in 0..self.image.len() {
                let raw = self.image.raw(place)?;
                if !self.changes.contains_key(&raw.address) {
                    let held = self.image.held(&raw)?;
                    draft.add(raw.address, &held);
                }
            }
            for (address, change) in &self.changes {
                if let Some(held) = &change.now {
                    draft.add(*address, held);
                }
            }
            Ok::<_, Stop>(draft)
        })();
        let settled = match folded {
            Ok(draft) => {
                self.changes.clear();
                self.derived = None;
                self.settle(context, draft)
            }
            // The commit stands; the next call finds the damage and makes the index anew.
            Err(_) => return,
        };
        if let Err(error) = settled {
            context.notice(Level::Warning, error.to_string());
        }
    }
}

fn append(
    context: &mut Context,
    writer: &mut Writer,
    bytes: &[u8],
    chain: u32,
    sync: bool,
) -> Result<(), rustix::io::Errno> {
    context.sys.append(&writer.file, bytes, writer.end)?;
    if sync {
        fs::fdatasync(&writer.file)?;
    }
    writer.end += bytes.len() as u64;
    writer.chain = chain;
    Ok(())
}

fn give_up(journal: &mut Option<Writer>, context: &mut Context, plat_path: &str, errno: rustix::io::Errno) {
    *journal = None;
    context.notice(
        Level::Warning,
        format!("write {plat_path}/journal: {}; goes on without it, the next call makes the index anew", reason(errno)),
    );
}

fn owner_of(content: &[u8]) -> Option<String> {
    match super::files::body(content) {
        Body::Owner(ending) => Some(ending),
        Body::Foreign(_) => None,
    }
}

fn plan<'a>(context: &Context, batch: &'a [Write]) -> Result<Vec<Planned<'a>>, Error> {
    batch
        .iter()
        .map(|write| {
            if !write.key.starts_with(context.keys.prefix()) {
                return Err(misrouted(context, &write.key));
            }
            let Some(place) = context.keys.place(&write.key) else {
                return Err(Error::Denied(format!("{}: no key of a network has this form", write.key)));
            };
            let put = check_write(&place, write)?;
            Ok(Planned { write, place, put })
        })
        .collect()
}

impl Planned<'_> {
    /// The version that the commit reports for this write.
    fn version(&self, number: u64, cursors: &[(u32, Option<Version>)]) -> Version {
        match (&self.write.action, &self.place) {
            (Action::Delete, _) => Version::default(),
            (Action::Check, _) => match &self.write.expected {
                Expected::Absent => Version::default(),
                Expected::At(version) => version.clone(),
            },
            (Action::Put(_), Place::Cursor(set)) => cursors
                .iter()
                .find(|(written, _)| written == set)
                .and_then(|(_, version)| version.clone())
                .unwrap_or_default(),
            (Action::Put(_), _) => version(number),
        }
    }
}
