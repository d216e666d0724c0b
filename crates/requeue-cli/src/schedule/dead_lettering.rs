//! How a message reaches the dead-letter queue after its last retry.

use std::time::Duration;

use requeue::DeadLetterMode;

use super::timeline::{Timeline, TimelineEnd};
use super::{DeadLetterArgument, QueueModel, StrategyArgument};

/// The steps after the last decision about a message, and their duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeadLettering {
    /// Annotated copies, with the reason for giving the message up.
    pub(crate) copies: u32,
    pub(crate) receives: u32,
    pub(crate) visibility_changes: u32,
    /// The number of visibility timeouts that the message waits.
    pub(crate) visibility_timeouts: u32,
    pub(crate) time: Duration,
}

impl DeadLettering {
    pub(crate) fn of(timeline: &Timeline, queue: &QueueModel) -> Self {
        match (timeline.end, queue.dead_letter) {
            (TimelineEnd::ReceivesExhausted { wait }, _) => {
                Self { visibility_changes: 1, time: wait, ..Self::default() }
            }
            (TimelineEnd::DeadLettered(_), DeadLetterArgument::Redrive) => {
                Self::received_again(timeline, queue)
            }
            (TimelineEnd::DeadLettered(_), DeadLetterArgument::Annotate) => {
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
            (TimelineEnd::DeadLettered(_), DeadLetterArgument::Direct) => {
                Self { copies: 1, ..Self::default() }
            }
        }
    }

    /// SQS redelivers it until its receives are used up. The execution environment that dead-lettered it
    /// remembers that, and does not call the handler again.
    fn received_again(timeline: &Timeline, queue: &QueueModel) -> Self {
        let had = match queue.strategy {
            StrategyArgument::Copy => 1,
            StrategyArgument::Visibility => timeline.count() + 1,
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
