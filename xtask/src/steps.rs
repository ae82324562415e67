//! Running programs one after another, with what each is for and how long it took.

use anyhow::{Context as _, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// The folder of the workspace.
pub(crate) fn root() -> &'static Path {
    // xtask lies directly in it.
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// The cargo that runs us.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    // What cargo sets for us would make the inner cargo build other units than the same command by hand.
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name == "CARGO_MANIFEST_DIR") {
            command.env_remove(name);
        }
    }
    command
}

/// The target folder.
pub(crate) fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(path) if !path.is_empty() => root().join(path),
        _ => root().join("target"),
    }
}

/// Runs a program to its end.
///
/// # Errors
/// If it cannot be started or does not succeed; the error has the whole command.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let text = format!("{command:?}");
    let status = command.status().with_context(|| format!("{text} could not be started"))?;
    if !status.success() {
        bail!("{text} ended with {status}");
    }
    Ok(())
}

/// What a program prints.
///
/// # Errors
/// If it cannot be started or does not succeed.
pub(crate) fn output_of(command: &mut Command) -> Result<String> {
    let text = format!("{command:?}");
    let output = command.output().with_context(|| format!("{text} could not be started"))?;
    if !output.status.success() {
        bail!("{text} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// One part of a longer task.
pub(crate) type Step = (&'static str, fn() -> Result<()>);

/// Runs steps in order and says of each how long it took. The first failure ends it.
///
/// # Errors
/// That of the step.
pub(crate) fn run_all(steps: &[Step]) -> Result<()> {
    let start = Instant::now();
    let mut times = Vec::with_capacity(steps.len());
    for (index, (name, step)) in steps.iter().enumerate() {
        println!("\n== {} of {}: {name}", index + 1, steps.len());
        let begun = Instant::now();
        step().with_context(|| format!("the step \"{name}\" failed"))?;
        times.push((name, begun.elapsed()));
    }
    println!("\n== done in {} s", start.elapsed().as_secs());
    for (name, time) in times {
        println!("   {:>5} s  {name}", time.as_secs());
    }
    Ok(())
}
