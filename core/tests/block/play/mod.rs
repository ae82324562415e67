//! What the tests of the block strategy share: a small world to play in, invariants, and scenario files.
#![allow(dead_code, unreachable_pub, reason = "each test uses its part of this module")]

pub mod invariants;
pub mod operation;
pub mod script;
pub mod stores;
pub mod world;
