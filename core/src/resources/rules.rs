//! The rules between fields and between objects, which bind what we write (`calico.md` 1.1 to 1.3).

use super::document::{Document, Kind, Problem};
use super::stored::{ADDRESSES_ANNOTATION, PRIORITY_ANNOTATION, block_length_default, reserved_prefix};
use crate::ipam::block_lengths;
use crate::net::{Family, Prefix};
use crate::selector::Selector;
use serde_json::Value;

/// The longest text of a CIDR.
const CIDR_CHARACTERS_MAX: usize = 48;
/// Entries of `allowedUses`.
const USES_MAX: usize = 10;

/// Writes the defaults into a document and checks it against the rules. `before`: the object that it replaces.
pub(super) fn check(document: &mut Document, before: Option<&Value>) -> Result<(), Vec<Problem>> {
    let mut problems = Vec::new();
    match document.kind {
        Kind::Pool => check_pool(document, before, &mut problems),
        Kind::Reservation => check_reservation(document, &mut problems),
        Kind::Configuration => check_configuration(document, &mut problems),
        Kind::Node | Kind::Namespace => {}
    }
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// A field of the spec, for checks.
struct Field<'d> {
    document: &'d Document,
    name: &'static str,
}

impl<'d> Field<'d> {
    fn value(&self) -> Option<&'d Value> {
        self.document.spec.get(self.name)
    }

    fn text(&self) -> &'d str {
        self.value().and_then(Value::as_str).unwrap_or_default()
    }

    fn is_true(&self) -> bool {
        self.value().and_then(Value::as_bool).unwrap_or_default()
    }

    fn problem(&self, message: &str, remedy: &str) -> Problem {
        Problem::new(format!("{}spec.{}", self.document.at, self.name), self.value(), message, remedy)
    }
}

fn set_default(document: &mut Document, name: &str, value: impl Into<Value>) {
    let is_unset = document.spec.get(name).is_none_or(|have| have == "" || *have == Value::Array(Vec::new()));
    if is_unset {
        document.spec.insert(name.into(), value.into());
    }
}

fn check_pool(document: &mut Document, before: Option<&Value>, problems: &mut Vec<Problem>) {
    let cidr = {
        let field = Field { document, name: "cidr" };
        match read_cidr(&field) {
            Ok(cidr) => cidr,
            Err(problem) => return problems.push(problem),
        }
    };
    document.spec.insert("cidr".into(), cidr.to_string().into());
    let family = cidr.family();
    if document.spec.get("blockSize").is_none_or(|size| *size == 0) {
        document.spec.insert("blockSize".into(), block_length_default(family).into());
    }
    let namespaced = !Field { document, name: "namespaceSelector" }.text().is_empty();
    set_default(document, "nodeSelector", "all()");
    // A pool for namespaces has no tunnels, which belong to none.
    let uses: &[&str] = if namespaced { &["Workload"] } else { &["Workload", "Tunnel"] };
    set_default(document, "allowedUses", uses.iter().map(|word| Value::from(*word)).collect::<Vec<_>>());
    set_default(document, "assignmentMode", "Automatic");
    set_default(document, "ipipMode", "Never");
    set_default(document, "vxlanMode", "Never");
    let document = &*document;
    let field = |name| Field { document, name };

    let size = field("blockSize");
    let lengths = block_lengths(family);
    let length = size.value().and_then(Value::as_u64).and_then(|length| u8::try_from(length).ok());
    match length.filter(|length| lengths.contains(length)) {
        None => problems.push(size.problem(
            "not a block size of this family",
            &format!("give a number from {} to {}, or leave it out", lengths.start(), lengths.end()),
        )),
        Some(length) if length < cidr.length() && !field("disabled").is_true() => problems.push(size.problem(
            &format!("a block is larger than the pool {cidr}"),
            &format!("give a number from {} to {}, or a larger cidr", cidr.length(), lengths.end()),
        )),
        Some(_) => {}
    }
    for name in ["nodeSelector", "namespaceSelector"] {
        let field = field(name);
        match Selector::parse(field.text()) {
            Err(error) => problems.push(field.problem(&format!("not a selector, {error}"), "see docs/resources.md")),
            Ok(selector) if selector.has_global() => {
                problems.push(field.problem("global() selects no node and no namespace", "use all()"));
            }
            Ok(_) => {}
        }
    }
    check_uses(document, before, problems);
    let (ipip, vxlan) = (field("ipipMode"), field("vxlanMode"));
    if ipip.text() != "Never" && family == Family::V6 {
        problems.push(ipip.problem("IPIP carries IPv4 only", "use Never"));
    }
    if ipip.text() != "Never" && vxlan.text() != "Never" {
        problems.push(vxlan.problem("ipipMode is on too", "turn one of them off"));
    }
    let old = |name: &str| before.and_then(|before| before.get("spec")).and_then(|spec| spec.get(name));
    if let Some(old) = old("cidr").and_then(Value::as_str).filter(|old| Prefix::parse(old).ok() != Some(cidr)) {
        problems.push(field("cidr").problem(&format!("it was {old}, and cannot be changed"), "make another pool"));
    }
    if before.is_some() {
        let old = old("blockSize").and_then(Value::as_u64).filter(|size| *size > 0);
        let old = old.unwrap_or_else(|| block_length_default(family).into());
        if length.is_some_and(|length| u64::from(length) != old) {
            problems.push(size.problem(&format!("it was {old}, and cannot be changed"), "make another pool"));
        }
    }
    check_annotation(document, PRIORITY_ANNOTATION, problems, |text| text.parse::<i64>().is_ok(), "give an integer");
}

fn check_annotation(
    document: &Document,
    name: &str,
    problems: &mut Vec<Problem>,
    is_right: impl Fn(&str) -> bool,
    remedy: &str,
) {
    let value = document.metadata.get("annotations").and_then(|annotations| annotations.get(name));
    if let Some(value) = value.filter(|value| !value.as_str().is_some_and(&is_right)) {
        let path = format!("{}metadata.annotations.{name}", document.at);
        problems.push(Problem::new(path, Some(value), "not understood", remedy));
    }
}

fn read_cidr(field: &Field<'_>) -> Result<Prefix, Problem> {
    let text = field.text();
    if text.is_empty() {
        return Err(field.problem("missing", "give the pool's addresses, such as 10.244.0.0/16"));
    }
    if text.len() > CIDR_CHARACTERS_MAX {
        return Err(field.problem("too long", "give a CIDR of at most 48 characters"));
    }
    let cidr = Prefix::parse(text).map_err(|error| field.problem(&error.to_string(), "correct it"))?;
    let network = Prefix::new(cidr.network(), cidr.length()).unwrap_or(cidr);
    if cidr.has_host_bits() {
        return Err(field.problem("it has bits beyond its length", &format!("write {network}")));
    }
    let forbidden = ["169.254.0.0/16", "fe80::/10"];
    if let Some(link) = forbidden.iter().find(|link| Prefix::parse(link).is_ok_and(|link| link.overlaps(&cidr))) {
        return Err(field.problem(&format!("it overlaps the link-local {link}"), "use other addresses"));
    }
    Ok(cidr)
}

fn check_uses(document: &Document, before: Option<&Value>, problems: &mut Vec<Problem>) {
    let field = |name| Field { document, name };
    let uses = field("allowedUses");
    let words: Vec<&str> =
        uses.value().and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    if words.len() > USES_MAX {
        problems.push(uses.problem("too many", "give at most 10"));
    }
    if words.contains(&"Tunnel") && !field("namespaceSelector").text().is_empty() {
        problems.push(
            field("namespaceSelector")
                .problem("tunnel addresses belong to no namespace", "remove Tunnel from allowedUses"),
        );
    }
    if words.contains(&"LoadBalancer") {
        if words.iter().any(|word| *word != "LoadBalancer") {
            problems.push(uses.problem("LoadBalancer is not mixed with other uses", "make two pools"));
        }
        if field("nodeSelector").text() != "all()" {
            problems.push(field("nodeSelector").problem("LoadBalancer addresses belong to no node", "use all()"));
        }
        for name in ["ipipMode", "vxlanMode"] {
            if field(name).text() != "Never" {
                problems.push(field(name).problem("LoadBalancer addresses are not tunnelled", "use Never"));
            }
        }
        if field("disableBGPExport").is_true() {
            problems.push(field("disableBGPExport").problem("LoadBalancer addresses must be announced", "use false"));
        }
    }
    let old = before.and_then(|before| before.get("spec")?.get("allowedUses")?.as_array());
    let was_balancer = old.is_some_and(|old| old.iter().any(|word| word == "LoadBalancer"));
    if was_balancer && words.iter().any(|word| matches!(*word, "Workload" | "Tunnel")) {
        problems.push(uses.problem("the pool was made for LoadBalancer", "make another pool"));
    }
}

fn check_reservation(document: &Document, problems: &mut Vec<Problem>) {
    let field = Field { document, name: "reservedCIDRs" };
    for (index, value) in field.value().and_then(Value::as_array).into_iter().flatten().enumerate() {
        if value.as_str().and_then(reserved_prefix).is_none() {
            let path = format!("{}spec.reservedCIDRs[{index}]", document.at);
            problems.push(Problem::new(path, Some(value), "no CIDR and no address", "write 10.0.0.0/30 or 10.0.0.1"));
        }
    }
}

fn check_configuration(document: &Document, problems: &mut Vec<Problem>) {
    if document.name != "default" {
        let path = format!("{}metadata.name", document.at);
        problems.push(Problem::new(
            path,
            Some(&Value::from(document.name.clone())),
            "there is one configuration",
            "name it default",
        ));
    }
    let field = |name| Field { document, name };
    let strict = field("strictAffinity").is_true();
    let auto = field("autoAllocateBlocks");
    if auto.value() == Some(&Value::Bool(false)) && !strict {
        problems.push(auto.problem(
            "without new blocks and without strictAffinity every node would borrow",
            "set strictAffinity: true, or autoAllocateBlocks: true",
        ));
    }
    let blocks = field("maxBlocksPerHost");
    if blocks.value().and_then(Value::as_i64).unwrap_or_default() > 0 && !strict {
        problems.push(blocks.problem("a limit needs strictAffinity", "set strictAffinity: true, or the limit to 0"));
    }
    let is_count = |text: &str| text.parse::<u32>().is_ok();
    check_annotation(document, ADDRESSES_ANNOTATION, problems, is_count, "give a count of addresses");
}
