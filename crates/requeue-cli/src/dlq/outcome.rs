//! The outcome of each message that a command tried to send or to delete, and of the whole job.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Display;

use requeue::queue::{CallError, CallErrorKind, EntryError};
use serde::Serialize;

use super::letter::Letter;
use super::queue::DeadLetters;
use super::sender::MAY_EXIST;
use crate::Error;
use crate::table::messages;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) is_done: bool,
    /// Whether it may be, although SQS did not confirm it.
    pub(crate) is_in_doubt: bool,
    /// Whether it was copied, and SQS did not confirm the delete of the original.
    pub(crate) is_copy: bool,
    /// The reason for which it stays, or a doubt about its end.
    pub(crate) note: Option<String>,
}

/// The outcomes of the messages that were received, by their ids.
#[derive(Default)]
pub(crate) struct Outcomes {
    pub(crate) by_id: HashMap<String, Outcome>,
    pub(crate) error: Option<Error>,
}

/// The messages that were not sent, by the code of SQS or of this command.
#[derive(Default, Serialize)]
#[serde(transparent)]
pub(super) struct Failures(pub(super) BTreeMap<String, u64>);

pub(crate) struct JobEnd {
    pub(crate) lines: Vec<String>,
    pub(crate) is_complete: bool,
    pub(crate) outcomes: Outcomes,
}

/// A line for each number of messages that is not 0.
pub(super) fn counted<W: Display>(rows: impl IntoIterator<Item = (u64, W)>) -> Vec<String> {
    let rows = rows.into_iter().filter(|(count, _)| *count > 0);
    rows.map(|(count, words)| format!("{} {words}", messages(count))).collect()
}

impl Failures {
    pub(super) fn add(&mut self, code: &str) {
        *self.0.entry(code.to_owned()).or_default() += 1;
    }

    pub(super) fn count(&self) -> u64 {
        self.0.values().sum()
    }

    /// Of these: SQS may have stored them.
    pub(super) fn in_doubt(&self) -> u64 {
        self.0.iter().filter(|(code, _)| code.ends_with(MAY_EXIST)).map(|(_, count)| count).sum()
    }

    /// The codes with which SQS refuses the same message again.
    pub(super) fn lasting(&self) -> Vec<&str> {
        let is_lasting =
            |code: &&str| CallError::responded(400, code).kind == CallErrorKind::Malformed;
        self.0.keys().map(String::as_str).filter(is_lasting).collect()
    }

    /// A line for each code; `in_doubt` is about messages that SQS may have stored.
    pub(super) fn lines(&self, failed: &str, in_doubt: &str) -> impl Iterator<Item = String> {
        self.0.iter().map(move |(code, count)| match code.strip_suffix(MAY_EXIST) {
            Some(code) => format!("{} {in_doubt}: {code}", messages(*count)),
            None => format!("{} {failed}: {code}", messages(*count)),
        })
    }
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

impl Outcomes {
    pub(crate) fn done(&self) -> usize {
        self.by_id.values().filter(|outcome| outcome.is_done).count()
    }

    /// The messages that are done, or may be.
    pub(crate) fn gone(&self) -> HashSet<String> {
        let is_gone = |outcome: &Outcome| outcome.is_done || outcome.is_in_doubt;
        let gone = self.by_id.iter().filter(|(_, outcome)| is_gone(outcome));
        gone.map(|(id, _)| id.clone()).collect()
    }
}

/// Deletes at most ten received messages. Returns the outcome of each, and the error of the request.
pub(super) async fn delete(
    DeadLetters { sqs, queue, .. }: &DeadLetters,
    letters: &[&Letter],
) -> (Vec<Outcome>, Option<Error>) {
    let handles: Vec<&str> = letters.iter().map(|letter| letter.receipt_handle.as_str()).collect();
    let error = match sqs.delete(&queue.arn, &handles).await {
        Ok(deletions) => {
            let left = |error: EntryError| Outcome::left(error.code);
            let outcomes =
                deletions.into_iter().map(|one| one.map_or_else(left, |()| Outcome::done()));
            return (outcomes.collect(), None);
        }
        Err(error) => error,
    };
    let outcome = match error.kind {
        CallErrorKind::Refused | CallErrorKind::Malformed => Outcome::left(&error.code),
        CallErrorKind::Unavailable | CallErrorKind::Ambiguous => {
            Outcome::in_doubt(format!("{}; it may be deleted", error.code))
        }
    };
    let refusal = sqs.refusal("DeleteMessageBatch", &queue.arn, &error);
    (vec![outcome; letters.len()], Some(refusal))
}
