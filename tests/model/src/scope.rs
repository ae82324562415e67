//! What is explored: who does what, from which state, with which faults.

use crate::contents::{Contents, Fixed, Values};
use plat_core::net::Address;

/// What goes wrong, and how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// How often in all.
    pub times: u8,
    /// A client is cut off at a commit, which may still be applied at any later moment, or never. It never comes back,
    /// or repeats its operation, or undoes it.
    pub crashes: bool,
    /// A commit is refused as if somebody had been faster.
    pub conflicts: bool,
    /// The answer to a commit is lost, which may still be applied at any later moment, or never.
    pub lost_replies: bool,
    /// A look that need not be fresh shows what was before others' last writes.
    pub stale_looks: bool,
}

impl Faults {
    /// Of every kind.
    pub fn all(times: u8) -> Self {
        Self { times, crashes: true, conflicts: true, lost_replies: true, stale_looks: true }
    }
}

/// A part of the protocol that is broken on purpose, between the core and the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Writes of blocks are made whatever version is there.
    BlockVersionIgnored,
    /// Blocks are created whether they are there or not.
    BlockAbsenceIgnored,
    /// A handle is written after the block that its address is taken from.
    HandleAfterBlock,
    /// Looks for overlapping blocks find none.
    OverlapUnseen,
    /// A commit whose reply is lost is reported as one that somebody else forestalled.
    LostReplyIsConflict,
    /// The write that keeps a late one from being made is left out: blocks are not rewritten if nothing else changes.
    FenceLeftOut,
    /// Deletions of blocks are made whatever version is there.
    BlockDeletedUnseen,
}

/// A scope.
pub struct Scope<O> {
    /// Its name.
    pub name: String,
    /// How many writes a commit may hold.
    pub atomic_writes: u32,
    /// What nobody writes, as each client sees it.
    pub fixed: Vec<Fixed>,
    /// All values.
    pub values: Values,
    /// The store at the beginning.
    pub start: Contents,
    /// The addresses that are there to be had: at most 64, without a gap.
    pub addresses: Vec<Address>,
    /// What each client does, one operation after the other.
    pub clients: Vec<Vec<O>>,
    /// What goes wrong.
    pub faults: Faults,
    /// What is broken on purpose.
    pub mutation: Option<Mutation>,
    /// How often a host repeats an operation that was answered with "contended" or "unsettled".
    pub repeats_max: u8,
    /// Whether a host may then give up (CNI code 11); otherwise it is a violation.
    pub may_give_up: bool,
    /// The time at the beginning, in seconds since 1970.
    pub time: u64,
    /// Steps of the clock in a random walk, in seconds.
    pub clock_steps: Vec<u64>,
    /// What must be true of each state of the store.
    pub invariant: fn(&Contents) -> Result<(), String>,
    /// What must be true after all clients are done, tried out on a copy of the store.
    pub at_end: fn(&mut End<'_>) -> Result<(), String>,
}

/// The end of a path.
pub struct End<'e> {
    /// A copy of the store.
    pub contents: Contents,
    /// What nobody writes.
    pub fixed: &'e Fixed,
    /// All values.
    pub values: &'e mut Values,
    /// How many writes a commit may hold.
    pub atomic_writes: u32,
    /// The time in seconds since 1970.
    pub time: u64,
    /// How many addresses are free.
    pub free: u32,
}
