//! `cargo xtask model`: the interleaving checker with larger scopes and more random walks.

use crate::steps::{cargo, run};
use anyhow::Result;

/// Runs it; figures are printed.
///
/// # Errors
/// If a violation is found.
pub(crate) fn run_model() -> Result<()> {
    run(cargo()
        .args(["test", "--locked", "--package", "plat-model", "--", "--nocapture", "--test-threads", "2"])
        .env("PLAT_MODEL", "large"))
}
