//! The state that the execution environments of a function share in a table. Each request has a
//! timeout, each response corrects the clock, and an event reports failures of the table. The table
//! has no part of a message but its id.

use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, timeout};

use crate::aws;
use crate::clock::{Clock, epoch_millis};
use crate::lock::lock;
use crate::observer::{Event, Observers};
use crate::scope::Scope;
use crate::settings::SharedTable;
use crate::table::{Key, Table, TableError, TableResponse, Update};

mod control;
mod fallback;
mod pauses;
mod limits;
mod asking;
mod known;
mod idempotency;
#[cfg(test)]
mod tests;

pub use control::LimitControl;
pub(crate) use idempotency::{Acquired, Acquisition, Counted, Events};
pub(crate) use known::{Admitted, Request, Ticket};
pub(crate) use pauses::{NoTicket, SharedPauses};

/// The longest time for a response that may need a new connection: the first one, one after a while
/// without requests, and one after a request without a response.
const FIRST_ANSWER: Duration = Duration::from_secs(1);
/// The longest time for a response on a connection in use.
const ANSWER: Duration = Duration::from_millis(250);
/// After several requests in a row without a response, no request is sent for this time.
const REST: Duration = Duration::from_secs(1);
/// An item expires this long after its last use.
const UNUSED: Duration = Duration::from_secs(86_400);
/// If the clock moved by this many milliseconds against the last response, somebody set it.
const MOST_DRIFT: u64 = 1_000;
/// A failure of one kind is logged once in this time.
const SILENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct TableClient {
    table: Arc<dyn Table>,
    namespace: String,
    max_environments: u32,
    clock: Clock,
    started: SystemTime,
    /// Milliseconds by which the time of the table is ahead of the clock.
    offset: AtomicI64,
    /// The time that the last response took, in nanoseconds.
    latency: AtomicU64,
    answers: Mutex<Answers>,
    observers: Observers,
}

/// The last responses of the table.
#[derive(Debug, Default)]
struct Answers {
    /// The time of the last request, if it got a response.
    answered: Option<Instant>,
    /// The time of the last response, and the time of the clock then.
    shown: Option<(Instant, SystemTime)>,
    /// Requests in a row without a response.
    unanswered: u32,
    /// No request is sent before this time.
    rests_until: Option<Instant>,
    /// When a failure of each kind was logged last.
    told: [Option<Instant>; 4],
}

impl TableClient {
    pub(crate) fn new(shared_table: SharedTable, clock: Clock) -> Self {
        let SharedTable { table, namespace, max_environments } = shared_table;
        Self {
            table,
            namespace,
            max_environments,
            started: clock.now(),
            clock,
            offset: AtomicI64::default(),
            latency: AtomicU64::default(),
            answers: Mutex::default(),
            observers: Observers::default(),
        }
    }

    pub(crate) fn observed_by(self, observers: Observers) -> Self {
        Self { observers, ..self }
    }

    /// The time of day, by the clock that all execution environments share.
    pub(crate) fn now(&self) -> SystemTime {
        self.shared(self.clock.now())
    }

    /// A time of this execution environment's clock, by the shared clock.
    fn shared(&self, time: SystemTime) -> SystemTime {
        shifted(time, self.offset.load(Ordering::Relaxed))
    }

    /// A time of the shared clock, by the clock of this execution environment.
    pub(crate) fn local(&self, time: SystemTime) -> SystemTime {
        shifted(time, self.offset.load(Ordering::Relaxed).saturating_neg())
    }

    /// The longest time of one request.
    pub(crate) fn timeout(&self) -> Duration {
        let answered = self.answers().answered;
        let is_in_use = answered.is_some_and(|at| at.elapsed() < aws::UNUSED) && self.knows_time();
        if is_in_use { ANSWER } else { FIRST_ANSWER }
    }

    /// The time that a response is expected to take.
    fn latency(&self) -> Duration {
        Duration::from_nanos(self.latency.load(Ordering::Relaxed)).min(ANSWER)
    }

    fn key(&self, kind: &str, queue: &str, value: &[u8]) -> Key {
        item_key(&self.namespace, kind, queue, value)
    }

    fn scope_key(&self, queue: &str, scope: Scope) -> Key {
        scope_key(&self.namespace, queue, scope)
    }

    /// Whether the table sent its time, and the clock was not set since.
    fn knows_time(&self) -> bool {
        let Some((answered, shown)) = self.answers().shown else { return false };
        millis_between(shown + answered.elapsed(), self.clock.now()).unsigned_abs() < MOST_DRIFT
    }

    async fn read(&self, key: &Key) -> Result<TableResponse, TableError> {
        self.ask(self.table.read(key)).await
    }

    async fn update(&self, key: &Key, update: &Update) -> Result<TableResponse, TableError> {
        self.ask(self.table.update(key, update)).await
    }

    /// Waits for a response, unless the table was unavailable a moment ago.
    async fn ask(
        &self,
        request: impl Future<Output = Result<TableResponse, TableError>>,
    ) -> Result<TableResponse, TableError> {
        if self.answers().rests_until.is_some_and(|end| Instant::now() < end) {
            return Err(TableError::Unavailable(Cow::Borrowed("TableRests")));
        }
        let (asked, began) = (self.clock.now(), Instant::now());
        let answer = timeout(self.timeout(), request).await;
        let is_silent = answer.is_err();
        let answer = answer.unwrap_or(Err(TableError::Unavailable(Cow::Borrowed("TableTimedOut"))));
        match &answer {
            Ok(answer) => {
                {
                    let (now, shown) = (Instant::now(), self.clock.now());
                    let mut answers = self.answers();
                    (answers.answered, answers.unanswered) = (Some(now), 0);
                    answers.shown = Some((now, shown));
                    answers.rests_until = None;
                }
                let took = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
                self.latency.store(took, Ordering::Relaxed);
                self.follow(answer.date, asked);
            }
            Err(error) => self.note(error, is_silent),
        }
        answer
    }

    /// Corrects the clock by the date of a response, only as far as the next offset that fits, so a
    /// correct clock stays. Dates are whole seconds, so successive responses narrow the range.
    fn follow(&self, date: Option<SystemTime>, asked: SystemTime) {
        let Some(date) = date else { return };
        let offsets = fitting_offsets(asked, self.clock.now(), date);
        // If the clock was set back during the request, no offset fits.
        if !offsets.is_empty() {
            let next = |offset: i64| Some(offset.clamp(*offsets.start(), *offsets.end()));
            let _ = self.offset.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        }
    }

    /// Notes a failure, and reports it if it is due. Only a silent table is left alone for a while,
    /// since a refusal costs no time.
    fn note(&self, error: &TableError, is_silent: bool) {
        if is_silent {
            let mut answers = self.answers();
            answers.answered = None;
            answers.unanswered = answers.unanswered.saturating_add(1);
            if answers.unanswered > 1 {
                answers.rests_until = Some(Instant::now() + REST);
            }
        }
        match error {
            TableError::Throttled => self.warn(Event::TableThrottled),
            TableError::Unavailable(_) => {
                self.warn(Event::TableUnavailable { code: &error.to_string() });
            }
        }
    }

    /// Reports a failure, unless a failure of its kind was reported a short time ago.
    fn warn(&self, trouble: Event<'_>) {
        let kind = match trouble {
            Event::TableThrottled => 0,
            Event::TableUnavailable { .. } => 1,
            Event::AttemptNotCounted => 2,
            Event::DoneNotRecorded => 3,
            _ => return self.observers.tell(&trouble),
        };
        let now = Instant::now();
        {
            let told = &mut self.answers().told[kind];
            if told.is_some_and(|told| now.duration_since(told) < SILENCE) {
                return;
            }
            *told = Some(now);
        }
        self.observers.tell(&trouble);
    }

    fn answers(&self) -> std::sync::MutexGuard<'_, Answers> {
        lock(&self.answers)
    }
}

fn item_key(namespace: &str, kind: &str, queue: &str, value: &[u8]) -> Key {
    Key::of([namespace.as_bytes(), kind.as_bytes(), queue.as_bytes(), value])
}

/// The key of the item of a scope: its limit, its pause and its circuit.
fn scope_key(namespace: &str, queue: &str, scope: Scope) -> Key {
    item_key(namespace, "scope", queue, scope.bytes())
}

/// The value of [`Field::EXPIRES`](crate::table::Field::EXPIRES) of an item in use until then,
/// rounded up.
fn expires(in_use_until: SystemTime) -> u64 {
    epoch_millis(in_use_until + UNUSED).div_ceil(1_000)
}

/// The milliseconds by which the time of the table may be ahead of a clock that had these times at
/// the request and at the response. The date lies between both, cut to a whole second. After a
/// freeze the times are far apart, so almost each offset fits.
fn fitting_offsets(
    asked: SystemTime,
    answered: SystemTime,
    date: SystemTime,
) -> RangeInclusive<i64> {
    millis_between(answered, date)..=millis_between(asked, date).saturating_add(1_000)
}

fn millis_between(from: SystemTime, to: SystemTime) -> i64 {
    let millis = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
    match to.duration_since(from) {
        Ok(later) => millis(later),
        Err(earlier) => -millis(earlier.duration()),
    }
}

fn shifted(time: SystemTime, millis: i64) -> SystemTime {
    let by = Duration::from_millis(millis.unsigned_abs());
    let shifted = if millis < 0 { time.checked_sub(by) } else { time.checked_add(by) };
    shifted.unwrap_or(time)
}
