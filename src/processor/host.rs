//! The questions of a host to a processor, besides the work on a batch.

use tokio::time::Instant;

use super::BatchProcessor;
use crate::clock::Clock;
use crate::gate::Standstill;
use crate::handler::Handler;
use crate::message::Body;
use crate::queue::{Queue, QueueArn};
use crate::report::Report;
use crate::settings::Mode;
use crate::telemetry;

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

    /// Reports the outcomes of a batch, in log and metrics, and ends at `until` at the latest.
    pub(crate) fn observe(&self, report: &Report, until: Instant) {
        telemetry::observe(report, self.inner.metrics.as_ref(), self.clock().now(), until);
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
}
