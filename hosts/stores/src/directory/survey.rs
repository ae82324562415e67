//! One pass over a network's directory, from which the index is made when it cannot be trusted.

use super::apply::Folders;
use super::files::{Name, Seen, is_empty_since_before, look, stray};
use super::held::{Body, Held, NOT_A_FILE};
use super::image::{Draft, Image};
use super::journal::Change;
use super::limits::{DEPTH_MAX, STRAYS_MAX};
use super::sys::{Sys, ctime};
use crate::trouble::Trouble;
use plat_core::cni::Level;
use plat_core::net::{Address, Family};
use rustix::fd::AsFd;
use rustix::fs::{self, AtFlags, Dir, FileType, Mode, OFlags};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

/// What is left of an index that is not trusted: the boots and versions of files that are provably the same.
pub(super) struct Old {
    pub(super) image: Option<Image>,
    pub(super) changes: BTreeMap<Address, Change>,
    /// The next record of the image; addresses are asked for in their order.
    place: u32,
}

impl Old {
    pub(super) fn new(image: Option<Image>, changes: BTreeMap<Address, Change>) -> Self {
        Self { image, changes, place: 0 }
    }

    fn held(&mut self, address: Address) -> Option<Held> {
        if let Some(change) = self.changes.get(&address) {
            return change.now.clone();
        }
        let image = self.image.as_mut()?;
        while self.place < image.len() {
            match image.raw(self.place) {
                Ok(raw) if raw.address == address => return image.held(&raw).ok(),
                Ok(raw) if raw.address > address => return None,
                // A record that was damaged proves nothing.
                _ => self.place += 1,
            }
        }
        None
    }
}

/// What a pass found.
pub(super) struct Survey {
    /// All held addresses and the paths of all strays.
    pub(super) draft: Draft,
    /// There are sub-directories: what is in them changes without a sign at the top.
    pub(super) deep: bool,
    /// What people should know.
    pub(super) notices: Vec<(Level, String)>,
    /// The highest version given.
    pub(super) version_last: u64,
}

/// Makes the pass. Empty files from before `boot_time` are removed.
pub(super) fn survey(
    folders: &Folders,
    sys: &mut Sys,
    old: &mut Old,
    version_last: u64,
    boot: Option<&Arc<str>>,
    boot_time: Option<SystemTime>,
) -> Result<Survey, Trouble> {
    let mut found = Survey { draft: Draft::default(), deep: false, notices: Vec::new(), version_last };
    let read = |errno| Trouble::new("open", folders.path.clone(), errno);
    // Numbers rather than addresses: there may be many, and this is when most is in memory.
    let mut v4: Vec<u32> = Vec::new();
    let mut v6: Vec<u128> = Vec::new();
    let mut irregular: BTreeSet<Address> = BTreeSet::new();
    let mut depths: Vec<(String, usize)> = Vec::new();
    for entry in Dir::read_from(&folders.dir).map_err(read)? {
        let entry = entry.map_err(read)?;
        let Ok(name) = entry.file_name().to_str() else {
            found.notices.push((
                Level::Warning,
                format!("{}: a file name that is not UTF-8 is passed over: {:?}", folders.path, entry.file_name()),
            ));
            continue;
        };
        if name == "." || name == ".." {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => fs::statat(&folders.dir, name, AtFlags::SYMLINK_NOFOLLOW)
                .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)),
            kind => kind,
        };
        let meaning = Name::of(name);
        match meaning {
            Name::Unfinished => {
                // Left by a call that was killed; it was never an address.
                let _ = sys.unlink(&folders.dir, name);
                continue;
            }
            Name::Address(address) => {
                match (address.family(), u32::try_from(address.bits())) {
                    (Family::V4, Ok(bits)) => v4.push(bits),
                    _ => v6.push(address.bits()),
                }
                if kind != FileType::RegularFile {
                    irregular.insert(address);
                }
            }
            _ => {}
        }
        match (kind, meaning) {
            (FileType::Directory, _) => {
                found.deep = true;
                depths.push((name.to_owned(), 1));
            }
            (FileType::RegularFile, Name::Address(_)) => {}
            (FileType::RegularFile, Name::Lock | Name::Cursor(_)) if stray(&folders.dir, name).is_none() => {}
            (FileType::RegularFile | FileType::Symlink, _) => found.add_stray(name),
            _ => {}
        }
    }
    while let Some((path, depth)) = depths.pop() {
        walk(folders, &mut found, &path, depth, &mut depths);
    }
    found.draft.strays.sort_unstable();
    v4.sort_unstable();
    v6.sort_unstable();
    found.draft.reserve(v4.len() + v6.len());
    let addresses = v4
        .into_iter()
        .map(|bits| (Family::V4, u128::from(bits)))
        .chain(v6.into_iter().map(|bits| (Family::V6, bits)))
        .filter_map(|(family, bits)| Address::new(family, bits));
    for address in addresses {
        let regular = !irregular.contains(&address);
        look_at(folders, sys, old, &mut found, address, regular, boot, boot_time);
    }
    Ok(found)
}

impl Survey {
    fn add_stray(&mut self, path: &str) {
        if self.draft.strays.len() < STRAYS_MAX {
            self.draft.strays.push(path.to_owned());
        } else if self.draft.strays.len() == STRAYS_MAX {
            self.notices.push((
                Level::Warning,
                format!("more than {STRAYS_MAX} files that are no addresses; the rest is passed over, from {path} on"),
            ));
            self.draft.strays.push(path.to_owned());
        }
    }
}

fn walk(folders: &Folders, found: &mut Survey, path: &str, depth: usize, depths: &mut Vec<(String, usize)>) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let listed = fs::openat(&folders.dir, path, flags, Mode::empty()).and_then(|folder| Dir::read_from(folder.as_fd()));
    let listing = match listed {
        Ok(listing) => listing,
        Err(errno) => {
            found.notices.push((Level::Warning, Trouble::new("open", folders.name(path), errno).to_string()));
            return;
        }
    };
    for entry in listing.flatten() {
        let Ok(name) = entry.file_name().to_str() else { continue };
        if name == "." || name == ".." {
            continue;
        }
        let below = format!("{path}/{name}");
        let kind = match entry.file_type() {
            FileType::Unknown => fs::statat(&folders.dir, &below, AtFlags::SYMLINK_NOFOLLOW)
                .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)),
            kind => kind,
        };
        match kind {
            FileType::Directory if depth < DEPTH_MAX && depths.len() < STRAYS_MAX => depths.push((below, depth + 1)),
            FileType::Directory => found.notices.push((
                Level::Warning,
                format!("{}: passed over, deeper than {DEPTH_MAX} or one of too many", folders.name(&below)),
            )),
            FileType::RegularFile | FileType::Symlink => found.add_stray(&below),
            _ => {}
        }
    }
}

#[expect(clippy::too_many_arguments, reason = "one step of the pass; its state is the pass's")]
fn look_at(
    folders: &Folders,
    sys: &mut Sys,
    old: &mut Old,
    found: &mut Survey,
    address: Address,
    regular: bool,
    boot: Option<&Arc<str>>,
    boot_time: Option<SystemTime>,
) {
    let name = address.to_string();
    let seen = if regular { look(&folders.dir, &name) } else { Seen::NotAFile };
    let stat = match &seen {
        Seen::Absent => return,
        Seen::File(file, _) => fs::fstat(file),
        Seen::NotAFile | Seen::Unreadable(_) => fs::statat(&folders.dir, &name, AtFlags::SYMLINK_NOFOLLOW),
    };
    let body = seen.body().unwrap_or_else(|| Body::Foreign(NOT_A_FILE.to_owned()));
    if let Seen::Unreadable(errno) = &seen {
        let trouble = Trouble::new("open", folders.name(&name), *errno);
        found.notices.push((Level::Warning, format!("{trouble}; the address stays taken")));
    }
    let (inode, ctime) = stat.as_ref().map(|stat| (stat.st_ino, ctime(stat))).unwrap_or_default();
    if stat.is_ok_and(|stat| is_empty_since_before(&body, &stat, boot_time)) {
        match sys.unlink(&folders.dir, &name) {
            Ok(()) => {
                found.notices.push((
                    Level::Warning,
                    format!(
                        "{}: empty since before the machine booted; removed, the address is free",
                        folders.name(&name)
                    ),
                ));
                return;
            }
            Err(errno) => {
                let trouble = Trouble::new("remove", folders.name(&name), errno);
                found.notices.push((Level::Warning, format!("{trouble}; it is empty, and the address stays taken")));
            }
        }
    }
    let kept =
        old.held(address).filter(|held| inode != 0 && held.inode == inode && held.ctime == ctime && held.body == body);
    let held = kept.unwrap_or_else(|| {
        found.version_last += 1;
        Held { body, boot: boot.cloned(), version: found.version_last, owner_version: 0, inode, ctime }
    });
    found.draft.add(address, &held);
}
