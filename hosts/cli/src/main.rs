//! `plat`, the admin tool: pools, reservations and configuration as files, and what became of the addresses.
//!
//! It reads files, opens stores and prints. It may not decide anything about addresses: that is the core component's,
//! which it calls by the same contract as every other host.

mod directory;
mod ipam;
mod resources;
mod state;
mod store;
mod table;
mod yaml;

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Administers pools, blocks and addresses of the Plat IP address manager.
///
/// Works on a store without any daemon. Exit status: 0 done, 1 refused or failed, 2 wrong usage.
#[derive(Parser)]
#[command(name = "plat", version = version_text(), max_term_width = 100)]
struct Arguments {
    /// The store: "sqlite" (which is sqlite:/var/lib/plat/ipam.db), "sqlite:PATH", or "dir:PATH" for the dataDir of
    /// host-local.
    #[arg(long, global = true, env = "PLAT_STORE", value_name = "STORE")]
    store: Option<String>,
    #[command(subcommand)]
    command: Command,
}

fn version_text() -> &'static str {
    // Leaked once, since clap wants a text that lives as long as the program.
    Box::leak(format!("{} (core {})", env!("CARGO_PKG_VERSION"), plat_runtime::CORE_SHA256).into_boxed_str())
}

/// How an answer is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// Columns for people.
    #[default]
    Table,
    /// More columns.
    Wide,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// KIND/NAME, a line each.
    Name,
}

#[derive(Subcommand)]
enum Command {
    /// Makes or changes resources.
    Apply(resources::Files),
    /// Makes resources; one that exists is refused.
    Create(resources::Files),
    /// Shows resources.
    #[command(alias = "list")]
    Get(resources::Get),
    /// Deletes resources.
    Delete(resources::Delete),
    /// Looks at addresses, explains and releases them; configures.
    #[command(subcommand)]
    Ipam(ipam::Command),
    /// Prints the version, the digest of the allocation core and the stores.
    Version,
    /// Prints a completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Prints the manual page, or writes all of them into a folder.
    Man {
        /// The folder.
        folder: Option<PathBuf>,
    },
}

/// The exit status of a wrong usage, as clap has it.
const USAGE: u8 = 2;

/// A wrong usage that clap cannot see.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // A reader that has seen enough is no failure worth a word.
            if !is_closed_pipe(&error) {
                // If standard error is closed, nobody is there to be told.
                let _ = writeln!(std::io::stderr(), "plat: {error:#}");
            }
            if error.is::<Usage>() { ExitCode::from(USAGE) } else { ExitCode::FAILURE }
        }
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Whether all was done.
fn run(arguments: &Arguments) -> Result<bool> {
    let store = arguments.store.as_deref();
    match &arguments.command {
        Command::Apply(files) => resources::apply(store, files, plat_core::resources::Mode::Apply),
        Command::Create(files) => resources::apply(store, files, plat_core::resources::Mode::Create),
        Command::Get(get) => resources::get(store, get),
        Command::Delete(delete) => resources::delete(store, delete),
        Command::Ipam(command) => ipam::run(store, command),
        Command::Version => {
            let version = env!("CARGO_PKG_VERSION");
            print(&format!(
                "plat {version}\nallocation core: sha256 {}\nstores: {}\n",
                plat_runtime::CORE_SHA256,
                store::STORES.join(", ")
            ))?;
            Ok(true)
        }
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Arguments::command(), "plat", &mut script);
            print(&String::from_utf8_lossy(&script))?;
            Ok(true)
        }
        Command::Man { folder: None } => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Arguments::command()).render(&mut page)?;
            print(&String::from_utf8_lossy(&page))?;
            Ok(true)
        }
        Command::Man { folder: Some(folder) } => {
            std::fs::create_dir_all(folder)?;
            clap_mangen::generate_to(Arguments::command(), folder)?;
            Ok(true)
        }
    }
}

/// Prints to standard output.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Prints a warning to standard error.
pub(crate) fn warn(text: &str) {
    // If standard error is closed, nobody is there to be told.
    let _ = writeln!(std::io::stderr(), "warning: {text}");
}

/// Prints what is wrong to standard error.
pub(crate) fn complain(text: &str) {
    // If standard error is closed, nobody is there to be told.
    let _ = writeln!(std::io::stderr(), "error: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All commands and options below a command, as they are written.
    fn words(command: &clap::Command, before: &str, found: &mut Vec<String>) {
        for option in command.get_arguments().filter_map(clap::Arg::get_long) {
            found.push(format!("--{option}"));
        }
        for below in command.get_subcommands() {
            let name = format!("{before} {}", below.get_name());
            if below.get_subcommands().next().is_none() {
                found.push(name.clone());
            }
            words(below, &name, found);
        }
    }

    #[test]
    fn the_guide_names_all_commands_and_options() {
        let guide = include_str!("../../../docs/cli.md");
        let mut found = Vec::new();
        words(&Arguments::command(), "plat", &mut found);
        assert!(found.len() > 20, "{found:?}");
        // Those that have a short form are written so.
        let missing: Vec<&String> = found
            .iter()
            .filter(|word| !["--output", "--filename"].contains(&word.as_str()) && !guide.contains(word.as_str()))
            .collect();
        assert!(missing.is_empty(), "docs/cli.md does not name {missing:?}");
        Arguments::command().debug_assert();
    }
}
