//! `--verbose`: a line for each message, without its body.

use requeue::Mode;

use crate::observe::{Event, Events, Reader, message_line};
use crate::terminal::{Screen, columns};

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
                if let Some(line) = message_line(event, mode, columns()) {
                    // A lost terminal does not end the worker.
                    let _ = screen.above(&format!("{line}\n"));
                }
            }
            None if event.is_done() => tracing::info!(
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
