//! JSON of which any part may be missing or of another kind than expected, read in one pass.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The kind of value that is expected. Each method stands for a kind of JSON value; those that are
/// not overridden note the value as [`other`](Expected::other) and skip it.
pub(super) trait Expected: Default {
    fn text(&mut self, _: Cow<'_, str>) {
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
        deserializer.deserialize_any(LenientVisitor(PhantomData)).map(Self)
    }
}

struct LenientVisitor<S>(PhantomData<S>);

impl<S: Expected> LenientVisitor<S> {
    fn other() -> S {
        let mut shape = S::default();
        shape.other();
        shape
    }
}

impl<'de, S: Expected> Visitor<'de> for LenientVisitor<S> {
    type Value = S;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_str<E>(self, text: &str) -> Result<S, E> {
        let mut shape = S::default();
        shape.text(Cow::Borrowed(text));
        Ok(shape)
    }

    fn visit_string<E>(self, text: String) -> Result<S, E> {
        let mut shape = S::default();
        shape.text(Cow::Owned(text));
        Ok(shape)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<S, A::Error> {
        let mut shape = S::default();
        shape.map(map)?;
        Ok(shape)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<S, A::Error> {
        let mut shape = S::default();
        shape.list(list)?;
        Ok(shape)
    }

    fn visit_unit<E>(self) -> Result<S, E> {
        Ok(S::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<S, E> {
        Ok(Self::other())
    }

    fn visit_i64<E>(self, _: i64) -> Result<S, E> {
        Ok(Self::other())
    }

    fn visit_u64<E>(self, _: u64) -> Result<S, E> {
        Ok(Self::other())
    }

    fn visit_f64<E>(self, _: f64) -> Result<S, E> {
        Ok(Self::other())
    }
}

/// A text, or nothing.
#[derive(Default)]
pub(super) struct LenientText(pub(super) Option<String>);

impl Expected for LenientText {
    fn text(&mut self, text: Cow<'_, str>) {
        self.0 = Some(text.into_owned());
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
    fn text(&mut self, text: Cow<'_, str>) {
        self.0 = text.parse().ok();
    }
}
