//! Random call sequences, run on two stores at once: one is used by the original alone, on the other our plugin and
//! the original take turns. After every call the replies and the stores are equal, but for the deviations that
//! docs/differences.md lists.
//!
//! `PLAT_SEED` changes the seed, `PLAT_SEQUENCES` the number of sequences.

mod compare;
mod deviations;
mod generate;
mod sequence;
mod shrink;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use compare::{Counts, Failure, Known, Pair, run};
use generate::Limits;
use plat_tests::peers::{self, Installed};
use plat_tests::{machine, need, random};
use sequence::Step;

/// The seed unless `PLAT_SEED` says otherwise.
const SEED: u64 = 20_261;

/// Sequences against each original.
const SEQUENCES: usize = 2_000;

/// Sequences of the tests that check the rig itself.
const SEQUENCES_OF_RIG: usize = 200;

/// Worker threads.
const WORKERS: usize = 2;

/// Different failures that are shrunk and shown.
const FAILURES_SHOWN_MAX: usize = 12;

#[test]
fn ours_against_the_newest() {
    let newest = need!(peers::host_local_newest());
    let ours = Installed::new(&peers::plat_ipam(), "host-local").expect("a folder for the plugin");
    let pair = Pair { subject: ours.path().to_owned(), reference: newest, known: Known::Ours };
    let found = compare_all(&pair, SEQUENCES, 0);
    found.assert_equal();
    found.assert_met(deviations::OURS);
}

#[test]
fn ours_against_debian() {
    let debian = need!(peers::host_local_debian());
    let ours = Installed::new(&peers::plat_ipam(), "host-local").expect("a folder for the plugin");
    let pair = Pair { subject: ours.path().to_owned(), reference: debian, known: Known::OursAndDebian };
    compare_all(&pair, SEQUENCES, 1 << 32).assert_equal();
}

#[test]
fn the_rig_finds_nothing_between_equals() {
    let newest = need!(peers::host_local_newest());
    let pair = Pair { subject: newest.clone(), reference: newest, known: Known::Nothing };
    let found = compare_all(&pair, SEQUENCES_OF_RIG, 2 << 32);
    found.assert_equal();
    found.assert_met(&[]);
}

#[test]
fn the_rig_knows_how_the_originals_differ() {
    let newest = need!(peers::host_local_newest());
    let debian = need!(peers::host_local_debian());
    let pair = Pair { subject: newest, reference: debian, known: Known::Debian };
    let found = compare_all(&pair, SEQUENCES_OF_RIG * 2, 3 << 32);
    found.assert_equal();
    found.assert_listed(deviations::DEBIAN);
}

#[test]
fn the_rig_finds_a_difference_and_shrinks_it() {
    let newest = need!(peers::host_local_newest());
    let debian = need!(peers::host_local_debian());
    let pair = Pair { subject: debian, reference: newest, known: Known::Nothing };
    let found = compare_all(&pair, 20, 4 << 32);
    let smallest = found.failures.iter().map(|(steps, _)| steps.len()).min().expect("a difference");
    assert!(smallest <= 2, "shrinking left {smallest} steps");
}

#[test]
fn every_deviation_is_documented() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/differences.md");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    for id in deviations::OURS.iter().chain(deviations::DEBIAN) {
        assert!(text.contains(&format!("`{id}`")), "docs/differences.md does not speak of `{id}`");
    }
}

/// What the comparison of two plugins found.
struct Found {
    counts: Counts,
    /// Shrunk sequences with what differs, one for each signature.
    failures: Vec<(Vec<Step>, Failure)>,
    seed: u64,
}

fn compare_all(pair: &Pair, sequences: usize, offset: u64) -> Found {
    let seed = random::seed(SEED);
    let sequences = match std::env::var("PLAT_SEQUENCES") {
        Ok(text) => text.parse().expect("PLAT_SEQUENCES is a number"),
        Err(_) => sequences,
    };
    let next = AtomicUsize::new(0);
    let counts = Mutex::new(Counts::default());
    let failures: Mutex<BTreeMap<String, (Vec<Step>, Failure)>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                let limits = Limits { default_folder: isolate(), own_netns: Path::new("/proc/self/ns/net").exists() };
                let folder = tempfile::Builder::new().prefix("plat-differential").tempdir().expect("a folder");
                let mut own = Counts::default();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= sequences {
                        break;
                    }
                    let steps = generate::sequence(seed, offset + number as u64, limits);
                    let Err(failure) = run(pair, &steps, folder.path(), &mut own) else { continue };
                    let seen = failures.lock().expect("no panic");
                    if seen.len() >= FAILURES_SHOWN_MAX || seen.contains_key(&failure.signature) {
                        continue;
                    }
                    drop(seen);
                    let shrunk = shrunk(pair, steps, &failure.signature, folder.path());
                    if let Err(failure) = run(pair, &shrunk, folder.path(), &mut Counts::default()) {
                        failures.lock().expect("no panic").insert(failure.signature.clone(), (shrunk, failure));
                    }
                }
                let mut all = counts.lock().expect("no panic");
                all.calls += own.calls;
                for (id, count) in own.known {
                    *all.known.entry(id).or_default() += count;
                }
            });
        }
    });
    Found {
        counts: counts.into_inner().expect("no panic"),
        failures: failures.into_inner().expect("no panic").into_values().collect(),
        seed,
    }
}

fn shrunk(pair: &Pair, mut steps: Vec<Step>, signature: &str, folder: &Path) -> Vec<Step> {
    let fails = |steps: &[Step]| {
        run(pair, steps, folder, &mut Counts::default()).is_err_and(|failure| failure.signature == signature)
    };
    steps = shrink::shrink(steps, fails);
    steps
}

/// Gives this thread's children an empty /var/lib of their own, where the default dataDir is. Only root can.
fn isolate() -> bool {
    peers::root().is_ok()
        && machine::private_mounts()
            .and_then(|()| machine::mount_tmpfs(Path::new("/var/lib"), ""))
            .map(machine::Mounted::keep)
            .is_ok()
}

impl Found {
    fn assert_equal(&self) {
        eprintln!("{} calls, known deviations: {:?}", self.counts.calls, self.counts.known);
        if self.failures.is_empty() {
            return;
        }
        let mut text = String::new();
        for (steps, failure) in &self.failures {
            text.push_str(&format!("\n=== {}\n", failure.signature));
            for (number, step) in steps.iter().enumerate() {
                text.push_str(&format!("{number}: {step}\n"));
            }
            text.push_str(&failure.report);
        }
        panic!("{} differences, PLAT_SEED={}{text}", self.failures.len(), self.seed);
    }

    /// Nothing but the list was met. So few sequences do not meet all of it.
    fn assert_listed(&self, ids: &[&str]) {
        let met: Vec<_> = self.counts.known.keys().collect();
        assert!(met.iter().all(|id| ids.contains(id)), "deviations met: {met:?}; on the list: {ids:?}");
    }

    /// The list has no dead entry, and nothing else was met.
    fn assert_met(&self, ids: &[&str]) {
        if self.seed != SEED || std::env::var_os("PLAT_SEQUENCES").is_some() {
            return;
        }
        let met: Vec<_> = self.counts.known.keys().copied().collect();
        let mut listed = ids.to_vec();
        listed.sort_unstable();
        assert_eq!(met, listed, "deviations met, and deviations on the list");
    }
}
