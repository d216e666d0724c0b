//! A record: one message as SQS delivered it. Knows neither Lambda's event format nor our fields.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use super::{Attribute, Principal, QueueArn};

/// One record as it came from SQS. Whatever is missing or broken is `None`: it must not keep its
/// neighbours from their turn.
///
/// ```
/// let record = requeue::Record { body: Some("{}".into()), ..Default::default() };
/// assert!(record.message_id.is_none());
/// ```
#[derive(Clone, Default)]
pub struct Record {
    /// The message id.
    pub message_id: Option<String>,
    /// The receipt handle.
    pub receipt_handle: Option<String>,
    /// The body.
    pub body: Option<String>,
    /// The queue it came from.
    pub queue: Option<Arc<QueueArn>>,
    /// `ApproximateReceiveCount`.
    pub receive_count: Option<u32>,
    /// `SenderId`, without the name of the session.
    pub sender: Option<Principal>,
    /// `SentTimestamp`.
    pub sent: Option<SystemTime>,
    /// `ApproximateFirstReceiveTimestamp`.
    pub first_received: Option<SystemTime>,
    /// `MessageGroupId`.
    pub group_id: Option<String>,
    /// `AWSTraceHeader`: the trace to which X-Ray counts it.
    pub trace_header: Option<String>,
    /// Whether there is a `DeadLetterQueueSourceArn`: a redrive policy moved it here.
    pub was_dead_lettered: bool,
    /// The queue that it names.
    pub dead_letter_source: Option<QueueArn>,
    /// The message attributes; `None` when one of them cannot be read.
    pub attributes: Option<BTreeMap<String, Attribute>>,
}

/// Without the body, the receipt handle, the sender and the attributes, which may be secret.
impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("message_id", &self.message_id)
            .field("queue", &self.queue)
            .field("receive_count", &self.receive_count)
            .field("sent", &self.sent)
            .field("group_id", &self.group_id)
            .finish_non_exhaustive()
    }
}
