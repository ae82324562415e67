//! Ahead-of-time compilation with the configuration that the runtime opens the code with.

use anyhow::{Result, anyhow};
use wasmtime::{Engine, OptLevel};

/// An engine for one target.
pub(crate) struct Compiler(Engine);

impl Compiler {
    /// Native code. Naming the target, even the machine's own, keeps wasmtime from using CPU features beyond the
    /// target's baseline: the code runs on older machines than the one that built it.
    pub(crate) fn native(target: &str) -> Result<Self> {
        Self::new(target)
    }

    /// Bytecode for wasmtime's interpreter, for every 64-bit little-endian machine.
    pub(crate) fn pulley() -> Result<Self> {
        Self::new("pulley64")
    }

    fn new(target: &str) -> Result<Self> {
        let mut config = crate::config::engine();
        config.cranelift_opt_level(OptLevel::Speed);
        config.target(target).map_err(|error| anyhow!("no code can be made for {target}: {error:#}"))?;
        let engine = Engine::new(&config).map_err(|error| anyhow!("the engine configuration is refused: {error:#}"))?;
        Ok(Self(engine))
    }

    /// The code of a component, to be opened by `wasmtime::component::Component::deserialize`.
    pub(crate) fn compile(&self, component: &[u8]) -> Result<Vec<u8>> {
        self.0.precompile_component(component).map_err(|error| anyhow!("the component does not compile: {error:#}"))
    }
}
