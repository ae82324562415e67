//! A store in one SQLite file, shared by the processes of a machine (`docs/formats.md`, "The SQLite store").
//!
//! WAL with `synchronous=NORMAL`: a commit survives the death of the process, and one made with
//! [`Durability::Power`] a power cut. The file is opened at the first use, under the lock of the whole call if one is
//! asked for, so that a crowd of callers queues instead of colliding.

mod tally;

use crate::files::check_read;
use crate::kept::{Kept, Kind, apply, check};
use crate::lock;
use crate::structured::{after_prefix, check_batch, check_key};
use crate::trouble::Trouble;
use plat_core::store::{
    Action, Durability, Entry, Error, Event, Expected, PAGE_BYTES_MAX, Page, Store, Version, Write,
};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, params};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the store is unless something else is said.
pub const PATH_DEFAULT: &str = "/var/lib/plat/ipam.db";
/// How many writes a commit may hold: far more than any operation of the core makes.
pub const ATOMIC_WRITES: u32 = 1 << 16;
/// How many bytes of keys and values a commit may hold: what a host call may carry.
pub const COMMIT_BYTES_MAX: usize = 4 << 20;
/// How many of the newest events are kept: about 20 MB, a week of a busy node.
pub const EVENTS_MAX: i64 = 100_000;
/// The schema that this build makes.
pub const SCHEMA_VERSION: i32 = 1;
/// What marks a file as ours ("PLAT").
const APPLICATION_ID: i32 = 0x504c_4154;
/// Pages of the write-ahead log after which it is moved into the file: what the first process after a quiet time reads.
const CHECKPOINT_PAGES: u32 = 250;
/// How long another process's single transaction is waited for where no lock is held for the whole call.
const BUSY_WAIT_MAX: Duration = Duration::from_secs(10);

/// How the file is used.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether the lock beside the file is held from the first use until the store is dropped.
    pub exclusive: bool,
    /// How long to wait for that lock.
    pub lock_wait_max: Duration,
    /// Whether a missing file is made. If not, a store that does not exist is empty and takes no commit.
    pub create: bool,
}

/// The store. Nothing is touched before the first call.
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    options: Options,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    connection: Connection,
    /// Closing it gives the lock back; after the connection.
    _lock: Option<OwnedFd>,
}

impl SqliteStore {
    /// The store in the file at `path`.
    pub fn new(path: impl Into<PathBuf>, options: Options) -> Self {
        Self { path: path.into(), options, open: None }
    }

    /// The newest events, oldest first.
    ///
    /// # Errors
    /// Those of opening and reading the file.
    pub fn events(&mut self) -> Result<Vec<Event>, Error> {
        let path = self.path.clone();
        let Some(open) = self.open()? else { return Ok(Vec::new()) };
        let read = || -> rusqlite::Result<Vec<Event>> {
            let mut statement = open
                .connection
                .prepare_cached("SELECT seconds, nanoseconds, what, key, owner, why FROM events ORDER BY id")?;
            let events = statement.query_map([], |row| {
                Ok(Event {
                    at: plat_core::clock::Instant {
                        seconds: row.get::<_, i64>(0)?.cast_unsigned(),
                        nanoseconds: row.get(1)?,
                    },
                    what: row.get(2)?,
                    key: row.get(3)?,
                    owner: row.get(4)?,
                    why: row.get(5)?,
                })
            })?;
            events.collect()
        };
        read().map_err(|error| trouble(&path, &error))
    }

    /// None: there is no file, and none is to be made.
    fn open(&mut self) -> Result<Option<&mut Open>, Error> {
        if self.open.is_none() {
            self.open = open(&self.path, &self.options)?;
        }
        Ok(self.open.as_mut())
    }

    fn connection(&mut self) -> Result<Option<&Connection>, Error> {
        Ok(self.open()?.map(|open| &open.connection))
    }
}

/// What a failure of SQLite means.
fn trouble(path: &Path, error: &rusqlite::Error) -> Error {
    let path = path.display();
    let text = format!("{path}: {error}");
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            Error::Unavailable(format!("{path}: another process holds the store: {error}"))
        }
        Some(ErrorCode::DiskFull) => Error::Unavailable(format!("{path}: no space left on device")),
        Some(ErrorCode::SystemIoFailure | ErrorCode::OutOfMemory | ErrorCode::CannotOpen) => Error::Unavailable(text),
        Some(ErrorCode::ReadOnly) => Error::Denied(format!("{path}: the store cannot be written: {error}")),
        Some(ErrorCode::NotADatabase) => {
            Error::Denied(format!("{path} is no SQLite file: name another store, or move the file away"))
        }
        Some(ErrorCode::DatabaseCorrupt) => Error::Denied(format!(
            "{path} is damaged ({error}): move it away and restore it from a copy, or rebuild it from the runtime's \
             list of containers"
        )),
        _ => Error::Denied(text),
    }
}

/// Makes the folder of the file if it is missing; only root gets in.
fn make_folder(path: &Path) -> Result<(), Error> {
    let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) else { return Ok(()) };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| {
        Trouble::new("mkdir", folder.to_string_lossy(), Errno::from_io_error(&error).unwrap_or(Errno::IO)).into()
    })
}

/// Refuses a file that somebody else could have prepared.
fn check_file(path: &Path) -> Result<bool, Error> {
    let meta = match std::fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            return Err(Trouble::new("stat", path.to_string_lossy(), errno).into());
        }
    };
    let shown = path.display();
    if !meta.is_file() {
        return Err(Error::Denied(format!("{shown} is no regular file: name another store")));
    }
    let user = rustix::process::geteuid().as_raw();
    if meta.uid() != user && meta.uid() != 0 {
        return Err(Error::Denied(format!(
            "{shown} belongs to the user {}: it must be root's or this user's",
            meta.uid()
        )));
    }
    if meta.permissions().mode() & 0o022 != 0 {
        return Err(Error::Denied(format!("{shown} can be written by others: chmod 600 it, if you trust its content")));
    }
    Ok(true)
}

fn open(path: &Path, options: &Options) -> Result<Option<Open>, Error> {
    let exists = check_file(path)?;
    if !exists && !options.create {
        return Ok(None);
    }
    if !exists {
        make_folder(path)?;
    }
    let lock = if options.exclusive { Some(take_lock(path, options.lock_wait_max)?) } else { None };
    let failed = |error: rusqlite::Error| trouble(path, &error);
    if !exists {
        // Made by us, so that it is never readable by others, not even for a moment.
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        retry_on_intr(|| rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR))
            .map_err(|errno| Error::from(Trouble::new("open", path.to_string_lossy(), errno)))?;
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    let busy = if options.exclusive { BUSY_WAIT_MAX.min(options.lock_wait_max) } else { BUSY_WAIT_MAX };
    connection.busy_timeout(busy).map_err(failed)?;
    // The log is moved into the file by size, not by each process that happens to be the last one.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(failed)?;
    connection.pragma_update(None, "synchronous", "NORMAL").map_err(failed)?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES).map_err(failed)?;
    connection.set_prepared_statement_cache_capacity(64);
    prepare(&connection, path)?;
    Ok(Some(Open { connection, _lock: lock }))
}

fn take_lock(path: &Path, wait_max: Duration) -> Result<OwnedFd, Error> {
    let mut lock_path = path.as_os_str().to_owned();
    lock_path.push(".lock");
    let shown = lock_path.to_string_lossy().into_owned();
    let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = retry_on_intr(|| rustix::fs::open(lock_path.as_os_str(), flags, Mode::RUSR | Mode::WUSR))
        .map_err(|errno| Error::from(Trouble::new("open", shown.clone(), errno)))?;
    lock::take(file, wait_max).map_err(|refused| match refused {
        lock::Refused::TimedOut => Error::Unavailable(format!(
            "flock {shown}: still held by another process after {:.1} s",
            wait_max.as_secs_f64()
        )),
        lock::Refused::Failed(errno) => Trouble::new("flock", shown, errno).into(),
    })
}

/// Sees to it that the file has the schema of this build.
fn prepare(connection: &Connection, path: &Path) -> Result<(), Error> {
    let failed = |error: rusqlite::Error| trouble(path, &error);
    let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    if pragma("application_id").map_err(failed)? == APPLICATION_ID
        && pragma("user_version").map_err(failed)? == SCHEMA_VERSION
    {
        return Ok(());
    }
    migrate(connection, path, MIGRATIONS)
}

/// The steps from each schema to the next: the first makes schema 1 from an empty file.
const MIGRATIONS: &[&str] = &["
    CREATE TABLE entries (key TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE counter (version INTEGER NOT NULL);
    INSERT INTO counter VALUES (0);
    CREATE TABLE events (
        id INTEGER PRIMARY KEY, seconds INTEGER NOT NULL, nanoseconds INTEGER NOT NULL,
        what TEXT NOT NULL, key TEXT NOT NULL, owner TEXT NOT NULL, why TEXT NOT NULL);
    CREATE TABLE tally (
        level INTEGER NOT NULL, first TEXT NOT NULL, keys INTEGER NOT NULL, parts INTEGER NOT NULL,
        PRIMARY KEY (level, first)) WITHOUT ROWID;
    INSERT INTO tally VALUES (1, '', 0, 0), (2, '', 0, 1), (3, '', 0, 1);
"];

fn migrate(connection: &Connection, path: &Path, steps: &[&str]) -> Result<(), Error> {
    let shown = path.display();
    let failed = |error: rusqlite::Error| trouble(path, &error);
    let newest = i32::try_from(steps.len()).unwrap_or(i32::MAX);
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).map_err(failed)?;
    let run = || -> Result<(), Error> {
        let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0)).map_err(failed);
        // Read again, now that nobody else can migrate.
        let (application, version) = (pragma("application_id")?, pragma("user_version")?);
        let tables: i64 =
            connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(failed)?;
        if application != APPLICATION_ID && (application != 0 || tables > 0) {
            return Err(Error::Denied(format!("{shown} is a SQLite file of another program: name another store")));
        }
        if version > newest {
            return Err(Error::Denied(format!(
                "{shown} has schema {version}, made by a newer version; this one knows up to {newest}: upgrade, or \
                 name another store"
            )));
        }
        for step in steps.iter().skip(usize::try_from(version).unwrap_or_default()) {
            connection.execute_batch(step).map_err(failed)?;
        }
        connection.pragma_update(None, "application_id", APPLICATION_ID).map_err(failed)?;
        connection.pragma_update(None, "user_version", newest).map_err(failed)
    };
    connection.execute_batch("BEGIN IMMEDIATE").map_err(failed)?;
    let done = run().and_then(|()| connection.execute_batch("COMMIT").map_err(failed));
    if done.is_err() {
        // The first error is the one to tell.
        let _ = connection.execute_batch("ROLLBACK");
    }
    done
}

fn version(number: i64) -> Version {
    Version(number.to_be_bytes().to_vec())
}

/// The rows, written in one version inside a transaction.
struct Raw<'c> {
    connection: &'c Connection,
    path: &'c Path,
    version: i64,
}

impl Raw<'_> {
    fn failed(&self) -> impl Fn(rusqlite::Error) -> Error + '_ {
        |error| trouble(self.path, &error)
    }

    fn version_of(&self, key: &str) -> rusqlite::Result<Option<i64>> {
        let mut statement = self.connection.prepare_cached("SELECT version FROM entries WHERE key = ?1")?;
        statement.query_row([key], |row| row.get(0)).optional()
    }
}

impl Kept for Raw<'_> {
    fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        let read = || {
            let mut statement = self.connection.prepare_cached("SELECT value FROM entries WHERE key = ?1")?;
            statement.query_row([key], |row| row.get(0)).optional()
        };
        read().map_err(self.failed())
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), Error> {
        let write = || -> rusqlite::Result<()> {
            let mut update =
                self.connection.prepare_cached("UPDATE entries SET value = ?2, version = ?3 WHERE key = ?1")?;
            if update.execute(params![key, value, self.version])? == 0 {
                let mut insert = self.connection.prepare_cached("INSERT INTO entries VALUES (?1, ?2, ?3)")?;
                insert.execute(params![key, value, self.version])?;
                tally::added(self.connection, key)?;
            }
            Ok(())
        };
        write().map_err(self.failed())
    }

    fn remove(&mut self, key: &str) -> Result<(), Error> {
        let write = || -> rusqlite::Result<()> {
            let mut delete = self.connection.prepare_cached("DELETE FROM entries WHERE key = ?1")?;
            if delete.execute([key])? > 0 {
                tally::removed(self.connection, key)?;
            }
            Ok(())
        };
        write().map_err(self.failed())
    }
}

fn commit(open: &Open, path: &Path, batch: &[Write], kinds: &[Kind], journal: &[Event]) -> Result<Vec<Version>, Error> {
    let connection = &open.connection;
    let failed = |error: rusqlite::Error| trouble(path, &error);
    let mut raw = Raw { connection, path, version: 0 };
    let mut conflicts = Vec::new();
    for write in batch {
        let have = raw.version_of(&write.key).map_err(failed)?.map(version);
        let holds = match &write.expected {
            Expected::Absent => have.is_none(),
            Expected::At(version) => have.as_ref() == Some(version),
        };
        if !holds {
            conflicts.push(write.key.clone());
        }
    }
    if !conflicts.is_empty() {
        return Err(Error::Conflict(conflicts));
    }
    raw.version = connection
        .prepare_cached("UPDATE counter SET version = version + 1 RETURNING version")
        .and_then(|mut statement| statement.query_row([], |row| row.get(0)))
        .map_err(failed)?;
    let mut versions = Vec::with_capacity(batch.len());
    for (write, kind) in batch.iter().zip(kinds) {
        apply(&mut raw, write, kind)?;
        versions.push(match (&write.action, &write.expected) {
            (Action::Check, Expected::At(version)) => version.clone(),
            (Action::Put(_), _) => version(raw.version),
            (Action::Delete | Action::Check, _) => Version::default(),
        });
    }
    write_events(connection, journal).map_err(failed)?;
    Ok(versions)
}

fn write_events(connection: &Connection, journal: &[Event]) -> rusqlite::Result<()> {
    if journal.is_empty() {
        return Ok(());
    }
    let mut insert = connection.prepare_cached(
        "INSERT INTO events (seconds, nanoseconds, what, key, owner, why) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    for event in journal {
        insert.execute(params![
            event.at.seconds.cast_signed(),
            event.at.nanoseconds,
            event.what,
            event.key,
            event.owner,
            event.why
        ])?;
    }
    let last = connection.last_insert_rowid();
    connection.prepare_cached("DELETE FROM events WHERE id <= ?1")?.execute([last - EVENTS_MAX])?;
    Ok(())
}

impl Store for SqliteStore {
    fn read(&mut self, keys: &[String], _fresh: bool) -> Result<Vec<Option<Entry>>, Error> {
        check_read(keys)?;
        keys.iter().try_for_each(|key| check_key(key))?;
        let path = self.path.clone();
        let Some(connection) = self.connection()? else { return Ok(vec![None; keys.len()]) };
        let read = || -> rusqlite::Result<Vec<Option<Entry>>> {
            let mut statement = connection.prepare_cached("SELECT value, version FROM entries WHERE key = ?1")?;
            let mut entries = Vec::with_capacity(keys.len());
            for key in keys {
                let found = statement.query_row([key], |row| {
                    Ok(Entry { key: key.clone(), value: row.get(0)?, version: version(row.get(1)?) })
                });
                entries.push(found.optional()?);
            }
            Ok(entries)
        };
        read().map_err(|error| trouble(&path, &error))
    }

    fn scan(
        &mut self,
        prefix: &str,
        from: Option<&str>,
        limit: u32,
        keys_only: bool,
        _fresh: bool,
    ) -> Result<Page, Error> {
        let path = self.path.clone();
        let Some(connection) = self.connection()? else { return Ok(Page::default()) };
        let from = from.unwrap_or(prefix).max(prefix);
        let read = || -> rusqlite::Result<Page> {
            let mut statement =
                connection.prepare_cached("SELECT key, value, version FROM entries WHERE key >= ?1 ORDER BY key")?;
            let mut rows = statement.query([from])?;
            let mut page = Page::default();
            let mut bytes = 0;
            while let Some(row) = rows.next()? {
                let key: String = row.get(0)?;
                if !key.starts_with(prefix) {
                    break;
                }
                if page.entries.len() as u64 >= u64::from(limit.max(1)) || bytes >= PAGE_BYTES_MAX {
                    page.next = Some(key);
                    break;
                }
                let value = if keys_only { Vec::new() } else { row.get(1)? };
                bytes += key.len() + value.len();
                page.entries.push(Entry { key, value, version: version(row.get(2)?) });
            }
            Ok(page)
        };
        read().map_err(|error| trouble(&path, &error))
    }

    fn count(&mut self, prefix: &str, from: Option<&str>, until: Option<&str>, _fresh: bool) -> Result<u64, Error> {
        let path = self.path.clone();
        let Some(connection) = self.connection()? else { return Ok(0) };
        let from = from.unwrap_or(prefix).max(prefix);
        let until = match (after_prefix(prefix), until) {
            (Some(end), Some(until)) => Some(end.min(until.to_owned())),
            (Some(end), None) => Some(end),
            (None, until) => until.map(str::to_owned),
        };
        let read = || -> rusqlite::Result<i64> {
            // Both ranks of one moment.
            let transaction = connection.unchecked_transaction()?;
            let end = tally::rank(connection, until.as_deref())?;
            let start = tally::rank(connection, Some(from))?;
            transaction.finish()?;
            Ok(end - start)
        };
        let count = read().map_err(|error| trouble(&path, &error))?;
        Ok(u64::try_from(count).unwrap_or_default())
    }

    fn commit(&mut self, batch: &[Write], journal: &[Event], durability: Durability) -> Result<Vec<Version>, Error> {
        check_batch(batch, ATOMIC_WRITES)?;
        let mut bytes = 0;
        let mut kinds = Vec::with_capacity(batch.len());
        for write in batch {
            kinds.push(check(write)?);
            bytes += write.key.len();
            if let Action::Put(value) = &write.action {
                bytes += value.len();
            }
        }
        if bytes > COMMIT_BYTES_MAX {
            return Err(Error::TooLarge);
        }
        let path = self.path.clone();
        let Some(open) = self.open()? else {
            return Err(Error::Denied(format!("{}: there is no such store", path.display())));
        };
        let connection = &open.connection;
        let failed = |error: rusqlite::Error| trouble(&path, &error);
        if durability == Durability::Power {
            connection.pragma_update(None, "synchronous", "FULL").map_err(failed)?;
        }
        let done = (|| {
            connection.prepare_cached("BEGIN IMMEDIATE").and_then(|mut begin| begin.execute([])).map_err(failed)?;
            let done = commit(open, &path, batch, &kinds, journal).and_then(|versions| {
                // An empty batch asks whether a write could succeed: so one is made and taken back.
                if batch.is_empty() && journal.is_empty() {
                    connection.execute_batch("ROLLBACK").map_err(failed)?;
                    return Ok(versions);
                }
                match connection.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([])) {
                    Ok(_) => Ok(versions),
                    // The log may have been written and not synced: what the next process sees decides.
                    Err(error) if error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure) => {
                        Err(Error::UnknownOutcome)
                    }
                    Err(error) => Err(failed(error)),
                }
            });
            if done.is_err() && !connection.is_autocommit() {
                // The first error is the one to tell.
                let _ = connection.execute_batch("ROLLBACK");
            }
            done
        })();
        if durability == Durability::Power {
            // A connection that syncs more than it must is slow and right.
            let _ = connection.pragma_update(None, "synchronous", "NORMAL");
        }
        done
    }

    fn atomic_writes(&mut self) -> u32 {
        ATOMIC_WRITES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_are_migrated_step_by_step_and_newer_ones_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ipam.db");
        let connection = Connection::open(&path).unwrap();
        migrate(&connection, &path, MIGRATIONS).unwrap();
        connection.execute("INSERT INTO entries VALUES ('a', x'31', 1)", []).unwrap();
        let steps = [MIGRATIONS[0], "ALTER TABLE entries ADD COLUMN more TEXT NOT NULL DEFAULT 'x';"];
        migrate(&connection, &path, &steps).unwrap();
        let more: String = connection.query_row("SELECT more FROM entries", [], |row| row.get(0)).unwrap();
        assert_eq!(more, "x");
        // A step that fails leaves the schema before it.
        let broken = [steps[0], steps[1], "CREATE TABLE again (x); INSERT INTO nowhere VALUES (1);"];
        assert!(migrate(&connection, &path, &broken).is_err());
        let version: i32 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
        assert_eq!(version, 2);
        assert!(connection.query_row("SELECT * FROM again", [], |_| Ok(())).is_err());
        let refused = migrate(&connection, &path, MIGRATIONS).unwrap_err().to_string();
        assert!(refused.contains("has schema 2, made by a newer version; this one knows up to 1"), "{refused}");
    }
}
