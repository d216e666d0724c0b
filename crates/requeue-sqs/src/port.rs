//! The port: the three calls of settling, the two more of a worker, and their responses. It knows
//! no SDK.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::{Duration, SystemTime};

use crate::arn::QueueArn;
use crate::attribute::{Attribute, message_bytes};
use crate::clock::Clock;
use crate::error::{CallError, Confirmation};
use crate::limits::{Delay, MAX_BATCH_ENTRIES, MAX_WAIT};
use crate::record::Record;

/// The queue, for settling. Each method is one request, tried once: settling itself tries again.
///
/// The result has one [`Confirmation`] for each entry, at the entry's own position, whatever the
/// order of the service's response. It is `Ok(())` only if the service confirmed that very entry.
pub trait Queue: Send + Sync + 'static {
    /// Sends at most [`MAX_BATCH_ENTRIES`] messages of [`MAX_BATCH_BYTES`](crate::MAX_BATCH_BYTES) in all.
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

    /// Hides at most [`MAX_BATCH_ENTRIES`] received messages for this long from now.
    fn change_visibility(
        &self,
        queue: &QueueArn,
        entries: &[(&str, Duration)],
    ) -> impl Future<Output = Result<Vec<Confirmation>, CallError>> + Send;

    /// Whether the visibility timeout of a received message has run out, so that another receiver
    /// may have it. If so, no copy of it may be sent, and its visibility may not be changed. This
    /// is not a request.
    ///
    /// `false` where nothing extends visibility timeouts, as in a Lambda. There the visibility
    /// timeout is at least the function's timeout, or AWS refuses the event source mapping. No
    /// invocation lasts longer.
    fn has_lapsed(&self, receipt_handle: &str) -> bool {
        let _ = receipt_handle;
        false
    }

    /// Waits until this process receives no more, if it shuts down. Until then it would receive the
    /// messages that become visible, and each receive is one of few.
    ///
    /// Returns at once where another process receives, as for a Lambda. This is not a request.
    fn last_receives(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// The clock of the service, as far as this process can know it: redrives are recognised by its
    /// times. Default: the clock of this machine. This is not a request.
    fn clock(&self) -> Clock {
        Clock::system()
    }
}

/// The queue, for a worker, which receives by itself. As with [`Queue`], each method is one
/// request, tried once.
pub trait Source: Send + Sync + 'static {
    /// Asks for the attributes that a worker has to know before it begins.
    fn describe(
        &self,
        queue: &QueueArn,
    ) -> impl Future<Output = Result<Description, CallError>> + Send;

    /// Receives messages, with all that [`Record`] holds.
    fn receive(
        &self,
        queue: &QueueArn,
        ask: ReceiveRequest,
    ) -> impl Future<Output = Result<Vec<Record>, CallError>> + Send;
}

/// A request for messages. Begin with the defaults and assign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiveRequest {
    /// Most messages, 1 to [`MAX_BATCH_ENTRIES`], which is the default.
    pub max: usize,
    /// How long to wait for the first one, at most [`MAX_WAIT`], which is the default.
    pub wait: Duration,
    /// How long the messages stay invisible. Default 30 s, as for the queues of SQS.
    pub visibility: Duration,
}

impl ReceiveRequest {
    /// A request for this many messages.
    pub const fn new(max: usize, wait: Duration, visibility: Duration) -> Self {
        Self { max, wait, visibility }
    }
}

impl Default for ReceiveRequest {
    fn default() -> Self {
        Self::new(MAX_BATCH_ENTRIES, MAX_WAIT, Duration::from_secs(30))
    }
}

/// A queue's attributes, as far as a worker depends on them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    /// The queue's ARN, as the service names it.
    pub arn: QueueArn,
    /// The queue's visibility timeout.
    pub visibility: Duration,
    /// The dead-letter queue that its redrive policy names, if it has one. That queue may not
    /// exist.
    pub dead_letter_queue: Option<QueueArn>,
    /// The number of receives after which SQS moves a message there.
    pub max_receive_count: Option<u32>,
    /// The number of messages in any state, which SQS counts approximately.
    pub messages: u64,
    /// Of those, the messages that were received and that SQS hides until their visibility timeout
    /// ends.
    pub in_flight: u64,
    /// Those whose delay has not ended.
    pub delayed: u64,
    /// The time by the clock of the service, if known.
    pub date: Option<SystemTime>,
    /// The endpoint that was asked, if the adapter knows it.
    pub endpoint: Option<String>,
}

impl Description {
    /// An empty queue without a dead-letter queue.
    pub const fn new(arn: QueueArn, visibility: Duration) -> Self {
        Self {
            arn,
            visibility,
            dead_letter_queue: None,
            max_receive_count: None,
            messages: 0,
            in_flight: 0,
            delayed: 0,
            date: None,
            endpoint: None,
        }
    }

    /// Reads the attributes of `GetQueueAttributes`; `None` when one that every queue has is
    /// missing.
    pub fn read<'a>(
        attribute: impl Fn(&str) -> Option<&'a str>,
        date: Option<SystemTime>,
    ) -> Option<Self> {
        const IN_FLIGHT: &str = "ApproximateNumberOfMessagesNotVisible";
        const DELAYED: &str = "ApproximateNumberOfMessagesDelayed";
        const COUNTS: [&str; 3] = ["ApproximateNumberOfMessages", DELAYED, IN_FLIGHT];
        let number = |name| attribute(name)?.parse::<u64>().ok();
        let visibility = Duration::from_secs(number("VisibilityTimeout")?);
        let redrive = attribute("RedrivePolicy").map(redrive_policy).unwrap_or_default();
        Some(Self {
            dead_letter_queue: redrive.0,
            max_receive_count: redrive.1,
            messages: COUNTS.iter().filter_map(|name| number(name)).sum(),
            in_flight: number(IN_FLIGHT).unwrap_or_default(),
            delayed: number(DELAYED).unwrap_or_default(),
            date,
            ..Self::new(attribute("QueueArn")?.parse().ok()?, visibility)
        })
    }
}

/// The dead-letter queue and the `maxReceiveCount`, which SQS takes as a number or as text.
fn redrive_policy(policy: &str) -> (Option<QueueArn>, Option<u32>) {
    let policy: serde_json::Value = serde_json::from_str(policy).unwrap_or_default();
    let count = &policy["maxReceiveCount"];
    let count = count.as_u64().or_else(|| count.as_str()?.parse().ok());
    let target = policy["deadLetterTargetArn"].as_str().and_then(|arn| arn.parse().ok());
    (target, count.and_then(|count| count.try_into().ok()))
}

/// One message to send.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Outgoing<'a> {
    /// The body.
    pub body: &'a str,
    /// The delay. It is sent also when it is zero, since a missing one means the queue's own
    /// default.
    pub delay: Delay,
    /// The attributes, as they were received.
    pub attributes: &'a BTreeMap<String, Attribute>,
    /// The group on a FIFO queue; the tenant on a standard queue with fair queues.
    pub group_id: Option<&'a str>,
    /// The deduplication id, for a FIFO queue.
    pub deduplication_id: Option<&'a str>,
}

impl<'a> Outgoing<'a> {
    /// A message without a delay, a group and a deduplication id.
    pub fn new(body: &'a str, attributes: &'a BTreeMap<String, Attribute>) -> Self {
        Self { body, delay: Delay::default(), attributes, group_id: None, deduplication_id: None }
    }

    /// The bytes that SQS counts: body, and name, type and value of each attribute.
    pub fn size(&self) -> usize {
        message_bytes(self.body, self.attributes)
    }
}
