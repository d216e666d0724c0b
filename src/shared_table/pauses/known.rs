//! The knowledge of an execution environment about a scope, and the permission to call by it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::{Mutex as AsyncMutex, Notify, oneshot};
use tokio::time::Instant;

use crate::disposition::Deferral;
use crate::gate::{Caller, ProbeLock, Results, SharedHealth};
use crate::limit::{Admission, Demand, KnownLimit, LimitState, epoch_nanos};
use crate::policy::RateLimit;
use crate::shared_table::fallback::Fallback;
use crate::table::{Field, Item, Key};

/// The knowledge of this execution environment about a scope.
#[derive(Debug)]
pub(in crate::shared_table) struct SharedScope {
    pub(in crate::shared_table) key: Key,
    pub(in crate::shared_table) seen: Mutex<Known>,
    /// Held while a request is under way, so that messages that ask together ask once.
    pub(in crate::shared_table) asking: AsyncMutex<()>,
    pub(in crate::shared_table) limits: Mutex<Askers>,
}

#[derive(Debug, Default)]
pub(in crate::shared_table) struct Known {
    pub(in crate::shared_table) health: SharedHealth,
    /// The limit in the same item.
    pub(in crate::shared_table) limit: LimitState,
    /// The expiry of the item, which the limit in it may need for longer than the pause.
    pub(in crate::shared_table) expires: u64,
    /// The time of the last request, even if it got no answer.
    pub(in crate::shared_table) asked: Option<Instant>,
    /// Results that are not reported yet, of calls that began in this generation.
    pub(in crate::shared_table) pending: (u64, Results),
}

/// The permission to call. The result of the call is told with it.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(in crate::shared_table) state: Arc<SharedScope>,
    pub(in crate::shared_table) caller: Caller,
    pub(in crate::shared_table) generation: u64,
    pub(in crate::shared_table) lock: Option<ProbeLock>,
}

impl Ticket {
    /// Whether the call probes a pause.
    pub(crate) fn is_probe(&self) -> bool {
        self.lock.is_some()
    }
}

impl SharedScope {
    pub(in crate::shared_table) fn seen(&self) -> MutexGuard<'_, Known> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::shared_table) fn limits(&self) -> MutexGuard<'_, Askers> {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The end of the pause, as last seen.
    pub(in crate::shared_table) fn paused_until(&self, now: SystemTime) -> SystemTime {
        self.seen().health.end(now)
    }

    pub(in crate::shared_table) fn learn(&self, item: &Item) -> SharedHealth {
        let health = SharedHealth::of(item);
        let mut seen = self.seen();
        (seen.health, seen.asked) = (health, Some(Instant::now()));
        let limit = LimitState::of(item).open_since(health.open_since());
        seen.limit = limit.with_units_of(&seen.limit);
        seen.expires = item.get(Field::EXPIRES);
        health
    }

    /// A ticket of a scope that is not paused.
    pub(in crate::shared_table) fn ticket(
        self: &Arc<Self>,
        caller: Caller,
        health: &SharedHealth,
    ) -> Ticket {
        Ticket { state: Arc::clone(self), caller, generation: health.generation(), lock: None }
    }

    pub(in crate::shared_table) fn is_known(&self, lately: Duration) -> bool {
        self.seen().asked.is_some_and(|asked| asked.elapsed() < lately)
    }
}

impl Known {
    /// Notes a response. Returns whether it says something new.
    pub(in crate::shared_table) fn answer(&mut self, ticket: &Ticket, now: SystemTime) -> bool {
        let is_new = !(self.health.is_clean(now) && self.pending.1.is_empty());
        if is_new && let Some(pending) = self.pending_of(ticket) {
            pending.answer();
        }
        is_new
    }

    /// The results of this generation, if the ticket is of it.
    pub(in crate::shared_table) fn pending_of(&mut self, ticket: &Ticket) -> Option<&mut Results> {
        let generation = self.health.generation();
        if self.pending.0 != generation {
            self.pending = (generation, Results::default());
        }
        (ticket.generation == generation).then_some(&mut self.pending.1)
    }
}

/// The questions of this execution environment about the limit of a scope.
#[derive(Debug, Default)]
pub(in crate::shared_table) struct Askers {
    /// Whether other environments had taken slots of the gate that this one took for free.
    pub(in crate::shared_table) is_gate_busy: bool,
    pub(in crate::shared_table) fallback: Fallback,
    /// The limit, and since when it is known.
    pub(in crate::shared_table) known: Option<KnownLimit>,
    pub(in crate::shared_table) waiting: Vec<Asker>,
    /// How many are to ask together.
    pub(in crate::shared_table) expected: usize,
    /// Notified when so many wait.
    pub(in crate::shared_table) complete: Arc<Notify>,
    /// Whether a task asks for the messages that wait.
    pub(in crate::shared_table) is_asked: bool,
    /// How often in a row the table took no requests.
    pub(in crate::shared_table) throttled: u32,
    /// Units that calls used beyond those of their reservations, of which the table does not know.
    pub(in crate::shared_table) uncorrected: i64,
}

/// The request of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) demand: Demand,
    pub(crate) sample: f64,
    /// Whether it takes no slot while its service is paused.
    pub(crate) may_be_deferred: bool,
}

/// A message that asks.
#[derive(Debug)]
pub(in crate::shared_table) struct Asker {
    pub(in crate::shared_table) limit: KnownLimit,
    pub(in crate::shared_table) request: Request,
    pub(in crate::shared_table) answer: oneshot::Sender<Admitted>,
}

/// The answer to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admitted {
    /// By the limit.
    By(Admission),
    /// The service is paused.
    Paused,
    /// The table did not decide, for this number of times in a row.
    Deferred { why: Deferral, times: u32 },
}

impl Askers {
    /// This limit, and since when it is known.
    pub(in crate::shared_table) fn known(
        &mut self,
        limit: &RateLimit,
        started: SystemTime,
        now: SystemTime,
    ) -> KnownLimit {
        let since = match self.known {
            Some(known) if known.limit == *limit => return known,
            Some(_) => epoch_nanos(now),
            None => epoch_nanos(started),
        };
        *self.known.insert(KnownLimit { limit: *limit, since })
    }
}
