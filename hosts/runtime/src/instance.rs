//! Opening the core, and calling it.

use crate::bindings::exports::plat::ipam::cni as wit;
use crate::bindings::{self, CorePre};
use crate::imports::{MemoryRefused, State};
use crate::limits::{FUEL_PER_REQUEST, HOST_CALL_BYTES_MAX, INPUT_BYTES_MAX, MEMORY_BYTES_MAX, REQUESTS_MAX};
use crate::{config, convert, embedded};
use plat_core::clock::Clock;
use plat_core::cni::{Reply, Request, Target};
use plat_core::store::Store;
use std::sync::OnceLock;
use wasmtime::component::{Component, HasSelf, Linker};
use wasmtime::{Engine, Trap};

/// Why a call into the component gave no answer. The instance is gone then; the next call gets a new one. A commit that
/// the call made before stands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The component stopped itself, by a panic, or did what WebAssembly forbids.
    #[error("the allocation core stopped: {0}")]
    Trap(String),
    /// The call computed longer than it may.
    #[error("the allocation core used up its budget of {budget} units of fuel")]
    OutOfFuel {
        /// The fuel that the call had.
        budget: u64,
    },
    /// The call needed more memory than it may, or than the system gives.
    #[error("the allocation core needs more memory than the {limit_bytes} bytes it may have, or than the system gives")]
    OutOfMemory {
        /// [`MEMORY_BYTES_MAX`].
        limit_bytes: usize,
    },
    /// The component wanted to hand more to the host than it may.
    #[error("the allocation core hands the host more than {limit_bytes} bytes at once")]
    HostCallTooLarge {
        /// [`HOST_CALL_BYTES_MAX`].
        limit_bytes: usize,
    },
    /// The requests of the call are too many or too large; the component was not called.
    #[error("{requests} requests of {bytes} bytes: a call may hold {REQUESTS_MAX} of {INPUT_BYTES_MAX} bytes together")]
    RequestsTooLarge {
        /// How many there are.
        requests: usize,
        /// How large they are together.
        bytes: usize,
    },
    /// The component did not give one answer for each request.
    #[error("the allocation core gave {answers} answers to {requests} requests")]
    WrongCount {
        /// How many requests there were.
        requests: usize,
        /// How many answers came.
        answers: usize,
    },
    /// The component's code cannot be opened or started on this machine.
    #[error("the allocation core cannot be started: {0}")]
    Unusable(String),
}

/// The core, opened and linked, ready to be instantiated. Cheap to clone.
#[derive(Clone)]
pub struct Core {
    engine: Engine,
    linked: CorePre<State>,
}

/// Where the code of a component is.
pub(crate) enum Code<'a> {
    /// In the binary's own code section.
    #[cfg(target_os = "linux")]
    InPlace,
    /// In memory; to be copied.
    #[cfg_attr(
        all(target_os = "linux", not(any(test, feature = "pulley"))),
        expect(dead_code, reason = "not linux, or in tests")
    )]
    Copied {
        /// What was compiled for the engine of [`config::engine`].
        code: &'a [u8],
        /// Whether it is bytecode for wasmtime's interpreter.
        pulley: bool,
    },
}

impl Core {
    /// The embedded core in native code. It is opened once in a process.
    pub fn embedded() -> Result<&'static Self, CallError> {
        Self::embedded_observed(&mut |_| ())
    }

    /// As [`Core::embedded`], and says what it has done when it is done: `engine`, `component`, `link`. Nothing is said
    /// if the core was open already.
    pub fn embedded_observed(observe: &mut dyn FnMut(&'static str)) -> Result<&'static Self, CallError> {
        static CORE: OnceLock<Result<Core, CallError>> = OnceLock::new();
        CORE.get_or_init(|| {
            #[cfg(target_os = "linux")]
            let code = Code::InPlace;
            #[cfg(not(target_os = "linux"))]
            let code = Code::Copied { code: embedded::NATIVE, pulley: false };
            Self::open(code, observe)
        })
        .as_ref()
        .map_err(Clone::clone)
    }

    /// The embedded core as bytecode, run by wasmtime's interpreter: slower, and in need of no executable memory on any
    /// system. It is opened once in a process.
    #[cfg(feature = "pulley")]
    pub fn interpreted() -> Result<&'static Self, CallError> {
        static CORE: OnceLock<Result<Core, CallError>> = OnceLock::new();
        CORE.get_or_init(|| Self::open(Code::Copied { code: embedded::PULLEY, pulley: true }, &mut |_| ()))
            .as_ref()
            .map_err(Clone::clone)
    }

    pub(crate) fn open(code: Code<'_>, observe: &mut dyn FnMut(&'static str)) -> Result<Self, CallError> {
        Self::try_open(code, observe).map_err(|error| CallError::Unusable(format!("{error:#}")))
    }

    fn try_open(code: Code<'_>, observe: &mut dyn FnMut(&'static str)) -> wasmtime::Result<Self> {
        let mut config = config::engine();
        match &code {
            #[cfg(target_os = "linux")]
            Code::InPlace => {
                config.with_custom_code_memory(Some(std::sync::Arc::new(embedded::in_place::AlreadyExecutable)));
            }
            Code::Copied { pulley: true, .. } => {
                config.target("pulley64")?;
            }
            Code::Copied { pulley: false, .. } => {}
        }
        let engine = Engine::new(&config)?;
        observe("engine");
        let component = match code {
            #[cfg(target_os = "linux")]
            // SAFETY: the code was made by this version of wasmtime in build.rs, lies page-aligned in the binary's code
            // section, and stays there unchanged as long as the process lives.
            Code::InPlace => unsafe { Component::deserialize_raw(&engine, embedded::in_place::code())? },
            // SAFETY: the code was made by this version of wasmtime in build.rs.
            Code::Copied { code, .. } => unsafe { Component::deserialize(&engine, code)? },
        };
        observe("component");
        let mut linker = Linker::new(&engine);
        bindings::Core::add_to_linker::<_, HasSelf<State>>(&mut linker, |state| state)?;
        let linked = CorePre::new(linker.instantiate_pre(&component)?)?;
        observe("link");
        Ok(Self { engine, linked })
    }

    /// A fresh instance, which is started at its first call.
    pub fn instance(&self) -> Instance<'_> {
        Instance { core: self, started: None }
    }
}

/// A core that runs. It keeps nothing from one call to the next but its memory, which may have grown; a call that fails
/// takes the memory with it.
pub struct Instance<'a> {
    core: &'a Core,
    started: Option<Started>,
}

pub(crate) struct Started {
    pub(crate) store: wasmtime::Store<State>,
    pub(crate) exports: bindings::Core,
}

impl Instance<'_> {
    /// Starts the instance, which the first call does otherwise.
    pub fn start(&mut self) -> Result<(), CallError> {
        if self.started.is_none() {
            let mut store = wasmtime::Store::new(&self.core.engine, State::default());
            store.limiter(|state| &mut state.memory);
            store.set_hostcall_fuel(HOST_CALL_BYTES_MAX);
            let exports = store
                .set_fuel(FUEL_PER_REQUEST)
                .and_then(|()| self.core.linked.instantiate(&mut store))
                .map_err(|error| call_error(&error, store.data(), FUEL_PER_REQUEST))?;
            self.started = Some(Started { store, exports });
        }
        Ok(())
    }

    /// Where each request is to go.
    pub fn locate(&mut self, requests: &[Request]) -> Result<Vec<Target>, CallError> {
        let targets = self.enter(requests, |started, requests| {
            started.exports.plat_ipam_cni().call_locate(&mut started.store, requests)
        })?;
        Ok(targets.into_iter().map(convert::target).collect())
    }

    /// The replies to the requests, in their order.
    pub fn call(
        &mut self,
        requests: &[Request],
        store: &mut dyn Store,
        clock: &mut dyn Clock,
    ) -> Result<Vec<Reply>, CallError> {
        let replies = self.enter(requests, |started, requests| {
            // SAFETY: they are taken back below, before the borrows end and whatever the call returns. Should the call
            // unwind, `enter` has taken `started` out of the instance, and it is dropped with what was lent.
            unsafe { started.store.data_mut().lend(store, clock) };
            let replies = started.exports.plat_ipam_cni().call_call(&mut started.store, requests);
            started.store.data_mut().take_back();
            replies
        })?;
        Ok(replies.into_iter().map(convert::reply).collect())
    }

    /// Calls an export under the limits, and keeps the instance only if it answered.
    fn enter<T>(
        &mut self,
        requests: &[Request],
        export: impl FnOnce(&mut Started, &[wit::Request]) -> wasmtime::Result<Vec<T>>,
    ) -> Result<Vec<T>, CallError> {
        let bytes = requests.iter().map(convert::request_bytes).sum();
        if requests.len() > REQUESTS_MAX || bytes > INPUT_BYTES_MAX {
            return Err(CallError::RequestsTooLarge { requests: requests.len(), bytes });
        }
        let converted: Vec<wit::Request> = requests.iter().map(convert::request).collect();
        let answers = self.guarded(requests.len(), bytes, |started| export(started, &converted))?;
        if answers.len() != requests.len() {
            self.started = None;
            return Err(CallError::WrongCount { requests: requests.len(), answers: answers.len() });
        }
        Ok(answers)
    }

    /// Calls an export with the fuel of so many items, and keeps the instance only if it answered.
    pub(crate) fn guarded<T>(
        &mut self,
        items: usize,
        bytes: usize,
        export: impl FnOnce(&mut Started) -> wasmtime::Result<T>,
    ) -> Result<T, CallError> {
        if bytes > INPUT_BYTES_MAX {
            return Err(CallError::RequestsTooLarge { requests: items, bytes });
        }
        self.start()?;
        let Some(mut started) = self.started.take() else {
            return Err(CallError::Unusable("the instance did not start".to_owned()));
        };
        let budget = FUEL_PER_REQUEST.saturating_mul(items.max(1) as u64);
        let answer = started
            .store
            .set_fuel(budget)
            .and_then(|()| export(&mut started))
            .map_err(|error| call_error(&error, started.store.data(), budget))?;
        self.started = Some(started);
        Ok(answer)
    }

    /// The fuel that the last call left over, for tests and measurements; none after a failure.
    pub fn fuel_left(&self) -> Option<u64> {
        self.started.as_ref()?.store.get_fuel().ok()
    }
}

/// What wasmtime's error means.
fn call_error(error: &wasmtime::Error, state: &State, budget: u64) -> CallError {
    /// wasmtime keeps the type of this error to itself.
    const HOST_CALL_FUEL: &str = "fuel allocated for hostcalls has been exhausted";
    if state.memory.refused || error.downcast_ref::<MemoryRefused>().is_some() {
        return CallError::OutOfMemory { limit_bytes: MEMORY_BYTES_MAX };
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel) => CallError::OutOfFuel { budget },
        Some(trap) => CallError::Trap(trap.to_string()),
        None if error.chain().any(|cause| cause.to_string().contains(HOST_CALL_FUEL)) => {
            CallError::HostCallTooLarge { limit_bytes: HOST_CALL_BYTES_MAX }
        }
        None => CallError::Trap(format!("{error:#}")),
    }
}
