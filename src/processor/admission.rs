//! The admission of a message to the call of its handler: the steps in their order. Each step lets
//! the message continue, perhaps after a wait, or decides about it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};
use tokio::time::{Instant, timeout_at};

use super::calls::{self, CallKey};
use super::executor::Slot;
use super::inner::{QueuePolicy, Slots};
use super::turn::{Attempts, Turn, Uncalled};
use crate::delivery::Delivery;
use crate::disposition::{DeadLetterReason, Deferral, Disposition, Strategy};
use crate::gate::{Caller, Permit, expires};
use crate::pointer;
use crate::policy::{self, RateLimit, WhenUnavailable};
use crate::scope::Scope;
use crate::settings::Mode;
use crate::shared_table::{Acquired, Acquisition, Counted, Events, TableClient};
use crate::telemetry;

mod gate;
mod pause;
mod slot;
mod taken;

use gate::Gate;
pub(super) use taken::{Refused, Taken};

/// The longest time for which a service may work on an event after the timeout of its handler.
/// Servers and gateways end a request after 30 to 60 s.
const BEYOND: Duration = Duration::from_mins(1);

pub(super) struct Call<'a> {
    pub(super) attempts: &'a Attempts,
    policy: &'a QueuePolicy,
    pub(super) slot: &'a Slot,
    pub(super) delivery: &'a Arc<Delivery>,
    turn: &'a Turn,
    scope: Scope,
    caller: Caller,
    /// The rate limits of the message, in their order.
    gates: Vec<Gate>,
    /// Whether a pause or an open circuit may defer it.
    may_be_deferred: bool,
    /// Whether it may share its call. The leader asks the rate limit, unless the limit counts
    /// messages or units.
    is_shared: bool,
}

impl<'a> Call<'a> {
    pub(super) fn new(
        slot: &'a Slot,
        delivery: &'a Arc<Delivery>,
        turn: &'a Turn,
        scope: Scope,
        limit: Option<&'a RateLimit>,
        is_shared: bool,
    ) -> Self {
        let attempts = slot.attempts();
        let policy = attempts.inner.policy(delivery);
        let usage = delivery.usage();
        let may_be_deferred =
            policy::may_be_deferred(&policy.policy, &usage, usage.deferrals(), turn.at);
        let caller = Caller::of(delivery);
        let gates = match attempts.inner.mode {
            Mode::Requeue => Gate::all(&policy.policy, limit, scope, delivery),
            Mode::Report => Vec::new(),
        };
        let likely = |gate: Gate| gate.likely(&policy.slots, turn.at);
        let gates = gates.into_iter().map(likely).collect();
        Self {
            attempts,
            policy,
            slot,
            delivery,
            turn,
            scope,
            caller,
            gates,
            may_be_deferred,
            is_shared,
        }
    }

    pub(super) fn key(&self, most: usize) -> CallKey {
        let Self { delivery, scope, may_be_deferred, .. } = *self;
        CallKey {
            queue: delivery.queue.clone(),
            scope,
            keys: self.keys().map(|gate| gate.scope).collect(),
            strategy: delivery.strategy,
            may_be_deferred,
            is_again: delivery.receive_count > 1,
            most: calls::most(&self.policy.policy, delivery, most),
        }
    }

    /// All steps. Steps that few policies have are boxed: the future of an attempt is moved several
    /// times, so it is kept small. The leader of a shared call does the steps of the rate limit.
    /// `taken` has everything that is returned after the call, or without one.
    pub(super) async fn admit(&self, taken: &mut Taken) -> Result<Permit, Uncalled> {
        let QueuePolicy { protection, pauses, events, slots, .. } = self.policy;
        let Self { attempts, scope, caller, .. } = *self;
        if attempts.inner.mode == Mode::Report {
            return Ok(protection.permit(scope, caller));
        }
        let mut permit = self.own_permit(self.turn.at).await?;
        if let Some(pauses) = pauses {
            taken.ticket = Box::pin(self.ticket(pauses)).await?;
            // The end of `ticket` releases the probe lock.
            self.check()?;
            // The handler's time begins after the response.
            self.slot.wait(Duration::ZERO);
        } else if self.may_be_deferred
            && self.total().is_none()
            && !permit.is_probe()
            && let Slots::Own(limiter) = slots
            && let Some(recovery) = protection.recovery(scope, attempts.now())
        {
            permit = Box::pin(self.recover_alone(limiter, recovery)).await?;
        }
        let reserves = self.is_limited() && self.reserves_alone();
        if reserves {
            permit = Box::pin(self.reserve(permit, taken)).await?;
        }
        let learns = |gate: &&Gate| gate.limit.has_units || gate.limit.headers;
        taken.learning = self.gates.iter().filter(learns).copied().collect();
        if let Some(events) = events {
            Box::pin(self.acquire(events, &mut taken.event)).await?;
        }
        if let Some(counts) = &self.policy.counts {
            Box::pin(self.count(counts, &mut taken.attempt)).await?;
        }
        if reserves && Box::pin(self.pace()).await? {
            permit = Box::pin(self.renew_as_known(permit, taken)).await?;
        }
        Ok(permit)
    }

    /// The permission of this execution environment to call the service.
    async fn own_permit(&self, at: SystemTime) -> Result<Permit, Uncalled> {
        let Self { scope, caller, .. } = *self;
        let QueuePolicy { protection, .. } = self.policy;
        match protection.admit(scope, caller, at) {
            Ok(permit) => Ok(permit),
            Err(paused) if self.may_be_deferred => Err(Box::pin(self.paused(paused)).await),
            // The message calls anyway. If a permit to probe was free, its call counts as a probe.
            Err(_) => Ok(protection.permit_despite(scope, caller)),
        }
    }

    async fn acquire(&self, events: &Events, acquired: &mut Acquisition) -> Result<(), Uncalled> {
        let Self { attempts, slot, delivery, turn, .. } = *self;
        let (name, is_key_missing) = name(events, delivery);
        acquired.notes.is_key_missing = is_key_missing;
        // Without an id, it has no duplicate.
        let Some(name) = name else { return Ok(()) };
        let queue = delivery.queue.as_ref().map(ToString::to_string).unwrap_or_default();
        let later = slot.wait(events.timeout());
        // A shared call may begin late.
        let limit = if self.is_shared { attempts.deadlines.cutoff } else { later.limit };
        let lasts = limit.saturating_duration_since(Instant::now())
            + (attempts.deadlines.grace + events.timeout() * 2).max(BEYOND);
        let owner = owner(delivery, turn);
        let asked = async {
            let record = events.record(&queue, name.as_bytes(), owner, lasts);
            events.acquire(acquired.record.insert(record)).await
        };
        match self.ask_table(asked).await? {
            Acquired::Recorded => {}
            Acquired::Unanswered { throttled }
                if self.waits_for_answer(events, throttled.is_some()) =>
            {
                // A request without a response may have taken effect.
                return Err(match throttled {
                    Some(times) => {
                        acquired.record = None;
                        self.defer_for_table(Deferral::TableThrottled, times)
                    }
                    None => self.deferred(Deferral::IdempotencyUnavailable),
                });
            }
            Acquired::Unanswered { .. } => acquired.notes.is_unconfirmed = true,
            Acquired::Done => {
                acquired.record = None;
                acquired.notes.is_already_done = true;
                return Err(Disposition::Complete.into());
            }
            Acquired::InProgress(rest) => {
                acquired.record = None;
                return Err(policy::in_progress(rest, attempts.now()).into());
            }
        }
        self.check()
    }

    /// Whether a message waits because the table did not respond. With `visibility`, that uses a
    /// receive, and the next one may move the message to the dead-letter queue without a call.
    fn waits_for_answer(&self, events: &Events, is_throttled: bool) -> bool {
        let Self { delivery, .. } = self;
        let may_wait = delivery.strategy == Strategy::Copy || delivery.receive_count < 2;
        may_wait
            && match events.idempotency().when_unavailable {
                _ if is_throttled => true,
                WhenUnavailable::Call => false,
                WhenUnavailable::Defer => delivery.deferrals() < self.policy.policy.max_deferrals,
            }
    }

    /// Counts the attempt, if its message waits with its visibility timeout and was received
    /// before: such a message cannot carry a count. If the table does not respond, receives count.
    async fn count(
        &self,
        counts: &TableClient,
        attempt: &mut Option<Counted>,
    ) -> Result<(), Uncalled> {
        let Self { attempts, slot, delivery, .. } = *self;
        // SQS moves other messages by their receives, so for those messages receives count.
        let planner = attempts.inner.planner(delivery);
        if !(delivery.may_count_attempts() && planner.sends_dead_letter(delivery, attempts.now())) {
            return Ok(());
        }
        let (Some(queue), Some(id)) = (&delivery.queue, &delivery.message_id) else {
            return Ok(());
        };
        // Without this check, the attempt might be counted, and its handler not called.
        if Instant::now() + counts.timeout() > attempts.deadlines.cutoff {
            return Err(self.deferred(Deferral::NoTimeLeft));
        }
        slot.wait(counts.timeout());
        let counted = self.ask_table(counts.count(queue, id)).await?;
        if let Some(counted) = &counted {
            let by_receives = delivery.retries();
            delivery.note_counted(counted.earlier());
            if delivery.retries() != by_receives {
                telemetry::correct_count(delivery);
            }
        }
        if policy::has_no_attempt_left(&self.policy.policy, &delivery.usage()) {
            return Err(Disposition::DeadLetter(DeadLetterReason::RetriesExhausted).into());
        }
        *attempt = counted;
        self.check()
    }

    /// Waits, unless the host shuts down or no time is left.
    async fn unless_stopped<A>(&self, awaited: impl Future<Output = A>) -> Result<A, Uncalled> {
        let deadlines = &self.attempts.deadlines;
        tokio::select! {
            biased;
            () = deadlines.stop.starting.cancelled() => Err(Uncalled::stopped()),
            answer = timeout_at(deadlines.cutoff, awaited) => {
                answer.map_err(|_| self.deferred(Deferral::NoTimeLeft))
            }
        }
    }

    /// Sends a request to the table. It may take effect once sent, so its response is awaited.
    async fn ask_table<A>(&self, asked: impl Future<Output = A>) -> Result<A, Uncalled> {
        if self.attempts.is_stopping() {
            return Err(Uncalled::stopped());
        }
        let answer = timeout_at(self.attempts.deadlines.cutoff, asked).await;
        answer.map_err(|_| self.deferred(Deferral::NoTimeLeft))
    }

    /// Refuses a message that lapsed or expired while it waited. Its next receive dead-letters it.
    fn check(&self) -> Result<(), Uncalled> {
        self.check_other(self.delivery)
    }

    /// The same check for another message of its call.
    pub(super) fn check_other(&self, delivery: &Delivery) -> Result<(), Uncalled> {
        let Self { attempts, turn, .. } = self;
        let end = expires(&self.policy.policy, delivery);
        if attempts.inner.has_lapsed(delivery) || end.is_some_and(|end| attempts.now() > end) {
            return Err(attempts.deferred(delivery, Deferral::NoTimeLeft, turn.sample));
        }
        Ok(())
    }

    fn deferred(&self, why: Deferral) -> Uncalled {
        self.attempts.deferred(self.delivery, why, self.turn.sample)
    }

    /// Defers a message about which the table did not decide, this number of times in a row.
    fn defer_for_table(&self, why: Deferral, times: u32) -> Uncalled {
        policy::defer_for_table(why, times, self.attempts.now(), self.turn.sample).into()
    }
}

/// The name of a message's event, and whether the body has none.
fn name(events: &Events, delivery: &Delivery) -> (Option<String>, bool) {
    let id = || delivery.original_id().map(|id| format!("id {id}"));
    match &events.idempotency().key {
        None => (id(), false),
        Some(key) => match key.find(delivery.payload()).and_then(pointer::name) {
            Some(name) => (Some(name), false),
            None => (id(), true),
        },
    }
}

/// A number that no other attempt has: no two receives have the same receipt handle.
fn owner(delivery: &Delivery, turn: &Turn) -> u64 {
    let mut hash = Sha256::new();
    for handle in &delivery.receipt_handles {
        hash.update(handle);
    }
    hash.update(turn.sample.to_le_bytes());
    let hash: [u8; 32] = hash.finalize().into();
    // Zero means no attempt.
    hash.first_chunk().map_or(1, |start| u64::from_le_bytes(*start) | 1)
}
