//! One event in the life of a message.

use std::time::{Duration, SystemTime};

use requeue::{Clock, printable};
use serde::Serialize;

/// Most bytes of an id. Source: SQS developer guide, "Identifiers".
const MAX_ID: usize = 100;
/// Most bytes of a reason. The library's have no more characters.
const MAX_REASON: usize = 256;

/// An event. Fields that it has no value for are left out of its JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Event {
    /// Milliseconds since 1970.
    pub(crate) at: u64,
    pub(crate) kind: Kind,
    #[serde(flatten)]
    pub(crate) ids: Ids,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) class: Option<&'static str>,
    /// In seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) delay: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) attempt: Option<u32>,
    /// How often SQS has delivered the copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) receive_count: Option<u32>,
    /// The queue's `maxReceiveCount`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_receives: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) scope: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) elapsed_ms: Option<u64>,
}

/// The ids of a message; both empty for an event about no single message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Ids {
    /// Empty for a copy whose id SQS does not tell its sender.
    #[serde(rename = "messageId", skip_serializing_if = "String::is_empty")]
    pub(crate) own: String,
    /// The id of the first delivery, which all copies share.
    #[serde(rename = "originalMessageId", skip_serializing_if = "String::is_empty")]
    pub(crate) original: String,
}

impl Ids {
    pub(crate) fn new(own: &str, original: &str) -> Self {
        // A producer may have put anything else there.
        let original = printable::message_id(original).unwrap_or(own);
        Self { own: start(own, MAX_ID), original: start(original, MAX_ID) }
    }

    /// The ids of a message that was not sent again.
    pub(crate) fn first(own: &str) -> Self {
        Self::new(own, own)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// A message came into the queue.
    #[default]
    Sent,
    Received,
    /// The call of the handler began.
    Called,
    /// The call ended: without a class it succeeded, unless it has a reason.
    Ended,
    /// The library decided to try again, to wait, to leave the message to SQS, or to dead-letter it.
    Requeued,
    Deferred,
    Released,
    DeadLettered,
    /// SQS confirmed a copy with a delay.
    Copied,
    /// SQS confirmed a change of the visibility timeout.
    Hidden,
    /// SQS keeps the message, by the response of the function.
    Kept,
    Deleted,
    /// The message is in the dead-letter queue.
    Dead,
    CircuitOpened,
    CircuitClosed,
}

impl Event {
    pub(crate) fn now(kind: Kind, ids: Ids) -> Self {
        Self { at: epoch_millis(Clock::system().now()), kind, ids, ..Self::default() }
    }

    pub(crate) fn reason(self, reason: Option<&str>) -> Self {
        Self { reason: reason.map(|text| start(text, MAX_REASON)), ..self }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.kind == Kind::Ended && self.class.is_none() && self.reason.is_none()
    }

    /// Whether SQS moves the message to the dead-letter queue instead of delivering it again.
    pub(crate) fn is_last_receive(&self) -> bool {
        self.receive_count.zip(self.max_receives).is_some_and(|(count, max)| count >= max)
    }

    pub(crate) fn delay(self, delay: Duration) -> Self {
        Self { delay: Some(delay.as_secs()), ..self }
    }
}

/// The beginning of an id, which is enough for a person to tell messages apart.
pub(crate) fn short_id(id: &str) -> String {
    const CHARACTERS: usize = 8;
    printable::line(&id.chars().take(CHARACTERS).collect::<String>()).into_owned()
}

/// Milliseconds since 1970.
pub(crate) fn epoch_millis(time: SystemTime) -> u64 {
    millis(time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The beginning of a text that somebody else chose, in printable characters.
fn start(text: &str, max_bytes: usize) -> String {
    printable::line(&text[..text.floor_char_boundary(max_bytes)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_a_word_for_each_kind_of_a_messages_event() {
        let page = include_str!("../ui/assets/live.js");
        let (_, kinds) = page.split_once("const KINDS = {").expect("the table of the page");
        let (kinds, _) = kinds.split_once("};").expect("its end");
        for kind in [
            Kind::Sent,
            Kind::Received,
            Kind::Called,
            Kind::Ended,
            Kind::Requeued,
            Kind::Deferred,
            Kind::Released,
            Kind::DeadLettered,
            Kind::Copied,
            Kind::Hidden,
            Kind::Kept,
            Kind::Deleted,
            Kind::Dead,
        ] {
            let name = serde_json::to_value(kind).expect("a name");
            let name = name.as_str().expect("a text");
            let key = [format!("\"{name}\":"), format!("{name}:")];
            assert!(key.iter().any(|key| kinds.contains(key)), "{name}");
        }
    }
}
