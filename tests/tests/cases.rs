//! Runs the CNI cases: one test for each `tests/cni/<theme>/<case>.toml`, by real processes in a folder of its own.
//!
//! A case is read as documentation first: its opening comment says what is shown and where the rule comes from, then
//! follow standard input, the store before, and the calls with what comes out of each. `tests/cni/README.md` explains
//! the keys. Where the real host-local of the newest release is on the machine, a case that says
//! `reference = "same"` is run on it too, so that the expectations are proven against the original; a case that says
//! `reference = "differs: <id>"` must then really differ from it.
//!
//! `BLESS=1` rewrites the expectations from plat-ipam, `BLESS=reference` those of the "same" cases from host-local.
//! `PLAT_CASES_AGAINST=reference` runs the "same" cases on host-local alone.

mod embedded;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use embedded::{Embedded, Survey};
use libtest_mimic::{Arguments, Failed, Trial};
use plat_tests::call::{Call as Process, End};
use plat_tests::tree::{Entry, Kind, snapshot};
use plat_tests::{peers, skip};
use serde::Deserialize;

/// A call that takes longer hangs: the slowest call of the cases takes a few milliseconds.
const CALL_MS_MAX: u64 = 20_000;

/// Fewer cases than this mean that files got lost.
const CASES_MIN: usize = 150;

/// One case file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// `same`, or `differs: <id>` with an id of docs/differences.md.
    reference: String,
    /// Host-local answers at random here, so that a run on it proves nothing.
    #[serde(default)]
    reference_random: bool,
    /// The file name under which the plugin is started.
    #[serde(default = "host_local")]
    program: String,
    /// Standard input of all calls that give none of their own.
    stdin: Option<Input>,
    /// Files beside the store, below `$TMP`.
    #[serde(default)]
    files: BTreeMap<String, Content>,
    /// The store before the first call, below `$DATADIR`.
    #[serde(default)]
    store: BTreeMap<String, Content>,
    /// What the embedded store at `$TMP/ipam.db` holds before the first call.
    #[serde(default)]
    ipam: Resources,
    /// The calls, in order.
    call: Vec<Call>,
}

/// What lies in an embedded store.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Resources {
    /// Pools by name; `nodeSelector` is `all()` unless given.
    #[serde(default)]
    pools: BTreeMap<String, serde_json::Value>,
    /// The reserved CIDRs of reservations, by name.
    #[serde(default)]
    reservations: BTreeMap<String, Vec<String>>,
    /// The spec of the configuration.
    config: Option<serde_json::Value>,
    /// Labels of nodes, by name.
    #[serde(default)]
    nodes: BTreeMap<String, BTreeMap<String, String>>,
    /// Labels of namespaces, by name.
    #[serde(default)]
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
    /// Any other entries: key and value.
    #[serde(default)]
    entries: BTreeMap<String, String>,
}

/// One call and what it must give.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    /// CNI_COMMAND; left out: the variable is not set.
    command: Option<String>,
    /// Changes to the usual environment.
    #[serde(default)]
    env: BTreeMap<String, Input>,
    /// Variables of the usual environment that are not set.
    #[serde(default)]
    unset: Vec<String>,
    /// Standard input, instead of the case's.
    stdin: Option<Input>,
    /// Another process holds the lock of this network during the call.
    lock_held: Option<String>,
    /// Another process holds the lock of the embedded store during the call.
    #[serde(default)]
    ipam_lock_held: bool,
    /// The exit status.
    #[serde(default)]
    exit: i32,
    /// Standard output, exactly; left out together with the next two: nothing.
    stdout: Option<String>,
    /// Standard output, as a JSON value.
    stdout_json: Option<String>,
    /// Standard output is an error whose text is up to the language's JSON library.
    error: Option<LooseError>,
    /// The error's `details` contain these (plat-ipam alone).
    #[serde(default)]
    details_contains: Vec<String>,
    /// Standard error contains these; left out: it is empty, but for the log of a call of ours that fails.
    #[serde(default)]
    stderr_contains: Vec<String>,
    /// The store afterwards; left out: as before the call.
    store: Option<BTreeMap<String, Content>>,
    /// Who holds each address of the embedded store afterwards; left out: as before the call.
    held: Option<BTreeMap<String, Holding>>,
    /// Who has each block of the embedded store afterwards, empty: nobody; left out: not looked at.
    blocks: Option<BTreeMap<String, String>>,
}

/// Who holds an address.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Holding {
    /// The handle; empty: it has none.
    Handle(String),
    /// The handle (`handle`) and all attributes but the time, which must be there.
    Owner(BTreeMap<String, String>),
}

/// An error of which only code and beginning are fixed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LooseError {
    /// The error's code.
    code: u64,
    /// How its `msg` begins.
    #[serde(default)]
    msg_starts: String,
    /// What the `msg` of plat-ipam, whose JSON library has words of its own, contains beside.
    #[serde(default)]
    ours_contains: String,
}

/// Bytes that are mostly text.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Input {
    /// Text, in which `$DATADIR` and `$TMP` stand for the folders.
    Text(String),
    /// Parts, one after the other.
    Parts(Vec<Part>),
}

/// A part of an [`Input`].
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Part {
    /// Text, as in [`Input::Text`].
    Text(String),
    /// Bytes, as pairs of hex digits, blanks ignored.
    Hex { hex: String },
    /// A text many times.
    Repeat { repeat: String, times: usize },
}

/// What lies at a path.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Content {
    /// A file of mode 0600.
    Text(String),
    /// Anything else.
    Node(Node),
}

/// What lies at a path, in full.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Node {
    /// The content of a file.
    text: Option<String>,
    /// The same, as hex digits.
    hex: Option<String>,
    /// The target of a symbolic link.
    link: Option<String>,
    /// Whether it is a directory; listed only if it is empty or its mode is not 0755.
    #[serde(default)]
    dir: bool,
    /// The mode, in octal.
    mode: Option<String>,
    /// When it was last changed, in seconds since 1970; only before the first call.
    mtime_s: Option<u64>,
}

/// What was found at a path, with its mode (0 for links).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Found {
    kind: Kind,
    mode: u32,
}

type Tree = BTreeMap<String, Found>;

/// What one call gave.
struct Outcome {
    exit: i32,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    before: Tree,
    after: Tree,
    held_before: Survey,
    held_after: Survey,
}

/// Whose binary ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Ours,
    Reference,
}

/// The folders of one run.
struct Place {
    temporary: tempfile::TempDir,
}

fn host_local() -> String {
    "host-local".to_owned()
}

impl Place {
    fn new() -> Result<Self, String> {
        tempfile::Builder::new()
            .prefix("plat-case-")
            .tempdir()
            .map(|temporary| Place { temporary })
            .map_err(|error| format!("no temporary folder: {error}"))
    }

    fn root(&self) -> &Path {
        self.temporary.path()
    }

    fn store(&self) -> PathBuf {
        self.root().join("data")
    }

    fn embedded(&self) -> Embedded {
        Embedded::at(self.root().join("ipam.db"))
    }

    /// Puts the folders in for their names.
    fn fill(&self, text: &str) -> String {
        let host = rustix::system::uname().nodename().to_string_lossy().to_lowercase();
        text.replace("$DATADIR", &self.store().to_string_lossy())
            .replace("$TMP", &self.root().to_string_lossy())
            .replace("$HOSTNAME", &host)
    }

    /// Puts the names in for the folders.
    fn generalise(&self, text: &str) -> String {
        text.replace(&*self.store().to_string_lossy(), "$DATADIR").replace(&*self.root().to_string_lossy(), "$TMP")
    }

    fn bytes(&self, input: &Input) -> Result<Vec<u8>, String> {
        match input {
            Input::Text(text) => Ok(self.fill(text).into_bytes()),
            Input::Parts(parts) => {
                let mut bytes = Vec::new();
                for part in parts {
                    match part {
                        Part::Text(text) => bytes.extend(self.fill(text).bytes()),
                        Part::Hex { hex } => bytes.extend(unhex(hex)?),
                        Part::Repeat { repeat, times } => bytes.extend(repeat.repeat(*times).bytes()),
                    }
                }
                Ok(bytes)
            }
        }
    }
}

fn unhex(text: &str) -> Result<Vec<u8>, String> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    digits
        .chunks(2)
        .map(|pair| {
            std::str::from_utf8(pair)
                .ok()
                .filter(|pair| pair.len() == 2)
                .and_then(|pair| u8::from_str_radix(pair, 16).ok())
                .ok_or_else(|| format!("`{text}` is not pairs of hex digits"))
        })
        .collect()
}

fn octal(text: &str) -> Result<u32, String> {
    u32::from_str_radix(text, 8).map_err(|_| format!("mode `{text}` is not octal"))
}

impl Content {
    /// What is expected to be found.
    fn found(&self, place: &Place) -> Result<Found, String> {
        let node = match self {
            Content::Text(text) => {
                return Ok(Found { kind: Kind::File(place.fill(text).into_bytes()), mode: 0o600 });
            }
            Content::Node(node) => node,
        };
        let (kind, mode) = match (&node.text, &node.hex, &node.link, node.dir) {
            (Some(text), None, None, false) => (Kind::File(place.fill(text).into_bytes()), 0o600),
            (None, Some(hex), None, false) => (Kind::File(unhex(hex)?), 0o600),
            (None, None, Some(target), false) => (Kind::Link(place.fill(target).into_bytes()), 0),
            (None, None, None, true) => (Kind::Directory, 0o755),
            _ => return Err(format!("{node:?} is not exactly one of text, hex, link and dir")),
        };
        let mode = node.mode.as_deref().map_or(Ok(mode), octal)?;
        Ok(Found { kind, mode })
    }

    fn mtime_s(&self) -> Option<u64> {
        match self {
            Content::Text(_) => None,
            Content::Node(node) => node.mtime_s,
        }
    }
}

impl Resources {
    /// Writes all of it; a store of which nothing is said is not made.
    fn create(&self, place: &Place) -> Result<(), String> {
        let labelled = |kind: &str, name: &str, labels: &BTreeMap<String, String>| {
            let metadata = serde_json::json!({"name": name, "labels": labels});
            serde_json::json!({"kind": kind, "apiVersion": "v1", "metadata": metadata}).to_string()
        };
        let mut entries: Vec<(String, String)> = Vec::new();
        entries.extend(self.pools.iter().map(|(name, spec)| embedded::pool(name, spec)));
        for (name, reserved) in &self.reservations {
            let spec = serde_json::json!({"reservedCIDRs": reserved});
            entries.push((format!("reservation/{name}"), embedded::object("IPReservation", name, &spec)));
        }
        if let Some(spec) = &self.config {
            entries.push(("config".to_owned(), embedded::object("IPAMConfiguration", "default", spec)));
        }
        for (name, labels) in &self.nodes {
            entries.push((format!("node/{name}"), labelled("Node", name, labels)));
        }
        for (name, labels) in &self.namespaces {
            entries.push((format!("namespace/{name}"), labelled("Namespace", name, labels)));
        }
        entries.extend(self.entries.clone());
        if entries.is_empty() { Ok(()) } else { place.embedded().put(&entries) }
    }
}

fn expected_tree(place: &Place, contents: &BTreeMap<String, Content>) -> Result<Tree, String> {
    contents.iter().map(|(path, content)| Ok((path.clone(), content.found(place)?))).collect()
}

fn create(place: &Place, base: &Path, contents: &BTreeMap<String, Content>) -> Result<(), String> {
    let put = |path: &Path, content: &Content| -> Result<(), String> {
        let found = content.found(place)?;
        let fail = |error: std::io::Error| format!("{}: {error}", path.display());
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(fail)?;
        }
        match &found.kind {
            Kind::File(bytes) => fs::write(path, bytes).map_err(fail)?,
            Kind::Directory => fs::create_dir_all(path).map_err(fail)?,
            Kind::Link(target) => return symlink(OsString::from_vec(target.clone()), path).map_err(fail),
            Kind::Other => return Err(format!("{}: cannot be made", path.display())),
        }
        fs::set_permissions(path, fs::Permissions::from_mode(found.mode)).map_err(fail)?;
        if let Some(seconds) = content.mtime_s() {
            let file = fs::File::open(path).map_err(fail)?;
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            file.set_modified(time).map_err(fail)?;
        }
        Ok(())
    };
    contents.iter().try_for_each(|(path, content)| put(&base.join(path), content))
}

/// The store as a case lists it: without the directories that the paths of others imply.
fn tree(base: &Path) -> Result<Tree, String> {
    let entries = snapshot(base).map_err(|error| format!("{}: {error}", base.display()))?.0;
    let is_implied = |entry: &Entry| {
        let below = format!("{}/", entry.path);
        entry.kind == Kind::Directory
            && entry.mode == 0o755
            && entries.iter().any(|other| other.path.starts_with(&below))
    };
    Ok(entries
        .iter()
        .filter(|entry| !is_implied(entry))
        .map(|entry| {
            let mode = if matches!(entry.kind, Kind::Link(_)) { 0 } else { entry.mode };
            (entry.path.clone(), Found { kind: entry.kind.clone(), mode })
        })
        .collect())
}

/// The environment of a call that changes nothing: what a runtime gives for container c1.
fn usual_environment() -> BTreeMap<OsString, OsString> {
    [
        ("CNI_CONTAINERID", "c1"),
        ("CNI_NETNS", "/run/netns/of-no-container"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_PATH", "/opt/cni/bin"),
    ]
    .into_iter()
    .map(|(name, value)| (OsString::from(name), OsString::from(value)))
    .collect()
}

fn run_call(case: &Case, call: &Call, binary: &Path, place: &Place) -> Result<Outcome, String> {
    let mut environment = usual_environment();
    for name in &call.unset {
        environment.remove(&OsString::from(name));
    }
    for (name, value) in &call.env {
        environment.insert(name.into(), OsString::from_vec(place.bytes(value)?));
    }
    if let Some(command) = &call.command {
        environment.insert("CNI_COMMAND".into(), command.into());
    }
    let input = match call.stdin.as_ref().or(case.stdin.as_ref()) {
        Some(input) => place.bytes(input)?,
        None => Vec::new(),
    };
    let before = tree(&place.store())?;
    let held_before = place.embedded().survey()?;
    let lock = match &call.lock_held {
        None if call.ipam_lock_held => Some(place.embedded().lock()),
        None => None,
        Some(network) => Some(place.store().join(network).join("lock")),
    };
    let _lock = match lock {
        None => None,
        Some(path) => {
            let file = fs::File::open(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)
                .map_err(|error| format!("{}: {error}", path.display()))?;
            Some(file)
        }
    };
    let reply = Process {
        program: binary.to_owned(),
        name: None,
        environment,
        input,
        folder: place.root().to_owned(),
        timeout: Duration::from_millis(CALL_MS_MAX),
    }
    .run();
    let exit = match reply.end {
        End::Exit(status) => status,
        // As a shell shows it.
        End::Signal(signal) => 128 + signal,
        End::TimedOut => return Err(format!("the call did not end within {CALL_MS_MAX} ms")),
    };
    Ok(Outcome {
        exit,
        stdout: reply.output,
        stderr: reply.errors,
        before,
        after: tree(&place.store())?,
        held_before,
        held_after: place.embedded().survey()?,
    })
}

fn run_case(case: &Case, binary: &Path, place: &Place) -> Result<Vec<Outcome>, String> {
    let folder = place.root().join("bin");
    fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    // The personality follows the name under which the binary is started.
    let program = folder.join(&case.program);
    symlink(binary, &program).map_err(|error| format!("{}: {error}", program.display()))?;
    create(place, place.root(), &case.files)?;
    create(place, &place.store(), &case.store)?;
    case.ipam.create(place)?;
    case.call
        .iter()
        .enumerate()
        .map(|(index, call)| {
            run_call(case, call, &program, place).map_err(|error| format!("call {}: {error}", index + 1))
        })
        .collect()
}

/// The bytes of an error's `details` member, which comes last, with the comma before it.
fn details_of(stdout: &str) -> Option<&str> {
    let start = stdout.find(",\n    \"details\": ")?;
    let details = stdout.get(start..)?.strip_suffix("\n}")?;
    Some(details)
}

/// Our errors explain themselves in `details`, where the original has none: a case that does not speak of them is
/// compared without.
fn without_new_details(stdout: &str, expected: Option<&str>) -> String {
    match details_of(stdout) {
        Some(details) if expected.is_none_or(|expected| details_of(expected).is_none()) => stdout.replace(details, ""),
        _ => stdout.to_owned(),
    }
}

fn show(tree: &Tree) -> String {
    let mut text = String::new();
    for (path, found) in tree {
        let _ = match &found.kind {
            Kind::File(bytes) => {
                writeln!(text, "    {path}: {:04o} \"{}\"", found.mode, String::from_utf8_lossy(bytes).escape_debug())
            }
            Kind::Link(target) => writeln!(text, "    {path}: link to {}", target.escape_ascii()),
            Kind::Directory => writeln!(text, "    {path}/: {:04o}", found.mode),
            Kind::Other => writeln!(text, "    {path}: neither file, directory nor link"),
        };
    }
    if text.is_empty() { "    (nothing)\n".to_owned() } else { text }
}

fn check_output(call: &Call, side: Side, place: &Place, stdout: &str, wrong: &mut Vec<String>) {
    if let Some(error) = &call.error {
        let value: serde_json::Value = serde_json::from_str(stdout).unwrap_or_default();
        let code = value.get("code").and_then(serde_json::Value::as_u64);
        let msg = value.get("msg").and_then(serde_json::Value::as_str);
        let fits = msg.is_some_and(|msg| {
            msg.starts_with(&place.fill(&error.msg_starts))
                && (side == Side::Reference || msg.contains(&place.fill(&error.ours_contains)))
        });
        if code != Some(error.code) || !fits {
            wrong.push(format!(
                "stdout\n  expected code {} and a msg that starts with `{}`, ours with `{}` in it\n  got {stdout}",
                error.code, error.msg_starts, error.ours_contains
            ));
        }
    } else if let Some(expected) = &call.stdout_json {
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
        let expected = place.fill(expected);
        if value(&expected).is_none() || value(stdout) != value(&expected) {
            wrong.push(format!("stdout\n  expected the JSON {expected}\n  got {stdout}"));
        }
    } else {
        let expected = call.stdout.as_deref().map(|text| place.fill(text));
        let got = match side {
            Side::Ours => without_new_details(stdout, expected.as_deref()),
            Side::Reference => stdout.to_owned(),
        };
        let expected = expected.unwrap_or_default();
        if got != expected {
            wrong.push(format!("stdout\n  expected {expected:?}\n  got      {got:?}"));
        }
    }
    if side == Side::Ours {
        for part in &call.details_contains {
            if !details_of(stdout).is_some_and(|details| details.contains(&place.fill(part))) {
                wrong.push(format!("details\n  expected to contain `{part}`\n  got {stdout}"));
            }
        }
    }
}

/// What is in the embedded store after a call, beside what must be.
fn check_embedded(call: &Call, place: &Place, outcome: &Outcome, wrong: &mut Vec<String>) {
    let (before, after) = (&outcome.held_before, &outcome.held_after);
    if !after.faults.is_empty() && after.faults != before.faults {
        wrong.push(format!("the embedded store\n  {}", after.faults.join("\n  ")));
    }
    if after.half_done > before.half_done {
        wrong.push(format!("the embedded store\n  {} claims are half done", after.half_done));
    }
    match &call.held {
        None if before.held != after.held => {
            wrong.push(format!("held\n  expected {:?}\n  got {:?}", before.handles(), after.handles()));
        }
        None => {}
        Some(expected) => {
            let addresses = |all: Vec<&String>| all.into_iter().cloned().collect::<Vec<_>>();
            let handles = after.handles();
            let holds = |(address, holding): (&String, &Holding)| match holding {
                Holding::Handle(handle) => handles.get(address) == Some(handle),
                Holding::Owner(owner) => {
                    let mut found = after.attributes(address).cloned().unwrap_or_default();
                    let time = found.remove("timestamp").unwrap_or_default();
                    found.insert("handle".to_owned(), handles.get(address).cloned().unwrap_or_default());
                    let owner: BTreeMap<String, String> =
                        owner.iter().map(|(name, value)| (name.clone(), place.fill(value))).collect();
                    found == owner && time.ends_with(" +0000 UTC")
                }
            };
            if addresses(expected.keys().collect()) != addresses(handles.keys().collect())
                || !expected.iter().all(holds)
            {
                wrong.push(format!("held\n  expected {expected:?}\n  got {:?}", after.held));
            }
        }
    }
    if let Some(expected) = &call.blocks {
        let found: BTreeMap<String, String> =
            after.blocks.iter().map(|(block, holder)| (block.clone(), holder.clone().unwrap_or_default())).collect();
        if found != *expected {
            wrong.push(format!("blocks\n  expected {expected:?}\n  got {found:?}"));
        }
    }
}

fn check_call(call: &Call, side: Side, place: &Place, outcome: &Outcome) -> Result<Vec<String>, String> {
    let mut wrong = Vec::new();
    if outcome.exit != call.exit {
        wrong.push(format!("exit status\n  expected {}\n  got {}", call.exit, outcome.exit));
    }
    let stdout = String::from_utf8_lossy(&outcome.stdout);
    check_output(call, side, place, &stdout, &mut wrong);
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    // A call of ours that fails says so in the log too.
    let may_log = side == Side::Ours && outcome.exit != 0;
    if call.stderr_contains.is_empty() && !may_log && !stderr.is_empty() {
        wrong.push(format!("stderr\n  expected nothing\n  got {stderr:?}"));
    }
    for part in &call.stderr_contains {
        if !stderr.contains(&place.fill(part)) {
            wrong.push(format!("stderr\n  expected to contain {part:?}\n  got {stderr:?}"));
        }
    }
    let expected = match &call.store {
        Some(contents) => expected_tree(place, contents)?,
        None => outcome.before.clone(),
    };
    if outcome.after != expected {
        wrong.push(format!("store\n  expected\n{}  got\n{}", show(&expected), show(&outcome.after)));
    }
    check_embedded(call, place, outcome, &mut wrong);
    Ok(wrong)
}

/// Every way in which a run differs from what the case says.
fn check_case(case: &Case, binary: &Path, side: Side) -> Result<Vec<String>, String> {
    let place = Place::new()?;
    let outcomes = run_case(case, binary, &place)?;
    let mut wrong = Vec::new();
    for (index, (call, outcome)) in case.call.iter().zip(&outcomes).enumerate() {
        for line in check_call(call, side, &place, outcome)? {
            let command = call.command.as_deref().unwrap_or("(no command)");
            wrong.push(format!("{side:?}, call {} ({command}): {line}", index + 1));
        }
    }
    Ok(wrong)
}

mod bless {
    //! Rewrites the expectations of a case file and nothing else of it.

    use super::{Call, Case, Kind, Outcome, Place, Side, Tree, check_call, without_new_details};
    use toml_edit::{DocumentMut, InlineTable, Item, Table, Value, value};

    fn basic(text: &str) -> Value {
        let mut quoted = String::from("\"");
        for character in text.chars() {
            match character {
                '"' => quoted.push_str("\\\""),
                '\\' => quoted.push_str("\\\\"),
                '\n' => quoted.push_str("\\n"),
                '\r' => quoted.push_str("\\r"),
                '\t' => quoted.push_str("\\t"),
                other if other.is_control() => quoted.push_str(&format!("\\u{:04X}", u32::from(other))),
                other => quoted.push(other),
            }
        }
        quoted.push('"');
        quoted.parse().unwrap_or_else(|_| Value::from(text))
    }

    fn block(text: &str) -> Value {
        let plain = !text.contains("'''") && !text.chars().any(|character| character.is_control() && character != '\n');
        if plain && text.contains('\n') {
            format!("'''\n{text}'''").parse().unwrap_or_else(|_| basic(text))
        } else {
            basic(text)
        }
    }

    /// Addresses need quotes as keys.
    fn basic_key(text: &str) -> toml_edit::Key {
        toml_edit::Key::new(text)
    }

    fn store_table(place: &Place, tree: &Tree) -> Table {
        let mut table = Table::new();
        for (path, found) in tree {
            let mut inline = InlineTable::new();
            let mode_usual = match &found.kind {
                Kind::File(bytes) => {
                    match std::str::from_utf8(bytes) {
                        Ok(text) => inline.insert("text", basic(&place.generalise(text))),
                        Err(_) => {
                            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                            inline.insert("hex", basic(&hex))
                        }
                    };
                    0o600
                }
                Kind::Link(target) => {
                    inline.insert("link", basic(&place.generalise(&String::from_utf8_lossy(target))));
                    0
                }
                Kind::Directory | Kind::Other => {
                    inline.insert("dir", true.into());
                    0o755
                }
            };
            if found.mode != mode_usual {
                inline.insert("mode", basic(&format!("{:04o}", found.mode)));
            }
            let only_text = inline.len() == 1 && inline.contains_key("text");
            let item = match inline.remove("text") {
                Some(text) if only_text => text,
                Some(text) => {
                    inline.insert("text", text);
                    inline.sort_values();
                    Value::InlineTable(inline)
                }
                None => Value::InlineTable(inline),
            };
            table.insert(path, value(item));
        }
        table
    }

    /// Drops the time that Go's logger writes first.
    fn without_time(line: &str) -> &str {
        let mut parts = line.splitn(3, ' ');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(date), Some(_), Some(rest)) if date.len() == 10 && date.matches('/').count() == 2 => rest,
            _ => line,
        }
    }

    fn rewrite(call: &Call, table: &mut Table, side: Side, place: &Place, outcome: &Outcome) {
        if outcome.exit == 0 {
            table.remove("exit");
        } else {
            table.insert("exit", value(i64::from(outcome.exit)));
        }
        if call.stdout_json.is_none() && call.error.is_none() {
            let got = String::from_utf8_lossy(&outcome.stdout);
            let got = match side {
                Side::Ours => without_new_details(&got, call.stdout.as_deref()),
                Side::Reference => got.into_owned(),
            };
            if got.is_empty() {
                table.remove("stdout");
            } else {
                table.insert("stdout", value(block(&place.generalise(&got))));
            }
        }
        let stderr = String::from_utf8_lossy(&outcome.stderr);
        if stderr.is_empty() {
            table.remove("stderr_contains");
        } else if !call.stderr_contains.iter().all(|part| stderr.contains(&place.fill(part)))
            || call.stderr_contains.is_empty()
        {
            let lines: toml_edit::Array = stderr
                .lines()
                .filter(|line| !line.is_empty())
                .map(|line| basic(&place.generalise(without_time(line))))
                .collect();
            table.insert("stderr_contains", value(lines));
        }
        if outcome.after == outcome.before {
            table.remove("store");
        } else {
            table.insert("store", Item::Table(store_table(place, &outcome.after)));
        }
        if outcome.held_after.held == outcome.held_before.held {
            table.remove("held");
        } else {
            let handles = outcome.held_after.handles();
            let held: InlineTable =
                handles.iter().map(|(address, handle)| (basic_key(address), basic(handle))).collect();
            table.insert("held", value(held));
        }
        if call.blocks.is_some() {
            let blocks: InlineTable = outcome
                .held_after
                .blocks
                .iter()
                .map(|(block, holder)| (basic_key(block), basic(holder.as_deref().unwrap_or_default())))
                .collect();
            table.insert("blocks", value(blocks));
        }
    }

    /// Puts the given outcomes in for the expectations that they do not meet.
    pub(super) fn case(
        source: &str,
        case: &Case,
        side: Side,
        place: &Place,
        outcomes: &[Outcome],
    ) -> Result<String, String> {
        let mut document: DocumentMut = source.parse().map_err(|error| format!("{error}"))?;
        let tables = document
            .get_mut("call")
            .and_then(Item::as_array_of_tables_mut)
            .ok_or("the calls are not written as [[call]]")?;
        for ((call, table), outcome) in case.call.iter().zip(tables.iter_mut()).zip(outcomes) {
            if !check_call(call, side, place, outcome)?.is_empty() {
                rewrite(call, table, side, place, outcome);
            }
        }
        Ok(document.to_string())
    }
}

/// Where things are.
#[derive(Clone)]
struct Setting {
    ours: Option<PathBuf>,
    reference: peers::Found,
    bless: Option<Side>,
    reference_alone: bool,
}

impl Setting {
    fn from_environment() -> Self {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let bless = variable("BLESS").map(|value| if value == "reference" { Side::Reference } else { Side::Ours });
        let reference_alone = variable("PLAT_CASES_AGAINST").is_some_and(|value| value == "reference");
        // The plugin is not built for what does not run it.
        let needs_ours = !reference_alone && bless != Some(Side::Reference);
        Setting {
            ours: needs_ours.then(peers::plat_ipam),
            reference: peers::host_local_newest(),
            bless,
            reference_alone,
        }
    }
}

fn read_case(path: &Path) -> Result<(String, Case), String> {
    let source = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let comment: Vec<&str> = source.lines().take_while(|line| line.starts_with("# ")).collect();
    if comment.len() < 2 || !comment.iter().any(|line| line.starts_with("# Source: ")) {
        return Err(
            "a case begins with a comment that says what is shown, and `# Source: ` with where the rule comes from"
                .to_owned(),
        );
    }
    let case: Case = toml::from_str(&source).map_err(|error| error.to_string())?;
    if case.reference != "same" && !case.reference.starts_with("differs: ") {
        return Err(format!("reference = \"{}\" is neither `same` nor `differs: <id>`", case.reference));
    }
    Ok((source, case))
}

fn run_test(path: &Path, root: &Path, setting: &Setting) -> Result<(), String> {
    let (source, case) = read_case(path)?;
    let same = case.reference == "same";
    if let Some(side) = setting.bless {
        let binary = match side {
            Side::Ours => setting.ours.as_ref().ok_or("plat-ipam is not built")?,
            Side::Reference if !same => return Ok(()),
            Side::Reference => setting.reference.as_ref().map_err(ToString::to_string)?,
        };
        let place = Place::new()?;
        let outcomes = run_case(&case, binary, &place)?;
        let blessed = bless::case(&source, &case, side, &place, &outcomes)?;
        if blessed != source {
            fs::write(path, blessed).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        return Ok(());
    }
    let mut wrong = Vec::new();
    if let Some(id) = case.reference.strip_prefix("differs: ")
        && !setting.reference_alone
    {
        let differences = fs::read_to_string(root.join("docs/differences.md")).unwrap_or_default();
        if !differences.contains(&format!("`{id}`")) {
            wrong.push(format!("docs/differences.md does not name the difference `{id}`"));
        }
    }
    // Host-local does not know our own name, and waits without end for a lock that is held.
    let waits = !same && case.call.iter().any(|call| call.lock_held.is_some());
    let comparable = case.program == host_local() && !case.reference_random && !waits;
    if let Ok(reference) = &setting.reference
        && comparable
    {
        let found = check_case(&case, reference, Side::Reference)?;
        if same {
            wrong.extend(found);
        } else if found.is_empty() {
            wrong.push(format!("reference = \"{}\", but host-local gives the same", case.reference));
        }
    }
    if let Some(ours) = &setting.ours {
        wrong.extend(check_case(&case, ours, Side::Ours)?);
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

fn case_files(base: &Path) -> Result<Vec<(String, PathBuf)>, String> {
    let list = |path: &Path| -> Result<Vec<PathBuf>, String> {
        let fail = |error: std::io::Error| format!("{}: {error}", path.display());
        let mut paths = fs::read_dir(path)
            .map_err(fail)?
            .map(|entry| entry.map(|entry| entry.path()).map_err(fail))
            .collect::<Result<Vec<_>, _>>()?;
        paths.sort();
        Ok(paths)
    };
    let mut files = Vec::new();
    for theme in list(base)?.into_iter().filter(|path| path.is_dir()) {
        for file in list(&theme)? {
            if file.extension().is_some_and(|extension| extension == "toml") {
                let name = file.strip_prefix(base).unwrap_or(&file).with_extension("");
                files.push((name.to_string_lossy().into_owned(), file));
            }
        }
    }
    Ok(files)
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    // The modes in the cases are those under the usual mask.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let setting = Setting::from_environment();
    if let Err(missing) = &setting.reference {
        skip::skip(missing);
    }
    let files = match case_files(&root.join("tests/cni")) {
        Ok(files) => files,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let count = files.len();
    let mut trials = vec![Trial::test("suite/complete", move || {
        if count < CASES_MIN {
            return Err(Failed::from(format!("{count} cases are fewer than {CASES_MIN}")));
        }
        Ok(())
    })];
    for (name, path) in files {
        let (setting, root) = (setting.clone(), root.clone());
        trials.push(Trial::test(name, move || run_test(&path, &root, &setting).map_err(Failed::from)));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
