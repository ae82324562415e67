//! One held address as the index keeps it, and the small encoding that the index and the journal share.

use plat_core::net::{Address, Family};
use plat_core::network::{Place, Record, decode};
use std::sync::Arc;

/// Who holds an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// An owner, as the ending of its key after `owner/`: container, slash, interface name.
    Owner(String),
    /// Nobody that could be named; why.
    Foreign(String),
}

/// The reason in records of things that are no regular file.
pub(super) const NOT_A_FILE: &str = "not a file";
/// The reason in records of files without content.
pub(super) const EMPTY: &str = "empty";

impl Body {
    pub(super) fn of(record: &Record) -> Self {
        match record.owner() {
            Some(owner) => Self::Owner(owner.to_string().split_off("owner/".len())),
            None => Self::Foreign(record.foreign.clone().unwrap_or_default()),
        }
    }

    pub(super) fn record(&self, boot: Option<&str>) -> Record {
        let boot = boot.map(str::to_owned);
        match self {
            Self::Foreign(why) => Record::foreign(why.clone(), boot),
            Self::Owner(ending) => {
                let (container, ifname) = ending.split_once('/').unwrap_or((ending, ""));
                Record {
                    container: Some(container.to_owned()),
                    ifname: decode(ifname).filter(|ifname| !ifname.is_empty()),
                    boot,
                    foreign: None,
                }
            }
        }
    }

    pub(super) fn is_owner(&self, ending: &str) -> bool {
        matches!(self, Self::Owner(owner) if owner == ending)
    }
}

/// The key of an owner without the part before its container id.
pub(super) fn owner_ending(place: &Place) -> String {
    place.to_string().split_off("owner/".len())
}

/// What is known of a held address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) body: Body,
    /// The boot in which it was written, or first seen by us.
    pub(super) boot: Option<Arc<str>>,
    /// The version of the address's key.
    pub(super) version: u64,
    /// At least the version that its owner's key had when the owner last lost something.
    pub(super) owner_version: u64,
    /// With `ctime`: the proof that the file is the one that was recorded.
    pub(super) inode: u64,
    pub(super) ctime: (i64, u32),
}

/// Writes the parts of a journal record.
#[derive(Default)]
pub(super) struct Encoder {
    pub(super) bytes: Vec<u8>,
}

impl Encoder {
    pub(super) fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }
    pub(super) fn u32(&mut self, value: u32) {
        self.bytes.extend(value.to_le_bytes());
    }
    pub(super) fn u64(&mut self, value: u64) {
        self.bytes.extend(value.to_le_bytes());
    }
    pub(super) fn time(&mut self, (seconds, nanoseconds): (i64, u32)) {
        self.bytes.extend(seconds.to_le_bytes());
        self.u32(nanoseconds);
    }
    pub(super) fn text(&mut self, text: &[u8]) {
        self.u32(text.len() as u32);
        self.bytes.extend(text);
    }
    pub(super) fn optional(&mut self, text: Option<&[u8]>) {
        self.u8(u8::from(text.is_some()));
        if let Some(text) = text {
            self.text(text);
        }
    }
    pub(super) fn address(&mut self, address: Address) {
        self.u8(family_byte(address.family()));
        self.bytes.extend(address.bits().to_be_bytes());
    }
    pub(super) fn held(&mut self, held: &Held) {
        let (kind, text) = match &held.body {
            Body::Owner(ending) => (0, ending),
            Body::Foreign(why) => (1, why),
        };
        self.u8(kind);
        self.text(text.as_bytes());
        self.optional(held.boot.as_deref().map(str::as_bytes));
        self.u64(held.version);
        self.u64(held.owner_version);
        self.u64(held.inode);
        self.time(held.ctime);
    }
}

/// Reads the parts of a journal record; none as soon as something does not fit.
pub(super) struct Decoder<'a> {
    pub(super) bytes: &'a [u8],
}

impl<'a> Decoder<'a> {
    pub(super) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        Some(taken)
    }
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }
    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }
    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }
    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
    pub(super) fn time(&mut self) -> Option<(i64, u32)> {
        Some((self.array().map(i64::from_le_bytes)?, self.u32()?))
    }
    pub(super) fn bytes(&mut self) -> Option<Vec<u8>> {
        let length = self.u32()? as usize;
        self.take(length).map(<[u8]>::to_vec)
    }
    pub(super) fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?).ok()
    }
    pub(super) fn optional(&mut self) -> Option<Option<Vec<u8>>> {
        match self.u8()? {
            0 => Some(None),
            1 => self.bytes().map(Some),
            _ => None,
        }
    }
    pub(super) fn address(&mut self) -> Option<Address> {
        let family = family_of(self.u8()?)?;
        Address::new(family, self.array().map(u128::from_be_bytes)?)
    }
    pub(super) fn held(&mut self) -> Option<Held> {
        let kind = self.u8()?;
        let text = self.text()?;
        let boot = match self.optional()? {
            Some(boot) => Some(String::from_utf8(boot).ok()?.into()),
            None => None,
        };
        Some(Held {
            body: match kind {
                0 => Body::Owner(text),
                1 => Body::Foreign(text),
                _ => return None,
            },
            boot,
            version: self.u64()?,
            owner_version: self.u64()?,
            inode: self.u64()?,
            ctime: self.time()?,
        })
    }
}

pub(super) fn family_byte(family: Family) -> u8 {
    match family {
        Family::V4 => 4,
        Family::V6 => 6,
    }
}

pub(super) fn family_of(byte: u8) -> Option<Family> {
    match byte {
        4 => Some(Family::V4),
        6 => Some(Family::V6),
        _ => None,
    }
}
