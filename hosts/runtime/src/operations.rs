//! The typed operations, as plat-core has them.

use crate::bindings::exports::plat::ipam::types;
use crate::instance::{CallError, Instance, Started};
use crate::limits::{INPUT_BYTES_MAX, ITEMS_MAX};
use crate::typed::{FromWit, ToWit};
use plat_core::clock::Clock;
use plat_core::ipam::{
    AffinityOutcome, AffinityRelease, Assignment, BlockDemand, Error, Grant, Granted, Held, Holder, OwnerChange,
    PoolUsage, Release, Released, Specific,
};
use plat_core::net::{Address, Prefix};
use plat_core::resources::{Kind, Mode, Object, Outcome};
use plat_core::store::Store;

/// What a call of a typed operation is given beside its items.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Milliseconds that are left.
    pub deadline_ms: u64,
    /// 0 at first; one more each time a contended call is repeated.
    pub attempt: u32,
    /// What the call is for, a word or two for the journal.
    pub why: String,
}

impl Settings {
    /// A first attempt with all the time that there is.
    pub fn new(why: &str) -> Self {
        Self { deadline_ms: u64::MAX, attempt: 0, why: why.to_owned() }
    }

    fn to_wit(&self) -> types::Call {
        types::Call { deadline_ms: self.deadline_ms, attempt: self.attempt, why: self.why.clone() }
    }
}

/// An operation that takes a list and answers for each item.
macro_rules! each {
    ($($(#[$doc:meta])* $interface:ident . $name:ident ($item:ty) -> $answer:ty = $call:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        /// The component's: it gave no answer.
        pub fn $name(
            &mut self,
            settings: &Settings,
            items: &[$item],
            store: &mut dyn Store,
            clock: &mut dyn Clock,
        ) -> Result<Vec<$answer>, CallError> {
            let wit = items.to_vec().to_wit();
            let answers = self.operate(items.len(), size_of_val(items), store, clock, |started| {
                started.exports.$interface().$call(&mut started.store, &settings.to_wit(), &wit)
            })?;
            if answers.len() != items.len() {
                return Err(CallError::WrongCount { requests: items.len(), answers: answers.len() });
            }
            Ok(FromWit::from_wit(answers))
        }
    )*};
}

impl Instance<'_> {
    each! {
        /// Assigns addresses that the core chooses.
        plat_ipam_ipam.assign(Assignment) -> Granted = call_assign;
        /// Assigns addresses that the caller chooses.
        plat_ipam_ipam.assign_ip(Specific) -> Result<Grant, Error> = call_assign_ip;
        /// Releases addresses.
        plat_ipam_ipam.release(Release) -> Result<Released, Error> = call_release;
        /// Releases all addresses of each handle.
        plat_ipam_ipam.release_by_handle(String) -> Result<Vec<Address>, Error> = call_release_by_handle;
        /// The addresses of each handle.
        plat_ipam_ipam.addresses_by_handle(String) -> Result<Vec<Held>, Error> = call_addresses_by_handle;
        /// Changes owner slots.
        plat_ipam_ipam.set_owner_attributes(OwnerChange) -> Result<(), Error> = call_set_owner_attributes;
        /// Releases affinities.
        plat_ipam_ipam.release_affinities(AffinityRelease) -> Result<Vec<AffinityOutcome>, Error>
            = call_release_affinities;
        /// Sees to it that a host has a block.
        plat_ipam_ipam.ensure_block(BlockDemand) -> Result<Prefix, Error> = call_ensure_block;
        /// Releases everything that a host claims.
        plat_ipam_ipam.remove_host(Holder) -> Result<Vec<AffinityOutcome>, Error> = call_remove_host;
        /// Who holds each address.
        plat_ipam_inspect.holders(Address) -> Result<Option<Held>, Error> = call_holders;
        /// What an assignment would be answered now.
        plat_ipam_inspect.explain(Assignment) -> Granted = call_explain;
    }

    /// Claims every block of a prefix.
    ///
    /// # Errors
    /// The component's: it gave no answer.
    pub fn claim_affinities(
        &mut self,
        settings: &Settings,
        items: &[(Holder, Prefix)],
        store: &mut dyn Store,
        clock: &mut dyn Clock,
    ) -> Result<Vec<Result<Vec<AffinityOutcome>, Error>>, CallError> {
        use crate::bindings::exports::plat::ipam::ipam::AffinityClaim;
        let claim =
            |(holder, cidr): &(Holder, Prefix)| AffinityClaim { holder: holder.clone().to_wit(), cidr: cidr.to_wit() };
        let wit: Vec<AffinityClaim> = items.iter().map(claim).collect();
        let answers = self.operate(items.len(), size_of_val(items), store, clock, |started| {
            started.exports.plat_ipam_ipam().call_claim_affinities(&mut started.store, &settings.to_wit(), &wit)
        })?;
        Ok(FromWit::from_wit(answers))
    }

    /// How full pools and blocks are.
    ///
    /// # Errors
    /// The component's: it gave no answer.
    pub fn utilization(
        &mut self,
        settings: &Settings,
        pools: &[String],
        store: &mut dyn Store,
        clock: &mut dyn Clock,
    ) -> Result<Result<Vec<PoolUsage>, Error>, CallError> {
        let answer = self.operate(pools.len(), size_of_val(pools), store, clock, |started| {
            started.exports.plat_ipam_inspect().call_utilization(&mut started.store, &settings.to_wit(), pools)
        })?;
        Ok(FromWit::from_wit(answer))
    }

    /// An answer in words.
    ///
    /// # Errors
    /// The component's: it gave no answer.
    pub fn explanation(&mut self, granted: &Granted) -> Result<String, CallError> {
        let wit = vec![granted.clone().to_wit()];
        let texts = self.guarded(1, size_of_val(granted), |started| {
            started.exports.plat_ipam_inspect().call_explanation(&mut started.store, &wit)
        })?;
        texts.into_iter().next().ok_or(CallError::WrongCount { requests: 1, answers: 0 })
    }

    /// Applies documents in JSON.
    ///
    /// # Errors
    /// The component's: it gave no answer.
    pub fn apply(
        &mut self,
        settings: &Settings,
        documents: &[Vec<u8>],
        mode: Mode,
        dry_run: bool,
        store: &mut dyn Store,
        clock: &mut dyn Clock,
    ) -> Result<Vec<Outcome>, CallError> {
        let bytes = documents.iter().map(Vec::len).sum();
        let answer = self.operate(documents.len(), bytes, store, clock, |started| {
            let exports = started.exports.plat_ipam_resources();
            exports.call_apply(&mut started.store, &settings.to_wit(), documents, mode.to_wit(), dry_run)
        })?;
        Ok(FromWit::from_wit(answer))
    }

    /// A resource; none if it does not exist.
    ///
    /// # Errors
    /// The component's, and those of the store in words.
    pub fn resource(
        &mut self,
        settings: &Settings,
        kind: Kind,
        name: &str,
        store: &mut dyn Store,
        clock: &mut dyn Clock,
    ) -> Result<Result<Option<Object>, String>, CallError> {
        let answer = self.operate(1, name.len(), store, clock, |started| {
            let exports = started.exports.plat_ipam_resources();
            exports.call_get(&mut started.store, &settings.to_wit(), kind.to_wit(), name)
        })?;
        Ok(FromWit::from_wit(answer))
    }

    /// All resources of a kind.
    ///
    /// # Errors
    /// The component's, and those of the store in words.
    pub fn resources(
        &mut self,
        settings: &Settings,
        kind: Kind,
        store: &mut dyn Store,
        clock: &mut dyn Clock,
    ) -> Result<Result<Vec<Object>, String>, CallError> {
        let answer = self.operate(1, 0, store, clock, |started| {
            let exports = started.exports.plat_ipam_resources();
            exports.call_enumerate(&mut started.store, &settings.to_wit(), kind.to_wit())
        })?;
        Ok(FromWit::from_wit(answer))
    }

    /// Deletes a resource.
    ///
    /// # Errors
    /// The component's: it gave no answer.
    #[expect(clippy::too_many_arguments, reason = "they are those of the contract, and the two that are lent")]
    pub fn delete(
        &mut self,
        settings: &Settings,
        kind: Kind,
        name: &str,
        force: bool,
        dry_run: bool,
        store: &mut dyn Store,
        clock: &mut dyn Clock,
    ) -> Result<Outcome, CallError> {
        let answer = self.operate(1, name.len(), store, clock, |started| {
            let exports = started.exports.plat_ipam_resources();
            exports.call_delete(&mut started.store, &settings.to_wit(), kind.to_wit(), name, force, dry_run)
        })?;
        Ok(FromWit::from_wit(answer))
    }

    /// Calls an export with store and clock lent to it.
    fn operate<T>(
        &mut self,
        items: usize,
        bytes: usize,
        store: &mut dyn Store,
        clock: &mut dyn Clock,
        export: impl FnOnce(&mut Started) -> wasmtime::Result<T>,
    ) -> Result<T, CallError> {
        if items > ITEMS_MAX || bytes > INPUT_BYTES_MAX {
            return Err(CallError::RequestsTooLarge { requests: items, bytes });
        }
        self.guarded(items, bytes, |started| {
            // SAFETY: they are taken back below, before the borrows end and whatever the call returns. Should the call
            // unwind, `guarded` has taken `started` out of the instance, and it is dropped with what was lent.
            unsafe { started.store.data_mut().lend(store, clock) };
            let answer = export(started);
            started.store.data_mut().take_back();
            answer
        })
    }
}
