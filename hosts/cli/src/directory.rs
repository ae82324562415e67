//! `plat ipam` on a dataDir of host-local: who holds which address of which network, and giving addresses back.
//!
//! It looks at the files without a lock and releases through the core, by the very DEL that the plugin answers.

use crate::resources::structured;
use crate::store::LOCK_WAIT_MAX;
use crate::{Output, complain, print, table, warn};
use anyhow::{Context as _, Result, anyhow, bail};
use plat_core::cni::{Backend, Level, Reply, Request};
use plat_core::net::Address;
use plat_core::network::Record;
use plat_runtime::Core;
use plat_stores::clock::SystemClock;
use plat_stores::directory::{DirectoryStore, Options, glance};
use plat_stores::files::WithHostFiles;
use serde_json::{Value, json};
use std::path::Path;

/// How often a contended release is repeated: the lock is held meanwhile, so that only others that ignore it can contend.
const ATTEMPTS_MAX: u32 = 8;

/// A held address.
#[derive(Clone, Debug)]
struct Entry {
    network: String,
    address: Address,
    record: Record,
}

impl Entry {
    /// Who holds it, for people.
    fn owner(&self) -> String {
        match (&self.record.container, &self.record.ifname) {
            (Some(container), Some(ifname)) => format!("{container}/{ifname}"),
            (Some(container), None) => container.clone(),
            _ => "nobody".to_owned(),
        }
    }

    fn value(&self) -> Value {
        json!({
            "ip": self.address.to_string(),
            "container": self.record.container,
            "interface": self.record.ifname,
            "note": self.record.foreign,
        })
    }
}

/// What is held, by network. A network that was named must be there.
fn read(data_dir: &Path, network: Option<&str>) -> Result<Vec<(String, Vec<Entry>)>> {
    let all = glance::networks(data_dir).map_err(|trouble| anyhow!("{trouble}"))?;
    let names = match network {
        None => all,
        Some(name) if all.iter().any(|known| known == name) => vec![name.to_owned()],
        Some(name) if all.is_empty() => bail!("--network {name:?}: {} has no network", data_dir.display()),
        Some(name) => {
            bail!("--network {name:?}: {} has no such network: it has {}", data_dir.display(), all.join(", "))
        }
    };
    let mut found = Vec::new();
    for network in names {
        let held = glance::held(data_dir, &network).map_err(|trouble| anyhow!("{trouble}"))?;
        let entries =
            held.into_iter().map(|(address, record)| Entry { network: network.clone(), address, record }).collect();
        found.push((network, entries));
    }
    Ok(found)
}

/// Shows who holds what, or who holds one address.
pub(crate) fn show(data_dir: &Path, network: Option<&str>, ip: Option<Address>, output: Output) -> Result<bool> {
    let mut networks = read(data_dir, network)?;
    if let Some(address) = ip {
        for (_, entries) in &mut networks {
            entries.retain(|entry| entry.address == address);
        }
        networks.retain(|(_, entries)| !entries.is_empty());
    }
    if matches!(output, Output::Json | Output::Yaml) {
        let values: Vec<Value> = networks
            .iter()
            .map(|(name, entries)| {
                json!({"name": name, "addresses": entries.iter().map(Entry::value).collect::<Vec<_>>()})
            })
            .collect();
        print(&structured(&json!({"networks": values}), output))?;
        return Ok(true);
    }
    let entries = networks.iter().flat_map(|(_, entries)| entries);
    if let Some(address) = ip {
        let mut text = String::new();
        for entry in entries {
            text.push_str(&format!("IP {address} is in use\nNetwork: {}\n", entry.network));
            match (&entry.record.container, &entry.record.foreign) {
                (Some(container), _) => text.push_str(&format!("Container: {container}\n")),
                (None, why) => text.push_str(&format!("Held by nobody: {}\n", why.as_deref().unwrap_or("no owner"))),
            }
            if let Some(ifname) = &entry.record.ifname {
                text.push_str(&format!("Interface: {ifname}\n"));
            }
        }
        if text.is_empty() {
            text = format!("{address} is not assigned\n");
        }
        print(&text)?;
        return Ok(true);
    }
    let dash = || "-".to_owned();
    let rows: Vec<Vec<String>> = entries
        .map(|entry| {
            let mut row = vec![
                entry.network.clone(),
                entry.address.to_string(),
                entry.record.container.clone().unwrap_or_else(dash),
                entry.record.ifname.clone().unwrap_or_else(dash),
            ];
            if output == Output::Wide {
                row.push(entry.record.foreign.clone().unwrap_or_else(dash));
            }
            row
        })
        .collect();
    let mut head = vec!["NETWORK", "IP", "CONTAINER", "INTERFACE"];
    if output == Output::Wide {
        head.push("NOTE");
    }
    print(&table::framed(&head, &rows))?;
    Ok(true)
}

/// Releases what a container holds, or an address that is all that its container holds in its network.
pub(crate) fn release(
    data_dir: &Path,
    network: Option<&str>,
    ip: Option<Address>,
    handle: Option<&str>,
    dry_run: bool,
) -> Result<bool> {
    let networks = read(data_dir, network)?;
    let doomed = match (ip, handle) {
        (Some(address), _) => match of_address(&networks, address)? {
            Some(entry) => vec![entry],
            None => {
                print(&format!("{address} was not assigned\n"))?;
                return Ok(true);
            }
        },
        (None, Some(handle)) => {
            let (container, ifname) = match handle.split_once('/') {
                Some((container, ifname)) => (container, Some(ifname)),
                None => (handle, None),
            };
            let is_meant = |entry: &&Entry| {
                entry.record.container.as_deref() == Some(container)
                    && ifname.is_none_or(|ifname| entry.record.ifname.as_deref() == Some(ifname))
            };
            let found: Vec<Entry> =
                networks.iter().flat_map(|(_, entries)| entries).filter(is_meant).cloned().collect();
            if found.is_empty() {
                complain(&format!("container {handle}: it holds no address"));
                return Ok(false);
            }
            found
        }
        (None, None) => bail!("name an address with --ip, or a container with --handle"),
    };
    if dry_run {
        for entry in &doomed {
            print(&format!("{} would be released (dry run): network {}\n", entry.address, entry.network))?;
        }
        return Ok(true);
    }
    let mut owners: Vec<(&str, &Record)> = Vec::new();
    for entry in &doomed {
        let owner = (entry.network.as_str(), &entry.record);
        if !owners.contains(&owner) {
            owners.push(owner);
        }
    }
    let mut done_all = true;
    for (network, record) in owners {
        if let Err(error) = delete(data_dir, network, record) {
            done_all = false;
            complain(&format!("network {network}: {error:#}"));
        }
    }
    for entry in &doomed {
        let left = glance::held(data_dir, &entry.network).map_err(|trouble| anyhow!("{trouble}"))?;
        if left.iter().any(|(address, record)| *address == entry.address && *record == entry.record) {
            done_all = false;
            complain(&format!("{}: still held by {} in the network {}", entry.address, entry.owner(), entry.network));
        } else {
            print(&format!("{} released: network {}\n", entry.address, entry.network))?;
        }
    }
    Ok(done_all)
}

/// The one entry of an address that can be released by itself; none: it is free.
fn of_address(networks: &[(String, Vec<Entry>)], address: Address) -> Result<Option<Entry>> {
    let all = || networks.iter().flat_map(|(_, entries)| entries);
    let mut found = all().filter(|entry| entry.address == address);
    let Some(entry) = found.next() else { return Ok(None) };
    if let Some(other) = found.next() {
        bail!("--ip {address}: the networks {} and {} hold it: name one with --network", entry.network, other.network);
    }
    if entry.record.container.is_none() {
        bail!(
            "--ip {address}: no container holds it in the network {} ({}), so there is no owner to release: remove the \
             file by hand if it is of no use",
            entry.network,
            entry.record.foreign.as_deref().unwrap_or("no owner")
        );
    }
    // A container and its interface are released as a whole, as DEL does it.
    let others: Vec<String> = all()
        .filter(|other| other.network == entry.network && other.address != address && other.record == entry.record)
        .map(|other| other.address.to_string())
        .collect();
    if !others.is_empty() {
        bail!(
            "--ip {address}: {} also holds {}: release all of it with --handle {}",
            entry.owner(),
            others.join(", "),
            entry.owner()
        );
    }
    Ok(Some(entry.clone()))
}

/// DEL for the owner of a record.
fn delete(data_dir: &Path, network: &str, record: &Record) -> Result<()> {
    // An absolute path: the core reads a relative one from the working directory that it is told.
    let data_dir = std::path::absolute(data_dir)?;
    let path = data_dir.to_str().ok_or_else(|| anyhow!("{}: its path is not UTF-8", data_dir.display()))?;
    let container = record.container.as_deref().unwrap_or_default();
    // DEL asks for an interface. To a record of a container alone any leads, if the container has none of that name.
    let ifname = record.ifname.as_deref().unwrap_or("plat-none");
    let variable = |name: &str, value: &str| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
    let configuration = json!({
        "cniVersion": "1.0.0", "name": network, "type": "plat", "ipam": {"type": "host-local", "dataDir": path},
    });
    let mut request = Request {
        program: "host-local".to_owned(),
        environment: vec![
            variable("CNI_COMMAND", "DEL"),
            variable("CNI_CONTAINERID", container),
            variable("CNI_IFNAME", ifname),
            variable("CNI_PATH", "/"),
        ],
        input: configuration.to_string().into_bytes(),
        deadline_ms: u64::MAX,
        ..Request::default()
    };
    let mut instance = Core::embedded().context("the allocation core cannot be opened")?.instance();
    let target = instance.locate(std::slice::from_ref(&request))?.into_iter().next();
    let Some(Backend::Directory(located)) = target.as_ref().map(|target| &target.backend) else {
        bail!("the core finds no directory in it: {target:?}");
    };
    let options = Options { lock_wait_max: LOCK_WAIT_MAX, ..Options::system() };
    let mut store = WithHostFiles::new(DirectoryStore::new(located.into(), network.to_owned(), options));
    let mut reply = Reply::default();
    for attempt in 0..ATTEMPTS_MAX {
        request.attempt = attempt;
        let replies = instance.call(std::slice::from_ref(&request), &mut store, &mut SystemClock)?;
        reply = replies.into_iter().next().ok_or_else(|| anyhow!("the core gave no answer"))?;
        if !reply.contended {
            break;
        }
    }
    for line in store.store_mut().take_notices().iter().filter(|line| line.level <= Level::Warning) {
        warn(&line.text);
    }
    if reply.exit_status != 0 {
        let answer: Value = serde_json::from_slice(&reply.output).unwrap_or_default();
        let text = |name: &str| answer.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let details = text("details");
        bail!("{}{}{details}", text("msg"), if details.is_empty() { "" } else { ": " });
    }
    Ok(())
}
