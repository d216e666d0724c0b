//! A queue, its dead-letter queue, the event source mapping and a processor over the real SDK client, in virtual time.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use aws_lambda_events::sqs::SqsBatchResponse;
use lambda_runtime::{Context, LambdaEvent};
use requeue::embedded::{Answer, EmbeddedSqs, EventSourceMapping, MessageView};
use requeue::queue::{QueueArn, SqsQueue};
use requeue::{BatchProcessor, Clock, Failure, Handler, Limits, Message, Report, Sampler, Settings, SqsEvent, respond};
use serde_json::Value;
use tokio::time::Instant;

/// What the function may take.
pub const FUNCTION_TIMEOUT: Duration = Duration::from_secs(60);
pub const VISIBILITY: Duration = Duration::from_secs(360);
pub const MAX_RECEIVE_COUNT: u32 = 5;

pub struct World {
    pub sqs: EmbeddedSqs,
    pub queue: QueueArn,
    pub dead_letters: QueueArn,
    pub clock: Clock,
    pub settings: Settings,
}

impl World {
    pub fn new() -> Self {
        Self::with_queue("orders", &[])
    }

    pub fn with_queue(name: &str, attributes: &[(&str, &str)]) -> Self {
        let clock = Clock::starting_at(SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000));
        let sqs = EmbeddedSqs::new(clock.clone());
        let dead = name.strip_suffix(".fifo").map_or(format!("{name}-dlq"), |name| format!("{name}-dlq.fifo"));
        let dead_letters = sqs.create_queue(&dead, []).expect("a queue");
        let redrive = format!(r#"{{"deadLetterTargetArn":"{dead_letters}","maxReceiveCount":{MAX_RECEIVE_COUNT}}}"#);
        let visibility = VISIBILITY.as_secs().to_string();
        let mut all = BTreeMap::from([("VisibilityTimeout", visibility.as_str()), ("RedrivePolicy", &redrive)]);
        all.extend(attributes.iter().copied());
        let queue = sqs.create_queue(name, all).expect("a queue");
        let settings = Settings {
            clock: clock.clone(),
            sampler: Sampler::always(0.0),
            limits: Limits { concurrency: 10, ..Limits::default() },
            ..Settings::default()
        };
        Self { sqs, queue, dead_letters, clock, settings }
    }

    pub async fn send(&self, body: &str) -> String {
        let sent = self.sqs.client().send_message().queue_url(self.queue.url()).message_body(body).send().await;
        sent.expect("sent").message_id().expect("an id").to_owned()
    }

    pub fn processor<H: Handler>(&self, handler: H) -> BatchProcessor<H, SqsQueue> {
        BatchProcessor::new(handler, SqsQueue::new(&self.sqs.client()), self.settings.clone())
    }

    /// One invocation with what is in the queue now, as Lambda does it; `None` when nothing is.
    pub async fn invoke<H: Handler>(&self, processor: &BatchProcessor<H, SqsQueue>) -> Option<Invocation> {
        let mapping = EventSourceMapping::new(self.sqs.clone(), self.queue.clone(), 10);
        let batch = mapping.poll(Duration::ZERO).await.expect("the queue exists")?;
        let event = batch.event(&self.queue);
        let started = Instant::now();
        let answer = self.invoke_with(processor, &event).await;
        let elapsed = started.elapsed();
        let bytes = match &answer {
            Ok(response) => Answer::Response(serde_json::to_vec(response).expect("JSON")),
            Err(_) => Answer::FunctionError,
        };
        mapping.acknowledge(&batch, &bytes).expect("the queue exists");
        let ids = batch.message_ids().into_iter().map(str::to_owned).collect();
        Some(Invocation { answer, elapsed, ids })
    }

    /// Hands an event to the function; nothing is acknowledged.
    pub async fn invoke_with<H: Handler>(
        &self,
        processor: &BatchProcessor<H, SqsQueue>,
        event: &Value,
    ) -> Result<SqsBatchResponse, requeue::InvocationError> {
        let payload: SqsEvent = serde_json::from_value(event.clone()).expect("lenient");
        let mut context = Context::default();
        let deadline = self.clock.now() + FUNCTION_TIMEOUT;
        let since = deadline.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        context.deadline = u64::try_from(since.as_millis()).expect("a year we live to see");
        processor.invoke(LambdaEvent::new(payload, context)).await
    }

    /// Invokes whenever something is visible, until the queue is empty.
    pub async fn run<H: Handler>(&self, processor: &BatchProcessor<H, SqsQueue>) {
        while !self.messages().is_empty() {
            if self.invoke(processor).await.is_none() {
                // Sleeps in virtual time until something becomes visible, and leaves it there.
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }

    pub fn messages(&self) -> Vec<MessageView> {
        self.sqs.messages(&self.queue).expect("the queue exists")
    }

    pub fn dead(&self) -> Vec<MessageView> {
        self.sqs.messages(&self.dead_letters).expect("the queue exists")
    }

    pub fn calls(&self, operation: &str) -> u64 {
        self.sqs.call_count(operation)
    }
}

pub struct Invocation {
    pub answer: Result<SqsBatchResponse, requeue::InvocationError>,
    pub elapsed: Duration,
    pub ids: Vec<String>,
}

impl Invocation {
    /// The ids in `batchItemFailures`, in the order of the batch.
    pub fn failed(&self) -> Vec<&str> {
        let response = self.answer.as_ref().expect("the invocation succeeded");
        let listed = |id: &&String| response.batch_item_failures.iter().any(|item| item.item_identifier == **id);
        assert!(response.batch_item_failures.iter().all(|item| self.ids.contains(&item.item_identifier)));
        self.ids.iter().filter(listed).map(String::as_str).collect()
    }
}

/// A handler that does what a function of the message says, and remembers the bodies it saw.
#[derive(Clone)]
pub struct Script {
    act: Arc<dyn Fn(&str) -> Act + Send + Sync>,
    pub seen: Arc<Mutex<Vec<String>>>,
}

/// What a scripted handler does.
pub enum Act {
    Done,
    Fail(Failure),
    Panic,
    Hang,
    /// Works for so long, then is done.
    Work(Duration),
}

impl Script {
    pub fn new(act: impl Fn(&str) -> Act + Send + Sync + 'static) -> Self {
        Self { act: Arc::new(act), seen: Arc::default() }
    }

    pub fn always(failure: Failure) -> Self {
        Self::new(move |_| Act::Fail(failure.clone()))
    }

    pub fn seen(&self) -> Vec<String> {
        self.seen.lock().expect("no panic while it is held").clone()
    }
}

impl Handler for Script {
    fn handle(&self, message: Message) -> impl Future<Output = Result<(), Failure>> + Send {
        let body = message.body().to_string();
        let act = (self.act)(&body);
        self.seen.lock().expect("no panic while it is held").push(body);
        let future: Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>> = Box::pin(async move {
            match act {
                Act::Done => Ok(()),
                Act::Fail(failure) => Err(failure),
                Act::Panic => panic!("as scripted"),
                Act::Hang => std::future::pending().await,
                Act::Work(time) => {
                    tokio::time::sleep(time).await;
                    Ok(())
                }
            }
        });
        future
    }
}
