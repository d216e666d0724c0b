//! The policy of each queue, with its pauses, circuits and rate limits.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::pacer::Pacer;
use crate::fleet::{Events, Fleet, SharedHolds, SharedLimits};
use crate::gate::{Limiter, Protection};
use crate::policy::RetryPolicy;
use crate::queue::QueueArn;

/// The policies of a processor.
pub(super) struct Policies {
    default: QueuePolicy,
    /// The policies of single queues, by the queue's name.
    own: HashMap<String, QueuePolicy>,
}

pub(super) struct QueuePolicy {
    pub(super) policy: RetryPolicy,
    pub(super) protection: Arc<Protection>,
    /// The pauses and circuits of all execution environments, if they share a table.
    pub(super) holds: Option<Arc<SharedHolds>>,
    /// The slots of the rate limits: the policy's, and those that the handler gives to scopes.
    pub(super) slots: Slots,
    /// The gates of their calls, as these are made.
    pub(super) pacer: Pacer,
    /// The events that are handled once, if the policy says so.
    pub(super) events: Option<Events>,
}

/// The slots of rate limits.
pub(super) enum Slots {
    /// This execution environment keeps the limits alone.
    Own(Limiter),
    /// All execution environments keep it together.
    Shared(Arc<SharedLimits>),
}

impl QueuePolicy {
    /// `queue` is empty for the policy of all queues without their own.
    fn new(policy: RetryPolicy, queue: &str, fleet: Option<&Arc<Fleet>>) -> Self {
        let protection = Protection::new(&policy);
        let holds = fleet.map(|fleet| SharedHolds::new(fleet, &policy, queue));
        let slots = match &holds {
            None => Slots::Own(Limiter::default()),
            Some(holds) => Slots::Shared(Arc::new(SharedLimits::new(Arc::clone(holds)))),
        };
        let holds = holds.filter(|holds| holds.may_hold());
        let events = fleet.zip(policy.idempotency.clone());
        let events = events.map(|(fleet, idempotency)| Events::new(Arc::clone(fleet), idempotency));
        Self { policy, protection, holds, slots, pacer: Pacer::default(), events }
    }
}

impl Policies {
    pub(super) fn new(
        default: RetryPolicy,
        own: BTreeMap<String, RetryPolicy>,
        fleet: Option<&Arc<Fleet>>,
    ) -> Self {
        let own = own.into_iter().map(|(queue, policy)| {
            let policy = QueuePolicy::new(policy, &queue, fleet);
            (queue, policy)
        });
        Self { default: QueuePolicy::new(default, "", fleet), own: own.collect() }
    }

    /// The policy of a queue.
    pub(super) fn of(&self, queue: Option<&QueueArn>) -> &QueuePolicy {
        if self.own.is_empty() {
            return &self.default;
        }
        queue.and_then(|queue| self.own.get(queue.name())).unwrap_or(&self.default)
    }
}
