//! The block strategy on a store in memory, in a few steps.

use plat_core::clock::{Clock, Instant};
use plat_core::ipam::{self, Assignment, Call, Holder, PassOver, Release, Released};
use plat_core::net::Address;
use plat_core::store::{Action, Durability, Expected, Store, Write};
use plat_stores::memory::MemoryStore;

struct At(u64);

impl Clock for At {
    fn now(&mut self) -> Instant {
        Instant { seconds: self.0, nanoseconds: 0 }
    }

    fn boot_id(&mut self) -> Option<String> {
        None
    }
}

const NOW: u64 = 1_790_000_000;

fn put(store: &mut MemoryStore, key: &str, value: &str) {
    let write = Write { key: key.into(), expected: Expected::Absent, action: Action::Put(value.into()) };
    store.commit(&[write], &[], Durability::Process).unwrap();
}

fn pool(store: &mut MemoryStore, name: &str, cidr: &str, block_size: u8) {
    let value = format!(
        r#"{{"kind":"IPPool","apiVersion":"projectcalico.org/v3","metadata":{{"name":"{name}"}},"spec":{{"cidr":"{cidr}","blockSize":{block_size},"nodeSelector":"all()"}}}}"#
    );
    put(store, &format!("pool/{name}"), &value);
}

fn host(name: &str) -> Holder {
    Holder::Host(name.into())
}

fn with<T>(store: &mut MemoryStore, seconds: u64, run: impl FnOnce(&mut Call<'_>) -> T) -> T {
    let mut clock = At(seconds);
    run(&mut Call { store, clock: &mut clock, deadline_ms: 1000, attempt: 0, why: "test" })
}

fn both(check: impl Fn(MemoryStore)) {
    check(MemoryStore::new());
    check(MemoryStore::with_atomic_writes(1));
}

fn assignment(node: &str, handle: &str) -> Assignment {
    let mut item = Assignment::new(host(node), 1, 0);
    item.handle = Some(handle.into());
    item.attributes.insert("node".into(), node.into());
    item.per_handle_max = Some(1);
    item
}

#[test]
fn a_pool_is_filled_borrowed_from_and_emptied() {
    both(|mut store| {
        pool(&mut store, "p", "10.0.0.0/29", 30);
        let mut all = std::collections::BTreeSet::new();
        for number in 0..8 {
            let node = if number < 5 { "n1" } else { "n2" };
            let item = assignment(node, &format!("h{number}"));
            let granted = with(&mut store, NOW, |call| ipam::assign(call, &[item])).remove(0);
            assert_eq!(granted.failed, None, "{number}");
            assert_eq!(granted.grants.len(), 1);
            assert!(all.insert(granted.grants[0].address));
        }
        assert_eq!(all.first(), Address::parse("10.0.0.0").as_ref());
        assert_eq!(all.last(), Address::parse("10.0.0.7").as_ref());
        let full = with(&mut store, NOW, |call| ipam::assign(call, &[assignment("n3", "late")])).remove(0);
        assert_eq!(full.passed_over.len(), 1);
        assert_eq!(full.passed_over[0].why, PassOver::Full);
        assert!(full.grants.is_empty());
        // Again: the same address.
        let again = with(&mut store, NOW, |call| ipam::assign(call, &[assignment("n1", "h0")])).remove(0);
        assert!(again.grants[0].held_before);
        for number in 0..8 {
            let handle = format!("h{number}");
            let released = with(&mut store, NOW, |call| ipam::release_by_handle(call, &[handle])).remove(0);
            assert_eq!(released.unwrap().len(), 1);
        }
        assert!(store.dump().iter().all(|(key, _)| !key.starts_with("handle/")));
        let release = Release { address: Address::parse("10.0.0.1").unwrap(), handle: None, sequence: None };
        assert_eq!(with(&mut store, NOW, |call| ipam::release(call, &[release])), [Ok(Released::NotAssigned)]);
    });
}

#[test]
fn a_batch_is_as_good_as_single_calls() {
    let mut store = MemoryStore::new();
    pool(&mut store, "p", "10.0.0.0/16", 26);
    let items: Vec<Assignment> = (0..1000).map(|number| assignment("n1", &format!("h{number}"))).collect();
    let granted = with(&mut store, NOW, |call| ipam::assign(call, &items));
    let addresses: std::collections::BTreeSet<Address> = granted.iter().map(|each| each.grants[0].address).collect();
    assert_eq!(addresses.len(), 1000);
    let items: Vec<Release> =
        addresses.iter().map(|address| Release { address: *address, handle: None, sequence: None }).collect();
    let released = with(&mut store, NOW, |call| ipam::release(call, &items));
    assert!(released.iter().all(|each| *each == Ok(Released::Freed)));
    assert!(store.dump().iter().all(|(key, _)| !key.starts_with("handle/")));
}
