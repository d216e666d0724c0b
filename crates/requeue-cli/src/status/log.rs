//! The facts in a function's log: its circuits, why its messages wait or fail, and why it cannot start.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use super::time;
use crate::function::LogEvent;
use crate::observe::{Kind, LogLine, start_error};

/// The lines of circuits, of messages that did not simply complete, and of failed starts.
pub(super) const PATTERN: &str = r#"{ ($.fields.messageId = "*") || ($.messageId = "*") || ($.fields.event = "circuit-*") || ($.event = "circuit-*") || ($.fields.event = "cannot-start") || ($.event = "cannot-start") }"#;

/// Any line of Requeue. A function that works writes one for each batch.
pub(super) const ANY: &str = r#"{ ($.fields.message = "*") || ($.message = "*") }"#;

/// Groups of failures that are kept. A service may invent codes.
const MAX_GROUPS: usize = 1_000;

/// The log stream of the circuit that all execution environments share.
const ALL: &str = "";

#[derive(Debug, Default)]
pub(super) struct LogFacts {
    /// The last change of each circuit, by the log stream of its execution environment and its scope.
    changes: BTreeMap<(String, Option<String>), Change>,
    /// The last deferral by an open circuit, by log stream, and the time at which its message is due.
    deferrals: BTreeMap<String, (u64, u64)>,
    /// The number of lines with each reason to fail or to wait, and the time of the last one.
    failures: BTreeMap<Failure, (u64, u64)>,
    cannot_start: Option<(u64, String)>,
}

#[derive(Clone, Debug)]
struct Change {
    at: u64,
    is_open: bool,
    cause: Option<String>,
}

fn of_stream(stream: &str) -> impl Fn(&(&(String, Option<String>), &Change)) -> bool {
    move |(of, _)| of.0 == stream
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Failure {
    /// `retried`, `deferred`, `dead-lettered` or `left to SQS`.
    pub(super) result: &'static str,
    /// `None` for a message that waits without a failure of its own.
    pub(super) class: Option<&'static str>,
    pub(super) reason: String,
}

/// Times are in milliseconds since 1970.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Circuit {
    /// No line reports an open one.
    NotOpened,
    Closed {
        at: u64,
    },
    Open {
        since: u64,
        /// The execution environments; `None` for all.
        environments: Option<usize>,
        cause: Option<String>,
    },
}

impl LogFacts {
    pub(super) fn take(&mut self, line: &LogEvent) {
        let Some(log_line) = LogLine::read(line.message.trim()) else { return };
        let (at, stream) = (line.timestamp, &line.log_stream_name);
        let failure = start_error(&line.message).map(|error| (at, error));
        self.cannot_start = self.cannot_start.take().max(failure);
        let Some(event) = log_line.event(None) else { return };
        let result = match event.kind {
            Kind::CircuitOpened | Kind::CircuitClosed => {
                let is_open = event.kind == Kind::CircuitOpened;
                let stream = if log_line.is_shared { ALL } else { stream };
                let change = Change { at, is_open, cause: event.reason };
                let known = self.changes.entry((stream.to_owned(), log_line.scope));
                let known = known.or_insert_with(|| change.clone());
                // Lines of several streams come in no order.
                if change.at >= known.at {
                    *known = change;
                }
                return;
            }
            Kind::Deferred => "deferred",
            Kind::Requeued => "retried",
            Kind::DeadLettered => "dead-lettered",
            Kind::Released => "left to SQS",
            _ => return,
        };
        let (class, reason) =
            (event.class, event.reason.unwrap_or_else(|| "no reason given".to_owned()));
        match reason.as_str() {
            "circuit-open" if result == "deferred" => {
                let latest = self.deferrals.entry(stream.clone()).or_default();
                *latest = (at, at + 1_000 * event.delay.unwrap_or_default()).max(*latest);
            }
            // It was counted when it was dead-lettered.
            "not-retried" | "annotated" if class.is_none() => return,
            _ => {}
        }
        let mut key = Failure { result, class, reason };
        if self.failures.len() >= MAX_GROUPS && !self.failures.contains_key(&key) {
            "other reasons".clone_into(&mut key.reason);
        }
        let (count, last) = self.failures.entry(key).or_default();
        (*count, *last) = (*count + 1, at.max(*last));
    }

    pub(super) fn start_failure(&self) -> Option<(SystemTime, &str)> {
        self.cannot_start.as_ref().map(|(at, why)| (time(*at), why.as_str()))
    }

    /// The circuit, by its changes and its deferrals: it may have opened before the first line.
    pub(super) fn circuit(&self) -> Circuit {
        let is_open = |(_, change): &(&(String, _), &Change)| change.is_open;
        if let Some((_, all)) = self.changes.iter().filter(of_stream(ALL)).find(is_open) {
            return Circuit::Open { since: all.at, environments: None, cause: all.cause.clone() };
        }
        let closed = self.changes.values().filter(|change| !change.is_open);
        let closed_at = closed.map(|change| change.at).max();
        let latest = self.changes.iter().filter(is_open).max_by_key(|(_, change)| change.at);
        let since = self.changes.iter().filter(is_open).map(|(_, change)| change.at).min();
        if let (Some((_, latest)), Some(since)) = (latest, since) {
            let streams = self.changes.iter().filter(is_open).map(|((stream, _), _)| stream);
            let environments = Some(streams.collect::<BTreeSet<_>>().len());
            return Circuit::Open { since, environments, cause: latest.cause.clone() };
        }
        // Deferrals after the last change of their stream and of all.
        let changed = |stream: &str| {
            let changes = self.changes.iter().filter(of_stream(stream));
            changes.map(|(_, change)| change.at).max().unwrap_or_default()
        };
        let deferred = self.deferrals.iter();
        let deferred = deferred.filter(|(stream, (at, _))| *at > changed(stream).max(changed(ALL)));
        let (since, count) = (deferred.clone().map(|(_, (at, _))| *at).min(), deferred.count());
        match (since, closed_at) {
            (Some(since), _) => Circuit::Open { since, environments: Some(count), cause: None },
            (None, Some(at)) => Circuit::Closed { at },
            (None, None) => Circuit::NotOpened,
        }
    }

    /// The earliest time after `now` at which a message that an open circuit deferred is due.
    pub(super) fn next_due(&self, now: u64) -> Option<u64> {
        self.deferrals.values().map(|(_, due)| *due).filter(|due| *due > now).min()
    }

    /// The latest first, each with the number of messages and the time of the last one.
    pub(super) fn failures(&self) -> Vec<(&Failure, u64, u64)> {
        let each = self.failures.iter().map(|(failure, (count, at))| (failure, *count, *at));
        let mut each: Vec<_> = each.collect();
        each.sort_by_key(|(.., at)| std::cmp::Reverse(*at));
        each
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(lines: &[(&str, u64, &str)]) -> LogFacts {
        let mut facts = LogFacts::default();
        for (stream, at, message) in lines {
            facts.take(&LogEvent {
                log_stream_name: (*stream).to_owned(),
                timestamp: *at,
                message: (*message).to_owned(),
                ..LogEvent::default()
            });
        }
        facts
    }

    const OPENED: &str = r#"{"fields":{"event":"circuit-opened","cause":"status 503"}}"#;
    const CLOSED: &str = r#"{"fields":{"event":"circuit-closed"}}"#;
    const OTHER_CLOSED: &str = r#"{"fields":{"event":"circuit-closed","scope":"1b9ee6b4"}}"#;
    const ALL_OPENED: &str =
        r#"{"fields":{"event":"circuit-opened","isShared":true,"cause":"timeout"}}"#;
    const ALL_CLOSED: &str = r#"{"fields":{"event":"circuit-closed","isShared":true}}"#;
    const DEFERRED: &str = r#"{"fields":{"messageId":"m","disposition":"defer","reason":"circuit-open","delaySeconds":21}}"#;

    #[test]
    fn a_circuit_is_open_until_a_line_of_the_same_environment_closes_it() {
        let open = |since, environments, cause: &str| {
            let cause = Some(cause.to_owned()).filter(|cause| !cause.is_empty());
            Circuit::Open { since, environments, cause }
        };
        for (lines, expected) in [
            (&[][..], Circuit::NotOpened),
            (&[("a", 1, OPENED)], open(1, Some(1), "status 503")),
            (&[("a", 1, OPENED), ("a", 2, CLOSED)], Circuit::Closed { at: 2 }),
            (&[("a", 2, CLOSED), ("a", 1, OPENED)], Circuit::Closed { at: 2 }),
            (&[("a", 1, OPENED), ("b", 2, CLOSED)], open(1, Some(1), "status 503")),
            (&[("a", 1, OPENED), ("b", 2, OPENED)], open(1, Some(2), "status 503")),
            (&[("a", 1, OPENED), ("a", 2, OTHER_CLOSED)], open(1, Some(1), "status 503")),
            (&[("a", 1, ALL_OPENED)], open(1, None, "timeout")),
            (&[("a", 1, ALL_OPENED), ("b", 2, ALL_CLOSED)], Circuit::Closed { at: 2 }),
            (&[("a", 5, DEFERRED)], open(5, Some(1), "")),
            (&[("a", 5, DEFERRED), ("a", 6, CLOSED)], Circuit::Closed { at: 6 }),
            (&[("a", 5, DEFERRED), ("b", 6, ALL_CLOSED)], Circuit::Closed { at: 6 }),
        ] {
            assert_eq!(facts(lines).circuit(), expected, "{lines:?}");
        }
    }

    #[test]
    fn failures_are_counted_by_result_class_and_reason_and_the_latest_is_first() {
        let line = |disposition: &str, detail: &str| {
            format!(
                r#"{{"fields":{{"messageId":"m","disposition":"{disposition}","class":"temporary","detail":"{detail}"}}}}"#
            )
        };
        let (retried, dead) = (line("requeue", "status 503"), line("dead-letter", "status 500"));
        let lines = [("a", 3, retried.as_str()), ("b", 1, &retried), ("a", 2, &dead)];
        let failures = facts(&[&lines[..], &[("a", 9, DEFERRED), ("a", 9, "START")]].concat());
        assert_eq!(
            [8, 9, 21_008, 21_009].map(|now| failures.next_due(now)),
            [Some(21_009), Some(21_009), Some(21_009), None]
        );
        let shown = failures.failures().into_iter();
        let shown: Vec<_> =
            shown.map(|(one, count, at)| (one.result, &*one.reason, count, at)).collect();
        let deferred = ("deferred", "circuit-open", 1, 9);
        let expected = [("retried", "status 503", 2, 3), ("dead-lettered", "status 500", 1, 2)];
        assert_eq!(shown, [&[deferred], &expected[..]].concat());
    }

    #[test]
    fn a_message_that_waits_without_a_class_is_told_with_its_reason() {
        let refused = "Lambda cannot invoke the function: ResourceNotFoundException";
        for (disposition, reason, detail, expected) in [
            ("defer", "call-refused", refused, Some("deferred")),
            ("defer", "unclear", "", Some("deferred")),
            ("defer", "table-throttled", "", Some("deferred")),
            ("release", "abandoned", "", Some("left to SQS")),
            ("release", "later-version", "", Some("left to SQS")),
            ("dead-letter", "deferred-too-often", "", Some("dead-lettered")),
            ("release", "not-retried", "", None),
            ("release", "annotated", "", None),
            ("complete", "already-completed", "", None),
        ] {
            let mut fields = serde_json::json!({ "messageId": "m", "disposition": disposition, "reason": reason });
            let mut told = reason.to_owned();
            if !detail.is_empty() {
                fields["detail"] = detail.into();
                told = format!("{reason}: {detail}");
            }
            let line = serde_json::json!({ "fields": fields }).to_string();
            let facts = facts(&[("a", 1, &line), ("b", 2, &line)]);
            let shown = facts.failures();
            let shown = shown
                .first()
                .map(|(one, count, at)| (one.result, one.class, &*one.reason, *count, *at));
            assert_eq!(shown, expected.map(|result| (result, None, &*told, 2, 2)), "{line}");
        }
    }

    #[test]
    fn the_last_start_that_failed_is_known() {
        let line = |error: &str| {
            let fields = serde_json::json!({ "event": "cannot-start", "error": error });
            serde_json::json!({ "fields": fields }).to_string()
        };
        let (first, last) =
            (line("REQUEUE_POLICY is no JSON"), line("invalid:\n  REQUEUE_TARGET_URL is missing"));
        let facts = facts(&[("b", 9, last.as_str()), ("a", 3, &first)]);
        assert_eq!(
            facts.start_failure(),
            Some((time(9), "invalid: REQUEUE_TARGET_URL is missing"))
        );
        let text =
            r#"ERROR the function cannot start event="cannot-start" error=REQUEUE_WRAP is `a`"#;
        assert_eq!(start_error(text).as_deref(), Some("REQUEUE_WRAP is `a`"));
        assert_eq!(start_error(&last.replace("cannot-start", "other")), None);
    }

    #[test]
    fn the_groups_of_failures_are_bounded() {
        let lines: Vec<String> = (0..2 * MAX_GROUPS)
            .map(|number| {
                format!(
                    r#"{{"messageId":"m","disposition":"requeue","class":"temporary","detail":"{number}"}}"#
                )
            })
            .collect();
        let lines: Vec<_> = lines.iter().map(|line| ("a", 1, line.as_str())).collect();
        assert_eq!(facts(&lines).failures().len(), MAX_GROUPS + 1);
    }
}
