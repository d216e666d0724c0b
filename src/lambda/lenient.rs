//! JSON of which any part may be missing or of another kind than expected, read in one pass.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The kind of value that is expected. Each method stands for a kind of JSON value; those that are
/// not overridden note the value as [`other`](Expected::other) and skip it.
pub(super) trait Expected: Default {
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

impl<'de, S: Expected> Deserialize<'de> for Lenient<S> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LenientVisitor(S::default())).map(Self)
    }
}

struct LenientVisitor<S>(S);

impl<S: Expected> LenientVisitor<S> {
    fn other(mut self) -> S {
        self.0.other();
        self.0
    }
}

impl<'de, S: Expected> Visitor<'de> for LenientVisitor<S> {
    type Value = S;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_str<E>(mut self, text: &str) -> Result<S, E> {
        self.0.text(text);
        Ok(self.0)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, map: A) -> Result<S, A::Error> {
        self.0.map(map)?;
        Ok(self.0)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, list: A) -> Result<S, A::Error> {
        self.0.list(list)?;
        Ok(self.0)
    }

    fn visit_unit<E>(self) -> Result<S, E> {
        Ok(self.0)
    }

    fn visit_bool<E>(self, _: bool) -> Result<S, E> {
        Ok(self.other())
    }

    fn visit_i64<E>(self, _: i64) -> Result<S, E> {
        Ok(self.other())
    }

    fn visit_u64<E>(self, _: u64) -> Result<S, E> {
        Ok(self.other())
    }

    fn visit_f64<E>(self, _: f64) -> Result<S, E> {
        Ok(self.other())
    }
}

/// A text, or nothing.
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
