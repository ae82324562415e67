//! The host's clock, as `wit/clock.wit` has it.

/// A time since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant {
    /// Whole seconds.
    pub seconds: u64,
    /// Below 1,000,000,000.
    pub nanoseconds: u32,
}

/// What a host lends the core to know the time.
pub trait Clock {
    /// The wall clock; it may step backwards.
    fn now(&mut self) -> Instant;
    /// A name for the machine's current boot that is never used again; none where the host has none.
    fn boot_id(&mut self) -> Option<String>;
}
