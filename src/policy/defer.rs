//! The wait of a deferred message, and the bounds of deferring.

use std::time::{Duration, SystemTime};

use super::decide::{MAX_SPREAD, Usage, max_retries, time_left};
use super::{RetryPolicy, backoff};
use crate::delay::{Delay, Wait};
use crate::disposition::{Deferral, Disposition, Strategy};
use crate::state::{REDRIVE_TOLERANCE, RetryState};

/// The circuit breaker of a downstream service. While the circuit is open, messages are deferred
/// without a call.
///
/// It counts the failures of the service, for each [`Scope`](crate::Scope): temporary ones, but
/// neither panics nor unrecognised errors. A service that responds to some of its calls needs a
/// longer row of failures than [`threshold`](Self::threshold), up to ten times as long. A message
/// counts once, however often it fails. If its failures are evidence about the service, such as a
/// 503 or [`Failure::service_down`](crate::Failure::service_down), the circuit opens for the
/// failing messages alone; such a failure uses no retry.
///
/// An open circuit lets a few messages probe after 1 s, and then ever more rarely, up to
/// [`reset_timeout`](Self::reset_timeout). The first success closes it; the calls then grow for
/// seven seconds. `docs/concepts/protection.md` has all figures.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CircuitBreaker {
    /// The number of failures in a row, of as many messages, that opens the circuit of a service
    /// that responded until then. A service that responds to some calls needs up to ten times as
    /// many. Default 5; 0 counts as one.
    pub threshold: u32,
    /// The longest time from one round of probes to the next. Default 30 s.
    pub reset_timeout: Duration,
}

impl Default for CircuitBreaker {
    fn default() -> Self {
        Self { threshold: 5, reset_timeout: Duration::from_secs(30) }
    }
}

/// The shortest deferral of a message that waits with its visibility timeout: each one uses a
/// receive.
const LEAST_VISIBILITY_DEFERRAL: Duration = Duration::from_mins(1);
/// The longest wait, before its spread, of a message whose sender is unknown.
const MAX_UNVERIFIED: Duration = Duration::from_mins(15);

/// The longest wait in the waiting list of a rate limit before the message asks again. The waiting
/// list itself is an hour shorter, since its scheduled times may move back.
const LONGEST_IN_LINE: Duration = Duration::from_hours(12);

/// The longest wait after the table of the rate limits throttled: the first time, and later.
const FIRST_FOR_TABLE: Duration = Duration::from_secs(20);
const LONGEST_FOR_TABLE: Duration = Duration::from_secs(60);

/// The due time of a copy that was sent at `sent` with this state, as far as it is believed: no later
/// than the longest wait that began then, for any clock. A later one must not cause endless hops.
pub(crate) fn believed_due(
    policy: &RetryPolicy,
    state: &RetryState,
    due: SystemTime,
    sent: SystemTime,
) -> SystemTime {
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
    let pauses = [Some(*max_deferral), *max_pause, reset_timeout].into_iter().flatten();
    let spread = pauses.map(|pause| pause.saturating_mul(2));
    let longest = curves
        .into_iter()
        .chain(spread)
        .chain(state.start_tag.map(|_| LONGEST_IN_LINE))
        .fold(max_retry_after.saturating_add(MAX_SPREAD), Duration::max);
    let longest = longest.saturating_add(REDRIVE_TOLERANCE);
    sent.checked_add(longest).map_or(due, |latest| due.min(latest))
}

/// Defers a message that could not be started, for the first time or after earlier deferrals.
pub(crate) fn defer(
    policy: &RetryPolicy,
    why: Deferral,
    deferrals: u32,
    now: SystemTime,
    sample: f64,
) -> Disposition {
    let wait = match deferrals {
        0 => backoff::part(Duration::from_secs(1), sample),
        _ => policy.deferral(deferrals, Duration::ZERO, sample),
    };
    Disposition::Defer { reason: why, wait: Wait::from(wait, now) }
}

/// Defers a message in the waiting list of a rate limit until `due`, its scheduled time or the end
/// of a pause. SQS delays by whole seconds, so the wait is rounded down.
pub(crate) fn in_line(why: Deferral, due: SystemTime, now: SystemTime) -> Disposition {
    let wait = due.duration_since(now).unwrap_or_default().as_secs().max(1);
    Disposition::Defer { reason: why, wait: Wait::from(Duration::from_secs(wait), now) }
}

/// Defers a message because the waiting list of a rate limit is full: it asks again later.
pub(crate) fn line_full(now: SystemTime) -> Disposition {
    let wait = Wait::from(Duration::from_secs(u64::from(Delay::MAX.as_secs())), now);
    Disposition::Defer { reason: Deferral::RateLimited, wait }
}

/// Defers a message for which the table gave no response, this number of times in a row.
pub(crate) fn defer_for_table(
    why: Deferral,
    times: u32,
    now: SystemTime,
    sample: f64,
) -> Disposition {
    let longest = LONGEST_FOR_TABLE.min(FIRST_FOR_TABLE * (1 << times.saturating_sub(1).min(4)));
    let wait = backoff::part(longest, sample).max(Duration::from_secs(1));
    Disposition::Defer { reason: why, wait: Wait::from(wait, now) }
}

/// Defers a message about an event that another attempt may handle for `rest`.
pub(crate) fn in_progress(rest: Duration, now: SystemTime) -> Disposition {
    let longest = Duration::from_secs(u64::from(Delay::MAX.as_secs()));
    let wait = rest.clamp(Duration::from_secs(1), longest);
    Disposition::Defer { reason: Deferral::InProgress, wait: Wait::from(wait, now) }
}

/// The next attempt at a message whose event another attempt may handle for `rest`. With
/// `visibility`, an earlier receive would only wait for that. A copy waits without a retry.
pub(crate) fn after_in_progress(
    disposition: Disposition,
    strategy: Strategy,
    rest: Duration,
    now: SystemTime,
) -> Disposition {
    // The receives of a copy begin at 1, so an unclear message would never be alone.
    let waits_in_place = strategy == Strategy::Visibility
        || matches!(disposition, Disposition::Defer { reason: Deferral::Unclear, .. });
    let later = |wait: Wait| {
        if waits_in_place && wait.total() < rest { Wait::from(rest, now) } else { wait }
    };
    match disposition {
        Disposition::Requeue { wait, hidden_if_unsent } => {
            Disposition::Requeue { wait: later(wait), hidden_if_unsent: hidden_if_unsent.max(rest) }
        }
        Disposition::Defer { reason: why, wait } => {
            Disposition::Defer { reason: why, wait: later(wait) }
        }
        Disposition::Complete | Disposition::Release(_) | Disposition::DeadLetter(_) => disposition,
    }
}

/// Defers a message whose sender is not known yet, with its visibility timeout.
pub(crate) fn defer_unverified(receives: u32, now: SystemTime, sample: f64) -> Disposition {
    let doublings = receives.saturating_sub(1).min(4);
    let wait = (LEAST_VISIBILITY_DEFERRAL * (1 << doublings)).min(MAX_UNVERIFIED);
    Disposition::Defer {
        reason: Deferral::SenderUnknown,
        wait: Wait::from(backoff::spread(wait, sample), now),
    }
}

/// Defers a message for the `rest` of a pause or of an open circuit.
pub(crate) fn pause(
    policy: &RetryPolicy,
    usage: &Usage<'_>,
    why: Deferral,
    rest: Duration,
    deferrals: u32,
    now: SystemTime,
    sample: f64,
) -> Disposition {
    let wait = policy.deferral(deferrals, rest, sample);
    // When its total timeout ends, its handler is called.
    let wait = wait.min(age_left(policy, usage, now));
    Disposition::Defer { reason: why, wait: Wait::from(wait, now) }
}

/// Whether a pause or an open circuit may defer the message. It may not if the message was deferred
/// too often, or if its total timeout is over. It may not on a second receive either: the next one
/// may move the message to the dead-letter queue without a call.
pub(crate) fn may_be_deferred(
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

/// The rest of the total timeout of the last failure's class, or of the shortest one before any.
fn age_left(policy: &RetryPolicy, usage: &Usage<'_>, now: SystemTime) -> Duration {
    let last = usage.state.class.and_then(|class| policy.class(class));
    let classes = [&policy.rate_limit, &policy.quota, &policy.temporary];
    let left = |class| time_left(class, usage.first_received, now);
    last.map_or_else(|| classes.map(left).into_iter().min().unwrap_or_default(), left)
}

pub(crate) fn deferred_by_visibility(wait: Wait, now: SystemTime) -> Wait {
    Wait::from(wait.total().max(LEAST_VISIBILITY_DEFERRAL), now)
}
