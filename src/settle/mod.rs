//! Dispositions become queue calls, in the order that loses nothing: send the copy, see it confirmed, then delete the original.
//! Takes no decision: what cannot be carried out stays with SQS.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use crate::clock::{Clock, Sampler};
use crate::disposition::{DeadLetterReason, Disposition, ReleaseReason, Strategy};
use crate::failure::Failure;
use crate::message::Delivery;
use crate::policy::CallPolicy;
use crate::queue::{MAX_BATCH_ENTRIES, Queue, QueueArn, QueueUrl};
use crate::report::Settlement;
use crate::wire::Wrap;

mod brake;
mod calls;
mod chunks;
mod copy;
mod done;
#[cfg(test)]
mod tests;

pub(crate) use brake::Brake;
use chunks::Chunks;
use copy::Copy;

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
    pub(crate) behind: Behind,
}

/// The messages of the same batch that must keep their place behind this one.
pub(crate) enum Behind {
    Nobody,
    /// They are to be receivable as soon as this one is: until then SQS holds them back for its sake.
    Waiting(Vec<Arc<Delivery>>),
    /// They pass it on its way to the dead-letter queue. SQS holds them back while it is in flight, so it is to be receivable at once.
    Passing,
    /// They are handled once this one is confirmed in the dead-letter queue, and not if the sender is dropped.
    Listening(oneshot::Sender<()>),
}

impl Verdict {
    /// About a delivery whose handler was not called.
    pub(crate) fn uncalled(delivery: Arc<Delivery>, disposition: Disposition, at: SystemTime) -> Self {
        Self { delivery, disposition, failure: None, elapsed: None, at, behind: Behind::Nobody }
    }
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
    /// Where dead letters are sent to directly.
    pub(crate) dead_letters: Option<QueueUrl>,
    pub(crate) calls: CallPolicy,
    pub(crate) brake: Brake,
}

impl<Q: Queue> Settler<Q> {
    /// Settles verdicts as they arrive, several chunks at once, until the sender hangs up. Tells of each when it is settled.
    pub(crate) async fn settle(
        &self,
        mut verdicts: UnboundedReceiver<Verdict>,
        window: Window,
        mut settled: impl FnMut(Settled),
    ) {
        let (mut copies, mut holds) = (Chunks::new(), Chunks::new());
        // In boxes, for which no room is made as long as there are none.
        let copying = |route, copies| self.settle_copies(route, copies, window).boxed();
        let holding = |queue, verdicts| self.settle_holds(queue, verdicts, window).boxed();
        let mut in_flight = FuturesUnordered::new();
        loop {
            let due = [copies.due(), holds.due()].into_iter().flatten().min();
            tokio::select! {
                // What has arrived goes along with what is due, and the same events always meet the same requests.
                biased;
                verdict = verdicts.recv() => match verdict.map(|verdict| self.prepare(verdict)) {
                    Some(Prepared::Settled(done)) => settled(done),
                    Some(Prepared::Copy(route, copy)) => {
                        let (bytes, is_awaited) = (copy.size(), copy.is_awaited());
                        in_flight.extend(copies.push(&route, copy, bytes).map(|full| copying(route.clone(), full)));
                        if is_awaited {
                            in_flight.extend(copies.take(&route).map(|awaited| copying(route, awaited)));
                        }
                    }
                    Some(Prepared::Hold(queue, verdict)) => {
                        in_flight.extend(holds.push(&queue, verdict, 0).map(|full| holding(queue, full)));
                    }
                    None => break,
                },
                () = sleep_until(due.unwrap_or(window.deadline)), if due.is_some() => {
                    in_flight.extend(copies.take_due().map(|(route, due)| copying(route, due)));
                    in_flight.extend(holds.take_due().map(|(queue, due)| holding(queue, due)));
                }
                Some(done) = in_flight.next(), if !in_flight.is_empty() => done.into_iter().for_each(&mut settled),
            }
            while in_flight.len() >= MAX_CHUNKS_IN_FLIGHT
                && let Some(done) = in_flight.next().await
            {
                done.into_iter().for_each(&mut settled);
            }
        }
        in_flight.extend(copies.into_rest().map(|(route, rest)| copying(route, rest)));
        in_flight.extend(holds.into_rest().map(|(queue, rest)| holding(queue, rest)));
        while let Some(done) = in_flight.next().await {
            done.into_iter().for_each(&mut settled);
        }
    }

    /// Where a verdict goes from here.
    fn prepare(&self, mut verdict: Verdict) -> Prepared {
        let settlement = match (verdict.disposition, verdict.delivery.queue.clone()) {
            (Disposition::Complete, _) => Settlement::Done,
            (_, Some(queue)) if matches!(verdict.behind, Behind::Passing) => return Prepared::Hold(queue, verdict),
            (Disposition::Release(ReleaseReason::ShuttingDown), Some(queue)) => return Prepared::Hold(queue, verdict),
            (Disposition::Release(ReleaseReason::Annotated), Some(queue)) if is_hurried(&verdict.delivery) => {
                return Prepared::Hold(queue, verdict);
            }
            (Disposition::Release(_) | Disposition::DeadLetter(_), _) => Settlement::Kept,
            (Disposition::Requeue { .. } | Disposition::Defer { .. }, Some(queue))
                if verdict.delivery.strategy == Strategy::Visibility =>
            {
                return Prepared::Hold(queue, verdict);
            }
            (Disposition::Requeue { .. } | Disposition::Defer { .. } | Disposition::Annotate(_), Some(queue)) => {
                let route = Route { from: Arc::clone(&queue), to: queue };
                let copy = Copy::new(verdict, &route.to, self.wrap);
                return Prepared::Copy(route, copy);
            }
            (Disposition::Direct(_), Some(from)) => match self.dead_letters_of(&from) {
                Some(to) => {
                    let copy = Copy::new(verdict, &to, self.wrap);
                    return Prepared::Copy(Route { from, to }, copy);
                }
                None => Settlement::Unconfirmed { code: "NoDeadLetterQueue".to_owned() },
            },
            (
                Disposition::Requeue { .. }
                | Disposition::Defer { .. }
                | Disposition::Annotate(_)
                | Disposition::Direct(_),
                None,
            ) => Settlement::Unconfirmed { code: "NoQueueArn".to_owned() },
        };
        // Whoever listens need not wait until the end.
        verdict.behind = Behind::Nobody;
        Prepared::Settled(Settled { verdict, settlement })
    }

    /// Whether the message may be in other hands meanwhile.
    pub(crate) fn has_lapsed(&self, delivery: &Delivery) -> bool {
        // Each receive has its own handle; the latest is the one that hides it longest.
        delivery.receipt_handles.first().is_some_and(|handle| self.queue.has_lapsed(handle))
    }

    /// Where the dead letters of a queue are sent to directly; `None` also if that is the queue itself, in which they would go round.
    fn dead_letters_of(&self, queue: &QueueArn) -> Option<Arc<QueueArn>> {
        let url = self.dead_letters.as_ref()?;
        Some(url.arn(queue.partition(), queue.region())).filter(|other| other != queue).map(Arc::new)
    }

    /// Whether a dead letter can be made of it, whatever the words of its last failure.
    pub(crate) fn can_be_dead_letter(&self, delivery: &Arc<Delivery>, at: SystemTime) -> bool {
        let to = delivery.queue.as_ref().and_then(|from| self.dead_letters_of(from));
        to.is_some_and(|to| {
            let disposition = Disposition::Direct(DeadLetterReason::RetriesExhausted);
            let verdict = Verdict::uncalled(Arc::clone(delivery), disposition, at);
            Copy::new(verdict, &to, self.wrap).has_room_for_words()
        })
    }

    async fn settle_copies(&self, route: Route, mut copies: Vec<Copy>, window: Window) -> Vec<Settled> {
        if copies.iter().any(Copy::is_pending) && self.brake.lets_pass(&route.to) {
            let trouble = self.send(&route.to, &mut copies, window.deadline).await;
            if trouble.is_some() || copies.iter().any(Copy::is_confirmed) {
                self.brake.note(&route.to, trouble);
            }
        }
        let (mut moved, kept): (Vec<Copy>, Vec<Copy>) = copies.into_iter().partition(Copy::is_confirmed);
        tokio::join!(
            self.delete(&route.from, &mut moved, window.deadline),
            self.keep_invisible(&route.from, &kept, window)
        );
        moved.into_iter().chain(kept).map(Copy::into_settled).collect()
    }

    /// Lets messages wait in their place, and once that is confirmed those behind them be received when they are.
    async fn settle_holds(&self, queue: Arc<QueueArn>, verdicts: Vec<Verdict>, window: Window) -> Vec<Settled> {
        let holds: Vec<(&str, Duration)> = verdicts.iter().map(hold).collect();
        let confirmations = self.hide(&queue, &holds, window).await;
        let mut settled = Vec::with_capacity(verdicts.len());
        let mut behind = Vec::new();
        for (verdict, confirmation) in verdicts.into_iter().zip(confirmations) {
            if let (Behind::Waiting(deliveries), Ok(())) = (&verdict.behind, &confirmation) {
                behind.extend(deliveries.iter().cloned());
            }
            let settlement = match (verdict.disposition, confirmation) {
                // It is only on its way to the dead-letter queue, and gets there in any case.
                (Disposition::Release(_) | Disposition::DeadLetter(_), _) | (_, Ok(())) => Settlement::Kept,
                (_, Err(error)) => Settlement::KeptNotDelayed { code: error.code },
            };
            settled.push(Settled { verdict, settlement });
        }
        for chunk in behind.chunks(MAX_BATCH_ENTRIES) {
            let shown: Vec<(&str, Duration)> =
                chunk.iter().map(|delivery| (handle(delivery), Duration::ZERO)).collect();
            self.hide(&queue, &shown, window).await;
        }
        settled
    }
}

/// Whether an annotated message is to become visible at once, which makes no sense any more once it has not helped often enough.
fn is_hurried(delivery: &Delivery) -> bool {
    delivery.receive_count <= MAX_HURRIED_RECEIVES
}

/// What is asked for a message that waits in its place.
fn hold(verdict: &Verdict) -> (&str, Duration) {
    let wait = verdict.disposition.wait().map_or(Duration::ZERO, |wait| wait.total());
    (handle(&verdict.delivery), wait)
}

/// The receipt handle of the latest receive. An empty one, which SQS refuses, stands for none.
fn handle(delivery: &Delivery) -> &str {
    delivery.receipt_handles.first().map_or("", String::as_str)
}

enum Prepared {
    Settled(Settled),
    Copy(Route, Copy),
    Hold(Arc<QueueArn>, Verdict),
}

/// The queue in which the original is, and the one to which the copy goes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Route {
    from: Arc<QueueArn>,
    to: Arc<QueueArn>,
}
