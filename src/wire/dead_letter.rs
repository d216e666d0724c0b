//! Reads a dead letter by its body: why it was dead-lettered, for people and programs that work on
//! a dead-letter queue. It decides nothing about a message in retry; see `delivery.rs`.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::{Origin, Wrap, stamp};
use crate::clock::rfc3339;
use crate::failure::{Detail, FailureClass};
use crate::state::{REDRIVE_TOLERANCE, RetryState};

/// A copy that was sent later than this is recognised as a redrive.
const LATELY: Duration = Duration::from_secs(REDRIVE_TOLERANCE.as_secs() + 60);

/// A message in a dead-letter queue, by its body: why it was dead-lettered, and the body as first
/// delivered.
///
/// A sender can write anything into a body, so the texts found here are for a person to read. Texts
/// are scrubbed, so that a terminal can show them.
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
    info: DeadLetterInfo,
}

/// Why and where a message was dead-lettered, as [`Message::dead_letter`](crate::Message::dead_letter)
/// returns it to the consumer of a dead-letter queue.
///
/// A sender can write it, so it is for people and logs and proves nothing. Texts are scrubbed and
/// have at most 256 characters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeadLetterInfo {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) class: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retry_count: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failed_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) source: Option<String>,
}

impl DeadLetterInfo {
    /// The class of the failure for which the message was dead-lettered.
    pub fn class(&self) -> Option<FailureClass> {
        self.class.as_deref().and_then(FailureClass::from_name)
    }

    /// Why it was dead-lettered, in the words of [`DeadLetterReason`](crate::DeadLetterReason). `None`
    /// in the mode [`Redrive`](crate::DeadLetterMode::Redrive), which writes no reason.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// The words of the failure for which it was dead-lettered.
    pub fn detail(&self) -> Option<&str> {
        self.detail.as_deref()
    }

    /// The service's own words for that failure, scrubbed. `None` unless the settings have
    /// [`DetailText::On`](crate::DetailText).
    pub fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// Retries used before.
    pub fn retry_count(&self) -> Option<u32> {
        self.retry_count
    }

    /// When it was dead-lettered.
    pub fn failed_at(&self) -> Option<SystemTime> {
        rfc3339(self.failed_at.as_deref()?)
    }

    /// The ARN of its source queue. If SQS moved it to the dead-letter queue, SQS names that queue;
    /// otherwise the message does. `None` for a redriven message, unless it was sent to the
    /// dead-letter queue in the mode [`Direct`](crate::DeadLetterMode::Direct).
    pub fn source(&self) -> Option<&str> {
        self.source.as_deref()
    }

    /// Reads `retryState.deadLetter` or `retryState.lastDeadLetter`; every field may be missing.
    pub(crate) fn read(text: &str) -> Self {
        let info: Self = serde_json::from_str(text).unwrap_or_default();
        let scrubbed =
            |text: Option<String>| text.map(|text| Detail::new(text).as_str().to_owned());
        let source = info.source.filter(|source| is_arn(source));
        let [reason, detail, text] = [info.reason, info.detail, info.text].map(scrubbed);
        Self { reason, detail, text, source, ..info }
    }

    /// The reason to remember of a message that is handled in a dead-letter queue, or after a
    /// redrive. Its other state no longer counts. If SQS moved it, `from` is the source that SQS
    /// names.
    pub(crate) fn to_remember(
        state: &RetryState,
        was_moved: bool,
        from: Option<String>,
    ) -> Option<String> {
        let info = match &state.dead_letter {
            Some(said) => Self::read(said),
            None if was_moved || state.source.is_some() => Self {
                class: state.class.map(|class| class.as_str().to_owned()),
                retry_count: state.class.map(|_| state.retry_count),
                ..Self::default()
            },
            None => return state.last_dead_letter.clone(),
        };
        let claimed = || state.source.clone().filter(|source| is_arn(source));
        let source = from.or_else(claimed);
        let class = info.class().map(|class| class.as_str().to_owned());
        Some(Self { class, source, ..info }.to_text())
    }

    pub(crate) fn to_text(&self) -> String {
        serde_json::to_string(self).expect("texts and a number are JSON")
    }
}

/// Whether the text has the characters and the length of a queue's ARN, so that it is safe to show.
fn is_arn(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    text.starts_with("arn:") && text.len() <= 256 && text.chars().all(is_part)
}

impl<'a> DeadLetter<'a> {
    /// After this many redrives a message gets no new retries.
    pub const MAX_REDRIVES: u32 = 10;

    /// Reads a body. It never fails: a foreign body has no facts about a dead letter.
    pub fn read(body: &'a str) -> Self {
        let read = super::read(body, 0);
        let info = match &read.origin {
            Origin::Ours(state) => state.dead_letter.as_deref().map(DeadLetterInfo::read),
            Origin::Fresh { .. } | Origin::LaterVersion(_) => None,
        };
        Self { payload: read.payload, origin: read.origin, info: info.unwrap_or_default() }
    }

    /// The body as first delivered, byte for byte. For a message of a later version, the whole
    /// body.
    pub fn payload(&self) -> &str {
        &self.payload
    }

    /// Whether a later version of this library wrote its state, so that its facts cannot be read.
    pub fn is_of_later_version(&self) -> bool {
        matches!(self.origin, Origin::LaterVersion(_))
    }

    /// The class of the failure for which it was dead-lettered, or else of its last failure; `None` if
    /// its body has neither.
    pub fn class(&self) -> Option<FailureClass> {
        self.info.class().or_else(|| self.state()?.class)
    }

    /// Why it was dead-lettered, in the words of [`DeadLetterReason`](crate::DeadLetterReason). `None`
    /// if the dead-letter mode writes no reason.
    pub fn reason(&self) -> Option<&str> {
        self.info.reason()
    }

    /// The words of the failure for which it was dead-lettered.
    pub fn detail(&self) -> Option<&str> {
        self.info.detail()
    }

    /// The service's own words for that failure: see [`DeadLetterInfo::text`].
    pub fn text(&self) -> Option<&str> {
        self.info.text()
    }

    /// When it was dead-lettered.
    pub fn failed_at(&self) -> Option<SystemTime> {
        self.info.failed_at()
    }

    /// Retries used.
    pub fn retry_count(&self) -> Option<u32> {
        self.info.retry_count.or_else(|| Some(self.state()?.retry_count))
    }

    /// The id of the first delivery. `None` for a message that was never sent again: its own id is
    /// that id.
    pub fn original_message_id(&self) -> Option<&str> {
        self.state()?.original_message_id.as_deref()
    }

    /// When it was first sent, by SQS's clock. For a message that was redriven and failed again,
    /// the time of its last redrive.
    pub fn first_sent(&self) -> Option<SystemTime> {
        self.state()?.first_sent
    }

    /// When it was first received, by Requeue's clock. For a message that was redriven, the first
    /// receive after its last redrive.
    pub fn first_received(&self) -> Option<SystemTime> {
        self.state()?.first_received
    }

    /// Retries used for failures of this class.
    pub fn retries_of(&self, class: FailureClass) -> u32 {
        self.state().map_or(0, |state| state.count(class))
    }

    /// The delay after its last failure, in whole seconds.
    pub fn last_delay(&self) -> Option<Duration> {
        self.state()?.delay
    }

    /// Deferrals since the last call of the handler.
    pub fn deferrals(&self) -> u32 {
        self.state().map_or(0, |state| state.deferrals)
    }

    /// How often it was redriven from a dead-letter queue, up to
    /// [`MAX_REDRIVES`](Self::MAX_REDRIVES).
    pub fn redrives(&self) -> u32 {
        self.state().map_or(0, |state| state.redrives)
    }

    /// The source queue that it names, if it was sent to the dead-letter queue in the mode
    /// `direct`.
    pub fn source(&self) -> Option<&str> {
        self.state()?.source.as_deref()
    }

    /// The body of a copy, sent `now`, with all its retries and all its time again, after any
    /// number of redrives. It keeps the id of the first delivery, and so the idempotency key. A
    /// message without Requeue's fields gets its own `id` as the key. `None` if a later version
    /// wrote the message. Also `None` if the message has no fields and is no JSON object, since a
    /// filter of the source's consumer may read it.
    pub fn afresh(&self, id: &str, now: SystemTime) -> Option<String> {
        let (state, wrap) = match &self.origin {
            // A payload that cannot hold Requeue's fields itself is wrapped already.
            Origin::Ours(state) => {
                let last_dead_letter = DeadLetterInfo::to_remember(state, false, None);
                (state.restarted(last_dead_letter), Wrap::WhenNeeded)
            }
            Origin::Fresh { .. } => {
                let first = RetryState {
                    original_message_id: Some(id.to_owned()),
                    ..RetryState::default()
                };
                (first.restarted(None), Wrap::Never)
            }
            Origin::LaterVersion(_) => return None,
        };
        let afresh = RetryState { retry_timestamp: Some(now), ..state };
        Some(stamp(&self.payload, &afresh, wrap)?.into_text())
    }

    /// Whether a copy that is sent `now` would not be recognised as a redrive by its time, since
    /// Requeue sent the message too recently. It starts again only by its body: see
    /// [`afresh`](Self::afresh).
    pub fn was_sent_lately(&self, now: SystemTime) -> bool {
        let sent = self.state().and_then(|state| state.retry_timestamp);
        sent.is_some_and(|sent| now.duration_since(sent).unwrap_or_default() <= LATELY)
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
    use super::*;

    fn at(secs: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(secs)
    }

    fn dead(payload: &str, redrives: u32, why: Option<&str>) -> String {
        let state = RetryState {
            retry_count: 3,
            original_message_id: Some("m-1".to_owned()),
            class: Some(FailureClass::Temporary),
            first_received: Some(at(1)),
            delay: Some(Duration::from_secs(300)),
            deferrals: 2,
            counts: [0, 0, 3, 0],
            redrives,
            dead_letter: why.map(str::to_owned),
            source: Some("arn:aws:sqs:eu-west-1:123456789012:orders".to_owned()),
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
            (
                Some(r#"{"reason":"expired"}"#),
                FailureClass::Temporary,
                Some("expired"),
                None,
                3,
                None,
            ),
            (Some(r#"{"reason":1,"class":"quota"}"#), FailureClass::Temporary, None, None, 3, None),
            (None, FailureClass::Temporary, None, None, 3, None),
        ] {
            let body = dead("{}", 0, why);
            let read = DeadLetter::read(&body);
            assert_eq!(
                (read.class(), read.reason(), read.detail()),
                (Some(class), reason, detail),
                "{why:?}"
            );
            assert_eq!(read.retry_count(), Some(retries));
            assert_eq!(read.first_received(), Some(at(1)));
            assert_eq!((read.last_delay(), read.deferrals()), (Some(Duration::from_secs(300)), 2));
            let used = FailureClass::ALL.map(|class| read.retries_of(class));
            assert_eq!(used, [0, 0, 3, 0]);
            assert_eq!(read.failed_at(), failed.map(at));
        }
        for body in ["text", "{}", r#"{"retryCount":3}"#] {
            let read = DeadLetter::read(body);
            assert_eq!((read.payload(), read.class(), read.retry_count()), (body, None, None));
            let copy = read.afresh("m-1", SystemTime::UNIX_EPOCH);
            assert_eq!(copy.is_some(), body.starts_with('{'), "{body}");
            if let Some(copy) = copy {
                let read = DeadLetter::read(&copy);
                assert_eq!((read.payload(), read.original_message_id()), (body, Some("m-1")));
                assert_eq!((read.retry_count(), read.redrives()), (Some(0), 1));
            }
            assert_eq!((read.first_received(), read.last_delay()), (None, None));
            assert_eq!((read.deferrals(), read.retries_of(FailureClass::Temporary)), (0, 0));
        }
    }

    #[test]
    fn what_a_message_died_of_is_remembered_bounded_and_its_source_is_the_word_of_sqs() {
        const ORDERS: &str = "arn:aws:sqs:eu-west-1:123456789012:orders";
        const BILLS: &str = "arn:aws:sqs:eu-west-1:123456789012:bills";
        let fresh = RetryState::default();
        let failed = RetryState {
            class: Some(FailureClass::Quota),
            retry_count: 7,
            ..RetryState::default()
        };
        let said = r#"{"class":"temporary","reason":"too-old","detail":"a\u001b","retryCount":3,"failedAt":"1970-01-01T00:00:09Z","x":1}"#;
        let annotated = RetryState { dead_letter: Some(said.to_owned()), ..failed.clone() };
        let sent = RetryState { source: Some(ORDERS.to_owned()), ..annotated.clone() };
        let forged = RetryState {
            source: Some("x\r\ny".to_owned()),
            dead_letter: Some(r#"{"class":"x"}"#.to_owned()),
            ..fresh.clone()
        };
        let again = RetryState { last_dead_letter: Some("{}".to_owned()), ..failed.clone() };
        let kept = r#""class":"temporary","reason":"too-old","detail":"a ","retryCount":3,"failedAt":"1970-01-01T00:00:09Z""#;
        for (state, was_moved, from, expected) in [
            (&fresh, false, None, None),
            (&failed, false, None, None),
            (&again, false, None, Some("{}".to_owned())),
            (&fresh, true, None, Some("{}".to_owned())),
            (&fresh, true, Some(BILLS), Some(format!(r#"{{"source":"{BILLS}"}}"#))),
            (
                &failed,
                true,
                Some(BILLS),
                Some(format!(r#"{{"class":"quota","retryCount":7,"source":"{BILLS}"}}"#)),
            ),
            (&annotated, false, None, Some(format!("{{{kept}}}"))),
            (&annotated, true, Some(BILLS), Some(format!(r#"{{{kept},"source":"{BILLS}"}}"#))),
            (&sent, false, None, Some(format!(r#"{{{kept},"source":"{ORDERS}"}}"#))),
            (&sent, true, Some(BILLS), Some(format!(r#"{{{kept},"source":"{BILLS}"}}"#))),
            (&forged, false, None, Some("{}".to_owned())),
        ] {
            assert_eq!(
                DeadLetterInfo::to_remember(state, was_moved, from.map(str::to_owned)),
                expected,
                "{state:?} {from:?}"
            );
        }
    }

    #[test]
    fn a_message_was_sent_lately_if_a_copy_would_not_be_taken_for_a_redrive() {
        let body = dead("{}", 0, None);
        let sent = DeadLetter::read(&body).state().and_then(|state| state.retry_timestamp);
        let sent = sent.expect("a time");
        for (after, is_lately) in [(0, true), (120, true), (180, true), (181, false)] {
            let now = sent + Duration::from_secs(after);
            assert_eq!(DeadLetter::read(&body).was_sent_lately(now), is_lately, "{after}");
        }
        assert!(DeadLetter::read(&body).was_sent_lately(sent - Duration::from_secs(5)));
        assert!(!DeadLetter::read("{}").was_sent_lately(sent), "it starts afresh anyway");
    }

    #[test]
    fn a_copy_that_starts_afresh_keeps_the_payload_and_the_first_id_and_nothing_that_was_used() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        for payload in
            ["{ \"a\" : 1.0 }", "text", "[1]", r#"{"retryCount":"mine"}"#, r#"{"retryBody":1}"#]
        {
            let body = dead(payload, 10, Some(r#"{"reason":"expired"}"#));
            let copy = DeadLetter::read(&body).afresh("another", now).expect("ours");
            let Origin::Ours(state) = crate::wire::read(&copy, 0).origin else {
                panic!("ours: {copy}")
            };
            assert_eq!(DeadLetter::read(&copy).payload(), payload);
            let expected = RetryState {
                original_message_id: Some("m-1".to_owned()),
                retry_timestamp: Some(now),
                redrives: 11,
                last_dead_letter: Some(
                    r#"{"reason":"expired","source":"arn:aws:sqs:eu-west-1:123456789012:orders"}"#
                        .to_owned(),
                ),
                unknown: vec![("later".to_owned(), "[1]".to_owned())],
                ..RetryState::default()
            };
            assert_eq!(*state, expected);
        }
    }
}
