//! Addresses in host-local's own format, both ways, and beside it an index so that no call reads all files.
//!
//! `<dataDir>/<network>/` is exactly what host-local keeps (`cni.md` B.5): a file for each address, a cursor for each
//! range set, a lock. `<dataDir>/.plat/<network>/` holds the index ([`image`], [`journal`]) and the history. The files
//! are the truth: the index is believed only while the directory looks as the last commit left it, a hit is verified
//! by opening the file, and creation is exclusive. `docs/formats.md` draws all of it.
//!
//! The store knows nothing of ranges and decides on no address.

mod apply;
mod commit;
mod files;
pub mod glance;
mod held;
mod history;
mod image;
mod journal;
pub mod limits;

mod query;
mod survey;
mod sys;

pub use sys::Hook;

use crate::trouble::{Trouble, reason};
use apply::{Folders, Repaired, mtime_of, repair, stamp_of};
use files::Stray;
use image::{Damaged, Image};
use journal::{Change, Journal, Stamp};
use plat_core::cni::{Level, Line};
use plat_core::net::Address;
use plat_core::network::{Keys, is_container_id};
use plat_core::store::{Durability, Entry, Error, Event, Page, Store, Version, Write};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use survey::{Old, survey};
use sys::Sys;

/// How long a lock is waited for unless told otherwise: longer than the worst crowd with the original (256 processes,
/// two seconds) by far, and shorter than the four minutes after which a kubelet gives up a sandbox.
pub const LOCK_WAIT_MAX: Duration = Duration::from_secs(120);

/// What the store has to know of its surroundings.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long to wait for the lock.
    pub lock_wait_max: Duration,
    /// The machine's current boot; without one the index is never trusted.
    pub boot_id: Option<String>,
    /// When that boot began. Empty files that are older are freed.
    pub boot_time: Option<SystemTime>,
}

impl Options {
    /// For this machine, in this boot.
    pub fn system() -> Self {
        Self { lock_wait_max: LOCK_WAIT_MAX, boot_id: crate::clock::boot_id(), boot_time: crate::clock::boot_time() }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::system()
    }
}

/// The store. Nothing on disk is touched before the first call, which makes the directory and takes the lock; both
/// are held until the store is dropped.
pub struct DirectoryStore {
    context: Context,
    open: Option<Open>,
}

/// What a store is told when it is made, and what it has to tell.
struct Context {
    data_dir: PathBuf,
    network: String,
    keys: Keys,
    options: Options,
    boot: Option<Arc<str>>,
    sys: Sys,
    notices: Vec<Line>,
}

impl Context {
    fn notice(&mut self, level: Level, text: impl Into<String>) {
        if self.notices.len() < limits::NOTICES_MAX {
            // Names of files get into notices: as lines they cannot forge others.
            self.notices.push(Line::new(level, &text.into()));
        }
    }
}

/// Why an answer cannot be given.
enum Stop {
    /// This is the answer.
    Answer(Error),
    /// The index is wrong; make it anew and begin again.
    Stale(String),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Answer(error)
    }
}

impl From<Trouble> for Stop {
    fn from(trouble: Trouble) -> Self {
        Self::Answer(trouble.into())
    }
}

impl From<Damaged> for Stop {
    fn from(damaged: Damaged) -> Self {
        Self::Stale(format!("the index is damaged: {}", damaged.0))
    }
}

/// The journal, open for the next record.
struct Writer {
    file: OwnedFd,
    end: u64,
    chain: u32,
}

/// A network's directory with its lock held.
struct Open {
    folders: Folders,
    /// Closing it gives the lock back.
    _lock: OwnedFd,
    /// None: changes are not written down, and the next call makes the index anew.
    journal: Option<Writer>,
    image: Image,
    changes: BTreeMap<Address, Change>,
    version_last: u64,
    /// Commits since the directory was opened.
    commits: u64,
    /// The index must be made anew by each call, since there are sub-directories or too many strays.
    untrusted: bool,
    /// The paths of files that may be strays.
    stray_paths: Vec<String>,
    /// The strays by the endings of their keys, once they were asked for.
    strays: Option<BTreeMap<String, Stray>>,
    /// What scans and counts of derived keys need, once they were asked for.
    derived: Option<query::Derived>,
}

impl DirectoryStore {
    /// A store for one network of a dataDir.
    pub fn new(data_dir: PathBuf, network: String, options: Options) -> Self {
        let keys = Keys::new(&network);
        let boot = options.boot_id.as_deref().map(Into::into);
        Self {
            context: Context { data_dir, network, keys, options, boot, sys: Sys::default(), notices: Vec::new() },
            open: None,
        }
    }

    /// What happened beside the calls and should be logged: repairs, an index made anew and why, files that could not
    /// be read. Each is given once.
    pub fn take_notices(&mut self) -> Vec<Line> {
        std::mem::take(&mut self.context.notices)
    }

    /// Lets a test cut in before each step that changes something on disk.
    #[doc(hidden)]
    pub fn set_hook(&mut self, hook: Hook) {
        self.context.sys.hook = Some(hook);
    }

    fn run<T>(&mut self, mut answer: impl FnMut(&mut Open, &mut Context) -> Result<T, Stop>) -> Result<T, Error> {
        let Self { context, open } = self;
        let open = match open {
            Some(open) => open,
            None => open.insert(Open::new(context)?),
        };
        for _ in 0..limits::REBUILDS_MAX {
            match answer(open, context) {
                Ok(answer) => return Ok(answer),
                Err(Stop::Answer(error)) => return Err(error),
                Err(Stop::Stale(why)) => {
                    let image = std::mem::replace(&mut open.image, Image::empty());
                    let changes = std::mem::take(&mut open.changes);
                    open.rebuild(context, Old::new(Some(image), changes), Level::Warning, &why)?;
                }
            }
        }
        Err(Error::Unavailable(format!(
            "{} is changed by others faster than it can be read, without taking its lock",
            open.folders.path
        )))
    }
}

impl Store for DirectoryStore {
    fn read(&mut self, keys: &[String], _fresh: bool) -> Result<Vec<Option<Entry>>, Error> {
        crate::files::check_read(keys)?;
        self.run(|open, context| open.read(context, keys))
    }

    fn scan(
        &mut self,
        prefix: &str,
        from: Option<&str>,
        limit: u32,
        keys_only: bool,
        fresh: bool,
    ) -> Result<Page, Error> {
        self.run(|open, context| open.scan(context, prefix, from, limit, keys_only, fresh))
    }

    fn count(&mut self, prefix: &str, from: Option<&str>, until: Option<&str>, _fresh: bool) -> Result<u64, Error> {
        self.run(|open, context| open.count(context, prefix, from, until))
    }

    fn commit(&mut self, batch: &[Write], journal: &[Event], durability: Durability) -> Result<Vec<Version>, Error> {
        self.run(|open, context| open.commit(context, batch, journal, durability))
    }

    fn atomic_writes(&mut self) -> u32 {
        limits::ATOMIC_WRITES
    }
}

/// Makes a directory and those above it, as Go's MkdirAll does and with its errors.
fn make_all(path: &Path) -> Result<(), Trouble> {
    let name = path.to_string_lossy();
    if path.as_os_str().len() > limits::PATH_BYTES_MAX {
        let start: String = name.chars().take(64).collect();
        return Err(Trouble::new("mkdir", format!("{start}..."), Errno::NAMETOOLONG));
    }
    let is_folder = |stat: &fs::Stat| fs::FileType::from_raw_mode(stat.st_mode) == fs::FileType::Directory;
    let mut missing = Vec::new();
    for folder in path.ancestors().filter(|folder| !folder.as_os_str().is_empty()) {
        match fs::stat(folder) {
            Ok(stat) if is_folder(&stat) => break,
            Ok(_) => return Err(Trouble::new("mkdir", folder.to_string_lossy(), Errno::NOTDIR)),
            Err(_) => missing.push(folder),
        }
    }
    for folder in missing.into_iter().rev() {
        if let Err(errno) = fs::mkdir(folder, Mode::from_raw_mode(0o755)) {
            // Somebody else made it in between, or it is something else.
            match fs::lstat(folder) {
                Ok(stat) if is_folder(&stat) => {}
                _ => return Err(Trouble::new("mkdir", folder.to_string_lossy(), errno)),
            }
        }
    }
    Ok(())
}

fn open_folder(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    retry_on_intr(|| fs::open(path, flags, Mode::empty()))
}

/// What the files in `.plat` say.
struct Loaded {
    image: Option<Image>,
    journal: Option<(Journal, OwnedFd, bool)>,
    /// Why the index is not trusted; none: it may be.
    doubt: Option<(Level, String)>,
}

const INDEX: &str = "index";
const JOURNAL: &str = "journal";
const INDEX_NEW: &str = "index.new";
const JOURNAL_NEW: &str = "journal.new";

impl Open {
    fn new(context: &mut Context) -> Result<Self, Error> {
        // A name that could leave the dataDir or hit our own directory is refused, whoever let it through.
        if !is_container_id(&context.network) {
            return Err(Error::Denied(format!(
                "the network name {:?} may only have letters, digits, \"_\", \".\" and \"-\", and begin with a letter or digit",
                context.network
            )));
        }
        let path = context.data_dir.join(&context.network);
        let shown = path.to_string_lossy().into_owned();
        let dir = match open_folder(&path) {
            Ok(dir) => dir,
            Err(first) => {
                make_all(&path)?;
                open_folder(&path).map_err(|errno| {
                    // What was missing is there now; what was forbidden still is.
                    let errno = if first == Errno::NOENT { errno } else { first };
                    Trouble::new("open", shown.clone(), errno)
                })?
            }
        };
        let lock_path = format!("{shown}/{}", files::LOCK);
        let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::CLOEXEC;
        let lock = retry_on_intr(|| fs::openat(&dir, files::LOCK, flags, Mode::from_raw_mode(0o750)))
            .map_err(|errno| Trouble::new("open", lock_path.clone(), errno))?;
        let wait_max = context.options.lock_wait_max;
        let lock = crate::lock::take(lock, wait_max).map_err(|refused| match refused {
            crate::lock::Refused::TimedOut => Error::Unavailable(format!(
                "flock {lock_path}: still held by another process after {:.1} s",
                wait_max.as_secs_f64()
            )),
            crate::lock::Refused::Failed(errno) => Trouble::new("flock", lock_path, errno).into(),
        })?;

        let plat_path = context.data_dir.join(".plat").join(&context.network);
        let plat = match open_plat(&plat_path) {
            Ok(plat) => Some(plat),
            Err(trouble) => {
                context.notice(Level::Warning, format!("{trouble}; works without an index"));
                None
            }
        };
        let folders = Folders { dir, path: shown, plat, plat_path: plat_path.to_string_lossy().into_owned() };
        let look = fs::fstat(&folders.dir).map_err(|errno| Trouble::new("stat", folders.path.clone(), errno))?;
        let loaded = load(&folders, context, &stamp_of(&look));
        let mut open = Self {
            folders,
            _lock: lock,
            journal: None,
            image: Image::empty(),
            changes: BTreeMap::new(),
            version_last: 0,
            commits: 0,
            untrusted: false,
            stray_paths: Vec::new(),
            strays: None,
            derived: None,
        };
        open.start(context, loaded, &stamp_of(&look))?;
        Ok(open)
    }

    /// Takes the index as it is, or repairs what was interrupted and makes it anew.
    fn start(&mut self, context: &mut Context, loaded: Loaded, look: &Stamp) -> Result<(), Error> {
        let image_version = loaded.image.as_ref().map_or(0, |image| image.version_last);
        let journal_version = loaded.journal.as_ref().map_or(0, |(journal, ..)| journal.version_last);
        self.version_last = image_version.max(journal_version);
        let Some((level, why)) = loaded.doubt else {
            if let (Some(image), Some((journal, file, writable))) = (loaded.image, loaded.journal) {
                self.stray_paths.clone_from(&image.strays);
                self.image = image;
                self.changes = journal.changes;
                self.journal = writable.then_some(Writer { file, end: journal.end, chain: journal.chain });
            }
            return Ok(());
        };
        let mut changes = BTreeMap::new();
        if let Some((journal, ..)) = loaded.journal {
            if let Some(redo) = &journal.pending {
                match repair(&self.folders, &mut context.sys, redo, journal.stamp.as_ref(), look) {
                    Ok(Repaired::Nothing) => {}
                    Ok(Repaired::Completed) => {
                        context.notice(
                            Level::Info,
                            format!("{}: a commit that was interrupted was completed", self.folders.path),
                        );
                    }
                    Ok(Repaired::RolledBack) => context.notice(
                        Level::Warning,
                        format!(
                            "{}: a commit that was interrupted was rolled back, since others wrote in its way",
                            self.folders.path
                        ),
                    ),
                    Err(trouble) => {
                        // The journal stays for the next one to try.
                        context.notice(
                            Level::Error,
                            format!("{trouble}; a commit that was interrupted is still incomplete"),
                        );
                        self.folders.plat = None;
                    }
                }
            }
            // The changes of another index say nothing about this one, but each is a proof by itself.
            changes = journal.changes;
        }
        self.rebuild(context, Old::new(loaded.image, changes), level, &why)
    }

    /// Makes the index anew by one pass over the directory.
    fn rebuild(&mut self, context: &mut Context, mut old: Old, level: Level, why: &str) -> Result<(), Error> {
        // Whatever was lost, the clock is above all versions that were given: one is given for each commit, and each
        // takes longer than the nanosecond that it stands for.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let floor = u64::try_from(now.as_nanos()).unwrap_or(0).max(self.version_last);
        let found =
            survey(&self.folders, &mut context.sys, &mut old, floor, context.boot.as_ref(), context.options.boot_time)?;
        let addresses = found.draft.len();
        context.notice(level, format!("{}: index made anew, {addresses} addresses: {why}", self.folders.path));
        for (level, text) in found.notices {
            context.notice(level, text);
        }
        self.version_last = found.version_last;
        self.untrusted = found.deep || found.draft.strays.len() > limits::STRAYS_TRUSTED_MAX;
        self.changes.clear();
        self.strays = None;
        self.derived = None;
        self.journal = None;
        drop(old);
        self.settle(context, found.draft)
    }

    /// Writes a new index and begins a new journal; if that cannot be, keeps the index in memory.
    fn settle(&mut self, context: &mut Context, mut draft: image::Draft) -> Result<(), Error> {
        self.stray_paths.clone_from(&draft.strays);
        self.version_last += 1;
        // Never the number of an index before: journals name the index that they continue.
        let generation = self.version_last;
        let version = self.version_last;
        let written = match &self.folders.plat {
            None => None,
            Some(plat) => match self.write_index(plat, context, &mut draft, generation) {
                Ok(written) => Some(written),
                Err(trouble) => {
                    // On a full disk, half an index would take the room of addresses.
                    for name in [INDEX_NEW, JOURNAL_NEW] {
                        let _ = fs::unlinkat(plat, name, fs::AtFlags::empty());
                    }
                    context.notice(Level::Warning, format!("{trouble}; works without an index"));
                    None
                }
            },
        };
        if let Some((image, writer)) = written {
            self.image = image;
            self.journal = Some(writer);
            return Ok(());
        }
        self.journal = None;
        let mut bytes = Vec::new();
        let made = draft.write(&mut bytes, generation, version).map_err(|error| Damaged(error.to_string()));
        drop(draft);
        match made.and_then(|()| Image::from_memory(bytes)) {
            Ok(image) => {
                self.image = image;
                Ok(())
            }
            Err(damaged) => Err(Error::Unavailable(format!("{}: {}", self.folders.path, damaged.0))),
        }
    }

    fn write_index(
        &self,
        plat: &OwnedFd,
        context: &mut Context,
        draft: &mut image::Draft,
        generation: u64,
    ) -> Result<(Image, Writer), Trouble> {
        let plat_path = &self.folders.plat_path;
        let trouble = |operation, name: &str, errno| Trouble::new(operation, format!("{plat_path}/{name}"), errno);
        // A new file, never one that is there: that may be a link, or a fifo.
        let create = |name: &str| {
            let _ = fs::unlinkat(plat, name, fs::AtFlags::empty());
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            retry_on_intr(|| fs::openat(plat, name, flags, Mode::RUSR | Mode::WUSR))
                .map_err(|errno| trouble("open", name, errno))
        };
        context.sys.step("write index").map_err(|errno| trouble("write", INDEX, errno))?;
        let index = std::fs::File::from(create(INDEX_NEW)?);
        let mut out = std::io::BufWriter::with_capacity(64 << 10, &index);
        draft
            .write(&mut out, generation, generation)
            .map_err(|error| trouble("write", INDEX_NEW, Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
        drop(out);
        let stamp = if self.untrusted {
            None
        } else {
            match self.folders.stamp(&mut context.sys, mtime_of(generation)) {
                Ok(stamp) => stamp,
                Err(trouble) => {
                    context.notice(Level::Warning, format!("{trouble}; each call has to make the index anew"));
                    None
                }
            }
        };
        let header = journal::header(generation, context.boot.as_deref());
        let (record, chain) = journal::done(false, generation, stamp.as_ref(), &[], journal::first_chain(&header));
        let bytes = [header, record].concat();
        let journal = create(JOURNAL_NEW)?;
        context.sys.append(&journal, &bytes, 0).map_err(|errno| trouble("write", JOURNAL_NEW, errno))?;
        for (from, to) in [(INDEX_NEW, INDEX), (JOURNAL_NEW, JOURNAL)] {
            context.sys.replace(plat, from, plat, to).map_err(|errno| trouble("rename", from, errno))?;
        }
        let image = Image::from_file(index.into()).map_err(|_| trouble("read", INDEX, Errno::IO))?;
        Ok((image, Writer { file: journal, end: bytes.len() as u64, chain }))
    }
}

/// Opens `.plat/<network>`, and makes what is missing of it. What lies in it is believed and written to, so that both
/// folders must be real ones, of our own user, and closed to all others.
fn open_plat(path: &Path) -> Result<OwnedFd, Trouble> {
    let trouble = |operation, folder: &Path, errno| Trouble::new(operation, folder.to_string_lossy(), errno);
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(trouble("open", path, Errno::INVAL));
    };
    let above = open_own_folder(fs::CWD, parent).map_err(|(operation, errno)| trouble(operation, parent, errno))?;
    open_own_folder(&above, Path::new(name)).map_err(|(operation, errno)| trouble(operation, path, errno))
}

/// Opens a folder of ours, and makes it if it is missing.
fn open_own_folder(above: impl AsFd, name: &Path) -> Result<OwnedFd, (&'static str, Errno)> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || retry_on_intr(|| fs::openat(&above, name, flags, Mode::empty()));
    let folder = match open() {
        Err(Errno::NOENT) => match fs::mkdirat(&above, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => open(),
            Err(errno) => return Err(("mkdir", errno)),
        },
        other => other,
    }
    .map_err(|errno| ("open", errno))?;
    let stat = fs::fstat(&folder).map_err(|errno| ("stat", errno))?;
    let others = Mode::WGRP | Mode::WOTH;
    if stat.st_uid != rustix::process::geteuid().as_raw() || Mode::from_raw_mode(stat.st_mode).intersects(others) {
        return Err(("trust (another user could write to it)", Errno::PERM));
    }
    Ok(folder)
}

/// Opens a file of ours in `.plat/<network>`: a regular one with this name alone. A fifo would hold the call for ever, and
/// a link would lead elsewhere.
fn open_own_file(plat: &OwnedFd, name: &str, access: OFlags) -> Result<OwnedFd, Errno> {
    let flags = access | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = retry_on_intr(|| fs::openat(plat, name, flags, Mode::RUSR | Mode::WUSR))?;
    let stat = fs::fstat(&file)?;
    if fs::FileType::from_raw_mode(stat.st_mode) != fs::FileType::RegularFile || stat.st_nlink != 1 {
        return Err(Errno::LOOP);
    }
    Ok(file)
}

/// Reads the journal and the head of the index, and judges whether they speak for the directory.
fn load(folders: &Folders, context: &Context, look: &Stamp) -> Loaded {
    let mut loaded = Loaded { image: None, journal: None, doubt: None };
    let Some(plat) = &folders.plat else {
        loaded.doubt = Some((Level::Debug, "there is no index".to_owned()));
        return loaded;
    };
    let mut doubts: Vec<(Level, String)> = Vec::new();
    match open_own_file(plat, INDEX, OFlags::RDONLY) {
        Ok(file) => match Image::from_file(file) {
            Ok(image) => loaded.image = Some(image),
            Err(damaged) => doubts.push((Level::Warning, format!("the index is damaged: {}", damaged.0))),
        },
        Err(Errno::NOENT) => doubts.push((Level::Debug, "there was none".to_owned())),
        Err(errno) => doubts.push((Level::Warning, format!("the index cannot be read: {}", reason(errno)))),
    }
    match open_journal(plat) {
        Ok((bytes, file, writable)) => match Journal::parse(&bytes) {
            Some(journal) => loaded.journal = Some((journal, file, writable)),
            None => doubts.push((Level::Warning, "the journal is damaged".to_owned())),
        },
        Err(Errno::NOENT) => {
            let level = if loaded.image.is_some() { Level::Warning } else { Level::Debug };
            doubts.push((level, "there was no journal".to_owned()));
        }
        Err(errno) => doubts.push((Level::Warning, format!("the journal cannot be read: {}", reason(errno)))),
    }
    if let (Some(image), Some((journal, ..))) = (&loaded.image, &loaded.journal) {
        if journal.generation != image.generation {
            doubts.push((Level::Warning, "index and journal do not belong together".to_owned()));
        } else if journal.pending.is_some() {
            doubts.push((Level::Info, "a commit was interrupted".to_owned()));
        } else if context.boot.is_none() {
            doubts.push((Level::Debug, "the current boot is not known".to_owned()));
        } else if journal.boot.as_deref() != context.boot.as_deref() {
            doubts.push((Level::Info, "the machine was started again".to_owned()));
        } else if journal.stamp.is_none() {
            doubts.push((
                Level::Debug,
                "there are sub-directories or many other files, or the directory's time cannot be set".to_owned(),
            ));
        } else if journal.stamp.as_ref() != Some(look) {
            doubts.push((Level::Info, "others changed the directory".to_owned()));
        }
    }
    loaded.doubt = doubts.into_iter().min_by_key(|(level, _)| *level);
    loaded
}

/// The journal's content, the file, and whether it can be written.
fn open_journal(plat: &OwnedFd) -> Result<(Vec<u8>, OwnedFd, bool), Errno> {
    let open = |access| open_own_file(plat, JOURNAL, access);
    let (file, writable) = match open(OFlags::RDWR) {
        Err(Errno::ROFS | Errno::ACCESS | Errno::PERM) => (open(OFlags::RDONLY)?, false),
        file => (file?, true),
    };
    let size = u64::try_from(fs::fstat(&file)?.st_size).unwrap_or(0);
    if size > limits::JOURNAL_BYTES_READ_MAX {
        return Err(Errno::FBIG);
    }
    let mut bytes = vec![0; size as usize];
    let mut length = 0;
    while length < bytes.len() {
        match rustix::io::pread(&file, &mut bytes[length..], length as u64) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    bytes.truncate(length);
    Ok((bytes, file, writable))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_without_end_is_refused() {
        let path = format!("/proc/none{}", "/a".repeat(20_000));
        let trouble = make_all(Path::new(&path)).expect_err("a refusal");
        assert_eq!(trouble.errno, Errno::NAMETOOLONG);
        assert_eq!(trouble.path.len(), 64 + "...".len());
        let base = std::env::temp_dir().join(format!("plat-make-all-{}", std::process::id()));
        let deep = base.join("a/b/c");
        assert!(make_all(&deep).is_ok() && deep.is_dir() && make_all(&deep).is_ok());
        assert!(std::fs::remove_dir_all(base).is_ok());
    }
}
