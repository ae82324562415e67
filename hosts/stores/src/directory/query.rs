//! Reading: keys, pages of keys and counts, from the index, the changes since, and the files.

use super::files::{Seen, Stray, cursor, cursor_name, still, stray};
use super::held::{Body, Held, owner_ending};
use super::image::{Image, boot_ending};
use super::journal::Change;
use super::{Context, Open, Stop};
use crate::structured::{after_prefix, check_key};
use crate::trouble::Trouble;
use plat_core::cni::Level;
use plat_core::net::{Address, Family};
use plat_core::network::{Place, encode, holdings_to_bytes};
use plat_core::store::{Entry, Error, KEY_BYTES_MAX, PAGE_BYTES_MAX, Page, Version};
use rustix::fs::Dir;
use std::collections::BTreeMap;

/// What scans and counts of derived keys need beside the index at rest.
#[derive(Default)]
pub(super) struct Derived {
    /// Owners of whom something changed, and whether the index at rest knows them.
    owners: BTreeMap<String, bool>,
    /// Boot keys that came since.
    boots: BTreeMap<String, Address>,
    /// Boot keys of the index at rest that are gone or replaced.
    boots_gone: Vec<String>,
}

/// What an owner holds.
pub(super) struct Holdings {
    pub(super) places: Vec<Place>,
    pub(super) version: Version,
    pub(super) addresses: Vec<Address>,
}

pub(super) fn version(number: u64) -> Version {
    Version(number.to_be_bytes().to_vec())
}

/// The least address of a family whose digits are not before `digits`; none: all are before it.
fn lower_bound(family: Family, digits: &str) -> Option<Address> {
    let length: u32 = match family {
        Family::V4 => 8,
        Family::V6 => 32,
    };
    let mut bits: u128 = 0;
    let mut bytes = digits.bytes();
    for done in 0..length {
        let shift = |bits: u128| bits.checked_shl(4 * (length - done)).unwrap_or(0);
        let digit = match bytes.next() {
            None => return Address::new(family, shift(bits)),
            Some(byte @ b'0'..=b'9') => byte - b'0',
            Some(byte @ b'a'..=b'f') => byte - b'a' + 10,
            Some(byte) if byte < b'0' => return Address::new(family, shift(bits)),
            Some(byte) if byte < b'a' => return Address::new(family, shift(bits) + (10 << (4 * (length - done - 1)))),
            Some(_) => {
                let next = bits + 1;
                let all = done == 0 || (done < 32 && next >> (4 * done) != 0);
                return if all { None } else { Address::new(family, shift(next)) };
            }
        };
        bits = bits << 4 | u128::from(digit);
    }
    let address = Address::new(family, bits)?;
    if bytes.next().is_some() { address.next() } else { Some(address) }
}

/// A page being filled.
struct Sink {
    page: Page,
    bytes: usize,
    limit: usize,
}

impl Sink {
    /// Whether the next entry still fits; if not, its key is where to go on.
    fn fits(&mut self, key: &str) -> bool {
        if self.page.entries.len() < self.limit && self.bytes < PAGE_BYTES_MAX {
            return true;
        }
        self.page.next = Some(key.to_owned());
        false
    }

    fn push(&mut self, key: String, value: Vec<u8>, version: Version) {
        self.bytes += key.len() + value.len();
        self.page.entries.push(Entry { key, value, version });
    }
}

/// The part of a region that lies between two keys: from and until, as endings after `region`.
fn clip(region: &str, low: &str, high: Option<&str>) -> Option<(String, Option<String>)> {
    let end = after_prefix(region)?;
    if low >= end.as_str() || high.is_some_and(|high| high <= region) {
        return None;
    }
    // Between a text and the end of its prefix lie only texts that start with it.
    let from = low.strip_prefix(region).unwrap_or_default().to_owned();
    let until = high.filter(|high| *high < end.as_str()).and_then(|high| high.strip_prefix(region)).map(str::to_owned);
    Some((from, until))
}

fn below(ending: &str, until: Option<&str>) -> bool {
    until.is_none_or(|until| ending < until)
}

const ADDRESSES: [(Family, &str); 2] = [(Family::V4, "address/v4/"), (Family::V6, "address/v6/")];

impl Open {
    /// What the index says of an address, and whether the index at rest has a record of it.
    pub(super) fn held(&mut self, address: Address) -> Result<(Option<Held>, bool), Stop> {
        if let Some(change) = self.changes.get(&address) {
            return Ok((change.now.clone(), change.in_base));
        }
        match self.image.find(address)? {
            Some(raw) => Ok((Some(self.image.held(&raw)?), true)),
            None => Ok((None, false)),
        }
    }

    /// The same, if the file bears it out.
    pub(super) fn verified(&mut self, address: Address) -> Result<(Option<(Held, Seen)>, bool), Stop> {
        let (held, in_base) = self.held(address)?;
        let Some(held) = held else { return Ok((None, in_base)) };
        let seen = self.verify(address, &held.body)?;
        Ok((Some((held, seen)), in_base))
    }

    fn verify(&self, address: Address, body: &Body) -> Result<Seen, Stop> {
        still(&self.folders.dir, address, body)
            .map_err(|()| Stop::Stale(format!("{address} is not what the index says; it was changed in place")))
    }

    /// All strays, read anew once a call.
    pub(super) fn strays(&mut self) -> &BTreeMap<String, Stray> {
        let dir = &self.folders.dir;
        let paths = &self.stray_paths;
        self.strays
            .get_or_insert_with(|| paths.iter().filter_map(|path| Some((encode(path), stray(dir, path)?))).collect())
    }

    /// What an owner holds, each address verified; none: nothing.
    pub(super) fn holdings(&mut self, ending: &str) -> Result<Option<Holdings>, Stop> {
        let mut found: Vec<(Address, Held)> = Vec::new();
        let mut place = self.image.owner_rank(ending)?;
        while place < self.image.owned() {
            let (raw, owner) = self.image.owner(place)?;
            if owner != ending {
                break;
            }
            if !self.changes.contains_key(&raw.address) {
                found.push((raw.address, self.image.held(&raw)?));
            }
            place += 1;
        }
        for (address, change) in &self.changes {
            if let Some(held) = change.now.as_ref().filter(|held| held.body.is_owner(ending)) {
                found.push((*address, held.clone()));
            }
        }
        found.sort_unstable_by_key(|(address, _)| *address);
        let mut number = 0;
        for (address, held) in &found {
            self.verify(*address, &held.body)?;
            number = number.max(held.version).max(held.owner_version);
        }
        let addresses: Vec<Address> = found.into_iter().map(|(address, _)| address).collect();
        let mut places: Vec<Place> = addresses.iter().copied().map(Place::Address).collect();
        let mut version = version(number);
        for stray in self.strays().values() {
            if stray.record.owner().is_some_and(|owner| owner_ending(&owner) == ending) {
                places.push(Place::Stray(stray.path.clone()));
                version.0.extend(crc32fast::hash(&stray.version.0).to_be_bytes());
            }
        }
        // Many strays of one owner: the sum of their sums.
        if version.0.len() > 64 {
            let sum = crc32fast::hash(&version.0);
            version.0.truncate(8);
            version.0.extend(sum.to_be_bytes());
        }
        Ok((!places.is_empty()).then_some(Holdings { places, version, addresses }))
    }

    /// One key.
    pub(super) fn entry(&mut self, context: &mut Context, place: &Place) -> Result<Option<(Vec<u8>, Version)>, Stop> {
        Ok(match place {
            Place::Address(address) => self
                .verified(*address)?
                .0
                .map(|(held, _)| (held.body.record(held.boot.as_deref()).to_bytes(), version(held.version))),
            Place::Boot { boot, address } => match self.held(*address)?.0 {
                Some(held) if held.boot.as_deref() == Some(boot) => {
                    self.verify(*address, &held.body)?;
                    Some((Vec::new(), version(held.version)))
                }
                _ => None,
            },
            Place::Owner { .. } => self
                .holdings(&owner_ending(place))?
                .map(|holdings| (holdings_to_bytes(&holdings.places), holdings.version)),
            Place::Stray(path) => {
                self.strays().get(&encode(path)).map(|stray| (stray.record.to_bytes(), stray.version.clone()))
            }
            Place::Cursor(set) => match cursor(&self.folders.dir, *set) {
                Ok(found) => found,
                Err(errno) => {
                    // As the original does: log it and begin from the start.
                    let trouble = Trouble::new("open", self.folders.name(&cursor_name(*set)), errno);
                    context.notice(Level::Warning, format!("{trouble}; taken for absent"));
                    None
                }
            },
        })
    }

    pub(super) fn read(&mut self, context: &mut Context, keys: &[String]) -> Result<Vec<Option<Entry>>, Stop> {
        keys.iter()
            .map(|key| {
                check_key(key)?;
                if !key.starts_with(context.keys.prefix()) {
                    return Err(misrouted(context, key).into());
                }
                let Some(place) = context.keys.place(key) else { return Ok(None) };
                let found = self.entry(context, &place)?;
                Ok(found.map(|(value, version)| Entry { key: key.clone(), value, version }))
            })
            .collect()
    }

    pub(super) fn scan(
        &mut self,
        context: &mut Context,
        prefix: &str,
        from: Option<&str>,
        limit: u32,
        keys_only: bool,
        fresh: bool,
    ) -> Result<Page, Stop> {
        check_prefix(context, prefix)?;
        let low = from.unwrap_or(prefix).max(prefix).to_owned();
        let high = after_prefix(prefix);
        let network = context.keys.prefix().to_owned();
        let mut sink = Sink { page: Page::default(), bytes: 0, limit: limit.max(1) as usize };
        for (family, region) in ADDRESSES {
            let region = format!("{network}{region}");
            let Some((from, until)) = clip(&region, &low, high.as_deref()) else { continue };
            if !self.scan_addresses(&mut sink, &region, family, &from, until.as_deref(), keys_only, fresh)? {
                return Ok(sink.page);
            }
        }
        type Scan = fn(&mut Open, &mut Context, &mut Sink, &str, &str, Option<&str>, bool) -> Result<bool, Stop>;
        let regions: [(&str, Scan); 4] = [
            ("boot/", Self::scan_boots),
            ("cursor/", Self::scan_cursors),
            ("owner/", Self::scan_owners),
            ("stray/", Self::scan_strays),
        ];
        for (region, scan) in regions {
            let region = format!("{network}{region}");
            let Some((from, until)) = clip(&region, &low, high.as_deref()) else { continue };
            if !scan(self, context, &mut sink, &region, &from, until.as_deref(), keys_only)? {
                break;
            }
        }
        Ok(sink.page)
    }

    #[expect(clippy::too_many_arguments, reason = "a part of a scan with the scan's arguments")]
    fn scan_addresses(
        &mut self,
        sink: &mut Sink,
        region: &str,
        family: Family,
        from: &str,
        until: Option<&str>,
        keys_only: bool,
        fresh: bool,
    ) -> Result<bool, Stop> {
        let Some(first) = lower_bound(family, from) else { return Ok(true) };
        let end = until.and_then(|until| lower_bound(family, until));
        let within = |address: Address| address.family() == family && end.is_none_or(|end| address < end);
        let mut place = self.image.rank(first)?;
        let mut next = first;
        let mut ended = false;
        while !ended {
            let base = loop {
                if place >= self.image.len() {
                    break None;
                }
                let raw = self.image.raw(place)?;
                if !within(raw.address) {
                    break None;
                }
                if !self.changes.contains_key(&raw.address) {
                    break Some(raw);
                }
                place += 1;
            };
            let changed = self
                .changes
                .range(next..)
                .find_map(|(address, change)| change.now.as_ref().map(|held| (*address, held)))
                .filter(|(address, _)| within(*address));
            let (address, number, held) = match (base, changed) {
                (None, None) => return Ok(true),
                (Some(raw), changed) if changed.is_none_or(|(address, _)| raw.address < address) => {
                    place += 1;
                    let held = if keys_only { None } else { Some(self.image.held(&raw)?) };
                    (raw.address, raw.version, held)
                }
                (_, Some((address, held))) => (address, held.version, Some(held.clone())),
                (Some(_), None) => return Ok(true),
            };
            let key = format!("{region}{}", address.to_hex());
            if !sink.fits(&key) {
                return Ok(false);
            }
            let value = match held.filter(|_| !keys_only) {
                None => Vec::new(),
                Some(held) => {
                    if fresh {
                        self.verify(address, &held.body)?;
                    }
                    held.body.record(held.boot.as_deref()).to_bytes()
                }
            };
            sink.push(key, value, version(number));
            match address.next() {
                Some(after) => next = after,
                None => ended = true,
            }
        }
        Ok(true)
    }

    fn derived(&mut self) -> Result<&Derived, Stop> {
        if self.derived.is_none() {
            let mut derived = Derived::default();
            for (address, change) in &self.changes {
                if change.in_base
                    && let Some(raw) = self.image.find(*address)?
                {
                    let held = self.image.held(&raw)?;
                    if let Some(boot) = &held.boot {
                        derived.boots_gone.push(boot_ending(boot, *address));
                    }
                    if let Body::Owner(ending) = held.body {
                        derived.owners.insert(ending, true);
                    }
                }
                if let Some(held) = &change.now {
                    if let Some(boot) = &held.boot {
                        derived.boots.insert(boot_ending(boot, *address), *address);
                    }
                    if let Body::Owner(ending) = &held.body
                        && !derived.owners.contains_key(ending)
                    {
                        derived.owners.insert(ending.clone(), knows(&mut self.image, ending)?);
                    }
                }
            }
            let strays: Vec<String> =
                self.strays().values().filter_map(|stray| Some(owner_ending(&stray.record.owner()?))).collect();
            for ending in strays {
                let known = knows(&mut self.image, &ending)?;
                derived.owners.entry(ending).or_insert(known);
            }
            self.derived = Some(derived);
        }
        Ok(self.derived.get_or_insert_default())
    }

    fn scan_boots(
        &mut self,
        _: &mut Context,
        sink: &mut Sink,
        region: &str,
        from: &str,
        until: Option<&str>,
        _: bool,
    ) -> Result<bool, Stop> {
        let mut place = self.image.boot_rank(from)?;
        let mut next = from.to_owned();
        loop {
            let base = loop {
                if place >= self.image.booted() {
                    break None;
                }
                let raw = self.image.booted_at(place)?;
                if !self.changes.contains_key(&raw.address) {
                    let ending = self.image.boot_ending(place)?;
                    break below(&ending, until).then_some((ending, raw));
                }
                place += 1;
            };
            let changed = self.derived()?.boots.range(next.clone()..).next();
            let changed = changed.filter(|(ending, _)| below(ending, until)).map(|(ending, at)| (ending.clone(), *at));
            let (ending, number) = match (base, changed) {
                (None, None) => return Ok(true),
                (Some((ending, raw)), changed) if changed.as_ref().is_none_or(|(other, _)| ending < *other) => {
                    place += 1;
                    (ending, raw.version)
                }
                (_, Some((ending, address))) => {
                    let held = self.held(address)?.0;
                    (ending, held.map_or(0, |held| held.version))
                }
                (Some(_), None) => return Ok(true),
            };
            let key = format!("{region}{ending}");
            if !sink.fits(&key) {
                return Ok(false);
            }
            sink.push(key, Vec::new(), version(number));
            next = ending + "\0";
        }
    }

    /// The sets that have cursors, in the order of their keys.
    fn cursor_sets(&self) -> Result<Vec<u32>, Stop> {
        let open = |errno| Trouble::new("open", self.folders.path.clone(), errno);
        let mut sets = Vec::new();
        for entry in Dir::read_from(&self.folders.dir).map_err(open)? {
            let entry = entry.map_err(open)?;
            if let Ok(name) = entry.file_name().to_str()
                && let super::files::Name::Cursor(set) = super::files::Name::of(name)
                && cursor(&self.folders.dir, set).is_ok_and(|found| found.is_some())
            {
                sets.push(set);
            }
        }
        sets.sort_by_key(ToString::to_string);
        Ok(sets)
    }

    fn scan_cursors(
        &mut self,
        _: &mut Context,
        sink: &mut Sink,
        region: &str,
        from: &str,
        until: Option<&str>,
        keys_only: bool,
    ) -> Result<bool, Stop> {
        for set in self.cursor_sets()? {
            let ending = set.to_string();
            if ending.as_str() < from || !below(&ending, until) {
                continue;
            }
            let Ok(Some((content, version))) = cursor(&self.folders.dir, set) else { continue };
            let key = format!("{region}{ending}");
            if !sink.fits(&key) {
                return Ok(false);
            }
            sink.push(key, if keys_only { Vec::new() } else { content }, version);
        }
        Ok(true)
    }

    fn scan_owners(
        &mut self,
        _: &mut Context,
        sink: &mut Sink,
        region: &str,
        from: &str,
        until: Option<&str>,
        keys_only: bool,
    ) -> Result<bool, Stop> {
        self.derived()?;
        let mut place = self.image.owner_rank(from)?;
        let mut next = from.to_owned();
        loop {
            let mut base = None;
            while place < self.image.owned() {
                let (_, owner) = self.image.owner(place)?;
                if owner < next || self.derived()?.owners.contains_key(&owner) {
                    place += 1;
                    continue;
                }
                base = Some(owner);
                break;
            }
            let changed = self.derived()?.owners.range(next.clone()..).next().map(|(ending, _)| ending.clone());
            let ending = match (base, changed) {
                (None, None) => return Ok(true),
                (Some(ending), None) | (None, Some(ending)) => ending,
                (Some(one), Some(other)) => one.min(other),
            };
            if !below(&ending, until) {
                return Ok(true);
            }
            if let Some(holdings) = self.holdings(&ending)? {
                let key = format!("{region}{ending}");
                if key.len() <= KEY_BYTES_MAX {
                    if !sink.fits(&key) {
                        return Ok(false);
                    }
                    let value = if keys_only { Vec::new() } else { holdings_to_bytes(&holdings.places) };
                    sink.push(key, value, holdings.version);
                }
            }
            next = ending + "\0";
        }
    }

    fn scan_strays(
        &mut self,
        _: &mut Context,
        sink: &mut Sink,
        region: &str,
        from: &str,
        until: Option<&str>,
        keys_only: bool,
    ) -> Result<bool, Stop> {
        for (ending, stray) in self.strays().range(from.to_owned()..) {
            if !below(ending, until) {
                break;
            }
            let key = format!("{region}{ending}");
            if key.len() > KEY_BYTES_MAX {
                continue;
            }
            if !sink.fits(&key) {
                return Ok(false);
            }
            let value = if keys_only { Vec::new() } else { stray.record.to_bytes() };
            sink.push(key, value, stray.version.clone());
        }
        Ok(true)
    }

    pub(super) fn count(
        &mut self,
        context: &mut Context,
        prefix: &str,
        from: Option<&str>,
        until: Option<&str>,
    ) -> Result<u64, Stop> {
        check_prefix(context, prefix)?;
        let low = from.unwrap_or(prefix).max(prefix).to_owned();
        let high = match (after_prefix(prefix), until) {
            (Some(end), Some(until)) => Some(end.min(until.to_owned())),
            (Some(end), None) => Some(end),
            (None, until) => until.map(str::to_owned),
        };
        if high.as_ref().is_some_and(|high| *high <= low) {
            return Ok(0);
        }
        let network = context.keys.prefix().to_owned();
        let part = |region: &str| clip(&format!("{network}{region}"), &low, high.as_deref());
        let mut count: i64 = 0;
        for (family, region) in ADDRESSES {
            if let Some((from, until)) = part(region) {
                count += self.count_addresses(family, &from, until.as_deref())?;
            }
        }
        if let Some((from, until)) = part("boot/") {
            let until = until.as_deref();
            let start = self.image.boot_rank(&from)?;
            let end = until.map_or(Ok(self.image.booted()), |until| self.image.boot_rank(until))?;
            let within = |ending: &String| *ending >= from && below(ending, until);
            let derived = self.derived()?;
            count += i64::from(end) - i64::from(start);
            count -= derived.boots_gone.iter().filter(|ending| within(ending)).count() as i64;
            count += derived.boots.keys().filter(|ending| within(ending)).count() as i64;
        }
        if let Some((from, until)) = part("cursor/") {
            let sets = self.cursor_sets()?.into_iter().map(|set| set.to_string());
            count += sets.filter(|set| *set >= from && below(set, until.as_deref())).count() as i64;
        }
        if let Some((from, until)) = part("owner/") {
            let until = until.as_deref();
            let start = self.image.owners_before(Some(&from))?;
            let end = self.image.owners_before(until)?;
            count += i64::from(end) - i64::from(start);
            let changed: Vec<(String, bool)> = self
                .derived()?
                .owners
                .range(from..)
                .take_while(|(ending, _)| below(ending, until))
                .map(|(ending, known)| (ending.clone(), *known))
                .collect();
            for (ending, known) in changed {
                let holds = self.holdings(&ending)?.is_some();
                count += i64::from(holds) - i64::from(known);
            }
        }
        if let Some((from, until)) = part("stray/") {
            let until = until.as_deref();
            count += self.strays().range(from..).take_while(|(ending, _)| below(ending, until)).count() as i64;
        }
        Ok(u64::try_from(count).unwrap_or(0))
    }

    fn count_addresses(&mut self, family: Family, from: &str, until: Option<&str>) -> Result<i64, Stop> {
        let Some(first) = lower_bound(family, from) else { return Ok(0) };
        let end = until.and_then(|until| lower_bound(family, until));
        let start = self.image.rank(first)?;
        let stop = match (end, family) {
            (Some(end), _) => self.image.rank(end)?,
            (None, Family::V4) => self.image.count_v4(),
            (None, Family::V6) => self.image.len(),
        };
        let changes = self
            .changes
            .range(first..)
            .take_while(|(address, _)| address.family() == family && end.is_none_or(|end| **address < end));
        let changed: i64 = changes.map(|(_, change)| difference(change)).sum();
        Ok(i64::from(stop) - i64::from(start) + changed)
    }
}

fn difference(change: &Change) -> i64 {
    i64::from(change.now.is_some()) - i64::from(change.in_base)
}

/// Whether an index at rest knows an owner.
fn knows(image: &mut Image, ending: &str) -> Result<bool, Stop> {
    let place = image.owner_rank(ending)?;
    Ok(place < image.owned() && image.owner(place)?.1 == ending)
}

pub(super) fn misrouted(context: &Context, key: &str) -> Error {
    Error::Denied(format!("{key}: this store keeps the network {} alone", context.network))
}

fn check_prefix(context: &Context, prefix: &str) -> Result<(), Error> {
    let network = context.keys.prefix();
    if prefix.starts_with(network) || network.starts_with(prefix) {
        return Ok(());
    }
    Err(misrouted(context, prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bounds_are_the_first_address_not_before() {
        let v4 = |digits| lower_bound(Family::V4, digits).map(|address| address.to_string());
        assert_eq!(v4("").as_deref(), Some("0.0.0.0"));
        assert_eq!(v4("0a").as_deref(), Some("10.0.0.0"));
        assert_eq!(v4("0a0000ff").as_deref(), Some("10.0.0.255"));
        assert_eq!(v4("0a0000ff!").as_deref(), Some("10.0.1.0"));
        assert_eq!(v4("0ag").as_deref(), Some("11.0.0.0"));
        assert_eq!(v4("0a:").as_deref(), Some("10.160.0.0"));
        assert_eq!(v4("g"), None);
        assert_eq!(v4("ffg"), None);
        assert_eq!(v4("ffffffff0"), None);
        assert_eq!(lower_bound(Family::V6, "fg").map(|address| address.to_string()), None);
        assert_eq!(lower_bound(Family::V6, "eg").map(|address| address.to_string()).as_deref(), Some("f000::"));
    }

    proptest! {
        #[test]
        fn bounds_agree_with_the_order_of_texts(digits in "[!0-9a-gA:]{0,9}", bits in any::<u32>()) {
            let bound = lower_bound(Family::V4, &digits);
            let around = [bits, bound.map_or(0, |bound| bound.bits() as u32)];
            for bits in around.into_iter().flat_map(|bits| [bits.wrapping_sub(1), bits, bits.wrapping_add(1)]) {
                let address = Address::new(Family::V4, bits.into()).unwrap();
                prop_assert_eq!(address.to_hex() >= digits, bound.is_some_and(|bound| address >= bound));
            }
        }
    }
}
