//! The face for this crate's own port: straight into the engine, without the SDK and its serialisation. Faults apply as they do elsewhere.

use std::sync::Arc;
use std::time::Duration;

use super::EmbeddedSqs;
use super::engine::Engine;
use super::engine::error::SqsError;
use super::engine::message::Draft;
use super::exchange::{After, Course};
use super::fault::{EntryFate, Fates};
use super::{Delivered, engine};
use crate::message::Record;
use crate::queue::{
    CallError, Confirmation, Description, EntryError, Outgoing, Queue, QueueArn, ReceiveRequest, Source,
};

/// The code of a call without an answer.
const NO_ANSWER: &str = "NoAnswer";

impl Queue for EmbeddedSqs {
    async fn send(&self, queue: &QueueArn, entries: &[Outgoing<'_>]) -> Result<Vec<Confirmation>, CallError> {
        let bytes = entries.iter().map(Outgoing::size).sum();
        let send = |engine: &mut Engine, now, entry: &Outgoing<'_>| {
            let draft = Draft {
                body: entry.body.to_owned(),
                attributes: Arc::new(entry.attributes.clone()),
                delay_secs: Some(i64::from(entry.delay.as_secs())),
                group: entry.group_id.map(str::to_owned),
                deduplication: entry.deduplication_id.map(str::to_owned),
                trace: None,
            };
            engine.send(queue.name(), draft, now).map(drop)
        };
        let batch = Batch { operation: "SendMessageBatch", entry: "SendMessageBatchRequestEntry", bytes };
        self.batch(batch, queue, entries, send).await
    }

    async fn delete(&self, queue: &QueueArn, receipt_handles: &[&str]) -> Result<Vec<Confirmation>, CallError> {
        let delete = |engine: &mut Engine, now, handle: &&str| engine.queue(queue.name(), now)?.delete(handle);
        let batch = Batch { operation: "DeleteMessageBatch", entry: "DeleteMessageBatchRequestEntry", bytes: 0 };
        self.batch(batch, queue, receipt_handles, delete).await
    }

    async fn change_visibility(
        &self,
        queue: &QueueArn,
        entries: &[(&str, Duration)],
    ) -> Result<Vec<Confirmation>, CallError> {
        let change = |engine: &mut Engine, now, (handle, timeout): &(&str, Duration)| {
            let secs = timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0);
            let secs = i64::try_from(secs).unwrap_or(i64::MAX);
            engine.queue(queue.name(), now)?.change_visibility(handle, secs, now)
        };
        let batch = Batch {
            operation: "ChangeMessageVisibilityBatch",
            entry: "ChangeMessageVisibilityBatchRequestEntry",
            bytes: 0,
        };
        self.batch(batch, queue, entries, change).await
    }
}

impl Source for EmbeddedSqs {
    async fn describe(&self, queue: &QueueArn) -> Result<Description, CallError> {
        self.answer("GetQueueAttributes", queue, async {
            let attributes = self.attributes(queue)?;
            let attribute = |name: &str| attributes.get(name).map(String::as_str);
            Ok(Description::read(attribute, Some(self.0.clock.now())).expect("the engine has all attributes"))
        })
        .await
    }

    async fn receive(&self, queue: &QueueArn, ask: ReceiveRequest) -> Result<Vec<Record>, CallError> {
        let secs = |duration: Duration| Some(i64::try_from(duration.as_secs()).unwrap_or(i64::MAX));
        let asked = engine::Receive {
            max_messages: Some(i64::try_from(ask.max).unwrap_or(i64::MAX)),
            visibility_secs: secs(ask.visibility),
            wait_secs: secs(ask.wait),
        };
        let delivered = self.answer("ReceiveMessage", queue, self.receive_as(queue, asked)).await?;
        let queue = Arc::new(queue.clone());
        Ok(delivered.into_iter().map(|delivered| record(delivered, &queue)).collect())
    }
}

fn record(delivered: Delivered, queue: &Arc<QueueArn>) -> Record {
    let Delivered { message, receipt_handle } = delivered;
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

/// What is to be known of a batch besides its entries.
struct Batch {
    operation: &'static str,
    entry: &'static str,
    bytes: usize,
}

impl EmbeddedSqs {
    /// A request without entries, and what faults leave of it.
    async fn answer<T>(
        &self,
        operation: &str,
        queue: &QueueArn,
        carry_out: impl Future<Output = Result<T, super::EmbeddedError>>,
    ) -> Result<T, CallError> {
        let after = match self.course(operation, || (Some(queue.name().to_owned()), 0)).await {
            Course::Refused { status, code } => return Err(CallError::answered(status, &code)),
            Course::Lost => return Err(CallError::ambiguous(NO_ANSWER)),
            Course::CarriedOut { after, .. } => after,
        };
        let answer = carry_out.await;
        match after {
            After::Arrives => {}
            After::Lost => return Err(CallError::ambiguous(NO_ANSWER)),
            After::Late(latency) => tokio::time::sleep(latency).await,
        }
        answer.map_err(|error| CallError::answered(400, error.code))
    }

    async fn batch<E>(
        &self,
        batch: Batch,
        queue: &QueueArn,
        entries: &[E],
        carry_out: impl Fn(&mut Engine, std::time::SystemTime, &E) -> Result<(), SqsError>,
    ) -> Result<Vec<Confirmation>, CallError> {
        let outline = || (Some(queue.name().to_owned()), entries.len());
        let course = self.course(batch.operation, outline).await;
        let (fates, after) = match course {
            Course::Refused { status, code } => return Err(CallError::answered(status, &code)),
            Course::Lost => return Err(CallError::ambiguous(NO_ANSWER)),
            Course::CarriedOut { fates, after } => (fates, after),
        };
        let confirmations = self.carry_out(&batch, queue, entries, &fates, carry_out);
        self.0.news.notify_waiters();
        match after {
            After::Arrives => {}
            After::Lost => return Err(CallError::ambiguous(NO_ANSWER)),
            After::Late(latency) => tokio::time::sleep(latency).await,
        }
        confirmations.map_err(|error| CallError::answered(400, error.code.query()))
    }

    fn carry_out<E>(
        &self,
        batch: &Batch,
        queue: &QueueArn,
        entries: &[E],
        fates: &Fates,
        carry_out: impl Fn(&mut Engine, std::time::SystemTime, &E) -> Result<(), SqsError>,
    ) -> Result<Vec<Confirmation>, SqsError> {
        let now = self.0.clock.now();
        let mut engine = self.engine();
        engine.queue(queue.name(), now)?;
        let ids: Vec<String> = (0..entries.len()).map(|position| position.to_string()).collect();
        Engine::check_batch(batch.entry, ids.iter().map(String::as_str), batch.bytes)?;
        let confirm = |(position, entry)| match fates.of(position) {
            None => carry_out(&mut engine, now, entry).map_err(|error| EntryError::answered(error.code.query(), true)),
            Some(EntryFate::Refused { code, sender_fault }) => Err(EntryError::answered(code, *sender_fault)),
            Some(EntryFate::Ignored) => Err(EntryError::unconfirmed()),
            Some(EntryFate::Unmentioned) => {
                let _ = carry_out(&mut engine, now, entry);
                Err(EntryError::unconfirmed())
            }
        };
        Ok(entries.iter().enumerate().map(confirm).collect())
    }
}
