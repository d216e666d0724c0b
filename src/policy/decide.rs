//! The decision about a message that failed: requeue it after a delay, defer it, or give it up.
//! [`RetryPolicy::decide`] decides by a history; [`decide`] adds the facts that only this crate
//! knows of a message.

use std::time::{Duration, SystemTime};

use super::{ClassPolicy, RetryPolicy, jitter};
use crate::delay::Wait;
use crate::disposition::{DeadLetterReason, Deferral, Disposition, Retry, Strategy};
use crate::failure::{Failure, FailureClass};
use crate::state::RetryState;

/// The longest that is added to a named delay.
pub(super) const MAX_SPREAD: Duration = Duration::from_mins(1);

/// The history of a message, as a decision needs it: its retries, and since when.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use requeue::policy::History;
///
/// let fresh = History::starting(SystemTime::UNIX_EPOCH);
/// let tried_twice = History { retries: 2, class_retries: 1, previous: Some(Duration::from_secs(60)), ..fresh };
/// assert_eq!((fresh.retries, tried_twice.receives), (0, 1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct History {
    /// Retries used so far, whatever the failures.
    pub retries: u32,
    /// Retries used so far for failures of the class of this one.
    pub class_retries: u32,
    /// The delay after the last failure, if that was of the same class. Only
    /// [`Decorrelated`](super::Jitter::Decorrelated) asks.
    pub previous: Option<Duration>,
    /// When the message was first received, ever: the age budget begins there.
    pub first_received: SystemTime,
    /// How often SQS delivered this copy; 1 the first time.
    pub receives: u32,
}

impl History {
    /// The history of a message that is received for the first time.
    #[must_use]
    pub const fn starting(first_received: SystemTime) -> Self {
        Self { retries: 0, class_retries: 0, previous: None, first_received, receives: 1 }
    }
}

impl RetryPolicy {
    /// Decides about a message that failed with `failure`: it is requeued after a delay, deferred
    /// because that was the handler's wish, or dead-lettered.
    ///
    /// Pure: `now` is the time of the decision, and `sample`, uniform in `0.0..1.0`, the only
    /// random number in it. The delay is the one that the failure names, or else the
    /// [curve](ClassPolicy::delay) of its class, cut to the rest of the age budget. A time before
    /// the first receipt counts as that moment: clocks differ.
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
    ///     let history = History { retries, class_retries: retries, ..History::starting(received) };
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
            return Disposition::Defer { why: Deferral::Postponed, wait: Wait::from(wait, now) };
        }
        match self.class(failure.class()) {
            None => Disposition::DeadLetter(DeadLetterReason::NonRetryable),
            Some(class) => retry(self, class, history, failure.delay(), now, sample),
        }
    }
}

fn retry(
    policy: &RetryPolicy,
    class: &ClassPolicy,
    history: &History,
    named: Option<Duration>,
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
    match named {
        Some(named) if named.min(policy.max_retry_after) > left => {
            Disposition::DeadLetter(DeadLetterReason::TooOld)
        }
        Some(named) => {
            let wait = spread_named(policy, named, sample).min(left);
            Disposition::Requeue { wait: Wait::from(wait, now), hidden_if_unsent: wait }
        }
        None => {
            let curve = |retries| class.delay(retries, history.previous, sample).min(left);
            // A message that cannot be re-sent keeps its count; its receives, of which each may
            // have failed in its own way, count for it.
            let attempts = history.retries.max(history.receives.saturating_sub(1));
            Disposition::Requeue {
                wait: Wait::from(curve(history.class_retries), now),
                hidden_if_unsent: curve(attempts),
            }
        }
    }
}

/// A named delay is a lower bound: the spread comes on top.
fn spread_named(policy: &RetryPolicy, named: Duration, sample: f64) -> Duration {
    let named = named.min(policy.max_retry_after);
    named.saturating_add(jitter::part((named / 10).min(MAX_SPREAD), sample))
}

fn no_retry_left(
    policy: &RetryPolicy,
    class: &ClassPolicy,
    retries: u32,
    class_retries: u32,
) -> bool {
    retries >= policy.max_retries || class.max_retries.is_some_and(|max| class_retries >= max)
}

/// The rest of the age budget at the time `at`, in whole seconds: SQS knows no others, and a
/// wait that is rounded up must not leave the budget.
pub(super) fn time_left(
    class: &ClassPolicy,
    first_received: SystemTime,
    at: SystemTime,
) -> Duration {
    let age = at.duration_since(first_received).unwrap_or_default();
    Duration::from_secs(class.total_timeout.saturating_sub(age).as_secs())
}

/// The part of its budgets that a message used, and how it counts them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage<'a> {
    pub(crate) state: &'a RetryState,
    /// When the message was first received, ever.
    pub(crate) first_received: SystemTime,
    /// How often SQS delivered this copy; 1 the first time.
    pub(crate) receive_count: u32,
    /// Most retries that the message's producer allows.
    pub(crate) max_retries: u32,
    /// How it waits for its next attempt.
    pub(crate) strategy: Strategy,
    /// Whether its receives are retries: it waited by its visibility, and so could not note
    /// them.
    pub(crate) receives_are_retries: bool,
}

impl Usage<'_> {
    /// Retries used, at most.
    pub(crate) fn retries(&self) -> u32 {
        self.state.retry_count.saturating_add(self.unnoted())
    }

    /// Receives of this copy before this one, each of which counts as an attempt that failed,
    /// whatever the class, though some may have ended without a call.
    fn unnoted(&self) -> u32 {
        if self.receives_are_retries { self.receive_count.saturating_sub(1) } else { 0 }
    }

    fn history(&self, policy: &RetryPolicy, class: FailureClass) -> History {
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

/// Decides about a message whose handler returned `failure`.
pub(crate) fn decide(
    policy: &RetryPolicy,
    usage: &Usage<'_>,
    failure: &Failure,
    now: SystemTime,
    sample: f64,
) -> Disposition {
    if failure.is_postponed() {
        // While it waits by its visibility, a postponement uses up a receive like everything else.
        if usage.receives_are_retries && is_spent(policy, usage) {
            return Disposition::DeadLetter(DeadLetterReason::RetriesExhausted);
        }
        if usage.state.postponements >= policy.max_postponements {
            return Disposition::DeadLetter(DeadLetterReason::PostponedTooOften);
        }
    }
    match policy.decide(&usage.history(policy, failure.class()), failure, now, sample) {
        Disposition::Requeue { .. } if is_spent(policy, usage) => {
            Disposition::DeadLetter(DeadLetterReason::RetriesExhausted)
        }
        // It cannot note this retry, so that the delay grows by its receives.
        Disposition::Requeue { hidden_if_unsent, .. }
            if usage.strategy == Strategy::Visibility && !usage.receives_are_retries =>
        {
            Disposition::Requeue { wait: Wait::from(hidden_if_unsent, now), hidden_if_unsent }
        }
        decided => decided,
    }
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
    let delay_before_jitter = match failure.delay() {
        Some(named) => named.min(policy.max_retry_after),
        None => class.backoff.delay(class_retries).min(class.max_delay),
    };
    Some(Retry { number: used.saturating_add(1), max, delay_before_jitter })
}

/// Who allows so many receives more than the policy asks for has most likely set no
/// `maxReceiveCount` at all: AWS recommends five.
const MAX_SPARE_RECEIVES: u32 = 20;

/// Whether SQS has delivered this copy so often that no redrive policy seems to move it.
pub(crate) fn is_stuck(policy: &RetryPolicy, usage: &Usage<'_>) -> bool {
    let asked_for = match usage.strategy {
        Strategy::Copy => 0,
        // A receive for each retry, and as many that end without a call.
        Strategy::Visibility => policy.max_retries.saturating_mul(2),
    };
    usage.receive_count > asked_for.saturating_add(MAX_SPARE_RECEIVES)
}

/// Whether a failure of this receive finds all retries used, whatever its class.
pub(crate) fn is_spent(policy: &RetryPolicy, usage: &Usage<'_>) -> bool {
    usage.retries() >= max_retries(policy, usage)
}

/// Most retries of this message, whatever its failures.
pub(crate) fn max_retries(policy: &RetryPolicy, usage: &Usage<'_>) -> u32 {
    policy.max_retries.min(usage.max_retries)
}

/// Why the message was given up on an earlier receive of this copy already, so that its handler
/// need not run again.
pub(crate) fn given_up(
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
