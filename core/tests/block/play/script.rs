//! Scenario files: resources, operations and what they answer, one a line.
//!
//! A file begins with what its cases have in common; each case begins with `== its name`. Every case runs on a store
//! that commits many keys at once and on one that commits single keys, and, unless it says `one family`, a second time
//! with each IPv4 address turned into an IPv6 address (10.0.0.1/28 into fd00::a00:1/124).
//! The folder's README.md tells the words.

use super::invariants::{self, State, Strictness};
use super::operation::{Operation, Outcome, Reference, perform};
use super::stores::{Eventful, Incident};
use super::world::{self, Planted, START_SECONDS, Standing, address, holder, prefix};
use plat_core::ipam::{
    AffinityRelease, Assignment, BlockDemand, Edges, Error, Grant, Holder, OwnerChange, PassOver, PoolReport, Release,
    Released, SlotChange, SlotPrecondition, Specific, Use,
};
use plat_core::net::{Address, Family, Prefix};
use plat_stores::memory::MemoryStore;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// A case of a file.
#[derive(Clone, Debug)]
pub struct Case {
    pub name: String,
    /// Line numbers and lines, comments left out.
    pub lines: Vec<(usize, String)>,
    pub has_twin: bool,
}

/// The cases of a file.
pub fn parse(text: &str) -> Vec<Case> {
    let mut common = Vec::new();
    let mut cases: Vec<Case> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix("==") {
            cases.push(Case { name: name.trim().to_owned(), lines: common.clone(), has_twin: true });
        } else {
            let lines = cases.last_mut().map_or(&mut common, |case| &mut case.lines);
            lines.push((index + 1, line.to_owned()));
        }
    }
    assert!(!cases.is_empty(), "a case begins with `== its name`");
    for case in &mut cases {
        case.has_twin = !case.lines.iter().any(|(_, line)| line == "one family");
    }
    cases
}

/// An IPv4 address or prefix in a text, as an IPv6 one.
fn twin_of(text: &str) -> Option<String> {
    let (base, length) = text.split_once('/').map_or((text, None), |(base, length)| (base, Some(length)));
    let ip: std::net::Ipv4Addr = base.parse().ok()?;
    let twin = std::net::Ipv6Addr::from((0xfd00u128 << 112) | u128::from(u32::from(ip)));
    match length {
        None => Some(twin.to_string()),
        Some(length) => Some(format!("{twin}/{}", length.parse::<u8>().ok()? + 96)),
    }
}

/// A line of the other family.
fn twin(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while !rest.is_empty() {
        let length = rest.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '/')).unwrap_or(rest.len());
        if length > 0 {
            let (run, more) = rest.split_at(length);
            out.push_str(&twin_of(run).unwrap_or_else(|| run.to_owned()));
            rest = more;
        } else {
            let c = rest.chars().next().expect("a character");
            out.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    let word = |word: &str| match word {
        "v4" => "v6".to_owned(),
        "v4;" => "v6;".to_owned(),
        _ => match word.strip_prefix("block=").and_then(|length| length.parse::<u8>().ok()) {
            Some(length) => format!("block={}", length + 96),
            None => word.to_owned(),
        },
    };
    let words: Vec<String> = out.split(' ').map(word).collect();
    let line = words.join(" ");
    match line.split_once("block-too-small ") {
        Some((before, length)) => {
            let length: u8 = length.trim().parse().expect("a length at the end of the line");
            format!("{before}block-too-small {}", length + 96)
        }
        None => line,
    }
}

/// Words, where quotes hold a word together.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut is_quoted = false;
    for c in line.chars() {
        match c {
            '"' => is_quoted = !is_quoted,
            ' ' if !is_quoted => words.push(String::new()),
            _ => words.last_mut().expect("a word").push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The words of a command: places, `key=value` and flags.
#[derive(Debug)]
struct Arguments {
    verb: String,
    places: Vec<String>,
    options: BTreeMap<String, String>,
    used: RefCell<Vec<String>>,
}

impl Arguments {
    fn new(line: &str, places: usize) -> Self {
        let mut all = words(line).into_iter();
        let verb = all.next().expect("a verb");
        let places: Vec<String> = all.by_ref().take(places).collect();
        let options =
            all.map(|word| word.split_once('=').map_or((word.clone(), String::new()), |(k, v)| (k.into(), v.into())));
        Self { verb, places, options: options.collect(), used: RefCell::default() }
    }

    fn place(&self, index: usize) -> &str {
        self.places.get(index).unwrap_or_else(|| panic!("`{}` lacks its word {}", self.verb, index + 1))
    }

    fn option(&self, name: &str) -> Option<&str> {
        self.used.borrow_mut().push(name.to_owned());
        self.options.get(name).map(String::as_str)
    }

    fn flag(&self, name: &str) -> bool {
        self.option(name).is_some()
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.option(name).map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
    }

    fn list(&self, name: &str) -> Vec<String> {
        self.option(name).into_iter().flat_map(|text| text.split(',')).map(str::to_owned).collect()
    }

    fn pairs(&self, name: &str) -> BTreeMap<String, String> {
        pairs(self.option(name).unwrap_or_default())
    }

    fn done(&self) {
        for name in self.options.keys() {
            assert!(self.used.borrow().contains(name), "`{}` has no {name:?}", self.verb);
        }
    }
}

/// `k:v,k:v`.
fn pairs(text: &str) -> BTreeMap<String, String> {
    let parts = text.split(',').filter(|part| !part.is_empty());
    parts.map(|part| part.split_once(':').unwrap_or((part, ""))).map(|(k, v)| (k.into(), v.into())).collect()
}

fn purpose(text: &str) -> Use {
    match text {
        "Workload" => Use::Workload,
        "Tunnel" => Use::Tunnel,
        "LoadBalancer" => Use::LoadBalancer,
        _ => panic!("{text:?} is no use"),
    }
}

/// `3+1`.
fn edges(text: &str) -> Edges {
    let (first, last) = text.split_once('+').expect("first+last");
    Edges {
        first: first.parse().expect("a count"),
        last: last.parse().expect("a count"),
        handle: invariants::WINDOWS_HANDLE.into(),
        note: "windows host rsvd".into(),
    }
}

fn holder_text(holder: Option<&Holder>) -> String {
    match holder {
        None => "-".into(),
        Some(Holder::Host(name)) => name.clone(),
        Some(other) => other.to_string(),
    }
}

fn family_text(family: Family) -> &'static str {
    if family == Family::V4 { "v4" } else { "v6" }
}

/// An error in a few words, without what is for people only.
pub fn error_text(error: &Error) -> String {
    let handle = |handle: &Option<String>| handle.clone().unwrap_or("-".into());
    match error {
        Error::Exhausted { family, wanted, obtained } => {
            format!("exhausted {} {obtained}/{wanted}", family_text(*family))
        }
        Error::Taken { handle: by, .. } => format!("taken {}", handle(by)),
        Error::NotFound(_) => "not-found".into(),
        Error::NoSuchPool { pool, .. } => format!("no-such-pool {pool}"),
        Error::NoPool(family) => format!("no-pool {}", family_text(*family)),
        Error::NotInAPool(_) => "not-in-a-pool".into(),
        Error::NotYours(by) => format!("not-yours {}", handle(by)),
        Error::StrictAffinity(by) => format!("strict {}", holder_text(by.as_ref())),
        Error::ClaimedBy(by) => format!("claimed-by {}", holder_text(by.as_ref())),
        Error::StaleSequence(_) => "stale".into(),
        Error::OwnerDiffers(_) => "owner-differs".into(),
        Error::NotEmpty(_) => "not-empty".into(),
        Error::HandleLimit(limit) => format!("handle-limit {limit}"),
        Error::Overlap(one, other) => format!("overlap {one} {other}"),
        Error::Contended => "contended".into(),
        Error::Invalid { field, .. } => format!("invalid {field}"),
        Error::Unreadable { key, .. } => format!("unreadable {key}"),
        Error::RefusedByPolicy(policy, _) => format!("refused-by {policy}"),
        Error::Unavailable(_) => "unavailable".into(),
        Error::Denied(_) => "denied".into(),
        Error::Unsettled => "unsettled".into(),
    }
}

fn why_text(report: &PoolReport) -> String {
    let why = match &report.why {
        PassOver::Disabled => "disabled".into(),
        PassOver::Deleting => "deleting".into(),
        PassOver::NotAllocatable(reason) => format!("not-allocatable {reason}"),
        PassOver::OtherFamily => "other-family".into(),
        PassOver::NotRequested => "not-requested".into(),
        PassOver::Manual => "manual".into(),
        PassOver::NodeSelector(text) => format!("node-selector {text}"),
        PassOver::NamespaceSelector(text) => format!("namespace-selector {text}"),
        PassOver::NotForThisUse(purpose) => format!("not-for {purpose:?}"),
        PassOver::BlockTooSmall(length) => format!("block-too-small {length}"),
        PassOver::Full => "full".into(),
        PassOver::Reserved => "reserved".into(),
        PassOver::StrictAffinity => "strict".into(),
        PassOver::BlockLimit(limit) => format!("block-limit {limit}"),
        PassOver::AddressLimit(limit) => format!("address-limit {limit}"),
        PassOver::NoAutoAllocate => "no-auto".into(),
        PassOver::RefusedBy(policy) => format!("refused-by {policy}"),
        PassOver::SearchLimit => "search-limit".into(),
    };
    format!("{}: {why}", report.pool)
}

/// A case while it runs.
struct Run {
    store: MemoryStore,
    clock: Standing,
    reference: Reference,
    strictness: Strictness,
    variables: BTreeMap<String, Vec<Grant>>,
    is_twin: bool,
    /// What happens at the next operation: where, and what.
    pending: Vec<(String, String)>,
}

/// Runs a case.
pub fn run(case: &Case, is_twin: bool, atomic_writes: Option<u32>) -> Result<(), String> {
    let store = atomic_writes.map_or_else(MemoryStore::new, MemoryStore::with_atomic_writes);
    let mut run = Run {
        store,
        clock: Standing(START_SECONDS),
        reference: Reference::default(),
        strictness: Strictness::Settled,
        variables: BTreeMap::new(),
        is_twin,
        pending: Vec::new(),
    };
    for (number, line) in &case.lines {
        let line = if is_twin { twin(line) } else { line.clone() };
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run.line(&line)));
        if let Err(payload) = done {
            let text = payload.downcast_ref::<String>().cloned();
            let text = text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            return Err(format!("line {number}: {line}\n{}", text.unwrap_or_default()));
        }
    }
    Ok(())
}

impl Run {
    fn cooldown(&self) -> u64 {
        let config = self.store.dump().into_iter().find(|(key, _)| key == "config");
        let config: Option<Value> = config.map(|(_, value)| serde_json::from_slice(&value).expect("JSON"));
        config.and_then(|config| config["spec"]["ipCooldownSeconds"].as_u64()).unwrap_or(0)
    }

    fn state(&self) -> State {
        invariants::read(&self.store)
    }

    fn line(&mut self, line: &str) {
        match line.split_once("->") {
            None => self.set_up(line),
            Some((left, expected)) => {
                let (left, expected) = (left.trim(), expected.trim());
                if left.starts_with("before ") {
                    let (place, act) =
                        left.strip_prefix("before ").and_then(|rest| rest.split_once(": ")).expect("`: `");
                    self.pending.push((place.to_owned(), format!("{act} -> {expected}")));
                } else if !self.look(left, expected) {
                    self.operate(left, expected);
                }
            }
        }
    }

    // What was there before.

    fn set_up(&mut self, line: &str) {
        let store = &mut self.store;
        let verb = line.split(' ').next().expect("a verb");
        match verb {
            "one" => {}
            "before" => {
                let (place, act) = line.strip_prefix("before ").and_then(|rest| rest.split_once(": ")).expect("`: `");
                self.pending.push((place.to_owned(), act.to_owned()));
            }
            "loose" => self.strictness = Strictness::Loose,
            "settled" => self.strictness = Strictness::Settled,
            "cut" | "lose" => {
                // cut before|after PLACE; lose PLACE
                self.pending.push((String::new(), line.to_owned()));
            }
            "later" => self.clock.0 += Arguments::new(line, 1).place(0).parse::<u64>().expect("seconds"),
            "earlier" => self.clock.0 -= Arguments::new(line, 1).place(0).parse::<u64>().expect("seconds"),
            "pool" => set_pool(store, line),
            "no-pool" => world::put(store, &format!("pool/{}", Arguments::new(line, 1).place(0)), None),
            "no-node" => world::put(store, &format!("node/{}", Arguments::new(line, 1).place(0)), None),
            "no-reserve" => world::put(store, &format!("reservation/{}", Arguments::new(line, 1).place(0)), None),
            "no-config" => world::put(store, "config", None),
            "node" | "namespace" => {
                let arguments = Arguments::new(line, 1);
                let labels: Vec<(&str, &str)> =
                    arguments.options.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
                world::labelled(store, verb, arguments.place(0), &labels);
            }
            "reserve" => {
                let all = words(line);
                let cidrs: Vec<&str> = all[2..].iter().map(String::as_str).collect();
                world::reserve(store, &all[1], &cidrs);
            }
            "config" => set_configuration(store, line),
            "put" => {
                let (key, value) = line["put ".len()..].split_once(' ').expect("a value");
                world::put(store, key, Some(value.as_bytes().to_vec()));
            }
            "block" => {
                set_block(store, line, self.clock.0);
                self.reference.adopt(&invariants::read(&self.store), self.clock.0);
            }
            "affinity" => set_affinity(store, line),
            "handle" => {
                let arguments = Arguments::new(line, 1);
                let counts: Vec<(Prefix, u32)> =
                    arguments.options.iter().map(|(block, n)| (prefix(block), n.parse().expect("a count"))).collect();
                world::handle(store, arguments.place(0), &counts);
            }
            _ => panic!("what is {verb:?}?"),
        }
    }

    // Operations.

    fn operation(&self, line: &str) -> Operation {
        let verb = line.split(' ').next().expect("a verb");
        match verb {
            "assign" | "explain" => {
                let items: Vec<Assignment> =
                    line.split(" & ").map(|item| self.assignment(&Arguments::new(item, 2))).collect();
                if verb == "explain" { Operation::Explain(items[0].clone()) } else { Operation::Assign(items) }
            }
            "assign-ip" => {
                Operation::AssignIp(line.split(" & ").map(|item| self.specific(&Arguments::new(item, 2))).collect())
            }
            "release" => Operation::Release(words(line)[1..].iter().flat_map(|word| self.releases(word)).collect()),
            "release-handle" => {
                Operation::ReleaseByHandle(words(line)[1..].iter().map(|word| unescape(word)).collect())
            }
            "by-handle" => Operation::AddressesByHandle(unescape(Arguments::new(line, 1).place(0))),
            "who" => Operation::Held(self.one_address(Arguments::new(line, 1).place(0))),
            "owners" => Operation::SetOwners(self.owner_change(&Arguments::new(line, 2))),
            "claim" => {
                let arguments = Arguments::new(line, 2);
                arguments.done();
                Operation::Claim(holder(arguments.place(0)), prefix(arguments.place(1)))
            }
            "release-affinity" => {
                let arguments = Arguments::new(line, 1);
                let who = arguments.place(0);
                let sequence = arguments.option("seq").map(|text| {
                    let block = prefix(arguments.option("within").expect("the block of a number"));
                    let stored = self.state().blocks.get(&block).map_or(0, |block| block.sequence);
                    if text == "right" { stored } else { stored - 1 }
                });
                let item = AffinityRelease {
                    holder: (who != "*").then(|| holder(who)),
                    within: arguments.option("within").map(prefix),
                    must_be_empty: arguments.flag("empty"),
                    sequence,
                };
                arguments.done();
                Operation::ReleaseAffinities(item)
            }
            "ensure" => {
                let arguments = Arguments::new(line, 2);
                let family = if arguments.place(1) == "v4" { Family::V4 } else { Family::V6 };
                let item = BlockDemand {
                    holder: holder(arguments.place(0)),
                    family,
                    pools: arguments.list("pools"),
                    edges: arguments.option("edges").map(edges),
                };
                arguments.done();
                Operation::EnsureBlock(item)
            }
            "remove" => Operation::RemoveHost(holder(Arguments::new(line, 1).place(0))),
            "usage" => Operation::Utilization(words(line)[1..].to_vec()),
            _ => panic!("what is {verb:?}?"),
        }
    }

    fn assignment(&self, arguments: &Arguments) -> Assignment {
        let counts = arguments.place(1);
        let (v4, v6) = counts.split_once('+').unwrap_or(if self.is_twin { ("0", counts) } else { (counts, "0") });
        let count = |text: &str| text.parse::<u32>().expect("a count");
        let mut item = Assignment::new(holder(arguments.place(0)), count(v4), count(v6));
        item.handle = arguments.option("h").map(unescape);
        item.purpose = arguments.option("use").map_or(Use::Workload, purpose);
        let (here, there) = (arguments.list("pools"), arguments.list("pools6"));
        (item.v4_pools, item.v6_pools) = if self.is_twin { (there, here) } else { (here, there) };
        item.namespace = arguments.option("ns").map(str::to_owned);
        item.attributes = arguments.pairs("attrs");
        item.blocks_max = arguments.number("blocks-max");
        item.addresses_max = arguments.number("addresses-max");
        item.per_handle_max = arguments.number("per-handle");
        let (here, there) = (arguments.option("edges").map(edges), arguments.option("edges6").map(edges));
        (item.v4_edges, item.v6_edges) = if self.is_twin { (there, here) } else { (here, there) };
        item.avoid = arguments.list("avoid").iter().map(|text| address(text)).collect();
        item.avoid_pool_edges = arguments.flag("avoid-pool-edges");
        item.partial = arguments.flag("partial");
        arguments.done();
        item
    }

    fn specific(&self, arguments: &Arguments) -> Specific {
        let item = Specific {
            address: self.one_address(arguments.place(1)),
            handle: arguments.option("h").map(unescape),
            holder: holder(arguments.place(0)),
            purpose: arguments.option("use").map(purpose),
            attributes: arguments.pairs("attrs"),
            per_handle_max: arguments.number("per-handle"),
            edges: arguments.option("edges").map(edges),
        };
        arguments.done();
        item
    }

    /// `ADDRESS[@handle][#old|#now|#$variable]`, where the address may be a variable or a range.
    fn releases(&self, word: &str) -> Vec<Release> {
        let (word, number) = word.split_once('#').map_or((word, None), |(word, number)| (word, Some(number)));
        let (word, handle) = word.split_once('@').map_or((word, None), |(word, handle)| (word, Some(unescape(handle))));
        let stored = |address: &Address| self.state().addresses.get(address).map_or(0, |stored| stored.sequence);
        let addresses = self.addresses(word);
        let sequence = |index: usize, address: &Address| match number {
            None => None,
            Some("now") => Some(stored(address)),
            Some("old") => Some(stored(address).saturating_sub(1)),
            Some(name) => Some(self.variable(name)[index].sequence),
        };
        let each = addresses.iter().enumerate();
        each.map(|(index, address)| Release {
            address: *address,
            handle: handle.clone(),
            sequence: sequence(index, address),
        })
        .collect()
    }

    fn variable(&self, name: &str) -> &[Grant] {
        self.variables.get(name).unwrap_or_else(|| panic!("{name} is not known"))
    }

    /// `10.0.0.1`, `10.0.0.1-10.0.0.4`, `$x`, `$x.0` (its first).
    fn addresses(&self, word: &str) -> Vec<Address> {
        if let Some(name) = word.strip_prefix('$') {
            if let Some((name, index)) = name.split_once('.') {
                let index: usize = index.parse().expect("an index");
                return vec![self.variable(&format!("${name}"))[index].address];
            }
            return self.variable(word).iter().map(|grant| grant.address).collect();
        }
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        let (mut at, last) = (address(first), address(last));
        let mut all = vec![at];
        while at != last {
            at = Address::new(at.family(), at.bits() + 1).expect("an address");
            all.push(at);
        }
        all
    }

    fn one_address(&self, word: &str) -> Address {
        let all = self.addresses(word);
        assert_eq!(all.len(), 1, "{word} is one address");
        all[0]
    }

    fn owner_change(&self, arguments: &Arguments) -> OwnerChange {
        let change = |name: &str| match arguments.option(name) {
            None => SlotChange::Keep,
            Some("clear") => SlotChange::Clear,
            Some(text) => SlotChange::Set(pairs(text)),
        };
        let condition = |name: &str| match arguments.option(name) {
            None => SlotPrecondition::Any,
            Some("empty") => SlotPrecondition::Empty,
            Some(text) => {
                let (namespace, pod) = text.split_once('/').expect("namespace/pod");
                SlotPrecondition::OwnedBy { namespace: namespace.into(), pod: pod.into() }
            }
        };
        let item = OwnerChange {
            address: self.one_address(arguments.place(0)),
            handle: arguments.place(1).to_owned(),
            active: change("active"),
            alternate: change("alternate"),
            active_must_be: condition("active-is"),
            alternate_must_be: condition("alternate-is"),
        };
        arguments.done();
        item
    }

    fn operate(&mut self, line: &str, expected: &str) {
        let operation = self.operation(line);
        let before = self.state();
        let pending = std::mem::take(&mut self.pending);
        let meanwhile: RefCell<Vec<(Operation, String, Option<Outcome>)>> = RefCell::default();
        let clock = self.clock;
        let mut is_cut = false;
        let mut incidents = Vec::new();
        for (place, act) in &pending {
            if let Some(rest) = act.strip_prefix("cut ") {
                is_cut = true;
                let (when, place) = rest.split_once(' ').expect("before or after, and where");
                let incident = if when == "before" { Incident::CutBefore } else { Incident::CutAfter };
                incidents.push((place.to_owned(), incident));
            } else if let Some(place) = act.strip_prefix("lose ") {
                incidents.push((place.to_owned(), Incident::ReplyLost));
            } else if let Some((verb @ ("block" | "affinity"), _)) = act.split_once(' ') {
                let act = act.clone();
                let now = clock.0;
                let act = move |store: &mut MemoryStore| match verb {
                    "block" => set_block(store, &act, now),
                    _ => set_affinity(store, &act),
                };
                incidents.push((place.clone(), Incident::Meanwhile(Box::new(act))));
            } else {
                let (line, expected) = act.split_once(" -> ").expect("an arrow");
                let index = meanwhile.borrow().len();
                meanwhile.borrow_mut().push((self.operation(line), expected.to_owned(), None));
                let meanwhile = &meanwhile;
                let act = move |store: &mut MemoryStore| {
                    let other = meanwhile.borrow()[index].0.clone();
                    let outcome = perform(&other, store, clock);
                    meanwhile.borrow_mut()[index].2 = Some(outcome);
                };
                incidents.push((place.clone(), Incident::Meanwhile(Box::new(act))));
            }
        }
        let outcome = {
            let mut store = Eventful::new(&mut self.store, incidents);
            let outcome = perform(&operation, &mut store, clock);
            assert!(store.unhappened().is_empty(), "never written: {:?}", store.unhappened());
            outcome
        };
        let cooldown = self.cooldown();
        if is_cut {
            self.strictness = Strictness::Loose;
            self.expect(&operation, &outcome, expected);
            let state = self.state();
            self.reference.adopt(&state, self.clock.0);
        } else {
            let meanwhile = meanwhile.into_inner();
            let before = meanwhile.is_empty().then_some(&before);
            for (other, expected, outcome) in meanwhile {
                let outcome = outcome.expect("it happened");
                self.expect(&other, &outcome, &expected);
                self.reference.learn(&other, &outcome, before, self.clock.0, cooldown);
            }
            self.expect(&operation, &outcome, expected);
            self.reference.learn(&operation, &outcome, before, self.clock.0, cooldown);
        }
        let state = self.state();
        self.reference.compare(&state, self.clock.0, cooldown);
        invariants::check(&state, self.strictness);
    }

    // What was answered.

    fn expect(&mut self, operation: &Operation, outcome: &Outcome, expected: &str) {
        match outcome {
            Outcome::Assigned(answers) => {
                let parts: Vec<&str> = expected.split(" & ").collect();
                assert_eq!(parts.len(), answers.len(), "as many answers as items");
                for (granted, expected) in answers.iter().zip(parts) {
                    self.expect_grants(&granted.grants, granted.failed.as_ref(), &granted.passed_over, expected);
                }
            }
            Outcome::Explained(granted) => {
                self.expect_grants(&granted.grants, granted.failed.as_ref(), &granted.passed_over, expected);
            }
            Outcome::Specific(answers) => {
                let parts: Vec<&str> = expected.split(" & ").collect();
                assert_eq!(parts.len(), answers.len(), "as many answers as items");
                for (answer, expected) in answers.iter().zip(parts) {
                    match answer {
                        Ok(grant) => self.expect_grants(std::slice::from_ref(grant), None, &[], expected),
                        Err(error) => assert_eq!(error_text(error), expected, "{error:?}"),
                    }
                }
            }
            Outcome::Released(answers) => {
                let got: Vec<String> = answers
                    .iter()
                    .map(|answer| match answer {
                        Ok(Released::Freed) => "freed".into(),
                        Ok(Released::Cooling) => "cooling".into(),
                        Ok(Released::NotAssigned) => "not-assigned".into(),
                        Err(error) => error_text(error),
                    })
                    .collect();
                // One word for many answers, all the same.
                let all_same = got.windows(2).all(|pair| pair[0] == pair[1]);
                let is_short = all_same && !got.is_empty() && !expected.contains(", ");
                let got = if is_short { got[0].clone() } else { got.join(", ") };
                assert_eq!(got, expected, "{answers:?}");
            }
            Outcome::ReleasedByHandle(answers) => {
                let parts: Vec<&str> = expected.split(" & ").collect();
                assert_eq!(parts.len(), answers.len(), "as many answers as items");
                for (answer, expected) in answers.iter().zip(parts) {
                    match answer {
                        Ok(released) => self.expect_addresses(released, expected),
                        Err(error) => assert_eq!(error_text(error), expected, "{error:?}"),
                    }
                }
            }
            Outcome::Addresses(Ok(held)) => {
                let addresses: Vec<Address> = held.iter().map(|held| held.address).collect();
                self.expect_addresses(&addresses, expected);
            }
            Outcome::Held(Ok(None)) => assert_eq!("none", expected),
            Outcome::Held(Ok(Some(held))) => {
                let pairs = |pairs: &BTreeMap<String, String>| {
                    pairs.iter().map(|(k, v)| format!("{k}:{v}")).collect::<Vec<_>>().join(",")
                };
                let cooling = if held.cooling_since.is_some() { "cooling" } else { "" };
                let got = [
                    held.handle.clone().unwrap_or("-".into()),
                    format!("active {}", pairs(&held.active)),
                    format!("alternate {}", pairs(&held.alternate)),
                    format!("block {} of {}", held.block, holder_text(held.block_holder.as_ref())),
                ];
                for part in expected.split(';').map(str::trim) {
                    assert!(
                        part == cooling || got.iter().any(|got| got.trim() == part),
                        "{part:?} of {got:?} {cooling}"
                    );
                }
            }
            Outcome::Owners(answer) => {
                assert_eq!(answer.as_ref().map_or_else(error_text, |()| "ok".into()), expected, "{answer:?}");
            }
            Outcome::Affinities(Ok(outcomes)) => {
                let each = outcomes.iter().map(|one| {
                    format!("{} {}", one.block, one.outcome.as_ref().map_or_else(error_text, |()| "ok".into()))
                });
                let got: Vec<String> = each.collect();
                let got = if got.is_empty() { "none".to_owned() } else { got.join("; ") };
                assert_eq!(got, expected, "{operation:?}");
            }
            Outcome::Block(Ok(block)) => match expected.strip_prefix("in ") {
                Some(around) => assert!(prefix(around).covers(block), "{block} is not in {around}"),
                None => assert_eq!(block.to_string(), expected),
            },
            Outcome::Usage(Ok(pools)) => {
                let mut got = Vec::new();
                for pool in pools {
                    let name = if pool.pool.is_empty() { "-" } else { &pool.pool };
                    let (capacity, in_use, cooling) = (pool.capacity, pool.in_use, pool.cooling);
                    let (borrowed, reserved, free) = (pool.borrowed, pool.reserved, pool.free);
                    got.push(format!(
                        "{name}: {capacity} = {in_use} used + {reserved} reserved + {free} free, {cooling} cooling, \
                         {borrowed} borrowed, {} blocks",
                        pool.blocks.len()
                    ));
                    for block in &pool.blocks {
                        assert_eq!(block.capacity, block.in_use + block.reserved + block.free, "{block:?}");
                        assert_eq!(block.in_use as usize, block.held.len(), "{block:?}");
                    }
                }
                assert_eq!(got.join("; "), expected);
            }
            Outcome::Addresses(Err(error))
            | Outcome::Held(Err(error))
            | Outcome::Affinities(Err(error))
            | Outcome::Block(Err(error))
            | Outcome::Usage(Err(error)) => assert_eq!(error_text(error), expected, "{error:?}"),
        }
    }

    fn expect_addresses(&self, got: &[Address], expected: &str) {
        let expected = if expected == "none" { "" } else { expected };
        let expected: Vec<Address> = words(expected).iter().flat_map(|word| self.addresses(word)).collect();
        assert_eq!(got, expected);
    }

    /// `10.0.0.0-10.0.0.3`, `4 in 10.0.0.0/24 as $x`, `held 10.0.0.1`; then errors and reports, each after a `;`.
    fn expect_grants(&mut self, grants: &[Grant], failed: Option<&Error>, reports: &[PoolReport], expected: &str) {
        let mut got: Vec<String> = failed.map(error_text).into_iter().collect();
        got.extend(reports.iter().map(why_text));
        let mut parts: Vec<&str> = expected.split(';').map(str::trim).collect();
        let is_grants = |part: &str| {
            part.starts_with(|c: char| c.is_ascii_digit() || c == '$')
                || part.starts_with("held ")
                || part.starts_with("fd00")
                || part == "none"
        };
        let granted = if is_grants(parts[0]) { parts.remove(0) } else { "none" };
        let (granted, name) = granted.split_once(" as ").map_or((granted, None), |(part, name)| (part, Some(name)));
        let (granted, held) = granted.strip_prefix("held ").map_or((granted, false), |part| (part, true));
        for grant in grants {
            assert_eq!(grant.held_before, held, "{} was held before; {got:?}", grant.address);
        }
        let all: Vec<Address> = grants.iter().map(|grant| grant.address).collect();
        match granted.split_once(" in ") {
            Some((count, place)) => {
                assert_eq!(all.len().to_string(), count, "addresses: {all:?}; {got:?}");
                let places: Vec<Prefix> = place.split(" or ").map(prefix).collect();
                for address in &all {
                    assert!(places.iter().any(|place| place.contains(*address)), "{address} is not in {place}");
                }
            }
            None => {
                let granted = if granted == "none" { "" } else { granted };
                let wanted: Vec<Address> = words(granted).iter().flat_map(|word| self.addresses(word)).collect();
                assert_eq!(all, wanted, "{got:?}");
            }
        }
        assert_eq!(got, parts, "why it failed");
        if let Some(name) = name {
            self.variables.insert(name.to_owned(), grants.to_vec());
        }
    }

    /// Looks at the store itself.
    fn look(&mut self, line: &str, expected: &str) -> bool {
        let state = self.state();
        let arguments = words(line);
        let none = |texts: Vec<String>| if texts.is_empty() { "none".to_owned() } else { texts.join(" ") };
        let got = match arguments[0].as_str() {
            // blocks of a holder, `-` for nobody, `*` for all
            "blocks" => {
                let who = arguments[1].as_str();
                let of = |block: &Option<Holder>| who == "*" || holder_text(block.as_ref()) == who;
                let blocks: Vec<String> = state
                    .blocks
                    .iter()
                    .filter(|(_, block)| of(&block.holder))
                    .map(|(block, _)| block.to_string())
                    .collect();
                count_or(blocks, expected)
            }
            "affinities" => {
                let of = |holder: &Holder| arguments[1] == "*" || holder_text(Some(holder)) == arguments[1];
                let all = state.affinities.iter().filter(|((holder, _), _)| of(holder));
                let texts: Vec<String> = all
                    .map(
                        |((_, block), text)| {
                            if text == "confirmed" { block.to_string() } else { format!("{block}:{text}") }
                        },
                    )
                    .collect();
                count_or(texts, expected)
            }
            "counts" => {
                let counts = state.handles.get(&unescape(&arguments[1])).cloned().unwrap_or_default();
                none(counts.iter().map(|(block, count)| format!("{block}={count}")).collect())
            }
            "key" => {
                let key = arguments[1].as_str();
                if self.store.dump().iter().any(|(there, _)| there == key) { "there".into() } else { "absent".into() }
            }
            "handles" => count_or(state.handles.keys().cloned().collect(), expected),
            "held" => {
                let all = state.addresses.keys().map(ToString::to_string).collect();
                count_or(all, expected)
            }
            _ => return false,
        };
        assert_eq!(got, expected, "{line}");
        true
    }
}

/// The texts, or how many they are if a number is expected.
fn count_or(texts: Vec<String>, expected: &str) -> String {
    if expected.parse::<usize>().is_ok() {
        return texts.len().to_string();
    }
    if texts.is_empty() { "none".to_owned() } else { texts.join(" ") }
}

/// `\r` and `\n`, which a handle of an old migration has.
fn unescape(text: &str) -> String {
    text.replace("\\r", "\r").replace("\\n", "\n")
}

fn set_pool(store: &mut MemoryStore, line: &str) {
    let arguments = Arguments::new(line, 2);
    let mut spec = json!({});
    if let Some(length) = arguments.number::<u8>("block") {
        spec["blockSize"] = json!(length);
    }
    if arguments.flag("disabled") {
        spec["disabled"] = json!(true);
    }
    if arguments.flag("manual") {
        spec["assignmentMode"] = json!("Manual");
    }
    if arguments.flag("deleting") {
        spec["metadata"] = json!({"deletionTimestamp": "2026-09-01T00:00:00Z"});
    }
    if let Some(reason) = arguments.option("unallocatable") {
        spec["status"] = json!({"conditions": [{"type": "Allocatable", "status": "False", "reason": reason}]});
    }
    if let Some(text) = arguments.option("nodes") {
        spec["nodeSelector"] = json!(text);
    }
    if let Some(text) = arguments.option("namespaces") {
        spec["namespaceSelector"] = json!(text);
    }
    if arguments.flag("uses") {
        spec["allowedUses"] = json!(arguments.list("uses").iter().filter(|text| !text.is_empty()).collect::<Vec<_>>());
    }
    if let Some(text) = arguments.option("priority") {
        spec["metadata"]["annotations"] = json!({"plat-ipam/priority": text});
    }
    arguments.done();
    world::pool(store, arguments.place(0), arguments.place(1), spec);
}

fn set_configuration(store: &mut MemoryStore, line: &str) {
    let arguments = Arguments::new(line, 0);
    let mut spec = json!({"strictAffinity": arguments.flag("strict")});
    spec["autoAllocateBlocks"] = json!(!arguments.flag("no-auto"));
    spec["maxBlocksPerHost"] = json!(arguments.number::<u32>("max-blocks").unwrap_or(0));
    spec["ipCooldownSeconds"] = json!(arguments.number::<u32>("cooldown").unwrap_or(0));
    let limit = arguments.option("max-addresses");
    let annotations = limit.map_or(json!({}), |limit| json!({"plat-ipam/max-addresses-per-host": limit}));
    arguments.done();
    world::configure(store, annotations, spec);
}

/// `affinity a 10.0.0.0/30 pending`.
fn set_affinity(store: &mut MemoryStore, line: &str) {
    let arguments = Arguments::new(line, 3);
    let state = arguments.place(2);
    let state = if state == "empty" { "" } else { state };
    world::affinity(store, &holder(arguments.place(0)), prefix(arguments.place(1)), state);
}

/// `block 10.0.0.0/30 of=a age=120 0=h1 2=- 3=cooling:30`; without `of` nobody's, without `age` of unknown age.
fn set_block(store: &mut MemoryStore, line: &str, now: u64) {
    let arguments = Arguments::new(line, 1);
    let owner = arguments.option("of").map(holder);
    let claimed = arguments.number::<u64>("age").map(|age| now - age);
    let mut taken = Vec::new();
    for (ordinal, text) in arguments.options.iter().filter_map(|(key, text)| Some((key.parse::<u32>().ok()?, text))) {
        let mut planted = Planted { ordinal, ..Planted::default() };
        if let Some(age) = text.strip_prefix("cooling:") {
            planted.released = Some(now - age.parse::<u64>().expect("seconds"));
        } else if text != "-" {
            planted.handle = Some(unescape(text));
        }
        taken.push(planted);
    }
    world::block(store, prefix(arguments.place(0)), owner.as_ref(), claimed, &taken);
}
