//! `--verbose`: a line for each message, without its body.

use std::time::{Duration, SystemTime};

use requeue::Mode;

use super::line::brief;
use crate::observe::{Event, Events, Kind, Reader, short_id};
use crate::table::{clock_time, cut};
use crate::terminal::{Screen, columns};

/// The lines of the messages.
pub(super) struct Lines {
    /// Without a terminal, the log has a line for each message that did not simply complete; the
    /// others are added.
    screen: Option<Screen>,
    reader: Reader,
}

impl Lines {
    pub(super) fn new(screen: Option<Screen>, events: &Events) -> Self {
        Self { screen, reader: events.read_from(0) }
    }

    /// Writes a line for each message. It has no end, and can go on later.
    pub(super) async fn write(&mut self, mode: Mode) {
        loop {
            let batch = self.reader.next().await;
            if batch.missed > 0 {
                tracing::warn!(events = batch.missed, "too many messages to show each");
            }
            for event in batch.events {
                self.write_one(&event, mode);
            }
        }
    }

    /// The messages since the last line.
    fn write_one(&self, event: &Event, mode: Mode) {
        match &self.screen {
            Some(screen) => {
                if let Some(line) = line(event, mode, columns()) {
                    // A lost terminal does not end the worker.
                    let _ = screen.above(&format!("{line}\n"));
                }
            }
            None if is_done(event) => tracing::info!(
                messageId = event.ids.own,
                originalMessageId = event.ids.original,
                attempt = event.attempt,
                elapsedMs = event.elapsed_ms,
                "done"
            ),
            None => {}
        }
    }
}

fn is_done(event: &Event) -> bool {
    event.kind == Kind::Ended && event.class.is_none() && event.reason.is_none()
}

/// `12:04:05  3f9a1c2e  attempt 2  503 → retry in 8 s (temporary)  41 ms`, without the time of the
/// call if that has more columns, and without the end of a reason that is longer still. A message
/// that SQS keeps has its receive instead: `receive 3 of 5`.
fn line(event: &Event, mode: Mode, columns: usize) -> Option<String> {
    let reason = event.reason.as_deref().map(|reason| match reason {
        "not-retried" => "dead-lettered before".to_owned(),
        "annotated" => "the copy with the reason".to_owned(),
        _ => brief(reason),
    });
    let because = || reason.as_deref().map(|why| format!(" ({why})")).unwrap_or_default();
    let delay = event.delay.map(|secs| format!(" {secs} s")).unwrap_or_default();
    let result = match event.kind {
        Kind::Ended if is_done(event) => "done".to_owned(),
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
        Kind::DeadLettered => format!("dead-lettered{}", because()),
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
    let line = format!("{}  {id}  {number}  {result}", clock_time(at));
    let line = requeue::printable::line(&line);
    let whole = format!("{line}{elapsed}");
    Some(if whole.chars().count() <= columns { whole } else { cut(&line, columns) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::Ids;

    #[test]
    fn a_message_is_one_line_when_its_attempt_is_settled() {
        let of_width = |kind, class, reason: Option<&str>, delay, columns| {
            let ids = Ids::new("copy", "3f9a1c2e-0000");
            let event = Event {
                at: 43_445_000,
                attempt: Some(2),
                elapsed_ms: Some(41),
                class,
                delay,
                ..Event::now(kind, ids)
            };
            line(&Event { at: 43_445_000, ..event.reason(reason) }, Mode::Requeue, columns)
        };
        let of = |kind, class, reason, delay| of_width(kind, class, reason, delay, 79);
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
                Some("dead-lettered (non-retryable: 400)"),
            ),
            (of(Kind::Received, None, None, None), None),
        ] {
            let whole = said.map(|said| format!("12:04:05  3f9a1c2e  attempt 2  {said}  41 ms"));
            assert_eq!(line, whole);
        }
        for (columns, end) in
            [(55, "503 → retry in 8 s (tem…"), (79, "503 → retry in 8 s (temporary)  41 ms")]
        {
            let narrow = of_width(Kind::Requeued, temporary, Some("status 503"), Some(8), columns);
            assert_eq!(narrow, Some(format!("12:04:05  3f9a1c2e  attempt 2  {end}")));
        }
    }
}
