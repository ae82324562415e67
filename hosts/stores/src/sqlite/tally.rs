//! How many keys lie before a key, in a time that grows with the logarithm of their number.
//!
//! A tree of counts over the table of entries, of three levels. A row of the first level counts the keys from its `first`
//! on to the next row's; a row of the second sums rows of the first, a row of the third those of the second. No row has
//! more than [`PARTS_MAX`] parts: it is split in two. That serves 250 million keys with at most four scans of a few hundred
//! rows each.

use rusqlite::{Connection, OptionalExtension, params};

/// Keys of a row of the first level, and rows below one of the others.
const PARTS_MAX: i64 = 512;
/// How many levels there are.
const LEVELS: i64 = 3;

/// The row of a level in which a key lies: its first key, its keys and its parts.
fn row(connection: &Connection, level: i64, key: &str) -> rusqlite::Result<(String, i64, i64)> {
    let mut statement = connection.prepare_cached(
        "SELECT first, keys, parts FROM tally WHERE level = ?1 AND first <= ?2 ORDER BY first DESC LIMIT 1",
    )?;
    statement.query_row(params![level, key], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
}

fn change(connection: &Connection, level: i64, first: &str, keys: i64, parts: i64) -> rusqlite::Result<()> {
    let mut statement = connection
        .prepare_cached("UPDATE tally SET keys = keys + ?3, parts = parts + ?4 WHERE level = ?1 AND first = ?2")?;
    statement.execute(params![level, first, keys, parts]).map(drop)
}

/// Counts a key in that was added.
pub(super) fn added(connection: &Connection, key: &str) -> rusqlite::Result<()> {
    let mut parts = 1;
    for level in 1..=LEVELS {
        let (first, keys, _) = row(connection, level, key)?;
        change(connection, level, &first, 1, parts)?;
        // Only a row of the first level gets a part for a key; one above gets it when a row below is split.
        parts = 0;
        if level == 1 && keys + 1 > PARTS_MAX {
            split(connection, 1, &first, key)?;
        }
    }
    Ok(())
}

/// Counts a key out that was removed.
pub(super) fn removed(connection: &Connection, key: &str) -> rusqlite::Result<()> {
    for level in 1..=LEVELS {
        let (first, keys, _) = row(connection, level, key)?;
        change(connection, level, &first, -1, if level == 1 { -1 } else { 0 })?;
        // A row without keys goes, unless a row above begins with it.
        if level == 1 && keys == 1 && !first.is_empty() {
            let (above, _, _) = row(connection, 2, &first)?;
            if above != first {
                connection.prepare_cached("DELETE FROM tally WHERE level = 1 AND first = ?1")?.execute([&first])?;
                change(connection, 2, &above, 0, -1)?;
            }
        }
    }
    Ok(())
}

/// Halves a row. `key`: one that lies in it, for finding the rows above.
fn split(connection: &Connection, level: i64, first: &str, key: &str) -> rusqlite::Result<()> {
    let middle: Option<String> = if level == 1 {
        connection
            .prepare_cached("SELECT key FROM entries WHERE key >= ?1 ORDER BY key LIMIT 1 OFFSET ?2")?
            .query_row(params![first, PARTS_MAX / 2], |row| row.get(0))
            .optional()?
    } else {
        connection
            .prepare_cached(
                "SELECT first FROM tally WHERE level = ?1 AND first >= ?2 ORDER BY first LIMIT 1 OFFSET ?3",
            )?
            .query_row(params![level - 1, first, PARTS_MAX / 2], |row| row.get(0))
            .optional()?
    };
    let Some(middle) = middle else { return Ok(()) };
    let (_, keys, parts) = row(connection, level, first)?;
    let (lower_keys, lower_parts) = if level == 1 {
        (PARTS_MAX / 2, PARTS_MAX / 2)
    } else {
        let lower: i64 = connection
            .prepare_cached("SELECT coalesce(sum(keys), 0) FROM tally WHERE level = ?1 AND first >= ?2 AND first < ?3")?
            .query_row(params![level - 1, first, middle], |row| row.get(0))?;
        (lower, PARTS_MAX / 2)
    };
    connection.prepare_cached("INSERT INTO tally VALUES (?1, ?2, ?3, ?4)")?.execute(params![
        level,
        middle,
        keys - lower_keys,
        parts - lower_parts
    ])?;
    change(connection, level, first, lower_keys - keys, lower_parts - parts)?;
    if level < LEVELS {
        let (above, _, above_parts) = row(connection, level + 1, first)?;
        change(connection, level + 1, &above, 0, 1)?;
        if level + 1 < LEVELS && above_parts + 1 > PARTS_MAX {
            split(connection, level + 1, &above, key)?;
        }
    }
    Ok(())
}

/// How many keys are below `key`; all, if there is none.
pub(super) fn rank(connection: &Connection, key: Option<&str>) -> rusqlite::Result<i64> {
    let Some(key) = key else {
        return connection
            .prepare_cached("SELECT coalesce(sum(keys), 0) FROM tally WHERE level = ?1")?
            .query_row([LEVELS], |row| row.get(0));
    };
    let mut below = 0;
    let mut from = String::new();
    for level in (1..=LEVELS).rev() {
        let (first, _, _) = row(connection, level, key)?;
        let before: i64 = connection
            .prepare_cached("SELECT coalesce(sum(keys), 0) FROM tally WHERE level = ?1 AND first >= ?2 AND first < ?3")?
            .query_row(params![level, from, first], |row| row.get(0))?;
        below += before;
        from = first;
    }
    let rest: i64 = connection
        .prepare_cached("SELECT count(*) FROM entries WHERE key >= ?1 AND key < ?2")?
        .query_row(params![from, key], |row| row.get(0))?;
    Ok(below + rest)
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

    fn insert(connection: &Connection, key: &str) {
        connection.execute("INSERT INTO entries VALUES (?1, x'', 1)", [key]).unwrap();
        added(connection, key).unwrap();
    }

    #[test]
    fn ranks_are_those_of_a_sorted_set() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(super::super::MIGRATIONS[0]).unwrap();
        connection.execute_batch("BEGIN").unwrap();
        let mut keys: BTreeSet<String> = BTreeSet::new();
        let mut seed = 7;
        for step in 0..40_000u64 {
            // Grows, shrinks to almost nothing, grows again in another place.
            let shrinks = (15_000..25_000).contains(&step);
            let number = random(&mut seed) % 30_000 + if step > 25_000 { 15_000 } else { 0 };
            let key = format!("{number:08x}");
            if shrinks {
                if let Some(key) = keys.range(key.clone()..).next().cloned().or_else(|| keys.first().cloned()) {
                    connection.execute("DELETE FROM entries WHERE key = ?1", [&key]).unwrap();
                    removed(&connection, &key).unwrap();
                    keys.remove(&key);
                }
            } else if keys.insert(key.clone()) {
                insert(&connection, &key);
            }
            if step % 97 == 0 {
                let at = format!("{:08x}", random(&mut seed) % 46_000);
                let expected = keys.range(..at.clone()).count() as i64;
                assert_eq!(rank(&connection, Some(&at)).unwrap(), expected, "step {step}");
                assert_eq!(rank(&connection, None).unwrap(), keys.len() as i64);
            }
        }
        let widest: i64 = connection.query_row("SELECT max(parts) FROM tally", [], |row| row.get(0)).unwrap();
        assert!(widest <= PARTS_MAX, "{widest}");
        let rows: i64 =
            connection.query_row("SELECT count(*) FROM tally WHERE level = 1", [], |row| row.get(0)).unwrap();
        assert!(rows > 20, "{rows}");
    }
}
