//! Ranges and sets of addresses against bit masks, exhaustively in small worlds, and the laws of sets in the whole.

use plat_core::net::{Address, AddressSet, Count, Family, Range};
use proptest::prelude::*;

/// At most 64 neighbouring addresses, numbered from 0; a set of them is a mask.
struct World {
    name: &'static str,
    addresses: Vec<Address>,
}

impl World {
    /// The lowest or the highest `size` addresses of a family.
    fn at_end(name: &'static str, family: Family, high: bool, size: usize) -> Self {
        let top = if family == Family::V4 { u128::from(u32::MAX) } else { u128::MAX };
        let base = if high { top - (size as u128 - 1) } else { 0 };
        let addresses = (0..size as u128).map(|i| Address::new(family, base + i).expect("in the family")).collect();
        Self { name, addresses }
    }

    /// All the places where something could go wrong, the seam between the families among them.
    fn all(size: usize) -> Vec<Self> {
        let mut seam = Self::at_end("seam", Family::V4, true, size / 2);
        seam.addresses.extend(Self::at_end("", Family::V6, false, size - size / 2).addresses);
        vec![
            Self::at_end("low IPv4", Family::V4, false, size),
            Self::at_end("high IPv4", Family::V4, true, size),
            Self::at_end("low IPv6", Family::V6, false, size),
            Self::at_end("high IPv6", Family::V6, true, size),
            seam,
        ]
    }

    /// Every range of the world and its mask.
    fn ranges(&self) -> Vec<(Range, u64)> {
        let mut ranges = Vec::new();
        for (i, first) in self.addresses.iter().enumerate() {
            for (j, last) in self.addresses.iter().enumerate() {
                let range = Range::new(*first, *last);
                assert_eq!(range.is_some(), i <= j && first.family() == last.family(), "{first} {last}");
                ranges.extend(range.map(|range| (range, (i..=j).fold(0, |mask, bit| mask | (1 << bit)))));
            }
        }
        ranges
    }

    /// The set of a mask, one range for each address, highest first.
    fn set(&self, mask: u64) -> AddressSet {
        AddressSet::from_ranges(self.members(mask).rev().map(Range::from))
    }

    fn members(&self, mask: u64) -> impl DoubleEndedIterator<Item = Address> {
        self.addresses.iter().copied().enumerate().filter(move |(i, _)| (mask >> i) & 1 == 1).map(|(_, a)| a)
    }

    /// Asserts that the set holds just the mask's addresses, in the one form that it may have.
    fn check(&self, set: &AddressSet, mask: u64) {
        let mut runs: Vec<(Address, Address)> = Vec::new();
        for address in self.members(mask) {
            match runs.last_mut() {
                Some((_, last)) if last.next() == Some(address) => *last = address,
                _ => runs.push((address, address)),
            }
        }
        let ranges = set.ranges().iter().map(|range| (range.first(), range.last()));
        assert!(ranges.eq(runs.iter().copied()), "{}: {set:?} instead of {runs:?}", self.name);
        assert_eq!(set.is_empty(), mask == 0);
    }
}

#[test]
fn every_range_of_a_6_bit_world() {
    for world in World::all(64) {
        for (range, mask) in world.ranges() {
            assert_eq!(range.len(), Count::from(u64::from(mask.count_ones())));
            assert_eq!(range.family(), range.first().family());
            let members: Vec<Address> = world.members(mask).collect();
            for index in [0, 1, members.len() / 2, members.len() - 1, members.len(), members.len() + 1] {
                assert_eq!(range.nth(index as u128), members.get(index).copied(), "{range} {index}");
            }
            assert_eq!(range.nth(u128::MAX), None);
            for (i, address) in world.addresses.iter().enumerate() {
                assert_eq!(range.contains(*address), (mask >> i) & 1 == 1, "{range} {address}");
            }
        }
    }
}

#[test]
fn every_pair_of_ranges_of_a_5_bit_world() {
    for world in World::all(32) {
        let ranges = world.ranges();
        for (a, a_mask) in &ranges {
            for (b, b_mask) in &ranges {
                let both = a_mask & b_mask;
                assert_eq!(a.overlaps(b), both != 0, "{a} {b}");
                let ends = (both != 0).then(|| {
                    let (low, high) = (both.trailing_zeros(), 63 - both.leading_zeros());
                    (world.addresses[low as usize], world.addresses[high as usize])
                });
                assert_eq!(a.intersection(b).map(|range| (range.first(), range.last())), ends, "{a} {b}");
            }
        }
    }
}

#[test]
fn every_pair_of_sets_of_a_3_bit_world() {
    for world in World::all(8) {
        let sets: Vec<AddressSet> = (0..=255).map(|mask| world.set(mask)).collect();
        for (a_mask, a) in (0u64..).zip(&sets) {
            for (b_mask, b) in (0u64..).zip(&sets) {
                world.check(&a.union(b), a_mask | b_mask);
                world.check(&a.intersection(b), a_mask & b_mask);
                world.check(&a.difference(b), a_mask & !b_mask);
                assert_eq!(a.overlaps(b), a_mask & b_mask != 0);
                assert_eq!(a == b, a_mask == b_mask);
            }
        }
    }
}

#[test]
fn every_list_of_three_ranges_of_a_3_bit_world() {
    for world in World::all(8) {
        let ranges = world.ranges();
        for (a, a_mask) in &ranges {
            world.check(&AddressSet::from(*a), *a_mask);
            for (b, b_mask) in &ranges {
                for (c, c_mask) in &ranges {
                    world.check(&AddressSet::from_ranges([*a, *b, *c]), a_mask | b_mask | c_mask);
                }
            }
        }
    }
}

/// Asks a set everything that can be asked about single addresses.
fn check_queries(world: &World, mask: u64) {
    let set = world.set(mask);
    world.check(&set, mask);
    for family in [Family::V4, Family::V6] {
        let members: Vec<Address> = world.members(mask).filter(|a| a.family() == family).collect();
        assert_eq!(set.count(family), Count::from(members.len() as u128));
        for index in 0..=members.len() {
            assert_eq!(set.nth(family, index as u128), members.get(index).copied(), "{mask:b} {family:?} {index}");
        }
        assert_eq!(set.nth(family, u128::MAX), None);
    }
    let outside = [world.addresses[0].previous(), world.addresses[world.addresses.len() - 1].next()];
    for address in outside.into_iter().flatten().chain(world.addresses.iter().copied()) {
        assert_eq!(set.contains(address), world.members(mask).any(|a| a == address), "{mask:b} {address}");
        let next = world.members(mask).find(|a| a.family() == address.family() && *a >= address);
        assert_eq!(set.next_at_or_after(address), next, "{mask:b} {address}");
    }
}

#[test]
fn questions_to_every_set_of_a_3_bit_world() {
    for world in World::all(8) {
        (0..=255).for_each(|mask| check_queries(&world, mask));
    }
}

/// Masks of 64 bits in runs, so that sets have from none to about ten ranges.
fn mask() -> impl Strategy<Value = u64> {
    prop::collection::vec((0u32..64, 0u32..64), 0..10)
        .prop_map(|runs| runs.iter().fold(0, |mask, (start, short)| mask ^ ((u64::MAX >> short) << start)))
}

/// Any range, with ends that are often near those of the family or near each other.
fn range() -> impl Strategy<Value = Range> {
    let ends = |family: Family| {
        let top = Address::highest(family).bits();
        let bits = prop_oneof![0u128..6, (0u128..6).prop_map(move |below| top - below), 0..=top];
        prop::array::uniform2(bits).prop_map(move |ends| ends.map(|bits| Address::new(family, bits).expect("fits")))
    };
    prop_oneof![ends(Family::V4), ends(Family::V6)]
        .prop_map(|[a, b]| Range::new(a.min(b), a.max(b)).expect("ordered and of one family"))
}

fn set() -> impl Strategy<Value = AddressSet> {
    prop::collection::vec(range(), 0..6).prop_map(AddressSet::from_ranges)
}

/// The whole of both families.
fn everything() -> AddressSet {
    [Family::V4, Family::V6]
        .into_iter()
        .map(|family| Range::new(Address::lowest(family), Address::highest(family)).expect("ordered"))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn sets_of_a_6_bit_world(a in mask(), b in mask()) {
        for world in World::all(64) {
            check_queries(&world, a);
            let (x, y) = (world.set(a), world.set(b));
            world.check(&x.union(&y), a | b);
            world.check(&x.intersection(&y), a & b);
            world.check(&x.difference(&y), a & !b);
            prop_assert_eq!(x.overlaps(&y), a & b != 0);
        }
    }

    #[test]
    fn laws_of_sets(a in set(), b in set(), c in set()) {
        let not = |set: &AddressSet| everything().difference(set);
        prop_assert_eq!(a.union(&b), b.union(&a));
        prop_assert_eq!(a.intersection(&b), b.intersection(&a));
        prop_assert_eq!(a.union(&b.union(&c)), a.union(&b).union(&c));
        prop_assert_eq!(a.intersection(&b.union(&c)), a.intersection(&b).union(&a.intersection(&c)));
        prop_assert_eq!(not(&a.union(&b)), not(&a).intersection(&not(&b)));
        prop_assert_eq!(a.difference(&b), a.intersection(&not(&b)));
        prop_assert_eq!(a.difference(&b).union(&a.intersection(&b)), a.clone());
        prop_assert_eq!(not(&not(&a)), a.clone());
        prop_assert_eq!(a.overlaps(&b), !a.intersection(&b).is_empty());
        prop_assert!(!a.overlaps(&not(&a)));
        for family in [Family::V4, Family::V6] {
            // |a without b| + |b| = |a or b|, in a form whose sums stay within 2^128.
            let apart = a.difference(&b).count(family).checked_add(b.count(family));
            prop_assert_eq!(apart, Some(a.union(&b).count(family)));
        }
    }

    #[test]
    fn nth_and_next_agree(a in set(), large in any::<u128>(), small in 0u128..20) {
        for family in [Family::V4, Family::V6] {
            for index in [large, small, large >> 95] {
                match a.nth(family, index) {
                    Some(address) => {
                        prop_assert!(a.contains(address));
                        prop_assert_eq!(a.next_at_or_after(address), Some(address));
                        let below = address.previous().and_then(|last| Range::new(Address::lowest(family), last));
                        let below = below.map_or(Count::ZERO, |r| a.intersection(&AddressSet::from(r)).count(family));
                        prop_assert_eq!(below, Count::from(index));
                    }
                    None => prop_assert!(a.count(family) <= Count::from(index)),
                }
            }
        }
    }
}

#[test]
fn everything_is_counted() {
    let all = everything();
    assert_eq!(all.ranges().len(), 2);
    assert_eq!(all.count(Family::V4), Count::from(1u64 << 32));
    assert_eq!(all.count(Family::V6), Count::MAX);
    assert_eq!(all.nth(Family::V6, u128::MAX), Some(Address::highest(Family::V6)));
    assert_eq!(all.nth(Family::V4, 1 << 32), None);
    assert_eq!(all.difference(&all), AddressSet::default());
}

#[test]
fn counts() {
    let max = 340_282_366_920_938_463_463_374_607_431_768_211_455u128;
    let count = |number: u128| Count::from(number);
    let sums = [
        (count(0), count(0), Some(count(0))),
        (count(1), count(2), Some(count(3))),
        (count(max), count(0), Some(count(max))),
        (count(max), count(1), Some(Count::MAX)),
        (count(max), count(2), None),
        (count(max), count(max), None),
        (count(1 << 127), count(1 << 127), Some(Count::MAX)),
        (Count::MAX, count(0), Some(Count::MAX)),
        (Count::MAX, count(1), None),
        (Count::MAX, Count::MAX, None),
    ];
    for (a, b, sum) in sums {
        assert_eq!(a.checked_add(b), sum, "{a} + {b}");
        assert_eq!(b.checked_add(a), sum, "{b} + {a}");
        if let Some(sum) = sum {
            assert_eq!(sum.checked_sub(a), Some(b), "{sum} - {a}");
            assert_eq!(sum.checked_sub(b), Some(a), "{sum} - {b}");
        }
    }
    assert_eq!(count(1).checked_sub(count(2)), None);
    assert_eq!(count(max).checked_sub(Count::MAX), None);
    assert!(count(max) < Count::MAX && count(0) < count(1) && Count::ZERO < Count::MAX);
    assert_eq!((count(max).as_u128(), Count::MAX.as_u128()), (Some(max), None));
    assert!(Count::ZERO.is_zero() && !Count::MAX.is_zero() && !count(1).is_zero());
    assert_eq!(Count::MAX.to_string(), "340282366920938463463374607431768211456");
    assert_eq!(count(max).to_string(), "340282366920938463463374607431768211455");
    assert_eq!(format!("{:>5}|{:<3}|", count(254), Count::ZERO), "  254|0  |");
    assert_eq!(format!("{:>41}", Count::MAX), "  340282366920938463463374607431768211456");
}
