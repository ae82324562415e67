//! A set of addresses.

use super::{Address, Count, Family, Range};
use std::iter::Peekable;

/// A set of addresses of both families, kept as ranges in ascending order that neither overlap nor touch.
///
/// So two sets are equal exactly if they hold the same addresses, and every cost depends on the number of ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AddressSet {
    ranges: Vec<Range>,
}

impl AddressSet {
    /// All addresses of all these ranges, which may be in any order and overlap. O(n log n).
    pub fn from_ranges(ranges: impl IntoIterator<Item = Range>) -> Self {
        let mut ranges: Vec<Range> = ranges.into_iter().collect();
        ranges.sort_unstable();
        Self::from_sorted(ranges)
    }

    /// `ranges` ascend by their first address.
    fn from_sorted(ranges: impl IntoIterator<Item = Range>) -> Self {
        let mut merged: Vec<Range> = Vec::new();
        for range in ranges {
            match merged.last_mut() {
                Some(end) if meets(end, &range) => *end = Range::between(end.first(), end.last().max(range.last())),
                _ => merged.push(range),
            }
        }
        Self { ranges: merged }
    }

    /// The ranges, in ascending order, disjoint and not adjacent.
    pub fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    /// Whether there is no address in it.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The addresses of either set. O(n + m).
    pub fn union(&self, other: &Self) -> Self {
        Self::from_sorted(merge(self.ranges.iter().copied().peekable(), other.ranges.iter().copied().peekable()))
    }

    /// The addresses of this set that are not in `other`. O(n + m).
    pub fn difference(&self, other: &Self) -> Self {
        let mut left = Vec::new();
        let mut holes = other.ranges.iter().peekable();
        for range in &self.ranges {
            // What is left of the range above the holes seen so far.
            let mut rest = Some(*range);
            while let (Some(part), Some(hole)) = (rest, holes.peek()) {
                if part.last() < hole.first() {
                    break;
                }
                if hole.last() < part.first() {
                    holes.next();
                    continue;
                }
                if let Some(below) = hole.first().previous().and_then(|last| Range::new(part.first(), last)) {
                    left.push(below);
                }
                rest = hole.last().next().and_then(|first| Range::new(first, part.last()));
                // A hole that reaches beyond the part may cut the next range too.
                if hole.last() > part.last() {
                    break;
                }
                holes.next();
            }
            left.extend(rest);
        }
        Self { ranges: left }
    }

    /// The addresses of both sets. O(n + m).
    pub fn intersection(&self, other: &Self) -> Self {
        Self { ranges: shared(&self.ranges, &other.ranges).collect() }
    }

    /// Whether the two share an address. O(n + m).
    pub fn overlaps(&self, other: &Self) -> bool {
        shared(&self.ranges, &other.ranges).next().is_some()
    }

    /// Whether the address is in the set. O(log n).
    pub fn contains(&self, address: Address) -> bool {
        self.not_below(address).first().is_some_and(|range| range.contains(address))
    }

    /// How many addresses of the family there are. O(n).
    pub fn count(&self, family: Family) -> Count {
        self.of(family)
            .iter()
            // Disjoint ranges of a family cannot sum up to more than 2^128.
            .fold(Count::ZERO, |sum, range| sum.checked_add(range.len()).unwrap_or(Count::MAX))
    }

    /// The address of the family that has `index` addresses of the set below it; none if there are not so many. O(n).
    pub fn nth(&self, family: Family, index: u128) -> Option<Address> {
        let mut left = index;
        for range in self.of(family) {
            match range.len().as_u128() {
                Some(len) if left >= len => left -= len,
                _ => return range.nth(left),
            }
        }
        None
    }

    /// The lowest address of the set that is not below `address` and of its family. O(log n).
    pub fn next_at_or_after(&self, address: Address) -> Option<Address> {
        let range = self.not_below(address).first()?;
        (range.family() == address.family()).then(|| range.first().max(address))
    }

    /// The ranges that do not end below `address`.
    fn not_below(&self, address: Address) -> &[Range] {
        let below = self.ranges.partition_point(|range| range.last() < address);
        self.ranges.get(below..).unwrap_or_default()
    }

    /// The ranges of a family.
    fn of(&self, family: Family) -> &[Range] {
        let start = self.ranges.partition_point(|range| range.family() < family);
        let end = self.ranges.partition_point(|range| range.family() <= family);
        self.ranges.get(start..end).unwrap_or_default()
    }
}

impl FromIterator<Range> for AddressSet {
    fn from_iter<I: IntoIterator<Item = Range>>(ranges: I) -> Self {
        Self::from_ranges(ranges)
    }
}

impl From<Range> for AddressSet {
    fn from(range: Range) -> Self {
        Self { ranges: vec![range] }
    }
}

/// Whether `next`, which does not start below `range`, overlaps it or follows without a gap. The lowest IPv6 address
/// does not follow the highest IPv4 address, which has no next.
fn meets(range: &Range, next: &Range) -> bool {
    next.first() <= range.last() || range.last().next() == Some(next.first())
}

/// Two ascending sequences as one.
fn merge(
    mut a: Peekable<impl Iterator<Item = Range>>,
    mut b: Peekable<impl Iterator<Item = Range>>,
) -> impl Iterator<Item = Range> {
    std::iter::from_fn(move || match (a.peek(), b.peek()) {
        (Some(x), Some(y)) if x <= y => a.next(),
        (_, Some(_)) => b.next(),
        (_, None) => a.next(),
    })
}

/// The intersections of two ascending sequences of disjoint ranges, ascending.
fn shared(a: &[Range], b: &[Range]) -> impl Iterator<Item = Range> {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    std::iter::from_fn(move || {
        while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
            let both = x.intersection(y);
            // The one that ends first meets nothing further.
            if x.last() <= y.last() {
                a.next();
            } else {
                b.next();
            }
            if both.is_some() {
                return both;
            }
        }
        None
    })
}
