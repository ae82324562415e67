//! The `block` strategy in its three forms: plat-core compiled natively, the component as native code, and the component
//! interpreted. `cargo xtask bench block` runs it.
//!
//! What is compared gets its turns one right after the other, in an order that changes from round to round; the answers
//! are checked. With `--count FORM CALLS` it only makes so many calls, for a tool that counts instructions.
#![allow(missing_docs, reason = "a benchmark has no users")]

use plat_core::clock::{Clock as _, Instant as Moment};
use plat_core::ipam::{self, AffinityRelease, Assignment, Call, Error, Granted, Holder};
use plat_core::net::{Address, Family, Prefix};
use plat_core::objects::Block;
use plat_core::objects::keys::block_key;
use plat_core::store::{Action, Durability, Expected, Store, Write};
use plat_runtime::{Core, Instance, Settings};
use plat_stores::clock::SystemClock;
use plat_stores::memory::MemoryStore;
use plat_stores::sqlite::{self, SqliteStore};
use std::time::{Duration, Instant};

/// Budget: the component's time by the native core's, for an assignment and its release.
const COMPONENT_RATIO_MAX: f64 = 1.5;

/// Budget: a claim in a pool of 2^20 blocks with one left, by one in the empty pool.
const LAST_BLOCK_RATIO_MAX: f64 = 3.0;

/// Calls of one form before the next has its turn.
const CALLS_A_TURN: usize = 20;

/// Blocks of the large pool, and their length; the pool is 10.0.0.0/8.
const LARGE: (u32, u8) = (1 << 20, 28);

/// Blocks that are written at once when a store is made.
const SEED_BLOCKS: usize = 4_096;

/// Items of the large batch: as many as a call may hold.
const BATCH: usize = 10_000;

enum Form {
    Native,
    Component(Box<Instance<'static>>),
}

impl Form {
    fn all() -> [Self; 3] {
        ["native", "component", "interpreted"].map(|name| Self::named(name).expect("a form"))
    }

    fn named(name: &str) -> Option<Self> {
        let of = |core: &'static Core| Self::Component(Box::new(core.instance()));
        match name {
            "native" => Some(Self::Native),
            "component" => Some(of(Core::embedded().expect("the core"))),
            "interpreted" => Some(of(Core::interpreted().expect("the core"))),
            _ => None,
        }
    }

    fn assign(&mut self, items: &[Assignment], store: &mut dyn Store) -> Vec<Granted> {
        match self {
            Self::Native => ipam::assign(&mut call(store, &mut SystemClock), items),
            Self::Component(instance) => {
                instance.assign(&Settings::new("bench"), items, store, &mut SystemClock).expect("an answer")
            }
        }
    }

    fn release(&mut self, handle: &str, store: &mut dyn Store) -> Vec<Address> {
        let handles = [handle.to_owned()];
        let mut answers = match self {
            Self::Native => ipam::release_by_handle(&mut call(store, &mut SystemClock), &handles),
            Self::Component(instance) => instance
                .release_by_handle(&Settings::new("bench"), &handles, store, &mut SystemClock)
                .expect("an answer"),
        };
        answers.pop().expect("one answer").expect("a release")
    }
}

fn call<'a>(store: &'a mut dyn Store, clock: &'a mut SystemClock) -> Call<'a> {
    Call { store, clock, deadline_ms: 60_000, attempt: 0, why: "bench" }
}

/// A request as the CNI front makes it for a pod.
fn item(container: &str, node: &str) -> Assignment {
    let mut item = Assignment::new(Holder::Host(node.to_owned()), 1, 0);
    item.handle = Some(format!("k8s-pod-network.{container:0>64}"));
    item.per_handle_max = Some(1);
    let attributes = [
        ("namespace", "default"),
        ("node", node),
        ("pod", "web-5d8f7b9c6d-abcde"),
        ("timestamp", "2026-09-01 10:00:00.123456789 +0000 UTC"),
    ];
    item.attributes = attributes.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    item
}

fn handle(item: &Assignment) -> &str {
    item.handle.as_deref().expect("a handle")
}

fn put(store: &mut dyn Store, entries: impl IntoIterator<Item = (String, Vec<u8>)>) {
    let write = |(key, value)| Write { key, expected: Expected::Absent, action: Action::Put(value) };
    let batch: Vec<Write> = entries.into_iter().map(write).collect();
    store.commit(&batch, &[], Durability::Process).expect("a commit");
}

fn put_pool(store: &mut dyn Store, name: &str, cidr: &str, length: u8) {
    let value = format!(
        r#"{{"kind":"IPPool","apiVersion":"projectcalico.org/v3","metadata":{{"name":"{name}"}},"spec":{{"cidr":"{cidr}","blockSize":{length},"nodeSelector":"all()"}}}}"#
    );
    put(store, [(format!("pool/{name}"), value.into_bytes())]);
}

fn put_configuration(store: &mut dyn Store, spec: &str) {
    let value = format!(
        r#"{{"kind":"IPAMConfiguration","apiVersion":"projectcalico.org/v3","metadata":{{"name":"default"}},"spec":{spec}}}"#
    );
    put(store, [("config".to_owned(), value.into_bytes())]);
}

/// A block of another host, of which so many addresses are free.
fn foreign(prefix: Prefix, free: u32, now: Moment) -> (String, Vec<u8>) {
    let mut block = Block::new(prefix, &Holder::Host("another".into()), now, 1, None);
    block.take(block.size() - free, Some("held"), &Default::default(), &mut |_| false);
    (block_key(prefix), block.to_bytes())
}

/// The slice of a pool with this index.
fn slice(first: [u8; 4], length: u8, index: u32) -> Prefix {
    let bits = u32::from_be_bytes(first) + (index << (32 - length));
    Prefix::new(Address::new(Family::V4, bits.into()).expect("an address"), length).expect("a prefix")
}

/// A store with one pool.
fn store() -> MemoryStore {
    let mut store = MemoryStore::new();
    put_pool(&mut store, "pool", "10.0.0.0/16", 26);
    store
}

/// Microseconds of assignments and releases, the mean of a turn.
#[derive(Clone, Copy, Default)]
struct Turn {
    assign: f64,
    release: f64,
}

fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn turn(form: &mut Form, store: &mut dyn Store, round: usize, calls: usize, addresses: &mut Vec<Address>) -> Turn {
    let mut turn = Turn::default();
    for number in 0..calls {
        let item = item(&format!("{round}-{number}"), "node-1");
        let start = Instant::now();
        let granted = form.assign(std::slice::from_ref(&item), store);
        let between = Instant::now();
        let released = form.release(handle(&item), store);
        turn.release += microseconds(between.elapsed()) / calls as f64;
        turn.assign += microseconds(between - start) / calls as f64;
        assert_eq!((granted[0].grants.len(), &granted[0].failed), (1, &None));
        assert_eq!(released, [granted[0].grants[0].address]);
        addresses.extend(released);
    }
    turn
}

fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn ratio(of: &[f64], to: &[f64]) -> f64 {
    median(of.iter().zip(to).map(|(of, to)| of / to))
}

fn verdict(ratio: f64, most: f64) -> String {
    format!("{most} {}", if ratio <= most { "ok" } else { "OVER" })
}

/// Assignments and releases in all forms on stores of their own.
fn forms(title: &str, stores: &mut [Box<dyn Store>; 3], rounds: usize, calls: usize, held: u32) {
    let mut forms = Form::all();
    for (form, store) in forms.iter_mut().zip(stores.iter_mut()) {
        // One block of the node is there, this full.
        let items: Vec<Assignment> = (0..held.max(1)).map(|index| item(&format!("held-{index}"), "node-1")).collect();
        assert!(form.assign(&items, &mut **store).iter().all(|granted| granted.grants.len() == 1));
    }
    let mut turns: [Vec<Turn>; 3] = Default::default();
    // The first round warms up.
    for round in 0..=rounds {
        let mut addresses: [Vec<Address>; 3] = Default::default();
        for step in 0..3 {
            let index = (round + step) % 3;
            let turn = turn(&mut forms[index], &mut *stores[index], round, calls, &mut addresses[index]);
            if round > 0 {
                turns[index].push(turn);
            }
        }
        assert!(addresses.iter().all(|found| *found == addresses[0]), "the forms give different answers");
    }
    type Kind = fn(&Turn) -> f64;
    let kinds: [(&str, Kind); 3] =
        [("assign", |turn| turn.assign), ("release", |turn| turn.release), ("both", |turn| turn.assign + turn.release)];
    for (kind, time) in kinds {
        let times = turns.each_ref().map(|turns| turns.iter().map(time).collect::<Vec<f64>>());
        let [native, component, interpreted] = times.each_ref().map(|times| median(times.iter().copied()));
        let component_ratio = ratio(&times[1], &times[0]);
        let budget = if kind == "both" && title == "memory" {
            verdict(component_ratio, COMPONENT_RATIO_MAX)
        } else {
            String::new()
        };
        println!(
            "| {title:<6} | {held:<4} | {kind:<7} | {native:<6.1} | {component:<9.1} | {component_ratio:<5.2} | {budget:<8} | {interpreted:<11.1} | {:<5.1} |",
            ratio(&times[2], &times[0])
        );
    }
}

/// The claim of a block in a pool of 2^20 blocks, and the assignment from it, in stores that differ in what is claimed.
fn large(rounds: usize) {
    let (count, length) = LARGE;
    let now = SystemClock.now();
    let free = count / 3;
    let claimed: [(&str, &dyn Fn(u32) -> bool); 3] =
        [("none", &|_| false), ("every other", &|index| index % 2 == 0), ("all but one", &|index| index != free)];
    let mut stores = claimed.map(|(_, is_claimed)| {
        let mut store = MemoryStore::new();
        put_pool(&mut store, "pool", "10.0.0.0/8", length);
        let indexes: Vec<u32> = (0..count).filter(|index| is_claimed(*index)).collect();
        for chunk in indexes.chunks(SEED_BLOCKS) {
            put(&mut store, chunk.iter().map(|index| foreign(slice([10, 0, 0, 0], length, *index), 0, now)));
        }
        store
    });
    let mut forms = [Form::named("native").expect("a form"), Form::named("component").expect("a form")];
    let mut times: [[Vec<f64>; 2]; 3] = Default::default();
    for round in 0..=rounds {
        for step in 0..3 {
            let index = (round + step) % 3;
            for (form, times) in forms.iter_mut().zip(&mut times[index]) {
                // Another host each time, whose search begins elsewhere.
                let item = item(&format!("c-{round}"), &format!("node-{round}"));
                let start = Instant::now();
                let granted = form.assign(std::slice::from_ref(&item), &mut stores[index]);
                let spent = microseconds(start.elapsed());
                assert_eq!(granted[0].grants.len(), 1, "{granted:?}");
                if round > 0 {
                    times.push(spent);
                }
                form.release(handle(&item), &mut stores[index]);
                let all = AffinityRelease {
                    holder: Some(item.holder.clone()),
                    within: None,
                    must_be_empty: true,
                    sequence: None,
                };
                let released = ipam::release_affinities(&mut call(&mut stores[index], &mut SystemClock), &[all]);
                assert!(released[0].as_ref().is_ok_and(|blocks| blocks.len() == 1), "{released:?}");
            }
        }
    }
    println!(
        "\nThe first address of a host, with the claim of its block, in a pool of 2^20 blocks; {rounds} rounds:\n"
    );
    println!("| blocks claimed | native | to none | budget   | component | to none |");
    println!("| -------------- | ------ | ------- | -------- | --------- | ------- |");
    for (index, (title, _)) in claimed.iter().enumerate() {
        let [native, component] = times[index].each_ref().map(|times| median(times.iter().copied()));
        let ratios = [0, 1].map(|form| ratio(&times[index][form], &times[0][form]));
        let budget = if index == 2 { verdict(ratios[0].max(ratios[1]), LAST_BLOCK_RATIO_MAX) } else { String::new() };
        println!(
            "| {title:<14} | {native:<6.1} | {:<7.2} | {budget:<8} | {component:<9.1} | {:<7.2} |",
            ratios[0], ratios[1]
        );
    }
}

/// What a case does: an assignment, and whatever makes the store as it was.
type Case = (&'static str, MemoryStore, fn(&Granted) -> bool);

/// Stores that make an assignment costly, each beside the usual one.
fn hard(rounds: usize) {
    let now = SystemClock.now();
    let granted: fn(&Granted) -> bool = |granted| granted.grants.len() == 1;
    let mut many = MemoryStore::new();
    for index in 0..250u32 {
        put_pool(&mut many, &format!("pool-{index:03}"), &format!("10.{index}.0.0/16"), 26);
    }
    let mut last = MemoryStore::new();
    for index in 0..250u8 {
        put_pool(&mut last, &format!("pool-{index:03}"), &format!("10.{index}.0.0/26"), 26);
        if index < 249 {
            put(&mut last, [foreign(slice([10, index, 0, 0], 26, 0), 0, now)]);
        }
    }
    let full = |free: u32| {
        let mut store = store();
        put(
            &mut store,
            (0..1024).map(|index| foreign(slice([10, 0, 0, 0], 26, index), if index == 700 { free } else { 0 }, now)),
        );
        store
    };
    let cases: [Case; 5] = [
        ("1 pool", store(), granted),
        ("250 pools, the first serves", many, granted),
        ("250 pools, the last serves", last, granted),
        ("1,024 blocks full, 1 address to borrow", full(1), granted),
        ("1,024 blocks full, refused", full(0), |granted| matches!(granted.failed, Some(Error::Exhausted { .. }))),
    ];
    let mut cases: Vec<_> =
        cases.into_iter().map(|(title, store, check)| (title, [store.clone(), store], check)).collect();
    let mut forms = [Form::named("native").expect("a form"), Form::named("component").expect("a form")];
    let mut times = vec![[Vec::new(), Vec::new()]; cases.len()];
    for round in 0..=rounds {
        for step in 0..cases.len() {
            let index = (round + step) % times.len();
            let (title, stores, is_right) = &mut cases[index];
            for (form, (store, times)) in forms.iter_mut().zip(stores.iter_mut().zip(&mut times[index])) {
                let item = item(&format!("c-{round}"), "node-1");
                let start = Instant::now();
                let granted = form.assign(std::slice::from_ref(&item), store).pop().expect("an answer");
                let spent = microseconds(start.elapsed());
                assert!(is_right(&granted), "{title}: {granted:?}");
                if !granted.grants.is_empty() {
                    form.release(handle(&item), store);
                }
                if round > 0 {
                    times.push(spent);
                }
            }
        }
    }
    println!("\nOne assignment, {rounds} rounds; the host has a block already where it can:\n");
    println!("| store                                  | native | to 1 pool | component | to native |");
    println!("| -------------------------------------- | ------ | --------- | --------- | --------- |");
    for ((title, ..), [native, component]) in cases.iter().zip(&times) {
        println!(
            "| {title:<38} | {:<6.0} | {:<9.2} | {:<9.0} | {:<9.2} |",
            median(native.iter().copied()),
            ratio(native, &times[0][0]),
            median(component.iter().copied()),
            ratio(component, native)
        );
    }
}

/// One call with as many items as it may hold, beside as many calls.
fn batch(rounds: usize) {
    let items: Vec<Assignment> = (0..BATCH).map(|index| item(&format!("b-{index}"), "node-1")).collect();
    let mut empty = store();
    put_configuration(&mut empty, r#"{"maxBlocksPerHost":1000}"#);
    let mut times: [[Vec<f64>; 2]; 2] = Default::default();
    for _ in 0..rounds {
        for (form, times) in ["native", "component"].into_iter().zip(&mut times) {
            let (mut together, mut alone) = (empty.clone(), empty.clone());
            let mut form = Form::named(form).expect("a form");
            let start = Instant::now();
            let granted = form.assign(&items, &mut together);
            times[0].push(microseconds(start.elapsed()) / BATCH as f64);
            assert!(granted.iter().all(|granted| granted.grants.len() == 1));
            let start = Instant::now();
            for item in &items {
                assert_eq!(form.assign(std::slice::from_ref(item), &mut alone)[0].grants.len(), 1);
            }
            times[1].push(microseconds(start.elapsed()) / BATCH as f64);
        }
    }
    println!("\n{BATCH} assignments for one host, microseconds for each; {rounds} rounds:\n");
    println!("| form      | in one call | one by one | ratio |");
    println!("| --------- | ----------- | ---------- | ----- |");
    for (title, [together, alone]) in ["native", "component"].into_iter().zip(&times) {
        println!(
            "| {title:<9} | {:<11.1} | {:<10.1} | {:<5.2} |",
            median(together.iter().copied()),
            median(alone.iter().copied()),
            ratio(together, alone)
        );
    }
}

/// Makes so many calls, for a tool that counts instructions.
fn count(form: &str, calls: usize) {
    let mut form = Form::named(form).expect("native, component or interpreted");
    let mut store = store();
    // The first makes the block, and whatever is made once.
    turn(&mut form, &mut store, 0, 1 + calls, &mut Vec::new());
}

/// Instructions that a run of [`count`] takes in all; none if there is no tool.
fn counted(form: &str, calls: usize) -> Option<f64> {
    let program = std::env::current_exe().expect("this program");
    let output = std::process::Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(["--count", form, &calls.to_string()])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    let collected = text.lines().find_map(|line| line.split_once("Collected :"));
    Some(collected.expect("a count").1.trim().parse().expect("a number"))
}

/// Instructions of an assignment with its release: what more calls add to a run.
fn instructions() {
    const CALLS: [usize; 2] = [50, 250];
    let of = |form| {
        let [few, many] = CALLS.map(|calls| counted(form, calls));
        Some((many? - few?) / (CALLS[1] - CALLS[0]) as f64)
    };
    let (Some(native), Some(component), Some(interpreted)) = (of("native"), of("component"), of("interpreted")) else {
        println!("\nInstructions are not counted: there is no valgrind.");
        return;
    };
    println!("\nInstructions of an assignment with its release in memory, as callgrind counts them:\n");
    println!("| form        | instructions | ratio |");
    println!("| ----------- | ------------ | ----- |");
    for (form, count) in [("native", native), ("component", component), ("interpreted", interpreted)] {
        println!("| {form:<11} | {count:<12.0} | {:<5.2} |", count / native);
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "--count") {
        let calls = arguments.get(at + 2).and_then(|calls| calls.parse().ok()).expect("--count FORM CALLS");
        return count(&arguments[at + 1], calls);
    }
    // cargo adds --bench.
    let is_quick = arguments.iter().any(|argument| argument == "--quick");
    let rounds = if is_quick { 20 } else { 300 };
    println!(
        "Microseconds for one call: medians of {rounds} rounds of {CALLS_A_TURN} calls ({} with SQLite), for a node with one block in \
         which so many of 64 addresses are held.\n",
        CALLS_A_TURN / 4
    );
    println!("| store  | held | call    | native | component | ratio | budget   | interpreted | ratio |");
    println!("| ------ | ---- | ------- | ------ | --------- | ----- | -------- | ----------- | ----- |");
    for held in [1, 60] {
        let mut stores: [Box<dyn Store>; 3] = std::array::from_fn(|_| Box::new(store()) as Box<dyn Store>);
        forms("memory", &mut stores, rounds, CALLS_A_TURN, held);
    }
    // Not the usual temporary folder, which is memory on many machines.
    let folder = tempfile::Builder::new().prefix("plat-bench-").tempdir_in("/var/tmp").expect("a folder");
    let options = sqlite::Options { exclusive: true, lock_wait_max: Duration::from_secs(10), create: true };
    let mut stores: [Box<dyn Store>; 3] = std::array::from_fn(|index| {
        let mut store = SqliteStore::new(folder.path().join(format!("{index}.db")), options.clone());
        put_pool(&mut store, "pool", "10.0.0.0/16", 26);
        Box::new(store) as Box<dyn Store>
    });
    forms("SQLite", &mut stores, rounds, CALLS_A_TURN / 4, 1);
    instructions();
    large(rounds);
    hard(rounds);
    batch(if is_quick { 1 } else { 5 });
}
