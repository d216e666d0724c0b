//! How far a long command is: one line that is written again on a terminal, now and then a line
//! elsewhere.

use std::io::{IsTerminal, Write, stderr};
use std::time::Duration;

use tokio::time::Instant;

/// How often a terminal gets a new line, and how often anything else.
const EVERY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));
/// The beginning of the line, with nothing on it.
const CLEARED: &str = "\r\x1b[2K";

pub(crate) struct ProgressLine {
    is_terminal: bool,
    last: Instant,
    is_drawn: bool,
}

impl ProgressLine {
    /// The first line comes when something takes its time.
    pub(crate) fn new() -> Self {
        Self { is_terminal: stderr().is_terminal(), last: Instant::now(), is_drawn: false }
    }

    pub(crate) fn show(&mut self, line: impl FnOnce() -> String) {
        let every = if self.is_terminal { EVERY.0 } else { EVERY.1 };
        if self.last.elapsed() < every {
            return;
        }
        self.last = Instant::now();
        let line = line();
        if !self.is_terminal {
            say(&format!("{line}\n"));
            return;
        }
        // A line that reached the margin would go on in the next one, where it is not cleared.
        let width =
            terminal_size::terminal_size_of(stderr()).map_or(80, |(width, _)| usize::from(width.0));
        let line: String = line.chars().take(width.saturating_sub(1)).collect();
        say(&format!("{CLEARED}{line}"));
        self.is_drawn = true;
    }

    /// Leaves nothing behind on a terminal.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.is_drawn) {
            say(CLEARED);
        }
    }
}

/// A terminal that is gone is no reason to end.
fn say(text: &str) {
    let _ = stderr().write_all(text.as_bytes());
}
