//! The log: standard error, and the file that the configuration names.

use plat_core::cni::{Level, Line, LogFile};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::time::{SystemTime, UNIX_EPOCH};

/// The variable with the level up to which lines are written to standard error.
const VARIABLE: &str = "PLAT_LOG";

/// Owner may write, all may read nothing: a log names containers.
const MODE: u32 = 0o600;

/// The levels by the names that [`VARIABLE`] knows.
fn level_named(name: &str) -> Option<Level> {
    Some(match name {
        "error" => Level::Error,
        "warn" => Level::Warning,
        "info" => Level::Info,
        "debug" => Level::Debug,
        _ => return None,
    })
}

fn name_of(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warning => "warn",
        Level::Info => "info",
        Level::Debug => "debug",
    }
}

/// Writes the lines that the environment asks for to standard error: without a word, errors and warnings.
pub(crate) fn to_stderr(lines: &[Line]) {
    let asked = std::env::var(VARIABLE).ok().filter(|value| !value.is_empty());
    let (most, unknown) = match &asked {
        None => (Level::Warning, None),
        Some(value) => level_named(value).map_or((Level::Warning, Some(value)), |level| (level, None)),
    };
    let mut text = String::new();
    if let Some(value) = unknown {
        let value = value.escape_debug();
        text.push_str(&format!("warn: {VARIABLE}={value} is no level; use error, warn, info or debug\n"));
    }
    for line in lines.iter().filter(|line| line.level <= most) {
        text.push_str(&format!("{}: {}\n", name_of(line.level), line.text));
    }
    // A closed standard error is no reason to fail a call.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Appends all lines to the log file. What goes wrong is said on standard error, and never fails the call.
pub(crate) fn to_file(file: &LogFile, call: &str, lines: &[Line]) {
    if lines.is_empty() {
        return;
    }
    let now = timestamp(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs());
    let pid = std::process::id();
    let text: String =
        lines.iter().map(|line| format!("{now} {} [{pid} {call}] {}\n", name_of(line.level), line.text)).collect();
    if let Err(error) = append(file, &text) {
        to_stderr(&[Line { level: Level::Warning, text: format!("cannot log to {}: {error}", file.path) }]);
    }
}

/// One write in append mode, so that lines of calls at the same time do not mix. The file is renamed to `.1` when it
/// would grow too large; two calls that both see it too large may rename twice, which loses old lines and no new ones.
fn append(file: &LogFile, text: &str) -> std::io::Result<()> {
    // A fifo or a device under that name must not hold the call.
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
    let open =
        || OpenOptions::new().append(true).create(true).mode(MODE).custom_flags(flags.bits() as i32).open(&file.path);
    let mut log = open()?;
    let length = log.metadata()?.len();
    if length > 0 && length.saturating_add(text.len() as u64) > file.bytes_max {
        std::fs::rename(&file.path, format!("{}.1", file.path))?;
        log = open()?;
    }
    log.write_all(text.as_bytes())
}

/// UTC, as RFC 3339 has it, from seconds since 1970.
fn timestamp(seconds: u64) -> String {
    let (days, second_of_day) = (seconds / 86_400, seconds % 86_400);
    // Days are counted from 0000-03-01, so that the leap day is the last of its year; 146,097 days are 400 years.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second_of_day / 3_600, second_of_day / 60 % 60, second_of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_follow_the_calendar() {
        // From `date -u -d @N +%FT%TZ`.
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_709_251_200, "2024-03-01T00:00:00Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(timestamp(seconds), text);
        }
    }

    fn line(text: &str) -> Line {
        Line { level: Level::Info, text: text.to_owned() }
    }

    #[test]
    fn the_file_is_rotated_before_it_grows_too_large() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log").to_str().unwrap().to_owned();
        let file = LogFile { path: path.clone(), bytes_max: 200 };
        for index in 0..10 {
            to_file(&file, "ADD c0 eth0", &[line(&format!("line {index}"))]);
        }
        let (new, old) =
            (std::fs::read_to_string(&path).unwrap(), std::fs::read_to_string(format!("{path}.1")).unwrap());
        assert!(new.len() <= 200 && old.len() <= 200, "{} {}", new.len(), old.len());
        assert!(new.ends_with(" ADD c0 eth0] line 9\n"), "{new}");
        // Nothing is lost at the seam.
        let all = old + &new;
        let numbers: Vec<&str> = all.lines().filter_map(|line| line.rsplit(' ').next()).collect();
        assert!(numbers.windows(2).all(|pair| pair[1].parse::<u32>().unwrap() == pair[0].parse::<u32>().unwrap() + 1));
        assert!(numbers.len() > 3);
    }

    #[test]
    fn a_log_that_cannot_be_written_fails_nothing() {
        to_file(&LogFile { path: "/proc/no/such/file".to_owned(), bytes_max: 10 }, "DEL", &[line("lost")]);
    }
}
