//! The `ranges` strategy in memory: what our own name adds, and what happens when the store goes wrong. host-local's
//! own behaviour is shown by the cases in `tests/cni` and compared with the original by the differential test.

use plat_core::clock::{Clock, Instant};
use plat_core::cni::{self, Advice, Level, Reply, Request};
use plat_core::net::{Address, Family};
use plat_core::network::{Keys, Place, Record};
use plat_core::store::{Durability, Entry, Error, Event, Page, Store, Version, Write};
use plat_stores::faulty::{Counted, Fault, FaultyStore};
use plat_stores::memory::MemoryStore;
use serde_json::{Value, json};
use std::collections::BTreeSet;

struct Boot(&'static str);

impl Clock for Boot {
    fn now(&mut self) -> Instant {
        Instant { seconds: 1_700_000_000, nanoseconds: 5 }
    }
    fn boot_id(&mut self) -> Option<String> {
        Some(self.0.into())
    }
}

fn request(program: &str, command: &str, owner: &str, config: &Value) -> Request {
    let (container, ifname) = owner.split_once('/').unwrap_or((owner, "eth0"));
    let variables = [
        ("CNI_COMMAND", command),
        ("CNI_CONTAINERID", container),
        ("CNI_NETNS", "/run/netns/none"),
        ("CNI_IFNAME", ifname),
        ("CNI_PATH", "/opt/cni/bin"),
    ];
    Request {
        program: program.into(),
        environment: variables.map(|(name, value)| (name.into(), value.into())).to_vec(),
        input: config.to_string().into_bytes(),
        ..Request::default()
    }
}

fn own(ipam: Value) -> Value {
    let mut ipam = ipam;
    ipam["mode"] = json!("ranges");
    json!({"cniVersion": "1.1.0", "name": "net", "ipam": ipam})
}

fn call_in(store: &mut dyn Store, boot: &'static str, command: &str, owner: &str, config: &Value) -> Reply {
    cni::call(&request("plat-ipam", command, owner, config), store, &mut Boot(boot))
}

fn call(store: &mut dyn Store, command: &str, owner: &str, config: &Value) -> Reply {
    call_in(store, "boot-1", command, owner, config)
}

/// The addresses of a successful ADD, or the error.
fn outcome(reply: &Reply) -> Result<Vec<String>, Value> {
    let document: Value = if reply.output.is_empty() {
        json!({"ips": []})
    } else {
        serde_json::from_slice(&reply.output).expect("standard output is JSON")
    };
    if reply.exit_status == 0 {
        let ips = document["ips"].as_array().expect("a result has ips");
        Ok(ips.iter().map(|ip| ip["address"].as_str().expect("an address").to_string()).collect())
    } else {
        assert_eq!(reply.exit_status, 1);
        Err(document)
    }
}

fn add(store: &mut dyn Store, owner: &str, config: &Value) -> Result<Vec<String>, Value> {
    outcome(&call(store, "ADD", owner, config))
}

fn held(store: &mut dyn Store) -> BTreeSet<String> {
    let keys = Keys::new("net");
    [Family::V4, Family::V6]
        .into_iter()
        .flat_map(|family| store.scan(&keys.addresses(family), None, 10_000, true, true).expect("a scan").entries)
        .map(|entry| match keys.place(&entry.key) {
            Some(Place::Address(address)) => address.to_string(),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[track_caller]
fn refused(outcome: Result<Vec<String>, Value>, code: u32, parts: &[&str]) {
    let error = outcome.expect_err("a refusal");
    assert_eq!(error["code"], code, "{error}");
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in {text}");
    }
}

const DUAL: &str = r#"{"ranges": [[{"subnet": "10.0.0.0/29"}], [{"subnet": "fd00::/120"}]]}"#;

fn dual() -> Value {
    own(serde_json::from_str(DUAL).expect("JSON"))
}

#[test]
fn a_repeated_add_returns_the_same_addresses() {
    let mut store = MemoryStore::new();
    let first = add(&mut store, "c1", &dual()).unwrap();
    assert_eq!(first, ["10.0.0.2/29", "fd00::2/120"]);
    add(&mut store, "c2", &dual()).unwrap();
    assert_eq!(add(&mut store, "c1", &dual()).unwrap(), first);
    assert_eq!(held(&mut store).len(), 4);
}

#[test]
fn a_repeated_add_completes_a_missing_set() {
    let mut store = MemoryStore::new();
    let v4 = own(json!({"subnet": "10.0.0.0/29"}));
    add(&mut store, "c1", &v4).unwrap();
    assert_eq!(add(&mut store, "c1", &dual()).unwrap(), ["10.0.0.2/29", "fd00::2/120"]);
}

#[test]
fn a_repeated_add_with_another_request_is_refused() {
    let mut store = MemoryStore::new();
    add(&mut store, "c1", &dual()).unwrap();
    let mut config = dual();
    config["runtimeConfig"] = json!({"ips": ["10.0.0.5"]});
    refused(
        add(&mut store, "c1", &config),
        999,
        &["10.0.0.2 has been allocated to c1", "10.0.0.5", "release 10.0.0.2 with DEL first"],
    );
    config["runtimeConfig"] = json!({"ips": ["10.0.0.2", "fd00::2"]});
    assert_eq!(add(&mut store, "c1", &config).unwrap(), ["10.0.0.2/29", "fd00::2/120"]);
    config["runtimeConfig"] = json!({"ips": ["192.0.2.1"]});
    refused(add(&mut store, "c1", &config), 999, &["failed to allocate all requested IPs: 192.0.2.1"]);
    assert_eq!(held(&mut store).len(), 2);
}

#[test]
fn a_repeated_add_with_two_addresses_of_a_set_is_refused() {
    let mut store = MemoryStore::new();
    let mut config = own(json!({"subnet": "10.0.0.0/29", "duplicateAdd": "refuse"}));
    for wanted in ["10.0.0.3", "10.0.0.4"] {
        config["runtimeConfig"] = json!({"ips": [wanted]});
        add(&mut store, "c1", &config).unwrap();
    }
    let config = own(json!({"subnet": "10.0.0.0/29"}));
    refused(add(&mut store, "c1", &config), 999, &["holds 2 addresses of one range set (10.0.0.3, 10.0.0.4)"]);
}

#[test]
fn duplicates_can_be_refused_under_our_name_and_returned_under_host_locals() {
    let mut store = MemoryStore::new();
    let config = own(json!({"subnet": "10.0.0.0/29", "duplicateAdd": "refuse"}));
    add(&mut store, "c1", &config).unwrap();
    refused(add(&mut store, "c1", &config), 999, &["duplicate allocation is not allowed", "duplicateAdd"]);
    let config = json!({"cniVersion": "1.1.0", "name": "net",
        "ipam": {"subnet": "10.0.0.0/29", "duplicateAdd": "return"}});
    let reply = cni::call(&request("host-local", "ADD", "c1", &config), &mut store, &mut Boot("b"));
    assert_eq!(outcome(&reply).unwrap(), ["10.0.0.2/29"]);
}

#[test]
fn excluded_addresses_are_never_given_out() {
    let mut store = MemoryStore::new();
    let config = own(json!({"subnet": "10.0.0.0/28", "exclude": ["10.0.0.2", "10.0.0.4/30", "10.0.0.9 - 10.0.0.13"]}));
    let mut given = Vec::new();
    for index in 0.. {
        match add(&mut store, &format!("c{index}"), &config) {
            Ok(ips) => given.extend(ips),
            Err(error) => {
                refused(Err(error), 999, &["3 of 3 held", "11 kept back as gateway or excluded"]);
                break;
            }
        }
    }
    assert_eq!(given, ["10.0.0.3/28", "10.0.0.8/28", "10.0.0.14/28"]);
    let mut config = config;
    config["runtimeConfig"] = json!({"ips": ["10.0.0.5"]});
    refused(add(&mut store, "d", &config), 999, &["10.0.0.5 is excluded by ipam.exclude"]);
    let config = own(json!({"subnet": "10.0.0.0/28", "exclude": ["10.0.0.300"]}));
    refused(add(&mut store, "d", &config), 7, &["ipam.exclude", "10.0.0.300", "first-last"]);
}

#[test]
fn small_subnets_and_edges_are_given_out_under_our_name() {
    let all = |ipam: Value| {
        let mut store = MemoryStore::new();
        let mut given = Vec::new();
        for index in 0..8 {
            given.extend(add(&mut store, &format!("c{index}"), &own(ipam.clone())).unwrap_or_default());
        }
        given
    };
    assert_eq!(all(json!({"subnet": "10.0.0.2/31"})), ["10.0.0.3/31"]);
    assert_eq!(all(json!({"subnet": "10.0.0.2/31", "gateway": "10.0.0.1"})), ["10.0.0.2/31", "10.0.0.3/31"]);
    assert_eq!(all(json!({"subnet": "10.0.0.2/32"})), ["10.0.0.2/32"]);
    assert_eq!(all(json!({"subnet": "fd00::4/127"})), ["fd00::5/127"]);
    assert_eq!(all(json!({"subnet": "fd00::4/128"})), ["fd00::4/128"]);
    assert_eq!(
        all(json!({"subnet": "10.0.0.4/30", "edgeAddresses": true})),
        ["10.0.0.4/30", "10.0.0.6/30", "10.0.0.7/30"]
    );
    assert_eq!(all(json!({"subnet": "10.0.0.4/30"})), ["10.0.0.6/30"]);
}

#[test]
fn a_missing_or_unknown_mode_names_the_remedy() {
    let mut store = MemoryStore::new();
    let config = json!({"cniVersion": "1.1.0", "name": "net", "ipam": {"subnet": "10.0.0.0/29"}});
    refused(add(&mut store, "c", &config), 7, &["ipam.mode is missing", "ranges"]);
    let config = json!({"cniVersion": "1.1.0", "name": "net", "ipam": {"mode": "blocks", "subnet": "10.0.0.0/29"}});
    refused(add(&mut store, "c", &config), 7, &["ipam.mode is \\\"blocks\\\""]);
    for (key, value, part) in [
        ("duplicateAdd", json!("maybe"), "use \\\"return\\\" or \\\"refuse\\\""),
        ("reclaimBoot", json!("always"), "use \\\"onFull\\\" or \\\"never\\\""),
        ("statusWhenFull", json!("x"), "use \\\"error\\\" or \\\"ok\\\""),
        ("lockWaitSecondsMax", json!(0), "ipam.lockWaitSecondsMax is 0: give a number from 1 to 230"),
        ("logFileMiBMax", json!(4096), "ipam.logFileMiBMax is 4096: give a number from 1 to 1024"),
    ] {
        let mut ipam = json!({"subnet": "10.0.0.0/29"});
        ipam[key] = value;
        refused(add(&mut store, "c", &own(ipam)), 7, &[key, part]);
    }
}

#[test]
fn a_full_set_frees_what_earlier_boots_left() {
    let mut store = MemoryStore::new();
    let config = own(json!({"subnet": "10.0.0.0/29"}));
    for index in 0..5 {
        outcome(&call_in(&mut store, "boot-1", "ADD", &format!("old{index}"), &config)).unwrap();
    }
    // A file that names no owner is not ours to free, whatever its boot.
    store.seed(
        &Keys::new("net"),
        &Place::Address(Address::parse("10.0.0.4").unwrap()),
        &Record::foreign("unknown content", Some("boot-1".into())),
    );
    let never = own(json!({"subnet": "10.0.0.0/29", "reclaimBoot": "never"}));
    refused(outcome(&call_in(&mut store, "boot-2", "ADD", "new", &never)), 999, &["5 of 5 held"]);
    refused(outcome(&call_in(&mut store, "boot-1", "ADD", "new", &config)), 999, &["5 of 5 held"]);
    assert_eq!(call_in(&mut store, "boot-2", "STATUS", "", &config).exit_status, 0, "an ADD would succeed");
    let reply = call_in(&mut store, "boot-2", "ADD", "new", &config);
    assert_eq!(outcome(&reply).unwrap(), ["10.0.0.2/29"]);
    let freed: Vec<&str> =
        reply.log.iter().filter(|line| line.level == Level::Warning).map(|line| line.text.as_str()).collect();
    assert_eq!(freed.len(), 4, "{freed:?}");
    assert!(freed[0].contains("freed 10.0.0.2 of old0/eth0, recorded in an earlier boot"), "{freed:?}");
    assert_eq!(held(&mut store), BTreeSet::from(["10.0.0.2".to_string(), "10.0.0.4".into()]));
}

#[test]
fn status_tells_of_a_full_set_as_configured() {
    let mut store = MemoryStore::new();
    let config = own(json!({"subnet": "10.0.0.0/30"}));
    assert_eq!(call(&mut store, "STATUS", "", &config).exit_status, 0);
    add(&mut store, "c", &config).unwrap();
    refused(outcome(&call(&mut store, "STATUS", "", &config)), 50, &["no IP addresses available", "1 of 1 held"]);
    let lenient = own(json!({"subnet": "10.0.0.0/30", "statusWhenFull": "ok"}));
    let reply = call(&mut store, "STATUS", "", &lenient);
    assert_eq!(reply.exit_status, 0);
    assert!(reply.log.iter().any(|line| line.level == Level::Warning && line.text.contains("1 of 1 held")));
    let broken = own(json!({"subnet": "10.0.0.1/30"}));
    refused(outcome(&call(&mut store, "STATUS", "", &broken)), 50, &["host bits"]);
}

#[test]
fn gc_keeps_what_it_cannot_judge() {
    let mut store = MemoryStore::new();
    let keys = Keys::new("net");
    let at = |text: &str| Place::Address(Address::parse(text).unwrap());
    store.seed(&keys, &at("10.0.0.2"), &Record::owned("dead", "eth0", None));
    store.seed(&keys, &at("10.0.0.3"), &Record::owned("live", "eth0", None));
    store.seed(&keys, &at("10.0.0.4"), &Record::owned("live", "eth1", None));
    store.seed(&keys, &at("10.0.0.5"), &Record::from_host_local(b"live", None));
    store.seed(&keys, &at("10.0.0.6"), &Record::from_host_local(b"older", None));
    store.seed(&keys, &at("fd00::2"), &Record::foreign("empty", None));
    store.seed(&keys, &Place::Stray("sub/10.0.0.7".into()), &Record::owned("dead", "eth0", None));
    let mut config = own(json!({"subnet": "10.0.0.0/29"}));
    assert_eq!(call(&mut store, "GC", "", &config).exit_status, 0);
    assert_eq!(held(&mut store).len(), 6, "no list, nothing done");
    config["cni.dev/attachments"] = json!([]);
    config["cni.dev/valid-attachments"] = json!([{"containerID": "live", "ifname": "eth0"}]);
    let reply = call(&mut store, "GC", "", &config);
    assert_eq!(reply.exit_status, 0);
    assert!(reply.output.is_empty());
    let left = BTreeSet::from(["10.0.0.3".to_string(), "10.0.0.5".into(), "fd00::2".into()]);
    assert_eq!(held(&mut store), left);
    let reported: Vec<&str> =
        reply.log.iter().filter(|line| line.level == Level::Warning).map(|line| line.text.as_str()).collect();
    assert_eq!(
        reported,
        [
            "GC kept fd00::2, which names no owner: empty",
            "GC kept sub/10.0.0.7, which names no owner: not named as an address"
        ]
    );
    config.as_object_mut().unwrap().remove("cni.dev/valid-attachments");
    assert_eq!(call(&mut store, "GC", "", &config).exit_status, 0);
    assert_eq!(held(&mut store), BTreeSet::from(["fd00::2".to_string()]));
}

#[test]
fn a_policy_can_refuse() {
    let mut store = MemoryStore::new();
    let mut request = request("plat-ipam", "ADD", "c", &dual());
    request.advice =
        vec![Advice { policy: "quota".into(), refuse: Some("team A has none left".into()), pools: None, blocks: None }];
    let reply = cni::call(&request, &mut store, &mut Boot("b"));
    refused(outcome(&reply), 999, &["refused by the policy quota: team A has none left"]);
    assert!(held(&mut store).is_empty());
}

#[test]
fn a_failed_add_has_taken_nothing_even_with_single_writes() {
    for atomic_writes in [1, 2, 100] {
        let mut store = MemoryStore::with_atomic_writes(atomic_writes);
        let config = own(json!({"ranges": [[{"subnet": "10.0.0.0/29"}], [{"subnet": "10.0.1.0/30"}]]}));
        add(&mut store, "c1", &config).unwrap();
        refused(
            add(&mut store, "c2", &config),
            999,
            &["failed to allocate for range 1: no IP addresses available in range set: 10.0.1.1-10.0.1.2"],
        );
        assert_eq!(held(&mut store).len(), 2);
        assert_eq!(call(&mut store, "DEL", "c1", &config).exit_status, 0);
        assert!(held(&mut store).is_empty());
        assert_eq!(add(&mut store, "c2", &config).unwrap(), ["10.0.0.4/29", "10.0.1.2/30"], "the cursor moved on");
    }
}

/// Every commit of an ADD, in turn, loses its reply, fails, or is lost to others; then the same call again.
#[test]
fn every_fault_leaves_a_store_that_a_repeated_call_completes() {
    let faults = [
        Fault::LoseReply,
        Fault::Fail(Error::Unavailable("no space left on device".into())),
        Fault::Fail(Error::UnknownOutcome),
        Fault::Fail(Error::Conflict(vec!["x".into()])),
        Fault::Fail(Error::Denied("permission denied".into())),
        Fault::Fail(Error::TooLarge),
    ];
    for atomic_writes in [1, 100] {
        for fault in &faults {
            for at in 1..=6 {
                let mut store = FaultyStore::new(MemoryStore::with_atomic_writes(atomic_writes))
                    .counting(Counted::All)
                    .with(at, fault.clone());
                let first = add(&mut store, "c1", &dual());
                let after = held(store.store_mut());
                if let Ok(ips) = &first {
                    let expected: BTreeSet<String> =
                        ips.iter().map(|ip| ip.split('/').next().unwrap().to_string()).collect();
                    assert_eq!(after, expected, "{fault:?} at {at}");
                } else {
                    assert!(after.is_empty(), "{fault:?} at {at} with {atomic_writes}: {after:?}");
                }
                let mut store = store.into_inner();
                let again = add(&mut store, "c1", &dual()).unwrap();
                if let Ok(first) = first {
                    assert_eq!(first, again);
                }
                assert_eq!(held(&mut store).len(), 2, "{fault:?} at {at}");
                assert_eq!(call(&mut store, "DEL", "c1", &dual()).exit_status, 0);
                assert!(held(&mut store).is_empty());
            }
        }
    }
}

/// Passes calls on, but lets another owner take the planned address before each of the first commits.
struct Rival {
    store: MemoryStore,
    thefts_left: u32,
}

impl Store for Rival {
    fn read(&mut self, keys: &[String], fresh: bool) -> Result<Vec<Option<Entry>>, Error> {
        self.store.read(keys, fresh)
    }
    fn scan(&mut self, prefix: &str, from: Option<&str>, limit: u32, keys: bool, fresh: bool) -> Result<Page, Error> {
        self.store.scan(prefix, from, limit, keys, fresh)
    }
    fn count(&mut self, prefix: &str, from: Option<&str>, until: Option<&str>, fresh: bool) -> Result<u64, Error> {
        self.store.count(prefix, from, until, fresh)
    }
    fn commit(&mut self, batch: &[Write], journal: &[Event], durability: Durability) -> Result<Vec<Version>, Error> {
        if self.thefts_left > 0 {
            self.thefts_left -= 1;
            let keys = Keys::new("net");
            let place = batch
                .iter()
                .filter_map(|write| keys.place(&write.key))
                .find(|place| matches!(place, Place::Address(address) if address.family() == Family::V6));
            self.store.seed(&keys, &place.expect("an address is taken"), &Record::owned("rival", "eth0", None));
        }
        self.store.commit(batch, journal, durability)
    }
    fn atomic_writes(&mut self) -> u32 {
        self.store.atomic_writes()
    }
}

#[test]
fn a_lost_race_is_run_again_and_ends_as_contended() {
    let mut store = Rival { store: MemoryStore::new(), thefts_left: 7 };
    assert_eq!(add(&mut store, "c1", &dual()).unwrap(), ["10.0.0.2/29", "fd00::9/120"]);
    let mut store = Rival { store: MemoryStore::new(), thefts_left: 8 };
    let reply = call(&mut store, "ADD", "c1", &dual());
    assert!(reply.contended);
    refused(outcome(&reply), 11, &["try again", "changed meanwhile: network/net/address/v6/"]);
    assert!(!held(&mut store.store).iter().any(|address| address.starts_with("10.")), "nothing was taken");
}

#[test]
fn what_happened_goes_to_the_journal() {
    let mut store = MemoryStore::new();
    add(&mut store, "c1", &dual()).unwrap();
    call(&mut store, "DEL", "c1", &dual());
    let events: Vec<String> =
        store.events().map(|event| format!("{} {} {} {}", event.what, event.key, event.owner, event.why)).collect();
    assert_eq!(
        events,
        [
            "granted network/net/address/v4/0a000002 c1/eth0 ADD",
            "granted network/net/address/v6/fd000000000000000000000000000002 c1/eth0 ADD",
            "released network/net/address/v4/0a000002 c1/eth0 DEL",
            "released network/net/address/v6/fd000000000000000000000000000002 c1/eth0 DEL",
        ]
    );
}

#[test]
fn a_call_asks_the_store_little() {
    let mut store = FaultyStore::new(MemoryStore::new());
    let config = own(json!({"subnet": "10.0.0.0/16"}));
    for index in 0..300 {
        let before = store.calls();
        add(&mut store, &format!("c{index}"), &config).unwrap();
        assert_eq!(store.calls() - before, 3, "a read, a count and a commit");
    }
    // Without its cursor the search goes over 300 held addresses by counting.
    let keys = Keys::new("net");
    let cursor = keys.key(&Place::Cursor(0));
    let entry = store.read(std::slice::from_ref(&cursor), true).unwrap().remove(0).unwrap();
    let write = Write {
        key: cursor,
        expected: plat_core::store::Expected::At(entry.version),
        action: plat_core::store::Action::Delete,
    };
    store.commit(&[write], &[], Durability::Process).unwrap();
    let before = store.calls();
    assert_eq!(add(&mut store, "late", &config).unwrap(), ["10.0.1.46/16"]);
    assert!(store.calls() - before < 24, "{} calls", store.calls() - before);
}

#[test]
fn a_long_list_of_requests_is_refused_and_del_releases_all_the_same() {
    let mut store = MemoryStore::new();
    add(&mut store, "c1", &dual()).unwrap();
    let mut config = dual();
    config["args"] =
        json!({"cni": {"ips": (0..5000).map(|n| format!("10.9.{}.{}", n / 250, n % 250)).collect::<Vec<_>>()}});
    refused(add(&mut store, "c2", &config), 7, &["5000 addresses are requested", "at most 4096"]);
    assert_eq!(call(&mut store, "DEL", "c1", &config).exit_status, 0);
    assert!(held(&mut store).is_empty());
}

#[test]
fn a_message_that_quotes_megabytes_is_cut() {
    let mut store = MemoryStore::new();
    let reply = call(&mut store, "ADD", "c1", &own(json!({"subnet": "<".repeat(1 << 20)})));
    refused(outcome(&reply), 999, &["invalid CIDR address: ", "bytes more)"]);
    assert!(reply.output.len() < 200_000, "{} bytes", reply.output.len());
    assert!(reply.log.iter().all(|line| line.text.len() < 5_000));
}

#[test]
fn a_relative_path_without_a_working_directory_is_refused() {
    let mut store = MemoryStore::new();
    let config = own(json!({"subnet": "10.0.0.0/29", "dataDir": "rel"}));
    let mut request = request("plat-ipam", "ADD", "c1", &config);
    refused(
        outcome(&cni::call(&request, &mut store, &mut Boot("b"))),
        999,
        &["mkdir rel: no such file or directory", "give a whole path"],
    );
    assert_eq!(cni::locate(&request).backend, cni::Backend::None);
    request.surroundings.working_directory = "/srv/x".into();
    assert_eq!(cni::locate(&request).backend, cni::Backend::Directory("/srv/x/rel".into()));
}

#[test]
fn gc_takes_a_long_list_of_ids_that_look_alike() {
    let mut store = MemoryStore::new();
    let keys = Keys::new("net");
    for index in 0..300u128 {
        let address = Address::new(Family::V4, 0x0a00_0000 + index).unwrap();
        store.seed(&keys, &Place::Address(address), &Record::owned(&format!("{index:064x}"), "eth0", None));
    }
    let mut config = own(json!({"subnet": "10.0.0.0/16"}));
    let alive: Vec<Value> =
        (0..20_000).step_by(2).map(|id| json!({"containerID": format!("{id:064x}"), "ifname": "eth0"})).collect();
    config["cni.dev/valid-attachments"] = json!(alive);
    assert_eq!(call(&mut store, "GC", "", &config).exit_status, 0);
    assert_eq!(held(&mut store).len(), 150);
    assert!(held(&mut store).contains("10.0.0.4") && !held(&mut store).contains("10.0.0.5"));
}
