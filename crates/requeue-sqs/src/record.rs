//! A record: one message as SQS delivered it. This module knows neither Lambda's event format nor
//! Requeue's fields.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use crate::arn::QueueArn;
use crate::attribute::Attribute;
use crate::principal::Principal;

/// One record as it came from SQS. A missing or broken part is `None`, so that it does not stop the
/// other messages.
///
/// The default is a record that handlers get, with the body `{}` and without an id, a queue and
/// times. Without an id and a queue no copy of it can be sent.
///
/// ```
/// let mut record = requeue::Record::default();
/// record.message_id = Some("059f36b4-87a3-44ab-83d2-661975830a7d".to_owned());
/// record.body = Some(r#"{"id": "o-1"}"#.to_owned());
/// ```
#[derive(Clone)]
#[non_exhaustive]
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
    /// `AWSTraceHeader`: the message's trace in X-Ray.
    pub trace_header: Option<String>,
    /// Whether there is a `DeadLetterQueueSourceArn`: a redrive policy moved the message here.
    pub was_dead_lettered: bool,
    /// The queue that the `DeadLetterQueueSourceArn` names.
    pub dead_letter_source: Option<QueueArn>,
    /// The message attributes; `None` when one of them cannot be read.
    pub attributes: Option<BTreeMap<String, Attribute>>,
    /// The record as JSON, for a handler that passes it on: as its event has it, with the fields
    /// that are none here. A record without an event has what SQS said of it beyond these fields.
    pub event: Option<Arc<str>>,
}

impl Default for Record {
    fn default() -> Self {
        Self { body: Some("{}".to_owned()), ..Self::empty() }
    }
}

impl Record {
    /// A record with empty attributes and nothing else.
    pub const fn empty() -> Self {
        Self {
            message_id: None,
            receipt_handle: None,
            body: None,
            queue: None,
            receive_count: None,
            sender: None,
            sent: None,
            first_received: None,
            group_id: None,
            trace_header: None,
            was_dead_lettered: false,
            dead_letter_source: None,
            attributes: Some(BTreeMap::new()),
            event: None,
        }
    }
}

// Without the body, the receipt handle, the sender and the attributes, which may be secret.
crate::debug_by_name!(Record; |it| message_id: it.message_id, queue: it.queue,
    receive_count: it.receive_count, sent: it.sent, group_id: it.group_id);
