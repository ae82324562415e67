//! How many keys lie before a key, in a time that grows with the logarithm of their number.
//!
//! A tree of counts over the table of entries, of [`LEVELS`] levels. A row of the first level counts the keys from its
//! `first` on to the next row's; a row of a level above sums the rows of the level below that begin from its `first` on
//! to the next row's. A row's parts are those keys or rows; one with more than [`PARTS_MAX`] is split in two. So a rank
//! is one sum over at most [`PARTS_MAX`] rows on each level and one over as many keys, however the keys are spread. A row
//! without keys goes, so a key space that moves on leaves nothing behind.
//!
//! The rows that a key lies in begin at or before it, on each level; the first row of each level begins at the empty
//! text and never goes.

use rusqlite::{Connection, OptionalExtension, params};

/// Keys of a row of the first level, and rows of the level below in one of the others. At least 4, so that no half of a
/// split has only an empty first part.
const PARTS_MAX: i64 = 64;
/// How many levels there are. Rows are half full at least when they are made, so a row of the last level stands for a
/// million keys or more; their number alone has no limit.
const LEVELS: i64 = 4;

/// The tree of a database.
pub(super) struct Tally<'c> {
    connection: &'c Connection,
    parts_max: i64,
}

/// One row.
struct Row {
    first: String,
    keys: i64,
    parts: i64,
}

impl<'c> Tally<'c> {
    /// That of the database behind `connection`.
    pub(super) fn new(connection: &'c Connection) -> Self {
        Self { connection, parts_max: PARTS_MAX }
    }

    /// The row of a level in which a key lies.
    fn row(&self, level: i64, key: &str) -> rusqlite::Result<Row> {
        let mut statement = self.connection.prepare_cached(
            "SELECT first, keys, parts FROM tally WHERE level = ?1 AND first <= ?2 ORDER BY first DESC LIMIT 1",
        )?;
        statement
            .query_row(params![level, key], |row| Ok(Row { first: row.get(0)?, keys: row.get(1)?, parts: row.get(2)? }))
    }

    /// Adds to the counts of a row.
    fn change(&self, level: i64, first: &str, keys: i64, parts: i64) -> rusqlite::Result<()> {
        let mut statement = self
            .connection
            .prepare_cached("UPDATE tally SET keys = keys + ?3, parts = parts + ?4 WHERE level = ?1 AND first = ?2")?;
        statement.execute(params![level, first, keys, parts]).map(drop)
    }

    /// How many keys the rows of a level hold that begin in [`from`, `until`).
    fn sum(&self, level: i64, from: &str, until: &str) -> rusqlite::Result<i64> {
        let mut statement = self.connection.prepare_cached(
            "SELECT coalesce(sum(keys), 0) FROM tally WHERE level = ?1 AND first >= ?2 AND first < ?3",
        )?;
        statement.query_row(params![level, from, until], |row| row.get(0))
    }

    /// Counts a key in that was added to the entries.
    pub(super) fn added(&self, key: &str) -> rusqlite::Result<()> {
        let mut full = None;
        for level in 1..=LEVELS {
            let row = self.row(level, key)?;
            self.change(level, &row.first, 1, i64::from(level == 1))?;
            if level == 1 && row.parts + 1 > self.parts_max {
                full = Some(row.first);
            }
        }
        // Only now, when all levels agree.
        let mut level = 1;
        while let Some(first) = full {
            self.split(level, &first)?;
            full = None;
            if level < LEVELS {
                level += 1;
                let above = self.row(level, &first)?;
                self.change(level, &above.first, 0, 1)?;
                if level < LEVELS && above.parts + 1 > self.parts_max {
                    full = Some(above.first);
                }
            }
        }
        Ok(())
    }

    /// Halves a row by its parts. The row above is told by the caller.
    fn split(&self, level: i64, first: &str) -> rusqlite::Result<()> {
        let half = self.parts_max / 2;
        let (keys, parts): (i64, i64) = self
            .connection
            .prepare_cached("SELECT keys, parts FROM tally WHERE level = ?1 AND first = ?2")?
            .query_row(params![level, first], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let middle: String = if level == 1 {
            self.connection
                .prepare_cached("SELECT key FROM entries WHERE key >= ?1 ORDER BY key LIMIT 1 OFFSET ?2")?
                .query_row(params![first, half], |row| row.get(0))?
        } else {
            self.connection
                .prepare_cached(
                    "SELECT first FROM tally WHERE level = ?1 AND first >= ?2 ORDER BY first LIMIT 1 OFFSET ?3",
                )?
                .query_row(params![level - 1, first, half], |row| row.get(0))?
        };
        let lower = if level == 1 { half } else { self.sum(level - 1, first, &middle)? };
        self.connection.prepare_cached("INSERT INTO tally VALUES (?1, ?2, ?3, ?4)")?.execute(params![
            level,
            middle,
            keys - lower,
            parts - half
        ])?;
        self.change(level, first, lower - keys, half - parts)
    }

    /// Counts a key out that was removed from the entries.
    pub(super) fn removed(&self, key: &str) -> rusqlite::Result<()> {
        let mut above: Option<Row> = None;
        for level in (1..=LEVELS).rev() {
            let row = self.row(level, key)?;
            self.change(level, &row.first, -1, -i64::from(level == 1))?;
            let begins = above.as_ref().map_or("", |above| above.first.as_str());
            // The highest row without keys goes with all below it, unless the row above, or the level, begins with it.
            if row.keys == 1 && row.first != begins {
                self.remove(level, &row.first)?;
                if let Some(above) = &above {
                    self.change(level + 1, &above.first, 0, -1)?;
                }
                break;
            }
            above = Some(row);
        }
        Ok(())
    }

    /// Removes a row and those below it.
    fn remove(&self, level: i64, first: &str) -> rusqlite::Result<()> {
        let next: Option<String> = self
            .connection
            .prepare_cached("SELECT first FROM tally WHERE level = ?1 AND first > ?2 ORDER BY first LIMIT 1")?
            .query_row(params![level, first], |row| row.get(0))
            .optional()?;
        let mut delete = self
            .connection
            .prepare_cached("DELETE FROM tally WHERE level = ?1 AND first >= ?2 AND (?3 IS NULL OR first < ?3)")?;
        for level in 1..=level {
            delete.execute(params![level, first, next])?;
        }
        Ok(())
    }

    /// How many keys are below `key`; all, if there is none.
    pub(super) fn rank(&self, key: Option<&str>) -> rusqlite::Result<i64> {
        let Some(key) = key else {
            return self
                .connection
                .prepare_cached("SELECT coalesce(sum(keys), 0) FROM tally WHERE level = ?1")?
                .query_row([LEVELS], |row| row.get(0));
        };
        let mut below = 0;
        let mut from = String::new();
        for level in (1..=LEVELS).rev() {
            let row = self.row(level, key)?;
            below += self.sum(level, &from, &row.first)?;
            from = row.first;
        }
        let rest: i64 = self
            .connection
            .prepare_cached("SELECT count(*) FROM entries WHERE key >= ?1 AND key < ?2")?
            .query_row(params![from, key], |row| row.get(0))?;
        Ok(below + rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// A sequence of pseudo-random numbers.
    fn random(seed: &mut u64) -> u64 {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *seed >> 33
    }

    struct Checked {
        connection: Connection,
        parts_max: i64,
        keys: BTreeSet<String>,
    }

    impl Checked {
        fn new(parts_max: i64) -> Self {
            let connection = Connection::open_in_memory().unwrap();
            connection.execute_batch(super::super::MIGRATIONS[0]).unwrap();
            connection.execute_batch("BEGIN").unwrap();
            Self { connection, parts_max, keys: BTreeSet::new() }
        }

        fn tally(&self) -> Tally<'_> {
            Tally { connection: &self.connection, parts_max: self.parts_max }
        }

        fn insert(&mut self, key: String) {
            if self.keys.insert(key.clone()) {
                self.connection
                    .prepare_cached("INSERT INTO entries (key, version, value) VALUES (?1, 1, x'')")
                    .unwrap()
                    .execute([&key])
                    .unwrap();
                self.tally().added(&key).unwrap();
            }
        }

        fn remove(&mut self, key: &str) {
            if self.keys.remove(key) {
                self.connection.prepare_cached("DELETE FROM entries WHERE key = ?1").unwrap().execute([key]).unwrap();
                self.tally().removed(key).unwrap();
            }
        }

        fn check_rank(&self, at: &str) {
            let expected = self.keys.range(..at.to_owned()).count() as i64;
            assert_eq!(self.tally().rank(Some(at)).unwrap(), expected, "{at}");
            assert_eq!(self.tally().rank(None).unwrap(), self.keys.len() as i64);
        }

        /// Every row is what it must be: sums agree, no row is too wide, only first rows are empty.
        fn check_rows(&self) {
            let rows = |level: i64| -> Vec<Row> {
                let mut statement = self
                    .connection
                    .prepare("SELECT first, keys, parts FROM tally WHERE level = ?1 ORDER BY first")
                    .unwrap();
                let rows = statement
                    .query_map([level], |row| Ok(Row { first: row.get(0)?, keys: row.get(1)?, parts: row.get(2)? }))
                    .unwrap();
                rows.collect::<Result<_, _>>().unwrap()
            };
            let mut below: Vec<Row> =
                self.keys.iter().map(|key| Row { first: key.clone(), keys: 1, parts: 0 }).collect();
            for level in 1..=LEVELS {
                let here = rows(level);
                assert_eq!(here[0].first, "", "level {level} begins at the beginning");
                let mut rest = below.as_slice();
                for (place, row) in here.iter().enumerate() {
                    let next = here.get(place + 1).map(|next| next.first.as_str());
                    let inside = rest.iter().take_while(|part| next.is_none_or(|next| part.first.as_str() < next));
                    let (inside, after) = rest.split_at(inside.count());
                    rest = after;
                    let keys: i64 = inside.iter().map(|part| part.keys).sum();
                    assert_eq!((row.keys, row.parts), (keys, inside.len() as i64), "level {level}, {}", row.first);
                    assert!(level == LEVELS || row.parts <= self.parts_max, "level {level}, {}", row.first);
                    if level > 1 {
                        assert_eq!(inside[0].first, row.first, "a row begins where its first part does");
                        let empty = inside.iter().skip(1).filter(|part| part.keys == 0).count();
                        assert_eq!(empty, 0, "level {level}, {}: an empty part that could be gone", row.first);
                    }
                }
                below = here;
            }
            assert!(below.iter().skip(1).all(|row| row.keys > 0));
        }

        fn rows(&self) -> i64 {
            self.connection.query_row("SELECT count(*) FROM tally", [], |row| row.get(0)).unwrap()
        }
    }

    #[test]
    fn rows_and_ranks_are_right_after_any_change() {
        for (parts_max, keys) in [(4, 300), (5, 900), (8, 5_000)] {
            let mut checked = Checked::new(parts_max);
            let mut seed = 7 + parts_max.cast_unsigned();
            let mut highest = 0;
            for step in 0..6_000u64 {
                // Grows, shrinks to almost nothing, grows again in another place.
                let shrinks = (2_500..4_500).contains(&step);
                let number = random(&mut seed) % keys + if step > 4_500 { keys / 2 } else { 0 };
                let key = format!("{number:08x}");
                if shrinks || random(&mut seed).is_multiple_of(4) {
                    let near = checked.keys.range(key..).next().cloned();
                    if let Some(key) = near.or_else(|| checked.keys.first().cloned()) {
                        checked.remove(&key);
                    }
                } else {
                    checked.insert(key);
                }
                if step % 13 == 0 {
                    checked.check_rank(&format!("{:08x}", random(&mut seed) % (keys * 2)));
                }
                if step % 61 == 0 {
                    checked.check_rows();
                    highest = highest.max(checked.rows());
                }
            }
            assert!(highest > 20, "{highest} rows with {parts_max} parts");
            while let Some(key) = checked.keys.last().cloned() {
                checked.remove(&key);
            }
            checked.check_rows();
            assert_eq!(checked.rows(), LEVELS, "nothing is left behind");
        }
    }

    #[test]
    fn a_key_space_that_moves_on_leaves_nothing_behind() {
        let mut checked = Checked::new(4);
        for number in 0..5_000u64 {
            checked.insert(format!("{number:08}"));
            if let Some(old) = number.checked_sub(50) {
                checked.remove(&format!("{old:08}"));
            }
        }
        checked.check_rows();
        assert!(checked.rows() < 60, "{} rows for 50 keys", checked.rows());
    }

    #[test]
    fn rows_of_the_real_width_are_split_too() {
        let mut checked = Checked::new(PARTS_MAX);
        for number in 0..40_000u64 {
            checked.insert(format!("block/v4/26/{number:08x}"));
        }
        checked.check_rows();
        for at in ["block/v4/26/", "block/v4/26/00012345", "block/v4/26/00009c00", "c"] {
            checked.check_rank(at);
        }
        let of = |level: i64| -> i64 {
            checked
                .connection
                .query_row("SELECT count(*) FROM tally WHERE level = ?1", [level], |row| row.get(0))
                .unwrap()
        };
        assert!(of(1) > 1_000 && of(2) > 30 && of(3) == 1 && of(4) == 1, "{} {} {} {}", of(1), of(2), of(3), of(4));
    }
}
