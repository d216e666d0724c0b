//! A message and the pauses and circuits that all execution environments share.

use std::time::{Duration, SystemTime};

use tokio::time::{Instant, sleep_until, timeout_at};

use super::super::inner::{QueuePolicy, Slots};
use super::super::turn::Uncalled;
use super::gate::Gate;
use super::{Call, Taken};
use crate::disposition::{Deferral, Strategy};
use crate::gate::{Limiter, NotPermitted, Permit, Recovery};
use crate::limit::{Admission, Ask, Demand, StartTag};
use crate::policy;
use crate::queue::MAX_MAPPING_BATCH;
use crate::settings::Mode;
use crate::shared_table::{Admitted, NoTicket, Request, SharedPauses, Ticket};

/// The longest wait with the visibility timeout, since an operator may end the pause at any time.
const LONGEST_BY_VISIBILITY: Duration = Duration::from_mins(15);

impl Call<'_> {
    /// The permission to call a service that all execution environments may have paused.
    pub(super) async fn ticket(&self, pauses: &SharedPauses) -> Result<Option<Ticket>, Uncalled> {
        let looked = pauses.look(self.scope, self.caller);
        // A new message does not probe if others wait for the rate limit, which its gate knows.
        let asks_gate_first = self.is_newcomer();
        match looked {
            Err(refused) if self.may_be_deferred && asks_gate_first && !refused.rest.is_zero() => {
                Err(self.paused(refused).await)
            }
            looked if asks_gate_first || !self.may_be_deferred => Ok(looked.ok()),
            _ => self.ask_pauses(pauses).await.map(Some),
        }
    }

    /// Asks whether the downstream service is paused for all execution environments.
    pub(super) async fn ask_pauses(&self, pauses: &SharedPauses) -> Result<Ticket, Uncalled> {
        let Self { attempts, slot, scope, caller, .. } = *self;
        let limit = self.total().map(|gate| gate.limit);
        // The handler's time begins after the response.
        slot.wait(pauses.timeout());
        let now = Instant::now();
        let wait = limit.map_or(Duration::ZERO, |limit| limit.max_reservation);
        let begins = now + pauses.timeout() + wait;
        let lasts = attempts.deadlines.limit(begins).saturating_duration_since(now);
        let asked = pauses.admit(scope, caller, limit.is_some(), lasts);
        let admitted = match self.ask_table(asked).await? {
            Ok(ticket) if limit.is_none() && !ticket.is_probe() => self.recover(ticket).await?,
            admitted => admitted,
        };
        match admitted {
            Ok(ticket) => Ok(ticket),
            Err(NoTicket::Paused(refused)) => Err(self.paused(refused).await),
            Err(NoTicket::Throttled) => Err(self.defer_for_table(Deferral::TableThrottled, 1)),
        }
    }

    /// The same for a service that works again since a moment ago, in this environment alone.
    pub(super) async fn recover_alone(
        &self,
        limiter: &Limiter,
        recovery: Recovery,
    ) -> Result<Permit, Uncalled> {
        let Self { attempts, slot, scope, .. } = *self;
        let at = (attempts.now(), Instant::now());
        let Recovery { limit, .. } = recovery;
        let admitted =
            limiter.with(scope, at, |state| state.admit(&limit, recovery.demand(), at.0));
        let Admission::Slot(wait) = admitted else {
            return Err(self.paused(recovery.refusal()).await);
        };
        let turn = slot.wait(wait);
        self.unless_stopped(sleep_until(turn.began)).await?;
        self.check()?;
        // The circuit may have opened again meanwhile.
        self.own_permit(attempts.now()).await
    }

    /// Waits for a reservation with a service that works again since a moment ago.
    async fn recover(&self, ticket: Ticket) -> Result<Result<Ticket, NoTicket>, Uncalled> {
        let Self { slot, scope, caller, .. } = *self;
        let Slots::Shared(shared) = &self.policy.slots else { return Ok(Ok(ticket)) };
        let Some(recovery) = shared.recovery(scope) else { return Ok(Ok(ticket)) };
        slot.wait(shared.reservation_timeout() + recovery.limit.max_reservation);
        let others = self.others();
        self.unless_stopped(shared.recover(recovery, scope, caller, ticket, others)).await
    }

    /// The permission to call after a wait, during which a pause may have begun.
    pub(super) async fn renew(
        &self,
        permit: Permit,
        taken: &mut Taken,
    ) -> Result<Permit, Uncalled> {
        if !self.may_be_deferred {
            return Ok(permit);
        }
        if let Some(pauses) = &self.policy.pauses
            && !taken.is_probe()
        {
            taken.ticket = Some(self.ask_pauses(pauses).await?);
        }
        self.own_permit_after(permit).await
    }

    /// The same, as far as this environment knows, for a call that must be made at once. It may have
    /// waited for a call of many units.
    pub(super) async fn renew_as_known(
        &self,
        permit: Permit,
        taken: &Taken,
    ) -> Result<Permit, Uncalled> {
        if !self.may_be_deferred {
            return Ok(permit);
        }
        if let Some(pauses) = &self.policy.pauses
            && !taken.is_probe()
            && let Err(refused) = pauses.look(self.scope, self.caller)
        {
            return Err(self.paused(refused).await);
        }
        self.own_permit_after(permit).await
    }

    /// A probe of this environment goes on.
    async fn own_permit_after(&self, permit: Permit) -> Result<Permit, Uncalled> {
        if permit.is_probe() { Ok(permit) } else { self.own_permit(self.attempts.now()).await }
    }

    /// The same for a call that waited for others since `joined`.
    pub(in crate::processor) async fn renew_since(
        &self,
        joined: Instant,
        permit: Permit,
        taken: &mut Taken,
    ) -> Result<Permit, Uncalled> {
        if joined.elapsed().is_zero() || self.attempts.inner.mode == Mode::Report {
            return Ok(permit);
        }
        self.keep_lock(&mut taken.ticket, Instant::now()).await?;
        self.renew(permit, taken).await
    }

    /// Keeps the lock of a message that probes until the end of its call, which begins at `begins`.
    /// If another message has the lock by then, this one asks again after its wait.
    pub(super) async fn keep_lock(
        &self,
        ticket: &mut Option<Ticket>,
        begins: Instant,
    ) -> Result<(), Uncalled> {
        let (Some(pauses), Some(probe)) = (&self.policy.pauses, ticket.as_mut()) else {
            return Ok(());
        };
        let now = Instant::now();
        let lasts = self.attempts.deadlines.limit(begins).saturating_duration_since(now);
        self.slot.extend(now + pauses.timeout());
        let is_kept = self.ask_table(pauses.keep_lock(probe, lasts)).await?;
        self.check()?;
        if !is_kept {
            *ticket = None;
        }
        Ok(())
    }

    /// Defers a message because of a pause. If the limit has a waiting list, the message joins it,
    /// so that after the pause messages keep their order, at the rate of the limit.
    pub(super) async fn paused(&self, paused: NotPermitted) -> Uncalled {
        let Self { attempts, delivery, turn, .. } = *self;
        let QueuePolicy { policy, .. } = self.policy;
        let deferred = |rest, now, sample| {
            let usage = delivery.usage();
            policy::pause(policy, &usage, paused.why, rest, usage.deferrals(), now, sample)
        };
        let alone = || Uncalled::from(deferred(paused.rest, attempts.now(), turn.sample));
        let Some(total) = self.total() else { return alone() };
        let now = attempts.now();
        let wait = |rest| deferred(rest, now, 0.0).wait().map_or(rest, |wait| wait.total());
        let until = now + paused.rest;
        let Some((tag, at)) = self.in_line_until(until, &total, self.line()).await else {
            return alone();
        };
        // It was called before, so its waits become longer and longer.
        let is_over = at <= now + Duration::from_secs(1);
        let due = if is_over { now + wait(paused.rest) } else { at };
        // Its total timeout may end before.
        let left = wait(due.duration_since(now).unwrap_or_default());
        if delivery.state.was_called() && due > now + left {
            return alone();
        }
        let disposition = policy::in_line(paused.why, due, attempts.now());
        Uncalled { disposition, start_tag: Some(tag) }
    }

    /// Defers a message because an operator has paused its limit. It waits for the end of the
    /// pause, whatever its age: in the waiting list of that limit, or with its visibility timeout.
    pub(super) async fn paused_by_operator(
        &self,
        gate: &Gate,
        rest: Duration,
        asks_again: Duration,
    ) -> Uncalled {
        let now = self.attempts.now();
        let line = self.line().filter(|(own, _)| own.number == gate.number);
        let waits = self.in_line_until(now + asks_again, gate, line).await;
        let due = match (waits, self.delivery.strategy) {
            (Some((_, at)), _) => at,
            (None, Strategy::Copy) => now + asks_again,
            // Each time that it asks uses a receive.
            (None, Strategy::Visibility) => now + rest.min(LONGEST_BY_VISIBILITY),
        };
        let disposition = policy::in_line(Deferral::Paused, due, now);
        Uncalled { disposition, start_tag: waits.map(|(tag, _)| tag) }
    }

    /// The start tag of a waiting message until its service is not paused any more, and when it
    /// returns. It joins the waiting list of `gate`, if it is not in that list already.
    async fn in_line_until(
        &self,
        until: SystemTime,
        gate: &Gate,
        line: Option<(Gate, StartTag)>,
    ) -> Option<(StartTag, SystemTime)> {
        let Slots::Shared(shared) = &self.policy.slots else { return None };
        if self.delivery.strategy != Strategy::Copy {
            return None;
        }
        if let Some((gate, tag)) = line {
            let at = shared.paused_in_line(gate.scope, &gate.limit, tag, until);
            return Some((gate.carried(tag), at));
        }
        let demand =
            Demand { longest: Duration::ZERO, ..self.demand(gate, Some(Ask::Joins(until))) };
        let request = Request { demand, sample: self.turn.sample, may_be_deferred: true };
        // The pause also defers the rest of its batch soon, and the message is not urgent.
        let admitted = shared.take_slot(gate.scope, &gate.limit, request, MAX_MAPPING_BATCH);
        match timeout_at(self.attempts.deadlines.cutoff, admitted).await {
            Ok(Admitted::By(Admission::InLine(tag, at))) => Some((gate.carried(tag), at)),
            _ => None,
        }
    }
}
