//! The rate limit of a downstream service.

use std::time::Duration;

/// A rarer call is a matter of a schedule. In nanoseconds.
const LONGEST_INTERVAL: u64 = 86_400 * 1_000_000_000;

/// The calls that a downstream service takes. Requeue makes no more: a message that finds no room
/// waits for its place, and uses no retry.
///
/// Any window of time holds at most `limit` calls for each `period` in it, and `burst` more. It is
/// the generic cell rate algorithm (GCRA), a leaky bucket without a queue.
///
/// ```
/// use std::time::Duration;
/// use requeue::policy::{RateLimit, RetryPolicy};
///
/// let mut limit = RateLimit::new(100, Duration::from_secs(60));
/// limit.burst = 10;
/// let mut policy = RetryPolicy::default();
/// policy.limit = Some(limit);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RateLimit {
    /// Calls in each period. 0 counts as one.
    pub limit: u32,
    /// The period. Default of the policy document: one second.
    pub period: Duration,
    /// Calls that may come at once after a time without calls. Default 1, which 0 counts as too.
    pub burst: u32,
    /// How long a message may wait in the handler's place for its call. A longer wait is a
    /// deferral. Default 2 s.
    pub max_slot_wait: Duration,
    /// Whether the limit adapts to a service that takes less: refused calls lower it at once, to a
    /// tenth at least, and time without any raises it again. A refused call is a failure of the
    /// class [`RateLimit`](crate::FailureClass::RateLimit). Default `false`.
    pub adaptive: bool,
}

impl RateLimit {
    /// So many calls in each period, with the default burst.
    #[must_use]
    pub const fn new(limit: u32, period: Duration) -> Self {
        Self { limit, period, burst: 1, max_slot_wait: Duration::from_secs(2), adaptive: false }
    }

    /// The time between two calls at the limit, rounded up; a day at most.
    #[must_use]
    pub fn interval(&self) -> Duration {
        Duration::from_nanos(self.interval_nanos())
    }

    /// The same in nanoseconds; at least one.
    pub(crate) fn interval_nanos(&self) -> u64 {
        let nanos = self.period.as_nanos().div_ceil(u128::from(self.limit.max(1)));
        u64::try_from(nanos).unwrap_or(u64::MAX).clamp(1, LONGEST_INTERVAL)
    }

    /// A call may come so much later than its slot: 100 ms, or one interval if that is longer.
    pub(crate) fn tolerance(&self) -> Duration {
        Duration::from_millis(100).max(self.interval())
    }
}
