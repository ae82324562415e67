//! What the directory store promises beside the common suite: host-local's format, the lock, and odd files.

mod common;

use common::{Mounted, at, boot, commit, create, cursor, delete, dump, holder, key, keys, open, read, record};
use plat_core::cni::{Level, Line};
use plat_core::net::Family;
use plat_core::network::{Place, Record, parse_holdings};
use plat_core::store::{Action, Durability, Error, Event, Expected, Store, Write};
use plat_stores::directory::{DirectoryStore, Options, limits};
use rustix::fs::{FlockOperation, flock};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

fn with(data_dir: &Path, change: impl FnOnce(&mut Options)) -> DirectoryStore {
    let mut options = Options::system();
    change(&mut options);
    DirectoryStore::new(data_dir.to_owned(), common::NETWORK.into(), options)
}

/// The notices but for those of a first start.
fn notices(store: &mut DirectoryStore) -> Vec<Line> {
    store.take_notices().into_iter().filter(|notice| !notice.text.ends_with("there was none")).collect()
}

fn told(store: &mut DirectoryStore, level: Level, part: &str) {
    let notices = store.take_notices();
    assert!(notices.iter().any(|notice| notice.level == level && notice.text.contains(part)), "{part}: {notices:?}");
}

fn owner(store: &mut dyn Store, container: &str, ifname: &str) -> Vec<Place> {
    let key = keys().key(&Place::Owner { container: container.into(), ifname: ifname.into() });
    read(store, &key).map_or_else(Vec::new, |entry| parse_holdings(&entry.value).unwrap())
}

fn add(data_dir: &Path, address: &str, container: &str, set: u32) {
    let mut store = open(data_dir);
    let last = cursor(&mut store, set, address);
    commit(&mut store, &[create(address, container), last]).unwrap();
}

/// Names, modes and contents of a directory.
fn listing(folder: &Path) -> Vec<(String, u32, Vec<u8>)> {
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            let mode = entry.metadata().unwrap().permissions().mode();
            (entry.file_name().into_string().unwrap(), mode, std::fs::read(entry.path()).unwrap())
        })
        .collect();
    files.sort();
    files
}

/// The newest host-local, where it was built; else a reason to skip.
fn host_local() -> Option<PathBuf> {
    let cached = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache/plat/bin/host-local"));
    let found =
        [std::env::var_os("PLAT_HOST_LOCAL").map(PathBuf::from), cached, Some("/usr/lib/cni/host-local".into())]
            .into_iter()
            .flatten()
            .find(|path| path.exists());
    if found.is_none() {
        println!("SKIPPED: there is no host-local on this machine");
    }
    found
}

fn run_host_local(program: &Path, verb: &str, container: &str, data_dir: &Path) -> std::process::Output {
    use std::io::Write as _;
    let config = format!(
        r#"{{"cniVersion":"1.0.0","name":"net","type":"host-local","ipam":{{"type":"host-local","dataDir":{:?},
        "ranges":[[{{"subnet":"10.1.2.0/24"}}],[{{"subnet":"fd00::/64"}}]]}}}}"#,
        data_dir.to_str().unwrap()
    );
    let mut child = std::process::Command::new(program)
        .env_clear()
        .envs([("CNI_COMMAND", verb), ("CNI_CONTAINERID", container), ("CNI_IFNAME", "eth0")])
        .envs([("CNI_NETNS", "/no/netns"), ("CNI_PATH", "/nowhere")])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(config.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn the_files_are_those_of_host_local() {
    let Some(program) = host_local() else { return };
    let (theirs, ours) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // The older one wrote 0644.
    let newest = !program.starts_with("/usr/lib/cni");
    for container in ["c1", "c2"] {
        let output = run_host_local(&program, "ADD", container, theirs.path());
        assert!(output.status.success(), "{output:?}");
    }
    add(ours.path(), "10.1.2.2", "c1", 0);
    add(ours.path(), "fd00::2", "c1", 1);
    add(ours.path(), "10.1.2.3", "c2", 0);
    add(ours.path(), "fd00::3", "c2", 1);
    let mut ours_files = listing(&ours.path().join("net"));
    if !newest {
        ours_files.iter_mut().filter(|(name, ..)| name != "lock").for_each(|(_, mode, _)| *mode |= 0o044);
    }
    assert_eq!(ours_files, listing(&theirs.path().join("net")));
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&ours.path().join("net")), mode(&theirs.path().join("net")));
    assert_eq!(mode(&ours.path().join(".plat")), 0o700);
    assert_eq!(mode(&ours.path().join(".plat/net")), 0o700);
    for (_, mode, _) in listing(&ours.path().join(".plat/net")) {
        assert_eq!(mode & 0o7777, 0o600);
    }

    // Each reads what the other wrote.
    let mut store = open(theirs.path());
    assert_eq!(owner(&mut store, "c2", "eth0"), [at("10.1.2.3"), at("fd00::3")]);
    assert_eq!(read(&mut store, &keys().key(&Place::Cursor(1))).unwrap().value, b"fd00::3");
    drop(store);
    let output = run_host_local(&program, "CHECK", "c1", ours.path());
    assert!(output.status.success(), "{output:?}");
    assert!(run_host_local(&program, "DEL", "c1", ours.path()).status.success());
    assert!(run_host_local(&program, "ADD", "c3", ours.path()).status.success());
    let mut store = open(ours.path());
    assert_eq!(owner(&mut store, "c1", "eth0"), []);
    assert_eq!(owner(&mut store, "c3", "eth0"), [at("10.1.2.4"), at("fd00::4")], "it goes on from our cursors");
    told(&mut store, Level::Info, "others changed the directory");
}

#[test]
fn nothing_is_touched_before_the_first_call() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().join("a/b");
    let mut store = open(&data_dir);
    assert_eq!(store.atomic_writes(), limits::ATOMIC_WRITES);
    assert!(!folder.path().join("a").exists());
    assert_eq!(store.count(keys().prefix(), None, None, true), Ok(0));
    assert!(data_dir.join("net/lock").exists());
}

#[test]
fn names_that_could_leave_the_data_dir_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["", ".plat", "..", "a/b", "a b", "-a", "_a", "ä", "a\0"] {
        let mut store = DirectoryStore::new(folder.path().to_owned(), name.into(), Options::system());
        let answer = store.count("", None, None, true);
        assert!(matches!(&answer, Err(Error::Denied(why)) if why.contains("network name")), "{name}: {answer:?}");
    }
    assert_eq!(listing(folder.path()), []);
}

#[test]
fn keys_of_other_networks_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path());
    for key in ["network/other/address/v4/0a000001", "pool/a", "config"] {
        assert!(matches!(store.read(&[key.into()], true), Err(Error::Denied(_))), "{key}");
        assert!(matches!(store.count(key, None, None, true), Err(Error::Denied(_))), "{key}");
        let write = Write { key: key.into(), expected: Expected::Absent, action: Action::Check };
        assert!(matches!(commit(&mut store, &[write]), Err(Error::Denied(_))), "{key}");
    }
}

#[test]
fn troubles_are_told_in_gos_words() {
    let folder = tempfile::tempdir().unwrap();
    let shown = folder.path().to_str().unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    let mut store = open(&folder.path().join("file/below"));
    assert_eq!(store.count("", None, None, true), Err(Error::Denied(format!("mkdir {shown}/file: not a directory"))));
    std::fs::create_dir_all(folder.path().join("a/net/lock")).unwrap();
    let mut store = open(&folder.path().join("a"));
    let answer = store.count("", None, None, true);
    assert_eq!(answer, Err(Error::Denied(format!("open {shown}/a/net/lock: is a directory"))));
}

#[test]
fn a_taken_address_that_the_index_does_not_know_conflicts() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path());
    commit(&mut store, &[create("10.0.0.1", "c1")]).unwrap();
    // While we hold the lock, by somebody who does not ask for it.
    std::fs::write(folder.path().join("net/10.0.0.2"), "thief\r\neth0").unwrap();
    assert_eq!(read(&mut store, &key("10.0.0.2")), None, "the index does not know yet");
    let answer = commit(&mut store, &[create("10.0.0.3", "c2"), create("10.0.0.2", "c2")]);
    assert_eq!(answer, Err(Error::Conflict(vec![key("10.0.0.2")])));
    assert_eq!(holder(&mut store, "10.0.0.2").unwrap().container.as_deref(), Some("thief"));
    assert_eq!(holder(&mut store, "10.0.0.3"), None);
    assert!(!folder.path().join("net/10.0.0.3").exists());
}

#[test]
fn foreign_files_hold_their_addresses() {
    let folder = tempfile::tempdir().unwrap();
    let net = folder.path().join("net");
    std::fs::create_dir_all(net.join("10.0.0.4")).unwrap();
    std::fs::write(net.join("10.0.0.1"), "").unwrap();
    std::fs::write(net.join("10.0.0.2"), "what is this?\n").unwrap();
    std::fs::write(net.join("10.0.0.3"), " old-container \n").unwrap();
    std::os::unix::fs::symlink("/nowhere", net.join("10.0.0.5")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, net.join("10.0.0.6"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
        .unwrap();
    std::fs::write(net.join("10.0.0.7"), "x".repeat(limits::CONTENT_BYTES_MAX + 1)).unwrap();
    let mut store = open(folder.path());
    let foreign = |store: &mut DirectoryStore, address: &str| holder(store, address).unwrap().foreign;
    for (address, why) in [
        ("10.0.0.1", Some("empty")),
        ("10.0.0.2", Some("unknown content")),
        ("10.0.0.3", None),
        ("10.0.0.4", Some("not a file")),
        ("10.0.0.5", Some("not a file")),
        ("10.0.0.6", Some("not a file")),
        ("10.0.0.7", Some("unknown content")),
    ] {
        assert_eq!(foreign(&mut store, address).as_deref(), why, "{address}");
        let taken = commit(&mut store, &[create(address, "c")]);
        assert_eq!(taken, Err(Error::Conflict(vec![key(address)])));
    }
    assert_eq!(owner(&mut store, "old-container", ""), [at("10.0.0.3")]);
    assert_eq!(store.count(&keys().addresses(Family::V4), None, None, true), Ok(7));
    for address in ["10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.7"] {
        let write = delete(&mut store, &key(address));
        assert!(matches!(commit(&mut store, &[write]), Err(Error::Denied(_))), "{address}");
    }
    for address in ["10.0.0.1", "10.0.0.2", "10.0.0.3"] {
        let write = delete(&mut store, &key(address));
        commit(&mut store, &[write]).unwrap();
        assert!(!net.join(address).exists());
    }
}

#[test]
fn strays_are_found_at_any_depth_and_can_be_deleted() {
    let folder = tempfile::tempdir().unwrap();
    add(folder.path(), "10.0.0.1", "c1", 0);
    let net = folder.path().join("net");
    std::fs::create_dir_all(net.join("sub/deep")).unwrap();
    std::fs::write(net.join("sub/deep/10.0.0.9"), "c1\r\neth0").unwrap();
    std::fs::write(net.join("10.0.0.01"), "c1\r\neth0").unwrap();
    std::fs::write(net.join("FD00::1"), "c2\r\neth0").unwrap();
    std::fs::write(net.join("README"), "for people").unwrap();
    std::fs::write(net.join("last_reserved_ip.3"), "c1\r\neth0").unwrap();
    std::os::unix::fs::symlink(net.join("FD00::1"), net.join("link")).unwrap();
    std::os::unix::fs::symlink(net.join("FD00::1"), net.join("10.0.0.5")).unwrap();
    let stray = |path: &str| Place::Stray(path.into());
    let mut store = open(folder.path());
    assert_eq!(
        owner(&mut store, "c1", "eth0"),
        [at("10.0.0.1"), stray("10.0.0.01"), stray("last_reserved_ip.3"), stray("sub/deep/10.0.0.9")]
    );
    assert_eq!(owner(&mut store, "c2", "eth0"), [stray("10.0.0.5"), stray("FD00::1"), stray("link")]);
    let readme = read(&mut store, &keys().key(&stray("README"))).unwrap();
    assert_eq!(Record::parse(&readme.value).unwrap().foreign.as_deref(), Some("unknown content"));
    assert_eq!(store.count(&keys().strays(), None, None, true), Ok(7));
    assert_eq!(dump(&mut store).iter().filter(|(key, _)| key.contains("/owner/")).count(), 2);
    drop(store);

    // What is in a sub-directory changes without a sign at the top.
    std::fs::write(net.join("sub/deep/more"), "c3\r\neth0").unwrap();
    let mut store = open(folder.path());
    assert_eq!(owner(&mut store, "c3", "eth0"), [stray("sub/deep/more")]);
    let batch: Vec<Write> = ["10.0.0.01", "last_reserved_ip.3", "sub/deep/10.0.0.9", "sub/deep/more"]
        .map(|path| delete(&mut store, &keys().key(&stray(path))))
        .into();
    commit(&mut store, &batch).unwrap();
    assert_eq!(owner(&mut store, "c1", "eth0"), [at("10.0.0.1")]);
    assert_eq!(owner(&mut store, "c3", "eth0"), []);
    drop(store);
    for path in ["10.0.0.01", "last_reserved_ip.3", "sub/deep/10.0.0.9", "sub/deep/more"] {
        assert!(!net.join(path).exists(), "{path}");
    }
    assert_eq!(owner(&mut open(folder.path()), "c1", "eth0"), [at("10.0.0.1")]);
}

#[test]
fn a_stray_that_is_rewritten_in_place_is_seen_with_a_trusted_index() {
    let folder = tempfile::tempdir().unwrap();
    add(folder.path(), "10.0.0.1", "c1", 0);
    let path = folder.path().join("net/notes");
    std::fs::write(&path, "nothing").unwrap();
    assert_eq!(owner(&mut open(folder.path()), "c1", "eth0"), [at("10.0.0.1")]);
    std::fs::write(&path, "c1\r\neth0").unwrap();
    let mut store = open(folder.path());
    assert_eq!(owner(&mut store, "c1", "eth0"), [at("10.0.0.1"), Place::Stray("notes".into())]);
    assert_eq!(notices(&mut store), [], "no pass over the directory was needed");
}

#[test]
fn empty_files_of_an_earlier_boot_are_freed() {
    let folder = tempfile::tempdir().unwrap();
    let net = folder.path().join("net");
    std::fs::create_dir_all(&net).unwrap();
    std::fs::write(net.join("10.0.0.1"), "").unwrap();
    std::fs::write(net.join("10.0.0.2"), "").unwrap();
    std::fs::write(net.join("10.0.0.3"), "c\r\neth0").unwrap();
    let hour = Duration::from_secs(3600);
    let old = SystemTime::now() - 2 * hour;
    for name in ["10.0.0.1", "10.0.0.3"] {
        std::fs::File::options().append(true).open(net.join(name)).unwrap().set_modified(old).unwrap();
    }
    let mut store = with(folder.path(), |options| options.boot_time = Some(SystemTime::now() - hour));
    assert_eq!(holder(&mut store, "10.0.0.1"), None);
    assert_eq!(holder(&mut store, "10.0.0.2").unwrap().foreign.as_deref(), Some("empty"));
    assert!(holder(&mut store, "10.0.0.3").unwrap().container.is_some());
    assert!(!net.join("10.0.0.1").exists());
    told(&mut store, Level::Warning, "10.0.0.1: empty since before the machine booted");
    commit(&mut store, &[create("10.0.0.1", "c1")]).unwrap();
    drop(store);
    // Without a known boot nothing is judged.
    std::fs::File::options().append(true).open(net.join("10.0.0.2")).unwrap().set_modified(old).unwrap();
    let mut store = with(folder.path(), |options| options.boot_time = None);
    assert!(holder(&mut store, "10.0.0.2").is_some());
}

#[test]
fn an_entry_keeps_the_boot_in_which_it_was_first_seen() {
    let folder = tempfile::tempdir().unwrap();
    let net = folder.path().join("net");
    let in_boot = |boot: &str| with(folder.path(), |options| options.boot_id = Some(boot.into()));
    let put = |store: &mut DirectoryStore, address: &str, boot: &str| {
        let record = Record::owned("c", "eth0", Some(boot.into()));
        let action = Action::Put(record.to_bytes());
        commit(store, &[Write { key: key(address), expected: Expected::Absent, action }]).unwrap();
    };
    let boot_of = |store: &mut DirectoryStore, address: &str| holder(store, address).unwrap().boot.unwrap();
    put(&mut in_boot("a"), "10.0.0.1", "a");
    put(&mut in_boot("a"), "10.0.0.2", "a");
    std::fs::write(net.join("10.0.0.3"), "f\r\neth0").unwrap();
    assert_eq!(boot_of(&mut in_boot("a"), "10.0.0.3"), "a", "first seen in this boot");

    let mut store = in_boot("b");
    for address in ["10.0.0.1", "10.0.0.2", "10.0.0.3"] {
        assert_eq!(boot_of(&mut store, address), "a", "untouched since");
    }
    told(&mut store, Level::Info, "started again");
    drop(store);

    // The same owner and the same bytes, but another file, or a file that was touched: no proof any more.
    std::fs::remove_file(net.join("10.0.0.1")).unwrap();
    std::fs::write(net.join("10.0.0.1"), "c\r\neth0").unwrap();
    std::fs::write(net.join("10.0.0.2"), "c\r\neth0").unwrap();
    let mut store = in_boot("c");
    assert_eq!(boot_of(&mut store, "10.0.0.1"), "c");
    assert_eq!(boot_of(&mut store, "10.0.0.2"), "c");
    assert_eq!(boot_of(&mut store, "10.0.0.3"), "a");
    let page = store.scan(&keys().boots(), None, 9, true, true).unwrap();
    let found: Vec<&str> = page.entries.iter().map(|entry| &entry.key[keys().boots().len()..]).collect();
    assert_eq!(found, ["a/v4/0a000003", "c/v4/0a000001", "c/v4/0a000002"]);
    put(&mut store, "10.0.0.9", "c");
    assert_eq!(boot_of(&mut store, "10.0.0.9"), "c");
}

#[test]
fn the_history_tells_what_commits_meant_and_stays_small() {
    let folder = tempfile::tempdir().unwrap();
    let event = |key: &str| Event {
        at: plat_core::clock::Instant { seconds: 5, nanoseconds: 6 },
        what: "granted".into(),
        key: key.into(),
        owner: "c1/\"eth0\"".into(),
        why: "ADD".into(),
    };
    let mut store = open(folder.path());
    store.commit(&[create("10.0.0.1", "c1")], &[event("k")], Durability::Power).unwrap();
    let path = folder.path().join(".plat/net/history");
    assert_eq!(
        std::fs::read_to_string(&path).unwrap(),
        "{\"seconds\":5,\"nanoseconds\":6,\"what\":\"granted\",\"key\":\"k\",\"owner\":\"c1/\\\"eth0\\\"\",\"why\":\"ADD\"}\n"
    );
    let long = "x".repeat(1000);
    let events: Vec<Event> = (0..100).map(|_| event(&long)).collect();
    for _ in 0..40 {
        store.commit(&[], &events, Durability::Process).unwrap();
    }
    let size = |name: &str| std::fs::metadata(folder.path().join(".plat/net").join(name)).unwrap().len();
    assert!(size("history") <= limits::HISTORY_BYTES_MAX && size("history.1") <= limits::HISTORY_BYTES_MAX);
    assert!(size("history") + size("history.1") > limits::HISTORY_BYTES_MAX, "it was rotated, not thrown away");
}

#[test]
fn the_journal_is_folded_into_the_index() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join(".plat/net/journal");
    let mut folded = 0;
    let mut size = 0;
    for number in 0..1200u32 {
        let address = format!("10.0.{}.{}", number / 256, number % 256);
        add(folder.path(), &address, &format!("c{number}"), 0);
        let now = std::fs::metadata(&journal).unwrap().len();
        folded += u32::from(now < size);
        size = now;
        assert!(size < limits::JOURNAL_BYTES_MAX + 4096);
    }
    assert!(folded >= 2, "{folded}");
    let mut store = open(folder.path());
    assert_eq!(store.count(&keys().addresses(Family::V4), None, None, true), Ok(1200));
    assert_eq!(owner(&mut store, "c1000", "eth0"), [at("10.0.3.232")]);
    assert_eq!(store.take_notices(), []);
}

#[test]
fn the_lock_is_that_of_host_local_and_is_waited_for_with_a_deadline() {
    let folder = tempfile::tempdir().unwrap();
    add(folder.path(), "10.0.0.1", "c1", 0);
    let path = folder.path().join("net/lock");
    let held = std::fs::File::open(&path).unwrap();
    flock(&held, FlockOperation::LockExclusive).unwrap();

    let mut late = with(folder.path(), |options| options.lock_wait_max = Duration::from_millis(100));
    let start = Instant::now();
    let answer = late.count(keys().prefix(), None, None, true);
    let waited = start.elapsed();
    assert!(waited >= Duration::from_millis(100) && waited < Duration::from_secs(3), "{waited:?}");
    match answer {
        Err(Error::Unavailable(why)) => {
            assert!(why.contains(path.to_str().unwrap()) && why.contains("0.1 s"), "{why}");
        }
        other => panic!("{other:?}"),
    }

    // Its thread still waits. When it gets the lock at last, it gives it back at once.
    let mut patient = with(folder.path(), |options| options.lock_wait_max = Duration::from_secs(20));
    let waiting = std::thread::spawn(move || {
        let count = patient.count(&keys().addresses(Family::V4), None, None, true);
        (count, patient)
    });
    std::thread::sleep(Duration::from_millis(50));
    drop(held);
    let (count, patient) = waiting.join().unwrap();
    assert_eq!(count, Ok(1));

    // Held until the store is dropped.
    let file = std::fs::File::open(&path).unwrap();
    assert!(flock(&file, FlockOperation::NonBlockingLockExclusive).is_err());
    drop(patient);
    flock(&file, FlockOperation::LockExclusive).unwrap();
    drop(file);
    // A failed opening is tried again by the next call.
    assert_eq!(late.count(&keys().addresses(Family::V4), None, None, true), Ok(1));
}

#[test]
fn a_crowd_gets_addresses_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let threads: Vec<_> = (0..32)
        .map(|thread| {
            let data_dir = folder.path().to_owned();
            std::thread::spawn(move || {
                (0..8)
                    .map(|round| {
                        let mut store = open(&data_dir);
                        let keys = keys();
                        let last = read(&mut store, &keys.key(&Place::Cursor(0)))
                            .map_or(0, |entry| String::from_utf8(entry.value).unwrap()[8..].parse::<u32>().unwrap());
                        let address = format!("10.0.1.{}", last + 1).replace("10.0.1.256", "10.0.1.0");
                        let last = cursor(&mut store, 0, &format!("10.0.00.{}", last + 1));
                        commit(&mut store, &[create(&address, &format!("t{thread}-{round}")), last]).unwrap();
                        address
                    })
                    .collect::<Vec<_>>()
            })
        })
        .collect();
    let mut all: Vec<String> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 256, "no address was given twice");
    let mut store = open(folder.path());
    assert_eq!(store.count(&keys().addresses(Family::V4), None, None, true), Ok(256));
    assert_eq!(store.take_notices(), []);
}

#[test]
fn a_full_disk_fails_grants_whole_and_lets_go_of_addresses() {
    let Some(mounted) = Mounted::new("tmpfs", "size=64k,mode=0700") else { return };
    let mut granted = Vec::new();
    let refused = loop {
        let number = granted.len();
        let address = format!("10.0.0.{number}");
        let mut store = open(&mounted.path);
        let last = cursor(&mut store, 0, &address);
        match commit(
            &mut store,
            &[create(&address, &format!("c{number}")), create(&format!("fd00::{number}"), "c"), last],
        ) {
            Ok(_) => granted.push(address),
            Err(error) => break error,
        }
        assert!(granted.len() < 64, "a tmpfs of 64 KiB is full some time");
    };
    assert!(!granted.is_empty());
    match &refused {
        Error::Unavailable(why) => assert!(
            why.starts_with(&format!("write {}/net/", mounted.path.display()))
                || why.starts_with(&format!("open {}/net/", mounted.path.display())),
            "{why}"
        ),
        other => panic!("{other:?}"),
    }
    assert!(refused.to_string().ends_with(": no space left on device"), "{refused}");
    let held = |store: &mut DirectoryStore| store.count(&format!("{}address/", keys().prefix()), None, None, true);
    let mut store = open(&mounted.path);
    assert_eq!(held(&mut store), Ok(granted.len() as u64 * 2), "nothing of the refused commit is left");
    let last = read(&mut store, &keys().key(&Place::Cursor(0))).unwrap();
    assert_eq!(last.value, granted.last().unwrap().as_bytes());
    drop(store);
    // Letting go works while it is full, and then there is room again.
    let mut store = open(&mounted.path);
    let batch = [delete(&mut store, &key("10.0.0.0")), delete(&mut store, &key("fd00::0"))];
    commit(&mut store, &batch).unwrap();
    drop(store);
    let mut store = open(&mounted.path);
    assert_eq!(held(&mut store), Ok(granted.len() as u64 * 2 - 2));
    commit(&mut store, &[create("10.9.0.1", "late")]).unwrap();
    drop(store);
    assert_eq!(holder(&mut open(&mounted.path), "10.9.0.1"), Some(record("late")));
}

#[test]
fn a_read_only_file_system_is_read_and_refuses_grants_in_gos_words() {
    let Some(mounted) = Mounted::new("tmpfs", "mode=0700") else { return };
    add(&mounted.path, "10.0.0.1", "c1", 0);
    rustix::mount::mount_remount(&mounted.path, rustix::mount::MountFlags::RDONLY, "").unwrap();
    let mut store = open(&mounted.path);
    assert_eq!(owner(&mut store, "c1", "eth0"), [at("10.0.0.1")]);
    assert_eq!(store.take_notices(), [], "the index is still trusted");
    let refused = commit(&mut store, &[create("10.0.0.2", "c2")]);
    let shown = mounted.path.display();
    assert_eq!(refused, Err(Error::Denied(format!("open {shown}/net/10.0.0.2: read-only file system"))));
    let write = delete(&mut store, &key("10.0.0.1"));
    let refused = commit(&mut store, &[write]);
    assert_eq!(refused, Err(Error::Denied(format!("remove {shown}/net/10.0.0.1: read-only file system"))));
    assert_eq!(holder(&mut store, "10.0.0.1"), Some(record("c1")));
    drop(store);
    let mut other = DirectoryStore::new(mounted.path.clone(), "other".into(), Options::system());
    let answer = other.count("", None, None, true);
    assert_eq!(answer, Err(Error::Denied(format!("mkdir {shown}/other: read-only file system"))));
}

#[test]
fn without_a_place_for_the_index_addresses_are_granted_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    // Something is in the way of our directory.
    std::fs::write(folder.path().join(".plat"), "").unwrap();
    add(folder.path(), "10.0.0.1", "c1", 0);
    add(folder.path(), "10.0.0.2", "c2", 0);
    let mut store = open(folder.path());
    assert_eq!(owner(&mut store, "c2", "eth0"), [at("10.0.0.2")]);
    told(&mut store, Level::Warning, "works without an index");
    let names: Vec<String> = listing(&folder.path().join("net")).into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["10.0.0.1", "10.0.0.2", "last_reserved_ip.0", "lock"], "no temporary file is left");
    assert_eq!(
        commit(&mut store, &[create("10.0.0.1", "c3")]),
        Err(Error::Conflict(vec![key("10.0.0.1")])),
        "creation is exclusive"
    );
}

#[test]
fn a_network_directory_that_is_a_mount_of_its_own_works() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mounted) = Mounted::new("tmpfs", "mode=0755") else { return };
    std::os::unix::fs::symlink(&mounted.path, folder.path().join("net")).unwrap();
    for number in 1..4 {
        add(folder.path(), &format!("10.0.0.{number}"), "c1", 0);
    }
    let mut store = open(folder.path());
    assert_eq!(owner(&mut store, "c1", "eth0").len(), 3);
    assert_eq!(notices(&mut store), []);
    let names: Vec<String> = listing(&mounted.path).into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["10.0.0.1", "10.0.0.2", "10.0.0.3", "last_reserved_ip.0", "lock"]);
}

#[test]
fn an_index_of_a_later_format_is_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    add(folder.path(), "10.0.0.1", "c1", 0);
    for name in ["index", "journal"] {
        let path = folder.path().join(".plat/net").join(name);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[8] += 1;
        std::fs::write(&path, bytes).unwrap();
        let mut store = open(folder.path());
        assert_eq!(owner(&mut store, "c1", "eth0"), [at("10.0.0.1")]);
        told(&mut store, Level::Warning, "index made anew, 1 addresses: ");
    }
}

#[test]
fn files_left_by_a_killed_call_are_no_addresses_and_go_away() {
    let folder = tempfile::tempdir().unwrap();
    add(folder.path(), "10.0.0.1", "c1", 0);
    std::fs::write(folder.path().join("net/.plat-new.0"), "c1\r\neth0").unwrap();
    // As after a link that was made and whose other name was not removed.
    std::fs::hard_link(folder.path().join("net/10.0.0.1"), folder.path().join(".plat/net/new.0")).unwrap();
    let mut store = open(folder.path());
    assert_eq!(owner(&mut store, "c1", "eth0"), [at("10.0.0.1")]);
    assert!(!folder.path().join("net/.plat-new.0").exists());
    commit(&mut store, &[create("10.0.0.2", "c2")]).unwrap();
    assert_eq!(holder(&mut store, "10.0.0.1"), Some(record("c1")), "the other name was not written through");
    assert!(!boot().is_empty());
}

#[test]
fn an_unreadable_file_stays_taken_and_is_told() {
    // Root reads everything, so a child without root's rights does the reading.
    let Ok(data_dir) = std::env::var("PLAT_STORES_UNPRIVILEGED") else {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: not root, cannot make a file that another user cannot read");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let net = folder.path().join("net");
        std::fs::create_dir_all(&net).unwrap();
        std::fs::write(net.join("10.0.0.1"), "c1\r\neth0").unwrap();
        std::fs::set_permissions(net.join("10.0.0.1"), PermissionsExt::from_mode(0o600)).unwrap();
        for path in [folder.path(), &net] {
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o777)).unwrap();
        }
        let program = folder.path().join("test");
        std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        use std::os::unix::process::CommandExt;
        let output = std::process::Command::new(&program)
            .args(["--exact", "an_unreadable_file_stays_taken_and_is_told", "--nocapture"])
            .env("PLAT_STORES_UNPRIVILEGED", folder.path())
            .current_dir("/")
            .uid(65534)
            .gid(65534)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(net.join("10.0.0.2").exists(), "the child did its part");
        return;
    };
    let data_dir = Path::new(&data_dir);
    for first in [true, false] {
        let mut store = open(data_dir);
        let held = holder(&mut store, "10.0.0.1").unwrap();
        assert_eq!(held.foreign.as_deref(), Some("unreadable: permission denied"));
        if first {
            told(&mut store, Level::Warning, "net/10.0.0.1: permission denied; the address stays taken");
            let write = delete(&mut store, &key("10.0.0.1"));
            assert!(matches!(commit(&mut store, &[write]), Err(Error::Denied(_))));
        }
        let taken = commit(&mut store, &[create("10.0.0.1", "c2")]);
        assert_eq!(taken, Err(Error::Conflict(vec![key("10.0.0.1")])));
        // The directory belongs to somebody else, so that its time cannot be set; addresses are granted all the same.
        if first {
            commit(&mut store, &[create("10.0.0.2", "c2")]).unwrap();
        }
        assert!(holder(&mut store, "10.0.0.2").is_some());
    }
}

/// `.plat/net` of a store in which one address is held.
fn used_store() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    add(folder.path(), "10.0.0.1", "c1", 0);
    let plat = folder.path().join(".plat/net");
    assert!(plat.join("index").is_file());
    (folder, plat)
}

#[test]
fn fifos_and_links_in_place_of_our_files_neither_hold_nor_lead_a_call() {
    for name in ["index", "journal", "history", "index.new", "journal.new"] {
        let (folder, plat) = used_store();
        let path = plat.join(name);
        let _ = std::fs::remove_file(&path);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        std::fs::File::create(folder.path().join("net/foreign")).unwrap();
        add(folder.path(), "10.0.0.2", "c2", 0);
        add(folder.path(), "10.0.0.3", "c3", 0);

        let (folder, plat) = used_store();
        let victim = folder.path().join("victim");
        std::fs::write(&victim, "precious").unwrap();
        let path = plat.join(name);
        let _ = std::fs::remove_file(&path);
        std::fs::hard_link(&victim, &path).unwrap();
        std::fs::File::create(folder.path().join("net/foreign")).unwrap();
        add(folder.path(), "10.0.0.2", "c2", 0);
        add(folder.path(), "10.0.0.3", "c3", 0);
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious", "{name}");
    }
}

#[test]
fn an_index_folder_that_others_can_write_to_is_not_used() {
    use std::os::unix::fs::PermissionsExt;
    let open_to_all = |path: &Path| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    for level in ["above", "below", "link"] {
        let (folder, plat) = used_store();
        match level {
            "above" => open_to_all(plat.parent().unwrap()),
            "below" => open_to_all(&plat),
            _ => {
                let elsewhere = folder.path().join("elsewhere");
                std::fs::rename(&plat, &elsewhere).unwrap();
                std::os::unix::fs::symlink(&elsewhere, &plat).unwrap();
            }
        }
        let before = listing(&plat);
        let mut store = open(folder.path());
        commit(&mut store, &[create("10.0.0.2", "c2")]).unwrap();
        told(&mut store, Level::Warning, "works without an index");
        drop(store);
        assert_eq!(listing(&plat), before, "{level}");
        assert!(folder.path().join("net/10.0.0.2").is_file());
    }
}
