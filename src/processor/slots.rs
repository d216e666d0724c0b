//! The wait of an attempt for its slot of the rate limit.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, sleep_until, timeout_at};

use super::attempt::Attempts;
use super::deadlines::Turn;
use super::executor::Slot;
use super::handled::{Call, Handled, Refused};
use super::inner::Inner;
use super::policies::{QueuePolicy, Slots};
use crate::delivery::Delivery;
use crate::disposition::{Deferral, Disposition, Strategy};
use crate::fleet::{Admitted, Request, Ticket};
use crate::gate::expires;
use crate::handler::Handler;
use crate::limit::{Admission, Ask, Place};
use crate::message::{Body, Message};
use crate::policy::{self, RateLimit, RetryPolicy};
use crate::queue::Queue;

/// A message that waits in its place asks again after so long, if the store did not decide.
const ASK_AGAIN: Duration = Duration::from_secs(1);

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
        call: &Call<'_, Self>,
        limit: &RateLimit,
        mut may_be_held: bool,
        ticket: &mut Option<Ticket>,
    ) -> Result<Option<Turn>, Handled> {
        let Call { delivery, turn, slot, scope, .. } = *call;
        let QueuePolicy { slots, pacer, holds, .. } = self.processor.inner.policy(delivery);
        let mut later = None;
        let until = Instant::now() + self.half();
        loop {
            let admitted = match slots {
                Slots::Own(limiter) => {
                    let (ask, longest) = self.ask(limit, delivery);
                    let now = (self.now(), Instant::now());
                    Admitted::By(limiter.admit(scope, limit, ask, longest, now))
                }
                Slots::Shared(shared) => {
                    // The handler's time begins after the answer.
                    later = Some(slot.wait(shared.patience()));
                    let (ask, longest) = self.ask(limit, delivery);
                    let request = Request { ask, longest, sample: turn.sample, may_be_held };
                    let admitted = shared.admit(scope, limit, request, slot.about_to_begin());
                    self.admit(admitted, delivery).await?
                }
            };
            let answered = Instant::now();
            if let Admitted::By(Admission::Slot(wait)) = admitted {
                self.keep_lease(ticket, call, answered + wait).await?;
            }
            let (wait, is_slot) = match admitted {
                Admitted::By(Admission::Slot(wait))
                    if wait.is_zero() && pacer.backlog(scope, limit) <= limit.tolerance() =>
                {
                    return Ok(later.map(|_| slot.wait(wait)));
                }
                Admitted::By(Admission::Slot(wait)) => (wait, true),
                Admitted::Held if let Some(holds) = holds => {
                    *ticket = Some(self.ask_holds(holds, call).await?);
                    may_be_held = false;
                    continue;
                }
                // Another receive would count as a retry, so it asks again.
                Admitted::PutOff { .. }
                    if delivery.strategy == Strategy::Visibility
                        && Instant::now() + ASK_AGAIN < until =>
                {
                    (ASK_AGAIN, false)
                }
                // The next receive may move it to the dead-letter queue without a call.
                Admitted::PutOff { .. }
                    if delivery.strategy == Strategy::Visibility && delivery.receive_count > 1 =>
                {
                    return Ok(later.map(|_| slot.wait(Duration::ZERO)));
                }
                refused => return Err(Handled::Limited(refused)),
            };
            let turn = slot.wait(wait.saturating_sub(answered.elapsed()));
            later = Some(turn);
            tokio::select! {
                biased;
                () = self.deadlines.stop.starting.cancelled() => return Err(Handled::Stopped),
                () = sleep_until(turn.began) => {}
            }
            if self.processor.inner.settler.has_lapsed(delivery) || self.has_expired(delivery) {
                return Err(Handled::NotStarted);
            }
            // After a freeze, all slots that passed meanwhile would be used at once.
            let late = turn.began.elapsed() + pacer.backlog(scope, limit);
            if is_slot && late <= limit.tolerance() {
                return Ok(later);
            }
        }
    }

    /// Waits for the answer about a slot that all execution environments share.
    async fn admit(
        &self,
        admitted: impl Future<Output = Admitted>,
        delivery: &Delivery,
    ) -> Result<Admitted, Handled> {
        tokio::select! {
            biased;
            () = self.deadlines.stop.starting.cancelled() => Err(Handled::Stopped),
            admitted = timeout_at(self.deadlines.cutoff, admitted) => match admitted {
                Ok(_)
                    if self.processor.inner.settler.has_lapsed(delivery)
                        || self.has_expired(delivery) =>
                {
                    Err(Handled::NotStarted)
                }
                Ok(admitted) => Ok(admitted),
                Err(_) => Err(Handled::NotStarted),
            },
        }
    }

    /// Whether a message expired while it waited for an answer. Its next receive gives it up.
    pub(super) fn has_expired(&self, delivery: &Delivery) -> bool {
        let QueuePolicy { policy, .. } = self.processor.inner.policy(delivery);
        expires(policy, delivery).is_some_and(|end| self.now() > end)
    }

    /// The longest wait for a slot. The other half of the time is for the handler.
    fn half(&self) -> Duration {
        self.deadlines.cutoff.saturating_duration_since(Instant::now()) / 2
    }

    /// The request of a message to the rate limit, and how long it can wait for its slot. A message
    /// that waits in its place in the queue cannot carry a place in the line, and each further
    /// receive counts as a retry. So it waits here for longer.
    fn ask(&self, limit: &RateLimit, delivery: &Delivery) -> (Ask, Duration) {
        let now = self.now();
        let half = self.half();
        let state = &delivery.state;
        let (ask, longest) = match (delivery.strategy, state.place) {
            (Strategy::Visibility, _) if delivery.receive_count > 1 => (Ask::Returned, half),
            (Strategy::Visibility, _) => (Ask::Newcomer, half),
            (Strategy::Copy, Some(place)) => {
                (Ask::Waited(Place::from_time(place)), limit.max_slot_wait)
            }
            (Strategy::Copy, None) if state.was_called() => (Ask::Retry, limit.max_slot_wait),
            (Strategy::Copy, None) => (Ask::Newcomer, limit.max_slot_wait),
        };
        // It must not expire meanwhile.
        let QueuePolicy { policy, .. } = self.processor.inner.policy(delivery);
        let lives = expires(policy, delivery)
            .map_or(half, |end| end.duration_since(now).unwrap_or_default());
        (ask, longest.min(half).min(lives))
    }

    /// The policy with the limit that the handler gives the scope of a message which says that it
    /// waits in line. The handler is asked only if the policy has none.
    pub(super) fn with_own_limit(
        &self,
        delivery: &Arc<Delivery>,
        turn: &Turn,
    ) -> Option<RetryPolicy> {
        let Inner { handler, .. } = &*self.processor.inner;
        let QueuePolicy { policy, .. } = self.processor.inner.policy(delivery);
        delivery.state.place.filter(|_| policy.limit.is_none())?;
        let max_retries = policy::max_retries(policy, &delivery.usage());
        let message = Message::new(delivery, max_retries, turn.limit, turn.sample).ok()?;
        let limit = AssertUnwindSafe(|| handler.rate_limit(handler.scope(&message)));
        // The call will panic too, and its message fails then.
        let limit = Some(catch_unwind(limit).map_err(mem::forget).ok()??);
        Some(RetryPolicy { limit, ..policy.clone() })
    }

    /// Whether a message joins the line, if there is one.
    pub(super) fn is_newcomer(&self, limit: &RateLimit, delivery: &Delivery) -> bool {
        self.ask(limit, delivery).0 == Ask::Newcomer
    }

    /// Lets the rate limit adapt to a refused call. It ends in time for the settling of the message.
    pub(super) async fn tell_refused(
        &self,
        refused: &Refused,
        delivery: &Delivery,
        slot: &Slot<Self>,
    ) {
        let Refused { scope, limit, asked } = refused;
        match &self.processor.inner.policy(delivery).slots {
            Slots::Own(limiter) => {
                limiter.refused(*scope, limit, *asked, (self.now(), Instant::now()));
            }
            Slots::Shared(shared) => {
                // Settling has the rest of the reserve.
                let latest = self.deadlines.cutoff + self.deadlines.grace;
                let until = (Instant::now() + shared.patience()).min(latest);
                slot.extend(until + self.deadlines.grace / 4);
                let _ = timeout_at(until, shared.refused(*scope, limit, *asked)).await;
            }
        }
    }

    /// The disposition of a message that the rate limit did not let through.
    pub(super) fn limited(
        &self,
        delivery: &Delivery,
        admitted: Admitted,
        now: SystemTime,
        sample: f64,
    ) -> Disposition {
        let QueuePolicy { policy, .. } = self.processor.inner.policy(delivery);
        match admitted {
            Admitted::By(Admission::InLine(_, due)) => {
                policy::in_line(Deferral::RateLimited, due, now)
            }
            Admitted::By(Admission::LineFull) => policy::line_full(now),
            Admitted::By(Admission::Full | Admission::Slot(_)) | Admitted::Held => {
                policy::defer(policy, Deferral::RateLimited, delivery.deferrals(), now, sample)
            }
            Admitted::PutOff { why, times } => policy::put_off(why, times, now, sample),
        }
    }
}
