//! The exports of the typed interfaces: conversions around plat-core's functions.

use crate::Component;
use crate::bindings::exports::plat::ipam::{inspect, ipam as wit, resources as wit_resources, types};
use crate::imports::{HostClock, HostStore};
use crate::typed::{FromWit, ToWit};
use plat_core::{ipam, resources};

/// Runs an operation with the imported store and clock.
fn with<T>(settings: &types::Call, run: impl FnOnce(&mut ipam::Call<'_>) -> T) -> T {
    let (mut store, mut clock) = (HostStore, HostClock::default());
    run(&mut ipam::Call {
        store: &mut store,
        clock: &mut clock,
        deadline_ms: settings.deadline_ms,
        attempt: settings.attempt,
        why: &settings.why,
    })
}

/// An operation that takes a list and answers for each item.
macro_rules! each {
    ($($name:ident ($item:ty) -> $answer:ty = $operation:path;)*) => {$(
        fn $name(settings: types::Call, items: Vec<$item>) -> Vec<$answer> {
            let items: Vec<_> = FromWit::from_wit(items);
            with(&settings, |call| $operation(call, &items)).to_wit()
        }
    )*};
}

impl wit::Guest for Component {
    each! {
        assign(types::Assignment) -> types::Granted = ipam::assign;
        assign_ip(wit::Specific) -> Result<types::Grant, types::Error> = ipam::assign_ip;
        release(wit::ReleaseItem) -> Result<wit::Released, types::Error> = ipam::release;
        release_by_handle(String) -> Result<Vec<types::Address>, types::Error> = ipam::release_by_handle;
        addresses_by_handle(String) -> Result<Vec<types::Held>, types::Error> = ipam::addresses_by_handle;
        set_owner_attributes(wit::OwnerChange) -> Result<(), types::Error> = ipam::set_owner_attributes;
        release_affinities(wit::AffinityRelease) -> Result<Vec<wit::AffinityOutcome>, types::Error>
            = ipam::release_affinities;
        ensure_block(wit::BlockDemand) -> Result<types::Prefix, types::Error> = ipam::ensure_block;
        remove_host(types::Holder) -> Result<Vec<wit::AffinityOutcome>, types::Error> = ipam::remove_host;
    }

    fn claim_affinities(
        settings: types::Call,
        items: Vec<wit::AffinityClaim>,
    ) -> Vec<Result<Vec<wit::AffinityOutcome>, types::Error>> {
        let claim = |claim: wit::AffinityClaim| (FromWit::from_wit(claim.holder), FromWit::from_wit(claim.cidr));
        let items: Vec<_> = items.into_iter().map(claim).collect();
        with(&settings, |call| ipam::claim_affinities(call, &items)).to_wit()
    }
}

impl inspect::Guest for Component {
    each! {
        holders(types::Address) -> Result<Option<types::Held>, types::Error> = ipam::held;
        explain(types::Assignment) -> types::Granted = ipam::explain;
    }

    fn utilization(settings: types::Call, pools: Vec<String>) -> Result<Vec<inspect::PoolUsage>, types::Error> {
        with(&settings, |call| ipam::utilization(call, &pools)).to_wit()
    }

    fn explanation(items: Vec<types::Granted>) -> Vec<String> {
        items.into_iter().map(|granted| ipam::text(&FromWit::from_wit(granted))).collect()
    }
}

impl wit_resources::Guest for Component {
    fn apply(
        settings: types::Call,
        documents: Vec<Vec<u8>>,
        mode: wit_resources::Mode,
        dry_run: bool,
    ) -> Vec<wit_resources::Outcome> {
        let mode = FromWit::from_wit(mode);
        with(&settings, |call| resources::apply_bytes(call, &documents, mode, dry_run)).to_wit()
    }

    fn get(
        settings: types::Call,
        kind: wit_resources::Kind,
        name: String,
    ) -> Result<Option<wit_resources::Object>, String> {
        with(&settings, |call| resources::get(call, FromWit::from_wit(kind), &name)).to_wit()
    }

    fn enumerate(settings: types::Call, kind: wit_resources::Kind) -> Result<Vec<wit_resources::Object>, String> {
        with(&settings, |call| resources::list(call, FromWit::from_wit(kind))).to_wit()
    }

    fn delete(
        settings: types::Call,
        kind: wit_resources::Kind,
        name: String,
        force: bool,
        dry_run: bool,
    ) -> wit_resources::Outcome {
        with(&settings, |call| resources::delete(call, FromWit::from_wit(kind), &name, force, dry_run)).to_wit()
    }
}
