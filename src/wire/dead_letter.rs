//! What the body of a message in a dead-letter queue says about it, for those who look into one. Decides nothing about a message that
//! is still on its way, which is `message.rs`.

use std::borrow::Cow;
use std::time::SystemTime;

use jiff::Timestamp;
use serde::Deserialize;

use super::{Origin, Wrap, stamp};
use crate::failure::{FailureClass, Reason};
use crate::state::RetryState;

/// A message in a dead-letter queue, by its body: why it was given up, and the body as first delivered.
///
/// Whoever may send to the queue can write anything into a body: what is found here is for a person to read. Texts are scrubbed, so that
/// a terminal can show them.
///
/// ```
/// # use requeue::{DeadLetter, FailureClass};
/// let body = r#"{"order":7,"retryCount":2,"originalMessageId":"m-1","retryTimestamp":"2026-11-21T01:02:03.004Z",
///     "retryState":{"v":1,"deadLetter":{"class":"quota","reason":"retries-exhausted","retryCount":2}}}"#;
/// let dead = DeadLetter::read(body);
/// assert_eq!(dead.payload(), r#"{"order":7}"#);
/// assert_eq!(dead.original_message_id(), Some("m-1"));
/// assert_eq!((dead.class(), dead.reason()), (Some(FailureClass::Quota), Some("retries-exhausted")));
///
/// let foreign = DeadLetter::read("anything");
/// assert_eq!((foreign.payload(), foreign.reason()), ("anything", None));
/// ```
#[derive(Debug)]
pub struct DeadLetter<'a> {
    payload: Cow<'a, str>,
    origin: Origin,
    why: Why,
}

/// `retryState.deadLetter`, with nothing assumed of it.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Why {
    class: Option<String>,
    reason: Option<String>,
    detail: Option<String>,
    retry_count: Option<u32>,
    failed_at: Option<String>,
}

impl Why {
    fn read(text: &str) -> Self {
        let why: Self = serde_json::from_str(text).unwrap_or_default();
        let scrubbed = |text: Option<String>| text.map(|text| Reason::new(text).as_str().to_owned());
        Self { reason: scrubbed(why.reason), detail: scrubbed(why.detail), ..why }
    }
}

impl<'a> DeadLetter<'a> {
    /// Reads a body. Never fails: what is not ours says nothing.
    #[must_use]
    pub fn read(body: &'a str) -> Self {
        let read = super::read(body, 0);
        let why = match &read.origin {
            Origin::Ours(state) => state.dead_letter.as_deref().map(Why::read),
            Origin::Fresh { .. } | Origin::LaterVersion(_) => None,
        };
        Self { payload: read.payload, origin: read.origin, why: why.unwrap_or_default() }
    }

    /// The body as first delivered, byte for byte; of a later version's message the whole body.
    #[must_use]
    pub fn payload(&self) -> &str {
        &self.payload
    }

    /// Whether a later version of this library wrote its state, so that nothing can be said about it.
    #[must_use]
    pub fn is_of_later_version(&self) -> bool {
        matches!(self.origin, Origin::LaterVersion(_))
    }

    /// The class of the failure for which it was given up, or else of its last failure; `None` where none was written down.
    #[must_use]
    pub fn class(&self) -> Option<FailureClass> {
        let named = self.why.class.as_deref().and_then(FailureClass::from_name);
        named.or_else(|| self.state()?.class)
    }

    /// Why it was given up, in the words of [`DeadLetterReason`](crate::DeadLetterReason); `None` unless the dead-letter mode was one
    /// that writes it down.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.why.reason.as_deref()
    }

    /// The words of the failure for which it was given up.
    #[must_use]
    pub fn detail(&self) -> Option<&str> {
        self.why.detail.as_deref()
    }

    /// When it was given up.
    #[must_use]
    pub fn failed_at(&self) -> Option<SystemTime> {
        Some(self.why.failed_at.as_deref()?.parse::<Timestamp>().ok()?.into())
    }

    /// Retries used.
    #[must_use]
    pub fn retry_count(&self) -> Option<u32> {
        self.why.retry_count.or_else(|| Some(self.state()?.retry_count))
    }

    /// The id of the first delivery; `None` of a message that was never sent again, whose own id that is.
    #[must_use]
    pub fn original_message_id(&self) -> Option<&str> {
        self.state()?.original_message_id.as_deref()
    }

    /// When it was first sent, by SQS's clock.
    #[must_use]
    pub fn first_sent(&self) -> Option<SystemTime> {
        self.state()?.first_sent
    }

    /// How often it was brought back from a dead-letter queue.
    #[must_use]
    pub fn redrives(&self) -> u32 {
        self.state().map_or(0, |state| state.redrives)
    }

    /// The queue that it says it came from, if it was sent to the dead-letter queue in the mode `direct`.
    #[must_use]
    pub fn source(&self) -> Option<&str> {
        self.state()?.source.as_deref()
    }

    /// The body of a copy, sent `now`, that has all its retries and all its time again, after however many redrives. It keeps the id of
    /// the first delivery. `None` of a message without our members: as it lies it has nothing behind it.
    #[must_use]
    pub fn afresh(&self, now: SystemTime) -> Option<String> {
        let state = self.state()?;
        let afresh = RetryState {
            original_message_id: state.original_message_id.clone(),
            retry_timestamp: Some(now),
            // Counted on: a later redrive finds the limit where it was.
            redrives: state.redrives.saturating_add(1),
            unknown: state.unknown.clone(),
            ..RetryState::default()
        };
        // What could not hold our members itself is wrapped already.
        let stamped = stamp(&self.payload, &afresh, Wrap::WhenNeeded).ok()?;
        Some(stamped.as_str().to_owned())
    }

    fn state(&self) -> Option<&RetryState> {
        match &self.origin {
            Origin::Ours(state) => Some(state),
            Origin::Fresh { .. } | Origin::LaterVersion(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn dead(payload: &str, redrives: u32, why: Option<&str>) -> String {
        let state = RetryState {
            retry_count: 3,
            original_message_id: Some("m-1".to_owned()),
            class: Some(FailureClass::Temporary),
            counts: [0, 0, 3, 0],
            redrives,
            dead_letter: why.map(str::to_owned),
            source: Some("arn:aws:sqs:r:1:orders".to_owned()),
            unknown: vec![("later".to_owned(), "[1]".to_owned())],
            ..RetryState::default()
        };
        stamp(payload, &state, Wrap::WhenNeeded).expect("wrapped").as_str().to_owned()
    }

    #[test]
    fn what_is_written_down_is_read_and_the_rest_is_unknown() {
        let whole = r#"{"class":"quota","reason":"too-old","detail":"a\u001b[31m","retryCount":7,"failedAt":"1970-01-01T00:00:09Z"}"#;
        for (why, class, reason, detail, retries, failed) in [
            (Some(whole), FailureClass::Quota, Some("too-old"), Some("a [31m"), 7, Some(9)),
            (Some(r#"{"reason":"expired"}"#), FailureClass::Temporary, Some("expired"), None, 3, None),
            (Some(r#"{"reason":1,"class":"quota"}"#), FailureClass::Temporary, None, None, 3, None),
            (None, FailureClass::Temporary, None, None, 3, None),
        ] {
            let body = dead("{}", 0, why);
            let read = DeadLetter::read(&body);
            assert_eq!((read.class(), read.reason(), read.detail()), (Some(class), reason, detail), "{why:?}");
            assert_eq!(read.retry_count(), Some(retries));
            let at = |secs| SystemTime::UNIX_EPOCH + Duration::from_secs(secs);
            assert_eq!(read.failed_at(), failed.map(at));
        }
        for body in ["text", "{}", r#"{"retryCount":3}"#] {
            let read = DeadLetter::read(body);
            assert_eq!((read.payload(), read.class(), read.retry_count()), (body, None, None));
            assert_eq!(read.afresh(SystemTime::UNIX_EPOCH), None);
        }
    }

    #[test]
    fn a_copy_that_starts_afresh_keeps_the_payload_and_the_first_id_and_nothing_that_was_used() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        for payload in ["{ \"a\" : 1.0 }", "text", "[1]", r#"{"retryCount":"mine"}"#, r#"{"retryBody":1}"#] {
            let body = dead(payload, 10, Some(r#"{"reason":"expired"}"#));
            let copy = DeadLetter::read(&body).afresh(now).expect("ours");
            let Origin::Ours(state) = crate::wire::read(&copy, 0).origin else { panic!("ours: {copy}") };
            assert_eq!(DeadLetter::read(&copy).payload(), payload);
            let expected = RetryState {
                original_message_id: Some("m-1".to_owned()),
                retry_timestamp: Some(now),
                redrives: 11,
                unknown: vec![("later".to_owned(), "[1]".to_owned())],
                ..RetryState::default()
            };
            assert_eq!(*state, expected);
        }
    }
}
