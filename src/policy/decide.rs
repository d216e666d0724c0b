//! The decision about a message that failed: requeue it after a delay, defer it, or dead-letter it,
//! by its budgets. [`RetryPolicy::decide`] decides by a history. [`decide`] adds facts that only
//! this crate knows of a message.

use std::time::{Duration, SystemTime};

use super::{ClassPolicy, RetryPolicy, backoff};
use crate::delay::Wait;
use crate::disposition::{DeadLetterReason, Deferral, Disposition, Retry, Strategy};
use crate::failure::{Failure, FailureClass};
use crate::state::RetryState;

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
    // A message without a copy cannot carry new counts, so its receives count instead. Each of them
    // may have failed with another class.
    let failures = history.retries.max(history.receives.saturating_sub(1));
    Disposition::Requeue {
        wait: Wait::from(wait(history.class_retries), now),
        hidden_if_unsent: wait(failures),
    }
}

/// The wait after this many retries of the class. At the class's first failure, a delay that the
/// service names replaces the curve. Later it is a lower bound: a short one, named again and again,
/// would use all retries within a minute. The delay of a user's own rule always replaces the curve.
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

/// The longest spread of a named delay.
pub(super) const MAX_SPREAD: Duration = Duration::from_mins(1);

/// No message waits less than its named delay: the spread is added.
fn spread_named(policy: &RetryPolicy, named: Duration, sample: f64) -> Duration {
    let named = named.min(policy.max_retry_after);
    named.saturating_add(backoff::part((named / 10).min(MAX_SPREAD), sample))
}

pub(crate) fn decide(
    policy: &RetryPolicy,
    usage: &Usage<'_>,
    failure: &Failure,
    now: SystemTime,
    sample: f64,
) -> Disposition {
    if failure.is_postponed() {
        // If a message waits with its visibility timeout, a postponement uses a receive too.
        if usage.receives_are_retries && is_spent(policy, usage) {
            return Disposition::DeadLetter(DeadLetterReason::RetriesExhausted);
        }
        if usage.state.postponements >= policy.max_postponements {
            return Disposition::DeadLetter(DeadLetterReason::PostponedTooOften);
        }
    }
    // No work began, so it is deferred whatever its age. With `visibility`, that uses a receive.
    let may_be_refused = usage.deferrals() < policy.max_deferrals && !usage.receives_are_retries;
    if failure.is_call_refused() && may_be_refused {
        let named = failure.delay().unwrap_or_default().min(policy.max_retry_after);
        let wait = Wait::from(policy.deferral(usage.deferrals(), named, sample), now);
        return Disposition::Defer { reason: Deferral::CallRefused, wait };
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

/// Decides about a message of a call that failed with `failure`, if it is unknown which messages
/// failed. It waits for the first delay of the class. A copy would be trusted, but may be done.
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

/// The retry that follows `failure`: by the budget that ends first, and with its delay before
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

/// The decision about a message that failed while its service serves no message. It uses no retry,
/// and only its age ends it. It waits in a copy for `least` or longer. With `visibility`, each
/// receive counts, so receives become rarer.
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
    // A producer limits calls.
    if usage.strategy == Strategy::Visibility || usage.max_retries < u32::MAX {
        return decided;
    }
    let why = match failure.class() {
        FailureClass::RateLimit | FailureClass::Quota => Deferral::Paused,
        FailureClass::Temporary | FailureClass::NonRetryable => Deferral::CircuitOpen,
    };
    Disposition::Defer { reason: why, wait: Wait::from(wait.total().max(least).min(left), now) }
}

/// The wait with which this many receives last for the whole time: each one is longer than the one
/// before, in proportion to the message's age.
fn rarer(total: Duration, left: Duration, receives: u32) -> Duration {
    let age = total.saturating_sub(left).max(Duration::from_secs(1));
    let growth = (total.as_secs_f64() / age.as_secs_f64()).powf(1.0 / f64::from(receives.max(1)));
    let wait = age.as_secs_f64() * (growth - 1.0);
    Duration::try_from_secs_f64(wait).unwrap_or(left).min(left)
}

/// The history of a message, for a decision: its retries, and its first receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct History {
    /// Retries used so far, for failures of any class.
    pub retries: u32,
    /// Retries used so far, for failures of the same class.
    pub class_retries: u32,
    /// The delay after the last failure, if that was of the same class. Only
    /// [`Decorrelated`](super::Jitter::Decorrelated) uses it.
    pub previous: Option<Duration>,
    /// When the message was first received, ever: the age budget begins there.
    pub first_received: SystemTime,
    /// How often SQS delivered this copy; 1 the first time.
    pub receives: u32,
}

impl History {
    /// The history of a message that is received for the first time.
    pub const fn starting(first_received: SystemTime) -> Self {
        Self { retries: 0, class_retries: 0, previous: None, first_received, receives: 1 }
    }
}

/// The used part of a message's budgets, and how they are counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage<'a> {
    pub(crate) state: &'a RetryState,
    pub(crate) first_received: SystemTime,
    /// How often SQS delivered this copy; 1 the first time.
    pub(crate) receive_count: u32,
    /// Attempts before this one, if a table counted them.
    pub(crate) counted: Option<u32>,
    pub(crate) max_retries: u32,
    pub(crate) strategy: Strategy,
    /// Whether its receives are retries: with its visibility timeout, a message cannot carry a
    /// count.
    pub(crate) receives_are_retries: bool,
}

impl Usage<'_> {
    /// Retries used, at most.
    pub(crate) fn retries(&self) -> u32 {
        self.state.retry_count.saturating_add(self.unnoted())
    }

    /// How often it was deferred. A message without a copy carries no count, so its receives count.
    pub(crate) fn deferrals(&self) -> u32 {
        self.state.deferrals.max(self.receive_count.saturating_sub(1))
    }

    /// Attempts at this copy before this one, or if unknown, its receives before this one. Each
    /// counts as a failed attempt of any class, even if a receive ended without a call.
    fn unnoted(&self) -> u32 {
        match self.counted {
            _ if !self.receives_are_retries => 0,
            Some(attempts) => attempts,
            None => self.receive_count.saturating_sub(1),
        }
    }

    pub(super) fn history(&self, policy: &RetryPolicy, class: FailureClass) -> History {
        let class_retries = self.state.count(class).saturating_add(self.unnoted());
        let previous = match self.unnoted() {
            0 => self.state.delay.filter(|_| self.state.class == Some(class)),
            // The delay of the curve without its jitter.
            _ => policy
                .class(class)
                .map(|class| class.backoff.delay(class_retries - 1).min(class.max_delay)),
        };
        let Self { first_received, receive_count: receives, .. } = *self;
        History { retries: self.retries(), class_retries, previous, first_received, receives }
    }
}

/// A queue with more spare receives has most likely no `maxReceiveCount`: AWS recommends five.
const MAX_SPARE_RECEIVES: u32 = 20;

/// Whether SQS has delivered this copy so often that no redrive policy seems to move it.
pub(crate) fn is_stuck(policy: &RetryPolicy, usage: &Usage<'_>) -> bool {
    let asked_for = match usage.strategy {
        Strategy::Copy => 0,
        // One receive for each retry, and as many receives that end without a call.
        Strategy::Visibility => policy.max_retries.saturating_mul(2),
    };
    usage.receive_count > asked_for.saturating_add(MAX_SPARE_RECEIVES)
}

/// Whether a failure of this receive, of any class, finds all retries used.
pub(crate) fn is_spent(policy: &RetryPolicy, usage: &Usage<'_>) -> bool {
    usage.retries() >= max_retries(policy, usage)
}

/// Most retries of this message, whatever its failures.
pub(crate) fn max_retries(policy: &RetryPolicy, usage: &Usage<'_>) -> u32 {
    policy.max_retries.min(usage.max_retries)
}

/// Why the message was dead-lettered on an earlier receive of this copy, if it was.
pub(crate) fn dead_lettered(
    policy: &RetryPolicy,
    usage: &Usage<'_>,
    copy_first_received: Option<SystemTime>,
) -> Option<DeadLetterReason> {
    let state = usage.state;
    if usage.receive_count <= 1 {
        return None;
    }
    if usage.receives_are_retries {
        let before = Usage { receive_count: usage.receive_count - 1, ..*usage };
        return is_spent(policy, &before).then_some(DeadLetterReason::RetriesExhausted);
    }
    let class = state.class?;
    let budget = policy.class(class)?;
    if is_spent(policy, usage)
        || no_retry_left(policy, budget, state.retry_count, state.count(class))
    {
        return Some(DeadLetterReason::RetriesExhausted);
    }
    let left = time_left(budget, usage.first_received, copy_first_received?);
    left.is_zero().then_some(DeadLetterReason::TooOld)
}

/// Whether the gate calls no handler on the next receive, as on the last one.
pub(crate) fn is_last_receive(
    policy: &RetryPolicy,
    usage: &Usage<'_>,
    copy_first_received: Option<SystemTime>,
) -> bool {
    let next = Usage { receive_count: usage.receive_count.saturating_add(1), ..*usage };
    dead_lettered(policy, &next, copy_first_received).is_some()
}

/// Whether the attempts that a table counted used all retries. The first receive counts as an
/// attempt although it may have been none, so at least one attempt was certainly made.
pub(crate) fn has_no_attempt_left(policy: &RetryPolicy, usage: &Usage<'_>) -> bool {
    usage.counted.is_some_and(|attempts| attempts > 1)
        && usage.retries() > max_retries(policy, usage)
}

pub(super) fn no_retry_left(
    policy: &RetryPolicy,
    class: &ClassPolicy,
    retries: u32,
    class_retries: u32,
) -> bool {
    retries >= policy.max_retries || class.max_retries.is_some_and(|max| class_retries >= max)
}

/// The rest of the age budget at the time `at`, in whole seconds. SQS knows only whole seconds, and
/// a wait that is rounded up must stay within the budget.
pub(super) fn time_left(
    class: &ClassPolicy,
    first_received: SystemTime,
    at: SystemTime,
) -> Duration {
    let age = at.duration_since(first_received).unwrap_or_default();
    Duration::from_secs(class.total_timeout.saturating_sub(age).as_secs())
}
