//! What clients do, and what they are answered.

use plat_core::clock::Clock;
use plat_core::net::Address;
use plat_core::store::Store;
use std::fmt::{Debug, Display};
use std::rc::Rc;

/// An address that an operation answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The address.
    pub address: Address,
    /// The handle.
    pub handle: Rc<str>,
    /// The sequence number that a release may name.
    pub sequence: u64,
}

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is done, or was refused for a reason that the state of things may well give.
    Done,
    /// No address is free.
    Exhausted,
    /// Others were faster each time, or a write could not be settled: the host repeats it.
    Repeat,
    /// An answer that no state of things allows.
    Wrong,
}

/// The answer of an operation.
#[derive(Clone, Debug)]
pub struct Answer {
    /// How it ended.
    pub outcome: Outcome,
    /// What was granted.
    pub grants: Vec<Grant>,
    /// For people.
    pub text: String,
}

/// An operation of a client.
pub trait Operation: Clone + Debug + Display {
    /// Runs it. The same answers of the store lead to the same calls.
    fn run(&self, store: &mut dyn Store, clock: &mut dyn Clock) -> Answer;

    /// The handle whose addresses are in use no more once this has begun.
    fn ends(&self) -> Option<&str> {
        None
    }

    /// Whether it may answer that no address is free.
    fn takes(&self) -> bool {
        false
    }

    /// The operation with what is known only when it begins: the addresses that are granted then. None: there is nothing
    /// to do.
    fn bound(&self, _live: &[Grant]) -> Option<Self> {
        Some(self.clone())
    }

    /// What a runtime calls after this was cut off, if it does not repeat it.
    fn undo(&self) -> Option<Self> {
        None
    }
}
