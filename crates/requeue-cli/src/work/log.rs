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
        match &self.0 {
            Some(screen) if is_json(&text) => screen.above(&text)?,
            Some(screen) => screen.note(&text)?,
            None if is_json(&text) => stdout().write_all(line)?,
            None => {
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

/// Whether a line has a time already.
fn is_json(line: &str) -> bool {
    line.starts_with('{')
}
