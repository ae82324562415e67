//! CNI calls on blocks when the store goes wrong: whatever fails, a repeated call ends well, an attachment has one address
//! of each family or none, and DEL leaves nothing.

use plat_core::clock::{Clock, Instant};
use plat_core::cni::{self, Reply, Request, code};
use plat_core::objects::Block;
use plat_core::objects::keys::block_of_key;
use plat_core::store::{Action, Durability, Error, Expected, Store, Write};
use plat_stores::faulty::{Counted, Fault, FaultyStore};
use plat_stores::memory::MemoryStore;

#[derive(Clone)]
struct Fixed;

impl Clock for Fixed {
    fn now(&mut self) -> Instant {
        Instant { seconds: 1_790_000_000, nanoseconds: 5 }
    }

    fn boot_id(&mut self) -> Option<String> {
        None
    }
}

fn request(verb: &str, container: &str) -> Request {
    let environment = [
        ("CNI_COMMAND", verb),
        ("CNI_CONTAINERID", container),
        ("CNI_NETNS", "/run/netns/x"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_PATH", "/opt/cni/bin"),
    ];
    let input = r#"{"cniVersion":"1.1.0","name":"net","nodename":"n1","cni.dev/valid-attachments":[],
        "ipam":{"type":"calico-ipam","store":"sqlite","assign_ipv6":"true"}}"#;
    Request {
        program: "calico-ipam".into(),
        environment: environment.map(|(name, value)| (name.into(), value.into())).to_vec(),
        input: input.into(),
        deadline_ms: 1000,
        ..Request::default()
    }
}

fn store(writes_max: Option<u32>) -> MemoryStore {
    let mut store = writes_max.map_or_else(MemoryStore::new, MemoryStore::with_atomic_writes);
    for (name, cidr, size) in [("four", "10.0.0.0/28", 30), ("six", "fd00::/124", 126)] {
        let value = format!(
            r#"{{"kind":"IPPool","apiVersion":"projectcalico.org/v3","metadata":{{"name":"{name}"}},"spec":{{"cidr":"{cidr}","blockSize":{size},"nodeSelector":"all()"}}}}"#
        );
        let write =
            Write { key: format!("pool/{name}"), expected: Expected::Absent, action: Action::Put(value.into_bytes()) };
        store.commit(&[write], &[], Durability::Process).unwrap();
    }
    store
}

fn call(verb: &str, container: &str, store: &mut dyn Store) -> Reply {
    cni::call(&request(verb, container), store, &mut Fixed)
}

fn code_of(reply: &Reply) -> u64 {
    let error: serde_json::Value = serde_json::from_slice(&reply.output).unwrap();
    error["code"].as_u64().unwrap()
}

/// The handles of held addresses.
fn held(store: &MemoryStore) -> Vec<String> {
    let blocks = store.dump().into_iter().filter(|(key, _)| block_of_key(key).is_some());
    let held = blocks.flat_map(|(_, value)| Block::parse(&value).unwrap().all_held());
    held.map(|held| held.handle.unwrap_or_default()).collect()
}

fn handles(store: &MemoryStore) -> usize {
    store.dump().iter().filter(|(key, _)| key.starts_with("handle/")).count()
}

const MODES: [Option<u32>; 2] = [None, Some(1)];

#[test]
fn every_call_of_the_store_may_fail() {
    let faults = [
        Fault::Fail(Error::Unavailable("out of order".into())),
        Fault::Fail(Error::UnknownOutcome),
        Fault::Fail(Error::Conflict(vec!["block".into()])),
        Fault::LoseReply,
    ];
    let mut failed = 0;
    for (mode, fault) in MODES.into_iter().flat_map(|mode| faults.iter().map(move |fault| (mode, fault))) {
        for verb in ["ADD", "DEL", "GC"] {
            for at in 1.. {
                let mut memory = store(mode);
                assert_eq!(call("ADD", "other", &mut memory).exit_status, 0);
                if verb != "ADD" {
                    assert_eq!(call("ADD", "c1", &mut memory).exit_status, 0);
                }
                // Reads do not conflict, and their outcome is never unknown.
                let counted = match fault {
                    Fault::Fail(Error::Conflict(_) | Error::UnknownOutcome) => Counted::Commits,
                    _ => Counted::All,
                };
                let mut faulty = FaultyStore::new(memory).counting(counted).with(at, fault.clone());
                let reply = call(verb, "c1", &mut faulty);
                let is_past = faulty.calls() < at;
                let mut memory = faulty.into_inner();
                let context = format!("{verb}, {mode:?} writes at once, {fault:?} at call {at}");
                if reply.exit_status != 0 {
                    failed += 1;
                    assert_eq!(code_of(&reply), u64::from(code::TRY_AGAIN_LATER), "{context}: {reply:?}");
                }
                if verb == "ADD" {
                    let again = call(verb, "c1", &mut memory);
                    assert_eq!(again.exit_status, 0, "{context}: {again:?}");
                    if reply.exit_status == 0 {
                        assert_eq!(again.output, reply.output, "{context}");
                    }
                    let own = held(&memory).into_iter().filter(|handle| handle == "net.c1").count();
                    assert_eq!(own, 2, "{context}");
                }
                if verb == "GC" {
                    assert_eq!(call(verb, "", &mut memory).exit_status, 0, "{context}");
                    assert_eq!(held(&memory), Vec::<String>::new(), "{context}");
                }
                // A handle that counts too much, as single writes may leave it, names no node, so that GC keeps it.
                for container in ["c1", "other"] {
                    assert_eq!(call("DEL", container, &mut memory).exit_status, 0, "{context}");
                }
                assert_eq!((held(&memory), handles(&memory)), (Vec::new(), 0), "{context}");
                if is_past {
                    break;
                }
            }
        }
    }
    assert!(failed > 20, "only {failed} calls failed");
}

#[test]
fn a_call_that_always_loses_is_contended() {
    for mode in MODES {
        for verb in ["ADD", "DEL"] {
            let mut memory = store(mode);
            if verb == "DEL" {
                assert_eq!(call("ADD", "c1", &mut memory).exit_status, 0);
            }
            let before = memory.dump();
            let lost = Fault::Fail(Error::Conflict(vec!["block".into()]));
            let mut faulty = FaultyStore::new(memory).counting(Counted::Commits);
            for at in 1..1000 {
                faulty = faulty.with(at, lost.clone());
            }
            let reply = call(verb, "c1", &mut faulty);
            assert!(reply.contended && faulty.calls() < 200, "{verb}: {} commits, {reply:?}", faulty.calls());
            assert_eq!(code_of(&reply), u64::from(code::TRY_AGAIN_LATER));
            assert_eq!(faulty.into_inner().dump(), before, "{verb} changed nothing");
        }
    }
}
