//! Limits of SQS, each with its source.

use std::time::Duration;

/// Most entries in one batch call. Source: SQS API reference, `SendMessageBatch`.
pub const MAX_BATCH_ENTRIES: usize = 10;
/// Most bytes of one message, and of all messages in one batch call. Source: SQS API reference,
/// `SendMessageBatch`.
pub const MAX_BATCH_BYTES: usize = 1_048_576;
/// Longest visibility timeout, counted from the receive. Source: SQS API reference,
/// `ChangeMessageVisibility`.
pub const MAX_VISIBILITY: Duration = Duration::from_secs(43_200);
/// Longest wait of a receive. Source: SQS API reference, `ReceiveMessage`.
pub const MAX_WAIT: Duration = Duration::from_secs(20);
