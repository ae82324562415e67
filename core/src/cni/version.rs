//! Versions of the CNI specification.

use super::failure::{Failure, code};
use crate::json::{Json, Node, go_quote, go_quote_list};

/// The specification versions that are spoken, oldest first. There is no 1.2.
pub const SUPPORTED: [&str; 7] = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];
/// The newest of them, which VERSION names.
pub const NEWEST: &str = "1.1.0";
/// What a configuration without a version means.
pub(crate) const DEFAULT: &str = "0.1.0";

/// A version as numbers, for comparison.
pub(crate) type Numbers = (i64, i64, i64);

/// Reads `1`, `1.1` or `1.1.0`, and the empty text as 0.1.0, as the reference code does.
pub(crate) fn numbers(text: &str) -> Result<Numbers, String> {
    if text.is_empty() {
        return Ok((0, 1, 0));
    }
    let parts: Vec<&str> = text.split('.').collect();
    if parts.len() > 3 {
        return Err(format!("invalid version {}: too many parts", go_quote(text)));
    }
    let mut found = [0i64; 3];
    for ((part, slot), name) in parts.iter().zip(&mut found).zip(["major", "minor", "micro"]) {
        *slot = part.parse().map_err(|error: std::num::ParseIntError| {
            let why = match error.kind() {
                std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => "value out of range",
                _ => "invalid syntax",
            };
            let part = go_quote(part);
            format!("failed to convert {name} version part {part}: strconv.Atoi: parsing {part}: {why}")
        })?;
    }
    let [major, minor, micro] = found;
    Ok((major, minor, micro))
}

/// The `cniVersion` of a configuration as it is written; empty if there is none.
pub(crate) fn written(config: &Json) -> Result<String, Failure> {
    let mut text = String::new();
    Node::root(config).members(&["cniVersion"], |_, node| node.string(&mut text)).map_err(|error| {
        Failure::new(code::DECODING_FAILURE, format!("decoding version from network config: {error}"))
    })?;
    Ok(text)
}

/// What a verb that came later than the specification demands of a configuration's version.
pub(crate) struct Gate {
    pub(crate) verb: &'static str,
    pub(crate) since: Numbers,
}

/// Checks a configuration's version: the gate first, then that it is literally one of the supported ones.
pub(crate) fn check(written: &str, gate: Option<&Gate>) -> Result<(), Failure> {
    let version = if written.is_empty() { DEFAULT } else { written };
    if let Some(Gate { verb, since }) = gate {
        let have = numbers(version).map_err(|why| Failure::new(code::DECODING_FAILURE, why))?;
        if have < *since {
            return Err(Failure::new(code::INCOMPATIBLE_VERSION, format!("config version does not allow {verb}")));
        }
        if numbers(NEWEST).is_ok_and(|newest| newest < have) {
            return Err(Failure::new(code::INCOMPATIBLE_VERSION, format!("plugin version does not allow {verb}")));
        }
    }
    if SUPPORTED.contains(&version) {
        return Ok(());
    }
    Err(Failure::new(code::INCOMPATIBLE_VERSION, "incompatible CNI versions").with_details(format!(
        "config is {}, plugin supports {}",
        go_quote(version),
        go_quote_list(&SUPPORTED)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_literal_but_gates_compare_numbers() {
        assert_eq!(check("", None), Ok(()));
        assert_eq!(check("1.1.0", None), Ok(()));
        let error = check("1.0", None).unwrap_err();
        assert_eq!((error.code, error.msg.as_str()), (1, "incompatible CNI versions"));
        assert_eq!(
            error.details,
            r#"config is "1.0", plugin supports ["0.1.0" "0.2.0" "0.3.0" "0.3.1" "0.4.0" "1.0.0" "1.1.0"]"#
        );
        let gate = Gate { verb: "CHECK", since: (0, 4, 0) };
        assert_eq!(check("0.3.1", Some(&gate)).unwrap_err().msg, "config version does not allow CHECK");
        assert_eq!(check("2.0.0", Some(&gate)).unwrap_err().msg, "plugin version does not allow CHECK");
        assert_eq!(check("x", Some(&gate)).unwrap_err().code, 6);
        assert_eq!(
            check("1.x", Some(&gate)).unwrap_err().msg,
            r#"failed to convert minor version part "x": strconv.Atoi: parsing "x": invalid syntax"#
        );
        assert_eq!(check("1.0.0", Some(&gate)), Ok(()));
    }
}
