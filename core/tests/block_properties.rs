//! The `block` strategy against a naive reference that keeps a map of addresses to owners and nothing else.
//!
//! Random operations of three hosts over small pools; after every step the store is held to the invariants, and what it
//! holds to what was answered. A request fails only if the rules leave no address for that host: [`Rules::bounds`] works
//! that out by visiting every address.

#[path = "block/play/mod.rs"]
mod play;

use plat_core::ipam::{AffinityRelease, Assignment, Error, Holder, Release, Released, Specific};
use plat_core::net::{Address, AddressSet, Family, Prefix};
use plat_stores::memory::MemoryStore;
use play::invariants::{self, State, Strictness};
use play::operation::{Operation, Outcome, Reference, perform};
use play::stores::{Eventful, Incident, Lagging};
use play::world::{self, START_SECONDS, Standing, prefix};
use proptest::prelude::*;
use serde_json::json;
use std::cell::RefCell;

/// The pools: name, IPv4 CIDR, block length, whether only nodes of the zone `x` may use it. Each has an IPv6 twin.
const POOLS: [(&str, &str, u8, bool); 4] = [
    ("p0", "10.0.0.0/29", 30, false),
    ("p1", "10.1.0.0/30", 32, false),
    ("p2", "10.2.0.0/30", 31, true),
    ("p3", "10.3.0.0/31", 31, false),
];
const HOSTS: [&str; 3] = ["a", "b", "c"];
const HANDLES: [&str; 4] = ["h0", "h1", "h2", "h3"];
/// What may be reserved: single addresses, a block, more than a block, a whole pool.
const RESERVABLE: [&str; 5] = ["10.0.0.1/32", "10.0.0.4/30", "10.1.0.0/31", "10.2.0.1/32", "10.3.0.0/31"];

fn twin(cidr: &str) -> String {
    let v4 = prefix(cidr);
    let base = Address::new(Family::V6, (0xfd00u128 << 112) | v4.base().bits()).expect("an address");
    format!("{base}/{}", v4.length() + 96)
}

fn cidr(pool: usize, family: Family) -> Prefix {
    let v4 = POOLS[pool].1;
    if family == Family::V4 { prefix(v4) } else { prefix(&twin(v4)) }
}

fn block_length(pool: usize, family: Family) -> u8 {
    POOLS[pool].2 + if family == Family::V4 { 0 } else { 96 }
}

fn pool_name(pool: usize, family: Family) -> String {
    format!("{}{}", POOLS[pool].0, if family == Family::V4 { "" } else { "-six" })
}

fn addresses(prefix: Prefix) -> impl Iterator<Item = Address> {
    let range = prefix.range();
    (0..).map_while(move |index| range.nth(index))
}

fn pick<T: Clone + std::fmt::Debug>(from: &'static [T]) -> impl Strategy<Value = T> {
    prop::sample::select(from)
}

/// One step. Its text is what a shrunk sequence is read by.
#[derive(Clone, Debug)]
enum Move {
    Assign {
        host: &'static str,
        v4: u32,
        v6: u32,
        handle: Option<&'static str>,
        from: Vec<usize>,
        partial: bool,
        per_handle: bool,
    },
    AssignIp {
        host: &'static str,
        address: Address,
        handle: Option<&'static str>,
    },
    Release {
        address: Address,
        handle: Option<&'static str>,
        number: Option<bool>,
    },
    ReleaseMany(Vec<(Address, Option<&'static str>, Option<bool>)>),
    ReleaseHandle(&'static str),
    Claim {
        host: &'static str,
        pool: usize,
        family: Family,
    },
    ReleaseAffinities {
        host: &'static str,
        only_empty: bool,
    },
    RemoveHost(&'static str),
    Strict(bool),
    BlocksMax(u32),
    AutoAllocate(bool),
    Cooldown(u64),
    Later(u64),
    Reserve(Option<&'static str>),
    Disable(usize),
    Enable(usize),
    DeletePool(usize),
    Relabel {
        host: &'static str,
        into_zone_x: bool,
    },
}

fn any_address() -> impl Strategy<Value = Address> {
    (0..POOLS.len(), any::<bool>(), 0u128..8).prop_map(|(pool, is_v4, index)| {
        let cidr = cidr(pool, if is_v4 { Family::V4 } else { Family::V6 });
        cidr.range().nth(index % (1 << (cidr.family().bits() - cidr.length()))).expect("an address of the pool")
    })
}

fn any_family() -> impl Strategy<Value = Family> {
    prop_oneof![Just(Family::V4), Just(Family::V6)]
}

fn any_assign() -> impl Strategy<Value = Move> {
    let counts = prop_oneof![
        4 => Just((1, 0)),
        2 => Just((0, 1)),
        2 => Just((1, 1)),
        1 => (0u32..5, 0u32..5),
    ];
    let from = prop_oneof![
        3 => Just(Vec::new()),
        1 => (0..POOLS.len()).prop_map(|pool| vec![pool]),
        1 => Just(vec![3, 1, 0]),
    ];
    let handle = prop::option::weighted(0.8, pick(&HANDLES));
    (pick(&HOSTS), counts, handle, from, prop::bool::weighted(0.2), prop::bool::weighted(0.2)).prop_map(
        |(host, (v4, v6), handle, from, partial, limited)| {
            let per_handle = limited && v4 <= 1 && v6 <= 1 && handle.is_some();
            Move::Assign { host, v4, v6, handle, from, partial: partial && !per_handle, per_handle }
        },
    )
}

fn any_use() -> impl Strategy<Value = Move> {
    let handle = || prop::option::of(pick(&HANDLES));
    prop_oneof![
        8 => any_assign(),
        2 => (pick(&HOSTS), any_address(), handle())
            .prop_map(|(host, address, handle)| Move::AssignIp { host, address, handle }),
        6 => (any_address(), handle(), prop::option::of(any::<bool>()))
            .prop_map(|(address, handle, number)| Move::Release { address, handle, number }),
        2 => prop::collection::vec((any_address(), handle(), prop::option::of(any::<bool>())), 2..8)
            .prop_map(Move::ReleaseMany),
        3 => pick(&HANDLES).prop_map(Move::ReleaseHandle),
        1 => (pick(&HOSTS), 0..POOLS.len(), any_family())
            .prop_map(|(host, pool, family)| Move::Claim { host, pool, family }),
        2 => (pick(&HOSTS), any::<bool>())
            .prop_map(|(host, only_empty)| Move::ReleaseAffinities { host, only_empty }),
        1 => pick(&HOSTS).prop_map(Move::RemoveHost),
    ]
}

fn any_change() -> impl Strategy<Value = Move> {
    prop_oneof![
        2 => any::<bool>().prop_map(Move::Strict),
        1 => pick(&[0u32, 1, 2, 3]).prop_map(Move::BlocksMax),
        1 => prop::bool::weighted(0.7).prop_map(Move::AutoAllocate),
        1 => pick(&[0u64, 10, 100]).prop_map(Move::Cooldown),
        4 => pick(&[1u64, 9, 60, 200]).prop_map(Move::Later),
        2 => prop::option::of(pick(&RESERVABLE)).prop_map(Move::Reserve),
        1 => (0..POOLS.len()).prop_map(Move::Disable),
        3 => (0..POOLS.len()).prop_map(Move::Enable),
        1 => (0..POOLS.len()).prop_map(Move::DeletePool),
        1 => (pick(&HOSTS), any::<bool>()).prop_map(|(host, into_zone_x)| Move::Relabel { host, into_zone_x }),
    ]
}

fn any_move() -> impl Strategy<Value = Move> {
    prop_oneof![3 => any_use(), 1 => any_change()]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PoolState {
    Enabled,
    Disabled,
    Gone,
}

/// What administrators have written, as the reference sees it.
#[derive(Clone, Debug)]
struct Rules {
    strict: bool,
    auto_allocate: bool,
    blocks_max: u32,
    cooldown: u64,
    reserved: Option<&'static str>,
    pools: [PoolState; 4],
    in_zone_x: [bool; 3],
}

impl Rules {
    fn reserved(&self) -> AddressSet {
        let both = self.reserved.into_iter().flat_map(|text| [prefix(text).range(), prefix(&twin(text)).range()]);
        AddressSet::from_ranges(both.collect::<Vec<_>>())
    }

    /// The pools that may serve, or none if one of those requested cannot.
    fn usable(&self, host: &str, from: &[usize]) -> Option<Vec<usize>> {
        if !from.is_empty() {
            let all_enabled = from.iter().all(|pool| self.pools[*pool] == PoolState::Enabled);
            return all_enabled.then(|| from.to_vec());
        }
        let zone = self.in_zone_x[HOSTS.iter().position(|name| *name == host).expect("a host")];
        let serves = |pool: &usize| self.pools[*pool] == PoolState::Enabled && (!POOLS[*pool].3 || zone);
        Some((0..POOLS.len()).filter(serves).collect())
    }

    /// How many addresses a host can have by the rules: so many at least, and so many at most. They differ where the
    /// block limit makes it matter which blocks are claimed.
    fn bounds(&self, state: &State, now: u64, host: &str, family: Family, usable: &[usize]) -> (usize, usize) {
        let reserved = self.reserved();
        let me = Some(Holder::Host(host.into()));
        let is_free = |address: &Address| {
            let stored = state.addresses.get(address);
            let cold = || {
                let stored = stored.expect("it is there");
                let block = &state.blocks[&stored.block];
                let ordinal = u32::try_from(address.bits() - stored.block.first().bits()).expect("small");
                let since = block.cooling.get(&ordinal);
                since.is_some_and(|since| now as i64 - since >= self.cooldown as i64)
            };
            !reserved.contains(*address) && (stored.is_none() || cold())
        };
        let is_cold = |block: &invariants::StoredBlock| {
            let is_past = |since: &i64| now as i64 - since >= self.cooldown as i64;
            block.held as usize == block.cooling.len() && block.cooling.values().all(is_past)
        };
        let count = |block: Prefix| addresses(block).filter(is_free).count();
        let (mut own_free, mut owned, mut borrowable) = (0, 0usize, 0);
        // Blocks that can be had, and how many addresses each would give.
        let mut fresh = Vec::new();
        for pool in usable {
            let cidr = cidr(*pool, family);
            for (block, stored) in state.blocks.iter().filter(|(block, _)| cidr.covers(block)) {
                let age = stored.claimed.map(|claimed| now as i64 - claimed);
                let is_old = stored.holder.is_none() || age.is_none_or(|age| age >= 60);
                let whole = addresses(*block).filter(|address| !reserved.contains(*address)).count();
                if stored.holder == me {
                    own_free += count(*block);
                    owned += 1;
                } else if (stored.held == 0 || self.strict && is_cold(stored))
                    && is_old
                    && whole > 0
                    && self.auto_allocate
                {
                    fresh.push(whole);
                } else {
                    borrowable += count(*block);
                }
            }
            let length = block_length(*pool, family);
            let slices = addresses(cidr).filter_map(|first| Prefix::new(first, length)).filter(|s| !s.has_host_bits());
            for slice in slices {
                let is_taken = state.blocks.keys().any(|block| block.overlaps(&slice));
                let whole = addresses(slice).filter(|address| !reserved.contains(*address)).count();
                if !is_taken && whole > 0 && self.auto_allocate {
                    fresh.push(whole);
                }
            }
        }
        let limit = if self.blocks_max == 0 { 20 } else { self.blocks_max as usize };
        let may_claim = limit.saturating_sub(owned);
        fresh.sort_unstable();
        let least: usize = fresh.iter().take(may_claim).sum();
        let most: usize = fresh.iter().rev().take(may_claim).sum();
        let at_limit = fresh.len() >= may_claim && self.auto_allocate || owned >= limit;
        let borrowed = if self.strict || at_limit { 0 } else { borrowable };
        (own_free + least + borrowed, own_free + most + borrowed)
    }
}

struct Run {
    store: MemoryStore,
    clock: Standing,
    rules: Rules,
    reference: Reference,
    strictness: Strictness,
}

impl Run {
    fn new(atomic_writes: Option<u32>) -> Self {
        let rules = Rules {
            strict: false,
            auto_allocate: true,
            blocks_max: 0,
            cooldown: 0,
            reserved: None,
            pools: [PoolState::Enabled; 4],
            in_zone_x: [false; 3],
        };
        let mut run = Self {
            store: atomic_writes.map_or_else(MemoryStore::new, MemoryStore::with_atomic_writes),
            clock: Standing(START_SECONDS),
            rules,
            reference: Reference::default(),
            strictness: Strictness::Settled,
        };
        run.publish();
        run
    }

    /// Writes the resources as the rules have them.
    fn publish(&mut self) {
        let store = &mut self.store;
        for (pool, state) in self.rules.pools.iter().enumerate() {
            for family in [Family::V4, Family::V6] {
                let name = pool_name(pool, family);
                let mut spec = json!({"blockSize": block_length(pool, family)});
                spec["disabled"] = json!(*state == PoolState::Disabled);
                if POOLS[pool].3 {
                    spec["nodeSelector"] = json!("zone == 'x'");
                }
                match state {
                    PoolState::Gone => world::put(store, &format!("pool/{name}"), None),
                    _ => world::pool(store, &name, &cidr(pool, family).to_string(), spec),
                }
            }
        }
        for (host, in_zone_x) in HOSTS.iter().zip(self.rules.in_zone_x) {
            world::labelled(store, "node", host, &[("zone", if in_zone_x { "x" } else { "y" })]);
        }
        match self.rules.reserved {
            None => world::put(store, "reservation/r", None),
            Some(text) => world::reserve(store, "r", &[text, &twin(text)]),
        }
        let spec = json!({
            "strictAffinity": self.rules.strict,
            "autoAllocateBlocks": self.rules.auto_allocate,
            "maxBlocksPerHost": self.rules.blocks_max,
            "ipCooldownSeconds": self.rules.cooldown,
        });
        world::configure(store, json!({}), spec);
    }

    fn operation(&self, step: &Move, state: &State) -> Option<Operation> {
        let host = |name: &str| Holder::Host(name.to_owned());
        Some(match step {
            Move::Assign { .. } => Operation::Assign(vec![assignment(step)]),
            Move::AssignIp { host: name, address, handle } => Operation::AssignIp(vec![Specific {
                address: *address,
                handle: handle.map(str::to_owned),
                holder: host(name),
                purpose: None,
                attributes: [("node".to_owned(), (*name).to_owned())].into(),
                per_handle_max: None,
                edges: None,
            }]),
            Move::Release { address, handle, number } => {
                Operation::Release(vec![release_of(*address, *handle, *number, state)])
            }
            Move::ReleaseMany(items) => {
                let each = items.iter().map(|(address, handle, number)| release_of(*address, *handle, *number, state));
                Operation::Release(each.collect())
            }
            Move::ReleaseHandle(handle) => Operation::ReleaseByHandle(vec![(*handle).to_owned()]),
            Move::Claim { host: name, pool, family } => Operation::Claim(host(name), cidr(*pool, *family)),
            Move::ReleaseAffinities { host: name, only_empty } => Operation::ReleaseAffinities(AffinityRelease {
                holder: Some(host(name)),
                within: None,
                must_be_empty: *only_empty,
                sequence: None,
            }),
            Move::RemoveHost(name) => Operation::RemoveHost(host(name)),
            _ => return None,
        })
    }

    fn change(&mut self, step: &Move) {
        let rules = &mut self.rules;
        match step {
            Move::Strict(strict) => rules.strict = *strict,
            Move::BlocksMax(limit) => rules.blocks_max = *limit,
            Move::AutoAllocate(auto) => rules.auto_allocate = *auto,
            Move::Cooldown(seconds) => rules.cooldown = *seconds,
            Move::Later(seconds) => self.clock.0 += seconds,
            Move::Reserve(prefix) => rules.reserved = *prefix,
            Move::Disable(pool) => rules.pools[*pool] = PoolState::Disabled,
            Move::Enable(pool) => rules.pools[*pool] = PoolState::Enabled,
            Move::DeletePool(pool) => rules.pools[*pool] = PoolState::Gone,
            Move::Relabel { host, into_zone_x } => {
                rules.in_zone_x[HOSTS.iter().position(|name| name == host).expect("a host")] = *into_zone_x;
            }
            _ => unreachable!("an operation"),
        }
        self.publish();
    }

    /// Makes one step, and holds its answer and the state to the rules.
    fn step(&mut self, step: &Move) {
        let before = invariants::read(&self.store);
        let Some(operation) = self.operation(step, &before) else { return self.change(step) };
        let outcome = perform(&operation, &mut self.store, self.clock);
        self.judge(step, &outcome, &before);
        self.reference.learn(&operation, &outcome, Some(&before), self.clock.0, self.rules.cooldown);
        self.check();
    }

    /// Several assignments in one call.
    fn batch(&mut self, items: &[Move]) {
        let before = invariants::read(&self.store);
        let batch = Operation::Assign(items.iter().map(assignment).collect());
        let outcome = perform(&batch, &mut self.store, self.clock);
        self.reference.learn(&batch, &outcome, Some(&before), self.clock.0, self.rules.cooldown);
        self.check();
    }

    fn check(&mut self) {
        let state = invariants::read(&self.store);
        self.reference.compare(&state, self.clock.0, self.rules.cooldown);
        invariants::check(&state, self.strictness);
    }

    /// A step, and another one right before the first one writes its first block.
    fn race(&mut self, one: &Move, other: &Move) {
        if matches!(one, Move::ReleaseMany(_)) {
            // Of many releases some may come before the other step and some after it: there is no one order to learn in.
            return;
        }
        let before = invariants::read(&self.store);
        let (Some(one), Some(other)) = (self.operation(one, &before), self.operation(other, &before)) else { return };
        // Where keys are written one by one, a claim may be left half released when two are at it.
        self.strictness = Strictness::Loose;
        let clock = self.clock;
        let meanwhile = RefCell::new(None);
        let act = |store: &mut MemoryStore| *meanwhile.borrow_mut() = Some(perform(&other, store, clock));
        let incidents = vec![("block/".to_owned(), Incident::Meanwhile(Box::new(act)))];
        let outcome = perform(&one, &mut Eventful::new(&mut self.store, incidents), clock);
        let cooldown = self.rules.cooldown;
        if let Some(outcome) = meanwhile.into_inner() {
            self.reference.learn(&other, &outcome, None, clock.0, cooldown);
        }
        self.reference.learn(&one, &outcome, None, clock.0, cooldown);
        self.check();
    }

    /// A step with a store whose answers are those of an older state where they need not be fresh.
    fn step_behind(&mut self, step: &Move, old: MemoryStore) {
        let before = invariants::read(&self.store);
        let Some(operation) = self.operation(step, &before) else { return self.change(step) };
        // The index may have told of blocks that are not as they were; what that leaves half done is told by the claims.
        self.strictness = Strictness::Loose;
        let outcome = perform(&operation, &mut Lagging { store: &mut self.store, old }, self.clock);
        let text = format!("{outcome:?}");
        assert!(!text.contains("Contended"), "nobody else is at it: {text}");
        // By a configuration of before, an address may be freed at once, or cool that need not.
        self.reference.learn(&operation, &outcome, None, self.clock.0, 0);
        let state = invariants::read(&self.store);
        invariants::check(&state, self.strictness);
        self.reference.compare(&state, self.clock.0, 0);
    }

    fn judge(&self, step: &Move, outcome: &Outcome, before: &State) {
        match (step, outcome) {
            (Move::Assign { .. }, _) => self.judge_assignment(step, outcome, before),
            (Move::AssignIp { host, address, .. }, Outcome::Specific(answers)) => {
                let expected = self.chosen(host, *address, before);
                let got = answers[0].as_ref().map(|grant| grant.address).map_err(kind);
                assert_eq!(got, expected, "{step:?}");
            }
            (Move::Release { address, handle, number }, Outcome::Released(answers)) => {
                let expected = self.returned(*address, *handle, *number, before);
                assert_eq!(answers[0].as_ref().copied().map_err(kind), expected, "{step:?}");
            }
            (Move::ReleaseMany(items), Outcome::Released(answers)) => {
                for (index, (address, handle, number)) in items.iter().enumerate() {
                    // The first item of an address answers for the others of it.
                    if items[..index].iter().all(|(earlier, ..)| earlier != address) {
                        let expected = self.returned(*address, *handle, *number, before);
                        assert_eq!(answers[index].as_ref().copied().map_err(kind), expected, "{address} of {step:?}");
                    }
                }
            }
            (Move::ReleaseHandle(handle), Outcome::ReleasedByHandle(answers)) => {
                let has = self.reference.held.values().any(|stored| stored.handle.as_deref() == Some(handle));
                assert_eq!(answers[0].is_ok(), has, "{step:?}");
            }
            (Move::ReleaseAffinities { .. } | Move::RemoveHost(_), Outcome::Affinities(answer)) => {
                let only_empty = matches!(step, Move::ReleaseAffinities { only_empty: true, .. });
                for one in answer.as_ref().expect("of a holder's blocks") {
                    let is_empty = before.blocks[&one.block].held == 0;
                    assert!(one.outcome.is_ok() == (is_empty || !only_empty) || self.has_cold(before), "{one:?}");
                }
            }
            _ => {}
        }
    }

    /// Whether an address may be cold by now: blocks with such may be empty or not, by who has looked.
    fn has_cold(&self, before: &State) -> bool {
        before.addresses.values().any(|stored| stored.is_cooling)
    }

    fn is_cold(&self, before: &State, address: Address) -> bool {
        let stored = &before.addresses[&address];
        let ordinal = u32::try_from(address.bits() - stored.block.first().bits()).expect("small");
        let since = before.blocks[&stored.block].cooling.get(&ordinal);
        since.is_some_and(|since| self.clock.0 as i64 - since >= self.rules.cooldown as i64)
    }

    /// What a host must be answered that chooses an address.
    fn chosen(&self, host: &str, address: Address, before: &State) -> Result<Address, &'static str> {
        let family = address.family();
        let pool = (0..POOLS.len()).find(|pool| cidr(*pool, family).contains(address)).expect("all are of pools");
        if self.rules.pools[pool] != PoolState::Enabled {
            return Err("not in a pool");
        }
        let block = before.blocks.iter().find(|(block, _)| block.contains(address));
        if let Some((_, block)) = block
            && self.rules.strict
            && block.holder != Some(Holder::Host(host.into()))
        {
            return Err("strict");
        }
        let is_free = !before.addresses.contains_key(&address) || self.is_cold(before, address);
        if is_free { Ok(address) } else { Err("taken") }
    }

    /// What must be answered to a release.
    fn returned(
        &self,
        address: Address,
        handle: Option<&str>,
        number: Option<bool>,
        before: &State,
    ) -> Result<Released, &'static str> {
        if !before.blocks.keys().any(|block| block.contains(address)) {
            return Ok(Released::NotAssigned);
        }
        // A cooling address has its number still; when it is cold it has none.
        let is_cold = before.addresses.contains_key(&address) && self.is_cold(before, address);
        if number == Some(false) || number == Some(true) && is_cold && before.addresses[&address].sequence > 0 {
            return Err("stale");
        }
        let Some(stored) = self.reference.held.get(&address) else { return Ok(Released::NotAssigned) };
        if handle.is_some() && stored.handle.as_deref() != handle {
            return Err("not yours");
        }
        Ok(if self.rules.cooldown > 0 { Released::Cooling } else { Released::Freed })
    }

    fn judge_assignment(&self, step: &Move, outcome: &Outcome, before: &State) {
        let (Move::Assign { host, v4, v6, handle, from, partial, per_handle }, Outcome::Assigned(granted)) =
            (step, outcome)
        else {
            return;
        };
        let granted = &granted[0];
        let usable = self.rules.usable(host, from);
        let (mut must, mut can) = (true, true);
        for (family, wanted) in [(Family::V4, *v4), (Family::V6, *v6)] {
            let wanted = wanted as usize;
            let held = |(address, stored): (&Address, &invariants::Stored)| {
                address.family() == family && stored.handle.as_deref() == *handle
            };
            if wanted == 0 || *per_handle && self.reference.held.iter().filter(|one| held(*one)).count() >= wanted {
                continue;
            }
            let Some(usable) = &usable else {
                (must, can) = (false, false);
                continue;
            };
            let (least, most) = self.rules.bounds(before, self.clock.0, host, family, usable);
            must &= wanted <= least;
            can &= wanted <= most;
            if *partial {
                let got = granted.grants.iter().filter(|grant| grant.address.family() == family).count();
                assert!(got >= wanted.min(least), "{got} of {wanted} {family:?}, and {least} could be had");
                assert!(got <= most, "{got} {family:?}, and only {most} may be had");
            }
        }
        match &granted.failed {
            None => assert!(can, "granted against the rules: {granted:?}"),
            Some(error) => {
                assert!(!must, "{error:?}, though the rules leave what is wanted: {:?}", granted.passed_over);
                let expected = matches!(error, Error::Exhausted { .. } | Error::NoPool(_) | Error::NoSuchPool { .. });
                assert!(expected, "{error:?}");
            }
        }
    }
}

fn release_of(address: Address, handle: Option<&str>, number: Option<bool>, state: &State) -> Release {
    let stored = state.addresses.get(&address).map_or(0, |stored| stored.sequence);
    let sequence = number.map(|is_right| if is_right { stored } else { stored + 1 });
    Release { address, handle: handle.map(str::to_owned), sequence }
}

/// An error by its kind.
fn kind(error: &Error) -> &'static str {
    match error {
        Error::NotInAPool(_) => "not in a pool",
        Error::StrictAffinity(_) => "strict",
        Error::Taken { .. } => "taken",
        Error::StaleSequence(_) => "stale",
        Error::NotYours(_) => "not yours",
        _ => "another error",
    }
}

fn assignment(step: &Move) -> Assignment {
    let Move::Assign { host, v4, v6, handle, from, partial, per_handle } = step else { unreachable!("an assignment") };
    let mut item = Assignment::new(Holder::Host((*host).to_owned()), *v4, *v6);
    item.handle = handle.map(str::to_owned);
    item.v4_pools = from.iter().map(|pool| pool_name(*pool, Family::V4)).collect();
    item.v6_pools = from.iter().map(|pool| pool_name(*pool, Family::V6)).collect();
    item.partial = *partial;
    item.per_handle_max = per_handle.then_some(1);
    item.attributes.insert("node".into(), (*host).to_owned());
    item
}

/// As [`assignment`], under a handle that nobody has. An old handle may be met only when everything is to be written;
/// then the request begins anew, with the blocks that it has claimed, and may get other addresses than at first.
fn under_new_handle(step: &Move, name: &str) -> Assignment {
    let mut item = assignment(step);
    item.handle = item.handle.map(|_| name.to_owned());
    item.per_handle_max = None;
    item
}

/// 64 sequences each, unless PROPTEST_CASES says otherwise.
fn sequences() -> ProptestConfig {
    let mut config =
        ProptestConfig { failure_persistence: None, max_shrink_iters: 20_000, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 64;
    }
    config
}

const STORES: [Option<u32>; 2] = [None, Some(1)];

proptest! {
    #![proptest_config(sequences())]

    #[test]
    fn a_request_fails_only_if_the_rules_leave_nothing(
        steps in prop::collection::vec(any_move(), 1..40),
        atomic_writes in pick(&STORES),
    ) {
        let mut run = Run::new(atomic_writes);
        for step in &steps {
            run.step(step);
        }
    }

    #[test]
    fn two_at_once_leave_the_store_whole(
        steps in prop::collection::vec((any_use(), any_use(), prop::option::weighted(0.3, any_change())), 1..16),
        atomic_writes in pick(&STORES),
    ) {
        let mut run = Run::new(atomic_writes);
        for (one, other, change) in &steps {
            run.race(one, other);
            if let Some(change) = change {
                run.change(change);
            }
        }
    }

    #[test]
    fn a_store_that_lags_gives_nothing_twice(
        steps in prop::collection::vec((any_move(), 0usize..6), 1..40),
        atomic_writes in pick(&STORES),
    ) {
        let mut run = Run::new(atomic_writes);
        let mut past = vec![run.store.clone()];
        for (step, lag) in &steps {
            // Cooldowns of before and after are told apart elsewhere.
            if matches!(step, Move::Cooldown(_)) {
                continue;
            }
            let old = past[past.len().saturating_sub(lag + 1)].clone();
            run.step_behind(step, old);
            past.push(run.store.clone());
        }
    }

    #[test]
    fn batches_leave_the_store_whole(
        steps in prop::collection::vec(prop_oneof![
            any_change().prop_map(|change| vec![change]),
            any_use().prop_map(|one| vec![one]),
            prop::collection::vec(any_assign(), 2..6),
        ], 1..20),
        atomic_writes in pick(&STORES),
    ) {
        let mut run = Run::new(atomic_writes);
        for step in &steps {
            match &step[..] {
                [one] => run.step(one),
                items => run.batch(items),
            }
        }
    }

    #[test]
    fn a_batch_answers_as_its_items_one_by_one(
        steps in prop::collection::vec(any_move(), 0..20),
        items in prop::collection::vec(any_assign(), 2..8),
        atomic_writes in pick(&STORES),
    ) {
        let mut together = Run::new(atomic_writes);
        for step in &steps {
            together.step(step);
        }
        let mut alone = Run {
            store: together.store.clone(),
            clock: together.clock,
            rules: together.rules.clone(),
            reference: together.reference.clone(),
            strictness: Strictness::Settled,
        };
        let before = invariants::read(&together.store);
        let items: Vec<Assignment> =
            items.iter().enumerate().map(|(index, item)| under_new_handle(item, &format!("n{index}"))).collect();
        let batch = Operation::Assign(items.clone());
        let outcome = perform(&batch, &mut together.store, together.clock);
        together.reference.learn(&batch, &outcome, Some(&before), together.clock.0, together.rules.cooldown);
        together.check();
        let Outcome::Assigned(answers) = outcome else { unreachable!("of assignments") };
        for (item, answer) in items.iter().zip(&answers) {
            let one = Operation::Assign(vec![item.clone()]);
            let Outcome::Assigned(expected) = perform(&one, &mut alone.store, alone.clock) else {
                unreachable!("of assignments")
            };
            let told = |granted: &plat_core::ipam::Granted| {
                let grants: Vec<_> = granted.grants.iter().map(|grant| (grant.address, grant.held_before)).collect();
                (grants, granted.failed.clone())
            };
            prop_assert_eq!(told(answer), told(&expected[0]), "{:?}", item);
        }
    }

    #[test]
    fn an_explanation_tells_what_an_assignment_does(
        steps in prop::collection::vec(any_move(), 0..25),
        item in any_assign(),
    ) {
        let mut run = Run::new(None);
        for step in &steps {
            run.step(step);
        }
        let dump = run.store.dump();
        let item = under_new_handle(&item, "new");
        let Outcome::Explained(told) = perform(&Operation::Explain(item.clone()), &mut run.store, run.clock) else {
            unreachable!("of an explanation")
        };
        prop_assert_eq!(&run.store.dump(), &dump, "an explanation leaves no trace");
        let one = Operation::Assign(vec![item]);
        let Outcome::Assigned(done) = perform(&one, &mut run.store, run.clock) else { unreachable!("of assignments") };
        // In any order: before it refuses a part, an assignment looks twice, and a block that it has claimed in its first
        // look comes in its place among the holder's own in the second.
        let grants = |granted: &plat_core::ipam::Granted| {
            let grants = granted.grants.iter().map(|grant| (grant.address, grant.held_before));
            grants.collect::<std::collections::BTreeSet<_>>()
        };
        prop_assert_eq!(grants(&told), grants(&done[0]));
        prop_assert_eq!(&told.failed, &done[0].failed);
    }
}
