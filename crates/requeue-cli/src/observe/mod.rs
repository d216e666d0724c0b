//! Events of messages as they happen, for the terminal and the page. This module keeps no body,
//! attribute or receipt handle longer than a message is in flight; no event has one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use requeue::{Clock, DeadLetter, Deferral, Disposition, LogLines, Outcome, ScopePause};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::output;

mod event;
mod handler;
mod log_line;
mod queue;
mod sqs;

pub(crate) use event::{Event, Ids, Kind, brief, epoch_millis, message_line, millis, short_id};
pub(crate) use handler::{CircuitLog, Downstream, DownstreamTrouble, Observed};
pub(crate) use log_line::{LogLine, MAY_EXIST, NOT_SENT, TOO_LONG, start_error};
pub(crate) use queue::ObservedQueue;
pub(crate) use sqs::{RareLines, ReceivingTrouble, Sqs, SqsState, Unsettled};

/// Reports on the standard error that a circuit opens or closes, for a command without a log.
pub(crate) struct CircuitLines;

impl requeue::Observer for CircuitLines {
    fn observe(&self, event: &requeue::Event<'_>) {
        match event {
            requeue::Event::CircuitOpened { cause, is_enforced: true, .. } => {
                output::note(format_args!("circuit opened: {}", brief(cause)));
            }
            requeue::Event::CircuitClosed { .. } => output::note("circuit closed"),
            _ => {}
        }
    }
}

/// The observations of the adapters and the library; its clones are the same.
#[derive(Clone)]
pub(crate) struct Observer(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// `None` if there is no reader of events, which then cost nothing.
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
    /// Whether the log has lines about failed requests: no terminal shows them.
    has_log: bool,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct Calls {
    pub(crate) ended: u64,
    pub(crate) running: u64,
    /// The worker counts a message only after its batch.
    pub(crate) succeeded: u64,
    /// The calls that the end of the worker cut off. They may have worked.
    pub(crate) cut_off: u64,
    /// Whether the worker ends.
    is_ending: bool,
}

impl Observer {
    pub(crate) fn new(events: Option<Events>, has_log: bool) -> Self {
        Self(Arc::new(Inner { events, has_log, ..Inner::default() }))
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

    /// From now on, a call without an end counts as cut off.
    pub(crate) fn ends(&self) {
        self.0.calls.lock().is_ending = true;
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

    /// The time until a message calls the target again: the end of the first pause, and if that is
    /// over, the next retry. Zero while messages call.
    pub(crate) fn next_try(&self, pauses: &[ScopePause]) -> Option<Duration> {
        if self.calls().running > 0 {
            return Some(Duration::ZERO);
        }
        let rest = pauses.first().map(|pause| pause.rest);
        rest.filter(|rest| !rest.is_zero()).or_else(|| self.next_due()).or(rest)
    }

    /// Drops the seconds that are over, so that their number is bounded. Returns the time too.
    fn due_from_now(&self) -> (MutexGuard<'_, BTreeSet<u64>>, u64) {
        let mut due = self.0.due.lock();
        let now = epoch_millis(Clock::system().now()) / 1_000;
        while due.first().is_some_and(|first| *first < now) {
            due.pop_first();
        }
        (due, now)
    }
}

impl Observer {
    /// Notes an outcome. The terminal has one line for all messages that were not settled.
    pub(crate) fn settled(&self, outcome: &Outcome) -> bool {
        if outcome.simply_completed() {
            return false;
        }
        let line = LogLine::of(outcome);
        let max_receives = self.sqs().state().max_receives;
        if let Some(event) = line.event(max_receives) {
            self.0.causes.lock().note(&event, line.undone().is_some());
            self.tell(|| event);
        }
        let Some(code) = line.code.as_deref() else { return true };
        let id = line.original_message_id.as_deref().or(line.message_id.as_deref());
        match outcome.disposition {
            Disposition::DeadLetter(_) => self.sqs().not_dead_lettered(code, id),
            _ => self.sqs().not_settled(Some(code), id, 1),
        }
        self.0.has_log
    }

    fn is_due(&self, lines: &Mutex<RareLines>) -> bool {
        self.0.has_log && lines.lock().is_due()
    }
}

impl requeue::Observer for Observer {
    fn observe(&self, event: &requeue::Event<'_>) {
        use requeue::Event as Heard;
        let number = |messages: usize| u64::try_from(messages).unwrap_or(u64::MAX);
        let is_logged = match *event {
            Heard::Settled(outcome) => self.settled(outcome),
            Heard::CircuitOpened { scope, cause, is_enforced, .. } => {
                if is_enforced {
                    let mut downstream = self.downstream();
                    downstream.open.get_or_insert_with(Instant::now);
                    downstream.begins(scope, Deferral::CircuitOpen, cause);
                }
                self.tell(|| Event::now(Kind::CircuitOpened, Ids::default()).reason(Some(cause)));
                true
            }
            Heard::CircuitClosed { scope, .. } => {
                self.downstream().closes(scope);
                self.tell(|| Event::now(Kind::CircuitClosed, Ids::default()));
                true
            }
            Heard::Paused { scope, cause, .. } => {
                self.downstream().begins(scope, Deferral::Paused, cause);
                true
            }
            Heard::ReceivingFailed { endpoint, code, pause, .. } => {
                self.sqs().failed(endpoint.unwrap_or_default(), code, pause);
                self.is_due(&self.0.receiving)
            }
            Heard::ReceivingWorks { .. } => {
                self.sqs().state().failing = None;
                self.0.receiving.lock().end()
            }
            Heard::NotExtended { code, messages, .. } => {
                self.sqs().not_settled(Some(code), None, number(messages));
                self.is_due(&self.0.extending)
            }
            Heard::NotDeleted { messages, .. } => {
                self.sqs().not_settled(None, None, number(messages));
                self.0.has_log
            }
            _ => true,
        };
        if is_logged {
            LogLines.observe(event);
        }
    }
}

/// Reasons that are counted by themselves. A service may invent codes.
const MAX_REASONS: usize = 100;
const OTHERS: &str = "other reasons";

#[derive(Clone, Default)]
pub(crate) struct Causes {
    pub(crate) dead_lettered: BTreeMap<String, u64>,
    pub(crate) retried: BTreeMap<String, u64>,
    /// Of messages that SQS keeps, although Requeue intended a copy or a longer visibility timeout.
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

const KEPT: usize = 10_000;
/// Most events that a reader gets at once.
const AT_ONCE: usize = 500;

/// The events of a process; its clones are the same stream.
#[derive(Clone, Default)]
pub(crate) struct Events(watch::Sender<Kept>);

#[derive(Default)]
struct Kept {
    events: VecDeque<Arc<Event>>,
    first: u64,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Batch {
    pub(crate) events: Vec<Arc<Event>>,
    pub(crate) missed: u64,
    pub(crate) next: u64,
}

pub(crate) struct Reader {
    kept: watch::Receiver<Kept>,
    position: u64,
}

impl Events {
    pub(crate) fn publish(&self, event: Event) {
        self.0.send_modify(|kept| {
            if kept.events.len() >= KEPT {
                kept.events.pop_front();
                kept.first += 1;
            }
            kept.events.push_back(Arc::new(event));
        });
    }

    /// A reader from the event with this number on, or from the first one that is kept.
    pub(crate) fn read_from(&self, position: u64) -> Reader {
        let kept = self.0.subscribe();
        let position = position.min(kept.borrow().next());
        Reader { kept, position }
    }
}

impl Kept {
    fn next(&self) -> u64 {
        self.first + self.events.len() as u64
    }
}

impl Reader {
    pub(crate) async fn next(&mut self) -> Batch {
        let position = self.position;
        let Ok(kept) = self.kept.wait_for(|kept| kept.next() > position).await else {
            // No publisher exists any more.
            return pending().await;
        };
        let from = position.max(kept.first);
        let at = usize::try_from(from - kept.first).unwrap_or(usize::MAX);
        let events: Vec<_> = kept.events.iter().skip(at).take(AT_ONCE).map(Arc::clone).collect();
        self.position = from + events.len() as u64;
        Batch { events, missed: from - position, next: self.position }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use requeue::{FailureClass, Scope};

    use super::*;

    fn event(number: u64) -> Event {
        Event { at: number, ..Event::now(Kind::Sent, Ids::first("m")) }
    }

    #[tokio::test]
    async fn a_slow_reader_loses_the_oldest_events_and_is_told_how_many() {
        let events = Events::default();
        let mut slow = events.read_from(0);
        for number in 0..KEPT as u64 + 7 {
            events.publish(event(number));
        }
        let (mut late, mut early) = (events.read_from(KEPT as u64 + 5), events.read_from(u64::MAX));
        let batch = slow.next().await;
        assert_eq!((batch.missed, batch.events[0].at, batch.next), (7, 7, 7 + AT_ONCE as u64));
        let batch = slow.next().await;
        assert_eq!((batch.missed, batch.events[0].at), (0, 7 + AT_ONCE as u64));
        let batch = late.next().await;
        assert_eq!((batch.missed, batch.events.len(), batch.next), (0, 2, KEPT as u64 + 7));
        let mut waiting = std::pin::pin!(early.next());
        assert!(futures_util::poll!(&mut waiting).is_pending(), "no event is new");
        events.publish(event(9));
        assert_eq!(waiting.await.events, [Arc::new(event(9))]);
    }

    #[test]
    fn the_reason_of_a_pause_is_the_failure_that_began_it_last() {
        let observer = Observer::new(None, false);
        let (scope, until) = (Scope::default(), SystemTime::UNIX_EPOCH);
        let paused = |cause| requeue::Event::Paused {
            scope,
            is_shared: false,
            class: FailureClass::RateLimit,
            cause,
            until,
        };
        let opened = |is_enforced| requeue::Event::CircuitOpened {
            scope,
            is_shared: false,
            is_enforced,
            cause: "status 503",
            first_probe: until,
        };
        let closed = requeue::Event::CircuitClosed { scope, is_shared: false };
        for (event, pause, open) in [
            (paused("status 429"), Some("status 429"), None),
            (opened(false), Some("status 429"), None),
            (opened(true), Some("status 429"), Some("status 503")),
            (paused("quota"), Some("quota"), Some("status 503")),
            (closed, Some("quota"), None),
        ] {
            requeue::Observer::observe(&observer, &event);
            let downstream = observer.downstream();
            let cause = |why| downstream.cause(scope, why);
            assert_eq!([Deferral::Paused, Deferral::CircuitOpen].map(cause), [pause, open]);
        }
    }

    #[test]
    fn an_event_is_json_without_empty_fields() {
        let event = Event {
            at: 5,
            ..Event::now(Kind::DeadLettered, Ids::new("c", "059f36b4-87a3-44ab-83d2-661975830a7d"))
        };
        let json = serde_json::to_string(&event.reason(Some("too\nold"))).expect("JSON");
        assert_eq!(
            json,
            r#"{"at":5,"kind":"dead-lettered","messageId":"c","originalMessageId":"059f36b4-87a3-44ab-83d2-661975830a7d","reason":"too�old"}"#
        );
        let of_all = Event { at: 5, ..Event::now(Kind::CircuitOpened, Ids::default()) };
        assert_eq!(
            serde_json::to_string(&of_all).expect("JSON"),
            r#"{"at":5,"kind":"circuit-opened"}"#
        );
    }
}
