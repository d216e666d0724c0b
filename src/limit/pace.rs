//! The pace of an adaptive limit: the part of the limit that a service takes at the moment. A
//! refused call lowers it at once, and time without one raises it again.

use std::time::Duration;

use super::nanos;
use crate::policy::RateLimit;
use crate::table::{Field, Item, Update};

/// The whole pace, in millionths of the limit.
pub(super) const WHOLE: u64 = 1_000_000;
/// The least pace.
pub(super) const LEAST: u64 = WHOLE / 10;
/// The pace grows by so much in each step without a refused call, until it is near the pace at which
/// a call was refused.
const GROWTH: u64 = WHOLE / 20;
/// From there on it grows by so much, since a service refuses calls long before its caller knows it.
const CAREFUL_GROWTH: u64 = WHOLE / 100;
/// No pace takes longer to be whole again, in nanoseconds.
const LONGEST_RECOVERY: u64 = (WHOLE / CAREFUL_GROWTH + 2) * 10 * 1_000_000_000;
/// A time further ahead was written by a clock that was set back since.
const FURTHEST: Duration = Duration::from_secs(3_600);

/// The pace in an item. A new item has the whole pace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pace {
    /// Millionths of the limit at the last change; 0 is the whole.
    part: u64,
    /// The time of the last change.
    since: u64,
    /// The interval of the limit whose pace it is.
    interval: u64,
    /// The environment that said so knows its limit since then.
    known_since: u64,
}

const PART: Field = Field::new("part");
const SINCE: Field = Field::new("partSince");
const INTERVAL: Field = Field::new("interval");
const KNOWN_SINCE: Field = Field::new("intervalSince");

/// A limit, as an execution environment knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownLimit {
    pub(crate) limit: RateLimit,
    /// The environment started then, or its limit changed. The latest one is right.
    pub(crate) since: u64,
}

impl KnownLimit {
    /// A limit that nobody else knows better.
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

    /// The pace after a refused call, which asked for its slot at the time `asked`. The first one in
    /// each step counts, if it got its slot by the pace of now.
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

    /// The whole pace of another limit, if this one is known for longer.
    pub(super) fn restarted(&self, known: &KnownLimit, now: u64) -> Option<Self> {
        let limit = &known.limit;
        let is_other = self.interval != 0 && self.interval != limit.interval_nanos();
        let is_newer = known.since > self.known_since;
        (limit.adaptive && is_other && is_newer).then(|| Self::whole(known, now))
    }

    /// The whole pace of a limit.
    pub(super) fn whole(known: &KnownLimit, now: u64) -> Self {
        Self {
            part: 0,
            since: now,
            interval: known.limit.interval_nanos(),
            known_since: known.since,
        }
    }

    /// The interval at the whole pace.
    pub(super) fn interval(&self, limit: &RateLimit) -> u64 {
        match self.interval {
            interval if limit.adaptive && interval != 0 => interval,
            _ => limit.interval_nanos(),
        }
    }

    /// The millionths of the limit.
    pub(super) fn part_at(&self, limit: &RateLimit, now: u64) -> u64 {
        if self.is_whole(now) {
            return WHOLE;
        }
        // The first step has the refused call.
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

    /// Whether it says no more than a new one.
    pub(super) fn is_over(&self, now: u64) -> bool {
        self.is_whole(now) || self.since.saturating_add(LONGEST_RECOVERY) <= now
    }

    /// The condition that the pace is this one.
    pub(super) fn unchanged(&self, update: Update) -> Update {
        update.when(SINCE, self.since..=self.since)
    }

    /// The change to this pace.
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

/// The time in which one refused call counts: the period, but not too short for a response, and not
/// too long for a service that takes less.
fn step(limit: &RateLimit) -> u64 {
    nanos(limit.period.clamp(SHORTEST_STEP, LONGEST_STEP))
}

/// A time of the whole pace, at this part of it.
pub(super) fn longer(time: u64, part: u64) -> u64 {
    let longer = (u128::from(time) * u128::from(WHOLE)).div_ceil(u128::from(part.max(1)));
    u64::try_from(longer).unwrap_or(u64::MAX)
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
}
