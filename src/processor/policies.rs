//! The policy of each queue, with the pauses and circuits that it keeps.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::gate::Protection;
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
}

impl QueuePolicy {
    fn new(policy: RetryPolicy) -> Self {
        Self { protection: Protection::new(&policy), policy }
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
