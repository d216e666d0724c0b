//! The outcome of each message that a person chose on the local page.

use std::collections::HashMap;

/// By the ids of the messages.
pub(crate) type Outcomes = HashMap<String, Outcome>;

/// The outcome of one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Whether the message was redriven or deleted.
    pub(crate) is_done: bool,
    /// Whether it may be, though SQS did not confirm it.
    pub(crate) is_in_doubt: bool,
    /// Whether it was copied, and SQS did not confirm the delete of the original.
    pub(crate) is_copy: bool,
    /// The reason for which it stays, or a doubt about its end.
    pub(crate) note: Option<String>,
}

impl Outcome {
    pub(crate) fn done() -> Self {
        Self { is_done: true, is_in_doubt: false, is_copy: false, note: None }
    }

    pub(crate) fn copied(note: impl Into<String>) -> Self {
        Self { is_copy: true, note: Some(note.into()), ..Self::done() }
    }

    pub(crate) fn left(why: impl Into<String>) -> Self {
        Self { is_done: false, note: Some(why.into()), ..Self::done() }
    }

    pub(crate) fn in_doubt(why: impl Into<String>) -> Self {
        Self { is_in_doubt: true, ..Self::left(why) }
    }
}
