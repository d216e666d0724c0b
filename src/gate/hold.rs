//! A hold: a pause or an open circuit. It keeps messages back for a time, and then lets some of
//! them probe.

use std::time::{Duration, SystemTime};

use super::call::Caller;
use crate::disposition::Deferral;
use crate::policy::CircuitBreaker;

/// The first open time of a circuit. Each time all probes fail, it is multiplied by this factor, up
/// to the reset timeout. So a circuit that opened at random costs a moment.
const FIRST_OPEN: Duration = Duration::from_secs(1);
const OPEN_GROWTH: u32 = 3;
/// Messages that probe together.
pub(super) const PROBES: u32 = 3;

/// The length of a circuit that opens for the first time.
pub(super) fn first_length(breaker: &CircuitBreaker) -> Duration {
    FIRST_OPEN.min(breaker.reset_timeout)
}

/// The length of a circuit after all probes failed, and the longest one. A service that responds to
/// some calls is probed more often.
pub(super) fn next_length(
    length: Duration,
    breaker: &CircuitBreaker,
    is_down: bool,
) -> (Duration, Duration) {
    let CircuitBreaker { reset_timeout, .. } = *breaker;
    let longest = if is_down { reset_timeout } else { reset_timeout / OPEN_GROWTH };
    (length.saturating_mul(OPEN_GROWTH).min(longest), longest)
}

/// A hold on the messages of a scope.
pub(super) struct Hold {
    pub(super) number: u64,
    pub(super) why: Deferral,
    since: SystemTime,
    length: Duration,
    /// Messages that may probe.
    pub(super) permits: u32,
    /// The permits for messages that never failed, and those for messages that did. Either kind may
    /// fail for its own reasons while the service works for the other.
    shares: [u32; 2],
    /// Permits that were given out, in the same order.
    pub(super) given: [u32; 2],
    /// Probes that failed.
    pub(super) failed: u32,
}

impl Hold {
    /// A pause, after which one message of either kind probes.
    pub(super) fn pause(number: u64, since: SystemTime, length: Duration) -> Self {
        Self::new(number, Deferral::Paused, since, length, 1, [1, 1])
    }

    /// A circuit that opens for the first time.
    pub(super) fn open(number: u64, breaker: &CircuitBreaker, since: SystemTime) -> Self {
        let length = first_length(breaker);
        Self::new(number, Deferral::CircuitOpen, since, length, PROBES, [PROBES - 1; 2])
    }

    /// The next hold of the circuit, after all probes failed. For a service that responds to nothing,
    /// one message at a time is enough in the end. It is by turns one that failed before and one that did not.
    pub(super) fn reopen(
        &self,
        number: u64,
        breaker: &CircuitBreaker,
        is_down: bool,
        since: SystemTime,
    ) -> Self {
        let (length, longest) = next_length(self.length, breaker, is_down);
        if !is_down || length < longest {
            return Self::new(number, self.why, since, length, PROBES, [PROBES - 1; 2]);
        }
        let shares = if self.shares == [0, 1] { [1, 0] } else { [0, 1] };
        Self::new(number, self.why, since, length, 1, shares)
    }

    fn new(
        number: u64,
        why: Deferral,
        since: SystemTime,
        length: Duration,
        permits: u32,
        shares: [u32; 2],
    ) -> Self {
        Self { number, why, since, length, permits, shares, given: [0, 0], failed: 0 }
    }

    /// The rest of the hold. If the clock is set back, the hold begins anew, so that it lasts no
    /// longer than intended from then.
    pub(super) fn rest(&mut self, now: SystemTime) -> Duration {
        self.since = self.since.min(now);
        self.length.saturating_sub(now.duration_since(self.since).unwrap_or_default())
    }

    /// Gives the message a permit to probe, or returns its wait for one: zero if all permits are
    /// given. If no message of the other kind came for as long as the hold lasted, this one gets a
    /// permit of that kind.
    pub(super) fn probe(&mut self, caller: Caller, now: SystemTime) -> Result<(), Duration> {
        let rest = self.rest(now);
        if !rest.is_zero() {
            return Err(rest);
        }
        if self.given.iter().sum::<u32>() >= self.permits {
            return Err(Duration::ZERO);
        }
        let kind = usize::from(caller.has_failed());
        if self.given[kind] >= self.shares[kind] {
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
        let are_given = self.given.iter().sum::<u32>() >= self.permits;
        let is_for_one_kind =
            self.given.iter().zip(self.shares).any(|(given, share)| *given >= share);
        if rest.is_zero() && is_for_one_kind && !are_given {
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
