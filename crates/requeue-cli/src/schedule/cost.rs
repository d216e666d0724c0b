//! How a message that never succeeds is dead-lettered, its SQS requests, and their price.

use std::time::Duration;

use requeue::queue::{MAX_BATCH_BYTES, MAX_BATCH_ENTRIES};
use requeue::{DeadLetterMode, DeadLetterReason};
use serde::Serialize;

use super::timeline::{Timeline, TimelineEnd};
use super::{DeadLetterArgument, QueueModel, StrategyArgument};

/// US dollars for a million requests to a standard queue, the first hundred billion of a month, in
/// us-east-1 in 2026, after the million of each month that is free. Source:
/// aws.amazon.com/sqs/pricing. Regions and years differ, so it is an option.
pub(crate) const PRICE: f64 = 0.40;
/// Each 64 KiB of a payload are billed as one request. Source: aws.amazon.com/sqs/pricing.
const CHUNK_BYTES: u32 = 65_536;
#[allow(clippy::cast_possible_truncation, reason = "both are far below it")]
const MAX_ENTRIES: u32 = MAX_BATCH_ENTRIES as u32;
#[allow(clippy::cast_possible_truncation, reason = "both are far below it")]
pub(crate) const MAX_BYTES: u32 = MAX_BATCH_BYTES as u32;

/// Requests for one message, from the producer's send until it is in the dead-letter queue. The
/// move by the redrive policy is no request, and empty receives are not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Requests {
    pub(crate) receives: u32,
    pub(crate) sends: u32,
    pub(crate) deletes: u32,
    /// Lambda's poller deletes each message that the function does not report as failed, even if
    /// the function has already deleted it.
    pub(crate) poller_deletes: u32,
    pub(crate) visibility_changes: u32,
    /// Calls by one execution environment, which remembers the messages that it gave up.
    #[serde(rename = "handlerCalls")]
    pub(crate) calls: u32,
}

impl Requests {
    pub(crate) fn of(
        timeline: &Timeline,
        dead_lettering: &DeadLettering,
        queue: &QueueModel,
    ) -> Self {
        let retries = timeline.count();
        let (copies, visibility_changes) = match queue.strategy {
            StrategyArgument::Copy => (
                retries + timeline.hops() + dead_lettering.copies,
                dead_lettering.visibility_changes,
            ),
            StrategyArgument::Visibility => {
                (dead_lettering.copies, retries + dead_lettering.visibility_changes)
            }
        };
        // The handler is not called for an expired message.
        let last_call =
            u32::from(timeline.end != TimelineEnd::DeadLettered(DeadLetterReason::Expired));
        Self {
            receives: 1 + retries + timeline.hops() + dead_lettering.receives,
            sends: 1 + copies,
            deletes: copies,
            poller_deletes: copies,
            visibility_changes,
            calls: retries + last_call,
        }
    }

    /// Billed requests: with one message in each call, or with as many as a call holds.
    pub(crate) fn billed(&self, queue: &QueueModel, batching: Batching) -> f64 {
        let entries = match batching {
            Batching::Alone => 1,
            Batching::Full => (MAX_BYTES / queue.message_bytes).clamp(1, MAX_ENTRIES),
        };
        let chunks = (entries * queue.message_bytes).div_ceil(CHUNK_BYTES);
        let with_payload = self.receives + self.sends;
        let without = self.deletes + self.poller_deletes + self.visibility_changes;
        let requests = with_payload * chunks + without;
        f64::from(requests) / f64::from(entries)
    }

    pub(crate) fn million(&self, queue: &QueueModel, batching: Batching) -> f64 {
        self.billed(queue, batching) * queue.price_per_million
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Batching {
    Alone,
    Full,
}

/// The steps after the last decision about a message, and their duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeadLettering {
    /// Annotated copies, with the reason for giving the message up.
    pub(crate) copies: u32,
    pub(crate) receives: u32,
    pub(crate) visibility_changes: u32,
    pub(crate) visibility_timeouts: u32,
    pub(crate) time: Duration,
}

impl DeadLettering {
    pub(crate) fn of(timeline: &Timeline, queue: &QueueModel) -> Self {
        match (timeline.end, queue.dead_letter) {
            (TimelineEnd::ReceivesExhausted { wait }, _) => {
                Self { visibility_changes: 1, time: wait, ..Self::default() }
            }
            (TimelineEnd::DeadLettered(_), DeadLetterArgument::Redrive) => {
                Self::received_again(timeline, queue)
            }
            (TimelineEnd::DeadLettered(_), DeadLetterArgument::Annotate) => {
                let hurried = queue.max_receives().min(DeadLetterMode::MAX_SHOWN_RECEIVES);
                let visibility_timeouts = queue.max_receives() - hurried;
                let delay = Duration::from_secs(DeadLetterMode::ANNOTATION_DELAY.as_secs().into());
                Self {
                    copies: 1,
                    receives: queue.max_receives(),
                    visibility_changes: hurried,
                    visibility_timeouts,
                    time: delay + queue.visibility() * visibility_timeouts,
                }
            }
            (TimelineEnd::DeadLettered(_), DeadLetterArgument::Direct) => {
                Self { copies: 1, ..Self::default() }
            }
        }
    }

    /// SQS redelivers it until its receives are used up. The execution environment that dead-lettered it
    /// remembers that, and does not call the handler again.
    fn received_again(timeline: &Timeline, queue: &QueueModel) -> Self {
        let had = match queue.strategy {
            StrategyArgument::Copy => 1,
            StrategyArgument::Visibility => timeline.count() + 1,
        };
        let receives = queue.max_receives() - had;
        let visibility_timeouts = receives + 1;
        Self {
            receives,
            visibility_timeouts,
            time: queue.visibility() * visibility_timeouts,
            ..Self::default()
        }
    }
}
