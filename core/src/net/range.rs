//! A run of addresses.

use super::{Address, Count, Family, Prefix};
use std::fmt;

/// All addresses from a first to a last one, both included, of one family; never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Range {
    first: Address,
    last: Address,
}

impl Range {
    /// None if the families differ or the first address is above the last.
    pub fn new(first: Address, last: Address) -> Option<Self> {
        (first.family() == last.family() && first <= last).then_some(Self { first, last })
    }

    /// For callers that know the two to be in order and of one family.
    pub(super) const fn between(first: Address, last: Address) -> Self {
        Self { first, last }
    }

    /// The lowest address.
    pub const fn first(&self) -> Address {
        self.first
    }

    /// The highest address.
    pub const fn last(&self) -> Address {
        self.last
    }

    /// The family.
    pub const fn family(&self) -> Family {
        self.first.family()
    }

    /// Whether the address is one of these.
    pub fn contains(&self, address: Address) -> bool {
        // Both ends are of one family and addresses are ordered by family first.
        self.first <= address && address <= self.last
    }

    /// Whether the two share an address.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// The addresses that both have; none if there are none.
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        Self::new(self.first.max(other.first), self.last.min(other.last))
    }

    /// How many addresses these are: 1 to 2^128.
    pub const fn len(&self) -> Count {
        Count::one_more_than(self.last.bits().saturating_sub(self.first.bits()))
    }

    /// The address that has `index` addresses of the range below it; none beyond the last.
    pub fn nth(&self, index: u128) -> Option<Address> {
        self.first.checked_add(index).filter(|address| *address <= self.last)
    }
}

impl From<Address> for Range {
    /// The address alone.
    fn from(address: Address) -> Self {
        Self { first: address, last: address }
    }
}

impl From<Prefix> for Range {
    /// All addresses of the prefix.
    fn from(prefix: Prefix) -> Self {
        prefix.range()
    }
}

impl fmt::Display for Range {
    /// "first-last", as host-local prints a range.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}
