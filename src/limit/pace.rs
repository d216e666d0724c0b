//! The slower rates of a limit. The pace is the part of the limit that the service accepts now: a
//! refused call lowers it at once, and time without one raises it again. The cap spreads the rest
//! of a service's allowance until its renewal. This module also estimates the units of calls from
//! the units that past calls used.

use std::time::{Duration, SystemTime};

use super::{FURTHEST_SLOT, LimitState, TAT, epoch_nanos, nanos};
use crate::classify::Allowance;
use crate::policy::RateLimit;
use crate::table::{Field, Item, Update};

/// The whole pace, in millionths of the limit.
pub(super) const WHOLE: u64 = 1_000_000;
pub(super) const LEAST: u64 = WHOLE / 10;
/// The growth of the pace in each step without a refused call, until it is near the refused pace.
const GROWTH: u64 = WHOLE / 20;
/// From there on it grows by this much, since a service refuses calls long before its caller knows.
const CAREFUL_GROWTH: u64 = WHOLE / 100;
/// The longest time until a pace is whole again, in nanoseconds.
const LONGEST_RECOVERY: u64 = (WHOLE / CAREFUL_GROWTH + 2) * 10 * 1_000_000_000;
/// A time further ahead comes from a clock that was set back since.
const FURTHEST: Duration = Duration::from_secs(3_600);

/// The pace in an item. A new item has the whole pace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pace {
    /// Millionths of the limit at the last change; 0 means all.
    part: u64,
    since: u64,
    /// The interval of the limit to which the pace applies.
    interval: u64,
    /// The time since which the environment that wrote it knows its limit.
    known_since: u64,
}

const PART: Field = Field::new("part");
const SINCE: Field = Field::new("partSince");
const INTERVAL: Field = Field::new("interval");
const KNOWN_SINCE: Field = Field::new("intervalSince");

#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownLimit {
    pub(crate) limit: RateLimit,
    /// The start of the environment, or the change of its limit. The latest one applies.
    pub(crate) since: u64,
}

impl KnownLimit {
    /// A limit of which no other environment knows a newer version.
    pub(crate) fn own(limit: &RateLimit) -> Self {
        Self { limit: *limit, since: u64::MAX }
    }
}

impl Pace {
    pub(super) fn of(item: &Item) -> Self {
        Self {
            part: item.get(PART),
            since: item.get(SINCE),
            interval: item.get(INTERVAL),
            known_since: item.get(KNOWN_SINCE),
        }
    }

    /// The pace after a refused call, which asked for its reservation at `asked`. The first refusal
    /// in each step counts, if the call was reserved at the current pace.
    pub(super) fn refused(&self, known: &KnownLimit, asked: u64, now: u64) -> Option<Self> {
        let limit = &known.limit;
        let pace = self.restarted(known, now).unwrap_or(*self);
        let is_counted = !pace.is_whole(now)
            && (asked <= pace.since || now < pace.since.saturating_add(step(limit)));
        (limit.adaptive && !is_counted).then(|| Self {
            part: (pace.part_at(limit, now) / 10 * 7).max(LEAST),
            since: now,
            interval: pace.interval(limit),
            known_since: if pace.interval == 0 { known.since } else { pace.known_since },
        })
    }

    /// The whole pace of another limit, if that one is known since a later time.
    pub(super) fn restarted(&self, known: &KnownLimit, now: u64) -> Option<Self> {
        let limit = &known.limit;
        let is_other = self.interval != 0 && self.interval != limit.interval_nanos();
        let is_newer = known.since > self.known_since;
        (limit.adaptive && is_other && is_newer).then(|| Self::whole(known, now))
    }

    pub(super) fn whole(known: &KnownLimit, now: u64) -> Self {
        Self {
            part: 0,
            since: now,
            interval: known.limit.interval_nanos(),
            known_since: known.since,
        }
    }

    pub(super) fn interval(&self, limit: &RateLimit) -> u64 {
        match self.interval {
            interval if limit.adaptive && interval != 0 => interval,
            _ => limit.interval_nanos(),
        }
    }

    pub(super) fn part_at(&self, limit: &RateLimit, now: u64) -> u64 {
        if self.is_whole(now) {
            return WHOLE;
        }
        // The first step includes the refused call.
        let steps = (now.saturating_sub(self.since) / step(limit)).saturating_sub(1);
        let part = self.part.clamp(LEAST, WHOLE);
        // 80 % of the pace at which the call was refused.
        let known = part / 7 * 8;
        let back = steps.min((known - part).div_ceil(GROWTH));
        let careful = steps.saturating_sub(back).saturating_mul(CAREFUL_GROWTH);
        (part + back * GROWTH).min(known.max(part)).saturating_add(careful).min(WHOLE)
    }

    /// The millionths that are likely to last: those before the last refused call, or more.
    pub(super) fn lasting_part(&self, limit: &RateLimit, now: u64) -> u64 {
        let before = if self.is_whole(now) { WHOLE } else { self.part.saturating_mul(10) / 7 };
        self.part_at(limit, now).max(before.min(WHOLE))
    }

    /// Whether it equals a new pace.
    pub(super) fn is_over(&self, now: u64) -> bool {
        self.is_whole(now) || self.since.saturating_add(LONGEST_RECOVERY) <= now
    }

    /// The condition that the pace is this one.
    pub(super) fn unchanged(&self, update: Update) -> Update {
        update.when(SINCE, self.since..=self.since)
    }

    pub(super) fn written(&self, update: Update) -> Update {
        update
            .set(PART, self.part)
            .set(SINCE, self.since)
            .set(INTERVAL, self.interval)
            .set(KNOWN_SINCE, self.known_since)
    }

    fn is_whole(&self, now: u64) -> bool {
        self.part == 0 || self.since > now.saturating_add(nanos(FURTHEST))
    }
}

const SHORTEST_STEP: Duration = Duration::from_secs(1);
const LONGEST_STEP: Duration = Duration::from_secs(10);

/// The time in which one refused call counts: the period, but long enough for a response and short
/// enough for a service that accepts less.
fn step(limit: &RateLimit) -> u64 {
    nanos(limit.period.clamp(SHORTEST_STEP, LONGEST_STEP))
}

/// A time at the whole pace, stretched to this part of it.
pub(super) fn longer(time: u64, part: u64) -> u64 {
    let longer = (u128::from(time) * u128::from(WHOLE)).div_ceil(u128::from(part.max(1)));
    u64::try_from(longer).unwrap_or(u64::MAX)
}

impl LimitState {
    /// The units that a call is likely to use, of these estimated ones.
    pub(crate) fn likely(&self, units: u32, limit: &RateLimit) -> u32 {
        let likely = self.units.likely(units.into()).clamp(1, limit.limit.max(1).into());
        u32::try_from(likely).unwrap_or(units)
    }

    pub(crate) fn note_used(&mut self, estimated: u32, used: u32) {
        self.units.note(estimated.into(), used.into());
    }

    /// This state, with the units that the last calls of another one used.
    pub(crate) fn with_units_of(self, other: &Self) -> Self {
        Self { units: other.units, ..self }
    }

    /// The state after a call used this many units more than reserved, or fewer, which are free at
    /// once.
    pub(crate) fn corrected(self, limit: &RateLimit, units: i64) -> Self {
        let time = limit.interval_nanos().saturating_mul(units.unsigned_abs());
        let tat =
            if units > 0 { self.tat.saturating_add(time) } else { self.tat.saturating_sub(time) };
        Self { tat, ..self }
    }

    /// The same change as an update of the table. Units beyond the furthest reservation are
    /// dropped: the gate is closed anyway.
    pub(crate) fn correction(&self, limit: &RateLimit, units: i64, now: SystemTime) -> Update {
        let next = self.corrected(limit, units);
        if units < 0 {
            return Update::new().when(TAT, self.tat..=self.tat).set(TAT, next.tat);
        }
        let more = next.tat - self.tat;
        let largest = limit.interval_nanos().saturating_mul(limit.largest().into());
        let furthest =
            epoch_nanos(now).saturating_add(nanos(FURTHEST_SLOT)).saturating_add(largest);
        Update::new().when(TAT, 0..=furthest.saturating_sub(more)).add(TAT, more)
    }
}

/// The units that the last calls of this execution environment were expected to use, and did use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LastUnits {
    estimated: u64,
    used: u64,
}

impl LastUnits {
    /// About this many calls determine the estimate.
    const CALLS: u64 = 64;

    fn note(&mut self, estimated: u64, used: u64) {
        if self.estimated > Self::CALLS * estimated {
            (self.estimated, self.used) = (self.estimated / 2, self.used / 2);
        }
        (self.estimated, self.used) = (self.estimated + estimated, self.used + used);
    }

    /// The units that a call with these estimated ones is likely to use.
    fn likely(&self, units: u64) -> u64 {
        if self.estimated == 0 {
            return units;
        }
        let used = u128::from(units) * u128::from(self.used);
        u64::try_from(used.div_ceil(u128::from(self.estimated))).unwrap_or(u64::MAX)
    }
}

/// A longer interval would put a reservation beyond the furthest one.
const LONGEST_INTERVAL: Duration = Duration::from_secs(3_600);
/// The longest time for which a response caps the calls.
const LONGEST: Duration = Duration::from_hours(24);
/// The rest is spread once less than this part of the allowance is left.
const PART_LEFT: u64 = 5;
/// A cap is worth its request if it lowers the pace below this many per cent.
const WORTH: u64 = 90;

/// The cap in an item. A new item has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cap {
    /// The least time between two units.
    interval: u64,
    until: u64,
}

const CAP_INTERVAL: Field = Field::new("capInterval");
const CAP_UNTIL: Field = Field::new("capUntil");

impl Cap {
    pub(super) fn of(item: &Item) -> Self {
        Self { interval: item.get(CAP_INTERVAL), until: item.get(CAP_UNTIL) }
    }

    /// The interval that replaces this one under the cap.
    pub(super) fn slower(&self, interval: u64, now: u64) -> u64 {
        if now < self.until { interval.max(self.interval) } else { interval }
    }

    /// The cap that an allowance adds to this one, if that leaves less than is possible at the pace
    /// without a cap: with `reserved` units that are still to come, and `spare` ones that the burst
    /// has left. An allowance that lets calls be faster than this cap waits for its end.
    pub(super) fn lowered(
        &self,
        allowance: &Allowance,
        (uncapped, reserved, spare): (u64, u64, u64),
        now: u64,
    ) -> Option<Self> {
        let Allowance { limit, remaining, resets_in, .. } = *allowance;
        let is_plenty = limit.is_some_and(|limit| remaining.saturating_mul(PART_LEFT) >= limit);
        let time = nanos(resets_in.min(LONGEST));
        let rest = remaining.saturating_sub(reserved).max(1);
        let spread = (time / rest).min(nanos(LONGEST_INTERVAL));
        let capped = self.until.saturating_sub(now).min(time);
        let possible = capped / self.slower(uncapped, now) + (time - capped) / uncapped;
        let is_lower = rest.saturating_mul(100) < (possible + spare).saturating_mul(WORTH);
        let quickens = !self.is_over(now) && spread < self.interval;
        (!is_plenty && is_lower && !quickens)
            .then(|| Self { interval: spread, until: now.saturating_add(time) })
    }

    /// Whether it equals a new cap.
    pub(super) fn is_over(&self, now: u64) -> bool {
        self.until <= now
    }

    pub(super) fn ends(&self) -> u64 {
        self.until
    }

    /// The change to this cap, unless another environment changes it first.
    pub(super) fn written(&self, before: &Self, update: Update) -> Update {
        if self == before {
            return update;
        }
        update
            .when(CAP_INTERVAL, before.interval..=before.interval)
            .when(CAP_UNTIL, before.until..=before.until)
            .set(CAP_INTERVAL, self.interval)
            .set(CAP_UNTIL, self.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const START: u64 = 1_800_000_000 * SECOND;

    fn limit(calls: u32, period: u64) -> RateLimit {
        RateLimit { adaptive: true, ..RateLimit::new(calls, Duration::from_secs(period)) }
    }

    /// Seconds after the start.
    fn at(seconds: u64) -> u64 {
        START + seconds * SECOND
    }

    fn refused(pace: Pace, limit: &RateLimit, now: u64) -> Option<Pace> {
        pace.refused(&KnownLimit::own(limit), now, now)
    }

    #[test]
    fn a_refused_call_lowers_the_pace_at_once_and_each_step_without_one_raises_it() {
        for (period, step) in [(1, 1), (5, 5), (3_600, 10)] {
            let limit = limit(10, period);
            let pace = refused(Pace::default(), &limit, at(0)).expect("a change");
            let parts: Vec<_> = [0, 1, 2, 3, 4, 22, 23, 100]
                .map(|steps| pace.part_at(&limit, at(steps * step)) / 10_000)
                .into();
            assert_eq!(parts, [70, 70, 75, 80, 81, 99, 100, 100], "{period}");
            let before = pace.part_at(&limit, at(2 * step) - 1);
            assert_eq!(before, 700_000, "the first step without a refused call is not over");
        }
    }

    #[test]
    fn one_refused_call_counts_in_each_step_and_the_least_pace_is_a_tenth() {
        let limit = limit(10, 2);
        let mut pace = Pace::default();
        let mut parts = Vec::new();
        for seconds in 0..20 {
            if let Some(next) = refused(pace, &limit, at(seconds)) {
                assert_eq!(seconds % 2, 0);
                pace = next;
                parts.push(pace.part / 10_000);
            }
        }
        assert_eq!(parts, [70, 49, 34, 24, 16, 11, 10, 10, 10, 10]);
    }

    #[test]
    fn a_refused_call_that_asked_before_the_last_change_does_not_count() {
        let (limit, start) = (limit(10, 1), at(0));
        let known = KnownLimit::own(&limit);
        let pace = refused(Pace::default(), &limit, start).expect("a change");
        assert_eq!(pace.refused(&known, start, at(2)), None);
        assert!(pace.refused(&known, start + 1, at(2)).is_some());
    }

    #[test]
    fn a_limit_that_does_not_adapt_changes_nothing() {
        let limit = RateLimit { adaptive: false, ..limit(10, 1) };
        assert_eq!(refused(Pace::default(), &limit, at(0)), None);
    }

    #[test]
    fn the_limit_that_is_known_for_the_shortest_time_is_right() {
        let known = |calls, since| KnownLimit { since, ..KnownLimit::own(&limit(calls, 1)) };
        let old = Pace::default().refused(&known(10, 100), at(0), at(0)).expect("a change");
        assert_eq!(old.restarted(&known(10, 200), at(1)), None, "the same limit");
        assert_eq!(old.restarted(&known(20, 50), at(1)), None, "an older environment");
        assert_eq!(old.interval(&limit(20, 1)), SECOND / 10, "it uses the newer limit");
        let new = old.restarted(&known(20, 200), at(1)).expect("a newer environment");
        assert_eq!((new.part_at(&limit(20, 1), at(1)), new.interval), (WHOLE, SECOND / 20));
        assert_eq!(new.restarted(&known(10, 100), at(2)), None);
        let lower =
            new.refused(&known(10, 100), at(1), at(1)).expect("the first one of this limit");
        assert_eq!((lower.part, lower.interval, lower.known_since), (700_000, SECOND / 20, 200));
    }

    #[test]
    fn a_pace_of_a_clock_that_was_set_back_since_is_whole() {
        let limit = limit(10, 1);
        let pace = refused(Pace::default(), &limit, at(86_400)).expect("a change");
        assert_eq!(pace.part_at(&limit, at(0)), WHOLE);
        assert!(refused(pace, &limit, at(0)).is_some());
        let skewed = refused(Pace::default(), &limit, at(2)).expect("a change");
        assert_eq!(skewed.part_at(&limit, at(0)), 700_000, "clocks differ by seconds");
    }

    const NOW: u64 = 1_800_000_000 * SECOND;

    /// Of 100, for a minute.
    fn left(remaining: u64) -> Allowance {
        let resets_in = Duration::from_secs(60);
        Allowance { limit: Some(100), remaining, resets_in, counts_units: false }
    }

    #[test]
    fn a_cap_spreads_what_is_left_once_it_is_less_than_a_fifth() {
        let cap = |allowance, interval, reserved| {
            let cap = Cap::default().lowered(&allowance, (interval, reserved, 0), NOW)?;
            assert_eq!(cap.until, NOW + nanos(allowance.resets_in));
            Some(cap.interval)
        };
        for (allowance, interval, reserved, expected) in [
            (left(20), SECOND, 0, None),
            (left(19), SECOND, 0, Some(60 * SECOND / 19)),
            // Calls that have their reservations come first.
            (left(19), SECOND, 9, Some(6 * SECOND)),
            (left(5), SECOND, 9, Some(60 * SECOND)),
            (left(0), SECOND, 0, Some(60 * SECOND)),
            // The pace is low enough, or nearly.
            (left(10), 6 * SECOND, 0, None),
            (left(10), 5 * SECOND + SECOND / 2, 0, None),
            (left(10), 5 * SECOND, 0, Some(6 * SECOND)),
            (Allowance { limit: None, ..left(30) }, SECOND, 0, Some(2 * SECOND)),
        ] {
            assert_eq!(cap(allowance, interval, reserved), expected, "{allowance:?} {reserved}");
        }
    }

    #[test]
    fn a_cap_is_bounded_whatever_a_response_says() {
        let year = Allowance { resets_in: Duration::from_hours(8_760), ..left(0) };
        let cap = Cap::default().lowered(&year, (1, 0, 0), NOW).expect("a cap");
        assert_eq!(cap, Cap { interval: 3_600 * SECOND, until: NOW + 86_400 * SECOND });
        assert_eq!(cap.slower(SECOND, NOW + 86_400 * SECOND - 1), 3_600 * SECOND);
        assert_eq!(cap.slower(SECOND, NOW + 86_400 * SECOND), SECOND);
        assert_eq!(cap.slower(7_200 * SECOND, NOW), 7_200 * SECOND, "it raises nothing");
        assert!(!cap.is_over(NOW) && cap.is_over(NOW + 86_400 * SECOND));
    }

    #[test]
    fn a_later_response_extends_a_cap_and_quickens_none() {
        let lowered = |cap: Cap, remaining, now| {
            cap.lowered(&left(remaining), (SECOND, 0, 0), NOW + now).unwrap_or(cap)
        };
        let first = lowered(Cap::default(), 0, 0);
        assert_eq!(lowered(first, 0, SECOND / 2), first, "no call is possible in half a second");
        let second = lowered(first, 0, 20 * SECOND);
        assert_eq!(second, Cap { until: first.until + 20 * SECOND, ..first });
        assert_eq!(lowered(first, 15, 20 * SECOND), first);
        assert_eq!(lowered(first, 15, 60 * SECOND), lowered(Cap::default(), 15, 60 * SECOND));
    }

    #[test]
    fn of_two_caps_at_once_the_first_counts_and_the_other_is_decided_anew() {
        let mut item = Item::default();
        let seen = Cap::of(&item);
        let lowered =
            |remaining| seen.lowered(&left(remaining), (SECOND, 0, 0), NOW).expect("a cap");
        assert!(lowered(10).written(&seen, Update::new()).apply(&mut item));
        assert!(!lowered(5).written(&seen, Update::new()).apply(&mut item));
        assert_eq!(Cap::of(&item), lowered(10));
    }
}
