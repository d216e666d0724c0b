//! The pause and the circuit that all execution environments share, as an attempt meets them.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::attempt::Attempts;
use super::handled::{Call, Handled};
use super::policies::{QueuePolicy, Slots};
use crate::delivery::Delivery;
use crate::disposition::{Deferral, Strategy};
use crate::fleet::{Admitted, NoTicket, Request, SharedHolds, Ticket};
use crate::gate::{Caller, Held, Reply};
use crate::handler::Handler;
use crate::limit::{Admission, Ask, Place};
use crate::message::Body;
use crate::policy::{self};
use crate::queue::Queue;

/// The most messages of a batch.
const MAX_BATCH: usize = 10_000;

impl<H, Q, T> Attempts<H, Q, T>
where
    H: Handler<T>,
    Q: Queue,
    T: Body,
{
    /// The permission to call a service that all execution environments may hold.
    pub(super) async fn ticket(
        &self,
        holds: &SharedHolds,
        call: &Call<'_, Self>,
        may_be_held: bool,
    ) -> Result<Option<Ticket>, Handled> {
        let Call { delivery, scope, limit, .. } = *call;
        let looked = holds.look(scope, Caller::of(delivery), limit);
        // A newcomer does not probe if others wait in line, which the gate says.
        let asks_gate_first = limit.is_some_and(|limit| self.is_newcomer(limit, delivery));
        match looked {
            Err(held) if may_be_held && asks_gate_first && !held.rest.is_zero() => {
                Err(self.held(held, call).await)
            }
            looked if asks_gate_first || !may_be_held => Ok(looked.ok()),
            _ => self.ask_holds(holds, call).await.map(Some),
        }
    }

    /// Asks whether the downstream service is held for all execution environments.
    pub(super) async fn ask_holds(
        &self,
        holds: &SharedHolds,
        call: &Call<'_, Self>,
    ) -> Result<Ticket, Handled> {
        let Call { delivery, slot, scope, limit, .. } = *call;
        // The handler's time begins after the answer.
        slot.wait(holds.patience());
        let now = Instant::now();
        let wait = limit.map_or(Duration::ZERO, |limit| limit.max_slot_wait);
        let begins = now + holds.patience() + wait;
        let lasts = self.deadlines.limit(begins).saturating_duration_since(now);
        let asked = holds.admit(scope, Caller::of(delivery), limit, lasts);
        let admitted = match self.ask_store(asked).await? {
            Ok(ticket) if limit.is_none() && !ticket.is_probe() => {
                self.recover(ticket, call).await?
            }
            admitted => admitted,
        };
        match admitted {
            Ok(ticket) => Ok(ticket),
            Err(NoTicket::Held(held)) => Err(self.held(held, call).await),
            Err(NoTicket::Throttled) => {
                let why = Deferral::StoreThrottled;
                Err(Handled::Limited(Admitted::PutOff { why, times: 1 }))
            }
        }
    }

    /// Waits for a slot of a service that came back a moment ago.
    async fn recover(
        &self,
        ticket: Ticket,
        call: &Call<'_, Self>,
    ) -> Result<Result<Ticket, NoTicket>, Handled> {
        let Call { delivery, slot, scope, .. } = *call;
        let QueuePolicy { slots, .. } = self.processor.inner.policy(delivery);
        let Slots::Shared(shared) = slots else { return Ok(Ok(ticket)) };
        let Some(recovery) = shared.recovery(scope) else { return Ok(Ok(ticket)) };
        slot.wait(shared.patience() + recovery.limit.max_slot_wait);
        let (caller, others) = (Caller::of(delivery), slot.about_to_begin());
        let recovered = shared.recover(recovery, scope, caller, ticket, others);
        tokio::select! {
            biased;
            () = self.deadlines.stop.starting.cancelled() => Err(Handled::Stopped),
            recovered = timeout_at(self.deadlines.cutoff, recovered) => {
                recovered.map_err(|_| Handled::NotStarted)
            }
        }
    }

    /// Keeps the lease of a message that probes until the end of its call, which begins only at
    /// `begins`. If another message has the lease by then, this one asks again after its wait.
    pub(super) async fn keep_lease(
        &self,
        ticket: &mut Option<Ticket>,
        call: &Call<'_, Self>,
        begins: Instant,
    ) -> Result<(), Handled> {
        let Call { delivery, slot, .. } = *call;
        let QueuePolicy { holds, .. } = self.processor.inner.policy(delivery);
        let (Some(holds), Some(probe)) = (holds, ticket.as_mut()) else { return Ok(()) };
        let now = Instant::now();
        let lasts = self.deadlines.limit(begins).saturating_duration_since(now);
        slot.extend(now + holds.patience());
        let is_kept = self.ask_store(holds.keep_lease(probe, lasts)).await?;
        if self.processor.inner.settler.has_lapsed(delivery) || self.has_expired(delivery) {
            return Err(Handled::NotStarted);
        }
        if !is_kept {
            *ticket = None;
        }
        Ok(())
    }

    /// A message that finds a hold. If the limit has a line, it joins the line: after the hold the
    /// messages come in their order, as fast as the limit allows.
    pub(super) async fn held(&self, held: Held, call: &Call<'_, Self>) -> Handled {
        let Call { delivery, turn, scope, limit, .. } = *call;
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
        let until = now + held.rest;
        let (place, turn) = if let Some(place) = delivery.state.place.map(Place::from_time) {
            shared.held(scope, limit, place, until)
        } else {
            let request = Request {
                ask: Ask::Held(until),
                longest: Duration::ZERO,
                sample: turn.sample,
                may_be_held: true,
            };
            // The others of its batch are held in a moment too, and it is in no hurry.
            let admitted = shared.admit(scope, limit, request, MAX_BATCH);
            match timeout_at(self.deadlines.cutoff, admitted).await {
                Ok(Admitted::By(Admission::InLine(place, turn))) => (place, turn),
                _ => return Handled::Held(held),
            }
        };
        // It was called up, so it asks again after longer and longer.
        let is_over = turn <= now + Duration::from_secs(1);
        let due = if is_over { now + wait(held.rest) } else { turn };
        // Its age budget may end before.
        let left = wait(due.duration_since(now).unwrap_or_default());
        if delivery.state.was_called() && due > now + left {
            return Handled::Held(held);
        }
        Handled::HeldInLine(held.why, place, due)
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
