//! Storage adapters.
