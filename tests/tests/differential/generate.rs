//! Makes random sequences. Each has a small world of its own (a few ranges that fill up, a few containers, one or two
//! networks), in which its calls differ now and then by a version, a request, a changed range or a wrong value.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use plat_tests::random::Random;

use crate::sequence::{By, CallStep, Config, FOLDER, Foreign, Input, Range, Step, quoted};

/// Calls and changes in one sequence.
const STEPS_MIN: usize = 8;
const STEPS_MAX: usize = 14;

/// Every version of the specification.
const VERSIONS: [&str; 7] = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

/// What a sequence may contain.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Calls may have the default dataDir: the caller has put something over it.
    pub(crate) default_folder: bool,
    /// The network namespace of the test exists under this path.
    pub(crate) own_netns: bool,
}

/// A range in numbers.
#[derive(Debug, Clone, Copy)]
struct Span {
    v4: bool,
    subnet: u128,
    length: u8,
    start: Option<u128>,
    end: Option<u128>,
    gateway: Option<u128>,
}

fn text(v4: bool, bits: u128) -> String {
    if v4 { Ipv4Addr::from_bits(bits as u32).to_string() } else { Ipv6Addr::from_bits(bits).to_string() }
}

impl Span {
    fn last(&self) -> u128 {
        let bits = if self.v4 { 32 } else { 128 };
        self.subnet + ((1u128 << (bits - self.length)) - 1)
    }

    /// First and last address of the range, as the original fills them in.
    fn bounds(&self) -> (u128, u128) {
        let end = if self.v4 { self.last() - 1 } else { self.last() };
        (self.start.unwrap_or(self.subnet + 1), self.end.unwrap_or(end))
    }

    fn range(&self) -> Range {
        let address = |bits: Option<u128>| bits.map(|bits| quoted(text(self.v4, bits)));
        Range {
            subnet: Some(quoted(format!("{}/{}", text(self.v4, self.subnet), self.length))),
            start: address(self.start),
            end: address(self.end),
            gateway: address(self.gateway),
        }
    }

    /// Addresses worth asking for, some of them just outside.
    fn candidates(&self) -> Vec<String> {
        let (start, end) = self.bounds();
        let mut all: Vec<u128> = (0..5).map(|i| start.saturating_add(i)).collect();
        all.extend([self.subnet, self.subnet + 1, end, end + 1, self.last()]);
        all.extend(self.gateway);
        all.into_iter().map(|bits| text(self.v4, bits)).collect()
    }
}

/// Which sets a configuration has.
#[derive(Debug, Clone)]
struct Shape {
    sets: Vec<Vec<Span>>,
    /// The first so many sets come from runtimeConfig.
    runtime: usize,
    /// The set after these is written in the old style.
    old_style: bool,
}

impl Shape {
    fn set_of(&self, address: &str) -> Option<usize> {
        let (v4, bits) = match address.parse().ok()? {
            IpAddr::V4(ip) => (true, u128::from(ip.to_bits())),
            IpAddr::V6(ip) => (false, ip.to_bits()),
        };
        self.sets.iter().position(|set| {
            set.iter().any(|span| {
                let (start, end) = span.bounds();
                span.v4 == v4 && start <= bits && bits <= end
            })
        })
    }

    fn candidates(&self) -> Vec<String> {
        self.sets.iter().flatten().flat_map(Span::candidates).collect()
    }
}

struct World {
    networks: Vec<&'static str>,
    containers: Vec<&'static str>,
    ifnames: Vec<&'static str>,
    version: &'static str,
    shapes: Vec<Shape>,
}

/// The sequence `number` of `seed`.
pub(crate) fn sequence(seed: u64, number: u64, limits: Limits) -> Vec<Step> {
    let random = &mut Random::new(seed, number);
    let world = world(random);
    let length = STEPS_MIN + random.below(STEPS_MAX - STEPS_MIN + 1);
    (0..length)
        .map(|_| match random.below(100) {
            0..=11 => Step::Foreign(foreign(random, &world)),
            _ => Step::Call(Box::new(call(random, &world, limits))),
        })
        .collect()
}

fn world(random: &mut Random) -> World {
    let shapes = (0..2).map(|_| shape(random)).collect();
    World {
        networks: if random.percent(80) { vec!["net1"] } else { vec!["net1", "net-2.x_y"] },
        containers: ["c1", "c2", "c3", "C4.x-y_z", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"]
            [..2 + random.below(4)]
            .to_vec(),
        ifnames: if random.percent(70) { vec!["eth0"] } else { vec!["eth0", "net1-if"] },
        version: VERSIONS[2 + random.below(5)],
        shapes,
    }
}

fn shape(random: &mut Random) -> Shape {
    let families: &[bool] = match random.below(10) {
        0..=3 => &[true],
        4 => &[false],
        5..=7 => &[true, false],
        8 => &[true, true],
        _ => &[false, true, true],
    };
    let mut place = 0;
    let sets: Vec<Vec<Span>> = families
        .iter()
        .map(|&v4| {
            if random.percent(15) {
                return disjoint(random, v4, &mut place);
            }
            let count = *random.pick(&[1, 1, 1, 2, 3]);
            (0..count).map(|_| span(random, v4, &mut place)).collect()
        })
        .collect();
    let runtime = if random.percent(15) { random.below(sets.len() + 1) } else { 0 };
    let old_style = random.percent(40) && sets.get(runtime).is_some_and(|set| set.len() == 1);
    Shape { sets, runtime, old_style }
}

fn base(v4: bool, place: &mut u128) -> u128 {
    *place += 1;
    if v4 { 0x0a01_0000 + *place * 0x1_0000 } else { (0xfd00_u128 << 112) + (*place << 64) }
}

fn span(random: &mut Random, v4: bool, place: &mut u128) -> Span {
    let subnet = base(v4, place);
    let wide: u8 = if v4 { 24 } else { 64 };
    let bits: u8 = if v4 { 32 } else { 128 };
    let mut span = Span { v4, subnet, length: wide, start: None, end: None, gateway: None };
    match random.below(9) {
        0 => span.length = bits - 2,
        1 | 2 => span.length = bits - 3,
        3 => {
            span.start = Some(subnet + 10);
            span.end = Some(subnet + 10 + random.below(5) as u128);
        }
        // The last addresses of the subnet.
        4 => span.start = Some(span.last() - 4),
        5 => span.end = Some(subnet + 2 + random.below(4) as u128),
        // The bounds of the subnet, given explicitly.
        6 => {
            span.length = bits - 3;
            span.start = Some(subnet);
            span.end = Some(span.last());
        }
        // Across the end of an octet or a group.
        7 => {
            span.length = if v4 { 16 } else { 64 };
            let middle = if v4 { 0x100 } else { 0x1_0000 };
            span.start = Some(subnet + middle - 2);
            span.end = Some(subnet + middle + 1);
        }
        _ => span.length = bits - 4,
    }
    if random.percent(30) {
        let (start, end) = span.bounds();
        span.gateway = Some(*random.pick(&[start, end, start + 1, span.subnet, span.last(), span.subnet + 1]));
    }
    span
}

/// A set of two ranges of one subnet, in any order.
fn disjoint(random: &mut Random, v4: bool, place: &mut u128) -> Vec<Span> {
    let subnet = base(v4, place);
    let length = if v4 { 24 } else { 64 };
    let part = |start: u128, end: u128| Span {
        v4,
        subnet,
        length,
        start: Some(subnet + start),
        end: Some(subnet + end),
        gateway: None,
    };
    let mut set = vec![part(1, 3), part(0x20, 0x21)];
    if random.percent(50) {
        set.reverse();
    }
    set
}

fn config(random: &mut Random, world: &World, shape: &Shape) -> Config {
    let set = |set: &Vec<Span>| set.iter().map(Span::range).collect::<Vec<_>>();
    let (runtime, rest) = shape.sets.split_at(shape.runtime);
    let (old, rest) = if shape.old_style { rest.split_at(1) } else { rest.split_at(0) };
    Config {
        name: Some(quoted(random.pick(&world.networks))),
        version: Some(quoted(world.version)),
        old_style: old.first().map(|set| set[0].range()),
        ranges: (!rest.is_empty()).then(|| rest.iter().map(set).collect()),
        runtime_ranges: runtime.iter().map(set).collect(),
        data_dir: Some(quoted(format!("{FOLDER}/store"))),
        ..Config::default()
    }
}

fn call(random: &mut Random, world: &World, limits: Limits) -> CallStep {
    let by = if random.percent(75) { By::Subject } else { By::Original };
    let shape = if random.percent(85) { &world.shapes[0] } else { &world.shapes[1] };
    let mut config = config(random, world, shape);
    let command = match random.below(100) {
        0..=54 => "ADD",
        55..=78 => "DEL",
        79..=90 => "CHECK",
        91..=95 => "GC",
        96..=97 => "STATUS",
        _ => "VERSION",
    };
    let mut step = CallStep {
        by,
        command: Some(command.into()),
        container: Some((*random.pick(&world.containers)).into()),
        ifname: Some((*random.pick(&world.ifnames)).into()),
        netns: Some("/run/netns/plat-none".into()),
        path: Some("/usr/lib/cni".into()),
        args: None,
        netns_override: None,
        input: Input::Raw(String::new()),
    };
    if random.percent(20) {
        config.version = Some(quoted(random.pick(&VERSIONS)));
    }
    if command == "GC" {
        garbage(random, world, &mut config);
    }
    if command == "STATUS" {
        config.version = Some(quoted("1.1.0"));
    }
    if random.percent(25) {
        requests(random, shape, &mut config, &mut step);
    }
    if random.percent(15) {
        extras(random, &mut config);
    }
    if random.percent(5) {
        config.capitals = true;
    }
    if random.percent(3) {
        config.data_dir = Some(quoted(random.pick(&["store", "./store/../store", &format!("{FOLDER}/store/")])));
    }
    if random.percent(9) {
        wrong_config(random, &mut config, &mut step, limits);
    }
    if let Input::Raw(text) = &step.input
        && text.is_empty()
    {
        step.input = Input::Config(Box::new(config));
    }
    if random.percent(5) {
        wrong_environment(random, &mut step);
    }
    if limits.own_netns && random.percent(2) {
        step.netns = Some("/proc/self/ns/net".into());
        step.netns_override = (*random.pick(&[None, None, Some("1"), Some("TRUE"), Some("yes")])).map(Into::into);
    }
    step
}

fn garbage(random: &mut Random, world: &World, config: &mut Config) {
    config.version = Some(quoted(if random.percent(90) { "1.1.0" } else { "1.0.0" }));
    let mut alive = Vec::new();
    for container in &world.containers {
        if random.percent(60) {
            let ifname = random.pick(&world.ifnames);
            alive.push(format!("{{\"containerID\":{},\"ifname\":{}}}", quoted(container), quoted(ifname)));
        }
    }
    if random.percent(90) {
        config.extra.push(("cni.dev/valid-attachments".into(), format!("[{}]", alive.join(","))));
    }
}

/// Requested addresses, at most one for each set: which of several is taken is random in the original.
fn requests(random: &mut Random, shape: &Shape, config: &mut Config, step: &mut CallStep) {
    let candidates = shape.candidates();
    let mut taken = Vec::new();
    for _ in 0..*random.pick(&[1, 1, 1, 2, 3]) {
        let address = if random.percent(93) { random.pick(&candidates).clone() } else { "192.0.2.77".to_owned() };
        let set = shape.set_of(&address);
        if set.is_some() && taken.iter().any(|(other, a)| *other == set && *a != address) {
            continue;
        }
        taken.push((set, address.clone()));
        let v4 = address.contains('.');
        let written = match random.below(6) {
            0 => format!("{address}/{}", if v4 { 24 } else { 64 }),
            1 if v4 => format!("::ffff:{address}"),
            2 if !v4 => address.to_uppercase(),
            _ => address.clone(),
        };
        match random.below(4) {
            0 if step.args.is_none() => {
                step.args = Some(match random.below(3) {
                    0 => format!("IP={written}"),
                    1 => format!("IgnoreUnknown=1;K8S_POD_NAME=p;IP={written}"),
                    _ => format!("IP=10.255.0.1;IgnoreUnknown=false;IP={written}"),
                });
            }
            1 => config.args_ips.push(quoted(&written)),
            2 => {
                config.args_ips.push(quoted(&written));
                config.runtime_ips.push(quoted(&written));
            }
            _ => config.runtime_ips.push(quoted(&written)),
        }
    }
}

/// What belongs to a configuration beside its ranges.
fn extras(random: &mut Random, config: &mut Config) {
    const ROUTES: [&str; 10] = [
        r#"{"dst":"0.0.0.0/0"}"#,
        r#"{"dst":"10.9.9.9/8","gw":"10.2.0.1"}"#,
        r#"{"dst":"::/0"}"#,
        r#"{"dst":"2001:DB8::1/32","gw":"fd00::1","mtu":1400}"#,
        r#"{"dst":"192.168.0.0/16","mtu":0,"advmss":1360,"priority":7}"#,
        r#"{"dst":"192.168.1.0/24","table":0,"scope":0}"#,
        r#"{"dst":"192.168.2.0/24","table":100,"scope":253}"#,
        r#"{"gw":"10.2.0.1"}"#,
        r#"{"dst":"::ffff:10.0.0.0/104"}"#,
        r#"{"DST":"172.16.0.0/12","GW":"::ffff:10.2.0.1"}"#,
    ];
    for _ in 0..random.below(4) {
        config.routes.push((*random.pick(&ROUTES)).into());
    }
    if random.percent(50) {
        let file = random.pick(&["resolv.conf", "empty.conf", "odd.conf"]);
        config.resolv_conf = Some(quoted(format!("{FOLDER}/{file}")));
    }
    if random.percent(30) {
        config.extra.push(("prevResult".into(), r#"{"cniVersion":"1.0.0","ips":[{"address":"10.2.0.2/24"}]}"#.into()));
    }
    if random.percent(30) {
        config.extra.push(("unknown".into(), r#"{"a":[1,2.5e3,null,true,"\u00e4<&>"]}"#.into()));
        config.ipam_extra.push(("unknown".into(), "null".into()));
    }
}

/// Files that a side has beside its store.
pub(crate) const FILES: [(&str, &str); 3] = [
    (
        "resolv.conf",
        "# comment\nnameserver 192.0.2.1\n  nameserver\t2001:db8::1 extra\nsearch a.example b.example\n\
         search c.example\ndomain one.example\ndomain two.example\noptions ndots:2 <&>\noptions timeout:1\n\
         nameserver\n; other\nsortlist 1\n",
    ),
    ("empty.conf", ""),
    (
        "odd.conf",
        "nameserver 192.0.2.9\r\n\u{a0}domain x.example\u{2003}\nNAMESERVER 192.0.2.8\nsearch\n#nameserver 1\noptions",
    ),
];

/// One wrong or odd value in the configuration.
fn wrong_config(random: &mut Random, config: &mut Config, step: &mut CallStep, limits: Limits) {
    let some = |text: &str| Some(text.to_owned());
    match random.below(12) {
        // Which ranges there are at all.
        0 => {
            let without = ["", "null", r#"{"type":"host-local"}"#, "[]", "\"x\"", "7", r#"{"ranges":{}}"#];
            let count = without.len();
            // Without a dataDir: the default one.
            if limits.default_folder || !step.is("DEL") {
                config.ipam = some(without[random.below(count)]);
            }
        }
        1 => {
            config.old_style = None;
            config.runtime_ranges.clear();
            config.ranges = None;
            let ranges = *random.pick(&["[]", "[[]]", "null", "[null]", "[[null]]", "[[{}]]", "{}", "[[[]]]", "[7]"]);
            config.ipam_extra.push(("ranges".into(), ranges.into()));
        }
        2 => {
            let wrong: [&[&str]; 5] = [
                &["10.50.0.0/24", "fd00:50::/64"],
                &["10.50.0.0/24", "10.50.0.0/24"],
                &["10.50.0.0/16", "10.50.9.0/24"],
                &["10.50.9.0/24", "10.51.0.0/24", "10.50.0.0/16"],
                &["fd00:50::/64", "fd00:50::/120"],
            ];
            let ranges =
                random.pick(&wrong).iter().map(|subnet| Range { subnet: Some(quoted(subnet)), ..Range::default() });
            config.ranges = Some(if random.percent(50) {
                vec![ranges.collect()]
            } else {
                ranges.map(|range| vec![range]).collect()
            });
        }
        // One value of one range.
        3..=6 => {
            let range = match (&mut config.old_style, &mut config.ranges) {
                (Some(range), _) => range,
                (None, Some(sets)) if !sets.is_empty() && !sets[0].is_empty() => {
                    let set = random.below(sets.len());
                    let place = random.below(sets[set].len());
                    &mut sets[set][place]
                }
                _ => return,
            };
            wrong_range(random, range);
        }
        7 => {
            let routes = [
                r#"{"dst":"10.0.0.0"}"#,
                r#"{"dst":""}"#,
                r#"{"dst":"10.0.0.0/8","gw":"x"}"#,
                r#"{"dst":"10.0.0.0/8","gw":""}"#,
                r#"{"dst":7}"#,
                r#"{"dst":"10.0.0.0/8","mtu":"1400"}"#,
                r#"{"dst":"10.0.0.0/33"}"#,
                "7",
                "null",
            ];
            if !step.is("ADD") || random.percent(80) {
                config.routes.push((*random.pick(&routes[..8])).into());
            }
        }
        8 => {
            let paths = ["missing.conf", "store", "no/such/folder", "resolv.conf/x"];
            config.resolv_conf = match random.below(6) {
                0 => some("7"),
                1 => some("\"\""),
                _ => Some(quoted(format!("{FOLDER}/{}", random.pick(&paths)))),
            };
        }
        9 => {
            let wrong = [
                "\"10.2.0\"",
                "\"10.2.0.300\"",
                "\"10.02.0.3\"",
                "\"\"",
                "7",
                "\"fe80::1%eth0\"",
                "\"10.2.0.3/33\"",
                "null",
            ];
            let ip = (*random.pick(&wrong)).to_owned();
            if random.percent(50) { config.args_ips.push(ip) } else { config.runtime_ips.push(ip) }
        }
        10 => match random.below(4) {
            0 => {
                let names =
                    ["", "\"\"", "\"a b\"", "\".hidden\"", "\"-x\"", "\"n/../x\"", "7", "null", "\"<n>\"", "\"n\\n\""];
                let name = *random.pick(&names);
                config.name = (!name.is_empty()).then(|| name.into());
            }
            1 => {
                let versions = [
                    "",
                    "\"\"",
                    "\"1.0\"",
                    "\"2.0.0\"",
                    "\"0.3.2\"",
                    "\"1.1.0-rc1\"",
                    "\"abc\"",
                    "7",
                    "null",
                    "\"1.1\"",
                    "\"0.4\"",
                    "\" 1.0.0\"",
                    "\"1.2.0\"",
                    "\"1.0.0.0\"",
                    "\"-1.0.0\"",
                    "\"01.0.0\"",
                    "\"0.0.0\"",
                ];
                let version = *random.pick(&versions);
                config.version = (!version.is_empty()).then(|| version.into());
            }
            2 => {
                config.data_dir = match random.below(3) {
                    0 if !step.is("DEL") || limits.default_folder => some("7"),
                    1 => Some(quoted(format!("{FOLDER}/resolv.conf"))),
                    _ => Some(quoted(format!("{FOLDER}/deep/er/store"))),
                }
            }
            _ => {
                // The last of equal keys counts.
                config.extra.push(("name".into(), quoted("net1")));
                config.ipam_extra.push(("dataDir".into(), quoted(format!("{FOLDER}/store"))));
                config.name = some("7");
                if random.percent(60) {
                    config.name = some("\"x\"");
                }
            }
        },
        _ => {
            let whole = config.render();
            let text = match random.below(9) {
                0 => " ".to_owned(),
                1 => "null".to_owned(),
                2 => "[]".to_owned(),
                3 => "{".to_owned(),
                4 => format!("{whole}x"),
                5 => format!("{whole}{whole}"),
                6 => format!("\u{feff}{whole}"),
                7 => format!("\n\t {whole} \r\n"),
                _ => whole[..whole.len() / 2].to_owned(),
            };
            step.input = Input::Raw(text);
        }
    }
}

fn wrong_range(random: &mut Random, range: &mut Range) {
    const SUBNETS: [&str; 14] = [
        "\"\"",
        "null",
        "7",
        "\"10.50.0.0\"",
        "\"10.050.0.0/24\"",
        "\"10.50.0.1/24\"",
        "\"10.50.0.0/31\"",
        "\"10.50.0.0/32\"",
        "\"fd00:50::/127\"",
        "\"fd00:50::1/128\"",
        "\"fd00:50::1/64\"",
        "\"::ffff:10.50.0.0/120\"",
        "\"10.50.0.0/33\"",
        "\"fd00:50::/129\"",
    ];
    const ADDRESSES: [&str; 13] = [
        "\"\"",
        "null",
        "7",
        "\"x\"",
        "\"10.50.0.0\"",
        "\"10.50.0.255\"",
        "\"10.50.0.9\"",
        "\"10.50.1.0\"",
        "\"::ffff:10.50.0.9\"",
        "\"fd00:50::9\"",
        "\"FD00:50:0:0::9\"",
        "\"010.50.0.9\"",
        "\"255.255.255.255\"",
    ];
    let address = |random: &mut Random| Some((*random.pick(&ADDRESSES)).to_owned());
    match random.below(4) {
        0 => {
            range.subnet = Some((*random.pick(&SUBNETS)).into());
            if random.percent(20) {
                range.subnet = None;
            }
            if random.percent(70) {
                (range.start, range.end, range.gateway) = (None, None, None);
            }
        }
        1 => {
            *range = Range { subnet: Some(quoted("10.50.0.0/24")), ..Range::default() };
            range.start = address(random);
            if random.percent(50) {
                range.end = address(random);
            }
        }
        2 => {
            *range = Range { subnet: Some(quoted("10.50.0.0/24")), ..Range::default() };
            range.gateway = address(random);
            if random.percent(30) {
                range.end = address(random);
            }
        }
        _ => range.gateway = address(random),
    }
}

/// One wrong or odd variable.
fn wrong_environment(random: &mut Random, step: &mut CallStep) {
    let some = |text: &str| Some(text.to_owned());
    match random.below(8) {
        0 => {
            step.container =
                (*random.pick(&[None, Some(""), Some("-x"), Some("a b"), Some("c1\n"), Some("c/1"), Some(".c")]))
                    .map(Into::into)
        }
        1 => {
            let names = [
                None,
                Some(""),
                Some("."),
                Some(".."),
                Some("a/b"),
                Some("a:b"),
                Some("a b"),
                Some("0123456789abcdef"),
                Some("eth\u{a0}0"),
                Some("ethä0"),
            ];
            step.ifname = (*random.pick(&names)).map(Into::into);
        }
        2 => step.netns = (*random.pick(&[None, Some("")])).map(Into::into),
        3 => step.path = (*random.pick(&[None, Some("")])).map(Into::into),
        4 => {
            step.command =
                (*random.pick(&[None, Some(""), Some("add"), Some("PURGE"), Some("ADD "), Some("<X>")])).map(Into::into)
        }
        5 => {
            step.container = None;
            step.ifname = None;
            if random.percent(50) {
                step.path = None;
            }
        }
        _ => {
            const ARGS: [&str; 18] = [
                "IP=foo",
                "IP=10.2.0.300",
                "IP=",
                "IP=10.2.0.3/33",
                "IP=fe80::1%eth0",
                "IP=10.2.0.3;",
                ";",
                "IP",
                "IP=1=2",
                "ip=10.2.0.3",
                "K8S_POD_NAME=p",
                "A=1;B=2;IgnoreUnknown=0",
                "A=1;IgnoreUnknown=TRUE",
                "IgnoreUnknown=maybe",
                "IgnoreUnknown=",
                "A=<&>\"\\;IP=",
                "A=ä\t;B=\u{7f}",
                "=",
            ];
            step.args = some(ARGS[random.below(ARGS.len())]);
        }
    }
}

fn foreign(random: &mut Random, world: &World) -> Foreign {
    let network = random.pick(&world.networks);
    let candidates = world.shapes[0].candidates();
    let address = random.pick(&candidates).clone();
    let container = *random.pick(&world.containers);
    let ifname = *random.pick(&world.ifnames);
    let place = |name: &str| format!("store/{network}/{name}");
    let content: Vec<u8> = match random.below(12) {
        0 | 1 => container.into(),
        2 => format!("{container}\n{ifname}"),
        3 => format!("  {container}\r\n{ifname}\n\n"),
        4 => format!("\t{container} \r\n"),
        5 | 6 => format!("{container}\r\n{ifname}"),
        7 => String::new(),
        8 => "other\r\neth9".into(),
        9 => "garbage \u{1}\u{7f}\r\n\r\n".into(),
        10 => format!("{container} x"),
        _ => format!("{container}\r\n{ifname} "),
    }
    .into();
    let mode = *random.pick(&[0o600, 0o644]);
    match random.below(20) {
        0..=8 => Foreign::Write { path: place(&address), content, mode },
        9 => Foreign::Write { path: place(&format!("sub/{address}")), content, mode },
        10 => Foreign::Write { path: place("note"), content, mode },
        11 => Foreign::Folder(place(&address)),
        12 => Foreign::Folder(place(if random.percent(50) { "empty/folder" } else { "last_reserved_ip.0" })),
        13 => Foreign::Link { path: place(&address), target: "/nonexistent".into() },
        14..=16 => {
            let set = random.below(3);
            let text = match random.below(6) {
                0 => String::new(),
                1 => format!("{address}\n"),
                2 => "garbage".into(),
                3 => "192.0.2.1".into(),
                4 => address.to_uppercase(),
                _ => address,
            };
            Foreign::Write { path: place(&format!("last_reserved_ip.{set}")), content: text.into(), mode }
        }
        17 => Foreign::Remove(place("last_reserved_ip.0")),
        18 => Foreign::Remove(place("sub")),
        _ => Foreign::Remove(place(&address)),
    }
}
