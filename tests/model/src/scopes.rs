//! The scopes that are explored.

use crate::contents::{Alone, Contents, Fixed, Values};
use crate::ipam::{Op, at_end, invariant};
use crate::operation::{Operation, Outcome};
use crate::replay::standing;
use crate::scope::{Faults, Mutation, Scope};
use plat_core::net::{Address, Prefix};

/// When scopes begin: 2026-09-01T00:00:00Z.
pub const START_SECONDS: u64 = 1_788_220_800;

/// How many writes a commit of an atomic store takes.
pub const ATOMIC: u32 = 256;

/// How often a host repeats what was contended.
pub const REPEATS_MAX: u8 = 4;

/// A prefix.
///
/// # Panics
/// If the text is none.
pub fn prefix(text: &str) -> Prefix {
    Prefix::parse(text).unwrap_or_else(|why| panic!("{text:?} is no prefix: {why}"))
}

/// An address.
///
/// # Panics
/// If the text is none.
pub fn address(text: &str) -> Address {
    Address::parse(text).unwrap_or_else(|| panic!("{text:?} is no address"))
}

/// A pool.
pub fn pool(cidr: &str, block_size: u8) -> String {
    format!(
        r#"{{"kind":"IPPool","apiVersion":"projectcalico.org/v3","metadata":{{"name":"pool"}},"spec":{{"cidr":"{cidr}","blockSize":{block_size}}}}}"#
    )
}

/// Operations in one line: `assign a x`, `assign-ip a x 10.0.0.1`, `release x`, `del x`, `claim a 10.0.0.0/31`,
/// `unclaim a 10.0.0.0/30`, `unclaim-empty a 10.0.0.0/30`, `ensure a`, `remove a`; separated by `;`.
///
/// # Panics
/// If a line is not like that.
pub fn operations(text: &str) -> Vec<Op> {
    let lines = text.split(';').map(str::trim).filter(|line| !line.is_empty());
    let one = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["assign", host, handle] => Op::Assign((*host).into(), (*handle).into()),
            ["assign-ip", host, handle, at] => Op::AssignIp((*host).into(), (*handle).into(), address(at)),
            ["release", handle] => Op::ReleaseGranted((*handle).into()),
            ["del", handle] => Op::ReleaseByHandle((*handle).into()),
            ["claim", host, block] => Op::Claim((*host).into(), prefix(block)),
            ["unclaim", host, within] => Op::Unclaim((*host).into(), prefix(within), false),
            ["unclaim-empty", host, within] => Op::Unclaim((*host).into(), prefix(within), true),
            ["ensure", host] => Op::Ensure((*host).into()),
            ["remove", host] => Op::RemoveHost((*host).into()),
            _ => panic!("{line:?} is no operation"),
        }
    };
    lines.map(one).collect()
}

/// What a scope is made of.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'p> {
    /// Its name.
    pub name: &'p str,
    /// How many writes a commit may hold.
    pub atomic_writes: u32,
    /// The pool's CIDR.
    pub cidr: &'p str,
    /// The size of the pool's blocks, as each client sees it; the last is that of the clients after it, too.
    pub block_sizes: &'p [u8],
    /// What was done long before, by one caller alone.
    pub before: &'p str,
    /// What each client does.
    pub clients: &'p [&'p str],
    /// What goes wrong.
    pub faults: Faults,
    /// Whether hosts give up at once what is contended.
    pub gives_up: bool,
    /// What is broken on purpose.
    pub mutation: Option<Mutation>,
}

/// How long before the beginning the set-up was, in seconds: blocks are old enough to be taken over.
const LONG_BEFORE: u64 = 3600;

/// Makes a scope.
///
/// # Panics
/// If what was done before does not succeed.
pub fn scope(plan: &Plan<'_>) -> Scope<Op> {
    let mut values = Values::default();
    let cidr = prefix(plan.cidr);
    let fixed: Vec<Fixed> = (0..plan.clients.len())
        .map(|client| {
            let size = plan.block_sizes[client.min(plan.block_sizes.len() - 1)];
            let mut fixed = Fixed::default();
            fixed.put(&mut values, "pool/pool", pool(plan.cidr, size).as_bytes());
            fixed
        })
        .collect();
    let mut start = Contents::default();
    for (number, operation) in (0u64..).zip(operations(plan.before)) {
        let mut store = Alone {
            contents: &mut start,
            fixed: &fixed[0],
            values: &mut values,
            atomic_writes: plan.atomic_writes,
        };
        let answer = operation.run(&mut store, &mut standing(START_SECONDS - LONG_BEFORE + number));
        assert_eq!(answer.outcome, Outcome::Done, "{operation}: {}", answer.text);
    }
    let count = 1u128 << (32 - cidr.length());
    Scope {
        name: format!("{} ({})", plan.name, if plan.atomic_writes == 1 { "single keys" } else { "atomic" }),
        atomic_writes: plan.atomic_writes,
        fixed,
        values,
        start,
        addresses: (0..count).filter_map(|nth| cidr.range().nth(nth)).collect(),
        clients: plan.clients.iter().map(|text| operations(text)).collect(),
        faults: plan.faults,
        mutation: plan.mutation,
        repeats_max: if plan.gives_up { 0 } else { REPEATS_MAX },
        may_give_up: plan.gives_up,
        time: START_SECONDS,
        clock_steps: Vec::new(),
        invariant,
        at_end,
    }
}
