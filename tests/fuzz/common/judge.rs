//! What must hold of a reply, whatever was asked.

use plat_core::cni::Reply;
use plat_core::net::{Address, Prefix, PrefixError};
use serde_json::Value;

/// Asserts the form of a reply (`cni.md` A.3 to A.6).
pub(crate) fn reply(command: &str, reply: &Reply) {
    match reply.exit_status {
        0 => match command {
            "ADD" => assert!(parse(reply)["cniVersion"].is_string(), "{reply:?}"),
            "VERSION" => {
                assert!(parse(reply)["supportedVersions"].as_array().is_some_and(|list| list.len() == 7), "{reply:?}");
            }
            _ => assert!(reply.output.is_empty(), "{command} prints: {reply:?}"),
        },
        1 => {
            let error = parse(reply);
            assert!(code(reply).is_some_and(|code| code > 0), "{reply:?}");
            assert!(error["msg"].as_str().is_some_and(|msg| !msg.is_empty()), "{reply:?}");
        }
        status => panic!("exit status {status}: {reply:?}"),
    }
    for line in &reply.log {
        assert!(!line.text.contains(char::is_control), "a log line with control characters: {line:?}");
    }
}

/// Standard output as one JSON object.
fn parse(reply: &Reply) -> Value {
    let value: Value = serde_json::from_slice(&reply.output).unwrap_or_else(|error| panic!("{error}: {reply:?}"));
    assert!(value.is_object(), "{reply:?}");
    value
}

/// The code of an error.
pub(crate) fn code(reply: &Reply) -> Option<u64> {
    if reply.exit_status == 0 { None } else { parse(reply)["code"].as_u64() }
}

/// The addresses that a successful ADD gave out, in any version's form; each of them once.
pub(crate) fn granted(reply: &Reply) -> Vec<Address> {
    if reply.exit_status != 0 {
        return Vec::new();
    }
    let result = parse(reply);
    let (list, old) = (result["ips"].as_array().cloned().unwrap_or_default(), [&result["ip4"], &result["ip6"]]);
    let texts =
        list.iter().map(|ip| &ip["address"]).chain(old.into_iter().filter(|ip| !ip.is_null()).map(|ip| &ip["ip"]));
    let addresses: Vec<Address> = texts
        .map(|text| {
            let text = text.as_str().unwrap_or_else(|| panic!("an address is no text: {reply:?}"));
            Prefix::parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).base()
        })
        .collect();
    for (i, address) in addresses.iter().enumerate() {
        assert!(!addresses[..i].contains(address), "{address} was given out twice: {reply:?}");
    }
    addresses
}

/// The address that CNI_ARGS ask for (`cni.md` B.3), by a reading of its own; an error where ADD must fail.
pub(crate) fn requested(args: &[u8]) -> Result<Option<Address>, ()> {
    if args.is_empty() {
        return Ok(None);
    }
    let (mut address, mut ignores, mut unknown) = (None, false, false);
    for pair in args.split(|byte| *byte == b';') {
        let parts: Vec<&[u8]> = pair.split(|byte| *byte == b'=').collect();
        let [key, value] = parts[..] else { return Err(()) };
        match key {
            b"IP" => address = parse_ip(std::str::from_utf8(value).map_err(|_| ())?)?,
            b"IgnoreUnknown" => {
                let is = |words: [&str; 2]| words.iter().any(|word| value.eq_ignore_ascii_case(word.as_bytes()));
                ignores = is(["1", "true"]);
                if !ignores && !is(["0", "false"]) {
                    return Err(());
                }
            }
            _ => unknown = true,
        }
    }
    if unknown && !ignores { Err(()) } else { Ok(address) }
}

/// An address with or without a prefix length; an empty text is none.
fn parse_ip(text: &str) -> Result<Option<Address>, ()> {
    if text.is_empty() {
        return Ok(None);
    }
    if !text.contains('/') {
        return Address::parse(text).map(Some).ok_or(());
    }
    match Prefix::parse(text) {
        Ok(prefix) => Ok(Some(prefix.base())),
        Err(PrefixError::MappedV4 { address, .. }) => Ok(Some(address)),
        Err(PrefixError::Invalid) => Err(()),
    }
}
