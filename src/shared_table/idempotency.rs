//! Notes about messages in the table. Each event that is handled once has an item: the record of
//! the attempt in progress, then the time until which it counts as done. The table also counts
//! attempts of messages with `visibility`, since SQS counts each receive, even without a call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::{ANSWER, TableClient, expires};
use crate::clock::epoch_millis;
use crate::disposition::IdempotencyNotes;
use crate::observer::Event;
use crate::policy::Idempotency;
use crate::queue::{MAX_RETENTION, QueueArn};
use crate::table::{Field, Key, TableError, Update};

/// Other attempts wait this much longer than a record lasts, since clocks differ by up to 2 s each.
const MARGIN: Duration = Duration::from_secs(5);
/// The pause before a done event is noted once more.
const PAUSE: Duration = Duration::from_millis(20);
/// The longest time for which an event counts as done, so that its end can be computed.
const LONGEST: Duration = Duration::from_hours(100 * 365 * 24);
/// The kind of the items. Environments of an older build use it too.
const KIND: &str = "once";
/// The attempt that handles the event.
const OWNER: Field = Field::new("owner");
/// The end of the record, in milliseconds since the epoch. Older builds write it too.
const IN_PROGRESS_UNTIL: Field = Field::new("leaseEnd");
/// The event counts as done until then, in milliseconds since the epoch.
const DONE_UNTIL: Field = Field::new("doneUntil");

/// The events of one policy, in the table.
#[derive(Debug)]
pub(crate) struct Events {
    client: Arc<TableClient>,
    idempotency: Idempotency,
    /// How often in a row the table throttled.
    throttled: AtomicU32,
}

/// An event that one attempt handles. Its record ends without a request.
#[derive(Debug)]
pub(crate) struct InProgressRecord {
    key: Key,
    owner: u64,
    lasts: Duration,
    /// Whether the table confirmed the record. A request in progress may still take effect.
    is_confirmed: bool,
    /// When others may acquire the event.
    until: Instant,
}

impl InProgressRecord {
    /// The time until others may acquire the event.
    pub(crate) fn rest(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Acquired {
    /// The attempt has the record, and may call the handler.
    Recorded,
    /// The table did not respond, or throttled this number of times in a row. If the attempt calls
    /// the handler, another attempt may do so too.
    Unanswered {
        throttled: Option<u32>,
    },
    Done,
    /// Another attempt may handle the event for this time.
    InProgress(Duration),
}

/// The event of an attempt, once it is acquired.
#[derive(Debug, Default)]
pub(crate) struct Acquisition {
    pub(crate) record: Option<InProgressRecord>,
    pub(crate) notes: IdempotencyNotes,
}

impl Events {
    pub(crate) fn new(client: Arc<TableClient>, idempotency: Idempotency) -> Self {
        Self { client, idempotency, throttled: AtomicU32::default() }
    }

    pub(crate) fn idempotency(&self) -> &Idempotency {
        &self.idempotency
    }

    /// The longest time until an event is acquired, and until its end is noted.
    pub(crate) fn timeout(&self) -> Duration {
        // An environment that starts, or whose clock was set, reads the item first.
        let read = if self.client.knows_time() { Duration::ZERO } else { ANSWER };
        self.client.timeout() + read
    }

    /// A record of an event, not acquired yet. No two attempts have the same `owner`.
    pub(crate) fn record(
        &self,
        queue: &str,
        event: &[u8],
        owner: u64,
        lasts: Duration,
    ) -> InProgressRecord {
        let key = self.client.key(KIND, queue, event);
        InProgressRecord {
            key,
            owner,
            lasts,
            is_confirmed: false,
            until: Instant::now() + lasts + MARGIN,
        }
    }

    pub(crate) async fn acquire(&self, record: &mut InProgressRecord) -> Acquired {
        // With a wrong clock, the record would end too early, or block the event for too long. A
        // response corrects the clock.
        if !self.client.knows_time()
            && let Err(error) = self.client.read(&record.key).await
        {
            return self.unanswered(&error);
        }
        let now = self.client.now();
        let (millis, end) = (epoch_millis(now), now + record.lasts);
        let update = Update::new()
            .when(DONE_UNTIL, 0..=millis)
            .when(IN_PROGRESS_UNTIL, 0..=epoch_millis(now - MARGIN))
            .set(OWNER, record.owner)
            .set(IN_PROGRESS_UNTIL, epoch_millis(end))
            .set(Field::EXPIRES, expires(end))
            .needed_for(record.lasts + MARGIN);
        let answer = self.client.update(&record.key, &update).await;
        if answer.is_ok() {
            self.throttled.store(0, Ordering::Relaxed);
        }
        match answer {
            Ok(answer) if answer.is_changed => {
                record.is_confirmed = true;
                Acquired::Recorded
            }
            Ok(answer) if answer.before.get(DONE_UNTIL) > millis => Acquired::Done,
            Ok(answer) => {
                let left = answer.before.get(IN_PROGRESS_UNTIL).saturating_sub(millis);
                Acquired::InProgress(Duration::from_millis(left) + MARGIN)
            }
            Err(error) => self.unanswered(&error),
        }
    }

    fn unanswered(&self, error: &TableError) -> Acquired {
        let throttled = match error {
            TableError::Throttled => Some(self.throttled.fetch_add(1, Ordering::Relaxed) + 1),
            TableError::Unavailable(_) => None,
        };
        Acquired::Unanswered { throttled }
    }

    /// Notes that the event is done, even if another attempt has the record now. Returns whether
    /// the table confirmed it before `until`.
    pub(crate) async fn complete(&self, record: &InProgressRecord, until: Instant) -> bool {
        let end = self.client.now() + self.idempotency.keep.min(LONGEST);
        let update = Update::new()
            .set(DONE_UNTIL, epoch_millis(end))
            .set(IN_PROGRESS_UNTIL, 0)
            .set(OWNER, 0)
            .set(Field::EXPIRES, expires(end));
        let is_noted = timeout_at(until, self.note(record, &update)).await.unwrap_or(false);
        if !is_noted {
            self.client.warn(Event::DoneNotRecorded);
        }
        is_noted
    }

    /// Sends at most two requests. The table has just given the record, so they are sent even if
    /// another request failed since.
    async fn note(&self, record: &InProgressRecord, update: &Update) -> bool {
        if self.client.update(&record.key, update).await.is_ok() {
            return true;
        }
        if !record.is_confirmed {
            return false;
        }
        sleep(PAUSE).await;
        self.client.table.update(&record.key, update).await.is_ok()
    }

    /// Ends the record after a failure, so that the next attempt need not wait for its end.
    pub(crate) async fn give_back(&self, record: &InProgressRecord, until: Instant) {
        let update = Update::new()
            .when(OWNER, record.owner..=record.owner)
            .set(IN_PROGRESS_UNTIL, 0)
            .set(OWNER, 0);
        // If this request fails, the record ends at its time.
        let _ = timeout_at(until, self.client.update(&record.key, &update)).await;
    }
}

/// The attempts from the second receive on.
const ATTEMPTS: Field = Field::new("attempts");

#[derive(Debug)]
pub(crate) struct Counted {
    key: Key,
    earlier: u64,
}

impl Counted {
    /// How many attempts were counted before this one.
    pub(crate) fn earlier(&self) -> u32 {
        u32::try_from(self.earlier).unwrap_or(u32::MAX)
    }
}

impl TableClient {
    /// Counts an attempt that is about to begin, from the second receive on. `None` if the table
    /// does not confirm it.
    pub(crate) async fn count(&self, queue: &QueueArn, message_id: &str) -> Option<Counted> {
        let key = self.key("attempts", &queue.to_string(), message_id.as_bytes());
        // SQS keeps no message longer.
        let end = self.now() + MAX_RETENTION;
        let update = Update::new().add(ATTEMPTS, 1).set(Field::EXPIRES, expires(end));
        let Ok(answer) = self.update(&key, &update).await else {
            self.warn(Event::AttemptNotCounted);
            return None;
        };
        Some(Counted { key, earlier: answer.before.get(ATTEMPTS) })
    }

    /// Uncounts an attempt whose handler was not called, unless another one was counted since.
    pub(crate) async fn take_back(&self, Counted { key, earlier }: Counted) {
        let now = earlier.saturating_add(1);
        let update = Update::new().when(ATTEMPTS, now..=now).set(ATTEMPTS, earlier);
        // If this request fails, the message may have one call less.
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
