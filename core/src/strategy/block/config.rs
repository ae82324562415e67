//! The configuration of the `block` strategy under both of its names: calico-ipam's keys (`calico.md` 3.1), and Plat's own
//! beside them (`docs/configuration.md`).

use crate::cni::failure::{Failure, code};
use crate::cni::result::Route;
use crate::cni::{Backend, LogFile, Personality, SQLITE_PATH_DEFAULT, args};
use crate::json::{Json, Mismatch, Node, go_quote};
use crate::limits;
use crate::net::{Address, Family};
use crate::strategy::ranges::config::{absolute, choice, log_file, parse_request, read_route, read_text, read_within};

/// Where calico-node writes the node's name.
const NODENAME_PATH_DEFAULT: &str = "/var/lib/calico/nodename";

/// Which prefix length an address is answered with, under our own name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Width {
    /// The pool's: everybody in the pool is on one link.
    #[default]
    Pool,
    /// The block's.
    Block,
    /// 32 or 128.
    Host,
}

/// What a call is about, read as far as it can be understood.
#[derive(Clone, Debug, Default)]
pub(crate) struct Config {
    /// Whether an address of the family is wanted.
    pub(crate) v4: bool,
    pub(crate) v6: bool,
    pub(crate) v4_pools: Vec<String>,
    pub(crate) v6_pools: Vec<String>,
    /// Addresses asked for.
    pub(crate) requested: Vec<Address>,
    pub(crate) width: Width,
    pub(crate) gateways: Vec<Address>,
    pub(crate) routes: Vec<Option<Route>>,
    /// Empty: none.
    pub(crate) resolv_conf: String,
    /// Windows: one block at most.
    pub(crate) single_block: bool,
    /// STATUS fails where no address is free.
    pub(crate) fails_status_when_full: bool,
    pub(crate) node: NodeName,
    pub(crate) pod: String,
    pub(crate) namespace: String,
}

/// Where the node's name comes from, in this order; the last resort is the operating system's.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeName {
    pub(crate) nodename: String,
    /// The path of a file with the name.
    pub(crate) file: String,
    pub(crate) hostname: String,
}

/// The part of a configuration that says where things are; it can be read when the rest is broken.
#[derive(Clone, Debug)]
pub(crate) struct Location {
    pub(crate) backend: Backend,
    pub(crate) log: Option<LogFile>,
    pub(crate) lock_wait_ms_max: u64,
}

impl NodeName {
    /// Reads it alone, whatever else is wrong with the configuration.
    pub(crate) fn read(document: &Json) -> Result<Self, Failure> {
        let mut names = Self { file: NODENAME_PATH_DEFAULT.to_owned(), ..Self::default() };
        Node::root(document)
            .members(&["nodename", "nodename_file", "hostname"], |name, node| match name {
                "nodename" => node.string(&mut names.nodename),
                "nodename_file" => node.string(&mut names.file),
                _ => node.string(&mut names.hostname),
            })
            .map_err(|error| refused(error.to_string()))?;
        Ok(names)
    }
}

fn refused(message: String) -> Failure {
    Failure::new(code::INVALID_CONFIG, message)
}

/// Keys that name a datastore of the original's, which an embedded store does not serve.
const DATASTORE_KEYS: [&str; 8] = [
    "datastore_type",
    "etcd_endpoints",
    "etcd_authority",
    "etcd_scheme",
    "etcd_key_file",
    "etcd_cert_file",
    "etcd_ca_cert_file",
    "kubernetes",
];

impl Location {
    /// Reads where the store and the log are, whatever else is wrong with the configuration. What is wrong with the
    /// settings of log and lock comes back beside it, and their defaults are taken.
    ///
    /// # Errors
    /// Without `ipam.store`: the embedded store is used only where the configuration says so, since a real Calico
    /// configuration that was pointed at a file on every node would hand out the same addresses everywhere.
    pub(crate) fn read(document: &Json, working_directory: &str) -> Result<(Self, Option<Failure>), Failure> {
        let mut has_ipam = false;
        let (mut store, mut log_path) = (None, String::new());
        let (mut log_mib, mut lock_wait_seconds) = (limits::LOG_FILE_MIB, limits::LOCK_WAIT_SECONDS);
        let mut datastore_key = None;
        let mut complaint = None;
        let mut keys = vec!["ipam", "log_file_path", "log_file_max_size"];
        keys.extend(DATASTORE_KEYS);
        let read = Node::root(document).members(&keys, |name, node| {
            let mut note = |read: Result<(), Mismatch>| {
                if let Err(why) = read {
                    complaint = Some(refused(why.to_string()));
                }
            };
            match name {
                "ipam" => {
                    has_ipam = *node.value != Json::Null;
                    let known = ["store", "logFile", "logFileMiBMax", "lockWaitSecondsMax"];
                    return node.members(&known, |name, node| {
                        match name {
                            "store" => {
                                let mut text = String::new();
                                node.string(&mut text)?;
                                store = (*node.value != Json::Null).then_some(text);
                            }
                            "logFile" => note(node.string(&mut log_path)),
                            "logFileMiBMax" => note(read_within(&node, &mut log_mib, limits::LOG_FILE_MIB_MAX)),
                            _ => note(read_within(&node, &mut lock_wait_seconds, limits::LOCK_WAIT_SECONDS_MAX)),
                        }
                        Ok(())
                    });
                }
                "log_file_path" => note(node.string(&mut log_path)),
                // The original takes any number: the nearest that we take serves it.
                "log_file_max_size" => note(node.integer().map(|number| {
                    log_mib = number.filter(|number| *number > 0).unwrap_or(log_mib).min(limits::LOG_FILE_MIB_MAX);
                })),
                key => {
                    datastore_key.get_or_insert(key);
                }
            }
            Ok(())
        });
        read.map_err(|error| refused(error.to_string()))?;
        if !has_ipam {
            return Err(Failure::internal("IPAM config missing 'ipam' key"));
        }
        let backend = read_store(store.as_deref(), datastore_key, working_directory)?;
        let log = log_file(&log_path, log_mib, working_directory);
        let lock_wait_ms_max = u64::try_from(lock_wait_seconds).unwrap_or_default() * 1000;
        Ok((Self { backend, log, lock_wait_ms_max }, complaint))
    }
}

fn read_store(store: Option<&str>, datastore_key: Option<&str>, directory: &str) -> Result<Backend, Failure> {
    let Some(store) = store else {
        return Err(match datastore_key {
            Some(key) => refused(format!(
                "{key} names a datastore that this version cannot use: set ipam.store to \"sqlite\", or to \
                 \"sqlite:/path\", if this node's addresses are to be kept on this node alone"
            )),
            None => refused(format!(
                "ipam.store is missing: set it to \"sqlite\" for {SQLITE_PATH_DEFAULT}, or to \"sqlite:/path\""
            )),
        });
    };
    let path = match store.split_once(':') {
        None if store == "sqlite" => SQLITE_PATH_DEFAULT,
        Some(("sqlite", path)) if !path.is_empty() => path,
        _ => {
            return Err(refused(format!(
                "ipam.store is {}: this version knows \"sqlite\" and \"sqlite:/path\"",
                go_quote(store)
            )));
        }
    };
    match absolute(path, directory) {
        Some(path) => Ok(Backend::Sqlite(path)),
        None => Err(refused(format!(
            "ipam.store names the relative path {}, and the working directory is not known: give a whole path",
            go_quote(path)
        ))),
    }
}

/// Reads a word or, under our own name, a truth value: the original takes words alone.
fn read_word(node: Node<'_>, target: &mut String) -> Result<(), Mismatch> {
    match node.value {
        Json::Bool(value) => {
            *target = value.to_string();
            Ok(())
        }
        _ => node.string(target),
    }
}

fn read_gateways(node: Node<'_>, target: &mut Vec<Address>) -> Result<(), Mismatch> {
    let mut texts = Vec::new();
    let path = node.path();
    match node.value {
        Json::List(_) => node.list(&mut texts, |node, text: &mut String| node.string(text))?,
        _ => {
            let mut text = String::new();
            node.string(&mut text)?;
            texts.push(text);
        }
    }
    target.clear();
    for text in texts.iter().filter(|text| !text.is_empty()) {
        let address = Address::parse(text);
        target.push(address.ok_or_else(|| Mismatch(format!("{path} is {}: give an address", go_quote(text))))?);
    }
    Ok(())
}

fn read_ips(node: Node<'_>, target: &mut Vec<Address>) -> Result<(), Mismatch> {
    let mut texts = Vec::new();
    node.list(&mut texts, |node, text: &mut String| node.string(text))?;
    for text in texts {
        target.extend(parse_request(&text).map_err(Mismatch)?);
    }
    Ok(())
}

/// Reads a whole configuration, and what is worth telling about it.
pub(crate) fn load(
    document: &Json,
    cni_args: &str,
    personality: Personality,
) -> Result<(Config, Vec<String>), Failure> {
    let own = personality == Personality::Plat;
    let mut config = Config { node: NodeName::read(document)?, ..Config::default() };
    let (mut assign_v4, mut assign_v6) = (String::new(), String::new());
    let mut width = String::new();
    let mut status_when_full = None;
    let mut warnings = Vec::new();
    let mut more_ips = Vec::new();
    let mut only_own = Vec::new();
    let known = ["windows_use_single_network", "ipam", "runtimeConfig", "args"];
    let read = Node::root(document).members(&known, |name, node| match name {
        "windows_use_single_network" => {
            config.single_block = *node.value == Json::Bool(true);
            Ok(())
        }
        "runtimeConfig" if own => node.members(&["ips"], |_, node| read_ips(node, &mut more_ips)),
        "args" if own => {
            node.members(&["cni"], |_, node| node.members(&["ips"], |_, node| read_ips(node, &mut more_ips)))
        }
        "ipam" => node.members(
            &[
                "assign_ipv4",
                "assign_ipv6",
                "ipv4_pools",
                "ipv6_pools",
                "statusWhenFull",
                "gateway",
                "routes",
                "resolvConf",
                "prefix",
            ],
            |name, node| match name {
                "assign_ipv4" if own => read_word(node, &mut assign_v4),
                "assign_ipv6" if own => read_word(node, &mut assign_v6),
                "assign_ipv4" => node.string(&mut assign_v4),
                "assign_ipv6" => node.string(&mut assign_v6),
                "ipv4_pools" => node.list(&mut config.v4_pools, |node, text| node.string(text)),
                "ipv6_pools" => node.list(&mut config.v6_pools, |node, text| node.string(text)),
                "statusWhenFull" => read_text(node, &mut status_when_full),
                key if !own => {
                    only_own.push(key);
                    Ok(())
                }
                "gateway" => read_gateways(node, &mut config.gateways),
                "routes" => node.list(&mut config.routes, read_route),
                "resolvConf" => node.string(&mut config.resolv_conf),
                _ => node.string(&mut width),
            },
        ),
        _ => Ok(()),
    });
    read.map_err(|error| refused(error.to_string()))?;
    config.v4 = assign_v4 != "false";
    config.v6 = assign_v6 == "true";
    for (key, value, words) in
        [("assign_ipv4", &assign_v4, "\"false\" turns it off"), ("assign_ipv6", &assign_v6, "\"true\" turns it on")]
    {
        if !matches!(value.as_str(), "" | "true" | "false") {
            let text = format!("ipam.{key} is {}: only {words}", go_quote(value));
            if own {
                return Err(refused(text));
            }
            warnings.push(text);
        }
    }
    config.fails_status_when_full =
        choice("statusWhenFull", status_when_full.as_deref(), [("error", true), ("ok", false)], own)?;
    config.width = match width.as_str() {
        "" | "pool" => Width::Pool,
        "block" => Width::Block,
        "host" => Width::Host,
        other => {
            return Err(refused(format!("ipam.prefix is {}: use \"pool\", \"block\" or \"host\"", go_quote(other))));
        }
    };
    for key in only_own {
        warnings.push(format!(
            "ipam.{key} is ignored under the name calico-ipam: install the plugin as plat-ipam to use it"
        ));
    }
    read_args(cni_args, &mut config)?;
    for address in more_ips {
        if !config.requested.contains(&address) {
            config.requested.push(address);
        }
    }
    for family in [Family::V4, Family::V6] {
        if config.requested.iter().filter(|address| address.family() == family).count() > 1 {
            return Err(refused("more than one address of a family is requested: ask for one of each".to_owned()));
        }
    }
    Ok((config, warnings))
}

/// Reads what CNI_ARGS says of the pod, and the address asked for (`calico.md` 3.1).
pub(crate) fn read_args(cni_args: &str, config: &mut Config) -> Result<(), Failure> {
    args::read_each(cni_args, &mut |key, value| {
        match key {
            "IP" => config.requested.extend(parse_request(value)?),
            "K8S_POD_NAME" => value.clone_into(&mut config.pod),
            "K8S_POD_NAMESPACE" => value.clone_into(&mut config.namespace),
            "K8S_POD_INFRA_CONTAINER_ID" => {}
            _ => return Ok(false),
        }
        Ok(true)
    })
    .map_err(Failure::internal)
}
