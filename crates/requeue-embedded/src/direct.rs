//! The interface in plain types: straight into the engine, without the SDK and its serialisation.
//! Faults apply here too.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use requeue_sqs::{Attribute, QueueArn, message_bytes};

use crate::engine::check::LackingIds;
use crate::engine::error::SqsError;
use crate::engine::message::Draft;
use crate::engine::{Engine, Receive};
use crate::exchange::{FaultEffect, Transmission};
use crate::fault::{EntryFaults, EntryOutcome};
use crate::{Delivered, EmbeddedError, EmbeddedSqs};

/// Requests in plain types, for a port of your own; see [`EmbeddedSqs::direct`].
#[derive(Clone, Copy, Debug)]
pub struct Direct<'a>(&'a EmbeddedSqs);

/// A message to send.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Entry<'a> {
    /// The body.
    pub body: &'a str,
    /// The delay in seconds.
    pub delay_secs: u16,
    /// The message attributes.
    pub attributes: &'a BTreeMap<String, Attribute>,
    /// The tenant or the group.
    pub group_id: Option<&'a str>,
    /// The deduplication id, on a FIFO queue.
    pub deduplication_id: Option<&'a str>,
}

/// Why a whole request failed: with a response or without one, so a third would be a new major
/// version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestFailure {
    /// The response is an error.
    Answered {
        /// The HTTP status.
        status: u16,
        /// The error code.
        code: String,
    },
    /// There is no response: the request may have been carried out.
    Unanswered,
}

/// Why one entry of a batch is not among those that were carried out. The response mentions the
/// entry or does not, so a third would be a new major version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryFailure {
    /// The response says so.
    Answered {
        /// The error code.
        code: String,
        /// Whether the caller is to blame.
        sender_fault: bool,
    },
    /// The response does not mention it: it may have been carried out.
    Unmentioned,
}

/// The results of the entries of a batch, each at its own position.
type Outcomes = Result<Vec<Result<(), EntryFailure>>, RequestFailure>;

impl<'a> Entry<'a> {
    /// A message without a delay, a group and a deduplication id.
    #[must_use]
    pub const fn new(body: &'a str, attributes: &'a BTreeMap<String, Attribute>) -> Self {
        Self { body, delay_secs: 0, attributes, group_id: None, deduplication_id: None }
    }

    pub(crate) fn draft(&self) -> Draft {
        Draft {
            body: self.body.to_owned(),
            attributes: Arc::new(self.attributes.clone()),
            delay_secs: Some(i64::from(self.delay_secs)),
            group: self.group_id.map(str::to_owned),
            deduplication: self.deduplication_id.map(str::to_owned),
            trace: None,
        }
    }
}

impl EmbeddedSqs {
    /// Requests in plain types: the fast way for simulations. They are counted and meet faults,
    /// like those of a client.
    ///
    /// ```
    /// # use requeue::{Clock, embedded::EmbeddedSqs};
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let sqs = EmbeddedSqs::new(Clock::system());
    /// let queue = sqs.create_queue("orders", [])?;
    /// let deleted = sqs.direct().delete_message_batch(&queue, &["no handle"]).await;
    /// assert!(deleted.is_ok_and(|entries| entries[0].is_err()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn direct(&self) -> Direct<'_> {
        Direct(self)
    }
}

impl Direct<'_> {
    /// `SendMessageBatch`.
    pub async fn send_message_batch(self, queue: &QueueArn, entries: &[Entry<'_>]) -> Outcomes {
        let bytes = entries.iter().map(|entry| message_bytes(entry.body, entry.attributes)).sum();
        let send = |engine: &mut Engine, now, entry: &Entry<'_>| {
            engine.send(queue.name(), entry.draft(), now).map(drop)
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

    /// `DeleteMessageBatch`.
    pub async fn delete_message_batch(
        self,
        queue: &QueueArn,
        receipt_handles: &[&str],
    ) -> Outcomes {
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

    /// `ChangeMessageVisibilityBatch`; a part of a second counts as a whole one.
    pub async fn change_message_visibility_batch(
        self,
        queue: &QueueArn,
        entries: &[(&str, Duration)],
    ) -> Outcomes {
        let change = |engine: &mut Engine, now, (handle, timeout): &(&str, Duration)| {
            let secs = timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0);
            let secs = i64::try_from(secs).unwrap_or(i64::MAX);
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

    /// `GetQueueAttributes`: all attributes, and the time at which they were read.
    pub async fn get_queue_attributes(
        self,
        queue: &QueueArn,
    ) -> Result<(BTreeMap<String, String>, SystemTime), RequestFailure> {
        let read = async { Ok((self.0.attributes(queue)?, self.0.0.clock.now())) };
        self.answer("GetQueueAttributes", queue, read).await
    }

    /// `ReceiveMessage`; a part of a second does not count.
    pub async fn receive_message(
        self,
        queue: &QueueArn,
        max: usize,
        visibility: Duration,
        wait: Duration,
    ) -> Result<Vec<Delivered>, RequestFailure> {
        let secs = |duration: Duration| Some(i64::try_from(duration.as_secs()).unwrap_or(i64::MAX));
        let asked = Receive {
            max_messages: Some(i64::try_from(max).unwrap_or(i64::MAX)),
            visibility_secs: secs(visibility),
            wait_secs: secs(wait),
        };
        self.answer("ReceiveMessage", queue, self.0.receive_as(queue, asked)).await
    }

    /// Carries out a request without entries, as far as faults allow.
    async fn answer<T>(
        self,
        operation: &str,
        queue: &QueueArn,
        carry_out: impl Future<Output = Result<T, EmbeddedError>>,
    ) -> Result<T, RequestFailure> {
        let after =
            match self.0.fault_effect(operation, || (Some(queue.name().to_owned()), 0)).await {
                FaultEffect::Refused { status, code } => {
                    return Err(RequestFailure::Answered { status, code });
                }
                FaultEffect::Lost => return Err(RequestFailure::Unanswered),
                FaultEffect::CarriedOut { after, .. } => after,
            };
        let answer = carry_out.await;
        match after {
            Transmission::Arrives => {}
            Transmission::Lost => return Err(RequestFailure::Unanswered),
            Transmission::Late(latency) => tokio::time::sleep(latency).await,
        }
        answer.map_err(|error| refused(error.code))
    }

    async fn batch<E>(
        self,
        batch: Batch,
        queue: &QueueArn,
        entries: &[E],
        carry_out: impl Fn(&mut Engine, SystemTime, &E) -> Result<(), SqsError>,
    ) -> Outcomes {
        let outline = || (Some(queue.name().to_owned()), entries.len());
        let fault_effect = self.0.fault_effect(batch.operation, outline).await;
        let (entry_faults, after) = match fault_effect {
            FaultEffect::Refused { status, code } => {
                return Err(RequestFailure::Answered { status, code });
            }
            FaultEffect::Lost => return Err(RequestFailure::Unanswered),
            FaultEffect::CarriedOut { entry_faults, after } => (entry_faults, after),
        };
        let outcomes = self.carry_out(&batch, queue, entries, &entry_faults, carry_out);
        self.0.0.news.notify_waiters();
        match after {
            Transmission::Arrives => {}
            Transmission::Lost => return Err(RequestFailure::Unanswered),
            Transmission::Late(latency) => tokio::time::sleep(latency).await,
        }
        outcomes.map_err(|error| refused(error.code.query()))
    }

    fn carry_out<E>(
        self,
        batch: &Batch,
        queue: &QueueArn,
        entries: &[E],
        entry_faults: &EntryFaults,
        carry_out: impl Fn(&mut Engine, SystemTime, &E) -> Result<(), SqsError>,
    ) -> Result<Vec<Result<(), EntryFailure>>, SqsError> {
        let now = self.0.0.clock.now();
        let mut engine = self.0.engine();
        engine.queue(queue.name(), now)?;
        let ids: Vec<String> = (0..entries.len()).map(|position| position.to_string()).collect();
        Engine::check_batch(batch.entry, ids.iter().map(String::as_str), batch.bytes)?;
        engine.queue(queue.name(), now)?.check_batch(batch.lacking)?;
        let answered = |code: &str, sender_fault| EntryFailure::Answered {
            code: code.to_owned(),
            sender_fault,
        };
        let one = |(position, entry)| match entry_faults.of(position) {
            None => carry_out(&mut engine, now, entry)
                .map_err(|error| answered(error.code.query(), true)),
            Some(EntryOutcome::Refused { code, sender_fault }) => {
                Err(answered(code, *sender_fault))
            }
            Some(EntryOutcome::Ignored) => Err(EntryFailure::Unmentioned),
            Some(EntryOutcome::Unmentioned) => {
                let _ = carry_out(&mut engine, now, entry);
                Err(EntryFailure::Unmentioned)
            }
        };
        Ok(entries.iter().enumerate().map(one).collect())
    }
}

fn refused(code: &str) -> RequestFailure {
    RequestFailure::Answered { status: 400, code: code.to_owned() }
}

/// The facts of a batch besides its entries.
struct Batch {
    operation: &'static str,
    entry: &'static str,
    bytes: usize,
    lacking: LackingIds,
}
