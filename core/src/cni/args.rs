//! CNI_ARGS (`cni.md` B.3).

use crate::json::{go_quote, go_quote_list};

/// Reads the keys that host-local knows: `IP` and `IgnoreUnknown`. `IP` is parsed by `parse_ip`, which gives none for
/// an empty value. The result is the address asked for, if any.
pub(crate) fn read<T>(text: &str, parse_ip: impl Fn(&str) -> Result<Option<T>, String>) -> Result<Option<T>, String> {
    let mut requested = None;
    read_each(text, &mut |key, value| {
        if key == "IP" {
            requested = parse_ip(value)?;
        }
        Ok(key == "IP")
    })?;
    Ok(requested)
}

/// Hands each pair but `IgnoreUnknown` to `take`, which says whether it knows the key.
///
/// # Errors
/// A pair that is none, one that `take` refuses, and unknown keys unless they are to be ignored.
pub(crate) fn read_each(text: &str, take: &mut dyn FnMut(&str, &str) -> Result<bool, String>) -> Result<(), String> {
    if text.is_empty() {
        return Ok(());
    }
    let mut ignore_unknown = false;
    let mut unknown = Vec::new();
    for pair in text.split(';') {
        let (key, value) = match pair.split_once('=') {
            Some((key, value)) if !value.contains('=') => (key, value),
            _ => return Err(format!("ARGS: invalid pair {}", go_quote(pair))),
        };
        let wrong = |why: String| format!("ARGS: error parsing value of pair {}: {why}", go_quote(pair));
        match key {
            "IgnoreUnknown" => {
                ignore_unknown = match value.to_lowercase().as_str() {
                    "1" | "true" => true,
                    "0" | "false" => false,
                    other => return Err(wrong(format!("boolean unmarshal error: invalid input {other}"))),
                }
            }
            // The reference code finds its own embedded structure under this name.
            "CommonArgs" => {
                return Err("ARGS: cannot unmarshal into field 'CommonArgs' - type '*types.CommonArgs' does not \
                            implement encoding.TextUnmarshaler"
                    .into());
            }
            _ => {
                if !take(key, value).map_err(wrong)? {
                    unknown.push(pair);
                }
            }
        }
    }
    if !unknown.is_empty() && !ignore_unknown {
        return Err(format!("ARGS: unknown args {}", go_quote_list(&unknown)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar_is_the_originals() {
        let check = |text: &str, expected: Result<Option<&str>, &str>| {
            let parse = |value: &str| match value {
                "" => Ok(None),
                "foo" => Err("invalid IP address foo".to_string()),
                value => Ok(Some(value.to_string())),
            };
            let found = read(text, parse);
            assert_eq!(found.as_ref().map(Option::as_deref).map_err(String::as_str), expected, "{text:?}");
        };
        check("", Ok(None));
        check("IP=1.2.3.4", Ok(Some("1.2.3.4")));
        check("IP=", Ok(None));
        check("IP=1.2.3.4;", Err(r#"ARGS: invalid pair """#));
        check("IP", Err(r#"ARGS: invalid pair "IP""#));
        check("IP=a=b", Err(r#"ARGS: invalid pair "IP=a=b""#));
        check("IP=foo", Err(r#"ARGS: error parsing value of pair "IP=foo": invalid IP address foo"#));
        check("A=1;B=2", Err(r#"ARGS: unknown args ["A=1" "B=2"]"#));
        check("ip=1.2.3.4;IgnoreUnknown=TRUE", Ok(None));
        check("A=1;IgnoreUnknown=0", Err(r#"ARGS: unknown args ["A=1"]"#));
        check(
            "IgnoreUnknown=Maybe",
            Err(
                r#"ARGS: error parsing value of pair "IgnoreUnknown=Maybe": boolean unmarshal error: invalid input maybe"#,
            ),
        );
    }
}
