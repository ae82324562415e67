//! Finding a free address in a range set, and explaining why there is none.

use super::config::{RangeSet, capacity};
use super::{Call, store_failure};
use crate::cni::failure::Failure;
use crate::limits;
use crate::net::{Address, AddressSet, Count, Range, first_free};
use crate::network::{Keys, Place, Record};
use crate::store::{self, Entry};

/// The parts of a set that may be given out, in the order in which they are tried: after the address last reserved,
/// round through the set, and that address last (`cni.md` B.4). Each range's own gateway and what is excluded are
/// left out.
fn pieces(set: &RangeSet, excluded: &AddressSet, last: Option<Address>) -> Vec<Range> {
    let position = last.and_then(|last| Some((set.ranges.iter().position(|range| range.contains(last))?, last)));
    // Whole ranges in the order of the walk, each as its allowed range and its gateway.
    let mut walk: Vec<(Range, Option<Address>)> = Vec::with_capacity(set.ranges.len() + 1);
    let start = position.map_or(0, |(index, _)| index);
    let (before, after) = set.ranges.split_at(start.min(set.ranges.len()));
    for range in after.iter().chain(before) {
        walk.push((range.range, range.gateway));
    }
    if let Some((_, last)) = position
        && let Some((whole, gateway)) = walk.first().copied()
    {
        let rest = last.next().and_then(|next| Range::new(next, whole.last()));
        walk.remove(0);
        if let Some(rest) = rest {
            walk.insert(0, (rest, gateway));
        }
        if let Some(again) = Range::new(whole.first(), last) {
            walk.push((again, gateway));
        }
    }
    let mut found = Vec::new();
    for (range, gateway) in walk {
        let mut allowed = AddressSet::from(range);
        if let Some(gateway) = gateway.filter(|gateway| range.contains(*gateway)) {
            allowed = allowed.difference(&AddressSet::from(Range::from(gateway)));
        }
        if !excluded.is_empty() {
            allowed = allowed.difference(excluded);
        }
        found.extend_from_slice(allowed.ranges());
    }
    found
}

/// How many addresses of a range are held.
fn held(call: &mut Call<'_>, keys: &Keys, range: Range) -> Result<u64, store::Error> {
    let from = keys.key(&Place::Address(range.first()));
    let until = range.last().next().map(|next| keys.key(&Place::Address(next)));
    call.store.count(&keys.addresses(range.family()), Some(&from), until.as_deref(), true)
}

/// The first free address of a set in the order of the walk; none if all are held.
pub(super) fn first(
    call: &mut Call<'_>,
    set: &RangeSet,
    excluded: &AddressSet,
    last: Option<Address>,
) -> Result<Option<Address>, Failure> {
    let keys = call.keys();
    for piece in pieces(set, excluded, last) {
        let found = first_free(piece, |range| held(call, &keys, range).map(u128::from)).map_err(store_failure)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// The refusal for a set without a free address, with its explanation.
pub(super) fn exhausted(
    call: &mut Call<'_>,
    index: usize,
    set: &RangeSet,
    excluded: &AddressSet,
) -> Result<Failure, Failure> {
    let keys = call.keys();
    let mut lines = Vec::new();
    for range in set.ranges.iter().take(limits::EXPLAINED_RANGES_MAX) {
        let alone = RangeSet { ranges: vec![range.clone()], family: set.family };
        let pieces = pieces(&alone, excluded, None);
        let mut count = 0u64;
        for piece in &pieces {
            count = count.saturating_add(held(call, &keys, *piece).map_err(store_failure)?);
        }
        let room = capacity(&pieces);
        let kept = range.range.len().checked_sub(room);
        let mut line = format!("{range}: {count} of {room} held");
        if let Some(kept) = kept.filter(|kept| *kept > Count::from(0u64)) {
            line.push_str(&format!(", {kept} kept back as gateway or excluded"));
        }
        lines.push(line);
    }
    if set.ranges.len() > lines.len() {
        lines.push(format!("{} more ranges, all held", set.ranges.len() - lines.len()));
    }
    Ok(Failure::internal(format!("no IP addresses available in range set: {set}")).with_details(format!(
        "range set {index} of network {}: {}. Release what dead containers hold (DEL, or GC with the list of live \
         attachments), or enlarge the ranges",
        call.network,
        lines.join("; ")
    )))
}

/// Addresses of a set whose records were written or first seen in an earlier boot of this machine, and have an owner:
/// containers do not outlive a boot, so this is proof that they are gone. At most `max` of them.
pub(super) fn ghosts(call: &mut Call<'_>, set: &RangeSet, max: usize) -> Result<Vec<Entry>, Failure> {
    let Some(current) = call.clock.boot_id() else { return Ok(Vec::new()) };
    let keys = call.keys();
    let prefix = keys.boots();
    let mut from: Option<String> = None;
    let mut found: Vec<String> = Vec::new();
    for _ in 0..=limits::RECLAIM_BOOTS_MAX {
        let page = call.store.scan(&prefix, from.as_deref(), 1, true, true).map_err(store_failure)?;
        let Some(entry) = page.entries.first() else {
            match page.next {
                Some(next) => {
                    from = Some(next);
                    continue;
                }
                None => break,
            }
        };
        let Some(Place::Boot { boot, .. }) = keys.place(&entry.key) else { break };
        if boot != current {
            collect_boot(call, &keys, &boot, set, max, &mut found)?;
            if found.len() >= max {
                break;
            }
        }
        // The key after all of this boot: `0` follows `/`.
        from = Some(format!("{prefix}{}0", crate::network::encode(&boot)));
    }
    let entries = call.read(&found)?;
    Ok(entries
        .into_iter()
        .flatten()
        .filter(|entry| {
            Record::parse(&entry.value)
                .is_some_and(|record| record.container.is_some() && record.boot.is_some_and(|boot| boot != current))
        })
        .collect())
}

/// Address keys of a set's ranges in one boot, up to `max` in all.
fn collect_boot(
    call: &mut Call<'_>,
    keys: &Keys,
    boot: &str,
    set: &RangeSet,
    max: usize,
    found: &mut Vec<String>,
) -> Result<(), Failure> {
    let key = |address| keys.key(&Place::Boot { boot: boot.into(), address });
    for range in set.ranges.iter().map(|range| range.range) {
        let mut from = Some(key(range.first()));
        for _ in 0..limits::SCAN_PAGES_MAX {
            let Some(start) = from.take() else { break };
            let room = max.saturating_sub(found.len());
            if room == 0 {
                return Ok(());
            }
            let limit = u32::try_from(room).unwrap_or(limits::SCAN_ENTRIES).min(limits::SCAN_ENTRIES);
            let page = call.store.scan(&keys.boots(), Some(&start), limit, true, true).map_err(store_failure)?;
            let addresses = page.entries.iter().map_while(|entry| match keys.place(&entry.key) {
                Some(Place::Boot { boot: of, address }) if of == boot && range.contains(address) => Some(address),
                _ => None,
            });
            let before = found.len();
            found.extend(addresses.map(|address| keys.key(&Place::Address(address))));
            let went_on = found.len() - before == page.entries.len();
            from = page.next.filter(|_| went_on);
        }
    }
    Ok(())
}

/// Whether a set has an address that [`ghosts`] would free.
pub(super) fn has_ghost(call: &mut Call<'_>, set: &RangeSet) -> Result<bool, Failure> {
    Ok(!ghosts(call, set, limits::RECLAIM_MAX)?.is_empty())
}
