//! The pure core: how long to wait, and when to dead-letter. It gets the time and one random
//! number, and returns a value. It reads no clock, draws no random number and logs nothing.

use std::time::Duration;

use crate::failure::FailureClass;
use crate::pointer::JsonPointer;

mod decide;
mod defer;
mod presets;
mod calls;
mod backoff;
mod fair_shares;
#[cfg(test)]
mod tests;

use backoff::Spread;
pub use backoff::{Backoff, Jitter};
pub use calls::CallPolicy;
pub use decide::History;
pub(crate) use decide::{
    Usage, dead_lettered, decide, has_no_attempt_left, is_last_receive, is_spent, is_stuck,
    max_retries, next_retry, unclear, unserved,
};
pub use defer::CircuitBreaker;
pub(crate) use defer::{
    after_in_progress, believed_due, defer, defer_for_table, defer_unverified,
    deferred_by_visibility, in_line, in_progress, line_full, may_be_deferred, pause,
};
#[cfg(test)]
pub(crate) use fair_shares::MAX_ATTRIBUTE_NAME;
pub use fair_shares::{FairShares, InvalidMessageKey, KeyLimit, MessageKey};
pub(crate) use presets::Preset;

/// Everything that bounds the retries of a message. [`RetryPolicy::default`] is the built-in
/// `standard`.
///
/// ```
/// use std::time::Duration;
/// use requeue::policy::{RateLimit, RetryPolicy};
///
/// let mut policy = RetryPolicy::default();
/// policy.max_retries = 10;
/// policy.temporary.max_delay = Duration::from_secs(30);
/// policy.limit = Some(RateLimit::new(50, Duration::from_secs(1)));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RetryPolicy {
    /// Most copies for failures of any class. Default 50.
    pub max_retries: u32,
    /// A delay that a failure itself names is cut to this. Default 43,200 s, the longest visibility
    /// timeout of SQS.
    pub max_retry_after: Duration,
    /// If a message is older than this when it is due, it is dead-lettered without a call. Default:
    /// none.
    pub message_ttl: Option<Duration>,
    /// Most copies for deferrals between two calls. After that many, Requeue calls the handler
    /// despite a pause or an open circuit. If too little of the invocation is left for a call, SQS
    /// delivers the message again after its visibility timeout. Default 100.
    pub max_deferrals: u32,
    /// Longest wait of a deferral. Each deferral waits twice as long as the one before, up to this.
    /// The wait is then spread over up to twice its time. Default 60 s.
    pub max_deferral: Duration,
    /// Most times that the handler may [postpone](crate::Failure::postpone) a message in a row.
    /// Default 1,000.
    pub max_postponements: u32,
    /// Longest pause of a [scope](crate::Scope) after a failure that names a delay. Then one of its
    /// messages probes. `None`: no pauses. Default 60 s.
    pub max_pause: Option<Duration>,
    /// When calls to a downstream service that keeps failing stop; `None` for never. Default: see
    /// [`CircuitBreaker`].
    pub circuit_breaker: Option<CircuitBreaker>,
    /// The calls that a downstream service takes, for each [scope](crate::Scope). Without a [shared
    /// table](crate::SharedTable), each execution environment and each worker counts its own calls.
    /// Default: none. No preset changes it.
    pub limit: Option<RateLimit>,
    /// The place of the units of a message's call, a number: the limit counts them instead of calls. Default: each call has one unit. No preset changes it.
    pub units: Option<MessageKey>,
    /// Limits for each value at a place of the messages, such as a tenant, in addition to that of
    /// all; two at most. Default: none. No preset changes it.
    pub key_limits: Vec<KeyLimit>,
    /// How tenants share a rate limit, which may also be [that of a
    /// handler](crate::Handler::rate_limit). Without such a limit it has no effect. Default:
    /// messages are called in their order, whatever their tenant. No preset changes it.
    pub fair_shares: Option<FairShares>,
    /// Whether each event is handled once, which needs a [table](crate::SharedTable). Default: no.
    /// No preset changes it.
    pub idempotency: Option<Idempotency>,
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
    pub const fn class(&self, class: FailureClass) -> Option<&ClassPolicy> {
        match class {
            FailureClass::RateLimit => Some(&self.rate_limit),
            FailureClass::Quota => Some(&self.quota),
            FailureClass::Temporary => Some(&self.temporary),
            FailureClass::NonRetryable => None,
        }
    }

    /// The wait of a message after this many deferrals, at least `least`. It is spread, so that
    /// messages that are deferred together do not return together.
    fn deferral(&self, deferrals: u32, least: Duration, sample: f64) -> Duration {
        let doubled = Duration::from_secs(2_u64.saturating_pow(deferrals)).min(self.max_deferral);
        backoff::spread(doubled.max(least), sample)
    }
}

/// The delays and budgets of one class of failures. Begin with those of a built-in policy.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ClassPolicy {
    /// How the delay grows with the retries of this class.
    pub backoff: Backoff,
    /// The delay grows no further than this.
    pub max_delay: Duration,
    /// How the delay is spread, after the cap.
    pub jitter: Jitter,
    /// Most copies for failures of this class. [`RetryPolicy::max_retries`] limits all classes
    /// together in any case; `None` sets no further limit.
    pub max_retries: Option<u32>,
    /// No retry later than this after the message was first received.
    pub total_timeout: Duration,
}

impl ClassPolicy {
    /// The delay after this many retries of this class: the backoff, capped, then spread by
    /// `sample`, uniform in `0.0..1.0`. `previous` is the delay before this one, for
    /// [`Jitter::Decorrelated`].
    ///
    /// On the wire it is rounded up to whole seconds; a wait of more than 900 s takes several hops.
    pub fn delay(&self, retries: u32, previous: Option<Duration>, sample: f64) -> Duration {
        let spread = Spread::of(&self.backoff, retries, self.max_delay, previous);
        self.jitter.apply(&spread, sample)
    }
}

/// The longest interval, in nanoseconds. A rarer call needs a schedule.
const LONGEST_INTERVAL: u64 = 86_400 * 1_000_000_000;

/// The calls that a downstream service takes. Requeue makes no more: a message without a
/// reservation waits, and uses no retry.
///
/// Any window of time holds at most `limit` calls for each `period` in it, and `burst` more. It is
/// the generic cell rate algorithm (GCRA), a leaky bucket without a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RateLimit {
    /// Calls in each period. 0 counts as one.
    pub limit: u32,
    /// The period. Default of the policy document: one second.
    pub period: Duration,
    /// Calls that may be made at once after a time without calls. Default 1, and 0 counts as 1.
    pub burst: u32,
    /// How long a message may occupy a handler while it waits for its reservation, without a
    /// deferral. Default 2 s.
    pub max_reservation: Duration,
    /// Whether the limit adapts to a service that takes fewer calls. Refused calls lower the limit
    /// at once, to a tenth at least. Time without refusals raises it again. A refused call is a
    /// failure of the class [`RateLimit`](crate::FailureClass::RateLimit). Default `false`.
    pub adaptive: bool,
    /// Whether the limit follows headers of successful responses, such as `X-RateLimit-Remaining`.
    /// Once less than a fifth of the service's calls is left, Requeue spreads the remaining calls
    /// over the time until the reset. A handler passes responses on by
    /// [`Message::note_response`](crate::Message::note_response). Headers never raise the limit.
    /// Default `false`.
    pub headers: bool,
    /// Whether a call of several messages counts once, or each of its messages. Default
    /// [`LimitPer::Call`].
    pub per: LimitPer,
    /// Whether calls may have more than one unit.
    pub(crate) has_units: bool,
}

/// The things that a [`RateLimit`] counts. Units count for each message in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitPer {
    /// A call of several messages counts as one call, since it is one request.
    #[default]
    Call,
    /// Each message of a call counts: for a function or [`BulkHandler`](crate::BulkHandler) that makes
    /// a request for each message.
    Message,
}

impl RateLimit {
    /// This many calls in each period, with the default burst.
    pub const fn new(limit: u32, period: Duration) -> Self {
        let max_reservation = Duration::from_secs(2);
        Self {
            limit,
            period,
            burst: 1,
            max_reservation,
            adaptive: false,
            headers: false,
            per: LimitPer::Call,
            has_units: false,
        }
    }

    /// The time between two calls at the limit, rounded up; a day at most.
    pub fn interval(&self) -> Duration {
        Duration::from_nanos(self.interval_nanos())
    }

    /// The same in nanoseconds; at least one.
    pub(crate) fn interval_nanos(&self) -> u64 {
        let nanos = self.period.as_nanos().div_ceil(u128::from(self.limit.max(1)));
        u64::try_from(nanos).unwrap_or(u64::MAX).clamp(1, LONGEST_INTERVAL)
    }

    /// The same limit, with this many nanoseconds between two calls. Fewer calls have no larger burst.
    pub(crate) fn with_interval(self, nanos: u64) -> Self {
        if nanos == self.interval_nanos() {
            return self;
        }
        let calls = self.period.as_nanos().div_ceil(u128::from(nanos.max(1)));
        let calls = u32::try_from(calls).unwrap_or(u32::MAX);
        let period = Duration::from_nanos(nanos).saturating_mul(self.limit.max(1));
        Self { period, burst: self.burst.min(calls), ..self }
    }

    /// The calls that may be made together beyond the first, if they wait for other limits after
    /// this.
    pub fn together<'a>(&self, later: impl Iterator<Item = &'a Self>) -> u32 {
        let wait: Duration = later.map(|limit| limit.max_reservation).sum();
        let calls = wait.as_nanos().div_ceil(self.interval().as_nanos());
        u32::try_from(calls).unwrap_or(u32::MAX)
    }

    /// The most units of a call.
    pub(crate) fn largest(&self) -> u32 {
        if self.has_units { self.limit.max(1) } else { 1 }
    }

    /// A call may be this much later than its reservation: 100 ms, or one interval if longer.
    pub(crate) fn tolerance(&self) -> Duration {
        tolerance(self.interval())
    }
}

pub(crate) fn tolerance(interval: Duration) -> Duration {
    Duration::from_millis(100).max(interval)
}

/// Calls the handler once for each event, as far as a table can know. Of several messages about one
/// event, Requeue handles only one at a time. After its success the others complete without a call.
///
/// It needs a [table](crate::SharedTable). The table has a hash of the event's name, and the time
/// until which the event counts as done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Idempotency {
    /// The place of the event's name in the body: a text that is not empty, or a number. `None`,
    /// and a message without such a name: the id of the message's first delivery.
    pub key: Option<JsonPointer>,
    /// How long an event counts as done after its success. Default 14 days.
    pub keep: Duration,
    /// How a message proceeds if the table does not respond. Default: [`WhenUnavailable::Call`].
    pub when_unavailable: WhenUnavailable,
}

impl Default for Idempotency {
    fn default() -> Self {
        Self {
            key: None,
            keep: Duration::from_hours(14 * 24),
            when_unavailable: WhenUnavailable::Call,
        }
    }
}

/// How a message proceeds if it is unknown whether its event is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenUnavailable {
    /// Its handler is called, even if the event may be done.
    #[default]
    Call,
    /// It is deferred, at most [`max_deferrals`](RetryPolicy::max_deferrals) times.
    Defer,
}
