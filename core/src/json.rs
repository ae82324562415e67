//! JSON as the CNI reference code reads and writes it.
//!
//! Go's decoder matches member names without regard to case, lets the last of several equal members win, and decodes
//! a repeated object or list *into* what an earlier one left. [`Json`] keeps members in the order of the document, so
//! that a reader can do the same. It knows nothing of configurations.

use serde::Serialize;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// The text of bytes; each byte that is no UTF-8 becomes U+FFFD, as in Go.
pub fn text_of(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    text
}

/// A JSON document, with members in their order and repeated ones kept.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    /// `null`
    Null,
    /// `true`, `false`
    Bool(bool),
    /// A number that is a 64-bit integer.
    Integer(i64),
    /// Any other number.
    Number(f64),
    /// A string.
    String(String),
    /// A list.
    List(Vec<Json>),
    /// An object.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Reads one document with nothing after it. Bytes that are no UTF-8 become U+FFFD, as in Go.
    ///
    /// # Errors
    /// The reason and the place, for people.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        serde_json::from_str(&text_of(bytes)).map_err(|error| error.to_string())
    }

    /// What kind of value this is, in Go's words.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "bool",
            Self::Integer(_) | Self::Number(_) => "number",
            Self::String(_) => "string",
            Self::List(_) => "array",
            Self::Object(_) => "object",
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Tree;
        impl<'de> Visitor<'de> for Tree {
            type Value = Json;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a JSON value")
            }
            fn visit_unit<E>(self) -> Result<Json, E> {
                Ok(Json::Null)
            }
            fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
                Ok(Json::Bool(value))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
                Ok(Json::Integer(value))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
                Ok(i64::try_from(value).map_or(Json::Number(f64::INFINITY), Json::Integer))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
                Ok(Json::Number(value))
            }
            fn visit_str<E>(self, value: &str) -> Result<Json, E> {
                Ok(Json::String(value.into()))
            }
            fn visit_string<E>(self, value: String) -> Result<Json, E> {
                Ok(Json::String(value))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    list.push(item);
                }
                Ok(Json::List(list))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Json, A::Error> {
                let mut object = Vec::new();
                while let Some(member) = members.next_entry()? {
                    object.push(member);
                }
                Ok(Json::Object(object))
            }
        }
        deserializer.deserialize_any(Tree)
    }
}

/// Whether two spellings are one member's name: case is ignored for ASCII letters, and, as Go folds names, the long s
/// and the Kelvin sign count as s and k.
fn is_same_name(one: &str, two: &str) -> bool {
    let fold = |c: char| match c {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        c => c.to_ascii_lowercase(),
    };
    one.chars().map(fold).eq(two.chars().map(fold))
}

/// Why a value could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch(pub String);

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A value and the way that led to it, for messages.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    /// The value.
    pub value: &'a Json,
    parent: Option<&'a Node<'a>>,
    name: &'a str,
    index: usize,
}

impl<'a> Node<'a> {
    /// The root of a document.
    pub fn root(value: &'a Json) -> Self {
        Self { value, parent: None, name: "", index: 0 }
    }

    /// The way from the root, such as `ipam.ranges[0][1].subnet`.
    pub fn path(&self) -> String {
        let before = self.parent.map(Node::path).unwrap_or_default();
        match (self.parent, self.name.is_empty()) {
            (None, _) => String::new(),
            (Some(_), true) => format!("{before}[{}]", self.index),
            (Some(_), false) if before.is_empty() => self.name.into(),
            (Some(_), false) => format!("{before}.{}", self.name),
        }
    }

    /// An error that this value is not what was expected.
    pub fn mismatch(&self, expected: &str) -> Mismatch {
        let path = self.path();
        let place = if path.is_empty() { "the document".into() } else { format!("field {path}") };
        Mismatch(format!("json: cannot unmarshal {} into {place}: {expected} is expected", self.value.kind()))
    }

    /// Calls `read` for each member whose name is known, in the order of the document, with its name as `known` has
    /// it. `null` reads as an object without members.
    ///
    /// # Errors
    /// [`Mismatch`] if the value is no object, or what `read` gives.
    pub fn members(
        &self,
        known: &[&'static str],
        mut read: impl FnMut(&'static str, Node<'_>) -> Result<(), Mismatch>,
    ) -> Result<(), Mismatch> {
        match self.value {
            Json::Null => Ok(()),
            Json::Object(members) => {
                for (name, value) in members {
                    let found = known
                        .iter()
                        .find(|candidate| **candidate == name)
                        .or_else(|| known.iter().find(|candidate| is_same_name(candidate, name)));
                    if let Some(found) = found {
                        read(found, Node { value, parent: Some(self), name: found, index: 0 })?;
                    }
                }
                Ok(())
            }
            _ => Err(self.mismatch("an object")),
        }
    }

    /// Reads a string into `target`; `null` leaves it alone.
    ///
    /// # Errors
    /// [`Mismatch`] if the value is neither.
    pub fn string(&self, target: &mut String) -> Result<(), Mismatch> {
        match self.value {
            Json::Null => Ok(()),
            Json::String(text) => {
                target.clone_from(text);
                Ok(())
            }
            _ => Err(self.mismatch("a string")),
        }
    }

    /// Reads an integer; none for `null`.
    ///
    /// # Errors
    /// [`Mismatch`] if the value is neither.
    pub fn integer(&self) -> Result<Option<i64>, Mismatch> {
        match self.value {
            Json::Null => Ok(None),
            Json::Integer(number) => Ok(Some(*number)),
            _ => Err(self.mismatch("an integer")),
        }
    }

    /// Reads a list into `target`, item into item as Go does when a list is given twice; `null` empties it.
    ///
    /// # Errors
    /// [`Mismatch`] if the value is neither, or what `read` gives.
    pub fn list<T: Default>(
        &self,
        target: &mut Vec<T>,
        mut read: impl FnMut(Node<'_>, &mut T) -> Result<(), Mismatch>,
    ) -> Result<(), Mismatch> {
        match self.value {
            Json::Null => {
                target.clear();
                Ok(())
            }
            Json::List(items) => {
                target.truncate(items.len());
                target.resize_with(items.len(), T::default);
                for (index, (value, slot)) in items.iter().zip(target).enumerate() {
                    read(Node { value, parent: Some(self), name: "", index }, slot)?;
                }
                Ok(())
            }
            _ => Err(self.mismatch("a list")),
        }
    }
}

/// Writes a value as Go's `MarshalIndent` with four blanks does: `<`, `>`, `&`, U+2028 and U+2029 are escaped.
pub fn to_go_text(value: &impl Serialize) -> String {
    let mut bytes = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
    // Writing to memory cannot fail, and what is written here has string keys only.
    let _ = value.serialize(&mut serializer);
    let text = String::from_utf8(bytes).unwrap_or_default();
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            // Outside strings these characters do not occur in JSON.
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => escaped.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Quotes a text as Go's `%q` does.
pub fn go_quote(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            c if c < ' ' || c == '\u{7f}' => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            // What Rust would escape, beside the above, are characters that do not print.
            c if c.escape_debug().nth(1) == Some('u') => {
                let number = u32::from(c);
                let text = if number > 0xffff { format!("\\U{number:08x}") } else { format!("\\u{number:04x}") };
                out.push_str(&text);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Quotes a list of texts as Go's `%q` does: `["a" "b"]`.
pub fn go_quote_list<T: AsRef<str>>(texts: &[T]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| go_quote(text.as_ref())).collect();
    format!("[{}]", quoted.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_match_without_case_and_the_last_wins() {
        let document = Json::parse(br#"{"Name":"a","NAME":"b","x":1,"na\u017fme":"c"}"#).unwrap();
        let mut name = String::new();
        Node::root(&document).members(&["name"], |_, node| node.string(&mut name)).unwrap();
        assert_eq!(name, "b");
    }

    #[test]
    fn a_list_given_twice_is_read_into_the_first() {
        let document = Json::parse(br#"{"a":[{"x":1,"y":2},{"x":3}],"A":[{"x":9}]}"#).unwrap();
        let mut list: Vec<(i64, i64)> = Vec::new();
        Node::root(&document)
            .members(&["a"], |_, node| {
                node.list(&mut list, |item, slot| {
                    item.members(&["x", "y"], |name, node| {
                        let number = node.integer()?.unwrap_or_default();
                        if name == "x" {
                            slot.0 = number;
                        } else {
                            slot.1 = number;
                        }
                        Ok(())
                    })
                })
            })
            .unwrap();
        assert_eq!(list, [(9, 2)]);
    }

    #[test]
    fn mismatches_name_the_way() {
        let document = Json::parse(br#"{"ipam":{"ranges":[[{"subnet":5}]]}}"#).unwrap();
        let mut text = String::new();
        let error = Node::root(&document)
            .members(&["ipam"], |_, node| {
                node.members(&["ranges"], |_, node| {
                    node.list(&mut Vec::<()>::new(), |node, ()| {
                        node.list(&mut Vec::<()>::new(), |node, ()| {
                            node.members(&["subnet"], |_, node| node.string(&mut text))
                        })
                    })
                })
            })
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "json: cannot unmarshal number into field ipam.ranges[0][0].subnet: a string is expected"
        );
    }

    #[test]
    fn documents_are_whole() {
        for text in ["{} x", "\u{feff}{}", "{", "", "{\"a\":1,}"] {
            assert!(Json::parse(text.as_bytes()).is_err(), "{text:?}");
        }
        assert_eq!(Json::parse(b"\"\xff\""), Ok(Json::String("\u{fffd}".into())));
    }

    #[test]
    fn output_is_escaped_as_in_go() {
        let value = serde_json::json!({"a": "<&>\u{2028}", "b": {}, "c": []});
        assert_eq!(
            to_go_text(&value),
            "{\n    \"a\": \"\\u003c\\u0026\\u003e\\u2028\",\n    \"b\": {},\n    \"c\": []\n}"
        );
        assert_eq!(go_quote("a\"b\\\n\u{1}\u{2028}\u{85}é"), r#""a\"b\\\n\x01\u2028\u0085é""#);
        assert_eq!(go_quote_list(&["a", "b"]), r#"["a" "b"]"#);
    }
}
