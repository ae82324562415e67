//! Which pools may serve a request, in which order, and why the others may not (`calico.md` 2.3, steps 5 to 7).

use super::session::{Session, Step, World, is_enabled};
use super::{Assignment, Edges, Error, PassOver};
use crate::net::{Family, Prefix};
use crate::resources::Pool;
use std::rc::Rc;

/// The pools for one family of one request.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) world: Rc<World>,
    /// Indexes into the world's pools: those that may serve, best first.
    pub(super) usable: Vec<usize>,
    /// Those that may not, and why.
    pub(super) passed_over: Vec<(usize, PassOver)>,
}

impl Choice {
    pub(super) fn pools(&self) -> impl Iterator<Item = (usize, &Pool)> {
        self.usable.iter().filter_map(|index| Some((*index, self.world.pools.get(*index)?)))
    }

    /// The usable pool that contains a block.
    pub(super) fn pool_of(&self, block: Prefix) -> Option<&Pool> {
        self.pools().map(|(_, pool)| pool).find(|pool| pool.cidr.covers(&block))
    }
}

/// The longest block that leaves an address beside those that a host keeps for itself: 3 and 1 need a /29, since a /30
/// would leave none (`calico.md` 2.3, step 5).
fn length_max(family: Family, edges: Option<&Edges>) -> u8 {
    let kept = edges.map_or(0, |edges| edges.first.saturating_add(edges.last));
    let bits = u8::try_from(u32::BITS - kept.leading_zeros()).unwrap_or(family.bits());
    family.bits().saturating_sub(bits)
}

/// The pools of a family that may serve a request.
///
/// # Errors
/// A requested pool that does not exist or cannot be used. No usable pool at all is no error here.
pub(super) fn choose(session: &mut Session<'_, '_>, item: &Assignment, family: Family) -> Step<Choice> {
    let world = session.world()?;
    let length_max = length_max(family, item.edges(family));
    let mut order: Vec<usize> = (0..world.pools.len()).collect();
    let requested = item.pools(family);
    if !requested.is_empty() {
        order = requested_pools(&world, requested, family, length_max)?;
    }
    let ranked = item.advice.iter().find_map(|advice| Some((&advice.policy, advice.pools.as_ref()?)));
    if let Some((_, names)) = ranked {
        let rank = |index: &usize| {
            let name = world.pools.get(*index).map(|pool| &pool.name);
            names.iter().position(|ranked| Some(ranked) == name).unwrap_or(usize::MAX)
        };
        order.sort_by_key(rank);
    }
    let node = session.holder_labels(&item.holder)?;
    let namespace = session.namespace_labels(item.namespace.as_deref())?;
    let mut choice = Choice { world: Rc::clone(&world), usable: Vec::new(), passed_over: Vec::new() };
    let others = (0..world.pools.len()).filter(|index| !order.contains(index));
    choice.passed_over.extend(others.map(|index| (index, PassOver::NotRequested)));
    for index in order {
        let Some(pool) = world.pools.get(index) else { continue };
        let why = if pool.cidr.family() != family {
            Some(PassOver::OtherFamily)
        } else if pool.deleting {
            Some(PassOver::Deleting)
        } else if pool.disabled {
            Some(PassOver::Disabled)
        } else if let Some(reason) = &pool.not_allocatable {
            Some(PassOver::NotAllocatable(reason.clone()))
        } else if requested.is_empty() && pool.manual {
            Some(PassOver::Manual)
        } else if requested.is_empty() && !pool.node_selector.matches(&node) {
            Some(PassOver::NodeSelector(pool.node_selector.text().to_owned()))
        } else if let Some(selector) =
            pool.namespace_selector.as_ref().filter(|selector| requested.is_empty() && !selector.matches(&namespace))
        {
            Some(PassOver::NamespaceSelector(selector.text().to_owned()))
        } else if !pool.uses.contains(&item.purpose) {
            Some(PassOver::NotForThisUse(item.purpose))
        } else if pool.block_length > length_max {
            Some(PassOver::BlockTooSmall(length_max))
        } else {
            ranked
                .filter(|(_, names)| !names.contains(&pool.name))
                .map(|(policy, _)| PassOver::RefusedBy(policy.clone()))
        };
        match why {
            None => choice.usable.push(index),
            Some(why) => choice.passed_over.push((index, why)),
        }
    }
    Ok(choice)
}

/// Requested pools, by name or CIDR, in the order of the request. They are used as given: their selectors and their
/// assignment mode do not matter.
fn requested_pools(world: &World, requested: &[String], family: Family, length_max: u8) -> Result<Vec<usize>, Error> {
    let mut order = Vec::new();
    for text in requested {
        let refused = |why: String| Error::NoSuchPool { pool: text.clone(), why };
        let cidr = Prefix::parse(text).ok();
        let matches = |pool: &Pool| match cidr {
            Some(cidr) => pool.cidr == cidr,
            None => pool.name == *text,
        };
        let Some((index, pool)) = world.pools.iter().enumerate().find(|(_, pool)| matches(pool)) else {
            return Err(refused("the given pool does not exist, or is not enabled: there is no such pool".into()));
        };
        if pool.cidr.family() != family {
            return Err(refused(format!("it is not a pool of {}", family_text(family))));
        }
        if !is_enabled(pool) {
            return Err(refused(
                "the given pool does not exist, or is not enabled: it is disabled or being deleted".into(),
            ));
        }
        if pool.block_length > length_max {
            return Err(refused(format!(
                "its blocks of /{} have no address beside those that the host keeps: /{length_max} would do",
                pool.block_length
            )));
        }
        if !order.contains(&index) {
            order.push(index);
        }
    }
    Ok(order)
}

/// `IPv4` or `IPv6`.
pub(super) fn family_text(family: Family) -> &'static str {
    match family {
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
    }
}
