//! The port: the three calls that settling makes, and what they can answer. Knows no SDK; `sqs.rs` is the adapter for the real one.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::disposition::Delay;

mod arn;

pub use arn::{InvalidQueueArn, QueueArn};

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
    /// Sends at most [`MAX_BATCH_ENTRIES`] messages of [`MAX_BATCH_BYTES`] in all; gives up at `deadline`.
    fn send(
        &self,
        queue: &QueueArn,
        entries: &[Outgoing],
        deadline: Instant,
    ) -> impl Future<Output = Result<Vec<Confirmation>, CallError>> + Send;

    /// Deletes at most [`MAX_BATCH_ENTRIES`] messages by their receipt handles.
    fn delete(
        &self,
        queue: &QueueArn,
        receipt_handles: &[&str],
        deadline: Instant,
    ) -> impl Future<Output = Result<Vec<Confirmation>, CallError>> + Send;

    /// Lets at most [`MAX_BATCH_ENTRIES`] received messages stay invisible for so long from now.
    fn change_visibility(
        &self,
        queue: &QueueArn,
        entries: &[(&str, Duration)],
        deadline: Instant,
    ) -> impl Future<Output = Result<Vec<Confirmation>, CallError>> + Send;
}

/// One message to send.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// The body.
    pub body: String,
    /// Always sent, also when it is zero: a missing one means the queue's own default.
    pub delay: Delay,
    /// The attributes, as they were received.
    pub attributes: Arc<BTreeMap<String, Attribute>>,
    /// The tenant on a standard queue with fair queues; the group on a FIFO queue.
    pub group_id: Option<String>,
}

impl Outgoing {
    /// The bytes that SQS counts: body, and name, type and value of each attribute.
    #[must_use]
    pub fn size(&self) -> usize {
        self.body.len()
            + self
                .attributes
                .iter()
                .map(|(name, attribute)| name.len() + attribute.size())
                .sum::<usize>()
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

/// What the service said of one entry of a call that it answered.
pub type Confirmation = Result<(), EntryError>;

/// One entry was not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryError {
    /// The service's code, or `Unconfirmed` when it did not mention the entry.
    pub code: String,
    /// Sending the same entry again cannot help.
    pub sender_fault: bool,
}

/// A whole call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallError {
    /// The service's code, or one of ours for a call without an answer.
    pub code: String,
    /// What that means.
    pub kind: CallErrorKind,
}

/// What a failed call means for its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallErrorKind {
    /// The service refused it, and will again: configuration, permission, encryption.
    Refused,
    /// The service refused it for now: throttled, or an error on its side.
    Unavailable,
    /// There is no answer: the service may or may not have carried it out.
    Ambiguous,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.code)
    }
}

impl std::error::Error for CallError {}
