//! `cargo xtask setup`: installs what building and testing need beside the Rust toolchain, on Debian 12.
//!
//! Each step looks first whether its part is there, so that a second run changes nothing and is quick. A step that
//! fails does not stop the others. With `CI=true` a failure is an error of the whole; elsewhere it is a warning,
//! because tests skip what is missing.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use plat_tests::{peers, skip};

/// Debian packages, and what each is for.
const PACKAGES: &[(&str, &str)] = &[
    ("containernetworking-plugins", "the original host-local of Debian, ptp and bridge"),
    ("iproute2", "network namespaces"),
    ("iputils-ping", "traffic between namespaces"),
    ("podman", "a runtime that calls CNI plugins"),
    ("runc", "what podman starts"),
    ("busybox-static", "the root file system of test containers"),
    ("util-linux", "unshare"),
    ("valgrind", "counts the instructions of benchmarks"),
];

/// Packages for a machine without any Go.
const GO_PACKAGES: &[(&str, &str)] =
    &[("golang-go", "builds the newest host-local and cnitool"), ("ca-certificates", "downloads of Go modules")];

/// Rust targets, and what each is for.
const TARGETS: &[(&str, &str)] = &[("wasm32-unknown-unknown", "the component"), (peers::RELEASE_TARGET, "plat-ipam")];

/// The Go release that builds the pinned modules (their go.mod asks for it).
const GO_VERSION: &str = "1.26.8";

/// From this minor version of Go 1 on the go command fetches a newer toolchain by itself; Debian 12 has 1.19.
const GO_MINOR_SWITCHING: u32 = 21;

/// Programs that are built from Go modules: name, module, version.
const GO_PROGRAMS: &[(&str, &str, &str)] = &[
    ("host-local", peers::HOST_LOCAL_MODULE, peers::HOST_LOCAL_VERSION),
    ("cnitool", peers::CNITOOL_MODULE, peers::CNITOOL_VERSION),
];

/// Looks for a part and installs it if it is missing.
type Install = fn() -> Result<Outcome>;

/// Installs what is missing.
///
/// # Errors
///
/// With `CI=true`, if a part could not be installed.
pub(crate) fn run() -> Result<()> {
    let steps: [(&str, Install); 3] =
        [("Debian packages", packages), ("Rust targets", targets), ("programs from Go modules", go_programs)];
    let mut failed = Vec::new();
    for (name, step) in steps {
        match step() {
            Ok(Outcome::Present) => println!("{name}: present"),
            Ok(Outcome::Installed(what)) => println!("{name}: installed {what}"),
            Err(e) => {
                eprintln!("{name}: FAILED: {e:#}");
                failed.push(name);
            }
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    if skip::is_ci() {
        bail!("setup failed: {}", failed.join(", "));
    }
    eprintln!(
        "warning: setup is incomplete ({}); tests that need the missing parts will be skipped",
        failed.join(", ")
    );
    Ok(())
}

enum Outcome {
    Present,
    Installed(String),
}

/// Runs a command whose output the user sees.
fn visibly(command: &mut Command) -> Result<()> {
    println!("  $ {}", shown(command));
    let status = command.stdin(Stdio::null()).status().with_context(|| shown(command))?;
    ensure!(status.success(), "{}: {status}", shown(command));
    Ok(())
}

/// Runs a command and returns what it printed.
fn quietly(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| shown(command))?;
    ensure!(
        output.status.success(),
        "{}: {}: {}",
        shown(command),
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn shown(command: &Command) -> String {
    let mut text = String::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            let _ = write!(text, "{}={} ", name.to_string_lossy(), value.to_string_lossy());
        }
    }
    text.push_str(&command.get_program().to_string_lossy());
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}

fn packages() -> Result<Outcome> {
    let mut wanted = PACKAGES.to_vec();
    if go().is_err() {
        wanted.extend(GO_PACKAGES);
    }
    let missing: Vec<_> = wanted.into_iter().filter(|(package, _)| !is_installed(package)).collect();
    if missing.is_empty() {
        return Ok(Outcome::Present);
    }
    for (package, purpose) in &missing {
        println!("  missing: {package} ({purpose})");
    }
    let names: Vec<_> = missing.iter().map(|(package, _)| *package).collect();
    if peers::on_path("apt-get", "apt").is_err() {
        bail!("this is no Debian; install by hand what the packages {} hold there", names.join(" "));
    }
    if peers::root().is_err() {
        bail!("not root; run `sudo apt-get install --no-install-recommends {}`", names.join(" "));
    }
    let apt = || {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    visibly(apt().args(["update", "-q"]))?;
    visibly(apt().args(["install", "-q", "-y", "--no-install-recommends"]).args(&names))?;
    Ok(Outcome::Installed(names.join(" ")))
}

fn is_installed(package: &str) -> bool {
    quietly(Command::new("dpkg-query").args(["--show", "--showformat=${db:Status-Status}", package]))
        .is_ok_and(|status| status == "installed")
}

fn targets() -> Result<Outcome> {
    let installed = quietly(Command::new("rustup").args(["target", "list", "--installed"]))
        .context("rustup (https://rustup.rs) manages the targets")?;
    let missing: Vec<_> =
        TARGETS.iter().map(|(target, _)| *target).filter(|target| !installed.lines().any(|l| l == *target)).collect();
    if missing.is_empty() {
        return Ok(Outcome::Present);
    }
    visibly(Command::new("rustup").args(["target", "add"]).args(&missing))?;
    Ok(Outcome::Installed(missing.join(" ")))
}

fn go_programs() -> Result<Outcome> {
    let missing: Vec<_> = GO_PROGRAMS
        .iter()
        .filter(|(name, _, version)| !peers::pinned_folder(name, version).join(name).is_file())
        .collect();
    if missing.is_empty() {
        return Ok(Outcome::Present);
    }
    let go = capable_go()?;
    let mut installed = Vec::new();
    for (name, module, version) in missing {
        let folder = peers::pinned_folder(name, version);
        std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        visibly(
            Command::new(&go)
                .args(["install", &format!("{module}@{version}")])
                .env("GOBIN", &folder)
                .env("CGO_ENABLED", "0")
                .env("GOTOOLCHAIN", "auto")
                .env("GOFLAGS", "-buildvcs=false")
                .env_remove("GOOS")
                .env_remove("GOARCH"),
        )?;
        ensure!(folder.join(name).is_file(), "go install left no {}", folder.join(name).display());
        installed.push(format!("{name} {version}"));
    }
    Ok(Outcome::Installed(installed.join(", ")))
}

/// The go command on this machine; not on every PATH when it was unpacked by hand.
fn go() -> Result<PathBuf> {
    let usual = Path::new("/usr/local/go/bin/go");
    match peers::on_path("go", "golang-go") {
        Ok(path) => Ok(path),
        Err(_) if usual.is_file() => Ok(usual.to_owned()),
        Err(missing) => bail!("{missing}"),
    }
}

/// A go command that can build the pinned modules: the machine's own if it can fetch a newer toolchain by itself, else
/// the toolchain that the machine's own fetches as a module.
fn capable_go() -> Result<PathBuf> {
    let go = go()?;
    let version = quietly(Command::new(&go).args(["env", "GOVERSION"]))?;
    let minor = minor_version(version.trim()).with_context(|| format!("cannot read Go's version {version:?}"))?;
    if minor >= GO_MINOR_SWITCHING {
        return Ok(go);
    }
    println!("  {} is too old, fetching go{GO_VERSION}", version.trim());
    let architecture = quietly(Command::new(&go).args(["env", "GOARCH"]))?;
    let module = format!("golang.org/toolchain@v0.0.1-go{GO_VERSION}.linux-{}", architecture.trim());
    let answer = quietly(Command::new(&go).args(["mod", "download", "-json", &module]).env("GOFLAGS", ""))?;
    let answer: serde_json::Value = serde_json::from_str(&answer).context("answer of go mod download")?;
    let root = PathBuf::from(answer["Dir"].as_str().context("go mod download names no folder")?);
    // Modules are unpacked without the right to execute.
    for folder in [root.join("bin"), root.join("pkg/tool").join(format!("linux_{}", architecture.trim()))] {
        for program in folder.read_dir().with_context(|| folder.display().to_string())? {
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(program?.path(), PermissionsExt::from_mode(0o555))?;
        }
    }
    Ok(root.join("bin/go"))
}

/// 19 of `go1.19.8`.
fn minor_version(version: &str) -> Option<u32> {
    let rest = version.strip_prefix("go1.")?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..digits].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::minor_version;

    #[test]
    fn minor_versions_of_go() {
        assert_eq!(minor_version("go1.19.8"), Some(19));
        assert_eq!(minor_version("go1.26"), Some(26));
        assert_eq!(minor_version("go1.27rc1"), Some(27));
        assert_eq!(minor_version("devel +abc"), None);
    }
}
