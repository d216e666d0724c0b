//! One delivery: as SQS gave it to us (`Record`), as the processor sees it (`Delivery`), and as the
//! handler sees it (`Message`). Knows nothing of Lambda's event format.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::arrivals::Arrivals;
use crate::disposition::{Delay, Strategy};
use crate::failure::{Evidence, Failure, FailureClass};
use crate::gate::Caller;
use crate::policy::Progress;
use crate::producer::MessageLimits;
use crate::queue::{Attribute, AttributeValue, QueueArn};
use crate::sender::{Belief, Principal, Senders};
use crate::settings::ProducerLimits;
use crate::state::RetryState;
use crate::trace;
use crate::wire::{self, DeadLetterInfo, Origin};

/// If SQS says that a copy was sent this much later than we sent it, somebody else sent it: an
/// operator's redrive.
const REDRIVE_TOLERANCE: Duration = Duration::from_secs(120);
/// After so many copies in a row a message waits by its visibility, unless Lambda allows loops. Its
/// loop detection counts to about 16, by the invocation and not by the message. Source: Lambda
/// developer guide, "Use Lambda recursive loop detection to prevent infinite loops".
pub(crate) const MAX_LINEAGE: u32 = 10;
/// An annotated copy waits for so long before its first receive. One that was received sooner after
/// it was enqueued was therefore enqueued by somebody else, which the clock alone could not tell
/// within the tolerance.
pub(crate) const ANNOTATION_DELAY: Delay = Delay::secs(10);
/// After so many redrives nothing starts afresh any more.
const MAX_REDRIVES: u32 = 10;

/// Why a body with two layers of retry fields that are not believed is not handled.
const NESTED: &str = "the retry fields of two copies, neither by a trusted sender: REQUEUE_TRUSTED_SENDERS seems to lack the id of a \
                      function or worker that handles this queue";

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

/// One record after decoding: what the gate, the policy and settling work with.
pub(crate) struct Delivery {
    /// Its place in the batch.
    pub(crate) position: usize,
    pub(crate) message_id: Option<String>,
    /// The receipt handle of this delivery first, then those of further deliveries of the same
    /// message in the same batch.
    pub(crate) receipt_handles: Vec<String>,
    pub(crate) queue: Option<Arc<QueueArn>>,
    /// How it waits for its next attempt.
    pub(crate) strategy: Strategy,
    /// Copies in a row up to this one, as Lambda's loop detection counts them; `None` where it is
    /// switched off.
    pub(crate) lineage: Option<u32>,
    /// Whether other messages of its batch make it wait in its place, though it might have waited
    /// in a copy.
    waits_for_others: bool,
    /// By SQS's count, which goes on when a redrive policy moves a message.
    pub(crate) receive_count: u32,
    /// Receives before it came to this queue, as far as they are known.
    receives_before: u32,
    /// Receives that were used up by waiting in its place for its time, or behind a message that
    /// did.
    waits: u32,
    pub(crate) first_sent: SystemTime,
    pub(crate) first_received: SystemTime,
    /// When this copy was first received in this queue, if that is known.
    pub(crate) copy_first_received: Option<SystemTime>,
    pub(crate) group_id: Option<String>,
    trace_header: Option<String>,
    pub(crate) attributes: BTreeMap<String, Attribute>,
    pub(crate) state: RetryState,
    /// What its producer allows.
    pub(crate) limits: MessageLimits,
    /// Why no handler can be given this record.
    pub(crate) defect: Option<Failure>,
    /// Why no handler may be, though the record is whole.
    pub(crate) refusal: Option<Failure>,
    /// It bears our fields, and nobody knows yet whether their sender is to be believed.
    pub(crate) is_unverified: bool,
    /// A later version of this library wrote the message's state.
    pub(crate) is_of_later_version: bool,
    /// The body as first delivered.
    payload: String,
}

/// By what records are read.
#[derive(Default)]
pub(crate) struct Decoder {
    /// Bounds the count that a producer may claim.
    pub(crate) max_retries: u32,
    /// What a standard queue is to have.
    pub(crate) strategy: Strategy,
    pub(crate) producer_limits: ProducerLimits,
    /// Whose fields are believed; `None` for everybody's.
    pub(crate) senders: Option<Senders>,
    pub(crate) arrivals: Arrivals,
}

impl Decoder {
    /// Takes a body apart, and says how far its sender is to be believed.
    fn read<'a>(&self, body: &'a str, sender: Option<Principal>) -> (wire::Body<'a>, Trust) {
        let read = wire::read(body, self.max_retries);
        let Some(senders) =
            self.senders.as_ref().filter(|_| !matches!(read.origin, Origin::Fresh { .. }))
        else {
            return (read, Trust::Full);
        };
        match senders.believes(sender) {
            Belief::Believed => (read, Trust::Full),
            Belief::Unknown => (read, Trust::Unknown),
            Belief::NotBelieved => {
                let is_nested =
                    matches!(read.origin, Origin::Ours(_)) && wire::bears_fields(&read.payload);
                senders.warn(sender);
                (
                    wire::read_as_foreign(body, self.max_retries),
                    if is_nested { Trust::Nested } else { Trust::Full },
                )
            }
        }
    }
}

/// How far the retry fields of a body are to be believed, as it was read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trust {
    Full,
    /// STS has not said yet who we are.
    Unknown,
    /// They are not believed, and were put around others that were not believed either: each copy
    /// of such a body would be one layer larger.
    Nested,
}

impl Delivery {
    /// Reads a record. `received` is the time of this batch, for a record that does not say.
    pub(crate) fn decode(
        position: usize,
        mut record: Record,
        received: SystemTime,
        decoder: &Decoder,
    ) -> Self {
        let arrival = decoder.arrivals.of(&record, received);
        let broken = |what| Failure::new(FailureClass::NonRetryable, Evidence::Body, what);
        let mut defect =
            record.attributes.is_none().then(|| broken("a message attribute cannot be read"));
        let body = record.body.take().filter(|body| !body.is_empty()).unwrap_or_else(|| {
            defect = Some(broken("the record has no body"));
            String::new()
        });
        let is_fifo = record.queue.as_ref().is_some_and(|queue| queue.is_fifo());
        let (read, trust) = decoder.read(&body, record.sender);
        let is_unverified = trust == Trust::Unknown;
        if trust == Trust::Nested {
            defect = Some(broken(NESTED));
        }
        let is_of_later_version = matches!(read.origin, Origin::LaterVersion(_));
        let mut state = match read.origin {
            Origin::Fresh { retry_count } => RetryState { retry_count, ..RetryState::default() },
            Origin::Ours(state) => *state,
            Origin::LaterVersion(_) => RetryState::default(),
        };
        if is_fifo {
            // It is none of ours: we count by receives there, so that a message was called before
            // they say that it is given up.
            state.retry_count = 0;
        }
        let payload = match read.payload {
            Cow::Borrowed(_) => None,
            Cow::Owned(restored) => Some(restored),
        };
        let state = restart_if_redriven(state, &record);
        // SQS's own times are those of the queue from which it was moved.
        let (sent, copy_first_received) = match &arrival {
            Some(arrival) => (None, Some(arrival.at)),
            None => (record.sent, record.first_received),
        };
        let here = copy_first_received.unwrap_or(received);
        let receive_count = record.receive_count.unwrap_or(1).max(1);
        let attributes = record.attributes.unwrap_or_default();
        let first_sent = state.first_sent.or(sent).unwrap_or(here);
        let (limits, refusal) = match decoder.producer_limits {
            ProducerLimits::On => MessageLimits::read(&attributes, first_sent).map_or_else(
                |refusal| (MessageLimits::default(), Some(refusal)),
                |limits| (limits, None),
            ),
            ProducerLimits::Off => (MessageLimits::default(), None),
        };
        let message_id = record.message_id.filter(|id| !id.is_empty());
        let strategy = match decoder.strategy {
            // Whoever wrote the fields, a copy would vouch for them.
            _ if is_unverified => Strategy::Visibility,
            // A copy would lose its place.
            Strategy::Copy if is_fifo => Strategy::Visibility,
            // Only by its id can SQS be told to keep it.
            Strategy::Visibility if message_id.is_none() && !is_fifo => Strategy::Copy,
            strategy @ (Strategy::Copy | Strategy::Visibility) => strategy,
        };
        Self {
            position,
            message_id,
            receipt_handles: record
                .receipt_handle
                .filter(|handle| !handle.is_empty())
                .into_iter()
                .collect(),
            queue: record.queue,
            strategy,
            lineage: None,
            waits_for_others: false,
            receive_count,
            receives_before: arrival.map_or(0, |arrival| arrival.receives_before),
            waits: limits.receives(here),
            first_sent,
            first_received: state.first_received.unwrap_or(here),
            copy_first_received,
            group_id: record.group_id,
            trace_header: record.trace_header,
            attributes,
            limits,
            refusal,
            payload: payload.unwrap_or(body),
            state,
            defect,
            is_unverified,
            is_of_later_version,
        }
    }

    /// Adds a further delivery of the same message: one message, one outcome. SQS honours the
    /// receipt handle of the latest receive, so that one comes first.
    pub(crate) fn join(&mut self, mut other: Self) {
        if other.receive_count > self.receive_count {
            std::mem::swap(self, &mut other);
        }
        self.position = self.position.min(other.position);
        self.receipt_handles.append(&mut other.receipt_handles);
    }

    /// Notes which message is before it in its FIFO group: as long as that one is not done, both
    /// are received together.
    pub(crate) fn follow(&mut self, predecessor: &Self) {
        self.waits = self.waits.max(predecessor.waits);
    }

    /// Notes how many copies in a row led to this invocation: whatever it sends continues that row.
    pub(crate) fn descend(&mut self, lineage: u32) {
        self.lineage = Some(lineage);
        // Only by its id can SQS be told to keep it.
        if self.ends_its_row() && self.message_id.is_some() && self.strategy == Strategy::Copy {
            self.strategy = Strategy::Visibility;
            self.waits_for_others = self.state.lineage < MAX_LINEAGE;
        }
    }

    /// Whether nothing more may be sent for it without coming near Lambda's limit.
    pub(crate) fn ends_its_row(&self) -> bool {
        self.lineage.is_some_and(|lineage| lineage >= MAX_LINEAGE)
    }

    /// The body as first delivered.
    pub(crate) fn payload(&self) -> &str {
        &self.payload
    }

    /// The id of the first delivery.
    pub(crate) fn original_id(&self) -> Option<&str> {
        self.state.original_message_id.as_deref().or(self.message_id.as_deref())
    }

    pub(crate) fn is_fifo(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.is_fifo())
    }

    /// Retries used before this delivery, or more where a message waits in its place.
    pub(crate) fn retries(&self) -> u32 {
        self.progress().retries()
    }

    /// Receives of this copy in this queue that may have been attempts, this one included.
    fn receives(&self) -> u32 {
        self.receive_count.saturating_sub(self.receives_before).saturating_sub(self.waits).max(1)
    }

    /// How often it was not its turn. A message that cannot be re-sent keeps its count; its
    /// receives count for it.
    pub(crate) fn deferrals(&self) -> u32 {
        self.state.deferrals.max(self.receives() - 1)
    }

    /// Whom what is called deals with.
    pub(crate) fn caller(&self) -> Caller {
        Caller::new(self.original_id(), self.retries() > 0)
    }

    pub(crate) fn progress(&self) -> Progress<'_> {
        Progress {
            state: &self.state,
            // Before its time nobody has tried anything.
            first_received: self
                .limits
                .not_before
                .map_or(self.first_received, |due| due.max(self.first_received)),
            max_retries: self.limits.max_retries.unwrap_or(u32::MAX),
            receive_count: self.receives(),
            strategy: self.strategy,
            // A message that waits for the sake of others, or for STS, may wait in a copy
            // otherwise, so its receives say nothing.
            counts_receives: self.strategy == Strategy::Visibility
                && !self.waits_for_others
                && !self.is_unverified,
        }
    }
}

/// What SQS does not say of this copy is no evidence: nothing restarts by time then. What SQS
/// itself moved is in a dead-letter queue, of which somebody works on the messages anew; the
/// handler is told why it is there.
fn restart_if_redriven(state: RetryState, record: &Record) -> RetryState {
    let Record { sent, first_received, was_dead_lettered, ref dead_letter_source, .. } = *record;
    let since = |from: Option<SystemTime>, to: Option<SystemTime>| to?.duration_since(from?).ok();
    let enqueued_later =
        since(state.retry_timestamp, sent).is_some_and(|later| later > REDRIVE_TOLERANCE);
    // A second less: nobody promises that SQS keeps a delay to the millisecond.
    let least = Duration::from_secs(u64::from(ANNOTATION_DELAY.as_secs()) - 1);
    let received_too_soon =
        state.dead_letter.is_some() && since(sent, first_received).is_some_and(|time| time < least);
    let was_sent_elsewhere = state.source.is_some();
    let redriven = enqueued_later || received_too_soon || was_sent_elsewhere || was_dead_lettered;
    if !redriven || state.redrives >= MAX_REDRIVES {
        return state;
    }
    let last_dead_letter = DeadLetterInfo::to_remember(
        &state,
        was_dead_lettered,
        dead_letter_source.as_ref().map(ToString::to_string),
    );
    RetryState {
        last_dead_letter,
        original_message_id: state.original_message_id,
        // Nobody says that a redrive breaks off the row.
        lineage: state.lineage,
        redrives: state.redrives + 1,
        unknown: state.unknown,
        ..RetryState::default()
    }
}

/// Which attempt a delivery is, counted from 1.
pub type Attempt = NonZeroU32;

/// One delivery as the handler sees it.
///
/// The body is a type of your own that serde can read, or [`Raw`] for the text itself, which is the
/// same, byte for byte, on every attempt.
///
/// ```
/// # use requeue::{Failure, Message};
/// #[derive(serde::Deserialize)]
/// struct Order { id: String }
///
/// async fn charge(message: Message<Order>) -> Result<(), Failure> {
///     if message.is_last_attempt() {
///         println!("order {} had its last chance", message.body().id);
///     }
///     Ok(())
/// }
/// ```
pub struct Message<T = Raw> {
    body: T,
    delivery: Arc<Delivery>,
    max_retries: u32,
    deadline: Instant,
}

impl<T: Body> Message<T> {
    /// Reads the body; fails with a non-retryable failure when it does not fit the type.
    pub(crate) fn new(
        delivery: &Arc<Delivery>,
        max_retries: u32,
        deadline: Instant,
    ) -> Result<Self, Failure> {
        let body = T::read(Raw(Arc::clone(delivery)))?;
        Ok(Self { body, delivery: Arc::clone(delivery), max_retries, deadline })
    }
}

impl<T> Message<T> {
    /// The body.
    pub fn body(&self) -> &T {
        &self.body
    }

    /// The body, moved out.
    pub fn into_body(self) -> T {
        self.body
    }

    /// The id of this delivery's message, which changes with every retry; `None` in a malformed
    /// event.
    pub fn id(&self) -> Option<&str> {
        self.delivery.message_id.as_deref()
    }

    /// The id that the message had when it was first delivered: the same on every attempt, so the
    /// idempotency key.
    pub fn original_id(&self) -> Option<&str> {
        self.delivery.original_id()
    }

    /// The queue; `None` in a malformed event.
    pub fn queue(&self) -> Option<&QueueArn> {
        self.delivery.queue.as_deref()
    }

    /// The message attributes.
    pub fn attributes(&self) -> &BTreeMap<String, Attribute> {
        &self.delivery.attributes
    }

    /// The message group: on a standard queue the tenant of fair queues.
    pub fn group_id(&self) -> Option<&str> {
        self.delivery.group_id.as_deref()
    }

    /// The trace to which the message belongs, as W3C Trace Context has it: its attribute
    /// `traceparent`, or else what SQS has kept for X-Ray. With it a handler continues the trace of
    /// who sent the message; [`HttpTarget`](crate::http::HttpTarget) does so by itself.
    pub fn traceparent(&self) -> Option<Cow<'_, str>> {
        let kept = || self.delivery.trace_header.as_deref().and_then(trace::of_header);
        self.own_traceparent().map(Cow::Borrowed).or_else(|| kept().map(Cow::Owned))
    }

    /// What belongs to the `traceparent` of the same message: the attribute `tracestate`, if it has
    /// both.
    pub fn tracestate(&self) -> Option<&str> {
        self.own_traceparent()?;
        match &self.delivery.attributes.get(trace::TRACESTATE)?.value {
            AttributeValue::Text(state) => Some(state),
            AttributeValue::Binary(_) => None,
        }
    }

    fn own_traceparent(&self) -> Option<&str> {
        self.delivery.attributes.get(trace::TRACEPARENT).and_then(trace::of_attribute)
    }

    /// Why the message was given up, of one that is handled in a dead-letter queue or was brought
    /// back from one; else `None`. In the mode [`Redrive`](crate::DeadLetterMode::Redrive) no
    /// reason is known. In the dead-letter queue the class of the last retry and the source may be;
    /// of a message that was brought back, nothing is, and this is `None`.
    ///
    /// It is the same on every attempt. [`HttpTarget`](crate::http::HttpTarget) sends it as
    /// `X-Requeue-Dead-Letter-…` headers.
    ///
    /// ```
    /// # use requeue::{Failure, FailureClass, Message};
    /// async fn file(message: Message) -> Result<(), Failure> {
    ///     let class = message.dead_letter().and_then(|info| info.class());
    ///     if class == Some(FailureClass::NonRetryable) {
    ///         println!("{} needs a person", message.original_id().unwrap_or_default());
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn dead_letter(&self) -> Option<DeadLetterInfo> {
        self.delivery.state.last_dead_letter.as_deref().map(DeadLetterInfo::read)
    }

    /// Which attempt this is: 1 the first time.
    pub fn attempt(&self) -> Attempt {
        Attempt::MIN.saturating_add(self.delivery.retries())
    }

    /// Retries used so far.
    pub fn retry_count(&self) -> u32 {
        self.delivery.retries()
    }

    /// How often SQS delivered this copy. It is more than once
    ///
    /// - after a crash or a time-out of the function, and after a throttled invocation,
    /// - if the message was left to SQS, or its copy was not confirmed,
    /// - for each further attempt of a message that waits in its place (a FIFO queue,
    ///   [`Strategy::Visibility`]),
    /// - in a dead-letter queue, since the receives in its source queue count.
    pub fn receive_count(&self) -> u32 {
        self.delivery.receive_count
    }

    /// Whether a further failure finds all retries used. Time budgets may end the retries earlier.
    pub fn is_last_attempt(&self) -> bool {
        self.delivery.retries() >= self.max_retries
    }

    /// When the message was first sent, by SQS's clock. A message that a redrive policy moved
    /// starts afresh: it was sent when it was first received here.
    pub fn first_sent(&self) -> SystemTime {
        self.delivery.first_sent
    }

    /// When the message was first received, by SQS's clock; here, if a redrive policy moved it.
    pub fn first_received(&self) -> SystemTime {
        self.delivery.first_received
    }

    /// What is left until the handler is cancelled.
    pub fn time_left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

/// What can be read from a message body: every type that serde can read from JSON, and [`Raw`]. A
/// `String` is a type that serde can read: from a JSON string. For plain text take [`Raw`].
pub trait Body: Sized + Send + 'static {
    /// Reads the body as first delivered.
    fn read(raw: Raw) -> Result<Self, Failure>;
}

impl<T: DeserializeOwned + Send + 'static> Body for T {
    /// The failure says where the body does not fit, and not what stands there.
    fn read(raw: Raw) -> Result<Self, Failure> {
        serde_json::from_str(&raw).map_err(|error| {
            let place = format_args!(
                "the body does not fit the handler's type (line {}, column {})",
                error.line(),
                error.column()
            );
            Failure::new(FailureClass::NonRetryable, Evidence::Body, place)
        })
    }
}

impl Body for Raw {
    fn read(raw: Raw) -> Result<Self, Failure> {
        Ok(raw)
    }
}

/// The text of a body, byte for byte as first delivered. Cheap to clone.
#[derive(Clone)]
pub struct Raw(Arc<Delivery>);

impl Deref for Raw {
    type Target = str;

    fn deref(&self) -> &str {
        self.0.payload()
    }
}

impl AsRef<[u8]> for Raw {
    fn as_ref(&self) -> &[u8] {
        self.0.payload().as_bytes()
    }
}

impl From<Raw> for Bytes {
    /// Shares the text; nothing is copied.
    fn from(raw: Raw) -> Self {
        Bytes::from_owner(raw)
    }
}
