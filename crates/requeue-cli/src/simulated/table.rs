//! The table that execution environments share, with the limits of one in DynamoDB: requests take
//! time, and one item takes so many writes a second.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::future::{BoxFuture, pending};
use futures_util::{FutureExt as _, TryFutureExt as _};
use requeue::Clock;
use requeue::table::{Answer, Key, MemoryTable, Table, TableError, Update};
use tokio::time::{Instant, sleep};

/// The way of a request, and of its response.
const REQUEST: Duration = Duration::from_millis(2);
const RESPONSE: Duration = Duration::from_millis(3);
/// The most writes of one item in a second. DynamoDB allows a partition as many.
const WRITES: f64 = 1_000.0;

/// A table in this process that behaves as a table does.
#[derive(Debug)]
pub(crate) struct SimulatedTable {
    items: MemoryTable,
    clock: Clock,
    requests: AtomicU64,
    /// It does not answer in this time.
    down: Option<Range<Instant>>,
    /// The writes that each item takes at once, and the time of that.
    capacity: Mutex<HashMap<Key, (f64, Instant)>>,
}

impl SimulatedTable {
    pub(crate) fn new(clock: Clock, down: Option<Range<Instant>>) -> Self {
        Self {
            items: MemoryTable::default(),
            clock,
            requests: AtomicU64::default(),
            down,
            capacity: Mutex::default(),
        }
    }

    /// The requests so far.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    async fn arrive(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        sleep(REQUEST).await;
        if self.down.as_ref().is_some_and(|down| down.contains(&Instant::now())) {
            pending::<()>().await;
        }
    }

    fn takes_write(&self, key: &Key) -> bool {
        let mut capacity = self.capacity.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let (writes, at) = capacity.entry(*key).or_insert((WRITES, now));
        *writes = (*writes + now.duration_since(*at).as_secs_f64() * WRITES).min(WRITES);
        *at = now;
        let takes = *writes >= 1.0;
        if takes {
            *writes -= 1.0;
        }
        takes
    }

    async fn respond(&self, answer: Result<Answer, TableError>) -> Result<Answer, TableError> {
        // HTTP cuts dates to whole seconds.
        let since_epoch =
            self.clock.now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let date = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(since_epoch.as_secs()));
        sleep(RESPONSE).await;
        Ok(Answer { date, ..answer? })
    }
}

impl Table for SimulatedTable {
    fn update<'a>(
        &'a self,
        key: &'a Key,
        update: &'a Update,
    ) -> BoxFuture<'a, Result<Answer, TableError>> {
        async move {
            self.arrive().await;
            let answer = if self.takes_write(key) {
                self.items.update(key, update).await
            } else {
                Err(TableError::Throttled)
            };
            self.respond(answer).await
        }
        .boxed()
    }

    fn read<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Answer, TableError>> {
        async move {
            self.arrive().await;
            let answer = self.items.read(key).await;
            self.respond(answer).await
        }
        .boxed()
    }
}

/// The table, as one execution environment asks it.
#[derive(Debug)]
pub(crate) struct OwnTable {
    table: Arc<SimulatedTable>,
    was_throttled: AtomicBool,
}

impl OwnTable {
    pub(crate) fn of(table: Arc<SimulatedTable>) -> Self {
        Self { table, was_throttled: AtomicBool::default() }
    }

    /// Whether the table was throttled for this execution environment since the last look.
    pub(crate) fn was_throttled(&self) -> bool {
        self.was_throttled.swap(false, Ordering::Relaxed)
    }
}

impl Table for OwnTable {
    fn update<'a>(
        &'a self,
        key: &'a Key,
        update: &'a Update,
    ) -> BoxFuture<'a, Result<Answer, TableError>> {
        let update = self.table.update(key, update);
        update
            .inspect_err(|error| {
                if *error == TableError::Throttled {
                    self.was_throttled.store(true, Ordering::Relaxed);
                }
            })
            .boxed()
    }

    fn read<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Answer, TableError>> {
        self.table.read(key)
    }
}
