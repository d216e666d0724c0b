//! Messages for unit tests of handlers.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::{Attempt, Message};
use crate::clock::after;
use crate::delivery::Delivery;
use crate::queue::{Attribute, QueueArn};

/// The default of [`Limits::timeout`](crate::Limits::timeout).
const TIME_LEFT: Duration = Duration::from_secs(30);
/// The retries of the policy `standard`.
const MAX_RETRIES: u32 = 50;

/// A message for a unit test of a handler; see [`Message::builder`] for an example.
///
/// By default it is the first attempt at a message of the standard queue `orders`. It has no
/// attributes, was sent now, and its handler has 30 s.
///
/// To test retries, use `requeue::testing::World`, of the feature `embedded`.
#[must_use = "`build` makes the message"]
pub struct MessageBuilder<T> {
    body: T,
    delivery: Delivery,
    attempt: Attempt,
    is_last_attempt: bool,
    time_left: Duration,
}

impl<T> MessageBuilder<T> {
    pub(super) fn new(body: T) -> Self {
        let mut delivery = Delivery::of_text("{}".to_owned());
        delivery.message_id = Some("00000000-0000-4000-8000-000000000001".to_owned());
        let queue = "arn:aws:sqs:us-east-1:000000000000:orders".parse();
        delivery.queue = Some(Arc::new(queue.expect("an ARN of a queue")));
        Self { body, delivery, attempt: Attempt::MIN, is_last_attempt: false, time_left: TIME_LEFT }
    }

    /// The id of this delivery's message.
    pub fn id(mut self, id: &str) -> Self {
        self.delivery.message_id = Some(id.to_owned());
        self
    }

    /// The id of the first delivery. Default: the id of this one.
    pub fn original_id(mut self, id: &str) -> Self {
        self.delivery.state.original_message_id = Some(id.to_owned());
        self
    }

    /// The queue.
    pub fn queue(mut self, queue: QueueArn) -> Self {
        self.delivery.queue = Some(Arc::new(queue));
        self
    }

    /// Adds a message attribute of the type `String`.
    pub fn attribute(mut self, name: &str, value: &str) -> Self {
        self.delivery.attributes.insert(name.to_owned(), Attribute::text(value));
        self
    }

    /// The message group.
    pub fn group_id(mut self, id: &str) -> Self {
        self.delivery.group_id = Some(id.to_owned());
        self
    }

    /// The number of the attempt, 1 the first time.
    ///
    /// # Panics
    ///
    /// If it is 0.
    pub fn attempt(mut self, attempt: u32) -> Self {
        self.attempt = NonZeroU32::new(attempt).expect("attempts are counted from 1");
        self
    }

    /// Makes it the last attempt: all retries are used.
    pub fn last_attempt(mut self) -> Self {
        self.is_last_attempt = true;
        self
    }

    /// How often SQS delivered this copy, 1 the first time.
    pub fn receive_count(mut self, count: u32) -> Self {
        self.delivery.receive_count = count;
        self
    }

    /// When the message was first sent and received.
    pub fn first_sent(mut self, time: SystemTime) -> Self {
        self.delivery.first_sent = time;
        self.delivery.first_received = time;
        self
    }

    /// The time until the handler is cancelled.
    pub fn time_left(mut self, time: Duration) -> Self {
        self.time_left = time;
        self
    }

    /// The message.
    #[must_use]
    pub fn build(mut self) -> Message<T> {
        self.delivery.state.retry_count = self.attempt.get() - 1;
        let max_retries = if self.is_last_attempt { 0 } else { MAX_RETRIES };
        let deadline = after(self.time_left);
        Message::with_body(self.body, Arc::new(self.delivery), max_retries, deadline, 0.0)
    }
}

requeue_sqs::debug_by_name!(MessageBuilder<T>);
