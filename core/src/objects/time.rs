//! Times as the objects write them: RFC 3339 in whole seconds, and any RFC 3339 read.

/// Days from 1970-01-01 to a date of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March, so that the leap day is the last of its year.
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * month + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Year, month and day of a number of days since 1970-01-01.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// `2026-09-01T10:00:00Z`. `seconds`: since 1970; years beyond 9999 are written as its end.
pub fn to_text(seconds: i64) -> String {
    const LAST: i64 = 253_402_300_799;
    let seconds = seconds.clamp(0, LAST);
    let (year, month, day) = date(seconds.div_euclid(86_400));
    let of_day = seconds.rem_euclid(86_400);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", of_day / 3_600, of_day / 60 % 60, of_day % 60)
}

/// The time that Go prints for a `time.Time` in UTC: `2026-09-01 10:00:00.123456789 +0000 UTC`, without trailing zeros
/// of the fraction.
pub fn to_go_text(now: crate::clock::Instant) -> String {
    let text = to_text(i64::try_from(now.seconds).unwrap_or(i64::MAX)).replace('T', " ");
    let whole = text.trim_end_matches('Z');
    if now.nanoseconds == 0 {
        return format!("{whole} +0000 UTC");
    }
    let fraction = format!("{:09}", now.nanoseconds);
    format!("{whole}.{} +0000 UTC", fraction.trim_end_matches('0'))
}

/// Reads RFC 3339, and gives whole seconds since 1970; the fraction is cut off. None if it is no such time.
pub fn parse(text: &str) -> Option<i64> {
    let number = |from: usize, until: usize| -> Option<i64> {
        let digits = text.get(from..until)?;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let is = |at: usize, wanted: &str| text.get(at..at + 1).is_some_and(|have| wanted.contains(have));
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let separated = is(4, "-") && is(7, "-") && is(10, "Tt ") && is(13, ":") && is(16, ":");
    let in_range = (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60 && second < 61;
    if !separated || !in_range {
        return None;
    }
    let rest = text.get(19..)?;
    let zone = match rest.strip_prefix('.') {
        Some(fraction) => fraction.trim_start_matches(|c: char| c.is_ascii_digit()),
        None => rest,
    };
    let offset = match zone {
        "Z" | "z" => 0,
        _ => {
            let sign = match zone.get(0..1)? {
                "+" => 1,
                "-" => -1,
                _ => return None,
            };
            let (hours, minutes) = zone.get(1..)?.split_once(':')?;
            sign * (hours.parse::<i64>().ok()? * 3_600 + minutes.parse::<i64>().ok()? * 60)
        }
    };
    Some(days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second - offset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_are_read_and_written() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2026-09-01T10:00:00Z", 1_788_256_800),
            ("2000-02-29T23:59:59Z", 951_868_799),
            ("9999-12-31T23:59:59Z", 253_402_300_799),
        ] {
            assert_eq!(parse(text), Some(seconds));
            assert_eq!(to_text(seconds), text);
        }
        assert_eq!(parse("2026-09-01T12:00:00.123456+02:00"), Some(1_788_256_800));
        for wrong in ["", "2026-09-01", "2026-13-01T00:00:00Z", "2026-09-01T10:00:00", "2026-09-01T10:00:00X"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        let now = crate::clock::Instant { seconds: 1_788_256_800, nanoseconds: 100_000_000 };
        assert_eq!(to_go_text(now), "2026-09-01 10:00:00.1 +0000 UTC");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(seconds in 0i64..253_402_300_800) {
            prop_assert_eq!(parse(&to_text(seconds)), Some(seconds));
        }
    }
}
