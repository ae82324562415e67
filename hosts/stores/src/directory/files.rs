//! The files of a network's directory: what their names mean and what stands in them.

use super::held::{Body, EMPTY, NOT_A_FILE};
use super::limits::CONTENT_BYTES_MAX;
use super::sys::{ctime, mtime, read_up_to};
use crate::trouble::reason;
use plat_core::net::Address;
use plat_core::network::Record;
use plat_core::store::Version;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

/// The file that is locked.
pub(super) const LOCK: &str = "lock";
/// What the names of cursors begin with.
const CURSOR: &str = "last_reserved_ip.";
/// What the names of unfinished files begin with, where they cannot be kept in `.plat`.
pub(super) const UNFINISHED: &str = ".plat-new.";

/// The file of a cursor.
pub(super) fn cursor_name(set: u32) -> String {
    format!("{CURSOR}{set}")
}

/// What a name at the top of the directory means.
pub(super) enum Name {
    Lock,
    Cursor(u32),
    Address(Address),
    Unfinished,
    Other,
}

impl Name {
    pub(super) fn of(name: &str) -> Self {
        if name == LOCK {
            return Self::Lock;
        }
        if name.starts_with(UNFINISHED) {
            return Self::Unfinished;
        }
        if let Some(set) = name.strip_prefix(CURSOR)
            && let Ok(number) = set.parse::<u32>()
            && number.to_string() == set
        {
            return Self::Cursor(number);
        }
        match Address::parse(name) {
            Some(address) if address.to_string() == name => Self::Address(address),
            _ => Self::Other,
        }
    }
}

/// What was found at a name.
pub(super) enum Seen {
    Absent,
    /// A regular file, open, and at most [`CONTENT_BYTES_MAX`] + 1 bytes of it.
    File(OwnedFd, Vec<u8>),
    NotAFile,
    Unreadable(Errno),
}

impl Seen {
    pub(super) fn body(&self) -> Option<Body> {
        match self {
            Self::Absent => None,
            Self::File(_, content) => Some(body(content)),
            Self::NotAFile => Some(Body::Foreign(NOT_A_FILE.to_owned())),
            Self::Unreadable(errno) => Some(Body::Foreign(format!("unreadable: {}", reason(*errno)))),
        }
    }
}

pub(super) fn body(content: &[u8]) -> Body {
    Body::of(&record(content))
}

pub(super) fn record(content: &[u8]) -> Record {
    if content.len() > CONTENT_BYTES_MAX {
        return Record::foreign("unknown content", None);
    }
    Record::from_host_local(content, None)
}

/// Opens and reads a file that is no symbolic link.
pub(super) fn look(folder: impl AsFd, name: &str) -> Seen {
    // Without O_NONBLOCK a fifo would hold the call until somebody writes to it.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    match retry_on_intr(|| fs::openat(folder.as_fd(), name, flags, Mode::empty())) {
        Err(Errno::NOENT) => Seen::Absent,
        Err(Errno::LOOP | Errno::NXIO) => Seen::NotAFile,
        Err(errno) => Seen::Unreadable(errno),
        Ok(file) => match read_up_to(&file, CONTENT_BYTES_MAX + 1) {
            Ok(content) => Seen::File(file, content),
            Err(Errno::ISDIR) => Seen::NotAFile,
            Err(errno) => Seen::Unreadable(errno),
        },
    }
}

/// Whether what is at a name is still what the index says of it.
pub(super) fn still(folder: impl AsFd, address: Address, body: &Body) -> Result<Seen, ()> {
    let name = address.to_string();
    if *body == Body::Foreign(NOT_A_FILE.to_owned()) {
        // Fifos and devices are not opened.
        return match fs::statat(folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile => Ok(Seen::NotAFile),
            _ => Err(()),
        };
    }
    let seen = look(folder, &name);
    if seen.body().as_ref() == Some(body) { Ok(seen) } else { Err(()) }
}

/// The content of a cursor's file and its version; none: there is no such file, or nothing that can be read.
pub(super) fn cursor(folder: impl AsFd, set: u32) -> Result<Option<(Vec<u8>, Version)>, Errno> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = match retry_on_intr(|| fs::openat(folder.as_fd(), cursor_name(set), flags, Mode::empty())) {
        Err(Errno::NOENT) => return Ok(None),
        other => other?,
    };
    let content = read_up_to(&file, CONTENT_BYTES_MAX)?;
    let stat = fs::fstat(&file)?;
    let version = cursor_version(&stat, &content);
    Ok(Some((content, version)))
}

pub(super) fn cursor_version(stat: &fs::Stat, content: &[u8]) -> Version {
    let (seconds, nanoseconds) = mtime(stat);
    let mut version = Vec::with_capacity(28);
    version.extend(stat.st_ino.to_be_bytes());
    version.extend(seconds.to_be_bytes());
    version.extend(nanoseconds.to_be_bytes());
    version.extend(crc32fast::hash(content).to_be_bytes());
    version.extend((content.len() as u32).to_be_bytes());
    Version(version)
}

/// A stray, as it was found.
#[derive(Clone, Debug)]
pub(super) struct Stray {
    /// Relative to the network's directory.
    pub(super) path: String,
    pub(super) record: Record,
    /// The whole content; none: longer than is understood, or unreadable.
    pub(super) content: Option<Vec<u8>>,
    pub(super) version: Version,
}

/// Whether this path of a stray stays below the network's directory. A journal or an index that somebody else wrote may
/// say anything, and what it names is removed and made with our rights.
pub(super) fn is_inside(path: &str) -> bool {
    !path.contains('\0') && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// Reads a file that may be a stray, following symbolic links as the original does. None: it is none.
pub(super) fn stray(folder: impl AsFd, path: &str) -> Option<Stray> {
    let top = if path.contains('/') { Name::Other } else { Name::of(path) };
    if matches!(top, Name::Unfinished) || !is_inside(path) {
        return None;
    }
    // What a link leads to may be a fifo or a device, which is not opened.
    let stat = fs::statat(folder.as_fd(), path, AtFlags::empty()).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return None;
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let read = retry_on_intr(|| fs::openat(folder.as_fd(), path, flags, Mode::empty()))
        .and_then(|file| Ok((fs::fstat(&file)?, read_up_to(&file, CONTENT_BYTES_MAX + 1)?)));
    let (stat, record, content) = match read {
        Err(Errno::NOENT) => return None,
        Err(errno) => (stat, Record::foreign(format!("unreadable: {}", reason(errno)), None), None),
        Ok((stat, content)) => {
            (stat, record(&content), Some(content).filter(|content| content.len() <= CONTENT_BYTES_MAX))
        }
    };
    // The files that host-local makes for other purposes are strays only when somebody put an owner into them. The
    // text of an IPv4 address, which a cursor holds, could also be a container id; that is not believed.
    let named = record.container.is_some()
        && (record.ifname.is_some() || record.container.as_deref().is_some_and(|id| Address::parse(id).is_none()));
    if !named && !matches!(top, Name::Other) {
        return None;
    }
    let (seconds, nanoseconds) = ctime(&stat);
    let mut version = Vec::with_capacity(28);
    version.extend(stat.st_ino.to_be_bytes());
    version.extend(seconds.to_be_bytes());
    version.extend(nanoseconds.to_be_bytes());
    version.extend(crc32fast::hash(content.as_deref().unwrap_or_default()).to_be_bytes());
    Some(Stray { path: path.to_owned(), record, content, version: Version(version) })
}

/// Whether an empty file was left by an earlier boot.
pub(super) fn is_empty_since_before(body: &Body, stat: &fs::Stat, boot: Option<std::time::SystemTime>) -> bool {
    let Some(boot) = boot.and_then(|boot| boot.duration_since(std::time::UNIX_EPOCH).ok()) else { return false };
    let (seconds, nanoseconds) = mtime(stat);
    let boot = (i64::try_from(boot.as_secs()).unwrap_or(i64::MAX), boot.subsec_nanos());
    *body == Body::Foreign(EMPTY.to_owned()) && stat.st_size == 0 && (seconds, nanoseconds) < boot
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_mean_what_host_local_means_by_them() {
        let kind = |name| match Name::of(name) {
            Name::Lock => "lock".to_owned(),
            Name::Cursor(set) => format!("cursor {set}"),
            Name::Address(address) => format!("address {address}"),
            Name::Unfinished => "unfinished".to_owned(),
            Name::Other => "other".to_owned(),
        };
        for (name, wanted) in [
            ("lock", "lock"),
            ("last_reserved_ip.0", "cursor 0"),
            ("last_reserved_ip.12", "cursor 12"),
            ("last_reserved_ip.01", "other"),
            ("last_reserved_ip", "other"),
            ("10.0.0.1", "address 10.0.0.1"),
            ("10.0.0.01", "other"),
            ("fd00::1", "address fd00::1"),
            ("FD00::1", "other"),
            ("fd00:0::1", "other"),
            ("::ffff:10.0.0.1", "other"),
            (".plat-new.0", "unfinished"),
            ("README", "other"),
        ] {
            assert_eq!(kind(name), wanted, "{name}");
        }
    }
}
