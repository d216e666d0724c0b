//! The decision: what is to happen to a message that failed, or whose turn it was not.

use std::time::{Duration, SystemTime};

use super::{ClassPolicy, RetryPolicy, jitter::Spread};
use crate::disposition::{DeadLetterReason, Deferral, Disposition, Wait};
use crate::failure::Failure;
use crate::state::RetryState;

/// The longest that is added to a named delay.
const MAX_SPREAD: Duration = Duration::from_secs(60);
/// The longest wait between two deferrals, before the spread.
const MAX_DEFERRAL: Duration = Duration::from_secs(900);

/// What the policy needs to know about a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress<'a> {
    pub(crate) state: &'a RetryState,
    /// When the message was first received, ever.
    pub(crate) first_received: SystemTime,
    /// How often SQS delivered this copy; 1 the first time.
    pub(crate) receive_count: u32,
}

/// What is to happen to a message whose handler returned `failure`.
pub(crate) fn decide(
    policy: &RetryPolicy,
    progress: &Progress<'_>,
    failure: &Failure,
    now: SystemTime,
    sample: f64,
) -> Disposition {
    if failure.is_postponed() {
        let wait = spread_named(policy, failure.delay().unwrap_or_default(), sample);
        return Disposition::Defer {
            why: Deferral::Postponed,
            wait: Wait::from(wait, now),
        };
    }
    match policy.class(failure.class()) {
        None => Disposition::DeadLetter(DeadLetterReason::NonRetryable),
        Some(class) => retry(policy, class, progress, failure, now, sample),
    }
}

fn retry(
    policy: &RetryPolicy,
    class: &ClassPolicy,
    progress: &Progress<'_>,
    failure: &Failure,
    now: SystemTime,
    sample: f64,
) -> Disposition {
    let count = progress.state.count(failure.class());
    if progress.state.retry_count >= policy.max_retries || class.max_retries.is_some_and(|max| count >= max) {
        return Disposition::DeadLetter(DeadLetterReason::RetriesExhausted);
    }
    // Whole seconds only: SQS knows no others, and a wait that is rounded up must not leave the budget.
    let left = Duration::from_secs(
        class
            .total_timeout
            .saturating_sub(age(progress.first_received, now))
            .as_secs(),
    );
    if left.is_zero() {
        return Disposition::DeadLetter(DeadLetterReason::TooOld);
    }
    match failure.delay() {
        Some(named) if named.min(policy.max_retry_after) > left => Disposition::DeadLetter(DeadLetterReason::TooOld),
        Some(named) => {
            let wait = spread_named(policy, named, sample).min(left);
            Disposition::Requeue {
                wait: Wait::from(wait, now),
                fallback: wait,
            }
        }
        None => {
            let previous = progress
                .state
                .delay
                .filter(|_| progress.state.class == Some(failure.class()));
            let curve = |retries| curve(class, retries, previous, sample).min(left);
            // A message that cannot be re-sent keeps its count of zero; its receives count for it.
            let receives = progress.receive_count.saturating_sub(1);
            Disposition::Requeue {
                wait: Wait::from(curve(count), now),
                fallback: curve(count.max(receives)),
            }
        }
    }
}

fn curve(class: &ClassPolicy, retries: u32, previous: Option<Duration>, sample: f64) -> Duration {
    let delay = class.backoff.delay(retries).min(class.max_delay);
    class.jitter.apply(
        &Spread {
            delay,
            base: class.backoff.base(),
            cap: class.max_delay,
            previous,
        },
        sample,
    )
}

/// A named delay is a lower bound: the spread comes on top.
fn spread_named(policy: &RetryPolicy, named: Duration, sample: f64) -> Duration {
    let named = named.min(policy.max_retry_after);
    named + (named / 10).min(MAX_SPREAD).mul_f64(sample)
}

/// When a message that says it is due then is taken to be due: a wait longer than any that begins now was not ordered by us, and
/// must not make it hop for ever.
pub(crate) fn believed_due(policy: &RetryPolicy, due: SystemTime, now: SystemTime) -> SystemTime {
    let longest = policy.max_retry_after.saturating_add(MAX_SPREAD);
    now.checked_add(longest).map_or(due, |latest| due.min(latest))
}

/// What is to happen to a message that could not be started, having been deferred so often already.
pub(crate) fn defer(why: Deferral, deferrals: u32, now: SystemTime, sample: f64) -> Disposition {
    let wait = match deferrals {
        0 => Duration::from_secs(1).mul_f64(sample),
        _ => {
            let doubled = 2_u64
                .checked_pow(deferrals)
                .map_or(MAX_DEFERRAL, Duration::from_secs)
                .min(MAX_DEFERRAL);
            doubled + doubled.mul_f64(sample)
        }
    };
    Disposition::Defer {
        why,
        wait: Wait::from(wait, now),
    }
}

/// Whether the budgets were used up on an earlier receive of this copy already, so that its handler need not run again.
pub(crate) fn is_given_up(policy: &RetryPolicy, progress: &Progress<'_>, copy_first_received: SystemTime) -> bool {
    let Some(class) = progress.state.class else {
        return false;
    };
    let Some(budget) = policy.class(class) else {
        return false;
    };
    let exhausted = progress.state.retry_count >= policy.max_retries
        || budget.max_retries.is_some_and(|max| progress.state.count(class) >= max)
        || age(progress.first_received, copy_first_received) >= budget.total_timeout;
    progress.receive_count > 1 && exhausted
}

fn age(first_received: SystemTime, now: SystemTime) -> Duration {
    now.duration_since(first_received).unwrap_or_default()
}
