//! The approximate depth of the queue, as SQS counts it.

use std::pin::pin;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use requeue::queue::{QueueArn, Source};
use tokio::time::{sleep, timeout};

/// The interval between requests.
const INTERVAL: Duration = Duration::from_secs(5);
/// Without a response after this time, the last one is too old.
const PATIENCE: Duration = Duration::from_secs(5);

/// The depth; `None` if SQS has not told it.
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
        held: impl Fn() -> u64,
        done: impl Fn() -> u64,
    ) {
        loop {
            let mut asking = pin!(source.describe(queue));
            let in_time = timeout(PATIENCE, &mut asking).await;
            let response = if let Ok(response) = in_time {
                response
            } else {
                self.set(None);
                asking.await
            };
            self.set(response.ok().map(|told| Known {
                messages: told.messages,
                hidden: told.in_flight.saturating_sub(held()),
                done: done(),
            }));
            sleep(INTERVAL).await;
        }
    }

    fn set(&self, known: Option<Known>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = known;
    }

    /// The messages that SQS hides until their visibility timeout ends, without those in hand.
    pub(super) fn hidden(&self) -> u64 {
        let known = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.map_or(0, |known| known.hidden)
    }

    /// The messages in the queue without those that this worker has in hand, or has done since SQS
    /// told the number.
    pub(super) fn waiting(&self, in_hand: u64, done: u64) -> Option<u64> {
        let known = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.map(|known| known.messages.saturating_sub(in_hand + done.saturating_sub(known.done)))
    }
}
