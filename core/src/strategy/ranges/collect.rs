//! GC: releases what no live attachment owns.
//!
//! The list of live attachments comes with the call, and the runtime promises that no ADD or DEL runs meanwhile (CNI
//! specification 1.1.0, "GC"). Only records that name an owner are released: what is foreign, and what does not lie
//! under an address's own name, is kept and reported.

use super::config::Location;
use super::{Call, Output, owner_text, place_text, store_failure};
use crate::cni::Level;
use crate::cni::failure::Failure;
use crate::hash::stable_hash;
use crate::json::{Json, Mismatch, Node};
use crate::limits;
use crate::net::Family;
use crate::network::{Place, Record};
use crate::store::{self, Entry};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// The newest name of the list, and what libcni sends beside it.
const LISTS: [&str; 2] = ["cni.dev/valid-attachments", "cni.dev/attachments"];

/// What is said where there is no list.
pub(crate) const WITHOUT_LIST: &str = "GC without a list of live attachments (cni.dev/valid-attachments) releases \
    nothing; an empty list means that none are alive";

/// A container id that is compared by its hash first: ids may share long beginnings, and there may be many.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Id<'a> {
    hash: u64,
    text: Cow<'a, str>,
}

impl<'a> Id<'a> {
    fn new(text: impl Into<Cow<'a, str>>) -> Self {
        let text = text.into();
        Self { hash: stable_hash(&text), text }
    }
}

/// Live attachments: the interfaces of each container.
type Alive = BTreeMap<Id<'static>, BTreeSet<String>>;

/// Reads the list of live attachments; none if the configuration has none.
fn read_alive(document: &Json) -> Result<Option<Alive>, Mismatch> {
    let mut lists: [Option<Vec<(String, String)>>; 2] = [None, None];
    Node::root(document).members(&LISTS, |name, node| {
        let slot = lists.iter_mut().zip(LISTS).find(|(_, list)| *list == name).map(|(slot, _)| slot);
        let Some(slot) = slot else { return Ok(()) };
        if *node.value == Json::Null {
            *slot = None;
            return Ok(());
        }
        node.list(slot.get_or_insert_default(), |node, (container, ifname)| {
            node.members(&["containerID", "ifname"], |name, node| match name {
                "containerID" => node.string(container),
                _ => node.string(ifname),
            })
        })
    })?;
    let [valid, attachments] = lists;
    Ok(valid.or(attachments).map(|list| {
        let mut alive = Alive::new();
        for (container, ifname) in list {
            alive.entry(Id::new(container)).or_default().insert(ifname);
        }
        alive
    }))
}

/// The containers of live attachments; none if the configuration has no list.
pub(crate) fn valid_containers(document: &Json) -> Result<Option<BTreeSet<String>>, Mismatch> {
    Ok(read_alive(document)?.map(|alive| alive.into_keys().map(|id| id.text.into_owned()).collect()))
}

/// What is to be done with a record.
enum Judgement {
    Keep,
    /// Kept because it cannot be judged.
    Report(String),
    Release,
}

fn judge(record: Option<&Record>, alive: &Alive) -> Judgement {
    let Some(Record { container: Some(container), ifname, .. }) = record else {
        let why = record.and_then(|record| record.foreign.clone()).unwrap_or_else(|| "unknown content".into());
        return Judgement::Report(why);
    };
    let id: Id<'_> = Id::new(container.as_str());
    let lives = match (alive.get(&id), ifname) {
        (None, _) => false,
        // Recorded for the container alone: any of its interfaces keeps it.
        (Some(_), None) => true,
        (Some(ifnames), Some(ifname)) => ifnames.contains(ifname),
    };
    if lives { Judgement::Keep } else { Judgement::Release }
}

pub(crate) fn gc(call: &mut Call<'_>) -> Result<Output, Failure> {
    Location::read(call.document, &call.surroundings.working_directory)?;
    let alive = read_alive(call.document).map_err(|error| Failure::internal(error.to_string()))?;
    let Some(alive) = alive else {
        call.note(Level::Warning, WITHOUT_LIST);
        return Ok(Output::new());
    };
    let mut errors: Vec<store::Error> = Vec::new();
    let mut reported = 0usize;
    let mut released = 0usize;
    for family in [Family::V4, Family::V6] {
        sweep(call, family, &alive, &mut errors, &mut reported, &mut released);
    }
    report_strays(call, &mut errors, &mut reported);
    if reported > limits::LOG_LINES_MAX {
        call.note(Level::Warning, format!("kept {reported} records in all that name no owner"));
    }
    call.note(Level::Info, format!("GC released {released} addresses of network {}", call.network));
    if errors.is_empty() {
        return Ok(Output::new());
    }
    let code = errors.first().map(|error| store_failure(error.clone()).code).unwrap_or_default();
    let mut texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    texts.dedup();
    texts.truncate(limits::LOG_LINES_MAX);
    Err(Failure::new(code, texts.join(";")).with_details(format!("{released} addresses were released all the same")))
}

/// Goes through the addresses of one family, page by page, and on after errors.
fn sweep(
    call: &mut Call<'_>,
    family: Family,
    alive: &Alive,
    errors: &mut Vec<store::Error>,
    reported: &mut usize,
    released: &mut usize,
) {
    let keys = call.keys();
    let prefix = keys.addresses(family);
    let mut from = None;
    for _ in 0..limits::SCAN_PAGES_MAX {
        let page = match call.store.scan(&prefix, from.as_deref(), limits::SCAN_ENTRIES, false, true) {
            Ok(page) => page,
            Err(error) => {
                errors.push(error);
                return;
            }
        };
        let mut condemned: Vec<Entry> = Vec::new();
        for entry in page.entries {
            if !matches!(keys.place(&entry.key), Some(Place::Address(_))) {
                report(call, reported, &entry.key, "not the key of an address");
                continue;
            }
            let record = Record::parse(&entry.value);
            match judge(record.as_ref(), alive) {
                Judgement::Keep => {}
                Judgement::Report(why) => report(call, reported, &place_text(&keys, &entry.key), &why),
                Judgement::Release => condemned.push(entry),
            }
        }
        let (freed, failed) = call.delete(condemned, "released", "GC");
        for entry in &freed {
            *released += 1;
            if *released <= limits::LOG_LINES_MAX {
                let owner = Record::parse(&entry.value).map(|record| owner_text(&record)).unwrap_or_default();
                let text = format!("GC released {} of {owner}", place_text(&keys, &entry.key));
                call.note(Level::Info, text);
            }
        }
        errors.extend(failed);
        match page.next {
            Some(next) => from = Some(next),
            None => return,
        }
    }
}

fn report(call: &mut Call<'_>, reported: &mut usize, place: &str, why: &str) {
    *reported += 1;
    if *reported <= limits::LOG_LINES_MAX {
        call.note(Level::Warning, format!("GC kept {place}, which names no owner: {why}"));
    }
}

/// Files that are not named as addresses are never released by GC.
fn report_strays(call: &mut Call<'_>, errors: &mut Vec<store::Error>, reported: &mut usize) {
    let keys = call.keys();
    let prefix = keys.strays();
    let mut from = None;
    for _ in 0..limits::SCAN_PAGES_MAX {
        match call.store.scan(&prefix, from.as_deref(), limits::SCAN_ENTRIES, true, true) {
            Ok(page) => {
                for entry in &page.entries {
                    report(call, reported, &place_text(&keys, &entry.key), "not named as an address");
                }
                match page.next {
                    Some(next) => from = Some(next),
                    None => return,
                }
            }
            Err(error) => {
                errors.push(error);
                return;
            }
        }
    }
}
