//! An operation of the `block` strategy as a value, its outcome, and what the outcome makes of who holds what.

use super::invariants::{State, Stored, is_windows, reserved};
use super::world::Standing;
use plat_core::ipam::{
    self, AffinityOutcome, AffinityRelease, Assignment, BlockDemand, Call, Error, Grant, Granted, Held, Holder,
    OwnerChange, PassOver, PoolUsage, Release, Released, SlotChange, Specific,
};
use plat_core::net::{Address, Count, Family, Prefix};
use plat_core::store::Store;
use std::collections::{BTreeMap, BTreeSet};

/// What is asked.
#[derive(Clone, Debug)]
pub enum Operation {
    Assign(Vec<Assignment>),
    AssignIp(Vec<Specific>),
    Release(Vec<Release>),
    ReleaseByHandle(Vec<String>),
    AddressesByHandle(String),
    Held(Address),
    SetOwners(OwnerChange),
    Claim(Holder, Prefix),
    ReleaseAffinities(AffinityRelease),
    EnsureBlock(BlockDemand),
    RemoveHost(Holder),
    Explain(Assignment),
    Utilization(Vec<String>),
}

/// What is answered.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Assigned(Vec<Granted>),
    Specific(Vec<Result<Grant, Error>>),
    Released(Vec<Result<Released, Error>>),
    ReleasedByHandle(Vec<Result<Vec<Address>, Error>>),
    Addresses(Result<Vec<Held>, Error>),
    Held(Result<Option<Held>, Error>),
    Owners(Result<(), Error>),
    Affinities(Result<Vec<AffinityOutcome>, Error>),
    Block(Result<Prefix, Error>),
    Explained(Granted),
    Usage(Result<Vec<PoolUsage>, Error>),
}

fn one<T>(mut answers: Vec<T>) -> T {
    assert_eq!(answers.len(), 1, "as many answers as items");
    answers.remove(0)
}

/// Asks, once: what is contended stays so.
pub fn perform(operation: &Operation, store: &mut dyn Store, mut clock: Standing) -> Outcome {
    let mut call = Call { store, clock: &mut clock, deadline_ms: 60_000, attempt: 0, why: "test" };
    let call = &mut call;
    match operation.clone() {
        Operation::Assign(items) => Outcome::Assigned(ipam::assign(call, &items)),
        Operation::AssignIp(items) => Outcome::Specific(ipam::assign_ip(call, &items)),
        Operation::Release(items) => Outcome::Released(ipam::release(call, &items)),
        Operation::ReleaseByHandle(handles) => Outcome::ReleasedByHandle(ipam::release_by_handle(call, &handles)),
        Operation::AddressesByHandle(handle) => Outcome::Addresses(one(ipam::addresses_by_handle(call, &[handle]))),
        Operation::Held(address) => Outcome::Held(one(ipam::held(call, &[address]))),
        Operation::SetOwners(change) => Outcome::Owners(one(ipam::set_owner_attributes(call, &[change]))),
        Operation::Claim(holder, cidr) => Outcome::Affinities(one(ipam::claim_affinities(call, &[(holder, cidr)]))),
        Operation::ReleaseAffinities(item) => Outcome::Affinities(one(ipam::release_affinities(call, &[item]))),
        Operation::EnsureBlock(item) => Outcome::Block(one(ipam::ensure_block(call, &[item]))),
        Operation::RemoveHost(holder) => Outcome::Affinities(one(ipam::remove_host(call, &[holder]))),
        Operation::Explain(item) => Outcome::Explained(one(ipam::explain(call, &[item]))),
        Operation::Utilization(pools) => Outcome::Usage(ipam::utilization(call, &pools)),
    }
}

/// Who holds what, as the answers told: a map of addresses to owners, and nothing else.
#[derive(Clone, Debug, Default)]
pub struct Reference {
    pub held: BTreeMap<Address, Stored>,
    /// Since when each is cooling.
    pub cooling: BTreeMap<Address, u64>,
}

impl Reference {
    /// Takes over what a store has: after a caller was cut off nobody knows it from answers.
    pub fn adopt(&mut self, state: &State, now: u64) {
        self.held.clear();
        let known = std::mem::take(&mut self.cooling);
        for (address, stored) in &state.addresses {
            if stored.is_cooling {
                self.cooling.insert(*address, known.get(address).copied().unwrap_or(now));
            } else if !is_windows(stored) {
                self.held.insert(*address, stored.clone());
            }
        }
    }

    /// Learns from an answer, and holds it to what was known: also to the state before, unless others changed it meanwhile.
    pub fn learn(&mut self, operation: &Operation, outcome: &Outcome, before: Option<&State>, now: u64, cooldown: u64) {
        match (operation, outcome) {
            (Operation::Assign(items), Outcome::Assigned(answers)) => {
                assert_eq!(items.len(), answers.len());
                // Later items see what earlier ones did.
                let before = before.filter(|_| items.len() == 1);
                for (item, granted) in items.iter().zip(answers) {
                    self.learn_assignment(item, granted, before, now, cooldown);
                }
            }
            (Operation::AssignIp(items), Outcome::Specific(answers)) => {
                for (item, answer) in items.iter().zip(answers) {
                    let Ok(grant) = answer else { continue };
                    assert_eq!(grant.address, item.address);
                    let given = Stored {
                        block: grant.block,
                        handle: item.handle.clone(),
                        active: item.attributes.clone(),
                        alternate: BTreeMap::new(),
                        sequence: grant.sequence,
                        is_cooling: false,
                    };
                    self.grant(grant, given, now, cooldown);
                }
            }
            (Operation::Release(items), Outcome::Released(answers)) => {
                let mut seen = BTreeSet::new();
                for (item, answer) in items.iter().zip(answers) {
                    if seen.insert(item.address) {
                        self.release(item, answer, now);
                    }
                }
            }
            (Operation::ReleaseByHandle(handles), Outcome::ReleasedByHandle(answers)) => {
                for (handle, answer) in handles.iter().zip(answers) {
                    let has = |stored: &&Stored| stored.handle.as_ref() == Some(handle);
                    let had: BTreeSet<Address> =
                        self.held.iter().filter(|(_, stored)| has(stored)).map(|(address, _)| *address).collect();
                    let Ok(released) = answer else { continue };
                    assert_eq!(released.iter().copied().collect::<BTreeSet<_>>(), had, "released of handle {handle}");
                    for address in had {
                        self.held.remove(&address);
                        if cooldown > 0 {
                            self.cooling.insert(address, now);
                        }
                    }
                }
            }
            (Operation::SetOwners(change), Outcome::Owners(Ok(()))) => self.change_owners(change),
            _ => {}
        }
    }

    fn learn_assignment(
        &mut self,
        item: &Assignment,
        granted: &Granted,
        before: Option<&State>,
        now: u64,
        cooldown: u64,
    ) {
        let mut wanted = BTreeMap::from([(Family::V4, item.v4), (Family::V6, item.v6)]);
        let reserved = before.map(reserved).unwrap_or_default();
        assert!(granted.grants.is_sorted_by_key(|grant| grant.address.family()), "IPv4 comes first");
        for grant in &granted.grants {
            let left = wanted.get_mut(&grant.address.family()).expect("both families");
            *left = left.checked_sub(1).expect("no more than was asked");
            assert!(grant.held_before || !reserved.contains(grant.address), "{} is reserved", grant.address);
            assert!(!item.avoid.contains(&grant.address), "{} was to be avoided", grant.address);
            assert!(grant.pool_cidr.covers(&grant.block), "the pool of {}", grant.address);
            let given = Stored {
                block: grant.block,
                handle: item.handle.clone(),
                active: item.attributes.clone(),
                alternate: BTreeMap::new(),
                sequence: grant.sequence,
                is_cooling: false,
            };
            self.grant(grant, given, now, cooldown);
        }
        let is_short = wanted.values().any(|left| *left > 0);
        assert_eq!(is_short, granted.failed.is_some(), "short, and failed: {granted:?}");
        assert!(item.partial || !is_short || granted.grants.is_empty(), "a part leaks: {granted:?}");
        let keeps_edges = item.v4_edges.is_some() || item.v6_edges.is_some();
        if let Some(before) = before.filter(|_| !keeps_edges) {
            Self::check_reports(granted, before);
        }
    }

    /// The figures of an explanation are those of the store before.
    fn check_reports(granted: &Granted, before: &State) {
        for report in &granted.passed_over {
            assert!(!report.remedy.is_empty(), "{} has no remedy", report.pool);
            assert_eq!(report.capacity, report.cidr.range().len(), "{}", report.pool);
            assert_eq!(report.in_use.checked_add(report.free), Some(report.capacity), "{}", report.pool);
            let held = before.addresses.keys().filter(|address| report.cidr.contains(**address)).count();
            let taken = granted.grants.iter().filter(|grant| report.cidr.contains(grant.address)).count();
            // Counted before this request takes its part, or after.
            let figures = [Count::from(held as u128), Count::from((held + taken) as u128)];
            let thawing = before.blocks.values().any(|block| !block.cooling.is_empty());
            let has_edges =
                before.addresses.values().any(is_windows) || matches!(report.why, PassOver::BlockTooSmall(_));
            assert!(
                figures.contains(&report.in_use) || thawing || has_edges,
                "{}: {} in use, which are {held}",
                report.pool,
                report.in_use
            );
        }
    }

    fn grant(&mut self, grant: &Grant, given: Stored, now: u64, cooldown: u64) {
        assert!(grant.block.contains(grant.address), "{} is not in {}", grant.address, grant.block);
        if let Some(since) = self.cooling.remove(&grant.address) {
            assert!(now.saturating_sub(since) >= cooldown, "{} is cooling", grant.address);
        }
        if grant.held_before {
            let held = self.held.get(&grant.address).expect("it is held");
            assert_eq!(held.handle, given.handle, "{} is another's", grant.address);
            assert_eq!((held.block, held.sequence), (grant.block, grant.sequence), "{}", grant.address);
        } else {
            let other = self.held.insert(grant.address, given);
            assert_eq!(other, None, "{} is granted twice", grant.address);
        }
    }

    fn release(&mut self, item: &Release, answer: &Result<Released, Error>, now: u64) {
        let held = self.held.get(&item.address);
        match answer {
            Ok(Released::NotAssigned) => assert_eq!(held, None, "{} is assigned", item.address),
            Ok(released) => {
                let held = held.unwrap_or_else(|| panic!("{} was not held", item.address));
                assert!(item.sequence.is_none_or(|sequence| sequence == held.sequence), "released with a stale number");
                let handle = item.handle.as_deref().and_then(|handle| handle.split('\r').next());
                assert!(handle.is_none() || handle == held.handle.as_deref(), "released by another");
                self.held.remove(&item.address);
                if *released == Released::Cooling {
                    self.cooling.insert(item.address, now);
                }
            }
            Err(_) => {}
        }
    }

    fn change_owners(&mut self, change: &OwnerChange) {
        let Some(stored) = self.held.get_mut(&change.address) else {
            let is_nothing = change.active == SlotChange::Keep && change.alternate == SlotChange::Keep;
            assert!(is_nothing, "owners of {}, which nobody holds", change.address);
            return;
        };
        for (slot, change) in [(&mut stored.active, &change.active), (&mut stored.alternate, &change.alternate)] {
            match change {
                SlotChange::Keep => {}
                SlotChange::Clear => slot.clear(),
                SlotChange::Set(attributes) => slot.clone_from(attributes),
            }
        }
    }

    /// The store has what the answers told: nothing was given or freed that nobody was told of.
    pub fn compare(&mut self, state: &State, now: u64, cooldown: u64) {
        let held: BTreeMap<Address, Stored> = state
            .addresses
            .iter()
            .filter(|(_, stored)| !stored.is_cooling && !is_windows(stored))
            .map(|(address, stored)| (*address, stored.clone()))
            .collect();
        for (address, stored) in &self.held {
            assert_eq!(held.get(address), Some(stored), "what the store has of {address}");
        }
        for address in held.keys() {
            assert!(self.held.contains_key(address), "{address} is held in the store, and nobody was given it");
        }
        let cooling = |address: &Address| state.addresses.get(address).is_some_and(|stored| stored.is_cooling);
        self.cooling.retain(|address, since| {
            let is_cooling = cooling(address);
            assert!(is_cooling || now.saturating_sub(*since) >= cooldown, "{address} was freed before it was cool");
            is_cooling
        });
        for (address, stored) in &state.addresses {
            assert!(!stored.is_cooling || self.cooling.contains_key(address), "{address} cools and was not released");
        }
    }
}
