//! `plat ipam`: how full pools are, who has an address, why there is none, and giving addresses back.

use crate::resources::{report, structured};
use crate::store::{Place, Session};
use crate::{Output, Usage, complain, directory, print, table};
use anyhow::{Result, anyhow, bail};
use clap::{Args, Subcommand};
use plat_core::ipam::{Assignment, BlockUsage, Held, Holder, PoolUsage, Release, Released};
use plat_core::net::{Address, Count};
use plat_core::resources::{Kind, Mode};
use serde_json::{Value, json};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Shows how full pools are, and who holds what.
    Show(Show),
    /// Releases addresses by hand.
    Release(Give),
    /// Changes the IPAMConfiguration, with calicoctl's options.
    Configure(Configure),
    /// Explains where a node's next address would come from, or why there is none.
    Explain(Explain),
}

#[derive(Args)]
pub(crate) struct Show {
    /// With dir:PATH: only this network.
    #[arg(long)]
    network: Option<String>,
    /// Shows each block too.
    #[arg(long)]
    show_blocks: bool,
    /// Shows the addresses that a node uses from another node's block.
    #[arg(long)]
    show_borrowed: bool,
    /// Shows the configuration.
    #[arg(long)]
    show_configuration: bool,
    /// Shows who holds this address.
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    ip: Option<Address>,
    /// How it is printed.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

#[derive(Args)]
#[group(required = true, multiple = false, id = "what")]
pub(crate) struct Which {
    /// An address.
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    ip: Option<Address>,
    /// A handle, with all its addresses; with dir:PATH a container, CONTAINER or CONTAINER/INTERFACE.
    #[arg(long, value_name = "ID")]
    handle: Option<String>,
}

#[derive(Args)]
pub(crate) struct Give {
    #[command(flatten)]
    which: Which,
    /// With dir:PATH: only in this network.
    #[arg(long)]
    network: Option<String>,
    /// Says what would be released and writes nothing.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Args)]
#[group(required = true, multiple = true, id = "changes")]
pub(crate) struct Changes {
    /// Whether a node may use its own blocks only.
    #[arg(long, value_name = "true|false")]
    strictaffinity: Option<bool>,
    /// How many blocks a node may have; 0 acts as 20.
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    max_blocks_per_host: Option<i64>,
    /// For how long a released address is not given out again.
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    ip_cooldown_seconds: Option<i64>,
    /// Whether a KubeVirt machine keeps its addresses.
    #[arg(long, value_name = "Enabled|Disabled")]
    kubevirt_ip_persistence: Option<String>,
}

#[derive(Args)]
pub(crate) struct Configure {
    #[command(flatten)]
    changes: Changes,
    /// Checks the change and writes nothing.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Args)]
pub(crate) struct Explain {
    /// The node.
    #[arg(long)]
    node: String,
    /// The namespace of the pod.
    #[arg(long)]
    namespace: Option<String>,
    /// Pools to use, by name or CIDR.
    #[arg(long, value_name = "POOL")]
    pool: Vec<String>,
    /// How many IPv4 addresses.
    #[arg(long, default_value_t = 1)]
    ipv4: u32,
    /// How many IPv6 addresses.
    #[arg(long, default_value_t = 0)]
    ipv6: u32,
    /// How it is printed.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

pub(crate) fn run(store: Option<&str>, command: &Command) -> Result<bool> {
    match command {
        Command::Show(show) => self::show(store, show),
        Command::Release(give) => release(store, give),
        Command::Configure(changes) => configure(store, changes),
        Command::Explain(explain) => self::explain(store, explain),
    }
}

fn parse_address(text: &str) -> Result<Address, String> {
    Address::parse(text).ok_or_else(|| "no IP address: write one such as 10.0.0.1".to_owned())
}

fn show(store: Option<&str>, show: &Show) -> Result<bool> {
    if let Place::Directory(path) = Place::parse(store)? {
        if show.show_blocks || show.show_borrowed || show.show_configuration {
            bail!(Usage(format!(
                "--show-blocks, --show-borrowed and --show-configuration: {}, a host-local directory, has none of these",
                path.display()
            )));
        }
        return directory::show(&path, show.network.as_deref(), show.ip, show.output);
    }
    refuse_network(show.network.as_deref())?;
    let mut session = Session::open(store, "plat ipam show", false)?;
    if let Some(address) = show.ip {
        return show_address(&mut session, address, show.output);
    }
    if show.show_configuration {
        return show_configuration(&mut session, show.output);
    }
    let usage = session
        .instance
        .utilization(&session.settings, &[], &mut session.store, &mut session.clock)?
        .map_err(|error| anyhow!("{error}"))?;
    if matches!(show.output, Output::Json | Output::Yaml) {
        let pools: Vec<Value> = usage.iter().map(|pool| pool_value(pool, show)).collect();
        print(&structured(&json!({"pools": pools}), show.output))?;
        return Ok(true);
    }
    if show.show_borrowed {
        print(&table::framed(&["IP", "BORROWING-NODE", "BLOCK", "BLOCK OWNER", "ALLOCATED-TO"], &borrowed(&usage)))?;
        return Ok(true);
    }
    let mut rows = Vec::new();
    for pool in &usage {
        let name = if pool.pool.is_empty() { "No pool".to_owned() } else { "IP Pool".to_owned() };
        rows.push(usage_row(name, pool.cidr.to_string(), pool.capacity, pool.in_use, pool.reserved, pool.free));
        for block in pool.blocks.iter().filter(|_| show.show_blocks) {
            rows.push(block_row(block));
        }
    }
    print(&table::framed(&["GROUPING", "CIDR", "IPS TOTAL", "IPS IN USE", "IPS RESERVED", "IPS FREE"], &rows))?;
    Ok(true)
}

fn as_number(count: Count) -> f64 {
    count.as_u128().map_or(2f64.powi(128), |count| count as f64)
}

/// `12 (5%)`.
fn share(part: Count, whole: Count) -> String {
    let percent = if whole.is_zero() { 0.0 } else { 100.0 * as_number(part) / as_number(whole) };
    format!("{} ({percent:.0}%)", rounded(part))
}

/// A count with five digits at most, as calicoctl prints it (`%.5g`); JSON and YAML have all digits.
fn rounded(count: Count) -> String {
    const DIGITS: usize = 5;
    if let Some(count) = count.as_u128().filter(|count| *count < 10u128.pow(DIGITS as u32)) {
        return count.to_string();
    }
    let text = format!("{:.*e}", DIGITS - 1, as_number(count));
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    format!("{digits}e+{exponent:0>2}")
}

fn usage_row(grouping: String, cidr: String, total: Count, in_use: Count, reserved: Count, free: Count) -> Vec<String> {
    vec![grouping, cidr, rounded(total), share(in_use, total), share(reserved, total), share(free, total)]
}

fn block_row(block: &BlockUsage) -> Vec<String> {
    let count = |number: u32| Count::from(u64::from(number));
    usage_row(
        "Block".to_owned(),
        block.block.to_string(),
        count(block.capacity),
        count(block.in_use),
        count(block.reserved),
        count(block.free),
    )
}

fn node_of(held: &Held) -> Option<&String> {
    held.active.get("node")
}

fn borrowed(usage: &[PoolUsage]) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for block in usage.iter().flat_map(|pool| &pool.blocks) {
        let Some(Holder::Host(host)) = &block.holder else { continue };
        for held in block.held.iter().filter(|held| node_of(held).is_some_and(|node| node != host)) {
            let whom = match (held.active.get("namespace"), held.active.get("pod")) {
                (Some(namespace), Some(pod)) => format!("{namespace}/{pod}"),
                _ => held.handle.clone().unwrap_or_else(|| "-".to_owned()),
            };
            let node = node_of(held).cloned().unwrap_or_default();
            rows.push(vec![held.address.to_string(), node, block.block.to_string(), host.clone(), whom]);
        }
    }
    rows
}

fn held_value(held: &Held) -> Value {
    json!({
        "ip": held.address.to_string(),
        "block": held.block.to_string(),
        "blockOwner": held.block_holder.as_ref().map(ToString::to_string),
        "handle": held.handle,
        // As a text: it is beyond what many readers of JSON keep exact.
        "sequenceNumber": held.sequence.to_string(),
        "owner": held.active,
        "alternateOwner": held.alternate,
        "coolingSince": held.cooling_since,
    })
}

fn pool_value(pool: &PoolUsage, show: &Show) -> Value {
    let text = |count: Count| count.to_string();
    let mut value = json!({
        "name": pool.pool, "cidr": pool.cidr.to_string(), "total": text(pool.capacity), "inUse": text(pool.in_use),
        "cooling": text(pool.cooling), "borrowed": text(pool.borrowed), "reserved": text(pool.reserved),
        "free": text(pool.free),
    });
    if show.show_blocks || show.show_borrowed {
        let block = |block: &BlockUsage| {
            json!({
                "cidr": block.block.to_string(), "owner": block.holder.as_ref().map(ToString::to_string),
                "total": block.capacity, "inUse": block.in_use, "cooling": block.cooling, "reserved": block.reserved,
                "free": block.free, "addresses": block.held.iter().map(held_value).collect::<Vec<_>>(),
            })
        };
        value["blocks"] = pool.blocks.iter().map(block).collect();
    }
    value
}

fn show_address(session: &mut Session, address: Address, output: Output) -> Result<bool> {
    let answers = session.instance.holders(&session.settings, &[address], &mut session.store, &mut session.clock)?;
    let found = answers.into_iter().next().unwrap_or(Ok(None)).map_err(|error| anyhow!("{error}"))?;
    if matches!(output, Output::Json | Output::Yaml) {
        let value = found.as_ref().map_or_else(|| json!({"ip": address.to_string(), "handle": null}), held_value);
        print(&structured(&value, output))?;
        return Ok(true);
    }
    let Some(held) = found else {
        print(&format!("{address} is not assigned\n"))?;
        return Ok(true);
    };
    let mut text = match held.cooling_since {
        None => format!("IP {address} is in use\n"),
        Some(_) => format!("{address} was released and is cooling down\n"),
    };
    text.push_str(&format!("Handle ID: {}\n", held.handle.as_deref().unwrap_or("none")));
    for (title, attributes) in [("Owner", &held.active), ("Alternate owner", &held.alternate)] {
        if !attributes.is_empty() {
            text.push_str(&format!("{title}:\n"));
            text.extend(attributes.iter().map(|(name, value)| format!("  {name}: {value}\n")));
        }
    }
    let owner = held.block_holder.as_ref().map_or("nobody".to_owned(), ToString::to_string);
    text.push_str(&format!("Block: {} of {owner}\nSequence number: {}\n", held.block, held.sequence));
    print(&text)?;
    Ok(true)
}

fn show_configuration(session: &mut Session, output: Output) -> Result<bool> {
    let found = session.instance.resource(
        &session.settings,
        Kind::Configuration,
        "default",
        &mut session.store,
        &mut session.clock,
    )?;
    let value = found.map_err(anyhow::Error::msg)?.map(|object| object.value).unwrap_or_default();
    let spec = value.pointer("/spec").cloned().unwrap_or_else(|| json!({}));
    if matches!(output, Output::Json | Output::Yaml) {
        print(&structured(&spec, output))?;
        return Ok(true);
    }
    let defaults = [
        ("strictAffinity", "false"),
        ("autoAllocateBlocks", "true"),
        ("maxBlocksPerHost", "0 (acts as 20)"),
        ("kubeVirtVMAddressPersistence", "Enabled"),
        ("ipCooldownSeconds", "0"),
    ];
    let row = |(name, default): (&str, &str)| {
        let value = spec.get(name).map(|value| value.to_string().trim_matches('"').to_owned());
        vec![name.to_owned(), value.unwrap_or_else(|| format!("{default}, by default"))]
    };
    print(&table::framed(&["PROPERTY", "VALUE"], &defaults.map(row)))?;
    Ok(true)
}

/// Changes what is named, and leaves the rest of the configuration as it is.
fn configure(store: Option<&str>, configure: &Configure) -> Result<bool> {
    let mut session = Session::open(store, "plat ipam configure", true)?;
    let found = session.instance.resource(
        &session.settings,
        Kind::Configuration,
        "default",
        &mut session.store,
        &mut session.clock,
    )?;
    // With its resourceVersion, so that a change by another in between is not undone.
    let mut value = found.map_err(anyhow::Error::msg)?.map_or_else(
        || {
            let kind = Kind::Configuration;
            json!({"apiVersion": kind.api_version(), "kind": kind.name(), "metadata": {"name": "default"}, "spec": {}})
        },
        |object| object.value,
    );
    let changes = &configure.changes;
    let named: [(&str, Option<Value>); 4] = [
        ("strictAffinity", changes.strictaffinity.map(Value::from)),
        ("maxBlocksPerHost", changes.max_blocks_per_host.map(Value::from)),
        ("ipCooldownSeconds", changes.ip_cooldown_seconds.map(Value::from)),
        ("kubeVirtVMAddressPersistence", changes.kubevirt_ip_persistence.clone().map(Value::from)),
    ];
    for (name, wanted) in named {
        if let Some(wanted) = wanted {
            value["spec"][name] = wanted;
        }
    }
    let outcomes = session.instance.apply(
        &session.settings,
        &[value.to_string().into_bytes()],
        Mode::Apply,
        configure.dry_run,
        &mut session.store,
        &mut session.clock,
    )?;
    let mut done_all = true;
    for outcome in outcomes {
        report("", None, &outcome);
        match &outcome.done {
            Ok(done) => {
                let suffix = if configure.dry_run { " (dry run)" } else { "" };
                print(&format!("ipamconfiguration/default {}{suffix}\n", done.text()))?;
            }
            Err(_) => done_all = false,
        }
    }
    Ok(done_all)
}

/// Networks are of host-local's directories.
fn refuse_network(network: Option<&str>) -> Result<()> {
    match network {
        Some(_) => bail!(Usage("--network: only --store dir:PATH has networks".to_owned())),
        None => Ok(()),
    }
}

fn release(store: Option<&str>, give: &Give) -> Result<bool> {
    if let Place::Directory(path) = Place::parse(store)? {
        return directory::release(
            &path,
            give.network.as_deref(),
            give.which.ip,
            give.which.handle.as_deref(),
            give.dry_run,
        );
    }
    refuse_network(give.network.as_deref())?;
    let mut session = Session::open(store, "plat ipam release", !give.dry_run)?;
    let (addresses, missing) = match (&give.which.ip, &give.which.handle) {
        (Some(address), _) => (vec![*address], None),
        (None, Some(handle)) => {
            let answers = session.instance.addresses_by_handle(
                &session.settings,
                std::slice::from_ref(handle),
                &mut session.store,
                &mut session.clock,
            )?;
            let held = answers.into_iter().next().unwrap_or(Ok(Vec::new())).map_err(|error| anyhow!("{error}"))?;
            (held.iter().map(|held| held.address).collect(), Some(handle))
        }
        (None, None) => bail!("name an address with --ip, or a handle with --handle"),
    };
    if let Some(handle) = missing.filter(|_| addresses.is_empty()) {
        complain(&format!("handle {handle}: it holds no address"));
        return Ok(false);
    }
    if give.dry_run {
        for address in addresses {
            print(&format!("{address} would be released (dry run)\n"))?;
        }
        return Ok(true);
    }
    if let Some(handle) = missing {
        let answers = session.instance.release_by_handle(
            &session.settings,
            std::slice::from_ref(handle),
            &mut session.store,
            &mut session.clock,
        )?;
        let released = answers.into_iter().next().unwrap_or(Ok(Vec::new())).map_err(|error| anyhow!("{error}"))?;
        for address in released {
            print(&format!("{address} released\n"))?;
        }
        return Ok(true);
    }
    let items: Vec<Release> =
        addresses.iter().map(|address| Release { address: *address, handle: None, sequence: None }).collect();
    let answers = session.instance.release(&session.settings, &items, &mut session.store, &mut session.clock)?;
    let mut done_all = true;
    for (answer, address) in answers.into_iter().zip(addresses) {
        match answer {
            Ok(Released::Freed) => print(&format!("{address} released\n"))?,
            Ok(Released::Cooling) => print(&format!("{address} released, free after the cooldown\n"))?,
            Ok(Released::NotAssigned) => print(&format!("{address} was not assigned\n"))?,
            Err(error) => {
                done_all = false;
                complain(&format!("{address}: {error}"));
            }
        }
    }
    Ok(done_all)
}

fn explain(store: Option<&str>, explain: &Explain) -> Result<bool> {
    let mut session = Session::open(store, "plat ipam explain", false)?;
    let mut item = Assignment::new(Holder::Host(explain.node.clone()), explain.ipv4, explain.ipv6);
    item.namespace.clone_from(&explain.namespace);
    for pool in &explain.pool {
        // The core says which of them is of the wrong family.
        if explain.ipv4 > 0 {
            item.v4_pools.push(pool.clone());
        }
        if explain.ipv6 > 0 {
            item.v6_pools.push(pool.clone());
        }
    }
    let answers = session.instance.explain(&session.settings, &[item], &mut session.store, &mut session.clock)?;
    let granted = answers.into_iter().next().unwrap_or_default();
    let would = granted.failed.is_none();
    if matches!(explain.output, Output::Json | Output::Yaml) {
        let grants: Vec<Value> = granted
            .grants
            .iter()
            .map(|grant| json!({"ip": grant.address.to_string(), "block": grant.block.to_string(), "pool": grant.pool}))
            .collect();
        let passed: Vec<Value> = granted
            .passed_over
            .iter()
            .map(|report| {
                json!({
                    "pool": report.pool, "cidr": report.cidr.to_string(), "why": report.why.to_string(),
                    "total": report.capacity.to_string(), "inUse": report.in_use.to_string(),
                    "free": report.free.to_string(), "remedy": report.remedy,
                })
            })
            .collect();
        let error = granted.failed.as_ref().map(ToString::to_string);
        print(&structured(&json!({"would": grants, "error": error, "passedOver": passed}), explain.output))?;
        return Ok(would);
    }
    for grant in &granted.grants {
        print(&format!(
            "{} would be assigned: from the block {} of the pool {} ({})\n",
            grant.address, grant.block, grant.pool, grant.pool_cidr
        ))?;
    }
    if !would {
        print(&format!("{}\n", session.instance.explanation(&granted)?))?;
    }
    Ok(would)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_written_as_calicoctl_writes_them() {
        for (count, expected) in [
            (0u128, "0"),
            (65_536, "65536"),
            (99_999, "99999"),
            (100_000, "1e+05"),
            (131_072, "1.3107e+05"),
            (1 << 20, "1.0486e+06"),
            (999_999, "1e+06"),
            (1 << 64, "1.8447e+19"),
            (1 << 100, "1.2677e+30"),
        ] {
            assert_eq!(rounded(Count::from(count)), expected);
        }
        assert_eq!(share(Count::from(1u128), Count::from(3u128)), "1 (33%)");
        assert_eq!(share(Count::ZERO, Count::ZERO), "0 (0%)");
    }
}
