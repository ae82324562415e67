//! Reads a resolv.conf as host-local does (`cni.md` B.7).

use crate::json::text_of;
use serde::Serialize;

/// The `dns` of a CNI result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Dns {
    /// The local domain.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub domain: String,
    /// Name servers, in order of preference.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nameservers: Vec<String>,
    /// Options of the resolver.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// Domains to search.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<String>,
}

impl Dns {
    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Reads a resolv.conf. Nothing is validated: what is not understood is skipped.
    pub fn from_resolv_conf(content: &[u8]) -> Self {
        let mut dns = Self::default();
        for line in text_of(content).lines() {
            let line = line.trim();
            if line.starts_with(['#', ';']) {
                continue;
            }
            let mut words = line.split_whitespace().map(String::from);
            let (Some(keyword), Some(first)) = (words.next(), words.next()) else { continue };
            match keyword.as_str() {
                "nameserver" => dns.nameservers.push(first),
                "domain" => dns.domain = first,
                "search" => dns.search.extend(std::iter::once(first).chain(words)),
                "options" => dns.options.extend(std::iter::once(first).chain(words)),
                _ => {}
            }
        }
        dns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_the_original_reads_them() {
        let dns = Dns::from_resolv_conf(
            b"# comment\n ; comment\nnameserver 1.1.1.1 ignored\r\nnameserver\nnameserver x\ndomain a\ndomain b\n\
              search c d\nsearch e\noptions ndots:2 rotate\nsortlist 1.2.3.4\n",
        );
        assert_eq!(dns.nameservers, ["1.1.1.1", "x"]);
        assert_eq!(dns.domain, "b");
        assert_eq!(dns.search, ["c", "d", "e"]);
        assert_eq!(dns.options, ["ndots:2", "rotate"]);
        assert!(!dns.is_empty());
        assert!(Dns::from_resolv_conf(b"").is_empty());
    }
}
