//! Step 8, report: the outcome of each message of a batch, in the order of its records.

use tokio::time::Instant;

use super::inner::Inner;
use super::policies::QueuePolicy;
use crate::disposition::Disposition;
use crate::failure::Failure;
use crate::plan::Decision;
use crate::policy;
use crate::queue::Queue;
use crate::report::{Outcome, Report};
use crate::settings::Mode;
use crate::settle::Settled;

impl<H, Q: Queue> Inner<H, Q> {
    pub(super) fn report(&self, mut settled: Vec<Settled>, started: Instant) -> Report {
        if self.mode == Mode::Requeue {
            settled
                .iter()
                .filter(|settled| settled.settlement.is_kept())
                .for_each(|kept| self.given_up.note(kept));
        }
        settled.sort_unstable_by_key(|settled| settled.decision.delivery.position);
        Report {
            outcomes: settled.into_iter().map(|settled| self.outcome(settled)).collect(),
            elapsed: started.elapsed(),
        }
    }

    fn outcome(&self, settled: Settled) -> Outcome {
        let Settled {
            decision: Decision { delivery, disposition, failure, elapsed, at, once, .. },
            settlement,
        } = settled;
        let QueuePolicy { policy, .. } = self.policy(&delivery);
        let retry = failure
            .as_ref()
            .filter(|_| matches!(disposition, Disposition::Requeue { .. }))
            .and_then(|failure| policy::next_retry(policy, &delivery.usage(), failure));
        let failure = failure.filter(|failure| !failure.is_postponed());
        Outcome {
            message_id: delivery.message_id.clone(),
            original_message_id: delivery.original_id().map(str::to_owned),
            queue: delivery.queue.clone(),
            retry_count: delivery.retries(),
            hops: delivery.state.hops,
            receive_count: delivery.receive_count,
            is_stuck: settlement.is_kept()
                && disposition.gives_up()
                && policy::is_stuck(policy, &delivery.usage()),
            class: failure.as_ref().map(Failure::class),
            reason: failure.map(|failure| failure.reason().to_owned()),
            disposition,
            retry,
            settlement,
            once,
            elapsed,
            age: at.duration_since(delivery.first_sent).unwrap_or_default(),
        }
    }
}
