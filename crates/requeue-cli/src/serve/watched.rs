//! The events and the state of the embedded SQS and of the function, for the page.

use std::time::Duration;

use axum::Router;
use requeue::embedded::{EmbeddedSqs, MessageState, MessageView};
use requeue::queue::QueueArn;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::interval;

use super::served::{ServedQueue, ServedSqs};
use crate::observe::{Event, Events, Ids, Kind, of_body};
use crate::ui::{LiveState, live_routes};

const WAITING: &str = "ApproximateNumberOfMessages";

const LOOK: Duration = Duration::from_secs(1);

pub(super) struct Watched {
    pub(super) events: Events,
    state: watch::Sender<LiveState>,
}

impl Watched {
    pub(super) fn new() -> Self {
        Self { events: Events::new(), state: watch::Sender::default() }
    }

    pub(super) fn routes(&self) -> Router {
        live_routes(self.events.clone(), self.state.subscribe())
    }

    /// Tells of messages as they come, if no poller does.
    pub(super) fn follow_arrivals(&self, sqs: &EmbeddedSqs, queues: &[ServedQueue]) {
        let (events, queues) = (self.events.clone(), queues.to_vec());
        sqs.on_arrival(move |queue, message| {
            if let Some((_, is_dead)) = ServedQueue::find(&queues, queue) {
                arrived(&events, message, is_dead);
            }
        });
    }

    /// Tells the counts of the queues again and again. `source` names the events' source.
    pub(super) fn keep_counting(
        self,
        source: &'static str,
        ServedSqs { embedded, queues, .. }: &ServedSqs,
    ) -> impl Future<Output = ()> + use<> {
        let (sqs, queues) = (embedded.clone(), queues.clone());
        async move {
            let number = |queue: &QueueArn, name: &str| -> Option<u64> {
                sqs.attributes(queue).ok()?.get(name)?.parse().ok()
            };
            // Of all queues together.
            let count = |name| queues.iter().map(|served| number(&served.queue, name)).sum();
            let names: Vec<&str> = queues.iter().map(|served| served.queue.name()).collect();
            let mut ticks = interval(LOOK);
            loop {
                ticks.tick().await;
                self.state.send_replace(LiveState {
                    source,
                    queue: names.join(", "),
                    waiting: count(WAITING),
                    in_flight: count("ApproximateNumberOfMessagesNotVisible"),
                    delayed: count("ApproximateNumberOfMessagesDelayed"),
                    dead: queues.iter().map(|served| number(&served.dead_letters, WAITING)).sum(),
                    ..LiveState::default()
                });
            }
        }
    }
}

/// Tells of a message that came into the queue or, if it `is_dead`, into the dead-letter queue.
pub(super) fn arrived(events: &Events, message: &MessageView, is_dead: bool) {
    let (ids, _, why) = of_body(&message.id, &message.body);
    let kind = match is_dead {
        true => Kind::Dead,
        false if ids.own == ids.original => Kind::Sent,
        false => Kind::Copied,
    };
    let event = Event::now(kind, ids).reason(why.as_deref());
    events.publish(match message.state {
        MessageState::DelayedUntil(until) => {
            event.delay(until.duration_since(message.sent).unwrap_or_default())
        }
        MessageState::Visible | MessageState::InFlightUntil(_) => event,
    });
}

/// Tells of the messages of a batch, as the function gets it, and returns their ids.
pub(super) fn received(events: &Events, event: &Value) -> Vec<Ids> {
    let records = event["Records"].as_array().map(Vec::as_slice).unwrap_or_default();
    let received = records.iter().map(|record| {
        let text = |name: &str| record[name].as_str().unwrap_or_default();
        let (ids, retries, _) = of_body(text("messageId"), text("body"));
        let attempt = Some(retries.unwrap_or_default().saturating_add(1));
        events.publish(Event { attempt, ..Event::now(Kind::Received, ids.clone()) });
        ids
    });
    received.collect()
}

/// Tells which messages SQS keeps after an invocation; the others are deleted.
pub(super) fn acknowledged(events: &Events, batch: Vec<Ids>, kept: &[&str], error: Option<&str>) {
    for ids in batch {
        let kind = if kept.contains(&ids.own.as_str()) { Kind::Kept } else { Kind::Deleted };
        events.publish(Event::now(kind, ids).reason(error));
    }
}
