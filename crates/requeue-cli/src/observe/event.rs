//! One event in the life of a message.

use std::time::{Duration, SystemTime};

use requeue::{Clock, Mode, printable};
use serde::Serialize;

use crate::table::clock_time;

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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) receive_count: Option<u32>,
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
    /// Empty for a copy whose id SQS does not return to its sender.
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
    Called,
    /// The call ended: without a class it succeeded, unless it has a reason.
    Ended,
    /// The library decided to retry, to wait, to leave the message to SQS, or to dead-letter it.
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
        self.receive_count.is_some() && self.receive_count == self.max_receives
    }

    pub(crate) fn delay(self, delay: Duration) -> Self {
        Self { delay: Some(delay.as_secs()), ..self }
    }
}

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

fn start(text: &str, max_bytes: usize) -> String {
    printable::line(&text[..text.floor_char_boundary(max_bytes)]).into_owned()
}

/// `12:04:05Z  3f9a1c2e  attempt 2  503 → retry in 8 s (temporary)  41 ms`. A message that SQS keeps
/// has its receive instead: `receive 3 of 5`.
pub(crate) fn message_line(event: &Event, mode: Mode) -> Option<String> {
    let reason = event.reason.as_deref().map(|reason| match reason {
        "not-retried" => "dead-lettered before".to_owned(),
        "annotated" => "the copy with the reason".to_owned(),
        _ => brief(reason),
    });
    let because = || reason.as_deref().map(|why| format!(" ({why})")).unwrap_or_default();
    let delay = event.delay.map(|secs| format!(" {secs} s")).unwrap_or_default();
    let result = match event.kind {
        Kind::Ended if event.is_done() => "done".to_owned(),
        Kind::Requeued => format!(
            "{} → retry in{delay}{}",
            reason.as_deref().unwrap_or("failed"),
            event.class.map(|class| format!(" ({class})")).unwrap_or_default()
        ),
        Kind::Deferred => format!("deferred{delay}{}", because()),
        Kind::Released => format!("left to SQS{}", because()),
        // SQS delivers it again.
        Kind::DeadLettered if mode == Mode::Report && !event.is_last_receive() => {
            format!("left to SQS{}", because())
        }
        // With `redrive` and `annotate`, SQS moves it only after further receives.
        Kind::DeadLettered => format!("→ dead-letter queue{}", because()),
        _ => return None,
    };
    let at = SystemTime::UNIX_EPOCH + Duration::from_millis(event.at);
    let id = short_id(&event.ids.original);
    let elapsed = event.elapsed_ms.map(|millis| format!("  {millis} ms")).unwrap_or_default();
    let number = match (event.kind, event.receive_count, event.max_receives) {
        (Kind::Released | Kind::DeadLettered, Some(count), Some(max)) => {
            format!("receive {count} of {max}")
        }
        _ => format!("attempt {}", event.attempt.unwrap_or(1)),
    };
    let line = format!("{}Z  {id}  {number}  {result}{elapsed}", clock_time(at));
    Some(requeue::printable::line(&line).into_owned() + "\n")
}

/// `503` for `status 503`, and `no copy: too long; 503`: a reason in few words.
pub(crate) fn brief(reason: &str) -> String {
    let reason = reason.strip_prefix("status ").unwrap_or(reason);
    reason.replacen("; status ", "; ", 1).replacen(": status ", ": ", 1)
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

    #[test]
    fn a_message_is_one_line_when_its_attempt_is_settled() {
        let of = |kind, class, reason: Option<&str>, delay| {
            let ids = Ids::new("copy", "3f9a1c2e-0000-4000-8000-000000000000");
            let event = Event {
                at: 43_445_000,
                attempt: Some(2),
                elapsed_ms: Some(41),
                class,
                delay,
                ..Event::now(kind, ids)
            };
            message_line(&Event { at: 43_445_000, ..event.reason(reason) }, Mode::Requeue)
        };
        let temporary = Some("temporary");
        for (line, said) in [
            (of(Kind::Ended, None, None, None), Some("done")),
            (of(Kind::Ended, temporary, Some("status 503"), None), None),
            (of(Kind::Ended, None, Some("no response in time"), None), None),
            (
                of(Kind::Requeued, temporary, Some("status 503"), Some(8)),
                Some("503 → retry in 8 s (temporary)"),
            ),
            (
                of(Kind::Deferred, None, Some("circuit-open"), Some(21)),
                Some("deferred 21 s (circuit-open)"),
            ),
            (
                of(Kind::Released, None, Some("shutting-down"), None),
                Some("left to SQS (shutting-down)"),
            ),
            (
                of(Kind::Released, None, Some("not-retried"), None),
                Some("left to SQS (dead-lettered before)"),
            ),
            (
                of(
                    Kind::DeadLettered,
                    Some("non-retryable"),
                    Some("non-retryable: status 400"),
                    None,
                ),
                Some("→ dead-letter queue (non-retryable: 400)"),
            ),
            (of(Kind::Received, None, None, None), None),
        ] {
            let whole = said.map(|said| format!("12:04:05Z  3f9a1c2e  attempt 2  {said}  41 ms\n"));
            assert_eq!(line, whole);
        }
    }
}
