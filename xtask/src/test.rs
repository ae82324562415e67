//! `cargo xtask test`: sets up what is missing, then runs every check and every test.

use crate::steps::{self, Step, cargo, output_of, run};
use anyhow::{Context as _, Result, bail};
use plat_tests::peers;
use std::path::PathBuf;
use std::process::Command;

/// The release of cargo-deny that checks licences and sources.
const CARGO_DENY_VERSION: &str = "0.20.2";

/// What the CNI plugin may never link, by the beginnings of package names: an async runtime, TLS, a compiler.
const FORBIDDEN_IN_PLUGIN: &[&str] =
    &["tokio", "async-std", "smol", "rustls", "openssl", "native-tls", "cranelift-codegen"];

/// Runs all.
///
/// # Errors
/// The first check that failed.
pub(crate) fn run_tests() -> Result<()> {
    let steps: &[Step] = &[
        ("set-up", crate::setup::run),
        ("format", format),
        ("build plat-ipam", build_plugin),
        ("what plat-ipam links", check_links),
        ("lints", lint),
        ("licences and sources", deny),
        ("tests", test),
        ("the component is reproducible", reproducible),
    ];
    steps::run_all(steps)
}

fn format() -> Result<()> {
    run(cargo().args(["fmt", "--all", "--check"]))
}

/// Builds the plugin as it is shipped.
///
/// # Errors
/// If cargo fails.
pub(crate) fn build_plugin() -> Result<()> {
    run(cargo().args(["build", "--locked", "--package", "plat-ipam", "--release", "--target", peers::RELEASE_TARGET]))?;
    println!("{}", output_of(Command::new(plugin()).arg("--version"))?.trim_end());
    Ok(())
}

/// Where the plugin lies that [`build_plugin`] has built.
pub(crate) fn plugin() -> PathBuf {
    steps::target_dir().join(peers::RELEASE_TARGET).join("release").join("plat-ipam")
}

fn check_links() -> Result<()> {
    let tree = output_of(cargo().args([
        "tree",
        "--locked",
        "--package",
        "plat-ipam",
        "--edges",
        "normal",
        "--target",
        peers::RELEASE_TARGET,
        "--prefix",
        "none",
        "--format",
        "{p}",
    ]))?;
    let found: Vec<&str> =
        tree.lines().filter(|line| FORBIDDEN_IN_PLUGIN.iter().any(|name| line.starts_with(name))).collect();
    if !found.is_empty() {
        bail!("plat-ipam links what it may not: {}", found.join(", "));
    }
    println!("{} packages, none of {}", tree.lines().count(), FORBIDDEN_IN_PLUGIN.join(", "));
    Ok(())
}

fn lint() -> Result<()> {
    run(cargo().args([
        "clippy",
        "--locked",
        "--workspace",
        "--exclude",
        "plat-precompile",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]))
}

/// cargo-deny: the one on PATH, else the one in the cache, which is built if need be.
fn cargo_deny() -> Result<PathBuf> {
    if let Ok(path) = peers::on_path("cargo-deny", "cargo-deny") {
        return Ok(path);
    }
    let folder = peers::cache().join(format!("cargo-deny-{CARGO_DENY_VERSION}"));
    let path = folder.join("bin/cargo-deny");
    if !path.is_file() {
        // A debug build: it runs for a second and takes minutes less to build.
        run(cargo()
            .args(["install", "cargo-deny", "--version", CARGO_DENY_VERSION, "--locked", "--debug", "--root"])
            .arg(&folder)
            .arg("--target-dir")
            .arg(steps::target_dir().join("cargo-deny")))
        .context("cargo-deny could not be built")?;
        // Some hundred megabytes that nobody needs again.
        let _ = std::fs::remove_dir_all(steps::target_dir().join("cargo-deny"));
    }
    Ok(path)
}

fn deny() -> Result<()> {
    let deny = cargo_deny()?;
    let check = |what: &[&str]| {
        let mut command = Command::new(&deny);
        command.current_dir(steps::root()).args(["--all-features", "check", "--hide-inclusion-graph"]).args(what);
        command
    };
    run(&mut check(&["bans", "licenses", "sources"]))?;
    // The list of advisories lives in a git repository, which not every machine reaches.
    let output = check(&["advisories"]).output().context("cargo-deny could not be started")?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() {
        println!("advisories ok");
    } else if text.contains("failed to fetch advisory database") {
        println!("SKIPPED: advisories: the advisory database could not be fetched");
    } else {
        bail!("cargo deny check advisories failed:\n{text}");
    }
    Ok(())
}

fn test() -> Result<()> {
    run(cargo()
        .args(["test", "--locked", "--workspace", "--exclude", "plat-precompile", "--exclude", "plat-component"])
        .args(["--no-fail-fast"])
        .env(peers::PLAT_IPAM_VARIABLE, plugin()))
}

fn reproducible() -> Result<()> {
    run(cargo().args(["run", "--quiet", "--package", "xtask", "--", "component", "--check-reproducible"]))
}
