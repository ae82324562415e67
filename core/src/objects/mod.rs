//! Calico's objects of the `block` strategy as it writes them: blocks, affinities, handles (`calico.md` 1.4, 1.5).
//!
//! This is the one place that makes and reads their keys and values. It knows shapes and the bookkeeping inside one
//! object; it does not know the store, pools or the protocol between objects.

mod holder;

pub use holder::Holder;
