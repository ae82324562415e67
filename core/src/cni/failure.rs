//! The error of a CNI call.

use serde::Serialize;

/// Error codes of the CNI specification ("Error") and of its reference code.
pub mod code {
    /// The configuration's version is not supported.
    pub const INCOMPATIBLE_VERSION: u32 = 1;
    /// An environment variable is missing or wrong.
    pub const INVALID_ENVIRONMENT: u32 = 4;
    /// The configuration could not be decoded.
    pub const DECODING_FAILURE: u32 = 6;
    /// The network configuration is invalid.
    pub const INVALID_CONFIG: u32 = 7;
    /// The network namespace is the plugin's own.
    pub const INVALID_NETNS: u32 = 8;
    /// A passing condition: the runtime should try again.
    pub const TRY_AGAIN_LATER: u32 = 11;
    /// STATUS: an ADD cannot be served.
    pub const NOT_AVAILABLE: u32 = 50;
    /// Whatever has no code of its own, as in the reference code.
    pub const INTERNAL: u32 = 999;
}

/// What a failed call answers, in the specification's members and order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Failure {
    pub(crate) code: u32,
    pub(crate) msg: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) details: String,
    /// See [`super::Reply::contended`].
    #[serde(skip)]
    pub(crate) contended: bool,
}

impl Failure {
    pub(crate) fn new(code: u32, msg: impl Into<String>) -> Self {
        Self { code, msg: msg.into(), details: String::new(), contended: false }
    }

    /// An error without a code of its own.
    pub(crate) fn internal(msg: impl Into<String>) -> Self {
        Self::new(code::INTERNAL, msg)
    }

    /// The container's network namespace is the caller's own (code 8).
    pub(crate) fn own_netns() -> Self {
        Self::new(code::INVALID_NETNS, "plugin's netns and netns from CNI_NETNS should not be the same")
    }

    pub(crate) fn with_details(mut self, details: impl Into<String>) -> Self {
        self.details = details.into();
        self
    }

    /// Puts a text before the message.
    pub(crate) fn within(mut self, context: &str) -> Self {
        self.msg.insert_str(0, context);
        self
    }
}
