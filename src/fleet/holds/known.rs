//! The knowledge of an execution environment about a scope, and the permission to call by it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::{Mutex as AsyncMutex, Notify, oneshot};
use tokio::time::Instant;

use crate::disposition::Deferral;
use crate::fleet::fallback::Fallback;
use crate::gate::{Caller, ProbeLease, Results, SharedHealth};
use crate::limit::{Admission, Ask, KnownLimit, LimitState};
use crate::policy::RateLimit;
use crate::table::{Field, Item, Key};

/// The knowledge of this execution environment about a scope.
#[derive(Debug)]
pub(in crate::fleet) struct HeldScope {
    pub(in crate::fleet) key: Key,
    pub(in crate::fleet) seen: Mutex<Known>,
    /// Held while a request is under way, so that messages that ask together ask once.
    pub(in crate::fleet) asking: AsyncMutex<()>,
    pub(in crate::fleet) limits: Mutex<Askers>,
}

#[derive(Debug, Default)]
pub(in crate::fleet) struct Known {
    pub(in crate::fleet) health: SharedHealth,
    /// The limit in the same item.
    pub(in crate::fleet) limit: LimitState,
    /// The expiry of the item, which the limit in it may need for longer than the hold.
    pub(in crate::fleet) expires: u64,
    /// The time of the last request, even if it got no answer.
    pub(in crate::fleet) asked: Option<Instant>,
    /// Results that are not reported yet, of calls that began in this generation.
    pub(in crate::fleet) pending: (u64, Results),
}

/// The permission to call. The result of the call is told with it.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(in crate::fleet) state: Arc<HeldScope>,
    pub(in crate::fleet) caller: Caller,
    pub(in crate::fleet) generation: u64,
    pub(in crate::fleet) lease: Option<ProbeLease>,
    pub(in crate::fleet) limit: Option<RateLimit>,
}

impl Ticket {
    /// Whether the call probes a hold.
    pub(crate) fn is_probe(&self) -> bool {
        self.lease.is_some()
    }
}

impl HeldScope {
    pub(in crate::fleet) fn seen(&self) -> MutexGuard<'_, Known> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::fleet) fn limits(&self) -> MutexGuard<'_, Askers> {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The end of the hold, as last seen.
    pub(in crate::fleet) fn held_until(&self, now: SystemTime) -> SystemTime {
        self.seen().health.end(now)
    }

    pub(in crate::fleet) fn learn(&self, item: &Item) -> SharedHealth {
        let health = SharedHealth::of(item);
        let mut seen = self.seen();
        (seen.health, seen.asked) = (health, Some(Instant::now()));
        seen.limit = LimitState::of(item);
        seen.expires = item.get(Field::EXPIRES);
        health
    }

    /// A ticket of a scope that is not held.
    pub(in crate::fleet) fn ticket(
        self: &Arc<Self>,
        caller: Caller,
        limit: Option<&RateLimit>,
        health: &SharedHealth,
    ) -> Ticket {
        let (generation, limit) = (health.generation(), limit.copied());
        Ticket { state: Arc::clone(self), caller, generation, lease: None, limit }
    }

    pub(in crate::fleet) fn is_known(&self, lately: Duration) -> bool {
        self.seen().asked.is_some_and(|asked| asked.elapsed() < lately)
    }
}

impl Known {
    /// Notes a response. Returns whether it says something new.
    pub(in crate::fleet) fn answer(&mut self, ticket: &Ticket, now: SystemTime) -> bool {
        let is_new = !(self.health.is_clean(now) && self.pending.1.is_empty());
        if is_new && let Some(pending) = self.pending_of(ticket) {
            pending.answer();
        }
        is_new
    }

    /// The results of this generation, if the ticket is of it.
    pub(in crate::fleet) fn pending_of(&mut self, ticket: &Ticket) -> Option<&mut Results> {
        let generation = self.health.generation();
        if self.pending.0 != generation {
            self.pending = (generation, Results::default());
        }
        (ticket.generation == generation).then_some(&mut self.pending.1)
    }
}

/// The questions of this execution environment about the limit of a scope.
#[derive(Debug, Default)]
pub(in crate::fleet) struct Askers {
    /// Whether other environments had taken slots of the gate that this one took for free.
    pub(in crate::fleet) is_gate_busy: bool,
    pub(in crate::fleet) fallback: Fallback,
    /// The limit, and since when it is known.
    pub(in crate::fleet) known: Option<KnownLimit>,
    pub(in crate::fleet) waiting: Vec<Asker>,
    /// How many are to ask together.
    pub(in crate::fleet) expected: usize,
    /// Notified when so many wait.
    pub(in crate::fleet) complete: Arc<Notify>,
    /// Whether a task asks for the messages that wait.
    pub(in crate::fleet) is_asked: bool,
    /// How often in a row the table took no requests.
    pub(in crate::fleet) throttled: u32,
}

/// The request of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) ask: Ask,
    /// The longest wait for its slot.
    pub(crate) longest: Duration,
    pub(crate) sample: f64,
    /// Whether it takes no slot while its service is held.
    pub(crate) may_be_held: bool,
}

/// A message that asks.
#[derive(Debug)]
pub(in crate::fleet) struct Asker {
    pub(in crate::fleet) limit: KnownLimit,
    pub(in crate::fleet) request: Request,
    pub(in crate::fleet) answer: oneshot::Sender<Admitted>,
}

/// The answer to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admitted {
    /// By the limit.
    By(Admission),
    /// The service is held.
    Held,
    /// The table did not decide, for this number of times in a row.
    PutOff { why: Deferral, times: u32 },
}

impl Askers {
    /// This limit, and since when it is known.
    pub(in crate::fleet) fn known(
        &mut self,
        limit: &RateLimit,
        started: SystemTime,
        now: SystemTime,
    ) -> KnownLimit {
        let since = match self.known {
            Some(known) if known.limit == *limit => return known,
            Some(_) => now,
            None => started,
        };
        *self.known.insert(KnownLimit::new(*limit, since))
    }
}
