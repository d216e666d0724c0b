//! The text of the document, parsed only as far as needed. Names and values stay as they were
//! written, so that a problem can show them and a repeated name is found.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Most characters of a name or a value that a problem shows.
const MAX_SHOWN: usize = 40;

/// A value, as it was written.
#[derive(Clone, Copy)]
pub(in crate::config) struct Json<'d>(&'d RawValue);

impl<'d> Json<'d> {
    /// Checks the whole text. The error names line and column.
    pub(in crate::config) fn parse(text: &'d str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text).map(Self)
    }

    /// The number. One that is too large becomes infinite.
    pub(super) fn number(self) -> Option<f64> {
        let text = self.0.get();
        let looks_so = text.starts_with(|first: char| first == '-' || first.is_ascii_digit());
        looks_so.then(|| text.parse().ok()).flatten()
    }

    pub(in crate::config) fn text(self) -> Option<String> {
        serde_json::from_str(self.0.get()).ok()
    }

    pub(super) fn flag(self) -> Option<bool> {
        self.0.get().parse().ok()
    }

    pub(super) fn items(self) -> Option<Vec<Self>> {
        let items: Vec<&RawValue> = serde_json::from_str(self.0.get()).ok()?;
        Some(items.into_iter().map(Self).collect())
    }

    pub(in crate::config) fn members(self) -> Option<Vec<(String, Self)>> {
        let Members(members) = serde_json::from_str(self.0.get()).ok()?;
        Some(members)
    }
}

impl fmt::Display for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", shortened(self.0.get()))
    }
}

/// The text in one line, harmless in a terminal, and cut.
pub(super) fn shortened(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control());
    let line = words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_SHOWN) {
        None => line,
        Some((end, _)) => format!("{}…", &line[..end]),
    }
}

struct Members<'d>(Vec<(String, Json<'d>)>);

impl<'d> Deserialize<'d> for Members<'d> {
    fn deserialize<D: Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;

        impl<'d> Visitor<'d> for Collect {
            type Value = Members<'d>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'d>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((name, value)) = map.next_entry()? {
                    members.push((name, Json(value)));
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(Collect)
    }
}
