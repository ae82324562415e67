//! The one engine configuration, used where the component is compiled (`plat-precompile`) and where it runs.
//!
//! wasmtime refuses code that was compiled under another configuration than the engine that opens it; so nothing of
//! what stands here can be changed at run time.

use wasmtime::Config;

/// The native stack that a call into the component may use, in bytes. The main thread of a process has 8 MiB, other
/// threads of Rust 2 MiB: a quarter of the smaller leaves room for the host's own calls below and above.
const NATIVE_STACK_BYTES_MAX: usize = 512 * 1024;

/// By how much a memory can grow before it has to move, in bytes. Address space, not memory: small, so that a process
/// under a limit of its address space (`ulimit -v`) can run the component at all.
const MEMORY_GROWTH_RESERVED_BYTES: u64 = 1024 * 1024;

/// The configuration without a target; see [`wasmtime::Config::target`].
pub(crate) fn engine() -> Config {
    let mut config = Config::new();
    config
        .wasm_component_model(true)
        // Component async is not used; without it every call is cheaper.
        .concurrency_support(false)
        // Fuel, not epochs: the same request with the same store uses the same fuel on every machine, so that a
        // budget can be tested, and no thread has to tick in a process that lives for a millisecond.
        .consume_fuel(true)
        .max_wasm_stack(NATIVE_STACK_BYTES_MAX)
        // wasmtime would reserve 4 GiB of address space for a memory to save bounds checks. A host under RLIMIT_AS
        // could not start then, and the checks are not measurable in our calls.
        .memory_reservation(0)
        .memory_reservation_for_growth(MEMORY_GROWTH_RESERVED_BYTES)
        .memory_guard_size(0)
        .guard_before_linear_memory(false)
        // A memory image by memfd costs more system calls than the copy of our few data pages.
        .memory_init_cow(false)
        // The core never unwinds through the host, and its traps are told by kind, not by place.
        .native_unwind_info(false)
        .generate_address_map(false)
        .wasm_backtrace_max_frames(None);
    config
}
