//! The checker itself, on a protocol so small that one sees by eye what it must find: tickets from a counter.

use plat_core::clock::Clock;
use plat_core::net::{Address, Family};
use plat_core::store::{Action, Durability, Error, Expected, Store, Version, Write};
use plat_model::contents::{Alone, Contents, Fixed, Values};
use plat_model::explore::{all, shortest, walk};
use plat_model::model::Model;
use plat_model::operation::{Answer, Grant, Operation, Outcome};
use plat_model::scope::{Faults, Scope};
use std::fmt;

/// How a ticket is drawn.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// By compare-and-swap; a reply that was lost wastes a number.
    Right,
    /// A refused write is taken for a success.
    IgnoresConflict,
    /// A lost reply is taken for a success.
    TrustsLostReply,
    /// It tries again for ever.
    NeverEnds,
}

#[derive(Clone, Debug)]
struct Draw(Way, &'static str);

impl fmt::Display for Draw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "draw for {}", self.1)
    }
}

impl Operation for Draw {
    fn run(&self, store: &mut dyn Store, _clock: &mut dyn Clock) -> Answer {
        let end = |outcome| Answer { outcome, grants: Vec::new(), text: "no ticket".into() };
        for _ in 0..if matches!(self.0, Way::NeverEnds) { 10_000 } else { 8 } {
            let Ok(entries) = store.read(&["counter".into()], true) else { return end(Outcome::Repeat) };
            let (expected, number) = match entries.first().and_then(Option::as_ref) {
                None => (Expected::Absent, 1),
                Some(entry) => (Expected::At(entry.version.clone()), entry.value[0].wrapping_add(1)),
            };
            let write = Write { key: "counter".into(), expected, action: Action::Put(vec![number]) };
            let drawn = match (store.commit(&[write], &[], Durability::Process), self.0) {
                (Ok(_), Way::NeverEnds) => false,
                (Ok(_), _)
                | (Err(Error::Conflict(_)), Way::IgnoresConflict)
                | (Err(Error::UnknownOutcome), Way::TrustsLostReply) => true,
                (Err(Error::Denied(_)), _) => return end(Outcome::Repeat),
                _ => false,
            };
            if drawn {
                let address = Address::new(Family::V4, number.into()).expect("a small number");
                let grant = Grant { address, handle: self.1.into(), sequence: 0 };
                return Answer { outcome: Outcome::Done, grants: vec![grant], text: format!("ticket {number}") };
            }
        }
        end(Outcome::Repeat)
    }
}

fn model(way: Way, clients: &[&'static str], faults: Faults) -> Model<Draw> {
    Model::new(Scope {
        name: format!("{way:?}"),
        atomic_writes: 1,
        fixed: vec![Fixed::default(); clients.len()],
        values: Values::default(),
        start: Contents::default(),
        addresses: Vec::new(),
        clients: clients.iter().map(|name| vec![Draw(way, name)]).collect(),
        faults,
        mutation: None,
        repeats_max: 4,
        may_give_up: false,
        time: 0,
        clock_steps: Vec::new(),
        invariant: |_| Ok(()),
        at_end: |_| Ok(()),
    })
}

#[test]
fn orders_are_counted_as_by_hand() {
    // One client: read, write. One order, and three states: before, between, after.
    let summary = all(&mut model(Way::Right, &["x"], Faults::default()), 100).expect("no violation");
    assert_eq!((summary.states, summary.orders), (3, 1.0));
    // Two clients. Of six ways to mix two pairs of steps, two have no overlap. In the other four, in which both read
    // before either writes, the second write is refused, and the loser reads and writes once more, alone.
    let summary = all(&mut model(Way::Right, &["x", "y"], Faults::default()), 100).expect("no violation");
    assert_eq!(summary.orders, 6.0);
    // A lost reply: made late or never; the client tries again in between.
    let lost = Faults { times: 1, lost_replies: true, ..Faults::default() };
    let summary = all(&mut model(Way::Right, &["x"], lost), 100).expect("no violation");
    // No fault; never made; made before the next read; made between it and the next write, which is then refused.
    // After the next write it can be made no more, since the version has moved.
    assert_eq!(summary.orders, 4.0);
}

#[test]
fn a_right_counter_is_right_with_all_faults() {
    let summary = all(&mut model(Way::Right, &["x", "y", "z"], Faults::all(2)), 1_000_000).expect("no violation");
    println!("{summary}");
    assert!(summary.states > 1000, "{summary}");
    for seed in 0..200 {
        walk(&mut model(Way::Right, &["x", "y", "z"], Faults::all(3)), seed, 4).expect("no violation");
    }
}

#[test]
fn wrong_counters_are_caught() {
    let lost = Faults { times: 1, lost_replies: true, ..Faults::default() };
    for (way, faults, steps, why) in [
        // read, read, write, write
        (Way::IgnoresConflict, Faults::default(), 4, "was granted to"),
        // read, write that is lost, read, write
        (Way::TrustsLostReply, lost, 4, "was granted to"),
        (Way::NeverEnds, Faults::default(), 601, "made more than 600 calls"),
    ] {
        let clients: &[&str] = if matches!(way, Way::NeverEnds) { &["x"] } else { &["x", "y"] };
        all(&mut model(way, clients, faults), 100_000).expect_err("a violation");
        let trace = shortest(&mut model(way, clients, faults), 100_000).expect("a violation");
        assert!(trace.violation.contains(why), "{trace}");
        assert_eq!(trace.steps.len(), steps, "{trace}");
    }
}

/// The store of the checker does what the stores do that are shipped.
#[test]
fn the_store_agrees_with_the_store_in_memory() {
    let (mut contents, fixed, mut values) = (Contents::default(), Fixed::default(), Values::default());
    let mut mine = Alone { contents: &mut contents, fixed: &fixed, values: &mut values, atomic_writes: 8 };
    let mut theirs = plat_stores::memory::MemoryStore::with_atomic_writes(8);
    let mut random = plat_model::explore::Random::new(7);
    let keys = ["affinities", "plat/a", "plat/a/b", "plat/b", "plat/sequence"];
    let mut versions: Vec<(String, Version, Version)> = Vec::new();
    for round in 0..5000u32 {
        let key = keys[random.below(keys.len())].to_owned();
        // Versions are of a key: mine are not the same for two keys, but may look so.
        let of_key: Vec<&(String, Version, Version)> = versions.iter().filter(|known| known.0 == key).collect();
        let last = of_key.len().saturating_sub(1);
        let known = of_key.get(last.saturating_sub(random.below(3))).map(|known| (known.1.clone(), known.2.clone()));
        let (expected, other) = match known {
            Some((mine, theirs)) if random.below(3) > 0 => (Expected::At(mine), Expected::At(theirs)),
            _ => (Expected::Absent, Expected::Absent),
        };
        let action = match random.below(4) {
            0 => Action::Delete,
            1 => Action::Check,
            _ => Action::Put(round.to_be_bytes().to_vec()),
        };
        // Deleting what is not there is refused before it is tried: it is no use to anybody.
        if expected == Expected::Absent && action == Action::Delete {
            continue;
        }
        let one = |expected| [Write { key: key.clone(), expected, action: action.clone() }];
        let done = (
            mine.commit(&one(expected), &[], Durability::Process),
            theirs.commit(&one(other), &[], Durability::Process),
        );
        match done {
            (Ok(mine), Ok(theirs)) => {
                if matches!(action, Action::Put(_)) {
                    versions.push((key.clone(), mine[0].clone(), theirs[0].clone()));
                }
            }
            (Err(mine), Err(theirs)) => assert_eq!(mine, theirs),
            different => panic!("round {round}: {different:?}"),
        }
        let prefix = ["", "plat/", "plat/a", "z"][random.below(4)];
        let from = keys[random.below(keys.len())];
        let until = keys[random.below(keys.len())];
        let limit = 1 + u32::try_from(random.below(4)).expect("small");
        let pages = (
            mine.scan(prefix, Some(from), limit, false, true).expect("a page"),
            theirs.scan(prefix, Some(from), limit, false, true).expect("a page"),
        );
        let plain = |page: &plat_core::store::Page| -> Vec<(String, Vec<u8>)> {
            page.entries.iter().map(|entry| (entry.key.clone(), entry.value.clone())).collect()
        };
        assert_eq!((plain(&pages.0), &pages.0.next), (plain(&pages.1), &pages.1.next), "round {round}");
        assert_eq!(
            mine.count(prefix, Some(from), Some(until), true).expect("a count"),
            theirs.count(prefix, Some(from), Some(until), true).expect("a count"),
            "round {round}: {prefix} {from} {until}"
        );
    }
    assert!(versions.len() > 500);
}
