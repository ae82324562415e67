//! What the program says of itself to a person.

use std::ffi::OsStr;
use std::process::ExitCode;

/// The kinds of store that this build can open.
pub(crate) const STORES: &[&str] = &["directory", "sqlite"];

const HELP: &str = "\
plat-ipam: assigns IP addresses to containers (CNI IPAM plugin)

A container runtime starts it with the CNI variables in the environment and the network configuration on standard
input. Under the name host-local it takes host-local's place: same configuration, same files, same answers. Under the
name calico-ipam it takes calico-ipam's configuration and keeps pools, blocks and handles in a SQLite file.

Install in place of host-local (go back by moving the file back; the addresses stay):
  cd /opt/cni/bin
  mv host-local host-local.original
  install -m 755 /path/to/plat-ipam host-local

Environment:
  CNI_COMMAND      ADD, DEL, CHECK, GC, STATUS or VERSION
  CNI_CONTAINERID, CNI_NETNS, CNI_IFNAME, CNI_ARGS, CNI_PATH
                   as the CNI specification says
  PLAT_LOG         what to write to standard error: error, warn (default), info, debug
  PLAT_TIMING=1    write the time of each phase to standard error

Configuration, beside host-local's ranges, routes, resolvConf and dataDir, all in \"ipam\":
  mode               under the name plat-ipam: \"ranges\" or \"block\"
  exclude            addresses, prefixes and ranges never given out (plat-ipam only)
  duplicateAdd       a repeated ADD: \"return\" the same addresses or \"refuse\"
  statusWhenFull     STATUS of a full network: \"ok\" or \"error\"
  reclaimBoot        free addresses of before a reboot: \"onFull\" or \"never\"
  lockWaitSecondsMax how long to wait for other calls
  logFile            a file to log to beside standard error
With mode \"block\", and as calico-ipam:
  store              \"sqlite\" or \"sqlite:/path\"; required
  assign_ipv4, assign_ipv6, ipv4_pools, ipv6_pools
                     as calico-ipam's
  prefix, gateway    the answer's length (\"pool\", \"block\", \"host\") and gateway (plat-ipam only)
All keys: docs/configuration.md.

Files:
  /var/lib/cni/networks/NETWORK        one file for each address (host-local's format)
  /var/lib/cni/networks/.plat/NETWORK  index and history of NETWORK; may be removed
  /var/lib/plat/ipam.db                pools and blocks (SQLite), where ipam.store is \"sqlite\"; -wal, -shm and .lock
                                       beside it belong to it

Try it:
  CNI_COMMAND=VERSION plat-ipam
";

/// Answers a command line with an argument.
pub(crate) fn answer(argument: &OsStr) -> ExitCode {
    match argument.to_str() {
        Some("--help" | "-h") => print!("{HELP}"),
        Some("--version" | "-V") => print!("{}", version()),
        _ => {
            eprintln!(
                "plat-ipam takes no arguments but --help and --version: a runtime calls it with CNI_COMMAND in the \
                 environment, not {}",
                argument.display()
            );
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn version() -> String {
    format!(
        "plat-ipam {}\nCNI specifications: {}\nallocation core: sha256 {}\nstores: {}\n",
        env!("CARGO_PKG_VERSION"),
        plat_core::cni::VERSIONS_SUPPORTED.join(", "),
        plat_runtime::CORE_SHA256,
        STORES.join(", ")
    )
}
