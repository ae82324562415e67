//! Every adapter passes the one suite.

mod common;

use common::{Mounted, Reopening, ReopeningSqlite, open, open_sqlite};
use plat_core::store::Store;
use plat_stores::conformance::{CASES, FREE_CASES, run};
use plat_stores::faulty::FaultyStore;
use plat_stores::files::{NoStore, WithHostFiles};
use plat_stores::memory::MemoryStore;
use plat_stores::recording::{RecordingStore, ReplayStore};

#[test]
fn memory_with_many_writes_a_commit() {
    run(CASES, &mut || Box::new(MemoryStore::new()));
    run(FREE_CASES, &mut || Box::new(MemoryStore::new()));
}

#[test]
fn memory_with_one_write_a_commit() {
    run(CASES, &mut || Box::new(MemoryStore::with_atomic_writes(1)));
    run(FREE_CASES, &mut || Box::new(MemoryStore::with_atomic_writes(1)));
}

#[test]
fn directory_in_one_opening() {
    let mut folders = Vec::new();
    run(CASES, &mut || {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path());
        folders.push(folder);
        Box::new(store)
    });
}

#[test]
fn directory_opened_for_each_call() {
    let mut folders = Vec::new();
    run(CASES, &mut || {
        let folder = tempfile::tempdir().unwrap();
        let store = Reopening { data_dir: folder.path().to_owned(), quiet: true };
        folders.push(folder);
        Box::new(store)
    });
}

#[test]
fn directory_on_other_file_systems() {
    for (kind, options) in
        [("ramfs", "mode=0700"), ("tmpfs", "mode=0700"), ("ext4", "-O ^has_journal -I 128"), ("ext4", "")]
    {
        let Some(mounted) = Mounted::new(kind, options) else { continue };
        let mut count = 0;
        run(CASES, &mut || {
            count += 1;
            let data_dir = mounted.path.join(count.to_string());
            // Without names for a boot or a time that is kept, the index is never trusted and yet right.
            Box::new(Reopening { data_dir, quiet: options != "-O ^has_journal -I 128" })
        });
    }
}

#[test]
fn directory_without_a_boot_is_never_trusted_and_right() {
    struct Bootless(std::path::PathBuf);
    impl Bootless {
        fn open(&self) -> plat_stores::directory::DirectoryStore {
            let options = plat_stores::directory::Options {
                boot_id: None,
                boot_time: None,
                ..plat_stores::directory::Options::system()
            };
            plat_stores::directory::DirectoryStore::new(self.0.clone(), common::NETWORK.into(), options)
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let mut store = Bootless(folder.path().to_owned()).open();
    common::commit(&mut store, &[common::create("10.0.0.1", "c1")]).unwrap();
    drop(store);
    let mut store = Bootless(folder.path().to_owned()).open();
    assert!(common::holder(&mut store, "10.0.0.1").is_some());
    let notices = store.take_notices();
    assert!(notices.iter().any(|notice| notice.text.ends_with("the current boot is not known")), "{notices:?}");
}

#[test]
fn sqlite_in_one_opening() {
    let mut folders = Vec::new();
    let mut make = || -> Box<dyn Store> {
        let folder = tempfile::tempdir().unwrap();
        let store = open_sqlite(folder.path());
        folders.push(folder);
        Box::new(store)
    };
    run(CASES, &mut make);
    run(FREE_CASES, &mut make);
}

#[test]
fn sqlite_opened_for_each_call() {
    let mut folders = Vec::new();
    let mut make = || -> Box<dyn Store> {
        let folder = tempfile::tempdir().unwrap();
        let store = ReopeningSqlite { folder: folder.path().to_owned(), calls: 0 };
        folders.push(folder);
        Box::new(store)
    };
    run(CASES, &mut make);
    run(FREE_CASES, &mut make);
}

#[test]
fn adapters_that_pass_calls_on() {
    run(CASES, &mut || Box::new(FaultyStore::new(MemoryStore::new())));
    run(FREE_CASES, &mut || Box::new(FaultyStore::new(MemoryStore::new())));
    run(CASES, &mut || Box::new(RecordingStore::new(MemoryStore::new())));
    run(FREE_CASES, &mut || Box::new(WithHostFiles::new(MemoryStore::new())));
    run(CASES, &mut || Box::new(WithHostFiles::new(MemoryStore::new())));
}

#[test]
fn a_replay_of_each_case_passes_it_too() {
    for case in CASES {
        let mut recording = RecordingStore::new(MemoryStore::with_atomic_writes(8));
        (case.check)(&mut recording);
        let mut replay = ReplayStore::new(recording.take_exchanges());
        (case.check)(&mut replay);
        assert_eq!(replay.left(), 0, "{}", case.name);
    }
}

#[test]
fn no_store_refuses_everything() {
    let mut store = NoStore;
    assert!(store.read(&["x".into()], true).is_err());
    assert!(store.scan("", None, 1, true, true).is_err());
    assert!(store.count("", None, None, true).is_err());
    assert!(common::commit(&mut store, &[]).is_err());
}
