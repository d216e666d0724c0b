//! Messages to look at and to add by hand, without the protocol.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use requeue_sqs::QueueArn;
use tokio::time::sleep;

use crate::engine::message::{Draft, Message, State, sequence_number};
use crate::{EmbeddedSqs, SqsError};
use requeue_sqs::{Attribute, epoch_millis};

/// There are no principals here. It has the form of an IAM user's id.
const SENDER_ID: &str = "AIDAREQUEUEEMBEDDED00";

/// A message as it is in its queue. Looking at it changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageView {
    /// The message id.
    pub id: String,
    /// The body.
    pub body: String,
    /// The state in its queue.
    pub state: MessageState,
    /// How often it was received, in the queues that a redrive policy moved it from too.
    pub receive_count: u32,
    /// When it was sent.
    pub sent: SystemTime,
    /// When it was received for the first time.
    pub first_received: Option<SystemTime>,
    /// The message attributes.
    pub attributes: Arc<BTreeMap<String, Attribute>>,
    /// The system attributes by their names, as a receive would return them.
    pub system_attributes: BTreeMap<&'static str, String>,
    /// The tenant on a standard queue, the group on a FIFO queue.
    pub group_id: Option<String>,
}

/// The state of a message in its queue. SQS has these three, so a fourth would be a new major
/// version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageState {
    /// It can be received.
    Visible,
    /// It was sent with a delay that ends at this time.
    DelayedUntil(SystemTime),
    /// It was received, and becomes visible again at this time.
    InFlightUntil(SystemTime),
}

impl MessageView {
    pub(crate) fn of(message: &Message) -> Self {
        Self {
            id: message.id.clone(),
            body: message.body.clone(),
            state: match message.state {
                State::Visible { .. } => MessageState::Visible,
                State::Delayed { until } => MessageState::DelayedUntil(until),
                State::InFlight { until, .. } => MessageState::InFlightUntil(until),
            },
            receive_count: message.receive_count,
            sent: message.sent,
            first_received: message.first_received,
            attributes: Arc::clone(&message.attributes),
            system_attributes: system_attributes(message),
            group_id: message.group.clone(),
        }
    }
}

/// A message that was received directly, without the SDK.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Delivered {
    /// The message.
    pub message: MessageView,
    /// The handle of this receive.
    pub receipt_handle: String,
}

/// A message that a consumer has received already, as an event file describes it: see
/// [`EmbeddedSqs::put_in_flight`](crate::EmbeddedSqs::put_in_flight).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InFlight {
    /// The message id.
    pub message_id: String,
    /// The handle by which it can be deleted.
    pub receipt_handle: String,
    /// The body.
    pub body: String,
    /// The message attributes.
    pub attributes: Arc<BTreeMap<String, Attribute>>,
    /// How often it was received, this time included.
    pub receive_count: u32,
    /// When it was sent; `None` means now. Retention is counted from now in any case.
    pub sent: Option<SystemTime>,
    /// When it was received for the first time; `None` means now.
    pub first_received: Option<SystemTime>,
    /// The tenant or the group.
    pub group_id: Option<String>,
    /// The deduplication id, on a FIFO queue.
    pub deduplication_id: Option<String>,
    /// The system attribute `AWSTraceHeader`.
    pub trace_header: Option<String>,
    /// The system attribute `SenderId`.
    pub sender_id: Option<String>,
}

impl InFlight {
    /// A message that was sent just now and received once.
    ///
    /// ```
    /// use requeue::embedded::InFlight;
    /// let mut message = InFlight::new("id-1", "handle-1", "{}");
    /// message.receive_count = 3;
    /// assert_eq!(message.receipt_handle, "handle-1");
    /// ```
    #[must_use]
    pub fn new(
        message_id: impl Into<String>,
        receipt_handle: impl Into<String>,
        body: impl Into<String>,
    ) -> Self {
        Self {
            message_id: message_id.into(),
            receipt_handle: receipt_handle.into(),
            body: body.into(),
            attributes: Arc::default(),
            receive_count: 1,
            sent: None,
            first_received: None,
            group_id: None,
            deduplication_id: None,
            trace_header: None,
            sender_id: None,
        }
    }

    pub(crate) fn into_message(self, now: SystemTime) -> Message {
        let draft = Draft {
            body: self.body,
            attributes: self.attributes,
            delay_secs: None,
            group: self.group_id,
            deduplication: self.deduplication_id,
            trace: self.trace_header,
        };
        Message {
            sent: self.sent.unwrap_or(now),
            first_received: Some(self.first_received.unwrap_or(now)),
            receive_count: self.receive_count,
            sender: self.sender_id,
            ..Message::new(draft, self.message_id, now)
        }
    }
}

pub(crate) fn system_attributes(message: &Message) -> BTreeMap<&'static str, String> {
    let sender = message.sender.as_deref().unwrap_or(SENDER_ID).to_owned();
    let certain = [
        ("SenderId", sender),
        ("SentTimestamp", epoch_millis(message.sent).to_string()),
        ("ApproximateReceiveCount", message.receive_count.to_string()),
    ];
    let first_received = message.first_received.map(|time| epoch_millis(time).to_string());
    let perhaps = [
        ("ApproximateFirstReceiveTimestamp", first_received),
        ("AWSTraceHeader", message.trace.clone()),
        ("MessageGroupId", message.group.clone()),
        ("MessageDeduplicationId", message.deduplication.clone()),
        ("SequenceNumber", message.sequence.map(sequence_number)),
        ("DeadLetterQueueSourceArn", message.dead_letter_source.clone()),
    ];
    let perhaps = perhaps.into_iter().filter_map(|(name, value)| Some((name, value?)));
    certain.into_iter().chain(perhaps).collect()
}

impl EmbeddedSqs {
    /// Sleeps until a message of the queue can be received; `false` at once if it has none.
    ///
    /// With tokio's paused clock that takes no time.
    pub async fn wait_until_due(&self, queue: &QueueArn) -> Result<bool, SqsError> {
        loop {
            let (due, now) = {
                let mut engine = self.engine();
                let now = engine.now;
                let index = &engine.queue(queue.name())?.index;
                if !index.next(1).is_empty() {
                    return Ok(true);
                }
                (index.next_due(), now)
            };
            let Some(due) = due else { return Ok(false) };
            sleep(due.duration_since(now).unwrap_or_default()).await;
        }
    }
}
