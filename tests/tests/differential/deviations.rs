//! The known deviations: what may differ, when, and how exactly. Each id stands with its reason in
//! docs/differences.md.

use std::collections::BTreeSet;

use plat_tests::call::{End, Reply};
use plat_tests::tree::{Entry, Kind, Tree};
use serde_json::Value;

use crate::compare::{Case, Known};
use crate::sequence::CallStep;

/// Deviations of our plugin from the newest original.
pub(crate) const OURS: &[&str] = &[
    DETAILS,
    JSON_WORDING,
    DEL_LENIENT,
    ROLLBACK_OWN_ONLY,
    OWN_NETNS_BEFORE,
    GC_ABSENT_KEY,
    GC_FOREIGN_KEPT,
    GC_LENIENT,
    STATUS_UNUSABLE,
    DEL_ID_ONLY,
    NULL_IN_IPS,
    LEAK_ON_FULL_DISK,
];

/// Deviations of the newest original from Debian's 1.1.1.
pub(crate) const DEBIAN: &[&str] = &[
    DEBIAN_FILE_MODE,
    DEBIAN_EMPTY_DNS,
    DEBIAN_VERSIONS,
    DEBIAN_GATEWAY,
    DEBIAN_START,
    DEBIAN_NETNS,
    DEBIAN_ROUTES,
    DEBIAN_ORDER,
    JSON_WORDING,
];

const DETAILS: &str = "details";
const JSON_WORDING: &str = "json-wording";
const DEL_LENIENT: &str = "del-lenient";
const ROLLBACK_OWN_ONLY: &str = "rollback-own-only";
const OWN_NETNS_BEFORE: &str = "add-own-netns-before";
const GC_ABSENT_KEY: &str = "gc-absent-key";
const GC_FOREIGN_KEPT: &str = "gc-foreign-kept";
const GC_LENIENT: &str = "gc-lenient";
const STATUS_UNUSABLE: &str = "status-unusable";
const DEL_ID_ONLY: &str = "del-id-only";
const NULL_IN_IPS: &str = "null-in-ips";
const LEAK_ON_FULL_DISK: &str = "add-leak-on-full-disk";
const DEBIAN_FILE_MODE: &str = "debian-file-mode";
const DEBIAN_EMPTY_DNS: &str = "debian-empty-dns";
const DEBIAN_VERSIONS: &str = "debian-versions";
const DEBIAN_GATEWAY: &str = "debian-gateway";
const DEBIAN_START: &str = "debian-start-after-end";
const DEBIAN_ROUTES: &str = "debian-routes";
const DEBIAN_ORDER: &str = "debian-order-of-checks";
const DEBIAN_NETNS: &str = "debian-netns";

/// Whether two sides look alike, as far as the known deviations let them.
pub(crate) fn same_trees(known: Known, a: &Tree, b: &Tree) -> bool {
    if !known.debian() {
        return a == b;
    }
    let plain = |tree: &Tree| -> Vec<Entry> {
        tree.0
            .iter()
            .cloned()
            .map(|entry| Entry { mode: if entry.mode == 0o644 { 0o600 } else { entry.mode }, ..entry })
            .collect()
    };
    plain(a) == plain(b)
}

/// The id of what [`same_trees`] overlooked, if anything.
pub(crate) fn overlooked(a: &Tree, b: &Tree) -> Option<&'static str> {
    (a != b).then_some(DEBIAN_FILE_MODE)
}

/// Whether two replies are equal, with the ids of the deviations that make them so; none if they are not.
pub(crate) fn same_replies(known: Known, case: &Case) -> Option<Vec<&'static str>> {
    let (a, b) = (&case.a.reply, &case.b.reply);
    let (output_a, output_b) = (sorted(&a.output), sorted(&b.output));
    let about = |reply: &Reply| {
        // The line below the program's own name and version.
        let line = String::from_utf8_lossy(&reply.errors).lines().nth(1).map(str::to_owned);
        if case.known.debian() { line.map(|line| line.replace(", 1.1.0", "")) } else { line }
    };
    if case.step.command.as_deref().unwrap_or("").is_empty() && a.is_success() && about(a) != about(b) {
        return None;
    }
    if a.end != b.end {
        return None;
    }
    if output_a == output_b {
        return Some(Vec::new());
    }
    if known.debian()
        && let Some(id) = same_for_debian(case)
    {
        return Some(vec![id]);
    }
    if known == Known::Nothing {
        return None;
    }
    let (error_a, error_b) = (Error::read(&output_a)?, Error::read(&output_b)?);
    // Ours is printed as the original prints errors, whatever it says.
    if error_a.print().as_bytes() != output_a || error_a.code != error_b.code {
        return None;
    }
    if known.ours() && error_a.message == error_b.message && error_b.details.is_empty() {
        return Some(vec![DETAILS]);
    }
    // Go goes on after a value of a wrong type, and a value of the right type that does not parse is what it reports.
    let unparsable =
        ["invalid IP address", "invalid CIDR address"].iter().any(|start| error_b.message.starts_with(start));
    if (error_b.is_json_wording() || unparsable && error_a.is_json_wording()) && error_a.prefix() == error_b.prefix() {
        return Some(vec![JSON_WORDING]);
    }
    None
}

/// Whether the replies say the same in the words of two releases.
fn same_for_debian(case: &Case) -> Option<&'static str> {
    let (mut a, b) = (case.a.reply.json()?, case.b.reply.json()?);
    let without_newest =
        |list: &mut Value| list.as_array_mut().map(|list| list.retain(|version| version != "1.1.0")).is_some();
    if case.step.is("VERSION") && a["cniVersion"] == "1.1.0" && without_newest(&mut a["supportedVersions"]) {
        a["cniVersion"] = "1.0.0".into();
        return (a == b).then_some(DEBIAN_VERSIONS);
    }
    if let Some(details) = a["details"].as_str()
        && a["code"] == 1
    {
        a["details"] = details.replace(" \"1.1.0\"]", "]").into();
        return (a == b).then_some(DEBIAN_VERSIONS);
    }
    // The fields of routes that came with 1.1.0, which the newest prints for older versions too.
    let newer = ["mtu", "advmss", "priority", "table", "scope"];
    let mut routes = false;
    for route in
        a.get_mut("routes").and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
    {
        routes |= newer.map(|key| route.remove(key)).iter().any(Option::is_some);
    }
    if case.a.reply.is_success() && routes && a == b {
        return Some(DEBIAN_ROUTES);
    }
    let empty_dns = b.get("dns").is_some_and(|dns| *dns == serde_json::json!({}));
    if a["cniVersion"] == "1.0.0" && a.get("dns").is_none() && empty_dns {
        a["dns"] = b["dns"].clone();
    }
    (case.a.reply.is_success() && a == b).then_some(DEBIAN_EMPTY_DNS)
}

/// The message whose list of addresses has a random order, in order.
fn sorted(output: &[u8]) -> Vec<u8> {
    const RANDOM: &str = "failed to allocate all requested IPs:";
    match Error::read(output) {
        Some(mut error) if error.message.starts_with(RANDOM) && error.print().as_bytes() == output => {
            let mut addresses: Vec<_> = error.message[RANDOM.len()..].split_whitespace().collect();
            addresses.sort_unstable();
            error.message = format!("{RANDOM} {}", addresses.join(" "));
            error.print().into_bytes()
        }
        _ => output.to_vec(),
    }
}

/// An error document.
#[derive(Debug)]
struct Error {
    code: u64,
    message: String,
    details: String,
}

impl Error {
    fn read(output: &[u8]) -> Option<Self> {
        let document: Value = serde_json::from_slice(output).ok()?;
        Some(Self {
            code: document.get("code")?.as_u64()?,
            message: document.get("msg")?.as_str()?.to_owned(),
            details: document.get("details").and_then(Value::as_str).unwrap_or_default().to_owned(),
        })
    }

    /// As Go's encoder prints it.
    fn print(&self) -> String {
        let mut text = format!("{{\n    \"code\": {},\n    \"msg\": {}", self.code, go_string(&self.message));
        if !self.details.is_empty() {
            text.push_str(",\n    \"details\": ");
            text.push_str(&go_string(&self.details));
        }
        text.push_str("\n}");
        text
    }

    /// Whether the message is one of Go's JSON package, which differs between its versions.
    fn is_json_wording(&self) -> bool {
        let rest = self.prefix().map_or(self.message.as_str(), |prefix| &self.message[prefix.len()..]);
        ["json: ", "invalid character ", "unexpected end of JSON input", "unexpected EOF"]
            .iter()
            .any(|start| rest.starts_with(start))
    }

    /// What the callers of the JSON package put in front of its messages.
    fn prefix(&self) -> Option<&'static str> {
        ["error unmarshall network config: ", "decoding version from network config: "]
            .into_iter()
            .find(|prefix| self.message.starts_with(prefix))
    }
}

fn go_string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => {
                quoted.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            _ => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// The id of the deviation that explains all that differs in `case`.
pub(crate) fn explain(case: &Case) -> Option<&'static str> {
    if case.known.ours() {
        let ours: &[fn(&Case) -> Option<&'static str>] =
            &[null_in_ips, own_netns, del_lenient, del_id_only, rollback, gc, status, leak_on_full_disk];
        if let Some(id) = ours.iter().find_map(|f| f(case)) {
            return Some(id);
        }
    }
    if case.known.debian() {
        let debian: &[fn(&Case) -> Option<&'static str>] =
            &[debian_versions, debian_gateway, debian_start, debian_netns, debian_order, debian_routes];
        return debian.iter().find_map(|f| f(case));
    }
    None
}

/// Debian's release knows the specification up to 1.0.0, and so neither GC nor STATUS.
fn debian_versions(case: &Case) -> Option<&'static str> {
    let error = Error::read(&case.b.reply.output)?;
    let newest = member(&configuration(case.step)?, &["cniVersion"]).is_some_and(|version| version == "1.1.0");
    let refusals = ["incompatible CNI versions", "plugin version does not allow CHECK"];
    let refused = newest && error.code == 1 && refusals.contains(&error.message.as_str());
    let unknown = [3, 4].contains(&error.code) && (case.step.is("GC") || case.step.is("STATUS"));
    ((refused || unknown) && case.b.after == case.b.before).then_some(DEBIAN_VERSIONS)
}

/// Debian's release takes any gateway, the newest only one inside the subnet.
fn debian_gateway(case: &Case) -> Option<&'static str> {
    let message = case.a.reply.message()?;
    (message.contains(": gateway ") && message.contains(" not in network ") && case.a.reply.code() == Some(999))
        .then_some(DEBIAN_GATEWAY)
}

/// Debian's release takes a range that starts after its end.
fn debian_start(case: &Case) -> Option<&'static str> {
    let message = case.a.reply.message()?;
    (message.contains(": RangeStart ") && message.contains(" is after RangeEnd ") && case.a.reply.code() == Some(999))
        .then_some(DEBIAN_START)
}

/// Debian's release looks at the configuration before it looks at the container id and the interface name, and at these
/// for every verb.
fn debian_order(case: &Case) -> Option<&'static str> {
    let early = |reply: &Reply| reply.code().is_some_and(|code| [3, 4, 6, 7].contains(&code));
    (early(&case.a.reply) && early(&case.b.reply) && case.a.after == case.a.before && case.b.after == case.b.before)
        .then_some(DEBIAN_ORDER)
}

/// Debian's release does not read the fields of routes that came with 1.1.0, and so finds no fault in them.
fn debian_routes(case: &Case) -> Option<&'static str> {
    let error = Error::read(&case.a.reply.output)?;
    (error.code == 999 && error.is_json_wording() && case.step.text().contains("\"mtu\":\"")).then_some(DEBIAN_ROUTES)
}

/// Debian's release does not compare the namespaces.
fn debian_netns(case: &Case) -> Option<&'static str> {
    (case.b.reply.is_success() && String::from_utf8_lossy(&case.a.reply.output).ends_with(&code_8()))
        .then_some(DEBIAN_NETNS)
}

/// A null among requested addresses crashes the original (exit status 2); ours refuses it and changes nothing.
fn null_in_ips(case: &Case) -> Option<&'static str> {
    let crashed = case.b.reply.end == End::Exit(2) && case.b.reply.output.is_empty();
    if !crashed {
        return None;
    }
    let refused = case.a.reply.end == End::Exit(1)
        && case.a.reply.code() == Some(999)
        && contents(&case.a.after) == contents(&case.b.after);
    let released = case.step.is("DEL") && is_release(case);
    (refused || released).then_some(NULL_IN_IPS)
}

/// The original compares the namespaces when the work is done, ours before it begins: also where the work would fail.
fn own_netns(case: &Case) -> Option<&'static str> {
    let own = case.step.netns.as_deref() == Some("/proc/self/ns/net");
    (own && case.b.reply.end == End::Exit(1)
        && case.a.reply.end == End::Exit(1)
        && case.a.reply.output == code_8().as_bytes()
        && contents(&case.a.after) == contents(&case.a.before))
    .then_some(OWN_NETNS_BEFORE)
}

fn code_8() -> String {
    Error {
        code: 8,
        message: "plugin's netns and netns from CNI_NETNS should not be the same".into(),
        details: String::new(),
    }
    .print()
}

/// DEL releases although the configuration is wrong in what a release does not need.
fn del_lenient(case: &Case) -> Option<&'static str> {
    (case.step.is("DEL")
        && case.b.reply.end == End::Exit(1)
        && case.b.reply.code() == Some(999)
        && contents(&case.b.after) == contents(&case.b.before)
        && is_release(case))
    .then_some(DEL_LENIENT)
}

/// Whether the subject released the owner of the call and nothing else, in silence.
fn is_release(case: &Case) -> bool {
    let (reply, step) = (&case.a.reply, case.step);
    reply.is_success()
        && reply.output.is_empty()
        && contents(&case.a.after) == contents(&released(&case.a.before, &store(step), step))
}

/// A failed ADD gives back what it took; the original gives back what the owner held before, too.
fn rollback(case: &Case) -> Option<&'static str> {
    let (a, b) = (&case.a, &case.b);
    let before: BTreeSet<_> = without_cursors(&a.before);
    // The original releases once for each set that had succeeded, see `del_id_only`.
    let once = released(&a.before, &store(case.step), case.step);
    let twice = released(&once, &store(case.step), case.step);
    let freed = [without_cursors(&once), without_cursors(&twice)];
    (case.step.is("ADD")
        && same_replies(case.known, case).is_some()
        && a.reply.end == End::Exit(1)
        && without_cursors(&a.after) == before
        && freed.contains(&without_cursors(&b.after))
        && cursors(&a.after) == cursors(&b.after))
    .then_some(ROLLBACK_OWN_ONLY)
}

/// The original releases once for each range set, and the second time finds nothing of the interface and so releases
/// the files that name the container alone; ours releases once.
fn del_id_only(case: &Case) -> Option<&'static str> {
    let (store, step) = (store(case.step), case.step);
    let once = released(&case.a.before, &store, step);
    (step.is("DEL")
        && same_replies(case.known, case).is_some()
        && contents(&case.a.after) == contents(&once)
        && contents(&case.b.after) == contents(&released(&once, &store, step)))
    .then_some(DEL_ID_ONLY)
}

/// GC: an absent list does nothing, what is no address or has no owner stays, and what is wrong in the ranges does not
/// matter.
fn gc(case: &Case) -> Option<&'static str> {
    let (a, b) = (&case.a, &case.b);
    if !case.step.is("GC") || !a.reply.is_success() || !a.reply.output.is_empty() {
        return None;
    }
    let (before, after) = (contents(&a.before), contents(&a.after));
    let Some(list) = member(&configuration(case.step)?, &["cni.dev/valid-attachments"]) else {
        return (after == before).then_some(GC_ABSENT_KEY);
    };
    let alive: BTreeSet<String> = list
        .as_array()?
        .iter()
        .flat_map(|one| {
            let text = |key: &str| member(one, &[key]).and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default();
            [format!("{}\r\n{}", text("containerID"), text("ifname")), text("containerID")]
        })
        .collect();
    let store = store(case.step);
    let stays = |(path, kind): &(String, Kind)| {
        let Kind::File(content) = kind else { return true };
        let top = path.strip_prefix(&store).is_some_and(|name| !name.contains('/'));
        !top || !is_owned_address(path, kind) || alive.contains(String::from_utf8_lossy(content).trim())
    };
    if after != before.iter().filter(|entry| stays(entry)).cloned().collect() {
        return None;
    }
    let error = b.reply.end == End::Exit(1) && b.reply.code() == Some(999);
    let failed = (error || b.reply.end == End::Exit(2)) && contents(&b.after) == before;
    if failed {
        return Some(GC_LENIENT);
    }
    (b.reply.is_success() && contents(&b.after).is_subset(&after)).then_some(GC_FOREIGN_KEPT)
}

/// STATUS looks at the configuration and the store, and so makes the store's directory; the original looks at nothing.
fn status(case: &Case) -> Option<&'static str> {
    let (a, b) = (&case.a, &case.b);
    let unusable = a.reply.end == End::Exit(1) && a.reply.code() == Some(50);
    let usable = a.reply.is_success() && a.reply.output.is_empty();
    (case.step.is("STATUS")
        && b.reply.is_success()
        && (unusable || usable)
        && contents(&a.after) == contents(&a.before))
    .then_some(STATUS_UNUSABLE)
}

fn is_owned_address(path: &str, kind: &Kind) -> bool {
    let Kind::File(content) = kind else { return false };
    let name = path.rsplit('/').next().unwrap_or(path);
    let is_address = name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.to_string() == name);
    let text = String::from_utf8_lossy(content);
    let owner = text.trim();
    let is_id = |id: &str| id.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c)) && !id.is_empty();
    let has_owner = match owner.split_once("\r\n") {
        Some((id, ifname)) => is_id(id) && !ifname.contains(|c: char| c.is_whitespace() || c == '/' || c == ':'),
        None => is_id(owner),
    };
    is_address && has_owner
}

/// last_reserved_ip.N cannot be written: both fail, but the original keeps the address.
fn leak_on_full_disk(case: &Case) -> Option<&'static str> {
    (case.step.is("ADD")
        && case.a.reply.end == End::Exit(1)
        && case.b.reply.message().is_some_and(|m| m.contains("last_reserved_ip."))
        && case.a.reply.code() == case.b.reply.code()
        && without_cursors(&case.a.after) == without_cursors(&case.a.before))
    .then_some(LEAK_ON_FULL_DISK)
}

/// What is in a tree, without the empty store directories and locks that some failures leave behind and some do not.
fn contents(tree: &Tree) -> BTreeSet<(String, Kind)> {
    tree.0
        .iter()
        .filter(|entry| entry.kind != Kind::Directory && !entry.path.ends_with("/lock"))
        .map(|entry| (entry.path.clone(), entry.kind.clone()))
        .collect()
}

fn is_cursor(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| name.starts_with("last_reserved_ip."))
}

fn without_cursors(tree: &Tree) -> BTreeSet<(String, Kind)> {
    contents(tree).into_iter().filter(|(path, _)| !is_cursor(path)).collect()
}

fn cursors(tree: &Tree) -> BTreeSet<(String, Kind)> {
    contents(tree).into_iter().filter(|(path, _)| is_cursor(path)).collect()
}

/// The configuration of a call, if it is JSON.
fn configuration(step: &CallStep) -> Option<Value> {
    serde_json::from_str(step.text().trim_start_matches('\u{feff}')).ok()
}

/// A member at a path of keys, in any case.
fn member(value: &Value, path: &[&str]) -> Option<Value> {
    path.iter().try_fold(value.clone(), |value, key| {
        value.as_object()?.iter().find(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, member)| member.clone())
    })
}

/// The network's directory of a call, relative to the side's folder, with a `/` at its end.
fn store(step: &CallStep) -> String {
    let config = configuration(step).unwrap_or_default();
    let text = |path: &[&str]| member(&config, path).and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default();
    let folder = text(&["ipam", "dataDir"]).replace("@DIR@/", "").replace("./store/../", "");
    format!("{}/{}/", folder.trim_end_matches('/'), text(&["name"]))
}

/// A tree without the files of the owner of a call, as the original releases.
fn released(tree: &Tree, store: &str, step: &CallStep) -> Tree {
    let id = step.container.as_deref().unwrap_or_default();
    let ifname = step.ifname.as_deref().unwrap_or_default();
    let matching = |owner: &str| -> BTreeSet<&str> {
        tree.0
            .iter()
            .filter(|entry| match &entry.kind {
                Kind::File(content) => {
                    entry.path.starts_with(store) && String::from_utf8_lossy(content).trim() == owner
                }
                _ => false,
            })
            .map(|entry| entry.path.as_str())
            .collect()
    };
    let mut gone = matching(&format!("{id}\r\n{ifname}"));
    if gone.is_empty() {
        gone = matching(id);
    }
    Tree(tree.0.iter().filter(|entry| !gone.contains(entry.path.as_str())).cloned().collect())
}
