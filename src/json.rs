//! The members of a JSON object as text, in one pass that builds nothing. Nesting of any depth costs no
//! stack.

use std::fmt;

use serde::de::{Deserializer as _, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Calls `visit` with the text of every key, quotes included, and of every value of an object, in
/// their order. `None` if `text` is not exactly one JSON object, white space aside, or as soon as
/// `visit` says so.
pub(crate) fn each_member<'a>(
    text: &'a str,
    visit: impl FnMut(&'a str, &'a str) -> Option<()>,
) -> Option<()> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    deserializer.deserialize_map(MemberVisitor(visit)).ok()?;
    deserializer.end().ok()
}

struct MemberVisitor<F>(F);

impl<'a, F: FnMut(&'a str, &'a str) -> Option<()>> Visitor<'a> for MemberVisitor<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<M: MapAccess<'a>>(mut self, mut map: M) -> Result<(), M::Error> {
        while let Some((key, value)) = map.next_entry::<&RawValue, &RawValue>()? {
            (self.0)(key.get(), value.get())
                .ok_or_else(|| M::Error::custom("a member is refused"))?;
        }
        Ok(())
    }
}
