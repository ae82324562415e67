//! The `block` strategy as a CNI plugin: under the name `calico-ipam` as that plugin behaves (`calico.md` 3), under our own
//! name a general IPAM on the same data.
//!
//! It knows what a call asks for and what it is answered. How addresses are chosen is [`crate::ipam`].

mod collect;
pub(crate) mod config;

use crate::cni::failure::{Failure, code};
use crate::cni::result::{AddResult, Destination, IpConfig, Route};
use crate::cni::{Level, Personality};
use crate::ipam::{self, Assignment, Error, Grant, Granted, Held, Holder, PassOver, Specific, Use};
use crate::json::{Json, Node};
use crate::net::{Address, Family, Prefix};
use crate::objects::time;
use crate::store::Durability;
use crate::strategy::Call;
use crate::strategy::ranges::{Output, read_dns, store_failure};
use config::{Config, Location, Width};

pub(crate) use collect::gc;

impl Call<'_> {
    fn is_calico(&self) -> bool {
        self.personality == Personality::CalicoIpam
    }

    /// The handle of this attachment: calico-ipam's is of the container, ours of the interface too.
    fn handle(&self) -> String {
        let container = format!("{}.{}", self.network, self.environment.container);
        if self.is_calico() { container } else { format!("{container}.{}", self.environment.ifname) }
    }

    /// Reads the whole configuration and logs what is odd about it.
    fn load_block(&mut self) -> Result<Config, Failure> {
        let (config, warnings) = config::load(self.document, &self.environment.args, self.personality)?;
        if let (_, Some(complaint)) = Location::read(self.document, &self.surroundings.working_directory)? {
            return Err(complaint);
        }
        for warning in warnings {
            self.note(Level::Warning, warning);
        }
        Ok(config)
    }

    /// Calls an operation of the strategy.
    fn operate<T>(&mut self, why: &str, operation: impl FnOnce(&mut ipam::Call<'_>) -> T) -> T {
        operation(&mut ipam::Call { store: self.store, clock: self.clock, deadline_ms: 0, attempt: 0, why })
    }

    /// The node's name (`calico.md` 3.1): the configuration's, else a file's, else the host's in lower case.
    fn node_name(&mut self, names: &config::NodeName) -> Result<String, Failure> {
        if !names.nodename.is_empty() {
            return Ok(names.nodename.clone());
        }
        if names.file.starts_with('/') {
            let key = format!("file/{}", names.file);
            let found = self.store.read(&[key], true).map_err(store_failure)?.into_iter().next().flatten();
            let name = found.map(|entry| crate::json::text_of(&entry.value).trim().to_owned());
            if let Some(name) = name.filter(|name| !name.is_empty()) {
                return Ok(name);
            }
        }
        if !names.hostname.is_empty() {
            return Ok(names.hostname.clone());
        }
        let host = self.surroundings.host_name.trim().to_lowercase();
        if host.is_empty() {
            return Err(Failure::new(
                code::INVALID_CONFIG,
                "the node has no name: set nodename, or write it into the file that nodename_file names",
            ));
        }
        Ok(host)
    }
}

/// What an error of an operation means to the runtime, and what to do about it.
fn failure(error: Error) -> Failure {
    let text = error.to_string();
    match error {
        Error::Contended => Failure { contended: true, ..Failure::new(code::TRY_AGAIN_LATER, text) },
        Error::Unavailable(_) | Error::Unsettled => Failure::new(code::TRY_AGAIN_LATER, text),
        Error::Invalid { .. } => Failure::new(code::INVALID_CONFIG, text),
        Error::Taken { .. } => {
            Failure::internal(text).with_details("release it there with DEL, or ask for another address")
        }
        Error::NotInAPool(_) => Failure::internal(text)
            .with_details("make a pool that contains it, enable the one that does, or ask for another address"),
        Error::NoSuchPool { .. } => Failure::internal(text)
            .with_details("name pools that exist, are enabled and admit workloads, by name or CIDR, or name none"),
        Error::StrictAffinity(_) => Failure::internal(text)
            .with_details("ask for an address of a block of this node, or set strictAffinity: false"),
        _ => Failure::internal(text),
    }
}

/// Refuses a request for nothing.
fn check_wanted(config: &Config) -> Result<(), Failure> {
    if config.v4 || config.v6 || !config.requested.is_empty() {
        return Ok(());
    }
    Err(Failure::new(
        code::INVALID_CONFIG,
        "neither ipam.assign_ipv4 nor ipam.assign_ipv6 asks for an address: set one of them to \"true\"",
    ))
}

/// The request of an ADD for addresses that the core chooses.
fn assignment(call: &mut Call<'_>, config: &Config, node: &str) -> Assignment {
    let mut item = Assignment::new(Holder::Host(node.to_owned()), config.v4.into(), config.v6.into());
    item.handle = Some(call.handle());
    item.v4_pools.clone_from(&config.v4_pools);
    item.v6_pools.clone_from(&config.v6_pools);
    item.namespace = (!config.namespace.is_empty()).then(|| config.namespace.clone());
    item.attributes = attributes(call, config, node);
    item.blocks_max = config.single_block.then_some(1);
    item.per_handle_max = Some(1);
    item.advice = call.advice.to_vec();
    if !call.is_calico() {
        item.avoid.clone_from(&config.gateways);
        item.avoid_pool_edges = config.width == Width::Pool;
    }
    item
}

/// What is written beside an address (`calico.md` 2.14).
fn attributes(call: &mut Call<'_>, config: &Config, node: &str) -> ipam::Attributes {
    let mut attributes = ipam::Attributes::new();
    let mut set = |name: &str, value: &str| {
        if !value.is_empty() {
            attributes.insert(name.to_owned(), value.to_owned());
        }
    };
    set("node", node);
    set("timestamp", &time::to_go_text(call.clock.now()));
    set("pod", &config.pod);
    set("namespace", &config.namespace);
    if !call.is_calico() {
        // A handle cannot always be taken apart again: names may have dots.
        set("network", call.network);
        set("container", &call.environment.container);
        set("interface", &call.environment.ifname);
    }
    attributes
}

pub(crate) fn add(call: &mut Call<'_>) -> Result<Output, Failure> {
    let config = call.load_block()?;
    check_wanted(&config)?;
    let dns = read_dns(call, &config.resolv_conf)?;
    if call.surroundings.netns_is_own == Some(true) && !call.environment.allows_own_netns {
        return Err(Failure::own_netns());
    }
    let node = call.node_name(&config.node)?;
    let (grants, explicit) = if config.requested.is_empty() {
        let item = assignment(call, &config, &node);
        let answers = call.operate("ADD", |call| ipam::assign(call, std::slice::from_ref(&item)));
        let granted = answers.into_iter().next().unwrap_or_default();
        if granted.failed.is_some() {
            let mut failure = refusal(&granted, &node, call.is_calico());
            if !item.avoid.is_empty() || item.avoid_pool_edges {
                let kept_back = if item.avoid_pool_edges {
                    "\nthe first and last address of a pool, and gateways, are never given out"
                } else {
                    "\ngateways are never given out"
                };
                failure.details.push_str(kept_back);
            }
            return Err(failure);
        }
        (granted.grants, false)
    } else {
        (assign_requested(call, &config, &node)?, true)
    };
    for grant in &grants {
        let verb = if grant.held_before { "kept" } else { "assigned" };
        let text = format!(
            "{verb} {} of block {} for {}/{} in network {}",
            grant.address, grant.block, call.environment.container, call.environment.ifname, call.network
        );
        call.note(Level::Info, text);
    }
    let ips = answered(call, &config, &grants, explicit);
    let routes =
        if call.is_calico() { ips.iter().map(|ip| Some(route_to(ip.address))).collect() } else { config.routes };
    AddResult { ips, routes, dns }.to_text(call.version).map(String::into_bytes)
}

fn route_to(destination: Prefix) -> Route {
    Route { advmss: 0, dst: Destination(Some(destination)), gw: None, mtu: 0, priority: 0, scope: None, table: None }
}

/// Addresses with the prefix lengths and gateways of the answer.
fn answered(call: &mut Call<'_>, config: &Config, grants: &[Grant], explicit: bool) -> Vec<IpConfig> {
    let mut ips = Vec::new();
    for grant in grants {
        let bits = grant.address.family().bits();
        let length = match (call.is_calico(), explicit, config.width) {
            (true, true, _) | (false, _, Width::Host) => bits,
            (true, false, _) | (false, _, Width::Block) => grant.block.length(),
            (false, _, Width::Pool) => grant.pool_cidr.length(),
        };
        let of_family: Vec<Address> =
            config.gateways.iter().copied().filter(|gateway| gateway.family() == grant.address.family()).collect();
        let within = of_family.iter().copied().find(|gateway| grant.pool_cidr.contains(*gateway));
        let gateway = within.or_else(|| of_family.first().copied().filter(|_| of_family.len() == 1));
        if let Some(outside) = gateway.filter(|_| within.is_none() && config.width != Width::Host) {
            let text = format!("the gateway {outside} lies outside the pool {} of the address", grant.pool_cidr);
            call.note(Level::Warning, text);
        }
        if let Some(address) = Prefix::new(grant.address, length) {
            ips.push(IpConfig { address, gateway: gateway.filter(|_| !call.is_calico()) });
        }
    }
    ips
}

/// Assigns the addresses that were asked for, all or none.
fn assign_requested(call: &mut Call<'_>, config: &Config, node: &str) -> Result<Vec<Grant>, Failure> {
    let mut grants: Vec<Grant> = Vec::new();
    let attributes = attributes(call, config, node);
    let handle = call.handle();
    let mut requested = config.requested.clone();
    requested.sort_unstable();
    for address in requested {
        let item = Specific {
            address,
            handle: Some(handle.clone()),
            holder: Holder::Host(node.to_owned()),
            purpose: Some(Use::Workload),
            attributes: attributes.clone(),
            per_handle_max: Some(1),
            edges: None,
        };
        let answers = call.operate("ADD", |call| ipam::assign_ip(call, std::slice::from_ref(&item)));
        match answers.into_iter().next().unwrap_or(Err(Error::Contended)) {
            Ok(grant) => {
                let kept_back = kept_back(call, config, &grant);
                grants.push(grant);
                if let Some(what) = kept_back {
                    give_back(call, &grants, &handle);
                    return Err(Failure::internal(format!("{address} is {what}, which is never given out"))
                        .with_details("ask for another address, or set ipam.prefix to \"block\" or \"host\""));
                }
            }
            Err(error) => {
                give_back(call, &grants, &handle);
                let is_for_others = matches!(error, Error::NoSuchPool { .. });
                let failure = failure(error).within(&format!("requested address {address}: "));
                return Err(if is_for_others {
                    failure.with_details("add Workload to its allowedUses, or ask for an address of another pool")
                } else {
                    failure
                });
            }
        }
    }
    Ok(grants)
}

/// What an address is on a link that the whole pool shares, if no container may have it.
fn kept_back(call: &Call<'_>, config: &Config, grant: &Grant) -> Option<&'static str> {
    if call.is_calico() {
        return None;
    }
    if config.gateways.contains(&grant.address) {
        return Some("the gateway");
    }
    let pool = grant.pool_cidr;
    let is_small = pool.family().bits().saturating_sub(pool.length()) < 2;
    match () {
        () if config.width != Width::Pool || is_small => None,
        () if grant.address == pool.network() => Some("the network's own address"),
        () if grant.address == pool.last() && pool.family() == Family::V4 => Some("the broadcast address"),
        () => None,
    }
}

/// Gives back what this call has taken. What cannot be given back is left to DEL, which finds it by the handle.
fn give_back(call: &mut Call<'_>, grants: &[Grant], handle: &str) {
    let items: Vec<ipam::Release> = grants
        .iter()
        .filter(|grant| !grant.held_before)
        .map(|grant| ipam::Release {
            address: grant.address,
            handle: Some(handle.to_owned()),
            sequence: Some(grant.sequence),
        })
        .collect();
    for answer in call.operate("ADD", |call| ipam::release(call, &items)) {
        if let Err(error) = answer {
            call.note(Level::Warning, format!("an address of this failed call is left to DEL: {error}"));
        }
    }
}

/// What a refused ADD answers: the original's sentence, and the explanation as details.
fn refusal(granted: &Granted, node: &str, is_calico: bool) -> Failure {
    let Some(error) = granted.failed.clone() else { return Failure::internal("no address") };
    let text = ipam::text(granted);
    let rest = text.strip_prefix(&error.to_string()).unwrap_or(&text).trim_start_matches(['\n', ':', ' ']);
    // The message says the first sentence in other words, but for the family that has no pool.
    let details = if matches!(error, Error::NoPool(_)) { &text } else { rest };
    let msg = match &error {
        Error::Exhausted { family, wanted, obtained } => {
            let mut messages: Vec<String> = Vec::new();
            for report in granted.passed_over.iter().filter(|report| report.cidr.family() == *family) {
                let message = match &report.why {
                    PassOver::BlockLimit(limit) => format!(
                        "Need to allocate an IPAM block but could not - limit of {limit} blocks reached for this node"
                    ),
                    PassOver::StrictAffinity => "No more free affine blocks and strict affinity enabled".to_owned(),
                    PassOver::Full | PassOver::Reserved => format!("No IPs available in pools: [{}]", report.cidr),
                    why => format!("pool {}: {why}", report.pool),
                };
                if !messages.contains(&message) {
                    messages.push(message);
                }
            }
            let family = if *family == Family::V4 { "IPv4" } else { "IPv6" };
            format!("Assigned {obtained} out of {wanted} requested {family} addresses; {}", messages.join("; "))
        }
        Error::NoPool(_) if is_calico => format!("no configured Calico pools for node {node}"),
        Error::NoPool(_) => format!("no configured pools for node {node} may serve the request"),
        _ => {
            let failure = failure(error);
            return if details.is_empty() { failure } else { failure.with_details(details) };
        }
    };
    Failure::internal(msg).with_details(details)
}

/// DEL: releases what the handle holds, whatever else the configuration says.
pub(crate) fn del(call: &mut Call<'_>) -> Result<Output, Failure> {
    Location::read(call.document, &call.surroundings.working_directory)?;
    if let Err(broken) = call.load_block() {
        let text = format!("the configuration has an error, which does not matter to DEL: {}", broken.msg);
        call.note(Level::Warning, text);
    }
    let mut handles = vec![call.handle()];
    let mut pod = Config::default();
    // Handles of versions before 3 name the pod (`calico.md` 2.14).
    if call.is_calico() && config::read_args(&call.environment.args, &mut pod).is_ok() && !pod.pod.is_empty() {
        handles.push(format!("{}.{}", pod.namespace, pod.pod));
    }
    let answers = call.operate("DEL", |call| ipam::release_by_handle(call, &handles));
    for (answer, handle) in answers.into_iter().zip(handles) {
        match answer {
            Ok(addresses) => {
                for address in addresses {
                    call.note(Level::Info, format!("released {address} of {handle}"));
                }
            }
            Err(Error::NotFound(_)) => {}
            Err(error) => return Err(failure(error)),
        }
    }
    Ok(Output::new())
}

/// CHECK: the handle holds addresses, and those that the previous result names.
pub(crate) fn check(call: &mut Call<'_>) -> Result<Output, Failure> {
    call.load_block()?;
    let handle = call.handle();
    let answers = call.operate("CHECK", |call| ipam::addresses_by_handle(call, std::slice::from_ref(&handle)));
    let held: Vec<Held> = answers.into_iter().next().unwrap_or(Ok(Vec::new())).map_err(failure)?;
    if held.is_empty() {
        return Err(Failure::internal(format!(
            "failed to find an address added by container {}",
            call.environment.container
        ))
        .with_details(format!(
            "the handle {handle} holds nothing: it was released, or its ADD went to another network or store. Delete the \
             sandbox and make it again"
        )));
    }
    let named =
        previous_addresses(call.document).map_err(|error| Failure::new(code::INVALID_CONFIG, error.to_string()))?;
    let Some(named) = named else { return Ok(Output::new()) };
    match held.iter().find(|held| !named.contains(&held.address)) {
        None => Ok(Output::new()),
        Some(held) => Err(Failure::internal(format!(
            "the address {} of container {} is not in prevResult",
            held.address, call.environment.container
        ))
        .with_details("the interface has another address than the store: delete the sandbox and make it again")),
    }
}

/// The addresses of `prevResult`; none if it names none.
fn previous_addresses(document: &Json) -> Result<Option<Vec<Address>>, crate::json::Mismatch> {
    let mut named: Option<Vec<String>> = None;
    Node::root(document).members(&["prevResult"], |_, node| {
        node.members(&["ips"], |_, node| {
            node.list(named.get_or_insert_default(), |node, text: &mut String| {
                node.members(&["address"], |_, node| node.string(text))
            })
        })
    })?;
    Ok(named.map(|texts| texts.iter().filter_map(|text| Prefix::parse(text).ok()).map(|ip| ip.base()).collect()))
}

/// STATUS: whether an ADD could succeed.
pub(crate) fn status(call: &mut Call<'_>) -> Result<Output, Failure> {
    let unavailable = |failure: Failure| Failure { code: code::NOT_AVAILABLE, contended: false, ..failure };
    let config = call.load_block().map_err(unavailable)?;
    check_wanted(&config).map_err(unavailable)?;
    // A store that cannot be written is found out here; the rest needs reading alone.
    call.store.commit(&[], &[], Durability::Process).map_err(|error| unavailable(store_failure(error)))?;
    let node = call.node_name(&config.node).map_err(unavailable)?;
    let mut item = assignment(call, &config, &node);
    // No attachment: STATUS names none.
    (item.handle, item.per_handle_max) = (None, None);
    let answers = call.operate("STATUS", |call| ipam::explain(call, std::slice::from_ref(&item)));
    let granted = answers.into_iter().next().unwrap_or_default();
    let Some(error) = &granted.failed else { return Ok(Output::new()) };
    let failure = refusal(&granted, &node, call.is_calico());
    let is_full = matches!(error, Error::Exhausted { .. });
    if is_full && !config.fails_status_when_full {
        call.note(Level::Warning, format!("{}: {}", failure.msg, failure.details));
        return Ok(Output::new());
    }
    Err(unavailable(failure))
}
