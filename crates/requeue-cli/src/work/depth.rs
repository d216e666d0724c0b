//! The approximate depth of the queue, as SQS counts it.

use std::time::Duration;

use parking_lot::Mutex;
use requeue::queue::{Description, QueueArn, Source};
use tokio::time::{sleep, timeout};

const INTERVAL: Duration = Duration::from_secs(5);
/// Without a response after this time, the last one is too old, and the worker asks again.
const PATIENCE: Duration = Duration::from_secs(5);
const LAST: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Depth(Mutex<Option<Known>>);

#[derive(Clone, Copy)]
struct Known {
    /// The number of messages in the queue in any state.
    messages: u64,
    /// Of those, the messages that SQS hides and that this worker did not have in hand.
    hidden: u64,
    /// How many this worker had done by then.
    done: u64,
}

impl Depth {
    /// Asks again and again. Without the permission, or without a response, the depth is not known.
    /// `held` and `done` are the numbers of messages that this worker has in hand, and has done.
    pub(super) async fn keep_asking(
        &self,
        source: &impl Source,
        queue: &QueueArn,
        paused: impl Fn() -> u64,
        done: impl Fn() -> u64,
    ) {
        loop {
            let asked = timeout(PATIENCE, source.describe(queue)).await;
            self.set(asked.ok().and_then(Result::ok), paused(), done());
            sleep(INTERVAL).await;
        }
    }

    pub(super) async fn ask_at_end(&self, source: &impl Source, queue: &QueueArn, done: u64) {
        let asked = timeout(LAST, source.describe(queue)).await;
        self.set(asked.ok().and_then(Result::ok), 0, done);
    }

    fn set(&self, told: Option<Description>, paused: u64, done: u64) {
        let known = told.map(|told| Known {
            messages: told.messages,
            hidden: told.in_flight.saturating_sub(paused),
            done,
        });
        *self.0.lock() = known;
    }

    /// The messages that SQS hides until their visibility timeout ends, without those in hand.
    pub(super) fn hidden(&self) -> u64 {
        let known = *self.0.lock();
        known.map_or(0, |known| known.hidden)
    }

    /// The messages in the queue without those that this worker has in hand, or has done since then.
    pub(super) fn waiting(&self, in_hand: u64, done: u64) -> Option<u64> {
        let known = *self.0.lock();
        known.map(|known| known.messages.saturating_sub(in_hand + done.saturating_sub(known.done)))
    }
}

#[cfg(test)]
mod tests {
    use requeue::Clock;
    use requeue::embedded::{EmbeddedSqs, Fault};
    use requeue::queue::SqsQueue;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lost_response_is_asked_for_again() {
        let sqs = EmbeddedSqs::new(Clock::system());
        let queue = sqs.create_queue("orders", []).expect("a name");
        let send = sqs.client().send_message().queue_url(queue.url()).message_body("{}");
        send.send().await.expect("sent");
        sqs.set_faults(|call| match (call.operation.as_str(), call.of_operation) {
            ("GetQueueAttributes", 1) => Fault::Hang,
            _ => Fault::None,
        });
        let (depth, source) = (Depth::default(), SqsQueue::new(&sqs.client()));
        let asking = depth.keep_asking(&source, &queue, || 0, || 0);
        let _ = timeout(PATIENCE + INTERVAL + LAST, asking).await;
        assert_eq!(depth.waiting(0, 0), Some(1));
    }
}
