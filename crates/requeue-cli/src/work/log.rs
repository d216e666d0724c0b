//! Where the lines of the log go, each with its time.

use std::io::{self, Write, stdout};

use jiff::Timestamp;
use requeue::Clock;

use crate::terminal::Screen;

/// Writes log lines above the lines of a screen, or else to the standard output:
/// `2026-11-25T12:04:05Z  INFO working …`.
pub(super) struct LogLines(pub(super) Option<Screen>);

impl Write for LogLines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        // A line of JSON has a time already.
        match (&self.0, text.starts_with('{')) {
            (Some(screen), true) => screen.above(&text)?,
            (Some(screen), false) => screen.note(&text)?,
            (None, true) => stdout().write_all(line)?,
            (None, false) => {
                let now = Timestamp::try_from(Clock::system().now()).unwrap_or_default();
                stdout().write_all(format!("{now:.0} {text}").as_bytes())?;
            }
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        stdout().flush()
    }
}
