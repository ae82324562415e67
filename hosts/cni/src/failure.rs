//! What is answered when the core gave no answer: an error of the CNI protocol all the same, since a runtime shows the
//! caller nothing else.

use std::io::Write;
use std::process::ExitCode;

/// CNI leaves the codes from 100 on to plugins; host-local and the others use 999 for what has no code of its own.
pub(crate) const CODE_INTERNAL: u32 = 999;

/// CNI's code for a failure of input or output.
pub(crate) const CODE_IO_FAILURE: u32 = 5;

/// Prints an error object on standard output.
pub(crate) fn answer(code: u32, message: &str, details: &str) -> ExitCode {
    // If standard output is closed, nobody can be told; the exit status still says it.
    let _ = std::io::stdout().write_all(object(code, message, details).as_bytes());
    ExitCode::FAILURE
}

/// Has a panic of this program end as an error object too.
pub(crate) fn answer_panics() {
    std::panic::set_hook(Box::new(|panic| {
        answer(CODE_INTERNAL, "plat-ipam stopped by a fault of its own", &panic.to_string());
        std::process::exit(1);
    }));
}

fn object(code: u32, message: &str, details: &str) -> String {
    format!(
        "{{\n    \"code\": {code},\n    \"msg\": {},\n    \"details\": {}\n}}",
        json_string(message),
        json_string(details)
    )
}

fn json_string(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\n' => quoted.push_str("\\n"),
            control if control < ' ' => quoted.push_str(&format!("\\u{:04x}", u32::from(control))),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_is_json_whatever_the_text() {
        let details = "a \"quote\", a \\, a\nnew line, \u{1}, ü and 𝄞";
        let object = object(999, "stopped", details);
        let parsed: serde_json::Value = serde_json::from_str(&object).unwrap();
        assert_eq!(parsed, serde_json::json!({"code": 999, "msg": "stopped", "details": details}));
        assert!(object.starts_with("{\n    \"code\": 999,\n    \"msg\": \"stopped\",\n") && object.ends_with("\n}"));
    }
}
