//! The algebra of addresses: families, addresses, prefixes, ranges and sets of them.
//!
//! An address is a family and an unsigned number of 128 bits. Arithmetic is checked against the family's width and
//! never wraps, and no operation visits addresses one by one: costs depend on the number of ranges alone. This module
//! knows how addresses are written (as Go's `net` package reads and prints them, because the files and configurations
//! that Plat shares with Go programs are written so); it may not know who holds an address or why.

mod address;
mod count;
mod gap;
mod prefix;
mod range;
mod set;

pub use address::{Address, Family};
pub use count::Count;
pub use gap::first_free;
pub use prefix::{Prefix, PrefixError};
pub use range::Range;
pub use set::AddressSet;
