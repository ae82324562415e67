//! The journal: what changed since the index was written, and at the same time the redo records.
//!
//! A header, then records that only are appended. A commit appends a `Redo` before it touches a file and a `Done`
//! (or `Undone`) after it. Each record's checksum covers the one before it, so that nothing left over from an older
//! journal can follow a newer record. The last `Done` carries the stamp: what the network's directory looked like
//! when the last commit ended. Only if it still looks so, the index speaks for it.

use super::held::{Decoder, Encoder, Held};
use plat_core::net::Address;
use std::collections::BTreeMap;

const MAGIC: &[u8; 8] = b"PLATJNL1";
/// One higher with each change of this format; another number is not read but made anew.
const FORMAT: u32 = 1;
/// The records begin here.
pub(super) const HEADER: usize = 256;

const REDO: u8 = 1;
const DONE: u8 = 2;
const UNDONE: u8 = 3;

/// What a directory looks like from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) mtime: (i64, u32),
    pub(super) device: u64,
    pub(super) inode: u64,
}

/// One operation of a commit, with all that is needed to do it again or to undo it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// Makes or replaces the file of an address. `held` is what the index will say, but for the change time, which is
    /// known only afterwards.
    Put { address: Address, in_base: bool, old: Option<Vec<u8>>, held: Held },
    /// Writes or removes a cursor.
    Cursor { set: u32, old: Option<Vec<u8>>, new: Option<Vec<u8>> },
    /// Removes the file of an address.
    Remove { address: Address, in_base: bool, old: Vec<u8> },
    /// Removes a stray.
    RemoveStray { path: String, old: Vec<u8> },
    /// Changes no file: the owner of this address lost something else.
    Touch { address: Address, in_base: bool, held: Held },
}

/// A commit that was begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Redo {
    /// The version that it gives.
    pub(super) version: u64,
    /// The mtime that the directory is to have after it.
    pub(super) mtime: (i64, u32),
    pub(super) operations: Vec<Operation>,
}

/// An address that changed since the index was written.
#[derive(Clone, Debug)]
pub(super) struct Change {
    /// Whether the index has a record of this address.
    pub(super) in_base: bool,
    /// What holds now; none: the address is free.
    pub(super) now: Option<Held>,
}

/// What a journal says.
pub(super) struct Journal {
    /// The index that it continues.
    pub(super) generation: u64,
    /// The boot in which it was begun.
    pub(super) boot: Option<String>,
    pub(super) changes: BTreeMap<Address, Change>,
    /// None: the directory could not be stamped, or must not be trusted.
    pub(super) stamp: Option<Stamp>,
    /// The highest version given.
    pub(super) version_last: u64,
    /// A commit that did not come to its end.
    pub(super) pending: Option<Redo>,
    /// Where the next record goes.
    pub(super) end: u64,
    /// The checksum that the next record continues.
    pub(super) chain: u32,
}

pub(super) fn header(generation: u64, boot: Option<&str>) -> Vec<u8> {
    let mut header = Encoder::default();
    header.bytes.extend(MAGIC);
    header.u32(FORMAT);
    header.u64(generation);
    // A boot id has 36 bytes; one that does not fit is as good as none.
    header.optional(boot.map(str::as_bytes).filter(|boot| boot.len() <= HEADER / 2));
    header.bytes.resize(HEADER - 4, 0);
    let sum = crc32fast::hash(&header.bytes);
    header.u32(sum);
    header.bytes
}

/// Where the records of a journal with this header begin to be chained.
pub(super) fn first_chain(header: &[u8]) -> u32 {
    header.last_chunk().map_or(0, |sum| u32::from_le_bytes(*sum))
}

fn framed(payload: &[u8], chain: u32) -> (Vec<u8>, u32) {
    let sum = chained(payload, chain);
    let mut record = Vec::with_capacity(payload.len() + 8);
    record.extend((payload.len() as u32).to_le_bytes());
    record.extend(sum.to_le_bytes());
    record.extend(payload);
    (record, sum)
}

fn chained(payload: &[u8], chain: u32) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&chain.to_le_bytes());
    hasher.update(&(payload.len() as u32).to_le_bytes());
    hasher.update(payload);
    hasher.finalize()
}

/// The bytes of a `Redo`, and the chain after it.
pub(super) fn redo(redo: &Redo, chain: u32) -> (Vec<u8>, u32) {
    let mut out = Encoder::default();
    out.u8(REDO);
    out.u64(redo.version);
    out.time(redo.mtime);
    out.u32(redo.operations.len() as u32);
    for operation in &redo.operations {
        match operation {
            Operation::Put { address, in_base, old, held } => {
                out.u8(1);
                out.address(*address);
                out.u8(u8::from(*in_base));
                out.optional(old.as_deref());
                out.held(held);
            }
            Operation::Cursor { set, old, new } => {
                out.u8(2);
                out.u32(*set);
                out.optional(old.as_deref());
                out.optional(new.as_deref());
            }
            Operation::Remove { address, in_base, old } => {
                out.u8(3);
                out.address(*address);
                out.u8(u8::from(*in_base));
                out.text(old);
            }
            Operation::RemoveStray { path, old } => {
                out.u8(4);
                out.text(path.as_bytes());
                out.text(old);
            }
            Operation::Touch { address, in_base, held } => {
                out.u8(5);
                out.address(*address);
                out.u8(u8::from(*in_base));
                out.held(held);
            }
        }
    }
    framed(&out.bytes, chain)
}

/// The bytes of a `Done` (or `Undone`), and the chain after it. `ctimes` are those of the commit's puts, in order.
pub(super) fn done(
    undone: bool,
    version: u64,
    stamp: Option<&Stamp>,
    ctimes: &[(i64, u32)],
    chain: u32,
) -> (Vec<u8>, u32) {
    let mut out = Encoder::default();
    out.u8(if undone { UNDONE } else { DONE });
    out.u64(version);
    out.u8(u8::from(stamp.is_some()));
    if let Some(stamp) = stamp {
        out.time(stamp.mtime);
        out.u64(stamp.device);
        out.u64(stamp.inode);
    }
    out.u32(ctimes.len() as u32);
    for ctime in ctimes {
        out.time(*ctime);
    }
    framed(&out.bytes, chain)
}

enum Parsed {
    Redo(Redo),
    Done { undone: bool, version: u64, stamp: Option<Stamp>, ctimes: Vec<(i64, u32)> },
}

fn parse_record(payload: &[u8]) -> Option<Parsed> {
    let mut parts = Decoder { bytes: payload };
    let kind = parts.u8()?;
    let version = parts.u64()?;
    let parsed = match kind {
        REDO => {
            let mtime = parts.time()?;
            let count = parts.u32()?;
            let mut operations = Vec::new();
            for _ in 0..count {
                operations.push(match parts.u8()? {
                    1 => Operation::Put {
                        address: parts.address()?,
                        in_base: parts.u8()? == 1,
                        old: parts.optional()?,
                        held: parts.held()?,
                    },
                    2 => Operation::Cursor { set: parts.u32()?, old: parts.optional()?, new: parts.optional()? },
                    3 => {
                        Operation::Remove { address: parts.address()?, in_base: parts.u8()? == 1, old: parts.bytes()? }
                    }
                    4 => Operation::RemoveStray {
                        path: parts.text().filter(|path| super::files::is_inside(path))?,
                        old: parts.bytes()?,
                    },
                    5 => Operation::Touch { address: parts.address()?, in_base: parts.u8()? == 1, held: parts.held()? },
                    _ => return None,
                });
            }
            Parsed::Redo(Redo { version, mtime, operations })
        }
        DONE | UNDONE => {
            let stamp = match parts.u8()? {
                0 => None,
                1 => Some(Stamp { mtime: parts.time()?, device: parts.u64()?, inode: parts.u64()? }),
                _ => return None,
            };
            let count = parts.u32()?;
            let mut ctimes = Vec::new();
            for _ in 0..count {
                ctimes.push(parts.time()?);
            }
            Parsed::Done { undone: kind == UNDONE, version, stamp, ctimes }
        }
        _ => return None,
    };
    parts.bytes.is_empty().then_some(parsed)
}

/// Enters a finished commit into the changes.
pub(super) fn enter(changes: &mut BTreeMap<Address, Change>, operations: Vec<Operation>, ctimes: &[(i64, u32)]) {
    let mut ctimes = ctimes.iter();
    for operation in operations {
        match operation {
            Operation::Put { address, in_base, mut held, .. } => {
                held.ctime = ctimes.next().copied().unwrap_or_default();
                changes.insert(address, Change { in_base, now: Some(held) });
            }
            Operation::Touch { address, in_base, held } => {
                changes.insert(address, Change { in_base, now: Some(held) });
            }
            Operation::Remove { address, in_base, .. } if in_base => {
                changes.insert(address, Change { in_base, now: None });
            }
            Operation::Remove { address, .. } => {
                changes.remove(&address);
            }
            Operation::Cursor { .. } | Operation::RemoveStray { .. } => {}
        }
    }
}

impl Journal {
    /// Reads a journal as far as it is whole. None: not even its header is.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let header = bytes.get(..HEADER)?;
        if header.get(..8)? != MAGIC || crc32fast::hash(header.get(..HEADER - 4)?) != first_chain(header) {
            return None;
        }
        let mut parts = Decoder { bytes: header.get(8..)? };
        if parts.u32()? != FORMAT {
            return None;
        }
        let generation = parts.u64()?;
        let boot = match parts.optional()? {
            Some(boot) => Some(String::from_utf8(boot).ok()?),
            None => None,
        };
        let mut journal = Self {
            generation,
            boot,
            changes: BTreeMap::new(),
            stamp: None,
            version_last: 0,
            pending: None,
            end: HEADER as u64,
            chain: first_chain(header),
        };
        let mut rest = Decoder { bytes: bytes.get(HEADER..)? };
        while let Some((payload, sum)) = next_record(&mut rest, journal.chain) {
            let Some(record) = parse_record(payload) else { break };
            journal.end += payload.len() as u64 + 8;
            journal.chain = sum;
            match record {
                Parsed::Redo(redo) => {
                    journal.version_last = journal.version_last.max(redo.version);
                    journal.pending = Some(redo);
                }
                Parsed::Done { undone, version, stamp, ctimes } => {
                    journal.version_last = journal.version_last.max(version);
                    journal.stamp = stamp;
                    if let Some(redo) = journal.pending.take()
                        && !undone
                    {
                        enter(&mut journal.changes, redo.operations, &ctimes);
                    }
                }
            }
        }
        Some(journal)
    }
}

fn next_record<'a>(rest: &mut Decoder<'a>, chain: u32) -> Option<(&'a [u8], u32)> {
    let length = rest.u32()?;
    let sum = rest.u32()?;
    let payload = rest.take(length as usize)?;
    (length > 0 && chained(payload, chain) == sum).then_some((payload, sum))
}

#[cfg(test)]
mod tests {
    use super::super::held::Body;
    use super::*;

    fn commit(version: u64, address: &str) -> Redo {
        let held = Held {
            body: Body::Owner("c/eth0".into()),
            boot: Some("b".into()),
            version,
            owner_version: 0,
            inode: 7,
            ctime: (0, 0),
        };
        Redo {
            version,
            mtime: (1, 2),
            operations: vec![
                Operation::Put { address: Address::parse(address).unwrap(), in_base: false, old: None, held },
                Operation::Cursor { set: 0, old: None, new: Some(address.into()) },
            ],
        }
    }

    fn sample() -> Vec<u8> {
        let mut bytes = header(5, Some("b"));
        let mut chain = first_chain(&bytes);
        let stamp = Stamp { mtime: (9, 9), device: 1, inode: 2 };
        for (version, address) in [(1, "10.0.0.1"), (2, "10.0.0.2")] {
            let (record, next) = redo(&commit(version, address), chain);
            bytes.extend(record);
            let (record, next) = done(false, version, Some(&stamp), &[(3, 4)], next);
            bytes.extend(record);
            chain = next;
        }
        bytes.extend(redo(&commit(3, "fd00::1"), chain).0);
        bytes
    }

    #[test]
    fn what_is_written_is_read() {
        let bytes = sample();
        let journal = Journal::parse(&bytes).unwrap();
        assert_eq!((journal.generation, journal.boot.as_deref()), (5, Some("b")));
        assert_eq!(journal.end, bytes.len() as u64);
        assert_eq!(journal.pending, Some(commit(3, "fd00::1")));
        assert_eq!(journal.version_last, 3);
        let changed: Vec<String> = journal.changes.keys().map(ToString::to_string).collect();
        assert_eq!(changed, ["10.0.0.1", "10.0.0.2"]);
        let held = journal.changes.values().next().unwrap().now.clone().unwrap();
        assert_eq!((held.inode, held.ctime, held.version), (7, (3, 4), 1));
    }

    #[test]
    fn a_journal_is_read_up_to_the_first_flipped_bit() {
        let bytes = sample();
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            match Journal::parse(&flipped) {
                None => assert!(at < HEADER),
                Some(journal) => assert!(at >= HEADER && journal.end <= at as u64, "byte {at}"),
            }
        }
        for length in 0..bytes.len() {
            if let Some(journal) = Journal::parse(&bytes[..length]) {
                assert!(journal.end <= length as u64);
            }
        }
    }

    #[test]
    fn a_removal_outside_the_directory_ends_the_journal() {
        let with = |path: &str| {
            let mut bytes = header(5, None);
            let operations = vec![Operation::RemoveStray { path: path.into(), old: b"x".to_vec() }];
            let commit = Redo { version: 1, mtime: (1, 2), operations };
            bytes.extend(redo(&commit, first_chain(&bytes)).0);
            Journal::parse(&bytes).unwrap()
        };
        for path in ["", "/etc/passwd", "..", "../x", "a/../../x", "a//x", "a/", "./x", "a/.", "a\0b"] {
            let journal = with(path);
            assert!(journal.pending.is_none() && journal.end == HEADER as u64, "{path:?}");
        }
        for path in ["x", "a/x", "..x", "a/...", ".hidden"] {
            assert!(with(path).pending.is_some(), "{path:?}");
        }
    }
}
