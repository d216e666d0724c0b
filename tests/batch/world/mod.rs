//! A queue, its dead-letter queue, the event source mapping and a processor over the real SDK
//! client, in virtual time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use aws_sdk_sqs::operation::send_message::builders::SendMessageFluentBuilder;
use aws_sdk_sqs::types::QueueAttributeName;
use lambda_runtime::{Context, LambdaEvent};
use requeue::embedded::{
    Call, EmbeddedSqs, EventSourceMapping, Fault, InvocationResult, MessageState, MessageView,
};
use requeue::policy::RetryPolicy;
use requeue::queue::{Queue, QueueArn, SqsQueue};
use requeue::{
    BatchProcessor, Clock, Handler, InvocationError, Record, RecursiveLoop, Report, Sampler,
    Settings, SqsBatchResponse, SqsEvent,
};
use requeue_testkit::log;
use serde_json::Value;
use tokio::time::Instant;

mod invocation;
mod script;

pub use invocation::{Invocation, attributes, joined, receive_count, records, records_of};
pub use requeue_testkit::dice::Dice;
pub use requeue_testkit::log::Log;
pub use script::{Act, Script, Seen};

pub const VISIBILITY: Duration = Duration::from_mins(6);
pub const MAX_RECEIVE_COUNT: u32 = 5;
/// What SQS takes in one message, and in all messages of a request.
pub const LIMIT: usize = 1_048_576;

pub const SEND: &str = "SendMessageBatch";
pub const DELETE: &str = "DeleteMessageBatch";
pub const VISIBILITY_CHANGE: &str = "ChangeMessageVisibilityBatch";

pub const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub struct World {
    pub sqs: EmbeddedSqs,
    pub queue: QueueArn,
    pub dead_letters: QueueArn,
    pub clock: Clock,
    pub settings: Settings,
    /// Most messages in an event.
    pub batch_size: usize,
    /// What the function may take.
    pub function_timeout: Duration,
    requests: Arc<Mutex<Vec<Request>>>,
}

/// A batch request that the processor made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub operation: String,
    pub queue: String,
    pub entries: usize,
    pub at: Instant,
}

impl World {
    pub fn new() -> Self {
        Self::with_queue("orders", &[])
    }

    pub fn with_queue(name: &str, attributes: &[(&str, &str)]) -> Self {
        Self::at(SystemTime::UNIX_EPOCH + secs(1_790_000_000), name, attributes)
    }

    pub fn at(now: SystemTime, name: &str, attributes: &[(&str, &str)]) -> Self {
        log::install();
        let clock = Clock::starting_at(now);
        let sqs = EmbeddedSqs::seeded(clock.clone(), "us-east-1", "000000000000", 7);
        let dead = name
            .strip_suffix(".fifo")
            .map_or(format!("{name}-dlq"), |name| format!("{name}-dlq.fifo"));
        let dead_letters = sqs.create_queue(&dead, []).expect("a queue");
        let redrive = format!(
            r#"{{"deadLetterTargetArn":"{dead_letters}","maxReceiveCount":{MAX_RECEIVE_COUNT}}}"#
        );
        let visibility = VISIBILITY.as_secs().to_string();
        let mut all = BTreeMap::from([
            ("VisibilityTimeout", visibility.as_str()),
            ("RedrivePolicy", &redrive),
        ]);
        all.extend(attributes.iter().copied());
        let queue = sqs.create_queue(name, all).expect("a queue");
        let mut settings = Settings::default();
        settings.sampler = Sampler::always(0.0);
        settings.recursive_loop = RecursiveLoop::Allow;
        settings.limits.concurrency = 10;
        let mut world = Self {
            sqs,
            queue,
            dead_letters,
            clock,
            settings,
            batch_size: 10,
            function_timeout: secs(60),
            requests: Arc::default(),
        };
        world.faults(|_| Fault::None);
        // Most tests are about one message, whatever its neighbours make of the downstream service.
        world.settings.policy.max_pause = None;
        world.settings.policy.circuit_breaker = None;
        world
    }

    /// As a function has it by default.
    pub fn protect(&mut self) {
        let RetryPolicy { max_pause, circuit_breaker, .. } = RetryPolicy::default();
        self.settings.policy.max_pause = max_pause;
        self.settings.policy.circuit_breaker = circuit_breaker;
    }

    /// Lets `faults` decide about every batch request from now on; the count of an operation begins
    /// at 1.
    pub fn faults(&self, faults: impl Fn(&Call) -> Fault + Send + Sync + 'static) {
        let requests = Arc::clone(&self.requests);
        let earlier: BTreeMap<&str, u64> =
            [SEND, DELETE, VISIBILITY_CHANGE].map(|op| (op, self.calls(op))).into();
        self.sqs.set_faults(move |call| {
            let Some(earlier) = earlier.get(call.operation.as_str()) else {
                return Fault::None;
            };
            requests.lock().expect("no panic while it is held").push(Request {
                operation: call.operation.clone(),
                queue: call.queue.clone().unwrap_or_default(),
                entries: call.entries,
                at: Instant::now(),
            });
            let mut call = call.clone();
            call.of_operation -= earlier;
            faults(&call)
        });
    }

    /// Lets `fault` decide about the requests of one operation alone.
    pub fn faults_of(
        &self,
        operation: &'static str,
        fault: impl Fn(&Call) -> Fault + Send + Sync + 'static,
    ) {
        self.faults(
            move |call| if call.operation == operation { fault(call) } else { Fault::None },
        );
    }

    /// The requests of an operation so far.
    pub fn requests(&self, operation: &str) -> Vec<Request> {
        let requests = self.requests.lock().expect("no panic while it is held");
        let of_operation = requests.iter().filter(|request| request.operation == operation);
        of_operation.cloned().collect()
    }

    /// The numbers of entries in the requests of an operation, smallest first.
    pub fn entries(&self, operation: &str) -> Vec<usize> {
        let mut entries: Vec<usize> =
            self.requests(operation).iter().map(|request| request.entries).collect();
        entries.sort_unstable();
        entries
    }

    pub async fn send(&self, body: &str) -> String {
        self.send_as(body, |message| message).await
    }

    pub async fn send_as(
        &self,
        body: &str,
        with: impl FnOnce(SendMessageFluentBuilder) -> SendMessageFluentBuilder,
    ) -> String {
        let client = self.sqs.client();
        let message = client.send_message().queue_url(self.queue.url()).message_body(body);
        let sent = with(message).send().await.expect("sent");
        sent.message_id().expect("an id").to_owned()
    }

    /// `{"n":0}`, `{"n":1}` and so on; the ids in this order.
    pub async fn send_numbered(&self, count: usize) -> Vec<String> {
        let mut ids = Vec::with_capacity(count);
        for n in 0..count {
            ids.push(self.send(&numbered(n)).await);
        }
        ids
    }

    pub fn processor<H: Handler>(&self, handler: H) -> BatchProcessor<H, SqsQueue> {
        BatchProcessor::new(handler, SqsQueue::new(&self.sqs.client()), self.settings.clone())
    }

    pub fn mapping(&self) -> EventSourceMapping {
        EventSourceMapping::new(self.sqs.clone(), self.queue.clone(), self.batch_size)
    }

    /// What the function would be given now; nothing is acknowledged.
    pub async fn receive(&self) -> Value {
        let batch = self.mapping().poll(Duration::ZERO).await.expect("the queue exists");
        batch.expect("something is visible").event(&self.queue)
    }

    /// One invocation with what is in the queue now, as Lambda does it; `None` when nothing is.
    pub async fn invoke<H: Handler, Q: Queue>(
        &self,
        processor: &BatchProcessor<H, Q>,
    ) -> Option<Invocation> {
        let mapping = self.mapping();
        let batch = mapping.poll(Duration::ZERO).await.expect("the queue exists")?;
        let event = batch.event(&self.queue);
        let started = Instant::now();
        let answer = self.invoke_with(processor, &event).await;
        let invocation = Invocation::new(answer, started.elapsed(), &event);
        let answer =
            invocation.bytes().map_or(InvocationResult::FunctionError, InvocationResult::Response);
        mapping.acknowledge(&batch, &answer).expect("the queue exists");
        Some(invocation)
    }

    /// Hands an event to the function; nothing is acknowledged.
    pub async fn invoke_with<H: Handler, Q: Queue>(
        &self,
        processor: &BatchProcessor<H, Q>,
        event: &Value,
    ) -> Result<SqsBatchResponse, InvocationError> {
        let payload: SqsEvent = serde_json::from_value(event.clone()).expect("lenient");
        let mut context = Context::default();
        let deadline = self.clock.now() + self.function_timeout;
        context.deadline = u64::try_from(epoch_millis(deadline)).expect("a year we live to see");
        processor.invoke(LambdaEvent::new(payload, context)).await
    }

    /// Hands an event to the processor and returns its report; nothing is acknowledged.
    pub async fn report<H: Handler>(
        &self,
        processor: &BatchProcessor<H, SqsQueue>,
        event: &Value,
    ) -> Report {
        let payload: SqsEvent = serde_json::from_value(event.clone()).expect("lenient");
        let records = payload.records.expect("an event of SQS");
        processor.process(records, Instant::now() + self.function_timeout).await
    }

    /// Hands an event to the function and does by its answer what Lambda does.
    pub async fn deliver<H: Handler>(
        &self,
        processor: &BatchProcessor<H, SqsQueue>,
        event: &Value,
    ) -> Invocation {
        let started = Instant::now();
        let answer = self.invoke_with(processor, event).await;
        let invocation = Invocation::new(answer, started.elapsed(), event);
        if invocation.answer.is_ok() {
            let failed = invocation.failed();
            for record in records(event) {
                if !record["messageId"].as_str().is_some_and(|id| failed.contains(&id)) {
                    self.delete(record).await;
                }
            }
        }
        invocation
    }

    async fn delete(&self, record: &Value) {
        let queue = record["eventSourceARN"].as_str().and_then(|arn| arn.parse().ok());
        let queue: QueueArn = queue.unwrap_or_else(|| self.queue.clone());
        let Some(handle) = record["receiptHandle"].as_str() else {
            return;
        };
        let client = self.sqs.client();
        let request = client.delete_message().queue_url(queue.url()).receipt_handle(handle);
        // One that is deleted already is no trouble.
        let _ = request.send().await;
    }

    /// Puts the messages of an event in flight, under the receipt handles that it names.
    pub fn place(&self, event: &Value) {
        let latest = |id: &str| {
            let same = records(event).iter().filter(|record| record["messageId"] == *id);
            same.filter_map(receive_count).max()
        };
        for (at, record) in records(event).iter().enumerate() {
            let Some(handle) = record["receiptHandle"].as_str() else {
                continue;
            };
            let queue = record["eventSourceARN"].as_str().and_then(|arn| arn.parse().ok());
            let queue: QueueArn = queue.unwrap_or_else(|| self.queue.clone());
            let id = record["messageId"].as_str().filter(|id| !id.is_empty());
            if id.is_some_and(|id| receive_count(record) < latest(id)) {
                continue;
            }
            let body = record["body"].as_str().unwrap_or("unreadable");
            let system = |name: &str| record["attributes"][name].as_str();
            let time = |name| {
                let millis: u64 = system(name)?.parse().ok()?;
                Some(SystemTime::UNIX_EPOCH + Duration::from_millis(millis))
            };
            let id = id.map_or(format!("nameless-{at}"), str::to_owned);
            let mut placed = Record::default();
            placed.message_id = Some(id);
            placed.receipt_handle = Some(handle.to_owned());
            placed.body = Some(body.to_owned());
            placed.attributes = Some(attributes(record));
            placed.receive_count = receive_count(record);
            placed.sent = time("SentTimestamp");
            placed.first_received = time("ApproximateFirstReceiveTimestamp");
            placed.group_id = system("MessageGroupId").map(str::to_owned);
            self.sqs.put_in_flight(&queue, placed).expect("the queue exists");
        }
    }

    /// Invokes whenever something is visible, until the queue is empty. Returns the number of
    /// invocations.
    pub async fn run<H: Handler, Q: Queue>(&self, processor: &BatchProcessor<H, Q>) -> usize {
        let mut invocations = 0;
        while self.sleep_until_due().await {
            // A poll may find nothing but messages that the redrive policy moves.
            if let Some(invocation) = self.invoke(processor).await {
                invocation.answer.as_ref().expect("the invocation succeeded");
                invocations += 1;
            }
            assert!(invocations < 5_000, "a message goes round for ever");
        }
        invocations
    }

    /// Sleeps until a message may be received; `false` when there is none any more.
    pub async fn sleep_until_due(&self) -> bool {
        self.sqs.wait_until_due(&self.queue).await.expect("the queue exists")
    }

    /// What is left until a message can be received.
    pub fn wait(&self, message: &MessageView) -> Duration {
        match message.state {
            MessageState::Visible => Duration::ZERO,
            MessageState::DelayedUntil(until) | MessageState::InFlightUntil(until) => {
                until.duration_since(self.clock.now()).unwrap_or_default()
            }
        }
    }

    pub async fn set_max_receive_count(&self, count: u32) {
        self.set_redrive_policy(&format!(
            r#"{{"deadLetterTargetArn":"{}","maxReceiveCount":{count}}}"#,
            self.dead_letters
        ))
        .await;
    }

    pub async fn remove_redrive_policy(&self) {
        self.set_redrive_policy("").await;
    }

    async fn set_redrive_policy(&self, policy: &str) {
        let client = self.sqs.client();
        let request = client.set_queue_attributes().queue_url(self.queue.url());
        request
            .attributes(QueueAttributeName::RedrivePolicy, policy)
            .send()
            .await
            .expect("the queue exists");
    }

    /// Moves all dead letters back into the queue, as an operator does.
    pub async fn move_back(&self) {
        let task =
            self.sqs.client().start_message_move_task().source_arn(self.dead_letters.to_string());
        task.destination_arn(self.queue.to_string()).send().await.expect("a dead-letter queue");
        while !self.dead().is_empty() {
            tokio::time::sleep(millis(10)).await;
        }
    }

    pub fn messages(&self) -> Vec<MessageView> {
        self.sqs.messages(&self.queue).expect("the queue exists")
    }

    /// The only message of the queue.
    pub fn only_message(&self) -> MessageView {
        let [message] = <[MessageView; 1]>::try_from(self.messages()).expect("one message");
        message
    }

    pub fn dead(&self) -> Vec<MessageView> {
        self.sqs.messages(&self.dead_letters).expect("the queue exists")
    }

    pub fn calls(&self, operation: &str) -> u64 {
        self.sqs.call_count(operation)
    }

    /// How often each of the three operations was called: send, delete, change visibility.
    pub fn all_calls(&self) -> (u64, u64, u64) {
        (self.calls(SEND), self.calls(DELETE), self.calls(VISIBILITY_CHANGE))
    }
}

pub fn numbered(n: usize) -> String {
    format!(r#"{{"n":{n}}}"#)
}

/// A JSON object of exactly so many bytes.
pub fn object_of(len: usize) -> String {
    let frame = r#"{"x":""}"#;
    format!(r#"{{"x":"{}"}}"#, "x".repeat(len - frame.len()))
}

pub fn epoch_millis(time: SystemTime) -> u128 {
    time.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_millis()
}

/// The fields that the library added to a copy.
pub fn state(message: &MessageView) -> Value {
    // Half a surrogate pair and the largest numbers are JSON, but nothing that a value could hold.
    let body = message.body.replace(r"\ud800", "?").replace("1E+400", "1");
    let body: Value = serde_json::from_str(&body).expect("a copy is JSON");
    assert_eq!(body["retryState"]["v"], 1, "{}", message.body);
    body
}
