//! The stream of events. It keeps the last ones for readers that come later or return, and it never
//! waits for a reader: a slow one loses the oldest events and is told how many.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::Event;

const KEPT: usize = 10_000;
/// Most events that a reader gets at once.
const AT_ONCE: usize = 500;

/// The events of a process; its clones are the same stream.
#[derive(Clone)]
pub(crate) struct Events(Arc<Shared>);

struct Shared {
    kept: Mutex<Kept>,
    /// The number of the next event.
    next: watch::Sender<u64>,
}

#[derive(Default)]
struct Kept {
    events: VecDeque<Arc<Event>>,
    /// The number of the first one.
    first: u64,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Batch {
    pub(crate) events: Vec<Arc<Event>>,
    pub(crate) missed: u64,
    /// The number of the event after them.
    pub(crate) next: u64,
}

pub(crate) struct Reader {
    shared: Arc<Shared>,
    position: u64,
    changed: watch::Receiver<u64>,
}

impl Events {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Shared { kept: Mutex::default(), next: watch::Sender::new(0) }))
    }

    pub(crate) fn publish(&self, event: Event) {
        let mut kept = self.0.kept.lock();
        if kept.events.len() >= KEPT {
            kept.events.pop_front();
            kept.first += 1;
        }
        kept.events.push_back(Arc::new(event));
        let next = kept.next();
        drop(kept);
        self.0.next.send_modify(|known| *known = next.max(*known));
    }

    /// A reader from the event with this number on, or from the first one that is kept.
    pub(crate) fn read_from(&self, position: u64) -> Reader {
        let position = position.min(self.0.kept.lock().next());
        Reader { shared: Arc::clone(&self.0), position, changed: self.0.next.subscribe() }
    }
}

impl Kept {
    fn next(&self) -> u64 {
        self.first + self.events.len() as u64
    }
}

impl Reader {
    /// The next events, at least one.
    pub(crate) async fn next(&mut self) -> Batch {
        let position = self.position;
        // The sender lives as long as this reader.
        let _ = self.changed.wait_for(|next| *next > position).await;
        self.take()
    }

    fn take(&mut self) -> Batch {
        let kept = self.shared.kept.lock();
        let missed = kept.first.saturating_sub(self.position);
        let at = usize::try_from(self.position.max(kept.first) - kept.first).unwrap_or(usize::MAX);
        let events: Vec<_> = kept.events.iter().skip(at).take(AT_ONCE).map(Arc::clone).collect();
        self.position = self.position.max(kept.first) + events.len() as u64;
        Batch { events, missed, next: self.position }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::{Ids, Kind};

    fn event(number: u64) -> Event {
        Event { at: number, ..Event::now(Kind::Sent, Ids::first("m")) }
    }

    #[tokio::test]
    async fn a_slow_reader_loses_the_oldest_events_and_is_told_how_many() {
        let events = Events::new();
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
