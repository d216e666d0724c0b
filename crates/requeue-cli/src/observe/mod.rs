//! The life of messages as it happens, for the terminal and for the page: adapters around a handler
//! and a queue, and an observer of the library's events. Nothing here holds a body, an attribute or
//! a receipt handle longer than its message is in flight, and none of them reaches an event.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use requeue::{Clock, DeadLetter};

mod downstream;
mod event;
mod handler;
mod log;
mod queue;
mod sqs;
mod stream;

pub(crate) use downstream::{Downstream, DownstreamTrouble};
pub(crate) use event::{Event, Ids, Kind, brief, epoch_millis, message_line, millis};
pub(crate) use handler::Observed;
pub(crate) use log::{LogLine, MAY_EXIST, NOT_SENT, RareLines, TOO_LONG, TroubleLines};
pub(crate) use queue::ObservedQueue;
pub(crate) use sqs::{ReceivingTrouble, Sqs, Unsettled};
pub(crate) use stream::{Events, Reader};

/// The library's words for a call whose time was over.
const NO_RESPONSE: &str = "no response in time";

/// Where the adapters and the library tell what they see; its clones are the same.
#[derive(Clone)]
pub(crate) struct Observer(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// `None` if nobody reads events, which then cost nothing.
    events: Option<Events>,
    calls: Mutex<Calls>,
    downstream: Mutex<Downstream>,
    sqs: Sqs,
    causes: Mutex<Causes>,
    /// The lines about failing receives, and about messages that are not extended.
    receiving: Mutex<RareLines>,
    extending: Mutex<RareLines>,
    /// The seconds to come in which a message is due.
    due: Mutex<BTreeSet<u64>>,
    lines: TroubleLines,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct Calls {
    pub(crate) ended: u64,
    pub(crate) running: u64,
    /// Those for messages that were received so often that the library handles them one by one.
    pub(crate) suspects: u64,
    /// The worker counts a message only after its batch.
    pub(crate) succeeded: u64,
    /// The calls that the end of the worker cut off. They may have worked.
    pub(crate) cut_off: u64,
    /// Whether the worker ends.
    is_ending: bool,
}

impl Observer {
    pub(crate) fn new(events: Option<Events>, lines: TroubleLines) -> Self {
        Self(Arc::new(Inner { events, lines, ..Inner::default() }))
    }

    fn is_read(&self) -> bool {
        self.0.events.is_some()
    }

    pub(crate) fn tell(&self, event: impl FnOnce() -> Event) {
        if let Some(events) = &self.0.events {
            events.publish(event());
        }
    }

    pub(crate) fn calls(&self) -> Calls {
        *self.0.calls.lock()
    }

    /// From now on a call without an end counts as cut off.
    pub(crate) fn ends(&self) {
        self.0.calls.lock().is_ending = true;
    }

    /// Whether the log has lines about failed requests.
    fn logs_requests(&self) -> bool {
        self.0.lines == TroubleLines::Rare
    }

    fn begin_call(&self, is_suspect: bool) {
        let mut calls = self.0.calls.lock();
        calls.running += 1;
        calls.suspects += u64::from(is_suspect);
    }

    fn end_call(&self, is_suspect: bool) {
        let mut calls = self.0.calls.lock();
        calls.running -= 1;
        calls.suspects -= u64::from(is_suspect);
        calls.ended += 1;
    }

    /// A call was dropped: its time was over, or the worker ends. Returns the reason.
    fn drop_call(&self) -> &'static str {
        let mut calls = self.0.calls.lock();
        if calls.is_ending {
            calls.cut_off += 1;
            return "cut off by the end of the worker";
        }
        // A view takes the locks in the other order.
        drop(calls);
        self.downstream().unanswered(NO_RESPONSE);
        NO_RESPONSE
    }

    pub(crate) fn downstream(&self) -> MutexGuard<'_, Downstream> {
        self.0.downstream.lock()
    }

    pub(crate) fn sqs(&self) -> &Sqs {
        &self.0.sqs
    }

    pub(crate) fn causes(&self) -> Causes {
        self.0.causes.lock().clone()
    }

    fn due_in(&self, delay: Duration) {
        let (mut due, now) = self.due_from_now();
        due.insert(now.saturating_add(delay.as_secs()));
    }

    /// The time until the next message that this process has delayed.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        let (due, now) = self.due_from_now();
        let first = due.first()?;
        Some(Duration::from_secs(first.saturating_sub(now)))
    }

    /// Forgets the seconds that are over, so that their number is bounded. Returns the time too.
    fn due_from_now(&self) -> (MutexGuard<'_, BTreeSet<u64>>, u64) {
        let mut due = self.0.due.lock();
        let now = epoch_millis(Clock::system().now()) / 1_000;
        while due.first().is_some_and(|first| *first < now) {
            due.pop_first();
        }
        (due, now)
    }
}

/// Reasons that are counted by themselves. A service may invent codes.
const MAX_REASONS: usize = 100;
const OTHERS: &str = "other reasons";

/// Why messages are retried, dead-lettered and left to SQS since the start, counted by reason.
#[derive(Clone, Default)]
pub(crate) struct Causes {
    pub(crate) dead_lettered: BTreeMap<String, u64>,
    pub(crate) retried: BTreeMap<String, u64>,
    /// Of messages that SQS keeps, though Requeue meant to send a copy or to hide them.
    pub(crate) left: BTreeMap<String, u64>,
}

impl Causes {
    fn note(&mut self, event: &Event, is_undone: bool) {
        let reasons = match event.kind {
            Kind::DeadLettered => &mut self.dead_lettered,
            Kind::Requeued => &mut self.retried,
            Kind::Released if is_undone => &mut self.left,
            _ => return,
        };
        let reason = event.reason.as_deref().unwrap_or("no reason given");
        let is_known = reasons.contains_key(reason) || reasons.len() < MAX_REASONS;
        *reasons.entry(if is_known { reason } else { OTHERS }.to_owned()).or_default() += 1;
    }
}

/// The ids, the retries and the reason that a body names.
pub(crate) fn of_body(id: &str, body: &str) -> (Ids, Option<u32>, Option<String>) {
    // A body without this word has no state, so it needs no search.
    if !body.contains("retryState") {
        return (Ids::first(id), None, None);
    }
    let dead = DeadLetter::read(body);
    let original = dead.original_message_id().unwrap_or(id);
    let why = match (dead.reason(), dead.detail()) {
        (Some(reason), Some(detail)) if detail != reason => Some(format!("{reason}: {detail}")),
        (reason, _) => reason.map(str::to_owned),
    };
    (Ids::new(id, original), dead.retry_count(), why)
}
