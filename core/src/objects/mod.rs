//! Calico's objects of the `block` strategy as it writes them: blocks, affinities, handles (`calico.md` 1.4, 1.5).
//!
//! This is the one place that makes and reads their keys and values. It knows shapes and the bookkeeping inside one
//! object; it does not know the store, pools or the protocol between objects.

mod affinity;
mod block;
pub mod dialect;
mod handle;
mod holder;
pub mod keys;
mod members;
pub mod time;

pub use affinity::{Affinity, State};
pub use block::{Block, Glance};
pub use handle::Handle;
pub use holder::Holder;
pub use members::Unreadable;

/// The API version of what is written (`docs/formats.md`).
pub(crate) const API_VERSION: &str = "projectcalico.org/v3";

/// A block's name as an object: `10-0-0-0-26`, `fd00-10-96---122` (`calico.md` 1.5).
pub(crate) fn dialect_name(block: crate::net::Prefix) -> String {
    block.to_string().replace(['.', ':', '/'], "-")
}
