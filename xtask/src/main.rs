//! `cargo xtask`: every chore of the project, by name.

mod bench;
mod component;
mod demo;
mod model;
mod setup;
mod steps;
mod test;

use std::process::ExitCode;

/// A chore that was asked for, with its arguments.
type Chore = fn(&[String]) -> anyhow::Result<()>;

/// Name, what it is for, and how it is run.
const CHORES: &[(&str, &str, Chore)] = &[
    ("demo", "from a fresh clone to a visible result", |arguments| none(arguments).and_then(|()| demo::run())),
    ("test", "every check and every test", |arguments| none(arguments).and_then(|()| test::run_tests())),
    ("setup", "install what building and testing need (Debian)", |arguments| {
        none(arguments).and_then(|()| setup::run())
    }),
    ("component", "build the core component; --check-reproducible builds it in another path too", component::run),
    ("model", "explore the block strategy in more orders of its store calls than the tests do", |arguments| {
        none(arguments).and_then(|()| model::run_model())
    }),
    ("bench", "measure plat-ipam beside host-local: bench cni | bench core", bench::run),
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some((name, arguments)) = words.split_first() else {
        eprint!("{}", help());
        return ExitCode::from(2);
    };
    if matches!(name.as_str(), "help" | "--help" | "-h") {
        print!("{}", help());
        return ExitCode::SUCCESS;
    }
    let Some((_, _, chore)) = CHORES.iter().find(|(known, ..)| known == name) else {
        eprint!("there is no chore named {name}\n\n{}", help());
        return ExitCode::from(2);
    };
    match chore(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cargo xtask {name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// For chores without arguments.
fn none(arguments: &[String]) -> anyhow::Result<()> {
    match arguments.first() {
        Some(argument) => anyhow::bail!("unknown argument {argument}"),
        None => Ok(()),
    }
}

fn help() -> String {
    let chores: String = CHORES.iter().map(|(name, purpose, _)| format!("  {name:<10} {purpose}\n")).collect();
    format!("usage: cargo xtask CHORE\n\n{chores}")
}
