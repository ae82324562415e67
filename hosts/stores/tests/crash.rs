//! A commit is whole or not there, wherever the process dies or a system call fails.

mod common;

use common::{at, boot, commit, create, cursor, delete, dump, holder, key, keys, open, read, record};
use plat_core::network::Place;
use plat_core::store::{Action, Durability, Error, Event, Expected, Store, Version, Write};
use rustix::io::Errno;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The payload of an ordered death.
struct Death;

/// Keeps ordered deaths out of the output.
fn quiet_deaths() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if panic.payload().downcast_ref::<Death>().is_none() {
                usual(panic);
            }
        }));
    });
}

type Scenario = fn(&mut dyn Store) -> Vec<Write>;

/// What a CNI ADD with two families writes: four files.
fn dual_stack(store: &mut dyn Store) -> Vec<Write> {
    vec![cursor(store, 0, "10.1.0.9"), create("10.1.0.9", "new"), cursor(store, 1, "fd00::9"), create("fd00::9", "new")]
}

/// A shorter cursor and one that did not exist.
fn cursors(store: &mut dyn Store) -> Vec<Write> {
    vec![create("10.1.0.8", "new"), cursor(store, 0, "10.1.0.8"), cursor(store, 7, "10.1.0.8")]
}

/// What a CNI DEL writes.
fn release(store: &mut dyn Store) -> Vec<Write> {
    vec![delete(store, &key("10.1.0.1")), delete(store, &key("fd00::1"))]
}

/// Everything at once: a new address, one that changes hands, two released, a stray removed, a cursor written.
fn mixture(store: &mut dyn Store) -> Vec<Write> {
    let held = read(store, &key("10.1.0.2")).unwrap();
    vec![
        delete(store, &key("10.1.0.1")),
        delete(store, &keys().key(&Place::Stray("note".into()))),
        Write { key: held.key, expected: Expected::At(held.version), action: Action::Put(record("new").to_bytes()) },
        create("10.1.0.9", "new"),
        cursor(store, 0, "10.1.0.9"),
        delete(store, &key("fd00::1")),
    ]
}

const SCENARIOS: [(&str, Scenario); 4] =
    [("dual stack", dual_stack), ("cursors", cursors), ("release", release), ("mixture", mixture)];

/// A network with some addresses, made by the store, and a file that it does not know.
fn set_up(data_dir: &Path) {
    let mut store = open(data_dir);
    let batch = [create("10.1.0.1", "old"), create("fd00::1", "old"), create("10.1.0.2", "other")];
    commit(&mut store, &batch).unwrap();
    let first = cursor(&mut store, 0, "10.1.0.22");
    commit(&mut store, &[first]).unwrap();
    drop(store);
    std::fs::write(data_dir.join("net/note"), "old\r\neth0").unwrap();
    // The index takes notice, so that the commit under test starts from a trusted one.
    dump(&mut open(data_dir));
}

fn event() -> Event {
    Event {
        at: plat_core::clock::Instant { seconds: 1, nanoseconds: 0 },
        what: "granted".into(),
        key: key("10.1.0.9"),
        owner: "new/eth0".into(),
        why: "ADD".into(),
    }
}

/// Commits a scenario, cutting in at a step: the `cut`-th (from 0), by death or by an error. None: it was over before.
fn commit_cut(
    data_dir: &Path,
    scenario: Scenario,
    cut: usize,
    errno: Option<Errno>,
) -> Option<(&'static str, Result<Vec<Version>, Error>)> {
    quiet_deaths();
    let mut store = open(data_dir);
    let batch = scenario(&mut store);
    let cut_at = Arc::new(Mutex::new(None));
    let steps = AtomicUsize::new(0);
    let seen = cut_at.clone();
    store.set_hook(Box::new(move |step| {
        if steps.fetch_add(1, Ordering::Relaxed) == cut {
            *seen.lock().unwrap() = Some(step);
            if errno.is_none() {
                panic_any(Death);
            }
            return errno;
        }
        None
    }));
    let done = catch_unwind(AssertUnwindSafe(|| store.commit(&batch, &[event()], Durability::Process)));
    let step = cut_at.lock().map_or_else(|poisoned| *poisoned.into_inner(), |step| *step)?;
    match done {
        Ok(result) => Some((step, result)),
        Err(panic) => {
            assert!(panic.downcast_ref::<Death>().is_some(), "only ordered deaths");
            Some((step, Err(Error::UnknownOutcome)))
        }
    }
}

/// The state before and after a scenario.
fn states(scenario: Scenario) -> [Vec<(String, Vec<u8>)>; 2] {
    let folder = tempfile::tempdir().unwrap();
    set_up(folder.path());
    let before = dump(&mut open(folder.path()));
    let mut store = open(folder.path());
    let batch = scenario(&mut store);
    commit(&mut store, &batch).unwrap();
    drop(store);
    [before, dump(&mut open(folder.path()))]
}

fn files(data_dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = std::fs::read_dir(data_dir.join("net"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn a_death_at_any_step_leaves_all_or_nothing() {
    for (name, scenario) in SCENARIOS {
        let [before, after] = states(scenario);
        assert_ne!(before, after);
        let mut outcomes = [0, 0];
        for cut in 0.. {
            let folder = tempfile::tempdir().unwrap();
            set_up(folder.path());
            let Some((step, _)) = commit_cut(folder.path(), scenario, cut, None) else { break };
            let now = dump(&mut open(folder.path()));
            assert!(now == before || now == after, "{name}, dead before step {cut} ({step}): {now:#?}");
            outcomes[usize::from(now == after)] += 1;
            // Trusted again, and the same.
            let mut store = open(folder.path());
            assert_eq!(dump(&mut store), now);
            assert_eq!(store.take_notices(), []);
            assert!(files(folder.path()).iter().all(|(name, content)| name == "lock" || !content.is_empty()));
        }
        assert!(outcomes[0] >= 2 && outcomes[1] >= 3, "{name}: {outcomes:?} deaths before and after the commit");
    }
}

#[test]
fn a_death_during_the_repair_of_a_death_leaves_all_or_nothing() {
    quiet_deaths();
    for (name, scenario) in SCENARIOS {
        let [before, after] = states(scenario);
        for cut in 0.. {
            let folder = tempfile::tempdir().unwrap();
            set_up(folder.path());
            let Some((step, _)) = commit_cut(folder.path(), scenario, cut, None) else { break };
            // Each opener gets one step further before it dies too.
            for second in 0.. {
                let steps = AtomicUsize::new(0);
                let mut store = open(folder.path());
                store.set_hook(Box::new(move |_| {
                    if steps.fetch_add(1, Ordering::Relaxed) == second {
                        panic_any(Death);
                    }
                    None
                }));
                let opened = catch_unwind(AssertUnwindSafe(|| store.count(keys().prefix(), None, None, true)));
                if let Ok(count) = opened {
                    count.unwrap();
                    break;
                }
            }
            let now = dump(&mut open(folder.path()));
            assert!(now == before || now == after, "{name}, dead before step {cut} ({step}): {now:#?}");
        }
    }
}

#[test]
fn a_failing_call_at_any_step_leaves_what_the_answer_says() {
    for (name, scenario) in SCENARIOS {
        let [before, after] = states(scenario);
        for errno in [Errno::NOSPC, Errno::IO, Errno::ROFS] {
            let mut failed = 0;
            for cut in 0.. {
                let folder = tempfile::tempdir().unwrap();
                set_up(folder.path());
                let Some((step, answer)) = commit_cut(folder.path(), scenario, cut, Some(errno)) else { break };
                let now = dump(&mut open(folder.path()));
                let context = format!("{name}, step {cut} ({step}) fails with {errno:?}: {answer:?}");
                match answer {
                    Ok(_) => assert_eq!(now, after, "{context}"),
                    Err(Error::Unavailable(_)) if errno != Errno::ROFS => assert_eq!(now, before, "{context}"),
                    Err(Error::Denied(_)) if errno == Errno::ROFS => assert_eq!(now, before, "{context}"),
                    Err(_) => panic!("{context}"),
                }
                failed += usize::from(now == before);
            }
            assert!(failed >= 2, "{name}: {failed} commits failed with {errno:?}");
        }
    }
}

#[test]
fn what_others_wrote_after_a_death_stays() {
    for cut in 0.. {
        let folder = tempfile::tempdir().unwrap();
        set_up(folder.path());
        let Some((step, _)) = commit_cut(folder.path(), dual_stack, cut, None) else { break };
        // Another writer takes the second address, if it is still free, before we come back.
        let path = folder.path().join("net/fd00::9");
        let taken = std::fs::File::create_new(&path)
            .and_then(|mut file| std::io::Write::write_all(&mut file, b"foreign\r\neth0"))
            .is_ok();
        let mut store = open(folder.path());
        let ours = holder(&mut store, "10.1.0.9").is_some();
        let second = holder(&mut store, "fd00::9").unwrap().container;
        if taken {
            assert_eq!(second.as_deref(), Some("foreign"), "dead before step {cut} ({step})");
            assert!(!ours, "rolled back whole, dead before step {cut} ({step})");
            let last = read(&mut store, &keys().key(&Place::Cursor(0))).unwrap();
            assert_eq!(last.value, b"10.1.0.22");
        } else {
            assert_eq!(second.as_deref(), Some("new"));
            assert!(ours, "completed whole, dead before step {cut} ({step})");
        }
    }
}

#[test]
fn what_others_released_after_a_death_is_not_made_again() {
    for cut in 0.. {
        let folder = tempfile::tempdir().unwrap();
        set_up(folder.path());
        let Some((step, _)) = commit_cut(folder.path(), dual_stack, cut, None) else { break };
        // The original, called with DEL for the container that was never told its address, removes what it finds.
        for address in ["10.1.0.9", "fd00::9"] {
            let _ = std::fs::remove_file(folder.path().join("net").join(address));
        }
        let mut store = open(folder.path());
        for address in ["10.1.0.9", "fd00::9"] {
            assert_eq!(holder(&mut store, address), None, "dead before step {cut} ({step})");
        }
    }
}

/// In the child: commits and releases as fast as it can, until it is killed.
#[test]
fn child_that_commits_until_it_is_killed() {
    let Ok(data_dir) = std::env::var("PLAT_STORES_CHILD") else { return };
    let me = std::process::id();
    for round in 0u32.. {
        let mut store = open(Path::new(&data_dir));
        let container = format!("p{me}-{round}");
        let number = (me.wrapping_mul(31).wrapping_add(round * 7)) % 200 + 1;
        let v4 = format!("10.1.0.{number}");
        let v6 = format!("fd00::{number:x}");
        let batch = if read(&mut store, &key(&v4)).is_some() {
            vec![delete(&mut store, &key(&v4)), delete(&mut store, &key(&v6))]
        } else {
            vec![
                create(&v4, &container),
                create(&v6, &container),
                cursor(&mut store, 0, &v4),
                cursor(&mut store, 1, &v6),
            ]
        };
        store.commit(&batch, &[event()], Durability::Process).unwrap();
    }
}

#[test]
fn killed_processes_leave_whole_commits() {
    let folder = tempfile::tempdir().unwrap();
    let spawn = || {
        std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_that_commits_until_it_is_killed", "--nocapture"])
            .env("PLAT_STORES_CHILD", folder.path())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap()
    };
    let (mut repaired, mut held) = (0, 0);
    for round in 0..40u64 {
        let mut children: Vec<_> = (0..3).map(|_| spawn()).collect();
        std::thread::sleep(std::time::Duration::from_millis(30 + round * 3 % 17));
        for child in &mut children {
            child.kill().unwrap();
        }
        for child in &mut children {
            assert!(!child.wait().unwrap().success(), "it ran until it was killed");
        }
        let mut store = open(folder.path());
        let all = dump(&mut store);
        repaired += store.take_notices().iter().filter(|notice| notice.text.contains("was interrupted")).count();
        // Both families or none, of one owner.
        held = 0;
        for number in 1..=200 {
            let v4 = holder(&mut store, &format!("10.1.0.{number}"));
            let v6 = holder(&mut store, &format!("fd00::{number:x}"));
            assert_eq!(v4, v6, "address {number}");
            held += usize::from(v4.is_some());
        }
        assert_eq!(all.iter().filter(|(key, _)| key.contains("/owner/")).count(), held);
        // Fresh eyes see the same.
        drop(store);
        std::fs::remove_dir_all(folder.path().join(".plat")).unwrap();
        assert_eq!(dump(&mut open(folder.path())).len(), all.len());
    }
    println!("{repaired} notices of interrupted commits, {held} addresses held in the end");
    assert!(held > 0 && at("10.1.0.1") != at("10.1.0.2") && !boot().is_empty());
}

#[test]
fn a_death_while_the_journal_is_folded_loses_nothing() {
    quiet_deaths();
    for cut in 0.. {
        let folder = tempfile::tempdir().unwrap();
        let mut store = open(folder.path());
        commit(&mut store, &[create("10.2.0.0", "c0")]).unwrap();
        drop(store);
        // The first index was written above: what is seen here is of the folding, which a process's first commit does.
        let folding = Arc::new(AtomicUsize::new(0));
        let mut made = 1u32;
        let mut died = false;
        while made < 1500 && !died {
            let mut store = open(folder.path());
            let folding = Arc::clone(&folding);
            store.set_hook(Box::new(move |step| {
                let begun = folding.load(Ordering::Relaxed);
                if step == "write index" || begun > 0 {
                    folding.store(begun + 1, Ordering::Relaxed);
                    if begun == cut {
                        panic_any(Death);
                    }
                }
                None
            }));
            let address = format!("10.2.{}.{}", made / 256, made % 256);
            let batch = [create(&address, &format!("{made:064}"))];
            died = catch_unwind(AssertUnwindSafe(|| commit(&mut store, &batch).unwrap())).is_err();
            made += 1;
        }
        let mut store = open(folder.path());
        let held = store.count(&keys().addresses(plat_core::net::Family::V4), None, None, true).unwrap();
        assert!(held == u64::from(made) || (held == u64::from(made) - 1 && died), "step {cut}: {held} of {made}");
        let last = format!("{:064}", made - 1);
        let owner = Place::Owner { container: last, ifname: "eth0".into() };
        assert_eq!(read(&mut store, &keys().key(&owner)).is_some(), held == u64::from(made));
        if cut >= 7 {
            break;
        }
        assert!(died, "step {cut} of the folding was reached");
    }
}
