//! An address with a prefix length.

use super::{Address, Family, Range};
use std::fmt;

/// An address and how many of its leading bits name the network: `10.1.2.3/24`.
///
/// Bits beyond the length are kept (as host-local keeps them, to complain about them); [`Prefix::network`] has them
/// cleared. Two prefixes are equal only if those bits are equal too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    base: Address,
    length: u8,
}

/// Why a text is no [`Prefix`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefixError {
    /// It is not "address/length" with a length from 0 to the bits of the address.
    Invalid,
    /// Go's `net.ParseCIDR` reads it, but as an IPv4 address with a mask of 128 bits: the address was written as IPv6
    /// (`::ffff:10.0.0.0/104`). host-local refuses such a subnet (cni.md B.2, steps 2 and 3: `Network 10.0.0.0/31 too
    /// small to allocate from` above 126 bits, with the length less 96, else `IPNet IP and Mask version mismatch`) but
    /// takes the address where it ignores the length, as in a requested address.
    MappedV4 {
        /// The IPv4 address, with its host bits.
        address: Address,
        /// The length as written, 0 to 128.
        length: u8,
    },
}

impl fmt::Display for PrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid => f.write_str("not of the form address/length, such as 10.1.2.0/24"),
            Self::MappedV4 { address, length } => {
                write!(f, "::ffff:{address}/{length} is an IPv4 address written as IPv6")?;
                self.as_v4().map_or(Ok(()), |prefix| write!(f, ": write {prefix}"))
            }
        }
    }
}

impl PrefixError {
    /// What Go prints for an IPv4 address with a mask of 128 bits (and so host-local for the `dst` of a route): the
    /// address with the length less 96, or 0 if it is shorter. None for [`PrefixError::Invalid`].
    pub fn as_v4(&self) -> Option<Prefix> {
        match self {
            Self::Invalid => None,
            Self::MappedV4 { address, length } => {
                Prefix::new(*address, length.saturating_sub(Family::V6.bits() - Family::V4.bits()))
            }
        }
    }
}

impl std::error::Error for PrefixError {}

impl Prefix {
    /// None if the length exceeds the bits of the family.
    pub const fn new(base: Address, length: u8) -> Option<Self> {
        if length <= base.family().bits() { Some(Self { base, length }) } else { None }
    }

    /// All addresses of a family: `0.0.0.0/0` or `::/0`.
    pub const fn everything(family: Family) -> Self {
        Self { base: Address::lowest(family), length: 0 }
    }

    /// Reads what Go's `net.ParseCIDR` reads: an address as [`Address::parse`] takes it, `/`, and the length in decimal
    /// digits without a sign (leading zeros are allowed: `10.0.0.0/024`). Host bits are kept.
    ///
    /// Errors: [`PrefixError::MappedV4`] for an IPv4 address that is written as IPv6, which Go reads and host-local
    /// refuses in its own words; [`PrefixError::Invalid`] for what Go refuses.
    pub fn parse(text: &str) -> Result<Self, PrefixError> {
        let (address, length) = text.split_once('/').ok_or(PrefixError::Invalid)?;
        let base = Address::parse(address).ok_or(PrefixError::Invalid)?;
        let length = parse_length(length).ok_or(PrefixError::Invalid)?;
        if base.family() == Family::V4 && address.contains(':') {
            return if length <= Family::V6.bits() {
                Err(PrefixError::MappedV4 { address: base, length })
            } else {
                Err(PrefixError::Invalid)
            };
        }
        Self::new(base, length).ok_or(PrefixError::Invalid)
    }

    /// The address as given, with its host bits.
    pub const fn base(&self) -> Address {
        self.base
    }

    /// The number of leading bits that name the network: 0 to the bits of the family.
    pub const fn length(&self) -> u8 {
        self.length
    }

    /// The family.
    pub const fn family(&self) -> Family {
        self.base.family()
    }

    /// The bits that vary inside the prefix.
    const fn host_mask(&self) -> u128 {
        // A shift by all 128 bits means that none vary; `checked_shr` refuses it.
        let fixed = (u128::BITS - self.family().bits() as u32) + self.length as u32;
        match u128::MAX.checked_shr(fixed) {
            Some(mask) => mask,
            None => 0,
        }
    }

    /// The lowest address: the base with its host bits cleared.
    pub const fn network(&self) -> Address {
        match Address::new(self.family(), self.base.bits() & !self.host_mask()) {
            Some(address) => address,
            // Clearing bits cannot leave the family.
            None => self.base,
        }
    }

    /// The lowest address; the same as [`Prefix::network`].
    pub const fn first(&self) -> Address {
        self.network()
    }

    /// The highest address: all host bits set (the broadcast address of an IPv4 subnet).
    pub const fn last(&self) -> Address {
        match Address::new(self.family(), self.base.bits() | self.host_mask()) {
            Some(address) => address,
            // The host mask is at most the family's.
            None => self.base,
        }
    }

    /// Whether the base is another address than the network's.
    pub const fn has_host_bits(&self) -> bool {
        self.base.bits() & self.host_mask() != 0
    }

    /// Whether the address is of the same family and shares the leading bits.
    pub fn contains(&self, address: Address) -> bool {
        address.family() == self.family() && (address.bits() ^ self.base.bits()) & !self.host_mask() == 0
    }

    /// Whether every address of `other` lies in this prefix.
    pub fn covers(&self, other: &Self) -> bool {
        self.length <= other.length && self.contains(other.base)
    }

    /// Whether the two share an address; of two prefixes that do, one covers the other.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.covers(other) || other.covers(self)
    }

    /// From [`Prefix::first`] to [`Prefix::last`].
    pub const fn range(&self) -> Range {
        Range::between(self.first(), self.last())
    }
}

/// A prefix length as Go reads it: decimal digits alone, at least one; none also above 255.
fn parse_length(digits: &str) -> Option<u8> {
    // `u8::from_str` alone would take a plus sign.
    if digits.bytes().all(|b| b.is_ascii_digit()) { digits.parse().ok() } else { None }
}

impl fmt::Display for Prefix {
    /// "base/length", host bits included.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.length)
    }
}
