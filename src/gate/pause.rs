//! A pause, by a request of the service or by an open circuit, and the calls after it if the
//! service has no rate limit. A pause defers all messages for a time, and then some of them probe.
//! The rules are the same for one execution environment and for all.

use std::time::{Duration, SystemTime};

use super::call::{Caller, NotPermitted};
use crate::disposition::Deferral;
use crate::limit::{Ask, Demand, nanos};
use crate::policy::{CircuitBreaker, RateLimit};

/// The first open time of a circuit. Each time all probes fail, this factor multiplies it, up to
/// the reset timeout. So a circuit that opened at random costs only a moment.
const FIRST_OPEN: Duration = Duration::from_secs(1);
const OPEN_GROWTH: u32 = 3;
const PROBES: u32 = 3;
/// After a probe that is no evidence, the part of the open time until the next one.
const SILENT_PART: u32 = 10;

pub(super) fn first_length(breaker: &CircuitBreaker) -> Duration {
    FIRST_OPEN.min(breaker.reset_timeout)
}

/// The open time of a circuit after all probes failed.
pub(super) fn next_length(length: Duration, breaker: &CircuitBreaker, is_down: bool) -> Duration {
    let CircuitBreaker { reset_timeout, .. } = *breaker;
    let longest = if is_down { reset_timeout } else { reset_timeout / OPEN_GROWTH };
    length.saturating_mul(OPEN_GROWTH).min(longest)
}

/// The time until the next probe, after one that is no evidence. Otherwise calls that always fail in
/// such a way would probe without a pause.
pub(super) fn wait_after_silence(length: Duration) -> Duration {
    (length / SILENT_PART).max(FIRST_OPEN).min(length)
}

pub(super) struct Permits {
    pub(super) all: u32,
    /// The permits for messages that never failed, and for messages that did. Either kind may fail
    /// for its own reasons while the service works for the other.
    pub(super) shares: [u32; 2],
}

impl Permits {
    /// After a pause, one message of either kind probes.
    pub(super) const PAUSE: Self = Self { all: 1, shares: [1, 1] };
    /// The probes of a circuit that opened, or of a service that responds to some calls.
    pub(super) const OPEN: Self = Self { all: PROBES, shares: [PROBES - 1; 2] };

    /// The probes of a circuit of this length, after this many rounds of failed probes. If the
    /// service responds to no call, each round finally has one message, alternately one that failed
    /// before and one that did not.
    pub(super) fn after(
        rounds: u64,
        length: Duration,
        breaker: &CircuitBreaker,
        is_down: bool,
    ) -> Self {
        if rounds == 0 || length < breaker.reset_timeout || !is_down {
            return Self::OPEN;
        }
        Self { all: 1, shares: if rounds.is_multiple_of(2) { [1, 0] } else { [0, 1] } }
    }
}

pub(super) struct Pause {
    pub(super) number: u64,
    pub(super) why: Deferral,
    since: SystemTime,
    length: Duration,
    /// How often in a row all probes failed.
    rounds: u64,
    pub(super) permits: Permits,
    /// Permits in use: by messages that never failed, and by those that did.
    pub(super) given: [u32; 2],
    pub(super) failed: u32,
    /// Whether a message that never failed asked to probe: in this pause, and in the one before.
    /// Messages that failed are always assumed to wait, since the probes failed.
    new_came: bool,
    new_came_before: bool,
}

impl Pause {
    pub(super) fn asked_for(number: u64, since: SystemTime, length: Duration) -> Self {
        let (why, permits) = (Deferral::Paused, Permits::PAUSE);
        // The kinds of messages that wait are unknown at the beginning.
        let (new_came, new_came_before) = (false, true);
        let (rounds, given, failed) = (0, [0, 0], 0);
        Self {
            number,
            why,
            since,
            length,
            rounds,
            permits,
            given,
            failed,
            new_came,
            new_came_before,
        }
    }

    pub(super) fn open(number: u64, breaker: &CircuitBreaker, since: SystemTime) -> Self {
        let (why, permits) = (Deferral::CircuitOpen, Permits::OPEN);
        Self { why, permits, ..Self::asked_for(number, since, first_length(breaker)) }
    }

    /// The next pause of the circuit, after all probes failed.
    pub(super) fn reopen(
        &self,
        number: u64,
        breaker: &CircuitBreaker,
        is_down: bool,
        since: SystemTime,
    ) -> Self {
        let (rounds, length) = (self.rounds + 1, next_length(self.length, breaker, is_down));
        let permits = Permits::after(rounds, length, breaker, is_down);
        let (why, new_came_before) = (self.why, self.new_came);
        let next = Self::asked_for(number, since, length);
        Self { why, rounds, permits, new_came_before, ..next }
    }

    /// The rest of the pause. If the clock was set back, it is at most the intended length.
    pub(super) fn rest(&mut self, now: SystemTime) -> Duration {
        self.since = self.since.min(now);
        self.length.saturating_sub(now.duration_since(self.since).unwrap_or_default())
    }

    /// Gives the message a permit to probe, or returns its wait for one: zero if all permits are in
    /// use. A permit is reserved for its kind for as long as the pause lasted, but none for
    /// messages that never failed if none of them asked in this pause or the one before.
    pub(super) fn probe(&mut self, caller: Caller, now: SystemTime) -> Result<(), Duration> {
        let (rest, kind) = (self.rest(now), usize::from(caller.has_failed()));
        self.new_came |= kind == 0;
        if !rest.is_zero() {
            return Err(rest);
        }
        if self.permits_left() == 0 {
            return Err(Duration::ZERO);
        }
        if self.is_used_up(kind) {
            let rest = self.rest_for_one_kind(now);
            if !rest.is_zero() {
                return Err(rest);
            }
        }
        self.given[kind] += 1;
        Ok(())
    }

    /// Lets no message probe for a while, since a probe was no evidence.
    pub(super) fn note_silence(&mut self, now: SystemTime) {
        let over = self.length.saturating_sub(wait_after_silence(self.length));
        self.since = self.since.max(now - over);
    }

    /// The time until any message may probe; zero if all permits are given.
    pub(super) fn rest_for_all(&mut self, now: SystemTime) -> Duration {
        let rest = self.rest(now);
        let is_for_one_kind = self.is_used_up(0) || self.is_used_up(1);
        if rest.is_zero() && is_for_one_kind && self.permits_left() > 0 {
            self.rest_for_one_kind(now)
        } else {
            rest
        }
    }

    /// Whether only messages of the other kind may probe, and some of them may wait.
    fn is_used_up(&self, kind: usize) -> bool {
        let other_waits = kind == 0 || self.new_came || self.new_came_before;
        self.given[kind] >= self.permits.shares[kind] && other_waits
    }

    /// The time for which a permit is reserved for messages of its kind.
    fn rest_for_one_kind(&self, now: SystemTime) -> Duration {
        let age = now.duration_since(self.since).unwrap_or_default();
        self.length.saturating_mul(2).saturating_sub(age)
    }

    pub(super) fn permits_left(&self) -> u32 {
        self.permits.all.saturating_sub(self.given.iter().sum())
    }

    pub(super) fn is_probed(&self) -> bool {
        self.given != [0, 0]
    }

    /// Whether this is a pause that ended as long ago as it lasted, without a probe. A circuit
    /// stays open, since the service did not work.
    pub(super) fn has_lapsed(&self, now: SystemTime) -> bool {
        let age = now.duration_since(self.since).unwrap_or_default();
        self.why == Deferral::Paused && !self.is_probed() && age >= self.length.saturating_mul(2)
    }
}

/// The calls in the first second.
const FIRST_CALLS: u32 = 10;
/// They double each second. After this time there is no limit.
const RECOVERY: Duration = Duration::from_secs(7);

/// The most by which the clocks of two execution environments differ. A time further ahead is an
/// error of the clock that wrote it.
pub(super) const SKEW: Duration = Duration::from_secs(5);

/// A service that works again since a moment ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Recovery {
    /// The calls that it gets now.
    pub(crate) limit: RateLimit,
    /// The time until its calls have no limit.
    rest: Duration,
}

impl Recovery {
    /// The recovery of a service whose circuit closed at `end`, or whose pause after that ended
    /// then.
    pub(super) fn since(end: u64, now: u64) -> Option<Self> {
        let is_wrong = end > now.saturating_add(nanos(SKEW));
        let age = Duration::from_nanos(now.saturating_sub(end));
        let rest = RECOVERY.checked_sub(age).filter(|rest| !rest.is_zero() && !is_wrong)?;
        let limit = RateLimit::new(FIRST_CALLS << age.as_secs(), Duration::from_secs(1));
        Some(Self { limit: RateLimit { max_reservation: limit.period, ..limit }, rest })
    }

    /// A reservation for one call. There is no waiting list.
    pub(crate) fn demand(&self) -> Demand {
        Demand { ask: Ask::Retry, tenant: None, units: 1, longest: self.limit.max_reservation }
    }

    pub(crate) fn refusal(&self) -> NotPermitted {
        NotPermitted { why: Deferral::CircuitOpen, rest: self.rest }
    }
}
