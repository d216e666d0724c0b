//! Deletes finished messages if no poller does: a worker has no poller, and the poller of an
//! invocation that fails deletes nothing. Entries share a request by the same rule as copies.

use std::ops::AddAssign;
use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, Stream};
use futures_util::{FutureExt, StreamExt, pin_mut};
use tokio::time::{Instant, sleep_until};

use super::sending::Chunks;
use super::{MAX_CHUNKS_IN_FLIGHT, Settled, Settler};
use crate::delivery::Delivery;
use crate::queue::{Queue, QueueArn};
use crate::report::Settlement;

impl Settled {
    /// The message, if it is finished and may still be in its queue.
    pub(crate) fn to_delete(&self) -> Option<Arc<Delivery>> {
        match self.settlement {
            Settlement::Done | Settlement::MovedNotDeleted { .. } => {
                Some(Arc::clone(&self.decision.delivery))
            }
            Settlement::Kept
            | Settlement::KeptNotDelayed { .. }
            | Settlement::Moved
            | Settlement::Unconfirmed { .. } => None,
        }
    }
}

/// The number of messages that were to be deleted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Deleted {
    pub(crate) confirmed: usize,
    /// Those with a receipt handle that was not deleted.
    pub(crate) failed: usize,
}

impl AddAssign for Deleted {
    fn add_assign(&mut self, other: Self) {
        self.confirmed += other.confirmed;
        self.failed += other.failed;
    }
}

impl<Q: Queue> Settler<Q> {
    /// Deletes messages as they arrive, several chunks at once, until no more arrive. `not_deleted`
    /// is called at once with each message that was not deleted, or may not be.
    pub(crate) async fn delete_done(
        &self,
        done: impl Stream<Item = Arc<Delivery>>,
        deadline: Instant,
        not_deleted: impl Fn(&Delivery) + Sync,
    ) -> Deleted {
        pin_mut!(done);
        let mut chunks = Chunks::new();
        let not_deleted = &not_deleted;
        let deleting = |queue: Arc<QueueArn>, entries: Vec<ToDelete>| {
            let deleting = async move {
                let handles: Vec<&str> = entries.iter().map(ToDelete::handle).collect();
                // SQS confirms a delete by the handle of an earlier receive, which deletes nothing.
                let lapsed: Vec<bool> =
                    entries.iter().map(|entry| self.has_lapsed(&entry.delivery)).collect();
                let responses = self.delete_handles(&queue, &handles, deadline).await;
                let mut failed = Vec::new();
                for ((entry, response), has_lapsed) in entries.iter().zip(responses).zip(lapsed) {
                    if response.is_err() {
                        failed.push(Arc::clone(&entry.delivery));
                    }
                    if response.is_err() || has_lapsed {
                        not_deleted(&entry.delivery);
                    }
                }
                failed
            };
            // Boxed as in settling.
            deleting.boxed()
        };
        let mut in_flight = FuturesUnordered::new();
        let (mut messages, mut failed) = (0, Vec::new());
        loop {
            let due = chunks.due();
            tokio::select! {
                // Biased as in settling.
                biased;
                delivery = done.next() => {
                    let Some(delivery) = delivery else { break };
                    let Some(queue) = &delivery.queue else { continue };
                    messages += 1;
                    for at in 0..delivery.receipt_handles.len() {
                        let entry = ToDelete { delivery: Arc::clone(&delivery), at };
                        let full = chunks.push(queue, entry, 0);
                        in_flight.extend(full.map(|entries| deleting(Arc::clone(queue), entries)));
                    }
                }
                () = sleep_until(due.unwrap_or(deadline)), if due.is_some() => {
                    in_flight.extend(chunks.take_due().map(|(queue, entries)| deleting(queue, entries)));
                }
                Some(some) = in_flight.next(), if !in_flight.is_empty() => failed.extend(some),
            }
            while in_flight.len() >= MAX_CHUNKS_IN_FLIGHT
                && let Some(some) = in_flight.next().await
            {
                failed.extend(some);
            }
        }
        in_flight.extend(chunks.into_rest().map(|(queue, entries)| deleting(queue, entries)));
        while let Some(some) = in_flight.next().await {
            failed.extend(some);
        }
        // A message that was received twice in one batch has two handles.
        failed.sort_unstable_by_key(|delivery| delivery.position);
        failed.dedup_by_key(|delivery| delivery.position);
        Deleted { confirmed: messages - failed.len(), failed: failed.len() }
    }
}

struct ToDelete {
    delivery: Arc<Delivery>,
    at: usize,
}

impl ToDelete {
    fn handle(&self) -> &str {
        &self.delivery.receipt_handles[self.at]
    }
}
