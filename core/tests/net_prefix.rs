//! Prefixes against the ipnet crate and against plain arithmetic, for every length at both ends of each family.

use ipnet::IpNet;
use plat_core::net::{Address, Count, Family, Prefix, PrefixError, Range};
use std::net::IpAddr;

/// Bases at both ends of the family, in its middle and in a pattern.
fn bases(family: Family) -> Vec<Address> {
    let top = Address::highest(family).bits();
    let pattern = 0xa5a5_3c3c_0ff0_9669_a5a5_3c3c_0ff0_9669 & top;
    [0, 1, 2, top / 2, top / 2 + 1, top - 1, top, pattern]
        .map(|bits| Address::new(family, bits).expect("in the family"))
        .to_vec()
}

fn prefixes(family: Family) -> Vec<Prefix> {
    (0..=family.bits())
        .flat_map(|length| bases(family).into_iter().filter_map(move |base| Prefix::new(base, length)))
        .collect()
}

/// The same prefix in the reference.
fn reference(prefix: &Prefix) -> IpNet {
    IpNet::new(prefix.base().to_ip(), prefix.length()).expect("a length of the family")
}

/// The bits of the reference's address, which `Address::from` would turn to IPv4 among `::ffff:0:0/96`.
fn bits(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u128::from(ip.to_bits()),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

#[test]
fn every_length_has_the_right_ends() {
    for family in [Family::V4, Family::V6] {
        assert_eq!(prefixes(family).len(), (usize::from(family.bits()) + 1) * 8);
        for prefix in prefixes(family) {
            let net = reference(&prefix);
            assert_eq!(prefix.network().bits(), bits(net.network()), "{prefix}");
            assert_eq!(prefix.first(), prefix.network());
            assert_eq!(prefix.last().bits(), bits(net.broadcast()), "{prefix}");
            assert_eq!((prefix.first().family(), prefix.last().family()), (family, family));
            assert_eq!(prefix.has_host_bits(), net.trunc() != net, "{prefix}");
            assert_eq!(Some(prefix.range()), Range::new(prefix.first(), prefix.last()));
            assert_eq!(Range::from(prefix), prefix.range());
            // 2^(bits - length), which for ::/0 is the one number that 128 bits cannot hold.
            let host_bits = u32::from(family.bits() - prefix.length());
            assert_eq!(prefix.range().len(), 1u128.checked_shl(host_bits).map_or(Count::MAX, Count::from), "{prefix}");
            assert_eq!((prefix.family(), prefix.length()), (family, net.prefix_len()));
        }
        let base = Address::lowest(family);
        assert_eq!(Prefix::new(base, family.bits() + 1), None);
        assert_eq!(Prefix::new(base, u8::MAX), None);
    }
}

#[test]
fn every_length_contains_what_it_should() {
    for family in [Family::V4, Family::V6] {
        let other = if family == Family::V4 { Family::V6 } else { Family::V4 };
        for prefix in prefixes(family) {
            let net = reference(&prefix);
            let (first, last) = (prefix.first(), prefix.last());
            let edges = [Some(first), first.previous(), first.next(), Some(last), last.previous(), last.next()];
            for address in edges.into_iter().flatten().chain(bases(family)) {
                assert_eq!(prefix.contains(address), net.contains(&address.to_ip()), "{prefix} {address}");
                assert_eq!(prefix.contains(address), prefix.range().contains(address), "{prefix} {address}");
            }
            for address in bases(other) {
                assert!(!prefix.contains(address), "{prefix} {address}");
            }
        }
    }
}

#[test]
fn every_pair_of_lengths_covers_and_overlaps() {
    let all: Vec<Prefix> = prefixes(Family::V4).into_iter().chain(prefixes(Family::V6)).collect();
    for a in &all {
        for b in &all {
            let same = a.family() == b.family();
            let covers = same && a.first() <= b.first() && b.last() <= a.last();
            let overlaps = same && a.first() <= b.last() && b.first() <= a.last();
            assert_eq!(a.covers(b), covers, "{a} {b}");
            assert_eq!(a.overlaps(b), overlaps, "{a} {b}");
        }
    }
}

#[test]
fn text() {
    let good = [
        ("10.1.2.0/24", "10.1.2.0/24"),
        ("10.1.2.3/24", "10.1.2.3/24"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("255.255.255.255/32", "255.255.255.255/32"),
        ("10.0.0.0/024", "10.0.0.0/24"),
        ("10.0.0.0/00000000000024", "10.0.0.0/24"),
        ("10.0.0.0/00", "10.0.0.0/0"),
        ("::/0", "::/0"),
        ("2001:DB8::1/032", "2001:db8::1/32"),
        ("::10.0.0.0/104", "::a00:0/104"),
        ("::fffe:0:0/95", "::fffe:0:0/95"),
        ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128"),
    ];
    for (text, printed) in good {
        let prefix = Prefix::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(prefix.to_string(), printed);
        assert_eq!(Prefix::parse(printed), Ok(prefix));
    }
    let bad = [
        "",
        "/",
        "/24",
        "10.0.0.0",
        "10.0.0.0/",
        "10.0.0.0/33",
        "10.0.0.0/256",
        "10.0.0.0/280",
        "10.0.0.0/16777216",
        "10.0.0.0/99999999999999999999999",
        "10.0.0.0/+24",
        "10.0.0.0/-1",
        "10.0.0.0/ 24",
        "10.0.0.0/24 ",
        " 10.0.0.0/24",
        "10.0.0.0/24/24",
        "10.0.0.0/0x18",
        "10.0.0.0/1\u{0967}",
        "10.0.0.0/255.255.255.0",
        "10.01.2.0/24",
        "10.0.0/24",
        "::/129",
        "fe80::1%eth0/64",
        "::ffff:10.0.0.0/129",
        "::ffff:10.0.0.0/",
    ];
    for text in bad {
        assert_eq!(Prefix::parse(text), Err(PrefixError::Invalid), "{text}");
    }
}

#[test]
fn an_ipv4_address_written_as_ipv6_is_told_apart() {
    let address = Address::parse("10.0.0.1").expect("valid");
    // Text, its length, and what Go prints.
    let cases = [
        ("::ffff:10.0.0.1/0", 0, "10.0.0.1/0"),
        ("::ffff:10.0.0.1/64", 64, "10.0.0.1/0"),
        ("::ffff:10.0.0.1/96", 96, "10.0.0.1/0"),
        ("::ffff:10.0.0.1/97", 97, "10.0.0.1/1"),
        ("::FFFF:0a00:0001/104", 104, "10.0.0.1/8"),
        ("0:0:0:0:0:ffff:a00:1/0127", 127, "10.0.0.1/31"),
        ("::ffff:10.0.0.1/128", 128, "10.0.0.1/32"),
    ];
    for (text, length, printed) in cases {
        let error = Prefix::parse(text).expect_err(text);
        assert_eq!(error, PrefixError::MappedV4 { address, length }, "{text}");
        assert_eq!(error.as_v4(), Prefix::parse(printed).ok(), "{text}");
    }
    assert_eq!(
        PrefixError::MappedV4 { address, length: 104 }.to_string(),
        "::ffff:10.0.0.1/104 is an IPv4 address written as IPv6: write 10.0.0.1/8"
    );
    assert_eq!(PrefixError::Invalid.as_v4(), None);
}
