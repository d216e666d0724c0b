//! The port of a queue: straight into the engine, without the SDK and its serialisation. Faults apply
//! here too.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use requeue_sqs::{
    CallError, Clock, Confirmation, Description, EntryError, Outgoing, Queue, QueueArn,
    ReceiveRequest, Record, Source, message_bytes, whole_secs,
};

use crate::engine::check::LackingIds;
use crate::engine::error::SqsError;
use crate::engine::message::Draft;
use crate::engine::{Engine, Receive};
use crate::exchange::{FaultEffect, Transmission};
use crate::fault::{EntryFaults, EntryOutcome};
use crate::{Delivered, EmbeddedError, EmbeddedSqs};

/// The code of a call without a response.
const NO_ANSWER: &str = "NoAnswer";

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
        let bytes = entries.iter().map(|entry| message_bytes(entry.body, entry.attributes)).sum();
        let send = |engine: &mut Engine, now, entry: &Outgoing<'_>| {
            engine.send(queue.name(), draft(entry), now).map(drop)
        };
        let ids = entries.iter().map(|entry| (entry.group_id, entry.deduplication_id));
        let batch = Batch {
            operation: "SendMessageBatch",
            entry: "SendMessageBatchRequestEntry",
            bytes,
            lacking: LackingIds::of(ids),
        };
        self.batch(batch, queue, entries, send).await
    }

    async fn delete(&self, queue: &QueueArn, receipt_handles: &[&str]) -> Outcomes {
        let delete = |engine: &mut Engine, now, handle: &&str| {
            engine.queue(queue.name(), now)?.delete(handle)
        };
        let batch = Batch {
            operation: "DeleteMessageBatch",
            entry: "DeleteMessageBatchRequestEntry",
            bytes: 0,
            lacking: LackingIds::default(),
        };
        self.batch(batch, queue, receipt_handles, delete).await
    }

    async fn change_visibility(&self, queue: &QueueArn, entries: &[(&str, Duration)]) -> Outcomes {
        let change = |engine: &mut Engine, now, (handle, timeout): &(&str, Duration)| {
            let secs = i64::try_from(whole_secs(*timeout)).unwrap_or(i64::MAX);
            engine.queue(queue.name(), now)?.change_visibility(handle, secs, now)
        };
        let batch = Batch {
            operation: "ChangeMessageVisibilityBatch",
            entry: "ChangeMessageVisibilityBatchRequestEntry",
            bytes: 0,
            lacking: LackingIds::default(),
        };
        self.batch(batch, queue, entries, change).await
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
        let secs = |duration: Duration| Some(i64::try_from(duration.as_secs()).unwrap_or(i64::MAX));
        let asked = Receive {
            max_messages: Some(i64::try_from(ask.max).unwrap_or(i64::MAX)),
            visibility_secs: secs(ask.visibility),
            wait_secs: secs(ask.wait),
        };
        let receive = self.receive_as(queue, asked);
        let delivered = self.answer("ReceiveMessage", queue, receive).await?;
        let queue = Arc::new(queue.clone());
        Ok(delivered.into_iter().map(|delivered| record(delivered, &queue)).collect())
    }
}

fn record(delivered: Delivered, queue: &Arc<QueueArn>) -> Record {
    let Delivered { message, receipt_handle } = delivered;
    let source = message.system_attributes.get("DeadLetterQueueSourceArn");
    let mut record = Record::empty();
    record.was_dead_lettered = source.is_some();
    record.dead_letter_source = source.and_then(|arn| arn.parse().ok());
    record.sender =
        message.system_attributes.get("SenderId").and_then(|sender| sender.parse().ok());
    record.trace_header = message.system_attributes.get("AWSTraceHeader").cloned();
    record.message_id = Some(message.id);
    record.receipt_handle = Some(receipt_handle);
    record.body = Some(message.body);
    record.queue = Some(Arc::clone(queue));
    record.receive_count = Some(message.receive_count);
    record.sent = Some(message.sent);
    record.first_received = message.first_received;
    record.group_id = message.group_id;
    record.attributes = Some(Arc::unwrap_or_clone(message.attributes));
    record
}

impl EmbeddedSqs {
    /// Carries out a request without entries, as far as faults allow.
    async fn answer<T>(
        &self,
        operation: &str,
        queue: &QueueArn,
        carry_out: impl Future<Output = Result<T, EmbeddedError>>,
    ) -> Result<T, CallError> {
        let after = match self.fault_effect(operation, || (Some(queue.name().to_owned()), 0)).await
        {
            FaultEffect::Refused { status, code } => {
                return Err(CallError::answered(status, &code));
            }
            FaultEffect::Lost => return Err(CallError::ambiguous(NO_ANSWER)),
            FaultEffect::CarriedOut { after, .. } => after,
        };
        let answer = carry_out.await;
        match after {
            Transmission::Arrives => {}
            Transmission::Lost => return Err(CallError::ambiguous(NO_ANSWER)),
            Transmission::Late(latency) => tokio::time::sleep(latency).await,
        }
        answer.map_err(|error| refused(error.code))
    }

    async fn batch<E>(
        &self,
        batch: Batch,
        queue: &QueueArn,
        entries: &[E],
        carry_out: impl Fn(&mut Engine, SystemTime, &E) -> Result<(), SqsError>,
    ) -> Outcomes {
        let outline = || (Some(queue.name().to_owned()), entries.len());
        let fault_effect = self.fault_effect(batch.operation, outline).await;
        let (entry_faults, after) = match fault_effect {
            FaultEffect::Refused { status, code } => {
                return Err(CallError::answered(status, &code));
            }
            FaultEffect::Lost => return Err(CallError::ambiguous(NO_ANSWER)),
            FaultEffect::CarriedOut { entry_faults, after } => (entry_faults, after),
        };
        let outcomes = self.carry_out(&batch, queue, entries, &entry_faults, carry_out);
        self.0.news.notify_waiters();
        match after {
            Transmission::Arrives => {}
            Transmission::Lost => return Err(CallError::ambiguous(NO_ANSWER)),
            Transmission::Late(latency) => tokio::time::sleep(latency).await,
        }
        outcomes.map_err(|error| refused(error.code.query()))
    }

    fn carry_out<E>(
        &self,
        batch: &Batch,
        queue: &QueueArn,
        entries: &[E],
        entry_faults: &EntryFaults,
        carry_out: impl Fn(&mut Engine, SystemTime, &E) -> Result<(), SqsError>,
    ) -> Result<Vec<Confirmation>, SqsError> {
        let now = self.0.clock.now();
        let mut engine = self.engine();
        engine.queue(queue.name(), now)?;
        let ids: Vec<String> = (0..entries.len()).map(|position| position.to_string()).collect();
        Engine::check_batch(batch.entry, ids.iter().map(String::as_str), batch.bytes)?;
        engine.queue(queue.name(), now)?.check_batch(batch.lacking)?;
        let one = |(position, entry)| match entry_faults.of(position) {
            None => carry_out(&mut engine, now, entry)
                .map_err(|error| EntryError::answered(error.code.query(), true)),
            Some(EntryOutcome::Refused { code, sender_fault }) => {
                Err(EntryError::answered(code, *sender_fault))
            }
            Some(EntryOutcome::Ignored) => Err(EntryError::unconfirmed()),
            Some(EntryOutcome::Unmentioned) => {
                let _ = carry_out(&mut engine, now, entry);
                Err(EntryError::unconfirmed())
            }
        };
        Ok(entries.iter().enumerate().map(one).collect())
    }
}

fn refused(code: &str) -> CallError {
    CallError::answered(400, code)
}

/// The facts of a batch besides its entries.
struct Batch {
    operation: &'static str,
    entry: &'static str,
    bytes: usize,
    lacking: LackingIds,
}
