//! podman with its CNI backend, and our plugin installed as host-local: a network, containers that reach each other,
//! a requested address, and nothing left when they are gone.
//!
//! podman runs as root with a storage of its own, in a network namespace and below mounts that only the test sees. If
//! it cannot run on this machine with the original host-local, which is tried first, the machine is to blame and the
//! test is skipped.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use plat_tests::call::tool;
use plat_tests::peers::{self, Installed, Missing};
use plat_tests::tree::snapshot;
use plat_tests::{machine, need, skip};

const NETWORK: &str = "platpod";

/// podman, with one host-local.
struct World {
    podman: PathBuf,
    folder: tempfile::TempDir,
    cgroup: String,
    _plugin: Installed,
}

/// What a call of podman said.
struct Said {
    status: ExitStatus,
    output: String,
    errors: String,
}

impl World {
    /// A host whose podman finds `host_local` first.
    fn new(host_local: &Path) -> Result<Self, Missing> {
        peers::root()?;
        peers::bridge()?;
        peers::runc()?;
        let (ip, podman, busybox) = (peers::ip()?, peers::podman()?, peers::busybox()?);
        let folder = tempfile::Builder::new().prefix("plat-podman").tempdir().expect("a folder");
        let path = folder.path();
        machine::private_mounts().expect("mounts of our own");
        for shared in ["/run", "/var/lib"] {
            machine::mount_tmpfs(Path::new(shared), "size=64m").expect("a tmpfs").keep();
        }
        machine::private_network().expect("a network of our own");
        tool(&ip, &["link", "set", "lo", "up"]);
        for name in ["bin", "proc", "sys", "dev", "etc", "tmp", "run"] {
            std::fs::create_dir_all(path.join("rootfs").join(name)).expect("a folder");
        }
        std::fs::copy(busybox, path.join("rootfs/bin/busybox")).expect("busybox");
        std::fs::create_dir_all(path.join("net.d")).expect("a folder");
        let plugin = Installed::new(host_local, "host-local").expect("a folder for the plugin");
        let settings = format!(
            "[network]\nnetwork_backend = \"cni\"\ncni_plugin_dirs = [\"{}\", \"{}\"]\nnetwork_config_dir = \"{}\"\n\
             [engine]\nevents_logger = \"none\"\n",
            plugin.folder().display(),
            peers::DEBIAN_PLUGINS,
            path.join("net.d").display(),
        );
        std::fs::write(path.join("containers.conf"), settings).expect("settings");
        let cgroup = format!("/plat-test-{}", std::process::id());
        Ok(Self { podman, folder, cgroup, _plugin: plugin })
    }

    /// Calls podman. Its output goes to files: what it leaves running keeps the streams open.
    fn podman(&self, arguments: &[&str]) -> Said {
        let path = |name: &str| self.folder.path().join(name);
        let open = |name: &str| File::create(path(name)).expect("a file");
        let status = Command::new(&self.podman)
            .arg("--root")
            .arg(path("root"))
            .args(["--runroot", "/run/plat-podman", "--storage-driver", "vfs"])
            .args(["--runtime", "runc", "--cgroup-manager", "cgroupfs"])
            .args(arguments)
            .env("CONTAINERS_CONF", path("containers.conf"))
            .stdin(Stdio::null())
            .stdout(open("stdout"))
            .stderr(open("stderr"))
            .status()
            .expect("podman starts");
        let read = |name: &str| String::from_utf8_lossy(&std::fs::read(path(name)).expect("a file")).into_owned();
        Said { status, output: read("stdout"), errors: read("stderr") }
    }

    /// Runs a container with a busybox command.
    fn run(&self, options: &[&str], command: &[&str]) -> Said {
        let rootfs = self.folder.path().join("rootfs");
        let limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"];
        let mut arguments = vec!["run", "--network", NETWORK, "--cgroup-parent", &self.cgroup];
        arguments.extend(limits.iter().chain(options));
        arguments.extend(["--rootfs", rootfs.to_str().expect("a path in UTF-8"), "/bin/busybox"]);
        arguments.extend(command);
        self.podman(&arguments)
    }

    /// A network of two families and one container in it, which prints its addresses: whether podman works at all.
    fn try_out(&self) -> Result<Said, String> {
        let check = |said: Said| match said.status.success() {
            true => Ok(said),
            false => Err(format!("{}: {}{}", said.status, said.output, said.errors)),
        };
        check(self.podman(&[
            "network",
            "create",
            "--subnet",
            "10.68.0.0/24",
            "--ipv6",
            "--subnet",
            "fd00:68::/64",
            NETWORK,
        ]))?;
        check(self.run(&["--rm"], &["ip", "address", "show", "eth0"]))
    }

    /// podman keeps its networks in the default dataDir.
    fn held(&self) -> BTreeMap<IpAddr, (u32, String)> {
        let tree = snapshot(&Path::new("/var/lib/cni/networks").join(NETWORK)).expect("a readable store");
        tree.addresses("")
            .into_iter()
            .map(|(address, content)| {
                let mode = tree.get(&address.to_string()).expect("listed").mode;
                (address, (mode, String::from_utf8_lossy(content).into_owned()))
            })
            .collect()
    }
}

impl Drop for World {
    /// Containers that a failed test left, and their control groups, which no mount of ours hides.
    fn drop(&mut self) {
        self.podman(&["rm", "--all", "--force", "--time", "0"]);
        let controllers = Path::new("/sys/fs/cgroup").read_dir().into_iter().flatten().flatten();
        let folders = controllers.map(|entry| entry.path()).chain([PathBuf::from("/sys/fs/cgroup")]);
        let groups: Vec<_> = folders.map(|folder| folder.join(self.cgroup.trim_start_matches('/'))).collect();
        // A group is removed when its last process is gone, which takes a moment.
        for _ in 0..50 {
            for group in groups.iter().filter(|group| group.exists()) {
                for child in group.read_dir().into_iter().flatten().flatten() {
                    let _ = std::fs::remove_dir(child.path());
                }
                let _ = std::fs::remove_dir(group);
            }
            if !groups.iter().any(|group| group.exists()) {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn containers_of_podman() {
    let newest = need!(peers::host_local_newest());
    // In a thread of its own, whose mounts are gone with it.
    let with_original = std::thread::spawn(move || {
        let world = World::new(&newest)?;
        world.try_out().map(|_| ()).map_err(|why| Missing::new("podman with the CNI backend", why.trim().to_owned()))
    });
    if let Err(missing) = with_original.join().expect("no panic") {
        let lacking = ["podman", "runc", "busybox", "ip", "root"].contains(&missing.what.as_str());
        return if lacking { skip::skip(&missing) } else { skip::skip_everywhere(&missing) };
    }

    let world = need!(World::new(&peers::plat_ipam()));
    let said = world.try_out().unwrap_or_else(|why| panic!("podman with our plugin: {why}"));
    assert!(said.output.contains("inet 10.68.0.2/24"), "{}", said.output);
    assert!(said.output.contains("inet6 fd00:68::2/64"), "{}", said.output);
    assert_eq!(world.held(), BTreeMap::new(), "the container is gone");

    let said = world.run(&["--detach", "--name", "one", "--ip", "10.68.0.77"], &["sleep", "300"]);
    assert!(said.status.success(), "{}", said.errors);
    let id = said.output.trim().to_owned();
    let held = world.held();
    assert_eq!(held.len(), 2, "{held:?}");
    for (mode, content) in held.values() {
        // Debian's own host-local, which is second in the list of folders, would have made it 0644.
        assert_eq!((*mode, content), (0o600, &format!("{id}\r\neth0")));
    }
    assert!(held.contains_key(&"10.68.0.77".parse::<IpAddr>().expect("an address")), "{held:?}");

    let said = world.run(&["--rm"], &["ping", "-c", "1", "-W", "5", "10.68.0.77"]);
    assert!(said.status.success(), "{}{}", said.output, said.errors);
    let said = world.run(&["--rm", "--ip", "10.68.0.77"], &["true"]);
    assert!(!said.status.success(), "the address is taken");
    assert!(said.errors.contains("requested IP address 10.68.0.77 is not available"), "{}", said.errors);

    let said = world.podman(&["rm", "--force", "--time", "0", "one"]);
    assert!(said.status.success(), "{}", said.errors);
    assert_eq!(world.held(), BTreeMap::new());
}
