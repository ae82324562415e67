//! A block: which of its addresses are held, by whom, and in which order free ones are given out (`calico.md` 1.4, 2.6).

use super::members::{Envelope, Members, Name, Unreadable};
use super::{Handle, Holder, time};
use crate::clock::Instant;
use crate::ipam::{Attributes, Edges, Held, SlotChange};
use crate::limits::BLOCK_ADDRESSES_MAX;
use crate::net::{Address, Prefix};
use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt;

/// The handle of ordinals that a Windows host keeps for itself, in lower case (`calico.md` 2.14).
const WINDOWS_HANDLE: &str = "windows-reserved-ipam-handle";

/// What ordinals are held for: one entry for all that are held for the same.
#[derive(Clone, Debug, Default)]
struct Attribute {
    handle: Option<String>,
    /// The active owner, as it was read or as it is written: an object with sorted names.
    active: Option<Box<RawValue>>,
    alternate: Option<Box<RawValue>>,
    /// Since when it is cooling, as written.
    released_at: Option<String>,
    rest: Members,
}

/// Whether two owners are the same, however they are written: others escape and space differently.
fn is_same_owner(one: Option<&RawValue>, other: Option<&RawValue>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => {
            let read = |value: &RawValue| serde_json::from_str::<Attributes>(value.get()).ok();
            one.get() == other.get() || read(one).is_some_and(|one| Some(one) == read(other))
        }
        (one, other) => one.is_none() && other.is_none(),
    }
}

impl PartialEq for Attribute {
    fn eq(&self, other: &Self) -> bool {
        self.handle == other.handle
            && is_same_owner(self.active.as_deref(), other.active.as_deref())
            && is_same_owner(self.alternate.as_deref(), other.alternate.as_deref())
            && self.released_at == other.released_at
            && self.rest == other.rest
    }
}

impl Attribute {
    fn new(handle: Option<&str>, active: &Attributes) -> Self {
        Self { handle: handle.map(str::to_owned), active: to_raw(active), ..Self::default() }
    }

    fn sanitised(&self) -> Option<&str> {
        self.handle.as_deref().map(Handle::sanitise)
    }

    fn is_windows(&self) -> bool {
        self.handle.as_deref().is_some_and(is_windows)
    }
}

fn is_windows(handle: &str) -> bool {
    Handle::sanitise(handle).eq_ignore_ascii_case(WINDOWS_HANDLE)
}

/// None: there are no attributes, and the member is left out.
fn to_raw(attributes: &Attributes) -> Option<Box<RawValue>> {
    if attributes.is_empty() { None } else { serde_json::value::to_raw_value(attributes).ok() }
}

fn to_attributes(value: Option<&RawValue>) -> Attributes {
    // A member that is null or of another type names nobody.
    value.and_then(|value| serde_json::from_str(value.get()).ok()).unwrap_or_default()
}

/// A block.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    envelope: Envelope,
    prefix: Prefix,
    affinity: Option<String>,
    claim_time: Option<String>,
    /// For each ordinal the index of its attribute.
    allocations: Vec<Option<u32>>,
    /// The free ordinals, in the order in which they are given out.
    unallocated: Vec<u32>,
    attributes: Vec<Attribute>,
    sequence: u64,
    sequence_of: BTreeMap<u32, u64>,
    deleted: bool,
    strict: bool,
    /// Members of the spec that are not known here.
    rest: Members,
}

/// What an index says of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glance {
    /// Who holds it.
    pub holder: Option<Holder>,
    /// When it was claimed, in seconds since 1970.
    pub claimed: Option<i64>,
    /// What is left in it.
    pub room: super::keys::Room,
    /// Nobody holds an address of it.
    pub is_empty: bool,
}

impl Block {
    /// A new block of a holder, all of whose ordinals are free but those at its edges that the host keeps.
    pub fn new(prefix: Prefix, holder: &Holder, now: Instant, sequence: u64, edges: Option<&Edges>) -> Self {
        let size = size_of(prefix).unwrap_or(BLOCK_ADDRESSES_MAX);
        let name = super::dialect_name(prefix);
        let mut block = Self {
            envelope: Envelope::new("IPAMBlock", &name, now, &[]),
            prefix,
            affinity: Some(holder.to_string()),
            claim_time: Some(time_text(now)),
            allocations: vec![None; size as usize],
            unallocated: (0..size).collect(),
            attributes: Vec::new(),
            sequence,
            sequence_of: BTreeMap::new(),
            deleted: false,
            strict: false,
            rest: Members::default(),
        };
        if let Some(Edges { first, last, handle, note }) = edges {
            let attributes = Attributes::from([("note".to_owned(), note.clone())]);
            for ordinal in (0..size).filter(|ordinal| ordinal < first || size - ordinal <= *last) {
                block.take_ordinal(ordinal, Some(handle), &attributes);
            }
        }
        block
    }

    /// Reads the value of a block's key.
    ///
    /// # Errors
    /// What breaks an invariant that a block of Calico keeps (`calico.md` 1.4): such a block is left alone.
    pub fn parse(value: &[u8]) -> Result<Self, Unreadable> {
        let (envelope, spec) = Envelope::parse(value)?;
        let Spec {
            cidr,
            affinity,
            claim_time,
            allocations,
            unallocated,
            attributes,
            sequence,
            sequence_of,
            deleted,
            strict,
            rest,
        } = serde_json::from_str(spec.get())?;
        let unreadable = |why: String| Err(Unreadable(why));
        let prefix = match Prefix::parse(&cidr) {
            Ok(prefix) if !prefix.has_host_bits() => prefix,
            _ => return unreadable(format!("spec.cidr {cidr:?} is no block")),
        };
        let Some(size) = size_of(prefix) else {
            return unreadable(format!("spec.cidr {cidr} has more than {BLOCK_ADDRESSES_MAX} addresses"));
        };
        if allocations.len() as u64 != u64::from(size) {
            let count = allocations.len();
            return unreadable(format!("spec.allocations has {count} entries, and the block {size} addresses"));
        }
        if let Some(index) = allocations.iter().flatten().find(|index| **index as usize >= attributes.len()) {
            return unreadable(format!("spec.allocations names the attribute {index}, which is not there"));
        }
        let mut is_free = vec![false; allocations.len()];
        for ordinal in &unallocated {
            match is_free.get_mut(*ordinal as usize) {
                Some(seen) if !*seen => *seen = true,
                Some(_) => return unreadable(format!("spec.unallocated has the ordinal {ordinal} twice")),
                None => return unreadable(format!("spec.unallocated has the ordinal {ordinal} of {size}")),
            }
        }
        let odd = is_free.iter().zip(&allocations).position(|(is_free, allocation)| *is_free == allocation.is_some());
        if let Some(ordinal) = odd {
            let how = if is_free.get(ordinal) == Some(&true) { "both free and held" } else { "neither free nor held" };
            return unreadable(format!("the ordinal {ordinal} is {how}"));
        }
        Ok(Self {
            envelope,
            prefix,
            affinity,
            claim_time,
            allocations,
            unallocated,
            attributes,
            sequence,
            sequence_of,
            deleted,
            strict,
            rest,
        })
    }

    /// The value of the block's key.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.envelope.to_bytes(&SpecOf(self))
    }

    /// What an index says of a block, without reading all of it. None: it is no block.
    pub fn glance(value: &[u8]) -> Option<Glance> {
        let (_, spec) = Envelope::parse(value).ok()?;
        let spec: GlanceSpec = serde_json::from_str(spec.get()).ok()?;
        let (unallocated, attributes) = (spec.unallocated.unwrap_or_default(), spec.attributes.unwrap_or_default());
        let cooling_since = |index: &u32| {
            let attribute: &GlanceAttribute = attributes.get(*index as usize)?;
            attribute.released_at.as_deref().map(|text| time::parse(text).unwrap_or(i64::MAX))
        };
        let mut room = super::keys::Room { free: u32::try_from(unallocated.len()).ok()?, ..Default::default() };
        let mut is_empty = true;
        for index in spec.allocations.iter().flatten() {
            if let Some(since) = cooling_since(index) {
                room.cooling += 1;
                room.coolest = Some(room.coolest.map_or(since, |coolest| coolest.min(since)));
            }
            let handle = attributes.get(*index as usize).and_then(|attribute| attribute.handle_id.as_deref());
            is_empty &= handle.is_some_and(is_windows);
        }
        Some(Glance {
            holder: affinity_of(spec.affinity, spec.host).as_deref().and_then(Holder::parse),
            claimed: spec.claim_time.as_deref().and_then(time::parse),
            room,
            is_empty,
        })
    }

    /// The block's prefix.
    pub fn prefix(&self) -> Prefix {
        self.prefix
    }

    /// How many addresses it has.
    pub fn size(&self) -> u32 {
        u32::try_from(self.allocations.len()).unwrap_or(u32::MAX)
    }

    /// The address of an ordinal; none if the block is smaller.
    pub fn address(&self, ordinal: u32) -> Option<Address> {
        (ordinal < self.size()).then(|| self.prefix.first().checked_add(ordinal.into()))?
    }

    /// The ordinal of an address; none if it is not in the block.
    pub fn ordinal(&self, address: Address) -> Option<u32> {
        if !self.prefix.contains(address) {
            return None;
        }
        u32::try_from(address.bits() - self.prefix.first().bits()).ok()
    }

    /// Who holds the block; none if nobody does, or if what is written names nobody.
    pub fn holder(&self) -> Option<Holder> {
        self.affinity.as_deref().and_then(Holder::parse)
    }

    /// Gives the block to a holder from now on, or to nobody.
    pub fn set_holder(&mut self, holder: Option<&Holder>, now: Instant) {
        self.affinity = holder.map(ToString::to_string);
        self.claim_time = holder.map(|_| time_text(now));
    }

    /// When it was claimed, in seconds since 1970; none on blocks of old versions: very long ago.
    pub fn claimed(&self) -> Option<i64> {
        self.claim_time.as_deref().and_then(time::parse)
    }

    /// The block's sequence number.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Counts a write; done once before each.
    pub fn advance(&mut self) {
        self.sequence = self.sequence.saturating_add(1);
    }

    /// Frees ordinals that have cooled for the configured time, in ascending order; says whether there were any
    /// (`calico.md` 2.9). A negative time frees all.
    pub fn thaw(&mut self, now: Instant, cooldown_seconds: i64) -> bool {
        if self.attributes.iter().all(|attribute| attribute.released_at.is_none()) {
            return false;
        }
        let now = i64::try_from(now.seconds).unwrap_or(i64::MAX);
        let is_cold = |attribute: &Attribute| {
            // A time that cannot be read has never come.
            let since = attribute.released_at.as_deref().and_then(time::parse);
            since.is_some_and(|since| cooldown_seconds < 0 || now.saturating_sub(since) >= cooldown_seconds)
        };
        let cold: Vec<u32> = (0..self.size()).filter(|ordinal| self.attribute(*ordinal).is_some_and(is_cold)).collect();
        self.free_ordinals(&cold);
        !cold.is_empty()
    }

    fn attribute(&self, ordinal: u32) -> Option<&Attribute> {
        let index = self.allocations.get(ordinal as usize).copied().flatten()?;
        self.attributes.get(index as usize)
    }

    /// The index of an attribute, which is added if none is like it.
    fn index_of(&mut self, attribute: Attribute) -> u32 {
        let index = self.attributes.iter().position(|have| *have == attribute).unwrap_or_else(|| {
            self.attributes.push(attribute);
            self.attributes.len() - 1
        });
        u32::try_from(index).unwrap_or(u32::MAX)
    }

    /// Takes free ordinals from the head of the queue for a handle, passing over addresses that `skip` names; those keep
    /// their place (`calico.md` 2.6). Fewer than wanted are taken if there are no more.
    pub fn take(
        &mut self,
        wanted: u32,
        handle: Option<&str>,
        attributes: &Attributes,
        skip: &mut dyn FnMut(Address) -> bool,
    ) -> Vec<u32> {
        let mut taken = Vec::new();
        let (first, size) = (self.prefix.first(), self.size());
        self.unallocated.retain(|ordinal| {
            let enough = taken.len() as u64 >= u64::from(wanted);
            let address = first.checked_add((*ordinal).into()).filter(|_| *ordinal < size);
            if enough || address.is_none_or(&mut *skip) {
                return true;
            }
            taken.push(*ordinal);
            false
        });
        if !taken.is_empty() {
            let index = self.index_of(Attribute::new(handle, attributes));
            for ordinal in &taken {
                self.hold(*ordinal, index);
            }
        }
        taken
    }

    fn hold(&mut self, ordinal: u32, index: u32) {
        if let Some(allocation) = self.allocations.get_mut(ordinal as usize) {
            *allocation = Some(index);
            self.sequence_of.insert(ordinal, self.sequence);
        }
    }

    /// Takes one ordinal; false if it is not free.
    pub fn take_ordinal(&mut self, ordinal: u32, handle: Option<&str>, attributes: &Attributes) -> bool {
        let Some(place) = self.unallocated.iter().position(|free| *free == ordinal) else { return false };
        self.unallocated.remove(place);
        let index = self.index_of(Attribute::new(handle, attributes));
        self.hold(ordinal, index);
        true
    }

    /// Releases held ordinals. With a cooldown they are held on, for nobody, until they are cold; otherwise they go to
    /// the tail of the queue, in the order given.
    pub fn release(&mut self, ordinals: &[u32], now: Instant, cooldown_seconds: i64) {
        let mut held: Vec<u32> = Vec::new();
        for ordinal in ordinals {
            let is_held = self.attribute(*ordinal).is_some_and(|attribute| attribute.released_at.is_none());
            if is_held && !held.contains(ordinal) {
                held.push(*ordinal);
            }
        }
        if cooldown_seconds > 0 && !held.is_empty() {
            let index = self.index_of(Attribute { released_at: Some(time_text(now)), ..Attribute::default() });
            for ordinal in &held {
                if let Some(allocation) = self.allocations.get_mut(*ordinal as usize) {
                    *allocation = Some(index);
                }
            }
            self.drop_unused_attributes();
        } else {
            self.free_ordinals(&held);
        }
    }

    fn free_ordinals(&mut self, ordinals: &[u32]) {
        if ordinals.is_empty() {
            return;
        }
        for ordinal in ordinals {
            if let Some(allocation) = self.allocations.get_mut(*ordinal as usize)
                && allocation.take().is_some()
            {
                self.unallocated.push(*ordinal);
                self.sequence_of.remove(ordinal);
            }
        }
        self.drop_unused_attributes();
    }

    /// Drops attributes that no ordinal names, and numbers the others anew.
    fn drop_unused_attributes(&mut self) {
        let mut is_used = vec![false; self.attributes.len()];
        for index in self.allocations.iter().flatten() {
            if let Some(used) = is_used.get_mut(*index as usize) {
                *used = true;
            }
        }
        if is_used.iter().all(|used| *used) {
            return;
        }
        let mut next = 0;
        let numbers: Vec<u32> = is_used
            .iter()
            .map(|used| {
                let number = next;
                next += u32::from(*used);
                number
            })
            .collect();
        let mut used = is_used.iter();
        self.attributes.retain(|_| used.next() == Some(&true));
        for index in self.allocations.iter_mut().flatten() {
            *index = numbers.get(*index as usize).copied().unwrap_or_default();
        }
    }

    /// The ordinals that a handle holds, in ascending order. Both are cut at the first carriage return, which an old
    /// migration wrote into handles (`calico.md` 8, #3940).
    pub fn ordinals_of_handle(&self, handle: &str) -> Vec<u32> {
        let handle = Handle::sanitise(handle);
        let is_its: Vec<bool> = self
            .attributes
            .iter()
            .map(|attribute| attribute.released_at.is_none() && attribute.sanitised() == Some(handle))
            .collect();
        if !is_its.contains(&true) {
            return Vec::new();
        }
        let holds = |ordinal: &u32| {
            let index = self.allocations.get(*ordinal as usize).copied().flatten();
            index.is_some_and(|index| is_its.get(index as usize) == Some(&true))
        };
        (0..self.size()).filter(holds).collect()
    }

    /// Who holds an ordinal; none if it is free.
    pub fn held(&self, ordinal: u32) -> Option<Held> {
        let attribute = self.attribute(ordinal)?;
        let released_at = attribute.released_at.as_deref();
        Some(Held {
            address: self.address(ordinal)?,
            block: self.prefix,
            block_holder: self.holder(),
            handle: attribute.sanitised().map(str::to_owned),
            sequence: self.sequence_of.get(&ordinal).copied().unwrap_or_default(),
            active: to_attributes(attribute.active.as_deref()),
            alternate: to_attributes(attribute.alternate.as_deref()),
            cooling_since: released_at.map(|text| time::parse(text).unwrap_or(i64::MAX)),
        })
    }

    /// Everybody who holds an ordinal, in the order of addresses.
    pub fn all_held(&self) -> Vec<Held> {
        (0..self.size()).filter_map(|ordinal| self.held(ordinal)).collect()
    }

    /// Changes the owners of an ordinal, and of those only that share its attribute because they were assigned by the
    /// same request (`calico.md` 2.12): the ordinal gets an attribute of its own.
    pub fn set_owners(&mut self, ordinal: u32, active: &SlotChange, alternate: &SlotChange) {
        let Some(mut attribute) = self.attribute(ordinal).cloned() else { return };
        for (slot, change) in [(&mut attribute.active, active), (&mut attribute.alternate, alternate)] {
            match change {
                SlotChange::Keep => {}
                SlotChange::Clear => *slot = None,
                SlotChange::Set(attributes) => *slot = to_raw(attributes),
            }
        }
        let index = self.index_of(attribute);
        if let Some(allocation) = self.allocations.get_mut(ordinal as usize) {
            *allocation = Some(index);
        }
        self.drop_unused_attributes();
    }

    /// How many ordinals are free.
    pub fn free(&self) -> u32 {
        u32::try_from(self.unallocated.len()).unwrap_or(u32::MAX)
    }

    /// How many ordinals are cooling.
    pub fn cooling(&self) -> u32 {
        let cooling = self.allocations.iter().flatten().filter(|index| {
            self.attributes.get(**index as usize).is_some_and(|attribute| attribute.released_at.is_some())
        });
        u32::try_from(cooling.count()).unwrap_or(u32::MAX)
    }

    /// How many ordinals are free whose addresses `skip` does not name.
    pub fn free_unless(&self, skip: &mut dyn FnMut(Address) -> bool) -> u32 {
        let free = self.unallocated.iter().filter_map(|ordinal| self.address(*ordinal)).filter(|at| !skip(*at));
        u32::try_from(free.count()).unwrap_or(u32::MAX)
    }

    /// Whether nobody holds an ordinal. Those that a Windows host keeps for itself do not count; cooling ones do
    /// (`calico.md` 2.10).
    pub fn is_empty(&self) -> bool {
        let size = self.allocations.len();
        self.unallocated.len() == size
            || self
                .allocations
                .iter()
                .flatten()
                .all(|index| self.attributes.get(*index as usize).is_some_and(Attribute::is_windows))
    }
}

/// How many addresses a block has; none if it is larger than any block may be.
fn size_of(prefix: Prefix) -> Option<u32> {
    let bits = prefix.family().bits().saturating_sub(prefix.length());
    1u32.checked_shl(bits.into()).filter(|size| *size <= BLOCK_ADDRESSES_MAX)
}

fn time_text(now: Instant) -> String {
    time::to_text(i64::try_from(now.seconds).unwrap_or(i64::MAX))
}

/// Who holds a block, as written; the first versions had the name of a host alone, as `hostAffinity` (`calico.md` 1.4).
fn affinity_of(affinity: Option<String>, host: Option<String>) -> Option<String> {
    affinity.or_else(|| host.filter(|host| !host.is_empty()).map(|host| Holder::Host(host).to_string()))
}

/// The spec of a block as it is read.
#[derive(Default)]
struct Spec {
    cidr: String,
    affinity: Option<String>,
    claim_time: Option<String>,
    allocations: Vec<Option<u32>>,
    unallocated: Vec<u32>,
    attributes: Vec<Attribute>,
    sequence: u64,
    sequence_of: BTreeMap<u32, u64>,
    deleted: bool,
    strict: bool,
    rest: Members,
}

impl<'de> Deserialize<'de> for Spec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Spec;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the spec of a block")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Spec, A::Error> {
                let mut spec = Spec::default();
                let mut host: Option<String> = None;
                while let Some(Name(name)) = map.next_key()? {
                    match name.as_ref() {
                        "cidr" => spec.cidr = map.next_value::<Option<_>>()?.unwrap_or_default(),
                        "affinity" => spec.affinity = map.next_value()?,
                        "hostAffinity" => host = map.next_value()?,
                        "affinityClaimTime" => spec.claim_time = map.next_value()?,
                        // Go writes an empty slice that was never made as null.
                        "allocations" => spec.allocations = map.next_value::<Option<_>>()?.unwrap_or_default(),
                        "unallocated" => spec.unallocated = map.next_value::<Option<_>>()?.unwrap_or_default(),
                        "attributes" => spec.attributes = map.next_value::<Option<_>>()?.unwrap_or_default(),
                        "sequenceNumber" => spec.sequence = map.next_value::<Option<_>>()?.unwrap_or_default(),
                        "sequenceNumberForAllocation" => map.next_value_seed(Sequences(&mut spec.sequence_of))?,
                        "deleted" => spec.deleted = map.next_value::<Option<_>>()?.unwrap_or_default(),
                        "strictAffinity" => spec.strict = map.next_value::<Option<_>>()?.unwrap_or_default(),
                        _ => {
                            let name = name.into_owned();
                            spec.rest.0.push((name, map.next_value()?));
                        }
                    }
                }
                spec.affinity = affinity_of(spec.affinity, host);
                Ok(spec)
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

/// Reads `{"0": 5, ...}`, or null.
struct Sequences<'s>(&'s mut BTreeMap<u32, u64>);

impl<'de> DeserializeSeed<'de> for Sequences<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Sequences<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sequence numbers by ordinal")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some((Name(ordinal), sequence)) = map.next_entry::<Name<'de>, u64>()? {
            let ordinal =
                ordinal.parse().map_err(|_| serde::de::Error::custom(format!("{ordinal:?} is no ordinal")))?;
            self.0.insert(ordinal, sequence);
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Attribute {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Attribute;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an attribute of a block")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Attribute, A::Error> {
                let mut attribute = Attribute::default();
                while let Some(Name(name)) = map.next_key()? {
                    match name.as_ref() {
                        "handle_id" => attribute.handle = map.next_value()?,
                        "secondary" => attribute.active = present(map.next_value()?),
                        "alternateOwnerAttrs" => attribute.alternate = present(map.next_value()?),
                        "releasedAt" => attribute.released_at = map.next_value()?,
                        _ => {
                            let name = name.into_owned();
                            attribute.rest.0.push((name, map.next_value()?));
                        }
                    }
                }
                Ok(attribute)
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

/// What null and `{}` stand for is left out.
fn present(value: Box<RawValue>) -> Option<Box<RawValue>> {
    (!matches!(value.get(), "null" | "{}")).then_some(value)
}

impl Serialize for Attribute {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Some(handle) = &self.handle {
            map.serialize_entry("handle_id", handle)?;
        }
        if let Some(active) = &self.active {
            map.serialize_entry("secondary", active)?;
        }
        if let Some(alternate) = &self.alternate {
            map.serialize_entry("alternateOwnerAttrs", alternate)?;
        }
        if let Some(released_at) = &self.released_at {
            map.serialize_entry("releasedAt", released_at)?;
        }
        for (name, value) in &self.rest.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// Sequence numbers by ordinal, in the order in which Go writes a map with text keys.
struct InTextOrder<'b>(&'b BTreeMap<u32, u64>);

impl Serialize for InTextOrder<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut entries: Vec<(String, u64)> =
            self.0.iter().map(|(ordinal, sequence)| (ordinal.to_string(), *sequence)).collect();
        entries.sort_unstable();
        let mut map = serializer.serialize_map(Some(entries.len()))?;
        for (ordinal, sequence) in &entries {
            map.serialize_entry(ordinal, sequence)?;
        }
        map.end()
    }
}

struct SpecOf<'b>(&'b Block);

impl Serialize for SpecOf<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let block = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("cidr", &block.prefix.to_string())?;
        if let Some(affinity) = &block.affinity {
            map.serialize_entry("affinity", affinity)?;
        }
        if let Some(claim_time) = &block.claim_time {
            map.serialize_entry("affinityClaimTime", claim_time)?;
        }
        map.serialize_entry("allocations", &block.allocations)?;
        map.serialize_entry("unallocated", &block.unallocated)?;
        map.serialize_entry("attributes", &block.attributes)?;
        map.serialize_entry("sequenceNumber", &block.sequence)?;
        map.serialize_entry("sequenceNumberForAllocation", &InTextOrder(&block.sequence_of))?;
        map.serialize_entry("deleted", &block.deleted)?;
        map.serialize_entry("strictAffinity", &block.strict)?;
        for (name, value) in &block.rest.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// As much of a block as an index needs.
#[derive(serde::Deserialize)]
struct GlanceSpec {
    #[serde(default)]
    affinity: Option<String>,
    #[serde(default, rename = "hostAffinity")]
    host: Option<String>,
    #[serde(default, rename = "affinityClaimTime")]
    claim_time: Option<String>,
    allocations: Vec<Option<u32>>,
    // Go writes an empty slice that was never made as null.
    #[serde(default)]
    unallocated: Option<Vec<IgnoredAny>>,
    #[serde(default)]
    attributes: Option<Vec<GlanceAttribute>>,
}

#[derive(serde::Deserialize)]
struct GlanceAttribute {
    #[serde(default)]
    handle_id: Option<String>,
    #[serde(default, rename = "releasedAt")]
    released_at: Option<String>,
}
