//! Where the programs are that the tests run: the plugin under test, the originals, and tools.
//!
//! `cargo xtask setup` installs what is missing; the pinned versions stand here, for both.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The Go module of the newest host-local.
pub const HOST_LOCAL_MODULE: &str = "github.com/containernetworking/plugins/plugins/ipam/host-local";
/// The release of [`HOST_LOCAL_MODULE`] that is the target of the differential tests.
pub const HOST_LOCAL_VERSION: &str = "v1.10.0";
/// The Go module of cnitool, a client made of libcni.
pub const CNITOOL_MODULE: &str = "github.com/containernetworking/cni/cnitool";
/// The release of [`CNITOOL_MODULE`] that drives real main plugins.
pub const CNITOOL_VERSION: &str = "v1.3.1";
/// Where Debian's containernetworking-plugins puts its programs.
pub const DEBIAN_PLUGINS: &str = "/usr/lib/cni";
/// Names the plugin under test.
pub const PLAT_IPAM_VARIABLE: &str = "PLAT_IPAM_BIN";
/// Names the folder for programs that were built from their modules.
pub const CACHE_VARIABLE: &str = "PLAT_CACHE";
/// The target for which the plugin is shipped.
pub const RELEASE_TARGET: &str = "x86_64-unknown-linux-musl";

/// A part that a test needs and that is not there.
#[derive(Debug, Clone)]
pub struct Missing {
    /// The part.
    pub what: String,
    /// Why it is not there, and how to get it.
    pub reason: String,
}

impl Missing {
    /// A missing part.
    pub fn new(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { what: what.into(), reason: reason.into() }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.reason)
    }
}

/// A program's path, or why there is none.
pub type Found = Result<PathBuf, Missing>;

/// The folder for programs that were built from their modules: `$PLAT_CACHE`, else `~/.cache/plat`.
pub fn cache() -> PathBuf {
    match std::env::var_os(CACHE_VARIABLE) {
        Some(path) if !path.is_empty() => path.into(),
        _ => std::env::home_dir().unwrap_or_else(|| PathBuf::from("/root")).join(".cache/plat"),
    }
}

/// The folder of one pinned program: `<cache>/<name>-<version>/bin`.
pub fn pinned_folder(name: &str, version: &str) -> PathBuf {
    cache().join(format!("{name}-{version}")).join("bin")
}

fn pinned(name: &str, version: &str) -> Found {
    let path = pinned_folder(name, version).join(name);
    if is_program(&path) {
        return Ok(path);
    }
    Err(Missing::new(format!("{name} {version}"), format!("not found at {}; run `cargo xtask setup`", path.display())))
}

fn debian(name: &str) -> Found {
    let path = Path::new(DEBIAN_PLUGINS).join(name);
    if is_program(&path) {
        return Ok(path);
    }
    Err(Missing::new(
        format!("{name} of Debian"),
        format!(
            "not found at {}; install the package containernetworking-plugins or run `cargo xtask setup`",
            path.display()
        ),
    ))
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// A program on `PATH`, or in the folders of the system's administrator, which a user's `PATH` may leave out.
pub fn on_path(name: &str, package: &str) -> Found {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|candidate| is_program(candidate))
        .ok_or_else(|| {
            Missing::new(name, format!("not on PATH; install the package {package} or run `cargo xtask setup`"))
        })
}

/// host-local in its newest release, the target of the differential tests.
pub fn host_local_newest() -> Found {
    pinned("host-local", HOST_LOCAL_VERSION)
}

/// host-local as Debian 12 ships it (1.1.1).
pub fn host_local_debian() -> Found {
    debian("host-local")
}

/// The main plugin ptp, of Debian.
pub fn ptp() -> Found {
    debian("ptp")
}

/// The main plugin bridge, of Debian.
pub fn bridge() -> Found {
    debian("bridge")
}

/// cnitool, a real libcni client.
pub fn cnitool() -> Found {
    pinned("cnitool", CNITOOL_VERSION)
}

/// ip of iproute2.
pub fn ip() -> Found {
    on_path("ip", "iproute2")
}

/// ping.
pub fn ping() -> Found {
    on_path("ping", "iputils-ping")
}

/// podman.
pub fn podman() -> Found {
    on_path("podman", "podman")
}

/// runc, the runtime that podman starts.
pub fn runc() -> Found {
    on_path("runc", "runc")
}

/// A static busybox.
pub fn busybox() -> Found {
    on_path("busybox", "busybox-static")
}

/// Nothing, if the process may do what only root may.
pub fn root() -> Result<(), Missing> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(Missing::new("root", "the test makes network namespaces or mounts; run it as root"))
}

/// The plugin under test: `$PLAT_IPAM_BIN` if set, else what cargo builds for [`RELEASE_TARGET`] in release form. A
/// build that is fresh already takes cargo a fraction of a second, and an old binary is never tested by mistake.
///
/// # Panics
///
/// If `$PLAT_IPAM_BIN` names no program, or the build fails: the plugin under test is no optional part.
pub fn plat_ipam() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT
        .get_or_init(|| match std::env::var_os(PLAT_IPAM_VARIABLE) {
            Some(path) => {
                let path = PathBuf::from(path);
                assert!(
                    path.is_absolute() && is_program(&path),
                    "{PLAT_IPAM_VARIABLE}={} is not the absolute path of a program",
                    path.display()
                );
                path
            }
            None => build_plat_ipam(),
        })
        .clone()
}

fn build_plat_ipam() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let output = Command::new(cargo)
        .args(["build", "--release", "--package", "plat-ipam", "--target", RELEASE_TARGET])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(root)
        // What cargo sets for this test is not meant for another package's build.
        .env_remove("CARGO_MANIFEST_DIR")
        .env_remove("CARGO_PKG_NAME")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo starts");
    assert!(output.status.success(), "plat-ipam does not build for {RELEASE_TARGET}");
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == "plat-ipam")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .expect("cargo names the program it built")
}

/// A program under a name of its own in a folder of its own, for plugins that follow the name they are started as.
/// The file is a symbolic link.
pub struct Installed {
    folder: tempfile::TempDir,
    path: PathBuf,
}

impl Installed {
    /// Installs `program` as `name`.
    pub fn new(program: &Path, name: impl AsRef<OsStr>) -> std::io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("plat-bin").tempdir()?;
        let path = folder.path().join(name.as_ref());
        std::os::unix::fs::symlink(program, &path)?;
        Ok(Self { folder, path })
    }

    /// The folder, for `CNI_PATH`.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The program under its new name.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
