//! The rate limits of the scopes. All batches of an execution environment share them. It decides by
//! its arguments alone and reads no clock.
//!
//! The gate goes by a monotonic clock, which cannot be set: a time of day that jumps ahead would let
//! calls through too early.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use tokio::time::Instant;

use super::call::Scope;
use crate::classify::Allowance;
use crate::limit::{Admission, Demand, KnownLimit, LimitState, epoch_nanos, nanos};
use crate::policy::RateLimit;

/// The most scopes with a limit of their own. If so many are in use, further ones share one limit.
const MAX_SCOPES: usize = 10_000;

/// The limits of all scopes.
#[derive(Default)]
pub(crate) struct Limiter {
    scopes: Mutex<Scopes>,
}

#[derive(Default)]
struct Scopes {
    /// The gates of these states are monotonic times.
    own: HashMap<Scope, LimitState>,
    others: LimitState,
    /// The beginning of the monotonic time.
    began: Option<Instant>,
}

impl Limiter {
    /// Admits one message. The time is now by both clocks.
    pub(crate) fn admit(
        &self,
        scope: Scope,
        limit: &RateLimit,
        demand: Demand,
        (now, at): (SystemTime, Instant),
    ) -> Admission {
        let mut scopes = self.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        let (monotonic, time_of_day) = (scopes.monotonic(at), epoch_nanos(now));
        let state = scopes.of(scope, now, monotonic);
        let mut by_day = state.with_gate_moved(monotonic, time_of_day);
        let admission = by_day.admit(limit, demand, now);
        *state = by_day.with_gate_moved(time_of_day, monotonic);
        admission
    }

    /// Whether a message would wait in line.
    pub(crate) fn would_wait(
        &self,
        scope: Scope,
        limit: &RateLimit,
        demand: Demand,
        (now, at): (SystemTime, Instant),
    ) -> bool {
        let mut scopes = self.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        let monotonic = scopes.monotonic(at);
        let state = scopes.of(scope, now, monotonic).with_gate_moved(monotonic, epoch_nanos(now));
        state.would_wait(&KnownLimit::own(limit), demand, now)
    }

    /// The units that a call is likely to use.
    pub(crate) fn likely(
        &self,
        scope: Scope,
        limit: &RateLimit,
        units: u32,
        (now, at): (SystemTime, Instant),
    ) -> u32 {
        let mut scopes = self.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        let monotonic = scopes.monotonic(at);
        scopes.of(scope, now, monotonic).likely(units, limit)
    }

    /// Corrects the units of a call.
    pub(crate) fn correct(
        &self,
        scope: Scope,
        limit: &RateLimit,
        (estimated, reserved): (u32, u32),
        used: u32,
        (now, at): (SystemTime, Instant),
    ) {
        let mut scopes = self.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        let monotonic = scopes.monotonic(at);
        let state = scopes.of(scope, now, monotonic);
        state.note_used(estimated, used);
        *state = state.corrected(limit, i64::from(used) - i64::from(reserved));
    }

    /// Notes that the service refused a call.
    pub(crate) fn refused(
        &self,
        scope: Scope,
        limit: &RateLimit,
        asked: SystemTime,
        (now, at): (SystemTime, Instant),
    ) {
        let known = KnownLimit::own(limit);
        self.slow_down(scope, (now, at), |state| state.refused(&known, asked, now));
    }

    /// Notes what a response says is left of the service's allowances.
    pub(crate) fn capped(
        &self,
        scope: Scope,
        limit: &RateLimit,
        allowances: &[Allowance],
        (now, at): (SystemTime, Instant),
    ) {
        let known = KnownLimit::own(limit);
        self.slow_down(scope, (now, at), |state| state.capped(&known, allowances, now));
    }

    /// Takes a lower pace, if there is one.
    fn slow_down(
        &self,
        scope: Scope,
        (now, at): (SystemTime, Instant),
        slower: impl Fn(&LimitState) -> Option<LimitState>,
    ) {
        let mut scopes = self.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        let (monotonic, time_of_day) = (scopes.monotonic(at), epoch_nanos(now));
        let state = scopes.of(scope, now, monotonic);
        if let Some(next) = slower(&state.with_gate_moved(monotonic, time_of_day)) {
            *state = state.at_pace_of(&next);
        }
    }
}

impl Scopes {
    /// Nanoseconds since the first time that was seen.
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
    use crate::limit::Ask;

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
                    let admitted = limiter.admit(Scope::default(), &limit, demand, now);
                    admitted == Admission::Slot(Duration::ZERO)
                };
                let called: Vec<_> = (0..20).filter(is_called).collect();
                let expected: Vec<_> = (0..20).step_by(2).collect();
                assert_eq!(called, expected, "set {change} by {by:?}");
            }
        }
    }
}
