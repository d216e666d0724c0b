//! A payload with our fields: the text of a copy, ready to be sent except for the time of sending.

use std::time::SystemTime;

use super::object::{BODY, Name, Object};
use super::state_text;
use crate::clock::timestamp_text;
use crate::json;
use crate::state::RetryState;

/// Whether a body that cannot hold the retry count itself, since it is no JSON object, is wrapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wrap {
    /// Requeue wraps the body: the copy is a JSON object that holds the body as a string. The
    /// handler still sees the body alone.
    #[default]
    WhenNeeded,
    /// Requeue sends no copy: the message waits with its visibility timeout, so its receives limit
    /// its retries. Needed if a filter of the event source mapping reads such bodies.
    Never,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stamped {
    text: String,
    /// The position of the time of sending, always [`TIMESTAMP_LEN`] bytes long.
    timestamp: usize,
}

/// `2026-11-21T01:02:03.004Z`
const TIMESTAMP_LEN: usize = 24;

/// Room for our fields without anything unusual in them: 250 bytes, and 75 more with a trace.
const USUAL_LEN: usize = 352;

/// Adds our fields to `payload`; [`read`](super::read) removes them from any payload. Call
/// [`Stamped::set_timestamp`] before each attempt to send it. `None` if the payload cannot hold our
/// fields itself, and wrapping is switched off.
pub(crate) fn stamp(payload: &str, state: &RetryState, wrap: Wrap) -> Option<Stamped> {
    match (Object::locate(payload).filter(can_hold_members), wrap) {
        (Some(object), _) => Some(edited(&object, state)),
        (None, Wrap::WhenNeeded) => Some(wrapped(payload, state)),
        (None, Wrap::Never) => None,
    }
}

fn can_hold_members(object: &Object) -> bool {
    let looks_like_an_envelope = object.body().is_some();
    // Only an envelope's content can hold these characters: elsewhere SQS has refused them already.
    let needs_escaping = json::is_refused(object.text());
    !object.is_ambiguous() && !looks_like_an_envelope && !needs_escaping
}

fn edited(object: &Object, state: &RetryState) -> Stamped {
    let text = object.text();
    let originals: Vec<(Name, &str)> =
        object.members().iter().map(|member| (member.name, &text[member.value.clone()])).collect();
    let mut draft = Draft::new(text.len(), state, &originals);
    let mut done = 0;
    for member in object.members() {
        draft.text.push_str(&text[done..member.value.start]);
        draft.push_value(member.name);
        done = member.value.end;
    }
    let end = object.closing_brace();
    draft.text.push_str(&text[done..end]);
    let mut separator = if object.is_empty() { "" } else { "," };
    for &(_, name) in Name::WORDS {
        if object.member(name).is_none() {
            draft.push_member(separator, name);
            separator = ",";
        }
    }
    draft.text.push_str(&text[end..]);
    draft.finished()
}

fn wrapped(payload: &str, state: &RetryState) -> Stamped {
    let mut draft = Draft::new(payload.len(), state, &[]);
    draft.push_key("{", BODY);
    json::push(&mut draft.text, &payload);
    for &(_, name) in Name::WORDS {
        draft.push_member(",", name);
    }
    draft.text.push('}');
    draft.finished()
}

struct Draft<'a> {
    text: String,
    timestamp: usize,
    state: &'a RetryState,
    originals: &'a [(Name, &'a str)],
}

impl<'a> Draft<'a> {
    fn new(payload_len: usize, state: &'a RetryState, originals: &'a [(Name, &'a str)]) -> Self {
        Self {
            text: String::with_capacity(payload_len + USUAL_LEN),
            timestamp: 0,
            state,
            originals,
        }
    }

    fn push_member(&mut self, separator: &str, name: Name) {
        self.push_key(separator, name.as_str());
        self.push_value(name);
    }

    fn push_key(&mut self, separator: &str, name: &str) {
        for part in [separator, "\"", name, "\":"] {
            self.text.push_str(part);
        }
    }

    fn push_value(&mut self, name: Name) {
        match name {
            Name::RetryCount => json::push(&mut self.text, &self.state.retry_count),
            Name::OriginalMessageId => {
                let id = self.state.original_message_id.as_deref().unwrap_or_default();
                json::push(&mut self.text, &id);
            }
            Name::RetryTimestamp => {
                let time = self.state.retry_timestamp.unwrap_or(SystemTime::UNIX_EPOCH);
                self.timestamp = self.text.len() + "\"".len();
                json::push(&mut self.text, &timestamp_text(time));
            }
            Name::RetryState => state_text::push(&mut self.text, self.state, self.originals),
        }
    }

    fn finished(self) -> Stamped {
        Stamped { text: self.text, timestamp: self.timestamp }
    }
}

impl Stamped {
    /// Writes `now` as the time of sending. The length of the text stays the same.
    pub(crate) fn set_timestamp(&mut self, now: SystemTime) {
        let place = self.timestamp..self.timestamp + TIMESTAMP_LEN;
        self.text.replace_range(place, &timestamp_text(now));
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn into_text(self) -> String {
        self.text
    }
}
