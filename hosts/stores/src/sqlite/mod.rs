//! A store in one SQLite file, shared by the processes of a machine (`docs/formats.md`, "The SQLite store").
//!
//! WAL with `synchronous=NORMAL`: a commit survives the death of the process, and one made with
//! [`Durability::Power`] a power cut. Who writes holds the lock beside the file, for one commit or, if that is asked for,
//! from the first use on: so a crowd of callers queues, and none of them polls SQLite's own locks.

mod tally;

use crate::files::check_read;
use crate::kept::{Kept, Kind, apply, check};
use crate::lock;
use crate::structured::{after_prefix, check_batch, check_key};
use crate::trouble::{Trouble, reason};
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
use tally::Tally;

pub use plat_core::cni::SQLITE_PATH_DEFAULT as PATH_DEFAULT;
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
/// How large the write-ahead log grows before a commit moves it into the file. Whoever opens the store alone reads all of
/// the log, so a longer one makes each call slower; a shorter one makes one call in fewer wait for the disk.
pub const LOG_BYTES_MAX: u64 = 1 << 20;
/// How many statements a connection keeps ready: more than there are.
const STATEMENTS_MAX: usize = 64;
/// How long SQLite's own locks are waited for, which only a recovery after a death or a foreign program holds for long.
const BUSY_WAIT_MAX: Duration = Duration::from_secs(10);

/// How the file is used.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether the lock beside the file is held from the first use until the store is dropped.
    pub exclusive: bool,
    /// How long to wait for that lock; a commit of a store without `exclusive` waits for it too.
    pub lock_wait_max: Duration,
    /// Whether a commit makes a missing file. If not, it is refused. A read makes none: it finds nothing.
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
    /// Held until the store is dropped, if that was asked for. Closing it gives the lock back; after the connection.
    lock: Option<OwnedFd>,
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
        let Some(connection) = self.connection()? else { return Ok(Vec::new()) };
        let read = || -> rusqlite::Result<Vec<Event>> {
            let mut statement = connection
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

    /// None: there is no file, and none is made.
    fn open(&mut self, make: bool) -> Result<Option<&Open>, Error> {
        if self.open.is_none() {
            self.open = open(&self.path, &self.options, make)?;
        }
        Ok(self.open.as_ref())
    }

    /// What reads use. None: there is no file.
    fn connection(&mut self) -> Result<Option<&Connection>, Error> {
        Ok(self.open(false)?.map(|open| &open.connection))
    }
}

/// What a failure of SQLite means. Lack of space and of working hardware may pass; rights and damage stay.
fn trouble(path: &Path, error: &rusqlite::Error) -> Error {
    let path = path.display();
    let text = format!("{path}: {error}");
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed) => {
            Error::Unavailable(format!("{path}: another process holds the store: {error}"))
        }
        Some(ErrorCode::DiskFull) => Error::Unavailable(format!("{path}: {}", reason(Errno::NOSPC))),
        Some(
            ErrorCode::SystemIoFailure
            | ErrorCode::OutOfMemory
            | ErrorCode::CannotOpen
            | ErrorCode::OperationInterrupted
            | ErrorCode::SchemaChanged,
        ) => Error::Unavailable(text),
        Some(ErrorCode::ReadOnly) => Error::Denied(format!("{path}: the store cannot be written: {error}")),
        Some(ErrorCode::NotADatabase) => {
            Error::Denied(format!("{path} is no SQLite file: name another store, or move the file away"))
        }
        Some(ErrorCode::DatabaseCorrupt) => Error::Denied(format!(
            "{path} is damaged ({error}): move it away, with {path}-wal, and restore it from a copy"
        )),
        _ => Error::Denied(text),
    }
}

fn failed_file(operation: &'static str, path: &Path, error: &std::io::Error) -> Error {
    Trouble::new(operation, path.to_string_lossy(), Errno::from_io_error(error).unwrap_or(Errno::IO)).into()
}

/// The folder of a file.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file beside another, by what its name has more.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(ending);
    path.into()
}

/// Refuses a file that somebody else could have prepared, or could change. False: there is none.
fn check_file(path: &Path) -> Result<bool, Error> {
    let meta = match std::fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(failed_file("stat", path, &error)),
    };
    let shown = path.display();
    if !meta.is_file() {
        return Err(Error::Denied(format!("{shown} is no regular file: name another store")));
    }
    if !is_trusted(meta.uid()) {
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

fn is_trusted(user: u32) -> bool {
    user == 0 || user == rustix::process::geteuid().as_raw()
}

/// Refuses a store whose folder lets others put files beside it that SQLite would take for its own.
fn check_folder(path: &Path) -> Result<(), Error> {
    const STICKY: u32 = 0o1000;
    let folder = folder_of(path);
    let meta = std::fs::metadata(folder).map_err(|error| failed_file("stat", folder, &error))?;
    let mode = meta.permissions().mode();
    let shown = folder.display();
    if !is_trusted(meta.uid()) {
        return Err(Error::Denied(format!(
            "{shown}, the folder of the store, belongs to the user {}: it must be root's or this user's",
            meta.uid()
        )));
    }
    if mode & 0o002 != 0 && mode & STICKY == 0 {
        return Err(Error::Denied(format!("{shown}, the folder of the store, can be written by others: chmod o-w it")));
    }
    if mode & 0o022 != 0 {
        for ending in COMPANIONS {
            check_file(&beside(path, ending))?;
        }
    }
    Ok(())
}

/// The files that SQLite keeps beside a database, and our lock.
const COMPANIONS: &[&str] = &["-wal", "-shm", "-journal", ".lock"];

/// Makes a missing folder; only its user gets in.
fn make_folder(path: &Path) -> Result<(), Error> {
    let folder = folder_of(path);
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| failed_file("mkdir", folder, &error))
}

/// Makes an empty file for its user alone, not even for a moment for others. The caller holds the lock.
///
/// It gets its name when it is closed: closing a file takes away all locks that SQLite has on it in this process.
fn make_file(path: &Path) -> Result<(), Error> {
    let new = beside(path, ".new");
    // One that a killed process left.
    let _ = std::fs::remove_file(&new);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    retry_on_intr(|| rustix::fs::open(&new, flags, Mode::RUSR | Mode::WUSR))
        .map_err(|errno| Error::from(Trouble::new("open", new.to_string_lossy(), errno)))?;
    std::fs::rename(&new, path).map_err(|error| failed_file("rename", &new, &error))?;
    // What is promised to outlive a power cut needs its name too. A folder that cannot be synced loses nothing but that.
    let folder = folder_of(path);
    for folder in [folder, folder_of(folder)] {
        if let Ok(folder) = std::fs::File::open(folder) {
            let _ = folder.sync_all();
        }
    }
    Ok(())
}

/// Opens the file. None: there is none, and none is to be made.
fn open(path: &Path, options: &Options, make: bool) -> Result<Option<Open>, Error> {
    let found = check_file(path)?;
    if !found {
        if !make || !options.create {
            return Ok(None);
        }
        make_folder(path)?;
    }
    check_folder(path)?;
    let mut lock = if options.exclusive || !found { take_lock(path, options.lock_wait_max)? } else { None };
    // Somebody may have made it while the lock was waited for.
    if !found && !check_file(path)? {
        make_file(path)?;
    }
    let failed = |error: rusqlite::Error| trouble(path, &error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    connection.busy_timeout(BUSY_WAIT_MAX.min(options.lock_wait_max)).map_err(failed)?;
    // The log is moved into the file by size ([`fold`]), not by each process that happens to be the last one.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(failed)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    if !is_ready(&connection, path, MIGRATIONS)? {
        if lock.is_none() {
            lock = take_lock(path, options.lock_wait_max)?;
        }
        migrate(&connection, path, MIGRATIONS)?;
    }
    connection.pragma_update(None, "synchronous", "NORMAL").map_err(failed)?;
    connection.pragma_update(None, "wal_autocheckpoint", 0).map_err(failed)?;
    Ok(Some(Open { connection, lock: lock.filter(|_| options.exclusive) }))
}

/// Takes the lock of all writers. None: on a read-only file system there is none to be made, and no writer.
fn take_lock(path: &Path, wait_max: Duration) -> Result<Option<OwnedFd>, Error> {
    let lock_path = beside(path, ".lock");
    let shown = lock_path.to_string_lossy().into_owned();
    let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = match retry_on_intr(|| rustix::fs::open(&lock_path, flags, Mode::RUSR | Mode::WUSR)) {
        Ok(file) => file,
        Err(Errno::ROFS) => return Ok(None),
        Err(errno) => return Err(Trouble::new("open", shown, errno).into()),
    };
    match lock::take(file, wait_max) {
        Ok(lock) => Ok(Some(lock)),
        Err(lock::Refused::TimedOut) => Err(Error::Unavailable(format!(
            "flock {shown}: still held by another process after {:.1} s",
            wait_max.as_secs_f64()
        ))),
        Err(lock::Refused::Failed(errno)) => Err(Trouble::new("flock", shown, errno).into()),
    }
}

/// The steps from each schema to the next: the first makes schema 1 from an empty file. A step is never changed once it
/// was released. What stores derive from a value is part of the schema: where that changes, a step makes it anew.
const MIGRATIONS: &[&str] = &["
    CREATE TABLE entries (key TEXT PRIMARY KEY, version INTEGER NOT NULL, value BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE counter (version INTEGER NOT NULL);
    INSERT INTO counter VALUES (0);
    CREATE TABLE events (
        id INTEGER PRIMARY KEY, seconds INTEGER NOT NULL, nanoseconds INTEGER NOT NULL,
        what TEXT NOT NULL, key TEXT NOT NULL, owner TEXT NOT NULL, why TEXT NOT NULL);
    CREATE TABLE tally (
        level INTEGER NOT NULL, first TEXT NOT NULL, keys INTEGER NOT NULL, parts INTEGER NOT NULL,
        PRIMARY KEY (level, first)) WITHOUT ROWID;
    INSERT INTO tally VALUES (1, '', 0, 0), (2, '', 0, 1), (3, '', 0, 1), (4, '', 0, 1);
"];

/// Whether the file has the schema of this build. False: it is an older one, or an empty file.
///
/// # Errors
/// [`Error::Denied`] if it is a newer one or no file of ours; nothing was changed then.
fn is_ready(connection: &Connection, path: &Path, steps: &[&str]) -> Result<bool, Error> {
    let failed = |error: rusqlite::Error| trouble(path, &error);
    let shown = path.display();
    let newest = newest(steps);
    let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0)).map_err(failed);
    if pragma("application_id")? == APPLICATION_ID && pragma("user_version")? == newest {
        return Ok(true);
    }
    // Again, all of one moment: somebody may be making the schema just now.
    let _moment = connection.unchecked_transaction().map_err(failed)?;
    let (application, version) = (pragma("application_id")?, pragma("user_version")?);
    if application == APPLICATION_ID {
        if version > newest {
            return Err(Error::Denied(format!(
                "{shown} has schema {version}, made by a newer version; this one knows up to {newest}: upgrade, or \
                 name another store"
            )));
        }
        return Ok(version == newest);
    }
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(failed)?;
    if application != 0 || version != 0 || tables > 0 {
        return Err(Error::Denied(format!("{shown} is a SQLite file of another program: name another store")));
    }
    Ok(false)
}

fn newest(steps: &[&str]) -> i32 {
    i32::try_from(steps.len()).unwrap_or(i32::MAX)
}

/// Takes the steps that are missing, all in one transaction. The caller holds the lock.
fn migrate(connection: &Connection, path: &Path, steps: &[&str]) -> Result<(), Error> {
    let failed = |error: rusqlite::Error| trouble(path, &error);
    // Somebody may have done it while the lock was waited for.
    if is_ready(connection, path, steps)? {
        return Ok(());
    }
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).map_err(failed)?;
    // Made once, and lost with the power it would be made again beside what was written into it since.
    connection.pragma_update(None, "synchronous", "FULL").map_err(failed)?;
    connection.execute_batch("BEGIN IMMEDIATE").map_err(failed)?;
    let run = || -> rusqlite::Result<()> {
        let version: i32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        for step in steps.iter().skip(usize::try_from(version).unwrap_or_default()) {
            connection.execute_batch(step)?;
        }
        connection.pragma_update(None, "application_id", APPLICATION_ID)?;
        connection.pragma_update(None, "user_version", newest(steps))?;
        connection.execute_batch("COMMIT")
    };
    let done = run();
    if done.is_err() && !connection.is_autocommit() {
        // The first error is the one to tell.
        let _ = connection.execute_batch("ROLLBACK");
    }
    done.map_err(failed)
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
                let mut insert =
                    self.connection.prepare_cached("INSERT INTO entries (key, value, version) VALUES (?1, ?2, ?3)")?;
                insert.execute(params![key, value, self.version])?;
                Tally::new(self.connection).added(key)?;
            }
            Ok(())
        };
        write().map_err(self.failed())
    }

    fn remove(&mut self, key: &str) -> Result<(), Error> {
        let write = || -> rusqlite::Result<()> {
            let mut delete = self.connection.prepare_cached("DELETE FROM entries WHERE key = ?1")?;
            if delete.execute([key])? > 0 {
                Tally::new(self.connection).removed(key)?;
            }
            Ok(())
        };
        write().map_err(self.failed())
    }
}

/// Runs a transaction and commits it; whatever fails, nothing of it stays open.
fn transact<T>(
    connection: &Connection,
    path: &Path,
    durability: Durability,
    run: impl FnOnce(&mut Raw<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    if durability == Durability::Power {
        connection.pragma_update(None, "synchronous", "FULL").map_err(|error| trouble(path, &error))?;
        let done = transact(connection, path, Durability::Process, run);
        // A connection that syncs more than it must is slow and right.
        let _ = connection.pragma_update(None, "synchronous", "NORMAL");
        return done;
    }
    let execute = |sql: &str| connection.prepare_cached(sql).and_then(|mut statement| statement.execute([])).map(drop);
    execute("BEGIN IMMEDIATE").map_err(|error| trouble(path, &error))?;
    let done = run(&mut Raw { connection, path, version: 0 }).and_then(|done| match execute("COMMIT") {
        Ok(()) => Ok(done),
        // The end of the log may have been written and not synced: what the next writer or the next recovery sees decides.
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure) => Err(Error::UnknownOutcome),
        Err(error) => Err(trouble(path, &error)),
    });
    if done.is_err() && !connection.is_autocommit() {
        // The first error is the one to tell.
        let _ = execute("ROLLBACK");
    }
    done
}

/// Moves a long log into the file and begins it anew. SQLite's own way would go on with the same log: which part of it is in
/// the file is known only as long as somebody has the store open, and among short-lived processes nobody has.
///
/// A failure is that of the next one too, and of nobody's commit. Readers are not waited for.
fn fold(connection: &Connection, path: &Path, busy_wait: Duration) {
    if !std::fs::metadata(beside(path, "-wal")).is_ok_and(|meta| meta.len() >= LOG_BYTES_MAX) {
        return;
    }
    let _ = connection.busy_timeout(Duration::ZERO);
    let _ = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    let _ = connection.busy_timeout(busy_wait);
}

/// Without writes it asks whether one could succeed: so the counter alone moves.
fn commit(raw: &mut Raw<'_>, batch: &[Write], kinds: &[Kind], journal: &[Event]) -> Result<Vec<Version>, Error> {
    let (connection, path) = (raw.connection, raw.path);
    let failed = |error: rusqlite::Error| trouble(path, &error);
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
        apply(raw, write, kind)?;
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
            let mut statement = connection.prepare_cached("SELECT version, value FROM entries WHERE key = ?1")?;
            let mut entries = Vec::with_capacity(keys.len());
            for key in keys {
                let found = statement.query_row([key], |row| {
                    Ok(Entry { key: key.clone(), version: version(row.get(0)?), value: row.get(1)? })
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
                connection.prepare_cached("SELECT key, version, value FROM entries WHERE key >= ?1 ORDER BY key")?;
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
                let value = if keys_only { Vec::new() } else { row.get(2)? };
                bytes += key.len() + value.len();
                page.entries.push(Entry { key, value, version: version(row.get(1)?) });
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
            let tally = Tally::new(connection);
            let end = tally.rank(until.as_deref())?;
            let start = tally.rank(Some(from))?;
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
        let (path, lock_wait_max) = (self.path.clone(), self.options.lock_wait_max);
        let Some(open) = self.open(true)? else {
            return Err(Error::Denied(format!("{}: there is no such store", path.display())));
        };
        let connection = &open.connection;
        let _lock = if open.lock.is_none() { take_lock(&path, lock_wait_max)? } else { None };
        let done = transact(connection, &path, durability, |raw| commit(raw, batch, &kinds, journal));
        if done.is_ok() {
            fold(connection, &path, BUSY_WAIT_MAX.min(lock_wait_max));
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
    fn a_commit_syncs_the_log_only_if_it_must_outlive_a_power_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ipam.db");
        let options = Options { exclusive: true, lock_wait_max: Duration::from_secs(5), create: true };
        let open = open(&path, &options, true).unwrap().unwrap();
        let level = || open.connection.pragma_query_value(None, "synchronous", |row| row.get::<_, i32>(0)).unwrap();
        let (normal, full) = (1, 2);
        for (durability, wanted) in [(Durability::Power, full), (Durability::Process, normal)] {
            let done = transact(&open.connection, &path, durability, |_| Ok(level()));
            assert_eq!(done, Ok(wanted), "{durability:?}");
            assert_eq!(level(), normal);
            let refused = transact(&open.connection, &path, durability, |_| Err::<(), _>(Error::TooLarge));
            assert_eq!((refused, level()), (Err(Error::TooLarge), normal));
            assert!(open.connection.is_autocommit(), "nothing stays open");
        }
        let mode: String = open.connection.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
        assert_eq!(mode, "wal");
    }

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
