//! The CNI protocol: from command, environment and standard input to exit status, standard output and log lines.
//!
//! It knows the specification (0.1.0 to 1.1.0) and the behaviour of the reference skeleton. It does not know how
//! addresses are chosen: that is a [`crate::strategy`].

use crate::clock::Clock;
use crate::store::Store;

/// What the core cannot know and a host can, about the machine and the process of one call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// The operating system's host name, as it is.
    pub host_name: String,
    /// Absolute; relative paths in a configuration start here.
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

/// Finds by parsing alone where a request is to go.
pub fn locate(request: &Request) -> Target {
    let _ = request;
    Target::default()
}

/// Answers one call.
pub fn call(request: &Request, store: &mut dyn Store, clock: &mut dyn Clock) -> Reply {
    let _ = (request, store, clock);
    Reply::default()
}
