//! A hash that is the same for a text on every host and in every build: 64-bit FNV-1a.

/// The hash of a text. For spreading and for comparing, not for secrets.
pub(crate) fn stable_hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
