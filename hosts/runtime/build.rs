//! Has `plat-precompile` build the component and turn it into code for the target of this build.
//!
//! The tool is run by a Cargo of its own with a target folder of its own, `<target>/tools`: a build dependency would
//! compile Cranelift once for each profile, and for clippy again.

use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let variable = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("cargo did not set {name}"));
    let crate_dir = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let workspace = crate_dir.join("../..");
    let out_dir = PathBuf::from(variable("OUT_DIR"));
    let target = variable("TARGET");

    for input in
        ["core/Cargo.toml", "core/src", "core/component", "wit", "Cargo.toml", "Cargo.lock", "rust-toolchain.toml"]
    {
        println!("cargo::rerun-if-changed={}", workspace.join(input).display());
    }
    for input in ["build.rs", "src/config.rs", "precompile", "tests/components"] {
        println!("cargo::rerun-if-changed={}", crate_dir.join(input).display());
    }
    println!("cargo::rerun-if-env-changed=PLAT_TOOLS_DIR");

    let target_root = target_root(&out_dir, &target);
    // A shared folder spares several checkouts the compilation of Cranelift.
    let tools = std::env::var_os("PLAT_TOOLS_DIR").map_or_else(|| target_root.join("tools"), PathBuf::from);

    let mut command = Command::new(variable("CARGO"));
    clear_outer_build(&mut command);
    command.current_dir(&workspace).args(["run", "--quiet", "--package", "plat-precompile", "--profile", "tools"]);
    if target.split('-').next() != variable("HOST").split('-').next() {
        // Cranelift with every back end, since the code is for another architecture than this one.
        command.args(["--features", "all-arch"]);
    }
    command.arg("--target-dir").arg(tools).arg("--");
    command.arg("--workspace").arg(&workspace).arg("--guest-target-dir").arg(target_root.join("guest"));
    command.arg("--out").arg(&out_dir).args(["--target", &target]);
    command.arg("--fixtures").arg(crate_dir.join("tests/components"));
    let status = command.status().unwrap_or_else(|error| panic!("cannot run cargo: {error}"));
    assert!(status.success(), "plat-precompile failed; its messages stand above");

    // The compiler does not look into what `.incbin` takes in: without this, an incremental build would keep old code.
    let code =
        std::fs::read(out_dir.join("core.native.cwasm")).unwrap_or_else(|error| panic!("core.native.cwasm: {error}"));
    let mut hasher = DefaultHasher::new();
    hasher.write(&code);
    println!("cargo::rustc-env=PLAT_CORE_CODE=0x{:016x}", hasher.finish());
}

/// The target folder of the outer build: the nearest one above OUT_DIR that Cargo marked with CACHEDIR.TAG, or the one
/// above it if that is the folder of a target triple.
fn target_root(out_dir: &Path, target: &str) -> PathBuf {
    let marked = |path: &&Path| path.join("CACHEDIR.TAG").is_file();
    let nearest = out_dir.ancestors().find(marked).or_else(|| out_dir.ancestors().nth(4)).unwrap_or(out_dir);
    match nearest.parent() {
        Some(parent) if nearest.file_name().is_some_and(|name| name == target) => parent.to_path_buf(),
        _ => nearest.to_path_buf(),
    }
}

/// Takes from the environment what the outer Cargo, clippy or the user set for the outer build: the tools and the
/// guest are built the same whatever is built around them, or they would be built again each time.
fn clear_outer_build(command: &mut Command) {
    let kept = ["CARGO_HOME", "CARGO_BUILD_JOBS", "CARGO_TERM_COLOR"];
    let kept_prefixes = ["CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTR", "CARGO_SOURCE_"];
    let dropped = [
        "RUSTC",
        "RUSTC_LINKER",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTDOC",
        "RUSTDOCFLAGS",
        "RUSTFLAGS",
        "TARGET",
        "HOST",
        "PROFILE",
        "OPT_LEVEL",
        "DEBUG",
        "OUT_DIR",
        "MAKEFLAGS",
    ];
    for (name, _) in std::env::vars_os() {
        let Some(name) = name.to_str() else { continue };
        let linker = name.starts_with("CARGO_TARGET_") && name.ends_with("_LINKER");
        let kept = kept.contains(&name) || linker || kept_prefixes.iter().any(|prefix| name.starts_with(prefix));
        if (name.starts_with("CARGO_") || name == "CARGO" || name.starts_with("CLIPPY_") || dropped.contains(&name))
            && !kept
        {
            command.env_remove(name);
        }
    }
}
