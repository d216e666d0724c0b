//! The port: the three calls that settling makes, and what they can answer. Knows no SDK; `sqs.rs` is the adapter for the real one.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::time::Duration;

use crate::disposition::Delay;

mod arn;
mod error;
mod sqs;

pub use arn::{InvalidQueueArn, InvalidQueueUrl, QueueArn, QueueUrl};
pub use error::{CallError, CallErrorKind, Confirmation, EntryError};
pub use sqs::SqsQueue;

/// Most entries in one batch call. Source: SQS API reference, `SendMessageBatch`.
pub const MAX_BATCH_ENTRIES: usize = 10;
/// Most bytes of one message, and of all messages in one batch call. Source: SQS API reference, `SendMessageBatch`.
pub const MAX_BATCH_BYTES: usize = 1_048_576;
/// Longest visibility timeout, counted from the receive. Source: SQS API reference, `ChangeMessageVisibility`.
pub const MAX_VISIBILITY: Duration = Duration::from_secs(43_200);

/// A queue as settling sees it. Each method is one request, tried once: trying again is settling's business.
///
/// The answer has one [`Confirmation`] for each entry, at the entry's own position, whatever the order in which the service
/// answered. It is `Ok(())` only when the service confirmed that very entry.
pub trait Queue: Send + Sync + 'static {
    /// Sends at most [`MAX_BATCH_ENTRIES`] messages of [`MAX_BATCH_BYTES`] in all.
    fn send(
        &self,
        queue: &QueueArn,
        entries: &[Outgoing<'_>],
    ) -> impl Future<Output = Result<Vec<Confirmation>, CallError>> + Send;

    /// Deletes at most [`MAX_BATCH_ENTRIES`] messages by their receipt handles.
    fn delete(
        &self,
        queue: &QueueArn,
        receipt_handles: &[&str],
    ) -> impl Future<Output = Result<Vec<Confirmation>, CallError>> + Send;

    /// Lets at most [`MAX_BATCH_ENTRIES`] received messages stay invisible for so long from now.
    fn change_visibility(
        &self,
        queue: &QueueArn,
        entries: &[(&str, Duration)],
    ) -> impl Future<Output = Result<Vec<Confirmation>, CallError>> + Send;
}

/// One message to send.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// The body.
    pub body: &'a str,
    /// Always sent, also when it is zero: a missing one means the queue's own default.
    pub delay: Delay,
    /// The attributes, as they were received.
    pub attributes: &'a BTreeMap<String, Attribute>,
    /// The group on a FIFO queue; the tenant on a standard queue with fair queues.
    pub group_id: Option<&'a str>,
    /// For a FIFO queue.
    pub deduplication_id: Option<&'a str>,
}

impl Outgoing<'_> {
    /// The bytes that SQS counts: body, and name, type and value of each attribute.
    #[must_use]
    pub fn size(&self) -> usize {
        self.body.len() + self.attributes.iter().map(|(name, attribute)| name.len() + attribute.size()).sum::<usize>()
    }
}

/// A message attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// `String`, `Number` or `Binary`, perhaps with a label after a dot.
    pub data_type: String,
    /// The value.
    pub value: AttributeValue,
}

impl Attribute {
    /// The bytes that SQS counts, its name apart.
    pub(crate) fn size(&self) -> usize {
        let value = match &self.value {
            AttributeValue::Text(text) => text.len(),
            AttributeValue::Binary(bytes) => bytes.len(),
        };
        self.data_type.len() + value
    }
}

/// The value of a message attribute.
#[derive(Clone, PartialEq, Eq)]
pub enum AttributeValue {
    /// Of the types `String` and `Number`.
    Text(String),
    /// Of the type `Binary`, decoded.
    Binary(Vec<u8>),
}

impl fmt::Debug for AttributeValue {
    /// Says the kind and the length only: values may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "Text({} bytes)", text.len()),
            Self::Binary(bytes) => write!(f, "Binary({} bytes)", bytes.len()),
        }
    }
}
