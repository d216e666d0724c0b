//! The outcome of each message that a person chose on the local page.

use std::collections::HashMap;

/// By the ids of the messages.
pub(crate) type Outcomes = HashMap<String, Outcome>;

/// The outcome of one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Whether the message was redriven or deleted.
    pub(crate) is_done: bool,
    /// The reason for which it stays, or a doubt about its end.
    pub(crate) note: Option<String>,
}

impl Outcome {
    pub(crate) fn done() -> Self {
        Self { is_done: true, note: None }
    }

    pub(crate) fn done_but(note: impl Into<String>) -> Self {
        Self { is_done: true, note: Some(note.into()) }
    }

    pub(crate) fn left(why: impl Into<String>) -> Self {
        Self { is_done: false, note: Some(why.into()) }
    }
}
