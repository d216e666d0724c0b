//! The pauses and circuits of the scopes, which all execution environments share. They are in the
//! items of the limits, so each response about a limit shows them too. While the table does not
//! respond, each environment protects the service alone, as it always does.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use super::known::{SharedScope, Ticket};
use super::{TableClient, expires};
use crate::gate::{Caller, Change, NotPermitted, PauseStanding, Reply, SharedHealth};
use crate::limit::LONGEST_LINE;
use crate::lock::lock;
use crate::policy::{CircuitBreaker, RetryPolicy};
use crate::scope::Scope;
use crate::table::{Field, TableError, Update};

/// The most scopes whose state is cached. The table has the state, so the cache may lose it.
const MAX_SCOPES: usize = 10_000;
/// After this time, the state is read again.
const FRESH: Duration = Duration::from_secs(1);
/// After this time, a pause is read again, since another environment may have ended it.
const PAUSED: Duration = Duration::from_secs(10);
/// The most requests for one change.
const MAX_REQUESTS: u32 = 3;
/// The lock of a probe ends this much after its call should have.
const GRACE: Duration = Duration::from_secs(5);

/// The pauses, circuits and rate limits of one policy, in the table.
#[derive(Debug)]
pub(crate) struct SharedPauses {
    pub(super) client: Arc<TableClient>,
    /// The queue of the policy; empty for the policy of all other queues.
    queue: String,
    max_pause: Option<Duration>,
    circuit_breaker: Option<CircuitBreaker>,
    scopes: Mutex<HashMap<Scope, Arc<SharedScope>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoTicket {
    Paused(NotPermitted),
    /// The table throttles, so it is unknown whether another message probes.
    Throttled,
}

impl SharedPauses {
    pub(crate) fn new(client: &Arc<TableClient>, policy: &RetryPolicy, queue: &str) -> Arc<Self> {
        let RetryPolicy { max_pause, circuit_breaker, .. } = policy;
        Arc::new(Self {
            client: Arc::clone(client),
            queue: queue.to_owned(),
            max_pause: *max_pause,
            circuit_breaker: circuit_breaker.clone(),
            scopes: Mutex::default(),
        })
    }

    /// Whether the policy has pauses or circuits. If not, the items have only limits.
    pub(crate) fn may_pause(&self) -> bool {
        self.max_pause.is_some() || self.circuit_breaker.is_some()
    }

    /// The longest time until a message is admitted.
    pub(crate) fn timeout(&self) -> Duration {
        self.client.timeout().saturating_mul(MAX_REQUESTS)
    }

    /// The pauses of all scopes, as last seen.
    pub(crate) fn all(&self) -> Vec<(Scope, NotPermitted)> {
        let now = self.client.now();
        let scopes = lock(&self.scopes);
        scopes
            .iter()
            .filter_map(|(scope, state)| Some((*scope, state.seen().health.paused(now)?)))
            .collect()
    }

    /// Permits a call, unless the scope is paused. After a pause, one message of all execution
    /// environments gets the probe lock, for `lasts` and a grace period.
    pub(crate) async fn admit(
        &self,
        scope: Scope,
        caller: Caller,
        has_limit: bool,
        lasts: Duration,
    ) -> Result<Ticket, NoTicket> {
        let state = self.scope(scope);
        for _ in 0..MAX_REQUESTS {
            let health = state.seen().health;
            let is_known = |lately| has_limit || state.is_known(lately);
            match self.standing(&health, caller) {
                PauseStanding::Free if is_known(FRESH) => {
                    return Ok(state.ticket(caller, &health));
                }
                PauseStanding::Paused(paused)
                    if is_known(PAUSED) && health.lasts(self.client.now())
                        || state.is_known(FRESH) =>
                {
                    return Err(NoTicket::Paused(paused));
                }
                PauseStanding::Free | PauseStanding::Paused(_) | PauseStanding::MayProbe(_) => {}
            }
            let _asking = state.asking.lock().await;
            let health = state.seen().health;
            match self.standing(&health, caller) {
                PauseStanding::MayProbe(_) => {
                    let (update, lock) = health.probe(self.client.now(), lasts + GRACE);
                    let health = match self.change(&state, &update).await {
                        Ok(None) => continue,
                        Ok(Some(health)) => health,
                        // The table cannot say which message probes, so each environment protects
                        // alone. The table may have given the lock nevertheless.
                        Err(TableError::Unavailable(_)) => health,
                        Err(TableError::Throttled) => return Err(NoTicket::Throttled),
                    };
                    let ticket = state.ticket(caller, &health);
                    return Ok(Ticket { lock: Some(lock), ..ticket });
                }
                PauseStanding::Free | PauseStanding::Paused(_) if state.is_known(FRESH) => {}
                PauseStanding::Free | PauseStanding::Paused(_) => {
                    // Under the lock, so that the rest of the batch does not call meanwhile.
                    let answer = self.client.read(&state.key).await;
                    state.seen().asked = Some(Instant::now());
                    if let Ok(answer) = answer {
                        state.learn(&answer.before);
                    }
                }
            }
        }
        let health = state.seen().health;
        match self.standing(&health, caller) {
            PauseStanding::Paused(paused) if health.lasts(self.client.now()) => {
                Err(NoTicket::Paused(paused))
            }
            _ => Ok(state.ticket(caller, &health)),
        }
    }

    /// Permits a call by the last response, without a request.
    pub(crate) fn look(&self, scope: Scope, caller: Caller) -> Result<Ticket, NotPermitted> {
        let state = self.scope(scope);
        let health = state.seen().health;
        match self.standing(&health, caller) {
            PauseStanding::Free => Ok(state.ticket(caller, &health)),
            PauseStanding::Paused(paused) => Err(paused),
            PauseStanding::MayProbe(why) => Err(NotPermitted { why, rest: Duration::ZERO }),
        }
    }

    /// Keeps the lock of a message whose call ends only after `lasts`, since it waits for its
    /// reservation. Returns whether the message may still call. A lock that is long enough costs no
    /// request.
    pub(crate) async fn keep_lock(&self, ticket: &mut Ticket, lasts: Duration) -> bool {
        let Some(lock) = ticket.lock else { return true };
        let lasts = lasts + GRACE;
        if lock.lasts(lasts, self.client.now()) {
            return true;
        }
        let state = Arc::clone(&ticket.state);
        let _asking = state.asking.lock().await;
        let (health, now) = (state.seen().health, self.client.now());
        let (update, longer) = health.lengthen(lock, now, lasts);
        if health.generation() != ticket.generation || !longer.lasts(lasts, now) {
            return false;
        }
        match self.change(&state, &update).await {
            // A table that does not respond may have made the change nevertheless.
            Ok(Some(_)) | Err(TableError::Unavailable(_)) => ticket.lock = Some(longer),
            Ok(None) | Err(TableError::Throttled) => return false,
        }
        true
    }

    /// The scope of a ticket, and the end of its pause as last seen.
    pub(crate) fn pause(&self, ticket: &Ticket) -> (Scope, SystemTime) {
        (ticket.state.scope, ticket.state.paused_until(self.client.now()))
    }

    pub(crate) async fn tell(&self, ticket: &Ticket, reply: Reply) -> Option<Change> {
        let state = &*ticket.state;
        let breaker = self.circuit_breaker.as_ref();
        match (reply, self.max_pause, breaker) {
            (Reply::Silent | Reply::Uncalled, _, _) => {
                if let Some(lock) = ticket.lock {
                    let end = |health: &SharedHealth| match reply {
                        Reply::Silent => Some(health.note_silence(lock, self.client.now())),
                        _ => Some(health.release(lock)),
                    };
                    self.end_probe(state, ticket, end).await;
                }
                None
            }
            (Reply::Paused(delay), Some(longest), _) => {
                let length = delay.min(longest);
                let pause =
                    |health: &SharedHealth| health.pause(ticket.lock, length, self.client.now());
                let was_open = state.seen().health.is_open();
                let is_paused = self.end_probe(state, ticket, pause).await;
                is_paused.then_some(Change::Paused { was_open })
            }
            (Reply::Unavailable | Reply::Down, _, Some(breaker)) => {
                let Some(lock) = ticket.lock else {
                    if let Some(pending) = state.seen().pending_of(ticket) {
                        pending.fail(ticket.caller.message);
                    }
                    return self.report(state, Some(breaker)).await;
                };
                let fail = |health: &SharedHealth| {
                    Some(health.fail(lock, ticket.caller, breaker, self.client.now()))
                };
                self.end_probe(state, ticket, fail).await;
                let _asking = state.asking.lock().await;
                self.open(state, breaker).await
            }
            (Reply::Alive | Reply::Refused | Reply::Paused(_), _, _)
            | (Reply::Unavailable | Reply::Down, _, None) => {
                if ticket.lock.is_some() {
                    let was_open = state.seen().health.is_open();
                    let close = |health: &SharedHealth| Some(health.close(self.client.now()));
                    let is_closed = self.end_probe(state, ticket, close).await;
                    return (is_closed && was_open).then_some(Change::Closed);
                }
                let now = self.client.now();
                if !state.seen().answer(ticket, now) {
                    return None;
                }
                self.report(state, breaker).await
            }
        }
    }

    /// Makes a change by a result. The result of a probe applies only to the pause that it probed.
    async fn end_probe(
        &self,
        state: &SharedScope,
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

    /// Reports the results that are not reported yet, and opens the circuit if they require it.
    async fn report(
        &self,
        state: &SharedScope,
        breaker: Option<&CircuitBreaker>,
    ) -> Option<Change> {
        let _asking = state.asking.lock().await;
        let (generation, evidence) = mem::take(&mut state.seen().pending);
        for _ in 0..MAX_REQUESTS {
            let health = state.seen().health;
            // Calls that began before a pause show nothing about the time after it.
            if evidence.is_empty() || health.generation() != generation {
                return None;
            }
            match self.change(state, &health.evidence(&evidence, self.client.now())).await {
                Ok(None) => {}
                Ok(Some(_)) if evidence.has_failures() => break,
                Ok(Some(_)) | Err(_) => return None,
            }
        }
        self.open(state, breaker?).await
    }

    async fn open(&self, state: &SharedScope, breaker: &CircuitBreaker) -> Option<Change> {
        for _ in 0..MAX_REQUESTS {
            let (health, now) = (state.seen().health, self.client.now());
            if !health.opens(breaker, now) {
                return None;
            }
            match self.change(state, &health.open(breaker, now)).await {
                Ok(None) => {}
                Ok(Some(_)) => return Some(Change::Opened),
                Err(_) => return None,
            }
        }
        None
    }

    /// Makes a change. Returns the health afterwards, or `None` if another environment was first.
    async fn change(
        &self,
        state: &SharedScope,
        update: &Update,
    ) -> Result<Option<SharedHealth>, TableError> {
        // With a wrong clock, a pause would end too early or too late. A response corrects it.
        if !self.client.knows_time() {
            let answer = self.client.read(&state.key).await?;
            state.learn(&answer.before);
            return Ok(None);
        }
        let in_use_until = self.client.now() + LONGEST_LINE;
        let expires = {
            let mut seen = state.seen();
            seen.asked = Some(Instant::now());
            seen.expires.max(expires(in_use_until))
        };
        let update = update.clone().set(Field::EXPIRES, expires).needed_for(LONGEST_LINE);
        let answer = self.client.update(&state.key, &update).await?;
        let mut item = answer.before;
        let is_changed = answer.is_changed && update.apply(&mut item);
        let health = state.learn(&item);
        Ok(is_changed.then_some(health))
    }

    fn standing(&self, health: &SharedHealth, caller: Caller) -> PauseStanding {
        health.standing(caller, self.circuit_breaker.as_ref(), self.client.now())
    }

    pub(super) fn scope(&self, scope: Scope) -> Arc<SharedScope> {
        let mut scopes = lock(&self.scopes);
        if scopes.len() >= MAX_SCOPES && !scopes.contains_key(&scope) {
            scopes.retain(|_, state| Arc::strong_count(state) > 1);
        }
        let state = scopes.entry(scope).or_insert_with(|| {
            Arc::new(SharedScope {
                scope,
                key: self.client.scope_key(&self.queue, scope),
                seen: Mutex::default(),
                asking: AsyncMutex::default(),
                limits: Mutex::default(),
            })
        });
        Arc::clone(state)
    }
    #[cfg(test)]
    pub(super) fn known_scopes(&self) -> usize {
        lock(&self.scopes).len()
    }
}
