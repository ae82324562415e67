//! Prints what an ADD costs inside the directory store, with some numbers of addresses held: `cargo run --release -p
//! plat-stores --example add_cost`. With a folder and a number of addresses as arguments it makes one such ADD, so
//! that `strace -c` can count its system calls.

use plat_core::net::{Address, Family};
use plat_core::network::{Keys, Place, Record};
use plat_core::store::{Action, Durability, Event, Expected, Store, Write};
use plat_stores::directory::{DirectoryStore, Options};
use std::path::Path;
use std::time::{Duration, Instant};

const NETWORK: &str = "net";
const ROUNDS: u32 = 600;

fn address(number: u32) -> Address {
    Address::new(Family::V4, 0x0a00_0000 + u128::from(number)).expect("32 bits")
}

fn container(number: u32) -> String {
    format!("{:064x}", u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

fn fill(data_dir: &Path, count: u32) {
    let folder = data_dir.join(NETWORK);
    std::fs::create_dir_all(&folder).expect("the folder can be made");
    for number in 0..count {
        let content = format!("{}\r\neth0", container(number));
        std::fs::write(folder.join(address(number).to_string()), content).expect("a file can be written");
    }
}

/// What the core asks of a store for an ADD: owner, cursor, some candidates, how full the range is; then one commit.
fn add(data_dir: &Path, number: u32, options: &Options) {
    let keys = Keys::new(NETWORK);
    let mut store = DirectoryStore::new(data_dir.to_owned(), NETWORK.to_owned(), options.clone());
    let owner = keys.key(&Place::Owner { container: container(number), ifname: "eth0".into() });
    let cursor = keys.key(&Place::Cursor(0));
    let found = store.read(&[owner.clone(), cursor.clone()], true).expect("reading works");
    assert!(found[0].is_none());
    let candidate = keys.key(&Place::Address(address(number)));
    assert!(store.read(std::slice::from_ref(&candidate), true).expect("reading works")[0].is_none());
    let expected = found[1].as_ref().map_or(Expected::Absent, |entry| Expected::At(entry.version.clone()));
    let record = Record::owned(&container(number), "eth0", options.boot_id.clone());
    let batch = [
        Write { key: owner, expected: Expected::Absent, action: Action::Check },
        Write { key: candidate.clone(), expected: Expected::Absent, action: Action::Put(record.to_bytes()) },
        Write { key: cursor, expected, action: Action::Put(address(number).to_string().into_bytes()) },
    ];
    let event = Event {
        at: plat_core::clock::Instant { seconds: 1, nanoseconds: 0 },
        what: "granted".into(),
        key: candidate,
        owner: container(number),
        why: "ADD".into(),
    };
    store.commit(&batch, &[event], Durability::Process).expect("the address is free");
}

fn main() {
    let options = Options::system();
    let mut arguments = std::env::args_os().skip(1);
    if let Some(data_dir) = arguments.next() {
        let number = arguments.next().and_then(|number| number.into_string().ok()?.parse().ok()).unwrap_or(0);
        add(Path::new(&data_dir), number, &options);
        println!("{}", peak());
        return;
    }
    println!(
        "{:>9} {:>12} {:>10} {:>10} {:>10} {:>14}",
        "held", "rebuild ms", "median us", "p90 us", "max us", "10 counts us"
    );
    for held in [0, 4_000, 65_000] {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        fill(folder.path(), held);
        let start = Instant::now();
        let keys = Keys::new(NETWORK);
        let open = || DirectoryStore::new(folder.path().to_owned(), NETWORK.to_owned(), options.clone());
        open().count(keys.prefix(), None, None, true).expect("counting works");
        let rebuild = start.elapsed();
        let mut times: Vec<Duration> = (0..ROUNDS)
            .map(|round| {
                let start = Instant::now();
                add(folder.path(), held + round, &options);
                start.elapsed()
            })
            .collect();
        times.sort();
        let mut store = open();
        store.count(&keys.addresses(Family::V4), None, None, true).expect("counting works");
        let start = Instant::now();
        for step in 1..11 {
            let until = keys.key(&Place::Address(address(held / 11 * step)));
            store.count(&keys.addresses(Family::V4), None, Some(&until), true).expect("counting works");
        }
        let counts = start.elapsed();
        println!(
            "{held:>9} {:>12.1} {:>10} {:>10} {:>10} {:>14}",
            rebuild.as_secs_f64() * 1000.0,
            times[times.len() / 2].as_micros(),
            times[times.len() * 9 / 10].as_micros(),
            times[times.len() - 1].as_micros(),
            counts.as_micros(),
        );
    }
    println!("{}", peak());
}

/// The most memory that this process had.
fn peak() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or("peak memory unknown").to_owned()
}
