//! A crowd on one SQLite file: 64 processes at once of which some are killed, until 10,000 addresses are given out.
//! Afterwards no address was given twice, none is lost but those of killed calls, and the objects agree.

mod embedded;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use embedded::Embedded;
use plat_tests::call::{Call, End, Reply};
use plat_tests::peers::{self, Installed};
use plat_tests::random::{self, Random};
use serde_json::json;

/// The seed unless `PLAT_SEED` says otherwise.
const SEED: u64 = 3_000;

/// Processes at once.
const CROWD: usize = 64;

/// Addresses that are given out, and held at the same time but for those of DELs.
const ADDRESSES: usize = 10_000;

/// Nodes that the members of the crowd speak for, so that blocks are claimed beside each other and borrowed.
const NODES: usize = 8;

/// Of 100 calls so many are killed.
const KILLED_PERCENT: u64 = 5;

/// Of 100 containers so many are deleted at once.
const DELETED_PERCENT: u64 = 5;

/// A killed call lives at most so long. The crowd waits for one lock most of the time, so that some are killed while
/// they wait, some while they hold it, and some at start.
const KILLED_AFTER_US_MAX: usize = 600_000;

/// The crowd takes about a minute on a machine of two processors; one that hangs is a fault.
const CROWD_SECONDS_MAX: u64 = 600;

const NETWORK: &str = "k8s-pod-network";

/// A plugin and a store.
struct Place {
    ours: Installed,
    store: Embedded,
    _folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("plat-crowd").tempdir().expect("a folder");
        let store = Embedded::at(folder.path().join("ipam.db"));
        let ours = Installed::new(&peers::plat_ipam(), "calico-ipam").expect("a folder for the plugin");
        // 10,240 addresses in 160 blocks: at the end the pool is nearly full, and nodes borrow from each other.
        let pools = [
            embedded::pool("large", &json!({"cidr": "10.64.0.0/19"})),
            embedded::pool("small", &json!({"cidr": "10.65.0.0/21"})),
        ];
        store.put(&pools).expect("a store");
        let limits = embedded::object("IPAMConfiguration", "default", &json!({"maxBlocksPerHost": 160}));
        store.put(&[("config".to_owned(), limits)]).expect("a store");
        Self { ours, store, _folder: folder }
    }

    fn call(&self, command: &str, container: &str, node: usize, extra: &str) -> Call {
        let path = self.store.path().display();
        let input = format!(
            r#"{{"cniVersion":"1.1.0","name":"{NETWORK}","type":"calico","nodename":"n{node}"{extra},"ipam":{{"type":"calico-ipam","store":"sqlite:{path}"}}}}"#
        );
        let mut call = Call::of(self.ours.path(), command, container, "eth0", input);
        // 63 others may be first.
        call.timeout = Duration::from_secs(CROWD_SECONDS_MAX);
        call
    }
}

/// What the members of the crowd saw.
#[derive(Default)]
struct Seen {
    /// How many addresses were given out, repetitions after a DEL counted again.
    given: usize,
    /// Who holds an address, as far as replies tell: from a successful ADD to the start of a DEL.
    holders: BTreeMap<IpAddr, String>,
    /// Containers with a killed call: what they hold is not known.
    killed: BTreeSet<String>,
    /// What must not be.
    faults: Vec<String>,
}

/// The reply, or none if the call was killed before it could give one.
fn call_or_kill(call: &Call, random: &mut Random) -> Option<Reply> {
    let mut running = call.start().expect("the plugin starts");
    if random.percent(KILLED_PERCENT) {
        std::thread::sleep(Duration::from_micros(random.below(KILLED_AFTER_US_MAX) as u64));
        running.kill().expect("a child of ours");
        let reply = running.finish().expect("its end");
        return (reply.end != End::Signal(9)).then_some(reply);
    }
    Some(running.finish().expect("its end"))
}

/// An ADD, and now and then a DEL; false when the crowd is done.
fn container_life(place: &Place, random: &mut Random, container: &str, node: usize, seen: &Mutex<Seen>) -> bool {
    let seen = || seen.lock().expect("no panic");
    let Some(reply) = call_or_kill(&place.call("ADD", container, node, ""), random) else {
        seen().killed.insert(container.to_owned());
        return true;
    };
    let [address] = reply.addresses()[..] else {
        seen().faults.push(format!("ADD of {container}: {reply}"));
        return false;
    };
    {
        let mut seen = seen();
        if let Some(other) = seen.holders.insert(address, container.to_owned()) {
            seen.faults.push(format!("{address} was given to {other} and to {container}"));
        }
        seen.given += 1;
        if seen.given >= ADDRESSES || !seen.faults.is_empty() {
            return false;
        }
    }
    if random.percent(DELETED_PERCENT) {
        seen().holders.remove(&address);
        match call_or_kill(&place.call("DEL", container, node, ""), random) {
            None => {
                seen().killed.insert(container.to_owned());
            }
            Some(reply) if !reply.is_success() => seen().faults.push(format!("DEL of {container}: {reply}")),
            Some(_) => {}
        }
    }
    true
}

fn crowd(place: &Place) -> Seen {
    let seed = random::seed(SEED);
    let seen = Mutex::new(Seen::default());
    std::thread::scope(|scope| {
        for member in 0..CROWD {
            let seen = &seen;
            scope.spawn(move || {
                let random = &mut Random::new(seed, member as u64);
                let lives = (0..ADDRESSES).map(|round| format!("c{member}-{round}"));
                for container in lives {
                    if !container_life(place, random, &container, member % NODES, seen) {
                        break;
                    }
                }
            });
        }
    });
    seen.into_inner().expect("no panic")
}

/// Releases all but what `alive` holds, as each node's runtime does.
fn collect(place: &Place, alive: &BTreeSet<String>) {
    let list: Vec<_> =
        alive.iter().map(|container| format!(r#"{{"containerID":"{container}","ifname":"eth0"}}"#)).collect();
    let list = format!(r#","cni.dev/valid-attachments":[{}]"#, list.join(","));
    for node in 0..NODES {
        let reply = place.call("GC", "", node, &list).run();
        assert!(reply.is_success() && reply.output.is_empty(), "GC of n{node}: {reply}");
    }
}

#[test]
fn a_crowd_with_killed_calls_gets_each_address_once() {
    let place = Place::new();
    let started = Instant::now();
    let seen = crowd(&place);
    let elapsed = started.elapsed();
    assert!(seen.faults.is_empty(), "{}", seen.faults.join("\n"));
    assert!(elapsed < Duration::from_secs(CROWD_SECONDS_MAX), "{elapsed:?}");
    assert!(seen.killed.len() > ADDRESSES / 100, "only {} calls were killed", seen.killed.len());
    let survey = place.store.survey().expect("a readable store");
    assert!(survey.faults.is_empty(), "{}", survey.faults.join("\n"));
    let handle = |container: &str| format!("{NETWORK}.{container}");
    let held: BTreeMap<String, String> = survey.handles();
    for (address, holder) in &seen.holders {
        assert_eq!(held.get(&address.to_string()), Some(&handle(holder)), "{address}, given to {holder} in a reply");
    }
    for (address, holder) in &held {
        let container = holder.strip_prefix(&format!("{NETWORK}.")).unwrap_or_default();
        let lives = address
            .parse()
            .is_ok_and(|address: IpAddr| seen.holders.get(&address).is_some_and(|holder| holder == container));
        assert!(lives || seen.killed.contains(container), "{address} is held by {holder}, neither alive nor killed");
    }
    println!(
        "{} addresses, {} calls killed, {} held at the end in {} blocks, {:.0} s",
        seen.given,
        seen.killed.len(),
        held.len(),
        survey.blocks.len(),
        elapsed.as_secs_f64()
    );
    let alive: BTreeSet<String> = seen.holders.values().cloned().collect();
    collect(&place, &alive);
    let survey = place.store.survey().expect("a readable store");
    assert!(survey.faults.is_empty(), "{}", survey.faults.join("\n"));
    let left: BTreeMap<String, String> =
        seen.holders.iter().map(|(address, holder)| (address.to_string(), handle(holder))).collect();
    assert_eq!(survey.handles(), left, "held after GC, and held by the living");
    collect(&place, &BTreeSet::new());
    let survey = place.store.survey().expect("a readable store");
    assert_eq!((survey.held.len(), survey.faults), (0, Vec::new()), "left after all are dead");
}

#[test]
fn a_crowd_for_few_addresses_gives_each_once() {
    let place = Place::new();
    let path = place.store.path().with_file_name("few.db");
    let store = Embedded::at(path);
    store.put(&[embedded::pool("few", &json!({"cidr": "10.66.0.0/27", "blockSize": 29}))]).expect("a store");
    let place = Place { store, ..place };
    let replies = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for member in 0..CROWD {
            let (place, replies) = (&place, &replies);
            scope.spawn(move || {
                let reply = place.call("ADD", &format!("c{member}"), member % NODES, "").run();
                replies.lock().expect("no panic").push(reply);
            });
        }
    });
    let replies = replies.into_inner().expect("no panic");
    let (won, lost): (Vec<_>, Vec<_>) = replies.iter().partition(|reply| reply.is_success());
    let different: BTreeSet<_> = won.iter().flat_map(|reply| reply.addresses()).collect();
    assert_eq!((won.len(), different.len(), lost.len()), (32, 32, CROWD - 32), "each address once, and none left free");
    for reply in lost {
        let message = "Assigned 0 out of 1 requested IPv4 addresses; No IPs available in pools: [10.66.0.0/27]";
        assert_eq!((reply.code(), reply.message().as_deref()), (Some(999), Some(message)));
    }
    let survey = place.store.survey().expect("a readable store");
    assert_eq!((survey.held.len(), survey.faults), (32, Vec::new()));
}

/// Moments at which one call is killed, from its start to beyond its end.
const MOMENTS: usize = 400;

#[test]
fn a_call_killed_at_any_moment_is_whole_or_nothing() {
    let place = Place::new();
    let pools = [embedded::pool("six", &json!({"cidr": "fd00:64::/112"}))];
    place.store.put(&pools).expect("a store");
    let call = |command: &str, container: &str| {
        let mut call = place.call(command, container, 1, "");
        call.input = String::from_utf8_lossy(&call.input)
            .replace(r#""type":"calico-ipam""#, r#""type":"calico-ipam","assign_ipv6":"true""#)
            .into_bytes();
        call
    };
    let whole = {
        // The second: files are in memory then.
        assert!(call("ADD", "first").run().is_success());
        let started = Instant::now();
        assert!(call("ADD", "second").run().is_success());
        started.elapsed()
    };
    let moment_us = (whole.as_micros() * 3 / (MOMENTS as u128)) as u64;
    let mut killed = 0;
    let mut held = [0, 0];
    for moment in 0..MOMENTS {
        // First ADDs and then, of what these left, DELs.
        let command = if moment < MOMENTS / 2 { "ADD" } else { "DEL" };
        let step = moment % (MOMENTS / 2);
        let container = format!("c{step}");
        if command == "DEL" {
            let reply = call("ADD", &container).run();
            assert_eq!(reply.addresses().len(), 2, "{reply}");
        }
        let mut running = call(command, &container).start().expect("the plugin starts");
        std::thread::sleep(Duration::from_micros(step as u64 * moment_us));
        running.kill().expect("a child of ours");
        killed += usize::from(running.finish().expect("its end").end == End::Signal(9));
        let survey = place.store.survey().expect("a readable store");
        let after = step as u64 * moment_us;
        assert!(survey.faults.is_empty(), "{command} killed after {after} us left {}", survey.faults.join("\n"));
        let count = survey.of_handle(&format!("{NETWORK}.{container}")).len();
        assert!(count == 0 || count == 2, "{command} killed after {after} us left {count}");
        held[moment / (MOMENTS / 2)] += usize::from(count == 2);
    }
    // A claim that was left half done is completed by the next call that needs the block.
    let reply = call("ADD", "after").run();
    assert!(reply.is_success(), "{reply}");
    assert_eq!(place.store.survey().expect("a readable store").half_done, 0);
    assert!(killed > 20, "only {killed} calls were killed");
    let steps = MOMENTS / 2;
    // The moments lie on both sides of the commit.
    assert!((1..steps).contains(&held[0]) && (1..steps).contains(&held[1]), "{held:?} of {steps} held");
}
