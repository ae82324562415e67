//! A handle: in which blocks an owner has addresses, and how many (`calico.md` 1.4).

use super::members::{Envelope, Members, Unreadable};
use crate::clock::Instant;
use crate::net::Prefix;
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::collections::BTreeMap;

/// An index from a handle's id to blocks. It may count too much after a crash, never too little.
#[derive(Clone, Debug, PartialEq)]
pub struct Handle {
    envelope: Envelope,
    id: String,
    counts: BTreeMap<Prefix, u32>,
    deleted: bool,
    /// Members of the spec that are not known here.
    rest: Members,
}

#[derive(serde::Deserialize)]
struct Known {
    #[serde(rename = "handleID")]
    id: String,
    #[serde(default)]
    block: Option<BTreeMap<String, u32>>,
    #[serde(default)]
    deleted: Option<bool>,
}

impl Handle {
    /// A handle without addresses.
    pub fn new(id: &str, now: Instant) -> Self {
        let envelope = Envelope::new("IPAMHandle", &id.to_lowercase(), now, &[]);
        Self { envelope, id: id.to_owned(), counts: BTreeMap::new(), deleted: false, rest: Members::default() }
    }

    /// Reads the value of a handle's key.
    pub fn parse(value: &[u8]) -> Result<Self, Unreadable> {
        let (envelope, spec) = Envelope::parse(value)?;
        let known: Known = serde_json::from_str(spec.get())?;
        let mut rest: Members = serde_json::from_str(spec.get())?;
        rest.0.retain(|(name, _)| !matches!(name.as_str(), "handleID" | "block" | "deleted"));
        let mut counts = BTreeMap::new();
        for (block, count) in known.block.unwrap_or_default() {
            match Prefix::parse(&block) {
                Ok(prefix) => counts.insert(prefix, count),
                Err(why) => return Err(Unreadable(format!("spec.block names {block:?}: {why}"))),
            };
        }
        Ok(Self { envelope, id: known.id, counts, deleted: known.deleted.unwrap_or_default(), rest })
    }

    /// The value of the handle's key.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.envelope.to_bytes(&SpecOf(self))
    }

    /// The handle's id, as written.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// How many addresses it has in each block.
    pub fn counts(&self) -> &BTreeMap<Prefix, u32> {
        &self.counts
    }

    /// Counts addresses of a block in.
    pub fn add(&mut self, block: Prefix, count: u32) {
        if count > 0 {
            let have = self.counts.entry(block).or_default();
            *have = have.saturating_add(count);
        }
    }

    /// Counts addresses of a block out; false, and nothing is changed, if it does not have as many.
    pub fn subtract(&mut self, block: Prefix, count: u32) -> bool {
        let Some(left) = self.counts.get(&block).and_then(|have| have.checked_sub(count)) else { return false };
        if left == 0 {
            self.counts.remove(&block);
        } else {
            self.counts.insert(block, left);
        }
        true
    }

    /// Whether it has no addresses; such a handle is deleted.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// An id up to its first carriage return: an old migration wrote more into it (`calico.md` 8, #3940).
    pub fn sanitise(id: &str) -> &str {
        id.split('\r').next().unwrap_or_default()
    }
}

struct SpecOf<'h>(&'h Handle);

/// Counts by the text of blocks, in the order in which Go writes a map.
struct Counts<'h>(&'h BTreeMap<Prefix, u32>);

impl Serialize for Counts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut entries: Vec<(String, u32)> = self.0.iter().map(|(block, count)| (block.to_string(), *count)).collect();
        entries.sort_unstable();
        serializer.collect_map(entries)
    }
}

impl Serialize for SpecOf<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("handleID", &self.0.id)?;
        map.serialize_entry("block", &Counts(&self.0.counts))?;
        map.serialize_entry("deleted", &self.0.deleted)?;
        for (name, value) in &self.0.rest.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}
