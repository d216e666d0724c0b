//! Turns plans into queue calls. It takes no decision: a message whose plan cannot be carried out
//! stays with SQS.
//!
//! - *Copy*: send the copy, wait until SQS confirms it by its id, then delete the original. If the
//!   copy is not confirmed, the original stays. If there is time for one more call, the original is
//!   hidden for its delay, and for five minutes at least.
//! - *Hide*, *Show*: change how long SQS hides the message. Its successors in its FIFO group become
//!   visible with it.
//! - *Done*: no call. The host deletes the message, or `done.rs` does if no host does.
//! - *Keep*: no call.
//!
//! How the plan *copy* can end. Lambda keeps a message with a "yes" in the last column, by
//! `batchItemFailures`:
//!
//! | SQS | sends | the original | settlement | kept |
//! |---|---|---|---|---|
//! | confirms the copy, deletes the original | 1 | gone | [`Settlement::Moved`] | no |
//! | confirms, and does not delete it in two tries | 1 | the poller deletes it | [`Settlement::MovedNotDeleted`] | no |
//! | throttles, or names an error of its own | up to 5 | hidden | [`Settlement::Unconfirmed`] | yes |
//! | refuses the copy for its length | 1 | hidden, without the five minutes | [`Settlement::Unconfirmed`], code `MessageTooLong` | yes |
//! | refuses the copy otherwise | 1 | hidden | [`Settlement::Unconfirmed`] | yes |
//! | sends no response: the copy may exist beside the original | up to 2, then none to this queue for 30 s | hidden, if time is left | [`Settlement::Unconfirmed`] | yes |
//! | was not asked: no time was left, or sends to the queue wait | 0 | hidden, if time is left | [`Settlement::Unconfirmed`], code `NotSent` | yes |
//! | may have delivered the original again | 0 | unchanged | [`Settlement::Unconfirmed`], code `VisibilityLapsed` | yes |
//!
//! *Hidden* means hidden for `hidden_if_unsent` of its disposition, but for five minutes at least, by
//! `ChangeMessageVisibility`. A send that hangs can use up the time for that call. An original that is not hidden becomes
//! visible after its visibility timeout. If a copy and its original both exist, they have one
//! [`Message::original_id`](crate::Message::original_id), the idempotency key.
//!
//! Entries for one queue share a request (`sending.rs`). After a send without a response other
//! sends wait, and a refused copy's length limits its queue's next copies (`queues.rs`).

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::clock::{Clock, Sampler};
use crate::delivery::Delivery;
use crate::plan::{Decision, Plan, Unsendable};
use crate::policy::CallPolicy;
use crate::queue::{CallError, CallErrorKind, MAX_BATCH_ENTRIES, Outgoing, Queue, QueueArn};
use crate::report::Settlement;
use hide::Hidden;
use sending::{Chunks, Route, Sending, Sent, record};

mod sending;
mod hide;
mod done;
mod queues;
#[cfg(test)]
mod tests;

pub(crate) use done::Deleted;
pub(crate) use queues::{MaxLengths, SendPause};

/// The timeout of one try of a call.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// The least time for a send. A send that is cut off may take effect, and then the message is
/// doubled.
const LEAST_FOR_SEND: Duration = Duration::from_millis(25);
/// The longest time for all tries of one chunk and the pauses between them, with any policy. If SQS
/// takes no message for this long, the message waits with its visibility timeout.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);
/// A call with an ambiguous response is tried again at most once: each further try of a send may
/// store the copies once more.
const MAX_AMBIGUOUS_TRIES: u32 = 2;
/// A delete is tried again at most once: the event source mapping deletes the rest.
const MAX_DELETE_TRIES: u32 = 2;
/// The most chunks whose calls are in progress at once. Each may have 1 MiB and a connection.
const MAX_CHUNKS_IN_FLIGHT: usize = 50;

/// One planned message, and its successors in its batch.
pub(crate) struct Task {
    pub(crate) decision: Decision,
    pub(crate) plan: Plan,
    pub(crate) waiting: Waiting,
}

/// The messages of the same FIFO group that wait for a message.
pub(crate) enum Waiting {
    Nobody,
    /// They become visible with this message: until then SQS blocks them.
    ForVisibility(Vec<Arc<Delivery>>),
    /// They are handled after SQS confirms this message in the dead-letter queue. If the sender is
    /// dropped, they are not.
    ForMove(oneshot::Sender<()>),
}

/// A decision and whether it was carried out.
pub(crate) struct Settled {
    pub(crate) decision: Decision,
    pub(crate) settlement: Settlement,
}

/// The time in which a batch must be settled.
#[derive(Clone, Copy)]
pub(crate) struct Window {
    /// The start of the invocation. No message of it was received later.
    pub(crate) started: Instant,
    /// The end of the wait for calls.
    pub(crate) deadline: Instant,
}

pub(crate) struct Settler<Q> {
    pub(crate) queue: Arc<Q>,
    pub(crate) clock: Clock,
    pub(crate) sampler: Sampler,
    pub(crate) calls: CallPolicy,
    pub(crate) pause: SendPause,
    pub(crate) lengths: MaxLengths,
}

impl<Q: Queue> Settler<Q> {
    /// Settles messages as they arrive, several chunks at once, until the sender is dropped.
    /// Reports each message when it is settled. `task` plans a message as late as possible, since a
    /// copy takes as much memory as its original.
    pub(crate) async fn settle<T>(
        &self,
        mut tasks: UnboundedReceiver<T>,
        task: impl Fn(T) -> Task,
        window: Window,
        mut settled: impl FnMut(Settled),
    ) {
        let (mut copies, mut hidden) = (Chunks::new(), Chunks::new());
        // Boxed, since an empty set of boxes takes no room.
        let copying = |route, copies| self.settle_copies(route, copies, window).boxed();
        let hiding = |queue, hidden| self.settle_hidden(queue, hidden, window).boxed();
        let mut in_flight = FuturesUnordered::new();
        loop {
            let due = [copies.due(), hidden.due()].into_iter().flatten().min();
            tokio::select! {
                // A message that has arrived joins those that are due, and the same events always
                // cause the same requests.
                biased;
                next = tasks.recv() => {
                    let Some(Task { decision, plan, waiting }) = next.map(&task) else { break };
                    match plan {
                        Plan::Done => settled(Settled { decision, settlement: Settlement::Done }),
                        Plan::Keep { unsent } => settled(Settled { decision, settlement: kept(unsent) }),
                        Plan::Show { queue } => {
                            let show = Hidden { decision, wait: None, unsent: None, waiting };
                            in_flight.extend(hidden.push(&queue, show, 0).map(|full| hiding(queue, full)));
                        }
                        Plan::Hide { queue, wait, unsent } => {
                            let hide = Hidden { decision, wait: Some(wait), unsent, waiting };
                            in_flight.extend(hidden.push(&queue, hide, 0).map(|full| hiding(queue, full)));
                        }
                        Plan::Copy(copy) => {
                            let route = Route { from: Arc::clone(&copy.from), to: Arc::clone(&copy.to) };
                            let sending = Sending::new(decision, copy, waiting);
                            let (bytes, is_awaited) = (sending.size(), sending.is_awaited());
                            in_flight.extend(copies.push(&route, sending, bytes).map(|full| copying(route.clone(), full)));
                            if is_awaited {
                                in_flight.extend(copies.take(&route).map(|awaited| copying(route, awaited)));
                            }
                        }
                    }
                }
                () = sleep_until(due.unwrap_or(window.deadline)), if due.is_some() => {
                    in_flight.extend(copies.take_due().map(|(route, due)| copying(route, due)));
                    in_flight.extend(hidden.take_due().map(|(queue, due)| hiding(queue, due)));
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
        in_flight.extend(hidden.into_rest().map(|(queue, rest)| hiding(queue, rest)));
        while let Some(done) = in_flight.next().await {
            done.into_iter().for_each(&mut settled);
        }
    }

    /// Whether another receiver may have the message meanwhile.
    pub(crate) fn has_lapsed(&self, delivery: &Delivery) -> bool {
        // Each receive has its own handle; the latest one hides the message longest.
        delivery.receipt_handles.first().is_some_and(|handle| self.queue.has_lapsed(handle))
    }

    async fn settle_copies(
        &self,
        route: Route,
        mut copies: Vec<Sending>,
        window: Window,
    ) -> Vec<Settled> {
        if self.pause.lets_pass(&route.to) {
            let error = self.send(&route.to, &mut copies, window.deadline).await;
            if error.is_some() || copies.iter().any(Sending::is_confirmed) {
                self.pause.note(&route.to, error);
            }
        }
        for too_long in copies.iter().filter(|copy| copy.is_too_long()) {
            self.lengths.note_refused(&route.to, too_long.size());
        }
        let (mut moved, kept): (Vec<Sending>, Vec<Sending>) =
            copies.into_iter().partition(Sending::is_confirmed);
        tokio::join!(
            self.delete(&route.from, &mut moved, window.deadline),
            self.keep_invisible(&route.from, &kept, window)
        );
        moved.into_iter().chain(kept).map(Sending::into_settled).collect()
    }

    /// Sends what is pending, and leaves each copy confirmed or not. Returns the error that
    /// remains, if any.
    async fn send(
        &self,
        queue: &QueueArn,
        copies: &mut [Sending],
        deadline: Instant,
    ) -> Option<CallErrorKind> {
        let deadline = deadline.min(Instant::now() + SEND_TIMEOUT);
        let mut failed = self.send_together(queue, copies, deadline).await;
        if failed == Some(CallErrorKind::Malformed) && copies.len() > 1 {
            // One entry spoils the request for all. Sent alone, only that entry fails.
            failed = None;
            for copy in copies {
                failed = worse(
                    failed,
                    self.send_together(queue, std::slice::from_mut(copy), deadline).await,
                );
            }
        }
        failed
    }

    async fn send_together(
        &self,
        queue: &QueueArn,
        copies: &mut [Sending],
        deadline: Instant,
    ) -> Option<CallErrorKind> {
        let mut tries = Tries::until(deadline.checked_sub(LEAST_FOR_SEND).unwrap_or(deadline));
        let mut ambiguous_tries = 0;
        let mut failed = None;
        while self.begin(&mut tries).await {
            let now = self.clock.now();
            for copy in copies
                .iter_mut()
                .filter(|copy| copy.is_pending() && self.has_lapsed(&copy.decision.delivery))
            {
                copy.sent = Sent::Refused("VisibilityLapsed".to_owned());
            }
            let pending = copies.iter_mut().filter(|copy| copy.is_pending());
            let mut entries: Vec<&mut Sending> = pending.collect();
            if entries.is_empty() {
                return None;
            }
            for copy in &mut entries {
                copy.copy.set_timestamp(now);
            }
            let outgoing: Vec<Outgoing<'_>> = entries.iter().map(|copy| copy.outgoing()).collect();
            let response = within(deadline, self.queue.send(queue, &outgoing)).await;
            failed = record(response, entries);
            let again = match failed {
                None | Some(CallErrorKind::Refused | CallErrorKind::Malformed) => false,
                Some(CallErrorKind::Unavailable) => true,
                Some(CallErrorKind::Ambiguous) => {
                    ambiguous_tries += 1;
                    ambiguous_tries < MAX_AMBIGUOUS_TRIES
                }
            };
            if !again {
                break;
            }
        }
        failed
    }

    /// Pauses before a further try; `false` if none may follow.
    async fn begin(&self, tries: &mut Tries) -> bool {
        if tries.made > 0 {
            let pause = self.calls.pause(tries.made, tries.pause, self.sampler.sample());
            let left = tries.latest.saturating_duration_since(Instant::now());
            let Some(pause) = pause.filter(|pause| *pause < left) else {
                return false;
            };
            sleep(pause).await;
            tries.pause = Some(pause);
        }
        tries.made += 1;
        Instant::now() < tries.latest
    }

    /// Deletes the originals of confirmed copies. After one more try, the event source mapping
    /// deletes the rest.
    async fn delete(&self, queue: &QueueArn, copies: &mut [Sending], deadline: Instant) {
        let first = copies.iter().filter_map(|copy| copy.receipt_handles().first());
        let handles: Vec<&str> = first.map(String::as_str).collect();
        let mut deleted = self.delete_handles(queue, &handles, deadline).await.into_iter();
        // Further deliveries of the same message in the same batch have receipt handles of their
        // own.
        let more = copies.iter().flat_map(|copy| copy.receipt_handles().iter().skip(1));
        let more: Vec<&str> = more.map(String::as_str).collect();
        for chunk in more.chunks(MAX_BATCH_ENTRIES) {
            self.delete_handles(queue, chunk, deadline).await;
        }
        for copy in copies {
            copy.not_deleted = match copy.receipt_handles().first() {
                Some(_) => deleted.next().and_then(Result::err),
                None => Some("NoReceiptHandle".to_owned()),
            };
        }
    }

    /// Deletes by handle, with one more try for those that failed. A pause comes before that try
    /// even if only some entries failed, since the failure in SQS is then likelier to be over. The
    /// error is the code.
    pub(super) async fn delete_handles(
        &self,
        queue: &QueueArn,
        handles: &[&str],
        deadline: Instant,
    ) -> Vec<Result<(), String>> {
        let mut results = vec![Err("NotDeleted".to_owned()); handles.len()];
        let mut tries = Tries::until(deadline);
        for _ in 0..MAX_DELETE_TRIES {
            let left: Vec<usize> = (0..handles.len()).filter(|&at| results[at].is_err()).collect();
            if left.is_empty() || !self.begin(&mut tries).await {
                break;
            }
            let batch: Vec<&str> = left.iter().map(|&at| handles[at]).collect();
            match within(deadline, self.queue.delete(queue, &batch)).await {
                Ok(confirmations) => {
                    for (at, confirmation) in left.into_iter().zip(confirmations) {
                        results[at] = confirmation.map_err(|error| error.code);
                    }
                }
                Err(error) => left.into_iter().for_each(|at| results[at] = Err(error.code.clone())),
            }
        }
        results
    }
}

fn kept(unsent: Option<Unsendable>) -> Settlement {
    unsent.map_or(Settlement::Kept, |unsent| Settlement::Unconfirmed { code: unsent.code() })
}

/// The receipt handle of the latest receive. Without one it is empty, and SQS refuses that.
fn handle(delivery: &Delivery) -> &str {
    delivery.receipt_handles.first().map_or("", String::as_str)
}

struct Tries {
    /// The time before which a try must begin.
    latest: Instant,
    made: u32,
    /// The pause before the last try.
    pause: Option<Duration>,
}

impl Tries {
    fn until(latest: Instant) -> Self {
        Self { latest, made: 0, pause: None }
    }
}

async fn within<T>(
    deadline: Instant,
    call: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    let limit = deadline.min(Instant::now() + CALL_TIMEOUT);
    timeout_at(limit, call).await.unwrap_or_else(|_| Err(CallError::timed_out()))
}

/// The worse of two results. A send without a response counts, since it may have stored its copies.
fn worse(one: Option<CallErrorKind>, other: Option<CallErrorKind>) -> Option<CallErrorKind> {
    match (one, other) {
        (Some(CallErrorKind::Ambiguous), _) | (_, Some(CallErrorKind::Ambiguous)) => {
            Some(CallErrorKind::Ambiguous)
        }
        _ => one.or(other),
    }
}
