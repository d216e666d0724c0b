//! A log line of the library as an event: that of an outcome here, or of a deployed function.

use requeue::{FailureClass, Outcome};
use serde::Deserialize;
use serde_json::Value;

use super::event::{Event, Ids, Kind, millis};
use super::sqs::may_be_carried_out;

/// The beginning of the reason for a message whose copy may exist.
pub(crate) const MAY_EXIST: &str = "the copy may exist";

/// The library's code for a copy that was not sent: no time was left, or sends wait.
pub(crate) const NOT_SENT: &str = "NotSent";

/// The library's code for a message whose copy would be longer than SQS or its queue allows.
pub(crate) const TOO_LONG: &str = requeue::queue::MESSAGE_TOO_LONG;

/// The fields of a line of the library about a message or a circuit.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct LogLine {
    /// The event, in a line that is not about a message.
    event: Option<String>,
    pub(super) message_id: Option<String>,
    pub(super) original_message_id: Option<String>,
    retry_count: Option<u32>,
    receive_count: Option<u32>,
    class: Option<String>,
    disposition: Option<String>,
    reason: Option<String>,
    delay_seconds: Option<u64>,
    detail: Option<String>,
    settlement: Option<String>,
    elapsed_ms: Option<u64>,
    pub(super) code: Option<String>,
    pub(crate) scope: Option<String>,
    pub(crate) is_shared: bool,
    cause: Option<String>,
    error: Option<Value>,
}

/// The error in the line of a function that cannot start, as JSON or as text. An error of several
/// settings has a line for each.
pub(crate) fn start_error(line: &str) -> Option<String> {
    let read = LogLine::read(line);
    let error = match &read {
        Some(read) if read.event.as_deref() == Some("cannot-start") => {
            read.error.as_ref()?.as_str()?
        }
        Some(_) => return None,
        None => line.split_once(r#"event="cannot-start" error="#)?.1,
    };
    Some(error.split_whitespace().collect::<Vec<_>>().join(" "))
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
        let kind = match (self.disposition.as_deref(), self.event.as_deref()) {
            (Some("requeue"), _) => Kind::Requeued,
            (Some("defer"), _) if is_unserved => Kind::Requeued,
            (Some("defer"), _) => Kind::Deferred,
            (Some("release"), _) => Kind::Released,
            (Some("dead-letter"), _) => Kind::DeadLettered,
            (Some("complete"), _) => Kind::Ended,
            (None, Some("circuit-opened")) => {
                let opened = Event::now(Kind::CircuitOpened, Ids::default());
                return Some(opened.reason(self.cause.as_deref()));
            }
            (None, Some("circuit-closed")) => {
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
        // It was shown when it was dead-lettered.
        let is_told = matches!(self.reason.as_deref(), Some("not-retried" | "annotated"));
        if stays && !is_told && event.kind != Kind::Ended && event.is_last_receive() {
            (event.kind, event.delay) = (Kind::DeadLettered, None);
        }
        Some(event)
    }

    /// Why SQS keeps the message, although Requeue intended a copy or a longer visibility timeout.
    pub(super) fn undone(&self) -> Option<String> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(event.map(|event| event.kind), Some(Kind::Released), "dead-lettered once");
        for (settlement, receives, kind) in [
            ("kept", 4, Kind::Requeued),
            ("kept", 5, Kind::DeadLettered),
            // The redrive policy was removed or raised.
            ("kept", 6, Kind::Requeued),
            ("unconfirmed", 5, Kind::DeadLettered),
            ("moved", 5, Kind::Requeued),
        ] {
            let counted = format!(r#""receiveCount":{receives},"settlement":"{settlement}","#);
            let line = message.replacen('{', &format!("{{{counted}"), 1);
            let event = LogLine::read(&line).and_then(|line| line.event(Some(5)));
            assert_eq!(event.map(|event| event.kind), Some(kind), "{settlement} {receives}");
        }
        for (line, kind) in [
            (r#"{"fields":{"message":"any","event":"circuit-opened"}}"#, Some(Kind::CircuitOpened)),
            (r#"{"event":"circuit-opened","isShared":true}"#, Some(Kind::CircuitOpened)),
            (r#"{"fields":{"event":"circuit-closed"}}"#, Some(Kind::CircuitClosed)),
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
