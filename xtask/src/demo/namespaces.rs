//! Two containers that really talk: network namespaces, the main plugin ptp, and a ping.
//!
//! A third namespace stands for the node, so that the machine's own network is not touched.

use anyhow::{Context as _, Result, bail, ensure};
use plat_tests::peers::{self, Missing};
use std::io::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The programs that this part needs.
pub(super) struct Tools {
    ip: PathBuf,
    ptp: PathBuf,
    ping: PathBuf,
}

impl Tools {
    /// Finds them, and makes sure that this process may make namespaces and virtual cables.
    ///
    /// # Errors
    /// The first part that is missing.
    pub(super) fn find() -> Result<Self, Missing> {
        peers::root()
            .map_err(|_| Missing::new("network namespaces", "they need root; run the demo as root to see them"))?;
        let tools = Self { ip: peers::ip()?, ptp: peers::ptp()?, ping: peers::ping()? };
        let refused = |error: anyhow::Error| Missing::new("network namespaces", format!("{error:#}"));
        let probe = Namespace::add(&tools.ip, "probe").map_err(refused)?;
        tools
            .ip(&["-n", &probe.name, "link", "add", "plat-probe0", "type", "veth", "peer", "name", "plat-probe1"])
            .map_err(refused)?;
        Ok(tools)
    }

    fn ip(&self, arguments: &[&str]) -> Result<()> {
        ip(&self.ip, arguments)
    }
}

fn ip(program: &Path, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().context("ip")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {}: {}", arguments.join(" "), errors.trim());
    Ok(())
}

/// A network namespace with a name; gone when dropped, with all that is in it.
struct Namespace {
    ip: PathBuf,
    name: String,
}

impl Namespace {
    fn add(program: &Path, role: &str) -> Result<Self> {
        let name = format!("plat-demo-{}-{role}", std::process::id());
        ip(program, &["netns", "add", &name])?;
        let namespace = Self { ip: program.to_owned(), name };
        ip(program, &["-n", &namespace.name, "link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    fn path(&self) -> String {
        format!("/run/netns/{}", self.name)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Err(error) = ip(&self.ip, &["netns", "delete", &self.name]) {
            eprintln!("warning: {error:#}");
        }
    }
}

/// A node with two containers.
pub(super) struct Node {
    tools: Tools,
    node: Namespace,
    containers: [Namespace; 2],
}

impl Node {
    /// Makes the three namespaces.
    ///
    /// # Errors
    /// If one cannot be made.
    pub(super) fn new(tools: Tools) -> Result<Self> {
        let node = Namespace::add(&tools.ip, "node")?;
        let containers = [Namespace::add(&tools.ip, "a")?, Namespace::add(&tools.ip, "b")?];
        Ok(Self { tools, node, containers })
    }

    /// Calls ptp in the node's namespace, for one of the containers.
    ///
    /// # Errors
    /// If it fails, with its answer.
    pub(super) fn ptp(&self, command: &str, index: usize, name: &str, folder: &Path, input: &str) -> Result<Vec<u8>> {
        let mut child = Command::new(&self.tools.ip)
            .args(["netns", "exec", &self.node.name])
            .arg(&self.tools.ptp)
            .env_clear()
            .env("CNI_COMMAND", command)
            .env("CNI_CONTAINERID", name)
            .env("CNI_IFNAME", "eth0")
            .env("CNI_NETNS", self.containers[index].path())
            // Only our folder: what ptp finds under the name host-local is plat-ipam.
            .env("CNI_PATH", folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("ptp")?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input.as_bytes()).context("ptp's standard input")?;
        }
        let output = child.wait_with_output().context("ptp")?;
        if !output.status.success() {
            bail!(
                "ptp {command} for {name} ended with {}: {}{}",
                output.status,
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(output.stdout)
    }

    /// Sends echo requests from the first container to an address; how many were answered, and the mean time as ping
    /// prints it.
    ///
    /// # Errors
    /// If not all are answered.
    pub(super) fn ping(&self, to: IpAddr, count: u32) -> Result<String> {
        let output = Command::new(&self.tools.ip)
            .args(["netns", "exec", &self.containers[0].name])
            .arg(&self.tools.ping)
            .args(["-c", &count.to_string(), "-i", "0.2", "-W", "2", &to.to_string()])
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .output()
            .context("ping")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(
            output.status.success() && text.contains(&format!("{count} received")),
            "no answer to ping: {text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let last = text.lines().rfind(|line| line.starts_with("rtt")).unwrap_or_default();
        let mean = last.split('=').nth(1).and_then(|times| times.trim().split('/').nth(1)).unwrap_or("?");
        Ok(mean.to_owned())
    }
}
