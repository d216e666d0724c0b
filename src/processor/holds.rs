//! The pause and the circuit that all execution environments share, as an attempt meets them.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::attempt::Attempts;
use super::deadlines::Turn;
use super::executor::Slot;
use super::handled::Handled;
use super::policies::{QueuePolicy, Slots};
use crate::delivery::Delivery;
use crate::disposition::{Deferral, Strategy};
use crate::fleet::{Admitted, NoTicket, SharedHolds, Ticket};
use crate::gate::{Caller, Held, Reply, Scope};
use crate::handler::Handler;
use crate::limit::{Admission, Ask};
use crate::message::Body;
use crate::policy::{self, RateLimit};
use crate::queue::Queue;

impl<H, Q, T> Attempts<H, Q, T>
where
    H: Handler<T>,
    Q: Queue,
    T: Body,
{
    /// Asks whether the downstream service is held for all execution environments.
    pub(super) async fn ask_holds(
        &self,
        holds: &SharedHolds,
        scope: Scope,
        limit: Option<&RateLimit>,
        delivery: &Delivery,
        turn: &Turn,
        slot: &Slot<Self>,
    ) -> Result<Ticket, Handled> {
        // The handler's time begins after the answer.
        slot.wait(holds.patience());
        let now = Instant::now();
        let wait = limit.map_or(Duration::ZERO, |limit| limit.max_slot_wait);
        let begins = now + holds.patience() + wait;
        let lasts = self.deadlines.limit(begins).saturating_duration_since(now);
        let (caller, QueuePolicy { slots, .. }) =
            (Caller::of(delivery), self.processor.inner.policy(delivery));
        let admitted = async {
            let ticket = holds.admit(scope, caller, limit, lasts).await?;
            if let Slots::Shared(shared) = slots
                && let Some(recovery) = shared.recovery(scope)
                && !ticket.is_probe()
                && limit.is_none()
            {
                slot.wait(shared.patience() + recovery.limit.max_slot_wait);
                let others = slot.about_to_begin();
                return shared.recover(recovery, scope, caller, ticket, others).await;
            }
            Ok(ticket)
        };
        let admitted = tokio::select! {
            biased;
            () = self.deadlines.stop.starting.cancelled() => return Err(Handled::Interrupted),
            admitted = timeout_at(self.deadlines.cutoff, admitted) => admitted,
        };
        match admitted {
            Ok(Ok(ticket)) => Ok(ticket),
            Ok(Err(NoTicket::Held(held))) => {
                Err(self.held(held, scope, limit, delivery, turn, slot).await)
            }
            Ok(Err(NoTicket::Throttled)) => {
                let why = Deferral::StoreThrottled;
                Err(Handled::Limited(Admitted::PutOff { why, times: 1 }))
            }
            Err(_) => Err(Handled::NotStarted),
        }
    }

    /// A message that finds a hold. If the limit has a line, it joins the line: after the hold the
    /// messages come in their order, as fast as the limit allows.
    pub(super) async fn held(
        &self,
        held: Held,
        scope: Scope,
        limit: Option<&RateLimit>,
        delivery: &Delivery,
        turn: &Turn,
        slot: &Slot<Self>,
    ) -> Handled {
        let QueuePolicy { policy, slots, .. } = self.processor.inner.policy(delivery);
        let (Slots::Shared(shared), Some(limit), Strategy::Copy) =
            (slots, limit, delivery.strategy)
        else {
            return Handled::Held(held);
        };
        let now = self.now();
        let (usage, deferrals) = (delivery.usage(), delivery.deferrals());
        let wait = |rest| {
            policy::hold(policy, &usage, held.why, rest, deferrals, now, 0.0)
                .wait()
                .map_or(rest, |wait| wait.total())
        };
        let ask = Ask::Held(now + wait(held.rest));
        let admitted =
            shared.admit(scope, limit, ask, Duration::ZERO, turn.sample, slot.about_to_begin());
        match timeout_at(self.deadlines.cutoff, admitted).await {
            // Its age budget may end before.
            Ok(Admitted::By(Admission::InLine(place, due)))
                if !delivery.state.was_called()
                    || due <= now + wait(due.duration_since(now).unwrap_or_default()) =>
            {
                Handled::HeldInLine(held.why, place, due)
            }
            _ => Handled::Held(held),
        }
    }

    /// Tells all execution environments the result of a call. It ends in time for the decision
    /// about the message, and a lease that was not given back ends by itself.
    pub(super) async fn tell_holds(&self, ticket: &Ticket, reply: Reply, delivery: &Delivery) {
        let QueuePolicy { holds, .. } = self.processor.inner.policy(delivery);
        let Some(holds) = holds else { return };
        let grace = self.deadlines.grace;
        let until = (Instant::now() + grace / 2).min(self.deadlines.cutoff + grace);
        let told = timeout_at(until, holds.tell(ticket, reply)).await;
        if let Some(change) = told.ok().flatten() {
            self.announce_change(change);
        }
    }
}
