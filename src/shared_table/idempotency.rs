//! The events that are handled once. Each has an item in the table: the lease of the attempt that
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

/// Others wait so long beyond the end of a lease, since clocks differ by up to 2 s each.
const MARGIN: Duration = Duration::from_secs(5);
/// The pause before a done event is noted once more.
const PAUSE: Duration = Duration::from_millis(20);
/// No event counts as done for longer, so that its end is a time.
const LONGEST: Duration = Duration::from_hours(100 * 365 * 24);
/// The attempt that handles the event.
const OWNER: Field = Field::new("owner");
/// The end of its lease, in milliseconds since the epoch.
const LEASE_END: Field = Field::new("leaseEnd");
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

/// An event that one attempt handles. The end of the lease needs no request.
#[derive(Debug)]
pub(crate) struct Lease {
    key: Key,
    owner: u64,
    lasts: Duration,
    /// Whether the table gave it. A request under way may have its effect all the same.
    is_confirmed: bool,
    /// When others may acquire the event.
    until: Instant,
}

impl Lease {
    /// The time until others may acquire the event.
    pub(crate) fn rest(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }
}

/// The answer to an attempt that wants to handle an event.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Acquired {
    /// It has the lease, and may call the handler.
    Lease,
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
    pub(crate) lease: Option<Lease>,
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

    /// The lease of an event from now on, to be acquired. No two attempts have the same `owner`.
    pub(crate) fn lease(&self, queue: &str, event: &[u8], owner: u64, lasts: Duration) -> Lease {
        let key = self.client.key("idempotency", queue, event);
        Lease { key, owner, lasts, is_confirmed: false, until: Instant::now() + lasts + MARGIN }
    }

    /// Acquires an event.
    pub(crate) async fn acquire(&self, lease: &mut Lease) -> Acquired {
        // A lease by a clock that is far off would end too early, or hold the event for too long.
        // An answer tells the time.
        if !self.client.knows_time()
            && let Err(error) = self.client.read(&lease.key).await
        {
            return self.unanswered(&error);
        }
        let now = self.client.now();
        let (millis, end) = (epoch_millis(now), now + lease.lasts);
        let update = Update::new()
            .when(DONE_UNTIL, 0..=millis)
            .when(LEASE_END, 0..=epoch_millis(now - MARGIN))
            .set(OWNER, lease.owner)
            .set(LEASE_END, epoch_millis(end))
            .set(Field::EXPIRES, expires(end))
            .needed_for(lease.lasts + MARGIN);
        let answer = self.client.update(&lease.key, &update).await;
        if answer.is_ok() {
            self.throttled.store(0, Ordering::Relaxed);
        }
        match answer {
            Ok(answer) if answer.is_changed => {
                lease.is_confirmed = true;
                Acquired::Lease
            }
            Ok(answer) if answer.before.get(DONE_UNTIL) > millis => Acquired::Done,
            Ok(answer) => {
                let left = answer.before.get(LEASE_END).saturating_sub(millis);
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

    /// Notes that the event is done, whoever has its lease now. Returns whether the table confirmed
    /// that before `until`.
    pub(crate) async fn complete(&self, lease: &Lease, until: Instant) -> bool {
        let end = self.client.now() + self.idempotency.keep.min(LONGEST);
        let update = Update::new()
            .set(DONE_UNTIL, epoch_millis(end))
            .set(LEASE_END, 0)
            .set(OWNER, 0)
            .set(Field::EXPIRES, expires(end));
        let is_noted = timeout_at(until, self.note(lease, &update)).await.unwrap_or(false);
        if !is_noted {
            self.client.warn(Event::DoneNotRecorded);
        }
        is_noted
    }

    /// Asks twice at most. A table that gave the lease answered a moment ago, so it is asked even if
    /// another request found it in trouble since.
    async fn note(&self, lease: &Lease, update: &Update) -> bool {
        if self.client.update(&lease.key, update).await.is_ok() {
            return true;
        }
        if !lease.is_confirmed {
            return false;
        }
        sleep(PAUSE).await;
        self.client.table.update(&lease.key, update).await.is_ok()
    }

    /// Gives the event back after a failure, so that its next attempt need not wait for the end of
    /// the lease.
    pub(crate) async fn give_back(&self, lease: &Lease, until: Instant) {
        let update =
            Update::new().when(OWNER, lease.owner..=lease.owner).set(LEASE_END, 0).set(OWNER, 0);
        // Without an answer, the lease ends by itself.
        let _ = timeout_at(until, self.client.update(&lease.key, &update)).await;
    }
}
