use plat_core::clock::{Clock, Instant};
use plat_core::ipam::{self, Assignment, Call, Holder};
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
fn main() {
    let mut store = MemoryStore::new();
    let value = r#"{"kind":"IPPool","apiVersion":"projectcalico.org/v3","metadata":{"name":"p"},"spec":{"cidr":"10.0.0.0/8","blockSize":26,"nodeSelector":"all()"}}"#;
    store
        .commit(
            &[Write { key: "pool/p".into(), expected: Expected::Absent, action: Action::Put(value.into()) }],
            &[],
            Durability::Process,
        )
        .unwrap();
    let mut clock = At(1_790_000_000);
    let item = |n: u32, node: &str| {
        let mut i = Assignment::new(Holder::Host(node.into()), 1, 0);
        i.handle = Some(format!("k8s-pod-network.{n:064x}"));
        i.per_handle_max = Some(1);
        for (k, v) in [
            ("node", node),
            ("pod", "web-5d8f7b9c6d-abcde"),
            ("namespace", "default"),
            ("timestamp", "2026-09-01 10:00:00.1 +0000 UTC"),
        ] {
            i.attributes.insert(k.into(), v.into());
        }
        i
    };
    for held in [0u32, 32, 63] {
        let node = format!("n{held}");
        let items: Vec<_> = (0..held).map(|n| item(n + 1_000_000 * held, &node)).collect();
        let g = ipam::assign(
            &mut Call { store: &mut store, clock: &mut clock, deadline_ms: 1000, attempt: 0, why: "x" },
            &items,
        );
        assert!(g.iter().all(|g| g.grants.len() == 1));
        let one = item(999_999_999, &node);
        let handle = one.handle.clone().unwrap();
        let started = std::time::Instant::now();
        let rounds = 2000;
        for _ in 0..rounds {
            let mut call = Call { store: &mut store, clock: &mut clock, deadline_ms: 1000, attempt: 0, why: "x" };
            let g = ipam::assign(&mut call, std::slice::from_ref(&one));
            assert_eq!(g[0].grants.len(), 1, "{g:?}");
            ipam::release_by_handle(&mut call, std::slice::from_ref(&handle)).remove(0).unwrap();
        }
        println!("held {held}: {:?} for assign + release", started.elapsed() / rounds);
    }
    let items: Vec<_> = (0..10_000).map(|n| item(n + 500_000_000, "batch")).collect();
    let started = std::time::Instant::now();
    let mut cfg = store.clone();
    cfg.commit(
        &[Write {
            key: "config".into(),
            expected: Expected::Absent,
            action: Action::Put(r#"{"spec":{"maxBlocksPerHost":1000}}"#.into()),
        }],
        &[],
        Durability::Process,
    )
    .unwrap();
    let g =
        ipam::assign(&mut Call { store: &mut cfg, clock: &mut clock, deadline_ms: 1000, attempt: 0, why: "x" }, &items);
    println!("batch 10000: {:?}", started.elapsed());
    assert!(g.iter().all(|g| g.grants.len() == 1), "{:?}", g.iter().find(|g| g.grants.is_empty()));
}
