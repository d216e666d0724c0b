//! Finds, removes and adds Requeue's fields in the text of a body. It edits the text and never
//! parses and prints it, so the handler sees the bytes of the first delivery on every attempt. It
//! knows no clock, no queue and no policy.
//!
//! | payload | on the wire |
//! |---|---|
//! | a JSON object | its own bytes, our four fields before its closing brace |
//! | … that has one of our fields itself | our value there, the producer's in `retryState.original` |
//! | … that has one of them twice, or `retryBody`, or a character that SQS refuses | as anything else |
//! | anything else | `{"retryBody":"<the text>", our four fields}` |

mod dead_letter;
mod object;
mod stamp;
mod state_text;

use std::borrow::Cow;

use self::object::{Name, Object};
use self::state_text::StateText;
use crate::clock::rfc3339;
use crate::json;
use crate::state::RetryState;

pub use self::dead_letter::{DeadLetter, DeadLetterInfo};
pub use self::stamp::Wrap;
pub(crate) use self::stamp::{Stamped, stamp};

#[derive(Debug, PartialEq)]
pub(crate) struct ReadBody<'a> {
    /// The body as first delivered, byte for byte. For a message of a later version, the whole
    /// text.
    pub(crate) payload: Cow<'a, str>,
    pub(crate) origin: Origin,
}

/// The writer of a received body.
#[derive(Debug, PartialEq)]
pub(crate) enum Origin {
    /// The producer: this is the first delivery.
    Fresh {
        /// A plain integer `retryCount` in the producer's object, 0 without one. So messages in
        /// flight in the format of the well-known article keep their count.
        retry_count: u32,
    },
    /// This library.
    Ours(Box<RetryState>),
    /// A later version of this library, with its `v`. The message is released untouched.
    LaterVersion(u64),
}

/// Splits a body. A producer's count above `retry_count_cap` is cut. It never fails: a body without
/// Requeue's fields is the producer's.
pub(crate) fn read(body: &str, retry_count_cap: u32) -> ReadBody<'_> {
    // Few bodies of producers have such a name. The others are not parsed.
    if !object::may_hold_names(body) {
        return ReadBody::fresh(body, 0);
    }
    let Some(object) = Object::locate(body) else {
        return ReadBody::fresh(body, 0);
    };
    match ours(&object) {
        Some(Ours::State(payload, state)) => {
            ReadBody { payload: Cow::Owned(payload), origin: Origin::Ours(state) }
        }
        Some(Ours::Later(version)) => {
            ReadBody { payload: Cow::Borrowed(body), origin: Origin::LaterVersion(version) }
        }
        None => ReadBody::fresh(body, believed_count(&object, retry_count_cap)),
    }
}

/// As [`read`], for a body whose sender is not trusted: all of it is the producer's own.
pub(crate) fn read_as_foreign(body: &str, retry_count_cap: u32) -> ReadBody<'_> {
    let retry_count =
        Object::locate(body).map_or(0, |object| believed_count(&object, retry_count_cap));
    ReadBody::fresh(body, retry_count)
}

/// Whether a body has our fields, written by anyone.
pub(crate) fn bears_fields(body: &str) -> bool {
    Object::locate(body).is_some_and(|object| ours(&object).is_some())
}

/// Whether [`read`] may find a state of ours, whose name may have escapes.
pub(crate) fn may_be_ours(body: &str) -> bool {
    body.contains(Name::RetryState.as_str()) || body.contains("\\u00")
}

impl<'a> ReadBody<'a> {
    fn fresh(body: &'a str, retry_count: u32) -> Self {
        Self { payload: Cow::Borrowed(body), origin: Origin::Fresh { retry_count } }
    }
}

enum Ours {
    State(String, Box<RetryState>),
    Later(u64),
}

/// `None` unless each of Requeue's fields is there once and well-formed. Only the count may be
/// missing or garbled: a consumer that removes it must not remove the limit of the retries.
fn ours(object: &Object) -> Option<Ours> {
    if object.is_ambiguous() {
        return None;
    }
    let retry_count = object.value(Name::RetryCount).and_then(count);
    let original_message_id = object.value(Name::OriginalMessageId).and_then(json::string)?;
    let retry_timestamp = object.value(Name::RetryTimestamp).and_then(json::string)?;
    let retry_timestamp = rfc3339(&retry_timestamp)?;
    match state_text::read(object.value(Name::RetryState)?)? {
        StateText::Later(version) => Some(Ours::Later(version)),
        StateText::Known(mut state, originals) => {
            let payload = match object.body() {
                Some(wrapped) => json::string(wrapped)?,
                None => object.restored(&originals),
            };
            let counted =
                || state.counts.iter().fold(0, |sum: u32, count| sum.saturating_add(*count));
            state.retry_count = retry_count.unwrap_or_else(counted);
            state.original_message_id = Some(original_message_id).filter(|id| !id.is_empty());
            state.retry_timestamp = Some(retry_timestamp);
            Some(Ours::State(payload, state))
        }
    }
}

fn believed_count(object: &Object, cap: u32) -> u32 {
    if object.is_ambiguous() {
        return 0;
    }
    let retry_count = object.value(Name::RetryCount).and_then(count);
    retry_count.filter(|count| *count <= cap).unwrap_or(0)
}

fn count(text: &str) -> Option<u32> {
    u32::try_from(json::plain_integer(text)?).ok()
}

#[cfg(test)]
mod tests;
