//! Pause and circuit breaker: what is known of the callee of each scope, shared by all batches of an execution environment.
//! Decides by the values it is given; reads no clock.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use crate::disposition::Deferral;
use crate::failure::{Evidence, Failure, FailureClass};
use crate::policy::{CircuitBreaker, RetryPolicy};

/// Scopes in trouble at the same time, most of which come from messages; those beyond are not protected.
const MAX_SCOPES: usize = 10_000;

/// What messages share that call the same thing: its trouble with one of them keeps the others back, and none of another scope.
///
/// ```
/// use requeue::Scope;
/// assert_eq!(Scope::of("tenant 7"), Scope::of(&"tenant 7".to_owned()));
/// assert_ne!(Scope::of("tenant 7"), Scope::default());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Scope(pub(super) Option<u64>);

impl Scope {
    /// By a key such as the host or the tenant, of which only a hash is kept. The default is the scope of messages without a key.
    #[must_use]
    pub fn of(key: &(impl Hash + ?Sized)) -> Self {
        Self(Some(hash(key)))
    }
}

fn hash(key: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

/// What is known of the callees.
pub(crate) struct Protection {
    max_pause: Option<Duration>,
    circuit_breaker: Option<CircuitBreaker>,
    /// Those that gave trouble, and nothing is known of their recovery.
    scopes: Mutex<HashMap<Scope, Trouble>>,
    /// Holds so far, of whatever scope. A scope that recovered is forgotten, and the probe of an earlier hold may still be on its way.
    holds: AtomicU64,
}

#[derive(Default)]
struct Trouble {
    /// The messages whose calls failed since the last one that did not: no more than the threshold. One that always fails says more
    /// about itself than about the callee, and counts once.
    failed: Vec<u64>,
    hold: Option<Hold>,
}

/// Messages are kept back for a time; then one of them probes.
struct Hold {
    number: u64,
    why: Deferral,
    since: SystemTime,
    length: Duration,
    is_probed: bool,
}

impl Hold {
    /// What is left of it. Should the clock be set back, it begins anew: it must not last longer than it was meant to.
    fn rest(&mut self, now: SystemTime) -> Duration {
        self.since = self.since.min(now);
        self.length.saturating_sub(now.duration_since(self.since).unwrap_or_default())
    }

    /// What is left of it for this message. One that failed before is the worse probe: it may fail again though the callee works, and
    /// the others would wait once more for its sake.
    fn rest_for(&mut self, caller: Caller, now: SystemTime) -> Duration {
        let rest = self.rest(now);
        if self.why != Deferral::CircuitOpen || !caller.has_failed {
            return rest;
        }
        self.length.saturating_mul(2).saturating_sub(now.duration_since(self.since).unwrap_or_default())
    }

    /// Whether it is a pause that ended as long ago as it lasted, and nobody came to probe: that the callee asked for one then says
    /// nothing any more. A circuit stays open: the callee did not work.
    fn has_lapsed(&self, now: SystemTime) -> bool {
        let age = now.duration_since(self.since).unwrap_or_default();
        self.why == Deferral::Paused && !self.is_probed && age >= self.length.saturating_mul(2)
    }
}

/// A message that wants to call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The same for all copies of one message.
    pub(crate) message: u64,
    /// Whether a call of it has failed before.
    pub(crate) has_failed: bool,
}

impl Caller {
    pub(crate) fn new(original_id: Option<&str>, has_failed: bool) -> Self {
        Self { message: hash(&original_id), has_failed }
    }
}

/// A message is not to be handled now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) why: Deferral,
    /// What is left of the pause, or until the circuit lets a message through; zero while one is on probation.
    pub(crate) rest: Duration,
}

/// What a call says of its callee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// It works.
    Alive,
    /// It works, and asks for a pause.
    Paused(Duration),
    /// It does not work.
    Down,
    /// Nothing.
    Silent,
}

/// What a call changed for the messages of its scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The circuit is open now.
    Opened,
    /// And now it is closed again.
    Closed,
}

impl Reply {
    pub(crate) fn of(failure: &Failure) -> Self {
        match (failure.class(), failure.evidence(), failure.delay()) {
            // The message was never sent, or nothing is known of what became of it.
            (_, Evidence::Panic | Evidence::Unrecognised | Evidence::Body | Evidence::Connection, _) => Self::Silent,
            (FailureClass::NonRetryable, _, _) => Self::Alive,
            _ if failure.is_postponed() => Self::Alive,
            (FailureClass::RateLimit | FailureClass::Quota, _, Some(delay)) => Self::Paused(delay),
            (FailureClass::RateLimit | FailureClass::Quota, _, None) => Self::Alive,
            (FailureClass::Temporary, _, _) => Self::Down,
        }
    }
}

impl Protection {
    pub(crate) fn new(policy: &RetryPolicy) -> Arc<Self> {
        let RetryPolicy { max_pause, circuit_breaker, .. } = policy;
        Arc::new(Self {
            max_pause: *max_pause,
            circuit_breaker: circuit_breaker.clone(),
            scopes: Mutex::default(),
            holds: AtomicU64::new(0),
        })
    }

    fn scopes(&self) -> MutexGuard<'_, HashMap<Scope, Trouble>> {
        self.scopes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a message through, unless its scope is held. The first one after a hold probes: until its pass is given back, the others
    /// are held.
    pub(crate) fn admit(self: &Arc<Self>, scope: Scope, caller: Caller, now: SystemTime) -> Result<Pass, Held> {
        let mut scopes = self.scopes();
        let Some(Trouble { hold: Some(hold), .. }) = scopes.get_mut(&scope) else {
            return Ok(self.pass(scope, caller));
        };
        if hold.has_lapsed(now) {
            scopes.remove(&scope);
            return Ok(self.pass(scope, caller));
        }
        let rest = hold.rest_for(caller, now);
        if hold.is_probed || !rest.is_zero() {
            return Err(Held { why: hold.why, rest });
        }
        hold.is_probed = true;
        Ok(Pass { protection: Arc::clone(self), scope, caller, probes: Some(hold.number) })
    }

    /// For a message that is not to be held.
    pub(crate) fn pass(self: &Arc<Self>, scope: Scope, caller: Caller) -> Pass {
        Pass { protection: Arc::clone(self), scope, caller, probes: None }
    }

    /// Notes what a call said.
    fn note(&self, pass: &Pass, reply: Reply, now: SystemTime) -> Option<Change> {
        let mut scopes = self.scopes();
        let hold = scopes.get(&pass.scope).and_then(Trouble::current);
        // A call that began before the hold says nothing about its end.
        let is_free = hold.is_none() || hold == pass.probes;
        match (reply, self.max_pause) {
            (Reply::Paused(delay), Some(longest)) => {
                let trouble = trouble_of(&mut scopes, pass.scope, now)?;
                let was_open = trouble.is_open();
                let length = delay.min(longest);
                if is_free || trouble.hold.as_mut().is_none_or(|other| other.rest(now) < length) {
                    *trouble = Trouble { failed: Vec::new(), hold: Some(self.hold(Deferral::Paused, now, length)) };
                }
                (is_free && was_open).then_some(Change::Closed)
            }
            (Reply::Alive | Reply::Paused(_), _) if is_free => {
                let was_open = scopes.remove(&pass.scope).is_some_and(|trouble| trouble.is_open());
                was_open.then_some(Change::Closed)
            }
            (Reply::Down, _) if is_free => {
                let Some(breaker) = &self.circuit_breaker else {
                    scopes.remove(&pass.scope);
                    return None;
                };
                let trouble = trouble_of(&mut scopes, pass.scope, now)?;
                let was_open = trouble.is_open();
                let is_open = trouble.fail(pass.caller, breaker);
                trouble.hold = is_open.then(|| self.hold(Deferral::CircuitOpen, now, breaker.reset_timeout));
                (is_open && !was_open).then_some(Change::Opened)
            }
            (Reply::Alive | Reply::Paused(_) | Reply::Down | Reply::Silent, _) => None,
        }
    }

    fn hold(&self, why: Deferral, since: SystemTime, length: Duration) -> Hold {
        Hold { number: self.holds.fetch_add(1, Ordering::Relaxed), why, since, length, is_probed: false }
    }

    /// Lets another message probe a hold, if it is the current one still.
    fn release(&self, scope: Scope, probed: u64) {
        if let Some(trouble) = self.scopes().get_mut(&scope).filter(|trouble| trouble.current() == Some(probed))
            && let Some(hold) = &mut trouble.hold
        {
            hold.is_probed = false;
        }
    }
}

impl Trouble {
    /// The number of the hold that is on.
    fn current(&self) -> Option<u64> {
        self.hold.as_ref().map(|hold| hold.number)
    }

    fn is_open(&self) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.why == Deferral::CircuitOpen)
    }

    /// Notes a failure. Returns whether the circuit is open after it.
    fn fail(&mut self, caller: Caller, breaker: &CircuitBreaker) -> bool {
        if !self.failed.contains(&caller.message) {
            self.failed.push(caller.message);
        }
        let threshold = usize::try_from(breaker.threshold).unwrap_or(usize::MAX);
        self.is_open() || self.failed.len() >= threshold
    }
}

/// The entry of a scope, a new one if need be; `None` when there is no room for it.
fn trouble_of(scopes: &mut HashMap<Scope, Trouble>, scope: Scope, now: SystemTime) -> Option<&mut Trouble> {
    if scopes.len() >= MAX_SCOPES && !scopes.contains_key(&scope) {
        scopes
            .retain(|_, trouble| trouble.hold.as_mut().is_some_and(|hold| hold.is_probed || !hold.rest(now).is_zero()));
    }
    (scopes.len() < MAX_SCOPES || scopes.contains_key(&scope)).then(|| scopes.entry(scope).or_default())
}

/// The leave to call, to be given back with what the call said.
pub(crate) struct Pass {
    protection: Arc<Protection>,
    scope: Scope,
    caller: Caller,
    /// The hold that this call is to probe.
    probes: Option<u64>,
}

impl Pass {
    pub(crate) fn give_back(mut self, reply: Reply, now: SystemTime) -> Option<Change> {
        let change = self.protection.note(&self, reply, now);
        if reply != Reply::Silent {
            self.probes = None;
        }
        change
    }
}

impl Drop for Pass {
    /// Nobody heard what the call said, so another one may probe.
    fn drop(&mut self) {
        if let Some(probed) = self.probes {
            self.protection.release(self.scope, probed);
        }
    }
}
