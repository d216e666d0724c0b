//! A pause that a service asks for, or that an open circuit makes; and the calls of a service after one,
//! if it has no rate limit. A pause keeps messages back for a time, and then lets some of them probe. The
//! rules are the same for one execution environment and for all.

use std::time::{Duration, SystemTime};

use super::call::{Caller, NotPermitted};
use crate::disposition::Deferral;
use crate::limit::{Ask, Demand, nanos};
use crate::policy::{CircuitBreaker, RateLimit};

/// The first open time of a circuit. Each time all probes fail, it is multiplied by this factor, up
/// to the reset timeout. So a circuit that opened at random costs a moment.
const FIRST_OPEN: Duration = Duration::from_secs(1);
const OPEN_GROWTH: u32 = 3;
const PROBES: u32 = 3;

pub(super) fn first_length(breaker: &CircuitBreaker) -> Duration {
    FIRST_OPEN.min(breaker.reset_timeout)
}

/// The length of a circuit after all probes failed.
pub(super) fn next_length(length: Duration, breaker: &CircuitBreaker, is_down: bool) -> Duration {
    let CircuitBreaker { reset_timeout, .. } = *breaker;
    let longest = if is_down { reset_timeout } else { reset_timeout / OPEN_GROWTH };
    length.saturating_mul(OPEN_GROWTH).min(longest)
}

pub(super) struct Permits {
    pub(super) all: u32,
    /// The permits for messages that never failed, and those for messages that did. Either kind may
    /// fail for its own reasons while the service works for the other.
    pub(super) shares: [u32; 2],
}

impl Permits {
    /// After a pause, one message of either kind probes.
    pub(super) const PAUSE: Self = Self { all: 1, shares: [1, 1] };
    /// The probes of a circuit that opened, or of a service that responds to some calls.
    pub(super) const OPEN: Self = Self { all: PROBES, shares: [PROBES - 1; 2] };

    /// The probes of a circuit of this length, after so many rounds in which all of them failed. For
    /// a service that responds to nothing, one message at a time is enough in the end. It is by
    /// turns one that failed before and one that did not.
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
    /// Permits that were given out: to messages that never failed, and to those that did.
    pub(super) given: [u32; 2],
    pub(super) failed: u32,
    /// Whether a message that never failed came, whatever its answer: in this pause, and in the one
    /// before. One that failed waits in any case, since the probes failed.
    new_came: bool,
    new_came_before: bool,
}

impl Pause {
    pub(super) fn asked_for(number: u64, since: SystemTime, length: Duration) -> Self {
        let (why, permits) = (Deferral::Paused, Permits::PAUSE);
        // Nobody knows who waits at its beginning.
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

    /// The rest of the pause, no longer than intended if the clock is set back.
    pub(super) fn rest(&mut self, now: SystemTime) -> Duration {
        self.since = self.since.min(now);
        self.length.saturating_sub(now.duration_since(self.since).unwrap_or_default())
    }

    /// Gives the message a permit to probe, or returns its wait for one: zero if all permits are
    /// given. A permit is kept for a message of its kind for as long as the pause lasted. If no message
    /// that never failed came in this pause or in the one before, none is kept for those.
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

    /// Whether only messages of the other kind may probe, and one of them may wait.
    fn is_used_up(&self, kind: usize) -> bool {
        let other_waits = kind == 0 || self.new_came || self.new_came_before;
        self.given[kind] >= self.permits.shares[kind] && other_waits
    }

    /// The time for which a permit is left for messages of its kind.
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

    /// Whether this is a pause that ended as long ago as it lasted, and no message probed. A
    /// circuit stays open, since the service did not work.
    pub(super) fn has_lapsed(&self, now: SystemTime) -> bool {
        let age = now.duration_since(self.since).unwrap_or_default();
        self.why == Deferral::Paused && !self.is_probed() && age >= self.length.saturating_mul(2)
    }
}

/// The calls in the first second.
const FIRST_CALLS: u32 = 10;
/// They double in each second. After this, there are as many as come.
const RECOVERY: Duration = Duration::from_secs(7);

/// So far apart the clocks of two execution environments may be. A time further ahead is an error of
/// the clock that set it.
pub(super) const SKEW: Duration = Duration::from_secs(5);

/// A service that came back a moment ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Recovery {
    /// The calls that it gets now.
    pub(crate) limit: RateLimit,
    /// The time until it gets as many as come.
    rest: Duration,
}

impl Recovery {
    /// That of a service whose circuit closed at `end`, or whose pause after that ended then.
    pub(super) fn since(end: u64, now: u64) -> Option<Self> {
        let is_wrong = end > now.saturating_add(nanos(SKEW));
        let age = Duration::from_nanos(now.saturating_sub(end));
        let rest = RECOVERY.checked_sub(age).filter(|rest| !rest.is_zero() && !is_wrong)?;
        let limit = RateLimit::new(FIRST_CALLS << age.as_secs(), Duration::from_secs(1));
        Some(Self { limit: RateLimit { max_reservation: limit.period, ..limit }, rest })
    }

    /// The slot of a call. Nobody stands in line.
    pub(crate) fn demand(&self) -> Demand {
        Demand { ask: Ask::Retry, tenant: None, units: 1, longest: self.limit.max_reservation }
    }

    /// The answer to a message without a slot.
    pub(crate) fn refusal(&self) -> NotPermitted {
        NotPermitted { why: Deferral::CircuitOpen, rest: self.rest }
    }
}
