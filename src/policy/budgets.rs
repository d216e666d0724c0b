//! The budgets of a message: the parts that it used, and which of them are used up.

use std::time::{Duration, SystemTime};

use super::{ClassPolicy, RetryPolicy};
use crate::disposition::{DeadLetterReason, Strategy};
use crate::failure::FailureClass;
use crate::state::RetryState;

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

/// The part of its budgets that a message used, and how it counts them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage<'a> {
    pub(crate) state: &'a RetryState,
    /// When the message was first received, ever.
    pub(crate) first_received: SystemTime,
    /// How often SQS delivered this copy; 1 the first time.
    pub(crate) receive_count: u32,
    /// Attempts before this one, if a table counted them.
    pub(crate) counted: Option<u32>,
    /// Most retries that the message's producer allows.
    pub(crate) max_retries: u32,
    /// How it waits for its next attempt.
    pub(crate) strategy: Strategy,
    /// Whether its receives are retries: a message that waits by its visibility timeout cannot note
    /// them.
    pub(crate) receives_are_retries: bool,
}

impl Usage<'_> {
    /// Retries used, at most.
    pub(crate) fn retries(&self) -> u32 {
        self.state.retry_count.saturating_add(self.unnoted())
    }

    /// How often it was deferred. A message that cannot be re-sent keeps its count, so its receives
    /// count instead.
    pub(crate) fn deferrals(&self) -> u32 {
        self.state.deferrals.max(self.receive_count.saturating_sub(1))
    }

    /// Attempts at this copy before this one, or else its receives before this one. Each counts as a
    /// failed attempt of any class, though some receives may have ended without a call.
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

/// The most spare receives, beyond those that the policy needs. A queue with more has most likely
/// no `maxReceiveCount`: AWS recommends five.
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

/// Why the message was dead-lettered on an earlier receive of this copy already, so that its handler
/// need not run again.
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

/// Whether the gate calls no handler on the next receive of this copy, since it takes this one for the
/// last.
pub(crate) fn is_last_receive(
    policy: &RetryPolicy,
    usage: &Usage<'_>,
    copy_first_received: Option<SystemTime>,
) -> bool {
    let next = Usage { receive_count: usage.receive_count.saturating_add(1), ..*usage };
    dead_lettered(policy, &next, copy_first_received).is_some()
}

/// Whether the attempts that a table counted used all retries. The first receive counts as an
/// attempt and may have been none, so one attempt at least was certainly made.
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
