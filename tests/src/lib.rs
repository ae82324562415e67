//! Shared parts of the tests that cross crates.
