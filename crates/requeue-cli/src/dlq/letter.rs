//! One message of a dead-letter queue: its known facts, and its JSON.

use std::collections::BTreeMap;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use requeue::queue::{Attribute, AttributeValue, Outgoing};
use requeue::{DeadLetter, FailureClass, Record};
use serde::Serialize;
use tokio::time::Instant;

use crate::table::moment;

/// The word for a missing class or reason.
pub(crate) const UNKNOWN: &str = "unknown";

/// A message that was received.
pub(crate) struct Letter {
    pub(crate) id: String,
    pub(crate) receipt_handle: String,
    pub(crate) body: String,
    pub(crate) record: Record,
    /// The time of the request: SQS has hidden the message since then at the earliest.
    pub(crate) asked: Instant,
}

impl Letter {
    /// `None` if a field is missing that every message of SQS has.
    pub(crate) fn new(mut record: Record, asked: Instant) -> Option<Self> {
        let (id, receipt_handle) = (record.message_id.take()?, record.receipt_handle.take()?);
        Some(Self { id, receipt_handle, body: record.body.take()?, record, asked })
    }

    pub(crate) fn read(&self) -> DeadLetter<'_> {
        DeadLetter::read(&self.body)
    }

    /// The bytes that SQS counts.
    pub(crate) fn size(&self) -> usize {
        let none = BTreeMap::new();
        let attributes = self.record.attributes.as_ref().unwrap_or(&none);
        Outgoing::new(&self.body, attributes).size()
    }

    /// The time of its first send, by its body, or else by SQS.
    pub(crate) fn first_sent(&self, dead: &DeadLetter<'_>) -> Option<SystemTime> {
        dead.first_sent().or(self.record.sent)
    }
}

pub(crate) fn class(dead: &DeadLetter<'_>) -> &'static str {
    dead.class().map_or(UNKNOWN, FailureClass::as_str)
}

pub(crate) fn reason<'a>(dead: &'a DeadLetter<'_>) -> &'a str {
    dead.reason().unwrap_or(UNKNOWN)
}

/// The source queue that this message claims. The claim is not verified: anybody who may send to
/// this queue, or to one before it, can write it. For a message that SQS itself moved here, only
/// SQS's own data count.
pub(crate) fn claimed_source<'a>(letter: &Letter, dead: &'a DeadLetter<'_>) -> Option<&'a str> {
    dead.source().filter(|_| !letter.record.was_dead_lettered)
}

/// The code of the downstream service in the text of a failure: `no-seat` in `status 422: no-seat,
/// by rules[0]`. A text of one word is a code itself.
pub(crate) fn code(detail: &str) -> Option<&str> {
    let own = match detail.strip_prefix("status ") {
        Some(rest) => rest.split_once(": ")?.1.split(", ").next()?,
        None => detail,
    };
    (!own.is_empty() && !own.contains(' ')).then_some(own)
}

/// The known facts of a message, as JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeadLetterJson<'a> {
    message_id: &'a str,
    original_message_id: &'a str,
    class: &'static str,
    reason: &'a str,
    detail: Option<&'a str>,
    code: Option<&'a str>,
    retry_count: Option<u32>,
    failed_at: Option<String>,
    first_sent: Option<String>,
    receive_count: Option<u32>,
    redrives: u32,
    moved_by_redrive_policy: bool,
    /// By SQS's data.
    moved_from: Option<String>,
    claimed_source: Option<&'a str>,
    group_id: Option<&'a str>,
    size_bytes: usize,
}

impl<'a> DeadLetterJson<'a> {
    pub(crate) fn of(letter: &'a Letter, dead: &'a DeadLetter<'_>) -> Self {
        Self {
            message_id: &letter.id,
            original_message_id: dead.original_message_id().unwrap_or(&letter.id),
            class: class(dead),
            reason: reason(dead),
            detail: dead.detail(),
            code: dead.detail().and_then(code),
            retry_count: dead.retry_count(),
            failed_at: dead.failed_at().and_then(moment),
            first_sent: letter.first_sent(dead).and_then(moment),
            receive_count: letter.record.receive_count,
            redrives: dead.redrives(),
            moved_by_redrive_policy: letter.record.was_dead_lettered,
            moved_from: letter.record.dead_letter_source.as_ref().map(ToString::to_string),
            claimed_source: claimed_source(letter, dead),
            group_id: letter.record.group_id.as_deref(),
            size_bytes: letter.size(),
        }
    }
}

/// A message attribute in the form of SQS's API and of the AWS CLI.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct AttributeJson<'a> {
    data_type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    string_value: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    binary_value: Option<String>,
}

impl<'a> From<&'a Attribute> for AttributeJson<'a> {
    fn from(attribute: &'a Attribute) -> Self {
        let (string_value, binary_value) = match &attribute.value {
            AttributeValue::Text(text) => (Some(text.as_str()), None),
            AttributeValue::Binary(bytes) => (None, Some(BASE64.encode(bytes))),
        };
        Self { data_type: &attribute.data_type, string_value, binary_value }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_a_failure_is_one_word_of_the_downstream_service() {
        for (detail, expected) in [
            ("status 422: outdated-fare", Some("outdated-fare")),
            ("status 422: no-seat, by rules[0]", Some("no-seat")),
            ("status 503", None),
            ("status 429: too many calls", None),
            ("v1-outdated", Some("v1-outdated")),
            ("order 7 timed out", None),
            ("", None),
        ] {
            assert_eq!(code(detail), expected, "{detail}");
        }
    }
}
