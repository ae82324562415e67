//! Addresses as bits.

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// 32 bits.
    V4,
    /// 128 bits.
    V6,
}

/// An address: a family and its bits, right-aligned (an IPv4 address is below 2^32).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    family: Family,
    bits: u128,
}

impl Address {
    /// None if the bits do not fit the family.
    pub fn new(family: Family, bits: u128) -> Option<Self> {
        (family == Family::V6 || bits <= u128::from(u32::MAX)).then_some(Self { family, bits })
    }
    /// The family.
    pub fn family(self) -> Family {
        self.family
    }
    /// The bits.
    pub fn bits(self) -> u128 {
        self.bits
    }
}
