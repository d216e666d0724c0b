//! Pause and circuit breaker: what is known of the callee of each scope, shared by all batches of
//! an execution environment. Decides by the values it is given; reads no clock.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use crate::delivery::Delivery;
use crate::disposition::Deferral;
use crate::failure::{Evidence, Failure, FailureClass};
use crate::policy::{CircuitBreaker, RetryPolicy};

/// Scopes in trouble at the same time, most of which come from messages; those beyond are not
/// protected.
const MAX_SCOPES: usize = 10_000;
/// The calls of a scope by which its failure rate is known: a bit for each.
const WINDOW: u32 = u128::BITS;
/// After so many answers in a row a service works again: one that answers only some calls hardly
/// gets there by chance.
const RECOVERED: u32 = 16;
/// A row of failures opens the circuit when it is at most so many times as long as the threshold,
/// however few calls are answered.
const LONGEST_ROW: u32 = 10;
/// How long a circuit is open at first, and by what that is multiplied when its probes fail, up to
/// the reset timeout. So a circuit that opened by chance costs a moment.
const FIRST_OPEN: Duration = Duration::from_secs(1);
const OPEN_GROWTH: u32 = 3;
/// Messages that probe together.
const PROBES: u32 = 3;

/// What messages share that call the same thing: its trouble with one of them keeps the others
/// back, and none of another scope.
///
/// ```
/// use requeue::Scope;
/// assert_eq!(Scope::of("tenant 7"), Scope::of(&"tenant 7".to_owned()));
/// assert_ne!(Scope::of("tenant 7"), Scope::default());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Scope(pub(super) Option<u64>);

impl Scope {
    /// By a key such as the host or the tenant, of which only a hash is kept. The default is the
    /// scope of all messages where none has a key: a [`Worker`](crate::Worker) that has only met it
    /// takes it for that of the next ones too.
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

/// What is known of a scope that failed.
struct Trouble {
    /// The calls before the current row of failures: a bit for each, the newest one lowest, set if
    /// it was answered.
    answered: u128,
    /// Calls that failed since the last one that was answered.
    row: u32,
    /// Their messages: no more than the threshold. One that always fails says more about itself
    /// than about the callee, and counts once.
    failed: Vec<u64>,
    hold: Option<Hold>,
}

/// Messages are kept back for a time; then some of them probe.
struct Hold {
    number: u64,
    why: Deferral,
    since: SystemTime,
    length: Duration,
    /// Messages that may probe.
    permits: u32,
    /// How many of them are meant for messages that never failed, and for those that did. Either
    /// may fail for its own reasons while the callee works for the other.
    shares: [u32; 2],
    /// Permits that were given out, in the same order.
    given: [u32; 2],
    /// Probes that failed.
    failed: u32,
}

impl Hold {
    /// What is left of it. Should the clock be set back, it begins anew: it must not last longer
    /// than it was meant to.
    fn rest(&mut self, now: SystemTime) -> Duration {
        self.since = self.since.min(now);
        self.length.saturating_sub(now.duration_since(self.since).unwrap_or_default())
    }

    /// Gives the message a permit to probe, or says how long it has to wait for one: zero when all
    /// are given out. A permit that is meant for another kind of message is given to this one when
    /// none of those came for as long again as the hold lasted.
    fn probe(&mut self, caller: Caller, now: SystemTime) -> Result<(), Duration> {
        let rest = self.rest(now);
        if !rest.is_zero() {
            return Err(rest);
        }
        if self.given.iter().sum::<u32>() >= self.permits {
            return Err(Duration::ZERO);
        }
        let kind = usize::from(caller.has_failed);
        if self.given[kind] >= self.shares[kind] {
            let age = now.duration_since(self.since).unwrap_or_default();
            let rest = self.length.saturating_mul(2).saturating_sub(age);
            if !rest.is_zero() {
                return Err(rest);
            }
        }
        self.given[kind] += 1;
        Ok(())
    }

    fn is_probed(&self) -> bool {
        self.given != [0, 0]
    }

    /// Whether it is a pause that ended as long ago as it lasted, and nobody came to probe: that
    /// the callee asked for one then says nothing any more. A circuit stays open: the callee did
    /// not work.
    fn has_lapsed(&self, now: SystemTime) -> bool {
        let age = now.duration_since(self.since).unwrap_or_default();
        self.why == Deferral::Paused && !self.is_probed() && age >= self.length.saturating_mul(2)
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
    pub(crate) fn of(delivery: &Delivery) -> Self {
        Self { message: hash(&delivery.original_id()), has_failed: delivery.retries() > 0 }
    }
}

/// A message is not to be handled now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) why: Deferral,
    /// What is left of the pause, or until the circuit lets a message through; zero while one is on
    /// probation.
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
            (
                _,
                Evidence::Panic | Evidence::Unrecognised | Evidence::Body | Evidence::Connection,
                _,
            ) => Self::Silent,
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
            is_keyed: AtomicBool::new(false),
            holds: AtomicU64::new(0),
        })
    }

    fn scopes(&self) -> MutexGuard<'_, HashMap<Scope, Trouble>> {
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
        let Some(Trouble { hold: Some(hold), .. }) = scopes.get_mut(&scope) else {
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

    /// Notes what a call said.
    fn note(&self, permit: &Permit, reply: Reply, now: SystemTime) -> Option<Change> {
        let mut scopes = self.scopes();
        let hold = scopes.get(&permit.scope).and_then(Trouble::current);
        // A call that began before the hold says nothing about its end.
        let is_free = hold.is_none() || hold == permit.probes;
        match (reply, self.max_pause) {
            (Reply::Paused(delay), Some(longest)) => {
                let trouble = trouble_of(&mut scopes, permit.scope, now)?;
                let was_open = trouble.is_open();
                let length = delay.min(longest);
                let replaces =
                    is_free || trouble.hold.as_mut().is_none_or(|other| other.rest(now) < length);
                if !replaces {
                    return None;
                }
                trouble.answer();
                trouble.hold = Some(self.pause(now, length));
                was_open.then_some(Change::Closed)
            }
            (Reply::Alive | Reply::Paused(_), _) if is_free => {
                let trouble = scopes.get_mut(&permit.scope)?;
                let was_open = trouble.is_open();
                trouble.answer();
                trouble.hold = None;
                if trouble.is_over() {
                    scopes.remove(&permit.scope);
                }
                was_open.then_some(Change::Closed)
            }
            (Reply::Down, _) if is_free => {
                let Some(breaker) = &self.circuit_breaker else {
                    scopes.remove(&permit.scope);
                    return None;
                };
                let trouble = trouble_of(&mut scopes, permit.scope, now)?;
                trouble.fail(permit.caller, breaker);
                let is_down = trouble.is_down();
                match &mut trouble.hold {
                    Some(hold) if hold.why == Deferral::CircuitOpen => {
                        hold.failed += 1;
                        if hold.failed >= hold.permits {
                            let open = self.reopen(hold, breaker, is_down, now);
                            trouble.hold = Some(open);
                        }
                        None
                    }
                    _ => {
                        let opens = trouble.opens(breaker);
                        trouble.hold = opens.then(|| self.open(breaker, now));
                        opens.then_some(Change::Opened)
                    }
                }
            }
            (Reply::Alive | Reply::Paused(_) | Reply::Down | Reply::Silent, _) => None,
        }
    }

    /// One message is to probe, whichever it is.
    fn pause(&self, since: SystemTime, length: Duration) -> Hold {
        self.hold(Deferral::Paused, since, length, 1, [1, 1])
    }

    fn open(&self, breaker: &CircuitBreaker, since: SystemTime) -> Hold {
        let length = FIRST_OPEN.min(breaker.reset_timeout);
        self.hold(Deferral::CircuitOpen, since, length, PROBES, [PROBES - 1; 2])
    }

    /// After all probes failed. A service that answers some calls is probed more often. For one
    /// that answers nothing, one message at a time is enough in the end: in turn one that failed
    /// before and one that did not.
    fn reopen(
        &self,
        last: &Hold,
        breaker: &CircuitBreaker,
        is_down: bool,
        since: SystemTime,
    ) -> Hold {
        let longest =
            if is_down { breaker.reset_timeout } else { breaker.reset_timeout / OPEN_GROWTH };
        let length = last.length.saturating_mul(OPEN_GROWTH).min(longest);
        if !is_down || length < longest {
            return self.hold(Deferral::CircuitOpen, since, length, PROBES, [PROBES - 1; 2]);
        }
        let shares = if last.shares == [0, 1] { [1, 0] } else { [0, 1] };
        self.hold(Deferral::CircuitOpen, since, length, 1, shares)
    }

    fn hold(
        &self,
        why: Deferral,
        since: SystemTime,
        length: Duration,
        permits: u32,
        shares: [u32; 2],
    ) -> Hold {
        let number = self.holds.fetch_add(1, Ordering::Relaxed);
        Hold { number, why, since, length, permits, shares, given: [0, 0], failed: 0 }
    }

    /// Lets another message probe a hold, if it is the current one still.
    fn release(&self, scope: Scope, caller: Caller, probed: u64) {
        if let Some(trouble) =
            self.scopes().get_mut(&scope).filter(|trouble| trouble.current() == Some(probed))
            && let Some(hold) = &mut trouble.hold
        {
            hold.given[usize::from(caller.has_failed)] -= 1;
        }
    }
}

impl Trouble {
    /// So far all was well.
    fn new() -> Self {
        Self { answered: u128::MAX, row: 0, failed: Vec::new(), hold: None }
    }

    /// The number of the hold that is on.
    fn current(&self) -> Option<u64> {
        self.hold.as_ref().map(|hold| hold.number)
    }

    fn is_open(&self) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.why == Deferral::CircuitOpen)
    }

    /// Nothing is left to know.
    fn is_over(&self) -> bool {
        self.hold.is_none() && self.answered == u128::MAX
    }

    /// Notes a call that was answered.
    fn answer(&mut self) {
        if self.is_open() && self.is_down() {
            // How well the service worked before the outage says nothing about the time after it.
            self.answered = 0;
        }
        // A row that is longer than the window leaves nothing else in it.
        self.answered = self.answered.checked_shl(self.row).unwrap_or_default() << 1 | 1;
        if self.answered.trailing_ones() >= RECOVERED {
            self.answered = u128::MAX;
        }
        self.row = 0;
        self.failed.clear();
    }

    /// Notes a failure.
    fn fail(&mut self, caller: Caller, breaker: &CircuitBreaker) {
        self.row = self.row.saturating_add(1);
        if self.failed.len() < threshold(breaker) && !self.failed.contains(&caller.message) {
            self.failed.push(caller.message);
        }
    }

    /// Whether a service whose circuit is open most likely answers nothing. One that answered up to
    /// half of its calls may have failed by chance, unless the row is as long as the window.
    fn is_down(&self) -> bool {
        self.answered.count_ones() > WINDOW / 2 || self.row >= WINDOW
    }

    /// Whether the circuit is to open: so long a row hardly comes about by chance. Where a half of
    /// the calls are answered, it has to be twice as long as where all are.
    fn opens(&self, breaker: &CircuitBreaker) -> bool {
        let answered = self.answered.count_ones().max(WINDOW.div_ceil(LONGEST_ROW));
        let least = breaker.threshold.saturating_mul(WINDOW) / answered;
        self.row >= least && self.failed.len() >= threshold(breaker)
    }
}

fn threshold(breaker: &CircuitBreaker) -> usize {
    usize::try_from(breaker.threshold.max(1)).unwrap_or(usize::MAX)
}

/// The entry of a scope, a new one if need be; `None` when there is no room for it.
fn trouble_of(
    scopes: &mut HashMap<Scope, Trouble>,
    scope: Scope,
    now: SystemTime,
) -> Option<&mut Trouble> {
    if scopes.len() >= MAX_SCOPES && !scopes.contains_key(&scope) {
        scopes.retain(|_, trouble| {
            trouble.hold.as_mut().is_some_and(|hold| hold.is_probed() || !hold.rest(now).is_zero())
        });
    }
    (scopes.len() < MAX_SCOPES || scopes.contains_key(&scope))
        .then(|| scopes.entry(scope).or_insert_with(Trouble::new))
}

/// The leave to call, to be given back with what the call said.
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
    /// Nobody heard what the call said, so another one may probe.
    fn drop(&mut self) {
        if let Some(probed) = self.probes {
            self.protection.release(self.scope, self.caller, probed);
        }
    }
}
