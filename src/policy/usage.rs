//! The part of its budgets that a message used: retries and age.

use std::time::{Duration, SystemTime};

use super::RetryPolicy;
use crate::disposition::Strategy;
use crate::failure::FailureClass;
use crate::state::RetryState;

/// The history of a message, for a decision: its retries, and its first receive.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use requeue::policy::History;
///
/// let mut history = History::starting(SystemTime::UNIX_EPOCH);
/// assert_eq!((history.retries, history.receives), (0, 1));
/// history.retries = 2;
/// history.class_retries = 1;
/// history.previous = Some(Duration::from_secs(60));
/// ```
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
    #[must_use]
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
