//! Lambda's poller on a laptop: receives batches from the queues, hands each to the function or to
//! Requeue in front of it, and deletes the messages that the response acknowledges.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select_all;
use parking_lot::Mutex;
use requeue::embedded::{Batch, EmbeddedSqs, EventSourceMapping, InvocationResult, SqsError};
use requeue::queue::QueueArn;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Arguments;
use super::served::{ServedQueue, ServedSqs, acknowledged, arrived, delay, received};
use super::show::{self, FinishedBatch};
use super::target::TargetProcessor;
use crate::Error;
use crate::local_function::{LatestStart, LineOutput, LocalFunction, trace};
use crate::observe::{Events, Ids};
use crate::stop::Stop;

const POLL: Duration = Duration::from_secs(20);

#[derive(Clone)]
pub(super) enum MappedFunction {
    /// A handler with Requeue in it.
    Handler(LocalFunction),
    /// Requeue, with another function as its target.
    Target(TargetProcessor),
}

impl MappedFunction {
    /// Hands over a batch. With the reason if the invocation failed.
    async fn invoke(&self, event: String, trace: String) -> (InvocationResult, Option<String>) {
        match self {
            Self::Handler(function) => match function.call(event.into(), trace).await.result {
                Ok(response) => (InvocationResult::Response(response.into()), None),
                Err(error) => (InvocationResult::FunctionError, Some(error.why)),
            },
            Self::Target(processor) => processor.invoke(&event).await,
        }
    }
}

pub(super) struct Poller {
    mappings: Vec<Mapped>,
    first: usize,
    maximum_concurrency: usize,
    function: MappedFunction,
    events: Option<Events>,
    invocations: JoinSet<FinishedInvocation>,
    sent: Sent,
    /// Until the function starts, the poller receives no messages, so it wastes no receives.
    starts: watch::Receiver<LatestStart>,
    batches: u64,
}

/// The delays in seconds of the messages that each running invocation has sent, by its trace.
type Sent = Arc<Mutex<HashMap<String, Vec<u64>>>>;

struct Mapped {
    mapping: EventSourceMapping,
    queue: QueueArn,
    running: usize,
}

struct FinishedInvocation {
    number: u64,
    /// The place of its mapping.
    mapping: usize,
    batch: Batch,
    /// The ids of the messages, if the page follows them.
    ids: Vec<Ids>,
    trace: String,
    result: InvocationResult,
    error: Option<String>,
    took: Duration,
}

impl Poller {
    pub(super) fn new(
        ServedSqs { embedded, queues, .. }: &ServedSqs,
        arguments: &Arguments,
        function: MappedFunction,
        starts: watch::Receiver<LatestStart>,
        events: Option<Events>,
    ) -> Self {
        let batch_size = arguments.batch_size.into();
        let sent = Sent::default();
        follow_arrivals(embedded, queues.clone(), events.clone(), Sent::clone(&sent));
        let mapped = |ServedQueue { queue, .. }: &ServedQueue| Mapped {
            mapping: EventSourceMapping::new(embedded.clone(), queue.clone(), batch_size),
            queue: queue.clone(),
            running: 0,
        };
        Self {
            mappings: queues.iter().map(mapped).collect(),
            first: 0,
            maximum_concurrency: arguments.maximum_concurrency.into(),
            function,
            events,
            invocations: JoinSet::new(),
            sent,
            starts,
            batches: 0,
        }
    }

    pub(super) async fn run(&mut self, stop: &Stop) -> Result<(), Error> {
        loop {
            let most = self.maximum_concurrency;
            let is_free = self.mappings.iter().any(|mapped| mapped.running < most);
            let starts = *self.starts.borrow_and_update() == LatestStart::Succeeded;
            tokio::select! {
                biased;
                () = stop.told() => {
                    LineOutput::Stdout.line("ending the function");
                    return Ok(());
                }
                Some(Ok(invocation)) = self.invocations.join_next() => {
                    self.acknowledge(invocation)?;
                }
                Ok(()) = self.starts.changed() => {}
                polled = next_batch(&self.mappings, self.first, most), if starts && is_free => {
                    let (at, batch) = polled?;
                    self.first = (at + 1) % self.mappings.len();
                    if let Some(batch) = batch {
                        self.invoke(at, batch);
                    }
                }
            }
        }
    }

    fn invoke(&mut self, mapping: usize, batch: Batch) {
        self.batches += 1;
        self.mappings[mapping].running += 1;
        let (function, number) = (self.function.clone(), self.batches);
        let event = batch.event(&self.mappings[mapping].queue);
        let events = self.events.as_ref();
        let ids = events.map(|events| received(events, &event)).unwrap_or_default();
        let trace = trace();
        self.sent.lock().insert(trace.clone(), Vec::new());
        self.invocations.spawn(async move {
            let begun = Instant::now();
            let (result, error) = function.invoke(event.to_string(), trace.clone()).await;
            let took = begun.elapsed();
            FinishedInvocation { number, mapping, batch, ids, trace, result, error, took }
        });
    }

    fn acknowledge(&mut self, invocation: FinishedInvocation) -> Result<(), SqsError> {
        let FinishedInvocation { number, mapping, batch, ids, trace, result, error, took } =
            invocation;
        let has_several = self.mappings.len() > 1;
        let Mapped { mapping, queue, running } = &mut self.mappings[mapping];
        *running -= 1;
        let messages = batch.message_ids().len();
        let kept = messages - mapping.acknowledge(&batch, &result)?;
        let sent = self.sent.lock().remove(&trace).unwrap_or_default();
        let error = error.as_deref();
        if let Some(events) = &self.events {
            acknowledged(events, ids, &batch.kept(&result), error);
        }
        let queue = has_several.then(|| queue.name());
        LineOutput::Stdout.line(FinishedBatch { number, queue, messages, kept, sent, took, error });
        Ok(())
    }
}

/// The next batch, and the place of its mapping. The mappings take turns, so a full queue holds up no
/// other.
async fn next_batch(
    mappings: &[Mapped],
    first: usize,
    most: usize,
) -> Result<(usize, Option<Batch>), SqsError> {
    let in_turn = (first..mappings.len()).chain(0..first);
    let polls = in_turn.filter(|at| mappings[*at].running < most).map(|at| {
        let poll = mappings[at].mapping.poll(POLL);
        Box::pin(async move { poll.await.map(|batch| (at, batch)) })
    });
    // The one that is ready first; no other has received anything then.
    select_all(polls).await.0
}

/// Shows messages that reach the dead-letter queue, and notes those that functions send. The AWS SDKs
/// give each request the trace of the invocation, as for Lambda's loop detection.
fn follow_arrivals(
    sqs: &EmbeddedSqs,
    queues: Vec<ServedQueue>,
    events: Option<Events>,
    sent: Sent,
) {
    sqs.on_arrival(move |queue, message| {
        let Some((served, is_dead)) = ServedQueue::find(&queues, queue) else { return };
        if let Some(events) = &events {
            arrived(events, message, is_dead);
        }
        if is_dead {
            show::dead_letter(message, (queues.len() > 1).then(|| served.queue.name()));
        } else if let Some(trace) = message.system_attributes.get("AWSTraceHeader")
            && let Some(sent) = sent.lock().get_mut(trace)
        {
            sent.push(delay(message).unwrap_or_default().as_secs());
        }
    });
}
