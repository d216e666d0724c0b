//! The attempts at messages that wait in their place in the queue, counted by the store. SQS counts
//! each receive of such a message, even if no handler is called.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::{Fleet, expires, is_to_be_told};
use crate::queue::{MAX_RETENTION, QueueArn};
use crate::store::{Field, Update};

/// The attempts from the second receive on.
const ATTEMPTS: Field = Field::new("attempts");

/// The counts of attempts, in the store.
#[derive(Debug)]
pub(crate) struct AttemptCounts {
    fleet: Arc<Fleet>,
    /// When the log last had the warning of an attempt that is not counted.
    told: Mutex<Option<Instant>>,
}

impl AttemptCounts {
    pub(crate) fn new(fleet: Arc<Fleet>) -> Self {
        Self { fleet, told: Mutex::default() }
    }

    /// The longest time until an attempt is counted.
    pub(crate) fn patience(&self) -> Duration {
        self.fleet.patience()
    }

    /// Counts an attempt that is about to begin, on a second or later receive. Returns how many
    /// were counted before it; `None` if the store does not say.
    pub(crate) async fn begin(&self, queue: &QueueArn, message_id: &str) -> Option<u32> {
        let key = self.fleet.key("attempts", &queue.to_string(), message_id.as_bytes());
        // SQS keeps no message for longer.
        let end = self.fleet.now() + MAX_RETENTION;
        let update = Update::new().add(ATTEMPTS, 1).set(Field::EXPIRES, expires(end));
        let Ok(answer) = self.fleet.update(&key, &update).await else {
            self.tell();
            return None;
        };
        Some(u32::try_from(answer.before.get(ATTEMPTS)).unwrap_or(u32::MAX))
    }

    fn tell(&self) {
        if is_to_be_told(&mut self.told.lock().unwrap_or_else(PoisonError::into_inner)) {
            tracing::warn!(
                "the table of REQUEUE_TABLE did not count an attempt: \
                 each receive of its message counts as a retry for now"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::clock::{Clock, epoch_millis};
    use crate::settings::Coordination;
    use crate::store::{MemoryStore, Store};

    #[tokio::test(start_paused = true)]
    async fn each_message_of_each_queue_and_function_has_a_count_of_its_own_for_14_days() {
        let store = Arc::new(MemoryStore::default());
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let counts = |namespace: &str| {
            let coordination = Coordination {
                namespace: namespace.to_owned(),
                ..Coordination::by(Arc::clone(&store) as Arc<dyn Store>)
            };
            let fleet = Fleet::new(coordination, Clock::starting_at(now));
            AttemptCounts::new(Arc::new(fleet))
        };
        let queue = |name: &str| {
            format!("arn:aws:sqs:eu-west-1:123456789012:{name}.fifo").parse().expect("an ARN")
        };
        for (namespace, name, id, counted) in [
            ("one", "orders", "m", 0),
            ("one", "orders", "m", 1),
            ("one", "orders", "n", 0),
            ("one", "invoices", "m", 0),
            ("two", "orders", "m", 0),
            ("one", "orders", "m", 2),
        ] {
            let before = counts(namespace).begin(&queue(name), id).await;
            assert_eq!(before, Some(counted), "{namespace} {name} {id}");
        }
        let one = counts("one");
        let key = one.fleet.key("attempts", &queue("orders").to_string(), b"m");
        let item = one.fleet.read(&key).await.expect("an answer").before;
        let expires = Duration::from_secs(item.get(Field::EXPIRES));
        let least = Duration::from_millis(epoch_millis(now)) + Duration::from_hours(14 * 24);
        assert!((least..=least + Duration::from_hours(25)).contains(&expires), "{expires:?}");
    }
}
