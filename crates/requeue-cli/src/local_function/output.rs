//! Prints the output of a function line by line, each with the number of its environment before it.

use std::io;

use anstream::adapter::strip_str;
use requeue::printable;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};

use super::show::LineOutput;
use crate::observe::{Events, LogLine};

/// The longest line; the rest follows as another line.
const MAX_LINE: u64 = 64 * 1024;

#[derive(Clone)]
pub(super) struct FunctionOutput {
    pub(super) environment: u64,
    pub(super) lines: LineOutput,
    /// The events of the page, which reads the log of the function.
    pub(super) events: Option<Events>,
    /// Whether the log is in JSON for the page alone.
    pub(super) is_json_for_page: bool,
}

impl FunctionOutput {
    pub(super) async fn pass_through(self, stream: impl AsyncRead + Unpin) {
        let mut reader = BufReader::new(stream);
        let mut line = Vec::new();
        while next_line(&mut reader, &mut line).await.is_ok_and(|bytes| bytes > 0) {
            let text = String::from_utf8_lossy(&line);
            self.line(text.trim_end_matches(['\n', '\r']));
            line.clear();
        }
    }

    fn line(&self, text: &str) {
        if let Some(events) = &self.events
            && text.starts_with('{')
            && let Some(event) = LogLine::read(text).and_then(|line| line.event(None))
        {
            events.publish(event);
        }
        let readable = self.is_json_for_page.then(|| readable(text)).flatten();
        // Some runtimes separate the lines of an error so.
        for line in readable.as_deref().unwrap_or(text).split('\r') {
            let shown = shown(line);
            self.lines.write(&format!("\x1b[2m{}|\x1b[0m {shown}\n", self.environment));
        }
    }
}

/// A line as the terminal may have it. The function writes what a message or a service chose, so its
/// colours are lost together with all other sequences that a terminal obeys.
fn shown(line: &str) -> String {
    let plain = strip_str(line).to_string();
    plain.split('\t').map(printable::line).collect::<Vec<_>>().join("\t")
}

/// A line of Requeue's JSON as its text format has it: `INFO message class="rate-limit" …`.
fn readable(line: &str) -> Option<String> {
    let line: Value = serde_json::from_str(line).ok()?;
    let (level, fields) = (line["level"].as_str()?, line["fields"].as_object()?);
    let message = fields.get("message").and_then(Value::as_str).unwrap_or_default();
    let others = fields.iter().filter(|(name, _)| *name != "message");
    Some(others.fold(format!("{level:>5} {message}"), |text, (name, value)| {
        format!("{text} {name}={value}")
    }))
}

async fn next_line(
    reader: &mut (impl AsyncBufReadExt + Unpin),
    line: &mut Vec<u8>,
) -> io::Result<usize> {
    reader.take(MAX_LINE).read_until(b'\n', line).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_shown_without_what_a_terminal_obeys() {
        for (line, expected) in [
            ("at\tmain.go:7", "at\tmain.go:7"),
            ("\u{1b}[32m INFO\u{1b}[0m paid", " INFO paid"),
            ("\u{1b}[2K\u{1b}]0;title\u{7}\rpaid", "\u{FFFD}paid"),
            ("a\nb\u{202e}\u{9b}2Kc", "a\u{FFFD}b\u{FFFD}\u{FFFD}2Kc"),
        ] {
            let shown = shown(line);
            assert!(shown.chars().all(|c| printable::is_printable(c) || c == '\t'), "{shown:?}");
            assert_eq!(shown, expected);
        }
    }

    #[test]
    fn a_line_for_the_page_is_text_on_the_terminal() {
        for (line, text) in [
            (
                r#"{"timestamp":"t","level":"INFO","fields":{"message":"batch","received":2,"reason":"a b"}}"#,
                Some(r#" INFO batch reason="a b" received=2"#),
            ),
            (r#"{"level":"INFO"}"#, None),
            ("START", None),
        ] {
            assert_eq!(readable(line).as_deref(), text, "{line}");
        }
    }
}
