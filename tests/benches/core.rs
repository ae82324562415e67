//! The allocation core in memory, in its three forms: plat-core compiled natively, the component as native code, and the
//! component interpreted. `cargo xtask bench core` runs it.
//!
//! All forms get the same calls on stores of their own, one form right after the other, in an order that changes from
//! round to round; the answers must be equal.
#![allow(missing_docs, reason = "a benchmark has no users")]

use plat_core::cni::{self, Reply, Request};
use plat_core::network::{Keys, Place, Record};
use plat_core::store::{Action, Durability, Expected, Store as _, Write};
use plat_runtime::{Core, Instance};
use plat_stores::clock::SystemClock;
use plat_stores::memory::MemoryStore;
use std::net::Ipv4Addr;
use std::time::Instant;

/// Numbers of held addresses: none, a crowded /20, a /16.
const HELD: &[u32] = &[0, 4_000, 65_000];

/// Calls of one form before the next has its turn.
const CALLS_A_TURN: usize = 20;

/// The subnet: a quarter of it is never more than held.
const SUBNET: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 64, 0, 0), 14);

/// Budget: how much longer than the native core the component may take for a call, in microseconds.
const OVERHEAD_US_MAX: f64 = 8.0;

enum Form {
    Native,
    Component(Box<Instance<'static>>),
}

impl Form {
    fn call(&mut self, request: &Request, store: &mut MemoryStore) -> Reply {
        match self {
            Self::Native => cni::call(request, store, &mut SystemClock),
            Self::Component(instance) => {
                let replies = instance.call(std::slice::from_ref(request), store, &mut SystemClock);
                replies.expect("a reply").pop().expect("one reply")
            }
        }
    }
}

fn request(command: &str, container: &str) -> Request {
    let environment = [
        ("CNI_COMMAND", command),
        ("CNI_CONTAINERID", container),
        ("CNI_NETNS", "/run/netns/none"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_PATH", "/opt/cni/bin"),
    ];
    let mut request = Request {
        program: "host-local".to_owned(),
        environment: environment.map(|(name, value)| (name.into(), value.into())).to_vec(),
        input: format!(
            r#"{{"cniVersion": "1.1.0", "name": "bench", "type": "ptp", "ipam": {{"type": "host-local", "subnet": "{}/{}"}}}}"#,
            SUBNET.0, SUBNET.1
        )
        .into_bytes(),
        deadline_ms: 10_000,
        ..Request::default()
    };
    request.surroundings.working_directory = "/".to_owned();
    request
}

/// A store as it is after so many ADDs.
fn store(held: u32) -> MemoryStore {
    let mut store = MemoryStore::new();
    let keys = Keys::new("bench");
    for index in 0..held {
        let place = format!("address/v4/{:08x}", SUBNET.0.to_bits() + 2 + index);
        let record = Record::owned(&format!("held-{index}"), "eth0", Some("this boot".into()));
        store.seed(&keys, &Place::parse(&place).expect("a place"), &record);
    }
    if held > 0 {
        let last = Ipv4Addr::from_bits(SUBNET.0.to_bits() + 1 + held).to_string();
        let cursor = Write {
            key: keys.key(&Place::Cursor(0)),
            expected: Expected::Absent,
            action: Action::Put(last.into_bytes()),
        };
        store.commit(&[cursor], &[], Durability::Process).expect("a cursor");
    }
    store
}

/// Which call of a turn is looked at.
type Kind = fn(&Turn) -> f64;

/// Microseconds of one ADD and one DEL, each the mean of one turn.
#[derive(Clone, Copy, Default)]
struct Turn {
    add: f64,
    del: f64,
}

fn turn(form: &mut Form, store: &mut MemoryStore, round: usize, replies: &mut Vec<Reply>) -> Turn {
    let mut turn = Turn::default();
    for number in 0..CALLS_A_TURN {
        let container = format!("c-{round}-{number}");
        let (add, del) = (request("ADD", &container), request("DEL", &container));
        let start = Instant::now();
        let added = form.call(&add, store);
        let between = Instant::now();
        let deleted = form.call(&del, store);
        turn.del += between.elapsed().as_secs_f64() * 1e6 / CALLS_A_TURN as f64;
        turn.add += (between - start).as_secs_f64() * 1e6 / CALLS_A_TURN as f64;
        assert_eq!((added.exit_status, deleted.exit_status), (0, 0), "{added:?} {deleted:?}");
        replies.push(added);
    }
    turn
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    // cargo adds --bench.
    let is_quick = std::env::args().any(|argument| argument == "--quick");
    let rounds = if is_quick { 20 } else { 300 };
    let (native_code, interpreted) = (Core::embedded().expect("the core"), Core::interpreted().expect("the core"));
    let titles = ["native", "component", "interpreted"];

    println!(
        "Microseconds for one call, with the store in memory: medians of {rounds} rounds of {CALLS_A_TURN} calls. The budget \
         is what the component may take more than the native core.\n"
    );
    println!("| call      | held   | native | component | ratio | more   | budget  | interpreted | ratio |");
    println!("| --------- | ------ | ------ | --------- | ----- | ------ | ------- | ----------- | ----- |");
    for held in HELD {
        let mut forms = [
            Form::Native,
            Form::Component(Box::new(native_code.instance())),
            Form::Component(Box::new(interpreted.instance())),
        ];
        let mut stores: [MemoryStore; 3] = std::array::from_fn(|_| store(*held));
        let mut turns: [Vec<Turn>; 3] = Default::default();
        // The first round warms up.
        for round in 0..=rounds {
            let mut replies: [Vec<Reply>; 3] = Default::default();
            for step in 0..forms.len() {
                let index = (round + step) % forms.len();
                let turn = turn(&mut forms[index], &mut stores[index], round, &mut replies[index]);
                if round > 0 {
                    turns[index].push(turn);
                }
            }
            for (replies_of, title) in replies.iter().zip(titles) {
                assert_eq!(*replies_of, replies[0], "{title} and native give different answers");
            }
        }
        let kinds: [(&str, Kind); 3] =
            [("ADD", |turn| turn.add), ("DEL", |turn| turn.del), ("ADD + DEL", |turn| turn.add + turn.del)];
        for (kind, time) in kinds {
            let of = |index: usize| median(turns[index].iter().map(time));
            let pairs = |index: usize| turns[0].iter().zip(&turns[index]).map(move |(a, b)| (time(a), time(b)));
            let ratio = |index: usize| median(pairs(index).map(|(native, other)| other / native));
            let more = median(pairs(1).map(|(native, component)| component - native));
            let calls = if kind == "ADD + DEL" { 2.0 } else { 1.0 };
            let most = OVERHEAD_US_MAX * calls;
            let verdict = format!("{most} {}", if more <= most { "ok" } else { "OVER" });
            println!(
                "| {kind:<9} | {held:<6} | {:<6.1} | {:<9.1} | {:<5.2} | {more:<6.1} | {verdict:<7} | {:<11.1} | {:<5.1} |",
                of(0),
                of(1),
                ratio(1),
                of(2),
                ratio(2)
            );
        }
    }

    let started = |core: &'static Core| {
        median((0..rounds).map(|_| {
            let start = Instant::now();
            core.instance().start().expect("an instance");
            start.elapsed().as_secs_f64() * 1e6
        }))
    };
    println!(
        "\nA new instance takes {:.0} microseconds, {:.0} interpreted.",
        started(native_code),
        started(interpreted)
    );
}
