//! How addresses are chosen. Each strategy answers the verbs of [`crate::cni`] for the plugins that it replaces.

pub(crate) mod block;
pub(crate) mod ranges;

pub(crate) use ranges::Call;
