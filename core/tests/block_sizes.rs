//! The `block` strategy over the sizes that pools and blocks may have, and what it asks of a store: bounds of calls, not
//! of time, so that they hold on every machine.

#[path = "block/play/mod.rs"]
mod play;

use plat_core::ipam::{Assignment, Error, Granted, Holder, PassOver, Release, Specific};
use plat_core::net::{Address, Family, Prefix};
use plat_core::objects::keys::{block_key, blocks_prefix};
use plat_core::store::{Durability, Entry, Error as StoreError, Event, Page, Store, Version, Write};
use plat_stores::memory::MemoryStore;
use play::invariants::{self, Strictness};
use play::operation::{Operation, Outcome, Reference, perform};
use play::stores::{Asked, Counting};
use play::world::{self, START_SECONDS, Standing, address, prefix};
use serde_json::json;

fn host(name: &str) -> Holder {
    Holder::Host(name.into())
}

fn stores() -> [Counting<MemoryStore>; 2] {
    [Counting::new(MemoryStore::new()), Counting::new(MemoryStore::with_atomic_writes(1))]
}

fn assign(store: &mut dyn Store, item: &Assignment) -> Granted {
    match perform(&Operation::Assign(vec![item.clone()]), store, Standing(START_SECONDS)) {
        Outcome::Assigned(mut answers) => answers.remove(0),
        other => panic!("{other:?}"),
    }
}

fn item(name: &str, handle: &str, v4: u32, v6: u32) -> Assignment {
    let mut item = Assignment::new(host(name), v4, v6);
    item.handle = Some(handle.into());
    item
}

/// One address for a host, which must be there.
fn one(store: &mut dyn Store, name: &str, handle: &str) -> Address {
    let granted = assign(store, &item(name, handle, 1, 0));
    assert_eq!(granted.failed, None, "{:?}", granted.passed_over);
    granted.grants[0].address
}

fn check(store: &MemoryStore) {
    invariants::check(&invariants::read(store), Strictness::Settled);
}

// Sizes.

/// Every size of block in its own pool: the first address, all the others, one too many, and back.
#[test]
fn blocks_of_every_size_fill_and_empty() {
    for (family, lengths) in [(Family::V4, 20..=32u8), (Family::V6, 116..=128)] {
        for length in lengths {
            for mut store in stores() {
                let cidr = match family {
                    Family::V4 => format!("10.0.0.0/{length}"),
                    Family::V6 => format!("fd00::/{length}"),
                };
                world::pool(&mut store, "p", &cidr, json!({"blockSize": length}));
                let size = 1u32 << (family.bits() - length);
                let counts = |count| if family == Family::V4 { (count, 0) } else { (0, count) };
                let mut take = |handle: &str, count: u32| {
                    let (v4, v6) = counts(count);
                    assign(&mut store, &item("a", handle, v4, v6))
                };
                let first = take("first", 1);
                assert_eq!(first.grants[0].address, prefix(&cidr).first(), "{cidr}");
                if size > 1 {
                    let rest = take("rest", size - 1);
                    assert_eq!(rest.grants.len(), size as usize - 1, "{cidr}");
                    assert_eq!(rest.grants.last().map(|grant| grant.address), Some(prefix(&cidr).last()), "{cidr}");
                }
                let more = take("more", 1);
                assert_eq!(more.failed, Some(Error::Exhausted { family, wanted: 1, obtained: 0 }), "{cidr}");
                assert_eq!(more.passed_over[0].why, PassOver::Full, "{cidr}");
                check(&store.store);
                let handles = ["first", "rest"].map(str::to_owned).to_vec();
                perform(&Operation::ReleaseByHandle(handles), &mut store, Standing(START_SECONDS + 1));
                let state = invariants::read(&store.store);
                assert!(state.addresses.is_empty() && state.handles.is_empty(), "{cidr}");
            }
        }
    }
}

/// Both families, blocks of unlike sizes.
#[test]
fn both_families_with_unlike_sizes() {
    for mut store in stores() {
        world::pool(&mut store, "four", "10.0.0.0/16", json!({"blockSize": 20}));
        world::pool(&mut store, "six", "fd00::/64", json!({"blockSize": 128}));
        let granted = assign(&mut store, &item("a", "h", 100, 20));
        assert_eq!(granted.failed, None);
        assert_eq!(granted.grants.len(), 120);
        let state = invariants::read(&store.store);
        assert_eq!(state.blocks.keys().filter(|block| block.length() == 20).count(), 1);
        assert_eq!(state.blocks.keys().filter(|block| block.length() == 128).count(), 20);
        check(&store.store);
    }
}

/// The ends of the address space of each family are addresses like others.
#[test]
fn pools_at_the_ends_of_the_address_space() {
    let ends = [
        ("0.0.0.0/28", 28, 16u32),
        ("255.255.255.240/28", 28, 16),
        ("0.0.0.0/0", 20, 1),
        ("::/124", 124, 16),
        ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff0/124", 124, 16),
        ("::/0", 116, 1),
    ];
    for (cidr, length, count) in ends {
        for mut store in stores() {
            world::pool(&mut store, "p", cidr, json!({"blockSize": length}));
            let (v4, v6) = if cidr.contains(':') { (0, count) } else { (count, 0) };
            let granted = assign(&mut store, &item("a", "h", v4, v6));
            assert_eq!(granted.failed, None, "{cidr}");
            assert!(granted.grants.iter().all(|grant| prefix(cidr).contains(grant.address)), "{cidr}");
            check(&store.store);
        }
    }
}

/// 10,000 addresses in batches, each once.
#[test]
fn ten_thousand_addresses_in_batches() {
    for mut store in stores() {
        world::pool(&mut store, "p", "10.0.0.0/16", json!({"blockSize": 26}));
        world::configure(&mut store, json!({}), json!({"strictAffinity": true, "maxBlocksPerHost": 1000}));
        let mut reference = Reference::default();
        let size = if store.atomic_writes() == 1 { 100 } else { 1000 };
        for batch in 0..10 {
            let items = (0..size).map(|index| item("a", &format!("h{batch}-{index}"), 1, 0)).collect();
            let operation = Operation::Assign(items);
            let outcome = perform(&operation, &mut store, Standing(START_SECONDS));
            // What the reference has not been told of before is granted; one granted twice is an error there.
            reference.learn(&operation, &outcome, None, START_SECONDS, 0);
        }
        assert_eq!(reference.held.len(), size * 10);
        let state = invariants::read(&store.store);
        reference.compare(&state, START_SECONDS, 0);
        check(&store.store);
    }
}

/// 32 hosts and 16 blocks: 16 get a block, and every host an address (`calico.md` 7.2, 10).
#[test]
fn more_hosts_than_blocks() {
    for mut store in stores() {
        world::pool(&mut store, "p", "10.0.0.0/24", json!({"blockSize": 28}));
        for index in 0..32 {
            one(&mut store, &format!("host-{index}"), &format!("h{index}"));
        }
        let state = invariants::read(&store.store);
        assert_eq!(state.blocks.len(), 16);
        assert_eq!(state.affinities.len(), 16);
        assert!(state.affinities.values().all(|text| text == "confirmed"));
        assert_eq!(state.addresses.len(), 32);
        check(&store.store);
    }
}

/// Every slice of a pool is claimed once, whichever the sizes (`calico.md` 7.2b, block walk).
#[test]
fn every_slice_is_claimed_once() {
    let sizes = [
        ("10.0.0.0/24", 26, 4u32),
        ("10.0.0.0/24", 32, 256),
        ("10.0.0.0/26", 26, 1),
        ("fd00::/120", 122, 4),
        ("fd00::/120", 128, 256),
        ("fd00::/122", 122, 1),
    ];
    for (cidr, length, slices) in sizes {
        for mut store in stores() {
            world::pool(&mut store, "p", cidr, json!({"blockSize": length}));
            world::configure(&mut store, json!({}), json!({"strictAffinity": true, "maxBlocksPerHost": 100}));
            let cidr = prefix(cidr);
            let size = 1u32 << (cidr.family().bits() - length);
            let counts = if cidr.family() == Family::V4 { (size, 0) } else { (0, size) };
            for index in 0..slices {
                // Several hosts begin at several places.
                let name = format!("host-{}", index % 7);
                let granted = assign(&mut store, &item(&name, &format!("h{index}"), counts.0, counts.1));
                assert_eq!(granted.failed, None, "{cidr}, block {index} of {slices}");
            }
            let state = invariants::read(&store.store);
            assert_eq!(state.blocks.len(), slices as usize, "{cidr}");
            assert!(state.blocks.keys().all(|block| cidr.covers(block)), "{cidr}");
            check(&store.store);
        }
    }
}

// What is asked of the store.

/// A store that has a block at each slice of a pool but for some, without holding any: 2^24 of them are too many to keep.
/// Blocks that are written lie in the store behind.
struct Crowded {
    store: MemoryStore,
    pool: Prefix,
    length: u8,
    /// The slices without a block.
    free: Vec<Prefix>,
}

impl Crowded {
    fn new(pool: &str, length: u8, free: &[&str]) -> Self {
        let mut store = MemoryStore::new();
        world::pool(&mut store, "p", pool, json!({"blockSize": length}));
        Self { store, pool: prefix(pool), length, free: free.iter().map(|text| prefix(text)).collect() }
    }

    /// The imagined blocks with keys from `from` to before `until`.
    fn imagined(&self, from: Option<&str>, until: Option<&str>) -> u64 {
        let host_bits = self.pool.family().bits() - self.length;
        let base = self.pool.first().bits() >> host_bits;
        let slices = 1u64 << (self.length - self.pool.length());
        // The first slice whose key is not below a key.
        let place = |key: &str| {
            let (mut low, mut high) = (0u64, slices);
            while low < high {
                let middle = low + (high - low) / 2;
                let at =
                    Address::new(self.pool.family(), (base + u128::from(middle)) << host_bits).expect("an address");
                if block_key(Prefix::new(at, self.length).expect("a block")).as_str() < key {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            low
        };
        let first = from.map_or(0, place);
        let end = until.map_or(slices, place);
        let free = self.free.iter().filter(|block| {
            let key = block_key(**block);
            from.is_none_or(|from| key.as_str() >= from) && until.is_none_or(|until| key.as_str() < until)
        });
        end.saturating_sub(first).saturating_sub(free.count() as u64)
    }
}

impl Store for Crowded {
    fn read(&mut self, keys: &[String], fresh: bool) -> Result<Vec<Option<Entry>>, StoreError> {
        self.store.read(keys, fresh)
    }

    fn scan(
        &mut self,
        prefix: &str,
        from: Option<&str>,
        limit: u32,
        keys_only: bool,
        fresh: bool,
    ) -> Result<Page, StoreError> {
        assert!(!prefix.starts_with("block/"), "blocks are not listed");
        self.store.scan(prefix, from, limit, keys_only, fresh)
    }

    fn count(&mut self, prefix: &str, from: Option<&str>, until: Option<&str>, fresh: bool) -> Result<u64, StoreError> {
        let there = self.store.count(prefix, from, until, fresh)?;
        let directory = blocks_prefix(self.pool.family(), self.length);
        let imagined = if directory.starts_with(prefix) { self.imagined(from, until) } else { 0 };
        // The imagined blocks are full: they are in no index of those with room.
        Ok(there + imagined)
    }

    fn commit(
        &mut self,
        batch: &[Write],
        journal: &[Event],
        durability: Durability,
    ) -> Result<Vec<Version>, StoreError> {
        for write in batch {
            let block = plat_core::objects::keys::block_of_key(&write.key);
            let is_imagined = block.is_some_and(|block| {
                block.length() == self.length && self.pool.covers(&block) && !self.free.contains(&block)
            });
            assert!(!is_imagined, "{} is another's", write.key);
        }
        self.store.commit(batch, journal, durability)
    }

    fn atomic_writes(&mut self) -> u32 {
        self.store.atomic_writes()
    }
}

/// Counts of a search in a pool of 2^24 blocks: it halves what is left some twenty-four times, for the runs of doubling
/// length before as well.
const CALLS_IN_A_CROWD_MAX: u32 = 120;

#[test]
fn the_only_free_block_of_two_to_the_24_is_found_by_counting() {
    for free in ["10.0.0.0/32", "10.127.31.77/32", "10.255.255.255/32"] {
        let mut store = Counting::new(Crowded::new("10.0.0.0/8", 32, &[free]));
        let granted = assign(&mut store, &item("a", "h", 1, 0));
        assert_eq!(granted.failed, None, "{free}");
        assert_eq!(granted.grants[0].address, prefix(free).first());
        let asked = store.take();
        assert!(asked.calls() <= CALLS_IN_A_CROWD_MAX, "{free}: {asked:?}");
        assert!(asked.entries <= 16, "nothing is listed: {asked:?}");
    }
}

#[test]
fn the_only_free_block_of_two_to_the_24_of_ipv6() {
    let mut store = Counting::new(Crowded::new("fd00::/104", 128, &["fd00::7f:1f4d/128"]));
    let granted = assign(&mut store, &item("a", "h", 0, 1));
    assert_eq!(granted.failed, None);
    assert_eq!(granted.grants[0].address, address("fd00::7f:1f4d"));
    let asked = store.take();
    assert!(asked.calls() <= CALLS_IN_A_CROWD_MAX, "{asked:?}");
}

/// "A full first pool costs no more than a look" (issue of the original: minutes, #10551).
#[test]
fn a_full_pool_of_two_to_the_24_blocks_costs_a_look() {
    let cost = |with_full_pool: bool| {
        let mut store = if with_full_pool {
            Crowded::new("10.0.0.0/8", 32, &[])
        } else {
            let mut store = Crowded::new("10.0.0.0/8", 32, &[]);
            world::put(&mut store.store, "pool/p", None);
            store
        };
        world::pool(&mut store.store, "q", "11.0.0.0/24", json!({"blockSize": 26}));
        let mut store = Counting::new(store);
        let granted = assign(&mut store, &item("a", "h", 1, 0));
        assert_eq!(granted.failed, None, "{:?}", granted.passed_over);
        assert!(prefix("11.0.0.0/24").contains(granted.grants[0].address));
        store.take().calls()
    };
    let (with, without) = (cost(true), cost(false));
    // One count that tells that it is full, and what else one look may need.
    assert!(with <= without + 3, "{with} calls beside a full pool, {without} without it");
}

/// A pool of 2^24 blocks that is empty costs what a small one does.
#[test]
fn a_large_empty_pool_costs_what_a_small_one_does() {
    let cost = |cidr: &str| {
        let mut store = Counting::new(MemoryStore::new());
        world::pool(&mut store, "p", cidr, json!({"blockSize": if cidr.contains(':') { 122 } else { 32 }}));
        store.take();
        let (v4, v6) = if cidr.contains(':') { (0, 1) } else { (1, 0) };
        assert_eq!(assign(&mut store, &item("a", "h", v4, v6)).failed, None);
        store.take().calls()
    };
    let small = cost("10.0.0.0/31");
    assert!(cost("10.0.0.0/8") <= small + 2);
    assert!(cost("0.0.0.0/0") <= small + 2);
    assert!(cost("fd00::/14") <= cost("fd00::/121") + 2);
}

/// In a steady state an ADD takes one commit, and reads nothing twice.
#[test]
fn an_assignment_from_an_own_block_is_one_commit() {
    let mut store = Counting::new(MemoryStore::new());
    world::pool(&mut store, "p", "10.0.0.0/16", json!({"blockSize": 26}));
    one(&mut store, "a", "h1");
    store.take();
    one(&mut store, "a", "h2");
    let asked = store.take();
    assert_eq!((asked.commits, asked.writes), (1, 2), "the block and the handle: {asked:?}");
    assert!(asked.calls() <= STEADY_CALLS_MAX, "{asked:?}");
    assert_eq!(asked.counts, 0, "nothing is searched: {asked:?}");
    // The cost is the same with many blocks and many pools of others.
    for index in 0..50 {
        world::pool(&mut store, &format!("q{index:02}"), &format!("10.{}.0.0/16", index + 1), json!({}));
        one(&mut store, &format!("other-{index}"), &format!("o{index}"));
    }
    store.take();
    one(&mut store, "a", "h3");
    let asked = store.take();
    assert!(asked.calls() <= STEADY_CALLS_MAX, "{asked:?}");
}

/// Calls of an assignment from an own block: configuration, pools, reservations, node, own blocks, affinities, the block,
/// and the commit.
const STEADY_CALLS_MAX: u32 = 8;

/// With single-key writes it is the handle and the block.
#[test]
fn an_assignment_from_an_own_block_is_two_writes_key_by_key() {
    let mut store = Counting::new(MemoryStore::with_atomic_writes(1));
    world::pool(&mut store, "p", "10.0.0.0/16", json!({"blockSize": 26}));
    one(&mut store, "a", "h1");
    store.take();
    one(&mut store, "a", "h2");
    let asked = store.take();
    assert_eq!((asked.commits, asked.writes), (2, 2), "{asked:?}");
    assert!(asked.calls() <= STEADY_CALLS_MAX + 1, "{asked:?}");
}

/// 250 pools (`calico.md` 7.3): they are read once, and the full ones cost a look each at most.
#[test]
fn many_pools_cost_no_more_than_a_look_each() {
    let mut store = Counting::new(MemoryStore::new());
    for index in 0..250 {
        let (high, low) = (index / 250, index % 250);
        world::pool(&mut store, &format!("p{index:03}"), &format!("10.{high}.{low}.0/32"), json!({"blockSize": 32}));
    }
    world::configure(&mut store, json!({}), json!({"strictAffinity": true, "maxBlocksPerHost": 1000}));
    let granted = assign(&mut store, &item("a", "h", 249, 0));
    assert_eq!(granted.failed, None);
    store.take();
    // The own blocks are full and known to be so from the index: none of them is read.
    let address = one(&mut store, "a", "last");
    assert_eq!(address.to_string(), "10.0.249.0");
    let asked = store.take();
    assert!(asked.counts <= 2 * 250 + 30, "{asked:?}");
    assert!(asked.keys <= 30, "full blocks are not read: {asked:?}");
}

/// Borrowing reads blocks that exist and have room, and no other (the original reads every slice).
#[test]
fn borrowing_reads_no_absent_and_no_full_block() {
    for mut store in stores() {
        world::pool(&mut store, "p", "10.0.0.0/24", json!({"blockSize": 30}));
        world::configure(&mut store, json!({}), json!({"autoAllocateBlocks": false}));
        // Forty of the sixty-four slices have a block; thirty-nine are full.
        for index in 0..40u32 {
            let block = prefix(&format!("10.0.0.{}/30", index * 4));
            perform(&Operation::Claim(host("b"), block), &mut store, Standing(START_SECONDS));
        }
        assert_eq!(assign(&mut store, &item("b", "h", 159, 0)).failed, None);
        store.take();
        let address = one(&mut store, "a", "x");
        assert_eq!(address.to_string(), "10.0.0.159");
        let asked = store.take();
        assert_eq!(asked.absent_blocks, 0, "{asked:?}");
        assert!(asked.keys <= 8, "{asked:?}");
        assert!(asked.calls() <= 16, "{asked:?}");
    }
}

/// Everything is full: the refusal needs no look at any block.
#[test]
fn refusing_reads_no_block() {
    let mut store = Counting::new(MemoryStore::new());
    world::pool(&mut store, "p", "10.0.0.0/24", json!({"blockSize": 30}));
    world::configure(&mut store, json!({}), json!({"maxBlocksPerHost": 100}));
    assert_eq!(assign(&mut store, &item("b", "h", 256, 0)).failed, None);
    store.take();
    let refused = assign(&mut store, &item("a", "x", 1, 0));
    assert_eq!(refused.failed, Some(Error::Exhausted { family: Family::V4, wanted: 1, obtained: 0 }));
    assert_eq!(refused.passed_over[0].in_use.to_string(), "256");
    let asked = store.take();
    assert_eq!(asked.absent_blocks, 0, "{asked:?}");
    assert_eq!(asked.commits, 0, "{asked:?}");
    assert!(asked.keys <= 4, "configuration, node: {asked:?}");
    assert!(asked.calls() <= 60, "{asked:?}");
}

/// A release by address, by handle: no pool is read for it, whatever the number of pools and blocks.
#[test]
fn a_release_costs_the_same_whatever_there_is() {
    let cost = |pools: u32| -> (Asked, Asked) {
        let mut store = Counting::new(MemoryStore::new());
        for index in 0..pools {
            world::pool(&mut store, &format!("p{index:03}"), &format!("10.{index}.0.0/16"), json!({}));
        }
        for index in 0..pools {
            one(&mut store, &format!("host-{index}"), &format!("o{index}"));
        }
        let mut wanted = item("a", "x", 1, 0);
        wanted.v4_pools = vec!["p000".into()];
        let address = assign(&mut store, &wanted).grants[0].address;
        one(&mut store, "a", "keep");
        one(&mut store, "a", "y");
        store.take();
        let release = Release { address, handle: Some("x".into()), sequence: None };
        perform(&Operation::Release(vec![release]), &mut store, Standing(START_SECONDS + 1));
        let by_address = store.take();
        perform(&Operation::ReleaseByHandle(vec!["y".into()]), &mut store, Standing(START_SECONDS + 1));
        (by_address, store.take())
    };
    let (few, many) = (cost(1), cost(100));
    for (few, many) in [(few.0, many.0), (few.1, many.1)] {
        assert_eq!(few.calls(), many.calls(), "{few:?} {many:?}");
        assert_eq!(few.entries, many.entries, "nothing is listed: {few:?} {many:?}");
        assert_eq!(few.commits, 1, "{few:?}");
        assert!(few.calls() <= 6, "{few:?}");
    }
}

/// A chosen address: its block is found without pools being searched.
#[test]
fn a_chosen_address_in_a_pool_of_two_to_the_24_blocks() {
    let mut store = Counting::new(MemoryStore::new());
    world::pool(&mut store, "p", "10.0.0.0/8", json!({"blockSize": 32}));
    store.take();
    let chosen = Specific {
        address: address("10.99.98.97"),
        handle: Some("h".into()),
        holder: host("a"),
        purpose: None,
        attributes: Default::default(),
        per_handle_max: None,
        edges: None,
    };
    let Outcome::Specific(answers) = perform(&Operation::AssignIp(vec![chosen]), &mut store, Standing(START_SECONDS))
    else {
        panic!("of a chosen address")
    };
    assert_eq!(answers[0].as_ref().map(|grant| grant.block.to_string()), Ok("10.99.98.97/32".into()));
    let asked = store.take();
    assert!(asked.calls() <= 40, "{asked:?}");
}

/// A thousand hosts, each with its first and its second address: the second costs what it costs a host alone.
#[test]
fn the_second_address_of_each_of_a_thousand_hosts() {
    let mut store = Counting::new(MemoryStore::new());
    world::pool(&mut store, "p", "10.0.0.0/16", json!({"blockSize": 26}));
    for index in 0..1000 {
        let name = format!("host-{index}");
        store.take();
        one(&mut store, &name, &format!("first-{index}"));
        let first = store.take();
        assert!(first.calls() <= 120, "the first of {name}: {first:?}");
        one(&mut store, &name, &format!("second-{index}"));
        let second = store.take();
        assert!(second.calls() <= STEADY_CALLS_MAX, "the second of {name}: {second:?}");
    }
    check(&store.store);
}

/// Half of a pool of blocks of one address is claimed in every other slice: the worst of scattering.
#[test]
fn a_scattered_pool_is_searched_within_bounds() {
    let mut store = Counting::new(MemoryStore::new());
    world::pool(&mut store, "p", "10.0.0.0/20", json!({"blockSize": 32}));
    for index in (0..4096u32).step_by(2) {
        let block = prefix(&format!("10.0.{}.{}/32", index / 256, index % 256));
        world::block(&mut store, block, Some(&host("b")), Some(START_SECONDS), &[]);
        world::affinity(&mut store, &host("b"), block, "confirmed");
    }
    store.take();
    let granted = assign(&mut store, &item("a", "h", 20, 0));
    assert_eq!(granted.failed, None);
    let asked = store.take();
    assert!(asked.calls() <= 20 * 60, "twenty blocks: {asked:?}");
    assert!(asked.entries <= 300, "blocks are not listed: {asked:?}");
    check(&store.store);
}

/// Counts of a search among blocks of three lengths in 2^14 slices: each of some sixty runs is counted for each length.
const MIXED_COUNTS_MAX: u32 = 200;

/// A pool under blocks of other sizes, and the search still only counts.
#[test]
fn blocks_of_other_lengths_in_a_large_pool() {
    let mut store = Counting::new(MemoryStore::new());
    world::pool(&mut store, "p", "10.0.0.0/14", json!({"blockSize": 28}));
    // All but the last /20 lies under blocks of /20 and /24 of an earlier pool.
    for index in 0..63u32 {
        let (second, third) = (index / 16, index % 16 * 16);
        let blocks = if index % 3 == 0 {
            (0..16).map(|part| format!("10.{second}.{}.0/24", third + part)).collect()
        } else {
            vec![format!("10.{second}.{third}.0/20")]
        };
        for block in blocks {
            world::block(&mut store, prefix(&block), Some(&host("b")), Some(START_SECONDS), &[]);
            world::affinity(&mut store, &host("b"), prefix(&block), "confirmed");
        }
    }
    world::configure(&mut store, json!({}), json!({"strictAffinity": true, "maxBlocksPerHost": 1000}));
    store.take();
    for index in 0..256 {
        let granted = assign(&mut store, &item("a", &format!("h{index}"), 16, 0));
        assert_eq!(granted.failed, None, "block {index} of 256: {:?}", granted.passed_over);
        assert!(prefix("10.3.240.0/20").contains(granted.grants[0].address));
        let asked = store.take();
        assert!(asked.counts <= MIXED_COUNTS_MAX, "block {index}: {asked:?}");
    }
    let refused = assign(&mut store, &item("a", "more", 1, 0));
    assert!(refused.failed.is_some());
    assert_ne!(refused.passed_over[0].why, PassOver::SearchLimit);
    check(&store.store);
}
