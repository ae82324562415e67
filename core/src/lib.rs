//! Plat's allocation core: pure Rust that decides on addresses.
//!
//! It knows the CNI protocol, the strategies and the algebra of addresses. It may not know a host: no I/O, no clock,
//! no threads, no randomness; storage and time come in through [`store::Store`] and [`clock::Clock`]. It never panics,
//! whatever the input.
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::unreachable)
)]

pub mod clock;
pub mod cni;
mod hash;
pub mod ipam;
pub mod json;
pub mod limits;
pub mod net;
pub mod network;
pub mod objects;
pub mod resolv;
pub mod resources;
pub mod selector;
pub mod store;
mod strategy;
