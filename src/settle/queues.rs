//! Facts about queues that settling learns. After a send without a response, other sends to the
//! queue wait, since their number doubles if every response is lost. The other fact is the length
//! of a message that a queue refused, since a function cannot read `MaximumMessageSize`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::lock::lock;
use crate::queue::{CallErrorKind, MAX_BATCH_BYTES, QueueArn};

/// After a send without a response, no other send to the same queue begins for this time. Then one
/// send begins, and the others follow after its response.
const PAUSE: Duration = Duration::from_secs(30);

/// Permits sends, or not. A message that may not be sent waits with its visibility timeout.
#[derive(Default)]
pub(crate) struct SendPause(Mutex<BTreeMap<Arc<QueueArn>, Instant>>);

impl SendPause {
    pub(super) fn lets_pass(&self, queue: &QueueArn) -> bool {
        match lock(&self.0).get_mut(queue) {
            None => true,
            Some(until) if Instant::now() < *until => false,
            Some(until) => {
                // This send begins. If it never ends, another one begins later.
                *until = Instant::now() + PAUSE;
                true
            }
        }
    }

    pub(super) fn note(&self, queue: &Arc<QueueArn>, error: Option<CallErrorKind>) {
        let mut paused_until = lock(&self.0);
        match error {
            Some(CallErrorKind::Ambiguous) => {
                paused_until.insert(Arc::clone(queue), Instant::now() + PAUSE);
            }
            None
            | Some(
                CallErrorKind::Refused | CallErrorKind::Malformed | CallErrorKind::Unavailable,
            ) => {
                paused_until.remove(queue);
            }
        }
    }
}

/// After this time, a copy of any length is tried again: the attribute may have been raised. It is
/// longer than most visibility timeouts.
const REMEMBERED: Duration = Duration::from_mins(15);

/// The longest message of each queue that has refused one.
#[derive(Default)]
pub(crate) struct MaxLengths(Mutex<BTreeMap<Arc<QueueArn>, (usize, Instant)>>);

impl MaxLengths {
    /// The most bytes of a message in this queue, as far as is known.
    pub(crate) fn of(&self, queue: &QueueArn) -> usize {
        match lock(&self.0).get(queue) {
            Some((max, until)) if Instant::now() < *until => *max,
            _ => MAX_BATCH_BYTES,
        }
    }

    pub(super) fn note_refused(&self, queue: &Arc<QueueArn>, bytes: usize) {
        let max = self.of(queue).min(bytes.saturating_sub(1));
        lock(&self.0).insert(Arc::clone(queue), (max, Instant::now() + REMEMBERED));
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn after_a_send_without_a_response_one_goes_ahead_each_half_minute_until_there_is_one() {
        let queue: Arc<QueueArn> =
            Arc::new("arn:aws:sqs:eu-west-1:123456789012:orders".parse().expect("an ARN"));
        let other: QueueArn = "arn:aws:sqs:eu-west-1:123456789012:others".parse().expect("an ARN");
        let pause = SendPause::default();
        assert!(pause.lets_pass(&queue));
        pause.note(&queue, Some(CallErrorKind::Ambiguous));
        for _ in 0..2 {
            assert!(!pause.lets_pass(&queue) && pause.lets_pass(&other));
            sleep(Duration::from_millis(29_999)).await;
            assert!(!pause.lets_pass(&queue));
            sleep(Duration::from_millis(1)).await;
            assert!(pause.lets_pass(&queue), "one goes ahead");
        }
        for answer in [
            None,
            Some(CallErrorKind::Refused),
            Some(CallErrorKind::Malformed),
            Some(CallErrorKind::Unavailable),
        ] {
            pause.note(&queue, Some(CallErrorKind::Ambiguous));
            pause.note(&queue, answer);
            assert!(pause.lets_pass(&queue) && pause.lets_pass(&queue), "{answer:?} is an answer");
        }
    }
}
