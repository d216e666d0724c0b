//! Pause and circuit breaker: which messages may call their downstream service, by scope, shared by
//! all batches of an execution environment. Decides by the values it is given; reads no clock.
//!
//! [`CircuitBreaker`] has the settings of this; the state is here. That `settle/hold.rs` holds
//! sends back is another matter: it spares no service, and one send without a response is enough
//! for it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use super::call::{Caller, Change, Held, Reply};
use super::health::Health;
use super::hold::Hold;
use super::scope::Scope;
use crate::disposition::Deferral;
use crate::policy::{CircuitBreaker, RetryPolicy};

/// Scopes that failed lately, most of which come from messages; those beyond are not
/// protected.
const MAX_SCOPES: usize = 10_000;
/// The health of the downstream services.
pub(crate) struct Protection {
    max_pause: Option<Duration>,
    circuit_breaker: Option<CircuitBreaker>,
    /// Those that failed, and nothing is known of their recovery.
    scopes: Mutex<HashMap<Scope, Health>>,
    /// Whether a message had a key: the next one may have another.
    is_keyed: AtomicBool,
    /// Holds so far, of whatever scope. A scope that recovered is forgotten, and the probe of an
    /// earlier hold may still be on its way.
    holds: AtomicU64,
}

/// The one scope of all messages is held: most that come now could only be deferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standstill {
    pub(crate) why: Deferral,
    /// Until messages may probe; zero if they may now.
    pub(crate) rest: Duration,
    /// How many of them may.
    pub(crate) permits: u32,
    /// Tells one hold from the next.
    pub(crate) hold: u64,
}

impl Protection {
    pub(crate) fn new(policy: &RetryPolicy) -> Arc<Self> {
        let RetryPolicy { max_pause, circuit_breaker, .. } = policy;
        Arc::new(Self {
            max_pause: *max_pause,
            circuit_breaker: circuit_breaker.clone(),
            scopes: Mutex::default(),
            is_keyed: AtomicBool::new(false),
            holds: AtomicU64::new(0),
        })
    }

    fn scopes(&self) -> MutexGuard<'_, HashMap<Scope, Health>> {
        self.scopes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether messages have one scope in common, and it is held. That they had one key so far does
    /// not say that the next one has it.
    pub(crate) fn standstill(&self, now: SystemTime) -> Option<Standstill> {
        if self.is_keyed.load(Ordering::Relaxed) {
            return None;
        }
        let mut scopes = self.scopes();
        let hold = scopes
            .get_mut(&Scope::default())?
            .hold
            .as_mut()
            .filter(|hold| !hold.has_lapsed(now))?;
        let permits = hold.permits.saturating_sub(hold.given.iter().sum());
        Some(Standstill { why: hold.why, rest: hold.rest(now), permits, hold: hold.number })
    }

    fn note_use(&self, scope: Scope) {
        if scope != Scope::default() {
            self.is_keyed.store(true, Ordering::Relaxed);
        }
    }

    /// Lets a message through, unless its scope is held. The first ones after a hold probes: until
    /// a permit of theirs is given back, the others are held.
    pub(crate) fn admit(
        self: &Arc<Self>,
        scope: Scope,
        caller: Caller,
        now: SystemTime,
    ) -> Result<Permit, Held> {
        self.note_use(scope);
        let mut scopes = self.scopes();
        let Some(Health { hold: Some(hold), .. }) = scopes.get_mut(&scope) else {
            return Ok(self.permit(scope, caller));
        };
        if hold.has_lapsed(now) {
            scopes.remove(&scope);
            return Ok(self.permit(scope, caller));
        }
        if let Err(rest) = hold.probe(caller, now) {
            return Err(Held { why: hold.why, rest });
        }
        Ok(Permit { protection: Arc::clone(self), scope, caller, probes: Some(hold.number) })
    }

    /// For a message that is not to be held.
    pub(crate) fn permit(self: &Arc<Self>, scope: Scope, caller: Caller) -> Permit {
        self.note_use(scope);
        Permit { protection: Arc::clone(self), scope, caller, probes: None }
    }

    /// Notes the result of a call.
    fn note(&self, permit: &Permit, reply: Reply, now: SystemTime) -> Option<Change> {
        let mut scopes = self.scopes();
        let hold = scopes.get(&permit.scope).and_then(Health::current);
        // A call that began before the hold says nothing about its end.
        let is_free = hold.is_none() || hold == permit.probes;
        match (reply, self.max_pause) {
            (Reply::Paused(delay), Some(longest)) => {
                let health = health_of(&mut scopes, permit.scope, now)?;
                let was_open = health.is_open();
                let length = delay.min(longest);
                let replaces =
                    is_free || health.hold.as_mut().is_none_or(|other| other.rest(now) < length);
                if !replaces {
                    return None;
                }
                health.answer();
                health.hold = Some(Hold::pause(self.number(), now, length));
                was_open.then_some(Change::Closed)
            }
            (Reply::Alive | Reply::Paused(_), _) if is_free => {
                let health = scopes.get_mut(&permit.scope)?;
                let was_open = health.is_open();
                health.answer();
                health.hold = None;
                if health.is_over() {
                    scopes.remove(&permit.scope);
                }
                was_open.then_some(Change::Closed)
            }
            (Reply::Down, _) if is_free => {
                let Some(breaker) = &self.circuit_breaker else {
                    scopes.remove(&permit.scope);
                    return None;
                };
                let health = health_of(&mut scopes, permit.scope, now)?;
                health.fail(permit.caller, breaker);
                let is_down = health.is_down();
                match &mut health.hold {
                    Some(hold) if hold.why == Deferral::CircuitOpen => {
                        hold.failed += 1;
                        if hold.failed >= hold.permits {
                            let open = hold.reopen(self.number(), breaker, is_down, now);
                            health.hold = Some(open);
                        }
                        None
                    }
                    _ => {
                        let opens = health.opens(breaker);
                        health.hold = opens.then(|| Hold::open(self.number(), breaker, now));
                        opens.then_some(Change::Opened)
                    }
                }
            }
            (Reply::Alive | Reply::Paused(_) | Reply::Down | Reply::Silent, _) => None,
        }
    }

    /// Of the next hold.
    fn number(&self) -> u64 {
        self.holds.fetch_add(1, Ordering::Relaxed)
    }

    /// Lets another message probe a hold, if it is the current one still.
    fn release(&self, scope: Scope, caller: Caller, probed: u64) {
        if let Some(health) =
            self.scopes().get_mut(&scope).filter(|health| health.current() == Some(probed))
            && let Some(hold) = &mut health.hold
        {
            hold.given[usize::from(caller.has_failed)] -= 1;
        }
    }
}

/// The entry of a scope, a new one if need be; `None` when there is no room for it.
fn health_of(
    scopes: &mut HashMap<Scope, Health>,
    scope: Scope,
    now: SystemTime,
) -> Option<&mut Health> {
    if scopes.len() >= MAX_SCOPES && !scopes.contains_key(&scope) {
        scopes.retain(|_, health| {
            health.hold.as_mut().is_some_and(|hold| hold.is_probed() || !hold.rest(now).is_zero())
        });
    }
    (scopes.len() < MAX_SCOPES || scopes.contains_key(&scope))
        .then(|| scopes.entry(scope).or_insert_with(Health::new))
}

/// The leave to call, to be given back with the result of the call.
pub(crate) struct Permit {
    protection: Arc<Protection>,
    scope: Scope,
    caller: Caller,
    /// The hold that this call is to probe.
    probes: Option<u64>,
}

impl Permit {
    pub(crate) fn give_back(mut self, reply: Reply, now: SystemTime) -> Option<Change> {
        let change = self.protection.note(&self, reply, now);
        if reply != Reply::Silent {
            self.probes = None;
        }
        change
    }
}

impl Drop for Permit {
    /// Nobody learned the result of the call, so another one may probe.
    fn drop(&mut self) {
        if let Some(probed) = self.probes {
            self.protection.release(self.scope, self.caller, probed);
        }
    }
}
