//! The standard error as a terminal on which one line is written again and again.

use std::io::{IsTerminal as _, Write as _, stderr};

use crate::environment;

/// Columns that stay free, so that an echoed `^C` is on the same line and disappears with it.
const FREE: usize = 3;

/// Whether the standard error is a terminal that can rewrite a line.
pub(super) fn can_rewrite() -> bool {
    stderr().is_terminal() && environment::value("TERM").as_deref() != Some("dumb")
}

/// The columns for a line.
pub(super) fn columns() -> usize {
    let size = terminal_size::terminal_size_of(stderr());
    // Some terminals report a width of 0.
    let columns = size.map_or(0, |(width, _)| usize::from(width.0));
    if columns == 0 { 80 - FREE } else { columns.saturating_sub(FREE).max(1) }
}

/// Writes the line in the place of the one before. One write, since log lines share the terminal.
pub(super) fn draw(line: &str) {
    let _ = stderr().write_all(format!("\r\x1b[2K{line}").as_bytes());
}

/// Leaves an empty line.
pub(super) fn clear() {
    draw("");
}
