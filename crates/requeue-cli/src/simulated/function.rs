//! A function with its event source mapping, as Lambda runs it: pollers collect batches, and a free
//! execution environment handles each. Or each execution environment polls for itself.

use std::cell::Cell;
use std::time::Duration;

use futures_util::future::try_join_all;
use requeue::embedded::{EmbeddedSqs, Fault};
use requeue::queue::{MAX_BATCH_ENTRIES, Queue as _, QueueArn, ReceiveRequest, Source};
use requeue::{BatchProcessor, Handler, Record, Report, Sampler};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use crate::Error;

/// The batches that are collected at once. Lambda begins with as many pollers.
const POLLERS: usize = 5;
/// Lambda begins with this many concurrent invocations, and adds up to 300 each minute.
const AT_FIRST: u32 = 5;
const BETWEEN_STARTS: Duration = Duration::from_millis(200);
const BATCHING_WINDOW: Duration = Duration::from_secs(1);
const FUNCTION_TIMEOUT: Duration = Duration::from_secs(60);
/// Without the time for a batching window.
const VISIBILITY_TIMEOUT: Duration = Duration::from_secs(360);
const WINDOW_VISIBILITY: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_secs(20);
/// The latency of a request of the function, or of a delete by a poller.
const REQUEST: Duration = Duration::from_millis(10);

/// The part of the batches in which an execution environment dies, and how soon.
const DYING: f64 = 0.05;
const LIFE: Duration = Duration::from_secs(2);

pub(crate) struct SimulatedFunction<H> {
    sqs: EmbeddedSqs,
    queue: QueueArn,
    environments: Vec<BatchProcessor<H, EmbeddedSqs>>,
    /// So many execution environments die. The last ones take their places.
    pub(crate) deaths: Cell<usize>,
    sampler: Sampler,
    pub(crate) is_warm: bool,
    is_fed: Cell<bool>,
    /// Whether each execution environment polls, and deletes its messages before it polls again.
    is_polling: bool,
}

pub(crate) struct Handled<'a> {
    pub(crate) environment: usize,
    pub(crate) left: usize,
    pub(crate) report: &'a Report,
}

impl<H: Handler> SimulatedFunction<H> {
    /// From now on, requests to SQS take time.
    pub(crate) fn new(
        sqs: EmbeddedSqs,
        queue: QueueArn,
        environments: Vec<BatchProcessor<H, EmbeddedSqs>>,
    ) -> Self {
        sqs.set_faults(|call| match call.operation.as_str() {
            // A poller that is cut short at the end of its window must not lose a response.
            "ReceiveMessage" => Fault::None,
            _ => Fault::RespondAfter(REQUEST),
        });
        let sampler = Sampler::seeded(0);
        Self {
            sqs,
            queue,
            environments,
            deaths: Cell::default(),
            sampler,
            is_warm: false,
            is_fed: Cell::new(false),
            is_polling: false,
        }
    }

    /// Lets each execution environment poll for itself, and take what one receive gives.
    pub(crate) fn polling(self) -> Self {
        self.sqs.set_faults(|_| Fault::RespondAfter(REQUEST));
        Self { is_polling: true, is_warm: true, ..self }
    }

    /// Delivers until `feeding` is over and the queue empty, and reports each batch to `note`.
    pub(crate) async fn drain(
        &self,
        feeding: impl Future<Output = Result<(), Error>>,
        note: impl Fn(&Handled<'_>),
    ) -> Result<(), Error> {
        self.is_fed.set(true);
        let feeding = async {
            let fed = feeding.await;
            self.is_fed.set(false);
            fed
        };
        let pollers = if self.is_polling { self.environments.len() } else { POLLERS };
        let pollers = Semaphore::new(pollers);
        let places = Semaphore::new(self.environments.len() - self.deaths.get());
        let began = Instant::now();
        let environments = self.environments.iter().enumerate().map(|(number, processor)| {
            let more = u32::try_from(number).unwrap_or(u32::MAX).saturating_sub(AT_FIRST - 1)
                * u32::from(!self.is_warm);
            let (pollers, places, note) = (&pollers, &places, &note);
            async move {
                sleep_until(began + BETWEEN_STARTS * more).await;
                let _place = places.acquire().await?;
                self.environment(number, processor, pollers, note).await
            }
        });
        tokio::try_join!(feeding, try_join_all(environments))?;
        Ok(())
    }

    /// One execution environment. The one that has been free for longest is next.
    async fn environment(
        &self,
        environment: usize,
        processor: &BatchProcessor<H, EmbeddedSqs>,
        pollers: &Semaphore,
        note: impl Fn(&Handled<'_>),
    ) -> Result<(), Error> {
        loop {
            let poller = pollers.acquire().await?;
            let Some(records) = self.poll().await? else { return Ok(()) };
            drop(poller);
            let receipts: Vec<String> = records
                .iter()
                .map(|record| record.receipt_handle.clone().unwrap_or_default())
                .collect();
            let processed = processor.process(records, Instant::now() + FUNCTION_TIMEOUT);
            let report = if self.deaths.get() > 0 && self.sampler.sample() < DYING {
                let Ok(report) = timeout(LIFE.mul_f64(self.sampler.sample()), processed).await
                else {
                    self.deaths.set(self.deaths.get() - 1);
                    return Ok(());
                };
                report
            } else {
                processed.await
            };
            let left = self.sqs.message_count(&self.queue)?;
            note(&Handled { environment, left, report: &report });
            let done: Vec<String> = report
                .outcomes
                .iter()
                .zip(receipts)
                .filter(|(outcome, _)| !outcome.settlement.is_kept())
                .map(|(_, receipt)| receipt)
                .collect();
            if !done.is_empty() {
                let (sqs, queue) = (self.sqs.clone(), self.queue.clone());
                let delete = async move {
                    let done: Vec<&str> = done.iter().map(String::as_str).collect();
                    // SQS ignores the handles of messages that the function deleted itself.
                    let _ = sqs.delete(&queue, &done).await;
                };
                if self.is_polling {
                    delete.await;
                } else {
                    // The execution environment is free before the poller has deleted them.
                    tokio::spawn(delete);
                }
            }
        }
    }

    /// Collects a batch; `None` if there are no more messages.
    async fn poll(&self) -> Result<Option<Vec<Record>>, Error> {
        while self.is_fed.get() || self.sqs.message_count(&self.queue)? > 0 {
            let mut ask = ReceiveRequest::default();
            (ask.wait, ask.visibility) = (POLL, VISIBILITY_TIMEOUT);
            if !self.is_polling {
                ask.visibility += WINDOW_VISIBILITY;
            }
            let mut records = Source::receive(&self.sqs, &self.queue, ask).await?;
            if records.is_empty() {
                continue;
            }
            if self.is_polling {
                return Ok(Some(records));
            }
            let end = Instant::now() + BATCHING_WINDOW;
            while records.len() < MAX_BATCH_ENTRIES {
                (ask.max, ask.wait) = (MAX_BATCH_ENTRIES - records.len(), BATCHING_WINDOW);
                match timeout_at(end, Source::receive(&self.sqs, &self.queue, ask)).await {
                    Ok(more) => records.extend(more?),
                    Err(_) => break,
                }
            }
            return Ok(Some(records));
        }
        Ok(None)
    }
}

pub(crate) fn requests(sqs: &EmbeddedSqs) -> u64 {
    let operations = [
        "ReceiveMessage",
        "SendMessageBatch",
        "DeleteMessageBatch",
        "ChangeMessageVisibilityBatch",
    ];
    operations.iter().map(|operation| sqs.call_count(operation)).sum()
}
