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

/// The number of messages in the queue in any state; `None` if SQS has not told it.
#[derive(Default)]
pub(super) struct Depth(Mutex<Option<u64>>);

impl Depth {
    /// Asks again and again. Without the permission, or without a response, the depth is not known.
    pub(super) async fn keep_asking(&self, source: &impl Source, queue: &QueueArn) {
        loop {
            let mut asking = pin!(source.describe(queue));
            let in_time = timeout(PATIENCE, &mut asking).await;
            let response = if let Ok(response) = in_time {
                response
            } else {
                self.set(None);
                asking.await
            };
            self.set(response.ok().map(|response| response.messages));
            sleep(INTERVAL).await;
        }
    }

    fn set(&self, messages: Option<u64>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = messages;
    }

    /// The messages in the queue without those that this worker has in hand.
    pub(super) fn waiting(&self, in_hand: u64) -> Option<u64> {
        let messages = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        messages.map(|messages| messages.saturating_sub(in_hand))
    }
}
