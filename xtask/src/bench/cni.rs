//! `cargo xtask bench cni`: whole processes of plat-ipam beside host-local's.
//!
//! Every round calls all plugins one right after the other, each on files of its own, in an order that changes from
//! round to round. So what disturbs the machine disturbs all, and the ratios of a round are worth more than its times.

use super::figures::{Spread, grouped, milliseconds, time};
use super::process::{Call, Done};
use super::report::Report;
use super::{Options, machine};
use crate::test;
use anyhow::{Context as _, Result, ensure};
use plat_tests::peers::{self, Installed};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The most rounds: with [`HELD_MAX`] they do not reach the end of [`SUBNET`], where each search would begin again.
pub(super) const ROUNDS_MAX: usize = 10_000;

/// The most held addresses: a quarter of [`SUBNET`].
pub(super) const HELD_MAX: u32 = 65_536;

/// Numbers of held addresses unless told otherwise: none, two nodes' worth, a crowded /20, a /16.
const HELD: &[u32] = &[0, 1_000, 4_000, 65_000];

/// The subnet of all calls.
const SUBNET: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 64, 0, 0), 14);

/// The name of the network.
const NETWORK: &str = "bench";

/// Processes at once, and ADDs in all, of a crowd.
const CROWD: (usize, usize) = (16, 256);

/// Budgets of an ADD against Debian's host-local: held addresses and ratio.
const ADD_RATIO_MAX: &[(u32, f64)] = &[(0, 0.5), (4_000, 0.1), (65_000, 0.01)];

/// Budget of plat-ipam's peak memory, in bytes.
const MEMORY_BYTES_MAX: u64 = 12 << 20;

/// Budget of plat-ipam's size, in bytes.
const PROGRAM_BYTES_MAX: u64 = 8_000_000;

/// A plugin that is measured.
struct Plugin {
    title: String,
    program: PathBuf,
    /// The newest specification that it knows.
    spec: &'static str,
    /// Its own folder, in the folder of the benchmark.
    folder: &'static str,
    /// Keeps the program under its name.
    _installed: Option<Installed>,
}

/// Plugins on a folder of this many held addresses.
struct Bench<'a> {
    plugins: &'a [Plugin],
    folder: PathBuf,
}

/// Runs it.
///
/// # Errors
/// If a call fails or leaves behind what it should not.
pub(super) fn run(options: &Options) -> Result<()> {
    let program = match std::env::var_os(peers::PLAT_IPAM_VARIABLE) {
        Some(_) => peers::plat_ipam(),
        None => {
            test::build_plugin()?;
            test::plugin()
        }
    };
    let plugins = plugins(&program)?;
    // Not the usual temporary folder, which is memory on many machines.
    let parent = options.dir.clone().unwrap_or_else(|| PathBuf::from("/var/tmp"));
    let folder = tempfile::Builder::new().prefix("plat-bench-").tempdir_in(&parent).context("--dir")?;
    let mut report = Report::default();
    report.line(&format!(
        "`{}`: {}. Files on {}.",
        options.command,
        machine::described(),
        machine::file_system(folder.path())?
    ));
    report.line("");
    report.line(
        "Medians of whole processes; in brackets a tenth and nine tenths of the rounds. A ratio is plat-ipam's time by \
         the other's, round by round.",
    );
    calls(options, &plugins, folder.path(), &mut report)?;
    crowd(options, &plugins, folder.path(), &mut report)?;
    resources(&program, &plugins, folder.path(), &mut report)?;
    phases(options, &plugins[0], folder.path(), &mut report)?;
    if options.write {
        report.write("cni")?;
    }
    Ok(())
}

/// plat-ipam first, then the originals that the machine has.
fn plugins(program: &Path) -> Result<Vec<Plugin>> {
    let installed = Installed::new(program, "host-local").context("a temporary folder for the plugin")?;
    let mut plugins = vec![Plugin {
        title: "plat-ipam".to_owned(),
        program: installed.path().to_owned(),
        spec: "1.1.0",
        folder: "plat",
        _installed: Some(installed),
    }];
    let debian = peers::host_local_debian().map(|program| ("host-local of Debian", program, "1.0.0", "debian"));
    let newest = peers::host_local_newest().map(|program| ("host-local v1.10.0", program, "1.1.0", "newest"));
    for peer in [debian, newest] {
        match peer {
            Ok((title, program, spec, folder)) => {
                plugins.push(Plugin { title: title.to_owned(), program, spec, folder, _installed: None });
            }
            Err(missing) => println!("not measured: {missing}"),
        }
    }
    Ok(plugins)
}

impl Plugin {
    fn config(&self, data: &Path, network: &str) -> String {
        format!(
            r#"{{"cniVersion": "{}", "name": "{network}", "type": "ptp", "ipam": {{"type": "host-local", "dataDir": "{}", "subnet": "{}/{}"}}}}"#,
            self.spec,
            data.display(),
            SUBNET.0,
            SUBNET.1
        )
    }
}

fn address(index: u32) -> Ipv4Addr {
    // The network's own address and the gateway come first.
    Ipv4Addr::from_bits(SUBNET.0.to_bits() + 2 + index)
}

impl Bench<'_> {
    fn data(&self, plugin: &Plugin) -> PathBuf {
        self.folder.join(plugin.folder)
    }

    /// Writes a folder as the original would have left it.
    fn prepare(&self, plugin: &Plugin, held: u32) -> Result<()> {
        let network = self.data(plugin).join(NETWORK);
        std::fs::create_dir_all(&network)?;
        std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o750).open(network.join("lock"))?;
        for index in 0..held {
            hold(&network, address(index), &format!("held-{index}"))?;
        }
        if let Some(last) = held.checked_sub(1) {
            std::fs::write(network.join("last_reserved_ip.0"), address(last).to_string())?;
        }
        Ok(())
    }

    fn call(&self, plugin: &Plugin, command: &str, container: &str) -> Result<Done> {
        let input = plugin.config(&self.data(plugin), NETWORK);
        let call = Call { program: &plugin.program, command, container, input: &input };
        let done = call.run()?;
        ensure!((command == "ADD") != done.output.is_empty(), "{}: no result of {command}", plugin.title);
        Ok(done)
    }

    /// How many addresses are held.
    fn held(&self, plugin: &Plugin) -> Result<u32> {
        let mut held = 0;
        for entry in self.data(plugin).join(NETWORK).read_dir()? {
            if entry?.file_name().to_str().is_some_and(|name| name.parse::<Ipv4Addr>().is_ok()) {
                held += 1;
            }
        }
        Ok(held)
    }
}

/// Writes an address file in host-local's format.
fn hold(network: &Path, address: Ipv4Addr, container: &str) -> Result<()> {
    use std::io::Write as _;
    let path = network.join(address.to_string());
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    file.write_all(format!("{container}\r\neth0").as_bytes()).with_context(|| path.display().to_string())
}

/// How many rounds a number of held addresses gets: the original takes time in proportion to it.
fn rounds(options: &Options, held: u32) -> usize {
    let usual: usize = match held {
        0..500 => 300,
        500..2_000 => 150,
        2_000..10_000 => 60,
        _ => 15,
    };
    options.rounds.unwrap_or(if options.quick { usual.div_ceil(10) } else { usual })
}

/// ADD, CHECK and DEL on folders of several sizes.
fn calls(options: &Options, plugins: &[Plugin], folder: &Path, report: &mut Report) -> Result<()> {
    let mut heading = vec!["call ".to_owned(), "held  ".to_owned(), "rounds".to_owned(), plugins[0].title.clone()];
    for peer in &plugins[1..] {
        heading.push(format!("{:<20}", peer.title));
        heading.push("ratio                  ".to_owned());
        if peer.folder == "debian" {
            heading.push("budget   ".to_owned());
        }
    }
    report.table(&heading.iter().map(String::as_str).collect::<Vec<_>>());
    let mut rebuilds = Vec::new();
    for held in options.held.as_deref().unwrap_or(HELD) {
        let bench = Bench { plugins, folder: folder.join(format!("held-{held}")) };
        for plugin in plugins {
            bench.prepare(plugin, *held)?;
        }
        let foreign = rebuild(options, &bench, *held, &mut rebuilds)?;
        bench.verbs(options, *held, report)?;
        for plugin in plugins {
            let expected = held + if plugin.folder == "plat" { foreign } else { 0 };
            let found = bench.held(plugin)?;
            ensure!(found == expected, "{}: {found} addresses are held at the end, not {expected}", plugin.title);
        }
        // Only the first and the largest are needed again.
        for plugin in &plugins[1..] {
            std::fs::remove_dir_all(bench.data(plugin))?;
        }
    }
    report.line("");
    report.line(
        "plat-ipam keeps an index, and makes it again when another program has changed the folder; an ADD that finds it so takes:",
    );
    report.table(&["held  ", "at first ", "after a foreign change"]);
    for row in rebuilds {
        report.row(&row);
    }
    Ok(())
}

/// Measures an ADD that has to make the index again; returns how many addresses it left behind.
fn rebuild(options: &Options, bench: &Bench<'_>, held: u32, rows: &mut Vec<[String; 3]>) -> Result<u32> {
    let plugin = &bench.plugins[0];
    let network = bench.data(plugin).join(NETWORK);
    let once = |number: u32| -> Result<f64> {
        let container = format!("rebuild-{number}");
        let spent = milliseconds(bench.call(plugin, "ADD", &container)?.time);
        bench.call(plugin, "DEL", &container)?;
        Ok(spent)
    };
    let first = once(0)?;
    let changes = if options.quick { 3 } else { 9 };
    let mut after = Vec::new();
    for number in 1..=changes {
        // From the far end, where no ADD of the benchmark comes.
        hold(&network, Ipv4Addr::from_bits(SUBNET.0.to_bits() + (1 << 18) - 2 - number), "foreign")?;
        after.push(once(number)?);
    }
    let after = Spread::of(after).context("no rebuild")?;
    rows.push([grouped(held.into()), time(first), time(after.median)]);
    Ok(changes)
}

impl Bench<'_> {
    fn verbs(&self, options: &Options, held: u32, report: &mut Report) -> Result<()> {
        const VERBS: [&str; 3] = ["ADD", "CHECK", "DEL"];
        let rounds = rounds(options, held);
        let mut times = vec![[const { Vec::new() }; VERBS.len()]; self.plugins.len()];
        for round in 0..rounds {
            let container = format!("bench-{round}");
            for (number, verb) in VERBS.iter().enumerate() {
                for turn in 0..self.plugins.len() {
                    let index = (turn + round + number) % self.plugins.len();
                    times[index][number].push(milliseconds(self.call(&self.plugins[index], verb, &container)?.time));
                }
            }
        }
        for (number, verb) in VERBS.iter().enumerate() {
            let ours = &times[0][number];
            let mut row = vec![(*verb).to_owned(), grouped(held.into()), rounds.to_string(), median(ours)];
            for (peer, times) in self.plugins.iter().zip(&times).skip(1) {
                let theirs = &times[number];
                let ratios = Spread::of(ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs));
                row.push(median(theirs));
                row.push(ratios.as_ref().map(Spread::as_ratio).unwrap_or_default());
                if peer.folder == "debian" {
                    let budget = ADD_RATIO_MAX.iter().find(|(at, _)| *verb == "ADD" && *at == held);
                    row.push(match (budget, ratios) {
                        (Some((_, most)), Some(ratios)) => verdict(&most.to_string(), ratios.median <= *most),
                        _ => String::new(),
                    });
                }
            }
            report.row(&row);
        }
        Ok(())
    }
}

fn median(times: &[f64]) -> String {
    Spread::of(times.iter().copied()).map(|spread| time(spread.median)).unwrap_or_default()
}

fn verdict(most: &str, is_within: bool) -> String {
    format!("{most} {}", if is_within { "ok" } else { "OVER" })
}

/// Many processes at once on one network.
fn crowd(options: &Options, plugins: &[Plugin], folder: &Path, report: &mut Report) -> Result<()> {
    let rounds = if options.quick { 2 } else { 7 };
    let (processes, adds) = CROWD;
    let mut times = vec![Vec::new(); plugins.len()];
    for round in 0..rounds {
        for turn in 0..plugins.len() {
            let index = (turn + round) % plugins.len();
            let plugin = &plugins[index];
            let input = plugin.config(&folder.join("crowd").join(plugin.folder), &format!("crowd-{round}"));
            let start = Instant::now();
            let results: Vec<Result<Vec<Vec<u8>>>> = std::thread::scope(|scope| {
                let workers: Vec<_> = (0..processes)
                    .map(|worker| {
                        let input = &input;
                        scope.spawn(move || {
                            let mut outputs = Vec::new();
                            for number in 0..adds / processes {
                                let container = format!("crowd-{worker}-{number}");
                                let call =
                                    Call { program: &plugin.program, command: "ADD", container: &container, input };
                                outputs.push(call.run()?.output);
                            }
                            Ok(outputs)
                        })
                    })
                    .collect();
                workers
                    .into_iter()
                    .map(|worker| worker.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a worker panicked"))))
                    .collect()
            });
            times[index].push(milliseconds(start.elapsed()));
            let mut addresses = BTreeSet::new();
            for outputs in results {
                for output in outputs? {
                    let result: serde_json::Value = serde_json::from_slice(&output)?;
                    addresses.insert(result["ips"][0]["address"].as_str().unwrap_or_default().to_owned());
                }
            }
            ensure!(addresses.len() == adds, "{}: {} addresses for {adds} ADDs", plugin.title, addresses.len());
        }
    }
    report.line("");
    report.line(&format!("{adds} ADDs by {processes} processes at once, from an empty network; {rounds} rounds:"));
    report.table(&["plugin              ", "wall time", "plat-ipam's ratio to it"]);
    for (plugin, theirs) in plugins.iter().zip(&times) {
        let ratios = Spread::of(times[0].iter().zip(theirs).map(|(ours, theirs)| ours / theirs));
        let ratios = if plugin.folder == "plat" { None } else { ratios };
        report.row(&[plugin.title.clone(), median(theirs), ratios.map(|ratios| ratios.as_ratio()).unwrap_or_default()]);
    }
    Ok(())
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// Peak memory and size.
fn resources(program: &Path, plugins: &[Plugin], folder: &Path, report: &mut Report) -> Result<()> {
    /// The containers of the measured runs.
    const RUNS: [&str; 5] = ["a", "b", "c", "d", "e"];
    let mut heading = vec![format!("{:<36}", "what")];
    heading.extend(plugins.iter().map(|plugin| format!("{:<9}", plugin.title)));
    heading.push(format!("{:<14}", "budget"));
    report.table(&heading.iter().map(String::as_str).collect::<Vec<_>>());
    for held in [0, 65_000] {
        let mut row = vec![format!("peak memory of an ADD, {} held", grouped(held.into()))];
        let mut ours = None;
        for plugin in plugins {
            let bench = Bench { plugins, folder: folder.join(format!("memory-{held}")) };
            bench.prepare(plugin, held)?;
            let input = plugin.config(&bench.data(plugin), NETWORK);
            let mut call = Call { program: &plugin.program, command: "ADD", container: "first", input: &input };
            call.run()?;
            let mut peak = 0;
            for container in RUNS {
                call.container = container;
                peak = call.peak_memory()?.max(peak);
            }
            std::fs::remove_dir_all(&bench.folder)?;
            ours.get_or_insert(peak);
            row.push(mebibytes(peak));
        }
        row.push(verdict("12 MiB", ours.is_some_and(|peak| peak < MEMORY_BYTES_MAX)));
        report.row(&row);
    }
    let mut row = vec!["size of the program".to_owned()];
    for plugin in plugins {
        row.push(format!("{:.2} MB", plugin.program.metadata()?.len() as f64 / 1e6));
    }
    row.push(verdict("8 MB", program.metadata()?.len() < PROGRAM_BYTES_MAX));
    report.row(&row);
    Ok(())
}

/// Where the time of an ADD by plat-ipam goes.
fn phases(options: &Options, plugin: &Plugin, folder: &Path, report: &mut Report) -> Result<()> {
    let rounds = if options.quick { 20 } else { 200 };
    let all = options.held.as_deref().unwrap_or(HELD);
    let sizes: BTreeSet<u32> = [all.iter().min(), all.iter().max()].into_iter().flatten().copied().collect();
    let mut names: Vec<String> = Vec::new();
    let mut columns = Vec::new();
    let mut nothing = Vec::new();
    for held in &sizes {
        let data = folder.join(format!("held-{held}")).join(plugin.folder);
        let input = plugin.config(&data, NETWORK);
        let mut samples: Vec<Vec<f64>> = Vec::new();
        for round in 0..rounds {
            let container = format!("phases-{round}");
            let call = |command| Call { program: &plugin.program, command, container: &container, input: &input };
            nothing.push(milliseconds(Call { program: Path::new("/usr/bin/true"), ..call("ADD") }.run()?.time) * 1e3);
            let done = call("ADD").run_with_phases()?;
            let mut sum = 0.0;
            let mut found = Vec::new();
            for line in String::from_utf8_lossy(&done.errors).lines() {
                let mut words = line.split(' ');
                if words.next() != Some("plat-timing") {
                    continue;
                }
                let (name, spent) = words.next().zip(words.next()).with_context(|| line.to_owned())?;
                let spent: f64 = spent.parse().with_context(|| line.to_owned())?;
                sum += spent;
                found.push((name.to_owned(), spent));
            }
            found.push(("the process around them".to_owned(), milliseconds(done.time) * 1e3 - sum));
            found.push(("whole".to_owned(), milliseconds(done.time) * 1e3));
            if names.is_empty() {
                names = found.iter().map(|(name, _)| name.clone()).collect();
            }
            ensure!(found.iter().map(|(name, _)| name).eq(&names), "plat-ipam's phases differ from call to call");
            samples.resize(names.len(), Vec::new());
            for (sample, (_, spent)) in samples.iter_mut().zip(found) {
                sample.push(spent);
            }
            call("DEL").run()?;
        }
        columns.push(samples);
    }
    report.line("");
    report.line(&format!(
        "Where the time of an ADD by plat-ipam goes, in microseconds (medians of {rounds}, with `PLAT_TIMING=1`). To \
         start and end a process that does nothing (`/usr/bin/true`) takes {}.",
        Spread::of(nothing).map(|spread| format!("{:.0}", spread.median)).unwrap_or_default()
    ));
    let mut heading = vec![format!("{:<23}", "phase")];
    heading.extend(sizes.iter().map(|held| format!("{} held", grouped((*held).into()))));
    report.table(&heading.iter().map(String::as_str).collect::<Vec<_>>());
    for (number, name) in names.iter().enumerate() {
        let mut row = vec![name.clone()];
        for samples in &columns {
            let spread = Spread::of(samples[number].iter().copied());
            row.push(spread.map(|spread| format!("{:.0}", spread.median)).unwrap_or_default());
        }
        report.row(&row);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subnet_is_large_enough() {
        let last = address(HELD_MAX + ROUNDS_MAX as u32);
        assert_eq!(last.to_bits() >> (32 - SUBNET.1), SUBNET.0.to_bits() >> (32 - SUBNET.1));
    }
}
