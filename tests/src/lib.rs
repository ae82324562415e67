//! Shared parts of the tests that cross crates: where the peers are, how a plugin is called, what a store directory
//! looks like afterwards, and what happens when a peer is missing.
//!
//! Nothing here knows an allocation rule.

pub mod call;
pub mod machine;
pub mod peers;
pub mod random;
pub mod skip;
pub mod tree;
