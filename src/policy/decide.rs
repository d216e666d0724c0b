//! The decision about a message that failed: requeue it after a delay, defer it, or give it up.
//! [`RetryPolicy::decide`] decides by a history. [`decide`] adds facts that only this crate knows
//! of a message.

use std::time::{Duration, SystemTime};

use super::budgets::{History, Usage, is_spent, max_retries, no_retry_left, time_left};
use super::defer::{MAX_SPREAD, may_be_refused, refused};
use super::{ClassPolicy, RetryPolicy, jitter};
use crate::delay::Wait;
use crate::disposition::{DeadLetterReason, Deferral, Disposition, Retry, Strategy};
use crate::failure::{Failure, FailureClass};

impl RetryPolicy {
    /// Decides about a message that failed with `failure`: requeue it after a delay, defer it
    /// because the handler postponed it, or dead-letter it.
    ///
    /// The function is pure: `now` is the time of the decision, and `sample`, uniform in
    /// `0.0..1.0`, its only random number. The delay is the [curve](ClassPolicy::delay) of its
    /// class, or the delay that the failure names: at the first failure of the class the named one,
    /// later the longer of both. A named delay is cut to
    /// [`max_retry_after`](Self::max_retry_after). If it then exceeds the rest of the age budget,
    /// the message is dead-lettered. A delay of the curve is cut to that rest. A time before the
    /// first receive counts as the first receive, since clocks differ.
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use requeue::policy::{History, Jitter, RetryPolicy};
    /// use requeue::{DeadLetterReason, Disposition, Failure};
    ///
    /// let mut policy = RetryPolicy::default();
    /// policy.rate_limit.jitter = Jitter::None;
    ///
    /// let received = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    /// let decide = |retries| {
    ///     let mut history = History::starting(received);
    ///     (history.retries, history.class_retries) = (retries, retries);
    ///     policy.decide(&history, &Failure::rate_limit("429"), received + Duration::from_secs(5), 0.5)
    /// };
    /// let delay = |retries| decide(retries).wait().map(|wait| wait.delay().as_secs());
    /// assert_eq!([delay(0), delay(1), delay(2)], [Some(60), Some(180), Some(300)]);
    /// assert_eq!(decide(50), Disposition::DeadLetter(DeadLetterReason::RetriesExhausted));
    /// ```
    #[must_use]
    pub fn decide(
        &self,
        history: &History,
        failure: &Failure,
        now: SystemTime,
        sample: f64,
    ) -> Disposition {
        if failure.is_postponed() {
            let wait = spread_named(self, failure.delay().unwrap_or_default(), sample);
            return Disposition::Defer { reason: Deferral::Postponed, wait: Wait::from(wait, now) };
        }
        match self.class(failure.class()) {
            None => Disposition::DeadLetter(DeadLetterReason::NonRetryable),
            Some(class) => retry(self, class, history, failure, now, sample),
        }
    }
}

fn retry(
    policy: &RetryPolicy,
    class: &ClassPolicy,
    history: &History,
    failure: &Failure,
    now: SystemTime,
    sample: f64,
) -> Disposition {
    if no_retry_left(policy, class, history.retries, history.class_retries) {
        return Disposition::DeadLetter(DeadLetterReason::RetriesExhausted);
    }
    let left = time_left(class, history.first_received, now);
    if left.is_zero() {
        return Disposition::DeadLetter(DeadLetterReason::TooOld);
    }
    if failure.delay().is_some_and(|named| named.min(policy.max_retry_after) > left) {
        return Disposition::DeadLetter(DeadLetterReason::TooOld);
    }
    let wait = |retries| {
        let named = failure.delay().map(|named| spread_named(policy, named, sample));
        let curve = || class.delay(retries, history.previous, sample);
        longer(failure, named, retries, curve).min(left)
    };
    // A message that cannot be re-sent keeps its counts, so its receives count instead. Each of them
    // may have failed by another class.
    let failures = history.retries.max(history.receives.saturating_sub(1));
    Disposition::Requeue {
        wait: Wait::from(wait(history.class_retries), now),
        hidden_if_unsent: wait(failures),
    }
}

/// The wait after so many retries of the class. A delay that the service names replaces the curve at
/// the class's first failure. Later it is a lower bound: a short one, named again and again, would
/// use up all retries within a minute. The delay of a user's own rule always replaces the curve.
fn longer(
    failure: &Failure,
    named: Option<Duration>,
    retries: u32,
    curve: impl FnOnce() -> Duration,
) -> Duration {
    match named {
        Some(named) if retries == 0 || failure.is_delay_ruled() => named,
        Some(named) => named.max(curve()),
        None => curve(),
    }
}

/// No message waits for less than its named delay: the spread comes on top.
fn spread_named(policy: &RetryPolicy, named: Duration, sample: f64) -> Duration {
    let named = named.min(policy.max_retry_after);
    named.saturating_add(jitter::part((named / 10).min(MAX_SPREAD), sample))
}

/// Decides about a message whose handler returned `failure`.
pub(crate) fn decide(
    policy: &RetryPolicy,
    usage: &Usage<'_>,
    failure: &Failure,
    now: SystemTime,
    sample: f64,
) -> Disposition {
    if failure.is_postponed() {
        // A message that waits by its visibility timeout uses a receive for a postponement too.
        if usage.receives_are_retries && is_spent(policy, usage) {
            return Disposition::DeadLetter(DeadLetterReason::RetriesExhausted);
        }
        if usage.state.postponements >= policy.max_postponements {
            return Disposition::DeadLetter(DeadLetterReason::PostponedTooOften);
        }
    }
    if failure.is_call_refused() && may_be_refused(policy, usage) {
        let named = failure.delay().unwrap_or_default().min(policy.max_retry_after);
        return refused(policy, usage.deferrals(), named, now, sample);
    }
    let decided = policy.decide(&usage.history(policy, failure.class()), failure, now, sample);
    let decided = if failure.is_call_refused() && usage.receives_are_retries {
        unserved(policy, usage, failure, decided, Duration::ZERO, now)
    } else {
        decided
    };
    match decided {
        Disposition::Requeue { .. } if is_spent(policy, usage) => {
            Disposition::DeadLetter(DeadLetterReason::RetriesExhausted)
        }
        // The message cannot note this retry, so its delay grows with its receives.
        Disposition::Requeue { hidden_if_unsent, .. }
            if usage.strategy == Strategy::Visibility && !usage.receives_are_retries =>
        {
            Disposition::Requeue { wait: Wait::from(hidden_if_unsent, now), hidden_if_unsent }
        }
        decided => decided,
    }
}

/// Decides about a message of a call that failed with `failure`, though nobody knows by which of its
/// messages. It waits for the first delay of the class. A copy would vouch for a message that may be
/// done.
pub(crate) fn unclear(
    policy: &RetryPolicy,
    failure: Failure,
    now: SystemTime,
    sample: f64,
) -> (Failure, Disposition) {
    let failure = failure.of_any_message();
    let class = policy.class(failure.class()).unwrap_or(&policy.temporary);
    let named = failure.delay().map(|named| spread_named(policy, named, sample));
    let wait = longer(&failure, named, 0, || class.delay(0, None, sample));
    (failure, Disposition::Defer { reason: Deferral::Unclear, wait: Wait::from(wait, now) })
}

/// The retry that follows on `failure`: by the budget that ends first, and with its delay before
/// jitter. `None` for a class without retries.
pub(crate) fn next_retry(
    policy: &RetryPolicy,
    usage: &Usage<'_>,
    failure: &Failure,
) -> Option<Retry> {
    let class = policy.class(failure.class())?;
    let History { retries, class_retries, .. } = usage.history(policy, failure.class());
    let by_class = class.max_retries.map(|max| (class_retries, max));
    let budgets = [Some((retries, max_retries(policy, usage))), by_class];
    let (used, max) =
        budgets.into_iter().flatten().min_by_key(|(used, max)| max.saturating_sub(*used))?;
    let named = failure.delay().map(|named| named.min(policy.max_retry_after));
    let curve = || class.backoff.delay(class_retries).min(class.max_delay);
    let delay_before_jitter = longer(failure, named, class_retries, curve);
    let cut_from =
        failure.delay().filter(|named| *named > policy.max_retry_after.max(delay_before_jitter));
    Some(Retry { number: used.saturating_add(1), max, delay_before_jitter, cut_from })
}

/// The decision about a message that failed while its service serves nobody. The failure says nothing
/// about the message, so it is to use up no retry, and only the age ends the message: it waits in a copy without one, for
/// `least` or longer. Each receive of a message that waits by its visibility counts, so its receives
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
    Disposition::Defer { reason: why, wait: Wait::from(wait.total().max(least).min(left), now) }
}

/// The wait by which so many receives last for all the time: each is as much longer than the one
/// before as its age then.
fn rarer(total: Duration, left: Duration, receives: u32) -> Duration {
    let age = total.saturating_sub(left).max(Duration::from_secs(1));
    let growth = (total.as_secs_f64() / age.as_secs_f64()).powf(1.0 / f64::from(receives.max(1)));
    let wait = age.as_secs_f64() * (growth - 1.0);
    Duration::try_from_secs_f64(wait).unwrap_or(left).min(left)
}
