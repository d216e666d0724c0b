//! Tools for checks: queues of their own, short calls, and responses as words.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::operation::receive_message::builders::ReceiveMessageFluentBuilder;
use aws_sdk_sqs::operation::send_message::SendMessageOutput;
use aws_sdk_sqs::operation::send_message::builders::SendMessageFluentBuilder;
use aws_sdk_sqs::types::builders::SendMessageBatchRequestEntryBuilder;
use aws_sdk_sqs::types::{
    BatchResultErrorEntry, ChangeMessageVisibilityBatchRequestEntry,
    DeleteMessageBatchRequestEntry, Message, MessageSystemAttributeName, QueueAttributeName,
    SendMessageBatchRequestEntry,
};
use requeue::Clock;
use tokio::time::Instant;

/// What a check found, or the code of an error that it did not expect.
pub(crate) type Observed = Result<String, String>;

type Running = Pin<Box<dyn Future<Output = Observed> + Send>>;

/// One rule of SQS, or something that the processor does by such rules, and how to see whether it
/// is so.
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) expected: &'static str,
    pub(crate) pace: Pace,
    pub(crate) run: Box<dyn Fn(Bench) -> Running + Send>,
}

/// How long a check takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// It can be waited for.
    Seconds,
    /// Only virtual time is patient enough.
    Hours,
}

pub(crate) fn check<F>(name: &'static str, expected: &'static str, run: fn(Bench) -> F) -> Check
where
    F: Future<Output = Observed> + Send + 'static,
{
    Check { name, expected, pace: Pace::Seconds, run: Box::new(move |bench| Box::pin(run(bench))) }
}

pub(crate) fn long<F>(name: &'static str, expected: &'static str, run: fn(Bench) -> F) -> Check
where
    F: Future<Output = Observed> + Send + 'static,
{
    Check { pace: Pace::Hours, ..check(name, expected, run) }
}

/// An implementation under test.
#[derive(Clone)]
pub(crate) struct Bench {
    pub(crate) client: Client,
    /// What its clock shows.
    pub(crate) clock: Clock,
}

/// A queue of one check.
#[derive(Clone)]
pub(crate) struct Queue {
    pub(crate) client: Client,
    pub(crate) name: String,
    pub(crate) url: String,
}

impl Bench {
    pub(crate) fn new(client: Client, clock: Clock) -> Self {
        Self { client, clock }
    }

    /// A name that no other check and no earlier run has used.
    pub(crate) fn name() -> String {
        format!("check-{}", uuid::Uuid::new_v4())
    }

    pub(crate) async fn queue(&self, attributes: &[(&str, &str)]) -> Result<Queue, String> {
        self.queue_named(Self::name(), attributes).await
    }

    pub(crate) async fn fifo(&self, attributes: &[(&str, &str)]) -> Result<Queue, String> {
        let attributes = [&[("FifoQueue", "true")], attributes].concat();
        self.queue_named(format!("{}.fifo", Self::name()), &attributes).await
    }

    pub(crate) async fn queue_named(
        &self,
        name: String,
        attributes: &[(&str, &str)],
    ) -> Result<Queue, String> {
        let attributes = attributes
            .iter()
            .map(|(name, value)| (QueueAttributeName::from(*name), (*value).to_owned()));
        let create =
            self.client.create_queue().queue_name(&name).set_attributes(Some(attributes.collect()));
        let url = create.send().await.map_err(code)?.queue_url.unwrap_or_default();
        Ok(Queue { client: self.client.clone(), name, url })
    }

    /// A queue with a dead-letter queue behind it.
    pub(crate) async fn queue_with_dead_letters(
        &self,
        max_receives: u32,
    ) -> Result<(Queue, Queue), String> {
        let dead = self.queue(&[]).await?;
        let policy = redrive_policy(&dead.arn().await?, max_receives);
        let queue = self.queue(&[("VisibilityTimeout", "0"), ("RedrivePolicy", &policy)]).await?;
        Ok((queue, dead))
    }
}

pub(crate) fn redrive_policy(arn: &str, max_receives: u32) -> String {
    format!(r#"{{"deadLetterTargetArn":"{arn}","maxReceiveCount":{max_receives}}}"#)
}

impl Queue {
    pub(crate) async fn send(&self, body: &str) -> Result<SendMessageOutput, String> {
        self.send_with(body, |message| message).await
    }

    pub(crate) async fn send_with(
        &self,
        body: &str,
        with: impl FnOnce(SendMessageFluentBuilder) -> SendMessageFluentBuilder,
    ) -> Result<SendMessageOutput, String> {
        let send = self.client.send_message().queue_url(&self.url).message_body(body);
        with(send).send().await.map_err(code)
    }

    pub(crate) async fn send_to_group(
        &self,
        group: &str,
        body: &str,
    ) -> Result<SendMessageOutput, String> {
        let id = uuid::Uuid::new_v4().to_string();
        self.send_with(body, |m| m.message_group_id(group).message_deduplication_id(id)).await
    }

    /// Up to ten messages that are there now, with all their attributes.
    pub(crate) async fn receive(&self) -> Result<Vec<Message>, String> {
        self.receive_with(|receive| receive.max_number_of_messages(10)).await
    }

    /// One message that is there now, or that comes within twenty seconds.
    pub(crate) async fn next(&self) -> Result<Message, String> {
        let found = self.receive_with(|receive| receive.wait_time_seconds(20)).await?;
        found.into_iter().next().ok_or_else(|| "silence".to_owned())
    }

    pub(crate) async fn receive_with(
        &self,
        with: impl FnOnce(ReceiveMessageFluentBuilder) -> ReceiveMessageFluentBuilder,
    ) -> Result<Vec<Message>, String> {
        let receive = self
            .client
            .receive_message()
            .queue_url(&self.url)
            .message_system_attribute_names(MessageSystemAttributeName::All)
            .message_attribute_names("All");
        let answer = with(receive).send().await.map_err(code)?;
        Ok(answer.messages.unwrap_or_default())
    }

    pub(crate) async fn delete(&self, handle: &str) -> Result<(), String> {
        let delete = self.client.delete_message().queue_url(&self.url).receipt_handle(handle);
        delete.send().await.map(drop).map_err(code)
    }

    pub(crate) async fn change_visibility(&self, handle: &str, secs: i32) -> Result<(), String> {
        let change =
            self.client.change_message_visibility().queue_url(&self.url).receipt_handle(handle);
        change.visibility_timeout(secs).send().await.map(drop).map_err(code)
    }

    pub(crate) async fn attributes(&self) -> Result<HashMap<QueueAttributeName, String>, String> {
        let get = self
            .client
            .get_queue_attributes()
            .queue_url(&self.url)
            .attribute_names(QueueAttributeName::All);
        Ok(get.send().await.map_err(code)?.attributes.unwrap_or_default())
    }

    pub(crate) async fn attribute(&self, name: QueueAttributeName) -> Result<String, String> {
        Ok(self.attributes().await?.remove(&name).unwrap_or_default())
    }

    pub(crate) async fn arn(&self) -> Result<String, String> {
        self.attribute(QueueAttributeName::QueueArn).await
    }

    pub(crate) async fn set(&self, name: QueueAttributeName, value: &str) -> Result<(), String> {
        let set = self.client.set_queue_attributes().queue_url(&self.url).attributes(name, value);
        set.send().await.map(drop).map_err(code)
    }

    /// How many are visible, delayed and in flight.
    pub(crate) async fn counts(&self) -> Result<String, String> {
        let attributes = self.attributes().await?;
        let count = |name| attributes.get(&name).cloned().unwrap_or_default();
        Ok(format!(
            "{} visible, {} delayed, {} in flight",
            count(QueueAttributeName::ApproximateNumberOfMessages),
            count(QueueAttributeName::ApproximateNumberOfMessagesDelayed),
            count(QueueAttributeName::ApproximateNumberOfMessagesNotVisible)
        ))
    }

    pub(crate) async fn send_batch(
        &self,
        entries: Vec<SendMessageBatchRequestEntry>,
    ) -> Result<String, String> {
        let batch =
            self.client.send_message_batch().queue_url(&self.url).set_entries(Some(entries));
        let answer = batch.send().await.map_err(code)?;
        Ok(parts(answer.successful.iter().map(|entry| entry.id.as_str()), &answer.failed))
    }

    pub(crate) async fn delete_batch(&self, handles: &[&str]) -> Result<String, String> {
        let entry = |(id, handle): (usize, &&str)| {
            let entry = DeleteMessageBatchRequestEntry::builder()
                .id(id.to_string())
                .receipt_handle(*handle);
            entry.build().expect("id and handle")
        };
        let entries = handles.iter().enumerate().map(entry).collect();
        let batch =
            self.client.delete_message_batch().queue_url(&self.url).set_entries(Some(entries));
        let answer = batch.send().await.map_err(code)?;
        Ok(parts(answer.successful.iter().map(|entry| entry.id.as_str()), &answer.failed))
    }

    pub(crate) async fn change_visibility_batch(
        &self,
        changes: &[(&str, i32)],
    ) -> Result<String, String> {
        let entry = |(id, (handle, secs)): (usize, &(&str, i32))| {
            let entry = ChangeMessageVisibilityBatchRequestEntry::builder().id(id.to_string());
            entry.receipt_handle(*handle).visibility_timeout(*secs).build().expect("id and handle")
        };
        let entries = changes.iter().enumerate().map(entry).collect();
        let batch = self
            .client
            .change_message_visibility_batch()
            .queue_url(&self.url)
            .set_entries(Some(entries));
        let answer = batch.send().await.map_err(code)?;
        Ok(parts(answer.successful.iter().map(|entry| entry.id.as_str()), &answer.failed))
    }
}

/// An entry of a batch to send.
pub(crate) fn entry(id: &str, body: &str) -> SendMessageBatchRequestEntry {
    entry_with(id, body, |entry| entry)
}

pub(crate) fn entry_with(
    id: &str,
    body: &str,
    with: impl FnOnce(SendMessageBatchRequestEntryBuilder) -> SendMessageBatchRequestEntryBuilder,
) -> SendMessageBatchRequestEntry {
    let entry = SendMessageBatchRequestEntry::builder().id(id).message_body(body);
    with(entry).build().expect("id and body")
}

fn parts<'a>(
    successful: impl Iterator<Item = &'a str>,
    failed: &[BatchResultErrorEntry],
) -> String {
    let mut successful: Vec<&str> = successful.collect();
    successful.sort_unstable();
    let mut failed: Vec<String> = failed
        .iter()
        .map(|entry| {
            let blame = if entry.sender_fault { "sender" } else { "service" };
            format!("{} {} ({blame})", entry.id, entry.code)
        })
        .collect();
    failed.sort();
    format!("ok {}; failed {}", successful.join(","), failed.join(", "))
}

/// An error whose text is not one of SQS.
pub(crate) const NO_CODE: &str = "no code";

/// The code of an error, as clients print it.
#[allow(clippy::needless_pass_by_value, reason = "handed to map_err")]
pub(crate) fn code<E: ProvideErrorMetadata, R>(error: SdkError<E, R>) -> String {
    match &error {
        SdkError::ServiceError(service) => service.err().code().unwrap_or(NO_CODE).to_owned(),
        SdkError::ConstructionFailure(_) => "refused by the SDK itself".to_owned(),
        SdkError::TimeoutError(_) => "time-out".to_owned(),
        SdkError::DispatchFailure(_) => "no connection".to_owned(),
        _ => "no readable answer".to_owned(),
    }
}

/// `ok`, or the code.
pub(crate) fn outcome<T>(result: Result<T, String>) -> String {
    result.map_or_else(|code| code, |_| "ok".to_owned())
}

#[allow(clippy::needless_pass_by_value, reason = "callers name a constant")]
pub(crate) fn system(message: &Message, name: MessageSystemAttributeName) -> String {
    let attributes = message.attributes();
    attributes
        .and_then(|attributes| attributes.get(&name))
        .cloned()
        .unwrap_or_else(|| "none".to_owned())
}

pub(crate) fn receive_count(message: &Message) -> String {
    system(message, MessageSystemAttributeName::ApproximateReceiveCount)
}

pub(crate) fn bodies(messages: &[Message]) -> String {
    let bodies: Vec<&str> = messages.iter().filter_map(Message::body).collect();
    if bodies.is_empty() { "nothing".to_owned() } else { bodies.join(",") }
}

/// A handle that may be missing on an implementation that is wrong.
pub(crate) fn handle(message: &Message) -> &str {
    message.receipt_handle().unwrap_or_default()
}

pub(crate) async fn pause(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

/// Whether something that begins now takes about so many seconds.
pub(crate) struct Watch(Instant);

impl Watch {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn verdict(&self, secs: f64) -> String {
        verdict(self.0.elapsed(), secs)
    }
}

/// Whether something took about so many seconds: not less, and not much more even on a busy
/// machine.
pub(crate) fn verdict(elapsed: Duration, secs: f64) -> String {
    let elapsed = elapsed.as_secs_f64();
    // Emulators look once in a while, and machines are busy; nobody may be early by more than a
    // clock's grain.
    if elapsed < secs - 0.1 {
        format!("too early: {elapsed:.1} s instead of {secs} s")
    } else if elapsed > secs + 4.0 {
        format!("too late: {elapsed:.1} s instead of {secs} s")
    } else {
        "in time".to_owned()
    }
}
