//! Shows and changes a rate limit for an operator while it runs.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::timeout;

use super::{expires, item_key, scope_key};
use crate::clock::Clock;
use crate::gate::SharedHealth;
use crate::limit::{
    LimitState, LimitStatus, OverrideChange, PausedKey, Tenant, epoch_nanos, from_epoch_nanos,
};
use crate::pointer;
use crate::policy::{KeyLimit, MessageKey, RateLimit, RetryPolicy};
use crate::scope::Scope;
use crate::settings::SharedTable;
use crate::table::{Field, Key, Table, TableError, TableResponse, Update};

/// The timeout of a request. An operator can wait longer than a message.
const ANSWER: Duration = Duration::from_secs(10);
/// Each call changes the item, so a change may need many requests.
const MAX_REQUESTS: u32 = 20;

/// The paused keys of a scope, in an item of their own. Each number is the end of a pause; the hash
/// of the key's value replaces its last 16 bits, which are 65 µs.
const PAUSED_KEYS: [Field; 8] = Field::each([
    "pausedKey0",
    "pausedKey1",
    "pausedKey2",
    "pausedKey3",
    "pausedKey4",
    "pausedKey5",
    "pausedKey6",
    "pausedKey7",
]);
const HASH: u64 = 0xffff;

/// A rate limit in a [`SharedTable`], as an operator sees and changes it while it runs.
///
/// A change applies to all execution environments, from their next call on. Calls that have a
/// reservation are still made, within [`max_reservation`](RateLimit::max_reservation). A change
/// lasts until its time or the next change, even across deployments.
#[derive(Clone, Debug)]
pub struct LimitControl {
    table: Arc<dyn Table>,
    clock: Clock,
    limit: RateLimit,
    /// One item, or two, since a value in the form of a number may be a text too.
    items: Vec<Key>,
    /// The item of the paused keys.
    index: Key,
    /// The hash of the value, if the limit applies to one value of a key.
    own: Option<u16>,
    /// The values with a weight or a limit of their own, by the part of their hash in the items.
    tenants: BTreeMap<u16, String>,
}

impl LimitControl {
    /// The limit of all messages of a scope, if the policy has one. `queue` is set if the policy
    /// applies to that queue only.
    pub fn new(
        shared: &SharedTable,
        policy: &RetryPolicy,
        queue: Option<&str>,
        scope: Scope,
    ) -> Option<Self> {
        let items = vec![scope_key(&shared.namespace, queue.unwrap_or_default(), scope)];
        let weights = policy.fair_shares.iter().flat_map(|shares| shares.weights.keys());
        let tenants = weights.flat_map(|value| hashes(value).map(|hash| (hash, value.clone())));
        let limit = RateLimit { has_units: policy.units.is_some(), ..policy.limit? };
        let index = index(shared, queue, scope);
        Some(Self { tenants: tenants.collect(), ..Self::of_items(shared, limit, items, index) })
    }

    /// The limit of one value of a key, if the policy has a limit with that key.
    pub fn of_key(
        shared: &SharedTable,
        policy: &RetryPolicy,
        queue: Option<&str>,
        scope: Scope,
        key: &MessageKey,
        value: &str,
    ) -> Option<Self> {
        let KeyLimit { limit, units, .. } =
            policy.key_limits.iter().find(|limit| limit.key == *key)?;
        let limit = RateLimit { has_units: units.is_some(), ..*limit };
        let items = names(value).map(|name| {
            let scope = scope.of_key(key, &name);
            scope_key(&shared.namespace, queue.unwrap_or_default(), scope)
        });
        let (items, index) = (items.collect(), index(shared, queue, scope));
        // The last hash is that of a text.
        let own = hashes(value).last();
        let tenants = own.map(|own| (own, value.to_owned())).into_iter().collect();
        Some(Self { own, tenants, ..Self::of_items(shared, limit, items, index) })
    }

    fn of_items(shared: &SharedTable, limit: RateLimit, items: Vec<Key>, index: Key) -> Self {
        let (table, tenants, own) = (Arc::clone(&shared.table), BTreeMap::new(), None);
        Self { table, clock: Clock::system(), limit, items, index, own, tenants }
    }

    /// With the clock of [`Settings::clock`](crate::Settings::clock), for tests in virtual time.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// The limit now.
    pub async fn status(&self) -> Result<LimitStatus, TableError> {
        let mut status = None;
        for key in &self.items {
            let TableResponse { before, date, .. } = answer(self.table.read(key)).await?;
            let (now, state) = (self.now(date), LimitState::of(&before));
            if status.is_none() || state != LimitState::default() {
                let mut seen = state.status(&self.limit, now);
                // The messages of one value of a key have no tenants.
                seen.tenants.retain(|tenant| tenant.hash != Tenant::ALL.owner());
                seen.service_paused =
                    SharedHealth::of(&before).paused(now).map(|paused| paused.rest);
                for tenant in &mut seen.tenants {
                    tenant.name = self.tenants.get(&tenant.hash).cloned();
                }
                status = Some(seen);
            }
        }
        let mut status = status.ok_or(TableError::Throttled)?;
        let TableResponse { before, date, .. } = answer(self.table.read(&self.index)).await?;
        let now = epoch_nanos(self.now(date));
        let ends = PAUSED_KEYS.into_iter().map(|field| before.get(field)).filter(|end| *end > now);
        let paused = ends.map(|end| {
            let hash = u16::try_from(end & HASH).unwrap_or_default();
            let (name, until) = (self.tenants.get(&hash).cloned(), from_epoch_nanos(end));
            PausedKey { name, hash, until }
        });
        status.paused_keys = paused.collect();
        Ok(status)
    }

    /// Sets another number of calls in each period of the policy, until `until` or the next change.
    /// The burst is at most this number.
    ///
    /// # Errors
    ///
    /// If the table does not respond within 10 s, or too many calls change it. The change may be
    /// made.
    pub async fn set(&self, calls: u32, until: Option<SystemTime>) -> Result<(), TableError> {
        self.change(OverrideChange::Set { calls, until }).await
    }

    /// Pauses all calls, until `until` or [`resume`](Self::resume). The pause uses no retry, and
    /// has no probe. With `visibility`, a message asks again after at most 15 min, which uses a
    /// receive.
    pub async fn pause(&self, until: Option<SystemTime>) -> Result<(), TableError> {
        self.change(OverrideChange::Pause { until }).await
    }

    /// Ends the pause.
    pub async fn resume(&self) -> Result<(), TableError> {
        self.change(OverrideChange::Resume).await
    }

    /// Restores the limit of the policy, without a pause.
    pub async fn reset(&self) -> Result<(), TableError> {
        self.change(OverrideChange::Reset).await
    }

    /// The time of the table, by which the execution environments correct their clocks.
    fn now(&self, date: Option<SystemTime>) -> SystemTime {
        date.unwrap_or_else(|| self.clock.now())
    }

    async fn change(&self, change: OverrideChange) -> Result<(), TableError> {
        for key in &self.items {
            self.change_item(key, change).await?;
        }
        match (self.own, change) {
            (Some(own), OverrideChange::Pause { until }) => {
                self.list(own, until.map_or(u64::MAX, epoch_nanos)).await
            }
            (Some(own), OverrideChange::Resume | OverrideChange::Reset) => self.list(own, 0).await,
            (Some(_), OverrideChange::Set { .. }) | (None, _) => Ok(()),
        }
    }

    /// Lists the key as paused until then, unless the list is full.
    async fn list(&self, own: u16, until: u64) -> Result<(), TableError> {
        let mut seen = answer(self.table.read(&self.index)).await?;
        let listed = if until == 0 { 0 } else { until & !HASH | u64::from(own) };
        for _ in 0..MAX_REQUESTS {
            let now = self.now(seen.date);
            let end = |field: &Field| seen.before.get(*field);
            let is_own = |field: &&Field| end(field) > 0 && end(field) & HASH == u64::from(own);
            let is_free = |field: &&Field| end(field) <= epoch_nanos(now);
            let place = PAUSED_KEYS.iter().find(is_own);
            let place = place.or_else(|| PAUSED_KEYS.iter().find(is_free));
            let Some((field, before)) = place.map(|field| (*field, end(field))) else {
                return Ok(());
            };
            let last = from_epoch_nanos(listed).max(now);
            let expires = expires(last).max(seen.before.get(Field::EXPIRES));
            let update = Update::new().when(field, before..=before).set(field, listed);
            let update = update.set(Field::EXPIRES, expires);
            let update = update.needed_for(last.duration_since(now).unwrap_or_default());
            seen = answer(self.table.update(&self.index, &update)).await?;
            if seen.is_changed {
                return Ok(());
            }
        }
        Err(TableError::Throttled)
    }

    async fn change_item(&self, key: &Key, change: OverrideChange) -> Result<(), TableError> {
        let mut seen = answer(self.table.read(key)).await?;
        for _ in 0..MAX_REQUESTS {
            let now = self.now(seen.date);
            let state = LimitState::of(&seen.before);
            let (update, end) = state.overridden(change, &self.limit, now);
            let expires = expires(end).max(seen.before.get(Field::EXPIRES));
            let update = update.set(Field::EXPIRES, expires);
            let update = update.needed_for(end.duration_since(now).unwrap_or_default());
            seen = answer(self.table.update(key, &update)).await?;
            if seen.is_changed {
                return Ok(());
            }
        }
        Err(TableError::Throttled)
    }
}

fn index(shared: &SharedTable, queue: Option<&str>, scope: Scope) -> Key {
    item_key(&shared.namespace, "paused", queue.unwrap_or_default(), scope.bytes())
}

/// The hashes of the names of a value, as a person reads them.
fn hashes(value: &str) -> impl Iterator<Item = u16> {
    names(value).map(|name| Tenant::of(&name, 1).owner().swap_bytes())
}

/// The names of a value. A value in the form of a number may be a text too.
fn names(value: &str) -> impl Iterator<Item = String> {
    let text = pointer::name_of_text(value).unwrap_or_default();
    pointer::name_of_number(value).into_iter().chain([text])
}

async fn answer(
    request: impl Future<Output = Result<TableResponse, TableError>>,
) -> Result<TableResponse, TableError> {
    let silent = TableError::Unavailable(Cow::Borrowed("TableTimedOut"));
    timeout(ANSWER, request).await.unwrap_or(Err(silent))
}
