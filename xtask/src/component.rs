//! `cargo xtask component`: builds the core component, and says what it is.

use crate::steps;
use anyhow::{Context as _, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The largest component that we ship. Every host carries it, and the playground loads it over the network.
const COMPONENT_BYTES_MAX: u64 = 1_500_000;

/// The world as it has to be.
const GOLDEN: &str = "core/component/world.golden";

/// Builds and checks it; with `--check-reproducible` once more in another folder.
///
/// # Errors
/// If it does not compile, is too large, has another world than the golden file, or differs between two folders.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let check_reproducible = match arguments {
        [] => false,
        [argument] if argument == "--check-reproducible" => true,
        _ => bail!("usage: cargo xtask component [--check-reproducible]"),
    };
    let out = steps::target_dir().join("plat");
    build(steps::root(), &steps::target_dir().join("guest"), &out)?;
    let component = out.join("core.wasm");
    let (bytes, sha256, world) = (size(&component)?, read(&out.join("core.sha256"))?, read(&out.join("core.world"))?);
    println!("component  {}", component.display());
    println!("size       {bytes} bytes");
    println!("sha256     {sha256}");
    for import in world.lines().filter_map(|line| line.trim().strip_prefix("import ")) {
        println!("import     {}", import.trim_end_matches(';'));
    }
    check_world(&world)?;
    ensure!(bytes <= COMPONENT_BYTES_MAX, "the component has {bytes} bytes; the budget is {COMPONENT_BYTES_MAX}");
    if check_reproducible {
        let other = in_another_folder()?;
        ensure!(other == sha256, "the component is not reproducible: built in another folder, its sha256 is {other}");
        println!("reproducible: a copy of the tree in a deeper folder gives the same sha256");
    }
    Ok(())
}

/// Runs plat-precompile on a tree. The tool itself is always this tree's, and shared with `hosts/runtime/build.rs`.
fn build(tree: &Path, guest_target_dir: &Path, out: &Path) -> Result<()> {
    let tools = std::env::var_os("PLAT_TOOLS_DIR").map_or_else(|| steps::target_dir().join("tools"), PathBuf::from);
    let mut command = steps::cargo();
    // As in build.rs, or the tool would be compiled once for each.
    command.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    command.args(["run", "--quiet", "--locked", "--package", "plat-precompile", "--profile", "tools", "--target-dir"]);
    command.arg(tools).args(["--", "--locked", "--workspace"]).arg(tree);
    command.arg("--guest-target-dir").arg(guest_target_dir).arg("--out").arg(out);
    steps::run(&mut command)
}

/// Builds the component from a copy of the tree, under a path of another length and depth, and gives its digest. What
/// was compiled there from the registry is kept from run to run; our own crates are new each time.
fn in_another_folder() -> Result<String> {
    let base = steps::target_dir().join("reproducible");
    let tree = base.join("a/deeper/folder");
    if tree.exists() {
        std::fs::remove_dir_all(&tree).with_context(|| format!("cannot empty {}", tree.display()))?;
    }
    let mut list = Command::new("git");
    list.current_dir(steps::root()).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    for name in steps::output_of(&mut list)?.split_terminator('\0') {
        let (from, to) = (steps::root().join(name), tree.join(name));
        // A file that git knows may have been deleted from the tree.
        if from.is_file() {
            let folder = to.parent().unwrap_or(&tree);
            std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
            std::fs::copy(&from, &to).with_context(|| format!("cannot copy {name}"))?;
        }
    }
    build(&tree, &base.join("guest"), &base.join("out"))?;
    read(&base.join("out/core.sha256"))
}

fn check_world(world: &str) -> Result<()> {
    let golden = steps::root().join(GOLDEN);
    if std::env::var_os("BLESS").is_some_and(|value| value == "1") {
        return std::fs::write(&golden, world).with_context(|| format!("cannot write {GOLDEN}"));
    }
    ensure!(
        read(&golden)? == world,
        "the component's world is not that of {GOLDEN}; look at {} and, if it is right, run again with BLESS=1",
        steps::target_dir().join("plat/core.world").display()
    );
    Ok(())
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn size(path: &Path) -> Result<u64> {
    Ok(std::fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?.len())
}
