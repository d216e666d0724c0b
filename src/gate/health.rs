//! The health of the downstream service of a scope, by its calls: whether it works, and whether its
//! circuit is to open.

use super::call::Caller;
use super::hold::Hold;
use crate::disposition::Deferral;
use crate::policy::CircuitBreaker;

/// The calls of a scope by which its failure rate is known: a bit for each.
const WINDOW: u32 = u128::BITS;
/// After so many responses in a row a service works again: one that responds to only some calls
/// hardly gets there at random.
const RECOVERED: u32 = 16;
/// A row of failures opens the circuit when it is at most so many times as long as the threshold,
/// however few calls get a response.
const LONGEST_ROW: u32 = 10;
/// The calls of a scope of which one failed.
pub(super) struct Health {
    /// The calls before the current row of failures: a bit for each, the newest one lowest, set if
    /// it got a response.
    answered: u128,
    /// Calls that failed since the last one that got a response.
    row: u32,
    /// Their messages: no more than the threshold. One that always fails says more about itself
    /// than about the service, and counts once.
    failed: Vec<u64>,
    pub(super) hold: Option<Hold>,
}

impl Health {
    /// So far all was well.
    pub(super) fn new() -> Self {
        Self { answered: u128::MAX, row: 0, failed: Vec::new(), hold: None }
    }

    /// The number of the hold that is on.
    pub(super) fn current(&self) -> Option<u64> {
        self.hold.as_ref().map(|hold| hold.number)
    }

    pub(super) fn is_open(&self) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.why == Deferral::CircuitOpen)
    }

    /// Nothing is left to know.
    pub(super) fn is_over(&self) -> bool {
        self.hold.is_none() && self.answered == u128::MAX
    }

    /// Notes a call that got a response.
    pub(super) fn answer(&mut self) {
        if self.is_open() && self.is_down() {
            // How well the service worked before the outage says nothing about the time after it.
            self.answered = 0;
        }
        // A row that is longer than the window leaves nothing else in it.
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

    /// Whether a service whose circuit is open most likely responds to nothing. One that responded
    /// to up to half of its calls may have failed at random, unless the row is as long as the
    /// window.
    pub(super) fn is_down(&self) -> bool {
        self.answered.count_ones() > WINDOW / 2 || self.row >= WINDOW
    }

    /// Whether the circuit is to open: so long a row hardly comes about at random. Where a half of
    /// the calls are answered, it has to be twice as long as where all are.
    pub(super) fn opens(&self, breaker: &CircuitBreaker) -> bool {
        let answered = self.answered.count_ones().max(WINDOW.div_ceil(LONGEST_ROW));
        let least = breaker.threshold.saturating_mul(WINDOW) / answered;
        self.row >= least && self.failed.len() >= threshold(breaker)
    }
}

fn threshold(breaker: &CircuitBreaker) -> usize {
    usize::try_from(breaker.threshold.max(1)).unwrap_or(usize::MAX)
}
