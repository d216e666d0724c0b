//! The port of a queue: straight into the engine, without the SDK. Faults apply here too.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use requeue_sqs::{
    CallError, Clock, Confirmation, Description, EntryError, Outgoing, Queue, QueueArn,
    ReceiveRequest, Record, Source, code_with_text, whole_secs,
};

use crate::engine::Receive;
use crate::engine::batch::{self, Entry, EntryResult, ReadEntry};
use crate::engine::message::{Draft, Message, Received};
use crate::exchange::Untransmitted;
use crate::fault::EntryFault;
use crate::view::SENDER_ID;
use crate::{EmbeddedSqs, SqsError};

/// The code of a call without a response.
const NO_RESPONSE: &str = "NoResponse";

/// The results of the entries of a batch, each at its own position.
type Outcomes = Result<Vec<Confirmation>, CallError>;

pub(crate) fn draft(message: &Outgoing<'_>) -> Draft {
    Draft {
        body: message.body.to_owned(),
        attributes: Arc::new(message.attributes.clone()),
        delay_secs: Some(message.delay.as_secs().into()),
        group: message.group_id.map(str::to_owned),
        deduplication: message.deduplication_id.map(str::to_owned),
        trace: None,
    }
}

impl Queue for EmbeddedSqs {
    async fn send(&self, queue: &QueueArn, entries: &[Outgoing<'_>]) -> Outcomes {
        let entries = entries.iter().map(|entry| Entry::Send(draft(entry)));
        self.batch("SendMessageBatch", queue, entries).await
    }

    async fn delete(&self, queue: &QueueArn, receipt_handles: &[&str]) -> Outcomes {
        let handles = receipt_handles.iter().map(|handle| (*handle).to_owned());
        let entries = handles.map(|handle| Entry::Delete { handle });
        self.batch("DeleteMessageBatch", queue, entries).await
    }

    async fn change_visibility(&self, queue: &QueueArn, entries: &[(&str, Duration)]) -> Outcomes {
        let entries = entries.iter().map(|(handle, timeout)| Entry::ChangeVisibility {
            handle: (*handle).to_owned(),
            secs: i64::try_from(whole_secs(*timeout)).unwrap_or(i64::MAX),
        });
        self.batch("ChangeMessageVisibilityBatch", queue, entries).await
    }

    fn clock(&self) -> Clock {
        Self::clock(self).clone()
    }
}

impl Source for EmbeddedSqs {
    async fn describe(&self, queue: &QueueArn) -> Result<Description, CallError> {
        let read = async { Ok((self.attributes(queue)?, self.0.clock.now())) };
        let (attributes, now) = self.answer("GetQueueAttributes", queue, read).await?;
        let attribute = |name: &str| attributes.get(name).map(String::as_str);
        Ok(Description::read(attribute, Some(now)).expect("it has all attributes"))
    }

    async fn receive(
        &self,
        queue: &QueueArn,
        ask: ReceiveRequest,
    ) -> Result<Vec<Record>, CallError> {
        let visibility_secs = Some(i64::try_from(ask.visibility.as_secs()).unwrap_or(i64::MAX));
        let asked = Receive { visibility_secs, ..Receive::of(ask.max, ask.wait) };
        let received = self.received(queue, asked);
        let received = self.answer("ReceiveMessage", queue, received).await?;
        Ok(records(received, queue))
    }
}

pub(crate) fn records(received: Vec<Received>, queue: &QueueArn) -> Vec<Record> {
    let queue = Arc::new(queue.clone());
    received.into_iter().map(|received| record(received, &queue)).collect()
}

fn record(received: Received, queue: &Arc<QueueArn>) -> Record {
    let Received { message, receipt_handle } = received;
    let mut record = Record::empty();
    record.was_dead_lettered = message.dead_letter_source.is_some();
    record.dead_letter_source = message.dead_letter_source.and_then(|arn| arn.parse().ok());
    record.sender = message.sender.as_deref().unwrap_or(SENDER_ID).parse().ok();
    record.trace_header = message.trace;
    record.message_id = Some(message.id);
    record.receipt_handle = Some(receipt_handle);
    record.body = Some(message.body);
    record.queue = Some(Arc::clone(queue));
    record.receive_count = Some(message.receive_count);
    record.sent = Some(message.sent);
    record.first_received = message.first_received;
    record.group_id = message.group;
    record.attributes = Some(Arc::unwrap_or_clone(message.attributes));
    record
}

pub(crate) fn message(record: Record, now: SystemTime) -> Result<Message, SqsError> {
    let draft = Draft {
        body: record.body.ok_or_else(|| SqsError::missing("MessageBody"))?,
        attributes: Arc::new(record.attributes.unwrap_or_default()),
        group: record.group_id,
        trace: record.trace_header,
        ..Draft::default()
    };
    let id = record.message_id.ok_or_else(|| SqsError::missing("MessageId"))?;
    Ok(Message {
        sent: record.sent.unwrap_or(now),
        first_received: Some(record.first_received.unwrap_or(now)),
        receive_count: record.receive_count.unwrap_or(1),
        sender: record.sender.map(|sender| sender.to_string()),
        ..Message::new(draft, id, now)
    })
}

impl EmbeddedSqs {
    async fn answer<T>(
        &self,
        operation: &str,
        queue: &QueueArn,
        carry_out: impl Future<Output = Result<T, SqsError>>,
    ) -> Result<T, CallError> {
        let outline = || (Some(queue.name().to_owned()), 0);
        let answer = self.with_faults(operation, outline, |_| carry_out).await?;
        answer.map_err(|error| refused(error.code))
    }

    async fn batch(
        &self,
        operation: &str,
        queue: &QueueArn,
        entries: impl ExactSizeIterator<Item = Entry>,
    ) -> Outcomes {
        let outline = (Some(queue.name().to_owned()), entries.len());
        let numbered = entries.enumerate().map(|(at, entry)| (at.to_string(), Ok(entry)));
        let numbered: Vec<ReadEntry> = numbered.collect();
        let perform = async |faults: Vec<EntryFault>| {
            let names = (operation, queue.name());
            let results = self.engine().batch(names, numbered, &faults);
            self.0.news.notify_waiters();
            results
        };
        let results = self.with_faults(operation, || outline, perform).await?;
        let results = results.map_err(|error| refused(error.code))?;
        let confirmed = |(_, result): EntryResult| result.map(drop).map_err(EntryError::from);
        Ok(results.into_iter().map(confirmed).collect())
    }
}

impl From<batch::EntryError> for EntryError {
    fn from(error: batch::EntryError) -> Self {
        match error {
            batch::EntryError::Refused { code, message, sender_fault } => {
                Self::responded(code_with_text(&code, Some(&message)), sender_fault)
            }
            batch::EntryError::Unmentioned => Self::unconfirmed(),
        }
    }
}

impl From<Untransmitted> for CallError {
    fn from(untransmitted: Untransmitted) -> Self {
        match untransmitted {
            Untransmitted::Refused { status, code } => Self::responded(status, &code),
            Untransmitted::Lost => Self::ambiguous(NO_RESPONSE),
        }
    }
}

fn refused(code: &str) -> CallError {
    CallError::responded(400, code)
}
