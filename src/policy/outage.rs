//! The wait of a message that failed while its service serves nobody. The failure says nothing about
//! the message, so it is to use up no retry: only the age ends such a message.

use std::time::{Duration, SystemTime};

use super::RetryPolicy;
use super::budgets::{max_retries, time_left};
use super::usage::Usage;
use crate::delay::Wait;
use crate::disposition::{Deferral, Disposition, Strategy};
use crate::failure::{Failure, FailureClass};

/// Changes the decision about a message that would use a retry: it waits in a copy without one, for
/// `least` or longer. Each receive of a message that waits in its place counts, so its receives
/// become rarer.
pub(crate) fn unserved(
    policy: &RetryPolicy,
    usage: &Usage<'_>,
    failure: &Failure,
    decided: Disposition,
    least: Duration,
    now: SystemTime,
) -> Disposition {
    let (Disposition::Requeue { wait, .. }, Some(class)) = (decided, policy.class(failure.class()))
    else {
        return decided;
    };
    let left = time_left(class, usage.first_received, now);
    if usage.receives_are_retries {
        let rare = rarer(class.total_timeout, left, max_retries(policy, usage) - usage.retries());
        let wait = wait.total().max(rare).min(left);
        return Disposition::Requeue { wait: Wait::from(wait, now), hidden_if_unsent: wait };
    }
    // A producer's limit is one of calls.
    if usage.strategy == Strategy::Visibility || usage.max_retries < u32::MAX {
        return decided;
    }
    let why = match failure.class() {
        FailureClass::RateLimit | FailureClass::Quota => Deferral::Paused,
        FailureClass::Temporary | FailureClass::NonRetryable => Deferral::CircuitOpen,
    };
    Disposition::Defer { why, wait: Wait::from(wait.total().max(least).min(left), now) }
}

/// The wait by which so many receives last for all the time: each is as much longer than the one
/// before as its age then.
fn rarer(total: Duration, left: Duration, receives: u32) -> Duration {
    let age = total.saturating_sub(left).max(Duration::from_secs(1));
    let growth = (total.as_secs_f64() / age.as_secs_f64()).powf(1.0 / f64::from(receives.max(1)));
    let wait = age.as_secs_f64() * (growth - 1.0);
    Duration::try_from_secs_f64(wait).unwrap_or(left).min(left)
}
