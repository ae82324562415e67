//! The store that a command works on, and the core that works on it.

use crate::Usage;
use anyhow::{Context as _, Result, bail};
use plat_runtime::{Core, Instance, Settings};
use plat_stores::clock::SystemClock;
use plat_stores::sqlite::{Options, PATH_DEFAULT, SqliteStore};
use std::path::PathBuf;
use std::time::Duration;

/// How long a command waits for other processes: an administrator looks on.
pub(crate) const LOCK_WAIT_MAX: Duration = Duration::from_secs(30);

/// The stores of this build.
pub(crate) const STORES: [&str; 2] = ["sqlite", "dir"];

/// What `--store` names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A SQLite file.
    Sqlite(PathBuf),
    /// A dataDir of host-local.
    Directory(PathBuf),
}

impl Place {
    /// Reads the text of `--store`.
    ///
    /// # Errors
    /// A wrong usage, if it names no store that this build knows.
    pub(crate) fn parse(name: Option<&str>) -> Result<Self> {
        let name = name.unwrap_or("sqlite");
        match name.split_once(':') {
            None if name == "sqlite" => Ok(Self::Sqlite(PATH_DEFAULT.into())),
            Some(("sqlite", path)) if !path.is_empty() => Ok(Self::Sqlite(path.into())),
            Some(("dir", path)) if !path.is_empty() => Ok(Self::Directory(path.into())),
            _ => bail!(Usage(format!(
                "--store {name:?}: use \"sqlite\" (which is sqlite:{PATH_DEFAULT}), \"sqlite:PATH\", or \"dir:PATH\" for \
                 the dataDir of host-local"
            ))),
        }
    }
}

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
        let path = match Place::parse(name)? {
            Place::Sqlite(path) => path,
            Place::Directory(path) => bail!(
                "{}: a host-local directory holds networks and their addresses, and no pools, blocks or configuration: \
                 plat ipam show and plat ipam release work on it; {why} needs --store sqlite:PATH",
                path.display()
            ),
        };
        if !writes && !path.exists() {
            bail!("{}: there is no such store: name another with --store, or make it with plat apply", path.display());
        }
        let options = Options { exclusive: writes, lock_wait_max: LOCK_WAIT_MAX, create: writes };
        let instance = Core::embedded().context("the allocation core cannot be opened")?.instance();
        Ok(Self { store: SqliteStore::new(path, options), clock: SystemClock, instance, settings: Settings::new(why) })
    }
}
