//! The text of the document, parsed only as far as needed. Names and values stay as they were
//! written, so that a problem can show them and a repeated name is found.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Most characters of a name or a value that a problem shows.
const MAX_SHOWN: usize = 40;

/// A value, as it was written.
#[derive(Clone, Copy)]
pub(in crate::config) struct Json<'d> {
    raw: &'d RawValue,
    in_problems: InProblems,
}

/// Whether problems show what was written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum InProblems {
    Shown,
    /// The document is stored as a secret, and problems are logged.
    Hidden,
}

impl<'d> Json<'d> {
    /// Checks the whole text. The error names line and column.
    pub(in crate::config) fn parse(
        text: &'d str,
        in_problems: InProblems,
    ) -> Result<Self, serde_json::Error> {
        let raw = serde_json::from_str(text)?;
        Ok(Self { raw, in_problems })
    }

    /// A name or a value within it, as a problem shows it.
    pub(super) fn shown(self, text: &str) -> String {
        match self.in_problems {
            InProblems::Shown => shortened(text),
            InProblems::Hidden => "…".to_owned(),
        }
    }

    /// The number. One that is too large becomes infinite.
    pub(super) fn number(self) -> Option<f64> {
        let text = self.raw.get();
        let looks_so = text.starts_with(|first: char| first == '-' || first.is_ascii_digit());
        looks_so.then(|| text.parse().ok()).flatten()
    }

    pub(in crate::config) fn text(self) -> Option<String> {
        serde_json::from_str(self.raw.get()).ok()
    }

    pub(super) fn flag(self) -> Option<bool> {
        self.raw.get().parse().ok()
    }

    pub(super) fn items(self) -> Option<Vec<Self>> {
        let items: Vec<&RawValue> = serde_json::from_str(self.raw.get()).ok()?;
        Some(items.into_iter().map(|raw| Self { raw, ..self }).collect())
    }

    pub(in crate::config) fn members(self) -> Option<Vec<(String, Self)>> {
        let Members(members) = serde_json::from_str(self.raw.get()).ok()?;
        Some(members.into_iter().map(|(name, raw)| (name, Self { raw, ..self })).collect())
    }
}

impl fmt::Display for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.shown(self.raw.get()))
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

struct Members<'d>(Vec<(String, &'d RawValue)>);

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
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(Collect)
    }
}
