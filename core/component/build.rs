//! Sets the size of the guest's own stack, whichever tool builds the component.
#![allow(clippy::disallowed_methods, reason = "a build script is no part of the core")]

/// The stack of a call inside the guest, in bytes. Rust's default is 1 MiB, which every instance would carry. The
/// deepest user is the JSON parser, which stops at 128 levels.
const STACK_BYTES: u32 = 256 * 1024;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_ARCH").as_deref() == Ok("wasm32") {
        println!("cargo::rustc-link-arg-cdylib=-zstack-size={STACK_BYTES}");
    }
}
