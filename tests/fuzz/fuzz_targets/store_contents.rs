#![no_main]
#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "each target uses its own part")]
mod common;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| common::store_contents(bytes));
