//! The SQLite store among processes, faults and strangers.

mod common;

use common::{Mounted, ReopeningSqlite, commit, open_sqlite, read, sqlite_options};
use plat_core::clock::Instant as Moment;
use plat_core::ipam::{Attributes, Holder};
use plat_core::net::Prefix;
use plat_core::objects::Block;
use plat_core::objects::keys::{block_key, derived, owned_key, room_key};
use plat_core::store::{Action, Durability, Entry, Error, Event, Expected, Store, Version, Write};
use plat_stores::memory::MemoryStore;
use plat_stores::sqlite::{EVENTS_MAX, LOG_BYTES_MAX, Options, SCHEMA_VERSION, SqliteStore};
use proptest::prelude::*;
use rusqlite::Connection;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const FOLDER_VARIABLE: &str = "PLAT_STORES_SQLITE_CHILD";

fn put(key: impl Into<String>, expected: Expected, value: impl Into<Vec<u8>>) -> Write {
    Write { key: key.into(), expected, action: Action::Put(value.into()) }
}

/// A write over whatever is there.
fn over(store: &mut dyn Store, key: &str, value: impl Into<Vec<u8>>) -> Write {
    let expected = read(store, key).map_or(Expected::Absent, |entry| Expected::At(entry.version));
    put(key, expected, value)
}

fn patient(folder: &Path, exclusive: bool, lock_wait_max: Duration) -> SqliteStore {
    SqliteStore::new(folder.join("ipam.db"), Options { exclusive, lock_wait_max, create: true })
}

fn event(why: &str) -> Event {
    Event {
        at: Moment { seconds: 1_700_000_000, nanoseconds: 7 },
        what: "granted".into(),
        key: "block/x".into(),
        owner: "c1/eth0".into(),
        why: why.into(),
    }
}

/// A file with one key, whose log was moved into it.
fn settled(folder: &Path) {
    commit(&mut open_sqlite(folder), &[put("a", Expected::Absent, "1")]).unwrap();
    let connection = Connection::open(folder.join("ipam.db")).unwrap();
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
}

/// Starts a test of this file as a process of its own, with a folder to work in.
fn child(test: &str, folder: &Path, output: Stdio) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--quiet"])
        .env(FOLDER_VARIABLE, folder)
        .stdout(output)
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

fn check_whole(folder: &Path) {
    let connection = Connection::open(folder.join("ipam.db")).unwrap();
    let answer: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(answer, "ok");
    drop(connection);
    let mut store = open_sqlite(folder);
    let mut found = 0;
    let mut from = None;
    loop {
        let page = store.scan("", from.as_deref(), 500, true, true).unwrap();
        found += page.entries.len() as u64;
        from = page.next;
        if from.is_none() {
            break;
        }
    }
    assert_eq!(store.count("", None, None, true), Ok(found), "the tally counts what is there");
}

// Opening.

#[test]
fn reads_make_nothing_and_a_commit_makes_a_file_for_its_user_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plat/deep/ipam.db");
    let mut store = SqliteStore::new(&path, sqlite_options(true));
    assert_eq!(read(&mut store, "a"), None);
    assert_eq!(store.count("", None, None, true), Ok(0));
    assert_eq!(store.scan("", None, 9, true, true).unwrap().entries, []);
    assert_eq!(store.events(), Ok(Vec::new()));
    assert!(!folder.path().join("plat").exists());

    let version = commit(&mut store, &[put("a", Expected::Absent, "1")]).unwrap().remove(0);
    assert_eq!(read(&mut store, "a"), Some(Entry { key: "a".into(), value: b"1".to_vec(), version }));
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    for ending in ["", "-wal", "-shm", ".lock"] {
        let path = path.with_file_name(format!("ipam.db{ending}"));
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

#[test]
fn a_store_that_is_not_to_be_made_is_empty_and_takes_no_commit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ipam.db");
    let mut store = SqliteStore::new(&path, Options { create: false, ..sqlite_options(false) });
    assert_eq!(read(&mut store, "a"), None);
    let refused = commit(&mut store, &[put("a", Expected::Absent, "1")]);
    assert_eq!(refused, Err(Error::Denied(format!("{}: there is no such store", path.display()))));
    assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none());
    // Once somebody has made it, it is there.
    settled(folder.path());
    assert!(read(&mut store, "a").is_some());
    let next = over(&mut store, "a", "2");
    commit(&mut store, &[next]).unwrap();
}

#[test]
fn an_empty_commit_makes_the_store_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open_sqlite(folder.path());
    assert_eq!(commit(&mut store, &[]), Ok(vec![]));
    assert_eq!(store.count("", None, None, true), Ok(0));
    assert!(folder.path().join("ipam.db").exists());
}

#[test]
fn what_somebody_else_could_have_prepared_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ipam.db");
    let shown = path.display().to_string();
    let refusal = |why: &str| {
        for exclusive in [true, false] {
            let mut store = SqliteStore::new(&path, sqlite_options(exclusive));
            let answers = [
                store.read(&["a".into()], true).map(drop),
                store.count("", None, None, true).map(drop),
                commit(&mut store, &[put("a", Expected::Absent, "2")]).map(drop),
            ];
            for answer in answers {
                let Err(Error::Denied(text)) = answer else { panic!("{why}: {answer:?}") };
                assert!(text.contains(why) && text.contains(folder.path().to_str().unwrap()), "{text}");
            }
        }
    };
    std::fs::create_dir(&path).unwrap();
    refusal("is no regular file: name another store");
    std::fs::remove_dir(&path).unwrap();

    std::fs::write(folder.path().join("elsewhere"), "").unwrap();
    symlink(folder.path().join("elsewhere"), &path).unwrap();
    refusal("is no regular file: name another store");
    std::fs::remove_file(&path).unwrap();

    settled(folder.path());
    for mode in [0o620, 0o602, 0o666] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        refusal("can be written by others: chmod 600 it, if you trust its content");
    }
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();

    // The folder decides too on what SQLite finds beside the file.
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    refusal("the folder of the store, can be written by others: chmod o-w it");
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o1777)).unwrap();
    assert!(read(&mut open_sqlite(folder.path()), "a").is_some(), "as in /tmp");

    if rustix::process::geteuid().is_root() {
        let other = Some(rustix::fs::Uid::from_raw(12345));
        let log = folder.path().join("ipam.db-wal");
        rustix::fs::chown(&log, other, None).unwrap();
        refusal("-wal belongs to the user 12345: it must be root's or this user's");
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        rustix::fs::chown(&path, other, None).unwrap();
        refusal(&format!("{shown} belongs to the user 12345: it must be root's or this user's"));
        rustix::fs::chown(&path, Some(rustix::fs::Uid::ROOT), None).unwrap();
        rustix::fs::chown(folder.path(), other, None).unwrap();
        refusal("the folder of the store, belongs to the user 12345");
    }
}

#[test]
fn a_folder_behind_a_symbolic_link_is_used() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("real")).unwrap();
    symlink("real", folder.path().join("link")).unwrap();
    commit(&mut open_sqlite(&folder.path().join("link")), &[put("a", Expected::Absent, "1")]).unwrap();
    assert!(read(&mut open_sqlite(&folder.path().join("real")), "a").is_some());
}

#[test]
fn files_of_others_are_told_apart_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ipam.db");
    let refused = |exclusive: bool| match SqliteStore::new(&path, sqlite_options(exclusive)).read(&["a".into()], true) {
        Err(Error::Denied(text)) => text,
        other => panic!("{other:?}"),
    };
    let shown = path.display();
    let check_refused = |wanted: &str| {
        let before = std::fs::read(&path).unwrap();
        for exclusive in [true, false] {
            let text = refused(exclusive);
            assert!(text.starts_with(&shown.to_string()) && text.contains(wanted), "{text}");
        }
        assert!(std::fs::read(&path).unwrap() == before, "nothing of it was changed: {wanted}");
        std::fs::remove_file(&path).unwrap();
        for ending in ["-wal", "-shm"] {
            let _ = std::fs::remove_file(folder.path().join(format!("ipam.db{ending}")));
        }
    };
    let write = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    let garbage: Vec<u8> = (0..20_000u32).map(|number| (number * 7 % 251) as u8).collect();
    write(&garbage);
    check_refused("is no SQLite file: name another store, or move the file away");
    write(b"10.0.0.1\r\neth0");
    check_refused("is no SQLite file");

    let other = Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1);").unwrap();
    drop(other);
    write(&std::fs::read(&path).unwrap());
    check_refused("is a SQLite file of another program: name another store");

    settled(folder.path());
    let newer = Connection::open(&path).unwrap();
    newer.pragma_update(None, "user_version", SCHEMA_VERSION + 1).unwrap();
    newer.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(newer);
    check_refused(&format!(
        "has schema {}, made by a newer version; this one knows up to 1: upgrade",
        SCHEMA_VERSION + 1
    ));
}

#[test]
fn an_empty_file_and_one_cut_off_while_it_was_made_become_stores() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ipam.db");
    std::fs::write(&path, "").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(read(&mut open_sqlite(folder.path()), "a"), None);
    // As if the process had died after it had chosen the journal and before it had made the tables.
    std::fs::remove_file(&path).unwrap();
    let begun = Connection::open(&path).unwrap();
    begun.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())).unwrap();
    drop(begun);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    settled(folder.path());
    assert!(read(&mut open_sqlite(folder.path()), "a").is_some());
}

#[test]
fn a_damaged_file_is_told_and_never_answers_wrongly() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ipam.db");
    let mut store = open_sqlite(folder.path());
    let wanted: Vec<(String, Vec<u8>)> =
        (0..400u32).map(|number| (format!("k/{number:04}"), vec![number as u8; 100])).collect();
    let batch: Vec<Write> = wanted.iter().map(|(key, value)| put(key, Expected::Absent, value.clone())).collect();
    commit(&mut store, &batch).unwrap();
    drop(store);
    let connection = Connection::open(&path).unwrap();
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(connection);
    let sound = std::fs::read(&path).unwrap();
    let mut told = 0;
    for page in 1..sound.len() / 4096 {
        let mut bytes = sound.clone();
        bytes[page * 4096..page * 4096 + 64].fill(0xff);
        std::fs::write(&path, bytes).unwrap();
        let mut store = open_sqlite(folder.path());
        let mut answers =
            vec![store.scan("", None, 1000, false, true).map(drop), store.count("k/", None, None, true).map(drop)];
        answers.extend(wanted.iter().step_by(37).map(|(key, _)| store.read(std::slice::from_ref(key), true).map(drop)));
        for answer in answers {
            match answer {
                Ok(()) => {}
                Err(Error::Denied(text)) => {
                    assert!(text.contains("is damaged (") && text.contains("restore it from a copy"), "{text}");
                    told += 1;
                }
                Err(other) => panic!("page {page}: {other:?}"),
            }
        }
    }
    assert!(told > sound.len() / 4096, "{told} answers told of damage");
    for cut in [50, 4096, 4096 + 17, sound.len() / 2] {
        std::fs::write(&path, &sound[..cut]).unwrap();
        let answer = open_sqlite(folder.path()).scan("", None, 1000, false, true);
        assert!(matches!(answer, Err(Error::Denied(_))), "cut to {cut} bytes: {answer:?}");
    }
    std::fs::write(&path, &sound).unwrap();
    let page = open_sqlite(folder.path()).scan("", None, 1000, false, true).unwrap();
    assert_eq!(page.entries.into_iter().map(|entry| (entry.key, entry.value)).collect::<Vec<_>>(), wanted);
}

// Faults of the disk.

#[test]
fn a_full_disk_refuses_commits_whole() {
    let Some(mounted) = Mounted::new("tmpfs", "size=400k,mode=0700") else { return };
    let mut granted = 0u32;
    let refused = loop {
        let mut store = open_sqlite(&mounted.path);
        let batch = [
            put(format!("x/{granted:05}"), Expected::Absent, vec![1; 3000]),
            put(format!("y/{granted:05}"), Expected::Absent, vec![2; 3000]),
        ];
        match store.commit(&batch, &[event("ADD")], Durability::Process) {
            Ok(_) => granted += 1,
            Err(error) => break error,
        }
        assert!(granted < 100, "400 KB are full some time");
    };
    assert!(granted > 5, "{granted}");
    let shown = mounted.path.display();
    assert_eq!(refused, Error::Unavailable(format!("{shown}/ipam.db: no space left on device")));
    let count = |prefix: &str| open_sqlite(&mounted.path).count(prefix, None, None, true);
    assert_eq!((count("x/"), count("y/")), (Ok(granted.into()), Ok(granted.into())), "nothing of the refused commit");
    check_whole(&mounted.path);
    assert_eq!(open_sqlite(&mounted.path).events().unwrap().len() as u32, granted);
    // Whether a write could succeed is answered by one: a small one may still fit, once.
    let refusals = (0..200).filter(|_| commit(&mut open_sqlite(&mounted.path), &[]).is_err()).count();
    assert!(refusals > 0, "an empty commit finds the disk full");
    // With room again all goes on.
    rustix::mount::mount_remount(&mounted.path, rustix::mount::MountFlags::empty(), "size=4m").unwrap();
    commit(&mut open_sqlite(&mounted.path), &[put("late", Expected::Absent, vec![3; 3000])]).unwrap();
    assert!(read(&mut open_sqlite(&mounted.path), "late").is_some());
    check_whole(&mounted.path);
}

#[test]
fn a_read_only_file_system_is_read_and_refuses_commits() {
    let Some(mounted) = Mounted::new("tmpfs", "mode=0700") else { return };
    commit(&mut open_sqlite(&mounted.path), &[put("a", Expected::Absent, "1")]).unwrap();
    rustix::mount::mount_remount(&mounted.path, rustix::mount::MountFlags::RDONLY, "").unwrap();
    let shown = mounted.path.display();
    for exclusive in [true, false] {
        let mut store = patient(&mounted.path, exclusive, Duration::from_secs(5));
        assert_eq!(read(&mut store, "a").map(|entry| entry.value), Some(b"1".to_vec()));
        assert_eq!(store.count("", None, None, true), Ok(1));
        for batch in [&[put("b", Expected::Absent, "1")][..], &[]] {
            let Err(Error::Denied(text)) = commit(&mut store, batch) else { panic!("a commit was not refused") };
            assert!(text.starts_with(&format!("{shown}/ipam.db: the store cannot be written: ")), "{text}");
        }
    }
    let mut other = SqliteStore::new(mounted.path.join("other/ipam.db"), sqlite_options(true));
    assert_eq!(read(&mut other, "a"), None);
    let refused = commit(&mut other, &[]);
    assert_eq!(refused, Err(Error::Denied(format!("mkdir {shown}/other: read-only file system"))));
}

/// In the child: commits until the file may not grow any more, as on a disk that fails, and tells what it was answered.
#[test]
fn child_that_commits_until_writing_fails() {
    let Ok(folder) = std::env::var(FOLDER_VARIABLE) else { return };
    let mut store = open_sqlite(Path::new(&folder));
    for number in 0..1000u32 {
        let batch = [
            put(format!("x/{number:05}"), Expected::Absent, vec![1; 3000]),
            put(format!("y/{number:05}"), Expected::Absent, vec![2; 3000]),
        ];
        match commit(&mut store, &batch) {
            Ok(_) => println!("acknowledged"),
            Err(error) => {
                println!("{error:?}");
                // What the core does next: a write that settles it.
                println!("{:?}", commit(&mut store, &[put("fence", Expected::Absent, "1")]).is_ok());
                return;
            }
        }
    }
}

#[test]
fn a_commit_that_fails_to_be_written_has_an_unknown_outcome() {
    let mut whole = 0;
    for blocks in [400, 409, 417, 444, 460] {
        let folder = tempfile::tempdir().unwrap();
        settled(folder.path());
        // A shell, because the limit is one of a process, and its signal must be ignored from the start.
        let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$@\"");
        let output = Command::new("bash")
            .args(["-c", &script, "bash"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "child_that_commits_until_writing_fails", "--nocapture", "--quiet"])
            .env(FOLDER_VARIABLE, folder.path())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let acknowledged = text.lines().filter(|line| *line == "acknowledged").count() as u64;
        assert!(acknowledged > 2, "{text}");
        assert!(text.contains("UnknownOutcome"), "{text}");
        check_whole(folder.path());
        let mut store = open_sqlite(folder.path());
        let (x, y) = (store.count("x/", None, None, true).unwrap(), store.count("y/", None, None, true).unwrap());
        assert_eq!(x, y, "no commit is there by half");
        assert!(x == acknowledged || x == acknowledged + 1, "{x} of {acknowledged} acknowledged");
        whole += u32::from(x == acknowledged);
    }
    assert!(whole > 0);
}

// Processes.

#[test]
fn a_held_lock_is_waited_for_until_the_deadline() {
    let folder = tempfile::tempdir().unwrap();
    let mut holder = open_sqlite(folder.path());
    commit(&mut holder, &[put("a", Expected::Absent, "1")]).unwrap();
    let wait = Duration::from_millis(200);
    for exclusive in [true, false] {
        let start = Instant::now();
        let mut late = patient(folder.path(), exclusive, wait);
        let refused = commit(&mut late, &[put("b", Expected::Absent, "1")]);
        let shown = folder.path().display();
        let why = format!("flock {shown}/ipam.db.lock: still held by another process after 0.2 s");
        assert_eq!(refused, Err(Error::Unavailable(why)));
        assert!(start.elapsed() >= wait && start.elapsed() < wait * 20, "{:?}", start.elapsed());
    }
    // Reading without the lock goes on meanwhile.
    assert!(read(&mut patient(folder.path(), false, wait), "a").is_some());
    // Who waits gets the lock when it is free.
    let path = folder.path().to_owned();
    let waiter = std::thread::spawn(move || {
        let mut store = patient(&path, true, Duration::from_secs(30));
        commit(&mut store, &[put("b", Expected::Absent, "1")]).map(drop)
    });
    std::thread::sleep(Duration::from_millis(50));
    let next = over(&mut holder, "a", "2");
    commit(&mut holder, &[next]).unwrap();
    assert_eq!(read(&mut holder, "b"), None);
    drop(holder);
    assert_eq!(waiter.join().unwrap(), Ok(()));
}

#[test]
fn a_foreign_program_in_the_file_is_waited_for_until_the_deadline() {
    let folder = tempfile::tempdir().unwrap();
    settled(folder.path());
    let foreign = Connection::open(folder.path().join("ipam.db")).unwrap();
    foreign.execute_batch("BEGIN IMMEDIATE").unwrap();
    let start = Instant::now();
    let refused = commit(&mut patient(folder.path(), true, Duration::from_millis(200)), &[]);
    let Err(Error::Unavailable(text)) = refused else { panic!("{refused:?}") };
    assert!(text.contains("another process holds the store"), "{text}");
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    foreign.execute_batch("ROLLBACK").unwrap();
    commit(&mut patient(folder.path(), true, Duration::from_millis(200)), &[]).unwrap();
}

const COUNTERS: u32 = 64;
const INCREMENTS: u32 = 12;

/// In the child: adds to a counter that all share, opening the store anew each time.
#[test]
fn child_that_counts() {
    let Ok(folder) = std::env::var(FOLDER_VARIABLE) else { return };
    let folder = Path::new(&folder);
    let me = std::process::id();
    for round in 0..INCREMENTS {
        loop {
            let exclusive = me.is_multiple_of(2);
            let mut store = patient(folder, exclusive, Duration::from_secs(60));
            let found = read(&mut store, "counter");
            let count: u32 = found.as_ref().map_or(0, |entry| String::from_utf8_lossy(&entry.value).parse().unwrap());
            let expected = found.map_or(Expected::Absent, |entry| Expected::At(entry.version));
            let own = put(format!("own/{me}/{round}"), Expected::Absent, (count + 1).to_string());
            match commit(&mut store, &[put("counter", expected, (count + 1).to_string()), own]) {
                Ok(_) => break,
                // Without the lock for the whole call others come between; with it only who found no file yet.
                Err(Error::Conflict(_)) => assert!(!exclusive || count == 0, "nobody comes between"),
                Err(error) => panic!("{error:?}"),
            }
        }
    }
}

#[test]
fn many_processes_lose_no_count() {
    let folder = tempfile::tempdir().unwrap();
    // Into a file that they make themselves, all at once.
    let mut children: Vec<Child> =
        (0..COUNTERS).map(|_| child("child_that_counts", folder.path(), Stdio::null())).collect();
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    let mut store = open_sqlite(folder.path());
    let count = read(&mut store, "counter").unwrap();
    assert_eq!(String::from_utf8(count.value).unwrap(), (COUNTERS * INCREMENTS).to_string());
    assert_eq!(store.count("own/", None, None, true), Ok(u64::from(COUNTERS * INCREMENTS)));
    drop(store);
    check_whole(folder.path());
}

/// In the child: commits as fast as it can until it is killed, and acknowledges each commit that was answered.
#[test]
fn child_that_commits_until_it_is_killed() {
    let Ok(folder) = std::env::var(FOLDER_VARIABLE) else { return };
    let folder = Path::new(&folder);
    let me = std::process::id();
    let holder = Holder::Host(format!("n{me}"));
    let prefix = Prefix::parse(&format!("10.{}.{}.0/26", me >> 8 & 0xff, me & 0xff)).unwrap();
    let mut acknowledged = std::fs::File::create(folder.join(format!("acknowledged-{me}"))).unwrap();
    let mut block = Block::new(prefix, &holder, Moment { seconds: 1, nanoseconds: 0 }, 0, None);
    for round in 1u32.. {
        let mut store = patient(folder, round % 3 > 0, Duration::from_secs(60));
        if block.take(1, Some("h"), &Attributes::default(), &mut |_| false).is_empty() {
            block = Block::new(prefix, &holder, Moment { seconds: 1, nanoseconds: 0 }, 0, None);
        }
        let batch = [
            over(&mut store, &block_key(prefix), block.to_bytes()),
            over(&mut store, &format!("a/{me}"), round.to_string()),
            over(&mut store, &format!("b/{me}"), round.to_string()),
            put(format!("c/{me}/{round}"), Expected::Absent, vec![0; 700]),
        ];
        let durability = if round.is_multiple_of(50) { Durability::Power } else { Durability::Process };
        store.commit(&batch, &[event(&me.to_string())], durability).unwrap();
        // In one call, so that a line is whole or not there.
        acknowledged.write_all(b".").unwrap();
    }
}

#[test]
fn killed_processes_lose_no_acknowledged_commit_and_leave_none_by_half() {
    const KILLS: usize = 204;
    const AT_ONCE: usize = 3;
    let folder = tempfile::tempdir().unwrap();
    settled(folder.path());
    let (mut commits, mut unacknowledged) = (0, 0);
    for round in 0..KILLS / AT_ONCE {
        let mut children: Vec<Child> = (0..AT_ONCE)
            .map(|_| child("child_that_commits_until_it_is_killed", folder.path(), Stdio::null()))
            .collect();
        // Each has begun, however busy the machine is; and then at any moment.
        let start = Instant::now();
        let begun = |child: &Child| {
            let acknowledged = folder.path().join(format!("acknowledged-{}", child.id()));
            std::fs::metadata(acknowledged).is_ok_and(|meta| meta.len() > 0)
        };
        while !children.iter().all(begun) {
            assert!(start.elapsed() < Duration::from_secs(60), "the children commit");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(round as u64 * 7919 % 15_000));
        for child in &mut children {
            child.kill().unwrap();
        }
        let mut store = None;
        for child in &mut children {
            assert!(!child.wait().unwrap().success(), "it ran until it was killed");
        }
        for child in &children {
            let me = child.id();
            let store = store.get_or_insert_with(|| open_sqlite(folder.path()));
            let acknowledged = folder.path().join(format!("acknowledged-{me}"));
            let acknowledged = std::fs::metadata(acknowledged).map_or(0, |meta| meta.len());
            let number = |store: &mut SqliteStore, key: String| {
                read(store, &key).map_or(0, |entry| String::from_utf8(entry.value).unwrap().parse::<u64>().unwrap())
            };
            let done = number(store, format!("a/{me}"));
            assert!(done == acknowledged || done == acknowledged + 1, "{done} done, {acknowledged} acknowledged");
            unacknowledged += done - acknowledged;
            commits += done;
            assert_eq!(number(store, format!("b/{me}")), done);
            assert_eq!(store.count(&format!("c/{me}/"), None, None, true), Ok(done));
            let why = me.to_string();
            assert_eq!(store.events().unwrap().iter().filter(|event| event.why == why).count() as u64, done);
            // The indexes are those of the block.
            let prefix = Prefix::parse(&format!("10.{}.{}.0/26", me >> 8 & 0xff, me & 0xff)).unwrap();
            let room = read(store, &room_key(prefix)).map(|entry| entry.value);
            let owned = read(store, &owned_key(&Holder::Host(format!("n{me}")), prefix)).map(|entry| entry.value);
            let value = read(store, &block_key(prefix)).map(|entry| entry.value).unwrap_or_default();
            let derived = derived(&block_key(prefix), &value);
            let wanted = derived.into_iter().find(|(key, _)| *key == room_key(prefix)).map(|(_, value)| value);
            assert_eq!(room, wanted);
            assert!(done == 0 || owned.is_some());
        }
    }
    check_whole(folder.path());
    println!("{KILLS} kills, {commits} commits, {unacknowledged} of them killed before they were acknowledged");
    assert!(commits > KILLS as u64 && unacknowledged > 0, "{commits} commits, {unacknowledged} not acknowledged");
}

// What is kept.

#[test]
fn the_log_is_folded_and_a_reader_does_not_stop_it() {
    let folder = tempfile::tempdir().unwrap();
    settled(folder.path());
    let log = folder.path().join("ipam.db-wal");
    let reader = Connection::open(folder.path().join("ipam.db")).unwrap();
    reader.execute_batch("BEGIN").unwrap();
    let seen = || -> i64 { reader.query_row("SELECT count(*) FROM entries", [], |row| row.get(0)).unwrap() };
    assert_eq!(seen(), 1);
    let mut longest = 0;
    let mut write = |number: u32| {
        let start = Instant::now();
        let key = format!("k/{number:04}");
        commit(&mut open_sqlite(folder.path()), &[put(key, Expected::Absent, vec![7; 20_000])]).unwrap();
        assert!(start.elapsed() < Duration::from_secs(5), "a reader is not waited for");
        let length = std::fs::metadata(&log).unwrap().len();
        longest = longest.max(length);
        length
    };
    let with_reader = (0..100).map(&mut write).last().unwrap();
    assert!(with_reader > LOG_BYTES_MAX, "what a reader still sees is kept");
    assert_eq!(seen(), 1);
    reader.execute_batch("COMMIT").unwrap();
    let lengths: Vec<u64> = (100..300).map(&mut write).collect();
    assert_eq!(lengths[0], 0, "the first commit after it folds");
    assert!(lengths.iter().all(|length| *length < LOG_BYTES_MAX), "{lengths:?}");
    assert!(lengths.iter().filter(|length| **length == 0).count() < 20, "not each commit waits for the disk");
    assert_eq!(seen(), 301);
    check_whole(folder.path());
}

#[test]
fn events_are_kept_with_their_commit_up_to_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open_sqlite(folder.path());
    let written = [event("ADD"), event("")];
    store.commit(&[put("a", Expected::Absent, "1")], &written, Durability::Power).unwrap();
    assert_eq!(store.events(), Ok(written.to_vec()));
    let refused = store.commit(&[put("a", Expected::Absent, "2")], &[event("refused")], Durability::Process);
    assert_eq!(refused, Err(Error::Conflict(vec!["a".into()])));
    assert_eq!(store.events(), Ok(written.to_vec()), "a refused commit leaves none");
    drop(store);
    let mut store = open_sqlite(folder.path());
    assert_eq!(store.events(), Ok(written.to_vec()));
    let many: Vec<Event> = (0..EVENTS_MAX + 5).map(|number| event(&number.to_string())).collect();
    for part in many.chunks(20_000) {
        store.commit(&[], part, Durability::Process).unwrap();
    }
    let kept = store.events().unwrap();
    assert_eq!(kept.len() as i64, EVENTS_MAX);
    assert_eq!((kept[0].why.as_str(), kept.last().unwrap().why.clone()), ("5", (EVENTS_MAX + 4).to_string()));
}

#[test]
fn versions_never_repeat_over_openings() {
    let folder = tempfile::tempdir().unwrap();
    let mut seen = std::collections::HashSet::new();
    for round in 0..20 {
        let mut store = open_sqlite(folder.path());
        let write = over(&mut store, "a", "same");
        assert!(seen.insert(commit(&mut store, &[write]).unwrap().remove(0)));
        let held = read(&mut store, "a").unwrap();
        let delete = Write { key: held.key, expected: Expected::At(held.version), action: Action::Delete };
        assert_eq!(commit(&mut store, &[delete]), Ok(vec![Version::default()]));
        if round % 3 == 0 {
            assert!(seen.insert(commit(&mut store, &[put("a", Expected::Absent, "same")]).unwrap().remove(0)));
        }
    }
    assert_eq!(seen.len(), 27);
}

// Against the store in memory.

const KEYS: [&str; 9] = [
    "a",
    "block/v4/26/0a000000",
    "block/v4/26/0a000040",
    "block/v4/26/not-a-block",
    "block/v6/122/fd000000000000000000000000000000",
    "config",
    "handle/h.1",
    "pool/p#status",
    "\u{10ffff}/ü",
];

/// A write of a key by number: how many addresses of a block are taken and whose it is, or the length of a value.
#[derive(Clone, Debug)]
struct Change {
    key: usize,
    amount: u32,
    host: u8,
    kind: u8,
}

fn change() -> impl Strategy<Value = Change> {
    (0..KEYS.len(), 0..66u32, 0..3u8, 0..10u8).prop_map(|(key, amount, host, kind)| Change { key, amount, host, kind })
}

fn write_of(store: &mut dyn Store, change: &Change) -> Write {
    let key = KEYS[change.key];
    let found = read(store, key);
    let expected = match (&found, change.kind) {
        // Not as it is.
        (Some(_), 9) => Expected::Absent,
        (None, 9) => Expected::At(Version(vec![9])),
        (Some(entry), _) => Expected::At(entry.version.clone()),
        (None, _) => Expected::Absent,
    };
    let action = match change.kind {
        0 | 1 if found.is_some() => Action::Delete,
        2 => Action::Check,
        _ => match plat_core::objects::keys::block_of_key(key) {
            Some(prefix) if change.amount < 65 => {
                let holder = Holder::Host(format!("n{}", change.host));
                let mut block = Block::new(prefix, &holder, Moment { seconds: 5, nanoseconds: 0 }, 1, None);
                let taken = block.take(change.amount, Some("h"), &Attributes::default(), &mut |_| false);
                if change.host == 2 {
                    block.release(&taken[..taken.len() / 2], Moment { seconds: 9, nanoseconds: 0 }, 60);
                }
                Action::Put(block.to_bytes())
            }
            _ => Action::Put(vec![change.host; change.amount as usize * 200]),
        },
    };
    Write { key: key.into(), expected, action }
}

fn apply(store: &mut dyn Store, changes: &[Change]) -> Result<usize, Error> {
    let mut batch: Vec<Write> = Vec::new();
    for change in changes {
        let write = write_of(store, change);
        if !batch.iter().any(|other| other.key == write.key) {
            batch.push(write);
        }
    }
    store.commit(&batch, &[event("x")], Durability::Process).map(|versions| versions.len())
}

fn look(store: &mut dyn Store) -> Vec<(String, Vec<u8>)> {
    let page = store.scan("", None, 1000, false, true).unwrap();
    assert_eq!(page.next, None);
    page.entries.into_iter().map(|entry| (entry.key, entry.value)).collect()
}

fn agree(sqlite: &mut dyn Store, batches: &[Vec<Change>]) -> Result<(), TestCaseError> {
    let mut memory = MemoryStore::new();
    for batch in batches {
        prop_assert_eq!(apply(sqlite, batch), apply(&mut memory, batch));
        let seen = look(sqlite);
        prop_assert_eq!(&seen, &look(&mut memory));
        for prefix in ["", "block/", "room/v4/26/", "empty/", "owned/host/n1/v4/", "h", "\u{10ffff}"] {
            for from in [None, Some("block/v4/26/0a000040"), Some("room/")] {
                let until = Some("owned/host/n2/");
                prop_assert_eq!(sqlite.count(prefix, from, until, true), memory.count(prefix, from, until, true));
                prop_assert_eq!(sqlite.count(prefix, from, None, true), memory.count(prefix, from, None, true));
                let [one, two] = [&mut *sqlite, &mut memory as &mut dyn Store]
                    .map(|store| store.scan(prefix, from, 3, true, true).unwrap());
                let names = |page: &plat_core::store::Page| -> Vec<String> {
                    page.entries.iter().map(|entry| entry.key.clone()).collect()
                };
                prop_assert_eq!((names(&one), one.next), (names(&two), two.next));
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_changes_are_answered_as_in_memory(
        batches in prop::collection::vec(prop::collection::vec(change(), 1..5), 1..20),
    ) {
        let folder = tempfile::tempdir().unwrap();
        agree(&mut open_sqlite(folder.path()), &batches)?;
        check_whole(folder.path());
    }

    #[test]
    fn any_changes_are_answered_as_in_memory_by_one_opened_for_each_call(
        batches in prop::collection::vec(prop::collection::vec(change(), 1..5), 1..5),
    ) {
        let folder = tempfile::tempdir().unwrap();
        agree(&mut ReopeningSqlite { folder: folder.path().to_owned(), calls: 0 }, &batches)?;
    }
}
