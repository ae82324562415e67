//! The chapter about pools and blocks: the admin tool and the plugin on one SQLite file, three nodes at once.

use super::screen::{Screen, Style};
use crate::steps::{self, cargo, run};
use anyhow::{Context as _, Result, ensure};
use plat_tests::call::{Call, Reply, Running};
use plat_tests::peers::{self, Installed};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The nodes, and the pods of each.
const PODS: &[(&str, &[&str])] =
    &[("node-1", &["web-1", "web-2", "db-1"]), ("node-2", &["web-3", "job-1"]), ("node-3", &["web-4"])];

/// Two blocks of two addresses, used only where it is asked for.
const TINY: &str = "\
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: tiny}
spec: {cidr: 10.9.0.0/30, blockSize: 31, assignmentMode: Manual}
";

const STRICT: &str = "\
apiVersion: projectcalico.org/v3
kind: IPAMConfiguration
metadata: {name: default}
spec: {strictAffinity: true}
";

/// The tools on one store.
struct Chapter<'s> {
    screen: &'s Screen,
    plugin: Installed,
    plat: PathBuf,
    folder: tempfile::TempDir,
}

/// Shows it. `program`: plat-ipam.
pub(super) fn show(screen: &Screen, program: &Path) -> Result<()> {
    run(cargo()
        .args(["build", "--locked", "--quiet", "--package", "plat-cli", "--release"])
        .args(["--target", peers::RELEASE_TARGET]))?;
    let chapter = Chapter {
        screen,
        plugin: Installed::new(program, "calico-ipam").context("a temporary folder for the plugin")?,
        plat: steps::target_dir().join(peers::RELEASE_TARGET).join("release").join("plat"),
        folder: tempfile::Builder::new().prefix("plat-demo-").tempdir().context("a temporary folder for the store")?,
    };
    chapter.pool()?;
    chapter.borrowing()?;
    chapter.strict()
}

/// The pool that the README shows.
fn readme_pool() -> Result<String> {
    let path = steps::root().join("README.md");
    let readme = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let start = readme.find("```yaml\n").context("README.md shows no pool")? + "```yaml\n".len();
    let length = readme[start..].find("```").context("the pool in README.md has no end")?;
    Ok(readme[start..start + length].to_owned())
}

impl Chapter<'_> {
    fn store(&self) -> String {
        format!("sqlite:{}", self.folder.path().join("ipam.db").display())
    }

    /// Runs the admin tool; what it prints, if it succeeds as it should.
    fn plat(&self, arguments: &[&str]) -> Result<String> {
        let output = Command::new(&self.plat)
            .args(arguments)
            .env("PLAT_STORE", self.store())
            .current_dir(self.folder.path())
            .output()
            .context("plat cannot be started")?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "plat {} failed: {errors}", arguments.join(" "));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn apply(&self, file: &str, text: &str) -> Result<()> {
        std::fs::write(self.folder.path().join(file), text)?;
        self.screen.verbatim(file, text.trim_end());
        let done = self.plat(&["apply", "-f", file])?;
        self.screen.verbatim(&format!("plat apply -f {file}"), done.trim_end());
        Ok(())
    }

    fn add(&self, node: &str, pod: &str, pool: Option<&str>) -> Result<Reply> {
        let mut config = serde_json::json!({
            "cniVersion": "1.0.0", "name": "k8s-pod-network", "type": "calico", "nodename": node,
            "ipam": {"type": "calico-ipam", "store": self.store()},
        });
        if let Some(pool) = pool {
            config["ipam"]["ipv4_pools"] = serde_json::json!([pool]);
        }
        let mut call = Call::of(self.plugin.path(), "ADD", pod, "eth0", config.to_string());
        call.set("CNI_NETNS", &format!("/run/netns/{pod}"));
        call.set("CNI_PATH", &self.plugin.folder().to_string_lossy());
        call.set("CNI_ARGS", &format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={pod}"));
        Ok(call.start().and_then(Running::finish)?)
    }

    fn granted(&self, node: &str, pod: &str, pool: Option<&str>) -> Result<std::net::IpAddr> {
        let reply = self.add(node, pod, pool)?;
        ensure!(reply.is_success(), "{pod} on {node} got no address: {reply}");
        reply.addresses().first().copied().with_context(|| format!("{pod} on {node} got no address: {reply}"))
    }

    fn pool(&self) -> Result<()> {
        self.screen.text(
            "A cluster shares its addresses by blocks: a pool is cut into blocks, a node holds blocks, a pod gets an \
             address of its node's blocks. That is Calico's way; plat-ipam does it under the name calico-ipam, here for \
             three nodes on one SQLite file. The pool of the README:",
        );
        self.apply("pool.yaml", &readme_pool()?)?;
        let mut rows = Vec::new();
        let mut given = std::collections::BTreeSet::new();
        for (node, pods) in PODS {
            for pod in *pods {
                let address = self.granted(node, pod, None)?;
                ensure!(given.insert(address), "{address} was given twice");
                rows.push(vec![(*node).to_owned(), (*pod).to_owned(), address.to_string()]);
            }
        }
        self.screen.table(&["NODE", "POD", "ADDRESS"], &rows);
        let shown = self.plat(&["ipam", "show", "--show-blocks"])?;
        ensure!(shown.matches("| Block ").count() == PODS.len(), "each node should hold one block:\n{shown}");
        self.screen.verbatim("plat ipam show --show-blocks", shown.trim_end());
        self.screen.good("One block for each node, and no address twice.");
        Ok(())
    }

    fn borrowing(&self) -> Result<()> {
        self.screen.line("");
        self.screen.text("A pool of two tiny blocks, which the first two nodes take. The third node borrows:");
        self.apply("tiny.yaml", TINY)?;
        for (node, pod) in [("node-1", "a"), ("node-2", "b"), ("node-3", "c")] {
            self.granted(node, pod, Some("tiny"))?;
        }
        let shown = self.plat(&["ipam", "show", "--show-borrowed"])?;
        ensure!(shown.contains("node-3"), "node-3 should have borrowed:\n{shown}");
        self.screen.verbatim("plat ipam show --show-borrowed", shown.trim_end());
        Ok(())
    }

    fn strict(&self) -> Result<()> {
        self.screen.line("");
        self.screen.text("Some networks cannot route single addresses. With strict affinity nobody borrows:");
        self.apply("strict.yaml", STRICT)?;
        let reply = self.add("node-3", "d", Some("tiny"))?;
        ensure!(!reply.is_success(), "node-3 should have been refused: {reply}");
        let error: Value = serde_json::from_slice(&reply.output).context("the refusal is no JSON")?;
        for (name, style) in [("msg", Some(Style::Magenta)), ("details", None)] {
            self.screen.field(name, 8, error[name].as_str().unwrap_or_default(), style);
        }
        let details = error["details"].as_str().unwrap_or_default();
        ensure!(details.contains("strictAffinity: false"), "the refusal does not say what to do: {reply}");
        self.screen.good("Refused, with the pool, how full it is, why it was passed over, and what to do.");
        Ok(())
    }
}
