//! Applying, listing and deleting resources.

use super::document::{Document, Kind, Problem, read, split, stored};
use super::rules;
use super::stored::{Configuration, Pool, Reservation};
use crate::ipam::{AffinityRelease, Call, release_affinities};
use crate::limits::COMMIT_TRIES_MAX;
use crate::net::{Count, Prefix};
use crate::store::{self, Action, Durability, Entry, Event, Expected, Version, Write, scan_all};
use serde_json::Value;

/// What is done with a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// It is made or changed.
    #[default]
    Apply,
    /// It is made; one that exists is refused.
    Create,
    /// It is changed; one that does not exist is refused.
    Update,
}

/// What became of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// It did not exist.
    Created,
    /// It was changed.
    Configured,
    /// It was so already.
    Unchanged,
    /// It is gone.
    Deleted,
}

impl Done {
    /// In a word.
    pub fn text(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Configured => "configured",
            Self::Unchanged => "unchanged",
            Self::Deleted => "deleted",
        }
    }
}

/// The outcome for one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Its kind; none if that was not understood.
    pub kind: Option<Kind>,
    /// Its name.
    pub name: String,
    /// What became of it, or what is wrong.
    pub done: Result<Done, Vec<Problem>>,
    /// What is worth knowing beside.
    pub warnings: Vec<String>,
}

/// An object as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// All of it, with `metadata.resourceVersion`.
    pub value: Value,
}

impl Object {
    /// All of it as JSON.
    pub fn to_json(&self) -> Vec<u8> {
        self.value.to_string().into_bytes()
    }

    /// What [`Object::to_json`] gave; what is no JSON is null.
    pub fn from_json(kind: Kind, name: String, json: &[u8]) -> Self {
        Self { kind, name, value: serde_json::from_slice(json).unwrap_or_default() }
    }
}

fn trouble(error: &store::Error) -> Vec<Problem> {
    vec![Problem::new("", None, &error.to_string(), "see the store")]
}

fn resource_version(version: &Version) -> String {
    match <[u8; 8]>::try_from(version.0.as_slice()) {
        Ok(bytes) => u64::from_be_bytes(bytes).to_string(),
        Err(_) => version.0.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

fn read_key(call: &mut Call<'_>, key: &str) -> Result<Option<Entry>, store::Error> {
    Ok(call.store.read(&[key.to_owned()], true)?.into_iter().next().flatten())
}

/// Applies documents in their order, each for itself. With `dry_run` everything is checked and nothing written.
pub fn apply(call: &mut Call<'_>, documents: &[Value], mode: Mode, dry_run: bool) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for given in documents {
        for (at, given) in split(given) {
            let name = given.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
            outcomes.push(match read(&at, given) {
                Err(problems) => {
                    let kind = given.get("kind").and_then(Value::as_str).and_then(Kind::parse);
                    Outcome { kind, name, done: Err(problems), warnings: Vec::new() }
                }
                Ok(document) => {
                    let (kind, mut warnings) = (document.kind, Vec::new());
                    let done = apply_one(call, &document, mode, dry_run, &mut warnings);
                    Outcome { kind: Some(kind), name, done, warnings }
                }
            });
        }
    }
    outcomes
}

/// As [`apply`], for documents in JSON. One that is no JSON is a problem of its own.
pub fn apply_bytes(call: &mut Call<'_>, documents: &[Vec<u8>], mode: Mode, dry_run: bool) -> Vec<Outcome> {
    let each = documents.iter().flat_map(|bytes| match serde_json::from_slice(bytes) {
        Ok(document) => apply(call, &[document], mode, dry_run),
        Err(error) => {
            let problem = Problem::new("", None, &error.to_string(), "write JSON");
            vec![Outcome { kind: None, name: String::new(), done: Err(vec![problem]), warnings: Vec::new() }]
        }
    });
    each.collect()
}

fn apply_one(
    call: &mut Call<'_>,
    document: &Document,
    mode: Mode,
    dry_run: bool,
    warnings: &mut Vec<String>,
) -> Result<Done, Vec<Problem>> {
    let key = document.kind.key(&document.name);
    let at_name = |message: &str, remedy: &str| {
        vec![Problem::new(format!("{}metadata.name", document.at), None, message, remedy)]
    };
    for _ in 0..COMMIT_TRIES_MAX {
        let before = read_key(call, &key).map_err(|error| trouble(&error))?;
        match (mode, &before) {
            (Mode::Create, Some(_)) => return Err(at_name("it exists already", "use apply to change it")),
            (Mode::Update, None) => return Err(at_name("it does not exist", "use apply or create to make it")),
            _ => {}
        }
        let wanted = document.metadata.get("resourceVersion").and_then(Value::as_str).filter(|text| !text.is_empty());
        let have = before.as_ref().map(|before| resource_version(&before.version));
        if wanted.is_some() && wanted != have.as_deref() {
            return Err(vec![Problem::new(
                format!("{}metadata.resourceVersion", document.at),
                document.metadata.get("resourceVersion"),
                "the object was changed meanwhile",
                "get it again, or leave resourceVersion out",
            )]);
        }
        let old: Option<Value> = before.as_ref().and_then(|before| serde_json::from_slice(&before.value).ok());
        let mut checked = document.clone();
        rules::check(&mut checked, old.as_ref())?;
        if document.kind == Kind::Pool && before.is_none() {
            check_overlaps(call, &checked)?;
        }
        let now = call.clock.now();
        let object = stored(&checked, old.as_ref(), now);
        *warnings = stored_warnings(document.kind, &object);
        if old.as_ref() == Some(&object) {
            return Ok(Done::Unchanged);
        }
        let done = if before.is_some() { Done::Configured } else { Done::Created };
        if dry_run {
            return Ok(done);
        }
        let expected = before.map_or(Expected::Absent, |before| Expected::At(before.version));
        let write = Write { key: key.clone(), expected, action: Action::Put(object.to_string().into_bytes()) };
        let what = if done == Done::Created { "created" } else { "configured" };
        let event = Event { at: now, what: what.into(), key: key.clone(), owner: String::new(), why: call.why.into() };
        match call.store.commit(&[write], &[event], Durability::Power) {
            Ok(_) => return Ok(done),
            // What an unknown write did is seen by the next try.
            Err(store::Error::Conflict(_) | store::Error::UnknownOutcome) => {}
            Err(error) => return Err(trouble(&error)),
        }
    }
    Err(vec![Problem::new("", None, "others changed it again and again", "try again")])
}

/// What reading the object would warn of.
fn stored_warnings(kind: Kind, object: &Value) -> Vec<String> {
    let bytes = object.to_string().into_bytes();
    match kind {
        Kind::Pool => Pool::parse(&bytes).map(|(_, warnings)| warnings).unwrap_or_default(),
        Kind::Reservation => Reservation::parse(&bytes).map(|(_, warnings)| warnings).unwrap_or_default(),
        Kind::Configuration => Configuration::parse(&bytes).map(|(_, warnings)| warnings).unwrap_or_default(),
        Kind::Node | Kind::Namespace => Vec::new(),
    }
}

/// A new pool overlaps no pool, whatever its state, and no block of another length (`calico.md` 1.1).
fn check_overlaps(call: &mut Call<'_>, document: &Document) -> Result<(), Vec<Problem>> {
    let field = |message: &str, remedy: &str| {
        vec![Problem::new(format!("{}spec.cidr", document.at), document.spec.get("cidr"), message, remedy)]
    };
    let cidr = document.spec.get("cidr").and_then(Value::as_str).and_then(|text| Prefix::parse(text).ok());
    let length = document.spec.get("blockSize").and_then(Value::as_u64).and_then(|length| u8::try_from(length).ok());
    let (Some(cidr), Some(length)) = (cidr, length) else { return Ok(()) };
    for entry in scan_all(call.store, super::POOLS_PREFIX, false, true).map_err(|error| trouble(&error))? {
        if let Ok((other, _)) = Pool::parse(&entry.value)
            && other.cidr.overlaps(&cidr)
            && other.name != document.name
        {
            return Err(field(
                &format!("it overlaps the pool {} ({})", other.name, other.cidr),
                "use addresses that no pool has",
            ));
        }
    }
    match crate::ipam::block_of_other_length(call, cidr, length) {
        Ok(None) => Ok(()),
        Ok(Some(block)) => Err(field(
            &format!("blocks of another size lie in it, such as {block}"),
            &format!("use blockSize {}, or release them first", block.length()),
        )),
        Err(error) => Err(vec![Problem::new("", None, &error.to_string(), "see the store")]),
    }
}

/// An object; none if it does not exist.
///
/// # Errors
/// Those of the store, in words.
pub fn get(call: &mut Call<'_>, kind: Kind, name: &str) -> Result<Option<Object>, String> {
    let entry = read_key(call, &kind.key(name)).map_err(|error| error.to_string())?;
    Ok(entry.and_then(|entry| object(kind, &entry)).filter(|object| object.name == name))
}

/// All objects of a kind, in the order of their names.
///
/// # Errors
/// Those of the store, in words.
pub fn list(call: &mut Call<'_>, kind: Kind) -> Result<Vec<Object>, String> {
    let entries = scan_all(call.store, kind.prefix(), false, true).map_err(|error| error.to_string())?;
    Ok(entries.iter().filter_map(|entry| object(kind, entry)).collect())
}

fn object(kind: Kind, entry: &Entry) -> Option<Object> {
    let mut value: Value = serde_json::from_slice(&entry.value).ok()?;
    let metadata = value.get_mut("metadata")?.as_object_mut()?;
    metadata.insert("resourceVersion".into(), resource_version(&entry.version).into());
    let name = metadata.get("name")?.as_str()?.to_owned();
    Some(Object { kind, name, value })
}

/// Deletes an object. A pool whose addresses are held is deleted only with `force`; then they stay held until they are
/// released, and nothing new is assigned (`calico.md` 1.1). Its claims are released before.
pub fn delete(call: &mut Call<'_>, kind: Kind, name: &str, force: bool, dry_run: bool) -> Outcome {
    let mut warnings = Vec::new();
    let done = delete_one(call, kind, name, force, dry_run, &mut warnings);
    Outcome { kind: Some(kind), name: name.to_owned(), done, warnings }
}

fn delete_one(
    call: &mut Call<'_>,
    kind: Kind,
    name: &str,
    force: bool,
    dry_run: bool,
    warnings: &mut Vec<String>,
) -> Result<Done, Vec<Problem>> {
    let key = kind.key(name);
    let at_name =
        |message: &str, remedy: &str| vec![Problem::new("metadata.name", Some(&Value::from(name)), message, remedy)];
    for _ in 0..COMMIT_TRIES_MAX {
        let before = read_key(call, &key).map_err(|error| trouble(&error))?;
        let Some(mut before) = before else { return Err(at_name("it does not exist", "see what there is with get")) };
        if kind == Kind::Pool
            && let Ok((pool, _)) = Pool::parse(&before.value)
        {
            let usage = crate::ipam::utilization(call, &[name.to_owned()])
                .map_err(|error| at_name(&error.to_string(), "see the store"))?;
            let held = usage.first().map_or(Count::ZERO, |usage| usage.in_use);
            if !held.is_zero() && !force {
                return Err(at_name(
                    &format!("{held} addresses of the pool are in use"),
                    "set disabled: true and wait until they are released, or force it",
                ));
            }
            if !held.is_zero() {
                warnings.push(format!("{held} addresses of {} stay held until they are released", pool.cidr));
            }
            if !dry_run {
                // First nothing new may be taken from it.
                let Some(version) = disable(call, &key, &before)? else { continue };
                before.version = version;
                let all =
                    AffinityRelease { holder: None, within: Some(pool.cidr), must_be_empty: false, sequence: None };
                for outcome in release_affinities(call, &[all]).into_iter().flatten().flatten() {
                    if let Err(error) = outcome.outcome {
                        warnings.push(format!("the claim of {} was left: {error}", outcome.block));
                    }
                }
            }
        }
        if dry_run {
            return Ok(Done::Deleted);
        }
        let at = call.clock.now();
        let write = Write { key: key.clone(), expected: Expected::At(before.version.clone()), action: Action::Delete };
        let event = Event { at, what: "deleted".into(), key: key.clone(), owner: String::new(), why: call.why.into() };
        match call.store.commit(&[write], &[event], Durability::Power) {
            Ok(_) => return Ok(Done::Deleted),
            Err(store::Error::Conflict(_) | store::Error::UnknownOutcome) => {}
            Err(error) => return Err(trouble(&error)),
        }
    }
    Err(vec![Problem::new("", None, "others changed it again and again", "try again")])
}

/// Sets a pool's `disabled`. None: it was changed meanwhile.
fn disable(call: &mut Call<'_>, key: &str, before: &Entry) -> Result<Option<Version>, Vec<Problem>> {
    let mut object: Value = serde_json::from_slice(&before.value).unwrap_or_default();
    let spec = object.get_mut("spec").and_then(Value::as_object_mut);
    let Some(spec) = spec.filter(|spec| spec.get("disabled") != Some(&Value::Bool(true))) else {
        return Ok(Some(before.version.clone()));
    };
    spec.insert("disabled".into(), true.into());
    let write = Write {
        key: key.to_owned(),
        expected: Expected::At(before.version.clone()),
        action: Action::Put(object.to_string().into_bytes()),
    };
    match call.store.commit(&[write], &[], Durability::Power) {
        Ok(versions) => Ok(versions.into_iter().next()),
        Err(store::Error::Conflict(_) | store::Error::UnknownOutcome) => Ok(None),
        Err(error) => Err(trouble(&error)),
    }
}
