//! Messages to look at, without the protocol.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use requeue_sqs::QueueArn;
use tokio::time::sleep;

use crate::engine::message::{Message, State, sequence_number};
use crate::{EmbeddedSqs, SqsError};
use requeue_sqs::{Attribute, epoch_millis};

/// There are no principals here. It has the form of an IAM user's id.
pub(crate) const SENDER_ID: &str = "AIDAREQUEUEEMBEDDED00";

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
