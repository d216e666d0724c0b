//! The settings of single queues, for a process that works on several.

use std::time::Duration;

use super::{DeadLetterMode, Settings};
use crate::classify::Rules;
use crate::policy::RetryPolicy;

/// The settings of one queue: see [`Settings::policy_for`].
/// A policy becomes such settings by `into`, and the text of a document's entry by `parse`.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct QueueSettings {
    /// The policy. It replaces [`Settings::policy`] as a whole, except `sqs_calls` and
    /// `receive_calls`.
    pub policy: RetryPolicy,
    /// The rules, which replace [`Settings::rules`]. Default: `None`, which keeps those.
    pub rules: Option<Rules>,
    /// Longest run of one handler. Default: `None`, which keeps that of [`Settings::limits`].
    pub timeout: Option<Duration>,
    /// Most handlers at once in a batch of this queue, or in a worker on it; 0 counts as 1. Default:
    /// `None`, which keeps that of [`Settings::limits`].
    pub concurrency: Option<usize>,
    /// How a dead-lettered message reaches the dead-letter queue. Default: `None`, which keeps
    /// [`Settings::dead_letter`].
    pub dead_letter: Option<DeadLetterMode>,
}

impl From<RetryPolicy> for QueueSettings {
    fn from(policy: RetryPolicy) -> Self {
        Self { policy, ..Self::default() }
    }
}

impl Settings {
    /// Sets the policy of one queue, and all else that is to differ for its messages. It is for a
    /// process that works on several queues, such as a function with several event source mappings.
    ///
    /// The queue then has its own pauses, circuits and limits.
    ///
    /// ```no_run
    /// # use requeue::{Failure, Message, QueueSettings, Settings};
    /// async fn handle(message: Message) -> Result<(), Failure> {
    ///     match message.queue().map(|queue| queue.name()) {
    ///         Some("refunds") => Ok(()),
    ///         _ => Ok(()),
    ///     }
    /// }
    ///
    /// #[tokio::main]
    /// async fn main() -> Result<(), requeue::Error> {
    ///     let refunds: QueueSettings = r#"{"maxRetries": 7, "concurrency": 2}"#.parse()?;
    ///     let settings = Settings::from_env()?.policy_for("refunds", refunds);
    ///     requeue::run_with(handle, settings).await
    /// }
    /// ```
    #[must_use]
    pub fn policy_for(mut self, queue: impl Into<String>, own: impl Into<QueueSettings>) -> Self {
        self.queues.insert(queue.into(), own.into());
        self
    }

    /// The settings as they count for the messages of one queue.
    #[must_use]
    pub fn of_queue(&self, queue: &str) -> Self {
        let mut settings = self.clone();
        if let Some(own) = self.queues.get(queue) {
            settings.apply(own.clone());
        }
        settings
    }

    /// Replaces the values that differ for one queue.
    pub(crate) fn apply(&mut self, own: QueueSettings) {
        let QueueSettings { policy, rules, timeout, concurrency, dead_letter } = own;
        let RetryPolicy { sqs_calls, receive_calls, .. } = self.policy.clone();
        self.policy = RetryPolicy { sqs_calls, receive_calls, ..policy };
        if let Some(rules) = rules {
            self.rules = rules;
        }
        self.limits.timeout = timeout.unwrap_or(self.limits.timeout);
        self.limits.concurrency = concurrency.unwrap_or(self.limits.concurrency);
        self.dead_letter = dead_letter.or(self.dead_letter.take());
    }
}
