//! Pause and circuit breaker: decides which messages may call their downstream service, by scope.
//! All batches of an execution environment share it. It decides by its arguments alone and reads no
//! clock.
//!
//! [`CircuitBreaker`] has the settings, and this module the state.

use std::collections::HashMap;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use super::call::{Caller, Change, NotPermitted, Noted, Reply};
use super::health::Health;
use super::pause::{Pause, Recovery};
use crate::disposition::Deferral;
use crate::limit::{epoch_nanos, nanos};
use crate::lock::lock;
use crate::policy::{CircuitBreaker, RetryPolicy};
use crate::scope::Scope;

/// The most scopes that are remembered after a failure. Further scopes are not protected.
const MAX_SCOPES: usize = 10_000;

pub(crate) struct Protection {
    max_pause: Option<Duration>,
    circuit_breaker: Option<CircuitBreaker>,
    /// The scopes that failed and have not recovered.
    scopes: Mutex<HashMap<Scope, Health>>,
    /// Whether any message had a key. If so, the next may have another key.
    is_keyed: AtomicBool,
    /// The time of the last success in each scope. It may be dropped.
    served: Mutex<HashMap<Scope, SystemTime>>,
    /// The number of pauses so far, in all scopes. A scope that recovered is dropped, but a probe
    /// of its earlier pause may still run.
    pauses: AtomicU64,
}

/// A pause of the scope that all messages share, so most messages could only be deferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standstill {
    pub(crate) why: Deferral,
    /// The time until messages may probe; zero if they may now.
    pub(crate) rest: Duration,
    /// The time until any message may probe.
    pub(crate) rest_for_all: Duration,
    pub(crate) permits: u32,
    /// The number of the pause. The next pause has another one.
    pub(crate) pause: u64,
}

impl Protection {
    pub(crate) fn new(policy: &RetryPolicy) -> Arc<Self> {
        let RetryPolicy { max_pause, circuit_breaker, .. } = policy;
        Arc::new(Self {
            max_pause: *max_pause,
            circuit_breaker: circuit_breaker.clone(),
            scopes: Mutex::default(),
            is_keyed: AtomicBool::new(false),
            served: Mutex::default(),
            pauses: AtomicU64::new(0),
        })
    }

    pub(super) fn scopes(&self) -> MutexGuard<'_, HashMap<Scope, Health>> {
        lock(&self.scopes)
    }

    fn served(&self) -> MutexGuard<'_, HashMap<Scope, SystemTime>> {
        lock(&self.served)
    }

    /// The pause, if all messages share one scope and it is paused.
    pub(crate) fn standstill(&self, now: SystemTime) -> Option<Standstill> {
        if self.is_keyed.load(Ordering::Relaxed) {
            return None;
        }
        let mut scopes = self.scopes();
        let pause = scopes
            .get_mut(&Scope::default())?
            .pause
            .as_mut()
            .filter(|pause| !pause.has_lapsed(now))?;
        Some(Standstill {
            why: pause.why,
            rest: pause.rest(now),
            rest_for_all: pause.rest_for_all(now),
            permits: pause.permits_left(),
            pause: pause.number,
        })
    }

    pub(crate) fn pauses(&self, now: SystemTime) -> Vec<(Scope, NotPermitted)> {
        self.scopes()
            .iter_mut()
            .filter_map(|(scope, health)| {
                let pause = health.pause.as_mut().filter(|pause| !pause.has_lapsed(now));
                let now = pause.map(|pause| NotPermitted { why: pause.why, rest: pause.rest(now) });
                // In an outage for few messages, each of them probes.
                let few = NotPermitted { why: Deferral::CircuitOpen, rest: Duration::ZERO };
                now.or(health.has_opened.then_some(few)).map(|paused| (*scope, paused))
            })
            .collect()
    }

    fn note_use(&self, scope: Scope) {
        if scope != Scope::default() {
            self.is_keyed.store(true, Ordering::Relaxed);
        }
    }

    /// Permits a call, unless the scope is paused. After a pause, the first messages probe.
    pub(crate) fn admit(
        self: &Arc<Self>,
        scope: Scope,
        caller: Caller,
        now: SystemTime,
    ) -> Result<Permit, NotPermitted> {
        self.note_use(scope);
        let mut scopes = self.scopes();
        if let Some(health) = scopes.get_mut(&scope)
            && health.pause.as_ref().is_some_and(|pause| pause.has_lapsed(now))
        {
            health.forget_pause();
            if health.is_over(now) {
                scopes.remove(&scope);
            }
        }
        let Some(Health { pause: Some(pause), .. }) = scopes.get_mut(&scope) else {
            return Ok(self.permit(scope, caller));
        };
        if let Err(rest) = pause.probe(caller, now) {
            return Err(NotPermitted { why: pause.why, rest });
        }
        let kind = PermitKind::Probe(pause.number);
        Ok(Permit { protection: Arc::clone(self), scope, caller, kind })
    }

    pub(crate) fn recovery(&self, scope: Scope, now: SystemTime) -> Option<Recovery> {
        self.scopes().get(&scope)?.recovery(now)
    }

    /// A permit for a message that no pause defers.
    pub(crate) fn permit(self: &Arc<Self>, scope: Scope, caller: Caller) -> Permit {
        self.note_use(scope);
        Permit { protection: Arc::clone(self), scope, caller, kind: PermitKind::Free }
    }

    /// A permit for a message that calls despite a pause. Its success closes an open circuit, but
    /// does not end a pause that the service asked for.
    pub(crate) fn permit_despite(self: &Arc<Self>, scope: Scope, caller: Caller) -> Permit {
        let open = self.scopes().get(&scope).filter(|health| health.is_open()).map(Health::current);
        let kind = open.flatten().map_or(PermitKind::Free, PermitKind::Despite);
        self.note_use(scope);
        Permit { protection: Arc::clone(self), scope, caller, kind }
    }

    fn note(&self, permit: &Permit, reply: Reply, now: SystemTime) -> Noted {
        if reply == Reply::Alive {
            let mut served = self.served();
            if served.len() >= MAX_SCOPES {
                served.clear();
            }
            served.insert(permit.scope, now);
        }
        let mut scopes = self.scopes();
        let change = self.change(&mut scopes, permit, reply, now);
        let mut health = scopes.get_mut(&permit.scope);
        let pause = health.as_mut().and_then(|health| health.pause.as_mut());
        let rest = pause.map_or(Duration::ZERO, |pause| pause.rest(now));
        let least_wait = health
            .zip(self.circuit_breaker.as_ref())
            .filter(|_| reply.speaks_of_service())
            .filter(|(health, breaker)| self.serves_nobody(health, breaker, permit))
            .map(|(health, breaker)| match reply {
                Reply::Unavailable => health.least_wait(breaker, now),
                _ => Duration::ZERO,
            });
        Noted { change, rest, least_wait }
    }

    fn change(
        &self,
        scopes: &mut HashMap<Scope, Health>,
        permit: &Permit,
        reply: Reply,
        now: SystemTime,
    ) -> Option<Change> {
        let pause = scopes.get(&permit.scope).and_then(Health::current);
        // A call that began before the pause is no evidence about its end.
        let is_free = pause.is_none() || pause.map(PermitKind::Probe) == Some(permit.kind);
        let is_despite = pause.map(PermitKind::Despite) == Some(permit.kind);
        match (reply, self.max_pause) {
            (Reply::Paused(delay), Some(longest)) => {
                let health = health_of(scopes, permit.scope, now)?;
                health.serve(false);
                let length = delay.min(longest);
                let rest = health.pause.as_mut().map(|other| other.rest(now));
                let replaces = |length| is_free || rest.is_none_or(|rest| rest < length);
                if !replaces(length) {
                    return None;
                }
                health.answer(epoch_nanos(now).saturating_add(nanos(length)));
                health.pause = Some(Pause::asked_for(self.number(), now, length));
                let was_open = mem::take(&mut health.has_opened);
                // Calls that were made together ask for about the same pause.
                (was_open || replaces(length / 10 * 9)).then_some(Change::Paused { was_open })
            }
            (Reply::Alive | Reply::Refused | Reply::Paused(_), _) if is_free || is_despite => {
                let is_served = reply == Reply::Alive || self.circuit_breaker.is_none();
                let health = if is_served {
                    scopes.get_mut(&permit.scope)?
                } else {
                    health_of(scopes, permit.scope, now)?
                };
                health.answer(epoch_nanos(now));
                health.serve(is_served);
                health.pause = None;
                let was_open = mem::take(&mut health.has_opened);
                if health.is_over(now) {
                    scopes.remove(&permit.scope);
                }
                was_open.then_some(Change::Closed)
            }
            (Reply::Unavailable | Reply::Down, _) if is_free => {
                let Some(breaker) = &self.circuit_breaker else {
                    scopes.remove(&permit.scope);
                    return None;
                };
                let health = health_of(scopes, permit.scope, now)?;
                self.fail(health, permit.caller, reply, breaker, now);
                let is_open = health.is_open()
                    || reply == Reply::Unavailable && self.serves_nobody(health, breaker, permit);
                let opens = is_open && !health.has_opened;
                health.has_opened |= is_open;
                opens.then_some(Change::Opened)
            }
            (Reply::Silent, _) if pause.map(PermitKind::Probe) == Some(permit.kind) => {
                scopes.get_mut(&permit.scope)?.pause.as_mut()?.note_silence(now);
                None
            }
            _ => None,
        }
    }

    /// Notes a failure, which may open the circuit or lengthen its pause.
    fn fail(
        &self,
        health: &mut Health,
        caller: Caller,
        reply: Reply,
        breaker: &CircuitBreaker,
        now: SystemTime,
    ) {
        health.fail(caller, breaker);
        if reply == Reply::Unavailable {
            health.serve(false);
        }
        let is_down = health.as_row().is_outage();
        match &mut health.pause {
            Some(pause) if pause.why == Deferral::CircuitOpen => {
                pause.failed += 1;
                if pause.failed >= pause.permits.all {
                    health.pause = Some(pause.reopen(self.number(), breaker, is_down, now));
                }
            }
            _ => {
                let opens = health.opens(breaker);
                health.pause = opens.then(|| Pause::open(self.number(), breaker, now));
            }
        }
    }

    /// Whether the service serves no message. Failures of a message in other environments count if
    /// no call of its scope succeeded here since its first receive.
    fn serves_nobody(&self, health: &Health, breaker: &CircuitBreaker, permit: &Permit) -> bool {
        let Permit { scope, caller, .. } = permit;
        let is_believed = self.served().get(scope).is_none_or(|served| caller.since > *served);
        let of_message = if is_believed { caller.failures.saturating_add(1) } else { 0 };
        health.serves_nobody(of_message, breaker)
    }

    fn number(&self) -> u64 {
        self.pauses.fetch_add(1, Ordering::Relaxed)
    }

    /// Lets another message probe a pause, if it is still the current one.
    fn release(&self, scope: Scope, caller: Caller, probed: u64) {
        if let Some(health) =
            self.scopes().get_mut(&scope).filter(|health| health.current() == Some(probed))
            && let Some(pause) = &mut health.pause
        {
            pause.given[usize::from(caller.has_failed())] -= 1;
        }
    }
}

/// The entry of a scope, a new one if necessary; `None` if there is no room for it.
fn health_of(
    scopes: &mut HashMap<Scope, Health>,
    scope: Scope,
    now: SystemTime,
) -> Option<&mut Health> {
    if scopes.len() >= MAX_SCOPES && !scopes.contains_key(&scope) {
        scopes.retain(|_, health| {
            health
                .pause
                .as_mut()
                .is_some_and(|pause| pause.is_probed() || !pause.rest(now).is_zero())
        });
    }
    (scopes.len() < MAX_SCOPES || scopes.contains_key(&scope))
        .then(|| scopes.entry(scope).or_insert_with(Health::new))
}

/// The permission to call. It is returned with the result of the call.
pub(crate) struct Permit {
    protection: Arc<Protection>,
    pub(crate) scope: Scope,
    caller: Caller,
    kind: PermitKind,
}

/// The relation of a call to the pause of that number.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PermitKind {
    /// None: the pause is over, or there was none.
    Free,
    Probe(u64),
    /// It calls despite an open circuit.
    Despite(u64),
}

impl Permit {
    pub(crate) fn is_probe(&self) -> bool {
        matches!(self.kind, PermitKind::Probe(_))
    }

    pub(crate) fn give_back(mut self, reply: Reply, now: SystemTime) -> Noted {
        let effect = self.protection.note(&self, reply, now);
        if !matches!(reply, Reply::Silent | Reply::Uncalled) {
            self.kind = PermitKind::Free;
        }
        effect
    }
}

impl Drop for Permit {
    /// The result of the call was lost, so another message may probe.
    fn drop(&mut self) {
        if let PermitKind::Probe(probed) = self.kind {
            self.protection.release(self.scope, self.caller, probed);
        }
    }
}
