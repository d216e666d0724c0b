//! The part of an attempt that passes the last gate before its call.

use tokio::time::timeout_at;

use super::attempt::Attempts;
use super::deadlines::Turn;
use super::handled::{Call, Handled};
use super::policies::{QueuePolicy, Slots};
use crate::handler::Handler;
use crate::message::Body;
use crate::policy::RateLimit;
use crate::queue::Queue;

impl<H, Q, T> Attempts<H, Q, T>
where
    H: Handler<T>,
    Q: Queue,
    T: Body,
{
    /// Waits until the call may be made, and it must be made at once then. Returns the turn of the
    /// handler if it begins later than expected.
    pub(super) async fn pace(
        &self,
        call: &Call<'_, Self>,
        limit: &RateLimit,
    ) -> Result<Option<Turn>, Handled> {
        let Call { delivery, slot, scope, .. } = *call;
        let QueuePolicy { pacer, slots, .. } = self.processor.inner.policy(delivery);
        let limit = &match slots {
            Slots::Own(_) => *limit,
            Slots::Shared(shared) => shared.in_effect(scope, limit),
        };
        let gate = pacer.gate(scope);
        if gate.lets_through(limit) {
            return Ok(None);
        }
        // The handler's time begins afterwards.
        slot.wait(pacer.backlog(scope, limit));
        tokio::select! {
            biased;
            () = self.deadlines.stop.starting.cancelled() => return Err(Handled::Stopped),
            passed = timeout_at(self.deadlines.cutoff, gate.passed(limit)) => {
                passed.map_err(|_| Handled::NotStarted)?;
            }
        }
        self.begin(delivery, slot).map(Some)
    }
}
