//! A block beside a naive model of it: who holds each ordinal, and a queue.

use plat_core::clock::Instant;
use plat_core::ipam::Attributes;
use plat_core::net::Prefix;
use plat_core::objects::{Block, Holder};
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};

#[derive(Clone, Debug)]
enum Step {
    Take { wanted: u32, handle: Option<u8>, pod: u8, skip: u32 },
    TakeOrdinal(u32, Option<u8>),
    Release { ordinals: Vec<u32>, cooldown: i64 },
    Thaw { cooldown: i64 },
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let handle = || prop::option::of(0u8..3);
    prop_oneof![
        (0u32..6, handle(), 0u8..2, 0u32..8).prop_map(|(wanted, handle, pod, skip)| Step::Take {
            wanted,
            handle,
            pod,
            skip
        }),
        (0u32..18, handle()).prop_map(|(ordinal, handle)| Step::TakeOrdinal(ordinal, handle)),
        (prop::collection::vec(0u32..18, 0..8), prop_oneof![Just(0i64), 1i64..20])
            .prop_map(|(ordinals, cooldown)| Step::Release { ordinals, cooldown }),
        (-1i64..20).prop_map(|cooldown| Step::Thaw { cooldown }),
        (0u64..10).prop_map(Step::Wait),
    ]
}

#[derive(Clone, Debug, PartialEq)]
enum Slot {
    Held { handle: Option<String>, attributes: Attributes, sequence: u64 },
    Cooling(i64),
}

fn name(handle: Option<u8>) -> Option<String> {
    handle.map(|number| format!("h{number}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn a_block_does_what_the_model_does(steps in prop::collection::vec(step(), 0..40)) {
        const START: u64 = u64::MAX - 100;
        let at = |seconds| Instant { seconds, nanoseconds: 0 };
        let mut now = 1_790_000_000u64;
        let prefix = Prefix::parse("10.0.0.16/28").unwrap();
        let mut block = Block::new(prefix, &Holder::Host("n1".into()), at(now), START, None);
        let mut slots: BTreeMap<u32, Slot> = BTreeMap::new();
        let mut queue: VecDeque<u32> = (0..16).collect();
        for (written, step) in (0u64..).zip(steps) {
            let sequence = START + written;
            match step {
                Step::Take { wanted, handle, pod, skip } => {
                    let attributes = Attributes::from([("pod".to_owned(), format!("p<{pod}>"))]);
                    let skipped = |ordinal: u32| skip > 1 && ordinal.is_multiple_of(skip);
                    let taken = block.take(wanted, name(handle).as_deref(), &attributes, &mut |address| {
                        skipped(u32::try_from(address.bits() - prefix.first().bits()).unwrap())
                    });
                    let wanted = usize::try_from(wanted).unwrap();
                    let expected: Vec<u32> = queue.iter().copied().filter(|each| !skipped(*each)).take(wanted).collect();
                    prop_assert_eq!(&taken, &expected);
                    queue.retain(|each| !taken.contains(each));
                    for ordinal in taken {
                        let held = Slot::Held { handle: name(handle), attributes: attributes.clone(), sequence };
                        prop_assert!(slots.insert(ordinal, held).is_none());
                    }
                }
                Step::TakeOrdinal(ordinal, handle) => {
                    let is_free = queue.contains(&ordinal);
                    let attributes = Attributes::new();
                    prop_assert_eq!(block.take_ordinal(ordinal, name(handle).as_deref(), &attributes), is_free);
                    if is_free {
                        queue.retain(|each| *each != ordinal);
                        slots.insert(ordinal, Slot::Held { handle: name(handle), attributes, sequence });
                    }
                }
                Step::Release { ordinals, cooldown } => {
                    block.release(&ordinals, at(now), cooldown);
                    for ordinal in ordinals {
                        if let Some(Slot::Held { .. }) = slots.get(&ordinal) {
                            if cooldown > 0 {
                                slots.insert(ordinal, Slot::Cooling(i64::try_from(now).unwrap()));
                            } else {
                                slots.remove(&ordinal);
                                queue.push_back(ordinal);
                            }
                        }
                    }
                }
                Step::Thaw { cooldown } => {
                    let cold: Vec<u32> = slots
                        .iter()
                        .filter(|(_, slot)| match slot {
                            Slot::Cooling(since) => cooldown < 0 || i64::try_from(now).unwrap() - since >= cooldown,
                            Slot::Held { .. } => false,
                        })
                        .map(|(ordinal, _)| *ordinal)
                        .collect();
                    prop_assert_eq!(block.thaw(at(now), cooldown), !cold.is_empty());
                    for ordinal in cold {
                        slots.remove(&ordinal);
                        queue.push_back(ordinal);
                    }
                }
                Step::Wait(seconds) => now += seconds,
            }
            block.advance();

            let cooling = slots.values().filter(|slot| matches!(slot, Slot::Cooling(_))).count();
            prop_assert_eq!(block.sequence(), sequence + 1);
            prop_assert_eq!(block.free() as usize, queue.len());
            prop_assert_eq!(block.cooling() as usize, cooling);
            prop_assert_eq!(block.is_empty(), slots.is_empty());
            for ordinal in 0..16 {
                match (slots.get(&ordinal), block.held(ordinal)) {
                    (None, None) => {}
                    (Some(Slot::Cooling(since)), Some(held)) => {
                        prop_assert_eq!((held.handle, held.cooling_since), (None, Some(*since)));
                        prop_assert!(held.active.is_empty());
                    }
                    (Some(Slot::Held { handle, attributes, sequence }), Some(held)) => {
                        prop_assert_eq!(&held.handle, handle);
                        prop_assert_eq!(&held.active, attributes);
                        prop_assert_eq!(held.sequence, *sequence);
                        prop_assert_eq!(held.cooling_since, None);
                    }
                    (model, held) => prop_assert!(false, "{}: {:?}, {:?}", ordinal, model, held),
                }
            }
            for handle in ["h0", "h1", "h2"] {
                let expected: Vec<u32> = slots
                    .iter()
                    .filter(|(_, slot)| matches!(slot, Slot::Held { handle: Some(of), .. } if of == handle))
                    .map(|(ordinal, _)| *ordinal)
                    .collect();
                prop_assert_eq!(block.ordinals_of_handle(handle), expected);
            }

            let bytes = block.to_bytes();
            let again = Block::parse(&bytes).unwrap();
            prop_assert_eq!(&again, &block);
            prop_assert_eq!(again.to_bytes(), bytes.clone());
            // Each attribute is named by an ordinal, and no two are alike.
            let json: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
            let attributes = json["spec"]["attributes"].as_array().unwrap();
            for (index, attribute) in attributes.iter().enumerate() {
                let is_named = json["spec"]["allocations"].as_array().unwrap().iter().any(|each| each == index);
                prop_assert!(is_named, "{} of {}", index, json);
                prop_assert_eq!(attributes.iter().filter(|each| *each == attribute).count(), 1);
            }
            // The queue, in its order.
            let free: Vec<u32> = serde_json::from_value(json["spec"]["unallocated"].clone()).unwrap();
            prop_assert_eq!(free, queue.iter().copied().collect::<Vec<u32>>());
        }
    }

    #[test]
    fn nothing_that_is_read_panics(text in "\\PC{0,60}", cut in 0usize..400) {
        let block = Block::new(
            Prefix::parse("10.0.0.0/30").unwrap(),
            &Holder::Host("n1".into()),
            Instant { seconds: 1, nanoseconds: 0 },
            1,
            None,
        );
        let bytes = block.to_bytes();
        let mut broken = bytes.get(..cut.min(bytes.len() - 1)).unwrap().to_vec();
        prop_assert!(Block::parse(&broken).is_err());
        broken.extend(text.as_bytes());
        let _ = Block::parse(&broken);
        let _ = Block::glance(&broken);
        let _ = plat_core::objects::Handle::parse(text.as_bytes());
        let _ = plat_core::objects::Affinity::parse(text.as_bytes());
    }
}
