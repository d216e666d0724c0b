//! Rate limits, pure: the state of a scope's limit, the messages that ask and the time come in; their
//! slots, their turns and the change of the state go out. It reads no clock and calls no table.
//!
//! A scope has a gate and a line:
//!
//! - The gate is the generic cell rate algorithm (GCRA). Its state is one time, the theoretical
//!   arrival time of the next call. Every call passes the gate when it is about to be made. No message
//!   carries the right to call: duplicates and late copies would break the limit.
//! - If the gate is full, newcomers join the line. Each gets a turn: the time at which the line
//!   calls it to the gate. The line moves as fast as the limit allows.
//! - Retries do not wait in line. A retry that takes a slot moves the whole line back by one place:
//!   `held_back` grows. So a place is a time of the line, to which `held_back` is added.
//!
//! An adaptive limit has a [`Pace`] too. It slows the gate down, and the clock of the line.

use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime};

use crate::policy::RateLimit;
use crate::table::{Field, Item, Update};

mod claim;
mod pace;
#[cfg(test)]
mod tests;

pub(crate) use claim::{Claim, Share};
pub(crate) use pace::KnownLimit;
use pace::Pace;

/// The furthest turn that is given out. Later newcomers ask again.
pub(crate) const LONGEST_LINE: Duration = Duration::from_secs(11 * 3_600);
/// A message is called so long before its turn, since SQS delays by whole seconds.
const EARLY: Duration = Duration::from_secs(1);
/// No slot is further away than this and the burst, since an invocation is shorter. If one is, the
/// clock was set back.
pub(crate) const FURTHEST_SLOT: Duration = Duration::from_secs(3_600);

/// The state of a scope's limit. Its times are nanoseconds since the epoch, and 0 before the first
/// call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LimitState {
    /// The gate: the theoretical arrival time of the next call.
    tat: u64,
    /// The turn of the next newcomer, by the line's clock; nobody waits if that is over.
    line_end: u64,
    /// The time by which the line was held back so far.
    held_back: u64,
    /// The length of the line at the end of the pause: a message that is called up during the pause
    /// moves by it.
    moves_by: u64,
    pace: Pace,
}

/// A message's place in the line: a time of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(u64);

impl Place {
    /// From the message.
    pub(crate) fn from_time(time: SystemTime) -> Self {
        Self(epoch_nanos(time))
    }

    /// For the message.
    pub(crate) fn time(self) -> SystemTime {
        from_epoch_nanos(self.0)
    }
}

/// A message that asks for its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// A message that joins the line, if there is one.
    Newcomer,
    /// A message that has waited in line.
    Waited(Place),
    /// A message that was called before, and does not wait in line.
    Retry,
    /// A message whose service is paused until this time. It joins the line, and its turn is not
    /// before.
    Paused(SystemTime),
    /// A message that waited by its visibility, and cannot carry a place in the line.
    Returned,
}

/// What a message gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It may call after this time.
    Slot(Duration),
    /// It waits in line. The line calls it at this time, or later.
    InLine(Place, SystemTime),
    /// The gate is full.
    Full,
    /// The line is too long.
    LineFull,
}

/// The fields of a limit in an item.
const TAT: Field = Field::new("tat");
const LINE_END: Field = Field::new("lineEnd");
const HELD_BACK: Field = Field::new("heldBack");
const MOVES_BY: Field = Field::new("movesBy");

impl LimitState {
    /// The state in an item.
    pub(crate) fn of(item: &Item) -> Self {
        Self {
            tat: item.get(TAT),
            line_end: item.get(LINE_END),
            held_back: item.get(HELD_BACK),
            moves_by: item.get(MOVES_BY),
            pace: Pace::of(item),
        }
    }

    /// The end of the slots that are taken.
    pub(crate) fn gate_end(&self, now: SystemTime) -> SystemTime {
        from_epoch_nanos(self.tat).max(now)
    }

    /// Admits one message, which can wait for its slot as long as `longest`.
    pub(crate) fn admit(
        &mut self,
        limit: &RateLimit,
        ask: Ask,
        longest: Duration,
        now: SystemTime,
    ) -> Admission {
        let mut claim = Claim::new(&KnownLimit::own(limit), *self, now);
        let share = claim.take(ask, longest);
        let admission = claim.admission(share, *self);
        *self = claim.next(*self);
        admission
    }

    /// The state after a refused call, if that changes an adaptive limit.
    pub(crate) fn refused(
        &self,
        known: &KnownLimit,
        asked: SystemTime,
        now: SystemTime,
    ) -> Option<Self> {
        let pace = self.pace.refused(known, epoch_nanos(asked), epoch_nanos(now))?;
        Some(Self { pace, ..*self })
    }

    /// The time between two calls at the whole pace. Another environment may know a newer limit.
    pub(crate) fn interval(&self, limit: &RateLimit) -> Duration {
        Duration::from_nanos(self.pace.interval(limit))
    }

    /// Whether the gate has all of its slots.
    pub(crate) fn has_free_gate(&self, now: SystemTime) -> bool {
        self.tat <= epoch_nanos(now)
    }

    /// This state, if others have taken slots since it was seen.
    pub(crate) fn with_busy_gate(self, now: SystemTime) -> Self {
        Self { tat: self.tat.max(epoch_nanos(now).saturating_add(1)), ..self }
    }

    /// Lengthens the line by a pause that became longer by `longer`: messages that it calls up
    /// meanwhile go to its end. `None` if nobody waits in it.
    pub(crate) fn lengthened(
        &self,
        limit: &RateLimit,
        update: &Update,
        longer: Duration,
        until: SystemTime,
        now: SystemTime,
    ) -> Option<Update> {
        let claim = Claim::new(&KnownLimit::own(limit), *self, now);
        let line_end = claim.lengthened(longer)?;
        let update = update.clone().when(LINE_END, self.line_end..=self.line_end);
        let rest = line_end.saturating_sub(claim.by_line(until));
        Some(update.set(LINE_END, line_end).set(MOVES_BY, rest))
    }

    /// The place of a message that waits in line while its service is paused until this time, and its
    /// turn. It moves if it is called up before.
    pub(crate) fn held(
        &self,
        limit: &KnownLimit,
        place: Place,
        until: SystemTime,
        now: SystemTime,
    ) -> (Place, SystemTime) {
        Claim::new(limit, *self, now).held(place, until)
    }

    /// The change of the pace to that of another state, if nobody else changes it meanwhile.
    pub(crate) fn pace_update(&self, next: &Self) -> Update {
        next.pace.written(self.pace.unchanged(Update::new()))
    }

    /// This state with the pace of another one.
    pub(crate) fn at_pace_of(self, other: &Self) -> Self {
        Self { pace: other.pace, ..self }
    }

    /// This state with its gate by another clock, which shows `to` when the one of before shows
    /// `from`.
    pub(crate) fn with_gate_moved(self, from: u64, to: u64) -> Self {
        Self { tat: to.saturating_add(self.tat.saturating_sub(from)), ..self }
    }

    /// Follows a clock that was set back by this time: turns are as far away as before.
    pub(crate) fn set_back(&mut self, by: Duration) {
        self.line_end = self.line_end.saturating_sub(nanos(by));
    }

    /// Whether the state says no more than a new one: the gate has its whole burst again, nobody
    /// waits in line, and the pace is whole.
    pub(crate) fn is_idle(&self, now: SystemTime) -> bool {
        let now = epoch_nanos(now);
        let line_end = self.line_end.saturating_add(self.pace.behind_at_last());
        self.tat.max(line_end) <= now && self.pace.is_over(now)
    }
}

/// Where a time of the state is, as an execution environment sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Time {
    /// The gate is free, or nobody waits in line.
    Over,
    /// Some calls were let through, or some messages wait.
    Ahead,
    /// A clock has left it behind which was set back since. It counts as over.
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

    /// The times for which this is so.
    fn range(self, now: u64, latest: u64) -> RangeInclusive<u64> {
        match self {
            Self::Over => 0..=now,
            Self::Ahead => now.saturating_add(1)..=latest,
            Self::Lost { beyond } => beyond.saturating_add(1)..=u64::MAX,
        }
    }
}

/// Nanoseconds since the epoch, the unit of times in items.
pub(crate) fn epoch_nanos(time: SystemTime) -> u64 {
    nanos(time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

fn from_epoch_nanos(nanos: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos)
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
