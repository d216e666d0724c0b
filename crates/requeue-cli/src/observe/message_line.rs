//! A line for the end of an attempt at a message, without its body.

use std::time::{Duration, SystemTime};

use requeue::Mode;

use super::event::{Event, Kind, short_id};
use crate::table::clock_time;

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
    use crate::observe::Ids;

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
