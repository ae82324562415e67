//! Random choices that a seed repeats (SplitMix64), for tests that print the seed when they fail.

/// A stream of choices.
#[derive(Debug, Clone)]
pub struct Random(u64);

/// Overrides the seed of random tests.
pub const SEED_VARIABLE: &str = "PLAT_SEED";

/// The seed: [`SEED_VARIABLE`] if set, else `fixed`, so that a run is repeatable by default.
///
/// # Panics
///
/// If the variable holds no number.
pub fn seed(fixed: u64) -> u64 {
    match std::env::var(SEED_VARIABLE) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{SEED_VARIABLE}={text} is not a number from 0 to 2^64-1")),
        Err(_) => fixed,
    }
}

impl Random {
    /// The stream `number` of a seed.
    pub fn new(seed: u64, number: u64) -> Self {
        let mut random = Self(seed ^ number.wrapping_mul(0xd134_2543_de82_ef95));
        random.bits();
        random
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.bits() % end as u64) as usize
    }

    /// True in `percent` of 100 cases.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.bits() % 100 < percent
    }

    /// One of `choices`, which is not empty.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }
}
