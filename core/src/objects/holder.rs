//! Who holds a block.

use std::fmt;

/// Who holds an affinity or a block (`calico.md` 0): a host, or a virtual owner such as `load-balancer`.
///
/// Printed as blocks have it: `host:<name>` or `virtual:<name>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holder {
    /// A node, by its name.
    Host(String),
    /// An owner that is no node.
    Virtual(String),
}

impl Holder {
    /// Reads `host:<name>` or `virtual:<name>`; none for anything else, and for an empty name.
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, name) = text.split_once(':')?;
        match kind {
            _ if name.is_empty() => None,
            "host" => Some(Self::Host(name.into())),
            "virtual" => Some(Self::Virtual(name.into())),
            _ => None,
        }
    }

    /// The name without the kind.
    pub fn name(&self) -> &str {
        match self {
            Self::Host(name) | Self::Virtual(name) => name,
        }
    }

    /// `host` or `virtual`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Host(_) => "host",
            Self::Virtual(_) => "virtual",
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind(), self.name())
    }
}
