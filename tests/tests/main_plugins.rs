//! Real main plugins of Debian, called by a real libcni client (cnitool), with our plugin installed as host-local, and
//! under its own name on blocks: two containers get addresses, reach each other, are checked and go.
//!
//! Everything happens in network namespaces below mounts that only the test sees: one namespace is the host, so that
//! interfaces and forwarding stay off the machine's own, and nothing can be left behind.

mod embedded;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use embedded::Embedded;
use plat_stores::sqlite::PATH_DEFAULT;
use plat_tests::call::tool;
use plat_tests::peers::{self, Installed, Missing};
use plat_tests::tree::{Tree, snapshot};
use plat_tests::{machine, need};

/// A host with containers.
struct World {
    ip: PathBuf,
    ping: PathBuf,
    cnitool: PathBuf,
    ours: Installed,
    folder: tempfile::TempDir,
    /// The store of the block strategy; none: host-local's directory.
    blocks: Option<Embedded>,
}

const HOST: &str = "plat-host";
const NETWORK: &str = "platnet";
const CONTAINERS: [&str; 2] = ["plat-one", "plat-two"];

impl World {
    /// A host and two containers without any interface but lo, and a configuration of one network.
    fn new(config: &str) -> Result<Self, Missing> {
        Self::with(config, "host-local", &[])
    }

    /// As `new`, with the plugin under its own name and pools in its store.
    fn of_pools(config: &str, pools: &[(String, String)]) -> Result<Self, Missing> {
        Self::with(config, "plat-ipam", pools)
    }

    fn with(config: &str, name: &str, pools: &[(String, String)]) -> Result<Self, Missing> {
        peers::root()?;
        peers::ptp()?;
        peers::bridge()?;
        let world = Self {
            ip: peers::ip()?,
            ping: peers::ping()?,
            cnitool: peers::cnitool()?,
            ours: Installed::new(&peers::plat_ipam(), name).expect("a folder for the plugin"),
            folder: tempfile::Builder::new().prefix("plat-main").tempdir().expect("a folder"),
            blocks: None,
        };
        machine::private_mounts().expect("mounts of our own");
        // The names of namespaces, and libcni's cache of results.
        for folder in ["/run", "/var/lib"] {
            machine::mount_tmpfs(Path::new(folder), "size=1m").expect("a tmpfs").keep();
        }
        for name in [HOST].into_iter().chain(CONTAINERS) {
            tool(&world.ip, &["netns", "add", name]);
            tool(&world.ip, &["-n", name, "link", "set", "lo", "up"]);
        }
        // What `sqlite` without a path stands for lies below the mounts of this test.
        let is_default = config.contains(r#""store":"sqlite","#);
        let path = if is_default { PathBuf::from(PATH_DEFAULT) } else { world.store().join("ipam.db") };
        let blocks = (!pools.is_empty()).then(|| Embedded::at(path));
        if let Some(store) = &blocks {
            store.put(pools).expect("a store");
        }
        let world = Self { blocks, ..world };
        let config = config.replace("@STORE@", world.store().to_str().expect("a path in UTF-8"));
        std::fs::write(world.folder.path().join("net.conflist"), config).expect("a configuration");
        Ok(world)
    }

    fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    fn tree(&self) -> Tree {
        snapshot(&self.store()).expect("a readable store")
    }

    fn held(&self) -> BTreeMap<IpAddr, String> {
        if let Some(store) = &self.blocks {
            let survey = store.survey().expect("a readable store");
            assert!(survey.faults.is_empty(), "{}", survey.faults.join("\n"));
            let held = survey.handles().into_iter();
            return held.map(|(address, handle)| (address.parse().expect("an address"), handle)).collect();
        }
        let tree = self.tree();
        let held = tree.addresses(NETWORK).into_iter();
        held.map(|(address, content)| (address, String::from_utf8_lossy(content).into_owned())).collect()
    }

    fn inside(&self, namespace: &str, program: &Path, arguments: &[&str]) -> Output {
        Command::new(&self.ip)
            .args(["netns", "exec", namespace])
            .arg(program)
            .args(arguments)
            .env("NETCONFPATH", self.folder.path())
            .env("CNI_PATH", format!("{}:{}", self.ours.folder().display(), peers::DEBIAN_PLUGINS))
            .stdin(Stdio::null())
            .output()
            .expect("ip starts")
    }

    /// A call of libcni for a container, which must succeed; its output.
    fn cni(&self, verb: &str, container: &str) -> String {
        let netns = format!("/run/netns/{container}");
        let output = self.inside(HOST, &self.cnitool, &[verb, NETWORK, &netns]);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            output.status.success(),
            "cnitool {verb} {container}: {}\n{}{}\n{}",
            output.status,
            text(&output.stdout),
            text(&output.stderr),
            self.blocks.as_ref().map_or_else(|| self.tree().to_string(), |_| format!("{:?}", self.held()))
        );
        text(&output.stdout)
    }

    fn add(&self, container: &str) -> Vec<IpAddr> {
        let result = self.cni("add", container);
        let result: serde_json::Value = serde_json::from_str(&result).unwrap_or_else(|e| panic!("{e}: {result}"));
        let ips = result["ips"].as_array().expect("addresses");
        let address = |ip: &serde_json::Value| {
            let text = ip["address"].as_str()?;
            text.split('/').next()?.parse().ok()
        };
        ips.iter().map(|ip| address(ip).expect("an address")).collect()
    }

    /// Whether traffic from a container reaches an address. Neighbours of IPv6 may need a moment to be found.
    fn reaches(&self, container: &str, address: IpAddr) -> bool {
        let address = address.to_string();
        (0..5).any(|_| self.inside(container, &self.ping, &["-c", "1", "-W", "2", &address]).status.success())
    }

    /// The whole life of two containers.
    fn check_life(&self, families: usize) {
        let [one, two] = CONTAINERS;
        let (first, second) = (self.add(one), self.add(two));
        assert_eq!((first.len(), second.len()), (families, families));
        let held = self.held();
        assert_eq!(held.len(), 2 * families, "{held:?}");
        for address in first.iter().chain(&second) {
            let separator = if self.blocks.is_some() { ".eth0" } else { "\r\neth0" };
            assert!(held[address].ends_with(separator), "{address}: {:?}", held[address]);
            if self.blocks.is_some() {
                continue;
            }
            let entry = format!("{NETWORK}/{address}");
            // Debian's own host-local, which is second in CNI_PATH, would have made it 0644.
            assert_eq!(self.tree().get(&entry).expect("a file").mode, 0o600);
        }
        for (from, addresses) in [(one, &second), (two, &first)] {
            for address in addresses {
                assert!(self.reaches(from, *address), "{from} does not reach {address}");
            }
        }
        for container in CONTAINERS {
            self.cni("check", container);
        }
        self.cni("del", one);
        assert_eq!(self.held().len(), families);
        assert!(self.reaches(HOST, second[0]), "the other container is as it was");
        // A namespace that is gone before the DEL, as after the death of a container.
        tool(&self.ip, &["netns", "del", two]);
        self.cni("del", two);
        assert_eq!(self.held(), BTreeMap::new());
        self.cni("del", one);
    }
}

#[test]
fn ptp() {
    let world = need!(World::new(
        r#"{"cniVersion":"1.0.0","name":"platnet","plugins":[{"type":"ptp","ipam":{"type":"host-local",
            "subnet":"10.65.0.0/24","routes":[{"dst":"0.0.0.0/0"}],"dataDir":"@STORE@"}}]}"#
    ));
    world.check_life(1);
}

#[test]
fn ptp_of_two_families() {
    let world = need!(World::new(
        r#"{"cniVersion":"0.4.0","name":"platnet","plugins":[{"type":"ptp","ipam":{"type":"host-local",
            "ranges":[[{"subnet":"10.65.0.0/24"}],[{"subnet":"fd00:65::/64"}]],
            "routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}],"dataDir":"@STORE@"}}]}"#
    ));
    world.check_life(2);
}

#[test]
fn bridge_of_two_families() {
    let world = need!(World::new(
        r#"{"cniVersion":"1.0.0","name":"platnet","plugins":[{"type":"bridge","bridge":"plat0","isGateway":true,
            "ipam":{"type":"host-local",
            "ranges":[[{"subnet":"10.66.0.0/29"},{"subnet":"10.66.1.0/29"}],[{"subnet":"fd00:66::/64"}]],
            "routes":[{"dst":"0.0.0.0/0"}],"dataDir":"@STORE@"}}]}"#
    ));
    world.check_life(2);
}

#[test]
fn bridge_of_an_old_specification() {
    let world = need!(World::new(
        r#"{"cniVersion":"0.3.1","name":"platnet","plugins":[{"type":"bridge","bridge":"plat1","isGateway":true,
            "ipam":{"type":"host-local","subnet":"10.67.0.0/24","dataDir":"@STORE@"}}]}"#
    ));
    let addresses = CONTAINERS.map(|container| world.add(container)[0]);
    assert!(world.reaches(CONTAINERS[0], addresses[1]));
    assert!(world.reaches(CONTAINERS[1], addresses[0]));
    for container in CONTAINERS {
        world.cni("del", container);
    }
    assert_eq!(world.held(), BTreeMap::new());
}

#[test]
fn bridge_on_blocks() {
    let pools = [
        embedded::pool("lan", &serde_json::json!({"cidr": "10.68.0.0/24", "blockSize": 28})),
        embedded::pool("six", &serde_json::json!({"cidr": "fd00:68::/112"})),
    ];
    let world = need!(World::of_pools(
        r#"{"cniVersion":"1.0.0","name":"platnet","plugins":[{"type":"bridge","bridge":"plat2","isGateway":true,
            "ipam":{"type":"plat-ipam","mode":"block","store":"sqlite:@STORE@/ipam.db","assign_ipv6":true,
            "gateway":["10.68.0.1","fd00:68::1"],"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]}}]}"#,
        &pools
    ));
    world.check_life(2);
}

#[test]
fn ptp_on_blocks() {
    let pools = [embedded::pool("hosts", &serde_json::json!({"cidr": "10.69.0.0/24", "blockSize": 28}))];
    let world = need!(World::of_pools(
        r#"{"cniVersion":"1.0.0","name":"platnet","plugins":[{"type":"ptp","ipam":{"type":"plat-ipam","mode":"block",
            "store":"sqlite","gateway":"10.69.0.1",
            "routes":[{"dst":"0.0.0.0/0"}]}}]}"#,
        &pools
    ));
    world.check_life(1);
}
