//! The operations of the block strategy as clients call them, and what must be true of their store.

use crate::contents::{Alone, Contents, Meaning};
use crate::model::held;
use crate::operation::{Answer, Grant, Operation, Outcome};
use crate::replay::standing;
use crate::scope::End;
use plat_core::clock::Clock;
use plat_core::ipam::{self, AffinityRelease, Assignment, Call, Error, Holder, Release, Released, Specific};
use plat_core::net::{Address, Family, Prefix};
use plat_core::objects::State;
use plat_core::store::Store;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;

/// What a client does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// An address for a pod, as a CNI ADD asks for it: host and handle.
    Assign(String, String),
    /// A certain address: host, handle, address.
    AssignIp(String, String, Address),
    /// The release of what a handle was granted, by address, handle and sequence number.
    ReleaseGranted(String),
    /// The release of an address: address, handle, sequence number.
    Release(Address, String, u64),
    /// As a CNI DEL does it.
    ReleaseByHandle(String),
    /// A host claims a block.
    Claim(String, Prefix),
    /// A host releases its affinities within a prefix: whether only those of empty blocks.
    Unclaim(String, Prefix, bool),
    /// A host wants to have a block.
    Ensure(String),
    /// A host goes away.
    RemoveHost(String),
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Assign(host, handle) => write!(f, "assign {handle} on {host}"),
            Self::AssignIp(host, handle, address) => write!(f, "assign {} to {handle} on {host}", address.to_ip()),
            Self::ReleaseGranted(handle) => write!(f, "release the address of {handle}"),
            Self::Release(address, handle, _) => write!(f, "release {} of {handle}", address.to_ip()),
            Self::ReleaseByHandle(handle) => write!(f, "release by handle {handle}"),
            Self::Claim(host, block) => write!(f, "claim {block} for {host}"),
            Self::Unclaim(host, within, false) => write!(f, "release the affinities of {host} in {within}"),
            Self::Unclaim(host, within, true) => write!(f, "release the empty affinities of {host} in {within}"),
            Self::Ensure(host) => write!(f, "ensure a block for {host}"),
            Self::RemoveHost(host) => write!(f, "remove host {host}"),
        }
    }
}

fn outcome(error: &Error) -> Outcome {
    match error {
        Error::Exhausted { .. } => Outcome::Exhausted,
        Error::Contended | Error::Unsettled => Outcome::Repeat,
        Error::Taken { .. }
        | Error::NotFound(_)
        | Error::NotYours(_)
        | Error::ClaimedBy(_)
        | Error::StaleSequence(_)
        | Error::NotEmpty(_)
        | Error::Overlap(..) => Outcome::Done,
        _ => Outcome::Wrong,
    }
}

fn ended(outcome: Outcome, text: String) -> Answer {
    Answer { outcome, grants: Vec::new(), text }
}

fn failed(error: &Error) -> Answer {
    ended(outcome(error), format!("{error:?}"))
}

fn granted(grants: &[ipam::Grant], handle: &str) -> Answer {
    let one = |grant: &ipam::Grant| Grant {
        address: grant.address,
        handle: handle.into(),
        sequence: grant.sequence,
    };
    let texts: Vec<String> = grants.iter().map(|grant| grant.address.to_ip().to_string()).collect();
    // One address was asked for.
    let outcome = if grants.len() == 1 { Outcome::Done } else { Outcome::Wrong };
    Answer { outcome, grants: grants.iter().map(one).collect(), text: format!("granted {}", texts.join(" ")) }
}

fn affinities(outcomes: &[ipam::AffinityOutcome]) -> Answer {
    let worst = outcomes
        .iter()
        .filter_map(|one| one.outcome.as_ref().err())
        .map(outcome)
        .max_by_key(|outcome| match outcome {
            Outcome::Done => 0,
            Outcome::Repeat => 1,
            Outcome::Exhausted | Outcome::Wrong => 2,
        });
    ended(worst.unwrap_or(Outcome::Done), format!("{:?}", outcomes.iter().map(|one| &one.outcome).collect::<Vec<_>>()))
}

fn only<T>(answers: Vec<T>) -> T {
    answers.into_iter().next().expect("an answer for the item")
}

fn host(name: &str) -> Holder {
    Holder::Host(name.into())
}

impl Operation for Op {
    fn run(&self, store: &mut dyn Store, clock: &mut dyn Clock) -> Answer {
        let call = &mut Call { store, clock, deadline_ms: 10_000, attempt: 0, why: "model" };
        match self {
            Self::Assign(name, handle) => {
                let mut item = Assignment::new(host(name), 1, 0);
                item.handle = Some(handle.clone());
                item.per_handle_max = Some(1);
                item.attributes.insert("node".into(), name.clone());
                let answer = only(ipam::assign(call, &[item]));
                match answer.failed {
                    Some(error) => failed(&error),
                    None => granted(&answer.grants, handle),
                }
            }
            Self::AssignIp(name, handle, address) => {
                let item = Specific {
                    address: *address,
                    handle: Some(handle.clone()),
                    holder: host(name),
                    purpose: None,
                    attributes: ipam::Attributes::new(),
                    per_handle_max: Some(1),
                    edges: None,
                };
                match only(ipam::assign_ip(call, &[item])) {
                    Ok(grant) => granted(&[grant], handle),
                    Err(error) => failed(&error),
                }
            }
            Self::Release(address, handle, sequence) => {
                let item = Release { address: *address, handle: Some(handle.clone()), sequence: Some(*sequence) };
                match only(ipam::release(call, &[item])) {
                    Ok(released @ (Released::Freed | Released::NotAssigned)) => {
                        ended(Outcome::Done, format!("{released:?}"))
                    }
                    Ok(Released::Cooling) => ended(Outcome::Wrong, "cooling, without a cooldown".into()),
                    Err(error) => failed(&error),
                }
            }
            Self::ReleaseGranted(_) => ended(Outcome::Wrong, "nothing was bound".into()),
            Self::ReleaseByHandle(handle) => match only(ipam::release_by_handle(call, std::slice::from_ref(handle))) {
                Ok(released) => ended(Outcome::Done, format!("released {}", released.len())),
                Err(error) => failed(&error),
            },
            Self::Claim(name, block) => match only(ipam::claim_affinities(call, &[(host(name), *block)])) {
                Ok(outcomes) => affinities(&outcomes),
                Err(error) => failed(&error),
            },
            Self::Unclaim(name, within, must_be_empty) => {
                let asked = AffinityRelease {
                    holder: Some(host(name)),
                    within: Some(*within),
                    must_be_empty: *must_be_empty,
                    sequence: None,
                };
                match only(ipam::release_affinities(call, &[asked])) {
                    Ok(outcomes) => affinities(&outcomes),
                    Err(error) => failed(&error),
                }
            }
            Self::Ensure(name) => {
                let item =
                    ipam::BlockDemand { holder: host(name), family: Family::V4, pools: Vec::new(), edges: None };
                match only(ipam::ensure_block(call, &[item])) {
                    Ok(block) => ended(Outcome::Done, format!("has {block}")),
                    // That no address is free is not the question here.
                    Err(error @ Error::Exhausted { .. }) => ended(Outcome::Done, format!("{error:?}")),
                    Err(error) => failed(&error),
                }
            }
            Self::RemoveHost(name) => match only(ipam::remove_host(call, &[host(name)])) {
                Ok(outcomes) => affinities(&outcomes),
                Err(error) => failed(&error),
            },
        }
    }

    fn ends(&self) -> Option<&str> {
        match self {
            Self::Release(_, handle, _) | Self::ReleaseByHandle(handle) => Some(handle),
            _ => None,
        }
    }

    fn takes(&self) -> bool {
        matches!(self, Self::Assign(..))
    }

    fn bound(&self, live: &[Grant]) -> Option<Self> {
        let Self::ReleaseGranted(handle) = self else { return Some(self.clone()) };
        let grant = live.iter().find(|grant| grant.handle.as_ref() == handle)?;
        Some(Self::Release(grant.address, handle.clone(), grant.sequence))
    }

    fn undo(&self) -> Option<Self> {
        match self {
            Self::Assign(_, handle) | Self::AssignIp(_, handle, _) => Some(Self::ReleaseByHandle(handle.clone())),
            _ => None,
        }
    }
}

/// What must be true of a store at any moment, whoever was cut off before.
///
/// # Errors
/// What is not.
pub fn invariant(contents: &Contents) -> Result<(), String> {
    let mut blocks: Vec<(Prefix, usize)> = Vec::new();
    let mut owners: BTreeMap<Address, &Option<Rc<str>>> = BTreeMap::new();
    let mut counted: BTreeMap<(&Rc<str>, Prefix), u32> = BTreeMap::new();
    let mut in_all: BTreeMap<&Rc<str>, u32> = BTreeMap::new();
    for (_, value) in contents.live() {
        let Meaning::Block(prefix, _, held) = &value.meaning else { continue };
        for one in held {
            if owners.insert(one.address, &one.handle).is_some() {
                return Err(format!("{} is held in two blocks", one.address.to_ip()));
            }
            if let Some(handle) = &one.handle {
                *counted.entry((handle, *prefix)).or_default() += 1;
                *in_all.entry(handle).or_default() += 1;
            }
        }
        if let Some((other, _)) = blocks.iter().find(|(other, many)| {
            other.overlaps(prefix) && *many > 0 && !held.is_empty()
        }) {
            return Err(format!("addresses are held in {other} and in {prefix}, which overlap"));
        }
        blocks.push((*prefix, held.len()));
    }
    if let Some((handle, count)) = in_all.iter().find(|(_, count)| **count > 1) {
        return Err(format!("{handle} holds {count} addresses, and may hold one"));
    }
    for ((handle, prefix), count) in counted {
        let told = contents.live().find_map(|(_, value)| match &value.meaning {
            Meaning::Handle(id, counts) if id == handle => {
                Some(counts.iter().find(|(block, _)| *block == prefix).map_or(0, |(_, count)| *count))
            }
            _ => None,
        });
        match told {
            None => return Err(format!("{handle} holds an address of {prefix}, and there is no such handle")),
            Some(told) if told < count => {
                return Err(format!("{handle} counts {told} addresses in {prefix}, and holds {count}"));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// What must be true at an end: hosts go on working, and all that was left behind is found and cleared away by what an
/// operator has: releasing each handle, and removing each host.
///
/// # Errors
/// What is not.
pub fn at_end(end: &mut End<'_>) -> Result<(), String> {
    let mut hosts: BTreeSet<String> = ["a".to_owned(), "b".to_owned()].into();
    for (_, value) in end.contents.live() {
        if let Meaning::Affinity(Holder::Host(name), ..) | Meaning::Block(_, Some(Holder::Host(name)), _) =
            &value.meaning
        {
            hosts.insert(name.clone());
        }
    }
    let mut contents = end.contents.clone();
    let mut free = end.free;
    for name in &hosts {
        let answer = run(end, &mut contents, &Op::Assign(name.clone(), format!("probe-{name}")))?;
        match answer.outcome {
            Outcome::Exhausted if free == 0 => continue,
            Outcome::Done => free = free.saturating_sub(1),
            _ => return Err(format!("in the end {name} asks for an address, {free} are free, and: {}", answer.text)),
        }
        invariant(&contents)?;
        check_owner(&contents, name, answer.grants.first().map(|grant| grant.address))?;
    }
    let mut handles: BTreeSet<String> = BTreeSet::new();
    for (_, value) in contents.live() {
        match &value.meaning {
            Meaning::Handle(id, _) => _ = handles.insert(id.to_string()),
            Meaning::Block(_, _, held) => {
                handles.extend(held.iter().filter_map(|held| held.handle.as_ref()).map(ToString::to_string));
            }
            _ => {}
        }
    }
    for handle in handles {
        let answer = run(end, &mut contents, &Op::ReleaseByHandle(handle.clone()))?;
        if answer.outcome != Outcome::Done {
            return Err(format!("in the end {handle} cannot be released: {}", answer.text));
        }
    }
    if let Some(lost) = held(&contents).next() {
        return Err(format!("in the end {} is held though every handle was released", lost.address.to_ip()));
    }
    for name in &hosts {
        let answer = run(end, &mut contents, &Op::RemoveHost(name.clone()))?;
        if answer.outcome != Outcome::Done {
            return Err(format!("in the end {name} cannot be removed: {}", answer.text));
        }
    }
    for (key, value) in contents.live() {
        match &value.meaning {
            Meaning::Affinity(..) => return Err(format!("in the end {key} is left though every host was removed")),
            Meaning::Block(_, Some(_), _) => {
                return Err(format!("in the end {key} has a holder though every host was removed"));
            }
            Meaning::Handle(..) => return Err(format!("in the end {key} is left though every handle was released")),
            Meaning::Block(..) | Meaning::Other => {}
        }
    }
    Ok(())
}

/// A host's claim is whole once it has taken an address from its own block.
fn check_owner(contents: &Contents, name: &str, address: Option<Address>) -> Result<(), String> {
    let Some(address) = address else { return Err("no address was granted".into()) };
    for (_, value) in contents.live() {
        let Meaning::Block(prefix, holder, _) = &value.meaning else { continue };
        if !prefix.contains(address) || holder.as_ref() != Some(&host(name)) {
            continue;
        }
        let state = contents.live().find_map(|(_, value)| match &value.meaning {
            Meaning::Affinity(whose, of, state) if *whose == host(name) && of == prefix => Some(*state),
            _ => None,
        });
        if state != Some(State::Confirmed) {
            return Err(format!("in the end {name} takes from its block {prefix}, whose affinity is {state:?}"));
        }
    }
    Ok(())
}

fn run(end: &mut End<'_>, contents: &mut Contents, operation: &Op) -> Result<Answer, String> {
    let mut store = Alone { contents, fixed: end.fixed, values: end.values, atomic_writes: end.atomic_writes };
    let answer = operation.run(&mut store, &mut standing(end.time));
    end.time += 1;
    match answer.outcome {
        Outcome::Wrong | Outcome::Repeat => Err(format!("in the end {operation} answers: {}", answer.text)),
        Outcome::Done | Outcome::Exhausted => Ok(answer),
    }
}
