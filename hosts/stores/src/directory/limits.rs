//! Every limit of the directory store, each with its reason.

/// How many writes one commit may hold. A call of the core writes a few; garbage collection batches.
pub const ATOMIC_WRITES: u32 = 1024;

/// The journal is folded into a new index when it is longer. Each call reads it whole (about 50 us at the limit), and
/// each folding writes the whole index (about 0.1 s at 65,000 addresses): at about 400 bytes a commit this is one
/// folding in 300 commits.
pub const JOURNAL_BYTES_MAX: u64 = 128 << 10;

/// A process that commits again and again (garbage collection) folds its later commits only at this length, so that it
/// does not write the whole index for every few of them. The next process folds what is left.
pub const JOURNAL_BYTES_LATER_MAX: u64 = 512 << 10;

/// A longer journal is not read but taken for damaged: it may pass [`JOURNAL_BYTES_MAX`] by one commit, or while a
/// full disk prevents folding.
pub const JOURNAL_BYTES_READ_MAX: u64 = 4 << 20;

/// The history is rotated before it grows beyond this; with the rotated one it takes at most twice as much. That is
/// some 5,000 events.
pub const HISTORY_BYTES_MAX: u64 = 1 << 20;

/// The longest content of an address file that is understood. A container id and an interface name have some 80 bytes.
pub const CONTENT_BYTES_MAX: usize = 4096;

/// With more strays than this the index is not trusted but made anew for each call, since every stray is read again
/// for each: files that nobody expects may be rewritten in place by anybody.
pub const STRAYS_TRUSTED_MAX: usize = 64;

/// No more strays than this are looked at: they stand for garbage, and memory is bounded.
pub const STRAYS_MAX: usize = 16_384;

/// Sub-directories are followed to this depth.
pub const DEPTH_MAX: usize = 32;

/// At most this many notices are kept for the log.
pub const NOTICES_MAX: usize = 256;

/// How often an answer is begun anew because the index turned out to be wrong: once for the index, once more for a
/// writer that does not take the lock. After that the directory is changed faster than it can be read.
pub const REBUILDS_MAX: usize = 3;

/// A path may have no more bytes than this: the kernel's PATH_MAX.
pub const PATH_BYTES_MAX: usize = 4096;
