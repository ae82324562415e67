//! The search for a free address: right for every small bitmap, cheap at any size, and harmless with wrong counts.

use plat_core::net::{Address, AddressSet, Family, Range, first_free};
use proptest::prelude::*;
use std::convert::Infallible;

/// The most counts that a search may make.
const COUNTS_MAX: usize = 257;

fn address(family: Family, bits: u128) -> Address {
    Address::new(family, bits).expect("in the family")
}

fn whole(family: Family) -> Range {
    Range::new(Address::lowest(family), Address::highest(family)).expect("ordered")
}

/// Searches among held addresses; the answer and how many counts it took.
fn search(within: Range, held: &AddressSet) -> (Option<Address>, usize) {
    let mut counts = 0;
    let found = first_free(within, |range| {
        counts += 1;
        assert!(within.contains(range.first()) && within.contains(range.last()), "{range} is not within {within}");
        let count = held.intersection(&AddressSet::from(range)).count(range.family());
        Ok::<_, Infallible>(count.as_u128().unwrap_or(u128::MAX))
    });
    let Ok(found) = found;
    (found, counts)
}

#[test]
fn every_bitmap_of_12_addresses_and_every_part_of_it() {
    for (family, base) in [(Family::V4, 0), (Family::V4, (1 << 32) - 12), (Family::V6, u128::MAX - 11)] {
        for held in 0u32..1 << 12 {
            for first in 0..12 {
                for last in first..12 {
                    let at = |i: u32| address(family, base + u128::from(i));
                    let within = Range::new(at(first), at(last)).expect("ordered");
                    let found = first_free(within, |range| {
                        let (low, high) = (range.first().bits() - base, range.last().bits() - base);
                        let run = (u32::MAX >> (31 - (high - low))) << low;
                        Ok::<_, Infallible>(u128::from((held & run).count_ones()))
                    });
                    let free = (first..=last).find(|i| (held >> i) & 1 == 0).map(at);
                    assert_eq!(found, Ok(free), "{held:012b} {within}");
                }
            }
        }
    }
}

#[test]
fn a_near_gap_costs_few_counts_at_any_size() {
    let all = whole(Family::V6);
    // Behind so many held addresses from the start on: runs of 1, 2, 4, ... until the gap is passed, then as many
    // halvings.
    for held in 0..1000u128 {
        let last = held.checked_sub(1).map(|last| address(Family::V6, last));
        let set: AddressSet = last.and_then(|last| Range::new(all.first(), last)).into_iter().collect();
        let (found, counts) = search(all, &set);
        assert_eq!(found, Some(address(Family::V6, held)));
        assert_eq!(counts, 2 * (held + 1).ilog2() as usize + 1, "{held} held");
    }
}

#[test]
fn a_far_gap_costs_at_most_257_counts() {
    for family in [Family::V4, Family::V6] {
        let all = whole(family);
        let (found, counts) = search(all, &AddressSet::from(all));
        assert_eq!((found, counts), (None, usize::from(family.bits()) + 1));
        let top = all.last().bits();
        for power in 0..family.bits() {
            let power = 1u128 << power;
            for free in [power - 1, power, power.saturating_add(1), top - power] {
                let free = address(family, free.min(top));
                let held = AddressSet::from(all).difference(&AddressSet::from(Range::from(free)));
                let (found, counts) = search(all, &held);
                assert_eq!(found, Some(free));
                assert!(counts <= COUNTS_MAX, "{counts} counts for {free}");
            }
        }
    }
}

#[test]
fn an_error_ends_the_search() {
    let within = Range::new(address(Family::V4, 1), address(Family::V4, 1000)).expect("ordered");
    let mut ends = [0; 2];
    for fails_at in 1..=25 {
        let mut counts = 0;
        let found = first_free(within, |range| {
            counts += 1;
            // All but the last address is held.
            let held = range.len().as_u128().expect("small") - u128::from(range.contains(within.last()));
            if counts == fails_at { Err("down") } else { Ok(held) }
        });
        if counts < fails_at {
            assert_eq!(found, Ok(Some(within.last())));
            ends[0] += 1;
        } else {
            assert_eq!((found, counts), (Err("down"), fails_at));
            ends[1] += 1;
        }
    }
    // 10 runs, the last of them of 489 addresses, and 9 halvings.
    assert_eq!(ends, [6, 19]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1024) })]

    #[test]
    fn wrong_counts_end_within_the_range(
        v6 in any::<bool>(),
        ends in prop::array::uniform2(any::<u128>()),
        answers in prop::collection::vec(prop_oneof![Just(0), Just(u128::MAX), any::<u128>(), 0u128..4], 1..40),
    ) {
        let ends = ends.map(|bits| if v6 { address(Family::V6, bits) } else { address(Family::V4, bits >> 96) });
        let within = Range::new(ends[0].min(ends[1]), ends[0].max(ends[1])).expect("ordered");
        let mut counts = 0;
        let found = first_free(within, |range| {
            assert!(within.contains(range.first()) && within.contains(range.last()), "{range} is not within {within}");
            counts += 1;
            Ok::<_, Infallible>(answers[counts % answers.len()])
        });
        prop_assert!(counts <= COUNTS_MAX);
        let Ok(found) = found;
        prop_assert!(found.is_none_or(|address| within.contains(address)));
    }

    #[test]
    fn any_held_set(runs in prop::collection::vec((0u128..5000, 1u128..600), 0..30), top in any::<bool>()) {
        let base = if top { u128::MAX - 6000 } else { 77 };
        let run = |first: u128, len: u128| {
            Range::new(address(Family::V6, base + first), address(Family::V6, base + first + len - 1)).expect("ordered")
        };
        let held: AddressSet = runs.iter().map(|(first, len)| run(*first, *len)).collect();
        let within = run(0, 5000);
        let free = AddressSet::from(within).difference(&held).nth(Family::V6, 0);
        prop_assert_eq!(search(within, &held).0, free);
    }
}
