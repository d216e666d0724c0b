//! The health of the downstream service of a scope, by its calls: whether the service works, and
//! whether its circuit opens.

use super::call::Caller;
use super::hold::Hold;
use crate::disposition::Deferral;
use crate::policy::CircuitBreaker;

/// The number of calls by which the failure rate of a scope is known: a bit for each.
const WINDOW: u32 = u128::BITS;
/// After so many responses in a row, a service works again. A service that responds to only some
/// calls hardly reaches that at random.
const RECOVERED: u32 = 16;
/// The longest row of failures that a circuit needs to open, in thresholds, even if few calls get a
/// response.
const LONGEST_ROW: u32 = 10;
/// The recent calls of a scope in which a call failed.
pub(super) struct Health {
    /// The calls before the current row of failures: a bit for each, the newest one lowest, set if
    /// it got a response.
    answered: u128,
    /// Calls that failed since the last one that got a response.
    row: u32,
    /// The messages of those calls, at most as many as the threshold. A message that always fails
    /// says more about itself than about the service, so it counts once.
    failed: Vec<u64>,
    pub(super) hold: Option<Hold>,
}

impl Health {
    /// The health before any failure.
    pub(super) fn new() -> Self {
        Self { answered: u128::MAX, row: 0, failed: Vec::new(), hold: None }
    }

    /// The number of the current hold.
    pub(super) fn current(&self) -> Option<u64> {
        self.hold.as_ref().map(|hold| hold.number)
    }

    pub(super) fn is_open(&self) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.why == Deferral::CircuitOpen)
    }

    /// Whether nothing remains to be remembered.
    pub(super) fn is_over(&self) -> bool {
        self.hold.is_none() && self.answered == u128::MAX
    }

    /// Notes a call that got a response.
    pub(super) fn answer(&mut self) {
        if self.is_open() && self.is_down() {
            // The calls before the outage say nothing about the time after it.
            self.answered = 0;
        }
        // A row that is longer than the window fills it.
        self.answered = self.answered.checked_shl(self.row).unwrap_or_default() << 1 | 1;
        if self.answered.trailing_ones() >= RECOVERED {
            self.answered = u128::MAX;
        }
        self.row = 0;
        self.failed.clear();
    }

    /// Notes a failure.
    pub(super) fn fail(&mut self, caller: Caller, breaker: &CircuitBreaker) {
        self.row = self.row.saturating_add(1);
        if self.failed.len() < threshold(breaker) && !self.failed.contains(&caller.message) {
            self.failed.push(caller.message);
        }
    }

    /// Whether a service whose circuit is open most likely responds to nothing. If the service
    /// responded to at most half of its calls, the row may be random, unless it is as long as the
    /// window.
    pub(super) fn is_down(&self) -> bool {
        self.answered.count_ones() > WINDOW / 2 || self.row >= WINDOW
    }

    /// Whether the circuit is to open, since so long a row is hardly random. If half of the calls
    /// get a response, the row must be twice as long as if all do.
    pub(super) fn opens(&self, breaker: &CircuitBreaker) -> bool {
        let answered = self.answered.count_ones().max(WINDOW.div_ceil(LONGEST_ROW));
        let least = breaker.threshold.saturating_mul(WINDOW) / answered;
        self.row >= least && self.failed.len() >= threshold(breaker)
    }
}

fn threshold(breaker: &CircuitBreaker) -> usize {
    usize::try_from(breaker.threshold.max(1)).unwrap_or(usize::MAX)
}
