//! Deletes finished messages if no poller does: a worker has no poller, and the poller of an
//! invocation that fails deletes nothing. Entries share a request by the same rule as copies.
//!
//! The loop looks like that of settling. But settling gathers two kinds of entries and turns them
//! into settlements; this loop gathers receipt handles and counts those that remain.

use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, Stream};
use futures_util::{FutureExt, StreamExt, pin_mut};
use tokio::time::{Instant, sleep_until};

use super::chunks::Chunks;
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

impl<Q: Queue> Settler<Q> {
    /// Deletes messages as they come, several chunks at once, until no more do. Returns how many
    /// receipt handles it could not delete.
    pub(crate) async fn delete_done(
        &self,
        done: impl Stream<Item = Arc<Delivery>>,
        deadline: Instant,
    ) -> usize {
        pin_mut!(done);
        let mut chunks = Chunks::new();
        let deleting = |queue: Arc<QueueArn>, handles: Vec<String>| {
            let deleting = async move {
                let handles: Vec<&str> = handles.iter().map(String::as_str).collect();
                let responses = self.delete_handles(&queue, &handles, deadline).await;
                responses.iter().filter(|response| response.is_err()).count()
            };
            // Boxed as in settling.
            deleting.boxed()
        };
        let mut in_flight = FuturesUnordered::new();
        let mut not_deleted = 0;
        loop {
            let due = chunks.due();
            tokio::select! {
                // Biased as in settling.
                biased;
                delivery = done.next() => {
                    let Some(delivery) = delivery else { break };
                    let Some(queue) = &delivery.queue else { continue };
                    for handle in &delivery.receipt_handles {
                        let full = chunks.push(queue, handle.clone(), 0);
                        in_flight.extend(full.map(|handles| deleting(Arc::clone(queue), handles)));
                    }
                }
                () = sleep_until(due.unwrap_or(deadline)), if due.is_some() => {
                    in_flight.extend(chunks.take_due().map(|(queue, handles)| deleting(queue, handles)));
                }
                Some(failed) = in_flight.next(), if !in_flight.is_empty() => not_deleted += failed,
            }
            while in_flight.len() >= MAX_CHUNKS_IN_FLIGHT
                && let Some(failed) = in_flight.next().await
            {
                not_deleted += failed;
            }
        }
        in_flight.extend(chunks.into_rest().map(|(queue, handles)| deleting(queue, handles)));
        while let Some(failed) = in_flight.next().await {
            not_deleted += failed;
        }
        not_deleted
    }
}
