//! The cap of a limit: the service says what is left of it until it is renewed. Whoever else uses the
//! same allowance, the calls until then fit into the rest.

use std::time::Duration;

use super::nanos;
use crate::classify::Allowance;
use crate::table::{Field, Item, Update};

/// A longer interval would put a reservation beyond the furthest one.
const LONGEST_INTERVAL: Duration = Duration::from_secs(3_600);
/// A response caps the calls for so long at most.
const LONGEST: Duration = Duration::from_hours(24);
/// The rest is spread once less than this part of the allowance is left.
const PART_LEFT: u64 = 5;
/// A cap is worth its request if it lowers the pace below these per cent.
const WORTH: u64 = 90;

/// The cap in an item. A new item has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cap {
    /// The least time between two units.
    interval: u64,
    until: u64,
}

const INTERVAL: Field = Field::new("capInterval");
const UNTIL: Field = Field::new("capUntil");

impl Cap {
    pub(super) fn of(item: &Item) -> Self {
        Self { interval: item.get(INTERVAL), until: item.get(UNTIL) }
    }

    /// The interval at which the calls come that would come at this one.
    pub(super) fn slower(&self, interval: u64, now: u64) -> u64 {
        if now < self.until { interval.max(self.interval) } else { interval }
    }

    /// The cap by an allowance, if it is lower than the pace of now. So many units are reserved.
    pub(super) fn lowered(
        allowance: &Allowance,
        (interval, reserved): (u64, u64),
        now: u64,
    ) -> Option<Self> {
        let Allowance { limit, remaining, resets_in, .. } = *allowance;
        let is_plenty = limit.is_some_and(|limit| remaining.saturating_mul(PART_LEFT) >= limit);
        let time = nanos(resets_in.min(LONGEST));
        let rest = remaining.saturating_sub(reserved).max(1);
        let spread = (time / rest).min(nanos(LONGEST_INTERVAL));
        let is_lower = interval < spread / 100 * WORTH;
        (!is_plenty && is_lower).then(|| Self { interval: spread, until: now.saturating_add(time) })
    }

    /// Whether it says no more than a new one.
    pub(super) fn is_over(&self, now: u64) -> bool {
        self.until <= now
    }

    /// The end of the cap.
    pub(super) fn ends(&self) -> u64 {
        self.until
    }

    /// The change to this cap, if nobody else changes it meanwhile.
    pub(super) fn written(&self, before: &Self, update: Update) -> Update {
        if self == before {
            return update;
        }
        update
            .when(INTERVAL, before.interval..=before.interval)
            .when(UNTIL, before.until..=before.until)
            .set(INTERVAL, self.interval)
            .set(UNTIL, self.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const NOW: u64 = 1_800_000_000 * SECOND;

    /// Of 100, for a minute.
    fn left(remaining: u64) -> Allowance {
        let resets_in = Duration::from_secs(60);
        Allowance { limit: Some(100), remaining, resets_in, counts_units: false }
    }

    #[test]
    fn a_cap_spreads_what_is_left_once_it_is_less_than_a_fifth() {
        let cap = |allowance, interval, reserved| {
            let cap = Cap::lowered(&allowance, (interval, reserved), NOW)?;
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
        let cap = Cap::lowered(&year, (1, 0), NOW).expect("a cap");
        assert_eq!(cap, Cap { interval: 3_600 * SECOND, until: NOW + 86_400 * SECOND });
        assert_eq!(cap.slower(SECOND, NOW + 86_400 * SECOND - 1), 3_600 * SECOND);
        assert_eq!(cap.slower(SECOND, NOW + 86_400 * SECOND), SECOND);
        assert_eq!(cap.slower(7_200 * SECOND, NOW), 7_200 * SECOND, "it raises nothing");
        assert!(!cap.is_over(NOW) && cap.is_over(NOW + 86_400 * SECOND));
    }

    #[test]
    fn of_two_caps_at_once_the_first_counts_and_the_other_is_decided_anew() {
        let mut item = Item::default();
        let seen = Cap::of(&item);
        let lowered = |remaining| Cap::lowered(&left(remaining), (SECOND, 0), NOW).expect("a cap");
        assert!(lowered(10).written(&seen, Update::new()).apply(&mut item));
        assert!(!lowered(5).written(&seen, Update::new()).apply(&mut item));
        assert_eq!(Cap::of(&item), lowered(10));
    }
}
