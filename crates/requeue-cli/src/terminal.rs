//! The standard error as a terminal on which lines are written again and again: the line of progress,
//! or the lines of a worker with the log above them.

use std::io::{self, Write, stderr, stdout};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use requeue::Clock;

use crate::environment;
use crate::table::{clock_time, wrapped};

/// Clears the line. It has no colour, so `NO_COLOR` does not matter.
pub(crate) const CLEARED: &str = "\r\x1b[2K";
/// Clears the line above too.
const CLEARED_ABOVE: &str = "\x1b[1A\x1b[2K";
/// The columns of a terminal that does not tell them.
const USUAL_COLUMNS: usize = 80;

/// The lines; its clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Screen(Arc<Mutex<Vec<String>>>);

impl Screen {
    /// Replaces the lines in one write, since the log shares the terminal.
    pub(crate) fn draw(&self, lines: Vec<String>) {
        let mut drawn = self.0.lock();
        let cleared = cleared(&drawn, width());
        *drawn = lines;
        say(&format!("{cleared}{}", drawn.join("\n")));
    }

    /// Writes a text above the lines, which then appear again.
    pub(crate) fn above(&self, text: &str) -> io::Result<()> {
        let drawn = self.0.lock();
        stdout().write_all(format!("{}{text}", cleared(&drawn, width())).as_bytes())?;
        stdout().flush()?;
        say(&drawn.join("\n"));
        Ok(())
    }

    /// Writes a line with the time above the lines.
    pub(crate) fn note(&self, text: &str) -> io::Result<()> {
        let line = format!("{}Z {}", clock_time(Clock::system().now()), text.trim_end());
        self.above(&format!("{}\n", wrapped(&line, Some(columns()))))
    }
}

/// Clears these lines. A terminal that was made narrower has broken them into several rows.
fn cleared(lines: &[String], width: usize) -> String {
    let rows = |line: &String| line.chars().count().div_ceil(width.max(1)).max(1);
    let rows: usize = lines.iter().map(rows).sum();
    format!("{CLEARED}{}", CLEARED_ABOVE.repeat(rows.saturating_sub(1)))
}

fn width() -> usize {
    let size = terminal_size::terminal_size_of(stderr());
    // Some terminals report a width of 0.
    let width = size.map_or(0, |(width, _)| usize::from(width.0));
    if width == 0 { USUAL_COLUMNS } else { width }
}

/// The columns for a line. One that reaches the margin, alone or with the `^C` that the terminal
/// shows, would continue in the next line, and that is never cleared.
pub(crate) fn columns() -> usize {
    width().saturating_sub(3).max(1)
}

/// Whether the terminal cannot clear a line, as inside an editor.
pub(crate) fn is_dumb() -> bool {
    environment::value("TERM").is_none_or(|name| name == "dumb")
}

/// A lost terminal does not end the command.
pub(crate) fn say(text: &str) {
    let _ = stderr().write_all(text.as_bytes());
}

/// Ends the lines, so that the next text has its own line.
pub(crate) fn leave() {
    for_a_moment(|| say("\n"));
}

/// Writes to the terminal before the process ends. A stuck terminal delays that for a moment only.
pub(crate) fn for_a_moment(write: impl FnOnce() + Send + 'static) {
    let (writing, written) = mpsc::channel::<()>();
    thread::spawn(move || {
        write();
        drop(writing);
    });
    let _ = written.recv_timeout(Duration::from_millis(100));
}

/// Writes log lines above the lines of a screen, or else to the standard output:
/// `2026-11-25T12:04:05Z  INFO working …`.
pub(crate) struct LogLines(pub(crate) Option<Screen>);

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_a_narrower_terminal_broke_are_cleared_whole() {
        let lines = ["a".repeat(77), String::new(), "b".repeat(40)];
        for (width, rows) in [(80, 3), (77, 3), (60, 4), (30, 6)] {
            assert_eq!(cleared(&lines, width).matches(CLEARED_ABOVE).count(), rows - 1, "{width}");
        }
        assert_eq!(cleared(&[], 80), CLEARED);
    }
}
