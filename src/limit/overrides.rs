//! An operator's view and changes of a limit while it runs: another rate, or a pause. Each change
//! has a version, and each claim requires the version that it saw, so no call uses an older one.

use std::cmp::Reverse;
use std::time::{Duration, SystemTime};

use super::line::TenantStatus;
use super::{Admission, Claim, KnownLimit, LimitState, epoch_nanos, from_epoch_nanos, nanos};
use crate::policy::RateLimit;
use crate::table::{Field, Item, Update};

/// A message that waits for the end of a pause asks again after this part of the time since its
/// beginning, since an operator may end it at any time.
const PART_OF_PAUSE: u64 = 30;
const SOONEST: Duration = Duration::from_secs(5);
const LATEST: Duration = Duration::from_mins(1);

/// An operator's settings in an item. A new item has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Override {
    /// The time of the last change. It is later than that of the change before.
    version: u64,
    /// The time between two units, until `until`; 0 for that of the policy.
    interval: u64,
    until: u64,
    paused_until: u64,
}

const VERSION: Field = Field::new("version");
const INTERVAL: Field = Field::new("overrideInterval");
const UNTIL: Field = Field::new("overrideUntil");
const PAUSED_UNTIL: Field = Field::new("pausedUntil");

/// A change by an operator. Without an end, it lasts until the next change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OverrideChange {
    /// This many calls in the period of the policy.
    Set {
        calls: u32,
        until: Option<SystemTime>,
    },
    Pause {
        until: Option<SystemTime>,
    },
    Resume,
    /// The limit of the policy, without a pause.
    Reset,
}

impl Override {
    pub(super) fn of(item: &Item) -> Self {
        Self {
            version: item.get(VERSION),
            interval: item.get(INTERVAL),
            until: item.get(UNTIL),
            paused_until: item.get(PAUSED_UNTIL),
        }
    }

    pub(super) fn in_effect(&self, known: &KnownLimit, now: u64) -> KnownLimit {
        match self.interval_at(now) {
            // A pace of the operator's interval is older than the limit's.
            None => KnownLimit { since: known.since.max(self.until.min(now)), ..*known },
            Some(interval) => {
                KnownLimit { limit: known.limit.with_interval(interval), since: self.version }
            }
        }
    }

    /// The interval that an operator has set, if it still applies.
    pub(super) fn interval_at(&self, now: u64) -> Option<u64> {
        Some(self.interval).filter(|interval| *interval > 0 && now < self.until)
    }

    /// The end of the interval that an operator has set, if it still applies.
    pub(crate) fn set_until(&self, now: u64) -> Option<u64> {
        self.interval_at(now).map(|_| self.until)
    }

    pub(crate) fn paused_until(&self, now: u64) -> Option<u64> {
        Some(self.paused_until).filter(|end| *end > now)
    }

    /// The time since which calls are possible.
    pub(super) fn open_since(&self) -> u64 {
        self.version.max(self.paused_until)
    }

    /// The decision about a message while the calls are paused.
    pub(super) fn pause(&self, now: u64) -> Option<Admission> {
        let rest = self.paused_until(now)? - now;
        let so_far = now.saturating_sub(self.version);
        let again = (so_far / PART_OF_PAUSE).clamp(nanos(SOONEST), nanos(LATEST)).min(rest);
        let (rest, asks_again) = (Duration::from_nanos(rest), Duration::from_nanos(again));
        Some(Admission::Paused { rest, asks_again })
    }

    /// The end of all settings of the operator.
    pub(super) fn ends(&self, now: u64) -> u64 {
        self.set_until(now).max(self.paused_until(now)).unwrap_or(now)
    }

    pub(super) fn changed(self, change: OverrideChange, limit: &RateLimit, now: u64) -> Self {
        let end = |until: Option<SystemTime>| until.map_or(u64::MAX, epoch_nanos);
        let changed = match change {
            OverrideChange::Set { calls, until } => {
                let limit = RateLimit { limit: calls, ..*limit };
                Self { interval: limit.interval_nanos(), until: end(until), ..self }
            }
            OverrideChange::Pause { until } => Self { paused_until: end(until), ..self },
            OverrideChange::Resume => Self { paused_until: 0, ..self },
            OverrideChange::Reset => Self::default(),
        };
        Self { version: now.max(self.version.saturating_add(1)), ..changed }
    }

    /// The condition that no operator changes it meanwhile.
    pub(super) fn unchanged(&self, update: Update) -> Update {
        update.when(VERSION, self.version..=self.version)
    }

    pub(super) fn written(&self, update: Update) -> Update {
        update
            .set(VERSION, self.version)
            .set(INTERVAL, self.interval)
            .set(UNTIL, self.until)
            .set(PAUSED_UNTIL, self.paused_until)
    }
}

/// A rate limit at a moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LimitStatus {
    /// Whether no message has asked for it lately, and no operator has changed it.
    pub is_new: bool,
    /// Whether it counts units instead of calls.
    pub counts_units: bool,
    /// The limit of the policy.
    pub of_policy: RateLimit,
    /// The limit in effect.
    pub limit: RateLimit,
    /// An operator has set this limit until then.
    pub set_until: Option<SystemTime>,
    /// An operator has paused the calls until then.
    pub paused_until: Option<SystemTime>,
    /// The service has asked for a pause, or its circuit is open. The value is the rest of that
    /// time, zero while a message probes.
    pub service_paused: Option<Duration>,
    /// The part of the limit that is in effect. Refused calls lower an adaptive limit, and the
    /// headers of responses lower a limit that follows them.
    pub pace: f64,
    /// The units of the messages in the waiting list.
    pub waiting: u64,
    /// The tenants with messages in the waiting list, those with the most first.
    pub tenants: Vec<TenantStatus>,
    /// The values of keys whose own limit an operator has paused, at most eight.
    pub paused_keys: Vec<PausedKey>,
}

/// The value of a key whose own limit an operator has paused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PausedKey {
    /// The value, if the policy gives it a weight, or if the limit is its own.
    pub name: Option<String>,
    /// As [`TenantStatus::hash`].
    pub hash: u16,
    /// The end of the pause, to 65 µs.
    pub until: SystemTime,
}

impl LimitStatus {
    /// Calls in each period of the policy.
    pub fn calls_per_period(&self) -> u32 {
        let calls = self.of_policy.period.as_nanos().div_ceil(self.limit.interval().as_nanos());
        u32::try_from(calls).unwrap_or(u32::MAX)
    }

    /// The time until all waiting messages are called, if no more arrive.
    pub fn clears_in(&self) -> Duration {
        let calls = u32::try_from(self.waiting).unwrap_or(u32::MAX);
        self.limit.interval().saturating_mul(calls).div_f64(self.pace.max(0.001))
    }
}

impl LimitState {
    /// The limit as an operator sees it, without the state of its service.
    pub(crate) fn status(&self, of_policy: &RateLimit, now: SystemTime) -> LimitStatus {
        let (shown, at) = (now, epoch_nanos(now));
        let limit = self.overrides.in_effect(&KnownLimit::own(of_policy), at).limit;
        let whole = self.pace.interval(&limit);
        let now = nanos(Claim::new(&KnownLimit::own(of_policy), *self, now).interval());
        let mut tenants = self.line.tenants();
        tenants.sort_unstable_by_key(|tenant| Reverse(tenant.waiting));
        #[expect(clippy::cast_precision_loss, reason = "it is a part")]
        LimitStatus {
            is_new: *self == Self::default(),
            counts_units: of_policy.has_units,
            of_policy: *of_policy,
            limit: self.in_effect(of_policy, shown),
            set_until: self.overrides.set_until(at).map(from_epoch_nanos),
            paused_until: self.overrides.paused_until(at).map(from_epoch_nanos),
            service_paused: None,
            pace: (whole as f64 / now as f64).min(1.0),
            waiting: self.line.backlog(),
            tenants,
            paused_keys: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Admission, Ask, Claim, Demand, LimitState};
    use super::*;

    fn at(millis: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000) + Duration::from_millis(millis)
    }

    /// The item of a limit.
    #[derive(Default)]
    struct Scope(Item);

    impl Scope {
        fn state(&self) -> LimitState {
            LimitState::of(&self.0)
        }

        fn change(&mut self, change: OverrideChange, limit: &RateLimit, now: u64) {
            let (update, _) = self.state().overridden(change, limit, at(now));
            assert!(update.apply(&mut self.0), "{change:?}");
        }

        /// A call, after this many milliseconds.
        fn call(&mut self, limit: &RateLimit, now: u64) -> Option<u128> {
            let state = self.state();
            let mut claim = Claim::new(&KnownLimit::own(limit), state, at(now));
            let longest = Duration::from_secs(2);
            let share = claim.take(Demand { ask: Ask::Retry, tenant: None, units: 1, longest });
            let Admission::Slot(wait) = claim.admission(share, &state) else { return None };
            assert!(claim.update().apply(&mut self.0), "nobody has changed it");
            Some(wait.as_millis())
        }
    }

    #[test]
    fn a_claim_by_an_older_version_changes_nothing() {
        let limit = RateLimit::new(10, Duration::from_secs(1));
        let mut scope = Scope::default();
        let mut claim = Claim::new(&KnownLimit::own(&limit), scope.state(), at(0));
        let longest = Duration::ZERO;
        claim.take(Demand { ask: Ask::Newcomer, tenant: None, units: 1, longest });
        let until = None;
        for change in [
            OverrideChange::Pause { until },
            OverrideChange::Resume,
            OverrideChange::Set { calls: 10, until },
        ] {
            scope.change(change, &limit, 0);
            assert!(!claim.update().apply(&mut scope.0), "{change:?}");
        }
    }

    #[test]
    fn the_calls_of_each_rate_begin_after_the_last_reservation_of_the_one_before() {
        let limit = RateLimit { burst: 4, ..RateLimit::new(10, Duration::from_secs(1)) };
        let (mut scope, until) = (Scope::default(), None);
        let calls = |scope: &mut Scope, now| [(); 3].map(|()| scope.call(&limit, now));
        assert_eq!(calls(&mut scope, 0), [Some(0); 3]);
        // One call in a second has no burst, and three calls have been made.
        scope.change(OverrideChange::Set { calls: 1, until }, &limit, 0);
        assert_eq!(calls(&mut scope, 0), [Some(300), Some(1_300), None]);
        scope.change(OverrideChange::Reset, &limit, 0);
        assert_eq!(calls(&mut scope, 1_300), [Some(0); 3]);
        scope.change(OverrideChange::Set { calls: 100, until: Some(at(2_000)) }, &limit, 1_500);
        assert_eq!(scope.state().in_effect(&limit, at(1_999)).interval_nanos(), 10_000_000);
        assert_eq!(scope.state().in_effect(&limit, at(2_000)), limit);
    }

    #[test]
    fn a_lower_limit_brings_no_second_burst() {
        let limit = RateLimit { burst: 5, ..RateLimit::new(10, Duration::from_secs(1)) };
        for (before, after) in [(5, [100, 300, 500]), (3, [0, 100, 300]), (0, [0, 0, 0])] {
            let mut scope = Scope::default();
            assert!((0..before).all(|_| scope.call(&limit, 0) == Some(0)));
            scope.change(OverrideChange::Set { calls: 5, until: None }, &limit, 0);
            assert_eq!([(); 3].map(|()| scope.call(&limit, 0)), after.map(Some), "{before}");
        }
    }

    #[test]
    fn a_pause_gives_no_reservation_and_a_message_asks_again_sooner_than_it_may_end() {
        let limit = RateLimit::new(10, Duration::from_secs(1));
        let mut scope = Scope::default();
        scope.change(OverrideChange::Pause { until: Some(at(400_000)) }, &limit, 0);
        let paused = |scope: &Scope, now| match scope.state().operator_pause(at(now)) {
            Some(Admission::Paused { rest, asks_again }) => (rest.as_secs(), asks_again.as_secs()),
            _ => (0, 0),
        };
        let seen = [0, 300_000, 397_000, 400_000].map(|now| paused(&scope, now));
        assert_eq!(seen, [(400, 5), (100, 10), (3, 3), (0, 0)]);
        assert_eq!(scope.call(&limit, 399_000), None);
        assert_eq!(scope.call(&limit, 400_000), Some(0));
        scope.change(OverrideChange::Pause { until: None }, &limit, 400_000);
        assert_eq!(paused(&scope, 400_000 + 86_400_000).1, 60);
        scope.change(OverrideChange::Resume, &limit, 500_000);
        assert_eq!(scope.call(&limit, 500_000), Some(0));
    }

    #[test]
    fn an_adaptive_limit_has_its_whole_pace_after_each_change() {
        let limit = RateLimit { adaptive: true, ..RateLimit::new(10, Duration::from_secs(1)) };
        let (mut scope, until) = (Scope::default(), Some(at(1_000)));
        for (change, now, interval) in [
            (OverrideChange::Set { calls: 5, until: None }, 0, 200_000_000),
            (OverrideChange::Reset, 100, 100_000_000),
            (OverrideChange::Set { calls: 20, until }, 200, 50_000_000),
        ] {
            scope.change(change, &limit, now);
            let known = KnownLimit { since: epoch_nanos(at(0)), ..KnownLimit::own(&limit) };
            let refused = scope.state().refused(&known, at(now), at(now)).expect("a lower pace");
            assert!(scope.state().pace_update(&refused).apply(&mut scope.0));
            assert_eq!(scope.state().in_effect(&limit, at(now)).interval_nanos(), interval);
        }
        // The end of the time that was set.
        let claim = Claim::new(
            &KnownLimit { since: epoch_nanos(at(0)), ..KnownLimit::own(&limit) },
            scope.state(),
            at(1_000),
        );
        assert_eq!(claim.interval(), Duration::from_millis(100));
    }
}
