//! The protocol is broken on purpose, between the core and the store: each time the checker must find a violation, and
//! without the mutation it must find none in the same scope.

use plat_model::explore::{all, shortest};
use plat_model::model::Model;
use plat_model::scope::{Faults, Mutation};
use plat_model::scopes::{ATOMIC, Plan, scope};

const NONE: Faults = Faults { times: 0, crashes: false, conflicts: false, lost_replies: false, stale_looks: false };
const LOST: Faults = Faults { times: 1, lost_replies: true, ..NONE };

fn check(mutation: Mutation, plan: &Plan<'_>, because: &str) {
    all(&mut Model::new(scope(plan)), 5_000_000).unwrap_or_else(|trace| panic!("without a mutation: {trace}"));
    let name = format!("{mutation:?}");
    let broken = Plan { name: &name, mutation: Some(mutation), ..*plan };
    let trace = shortest(&mut Model::new(scope(&broken)), 3_000_000).unwrap_or_else(|| panic!("{name} is not caught"));
    println!("{trace}");
    assert!(trace.violation.contains(because), "{trace}");
}

fn plan<'p>(atomic_writes: u32, before: &'p str, clients: &'p [&'p str], faults: Faults) -> Plan<'p> {
    Plan {
        name: "as it is",
        atomic_writes,
        cidr: "10.0.0.0/31",
        block_sizes: &[31],
        before,
        clients,
        faults,
        calls_cut: None,
        gives_up: false,
        mutation: None,
    }
}

#[test]
fn a_block_is_written_whatever_version_is_there() {
    for atomic_writes in [ATOMIC, 1] {
        let plan = plan(atomic_writes, "ensure a", &["assign a x", "assign a y"], NONE);
        check(Mutation::BlockVersionIgnored, &plan, "is not held");
    }
}

#[test]
fn a_block_is_created_though_it_is_there() {
    let plan = plan(1, "", &["assign a x", "assign b y"], NONE);
    check(Mutation::BlockAbsenceIgnored, &plan, "is not held");
}

#[test]
fn a_block_is_deleted_whatever_version_is_there() {
    for atomic_writes in [ATOMIC, 1] {
        let base = plan(atomic_writes, "ensure a", &["assign a x", "remove a"], NONE);
        let plan = Plan { gives_up: true, ..base };
        check(Mutation::BlockDeletedUnseen, &plan, "is not held");
    }
}

#[test]
fn a_handle_is_written_after_the_block() {
    let plan = plan(1, "ensure a", &["assign a x"], NONE);
    check(Mutation::HandleAfterBlock, &plan, "there is no such handle");
}

#[test]
fn a_lost_reply_is_taken_for_a_refusal() {
    let plan = plan(1, "ensure a", &["assign a x"], LOST);
    check(Mutation::LostReplyIsConflict, &plan, "x ");
}

#[test]
fn a_late_write_is_not_fenced_off() {
    let plan = plan(1, "ensure a", &["assign a x"], LOST);
    check(Mutation::FenceLeftOut, &plan, "x ");
}

#[test]
fn an_overlap_is_not_seen() {
    let base = plan(1, "", &["assign a x", "assign b y"], NONE);
    // Two that withdraw before each other may do so for ever: they are left standing after some withdrawals.
    let clients: &[&str] = &["ensure a", "ensure b"];
    let plan = Plan { block_sizes: &[31, 32], gives_up: true, calls_cut: Some(45), clients, ..base };
    all(&mut Model::new(scope(&plan)), 5_000_000).unwrap_or_else(|trace| panic!("without a mutation: {trace}"));
    let broken = Plan { clients: &["assign a x", "assign b y"], mutation: Some(Mutation::OverlapUnseen), ..plan };
    let trace = shortest(&mut Model::new(scope(&broken)), 3_000_000).expect("a violation");
    println!("{trace}");
    assert!(trace.violation.contains("overlap") || trace.violation.contains("two blocks"), "{trace}");
}
