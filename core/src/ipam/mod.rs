//! The `block` strategy: pools are cut into blocks, hosts hold blocks, addresses are taken from blocks (`calico.md` 2).
//!
//! Typed operations on Calico's objects. An address is granted when the compare-and-swap of its block has succeeded, and
//! at no other moment; affinities and handles are claims and indexes. It knows pools, blocks, affinities and handles,
//! and the protocol between them; it does not know CNI, nor where anything is stored.

mod types;

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

fn unbuilt<T>() -> Result<T, Error> {
    Err(Error::Unavailable("not built yet".into()))
}

/// Assigns addresses that the core chooses.
pub fn assign(_call: &mut Call<'_>, items: &[Assignment]) -> Vec<Granted> {
    items.iter().map(|_| Granted { failed: unbuilt::<()>().err(), ..Granted::default() }).collect()
}

/// Assigns addresses that the caller chooses.
pub fn assign_ip(_call: &mut Call<'_>, items: &[Specific]) -> Vec<Result<Grant, Error>> {
    items.iter().map(|_| unbuilt()).collect()
}

/// Releases addresses. A free one is no error; one that another handle holds, or of another sequence number, is.
pub fn release(_call: &mut Call<'_>, items: &[Release]) -> Vec<Result<Released, Error>> {
    items.iter().map(|_| unbuilt()).collect()
}

/// Releases all addresses of each handle, and says which.
///
/// Errors: [`Error::NotFound`] if there is no such handle.
pub fn release_by_handle(_call: &mut Call<'_>, handles: &[String]) -> Vec<Result<Vec<Address>, Error>> {
    handles.iter().map(|_| unbuilt()).collect()
}

/// The addresses of each handle; none if there is no such handle.
pub fn addresses_by_handle(_call: &mut Call<'_>, handles: &[String]) -> Vec<Result<Vec<Held>, Error>> {
    handles.iter().map(|_| unbuilt()).collect()
}

/// Who holds each address; none where nobody does.
pub fn held(_call: &mut Call<'_>, addresses: &[Address]) -> Vec<Result<Option<Held>, Error>> {
    addresses.iter().map(|_| unbuilt()).collect()
}

/// Changes owner slots.
pub fn set_owner_attributes(_call: &mut Call<'_>, items: &[OwnerChange]) -> Vec<Result<(), Error>> {
    items.iter().map(|_| unbuilt()).collect()
}

/// Claims every block of a prefix for a holder, whatever the block limit; says for each block whether it is the holder's.
pub fn claim_affinities(_call: &mut Call<'_>, items: &[(Holder, Prefix)]) -> Vec<Result<Vec<AffinityOutcome>, Error>> {
    items.iter().map(|_| unbuilt()).collect()
}

/// Releases affinities. Empty blocks are deleted; others, unless they must be empty, live on without a holder.
pub fn release_affinities(_call: &mut Call<'_>, items: &[AffinityRelease]) -> Vec<Result<Vec<AffinityOutcome>, Error>> {
    items.iter().map(|_| unbuilt()).collect()
}

/// Sees to it that a host has a block, and says which.
pub fn ensure_block(_call: &mut Call<'_>, items: &[BlockDemand]) -> Vec<Result<Prefix, Error>> {
    items.iter().map(|_| unbuilt()).collect()
}

/// Releases everything that a host claims. Addresses stay held.
pub fn remove_host(_call: &mut Call<'_>, holders: &[Holder]) -> Vec<Result<Vec<AffinityOutcome>, Error>> {
    holders.iter().map(|_| unbuilt()).collect()
}

/// What [`assign`] would answer now, without a trace.
pub fn explain(_call: &mut Call<'_>, items: &[Assignment]) -> Vec<Granted> {
    items.iter().map(|_| Granted { failed: unbuilt::<()>().err(), ..Granted::default() }).collect()
}

/// How full pools and blocks are (`calico.md` 2.13); pools by name or CIDR, all if empty.
pub fn utilization(_call: &mut Call<'_>, _pools: &[String]) -> Result<Vec<PoolUsage>, Error> {
    unbuilt()
}
