//! `cargo xtask bench core`: the allocation core in memory, in its three forms. The measuring is done by
//! `tests/benches/core.rs`.

use super::report::Report;
use super::{Options, machine};
use crate::steps;
use anyhow::{Result, bail};

/// Runs it.
///
/// # Errors
/// If it does not build, or if the forms give different answers.
pub(super) fn run(options: &Options) -> Result<()> {
    if options.rounds.is_some() || options.held.is_some() || options.dir.is_some() {
        bail!("bench core knows --quick and --write only");
    }
    let mut report = Report::default();
    report.line(&format!("`{}`: {}.", options.command, machine::described()));
    report.line("");
    let mut cargo = steps::cargo();
    cargo.args(["bench", "--quiet", "--package", "plat-tests", "--bench", "core", "--"]);
    if options.quick {
        cargo.arg("--quick");
    }
    cargo.stderr(std::process::Stdio::inherit());
    for line in steps::output_of(&mut cargo)?.lines() {
        report.line(line);
    }
    if options.write {
        report.write("core")?;
    }
    Ok(())
}
