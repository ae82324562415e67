//! What the operations of the `block` strategy take and give: the records of `wit/ipam.wit` in Rust.

pub use crate::cni::Advice;
use crate::net::{Address, Count, Family, Prefix};
pub use crate::objects::Holder;
use std::collections::BTreeMap;

/// Owner attributes or labels, by name.
pub type Attributes = BTreeMap<String, String>;

/// What an address is for; pools admit by it (`calico.md` 1.1, `allowedUses`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Use {
    /// A pod or container.
    #[default]
    Workload,
    /// A node's tunnel device.
    Tunnel,
    /// A Service; held by a virtual owner.
    LoadBalancer,
}

/// Ordinals at the edges of each block that its host keeps for itself (Windows: the first 3 and the last 1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edges {
    /// How many ordinals at the start.
    pub first: u32,
    /// How many ordinals at the end.
    pub last: u32,
    /// The handle under which they are held.
    pub handle: String,
    /// The attribute `note` of them.
    pub note: String,
}

/// A request for addresses that the core chooses (`calico.md` 2.2, 2.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The handle to hold them under; none: without a handle.
    pub handle: Option<String>,
    /// For whom; a host name or a virtual owner.
    pub holder: Holder,
    /// What for.
    pub purpose: Use,
    /// How many IPv4 addresses.
    pub v4: u32,
    /// How many IPv6 addresses.
    pub v6: u32,
    /// Names or CIDRs of IPv4 pools, in order of preference; empty: the pools that select this holder and namespace.
    pub v4_pools: Vec<String>,
    /// As `v4_pools`, for IPv6.
    pub v6_pools: Vec<String>,
    /// The namespace whose labels the pools' namespace selectors see; none: no labels.
    pub namespace: Option<String>,
    /// The attributes of the active owner.
    pub attributes: Attributes,
    /// Blocks that the holder may have per family, if lower than the configured limit.
    pub blocks_max: Option<u32>,
    /// Addresses that the holder may have per family in its own blocks, if lower than the configured limit.
    pub addresses_max: Option<u32>,
    /// Addresses that the handle may have per family: if it has enough already, they are the answer (VM persistence,
    /// and a repeated ADD).
    pub per_handle_max: Option<u32>,
    /// Ordinals that the host keeps for itself in IPv4 blocks.
    pub v4_edges: Option<Edges>,
    /// Ordinals that the host keeps for itself in IPv6 blocks.
    pub v6_edges: Option<Edges>,
    /// Addresses that this request must not get, beside the reserved ones (a gateway).
    pub avoid: Vec<Address>,
    /// The first and the last address of a pool are not given (network and broadcast of a shared link); both families
    /// keep the first, IPv4 keeps the last too, and pools of one or two addresses keep none.
    pub avoid_pool_edges: bool,
    /// Fewer addresses than asked are taken as an answer; otherwise it is all of both families or nothing.
    pub partial: bool,
    /// What policies said.
    pub advice: Vec<Advice>,
}

impl Assignment {
    /// A request of a workload for one address of each family counted.
    pub fn new(holder: Holder, v4: u32, v6: u32) -> Self {
        Self {
            handle: None,
            holder,
            purpose: Use::Workload,
            v4,
            v6,
            v4_pools: Vec::new(),
            v6_pools: Vec::new(),
            namespace: None,
            attributes: Attributes::new(),
            blocks_max: None,
            addresses_max: None,
            per_handle_max: None,
            v4_edges: None,
            v6_edges: None,
            avoid: Vec::new(),
            avoid_pool_edges: false,
            partial: false,
            advice: Vec::new(),
        }
    }

    /// How many addresses of a family are wanted.
    pub fn wanted(&self, family: Family) -> u32 {
        match family {
            Family::V4 => self.v4,
            Family::V6 => self.v6,
        }
    }

    /// The pools requested for a family.
    pub fn pools(&self, family: Family) -> &[String] {
        match family {
            Family::V4 => &self.v4_pools,
            Family::V6 => &self.v6_pools,
        }
    }

    /// The edges kept in blocks of a family.
    pub fn edges(&self, family: Family) -> Option<&Edges> {
        match family {
            Family::V4 => self.v4_edges.as_ref(),
            Family::V6 => self.v6_edges.as_ref(),
        }
    }
}

/// One address that was obtained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The address.
    pub address: Address,
    /// The block that holds it.
    pub block: Prefix,
    /// The pool's name; empty if no pool contains the block any more (only for addresses held before).
    pub pool: String,
    /// The pool's CIDR; the block if there is no pool.
    pub pool_cidr: Prefix,
    /// The sequence number that a release may name.
    pub sequence: u64,
    /// Whether this handle had it before this request.
    pub held_before: bool,
}

/// The answer to an [`Assignment`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Granted {
    /// The addresses, IPv4 first, in the order in which they were taken.
    pub grants: Vec<Grant>,
    /// If fewer than asked: each pool that was looked at, in order, and why it gave no more.
    pub passed_over: Vec<PoolReport>,
    /// Why the request failed. With `partial` both grants and this can be there.
    pub failed: Option<Error>,
}

impl Granted {
    /// Whether fewer addresses were free than asked.
    pub fn is_exhausted(&self) -> bool {
        matches!(self.failed, Some(Error::Exhausted { .. }))
    }
}

/// A request for one address that the caller chooses (`calico.md` 2.8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Specific {
    /// The address.
    pub address: Address,
    /// The handle to hold it under.
    pub handle: Option<String>,
    /// For whom.
    pub holder: Holder,
    /// What for; none: not checked against the pool's uses.
    pub purpose: Option<Use>,
    /// The attributes of the active owner.
    pub attributes: Attributes,
    /// As in [`Assignment`]: with it, an address that the handle has already is no error.
    pub per_handle_max: Option<u32>,
    /// Ordinals that the host keeps for itself, should the block be new.
    pub edges: Option<Edges>,
}

/// An address to give back (`calico.md` 2.9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// The address.
    pub address: Address,
    /// Whose it must be.
    pub handle: Option<String>,
    /// The sequence number that it must have.
    pub sequence: Option<u64>,
}

/// What became of an address that was to be released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// It is free.
    Freed,
    /// It is released, and free when the cooldown is over.
    Cooling,
    /// Nobody held it (or it was cooling already): nothing was changed.
    NotAssigned,
}

/// A held address as its block tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The address.
    pub address: Address,
    /// Its block.
    pub block: Prefix,
    /// Who holds the block.
    pub block_holder: Option<Holder>,
    /// The handle, cut at the first carriage return.
    pub handle: Option<String>,
    /// The sequence number of the allocation; 0 where an old block has none.
    pub sequence: u64,
    /// The active owner's attributes.
    pub active: Attributes,
    /// The alternate owner's attributes.
    pub alternate: Attributes,
    /// Since when it is cooling, in seconds since 1970; none: it is in use.
    pub cooling_since: Option<i64>,
}

/// What is done with one owner slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SlotChange {
    /// Nothing.
    #[default]
    Keep,
    /// It becomes empty.
    Clear,
    /// It gets these attributes.
    Set(Attributes),
}

/// What must hold of a slot; looked at only if the slot is to change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SlotPrecondition {
    /// Nothing.
    #[default]
    Any,
    /// It is empty.
    Empty,
    /// Its attributes `namespace` and `pod` are these.
    OwnedBy {
        /// The namespace.
        namespace: String,
        /// The pod's name.
        pod: String,
    },
}

/// A change of an address's owner slots (`calico.md` 2.12).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerChange {
    /// The address.
    pub address: Address,
    /// The handle that must hold it.
    pub handle: String,
    /// What becomes of the active slot.
    pub active: SlotChange,
    /// What becomes of the alternate slot.
    pub alternate: SlotChange,
    /// What must hold of the active slot.
    pub active_must_be: SlotPrecondition,
    /// What must hold of the alternate slot.
    pub alternate_must_be: SlotPrecondition,
}

/// Which affinities are to be released (`calico.md` 2.10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AffinityRelease {
    /// Whose; none: everybody's (a pool that goes).
    pub holder: Option<Holder>,
    /// Those of blocks in this prefix, which may be a single block; none: all.
    pub within: Option<Prefix>,
    /// Only those of empty blocks.
    pub must_be_empty: bool,
    /// The block's sequence number must be this; only with `within` a single block.
    pub sequence: Option<u64>,
}

/// What became of one block's affinity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AffinityOutcome {
    /// The block.
    pub block: Prefix,
    /// Done, or why not.
    pub outcome: Result<(), Error>,
}

/// A block that a host wants to have, with nothing taken from it (`calico.md` 2.10, EnsureBlock).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockDemand {
    /// For whom.
    pub holder: Holder,
    /// Of which family.
    pub family: Family,
    /// As in [`Assignment`].
    pub pools: Vec<String>,
    /// Ordinals to keep.
    pub edges: Option<Edges>,
}

/// Why a pool did not serve a request, or not more of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PassOver {
    /// `disabled: true`.
    Disabled,
    /// It is being deleted.
    Deleting,
    /// Its condition Allocatable is False; the reason written there.
    NotAllocatable(String),
    /// It is of the other family.
    OtherFamily,
    /// It was not among the requested pools.
    NotRequested,
    /// `assignmentMode: Manual`, and it was not requested.
    Manual,
    /// The node selector that does not match, as written.
    NodeSelector(String),
    /// The namespace selector that does not match, as written.
    NamespaceSelector(String),
    /// `allowedUses` lacks the purpose.
    NotForThisUse(Use),
    /// Its blocks have fewer addresses than the host keeps for itself and one more; the largest length that would do.
    BlockTooSmall(u8),
    /// No free block, and no free address in its blocks.
    Full,
    /// What is free is reserved.
    Reserved,
    /// No free block, and addresses of other holders' blocks may not be used.
    StrictAffinity,
    /// The holder has as many blocks as it may; the limit. It then may not borrow either.
    BlockLimit(u32),
    /// The holder has as many addresses as it may; the limit.
    AddressLimit(u32),
    /// New blocks are not claimed, since `autoAllocateBlocks` is false.
    NoAutoAllocate,
    /// A policy refused it; the policy's name.
    RefusedBy(String),
    /// The free space is too scattered to be found within the bounds of one call.
    SearchLimit,
}

/// One line of an explanation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolReport {
    /// The pool's name.
    pub pool: String,
    /// Its CIDR.
    pub cidr: Prefix,
    /// How many addresses it has.
    pub capacity: Count,
    /// How many of them are held (cooling ones among them).
    pub in_use: Count,
    /// How many are free, reserved ones among them.
    pub free: Count,
    /// Why it was passed over.
    pub why: PassOver,
    /// What to do about it, a sentence.
    pub remedy: String,
}

/// Why an operation failed. What is textual is for people only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// Fewer addresses are free than wanted. The report of each pool is in [`Granted::passed_over`].
    Exhausted {
        /// The family that is short.
        family: Family,
        /// How many were wanted.
        wanted: u32,
        /// How many there were.
        obtained: u32,
    },
    /// The address is held; the attributes of its active owner and its handle.
    Taken {
        /// The handle.
        handle: Option<String>,
        /// The active owner's attributes.
        owner: Attributes,
    },
    /// Nothing of that name exists.
    NotFound(String),
    /// A requested pool does not exist or cannot be used; its name or CIDR, and why.
    NoSuchPool {
        /// As requested.
        pool: String,
        /// Why.
        why: String,
    },
    /// No pool may serve the request at all; the reports are in [`Granted::passed_over`].
    NoPool(Family),
    /// The address lies in no usable pool.
    NotInAPool(Address),
    /// Another handle holds it; the stored one.
    NotYours(Option<String>),
    /// The block is another holder's, and strict affinity forbids to use it.
    StrictAffinity(Option<Holder>),
    /// The block belongs to another holder.
    ClaimedBy(Option<Holder>),
    /// The sequence number differs; the stored one.
    StaleSequence(u64),
    /// A precondition on an owner slot does not hold.
    OwnerDiffers(String),
    /// Addresses of the block are held.
    NotEmpty(Prefix),
    /// The handle has as many addresses as it may.
    HandleLimit(u32),
    /// Two blocks overlap, where none may: both.
    Overlap(Prefix, Prefix),
    /// Compare-and-swap lost in every try of this call: wait and repeat with the next attempt.
    Contended,
    /// A field of the request is wrong: the field, its value, and what is allowed.
    Invalid {
        /// The field.
        field: String,
        /// Its value.
        value: String,
        /// The remedy.
        remedy: String,
    },
    /// An object in the store cannot be read: its key and why.
    Unreadable {
        /// The key.
        key: String,
        /// Why.
        why: String,
    },
    /// A policy refused the request: its name and its reason.
    RefusedByPolicy(String, String),
    /// The store cannot be used now.
    Unavailable(String),
    /// The store refuses.
    Denied(String),
    /// It is unknown whether a write was made, and could not be settled in this call: repeat the request.
    Unsettled,
}

/// How full a pool is. Each address is counted once in `in_use`, `reserved` or `free`; `cooling` and `borrowed` are part
/// of `in_use`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolUsage {
    /// The pool's name; empty for blocks that lie in no pool.
    pub pool: String,
    /// Its CIDR; `0.0.0.0/0` for blocks that lie in no pool.
    pub cidr: Prefix,
    /// How many addresses it has.
    pub capacity: Count,
    /// How many are held.
    pub in_use: Count,
    /// How many of those are cooling.
    pub cooling: Count,
    /// How many of those are held by another node than their block.
    pub borrowed: Count,
    /// How many are reserved and not held.
    pub reserved: Count,
    /// How many are neither.
    pub free: Count,
    /// The blocks, in address order.
    pub blocks: Vec<BlockUsage>,
}

/// How full a block is. Counted as in [`PoolUsage`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockUsage {
    /// The block.
    pub block: Prefix,
    /// Who holds it.
    pub holder: Option<Holder>,
    /// How many addresses it has.
    pub capacity: u32,
    /// How many are held.
    pub in_use: u32,
    /// How many of those are cooling.
    pub cooling: u32,
    /// How many are reserved and not held.
    pub reserved: u32,
    /// How many are neither.
    pub free: u32,
    /// Each held address.
    pub held: Vec<Held>,
}
