//! The state of a scope as an execution environment last saw it, and the tickets for calls.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use tokio::sync::{Mutex as AsyncMutex, Notify, oneshot};
use tokio::time::Instant;

use super::fallback::Fallback;
use crate::disposition::Deferral;
use crate::gate::{Caller, ProbeLock, Results, SharedHealth};
use crate::limit::{Admission, Demand, KnownLimit, LimitState, epoch_nanos};
use crate::lock::lock;
use crate::policy::RateLimit;
use crate::scope::Scope;
use crate::table::{Field, Item, Key};

/// The state of a scope as this execution environment last saw it.
#[derive(Debug)]
pub(super) struct SharedScope {
    pub(super) scope: Scope,
    pub(super) key: Key,
    pub(super) seen: Mutex<Known>,
    /// Locked during a request, so that messages that ask together send one request.
    pub(super) asking: AsyncMutex<()>,
    pub(super) limits: Mutex<Askers>,
}

#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) health: SharedHealth,
    pub(super) limit: LimitState,
    /// The expiry of the item. The limit in the item may need it for longer than the pause.
    pub(super) expires: u64,
    /// The time of the last request, even if it got no response.
    pub(super) asked: Option<Instant>,
    /// Results that are not reported yet, of calls that began in this generation.
    pub(super) pending: (u64, Results),
}

/// The permission to call. The result of the call is reported with it.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(super) state: Arc<SharedScope>,
    pub(super) caller: Caller,
    pub(super) generation: u64,
    pub(super) lock: Option<ProbeLock>,
}

impl Ticket {
    pub(crate) fn is_probe(&self) -> bool {
        self.lock.is_some()
    }
}

impl SharedScope {
    pub(super) fn seen(&self) -> MutexGuard<'_, Known> {
        lock(&self.seen)
    }

    pub(super) fn limits(&self) -> MutexGuard<'_, Askers> {
        lock(&self.limits)
    }

    /// The end of the pause, as last seen.
    pub(super) fn paused_until(&self, now: SystemTime) -> SystemTime {
        self.seen().health.end(now)
    }

    pub(super) fn learn(&self, item: &Item) -> SharedHealth {
        let health = SharedHealth::of(item);
        let mut seen = self.seen();
        (seen.health, seen.asked) = (health, Some(Instant::now()));
        let limit = LimitState::of(item).open_since(health.open_since());
        seen.limit = limit.with_units_of(&seen.limit);
        seen.expires = item.get(Field::EXPIRES);
        health
    }

    /// A ticket of a scope that is not paused.
    pub(super) fn ticket(self: &Arc<Self>, caller: Caller, health: &SharedHealth) -> Ticket {
        Ticket { state: Arc::clone(self), caller, generation: health.generation(), lock: None }
    }

    pub(super) fn is_known(&self, lately: Duration) -> bool {
        self.seen().asked.is_some_and(|asked| asked.elapsed() < lately)
    }
}

impl Known {
    /// Notes a response. Returns whether it is new information.
    pub(super) fn answer(&mut self, ticket: &Ticket, now: SystemTime) -> bool {
        let is_new = !(self.health.is_clean(now) && self.pending.1.is_empty());
        if is_new && let Some(pending) = self.pending_of(ticket) {
            pending.answer();
        }
        is_new
    }

    /// The results of this generation, if the ticket belongs to it.
    pub(super) fn pending_of(&mut self, ticket: &Ticket) -> Option<&mut Results> {
        let generation = self.health.generation();
        if self.pending.0 != generation {
            self.pending = (generation, Results::default());
        }
        (ticket.generation == generation).then_some(&mut self.pending.1)
    }
}

/// The messages of this execution environment that ask about the limit of a scope.
#[derive(Debug, Default)]
pub(super) struct Askers {
    /// Whether other environments had made reservations where this one saw a free gate.
    pub(super) is_gate_busy: bool,
    pub(super) fallback: Fallback,
    pub(super) known: Option<KnownLimit>,
    pub(super) waiting: Vec<Asker>,
    /// How many messages will ask together.
    pub(super) expected: usize,
    /// Notified when all of these wait.
    pub(super) complete: Arc<Notify>,
    /// Whether a task sends the requests of the messages that wait.
    pub(super) is_asked: bool,
    /// How often in a row the table throttled.
    pub(super) throttled: u32,
    /// Units that calls used in addition to their reservations, not reported to the table yet.
    pub(super) uncorrected: i64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) demand: Demand,
    pub(crate) sample: f64,
    /// Whether it makes no reservation while its service is paused.
    pub(crate) may_be_deferred: bool,
}

#[derive(Debug)]
pub(super) struct Asker {
    pub(super) limit: KnownLimit,
    pub(super) request: Request,
    pub(super) answer: oneshot::Sender<Admitted>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admitted {
    By(Admission),
    Paused,
    /// The table did not decide, this number of times in a row.
    Deferred {
        why: Deferral,
        times: u32,
    },
}

impl Askers {
    /// This limit, and the time since which it is known.
    pub(super) fn known(
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
