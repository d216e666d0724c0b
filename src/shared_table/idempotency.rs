//! The events that are handled once. Each has an item in the table: the record of the attempt that
//! handles it, and the time until which it counts as done.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::{ANSWER, TableClient, expires};
use crate::clock::epoch_millis;
use crate::disposition::IdempotencyNotes;
use crate::observer::Event;
use crate::policy::Idempotency;
use crate::table::{Field, Key, TableError, Update};

/// Others wait so long beyond the end of a record, since clocks differ by up to 2 s each.
const MARGIN: Duration = Duration::from_secs(5);
/// The pause before a done event is noted once more.
const PAUSE: Duration = Duration::from_millis(20);
/// No event counts as done for longer, so that its end is a time.
const LONGEST: Duration = Duration::from_hours(100 * 365 * 24);
/// The kind of its items. Environments of an older build use it too.
const KIND: &str = "once";
/// The attempt that handles the event.
const OWNER: Field = Field::new("owner");
/// The end of its record, in milliseconds since the epoch. Environments of an older build write it too.
const IN_PROGRESS_UNTIL: Field = Field::new("leaseEnd");
/// The event counts as done until then, in milliseconds since the epoch.
const DONE_UNTIL: Field = Field::new("doneUntil");

/// The events of one policy, in the table.
#[derive(Debug)]
pub(crate) struct Events {
    client: Arc<TableClient>,
    idempotency: Idempotency,
    /// How often in a row the table took no requests.
    throttled: AtomicU32,
}

/// An event that one attempt handles. The end of the record needs no request.
#[derive(Debug)]
pub(crate) struct InProgressRecord {
    key: Key,
    owner: u64,
    lasts: Duration,
    /// Whether the table gave it. A request under way may have its effect all the same.
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

/// The answer to an attempt that wants to handle an event.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Acquired {
    /// It has the record, and may call the handler.
    Recorded,
    /// The table did not answer, or took no request for this number of times in a row. If the
    /// attempt calls the handler, so may another one.
    Unanswered { throttled: Option<u32> },
    /// The event is done.
    Done,
    /// Another attempt may handle it for so long.
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

    /// The record of an event from now on, to be acquired. No two attempts have the same `owner`.
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

    /// Acquires an event.
    pub(crate) async fn acquire(&self, record: &mut InProgressRecord) -> Acquired {
        // A record by a clock that is far off would end too early, or hold the event for too long.
        // An answer tells the time.
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

    /// Notes that the event is done, whoever has its record now. Returns whether the table confirmed
    /// that before `until`.
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

    /// Asks twice at most. A table that gave the record answered a moment ago, so it is asked even if
    /// another request found it in trouble since.
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

    /// Gives the event back after a failure, so that its next attempt need not wait for the end of
    /// the record.
    pub(crate) async fn give_back(&self, record: &InProgressRecord, until: Instant) {
        let update = Update::new()
            .when(OWNER, record.owner..=record.owner)
            .set(IN_PROGRESS_UNTIL, 0)
            .set(OWNER, 0);
        // Without an answer, the record ends by itself.
        let _ = timeout_at(until, self.client.update(&record.key, &update)).await;
    }
}
