//! The end of a worker after the first signal: the handlers that still run, and the time they have.

use std::time::Duration;

use tokio::time::Instant;

use super::line::seconds;
use super::trouble::cut;

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
    pub(super) fn line(&self, running: u64, columns: usize) -> Option<String> {
        let text = self.text(running)?;
        Some(cut(&format!("ending: {text}; a second Ctrl-C ends it at once"), columns))
    }

    /// Logs the end once, where no terminal shows it.
    pub(super) fn log(&mut self, running: u64) {
        if let Some(text) = self.text(running).filter(|_| !self.is_logged) {
            self.is_logged = true;
            tracing::info!("ending: {text}; a second signal ends it at once");
        }
    }

    /// `2 handlers still run, 28 s left`
    fn text(&self, running: u64) -> Option<String> {
        let rest = self.limit.saturating_sub(self.began?.elapsed());
        let handlers = match running {
            0 => "no handler runs".to_owned(),
            1 => "1 handler still runs".to_owned(),
            _ => format!("{running} handlers still run"),
        };
        Some(format!("{handlers}, {} left", seconds(rest)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn after_a_signal_the_handlers_and_the_time_left_are_shown() {
        let mut ending = Ending::of(Duration::from_secs(30));
        assert_eq!(ending.line(2, 79), None);
        ending.begin();
        tokio::time::advance(Duration::from_secs(2)).await;
        let second = "28 s left; a second Ctrl-C ends it at once";
        for (running, columns, line) in [
            (2, 79, format!("ending: 2 handlers still run, {second}")),
            (1, 79, format!("ending: 1 handler still runs, {second}")),
            (0, 79, format!("ending: no handler runs, {second}")),
            (2, 31, "ending: 2 handlers still run, …".to_owned()),
        ] {
            assert_eq!(ending.line(running, columns), Some(line));
        }
    }
}
