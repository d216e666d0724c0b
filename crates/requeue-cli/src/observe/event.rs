//! One event in the life of a message.

use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use requeue::{Clock, FailureClass, LogLines, Mode, Outcome, printable};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;

use super::Observer;
use super::sqs::{RareLines, may_be_carried_out};
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

/// The beginning of the reason for a message whose copy may exist.
pub(crate) const MAY_EXIST: &str = "the copy may exist";

/// The library's code for a copy that was not sent: no time was left, or sends wait.
pub(crate) const NOT_SENT: &str = "NotSent";

/// The library's code for a message whose copy would be longer than SQS or its queue allows.
pub(crate) const TOO_LONG: &str = requeue::queue::MESSAGE_TOO_LONG;

/// The fields of a line of the library that say something about a message or a circuit.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct LogLine {
    pub(crate) message: String,
    message_id: Option<String>,
    original_message_id: Option<String>,
    retry_count: Option<u32>,
    receive_count: Option<u32>,
    class: Option<String>,
    disposition: Option<String>,
    reason: Option<String>,
    delay_seconds: Option<u64>,
    detail: Option<String>,
    settlement: Option<String>,
    elapsed_ms: Option<u64>,
    code: Option<String>,
    /// The failure that opened a circuit.
    cause: Option<String>,
}

impl LogLine {
    pub(crate) fn of(outcome: &Outcome) -> Self {
        let text = |text: &str| Some(text.to_owned());
        Self {
            message_id: outcome.message_id.clone(),
            original_message_id: outcome.original_message_id.clone(),
            retry_count: Some(outcome.retry_count),
            receive_count: Some(outcome.receive_count),
            class: outcome.class.and_then(|class| text(class.as_str())),
            disposition: text(outcome.disposition.as_str()),
            reason: outcome.reason().and_then(text),
            delay_seconds: outcome.disposition.wait().map(|wait| wait.total().as_secs()),
            detail: outcome.detail.clone(),
            settlement: text(outcome.settlement.as_str()),
            elapsed_ms: outcome.elapsed.map(millis),
            code: outcome.settlement.code().and_then(text),
            ..Self::default()
        }
    }

    /// A line of Requeue has its fields inside `fields`; that of another program may have the same.
    pub(crate) fn read(line: &str) -> Option<Self> {
        let Value::Object(mut line) = serde_json::from_str(line).ok()? else { return None };
        let fields = line.remove("fields").filter(Value::is_object);
        serde_json::from_value(fields.unwrap_or(Value::Object(line))).ok()
    }

    /// A message that SQS keeps on its last receive is on its way to the dead-letter queue.
    pub(crate) fn event(&self, max_receives: Option<u32>) -> Option<Event> {
        // A call that failed in an outage.
        let is_unserved = self.elapsed_ms.is_some()
            && matches!(self.reason.as_deref(), Some("circuit-open" | "paused"));
        let kind = match (self.disposition.as_deref(), self.message.as_str()) {
            (Some("requeue"), _) => Kind::Requeued,
            (Some("defer"), _) if is_unserved => Kind::Requeued,
            (Some("defer"), _) => Kind::Deferred,
            (Some("release"), _) => Kind::Released,
            (Some("dead-letter"), _) => Kind::DeadLettered,
            (Some("complete"), _) => Kind::Ended,
            (None, text) if text.starts_with("circuit") && text.contains(" opened") => {
                let opened = Event::now(Kind::CircuitOpened, Ids::default());
                return Some(opened.reason(self.cause.as_deref()));
            }
            (None, text) if text.starts_with("circuit") && text.ends_with(" closed") => {
                return Some(Event::now(Kind::CircuitClosed, Ids::default()));
            }
            _ => return None,
        };
        let id = self.message_id.as_deref()?;
        let ids = Ids::new(id, self.original_message_id.as_deref().unwrap_or(id));
        let reason = match (&self.reason, &self.detail) {
            (Some(reason), Some(detail)) if !is_unserved => Some(format!("{reason}: {detail}")),
            (Some(_), Some(detail)) => Some(detail.clone()),
            (reason, detail) => reason.clone().or_else(|| detail.clone()),
        };
        let undone = self.undone();
        let (kind, reason) = match &undone {
            Some(undone) => {
                let is_copy = self.settlement.as_deref() == Some("unconfirmed");
                let both = match reason {
                    // A narrow terminal cuts the end.
                    Some(reason) if is_copy => format!("{undone}; {reason}"),
                    Some(reason) => format!("{reason}; {undone}"),
                    None => undone.clone(),
                };
                (Kind::Released, Some(both))
            }
            None => (kind, reason),
        };
        let class = self.class.as_deref().and_then(FailureClass::from_name);
        let mut event = Event {
            class: class.map(FailureClass::as_str),
            delay: self.delay_seconds.filter(|_| undone.is_none()),
            attempt: self.retry_count.map(|retries| retries.saturating_add(1)),
            receive_count: self.receive_count,
            max_receives,
            elapsed_ms: self.elapsed_ms,
            ..Event::now(kind, ids).reason(reason.as_deref())
        };
        let stays = undone.is_some() || self.settlement.as_deref() == Some("kept");
        // It was told when it was dead-lettered.
        let is_told = matches!(self.reason.as_deref(), Some("not-retried" | "annotated"));
        if stays && !is_told && event.kind != Kind::Ended && event.is_last_receive() {
            (event.kind, event.delay) = (Kind::DeadLettered, None);
        }
        Some(event)
    }

    /// Why SQS keeps the message, though Requeue meant to send a copy or to hide it.
    fn undone(&self) -> Option<String> {
        let what = match self.settlement.as_deref()? {
            // SQS did not respond to the send, and may have stored the copy.
            "unconfirmed" if self.code.as_deref().is_some_and(may_be_carried_out) => MAY_EXIST,
            "unconfirmed" => "no copy",
            "kept-not-delayed" => "not hidden",
            _ => return None,
        };
        let why = match self.code.as_deref() {
            Some(TOO_LONG) => "too long",
            Some(NOT_SENT) => "not sent",
            Some(code) => code,
            None => "no confirmation",
        };
        Some(format!("{what}: {why}"))
    }
}

impl Observer {
    /// Notes an outcome. The terminal has one line for all messages that were not settled.
    fn settled(&self, outcome: &Outcome) -> bool {
        if outcome.simply_completed() {
            return false;
        }
        let line = LogLine::of(outcome);
        let max_receives = self.sqs().state().max_receives;
        if let Some(event) = line.event(max_receives) {
            self.0.causes.lock().note(&event, line.undone().is_some());
            self.tell(|| event);
        }
        let Some(code) = line.code.as_deref() else { return true };
        let id = line.original_message_id.as_deref().or(line.message_id.as_deref());
        self.sqs().not_settled(Some(code), id, 1);
        self.0.has_log
    }

    /// Whether a line about trouble is due.
    fn is_due(&self, lines: &Mutex<RareLines>) -> bool {
        self.0.has_log && lines.lock().is_due()
    }
}

/// Counts causes and trouble, publishes events, and logs those that no terminal shows.
impl requeue::Observer for Observer {
    fn observe(&self, event: &requeue::Event<'_>) {
        use requeue::Event as Heard;
        let number = |messages: usize| u64::try_from(messages).unwrap_or(u64::MAX);
        let is_logged = match *event {
            Heard::Settled(outcome) => self.settled(outcome),
            Heard::CircuitOpened { cause, is_enforced, .. } => {
                if is_enforced {
                    self.downstream().open.get_or_insert_with(Instant::now);
                }
                self.tell(|| Event::now(Kind::CircuitOpened, Ids::default()).reason(Some(cause)));
                true
            }
            Heard::CircuitClosed { .. } => {
                self.tell(|| Event::now(Kind::CircuitClosed, Ids::default()));
                true
            }
            Heard::ReceivingFailed { endpoint, code, pause, .. } => {
                self.sqs().failed(endpoint.unwrap_or_default(), code, pause);
                self.is_due(&self.0.receiving)
            }
            Heard::ReceivingWorks { .. } => {
                self.sqs().state().failing = None;
                self.0.receiving.lock().end()
            }
            Heard::NotExtended { code, messages, .. } => {
                self.sqs().not_settled(Some(code), None, number(messages));
                self.is_due(&self.0.extending)
            }
            Heard::NotDeleted { messages, .. } => {
                self.sqs().not_settled(None, None, number(messages));
                self.0.has_log
            }
            _ => true,
        };
        if is_logged {
            LogLines.observe(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::Ids;

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

    #[test]
    fn a_line_of_any_language_is_read_by_its_fields() {
        let message = r#"{"message":"message","messageId":"c","originalMessageId":"059f36b4-87a3-44ab-83d2-661975830a7d","retryCount":1,
            "class":"rate-limit","disposition":"requeue","delaySeconds":9,"detail":"status 429","elapsedMs":41}"#;
        let inside = format!(r#"{{"timestamp":"t","level":"INFO","fields":{message}}}"#);
        for line in [message, &inside] {
            let event = LogLine::read(line).and_then(|line| line.event(None)).expect("an event");
            assert_eq!(
                (event.kind, event.ids),
                (Kind::Requeued, Ids::new("c", "059f36b4-87a3-44ab-83d2-661975830a7d"))
            );
            assert_eq!((event.class, event.delay), (Some("rate-limit"), Some(9)));
            assert_eq!((event.attempt, event.elapsed_ms), (Some(2), Some(41)));
            assert_eq!(event.reason.as_deref(), Some("status 429"));
        }
        for (settlement, reason) in [
            ("unconfirmed", "no copy: too long; status 429"),
            ("kept-not-delayed", "status 429; not hidden: too long"),
        ] {
            let undone = format!(r#""code":"MessageTooLong","settlement":"{settlement}","#);
            let line = message.replacen('{', &format!("{{{undone}"), 1);
            let event = LogLine::read(&line).and_then(|line| line.event(None)).expect("an event");
            assert_eq!((event.kind, event.delay), (Kind::Released, None), "no retry");
            assert_eq!(event.reason.as_deref(), Some(reason));
        }
        for (code, reason) in [
            ("HTTP 503", "the copy may exist: HTTP 503; status 429"),
            ("HTTP 403", "no copy: HTTP 403; status 429"),
            ("ServiceUnavailable", "no copy: ServiceUnavailable; status 429"),
        ] {
            let undone = format!(r#"{{"code":"{code}","settlement":"unconfirmed","#);
            let line = message.replacen('{', &undone, 1);
            let event = LogLine::read(&line).and_then(|line| line.event(None)).expect("an event");
            assert_eq!(event.reason.as_deref(), Some(reason), "a gateway, or SQS itself");
        }
        let again = r#"{"messageId":"m","disposition":"release","reason":"not-retried","receiveCount":5,
            "settlement":"kept"}"#;
        let event = LogLine::read(again).and_then(|line| line.event(Some(5)));
        assert_eq!(event.map(|event| event.kind), Some(Kind::Released), "given up once");
        for (settlement, receives, kind) in [
            ("kept", 4, Kind::Requeued),
            ("kept", 5, Kind::DeadLettered),
            ("unconfirmed", 5, Kind::DeadLettered),
            ("moved", 5, Kind::Requeued),
        ] {
            let counted = format!(r#""receiveCount":{receives},"settlement":"{settlement}","#);
            let line = message.replacen('{', &format!("{{{counted}"), 1);
            let event = LogLine::read(&line).and_then(|line| line.event(Some(5)));
            assert_eq!(event.map(|event| event.kind), Some(kind), "{settlement} {receives}");
        }
        for (line, kind) in [
            (
                r#"{"fields":{"message":"circuit opened: messages wait, and a few of them probe"}}"#,
                Some(Kind::CircuitOpened),
            ),
            (r#"{"fields":{"message":"circuit closed"}}"#, Some(Kind::CircuitClosed)),
            (
                r#"{"fields":{"message":"circuit of all execution environments closed"}}"#,
                Some(Kind::CircuitClosed),
            ),
            (r#"{"fields":{"message":"circuit would open: REQUEUE_MODE is report"}}"#, None),
            (r#"{"fields":{"message":"batch","received":3}}"#, None),
            (
                r#"{"messageId":"m","disposition":"defer","reason":"circuit-open"}"#,
                Some(Kind::Deferred),
            ),
            (
                r#"{"messageId":"m","disposition":"defer","reason":"circuit-open","elapsedMs":3}"#,
                Some(Kind::Requeued),
            ),
            (r#"{"messageId":7}"#, None),
            ("START RequestId", None),
            ("[1]", None),
            ("", None),
        ] {
            let event = LogLine::read(line).and_then(|line| line.event(None));
            assert_eq!(event.map(|event| event.kind), kind, "{line}");
        }
    }
}
