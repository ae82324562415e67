//! Storage adapters: each lends the core versioned keys with compare-and-swap ([`plat_core::store::Store`]).
//!
//! An adapter knows the key layout and the encoding of its backend, and no rule of allocation. Every adapter passes
//! the suite in [`conformance`].

pub mod clock;
pub mod conformance;
mod counted;
#[cfg(target_os = "linux")]
pub mod directory;
pub mod faulty;
pub mod files;
mod kept;
#[cfg(target_os = "linux")]
mod lock;
pub mod memory;
pub mod recording;
#[cfg(target_os = "linux")]
pub mod sqlite;
mod structured;
pub mod trouble;
