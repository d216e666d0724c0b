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
    /// Receivers, each of which works on one batch at a time. They share [`Limits::concurrency`](crate::Limits::concurrency)
    /// evenly, so that no message waits in memory for a handler. Default: as few as that takes with
    /// batches of 10; never more than `concurrency`.
    pub receivers: Option<usize>,
    /// From the signal to the end. Shortly before it is over handlers that still run are cancelled
    /// and their messages given back. Default 30 s.
    pub shutdown_timeout: Duration,
    /// The meaning of a queue without a redrive policy, or without its dead-letter queue. Default:
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
    /// When it is told to.
    #[default]
    Shutdown,
    /// Also when the queue is empty, by SQS's own approximate count of its messages, those that
    /// wait included.
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
    /// A warning: a message that is given up comes back again and again, and vanishes when its
    /// retention ends.
    Warn,
}
