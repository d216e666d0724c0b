//! The end of a worker after the first signal: the handlers that still run, and the time they have.

use std::time::Duration;

use tokio::time::Instant;

use super::line::seconds;
use super::trouble::fitting;
use crate::table::messages;

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
        let text = self.text(hand)?;
        let whole = format!("ending: {text}; a second Ctrl-C ends it at once");
        let short = format!("ending: {text}; Ctrl-C ends now");
        let counts = format!("{} running, {} to settle", hand.running, hand.unsettled);
        let rest = seconds(self.rest()?);
        let counted = format!("ending: {counts}, {rest}; Ctrl-C ends now");
        let shortest = format!("ending: {rest} left; Ctrl-C ends now");
        Some(fitting([whole, short, counted, shortest], columns))
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
        let rest = self.rest()?;
        let handlers = match hand.running {
            0 => "no handler runs".to_owned(),
            1 => "1 handler still runs".to_owned(),
            running => format!("{running} handlers still run"),
        };
        let unsettled = match hand.unsettled {
            0 => String::new(),
            count => format!(", {} to settle", messages(count)),
        };
        Some(format!("{handlers}{unsettled}, {} left", seconds(rest)))
    }
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
            (hand(2, 0), 57, "ending: 2 handlers still run, 28 s left; Ctrl-C ends now".to_owned()),
            (hand(0, 10), 60, "ending: 0 running, 10 to settle, 28 s; Ctrl-C ends now".to_owned()),
            (hand(2, 0), 40, "ending: 28 s left; Ctrl-C ends now".to_owned()),
        ] {
            assert_eq!(ending.line(hand, columns), Some(line));
        }
    }
}
