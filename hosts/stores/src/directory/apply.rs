//! Doing, undoing and completing the file operations of a commit.

use super::files::{Seen, UNFINISHED, cursor, cursor_name, cursor_version, is_inside, look};
use super::journal::{Operation, Redo, Stamp};
use super::sys::{Sys, ctime};
use crate::trouble::Trouble;
use plat_core::net::Address;
use plat_core::store::Version;
use rustix::fd::OwnedFd;
use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;

/// The mtimes that we give to a directory begin in 1971 and end about five years later: no clock gives them.
const STAMP_SECONDS_FIRST: i64 = 31_536_000;
/// How many commits are told apart by the seconds alone.
const STAMPS: u64 = 1 << 25;
/// File systems may keep times as coarsely as this, in seconds.
const STAMP_GRANULARITY: i64 = 2;
/// Between the stamps of two commits in a row, in seconds: more than a coarse file system blurs.
const STAMP_STEP: i64 = 2 * STAMP_GRANULARITY + 1;

/// The mtime that a directory gets with the commit of this version.
pub(super) fn mtime_of(version: u64) -> (i64, u32) {
    let nanoseconds = version.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 34;
    (STAMP_SECONDS_FIRST + (version % STAMPS) as i64 * STAMP_STEP, (nanoseconds % 1_000_000_000) as u32)
}

/// Whether an mtime is one of ours.
fn is_ours((seconds, _): (i64, u32)) -> bool {
    (STAMP_SECONDS_FIRST - STAMP_GRANULARITY..=STAMP_SECONDS_FIRST + STAMPS as i64 * STAMP_STEP).contains(&seconds)
}

fn alike(a: (i64, u32), b: (i64, u32)) -> bool {
    (a.0 - b.0).abs() <= STAMP_GRANULARITY
}

pub(super) fn stamp_of(stat: &fs::Stat) -> Stamp {
    Stamp { mtime: super::sys::mtime(stat), device: stat.st_dev, inode: stat.st_ino }
}

/// The two directories in which files are made.
pub(super) struct Folders {
    /// The network's directory.
    pub(super) dir: OwnedFd,
    /// Its path.
    pub(super) path: String,
    /// Our own directory beside it; none if it cannot be used.
    pub(super) plat: Option<OwnedFd>,
    /// Our own directory's path.
    pub(super) plat_path: String,
}

/// A file that is complete but not yet under its name.
struct Unfinished {
    name: String,
    in_dir: bool,
}

/// Why an operation was not done.
pub(super) enum Failed {
    /// The address is taken, though it was said to be free.
    Taken(Address),
    /// Something else.
    Trouble(Trouble),
}

impl From<Trouble> for Failed {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble)
    }
}

impl Folders {
    pub(super) fn name(&self, name: &str) -> String {
        format!("{}/{name}", self.path)
    }

    /// Gives the directory an mtime of ours and tells what became of it; none if the file system does not keep it.
    pub(super) fn stamp(&self, sys: &mut Sys, mtime: (i64, u32)) -> Result<Option<Stamp>, Trouble> {
        let trouble = |errno| Trouble::new("set the time of", self.path.clone(), errno);
        sys.step("stamp").map_err(trouble)?;
        let times = fs::Timestamps {
            last_access: fs::Timespec { tv_sec: 0, tv_nsec: fs::UTIME_OMIT },
            last_modification: fs::Timespec { tv_sec: mtime.0, tv_nsec: i64::from(mtime.1) },
        };
        fs::futimens(&self.dir, &times).map_err(trouble)?;
        let stamp = stamp_of(&fs::fstat(&self.dir).map_err(trouble)?);
        Ok((is_ours(stamp.mtime) && alike(stamp.mtime, mtime)).then_some(stamp))
    }

    /// Makes a complete file that is not yet visible as an address. `shown` is the name that an error tells.
    fn prepare(
        &self,
        sys: &mut Sys,
        number: usize,
        shown: &str,
        content: &[u8],
        sync: bool,
    ) -> Result<(Unfinished, u64), Trouble> {
        if let Some(plat) = &self.plat {
            let name = format!("new.{number}");
            if let Ok(stat) = sys.create(plat, &name, content, sync) {
                return Ok((Unfinished { name, in_dir: false }, stat.st_ino));
            }
        }
        self.prepare_in_dir(sys, number, shown, content, sync)
    }

    fn prepare_in_dir(
        &self,
        sys: &mut Sys,
        number: usize,
        shown: &str,
        content: &[u8],
        sync: bool,
    ) -> Result<(Unfinished, u64), Trouble> {
        let name = format!("{UNFINISHED}{number}");
        match sys.create(&self.dir, &name, content, sync) {
            Ok(stat) => Ok((Unfinished { name, in_dir: true }, stat.st_ino)),
            Err((operation, errno)) => Err(Trouble::new(operation, self.name(shown), errno)),
        }
    }

    fn folder(&self, file: &Unfinished) -> &OwnedFd {
        match &self.plat {
            Some(plat) if !file.in_dir => plat,
            _ => &self.dir,
        }
    }

    fn discard(&self, file: &Unfinished) {
        // It is overwritten or removed later if this fails.
        let _ = fs::unlinkat(self.folder(file), &file.name, AtFlags::empty());
    }

    /// Puts a complete file under its name.
    fn place(
        &self,
        sys: &mut Sys,
        number: usize,
        file: &Unfinished,
        address: Address,
        replaces: bool,
        content: &[u8],
    ) -> Result<(), Failed> {
        let name = address.to_string();
        let mut moved = if replaces {
            sys.replace(self.folder(file), &file.name, &self.dir, &name)
        } else {
            sys.publish(self.folder(file), &file.name, &self.dir, &name)
        };
        if moved == Err(Errno::XDEV) {
            // The network's directory is a mount of its own.
            self.discard(file);
            let (file, _) = self.prepare_in_dir(sys, number, &name, content, false)?;
            moved = if replaces {
                sys.replace(&self.dir, &file.name, &self.dir, &name)
            } else {
                sys.publish(&self.dir, &file.name, &self.dir, &name)
            };
            if moved.is_err() {
                self.discard(&file);
            }
        }
        moved.map_err(|errno| match errno {
            Errno::EXIST => Failed::Taken(address),
            errno => Failed::Trouble(Trouble::new("open", self.name(&name), errno)),
        })
    }

    fn unlink(&self, sys: &mut Sys, name: &str) -> Result<(), Trouble> {
        match sys.unlink(&self.dir, name) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(Trouble::new("remove", self.name(name), errno)),
        }
    }

    /// The folder of a stray and its name there, without following links: what lies behind one is not ours.
    fn folder_of<'a>(&self, path: &'a str) -> Result<(OwnedFd, &'a str), Trouble> {
        let trouble = |errno| Trouble::new("open", self.name(path), errno);
        if !is_inside(path) {
            return Err(trouble(Errno::INVAL));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut folder = fs::openat(&self.dir, ".", flags, Mode::empty()).map_err(trouble)?;
        let mut parts = path.split('/').peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                return Ok((folder, part));
            }
            folder = fs::openat(&folder, part, flags, Mode::empty()).map_err(trouble)?;
        }
        Err(trouble(Errno::INVAL))
    }

    fn unlink_stray(&self, sys: &mut Sys, path: &str) -> Result<(), Trouble> {
        let (folder, name) = self.folder_of(path)?;
        match sys.unlink(&folder, name) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(Trouble::new("remove", self.name(path), errno)),
        }
    }

    fn write_cursor(
        &self,
        sys: &mut Sys,
        set: u32,
        content: Option<&[u8]>,
        sync: bool,
    ) -> Result<Option<Version>, Trouble> {
        let name = cursor_name(set);
        match content {
            None => self.unlink(sys, &name).map(|()| None),
            Some(content) => match sys.overwrite(&self.dir, &name, content, sync) {
                Ok(stat) => Ok(Some(cursor_version(&stat, content))),
                Err(errno) => Err(Trouble::new("open", self.name(&name), errno)),
            },
        }
    }
}

/// The content of the file of a put.
fn content_of(held: &super::held::Held) -> Vec<u8> {
    held.body.record(None).to_host_local().unwrap_or_default()
}

/// A commit between its preparation and its end.
pub(super) struct Prepared {
    files: Vec<Option<Unfinished>>,
}

/// What a commit that was done tells.
#[derive(Default)]
pub(super) struct Applied {
    /// The change times of the files put, in order.
    pub(super) ctimes: Vec<(i64, u32)>,
    /// The versions of the cursors written, by their sets.
    pub(super) cursors: Vec<(u32, Option<Version>)>,
}

/// Makes the files of all puts, complete but not in their places: what needs space is done before anything is visible.
pub(super) fn prepare(folders: &Folders, sys: &mut Sys, redo: &mut Redo, sync: bool) -> Result<Prepared, Trouble> {
    let mut prepared = Prepared { files: Vec::new() };
    for (number, operation) in redo.operations.iter_mut().enumerate() {
        let Operation::Put { address, held, .. } = operation else {
            prepared.files.push(None);
            continue;
        };
        match folders.prepare(sys, number, &address.to_string(), &content_of(held), sync) {
            Ok((file, inode)) => {
                held.inode = inode;
                prepared.files.push(Some(file));
            }
            Err(trouble) => {
                prepared.files.iter().flatten().for_each(|file| folders.discard(file));
                return Err(trouble);
            }
        }
    }
    Ok(prepared)
}

/// Does all operations, or undoes what it did and says why.
pub(super) fn apply(
    folders: &Folders,
    sys: &mut Sys,
    redo: &Redo,
    prepared: Prepared,
    sync: bool,
) -> Result<Applied, Failed> {
    let mut applied = Applied::default();
    for (number, (operation, file)) in redo.operations.iter().zip(&prepared.files).enumerate() {
        if let Err(failed) = apply_one(folders, sys, number, operation, file.as_ref(), sync, &mut applied) {
            let mut trouble = None;
            if matches!(operation, Operation::Cursor { .. }) {
                // It may be half written. If even that fails, the error that is told is the first.
                let _ = undo_one(folders, sys, operation);
            }
            for operation in redo.operations[..number].iter().rev() {
                if let Err(also) = undo_one(folders, sys, operation) {
                    trouble.get_or_insert(also);
                }
            }
            prepared.files[number..].iter().flatten().for_each(|file| folders.discard(file));
            return Err(match (failed, trouble) {
                (Failed::Trouble(first), Some(also)) => Failed::Trouble(Trouble {
                    path: format!("{} (and, undoing the commit, {also})", first.path),
                    ..first
                }),
                (Failed::Taken(_), Some(also)) => Failed::Trouble(also),
                (failed, None) => failed,
            });
        }
    }
    if sync {
        fs::fsync(&folders.dir).map_err(|errno| Trouble::new("sync", folders.path.clone(), errno))?;
    }
    Ok(applied)
}

fn apply_one(
    folders: &Folders,
    sys: &mut Sys,
    number: usize,
    operation: &Operation,
    file: Option<&Unfinished>,
    sync: bool,
    applied: &mut Applied,
) -> Result<(), Failed> {
    match operation {
        Operation::Put { address, old, held, .. } => {
            if let Some(file) = file {
                folders.place(sys, number, file, *address, old.is_some(), &content_of(held))?;
            }
            let name = address.to_string();
            let stat = fs::statat(&folders.dir, &name, AtFlags::SYMLINK_NOFOLLOW);
            // Without its change time the record is no proof after a reboot; nothing else depends on it.
            applied.ctimes.push(stat.map(|stat| ctime(&stat)).unwrap_or_default());
            Ok(())
        }
        Operation::Cursor { set, new, .. } => {
            let version = folders.write_cursor(sys, *set, new.as_deref(), sync)?;
            applied.cursors.push((*set, version));
            Ok(())
        }
        Operation::Remove { address, .. } => Ok(folders.unlink(sys, &address.to_string())?),
        Operation::RemoveStray { path, .. } => Ok(folders.unlink_stray(sys, path)?),
        Operation::Touch { .. } => Ok(()),
    }
}

/// Undoes an operation that was done.
fn undo_one(folders: &Folders, sys: &mut Sys, operation: &Operation) -> Result<(), Trouble> {
    match operation {
        Operation::Put { address, old: None, .. } => folders.unlink(sys, &address.to_string()),
        Operation::Put { address, old: Some(old), .. } => restore(folders, sys, *address, old, true),
        Operation::Cursor { set, old, .. } => folders.write_cursor(sys, *set, old.as_deref(), false).map(|_| ()),
        Operation::Remove { address, old, .. } => restore(folders, sys, *address, old, false),
        Operation::RemoveStray { path, old } => {
            let (folder, name) = folders.folder_of(path)?;
            match sys.create(&folder, name, old, false) {
                Ok(_) => Ok(()),
                Err((operation, errno)) => Err(Trouble::new(operation, folders.name(path), errno)),
            }
        }
        Operation::Touch { .. } => Ok(()),
    }
}

fn restore(folders: &Folders, sys: &mut Sys, address: Address, content: &[u8], replaces: bool) -> Result<(), Trouble> {
    let (file, _) = folders.prepare(sys, 0, &address.to_string(), content, false)?;
    match folders.place(sys, 0, &file, address, replaces, content) {
        Ok(()) => Ok(()),
        Err(failed) => {
            folders.discard(&file);
            match failed {
                // Somebody else took it in between; theirs stays.
                Failed::Taken(_) => Ok(()),
                Failed::Trouble(trouble) => Err(trouble),
            }
        }
    }
}

/// How far an operation of an interrupted commit had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// Not begun.
    Not,
    /// Begun, not ended.
    Partly,
    /// Done.
    Done,
    /// What is there now is neither the old state nor the new one: somebody else wrote it.
    Foreign,
    /// It cannot be told and does not matter.
    Either,
}

fn progress(folders: &Folders, operation: &Operation) -> Progress {
    match operation {
        Operation::Put { address, old, held, .. } => match look(&folders.dir, &address.to_string()) {
            Seen::Absent if old.is_none() => Progress::Not,
            Seen::File(_, content) if content == content_of(held) => {
                // The same content before and after: only the inode tells which one it is.
                let same = old.as_deref() == Some(content.as_slice());
                if same { Progress::Either } else { Progress::Done }
            }
            Seen::File(_, content) if old.as_deref() == Some(content.as_slice()) => Progress::Not,
            _ => Progress::Foreign,
        },
        Operation::Cursor { set, old, new } => {
            let now = cursor(&folders.dir, *set).ok().flatten().map(|(content, _)| content);
            if old == new {
                Progress::Either
            } else if now == *new {
                Progress::Done
            } else if now == *old {
                Progress::Not
            } else if is_half_written(now.as_deref(), old.as_deref(), new.as_deref()) {
                Progress::Partly
            } else {
                Progress::Either
            }
        }
        Operation::Remove { address, old, .. } => match look(&folders.dir, &address.to_string()) {
            Seen::File(_, content) if content == *old => Progress::Not,
            _ => Progress::Done,
        },
        Operation::RemoveStray { path, old } => match super::files::stray(&folders.dir, path) {
            Some(stray) if stray.content.as_ref() == Some(old) => Progress::Not,
            _ => Progress::Done,
        },
        Operation::Touch { .. } => Progress::Either,
    }
}

/// Whether a cursor's file is between its old and its new content: made and not written, or written and not cut.
fn is_half_written(now: Option<&[u8]>, old: Option<&[u8]>, new: Option<&[u8]>) -> bool {
    match (now, old, new) {
        (Some([]), None, Some(_)) => true,
        (Some(now), Some(old), Some(new)) => now.len() == old.len() && now.starts_with(new),
        _ => false,
    }
}

/// What became of an interrupted commit.
pub(super) enum Repaired {
    /// Nothing of it had been done, or it was followed by other commits.
    Nothing,
    Completed,
    RolledBack,
}

/// Completes a commit that was interrupted, or rolls it back if somebody else wrote in its way since.
pub(super) fn repair(
    folders: &Folders,
    sys: &mut Sys,
    redo: &Redo,
    stamp: Option<&Stamp>,
    now: &Stamp,
) -> Result<Repaired, Trouble> {
    let known = stamp.is_some_and(|stamp| alike(stamp.mtime, now.mtime)) || alike(redo.mtime, now.mtime);
    if is_ours(now.mtime) && !known {
        // Later commits came to their end; the journal lost them.
        return Ok(Repaired::Nothing);
    }
    let mut progress: Vec<Progress> = redo.operations.iter().map(|operation| progress(folders, operation)).collect();
    // Operations are done in their order. A put that is missing though a later operation was begun was undone by
    // somebody: the original, called with DEL for a container that was never told its address.
    let mut later = false;
    for (operation, progress) in redo.operations.iter().zip(&mut progress).rev() {
        if later && *progress == Progress::Not && matches!(operation, Operation::Put { .. }) {
            *progress = Progress::Foreign;
        }
        later |= matches!(progress, Progress::Done | Progress::Partly);
    }
    if !progress.iter().any(|progress| matches!(progress, Progress::Done | Progress::Partly)) {
        return Ok(Repaired::Nothing);
    }
    if !progress.contains(&Progress::Foreign) {
        for (number, (operation, progress)) in redo.operations.iter().zip(&progress).enumerate() {
            if matches!(progress, Progress::Not | Progress::Partly) {
                complete_one(folders, sys, number, operation)?;
            }
        }
        return Ok(Repaired::Completed);
    }
    for (operation, progress) in redo.operations.iter().zip(&progress).rev() {
        if !matches!(progress, Progress::Done | Progress::Partly) {
            continue;
        }
        if let Operation::Put { address, held, .. } = operation {
            // Only the very file that the commit made is taken away: the same owner may have got the address again.
            let stat = fs::statat(&folders.dir, address.to_string(), AtFlags::SYMLINK_NOFOLLOW);
            if !stat.is_ok_and(|stat| stat.st_ino == held.inode) {
                continue;
            }
        }
        undo_one(folders, sys, operation)?;
    }
    Ok(Repaired::RolledBack)
}

fn complete_one(folders: &Folders, sys: &mut Sys, number: usize, operation: &Operation) -> Result<(), Trouble> {
    match operation {
        Operation::Put { address, old, held, .. } => {
            let content = content_of(held);
            let (file, _) = folders.prepare(sys, number, &address.to_string(), &content, false)?;
            match folders.place(sys, number, &file, *address, old.is_some(), &content) {
                Ok(()) | Err(Failed::Taken(_)) => Ok(()),
                Err(Failed::Trouble(trouble)) => Err(trouble),
            }
        }
        Operation::Cursor { set, new, .. } => folders.write_cursor(sys, *set, new.as_deref(), false).map(|_| ()),
        Operation::Remove { address, .. } => folders.unlink(sys, &address.to_string()),
        Operation::RemoveStray { path, .. } => folders.unlink_stray(sys, path),
        Operation::Touch { .. } => Ok(()),
    }
}
