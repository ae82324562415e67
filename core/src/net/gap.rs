//! Finding a free address among held ones by counting.

use super::{Address, Count, Range};

/// The lowest address of `within` that is not held; none if all are. `held(range)` says how many addresses of a range
/// are held, as a store can without visiting them ([`crate::store::Store::count`]).
///
/// It counts runs of 1, 2, 4, ... addresses from the start on until one is not full, then halves that run. So a gap
/// that has `n` held addresses below it costs about 2 log2(n) counts, and never more than 257.
///
/// Counts that contradict each other (a store that changes meanwhile, or one that lies) cost no more; the address is
/// then one of `within`, perhaps a held one. A caller that takes it says so in its commit (expected: absent).
///
/// Errors: those of `held`, at once.
pub fn first_free<E>(within: Range, mut held: impl FnMut(Range) -> Result<u128, E>) -> Result<Option<Address>, E> {
    let mut start = within.first();
    let mut size: u128 = 1;
    let run = loop {
        let run = Range::between(start, end_of_run(start, size, within.last()));
        if !is_full(run, &mut held)? {
            break run;
        }
        match run.last().next() {
            Some(next) if next <= within.last() => start = next,
            _ => return Ok(None),
        }
        size = size.saturating_mul(2);
    };
    let (mut low, mut high) = (run.first(), run.last());
    // A gap lies in low..=high, and none in the run below low.
    while low < high {
        let size = (high.bits() - low.bits()).div_ceil(2);
        let half = Range::between(low, end_of_run(low, size, high));
        if is_full(half, &mut held)? {
            low = half.last().next().unwrap_or(high);
        } else {
            high = half.last();
        }
    }
    Ok(Some(low))
}

/// The last of `size` addresses from `start` on, or `last` if that comes earlier.
fn end_of_run(start: Address, size: u128, last: Address) -> Address {
    start.checked_add(size.saturating_sub(1)).unwrap_or(last).min(last)
}

/// Whether as many addresses are held as there are.
fn is_full<E>(run: Range, held: &mut impl FnMut(Range) -> Result<u128, E>) -> Result<bool, E> {
    Ok(Count::from(held(run)?) >= run.len())
}
