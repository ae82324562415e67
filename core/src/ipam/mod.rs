//! The `block` strategy: pools are cut into blocks, hosts hold blocks, addresses are taken from blocks (`calico.md` 2).
//!
//! Typed operations on Calico's objects. An address is granted when the compare-and-swap of its block has succeeded, and
//! at no other moment; affinities and handles are claims and indexes. It knows pools, blocks, affinities and handles,
//! and the protocol between them; it does not know CNI, nor where anything is stored.

mod affinities;
mod assign;
mod choose;
mod claim;
mod desk;
mod explain;
mod owners;
mod release;
mod search;
mod session;
mod specific;
mod types;
mod usage;

pub use explain::text;
pub use types::*;

use crate::clock::Clock;
use crate::net::{Address, Prefix};
use crate::store::Store;

/// What one call may use. Every operation takes a list: the items act as if run in order, each answers for itself, and a
/// failed one leaves the others intact.
pub struct Call<'a> {
    /// The store.
    pub store: &'a mut dyn Store,
    /// The clock; read once.
    pub clock: &'a mut dyn Clock,
    /// Milliseconds that are left for this call.
    pub deadline_ms: u64,
    /// 0 at first; one more each time the host repeats what was [`Error::Contended`].
    pub attempt: u32,
    /// What the call is for, a word or two for the journal: `ADD`, `plat ipam release`.
    pub why: &'a str,
}

/// How many writes a commit must hold for an address, its handle and what belongs to a claim to be written together: two
/// blocks and a handle of a dual-stack request, or a block, two affinities, the kept sequence number and the checks of a
/// new block's ancestors.
const ATOMIC_WRITES_MIN: usize = 16;

/// How the journal names an address: as the keys of the `ranges` strategy do.
fn address_name(address: Address) -> String {
    crate::network::Place::Address(address).to_string()
}

/// Assigns addresses that the core chooses.
pub fn assign(call: &mut Call<'_>, items: &[Assignment]) -> Vec<Granted> {
    assign::assign(call, items)
}

/// Assigns addresses that the caller chooses.
pub fn assign_ip(call: &mut Call<'_>, items: &[Specific]) -> Vec<Result<Grant, Error>> {
    items.iter().map(|item| session::tried(call, |session, attempt| specific::assign(session, item, attempt))).collect()
}

/// Releases addresses. A free one is no error; one that another handle holds, or of another sequence number, is.
pub fn release(call: &mut Call<'_>, items: &[Release]) -> Vec<Result<Released, Error>> {
    release::release(call, items)
}

/// Releases all addresses of each handle, and says which.
///
/// Errors: [`Error::NotFound`] if there is no such handle.
pub fn release_by_handle(call: &mut Call<'_>, handles: &[String]) -> Vec<Result<Vec<Address>, Error>> {
    release::release_by_handle(call, handles)
}

/// The addresses of each handle; none if there is no such handle.
pub fn addresses_by_handle(call: &mut Call<'_>, handles: &[String]) -> Vec<Result<Vec<Held>, Error>> {
    handles
        .iter()
        .map(|handle| session::tried(call, |session, _| owners::addresses_by_handle(session, handle)))
        .collect()
}

/// Who holds each address; none where nobody does.
pub fn held(call: &mut Call<'_>, addresses: &[Address]) -> Vec<Result<Option<Held>, Error>> {
    addresses.iter().map(|address| session::tried(call, |session, _| owners::held(session, *address))).collect()
}

/// Changes owner slots.
pub fn set_owner_attributes(call: &mut Call<'_>, items: &[OwnerChange]) -> Vec<Result<(), Error>> {
    items.iter().map(|item| session::tried(call, |session, attempt| owners::change(session, item, attempt))).collect()
}

/// Claims every block of a prefix for a holder, whatever the block limit; says for each block whether it is the holder's.
///
/// Errors: the prefix must lie in an enabled pool and hold a block of it.
pub fn claim_affinities(call: &mut Call<'_>, items: &[(Holder, Prefix)]) -> Vec<Result<Vec<AffinityOutcome>, Error>> {
    items.iter().map(|(holder, cidr)| affinities::claim_all(call, holder, *cidr)).collect()
}

/// Releases affinities. Empty blocks are deleted; others, unless they must be empty, live on without a holder.
pub fn release_affinities(call: &mut Call<'_>, items: &[AffinityRelease]) -> Vec<Result<Vec<AffinityOutcome>, Error>> {
    items.iter().map(|asked| affinities::release_all(call, asked)).collect()
}

/// Sees to it that a host has a block, and says which.
pub fn ensure_block(call: &mut Call<'_>, items: &[BlockDemand]) -> Vec<Result<Prefix, Error>> {
    items
        .iter()
        .map(|BlockDemand { holder, family, pools, edges }| {
            session::tried(call, |session, _| assign::ensure_block(session, holder, *family, pools, edges.as_ref()))?
        })
        .collect()
}

/// Releases everything that a host claims. Addresses stay held.
pub fn remove_host(call: &mut Call<'_>, holders: &[Holder]) -> Vec<Result<Vec<AffinityOutcome>, Error>> {
    let all = |holder: &Holder| AffinityRelease {
        holder: Some(holder.clone()),
        within: None,
        must_be_empty: false,
        sequence: None,
    };
    holders.iter().map(|holder| affinities::release_all(call, &all(holder))).collect()
}

/// What [`assign`] would answer now, without a trace.
pub fn explain(call: &mut Call<'_>, items: &[Assignment]) -> Vec<Granted> {
    assign::explain_each(call, items)
}

/// How full pools and blocks are (`calico.md` 2.13); pools by name or CIDR, all if empty.
pub fn utilization(call: &mut Call<'_>, pools: &[String]) -> Result<Vec<PoolUsage>, Error> {
    session::tried(call, |session, _| usage::utilization(session, pools))
}

/// The lengths that blocks of a family may have (`calico.md` 1.1).
pub fn block_lengths(family: crate::net::Family) -> std::ops::RangeInclusive<u8> {
    search::lengths(family)
}

/// A block of another length than `length` that overlaps a prefix; none if there is none.
pub(crate) fn block_of_other_length(call: &mut Call<'_>, cidr: Prefix, length: u8) -> Result<Option<Prefix>, Error> {
    session::tried(call, |session, _| search::of_other_length(session, cidr, length))
}
