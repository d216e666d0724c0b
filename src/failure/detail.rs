//! The words of a failure, scrubbed and cut.

use std::fmt;

use requeue_sqs::printable::is_printable;

/// Few words that may be stored and logged: at most 256 characters, each of them legal in an SQS
/// message and harmless in a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Detail(Box<str>);

impl Detail {
    const MAX_CHARS: usize = 256;
    /// The most bytes in UTF-8, and so in JSON: no character of a detail needs a longer escape.
    pub(crate) const MAX_BYTES: usize = 4 * Self::MAX_CHARS;

    pub(crate) fn new(words: impl fmt::Display) -> Self {
        let words = words.to_string();
        let harmless = |c: char| {
            if is_printable(c) && !matches!(c, '\u{FFFE}' | '\u{FFFF}') { c } else { ' ' }
        };
        Self(words.chars().map(harmless).take(Self::MAX_CHARS).collect())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}
