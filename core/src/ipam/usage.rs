//! How full pools and blocks are (`calico.md` 2.13).

use super::session::{Session, Step, World};
use super::{BlockUsage, Error, Holder, PoolUsage};
use crate::net::{Address, AddressSet, Count, Family, Prefix};
use crate::objects::Block;
use crate::resources::Pool;

/// The pools that were asked for, by name or CIDR.
fn asked<'w>(world: &'w World, names: &[String]) -> Result<Vec<&'w Pool>, Error> {
    if names.is_empty() {
        return Ok(world.pools.iter().collect());
    }
    let find = |name: &String| {
        let cidr = Prefix::parse(name).ok();
        let found = world.pools.iter().find(|pool| pool.name == *name || Some(pool.cidr) == cidr);
        found.ok_or_else(|| Error::NoSuchPool { pool: name.clone(), why: "there is no such pool".into() })
    };
    names.iter().map(find).collect()
}

pub(super) fn utilization(session: &mut Session<'_, '_>, names: &[String]) -> Step<Vec<PoolUsage>> {
    let world = session.world()?;
    let pools = asked(&world, names)?;
    let mut blocks = Vec::new();
    for family in ["block/v4/", "block/v6/"] {
        for entry in session.scan(family, true)? {
            blocks.push(session.parse_block(entry)?.object);
        }
    }
    blocks.sort_by_key(|block| (block.prefix().first(), block.prefix().length()));
    let mut usage: Vec<PoolUsage> = Vec::new();
    for pool in pools {
        let own = blocks.iter().filter(|block| pool.cidr.covers(&block.prefix()));
        usage.push(of_pool(&pool.name, pool.cidr, own, &world.reserved));
    }
    if names.is_empty() {
        let orphans: Vec<&Block> = blocks.iter().filter(|block| world.pool_of(block.prefix()).is_none()).collect();
        if let Some(everything) = Prefix::new(Address::lowest(Family::V4), 0).filter(|_| !orphans.is_empty()) {
            let mut orphaned = of_pool("", everything, orphans.into_iter(), &AddressSet::from_ranges([]));
            (orphaned.capacity, orphaned.free) = (Count::ZERO, Count::ZERO);
            usage.push(orphaned);
        }
    }
    Ok(usage)
}

fn of_pool<'b>(name: &str, cidr: Prefix, blocks: impl Iterator<Item = &'b Block>, reserved: &AddressSet) -> PoolUsage {
    let blocks: Vec<BlockUsage> = blocks.map(|block| of_block(block, reserved)).collect();
    let sum =
        |part: &dyn Fn(&BlockUsage) -> usize| Count::from(blocks.iter().map(|block| part(block) as u128).sum::<u128>());
    let capacity = cidr.range().len();
    let in_use = sum(&|block| block.in_use as usize);
    let held_and_reserved = sum(&|block| block.held.iter().filter(|held| reserved.contains(held.address)).count());
    let all_reserved = reserved.intersection(&AddressSet::from_ranges([cidr.range()])).count(cidr.family());
    let reserved = all_reserved.checked_sub(held_and_reserved).unwrap_or(Count::ZERO);
    let free = capacity.checked_sub(in_use).and_then(|left| left.checked_sub(reserved)).unwrap_or(Count::ZERO);
    PoolUsage {
        pool: name.to_owned(),
        cidr,
        capacity,
        in_use,
        cooling: sum(&|block| block.cooling as usize),
        borrowed: sum(&|block| block.held.iter().filter(|held| is_borrowed(block.holder.as_ref(), held)).count()),
        reserved,
        free,
        blocks,
    }
}

/// Whether another node than the block's host uses an address (`calico.md` 2.7).
fn is_borrowed(holder: Option<&Holder>, held: &super::Held) -> bool {
    match (holder, held.active.get("node")) {
        (Some(Holder::Host(host)), Some(node)) => host != node,
        _ => false,
    }
}

fn of_block(block: &Block, reserved: &AddressSet) -> BlockUsage {
    let held = block.all_held();
    let free_and_unreserved = block.free_unless(&mut |address| reserved.contains(address));
    BlockUsage {
        block: block.prefix(),
        holder: block.holder(),
        capacity: block.size(),
        in_use: block.size().saturating_sub(block.free()),
        cooling: block.cooling(),
        reserved: block.free().saturating_sub(free_and_unreserved),
        free: free_and_unreserved,
        held,
    }
}
