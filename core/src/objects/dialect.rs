//! How each datastore writes the objects: one table of names and forms (`calico.md` 1.3 to 1.5).
//!
//! The core works on logical keys and values, which are objects of projectcalico.org/v3. This translates them to what
//! Calico keeps in etcd and in Kubernetes, and back. Members that the table does not know pass as they are.

use super::keys::{affinity_key, affinity_of_key, block_key, block_of_key, handle_key, handle_of_key};
use super::members::{Envelope, Members, Unreadable};
use super::{Holder, dialect_name};
use crate::net::{Family, Prefix};
use crate::resources::CONFIG_KEY;
use sha2::Sha256;
use sha3::{Digest, Sha3_256};

/// The longest name of an object in Kubernetes, in bytes, is one more than an affinity's that is not cut.
const NAME_MAX: usize = 253;
/// How many hexadecimal digits of a hash stand at the end of a name that was cut.
const NAME_HASH_DIGITS: usize = 11;

/// How a datastore writes objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// JSON in etcd: flat, named by paths.
    Etcd,
    /// Custom resources of crd.projectcalico.org/v1.
    CrdV1,
    /// Custom resources of projectcalico.org/v3.
    V3,
}

/// An object in a datastore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The key in etcd; the object's name in Kubernetes.
    pub name: String,
    /// The value.
    pub value: Vec<u8>,
}

/// The kinds of objects that have dialects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A block.
    Block,
    /// An affinity.
    Affinity,
    /// A handle.
    Handle,
    /// The configuration.
    Configuration,
}

/// What a datastore does with a member.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// It has another name.
    Renamed(&'static str),
    /// It is there even if it is null.
    NullIfAbsent,
    /// It is not there: the key says it, or false is what its absence means.
    Implied,
    /// A boolean is written as text.
    Text,
    /// False is left out.
    OmitFalse(&'static str),
}

/// One line: in this dialect, this member of this kind differs from the logical one so.
type Row = (Dialect, Kind, &'static str, Form);

/// Everything in which members differ.
const TABLE: &[Row] = &[
    (Dialect::Etcd, Kind::Block, "affinity", Form::NullIfAbsent),
    (Dialect::Etcd, Kind::Block, "affinityClaimTime", Form::Renamed("affinity_claim_time")),
    (Dialect::Etcd, Kind::Block, "strictAffinity", Form::OmitFalse("strictAffinity")),
    (Dialect::Etcd, Kind::Affinity, "node", Form::Implied),
    (Dialect::Etcd, Kind::Affinity, "type", Form::Implied),
    (Dialect::Etcd, Kind::Affinity, "cidr", Form::Implied),
    (Dialect::CrdV1, Kind::Affinity, "deleted", Form::Text),
    (Dialect::Etcd, Kind::Handle, "handleID", Form::Implied),
    (Dialect::Etcd, Kind::Configuration, "strictAffinity", Form::OmitFalse("strict_affinity")),
    (Dialect::Etcd, Kind::Configuration, "autoAllocateBlocks", Form::OmitFalse("auto_allocate_blocks")),
];

impl Kind {
    /// What kind of object a logical key names; none for keys without dialects.
    pub fn of_key(key: &str) -> Option<Self> {
        match key.split_once('/') {
            Some(("block", _)) => block_of_key(key).map(|_| Self::Block),
            Some(("affinity", _)) => affinity_of_key(key).map(|_| Self::Affinity),
            Some(("handle", _)) => handle_of_key(key).map(|_| Self::Handle),
            _ => (key == CONFIG_KEY).then_some(Self::Configuration),
        }
    }

    /// `kind` as the dialect writes it.
    fn name(self, dialect: Dialect) -> &'static str {
        match (self, dialect) {
            (Self::Block, _) => "IPAMBlock",
            (Self::Affinity, _) => "BlockAffinity",
            (Self::Handle, _) => "IPAMHandle",
            (Self::Configuration, Dialect::CrdV1) => "IPAMConfig",
            (Self::Configuration, _) => "IPAMConfiguration",
        }
    }

    /// The resource's name in URLs; empty in etcd.
    pub fn plural(self, dialect: Dialect) -> &'static str {
        match (self, dialect) {
            (_, Dialect::Etcd) => "",
            (Self::Block, _) => "ipamblocks",
            (Self::Affinity, _) => "blockaffinities",
            (Self::Handle, _) => "ipamhandles",
            (Self::Configuration, Dialect::CrdV1) => "ipamconfigs",
            (Self::Configuration, Dialect::V3) => "ipamconfigurations",
        }
    }
}

/// The label by which a host's affinities are found: the SHA3-256 of its name in base32, which fits where names do not.
pub(super) fn name_hash(name: &str) -> String {
    const DIGITS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let mut text = String::new();
    let (mut bits, mut count) = (0u32, 0u32);
    let mut push = |bits: u32| {
        text.extend(DIGITS.get((bits & 31) as usize).map(|digit| char::from(*digit)));
    };
    for byte in Sha3_256::digest(name.as_bytes()) {
        bits = (bits << 8 | u32::from(byte)) & 0xfff;
        count += 8;
        while count >= 5 {
            count -= 5;
            push(bits >> count);
        }
    }
    if count > 0 {
        push(bits << (5 - count));
    }
    text
}

/// An affinity's name in Kubernetes: `n1-10-0-0-0-26`. One that would be too long is cut, and made unique by a hash
/// (`calico.md` 1.5).
pub(super) fn affinity_name(holder: &Holder, block: Prefix) -> String {
    let (host, block) = (holder.name(), dialect_name(block));
    if host.len() + 1 + block.len() < NAME_MAX {
        return format!("{host}-{block}");
    }
    let digest = Sha256::digest(format!("{host}{block}").as_bytes());
    let mut hash: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    hash.truncate(NAME_HASH_DIGITS);
    let mut room = NAME_MAX.saturating_sub(block.len() + NAME_HASH_DIGITS + 2);
    while !host.is_char_boundary(room) {
        room -= 1;
    }
    format!("{}-{block}-{hash}", host.get(..room).unwrap_or_default())
}

fn path_ending(block: Prefix) -> String {
    let family = match block.family() {
        Family::V4 => "ipv4",
        Family::V6 => "ipv6",
    };
    format!("{family}/block/{}", block.to_string().replace('/', "-"))
}

fn parse_path_ending(text: &str) -> Option<Prefix> {
    let (family, rest) = text.split_once('/')?;
    let block = Prefix::parse(&rest.strip_prefix("block/")?.replacen('-', "/", 1)).ok()?;
    (!block.has_host_bits() && path_ending(block) == format!("{family}/{rest}")).then_some(block)
}

impl Dialect {
    /// `apiVersion`; none in etcd, whose values have no envelope.
    fn version(self) -> Option<&'static str> {
        match self {
            Self::Etcd => None,
            Self::CrdV1 => Some("crd.projectcalico.org/v1"),
            Self::V3 => Some(super::API_VERSION),
        }
    }

    fn form(self, kind: Kind, member: &str) -> Option<Form> {
        let row = TABLE.iter().find(|(dialect, of, name, _)| (*dialect, *of, *name) == (self, kind, member));
        row.map(|(.., form)| *form)
    }

    /// The name under which the datastore keeps a logical key: a path in etcd, an object's name in Kubernetes. None for
    /// keys without dialects, and for names that etcd's paths cannot have.
    pub fn name_of(self, key: &str) -> Option<String> {
        let is_etcd = self == Self::Etcd;
        let in_path = |name: String| (!name.contains('/')).then_some(name);
        Some(match Kind::of_key(key)? {
            Kind::Block if is_etcd => format!("/calico/ipam/v2/assignment/{}", path_ending(block_of_key(key)?)),
            Kind::Block => dialect_name(block_of_key(key)?),
            Kind::Affinity => {
                let (holder, block) = affinity_of_key(key)?;
                if is_etcd {
                    let name = in_path(holder.name().to_owned())?;
                    format!("/calico/ipam/v2/{}/{name}/{}", holder.kind(), path_ending(block))
                } else {
                    affinity_name(&holder, block)
                }
            }
            Kind::Handle if is_etcd => format!("/calico/ipam/v2/handle/{}", in_path(handle_of_key(key)?)?),
            Kind::Handle => handle_of_key(key)?.to_lowercase(),
            Kind::Configuration if is_etcd => "/calico/ipam/v2/config".to_owned(),
            Kind::Configuration => "default".to_owned(),
        })
    }

    /// The logical key of a path in etcd; none for other paths.
    pub fn key_of_path(path: &str) -> Option<String> {
        let rest = path.strip_prefix("/calico/ipam/v2/")?;
        if rest == "config" {
            return Some(CONFIG_KEY.to_owned());
        }
        let (kind, rest) = rest.split_once('/')?;
        if kind == "assignment" {
            return parse_path_ending(rest).map(block_key);
        }
        if kind == "handle" {
            return (!rest.is_empty() && !rest.contains('/')).then(|| handle_key(rest));
        }
        let (name, ending) = rest.split_once('/')?;
        let holder = Holder::parse(&format!("{kind}:{name}"))?;
        parse_path_ending(ending).map(|block| affinity_key(&holder, block))
    }

    /// What the datastore keeps for a logical key and value.
    ///
    /// # Errors
    /// A key without dialects, or a value that is no such object.
    pub fn write(self, key: &str, value: &[u8]) -> Result<Stored, Unreadable> {
        let no_name = || Unreadable(format!("{key:?} has no name in this datastore"));
        let (kind, name) = (Kind::of_key(key).ok_or_else(no_name)?, self.name_of(key).ok_or_else(no_name)?);
        if kind == Kind::Affinity && is_bare(value) {
            return Ok(Stored { name, value: value.to_vec() });
        }
        let (mut envelope, spec) = Envelope::parse(value)?;
        let spec: Members = serde_json::from_str(spec.get())?;
        let mut written = Members::default();
        for (member, value) in spec.0 {
            match self.form(kind, &member) {
                Some(Form::Implied) => {}
                Some(Form::OmitFalse(_)) if matches!(value.get(), "false" | "null") => {}
                Some(Form::OmitFalse(other) | Form::Renamed(other)) => written.0.push((other.to_owned(), value)),
                Some(Form::Text) if matches!(value.get(), "true" | "false") => written.set(&member, &value.get()),
                _ => written.0.push((member, value)),
            }
        }
        for (_, _, member, _) in self.rows(kind).filter(|(.., form)| *form == Form::NullIfAbsent) {
            if written.get(member).is_none() {
                // Where Go's struct has it: after the first member.
                let null = serde_json::value::to_raw_value(&()).map_err(Unreadable::from)?;
                written.0.insert(written.0.len().min(1), ((*member).to_owned(), null));
            }
        }
        let value = match self.version() {
            None => serde_json::to_vec(&written).map_err(Unreadable::from)?,
            Some(version) => {
                envelope.set("kind", &kind.name(self));
                envelope.set("apiVersion", &version);
                envelope.to_bytes(&written)
            }
        };
        Ok(Stored { name, value })
    }

    fn rows(self, kind: Kind) -> impl Iterator<Item = &'static Row> {
        TABLE.iter().filter(move |(dialect, of, ..)| (*dialect, *of) == (self, kind))
    }

    /// The logical key and value of what the datastore keeps.
    ///
    /// # Errors
    /// A name or a value that is of no such object. In Kubernetes names are not unique enough, so that the key is that of
    /// the members; a value whose members name another object than its name does is refused.
    pub fn read(self, kind: Kind, name: &str, value: &[u8]) -> Result<(String, Vec<u8>), Unreadable> {
        let stranger = || Unreadable(format!("{name:?} is no name of this object"));
        let key = match self {
            Self::Etcd => {
                let key = Self::key_of_path(name).filter(|key| Kind::of_key(key) == Some(kind)).ok_or_else(stranger)?;
                if kind == Kind::Affinity && is_bare(value) {
                    return Ok((key, value.to_vec()));
                }
                Some(key)
            }
            _ => None,
        };
        let (mut envelope, mut spec) = match &key {
            Some(_) => (Envelope::named(kind.name(Self::V3), ""), serde_json::from_slice::<Members>(value)?),
            None => {
                let (envelope, spec) = Envelope::parse(value)?;
                (envelope, serde_json::from_str(spec.get())?)
            }
        };
        let text = |spec: &Members, member: &str| {
            spec.get(member).and_then(|value| serde_json::from_str::<String>(value.get()).ok())
        };
        let key = match key {
            Some(key) => key,
            None => key_of_members(kind, &|member| text(&spec, member))
                .filter(|key| self.name_of(key).as_deref() == Some(name))
                .ok_or_else(stranger)?,
        };
        for (_, _, member, form) in self.rows(kind) {
            match form {
                Form::Renamed(other) | Form::OmitFalse(other) => {
                    if let Some((name, _)) = spec.0.iter_mut().find(|(name, _)| name == other) {
                        (*member).clone_into(name);
                    } else if matches!(form, Form::OmitFalse(_)) {
                        spec.set(member, &false);
                    }
                }
                Form::NullIfAbsent => spec.0.retain(|(name, value)| name != member || value.get() != "null"),
                Form::Text => {
                    let flag = spec.get(member).map(|value| matches!(value.get(), "true" | "\"true\""));
                    if let Some(flag) = flag {
                        spec.set(member, &flag);
                    }
                }
                Form::Implied => {}
            }
        }
        if self == Self::Etcd {
            let named = Self::V3.name_of(&key).ok_or_else(stranger)?;
            envelope = Envelope::named(kind.name(Self::V3), &named);
            spec = imply(&key, spec);
        } else {
            envelope.set("kind", &kind.name(Self::V3));
            envelope.set("apiVersion", &super::API_VERSION);
        }
        Ok((key, envelope.to_bytes(&spec)))
    }
}

/// An affinity of an old version: no value at all.
fn is_bare(value: &[u8]) -> bool {
    matches!(value.trim_ascii(), b"" | b"{}")
}

/// The logical key that the members of a spec name.
fn key_of_members(kind: Kind, text: &impl Fn(&str) -> Option<String>) -> Option<String> {
    let block = || text("cidr").and_then(|cidr| Prefix::parse(&cidr).ok()).filter(|block| !block.has_host_bits());
    Some(match kind {
        Kind::Block => block_key(block()?),
        Kind::Affinity => {
            let node = text("node").filter(|node| !node.is_empty())?;
            let holder = match text("type").as_deref() {
                None | Some("" | "host") => Holder::Host(node),
                Some("virtual") => Holder::Virtual(node),
                Some(_) => return None,
            };
            affinity_key(&holder, block()?)
        }
        Kind::Handle => handle_key(&text("handleID").filter(|id| !id.is_empty())?),
        Kind::Configuration => CONFIG_KEY.to_owned(),
    })
}

/// Adds what the key says and the value in etcd does not, in Calico's order.
fn imply(key: &str, spec: Members) -> Members {
    let mut implied = Members::default();
    if let Some((holder, block)) = affinity_of_key(key) {
        implied.set("node", &holder.name());
        implied.set("type", &holder.kind());
        implied.set("cidr", &block.to_string());
    } else if let Some(id) = handle_of_key(key) {
        implied.set("handleID", &id);
    }
    let is_new = |name: &str| implied.get(name).is_none();
    let (state, rest): (Vec<_>, Vec<_>) =
        spec.0.into_iter().filter(|(name, _)| is_new(name)).partition(|(name, _)| name == "state");
    Members(state.into_iter().chain(implied.0).chain(rest).collect())
}
