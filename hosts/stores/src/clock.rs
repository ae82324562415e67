//! The machine's clock and boot.

use plat_core::clock::{Clock, Instant};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Where Linux tells the name of the current boot.
const BOOT_ID_PATH: &str = "/proc/sys/kernel/random/boot_id";

/// The wall clock and boot id of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&mut self) -> Instant {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Instant { seconds: since.as_secs(), nanoseconds: since.subsec_nanos() }
    }

    fn boot_id(&mut self) -> Option<String> {
        boot_id()
    }
}

/// A name for the current boot of this machine that is never used again; none where the system gives none.
pub fn boot_id() -> Option<String> {
    let text = std::fs::read_to_string(BOOT_ID_PATH).ok()?;
    let id = text.trim();
    (!id.is_empty()).then(|| id.to_owned())
}

/// When this machine booted, by its present wall clock; none where the system does not tell.
#[cfg(target_os = "linux")]
pub fn boot_time() -> Option<SystemTime> {
    let up = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let up = Duration::new(u64::try_from(up.tv_sec).ok()?, u32::try_from(up.tv_nsec).ok()?);
    SystemTime::now().checked_sub(up)
}

/// When this machine booted, by its present wall clock; none where the system does not tell.
#[cfg(not(target_os = "linux"))]
pub fn boot_time() -> Option<SystemTime> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_runs_after_the_boot() {
        let now = SystemClock.now();
        assert!(now.seconds > 1_600_000_000 && now.nanoseconds < 1_000_000_000, "{now:?}");
        if cfg!(target_os = "linux") {
            assert!(boot_time().unwrap() < SystemTime::now());
            assert_eq!(boot_id().unwrap().len(), 36);
            assert_eq!(boot_id(), SystemClock.boot_id());
        }
    }
}
