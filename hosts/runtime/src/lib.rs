//! Embeds the core component and calls it.
//!
//! It keeps the limits of a call and turns the contract's types into plat-core's and back, so that a caller cannot
//! tell this core from plat-core compiled natively. It may not decide anything about addresses.

mod config;
mod convert;
mod embedded;
mod imports;
mod instance;
mod limits;
mod operations;
#[cfg(test)]
mod tests;
#[path = "../../../core/component/src/typed.rs"]
mod typed;

pub use embedded::CORE_SHA256;
pub use instance::{CallError, Core, Instance};
pub use limits::{FUEL_PER_REQUEST, HOST_CALL_BYTES_MAX, INPUT_BYTES_MAX, ITEMS_MAX, MEMORY_BYTES_MAX, REQUESTS_MAX};
pub use operations::Settings;

/// What wasmtime makes from `wit/`.
#[allow(
    missing_docs,
    unused_qualifications,
    unreachable_pub,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::allow_attributes_without_reason,
    reason = "generated code"
)]
mod bindings {
    wasmtime::component::bindgen!({ world: "core", path: "../../wit" });
}
