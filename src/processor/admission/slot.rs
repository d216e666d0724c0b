//! The wait of a message for its slot of the rate limit.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::super::decide::Uncalled;
use super::super::inner::{QueuePolicy, Slots};
use super::tenant::tenant;
use super::{Call, Refused, Taken};
use crate::disposition::{Deferral, Strategy};
use crate::failure::Failure;
use crate::gate::{Permit, expires, is_refused};
use crate::limit::{Admission, Ask, StartTag, Tenant};
use crate::policy::{self, RateLimit};
use crate::shared_table::{Admitted, Request, Ticket};

/// A message that waits by its visibility asks again after so long, if the table did not decide.
const ASK_AGAIN: Duration = Duration::from_secs(1);

impl Call<'_> {
    /// Waits for the reservation of the rate limit.
    pub(in crate::processor) async fn reserve(
        &self,
        permit: Permit,
        taken: &mut Taken,
    ) -> Result<Permit, Uncalled> {
        let Some(limit) = self.limit else { return Ok(permit) };
        let has_waited = self.wait_for_slot(limit, &mut taken.ticket).await?;
        if has_waited { self.renew(permit, taken).await } else { Ok(permit) }
    }

    /// Waits for a slot of the rate limit. Returns whether that took time.
    pub(super) async fn wait_for_slot(
        &self,
        limit: &RateLimit,
        ticket: &mut Option<Ticket>,
    ) -> Result<bool, Uncalled> {
        let Self { scope, delivery, .. } = *self;
        let QueuePolicy { pacer, slots, pauses, .. } = self.policy;
        let is_probe = ticket.as_ref().is_some_and(Ticket::is_probe);
        let mut may_be_deferred = self.may_be_deferred && pauses.is_some() && !is_probe;
        let mut has_waited = matches!(slots, Slots::Shared(_));
        let until = Instant::now() + self.half();
        loop {
            let admitted = self.ask_limit(limit, may_be_deferred).await?;
            let answered = Instant::now();
            let (wait, is_slot) = match admitted {
                Admitted::By(Admission::Slot(wait)) => {
                    self.keep_lock(ticket, answered + wait).await?;
                    if wait.is_zero() && pacer.backlog(scope, limit) <= limit.tolerance() {
                        return Ok(has_waited);
                    }
                    (wait, true)
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
                refused => return Err(self.limited(refused)),
            };
            has_waited = true;
            let turn = self.slot.wait(wait.saturating_sub(answered.elapsed()));
            self.unless_stopped(sleep_until(turn.began)).await?;
            self.check()?;
            // After a freeze, all slots that passed meanwhile would be used at once.
            let late = turn.began.elapsed() + pacer.backlog(scope, limit);
            if is_slot && late <= limit.tolerance() {
                return Ok(true);
            }
        }
    }

    async fn ask_limit(
        &self,
        limit: &RateLimit,
        may_be_deferred: bool,
    ) -> Result<Admitted, Uncalled> {
        let Self { attempts, slot, scope, .. } = *self;
        match &self.policy.slots {
            Slots::Own(limiter) => {
                let (ask, longest) = self.ask(limit);
                let now = (attempts.now(), Instant::now());
                Ok(Admitted::By(limiter.admit(scope, limit, ask, self.tenant(), longest, now)))
            }
            Slots::Shared(shared) => {
                // The handler's time begins after the answer.
                slot.wait(shared.reservation_timeout());
                let (ask, longest) = self.ask(limit);
                let (tenant, sample) = (self.tenant(), self.turn.sample);
                let request = Request { ask, tenant, longest, sample, may_be_deferred };
                let asked = shared.take_slot(scope, limit, request, self.others());
                let admitted = self.unless_stopped(asked).await?;
                self.check()?;
                Ok(admitted)
            }
        }
    }

    /// Whose share of the limit it takes, if the limit is fair.
    pub(super) fn tenant(&self) -> Option<Tenant> {
        let QueuePolicy { policy, weights, .. } = self.policy;
        let shares = policy.fair_shares.as_ref()?;
        Some(tenant(&shares.by, weights, self.delivery))
    }

    /// The calls that are about to begin too.
    pub(super) fn others(&self) -> usize {
        if self.is_shared { 0 } else { self.slot.about_to_begin() }
    }

    /// The longest wait for a slot. The other half of the time is for the handler.
    fn half(&self) -> Duration {
        self.attempts.deadlines.cutoff.saturating_duration_since(Instant::now()) / 2
    }

    /// The request of a message to the rate limit, and how long it can wait for its slot. A message
    /// that waits by its visibility cannot carry a start tag, and each further
    /// receive counts as a retry. So it waits here for longer.
    fn ask(&self, limit: &RateLimit) -> (Ask, Duration) {
        let Self { attempts, delivery, .. } = self;
        let half = self.half();
        let state = &delivery.state;
        let (ask, longest) = match (delivery.strategy, state.start_tag) {
            (Strategy::Visibility, _) if delivery.receive_count > 1 => (Ask::Returned, half),
            (Strategy::Visibility, _) => (Ask::Newcomer, half),
            (Strategy::Copy, Some(tag)) => (Ask::Waited(StartTag(tag)), limit.max_reservation),
            (Strategy::Copy, None) if state.was_called() => (Ask::Retry, limit.max_reservation),
            (Strategy::Copy, None) => (Ask::Newcomer, limit.max_reservation),
        };
        // It must not expire meanwhile.
        let lives = expires(&self.policy.policy, delivery)
            .map_or(half, |end| end.duration_since(attempts.now()).unwrap_or_default());
        (ask, longest.min(half).min(lives))
    }

    /// Whether the message joins the line, if there is one.
    pub(super) fn is_newcomer(&self, limit: &RateLimit) -> bool {
        self.ask(limit).0 == Ask::Newcomer
    }

    /// Waits until the call may be made, and it must be made at once then.
    pub(in crate::processor) async fn pace(&self) -> Result<(), Uncalled> {
        let Some(limit) = self.limit else { return Ok(()) };
        let QueuePolicy { pacer, slots, .. } = self.policy;
        let limit = &match slots {
            Slots::Own(_) => *limit,
            Slots::Shared(shared) => shared.in_effect(self.scope, limit),
        };
        let gate = pacer.gate(self.scope);
        if gate.lets_through(limit) {
            return Ok(());
        }
        self.slot.wait(pacer.backlog(self.scope, limit));
        self.unless_stopped(gate.passed(limit)).await?;
        self.check()
    }

    /// The refusal by which a failure lowers an adaptive limit.
    pub(in crate::processor) fn refused(&self, failure: &Failure) -> Option<Refused> {
        let limit = self.limit.filter(|limit| limit.adaptive && is_refused(failure))?;
        Some(Refused { scope: self.scope, limit: *limit, asked: self.turn.at })
    }

    /// A message that the rate limit did not let through.
    fn limited(&self, admitted: Admitted) -> Uncalled {
        let now = self.attempts.now();
        match admitted {
            Admitted::By(Admission::InLine(tag, due)) => {
                let disposition = policy::in_line(Deferral::RateLimited, due, now);
                Uncalled { disposition, start_tag: Some(tag) }
            }
            Admitted::By(Admission::LineFull) => policy::line_full(now).into(),
            Admitted::By(Admission::Full | Admission::Slot(_)) | Admitted::Paused => {
                self.deferred(Deferral::RateLimited)
            }
            Admitted::Deferred { why, times } => self.defer_for_table(why, times),
        }
    }
}
