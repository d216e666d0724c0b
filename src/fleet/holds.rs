//! The pauses and circuits of the scopes, which all execution environments share. They are in the
//! items of the limits, so each answer about a limit tells of them too. While the store does not
//! answer, the protection of each environment is left, which is active in any case.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use super::{Fleet, expires};
use crate::gate::{
    Caller, Change, Held, HoldStanding, ProbeLease, Reply, Results, Scope, SharedHealth,
};
use crate::limit::LONGEST_LINE;
use crate::policy::{CircuitBreaker, RateLimit, RetryPolicy};
use crate::store::{Field, Item, Key, StoreError, Update};

/// The most scopes whose state is remembered. It is only a guess of the store's, so it may be lost.
const MAX_SCOPES: usize = 10_000;
/// A state is asked for again after this.
const FRESH: Duration = Duration::from_secs(1);
/// A hold is asked for again after this, since another may have ended it.
const HELD: Duration = Duration::from_secs(10);
/// The most requests for one change.
const MAX_REQUESTS: u32 = 3;
/// A lease ends so long after its message should have.
const GRACE: Duration = Duration::from_secs(5);

/// The pauses and circuits of one policy, in the store.
#[derive(Debug)]
pub(crate) struct SharedHolds {
    fleet: Arc<Fleet>,
    /// The queue of the policy; empty for the policy of all other queues.
    queue: String,
    max_pause: Option<Duration>,
    circuit_breaker: Option<CircuitBreaker>,
    scopes: Mutex<HashMap<Scope, Arc<HeldScope>>>,
}

/// The knowledge of this execution environment about a scope.
#[derive(Debug)]
struct HeldScope {
    key: Key,
    seen: Mutex<Known>,
    /// Held while a request is under way, so that messages that ask together ask once.
    asking: AsyncMutex<()>,
}

#[derive(Debug, Default)]
struct Known {
    health: SharedHealth,
    /// The expiry of the item, which the limit in it may need for longer than the hold.
    expires: u64,
    /// The time of the last request, even if it got no answer.
    asked: Option<Instant>,
    /// Results that are not reported yet, of calls that began in this generation.
    pending: (u64, Results),
}

/// The permission to call. The result of the call is told with it.
#[derive(Debug)]
pub(crate) struct Ticket {
    state: Arc<HeldScope>,
    caller: Caller,
    generation: u64,
    lease: Option<ProbeLease>,
}

/// The answer to a message that may not call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoTicket {
    Held(Held),
    /// The throttled store does not say whether another message probes.
    Throttled,
}

impl Ticket {
    /// Whether the call probes a hold.
    pub(crate) fn is_probe(&self) -> bool {
        self.lease.is_some()
    }
}

impl SharedHolds {
    /// `None` if the policy has neither pauses nor circuits.
    pub(crate) fn new(fleet: &Arc<Fleet>, policy: &RetryPolicy, queue: &str) -> Option<Arc<Self>> {
        let RetryPolicy { max_pause, circuit_breaker, .. } = policy;
        (max_pause.is_some() || circuit_breaker.is_some()).then(|| {
            Arc::new(Self {
                fleet: Arc::clone(fleet),
                queue: queue.to_owned(),
                max_pause: *max_pause,
                circuit_breaker: circuit_breaker.clone(),
                scopes: Mutex::default(),
            })
        })
    }

    /// The longest time until a message is admitted.
    pub(crate) fn patience(&self) -> Duration {
        self.fleet.patience().saturating_mul(MAX_REQUESTS)
    }

    /// Learns of an answer about the scope.
    pub(super) fn note(&self, scope: Scope, item: &Item) {
        self.scope(scope).learn(item);
    }

    /// The health of the service, as last seen.
    pub(super) fn health(&self, scope: Scope) -> SharedHealth {
        self.scope(scope).seen().health
    }

    /// Lets a message through, unless its scope is held. After a hold, one message of all execution
    /// environments gets the lease to probe: for `lasts`, and a moment more. With a limit, the store
    /// is asked for a slot right before the call, and its answer tells of the hold.
    pub(crate) async fn admit(
        &self,
        scope: Scope,
        caller: Caller,
        limit: Option<&RateLimit>,
        lasts: Duration,
    ) -> Result<Ticket, NoTicket> {
        let state = self.scope(scope);
        for _ in 0..MAX_REQUESTS {
            let health = state.seen().health;
            let standing = self.standing(&health, caller);
            let is_known = match standing {
                HoldStanding::Free => limit.is_some(),
                HoldStanding::Held(_) => {
                    health.lasts(self.fleet.now()) && (limit.is_some() || state.is_known(HELD))
                }
                HoldStanding::MayProbe(_) => false,
            };
            if let Some(decided) = decided(standing, &state, caller, &health)
                && (is_known || state.is_known(FRESH))
            {
                return decided;
            }
            let _asking = state.asking.lock().await;
            let health = state.seen().health;
            match self.standing(&health, caller) {
                HoldStanding::MayProbe(_) => {
                    let (update, lease) = health.probe(self.fleet.now(), lasts + GRACE);
                    match self.change(&state, &update).await {
                        Ok(Some(health)) => {
                            let lease = Some(lease);
                            return Ok(Ticket { lease, ..free(&state, caller, &health) });
                        }
                        Ok(None) => {}
                        // The store cannot say who probes, so each environment protects alone.
                        // It may have given the lease all the same.
                        Err(StoreError::Unavailable(_)) => {
                            let lease = Some(lease);
                            return Ok(Ticket { lease, ..free(&state, caller, &health) });
                        }
                        Err(StoreError::Throttled) => return Err(NoTicket::Throttled),
                    }
                }
                HoldStanding::Free | HoldStanding::Held(_) if state.is_known(FRESH) => {}
                HoldStanding::Free | HoldStanding::Held(_) => {
                    state.seen().asked = Some(Instant::now());
                    if let Ok(answer) = self.fleet.read(&state.key).await {
                        state.learn(&answer.before);
                    }
                }
            }
        }
        let health = state.seen().health;
        match self.standing(&health, caller) {
            HoldStanding::Held(held) if health.lasts(self.fleet.now()) => Err(NoTicket::Held(held)),
            _ => Ok(free(&state, caller, &health)),
        }
    }

    /// Lets a message through by the last answer, without a request.
    pub(crate) fn look(&self, scope: Scope, caller: Caller) -> Result<Ticket, Held> {
        let state = self.scope(scope);
        let health = state.seen().health;
        match self.standing(&health, caller) {
            HoldStanding::Free => Ok(free(&state, caller, &health)),
            HoldStanding::Held(held) => Err(held),
            HoldStanding::MayProbe(why) => Err(Held { why, rest: Duration::ZERO }),
        }
    }

    /// The ticket of a message that is not to be held. If the service is held, its result says
    /// nothing.
    pub(crate) fn unheld(&self, scope: Scope, caller: Caller) -> Option<Ticket> {
        self.look(scope, caller).ok()
    }

    /// Tells the result of a call.
    pub(crate) async fn tell(&self, ticket: &Ticket, reply: Reply) -> Option<Change> {
        let state = &*ticket.state;
        let breaker = self.circuit_breaker.as_ref();
        match (reply, self.max_pause, breaker) {
            (Reply::Silent, _, _) => {
                if let Some(lease) = ticket.lease {
                    self.end_probe(state, ticket, |health| Some(health.release(lease))).await;
                }
                None
            }
            (Reply::Paused(delay), Some(longest), _) => {
                let length = delay.min(longest);
                let pause =
                    |health: &SharedHealth| health.pause(ticket.lease, length, self.fleet.now());
                let was_open = state.seen().health.is_open();
                let is_paused = self.end_probe(state, ticket, pause).await;
                (is_paused && was_open).then_some(Change::ClosedForAll)
            }
            (Reply::Down, _, Some(breaker)) => {
                let Some(lease) = ticket.lease else {
                    if let Some(pending) = state.seen().pending_of(ticket) {
                        pending.fail(ticket.caller.message);
                    }
                    return self.report(state, Some(breaker)).await;
                };
                let fail = |health: &SharedHealth| {
                    Some(health.fail(lease, ticket.caller, breaker, self.fleet.now()))
                };
                self.end_probe(state, ticket, fail).await;
                self.open(state, breaker).await
            }
            (Reply::Alive | Reply::Paused(_), _, _) | (Reply::Down, _, None) => {
                if ticket.lease.is_some() {
                    let was_open = state.seen().health.is_open();
                    let close = |health: &SharedHealth| Some(health.close(self.fleet.now()));
                    let is_closed = self.end_probe(state, ticket, close).await;
                    return (is_closed && was_open).then_some(Change::ClosedForAll);
                }
                if !state.seen().answer(ticket, self.fleet.now()) {
                    return None;
                }
                self.report(state, breaker).await
            }
        }
    }

    /// Makes a change by a result. If the result is a probe's, only in the hold that it probed.
    async fn end_probe(
        &self,
        state: &HeldScope,
        ticket: &Ticket,
        change: impl Fn(&SharedHealth) -> Option<Update>,
    ) -> bool {
        let _asking = state.asking.lock().await;
        for _ in 0..MAX_REQUESTS {
            let health = state.seen().health;
            if ticket.is_probe() && health.generation() != ticket.generation {
                return false;
            }
            let Some(update) = change(&health) else { return false };
            match self.change(state, &update).await {
                Ok(None) => {}
                Ok(Some(_)) => return true,
                Err(_) => return false,
            }
        }
        false
    }

    /// Reports the results that are not reported yet, and opens the circuit by them.
    async fn report(&self, state: &HeldScope, breaker: Option<&CircuitBreaker>) -> Option<Change> {
        let _asking = state.asking.lock().await;
        let (generation, evidence) = mem::take(&mut state.seen().pending);
        for _ in 0..MAX_REQUESTS {
            let health = state.seen().health;
            // Calls that began before a hold say nothing about the time after it.
            if evidence.is_empty() || health.generation() != generation {
                return None;
            }
            match self.change(state, &health.evidence(&evidence, self.fleet.now())).await {
                Ok(None) => {}
                Ok(Some(_)) if evidence.has_failures() => break,
                Ok(Some(_)) | Err(_) => return None,
            }
        }
        self.open_now(state, breaker?).await
    }

    async fn open(&self, state: &HeldScope, breaker: &CircuitBreaker) -> Option<Change> {
        let _asking = state.asking.lock().await;
        self.open_now(state, breaker).await
    }

    /// Opens the circuit, if it is to open.
    async fn open_now(&self, state: &HeldScope, breaker: &CircuitBreaker) -> Option<Change> {
        let (health, now) = (state.seen().health, self.fleet.now());
        if !health.opens(breaker, now) {
            return None;
        }
        let opened = self.change(state, &health.open(breaker, now)).await;
        matches!(opened, Ok(Some(_))).then_some(Change::OpenedForAll)
    }

    /// Makes a change. Returns the health afterwards, or `None` if another had changed it before.
    async fn change(
        &self,
        state: &HeldScope,
        update: &Update,
    ) -> Result<Option<SharedHealth>, StoreError> {
        // A hold by a clock that is far off would be no hold. The first answer tells the time.
        if !self.fleet.has_answered() {
            let answer = self.fleet.read(&state.key).await?;
            state.learn(&answer.before);
            return Ok(None);
        }
        let in_use_until = self.fleet.now() + LONGEST_LINE;
        let expires = {
            let mut seen = state.seen();
            seen.asked = Some(Instant::now());
            seen.expires.max(expires(in_use_until))
        };
        let update = update.clone().set(Field::EXPIRES, expires);
        let answer = self.fleet.update(&state.key, &update).await?;
        let mut item = answer.before;
        let is_changed = answer.is_changed && update.apply(&mut item);
        let health = state.learn(&item);
        Ok(is_changed.then_some(health))
    }

    fn standing(&self, health: &SharedHealth, caller: Caller) -> HoldStanding {
        health.standing(caller, self.circuit_breaker.as_ref(), self.fleet.now())
    }

    fn scope(&self, scope: Scope) -> Arc<HeldScope> {
        let mut scopes = self.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        if scopes.len() >= MAX_SCOPES && !scopes.contains_key(&scope) {
            scopes.retain(|_, state| Arc::strong_count(state) > 1);
        }
        let state = scopes.entry(scope).or_insert_with(|| {
            Arc::new(HeldScope {
                key: self.fleet.scope_key(&self.queue, scope),
                seen: Mutex::default(),
                asking: AsyncMutex::default(),
            })
        });
        Arc::clone(state)
    }
}

impl HeldScope {
    fn seen(&self) -> MutexGuard<'_, Known> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn learn(&self, item: &Item) -> SharedHealth {
        let health = SharedHealth::of(item);
        let mut seen = self.seen();
        (seen.health, seen.asked) = (health, Some(Instant::now()));
        seen.expires = item.get(Field::EXPIRES);
        health
    }

    fn is_known(&self, lately: Duration) -> bool {
        self.seen().asked.is_some_and(|asked| asked.elapsed() < lately)
    }
}

impl Known {
    /// Notes a response. Returns whether it says something new.
    fn answer(&mut self, ticket: &Ticket, now: SystemTime) -> bool {
        let is_new = !(self.health.is_clean(now) && self.pending.1.is_empty());
        if is_new && let Some(pending) = self.pending_of(ticket) {
            pending.answer();
        }
        is_new
    }

    /// The results of this generation, if the ticket is of it.
    fn pending_of(&mut self, ticket: &Ticket) -> Option<&mut Results> {
        let generation = self.health.generation();
        if self.pending.0 != generation {
            self.pending = (generation, Results::default());
        }
        (ticket.generation == generation).then_some(&mut self.pending.1)
    }
}

/// A ticket of a scope that is not held.
fn free(state: &Arc<HeldScope>, caller: Caller, health: &SharedHealth) -> Ticket {
    Ticket { state: Arc::clone(state), caller, generation: health.generation(), lease: None }
}

fn decided(
    standing: HoldStanding,
    state: &Arc<HeldScope>,
    caller: Caller,
    health: &SharedHealth,
) -> Option<Result<Ticket, NoTicket>> {
    match standing {
        HoldStanding::Free => Some(Ok(free(state, caller, health))),
        HoldStanding::Held(held) => Some(Err(NoTicket::Held(held))),
        HoldStanding::MayProbe(_) => None,
    }
}
