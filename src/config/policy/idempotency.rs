//! The setting for events that are handled once.

#[cfg(test)]
use serde_json::{Value, json};

use super::bounds::KEEP;
use super::json::Json;
#[cfg(test)]
use super::key::object;
use super::key::{Key, Listed, names, table};
use super::section::Section;
use super::shapes::{OneOf, Seconds, Shape, refuse};
use crate::pointer::JsonPointer;
use crate::policy::{Idempotency, WhenUnavailable};

/// An object.
pub(super) struct Idempotencies;

/// A JSON pointer.
struct Pointer;

const WHEN_UNAVAILABLE: OneOf<WhenUnavailable> =
    OneOf(&[("call", WhenUnavailable::Call), ("defer", WhenUnavailable::Defer)]);

/// Its keys.
mod keys {
    use super::{
        KEEP, Key, Listed, OneOf, Pointer, Seconds, WHEN_UNAVAILABLE, WhenUnavailable, table,
    };

    table! {
        KEY, "key", Pointer = Pointer,
            "The place of the event's name in the body, a JSON pointer: a text that is not empty, or a number. A message without such a name counts by the id of its first delivery, and so does each message without this key.";
        KEEP_SECONDS, "keepSeconds", Seconds = KEEP,
            "How long an event counts as done after its success. Default: 1209600, 14 days.";
        WHEN, "whenUnavailable", OneOf<WhenUnavailable> = WHEN_UNAVAILABLE,
            "If the table does not answer: call calls the handler, perhaps twice for one event. defer waits, at most maxDeferrals times, and then calls it. Default: call.";
    }
}

impl Shape for Idempotencies {
    type Value = Idempotency;

    fn read(&self, json: Json<'_>, path: &str, problems: &mut Vec<String>) -> Option<Idempotency> {
        let mut section = Section::open(json, path, &names(keys::ALL), problems)?;
        let default = Idempotency::default();
        let read = Idempotency {
            key: section.read(&keys::KEY, problems),
            keep: section.read(&keys::KEEP_SECONDS, problems).unwrap_or(default.keep),
            when_unavailable: section
                .read(&keys::WHEN, problems)
                .unwrap_or(default.when_unavailable),
        };
        section.sound.then_some(read)
    }

    #[cfg(test)]
    fn schema(&self) -> Value {
        object(keys::ALL)
    }
}

impl Shape for Pointer {
    type Value = JsonPointer;

    fn read(&self, json: Json<'_>, path: &str, problems: &mut Vec<String>) -> Option<JsonPointer> {
        let pointer = json.text().and_then(|text| text.parse().ok());
        let allowed = "a JSON pointer such as /orderId, of at most 16 names and 1024 bytes";
        pointer.or_else(|| refuse(json, path, allowed, problems))
    }

    #[cfg(test)]
    fn schema(&self) -> Value {
        json!({ "type": "string", "pattern": "^(/([^/~]|~[01])*){1,16}$", "maxLength": 1024 })
    }
}
