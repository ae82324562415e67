//! The component and its limits, with components that misbehave (`tests/components/*.wat`) in the core's place.

use crate::instance::Code;
use crate::{
    CORE_SHA256, CallError, Core, FUEL_PER_REQUEST, HOST_CALL_BYTES_MAX, INPUT_BYTES_MAX, MEMORY_BYTES_MAX,
    REQUESTS_MAX, embedded,
};
use plat_core::clock::{Clock, Instant};
use plat_core::cni::{self, Reply, Request};
use plat_core::store::{Durability, Entry, Error, Event, Page, Store, Version, Write};
use plat_stores::memory::MemoryStore;
use std::path::Path;
use std::process::Command;

/// The component that is embedded.
static COMPONENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/core.wasm"));

/// Its world.
const WORLD: &str = include_str!(concat!(env!("OUT_DIR"), "/core.world"));

/// A clock that stands, and counts how often it is read.
#[derive(Default)]
struct Standing {
    reads: u32,
}

impl Clock for Standing {
    fn now(&mut self) -> Instant {
        self.reads += 1;
        Instant { seconds: 1_000, nanoseconds: 7 }
    }

    fn boot_id(&mut self) -> Option<String> {
        Some("boot-1".to_owned())
    }
}

fn request(command: &str, container: &str) -> Request {
    let variables = [
        ("CNI_COMMAND", command),
        ("CNI_CONTAINERID", container),
        ("CNI_NETNS", "/proc/1/ns/net"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_PATH", "/opt/cni/bin"),
    ];
    let config = r#"{"cniVersion": "1.1.0", "name": "net", "type": "bridge", "ipam": {"type": "plat-ipam", "mode": "ranges",
        "dataDir": "/nowhere", "ranges": [[{"subnet": "10.1.0.0/29"}], [{"subnet": "fd00::/125"}]]}}"#;
    let mut request = Request {
        program: "plat-ipam".to_owned(),
        environment: variables
            .iter()
            .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
            .collect(),
        input: config.as_bytes().to_vec(),
        deadline_ms: 1_000,
        ..Request::default()
    };
    request.surroundings.working_directory = "/".to_owned();
    request.surroundings.netns_is_own = Some(false);
    request
}

/// The reply of the embedded component to one request.
fn reply(core: &Core, request: &Request, store: &mut dyn Store) -> Result<Reply, CallError> {
    let replies = core.instance().call(std::slice::from_ref(request), store, &mut Standing::default())?;
    Ok(replies.into_iter().next().unwrap())
}

#[test]
fn the_world_is_the_golden_one() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../core/component/world.golden");
    if std::env::var_os("BLESS").is_some_and(|value| value == "1") {
        std::fs::write(&golden, WORLD).unwrap();
    }
    let expected = std::fs::read_to_string(&golden).unwrap();
    assert_eq!(WORLD, expected, "if the change is meant, run again with BLESS=1");
    let imports: Vec<&str> =
        WORLD.lines().filter(|line| line.trim_start().starts_with("import ")).map(str::trim).collect();
    assert_eq!(imports, ["import plat:ipam/store@0.1.0;", "import plat:ipam/clock@0.1.0;"]);
}

#[test]
fn the_component_is_small_and_is_what_its_digest_says() {
    use sha2::Digest;
    assert!(COMPONENT.len() <= 1_500_000, "{} bytes", COMPONENT.len());
    let digest: String = sha2::Sha256::digest(COMPONENT).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(digest, CORE_SHA256);
    let names_a_home = COMPONENT.windows(5).any(|window| window == b"/root" || window == b"/home");
    assert!(!names_a_home, "a path of the machine that built it is in the component");
}

#[test]
fn component_and_native_core_agree() {
    let core = Core::embedded().unwrap();
    let mut instance = core.instance();
    let (mut native_store, mut component_store) = (MemoryStore::new(), MemoryStore::new());
    let mut addresses = 0;
    for (command, container) in [
        ("VERSION", ""),
        ("STATUS", ""),
        ("ADD", "c1"),
        ("ADD", "c2"),
        ("ADD", "c1"),
        ("CHECK", "c2"),
        ("DEL", "c1"),
        ("ADD", "c3"),
        ("ADD", "c4"),
        ("ADD", "c5"),
        ("ADD", "c6"),
        ("ADD", "c7"),
        ("ADD", "c8"),
        ("GC", ""),
        ("NONE", "x"),
        ("ADD", "-"),
        ("DEL", "c2"),
        ("STATUS", ""),
    ] {
        let requests = [request(command, container)];
        assert_eq!(instance.locate(&requests).unwrap(), [cni::locate(&requests[0])], "{command} {container}");
        let mut clock = Standing::default();
        let native = cni::call(&requests[0], &mut native_store, &mut Standing::default());
        let component = instance.call(&requests, &mut component_store, &mut clock).unwrap();
        assert!(clock.reads <= 1, "the clock was read {} times", clock.reads);
        assert_eq!(component, std::slice::from_ref(&native), "{command} {container}");
        assert_eq!(component_store.dump(), native_store.dump(), "{command} {container}");
        addresses += u32::from(command == "ADD" && native.exit_status == 0);
    }
    // Both sets hold five free addresses beside the gateway; c1 was given back.
    assert!((5..9).contains(&addresses), "{addresses}");
}

#[test]
fn a_batch_is_answered_in_order() {
    let core = Core::embedded().unwrap();
    let requests: Vec<Request> = (0..7).map(|index| request("ADD", &format!("c{index}"))).collect();
    let mut native_store = MemoryStore::new();
    let mut clock = Standing::default();
    let native: Vec<Reply> =
        requests.iter().map(|request| cni::call(request, &mut native_store, &mut Standing::default())).collect();
    let component = core.instance().call(&requests, &mut MemoryStore::new(), &mut clock).unwrap();
    assert_eq!(component, native);
    assert_eq!(clock.reads, 1, "the clock is read once in a call, not once in a request");
    assert_eq!((native[0].exit_status, native[6].exit_status), (0, 1));
}

/// A store that has one answer.
struct Failing(Error);

impl Store for Failing {
    fn read(&mut self, _: &[String], _: bool) -> Result<Vec<Option<Entry>>, Error> {
        Err(self.0.clone())
    }
    fn scan(&mut self, _: &str, _: Option<&str>, _: u32, _: bool, _: bool) -> Result<Page, Error> {
        Err(self.0.clone())
    }
    fn count(&mut self, _: &str, _: Option<&str>, _: Option<&str>, _: bool) -> Result<u64, Error> {
        Err(self.0.clone())
    }
    fn commit(&mut self, _: &[Write], _: &[Event], _: Durability) -> Result<Vec<Version>, Error> {
        Err(self.0.clone())
    }
    fn atomic_writes(&mut self) -> u32 {
        9
    }
}

/// A store that reads well and fails each commit.
struct FailingCommit(MemoryStore, Error);

impl Store for FailingCommit {
    fn read(&mut self, keys: &[String], fresh: bool) -> Result<Vec<Option<Entry>>, Error> {
        self.0.read(keys, fresh)
    }
    fn scan(&mut self, prefix: &str, from: Option<&str>, limit: u32, keys: bool, fresh: bool) -> Result<Page, Error> {
        self.0.scan(prefix, from, limit, keys, fresh)
    }
    fn count(&mut self, prefix: &str, from: Option<&str>, until: Option<&str>, fresh: bool) -> Result<u64, Error> {
        self.0.count(prefix, from, until, fresh)
    }
    fn commit(&mut self, _: &[Write], _: &[Event], _: Durability) -> Result<Vec<Version>, Error> {
        Err(self.1.clone())
    }
    fn atomic_writes(&mut self) -> u32 {
        self.0.atomic_writes()
    }
}

#[test]
fn errors_of_the_store_reach_the_core_as_they_are() {
    let core = Core::embedded().unwrap();
    let errors = [
        Error::Conflict(vec!["network/net/address/v4/0a010002".to_owned()]),
        Error::UnknownOutcome,
        Error::Unavailable("the disk is asleep".to_owned()),
        Error::TooLarge,
        Error::Denied("read-only file system".to_owned()),
    ];
    let mut seen = std::collections::BTreeSet::new();
    for error in errors {
        let request = request("ADD", "c1");
        let native = cni::call(&request, &mut Failing(error.clone()), &mut Standing::default());
        assert_eq!(reply(core, &request, &mut Failing(error.clone())).unwrap(), native, "{error:?}");
        let native =
            cni::call(&request, &mut FailingCommit(MemoryStore::new(), error.clone()), &mut Standing::default());
        assert_ne!(native.exit_status, 0, "{error:?}");
        let component = reply(core, &request, &mut FailingCommit(MemoryStore::new(), error.clone())).unwrap();
        assert_eq!(component, native, "{error:?}");
        seen.insert(String::from_utf8_lossy(&native.output).into_owned());
    }
    assert!(seen.len() >= 4, "the errors cannot be told apart, so that the test proves nothing: {seen:#?}");
}

macro_rules! misbehaving {
    ($name:literal) => {{
        static CODE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".native.cwasm"));
        Core::open(Code::Copied { code: CODE, pulley: false }, &mut |_| ()).unwrap()
    }};
}

/// What a call to a misbehaving component ends in. Twice with one instance: the second must be a fresh one.
fn ends_in(core: &Core) -> CallError {
    let mut instance = core.instance();
    let mut call =
        || instance.call(&[request("ADD", "c1")], &mut MemoryStore::new(), &mut Standing::default()).unwrap_err();
    let first = call();
    assert_eq!(call(), first);
    first
}

#[test]
fn a_call_that_computes_forever_is_ended() {
    assert_eq!(ends_in(&misbehaving!("spin")), CallError::OutOfFuel { budget: FUEL_PER_REQUEST });
}

#[test]
fn a_call_that_takes_all_memory_is_ended() {
    assert_eq!(ends_in(&misbehaving!("grow")), CallError::OutOfMemory { limit_bytes: MEMORY_BYTES_MAX });
}

#[test]
fn a_call_that_floods_the_host_is_ended() {
    assert_eq!(ends_in(&misbehaving!("flood")), CallError::HostCallTooLarge { limit_bytes: HOST_CALL_BYTES_MAX });
}

#[test]
fn a_call_that_stops_is_a_trap() {
    let CallError::Trap(why) = ends_in(&misbehaving!("stop")) else { panic!("not a trap") };
    assert!(why.contains("unreachable"), "{why}");
}

#[test]
fn a_call_that_recurses_without_end_is_a_trap() {
    let CallError::Trap(why) = ends_in(&misbehaving!("recurse")) else { panic!("not a trap") };
    assert!(why.contains("call stack exhausted"), "{why}");
}

#[test]
fn an_answer_too_few_is_an_error() {
    let core = misbehaving!("mute");
    assert_eq!(ends_in(&core), CallError::WrongCount { requests: 1, answers: 0 });
    let located = core.instance().locate(&[request("ADD", "c1")]);
    assert_eq!(located, Err(CallError::WrongCount { requests: 1, answers: 0 }));
}

#[test]
fn too_much_input_does_not_reach_the_component() {
    let core = Core::embedded().unwrap();
    let mut large = request("ADD", "c1");
    large.input = vec![b' '; INPUT_BYTES_MAX];
    let refused = reply(core, &large, &mut MemoryStore::new()).unwrap_err();
    assert!(matches!(refused, CallError::RequestsTooLarge { requests: 1, bytes } if bytes > INPUT_BYTES_MAX));
    let many = vec![request("VERSION", ""); REQUESTS_MAX + 1];
    let refused = core.instance().locate(&many).unwrap_err();
    assert!(matches!(refused, CallError::RequestsTooLarge { requests, .. } if requests == REQUESTS_MAX + 1));
}

#[test]
fn the_largest_input_fits_the_limits() {
    // The worst that fits: a JSON tree of as many nodes as possible, which the core reads and finds wanting or not.
    let core = Core::embedded().unwrap();
    let mut large = request("GC", "");
    let head = r#"{"cniVersion":"1.1.0","name":"net","ipam":{"type":"plat-ipam","mode":"ranges","ranges":[[{"subnet":"10.1.0.0/29"}]]},"x":["#;
    let mut input = head.as_bytes().to_vec();
    while input.len() < INPUT_BYTES_MAX - 1_000 {
        input.extend_from_slice(b"{},");
    }
    input.extend_from_slice(b"{}]}");
    large.input = input;
    let native = cni::call(&large, &mut MemoryStore::new(), &mut Standing::default());
    let mut instance = core.instance();
    let replies =
        instance.call(std::slice::from_ref(&large), &mut MemoryStore::new(), &mut Standing::default()).unwrap();
    assert_eq!(replies, [native]);
    let used = FUEL_PER_REQUEST - instance.fuel_left().unwrap();
    assert!(used < FUEL_PER_REQUEST / 4, "{used} of {FUEL_PER_REQUEST} units of fuel");
}

/// Runs a test of this binary in a process of its own, since what it does to the process cannot be undone.
fn in_child(test: &str) -> bool {
    const VARIABLE: &str = "PLAT_RUNTIME_CHILD";
    if std::env::var_os(VARIABLE).is_some_and(|value| value == test) {
        return true;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("tests::{test}"), "--nocapture"])
        .env(VARIABLE, test)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    false
}

#[test]
#[cfg(target_os = "linux")]
fn the_core_runs_where_no_memory_may_be_made_executable() {
    const PR_SET_MDWE: libc::c_int = 65;
    const PR_MDWE_REFUSE_EXEC_GAIN: libc::c_ulong = 1;
    if !in_child("the_core_runs_where_no_memory_may_be_made_executable") {
        return;
    }
    // SAFETY: this call only forbids things, to this process alone.
    let set = unsafe { libc::prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0) };
    assert_eq!(set, 0, "PR_SET_MDWE needs Linux 6.3: {}", std::io::Error::last_os_error());
    // That a copy fails shows that the prohibition holds.
    let copied = Core::open(Code::Copied { code: embedded::NATIVE, pulley: false }, &mut |_| ());
    assert!(matches!(copied, Err(CallError::Unusable(_))), "a copy could be made executable");
    let replied = reply(Core::embedded().unwrap(), &request("ADD", "c1"), &mut MemoryStore::new()).unwrap();
    assert_eq!(replied.exit_status, 0);
}

#[test]
#[cfg(target_os = "linux")]
fn the_core_runs_under_a_limit_of_address_space() {
    /// What the core may take beside what the process has already.
    const BYTES: u64 = 16 << 20;
    if !in_child("the_core_runs_under_a_limit_of_address_space") {
        return;
    }
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
    let limit = Some(pages * rustix::param::page_size() as u64 + BYTES);
    rustix::process::setrlimit(
        rustix::process::Resource::As,
        rustix::process::Rlimit { current: limit, maximum: limit },
    )
    .unwrap();
    let core = Core::embedded().unwrap();
    let replied = reply(core, &request("ADD", "c1"), &mut MemoryStore::new()).unwrap();
    assert_eq!(replied.exit_status, 0);
    // And the end of it is an error of the call, not of the process.
    let grow = misbehaving!("grow");
    assert_eq!(ends_in(&grow), CallError::OutOfMemory { limit_bytes: MEMORY_BYTES_MAX });
}
