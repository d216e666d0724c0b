//! The pure core: how long to wait, and when to give up. It takes the time and one random number,
//! and returns a value. It reads no clock, draws no random number and logs nothing.

use std::time::Duration;

use crate::failure::FailureClass;

mod decide;
mod defer;
mod limit;
mod once;
mod outage;
mod budgets;
mod usage;
mod presets;
mod calls;
mod jitter;
mod backoff;
#[cfg(test)]
mod tests;

pub use backoff::Backoff;
pub(crate) use budgets::{given_up, has_no_attempt_left, is_spent, is_stuck, max_retries};
pub use calls::CallPolicy;
pub(crate) use decide::{decide, next_retry};
pub use defer::CircuitBreaker;
pub(crate) use defer::{
    LONGEST_IN_LINE, after_lease, believed_due, defer, defer_unverified, deferred_by_visibility,
    hold, in_line, in_progress, line_full, may_be_held, put_off,
};
pub use jitter::Jitter;
use jitter::Spread;
pub use limit::RateLimit;
pub use once::{Once, WhenUnavailable};
pub(crate) use outage::unserved;
pub(crate) use presets::Preset;
pub use usage::History;
pub(crate) use usage::Usage;

/// Everything that bounds the retries of a message. [`RetryPolicy::default`] is the built-in
/// `standard`.
///
/// ```
/// use std::time::Duration;
/// use requeue::policy::RetryPolicy;
///
/// let mut policy = RetryPolicy::default();
/// policy.max_retries = 10;
/// policy.temporary.max_delay = Duration::from_secs(30);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RetryPolicy {
    /// Most copies for failures of any class. Default 50.
    pub max_retries: u32,
    /// A delay that a failure itself names is cut to this. Default 43,200 s, the longest visibility
    /// timeout of SQS.
    pub max_retry_after: Duration,
    /// A message older than this when its turn comes is dead-lettered without a call. Default:
    /// none.
    pub message_ttl: Option<Duration>,
    /// Most copies for deferrals between two calls. After so many, Requeue calls the handler in
    /// spite of a pause or an open circuit. If too little of the invocation is left for a call, SQS
    /// delivers the message again after its visibility timeout. Default 100.
    pub max_deferrals: u32,
    /// Longest wait of a deferral. Each deferral waits twice as long as the one before, up to this.
    /// The wait is then spread over up to twice its time. Default 60 s.
    pub max_deferral: Duration,
    /// Most times that the handler may [postpone](crate::Failure::postpone) a message in a row.
    /// Default 1,000.
    pub max_postponements: u32,
    /// Longest pause of a [scope](crate::Scope) after a failure that names a delay. Then one of its
    /// messages is let through as a probe. `None`: no pauses. Default 60 s.
    pub max_pause: Option<Duration>,
    /// When calls to a downstream service that keeps failing stop; `None` for never. Default: see
    /// [`CircuitBreaker`].
    pub circuit_breaker: Option<CircuitBreaker>,
    /// The calls that a downstream service takes, for each [scope](crate::Scope). Each execution
    /// environment and each worker counts its own calls. Default: none. No preset changes it.
    pub limit: Option<RateLimit>,
    /// Whether each event is handled once, which needs a [store](crate::Coordination). Default: no.
    /// No preset changes it.
    pub once: Option<Once>,
    /// Delays and budgets for [`FailureClass::RateLimit`]. Default 60 s × 3ⁿ up to 300 s, 12 hours.
    pub rate_limit: ClassPolicy,
    /// Delays and budgets for [`FailureClass::Quota`]. Default 120 s × 3ⁿ up to 600 s, 48 hours.
    pub quota: ClassPolicy,
    /// Delays and budgets for [`FailureClass::Temporary`]. Default 2 s × 3ⁿ up to 60 s, 12 hours.
    pub temporary: ClassPolicy,
    /// How calls to SQS are tried again, which is no retry of a message. No preset changes it.
    pub sqs_calls: CallPolicy,
    /// How a [`Worker`](crate::Worker) that cannot receive tries again. Default:
    /// [`CallPolicy::receiving`]. No preset changes it.
    pub receive_calls: CallPolicy,
}

impl RetryPolicy {
    /// The policy of a class; a non-retryable failure has none.
    #[must_use]
    pub const fn class(&self, class: FailureClass) -> Option<&ClassPolicy> {
        match class {
            FailureClass::RateLimit => Some(&self.rate_limit),
            FailureClass::Quota => Some(&self.quota),
            FailureClass::Temporary => Some(&self.temporary),
            FailureClass::NonRetryable => None,
        }
    }
}

/// The delays and budgets of one class of failures. Begin with those of a built-in policy.
///
/// ```
/// use std::time::Duration;
/// use requeue::policy::{Backoff, Jitter, RetryPolicy};
///
/// let mut policy = RetryPolicy::default();
/// let quota = &mut policy.quota;
/// quota.backoff = Backoff::Exponential { base: Duration::from_secs(60), multiplier: 2.0 };
/// quota.jitter = Jitter::Full;
/// quota.max_retries = Some(20);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ClassPolicy {
    /// How the delay grows with the retries of this class.
    pub backoff: Backoff,
    /// The delay grows no further than this.
    pub max_delay: Duration,
    /// How the delay is spread, after the cap.
    pub jitter: Jitter,
    /// Most copies for failures of this class. [`RetryPolicy::max_retries`] bounds all classes
    /// together in any case; `None` sets no bound besides it.
    pub max_retries: Option<u32>,
    /// No retry later than this after the message was first received.
    pub total_timeout: Duration,
}

impl ClassPolicy {
    /// The delay after so many retries of this class: the backoff, capped, then spread by `sample`,
    /// uniform in `0.0..1.0`. `previous` is the delay before this one, for
    /// [`Jitter::Decorrelated`].
    ///
    /// On the wire it is rounded up to whole seconds; a wait of more than 900 s takes several hops.
    ///
    /// ```
    /// use requeue::policy::RetryPolicy;
    /// let policy = RetryPolicy::default();
    /// let shortest = |retries| policy.quota.delay(retries, None, 0.0).as_secs();
    /// assert_eq!([shortest(0), shortest(1), shortest(2), shortest(3)], [60, 180, 300, 300]);
    /// ```
    #[must_use]
    pub fn delay(&self, retries: u32, previous: Option<Duration>, sample: f64) -> Duration {
        let spread = Spread::of(&self.backoff, retries, self.max_delay, previous);
        self.jitter.apply(&spread, sample)
    }
}
