//! The embedded store of the `block` strategy as others see it: filled before a test, read and judged after it.
//!
//! It knows the objects, and no rule by which addresses are chosen.
#![allow(dead_code, reason = "each test that includes this uses a part of it")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use plat_core::ipam::{Attributes, Held, Holder};
use plat_core::net::Address;
use plat_core::objects::keys::{affinity_of_key, block_of_key, derived, handle_of_key, is_derived};
use plat_core::objects::{Affinity, Block, Handle, State};
use plat_core::store::{Action, Durability, Entry, Event, Expected, Store as _, Write};
use plat_stores::sqlite::{Options, SqliteStore};
use serde_json::{Value, json};

/// The store in one file.
#[derive(Clone, Debug)]
pub(crate) struct Embedded {
    path: PathBuf,
}

impl Embedded {
    /// The store at `path`; nothing is touched yet.
    pub(crate) fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The path of the lock that a call holds.
    pub(crate) fn lock(&self) -> PathBuf {
        let mut path = self.path.as_os_str().to_owned();
        path.push(".lock");
        path.into()
    }

    fn open(&self, create: bool) -> SqliteStore {
        SqliteStore::new(&self.path, Options { exclusive: create, lock_wait_max: Duration::from_secs(10), create })
    }

    /// Writes entries; a store that is not there is made.
    ///
    /// # Errors
    /// What the store says.
    pub(crate) fn put(&self, entries: &[(String, String)]) -> Result<(), String> {
        let batch: Vec<Write> = entries
            .iter()
            .map(|(key, value)| Write {
                key: key.clone(),
                expected: Expected::Absent,
                action: Action::Put(value.clone().into_bytes()),
            })
            .collect();
        self.open(true).commit(&batch, &[], Durability::Process).map(drop).map_err(|error| error.to_string())
    }

    /// Everything in it, in byte order of the keys; nothing if there is no store.
    ///
    /// # Errors
    /// What the store says.
    pub(crate) fn entries(&self) -> Result<Vec<Entry>, String> {
        let mut store = self.open(false);
        let mut entries = Vec::new();
        let mut from = None;
        loop {
            let page = store.scan("", from.as_deref(), 1024, false, true).map_err(|error| error.to_string())?;
            entries.extend(page.entries);
            match page.next {
                Some(next) => from = Some(next),
                None => return Ok(entries),
            }
        }
    }

    /// The journal, oldest first.
    ///
    /// # Errors
    /// What the store says.
    pub(crate) fn events(&self) -> Result<Vec<Event>, String> {
        self.open(false).events().map_err(|error| error.to_string())
    }

    /// What it holds, and what is wrong with it.
    ///
    /// # Errors
    /// What the store says, or which object cannot be read.
    pub(crate) fn survey(&self) -> Result<Survey, String> {
        Survey::of(&self.entries()?)
    }
}

/// An object as stores keep it.
pub(crate) fn object(kind: &str, name: &str, spec: &Value) -> String {
    json!({"kind": kind, "apiVersion": "projectcalico.org/v3", "metadata": {"name": name}, "spec": spec}).to_string()
}

/// The entry of a pool that every node may use, unless `spec` says otherwise.
pub(crate) fn pool(name: &str, spec: &Value) -> (String, String) {
    let mut whole = json!({"nodeSelector": "all()"});
    if let (Some(whole), Some(spec)) = (whole.as_object_mut(), spec.as_object()) {
        whole.extend(spec.clone());
    }
    (format!("pool/{name}"), object("IPPool", name, &whole))
}

/// What a store holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Survey {
    /// The addresses in use.
    pub(crate) held: BTreeMap<Address, Held>,
    /// Who has each block; none: nobody.
    pub(crate) blocks: BTreeMap<String, Option<String>>,
    /// How many claims are half done: a killed call leaves them, and their owner's next call completes them.
    pub(crate) half_done: usize,
    /// What must not be: blocks that overlap, counts that disagree, indexes that lie.
    pub(crate) faults: Vec<String>,
}

impl Survey {
    fn of(entries: &[Entry]) -> Result<Self, String> {
        let mut survey = Self::default();
        let mut blocks: Vec<Block> = Vec::new();
        let mut handles: BTreeMap<String, Handle> = BTreeMap::new();
        let mut affinities = BTreeMap::new();
        let (mut kept, mut due) = (BTreeMap::new(), BTreeMap::new());
        for entry in entries {
            let unreadable = |why: &dyn std::fmt::Display| format!("{}: {why}", entry.key);
            if is_derived(&entry.key) {
                kept.insert(entry.key.clone(), entry.value.clone());
            } else if block_of_key(&entry.key).is_some() {
                due.extend(derived(&entry.key, &entry.value));
                blocks.push(Block::parse(&entry.value).map_err(|why| unreadable(&why))?);
            } else if let Some(id) = handle_of_key(&entry.key) {
                handles.insert(id, Handle::parse(&entry.value).map_err(|why| unreadable(&why))?);
            } else if let Some((holder, block)) = affinity_of_key(&entry.key) {
                let claim = Affinity::parse(&entry.value).map_err(|why| unreadable(&why))?;
                affinities.insert((block, holder.to_string()), claim.state());
            }
        }
        if kept != due {
            survey.faults.push(format!("the indexes are {kept:?} where the blocks say {due:?}"));
        }
        survey.judge(&blocks, &handles, &affinities);
        Ok(survey)
    }

    fn judge(
        &mut self,
        blocks: &[Block],
        handles: &BTreeMap<String, Handle>,
        affinities: &BTreeMap<(plat_core::net::Prefix, String), State>,
    ) {
        let mut counted: BTreeMap<String, BTreeMap<plat_core::net::Prefix, u32>> = BTreeMap::new();
        let mut claimed = BTreeSet::new();
        for block in blocks {
            let prefix = block.prefix();
            let holder = block.holder().as_ref().map(Holder::to_string);
            claimed.extend(holder.clone().map(|holder| (prefix, holder)));
            self.blocks.insert(prefix.to_string(), holder);
            for held in block.all_held() {
                if held.cooling_since.is_some() {
                    continue;
                }
                if let Some(handle) = &held.handle {
                    *counted.entry(handle.clone()).or_default().entry(prefix).or_default() += 1;
                }
                if let Some(other) = self.held.insert(held.address, held.clone()) {
                    self.faults.push(format!("{} is held twice: {other:?} and {held:?}", held.address));
                }
            }
        }
        for (index, one) in blocks.iter().enumerate() {
            for other in blocks.iter().skip(index + 1) {
                let (one, other) = (one.prefix(), other.prefix());
                if one.covers(&other) || other.covers(&one) {
                    self.faults.push(format!("the blocks {one} and {other} overlap"));
                }
            }
        }
        let written: BTreeMap<String, BTreeMap<_, _>> =
            handles.iter().map(|(id, handle)| (Handle::sanitise(id).to_owned(), handle.counts().clone())).collect();
        for id in written.keys().chain(counted.keys()).collect::<BTreeSet<_>>() {
            if written.get(id) != counted.get(id) {
                self.faults.push(format!(
                    "the handle {id} counts {:?} where the blocks hold {:?}",
                    written.get(id),
                    counted.get(id)
                ));
            }
        }
        self.half_done = affinities.values().filter(|state| **state != State::Confirmed).count();
        let confirmed = affinities.iter().filter(|(_, state)| **state == State::Confirmed).map(|(claim, _)| claim);
        for (block, holder) in claimed.iter().filter(|claim| !affinities.contains_key(*claim)) {
            self.faults.push(format!("{holder} has the block {block} and no affinity to it"));
        }
        for (block, holder) in confirmed.filter(|claim| !claimed.contains(*claim)) {
            self.faults.push(format!("{holder} has a confirmed affinity to {block}, and the block is not its own"));
        }
    }

    /// The addresses of a handle, in order.
    pub(crate) fn of_handle(&self, handle: &str) -> Vec<Address> {
        let held = self.held.values().filter(|held| held.handle.as_deref() == Some(handle));
        held.map(|held| held.address).collect()
    }

    /// The handle of each address; empty where it has none.
    pub(crate) fn handles(&self) -> BTreeMap<String, String> {
        self.held.iter().map(|(address, held)| (address.to_string(), held.handle.clone().unwrap_or_default())).collect()
    }

    /// The attributes of an address's active owner.
    pub(crate) fn attributes(&self, address: &str) -> Option<&Attributes> {
        self.held.get(&Address::parse(address)?).map(|held| &held.active)
    }
}
