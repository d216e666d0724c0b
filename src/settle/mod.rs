//! Dispositions become queue calls, in the order that loses nothing: send the copy, see it confirmed, then delete the original.
//! Takes no decision: what cannot be carried out stays with SQS.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep_until};

use crate::clock::{Clock, Sampler};
use crate::disposition::{Disposition, ReleaseReason};
use crate::failure::Failure;
use crate::message::Delivery;
use crate::policy::CallPolicy;
use crate::queue::{MAX_BATCH_BYTES, MAX_BATCH_ENTRIES, Queue, QueueArn};
use crate::report::Settlement;
use crate::wire::Wrap;

mod brake;
mod calls;
mod copy;

pub(crate) use brake::Brake;
use copy::Copy;

/// The oldest verdict of a chunk waits no longer than this for company.
const MAX_LINGER: Duration = Duration::from_millis(250);
/// Most chunks whose calls are under way at once. Each may hold 1 MiB and a connection.
const MAX_CHUNKS_IN_FLIGHT: usize = 50;

/// A message that was given up becomes visible at once on so many receives. A redrive policy with a higher `maxReceiveCount`, or a
/// queue without one, shall not keep the function busy.
const MAX_HURRIED_RECEIVES: u32 = 10;

/// What was decided about one delivery.
pub(crate) struct Verdict {
    pub(crate) delivery: Arc<Delivery>,
    pub(crate) disposition: Disposition,
    pub(crate) failure: Option<Failure>,
    pub(crate) elapsed: Option<Duration>,
    /// When it was decided.
    pub(crate) at: SystemTime,
}

/// A verdict and whether it was carried out.
pub(crate) struct Settled {
    pub(crate) verdict: Verdict,
    pub(crate) settlement: Settlement,
}

/// The time in which a batch must be settled.
#[derive(Clone, Copy)]
pub(crate) struct Window {
    /// When the invocation began: no message of it was received later.
    pub(crate) started: Instant,
    /// No call is waited for after this.
    pub(crate) deadline: Instant,
}

/// Carries out the verdicts of one batch.
pub(crate) struct Settler<Q> {
    pub(crate) queue: Arc<Q>,
    pub(crate) clock: Clock,
    pub(crate) sampler: Sampler,
    pub(crate) wrap: Wrap,
    pub(crate) calls: CallPolicy,
    pub(crate) brake: Brake,
}

impl<Q: Queue> Settler<Q> {
    /// Settles verdicts as they arrive, several chunks at once, until the sender hangs up.
    pub(crate) async fn settle(&self, mut verdicts: UnboundedReceiver<Verdict>, window: Window) -> Vec<Settled> {
        let mut settled = Vec::new();
        let mut chunks: BTreeMap<Arc<QueueArn>, Chunk> = BTreeMap::new();
        let mut annotated: BTreeMap<Arc<QueueArn>, Vec<Verdict>> = BTreeMap::new();
        let mut in_flight = FuturesUnordered::new();
        loop {
            let linger = chunks.values().map(|chunk| chunk.since + MAX_LINGER).min();
            tokio::select! {
                verdict = verdicts.recv() => match verdict {
                    Some(verdict) => match self.prepare(verdict) {
                        Prepared::Settled(done) => settled.push(done),
                        Prepared::Annotated(queue, verdict) => annotated.entry(queue).or_default().push(verdict),
                        Prepared::Copy(queue, copy) => {
                            let chunk = chunks.entry(Arc::clone(&queue)).or_default();
                            if let Some(full) = chunk.push(copy) {
                                in_flight.push(self.settle_chunk(queue, full, window));
                            }
                        }
                    },
                    None => break,
                },
                () = sleep_until(linger.unwrap_or(window.deadline)), if linger.is_some() => {
                    let due = |chunk: &mut Chunk| chunk.since + MAX_LINGER <= Instant::now();
                    for (queue, chunk) in chunks.extract_if(.., |_, chunk| due(chunk)) {
                        in_flight.push(self.settle_chunk(queue, chunk.copies, window));
                    }
                }
                Some(done) = in_flight.next(), if !in_flight.is_empty() => settled.extend(done),
            }
            while in_flight.len() >= MAX_CHUNKS_IN_FLIGHT
                && let Some(done) = in_flight.next().await
            {
                settled.extend(done);
            }
        }
        for (queue, chunk) in chunks {
            in_flight.push(self.settle_chunk(queue, chunk.copies, window));
        }
        let hurried = self.hurry(annotated, window.deadline);
        let copied = async {
            while let Some(done) = in_flight.next().await {
                settled.extend(done);
            }
        };
        let (hurried, ()) = tokio::join!(hurried, copied);
        settled.extend(hurried);
        settled
    }

    fn prepare(&self, verdict: Verdict) -> Prepared {
        let settlement = match verdict.disposition {
            Disposition::Complete => Settlement::Done,
            Disposition::Release(ReleaseReason::Annotated) if let Some(queue) = hurries(&verdict.delivery) => {
                return Prepared::Annotated(queue, verdict);
            }
            Disposition::Release(_) | Disposition::DeadLetter(_) => Settlement::Kept,
            Disposition::Requeue { .. } | Disposition::Defer { .. } | Disposition::Annotate(_) => {
                match verdict.delivery.queue.clone() {
                    Some(queue) => return Prepared::Copy(queue, Copy::new(verdict, self.wrap)),
                    None => Settlement::Unconfirmed { code: "NoQueueArn".to_owned() },
                }
            }
        };
        Prepared::Settled(Settled { verdict, settlement })
    }

    async fn settle_chunk(&self, queue: Arc<QueueArn>, mut copies: Vec<Copy>, window: Window) -> Vec<Settled> {
        if self.brake.lets_pass() {
            let trouble = self.send(&queue, &mut copies, window.deadline).await;
            if trouble.is_some() || copies.iter().any(Copy::is_confirmed) {
                self.brake.note(trouble);
            }
        }
        let (mut moved, kept): (Vec<Copy>, Vec<Copy>) = copies.into_iter().partition(Copy::is_confirmed);
        tokio::join!(self.delete(&queue, &mut moved, window.deadline), self.keep_invisible(&queue, &kept, window));
        moved.into_iter().chain(kept).map(Copy::into_settled).collect()
    }

    /// Deletes what completed. The event source mapping does that by itself unless the invocation fails.
    pub(crate) async fn delete_completed(&self, settled: &[Settled], deadline: Instant) {
        let mut handles: BTreeMap<&QueueArn, Vec<&str>> = BTreeMap::new();
        for Settled { verdict, settlement } in settled {
            if let (Settlement::Done | Settlement::MovedNotDeleted { .. }, Some(queue)) =
                (settlement, &verdict.delivery.queue)
            {
                handles.entry(queue).or_default().extend(verdict.delivery.receipt_handles.iter().map(String::as_str));
            }
        }
        let mut calls = FuturesUnordered::new();
        for (queue, handles) in &handles {
            for chunk in handles.chunks(MAX_BATCH_ENTRIES) {
                if calls.len() >= MAX_CHUNKS_IN_FLIGHT {
                    calls.next().await;
                }
                calls.push(self.delete_handles(queue, chunk, deadline));
            }
        }
        while calls.next().await.is_some() {}
    }
}

/// The queue in which an annotated message is to become visible at once; `None` once that has not helped often enough.
fn hurries(delivery: &Delivery) -> Option<Arc<QueueArn>> {
    let worthwhile = delivery.receive_count <= MAX_HURRIED_RECEIVES && !delivery.receipt_handles.is_empty();
    delivery.queue.clone().filter(|_| worthwhile)
}

enum Prepared {
    Settled(Settled),
    Copy(Arc<QueueArn>, Copy),
    Annotated(Arc<QueueArn>, Verdict),
}

/// Copies that will share one request.
struct Chunk {
    copies: Vec<Copy>,
    bytes: usize,
    /// When the oldest of them came.
    since: Instant,
}

impl Default for Chunk {
    fn default() -> Self {
        Self { copies: Vec::with_capacity(MAX_BATCH_ENTRIES), bytes: 0, since: Instant::now() }
    }
}

impl Chunk {
    /// Adds a copy. Returns what must leave now: the chunk when it is full, or all before this copy when they do not fit together.
    fn push(&mut self, copy: Copy) -> Option<Vec<Copy>> {
        let overflows = self.bytes + copy.size() > MAX_BATCH_BYTES;
        let before = (overflows && !self.copies.is_empty()).then(|| std::mem::take(self).copies);
        self.bytes += copy.size();
        self.copies.push(copy);
        if before.is_none() && self.copies.len() == MAX_BATCH_ENTRIES {
            return Some(std::mem::take(self).copies);
        }
        before
    }
}
