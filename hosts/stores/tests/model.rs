//! The directory store answers as the store in memory does, whatever is done to it and between its calls.

mod common;

use common::{Mounted, Reopening, boot, cursor, delete, dump, key, keys, open, read};
use plat_core::network::{Place, Record};
use plat_core::store::{Action, Durability, Error, Expected, Store, Write};
use plat_stores::memory::MemoryStore;
use proptest::prelude::*;
use std::path::Path;

const ADDRESSES: [&str; 8] =
    ["10.0.0.1", "10.0.0.2", "10.0.0.10", "10.0.1.1", "fd00::1", "fd00::2", "fd00::1:0:0:1", "::1"];

/// One write, by number: which address or cursor, and what.
#[derive(Clone, Debug)]
enum Step {
    /// Make, replace or delete the record of an address, as its present state allows.
    Address { number: usize, container: usize, delete: bool, id_only: bool },
    /// Write or delete a cursor.
    Cursor { set: u32, number: usize, delete: bool },
    /// A write that is not as expected.
    Wrong { number: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..ADDRESSES.len(), 0..4usize, any::<bool>(), prop::bool::weighted(0.1)).prop_map(
            |(number, container, delete, id_only)| Step::Address { number, container, delete, id_only }
        ),
        2 => (0..3u32, 0..ADDRESSES.len(), prop::bool::weighted(0.2))
            .prop_map(|(set, number, delete)| Step::Cursor { set, number, delete }),
        1 => (0..ADDRESSES.len()).prop_map(|number| Step::Wrong { number }),
    ]
}

fn write_for(store: &mut dyn Store, step: &Step) -> Write {
    match step {
        Step::Address { number, container, delete: true, .. } if read(store, &key(ADDRESSES[*number])).is_some() => {
            let _ = container;
            delete(store, &key(ADDRESSES[*number]))
        }
        Step::Address { number, container, id_only, .. } => {
            let key = key(ADDRESSES[*number]);
            let expected = read(store, &key).map_or(Expected::Absent, |entry| Expected::At(entry.version));
            let mut record = Record::owned(&format!("c{container}"), "eth0", Some(boot()));
            if *id_only {
                record.ifname = None;
            }
            Write { key, expected, action: Action::Put(record.to_bytes()) }
        }
        Step::Cursor { set, delete: true, .. } if read(store, &keys().key(&Place::Cursor(*set))).is_some() => {
            delete(store, &keys().key(&Place::Cursor(*set)))
        }
        Step::Cursor { set, number, .. } => cursor(store, *set, ADDRESSES[*number]),
        Step::Wrong { number } => {
            let key = key(ADDRESSES[*number]);
            let expected = match read(store, &key) {
                Some(_) => Expected::Absent,
                None => Expected::At(plat_core::store::Version(vec![1])),
            };
            Write { key, expected, action: Action::Check }
        }
    }
}

/// Applies the same batch to a store; the keys of a conflict, or the length of the answer.
fn apply(store: &mut dyn Store, steps: &[Step]) -> Result<usize, Error> {
    let mut batch: Vec<Write> = Vec::new();
    for step in steps {
        let write = write_for(store, step);
        if !batch.iter().any(|other| other.key == write.key) {
            batch.push(write);
        }
    }
    store.commit(&batch, &[], Durability::Process).map(|versions| versions.len())
}

fn agree(directory: &mut dyn Store, batches: &[Vec<Step>]) -> Result<(), TestCaseError> {
    let mut memory = MemoryStore::with_atomic_writes(directory.atomic_writes());
    for batch in batches {
        prop_assert_eq!(apply(directory, batch), apply(&mut memory, batch));
        prop_assert_eq!(dump(directory), dump(&mut memory));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn in_one_opening(batches in prop::collection::vec(prop::collection::vec(step(), 1..5), 1..25)) {
        let folder = tempfile::tempdir().unwrap();
        agree(&mut open(folder.path()), &batches)?;
    }

    #[test]
    fn opened_for_each_call(batches in prop::collection::vec(prop::collection::vec(step(), 1..5), 1..8)) {
        let folder = tempfile::tempdir().unwrap();
        agree(&mut Reopening { data_dir: folder.path().to_owned(), quiet: true }, &batches)?;
    }

    /// Any byte of the index or the journal flipped, or any tail of them cut off, or a file gone: the same answers.
    #[test]
    fn with_damaged_index_and_journal(
        batches in prop::collection::vec(prop::collection::vec(step(), 1..4), 2..8),
        damages in prop::collection::vec((any::<prop::sample::Index>(), 0..4u8, any::<bool>(), 1..=255u8), 1..6),
        rebuild in 1..4usize,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut memory = MemoryStore::new();
        for (number, batch) in batches.iter().enumerate() {
            if number == rebuild {
                // So that the index at rest holds something too.
                std::fs::write(folder.path().join("net/last_reserved_ip.9"), "").unwrap();
                std::fs::remove_file(folder.path().join("net/last_reserved_ip.9")).unwrap();
            }
            prop_assert_eq!(apply(&mut open(folder.path()), batch), apply(&mut memory, batch));
        }
        let wanted = dump(&mut memory);
        for (place, kind, journal, mask) in damages {
            let path = folder.path().join(".plat/net").join(if journal { "journal" } else { "index" });
            let Ok(mut bytes) = std::fs::read(&path) else { continue };
            if bytes.is_empty() {
                continue;
            }
            let at = place.index(bytes.len());
            match kind {
                0 | 1 => {
                    bytes[at] ^= mask;
                    std::fs::write(&path, bytes).unwrap();
                }
                2 => {
                    bytes.truncate(at);
                    std::fs::write(&path, bytes).unwrap();
                }
                _ => std::fs::remove_file(&path).unwrap(),
            }
            prop_assert_eq!(&dump(&mut open(folder.path())), &wanted);
        }
        // And the versions still hold commits to the truth.
        let last = vec![Step::Address { number: 0, container: 3, delete: false, id_only: false }];
        prop_assert_eq!(apply(&mut open(folder.path()), &last), apply(&mut memory, &last));
    }
}

/// What somebody else does to the directory between our calls, without our index knowing.
#[derive(Clone, Debug)]
enum Foreign {
    Create(usize, usize),
    Remove(usize),
    Rewrite(usize, usize),
    Replace(usize, usize),
    Touch,
}

fn foreign() -> impl Strategy<Value = Foreign> {
    prop_oneof![
        (0..ADDRESSES.len(), 0..4usize).prop_map(|(number, container)| Foreign::Create(number, container)),
        (0..ADDRESSES.len()).prop_map(Foreign::Remove),
        (0..ADDRESSES.len(), 0..4usize).prop_map(|(number, container)| Foreign::Rewrite(number, container)),
        (0..ADDRESSES.len(), 0..4usize).prop_map(|(number, container)| Foreign::Replace(number, container)),
        Just(Foreign::Touch),
    ]
}

/// Does it to the directory, and to the store in memory what is to be seen of it.
fn disturb(data_dir: &Path, memory: &mut MemoryStore, what: &Foreign) {
    let folder = data_dir.join("net");
    let (number, container) = match what {
        Foreign::Create(number, container)
        | Foreign::Rewrite(number, container)
        | Foreign::Replace(number, container) => (*number, Some(*container)),
        Foreign::Remove(number) => (*number, None),
        Foreign::Touch => {
            std::fs::write(folder.join("lost"), "x").unwrap();
            std::fs::remove_file(folder.join("lost")).unwrap();
            return;
        }
    };
    let path = folder.join(ADDRESSES[number]);
    let content = container.map(|container| format!("c{container}\r\neth0"));
    let held = path.exists();
    match (what, content) {
        (Foreign::Create(..), Some(content)) if !held => std::fs::write(&path, content).unwrap(),
        (Foreign::Rewrite(..), Some(content)) if held => std::fs::write(&path, content).unwrap(),
        (Foreign::Replace(..), Some(content)) if held => {
            std::fs::write(folder.join("temporary"), content).unwrap();
            std::fs::rename(folder.join("temporary"), &path).unwrap();
        }
        (Foreign::Remove(_), _) if held => std::fs::remove_file(&path).unwrap(),
        _ => return,
    }
    let step = Step::Address { number, container: container.unwrap_or(0), delete: container.is_none(), id_only: false };
    apply(memory, &[step]).unwrap();
}

fn notices_all_changes(data_dir: &Path, rounds: &[(Vec<Step>, Vec<Foreign>)]) -> Result<(), TestCaseError> {
    let mut memory = MemoryStore::new();
    for (batch, foreign) in rounds {
        prop_assert_eq!(apply(&mut open(data_dir), batch), apply(&mut memory, batch));
        for what in foreign {
            disturb(data_dir, &mut memory, what);
        }
        let mut store = open(data_dir);
        // A file that was rewritten in place is found out when it is asked for, before anything else is believed.
        for address in ADDRESSES {
            prop_assert_eq!(
                read(&mut store, &key(address)).map(|entry| entry.value),
                read(&mut memory, &key(address)).map(|entry| entry.value),
                "{} after {:?}",
                address,
                foreign
            );
        }
        prop_assert_eq!(dump(&mut store), dump(&mut memory));
    }
    Ok(())
}

fn check_foreign_changes(data_dir: &Path, cases: u32) {
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let rounds =
        prop::collection::vec((prop::collection::vec(step(), 1..4), prop::collection::vec(foreign(), 0..4)), 1..8);
    let count = std::sync::atomic::AtomicUsize::new(0);
    runner
        .run(&rounds, |rounds| {
            let count = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let data_dir = data_dir.join(count.to_string());
            let result = notices_all_changes(&data_dir, &rounds);
            std::fs::remove_dir_all(&data_dir).unwrap();
            result
        })
        .unwrap();
}

#[test]
fn changes_by_others_are_noticed() {
    let folder = tempfile::tempdir().unwrap();
    check_foreign_changes(folder.path(), 40);
}

#[test]
fn changes_by_others_are_noticed_on_other_file_systems() {
    for (kind, options) in
        [("ramfs", "mode=0700"), ("tmpfs", "mode=0700"), ("ext4", ""), ("ext4", "-O ^has_journal -I 128")]
    {
        let Some(mounted) = Mounted::new(kind, options) else { continue };
        check_foreign_changes(&mounted.path, 40);
    }
}
