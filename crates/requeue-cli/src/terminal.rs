//! The standard error as a terminal on which lines are written again and again: those of progress, or
//! of a worker. All other output stands above them. A process has one terminal, so they are global.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use requeue::printable;

use crate::environment;
use crate::table::wrapped;

/// Clears the line. It has no colour, so `NO_COLOR` does not matter.
const CLEARED: &str = "\r\x1b[2K";
const CLEARED_ABOVE: &str = "\x1b[1A\x1b[2K";
/// The columns of a terminal that does not report them.
const USUAL_COLUMNS: usize = 80;

static DRAWN: Mutex<Option<String>> = Mutex::new(None);
static GAVE_WAY: AtomicBool = AtomicBool::new(false);

/// Takes the terminal for lines. Of several waits at the same time, the first has it.
pub(crate) fn take() -> bool {
    let mut drawn = DRAWN.lock();
    let is_free = drawn.is_none() && !GAVE_WAY.load(Ordering::Relaxed);
    if is_free {
        *drawn = Some(String::new());
    }
    is_free
}

/// Replaces the lines in one write; their words go on below. `false` if they were removed.
pub(crate) fn draw(lines: &str) -> bool {
    let mut drawn = DRAWN.lock();
    let Some(before) = drawn.as_mut() else { return false };
    let lines = wrapped(&printable::text(lines), Some(columns()));
    say(&format!("{}{lines}", cleared(before, width())));
    *before = lines;
    true
}

pub(crate) fn remove() -> Option<String> {
    let lines = DRAWN.lock().take()?;
    say(&cleared(&lines, width()));
    Some(lines)
}

/// Removes the lines for good, before another program writes to the terminal.
pub(crate) fn give_way() {
    GAVE_WAY.store(true, Ordering::Relaxed);
    remove();
}

/// Writes other text to the terminal: above the lines, which then appear again.
pub(crate) fn above<T>(write: impl FnOnce() -> T) -> T {
    let drawn = DRAWN.lock();
    let Some(lines) = drawn.as_ref() else {
        drop(drawn);
        return write();
    };
    say(&cleared(lines, width()));
    let written = write();
    say(&format!("{CLEARED}{lines}"));
    written
}

/// Clears these lines. A terminal that was made narrower has broken them into several rows.
fn cleared(lines: &str, width: usize) -> String {
    let rows = |line: &str| line.chars().count().div_ceil(width.max(1)).max(1);
    let rows: usize = lines.split('\n').map(rows).sum();
    format!("{CLEARED}{}", CLEARED_ABOVE.repeat(rows - 1))
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

/// Whether the standard error is a terminal that can clear a line, unlike one inside an editor.
pub(crate) fn can_rewrite() -> bool {
    stderr().is_terminal() && environment::value("TERM").is_some_and(|name| name != "dumb")
}

/// A lost terminal does not end the command.
fn say(text: &str) {
    let _ = stderr().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_a_narrower_terminal_broke_are_cleared_whole() {
        let lines = ["a".repeat(77), String::new(), "b".repeat(40)].join("\n");
        for (width, rows) in [(80, 3), (77, 3), (60, 4), (30, 6)] {
            assert_eq!(cleared(&lines, width).matches(CLEARED_ABOVE).count(), rows - 1, "{width}");
        }
        assert_eq!(cleared("", 80), CLEARED);
    }
}
