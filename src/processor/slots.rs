//! The wait of an attempt for its slot of the rate limit.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::attempt::{Attempts, Handled};
use super::deadlines::Turn;
use super::executor::Slot;
use super::policies::QueuePolicy;
use crate::delivery::Delivery;
use crate::disposition::Strategy;
use crate::gate::{Limiter, Scope, expires};
use crate::handler::Handler;
use crate::limit::{Admission, Ask, Place};
use crate::message::Body;
use crate::queue::Queue;

/// A call may come so much later than its slot, or by one interval if that is longer.
const LATEST: Duration = Duration::from_millis(100);

impl<H, Q, T> Attempts<H, Q, T>
where
    H: Handler<T>,
    Q: Queue,
    T: Body,
{
    /// Waits for a slot of the rate limit. Returns the turn of the handler if it begins later than
    /// expected.
    pub(super) async fn wait_for_slot(
        &self,
        limiter: &Limiter,
        scope: Scope,
        delivery: &Delivery,
        slot: &Slot<Self>,
    ) -> Result<Option<Turn>, Handled> {
        let mut later = None;
        loop {
            match self.admit(limiter, scope, delivery) {
                Admission::Slot(wait) if wait.is_zero() => return Ok(later),
                Admission::Slot(wait) => {
                    let turn = slot.wait(wait);
                    tokio::select! {
                        biased;
                        () = self.deadlines.stop.starting.cancelled() => {
                            return Err(Handled::Interrupted);
                        }
                        () = sleep_until(turn.began) => later = Some(turn),
                    }
                    if self.processor.inner.settler.has_lapsed(delivery) {
                        return Err(Handled::NotStarted);
                    }
                    // After a freeze, all slots that passed meanwhile would be used at once.
                    if turn.began.elapsed() <= LATEST.max(limiter.interval()) {
                        return Ok(later);
                    }
                }
                refused => return Err(Handled::Limited(refused)),
            }
        }
    }

    /// Asks the rate limit for a slot. A message that waits in its place in the queue cannot carry a
    /// place in the line, and each further receive counts as a retry. So it waits here for longer.
    fn admit(&self, limiter: &Limiter, scope: Scope, delivery: &Delivery) -> Admission {
        let now = self.now();
        // The other half is for the handler.
        let half = self.deadlines.cutoff.saturating_duration_since(Instant::now()) / 2;
        let state = &delivery.state;
        let (ask, longest) = match (delivery.strategy, state.place) {
            (Strategy::Visibility, _) if delivery.receive_count > 1 => (Ask::Returned, half),
            (Strategy::Visibility, _) => (Ask::Newcomer, half),
            (Strategy::Copy, Some(place)) => {
                (Ask::Waited(Place::from_time(place)), limiter.max_slot_wait())
            }
            (Strategy::Copy, None) if state.was_called() => (Ask::Retry, limiter.max_slot_wait()),
            (Strategy::Copy, None) => (Ask::Newcomer, limiter.max_slot_wait()),
        };
        // It must not expire meanwhile.
        let QueuePolicy { policy, .. } = self.processor.inner.policy(delivery);
        let lives = expires(policy, delivery)
            .map_or(half, |end| end.duration_since(now).unwrap_or_default());
        limiter.admit(scope, ask, longest.min(half).min(lives), now)
    }
}
