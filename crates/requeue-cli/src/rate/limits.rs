//! The limits of a run: the calls that each allows in any window of time, and whether a run broke it.

use std::iter;
use std::time::Duration;

use requeue::policy::{RateLimit, RetryPolicy};
use serde_json::{Map, Value, json};

use super::Arguments;
use super::calls::{Calls, float};
use crate::simulated::Figures;
use crate::table::{counted, decimal, span, thousands};

/// tokio's timers end at whole milliseconds. Two of them may make a call so late, and not the next one.
const TIMER: Duration = Duration::from_millis(2);
/// The units of each tenth message of a tenant. The others have one.
const MOST_UNITS: u32 = 20;
/// A call may come so much after its reservation, and the next one not: the time of the three requests
/// to the table that a reservation takes at most.
const LATENCY: Duration = Duration::from_millis(20);

pub(super) fn units(number: u32) -> u32 {
    if number % 10 == 9 { MOST_UNITS } else { 1 }
}

/// A change by an operator, as `requeue limits` makes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    /// Calls in each period; none in a pause.
    pub(super) limit: Option<u32>,
    pub(super) from: Duration,
    pub(super) to: Duration,
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
fn rounded_up(count: f64) -> u64 {
    count.ceil() as u64
}

/// A limit of all messages or of each value of a key, and the calls that it allows.
#[derive(Clone)]
pub(super) struct Bound {
    key: Option<String>,
    limit: RateLimit,
    pub(super) has_units: bool,
    change: Option<Change>,
    /// How long calls may wait for their reservations. A change leaves them these.
    wait: Duration,
    /// How long a table that does not respond lets all make calls for nothing.
    trouble: Duration,
}

impl Bound {
    /// Those of a policy. The first one is changed: for a key, that of the backlog's first tenant.
    pub(super) fn all(arguments: &Arguments, policy: &RetryPolicy) -> Vec<Self> {
        // While the table does not respond, all together stay below twice the limit.
        let trouble =
            arguments.table_down.map_or(Duration::ZERO, |(from, to)| to.saturating_sub(from));
        let new = |key, limit: RateLimit, has_units, later| {
            let wait = limit.max_reservation + later;
            Self { key, limit, has_units, change: None, wait, trouble }
        };
        let units = policy.units.is_some();
        let total = policy.limit.map(|limit| new(None, limit, units, Duration::ZERO));
        let keys = policy.key_limits.iter().enumerate().map(|(at, of_key)| {
            let later = policy.key_limits[at + 1..].iter().map(|key| &key.limit);
            let later = later.chain(&policy.limit);
            let mut limit = of_key.limit;
            limit.burst = limit.burst.max(limit.together(later.clone()).saturating_add(1));
            let later = later.map(|limit| limit.max_reservation).sum();
            new(Some(of_key.key.to_string()), limit, of_key.units.is_some(), later)
        });
        let mut bounds: Vec<Self> = total.into_iter().chain(keys).collect();
        bounds[0].change = arguments.change;
        bounds
    }

    /// `a service that takes 50 calls in 1 s and a burst of 1`
    pub(super) fn text(&self) -> String {
        let RateLimit { limit, period, burst, .. } = self.limit;
        let takes = self.key.as_ref().map_or_else(
            || "a service that takes".to_owned(),
            |key| format!("for each {key} at most"),
        );
        let (unit, more) = if self.has_units {
            ("unit", format!(", where one message of ten has {MOST_UNITS} and the others 1"))
        } else {
            ("call", String::new())
        };
        let (calls, period, burst) = (counted(limit, unit), span(period), thousands(burst));
        format!("{takes} {calls} in {period} and a burst of {burst}{more}")
    }

    pub(super) fn is_of_key(&self) -> bool {
        self.key.is_some()
    }

    /// In a second.
    pub(super) fn rate(&self) -> f64 {
        self.rate_of(self.limit.limit)
    }

    fn rate_of(&self, limit: u32) -> f64 {
        f64::from(limit) / self.limit.period.as_secs_f64()
    }

    /// The messages in a second that use it up.
    pub(super) fn messages(&self) -> f64 {
        let units: u32 = (0..10).map(|number| self.units(units(number))).sum();
        self.rate() * 10.0 / f64::from(units)
    }

    /// How many units of it a call takes.
    pub(super) fn units(&self, units: u32) -> u32 {
        if self.has_units { units.min(self.limit.limit) } else { 1 }
    }

    /// A call may go when one of its units is free.
    fn burst(&self) -> u32 {
        self.limit.burst + self.units(MOST_UNITS) - 1
    }

    /// The limit, or a higher one that an operator sets.
    fn highest(&self) -> u32 {
        self.limit.limit.max(self.change.and_then(|change| change.limit).unwrap_or_default())
    }

    /// The calls above limit × time + burst that trouble and a change allow.
    fn more(&self) -> f64 {
        let wait = self.change.map_or(Duration::ZERO, |_| self.wait);
        (self.trouble + wait).as_secs_f64() * self.rate_of(self.highest())
    }

    /// The most in a window of this length, with its ends.
    fn allowed(&self, window: Duration) -> u64 {
        let periods = window.as_nanos() * u128::from(self.highest()) / self.limit.period.as_nanos();
        let periods = u64::try_from(periods).unwrap_or(u64::MAX);
        periods.saturating_add(self.burst().into()).saturating_add(rounded_up(self.more()))
    }

    /// Its rates in a second, each from one time to another.
    pub(super) fn rates(&self, end: Duration) -> impl Iterator<Item = (Duration, Duration, f64)> {
        let change = self.change.unwrap_or(Change { limit: None, from: end, to: end });
        let changed = self.rate_of(change.limit.unwrap_or_default());
        let (from, to) = (change.from.min(end), change.to.min(end));
        let rates =
            [(Duration::ZERO, from, self.rate()), (from, to, changed), (to, end, self.rate())];
        rates.into_iter().filter(|(from, to, _)| from < to)
    }

    /// The calls that it allows between two times, without a burst.
    fn between(&self, from: Duration, to: Duration) -> f64 {
        let parts = self
            .rates(to)
            .map(|(begin, end, rate)| end.saturating_sub(begin.max(from)).as_secs_f64() * rate);
        parts.sum()
    }

    /// The calls above limit × time + burst, in the window of any length that has most of them. A
    /// call that comes early by half of the interval is half a call.
    fn most_above(&self, calls: &Calls) -> f64 {
        let (mut level, mut most): (f64, f64) = (0.0, 0.0);
        let mut before = Duration::ZERO;
        for call in calls.each() {
            level = (level - self.between(before, call.at)).max(0.0) + f64::from(call.units);
            before = call.at;
            most = most.max(level);
        }
        let timer = self.rate_of(self.highest()) * TIMER.as_secs_f64();
        (most - f64::from(self.burst()) - timer).max(0.0)
    }

    /// Adds how the calls kept to it: those of all, or of each value of the key. Notes the bounds that
    /// they broke.
    pub(super) fn add(
        &self,
        of: &mut Figures,
        values: &[Calls],
        broken: &mut Vec<String>,
    ) -> Map<String, Value> {
        let name = self.key.as_ref().map_or_else(String::new, |key| format!("each {key}: "));
        let units = if self.has_units { " units" } else { "" };
        let windows = [1, 10, 60].map(|periods| {
            let window = self.limit.period * periods;
            let most = values.iter().map(|calls| calls.most_within(window)).max();
            let (most, allowed) = (most.unwrap_or_default(), self.allowed(window));
            let (indent, is_shown) =
                if self.is_of_key() { ("", periods == 1) } else { ("  ", true) };
            if is_shown {
                let bound = format!("any {}, of {} allowed", span(window), thousands(allowed));
                of.row(format!("{indent}{name}most{units} in {bound}"), thousands(most));
            }
            json!({ "seconds": window.as_secs(), "mostCalls": most, "allowed": allowed })
        });
        let unchanged = Self { change: None, ..self.clone() };
        let bounds = iter::once(self).chain(iter::repeat(&unchanged));
        let above = values.iter().zip(bounds).map(|(calls, bound)| bound.most_above(calls));
        let (above, more) = (above.fold(0.0, f64::max), self.more());
        of.row("  above limit × time + burst, in any window", decimal(above, 1));
        let mut kept = Map::new();
        kept.insert("windows".to_owned(), windows[..].into());
        kept.insert("callsAboveLimit".to_owned(), above.into());
        kept.insert("callsAboveLimitAllowed".to_owned(), more.into());
        let mut compared = vec![("above limit × time + burst", above, more)];
        if let Some((change, calls)) = self.change.zip(values.first()) {
            let (from, to, allowed) = self.allowed_in(change);
            let count = calls.units_within(from..to);
            let head =
                format!("  from {} to {}, of {} allowed", span(from), span(to), thousands(allowed));
            of.row(head, thousands(count));
            compared.push(("in the change", float(count), float(allowed)));
            kept.insert("callsInChange".to_owned(), count.into());
            kept.insert("callsInChangeAllowed".to_owned(), allowed.into());
        }
        for (place, count, allowed) in compared {
            if count > allowed + self.rate_of(self.highest()) * LATENCY.as_secs_f64() {
                broken.push(format!("{name}{count:.1}{units} {place}, of {allowed:.1} allowed"));
            }
        }
        let busiest = values.iter().max_by_key(|calls| calls.units());
        let (last, calls) = busiest.map(|calls| (calls.last(), calls.units())).unwrap_or_default();
        let used = float(calls) / self.between(Duration::ZERO, last.max(TIMER)).max(1e-3);
        let head = if self.is_of_key() { "  use by its busiest value" } else { "throughput" };
        of.row(format!("{head}, in % of the limit"), decimal(used * 100.0, 1));
        kept.insert("throughputOfLimit".to_owned(), used.into());
        if let Some(key) = &self.key {
            of.row("  until the last call of that value", span(last));
            kept.insert("key".to_owned(), key.as_str().into());
            kept.insert("seconds".to_owned(), last.as_secs_f64().into());
        }
        kept
    }

    /// The time of a change without the calls that had their reservations, and the calls in it.
    fn allowed_in(&self, Change { limit, from, to }: Change) -> (Duration, Duration, u64) {
        let from = (from + self.wait + self.trouble).min(to);
        let burst = limit.map_or(0, |_| self.burst());
        let calls = to.saturating_sub(from).as_secs_f64() * self.rate_of(limit.unwrap_or_default());
        let trouble = self.trouble.as_secs_f64() * self.rate_of(self.highest());
        (from, to, rounded_up(calls + f64::from(burst) + trouble))
    }
}

#[cfg(test)]
mod tests {
    use super::super::calls::Call;
    use super::*;

    fn bound(limit: u32, burst: u32) -> Bound {
        let mut limit = RateLimit::new(limit, Duration::from_secs(1));
        limit.burst = burst;
        let (wait, trouble) = (limit.max_reservation, Duration::ZERO);
        Bound { key: None, limit, has_units: false, change: None, wait, trouble }
    }

    fn calls(calls: impl IntoIterator<Item = (u64, u32)>) -> Calls {
        let mut all = Calls::default();
        for (millis, units) in calls {
            all.push(Call { at: Duration::from_millis(millis), message: 0, units });
        }
        all
    }

    #[test]
    fn calls_above_a_limit_are_counted_in_the_worst_window() {
        for (burst, millis, above) in [
            (1, &[0, 100, 200, 300][..], 0.0),
            (1, &[0, 99, 200], 0.0),
            (1, &[0, 49, 200], 0.49),
            (1, &[0, 0, 0, 5_000], 1.98),
            (3, &[0, 0, 0, 100, 5_000, 5_000, 5_000], 0.0),
            (3, &[0, 0, 0, 0, 400, 400, 400], 0.98),
        ] {
            let most = bound(10, burst).most_above(&calls(millis.iter().map(|at| (*at, 1))));
            assert!((most - above).abs() < 1e-6, "{burst} {millis:?}: {most}");
        }
    }

    #[test]
    fn a_call_may_exceed_the_limit_by_its_units_but_one() {
        let bound = Bound { has_units: true, ..bound(10, 1) };
        assert_eq!([bound.allowed(Duration::from_secs(1)), bound.units(20).into()], [20, 10]);
        for (calls_of, above) in [(&[(0, 10), (1_000, 10)][..], 0.0), (&[(0, 10), (900, 10)], 0.98)]
        {
            let most = bound.most_above(&calls(calls_of.iter().copied()));
            assert!((most - above).abs() < 1e-6, "{calls_of:?}: {most}");
        }
    }

    #[test]
    fn a_broken_bound_is_named_also_in_a_change() {
        let second = Duration::from_secs(1);
        for (limit, every, broken) in [
            (None, 10_000, &[][..]),
            (
                None,
                1_000,
                &[
                    "26.0 above limit × time + burst, of 20.0 allowed",
                    "7.0 in the change, of 0.0 allowed",
                ],
            ),
            (Some(2), 500, &[]),
            (Some(2), 400, &["18.0 in the change, of 15.0 allowed"]),
            (
                Some(2),
                100,
                &[
                    "71.2 above limit × time + burst, of 20.0 allowed",
                    "70.0 in the change, of 15.0 allowed",
                ],
            ),
        ] {
            let mut bound = bound(10, 1);
            bound.change = Some(Change { limit, from: 3 * second, to: 12 * second });
            // Their reservations are from before the change, up to two seconds.
            let before = (0..5_000).step_by(100);
            let times =
                before.chain((5_000..12_000).step_by(every).skip(usize::from(every > 7_000)));
            let times = times.map(|at| (at, 1));
            let mut named = Vec::new();
            bound.add(&mut Figures::default(), &[calls(times)], &mut named);
            assert_eq!(named, broken, "{limit:?} {every:?}");
        }
    }
}
