//! Blocks, affinities and handles, as they are stored. They follow from what was assigned, and are only read.

use crate::resources::{cell, one_or_list};
use crate::store::Session;
use crate::{Output, complain, print, table};
use anyhow::{Result, anyhow};
use plat_core::store::Store;
use serde_json::Value;

/// How many entries are read at once.
const PAGE_ENTRIES: u32 = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Block,
    Affinity,
    Handle,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Block, Self::Affinity, Self::Handle];

    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::Block => "blocks",
            Self::Affinity => "affinities",
            Self::Handle => "handles",
        }
    }

    /// A kind by any of its names, whatever the case.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Some(match text.to_lowercase().as_str() {
            "block" | "blocks" | "ipamblock" | "ipamblocks" => Self::Block,
            "affinity" | "affinities" | "blockaffinity" | "blockaffinities" => Self::Affinity,
            "handle" | "handles" | "ipamhandle" | "ipamhandles" => Self::Handle,
            _ => return None,
        })
    }

    /// The kind as `-o name` writes it.
    fn name(self) -> &'static str {
        match self {
            Self::Block => "ipamblock",
            Self::Affinity => "blockaffinity",
            Self::Handle => "ipamhandle",
        }
    }

    /// What the keys of this kind begin with (`docs/formats.md`).
    fn prefix(self) -> &'static str {
        match self {
            Self::Block => "block/",
            Self::Affinity => "affinity/",
            Self::Handle => "handle/",
        }
    }
}

/// An object, and where it is.
struct Stored {
    key: String,
    value: Value,
}

impl Stored {
    fn text(&self, place: &str) -> Option<&str> {
        self.value.pointer(place).and_then(Value::as_str)
    }

    /// Its name; of a handle its id, since the name of its object is only made from that.
    fn name(&self) -> &str {
        self.text("/spec/handleID").or(self.text("/metadata/name")).unwrap_or(&self.key)
    }

    fn is_called(&self, name: &str) -> bool {
        self.name() == name || self.text("/metadata/name") == Some(name) || self.text("/spec/cidr") == Some(name)
    }
}

/// Shows them.
pub(crate) fn get(store: Option<&str>, kind: Kind, names: &[String], output: Output) -> Result<bool> {
    let mut session = Session::open(store, "plat get", false)?;
    let mut complete = true;
    let mut all = Vec::new();
    let mut from = None;
    loop {
        let page = session.store.scan(kind.prefix(), from.as_deref(), PAGE_ENTRIES, false, true);
        let page = page.map_err(|error| anyhow!("{error}"))?;
        for entry in page.entries {
            match serde_json::from_slice(&entry.value) {
                Ok(value) => all.push(Stored { key: entry.key, value }),
                Err(error) => {
                    complete = false;
                    complain(&format!("{}: cannot be read: {error}", entry.key));
                }
            }
        }
        match page.next {
            Some(next) => from = Some(next),
            None => break,
        }
    }
    for name in names {
        if !all.iter().any(|stored| stored.is_called(name)) {
            complete = false;
            complain(&format!("{}/{name}: not found", kind.name()));
        }
    }
    if !names.is_empty() {
        all.retain(|stored| names.iter().any(|name| stored.is_called(name)));
    }
    print(&match output {
        Output::Name => all.iter().map(|stored| format!("{}/{}\n", kind.name(), stored.name())).collect(),
        Output::Json | Output::Yaml => {
            // A CIDR may name the affinities of several.
            let single = names.len() == 1 && all.len() <= 1;
            one_or_list(all.into_iter().map(|stored| stored.value).collect(), single, output)
        }
        Output::Table | Output::Wide => rows(kind, &all, output == Output::Wide),
    })?;
    Ok(complete)
}

fn rows(kind: Kind, all: &[Stored], wide: bool) -> String {
    let mut head: Vec<&str> = match kind {
        Kind::Block => vec!["CIDR", "AFFINITY", "UNALLOCATED"],
        Kind::Affinity => vec!["NAME", "CIDR", "OWNER", "STATE"],
        Kind::Handle => vec!["HANDLE", "ADDRESSES"],
    };
    if wide {
        head.extend_from_slice(match kind {
            Kind::Block => &["SEQUENCE", "CLAIMED", "NAME"],
            Kind::Affinity => &["TYPE", "CREATED"],
            Kind::Handle => &["NAME", "CREATED"],
        });
    }
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|stored| {
            let at = |place: &str| cell(stored.value.pointer(place));
            let mut row = match kind {
                Kind::Block => {
                    let unallocated = stored.value.pointer("/spec/unallocated").and_then(Value::as_array);
                    vec![at("/spec/cidr"), at("/spec/affinity"), unallocated.map_or(0, Vec::len).to_string()]
                }
                Kind::Affinity => vec![stored.name().to_owned(), at("/spec/cidr"), at("/spec/node"), at("/spec/state")],
                Kind::Handle => vec![stored.name().to_owned(), at("/spec/block")],
            };
            if wide {
                row.extend(match kind {
                    Kind::Block => {
                        [at("/spec/sequenceNumber"), at("/spec/affinityClaimTime"), at("/metadata/name")].to_vec()
                    }
                    Kind::Affinity => vec![at("/spec/type"), at("/metadata/creationTimestamp")],
                    Kind::Handle => vec![at("/metadata/name"), at("/metadata/creationTimestamp")],
                });
            }
            row
        })
        .collect();
    table::columns(&head, &rows)
}
