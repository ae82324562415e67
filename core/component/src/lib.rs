//! The component shell: turns the contract's types into plat-core's and back, and calls plat-core.
//!
//! It may not decide anything: what is here could be generated.

mod convert;
mod exports;
mod imports;
mod typed;

/// What wit-bindgen makes from `wit/`.
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
    wit_bindgen::generate!({ world: "core", path: "../../wit" });
}

use bindings::exports::plat::ipam::cni;

struct Component;

impl cni::Guest for Component {
    fn locate(requests: Vec<cni::Request>) -> Vec<cni::Target> {
        requests
            .into_iter()
            .map(|request| convert::target(plat_core::cni::locate(&convert::request(request))))
            .collect()
    }

    fn call(requests: Vec<cni::Request>) -> Vec<cni::Reply> {
        let mut store = imports::HostStore;
        let mut clock = imports::HostClock::default();
        requests
            .into_iter()
            .map(|request| convert::reply(plat_core::cni::call(&convert::request(request), &mut store, &mut clock)))
            .collect()
    }
}

bindings::export!(Component with_types_in bindings);
