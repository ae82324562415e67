//! The shapes of the objects, old and ugly ones too, and what each dialect makes of them.
//!
//! `core/tests/golden/<shape>.json` holds what the core writes; `BLESS=1` writes the files anew.

use plat_core::clock::Instant;
use plat_core::ipam::{Attributes, Edges, SlotChange};
use plat_core::net::Prefix;
use plat_core::objects::dialect::{Dialect, Kind};
use plat_core::objects::keys::{affinity_key, block_key, derived, handle_key};
use plat_core::objects::{Affinity, Block, Handle, Holder, State};
use std::path::Path;

const NOW: Instant = Instant { seconds: 1_788_256_800, nanoseconds: 0 };

#[allow(clippy::disallowed_methods, reason = "a test may read and write its files")]
fn golden(name: &str, have: &[u8]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.json"));
    let have = format!("{}\n", String::from_utf8(have.to_vec()).unwrap());
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &have).unwrap();
    }
    let wanted = std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    assert_eq!(have, wanted, "{name}");
}

fn host() -> Holder {
    Holder::Host("n1".into())
}

fn prefix(text: &str) -> Prefix {
    Prefix::parse(text).unwrap()
}

fn block() -> Block {
    let mut block = Block::new(prefix("10.0.0.0/30"), &host(), NOW, u64::MAX - 1, None);
    let attributes = Attributes::from([("node".into(), "n1".into()), ("pod".into(), "p".into())]);
    block.take(2, Some("k8s-pod-network.AB12"), &attributes, &mut |_| false);
    block.advance();
    block
}

#[test]
fn each_object_is_written_in_each_dialect_and_read_back() {
    let mut handle = Handle::new("k8s-pod-network.AB12", NOW);
    handle.add(prefix("10.0.0.0/30"), 2);
    handle.add(prefix("fd00::/122"), 1);
    let affinity = |holder: &Holder, state| Affinity::new(holder, prefix("10.0.0.0/30"), state, NOW).to_bytes();
    let load_balancer = Holder::Virtual("load-balancer".into());
    let configuration = br#"{"kind":"IPAMConfiguration","apiVersion":"projectcalico.org/v3","metadata":{"name":"default"},"spec":{"strictAffinity":false,"maxBlocksPerHost":4,"autoAllocateBlocks":true,"future":1.50}}"#;
    for (name, key, value) in [
        ("block", block_key(prefix("10.0.0.0/30")), block().to_bytes()),
        ("affinity", affinity_key(&host(), prefix("10.0.0.0/30")), affinity(&host(), State::Confirmed)),
        (
            "affinity-virtual",
            affinity_key(&load_balancer, prefix("10.0.0.0/30")),
            affinity(&load_balancer, State::PendingDeletion),
        ),
        ("handle", handle_key("k8s-pod-network.AB12"), handle.to_bytes()),
        ("configuration", "config".to_owned(), configuration.to_vec()),
    ] {
        let kind = Kind::of_key(&key).unwrap();
        for (dialect, text) in [(Dialect::Etcd, "etcd"), (Dialect::CrdV1, "crd-v1"), (Dialect::V3, "v3")] {
            let stored = dialect.write(&key, &value).unwrap();
            let shown = [stored.name.as_bytes(), b"\n", &stored.value].concat();
            golden(&format!("{name}.{text}"), &shown);
            let (read_key, read) = dialect.read(kind, &stored.name, &stored.value).unwrap();
            assert_eq!(read_key, key, "{name} {text}");
            if dialect == Dialect::Etcd {
                // Etcd has no metadata: the spec is what comes back.
                let spec = |value: &[u8]| serde_json::from_slice::<serde_json::Value>(value).unwrap()["spec"].clone();
                assert_eq!(spec(&read), spec(&value), "{name} {text}");
            } else {
                assert_eq!(String::from_utf8(read), String::from_utf8(value.clone()), "{name} {text}");
            }
        }
    }
}

#[test]
fn names_that_are_too_long_are_cut_and_stay_apart() {
    let name =
        |host: &str| Dialect::V3.name_of(&affinity_key(&Holder::Host(host.into()), prefix("10.0.0.0/26"))).unwrap();
    // "-10-0-0-0-26" are 12 bytes; 252 is the longest that is not cut.
    assert_eq!(name(&"a".repeat(240)), format!("{}-10-0-0-0-26", "a".repeat(240)));
    let (one, other) = (name(&"a".repeat(241)), name(&"a".repeat(242)));
    assert_eq!((one.len(), other.len()), (253, 253));
    assert_ne!(one, other);
    // The hash was computed by another implementation.
    assert_eq!(one, format!("{}-10-0-0-0-26-a013c17f113", "a".repeat(229)));
    let v6 = Dialect::CrdV1.name_of(&block_key(prefix("fd00:10:96::/122")));
    assert_eq!(v6.as_deref(), Some("fd00-10-96---122"));
}

#[test]
fn ugly_blocks_are_read_and_what_is_unknown_stays() {
    let old = r#"{"kind":"IPAMBlock","apiVersion":"projectcalico.org/v3","metadata":{"name":"10-0-0-0-31","uid":"u","x":1.0},"spec":{"cidr":"10.0.0.0/31","affinity":null,"hostAffinity":"n1","allocations":[0,null],"unallocated":[1],"attributes":[{"handle_id":"net.c1\r\neth0","secondary":{"node":"n1"},"new":[1, 2]}],"sequenceNumber":18446744073709551615,"deleted":null,"later":1e2},"status":{}}"#;
    let mut block = Block::parse(old.as_bytes()).unwrap();
    assert_eq!((block.holder(), block.claimed(), block.sequence()), (Some(host()), None, u64::MAX));
    assert_eq!(block.ordinals_of_handle("net.c1"), [0]);
    assert_eq!(block.held(0).unwrap().sequence, 0);
    golden("block-old", &block.to_bytes());
    let keys: Vec<String> = derived("block/v4/31/0a000000", old.as_bytes()).into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["room/v4/31/0a000000", "owned/host/n1/v4/31/0a000000"]);

    block.set_holder(None, NOW);
    assert_eq!(Block::parse(&block.to_bytes()).unwrap().holder(), None);
    block.set_owners(0, &SlotChange::Keep, &SlotChange::Set(Attributes::from([("pod".into(), "q".into())])));
    golden("block-without-holder", &block.to_bytes());
    block.release(&[0, 0], NOW, 60);
    golden("block-cooling", &block.to_bytes());
    let edges =
        Edges { first: 3, last: 1, handle: "windows-reserved-IPAM-handle".into(), note: "windows host rsvd".into() };
    let windows = Block::new(prefix("10.0.0.0/29"), &host(), NOW, 1, Some(&edges));
    assert!(windows.is_empty());
    assert_eq!(windows.free(), 4);
    golden("block-windows", &windows.to_bytes());
}

#[test]
fn broken_blocks_are_refused() {
    let with = |spec: &str| Block::parse(format!(r#"{{"spec":{{{spec}}}}}"#).as_bytes());
    let good = r#""cidr":"10.0.0.0/31","allocations":[0,null],"unallocated":[1],"attributes":[{}],"sequenceNumber":1"#;
    assert!(with(good).is_ok());
    for (from, to, wanted) in [
        ("[0,null]", "[1,null]", "the attribute 1, which is not there"),
        ("[0,null]", "[-1,null]", "invalid value"),
        ("[0,null]", "[0]", "has 1 entries, and the block 2 addresses"),
        ("[1]", "[0,1]", "the ordinal 0 is both free and held"),
        ("[1]", "[]", "the ordinal 1 is neither free nor held"),
        ("[1]", "[1,1]", "has the ordinal 1 twice"),
        ("[1]", "[2]", "has the ordinal 2 of 2"),
        ("10.0.0.0/31", "10.0.0.1/31", "is no block"),
        ("10.0.0.0/31", "10.0.0.0/19", "more than 4096 addresses"),
        ("10.0.0.0/31", "::/0", "more than 4096 addresses"),
        (":1", ":18446744073709551616", "invalid"),
    ] {
        let why = with(&good.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(why.contains(wanted), "{from} -> {to}: {why}");
    }
}

#[test]
fn an_attribute_that_others_wrote_is_shared() {
    let text = r#"{"spec":{"cidr":"10.0.0.0/31","allocations":[0,null],"unallocated":[1],"attributes":[{"handle_id":"h","secondary":{ "b":"\u003c", "a":"1" }}],"sequenceNumber":1}}"#;
    let mut block = Block::parse(text.as_bytes()).unwrap();
    let attributes = Attributes::from([("a".into(), "1".into()), ("b".into(), "<".into())]);
    assert!(block.take_ordinal(1, Some("h"), &attributes));
    let written = String::from_utf8(block.to_bytes()).unwrap();
    assert!(written.contains(r#""allocations":[0,0]"#), "{written}");
}

#[test]
fn old_affinities_are_confirmed_and_handles_keep_what_is_unknown() {
    for text in ["", "{}", r#"{"spec":{"state":"","deleted":"false"}}"#, r#"{"spec":{}}"#] {
        let affinity = Affinity::parse(text.as_bytes()).unwrap();
        assert_eq!(affinity.state(), State::Confirmed, "{text}");
    }
    assert!(Affinity::parse(br#"{"spec":{"state":"other"}}"#).is_err());
    let text = r#"{"kind":"IPAMHandle","metadata":{"name":"h","uid":"u"},"spec":{"handleID":"H","block":{"10.0.0.0/26":2},"deleted":true,"new":1.0}}"#;
    let mut handle = Handle::parse(text.as_bytes()).unwrap();
    assert_eq!(String::from_utf8(handle.to_bytes()).unwrap(), text);
    assert!(!handle.subtract(prefix("10.0.0.0/26"), 3));
    assert!(!handle.subtract(prefix("10.0.1.0/26"), 1));
    assert!(handle.subtract(prefix("10.0.0.0/26"), 2) && handle.is_empty());
}
