//! The knowledge of an execution environment about a scope, and the permission to call by it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use crate::gate::{Caller, ProbeLease, Results, SharedHealth};
use crate::limit::LimitState;
use crate::policy::RateLimit;
use crate::store::{Field, Item, Key};

/// The knowledge of this execution environment about a scope.
#[derive(Debug)]
pub(super) struct HeldScope {
    pub(super) key: Key,
    pub(super) seen: Mutex<Known>,
    /// Held while a request is under way, so that messages that ask together ask once.
    pub(super) asking: AsyncMutex<()>,
}

#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) health: SharedHealth,
    /// The limit in the same item.
    pub(super) limit: LimitState,
    /// The expiry of the item, which the limit in it may need for longer than the hold.
    pub(super) expires: u64,
    /// The time of the last request, even if it got no answer.
    pub(super) asked: Option<Instant>,
    /// Results that are not reported yet, of calls that began in this generation.
    pub(super) pending: (u64, Results),
}

/// The permission to call. The result of the call is told with it.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(super) state: Arc<HeldScope>,
    pub(super) caller: Caller,
    pub(super) generation: u64,
    pub(super) lease: Option<ProbeLease>,
    pub(super) limit: Option<RateLimit>,
}

impl Ticket {
    /// Whether the call probes a hold.
    pub(crate) fn is_probe(&self) -> bool {
        self.lease.is_some()
    }
}

impl HeldScope {
    pub(super) fn seen(&self) -> MutexGuard<'_, Known> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn learn(&self, item: &Item) -> SharedHealth {
        let health = SharedHealth::of(item);
        let mut seen = self.seen();
        (seen.health, seen.asked) = (health, Some(Instant::now()));
        seen.limit = LimitState::of(item);
        seen.expires = item.get(Field::EXPIRES);
        health
    }

    /// A ticket of a scope that is not held.
    pub(super) fn ticket(
        self: &Arc<Self>,
        caller: Caller,
        limit: Option<&RateLimit>,
        health: &SharedHealth,
    ) -> Ticket {
        let (generation, limit) = (health.generation(), limit.copied());
        Ticket { state: Arc::clone(self), caller, generation, lease: None, limit }
    }

    pub(super) fn is_known(&self, lately: Duration) -> bool {
        self.seen().asked.is_some_and(|asked| asked.elapsed() < lately)
    }
}

impl Known {
    /// Notes a response. Returns whether it says something new.
    pub(super) fn answer(&mut self, ticket: &Ticket, now: SystemTime) -> bool {
        let is_new = !(self.health.is_clean(now) && self.pending.1.is_empty());
        if is_new && let Some(pending) = self.pending_of(ticket) {
            pending.answer();
        }
        is_new
    }

    /// The results of this generation, if the ticket is of it.
    pub(super) fn pending_of(&mut self, ticket: &Ticket) -> Option<&mut Results> {
        let generation = self.health.generation();
        if self.pending.0 != generation {
            self.pending = (generation, Results::default());
        }
        (ticket.generation == generation).then_some(&mut self.pending.1)
    }
}
