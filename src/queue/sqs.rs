//! The port over the real SQS client. The only file that calls `aws-sdk-sqs`.

use std::time::Duration;

use aws_config::BehaviorVersion;
use aws_config::retry::RetryConfig;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::Region;
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::primitives::Blob;
use aws_sdk_sqs::types::{
    BatchResultErrorEntry, ChangeMessageVisibilityBatchRequestEntry, DeleteMessageBatchRequestEntry,
    MessageAttributeValue, SendMessageBatchRequestEntry,
};
use aws_smithy_http_client::tls::{self, rustls_provider::CryptoMode};

use super::{Attribute, AttributeValue, CallError, CallErrorKind, Confirmation, EntryError, Outgoing, Queue, QueueArn};

/// SQS, by AWS's SDK.
///
/// Each call goes to the queue that the message's ARN names, in that queue's region; `AWS_ENDPOINT_URL_SQS` and
/// `AWS_ENDPOINT_URL` are honoured. The SDK's own retries are switched off: settling retries, with regard to what might be sent
/// twice.
#[derive(Clone, Debug)]
pub struct SqsQueue {
    client: Client,
}

impl SqsQueue {
    /// Over a client of your own.
    #[must_use]
    pub fn new(client: &Client) -> Self {
        let config = client.config().to_builder().retry_config(RetryConfig::disabled());
        Self { client: Client::from_conf(config.build()) }
    }

    /// By AWS's standard environment: credentials, region, endpoints.
    pub async fn from_env() -> Self {
        let http =
            aws_smithy_http_client::Builder::new().tls_provider(tls::Provider::Rustls(CryptoMode::Ring)).build_https();
        let loader = aws_config::defaults(BehaviorVersion::latest()).http_client(http);
        Self { client: Client::new(&loader.retry_config(RetryConfig::disabled()).load().await) }
    }

    /// A client is bound to one region, a message to that of its queue.
    fn region_other_than_ours(&self, queue: &QueueArn) -> Option<Region> {
        let ours = self.client.config().region().map(Region::as_ref);
        (ours != Some(queue.region())).then(|| Region::new(queue.region().to_owned()))
    }
}

/// Sends a request of the SDK, to the queue's own region.
macro_rules! send {
    ($self:ident, $queue:ident, $request:expr) => {{
        let request = $request.queue_url($queue.url());
        match $self.region_other_than_ours($queue) {
            None => request.send().await,
            Some(region) => {
                request.customize().config_override(aws_sdk_sqs::Config::builder().region(region)).send().await
            }
        }
        .map_err(|error| call_error(&error))
    }};
}

impl Queue for SqsQueue {
    async fn send(&self, queue: &QueueArn, entries: &[Outgoing<'_>]) -> Result<Vec<Confirmation>, CallError> {
        let requests = entries.iter().enumerate().map(|(at, entry)| send_entry(at, entry)).collect();
        let answer = send!(self, queue, self.client.send_message_batch().set_entries(Some(requests)))?;
        let confirmed = answer.successful().iter().map(aws_sdk_sqs::types::SendMessageBatchResultEntry::id);
        Ok(confirmations(entries.len(), confirmed, answer.failed()))
    }

    async fn delete(&self, queue: &QueueArn, receipt_handles: &[&str]) -> Result<Vec<Confirmation>, CallError> {
        let requests = receipt_handles.iter().enumerate().map(|(at, handle)| {
            let entry = DeleteMessageBatchRequestEntry::builder().id(at.to_string()).receipt_handle(*handle);
            entry.build().expect("id and receipt handle are set")
        });
        let answer = send!(self, queue, self.client.delete_message_batch().set_entries(Some(requests.collect())))?;
        let confirmed = answer.successful().iter().map(aws_sdk_sqs::types::DeleteMessageBatchResultEntry::id);
        Ok(confirmations(receipt_handles.len(), confirmed, answer.failed()))
    }

    async fn change_visibility(
        &self,
        queue: &QueueArn,
        entries: &[(&str, Duration)],
    ) -> Result<Vec<Confirmation>, CallError> {
        let requests = entries.iter().enumerate().map(|(at, (handle, timeout))| {
            let entry = ChangeMessageVisibilityBatchRequestEntry::builder().id(at.to_string()).receipt_handle(*handle);
            let entry = entry.visibility_timeout(i32::try_from(timeout.as_secs()).unwrap_or(i32::MAX));
            entry.build().expect("id and receipt handle are set")
        });
        let request = self.client.change_message_visibility_batch().set_entries(Some(requests.collect()));
        let answer = send!(self, queue, request)?;
        let confirmed = answer.successful().iter().map(aws_sdk_sqs::types::ChangeMessageVisibilityBatchResultEntry::id);
        Ok(confirmations(entries.len(), confirmed, answer.failed()))
    }
}

/// Entry ids are positions: a message id may be longer than the 80 characters that an entry id may have.
fn send_entry(at: usize, message: &Outgoing<'_>) -> SendMessageBatchRequestEntry {
    let attributes = message.attributes.iter().map(|(name, attribute)| (name.clone(), attribute_value(attribute)));
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
    let mut results: Vec<Confirmation> = (0..entries).map(|_| Err(EntryError::unconfirmed())).collect();
    let position = |id: &str| id.parse::<usize>().ok().filter(|at| *at < entries);
    for at in confirmed.filter_map(position) {
        results[at] = Ok(());
    }
    for error in failed {
        if let Some(at) = position(error.id()) {
            results[at] = Err(EntryError::answered(error.code(), error.sender_fault()));
        }
    }
    results
}

fn call_error<E: ProvideErrorMetadata>(error: &SdkError<E>) -> CallError {
    let (code, kind) = match error {
        SdkError::ConstructionFailure(_) => ("RequestNotBuilt", CallErrorKind::Refused),
        SdkError::TimeoutError(_) => ("TimedOut", CallErrorKind::Ambiguous),
        SdkError::DispatchFailure(_) => ("NoConnection", CallErrorKind::Ambiguous),
        SdkError::ServiceError(answer) => {
            return CallError::answered(answer.raw().status().as_u16(), answer.err().code().unwrap_or("Unknown"));
        }
        // An answer that cannot be read: the request may have been carried out.
        _ => ("UnreadableAnswer", CallErrorKind::Ambiguous),
    };
    CallError { code: code.to_owned(), kind }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(id: &str, sender_fault: bool) -> BatchResultErrorEntry {
        let entry = BatchResultErrorEntry::builder().id(id).code("AWS.SimpleQueueService.InternalError");
        entry.sender_fault(sender_fault).build().expect("all is set")
    }

    #[test]
    fn an_entry_is_confirmed_by_its_id_and_by_nothing_else() {
        let results = confirmations(5, ["3", "0", "9", "x", "1"].into_iter(), &[failed("4", false), failed("1", true)]);
        let confirmed: Vec<bool> = results.iter().map(Result::is_ok).collect();
        assert_eq!(confirmed, [true, false, false, true, false], "1 is in both lists, 2 in neither, 4 failed");
        assert_eq!(results[4], Err(EntryError::answered("InternalError", false)));
        assert_eq!(results[2], Err(EntryError::unconfirmed()));
    }
}
