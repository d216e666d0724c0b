//! The settings of a worker. Plain data with defaults.

use std::time::Duration;

use crate::queue::MAX_BATCH_ENTRIES;

/// The settings of a worker besides the [`Settings`](crate::Settings) of its processor.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WorkerSettings {
    /// The number of receivers, each with one batch at a time. They share
    /// [`Limits::concurrency`](crate::Limits::concurrency) evenly, so no message waits in memory
    /// for a handler. Default: the fewest for batches of 10; never more than `concurrency`. A call
    /// of a [`BulkHandler`](crate::BulkHandler) is one of `concurrency`, and its messages are of one
    /// batch. So with 10 messages a call there is a receiver for each.
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
    /// The number of receivers, and the most messages of a batch: as many as a receiver's share of
    /// the calls at once can take. The messages of a call are of one batch.
    pub(super) fn shares(&self, concurrency: usize, messages_per_call: usize) -> (usize, usize) {
        let most = messages_per_call.min(MAX_BATCH_ENTRIES);
        let fewest = concurrency.div_ceil(MAX_BATCH_ENTRIES / most);
        let receivers = self.receivers.unwrap_or(fewest).clamp(1, concurrency);
        (receivers, (concurrency / receivers).saturating_mul(most).min(MAX_BATCH_ENTRIES))
    }
}

/// When a worker ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Until {
    /// When the future of [`Worker::run`](crate::Worker::run) is ready.
    #[default]
    Shutdown,
    /// Also when the queue is empty, by SQS's own approximate count of its messages. Waiting
    /// messages count.
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
