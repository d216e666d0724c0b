//! The way from the end of a life to the dead-letter queue.

use std::time::Duration;

use requeue::DeadLetterMode;

use super::life::{End, Life};
use super::{Mode, Queue, Strategy};

/// What is done to a message after its last decision, and how long that takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Way {
    /// Copies that say why it was given up.
    pub(crate) copies: u32,
    pub(crate) receives: u32,
    pub(crate) visibility_changes: u32,
    /// How often it waits for the queue's visibility timeout.
    pub(crate) visibility_timeouts: u32,
    pub(crate) time: Duration,
}

impl Way {
    pub(crate) fn of(life: &Life, queue: &Queue) -> Self {
        match (life.end, queue.dead_letter) {
            (End::ReceivesExhausted { wait }, _) => {
                Self { visibility_changes: 1, time: wait, ..Self::default() }
            }
            (End::GivenUp(_), Mode::Redrive) => Self::received_again(life, queue),
            (End::GivenUp(_), Mode::Annotate) => {
                let hurried = queue.max_receive_count.min(DeadLetterMode::MAX_SHOWN_RECEIVES);
                let visibility_timeouts = queue.max_receive_count - hurried;
                let delay = Duration::from_secs(DeadLetterMode::ANNOTATION_DELAY.as_secs().into());
                Self {
                    copies: 1,
                    receives: queue.max_receive_count,
                    visibility_changes: hurried,
                    visibility_timeouts,
                    time: delay + queue.visibility_timeout * visibility_timeouts,
                }
            }
            (End::GivenUp(_), Mode::Direct) => Self { copies: 1, ..Self::default() },
        }
    }

    /// It comes back until its receives are used up. Whoever gave it up remembers that and does not
    /// call its handler again.
    fn received_again(life: &Life, queue: &Queue) -> Self {
        let had = match queue.strategy {
            Strategy::Copy => 1,
            Strategy::Visibility => life.count() + 1,
        };
        let receives = queue.max_receive_count - had;
        let visibility_timeouts = receives + 1;
        Self {
            receives,
            visibility_timeouts,
            time: queue.visibility_timeout * visibility_timeouts,
            ..Self::default()
        }
    }
}
