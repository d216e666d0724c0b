//! The rate limits of the scopes, which all execution environments keep together. Messages of one
//! scope that ask at the same time ask by one request.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::Notify;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::fallback::Fallback;
use super::{Fleet, SharedHolds, expires};
use crate::disposition::Deferral;
use crate::gate::Scope;
use crate::limit::{Admission, Ask, Claim, KnownLimit, LimitState};
use crate::policy::RateLimit;
use crate::store::{Field, Item, StoreError};

mod recovery;

/// The most scopes whose state is remembered. It is only a guess of the store's, so it may be lost.
const MAX_SCOPES: usize = 10_000;
/// The most requests for the messages that ask together.
const MAX_REQUESTS: u32 = 3;
/// The other messages of a batch ask within this time after the first one, unless something else
/// prevents their calls.
const TOGETHER: Duration = Duration::from_millis(1);

/// A throttled store is asked once more after half of this to one and a half. Then most messages keep
/// about their order, and need no copy to ask again.
const LATER: Duration = Duration::from_millis(200);

/// The rate limits of one policy, in the store.
#[derive(Debug)]
pub(crate) struct SharedLimits {
    fleet: Arc<Fleet>,
    /// The queue of the policy; empty for the policy of all other queues.
    queue: String,
    /// They are in the same items, so each answer tells of them.
    holds: Option<Arc<SharedHolds>>,
    scopes: Mutex<HashMap<Scope, ScopeState>>,
}

/// The state of a scope in this execution environment.
#[derive(Debug, Default)]
struct ScopeState {
    /// The store's state, as last seen.
    seen: LimitState,
    fallback: Fallback,
    /// The limit, and since when it is known.
    known: Option<KnownLimit>,
    waiting: Vec<Asker>,
    /// How many are to ask together.
    expected: usize,
    /// Notified when so many wait.
    complete: Arc<Notify>,
    /// Whether a task asks for the messages that wait.
    is_asked: bool,
    /// How often in a row the store took no requests.
    throttled: u32,
}

/// A message that asks.
#[derive(Debug)]
struct Asker {
    limit: KnownLimit,
    ask: Ask,
    longest: Duration,
    sample: f64,
    answer: oneshot::Sender<Admitted>,
}

/// The answer to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admitted {
    /// By the limit.
    By(Admission),
    /// The store did not decide, for this number of times in a row.
    PutOff { why: Deferral, times: u32 },
}

impl SharedLimits {
    pub(crate) fn new(fleet: Arc<Fleet>, queue: String) -> Self {
        Self { fleet, queue, holds: None, scopes: Mutex::default() }
    }

    /// Tells these holds of each answer.
    pub(crate) fn telling(self, holds: Option<&Arc<SharedHolds>>) -> Self {
        Self { holds: holds.map(Arc::clone), ..self }
    }

    /// The longest time until a message is admitted.
    pub(crate) fn patience(&self) -> Duration {
        self.fleet.patience().saturating_mul(MAX_REQUESTS + 1) + LATER.mul_f64(1.5)
    }

    /// Admits one message, which can wait for its slot as long as `longest`. So many `others` are
    /// about to ask.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        scope: Scope,
        limit: &RateLimit,
        ask: Ask,
        longest: Duration,
        sample: f64,
        others: usize,
    ) -> Admitted {
        let (answer, admitted) = oneshot::channel();
        {
            let mut scopes = self.scopes();
            if scopes.len() >= MAX_SCOPES && !scopes.contains_key(&scope) {
                scopes.retain(|_, state| state.is_asked);
            }
            let state = scopes.entry(scope).or_default();
            let limit = state.known(limit, &self.fleet);
            state.waiting.push(Asker { limit, ask, longest, sample, answer });
            state.expected = state.expected.max(state.waiting.len() + others);
            if state.waiting.len() >= state.expected {
                state.complete.notify_one();
            }
            if !mem::replace(&mut state.is_asked, true) {
                let asking = AskTask { limits: Arc::clone(self), scope, is_over: false };
                tokio::spawn(asking.ask());
            }
        }
        // The task ends without an answer if its runtime does.
        admitted.await.unwrap_or(Admitted::PutOff { why: Deferral::StoreUnavailable, times: 1 })
    }

    /// Tells all execution environments that the service refused a call.
    pub(crate) async fn refused(&self, scope: Scope, limit: &RateLimit, asked: SystemTime) {
        let fleet = &self.fleet;
        let asked = fleet.shared(asked);
        let key = fleet.scope_key(&self.queue, scope);
        for _ in 0..MAX_REQUESTS {
            let now = fleet.now();
            let (seen, next, end) = {
                let mut scopes = self.scopes();
                let state = scopes.entry(scope).or_default();
                let (known, seen) = (state.known(limit, fleet), state.seen);
                let Some(next) = seen.refused(&known, asked, now) else { return };
                // Further refused calls of this environment need not be told.
                state.seen = next;
                (seen, next, Claim::new(&known, next, now).in_use_until())
            };
            let end = end.max(self.held_until(scope));
            let update = seen.pace_update(&next).set(Field::EXPIRES, expires(end));
            // If the store does not know of this one, it will of the next one.
            let Ok(answer) = fleet.update(&key, &update).await else { return };
            let before = LimitState::of(&answer.before);
            let seen = if answer.is_changed { before.at_pace_of(&next) } else { before };
            self.scopes().entry(scope).or_default().seen = seen;
            if answer.is_changed {
                return;
            }
        }
    }

    /// The end of the hold in the same item, as last seen.
    fn held_until(&self, scope: Scope) -> SystemTime {
        let holds = self.holds.as_ref();
        holds.map_or(SystemTime::UNIX_EPOCH, |holds| holds.health(scope).end(self.fleet.now()))
    }

    fn scopes(&self) -> MutexGuard<'_, HashMap<Scope, ScopeState>> {
        self.scopes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ScopeState {
    /// This limit, and since when it is known.
    fn known(&mut self, limit: &RateLimit, fleet: &Fleet) -> KnownLimit {
        let since = match self.known {
            Some(known) if known.limit == *limit => return known,
            Some(_) => fleet.now(),
            None => fleet.started,
        };
        *self.known.insert(KnownLimit::new(*limit, since))
    }
}

/// The task that asks for the messages of a scope.
struct AskTask {
    limits: Arc<SharedLimits>,
    scope: Scope,
    is_over: bool,
}

impl Drop for AskTask {
    /// The runtime ended the task. The next message begins a new one.
    fn drop(&mut self) {
        if !self.is_over {
            self.with(|state| (state.is_asked, state.waiting) = (false, Vec::new()));
        }
    }
}

impl AskTask {
    async fn ask(mut self) {
        loop {
            let _ = timeout(TOGETHER, self.gathered()).await;
            let waiting = {
                let mut scopes = self.limits.scopes();
                let state = scopes.entry(self.scope).or_default();
                if state.waiting.is_empty() {
                    // Under the lock, so that no message waits for nobody.
                    state.is_asked = false;
                    self.is_over = true;
                    return;
                }
                state.expected = 0;
                mem::take(&mut state.waiting)
            };
            self.round(waiting).await;
        }
    }

    /// Waits until all ask that are expected to.
    async fn gathered(&self) {
        let complete = self.with(|state| Arc::clone(&state.complete));
        while self.with(|state| state.waiting.len() < state.expected) {
            complete.notified().await;
        }
    }

    /// Asks for these messages together.
    async fn round(&self, mut waiting: Vec<Asker>) {
        let SharedLimits { fleet, queue, .. } = &*self.limits;
        // If the limit changed a moment ago, the last one knows it.
        let Some(limit) = waiting.last().map(|one| one.limit) else { return };
        let key = fleet.scope_key(queue, self.scope);
        let mut seen = self.with(|state| state.seen);
        if !fleet.has_answered() {
            // A clock that is off is corrected before it decides anything.
            match fleet.read(&key).await {
                Ok(answer) => {
                    self.tell(&answer.before);
                    seen = LimitState::of(&answer.before);
                }
                Err(error) => return self.without_answer(&error, waiting),
            }
        }
        let mut may_ask_again = true;
        for _ in 0..MAX_REQUESTS {
            // The others' attempts have ended.
            waiting.retain(|one| !one.answer.is_closed());
            // Slots that pass before the answer would be lost.
            let at = fleet.now() + fleet.latency();
            let mut claim = Claim::new(&limit, seen, at);
            let shares: Vec<_> =
                waiting.iter().map(|one| claim.take(one.ask, one.longest)).collect();
            let before = if claim.is_empty() {
                seen
            } else {
                let in_use_until = claim.in_use_until().max(self.limits.held_until(self.scope));
                let update = claim.update().set(Field::EXPIRES, expires(in_use_until));
                match fleet.update(&key, &update).await {
                    Ok(answer) => {
                        let before = LimitState::of(&answer.before);
                        let mut item = answer.before;
                        let is_changed = answer.is_changed && update.apply(&mut item);
                        self.tell(&item);
                        seen = if is_changed { claim.next(before) } else { before };
                        self.with(|state| {
                            state.seen = seen;
                            if is_changed {
                                state.throttled = 0;
                                state.fallback.note(claim.slots(), at);
                            }
                        });
                        if !is_changed {
                            continue;
                        }
                        before
                    }
                    Err(StoreError::Throttled) if mem::take(&mut may_ask_again) => {
                        let sample = waiting.first().map_or(0.0, |one| one.sample);
                        sleep(LATER.mul_f64(0.5 + sample)).await;
                        continue;
                    }
                    Err(error) => return self.without_answer(&error, waiting),
                }
            };
            let now = fleet.now();
            let mut late = Vec::new();
            for (one, share) in waiting.into_iter().zip(shares) {
                match claim.admission(share, before) {
                    // Slots that passed meanwhile would all be used at once.
                    Admission::Slot(wait) if at + wait + limit.limit.tolerance() < now => {
                        late.push(one);
                    }
                    Admission::Slot(wait) => {
                        let wait = (at + wait).duration_since(now).unwrap_or_default();
                        one.answer(Admitted::By(Admission::Slot(wait)));
                    }
                    Admission::InLine(place, due) => {
                        let due = fleet.local(due);
                        one.answer(Admitted::By(Admission::InLine(place, due)));
                    }
                    refused => one.answer(Admitted::By(refused)),
                }
            }
            waiting = late;
            if waiting.is_empty() {
                return;
            }
        }
        // Too many others change the item at the same time.
        self.put_off(waiting);
    }

    fn without_answer(&self, error: &StoreError, waiting: Vec<Asker>) {
        match error {
            StoreError::Throttled => self.put_off(waiting),
            StoreError::Unavailable(_) => self.alone(waiting),
        }
    }

    fn put_off(&self, waiting: Vec<Asker>) {
        let times = self.with(|state| {
            state.throttled = state.throttled.saturating_add(1);
            state.throttled
        });
        for one in waiting {
            one.answer(Admitted::PutOff { why: Deferral::StoreThrottled, times });
        }
    }

    /// Admits messages without a store: no more than lately.
    fn alone(&self, waiting: Vec<Asker>) {
        let fleet = &*self.limits.fleet;
        let now = fleet.now();
        self.with(|state| {
            for one in waiting {
                // It would not call by its slot, and another could.
                if matches!(one.ask, Ask::Held(_)) {
                    one.answer(Admitted::PutOff { why: Deferral::StoreUnavailable, times: 1 });
                    continue;
                }
                let most = fleet.max_environments;
                let admission = state.fallback.admit(
                    &one.limit.limit,
                    most,
                    state.seen,
                    one.longest,
                    now,
                    one.sample,
                );
                one.answer(match admission {
                    Admission::Slot(_) => Admitted::By(admission),
                    _ => Admitted::PutOff { why: Deferral::StoreUnavailable, times: 1 },
                });
            }
        });
    }

    /// An answer tells of the pause and of the circuit too.
    fn tell(&self, item: &Item) {
        if let Some(holds) = &self.limits.holds {
            holds.note(self.scope, item);
        }
    }

    fn with<T>(&self, change: impl FnOnce(&mut ScopeState) -> T) -> T {
        change(self.limits.scopes().entry(self.scope).or_default())
    }
}

impl Asker {
    /// Nobody waits any more for a message whose attempt has ended.
    fn answer(self, admitted: Admitted) {
        let _ = self.answer.send(admitted);
    }
}
