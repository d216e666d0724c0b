//! The calls of one execution environment while the store does not answer: as many as lately, so that
//! all together stay within the limit.

use std::time::{Duration, SystemTime};

use crate::limit::{Admission, Ask, LimitState};
use crate::policy::RateLimit;

/// The calls of so long count, and of up to half as long before.
const LATELY: Duration = Duration::from_secs(30);
/// No slot is further away, since the store may answer before, and give that slot to another.
const LONGEST: Duration = Duration::from_millis(200);

/// The calls of a scope by this execution environment, and its own gate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fallback {
    began: Option<SystemTime>,
    /// Calls since then, and in the time of the same length before.
    calls: u64,
    calls_before: u64,
    /// The gate while there is no store.
    alone: Option<(RateLimit, LimitState)>,
    /// The last slot of this gate, of which the store does not know.
    last: Option<SystemTime>,
}

impl Fallback {
    /// Notes calls that the store allowed.
    pub(super) fn note(&mut self, calls: u64, now: SystemTime) {
        self.alone = None;
        if calls > 0 {
            self.last = None;
        }
        self.turn(now);
        self.calls += calls;
    }

    /// Admits one message without a store. It joins no line, since the line would wait for longer
    /// than the store is away. `sample` spreads the first calls of the execution environments.
    pub(super) fn admit(
        &mut self,
        limit: &RateLimit,
        max_environments: u32,
        taken: LimitState,
        longest: Duration,
        now: SystemTime,
        sample: f64,
    ) -> Admission {
        if self.alone.is_none() {
            self.turn(now);
            let interval = limit.interval();
            let rarest = interval.saturating_mul(max_environments.max(1));
            let calls = u32::try_from(self.calls + self.calls_before).unwrap_or(u32::MAX);
            let lately = LATELY.checked_div(calls).unwrap_or(rarest);
            let own = RateLimit::new(1, lately.clamp(interval, rarest));
            self.alone = Some((own, taken.idle_for(own.period.mul_f64(sample), now)));
        }
        let Some((own, state)) = &mut self.alone else { return Admission::Full };
        let admission = state.admit(own, Ask::Retry, longest.min(LONGEST), now);
        if let Admission::Slot(wait) = admission {
            self.last = Some(now + wait);
        }
        admission
    }

    /// The slots that the last calls without the store took of those which it would give from now on.
    pub(super) fn owed(&self, limit: &RateLimit, now: SystemTime) -> u64 {
        let last = self.last.map(|last| last + limit.interval());
        let over = last.and_then(|over| over.duration_since(now).ok()).unwrap_or_default();
        let slots = over.as_nanos().div_ceil(limit.interval().as_nanos());
        u64::try_from(slots).unwrap_or(u64::MAX)
    }

    /// Begins a new half of the time, if this one is over.
    fn turn(&mut self, now: SystemTime) {
        let age = self.began.map_or(LATELY, |began| now.duration_since(began).unwrap_or(LATELY));
        if age >= LATELY / 2 {
            self.calls_before = if age < LATELY { self.calls } else { 0 };
            (self.began, self.calls) = (Some(now), 0);
        }
    }
}
