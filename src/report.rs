//! The report of a batch: the outcome of each message. Every response, to Lambda as to the log, is
//! derived from this one value.

use std::sync::Arc;
use std::time::Duration;

use crate::disposition::{Disposition, Retry};
use crate::failure::FailureClass;
use crate::queue::QueueArn;

/// The outcome of one message.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The id of the delivered message; `None` when the record had none.
    pub message_id: Option<String>,
    /// The id of the first delivery.
    pub original_message_id: Option<String>,
    /// The queue; `None` when the record does not say.
    pub queue: Option<Arc<QueueArn>>,
    /// Retries used before this delivery.
    pub retry_count: u32,
    /// Copies sent before on the way to a `notBefore`.
    pub hops: u32,
    /// How often SQS delivered this copy.
    pub receive_count: u32,
    /// Whether it was given up, and SQS has delivered it so often that no redrive policy seems to
    /// move it.
    pub is_stuck: bool,
    /// The class of the failure, if it failed.
    pub class: Option<FailureClass>,
    /// The reason of the failure, scrubbed.
    pub reason: Option<String>,
    /// The intent.
    pub disposition: Disposition,
    /// Which retry it gets; `None` unless it is requeued.
    pub retry: Option<Retry>,
    /// Whether it did.
    pub settlement: Settlement,
    /// How long the handler ran; `None` if it was not called.
    pub elapsed: Option<Duration>,
    /// From being sent first until this was decided.
    pub age: Duration,
}

/// Whether a disposition was carried out, and where the message is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// The event source mapping deletes the message.
    Done,
    /// SQS keeps the message, as was intended.
    Kept,
    /// The copy is in the queue and the original is deleted.
    Moved,
    /// The copy is in the queue; the original could not be deleted by us and is left to the event
    /// source mapping.
    MovedNotDeleted {
        /// Why: the code of the failed call.
        code: String,
    },
    /// SQS keeps the message, but did not confirm how long it shall wait: it comes back after its
    /// visibility timeout.
    KeptNotDelayed {
        /// Why: the code of the failed call or entry.
        code: String,
    },
    /// No copy was confirmed, so SQS keeps the original.
    Unconfirmed {
        /// Why: the code of the failed call or entry.
        code: String,
    },
}

impl Settlement {
    /// The word used in logs.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Kept => "kept",
            Self::KeptNotDelayed { .. } => "kept-not-delayed",
            Self::Moved => "moved",
            Self::MovedNotDeleted { .. } => "moved-not-deleted",
            Self::Unconfirmed { .. } => "unconfirmed",
        }
    }

    /// The code of the call that failed, if one did.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::KeptNotDelayed { code }
            | Self::MovedNotDeleted { code }
            | Self::Unconfirmed { code } => Some(code),
            Self::Done | Self::Kept | Self::Moved => None,
        }
    }

    /// Whether SQS must keep the original, so that its id belongs into `batchItemFailures`.
    #[must_use]
    pub const fn is_kept(&self) -> bool {
        match self {
            Self::Kept | Self::KeptNotDelayed { .. } | Self::Unconfirmed { .. } => true,
            Self::Done | Self::Moved | Self::MovedNotDeleted { .. } => false,
        }
    }
}

/// The outcomes of one batch.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// One for each message, in the order of the batch.
    pub outcomes: Vec<Outcome>,
    /// From the start of the batch to the end of settling.
    pub elapsed: Duration,
}

impl Report {
    /// The ids that SQS must keep: the content of `batchItemFailures`.
    ///
    /// # Errors
    ///
    /// [`Unreportable`] when SQS must keep a message without an id, which no response can say. The
    /// invocation must then fail.
    pub fn failed_ids(&self) -> Result<Vec<&str>, Unreportable> {
        let kept = self.outcomes.iter().filter(|outcome| outcome.settlement.is_kept());
        kept.map(|outcome| outcome.message_id.as_deref().ok_or(Unreportable)).collect()
    }
}

/// SQS must keep a message that has no id, and a batch response can only name ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a record without a message id failed and could not be re-sent: SQS delivers the whole batch \
     again"
)]
pub struct Unreportable;
