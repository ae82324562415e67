//! The CNI protocol: from command, environment and standard input to exit status, standard output and log lines.
//!
//! It knows the specification (0.1.0 to 1.1.0) and the behaviour of the reference skeleton. It does not know how
//! addresses are chosen: that is a [`crate::strategy`].

pub(crate) mod args;
mod environment;
pub(crate) mod failure;
pub(crate) mod result;
pub(crate) mod version;

pub use failure::code;
pub use version::{NEWEST as VERSION_NEWEST, SUPPORTED as VERSIONS_SUPPORTED};

pub(crate) use environment::Environment;

use crate::clock::Clock;
use crate::json::{Json, Node, to_go_text};
use crate::limits::{LOG_LINE_BYTES_MAX, MESSAGE_BYTES_MAX, NETWORK_NAME_BYTES_MAX};
use crate::network::is_container_id;
use crate::store::Store;
use crate::strategy::{block, ranges};
use environment::Verb;
use failure::Failure;
use std::borrow::Cow;

/// What the core cannot know and a host can, about the machine and the process of one call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// The operating system's host name, as it is.
    pub host_name: String,
    /// Absolute; relative paths in a configuration start here. Empty if it is not known.
    pub working_directory: String,
    /// Whether CNI_NETNS is the network namespace of the calling process; none if it could not be opened or was not
    /// looked at.
    pub netns_is_own: Option<bool>,
}

/// A policy's answer to a request (see `wit/types.wit`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// The policy's name.
    pub policy: String,
    /// Its reason, if it refuses the request.
    pub refuse: Option<String>,
    /// Pools to use, best first; none: it abstained.
    pub pools: Option<Vec<String>>,
    /// Blocks to use, best first: base address and length; none: it abstained.
    pub blocks: Option<Vec<(crate::net::Address, u8)>>,
}

/// One call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The file name under which the binary was started, without directories; it chooses the personality.
    pub program: String,
    /// The environment, as name and value in the bytes of the operating system; only `CNI_` names matter.
    pub environment: Vec<(Vec<u8>, Vec<u8>)>,
    /// Standard input, whole.
    pub input: Vec<u8>,
    /// What the host knows beside.
    pub surroundings: Surroundings,
    /// Milliseconds that are left for this call.
    pub deadline_ms: u64,
    /// 0 at first; one more each time the host repeats a contended call.
    pub attempt: u32,
    /// What policies said to this request.
    pub advice: Vec<Advice>,
}

/// How grave a log line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something failed.
    Error,
    /// Something is wrong that the call survived.
    Warning,
    /// Something worth knowing.
    Info,
    /// For developers.
    Debug,
}

/// A line for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// How grave.
    pub level: Level,
    /// The text, without a line end.
    pub text: String,
}

impl Line {
    /// Texts quote what callers wrote; control characters are escaped, so that a line stays one line and a terminal
    /// that shows it is left alone.
    pub fn new(level: Level, text: &str) -> Self {
        let text = cut(text, LOG_LINE_BYTES_MAX);
        let mut escaped = String::with_capacity(text.len());
        for c in text.chars() {
            if c.is_control() { escaped.extend(c.escape_default()) } else { escaped.push(c) }
        }
        Self { level, text: escaped }
    }
}

/// The answer to one call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// The process's exit status.
    pub exit_status: u8,
    /// Standard output, byte for byte.
    pub output: Vec<u8>,
    /// What goes to standard error as it is, whatever the log level.
    pub error_output: Vec<u8>,
    /// Lines for the log.
    pub log: Vec<Line>,
    /// Nothing was decided, since compare-and-swap lost every time: wait and repeat with the next `attempt`.
    pub contended: bool,
}

/// Where the SQLite store is unless a path is given: one place for all hosts.
pub const SQLITE_PATH_DEFAULT: &str = "/var/lib/plat/ipam.db";

/// A place where allocations are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// None: the request is answered without a store.
    #[default]
    None,
    /// A directory in host-local's format: the absolute path of its dataDir.
    Directory(String),
    /// A SQLite file: its absolute path.
    Sqlite(String),
    /// An etcd cluster: its endpoints.
    Etcd(Vec<String>),
    /// The Kubernetes API.
    Kubernetes,
    /// The node daemon: the path of its socket; none: the default one.
    Daemon(Option<String>),
}

/// Where a log of the calls goes beside standard error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFile {
    /// Absolute.
    pub path: String,
    /// The file is rotated when it would grow beyond this many bytes.
    pub bytes_max: u64,
}

/// Which store a request is for, and which lock serialises it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The store.
    pub backend: Backend,
    /// The network's name; empty with [`Backend::None`].
    pub network: String,
    /// Whether the store's lock, if it is local, is to be held for the whole call.
    pub exclusive: bool,
    /// How long to wait for that lock.
    pub lock_wait_ms_max: u64,
    /// Where to log, if the configuration says so.
    pub log: Option<LogFile>,
    /// Whether the call asks for standard input.
    pub reads_input: bool,
    /// Whether `netns_is_own` matters to the call.
    pub compares_netns: bool,
}

/// Whose behaviour a call gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Personality {
    /// host-local's, to the last message.
    HostLocal,
    /// calico-ipam's.
    CalicoIpam,
    /// Our own.
    Plat,
}

/// How addresses are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strategy {
    Ranges,
    Block,
}

/// The strategy of a call: the one that the program's name stands for, or under our own name `ipam.mode`.
fn strategy_of(personality: Personality, document: &Json) -> Strategy {
    let mut mode = String::new();
    let read =
        Node::root(document).members(&["ipam"], |_, node| node.members(&["mode"], |_, node| node.string(&mut mode)));
    match personality {
        Personality::CalicoIpam => Strategy::Block,
        Personality::Plat if read.is_ok() && mode == "block" => Strategy::Block,
        Personality::HostLocal | Personality::Plat => Strategy::Ranges,
    }
}

/// A call whose protocol part is sound.
struct Checked {
    environment: Environment,
    verb: Verb,
    document: Json,
    network: String,
    version: String,
    personality: Personality,
    strategy: Strategy,
}

/// What a call needs before a strategy is asked.
enum Checks {
    Answered(Box<Reply>),
    Go(Box<Checked>),
}

/// The name of the plugin that the program stands for, in the about text.
fn personality_of(program: &str) -> (Personality, &str) {
    match program {
        "host-local" => (Personality::HostLocal, program),
        "calico-ipam" => (Personality::CalicoIpam, program),
        _ => (Personality::Plat, "plat-ipam"),
    }
}

/// Makes the checks of the reference skeleton in its order (`cni.md` A.2).
fn check(request: &Request) -> Checks {
    let answer = |reply: Reply| Checks::Answered(Box::new(reply));
    let environment = match Environment::read(&request.environment) {
        Ok(environment) => environment,
        Err(failure) => {
            let is_without_command =
                !request.environment.iter().any(|(name, value)| name == b"CNI_COMMAND" && !value.is_empty());
            return answer(if is_without_command { about(&request.program) } else { refusal(&failure) });
        }
    };
    if environment.verb() == Some(Verb::Version) {
        return answer(version_reply());
    }
    match check_input(request, environment) {
        Ok(checked) => Checks::Go(Box::new(checked)),
        Err(failure) => answer(refusal(&failure)),
    }
}

fn check_input(request: &Request, environment: Environment) -> Result<Checked, Failure> {
    let undecodable =
        |why: String| Failure::new(code::DECODING_FAILURE, format!("error unmarshall network config: {why}"));
    let document = Json::parse(&request.input).map_err(undecodable)?;
    let mut network = String::new();
    Node::root(&document)
        .members(&["name"], |_, node| node.string(&mut network))
        .map_err(|error| undecodable(error.to_string()))?;
    if network.is_empty() {
        return Err(Failure::new(code::INVALID_CONFIG, "missing network name"));
    }
    if !is_container_id(&network) {
        return Err(
            Failure::new(code::INVALID_CONFIG, "invalid characters found in network name").with_details(network)
        );
    }
    if network.len() > NETWORK_NAME_BYTES_MAX {
        return Err(Failure::new(code::INVALID_CONFIG, "network name is too long")
            .with_details(format!("name has {} bytes: at most {NETWORK_NAME_BYTES_MAX} are taken", network.len())));
    }
    let verb = environment.verb().ok_or_else(|| {
        Failure::new(code::INVALID_ENVIRONMENT, format!("unknown CNI_COMMAND: {}", environment.command))
    })?;
    let version = version::written(&document)?;
    let gate = match verb {
        Verb::Check => Some(version::Gate { verb: "CHECK", since: (0, 4, 0) }),
        Verb::Gc => Some(version::Gate { verb: "GC", since: (1, 1, 0) }),
        Verb::Status => Some(version::Gate { verb: "STATUS", since: (1, 1, 0) }),
        Verb::Add | Verb::Del | Verb::Version => None,
    };
    version::check(&version, gate.as_ref())?;
    let (personality, _) = personality_of(&request.program);
    let strategy = strategy_of(personality, &document);
    Ok(Checked { environment, verb, document, network, version, personality, strategy })
}

/// As much of a text as fits, and a mark where something was left out.
fn cut(text: &str, bytes_max: usize) -> Cow<'_, str> {
    if text.len() <= bytes_max {
        return text.into();
    }
    let end = (0..=bytes_max).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    let kept = text.get(..end).unwrap_or_default();
    format!("{kept}... ({} bytes more)", text.len() - end).into()
}

fn refusal(failure: &Failure) -> Reply {
    let shown = Failure {
        code: failure.code,
        msg: cut(&failure.msg, MESSAGE_BYTES_MAX).into_owned(),
        details: cut(&failure.details, MESSAGE_BYTES_MAX).into_owned(),
        contended: failure.contended,
    };
    Reply { exit_status: 1, output: to_go_text(&shown).into_bytes(), contended: shown.contended, ..Reply::default() }
}

/// What a person sees who starts the plugin by hand.
fn about(program: &str) -> Reply {
    let (_, name) = personality_of(program);
    let text = format!(
        "CNI {name} plugin: Plat {}\nCNI protocol versions supported: {}\n",
        env!("CARGO_PKG_VERSION"),
        version::SUPPORTED.join(", ")
    );
    Reply { error_output: text.into_bytes(), ..Reply::default() }
}

fn version_reply() -> Reply {
    let versions: Vec<String> = version::SUPPORTED.iter().map(|version| format!("\"{version}\"")).collect();
    let text = format!("{{\"cniVersion\":\"{}\",\"supportedVersions\":[{}]}}\n", version::NEWEST, versions.join(","));
    Reply { output: text.into_bytes(), ..Reply::default() }
}

/// Finds by parsing alone where a request is to go.
pub fn locate(request: &Request) -> Target {
    let checked = match check(request) {
        Checks::Go(checked) => checked,
        Checks::Answered(_) => return Target { reads_input: reads_input(request), ..Target::default() },
    };
    let mut target = Target {
        reads_input: true,
        compares_netns: matches!(checked.verb, Verb::Add | Verb::Del) && !checked.environment.allows_own_netns,
        ..Target::default()
    };
    let directory = &request.surroundings.working_directory;
    let found = match checked.strategy {
        Strategy::Ranges => ranges::config::Location::read(&checked.document, directory)
            .ok()
            .map(|(location, _)| (Backend::Directory(location.data_dir), location.lock_wait_ms_max, location.log)),
        Strategy::Block => block::config::Location::read(&checked.document, directory)
            .ok()
            .map(|(location, _)| (location.backend, location.lock_wait_ms_max, location.log)),
    };
    if let Some((backend, lock_wait_ms_max, log)) = found {
        (target.backend, target.lock_wait_ms_max, target.log) = (backend, lock_wait_ms_max, log);
        target.network = checked.network;
        target.exclusive = true;
    }
    target
}

/// Whether a request wants standard input, by its environment alone: VERSION and a call without a command do not.
fn reads_input(request: &Request) -> bool {
    Environment::read(&request.environment).is_ok_and(|environment| environment.verb() != Some(Verb::Version))
}

/// Answers one call.
pub fn call(request: &Request, store: &mut dyn Store, clock: &mut dyn Clock) -> Reply {
    let checked = match check(request) {
        Checks::Answered(reply) => return *reply,
        Checks::Go(checked) => checked,
    };
    let mut log = Vec::new();
    let mut call = crate::strategy::Call {
        environment: &checked.environment,
        document: &checked.document,
        version: &checked.version,
        network: &checked.network,
        personality: checked.personality,
        surroundings: &request.surroundings,
        advice: &request.advice,
        store,
        clock,
        log: &mut log,
    };
    let answer = match (checked.strategy, checked.verb) {
        (Strategy::Ranges, Verb::Add) => ranges::add(&mut call),
        (Strategy::Ranges, Verb::Del) => ranges::del(&mut call),
        (Strategy::Ranges, Verb::Check) => ranges::check(&mut call),
        (Strategy::Ranges, Verb::Gc) => ranges::gc(&mut call),
        (Strategy::Ranges, Verb::Status) => ranges::status(&mut call),
        (Strategy::Block, Verb::Add) => block::add(&mut call),
        (Strategy::Block, Verb::Del) => block::del(&mut call),
        (Strategy::Block, Verb::Check) => block::check(&mut call),
        (Strategy::Block, Verb::Gc) => block::gc(&mut call),
        (Strategy::Block, Verb::Status) => block::status(&mut call),
        (_, Verb::Version) => return version_reply(),
    };
    // The reference skeleton looks after DEL has done its work (`cni.md` A.2, step 7); ADD looked before.
    let own_netns = request.surroundings.netns_is_own == Some(true) && !checked.environment.allows_own_netns;
    let answer = match answer {
        Ok(_) if checked.verb == Verb::Del && own_netns => Err(Failure::own_netns()),
        answer => answer,
    };
    let reply = match answer {
        Ok(output) => Reply { output, ..Reply::default() },
        Err(failure) => {
            let details = if failure.details.is_empty() { String::new() } else { format!("; {}", failure.details) };
            let Checked { environment: Environment { command, container, ifname, .. }, network, .. } = &*checked;
            let owner = if container.is_empty() { String::new() } else { format!(" of {container}/{ifname}") };
            let text = format!("{command}{owner} in network {network} failed: {}{details}", failure.msg);
            log.push(Line::new(Level::Error, &text));
            refusal(&failure)
        }
    };
    Reply { log, ..reply }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_a_line_are_escaped() {
        let line = Line::new(Level::Info, "a\nb\u{1b}[0m\u{85} \u{e4}");
        assert_eq!(line.text, "a\\nb\\u{1b}[0m\\u{85} \u{e4}");
    }
}
