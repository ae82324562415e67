//! The configuration of the `ranges` strategy: host-local's keys, messages and order of checks (`cni.md` B.1, B.2),
//! and Plat's own keys beside them (`docs/configuration.md`).

use crate::cni::failure::{Failure, code};
use crate::cni::result::{Destination, Route};
use crate::cni::{LogFile, Personality, args, version};
use crate::json::{Json, Mismatch, Node, go_quote};
use crate::limits;
use crate::net::{Address, AddressSet, Count, Family, Prefix, PrefixError, Range};

/// host-local's default for `dataDir`.
pub(crate) const DATA_DIR: &str = "/var/lib/cni/networks";

/// What a repeated ADD gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DuplicateAdd {
    Return,
    Refuse,
}

/// Plat's own settings, with their defaults for a personality.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) duplicate_add: DuplicateAdd,
    pub(crate) reclaims_boots: bool,
    pub(crate) fails_status_when_full: bool,
}

/// One range of a set.
#[derive(Clone, Debug)]
pub(crate) struct SetRange {
    pub(crate) subnet: Prefix,
    pub(crate) range: Range,
    pub(crate) gateway: Option<Address>,
}

impl SetRange {
    pub(crate) fn contains(&self, address: Address) -> bool {
        self.range.contains(address)
    }

    /// The answer for an address of this range carries the length of the subnet.
    pub(crate) fn with_length(&self, address: Address) -> Option<Prefix> {
        Prefix::new(address, self.subnet.length())
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.range.overlaps(&other.range)
    }
}

impl std::fmt::Display for SetRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.range.fmt(f)
    }
}

/// Ranges of one family, of which an ADD gets one address.
#[derive(Clone, Debug)]
pub(crate) struct RangeSet {
    pub(crate) ranges: Vec<SetRange>,
    pub(crate) family: Family,
}

impl RangeSet {
    pub(crate) fn range_for(&self, address: Address) -> Option<&SetRange> {
        self.ranges.iter().find(|range| range.contains(address))
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.ranges.iter().any(|one| other.ranges.iter().any(|two| one.overlaps(two)))
    }
}

impl std::fmt::Display for RangeSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, range) in self.ranges.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            write!(f, "{range}")?;
        }
        Ok(())
    }
}

/// A configuration that passed every check.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) sets: Vec<RangeSet>,
    pub(crate) routes: Vec<Option<Route>>,
    /// Empty: none.
    pub(crate) resolv_conf: String,
    /// Addresses asked for, without repetitions, in the order of their sources.
    pub(crate) requested: Vec<Address>,
    pub(crate) excluded: AddressSet,
    pub(crate) settings: Settings,
}

/// The part of a configuration that says where things are; it can be read when the rest is broken.
#[derive(Clone, Debug)]
pub(crate) struct Location {
    /// The whole path.
    pub(crate) data_dir: String,
    pub(crate) log: Option<LogFile>,
    pub(crate) lock_wait_ms_max: u64,
}

#[derive(Clone, Debug, Default)]
enum RawSubnet {
    #[default]
    Missing,
    Plain(Prefix),
    /// An IPv4 network written as IPv6: the address, and the length of 128 bits.
    Mapped(Address, u8),
}

#[derive(Clone, Debug, Default)]
struct RawRange {
    subnet: RawSubnet,
    start: Option<Address>,
    end: Option<Address>,
    gateway: Option<Address>,
}

/// An entry of `ips`: host-local's parser takes an empty text and stumbles over it later.
#[derive(Clone, Copy, Debug, Default)]
enum RawRequest {
    #[default]
    Nothing,
    Address(Address),
}

#[derive(Clone, Debug, Default)]
struct RawOwn {
    mode: Option<String>,
    duplicate_add: Option<String>,
    reclaim_boot: Option<String>,
    status_when_full: Option<String>,
    exclude: Vec<String>,
    edge_addresses: bool,
    /// Keys that are honoured only under our own name, as they were met.
    own_name_only: Vec<&'static str>,
    /// The first of our keys that has a value of the wrong kind.
    mismatch: Option<Mismatch>,
}

#[derive(Clone, Debug, Default)]
struct Raw {
    has_ipam: bool,
    old_style: RawRange,
    ranges: Vec<Vec<RawRange>>,
    routes: Vec<Option<Route>>,
    resolv_conf: String,
    runtime_ranges: Vec<Vec<RawRange>>,
    runtime_ips: Vec<RawRequest>,
    args_ips: Vec<RawRequest>,
    own: RawOwn,
}

fn read_prefix(node: Node<'_>, target: &mut RawSubnet) -> Result<(), Mismatch> {
    let mut text = String::new();
    node.string(&mut text)?;
    *target = match Prefix::parse(&text) {
        Ok(prefix) => RawSubnet::Plain(prefix),
        Err(PrefixError::MappedV4 { address, length }) => RawSubnet::Mapped(address, length),
        Err(PrefixError::Invalid) => return Err(Mismatch(format!("invalid CIDR address: {text}"))),
    };
    Ok(())
}

fn read_address(node: Node<'_>, target: &mut Option<Address>) -> Result<(), Mismatch> {
    let mut text = String::new();
    node.string(&mut text)?;
    *target = match text.as_str() {
        "" => None,
        text => Some(Address::parse(text).ok_or_else(|| Mismatch(format!("invalid IP address: {text}")))?),
    };
    Ok(())
}

/// Reads an address with or without a prefix length; none for an empty text.
pub(crate) fn parse_request(text: &str) -> Result<Option<Address>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let address = if text.contains('/') {
        match Prefix::parse(text) {
            Ok(prefix) => Some(prefix.base()),
            Err(PrefixError::MappedV4 { address, .. }) => Some(address),
            Err(PrefixError::Invalid) => None,
        }
    } else {
        Address::parse(text)
    };
    address.map(Some).ok_or_else(|| format!("invalid IP address {text}"))
}

fn read_request(node: Node<'_>, target: &mut RawRequest) -> Result<(), Mismatch> {
    if *node.value == Json::Null {
        return Err(Mismatch(format!("field {} is null: give an address, or leave the entry out", node.path())));
    }
    let mut text = String::new();
    node.string(&mut text)?;
    *target = parse_request(&text).map_err(Mismatch)?.map_or(RawRequest::Nothing, RawRequest::Address);
    Ok(())
}

const RANGE_KEYS: [&str; 4] = ["rangeStart", "rangeEnd", "subnet", "gateway"];

fn read_range_member(name: &str, node: Node<'_>, range: &mut RawRange) -> Result<(), Mismatch> {
    match name {
        "rangeStart" => read_address(node, &mut range.start),
        "rangeEnd" => read_address(node, &mut range.end),
        "subnet" => read_prefix(node, &mut range.subnet),
        _ => read_address(node, &mut range.gateway),
    }
}

fn read_sets(node: Node<'_>, sets: &mut Vec<Vec<RawRange>>) -> Result<(), Mismatch> {
    node.list(sets, |node, set| {
        node.list(set, |node, range| node.members(&RANGE_KEYS, |name, node| read_range_member(name, node, range)))
    })
}

pub(crate) fn read_route(node: Node<'_>, target: &mut Option<Route>) -> Result<(), Mismatch> {
    *target = None;
    if *node.value == Json::Null {
        return Ok(());
    }
    let mut route =
        Route { advmss: 0, dst: Destination(None), gw: None, mtu: 0, priority: 0, scope: None, table: None };
    node.members(&["dst", "gw", "mtu", "advmss", "priority", "table", "scope"], |name, node| {
        let number = |target: &mut i64| node.integer().map(|number| *target = number.unwrap_or(*target));
        match name {
            "dst" => {
                let mut subnet = RawSubnet::Missing;
                read_prefix(node, &mut subnet)?;
                route.dst = Destination(match subnet {
                    RawSubnet::Missing => None,
                    RawSubnet::Plain(prefix) => Some(prefix),
                    // Printed by Go with what the mask leaves for 32 bits.
                    RawSubnet::Mapped(address, length) => Prefix::new(address, length.saturating_sub(96)),
                });
                Ok(())
            }
            "gw" => read_address(node, &mut route.gw),
            "mtu" => number(&mut route.mtu),
            "advmss" => number(&mut route.advmss),
            "priority" => number(&mut route.priority),
            "table" => node.integer().map(|number| route.table = number),
            _ => node.integer().map(|number| route.scope = number),
        }
    })?;
    *target = Some(route);
    Ok(())
}

pub(crate) fn read_text(node: Node<'_>, target: &mut Option<String>) -> Result<(), Mismatch> {
    let mut text = String::new();
    node.string(&mut text)?;
    *target = (*node.value != Json::Null).then_some(text);
    Ok(())
}

const IPAM_KEYS: [&str; 16] = [
    "rangeStart",
    "rangeEnd",
    "subnet",
    "gateway",
    "name",
    "type",
    "routes",
    "dataDir",
    "resolvConf",
    "ranges",
    "mode",
    "duplicateAdd",
    "reclaimBoot",
    "statusWhenFull",
    "exclude",
    "edgeAddresses",
];

impl Raw {
    fn read(document: &Json) -> Result<Self, Mismatch> {
        let mut raw = Self::default();
        Node::root(document).members(
            &["name", "cniVersion", "ipam", "runtimeConfig", "args"],
            |name, node| match name {
                "name" | "cniVersion" => node.string(&mut String::new()),
                "ipam" => raw.read_ipam(node),
                "runtimeConfig" => node.members(&["ipRanges", "ips"], |name, node| match name {
                    "ipRanges" => read_sets(node, &mut raw.runtime_ranges),
                    _ => node.list(&mut raw.runtime_ips, read_request),
                }),
                _ => node.members(&["cni"], |_, node| {
                    node.members(&["ips"], |_, node| node.list(&mut raw.args_ips, read_request))
                }),
            },
        )?;
        Ok(raw)
    }

    fn read_ipam(&mut self, node: Node<'_>) -> Result<(), Mismatch> {
        self.has_ipam = *node.value != Json::Null;
        if !self.has_ipam {
            self.old_style = RawRange::default();
            self.ranges.clear();
            self.routes.clear();
            self.resolv_conf.clear();
            self.own = RawOwn::default();
        }
        let Self { old_style, ranges, routes, resolv_conf, own, .. } = self;
        node.members(&IPAM_KEYS, |name, node| match name {
            "name" | "type" | "dataDir" => node.string(&mut String::new()),
            "resolvConf" => node.string(resolv_conf),
            "routes" => node.list(routes, read_route),
            "ranges" => read_sets(node, ranges),
            range_key if RANGE_KEYS.contains(&range_key) => read_range_member(range_key, node, old_style),
            own_key => {
                if let Err(mismatch) = own.read(own_key, node) {
                    own.mismatch.get_or_insert(mismatch);
                }
                Ok(())
            }
        })
    }
}

/// Reads a setting that is one of two words.
pub(crate) fn choice<T: Copy>(key: &str, value: Option<&str>, words: [(&str, T); 2], default: T) -> Result<T, Failure> {
    let Some(value) = value else { return Ok(default) };
    let [(one, _), (two, _)] = words;
    words.iter().find(|(word, _)| *word == value).map(|(_, meaning)| *meaning).ok_or_else(|| {
        Failure::new(code::INVALID_CONFIG, format!("ipam.{key} is {}: use \"{one}\" or \"{two}\"", go_quote(value)))
    })
}

impl RawOwn {
    fn read(&mut self, key: &'static str, node: Node<'_>) -> Result<(), Mismatch> {
        match key {
            "mode" => read_text(node, &mut self.mode),
            "duplicateAdd" => read_text(node, &mut self.duplicate_add),
            "reclaimBoot" => read_text(node, &mut self.reclaim_boot),
            "statusWhenFull" => read_text(node, &mut self.status_when_full),
            "exclude" => {
                self.own_name_only.push(key);
                node.list(&mut self.exclude, |node, text| node.string(text))
            }
            _ => {
                self.own_name_only.push(key);
                match node.value {
                    Json::Bool(value) => self.edge_addresses = *value,
                    Json::Null => {}
                    _ => return Err(node.mismatch("true or false")),
                }
                Ok(())
            }
        }
    }

    fn settings(&self, personality: Personality) -> Result<Settings, Failure> {
        let own = personality == Personality::Plat;
        Ok(Settings {
            duplicate_add: choice(
                "duplicateAdd",
                self.duplicate_add.as_deref(),
                [("return", DuplicateAdd::Return), ("refuse", DuplicateAdd::Refuse)],
                if own { DuplicateAdd::Return } else { DuplicateAdd::Refuse },
            )?,
            reclaims_boots: choice(
                "reclaimBoot",
                self.reclaim_boot.as_deref(),
                [("onFull", true), ("never", false)],
                true,
            )?,
            fails_status_when_full: choice(
                "statusWhenFull",
                self.status_when_full.as_deref(),
                [("error", true), ("ok", false)],
                own,
            )?,
        })
    }

    fn excluded(&self) -> Result<AddressSet, Failure> {
        if self.exclude.len() > limits::EXCLUDES_MAX {
            return Err(Failure::new(
                code::INVALID_CONFIG,
                format!(
                    "ipam.exclude has {} entries: at most {} are taken; join neighbouring addresses into ranges",
                    self.exclude.len(),
                    limits::EXCLUDES_MAX
                ),
            ));
        }
        let mut ranges = Vec::with_capacity(self.exclude.len());
        for text in &self.exclude {
            let range = match (text.split_once('-'), Prefix::parse(text)) {
                (_, Ok(prefix)) => Some(prefix.range()),
                (Some((first, last)), _) => match (Address::parse(first.trim()), Address::parse(last.trim())) {
                    (Some(first), Some(last)) => Range::new(first, last),
                    _ => None,
                },
                (None, _) => Address::parse(text).map(Range::from),
            };
            ranges.push(range.ok_or_else(|| {
                Failure::new(
                    code::INVALID_CONFIG,
                    format!(
                        "ipam.exclude has the entry {}: give an address, a CIDR, or \"first-last\"",
                        go_quote(text)
                    ),
                )
            })?);
        }
        Ok(AddressSet::from_ranges(ranges))
    }
}

/// How the subnet's first and last addresses are treated.
#[derive(Clone, Copy)]
struct Edges {
    /// Subnets of one or two addresses are taken.
    small_subnets: bool,
    /// The default range runs over the whole subnet.
    whole: bool,
}

/// What Go prints of a network whose mask is longer than its address.
fn mapped_text(address: Address, length: u8) -> String {
    format!("{address}/{}", length.saturating_sub(96))
}

impl RawRange {
    /// Checks a range and fills in its defaults, in host-local's order.
    fn check(&self, edges: Edges) -> Result<SetRange, String> {
        let subnet = match self.subnet {
            RawSubnet::Missing => return Err("IP <nil> not v4 nor v6".into()),
            RawSubnet::Plain(subnet) => subnet,
            RawSubnet::Mapped(address, length) if length > 126 => {
                return Err(format!("Network {} too small to allocate from", mapped_text(address, length)));
            }
            RawSubnet::Mapped(..) => return Err("IPNet IP and Mask version mismatch".into()),
        };
        let bits = subnet.family().bits();
        let host_bits = bits.saturating_sub(subnet.length());
        if host_bits < 2 && !edges.small_subnets {
            return Err(format!("Network {subnet} too small to allocate from"));
        }
        let network = subnet.network();
        if subnet.has_host_bits() {
            return Err(format!(
                "Network has host bits set. For a subnet mask of length {} the network address is {network}",
                subnet.length()
            ));
        }
        let after_network = network.next().unwrap_or(network);
        // In a subnet of one or two addresses the gateway has to lie outside, or the subnet has no room for it.
        if let Some(gateway) = self.gateway.filter(|gateway| host_bits >= 2 && !subnet.contains(*gateway)) {
            return Err(format!("gateway {gateway} not in network {subnet}"));
        }
        let gateway = self.gateway.or(match host_bits {
            0 => None,
            1 => Some(network),
            _ => Some(after_network),
        });
        let inside = |address: Address, start: Option<Address>, end: Option<Address>| {
            subnet.contains(address)
                && start.is_none_or(|start| start.family() != address.family() || address >= start)
                && end.is_none_or(|end| end.family() != address.family() || address <= end)
        };
        let whole = edges.whole || host_bits < 2;
        let start = match self.start {
            Some(start) if !inside(start, None, self.end) => {
                return Err(format!("RangeStart {start} not in network {subnet}"));
            }
            Some(start) => start,
            None if whole => network,
            None => after_network,
        };
        let end = match self.end {
            Some(end) if !inside(end, Some(start), None) => {
                return Err(format!("RangeEnd {end} not in network {subnet}"));
            }
            Some(end) => end,
            None if whole || subnet.family() == Family::V6 => subnet.last(),
            None => subnet.last().previous().unwrap_or(network),
        };
        let range = Range::new(start, end)
            .ok_or_else(|| format!("RangeStart {start} is after RangeEnd {end} in network {subnet}"))?;
        Ok(SetRange { subnet, range, gateway })
    }
}

fn check_set(raw: &[RawRange], edges: Edges) -> Result<RangeSet, String> {
    let mut ranges: Vec<SetRange> = Vec::with_capacity(raw.len());
    for range in raw {
        let range = range.check(edges)?;
        if ranges.first().is_some_and(|first| first.subnet.family() != range.subnet.family()) {
            return Err("mixed address families".into());
        }
        ranges.push(range);
    }
    let family = ranges.first().map(|range| range.subnet.family()).ok_or("empty range set")?;
    for (index, one) in ranges.iter().enumerate() {
        for two in ranges.iter().skip(index + 1) {
            if one.overlaps(two) {
                return Err(format!("subnets {one} and {two} overlap"));
            }
        }
    }
    Ok(RangeSet { ranges, family })
}

/// What a configuration gave, and what is worth telling about it.
pub(crate) struct Loaded {
    pub(crate) config: Config,
    pub(crate) warnings: Vec<String>,
}

/// Reads and checks a whole configuration.
pub(crate) fn load(document: &Json, cni_args: &str, personality: Personality) -> Result<Loaded, Failure> {
    let raw = Raw::read(document).map_err(|error| Failure::internal(error.to_string()))?;
    if !raw.has_ipam {
        return Err(Failure::internal("IPAM config missing 'ipam' key"));
    }
    if let Some(mismatch) = &raw.own.mismatch {
        return Err(Failure::new(code::INVALID_CONFIG, mismatch.to_string()));
    }
    check_mode(&raw.own, personality)?;
    if let (_, Some(complaint)) = Location::read(document, "/")? {
        return Err(complaint);
    }
    let settings = raw.own.settings(personality)?;
    let mut requests = Vec::new();
    requests.extend(args::read(cni_args, parse_request).map_err(Failure::internal)?.map(RawRequest::Address));
    requests.extend(raw.args_ips.iter().chain(&raw.runtime_ips));
    if requests.len() > limits::REQUESTS_MAX {
        return Err(Failure::new(
            code::INVALID_CONFIG,
            format!(
                "{} addresses are requested: each range set gives one, and at most {} are taken",
                requests.len(),
                limits::REQUESTS_MAX
            ),
        ));
    }
    let mut requested = Vec::new();
    for request in requests {
        match request {
            RawRequest::Nothing => {
                return Err(Failure::internal("cannot understand ip: IP <nil> not v4 nor v6"));
            }
            RawRequest::Address(address) if requested.contains(&address) => {}
            RawRequest::Address(address) => requested.push(address),
        }
    }
    let mut sets: Vec<&[RawRange]> = raw.runtime_ranges.iter().map(Vec::as_slice).collect();
    if !matches!(raw.old_style.subnet, RawSubnet::Missing) {
        sets.push(std::slice::from_ref(&raw.old_style));
    }
    sets.extend(raw.ranges.iter().map(Vec::as_slice));
    if sets.is_empty() {
        return Err(Failure::internal("no IP ranges specified"));
    }
    let total: usize = sets.iter().map(|set| set.len()).sum();
    if total > limits::RANGES_MAX || sets.len() > limits::RANGES_MAX {
        return Err(Failure::new(
            code::INVALID_CONFIG,
            format!("the configuration has {total} ranges: at most {} are taken", limits::RANGES_MAX),
        ));
    }
    let own_name = personality == Personality::Plat;
    let edges = Edges { small_subnets: own_name, whole: own_name && raw.own.edge_addresses };
    let mut checked = Vec::with_capacity(sets.len());
    for (index, set) in sets.iter().enumerate() {
        let set =
            check_set(set, edges).map_err(|why| Failure::internal(format!("invalid range set {index}: {why}")))?;
        checked.push(set);
    }
    check_families(document, &checked)?;
    for (index, one) in checked.iter().enumerate() {
        for (distance, two) in checked.iter().skip(index + 1).enumerate() {
            if one.overlaps(two) {
                return Err(Failure::internal(format!("range set {index} overlaps with {}", index + distance + 1)));
            }
        }
    }
    let mut warnings = Vec::new();
    let excluded = if own_name {
        raw.own.excluded()?
    } else {
        for key in &raw.own.own_name_only {
            warnings.push(format!(
                "ipam.{key} is ignored under the name host-local: install the plugin as plat-ipam to use it"
            ));
        }
        AddressSet::from_ranges([])
    };
    let config =
        Config { sets: checked, routes: raw.routes, resolv_conf: raw.resolv_conf, requested, excluded, settings };
    Ok(Loaded { config, warnings })
}

fn check_mode(own: &RawOwn, personality: Personality) -> Result<(), Failure> {
    match (personality, own.mode.as_deref()) {
        (Personality::HostLocal, None) | (_, Some("ranges")) => Ok(()),
        // calico-ipam is of another strategy and does not come here.
        (Personality::CalicoIpam, _) => Ok(()),
        (_, Some(mode)) => Err(Failure::new(
            code::INVALID_CONFIG,
            format!("ipam.mode is {}: this version knows \"ranges\" and \"block\"", go_quote(mode)),
        )),
        (Personality::Plat, None) => Err(Failure::new(
            code::INVALID_CONFIG,
            "ipam.mode is missing: set it to \"ranges\" or \"block\", or install the plugin under the name of the one it \
             replaces, host-local or calico-ipam",
        )),
    }
}

/// Below 0.3.0 a result holds one address of each family.
fn check_families(document: &Json, sets: &[RangeSet]) -> Result<(), Failure> {
    let written = version::written(document)?;
    let count = |family| sets.iter().filter(|set| set.family == family).count();
    let too_many = count(Family::V4) > 1 || count(Family::V6) > 1;
    if too_many && !version::numbers(&written).is_ok_and(|numbers| numbers >= (0, 3, 0)) {
        return Err(Failure::internal(format!(
            "CNI version {written} does not support more than 1 address per family"
        )));
    }
    Ok(())
}

impl Location {
    /// Reads where the store and the log are, whatever else is wrong with the configuration. What is wrong with the
    /// settings of log and lock comes back beside it, and their defaults are taken.
    pub(crate) fn read(document: &Json, working_directory: &str) -> Result<(Self, Option<Failure>), Failure> {
        let mut has_ipam = false;
        let mut data_dir = String::new();
        let mut log_path = String::new();
        let mut log_mib = limits::LOG_FILE_MIB;
        let mut lock_wait_seconds = limits::LOCK_WAIT_SECONDS;
        let mut complaint = None;
        Node::root(document)
            .members(&["ipam"], |_, node| {
                has_ipam = *node.value != Json::Null;
                node.members(&["dataDir", "logFile", "logFileMiBMax", "lockWaitSecondsMax"], |name, node| {
                    let read = match name {
                        "dataDir" => return node.string(&mut data_dir),
                        "logFile" => node.string(&mut log_path),
                        "logFileMiBMax" => read_within(&node, &mut log_mib, limits::LOG_FILE_MIB_MAX),
                        _ => read_within(&node, &mut lock_wait_seconds, limits::LOCK_WAIT_SECONDS_MAX),
                    };
                    if let Err(why) = read {
                        complaint = Some(Failure::new(code::INVALID_CONFIG, why.to_string()));
                    }
                    Ok(())
                })
            })
            .map_err(|error| Failure::internal(error.to_string()))?;
        if !has_ipam {
            return Err(Failure::internal("IPAM config missing 'ipam' key"));
        }
        if data_dir.is_empty() {
            data_dir = DATA_DIR.into();
        }
        let log = log_file(&log_path, log_mib, working_directory);
        let Some(data_dir) = absolute(&data_dir, working_directory) else {
            return Err(Failure::internal(format!("mkdir {data_dir}: no such file or directory")).with_details(
                "a relative dataDir starts at the working directory, which is not known: give a whole path",
            ));
        };
        let lock_wait_ms_max = u64::try_from(lock_wait_seconds).unwrap_or_default() * 1000;
        Ok((Self { data_dir, log, lock_wait_ms_max }, complaint))
    }
}

/// Reads a number from 1 to `max`; `null` leaves the target alone.
pub(crate) fn read_within(node: &Node<'_>, target: &mut i64, max: i64) -> Result<(), Mismatch> {
    let number = node.integer()?.unwrap_or(*target);
    if !(1..=max).contains(&number) {
        return Err(Mismatch(format!("{} is {number}: give a number from 1 to {max}", node.path())));
    }
    *target = number;
    Ok(())
}

/// The log file of a configuration; none if it names none.
pub(crate) fn log_file(path: &str, mib: i64, working_directory: &str) -> Option<LogFile> {
    let bytes_max = u64::try_from(mib).unwrap_or_default() << 20;
    absolute(path, working_directory).filter(|_| !path.is_empty()).map(|path| LogFile { path, bytes_max })
}

/// Completes a relative path; none if the working directory is not known.
pub(crate) fn absolute(path: &str, working_directory: &str) -> Option<String> {
    if path.starts_with('/') {
        return Some(path.into());
    }
    working_directory.starts_with('/').then(|| format!("{}/{path}", working_directory.trim_end_matches('/')))
}

/// How many addresses a set can give out: its ranges without their gateways and what is excluded.
pub(crate) fn capacity(pieces: &[Range]) -> Count {
    pieces.iter().fold(Count::from(0u64), |sum, piece| sum.checked_add(piece.len()).unwrap_or(sum))
}
