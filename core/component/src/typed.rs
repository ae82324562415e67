//! The values of the typed interfaces (`ipam`, `inspect`, `resources`), between the contract's types and plat-core's.
//!
//! The component's crate and the runtime's both include this file: each has the contract's types under the same names.

#![allow(dead_code, reason = "each of the two crates uses one direction of most conversions")]

use crate::bindings::exports::plat::ipam::{inspect, ipam as wit, resources as wit_resources, types};
use plat_core::ipam as core;
use plat_core::net::{Address, Count, Family, Prefix};
use plat_core::resources;

/// To the contract's type.
pub(crate) trait ToWit {
    type Wit;
    fn to_wit(self) -> Self::Wit;
}

/// From the contract's type.
pub(crate) trait FromWit: Sized {
    type Wit;
    fn from_wit(wit: Self::Wit) -> Self;
}

impl<T: ToWit> ToWit for Vec<T> {
    type Wit = Vec<T::Wit>;
    fn to_wit(self) -> Self::Wit {
        self.into_iter().map(T::to_wit).collect()
    }
}

impl<T: FromWit> FromWit for Vec<T> {
    type Wit = Vec<T::Wit>;
    fn from_wit(wit: Self::Wit) -> Self {
        wit.into_iter().map(T::from_wit).collect()
    }
}

impl<T: ToWit> ToWit for Option<T> {
    type Wit = Option<T::Wit>;
    fn to_wit(self) -> Self::Wit {
        self.map(T::to_wit)
    }
}

impl<T: FromWit> FromWit for Option<T> {
    type Wit = Option<T::Wit>;
    fn from_wit(wit: Self::Wit) -> Self {
        wit.map(T::from_wit)
    }
}

impl<T: ToWit, E: ToWit> ToWit for Result<T, E> {
    type Wit = Result<T::Wit, E::Wit>;
    fn to_wit(self) -> Self::Wit {
        self.map(T::to_wit).map_err(E::to_wit)
    }
}

impl<T: FromWit, E: FromWit> FromWit for Result<T, E> {
    type Wit = Result<T::Wit, E::Wit>;
    fn from_wit(wit: Self::Wit) -> Self {
        wit.map(T::from_wit).map_err(E::from_wit)
    }
}

/// Types that are the same on both sides.
macro_rules! same {
    ($($type:ty),*) => {$(
        impl ToWit for $type {
            type Wit = $type;
            fn to_wit(self) -> $type { self }
        }
        impl FromWit for $type {
            type Wit = $type;
            fn from_wit(wit: $type) -> $type { wit }
        }
    )*};
}
same!((), bool, u8, u32, u64, i64, String);

/// Records whose members have the same names on both sides.
macro_rules! record {
    ($($core:ty = $wit:path { $($member:ident),* $(,)? })*) => {$(
        impl ToWit for $core {
            type Wit = $wit;
            fn to_wit(self) -> $wit {
                $wit { $($member: self.$member.to_wit()),* }
            }
        }
        impl FromWit for $core {
            type Wit = $wit;
            fn from_wit(wit: $wit) -> Self {
                Self { $($member: FromWit::from_wit(wit.$member)),* }
            }
        }
    )*};
}

/// Variants whose cases have the same names on both sides, and hold at most one value.
macro_rules! variant {
    ($($core:ty = $wit:path { $($plain:ident),* $(,)? ; $($full:ident),* $(,)? })*) => {$(
        impl ToWit for $core {
            type Wit = $wit;
            fn to_wit(self) -> $wit {
                use $wit as Wit;
                match self {
                    $(Self::$plain => Wit::$plain,)*
                    $(Self::$full(value) => Wit::$full(value.to_wit()),)*
                }
            }
        }
        impl FromWit for $core {
            type Wit = $wit;
            fn from_wit(wit: $wit) -> Self {
                use $wit as Wit;
                match wit {
                    $(Wit::$plain => Self::$plain,)*
                    $(Wit::$full(value) => Self::$full(FromWit::from_wit(value)),)*
                }
            }
        }
    )*};
}

impl ToWit for Address {
    type Wit = types::Address;
    fn to_wit(self) -> types::Address {
        let [hi, lo] = [self.bits() >> 64, self.bits() & u128::from(u64::MAX)].map(|half| half as u64);
        types::Address { family: self.family().to_wit(), hi, lo }
    }
}

impl FromWit for Address {
    type Wit = types::Address;
    /// Bits beyond the family's width are cut off: such an address does not exist, and nobody holds it.
    fn from_wit(wit: types::Address) -> Self {
        let bits = u128::from(wit.hi) << 64 | u128::from(wit.lo);
        let family = Family::from_wit(wit.family);
        Self::new(family, bits).unwrap_or(Self::highest(family))
    }
}

impl ToWit for Prefix {
    type Wit = types::Prefix;
    fn to_wit(self) -> types::Prefix {
        types::Prefix { base: self.base().to_wit(), length: self.length() }
    }
}

impl FromWit for Prefix {
    type Wit = types::Prefix;
    /// A length beyond the family's width is that width.
    fn from_wit(wit: types::Prefix) -> Self {
        let base = Address::from_wit(wit.base);
        Self::new(base, wit.length.min(base.family().bits())).unwrap_or(Self::everything(base.family()))
    }
}

impl ToWit for Count {
    type Wit = types::Count;
    fn to_wit(self) -> types::Count {
        match self.as_u128() {
            None => types::Count { all: true, hi: 0, lo: 0 },
            Some(below) => {
                let [hi, lo] = [below >> 64, below & u128::from(u64::MAX)].map(|half| half as u64);
                types::Count { all: false, hi, lo }
            }
        }
    }
}

impl FromWit for Count {
    type Wit = types::Count;
    fn from_wit(wit: types::Count) -> Self {
        if wit.all { Self::MAX } else { Self::from(u128::from(wit.hi) << 64 | u128::from(wit.lo)) }
    }
}

impl ToWit for core::Attributes {
    type Wit = Vec<types::Attribute>;
    fn to_wit(self) -> Self::Wit {
        self.into_iter().map(|(name, value)| types::Attribute { name, value }).collect()
    }
}

impl FromWit for core::Attributes {
    type Wit = Vec<types::Attribute>;
    fn from_wit(wit: Self::Wit) -> Self {
        wit.into_iter().map(|attribute| (attribute.name, attribute.value)).collect()
    }
}

impl ToWit for core::Advice {
    type Wit = types::Advice;
    fn to_wit(self) -> types::Advice {
        let block = |(base, length): (Address, u8)| types::Prefix { base: base.to_wit(), length };
        types::Advice {
            policy: self.policy,
            refuse: self.refuse,
            pools: self.pools,
            blocks: self.blocks.map(|blocks| blocks.into_iter().map(block).collect()),
        }
    }
}

impl FromWit for core::Advice {
    type Wit = types::Advice;
    fn from_wit(wit: types::Advice) -> Self {
        let block = |prefix: types::Prefix| (Address::from_wit(prefix.base), prefix.length);
        Self {
            policy: wit.policy,
            refuse: wit.refuse,
            pools: wit.pools,
            blocks: wit.blocks.map(|blocks| blocks.into_iter().map(block).collect()),
        }
    }
}

variant! {
    Family = types::Family { V4, V6; }
    core::Use = types::Purpose { Workload, Tunnel, LoadBalancer; }
    core::Holder = types::Holder { ; Host, Virtual }
    core::Released = wit::Released { Freed, Cooling, NotAssigned; }
    core::SlotChange = wit::SlotChange { Keep, Clear; Set }
    core::PassOver = types::PassOver {
        Disabled, Deleting, OtherFamily, NotRequested, Manual, Full, Reserved, StrictAffinity, NoAutoAllocate, SearchLimit;
        NotAllocatable, NodeSelector, NamespaceSelector, NotForThisUse, BlockTooSmall, BlockLimit, AddressLimit, RefusedBy,
    }
    resources::Kind = wit_resources::Kind { Pool, Reservation, Configuration, Node, Namespace; }
    resources::Mode = wit_resources::Mode { Apply, Create, Update; }
    resources::Done = wit_resources::Done { Created, Configured, Unchanged, Deleted; }
}

record! {
    core::Edges = types::Edges { first, last, handle, note }
    core::Assignment = types::Assignment {
        handle, holder, purpose, v4, v6, v4_pools, v6_pools, namespace, attributes, blocks_max, addresses_max,
        per_handle_max, v4_edges, v6_edges, avoid, avoid_pool_edges, partial, advice,
    }
    core::Grant = types::Grant { address, block, pool, pool_cidr, sequence, held_before }
    core::Granted = types::Granted { grants, passed_over, failed }
    core::PoolReport = types::PoolReport { pool, cidr, capacity, in_use, free, why, remedy }
    core::Held = types::Held { address, block, block_holder, handle, sequence, active, alternate, cooling_since }
    core::Specific = wit::Specific { address, handle, holder, purpose, attributes, per_handle_max, edges }
    core::Release = wit::ReleaseItem { address, handle, sequence }
    core::OwnerChange = wit::OwnerChange { address, handle, active, alternate, active_must_be, alternate_must_be }
    core::AffinityRelease = wit::AffinityRelease { holder, within, must_be_empty, sequence }
    core::AffinityOutcome = wit::AffinityOutcome { block, outcome }
    core::BlockDemand = wit::BlockDemand { holder, family, pools, edges }
    core::BlockUsage = inspect::BlockUsage { block, holder, capacity, in_use, cooling, reserved, free, held }
    core::PoolUsage = inspect::PoolUsage { pool, cidr, capacity, in_use, cooling, borrowed, reserved, free, blocks }
    resources::Problem = wit_resources::Problem { path, value, message, remedy }
    resources::Outcome = wit_resources::Outcome { kind, name, done, warnings }
}

impl ToWit for core::SlotPrecondition {
    type Wit = wit::SlotPrecondition;
    fn to_wit(self) -> wit::SlotPrecondition {
        match self {
            Self::Any => wit::SlotPrecondition::Any,
            Self::Empty => wit::SlotPrecondition::Empty,
            Self::OwnedBy { namespace, pod } => wit::SlotPrecondition::OwnedBy(wit::Pod { namespace, name: pod }),
        }
    }
}

impl FromWit for core::SlotPrecondition {
    type Wit = wit::SlotPrecondition;
    fn from_wit(wit: wit::SlotPrecondition) -> Self {
        match wit {
            wit::SlotPrecondition::Any => Self::Any,
            wit::SlotPrecondition::Empty => Self::Empty,
            wit::SlotPrecondition::OwnedBy(wit::Pod { namespace, name }) => Self::OwnedBy { namespace, pod: name },
        }
    }
}

impl ToWit for core::Error {
    type Wit = types::Error;
    fn to_wit(self) -> types::Error {
        use types::Error as Wit;
        match self {
            Self::Exhausted { family, wanted, obtained } => {
                Wit::Exhausted(types::Exhaustion { family: family.to_wit(), wanted, obtained })
            }
            Self::Taken { handle, owner } => Wit::Taken(types::Tenancy { handle, owner: owner.to_wit() }),
            Self::NotFound(name) => Wit::NotFound(name),
            Self::NoSuchPool { pool, why } => Wit::NoSuchPool((pool, why)),
            Self::NoPool(family) => Wit::NoPool(family.to_wit()),
            Self::NotInAPool(address) => Wit::NotInAPool(address.to_wit()),
            Self::NotYours(handle) => Wit::NotYours(handle),
            Self::StrictAffinity(holder) => Wit::StrictAffinity(holder.to_wit()),
            Self::ClaimedBy(holder) => Wit::ClaimedBy(holder.to_wit()),
            Self::StaleSequence(stored) => Wit::StaleSequence(stored),
            Self::OwnerDiffers(why) => Wit::OwnerDiffers(why),
            Self::NotEmpty(block) => Wit::NotEmpty(block.to_wit()),
            Self::HandleLimit(max) => Wit::HandleLimit(max),
            Self::Overlap(one, other) => Wit::Overlap((one.to_wit(), other.to_wit())),
            Self::Contended => Wit::Contended,
            Self::Invalid { field, value, remedy } => Wit::Invalid(types::Invalidity { field, value, remedy }),
            Self::Unreadable { key, why } => Wit::Unreadable((key, why)),
            Self::RefusedByPolicy(policy, why) => Wit::RefusedByPolicy((policy, why)),
            Self::Unavailable(why) => Wit::Unavailable(why),
            Self::Denied(why) => Wit::Denied(why),
            Self::Unsettled => Wit::Unsettled,
        }
    }
}

impl FromWit for core::Error {
    type Wit = types::Error;
    fn from_wit(wit: types::Error) -> Self {
        use types::Error as Wit;
        match wit {
            Wit::Exhausted(types::Exhaustion { family, wanted, obtained }) => {
                Self::Exhausted { family: Family::from_wit(family), wanted, obtained }
            }
            Wit::Taken(types::Tenancy { handle, owner }) => Self::Taken { handle, owner: FromWit::from_wit(owner) },
            Wit::NotFound(name) => Self::NotFound(name),
            Wit::NoSuchPool((pool, why)) => Self::NoSuchPool { pool, why },
            Wit::NoPool(family) => Self::NoPool(FromWit::from_wit(family)),
            Wit::NotInAPool(address) => Self::NotInAPool(FromWit::from_wit(address)),
            Wit::NotYours(handle) => Self::NotYours(handle),
            Wit::StrictAffinity(holder) => Self::StrictAffinity(FromWit::from_wit(holder)),
            Wit::ClaimedBy(holder) => Self::ClaimedBy(FromWit::from_wit(holder)),
            Wit::StaleSequence(stored) => Self::StaleSequence(stored),
            Wit::OwnerDiffers(why) => Self::OwnerDiffers(why),
            Wit::NotEmpty(block) => Self::NotEmpty(FromWit::from_wit(block)),
            Wit::HandleLimit(max) => Self::HandleLimit(max),
            Wit::Overlap((one, other)) => Self::Overlap(FromWit::from_wit(one), FromWit::from_wit(other)),
            Wit::Contended => Self::Contended,
            Wit::Invalid(types::Invalidity { field, value, remedy }) => Self::Invalid { field, value, remedy },
            Wit::Unreadable((key, why)) => Self::Unreadable { key, why },
            Wit::RefusedByPolicy((policy, why)) => Self::RefusedByPolicy(policy, why),
            Wit::Unavailable(why) => Self::Unavailable(why),
            Wit::Denied(why) => Self::Denied(why),
            Wit::Unsettled => Self::Unsettled,
        }
    }
}

impl ToWit for resources::Object {
    type Wit = wit_resources::Object;
    fn to_wit(self) -> wit_resources::Object {
        let value = self.to_json();
        wit_resources::Object { kind: self.kind.to_wit(), name: self.name, value }
    }
}

impl FromWit for resources::Object {
    type Wit = wit_resources::Object;
    fn from_wit(wit: wit_resources::Object) -> Self {
        Self::from_json(FromWit::from_wit(wit.kind), wit.name, &wit.value)
    }
}
