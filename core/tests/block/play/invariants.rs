//! What must be true of a store after every step, looked at in the stored JSON itself, without the core's own readers.

use plat_core::ipam::Attributes;
use plat_core::net::{Address, AddressSet, Family, Prefix};
use plat_core::objects::Holder;
use plat_core::objects::keys::{affinity_of_key, block_of_key, handle_of_key};
use plat_stores::memory::MemoryStore;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The handle of what a Windows host keeps for itself; no handle object counts it.
pub const WINDOWS_HANDLE: &str = "windows-reserved-ipam-handle";

/// One address as its block has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    pub block: Prefix,
    pub handle: Option<String>,
    pub active: Attributes,
    pub alternate: Attributes,
    pub sequence: u64,
    pub is_cooling: bool,
}

/// One block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredBlock {
    pub holder: Option<Holder>,
    pub claimed: Option<i64>,
    pub sequence: u64,
    pub size: u32,
    pub free: u32,
    /// Since when each ordinal that is cooling is cooling.
    pub cooling: BTreeMap<u32, i64>,
    /// Held otherwise than by a Windows host, cooling ones included.
    pub held: u32,
}

/// The state of a store.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub addresses: BTreeMap<Address, Stored>,
    pub blocks: BTreeMap<Prefix, StoredBlock>,
    pub handles: BTreeMap<String, BTreeMap<Prefix, u32>>,
    pub affinities: BTreeMap<(Holder, Prefix), String>,
    pub reserved: Vec<Prefix>,
    derived: BTreeMap<String, String>,
}

fn sanitised(handle: &str) -> &str {
    handle.split('\r').next().expect("a first part")
}

pub fn is_windows(stored: &Stored) -> bool {
    stored.handle.as_deref().is_some_and(|handle| handle.eq_ignore_ascii_case(WINDOWS_HANDLE))
}

fn attributes(value: &Value) -> Attributes {
    let object = value.as_object().into_iter().flatten();
    object.map(|(key, value)| (key.clone(), value.as_str().expect("a text").to_owned())).collect()
}

/// Seconds since 1970 of a time in UTC.
fn seconds(text: &str) -> i64 {
    assert!(text.ends_with('Z'), "{text} is not in UTC");
    let part = |from: usize, to: usize| text[from..to].parse::<i64>().expect("digits");
    let (year, month, day) = (part(0, 4), part(5, 7), part(8, 10));
    let (y, m) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719_468;
    days * 86_400 + part(11, 13) * 3600 + part(14, 16) * 60 + part(17, 19)
}

/// Reads everything, and holds each object to the invariants of its own (`calico.md` 1.4).
pub fn read(store: &MemoryStore) -> State {
    let mut state = State::default();
    for (key, bytes) in store.dump() {
        let value: Value = match key.split('/').next() {
            Some("block" | "affinity" | "handle" | "reservation") => serde_json::from_slice(&bytes).expect("JSON"),
            Some("room" | "empty" | "owned") => {
                state.derived.insert(key, String::from_utf8(bytes).expect("text"));
                continue;
            }
            _ => continue,
        };
        let spec = &value["spec"];
        if let Some(prefix) = block_of_key(&key) {
            read_block(&mut state, prefix, spec);
        } else if let Some((holder, prefix)) = affinity_of_key(&key) {
            let text = spec["state"].as_str().filter(|text| !text.is_empty()).unwrap_or("confirmed");
            state.affinities.insert((holder, prefix), text.to_owned());
        } else if let Some(id) = handle_of_key(&key) {
            let counts = spec["block"].as_object().expect("blocks").iter();
            let counts = counts.map(|(block, count)| {
                (
                    Prefix::parse(block).expect("a block"),
                    u32::try_from(count.as_u64().expect("a count")).expect("small"),
                )
            });
            state.handles.insert(id, counts.collect());
        } else {
            let entries = spec["reservedCIDRs"].as_array().into_iter().flatten().filter_map(Value::as_str);
            state.reserved.extend(entries.filter_map(|text| {
                let text = text.trim();
                let address = Address::parse(text).and_then(|address| Prefix::new(address, address.family().bits()));
                address.or_else(|| Prefix::parse(text).ok())
            }));
        }
    }
    state
}

fn read_block(state: &mut State, prefix: Prefix, spec: &Value) {
    assert_eq!(spec["cidr"], prefix.to_string(), "the block's key and its cidr");
    let size = 1usize << (prefix.family().bits() - prefix.length());
    let allocations = spec["allocations"].as_array().expect("allocations");
    assert_eq!(allocations.len(), size, "{prefix}: allocations");
    let free: Vec<u64> =
        spec["unallocated"].as_array().expect("unallocated").iter().map(|o| o.as_u64().expect("an ordinal")).collect();
    let unique: BTreeSet<u64> = free.iter().copied().collect();
    assert_eq!(unique.len(), free.len(), "{prefix}: an ordinal is free twice: {free:?}");
    let entries = spec["attributes"].as_array().expect("attributes");
    let mut used = BTreeSet::new();
    let mut block = StoredBlock {
        holder: spec["affinity"].as_str().map(|text| Holder::parse(text).expect("a holder")),
        claimed: spec["affinityClaimTime"].as_str().map(seconds),
        sequence: spec["sequenceNumber"].as_u64().expect("a sequence number"),
        size: u32::try_from(size).expect("small"),
        free: u32::try_from(free.len()).expect("small"),
        cooling: BTreeMap::new(),
        held: 0,
    };
    for (ordinal, index) in allocations.iter().enumerate() {
        let is_free = unique.contains(&(ordinal as u64));
        assert_eq!(is_free, index.is_null(), "{prefix}: ordinal {ordinal} is free and held, or neither");
        let sequence = spec["sequenceNumberForAllocation"][ordinal.to_string()].as_u64();
        let Some(index) = index.as_u64() else {
            assert_eq!(sequence, None, "{prefix}: the free ordinal {ordinal} has a sequence number");
            continue;
        };
        let attribute = entries.get(usize::try_from(index).expect("small")).expect("an attribute");
        used.insert(index);
        let released = attribute["releasedAt"].as_str().map(seconds);
        let stored = Stored {
            block: prefix,
            handle: attribute["handle_id"].as_str().map(|handle| sanitised(handle).to_owned()),
            active: attributes(&attribute["secondary"]),
            alternate: attributes(&attribute["alternateOwnerAttrs"]),
            sequence: sequence.unwrap_or(0),
            is_cooling: released.is_some(),
        };
        if let Some(released) = released {
            block.cooling.insert(u32::try_from(ordinal).expect("small"), released);
            assert!(
                stored.handle.is_none() && stored.active.is_empty(),
                "{prefix}: ordinal {ordinal} cools and is held"
            );
        } else if sequence.is_some() && !is_windows(&stored) {
            assert!(stored.sequence < block.sequence, "{prefix}: an allocation is as new as the block");
        }
        if !is_windows(&stored) {
            block.held += 1;
        }
        let address = prefix.range().nth(ordinal as u128).expect("an address of the block");
        let other = state.addresses.insert(address, stored);
        assert_eq!(other, None, "{address} is held twice");
    }
    assert_eq!(used.len(), entries.len(), "{prefix}: an attribute that no ordinal has");
    state.blocks.insert(prefix, block);
}

/// How much is expected of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// After operations that ended: indexes and claims agree with the blocks.
    Settled,
    /// After an operation that was cut off: indexes may tell too much, never too little.
    Loose,
}

/// The invariants between objects.
pub fn check(state: &State, strictness: Strictness) {
    let blocks: Vec<Prefix> = state.blocks.keys().copied().collect();
    for pair in blocks.windows(2) {
        // In address order an overlap is one of neighbours.
        assert!(!pair[0].overlaps(&pair[1]), "blocks overlap: {} and {}", pair[0], pair[1]);
    }
    check_handles(state, strictness);
    check_claims(state, strictness);
    check_derived(state);
}

fn check_handles(state: &State, strictness: Strictness) {
    let mut counted: BTreeMap<&str, BTreeMap<Prefix, u32>> = BTreeMap::new();
    for stored in state.addresses.values().filter(|stored| !is_windows(stored)) {
        if let Some(handle) = &stored.handle {
            *counted.entry(handle).or_default().entry(stored.block).or_default() += 1;
        }
    }
    for (id, blocks) in &counted {
        let counts = state.handles.get(*id).unwrap_or_else(|| panic!("{id} holds addresses and is no handle"));
        for (block, count) in blocks {
            let told = counts.get(block).copied().unwrap_or(0);
            let agrees = if strictness == Strictness::Settled { told == *count } else { told >= *count };
            assert!(agrees, "handle {id} counts {told} in {block}, which has {count}");
        }
    }
    if strictness == Strictness::Settled {
        for (id, blocks) in &state.handles {
            let held = counted.get(id.as_str());
            assert_eq!(held, Some(blocks), "handle {id} counts what is not held");
        }
    }
}

fn check_claims(state: &State, strictness: Strictness) {
    for (prefix, block) in &state.blocks {
        if let (Some(holder), Strictness::Settled) = (&block.holder, strictness) {
            let claim = state.affinities.get(&(holder.clone(), *prefix)).map(String::as_str);
            assert_eq!(claim, Some("confirmed"), "the affinity of {holder} to its block {prefix}");
        }
    }
    if strictness == Strictness::Settled {
        for ((holder, prefix), text) in &state.affinities {
            let has = state.blocks.get(prefix).is_some_and(|block| block.holder.as_ref() == Some(holder));
            assert!(has, "{holder} has a {text} affinity to {prefix}, which is not its block");
        }
    }
}

fn hex(prefix: Prefix) -> String {
    let family = if prefix.family() == Family::V4 { "v4" } else { "v6" };
    format!("{family}/{}/{}", prefix.length(), prefix.network().to_hex())
}

/// The index is what follows from the blocks, and nothing else.
fn check_derived(state: &State) {
    let mut expected = BTreeMap::new();
    let dash = |seconds: Option<i64>| seconds.map_or("-".to_owned(), |seconds| seconds.to_string());
    for (prefix, block) in &state.blocks {
        let room = format!("{} {} {}", block.free, block.cooling.len(), dash(block.cooling.values().min().copied()));
        let ending = hex(*prefix);
        if block.free > 0 || !block.cooling.is_empty() {
            expected.insert(format!("room/{ending}"), room.clone());
        }
        if block.held == 0 {
            let holder = block.holder.as_ref().map_or("-".to_owned(), ToString::to_string);
            expected.insert(format!("empty/{ending}"), format!("{} {holder}", dash(block.claimed)));
        }
        if let Some(holder) = &block.holder {
            // Names of the tests' holders need no encoding.
            expected.insert(format!("owned/{}/{}/{ending}", holder.kind(), holder.name()), room);
        }
    }
    assert_eq!(state.derived, expected, "the derived index");
}

/// All reserved addresses.
pub fn reserved(state: &State) -> AddressSet {
    AddressSet::from_ranges(state.reserved.iter().map(Prefix::range))
}
