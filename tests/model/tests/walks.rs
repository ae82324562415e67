//! Random walks through what is too large to be explored wholly. `PLAT_MODEL=large` takes more; `PLAT_MODEL_SEED=n` takes
//! the one of a seed, as a failing walk prints it.

use plat_model::explore::{Random, walk};
use plat_model::model::Model;
use plat_model::scope::{Faults, Scope};
use plat_model::scopes::{ATOMIC, Plan, operations, scope};

/// Walks of a small run; a large one takes a hundred times as many.
const WALKS: u64 = 150;

/// Hosts, and operations of each.
const HOSTS: usize = 4;
const OPERATIONS: usize = 5;

/// One operation of a host, in words; `number` makes handles differ.
fn operation(random: &mut Random, host: &str, number: usize) -> String {
    let handle = format!("{host}{number}");
    match random.below(10) {
        0 => format!("ensure {host}"),
        1 => format!("claim {host} 10.0.0.{}/30", 4 * random.below(4)),
        2 => format!("unclaim-empty {host} 10.0.0.0/28"),
        3 => format!("assign-ip {host} {handle} 10.0.0.{}; release {handle}", random.below(16)),
        4 | 5 => format!("assign {host} {handle}; release {handle}"),
        6 => format!("assign {host} {handle}; del {handle}"),
        _ => format!("assign {host} {handle}"),
    }
}

fn walk_scope(seed: u64, atomic_writes: u32) -> Scope<plat_model::ipam::Op> {
    let mut random = Random::new(seed);
    let hosts = ["a", "b", "c", "d"];
    let lists: Vec<String> = hosts[..HOSTS]
        .iter()
        .map(|host| {
            let list: Vec<String> = (0..OPERATIONS).map(|number| operation(&mut random, host, number)).collect();
            list.join("; ")
        })
        .collect();
    for list in &lists {
        assert!(operations(list).len() >= OPERATIONS);
    }
    let lists: Vec<&str> = lists.iter().map(String::as_str).collect();
    let plan = Plan {
        name: "walk",
        atomic_writes,
        cidr: "10.0.0.0/28",
        block_sizes: &[30],
        before: "assign a o1; assign b o2",
        clients: &lists,
        faults: Faults::all(6),
        calls_cut: None,
        gives_up: false,
        mutation: None,
    };
    let mut scope = scope(&plan);
    scope.clock_steps = vec![1, 59, 61, 301];
    scope
}

#[test]
fn walks_meet_no_violation() {
    let asked = std::env::var("PLAT_MODEL_SEED").ok().map(|seed| seed.parse::<u64>().expect("a number"));
    let walks = if std::env::var("PLAT_MODEL").is_ok_and(|value| value == "large") { WALKS * 100 } else { WALKS };
    let seeds = match asked {
        Some(seed) => seed..seed + 1,
        None => 1..walks + 1,
    };
    let (mut steps, mut answered, mut repeated) = (0, 0, 0);
    for seed in seeds.clone() {
        for atomic_writes in [ATOMIC, 1] {
            let mut model = Model::new(walk_scope(seed, atomic_writes));
            steps += walk(&mut model, seed, 20).unwrap_or_else(|trace| panic!("{trace}"));
            answered += model.answered;
            repeated += model.repeated;
        }
    }
    println!(
        "walks of {HOSTS} hosts with {OPERATIONS} operations or more, 6 faults, a moving clock, seeds {seeds:?}, atomic and \
         single keys: {steps} steps, {answered} answers ({repeated} to be repeated)"
    );
    assert!(answered > 10, "next to nothing was done");
}
