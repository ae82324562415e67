//! The core's operations in all orders of their calls to the store.
//!
//! Several clients run operations on one store. A step is one call to the store, answered at once; between two steps of a
//! client any other may act, be cut off, lose a reply, or be refused. A scope says who does what and how much goes wrong,
//! and all its states are visited ([`explore::all`]), or some of a larger one at random ([`explore::walk`]). After every
//! step the store must be sound, and at every end a repair must find all that was left behind ([`ipam`]).
//!
//! It knows the operations and the objects of the core, and calls them natively; it knows no host and no backend.
//!
//! What it leaves out: calls that read several keys are answered from one moment; a stale look shows each block as it was
//! before its last write, not earlier; pools, reservations and configuration do not change while operations run.

pub mod contents;
pub mod explore;
pub mod hash;
pub mod ipam;
pub mod model;
pub mod operation;
pub mod replay;
pub mod scope;
pub mod scopes;
