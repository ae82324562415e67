//! The store that a command works on, and the core that works on it.

use anyhow::{Context as _, Result, bail};
use plat_runtime::{Core, Instance, Settings};
use plat_stores::clock::SystemClock;
use plat_stores::sqlite::{Options, PATH_DEFAULT, SqliteStore};
use std::time::Duration;

/// How long a command waits for other processes: an administrator looks on.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(30);

/// A store, and an instance of the core.
pub(crate) struct Session {
    pub(crate) store: SqliteStore,
    pub(crate) clock: SystemClock,
    pub(crate) instance: Instance<'static>,
    pub(crate) settings: Settings,
}

impl Session {
    /// Opens what `--store` names.
    ///
    /// # Errors
    /// If it names no store that this build knows, or the core cannot be started.
    pub(crate) fn open(name: Option<&str>, why: &str, writes: bool) -> Result<Self> {
        let name = name.unwrap_or("sqlite");
        let path = match name.split_once(':') {
            None if name == "sqlite" => PATH_DEFAULT,
            Some(("sqlite", path)) if !path.is_empty() => path,
            _ => bail!("--store {name:?}: use \"sqlite\" (which is sqlite:{PATH_DEFAULT}) or \"sqlite:PATH\""),
        };
        if !writes && !std::path::Path::new(path).exists() {
            bail!("{path}: there is no such store: name another with --store, or make it with plat apply");
        }
        let options = Options { exclusive: writes, lock_wait_max: LOCK_WAIT_MAX, create: writes };
        let instance = Core::embedded().context("the allocation core cannot be opened")?.instance();
        Ok(Self { store: SqliteStore::new(path, options), clock: SystemClock, instance, settings: Settings::new(why) })
    }
}
