//! Build-time tool: builds the core component and turns it, and small misbehaving components for tests, into native
//! and Pulley code.
//!
//! It is a program of its own, run by `hosts/runtime/build.rs` and by `cargo xtask component`, so that Cranelift is
//! compiled once in one folder, whatever profiles and targets are built afterwards.

mod component;
#[path = "../../src/config.rs"]
mod config;
mod native;

use anyhow::{Context, Result, bail};
use std::path::PathBuf;

const USAGE: &str = "\
usage: plat-precompile --workspace DIR --guest-target-dir DIR --out DIR [--target TRIPLE] [--fixtures DIR] [--locked]

Builds core/component of the workspace and writes into the out folder:
  core.wasm           the component
  core.sha256         its digest in hexadecimal
  core.world          what it imports and exports, as WIT
with --target also
  core.native.cwasm   native code for that target
  core.pulley.cwasm   bytecode for wasmtime's interpreter
and for each *.wat of the fixtures folder NAME.native.cwasm and NAME.pulley.cwasm.";

/// What the command line asks for.
struct Arguments {
    workspace: PathBuf,
    guest_target_dir: PathBuf,
    out: PathBuf,
    target: Option<String>,
    fixtures: Option<PathBuf>,
    locked: bool,
}

fn arguments() -> Result<Arguments> {
    let (mut workspace, mut guest_target_dir, mut out, mut target, mut fixtures) = (None, None, None, None, None);
    let mut locked = false;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if word == "--locked" {
            locked = true;
            continue;
        }
        let mut value = || words.next().with_context(|| format!("{word} needs a value\n\n{USAGE}"));
        match word.as_str() {
            "--workspace" => workspace = Some(PathBuf::from(value()?)),
            "--guest-target-dir" => guest_target_dir = Some(PathBuf::from(value()?)),
            "--out" => out = Some(PathBuf::from(value()?)),
            "--target" => target = Some(value()?),
            "--fixtures" => fixtures = Some(PathBuf::from(value()?)),
            _ => bail!("unknown argument {word}\n\n{USAGE}"),
        }
    }
    let missing = |name: &str| format!("{name} is missing\n\n{USAGE}");
    Ok(Arguments {
        workspace: workspace.with_context(|| missing("--workspace"))?,
        guest_target_dir: guest_target_dir.with_context(|| missing("--guest-target-dir"))?,
        out: out.with_context(|| missing("--out"))?,
        target,
        fixtures,
        locked,
    })
}

fn main() -> Result<()> {
    let arguments = arguments()?;
    std::fs::create_dir_all(&arguments.out).with_context(|| format!("cannot make {}", arguments.out.display()))?;
    let module = component::build_module(&arguments.workspace, &arguments.guest_target_dir, arguments.locked)?;
    let built = component::encode(&module)?;
    write(&arguments.out, "core.wasm", &built.bytes)?;
    write(&arguments.out, "core.sha256", built.sha256.as_bytes())?;
    write(&arguments.out, "core.world", built.world.as_bytes())?;
    if let Some(target) = &arguments.target {
        for (form, compiler) in [("native", native::Compiler::native(target)?), ("pulley", native::Compiler::pulley()?)]
        {
            write(&arguments.out, &format!("core.{form}.cwasm"), &compiler.compile(&built.bytes)?)?;
            for (name, component) in fixtures(arguments.fixtures.as_deref(), &arguments.workspace.join("wit"))? {
                let code = compiler.compile(&component).with_context(|| format!("in the fixture {name}.wat"))?;
                write(&arguments.out, &format!("{name}.{form}.cwasm"), &code)?;
            }
        }
    }
    Ok(())
}

/// The core modules written as text in a folder, as components of the world `core`, by name.
fn fixtures(folder: Option<&std::path::Path>, wit: &std::path::Path) -> Result<Vec<(String, Vec<u8>)>> {
    let Some(folder) = folder else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for file in std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = file?.path();
        if path.extension().is_some_and(|extension| extension == "wat") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            found.push((name, component::wrap(&text, wit)?));
        }
    }
    found.sort();
    Ok(found)
}

/// Writes a file by way of a rename, so that a reader never meets half of it.
fn write(folder: &std::path::Path, name: &str, bytes: &[u8]) -> Result<()> {
    let path = folder.join(name);
    let partial = folder.join(format!(".{name}.{}", std::process::id()));
    std::fs::write(&partial, bytes)
        .and_then(|()| std::fs::rename(&partial, &path))
        .with_context(|| format!("cannot write {}", path.display()))
}
