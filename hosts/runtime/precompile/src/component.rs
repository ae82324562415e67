//! From the sources of core/component to a component.

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "wasm32-unknown-unknown";

/// What the component may import: so it has no file, no network, no clock of the system and no randomness. That it does
/// import both is for the golden file of the world to say.
const IMPORTS: [&str; 2] = ["plat:ipam/clock@0.1.0", "plat:ipam/store@0.1.0"];

/// A finished component.
pub(crate) struct Built {
    /// The binary.
    pub(crate) bytes: Vec<u8>,
    /// The SHA-256 of `bytes` in hexadecimal.
    pub(crate) sha256: String,
    /// The decoded world, as WIT.
    pub(crate) world: String,
}

/// Compiles the crate to a core module. Cargo decides whether anything is to do.
pub(crate) fn build_module(workspace: &Path, target_dir: &Path, locked: bool) -> Result<Vec<u8>> {
    let workspace = workspace.canonicalize().with_context(|| format!("no workspace at {}", workspace.display()))?;
    ensure_target(&workspace)?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(&cargo);
    command
        .current_dir(&workspace)
        .args(["build", "--quiet", "--package", "plat-component", "--profile", "guest", "--target", TARGET])
        .arg("--target-dir")
        .arg(target_dir)
        .env_remove("RUSTFLAGS")
        .env("CARGO_ENCODED_RUSTFLAGS", remap_flags(&workspace)?);
    if locked {
        command.arg("--locked");
    }
    let status = command.status().with_context(|| format!("cannot run {}", cargo.to_string_lossy()))?;
    ensure!(status.success(), "the core component does not compile; see above");
    let module = target_dir.join(TARGET).join("guest/plat_component.wasm");
    std::fs::read(&module).with_context(|| format!("cannot read {}", module.display()))
}

/// Compiler flags that take this machine's paths out of the binary, so that it is the same from any folder.
fn remap_flags(workspace: &Path) -> Result<String> {
    let mut pairs = vec![(workspace.to_path_buf(), "/plat"), (sysroot(workspace)?, "/rust")];
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::home_dir().map(|home| home.join(".cargo")))
        .context("neither CARGO_HOME nor HOME is set")?;
    pairs.push((home, "/cargo"));
    // rustc applies the last pair that matches: the longest path has to come last.
    pairs.sort_by_key(|(path, _)| path.as_os_str().len());
    let flags: Vec<String> =
        pairs.iter().map(|(path, name)| format!("--remap-path-prefix={}={name}", path.display())).collect();
    Ok(flags.join("\x1f"))
}

fn sysroot(workspace: &Path) -> Result<PathBuf> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(&rustc)
        .current_dir(workspace)
        .args(["--print", "sysroot"])
        .output()
        .with_context(|| format!("cannot run {}", rustc.to_string_lossy()))?;
    ensure!(output.status.success(), "rustc --print sysroot fails: {}", String::from_utf8_lossy(&output.stderr));
    Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
}

/// Adds the target to the toolchain if it is not there.
fn ensure_target(workspace: &Path) -> Result<()> {
    let library = sysroot(workspace)?.join("lib/rustlib").join(TARGET).join("lib");
    if library.is_dir() {
        return Ok(());
    }
    let added = Command::new("rustup").current_dir(workspace).args(["target", "add", TARGET]).status();
    if !added.is_ok_and(|status| status.success()) || !library.is_dir() {
        bail!(
            "the Rust target {TARGET} is not installed and `rustup target add {TARGET}` did not add it. \
             Run that command where rustup reaches its server, or unpack rust-std of the same version for {TARGET} \
             into {}",
            library.display()
        );
    }
    Ok(())
}

/// Makes a core module in text, which knows nothing of WIT, a component of the world `core`. Exports that it lacks are
/// added; they trap.
pub(crate) fn wrap(text: &str, wit: &Path) -> Result<Vec<u8>> {
    let mut resolve = wit_parser::Resolve::default();
    let (package, _) = resolve.push_dir(wit).with_context(|| format!("cannot read {}", wit.display()))?;
    let world = resolve.select_world(&[package], Some("core"))?;
    let mut module = wat::parse_str(with_stubs(text, &resolve, world)?)?;
    wit_component::embed_component_metadata(&mut module, &resolve, world, wit_component::StringEncoding::UTF8, true)?;
    encode_module(&module)
}

fn with_stubs(text: &str, resolve: &wit_parser::Resolve, world: wit_parser::WorldId) -> Result<String> {
    use wit_parser::abi::{AbiVariant, WasmType};
    let name = |kind: &WasmType| match kind {
        WasmType::I64 | WasmType::PointerOrI64 => "i64",
        WasmType::F32 => "f32",
        WasmType::F64 => "f64",
        WasmType::I32 | WasmType::Pointer | WasmType::Length => "i32",
    };
    let body = text.trim_end().strip_suffix(')').context("the module in text ends with no parenthesis")?;
    let mut whole = body.to_owned();
    for (key, item) in &resolve.worlds[world].exports {
        let wit_parser::WorldItem::Interface { id, .. } = item else { continue };
        for function in resolve.interfaces[*id].functions.values() {
            let export = format!("{}#{}", resolve.name_world_key(key), function.name);
            if text.contains(&format!("\"{export}\"")) {
                continue;
            }
            let signature = resolve.wasm_signature(AbiVariant::GuestExport, function);
            let list = |word: &str, types: &[WasmType]| {
                let types: Vec<&str> = types.iter().map(name).collect();
                if types.is_empty() { String::new() } else { format!(" ({word} {})", types.join(" ")) }
            };
            let (params, results) = (list("param", &signature.params), list("result", &signature.results));
            whole.push_str(&format!("\n  (func (export \"{export}\"){params}{results} unreachable)"));
        }
    }
    whole.push_str(")\n");
    Ok(whole)
}

fn encode_module(module: &[u8]) -> Result<Vec<u8>> {
    wit_component::ComponentEncoder::default()
        .module(module)
        .context("the core module carries no component type")?
        .validate(true)
        .encode()
        .context("the core module cannot be made a component")
}

/// Wraps the core's module into a component, checks it, and reads it back.
pub(crate) fn encode(module: &[u8]) -> Result<Built> {
    let bytes = encode_module(module)?;
    let (resolve, world) = match wit_component::decode(&bytes).context("the component cannot be read back")? {
        wit_component::DecodedWasm::Component(resolve, world) => (resolve, world),
        wit_component::DecodedWasm::WitPackage(..) => bail!("the component came out as a WIT package"),
    };
    for import in resolve.worlds[world].imports.keys().map(|key| resolve.name_world_key(key)) {
        ensure!(
            IMPORTS.contains(&import.as_str()),
            "the component imports {import}; it may import nothing but {}. If the import holds types alone, the world \
             lacks its export",
            IMPORTS.join(" and ")
        );
    }
    let mut printer = wit_component::WitPrinter::default();
    let nested: Vec<_> =
        resolve.packages.iter().map(|(id, _)| id).filter(|id| Some(*id) != resolve.worlds[world].package).collect();
    let package = resolve.worlds[world].package.context("the decoded world belongs to no package")?;
    printer.print(&resolve, package, &nested)?;
    let sha256 = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Built { bytes, sha256, world: printer.output.to_string() })
}
