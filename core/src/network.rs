//! Keys and records of the `ranges` strategy: which addresses of a network are held, and by whom.
//!
//! This is the one place that makes and reads them; `docs/formats.md` draws them. Stores use it to derive the owner
//! and boot keys from the records. It knows nothing of requests.

use crate::net::{Address, Family};
use serde::{Deserialize, Serialize};

/// Percent-encodes all but `A-Z a-z 0-9 . _ -`, so that a name can stand between slashes.
pub fn encode(name: &str) -> String {
    const HEX: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F'];
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-') {
            out.push(char::from(byte));
        } else {
            out.push('%');
            for digit in [byte >> 4, byte & 15] {
                out.extend(HEX.get(usize::from(digit)));
            }
        }
    }
    out
}

/// Undoes [`encode`]. None if the text is not what [`encode`] writes.
pub fn decode(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let mut value = 0u8;
            for _ in 0..2 {
                let digit = char::from(bytes.next()?);
                if digit.is_ascii_lowercase() {
                    return None;
                }
                value = value << 4 | u8::try_from(digit.to_digit(16)?).ok()?;
            }
            out.push(value);
        } else {
            out.push(byte);
        }
    }
    let name = String::from_utf8(out).ok()?;
    (encode(&name) == text).then_some(name)
}

/// Makes the keys of one network.
#[derive(Clone, Debug)]
pub struct Keys {
    prefix: String,
}

impl Keys {
    /// The keys of the network `name`.
    pub fn new(name: &str) -> Self {
        Self { prefix: format!("network/{}/", encode(name)) }
    }

    /// What all keys of the network begin with, including the last slash.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The full key of a place in this network.
    pub fn key(&self, place: &Place) -> String {
        format!("{}{place}", self.prefix)
    }

    /// What the keys of all held addresses of a family begin with.
    pub fn addresses(&self, family: Family) -> String {
        format!("{}address/{}/", self.prefix, family.key_name())
    }

    /// What the keys of all strays begin with.
    pub fn strays(&self) -> String {
        format!("{}stray/", self.prefix)
    }

    /// What the keys of all boots begin with.
    pub fn boots(&self) -> String {
        format!("{}boot/", self.prefix)
    }

    /// Reads a full key of this network back.
    pub fn place(&self, key: &str) -> Option<Place> {
        Place::parse(key.strip_prefix(&self.prefix)?)
    }
}

/// What a key of a network names: its ending after `network/<name>/`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A held address.
    Address(Address),
    /// The address last reserved from a range set, by the set's number.
    Cursor(u32),
    /// A file of host-local's directory that is not named as an address in canonical text, by its path.
    Stray(String),
    /// What an owner holds; derived. `ifname` is empty for records that name a container alone.
    Owner {
        /// The container id.
        container: String,
        /// The interface name.
        ifname: String,
    },
    /// An address by the boot of its record; derived.
    Boot {
        /// The boot id.
        boot: String,
        /// The address.
        address: Address,
    },
}

fn parse_address(family: &str, hex: &str) -> Option<Address> {
    Address::from_hex(Family::of_key_name(family)?, hex)
}

impl Place {
    /// Reads a key ending such as `address/v4/0a010202`. None if it is none of the known forms.
    pub fn parse(ending: &str) -> Option<Self> {
        let (kind, rest) = ending.split_once('/')?;
        match kind {
            "address" => {
                let (family, hex) = rest.split_once('/')?;
                Some(Self::Address(parse_address(family, hex)?))
            }
            "cursor" => {
                let set: u32 = rest.parse().ok()?;
                (set.to_string() == rest).then_some(Self::Cursor(set))
            }
            "stray" => Some(Self::Stray(decode(rest).filter(|path| !path.is_empty())?)),
            "owner" => {
                let (container, ifname) = rest.split_once('/')?;
                Some(Self::Owner { container: decode(container)?, ifname: decode(ifname)? })
            }
            "boot" => {
                let (boot, rest) = rest.split_once('/')?;
                let (family, hex) = rest.split_once('/')?;
                Some(Self::Boot { boot: decode(boot)?, address: parse_address(family, hex)? })
            }
            _ => None,
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Address(address) => write!(f, "address/{}/{}", address.family().key_name(), address.to_hex()),
            Self::Cursor(set) => write!(f, "cursor/{set}"),
            Self::Stray(path) => write!(f, "stray/{}", encode(path)),
            Self::Owner { container, ifname } => write!(f, "owner/{}/{}", encode(container), encode(ifname)),
            Self::Boot { boot, address } => {
                write!(f, "boot/{}/{}/{}", encode(boot), address.family().key_name(), address.to_hex())
            }
        }
    }
}

/// The value of an address or stray key: who holds it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The container id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// The interface name; none in records of host-local before 0.8.0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ifname: Option<String>,
    /// The boot in which the record was written or first seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
    /// Why the record names no owner; such an address is held and belongs to nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign: Option<String>,
}

impl Record {
    /// A record of an owner.
    pub fn owned(container: &str, ifname: &str, boot: Option<String>) -> Self {
        Self { container: Some(container.into()), ifname: Some(ifname.into()), boot, foreign: None }
    }

    /// A record of an address that is held by something that is no owner.
    pub fn foreign(why: impl Into<String>, boot: Option<String>) -> Self {
        Self { container: None, ifname: None, boot, foreign: Some(why.into()) }
    }

    /// Reads the content of one of host-local's address files (`cni.md` B.5): `container CR LF ifname`, white space
    /// around it ignored, or the container id alone as host-local before 0.8.0 wrote it.
    pub fn from_host_local(content: &[u8], boot: Option<String>) -> Self {
        let text = match std::str::from_utf8(content) {
            Ok(text) => text.trim(),
            Err(_) => return Self::foreign("unknown content", boot),
        };
        if text.is_empty() {
            return Self::foreign("empty", boot);
        }
        match text.split_once("\r\n") {
            Some((container, ifname)) if is_container_id(container) && is_ifname(ifname) => {
                Self::owned(container, ifname, boot)
            }
            None if is_container_id(text) => Self { container: Some(text.into()), ifname: None, boot, foreign: None },
            _ => Self::foreign("unknown content", boot),
        }
    }

    /// The content of host-local's file for this record; none for a foreign record.
    pub fn to_host_local(&self) -> Option<Vec<u8>> {
        let container = self.container.as_deref()?;
        Some(match &self.ifname {
            Some(ifname) => format!("{container}\r\n{ifname}").into_bytes(),
            None => container.as_bytes().to_vec(),
        })
    }

    /// The place that lists this record's owner; none for a foreign record.
    pub fn owner(&self) -> Option<Place> {
        let container = self.container.clone()?;
        Some(Place::Owner { container, ifname: self.ifname.clone().unwrap_or_default() })
    }

    /// Reads a stored record; none if it is not one.
    pub fn parse(value: &[u8]) -> Option<Self> {
        serde_json::from_slice(value).ok()
    }

    /// The bytes to store.
    pub fn to_bytes(&self) -> Vec<u8> {
        // Plain strings under fixed names always serialise.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// Whether a text may be a container id or a network name (CNI specification, "Parameters";
/// `^[A-Za-z0-9][A-Za-z0-9_.-]*$`, any length).
pub fn is_container_id(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphanumeric())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
}

/// The longest interface name, in bytes (IFNAMSIZ less the final zero).
pub const IFNAME_BYTES_MAX: usize = 15;

/// Whether a text may be an interface name: 1 to [`IFNAME_BYTES_MAX`] bytes, not `.` or `..`, without `/`, `:` and
/// white space (CNI reference code; Linux `dev_valid_name`).
pub fn is_ifname(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= IFNAME_BYTES_MAX
        && text != "."
        && text != ".."
        && !text.chars().any(|c| c == '/' || c == ':' || c.is_whitespace())
}

/// Reads the value of an owner key: the places that an owner holds.
pub fn parse_holdings(value: &[u8]) -> Option<Vec<Place>> {
    let endings: Vec<String> = serde_json::from_slice(value).ok()?;
    endings.iter().map(|ending| Place::parse(ending)).collect()
}

/// The value of an owner key, from the places in byte order of their endings.
pub fn holdings_to_bytes<'a>(places: impl IntoIterator<Item = &'a Place>) -> Vec<u8> {
    let mut endings: Vec<String> = places.into_iter().map(ToString::to_string).collect();
    endings.sort();
    serde_json::to_vec(&endings).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_encoding() {
        for name in ["a", "a.b_c-D9", "a/b", "ä%", "\u{0}", "%41", ""] {
            assert_eq!(decode(&encode(name)).as_deref(), Some(name));
        }
        assert_eq!(encode("sub/10.0.0.1"), "sub%2F10.0.0.1");
        for text in ["%4", "%4g", "%41", "%2f", "a b"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }

    #[test]
    fn places_survive_the_round_trip() {
        let v4 = Address::parse("10.1.2.2").unwrap();
        let v6 = Address::parse("2001:db8::1").unwrap();
        for (place, ending) in [
            (Place::Address(v4), "address/v4/0a010202"),
            (Place::Address(v6), "address/v6/20010db8000000000000000000000001"),
            (Place::Cursor(3), "cursor/3"),
            (Place::Stray("sub/x".into()), "stray/sub%2Fx"),
            (Place::Owner { container: "c1".into(), ifname: "eth0".into() }, "owner/c1/eth0"),
            (Place::Owner { container: "c1".into(), ifname: String::new() }, "owner/c1/"),
            (Place::Boot { boot: "b-1".into(), address: v4 }, "boot/b-1/v4/0a010202"),
        ] {
            assert_eq!(place.to_string(), ending);
            assert_eq!(Place::parse(ending), Some(place));
        }
        for ending in ["", "address", "address/v4/0A010202", "address/v5/00", "cursor/03", "stray/", "boot/b/v4"] {
            assert_eq!(Place::parse(ending), None, "{ending}");
        }
    }

    #[test]
    fn host_local_content_is_read_as_the_original_reads_it() {
        let read = |content: &str| Record::from_host_local(content.as_bytes(), None);
        assert_eq!(read("c1\r\neth0"), Record::owned("c1", "eth0", None));
        assert_eq!(read(" \n c1\r\neth0\n"), Record::owned("c1", "eth0", None));
        assert_eq!(read("c1").container.as_deref(), Some("c1"));
        assert_eq!(read("c1").ifname, None);
        assert_eq!(read("").foreign.as_deref(), Some("empty"));
        for content in ["c1\neth0", "c 1\r\neth0", "c1\r\neth 0", "c1\r\n", "10.0.0.1/8"] {
            let record = read(content);
            if content == "c1\r\n" {
                assert_eq!(record.container.as_deref(), Some("c1"), "trimming leaves the id alone");
            } else {
                assert_eq!(record.foreign.as_deref(), Some("unknown content"), "{content:?}");
            }
        }
    }
}
