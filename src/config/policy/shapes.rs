//! The shapes of values at a key: how each is read, how a wrong value is refused, and its form in
//! the schema.

use std::time::Duration;

#[cfg(test)]
use serde_json::{Value, json};

use super::json::Json;

/// The longest list of delays. A longer one is a curve.
pub(super) const MAX_LISTED: usize = 100;
/// The word that switches something off.
pub(super) const OFF: &str = "off";

/// The shape of the values at a key.
pub(super) trait Shape {
    /// The type that it is read to.
    type Value;

    /// Reads a value; when it is refused, the problems say why.
    fn read(&self, json: Json<'_>, path: &str, problems: &mut Vec<String>) -> Option<Self::Value>;

    /// The shape as JSON Schema.
    #[cfg(test)]
    fn schema(&self) -> Value;
}

/// A whole number within bounds.
pub(super) struct Count {
    pub(super) min: u32,
    pub(super) max: u32,
}

/// A number within bounds.
pub(super) struct Number {
    pub(super) min: f64,
    pub(super) max: f64,
    pub(super) what: &'static str,
}

/// A number of seconds within bounds; fractions are allowed.
pub(super) struct Seconds(pub(super) Number);

/// One of some words.
pub(super) struct OneOf<T: 'static>(pub(super) &'static [(&'static str, T)]);

/// One value, or a list of them.
pub(super) struct Many<S>(pub(super) S);

/// Yes or no.
pub(super) struct Flag;

/// A value for other programs, which is not read.
pub(super) struct Ignored;

impl Shape for Count {
    type Value = u32;

    fn read(&self, json: Json<'_>, path: &str, problems: &mut Vec<String>) -> Option<u32> {
        let whole = json.number().filter(|number| {
            (f64::from(self.min)..=f64::from(self.max)).contains(number) && number.fract() == 0.0
        });
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole, and within the bounds of a u32"
        )]
        let count = whole.map(|number| number as u32);
        count.or_else(|| {
            refuse(
                json,
                path,
                &format!("a whole number from {} to {}", self.min, self.max),
                problems,
            )
        })
    }

    #[cfg(test)]
    fn schema(&self) -> Value {
        json!({ "type": "integer", "minimum": self.min, "maximum": self.max })
    }
}

impl Number {
    pub(super) fn words(&self) -> String {
        format!("{} from {} to {}", self.what, self.min, self.max)
    }
}

impl Shape for Number {
    type Value = f64;

    fn read(&self, json: Json<'_>, path: &str, problems: &mut Vec<String>) -> Option<f64> {
        let number = json.number().filter(|number| (self.min..=self.max).contains(number));
        number.or_else(|| refuse(json, path, &self.words(), problems))
    }

    #[cfg(test)]
    fn schema(&self) -> Value {
        json!({ "type": "number", "minimum": self.min, "maximum": self.max })
    }
}

impl Shape for Seconds {
    type Value = Duration;

    fn read(&self, json: Json<'_>, path: &str, problems: &mut Vec<String>) -> Option<Duration> {
        self.0.read(json, path, problems).map(Duration::from_secs_f64)
    }

    #[cfg(test)]
    fn schema(&self) -> Value {
        self.0.schema()
    }
}

impl<S: Shape> Shape for Many<S> {
    type Value = Vec<S::Value>;

    fn read(&self, json: Json<'_>, path: &str, problems: &mut Vec<String>) -> Option<Self::Value> {
        let Some(items) = json.items() else {
            return Some(vec![self.0.read(json, path, problems)?]);
        };
        if !(1..=MAX_LISTED).contains(&items.len()) {
            return refuse(json, path, &format!("a list of 1 to {MAX_LISTED}"), problems);
        }
        read_all(items, path, problems, |item, path, problems| self.0.read(item, path, problems))
    }

    #[cfg(test)]
    fn schema(&self) -> Value {
        let list = json!({ "type": "array", "items": self.0.schema(), "minItems": 1, "maxItems": MAX_LISTED });
        json!({ "anyOf": [self.0.schema(), list] })
    }
}

/// Reads every item, also after one is refused, so that all problems are reported.
pub(super) fn read_all<T>(
    items: Vec<Json<'_>>,
    path: &str,
    problems: &mut Vec<String>,
    mut read: impl FnMut(Json<'_>, &str, &mut Vec<String>) -> Option<T>,
) -> Option<Vec<T>> {
    let read = |(at, item)| read(item, &format!("{path}[{at}]"), problems);
    let values: Vec<Option<T>> = items.into_iter().enumerate().map(read).collect();
    values.into_iter().collect()
}

impl<T: Clone> OneOf<T> {
    pub(super) fn find(&self, json: Json<'_>) -> Option<T> {
        let text = json.text()?;
        self.0.iter().find(|(word, _)| *word == text).map(|(_, meaning)| meaning.clone())
    }

    pub(super) fn list(&self) -> String {
        self.0.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ")
    }
}

impl<T: Clone> Shape for OneOf<T> {
    type Value = T;

    fn read(&self, json: Json<'_>, path: &str, problems: &mut Vec<String>) -> Option<T> {
        self.find(json).or_else(|| refuse(json, path, &self.list(), problems))
    }

    #[cfg(test)]
    fn schema(&self) -> Value {
        json!({ "enum": self.0.iter().map(|(word, _)| *word).collect::<Vec<_>>() })
    }
}

impl Shape for Flag {
    type Value = bool;

    fn read(&self, json: Json<'_>, path: &str, problems: &mut Vec<String>) -> Option<bool> {
        json.flag().or_else(|| refuse(json, path, "true or false", problems))
    }

    #[cfg(test)]
    fn schema(&self) -> Value {
        json!({ "type": "boolean" })
    }
}

impl Shape for Ignored {
    type Value = ();

    fn read(&self, _: Json<'_>, _: &str, _: &mut Vec<String>) -> Option<()> {
        Some(())
    }

    #[cfg(test)]
    fn schema(&self) -> Value {
        json!({})
    }
}

/// Notes that a value is not allowed.
pub(super) fn refuse<T>(
    json: Json<'_>,
    path: &str,
    allowed: &str,
    problems: &mut Vec<String>,
) -> Option<T> {
    let place = if path.is_empty() { String::new() } else { format!("{path} ") };
    problems.push(format!("{place}is {json}: must be {allowed}"));
    None
}
