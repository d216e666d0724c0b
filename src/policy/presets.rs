//! The built-in policies: one table.

use std::time::Duration;

use super::{Backoff, CallPolicy, CircuitBreaker, ClassPolicy, Jitter, RetryPolicy};

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Preset {
    pub(crate) name: &'static str,
    pub(crate) multiplier: f64,
    max_retries: u32,
    jitter: Jitter,
    rate_limit: Row,
    quota: Row,
    temporary: Row,
}

/// All in seconds.
#[derive(Clone, Copy, Debug)]
struct Row {
    base: u64,
    cap: u64,
    age: u64,
}

impl Preset {
    pub(crate) const STANDARD: Self = Self {
        name: "standard",
        multiplier: 3.0,
        max_retries: 50,
        jitter: Jitter::Equal,
        rate_limit: Row { base: 60, cap: 300, age: 12 * HOUR },
        quota: Row { base: 120, cap: 600, age: 48 * HOUR },
        temporary: Row { base: 2, cap: 60, age: 12 * HOUR },
    };
    pub(crate) const HIGH_VOLUME: Self = Self {
        name: "high-volume",
        multiplier: 2.0,
        max_retries: 10,
        jitter: Jitter::Full,
        rate_limit: Row { base: 10, cap: 30, age: HOUR },
        quota: Row { base: 15, cap: 30, age: HOUR },
        temporary: Row { base: 2, cap: 30, age: HOUR },
    };
    pub(crate) const CRITICAL: Self = Self {
        name: "critical",
        multiplier: 2.0,
        max_retries: 5,
        jitter: Jitter::Proportional(0.2),
        rate_limit: Row { base: 2, cap: 10, age: 10 * MINUTE },
        quota: Row { base: 5, cap: 10, age: 10 * MINUTE },
        temporary: Row { base: 1, cap: 5, age: 10 * MINUTE },
    };
    pub(crate) const ALL: [Self; 3] = [Self::STANDARD, Self::HIGH_VOLUME, Self::CRITICAL];

    pub(crate) fn policy(&self) -> RetryPolicy {
        let class = |row: Row| ClassPolicy {
            backoff: Backoff::Exponential {
                base: Duration::from_secs(row.base),
                multiplier: self.multiplier,
            },
            max_delay: Duration::from_secs(row.cap),
            jitter: self.jitter,
            max_retries: None,
            total_timeout: Duration::from_secs(row.age),
        };
        RetryPolicy {
            max_retries: self.max_retries,
            max_retry_after: Duration::from_hours(12),
            message_ttl: None,
            max_deferrals: 100,
            max_deferral: Duration::from_mins(1),
            limit: None,
            units: None,
            key_limits: Vec::new(),
            fair_shares: None,
            idempotency: None,
            max_postponements: 1_000,
            max_pause: Some(Duration::from_mins(1)),
            circuit_breaker: Some(CircuitBreaker::default()),
            rate_limit: class(self.rate_limit),
            quota: class(self.quota),
            temporary: class(self.temporary),
            sqs_calls: CallPolicy::default(),
            receive_calls: CallPolicy::receiving(),
        }
    }
}

impl RetryPolicy {
    /// Long waits and many retries, for downstream services that recover in their own time; the
    /// default. At most 50 retries, spread by [`Jitter::Equal`]; rate limits end after 12 h, quotas after
    /// 48 h, temporary failures after 12 h. `requeue schedule` prints the delays of each policy.
    pub fn standard() -> Self {
        Preset::STANDARD.policy()
    }

    /// Short waits and few retries, for many messages of little weight each: at most 10 within an hour,
    /// spread by [`Jitter::Full`].
    pub fn high_volume() -> Self {
        Preset::HIGH_VOLUME.policy()
    }
    /// A few quick retries, for messages whose failure somebody must know soon: at most 5 within a
    /// minute, spread by [`Jitter::Proportional`] of 0.2. In an outage, retries go on for ten
    /// minutes.
    pub fn critical() -> Self {
        Preset::CRITICAL.policy()
    }
}

impl Default for RetryPolicy {
    /// [`RetryPolicy::standard`]
    fn default() -> Self {
        Self::standard()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_tables_are_the_real_seconds() {
        const HOURS: u64 = 3_600;
        let (standard, high_volume, critical) =
            (RetryPolicy::standard(), RetryPolicy::high_volume(), RetryPolicy::critical());
        // policy, its class → first delays, sum of all, age, shares of the delay at both ends of
        // the jitter
        let table = [
            (
                &standard,
                &standard.rate_limit,
                [60, 180, 300, 300, 300],
                14_640,
                12 * HOURS,
                [0.5, 1.0],
            ),
            (&standard, &standard.quota, [120, 360, 600, 600, 600], 29_280, 48 * HOURS, [0.5, 1.0]),
            (&standard, &standard.temporary, [2, 6, 18, 54, 60], 2_840, 12 * HOURS, [0.5, 1.0]),
            (&high_volume, &high_volume.rate_limit, [10, 20, 30, 30, 30], 270, HOURS, [0.0, 1.0]),
            (&high_volume, &high_volume.quota, [15, 30, 30, 30, 30], 285, HOURS, [0.0, 1.0]),
            (&high_volume, &high_volume.temporary, [2, 4, 8, 16, 30], 210, HOURS, [0.0, 1.0]),
            (&critical, &critical.rate_limit, [2, 4, 8, 10, 10], 34, 600, [0.8, 1.0]),
            (&critical, &critical.quota, [5, 10, 10, 10, 10], 45, 600, [0.8, 1.0]),
            (&critical, &critical.temporary, [1, 2, 4, 5, 5], 17, 600, [0.8, 1.0]),
        ];
        for (policy, class, delays, sum, age, ends) in table {
            let delay = |retries| class.backoff.delay(retries).min(class.max_delay);
            assert_eq!([0, 1, 2, 3, 4].map(|retries| delay(retries).as_secs()), delays);
            assert_eq!(
                (0..policy.max_retries).map(delay).sum::<Duration>(),
                Duration::from_secs(sum)
            );
            assert_eq!(class.total_timeout, Duration::from_secs(age));
            assert_eq!(
                [0.0, 1.0].map(|sample| class.delay(9, None, sample)),
                ends.map(|end| delay(9).mul_f64(end))
            );
        }
        assert_eq!(Preset::ALL.map(|preset| preset.policy().max_retries), [50, 10, 5]);
    }
}
