//! The index at rest: a sorted, immutable file that is read page by page and never whole.
//!
//! Pages of 4096 bytes, the last four a checksum over generation, page number and content, so that a damaged or
//! misplaced page is noticed when it is read. Page 0 is the header; then the tables (boots and strays), the records
//! in the order of addresses, the records in the order of their owners, the records in the order of their boots, and
//! the texts. `docs/formats.md` draws it.

use super::held::{Body, Held, family_byte, family_of};
use plat_core::net::{Address, Family};
use plat_core::network::encode;
use rustix::fd::OwnedFd;
use std::io;
use std::sync::Arc;

const PAGE: usize = 4096;
const CONTENT: usize = PAGE - 4;
const MAGIC: &[u8; 8] = b"PLATIDX1";
/// One higher with each change of this format; another number is not read but made anew.
const FORMAT: u32 = 1;
const RECORD: usize = 72;
const RECORDS_A_PAGE: usize = CONTENT / RECORD;
const OWNER: usize = 16;
const OWNERS_A_PAGE: usize = CONTENT / OWNER;
const BOOT: usize = 4;
const BOOTS_A_PAGE: usize = CONTENT / BOOT;
const NO_BOOT: u16 = u16::MAX;
/// Pages kept in memory while a call lasts: half a MiB, enough for the upper steps of all binary searches.
const PAGES_CACHED: usize = 128;

/// Why an image cannot be read.
#[derive(Debug)]
pub(super) struct Damaged(pub(super) String);

fn damaged<T>(why: impl Into<String>) -> Result<T, Damaged> {
    Err(Damaged(why.into()))
}

/// Where the pages are.
enum Source {
    File(OwnedFd),
    Memory(Vec<u8>),
}

/// An index at rest.
pub(super) struct Image {
    source: Source,
    cache: Vec<Option<(u32, Box<[u8; PAGE]>)>>,
    pub(super) generation: u64,
    /// The highest version given when it was written.
    pub(super) version_last: u64,
    counts: [u32; 2],
    owned: u32,
    owners: u32,
    boots: Vec<Arc<str>>,
    /// The files that are strays, by their paths.
    pub(super) strays: Vec<String>,
    records_at: u32,
    owners_at: u32,
    boots_at: u32,
    booted: u32,
    texts_at: u32,
    text_length: u64,
}

/// A record without its texts.
#[derive(Clone, Copy)]
pub(super) struct Raw {
    pub(super) address: Address,
    foreign: bool,
    boot: u16,
    text_length: u32,
    text_at: u64,
    pub(super) version: u64,
    owner_version: u64,
    inode: u64,
    ctime: (i64, u32),
}

impl Image {
    /// An index that holds nothing.
    pub(super) fn empty() -> Self {
        let mut draft = Draft::default();
        let mut bytes = Vec::new();
        // Writing to memory does not fail.
        let _ = draft.write(&mut bytes, 0, 0);
        Self::from_memory(bytes).unwrap_or_else(|_| unreachable!("an image just written is whole"))
    }

    pub(super) fn from_file(file: OwnedFd) -> Result<Self, Damaged> {
        Self::open(Source::File(file))
    }

    pub(super) fn from_memory(bytes: Vec<u8>) -> Result<Self, Damaged> {
        Self::open(Source::Memory(bytes))
    }

    fn open(source: Source) -> Result<Self, Damaged> {
        let mut image = Self {
            source,
            cache: vec![const { None }; PAGES_CACHED],
            generation: 0,
            version_last: 0,
            counts: [0; 2],
            owned: 0,
            owners: 0,
            boots: Vec::new(),
            strays: Vec::new(),
            records_at: 0,
            owners_at: 0,
            boots_at: 0,
            booted: 0,
            texts_at: 0,
            text_length: 0,
        };
        image.read_header()?;
        Ok(image)
    }

    fn read_header(&mut self) -> Result<(), Damaged> {
        let mut first = [0; 2 * PAGE];
        let got = match &self.source {
            Source::File(file) => {
                rustix::io::pread(file, &mut first, 0).map_err(|errno| Damaged(super::reason(errno)))?
            }
            Source::Memory(bytes) => {
                let got = bytes.len().min(2 * PAGE);
                first[..got].copy_from_slice(&bytes[..got]);
                got
            }
        };
        if got < PAGE {
            return damaged("the header is cut off");
        }
        let header = &first[..PAGE];
        if &header[..8] != MAGIC {
            return damaged("it is no index");
        }
        let mut parts = super::held::Decoder { bytes: &header[8..] };
        let format = parts.u32().unwrap_or(0);
        if format != FORMAT {
            return damaged(format!("its format is {format}, not {FORMAT}"));
        }
        let fields = (|| {
            Some((
                parts.u64()?,
                parts.u64()?,
                [parts.u32()?, parts.u32()?],
                [parts.u32()?, parts.u32()?, parts.u32()?],
                parts.u64()?,
                parts.u64()?,
            ))
        })();
        let Some((generation, version_last, counts, [owned, owners, booted], tables_length, text_length)) = fields
        else {
            return damaged("the header is cut off");
        };
        if !whole(header, generation, 0) {
            return damaged("the header's checksum is wrong");
        }
        self.generation = generation;
        self.version_last = version_last;
        self.counts = counts;
        self.owned = owned;
        self.owners = owners;
        self.booted = booted;
        self.text_length = text_length;
        let records = counts[0] as usize + counts[1] as usize;
        let tables = (tables_length as usize).div_ceil(CONTENT);
        self.records_at = (1 + tables) as u32;
        self.owners_at = self.records_at + records.div_ceil(RECORDS_A_PAGE) as u32;
        self.boots_at = self.owners_at + (owned as usize).div_ceil(OWNERS_A_PAGE) as u32;
        self.texts_at = self.boots_at + (booted as usize).div_ceil(BOOTS_A_PAGE) as u32;
        // The second page usually came along.
        if got == 2 * PAGE && whole(&first[PAGE..], generation, 1) {
            let mut page = Box::new([0; PAGE]);
            page.copy_from_slice(&first[PAGE..]);
            self.cache[1] = Some((1, page));
        }
        let tables = self.stream(1, 0, tables_length as usize)?;
        let mut parts = super::held::Decoder { bytes: &tables };
        let read = (|| {
            let boots = parts.u32()?;
            for _ in 0..boots {
                self.boots.push(parts.text()?.into());
            }
            let strays = parts.u32()?;
            for _ in 0..strays {
                self.strays.push(parts.text().filter(|path| super::files::is_inside(path))?);
            }
            parts.bytes.is_empty().then_some(())
        })();
        if read.is_none() {
            return damaged("the tables do not parse");
        }
        Ok(())
    }

    fn page(&mut self, number: u32) -> Result<&[u8], Damaged> {
        let start = number as usize * PAGE;
        match &self.source {
            Source::Memory(bytes) => match bytes.get(start..start + PAGE) {
                Some(page) => Ok(page),
                None => damaged("a page is missing"),
            },
            Source::File(file) => {
                let slot = &mut self.cache[number as usize % PAGES_CACHED];
                if slot.as_ref().is_none_or(|(cached, _)| *cached != number) {
                    let mut page = slot.take().map_or_else(|| Box::new([0; PAGE]), |(_, page)| page);
                    let got = rustix::io::pread(file, &mut page[..], start as u64)
                        .map_err(|errno| Damaged(super::reason(errno)))?;
                    if got < PAGE {
                        return damaged(format!("page {number} is cut off"));
                    }
                    if !whole(&page[..], self.generation, number) {
                        return damaged(format!("the checksum of page {number} is wrong"));
                    }
                    *slot = Some((number, page));
                }
                match slot {
                    Some((_, page)) => Ok(&page[..]),
                    None => damaged("a page is missing"),
                }
            }
        }
    }

    /// Bytes of a section that is one stream.
    fn stream(&mut self, first_page: u32, at: u64, length: usize) -> Result<Vec<u8>, Damaged> {
        let mut bytes = Vec::with_capacity(length.min(1 << 20));
        let mut at = at as usize;
        while bytes.len() < length {
            let page = self.page(first_page + (at / CONTENT) as u32)?;
            let part = &page[at % CONTENT..CONTENT];
            let part = &part[..part.len().min(length - bytes.len())];
            bytes.extend_from_slice(part);
            at += part.len();
        }
        Ok(bytes)
    }

    /// How many records there are.
    pub(super) fn len(&self) -> u32 {
        self.counts[0].saturating_add(self.counts[1])
    }

    /// The record at this place in the order of addresses.
    pub(super) fn raw(&mut self, place: u32) -> Result<Raw, Damaged> {
        let page = self.page(self.records_at + place / RECORDS_A_PAGE as u32)?;
        let start = place as usize % RECORDS_A_PAGE * RECORD;
        let bytes = &page[start..start + RECORD];
        let mut parts = super::held::Decoder { bytes };
        let raw = (|| {
            let family = family_of(parts.u8()?)?;
            let foreign = parts.u8()? == 1;
            let boot = u16::from_le_bytes(parts.take(2)?.try_into().ok()?);
            let text_length = parts.u32()?;
            let text_at = parts.u64()?;
            let bits = u128::from_be_bytes(parts.take(16)?.try_into().ok()?);
            Some(Raw {
                address: Address::new(family, bits)?,
                foreign,
                boot,
                text_length,
                text_at,
                version: parts.u64()?,
                owner_version: parts.u64()?,
                inode: parts.u64()?,
                ctime: parts.time()?,
            })
        })();
        raw.map_or_else(|| damaged("a record does not parse"), Ok)
    }

    fn text(&mut self, raw: &Raw) -> Result<String, Damaged> {
        if raw.text_at.saturating_add(u64::from(raw.text_length)) > self.text_length {
            return damaged("a text lies outside");
        }
        let bytes = self.stream(self.texts_at, raw.text_at, raw.text_length as usize)?;
        String::from_utf8(bytes).map_or_else(|_| damaged("a text is not UTF-8"), Ok)
    }

    /// A record with its texts.
    pub(super) fn held(&mut self, raw: &Raw) -> Result<Held, Damaged> {
        let text = self.text(raw)?;
        Ok(Held {
            body: if raw.foreign { Body::Foreign(text) } else { Body::Owner(text) },
            boot: self.boot(raw)?,
            version: raw.version,
            owner_version: raw.owner_version,
            inode: raw.inode,
            ctime: raw.ctime,
        })
    }

    /// The boot of a record.
    pub(super) fn boot(&self, raw: &Raw) -> Result<Option<Arc<str>>, Damaged> {
        if raw.boot == NO_BOOT {
            return Ok(None);
        }
        match self.boots.get(usize::from(raw.boot)) {
            Some(boot) => Ok(Some(boot.clone())),
            None => damaged("a record names no known boot"),
        }
    }

    fn partition(
        &mut self,
        length: u32,
        mut below: impl FnMut(&mut Self, u32) -> Result<bool, Damaged>,
    ) -> Result<u32, Damaged> {
        let (mut low, mut high) = (0, length);
        while low < high {
            let middle = low + (high - low) / 2;
            if below(self, middle)? {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// How many records lie before this address.
    pub(super) fn rank(&mut self, address: Address) -> Result<u32, Damaged> {
        self.partition(self.len(), |image, place| Ok(image.raw(place)?.address < address))
    }

    /// How many records are of IPv4.
    pub(super) fn count_v4(&self) -> u32 {
        self.counts[0]
    }

    /// The record of an address.
    pub(super) fn find(&mut self, address: Address) -> Result<Option<Raw>, Damaged> {
        let place = self.rank(address)?;
        if place == self.len() {
            return Ok(None);
        }
        let raw = self.raw(place)?;
        Ok((raw.address == address).then_some(raw))
    }

    /// How many records have owners.
    pub(super) fn owned(&self) -> u32 {
        self.owned
    }

    /// In the order of owners: start of the owner's text, the record's place, how many other owners are before.
    fn owner_at(&mut self, place: u32) -> Result<([u8; 8], u32, u32), Damaged> {
        let page = self.page(self.owners_at + place / OWNERS_A_PAGE as u32)?;
        let start = place as usize % OWNERS_A_PAGE * OWNER;
        let mut parts = super::held::Decoder { bytes: &page[start..start + OWNER] };
        let read = (|| Some((parts.take(8)?.try_into().ok()?, parts.u32()?, parts.u32()?)))();
        read.map_or_else(|| damaged("an owner does not parse"), Ok)
    }

    /// The record at this place in the order of owners, and its owner.
    pub(super) fn owner(&mut self, place: u32) -> Result<(Raw, String), Damaged> {
        let (_, record, _) = self.owner_at(place)?;
        let raw = self.raw(record)?;
        let text = self.text(&raw)?;
        Ok((raw, text))
    }

    /// The first place in the order of owners whose owner is not before `ending`.
    pub(super) fn owner_rank(&mut self, ending: &str) -> Result<u32, Damaged> {
        let wanted = start_of(ending.as_bytes());
        self.partition(self.owned, |image, place| {
            let (start, record, _) = image.owner_at(place)?;
            if start != wanted {
                return Ok(start < wanted);
            }
            let raw = image.raw(record)?;
            Ok(image.text(&raw)?.as_str() < ending)
        })
    }

    /// How many different owners are before `ending`; none: how many there are.
    pub(super) fn owners_before(&mut self, ending: Option<&str>) -> Result<u32, Damaged> {
        let place = match ending {
            Some(ending) => self.owner_rank(ending)?,
            None => self.owned,
        };
        if place == self.owned { Ok(self.owners) } else { Ok(self.owner_at(place)?.2) }
    }

    /// How many records have a boot.
    pub(super) fn booted(&self) -> u32 {
        self.booted
    }

    /// The record at this place in the order of boots.
    pub(super) fn booted_at(&mut self, place: u32) -> Result<Raw, Damaged> {
        let page = self.page(self.boots_at + place / BOOTS_A_PAGE as u32)?;
        let start = place as usize % BOOTS_A_PAGE * BOOT;
        let mut parts = super::held::Decoder { bytes: &page[start..start + BOOT] };
        match parts.u32() {
            Some(record) => self.raw(record),
            None => damaged("a boot does not parse"),
        }
    }

    /// The key ending of the record at this place in the order of boots, after `boot/`.
    pub(super) fn boot_ending(&mut self, place: u32) -> Result<String, Damaged> {
        let raw = self.booted_at(place)?;
        let boot = self.boot(&raw)?.unwrap_or_else(|| "".into());
        Ok(boot_ending(&boot, raw.address))
    }

    /// The first place in the order of boots whose key ending is not before `ending`.
    pub(super) fn boot_rank(&mut self, ending: &str) -> Result<u32, Damaged> {
        self.partition(self.booted, |image, place| Ok(image.boot_ending(place)?.as_str() < ending))
    }
}

/// The ending of a boot key after `boot/`.
pub(super) fn boot_ending(boot: &str, address: Address) -> String {
    let family = match address.family() {
        Family::V4 => "v4",
        Family::V6 => "v6",
    };
    format!("{}/{family}/{}", encode(boot), address.to_hex())
}

/// The first eight bytes, filled up with zeros: their order is the order of the texts as far as they go.
fn start_of(text: &[u8]) -> [u8; 8] {
    let mut start = [0; 8];
    let length = text.len().min(8);
    start[..length].copy_from_slice(&text[..length]);
    start
}

fn checksum(page: &[u8], generation: u64, number: u32) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&generation.to_le_bytes());
    hasher.update(&number.to_le_bytes());
    hasher.update(&page[..CONTENT]);
    hasher.finalize()
}

fn whole(page: &[u8], generation: u64, number: u32) -> bool {
    page[CONTENT..] == checksum(page, generation, number).to_le_bytes()
}

/// A record of an index that is being made: 64 bytes, since all of them are in memory at once.
struct Drafted {
    /// The family, then the bits, in two halves: an [`Address`] would be aligned to 16 bytes.
    family: Family,
    high: u64,
    low: u64,
    version: u64,
    owner_version: u64,
    inode: u64,
    ctime_seconds: i64,
    ctime_nanoseconds: u32,
    text_at: u32,
    text_length: u32,
    boot: u16,
    foreign: bool,
}

impl Drafted {
    fn bits(&self) -> u128 {
        u128::from(self.high) << 64 | u128::from(self.low)
    }
}

/// An index that is being made. Compact, since it is the one time that all records are in memory.
#[derive(Default)]
pub(super) struct Draft {
    records: Vec<Drafted>,
    texts: Vec<u8>,
    boots: Vec<Arc<str>>,
    /// The paths of the strays.
    pub(super) strays: Vec<String>,
}

impl Draft {
    pub(super) fn add(&mut self, address: Address, held: &Held) {
        let boot = match &held.boot {
            None => NO_BOOT,
            Some(boot) => match self.boots.iter().rposition(|known| known == boot) {
                Some(place) => place as u16,
                // More boots than that at once are not told apart from none: such records are never reclaimed.
                None if self.boots.len() >= usize::from(NO_BOOT) => NO_BOOT,
                None => {
                    self.boots.push(boot.clone());
                    (self.boots.len() - 1) as u16
                }
            },
        };
        let (foreign, text) = match &held.body {
            Body::Owner(ending) => (false, ending),
            Body::Foreign(why) => (true, why),
        };
        let text_at = self.texts.len() as u32;
        self.texts.extend_from_slice(text.as_bytes());
        self.records.push(Drafted {
            family: address.family(),
            high: (address.bits() >> 64) as u64,
            low: address.bits() as u64,
            version: held.version,
            owner_version: held.owner_version,
            inode: held.inode,
            ctime_seconds: held.ctime.0,
            ctime_nanoseconds: held.ctime.1,
            text_at,
            text_length: text.len() as u32,
            boot,
            foreign,
        });
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// Makes room for so many records, so that growing does not take twice the memory.
    pub(super) fn reserve(&mut self, records: usize) {
        /// A container id of 64 digits, a slash and an interface name.
        const TEXT_BYTES: usize = 72;
        self.records.reserve_exact(records);
        self.texts.reserve_exact(records * TEXT_BYTES);
    }

    fn text(&self, record: u32) -> &[u8] {
        let record = &self.records[record as usize];
        &self.texts[record.text_at as usize..][..record.text_length as usize]
    }

    /// Writes the index.
    pub(super) fn write(&mut self, out: &mut impl io::Write, generation: u64, version_last: u64) -> io::Result<()> {
        self.records.sort_unstable_by_key(|record| (record.family, record.high, record.low));

        let mut boot_order: Vec<u16> = (0..self.boots.len() as u16).collect();
        boot_order.sort_by_key(|boot| encode(&self.boots[usize::from(*boot)]) + "/");
        let mut boot_rank = vec![0; self.boots.len()];
        for (rank, boot) in boot_order.iter().enumerate() {
            boot_rank[usize::from(*boot)] = rank as u16;
        }
        let rank_of = |boot: u16| boot_rank.get(usize::from(boot)).copied().unwrap_or(NO_BOOT);

        let places = 0..self.records.len() as u32;
        let mut by_owner: Vec<u32> = places.clone().filter(|place| !self.records[*place as usize].foreign).collect();
        by_owner.sort_unstable_by(|a, b| self.text(*a).cmp(self.text(*b)).then(a.cmp(b)));
        let mut by_boot: Vec<u32> = places.filter(|place| self.records[*place as usize].boot != NO_BOOT).collect();
        by_boot.sort_by_key(|place| rank_of(self.records[*place as usize].boot));
        let owners = by_owner.chunk_by(|a, b| self.text(*a) == self.text(*b)).count();

        let mut tables = super::held::Encoder::default();
        tables.u32(self.boots.len() as u32);
        for boot in &boot_order {
            tables.text(self.boots[usize::from(*boot)].as_bytes());
        }
        tables.u32(self.strays.len() as u32);
        for stray in &self.strays {
            tables.text(stray.as_bytes());
        }

        let mut pages = PageWriter { out, page: [0; PAGE], used: 0, number: 0, generation };
        let v4 = self.records.partition_point(|record| record.family == Family::V4);
        let mut header = super::held::Encoder::default();
        header.bytes.extend(MAGIC);
        header.u32(FORMAT);
        header.u64(generation);
        header.u64(version_last);
        header.u32(v4 as u32);
        header.u32((self.records.len() - v4) as u32);
        header.u32(by_owner.len() as u32);
        header.u32(owners as u32);
        header.u32(by_boot.len() as u32);
        header.u64(tables.bytes.len() as u64);
        header.u64(self.texts.len() as u64);
        pages.fixed(&header.bytes)?;
        pages.end()?;
        pages.stream(&tables.bytes)?;
        pages.end()?;
        let mut part = super::held::Encoder::default();
        for record in &self.records {
            part.bytes.clear();
            part.u8(family_byte(record.family));
            part.u8(u8::from(record.foreign));
            part.bytes.extend(rank_of(record.boot).to_le_bytes());
            part.u32(record.text_length);
            part.u64(u64::from(record.text_at));
            part.bytes.extend(record.bits().to_be_bytes());
            part.u64(record.version);
            part.u64(record.owner_version);
            part.u64(record.inode);
            part.time((record.ctime_seconds, record.ctime_nanoseconds));
            part.bytes.resize(RECORD, 0);
            pages.fixed(&part.bytes)?;
        }
        pages.end()?;
        let mut owner = 0;
        for (place, record) in by_owner.iter().enumerate() {
            if place > 0 && self.text(by_owner[place - 1]) != self.text(*record) {
                owner += 1;
            }
            part.bytes.clear();
            part.bytes.extend(start_of(self.text(*record)));
            part.u32(*record);
            part.u32(owner);
            pages.fixed(&part.bytes)?;
        }
        pages.end()?;
        for record in &by_boot {
            pages.fixed(&record.to_le_bytes())?;
        }
        pages.end()?;
        pages.stream(&self.texts)?;
        pages.end()?;
        pages.out.flush()
    }
}

struct PageWriter<'a, W> {
    out: &'a mut W,
    page: [u8; PAGE],
    used: usize,
    number: u32,
    generation: u64,
}

impl<W: io::Write> PageWriter<'_, W> {
    fn flush(&mut self) -> io::Result<()> {
        self.page[self.used..].fill(0);
        let sum = checksum(&self.page, self.generation, self.number);
        self.page[CONTENT..].copy_from_slice(&sum.to_le_bytes());
        self.out.write_all(&self.page)?;
        self.number += 1;
        self.used = 0;
        Ok(())
    }

    /// Writes something that does not cross pages.
    fn fixed(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.used + bytes.len() > CONTENT {
            self.flush()?;
        }
        self.page[self.used..self.used + bytes.len()].copy_from_slice(bytes);
        self.used += bytes.len();
        Ok(())
    }

    fn stream(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.used == CONTENT {
                self.flush()?;
            }
            let (now, later) = bytes.split_at(bytes.len().min(CONTENT - self.used));
            self.page[self.used..self.used + now.len()].copy_from_slice(now);
            self.used += now.len();
            bytes = later;
        }
        Ok(())
    }

    /// Ends a section: the next one starts on a page of its own.
    fn end(&mut self) -> io::Result<()> {
        if self.used > 0 { self.flush() } else { Ok(()) }
    }
}
