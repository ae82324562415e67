//! Crowds and faults: many processes at once of which some are killed, disks that are full or read-only, an index that
//! is damaged, and what a power cut leaves. Afterwards no address is held twice, none is lost but those of killed
//! calls, and the original still works on the directory.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use plat_tests::call::{Call, End, Reply};
use plat_tests::peers::{self, Installed};
use plat_tests::random::{self, Random};
use plat_tests::tree::{INDEX, Kind, Tree, snapshot};
use plat_tests::{machine, need};

/// The seed unless `PLAT_SEED` says otherwise.
const SEED: u64 = 64;

/// Processes at once.
const CROWD: usize = 64;

/// Containers that each member of a crowd brings up, one after the other.
const ROUNDS: usize = 10;

/// Of 100 calls of our plugin so many are killed.
const KILLED_PERCENT: u64 = 15;

/// A killed call lives at most so long. The crowd waits for one lock most of the time, so that some are killed while
/// they wait, some while they hold it, and some at start.
const KILLED_AFTER_US_MAX: usize = 40_000;

const NETWORK: &str = "crowd";
const IFNAME: &str = "eth0";

/// A plugin and a store.
struct Place {
    /// Programs that calls are made with, ours first.
    programs: Vec<PathBuf>,
    /// The dataDir.
    store: PathBuf,
    /// JSON text of the range sets.
    ranges: &'static str,
    /// Sets in `ranges`.
    sets: usize,
}

impl Place {
    fn network(&self) -> PathBuf {
        self.store.join(NETWORK)
    }

    fn call(&self, program: &Path, command: &str, container: &str, extra: &str) -> Call {
        let input = format!(
            r#"{{"cniVersion":"1.1.0","name":"{NETWORK}","type":"ptp"{extra},"ipam":{{"type":"host-local","ranges":{},"dataDir":"{}"}}}}"#,
            self.ranges,
            self.store.display()
        );
        Call::of(program, command, container, IFNAME, input)
    }

    fn run(&self, command: &str, container: &str) -> Reply {
        self.call(&self.programs[0], command, container, "").run()
    }

    fn run_with(&self, program: &Path, command: &str, container: &str) -> Reply {
        self.call(program, command, container, "").run()
    }

    /// An ADD that must succeed, with its addresses.
    fn add(&self, container: &str) -> Vec<IpAddr> {
        let reply = self.run("ADD", container);
        assert!(reply.is_success(), "ADD of {container}: {reply}");
        assert_eq!(reply.addresses().len(), self.sets, "{reply}");
        reply.addresses()
    }

    fn tree(&self) -> Tree {
        snapshot(&self.network()).expect("a readable store")
    }

    /// The owner of each address file.
    fn held(&self) -> BTreeMap<IpAddr, String> {
        let tree = self.tree();
        let held = tree.addresses("").into_iter();
        held.map(|(address, content)| (address, String::from_utf8_lossy(content).into_owned())).collect()
    }
}

fn owner(container: &str) -> String {
    format!("{container}\r\n{IFNAME}")
}

fn ours() -> Installed {
    Installed::new(&peers::plat_ipam(), "host-local").expect("a folder for the plugin")
}

fn folder() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("plat-crowd").tempdir().expect("a folder")
}

const DUAL_STACK: &str = r#"[[{"subnet":"10.64.0.0/22"}],[{"subnet":"fd00:64::/64"}]]"#;
const ONE_SET: &str = r#"[[{"subnet":"10.64.0.0/24"}]]"#;

/// What the members of a crowd saw.
#[derive(Default)]
struct Seen {
    /// Who holds an address, as far as replies tell: from a successful ADD to the start of a DEL.
    holders: BTreeMap<IpAddr, String>,
    /// Containers with a killed call: what they hold is not known.
    killed: BTreeSet<String>,
    /// What must not be.
    faults: Vec<String>,
}

/// Lets a crowd loose on a place and returns what it saw.
fn crowd(place: &Place, seed: u64) -> Seen {
    let seen = Mutex::new(Seen::default());
    std::thread::scope(|scope| {
        for member in 0..CROWD {
            let seen = &seen;
            scope.spawn(move || {
                let random = &mut Random::new(seed, member as u64);
                for round in 0..ROUNDS {
                    container_life(place, random, &format!("c{member}-{round}"), seen);
                }
            });
        }
    });
    seen.into_inner().expect("no panic")
}

/// An ADD, and a DEL in half of the cases.
fn container_life(place: &Place, random: &mut Random, container: &str, seen: &Mutex<Seen>) {
    let seen = || seen.lock().expect("no panic");
    let Some(reply) = call_or_kill(place, random, "ADD", container) else {
        seen().killed.insert(container.to_owned());
        return;
    };
    if !reply.is_success() || reply.addresses().len() != place.sets {
        seen().faults.push(format!("ADD of {container}: {reply}"));
        return;
    }
    for address in reply.addresses() {
        let mut seen = seen();
        if let Some(other) = seen.holders.insert(address, container.to_owned()) {
            seen.faults.push(format!("{address} was given to {other} and to {container}"));
        }
    }
    if random.percent(50) {
        return;
    }
    seen().holders.retain(|_, holder| holder != container);
    match call_or_kill(place, random, "DEL", container) {
        None => {
            seen().killed.insert(container.to_owned());
        }
        Some(reply) if !reply.is_success() => seen().faults.push(format!("DEL of {container}: {reply}")),
        Some(_) => {}
    }
}

/// The reply, or none if the call was killed before it could give one. Only ours is killed: the original leaves empty
/// files then.
fn call_or_kill(place: &Place, random: &mut Random, command: &str, container: &str) -> Option<Reply> {
    let program = random.pick(&place.programs);
    let mut running = place.call(program, command, container, "").start().expect("the plugin starts");
    if *program == place.programs[0] && random.percent(KILLED_PERCENT) {
        std::thread::sleep(Duration::from_micros(random.below(KILLED_AFTER_US_MAX) as u64));
        running.kill().expect("a child of ours");
        let reply = running.finish().expect("its end");
        return (reply.end != End::Signal(9)).then_some(reply);
    }
    Some(running.finish().expect("its end"))
}

/// What must hold after a crowd, and that the directory is still good for us and for the original.
fn check_after_crowd(place: &Place, seen: &Seen) {
    assert!(seen.faults.is_empty(), "{}", seen.faults.join("\n"));
    let held = place.held();
    for (address, holder) in &seen.holders {
        assert_eq!(held.get(address), Some(&owner(holder)), "{address}, given to {holder} in a reply");
    }
    for (address, content) in &held {
        let container = content.split("\r\n").next().unwrap_or_default();
        assert!(
            seen.holders.get(address).is_some_and(|holder| holder == container) || seen.killed.contains(container),
            "{address} is held by {content:?}, which neither lives nor was killed"
        );
    }
    for entry in &place.tree().0 {
        assert!(entry.kind != Kind::File(Vec::new()) || entry.path == "lock", "an empty file: {entry}");
    }
    let alive: BTreeSet<_> = seen.holders.values().collect();
    let list: Vec<_> =
        alive.iter().map(|container| format!(r#"{{"containerID":"{container}","ifname":"{IFNAME}"}}"#)).collect();
    let list = format!(r#","cni.dev/valid-attachments":[{}]"#, list.join(","));
    let reply = place.call(&place.programs[0], "GC", "", &list).run();
    assert!(reply.is_success() && reply.output.is_empty(), "GC: {reply}");
    let left = place.held();
    let alive: BTreeMap<_, _> = seen.holders.iter().map(|(address, holder)| (*address, owner(holder))).collect();
    assert_eq!(left, alive, "held after GC, and held by the living");
    for program in &place.programs {
        let reply = place.run_with(program, "ADD", "after");
        assert!(reply.is_success(), "{} after the crowd: {reply}", program.display());
        for address in reply.addresses() {
            assert!(!alive.contains_key(&address), "{address} was given again");
        }
        for command in ["CHECK", "DEL"] {
            let reply = place.run_with(program, command, "after");
            assert!(reply.is_success(), "{} after the crowd: {reply}", program.display());
        }
    }
    assert_eq!(place.held(), alive);
}

#[test]
fn a_crowd_of_ours_with_killed_calls() {
    let newest = need!(peers::host_local_newest());
    let (ours, folder) = (ours(), folder());
    let place =
        Place { programs: vec![ours.path().to_owned()], store: folder.path().to_owned(), ranges: DUAL_STACK, sets: 2 };
    let seen = crowd(&place, random::seed(SEED));
    assert!(seen.killed.len() > CROWD / 4, "only {} calls were killed", seen.killed.len());
    let place = Place { programs: vec![ours.path().to_owned(), newest], ..place };
    check_after_crowd(&place, &seen);
}

#[test]
fn a_crowd_of_ours_and_the_originals() {
    let newest = need!(peers::host_local_newest());
    let debian = need!(peers::host_local_debian());
    let (ours, folder) = (ours(), folder());
    // Debian's release knows no 1.1.0; its part in a crowd is the same file format in another mode.
    let place = Place {
        programs: vec![ours.path().to_owned(), newest],
        store: folder.path().to_owned(),
        ranges: DUAL_STACK,
        sets: 2,
    };
    let seen = crowd(&place, random::seed(SEED) + 1);
    check_after_crowd(&place, &seen);
    let mut call = place.call(&debian, "ADD", "debian", "");
    call.input = String::from_utf8_lossy(&call.input).replace("1.1.0", "1.0.0").into_bytes();
    let reply = call.run();
    assert!(reply.is_success(), "Debian's release after the crowd: {reply}");
}

/// Moments at which one call is killed, and the time between them.
const MOMENTS: usize = 400;
const MOMENT_US: u64 = 10;

#[test]
fn a_call_killed_at_any_moment_is_whole_or_nothing() {
    let (ours, folder) = (ours(), folder());
    let place =
        Place { programs: vec![ours.path().to_owned()], store: folder.path().to_owned(), ranges: DUAL_STACK, sets: 2 };
    place.add("witness");
    let mut killed = 0;
    let mut holders = BTreeMap::new();
    for moment in 0..MOMENTS {
        // First ADDs and then, of what these left, DELs.
        let command = if moment < MOMENTS / 2 { "ADD" } else { "DEL" };
        let step = moment % (MOMENTS / 2);
        let container = format!("c{step}");
        if command == "DEL" {
            place.run("DEL", &container);
            place.add(&container);
        }
        let mut running = place.call(&place.programs[0], command, &container, "").start().expect("the plugin starts");
        std::thread::sleep(Duration::from_micros(step as u64 * MOMENT_US));
        running.kill().expect("a child of ours");
        killed += usize::from(running.finish().expect("its end").end == End::Signal(9));
        // The next call finds and finishes what is half done.
        assert!(place.run("CHECK", "witness").is_success());
        place.add("next");
        assert!(place.run("DEL", "next").is_success());
        let held = place.held();
        let count = held.values().filter(|content| **content == owner(&container)).count();
        assert!(count == 0 || count == 2, "{command} killed after {} us left {count}", step as u64 * MOMENT_US);
        for entry in &place.tree().0 {
            let known = entry.path == "lock"
                || entry.path.starts_with("last_reserved_ip.")
                || entry.path.parse::<IpAddr>().is_ok() && entry.kind != Kind::File(Vec::new());
            assert!(known, "{command} killed after {} us left {entry}", step as u64 * MOMENT_US);
        }
        holders = held;
    }
    assert!(killed > 20, "only {killed} calls were killed");
    for step in 0..MOMENTS / 2 {
        assert!(place.run("DEL", &format!("c{step}")).is_success());
    }
    holders.retain(|_, holder| *holder == owner("witness"));
    assert_eq!(place.held(), holders);
}

#[test]
fn a_crowd_on_a_small_range_gives_each_address_once() {
    let (ours, folder) = (ours(), folder());
    let place = Place {
        programs: vec![ours.path().to_owned()],
        store: folder.path().to_owned(),
        // 29 usable addresses for 64.
        ranges: r#"[[{"subnet":"10.64.0.0/27"}]]"#,
        sets: 1,
    };
    let (won, lost) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for member in 0..CROWD {
            let (place, won, lost) = (&place, &won, &lost);
            scope.spawn(move || {
                let reply = place.run("ADD", &format!("c{member}"));
                if reply.is_success() {
                    won.lock().expect("no panic").extend(reply.addresses());
                } else {
                    let message =
                        "failed to allocate for range 0: no IP addresses available in range set: 10.64.0.1-10.64.0.30";
                    assert_eq!((reply.code(), reply.message().as_deref()), (Some(999), Some(message)));
                    lost.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let won = won.into_inner().expect("no panic");
    let different: BTreeSet<_> = won.iter().collect();
    assert_eq!((won.len(), different.len(), lost.into_inner()), (29, 29, CROWD - 29));
    assert_eq!(place.held().len(), 29);
}

/// Calls until a disk is full, and again when there is room.
fn full_disk(options: &str) {
    need!(peers::root());
    let newest = need!(peers::host_local_newest());
    let (ours, folder) = (ours(), folder());
    machine::private_mounts().expect("mounts of our own");
    let _mounted = machine::mount_tmpfs(folder.path(), options).expect("a tmpfs");
    let place = Place {
        programs: vec![ours.path().to_owned(), newest],
        store: folder.path().join("store"),
        ranges: DUAL_STACK,
        sets: 2,
    };
    let mut holders = BTreeMap::new();
    let mut failed = None;
    for number in 0..200 {
        let container = format!("c{number}");
        let reply = place.run("ADD", &container);
        if reply.is_success() {
            holders.extend(reply.addresses().into_iter().map(|address| (address, owner(&container))));
        } else {
            failed = Some(reply);
            break;
        }
    }
    let reply = failed.expect("the disk is full at last");
    assert!(!holders.is_empty(), "there was room for one at least: {reply}");
    assert_eq!(reply.end, End::Exit(1), "{reply}");
    let message = reply.message().unwrap_or_default().to_lowercase();
    assert!(message.contains("no space left"), "the error says what is wrong: {reply}");
    assert_eq!(place.held(), holders, "a failed ADD leaves nothing and takes nothing");
    let again = place.run("ADD", "again");
    assert_eq!(again.end, End::Exit(1), "{again}");
    assert_eq!(place.held(), holders);
    // A DEL makes room, on the full disk itself.
    let reply = place.run("DEL", "c0");
    assert!(reply.is_success(), "DEL on a full disk: {reply}");
    holders.retain(|_, holder| *holder != owner("c0"));
    assert_eq!(place.held(), holders);
    for container in ["c1", "c2"] {
        let reply = place.run("DEL", container);
        assert!(reply.is_success(), "{reply}");
        holders.retain(|_, holder| *holder != owner(container));
    }
    let addresses = place.add("later");
    holders.extend(addresses.into_iter().map(|address| (address, owner("later"))));
    assert_eq!(place.held(), holders);
    let reply = place.run_with(&place.programs[1], "CHECK", "later");
    assert!(reply.is_success(), "the original: {reply}");
}

#[test]
fn a_disk_without_room() {
    full_disk("size=128k");
}

#[test]
fn a_disk_without_inodes() {
    full_disk("size=4m,nr_inodes=24");
}

#[test]
fn a_read_only_directory() {
    need!(peers::root());
    let (ours, folder) = (ours(), folder());
    machine::private_mounts().expect("mounts of our own");
    let _mounted = machine::mount_tmpfs(folder.path(), "size=1m").expect("a tmpfs");
    let place =
        Place { programs: vec![ours.path().to_owned()], store: folder.path().join("store"), ranges: ONE_SET, sets: 1 };
    place.add("before");
    let before = place.tree();
    machine::set_read_only(folder.path(), true).expect("a read-only tmpfs");
    for command in ["ADD", "DEL"] {
        let container = if command == "ADD" { "new" } else { "before" };
        let reply = place.run(command, container);
        assert_eq!(reply.end, End::Exit(1), "{command}: {reply}");
        let message = reply.message().unwrap_or_default().to_lowercase();
        assert!(message.contains("read-only file system"), "the error says what is wrong: {reply}");
    }
    let reply = place.run("STATUS", "");
    assert_eq!(reply.end, End::Exit(1), "{reply}");
    assert!(reply.message().unwrap_or_default().contains("read-only file system"), "{reply}");
    machine::set_read_only(folder.path(), false).expect("a writable tmpfs");
    assert_eq!(place.tree(), before);
    place.add("new");
    assert!(place.run("DEL", "before").is_success());
    assert!(place.run("STATUS", "").is_success());
}

/// The files of our index.
fn index_files(place: &Place) -> Vec<PathBuf> {
    fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
        for entry in folder.read_dir().into_iter().flatten().flatten() {
            if entry.path().is_dir() {
                collect(&entry.path(), files);
            } else {
                files.push(entry.path());
            }
        }
    }
    let mut files = Vec::new();
    collect(&place.store.join(INDEX), &mut files);
    files.sort();
    files
}

/// Damage to one file of the index.
fn damage(random: &mut Random, path: &Path) {
    let mut content = std::fs::read(path).unwrap_or_default();
    let length = content.len().max(1);
    match random.below(7) {
        0 => content.clear(),
        1 => content.truncate(random.below(length)),
        2 => content = (0..length).map(|_| random.bits() as u8).collect(),
        3 => content.extend((0..100).map(|_| random.bits() as u8)),
        4 | 5 if !content.is_empty() => content[random.below(length)] ^= 1 << random.below(8),
        4 | 5 => content.push(b'x'),
        _ => {
            std::fs::remove_file(path).expect("a file of the index");
            return;
        }
    }
    std::fs::write(path, content).expect("a file of the index");
}

#[test]
fn a_damaged_index_changes_nothing() {
    let newest = need!(peers::host_local_newest());
    let (ours, folder) = (ours(), folder());
    // The original does the same calls on a store of its own: what it holds is right.
    let place = |program: &Path, name: &str| Place {
        programs: vec![program.to_owned()],
        store: folder.path().join(name),
        ranges: r#"[[{"subnet":"10.64.0.0/28"}],[{"subnet":"fd00:64::/124"}]]"#,
        sets: 2,
    };
    let (place, reference) = (place(ours.path(), "ours"), place(&newest, "original"));
    let both = |command: &str, container: &str| {
        let (reply, wanted) = (place.run(command, container), reference.run(command, container));
        assert_eq!((reply.end, reply.message()), (wanted.end, wanted.message()), "{command} of {container}: {reply}");
        if wanted.is_success() {
            assert_eq!(reply.output, wanted.output, "{command} of {container}");
        }
        assert_eq!(place.tree(), reference.tree(), "after {command} of {container}");
    };
    both("ADD", "first");
    assert!(!index_files(&place).is_empty(), "there is an index");
    let random = &mut Random::new(random::seed(SEED), 0);
    for round in 0..150 {
        for path in index_files(&place) {
            if random.percent(70) {
                damage(random, &path);
            }
        }
        let container = format!("c{}", random.below(20));
        let command = *random.pick(&["ADD", "ADD", "DEL", "CHECK"]);
        both(command, &container);
        if round % 50 == 49 {
            std::fs::remove_dir_all(place.store.join(INDEX)).expect("an index");
        }
    }
}

#[test]
fn an_index_that_cannot_be_written_is_done_without() {
    let (ours, folder) = (ours(), folder());
    let place =
        Place { programs: vec![ours.path().to_owned()], store: folder.path().to_owned(), ranges: ONE_SET, sets: 1 };
    // A file where the folder of the index should be.
    std::fs::write(place.store.join(INDEX), "in the way").expect("a file");
    let first = place.add("c1");
    let second = place.add("c2");
    assert_ne!(first, second);
    assert!(place.run("CHECK", "c1").is_success());
    assert!(place.run("DEL", "c1").is_success());
    assert_eq!(place.held(), BTreeMap::from([(second[0], owner("c2"))]));
}

/// Truncates a file to nothing and dates it before any boot.
fn cut(path: &Path) {
    let file = std::fs::OpenOptions::new().write(true).truncate(true).open(path).expect("a file of the store");
    let long_ago = std::time::UNIX_EPOCH + Duration::from_secs(1_577_836_800);
    file.set_times(std::fs::FileTimes::new().set_accessed(long_ago).set_modified(long_ago)).expect("times");
}

#[test]
fn what_a_power_cut_leaves() {
    let newest = need!(peers::host_local_newest());
    let (ours, folder) = (ours(), folder());
    let place = Place {
        programs: vec![ours.path().to_owned(), newest],
        store: folder.path().to_owned(),
        // 13 usable addresses.
        ranges: r#"[[{"subnet":"10.64.0.0/28"}]]"#,
        sets: 1,
    };
    let addresses: Vec<_> = (0..13).map(|number| place.add(&format!("c{number}"))[0]).collect();
    for address in &addresses[..8] {
        cut(&place.network().join(address.to_string()));
    }
    cut(&place.network().join("last_reserved_ip.0"));
    for path in index_files(&place) {
        cut(&path);
    }
    // One empty file of this boot: somebody may be about to write it.
    let young = place.network().join(addresses[12].to_string());
    std::fs::write(&young, "").expect("a file of the store");
    let mut given = BTreeMap::new();
    for number in 0..8 {
        let reply = place.run("ADD", &format!("new{number}"));
        assert!(reply.is_success(), "ADD {number} after the power cut: {reply}");
        assert!(number > 0 || !reply.errors.is_empty(), "what was freed is logged");
        given.insert(format!("new{number}"), reply.addresses()[0]);
    }
    let again: BTreeSet<_> = given.values().copied().collect();
    assert_eq!(again, addresses[..8].iter().copied().collect(), "the addresses of the empty files are given again");
    assert_eq!(place.run("ADD", "more").code(), Some(999), "the others are held");
    assert_eq!(std::fs::read(&young).expect("still there"), b"");
    for number in 8..12 {
        assert!(place.run("CHECK", &format!("c{number}")).is_success(), "c{number} keeps its address");
    }
    assert!(place.run_with(&place.programs[1], "CHECK", "new3").is_success());
    assert!(place.run_with(&place.programs[1], "DEL", "new3").is_success());
    assert_eq!(place.add("more"), [given["new3"]]);
}

#[test]
fn folders_of_others_in_the_store() {
    let newest = need!(peers::host_local_newest());
    let (ours, folder) = (ours(), folder());
    let place = Place {
        programs: vec![ours.path().to_owned(), newest],
        store: folder.path().to_owned(),
        ranges: ONE_SET,
        sets: 1,
    };
    place.add("c1");
    let deep = place.network().join("backup/2020");
    std::fs::create_dir_all(&deep).expect("a folder");
    for number in 0..300 {
        std::fs::write(deep.join(format!("10.64.1.{}", number % 256)), owner(&format!("old{number}"))).expect("a file");
    }
    std::fs::write(deep.join("note"), owner("c2")).expect("a file");
    place.add("c2");
    for program in &place.programs {
        assert!(place.run_with(program, "CHECK", "old299").is_success());
        assert!(!place.run_with(program, "CHECK", "old3").is_success(), "overwritten");
    }
    // Released by content, at any depth.
    assert!(place.run("DEL", "c2").is_success());
    assert!(!deep.join("note").exists());
    assert!(place.run("DEL", "old299").is_success());
    assert!(!deep.join("10.64.1.43").exists());
    assert!(!place.run("CHECK", "c2").is_success());
    std::fs::remove_dir_all(place.network().join("backup")).expect("a folder");
    place.add("c3");
    assert_eq!(place.held().len(), 2);
}

#[test]
fn modes_and_owners_stay_those_of_the_original() {
    let (ours, folder) = (ours(), folder());
    let place =
        Place { programs: vec![ours.path().to_owned()], store: folder.path().to_owned(), ranges: ONE_SET, sets: 1 };
    let address = place.add("c1")[0].to_string();
    let mode = |name: &str| place.network().join(name).metadata().expect(name).permissions().mode() & 0o7777;
    assert_eq!([mode(&address), mode("last_reserved_ip.0")], [0o600, 0o600]);
    for path in index_files(&place) {
        let mode = path.metadata().expect("a file of the index").permissions().mode() & 0o7777;
        assert_eq!(mode & 0o077, 0, "{} is {mode:04o}: owners of addresses are nobody else's business", path.display());
    }
}
