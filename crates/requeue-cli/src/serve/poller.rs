//! Lambda's poller on a laptop: receives batches from the queues, passes each to the function or to
//! Requeue in front of it, and deletes the messages that the response acknowledges.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{fmt, iter};

use futures_util::future::try_join_all;
use parking_lot::Mutex;
use requeue::DeadLetter;
use requeue::embedded::{Batch, EventSourceMapping, InvocationResult, MessageView, SqsError};
use requeue::queue::QueueArn;
use tokio::sync::watch;
use tokio::time::Instant;

use super::Arguments;
use super::served::{ServedSqs, acknowledged, delay, received};
use super::target::TargetProcessor;
use crate::Error;
use crate::local_function::{LatestStart, LocalFunction, one_line, trace};
use crate::local_sqs::ServedQueue;
use crate::observe::{Events, short_id};
use crate::output::LineOutput;
use crate::stop::Stop;
use crate::table::counted;

const POLL: Duration = Duration::from_secs(20);

#[derive(Clone)]
pub(super) enum MappedFunction {
    /// A handler with Requeue in it.
    Handler(LocalFunction),
    /// Requeue, with another function as its target.
    Target(TargetProcessor),
}

impl MappedFunction {
    /// Passes on a batch. With the reason if the invocation failed.
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
    /// With the queue of each.
    mappings: Vec<(EventSourceMapping, QueueArn)>,
    maximum_concurrency: usize,
    function: MappedFunction,
    events: Option<Events>,
    sent: Sent,
    /// Until the function starts, the poller receives no messages, so it wastes no receives.
    starts: watch::Receiver<LatestStart>,
    batches: AtomicU64,
}

/// The delays in seconds of the messages that each running invocation has sent, by its trace. The AWS
/// SDKs give it to each request, as for Lambda's loop detection.
type Sent = Arc<Mutex<HashMap<String, Vec<u64>>>>;

impl Poller {
    pub(super) fn new(
        served: &ServedSqs,
        arguments: &Arguments,
        function: MappedFunction,
        starts: watch::Receiver<LatestStart>,
        events: Option<Events>,
    ) -> Self {
        let batch_size = arguments.batch_size.into();
        let ServedSqs { embedded, queues, .. } = served;
        let (sent, has_several) = (Sent::default(), queues.len() > 1);
        let sends = Sent::clone(&sent);
        served.follow_arrivals(events.clone(), move |of, message, is_dead| {
            if is_dead {
                dead_letter(message, has_several.then(|| of.queue.name()));
            } else if let Some(trace) = message.system_attributes.get("AWSTraceHeader")
                && let Some(sent) = sends.lock().get_mut(trace)
            {
                sent.push(delay(message).unwrap_or_default().as_secs());
            }
        });
        let mapped = |ServedQueue { queue, .. }: &ServedQueue| {
            let mapping = EventSourceMapping::new(embedded.clone(), queue.clone(), batch_size);
            (mapping, queue.clone())
        };
        Self {
            mappings: queues.iter().map(mapped).collect(),
            maximum_concurrency: arguments.maximum_concurrency.into(),
            function,
            events,
            sent,
            starts,
            batches: AtomicU64::new(0),
        }
    }

    pub(super) fn target(&self) -> Option<TargetProcessor> {
        match &self.function {
            MappedFunction::Handler(_) => None,
            MappedFunction::Target(target) => Some(target.clone()),
        }
    }

    pub(super) async fn run(&self, stop: &Stop) -> Result<(), Error> {
        let most = self.maximum_concurrency;
        let mappings = self.mappings.iter().flat_map(|mapped| iter::repeat_n(mapped, most));
        let polls = mappings.map(|(mapping, queue)| self.poll(mapping, queue));
        tokio::select! {
            biased;
            () = stop.told() => {
                LineOutput::Stdout.line("ending the function");
                Ok(())
            }
            Err(error) = try_join_all(polls) => Err(error),
        }
    }

    async fn poll(&self, mapping: &EventSourceMapping, queue: &QueueArn) -> Result<(), Error> {
        let mut starts = self.starts.clone();
        loop {
            starts.wait_for(|latest| *latest == LatestStart::Succeeded).await?;
            tokio::select! {
                biased;
                Ok(()) = starts.changed() => {}
                polled = mapping.poll(POLL) => if let Some(batch) = polled? {
                    self.invoke(mapping, queue, batch).await?;
                }
            }
        }
    }

    async fn invoke(
        &self,
        mapping: &EventSourceMapping,
        queue: &QueueArn,
        batch: Batch,
    ) -> Result<(), SqsError> {
        let number = self.batches.fetch_add(1, Ordering::Relaxed) + 1;
        let (event, messages) = (batch.event(queue), batch.message_ids().len());
        let events = self.events.as_ref();
        let ids = events.map(|events| received(events, &event)).unwrap_or_default();
        let trace = trace();
        self.sent.lock().insert(trace.clone(), Vec::new());
        let begun = Instant::now();
        let (result, error) = self.function.invoke(event.to_string(), trace.clone()).await;
        let took = begun.elapsed();
        let kept = messages - mapping.acknowledge(&batch, &result)?;
        let sent = self.sent.lock().remove(&trace).unwrap_or_default();
        if let Some(events) = events {
            acknowledged(events, ids, &batch.kept(&result), error.as_deref());
        }
        let queue = (self.mappings.len() > 1).then(|| queue.name().to_owned());
        LineOutput::Stdout.line(FinishedBatch { number, queue, messages, kept, sent, took, error });
        Ok(())
    }
}

/// Requeue's reasons have at most 256 characters, but a body may have a longer one.
const MAX_REASON: usize = 400;

struct FinishedBatch {
    number: u64,
    /// `None` if there is only one.
    queue: Option<String>,
    messages: usize,
    /// Messages that SQS keeps, by the response or because of a function error.
    kept: usize,
    /// The delays of the messages that the function sent to its queue, in seconds.
    sent: Vec<u64>,
    took: Duration,
    /// `None` if a response came.
    error: Option<String>,
}

impl fmt::Display for FinishedBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, messages, kept, took, .. } = self;
        let queue = self.queue.as_ref().map(|queue| format!("{queue} ")).unwrap_or_default();
        write!(f, "#{number} {queue}{}: ", counted(*messages, "message"))?;
        if let Some(error) = &self.error {
            write!(f, "all kept, {error}, ")?;
        } else {
            let deleted = messages - kept;
            if deleted > 0 {
                write!(f, "{deleted} deleted, ")?;
            }
            if *kept > 0 {
                write!(f, "{kept} kept, ")?;
            }
        }
        if !self.sent.is_empty() {
            let copies = counted(self.sent.len(), "copy");
            write!(f, "{copies} in {} s, ", delays(&self.sent))?;
        }
        write!(f, "{} ms", took.as_millis())
    }
}

/// `2, 6, 18`; of more than three different ones the least and the greatest: `2 to 60`.
fn delays(delays: &[u64]) -> String {
    let mut delays = delays.to_vec();
    delays.sort_unstable();
    delays.dedup();
    match delays.as_slice() {
        [first, _, _, .., last] if delays.len() > 3 => format!("{first} to {last}"),
        few => few.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
    }
}

/// The id of the first delivery and the reason, and the queue if there are several.
fn dead_letter(message: &MessageView, queue: Option<&str>) {
    let dead = DeadLetter::read(&message.body);
    let why = match (dead.reason(), dead.detail()) {
        (Some(reason), Some(detail)) if detail != reason => format!("{reason} ({detail})"),
        (Some(reason), _) => reason.to_owned(),
        (None, _) => format!("after {}", counted(message.receive_count, "receive")),
    };
    let id = short_id(dead.original_message_id().unwrap_or(&message.id));
    let queue = queue.map(|queue| format!("{queue} ")).unwrap_or_default();
    LineOutput::Stdout.line(one_line(&format!("dead letter {queue}{id}: {why}"), MAX_REASON));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_one_line() {
        let whole = || FinishedBatch {
            number: 12,
            queue: None,
            messages: 10,
            kept: 0,
            sent: Vec::new(),
            took: Duration::from_millis(142),
            error: None,
        };
        for (batch, said) in [
            (whole(), "#12 10 messages: 10 deleted, 142 ms"),
            (FinishedBatch { messages: 1, ..whole() }, "#12 1 message: 1 deleted, 142 ms"),
            (
                FinishedBatch { queue: Some("refunds".to_owned()), ..whole() },
                "#12 refunds 10 messages: 10 deleted, 142 ms",
            ),
            (FinishedBatch { messages: 1, kept: 1, ..whole() }, "#12 1 message: 1 kept, 142 ms"),
            (
                FinishedBatch { kept: 2, sent: vec![18, 2, 6, 2], ..whole() },
                "#12 10 messages: 8 deleted, 2 kept, 4 copies in 2, 6, 18 s, 142 ms",
            ),
            (
                FinishedBatch { sent: vec![1, 2, 3, 900], ..whole() },
                "#12 10 messages: 10 deleted, 4 copies in 1 to 900 s, 142 ms",
            ),
            (
                FinishedBatch {
                    kept: 10,
                    error: Some("function exited (status 1)".to_owned()),
                    ..whole()
                },
                "#12 10 messages: all kept, function exited (status 1), 142 ms",
            ),
        ] {
            assert_eq!(batch.to_string(), said);
            assert!("00:00:00Z ".len() + said.len() <= 80, "a terminal's usual width: {said}");
        }
    }
}
