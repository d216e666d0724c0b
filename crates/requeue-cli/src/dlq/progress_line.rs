//! The progress of a long command: a single line on a terminal, which is rewritten; elsewhere a
//! line now and then.

use std::io::{IsTerminal, Write, stderr};
use std::time::Duration;

use tokio::time::Instant;

/// The interval between lines on a terminal, and that elsewhere.
const EVERY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));
/// Clears the line.
const CLEARED: &str = "\r\x1b[2K";

pub(crate) struct ProgressLine {
    is_terminal: bool,
    last: Instant,
    is_drawn: bool,
}

impl ProgressLine {
    /// Short commands print no progress, so the first line comes after the first interval.
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
        // A line that reaches the margin would continue in the next one, and that is never cleared.
        let width =
            terminal_size::terminal_size_of(stderr()).map_or(80, |(width, _)| usize::from(width.0));
        let line: String = line.chars().take(width.saturating_sub(1)).collect();
        say(&format!("{CLEARED}{line}"));
        self.is_drawn = true;
    }

    /// Clears the line on a terminal.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.is_drawn) {
            say(CLEARED);
        }
    }
}

/// A lost terminal does not end the command.
fn say(text: &str) {
    let _ = stderr().write_all(text.as_bytes());
}
