//! A message that is sent to a queue of the world.

use std::collections::BTreeMap;
use std::future::{IntoFuture, Ready, ready};

use requeue_embedded::EmbeddedSqs;

use crate::delay::Delay;
use crate::queue::{Attribute, Outgoing, QueueArn};

/// A message that is sent when it is awaited; see [`World::send`](super::World::send).
#[derive(Debug)]
#[must_use = "a message is sent when it is awaited"]
pub struct SendRequest<'a> {
    sqs: &'a EmbeddedSqs,
    queue: QueueArn,
    body: String,
    attributes: BTreeMap<String, Attribute>,
    group: Option<String>,
    delay_secs: u16,
    number: u64,
}

impl<'a> SendRequest<'a> {
    pub(super) fn new(sqs: &'a EmbeddedSqs, queue: &QueueArn, body: String, number: u64) -> Self {
        let (queue, attributes) = (queue.clone(), BTreeMap::new());
        Self { sqs, queue, body, attributes, group: None, delay_secs: 0, number }
    }

    /// Sends the message to another queue of the world.
    ///
    /// # Panics
    ///
    /// If the world has no queue of this name.
    pub fn to(mut self, queue: &str) -> Self {
        let found = self.sqs.queues().into_iter().find(|known| known.name() == queue);
        self.queue = found.unwrap_or_else(|| panic!("the world has no queue {queue}"));
        self
    }

    /// Adds a message attribute of the type `String`.
    pub fn attribute(mut self, name: &str, value: &str) -> Self {
        self.attributes.insert(name.to_owned(), Attribute::text(value));
        self
    }

    /// Sets the message group: the group of a FIFO queue, or the tenant of fair queues. Without it,
    /// the messages of a FIFO queue are in the group `default`.
    pub fn group(mut self, id: &str) -> Self {
        self.group = Some(id.to_owned());
        self
    }

    /// Sets `DelaySeconds`, at most 900. A FIFO queue allows none.
    pub fn delay_secs(mut self, secs: u16) -> Self {
        self.delay_secs = secs;
        self
    }
}

impl IntoFuture for SendRequest<'_> {
    type Output = String;
    type IntoFuture = Ready<String>;

    /// Panics if SQS refuses the message, for example one of more than 1 MiB.
    fn into_future(self) -> Ready<String> {
        let is_fifo = self.queue.is_fifo();
        let number = is_fifo.then(|| self.number.to_string());
        let mut entry = Outgoing::new(&self.body, &self.attributes);
        entry.delay = Delay::secs(self.delay_secs);
        entry.group_id = self.group.as_deref().or(is_fifo.then_some("default"));
        entry.deduplication_id = number.as_deref();
        let sent = self.sqs.put(&self.queue, &entry);
        ready(sent.unwrap_or_else(|error| panic!("the message is refused: {error}")))
    }
}
