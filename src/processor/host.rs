//! The questions of a host to a processor, besides the work on a batch.

use std::collections::HashMap;

use tokio::time::Instant;

use super::BatchProcessor;
use crate::clock::Clock;
use crate::gate::{Held, Scope, Standstill};
use crate::handler::Handler;
use crate::message::Body;
use crate::observer::Observers;
use crate::queue::{Queue, QueueArn};
use crate::report::Report;
use crate::settings::Mode;

impl<H, Q, T> BatchProcessor<H, Q, T>
where
    H: Handler<T>,
    Q: Queue,
    T: Body,
{
    pub(crate) fn clock(&self) -> &Clock {
        &self.inner.settler.clock
    }

    /// Runs `say` once for all batches.
    pub(crate) fn once(&self, say: impl FnOnce()) {
        self.inner.said.call_once(say);
    }

    /// Tells the observers of a settled batch. At `until` the messages end, since a response that is
    /// late because of its log is useless.
    pub(crate) fn observe(&self, report: &Report, until: Instant) {
        self.inner.observers.tell_settled(report, self.clock().now(), || Instant::now() < until);
    }

    pub(crate) fn observers(&self) -> &Observers {
        &self.inner.observers
    }

    /// The standstill of a queue, if most of its messages could now only be deferred. A host need
    /// not receive them.
    pub(crate) fn standstill(&self, queue: &QueueArn) -> Option<Standstill> {
        match self.inner.mode {
            Mode::Requeue => {
                self.inner.policies.of(Some(queue)).protection.standstill(self.clock().now())
            }
            Mode::Report => None,
        }
    }

    /// The pauses and open circuits of a queue: those of this processor, and those of all execution
    /// environments as last seen. Of a scope with both, the longer one.
    pub(crate) fn holds(&self, queue: &QueueArn) -> Vec<(Scope, Held)> {
        if self.inner.mode == Mode::Report {
            return Vec::new();
        }
        let policy = self.inner.policies.of(Some(queue));
        let own = policy.protection.holds(self.clock().now());
        let shared = policy.holds.iter().flat_map(|holds| holds.all());
        let mut longest: HashMap<Scope, Held> = HashMap::new();
        for (scope, held) in own.into_iter().chain(shared) {
            let known = longest.entry(scope).or_insert(held);
            if held.rest > known.rest {
                *known = held;
            }
        }
        longest.into_iter().collect()
    }
}
