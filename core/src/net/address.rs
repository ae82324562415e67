//! One address, as a number and as text.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// 32 bits.
    V4,
    /// 128 bits.
    V6,
}

impl Family {
    /// The width of an address in bits: 32 or 128.
    pub const fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }

    /// The family as keys of a store name it: `v4` or `v6`.
    pub(crate) const fn key_name(self) -> &'static str {
        match self {
            Self::V4 => "v4",
            Self::V6 => "v6",
        }
    }

    /// Undoes [`Self::key_name`].
    pub(crate) fn of_key_name(name: &str) -> Option<Self> {
        [Self::V4, Self::V6].into_iter().find(|family| family.key_name() == name)
    }

    /// The bits of the family's highest address.
    pub(crate) const fn mask(self) -> u128 {
        match self {
            Self::V4 => u32::MAX as u128,
            Self::V6 => u128::MAX,
        }
    }

    /// The number of hexadecimal digits of an address in a store's key: 8 or 32.
    const fn hex_digits(self) -> usize {
        match self {
            Self::V4 => 8,
            Self::V6 => 32,
        }
    }
}

/// An address: a family and its bits, right-aligned (an IPv4 address is below 2^32).
///
/// Ordered by family, then by bits, so that the order of addresses is the order of their keys in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    family: Family,
    bits: u128,
}

impl Address {
    /// None if the bits do not fit the family.
    pub const fn new(family: Family, bits: u128) -> Option<Self> {
        if bits <= family.mask() { Some(Self { family, bits }) } else { None }
    }

    /// The lowest address of a family: `0.0.0.0` or `::`.
    pub const fn lowest(family: Family) -> Self {
        Self { family, bits: 0 }
    }

    /// The highest address of a family: all bits set.
    pub const fn highest(family: Family) -> Self {
        Self { family, bits: family.mask() }
    }

    /// Reads what Go's `net.ParseIP` reads: a dotted quad of decimal numbers without leading zeros, or IPv6 in any of
    /// the forms of RFC 4291 without a zone; no blanks. IPv6 text that stands for an IPv4 address (`::ffff:a.b.c.d`)
    /// becomes that IPv4 address, because Go makes no difference between the two.
    pub fn parse(text: &str) -> Option<Self> {
        text.parse::<IpAddr>().ok().map(Self::from)
    }

    /// The family.
    pub const fn family(self) -> Family {
        self.family
    }

    /// The bits.
    pub const fn bits(self) -> u128 {
        self.bits
    }

    /// The address in the standard library's type, of the same family.
    pub fn to_ip(self) -> IpAddr {
        match (self.family, u32::try_from(self.bits)) {
            (Family::V4, Ok(bits)) => IpAddr::V4(Ipv4Addr::from_bits(bits)),
            _ => IpAddr::V6(Ipv6Addr::from_bits(self.bits)),
        }
    }

    /// The address after this one; none after the highest of the family.
    pub const fn next(self) -> Option<Self> {
        self.checked_add(1)
    }

    /// The address before this one; none before the lowest of the family.
    pub const fn previous(self) -> Option<Self> {
        self.checked_sub(1)
    }

    /// The address `distance` further up; none beyond the family's highest.
    pub const fn checked_add(self, distance: u128) -> Option<Self> {
        match self.bits.checked_add(distance) {
            Some(bits) => Self::new(self.family, bits),
            None => None,
        }
    }

    /// The address `distance` further down; none below the family's lowest.
    pub const fn checked_sub(self, distance: u128) -> Option<Self> {
        match self.bits.checked_sub(distance) {
            Some(bits) => Self::new(self.family, bits),
            None => None,
        }
    }

    /// The bits as 8 (IPv4) or 32 (IPv6) lower-case hexadecimal digits, as they stand in a store's keys
    /// (`docs/formats.md`): the order of the text is the order of the addresses.
    pub fn to_hex(self) -> String {
        format!("{:0width$x}", self.bits, width = self.family.hex_digits())
    }

    /// Reads what [`Address::to_hex`] writes and nothing else: exactly 8 or 32 digits, lower case.
    pub fn from_hex(family: Family, digits: &str) -> Option<Self> {
        let canonical =
            digits.len() == family.hex_digits() && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if !canonical {
            return None;
        }
        u128::from_str_radix(digits, 16).ok().and_then(|bits| Self::new(family, bits))
    }
}

impl From<IpAddr> for Address {
    /// An IPv6 address that stands for an IPv4 address (`::ffff:a.b.c.d`) becomes that IPv4 address.
    fn from(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            IpAddr::V4(ip) => Self { family: Family::V4, bits: ip.to_bits().into() },
            IpAddr::V6(ip) => Self { family: Family::V6, bits: ip.to_bits() },
        }
    }
}

impl fmt::Display for Address {
    /// The text of Go's `net.IP.String`: a dotted quad, or RFC 5952 in lower case.
    ///
    /// An IPv6 address among `::ffff:0:0/96`, which arithmetic can reach though parsing cannot, is printed as the
    /// dotted quad that it stands for, since Go prints it so.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_ip().to_canonical() {
            IpAddr::V4(ip) => ip.fmt(f),
            IpAddr::V6(ip) => ip.fmt(f),
        }
    }
}
