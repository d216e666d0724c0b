//! The part of an attempt that counts it in the store, right before the call: a message that waits
//! in its place in the queue cannot note its attempts.

use tokio::time::{Instant, timeout_at};

use super::attempt::Attempts;
use super::deadlines::Turn;
use super::executor::Slot;
use super::handled::Handled;
use super::policies::QueuePolicy;
use crate::delivery::Delivery;
use crate::fleet::{AttemptCounts, Counted};
use crate::handler::Handler;
use crate::message::Body;
use crate::policy;
use crate::queue::Queue;
use crate::telemetry;

impl<H, Q, T> Attempts<H, Q, T>
where
    H: Handler<T>,
    Q: Queue,
    T: Body,
{
    /// Counts the attempt, if its message waits in its place and was received before. Returns the
    /// turn of the handler, which begins later. If the store does not answer, receives count.
    pub(super) async fn count(
        &self,
        counts: &AttemptCounts,
        delivery: &Delivery,
        slot: &Slot<Self>,
        attempt: &mut Option<Counted>,
    ) -> Result<Option<Turn>, Handled> {
        // SQS moves other messages by their receives, so those have to count.
        let planner = self.processor.inner.planner(delivery);
        if !(delivery.may_count_attempts() && planner.sends_dead_letter(delivery, self.now())) {
            return Ok(None);
        }
        let (Some(queue), Some(id)) = (&delivery.queue, &delivery.message_id) else {
            return Ok(None);
        };
        // Otherwise the attempt might be counted, and its handler not called.
        if Instant::now() + counts.patience() > self.deadlines.cutoff {
            return Err(Handled::NotStarted);
        }
        // The handler's time begins after the answer.
        slot.wait(counts.patience());
        let counted = self.ask_store(counts.begin(queue, id)).await?;
        if let Some(counted) = &counted {
            let by_receives = delivery.retries();
            delivery.note_counted(counted.earlier());
            if delivery.retries() != by_receives {
                telemetry::correct_count(delivery);
            }
        }
        let QueuePolicy { policy, .. } = self.processor.inner.policy(delivery);
        if policy::has_no_attempt_left(policy, &delivery.usage()) {
            return Err(Handled::Spent);
        }
        *attempt = counted;
        self.begin(delivery, slot).map(Some)
    }

    /// Takes back an attempt that was counted and not made.
    pub(super) async fn take_back(&self, attempt: Counted, slot: &Slot<Self>) {
        let Some(counts) = &self.processor.inner.counts else { return };
        // Settling has the rest of the reserve.
        let latest = self.deadlines.cutoff + self.deadlines.grace;
        let until = (Instant::now() + counts.patience()).min(latest);
        slot.extend(until + self.deadlines.grace / 4);
        let _ = timeout_at(until, counts.take_back(attempt)).await;
    }
}
