//! The settings of a worker, and its progress: how many messages it received, their outcomes, and
//! the reasons why others wait.

use std::time::Duration;

use crate::disposition::{Disposition, ReleaseReason};
use crate::processor::Deletes;
use crate::queue::MAX_BATCH_ENTRIES;
use crate::report::{Outcome, Settlement};
use crate::settings::Mode;

/// The settings of a worker besides the [`Settings`](crate::Settings) of its processor.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WorkerSettings {
    /// The most batches in work, which then share
    /// [`Limits::concurrency`](crate::Limits::concurrency) evenly. Default: no bound. A receive
    /// asks for as many messages as handlers are free, at most ten. If fewer are free, it waits up
    /// to 100 ms for others, so that messages which take about as long make whole batches. A call
    /// of a [`BulkHandler`](crate::BulkHandler) counts as one of `concurrency`, and its messages
    /// are of one batch.
    pub receivers: Option<usize>,
    /// The time from the signal to the end. Shortly before its end, handlers that still run are
    /// cancelled and their messages released. Default 30 s.
    pub shutdown_timeout: Duration,
    /// The reaction to a queue without a redrive policy, or without its dead-letter queue. Default:
    /// [`WithoutDeadLetterQueue::Refuse`].
    pub without_dead_letter_queue: WithoutDeadLetterQueue,
    /// When the worker ends by itself. Default: [`Until::Shutdown`].
    pub until: Until,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        Self {
            receivers: None,
            shutdown_timeout: Duration::from_secs(30),
            without_dead_letter_queue: WithoutDeadLetterQueue::Refuse,
            until: Until::Shutdown,
        }
    }
}

impl WorkerSettings {
    /// The number of receivers, and the most calls of a batch. The messages of a call are of one
    /// batch.
    pub(super) fn shares(&self, concurrency: usize, messages_per_call: usize) -> (usize, u32) {
        let (receivers, share) = match self.receivers {
            Some(receivers) => {
                let receivers = receivers.clamp(1, concurrency);
                (receivers, concurrency / receivers)
            }
            None => (concurrency, concurrency),
        };
        let calls = share.min(MAX_BATCH_ENTRIES / messages_per_call.min(MAX_BATCH_ENTRIES));
        (receivers, u32::try_from(calls).unwrap_or(u32::MAX))
    }
}

/// When a worker ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Until {
    /// When the future of [`Worker::run`](crate::Worker::run) is ready.
    #[default]
    Shutdown,
    /// Also when the queue is empty, by SQS's own approximate count.
    Empty,
}

/// Whether a worker starts on a queue that has no redrive policy, or whose dead-letter queue does
/// not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WithoutDeadLetterQueue {
    /// The worker does not start.
    #[default]
    Refuse,
    /// The worker starts and logs a warning: a message that is dead-lettered returns again and again
    /// until its retention ends.
    Warn,
}

/// The counts of a worker's messages so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Messages received, with those in flight.
    pub received: u64,
    /// Messages that are done.
    pub completed: u64,
    /// Messages that wait for another attempt.
    pub requeued: u64,
    /// Messages dead-lettered, and messages left to SQS on their last receive: by `maxReceiveCount`, SQS
    /// moves them to the dead-letter queue.
    pub dead_lettered: u64,
    /// Messages that were deferred or left to SQS, usually without a call: they were not due yet,
    /// or were dead-lettered before. Three more kinds of messages count here: one that was done
    /// before and is only deleted now, one whose copy was not sent, and in the mode `report` one
    /// that the mode `requeue` would dead-letter.
    pub waiting: u64,
    /// Messages that are done or copied, and that SQS has not confirmed as deleted. SQS delivers
    /// them again, or moves them to the dead-letter queue.
    pub not_deleted: u64,
}

impl Progress {
    /// Messages that were received and are not settled. At the end of the worker, SQS delivers them
    /// again, although some may be done.
    pub fn not_settled(&self) -> u64 {
        let settled = self.completed + self.requeued + self.dead_lettered + self.waiting;
        self.received.saturating_sub(settled)
    }

    /// `max_receives` is the queue's `maxReceiveCount`.
    pub(super) fn add(
        &mut self,
        outcomes: &[Outcome],
        mode: Mode,
        max_receives: Option<u32>,
        deletes: Deletes,
    ) {
        let number = |count| u64::try_from(count).unwrap_or(u64::MAX);
        let known = number(deletes.known);
        self.waiting += known;
        // They were counted when they could not be deleted.
        self.not_deleted =
            (self.not_deleted + number(deletes.deleted.failed)).saturating_sub(known);
        for outcome in outcomes {
            let is_unconfirmed = matches!(outcome.settlement, Settlement::Unconfirmed { .. });
            let stays = is_unconfirmed
                || matches!(
                    outcome.settlement,
                    Settlement::Kept | Settlement::KeptNotDelayed { .. }
                );
            // After more receives, the queue has another redrive policy by now, or none.
            let is_last = stays && max_receives == Some(outcome.receive_count);
            *match outcome.disposition {
                Disposition::Complete => &mut self.completed,
                // It was counted when it was dead-lettered.
                Disposition::Release(ReleaseReason::NotRetried | ReleaseReason::Annotated) => {
                    &mut self.waiting
                }
                _ if is_last => &mut self.dead_lettered,
                _ if is_unconfirmed => &mut self.waiting,
                Disposition::Requeue { .. } => &mut self.requeued,
                Disposition::Defer { .. } if outcome.failed_in_outage() => &mut self.requeued,
                Disposition::DeadLetter(_) if mode == Mode::Requeue => &mut self.dead_lettered,
                Disposition::Defer { .. }
                | Disposition::Release(_)
                | Disposition::DeadLetter(_) => &mut self.waiting,
            } += 1;
        }
    }
}
