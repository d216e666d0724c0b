//! A key of an object of the document, and the tables of such keys. The document is read by these
//! tables, and its schema is made from them.

#[cfg(test)]
use serde_json::{Map, Value, json};

use super::shapes::Shape;

/// A key, and the shape of its values.
pub(super) struct Key<S> {
    pub(super) name: &'static str,
    /// The description that editors show.
    #[cfg(test)]
    pub(super) about: &'static str,
    pub(super) shape: S,
}

/// A key in a table.
pub(super) trait Listed: Sync {
    fn name(&self) -> &'static str;
    #[cfg(test)]
    fn schema(&self) -> Value;
}

impl<S: Shape + Sync> Listed for Key<S> {
    fn name(&self) -> &'static str {
        self.name
    }

    #[cfg(test)]
    fn schema(&self) -> Value {
        let mut schema = self.shape.schema();
        schema["description"] = self.about.into();
        schema
    }
}

/// Writes each key once: as a constant to read by, and in the table of its object.
macro_rules! table {
    ($($constant:ident, $name:literal, $shape:ty = $value:expr, $about:literal;)*) => {
        $(
            pub(crate) const $constant: Key<$shape> = Key {
                name: $name,
                #[cfg(test)]
                about: $about,
                shape: $value,
            };
        )*
        pub(crate) const ALL: &[&dyn Listed] = &[$(&$constant),*];
    };
}
pub(super) use table;

/// The names of a table's keys.
pub(super) fn names(keys: &[&dyn Listed]) -> Vec<&'static str> {
    keys.iter().map(|key| key.name()).collect()
}

/// The schema of an object with these keys.
#[cfg(test)]
pub(super) fn object(keys: &[&dyn Listed]) -> Value {
    let properties: Map<String, Value> =
        keys.iter().map(|key| (key.name().to_owned(), key.schema())).collect();
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}
