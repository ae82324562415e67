//! The block strategy in all orders of its calls to the store. `PLAT_MODEL=large` explores more.

use plat_model::explore::{Summary, all, shortest};
use plat_model::model::Model;
use plat_model::scope::Faults;
use plat_model::scopes::{ATOMIC, Plan, scope};

/// More states than any scope has: one that grows beyond is to be cut, not to fill the memory.
const STATES_MAX: usize = 40_000_000;

/// States that the search for the shortest way to a violation may hold.
const SHORTEST_STATES_MAX: usize = 3_000_000;

const NONE: Faults = Faults { times: 0, crashes: false, conflicts: false, lost_replies: false, stale_looks: false };

fn plan<'p>(name: &'p str, cidr: &'p str, before: &'p str, clients: &'p [&'p str], faults: Faults) -> Plan<'p> {
    Plan {
        name,
        atomic_writes: ATOMIC,
        cidr,
        block_sizes: &[31],
        before,
        clients,
        faults,
        gives_up: false,
        mutation: None,
    }
}

fn check(plan: &Plan<'_>) -> Summary {
    match all(&mut Model::new(scope(plan)), STATES_MAX) {
        Ok(summary) => {
            println!("{summary}");
            assert!(summary.states > 100, "next to nothing was explored");
            summary
        }
        Err(trace) => match shortest(&mut Model::new(scope(plan)), SHORTEST_STATES_MAX) {
            Some(shortest) => panic!("{shortest}"),
            None => panic!("{trace}"),
        },
    }
}

/// On stores that commit several keys at once, and on stores that commit one.
fn check_both(plan: &Plan<'_>) {
    check(plan);
    check(&Plan { atomic_writes: 1, ..*plan });
}

fn is_large() -> bool {
    std::env::var("PLAT_MODEL").is_ok_and(|value| value == "large")
}

/// Two faults of every kind; in the small run as many as are explored in seconds.
fn faults(small: u8) -> Faults {
    Faults::all(if is_large() { 2 } else { small })
}

#[test]
fn two_hosts_take_and_give_back_in_their_own_blocks() {
    check_both(&plan(
        "own blocks",
        "10.0.0.0/30",
        "ensure a; ensure b",
        &["assign a x; del x", "assign b y; release y"],
        faults(2),
    ));
}

#[test]
fn two_processes_of_one_host_share_a_block() {
    check_both(&plan(
        "one host",
        "10.0.0.0/31",
        "ensure a",
        &["assign a x; del x", "assign a y; release y"],
        faults(2),
    ));
}

#[test]
fn two_hosts_claim_their_first_blocks() {
    check_both(&plan("claims", "10.0.0.0/30", "", &["assign a x; del x", "assign b y; release y"], faults(1)));
}

#[test]
fn two_hosts_want_the_last_block() {
    check_both(&plan("last block", "10.0.0.0/31", "", &["assign a x; del x", "assign b y; del y"], NONE));
    check_both(&plan("last block, faults", "10.0.0.0/31", "", &["assign a x", "assign b y"], faults(1)));
}

#[test]
fn an_empty_block_is_taken_over_while_its_host_uses_it() {
    check_both(&plan(
        "take-over",
        "10.0.0.0/31",
        "ensure a",
        &["assign a x", "assign b y; del y"],
        if is_large() { Faults::all(1) } else { NONE },
    ));
}

#[test]
fn a_host_borrows_while_the_block_is_released() {
    check_both(&plan(
        "borrowing",
        "10.0.0.0/31",
        "assign a o",
        &["assign b y; del y", "remove a; del o"],
        faults(1),
    ));
}

#[test]
fn a_host_is_removed_while_it_assigns() {
    check_both(&plan(
        "removal",
        "10.0.0.0/30",
        "ensure a",
        &["assign a x; del x", "remove a; claim a 10.0.0.0/31"],
        faults(1),
    ));
}

#[test]
fn a_block_is_claimed_and_released_by_two() {
    check_both(&plan(
        "claim and release",
        "10.0.0.0/31",
        "",
        &["claim a 10.0.0.0/31; unclaim-empty a 10.0.0.0/31", "claim b 10.0.0.0/31; unclaim b 10.0.0.0/31"],
        faults(1),
    ));
}

#[test]
fn a_certain_address_is_wanted_by_two() {
    check_both(&plan(
        "certain address",
        "10.0.0.0/31",
        "ensure a",
        &["assign-ip a x 10.0.0.1; del x", "assign-ip b y 10.0.0.1; release y"],
        faults(2),
    ));
}

#[test]
fn a_handle_is_released_by_two() {
    check_both(&plan(
        "double release",
        "10.0.0.0/31",
        "assign a x; assign a o",
        &["del x; assign b y", "release x; del x; del o"],
        faults(1),
    ));
}

/// Pools may lag: one host still sees blocks of another size. Each withdraws before the other, for ever if the clock
/// wills it; hosts wait with jitter, and here they give up.
#[test]
fn two_hosts_see_two_block_sizes() {
    let base = plan("two sizes", "10.0.0.0/31", "", &["claim a 10.0.0.0/31", "claim b 10.0.0.0/32"], faults(1));
    check_both(&Plan { block_sizes: &[31, 32], gives_up: true, ..base });
}

#[test]
fn three_hosts_want_two_blocks() {
    check_both(&plan("three hosts", "10.0.0.0/30", "", &["assign a x", "assign b y", "assign c z"], NONE));
}

#[test]
fn three_hosts_share_one_block() {
    check_both(&plan("three borrow", "10.0.0.0/31", "ensure a", &["assign a x", "assign b y", "release y; assign a z"], NONE));
}
