//! The queue: its port, which `requeue-sqs` has, and the adapter for SQS, `sqs.rs`.

use std::time::Duration;

mod sqs;

#[doc(inline)]
pub use requeue_sqs::{
    Arn, Attribute, AttributeValue, CallError, CallErrorKind, Confirmation, Description,
    EntryError, InvalidPrincipal, InvalidQueueArn, InvalidQueueUrl, MAX_BATCH_BYTES,
    MAX_BATCH_ENTRIES, MAX_DELAY, MAX_EVENT, MAX_IN_FLIGHT, MAX_MAPPING_BATCH, MAX_QUEUE_NAME,
    MAX_RECEIVES, MAX_RETENTION, MAX_RUN, MAX_VISIBILITY, MAX_WAIT, MESSAGE_TOO_LONG, Outgoing,
    Principal, Queue, QueueArn, QueueUrl, ReceiveRequest, Record, Source, is_attribute_name,
};
pub use sqs::SqsQueue;

/// The longest time from the receive of a message to the start of its invocation: the longest
/// batching window of an event source mapping, 300 s, and a minute until the function starts.
pub(crate) const RECEIVED_BEFORE: Duration = Duration::from_secs(300 + 60);

/// The longest wait with the visibility timeout: SQS counts [`MAX_VISIBILITY`] from the receive,
/// which may be [`RECEIVED_BEFORE`] earlier than an invocation of 15 minutes.
pub(crate) const MAX_VISIBILITY_WAIT: Duration =
    Duration::from_secs(MAX_VISIBILITY.as_secs() - RECEIVED_BEFORE.as_secs() - 15 * 60);
