//! What a figure was measured on.

use crate::steps;
use anyhow::{Context as _, Result};
use std::path::Path;
use std::process::Command;

/// Processor, cores, kernel, load and date, in one line.
pub(super) fn described() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpus = read("/proc/cpuinfo");
    let model = cpus
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name.trim().to_owned()))
        .unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = read("/proc/sys/kernel/osrelease");
    let load = read("/proc/loadavg");
    let date = steps::output_of(Command::new("date").args(["-u", "+%Y-%m-%d"])).unwrap_or_default();
    format!(
        "{model}, {cores} cores, Linux {}, load {} at the start, {}",
        kernel.trim(),
        load.split(' ').next().unwrap_or("unknown"),
        date.trim()
    )
}

/// The kind of file system that a folder lies on.
///
/// # Errors
/// If the folder does not exist.
pub(super) fn file_system(folder: &Path) -> Result<String> {
    let folder = folder.canonicalize().with_context(|| folder.display().to_string())?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").context("/proc/self/mountinfo")?;
    let kind = mounts
        .lines()
        .filter_map(|line| {
            let (mount, source) = line.split_once(" - ")?;
            let point = mount.split(' ').nth(4)?;
            folder.starts_with(point).then(|| (point.len(), source.split(' ').next().unwrap_or("unknown")))
        })
        // Of two mounts on one point the later covers the earlier.
        .max_by_key(|(length, _)| *length);
    Ok(kind.map_or("unknown", |(_, kind)| kind).to_owned())
}
