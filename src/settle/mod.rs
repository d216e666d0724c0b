//! Turns plans into queue calls. It takes no decision: a message whose plan cannot be carried out
//! stays with SQS.
//!
//! - *Copy*: send the copy, see SQS confirm it by its id, then delete the original. If the copy is
//!   not confirmed, the original stays. If there is time for one more call, the original is hidden
//!   for its delay, and for five minutes at least.
//! - *Hide*, *Show*: change how long SQS hides the message. The messages behind it in its FIFO
//!   group become receivable with it.
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
//! Entries for one queue share a request (`chunks.rs`), calls are tried again within bounds
//! (`calls.rs`), and after a send without a response other sends wait (`pause.rs`). The length of a
//! refused copy is the limit of its queue's next copies (`lengths.rs`).

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use crate::clock::{Clock, Sampler};
use crate::delivery::Delivery;
use crate::plan::{Copy, Decision, Plan, Unsendable};
use crate::policy::CallPolicy;
use crate::queue::{MAX_BATCH_ENTRIES, MESSAGE_TOO_LONG, Outgoing, Queue, QueueArn};
use crate::report::Settlement;

mod calls;
mod chunks;
mod done;
mod lengths;
mod pause;
#[cfg(test)]
mod tests;

use chunks::Chunks;
pub(crate) use done::Deleted;
pub(crate) use lengths::MaxLengths;
pub(crate) use pause::SendPause;

/// Most chunks whose calls are under way at once. Each may hold 1 MiB and a connection.
const MAX_CHUNKS_IN_FLIGHT: usize = 50;

/// One planned message, and the messages of its batch that must stay behind it.
pub(crate) struct Task {
    pub(crate) decision: Decision,
    pub(crate) plan: Plan,
    pub(crate) waiting: Waiting,
}

/// The messages of the same FIFO group that wait for a message.
pub(crate) enum Waiting {
    Nobody,
    /// They become receivable with this message: until then SQS holds them back.
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
    /// No call is waited for after this.
    pub(crate) deadline: Instant,
}

/// Carries out the plans of one batch.
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
    /// Reports each message when it is settled. `task` plans a message no earlier than its turn
    /// comes, since a copy takes as much memory as its original.
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

    /// Hides messages. After SQS confirms that, it makes the messages behind them in their groups
    /// receivable at the same time.
    async fn settle_hidden(
        &self,
        queue: Arc<QueueArn>,
        hidden: Vec<Hidden>,
        window: Window,
    ) -> Vec<Settled> {
        let waits: Vec<(&str, Duration)> = hidden
            .iter()
            .map(|Hidden { decision, wait, .. }| {
                (handle(&decision.delivery), wait.unwrap_or_default())
            })
            .collect();
        let confirmations = self.hide(&queue, &waits, window).await;
        let mut settled = Vec::with_capacity(hidden.len());
        let mut behind = Vec::new();
        for (Hidden { decision, wait, unsent, waiting }, confirmation) in
            hidden.into_iter().zip(confirmations)
        {
            if let (Waiting::ForVisibility(deliveries), Ok(())) = (waiting, &confirmation) {
                behind.extend(deliveries);
            }
            let settlement = match confirmation {
                Err(error) if wait.is_some() && unsent.is_none() => {
                    Settlement::KeptNotDelayed { code: error.code }
                }
                Ok(()) | Err(_) => kept(unsent),
            };
            settled.push(Settled { decision, settlement });
        }
        for chunk in behind.chunks(MAX_BATCH_ENTRIES) {
            let shown: Vec<(&str, Duration)> =
                chunk.iter().map(|delivery| (handle(delivery), Duration::ZERO)).collect();
            self.hide(&queue, &shown, window).await;
        }
        settled
    }
}

/// A message that SQS keeps and delivers again after `wait`. Without a `wait`, it is to be
/// delivered at once, and a refusal only delays that.
struct Hidden {
    decision: Decision,
    wait: Option<Duration>,
    unsent: Option<Unsendable>,
    waiting: Waiting,
}

fn kept(unsent: Option<Unsendable>) -> Settlement {
    unsent.map_or(Settlement::Kept, |unsent| Settlement::Unconfirmed { code: unsent.code() })
}

/// The receipt handle of the latest receive. Without one it is empty, and SQS refuses that.
fn handle(delivery: &Delivery) -> &str {
    delivery.receipt_handles.first().map_or("", String::as_str)
}

/// The queue in which the original is, and the one to which the copy goes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Route {
    from: Arc<QueueArn>,
    to: Arc<QueueArn>,
}

/// A copy to be sent, and the decision that asked for it.
struct Sending {
    decision: Decision,
    copy: Copy,
    waiting: Waiting,
    sent: Sent,
    /// Why the original could not be deleted.
    not_deleted: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Sent {
    /// To be sent, or to be sent again after an error with this code.
    NotYet(Option<String>),
    /// SQS's response names it as sent.
    Confirmed,
    /// It cannot be sent, or not in time.
    Refused(String),
}

impl Sending {
    fn new(decision: Decision, copy: Copy, waiting: Waiting) -> Self {
        Self { decision, copy, waiting, sent: Sent::NotYet(None), not_deleted: None }
    }

    /// The bytes that the copy takes in a request.
    fn size(&self) -> usize {
        self.outgoing().size()
    }

    fn is_pending(&self) -> bool {
        matches!(self.sent, Sent::NotYet(_))
    }

    /// Whether the rest of its group waits for this copy.
    fn is_awaited(&self) -> bool {
        matches!(self.waiting, Waiting::ForMove(_))
    }

    fn is_confirmed(&self) -> bool {
        self.sent == Sent::Confirmed
    }

    /// Whether its queue takes no message of this length.
    fn is_too_long(&self) -> bool {
        matches!(&self.sent, Sent::Refused(code) if code == MESSAGE_TOO_LONG)
    }

    fn outgoing(&self) -> Outgoing<'_> {
        self.copy.outgoing(&self.decision.delivery)
    }

    fn receipt_handles(&self) -> &[String] {
        &self.decision.delivery.receipt_handles
    }

    fn into_settled(self) -> Settled {
        let settlement = match (self.sent, self.not_deleted) {
            (Sent::Confirmed, None) => Settlement::Moved,
            (Sent::Confirmed, Some(code)) => Settlement::MovedNotDeleted { code },
            (Sent::Refused(code) | Sent::NotYet(Some(code)), _) => Settlement::Unconfirmed { code },
            (Sent::NotYet(None), _) => Settlement::Unconfirmed { code: "NotSent".to_owned() },
        };
        if let (Waiting::ForMove(moved), false) = (self.waiting, settlement.is_kept()) {
            // The receiver may be gone if its time is over.
            let _ = moved.send(());
        }
        Settled { decision: self.decision, settlement }
    }
}
