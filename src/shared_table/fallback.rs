//! The calls of one execution environment while the table does not respond: as many as in the last
//! 30 s, so that all environments together stay within the limit.

use std::time::{Duration, SystemTime};

use super::REST;
use crate::limit::{Admission, Demand, FURTHEST_SLOT, LimitState};
use crate::policy::RateLimit;

/// Calls of this time count, and calls of up to half as long before.
const LATELY: Duration = Duration::from_secs(30);
/// The furthest reservation. A later one could be the table's, which may respond before.
const LONGEST: Duration = Duration::from_millis(200);

/// The calls of a scope by this execution environment, and its own gate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fallback {
    began: Option<SystemTime>,
    /// Calls since `began`, and in the time of the same length before.
    calls: u64,
    calls_before: u64,
    /// The gate while the table does not respond, and its beginning.
    alone: Option<OwnGate>,
    alone_since: Option<SystemTime>,
    /// The last reservation of this gate. The table does not know it.
    last: Option<SystemTime>,
}

/// A gate without a burst. Its interval may be longer than that of any limit.
#[derive(Clone, Copy, Debug)]
struct OwnGate {
    interval: Duration,
    /// The most units of a call.
    largest: u32,
    next: SystemTime,
}

impl OwnGate {
    fn admit(&mut self, units: u32, longest: Duration, now: SystemTime) -> Admission {
        // A reservation that is further away comes from a clock that was set back since.
        let is_lost = self.next > now + self.interval.saturating_mul(self.largest) + FURTHEST_SLOT;
        let slot = if is_lost { now } else { self.next.max(now) };
        let wait = slot.duration_since(now).unwrap_or_default();
        if wait > longest {
            return Admission::Full;
        }
        self.next = slot + self.interval.saturating_mul(units);
        Admission::Slot(wait)
    }
}

impl Fallback {
    /// Notes calls that the table allowed.
    pub(super) fn note(&mut self, calls: u64, now: SystemTime) {
        self.alone = None;
        if calls > 0 {
            (self.alone_since, self.last) = (None, None);
        }
        self.turn(now);
        self.calls += calls;
    }

    /// Admits one message without a table. It joins no waiting list, since the wait would be longer
    /// than an outage of the table. `sample` spreads the first calls of the execution environments.
    pub(super) fn admit(
        &mut self,
        limit: &RateLimit,
        demand: Demand,
        max_environments: u32,
        taken: &LimitState,
        now: SystemTime,
        sample: f64,
    ) -> Admission {
        if self.alone.is_none() {
            self.turn(now);
            let interval = limit.interval();
            let rarest = interval.saturating_mul(max_environments.max(1));
            let calls = u32::try_from(self.calls + self.calls_before).unwrap_or(u32::MAX);
            // The table would not give the burst of that time again.
            let burst = interval.saturating_mul(limit.burst.max(1) - 1);
            let lately = LATELY.saturating_add(burst).checked_div(calls).unwrap_or(rarest);
            let interval = lately.clamp(interval, rarest);
            let next = taken.gate_end(now) + interval.mul_f64(sample);
            self.alone = Some(OwnGate { interval, largest: limit.largest(), next });
            self.alone_since.get_or_insert(now);
        }
        let Some(own) = &mut self.alone else { return Admission::Full };
        let admission = own.admit(demand.units, demand.longest.min(LONGEST), now);
        if let Admission::Slot(wait) = admission {
            self.last = Some(now + wait);
        }
        admission
    }

    /// The reservations of the table that calls without it used, one in each `interval`. If the
    /// table was down for all environments, the others go on without it until they ask again.
    pub(super) fn owed(
        &self,
        interval: Duration,
        seen: &LimitState,
        longest: Duration,
        now: SystemTime,
    ) -> u64 {
        let since = self.alone_since.and_then(|since| now.duration_since(since).ok());
        let is_away = since >= Some(REST) && seen.has_free_gate(now);
        let others = if is_away { REST.min(longest) } else { Duration::ZERO };
        let own = self.last.and_then(|last| (last + interval).duration_since(now).ok());
        let interval = interval.as_nanos();
        let (others, own) = (others.as_nanos() / interval, own.unwrap_or_default().as_nanos());
        u64::try_from(others.max(own.div_ceil(interval))).unwrap_or(u64::MAX)
    }

    /// Begins a new half of the time, if the current one is over.
    fn turn(&mut self, now: SystemTime) {
        let age = self.began.map_or(LATELY, |began| now.duration_since(began).unwrap_or(LATELY));
        if age >= LATELY / 2 {
            self.calls_before = if age < LATELY { self.calls } else { 0 };
            (self.began, self.calls) = (Some(now), 0);
        }
    }
}
