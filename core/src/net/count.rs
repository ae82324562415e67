//! How many addresses there are.

use std::fmt;

/// An exact number of addresses, from 0 to 2^128 (all of IPv6), which a `u128` alone cannot hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Count {
    /// Whether this is 2^128; `below` is 0 then. First, so that the derived order is the order of numbers.
    all: bool,
    below: u128,
}

impl Count {
    /// None.
    pub const ZERO: Self = Self { all: false, below: 0 };
    /// 2^128.
    pub const MAX: Self = Self { all: true, below: 0 };

    /// One more than `bits`: how many numbers lie in 0..=`bits`.
    pub(crate) const fn one_more_than(bits: u128) -> Self {
        match bits.checked_add(1) {
            Some(below) => Self { all: false, below },
            None => Self::MAX,
        }
    }

    /// None beyond 2^128.
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match (self.all, other.all) {
            (true, true) => None,
            (true, false) => {
                if other.below == 0 {
                    Some(self)
                } else {
                    None
                }
            }
            (false, true) => {
                if self.below == 0 {
                    Some(other)
                } else {
                    None
                }
            }
            (false, false) => match self.below.overflowing_add(other.below) {
                (below, false) => Some(Self { all: false, below }),
                (0, true) => Some(Self::MAX),
                (_, true) => None,
            },
        }
    }

    /// None below 0.
    pub const fn checked_sub(self, other: Self) -> Option<Self> {
        match (self.all, other.all) {
            (true, true) => Some(Self::ZERO),
            (true, false) => match other.below {
                0 => Some(self),
                // 2^128 - below, without a number that does not fit: below is at least 1.
                below => Some(Self { all: false, below: (u128::MAX - below) + 1 }),
            },
            (false, true) => None,
            (false, false) => match self.below.checked_sub(other.below) {
                Some(below) => Some(Self { all: false, below }),
                None => None,
            },
        }
    }

    /// The number; none if it is 2^128.
    pub const fn as_u128(self) -> Option<u128> {
        if self.all { None } else { Some(self.below) }
    }

    /// Whether it is 0.
    pub const fn is_zero(self) -> bool {
        !self.all && self.below == 0
    }
}

impl From<u128> for Count {
    fn from(number: u128) -> Self {
        Self { all: false, below: number }
    }
}

impl From<u64> for Count {
    fn from(number: u64) -> Self {
        Self { all: false, below: number.into() }
    }
}

impl fmt::Display for Count {
    /// In decimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.all { f.pad_integral(true, "", "340282366920938463463374607431768211456") } else { self.below.fmt(f) }
    }
}
