//! An existing Lambda function as the target: it is invoked with the records of each call.

use std::time::SystemTime;

use requeue::queue::{AttributeValue, QueueArn};
use requeue::{Bulk, BulkHandler, Failure, Message, Raw};
use serde_json::{Map, Value, json};

mod answer;

/// What a function answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Invoked {
    /// The response, or the error in JSON.
    pub payload: Vec<u8>,
    /// Whether the function failed, as Lambda's header `X-Amz-Function-Error` says.
    pub is_error: bool,
}

/// Why a function gave no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvokeError {
    /// The event is larger than Lambda takes.
    TooLarge,
}

/// Invokes a function.
pub trait Invoke: Send + Sync + 'static {
    /// One synchronous invocation with this event.
    fn invoke(&self, event: Vec<u8>) -> impl Future<Output = Result<Invoked, InvokeError>> + Send;
}

/// How a function is invoked.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct FunctionSettings {
    /// The most messages of a call.
    pub messages_per_call: usize,
}

/// Invokes a function with the messages of each call.
#[derive(Clone, Debug)]
pub struct FunctionTarget<I> {
    invoker: I,
    settings: FunctionSettings,
}

impl<I: Invoke> FunctionTarget<I> {
    /// The function that `invoker` invokes.
    pub fn new(invoker: I, settings: FunctionSettings) -> Self {
        Self { invoker, settings }
    }
}

impl<I: Invoke> BulkHandler<Raw> for FunctionTarget<I> {
    type Error = Failure;

    async fn handle(&self, messages: Vec<Message<Raw>>) -> Bulk<Failure> {
        let records: Vec<Value> = messages.iter().map(record).collect();
        let event = json!({ "Records": records }).to_string().into_bytes();
        let ids: Vec<&str> = messages.iter().map(Message::idempotency_key).collect();
        match self.invoker.invoke(event).await {
            Ok(Invoked { payload, is_error }) => answer::read(&payload, is_error, &ids),
            Err(InvokeError::TooLarge) => {
                Bulk::Unclear(Failure::non_retryable("the event is larger than 6 MB"))
            }
        }
    }

    fn messages_per_call(&self) -> usize {
        self.settings.messages_per_call
    }
}

fn record(message: &Message<Raw>) -> Value {
    let attributes: Map<String, Value> = message
        .attributes()
        .iter()
        .map(|(name, attribute)| {
            let value = match &attribute.value {
                AttributeValue::Text(text) => text.as_str(),
                AttributeValue::Binary(_) => "",
            };
            (name.clone(), json!({ "stringValue": value, "dataType": attribute.data_type }))
        })
        .collect();
    let millis = |time: SystemTime| {
        time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis().to_string()
    };
    // A message that waits by its visibility has a retry for each receive but the first.
    let is_fifo = message.queue().is_some_and(QueueArn::is_fifo);
    let receives = message.receive_count() + if is_fifo { 0 } else { message.retry_count() };
    let mut record = json!({
        "messageId": message.idempotency_key(),
        "receiptHandle": "handle",
        "body": &**message.body(),
        "attributes": {
            "ApproximateReceiveCount": receives.to_string(),
            "SentTimestamp": millis(message.first_sent()),
            "SenderId": "AIDAEXAMPLE",
            "ApproximateFirstReceiveTimestamp": millis(message.first_received()),
        },
        "messageAttributes": attributes,
        "md5OfBody": "",
        "eventSource": "aws:sqs",
        "eventSourceARN": message.queue().map(ToString::to_string),
        "awsRegion": message.queue().map(QueueArn::region),
    });
    if let Some(group) = message.group_id() {
        record["attributes"]["MessageGroupId"] = group.into();
    }
    record
}
