//! Addresses as text and as hexadecimal digits. The tables hold what Go's `net.ParseIP` and `net.IP.String` answer.

use plat_core::net::{Address, Family, Range};
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

#[test]
fn parses_and_prints_as_go_does() {
    let good = [
        ("0.0.0.0", "0.0.0.0"),
        ("10.0.0.5", "10.0.0.5"),
        ("255.255.255.255", "255.255.255.255"),
        ("::", "::"),
        ("::1", "::1"),
        ("0:0:0:0:0:0:0:0", "::"),
        ("2001:DB8::00aB", "2001:db8::ab"),
        ("2001:db8:0:0:1:0:0:1", "2001:db8::1:0:0:1"),
        ("1:0:0:2:0:0:0:3", "1:0:0:2::3"),
        ("1:0:0:2:0:0:3:4", "1::2:0:0:3:4"),
        ("1::2:3:4:5:6:7", "1:0:2:3:4:5:6:7"),
        ("::1:2:3:4:5:6:7", "0:1:2:3:4:5:6:7"),
        ("1:2:3:4:5:6:7::", "1:2:3:4:5:6:7:0"),
        ("0:0:1:0:0:0:0:0", "0:0:1::"),
        ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("::10.0.0.0", "::a00:0"),
        ("64:ff9b::192.0.2.33", "64:ff9b::c000:221"),
        ("1:2:3:4:5:6:1.2.3.4", "1:2:3:4:5:6:102:304"),
        ("::ffff:0:0:0", "::ffff:0:0:0"),
        // IPv4 written as IPv6.
        ("::ffff:10.0.0.5", "10.0.0.5"),
        ("::FFFF:a:b", "0.10.0.11"),
        ("0:0:0:0:0:ffff:10.0.0.9", "10.0.0.9"),
        ("::ffff:0:0", "0.0.0.0"),
        ("::ffff:ffff:ffff", "255.255.255.255"),
    ];
    for (text, printed) in good {
        let address = Address::parse(text).unwrap_or_else(|| panic!("{text}"));
        assert_eq!(address.to_string(), printed, "{text}");
        assert_eq!(address.family(), if printed.contains('.') { Family::V4 } else { Family::V6 }, "{text}");
        assert_eq!(Address::parse(printed), Some(address));
    }
    let bad = [
        "",
        " ",
        "10.0.0",
        "10.0.0.0.0",
        "10.0.0.",
        ".10.0.0.0",
        "10..0.0",
        "10.0.0.256",
        "10.0.0.00",
        "010.0.0.5",
        "10.0.0.0x5",
        "10.0.0.+5",
        "10.0.0.-5",
        " 10.0.0.5",
        "10.0.0.5 ",
        "10.0.0.5\n",
        "10.0.0.5%eth0",
        "10.0.0.5/24",
        "167772165",
        "1\u{0661}.0.0.0",
        ":",
        ":::",
        "1",
        "1:",
        ":1",
        "1::2::3",
        "::00001",
        "::g",
        "1:2:3:4:5:6:7",
        "1:2:3:4:5:6:7:8:9",
        "1:2:3:4:5:6:7:8::",
        "1::2:3:4:5:6:7:8",
        "1:2:3:4:5:6:7:1.2.3.4",
        "1.2.3.4::",
        "::1.2.3.4.5",
        "::1.2.3",
        "::1.2.3.04",
        "::1.2.3.4:5",
        "::1%lo",
        "fe80::1%",
        "[::1]",
        "::1 ",
        "::ffff:10.0.0.256",
    ];
    for text in bad {
        assert_eq!(Address::parse(text), None, "{text:?}");
    }
}

#[test]
fn an_ipv6_address_that_stands_for_ipv4_prints_as_go_prints_it() {
    let address = Address::new(Family::V6, 0xffff_0a00_0005).expect("fits");
    assert_eq!(address.to_string(), "10.0.0.5");
    assert_eq!(address.family(), Family::V6);
    // Its neighbours are printed as what they are.
    assert_eq!(Address::new(Family::V6, 0xfffe_ffff_ffff).expect("fits").to_string(), "::fffe:ffff:ffff");
    assert_eq!(Address::new(Family::V6, 0x1_0000_0000_0000).expect("fits").to_string(), "::1:0:0:0");
}

#[test]
fn prints_ranges() {
    let range = |a: &str, b: &str| Range::new(Address::parse(a).expect("valid"), Address::parse(b).expect("valid"));
    assert_eq!(range("10.1.2.1", "10.1.2.254").expect("ordered").to_string(), "10.1.2.1-10.1.2.254");
    assert_eq!(range("::1", "::ff").expect("ordered").to_string(), "::1-::ff");
    assert_eq!(range("10.0.0.2", "10.0.0.1"), None);
    assert_eq!(range("10.0.0.1", "::1"), None);
    assert_eq!(range("::1", "10.0.0.1"), None);
}

#[test]
fn steps_stay_in_the_family() {
    for (family, top) in [(Family::V4, u128::from(u32::MAX)), (Family::V6, u128::MAX)] {
        let at = |bits| Address::new(family, bits).expect("fits");
        let (low, high) = (Address::lowest(family), Address::highest(family));
        assert_eq!((low.bits(), high.bits(), low.family(), high.family()), (0, top, family, family));
        assert_eq!((low.previous(), high.next()), (None, None));
        assert_eq!((low.next(), high.previous()), (Some(at(1)), Some(at(top - 1))));
        assert_eq!(low.checked_add(top), Some(high));
        assert_eq!(high.checked_sub(top), Some(low));
        assert_eq!(at(1).checked_add(top), None);
        assert_eq!(at(top - 1).checked_sub(top), None);
        assert_eq!(at(1).checked_add(u128::MAX), None);
        assert_eq!(at(5).checked_add(0), Some(at(5)));
        assert_eq!(at(5).checked_sub(6), None);
        assert_eq!(high.checked_sub(u128::MAX), (family == Family::V6).then_some(low));
    }
    assert_eq!(Address::new(Family::V4, 1 << 32), None);
    assert!(Address::highest(Family::V4) < Address::lowest(Family::V6));
    assert_eq!((Family::V4.bits(), Family::V6.bits()), (32, 128));
}

#[test]
fn hexadecimal_digits_are_canonical() {
    let v4 = Address::parse("10.1.2.3").expect("valid");
    assert_eq!(v4.to_hex(), "0a010203");
    assert_eq!(Address::from_hex(Family::V4, "0a010203"), Some(v4));
    let v6 = Address::parse("2001:db8::5").expect("valid");
    assert_eq!(v6.to_hex(), "20010db8000000000000000000000005");
    assert_eq!(Address::from_hex(Family::V6, "20010db8000000000000000000000005"), Some(v6));
    for bad in ["", "a010203", "00a010203", "0A010203", "+a010203", "0x010203", "0a01020g", " a010203", "é010203"] {
        assert_eq!(Address::from_hex(Family::V4, bad), None, "{bad:?}");
    }
    assert_eq!(Address::from_hex(Family::V6, "0a010203"), None);
    assert_eq!(Address::from_hex(Family::V4, "20010db8000000000000000000000005"), None);
    assert_eq!(Address::from_hex(Family::V6, "20010DB8000000000000000000000005"), None);
}

fn address() -> impl Strategy<Value = Address> {
    // Groups of zeros, so that compression is met in all its forms.
    let groups = prop::array::uniform8(prop_oneof![Just(0u16), Just(0xffff), any::<u16>(), 0u16..16]);
    prop_oneof![
        any::<u32>().prop_map(|bits| Address::from(IpAddr::V4(Ipv4Addr::from_bits(bits)))),
        groups.prop_map(|groups| Address::from(IpAddr::V6(Ipv6Addr::from(groups)))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2048) })]

    #[test]
    fn text_and_digits_come_back(address in address()) {
        prop_assert_eq!(Address::parse(&address.to_string()), Some(address));
        prop_assert_eq!(Address::parse(&address.to_string().to_uppercase()), Some(address));
        prop_assert_eq!(Address::from_hex(address.family(), &address.to_hex()), Some(address));
        prop_assert_eq!(Address::from(address.to_ip()), address);
        prop_assert_eq!(Address::new(address.family(), address.bits()), Some(address));
        prop_assert_eq!(address.to_ip().is_ipv4(), address.family() == Family::V4);
    }

    #[test]
    fn digits_order_as_addresses(a in address(), b in address()) {
        let key = |a: Address| format!("{}/{}", if a.family() == Family::V4 { "v4" } else { "v6" }, a.to_hex());
        prop_assert_eq!(a.cmp(&b), key(a).cmp(&key(b)));
    }

    #[test]
    fn any_text_parses_as_in_the_standard_library(text in "[0-9a-fF:.%]{0,20}|[0-9a-f:]{0,6}::[0-9.]{0,8}") {
        let reference = text.parse::<IpAddr>().ok().map(|ip| ip.to_canonical());
        prop_assert_eq!(Address::parse(&text).map(Address::to_ip), reference);
    }
}
