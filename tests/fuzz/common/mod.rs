//! What the fuzz targets do with their bytes. `core/tests/corpus.rs` replays the corpus through the same functions.
//!
//! A finding is a panic: of the core, of the store that watches its contract (`store.rs`), or of the rules that must
//! hold whatever the bytes are (`judge.rs`).

mod judge;
mod store;

use plat_core::cni::{Reply, Request, Surroundings, call, locate};
use plat_core::net::{Address, AddressSet, Count, Family, Prefix, PrefixError, Range, first_free};
use plat_core::network::{Keys, Place, Record};
use std::convert::Infallible;
use std::net::IpAddr;
use store::{BOOT, FAULTS, StandstillClock, TinyStore};

/// The owner in all targets.
const OWNER: (&str, &str) = ("c1", "eth0");
/// How often a contended call is repeated. Faults come once, so that two are enough.
const ATTEMPTS_MAX: u32 = 4;

/// A CNI call of which only what matters is told.
#[derive(Clone, Copy)]
struct Call<'a> {
    program: &'a str,
    command: &'a str,
    owner: (&'a str, &'a str),
    args: &'a [u8],
    input: &'a [u8],
}

impl Call<'_> {
    fn request(&self, attempt: u32) -> Request {
        let variables: [(&str, &[u8]); 6] = [
            ("CNI_COMMAND", self.command.as_bytes()),
            ("CNI_CONTAINERID", self.owner.0.as_bytes()),
            ("CNI_NETNS", b"/run/netns/c1"),
            ("CNI_IFNAME", self.owner.1.as_bytes()),
            ("CNI_ARGS", self.args),
            ("CNI_PATH", b"/opt/cni/bin"),
        ];
        Request {
            program: self.program.into(),
            environment: variables.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.to_vec())).collect(),
            input: self.input.to_vec(),
            surroundings: Surroundings {
                host_name: "node-1".into(),
                working_directory: "/var/empty".into(),
                netns_is_own: Some(false),
            },
            deadline_ms: 1000,
            attempt,
            advice: Vec::new(),
        }
    }

    /// Makes the call, repeats it while it is contended as a host would, and judges the form of the reply.
    fn run(&self, store: &mut TinyStore) -> Reply {
        for attempt in 0..ATTEMPTS_MAX {
            let request = self.request(attempt);
            assert_eq!(locate(&request), locate(&request), "locate is not a function of the request");
            let mut twin = store.clone();
            let reply = call(&request, store, &mut StandstillClock);
            let again = call(&request, &mut twin, &mut StandstillClock);
            assert_eq!((&reply, &*store), (&again, &twin), "a call is not a function of request and store");
            if !reply.contended {
                judge::reply(self.command, &reply);
                return reply;
            }
        }
        panic!("{} is still contended after {ATTEMPTS_MAX} attempts without a competitor", self.command);
    }

    fn with(self, command: &'static str) -> Self {
        Self { command, ..self }
    }
}

/// The first byte chooses command and personality: `A`, `D`, `C`, `G`, `S`, `V` call host-local, the small letters our
/// own name; the rest is standard input.
pub(crate) fn cni_stdin(bytes: &[u8]) {
    let Some((selector, input)) = bytes.split_first() else { return };
    let commands = ["ADD", "DEL", "CHECK", "GC", "STATUS", "VERSION"];
    let command = commands
        .into_iter()
        .find(|command| command.as_bytes()[0] == selector.to_ascii_uppercase())
        .unwrap_or(commands[usize::from(*selector) % commands.len()]);
    let program = if selector.is_ascii_lowercase() { "plat-ipam" } else { "host-local" };

    let mut store = TinyStore::default();
    let foreign = Keys::new("net").key(&Place::Address(Address::parse("10.1.2.2").expect("valid")));
    let foreign_record = Record::owned("other", "eth0", Some(BOOT.into())).to_bytes();
    store.put(&foreign, foreign_record.clone());
    store.put("file//etc/resolv.conf", b"nameserver 10.0.0.53\nsearch a.example b.example\n".to_vec());

    let first = Call { program, command, owner: OWNER, args: b"", input };
    let reply = first.run(&mut store);
    if command == "ADD" && reply.exit_status == 0 {
        for address in judge::granted(&reply) {
            assert!(store.holds(address), "{address} was given out and is not held");
        }
        let check = first.with("CHECK").run(&mut store);
        // Versions below 0.4.0 have no CHECK.
        assert!(check.exit_status == 0 || judge::code(&check) == Some(1), "CHECK fails after ADD: {check:?}");
        let del = first.with("DEL").run(&mut store);
        assert_eq!(del.exit_status, 0, "DEL fails after ADD: {del:?}");
    }
    // A failed ADD has given back what it took, and no other command takes any.
    assert_eq!(store.held_by(OWNER), Vec::<String>::new(), "left by {command}");
    if command != "GC" {
        assert_eq!(store.value(&foreign), Some(&foreign_record), "{command} touched another's address");
    }
}

/// The bytes are CNI_ARGS. A second reading of its grammar says whether ADD must succeed.
pub(crate) fn cni_args(bytes: &[u8]) {
    // The environment cannot hold a zero byte.
    if bytes.contains(&0) {
        return;
    }
    let input = br#"{"cniVersion":"1.0.0","name":"net","ipam":{"type":"host-local",
        "ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"fd00:1::/64"}]]}}"#;
    let mut store = TinyStore::default();
    let add = Call { program: "host-local", command: "ADD", owner: OWNER, args: bytes, input };
    let reply = add.run(&mut store);
    let granted = judge::granted(&reply);
    match judge::requested(bytes) {
        Ok(None) => {
            assert_eq!(reply.exit_status, 0, "no address is requested, and yet: {reply:?}");
            assert_eq!(granted.len(), 2);
        }
        Ok(Some(address)) => {
            let usable = ["10.1.2.2-10.1.2.254", "fd00:1::2-fd00:1::ffff:ffff:ffff:ffff"].iter().any(|ends| {
                let (first, last) = ends.split_once('-').expect("two ends");
                let range = Range::new(Address::parse(first).expect("valid"), Address::parse(last).expect("valid"));
                range.expect("ordered").contains(address)
            });
            assert_eq!(reply.exit_status == 0, usable, "{address} is requested: {reply:?}");
            assert!(!usable || granted.contains(&address), "{address} is requested, given are {granted:?}");
        }
        Err(()) => assert_eq!(reply.exit_status, 1, "the arguments are wrong: {reply:?}"),
    }
    assert!(granted.iter().all(|address| store.holds(*address)));
    // Whatever the arguments, and all the more with them, the release works.
    assert_eq!(add.with("DEL").run(&mut store).exit_status, 0);
    assert_eq!(store.held_by(OWNER), Vec::<String>::new());
}

/// Four bytes and a line end, then lines of key and value, separated by the first blank. Keys are below `network/net/`
/// unless they begin with a slash.
///
/// | byte | meaning |
/// |---|---|
/// | 0 | how many writes a commit may hold: the last two bits choose 1, 2, 8 or 256 |
/// | 1 | the kind of fault: the last two bits, see `store.rs`; it strikes from the first ADD on or, with the bit before them, from the first DEL on |
/// | 2 | at which call of the store from then on it strikes: the last four bits; 0: never |
/// | 3 | `h`: host-local; any other: our own name |
pub(crate) fn store_contents(bytes: &[u8]) {
    let Some((header, lines)) = bytes.split_first_chunk::<4>() else { return };
    let mut store = TinyStore::default();
    store.atomic_writes = [1, 2, 8, 256][usize::from(header[0] & 3)];
    for line in lines.split(|byte| *byte == b'\n') {
        let blank = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
        let Ok(key) = std::str::from_utf8(&line[..blank]) else { continue };
        if !key.is_empty() {
            let key = key.strip_prefix('/').map_or_else(|| format!("network/net/{key}"), String::from);
            store.put(&key, line.get(blank + 1..).unwrap_or_default().to_vec());
        }
    }
    // A store that contradicts itself gets no promise but that nothing panics.
    let sound = store.is_sound();
    let program = if header[3] == b'h' { "host-local" } else { "plat-ipam" };
    let input = br#"{"cniVersion":"1.1.0","name":"net","ipam":{"type":"host-local",
        "ranges":[[{"subnet":"10.1.2.0/29"},{"subnet":"10.1.3.0/30"}],[{"subnet":"fd00:1::/125"}]],
        "resolvConf":"/etc/resolv.conf"},
        "cni.dev/valid-attachments":[{"containerID":"c1","ifname":"eth0"}]}"#;
    let call = Call { program, command: "ADD", owner: OWNER, args: b"", input };

    let (fault, in_del, at) = (FAULTS[usize::from(header[1] & 3)], header[1] & 4 != 0, u32::from(header[2] & 15));
    store.fault(fault, if in_del { 0 } else { at });
    let before = store.clone();
    let add = call.run(&mut store);
    if sound && add.exit_status == 0 {
        let granted = judge::granted(&add);
        assert_eq!(granted.len(), 2, "one address from each set");
        for address in granted {
            assert!(store.is_held_by(address, OWNER), "{address} was given out and is not held");
            assert!(program != "host-local" || !before.is_current(address), "{address} was given out twice");
        }
    }
    let other = Call { owner: ("c2", "eth0"), ..call };
    let other_add = other.run(&mut store);
    if sound {
        // What is held in this boot stays as it is, and what two owners are given differs.
        store.assert_keeps(&before);
        if add.exit_status == 0 && other_add.exit_status == 0 {
            let (mine, others) = (judge::granted(&add), judge::granted(&other_add));
            assert!(mine.iter().all(|address| !others.contains(address)), "{mine:?} and {others:?}");
        }
    }
    store.fault(FAULTS[0], 0);
    call.with("STATUS").run(&mut store);
    call.with("CHECK").run(&mut store);
    let mine = store.held_by(OWNER);
    let gc = call.with("GC").run(&mut store);
    if sound {
        assert_eq!(store.held_by(OWNER), mine, "GC took what is valid");
        // Strays are not for GC to release.
        let left = store.held_by(other.owner).iter().any(|key| key.contains("/address/"));
        assert!(gc.exit_status == 0 && !left, "GC left what is not valid: {gc:?}");
    }
    store.fault(fault, if in_del { at } else { 0 });
    for call in [call, other] {
        let mut del = call.with("DEL").run(&mut store);
        if sound && in_del && del.exit_status != 0 {
            // The fault came; a runtime repeats the DEL.
            del = call.with("DEL").run(&mut store);
        }
        if sound {
            assert_eq!(del.exit_status, 0, "DEL fails: {del:?}");
            assert_eq!(store.held_by(call.owner), Vec::<String>::new(), "left by DEL");
        }
    }
}

/// Text of addresses and prefixes, and the same bytes as sets of ranges.
pub(crate) fn net(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        net_text(text);
    }
    net_sets(bytes);
}

fn net_text(text: &str) {
    let address = Address::parse(text);
    assert_eq!(address.map(Address::to_ip), text.parse::<IpAddr>().ok().map(|ip| ip.to_canonical()));
    if let Some(address) = address {
        assert_eq!(Address::parse(&address.to_string()), Some(address));
        assert_eq!(Address::from_hex(address.family(), &address.to_hex()), Some(address));
    }
    for family in [Family::V4, Family::V6] {
        if let Some(address) = Address::from_hex(family, text) {
            assert_eq!(address.to_hex(), text);
        }
    }
    match Prefix::parse(text) {
        Ok(prefix) => {
            assert_eq!(Prefix::parse(&prefix.to_string()), Ok(prefix));
            assert_eq!(Address::parse(text.split('/').next().unwrap_or_default()), Some(prefix.base()));
            assert!(prefix.first() <= prefix.base() && prefix.base() <= prefix.last());
            assert!(prefix.contains(prefix.base()) && prefix.covers(&prefix) && prefix.overlaps(&prefix));
            assert_eq!(prefix.has_host_bits(), prefix.base() != prefix.network());
            let host_bits = u32::from(prefix.family().bits() - prefix.length());
            assert_eq!(prefix.range().len(), 1u128.checked_shl(host_bits).map_or(Count::MAX, Count::from));
        }
        Err(error @ PrefixError::MappedV4 { address, length }) => {
            assert!(text.contains(':') && address.family() == Family::V4 && length <= 128);
            assert!(error.as_v4().is_some_and(|prefix| prefix.base() == address));
        }
        Err(PrefixError::Invalid) => {}
    }
}

fn net_sets(bytes: &[u8]) {
    // 18 bytes make a range: which set and family, where it starts (sparse near the ends), how long it is.
    let mut sets = [AddressSet::default(), AddressSet::default()];
    for chunk in bytes.chunks_exact(18) {
        let (Some((selector, rest)), mut start) = (chunk.split_first(), [0; 16]) else { return };
        start.copy_from_slice(&rest[..16]);
        let family = if selector & 1 == 0 { Family::V4 } else { Family::V6 };
        let top = Address::highest(family).bits();
        let start = u128::from_be_bytes(start) & top;
        let first = if selector & 2 == 0 { start } else { top - (start & 0xff) };
        let first = Address::new(family, first).expect("within the family");
        let last = first.checked_add(1u128.checked_shl(u32::from(rest[16])).unwrap_or(0)).unwrap_or(first);
        let range = Range::new(first, last).expect("ordered");
        let set = &mut sets[usize::from(selector >> 7)];
        *set = set.union(&AddressSet::from(range));
    }
    let [a, b] = sets;
    let both = a.intersection(&b);
    assert_eq!(a.overlaps(&b), !both.is_empty());
    assert_eq!(a.difference(&b).union(&both), a);
    assert_eq!(a.union(&b).difference(&b), a.difference(&b));
    for family in [Family::V4, Family::V6] {
        let sum = a.difference(&b).count(family).checked_add(b.count(family));
        assert_eq!(sum, Some(a.union(&b).count(family)));
        for index in 0..4 {
            let nth = a.nth(family, index);
            assert_eq!(nth.is_some(), Count::from(index) < a.count(family));
            assert!(nth.is_none_or(|address| a.contains(address) && a.next_at_or_after(address) == nth));
        }
        let whole = Range::new(Address::lowest(family), Address::highest(family)).expect("ordered");
        let mut counts = 0;
        let found = first_free(whole, |range| {
            counts += 1;
            let held = a.intersection(&AddressSet::from(range)).count(family);
            Ok::<_, Infallible>(held.as_u128().unwrap_or(u128::MAX))
        });
        assert_eq!(found, Ok(AddressSet::from(whole).difference(&a).nth(family, 0)));
        assert!(counts <= 257, "{counts} counts");
    }
}
