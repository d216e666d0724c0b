//! The table of the rate limits, and its faults.

use std::fmt;
use std::future::{Future, pending};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use requeue::Clock;
use requeue::table::{Field, Item, Key, MemoryTable, Table, TableError, TableResponse, Update};
use requeue_testkit::dice::Dice;
use tokio::time::{Instant, sleep};

use crate::plan::steps;

/// The table of a run.
pub struct FaultyStore {
    items: MemoryTable,
    clock: Clock,
    dice: Dice,
    /// How often a request meets a fault, in a thousand.
    faults: u64,
    /// When faults end.
    calm: Instant,
    /// How often it lost everything.
    wiped: AtomicU64,
    /// When requests met faults.
    troubled: Mutex<Vec<Instant>>,
}

impl fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultyStore")
    }
}

enum Fault {
    None,
    Throttled,
    Refused,
    LoseRequest,
    LoseAnswer,
    Slow(Duration),
    Wiped,
}

impl FaultyStore {
    pub fn new(clock: Clock, dice: Dice, faults: u64, calm: Duration) -> Self {
        let calm = Instant::now() + calm;
        let wiped = AtomicU64::default();
        let troubled = Mutex::default();
        Self { items: MemoryTable::default(), clock, dice, faults, calm, wiped, troubled }
    }

    /// Until when an event counts as done, in milliseconds since the epoch.
    pub fn done_until(&self, queue: &str, id: &str) -> u64 {
        self.number(&Key::of(["", "once", queue, &format!("id {id}")]), "doneUntil")
    }

    /// The attempts at a message from its second receive on.
    pub fn attempts(&self, queue: &str, id: &str) -> u64 {
        self.number(&Key::of(["", "attempts", queue, id]), "attempts")
    }

    /// How often it lost everything.
    pub fn wiped(&self) -> u64 {
        self.wiped.load(Ordering::Relaxed)
    }

    /// The time since the last fault; `None` if there was none.
    pub fn calm_for(&self) -> Option<Duration> {
        self.troubled.lock().expect("no panic while it is held").last().map(Instant::elapsed)
    }

    /// The faults since then.
    pub fn faults_since(&self, then: Instant) -> u32 {
        let troubled = self.troubled.lock().expect("no panic while it is held");
        let before = troubled.partition_point(|at| *at < then);
        u32::try_from(troubled.len() - before).expect("few")
    }

    fn note_trouble(&self) {
        self.troubled.lock().expect("no panic while it is held").push(Instant::now());
    }

    pub fn number(&self, key: &Key, name: &'static str) -> u64 {
        let read = self.items.read(key).now_or_never().expect("at once").expect("an item");
        read.before.get(Field::new(name))
    }

    fn fault(&self) -> Fault {
        let dice = &self.dice;
        if Instant::now() > self.calm || !dice.happens(self.faults) {
            return Fault::None;
        }
        self.note_trouble();
        match dice.roll(0, 12) {
            0 | 1 => Fault::Throttled,
            2 => Fault::Refused,
            3 | 4 => Fault::LoseRequest,
            5 | 6 => Fault::LoseAnswer,
            7 => Fault::Wiped,
            _ => Fault::Slow(steps(dice.roll(1, 30))),
        }
    }

    async fn answer(
        &self,
        request: impl Future<Output = Result<TableResponse, TableError>>,
    ) -> Result<TableResponse, TableError> {
        match self.fault() {
            Fault::None => {}
            Fault::Throttled => return Err(TableError::Throttled),
            Fault::Refused => return Err(TableError::Unavailable("InternalServerError".into())),
            Fault::LoseRequest => return pending().await,
            Fault::LoseAnswer => {
                let _ = request.await;
                return pending().await;
            }
            Fault::Slow(time) => {
                sleep(time).await;
                self.note_trouble();
            }
            Fault::Wiped => {
                self.items.clear();
                self.wiped.fetch_add(1, Ordering::Relaxed);
            }
        }
        let answer = request.await?;
        // Meanwhile a worker may be told to end.
        if self.faults == 0 {
            sleep(steps(self.dice.roll(0, 3))).await;
        }
        // The date of a response has whole seconds.
        let secs =
            self.clock.now().duration_since(SystemTime::UNIX_EPOCH).expect("later").as_secs();
        Ok(TableResponse {
            date: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(secs)),
            ..answer
        })
    }
}

impl Table for FaultyStore {
    fn update<'a>(
        &'a self,
        key: &'a Key,
        update: &'a Update,
    ) -> BoxFuture<'a, Result<TableResponse, TableError>> {
        self.answer(self.items.update(key, update)).boxed()
    }

    fn read<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<TableResponse, TableError>> {
        let read = async {
            let answer = self.items.read(key).await?;
            // A read may be older than the last change.
            let is_stale = Instant::now() < self.calm && self.dice.happens(self.faults);
            if is_stale {
                self.note_trouble();
            }
            let before = if is_stale { Item::default() } else { answer.before };
            Ok(TableResponse { before, ..answer })
        };
        self.answer(read).boxed()
    }
}
