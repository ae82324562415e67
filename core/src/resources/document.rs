//! Documents that administrators write, checked strictly: unknown keys, types and values, field by field.

use super::{namespace_key, node_key, pool_key, reservation_key};
use crate::clock::Instant;
use crate::objects::time;
use serde_json::{Map, Value};

/// What is wrong with a document, so that a host can say where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The field, such as `spec.blockSize` or `spec.reservedCIDRs[2]`; empty: the document.
    pub path: String,
    /// Its value as JSON; empty where there is none.
    pub value: String,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub remedy: String,
}

impl Problem {
    pub(super) fn new(path: impl Into<String>, value: Option<&Value>, message: &str, remedy: &str) -> Self {
        Self {
            path: path.into(),
            value: value.map(Value::to_string).unwrap_or_default(),
            message: message.to_owned(),
            remedy: remedy.to_owned(),
        }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}", self.path)?;
            if !self.value.is_empty() {
                write!(f, " {}", self.value)?;
            }
            f.write_str(": ")?;
        }
        write!(f, "{}: {}", self.message, self.remedy)
    }
}

/// A kind of resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// IPPool.
    Pool,
    /// IPReservation.
    Reservation,
    /// IPAMConfiguration; `crd.projectcalico.org/v1` calls it IPAMConfig.
    Configuration,
    /// Node; its labels.
    Node,
    /// Namespace; its labels.
    Namespace,
}

impl Kind {
    /// All of them, in the order in which they are applied best.
    pub const ALL: [Self; 5] = [Self::Node, Self::Namespace, Self::Configuration, Self::Reservation, Self::Pool];

    /// The kind as it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pool => "IPPool",
            Self::Reservation => "IPReservation",
            Self::Configuration => "IPAMConfiguration",
            Self::Node => "Node",
            Self::Namespace => "Namespace",
        }
    }

    /// The kind as it is written for many, in lower case.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Pool => "ippools",
            Self::Reservation => "ipreservations",
            Self::Configuration => "ipamconfigurations",
            Self::Node => "nodes",
            Self::Namespace => "namespaces",
        }
    }

    /// The API version that is written.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::Pool | Self::Reservation | Self::Configuration => "projectcalico.org/v3",
            Self::Node | Self::Namespace => "v1",
        }
    }

    /// A kind by any of its names, whatever the case.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.to_lowercase();
        Some(match text.as_str() {
            "ippool" | "ippools" | "ipp" | "pool" | "pools" => Self::Pool,
            "ipreservation" | "ipreservations" | "reservation" | "reservations" => Self::Reservation,
            "ipamconfiguration" | "ipamconfigurations" | "ipamconfig" | "ipamconfigs" | "config" => Self::Configuration,
            "node" | "nodes" | "no" => Self::Node,
            "namespace" | "namespaces" | "ns" => Self::Namespace,
            _ => return None,
        })
    }

    /// What the keys of this kind begin with.
    pub(super) fn prefix(self) -> &'static str {
        match self {
            Self::Pool => super::POOLS_PREFIX,
            Self::Reservation => super::RESERVATIONS_PREFIX,
            Self::Configuration => super::CONFIG_KEY,
            Self::Node => super::NODES_PREFIX,
            Self::Namespace => super::NAMESPACES_PREFIX,
        }
    }

    /// The key of an object of this kind.
    pub fn key(self, name: &str) -> String {
        match self {
            Self::Pool => pool_key(name),
            Self::Reservation => reservation_key(name),
            Self::Configuration => super::CONFIG_KEY.to_owned(),
            Self::Node => node_key(name),
            Self::Namespace => namespace_key(name),
        }
    }
}

/// What a member may hold.
#[derive(Clone, Copy, Debug)]
pub(super) enum Type {
    Text,
    Truth,
    Integer { least: i64, most: i64 },
    Word(&'static [&'static str]),
    Texts,
    Words(&'static [&'static str]),
    TextMap,
    Anything,
}

/// The members of a kind's spec.
fn spec_members(kind: Kind, is_v1: bool) -> &'static [(&'static str, Type)] {
    const MODES: &[&str] = &["Never", "Always", "CrossSubnet"];
    const USES: &[&str] = &["Workload", "Tunnel", "LoadBalancer"];
    match kind {
        Kind::Pool => &[
            ("cidr", Type::Text),
            ("blockSize", Type::Integer { least: 0, most: 128 }),
            ("disabled", Type::Truth),
            ("nodeSelector", Type::Text),
            ("namespaceSelector", Type::Text),
            ("allowedUses", Type::Words(USES)),
            ("assignmentMode", Type::Word(&["Automatic", "Manual"])),
            ("ipipMode", Type::Word(MODES)),
            ("vxlanMode", Type::Word(MODES)),
            ("natOutgoing", Type::Truth),
            ("disableBGPExport", Type::Truth),
        ],
        Kind::Reservation => &[("reservedCIDRs", Type::Texts)],
        Kind::Configuration if is_v1 => &[
            ("strictAffinity", Type::Truth),
            ("maxBlocksPerHost", Type::Integer { least: 0, most: 2_147_483_647 }),
            ("autoAllocateBlocks", Type::Truth),
            ("kubeVirtVMAddressPersistence", Type::Word(&["Enabled", "Disabled"])),
            ("ipCooldownSeconds", Type::Integer { least: 0, most: 1200 }),
        ],
        Kind::Configuration => &[
            ("strictAffinity", Type::Truth),
            ("maxBlocksPerHost", Type::Integer { least: 0, most: 1_000_000 }),
            ("autoAllocateBlocks", Type::Truth),
            ("kubeVirtVMAddressPersistence", Type::Word(&["Enabled", "Disabled"])),
            ("ipCooldownSeconds", Type::Integer { least: 0, most: 1200 }),
        ],
        Kind::Node | Kind::Namespace => &[],
    }
}

const METADATA: &[(&str, Type)] = &[
    ("name", Type::Text),
    ("labels", Type::TextMap),
    ("annotations", Type::TextMap),
    ("resourceVersion", Type::Text),
    ("finalizers", Type::Texts),
    ("uid", Type::Anything),
    ("creationTimestamp", Type::Anything),
    ("deletionTimestamp", Type::Anything),
    ("deletionGracePeriodSeconds", Type::Anything),
    ("generation", Type::Anything),
    ("managedFields", Type::Anything),
    ("ownerReferences", Type::Anything),
    ("selfLink", Type::Anything),
];

const DOCUMENT: &[(&str, Type)] = &[
    ("apiVersion", Type::Text),
    ("kind", Type::Text),
    ("metadata", Type::Anything),
    ("spec", Type::Anything),
    // Written by controllers; what kubectl prints has it.
    ("status", Type::Anything),
];

/// How many letters must be changed to make one word of another.
fn distance(one: &str, two: &str) -> usize {
    let two: Vec<char> = two.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=two.len()).collect();
    for (index, a) in one.to_lowercase().chars().enumerate() {
        let mut before = index;
        let mut left = index + 1;
        if let Some(first) = row.first_mut() {
            *first = left;
        }
        for (b, cell) in two.iter().zip(row.iter_mut().skip(1)) {
            let here = (before + usize::from(a != *b)).min(*cell + 1).min(left + 1);
            before = *cell;
            *cell = here;
            left = here;
        }
    }
    row.last().copied().unwrap_or_default()
}

/// The word that is meant by one that is not known: the nearest, if it is near.
pub fn nearest<'w>(word: &str, known: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    let (distance, nearest) = known.map(|candidate| (distance(word, candidate), candidate)).min()?;
    (distance <= 1 + word.len() / 3).then_some(nearest)
}

fn unknown_key(path: String, key: &str, known: &[(&str, Type)]) -> Problem {
    let names = known.iter().map(|(name, _)| *name);
    let remedy = match nearest(key, names.clone()) {
        Some(nearest) => format!("did you mean {nearest}?"),
        None => format!("known are {}", names.collect::<Vec<_>>().join(", ")),
    };
    Problem { path, value: String::new(), message: format!("unknown key {key:?}"), remedy }
}

/// Checks the members of an object against those that are known.
fn check_members(path: &str, object: &Map<String, Value>, known: &[(&str, Type)], problems: &mut Vec<Problem>) {
    for (name, value) in object {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match known.iter().find(|(known, _)| known == name) {
            None => problems.push(unknown_key(path, name, known)),
            // What is null is as if it was left out.
            Some(_) if value.is_null() => {}
            Some((_, kind)) => check_value(&path, value, *kind, problems),
        }
    }
}

fn check_value(path: &str, value: &Value, kind: Type, problems: &mut Vec<Problem>) {
    let mut wrong = |message: String, remedy: String| {
        problems.push(Problem { path: path.to_owned(), value: value.to_string(), message, remedy });
    };
    match kind {
        Type::Anything => {}
        Type::Text if value.is_string() => {}
        Type::Text => wrong("not a text".into(), "write it in quotes".into()),
        Type::Truth if value.is_boolean() => {}
        Type::Truth => wrong("not a truth value".into(), "write true or false".into()),
        Type::Integer { least, most } => match value.as_i64() {
            Some(number) if (least..=most).contains(&number) => {}
            Some(_) => wrong("out of range".into(), format!("give a number from {least} to {most}")),
            None => wrong("not an integer".into(), format!("give a number from {least} to {most}")),
        },
        Type::Word(words) => match value.as_str() {
            Some(word) if words.contains(&word) || word.is_empty() => {}
            _ => wrong("not a known word".into(), format!("use one of {}", words.join(", "))),
        },
        Type::Texts | Type::Words(_) => {
            let Some(items) = value.as_array() else {
                return wrong("not a list".into(), "write a list".into());
            };
            for (index, item) in items.iter().enumerate() {
                let kind = if let Type::Words(words) = kind { Type::Word(words) } else { Type::Text };
                check_value(&format!("{path}[{index}]"), item, kind, problems);
            }
        }
        Type::TextMap => {
            let Some(object) = value.as_object() else {
                return wrong("not an object".into(), "write names and texts".into());
            };
            for (name, value) in object {
                check_value(&format!("{path}.{name}"), value, Type::Text, problems);
            }
        }
    }
}

/// A document whose form is right.
#[derive(Clone, Debug)]
pub(super) struct Document {
    pub(super) kind: Kind,
    pub(super) name: String,
    /// Where it is in what was given: `items[3].`, or empty.
    pub(super) at: String,
    pub(super) metadata: Map<String, Value>,
    pub(super) spec: Map<String, Value>,
}

/// The longest name (`metadata.name`).
const NAME_CHARACTERS_MAX: usize = 253;

/// Whether a name is one that Kubernetes takes: a DNS subdomain.
fn is_name(name: &str) -> bool {
    let is_label = |label: &str| {
        let is_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        is_end(label.chars().next())
            && is_end(label.chars().next_back())
            && label.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    name.len() <= NAME_CHARACTERS_MAX && name.split('.').all(is_label)
}

/// Takes what was given apart: one document, or a list of them.
pub(super) fn split(given: &Value) -> Vec<(String, &Value)> {
    let is_list = given.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"));
    match given.get("items").and_then(Value::as_array).filter(|_| is_list) {
        Some(items) => items.iter().enumerate().map(|(index, item)| (format!("items[{index}]."), item)).collect(),
        None => vec![(String::new(), given)],
    }
}

/// Checks the form of a document.
pub(super) fn read(at: &str, given: &Value) -> Result<Document, Vec<Problem>> {
    let mut problems = Vec::new();
    let place = |path: &str| format!("{at}{path}");
    let Some(object) = given.as_object() else {
        let path = at.trim_end_matches('.');
        return Err(vec![Problem::new(
            path,
            Some(given),
            "not an object",
            "write apiVersion, kind, metadata and spec",
        )]);
    };
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind_text) = (text("apiVersion"), text("kind"));
    let is_v1 = api_version == "crd.projectcalico.org/v1";
    let kind = match (kind_text, api_version) {
        ("IPAMConfig", "crd.projectcalico.org/v1") => Some(Kind::Configuration),
        ("IPPool" | "IPReservation" | "IPAMConfiguration", "projectcalico.org/v3")
        | ("IPPool" | "IPReservation", "crd.projectcalico.org/v1")
        | ("Node" | "Namespace", "v1") => Kind::parse(kind_text),
        _ => None,
    };
    let Some(kind) = kind else {
        let meant = Kind::ALL.into_iter().find(|kind| kind.name() == kind_text);
        return Err(vec![match meant {
            Some(kind) => Problem::new(
                place("apiVersion"),
                object.get("apiVersion"),
                &format!("not the version of {kind_text}"),
                &format!("use {}", kind.api_version()),
            ),
            None => {
                let names = Kind::ALL.into_iter().map(Kind::name);
                let remedy = match nearest(kind_text, names.clone()) {
                    Some(nearest) => format!("did you mean {nearest}?"),
                    None => format!("known are {}", names.collect::<Vec<_>>().join(", ")),
                };
                Problem::new(place("kind"), object.get("kind"), "not a known kind", &remedy)
            }
        }]);
    };
    check_members(at.trim_end_matches('.'), object, DOCUMENT, &mut problems);
    let part = |name: &str, problems: &mut Vec<Problem>| match object.get(name) {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(members)) => members.clone(),
        Some(other) => {
            problems.push(Problem::new(place(name), Some(other), "not an object", "write its members below it"));
            Map::new()
        }
    };
    let mut metadata = part("metadata", &mut problems);
    let mut spec = part("spec", &mut problems);
    check_members(&place("metadata"), &metadata, METADATA, &mut problems);
    if !matches!(kind, Kind::Node | Kind::Namespace) {
        check_members(&place("spec"), &spec, spec_members(kind, is_v1), &mut problems);
    }
    for part in [&mut metadata, &mut spec] {
        part.retain(|_, value| !value.is_null());
    }
    let name = metadata.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    if name.is_empty() {
        problems.push(Problem::new(place("metadata.name"), None, "missing", "name the object"));
    } else if !is_name(&name) {
        problems.push(Problem::new(
            place("metadata.name"),
            metadata.get("name"),
            "not a name",
            "use lower-case letters, digits, '-' and '.', at most 253 of them",
        ));
    }
    if problems.is_empty() { Ok(Document { kind, name, at: at.to_owned(), metadata, spec }) } else { Err(problems) }
}

/// The object that is stored for a document: metadata that others gave stays, and times are ours.
pub(super) fn stored(document: &Document, before: Option<&Value>, now: Instant) -> Value {
    let mut metadata = Map::new();
    metadata.insert("name".into(), document.name.clone().into());
    let old = before.and_then(|before| before.get("metadata"));
    let created = old.and_then(|old| old.get("creationTimestamp")).cloned();
    let seconds = i64::try_from(now.seconds).unwrap_or(i64::MAX);
    metadata.insert("creationTimestamp".into(), created.unwrap_or_else(|| time::to_text(seconds).into()));
    for name in ["uid", "deletionTimestamp"] {
        if let Some(kept) = old.and_then(|old| old.get(name)) {
            metadata.insert(name.into(), kept.clone());
        }
    }
    for name in ["labels", "annotations", "finalizers"] {
        if let Some(value) = document.metadata.get(name) {
            metadata.insert(name.into(), value.clone());
        }
    }
    let mut object = Map::new();
    object.insert("apiVersion".into(), document.kind.api_version().into());
    object.insert("kind".into(), document.kind.name().into());
    object.insert("metadata".into(), metadata.into());
    if !matches!(document.kind, Kind::Node | Kind::Namespace) {
        object.insert("spec".into(), document.spec.clone().into());
    }
    if let Some(status) = before.and_then(|before| before.get("status")) {
        object.insert("status".into(), status.clone());
    }
    object.into()
}
