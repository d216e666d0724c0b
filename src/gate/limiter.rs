//! The rate limits of the scopes. All batches of an execution environment share them. It decides by
//! its arguments alone and reads no clock.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use super::scope::Scope;
use crate::limit::{Admission, Ask, KnownLimit, LimitState};
use crate::policy::RateLimit;

/// The most scopes with a limit of their own. If so many are in use, further ones share one limit.
const MAX_SCOPES: usize = 10_000;
/// A clock that is so much earlier than before was set back. Threads tell times that differ by less.
const SET_BACK: Duration = Duration::from_secs(1);

/// The limits of all scopes.
#[derive(Default)]
pub(crate) struct Limiter {
    scopes: Mutex<Scopes>,
}

struct Scopes {
    own: HashMap<Scope, LimitState>,
    others: LimitState,
    /// The last time by which the clock was read.
    read: SystemTime,
}

impl Default for Scopes {
    fn default() -> Self {
        let (own, others) = Default::default();
        Self { own, others, read: SystemTime::UNIX_EPOCH }
    }
}

impl Limiter {
    /// Admits one message, which can wait for its slot as long as `longest`.
    pub(crate) fn admit(
        &self,
        scope: Scope,
        limit: &RateLimit,
        ask: Ask,
        longest: Duration,
        now: SystemTime,
    ) -> Admission {
        let mut scopes = self.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        scopes.of(scope, now).admit(limit, ask, longest, now)
    }

    /// Notes that the service refused a call.
    pub(crate) fn refused(
        &self,
        scope: Scope,
        limit: &RateLimit,
        asked: SystemTime,
        now: SystemTime,
    ) {
        let mut scopes = self.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        let state = scopes.of(scope, now);
        *state = state.refused(&KnownLimit::own(limit), asked, now).unwrap_or(*state);
    }
}

impl Scopes {
    fn of(&mut self, scope: Scope, now: SystemTime) -> &mut LimitState {
        if let Ok(by) = self.read.duration_since(now)
            && by >= SET_BACK
        {
            // Otherwise no message would be called until the clock is there again.
            self.own.values_mut().chain([&mut self.others]).for_each(|state| state.set_back(by));
            self.read = now;
        }
        self.read = self.read.max(now);
        if self.own.len() >= MAX_SCOPES && !self.own.contains_key(&scope) {
            self.own.retain(|_, state| !state.is_idle(now));
            if self.own.len() >= MAX_SCOPES {
                return &mut self.others;
            }
        }
        self.own.entry(scope).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_back_neither_stops_the_calls_nor_adds_any() {
        let limit = RateLimit::new(10, Duration::from_secs(1));
        let second = Duration::from_secs(1);
        let noon = SystemTime::UNIX_EPOCH + Duration::from_hours(500_000);
        // A shorter step may hold the calls back by itself.
        for set_back in [Duration::ZERO, 2 * second, 600 * second, 4_000 * second] {
            let limiter = Limiter::default();
            let is_called = |tick: &u32| {
                // Real time goes on, 50 ms for each tick. The clock is set back in the middle.
                let real = second * *tick / 20;
                let clock = if *tick < 10 { noon + real } else { noon + real - set_back };
                let longest = Duration::ZERO;
                let admitted = limiter.admit(Scope::default(), &limit, Ask::Retry, longest, clock);
                admitted == Admission::Slot(Duration::ZERO)
            };
            let called: Vec<_> = (0..20).filter(is_called).collect();
            // The tick before the step is lost, since no clock measured it.
            assert!((9..=10).contains(&called.len()), "set back by {set_back:?}: {called:?}");
            let mut gaps = called.windows(2).map(|two| two[1] - two[0]);
            assert!(gaps.all(|gap| gap >= 2), "set back by {set_back:?}: {called:?}");
        }
    }
}
