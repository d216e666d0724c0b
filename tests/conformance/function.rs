//! A function and its event source mapping: the real processor works on a queue over the real SDK
//! client.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_sdk_sqs::types;
use requeue::queue::{CallError, Confirmation, Outgoing, QueueArn, SqsQueue};
use requeue::{BatchProcessor, Failure, Handler, Message, Settings, SqsEvent};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::bench::{Queue, handle};

/// A function that works on one queue.
pub(crate) struct Function {
    pub(crate) queue: Queue,
    pub(crate) arn: String,
    calls: Log<Call>,
    requests: Log<String>,
    processor: BatchProcessor<Script, Noted>,
}

/// A call of the handler.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) at: Instant,
    pub(crate) body: String,
    pub(crate) id: String,
    pub(crate) original_id: String,
    pub(crate) attempt: u32,
    pub(crate) receive_count: u32,
}

impl Function {
    /// `answer` is what the handler makes of a call.
    pub(crate) async fn new(
        queue: Queue,
        settings: Settings,
        answer: fn(&Call) -> Result<(), Failure>,
    ) -> Result<Self, String> {
        let (calls, requests) = (Log::default(), Log::default());
        let script = Script { answer, calls: Arc::clone(&calls) };
        let noted = Noted { queue: SqsQueue::new(&queue.client), requests: Arc::clone(&requests) };
        let processor = BatchProcessor::new(script, noted, settings);
        Ok(Self { arn: queue.arn().await?, queue, calls, requests, processor })
    }

    /// What Lambda's event source mapping does with the messages that are there now, or come within
    /// a second.
    pub(crate) async fn invoke(&self) -> Result<(), String> {
        let messages =
            self.queue.receive_with(|r| r.max_number_of_messages(10).wait_time_seconds(1)).await?;
        let records: Vec<Value> = messages.iter().map(|message| self.record(message)).collect();
        let event: SqsEvent =
            serde_json::from_value(json!({ "Records": records })).map_err(|e| e.to_string())?;
        let deadline = Instant::now() + Duration::from_secs(30);
        let report = self.processor.process(event.records.unwrap_or_default(), deadline).await;
        let kept = report.failed_ids().ok_or("a record without an id")?;
        for message in messages
            .iter()
            .filter(|message| !message.message_id().is_some_and(|id| kept.contains(&id)))
        {
            // The processor has deleted what it sent again, and not everybody takes a second time
            // well.
            self.queue.delete(handle(message)).await.ok();
        }
        Ok(())
    }

    fn record(&self, message: &types::Message) -> Value {
        let system = message.attributes().into_iter().flatten();
        let system: Map<String, Value> =
            system.map(|(name, value)| (name.as_str().to_owned(), value.as_str().into())).collect();
        json!({
            "messageId": message.message_id(),
            "receiptHandle": message.receipt_handle(),
            "body": message.body(),
            "attributes": system,
            "messageAttributes": {},
            "eventSource": "aws:sqs",
            "eventSourceARN": self.arn,
        })
    }

    /// The calls of the handler since the last look.
    pub(crate) fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut *self.calls.lock().expect("no panic while it is held"))
    }

    /// What the processor asked SQS for: `send`, `delete`, or `wait` with the seconds, each for so
    /// many messages.
    pub(crate) fn requests(&self) -> String {
        self.requests.lock().expect("no panic while it is held").join(", ")
    }
}

type Log<T> = Arc<Mutex<Vec<T>>>;

fn note<T>(log: &Log<T>, entry: T) {
    log.lock().expect("no panic while it is held").push(entry);
}

struct Script {
    answer: fn(&Call) -> Result<(), Failure>,
    calls: Log<Call>,
}

impl Handler for Script {
    type Error = Failure;

    async fn handle(&self, message: Message) -> Result<(), Failure> {
        let call = Call {
            at: Instant::now(),
            body: message.body().to_string(),
            id: message.id().unwrap_or_default().to_owned(),
            original_id: message.original_id().unwrap_or_default().to_owned(),
            attempt: message.attempt().get(),
            receive_count: message.receive_count(),
        };
        let answer = (self.answer)(&call);
        note(&self.calls, call);
        answer
    }
}

/// SQS, and what it is asked for.
struct Noted {
    queue: SqsQueue,
    requests: Log<String>,
}

impl requeue::queue::Queue for Noted {
    async fn send(
        &self,
        queue: &QueueArn,
        entries: &[Outgoing<'_>],
    ) -> Result<Vec<Confirmation>, CallError> {
        note(&self.requests, format!("send {}", entries.len()));
        self.queue.send(queue, entries).await
    }

    async fn delete(
        &self,
        queue: &QueueArn,
        receipt_handles: &[&str],
    ) -> Result<Vec<Confirmation>, CallError> {
        note(&self.requests, format!("delete {}", receipt_handles.len()));
        self.queue.delete(queue, receipt_handles).await
    }

    async fn change_visibility(
        &self,
        queue: &QueueArn,
        entries: &[(&str, Duration)],
    ) -> Result<Vec<Confirmation>, CallError> {
        let secs: Vec<String> =
            entries.iter().map(|(_, wait)| format!("{} s", wait.as_secs())).collect();
        note(&self.requests, format!("wait {}", secs.join("+")));
        self.queue.change_visibility(queue, entries).await
    }
}

/// The members that the library added to a copy.
pub(crate) fn state(message: &types::Message) -> Result<Value, String> {
    serde_json::from_str(message.body().unwrap_or_default()).map_err(|e| e.to_string())
}
