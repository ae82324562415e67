//! The component's code as it lies in this binary.

/// The component's SHA-256 in hexadecimal: the same for every host and every system it was built for.
pub const CORE_SHA256: &str = include_str!(concat!(env!("OUT_DIR"), "/core.sha256"));

/// The native code, where it is used in place: page-aligned in the binary's own code section, which the system maps
/// executable when it loads the binary. Nothing is copied, start-up does not grow with the component, and no memory
/// has to be made executable, which hardened services forbid (`MemoryDenyWriteExecute=`).
#[cfg(target_os = "linux")]
pub(crate) mod in_place {
    use std::ptr::NonNull;
    use wasmtime::CustomCodeMemory;

    /// The page size that code is aligned to. On aarch64 kernels may use pages of 64 KiB, and wasmtime's code is laid out for that.
    pub(crate) const ALIGNMENT: usize = if cfg!(target_arch = "aarch64") { 1 << 16 } else { 1 << 12 };

    #[cfg(target_arch = "aarch64")]
    macro_rules! alignment_log2 {
        () => {
            "16"
        };
    }
    #[cfg(not(target_arch = "aarch64"))]
    macro_rules! alignment_log2 {
        () => {
            "12"
        };
    }

    std::arch::global_asm!(
        ".pushsection .text.plat_core,\"ax\",%progbits",
        concat!(".p2align ", alignment_log2!()),
        // Changes with the code, so that the compiler sees a change (build.rs).
        concat!(".set plat_core_code_hash, ", env!("PLAT_CORE_CODE")),
        ".globl plat_core_code_start",
        ".hidden plat_core_code_start",
        "plat_core_code_start:",
        concat!(".incbin \"", env!("OUT_DIR"), "/core.native.cwasm\""),
        ".globl plat_core_code_end",
        ".hidden plat_core_code_end",
        "plat_core_code_end:",
        // What follows must not share the last page: wasmtime takes whole pages for its own.
        concat!(".p2align ", alignment_log2!()),
        ".popsection",
    );

    unsafe extern "C" {
        #[link_name = "plat_core_code_start"]
        static START: u8;
        #[link_name = "plat_core_code_end"]
        static END: u8;
    }

    /// The code.
    pub(crate) fn code() -> NonNull<[u8]> {
        let (start, end) = (&raw const START, &raw const END);
        let start_pointer = NonNull::new(start.cast_mut()).expect("a symbol has an address");
        NonNull::slice_from_raw_parts(start_pointer, end.addr() - start.addr())
    }

    /// Tells wasmtime that the code is executable already.
    pub(crate) struct AlreadyExecutable;

    impl CustomCodeMemory for AlreadyExecutable {
        fn required_alignment(&self) -> usize {
            ALIGNMENT
        }

        fn publish_executable(&self, _: *const u8, _: usize) -> wasmtime::Result<()> {
            Ok(())
        }

        fn unpublish_executable(&self, _: *const u8, _: usize) -> wasmtime::Result<()> {
            Ok(())
        }
    }
}

/// The native code, where it is copied into memory that wasmtime makes executable.
#[cfg(any(test, not(target_os = "linux")))]
pub(crate) static NATIVE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/core.native.cwasm"));

/// The bytecode for wasmtime's interpreter.
#[cfg(feature = "pulley")]
pub(crate) static PULLEY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/core.pulley.cwasm"));
