//! Tests of a handler: a queue, its dead-letter queue, the event source mapping and the processor
//! around the handler, in virtual time.
//!
//! ```
//! use requeue::testing::World;
//! use requeue::{Failure, Message};
//!
//! #[derive(serde::Deserialize, serde::Serialize)]
//! struct Order { id: u32 }
//!
//! async fn charge(message: Message<Order>) -> Result<(), Failure> {
//!     match (message.body().id, message.attempt().get()) {
//!         (1, 1 | 2) => Err(Failure::rate_limit("the bank asks to wait")),
//!         (2, _) => Err(Failure::non_retryable("declined")),
//!         _ => Ok(()),
//!     }
//! }
//!
//! # /*
//! #[tokio::test(start_paused = true)]
//! # */ #[tokio::main(flavor = "current_thread", start_paused = true)]
//! async fn a_rate_limit_is_retried_and_a_refusal_is_not() {
//!     let mut world = World::new(charge);
//!     let slow = world.send(Order { id: 1 }).attribute("tenant", "acme").await;
//!     let declined = world.send(Order { id: 2 }).await;
//!     world.run_until_empty().await;
//!     assert_eq!(world.attempts(&slow), 3);
//!     world.assert_done(&slow);
//!     world.assert_dead(&declined, "declined");
//! }
//! # fn main() { a_rate_limit_is_retried_and_a_refusal_is_not() }
//! ```
//!
//! The module needs tokio's feature `test-util`, and `requeue`'s feature `embedded`:
//!
//! ```toml
//! [dev-dependencies]
//! requeue = { version = "0.1", features = ["embedded"] }
//! tokio = { version = "1", features = ["macros", "rt", "test-util"] }
//! ```
//!
//! When all tasks of a paused runtime wait for a timer, tokio moves the time on, so hours of delays
//! pass in milliseconds. A handler that calls a server over a socket does not wait for a timer.
//! Give it a client that responds within the test instead.

#![allow(clippy::missing_panics_doc, reason = "a test fails by a panic")]

use std::collections::BTreeMap;
use std::future::{IntoFuture, Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use requeue_embedded::{EmbeddedSqs, EventSourceMapping, InvocationResult, MessageView};
use serde::Serialize;
use tokio::time::{Instant, sleep};

use crate::clock::{Clock, Sampler};
use crate::delay::Delay;
use crate::disposition::Disposition;
use crate::handler::Handler;
use crate::lambda::{SqsEvent, respond};
use crate::message::{Body, Raw};
use crate::processor::BatchProcessor;
use crate::queue::{Attribute, Outgoing, QueueArn};
use crate::report::Outcome;
use crate::settings::{DeadLetterMode, RecursiveLoop, Settings, SharedTable};
use crate::table::MemoryTable;
use crate::wire::DeadLetter;

/// When a world begins: 2026-09-21 14:13:20 UTC.
const BEGINNING: Duration = Duration::from_secs(1_790_000_000);
/// The function's timeout in the ready Lambda's template.
const FUNCTION_TIMEOUT: Duration = Duration::from_secs(60);
/// The visibility timeout in the ready Lambda's template: six times the function's timeout.
const VISIBILITY_SECS: &str = "360";
const MAX_RECEIVE_COUNT: u32 = 5;
const BATCH_SIZE: usize = 10;
/// The limit of [`World::run_until_empty`]. A handler that finishes its messages needs fewer.
const MOST_BATCHES: usize = 100_000;

const EXISTS: &str = "the queue exists";

/// A handler with its queues, its event source mapping and its processor, in virtual time. See the
/// [module](self) for an example.
///
/// The queue has a visibility timeout of 360 s, and moves a message to the dead-letter queue after
/// five receives. A batch has at most ten messages, and the function has 60 s for it. The settings
/// are those of the templates: the defaults, except [`RecursiveLoop::Allow`] and
/// [`DeadLetterMode::Annotate`].
#[derive(Debug)]
pub struct World<H, T = Raw> {
    sqs: EmbeddedSqs,
    queue: QueueArn,
    dead_letters: QueueArn,
    mapping: EventSourceMapping,
    processor: BatchProcessor<H, EmbeddedSqs, T>,
    /// The outcomes of each message, by the id of its first delivery.
    outcomes: BTreeMap<String, Vec<Outcome>>,
    sent: AtomicU64,
}

impl<H: Handler<T>, T: Body> World<H, T> {
    /// A world with a standard queue.
    ///
    /// # Panics
    ///
    /// If tokio's time is not paused. `#[tokio::test(start_paused = true)]` pauses it.
    pub fn new(handler: H) -> Self {
        Self::with(handler, "orders", |_| ())
    }

    /// A world with a FIFO queue. Panics as [`new`](Self::new).
    pub fn fifo(handler: H) -> Self {
        Self::with(handler, "orders.fifo", |_| ())
    }

    /// A world with a queue of this name and with settings of your own. The queue is a FIFO queue
    /// if its name ends in `.fifo`. If a policy has `idempotency` and the settings name no table, the world
    /// has one. Panics as [`new`](Self::new).
    ///
    /// ```
    /// # use requeue::{Failure, Message, testing::World};
    /// # async fn charge(_: Message) -> Result<(), Failure> { Err(Failure::temporary("later")) }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?.block_on(async {
    /// let mut world = World::with(charge, "orders", |settings| {
    ///     settings.policy.max_retries = 3;
    /// });
    /// let id = world.send_text("{}").await;
    /// world.run_until_empty().await;
    /// assert_eq!(world.attempts(&id), 4);
    /// # });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with(handler: H, queue: &str, set: impl FnOnce(&mut Settings)) -> Self {
        assert!(
            is_paused(),
            "tokio's time is not paused: use #[tokio::test(start_paused = true)], which needs \
             tokio's feature test-util"
        );
        let clock = Clock::starting_at(SystemTime::UNIX_EPOCH + BEGINNING);
        let sqs = EmbeddedSqs::new(clock);
        let dead_letters = match queue.strip_suffix(".fifo") {
            Some(name) => format!("{name}-dlq.fifo"),
            None => format!("{queue}-dlq"),
        };
        let dead_letters = sqs.create_queue(&dead_letters, []).expect("the name of a queue");
        let redrive = format!(
            r#"{{"deadLetterTargetArn":"{dead_letters}","maxReceiveCount":{MAX_RECEIVE_COUNT}}}"#
        );
        let attributes = [("VisibilityTimeout", VISIBILITY_SECS), ("RedrivePolicy", &redrive)];
        let queue = sqs.create_queue(queue, attributes).expect("the name of a queue");
        let mut settings = Settings {
            sampler: Sampler::seeded(0),
            recursive_loop: RecursiveLoop::Allow,
            dead_letter: Some(DeadLetterMode::Annotate),
            ..Settings::default()
        };
        set(&mut settings);
        if settings.lacks_table() {
            settings.shared_table = Some(SharedTable::by(Arc::new(MemoryTable::default())));
        }
        Self {
            mapping: EventSourceMapping::new(sqs.clone(), queue.clone(), BATCH_SIZE),
            processor: BatchProcessor::new(handler, sqs.clone(), settings),
            sqs,
            queue,
            dead_letters,
            outcomes: BTreeMap::new(),
            sent: AtomicU64::new(0),
        }
    }

    /// Sends a message when awaited, with this body as JSON, and returns the message's id.
    ///
    /// # Panics
    ///
    /// If serde cannot print the body as JSON.
    pub fn send(&self, body: impl Serialize) -> SendRequest<'_> {
        self.send_text(serde_json::to_string(&body).expect("a body that is JSON"))
    }

    /// Sends a message when awaited, with this body, and returns the message's id.
    pub fn send_text(&self, body: impl Into<String>) -> SendRequest<'_> {
        SendRequest {
            sqs: &self.sqs,
            queue: &self.queue,
            body: body.into(),
            attributes: BTreeMap::new(),
            group: None,
            delay_secs: 0,
            number: self.sent.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Lets time pass, and invokes the function whenever there are messages, until the queue is
    /// empty. All messages are then done or in the dead-letter queue.
    ///
    /// # Panics
    ///
    /// After a hundred thousand batches.
    pub async fn run_until_empty(&mut self) {
        for _ in 0..MOST_BATCHES {
            if !self.sqs.wait_until_due(&self.queue).await.expect(EXISTS) {
                return;
            }
            self.invoke().await;
        }
        panic!(
            "after {MOST_BATCHES} batches the queue still has messages: the handler never finishes \
             them, or waits for a later time; skip that time with `World::pass`"
        );
    }

    /// Invokes the function once with the messages that can be received now, and returns their
    /// number.
    pub async fn invoke(&mut self) -> usize {
        let Some(batch) = self.mapping.poll(Duration::ZERO).await.expect(EXISTS) else {
            return 0;
        };
        let event: SqsEvent =
            serde_json::from_value(batch.event(&self.queue)).expect("every event can be read");
        let records = event.records.expect("an event of SQS");
        let deadline = Instant::now() + FUNCTION_TIMEOUT;
        let report = self.processor.process(records, deadline).await;
        self.processor.observe(&report, deadline);
        let result = match respond(&report) {
            Ok(response) => {
                InvocationResult::Response(serde_json::to_vec(&response).expect("it is JSON"))
            }
            Err(_) => InvocationResult::FunctionError,
        };
        self.mapping.acknowledge(&batch, &result).expect(EXISTS);
        let count = report.outcomes.len();
        for outcome in report.outcomes {
            let id = outcome.original_message_id.clone().expect("SQS names every message");
            self.outcomes.entry(id).or_default().push(outcome);
        }
        count
    }

    /// Lets time pass without an invocation.
    pub async fn pass(&self, time: Duration) {
        sleep(time).await;
    }

    /// How often the handler was called for the message that [`send`](Self::send) gave this id.
    pub fn attempts(&self, id: &str) -> usize {
        self.outcomes(id).iter().filter(|outcome| outcome.elapsed.is_some()).count()
    }

    /// How often the handler was called for any message. A call of [several
    /// messages](crate::BulkHandler) counts once.
    pub fn calls(&self) -> usize {
        let all = self.outcomes.values().flatten();
        all.filter(|outcome| outcome.elapsed.is_some() && !outcome.joined_call).count()
    }

    /// The outcome of each delivery of the message, in their order.
    pub fn outcomes(&self, id: &str) -> &[Outcome] {
        self.outcomes.get(id).map_or(&[], Vec::as_slice)
    }

    /// The messages in the dead-letter queue.
    pub fn dead(&self) -> Vec<MessageView> {
        self.sqs.messages(&self.dead_letters).expect(EXISTS)
    }

    /// Asserts that the handler succeeded with the message.
    ///
    /// # Panics
    ///
    /// If the handler did not succeed with it.
    #[track_caller]
    pub fn assert_done(&self, id: &str) {
        let last = self.outcomes(id).last();
        let is_done = last.is_some_and(|last| last.disposition == Disposition::Complete);
        assert!(is_done, "not done: {}", self.story(id));
    }

    /// Asserts that the message is in the dead-letter queue, and that the reason of its last
    /// failure contains `words`.
    ///
    /// # Panics
    ///
    /// If the message is not there, or the reason does not contain `words`.
    #[track_caller]
    pub fn assert_dead(&self, id: &str, words: &str) {
        let is_it = |message: &MessageView| {
            message.id == id || DeadLetter::read(&message.body).original_message_id() == Some(id)
        };
        let story = self.story(id);
        assert!(self.dead().iter().any(is_it), "not in the dead-letter queue: {story}");
        let reason = self.outcomes(id).iter().rev().find_map(|outcome| outcome.detail.as_deref());
        assert!(
            reason.is_some_and(|reason| reason.contains(words)),
            "the reason does not contain {words:?}, it is {reason:?}: {story}"
        );
    }

    /// The embedded SQS, for faults and for a look into its queues.
    pub fn sqs(&self) -> &EmbeddedSqs {
        &self.sqs
    }

    /// The queue.
    pub fn queue(&self) -> &QueueArn {
        &self.queue
    }

    fn story(&self, id: &str) -> String {
        let deliveries = self.outcomes(id).iter().map(|outcome| {
            let why =
                outcome.disposition.reason().or(outcome.detail.as_deref()).unwrap_or("success");
            let wait = outcome.disposition.wait().map(|wait| wait.total().as_secs());
            let wait = wait.map(|secs| format!(" for {secs} s")).unwrap_or_default();
            format!(
                "\n  {} s old, retry {}, receive {}: {}{wait} ({why}), {}",
                outcome.age.as_secs(),
                outcome.retry_count,
                outcome.receive_count,
                outcome.disposition.as_str(),
                outcome.settlement.as_str()
            )
        });
        let deliveries = deliveries.collect::<String>();
        if deliveries.is_empty() {
            return format!(
                "message {id} was never delivered: await `run_until_empty`, or check that a message \
                 with this id was sent"
            );
        }
        format!("message {id}, its deliveries:{deliveries}")
    }
}

/// Whether tokio's time stands still while this thread sleeps.
fn is_paused() -> bool {
    let begun = Instant::now();
    std::thread::sleep(Duration::from_millis(2));
    Instant::now() == begun
}

/// A message that is sent when it is awaited; see [`World::send`].
#[derive(Debug)]
#[must_use = "a message is sent when it is awaited"]
pub struct SendRequest<'a> {
    sqs: &'a EmbeddedSqs,
    queue: &'a QueueArn,
    body: String,
    attributes: BTreeMap<String, Attribute>,
    group: Option<String>,
    delay_secs: u16,
    number: u64,
}

impl SendRequest<'_> {
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
        let sent = self.sqs.put(self.queue, &entry);
        ready(sent.unwrap_or_else(|error| panic!("the message is refused: {error}")))
    }
}
