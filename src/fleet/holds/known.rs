//! The knowledge of an execution environment about a scope, and the permission to call by it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use crate::gate::{Caller, ProbeLease, Results, SharedHealth};
use crate::limit::LimitState;
use crate::policy::RateLimit;
use crate::table::{Field, Item, Key};

/// The knowledge of this execution environment about a scope.
#[derive(Debug)]
pub(in crate::fleet) struct HeldScope {
    pub(in crate::fleet) key: Key,
    pub(in crate::fleet) seen: Mutex<Known>,
    /// Held while a request is under way, so that messages that ask together ask once.
    pub(in crate::fleet) asking: AsyncMutex<()>,
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
