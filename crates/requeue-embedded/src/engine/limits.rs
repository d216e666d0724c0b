//! The numbers of SQS, with those of `requeue-sqs`. Nothing here computes.
//!
//! "Reference" is the Amazon SQS API reference, "guide" the Amazon SQS developer guide.

use std::ops::RangeInclusive;
use std::time::Duration;

use requeue_sqs::{
    MAX_BATCH_BYTES, MAX_BATCH_ENTRIES, MAX_DELAY, MAX_IN_FLIGHT, MAX_RECEIVES, MAX_RETENTION,
    MAX_VISIBILITY, MAX_WAIT,
};

/// Most characters of a batch entry's id. Source: reference, `SendMessageBatchRequestEntry`.
pub(crate) const BATCH_ID_CHARS: usize = 80;
/// Bounds of `MaximumMessageSize`; the upper one is its default. Source: reference, `CreateQueue`.
pub(crate) const MESSAGE_BYTES: RangeInclusive<u64> = 1_024..=MAX_BATCH_BYTES as u64;
/// Bounds of `DelaySeconds`, of a queue and of a message. Source: reference, `SendMessage`.
pub(crate) const DELAY_SECS: RangeInclusive<u64> = 0..=MAX_DELAY.as_secs();
/// The upper one bounds the total since the receive. Source: reference, `ChangeMessageVisibility`.
pub(crate) const VISIBILITY_SECS: RangeInclusive<u64> = 0..=MAX_VISIBILITY.as_secs();
/// Visibility timeout of a queue that names none. Source: reference, `CreateQueue`.
pub(crate) const DEFAULT_VISIBILITY_SECS: u64 = 30;
/// Bounds of `MessageRetentionPeriod`: one minute to 14 days. Source: reference, `CreateQueue`.
pub(crate) const RETENTION_SECS: RangeInclusive<u64> = 60..=MAX_RETENTION.as_secs();
/// Retention of a queue that names none: 4 days. Source: reference, `CreateQueue`.
pub(crate) const DEFAULT_RETENTION_SECS: u64 = 345_600;
/// Bounds of `WaitTimeSeconds`. Source: reference, `ReceiveMessage`.
pub(crate) const WAIT_SECS: RangeInclusive<u64> = 0..=MAX_WAIT.as_secs();
/// Bounds of `MaxNumberOfMessages`. Source: reference, `ReceiveMessage`.
pub(crate) const RECEIVE_MESSAGES: RangeInclusive<u64> = 1..=MAX_BATCH_ENTRIES as u64;
pub(crate) const MAX_RECEIVE_COUNT: RangeInclusive<u64> = 1..=MAX_RECEIVES;
/// `maxReceiveCount` of a redrive policy that names none. Source: reference, `CreateQueue`.
pub(crate) const DEFAULT_MAX_RECEIVE_COUNT: u64 = 10;
pub(crate) const IN_FLIGHT: usize = MAX_IN_FLIGHT as usize;
/// Most attributes of a message. Source: guide, "Amazon SQS message quotas".
pub(crate) const ATTRIBUTES: usize = 10;
/// Of an attribute's name, and of its type. Source: guide, "Amazon SQS message metadata".
pub(crate) const ATTRIBUTE_NAME_CHARS: usize = 256;
/// Most significant digits of a `Number`. Source: guide, "Amazon SQS message metadata".
pub(crate) const NUMBER_DIGITS: usize = 38;
/// Of a message group id and of a deduplication id. Source: reference, `SendMessage`.
pub(crate) const GROUP_ID_CHARS: usize = 128;
/// How long a deduplication id is remembered. Source: reference, `SendMessage`.
pub(crate) const DEDUPLICATION: Duration = Duration::from_mins(5);
/// Least time between two purges of a queue. Source: reference, `PurgeQueue`.
pub(crate) const BETWEEN_PURGES: Duration = Duration::from_mins(1);
/// How long the name of a deleted queue stays reserved. Source: reference, `DeleteQueue`.
pub(crate) const NAME_HELD: Duration = Duration::from_mins(1);
/// Bounds of `MaxResults`; the upper one is the default. Source: reference, `ListQueues`.
pub(crate) const LISTED_QUEUES: RangeInclusive<u64> = 1..=1_000;
/// The upper one is the default. Source: reference, `StartMessageMoveTask`.
pub(crate) const MOVES_PER_SECOND: RangeInclusive<u64> = 1..=500;
/// Most tasks in one response of `ListMessageMoveTasks`. Source: reference, `ListMessageMoveTasks`.
pub(crate) const LISTED_MOVE_TASKS: RangeInclusive<u64> = 1..=10;
/// Most queues that a `RedriveAllowPolicy` names. Source: reference, `CreateQueue`.
pub(crate) const ALLOWED_SOURCES: usize = 10;
