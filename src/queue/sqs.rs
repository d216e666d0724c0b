//! The port over the real SQS client. Only this file calls `aws-sdk-sqs`.

use std::collections::BTreeMap;
use std::error::Error;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::interceptors::{
    BeforeDeserializationInterceptorContextRef, BeforeTransmitInterceptorContextRef,
};
use aws_sdk_sqs::config::retry::RetryConfig;
use aws_sdk_sqs::config::{Config, ConfigBag, Intercept, Region, RuntimeComponents};
use aws_sdk_sqs::error::{BoxError, ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::primitives::Blob;
use aws_sdk_sqs::types::{
    BatchResultErrorEntry, ChangeMessageVisibilityBatchRequestEntry,
    DeleteMessageBatchRequestEntry, MessageAttributeValue, MessageSystemAttributeName as System,
    QueueAttributeName, SendMessageBatchRequestEntry,
};
use futures_util::{FutureExt, TryFutureExt};
use requeue_sqs::{code_with_text, printable};
use tokio::sync::OnceCell;

use super::{
    Attribute, AttributeValue, CallError, CallErrorKind, Confirmation, Description, EntryError,
    Outgoing, Queue, QueueArn, ReceiveRequest, Record, Source,
};
use crate::aws;
use crate::clock::{Clock, from_epoch_millis};
use crate::lock::lock;

/// SQS, by AWS's SDK.
///
/// Each call goes to the queue that the message's ARN names, in that queue's region;
/// `AWS_ENDPOINT_URL_SQS` and `AWS_ENDPOINT_URL` are honoured. The SDK's own retries are off.
/// Settling retries, since it knows which calls might send a message twice.
#[derive(Clone, Debug)]
pub struct SqsQueue {
    client: Arc<OnceCell<Client>>,
}

impl SqsQueue {
    /// Uses a client of your own.
    pub fn new(client: &Client) -> Self {
        let config = client.config().to_builder().retry_config(RetryConfig::disabled()).build();
        Self { client: Arc::new(OnceCell::new_with(Some(Client::from_conf(config)))) }
    }

    /// Uses AWS's standard environment: credentials, region, endpoints. They are loaded at the
    /// first call of SQS, since a function whose messages are all done never calls it.
    pub fn from_env() -> Self {
        Self { client: Arc::default() }
    }

    async fn client(&self) -> &Client {
        let make = async || {
            let config = Config::from(&Box::pin(aws::config()).await)
                .to_builder()
                .retry_config(RetryConfig::disabled())
                .build();
            Client::from_conf(config)
        };
        self.client.get_or_init(make).await
    }
}

/// The code of a request in which the SDK panicked.
const PANICKED: &str = "Panicked";

/// The queue's region, if the client has another: a client is bound to one region.
fn other_region(client: &Client, queue: &QueueArn) -> Option<Region> {
    let ours = client.config().region().map(Region::as_ref);
    (ours != Some(queue.region())).then(|| Region::new(queue.region().to_owned()))
}

/// Sends a request of the SDK, to the queue's own region.
macro_rules! send {
    ($client:ident, $queue:ident, $request:expr $(, $interceptor:expr)?) => {{
        let request = $request.queue_url($queue.url()).customize();
        let request = match other_region($client, $queue) {
            None => request,
            Some(region) => request.config_override(Config::builder().region(region)),
        };
        // Boxed, since the future of a batch has one for each of several requests.
        let sent = Box::pin(request$(.interceptor($interceptor))?.send());
        // A panic of the SDK must not fail the whole batch.
        let panicked = |_| Err(CallError::new(PANICKED, CallErrorKind::Ambiguous));
        let answer = sent.map_err(|error| call_error(&error));
        AssertUnwindSafe(answer).catch_unwind().await.unwrap_or_else(panicked)
    }};
}

impl Queue for SqsQueue {
    async fn send(
        &self,
        queue: &QueueArn,
        entries: &[Outgoing<'_>],
    ) -> Result<Vec<Confirmation>, CallError> {
        let requests =
            entries.iter().enumerate().map(|(at, entry)| send_entry(at, entry)).collect();
        let client = self.client().await;
        let answer = send!(client, queue, client.send_message_batch().set_entries(Some(requests)))?;
        let confirmed =
            answer.successful().iter().map(aws_sdk_sqs::types::SendMessageBatchResultEntry::id);
        Ok(confirmations(entries.len(), confirmed, answer.failed()))
    }

    async fn delete(
        &self,
        queue: &QueueArn,
        receipt_handles: &[&str],
    ) -> Result<Vec<Confirmation>, CallError> {
        let requests = receipt_handles.iter().enumerate().map(|(at, handle)| {
            let entry = DeleteMessageBatchRequestEntry::builder()
                .id(at.to_string())
                .receipt_handle(*handle);
            entry.build().expect("id and receipt handle are set")
        });
        let client = self.client().await;
        let answer = send!(
            client,
            queue,
            client.delete_message_batch().set_entries(Some(requests.collect()))
        )?;
        let confirmed =
            answer.successful().iter().map(aws_sdk_sqs::types::DeleteMessageBatchResultEntry::id);
        Ok(confirmations(receipt_handles.len(), confirmed, answer.failed()))
    }

    async fn change_visibility(
        &self,
        queue: &QueueArn,
        entries: &[(&str, Duration)],
    ) -> Result<Vec<Confirmation>, CallError> {
        let requests = entries.iter().enumerate().map(|(at, (handle, timeout))| {
            let entry = ChangeMessageVisibilityBatchRequestEntry::builder()
                .id(at.to_string())
                .receipt_handle(*handle);
            let entry =
                entry.visibility_timeout(i32::try_from(timeout.as_secs()).unwrap_or(i32::MAX));
            entry.build().expect("id and receipt handle are set")
        });
        let client = self.client().await;
        let request =
            client.change_message_visibility_batch().set_entries(Some(requests.collect()));
        let answer = send!(client, queue, request)?;
        let confirmed = answer
            .successful()
            .iter()
            .map(aws_sdk_sqs::types::ChangeMessageVisibilityBatchResultEntry::id);
        Ok(confirmations(entries.len(), confirmed, answer.failed()))
    }

    fn clock(&self) -> Clock {
        let client = self.client.get();
        client
            .and_then(|client| client.config().time_source())
            .map_or_else(Clock::system, |time| Clock::showing(move || time.now()))
    }
}

impl Source for SqsQueue {
    async fn describe(&self, queue: &QueueArn) -> Result<Description, CallError> {
        let seen = Seen::default();
        let client = self.client().await;
        let request = client.get_queue_attributes().attribute_names(QueueAttributeName::All);
        let answer = send!(client, queue, request, seen.clone())?;
        let attribute = |name: &str| {
            answer.attributes()?.get(&QueueAttributeName::from(name)).map(String::as_str)
        };
        let (date, endpoint) = std::mem::take(&mut *lock(&seen.0));
        let description = Description::read(attribute, date);
        let mut description = description.ok_or_else(|| CallError::ambiguous(aws::UNREADABLE))?;
        description.endpoint = endpoint;
        Ok(description)
    }

    async fn receive(
        &self,
        queue: &QueueArn,
        ask: ReceiveRequest,
    ) -> Result<Vec<Record>, CallError> {
        let secs = |duration: Duration| i32::try_from(duration.as_secs()).unwrap_or(i32::MAX);
        let client = self.client().await;
        let request = client
            .receive_message()
            .max_number_of_messages(i32::try_from(ask.max).unwrap_or(i32::MAX))
            .wait_time_seconds(secs(ask.wait))
            .visibility_timeout(secs(ask.visibility))
            .message_system_attribute_names(System::All)
            .message_attribute_names("All");
        let answer = send!(client, queue, request)?;
        let queue = Arc::new(queue.clone());
        Ok(answer
            .messages
            .unwrap_or_default()
            .into_iter()
            .map(|message| record(message, &queue))
            .collect())
    }
}

/// A message as SQS delivered it. Every field may be missing.
fn record(message: aws_sdk_sqs::types::Message, queue: &Arc<QueueArn>) -> Record {
    let system = message.attributes.unwrap_or_default();
    let all: BTreeMap<&str, &String> =
        system.iter().map(|(name, value)| (name.as_str(), value)).collect();
    let event = serde_json::json!({ "attributes": all }).to_string();
    let text = |name: System| system.get(&name).cloned();
    let time = |name| text(name)?.parse().ok().map(from_epoch_millis);
    let attributes = message.message_attributes.unwrap_or_default().into_iter();
    let mut record = Record::empty();
    record.message_id = message.message_id;
    record.receipt_handle = message.receipt_handle;
    record.body = message.body;
    record.queue = Some(Arc::clone(queue));
    record.receive_count =
        text(System::ApproximateReceiveCount).and_then(|count| count.parse().ok());
    record.sender = system.get(&System::SenderId).and_then(|sender| sender.parse().ok());
    record.sent = time(System::SentTimestamp);
    record.first_received = time(System::ApproximateFirstReceiveTimestamp);
    record.group_id = text(System::MessageGroupId);
    record.trace_header = text(System::AwsTraceHeader);
    record.was_dead_lettered = system.contains_key(&System::DeadLetterQueueSourceArn);
    record.dead_letter_source =
        text(System::DeadLetterQueueSourceArn).and_then(|arn| arn.parse().ok());
    record.attributes = attributes
        .map(|(name, value)| Some((name, attribute(value)?)))
        .collect::<Option<BTreeMap<_, _>>>();
    record.event = Some(event.into());
    record
}

fn attribute(value: MessageAttributeValue) -> Option<Attribute> {
    let data_type = value.data_type;
    let value = if data_type == "Binary" || data_type.starts_with("Binary.") {
        AttributeValue::Binary(value.binary_value?.into_inner())
    } else {
        AttributeValue::Text(value.string_value?)
    };
    Some(Attribute { data_type, value })
}

/// Notes the header `Date` of a response, also of an error, and the address of the request.
#[derive(Clone, Debug, Default)]
struct Seen(Arc<Mutex<(Option<SystemTime>, Option<String>)>>);

impl Intercept for Seen {
    fn name(&self) -> &'static str {
        "Seen"
    }

    fn read_before_transmit(
        &self,
        context: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let endpoint = printable::url(context.request().uri().trim_end_matches('/'));
        lock(&self.0).1 = Some(endpoint);
        Ok(())
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let date = context
            .response()
            .headers()
            .get("date")
            .and_then(|date| httpdate::parse_http_date(date).ok());
        lock(&self.0).0 = date;
        Ok(())
    }
}

/// Entry ids are positions: a message id may be longer than the 80 characters that an entry id may
/// have.
fn send_entry(at: usize, message: &Outgoing<'_>) -> SendMessageBatchRequestEntry {
    let attributes = message
        .attributes
        .iter()
        .map(|(name, attribute)| (name.clone(), attribute_value(attribute)));
    let entry = SendMessageBatchRequestEntry::builder()
        .id(at.to_string())
        .message_body(message.body)
        .delay_seconds(i32::from(message.delay.as_secs()))
        .set_message_attributes((!message.attributes.is_empty()).then(|| attributes.collect()))
        .set_message_group_id(message.group_id.map(str::to_owned))
        .set_message_deduplication_id(message.deduplication_id.map(str::to_owned));
    entry.build().expect("id and body are set")
}

fn attribute_value(attribute: &Attribute) -> MessageAttributeValue {
    let value = MessageAttributeValue::builder().data_type(&attribute.data_type);
    let value = match &attribute.value {
        AttributeValue::Text(text) => value.string_value(text),
        AttributeValue::Binary(bytes) => value.binary_value(Blob::new(bytes.clone())),
    };
    value.build().expect("the data type is set")
}

/// Finds each entry by its id. One that is in neither list, or in both, is not confirmed.
fn confirmations<'a>(
    entries: usize,
    confirmed: impl Iterator<Item = &'a str>,
    failed: &[BatchResultErrorEntry],
) -> Vec<Confirmation> {
    let mut results: Vec<Confirmation> =
        (0..entries).map(|_| Err(EntryError::unconfirmed())).collect();
    // Only ids as we write them count: `+1` and `01` are not ours.
    let is_ours = |id: &str| id == "0" || !id.starts_with(['+', '0']);
    let position = |id: &str| id.parse::<usize>().ok().filter(|at| *at < entries && is_ours(id));
    for at in confirmed.filter_map(position) {
        results[at] = Ok(());
    }
    for error in failed {
        if let Some(at) = position(error.id()) {
            let code = code_with_text(error.code(), error.message());
            results[at] = Err(EntryError::responded(code, error.sender_fault()));
        }
    }
    results
}

fn call_error<E: ProvideErrorMetadata + Error + 'static>(error: &SdkError<E>) -> CallError {
    let kind = match error {
        SdkError::ServiceError(answer) if !answer.raw().status().is_success() => {
            let status = answer.raw().status().as_u16();
            return match answer.err().code() {
                Some(code) => {
                    CallError::responded(status, code_with_text(code, answer.err().message()))
                }
                // SQS always sends one, so a gateway or another server responded.
                None => CallError::responded(status, &format!("HTTP {status}")),
            };
        }
        SdkError::ConstructionFailure(_) => CallErrorKind::Refused,
        // Without a response that can be read, the request may have taken effect.
        _ => CallErrorKind::Ambiguous,
    };
    CallError::new(aws::code_without_error(error), kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(id: &str, sender_fault: bool) -> BatchResultErrorEntry {
        let entry =
            BatchResultErrorEntry::builder().id(id).code("AWS.SimpleQueueService.InternalError");
        entry.sender_fault(sender_fault).build().expect("all is set")
    }

    #[test]
    fn an_entry_is_confirmed_by_its_id_and_by_nothing_else() {
        let results = confirmations(
            5,
            ["3", "0", "9", "x", "1", "+2", "02"].into_iter(),
            &[failed("4", false), failed("1", true)],
        );
        let confirmed: Vec<bool> = results.iter().map(Result::is_ok).collect();
        assert_eq!(
            confirmed,
            [true, false, false, true, false],
            "1 is in both lists, 2 in neither, 4 failed"
        );
        assert_eq!(results[4], Err(EntryError::responded("InternalError", false)));
        assert_eq!(results[2], Err(EntryError::unconfirmed()));
    }
}
