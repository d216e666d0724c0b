//! Rate limits, pure: the state of a scope's limit, the messages that ask and the time come in; their
//! slots, their turns and the change of the state go out. It reads no clock and knows no store.
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

use std::time::{Duration, SystemTime};

use crate::policy::RateLimit;

#[cfg(test)]
mod tests;

/// The furthest turn that is given out. Later newcomers ask again.
const LONGEST_LINE: Duration = Duration::from_secs(11 * 3_600);
/// A message is called so long before its turn, since SQS delays by whole seconds.
const EARLY: Duration = Duration::from_secs(1);
/// No slot is further away than this and the burst, since an invocation is shorter. If one is, the
/// clock was set back.
const FURTHEST_SLOT: Duration = Duration::from_secs(3_600);

/// The state of a scope's limit. Its times are nanoseconds since the epoch, and 0 before the first
/// call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LimitState {
    /// The gate: the theoretical arrival time of the next call.
    tat: u64,
    /// The turn of the next newcomer; nobody waits if that is over.
    line_end: u64,
    /// The time by which the line was held back so far.
    held_back: u64,
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
    /// A message that waited in its place in the queue, and cannot carry a place in the line.
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

impl LimitState {
    /// Admits one message, which can wait for its slot as long as `longest`.
    pub(crate) fn admit(
        &mut self,
        limit: &RateLimit,
        ask: Ask,
        longest: Duration,
        now: SystemTime,
    ) -> Admission {
        let (now, longest) = (epoch_nanos(now), nanos(longest));
        self.follow(limit, now);
        let has_line = self.line_end > now;
        match ask {
            Ask::Waited(place) if has_line && self.called_at(place) >= now + nanos(EARLY) => {
                Admission::InLine(place, from_epoch_nanos(self.called_at(place)))
            }
            Ask::Waited(_) => {
                let admission = self.pass(limit, longest, now);
                // The gate is behind the line.
                self.hold_back(limit, now, admission == Admission::Full);
                admission
            }
            Ask::Retry => {
                let admission = self.pass(limit, longest, now);
                self.hold_back(limit, now, admission != Admission::Full);
                admission
            }
            Ask::Newcomer if has_line => self.join(limit, now),
            Ask::Newcomer | Ask::Returned => match self.pass(limit, longest, now) {
                Admission::Full => self.join(limit, now),
                slot => slot,
            },
        }
    }

    /// Forgets times that a clock has left behind which was set back since.
    fn follow(&mut self, limit: &RateLimit, now: u64) {
        let burst = limit.interval_nanos().saturating_mul(u64::from(limit.burst.max(1)));
        let furthest = now.saturating_add(nanos(FURTHEST_SLOT)).saturating_add(burst);
        if self.tat > furthest {
            self.tat = now;
        }
        if self.line_end > furthest.saturating_add(nanos(LONGEST_LINE)) {
            self.line_end = now;
        }
    }

    /// Whether the state says no more than a new one: the gate has its whole burst again, and nobody
    /// waits in line.
    pub(crate) fn is_idle(&self, now: SystemTime) -> bool {
        self.tat.max(self.line_end) <= epoch_nanos(now)
    }

    fn called_at(&self, place: Place) -> u64 {
        // A place of another execution environment, or a forged one, is at most the last.
        place.0.saturating_add(self.held_back).min(self.line_end)
    }

    /// Passes the gate, if it has a slot soon enough.
    fn pass(&mut self, limit: &RateLimit, longest: u64, now: u64) -> Admission {
        let wait = self.slot(limit, now) - now;
        if wait > longest {
            return Admission::Full;
        }
        self.tat = self.tat.max(now).saturating_add(limit.interval_nanos());
        Admission::Slot(Duration::from_nanos(wait))
    }

    /// Moves the line back by one place, if there is one.
    fn hold_back(&mut self, limit: &RateLimit, now: u64, is_displaced: bool) {
        if is_displaced && self.line_end > now {
            self.held_back = self.held_back.saturating_add(limit.interval_nanos());
            self.line_end = self.line_end.saturating_add(limit.interval_nanos());
        }
    }

    /// The time of the next call through the gate.
    fn slot(&self, limit: &RateLimit, now: u64) -> u64 {
        let ahead = u64::from(limit.burst.max(1) - 1).saturating_mul(limit.interval_nanos());
        self.tat.saturating_sub(ahead).max(now)
    }

    /// Joins the line at its end. A new line begins where the gate has its next slot.
    fn join(&mut self, limit: &RateLimit, now: u64) -> Admission {
        if self.line_end <= now {
            (self.line_end, self.held_back) = (self.slot(limit, now), 0);
        }
        let at = self.line_end;
        if at > now.saturating_add(nanos(LONGEST_LINE)) {
            return Admission::LineFull;
        }
        self.line_end = at.saturating_add(limit.interval_nanos());
        Admission::InLine(Place(at.saturating_sub(self.held_back)), from_epoch_nanos(at))
    }
}

fn epoch_nanos(time: SystemTime) -> u64 {
    nanos(time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

fn from_epoch_nanos(nanos: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
