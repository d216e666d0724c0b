//! SQS in this process: for tests, for simulations, and for a laptop without AWS.
//!
//! One engine follows AWS's documented semantics and takes its time from a [`Clock`]. It has
//! several interfaces:
//!
//! - the real `aws_sdk_sqs` client without a socket ([`EmbeddedSqs::client`]);
//! - loopback HTTP for other processes ([`EmbeddedSqs::serve`]);
//! - the port of a queue, without serialisation ([`requeue_sqs::Queue`], [`requeue_sqs::Source`]);
//! - a look at the messages of a queue ([`EmbeddedSqs::messages`]).
//!
//! With tokio's paused clock hours pass in milliseconds:
//!
//! ```
//! # use std::time::{Duration, SystemTime};
//! # use requeue::Clock;
//! # use requeue::embedded::EmbeddedSqs;
//! # let mut runtime = tokio::runtime::Builder::new_current_thread();
//! # runtime.enable_all().start_paused(true).build()?.block_on(async {
//! let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
//! let sqs = EmbeddedSqs::new(Clock::starting_at(start));
//! let queue = sqs.create_queue("orders", [("VisibilityTimeout", "60")])?;
//! let client = sqs.client();
//! let send = client.send_message().queue_url(queue.url()).message_body("{}");
//! send.delay_seconds(900).send().await?;
//!
//! let poll = || client.receive_message().queue_url(queue.url()).wait_time_seconds(20).send();
//! let mut polls = 1;
//! while poll().await?.messages().is_empty() {
//!     polls += 1;
//! }
//! assert_eq!(polls, 45);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! It is not durable, distributed or authenticated. There is one account and one region. A queue is
//! found by its name alone, whatever host, region and account its URL or ARN names.

mod connector;
mod direct;
mod engine;
mod exchange;
mod fault;
#[doc(hidden)]
pub mod loopback;
mod mapping;
mod protocol;
mod server;
#[cfg(test)]
mod tests;
mod view;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use requeue_sqs::{Clock, Outgoing, QueueArn, Record};
use tokio::sync::Notify;

pub use engine::error::SqsError;
pub use fault::{Call, EntryFault, EntryOutcome, Fault};
pub use mapping::{Batch, EventSourceMapping, InvocationResult};
pub use server::Server;
pub use view::{MessageState, MessageView};

use engine::message::Received;
use engine::{Arrivals, Engine, Receive};
use exchange::Calls;

/// The region of queues, unless another is named.
pub const DEFAULT_REGION: &str = "us-east-1";
/// The account of queues, unless another is named.
pub const DEFAULT_ACCOUNT: &str = "000000000000";

/// SQS in this process. Clones share the same queues.
#[derive(Clone)]
pub struct EmbeddedSqs(Arc<Shared>);

struct Shared {
    engine: Mutex<Engine>,
    clock: Clock,
    /// Wakes long polls.
    news: Notify,
    calls: Mutex<Calls>,
}

impl EmbeddedSqs {
    /// An instance without queues, in [`DEFAULT_REGION`] and [`DEFAULT_ACCOUNT`].
    pub fn new(clock: Clock) -> Self {
        // Two instances must not give the same ids: an id is an idempotency key.
        let (seed, _) = uuid::Uuid::new_v4().as_u64_pair();
        Self::seeded(clock, DEFAULT_REGION, DEFAULT_ACCOUNT, seed)
    }

    /// As [`new`](Self::new), with another region and account in the ARNs of queues, and with the
    /// same message ids in every run with the same seed.
    pub fn seeded(clock: Clock, region: &str, account: &str, seed: u64) -> Self {
        Self(Arc::new(Shared {
            engine: Mutex::new(Engine::new(region, account, seed)),
            clock,
            news: Notify::new(),
            calls: Mutex::default(),
        }))
    }

    /// Creates a queue; the attributes are those of `CreateQueue`, as in
    /// `("VisibilityTimeout", "60")`.
    ///
    /// A name that ends in `.fifo` makes a FIFO queue. Creating a queue again with the same
    /// attributes changes nothing.
    pub fn create_queue<'a>(
        &self,
        name: &str,
        attributes: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<QueueArn, SqsError> {
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let mut attributes: BTreeMap<String, String> = attributes.into_iter().map(owned).collect();
        if name.strip_suffix(".fifo").is_some() {
            attributes.entry("FifoQueue".to_owned()).or_insert_with(|| "true".to_owned());
        }
        let mut engine = self.engine();
        engine.create_queue(name, &attributes, BTreeMap::new())?;
        Ok(arn(&engine, name))
    }

    /// The clock of this instance. A processor or worker on it uses the same clock, unless its
    /// settings have another.
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// All queues, by name.
    pub fn queues(&self) -> Vec<QueueArn> {
        let engine = self.engine();
        engine.queue_names("").map(|name| arn(&engine, name)).collect()
    }

    /// All attributes of a queue, as `GetQueueAttributes` returns them.
    pub fn attributes(&self, queue: &QueueArn) -> Result<BTreeMap<String, String>, SqsError> {
        self.engine().attributes(queue.name())
    }

    /// Every message of a queue, in the order of arrival. It receives none of them.
    pub fn messages(&self, queue: &QueueArn) -> Result<Vec<MessageView>, SqsError> {
        let mut engine = self.engine();
        Ok(engine.queue(queue.name())?.messages.values().map(MessageView::of).collect())
    }

    /// The number of messages in a queue, in all states.
    pub fn message_count(&self, queue: &QueueArn) -> Result<usize, SqsError> {
        Ok(self.engine().queue(queue.name())?.messages.len())
    }

    /// Stores a message as though a consumer had just received it as this record. Its retention
    /// begins now, and so do missing times.
    ///
    /// So an event file can be replayed: the handles in the file delete its messages and change
    /// their visibility timeout. The same message under the same handle again changes nothing.
    ///
    /// # Errors
    ///
    /// If there is no such queue, if the record lacks its id, body or handle, or if the handle is
    /// that of another message.
    pub fn put_in_flight(&self, queue: &QueueArn, mut record: Record) -> Result<(), SqsError> {
        let mut engine = self.engine();
        let handle = record.receipt_handle.take();
        let handle = handle.ok_or_else(|| SqsError::missing("ReceiptHandle"))?;
        let message = direct::message(record, engine.now)?;
        engine.queue(queue.name())?.put_in_flight(message, &handle)
    }

    /// Sends a message as a producer does, but without the SDK, and returns its id. It meets no
    /// fault and is not counted.
    pub fn put(&self, queue: &QueueArn, message: &Outgoing<'_>) -> Result<String, SqsError> {
        let sent = self.engine().send(queue.name(), direct::draft(message))?;
        self.0.news.notify_waiters();
        Ok(sent.id)
    }

    /// Receives at most `max` (1 to 10) messages without the SDK, waiting up to `wait` (at most 20
    /// s) for the first.
    ///
    /// This is the fast way for simulations. It meets no fault and is not counted.
    pub async fn receive(
        &self,
        queue: &QueueArn,
        max: u8,
        wait: Duration,
    ) -> Result<Vec<Record>, SqsError> {
        let received = self.received(queue, Receive::of(max.into(), wait)).await?;
        Ok(direct::records(received, queue))
    }

    async fn received(&self, queue: &QueueArn, asked: Receive) -> Result<Vec<Received>, SqsError> {
        self.with_long_poll(|engine: &mut Engine| engine.receive(queue.name(), asked)).await
    }

    /// Lets `faults` decide the fault of each request from now on, through every interface.
    ///
    /// ```
    /// # use requeue::{Clock, embedded::{EmbeddedSqs, Fault}};
    /// # let sqs = EmbeddedSqs::new(Clock::system());
    /// sqs.set_faults(|call| match call.operation.as_str() {
    ///     "SendMessageBatch" if call.of_operation <= 2 => {
    ///         Fault::refuse(503, "ServiceUnavailable")
    ///     }
    ///     _ => Fault::None,
    /// });
    /// ```
    pub fn set_faults(&self, faults: impl Fn(&Call) -> Fault + Send + Sync + 'static) {
        self.calls().hook = Some(Arc::new(faults));
    }

    /// Ends the faults of [`set_faults`](Self::set_faults).
    pub fn clear_faults(&self) {
        self.calls().hook = None;
    }

    /// Calls `observe` with the queue's name for each message that enters a queue from now on. A
    /// message enters when it is sent, moved by a redrive policy or a move task, or put there by
    /// hand.
    ///
    /// It replaces the function of an earlier call. The queues are locked meanwhile, so `observe`
    /// must not use them.
    pub fn on_arrival(&self, observe: impl Fn(&str, &MessageView) + Send + Sync + 'static) {
        let tell = move |queue: &str, message: &_| observe(queue, &MessageView::of(message));
        self.engine().tell(Arrivals(Some(Arc::new(tell))));
    }

    /// The number of requests of this operation (such as `SendMessageBatch`) that have arrived,
    /// with the SDK's retries.
    pub fn call_count(&self, operation: &str) -> u64 {
        self.calls().count(operation)
    }

    fn engine(&self) -> MutexGuard<'_, Engine> {
        let mut engine = self.0.engine.lock().unwrap_or_else(PoisonError::into_inner);
        engine.now = self.0.clock.now();
        engine
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.0.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for EmbeddedSqs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let engine = self.engine();
        let queues: Vec<&str> = engine.queue_names("").collect();
        f.debug_struct("EmbeddedSqs")
            .field("region", &engine.region)
            .field("queues", &queues)
            .finish_non_exhaustive()
    }
}

fn arn(engine: &Engine, name: &str) -> QueueArn {
    engine.arn(name).parse().expect("region, account and name have no colon and no slash")
}
