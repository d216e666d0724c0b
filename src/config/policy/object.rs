//! Objects of the document as tables of keys: a document is read and written by them, and its schema
//! is made from them.

use serde_json::{Map, Value};

use super::json::Json;
use super::shapes::Shape;

pub(super) type Keys<T> = &'static [&'static dyn Listed<T>];

/// An object with a field of `T` at each key.
pub(super) struct KeyTable<T: 'static> {
    pub(super) keys: Keys<T>,
    pub(super) required: &'static [&'static str],
    pub(super) default: fn() -> T,
}

/// A key in the table of an object: a trait, since keys of several shapes stand in one table.
pub(super) trait Listed<T> {
    fn name(&self) -> &'static str;
    /// Reads the value into its field, unless it is refused.
    fn read(&self, json: &Json<'_>, into: &mut T) -> Option<()>;
    fn write(&self, from: &mut T) -> Option<Value>;
    #[cfg(test)]
    fn schema(&self) -> Value;
}

pub(super) struct TableKey<T, S: Shape> {
    pub(super) name: &'static str,
    pub(super) shape: S,
    pub(super) field: fn(&mut T) -> &mut S::Value,
}

/// The table of an object: for each key its name, shape and field.
macro_rules! keys {
    ($type:ty: $($name:literal, $shape:expr => $($field:ident).+;)*) => {
        &[$(&super::object::TableKey {
            name: $name,
            shape: $shape,
            field: |read: &mut $type| &mut read.$($field).+,
        }),*]
    };
}
pub(super) use keys;

/// Both lists of keys in one, of `N` keys.
pub(super) const fn joined<T, const N: usize>(
    first: Keys<T>,
    then: Keys<T>,
) -> [&'static dyn Listed<T>; N] {
    let mut all = [first[0]; N];
    let mut at = 1;
    while at < N {
        all[at] = if at < first.len() { first[at] } else { then[at - first.len()] };
        at += 1;
    }
    all
}

impl<T, S: Shape> Listed<T> for TableKey<T, S> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn read(&self, json: &Json<'_>, into: &mut T) -> Option<()> {
        *(self.field)(into) = self.shape.read(json)?;
        Some(())
    }

    fn write(&self, from: &mut T) -> Option<Value> {
        self.shape.write((self.field)(from))
    }

    #[cfg(test)]
    fn schema(&self) -> Value {
        let mut schema = self.shape.schema();
        schema["description"] = "".into();
        schema
    }
}

impl<T> KeyTable<T> {
    pub(super) fn names(&self) -> Vec<&'static str> {
        self.keys.iter().map(|key| key.name()).collect()
    }

    /// Reads each key into its field. Returns whether every name and every value was sound.
    pub(super) fn fill(&self, json: &Json<'_>, into: &mut T) -> bool {
        let Some(fields) = json.fields(&self.names()) else { return false };
        let mut sound = fields.sound;
        for name in self.required.iter().filter(|name| fields.get(name).is_none()) {
            json.problems.note(format!("{} is missing", json.path_to(name)));
            sound = false;
        }
        for key in self.keys {
            let Some(json) = fields.get(key.name()) else { continue };
            sound &= key.read(json, into).is_some();
        }
        sound
    }
}

impl<T: Clone> Shape for KeyTable<T> {
    type Value = T;

    fn read(&self, json: &Json<'_>) -> Option<T> {
        let mut read = (self.default)();
        self.fill(json, &mut read).then_some(read)
    }

    /// An object without a value is left out.
    fn write(&self, value: &T) -> Option<Value> {
        let mut value = value.clone();
        let written = |key: &&dyn Listed<T>| Some((key.name().to_owned(), key.write(&mut value)?));
        let members: Map<String, Value> = self.keys.iter().filter_map(written).collect();
        (!members.is_empty()).then_some(Value::Object(members))
    }
}
