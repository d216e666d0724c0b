//! What an operator set for a limit while it runs: another rate, or a pause. Each change has a version,
//! and each claim requires the one that it saw, so nobody calls by an older one.

use std::time::{Duration, SystemTime};

use super::{Admission, KnownLimit, epoch_nanos, nanos};
use crate::policy::RateLimit;
use crate::table::{Field, Item, Update};

/// A message that waits for the end of a pause asks again after this part of the pause so far, since
/// an operator may end it at any time.
const PART_OF_PAUSE: u64 = 30;
const SOONEST: Duration = Duration::from_secs(5);
const LATEST: Duration = Duration::from_mins(1);

/// What an operator set, in an item. In a new item, nothing is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Override {
    /// The time of the last change. It is later than that of the change before.
    version: u64,
    /// The time between two units until then; 0 for that of the policy.
    interval: u64,
    until: u64,
    /// The end of the pause.
    paused_until: u64,
}

const VERSION: Field = Field::new("version");
const INTERVAL: Field = Field::new("overrideInterval");
const UNTIL: Field = Field::new("overrideUntil");
const PAUSED_UNTIL: Field = Field::new("pausedUntil");

/// A change by an operator. Without a time, it lasts until the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// So many calls in the period of the policy.
    Set {
        calls: u32,
        until: Option<SystemTime>,
    },
    Pause {
        until: Option<SystemTime>,
    },
    Resume,
    /// The limit of the policy. A pause goes on.
    Reset,
}

impl Override {
    pub(super) fn of(item: &Item) -> Self {
        Self {
            version: item.get(VERSION),
            interval: item.get(INTERVAL),
            until: item.get(UNTIL),
            paused_until: item.get(PAUSED_UNTIL),
        }
    }

    /// The limit that counts now.
    pub(super) fn in_effect(&self, known: &KnownLimit, now: u64) -> KnownLimit {
        match self.interval_at(now) {
            // The pace of the interval that was set is older.
            None => KnownLimit { since: known.since.max(self.until.min(now)), ..*known },
            Some(interval) => {
                KnownLimit { limit: known.limit.with_interval(interval), since: self.version }
            }
        }
    }

    /// The interval that is set now, if one is.
    pub(super) fn interval_at(&self, now: u64) -> Option<u64> {
        Some(self.interval).filter(|interval| *interval > 0 && now < self.until)
    }

    /// The end of the interval that is set now, if one is.
    pub(crate) fn set_until(&self, now: u64) -> Option<u64> {
        self.interval_at(now).map(|_| self.until)
    }

    /// The end of the pause, if there is one now.
    pub(crate) fn paused_until(&self, now: u64) -> Option<u64> {
        Some(self.paused_until).filter(|end| *end > now)
    }

    /// Since when calls are possible.
    pub(super) fn open_since(&self) -> u64 {
        self.version.max(self.paused_until)
    }

    /// The answer to a message while the calls are paused.
    pub(super) fn pause(&self, now: u64) -> Option<Admission> {
        let rest = self.paused_until(now)? - now;
        let so_far = now.saturating_sub(self.version);
        let again = (so_far / PART_OF_PAUSE).clamp(nanos(SOONEST), nanos(LATEST)).min(rest);
        let (rest, asks_again) = (Duration::from_nanos(rest), Duration::from_nanos(again));
        Some(Admission::Paused { rest, asks_again })
    }

    /// The end of all that is set.
    pub(super) fn ends(&self, now: u64) -> u64 {
        self.set_until(now).max(self.paused_until(now)).unwrap_or(now)
    }

    pub(super) fn changed(self, change: Change, limit: &RateLimit, now: u64) -> Self {
        let end = |until: Option<SystemTime>| until.map_or(u64::MAX, epoch_nanos);
        let changed = match change {
            Change::Set { calls, until } => {
                let limit = RateLimit { limit: calls, ..*limit };
                Self { interval: limit.interval_nanos(), until: end(until), ..self }
            }
            Change::Pause { until } => Self { paused_until: end(until), ..self },
            Change::Resume => Self { paused_until: 0, ..self },
            Change::Reset => Self { interval: 0, until: 0, ..self },
        };
        Self { version: now.max(self.version.saturating_add(1)), ..changed }
    }

    /// The condition that no operator changes it meanwhile.
    pub(super) fn unchanged(&self, update: Update) -> Update {
        update.when(VERSION, self.version..=self.version)
    }

    pub(super) fn written(&self, update: Update) -> Update {
        update
            .set(VERSION, self.version)
            .set(INTERVAL, self.interval)
            .set(UNTIL, self.until)
            .set(PAUSED_UNTIL, self.paused_until)
    }
}
