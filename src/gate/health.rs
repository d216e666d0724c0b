//! The health of the downstream service of a scope, by its calls: whether the service works, and
//! whether its circuit opens.

use std::time::{Duration, SystemTime};

use super::call::Caller;
use super::pause::{Pause, Recovery};
use crate::disposition::Deferral;
use crate::limit::epoch_nanos;
use crate::policy::CircuitBreaker;

/// The number of calls that determine the failure rate of a scope.
pub(super) const WINDOW: u32 = u128::BITS;
/// After this many responses in a row, a service works again.
pub(super) const RECOVERED: u32 = 16;
/// The longest row of failures that a circuit needs to open, in thresholds, however few calls get a
/// response.
const LONGEST_ROW: u32 = 10;

/// Failures in a row, of one execution environment or of all.
#[derive(Clone, Copy)]
pub(super) struct FailureRow {
    pub(super) length: u32,
    /// The responses to [`WINDOW`] calls before.
    pub(super) answered: u32,
}

impl FailureRow {
    /// Whether the service most likely responds to no call. If at most half of its calls got a
    /// response, the row may be random, unless it is as long as the window.
    pub(super) fn is_outage(self) -> bool {
        self.answered > WINDOW / 2 || self.length >= WINDOW
    }

    /// The shortest row that is hardly random. The rarer responses are, the longer it is.
    pub(super) fn least(self, breaker: &CircuitBreaker) -> u32 {
        let answered = self.answered.max(WINDOW.div_ceil(LONGEST_ROW));
        breaker.threshold.max(1).saturating_mul(WINDOW) / answered
    }
}

/// The recent calls of a scope in which a call failed.
pub(super) struct Health {
    /// The last [`WINDOW`] calls before the current row of failures. Each call is a bit, the newest
    /// one lowest; the bit is set if the call got a response.
    answered: u128,
    /// Calls that failed since the last response.
    row: u32,
    /// The messages of those calls, at most as many as the threshold. Each message counts once,
    /// since a message that always fails is little evidence about the service.
    failed: Vec<u64>,
    /// Failed calls since the last success that are evidence about the service.
    unserved: u32,
    /// Whether the circuit opened since the last success, also if only for few messages.
    pub(super) has_opened: bool,
    pub(super) pause: Option<Pause>,
    /// The end of the last open circuit of a service that responded to no call, or of a pause right
    /// after it, in nanoseconds since the epoch. A service that responds to some calls keeps its
    /// rate.
    recovered: u64,
}

impl Health {
    pub(super) fn new() -> Self {
        Self {
            answered: u128::MAX,
            row: 0,
            failed: Vec::new(),
            unserved: 0,
            has_opened: false,
            pause: None,
            recovered: 0,
        }
    }

    /// The number of the current pause.
    pub(super) fn current(&self) -> Option<u64> {
        self.pause.as_ref().map(|pause| pause.number)
    }

    pub(super) fn is_open(&self) -> bool {
        self.pause.as_ref().is_some_and(|pause| pause.why == Deferral::CircuitOpen)
    }

    /// Forgets a pause that ended long ago, and everything before it.
    pub(super) fn forget_pause(&mut self) {
        *self = Self { unserved: self.unserved, recovered: self.recovered, ..Self::new() };
    }

    /// Whether it has nothing to remember.
    pub(super) fn is_over(&self, now: SystemTime) -> bool {
        self.pause.is_none()
            && self.answered == u128::MAX
            && self.unserved == 0
            && self.recovery(now).is_none()
    }

    pub(super) fn recovery(&self, now: SystemTime) -> Option<Recovery> {
        Recovery::since(self.recovered, epoch_nanos(now))
    }

    /// Notes a call that was served, or whose failure is evidence about the service.
    pub(super) fn serve(&mut self, is_served: bool) {
        self.unserved = if is_served { 0 } else { self.unserved.saturating_add(1) };
    }

    /// Whether the service serves no message: by the calls of the scope since the last success, or,
    /// as there may be few messages in all, by those of one message that always failed.
    pub(super) fn serves_nobody(&self, of_message: u32, breaker: &CircuitBreaker) -> bool {
        let are_few = self.failed.len() < threshold(breaker);
        let least = if are_few { breaker.threshold.max(1) } else { self.as_row().least(breaker) };
        self.unserved.max(of_message) >= least
    }

    /// The least wait of a message that failed in such an outage. Together, the messages call no
    /// more often than an open circuit probes.
    pub(super) fn least_wait(&mut self, breaker: &CircuitBreaker, now: SystemTime) -> Duration {
        match &mut self.pause {
            Some(pause) if pause.why == Deferral::CircuitOpen => pause.rest(now),
            _ => {
                let messages = u32::try_from(self.failed.len()).unwrap_or(u32::MAX);
                breaker.reset_timeout.saturating_mul(messages.max(1))
            }
        }
    }

    /// Notes a call that got a response. Calls are possible from `open_from`.
    pub(super) fn answer(&mut self, open_from: u64) {
        if self.is_open() && self.as_row().is_outage() {
            self.recovered = open_from;
            // Calls before the outage are no evidence about the time after it.
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

    pub(super) fn fail(&mut self, caller: Caller, breaker: &CircuitBreaker) {
        self.row = self.row.saturating_add(1);
        if self.failed.len() < threshold(breaker) && !self.failed.contains(&caller.message) {
            self.failed.push(caller.message);
        }
    }

    pub(super) fn as_row(&self) -> FailureRow {
        FailureRow { length: self.row, answered: self.answered.count_ones() }
    }

    pub(super) fn opens(&self, breaker: &CircuitBreaker) -> bool {
        self.row >= self.as_row().least(breaker) && self.failed.len() >= threshold(breaker)
    }
}

fn threshold(breaker: &CircuitBreaker) -> usize {
    usize::try_from(breaker.threshold.max(1)).unwrap_or(usize::MAX)
}
