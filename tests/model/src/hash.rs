//! 128-bit hashes of states. Two states of ten million meet by chance once in 10^24 runs; nobody chooses the inputs.

use std::hash::{BuildHasherDefault, Hasher};

/// Odd, from the digits of pi and e.
const FACTOR: u128 = 0x2436_a885_a308_d313_1981_a2e0_3707_3445;
const SEED: u128 = 0xb7e1_5162_8aed_2a6a_bf71_5880_9cf4_f3c7;

/// Adds a number to a hash. The two are treated differently, since the number is often a hash of the same making.
pub fn mix(hash: u128, number: u128) -> u128 {
    let turned = hash.rotate_left(29).wrapping_add(SEED).wrapping_mul(FACTOR);
    let mut mixed = (turned ^ (turned >> 59) ^ number).wrapping_mul(FACTOR);
    mixed ^= mixed >> 61;
    mixed = mixed.wrapping_mul(FACTOR);
    mixed ^ (mixed >> 67)
}

/// The hash of bytes.
pub fn hash_bytes(bytes: &[u8]) -> u128 {
    let mut hash = mix(0, bytes.len() as u128);
    for chunk in bytes.chunks(16) {
        let mut word = [0; 16];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = mix(hash, u128::from_le_bytes(word));
    }
    hash
}

/// For maps whose keys are such hashes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Already(u64);

impl Hasher for Already {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| hash.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u128(&mut self, number: u128) {
        // The table takes the top bits and the bottom ones.
        self.0 = number as u64;
    }
}

/// A map whose keys are such hashes.
pub type HashKeyed<V> = std::collections::HashMap<u128, V, BuildHasherDefault<Already>>;
