//! The three forms of the core (compiled natively, the component as native code, the component interpreted) give the
//! same replies and leave the same bytes in the store, on the same 5,000 calls.
#![allow(missing_docs, reason = "a test has no users")]

mod embedded;

use plat_core::clock::{Clock, Instant};
use plat_core::cni::{self, Reply, Request};
use plat_core::network::{Keys, Place, Record};
use plat_core::store::{Action, Durability, Expected, Store as _, Write};
use plat_runtime::Core;
use plat_stores::memory::MemoryStore;
use plat_tests::random::{self, Random};
use serde_json::{Value, json};

const CALLS: usize = 5_000;
const CALLS_A_BATCH: usize = 5;

/// A clock that both sides see alike.
#[derive(Clone)]
struct Fixed {
    seconds: u64,
    boot: Option<String>,
}

impl Clock for Fixed {
    fn now(&mut self) -> Instant {
        Instant { seconds: self.seconds, nanoseconds: 7 }
    }
    fn boot_id(&mut self) -> Option<String> {
        self.boot.clone()
    }
}

fn ranges(random: &mut Random) -> Value {
    let sets = [
        json!([{"subnet": "10.0.0.0/28"}]),
        json!([{"subnet": "10.0.1.0/29", "gateway": "10.0.1.3"}, {"subnet": "10.0.2.0/30"}]),
        json!([{"subnet": "fd00::/124", "rangeStart": "fd00::3", "rangeEnd": "fd00::9"}]),
        json!([{"subnet": "10.0.3.0/24", "rangeStart": "10.0.3.10", "rangeEnd": "10.0.3.14"}]),
        json!([{"subnet": "10.0.4.1/24"}]),
        json!([{"subnet": "fd01::/127"}]),
    ];
    let count = 1 + random.below(3);
    let first = random.below(sets.len());
    json!((0..count).map(|index| sets[(first + index) % sets.len()].clone()).collect::<Vec<_>>())
}

fn config(random: &mut Random) -> Vec<u8> {
    let version = random.pick(&["0.1.0", "0.2.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0", "1.1.0", "1.1.0", "2.0"]);
    let mut ipam = json!({"mode": "ranges", "ranges": ranges(random)});
    if random.percent(20) {
        ipam["routes"] = json!([{"dst": "0.0.0.0/0", "gw": "10.0.0.1", "mtu": 1400}, {"dst": "::/0"}]);
    }
    if random.percent(15) {
        ipam["exclude"] = json!(["10.0.0.4-10.0.0.6", "fd00::5"]);
    }
    if random.percent(20) {
        ipam["duplicateAdd"] = json!(random.pick(&["return", "refuse", "other"]));
    }
    if random.percent(20) {
        ipam["statusWhenFull"] = json!(random.pick(&["ok", "error"]));
    }
    let mut document =
        json!({"cniVersion": version, "name": random.pick(&["net", "net", "net", "other"]), "ipam": ipam});
    if random.percent(25) {
        let wanted = *random.pick(&["10.0.0.5", "10.0.1.4/29", "fd00::7", "10.9.9.9", "x", ""]);
        document["runtimeConfig"] = json!({"ips": [wanted]});
    }
    if random.percent(50) {
        let alive: Vec<Value> = (0..random.below(12))
            .map(|index| json!({"containerID": format!("c{}", index * 2), "ifname": "eth0"}))
            .collect();
        document["cni.dev/valid-attachments"] = json!(alive);
    }
    let mut bytes = document.to_string().into_bytes();
    if random.percent(3) {
        let at = random.below(bytes.len());
        bytes[at] = random.below(256) as u8;
    }
    bytes
}

/// A configuration of the block strategy, under either of its names.
fn block_config(random: &mut Random) -> Vec<u8> {
    let version = random.pick(&["0.2.0", "0.4.0", "1.0.0", "1.1.0", "1.1.0"]);
    let mut ipam = json!({"mode": "block", "store": random.pick(&["sqlite", "sqlite", "sqlite", "sqlite", "files"])});
    for (key, words) in [("assign_ipv4", ["true", "false"]), ("assign_ipv6", ["true", "true"])] {
        if random.percent(40) {
            ipam[key] = json!(random.pick(&words));
        }
    }
    if random.percent(25) {
        let pools = [json!(["b"]), json!(["10.1.0.0/26"]), json!(["none"]), json!(["six"]), json!(["t", "b"])];
        ipam["ipv4_pools"] = random.pick(&pools).clone();
    }
    if random.percent(30) {
        ipam["prefix"] = json!(random.pick(&["pool", "block", "host", "other"]));
        ipam["gateway"] = random.pick(&[json!("10.1.0.1"), json!(["10.2.0.6", "fd01::1"]), json!("x")]).clone();
        ipam["routes"] = json!([{"dst": "0.0.0.0/0"}]);
    }
    let mut document = json!({"cniVersion": version, "name": random.pick(&["net", "net", "other"]),
        "nodename": random.pick(&["n1", "n1", "n2", "n3"]), "ipam": ipam});
    if random.percent(50) {
        let alive: Vec<Value> =
            (0..random.below(30)).map(|index| json!({"containerID": format!("c{index}"), "ifname": "eth0"})).collect();
        document["cni.dev/valid-attachments"] = json!(alive);
    }
    if random.percent(10) {
        document["runtimeConfig"] = json!({"ips": [random.pick(&["10.1.0.9", "10.2.0.3/28", "fd01::7", "10.9.0.1"])]});
    }
    document.to_string().into_bytes()
}

fn request(random: &mut Random) -> Request {
    let is_block = random.percent(50);
    let commands = ["ADD", "ADD", "ADD", "ADD", "ADD", "DEL", "DEL", "CHECK", "GC", "STATUS", "VERSION", "", "OTHER"];
    let args = ["", "", "", "IgnoreUnknown=1;K8S_POD_NAME=p", "IP=10.0.0.9", "IP=fd00::4;A=b", "IP"];
    let mut environment: Vec<(Vec<u8>, Vec<u8>)> = [
        ("CNI_COMMAND", (*random.pick(&commands)).to_string()),
        ("CNI_CONTAINERID", format!("c{}", random.below(40))),
        ("CNI_NETNS", "/run/netns/x".to_string()),
        ("CNI_IFNAME", (*random.pick(&["eth0", "eth0", "eth1"])).to_string()),
        ("CNI_ARGS", (*random.pick(&args)).to_string()),
        ("CNI_PATH", "/opt/cni/bin".to_string()),
    ]
    .map(|(name, value)| (name.into(), value.into_bytes()))
    .to_vec();
    if random.percent(3) {
        environment.remove(random.below(environment.len()));
    }
    let mut request = Request {
        program: (*random.pick(if is_block {
            &["plat-ipam", "calico-ipam", "calico-ipam"]
        } else {
            &["plat-ipam", "plat-ipam", "host-local"]
        }))
        .to_string(),
        environment,
        input: if is_block { block_config(random) } else { config(random) },
        deadline_ms: 1000,
        ..Request::default()
    };
    request.surroundings.working_directory = "/tmp".into();
    request.surroundings.netns_is_own = *random.pick(&[None, None, Some(false), Some(false), Some(true)]);
    request
}

fn seed_store(store: &mut MemoryStore) {
    let keys = Keys::new("net");
    let foreign = Record::foreign("unknown content", None);
    store.seed(&keys, &Place::parse("address/v4/0a000007").expect("a place"), &foreign);
    store.seed(&keys, &Place::Stray("sub/10.0.0.8".into()), &Record::owned("c3", "eth0", None));
    let old = Record::from_host_local(b"c5", None);
    store.seed(&keys, &Place::parse("address/v4/0a000009").expect("a place"), &old);
    let pools = [
        embedded::pool("a", &json!({"cidr": "10.1.0.0/26", "blockSize": 29})),
        embedded::pool("b", &json!({"cidr": "10.2.0.0/28", "blockSize": 29})),
        embedded::pool("six", &json!({"cidr": "fd01::/120", "blockSize": 124})),
        embedded::pool("t", &json!({"cidr": "10.3.0.0/28", "allowedUses": ["Tunnel"]})),
        ("config".to_owned(), embedded::object("IPAMConfiguration", "default", &json!({"maxBlocksPerHost": 3}))),
    ];
    let writes: Vec<Write> = pools
        .map(|(key, value)| Write { key, expected: Expected::Absent, action: Action::Put(value.into_bytes()) })
        .to_vec();
    for write in writes {
        store.commit(&[write], &[], Durability::Process).expect("a pool");
    }
}

#[test]
fn all_forms_agree_on_every_reply_and_every_byte() {
    agree(MemoryStore::new(), 0);
}

/// Where block, handle and affinity are written one after the other.
#[test]
fn all_forms_agree_on_a_store_of_single_writes() {
    agree(MemoryStore::with_atomic_writes(1), 1);
}

fn agree(mut native_store: MemoryStore, stream: u64) {
    let seed = random::seed(2026);
    let mut random = Random::new(seed, stream);
    let (native_code, interpreted) = (Core::embedded().expect("the core"), Core::interpreted().expect("the core"));
    let mut components = [native_code.instance(), interpreted.instance()];
    seed_store(&mut native_store);
    let mut stores = [native_store.clone(), native_store.clone()];
    let (mut succeeded, mut given_of_blocks) = (0, 0);
    for batch in 0..CALLS / CALLS_A_BATCH {
        let requests: Vec<Request> = (0..CALLS_A_BATCH).map(|_| request(&mut random)).collect();
        let clock =
            Fixed { seconds: 1_000 + batch as u64, boot: (batch % 7 != 6).then(|| format!("boot-{}", batch / 50)) };
        let targets: Vec<_> = requests.iter().map(cni::locate).collect();
        let replies: Vec<Reply> =
            requests.iter().map(|request| cni::call(request, &mut native_store, &mut clock.clone())).collect();
        succeeded += replies.iter().filter(|reply| reply.exit_status == 0 && !reply.output.is_empty()).count();
        let has_address =
            |reply: &Reply| reply.exit_status == 0 && reply.output.windows(7).any(|part| part == b"address");
        let of_blocks = |request: &Request| request.program == "calico-ipam";
        given_of_blocks +=
            requests.iter().zip(&replies).filter(|(request, reply)| of_blocks(request) && has_address(reply)).count();
        let mut fuel = Vec::new();
        for (instance, store) in components.iter_mut().zip(&mut stores) {
            let context = format!("seed {seed}, batch {batch}: {requests:#?}");
            assert_eq!(instance.locate(&requests).expect("targets"), targets, "{context}");
            let found = instance.call(&requests, store, &mut clock.clone()).expect("replies");
            assert_eq!(found, replies, "{context}");
            assert_eq!(store.dump(), native_store.dump(), "{context}");
            fuel.push(instance.fuel_left());
        }
        assert_eq!(fuel[0], fuel[1], "seed {seed}, batch {batch}: fuel of native and interpreted code");
    }
    assert!(succeeded > CALLS / 10, "only {succeeded} calls gave an address: the traces are worthless");
    assert!(given_of_blocks > CALLS / 50, "only {given_of_blocks} calls gave an address of a block");
    println!(
        "{CALLS} calls, {succeeded} of them with an address or a version, {given_of_blocks} with an address of a block: \
         equal in all forms"
    );
}
