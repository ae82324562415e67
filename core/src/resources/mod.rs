//! What administrators write: pools, reservations, configuration, nodes and namespaces (`calico.md` 1.1 to 1.3).
//!
//! Their forms, defaults and rules, and the operations on them. It does not know how addresses are chosen.

mod document;
mod operations;
mod rules;
mod stored;

pub use document::{Kind, Problem, nearest};
pub use operations::{Done, Mode, Object, Outcome, apply, apply_bytes, delete, get, list};

pub use stored::{
    ADDRESSES_ANNOTATION, BLOCKS_PER_HOST_DEFAULT, Configuration, PRIORITY_ANNOTATION, Pool, Reservation,
    block_length_default, labels_of,
};

use crate::network::encode;

/// What the keys of all pools begin with.
pub const POOLS_PREFIX: &str = "pool/";
/// What the keys of all reservations begin with.
pub const RESERVATIONS_PREFIX: &str = "reservation/";
/// The key of the configuration.
pub const CONFIG_KEY: &str = "config";
/// What the keys of all nodes begin with.
pub const NODES_PREFIX: &str = "node/";
/// What the keys of all namespaces begin with.
pub const NAMESPACES_PREFIX: &str = "namespace/";

/// The key of a pool.
pub fn pool_key(name: &str) -> String {
    format!("{POOLS_PREFIX}{}", encode(name))
}

/// The key of a reservation.
pub fn reservation_key(name: &str) -> String {
    format!("{RESERVATIONS_PREFIX}{}", encode(name))
}

/// The key of a node, whose labels node selectors see.
pub fn node_key(name: &str) -> String {
    format!("{NODES_PREFIX}{}", encode(name))
}

/// The key of a namespace, whose labels namespace selectors see.
pub fn namespace_key(name: &str) -> String {
    format!("{NAMESPACES_PREFIX}{}", encode(name))
}
