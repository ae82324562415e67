//! Prints what an ADD of the block strategy costs inside the SQLite store, opened anew for each, and what a count costs:
//! `cargo run --release -p plat-stores --example sqlite_cost [FOLDER]`. With a folder and a number as arguments it makes
//! one such ADD in that folder, so that `strace -c` can count its system calls.

use plat_core::clock::Instant as Moment;
use plat_core::ipam::{Attributes, Holder};
use plat_core::net::{Address, Family, Prefix};
use plat_core::objects::Block;
use plat_core::objects::keys::{block_key, handle_key, owned_prefix, rooms_prefix};
use plat_core::store::{Action, Durability, Event, Expected, Store, Write};
use plat_stores::sqlite::{Options, SqliteStore};
use std::path::Path;
use std::time::{Duration, Instant};

const ROUNDS: u32 = 1000;
const BLOCK_LENGTH: u8 = 26;
const NOW: Moment = Moment { seconds: 1_760_000_000, nanoseconds: 0 };

fn open(folder: &Path) -> SqliteStore {
    let options = Options { exclusive: true, lock_wait_max: Duration::from_secs(60), create: true };
    SqliteStore::new(folder.join("ipam.db"), options)
}

fn prefix(number: u32) -> Prefix {
    let bits = 0x0a00_0000 + (u128::from(number) << (32 - BLOCK_LENGTH));
    Prefix::new(Address::new(Family::V4, bits).expect("32 bits"), BLOCK_LENGTH).expect("a length of IPv4")
}

fn holder(number: u32) -> Holder {
    Holder::Host(format!("node-{number}"))
}

fn put(key: String, expected: Expected, value: Vec<u8>) -> Write {
    Write { key, expected, action: Action::Put(value) }
}

/// Blocks of as many hosts, each with half of its addresses taken, and twice as many keys that follow from them.
fn fill(folder: &Path, blocks: u32) {
    let mut store = open(folder);
    for chunk in (0..blocks).collect::<Vec<_>>().chunks(200) {
        let batch: Vec<Write> = chunk
            .iter()
            .map(|&number| {
                let mut block = Block::new(prefix(number), &holder(number), NOW, 1, None);
                block.take(32, Some("a.handle"), &Attributes::default(), &mut |_| false);
                put(block_key(prefix(number)), Expected::Absent, block.to_bytes())
            })
            .collect();
        store.commit(&batch, &[], Durability::Process).expect("no block is there");
    }
}

/// What the core asks of a store for an ADD on a host with a block: what it has, the block, then one commit of the
/// block and a new handle.
fn add(folder: &Path, number: u32) {
    let mut store = open(folder);
    let host = holder(0);
    let page = store.scan(&owned_prefix(&host, Family::V4), None, 20, false, true).expect("scanning works");
    assert_eq!(page.entries.len(), 1);
    let (block_at, handle_at) = (block_key(prefix(0)), handle_key(&format!("net.container-{number}")));
    let found = store.read(&[block_at.clone(), handle_at.clone()], true).expect("reading works");
    let entry = found[0].as_ref().expect("the block is there");
    let mut block = Block::parse(&entry.value).expect("it can be read");
    let taken = block.take(1, Some("net.container"), &Attributes::default(), &mut |_| false);
    block.release(&taken, NOW, 0);
    block.advance();
    let batch = [
        put(block_at.clone(), Expected::At(entry.version.clone()), block.to_bytes()),
        put(handle_at, Expected::Absent, vec![b'h'; 300]),
    ];
    let event =
        Event { at: NOW, what: "granted".into(), key: block_at, owner: "net.container".into(), why: "ADD".into() };
    store.commit(&batch, &[event], Durability::Process).expect("nobody else writes");
}

fn main() {
    let mut arguments = std::env::args_os().skip(1);
    let folder = arguments.next().map(std::path::PathBuf::from);
    if let (Some(folder), Some(number)) = (&folder, arguments.next()) {
        if open(folder).read(&[block_key(prefix(0))], true).expect("reading works")[0].is_none() {
            fill(folder, 1);
        }
        add(folder, number.into_string().ok().and_then(|number| number.parse().ok()).unwrap_or(0));
        return;
    }
    println!(
        "{:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>13} {:>14}",
        "blocks", "fill s", "MB", "median us", "p90 us", "max us", "open, read us", "one count us"
    );
    for blocks in [1, 1_000, 20_000] {
        let temporary = match &folder {
            Some(folder) => tempfile::tempdir_in(folder),
            None => tempfile::tempdir(),
        }
        .expect("a temporary folder can be made");
        let start = Instant::now();
        fill(temporary.path(), blocks);
        let filled = start.elapsed();
        let times = sorted(ROUNDS, |round| add(temporary.path(), round));
        let reads = sorted(ROUNDS, |_| {
            assert!(open(temporary.path()).read(&[block_key(prefix(0))], true).expect("reading works")[0].is_some());
        });
        let mut store = open(temporary.path());
        let rooms = rooms_prefix(Family::V4, BLOCK_LENGTH);
        let mut found = 0;
        let counts = sorted(ROUNDS, |round| {
            let until = format!("{rooms}{}", prefix(blocks / ROUNDS * round + 1).network().to_hex());
            found = found.max(store.count(&rooms, None, Some(&until), true).expect("counting works"));
        });
        let bytes = std::fs::metadata(temporary.path().join("ipam.db")).map_or(0, |meta| meta.len());
        println!(
            "{blocks:>9} {:>9.1} {:>9.1} {:>9} {:>9} {:>9} {:>13} {:>14}",
            filled.as_secs_f64(),
            bytes as f64 / 1e6,
            median(&times),
            times[times.len() * 9 / 10].as_micros(),
            times[times.len() - 1].as_micros(),
            median(&reads),
            median(&counts),
        );
        assert!(found > 0);
    }
    println!("{:>9} {:>9} {:>14}", "keys", "fill s", "one count us");
    for keys in [1 << 12, 1 << 16, 1 << 20] {
        let temporary = tempfile::tempdir().expect("a temporary folder can be made");
        let mut store = open(temporary.path());
        let key = |number: u32| format!("block/v4/32/{number:08x}");
        let start = Instant::now();
        for chunk in (0..keys).collect::<Vec<u32>>().chunks(1 << 14) {
            let batch: Vec<Write> = chunk.iter().map(|&at| put(key(at), Expected::Absent, b"x".to_vec())).collect();
            store.commit(&batch, &[], Durability::Process).expect("no key is there");
        }
        let filled = start.elapsed();
        let counts = sorted(ROUNDS, |round| {
            let (from, until) = (keys / ROUNDS * round / 3, keys / ROUNDS * (round + 1));
            let found = store.count("block/v4/32/", Some(&key(from)), Some(&key(until)), true);
            assert_eq!(found, Ok(u64::from(until - from)));
        });
        println!("{keys:>9} {:>9.1} {:>14}", filled.as_secs_f64(), median(&counts));
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    println!("{}", status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or("peak memory unknown"));
}

fn sorted(rounds: u32, mut run: impl FnMut(u32)) -> Vec<Duration> {
    let mut times: Vec<Duration> = (0..rounds)
        .map(|round| {
            let start = Instant::now();
            run(round);
            start.elapsed()
        })
        .collect();
    times.sort();
    times
}

fn median(times: &[Duration]) -> u128 {
    times[times.len() / 2].as_micros()
}
