//! The suite that every adapter passes: the promises of `wit/store.wit` and `docs/formats.md`, one case each.
//!
//! A case gets an empty store and panics with what was wrong. The cases use the keys of one network, so that stores
//! that keep nothing else pass them too; [`FREE_CASES`] are for stores that take any key.

use plat_core::clock::Instant;
use plat_core::ipam::{Attributes, Holder};
use plat_core::net::{Address, Family, Prefix};
use plat_core::network::{Keys, Place, Record, parse_holdings};
use plat_core::objects::Block;
use plat_core::objects::keys::{
    Empty, Room, block_key, blocks_prefix, empties_prefix, empty_key, owned_key, owned_prefix, room_key, rooms_prefix,
};
use plat_core::store::{
    Action, Durability, Entry, Error, Expected, KEY_BYTES_MAX, READ_KEYS_MAX, Store, Version, Write,
};
use std::collections::BTreeMap;

/// The network whose keys the cases use.
pub const NETWORK: &str = "net";

/// One promise.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The promise, in words.
    pub name: &'static str,
    /// Checks it on an empty store.
    pub check: fn(&mut dyn Store),
}

/// What every adapter promises.
pub const CASES: &[Case] = &[
    Case { name: "absent keys are read as none, in the order asked", check: absent },
    Case { name: "what is put is read, with the version reported", check: put_and_read },
    Case { name: "a write whose key is not as expected conflicts and does nothing", check: conflicts },
    Case { name: "versions never repeat for a key", check: versions },
    Case { name: "a check changes nothing and can fail a commit", check: checks },
    Case { name: "a commit is applied whole or not at all", check: all_or_nothing },
    Case { name: "a commit that is too large or names a key twice is refused", check: refused_batches },
    Case { name: "a scan gives keys in byte order, in pages", check: scans },
    Case { name: "a count agrees with a scan", check: counts },
    Case { name: "owners are derived from the records", check: owners },
    Case { name: "the version of an owner never repeats", check: owner_versions },
    Case { name: "boots are derived from the records", check: boots },
    Case { name: "cursors are plain values", check: cursors },
    Case { name: "what is not written by the core is refused", check: refused_writes },
    Case { name: "thousands of addresses are paged and counted", check: many },
];

/// What adapters promise that take any key.
pub const FREE_CASES: &[Case] = &[
    Case { name: "any key and any bytes are kept", check: free_keys },
    Case { name: "prefixes end where they should", check: free_prefixes },
    Case { name: "the indexes of a block are derived from it", check: block_indexes },
    Case { name: "the version of an index never repeats", check: index_versions },
    Case { name: "the indexes of blocks are not written", check: refused_indexes },
    Case { name: "blocks are paged and counted in the order of their addresses", check: many_blocks },
];

/// Runs cases, each on a store of its own.
///
/// # Panics
/// If one fails; the panic names it.
pub fn run(cases: &[Case], make: &mut dyn FnMut() -> Box<dyn Store>) {
    for case in cases {
        let mut store = make();
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (case.check)(&mut *store)));
        if let Err(panic) = failed {
            eprintln!("conformance: failed: {}", case.name);
            std::panic::resume_unwind(panic);
        }
    }
}

fn keys() -> Keys {
    Keys::new(NETWORK)
}

fn at(text: &str) -> Place {
    Place::Address(Address::parse(text).expect("a test's address"))
}

fn key(text: &str) -> String {
    keys().key(&at(text))
}

fn owner_key(container: &str, ifname: &str) -> String {
    keys().key(&Place::Owner { container: container.into(), ifname: ifname.into() })
}

fn record(container: &str) -> Vec<u8> {
    Record::owned(container, "eth0", Some("boot-1".into())).to_bytes()
}

fn put(key: impl Into<String>, expected: Expected, value: impl Into<Vec<u8>>) -> Write {
    Write { key: key.into(), expected, action: Action::Put(value.into()) }
}

fn create(address: &str, container: &str) -> Write {
    put(key(address), Expected::Absent, record(container))
}

fn delete(entry: &Entry) -> Write {
    Write { key: entry.key.clone(), expected: Expected::At(entry.version.clone()), action: Action::Delete }
}

fn check(key: impl Into<String>, expected: Expected) -> Write {
    Write { key: key.into(), expected, action: Action::Check }
}

fn commit(store: &mut dyn Store, batch: &[Write]) -> Result<Vec<Version>, Error> {
    store.commit(batch, &[], Durability::Process)
}

/// Commits all writes, in as few commits as the store allows.
fn commit_all(store: &mut dyn Store, batch: &[Write]) -> Vec<Version> {
    let size = store.atomic_writes() as usize;
    batch.chunks(size).flat_map(|part| commit(store, part).expect("these writes do not conflict")).collect()
}

fn read(store: &mut dyn Store, key: &str) -> Option<Entry> {
    let mut found = store.read(&[key.to_owned()], true).expect("reading works");
    assert_eq!(found.len(), 1, "one key, one answer");
    found.remove(0)
}

fn entry(store: &mut dyn Store, key: &str) -> Entry {
    let entry = read(store, key).unwrap_or_else(|| panic!("{key} is there"));
    assert_eq!(entry.key, key);
    entry
}

/// All entries under a prefix, read page by page.
fn scan_all(store: &mut dyn Store, prefix: &str, from: Option<&str>, limit: u32, keys_only: bool) -> Vec<Entry> {
    let mut all = Vec::new();
    let mut from = from.map(str::to_owned);
    for _ in 0..100_000 {
        let page = store.scan(prefix, from.as_deref(), limit, keys_only, true).expect("scanning works");
        assert!(page.entries.len() <= limit as usize, "a page holds at most what was asked");
        if let Some(next) = &page.next {
            assert!(page.entries.iter().all(|entry| entry.key < *next), "the next page begins after this one");
        }
        all.extend(page.entries);
        match page.next {
            Some(next) => from = Some(next),
            None => return all,
        }
    }
    panic!("a scan does not end");
}

fn names(entries: &[Entry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.key.as_str()).collect()
}

fn conflict_keys(result: Result<Vec<Version>, Error>) -> Vec<String> {
    match result {
        Err(Error::Conflict(keys)) => keys,
        other => panic!("a conflict was expected, not {other:?}"),
    }
}

fn absent(store: &mut dyn Store) {
    let wanted = [key("10.0.0.1"), owner_key("c", "eth0"), keys().key(&Place::Cursor(0))];
    assert_eq!(store.read(&wanted, true), Ok(vec![None, None, None]));
    assert_eq!(store.read(&[], true), Ok(vec![]));
    commit(store, &[create("10.0.0.1", "c")]).unwrap();
    let found = store.read(&[key("10.0.0.2"), key("10.0.0.1"), key("10.0.0.1")], false).unwrap();
    assert_eq!(found.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true, true]);
    let full: Vec<String> = (0..READ_KEYS_MAX).map(|last| key(&format!("10.0.0.{last}"))).collect();
    assert_eq!(store.read(&full, true).unwrap().len(), READ_KEYS_MAX);
    let over: Vec<String> = (0..=READ_KEYS_MAX).map(|last| key(&format!("10.0.1.{}", last % 256))).collect();
    assert!(store.read(&over, true).is_err(), "more keys than a read may name");
    for unknown in ["address/v4/0A000001", "address/v4/0a", "nothing", "cursor/01"] {
        assert_eq!(read(store, &format!("{}{unknown}", keys().prefix())), None, "{unknown}");
    }
}

fn put_and_read(store: &mut dyn Store) {
    for (address, value) in [
        ("10.0.0.1", Record::owned("c1", "eth0", Some("b".into()))),
        ("255.255.255.255", Record::owned("A.b_c-9", "e%h ä".replace(' ', "").as_str(), Some("b".into()))),
        ("::", Record { container: Some("old".into()), ifname: None, boot: Some("b".into()), foreign: None }),
        ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Record::owned("c2", "veth0", Some("b".into()))),
    ] {
        let versions = commit(store, &[put(key(address), Expected::Absent, value.to_bytes())]).unwrap();
        let entry = entry(store, &key(address));
        assert_eq!(Record::parse(&entry.value), Some(value));
        assert_eq!(versions, std::slice::from_ref(&entry.version), "the version reported is the one that is read");
        assert!(!entry.version.0.is_empty() && entry.version.0.len() <= plat_core::store::VERSION_BYTES_MAX);
    }
}

fn conflicts(store: &mut dyn Store) {
    let first = commit(store, &[create("10.0.0.1", "c1")]).unwrap().remove(0);
    assert_eq!(conflict_keys(commit(store, &[create("10.0.0.1", "c2")])), [key("10.0.0.1")]);
    let second = commit(store, &[put(key("10.0.0.1"), Expected::At(first.clone()), record("c3"))]).unwrap().remove(0);
    assert_ne!(first, second);
    let stale = [put(key("10.0.0.1"), Expected::At(first.clone()), record("c4"))];
    assert_eq!(conflict_keys(commit(store, &stale)), [key("10.0.0.1")]);
    let gone = [put(key("10.0.0.9"), Expected::At(first), record("c4"))];
    assert_eq!(conflict_keys(commit(store, &gone)), [key("10.0.0.9")]);
    assert_eq!(entry(store, &key("10.0.0.1")).value, record("c3"));
    assert_eq!(read(store, &key("10.0.0.9")), None);
}

fn versions(store: &mut dyn Store) {
    let mut seen = Vec::new();
    for round in 0..5 {
        let made = commit(store, &[create("10.0.0.1", "c1")]).unwrap().remove(0);
        let again = commit(store, &[put(key("10.0.0.1"), Expected::At(made.clone()), record("c1"))]).unwrap().remove(0);
        for version in [made, again.clone()] {
            assert!(!seen.contains(&version), "round {round}: the same value again has another version");
            seen.push(version);
        }
        let last = entry(store, &key("10.0.0.1"));
        assert_eq!(last.version, again);
        assert_eq!(commit(store, &[delete(&last)]), Ok(vec![Version::default()]));
        assert_eq!(read(store, &key("10.0.0.1")), None);
        assert_eq!(conflict_keys(commit(store, &[delete(&last)])), [key("10.0.0.1")]);
    }
}

fn checks(store: &mut dyn Store) {
    let version = commit(store, &[create("10.0.0.1", "c1")]).unwrap().remove(0);
    assert_eq!(
        commit(store, &[check(key("10.0.0.1"), Expected::At(version.clone()))]),
        Ok(vec![version.clone()]),
        "the version of what is checked stays"
    );
    assert_eq!(commit(store, &[check(key("10.0.0.2"), Expected::Absent)]), Ok(vec![Version::default()]));
    conflict_keys(commit(store, &[check(key("10.0.0.1"), Expected::Absent)]));
    conflict_keys(commit(store, &[check(key("10.0.0.2"), Expected::At(version.clone()))]));
    assert_eq!(entry(store, &key("10.0.0.1")).version, version);
    assert_eq!(commit(store, &[]), Ok(vec![]));
    if store.atomic_writes() >= 2 {
        let batch = [check(key("10.0.0.2"), Expected::Absent), create("10.0.0.3", "c3")];
        assert_eq!(commit(store, &batch).unwrap().len(), 2);
        let batch = [check(key("10.0.0.3"), Expected::Absent), create("10.0.0.4", "c4")];
        assert_eq!(conflict_keys(commit(store, &batch)), [key("10.0.0.3")]);
        assert_eq!(read(store, &key("10.0.0.4")), None);
    }
}

fn all_or_nothing(store: &mut dyn Store) {
    commit(store, &[create("10.0.0.2", "c2")]).unwrap();
    let batch = [create("10.0.0.1", "c1"), create("10.0.0.2", "c1"), create("10.0.0.3", "c1")];
    if store.atomic_writes() < 3 {
        assert_eq!(commit(store, &batch), Err(Error::TooLarge));
    } else {
        assert_eq!(conflict_keys(commit(store, &batch)), [key("10.0.0.2")]);
        let second = entry(store, &key("10.0.0.2"));
        let good = [create("10.0.0.1", "c1"), delete(&second), create("10.0.0.3", "c1")];
        let versions = commit(store, &good).unwrap();
        assert_eq!(versions[0], entry(store, &key("10.0.0.1")).version);
        assert_eq!(versions[1], Version::default());
        assert_eq!(versions[2], entry(store, &key("10.0.0.3")).version);
        assert_eq!(read(store, &key("10.0.0.2")), None);
        return;
    }
    assert_eq!(read(store, &key("10.0.0.1")), None);
    assert_eq!(read(store, &key("10.0.0.3")), None);
    assert_eq!(entry(store, &key("10.0.0.2")).value, record("c2"));
}

fn refused_batches(store: &mut dyn Store) {
    let size = store.atomic_writes();
    if size < 100_000 {
        let batch: Vec<Write> = (0..=u128::from(size))
            .map(|bits| {
                let place = Place::Address(Address::new(Family::V4, bits).expect("small"));
                put(keys().key(&place), Expected::Absent, record("c"))
            })
            .collect();
        assert_eq!(commit(store, &batch), Err(Error::TooLarge));
        assert_eq!(read(store, &batch[0].key), None);
    }
    if size >= 2 {
        let twice = [create("10.0.0.1", "c1"), check(key("10.0.0.1"), Expected::Absent)];
        assert!(matches!(commit(store, &twice), Err(Error::Denied(_))));
        assert_eq!(read(store, &key("10.0.0.1")), None);
    }
    let long = "x".repeat(KEY_BYTES_MAX);
    let batch = [put(format!("{}owner/{long}/eth0", keys().prefix()), Expected::Absent, "")];
    assert!(matches!(commit(store, &batch), Err(Error::Denied(_))));
}

fn scans(store: &mut dyn Store) {
    let addresses = ["9.255.255.255", "10.0.0.1", "10.0.0.9", "10.0.0.10", "10.0.1.0", "255.0.0.1"];
    let others = ["::1", "fd00::1", "fd00::1:0", "fe80::"];
    // Not in order, so that the store has to put them into it.
    let mixed: Vec<Write> = others.iter().chain(addresses.iter().rev()).map(|one| create(one, "c")).collect();
    commit_all(store, &mixed);
    let v4: Vec<String> = addresses.iter().map(|address| key(address)).collect();
    let v6: Vec<String> = others.iter().map(|address| key(address)).collect();
    for limit in [1, 2, 3, 100] {
        for keys_only in [false, true] {
            let found = scan_all(store, &keys().addresses(Family::V4), None, limit, keys_only);
            assert_eq!(names(&found), v4);
            for one in &found {
                assert_eq!(one.value, if keys_only { Vec::new() } else { record("c") });
                assert_eq!(one.version, entry(store, &one.key).version);
            }
            let found = scan_all(store, &keys().addresses(Family::V6), None, limit, keys_only);
            assert_eq!(names(&found), v6);
        }
        let both = scan_all(store, &format!("{}address/", keys().prefix()), None, limit, true);
        assert_eq!(names(&both), [v4.clone(), v6.clone()].concat());
    }
    let prefix = keys().addresses(Family::V4);
    let from = |store: &mut dyn Store, from: &str| names(&scan_all(store, &prefix, Some(from), 9, true)).len();
    assert_eq!(from(store, &v4[2]), 4, "from is inclusive");
    assert_eq!(from(store, &format!("{}!", v4[2])), 3);
    assert_eq!(from(store, ""), 6, "a from before the prefix is the prefix");
    assert_eq!(from(store, "zzz"), 0);
    assert_eq!(from(store, &v6[0]), 0);
    let page = store.scan(&prefix, None, 6, true, true).unwrap();
    assert_eq!(page.entries.len(), 6);
    let narrow = |store: &mut dyn Store, digits: &str| {
        names(&scan_all(store, &format!("{prefix}{digits}"), None, 9, true)).len()
    };
    assert_eq!(narrow(store, "0a0000"), 3);
    assert_eq!(narrow(store, "0a000001"), 1);
    assert_eq!(narrow(store, "0b"), 0);
    assert_eq!(narrow(store, "zz"), 0);
}

fn counts(store: &mut dyn Store) {
    let mut batch: Vec<Write> =
        (0..40).map(|last| create(&format!("10.0.0.{}", last * 3), &format!("c{last}"))).collect();
    batch.extend((0..10).map(|last| create(&format!("fd00::{last}"), &format!("c{last}"))));
    batch.push(put(keys().key(&Place::Cursor(0)), Expected::Absent, "10.0.0.1"));
    batch.push(put(keys().key(&Place::Cursor(10)), Expected::Absent, "10.0.0.1"));
    batch.push(put(keys().key(&Place::Cursor(2)), Expected::Absent, "10.0.0.1"));
    commit_all(store, &batch);
    let gone = entry(store, &key("10.0.0.3"));
    commit(store, &[delete(&gone)]).unwrap();

    let all: Vec<String> =
        names(&scan_all(store, keys().prefix(), None, 7, true)).into_iter().map(str::to_owned).collect();
    assert_eq!(all.len(), 49 + 49 + 3 + 40, "addresses, boots, cursors, owners");
    assert!(all.windows(2).all(|pair| pair[0] < pair[1]), "in order, none twice");
    let mut bounds: Vec<Option<String>> = all.iter().step_by(9).cloned().map(Some).collect();
    bounds.extend([
        None,
        Some(String::new()),
        Some("zzz".to_owned()),
        Some(format!("{}!", key("10.0.0.12"))),
        Some(format!("{}owner/c1", keys().prefix())),
        Some(format!("{}owner/c1/", keys().prefix())),
        Some(format!("{}boot/boot-1/v5", keys().prefix())),
    ]);
    for prefix in
        ["", "address/", "address/v4/", "address/v6/", "address/v4/0a00000", "boot/", "cursor/", "owner/", "stray/"]
    {
        let prefix = format!("{}{prefix}", keys().prefix());
        for from in &bounds {
            let until_of = |until: &Option<String>| until.clone();
            for until in &bounds {
                let wanted = all
                    .iter()
                    .filter(|key| key.starts_with(&prefix))
                    .filter(|key| from.as_ref().is_none_or(|from| *key >= from))
                    .filter(|key| until.as_ref().is_none_or(|until| *key < until))
                    .count();
                let counted = store.count(&prefix, from.as_deref(), until_of(until).as_deref(), true);
                assert_eq!(counted, Ok(wanted as u64), "{prefix} from {from:?} until {until:?}");
            }
            let wanted: Vec<&String> = all
                .iter()
                .filter(|key| key.starts_with(&prefix) && from.as_ref().is_none_or(|from| *key >= from))
                .collect();
            let found = scan_all(store, &prefix, from.as_deref(), 1000, true);
            assert_eq!(names(&found), wanted, "{prefix} from {from:?}");
        }
    }
}

fn holdings(store: &mut dyn Store, container: &str, ifname: &str) -> Vec<Place> {
    read(store, &owner_key(container, ifname)).map_or_else(Vec::new, |entry| {
        let text = String::from_utf8(entry.value.clone()).expect("JSON is UTF-8");
        let listed: Vec<String> = serde_json::from_str(&text).expect("a list of texts");
        assert!(listed.windows(2).all(|pair| pair[0] < pair[1]), "in byte order: {text}");
        parse_holdings(&entry.value).expect("key endings")
    })
}

fn owners(store: &mut dyn Store) {
    commit_all(store, &[create("fd00::1", "c1"), create("10.0.0.2", "c1"), create("10.0.0.3", "c2")]);
    let old = Record { container: Some("c1".into()), ifname: None, boot: None, foreign: None };
    commit(store, &[put(key("10.0.0.4"), Expected::Absent, old.to_bytes())]).unwrap();
    assert_eq!(holdings(store, "c1", "eth0"), [at("10.0.0.2"), at("fd00::1")]);
    assert_eq!(holdings(store, "c1", ""), [at("10.0.0.4")]);
    assert_eq!(holdings(store, "c2", "eth0"), [at("10.0.0.3")]);
    assert_eq!(holdings(store, "c2", "eth1"), []);
    assert_eq!(holdings(store, "c", "eth0"), []);
    let all = scan_all(store, &format!("{}owner/", keys().prefix()), None, 2, false);
    assert_eq!(names(&all), [owner_key("c1", ""), owner_key("c1", "eth0"), owner_key("c2", "eth0")]);
    for one in &all {
        assert_eq!(read(store, &one.key).as_ref(), Some(one));
    }

    // An address that changes hands.
    let before = entry(store, &owner_key("c1", "eth0"));
    let address = entry(store, &key("10.0.0.3"));
    commit(store, &[put(key("10.0.0.3"), Expected::At(address.version), record("c1"))]).unwrap();
    assert_eq!(holdings(store, "c1", "eth0"), [at("10.0.0.2"), at("10.0.0.3"), at("fd00::1")]);
    assert_eq!(holdings(store, "c2", "eth0"), []);
    let after = entry(store, &owner_key("c1", "eth0"));
    assert_ne!(before.version, after.version);
    commit(store, &[check(owner_key("c1", "eth0"), Expected::At(after.version.clone()))]).unwrap();
    conflict_keys(commit(store, &[check(owner_key("c1", "eth0"), Expected::At(before.version))]));
    conflict_keys(commit(store, &[check(owner_key("c2", "eth0"), Expected::At(after.version))]));
    commit(store, &[check(owner_key("c2", "eth0"), Expected::Absent)]).unwrap();

    for address in ["10.0.0.2", "10.0.0.3", "fd00::1"] {
        let held = entry(store, &key(address));
        commit(store, &[delete(&held)]).unwrap();
    }
    assert_eq!(read(store, &owner_key("c1", "eth0")), None);
}

fn owner_versions(store: &mut dyn Store) {
    let owner = owner_key("c1", "eth0");
    let mut seen: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    let mut step = 0;
    let mut note = |store: &mut dyn Store| {
        let version = entry(store, &owner).version.0;
        step += 1;
        assert_eq!(seen.insert(version, step), None, "step {step} has a version of its own");
    };
    commit(store, &[create("10.0.0.1", "c1")]).unwrap();
    note(store);
    for _ in 0..3 {
        commit(store, &[create("10.0.0.2", "c1")]).unwrap();
        note(store);
        // Back to what it was.
        let second = entry(store, &key("10.0.0.2"));
        commit(store, &[delete(&second)]).unwrap();
        note(store);
    }
    let first = entry(store, &key("10.0.0.1"));
    commit(store, &[delete(&first)]).unwrap();
    commit(store, &[create("10.0.0.1", "c1")]).unwrap();
    note(store);
}

fn boots(store: &mut dyn Store) {
    let of = |container: &str, boot: &str| Record::owned(container, "eth0", Some(boot.into())).to_bytes();
    let boot = |boot: &str, address: &str| {
        let address = Address::parse(address).expect("a test's address");
        keys().key(&Place::Boot { boot: boot.into(), address })
    };
    commit_all(
        store,
        &[
            put(key("fd00::1"), Expected::Absent, of("c1", "a")),
            put(key("10.0.0.2"), Expected::Absent, of("c1", "b")),
            put(key("10.0.0.1"), Expected::Absent, of("c2", "a")),
        ],
    );
    let prefix = keys().boots();
    let all = scan_all(store, &prefix, None, 1, false);
    assert_eq!(names(&all), [boot("a", "10.0.0.1"), boot("a", "fd00::1"), boot("b", "10.0.0.2")]);
    assert!(all.iter().all(|entry| entry.value.is_empty() && !entry.version.0.is_empty()));
    assert_eq!(read(store, &boot("a", "10.0.0.1")).as_ref(), Some(&all[0]));
    assert_eq!(read(store, &boot("b", "10.0.0.1")), None);

    let held = entry(store, &key("10.0.0.1"));
    commit(store, &[put(held.key, Expected::At(held.version), of("c2", "c"))]).unwrap();
    let held = entry(store, &key("10.0.0.2"));
    commit(store, &[delete(&held)]).unwrap();
    let all = scan_all(store, &prefix, None, 9, true);
    assert_eq!(names(&all), [boot("a", "fd00::1"), boot("c", "10.0.0.1")]);
    assert_eq!(store.count(&prefix, None, Some(&boot("b", "0.0.0.0")), true), Ok(1));
}

fn cursors(store: &mut dyn Store) {
    let cursor = keys().key(&Place::Cursor(0));
    let first = commit(store, &[put(&cursor, Expected::Absent, "10.0.0.10")]).unwrap().remove(0);
    let read_back = entry(store, &cursor);
    assert_eq!((read_back.value, read_back.version), (b"10.0.0.10".to_vec(), first.clone()));
    let shorter = put(&cursor, Expected::At(first.clone()), "10.0.0.2");
    let second = commit(store, std::slice::from_ref(&shorter)).unwrap().remove(0);
    assert_ne!(first, second);
    assert_eq!(conflict_keys(commit(store, &[shorter])), std::slice::from_ref(&cursor));
    assert_eq!(entry(store, &cursor).value, b"10.0.0.2");
    commit(store, &[put(keys().key(&Place::Cursor(11)), Expected::Absent, "fd00::1")]).unwrap();
    let all = scan_all(store, &format!("{}cursor/", keys().prefix()), None, 1, false);
    assert_eq!(all.iter().map(|entry| entry.value.as_slice()).collect::<Vec<_>>(), [&b"10.0.0.2"[..], b"fd00::1"]);
    let last = entry(store, &cursor);
    assert_eq!(commit(store, &[delete(&last)]), Ok(vec![Version::default()]));
    assert_eq!(read(store, &cursor), None);
}

fn refused_writes(store: &mut dyn Store) {
    let address = key("10.0.0.1");
    let foreign = Record::foreign("empty", None).to_bytes();
    let boot = keys().key(&Place::Boot { boot: "b".into(), address: Address::lowest(Family::V4) });
    for (key, value) in [
        (address.clone(), &b"no record"[..]),
        (address.clone(), b"{}"),
        (address.clone(), &foreign),
        (address.clone(), br#"{"container":"c 1","ifname":"eth0"}"#),
        (address.clone(), br#"{"container":"c1","ifname":"a/b"}"#),
        (keys().key(&Place::Stray("x".into())), &record("c")),
        (owner_key("c", "eth0"), br#"["address/v4/0a000001"]"#),
        (boot, b""),
        (keys().key(&Place::Cursor(0)), &[b'1'; 65]),
        (format!("{}nothing", keys().prefix()), b""),
    ] {
        let refused = commit(store, &[put(&key, Expected::Absent, value)]);
        assert!(matches!(refused, Err(Error::Denied(_))), "{key}: {refused:?}");
        assert_eq!(read(store, &key), None);
    }
    assert_eq!(store.count(keys().prefix(), None, None, true), Ok(0));
}

fn many(store: &mut dyn Store) {
    const COUNT: u32 = 3000;
    let address = |number: u32| {
        let bits = 0x0a00_0000 + u128::from(number.wrapping_mul(2_654_435_761) % 0x0010_0000);
        Place::Address(Address::new(Family::V4, bits).expect("32 bits"))
    };
    let writes: Vec<Write> = (0..COUNT)
        .map(|number| put(keys().key(&address(number)), Expected::Absent, record(&format!("c{number}"))))
        .collect();
    commit_all(store, &writes);
    let prefix = keys().addresses(Family::V4);
    assert_eq!(store.count(&prefix, None, None, true), Ok(u64::from(COUNT)));
    let all = scan_all(store, &prefix, None, 256, false);
    assert_eq!(all.len(), COUNT as usize);
    assert!(all.windows(2).all(|pair| pair[0].key < pair[1].key));
    for place in [0, 1, 777, 1500, 2999] {
        assert_eq!(store.count(&prefix, None, Some(&all[place].key), true), Ok(place as u64));
        assert_eq!(read(store, &all[place].key).as_ref(), Some(&all[place]));
    }
    let half: Vec<Write> = all.iter().step_by(2).map(delete).collect();
    commit_all(store, &half);
    assert_eq!(store.count(&prefix, None, None, true), Ok(u64::from(COUNT / 2)));
    assert_eq!(store.count(&format!("{}owner/", keys().prefix()), None, None, true), Ok(u64::from(COUNT / 2)));
    assert_eq!(store.count(&keys().boots(), None, None, true), Ok(u64::from(COUNT / 2)));
    let rest = scan_all(store, &prefix, None, 1000, false);
    assert_eq!(rest, all.into_iter().skip(1).step_by(2).collect::<Vec<_>>());
}

fn free_keys(store: &mut dyn Store) {
    for (key, value) in [("pool/a", &[0, 255][..]), ("config", b""), ("block/v4/26/0a000000", &[7; 70_000])] {
        let version = commit(store, &[put(key, Expected::Absent, value)]).unwrap().remove(0);
        let entry = entry(store, key);
        assert_eq!((entry.value.as_slice(), entry.version), (value, version));
    }
    let batch: Vec<Write> =
        (0..40).map(|number| put(format!("big/{number:02}"), Expected::Absent, vec![1; 80_000])).collect();
    commit_all(store, &batch);
    let page = store.scan("big/", None, 1000, false, true).unwrap();
    assert!(page.entries.len() < 40 && page.next.is_some(), "a page is bounded by its bytes");
    assert_eq!(scan_all(store, "big/", None, 1000, false).len(), 40);
}

fn free_prefixes(store: &mut dyn Store) {
    let all = ["a", "a/", "a/b", "a/\u{10ffff}", "a0", "ä", "\u{10ffff}", "\u{10ffff}x"];
    let batch: Vec<Write> = all.iter().map(|key| put(*key, Expected::Absent, "")).collect();
    commit_all(store, &batch);
    for prefix in ["", "a", "a/", "a/\u{10ffff}", "\u{10ffff}", "b"] {
        let wanted: Vec<&str> = all.iter().copied().filter(|key| key.starts_with(prefix)).collect();
        assert_eq!(store.count(prefix, None, None, true), Ok(wanted.len() as u64), "{prefix:?}");
        assert_eq!(names(&scan_all(store, prefix, None, 2, true)), wanted, "{prefix:?}");
    }
}

/// When the blocks of the cases were claimed.
const CLAIMED: Instant = Instant { seconds: 1_700_000_000, nanoseconds: 0 };

fn block(text: &str, host: &str) -> Block {
    let prefix = Prefix::parse(text).expect("a test's prefix");
    Block::new(prefix, &Holder::Host(host.into()), CLAIMED, 1, None)
}

fn take(block: &mut Block, wanted: u32) -> Vec<u32> {
    block.take(wanted, Some("a.handle"), &Attributes::default(), &mut |_| false)
}

/// Writes a block over what is there, and gives the version that was reported.
fn put_block(store: &mut dyn Store, block: &Block) -> Version {
    let key = block_key(block.prefix());
    let expected = read(store, &key).map_or(Expected::Absent, |entry| Expected::At(entry.version));
    commit(store, &[put(key, expected, block.to_bytes())]).expect("nobody else writes").remove(0)
}

/// The values of room, empty and owned that a block has; those that must be absent are none.
fn check_indexes(
    store: &mut dyn Store,
    prefix: Prefix,
    room: Option<Room>,
    empty: Option<Empty>,
    owned: Option<(&Holder, Room)>,
) {
    let value = |store: &mut dyn Store, key: &str| read(store, key).map(|entry| entry.value);
    assert_eq!(value(store, &room_key(prefix)), room.map(|room| room.to_bytes()), "room of {prefix}");
    assert_eq!(value(store, &empty_key(prefix)), empty.map(|empty| empty.to_bytes()), "empty of {prefix}");
    let family = prefix.family();
    for host in ["n1", "n 2"] {
        let holder = Holder::Host(host.into());
        let wanted = owned.filter(|(owner, _)| **owner == holder).map(|(_, room)| room.to_bytes());
        assert_eq!(value(store, &owned_key(&holder, prefix)), wanted, "owned by {host}");
        let listed = u64::from(wanted.is_some());
        assert_eq!(store.count(&owned_prefix(&holder, family), None, None, true), Ok(listed), "owned by {host}");
    }
}

fn block_indexes(store: &mut dyn Store) {
    let (first, second) = (Holder::Host("n1".into()), Holder::Host("n 2".into()));
    let room = |free: u32| Room { free, cooling: 0, coolest: None };
    for text in ["10.0.0.64/26", "fd00::40/122"] {
        let mut block = block(text, "n1");
        let prefix = block.prefix();
        let claimed = Some(CLAIMED.seconds.cast_signed());
        put_block(store, &block);
        let empty = Empty { claimed, holder: Some(first.clone()) };
        check_indexes(store, prefix, Some(room(64)), Some(empty), Some((&first, room(64))));

        take(&mut block, 60);
        put_block(store, &block);
        check_indexes(store, prefix, Some(room(4)), None, Some((&first, room(4))));

        // Full: no room, but still somebody's.
        let last = take(&mut block, 4);
        put_block(store, &block);
        check_indexes(store, prefix, None, None, Some((&first, room(0))));

        // Cooling addresses are room that is not free yet.
        let now = Instant { seconds: CLAIMED.seconds + 60, nanoseconds: 5 };
        block.release(&last[..2], now, 300);
        put_block(store, &block);
        let cooling = Room { free: 0, cooling: 2, coolest: Some(now.seconds.cast_signed()) };
        check_indexes(store, prefix, Some(cooling), None, Some((&first, cooling)));

        // It changes hands.
        block.set_holder(Some(&second), CLAIMED);
        put_block(store, &block);
        check_indexes(store, prefix, Some(cooling), None, Some((&second, cooling)));
        block.set_holder(None, CLAIMED);
        put_block(store, &block);
        check_indexes(store, prefix, Some(cooling), None, None);

        // A commit that is not applied changes no index.
        let wrong = put(block_key(prefix), Expected::Absent, self::block(text, "n1").to_bytes());
        conflict_keys(commit(store, &[wrong]));
        check_indexes(store, prefix, Some(cooling), None, None);

        // What cannot be read is no room to anybody.
        let held = entry(store, &block_key(prefix));
        commit(store, &[put(&held.key, Expected::At(held.version), "no block")]).unwrap();
        check_indexes(store, prefix, None, None, None);
        put_block(store, &self::block(text, "n1"));
        let held = entry(store, &block_key(prefix));
        commit(store, &[delete(&held)]).unwrap();
        check_indexes(store, prefix, None, None, None);
    }
    assert_eq!(store.count("", None, None, true), Ok(0), "nothing is left behind");
}

fn index_versions(store: &mut dyn Store) {
    let mut seen: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    let mut block = block("10.0.0.0/26", "n1");
    let prefix = block.prefix();
    let owned = owned_key(&Holder::Host("n1".into()), prefix);
    for step in 0..4 {
        put_block(store, &block);
        for key in [room_key(prefix), owned.clone()] {
            assert!(!entry(store, &key).version.0.is_empty());
        }
        let version = entry(store, &room_key(prefix)).version.0;
        assert_eq!(seen.insert(version, step), None, "step {step} has a version of its own");
        // There and back, so that values repeat: taken, released, deleted and made again.
        let taken = take(&mut block, 1);
        put_block(store, &block);
        let version = entry(store, &room_key(prefix)).version.0;
        assert_eq!(seen.insert(version, step + 100), None, "step {step} has a version of its own");
        block.release(&taken, CLAIMED, 0);
        let held = entry(store, &block_key(prefix));
        commit(store, &[delete(&held)]).unwrap();
    }
}

fn refused_indexes(store: &mut dyn Store) {
    let block = block("10.0.0.0/26", "n1");
    let prefix = block.prefix();
    let keys = [room_key(prefix), empty_key(prefix), owned_key(&Holder::Host("n1".into()), prefix)];
    let refuse = |store: &mut dyn Store, write: Write| {
        let refused = commit(store, std::slice::from_ref(&write));
        assert!(matches!(refused, Err(Error::Denied(_))), "{write:?}: {refused:?}");
    };
    for key in &keys {
        refuse(store, put(key, Expected::Absent, "64 0 -"));
        assert_eq!(read(store, key), None);
    }
    refuse(store, put("room/any", Expected::Absent, ""));
    put_block(store, &block);
    for key in &keys {
        let held = entry(store, key);
        refuse(store, put(key, Expected::At(held.version.clone()), "1 0 -"));
        refuse(store, delete(&held));
        assert_eq!(entry(store, key), held);
        // They can be held to.
        let version = held.version.clone();
        assert_eq!(commit(store, &[check(key, Expected::At(version.clone()))]), Ok(vec![version]));
        assert_eq!(conflict_keys(commit(store, &[check(key, Expected::Absent)])), std::slice::from_ref(key));
    }
}

fn many_blocks(store: &mut dyn Store) {
    const COUNT: usize = 700;
    // In no order, each fourth full, each second of the others empty.
    let prefix = |number: usize| {
        let bits = 0x0a00_0000 + (((number as u128).wrapping_mul(2_654_435_761) % 0x4_0000) << 6);
        Prefix::new(Address::new(Family::V4, bits).expect("32 bits"), 26).expect("a length of IPv4")
    };
    let mut blocks: Vec<Block> = (0..COUNT)
        .map(|number| {
            let mut block = Block::new(prefix(number), &Holder::Host(format!("n{}", number % 7)), CLAIMED, 1, None);
            let wanted = [64, 0, 3, 0][number % 4];
            assert_eq!(take(&mut block, wanted).len() as u32, wanted);
            block
        })
        .collect();
    let other = block("10.0.0.0/25", "n1");
    let batch: Vec<Write> = blocks
        .iter()
        .chain([&other])
        .map(|block| put(block_key(block.prefix()), Expected::Absent, block.to_bytes()))
        .collect();
    for part in batch.chunks(100) {
        commit_all(store, part);
    }
    blocks.sort_by_key(|block| block.prefix().network());
    blocks.dedup_by_key(|block| block.prefix());
    assert_eq!(blocks.len(), COUNT, "these blocks differ");

    let all = blocks_prefix(Family::V4, 26);
    let wanted: Vec<String> = blocks.iter().map(|block| block_key(block.prefix())).collect();
    assert_eq!(names(&scan_all(store, &all, None, 90, true)), wanted);
    let values = scan_all(store, &all, None, 200, false);
    assert!(values.iter().zip(&blocks).all(|(entry, block)| entry.value == block.to_bytes()));
    assert_eq!(store.count("block/", None, None, true), Ok(COUNT as u64 + 1));
    for (from, until) in [(0, 0), (0, 1), (10, 11), (0, 350), (99, 601), (699, 699)] {
        let (start, end) = (Some(wanted[from].as_str()), Some(wanted[until].as_str()));
        assert_eq!(store.count(&all, start, end, true), Ok((until - from) as u64), "{from} to {until}");
    }
    let (rooms, empties) = (rooms_prefix(Family::V4, 26), empties_prefix(Family::V4, 26));
    let with_room: Vec<&Block> = blocks.iter().filter(|block| block.free() > 0).collect();
    assert_eq!((with_room.len(), store.count(&rooms, None, None, true)), (COUNT * 3 / 4, Ok(COUNT as u64 * 3 / 4)));
    assert_eq!(store.count(&empties, None, None, true), Ok(COUNT as u64 / 2));
    // The first room after a full block is found without passing the full ones.
    let full = blocks.iter().position(|block| block.free() == 0).expect("each fourth is full");
    let from = room_key(blocks[full].prefix());
    let next = blocks[full..].iter().find(|block| block.free() > 0).expect("most have room");
    let page = store.scan(&rooms, Some(&from), 1, true, true).unwrap();
    assert_eq!(names(&page.entries), [room_key(next.prefix())]);
    let owned: u64 = (0..7)
        .map(|host| {
            store.count(&owned_prefix(&Holder::Host(format!("n{host}")), Family::V4), None, None, true).unwrap()
        })
        .sum();
    assert_eq!(owned, COUNT as u64 + 1);
}
