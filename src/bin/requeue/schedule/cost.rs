//! What SQS is asked for one message that is never done, and what that costs.

use requeue::DeadLetterReason;
use requeue::queue::{MAX_BATCH_BYTES, MAX_BATCH_ENTRIES};

use super::Mode;
use super::life::Life;

/// US dollars for a million requests to a standard queue, the first hundred billion of a month, in us-east-1 in 2026, after the
/// million of each month that is free. Source: aws.amazon.com/sqs/pricing. Regions and years differ, so it is an option.
pub(crate) const PRICE: f64 = 0.40;
/// Each 64 KiB of a payload are billed as one request. Source: aws.amazon.com/sqs/pricing.
const CHUNK_BYTES: u32 = 65_536;
/// [`MAX_BATCH_ENTRIES`] and [`MAX_BATCH_BYTES`], in the type of this arithmetic.
#[allow(clippy::cast_possible_truncation, reason = "both are far below it")]
const MAX_ENTRIES: u32 = MAX_BATCH_ENTRIES as u32;
#[allow(clippy::cast_possible_truncation, reason = "both are far below it")]
pub(crate) const MAX_BYTES: u32 = MAX_BATCH_BYTES as u32;
/// An annotated copy is made visible again at once on so many of its receives; from then on it waits.
const MAX_HURRIED_RECEIVES: u32 = 10;

/// What the queue and its messages are like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    pub(crate) dead_letter: Mode,
    pub(crate) max_receive_count: u32,
    pub(crate) message_bytes: u32,
    pub(crate) price: f64,
}

/// What is done to one message over its whole life, from the producer's send to the receive after which the redrive policy moves it.
/// The move itself is no request, and receives that find nothing are not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Requests {
    pub(crate) receives: u32,
    pub(crate) sends: u32,
    pub(crate) deletes: u32,
    /// Lambda's poller deletes all that the function does not report as failed, also what the function has deleted already.
    pub(crate) poller_deletes: u32,
    pub(crate) visibility_changes: u32,
    /// How often its handler is called.
    pub(crate) calls: u32,
    /// How often it waits for its visibility timeout before it is moved.
    pub(crate) visibility_timeouts: u32,
}

impl Requests {
    pub(crate) fn of(life: &Life, queue: &Queue) -> Self {
        let copies = life.count() + life.hops();
        // A copy that has expired is not called any more.
        let calls = life.count() + u32::from(life.reason != DeadLetterReason::Expired);
        let lasts = queue.max_receive_count;
        match queue.dead_letter {
            Mode::Redrive => Self {
                receives: copies + lasts,
                sends: 1 + copies,
                deletes: copies,
                poller_deletes: copies,
                visibility_changes: 0,
                // Without a copy nothing says that it was given up: each receive calls the handler.
                calls: if copies == 0 { lasts } else { calls },
                visibility_timeouts: lasts,
            },
            // The last copy goes to the dead-letter queue.
            Mode::Direct => Self {
                receives: copies + 1,
                sends: 1 + copies + 1,
                deletes: copies + 1,
                poller_deletes: copies + 1,
                visibility_changes: 0,
                calls,
                visibility_timeouts: 0,
            },
            Mode::Annotate => {
                let hurried = lasts.min(MAX_HURRIED_RECEIVES);
                Self {
                    receives: copies + 1 + lasts,
                    sends: 1 + copies + 1,
                    deletes: copies + 1,
                    poller_deletes: copies + 1,
                    visibility_changes: hurried,
                    calls,
                    visibility_timeouts: lasts - hurried,
                }
            }
        }
    }

    /// What is billed for it: alone in each call, or with as many others as a call holds.
    pub(crate) fn billed(&self, queue: &Queue, company: Company) -> f64 {
        let entries = match company {
            Company::Alone => 1,
            Company::Full => (MAX_BYTES / queue.message_bytes).clamp(1, MAX_ENTRIES),
        };
        let chunks = (entries * queue.message_bytes).div_ceil(CHUNK_BYTES);
        let with_payload = self.receives + self.sends;
        let without = self.deletes + self.poller_deletes + self.visibility_changes;
        let requests = with_payload * chunks + without;
        f64::from(requests) / f64::from(entries)
    }

    /// What a million such messages cost, in US dollars.
    pub(crate) fn million(&self, queue: &Queue, company: Company) -> f64 {
        self.billed(queue, company) * queue.price
    }
}

/// How many messages share a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Company {
    Alone,
    Full,
}
