//! The rate limits of the scopes, which all execution environments share. Messages of one scope
//! that ask at the same time share one request.

use std::mem;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::oneshot;
use tokio::time::sleep;

use super::asking::{AskTask, LATER, MAX_REQUESTS};
use super::expires;
use super::known::{Admitted, Asker, Request, Ticket};
use super::pauses::{NoTicket, SharedPauses};
use crate::classify::Allowance;
use crate::disposition::Deferral;
use crate::gate::{Caller, Recovery};
use crate::limit::{Admission, Claim, Demand, KnownLimit, LimitState, StartTag};
use crate::policy::RateLimit;
use crate::scope::Scope;
use crate::table::Field;

/// A waiting list that was seen within this time shows whether messages wait in it.
const LATELY: Duration = Duration::from_secs(10);

impl SharedPauses {
    pub(crate) fn reservation_timeout(&self) -> Duration {
        self.client.timeout().saturating_mul(MAX_REQUESTS + 1) + LATER.mul_f64(1.5)
    }

    /// Admits one message by its rate limit. `others` is the number of messages that will ask too.
    pub(crate) async fn take_slot(
        &self,
        scope: Scope,
        limit: &RateLimit,
        request: Request,
        others: usize,
    ) -> Admitted {
        let (answer, admitted) = oneshot::channel();
        let now = self.client.now();
        let item = self.scope(scope);
        let (complete, is_asked) = {
            let mut state = item.limits();
            let limit = state.known(limit, self.client.started, now);
            state.waiting.push(Asker { limit, request, answer });
            state.expected = state.expected.max(state.waiting.len() + others);
            let is_complete = state.waiting.len() >= state.expected;
            let complete = is_complete.then(|| Arc::clone(&state.complete));
            (complete, mem::replace(&mut state.is_asked, true))
        };
        // After the lock is free: a runtime that shuts down drops the task, which takes the lock.
        if let Some(complete) = complete {
            complete.notify_one();
        }
        if !is_asked {
            tokio::spawn(AskTask::new(Arc::clone(&self.client), item).ask());
        }
        // If the runtime ends, the task ends without a decision.
        admitted.await.unwrap_or(Admitted::Deferred { why: Deferral::TableUnavailable, times: 1 })
    }

    /// Whether a message would join the waiting list, as far as this execution environment knows.
    pub(crate) fn would_wait(&self, scope: Scope, limit: &RateLimit, demand: Demand) -> bool {
        let client = &self.client;
        let (item, now) = (self.scope(scope), client.now());
        let known = item.limits().known(limit, client.started, now);
        let seen = item.seen().limit;
        item.is_known(LATELY) && seen.would_wait(&known, demand, now)
    }

    /// Reports to all execution environments that the service refused a call.
    pub(crate) async fn refused(&self, scope: Scope, limit: &RateLimit, asked: SystemTime) {
        let asked = self.client.shared(asked);
        self.slow_down(scope, limit, |seen, known, now| seen.refused(known, asked, now)).await;
    }

    /// Reports to all execution environments the rest of the service's allowances, by a response.
    pub(crate) async fn capped(&self, scope: Scope, limit: &RateLimit, allowances: &[Allowance]) {
        self.slow_down(scope, limit, |seen, known, now| seen.capped(known, allowances, now)).await;
    }

    /// Reports a lower pace to all execution environments, if there is one.
    async fn slow_down(
        &self,
        scope: Scope,
        limit: &RateLimit,
        slower: impl Fn(&LimitState, &KnownLimit, SystemTime) -> Option<LimitState>,
    ) {
        let client = &self.client;
        let item = self.scope(scope);
        for _ in 0..MAX_REQUESTS {
            let now = client.now();
            let (seen, next, end) = {
                let known = item.limits().known(limit, client.started, now);
                let seen = item.seen().limit;
                let Some(next) = slower(&seen, &known, now) else { return };
                // Further calls of this environment need not report it.
                item.seen().limit = next;
                (seen, next, Claim::new(&known, next, now).in_use_until())
            };
            let end = end.max(item.paused_until(now));
            let update = seen.pace_update(&next).set(Field::EXPIRES, expires(end));
            let update = update.needed_for(end.duration_since(now).unwrap_or_default());
            // If this request fails, the next refused call reports the pace.
            let Ok(answer) = client.update(&item.key, &update).await else { return };
            let mut after = answer.before;
            let is_changed = answer.is_changed && update.apply(&mut after);
            item.seen().limit = LimitState::of(&after).with_units_of(&next);
            if is_changed {
                return;
            }
        }
    }

    pub(crate) fn likely(&self, scope: Scope, limit: &RateLimit, units: u32) -> u32 {
        self.scope(scope).seen().limit.likely(units, limit)
    }

    /// Corrects the units of a call, together with those of other calls that end now. If other
    /// environments keep changing the item, a call that used fewer units is not corrected.
    pub(crate) async fn correct(
        &self,
        scope: Scope,
        limit: &RateLimit,
        (estimated, reserved): (u32, u32),
        used: u32,
    ) {
        let client = &self.client;
        let item = self.scope(scope);
        item.seen().limit.note_used(estimated, used);
        item.limits().uncorrected += i64::from(used) - i64::from(reserved);
        let _asking = item.asking.lock().await;
        for _ in 0..MAX_REQUESTS {
            let units = mem::take(&mut item.limits().uncorrected);
            if units == 0 {
                return;
            }
            let (seen, now) = (item.seen().limit, client.now());
            let limit = seen.in_effect(limit, now);
            let end = Claim::new(&KnownLimit::own(&limit), seen, now).in_use_until();
            let end = end.max(item.paused_until(now));
            let update = seen.correction(&limit, units, now).set(Field::EXPIRES, expires(end));
            let update = update.needed_for(end.duration_since(now).unwrap_or_default());
            let Ok(answer) = client.update(&item.key, &update).await else { return };
            let mut after = answer.before;
            let is_changed = answer.is_changed && update.apply(&mut after);
            item.learn(&after);
            if is_changed {
                return;
            }
            item.limits().uncorrected += units;
        }
    }

    /// The limit in effect, as last seen.
    pub(crate) fn in_effect(&self, scope: Scope, limit: &RateLimit) -> RateLimit {
        let seen = self.scope(scope).seen().limit;
        seen.in_effect(limit, self.client.now())
    }

    /// When a message of the waiting list returns, if its service is paused until this time.
    pub(crate) fn paused_in_line(
        &self,
        scope: Scope,
        limit: &RateLimit,
        tag: StartTag,
        until: SystemTime,
    ) -> SystemTime {
        let client = &self.client;
        let now = client.now();
        let item = self.scope(scope);
        let known = item.limits().known(limit, client.started, now);
        let seen = item.seen().limit;
        client.local(seen.paused(&known, tag, client.shared(until), now))
    }

    pub(crate) fn recovery(&self, scope: Scope) -> Option<Recovery> {
        self.scope(scope).seen().health.recovery(self.client.now())
    }

    /// Waits for a reservation with a service that recovers and has no limit: its calls pass the
    /// gate of a limit that grows. `others` is the number of messages that are about to ask. A
    /// failure of the table stops no call.
    pub(crate) async fn recover(
        &self,
        recovery: Recovery,
        scope: Scope,
        caller: Caller,
        ticket: Ticket,
        others: usize,
    ) -> Result<Ticket, NoTicket> {
        let request = Request { demand: recovery.demand(), sample: 0.0, may_be_deferred: false };
        match self.take_slot(scope, &recovery.limit, request, others).await {
            Admitted::By(Admission::Slot(wait)) => {
                sleep(wait).await;
                // The circuit may have opened again meanwhile.
                self.look(scope, caller).map_err(NoTicket::Paused)
            }
            Admitted::By(_) | Admitted::Paused => Err(NoTicket::Paused(recovery.refusal())),
            Admitted::Deferred { .. } => Ok(ticket),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::policy::RetryPolicy;
    use crate::settings::SharedTable;
    use crate::shared_table::TableClient;
    use crate::table::MemoryTable;

    #[test]
    fn messages_in_line_that_are_paused_fill_no_memory_with_their_scopes() {
        let table = Arc::new(MemoryTable::default());
        let clock = Clock::starting_at(SystemTime::UNIX_EPOCH);
        let client = Arc::new(TableClient::new(SharedTable::by(table), clock));
        let limits = SharedPauses::new(&client, &RetryPolicy::default(), "");
        let (limit, end) = (RateLimit::new(1, Duration::from_secs(1)), SystemTime::UNIX_EPOCH);
        for number in 0..=10_000 {
            limits.paused_in_line(Scope::of(number.to_string()), &limit, StartTag(0), end);
        }
        assert!(limits.known_scopes() <= 10_000);
    }
}
