//! An affinity: that a holder claims a block, and how far the claim is (`calico.md` 1.4, 2.5).

use super::Holder;
use super::members::{Envelope, Members, Unreadable};
use crate::clock::Instant;
use crate::net::{Family, Prefix};

/// How far a claim is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The block is the holder's.
    Confirmed,
    /// It is announced; the block may or may not exist.
    Pending,
    /// It is being released.
    PendingDeletion,
}

impl State {
    fn text(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Pending => "pending",
            Self::PendingDeletion => "pendingDeletion",
        }
    }
}

/// A claim of a block.
#[derive(Clone, Debug, PartialEq)]
pub struct Affinity {
    envelope: Option<Envelope>,
    state: State,
    spec: Members,
}

impl Affinity {
    /// A claim of a block by a holder.
    pub fn new(holder: &Holder, block: Prefix, state: State, now: Instant) -> Self {
        let name = super::dialect::affinity_name(holder, block);
        let version = match block.family() {
            Family::V4 => "4",
            Family::V6 => "6",
        };
        let labels = [
            ("projectcalico.org/hostname-hash", super::dialect::name_hash(holder.name())),
            ("projectcalico.org/affinity-type", holder.kind().to_owned()),
            ("projectcalico.org/ip-version", version.to_owned()),
        ];
        let mut spec = Members::default();
        spec.set("state", &state.text());
        spec.set("node", &holder.name());
        spec.set("type", &holder.kind());
        spec.set("cidr", &block.to_string());
        spec.set("deleted", &false);
        Self { envelope: Some(Envelope::new("BlockAffinity", &name, now, &labels)), state, spec }
    }

    /// Reads the value of an affinity's key. An empty value and an empty state are those of old versions: confirmed.
    pub fn parse(value: &[u8]) -> Result<Self, Unreadable> {
        if value.trim_ascii().is_empty() || value.trim_ascii() == b"{}" {
            return Ok(Self { envelope: None, state: State::Confirmed, spec: Members::default() });
        }
        let (envelope, spec) = Envelope::parse(value)?;
        let spec: Members = serde_json::from_str(spec.get())?;
        let state: Option<String> = match spec.get("state") {
            Some(state) => serde_json::from_str(state.get())?,
            None => None,
        };
        let state = match state.as_deref() {
            None | Some("" | "confirmed") => State::Confirmed,
            Some("pending") => State::Pending,
            Some("pendingDeletion") => State::PendingDeletion,
            Some(other) => {
                return Err(Unreadable(format!("spec.state {other:?}: it is confirmed, pending or pendingDeletion")));
            }
        };
        Ok(Self { envelope: Some(envelope), state, spec })
    }

    /// The value of the affinity's key.
    pub fn to_bytes(&self) -> Vec<u8> {
        match &self.envelope {
            Some(envelope) => envelope.to_bytes(&self.spec),
            // An old one keeps its form, which names nothing but its state.
            None if self.spec.is_empty() => b"{}".to_vec(),
            None => serde_json::to_vec(&std::collections::BTreeMap::from([("spec", &self.spec)])).unwrap_or_default(),
        }
    }

    /// How far the claim is.
    pub fn state(&self) -> State {
        self.state
    }

    /// Changes how far the claim is.
    pub fn set_state(&mut self, state: State) {
        self.state = state;
        self.spec.set("state", &state.text());
    }
}
