//! A message: a delivery for the handler, with its body read into the handler's own type.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::classify::{self, Response};
use crate::delivery::Delivery;
use crate::failure::Failure;
use crate::queue::{Attribute, QueueArn};
use crate::trace;
use crate::wire::DeadLetterInfo;

mod body;
mod builder;
mod event_record;

pub use body::{Body, Raw};
pub use builder::MessageBuilder;

/// The number of an attempt, counted from 1.
pub type Attempt = NonZeroU32;

/// One delivery for the handler.
///
/// The body is a type of your own that serde can read, or [`Raw`] for the text itself. The text is
/// the same, byte for byte, on every attempt.
pub struct Message<T = Raw> {
    body: T,
    delivery: Arc<Delivery>,
    /// The idempotency key of a message without an id.
    random_key: Option<String>,
    max_retries: u32,
    deadline: Instant,
    is_rate_limited: bool,
}

impl<T: Body> Message<T> {
    /// Reads the body. If it does not fit the type, the failure is non-retryable. `sample` is this
    /// message's random number.
    pub(crate) fn new(
        delivery: &Arc<Delivery>,
        max_retries: u32,
        deadline: Instant,
        sample: f64,
    ) -> Result<Self, Failure> {
        let body = T::read(Raw::of(delivery))?;
        Ok(Self::with_body(body, Arc::clone(delivery), max_retries, deadline, sample))
    }
}

impl<T> Message<T> {
    fn with_body(
        body: T,
        delivery: Arc<Delivery>,
        max_retries: u32,
        deadline: Instant,
        sample: f64,
    ) -> Self {
        let random_key = delivery
            .original_id()
            .is_none()
            .then(|| format!("no-id-{}-{:016x}", delivery.position, sample.to_bits()));
        Self { body, delivery, random_key, max_retries, deadline, is_rate_limited: false }
    }

    /// The handler begins later than expected.
    pub(crate) fn set_deadline(&mut self, deadline: Instant) {
        self.deadline = deadline;
    }

    /// Its call has taken a reservation of a rate limit.
    pub(crate) fn set_rate_limited(&mut self) {
        self.is_rate_limited = true;
    }

    /// A message for a unit test of a handler, with the body that the handler gets:
    /// `Message::builder(Order { cents: 5 }).attribute("tenant", "acme").build()`.
    pub fn builder(body: T) -> MessageBuilder<T> {
        MessageBuilder::new(body)
    }

    /// The body.
    pub fn body(&self) -> &T {
        &self.body
    }

    /// The body, moved out.
    pub fn into_body(self) -> T {
        self.body
    }

    /// The id of this delivery's message, which changes with every copy; `None` in a malformed
    /// event.
    pub fn id(&self) -> Option<&str> {
        self.delivery.message_id.as_deref()
    }

    /// The id that the message had when it was first delivered: the same on every attempt. `None`
    /// in a malformed event.
    pub fn original_id(&self) -> Option<&str> {
        self.delivery.original_id()
    }

    /// The id of the message's first delivery: the same on every attempt, and different for every
    /// other message. Give it to a downstream service that recognises repeated requests.
    ///
    /// SQS gives every message an id, but an event that was written by hand may lack it. The key is
    /// then random on each attempt, so that no two messages share one.
    pub fn idempotency_key(&self) -> &str {
        self.delivery.original_id().or(self.random_key.as_deref()).unwrap_or_default()
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
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.delivery.attributes.get(name)?.as_text()
    }

    /// The message group: on a standard queue the tenant of fair queues.
    pub fn group_id(&self) -> Option<&str> {
        self.delivery.group_id.as_deref()
    }

    /// The trace to which the message belongs, as W3C Trace Context has it. It is the attribute
    /// `traceparent`, or else X-Ray's trace of the first delivery, and the same on every attempt.
    /// With it a handler continues the producer's trace. `HttpTarget` does so by itself.
    pub fn traceparent(&self) -> Option<Cow<'_, str>> {
        self.delivery.traceparent()
    }

    /// The attribute `tracestate` of a message that also has the attribute `traceparent`.
    pub fn tracestate(&self) -> Option<&str> {
        self.delivery.own_traceparent()?;
        self.attribute(trace::TRACESTATE)
    }

    /// Why the message was dead-lettered, for a message in a dead-letter queue or a redriven one;
    /// otherwise `None`.
    ///
    /// In the mode [`Redrive`](crate::DeadLetterMode::Redrive) no reason is known. In the
    /// dead-letter queue the class of the last retry and the source queue may be known. A redriven
    /// message has neither, so this is `None`.
    ///
    /// The value is the same on every attempt. `HttpTarget` sends it as `X-Requeue-Dead-Letter-…`
    /// headers.
    pub fn dead_letter(&self) -> Option<DeadLetterInfo> {
        self.delivery.state.last_dead_letter.as_deref().map(DeadLetterInfo::read)
    }

    /// The number of this attempt: 1 the first time. If a table counts attempts, it is exact only
    /// in [`handle`](crate::Handler::handle): see [`Strategy`](crate::Strategy).
    pub fn attempt(&self) -> Attempt {
        Attempt::MIN.saturating_add(self.delivery.retries())
    }

    /// Retries used so far.
    pub fn retry_count(&self) -> u32 {
        self.delivery.retries()
    }

    /// How often SQS delivered this copy. The count is above 1
    ///
    /// - after a crash or a timeout of the function, and after a throttled invocation,
    /// - if the message was left to SQS, or its copy was not confirmed,
    /// - for each further attempt of a message that waits with its visibility timeout (a FIFO
    ///   queue, [`Strategy::Visibility`](crate::Strategy::Visibility)),
    /// - in a dead-letter queue, since the receives in its source queue count.
    pub fn receive_count(&self) -> u32 {
        self.delivery.receive_count
    }

    /// Whether a further failure would find all retries used. Time budgets may end them earlier.
    pub fn is_last_attempt(&self) -> bool {
        self.delivery.retries() >= self.max_retries
    }

    /// When the message was first sent, by SQS's clock. For a message that a redrive policy moved,
    /// this is its first receive in this queue.
    pub fn first_sent(&self) -> SystemTime {
        self.delivery.first_sent
    }

    /// When SQS first delivered the message, by SQS's clock. For a message that a redrive policy
    /// moved, only receives in this queue count.
    pub fn first_received(&self) -> SystemTime {
        self.delivery.first_received
    }

    /// Reports how many units of a rate limit this call used, if the [limit counts
    /// units](crate::policy::RetryPolicy::units). The limit then counts these units instead of the
    /// estimate in the message. The first number counts, up to the limit.
    pub fn used(&self, units: u32) {
        self.delivery.note_used(units);
    }

    /// Reports the response to this call to its rate limit, if the [limit follows
    /// headers](crate::policy::RateLimit::headers), such as `X-RateLimit-Remaining` and
    /// `X-RateLimit-Reset`. `now` is used only to count dates. The first response counts.
    pub fn note_response(&self, response: &Response<'_>, now: SystemTime) {
        if self.is_rate_limited && response.is_success() {
            self.delivery.note_allowances(classify::allowances(response, now));
        }
    }

    /// Whether this call has taken a reservation of a rate limit. A handler that then makes a second
    /// request exceeds the limit. It can [postpone](crate::Failure::postpone) the message instead.
    pub fn is_rate_limited(&self) -> bool {
        self.is_rate_limited
    }

    /// The message as a record of an SQS event, as JSON: as if SQS had delivered it again. A handler
    /// can so pass it on to a function with an event source mapping of its own.
    ///
    /// Of a copy, the body with its digest, the message id, the times and the trace are those of the
    /// first delivery. The receive count adds the retries. The receipt handle is that of this
    /// delivery. In `attributes` are also the texts `RequeueMessageId`, which is the [id](Self::id) of
    /// this delivery, `RequeueAttempt` and `RequeueLastAttempt` (`true` or `false`). A message
    /// without an id gets its [idempotency key](Self::idempotency_key) as one.
    pub fn to_event_record(&self) -> String {
        event_record::write(self)
    }

    /// The time left until the handler is cancelled.
    pub fn time_left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

// Without the body and the attributes, which may be secret.
requeue_sqs::debug_by_name!(Message<T>; |it| id: it.id(), original_id: it.original_id(),
    queue: it.queue(), attempt: it.attempt(), receive_count: it.receive_count());

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: Body>(body: &str) -> Result<T, Failure> {
        T::read(Raw::from(body))
    }

    #[test]
    fn a_string_is_the_text_as_it_is_and_other_types_are_json() {
        for text in ["plain", "\"quoted\"", "{\"a\":1}", "5"] {
            assert_eq!(read::<String>(text).expect("any text"), text);
            assert_eq!(&*read::<Raw>(text).expect("any text"), text);
        }
        assert_eq!(read::<u32>("5"), Ok(5));
        assert_eq!(read::<Option<String>>("\"a\""), Ok(Some("a".to_owned())));
        let failure = read::<u32>("plain").expect_err("it is not a number");
        assert_eq!(failure.detail(), "the body does not fit the handler's type (line 1, column 1)");
    }

    #[test]
    fn the_idempotency_key_is_the_first_id_and_random_without_one() {
        let key = |id: Option<&str>, position, sample| {
            let mut delivery = Delivery::of_text(String::new());
            (delivery.message_id, delivery.position) = (id.map(str::to_owned), position);
            let now = Instant::now();
            let message = Message::<Raw>::new(&Arc::new(delivery), 0, now, sample);
            message.expect("a text").idempotency_key().to_owned()
        };
        assert_eq!(key(Some("m"), 0, 0.5), "m");
        let keys = [key(None, 0, 0.5), key(None, 1, 0.5), key(None, 0, 0.25)];
        assert!(keys[0] != keys[1] && keys[0] != keys[2] && keys[1] != keys[2], "{keys:?}");
        let message = Message::builder(()).id("copy").original_id("first").attempt(2).build();
        assert_eq!((message.id(), message.idempotency_key()), (Some("copy"), "first"));
        assert_eq!((message.attempt().get(), message.is_last_attempt()), (2, false));
        assert!(Message::builder(()).last_attempt().build().is_last_attempt());
    }
}
