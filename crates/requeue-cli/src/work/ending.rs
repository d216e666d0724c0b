//! The end of a worker after the first signal: the handlers that still run, and the time they have.

use std::fmt;
use std::time::Duration;

use requeue::Progress;
use tokio::time::Instant;

use super::line::seconds;
use super::trouble::fitting;
use crate::table::{messages, thousands};

/// The messages that a worker has received and not yet settled.
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
    began: Option<Instant>,
    is_logged: bool,
}

impl Ending {
    pub(super) fn of(limit: Duration) -> Self {
        Self { limit, began: None, is_logged: false }
    }

    pub(super) fn has_begun(&self) -> bool {
        self.began.is_some()
    }

    pub(super) fn begin(&mut self) {
        self.began = Some(Instant::now());
    }

    /// A line of at most so many columns.
    pub(super) fn line(&self, hand: InHand, columns: usize) -> Option<String> {
        let rest = format!("{} left; a second Ctrl-C ends it", seconds(self.rest()?));
        let (hand, at_once) = (format!("{hand}, "), (1, " at once"));
        Some(fitting(&[(0, "ending: "), (2, &hand), (0, &rest), at_once], columns))
    }

    fn rest(&self) -> Option<Duration> {
        Some(self.limit.saturating_sub(self.began?.elapsed()))
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
        Some(format!("{hand}, {} left", seconds(self.rest()?)))
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

/// Done and copied messages may be handled again.
pub(super) fn not_deleted(progress: Progress) -> Option<String> {
    (progress.not_deleted > 0).then(|| {
        format!(
            "note: done or copied, but not confirmed as deleted: {}, which SQS may deliver again, or \
             move to the dead-letter queue; so they may be handled, or dead-lettered, twice",
            messages(progress.not_deleted)
        )
    })
}

/// Messages whose copy SQS may have stored are in the queue twice.
pub(super) fn in_doubt(copies: u64) -> Option<String> {
    (copies > 0).then(|| {
        let copies =
            if copies == 1 { "1 copy".to_owned() } else { format!("{} copies", thousands(copies)) };
        format!(
            "note: SQS did not confirm {copies}; those that it stored are handled too, so a message \
             may be handled, and dead-lettered, several times"
        )
    })
}

/// Each receive that SQS carried out counts, though its response was lost.
pub(super) fn lost(receives: u64) -> Option<String> {
    (receives > 0).then(|| {
        let s = if receives == 1 { "" } else { "s" };
        format!(
            "note: {} receive{s} without a response: if SQS carried them out, it counted them for their \
             messages, which become dead letters after maxReceiveCount receives",
            thousands(receives)
        )
    })
}

/// Calls without an end may have worked.
pub(super) fn cut_off(calls: u64) -> Option<String> {
    let (calls, were) = match calls {
        0 => return None,
        1 => ("1 call".to_owned(), "was"),
        calls => (format!("{} calls", thousands(calls)), "were"),
    };
    Some(format!(
        "note: {calls} {were} cut off at the end and may have worked; SQS delivers the messages again"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn after_a_signal_the_handlers_and_the_time_left_are_shown() {
        let mut ending = Ending::of(Duration::from_secs(30));
        let hand = |running, unsettled| InHand { running, unsettled };
        assert_eq!(ending.line(hand(2, 0), 79), None);
        ending.begin();
        tokio::time::advance(Duration::from_secs(2)).await;
        let second = "28 s left; a second Ctrl-C ends it at once";
        for (hand, columns, line) in [
            (hand(2, 0), 79, format!("ending: 2 handlers still run, {second}")),
            (
                hand(1, 1),
                99,
                format!("ending: 1 handler still runs, 1 message to settle, {second}"),
            ),
            (hand(0, 3), 99, format!("ending: no handler runs, 3 messages to settle, {second}")),
            (hand(2, 0), 66, format!("ending: 2 handlers still run, {}", &second[..34])),
            (hand(0, 10), 60, "ending: 28 s left; a second Ctrl-C ends it".to_owned()),
        ] {
            assert_eq!(ending.line(hand, columns), Some(line));
        }
    }
}
