//! The attempts at messages that wait by their visibility, counted by the table. SQS counts
//! each receive of such a message, even if no handler is called.

use super::{TableClient, expires};
use crate::observer::Event;
use crate::queue::{MAX_RETENTION, QueueArn};
use crate::table::{Field, Key, Update};

/// The attempts from the second receive on.
const ATTEMPTS: Field = Field::new("attempts");

/// An attempt that the table has counted.
#[derive(Debug)]
pub(crate) struct Counted {
    key: Key,
    earlier: u64,
}

impl Counted {
    /// How many were counted before it.
    pub(crate) fn earlier(&self) -> u32 {
        u32::try_from(self.earlier).unwrap_or(u32::MAX)
    }
}

impl TableClient {
    /// Counts an attempt that is about to begin, on a second or later receive. `None` if the table
    /// does not confirm it.
    pub(crate) async fn count(&self, queue: &QueueArn, message_id: &str) -> Option<Counted> {
        let key = self.key("attempts", &queue.to_string(), message_id.as_bytes());
        // SQS keeps no message for longer.
        let end = self.now() + MAX_RETENTION;
        let update = Update::new().add(ATTEMPTS, 1).set(Field::EXPIRES, expires(end));
        let Ok(answer) = self.update(&key, &update).await else {
            self.warn(Event::AttemptNotCounted);
            return None;
        };
        Some(Counted { key, earlier: answer.before.get(ATTEMPTS) })
    }

    /// Takes back an attempt whose handler was not called, unless another one was counted since.
    pub(crate) async fn take_back(&self, Counted { key, earlier }: Counted) {
        let now = earlier.saturating_add(1);
        let update = Update::new().when(ATTEMPTS, now..=now).set(ATTEMPTS, earlier);
        // Without an answer, one call fewer may be made.
        let _ = self.update(&key, &update).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::clock::{Clock, epoch_millis};
    use crate::settings::SharedTable;
    use crate::table::{MemoryTable, Table};

    #[tokio::test(start_paused = true)]
    async fn each_message_of_each_queue_and_function_has_a_count_of_its_own_for_14_days() {
        let table = Arc::new(MemoryTable::default());
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let counts = |namespace: &str| {
            let shared_table = SharedTable {
                namespace: namespace.to_owned(),
                ..SharedTable::by(Arc::clone(&table) as Arc<dyn Table>)
            };
            TableClient::new(shared_table, Clock::starting_at(now))
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
            let before = counts(namespace).count(&queue(name), id).await;
            let before = before.map(|counted| counted.earlier());
            assert_eq!(before, Some(counted), "{namespace} {name} {id}");
        }
        let one = counts("one");
        let key = one.key("attempts", &queue("orders").to_string(), b"m");
        let item = one.read(&key).await.expect("an answer").before;
        let expires = Duration::from_secs(item.get(Field::EXPIRES));
        let least = Duration::from_millis(epoch_millis(now)) + Duration::from_hours(14 * 24);
        assert!((least..=least + Duration::from_hours(25)).contains(&expires), "{expires:?}");
    }
}
