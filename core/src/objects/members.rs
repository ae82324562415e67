//! Objects whose unknown members survive a rewrite, byte for byte.

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;
use std::fmt;

/// Why a value in a store cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable(pub String);

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unreadable {}

impl From<serde_json::Error> for Unreadable {
    fn from(error: serde_json::Error) -> Self {
        Self(error.to_string())
    }
}

/// A member's name; borrowed unless it is written with escapes.
pub(crate) struct Name<'de>(pub(crate) std::borrow::Cow<'de, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Name<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Name<'de>, E> {
                Ok(Name(name.into()))
            }

            fn visit_str<E>(self, name: &str) -> Result<Name<'de>, E> {
                Ok(Name(name.to_owned().into()))
            }
        }
        deserializer.deserialize_str(Reader)
    }
}

/// Members of a JSON object as they were read, in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Members(pub(crate) Vec<(String, Box<RawValue>)>);

impl PartialEq for Members {
    fn eq(&self, other: &Self) -> bool {
        let of = |members: &Self| -> Vec<(String, String)> {
            members.0.iter().map(|(name, value)| (name.clone(), value.get().to_owned())).collect()
        };
        of(self) == of(other)
    }
}

impl Members {
    pub(crate) fn get(&self, name: &str) -> Option<&RawValue> {
        self.0.iter().find(|(have, _)| have == name).map(|(_, value)| &**value)
    }

    /// Sets a member, in its place if it is there, else at the end.
    pub(crate) fn set(&mut self, name: &str, value: &impl Serialize) {
        // Only types whose serialization cannot fail are set.
        let Ok(value) = serde_json::value::to_raw_value(value) else { return };
        match self.0.iter_mut().find(|(have, _)| have == name) {
            Some((_, have)) => *have = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    members.push(entry);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

impl Serialize for Members {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// An object as Kubernetes knows it: what is around `spec`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Envelope {
    /// `kind`, `apiVersion`, `metadata` and whatever else there is, but for `spec`, whose place is kept.
    around: Members,
    /// How many members come before `spec`.
    before: usize,
}

impl Envelope {
    pub(crate) fn new(kind: &str, name: &str, created: crate::clock::Instant, labels: &[(&str, String)]) -> Self {
        let mut metadata = Members::default();
        metadata.set("name", &name);
        let seconds = i64::try_from(created.seconds).unwrap_or(i64::MAX);
        metadata.set("creationTimestamp", &super::time::to_text(seconds));
        if !labels.is_empty() {
            let labels: std::collections::BTreeMap<&str, &String> =
                labels.iter().map(|(name, value)| (*name, value)).collect();
            metadata.set("labels", &labels);
        }
        let mut around = Members::default();
        around.set("kind", &kind);
        around.set("apiVersion", &super::API_VERSION);
        around.set("metadata", &metadata);
        Self { around, before: 3 }
    }

    /// An object of which only the kind and the name are known.
    pub(crate) fn named(kind: &str, name: &str) -> Self {
        let mut metadata = Members::default();
        metadata.set("name", &name);
        let mut around = Members::default();
        around.set("kind", &kind);
        around.set("apiVersion", &super::API_VERSION);
        around.set("metadata", &metadata);
        Self { around, before: 3 }
    }

    /// Sets a member around `spec`.
    pub(crate) fn set(&mut self, name: &str, value: &impl Serialize) {
        self.around.set(name, value);
    }

    /// Reads an object, and gives its `spec` as text.
    pub(crate) fn parse(value: &[u8]) -> Result<(Self, &RawValue), Unreadable> {
        struct Reader<'v>(std::marker::PhantomData<&'v ()>);
        impl<'de: 'v, 'v> Visitor<'de> for Reader<'v> {
            type Value = (Members, usize, Option<&'v RawValue>);

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let (mut around, mut before, mut spec) = (Vec::new(), 0, None);
                while let Some(name) = map.next_key::<String>()? {
                    if name == "spec" {
                        before = around.len();
                        spec = Some(map.next_value::<&RawValue>()?);
                    } else {
                        around.push((name, map.next_value()?));
                    }
                }
                Ok((Members(around), before, spec))
            }
        }
        let mut reader = serde_json::Deserializer::from_slice(value);
        let (around, before, spec) = reader.deserialize_map(Reader(std::marker::PhantomData))?;
        reader.end()?;
        let spec = spec.ok_or_else(|| Unreadable("the object has no spec".into()))?;
        Ok((Self { around, before }, spec))
    }

    pub(crate) fn to_bytes(&self, spec: &impl Serialize) -> Vec<u8> {
        struct Whole<'e, S>(&'e Envelope, &'e S);
        impl<S: Serialize> Serialize for Whole<'_, S> {
            fn serialize<T: Serializer>(&self, serializer: T) -> Result<T::Ok, T::Error> {
                let Self(envelope, spec) = self;
                let (before, after) =
                    envelope.around.0.split_at_checked(envelope.before).unwrap_or((&envelope.around.0, &[]));
                let mut map = serializer.serialize_map(None)?;
                for (name, value) in before {
                    map.serialize_entry(name, value)?;
                }
                map.serialize_entry("spec", spec)?;
                for (name, value) in after {
                    map.serialize_entry(name, value)?;
                }
                map.end()
            }
        }
        // Strings, numbers and maps with text keys: nothing that can fail.
        serde_json::to_vec(&Whole(self, spec)).unwrap_or_default()
    }
}
