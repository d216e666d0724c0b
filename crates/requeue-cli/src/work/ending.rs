//! The end of a worker after the first signal: the handlers that still run, and the time they have.

use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use super::line::seconds;
use crate::observe::SqsState;
use crate::table::{counted, messages};

#[derive(Clone, Copy)]
pub(super) struct InHand {
    /// Those whose handler runs.
    pub(super) running: u64,
    /// The others: their delete, copy or release is not confirmed yet.
    pub(super) unsettled: u64,
}

/// The time from the first signal to the end of the process.
pub(super) struct Ending {
    limit: Duration,
    pub(super) began: Option<Instant>,
    is_logged: bool,
}

impl Ending {
    pub(super) fn of(limit: Duration) -> Self {
        Self { limit, began: None, is_logged: false }
    }

    /// Logs the end once, where no terminal shows it.
    pub(super) fn log(&mut self, hand: InHand) {
        if let Some(text) = self.text(hand).filter(|_| !self.is_logged) {
            self.is_logged = true;
            tracing::info!("ending: {text}; a second signal ends it at once");
        }
    }

    /// `2 handlers still run, 3 messages to settle, 28 s left`
    pub(super) fn text(&self, hand: InHand) -> Option<String> {
        let rest = self.limit.saturating_sub(self.began?.elapsed());
        Some(format!("{hand}, {} left", seconds(rest)))
    }
}

impl fmt::Display for InHand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.running {
            0 => write!(f, "no handler runs")?,
            1 => write!(f, "1 handler still runs")?,
            running => write!(f, "{running} handlers still run")?,
        }
        match self.unsettled {
            0 => Ok(()),
            count => write!(f, ", {} to settle", messages(count)),
        }
    }
}

/// The notes about messages that may be handled several times.
pub(super) fn doubts(not_deleted: u64, cut_off: u64, sqs: &SqsState) -> Vec<String> {
    let (copies, receives) = (sqs.copies_in_doubt, sqs.lost_receives);
    let were = if cut_off == 1 { "was" } else { "were" };
    let notes = [
        (
            not_deleted,
            format!(
                "note: done or copied, but not confirmed as deleted: {}, which SQS may deliver \
                 again, or move to the dead-letter queue; so they may be handled, or dead-lettered, twice",
                messages(not_deleted)
            ),
        ),
        (
            copies,
            format!(
                "note: SQS did not confirm {}; those that it stored are handled too, so a message \
                 may be handled, and dead-lettered, several times",
                counted(copies, "copy")
            ),
        ),
        (
            cut_off,
            format!(
                "note: {} {were} cut off at the end and may have worked; SQS delivers the messages \
                 again",
                counted(cut_off, "call")
            ),
        ),
        (
            receives,
            format!(
                "note: {} without a response: if SQS carried them out, it counted them for their \
                 messages, which become dead letters after maxReceiveCount receives",
                counted(receives, "receive")
            ),
        ),
    ];
    notes.into_iter().filter(|(count, _)| *count > 0).map(|(_, note)| note).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn after_a_signal_the_handlers_and_the_time_left_are_shown() {
        let mut ending = Ending::of(Duration::from_secs(30));
        let hand = |running, unsettled| InHand { running, unsettled };
        assert_eq!(ending.text(hand(2, 0)), None);
        ending.began = Some(Instant::now());
        tokio::time::advance(Duration::from_secs(2)).await;
        for (hand, running) in [
            (hand(2, 0), "2 handlers still run"),
            (hand(1, 1), "1 handler still runs, 1 message to settle"),
            (hand(0, 3), "no handler runs, 3 messages to settle"),
        ] {
            assert_eq!(ending.text(hand), Some(format!("{running}, 28 s left")));
        }
    }
}
