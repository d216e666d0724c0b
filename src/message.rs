//! A message: a delivery as the handler sees it, with its body read into the handler's own type.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::delivery::Delivery;
use crate::failure::{Evidence, Failure, FailureClass};
use crate::queue::{Attribute, AttributeValue, QueueArn};
use crate::trace;
use crate::wire::DeadLetterInfo;

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

    /// The text of a message attribute; `None` if there is no such attribute, or it is binary.
    ///
    /// ```
    /// # use requeue::{Failure, Message};
    /// async fn charge(message: Message) -> Result<(), Failure> {
    ///     println!("for {}", message.attribute("tenant").unwrap_or("nobody"));
    ///     Ok(())
    /// }
    /// ```
    pub fn attribute(&self, name: &str) -> Option<&str> {
        match &self.delivery.attributes.get(name)?.value {
            AttributeValue::Text(text) => Some(text),
            AttributeValue::Binary(_) => None,
        }
    }

    /// The message group: on a standard queue the tenant of fair queues.
    pub fn group_id(&self) -> Option<&str> {
        self.delivery.group_id.as_deref()
    }

    /// The trace to which the message belongs, as W3C Trace Context has it: its attribute
    /// `traceparent`, or else what SQS has kept for X-Ray. With it a handler continues the trace of
    /// who sent the message; `HttpTarget` does so by itself.
    pub fn traceparent(&self) -> Option<Cow<'_, str>> {
        let kept = || self.delivery.trace_header.as_deref().and_then(trace::of_header);
        self.own_traceparent().map(Cow::Borrowed).or_else(|| kept().map(Cow::Owned))
    }

    /// The companion of the `traceparent` of the same message: the attribute `tracestate`, if it
    /// has both.
    pub fn tracestate(&self) -> Option<&str> {
        self.own_traceparent()?;
        self.attribute(trace::TRACESTATE)
    }

    fn own_traceparent(&self) -> Option<&str> {
        self.delivery.attributes.get(trace::TRACEPARENT).and_then(trace::of_attribute)
    }

    /// Why the message was given up, of one that is handled in a dead-letter queue or was brought
    /// back from one; else `None`. In the mode [`Redrive`](crate::DeadLetterMode::Redrive) no
    /// reason is known. In the dead-letter queue the class of the last retry and the source may be;
    /// of a message that was brought back, nothing is, and this is `None`.
    ///
    /// It is the same on every attempt. `HttpTarget` sends it as
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
    /// - for each further attempt of a message that waits by its visibility (a FIFO queue,
    ///   [`Strategy::Visibility`](crate::Strategy::Visibility)),
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

    /// The time left until the handler is cancelled.
    pub fn time_left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

/// Without the body and the attributes, which may be secret.
impl<T> fmt::Debug for Message<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("id", &self.id())
            .field("original_id", &self.original_id())
            .field("queue", &self.queue())
            .field("attempt", &self.attempt())
            .field("receive_count", &self.receive_count())
            .finish_non_exhaustive()
    }
}

/// A type that can be read from a message body: every type that serde can read from JSON, and
/// [`Raw`]. A `String` is a type that serde can read: from a JSON string. For plain text take
/// [`Raw`].
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

impl AsRef<str> for Raw {
    fn as_ref(&self) -> &str {
        self
    }
}

/// The text, without a change.
impl fmt::Display for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

/// Its length alone, since the text may be secret.
impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Raw({} bytes)", self.len())
    }
}
