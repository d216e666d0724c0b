//! The table that execution environments share, with the limits of one in DynamoDB: requests take
//! time, and one item takes so many writes a second.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, pending};
use requeue::Clock;
use requeue::table::{Answer, Key, MemoryTable, Table, TableError, Update};
use tokio::time::{Instant, sleep};

use parking_lot::Mutex;

/// The way of a request, and of its response.
const REQUEST: Duration = Duration::from_millis(2);
const RESPONSE: Duration = Duration::from_millis(3);
/// The most writes of one item in a second. DynamoDB allows a partition as many.
const WRITES: f64 = 1_000.0;

/// A table in this process that behaves as a table does, as one execution environment asks it.
#[derive(Clone, Debug)]
pub(crate) struct SimulatedTable {
    table: Arc<Shared>,
    /// Whether it was throttled since the last look.
    was_throttled: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Shared {
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
        let table = Shared {
            items: MemoryTable::default(),
            clock,
            requests: AtomicU64::default(),
            down,
            capacity: Mutex::default(),
        };
        Self { table: Arc::new(table), was_throttled: Arc::default() }
    }

    /// The same table for another execution environment.
    pub(crate) fn of_another(&self) -> Self {
        Self { table: Arc::clone(&self.table), was_throttled: Arc::default() }
    }

    pub(crate) fn requests(&self) -> u64 {
        self.table.requests.load(Ordering::Relaxed)
    }

    /// Whether the table was throttled for this execution environment since the last look.
    pub(crate) fn was_throttled(&self) -> bool {
        self.was_throttled.swap(false, Ordering::Relaxed)
    }
}

impl Shared {
    async fn arrive(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        sleep(REQUEST).await;
        if self.down.as_ref().is_some_and(|down| down.contains(&Instant::now())) {
            pending::<()>().await;
        }
    }

    fn takes_write(&self, key: &Key) -> bool {
        let mut capacity = self.capacity.lock();
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
            let table = &self.table;
            table.arrive().await;
            let answer = if table.takes_write(key) {
                table.items.update(key, update).await
            } else {
                Err(TableError::Throttled)
            };
            let answer = table.respond(answer).await;
            let is_throttled = matches!(answer, Err(TableError::Throttled));
            self.was_throttled.fetch_or(is_throttled, Ordering::Relaxed);
            answer
        }
        .boxed()
    }

    fn read<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Answer, TableError>> {
        async move {
            self.table.arrive().await;
            let answer = self.table.items.read(key).await;
            self.table.respond(answer).await
        }
        .boxed()
    }
}
