//! `cargo xtask bench`: measurements, side by side in one run. Nothing here fails because something is slow.

mod cni;
mod core;
mod figures;
mod machine;
mod process;
mod report;

use anyhow::{Context as _, Result, bail};
use std::path::PathBuf;

const USAGE: &str = "usage: cargo xtask bench cni [--quick] [--rounds N] [--held 0,1000,...] [--dir PATH] [--write]
       cargo xtask bench core|block [--quick] [--write]";

/// What the command line asks for.
#[derive(Debug, Default)]
struct Options {
    /// Fewer rounds: to see whether it works, not for figures to keep.
    quick: bool,
    /// Rounds for each number of held addresses; none: by that number.
    rounds: Option<usize>,
    /// Numbers of held addresses.
    held: Option<Vec<u32>>,
    /// Where the addresses are recorded; none: a temporary folder on disk.
    dir: Option<PathBuf>,
    /// Write the result into docs/performance.md.
    write: bool,
    /// The command line, to be shown with the result.
    command: String,
}

/// Runs the benchmark that the arguments name.
///
/// # Errors
/// If the arguments are wrong, or if a measured call fails: the time of a failure says nothing.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let Some((which, rest)) = arguments.split_first() else { bail!("{USAGE}") };
    let mut options = Options { command: format!("cargo xtask bench {}", arguments.join(" ")), ..Options::default() };
    let mut rest = rest.iter();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().with_context(|| format!("{argument} needs a value\n{USAGE}"));
        match argument.as_str() {
            "--quick" => options.quick = true,
            "--write" => options.write = true,
            "--rounds" => {
                let rounds: usize = value()?.parse().context("--rounds: not a number")?;
                options.rounds = Some(rounds.clamp(1, cni::ROUNDS_MAX));
            }
            "--held" => {
                let held: Result<Vec<u32>, _> = value()?.split(',').map(str::parse).collect();
                let held = held.context("--held: not a list of numbers such as 0,1000")?;
                if held.iter().any(|held| *held > cni::HELD_MAX) {
                    bail!("--held: at most {} addresses", cni::HELD_MAX);
                }
                options.held = Some(held);
            }
            "--dir" => options.dir = Some(value()?.into()),
            other => bail!("unknown argument {other}\n{USAGE}"),
        }
    }
    match which.as_str() {
        "cni" => cni::run(&options),
        "core" | "block" => core::run(which, &options),
        other => bail!("unknown benchmark {other}\n{USAGE}"),
    }
}
