//! apply, create, get and delete.

use crate::store::Session;
use crate::yaml::{self, Document};
use crate::{Output, Usage, complain, print, state, table, warn};
use anyhow::{Context as _, Result, anyhow, bail};
use clap::Args;
use plat_core::resources::{Kind, Mode, Object, Outcome};
use serde_json::Value;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The largest file that is read: a list of some 100,000 reservations.
const FILE_BYTES_MAX: u64 = 4 << 20;

#[derive(Args)]
pub(crate) struct Files {
    /// YAML or JSON files, folders of them, or - for standard input.
    #[arg(short, long = "filename", required = true, value_name = "FILE")]
    filename: Vec<PathBuf>,
    /// Checks everything and writes nothing.
    #[arg(long)]
    dry_run: bool,
    /// How the outcome is printed.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

#[derive(Args)]
pub(crate) struct Get {
    /// ippools, ipreservations, ipamconfigurations, nodes, namespaces, blocks, affinities or handles.
    kind: String,
    /// Their names; of blocks and affinities the CIDR too. All without.
    name: Vec<String>,
    /// How they are printed.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

#[derive(Args)]
pub(crate) struct Delete {
    /// The kind, with NAME.
    #[arg(required_unless_present = "filename")]
    kind: Option<String>,
    /// The names.
    #[arg(requires = "kind")]
    name: Vec<String>,
    /// Deletes what these files name.
    #[arg(short, long = "filename", value_name = "FILE", conflicts_with = "kind")]
    filename: Vec<PathBuf>,
    /// Says what would be deleted and writes nothing.
    #[arg(long)]
    dry_run: bool,
    /// Deletes a pool although addresses of it are in use; they stay held until they are released.
    #[arg(long)]
    force: bool,
    /// How the outcome is printed.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// A file's documents and its name for messages.
struct Source {
    name: String,
    documents: Vec<Document>,
}

fn read_text(path: &Path) -> Result<String> {
    let mut text = String::new();
    if path == Path::new("-") {
        std::io::stdin().take(FILE_BYTES_MAX + 1).read_to_string(&mut text).context("standard input")?;
    } else {
        let file = std::fs::File::open(path).with_context(|| path.display().to_string())?;
        file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).with_context(|| path.display().to_string())?;
    }
    if text.len() as u64 > FILE_BYTES_MAX {
        bail!("{}: larger than {FILE_BYTES_MAX} bytes: split it", path.display());
    }
    Ok(text)
}

/// The files that are meant: those of a folder are taken in the order of their names.
fn read_files(paths: &[PathBuf]) -> Result<Vec<Source>> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let mut found = Vec::new();
        for entry in std::fs::read_dir(path).with_context(|| path.display().to_string())? {
            let path = entry?.path();
            if path.extension().is_some_and(|end| end == "yaml" || end == "yml" || end == "json") {
                found.push(path);
            }
        }
        if found.is_empty() {
            bail!("{}: no .yaml, .yml or .json file in it", path.display());
        }
        found.sort();
        files.extend(found);
    }
    let mut sources = Vec::new();
    for path in files {
        let name = if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() };
        let documents = yaml::read(&read_text(&path)?)
            .map_err(|malformed| anyhow!("{name}:{}:{}: {}", malformed.line, malformed.column, malformed.message))?;
        sources.push(Source { name, documents });
    }
    Ok(sources)
}

/// `ippool/NAME`, as kubectl writes it.
fn full_name(kind: Option<Kind>, name: &str) -> String {
    let kind = kind.map_or("object".to_owned(), |kind| kind.name().to_lowercase());
    format!("{kind}/{name}")
}

pub(crate) fn apply(store: Option<&str>, files: &Files, mode: Mode) -> Result<bool> {
    let sources = read_files(&files.filename)?;
    if sources.iter().all(|source| source.documents.is_empty()) {
        bail!("there is no document in what was given");
    }
    let why = if mode == Mode::Create { "plat create" } else { "plat apply" };
    let mut session = Session::open(store, why, true)?;
    let mut done_all = true;
    let mut lines = Vec::new();
    for source in &sources {
        for document in &source.documents {
            let bytes = document.value.to_string().into_bytes();
            let outcomes = session.instance.apply(
                &session.settings,
                &[bytes],
                mode,
                files.dry_run,
                &mut session.store,
                &mut session.clock,
            )?;
            for outcome in outcomes {
                done_all &= outcome.done.is_ok();
                report(&source.name, Some(document), &outcome);
                if let Ok(done) = &outcome.done {
                    lines.push((full_name(outcome.kind, &outcome.name), done.text()));
                }
            }
        }
    }
    print(&outcomes(&lines, files.output, files.dry_run))?;
    Ok(done_all)
}

/// What became of each object.
fn outcomes(lines: &[(String, &str)], output: Output, dry_run: bool) -> String {
    let suffix = if dry_run { " (dry run)" } else { "" };
    match output {
        Output::Name => lines.iter().map(|(name, _)| format!("{name}\n")).collect(),
        Output::Json | Output::Yaml => {
            let list: Vec<Value> = lines
                .iter()
                .map(|(name, done)| serde_json::json!({"object": name, "outcome": done, "dryRun": dry_run}))
                .collect();
            structured(&list.into(), output)
        }
        Output::Table | Output::Wide => {
            lines.iter().map(|(name, done)| format!("{name} {done}{suffix}\n")).collect::<String>()
        }
    }
}

/// Prints the problems and warnings of an outcome, with their places.
pub(crate) fn report(file: &str, document: Option<&Document>, outcome: &Outcome) {
    let name = full_name(outcome.kind, &outcome.name);
    for warning in &outcome.warnings {
        warn(&format!("{name}: {warning}"));
    }
    for problem in outcome.done.as_ref().err().into_iter().flatten() {
        let place = document.map(|document| document.place(&problem.path));
        match place {
            Some((line, column)) => complain(&format!("{file}:{line}:{column}: {problem}")),
            None => complain(&format!("{name}: {problem}")),
        }
    }
}

/// JSON or YAML with a line end.
pub(crate) fn structured(value: &Value, output: Output) -> String {
    match output {
        Output::Yaml => yaml::write(value),
        _ => format!("{}\n", serde_json::to_string_pretty(value).unwrap_or_default()),
    }
}

/// What has no kind of this name.
fn unknown_kind(text: &str) -> anyhow::Error {
    let known = Kind::ALL.map(Kind::plural).into_iter().chain(state::Kind::ALL.map(state::Kind::plural));
    anyhow!(Usage(match plat_core::resources::nearest(text, known.clone()) {
        Some(nearest) => format!("unknown kind {text:?}: did you mean {nearest}?"),
        None => format!("unknown kind {text:?}: known are {}", known.collect::<Vec<_>>().join(", ")),
    }))
}

/// A kind that can be written.
fn parse_kind(text: &str) -> Result<Kind> {
    match (Kind::parse(text), state::Kind::parse(text)) {
        (Some(kind), _) => Ok(kind),
        (None, Some(kind)) => bail!(Usage(format!(
            "{} follow from the addresses in use and are only read: see plat ipam release",
            kind.plural()
        ))),
        (None, None) => Err(unknown_kind(text)),
    }
}

pub(crate) fn get(store: Option<&str>, get: &Get) -> Result<bool> {
    let Some(kind) = Kind::parse(&get.kind) else {
        let kind = state::Kind::parse(&get.kind).ok_or_else(|| unknown_kind(&get.kind))?;
        return state::get(store, kind, &get.name, get.output);
    };
    let mut session = Session::open(store, "plat get", false)?;
    let mut objects = Vec::new();
    let mut found_all = true;
    if get.name.is_empty() {
        let listed = session.instance.resources(&session.settings, kind, &mut session.store, &mut session.clock)?;
        objects = listed.map_err(anyhow::Error::msg)?;
    }
    for name in &get.name {
        let found = session.instance.resource(&session.settings, kind, name, &mut session.store, &mut session.clock)?;
        match found.map_err(anyhow::Error::msg)? {
            Some(object) => objects.push(object),
            None => {
                found_all = false;
                complain(&format!("{}: not found", full_name(Some(kind), name)));
            }
        }
    }
    print(&match get.output {
        Output::Name => {
            objects.iter().map(|object| format!("{}\n", full_name(Some(kind), &object.name))).collect::<String>()
        }
        Output::Json | Output::Yaml => {
            let values = objects.into_iter().map(|object| object.value).collect();
            one_or_list(values, get.name.len() == 1, get.output)
        }
        Output::Table | Output::Wide => rows(kind, &objects, get.output == Output::Wide),
    })?;
    Ok(found_all)
}

/// What a table shows of each kind: the head of a column and the place of its value.
fn shown(kind: Kind, wide: bool) -> Vec<(&'static str, &'static str)> {
    let mut shown = vec![("NAME", "/metadata/name")];
    shown.extend_from_slice(match kind {
        Kind::Pool => &[("CIDR", "/spec/cidr"), ("BLOCK", "/spec/blockSize"), ("SELECTOR", "/spec/nodeSelector")],
        Kind::Reservation => &[("RESERVED", "/spec/reservedCIDRs")],
        Kind::Configuration => &[
            ("STRICTAFFINITY", "/spec/strictAffinity"),
            ("MAXBLOCKSPERHOST", "/spec/maxBlocksPerHost"),
            ("COOLDOWN", "/spec/ipCooldownSeconds"),
        ],
        Kind::Node | Kind::Namespace => &[("LABELS", "/metadata/labels")],
    });
    if wide {
        shown.extend_from_slice(match kind {
            Kind::Pool => &[
                ("NAMESPACES", "/spec/namespaceSelector"),
                ("USES", "/spec/allowedUses"),
                ("MODE", "/spec/assignmentMode"),
                ("DISABLED", "/spec/disabled"),
            ],
            Kind::Configuration => {
                &[("AUTOALLOCATE", "/spec/autoAllocateBlocks"), ("VMPERSISTENCE", "/spec/kubeVirtVMAddressPersistence")]
            }
            Kind::Reservation | Kind::Node | Kind::Namespace => &[],
        });
        shown.push(("CREATED", "/metadata/creationTimestamp"));
    }
    shown
}

/// The one object that was asked for, or a list of all.
pub(crate) fn one_or_list(values: Vec<Value>, single: bool, output: Output) -> String {
    match values.first().filter(|_| single) {
        Some(value) => structured(value, output),
        None if single => String::new(),
        None => structured(&serde_json::json!({"apiVersion": "v1", "kind": "List", "items": values}), output),
    }
}

pub(crate) fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(items)) => items.iter().map(|item| cell(Some(item))).collect::<Vec<_>>().join(","),
        Some(Value::Object(members)) => {
            members.iter().map(|(name, value)| format!("{name}={}", cell(Some(value)))).collect::<Vec<_>>().join(",")
        }
        Some(other) => other.to_string(),
    }
}

fn rows(kind: Kind, objects: &[Object], wide: bool) -> String {
    let shown = shown(kind, wide);
    let head: Vec<&str> = shown.iter().map(|(head, _)| *head).collect();
    let rows: Vec<Vec<String>> = objects
        .iter()
        .map(|object| shown.iter().map(|(_, place)| cell(object.value.pointer(place))).collect())
        .collect();
    table::columns(&head, &rows)
}

/// The objects that a document names: one, or those of a list.
fn named_in(file: &str, document: &Document) -> Result<Vec<(Kind, String)>> {
    let text = |value: &Value, place: &str| value.pointer(place).and_then(Value::as_str).unwrap_or_default().to_owned();
    let is_list = text(&document.value, "/kind").ends_with("List");
    let items = match document.value.get("items").and_then(Value::as_array).filter(|_| is_list) {
        Some(items) => items.iter().enumerate().map(|(index, item)| (format!("items[{index}]."), item)).collect(),
        None => vec![(String::new(), &document.value)],
    };
    let mut named = Vec::new();
    for (at, item) in items {
        let (line, column) = document.place(&format!("{at}kind"));
        let kind = parse_kind(&text(item, "/kind")).map_err(|error| anyhow!("{file}:{line}:{column}: {error}"))?;
        let name = text(item, "/metadata/name");
        if name.is_empty() {
            let (line, column) = document.place(&format!("{at}metadata.name"));
            bail!("{file}:{line}:{column}: metadata.name: missing: name the object");
        }
        named.push((kind, name));
    }
    Ok(named)
}

pub(crate) fn delete(store: Option<&str>, delete: &Delete) -> Result<bool> {
    let mut doomed = Vec::new();
    if let Some(kind) = &delete.kind {
        let kind = parse_kind(kind)?;
        if delete.name.is_empty() {
            bail!(Usage(format!("name what is to be deleted: plat delete {} NAME", kind.plural())));
        }
        doomed.extend(delete.name.iter().map(|name| (kind, name.clone())));
    }
    for source in read_files(&delete.filename)? {
        for document in &source.documents {
            doomed.extend(named_in(&source.name, document)?);
        }
    }
    let mut session = Session::open(store, "plat delete", true)?;
    let mut done_all = true;
    let mut lines = Vec::new();
    for (kind, name) in doomed {
        let outcome = session.instance.delete(
            &session.settings,
            kind,
            &name,
            delete.force,
            delete.dry_run,
            &mut session.store,
            &mut session.clock,
        )?;
        report("", None, &outcome);
        match &outcome.done {
            Ok(done) => lines.push((full_name(Some(kind), &name), done.text())),
            Err(_) => done_all = false,
        }
    }
    print(&outcomes(&lines, delete.output, delete.dry_run))?;
    Ok(done_all)
}
