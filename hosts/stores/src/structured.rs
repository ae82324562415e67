//! What every adapter knows of the keys `network/...` (`docs/formats.md`): who may write which, and what follows
//! from a record.

use plat_core::network::{Keys, Place, Record, decode, is_container_id, is_ifname};
use plat_core::store::{Action, Error, KEY_BYTES_MAX, Write};

/// The longest value of a cursor: more than the text of any address.
pub(crate) const CURSOR_BYTES_MAX: usize = 64;

/// The network and the place that a key names; none for other keys and for endings of no known form.
pub(crate) fn split(key: &str) -> Option<(Keys, Place)> {
    let (name, ending) = key.strip_prefix("network/")?.split_once('/')?;
    Some((Keys::new(&decode(name)?), Place::parse(ending)?))
}

/// The value that a write puts, in the form in which it is kept. None: the write puts nothing.
///
/// # Errors
/// [`Error::Denied`] if such a key is not written this way.
pub(crate) fn check_write(place: &Place, write: &Write) -> Result<Option<Put>, Error> {
    let denied = |why: &str| Err(Error::Denied(format!("{}: {why}", write.key)));
    match (&write.action, place) {
        (Action::Check, _) => Ok(None),
        (_, Place::Owner { .. } | Place::Boot { .. }) => denied("derived from the address records and not written"),
        (Action::Delete, _) => Ok(None),
        (Action::Put(_), Place::Stray(_)) => denied("strays are only deleted"),
        (Action::Put(value), Place::Cursor(_)) => {
            if value.len() > CURSOR_BYTES_MAX {
                return denied("a cursor is the text of one address");
            }
            Ok(Some(Put::Cursor(value.clone())))
        }
        (Action::Put(value), Place::Address(_)) => match Record::parse(value) {
            None => denied("the value is no address record"),
            Some(Record { container: Some(container), ifname, boot, foreign: None })
                if is_container_id(&container) && ifname.as_deref().is_none_or(is_ifname) =>
            {
                Ok(Some(Put::Record(Record { container: Some(container), ifname, boot, foreign: None })))
            }
            Some(_) => denied("the record names no owner that a file can name"),
        },
    }
}

/// A value that is put at a structured key.
#[derive(Clone, Debug)]
pub(crate) enum Put {
    /// At an address.
    Record(Record),
    /// At a cursor.
    Cursor(Vec<u8>),
}

/// Refuses a batch that breaks the contract: too many writes, a key twice, a key too long.
pub(crate) fn check_batch(batch: &[Write], writes_max: u32) -> Result<(), Error> {
    if batch.len() as u64 > u64::from(writes_max) {
        return Err(Error::TooLarge);
    }
    let mut keys: Vec<&str> = batch.iter().map(|write| write.key.as_str()).collect();
    keys.sort_unstable();
    if let Some(twice) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Error::Denied(format!("{}: named twice in one commit", twice[0])));
    }
    keys.into_iter().try_for_each(check_key)
}

/// Refuses a key longer than the contract allows.
pub(crate) fn check_key(key: &str) -> Result<(), Error> {
    if key.len() > KEY_BYTES_MAX {
        let start: String = key.chars().take(40).collect();
        return Err(Error::Denied(format!(
            "the key {start}... has {} bytes, more than the {KEY_BYTES_MAX} that a key may have",
            key.len()
        )));
    }
    Ok(())
}

/// The least text that is above every text that starts with `prefix`; none: there is no such text.
pub(crate) fn after_prefix(prefix: &str) -> Option<String> {
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        // The surrogates between are no characters, and the order of UTF-8 is the order of code points.
        let next = if last == '\u{d7ff}' { Some('\u{e000}') } else { char::from_u32(u32::from(last) + 1) };
        if let Some(next) = next {
            chars.push(next);
            return Some(chars.into_iter().collect());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_above_all_its_keys() {
        assert_eq!(after_prefix("a/").as_deref(), Some("a0"));
        assert_eq!(after_prefix("a\u{10ffff}").as_deref(), Some("b"));
        assert_eq!(after_prefix("\u{d7ff}").as_deref(), Some("\u{e000}"));
        assert_eq!(after_prefix(""), None);
    }
}
