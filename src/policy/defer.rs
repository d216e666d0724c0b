//! The wait of a message whose turn it was not, and when it must be its turn.

use std::time::{Duration, SystemTime};

use super::budgets::{max_retries, time_left};
use super::decide::MAX_SPREAD;
use super::usage::Usage;
use super::{RetryPolicy, jitter};
use crate::delay::Wait;
use crate::disposition::{Deferral, Disposition, Strategy};

/// When the circuit of a downstream service opens, so that messages are deferred without a call.
///
/// Only failures of the service count, per [`Scope`](crate::Scope): temporary ones, but neither
/// panics nor unrecognised errors. The circuit opens after [`threshold`](Self::threshold) failures
/// in a row if the service responded to its last 128 calls. The fewer responses it gave, the longer
/// the row must be: twice as long where it responded to half of them, ten times as long where it
/// responded to a tenth or less. So a service that responds to some of its calls keeps most of its
/// throughput. After 16 responses in a row a service counts as one that responds to all calls.
///
/// An open circuit lets probes through after one second, then after 3, 9 and 27 s, at most after
/// [`reset_timeout`](Self::reset_timeout). If the service responded to up to half of its last calls
/// before, a third of that is the most, until 128 calls in a row have failed. Three messages probe,
/// among them one that failed before and one that did not; a service that responds to nothing is
/// probed with one message at a time once `reset_timeout` is reached. The first success closes the
/// circuit. When all probes fail, the circuit stays open.
///
/// A message that fails again and again counts once, so that it cannot open the circuit by itself.
///
/// ```
/// use std::time::Duration;
/// use requeue::policy::{CircuitBreaker, RetryPolicy};
///
/// let mut breaker = CircuitBreaker::default();
/// breaker.reset_timeout = Duration::from_secs(10);
/// let mut policy = RetryPolicy::default();
/// policy.circuit_breaker = Some(breaker);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CircuitBreaker {
    /// So many failures in a row, of as many messages, open the circuit of a service that responded
    /// until then; up to ten times as many open that of a service that responds to some calls. 0
    /// counts as 1. Default 5.
    pub threshold: u32,
    /// The longest time from one round of probes to the next. Default 30 s.
    pub reset_timeout: Duration,
}

impl Default for CircuitBreaker {
    fn default() -> Self {
        Self { threshold: 5, reset_timeout: Duration::from_secs(30) }
    }
}

/// A message that waits by its visibility uses up a receive each time it comes back, so it is not
/// deferred for less than this.
const LEAST_VISIBILITY_DEFERRAL: Duration = Duration::from_mins(1);
/// Longest wait, before its spread, of a message of which nobody can say who sent it.
const MAX_UNVERIFIED: Duration = Duration::from_mins(15);

/// When a message that says it is due then is taken to be due: a wait longer than any that begins
/// now was not ordered by us, and must not make it hop for ever.
pub(crate) fn believed_due(policy: &RetryPolicy, due: SystemTime, now: SystemTime) -> SystemTime {
    let RetryPolicy {
        max_retry_after,
        max_deferral,
        max_pause,
        circuit_breaker,
        rate_limit,
        quota,
        temporary,
        ..
    } = policy;
    let curves = [rate_limit, quota, temporary].map(|class| class.max_delay);
    let reset_timeout = circuit_breaker.as_ref().map(|breaker| breaker.reset_timeout);
    let holds = [Some(*max_deferral), *max_pause, reset_timeout].into_iter().flatten();
    let spread = holds.map(|hold| hold.saturating_mul(2));
    let longest = curves
        .into_iter()
        .chain(spread)
        .fold(max_retry_after.saturating_add(MAX_SPREAD), Duration::max);
    now.checked_add(longest).map_or(due, |latest| due.min(latest))
}

/// Defers a message that could not be started, after so many deferrals.
pub(crate) fn defer(
    policy: &RetryPolicy,
    why: Deferral,
    deferrals: u32,
    now: SystemTime,
    sample: f64,
) -> Disposition {
    let wait = match deferrals {
        0 => jitter::part(Duration::from_secs(1), sample),
        _ => spread(doubled(policy, deferrals), sample),
    };
    Disposition::Defer { why, wait: Wait::from(wait, now) }
}

/// Defers a message while nobody can say who sent it. It waits by its visibility, where each wait
/// uses up a receive.
pub(crate) fn defer_unverified(receives: u32, now: SystemTime, sample: f64) -> Disposition {
    let doublings = receives.saturating_sub(1).min(4);
    let wait = (LEAST_VISIBILITY_DEFERRAL * (1 << doublings)).min(MAX_UNVERIFIED);
    Disposition::Defer { why: Deferral::SenderUnknown, wait: Wait::from(spread(wait, sample), now) }
}

/// Defers a message whose downstream service is left alone for the `rest` of a pause or an open
/// circuit.
pub(crate) fn hold(
    policy: &RetryPolicy,
    usage: &Usage<'_>,
    why: Deferral,
    rest: Duration,
    deferrals: u32,
    now: SystemTime,
    sample: f64,
) -> Disposition {
    let wait = spread(rest.max(doubled(policy, deferrals)), sample);
    // When its time is up, its handler is called.
    let wait = wait.min(age_left(policy, usage, now));
    Disposition::Defer { why, wait: Wait::from(wait, now) }
}

/// Whether a pause or an open circuit may keep a message from being called: not when it was
/// deferred too often, nor when its time is up, nor when SQS delivers it once more, since the next
/// time it may get into the dead-letter queue without a call.
pub(crate) fn may_be_held(
    policy: &RetryPolicy,
    usage: &Usage<'_>,
    deferrals: u32,
    now: SystemTime,
) -> bool {
    deferrals < policy.max_deferrals
        && usage.receive_count <= 1
        && (usage.strategy == Strategy::Copy || max_retries(policy, usage) > 0)
        && !age_left(policy, usage, now).is_zero()
}

/// The rest of the age budget: that of the class of the last failure, or the shortest one
/// before any.
fn age_left(policy: &RetryPolicy, usage: &Usage<'_>, now: SystemTime) -> Duration {
    let last = usage.state.class.and_then(|class| policy.class(class));
    let classes = [&policy.rate_limit, &policy.quota, &policy.temporary];
    let left = |class| time_left(class, usage.first_received, now);
    last.map_or_else(|| classes.map(left).into_iter().min().unwrap_or_default(), left)
}

fn doubled(policy: &RetryPolicy, deferrals: u32) -> Duration {
    2_u64
        .checked_pow(deferrals)
        .map_or(policy.max_deferral, |secs| Duration::from_secs(secs).min(policy.max_deferral))
}

/// So that a thousand that are deferred together do not come back together.
fn spread(wait: Duration, sample: f64) -> Duration {
    wait.saturating_add(jitter::part(wait, sample))
}

/// The wait of a deferral, for a message that waits by its visibility.
pub(crate) fn deferred_by_visibility(wait: Wait, now: SystemTime) -> Wait {
    Wait::from(wait.total().max(LEAST_VISIBILITY_DEFERRAL), now)
}
