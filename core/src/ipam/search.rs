//! Finding a slice of a pool that no block overlaps, by counting blocks instead of visiting them.
//!
//! Blocks of one length are found by their keys, which are in address order, so that the number of blocks in any part of
//! a pool is one count. Runs of slices that are full are left aside as a whole.

use super::Holder;
use super::session::{Session, Step};
use crate::hash::stable_hash;
use crate::limits::SEARCH_COUNTS_MAX;
use crate::net::{Address, AddressSet, Family, Prefix, Range};
use crate::objects::keys::{block_key, block_of_key, blocks_prefix};
use crate::resources::Pool;

/// The lengths that blocks of a family may have (`calico.md` 1.1).
pub(super) fn lengths(family: Family) -> std::ops::RangeInclusive<u8> {
    match family {
        Family::V4 => 20..=32,
        Family::V6 => 116..=128,
    }
}

/// What a search found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// No block overlaps this one.
    Slice(Prefix),
    /// There is none.
    Full,
    /// There may be one, but not within the bounds of one call.
    GivenUp,
}

/// The slices of a pool that are as long as its blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slices {
    first: Address,
    length: u8,
    /// The index of the last slice.
    last: u128,
}

impl Slices {
    pub(super) fn of(pool: &Pool) -> Self {
        Self::between(pool.cidr, pool.block_length)
    }

    /// The slices of a prefix. A prefix that is longer than the blocks has one, the block around it.
    pub(super) fn between(cidr: Prefix, length: u8) -> Self {
        let bits = length.saturating_sub(cidr.length());
        let last = 1u128.checked_shl(u32::from(bits)).map_or(u128::MAX, |count| count - 1);
        Self { first: cidr.first(), length, last }
    }

    fn host_bits(&self) -> u32 {
        u32::from(self.first.family().bits().saturating_sub(self.length))
    }

    pub(super) fn nth(&self, index: u128) -> Option<Prefix> {
        let distance = index.checked_shl(self.host_bits()).filter(|distance| distance >> self.host_bits() == index)?;
        Prefix::new(Prefix::new(self.first.checked_add(distance)?, self.length)?.network(), self.length)
    }

    /// The index of the slice that contains an address of the pool.
    fn index(&self, address: Address) -> u128 {
        address.bits().saturating_sub(self.first.bits()).checked_shr(self.host_bits()).unwrap_or_default()
    }

    /// Where the search of a host begins, so that hosts do not meet (`calico.md` 2.4: a stable place for each host).
    pub(super) fn start(&self, holder: &Holder) -> u128 {
        let hash = u128::from(stable_hash(holder.name()));
        match self.last.checked_add(1) {
            Some(count) => hash % count,
            None => hash,
        }
    }

    /// The runs of slices that are not wholly reserved, as first and last index, in order.
    fn unreserved(&self, reserved: &AddressSet) -> Vec<(u128, u128)> {
        let whole = 1u128.checked_shl(self.host_bits()).unwrap_or_default();
        let (Some(first), Some(last)) = (self.nth(0), self.nth(self.last)) else { return Vec::new() };
        let Some(pool) = Range::new(first.first(), last.last()) else { return Vec::new() };
        let mut runs = Vec::new();
        let mut next = 0u128;
        for range in reserved.intersection(&AddressSet::from_ranges([pool])).ranges() {
            let from = range.first().bits() - self.first.bits();
            let until = (range.last().bits() - self.first.bits()).saturating_add(1);
            let (Some(first), Some(end)) = (from.checked_add(whole - 1).map(|at| at / whole), until.checked_div(whole))
            else {
                continue;
            };
            if first < end {
                if next < first {
                    runs.push((next, first - 1));
                }
                next = next.max(end);
            }
        }
        if next <= self.last {
            runs.push((next, self.last));
        }
        runs
    }
}

/// One search in one pool.
struct Search<'x, 's, 'a> {
    session: &'x mut Session<'s, 'a>,
    slices: Slices,
    family: Family,
    /// Other lengths of which there are blocks in or around the pool.
    others: Vec<u8>,
    counts_left: u32,
}

/// Finds a slice of the pool that no block overlaps and that is not wholly reserved, nor in `tried`.
pub(super) fn find_slice(
    session: &mut Session<'_, '_>,
    pool: &Pool,
    holder: &Holder,
    reserved: &AddressSet,
    tried: &[Prefix],
) -> Step<Found> {
    let slices = Slices::of(pool);
    let family = pool.cidr.family();
    let avoided = reserved.union(&AddressSet::from_ranges(tried.iter().map(|block| block.range()).collect::<Vec<_>>()));
    let runs = slices.unreserved(&avoided);
    let mut search = Search { session, slices, family, others: Vec::new(), counts_left: SEARCH_COUNTS_MAX };
    // A look: as many blocks as slices. A full pool costs no more.
    let room: u128 = runs.iter().map(|(first, last)| (last - first).saturating_add(1)).fold(0, u128::saturating_add);
    let held = search.count(slices.length, 0, slices.last)?;
    if room == 0 || (held == slices.last.saturating_add(1) && slices.last < u128::MAX) {
        return Ok(Found::Full);
    }
    let whole_family = search.session.count_all(&format!("block/{}/", family.key_name()))?;
    let same = search.session.count_all(&blocks_prefix(family, slices.length))?;
    if whole_family > same {
        search.others = search.other_lengths(pool.cidr)?;
    }
    let start = slices.start(holder);
    // From the start to the end, then from the beginning to the start.
    for (first, last) in [(Some(start), slices.last), (start.checked_sub(1).map(|_| 0), start.saturating_sub(1))] {
        let mut next = first;
        while let Some(from) = next.filter(|from| *from <= last) {
            // A block that is longer than a slice and begins before the run covers it.
            if let Some(end) = search.end_of_block_around(from)? {
                next = end.checked_add(1);
                continue;
            }
            let until = end_of_run(from, last, from == start);
            if let Some(index) = search.descend(from, until, &runs)? {
                return Ok(slices.nth(index).map_or(Found::Full, Found::Slice));
            }
            if search.counts_left == 0 {
                return Ok(Found::GivenUp);
            }
            next = until.checked_add(1);
        }
    }
    Ok(Found::Full)
}

/// The last slice of the longest run from `from` on that lies where a block of its length could: no block reaches into
/// it or out of it then. From the start of a search on they are 1, 2, 4, ... slices, so that a slice near the start costs
/// little.
fn end_of_run(from: u128, last: u128, is_first: bool) -> u128 {
    if is_first {
        return from;
    }
    let mut bits = from.trailing_zeros().min(u128::BITS - 1);
    loop {
        let end = from.saturating_add((1u128 << bits) - 1);
        if end <= last || bits == 0 {
            return end;
        }
        bits -= 1;
    }
}

/// The first slice of a run that is not to be avoided.
fn first_of(runs: &[(u128, u128)], first: u128, last: u128) -> Option<u128> {
    let next = runs.get(runs.partition_point(|(_, end)| *end < first))?;
    let index = next.0.max(first);
    (index <= last).then_some(index)
}

/// How many blocks of a length begin between two addresses, both included.
pub(super) fn count_blocks(session: &mut Session<'_, '_>, length: u8, first: Address, last: Address) -> Step<u64> {
    let prefix = blocks_prefix(first.family(), length);
    let (Some(from), Some(until)) = (Prefix::new(first, length), Prefix::new(last, length)) else { return Ok(0) };
    // A key's last digit is followed by nothing, so that one more digit comes right after the key.
    let until = format!("{}0", block_key(Prefix::new(until.network(), length).unwrap_or(until)));
    let mut from_key = block_key(Prefix::new(from.network(), length).unwrap_or(from));
    if from.network() != first {
        from_key.push('0');
    }
    session.count(&prefix, &from_key, &until)
}

impl Search<'_, '_, '_> {
    /// How many blocks of a length begin in a run of slices.
    fn count(&mut self, length: u8, first: u128, last: u128) -> Step<u128> {
        self.counts_left = self.counts_left.saturating_sub(1);
        let (Some(first), Some(last)) = (self.slices.nth(first), self.slices.nth(last)) else { return Ok(0) };
        Ok(count_blocks(self.session, length, first.first(), last.last())?.into())
    }

    /// The lengths other than the pool's of which blocks lie in the pool or around it.
    fn other_lengths(&mut self, cidr: Prefix) -> Step<Vec<u8>> {
        let mut others = Vec::new();
        for length in lengths(self.family).filter(|length| *length != self.slices.length) {
            let first = Prefix::new(cidr.first(), length).map_or(cidr.first(), |around| around.network());
            self.counts_left = self.counts_left.saturating_sub(1);
            if count_blocks(self.session, length, first, cidr.last())? > 0 {
                others.push(length);
            }
        }
        Ok(others)
    }

    /// The first slice of a run that no block overlaps and that lies in `runs`. The run lies where a block of its length
    /// could.
    fn descend(&mut self, first: u128, last: u128, runs: &[(u128, u128)]) -> Step<Option<u128>> {
        let mut stack = vec![(first, last)];
        while let Some((first, last)) = stack.pop() {
            let Some(index) = first_of(runs, first, last) else { continue };
            if self.counts_left == 0 {
                return Ok(None);
            }
            let size = (last - first).saturating_add(1);
            let (least, any) = self.covered(first, last)?;
            if !any {
                return Ok(Some(index));
            }
            if least >= size || size == 1 {
                continue;
            }
            let middle = first + (last - first) / 2;
            stack.push((middle + 1, last));
            stack.push((first, middle));
        }
        Ok(None)
    }

    /// How many slices of a run are overlapped at least, by blocks that begin in it, and whether any is.
    fn covered(&mut self, first: u128, last: u128) -> Step<(u128, bool)> {
        let mut least = self.count(self.slices.length, first, last)?;
        let mut any = least > 0;
        // Addresses in blocks that are shorter than a slice; several may lie in one slice.
        let mut small = 0u128;
        for length in self.others.clone() {
            let count = self.count(length, first, last)?;
            any |= count > 0;
            if length < self.slices.length {
                least = least.saturating_add(count << u32::from(self.slices.length - length));
            } else {
                small = small.saturating_add(count << u32::from(self.family.bits() - length));
            }
        }
        Ok((least.saturating_add(small.div_ceil(1 << self.slices.host_bits())), any))
    }

    /// The last slice of the pool that a block covers which is longer than a slice, and begins before this one and covers
    /// it too.
    fn end_of_block_around(&mut self, index: u128) -> Step<Option<u128>> {
        let Some(slice) = self.slices.nth(index) else { return Ok(None) };
        for length in self.others.clone() {
            if length >= self.slices.length {
                continue;
            }
            let Some(around) = Prefix::new(slice.first(), length) else { continue };
            if around.first() == slice.first() {
                continue;
            }
            self.counts_left = self.counts_left.saturating_sub(1);
            if count_blocks(self.session, length, around.first(), around.first())? > 0 {
                return Ok(Some(self.slices.index(around.last()).min(self.slices.last)));
            }
        }
        Ok(None)
    }
}

/// A block that overlaps this one and is not it: none may (`design`: free means overlaps nothing, of whatever size).
/// Read fresh after a block was created and before anything is granted from it.
pub(super) fn overlapping(session: &mut Session<'_, '_>, block: Prefix) -> Step<Option<Prefix>> {
    let family = block.family();
    let around: Vec<Prefix> = lengths(family)
        .filter(|length| *length < block.length())
        .filter_map(|length| Prefix::new(Prefix::new(block.first(), length)?.network(), length))
        .collect();
    let keys: Vec<String> = around.iter().map(|prefix| block_key(*prefix)).collect();
    let found = session.read(&keys, true)?;
    if let Some((prefix, _)) = around.iter().zip(&found).find(|(_, entry)| entry.is_some()) {
        return Ok(Some(*prefix));
    }
    for length in lengths(family).filter(|length| *length > block.length()) {
        if count_blocks(session, length, block.first(), block.last())? > 0 {
            let Some(first) = Prefix::new(block.first(), length) else { continue };
            let page = session.page(&blocks_prefix(family, length), &block_key(first), 1)?;
            // That there is one is known; the page, which may lag, tells which.
            let which = page.entries.first().and_then(|entry| block_of_key(&entry.key));
            return Ok(Some(which.filter(|found| block.covers(found)).unwrap_or(first)));
        }
    }
    Ok(None)
}

/// A block that overlaps a prefix and has another length than `length`.
pub(super) fn of_other_length(session: &mut Session<'_, '_>, cidr: Prefix, length: u8) -> Step<Option<Prefix>> {
    for other in lengths(cidr.family()).filter(|other| *other != length) {
        let around = Prefix::new(cidr.first(), other).map_or(cidr.first(), |around| around.network());
        if count_blocks(session, other, around, cidr.last())? == 0 {
            continue;
        }
        let from = Prefix::new(around, other).map(block_key).unwrap_or_default();
        let page = session.page(&blocks_prefix(cidr.family(), other), &from, 1)?;
        if let Some(block) = page.entries.first().and_then(|entry| block_of_key(&entry.key)) {
            return Ok(Some(block));
        }
    }
    Ok(None)
}
