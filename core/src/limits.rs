//! Every limit of the core in one place, with its reason.

/// Tries of one commit within a call before the core answers `contended` (design: the host waits, not the core).
pub const COMMIT_TRIES_MAX: u32 = 8;
/// Ranges of all sets together. They are compared pairwise, so that the time grows with the square.
pub const RANGES_MAX: usize = 4096;
/// Requested addresses of one call: each range set gives one.
pub const REQUESTS_MAX: usize = RANGES_MAX;
/// How much of a message, and of its details, is answered: enough for any explanation, and too little for an input of
/// megabytes that is quoted in it.
pub const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// How long a log line may be.
pub const LOG_LINE_BYTES_MAX: usize = 4 << 10;
/// Entries of `exclude`; each may split a range in two.
pub const EXCLUDES_MAX: usize = 4096;
/// Addresses of earlier boots that one ADD frees: as many as a commit of the smallest usual store takes.
pub const RECLAIM_MAX: usize = 256;
/// Earlier boots that one ADD looks through. A node that was restarted more often has had a full set in between.
pub const RECLAIM_BOOTS_MAX: usize = 64;
/// Entries asked for in one page of a scan: with records of about 120 bytes well under the page limit of a store.
pub const SCAN_ENTRIES: u32 = 1024;
/// Pages of one scan: 16 million entries, more than a directory of files can hold with any speed.
pub const SCAN_PAGES_MAX: u32 = 16_384;
/// Writes that the core puts into one commit, where the store can hold as many.
pub const COMMIT_WRITES_MAX: usize = 256;
/// The longest network name, in bytes: it names a directory, and file systems take no more. With the next limit it
/// keeps every key under [`crate::store::KEY_BYTES_MAX`].
pub const NETWORK_NAME_BYTES_MAX: usize = 255;
/// The longest container id, in bytes. Runtimes use 64; the specification has no limit.
pub const CONTAINER_ID_BYTES_MAX: usize = 512;
/// Log lines of one kind in one call; the rest is counted.
pub const LOG_LINES_MAX: usize = 20;
/// Ranges that an explanation names one by one.
pub const EXPLAINED_RANGES_MAX: usize = 16;
/// How long to wait for the lock of a local store unless the configuration says otherwise: above the worst crowd with
/// host-local (64 callers at 65,000 addresses: about a minute), below the four minutes after which a kubelet gives up.
pub const LOCK_WAIT_SECONDS: i64 = 120;
/// The longest wait that a configuration may ask for: the kubelet's four minutes less the time to answer.
pub const LOCK_WAIT_SECONDS_MAX: i64 = 230;
/// The size at which a log file is rotated unless the configuration says otherwise, in MiB.
pub const LOG_FILE_MIB: i64 = 10;
/// The largest size of a log file that a configuration may ask for, in MiB.
pub const LOG_FILE_MIB_MAX: i64 = 1024;
/// Counts of one search for a free slice in one pool. A pool of 2^108 slices whose blocks all have its own length needs
/// at most 440; the rest is for pools with blocks of several lengths.
pub const SEARCH_COUNTS_MAX: u32 = 4096;
/// How old an empty block of another host must be before it is taken over, in seconds (`calico.md` 2.1).
pub const RECLAIM_AGE_SECONDS: i64 = 60;
/// How long another's half-done claim must stand unchanged before it is touched, in seconds: longer than any call lasts.
pub const SIGHTING_GRACE_SECONDS: i64 = 300;
/// Addresses of a family in one request: sixteen of the largest blocks.
pub const ASSIGN_MAX: u32 = 65_536;
/// Slices that one attempt tries to claim and loses to others before it begins anew.
pub const CLAIM_TRIES_MAX: u32 = 8;
/// Empty blocks of others that one attempt looks at in one pool.
pub const RECLAIM_LOOK_MAX: usize = 16;
/// Blocks with room that one attempt looks through for one that has grown cold: sixteen pages of the index.
pub const COLD_LOOK_MAX: u32 = 1024;
/// Entries of an index of blocks asked for in one page.
pub const ROOMS_PAGE: u32 = 64;
/// Blocks with room that an explanation counts in one pool; beyond that its figures are an upper bound of what is held.
pub const ROOMS_COUNTED_MAX: u32 = 65_536;
/// Blocks claimed by one call: a /10 in blocks of /26.
pub const CLAIM_BLOCKS_MAX: u32 = 65_536;
/// Addresses of the largest block: a /20 or /116. Its object nears 1 MB (`calico.md` 7.3).
pub const BLOCK_ADDRESSES_MAX: u32 = 4096;
/// Characters of a selector (`calico.md` 1.1).
pub const SELECTOR_CHARACTERS_MAX: usize = 1024;
/// How deep a selector may be nested: deeper than any person writes, and far from the end of the stack.
pub const SELECTOR_DEPTH_MAX: usize = 64;
