//! `cargo xtask demo`: from a fresh clone to a visible result.
//!
//! It plays a container runtime: it calls plat-ipam, installed as `host-local` in a temporary folder, as CNI says, and
//! shows what comes out. What it says of a call it has checked; the first thing that is not so ends it as a failure.

mod blocks;
mod namespaces;
mod screen;

use crate::test;
use anyhow::{Context as _, Result, bail, ensure};
use namespaces::{Node, Tools};
use plat_tests::call::{Call, Reply};
use plat_tests::peers::{self, Installed};
use plat_tests::tree;
use screen::{CELLS_A_LINE, Cell, Screen, Style};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The network of the demo.
const NETWORK: &str = "demo";

/// The IPv4 range: small enough to draw.
const SUBNET: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 89, 0, 0), 27);

/// How many addresses [`SUBNET`] has.
const SUBNET_SIZE: u32 = 1 << (32 - SUBNET.1);

/// The IPv6 range: of the usual size.
const SUBNET_V6: (Ipv6Addr, u8) = (Ipv6Addr::new(0xfd00, 0x89, 0, 0, 0, 0, 0, 0), 64);

/// The containers that are started first.
const FIRST: &[&str] = &["web-1", "web-2", "web-3", "db-1", "job-1"];

/// A container that asks for an address of its own, and which.
const CHOOSY: (&str, Ipv4Addr) = ("mail-1", Ipv4Addr::new(10, 89, 0, 20));

/// The container that is stopped again.
const STOPPED: &str = "job-1";

/// How many calls of each plugin are timed.
const TIMED_CALLS: usize = 50;

/// Newest specification that the demo speaks.
const SPEC: &str = "1.1.0";

/// Runs it.
///
/// # Errors
/// If plat-ipam cannot be built, or if anything did not work as described.
pub(crate) fn run() -> Result<()> {
    let screen = Screen::new();
    screen.title("Plat: addresses for containers");
    screen.line("");
    screen.text(
        "When a container starts, its runtime asks an address plugin for an IP address, and gives it back when the \
         container ends. The rules of that talk are called CNI, and the plugin of most machines is host-local. \
         plat-ipam takes its place: same name, same configuration, same files. Here we play the runtime.",
    );
    screen.line("");
    let program = build(&screen)?;
    let mut demo = Demo {
        screen,
        plugin: Installed::new(&program, "host-local").context("a temporary folder for the plugin")?,
        folder: tempfile::Builder::new().prefix("plat-demo-").tempdir().context("a temporary folder for addresses")?,
        origins: BTreeMap::new(),
    };
    demo.one_call()?;
    demo.several()?;
    demo.full()?;
    demo.collect()?;
    demo.original()?;
    demo.traffic()?;
    demo.time()?;
    demo.screen.section("Pools and blocks");
    blocks::show(&demo.screen, &program)?;
    demo.read_on();
    Ok(())
}

/// plat-ipam: the one that the environment names, else a fresh build.
fn build(screen: &Screen) -> Result<PathBuf> {
    if std::env::var_os(peers::PLAT_IPAM_VARIABLE).is_some() {
        return Ok(peers::plat_ipam());
    }
    if !test::plugin().is_file() {
        screen.text("Building plat-ipam and the allocation core inside it. The first time, this takes some minutes.");
    }
    test::build_plugin().context("plat-ipam could not be built")?;
    Ok(test::plugin())
}

/// An address that is held, as the files of the network say.
struct Held {
    address: IpAddr,
    container: String,
    ifname: String,
}

/// The original plugin, if the machine has one.
struct Original {
    path: PathBuf,
    /// Name and version.
    title: String,
    /// The newest specification that it knows.
    spec: &'static str,
}

fn original() -> Option<Original> {
    let newest = peers::host_local_newest().map(|path| Original {
        path,
        title: format!("host-local {}", peers::HOST_LOCAL_VERSION),
        spec: SPEC,
    });
    let debian = || {
        let path = peers::host_local_debian().ok()?;
        Some(Original { path, title: "Debian's host-local".to_owned(), spec: "1.0.0" })
    };
    newest.ok().or_else(debian)
}

struct Demo {
    screen: Screen,
    /// plat-ipam under the name host-local.
    plugin: Installed,
    /// Where addresses are recorded: `dataDir`.
    folder: tempfile::TempDir,
    /// How each container came to its addresses.
    origins: BTreeMap<String, &'static str>,
}

impl Demo {
    fn one_call(&mut self) -> Result<()> {
        self.screen.section("Ask for an address");
        self.screen.text("The runtime starts the plugin with a few variables and the configuration on standard input:");
        let config = self.config(SPEC);
        let call = self.call(self.plugin.path(), "ADD", "web-1", &config);
        let variables: Vec<String> = call
            .environment
            .iter()
            .filter(|(name, _)| *name != "CNI_PATH")
            .map(|(name, value)| format!("{}={}", name.display(), value.display()))
            .collect();
        self.screen.verbatim("environment", &variables.join("\n"));
        self.screen.verbatim("standard input", &config);
        let reply = self.add(&call, "next free")?;
        self.screen.verbatim("standard output", &String::from_utf8_lossy(&reply.output));
        self.screen.good("web-1 has one address of each range.");
        Ok(())
    }

    fn several(&mut self) -> Result<()> {
        self.screen.section("More containers");
        let config = self.config(SPEC);
        for container in &FIRST[1..] {
            self.add(&self.call(self.plugin.path(), "ADD", container, &config), "next free")?;
        }
        let mut call = self.call(self.plugin.path(), "ADD", CHOOSY.0, &config);
        call.set("CNI_ARGS", &format!("IP={}", CHOOSY.1));
        let reply = self.add(&call, "requested")?;
        ensure!(reply.addresses().contains(&CHOOSY.1.into()), "the requested {} was not given: {reply}", CHOOSY.1);
        let freed = self.held_by(STOPPED)?;
        ensure!(freed.len() == 2, "{STOPPED} holds {freed:?} and not two addresses");
        for _ in 0..2 {
            // The second DEL finds nothing: that is a success too.
            self.succeed(&self.call(self.plugin.path(), "DEL", STOPPED, &config))?;
            ensure!(self.held_by(STOPPED)?.is_empty(), "{STOPPED} holds addresses after DEL");
        }
        let check = self.call(self.plugin.path(), "CHECK", STOPPED, &config).run();
        ensure!(!check.is_success(), "CHECK finds {STOPPED} after DEL");
        self.table()?;
        self.screen.line("");
        self.draw(true)?;
        self.screen.good(&format!(
            "{} got the IPv4 address that it asked for (CNI_ARGS=IP={}). {STOPPED} has ended (DEL), and its addresses \
             are free. The next one continues behind the last, so that an address rests before it is used again.",
            CHOOSY.0, CHOOSY.1
        ));
        Ok(())
    }

    fn full(&mut self) -> Result<()> {
        self.screen.section("A full range");
        let config = self.config(SPEC);
        let free = SUBNET_SIZE as usize - 3 - self.held_v4()?.len();
        for number in 1..=free {
            self.add(&self.call(self.plugin.path(), "ADD", &format!("batch-{number}"), &config), "next free")?;
        }
        self.draw(false)?;
        let before = self.files()?;
        let reply = self.call(self.plugin.path(), "ADD", "one-too-many", &config).run();
        ensure!(!reply.is_success(), "an address out of a full range: {reply}");
        let error = reply.json().with_context(|| format!("the refusal is no JSON: {reply}"))?;
        self.screen.text(&format!("{free} containers more, and the range is full. The next one is refused:"));
        for name in ["code", "msg", "details"] {
            let text = match &error[name] {
                Value::String(text) => text.clone(),
                Value::Null => bail!("the refusal has no {name}: {reply}"),
                other => other.to_string(),
            };
            let style = (name == "msg").then_some(Style::Red);
            self.screen.field(name, "details".len(), &text, style);
        }
        let message = error["msg"].as_str().unwrap_or_default();
        ensure!(message.contains("no IP addresses available in range set"), "not the original's message: {message}");
        ensure!(self.files()? == before, "the refused call has changed what is held");
        self.screen.good(
            "code and msg are host-local's, so that whoever matches on them goes on to do so; details is what we add. \
             A refused call takes nothing, of no range.",
        );
        Ok(())
    }

    fn collect(&mut self) -> Result<()> {
        self.screen.section("Clean up after a crash");
        let alive: Vec<&str> = FIRST.iter().copied().filter(|name| *name != STOPPED).chain([CHOOSY.0]).collect();
        self.screen.text(&format!(
            "Say the machine lost all batch containers without a DEL. The runtime lists what is still alive ({}), and \
             the plugin frees the rest (GC):",
            alive.join(", ")
        ));
        let before = self.counts()?;
        let mut config: Value = serde_json::from_str(&self.config(SPEC))?;
        config["cni.dev/valid-attachments"] =
            alive.iter().map(|name| serde_json::json!({"containerID": name, "ifname": "eth0"})).collect();
        let mut call = Call::new(self.plugin.path(), "GC");
        call.set("CNI_PATH", &self.plugin.folder().to_string_lossy());
        call.input = config.to_string().into_bytes();
        self.succeed(&call)?;
        let after = self.counts()?;
        ensure!(after == (alive.len(), alive.len()), "GC left {after:?} addresses for {} containers", alive.len());
        for name in &alive {
            ensure!(self.held_by(name)?.len() == 2, "GC took an address of {name}, which is alive");
        }
        let row = |when: &str, (v4, v6): (usize, usize)| {
            vec![
                when.to_owned(),
                v4.to_string(),
                (SUBNET_SIZE as usize - 3 - v4).to_string(),
                v6.to_string(),
                (v4.max(v6)).to_string(),
            ]
        };
        self.screen.table(
            &["", "IPv4 held", "IPv4 free", "IPv6 held", "containers"],
            &[row("before", before), row("after", after)],
        );
        self.screen.line("");
        self.table()?;
        self.screen.line("");
        self.draw(false)?;
        Ok(())
    }

    fn original(&mut self) -> Result<()> {
        self.screen.section("host-local reads the same files");
        let Some(original) = original() else {
            self.screen.left_out("there is no host-local on this machine. `cargo xtask setup` installs it.");
            return Ok(());
        };
        let (ours, theirs) = (self.config(SPEC), self.config(original.spec));
        for container in ["web-1", CHOOSY.0] {
            self.succeed(&self.call(&original.path, "CHECK", container, &theirs))?;
        }
        let by_original = self.add(&self.call(&original.path, "ADD", "old-1", &theirs), "by host-local")?;
        self.succeed(&self.call(self.plugin.path(), "CHECK", "old-1", &ours))?;
        let by_us = self.add(&self.call(self.plugin.path(), "ADD", "new-1", &ours), "next free")?;
        self.succeed(&self.call(&original.path, "DEL", "web-2", &theirs))?;
        ensure!(self.held_by("web-2")?.is_empty(), "host-local's DEL left web-2's addresses");
        let gone = self.call(self.plugin.path(), "CHECK", "web-2", &ours).run();
        ensure!(!gone.is_success(), "plat-ipam finds web-2, which host-local has freed");
        let first = |reply: &Reply| reply.addresses().first().map(ToString::to_string).unwrap_or_default();
        self.screen.text(&format!(
            "{} finds our containers (CHECK), gives old-1 the next address, {}, and frees web-2. plat-ipam sees both \
             at once, and gives new-1 the address behind it, {}. These are the files, for both:",
            original.title,
            first(&by_original),
            first(&by_us)
        ));
        self.listing()?;
        self.screen.good("One machine or one call at a time, you can go over to plat-ipam, and back.");
        Ok(())
    }

    /// The network's folder in two columns: names, and contents with their line ends.
    fn listing(&self) -> Result<()> {
        self.screen
            .line(&format!("    {}", self.screen.styled(Style::Cyan, &self.folder_of_network().display().to_string())));
        let entries: Vec<String> = self
            .files()?
            .iter()
            .map(|(name, content)| {
                let content = content.replace('\r', "␍").replace('\n', "␊");
                format!("{name:<18} {}", if content.is_empty() { "(empty)" } else { &content })
            })
            .collect();
        let lines = entries.len().div_ceil(2);
        for index in 0..lines {
            let right = entries.get(index + lines).map_or("", String::as_str);
            self.screen.line(format!("    {:<36}  {right}", entries[index]).trim_end());
        }
        Ok(())
    }

    fn traffic(&mut self) -> Result<()> {
        self.screen.section("Two containers talk");
        let tools = match Tools::find() {
            Ok(tools) => tools,
            Err(missing) => {
                self.screen.left_out(&missing.to_string());
                return Ok(());
            }
        };
        let node = Node::new(tools)?;
        // 1.0.0: what Debian's ptp speaks.
        let config = format!(
            r#"{{"cniVersion": "1.0.0", "name": "demo-ptp", "type": "ptp",
                 "ipam": {{"type": "host-local", "dataDir": "{}", "subnet": "10.89.1.0/24"}}}}"#,
            self.folder.path().display()
        );
        let mut addresses = Vec::new();
        for (index, name) in ["web", "db"].into_iter().enumerate() {
            let result: Value =
                serde_json::from_slice(&node.ptp("ADD", index, name, self.plugin.folder(), &config)?)?;
            let address = result["ips"][0]["address"].as_str().and_then(|text| text.split('/').next());
            let address: IpAddr = address.with_context(|| format!("ptp's result has no address: {result}"))?.parse()?;
            ensure!(
                self.held_in("demo-ptp")?.iter().any(|held| held.address == address && held.container == name),
                "ptp gave {name} the address {address}, but plat-ipam has not recorded it"
            );
            addresses.push(address);
        }
        let mean = node.ping(addresses[1], 3)?;
        for (index, name) in ["web", "db"].into_iter().enumerate() {
            node.ptp("DEL", index, name, self.plugin.folder(), &config)?;
        }
        ensure!(self.held_in("demo-ptp")?.is_empty(), "addresses are held after ptp's DEL");
        self.screen.text(
            "Three network namespaces stand for a node and two containers. The plugin ptp, as Debian ships it, lays a \
             cable from the node to each container, and takes the addresses from plat-ipam, which it believes to be \
             host-local:",
        );
        let [web, db] = [addresses[0], addresses[1]].map(|address| address.to_string());
        self.screen.line(&format!("    web {web:<12} ───── node 10.89.1.1 ───── db {db}"));
        self.screen.good(&format!(
            "web has pinged db: 3 answers, {mean} ms on average. Both containers are gone again, and so are their \
             addresses and the namespaces."
        ));
        Ok(())
    }

    fn time(&mut self) -> Result<()> {
        self.screen.section("How long does a call take?");
        let original = original();
        let config = |spec: &str, network: &str| {
            format!(
                r#"{{"cniVersion": "{spec}", "name": "{network}", "ipam": {{"type": "host-local", "dataDir": "{}", "subnet": "10.90.0.0/16"}}}}"#,
                self.folder.path().display()
            )
        };
        let mut times = (Vec::new(), Vec::new());
        for number in 0..TIMED_CALLS {
            let container = format!("timed-{number}");
            times.0.push(self.timed(self.plugin.path(), &container, &config(SPEC, "timed-ours"))?);
            if let Some(original) = &original {
                times.1.push(self.timed(&original.path, &container, &config(original.spec, "timed-theirs"))?);
            }
        }
        let ours = median(&mut times.0);
        let mut text = format!("An ADD by plat-ipam takes {} from start to end of the process", milliseconds(ours));
        if let Some(original) = original {
            let theirs = median(&mut times.1);
            text.push_str(&format!(
                ", by {} {} (median of {TIMED_CALLS}, each on files of its own, one after the other). host-local reads \
                 all its files at each call, so that a full node waits; plat-ipam does not: `cargo xtask bench cni` \
                 measures both with up to 65,000 addresses held",
                original.title,
                milliseconds(theirs)
            ));
        } else {
            text.push_str(&format!(" (median of {TIMED_CALLS}; there is no host-local here to compare it with)"));
        }
        text.push('.');
        self.screen.text(&text);
        Ok(())
    }

    fn timed(&self, program: &Path, container: &str, config: &str) -> Result<Duration> {
        let call = self.call(program, "ADD", container, config);
        let start = Instant::now();
        let reply = call.start().and_then(plat_tests::call::Running::finish)?;
        let time = start.elapsed();
        ensure!(reply.is_success(), "ADD for {container} failed: {reply}");
        Ok(time)
    }

    fn read_on(&self) {
        let screen = &self.screen;
        screen.line("");
        screen.good("Everything worked as described. The temporary files are removed.");
        screen.line("");
        screen.title("Read on");
        for (what, purpose) in [
            ("README.md", "what Plat is; install as host-local in three lines"),
            ("docs/configuration.md", "every key and its default"),
            ("docs/cli.md", "plat, the admin tool"),
            ("docs/differences.md", "where plat-ipam differs from host-local, and why"),
            ("docs/performance.md", "measurements, with their commands"),
            ("tests/cni/", "the behaviour as files: one case, one file"),
            ("cargo xtask test", "runs every check"),
        ] {
            screen.line(&format!("  {} {purpose}", screen.styled(Style::Cyan, &format!("{what:<22}"))));
        }
    }

    /// The configuration of the network, laid out to be read.
    fn config(&self, spec: &str) -> String {
        format!(
            r#"{{
  "cniVersion": "{spec}", "name": "{NETWORK}", "type": "ptp",
  "ipam": {{
    "type": "host-local",
    "ranges": [
      [ {{ "subnet": "{}/{}" }} ],
      [ {{ "subnet": "{}/{}" }} ]
    ],
    "dataDir": "{}"
  }}
}}"#,
            SUBNET.0,
            SUBNET.1,
            SUBNET_V6.0,
            SUBNET_V6.1,
            self.folder.path().display()
        )
    }

    fn call(&self, program: &Path, command: &str, container: &str, config: &str) -> Call {
        let mut call = Call::of(program, command, container, "eth0", config);
        call.set("CNI_NETNS", &format!("/run/netns/{container}"));
        call.set("CNI_PATH", &self.plugin.folder().to_string_lossy());
        call
    }

    fn succeed(&self, call: &Call) -> Result<Reply> {
        let reply = call.start().and_then(plat_tests::call::Running::finish)?;
        ensure!(reply.is_success(), "{:?} failed: {reply}", call.environment);
        Ok(reply)
    }

    /// Makes an ADD in the demo's network and checks what it gave.
    fn add(&mut self, call: &Call, origin: &'static str) -> Result<Reply> {
        let expected = [self.next_free(0)?, self.next_free(1)?];
        let reply = self.succeed(call)?;
        let given = reply.addresses();
        let container = call.environment[std::ffi::OsStr::new("CNI_CONTAINERID")].to_string_lossy().into_owned();
        ensure!(given.len() == 2, "{container} did not get two addresses: {reply}");
        if origin != "requested" {
            ensure!(given == expected, "{container} got {given:?}; the next free addresses are {expected:?}");
        }
        ensure!(self.held_by(&container)? == given, "the files do not say that {container} holds {given:?}");
        self.origins.insert(container, origin);
        Ok(reply)
    }

    /// The next free address of a range, found the slow and plain way: the first after the one that was given out last,
    /// then from the start.
    fn next_free(&self, set: usize) -> Result<IpAddr> {
        let held: Vec<IpAddr> = self.held()?.into_iter().map(|held| held.address).collect();
        let (first, last) = (2, if set == 0 { SUBNET_SIZE - 2 } else { u32::MAX });
        let at = |offset: u32| match set {
            0 => IpAddr::V4(Ipv4Addr::from_bits(SUBNET.0.to_bits() + offset)),
            _ => IpAddr::V6(Ipv6Addr::from_bits(SUBNET_V6.0.to_bits() + u128::from(offset))),
        };
        let after = match self.reserved_last(set)? {
            None => first,
            Some(IpAddr::V4(address)) => address.to_bits() - SUBNET.0.to_bits() + 1,
            Some(IpAddr::V6(address)) => u32::try_from(address.to_bits() - SUBNET_V6.0.to_bits())? + 1,
        };
        (after..=last)
            .chain(first..after)
            .map(at)
            .find(|address| !held.contains(address))
            .context("no free address; the demo has counted wrong")
    }

    fn folder_of_network(&self) -> PathBuf {
        self.folder.path().join(NETWORK)
    }

    /// The files of the network by name, in the order of addresses, with their contents.
    fn files(&self) -> Result<Vec<(String, String)>> {
        let mut files: Vec<(String, String)> = tree::snapshot(&self.folder_of_network())?
            .0
            .into_iter()
            .filter_map(|entry| match entry.kind {
                tree::Kind::File(content) => Some((entry.path, String::from_utf8_lossy(&content).into_owned())),
                _ => None,
            })
            .collect();
        files.sort_by_key(|(name, _)| (name.parse::<IpAddr>().is_err(), name.parse::<IpAddr>().ok(), name.clone()));
        Ok(files)
    }

    fn held_in(&self, network: &str) -> Result<Vec<Held>> {
        let tree = tree::snapshot(&self.folder.path().join(network))?;
        let mut held = Vec::new();
        for (address, content) in tree.addresses("") {
            let text = String::from_utf8_lossy(content);
            let (container, ifname) =
                text.split_once("\r\n").with_context(|| format!("the file {address} names no owner: {text:?}"))?;
            held.push(Held { address, container: container.to_owned(), ifname: ifname.to_owned() });
        }
        held.sort_by_key(|held| held.address);
        Ok(held)
    }

    fn held(&self) -> Result<Vec<Held>> {
        self.held_in(NETWORK)
    }

    fn held_by(&self, container: &str) -> Result<Vec<IpAddr>> {
        Ok(self.held()?.into_iter().filter(|held| held.container == container).map(|held| held.address).collect())
    }

    fn held_v4(&self) -> Result<Vec<IpAddr>> {
        Ok(self.held()?.into_iter().map(|held| held.address).filter(IpAddr::is_ipv4).collect())
    }

    /// How many addresses are held: IPv4, IPv6.
    fn counts(&self) -> Result<(usize, usize)> {
        let all = self.held()?.len();
        let v4 = self.held_v4()?.len();
        Ok((v4, all - v4))
    }

    fn reserved_last(&self, set: usize) -> Result<Option<IpAddr>> {
        let path = self.folder_of_network().join(format!("last_reserved_ip.{set}"));
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text.parse().with_context(|| format!("{}: {text:?}", path.display()))?)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| path.display().to_string()),
        }
    }

    /// Who holds what, one row for each container and interface.
    fn table(&self) -> Result<()> {
        let mut rows: BTreeMap<(IpAddr, String), [String; 5]> = BTreeMap::new();
        let held = self.held()?;
        for v4 in held.iter().filter(|held| held.address.is_ipv4()) {
            let v6 = held
                .iter()
                .find(|other| other.address.is_ipv6() && other.container == v4.container && other.ifname == v4.ifname);
            let origin = self.origins.get(&v4.container).copied().unwrap_or("?");
            rows.insert(
                (v4.address, v4.container.clone()),
                [
                    v4.container.clone(),
                    v4.ifname.clone(),
                    v4.address.to_string(),
                    v6.map(|held| held.address.to_string()).unwrap_or_default(),
                    origin.to_owned(),
                ],
            );
        }
        let rows: Vec<Vec<String>> = rows.into_values().map(Vec::from).collect();
        self.screen.table(&["container", "interface", "IPv4", "IPv6", "how"], &rows);
        Ok(())
    }

    /// The ranges, address by address.
    fn draw(&self, with_v6: bool) -> Result<()> {
        let held: Vec<IpAddr> = self.held()?.into_iter().map(|held| held.address).collect();
        let cell = |address: IpAddr, last: Option<IpAddr>| match (held.contains(&address), last == Some(address)) {
            (true, true) => Cell::Last,
            (true, false) => Cell::Held,
            (false, true) => Cell::LastFree,
            (false, false) => Cell::Free,
        };
        let last = self.reserved_last(0)?;
        let v4 = |offset: usize| Ipv4Addr::from_bits(SUBNET.0.to_bits() + offset as u32);
        let cells: Vec<Cell> = (0..SUBNET_SIZE as usize)
            .map(|offset| match offset {
                0 => Cell::Edge,
                offset if offset + 1 == SUBNET_SIZE as usize => Cell::Edge,
                1 => Cell::Gateway,
                offset => cell(v4(offset).into(), last),
            })
            .collect();
        let mut lines: Vec<(String, Vec<Cell>)> = cells
            .chunks(CELLS_A_LINE)
            .enumerate()
            .map(|(index, cells)| (v4(index * CELLS_A_LINE).to_string(), cells.to_vec()))
            .collect();
        if with_v6 {
            let last = self.reserved_last(1)?;
            let v6 = |offset: usize| Ipv6Addr::from_bits(SUBNET_V6.0.to_bits() + offset as u128);
            let cells = (0..CELLS_A_LINE).map(|offset| match offset {
                0 => Cell::Edge,
                1 => Cell::Gateway,
                offset => cell(v6(offset).into(), last),
            });
            lines.push((v6(0).to_string(), cells.collect()));
        }
        self.screen.drawing(&lines);
        Ok(())
    }
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn milliseconds(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1000.0)
}
