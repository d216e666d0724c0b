//! The report of a batch: the outcome of each message. The batch response, the log lines and the
//! metrics are made from this one value.

use std::sync::Arc;
use std::time::Duration;

use serde::{Serialize, Serializer};
use serde_json::json;

use crate::disposition::{Deferral, Disposition, IdempotencyNotes, Retry};
use crate::failure::FailureClass;
use crate::queue::QueueArn;

/// The outcome of one message.
///
/// It serializes with the field names of the log, with times in milliseconds.
#[derive(Clone, Debug)]
#[non_exhaustive]
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
    /// Whether the message was dead-lettered, and its receive count is so high that no redrive policy
    /// seems to move it.
    pub is_stuck: bool,
    /// The class of the failure, if it failed.
    pub class: Option<FailureClass>,
    /// The words of the failure, scrubbed.
    pub detail: Option<String>,
    /// The intent for the message.
    pub disposition: Disposition,
    /// The key of the rate limit for which it waits; `None` for the limit of all messages.
    pub limit_key: Option<String>,
    /// The retry that it gets; `None` unless it is requeued.
    pub retry: Option<Retry>,
    /// Whether the disposition was carried out.
    pub settlement: Settlement,
    /// The effect of `idempotency` of the policy on it.
    pub idempotency: IdempotencyNotes,
    /// How long the handler ran; `None` if it was not called.
    pub elapsed: Option<Duration>,
    /// Whether it shared the call of another message, which counts the call: see
    /// [`BulkHandler`](crate::BulkHandler).
    pub joined_call: bool,
    /// The time from the first send until this decision.
    pub age: Duration,
}

impl Outcome {
    /// Why the message is deferred, left to SQS or dead-lettered, or completed without a call, in the
    /// words used in logs.
    pub fn reason(&self) -> Option<&'static str> {
        if self.idempotency.is_already_done {
            Some("already-completed")
        } else {
            self.disposition.reason()
        }
    }

    /// Whether its handler succeeded and SQS does not keep it. The log has no line for it.
    pub fn simply_completed(&self) -> bool {
        let is_complete = self.disposition == Disposition::Complete;
        is_complete && self.settlement == Settlement::Done && !self.idempotency.is_already_done
    }

    /// Whether its call failed in an outage: its circuit is open or its scope paused, so the message
    /// is deferred, though it was called.
    pub fn failed_in_outage(&self) -> bool {
        let why = [Deferral::CircuitOpen, Deferral::Paused];
        let is_outage =
            matches!(&self.disposition, Disposition::Defer { reason: it, .. } if why.contains(it));
        is_outage && self.elapsed.is_some()
    }
}

impl Serialize for Outcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        json!({
            "messageId": self.message_id,
            "originalMessageId": self.original_message_id,
            "queue": self.queue.as_ref().map(ToString::to_string),
            "retryCount": self.retry_count,
            "hops": self.hops,
            "receiveCount": self.receive_count,
            "isStuck": self.is_stuck,
            "class": self.class.map(FailureClass::as_str),
            "disposition": self.disposition.as_str(),
            "reason": self.reason(),
            "limitKey": self.limit_key,
            "retryProgress": self.retry.map(|retry| retry.to_string()),
            "delaySeconds": self.disposition.wait().map(|wait| wait.total().as_secs()),
            "detail": self.detail,
            "settlement": self.settlement.as_str(),
            "code": self.settlement.code(),
            "elapsedMs": self.elapsed.map(millis),
            "ageMs": millis(self.age),
        })
        .serialize(serializer)
    }
}

/// Whether a disposition was carried out, and where the message is now.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settlement {
    /// The event source mapping deletes the message.
    Done,
    /// SQS keeps the message, as was intended.
    Kept,
    /// The copy is in the queue and the original is deleted.
    Moved,
    /// The copy is in the queue. Requeue could not delete the original and leaves it to the event
    /// source mapping.
    MovedNotDeleted {
        /// Why: the code of the failed call.
        code: String,
    },
    /// SQS keeps the message, but did not confirm the delay: it becomes visible again after its
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
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::KeptNotDelayed { code }
            | Self::MovedNotDeleted { code }
            | Self::Unconfirmed { code } => Some(code),
            Self::Done | Self::Kept | Self::Moved => None,
        }
    }

    /// Whether SQS must keep the original, so that its id belongs in `batchItemFailures`.
    pub const fn is_kept(&self) -> bool {
        match self {
            Self::Kept | Self::KeptNotDelayed { .. } | Self::Unconfirmed { .. } => true,
            Self::Done | Self::Moved | Self::MovedNotDeleted { .. } => false,
        }
    }
}

/// The outcomes of one batch.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// One for each message, in the order of the batch.
    pub outcomes: Vec<Outcome>,
    /// From the start of the batch to the end of settling.
    #[serde(rename = "elapsedMs", serialize_with = "as_millis")]
    pub elapsed: Duration,
}

fn as_millis<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(millis(*duration))
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Report {
    /// The queue of its messages, unless they are of several: an event source mapping and a worker
    /// have one each.
    pub(crate) fn queue(&self) -> Option<&QueueArn> {
        let mut queues = self.outcomes.iter().map(|outcome| outcome.queue.as_deref());
        let first = queues.next()??;
        queues.all(|queue| queue == Some(first)).then_some(first)
    }

    /// Notes dead-lettered messages that SQS delivers in spite of this `maxReceiveCount`.
    pub(crate) fn note_stuck_after(&mut self, max_receives: Option<u32>) {
        for outcome in &mut self.outcomes {
            let is_beyond = max_receives.is_some_and(|max| outcome.receive_count > max);
            let is_left = outcome.settlement.is_kept() && outcome.disposition.stops_retrying();
            outcome.is_stuck |= is_beyond && is_left;
        }
    }

    /// The ids that SQS must keep: the content of `batchItemFailures`.
    ///
    /// `None` when SQS must keep a message without an id. No response can name it, so the invocation
    /// must fail.
    pub fn failed_ids(&self) -> Option<Vec<&str>> {
        let kept = self.outcomes.iter().filter(|outcome| outcome.settlement.is_kept());
        kept.map(|outcome| outcome.message_id.as_deref()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disposition::DeadLetterReason;

    #[test]
    fn an_outcome_is_json_with_the_names_of_the_log() {
        let outcome = Outcome {
            message_id: Some("copy".to_owned()),
            original_message_id: Some("first".to_owned()),
            queue: Some(Arc::new(
                "arn:aws:sqs:eu-west-1:123456789012:orders".parse().expect("an ARN"),
            )),
            retry_count: 2,
            hops: 0,
            receive_count: 1,
            is_stuck: false,
            class: Some(FailureClass::NonRetryable),
            detail: Some("declined".to_owned()),
            disposition: Disposition::DeadLetter(DeadLetterReason::NonRetryable),
            limit_key: None,
            retry: None,
            settlement: Settlement::Unconfirmed { code: "NoConnection".to_owned() },
            idempotency: IdempotencyNotes::default(),
            elapsed: Some(Duration::from_millis(12)),
            joined_call: false,
            age: Duration::from_secs(3),
        };
        let report = Report { outcomes: vec![outcome], elapsed: Duration::from_millis(15) };
        assert_eq!(
            serde_json::to_value(&report).expect("JSON"),
            serde_json::json!({ "elapsedMs": 15, "outcomes": [{
                "messageId": "copy", "originalMessageId": "first",
                "queue": "arn:aws:sqs:eu-west-1:123456789012:orders", "retryCount": 2, "hops": 0,
                "receiveCount": 1, "isStuck": false, "class": "non-retryable",
                "disposition": "dead-letter", "reason": "non-retryable", "limitKey": null, "retryProgress": null,
                "delaySeconds": null, "detail": "declined", "settlement": "unconfirmed",
                "code": "NoConnection", "elapsedMs": 12, "ageMs": 3000,
            }] })
        );
    }
}
