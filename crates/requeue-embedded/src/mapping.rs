//! Lambda's event source mapping: delivers batches, and deletes messages by the responses.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::engine::message::Received;
use crate::engine::{Receive, digest};
use crate::view::system_attributes;
use crate::{EmbeddedSqs, SqsError};
use requeue_sqs::{MAX_BATCH_ENTRIES, MAX_EVENT, MAX_MAPPING_BATCH, QueueArn};

/// An event source mapping with `ReportBatchItemFailures`, one batch after the other.
///
/// ```
/// # use requeue::Clock;
/// # use requeue::embedded::{InvocationResult, EmbeddedSqs, EventSourceMapping};
/// # use std::time::Duration;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let sqs = EmbeddedSqs::new(Clock::system());
/// let queue = sqs.create_queue("orders", [])?;
/// sqs.client().send_message().queue_url(queue.url()).message_body("{}").send().await?;
///
/// let mapping = EventSourceMapping::new(sqs.clone(), queue.clone(), 10);
/// let batch = mapping.poll(Duration::ZERO).await?.expect("one message");
/// // … invoke the function with `batch.event()` …
/// let response = br#"{"batchItemFailures":[]}"#.to_vec();
/// mapping.acknowledge(&batch, &InvocationResult::Response(response))?;
/// assert!(sqs.messages(&queue)?.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct EventSourceMapping {
    sqs: EmbeddedSqs,
    queue: QueueArn,
    batch_size: usize,
}

/// How an invocation ended, as Lambda sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvocationResult {
    /// The function responded with these bytes.
    Response(Vec<u8>),
    /// It reported an error, ran out of time or crashed.
    FunctionError,
}

/// A batch that has been received.
#[derive(Clone, Debug)]
pub struct Batch(Vec<Received>);

impl EventSourceMapping {
    /// Delivers at most `batch_size` messages of `queue` at once: 1 to 10,000, or 1 to 10 of a FIFO
    /// queue.
    pub fn new(sqs: EmbeddedSqs, queue: QueueArn, batch_size: usize) -> Self {
        let most = if queue.is_fifo() { MAX_BATCH_ENTRIES } else { MAX_MAPPING_BATCH };
        Self { sqs, queue, batch_size: batch_size.clamp(1, most) }
    }

    /// Receives a batch; waits up to `wait` for its first message. No receive follows once the
    /// bodies have 6 MB, the most of an event.
    pub async fn poll(&self, mut wait: Duration) -> Result<Option<Batch>, SqsError> {
        let mut messages: Vec<Received> = Vec::new();
        let mut bytes = 0;
        while messages.len() < self.batch_size && bytes < MAX_EVENT {
            let wanted = MAX_BATCH_ENTRIES.min(self.batch_size - messages.len());
            let received = self.sqs.received(&self.queue, Receive::of(wanted, wait)).await?;
            if received.is_empty() {
                break;
            }
            bytes += received.iter().map(|one| one.message.body.len()).sum::<usize>();
            messages.extend(received);
            wait = Duration::ZERO;
        }
        Ok((!messages.is_empty()).then_some(Batch(messages)))
    }

    /// Deletes the messages that the result acknowledges, and returns their number. The others
    /// become visible after their visibility timeout.
    pub fn acknowledge(&self, batch: &Batch, result: &InvocationResult) -> Result<usize, SqsError> {
        let kept = batch.kept(result);
        let done = batch.0.iter().filter(|received| !kept.contains(&received.message.id.as_str()));
        let handles: Vec<&str> = done.map(|received| received.receipt_handle.as_str()).collect();
        let mut engine = self.sqs.engine();
        let queue = engine.queue(self.queue.name())?;
        for handle in &handles {
            // The service's own poller meets no faults, and a message that is gone counts as
            // deleted.
            let _ = queue.delete(handle);
        }
        Ok(handles.len())
    }
}

impl Batch {
    /// The ids of its messages.
    pub fn message_ids(&self) -> Vec<&str> {
        self.0.iter().map(|received| received.message.id.as_str()).collect()
    }

    /// The ids of the messages that the result leaves in the queue.
    pub fn kept(&self, result: &InvocationResult) -> Vec<&str> {
        kept(result, &self.message_ids())
    }

    /// The event that the function gets. `queue` is the queue of the batch.
    pub fn event(&self, queue: &QueueArn) -> Value {
        let records = self.0.iter().map(|received| record(received, queue));
        json!({ "Records": records.collect::<Vec<_>>() })
    }
}

/// One record. Source of its form: Lambda developer guide, "Using Lambda with Amazon SQS".
fn record(received: &Received, queue: &QueueArn) -> Value {
    let message = &received.message;
    let attributes: Map<String, Value> = message
        .attributes
        .iter()
        .map(|(name, attribute)| (name.clone(), attribute.in_event()))
        .collect();
    let mut record = json!({
        "messageId": message.id,
        "receiptHandle": received.receipt_handle,
        "body": message.body,
        "attributes": system_attributes(message),
        "messageAttributes": attributes,
        "md5OfBody": digest::of_body(&message.body),
        "eventSource": "aws:sqs",
        "eventSourceARN": queue.to_string(),
        "awsRegion": queue.region(),
    });
    if let Some(digest) = digest::of_attributes(message.attributes.iter()) {
        record["md5OfMessageAttributes"] = digest.into();
    }
    record
}

/// The ids that Lambda leaves in the queue. Source: Lambda developer guide, "Handling errors for an
/// SQS event source": success is an empty or missing list and an empty or null response; a complete
/// failure is invalid JSON, and an item with a missing, empty or unknown id. Another value than a
/// list counts as an invalid response too.
fn kept<'a>(answer: &InvocationResult, batch: &[&'a str]) -> Vec<&'a str> {
    let InvocationResult::Response(bytes) = answer else {
        return batch.to_vec();
    };
    if bytes.is_empty() {
        return Vec::new();
    }
    let Ok(response) = serde_json::from_slice::<Value>(bytes) else {
        return batch.to_vec();
    };
    let items = match response.get("batchItemFailures") {
        None | Some(Value::Null) => return Vec::new(),
        Some(Value::Array(items)) => items,
        Some(_) => return batch.to_vec(),
    };
    let known = |item: &Value| {
        let id = item.get("itemIdentifier").and_then(Value::as_str)?;
        batch.iter().copied().find(|known| *known == id)
    };
    items.iter().map(known).collect::<Option<Vec<_>>>().unwrap_or_else(|| batch.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_read_by_lambdas_rules() {
        let (none, one, all): (&[&str], &[&str], &[&str]) = (&[], &["b"], &["a", "b"]);
        for (response, expected) in [
            (r#"{"batchItemFailures":[]}"#, none),
            (r#"{"batchItemFailures":null}"#, none),
            ("{}", none),
            ("null", none),
            ("", none),
            (r#"{"batch_item_failures":[{"itemIdentifier":"b"}]}"#, none),
            (r#"{"batchItemFailures":[{"itemIdentifier":"b"}]}"#, one),
            (r#"{"batchItemFailures":[{"itemIdentifier":"b"},{"itemIdentifier":"new"}]}"#, all),
            (r#"{"batchItemFailures":[{"itemIdentifier":""}]}"#, all),
            (r#"{"batchItemFailures":[{"itemIdentifier":null}]}"#, all),
            (r#"{"batchItemFailures":[{"foo":"b"}]}"#, all),
            (r#"{"batchItemFailures":"b"}"#, all),
            (r#"{"batchItemFailures":{}}"#, all),
            (r#"{"batchItemFailures":false}"#, all),
            (r#"{"batchItemFailures":0}"#, all),
            ("{", all),
        ] {
            let answer = InvocationResult::Response(response.as_bytes().to_vec());
            assert_eq!(kept(&answer, &["a", "b"]), expected, "{response}");
        }
        assert_eq!(kept(&InvocationResult::FunctionError, &["a", "b"]), all);
    }
}
