//! The settings that a document names for its queue. They are read and reported, not applied: a
//! queue's settings belong to its creator.

use std::time::Duration;

#[cfg(test)]
use serde_json::Value;

use super::json::Json;
#[cfg(test)]
use super::key::object;
use super::key::{Key, Listed, names, table};
use super::section::Section;
use super::shapes::{Count, Shape};

/// The settings that a policy document names for its queue, as `queueConfig`. Requeue does not
/// apply them: `requeue check` compares them with what the policy needs, and `requeue
/// schedule` counts with `maxReceiveCount` and `visibilityTimeout`.
///
/// ```
/// use requeue::QueueConfig;
///
/// let queue: QueueConfig = r#"{"queueConfig": {"maxReceiveCount": 3}}"#.parse()?;
/// assert_eq!((queue.max_receive_count, queue.visibility_timeout), (Some(3), None));
/// # Ok::<(), requeue::InvalidPolicy>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueConfig {
    /// How long a received message is hidden: 0 to 43,200 s.
    pub visibility_timeout: Option<Duration>,
    /// How long the queue keeps a message: 60 s to 14 days.
    pub message_retention: Option<Duration>,
    /// The receives after which the redrive policy moves a message: 1 to 1,000.
    pub max_receive_count: Option<u32>,
    /// How long a new message is delayed: 0 to 900 s.
    pub delay: Option<Duration>,
    /// How long a receive waits for a message: 0 to 20 s.
    pub receive_wait: Option<Duration>,
}

/// The settings of a queue, within the limits of SQS. Source: API reference, `SetQueueAttributes`;
/// `maxReceiveCount`: dead-letter queues.
mod keys {
    use super::{Count, Key, Listed, table};

    table! {
        VISIBILITY_TIMEOUT, "visibilityTimeout", Count = Count { min: 0, max: 43_200 },
            "How long SQS hides a received message, in seconds.";
        MESSAGE_RETENTION, "messageRetentionPeriod", Count = Count { min: 60, max: 1_209_600 },
            "How long the queue keeps a message, in seconds.";
        MAX_RECEIVE_COUNT, "maxReceiveCount", Count = Count { min: 1, max: 1_000 },
            "After how many receives the redrive policy moves a message.";
        DELAY, "delaySeconds", Count = Count { min: 0, max: 900 },
            "How long SQS delays a new message.";
        RECEIVE_WAIT, "receiveMessageWaitTimeSeconds", Count = Count { min: 0, max: 20 },
            "How long a receive waits for a message.";
    }
}

/// An object with the settings of a queue.
pub(super) struct QueueConfigs;

impl Shape for QueueConfigs {
    type Value = QueueConfig;

    fn read(&self, json: Json<'_>, path: &str, problems: &mut Vec<String>) -> Option<QueueConfig> {
        let mut section = Section::open(json, path, &names(keys::ALL), problems)?;
        let secs = |count: u32| Duration::from_secs(count.into());
        Some(QueueConfig {
            visibility_timeout: section.read(&keys::VISIBILITY_TIMEOUT, problems).map(secs),
            message_retention: section.read(&keys::MESSAGE_RETENTION, problems).map(secs),
            max_receive_count: section.read(&keys::MAX_RECEIVE_COUNT, problems),
            delay: section.read(&keys::DELAY, problems).map(secs),
            receive_wait: section.read(&keys::RECEIVE_WAIT, problems).map(secs),
        })
    }

    #[cfg(test)]
    fn schema(&self) -> Value {
        object(keys::ALL)
    }
}
