//! The history: what the commits meant, one JSON line each, in a file of limited size and its predecessor.

use super::limits::HISTORY_BYTES_MAX;
use super::open_own_file;
use super::sys::write_all;
use plat_core::store::Event;
use rustix::fd::OwnedFd;
use rustix::fs::{self, AtFlags, OFlags};
use rustix::io::Errno;
use serde::Serialize;

const NAME: &str = "history";
const NAME_BEFORE: &str = "history.1";

#[derive(Serialize)]
struct Line<'a> {
    seconds: u64,
    nanoseconds: u32,
    what: &'a str,
    key: &'a str,
    owner: &'a str,
    why: &'a str,
}

/// Appends events.
pub(super) fn append(plat: &OwnedFd, events: &[Event]) -> Result<(), Errno> {
    let mut lines = Vec::new();
    for event in events {
        let line = Line {
            seconds: event.at.seconds,
            nanoseconds: event.at.nanoseconds,
            what: &event.what,
            key: &event.key,
            owner: &event.owner,
            why: &event.why,
        };
        // Plain strings and numbers always serialise.
        if serde_json::to_writer(&mut lines, &line).is_ok() {
            lines.push(b'\n');
        }
    }
    if lines.is_empty() {
        return Ok(());
    }
    let open = || open_own_file(plat, NAME, OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND);
    let mut file = match open() {
        // Not a file of ours: a link, or a fifo. It makes room for one.
        Err(Errno::LOOP | Errno::NXIO) => {
            fs::unlinkat(plat, NAME, AtFlags::empty())?;
            open()?
        }
        other => other?,
    };
    let size = u64::try_from(fs::fstat(&file)?.st_size).unwrap_or(0);
    if size > 0 && size + lines.len() as u64 > HISTORY_BYTES_MAX {
        fs::renameat(plat, NAME, plat, NAME_BEFORE)?;
        file = open()?;
    }
    write_all(&file, &lines)
}
