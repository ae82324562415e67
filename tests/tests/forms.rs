//! The three forms of the core (compiled natively, the component as native code, the component interpreted) give the
//! same replies and leave the same bytes in the store, on the same 5,000 calls; so do the typed operations.
#![allow(missing_docs, reason = "a test has no users")]

mod embedded;

use plat_core::clock::{Clock, Instant};
use plat_core::cni::{self, Reply, Request};
use plat_core::ipam::{
    self, AffinityRelease, Assignment, Attributes, BlockDemand, Edges, Granted, Holder, OwnerChange, Release,
    SlotChange, SlotPrecondition, Specific, Use,
};
use plat_core::net::{Address, Family, Prefix};
use plat_core::network::{Keys, Place, Record};
use plat_core::resources::{self, Kind, Mode};
use plat_core::store::{Action, Durability, Expected, Store as _, Write};
use plat_runtime::{CallError, Core, Instance, Settings};
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

/// Rounds of typed operations on one store.
const ROUNDS: usize = 400;

/// The three forms on typed operations, each with a store of its own.
struct Forms {
    native: MemoryStore,
    components: [(Instance<'static>, MemoryStore); 2],
    settings: Settings,
    clock: Fixed,
    /// How to get the trace again.
    context: String,
}

impl Forms {
    fn new(store: &MemoryStore) -> Self {
        let of = |core: &'static Core| (core.instance(), store.clone());
        Self {
            native: store.clone(),
            components: [of(Core::embedded().expect("the core")), of(Core::interpreted().expect("the core"))],
            settings: Settings::new("a test"),
            clock: Fixed { seconds: 1_790_000_000, boot: None },
            context: String::new(),
        }
    }

    /// Runs an operation in all forms; they must agree on the answer, the store and the fuel.
    fn agree<T: PartialEq + std::fmt::Debug>(
        &mut self,
        what: &str,
        native: impl FnOnce(&mut ipam::Call<'_>) -> T,
        component: impl Fn(&mut Instance<'_>, &Settings, &mut MemoryStore, &mut Fixed) -> Result<T, CallError>,
    ) -> T {
        let context = format!("{}, {what}", self.context);
        let mut clock = self.clock.clone();
        let answer = native(&mut ipam::Call {
            store: &mut self.native,
            clock: &mut clock,
            deadline_ms: self.settings.deadline_ms,
            attempt: self.settings.attempt,
            why: &self.settings.why,
        });
        let mut fuel = Vec::new();
        for (instance, store) in &mut self.components {
            let found = component(instance, &self.settings, store, &mut self.clock.clone());
            assert_eq!(found.expect("an answer"), answer, "{context}");
            assert_eq!(store.dump(), self.native.dump(), "{context}");
            assert!(store.events().eq(self.native.events()), "{context}: the journals differ");
            fuel.push(instance.fuel_left().expect("an instance that answered"));
        }
        assert_eq!(fuel[0], fuel[1], "{context}: fuel of native and interpreted code");
        answer
    }
}

/// Runs an operation that takes items in all forms.
macro_rules! agree {
    ($forms:ident, $name:ident, $items:expr) => {
        agree!($forms, $name, $items, ipam::$name)
    };
    ($forms:ident, $name:ident, $items:expr, $native:path) => {{
        let items = $items;
        $forms.agree(
            &format!("{} {items:?}", stringify!($name)),
            |call| $native(call, &items),
            |instance, settings, store, clock| instance.$name(settings, &items, store, clock),
        )
    }};
}

const NODES: [&str; 4] = ["n1", "n2", "a node/with ugly%characters", "n4"];

fn holder(random: &mut Random) -> Holder {
    if random.percent(10) {
        return Holder::Virtual("load-balancer".into());
    }
    Holder::Host((*random.pick(&NODES)).into())
}

fn attributes(random: &mut Random) -> Attributes {
    let mut attributes = Attributes::new();
    if random.percent(80) {
        attributes.insert("namespace".into(), (*random.pick(&["default", "kube-system"])).into());
        attributes.insert("pod".into(), format!("pod-{}", random.below(20)));
    }
    attributes
}

fn handle(random: &mut Random) -> String {
    format!("net.c{}", random.below(40))
}

fn edges(random: &mut Random) -> Option<Edges> {
    random.percent(5).then(|| Edges { first: 2, last: 1, handle: "windows".into(), note: "kept".into() })
}

fn assignment(random: &mut Random) -> Assignment {
    let (v4, v6) = *random.pick(&[(1, 0), (1, 0), (0, 1), (1, 1), (3, 0), (0, 2), (40, 0), (0, 0)]);
    let mut item = Assignment::new(holder(random), v4, v6);
    item.handle = random.percent(90).then(|| handle(random));
    item.attributes = attributes(random);
    item.purpose = *random.pick(&[Use::Workload, Use::Workload, Use::Workload, Use::Tunnel, Use::LoadBalancer]);
    item.per_handle_max = random.percent(30).then(|| random.below(3) as u32);
    item.namespace = random.percent(30).then(|| "default".into());
    item.v4_pools =
        if random.percent(15) { vec![(*random.pick(&["small", "10.9.0.0/28", "none"])).into()] } else { vec![] };
    item.blocks_max = random.percent(10).then_some(2);
    item.addresses_max = random.percent(10).then_some(5);
    item.v4_edges = edges(random);
    item.avoid = if random.percent(20) { vec![address(random)] } else { vec![] };
    item.avoid_pool_edges = random.percent(20);
    item.partial = random.percent(20);
    item
}

fn address(random: &mut Random) -> Address {
    let text = match random.below(4) {
        0 => format!("10.9.0.{}", random.below(20)),
        1 => format!("10.8.0.{}", random.below(256)),
        2 => format!("fd00:8::{:x}", random.below(40)),
        _ => "192.0.2.1".to_owned(),
    };
    Address::parse(&text).expect("an address")
}

fn prefix(random: &mut Random) -> Prefix {
    let prefixes =
        ["10.9.0.0/28", "10.9.0.0/30", "10.8.0.0/27", "10.8.0.64/26", "fd00:8::/122", "fd00:8::/120", "0.0.0.0/0"];
    Prefix::parse(prefixes[random.below(prefixes.len())]).expect("a prefix")
}

fn documents(random: &mut Random) -> Vec<Vec<u8>> {
    let v3 = "projectcalico.org/v3";
    let pool =
        |name: &str, spec: Value| json!({"kind": "IPPool", "apiVersion": v3, "metadata": {"name": name}, "spec": spec});
    let choices = [
        pool("small", json!({"cidr": "10.9.0.0/28", "blockSize": 30, "allowedUses": ["Workload", "LoadBalancer"]})),
        pool("small", json!({"cidr": "10.9.0.0/28", "blockSize": 30, "disabled": true})),
        pool("v4", json!({"cidr": "10.8.0.0/24", "blockSize": 27, "nodeSelector": "all()"})),
        pool("v6", json!({"cidr": "fd00:8::/120", "blockSize": 124})),
        pool("overlapping", json!({"cidr": "10.8.0.0/25"})),
        pool("ill", json!({"cidr": "10.7.0.0/33", "blocksize": 26})),
        json!({"kind": "IPReservation", "apiVersion": v3, "metadata": {"name": "r"}, "spec": {"reservedCIDRs": ["10.8.0.3/32", "10.8.0.32/27"]}}),
        json!({"kind": "IPAMConfiguration", "apiVersion": v3, "metadata": {"name": "default"},
               "spec": {"strictAffinity": random.percent(50), "autoAllocateBlocks": true, "maxBlocksPerHost": random.below(4)}}),
        json!({"kind": "IPAMConfiguration", "apiVersion": v3, "metadata": {"name": "default"},
               "spec": {"strictAffinity": false, "autoAllocateBlocks": true, "ipCooldownSeconds": 30}}),
    ];
    let mut documents = vec![serde_json::to_vec(random.pick(&choices)).expect("JSON")];
    if random.percent(5) {
        documents.push(b"{\"kind\": ".to_vec());
    }
    documents
}

/// One random operation; says how many addresses it gave.
fn operate(forms: &mut Forms, random: &mut Random, granted: &mut Vec<(Address, u64)>) -> usize {
    let some = |random: &mut Random| 1 + random.below(3);
    let mut given = 0;
    match random.below(20) {
        0..7 => {
            let items: Vec<_> = (0..some(random)).map(|_| assignment(random)).collect();
            let answers: Vec<Granted> = agree!(forms, assign, items);
            for grant in answers.iter().flat_map(|answer| &answer.grants) {
                granted.push((grant.address, grant.sequence));
                given += 1;
            }
            for answer in answers.iter().filter(|answer| answer.failed.is_some()) {
                for (instance, _) in &mut forms.components {
                    assert_eq!(instance.explanation(answer).expect("a text"), ipam::text(answer));
                }
            }
        }
        7 => {
            let item = |random: &mut Random| Specific {
                address: address(random),
                handle: random.percent(80).then(|| handle(random)),
                holder: holder(random),
                purpose: random.percent(50).then_some(Use::Workload),
                attributes: attributes(random),
                per_handle_max: random.percent(20).then_some(1),
                edges: edges(random),
            };
            let items: Vec<_> = (0..some(random)).map(|_| item(random)).collect();
            given += agree!(forms, assign_ip, items).iter().filter(|answer| answer.is_ok()).count();
        }
        8 | 9 => {
            let item = |random: &mut Random, granted: &[(Address, u64)]| {
                let (address, sequence) =
                    if granted.is_empty() || random.percent(10) { (address(random), 7) } else { *random.pick(granted) };
                Release {
                    address,
                    handle: random.percent(10).then(|| handle(random)),
                    sequence: random.percent(40).then_some(sequence),
                }
            };
            let items: Vec<_> = (0..some(random)).map(|_| item(random, granted)).collect();
            agree!(forms, release, items);
        }
        10 => {
            let items: Vec<_> = (0..some(random)).map(|_| handle(random)).collect();
            agree!(forms, release_by_handle, items);
        }
        11 => {
            let items: Vec<_> = (0..some(random)).map(|_| handle(random)).collect();
            agree!(forms, addresses_by_handle, items);
        }
        12 => {
            let change = |random: &mut Random| match random.below(3) {
                0 => SlotChange::Keep,
                1 => SlotChange::Clear,
                _ => SlotChange::Set(attributes(random)),
            };
            let must = |random: &mut Random| match random.below(4) {
                0 => SlotPrecondition::Empty,
                1 => SlotPrecondition::OwnedBy { namespace: "default".into(), pod: "pod-1".into() },
                _ => SlotPrecondition::Any,
            };
            let address = granted.last().map_or_else(|| address(random), |(address, _)| *address);
            let items = vec![OwnerChange {
                address,
                handle: handle(random),
                active: change(random),
                alternate: change(random),
                active_must_be: must(random),
                alternate_must_be: must(random),
            }];
            agree!(forms, set_owner_attributes, items);
        }
        13 => {
            let items = vec![(holder(random), prefix(random))];
            agree!(forms, claim_affinities, items);
        }
        14 => {
            let items = vec![AffinityRelease {
                holder: random.percent(80).then(|| holder(random)),
                within: random.percent(80).then(|| prefix(random)),
                must_be_empty: random.percent(50),
                sequence: random.percent(10).then_some(3),
            }];
            agree!(forms, release_affinities, items);
        }
        15 => {
            let family = *random.pick(&[Family::V4, Family::V6]);
            let items = vec![BlockDemand { holder: holder(random), family, pools: vec![], edges: edges(random) }];
            agree!(forms, ensure_block, items);
        }
        16 if random.percent(30) => {
            let items = vec![holder(random)];
            agree!(forms, remove_host, items);
        }
        16 | 17 => {
            let pools: Vec<String> = if random.percent(50) { vec![] } else { vec!["small".into()] };
            agree!(forms, utilization, pools).expect("a store that answers");
            let items: Vec<_> = (0..some(random)).map(|_| address(random)).collect();
            agree!(forms, holders, items, ipam::held);
            let items = vec![assignment(random)];
            agree!(forms, explain, items);
        }
        18 => {
            let documents = documents(random);
            let (mode, is_dry) =
                (*random.pick(&[Mode::Apply, Mode::Apply, Mode::Create, Mode::Update]), random.percent(20));
            forms.agree(
                &format!("apply {documents:?}"),
                |call| resources::apply_bytes(call, &documents, mode, is_dry),
                |instance, settings, store, clock| instance.apply(settings, &documents, mode, is_dry, store, clock),
            );
        }
        _ => {
            let kind = *random.pick(&[Kind::Pool, Kind::Reservation, Kind::Configuration]);
            let name = *random.pick(&["small", "v4", "r", "default", "none"]);
            forms
                .agree(
                    &format!("get {name}"),
                    |call| resources::get(call, kind, name),
                    |instance, settings, store, clock| instance.resource(settings, kind, name, store, clock),
                )
                .expect("a store that answers");
            forms
                .agree(
                    "list",
                    |call| resources::list(call, kind),
                    |instance, settings, store, clock| instance.resources(settings, kind, store, clock),
                )
                .expect("a store that answers");
            let (force, is_dry) = (random.percent(20), random.percent(70));
            forms.agree(
                &format!("delete {name}"),
                |call| resources::delete(call, kind, name, force, is_dry),
                |instance, settings, store, clock| instance.delete(settings, kind, name, force, is_dry, store, clock),
            );
        }
    }
    given
}

/// On a store that commits many keys at once and on one that commits single keys.
#[test]
fn all_forms_agree_on_typed_operations() {
    let seed = random::seed(2026);
    for (number, atomic_writes) in [(1, 1), (2, 3), (3, 1 << 16)] {
        let mut random = Random::new(seed, number);
        let mut forms = Forms::new(&MemoryStore::with_atomic_writes(atomic_writes));
        let (mut granted, mut given) = (Vec::new(), 0);
        let pools: Vec<Vec<u8>> =
            [("v4", "10.8.0.0/24", 27), ("v6", "fd00:8::/120", 124), ("small", "10.9.0.0/28", 30)]
                .map(|(name, cidr, length)| {
                    json!({"kind": "IPPool", "apiVersion": "projectcalico.org/v3", "metadata": {"name": name},
                       "spec": {"cidr": cidr, "blockSize": length}})
                })
                .iter()
                .map(|pool| serde_json::to_vec(pool).expect("JSON"))
                .collect();
        let outcomes = forms.agree(
            "the pools",
            |call| resources::apply_bytes(call, &pools, Mode::Create, false),
            |instance, settings, store, clock| instance.apply(settings, &pools, Mode::Create, false, store, clock),
        );
        assert!(outcomes.iter().all(|outcome| outcome.done.is_ok()), "{outcomes:?}");
        for round in 0..ROUNDS {
            forms.context = format!("seed {seed}, {atomic_writes} atomic writes, round {round}");
            forms.clock.seconds += random.below(20) as u64;
            forms.settings.attempt = random.below(3) as u32;
            given += operate(&mut forms, &mut random, &mut granted);
        }
        assert!(given > ROUNDS / 5, "only {given} addresses were given: the traces are worthless");
        println!("{atomic_writes} atomic writes: {ROUNDS} operations, {given} addresses: equal in all forms");
    }
}
