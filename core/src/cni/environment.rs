//! The environment of a CNI call: which variables each verb needs and what they may hold (`cni.md` A.2).

use super::failure::{Failure, code};
use crate::json::text_of;
use crate::limits::CONTAINER_ID_BYTES_MAX;
use crate::network::{IFNAME_BYTES_MAX, is_container_id};

/// What a call asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Add,
    Del,
    Check,
    Gc,
    Status,
    Version,
}

impl Verb {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "ADD" => Self::Add,
            "DEL" => Self::Del,
            "CHECK" => Self::Check,
            "GC" => Self::Gc,
            "STATUS" => Self::Status,
            "VERSION" => Self::Version,
            _ => return None,
        })
    }

    /// Whether the verb is about one attachment, so that CNI_CONTAINERID and CNI_IFNAME are needed.
    fn is_about_attachment(self) -> bool {
        matches!(self, Self::Add | Self::Del | Self::Check)
    }
}

/// The environment of a call, checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Environment {
    /// CNI_COMMAND as it is.
    pub(crate) command: String,
    pub(crate) container: String,
    pub(crate) ifname: String,
    pub(crate) args: String,
    /// CNI_NETNS_OVERRIDE switches the comparison of network namespaces off.
    pub(crate) allows_own_netns: bool,
}

impl Environment {
    /// The verb; none if CNI_COMMAND is none of the known words.
    pub(crate) fn verb(&self) -> Option<Verb> {
        Verb::parse(&self.command)
    }

    /// Reads and checks the variables in the order of the reference code: the first wrong value ends it, missing ones
    /// are collected.
    pub(crate) fn read(variables: &[(Vec<u8>, Vec<u8>)]) -> Result<Self, Failure> {
        // The last of several equal names would be a broken environment; the first counts, as getenv has it.
        let get = |name: &str| -> String {
            variables
                .iter()
                .find(|(known, _)| known == name.as_bytes())
                .map(|(_, value)| text_of(value))
                .unwrap_or_default()
        };
        let mut environment = Self { command: get("CNI_COMMAND"), ..Self::default() };
        let verb = environment.verb();
        let about_attachment = verb.is_some_and(Verb::is_about_attachment);
        let mut missing = Vec::new();
        if environment.command.is_empty() {
            missing.push("CNI_COMMAND");
        }
        environment.container = get("CNI_CONTAINERID");
        if about_attachment {
            if environment.container.is_empty() {
                missing.push("CNI_CONTAINERID");
            } else if !is_container_id(&environment.container) {
                return Err(Failure::new(code::INVALID_ENVIRONMENT, "invalid characters in containerID")
                    .with_details(environment.container));
            } else if environment.container.len() > CONTAINER_ID_BYTES_MAX {
                return Err(Failure::new(code::INVALID_ENVIRONMENT, "containerID is too long").with_details(format!(
                    "CNI_CONTAINERID has {} bytes: at most {CONTAINER_ID_BYTES_MAX} are taken",
                    environment.container.len()
                )));
            }
        }
        if matches!(verb, Some(Verb::Add | Verb::Check)) && get("CNI_NETNS").is_empty() {
            missing.push("CNI_NETNS");
        }
        environment.ifname = get("CNI_IFNAME");
        if about_attachment {
            if environment.ifname.is_empty() {
                missing.push("CNI_IFNAME");
            } else {
                check_ifname(&environment.ifname)?;
            }
        }
        environment.args = get("CNI_ARGS");
        if verb.is_some_and(|verb| verb != Verb::Version) && get("CNI_PATH").is_empty() {
            missing.push("CNI_PATH");
        }
        let netns_override = get("CNI_NETNS_OVERRIDE");
        environment.allows_own_netns = netns_override == "1" || netns_override.eq_ignore_ascii_case("true");
        if missing.is_empty() {
            return Ok(environment);
        }
        Err(Failure::new(code::INVALID_ENVIRONMENT, format!("required env variables [{}] missing", missing.join(","))))
    }
}

fn check_ifname(ifname: &str) -> Result<(), Failure> {
    let failure = |msg| Failure::new(code::INVALID_ENVIRONMENT, msg);
    if ifname.len() > IFNAME_BYTES_MAX {
        return Err(failure("interface name is too long")
            .with_details(format!("interface name should be less than {} characters", IFNAME_BYTES_MAX + 1)));
    }
    if ifname == "." || ifname == ".." {
        return Err(failure("interface name is . or .."));
    }
    if ifname.contains(|c: char| c == '/' || c == ':' || c.is_whitespace()) {
        return Err(failure("interface name contains / or : or whitespace characters"));
    }
    Ok(())
}
