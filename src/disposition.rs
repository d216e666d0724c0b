//! The intent for a message. Values only: `policy/` and `gate/` make them, and `settle/` carries
//! them out.

use std::fmt;
use std::time::Duration;

use crate::delay::Wait;
use crate::words::words;

words! {
    "The word of the setting `REQUEUE_STRATEGY`."
    /// How a message waits for its next attempt.
    ///
    /// Messages of a FIFO queue always wait with their visibility timeout: a copy would lose its
    /// place in the order. Each receive of such a message counts as a retry, even one that ended
    /// without a call. With a [table](crate::Settings::shared_table) and
    /// [`DeadLetterMode::Direct`](crate::DeadLetterMode::Direct), attempts count instead: the first
    /// receive counts as one, and each later attempt is written right before its call.
    ///
    /// `docs/concepts/how-it-works.md` compares the costs of both, and `requeue schedule --strategy`
    /// prints them for a policy.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum Strategy {
        /// The message waits in a copy that is sent with a delay, and the original is deleted.
        #[default]
        Copy = "copy",
        /// The message waits in the queue, hidden by its visibility timeout.
        Visibility = "visibility",
    }
}

/// The intent for a message. Code that carries out a disposition must know all five, so a sixth
/// would be a new major version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// The message is done: the event source mapping deletes it.
    Complete,
    /// The message failed, and waits for its next attempt. It waits in a copy with one more retry
    /// used, and the original is deleted. With the strategy
    /// [`Visibility`](crate::Strategy::Visibility), it waits with its visibility timeout.
    #[non_exhaustive]
    Requeue {
        /// How long it waits.
        wait: Wait,
        /// How long the original stays invisible if no copy can be sent.
        hidden_if_unsent: Duration,
    },
    /// It was not due, or its service serves no message, and it waits in the same way. In a copy,
    /// that uses no retry. With the visibility timeout, the receive counts as a retry, except for a
    /// wait until the producer's `requeue.notBefore`.
    #[non_exhaustive]
    Defer {
        /// Why it waits.
        reason: Deferral,
        /// How long it waits.
        wait: Wait,
    },
    /// SQS keeps the message, and delivers it again after its visibility timeout.
    Release(ReleaseReason),
    /// It is dead-lettered, by the [`DeadLetterMode`](crate::DeadLetterMode).
    DeadLetter(DeadLetterReason),
}

impl Disposition {
    /// The word used in logs and metrics.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Requeue { .. } => "requeue",
            Self::Defer { .. } => "defer",
            Self::Release(_) => "release",
            Self::DeadLetter(_) => "dead-letter",
        }
    }

    /// Why the message is deferred, left to SQS or dead-lettered, as in logs.
    pub const fn reason(&self) -> Option<&'static str> {
        match self {
            Self::DeadLetter(why) => Some(why.as_str()),
            Self::Defer { reason, .. } => Some(reason.as_str()),
            Self::Release(why) => Some(why.as_str()),
            Self::Complete | Self::Requeue { .. } => None,
        }
    }

    /// Whether no handler is to be called for the message again, once this is carried out.
    pub(crate) const fn stops_retrying(&self) -> bool {
        match self {
            Self::DeadLetter(_) => true,
            Self::Release(reason) => {
                matches!(reason, ReleaseReason::NotRetried | ReleaseReason::Annotated)
            }
            Self::Complete | Self::Requeue { .. } | Self::Defer { .. } => false,
        }
    }

    /// The wait, where there is one.
    pub const fn wait(&self) -> Option<Wait> {
        match self {
            Self::Requeue { wait, .. } | Self::Defer { wait, .. } => Some(*wait),
            Self::Complete | Self::Release(_) | Self::DeadLetter(_) => None,
        }
    }
}

/// The retry that a failed message gets. Prints as its number and the maximum: `3/50`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retry {
    /// The number of the retry, from 1. It counts all classes together, or this class alone if its
    /// own budget ends first.
    pub number: u32,
    /// Most retries by that budget.
    pub max: u32,
    /// The delay that the failure named or the curve of its class gave, before jitter.
    pub delay_before_jitter: Duration,
    /// The delay that the failure named, where it is longer than the policy's
    /// [`max_retry_after`](crate::policy::RetryPolicy::max_retry_after).
    pub cut_from: Option<Duration>,
}

impl fmt::Display for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.max)
    }
}

/// The effect of [`idempotency`](crate::policy::RetryPolicy::idempotency) on an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IdempotencyNotes {
    /// The event was done before, so the message completed without a call.
    pub is_already_done: bool,
    /// The body has no name for the event, so the id of the first delivery was its name.
    pub is_key_missing: bool,
    /// The table did not respond: the handler was called without a record, or the table did not
    /// confirm that the event is done.
    pub is_unconfirmed: bool,
}

words! {
    "The words used in logs."
    /// Why a message is deferred.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum Deferral {
        /// Its time (`notBefore`, or the producer's `requeue.notBefore`) has not come.
        NotDue = "not-due",
        /// The handler asked for a later time without having failed.
        Postponed = "postponed",
        /// A failure named a delay, an operator paused the calls, or the service throttles every call.
        Paused = "paused",
        /// Its downstream service kept failing. It was not called, or its call failed as those before it.
        CircuitOpen = "circuit-open",
        /// Its downstream service took no call, whatever the message, and no work began.
        CallRefused = "call-refused",
        /// The rate limit of its downstream service has no room. It waits in the waiting list, or for its reservation.
        RateLimited = "rate-limited",
        /// The table of the rate limits throttles.
        TableThrottled = "table-throttled",
        /// The table of the rate limits does not respond.
        TableUnavailable = "table-unavailable",
        /// A call of several messages failed, and it is unknown which messages failed.
        Unclear = "unclear",
        /// Another attempt handles the same event.
        InProgress = "in-progress",
        /// It is unknown whether its event is done, and the policy defers it for that.
        IdempotencyUnavailable = "idempotency-unavailable",
        /// Too little of the invocation, or no thread, was left to start it.
        NoTimeLeft = "no-time-left",
        /// SQS should keep it, but its record has no message id for the batch response.
        Unreportable = "unreportable",
        /// STS did not say whether this process sent its retry fields.
        SenderUnknown = "sender-unknown",
    }
}

impl Deferral {
    /// Whether a message waits longer for this reason if each wait uses a receive.
    pub(crate) const fn is_rarer_by_visibility(self) -> bool {
        match self {
            Self::NotDue
            | Self::Paused
            | Self::CircuitOpen
            | Self::CallRefused
            | Self::RateLimited
            | Self::TableThrottled
            | Self::TableUnavailable
            | Self::InProgress
            | Self::IdempotencyUnavailable
            | Self::NoTimeLeft => true,
            Self::Postponed | Self::Unclear | Self::Unreportable | Self::SenderUnknown => false,
        }
    }
}

words! {
    "The words used in logs."
    /// Why a message is left to SQS and its visibility timeout.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum ReleaseReason {
        /// It was dead-lettered on an earlier receive; the redrive policy is about to move it.
        NotRetried = "not-retried",
        /// It is the copy with the reason of its dead letter; the redrive policy is about to move
        /// it.
        Annotated = "annotated",
        /// Its `retryState` was written by a later version than this one.
        LaterVersion = "later-version",
        /// Its handler blocked its thread and was abandoned; it may still be working on the message.
        Abandoned = "abandoned",
        /// It was deferred as often as the policy allows.
        DeferredTooOften = "deferred-too-often",
        /// An earlier message of its group must be handled first.
        BehindFailed = "behind-failed",
        /// The record has no queue ARN, so no copy can be sent.
        NoQueue = "no-queue",
        /// The mode is `report`, and the message failed.
        Reported = "reported",
        /// The worker shuts down. The message is visible again at once.
        ShuttingDown = "shutting-down",
        /// The worker could not extend its visibility timeout, or read its delivery too late. SQS may
        /// have delivered it to another receiver, so two copies might follow.
        Lapsed = "visibility-lapsed",
    }
}

words! {
    "The words used in logs and in the dead-letter queue."
    /// Why a message is dead-lettered.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum DeadLetterReason {
        /// Its failure is non-retryable.
        NonRetryable = "non-retryable",
        /// All its retries are used.
        RetriesExhausted = "retries-exhausted",
        /// Its total timeout is over, or the delay that the service named does not fit into the
        /// rest.
        TooOld = "too-old",
        /// It is older than `messageTtlSeconds`, or than its producer's own limit `requeue.ttlSeconds`.
        Expired = "expired",
        /// The handler postponed it more often than the policy allows.
        PostponedTooOften = "postponed-too-often",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retry_prints_as_its_number_and_the_most() {
        let delay_before_jitter = Duration::from_secs(60);
        let retry = Retry { number: 3, max: 50, delay_before_jitter, cut_from: None };
        assert_eq!(retry.to_string(), "3/50");
    }
}
