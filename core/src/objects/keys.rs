//! The keys of blocks, affinities and handles, and of the indexes that stores derive from blocks (`docs/formats.md`).

use super::{Block, Holder};
use crate::net::{Address, Family, Prefix};
use crate::network::{decode, encode};

/// `v4/26/0af40000`.
fn ending(block: Prefix) -> String {
    format!("{}/{}/{}", block.family().key_name(), block.length(), block.network().to_hex())
}

fn parse_ending(text: &str) -> Option<Prefix> {
    let mut parts = text.split('/');
    let family = Family::of_key_name(parts.next()?)?;
    let digits = parts.next()?;
    let length: u8 = digits.parse().ok().filter(|length: &u8| length.to_string() == digits)?;
    let block = Prefix::new(Address::from_hex(family, parts.next()?)?, length)?;
    (parts.next().is_none() && !block.has_host_bits()).then_some(block)
}

/// The key of a block: `block/v4/26/0af40000`, its first address in hexadecimal.
pub fn block_key(block: Prefix) -> String {
    format!("block/{}", ending(block))
}

/// The block that a key names; none for other keys.
pub fn block_of_key(key: &str) -> Option<Prefix> {
    parse_ending(key.strip_prefix("block/")?)
}

/// What the keys of all blocks of a length begin with: `block/v4/26/`.
pub fn blocks_prefix(family: Family, length: u8) -> String {
    format!("block/{}/{length}/", family.key_name())
}

fn claim_key(kind: &str, holder: &Holder, block: Prefix) -> String {
    format!("{kind}/{}/{}/{}", holder.kind(), encode(holder.name()), ending(block))
}

fn parse_claim(rest: &str) -> Option<(Holder, Prefix)> {
    let (kind, rest) = rest.split_once('/')?;
    let (name, ending) = rest.split_once('/')?;
    let name = decode(name).filter(|name| !name.is_empty())?;
    let holder = match kind {
        "host" => Holder::Host(name),
        "virtual" => Holder::Virtual(name),
        _ => return None,
    };
    Some((holder, parse_ending(ending)?))
}

/// The key of a holder's affinity to a block: `affinity/host/<name>/v4/26/0af40000`.
pub fn affinity_key(holder: &Holder, block: Prefix) -> String {
    claim_key("affinity", holder, block)
}

/// What the keys of a holder's affinities of a family begin with.
pub fn affinities_prefix(holder: &Holder, family: Family) -> String {
    format!("affinity/{}/{}/{}/", holder.kind(), encode(holder.name()), family.key_name())
}

/// The holder and the block that an affinity's key names; none for other keys.
pub fn affinity_of_key(key: &str) -> Option<(Holder, Prefix)> {
    parse_claim(key.strip_prefix("affinity/")?)
}

/// The key of a handle: `handle/<id>`.
pub fn handle_key(id: &str) -> String {
    format!("handle/{}", encode(id))
}

/// The handle's id that a key names; none for other keys.
pub fn handle_of_key(key: &str) -> Option<String> {
    decode(key.strip_prefix("handle/")?).filter(|id| !id.is_empty())
}

/// Derived: the key that says that a block has a free or a cooling ordinal; its value is a [`Room`].
pub fn room_key(block: Prefix) -> String {
    format!("room/{}", ending(block))
}

/// What the keys of all rooms of a length begin with.
pub fn rooms_prefix(family: Family, length: u8) -> String {
    format!("room/{}/{length}/", family.key_name())
}

/// The block that a room's key names; none for other keys.
pub fn room_of_key(key: &str) -> Option<Prefix> {
    parse_ending(key.strip_prefix("room/")?)
}

/// Derived: the key that says that nobody holds an address of a block; its value is an [`Empty`].
pub fn empty_key(block: Prefix) -> String {
    format!("empty/{}", ending(block))
}

/// What the keys of all empty blocks of a length begin with.
pub fn empties_prefix(family: Family, length: u8) -> String {
    format!("empty/{}/{length}/", family.key_name())
}

/// The block that an empty block's key names; none for other keys.
pub fn empty_of_key(key: &str) -> Option<Prefix> {
    parse_ending(key.strip_prefix("empty/")?)
}

/// Derived: the key that says whose a block is, by the block itself; its value is a [`Room`].
pub fn owned_key(holder: &Holder, block: Prefix) -> String {
    claim_key("owned", holder, block)
}

/// What the keys of a holder's blocks of a family begin with.
pub fn owned_prefix(holder: &Holder, family: Family) -> String {
    format!("owned/{}/{}/{}/", holder.kind(), encode(holder.name()), family.key_name())
}

/// The holder and the block that such a key names; none for other keys.
pub fn owned_of_key(key: &str) -> Option<(Holder, Prefix)> {
    parse_claim(key.strip_prefix("owned/")?)
}

/// Whether a key is of one of the indexes that stores derive from blocks, and that no commit may write.
pub fn is_derived(key: &str) -> bool {
    ["room/", "empty/", "owned/"].iter().any(|prefix| key.starts_with(prefix))
}

/// What a block has left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// How many ordinals are free.
    pub free: u32,
    /// How many are cooling.
    pub cooling: u32,
    /// Since when the one is cooling that cools longest, in seconds since 1970.
    pub coolest: Option<i64>,
}

impl Room {
    /// Reads `free cooling coolest`, the last `-` where there is none.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(value).ok()?.split(' ');
        let room = Self {
            free: words.next()?.parse().ok()?,
            cooling: words.next()?.parse().ok()?,
            coolest: parse_seconds(words.next()?)?,
        };
        words.next().is_none().then_some(room)
    }

    /// The value in a store.
    pub fn to_bytes(&self) -> Vec<u8> {
        format!("{} {} {}", self.free, self.cooling, seconds_text(self.coolest)).into_bytes()
    }
}

fn parse_seconds(word: &str) -> Option<Option<i64>> {
    if word == "-" { Some(None) } else { word.parse().ok().map(Some) }
}

fn seconds_text(seconds: Option<i64>) -> String {
    seconds.map_or_else(|| "-".to_owned(), |seconds| seconds.to_string())
}

/// A block that nobody holds an address of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Empty {
    /// When it was claimed, in seconds since 1970; none on old blocks, and where nobody has claimed it.
    pub claimed: Option<i64>,
    /// Who has claimed it.
    pub holder: Option<Holder>,
}

impl Empty {
    /// Reads `claimed holder`, each `-` where there is none.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (claimed, holder) = std::str::from_utf8(value).ok()?.split_once(' ')?;
        let holder = if holder == "-" { None } else { Some(Holder::parse(holder)?) };
        Some(Self { claimed: parse_seconds(claimed)?, holder })
    }

    /// The value in a store.
    pub fn to_bytes(&self) -> Vec<u8> {
        let holder = self.holder.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
        format!("{} {holder}", seconds_text(self.claimed)).into_bytes()
    }
}

/// The derived keys that follow from a key and its value: those of a block that can be read; none for all else.
pub fn derived(key: &str, value: &[u8]) -> Vec<(String, Vec<u8>)> {
    let Some(prefix) = block_of_key(key) else { return Vec::new() };
    let Some(glance) = Block::glance(value) else { return Vec::new() };
    let mut keys = Vec::new();
    if glance.room.free > 0 || glance.room.cooling > 0 {
        keys.push((room_key(prefix), glance.room.to_bytes()));
    }
    if glance.is_empty {
        let empty = Empty { claimed: glance.claimed, holder: glance.holder.clone() };
        keys.push((empty_key(prefix), empty.to_bytes()));
    }
    if let Some(holder) = &glance.holder {
        keys.push((owned_key(holder, prefix), glance.room.to_bytes()));
    }
    keys
}
