//! The adapter for the embedded SQS, which does not know this port. It translates and decides
//! nothing.

use std::sync::Arc;
use std::time::Duration;

use requeue_embedded::{Delivered, EmbeddedSqs, Entry, EntryFailure, RequestFailure};

use super::{
    CallError, Confirmation, Description, EntryError, Outgoing, Queue, QueueArn, ReceiveRequest,
    Record, Source,
};
use crate::clock::Clock;

/// The code of a call without a response.
const NO_ANSWER: &str = "NoAnswer";

impl Queue for EmbeddedSqs {
    async fn send(
        &self,
        queue: &QueueArn,
        entries: &[Outgoing<'_>],
    ) -> Result<Vec<Confirmation>, CallError> {
        let entries: Vec<Entry<'_>> = entries.iter().map(entry).collect();
        confirmations(self.direct().send_message_batch(queue, &entries).await)
    }

    async fn delete(
        &self,
        queue: &QueueArn,
        receipt_handles: &[&str],
    ) -> Result<Vec<Confirmation>, CallError> {
        confirmations(self.direct().delete_message_batch(queue, receipt_handles).await)
    }

    async fn change_visibility(
        &self,
        queue: &QueueArn,
        entries: &[(&str, Duration)],
    ) -> Result<Vec<Confirmation>, CallError> {
        confirmations(self.direct().change_message_visibility_batch(queue, entries).await)
    }

    fn clock(&self) -> Clock {
        Self::clock(self).clone()
    }
}

impl Source for EmbeddedSqs {
    async fn describe(&self, queue: &QueueArn) -> Result<Description, CallError> {
        let (attributes, now) =
            self.direct().get_queue_attributes(queue).await.map_err(call_error)?;
        let attribute = |name: &str| attributes.get(name).map(String::as_str);
        Ok(Description::read(attribute, Some(now)).expect("the embedded SQS has all attributes"))
    }

    async fn receive(
        &self,
        queue: &QueueArn,
        ask: ReceiveRequest,
    ) -> Result<Vec<Record>, CallError> {
        let ReceiveRequest { max, wait, visibility } = ask;
        let delivered = self
            .direct()
            .receive_message(queue, max, visibility, wait)
            .await
            .map_err(call_error)?;
        let queue = Arc::new(queue.clone());
        Ok(delivered.into_iter().map(|delivered| record(delivered, &queue)).collect())
    }
}

fn entry<'a>(outgoing: &Outgoing<'a>) -> Entry<'a> {
    let Outgoing { body, delay, attributes, group_id, deduplication_id } = *outgoing;
    let mut entry = Entry::new(body, attributes);
    entry.delay_secs = delay.as_secs();
    entry.group_id = group_id;
    entry.deduplication_id = deduplication_id;
    entry
}

fn confirmations(
    outcomes: Result<Vec<Result<(), EntryFailure>>, RequestFailure>,
) -> Result<Vec<Confirmation>, CallError> {
    let entries = outcomes.map_err(call_error)?;
    Ok(entries.into_iter().map(|entry| entry.map_err(entry_error)).collect())
}

fn call_error(failure: RequestFailure) -> CallError {
    match failure {
        RequestFailure::Answered { status, code } => CallError::answered(status, &code),
        RequestFailure::Unanswered => CallError::ambiguous(NO_ANSWER),
    }
}

fn entry_error(failure: EntryFailure) -> EntryError {
    match failure {
        EntryFailure::Answered { code, sender_fault } => EntryError::answered(&code, sender_fault),
        EntryFailure::Unmentioned => EntryError::unconfirmed(),
    }
}

fn record(delivered: Delivered, queue: &Arc<QueueArn>) -> Record {
    let Delivered { message, receipt_handle, .. } = delivered;
    let source = message.system_attributes.get("DeadLetterQueueSourceArn");
    Record {
        was_dead_lettered: source.is_some(),
        dead_letter_source: source.and_then(|arn| arn.parse().ok()),
        sender: message.system_attributes.get("SenderId").and_then(|sender| sender.parse().ok()),
        trace_header: message.system_attributes.get("AWSTraceHeader").cloned(),
        message_id: Some(message.id),
        receipt_handle: Some(receipt_handle),
        body: Some(message.body),
        queue: Some(Arc::clone(queue)),
        receive_count: Some(message.receive_count),
        sent: Some(message.sent),
        first_received: message.first_received,
        group_id: message.group_id,
        attributes: Some(Arc::unwrap_or_clone(message.attributes)),
    }
}
