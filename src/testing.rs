//! Tests of a handler: queues, their dead-letter queues, the event source mappings and the processor
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
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use requeue_embedded::{EmbeddedSqs, EventSourceMapping, InvocationResult, MessageView};
use serde::Serialize;
use tokio::time::{Instant, sleep};

use crate::clock::{Clock, Sampler};
use crate::disposition::Disposition;
use crate::handler::Handler;
use crate::lambda::{SqsEvent, respond};
use crate::message::{Body, Raw};
use crate::processor::BatchProcessor;
use crate::queue::QueueArn;
use crate::report::Outcome;
use crate::settings::{DeadLetterMode, RecursiveLoop, Settings, SharedTable};
use crate::table::MemoryTable;
use crate::wire::DeadLetter;

mod send_request;

pub use send_request::SendRequest;

/// When a world begins: 2026-09-21 14:13:20 UTC.
const BEGINNING: Duration = Duration::from_secs(1_790_000_000);
const FUNCTION_TIMEOUT: Duration = Duration::from_secs(60);
const BATCH_SIZE: usize = 10;
/// The limit of [`World::run_until_empty`]. A handler that finishes its messages needs fewer.
const MOST_BATCHES: usize = 100_000;

const EXISTS: &str = "the queue exists";

/// A handler with its queues, its event source mappings and its processor, in virtual time. See the
/// [module](self) for an example.
///
/// A queue has a visibility timeout of 360 s, and moves a message to its dead-letter queue, with
/// `-dlq` in its name, after five receives. A batch has at most ten messages, and the function has
/// 60 s for it. The settings are those of the templates: the defaults, except
/// [`RecursiveLoop::Allow`] and [`DeadLetterMode::Annotate`].
#[derive(Debug)]
pub struct World<H, T = Raw> {
    sqs: EmbeddedSqs,
    /// At least one.
    queues: Vec<Mapped>,
    batch_size: usize,
    processor: BatchProcessor<H, EmbeddedSqs, T>,
    /// The outcomes of each message, by the id of its first delivery.
    outcomes: BTreeMap<String, Vec<Outcome>>,
    sent: AtomicU64,
}

impl<H: Handler<T>, T: Body> World<H, T> {
    /// A world with a standard queue. It panics if tokio's time is not paused, as
    /// `#[tokio::test(start_paused = true)]` does it.
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
    pub fn with(handler: H, queue: &str, set: impl FnOnce(&mut Settings)) -> Self {
        assert!(
            is_paused(),
            "tokio's time is not paused: use #[tokio::test(start_paused = true)], which needs \
             tokio's feature test-util"
        );
        let clock = Clock::starting_at(SystemTime::UNIX_EPOCH + BEGINNING);
        let sqs = EmbeddedSqs::new(clock);
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
            queues: vec![Mapped::create(&sqs, queue, BATCH_SIZE)],
            batch_size: BATCH_SIZE,
            processor: BatchProcessor::new(handler, sqs.clone(), settings),
            sqs,
            outcomes: BTreeMap::new(),
            sent: AtomicU64::new(0),
        }
    }

    /// Adds a queue of this name, with a dead-letter queue and an event source mapping of its own. It
    /// is a FIFO queue if its name ends in `.fifo`.
    #[must_use]
    pub fn with_queue(mut self, name: &str) -> Self {
        self.queues.push(Mapped::create(&self.sqs, name, self.batch_size));
        self
    }

    /// Sets the most messages of a batch: 1 to 10,000, and at most 10 from a FIFO queue. The default
    /// is 10. A batch ends early at 6 MB, as in Lambda.
    #[must_use]
    pub fn with_batch_size(mut self, messages: usize) -> Self {
        self.batch_size = messages;
        for Mapped { queue, mapping, .. } in &mut self.queues {
            *mapping = EventSourceMapping::new(self.sqs.clone(), queue.clone(), messages);
        }
        self
    }

    /// Sends a message when awaited, with this body as JSON, and returns the message's id.
    pub fn send(&self, body: impl Serialize) -> SendRequest<'_> {
        self.send_text(serde_json::to_string(&body).expect("a body that is JSON"))
    }

    /// Sends a message when awaited, with this body, and returns the message's id.
    pub fn send_text(&self, body: impl Into<String>) -> SendRequest<'_> {
        let number = self.sent.fetch_add(1, Ordering::Relaxed);
        SendRequest::new(&self.sqs, self.queue(), body.into(), number)
    }

    /// Lets time pass, and invokes the function whenever there are messages, until each queue is
    /// empty. All messages are then done or in the dead-letter queue. It panics after a hundred
    /// thousand batches.
    pub async fn run_until_empty(&mut self) {
        for _ in 0..MOST_BATCHES {
            if !self.wait_until_due().await {
                return;
            }
            self.invoke().await;
        }
        panic!(
            "after {MOST_BATCHES} batches the queue still has messages: the handler never finishes \
             them, or waits for a later time; skip that time with `World::pass`"
        );
    }

    /// Waits until a message can be received; `false` if all queues are empty.
    async fn wait_until_due(&self) -> bool {
        let of_queue = |mapped: &'_ Mapped| {
            let (sqs, queue) = (self.sqs.clone(), mapped.queue.clone());
            async move { sqs.wait_until_due(&queue).await.expect(EXISTS) }
        };
        let waits: FuturesUnordered<_> = self.queues.iter().map(of_queue).collect();
        let mut waits = std::pin::pin!(waits.filter(|is_due| ready(*is_due)));
        waits.next().await.is_some()
    }

    /// Invokes the function once for each queue with messages that can be received now, and returns
    /// their number.
    pub async fn invoke(&mut self) -> usize {
        let mut messages = 0;
        for at in 0..self.queues.len() {
            messages += self.invoke_with_batch_of(at).await;
        }
        messages
    }

    async fn invoke_with_batch_of(&mut self, queue: usize) -> usize {
        let Mapped { queue, mapping, .. } = &self.queues[queue];
        let Some(batch) = mapping.poll(Duration::ZERO).await.expect(EXISTS) else {
            return 0;
        };
        let event: SqsEvent =
            serde_json::from_value(batch.event(queue)).expect("every event can be read");
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
        mapping.acknowledge(&batch, &result).expect(EXISTS);
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

    /// The messages in the dead-letter queues.
    pub fn dead(&self) -> Vec<MessageView> {
        let of_queue = |mapped: &Mapped| self.sqs.messages(&mapped.dead_letters).expect(EXISTS);
        self.queues.iter().flat_map(of_queue).collect()
    }

    /// Asserts that the handler succeeded with the message.
    #[track_caller]
    pub fn assert_done(&self, id: &str) {
        let last = self.outcomes(id).last();
        let is_done = last.is_some_and(|last| last.disposition == Disposition::Complete);
        assert!(is_done, "not done: {}", self.story(id));
    }

    /// Asserts that the message is in the dead-letter queue, and that the reason of its last
    /// failure contains `words`.
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

    /// The queue, or the first of several.
    pub fn queue(&self) -> &QueueArn {
        &self.queues[0].queue
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

/// The visibility timeout in the ready Lambda's template: six times the function's timeout.
const VISIBILITY_SECS: &str = "360";
const MAX_RECEIVE_COUNT: u32 = 5;

/// A queue with its dead-letter queue and its event source mapping.
#[derive(Debug)]
struct Mapped {
    queue: QueueArn,
    dead_letters: QueueArn,
    mapping: EventSourceMapping,
}

impl Mapped {
    fn create(sqs: &EmbeddedSqs, name: &str, batch_size: usize) -> Self {
        let dead_letters = match name.strip_suffix(".fifo") {
            Some(stem) => format!("{stem}-dlq.fifo"),
            None => format!("{name}-dlq"),
        };
        let dead_letters = sqs.create_queue(&dead_letters, []).expect("the name of a queue");
        let redrive = format!(
            r#"{{"deadLetterTargetArn":"{dead_letters}","maxReceiveCount":{MAX_RECEIVE_COUNT}}}"#
        );
        let attributes = [("VisibilityTimeout", VISIBILITY_SECS), ("RedrivePolicy", &redrive)];
        let queue = sqs.create_queue(name, attributes).expect("the name of a queue");
        let mapping = EventSourceMapping::new(sqs.clone(), queue.clone(), batch_size);
        Self { queue, dead_letters, mapping }
    }
}
