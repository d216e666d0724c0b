//! The rate limits of the scopes, shared by all batches of an execution environment. A gate uses a
//! monotonic clock, since a clock that is set would let calls through too early.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::SystemTime;

use tokio::time::Instant;

use crate::limit::{LimitState, epoch_nanos, nanos};
use crate::lock::lock;
use crate::scope::Scope;

/// The most scopes with a limit of their own. Further scopes share one limit.
const MAX_SCOPES: usize = 10_000;

#[derive(Default)]
pub(crate) struct Limiter {
    scopes: Mutex<Scopes>,
}

#[derive(Default)]
struct Scopes {
    /// The gates of these states use monotonic time.
    own: HashMap<Scope, LimitState>,
    others: LimitState,
    /// The beginning of the monotonic time.
    began: Option<Instant>,
}

impl Limiter {
    /// Reads or changes the state of a scope. Both clocks give the time.
    pub(crate) fn with<T>(
        &self,
        scope: Scope,
        (now, at): (SystemTime, Instant),
        change: impl FnOnce(&mut LimitState) -> T,
    ) -> T {
        let mut scopes = lock(&self.scopes);
        let (monotonic, time_of_day) = (scopes.monotonic(at), epoch_nanos(now));
        let state = scopes.of(scope, now, monotonic);
        let mut by_day = state.with_gate_moved(monotonic, time_of_day);
        let result = change(&mut by_day);
        *state = by_day.with_gate_moved(time_of_day, monotonic);
        result
    }
}

impl Scopes {
    /// Nanoseconds since the first call of this function.
    fn monotonic(&mut self, at: Instant) -> u64 {
        nanos(at.saturating_duration_since(*self.began.get_or_insert(at)))
    }

    fn of(&mut self, scope: Scope, now: SystemTime, monotonic: u64) -> &mut LimitState {
        if self.own.len() >= MAX_SCOPES && !self.own.contains_key(&scope) {
            let by_day = |state: &LimitState| state.with_gate_moved(monotonic, epoch_nanos(now));
            self.own.retain(|_, state| !by_day(state).is_idle(now));
            if self.own.len() >= MAX_SCOPES {
                return &mut self.others;
            }
        }
        self.own.entry(scope).or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::limit::{Admission, Ask, Demand};
    use crate::policy::RateLimit;

    #[test]
    fn a_clock_that_is_set_neither_stops_the_calls_nor_adds_any() {
        let limit = RateLimit::new(10, Duration::from_secs(1));
        let (second, began) = (Duration::from_secs(1), Instant::now());
        let longest = Duration::ZERO;
        let demand = Demand { ask: Ask::Retry, tenant: None, units: 1, longest };
        let noon = SystemTime::UNIX_EPOCH + Duration::from_hours(500_000);
        for by in [0, 1, 50, 400, 2_000, 600_000, 4_000_000, 40_000_000] {
            let by = Duration::from_millis(by);
            for (change, set) in [("ahead", noon + by), ("back", noon - by)] {
                let limiter = Limiter::default();
                let is_called = |tick: &u32| {
                    // Real time goes on, 50 ms for each tick. The clock is set in the middle.
                    let real = second * *tick / 20;
                    let clock = if *tick < 10 { noon + real } else { set + real };
                    let now = (clock, began + real);
                    let admitted = limiter
                        .with(Scope::default(), now, |state| state.admit(&limit, demand, clock));
                    admitted == Admission::Slot(Duration::ZERO)
                };
                let called: Vec<_> = (0..20).filter(is_called).collect();
                let expected: Vec<_> = (0..20).step_by(2).collect();
                assert_eq!(called, expected, "set {change} by {by:?}");
            }
        }
    }
}
