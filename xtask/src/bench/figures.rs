//! Medians and spreads, and how they are printed.

use std::time::Duration;

/// The middle and the spread of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    /// A tenth of the sample is below.
    pub(super) low: f64,
    /// The median.
    pub(super) median: f64,
    /// A tenth of the sample is above.
    pub(super) high: f64,
}

impl Spread {
    /// Of a sample; none if it is empty.
    pub(super) fn of(sample: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sample: Vec<f64> = sample.into_iter().collect();
        sample.sort_by(f64::total_cmp);
        let last = sample.len().checked_sub(1)?;
        // The nearest rank: an element of the sample, never a mean of two.
        let at = |share: f64| sample[(last as f64 * share).round() as usize];
        Some(Self { low: at(0.1), median: at(0.5), high: at(0.9) })
    }

    /// As a ratio: median and spread.
    pub(super) fn as_ratio(&self) -> String {
        format!("{} ({}-{})", ratio(self.median), ratio(self.low), ratio(self.high))
    }
}

/// A ratio with at least two digits that count.
pub(super) fn ratio(value: f64) -> String {
    if value >= 0.1 { format!("{value:.2}") } else { format!("{value:.4}") }
}

/// A time with three digits or so.
pub(super) fn time(milliseconds: f64) -> String {
    if milliseconds >= 100.0 { format!("{milliseconds:.0} ms") } else { format!("{milliseconds:.2} ms") }
}

/// A time in milliseconds.
pub(super) fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// A number with a comma every three digits.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_are_elements_of_the_sample() {
        let spread = Spread::of((0..=100).rev().map(f64::from)).unwrap();
        assert_eq!(spread, Spread { low: 10.0, median: 50.0, high: 90.0 });
        assert_eq!(Spread::of([3.0]).unwrap(), Spread { low: 3.0, median: 3.0, high: 3.0 });
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!(["0", "999", "1,000", "65,000", "1,048,576"], [0, 999, 1000, 65_000, 1 << 20].map(grouped)[..]);
        assert_eq!((ratio(0.5).as_str(), ratio(0.0123).as_str()), ("0.50", "0.0123"));
        assert_eq!((time(1.234).as_str(), time(812.3).as_str()), ("1.23 ms", "812 ms"));
    }
}
