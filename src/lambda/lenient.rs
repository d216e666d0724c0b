//! JSON of which any part may be missing or of another kind than expected, read in one pass.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The kind of value that is expected. Each method stands for a kind of JSON value; those that are
/// not overridden note the value as [`other`](Expected::other) and skip it.
pub(super) trait Expected {
    fn text(&mut self, _: &str) {
        self.other();
    }

    fn map<'de, A: MapAccess<'de>>(&mut self, mut map: A) -> Result<(), A::Error> {
        self.other();
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn list<'de, A: SeqAccess<'de>>(&mut self, mut list: A) -> Result<(), A::Error> {
        self.other();
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    /// Notes a value of another kind. A `null` is none: it counts as missing.
    fn other(&mut self) {}
}

/// A value of any kind, read as `S`.
pub(super) struct Lenient<S>(pub(super) S);

impl<'de, S: Expected + Default> Deserialize<'de> for Lenient<S> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut value = S::default();
        InPlace(&mut value).deserialize(deserializer)?;
        Ok(Self(value))
    }
}

/// Reads a value of any kind into its place: a large one would be moved several times.
pub(super) struct InPlace<'a, S>(pub(super) &'a mut S);

impl<'de, S: Expected> DeserializeSeed<'de> for InPlace<'_, S> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

macro_rules! other {
    ($($visit:ident: $kind:ty),+) => {
        $(fn $visit<E>(self, _: $kind) -> Result<(), E> {
            self.0.other();
            Ok(())
        })+
    };
}

impl<'de, S: Expected> Visitor<'de> for InPlace<'_, S> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.0.text(text);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        self.0.map(map)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<(), A::Error> {
        self.0.list(list)
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    other!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64);
}

#[derive(Default)]
pub(super) struct LenientText(pub(super) Option<String>);

impl Expected for LenientText {
    fn text(&mut self, text: &str) {
        self.0 = Some(text.to_owned());
    }
}

/// A number that is written as a text, or nothing.
pub(super) struct LenientNumber<N>(pub(super) Option<N>);

impl<N> Default for LenientNumber<N> {
    fn default() -> Self {
        Self(None)
    }
}

impl<N: FromStr> Expected for LenientNumber<N> {
    fn text(&mut self, text: &str) {
        self.0 = text.parse().ok();
    }
}
