//! The policy of each queue, with its pauses, circuits and rate limits.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

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
    /// The rate limits, if the policy has one.
    pub(super) limiter: Option<Limiter>,
}

impl QueuePolicy {
    fn new(policy: RetryPolicy) -> Self {
        let (protection, limiter) = (Protection::new(&policy), Limiter::new(&policy));
        Self { policy, protection, limiter }
    }
}

impl Policies {
    pub(super) fn new(default: RetryPolicy, own: BTreeMap<String, RetryPolicy>) -> Self {
        let own = own.into_iter().map(|(queue, policy)| (queue, QueuePolicy::new(policy)));
        Self { default: QueuePolicy::new(default), own: own.collect() }
    }

    /// The policy of a queue.
    pub(super) fn of(&self, queue: Option<&QueueArn>) -> &QueuePolicy {
        if self.own.is_empty() {
            return &self.default;
        }
        queue.and_then(|queue| self.own.get(queue.name())).unwrap_or(&self.default)
    }
}
