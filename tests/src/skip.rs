//! What happens when a test cannot run because something is missing on this machine.
//!
//! With `CI=true` a missing part is a failure. Elsewhere the test says `SKIPPED: <what>: <reason>` on standard error,
//! past the capture of the test harness, and the skip is counted.

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::peers::Missing;

/// Names a file; every skip appends its line to it, so that a caller of many test binaries can sum them up.
pub const LOG_VARIABLE: &str = "PLAT_SKIP_LOG";

static SKIPPED: AtomicUsize = AtomicUsize::new(0);

/// How many skips this process has counted.
pub fn count() -> usize {
    SKIPPED.load(Ordering::Relaxed)
}

/// Whether a missing part is a failure.
pub fn is_ci() -> bool {
    std::env::var_os("CI").is_some_and(|v| v == "true")
}

/// Records that a part is missing.
///
/// # Panics
///
/// With `CI=true`.
pub fn skip(missing: &Missing) {
    assert!(!is_ci(), "missing, and CI=true: {missing}");
    skip_everywhere(missing);
}

/// Records a skip that is no failure under `CI=true` either: the machine itself, its kernel for instance, cannot do
/// what the test needs, and no setup could change that.
pub fn skip_everywhere(missing: &Missing) {
    SKIPPED.fetch_add(1, Ordering::Relaxed);
    let line = format!("SKIPPED: {missing}\n");
    // A write to the stream itself is not captured by the harness, as println! is.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os(LOG_VARIABLE)
        && let Ok(mut file) = std::fs::OpenOptions::new().append(true).create(true).open(path)
    {
        let _ = file.write_all(line.as_bytes());
    }
}

/// The value of a `Result<_, Missing>`, or a recorded skip and a return from the test.
#[macro_export]
macro_rules! need {
    ($part:expr) => {
        match $part {
            Ok(part) => part,
            Err(missing) => {
                $crate::skip::skip(&missing);
                return;
            }
        }
    };
}
