//! The `block` strategy when the store goes wrong: every operation with one fault at every one of its calls. No address
//! is held that nobody was told of, none is lost, and the operation can be repeated. And a store that never takes a
//! write: the tries are bounded.

#[path = "block/play/mod.rs"]
mod play;

use plat_core::ipam::{
    AffinityRelease, Assignment, BlockDemand, Error, Holder, OwnerChange, Release, SlotChange, SlotPrecondition,
    Specific,
};
use plat_core::net::Family;
use plat_core::store::Error as StoreError;
use plat_stores::faulty::{Counted, Fault, FaultyStore};
use plat_stores::memory::MemoryStore;
use play::invariants::{self, Strictness};
use play::operation::{Operation, Outcome, Reference, perform};
use play::world::{self, START_SECONDS, Standing, address, prefix};
use serde_json::json;

/// When the operations are made: two minutes after the state before them was.
const NOW: u64 = START_SECONDS + 120;

fn host(name: &str) -> Holder {
    Holder::Host(name.into())
}

fn assignment(name: &str, handle: &str, v4: u32, v6: u32) -> Assignment {
    let mut item = Assignment::new(host(name), v4, v6);
    item.handle = Some(handle.into());
    item
}

fn release(text: &str, handle: &str) -> Release {
    Release { address: address(text), handle: Some(handle.into()), sequence: None }
}

/// Host `a` has a block and two addresses under `x`, host `b` an empty block of the same pool, and one slice is free.
fn start(atomic_writes: Option<u32>) -> (MemoryStore, Reference) {
    let mut store = atomic_writes.map_or_else(MemoryStore::new, MemoryStore::with_atomic_writes);
    world::pool(&mut store, "p", "10.0.0.0/29", json!({"blockSize": 31}));
    world::pool(&mut store, "six", "fd00::/126", json!({"blockSize": 126}));
    let mut reference = Reference::default();
    let clock = Standing(START_SECONDS);
    for operation in [
        Operation::Claim(host("a"), prefix("10.0.0.0/30")),
        Operation::Claim(host("b"), prefix("10.0.0.4/31")),
        Operation::Assign(vec![assignment("a", "x", 2, 0)]),
        Operation::Assign(vec![assignment("a", "y", 1, 0)]),
    ] {
        let outcome = perform(&operation, &mut store, clock);
        reference.learn(&operation, &outcome, None, START_SECONDS, 0);
    }
    assert_eq!(reference.held.len(), 3);
    (store, reference)
}

fn operations() -> Vec<(&'static str, Operation)> {
    let assign = |items: &[Assignment]| Operation::Assign(items.to_vec());
    let specific = |text: &str, handle: &str| Specific {
        address: address(text),
        handle: Some(handle.into()),
        holder: host("a"),
        purpose: None,
        attributes: Default::default(),
        per_handle_max: None,
        edges: None,
    };
    let mut limited = assignment("c", "vm", 1, 1);
    limited.per_handle_max = Some(1);
    let affinities = |name: &str, must_be_empty| {
        Operation::ReleaseAffinities(AffinityRelease {
            holder: Some(host(name)),
            within: None,
            must_be_empty,
            sequence: None,
        })
    };
    vec![
        ("an address of an own block", assign(&[assignment("a", "new", 1, 0)])),
        ("an address under an old handle", assign(&[assignment("a", "x", 1, 0)])),
        ("an address of a new block", assign(&[assignment("c", "new", 1, 0)])),
        ("addresses of several blocks and families", assign(&[assignment("a", "new", 3, 2)])),
        ("an address of a block taken over", assign(&[assignment("c", "new", 4, 0)])),
        ("all that is left, some of it borrowed", assign(&[assignment("c", "new", 5, 0)])),
        ("more than is left", assign(&[assignment("c", "new", 6, 0)])),
        ("a handle that may have one", assign(&[limited])),
        (
            "several in one call",
            assign(&[assignment("a", "n1", 1, 0), assignment("b", "n2", 1, 1), assignment("c", "n1", 1, 0)]),
        ),
        ("a chosen address", Operation::AssignIp(vec![specific("10.0.0.3", "new")])),
        ("a chosen address of a new block", Operation::AssignIp(vec![specific("10.0.0.7", "x")])),
        ("a release", Operation::Release(vec![release("10.0.0.0", "x")])),
        (
            "several releases",
            Operation::Release(vec![release("10.0.0.0", "x"), release("10.0.0.2", "y"), release("10.0.0.1", "z")]),
        ),
        ("a release by handle", Operation::ReleaseByHandle(vec!["x".into()])),
        (
            "a change of owners",
            Operation::SetOwners(OwnerChange {
                address: address("10.0.0.2"),
                handle: "y".into(),
                active: SlotChange::Keep,
                alternate: SlotChange::Set([("pod".to_owned(), "q".to_owned())].into()),
                active_must_be: SlotPrecondition::Any,
                alternate_must_be: SlotPrecondition::Any,
            }),
        ),
        ("a claim", Operation::Claim(host("c"), prefix("10.0.0.6/31"))),
        ("a release of empty blocks", affinities("b", true)),
        ("a release of blocks with addresses", affinities("a", false)),
        ("a host goes", Operation::RemoveHost(host("a"))),
        (
            "a block for a host",
            Operation::EnsureBlock(BlockDemand {
                holder: host("c"),
                family: Family::V4,
                pools: Vec::new(),
                edges: None,
            }),
        ),
    ]
}

fn calls(operation: &Operation, atomic_writes: Option<u32>, counted: Counted) -> u64 {
    let mut store = FaultyStore::new(start(atomic_writes).0).counting(counted);
    perform(operation, &mut store, Standing(NOW));
    store.calls()
}

/// What an operation that failed may have done all the same, seen in the store: gives back come true without an answer.
fn is_giving(operation: &Operation) -> bool {
    matches!(operation, Operation::Release(_) | Operation::ReleaseByHandle(_) | Operation::SetOwners(_))
}

fn is_unanswered(outcome: &Outcome) -> bool {
    let is_trouble = |error: &Error| matches!(error, Error::Unavailable(_) | Error::Contended | Error::Unsettled);
    match outcome {
        Outcome::Assigned(answers) => answers.iter().any(|granted| granted.failed.as_ref().is_some_and(is_trouble)),
        Outcome::Specific(answers) => answers.iter().any(|answer| answer.as_ref().is_err_and(is_trouble)),
        Outcome::Released(answers) => answers.iter().any(|answer| answer.as_ref().is_err_and(is_trouble)),
        Outcome::ReleasedByHandle(answers) => answers.iter().any(|answer| answer.as_ref().is_err_and(is_trouble)),
        Outcome::Owners(answer) => answer.as_ref().is_err_and(is_trouble),
        Outcome::Affinities(Ok(outcomes)) => outcomes.iter().any(|one| one.outcome.as_ref().is_err_and(is_trouble)),
        Outcome::Affinities(Err(error)) | Outcome::Block(Err(error)) => is_trouble(error),
        _ => false,
    }
}

/// Whether something that was asked for was not done, for whatever reason.
fn is_refused(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Assigned(answers) => answers.iter().any(|granted| granted.failed.is_some()),
        Outcome::Specific(answers) => answers.iter().any(Result::is_err),
        Outcome::Released(answers) => answers.iter().any(Result::is_err),
        Outcome::ReleasedByHandle(answers) => answers.iter().any(Result::is_err),
        Outcome::Owners(answer) => answer.is_err(),
        Outcome::Affinities(Ok(outcomes)) => outcomes.iter().any(|one| one.outcome.is_err()),
        Outcome::Affinities(answer) => answer.is_err(),
        Outcome::Block(answer) => answer.is_err(),
        _ => false,
    }
}

fn sweep(counted: Counted, faults: &[Fault]) -> u32 {
    let mut tried = 0;
    for atomic_writes in [None, Some(1)] {
        for (name, operation) in operations() {
            let clean = perform(&operation, &mut start(atomic_writes).0, Standing(NOW));
            for fault in faults {
                for call in 1..=calls(&operation, atomic_writes, counted) {
                    let place = format!("{name}, {fault:?} at call {call}, {atomic_writes:?} writes a commit");
                    let (store, mut reference) = start(atomic_writes);
                    let mut store = FaultyStore::new(store).counting(counted).with(call, fault.clone());
                    let outcome = perform(&operation, &mut store, Standing(NOW));
                    let mut store = store.into_inner();
                    let state = invariants::read(&store);
                    // Whoever is told of trouble repeats; what others did or what became of a write is no trouble.
                    let may_fail = matches!(fault, Fault::Fail(StoreError::Unavailable(_)))
                        || counted == Counted::All && is_unanswered(&outcome);
                    assert!(may_fail || is_refused(&clean) || !is_refused(&outcome), "{place}: {outcome:?}");
                    if is_giving(&operation) && (is_unanswered(&outcome) || *fault == Fault::LoseReply) {
                        // It may have been done.
                        assert!(state.addresses.keys().all(|address| reference.held.contains_key(address)), "{place}");
                        reference.adopt(&state, NOW);
                    } else {
                        reference.learn(&operation, &outcome, None, NOW, 0);
                    }
                    let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                        reference.compare(&state, NOW, 0);
                        invariants::check(&state, Strictness::Loose);
                    }));
                    assert!(checked.is_ok(), "{place}: {outcome:?}");
                    // Once more, with a store that works: the answer is not one of trouble, and all is whole again.
                    if is_unanswered(&outcome) {
                        let again = perform(&operation, &mut store, Standing(NOW + 1));
                        assert!(!is_unanswered(&again), "{place}: {again:?}");
                        let adopt = matches!(operation, Operation::Assign(ref items) if items.len() > 1);
                        if !adopt {
                            reference.learn(&operation, &again, None, NOW + 1, 0);
                            reference.compare(&invariants::read(&store), NOW + 1, 0);
                        }
                        invariants::check(&invariants::read(&store), Strictness::Loose);
                    }
                    tried += 1;
                }
            }
        }
    }
    tried
}

#[test]
fn a_store_that_is_unavailable_once() {
    let tried = sweep(Counted::All, &[Fault::Fail(StoreError::Unavailable("for a moment".into()))]);
    assert!(tried > 300, "{tried} places");
}

#[test]
fn a_reply_that_is_lost_once() {
    let tried = sweep(Counted::All, &[Fault::LoseReply]);
    assert!(tried > 300, "{tried} places");
}

#[test]
fn a_write_of_unknown_outcome_that_was_not_made() {
    let tried = sweep(Counted::Commits, &[Fault::Fail(StoreError::UnknownOutcome)]);
    assert!(tried > 60, "{tried} places");
}

#[test]
fn a_conflict_once() {
    let tried = sweep(Counted::Commits, &[Fault::Fail(StoreError::Conflict(vec!["block/v4/31/0a000000".into()]))]);
    assert!(tried > 60, "{tried} places");
}

/// The most commits that one operation tries on a store that refuses all of them: eight attempts, each with up to eight
/// slices to claim.
const REFUSED_COMMITS_MAX: u64 = 8 * 8 * 2;

#[test]
fn a_store_where_others_are_always_faster_is_contended_within_bounds() {
    for atomic_writes in [None, Some(1)] {
        for (name, operation) in operations() {
            let mut store = FaultyStore::new(start(atomic_writes).0).counting(Counted::Commits);
            for call in 1..=10 * REFUSED_COMMITS_MAX {
                store = store.with(call, Fault::Fail(StoreError::Conflict(vec!["k".into()])));
            }
            let outcome = perform(&operation, &mut store, Standing(NOW));
            assert!(store.calls() <= REFUSED_COMMITS_MAX * 3, "{name}: {} commits", store.calls());
            let (_, mut reference) = start(atomic_writes);
            reference.compare(&invariants::read(&store.into_inner()), NOW, 0);
            assert!(is_unanswered(&outcome), "{name}: {outcome:?}");
        }
    }
}

#[test]
fn a_store_that_refuses_writes_is_denied() {
    for atomic_writes in [None, Some(1)] {
        let (store, _) = start(atomic_writes);
        let mut store = FaultyStore::new(store).counting(Counted::Commits);
        for call in 1..100 {
            store = store.with(call, Fault::Fail(StoreError::Denied("read-only".into())));
        }
        let operation = Operation::Assign(vec![assignment("a", "new", 1, 0)]);
        let Outcome::Assigned(answers) = perform(&operation, &mut store, Standing(NOW)) else { panic!("assignments") };
        assert_eq!(answers[0].failed, Some(Error::Denied("read-only".into())));
        assert!(answers[0].grants.is_empty());
    }
}
