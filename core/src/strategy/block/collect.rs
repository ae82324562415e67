//! GC: releases what no live attachment of this network on this node owns.
//!
//! One call knows one node and one network, and the store may know many. So only handles of this network's containers are
//! looked at, and only if all their addresses are this node's: never those of virtual machines, tunnels, load balancers or
//! Windows hosts, nor addresses without a handle. Any valid attachment of a container keeps all its handles.

use super::config::{Location, NodeName};
use super::failure;
use crate::cni::Level;
use crate::cni::failure::Failure;
use crate::ipam::{self, Error, Held};
use crate::limits;
use crate::network::encode;
use crate::objects::Handle;
use crate::objects::keys::handle_of_key;
use crate::store::scan_all;
use crate::strategy::Call;
use crate::strategy::ranges::{Output, WITHOUT_LIST, store_failure, valid_containers};
use std::collections::BTreeSet;

pub(crate) fn gc(call: &mut Call<'_>) -> Result<Output, Failure> {
    Location::read(call.document, &call.surroundings.working_directory)?;
    let alive = valid_containers(call.document).map_err(|error| Failure::internal(error.to_string()))?;
    let Some(alive) = alive else {
        call.note(Level::Warning, WITHOUT_LIST);
        return Ok(Output::new());
    };
    let node = call.node_name(&NodeName::read(call.document)?)?;
    let mut released = 0usize;
    let mut failed: Option<Failure> = None;
    for handle in handles(call)? {
        match collect(call, &handle, &node, &alive) {
            Ok(addresses) => {
                for address in addresses {
                    released += 1;
                    if released <= limits::LOG_LINES_MAX {
                        call.note(Level::Info, format!("GC released {address} of {handle}"));
                    }
                }
            }
            Err(error) => {
                failed.get_or_insert(failure(error));
            }
        }
    }
    call.note(Level::Info, format!("GC released {released} addresses of network {}", call.network));
    match failed {
        None => Ok(Output::new()),
        Some(failed) => Err(failed.with_details(format!("{released} addresses were released all the same"))),
    }
}

/// The handles whose ids begin with the network's name.
fn handles(call: &mut Call<'_>) -> Result<Vec<String>, Failure> {
    let prefix = format!("handle/{}.", encode(call.network));
    let entries = scan_all(call.store, &prefix, true, true).map_err(store_failure)?;
    let ids = entries.iter().filter_map(|entry| handle_of_key(&entry.key));
    // Cut as blocks are read: a living container must not be missed for what follows its name.
    Ok(ids.map(|id| Handle::sanitise(&id).to_owned()).collect())
}

/// Releases the addresses of a handle, if it may; says which.
fn collect(
    call: &mut Call<'_>,
    handle: &str,
    node: &str,
    alive: &BTreeSet<String>,
) -> Result<Vec<crate::net::Address>, Error> {
    let rest = handle.strip_prefix(call.network).and_then(|rest| rest.strip_prefix('.')).unwrap_or_default();
    // Of calico-ipam's handles the container is what follows the network; with a dot in it, it may as well be of another
    // network, or a virtual machine's.
    let of_calico = call.is_calico() && !rest.is_empty() && !rest.contains('.');
    if of_calico && alive.contains(rest) || call.is_calico() && !of_calico {
        return Ok(Vec::new());
    }
    let answers = call.operate("GC", |call| ipam::addresses_by_handle(call, &[handle.to_owned()]));
    let held: Vec<Held> = answers.into_iter().next().unwrap_or(Ok(Vec::new()))?;
    let network = call.network;
    let is_calico = call.is_calico();
    let is_dead = |held: &Held| {
        let of = |name: &str| held.active.get(name).map(String::as_str);
        let is_workload = of("type").is_none() && of("vmi-name").is_none() && held.alternate.is_empty();
        let is_here = of("node") == Some(node);
        let is_its = is_calico
            || of("network") == Some(network) && of("container").is_some_and(|container| !alive.contains(container));
        is_workload && is_here && is_its
    };
    // All or none of a handle: an address that is not understood keeps the others.
    if held.is_empty() || !held.iter().all(is_dead) {
        return Ok(Vec::new());
    }
    let items: Vec<ipam::Release> = held
        .iter()
        .map(|held| ipam::Release {
            address: held.address,
            handle: Some(handle.to_owned()),
            sequence: Some(held.sequence),
        })
        .collect();
    let mut released = Vec::new();
    for (answer, item) in call.operate("GC", |call| ipam::release(call, &items)).into_iter().zip(&items) {
        match answer {
            Ok(_) => released.push(item.address),
            // It changed since it was looked at: it is somebody's.
            Err(Error::StaleSequence(_) | Error::NotYours(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(released)
}
