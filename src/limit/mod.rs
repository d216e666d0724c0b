//! Rate limits, pure: the state of a scope's limit, the messages that ask, and the time determine
//! reservations, scheduled times, and the next state. It reads no clock and calls no table.
//!
//! A scope has a gate and a waiting list:
//!
//! - The gate is the generic cell rate algorithm (GCRA). Its state is one time, the theoretical
//!   arrival time of the next call. Every call passes the gate just before it is made. No message
//!   carries the right to call, since duplicates and late copies would exceed the limit.
//! - If the gate is full, new messages join the [waiting list](line). It counts the calls before
//!   each message, and so schedules its return to the gate. It does not limit calls. A duplicate,
//!   or a message that never returns, only shifts the return of others a little. The waiting list
//!   counts again when the gate refuses a message or is idle.
//!
//! An adaptive limit also has a [`Pace`], which slows the gate down. A [`Cap`] by the headers of
//! responses does the same. An operator may set another rate, or a pause, by an [`Override`].

use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime};

use crate::classify::Allowance;
use crate::policy::RateLimit;
use crate::table::{Field, Item, Update};

mod claim;
mod line;
mod overrides;
mod pace;
#[cfg(test)]
mod tests;

pub(crate) use claim::{Claim, Share};
use line::FairQueue;
pub use line::TenantStatus;
pub(crate) use line::{StartTag, Tenant};
use overrides::Override;
pub(crate) use overrides::OverrideChange;
pub use overrides::{LimitStatus, PausedKey};
pub(crate) use pace::KnownLimit;
use pace::{Cap, LastUnits, Pace};

/// The furthest scheduled time. Messages that would wait longer ask again.
pub(crate) const LONGEST_LINE: Duration = Duration::from_secs(11 * 3_600);
/// A message returns this much before its scheduled time, since SQS delays by whole seconds.
const EARLY: Duration = Duration::from_secs(1);
/// The furthest reservation, apart from the burst: an invocation is shorter. If a reservation is
/// further away, the clock was set back.
pub(crate) const FURTHEST_SLOT: Duration = Duration::from_secs(3_600);

/// The state of a scope's limit. Its times are nanoseconds since the epoch, and 0 before the first
/// call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LimitState {
    /// The gate: the theoretical arrival time of the next call.
    tat: u64,
    line: FairQueue,
    /// The end of the last pause. Calls before it were impossible, so they do not count as unused.
    open_since: u64,
    pace: Pace,
    cap: Cap,
    overrides: Override,
    units: LastUnits,
}

/// A message that asks for its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// A message that joins the waiting list, if others wait before it.
    Newcomer,
    /// A message that was in the waiting list.
    Waited(StartTag),
    /// A message that was called before. It joins the waiting list only if the limit is fair.
    Retry,
    /// A message that joins the waiting list without a reservation, scheduled at this time or
    /// later.
    Joins(SystemTime),
    /// A message that may have been in this waiting list and has no start tag of it: it waited with
    /// its visibility timeout, or in the waiting list of another limit.
    Returned,
}

/// The request of a message to a limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    pub(crate) ask: Ask,
    /// The tenant whose share it takes, if the limit is fair.
    pub(crate) tenant: Option<Tenant>,
    pub(crate) units: u32,
    pub(crate) longest: Duration,
}

/// The decision about a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It may call after this time.
    Slot(Duration),
    /// It joins the waiting list, and returns at this time.
    InLine(StartTag, SystemTime),
    Full,
    LineFull,
    /// An operator has paused the calls for `rest`. A waiting message asks again after
    /// `asks_again`.
    Paused {
        rest: Duration,
        asks_again: Duration,
    },
}

const TAT: Field = Field::new("tat");

impl LimitState {
    pub(crate) fn of(item: &Item) -> Self {
        Self {
            tat: item.get(TAT),
            line: FairQueue::of(item),
            open_since: 0,
            pace: Pace::of(item),
            cap: Cap::of(item),
            overrides: Override::of(item),
            units: LastUnits::default(),
        }
    }

    /// The state of a service that was paused until this time.
    pub(crate) fn open_since(self, end: u64) -> Self {
        Self { open_since: end, ..self }
    }

    /// The end of all reservations.
    pub(crate) fn gate_end(&self, now: SystemTime) -> SystemTime {
        from_epoch_nanos(self.tat).max(now)
    }

    pub(crate) fn admit(
        &mut self,
        limit: &RateLimit,
        demand: Demand,
        now: SystemTime,
    ) -> Admission {
        let mut claim = Claim::new(&KnownLimit::own(limit), *self, now);
        let share = claim.take(demand);
        let admission = claim.admission(share, self);
        *self = claim.next(self);
        admission
    }

    pub(crate) fn would_wait(&self, known: &KnownLimit, demand: Demand, now: SystemTime) -> bool {
        let share = Claim::new(known, *self, now).take(demand);
        matches!(share, Share::Joined(..) | Share::LineFull | Share::Paused)
    }

    /// The state after a refused call, if it changes an adaptive limit.
    pub(crate) fn refused(
        &self,
        known: &KnownLimit,
        asked: SystemTime,
        now: SystemTime,
    ) -> Option<Self> {
        let known = self.overrides.in_effect(known, epoch_nanos(now));
        let pace = self.pace.refused(&known, epoch_nanos(asked), epoch_nanos(now))?;
        Some(Self { pace, ..*self })
    }

    /// The state after a call whose response has these allowances, if they lower the pace.
    pub(crate) fn capped(
        &self,
        known: &KnownLimit,
        allowances: &[Allowance],
        now: SystemTime,
    ) -> Option<Self> {
        let claim = Claim::new(known, *self, now);
        let interval = nanos(claim.interval());
        let now = epoch_nanos(now);
        let due = claim.due(self.tat.max(now));
        let (reserved, spare) =
            (due.saturating_sub(now) / interval, now.saturating_sub(due) / interval);
        // If no allowance counts units, all of them count calls.
        let has_units = known.limit.has_units && allowances.iter().any(|it| it.counts_units);
        let counted = allowances.iter().filter(|it| it.counts_units == has_units);
        let units = (claim.uncapped(), reserved, spare);
        let lowered = |cap: Cap, allowance| cap.lowered(allowance, units, now).unwrap_or(cap);
        let next = Self { cap: counted.fold(self.cap, lowered), ..*self };
        (next.cap != self.cap).then_some(next)
    }

    /// The limit in effect: an operator's, or that of an environment with a newer one.
    pub(crate) fn in_effect(&self, limit: &RateLimit, now: SystemTime) -> RateLimit {
        let known = self.overrides.in_effect(&KnownLimit::own(limit), epoch_nanos(now));
        known.limit.with_interval(self.pace.interval(&known.limit))
    }

    pub(crate) fn knows(&self, tag: StartTag) -> bool {
        self.line.knows(tag)
    }

    /// Whether the gate has its whole burst.
    pub(crate) fn has_free_gate(&self, now: SystemTime) -> bool {
        self.tat <= epoch_nanos(now)
    }

    /// This state, as if others had made reservations since it was seen.
    pub(crate) fn with_busy_gate(self, now: SystemTime) -> Self {
        Self { tat: self.tat.max(epoch_nanos(now).saturating_add(1)), ..self }
    }

    /// When a message of the waiting list returns, if its service is paused until this time.
    pub(crate) fn paused(
        &self,
        limit: &KnownLimit,
        tag: StartTag,
        until: SystemTime,
        now: SystemTime,
    ) -> SystemTime {
        Claim::new(limit, *self, now).paused(tag, until)
    }

    /// The change of the pace and the cap, unless another environment changes them first.
    pub(crate) fn pace_update(&self, next: &Self) -> Update {
        let update = next.cap.written(&self.cap, Update::new());
        if next.pace == self.pace {
            return update;
        }
        next.pace.written(self.pace.unchanged(update))
    }

    /// This state with its gate by another clock, which shows `to` when the first one shows `from`.
    pub(crate) fn with_gate_moved(self, from: u64, to: u64) -> Self {
        let tat = match self.tat.checked_sub(from) {
            Some(ahead) => to.saturating_add(ahead),
            None => to.saturating_sub(from - self.tat),
        };
        Self { tat, ..self }
    }

    /// Whether the state equals a new one: whole burst, empty waiting list, whole pace.
    pub(crate) fn is_idle(&self, now: SystemTime) -> bool {
        let now = epoch_nanos(now);
        self.tat <= now
            && self.line.backlog() == 0
            && self.pace.is_over(now)
            && self.cap.is_over(now)
    }

    /// The decision about a message while an operator has paused the calls.
    pub(crate) fn operator_pause(&self, now: SystemTime) -> Option<Admission> {
        self.overrides.pause(epoch_nanos(now))
    }

    /// An operator's change, and the time until which the item is in use for it.
    pub(crate) fn overridden(
        &self,
        change: OverrideChange,
        limit: &RateLimit,
        now: SystemTime,
    ) -> (Update, SystemTime) {
        let now = epoch_nanos(now);
        let before = self.overrides;
        let overrides = before.changed(change, limit, now);
        let end = from_epoch_nanos(overrides.ends(now));
        let mut update = overrides.written(before.unchanged(Update::new()));
        if before.interval_at(now) == overrides.interval_at(now) {
            return (update, end);
        }
        let known = KnownLimit::own(limit);
        let before = before.in_effect(&known, now).limit;
        let limit = overrides.in_effect(&known, now).limit;
        if limit.adaptive {
            update = Pace::whole(&KnownLimit { since: now, ..KnownLimit::own(&limit) }, now)
                .written(update);
        }
        // Calls with a reservation are still made. After the last one, the new interval begins. A longer
        // one brings no second burst.
        let ahead = |limit: &RateLimit| {
            limit.interval_nanos().saturating_mul(u64::from(limit.burst.max(1) - 1))
        };
        let tat = match before.interval_nanos().checked_sub(limit.interval_nanos()) {
            Some(sooner) => self.tat.saturating_sub(sooner).max(now),
            None => self.tat.saturating_add(ahead(&limit).saturating_sub(ahead(&before))),
        };
        if tat != self.tat && self.tat > now {
            update = update.when(TAT, self.tat..=self.tat).set(TAT, tat);
        }
        (update, end)
    }
}

/// A time of the state, as an execution environment sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Time {
    /// The gate is free, or the waiting list is empty.
    Over,
    /// Some calls were let through, or some messages wait.
    Ahead,
    /// A clock that was set back since wrote it. It counts as over.
    Lost { beyond: u64 },
}

impl Time {
    fn of(time: u64, now: u64, furthest: u64) -> Self {
        match time {
            _ if time <= now => Self::Over,
            _ if time <= furthest => Self::Ahead,
            _ => Self::Lost { beyond: furthest },
        }
    }

    /// The times for which this is true.
    fn range(self, now: u64, latest: u64) -> RangeInclusive<u64> {
        match self {
            Self::Over => 0..=now.min(latest),
            Self::Ahead => now.saturating_add(1)..=latest,
            Self::Lost { beyond } => beyond.saturating_add(1)..=u64::MAX,
        }
    }
}

/// Nanoseconds since the epoch, the unit of times in items.
pub(crate) fn epoch_nanos(time: SystemTime) -> u64 {
    nanos(time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

pub(crate) fn from_epoch_nanos(nanos: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos)
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
