//! Resources as they are read from a store: leniently, since others write them too. What breaks a rule between fields is
//! read as well as it can be, with a warning.

use crate::ipam::{Attributes, Use};
use crate::net::{Family, Prefix};
use crate::objects::Unreadable;
use crate::selector::Selector;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The annotation of a pool by which pools are ordered before their names; lower is used first.
pub const PRIORITY_ANNOTATION: &str = "plat-ipam/priority";
/// The annotation of the configuration that limits the addresses of a host, for each family.
pub const ADDRESSES_ANNOTATION: &str = "plat-ipam/max-addresses-per-host";
/// Blocks of a host and family where the configuration says 0 or nothing (`calico.md` 1.3).
pub const BLOCKS_PER_HOST_DEFAULT: u32 = 20;

/// The default length of a pool's blocks (`calico.md` 1.1).
pub const fn block_length_default(family: Family) -> u8 {
    match family {
        Family::V4 => 26,
        Family::V6 => 122,
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
    #[serde(default)]
    labels: Option<Attributes>,
    #[serde(default)]
    deletion_timestamp: Option<String>,
}

#[derive(Deserialize)]
struct Object<S> {
    #[serde(default)]
    metadata: Metadata,
    spec: S,
    #[serde(default)]
    status: Option<Status>,
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    conditions: Option<Vec<Condition>>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    status: String,
    #[serde(default)]
    reason: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PoolSpec {
    cidr: String,
    #[serde(default)]
    block_size: Option<u32>,
    #[serde(default)]
    disabled: bool,
    #[serde(default)]
    node_selector: Option<String>,
    #[serde(default)]
    namespace_selector: Option<String>,
    #[serde(default)]
    allowed_uses: Option<Vec<String>>,
    #[serde(default)]
    assignment_mode: Option<String>,
}

/// A pool, as assignments need it.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Its addresses.
    pub cidr: Prefix,
    /// The length of its blocks.
    pub block_length: u8,
    /// No address is assigned from it.
    pub disabled: bool,
    /// It is being deleted.
    pub deleting: bool,
    /// Why its condition Allocatable is False.
    pub not_allocatable: Option<String>,
    /// Which nodes may use it.
    pub node_selector: Selector,
    /// Which namespaces may use it; none: all.
    pub namespace_selector: Option<Selector>,
    /// It is used only where it is requested.
    pub manual: bool,
    /// What its addresses are for.
    pub uses: Vec<Use>,
    /// Its place before its name; lower first.
    pub priority: i64,
}

impl Pool {
    /// Reads the value of a pool's key, and what is odd about it.
    ///
    /// # Errors
    /// What leaves no usable pool: a wrong CIDR, block size or selector.
    pub fn parse(value: &[u8]) -> Result<(Self, Vec<String>), Unreadable> {
        let Object { metadata, spec, status }: Object<PoolSpec> = serde_json::from_slice(value)?;
        let mut warnings = Vec::new();
        let wrong = |field: &str, value: &str, why: &str| Unreadable(format!("spec.{field} {value:?}: {why}"));
        let cidr = match Prefix::parse(&spec.cidr) {
            Ok(cidr) => cidr,
            Err(why) => return Err(wrong("cidr", &spec.cidr, &why.to_string())),
        };
        if cidr.has_host_bits() {
            warnings.push(format!("spec.cidr {cidr} has bits beyond its length"));
        }
        let cidr = Prefix::new(cidr.network(), cidr.length()).unwrap_or(cidr);
        let family = cidr.family();
        let size = spec.block_size.unwrap_or_default();
        let block_length = if size == 0 { block_length_default(family).into() } else { size };
        let lengths = crate::ipam::block_lengths(family);
        let block_length = match u8::try_from(block_length).ok().filter(|length| lengths.contains(length)) {
            Some(length) => length,
            None => {
                let (first, last) = (lengths.start(), lengths.end());
                return Err(wrong("blockSize", &size.to_string(), &format!("it is {first} to {last}")));
            }
        };
        let mut disabled = spec.disabled;
        if block_length < cidr.length() && !disabled {
            warnings.push(format!("the pool is smaller than its blocks of /{block_length}: it is not used"));
            disabled = true;
        }
        let selector =
            |field: &str, text: &str| Selector::parse(text).map_err(|error| wrong(field, text, &error.to_string()));
        let node_selector = selector("nodeSelector", spec.node_selector.as_deref().unwrap_or_default())?;
        let namespace_selector = match spec.namespace_selector.as_deref() {
            None | Some("") => None,
            Some(text) => Some(selector("namespaceSelector", text)?),
        };
        let mut uses = Vec::new();
        for word in spec.allowed_uses.unwrap_or_default() {
            match use_of(&word) {
                Some(purpose) => uses.push(purpose),
                None => warnings.push(format!("spec.allowedUses has {word:?}, which is not known")),
            }
        }
        if uses.is_empty() {
            uses = vec![Use::Workload, Use::Tunnel];
        } else if uses.contains(&Use::LoadBalancer) && uses.len() > 1 {
            warnings.push("spec.allowedUses mixes LoadBalancer with other uses".to_owned());
        }
        let priority = metadata.annotations.as_ref().and_then(|annotations| annotations.get(PRIORITY_ANNOTATION));
        let priority = priority.map_or(0, |text| {
            text.parse().unwrap_or_else(|_| {
                warnings.push(format!("the annotation {PRIORITY_ANNOTATION} {text:?} is no integer: it counts as 0"));
                0
            })
        });
        let conditions = status.unwrap_or_default().conditions.unwrap_or_default();
        let refused =
            conditions.iter().find(|condition| condition.kind == "Allocatable" && condition.status == "False");
        Ok((
            Self {
                name: metadata.name,
                cidr,
                block_length,
                disabled,
                deleting: metadata.deletion_timestamp.is_some(),
                not_allocatable: refused.map(|condition| condition.reason.clone()),
                node_selector,
                namespace_selector,
                manual: spec.assignment_mode.as_deref() == Some("Manual"),
                uses,
                priority,
            },
            warnings,
        ))
    }
}

/// The use of a word in `allowedUses`.
pub(super) fn use_of(word: &str) -> Option<Use> {
    match word {
        "Workload" => Some(Use::Workload),
        "Tunnel" => Some(Use::Tunnel),
        "LoadBalancer" => Some(Use::LoadBalancer),
        _ => None,
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReservationSpec {
    #[serde(default, rename = "reservedCIDRs")]
    reserved: Option<Vec<String>>,
}

/// Addresses that are not assigned unless they are asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Reservation {
    /// Its name.
    pub name: String,
    /// What it reserves.
    pub prefixes: Vec<Prefix>,
}

/// An entry of a reservation: a CIDR or an address, with white space around it.
pub(super) fn reserved_prefix(text: &str) -> Option<Prefix> {
    let text = text.trim();
    let prefix = match crate::net::Address::parse(text) {
        Some(address) => Prefix::new(address, address.family().bits())?,
        None => Prefix::parse(text).ok()?,
    };
    Prefix::new(prefix.network(), prefix.length())
}

impl Reservation {
    /// Reads the value of a reservation's key, and what is odd about it. Entries that are no CIDR are left out
    /// (`calico.md` 1.2).
    pub fn parse(value: &[u8]) -> Result<(Self, Vec<String>), Unreadable> {
        let Object { metadata, spec, .. }: Object<ReservationSpec> = serde_json::from_slice(value)?;
        let mut warnings = Vec::new();
        let mut prefixes = Vec::new();
        for text in spec.reserved.unwrap_or_default() {
            match reserved_prefix(&text) {
                Some(prefix) => prefixes.push(prefix),
                None => {
                    warnings.push(format!("spec.reservedCIDRs has {text:?}, which is no CIDR: it reserves nothing"))
                }
            }
        }
        Ok((Self { name: metadata.name, prefixes }, warnings))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConfigurationSpec {
    #[serde(default)]
    strict_affinity: bool,
    #[serde(default)]
    max_blocks_per_host: Option<i64>,
    #[serde(default)]
    auto_allocate_blocks: Option<bool>,
    #[serde(default, rename = "kubeVirtVMAddressPersistence")]
    vm_persistence: Option<String>,
    #[serde(default)]
    ip_cooldown_seconds: Option<i64>,
}

/// How addresses are assigned (`calico.md` 1.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// No address of another holder's block is used.
    pub strict_affinity: bool,
    /// Blocks of a host and family, as it acts: 20 where nothing or 0 is written.
    pub blocks_per_host_max: u32,
    /// Blocks are claimed as they are needed.
    pub auto_allocate_blocks: bool,
    /// Virtual machines keep their addresses.
    pub vm_persistence: bool,
    /// How old a released address must be before it is given out again, in seconds.
    pub cooldown_seconds: i64,
    /// Addresses of a host and family in its own blocks; none: no limit.
    pub addresses_per_host_max: Option<u32>,
}

impl Default for Configuration {
    fn default() -> Self {
        Self {
            strict_affinity: false,
            blocks_per_host_max: BLOCKS_PER_HOST_DEFAULT,
            auto_allocate_blocks: true,
            vm_persistence: true,
            cooldown_seconds: 0,
            addresses_per_host_max: None,
        }
    }
}

impl Configuration {
    /// Reads the value of the configuration's key, and what is odd about it.
    pub fn parse(value: &[u8]) -> Result<(Self, Vec<String>), Unreadable> {
        let Object { metadata, spec, .. }: Object<ConfigurationSpec> = serde_json::from_slice(value)?;
        let mut warnings = Vec::new();
        let blocks = spec.max_blocks_per_host.unwrap_or_default();
        let blocks_per_host_max = match u32::try_from(blocks) {
            Ok(0) => BLOCKS_PER_HOST_DEFAULT,
            Ok(blocks) => blocks,
            Err(_) => {
                warnings.push(format!("spec.maxBlocksPerHost {blocks} counts as {BLOCKS_PER_HOST_DEFAULT}"));
                BLOCKS_PER_HOST_DEFAULT
            }
        };
        let auto_allocate_blocks = spec.auto_allocate_blocks.unwrap_or(true);
        if !auto_allocate_blocks && !spec.strict_affinity {
            warnings.push("autoAllocateBlocks is false without strictAffinity: addresses are borrowed".to_owned());
        }
        if blocks > 0 && !spec.strict_affinity {
            warnings.push("maxBlocksPerHost is set without strictAffinity".to_owned());
        }
        let annotations = metadata.annotations.unwrap_or_default();
        let addresses_per_host_max = annotations.get(ADDRESSES_ANNOTATION).and_then(|text| {
            text.parse().ok().or_else(|| {
                warnings.push(format!("the annotation {ADDRESSES_ANNOTATION} {text:?} is no count: it is not used"));
                None
            })
        });
        Ok((
            Self {
                strict_affinity: spec.strict_affinity,
                blocks_per_host_max,
                auto_allocate_blocks,
                vm_persistence: spec.vm_persistence.as_deref() != Some("Disabled"),
                cooldown_seconds: spec.ip_cooldown_seconds.unwrap_or_default(),
                addresses_per_host_max,
            },
            warnings,
        ))
    }
}

/// The labels of a Node or Namespace, for selectors.
pub fn labels_of(value: &[u8]) -> Result<Attributes, Unreadable> {
    #[derive(Deserialize)]
    struct Labelled {
        #[serde(default)]
        metadata: Metadata,
    }
    let Labelled { metadata } = serde_json::from_slice(value)?;
    Ok(metadata.labels.unwrap_or_default())
}
