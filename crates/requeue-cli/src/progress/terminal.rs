//! The standard error as a terminal on which one line is written again and again.

use std::io::{self, Write as _, stderr};
use std::mem;

use indicatif::TermLike;
use parking_lot::Mutex;

/// Columns that stay free, so that an echoed `^C` is on the same line and disappears with it.
const FREE: usize = 3;

/// The columns for a line.
pub(super) fn columns() -> usize {
    let size = terminal_size::terminal_size_of(stderr());
    // Some terminals report a width of 0.
    let columns = size.map_or(0, |(width, _)| usize::from(width.0));
    if columns == 0 { 80 - FREE } else { columns.saturating_sub(FREE).max(1) }
}

/// Collects the text of a line until it is flushed, since log lines share the terminal.
#[derive(Debug, Default)]
pub(super) struct Stderr(Mutex<String>);

impl Stderr {
    fn push(&self, text: &str) {
        self.0.lock().push_str(text);
    }
}

impl TermLike for Stderr {
    fn width(&self) -> u16 {
        u16::try_from(columns()).unwrap_or(u16::MAX)
    }

    // The line is the only one, so the cursor stays in it.
    fn move_cursor_up(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_down(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_right(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_left(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.push(text);
        self.push("\n");
        Ok(())
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        // The padding would move the cursor to the margin.
        if !text.trim().is_empty() {
            self.push(text);
        }
        Ok(())
    }

    fn clear_line(&self) -> io::Result<()> {
        self.push("\r\x1b[2K");
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let text = mem::take(&mut *self.0.lock());
        stderr().write_all(text.as_bytes())
    }
}
