//! The settings of a worker. Plain data with defaults.

use std::time::Duration;

/// The settings of a worker besides the [`Settings`](crate::Settings) of its processor.
///
/// ```
/// use requeue::WorkerSettings;
/// let mut settings = WorkerSettings::default();
/// settings.receivers = Some(4);
/// assert_eq!(settings.shutdown_timeout.as_secs(), 30);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WorkerSettings {
    /// The number of receivers, each with one batch at a time. They share
    /// [`Limits::concurrency`](crate::Limits::concurrency) evenly, so no message waits in memory
    /// for a handler. Default: the fewest for batches of 10; never more than `concurrency`.
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

/// When a worker ends.
///
/// ```
/// assert_eq!(requeue::Until::default(), requeue::Until::Shutdown);
/// ```
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
///
/// ```
/// use requeue::WithoutDeadLetterQueue;
/// assert_eq!(WithoutDeadLetterQueue::default(), WithoutDeadLetterQueue::Refuse);
/// ```
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
