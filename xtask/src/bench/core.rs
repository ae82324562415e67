//! `cargo xtask bench core` and `cargo xtask bench block`: the allocation core in its three forms. The measuring is done
//! by `tests/benches/core.rs` and `tests/benches/block.rs`.

use super::report::Report;
use super::{Options, machine};
use crate::steps;
use anyhow::{Result, bail};

/// Runs the bench of this name.
///
/// # Errors
/// If it does not build, or if the forms give different answers.
pub(super) fn run(bench: &str, options: &Options) -> Result<()> {
    if options.rounds.is_some() || options.held.is_some() || options.dir.is_some() {
        bail!("bench {bench} knows --quick and --write only");
    }
    let mut report = Report::default();
    report.line(&format!("`{}`: {}.", options.command, machine::described()));
    report.line("");
    let mut cargo = steps::cargo();
    cargo.args(["bench", "--quiet", "--package", "plat-tests", "--bench", bench, "--"]);
    if options.quick {
        cargo.arg("--quick");
    }
    cargo.stderr(std::process::Stdio::inherit());
    for line in steps::output_of(&mut cargo)?.lines() {
        report.line(line);
    }
    if options.write {
        report.write(bench)?;
    }
    Ok(())
}
