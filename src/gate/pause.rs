//! A pause that a service asks for, or that an open circuit makes. It keeps messages back for a time, and then lets some of
//! them probe. Its lengths and its probes are the same for one execution environment and for all.

use std::time::{Duration, SystemTime};

use super::call::Caller;
use crate::disposition::Deferral;
use crate::policy::CircuitBreaker;

/// The first open time of a circuit. Each time all probes fail, it is multiplied by this factor, up
/// to the reset timeout. So a circuit that opened at random costs a moment.
const FIRST_OPEN: Duration = Duration::from_secs(1);
const OPEN_GROWTH: u32 = 3;
/// Messages that probe together.
const PROBES: u32 = 3;

/// The length of a circuit that opens for the first time.
pub(super) fn first_length(breaker: &CircuitBreaker) -> Duration {
    FIRST_OPEN.min(breaker.reset_timeout)
}

/// The length of a circuit after all probes failed. A service that responds to some calls is probed
/// more often.
pub(super) fn next_length(length: Duration, breaker: &CircuitBreaker, is_down: bool) -> Duration {
    let CircuitBreaker { reset_timeout, .. } = *breaker;
    let longest = if is_down { reset_timeout } else { reset_timeout / OPEN_GROWTH };
    length.saturating_mul(OPEN_GROWTH).min(longest)
}

/// The probes of a pause.
pub(super) struct Permits {
    /// Messages that may probe.
    pub(super) all: u32,
    /// The permits for messages that never failed, and those for messages that did. Either kind may
    /// fail for its own reasons while the service works for the other.
    pub(super) shares: [u32; 2],
}

impl Permits {
    /// After a pause, one message of either kind probes.
    pub(super) const PAUSE: Self = Self { all: 1, shares: [1, 1] };
    /// The probes of a circuit that opened for the first time, or of a service that responds to some
    /// calls.
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

/// A pause on the messages of a scope.
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
    /// Probes that failed.
    pub(super) failed: u32,
}

impl Pause {
    pub(super) fn asked_for(number: u64, since: SystemTime, length: Duration) -> Self {
        let (why, permits) = (Deferral::Paused, Permits::PAUSE);
        Self { number, why, since, length, rounds: 0, permits, given: [0, 0], failed: 0 }
    }

    /// A circuit that opens for the first time.
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
        Self { why: self.why, rounds, permits, ..Self::asked_for(number, since, length) }
    }

    /// The rest of the pause. If the clock is set back, the pause begins anew, so that it lasts no
    /// longer than intended from then.
    pub(super) fn rest(&mut self, now: SystemTime) -> Duration {
        self.since = self.since.min(now);
        self.length.saturating_sub(now.duration_since(self.since).unwrap_or_default())
    }

    /// Gives the message a permit to probe, or returns its wait for one: zero if all permits are
    /// given. If no message of the other kind came for as long as the pause lasted, this one gets a
    /// permit of that kind.
    pub(super) fn probe(&mut self, caller: Caller, now: SystemTime) -> Result<(), Duration> {
        let rest = self.rest(now);
        if !rest.is_zero() {
            return Err(rest);
        }
        if self.permits_left() == 0 {
            return Err(Duration::ZERO);
        }
        let kind = usize::from(caller.has_failed());
        if self.given[kind] >= self.permits.shares[kind] {
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
        let is_for_one_kind =
            self.given.iter().zip(self.permits.shares).any(|(given, share)| *given >= share);
        if rest.is_zero() && is_for_one_kind && self.permits_left() > 0 {
            self.rest_for_one_kind(now)
        } else {
            rest
        }
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

    /// Whether this is a pause that ended as long ago as it lasted, and no message probed. The
    /// request for that pause says nothing any more. A circuit stays open, since the service did
    /// not work.
    pub(super) fn has_lapsed(&self, now: SystemTime) -> bool {
        let age = now.duration_since(self.since).unwrap_or_default();
        self.why == Deferral::Paused && !self.is_probed() && age >= self.length.saturating_mul(2)
    }
}
