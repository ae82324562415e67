//! What one call into the component may use. All of them are far above what an honest call needs: they are there so
//! that a fault of the core ends as an error of one call and not of the host.

/// How many requests one call may hold (`wit/cni.wit`).
pub const REQUESTS_MAX: usize = 1024;

/// How many items one call of a typed operation may hold (`wit/ipam.wit`).
pub const ITEMS_MAX: usize = 10_000;

/// How many bytes the requests of one call may hold together: input, environment, names and advice (`wit/cni.wit`).
/// A configuration has a few hundred; a GC lists every attachment of a node with about 100 each.
pub const INPUT_BYTES_MAX: usize = 4 << 20;

/// The component's memory. A request of [`INPUT_BYTES_MAX`] read into a JSON tree takes about ten times its size, and
/// a page of the store is 1 MiB.
pub const MEMORY_BYTES_MAX: usize = 128 << 20;

/// Fuel for one request: about one unit for each instruction. The largest honest request, a GC over 65,000 addresses with a
/// list of [`INPUT_BYTES_MAX`], takes about a fifth of it.
pub const FUEL_PER_REQUEST: u64 = 8_000_000_000;

/// How many bytes the component may hand to the host at once: in one store call, or as the replies of a call. The
/// largest value that a strategy writes is a full /20 block of nearly 1 MiB; a reply holds no more than that either.
pub const HOST_CALL_BYTES_MAX: usize = 8 << 20;

/// Core instances, memories and tables of a component. The encoder makes one memory and at most two tables, in a few
/// instances of shims.
pub(crate) const INSTANCES_MAX: usize = 16;
