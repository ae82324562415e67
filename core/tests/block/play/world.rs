//! Resources and half-done states, written as an administrator, Calico or a host that died would have left them.

use plat_core::clock::{Clock, Instant};
use plat_core::net::{Address, Prefix};
use plat_core::objects::Holder;
use plat_core::objects::keys::{affinity_key, block_key, handle_key};
use plat_core::store::{Action, Durability, Expected, Store, Write};
use serde_json::{Value, json};

/// When every test begins: 2026-09-01T00:00:00Z.
pub const START_SECONDS: u64 = 1_788_220_800;

/// A clock that stands until it is moved.
#[derive(Clone, Copy, Debug)]
pub struct Standing(pub u64);

impl Clock for Standing {
    fn now(&mut self) -> Instant {
        Instant { seconds: self.0, nanoseconds: 0 }
    }

    fn boot_id(&mut self) -> Option<String> {
        None
    }
}

/// Writes a value, whatever is there; none deletes it.
pub fn put(store: &mut dyn Store, key: &str, value: Option<Vec<u8>>) {
    let there = store.read(&[key.to_owned()], true).expect("a read").remove(0);
    let expected = there.map_or(Expected::Absent, |entry| Expected::At(entry.version));
    if value.is_none() && expected == Expected::Absent {
        return;
    }
    let action = value.map_or(Action::Delete, Action::Put);
    store.commit(&[Write { key: key.into(), expected, action }], &[], Durability::Process).expect("a write");
}

pub fn put_json(store: &mut dyn Store, key: &str, value: &Value) {
    put(store, key, Some(value.to_string().into_bytes()));
}

pub fn prefix(text: &str) -> Prefix {
    Prefix::parse(text).unwrap_or_else(|why| panic!("{text:?} is no prefix: {why}"))
}

pub fn address(text: &str) -> Address {
    Address::parse(text).unwrap_or_else(|| panic!("{text:?} is no address"))
}

/// `a` is a host, `virtual:a` is not.
pub fn holder(text: &str) -> Holder {
    text.strip_prefix("virtual:").map_or_else(|| Holder::Host(text.into()), |name| Holder::Virtual(name.into()))
}

/// A pool's object; `spec` has what is not the default.
pub fn pool(store: &mut dyn Store, name: &str, cidr: &str, spec: Value) {
    let mut object = json!({
        "kind": "IPPool", "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": name}, "spec": {"cidr": cidr},
    });
    for (key, value) in spec.as_object().expect("an object") {
        match key.as_str() {
            "metadata" | "status" => {
                for (key2, value) in value.as_object().expect("an object") {
                    object[key][key2] = value.clone();
                }
            }
            _ => object["spec"][key] = value.clone(),
        }
    }
    put_json(store, &format!("pool/{name}"), &object);
}

/// The configuration; `annotations` and `spec` have what is not the default.
pub fn configure(store: &mut dyn Store, annotations: Value, spec: Value) {
    let object = json!({
        "kind": "IPAMConfiguration", "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": "default", "annotations": annotations}, "spec": spec,
    });
    put_json(store, "config", &object);
}

pub fn reserve(store: &mut dyn Store, name: &str, cidrs: &[&str]) {
    let object = json!({
        "kind": "IPReservation", "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": name}, "spec": {"reservedCIDRs": cidrs},
    });
    put_json(store, &format!("reservation/{name}"), &object);
}

/// A Node or a Namespace.
pub fn labelled(store: &mut dyn Store, kind: &str, name: &str, labels: &[(&str, &str)]) {
    let labels: serde_json::Map<String, Value> =
        labels.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    put_json(store, &format!("{kind}/{name}"), &json!({"metadata": {"name": name, "labels": labels}}));
}

/// RFC 3339, by the calendar's rules.
pub fn time_text(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

/// An address that is held in a planted block.
#[derive(Clone, Debug, Default)]
pub struct Planted {
    pub ordinal: u32,
    pub handle: Option<String>,
    pub active: Vec<(String, String)>,
    /// When it was released, for one that is cooling.
    pub released: Option<u64>,
}

/// A block as Calico writes it. `claimed` none: an old block without a claim time.
pub fn block(store: &mut dyn Store, block: Prefix, holder: Option<&Holder>, claimed: Option<u64>, taken: &[Planted]) {
    let size = 1u32 << (block.family().bits() - block.length());
    let sequence = START_SECONDS * 1_000_000_000 - 5_000_000_000;
    let mut allocations = vec![Value::Null; size as usize];
    let mut attributes = Vec::new();
    let mut sequences = serde_json::Map::new();
    for planted in taken {
        allocations[planted.ordinal as usize] = json!(attributes.len());
        let mut attribute = json!({});
        if let Some(handle) = &planted.handle {
            attribute["handle_id"] = json!(handle);
        }
        for (key, value) in &planted.active {
            attribute["secondary"][key] = json!(value);
        }
        if let Some(released) = planted.released {
            attribute["releasedAt"] = json!(time_text(released));
        } else {
            sequences.insert(planted.ordinal.to_string(), json!(sequence - 1));
        }
        attributes.push(attribute);
    }
    let unallocated: Vec<u32> =
        (0..size).filter(|ordinal| !taken.iter().any(|planted| planted.ordinal == *ordinal)).collect();
    let mut spec = json!({
        "cidr": block.to_string(),
        "affinity": holder.map(ToString::to_string),
        "allocations": allocations,
        "unallocated": unallocated,
        "attributes": attributes,
        "sequenceNumber": sequence,
        "sequenceNumberForAllocation": sequences,
        "deleted": false,
    });
    if let Some(claimed) = claimed {
        spec["affinityClaimTime"] = json!(time_text(claimed));
    }
    let name: String = block.to_string().chars().map(|c| if c.is_ascii_hexdigit() { c } else { '-' }).collect();
    let object =
        json!({"kind": "IPAMBlock", "apiVersion": "projectcalico.org/v3", "metadata": {"name": name}, "spec": spec});
    put_json(store, &block_key(block), &object);
}

/// An affinity; an empty state is written as old versions wrote it.
pub fn affinity(store: &mut dyn Store, holder: &Holder, block: Prefix, state: &str) {
    let key = affinity_key(holder, block);
    if state.is_empty() {
        return put(store, &key, Some(b"{}".to_vec()));
    }
    let object = json!({
        "kind": "BlockAffinity", "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": "planted"},
        "spec": {"state": state, "node": holder.name(), "type": holder.kind(), "cidr": block.to_string(), "deleted": false},
    });
    put_json(store, &key, &object);
}

pub fn handle(store: &mut dyn Store, id: &str, counts: &[(Prefix, u32)]) {
    let counts: serde_json::Map<String, Value> =
        counts.iter().map(|(block, count)| (block.to_string(), json!(count))).collect();
    let object = json!({
        "kind": "IPAMHandle", "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": id.to_lowercase()}, "spec": {"handleID": id, "block": counts, "deleted": false},
    });
    put_json(store, &handle_key(id), &object);
}
