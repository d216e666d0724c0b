//! The wait of a message for its reservation of the rate limit.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::super::inner::{QueuePolicy, Slots};
use super::super::turn::Uncalled;
use super::gate::{Gate, tenant};
use super::{Call, Refused, Taken};
use crate::disposition::{Deferral, Strategy};
use crate::failure::Failure;
use crate::gate::{Permit, expires, is_refused};
use crate::limit::{Admission, Ask, Demand, KnownLimit, LimitState, StartTag, Tenant};
use crate::policy::{self, LimitPer, RateLimit};
use crate::shared_table::{Admitted, Request, Ticket};

/// If the table did not decide, a message with the strategy `visibility` asks again after this
/// time.
const ASK_AGAIN: Duration = Duration::from_secs(1);

impl Call<'_> {
    pub(super) fn total(&self) -> Option<Gate> {
        self.gates.last().copied().filter(Gate::is_total)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &Gate> {
        self.gates.iter().filter(|gate| !gate.is_total())
    }

    pub(in crate::processor) fn is_limited(&self) -> bool {
        !self.gates.is_empty()
    }

    /// Whether it asks the rate limits for itself. A shared call counts as one call, unless a limit
    /// counts its messages, or the units of each.
    pub(in crate::processor) fn reserves_alone(&self) -> bool {
        let counts_messages =
            |gate: &Gate| gate.limit.has_units || gate.limit.per == LimitPer::Message;
        !self.is_shared || self.gates.iter().any(counts_messages)
    }

    /// Waits for the reservation of each rate limit.
    pub(in crate::processor) async fn reserve(
        &self,
        permit: Permit,
        taken: &mut Taken,
    ) -> Result<Permit, Uncalled> {
        self.join_total().await?;
        let mut has_waited = false;
        loop {
            let mut first = None;
            for gate in &self.gates {
                has_waited |= self.wait_for_slot(*gate, &mut taken.ticket).await?;
                first.get_or_insert_with(Instant::now);
            }
            // After a freeze, all reservations of a key that passed would be used at once.
            if first.is_none_or(|first| first.elapsed() <= self.longest_after_key()) {
                break;
            }
        }
        if has_waited { self.renew(permit, taken).await } else { Ok(permit) }
    }

    /// How long a reservation of its first key may wait for the other limits.
    fn longest_after_key(&self) -> Duration {
        let Some(first) = self.keys().next().filter(|_| self.delivery.strategy == Strategy::Copy)
        else {
            return Duration::MAX;
        };
        let others: Duration = self.gates[1..].iter().map(|gate| gate.limit.max_reservation).sum();
        others + first.limit.tolerance()
    }

    /// If a message would join the waiting list of the limit of all messages, it does so before it
    /// asks for reservations of its keys. Those would be lost.
    async fn join_total(&self) -> Result<(), Uncalled> {
        let may_join = self.gates.len() > 1 && self.delivery.strategy == Strategy::Copy;
        let Some(gate) = self.total().filter(|_| may_join) else { return Ok(()) };
        let Gate { scope, limit, .. } = gate;
        let demand = self.demand(&gate, None);
        let now = (self.attempts.now(), Instant::now());
        let waits = match &self.policy.slots {
            Slots::Own(limiter) => limiter.with(scope, now, |state| {
                state.would_wait(&KnownLimit::own(&limit), demand, now.0)
            }),
            Slots::Shared(shared) => shared.would_wait(scope, &limit, demand),
        };
        if matches!(demand.ask, Ask::Waited(_)) || !waits {
            return Ok(());
        }
        match self.ask_for_slot(&gate, Some(Ask::Joins(now.0)), self.may_be_deferred).await? {
            admitted @ Admitted::By(Admission::InLine(..) | Admission::LineFull) => {
                Err(self.limited(&gate, admitted))
            }
            _ => Ok(()),
        }
    }

    /// Waits for a reservation of the rate limit. Returns whether it had to wait.
    async fn wait_for_slot(
        &self,
        gate: Gate,
        ticket: &mut Option<Ticket>,
    ) -> Result<bool, Uncalled> {
        let delivery = self.delivery;
        let Gate { scope, .. } = gate;
        let QueuePolicy { pacer, slots, pauses, .. } = self.policy;
        let is_probe = ticket.as_ref().is_some_and(Ticket::is_probe);
        // The pause is in the item of the whole scope.
        let may_be_held = gate.is_total() && pauses.is_some() && !is_probe;
        let mut may_be_deferred = self.may_be_deferred && may_be_held;
        let mut has_waited = matches!(slots, Slots::Shared(_));
        let until = Instant::now() + self.half();
        loop {
            let admitted = self.ask_for_slot(&gate, None, may_be_deferred).await?;
            let answered = Instant::now();
            let (wait, is_slot) = match admitted {
                Admitted::By(Admission::Slot(wait)) => {
                    self.keep_lock(ticket, answered + wait).await?;
                    let limit = self.in_effect(&gate);
                    if wait.is_zero() && pacer.backlog(scope, &limit) <= limit.tolerance() {
                        return Ok(has_waited);
                    }
                    (wait, true)
                }
                Admitted::By(Admission::Paused { rest, asks_again }) => {
                    return Err(Box::pin(self.paused_by_operator(&gate, rest, asks_again)).await);
                }
                Admitted::Paused if let Some(pauses) = pauses => {
                    *ticket = Some(self.ask_pauses(pauses).await?);
                    may_be_deferred = false;
                    continue;
                }
                // Another receive would count as a retry, so it asks again.
                Admitted::Deferred { .. }
                    if delivery.strategy == Strategy::Visibility
                        && Instant::now() + ASK_AGAIN < until =>
                {
                    (ASK_AGAIN, false)
                }
                // The next receive may move it to the dead-letter queue without a call.
                Admitted::Deferred { .. }
                    if delivery.strategy == Strategy::Visibility && delivery.receive_count > 1 =>
                {
                    return Ok(has_waited);
                }
                refused => return Err(self.limited(&gate, refused)),
            };
            has_waited = true;
            let turn = self.slot.wait(wait.saturating_sub(answered.elapsed()));
            self.unless_stopped(sleep_until(turn.began)).await?;
            self.check()?;
            // After a freeze, all reservations that passed meanwhile would be used at once.
            let limit = self.in_effect(&gate);
            let late = turn.began.elapsed() + pacer.backlog(scope, &limit);
            if is_slot && late <= limit.tolerance() {
                return Ok(true);
            }
        }
    }

    async fn ask_for_slot(
        &self,
        gate: &Gate,
        asked: Option<Ask>,
        may_be_deferred: bool,
    ) -> Result<Admitted, Uncalled> {
        match &self.policy.slots {
            Slots::Own(limiter) => {
                let now = (self.attempts.now(), Instant::now());
                let demand = self.demand(gate, asked);
                let admit = |state: &mut LimitState| state.admit(&gate.limit, demand, now.0);
                Ok(Admitted::By(limiter.with(gate.scope, now, admit)))
            }
            Slots::Shared(shared) => {
                // The handler's time begins after the response.
                self.slot.wait(shared.reservation_timeout());
                let (demand, sample) = (self.demand(gate, asked), self.turn.sample);
                let request = Request { demand, sample, may_be_deferred };
                let asked = shared.take_slot(gate.scope, &gate.limit, request, self.others());
                let admitted = self.unless_stopped(asked).await?;
                self.check()?;
                Ok(admitted)
            }
        }
    }

    pub(super) fn demand(&self, gate: &Gate, asked: Option<Ask>) -> Demand {
        let QueuePolicy { policy, weights, .. } = self.policy;
        let (ask, longest) = self.ask(gate);
        let tenant = if gate.is_total() {
            let shares = policy.fair_shares.as_ref();
            shares.map(|shares| tenant(&shares.by, weights, self.delivery))
        } else {
            // Each value is a tenant, so it shares the handlers with the others.
            Some(Tenant::ALL)
        };
        Demand { ask: asked.unwrap_or(ask), tenant, units: gate.units, longest }
    }

    /// The other calls that are about to begin.
    pub(super) fn others(&self) -> usize {
        if self.reserves_alone() { self.slot.about_to_begin() } else { 0 }
    }

    /// The longest wait for a reservation. The other half of the time is for the handler.
    fn half(&self) -> Duration {
        self.attempts.deadlines.cutoff.saturating_duration_since(Instant::now()) / 2
    }

    /// The request of a message to a rate limit, and the longest wait for its reservation. With
    /// `visibility` that is longer, since the message carries no start tag and each receive counts.
    fn ask(&self, gate: &Gate) -> (Ask, Duration) {
        let Self { attempts, delivery, .. } = self;
        let half = self.half();
        let longest = gate.limit.max_reservation;
        // The messages of one value leave handlers to others, even before it has a waiting list.
        let first = if gate.is_total() { longest } else { longest / 2 };
        let (ask, longest) = match (delivery.strategy, self.start_tag()) {
            (Strategy::Visibility, _) if delivery.receive_count > 1 => (Ask::Returned, half),
            (Strategy::Visibility, _) => (Ask::Newcomer, half),
            (Strategy::Copy, Some((number, tag))) if number == gate.number => {
                (Ask::Waited(tag), longest)
            }
            // It waited for a later limit.
            (Strategy::Copy, Some((number, _)))
                if !gate.is_total() && (number == 0 || number > gate.number) =>
            {
                (Ask::Returned, longest)
            }
            (Strategy::Copy, _) if delivery.state.was_called() => (Ask::Retry, first),
            (Strategy::Copy, _) => (Ask::Newcomer, first),
        };
        // It must not expire meanwhile.
        let lives = expires(&self.policy.policy, delivery)
            .map_or(half, |end| end.duration_since(attempts.now()).unwrap_or_default());
        (ask, longest.min(half).min(lives))
    }

    /// The number of the limit in whose waiting list the message was, and its start tag there.
    fn start_tag(&self) -> Option<(usize, StartTag)> {
        let tag = self.delivery.state.start_tag.map(|tag| StartTag(tag).split());
        tag.filter(|(number, _)| *number <= self.keys().count())
    }

    /// The limit in whose waiting list the message was, and its start tag there.
    pub(super) fn line(&self) -> Option<(Gate, StartTag)> {
        let (number, tag) = self.start_tag()?;
        Some((*self.gates.iter().find(|gate| gate.number == number)?, tag))
    }

    /// Whether the message joins the waiting list of all messages, if there is one.
    pub(super) fn is_newcomer(&self) -> bool {
        self.total().is_some_and(|total| self.ask(&total).0 == Ask::Newcomer)
    }

    fn in_effect(&self, gate: &Gate) -> RateLimit {
        match &self.policy.slots {
            Slots::Own(_) => gate.limit,
            Slots::Shared(shared) => shared.in_effect(gate.scope, &gate.limit),
        }
    }

    /// Waits until the call may be made. It must be made at once then. Returns whether it had to
    /// wait.
    pub(in crate::processor) async fn pace(&self) -> Result<bool, Uncalled> {
        let QueuePolicy { pacer, .. } = self.policy;
        let mut has_waited = false;
        for gate in &self.gates {
            let Gate { scope, units, kept, .. } = *gate;
            let mut limit = self.in_effect(gate);
            limit.burst = limit.burst.saturating_add(kept);
            let gate = pacer.gate(scope);
            if !gate.lets_through(&limit, units) {
                self.slot.wait(pacer.backlog(scope, &limit));
                self.unless_stopped(gate.passed(&limit, units)).await?;
                self.check()?;
                has_waited = true;
            }
        }
        Ok(has_waited)
    }

    /// The refusal by which a failure lowers an adaptive limit.
    pub(in crate::processor) fn refused(&self, failure: &Failure) -> Option<Refused> {
        let total = self.total().filter(|gate| gate.limit.adaptive && is_refused(failure))?;
        Some(Refused { scope: self.scope, limit: total.limit, asked: self.turn.at })
    }

    fn limited(&self, gate: &Gate, admitted: Admitted) -> Uncalled {
        let now = self.attempts.now();
        match admitted {
            Admitted::By(Admission::InLine(tag, due)) => {
                let disposition = policy::in_line(Deferral::RateLimited, due, now);
                Uncalled { disposition, start_tag: Some(gate.carried(tag)) }
            }
            Admitted::By(Admission::LineFull) => policy::line_full(now).into(),
            Admitted::By(Admission::Full | Admission::Slot(_) | Admission::Paused { .. })
            | Admitted::Paused => self.deferred(Deferral::RateLimited),
            Admitted::Deferred { why, times } => self.defer_for_table(why, times),
        }
    }
}
