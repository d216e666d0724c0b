//! The order of FIFO queues: which messages of a batch go one after the other, and what one leaves to those behind it.

use std::collections::HashMap;
use std::sync::Arc;

use crate::disposition::{DeadLetterReason, Disposition, ReleaseReason};
use crate::message::Delivery;
use crate::policy::{self, RetryPolicy};
use crate::settle::Verdict;

/// Those that go in any order, and the lanes: the messages of one FIFO group each, in their order.
pub(crate) fn lanes(deliveries: Vec<Delivery>) -> (Vec<Arc<Delivery>>, Vec<Vec<Arc<Delivery>>>) {
    let (fifo, loose): (Vec<_>, Vec<_>) = deliveries.into_iter().partition(Delivery::is_fifo);
    let mut lanes: Vec<Vec<Arc<Delivery>>> = Vec::new();
    // A batch has one queue as a rule; should it have two, their groups are not the same for bearing the same name.
    let mut groups = HashMap::new();
    for mut delivery in fifo {
        let group = (delivery.queue.clone(), delivery.group_id.clone());
        let lane = *groups.entry(group).or_insert(lanes.len());
        if lane == lanes.len() {
            lanes.push(Vec::new());
        }
        if let Some(predecessor) = lanes[lane].last() {
            delivery.follow(predecessor);
        }
        lanes[lane].push(Arc::new(delivery));
    }
    (loose.into_iter().map(Arc::new).collect(), lanes)
}

/// Whether the messages behind one in its FIFO group may be handled.
pub(crate) enum Way {
    /// It is done, or in nobody's way.
    Free,
    /// It stays, but is not handled again.
    Passable,
    /// It is not handled again if it reaches the dead-letter queue.
    FreeOnceMoved,
    /// It is handled again, and must come first.
    Blocked,
}

/// What a message leaves to those behind it in its FIFO group. In its place one that failed for good may be handled again on each
/// receive, by a process that does not know that it was given up, until its receives say that its retries are used up, or it is in the
/// dead-letter queue.
pub(crate) fn way(policy: &RetryPolicy, verdict: &Verdict) -> Way {
    let Verdict { delivery, disposition, .. } = verdict;
    let progress = delivery.progress();
    // Without a redrive policy it would go round and round.
    let passable = if policy::is_stuck(policy, &progress) { Way::Free } else { Way::Passable };
    match disposition {
        // Behind one that the end of the host keeps from its turn, no other is handled either.
        Disposition::Complete
        | Disposition::Direct(DeadLetterReason::Expired)
        | Disposition::Release(ReleaseReason::ShuttingDown) => Way::Free,
        Disposition::DeadLetter(DeadLetterReason::Expired) | Disposition::Release(ReleaseReason::Annotated) => passable,
        Disposition::DeadLetter(_) | Disposition::Release(ReleaseReason::GivenUp)
            if policy::is_spent(policy, &progress) =>
        {
            passable
        }
        Disposition::Direct(_) => Way::FreeOnceMoved,
        Disposition::Requeue { .. }
        | Disposition::Defer { .. }
        | Disposition::Release(_)
        | Disposition::DeadLetter(_)
        | Disposition::Annotate(_) => Way::Blocked,
    }
}
