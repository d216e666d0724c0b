//! The embedded SQS with the queues of the command.

use std::time::Duration;

use axum::Router;
use requeue::Clock;
use requeue::embedded::{EmbeddedSqs, MessageState, MessageView, Server};
use requeue::queue::QueueArn;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::interval;

use super::Arguments;
use crate::dlq::DeadLetters;
use crate::dlq::sqs::Sqs;
use crate::local_sqs::{ServedQueue, dead_letters_of, taken, variables};
use crate::observe::{Event, Events, Ids, Kind, of_body};
use crate::output::outln;
use crate::ui::{DeadLetterScreen, LivePause, LiveState, Site, live_routes};
use crate::{Error, bail};

pub(super) struct ServedSqs {
    pub(super) embedded: EmbeddedSqs,
    pub(super) server: Server,
    /// At least one.
    pub(super) queues: Vec<ServedQueue>,
}

/// An error if two queues have the same name, dead-letter queues included.
pub(super) fn check_names(queues: &[String]) -> Result<(), Error> {
    for (at, name) in queues.iter().enumerate() {
        let of_other = queues.iter().find(|other| dead_letters_of(other) == *name);
        if queues[..at].contains(name) {
            bail!("--queue {name} stands twice; remove one of them");
        }
        if let Some(other) = of_other {
            bail!(
                "--queue {name} is the dead-letter queue of --queue {other}; choose another name"
            );
        }
    }
    Ok(())
}

impl ServedSqs {
    pub(super) async fn open(arguments: &Arguments) -> Result<Self, Error> {
        let embedded = EmbeddedSqs::new(Clock::system());
        let (receives, visibility) = (arguments.max_receive_count, arguments.visibility_timeout());
        let queues = arguments
            .queues
            .iter()
            .map(|name| ServedQueue::create(&embedded, name, receives, visibility));
        let queues = queues.collect::<Result<_, _>>()?;
        let server = embedded.serve(arguments.sqs_port).await;
        let server = server.map_err(|error| taken(arguments.sqs_port, "--sqs-port", &error))?;
        Ok(Self { embedded, server, queues })
    }

    pub(super) async fn site(&self, watched: Option<&Watched>) -> Result<Site, Error> {
        let mut dead_letters = Vec::new();
        for ServedQueue { queue, dead_letters: of } in &self.queues {
            let sqs = Sqs::new(self.embedded.client());
            let of = DeadLetters::of(sqs, of, Some(queue)).await?;
            dead_letters.push(DeadLetterScreen::of(of));
        }
        Ok(Site { dead_letters, live: watched.map(Watched::routes), ..Site::default() })
    }

    /// Reports messages as they arrive. `note` is called with each, and with the queue in which it
    /// arrived or, if it `is_dead`, the queue of its dead-letter queue.
    pub(super) fn follow_arrivals(
        &self,
        events: Option<Events>,
        note: impl Fn(&ServedQueue, &MessageView, bool) + Send + Sync + 'static,
    ) {
        let queues = self.queues.clone();
        self.embedded.on_arrival(move |name, message| {
            let named = |queue: &QueueArn| queue.name() == name;
            let found = queues.iter().find(|of| named(&of.queue) || named(&of.dead_letters));
            let Some(of) = found else { return };
            let is_dead = named(&of.dead_letters);
            if let Some(events) = &events {
                arrived(events, message, is_dead);
            }
            note(of, message, is_dead);
        });
    }

    pub(super) fn show(
        &self,
        endpoint: Option<&TcpListener>,
        namespace: Option<&str>,
    ) -> Result<(), Error> {
        let url = self.server.url();
        if let Some(listener) = endpoint {
            outln!("endpoint      http://{}/orders", listener.local_addr()?)?;
        }
        outln!("SQS           {url}")?;
        for ServedQueue { queue, dead_letters } in &self.queues {
            outln!("queue         {}", queue.url_at(&url))?;
            outln!("dead letters  {}", dead_letters.url_at(&url))?;
        }
        let namespace = namespace.map(|name| format!(" REQUEUE_NAMESPACE={name}"));
        outln!("{}{}", variables(&url), namespace.unwrap_or_default())?;
        Ok(())
    }
}

const WAITING: &str = "ApproximateNumberOfMessages";
pub(super) const LOOK: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Watched {
    pub(super) events: Events,
    state: watch::Sender<LiveState>,
}

impl Watched {
    pub(super) fn routes(&self) -> Router {
        live_routes(self.events.clone(), self.state.subscribe())
    }

    /// Reports the counts of the queues again and again, and the pauses of a target. `source` names the
    /// events' source.
    pub(super) fn keep_counting<P: Fn() -> Option<Vec<LivePause>>>(
        self,
        source: &'static str,
        ServedSqs { embedded, queues, .. }: &ServedSqs,
        pauses: P,
    ) -> impl Future<Output = ()> + use<P> {
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
                    pauses: pauses(),
                    ..LiveState::default()
                });
            }
        }
    }
}

fn arrived(events: &Events, message: &MessageView, is_dead: bool) {
    let (ids, _, why) = of_body(&message.id, &message.body);
    let kind = match is_dead {
        true => Kind::Dead,
        false if ids.own == ids.original => Kind::Sent,
        false => Kind::Copied,
    };
    let delay = delay(message).map(|delay| delay.as_secs());
    events.publish(Event { delay, ..Event::now(kind, ids).reason(why.as_deref()) });
}

pub(super) fn delay(message: &MessageView) -> Option<Duration> {
    let MessageState::DelayedUntil(until) = message.state else { return None };
    until.duration_since(message.sent).ok()
}

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

/// Reports which messages SQS keeps after an invocation; the others are deleted.
pub(super) fn acknowledged(events: &Events, batch: Vec<Ids>, kept: &[&str], error: Option<&str>) {
    for ids in batch {
        let kind = if kept.contains(&ids.own.as_str()) { Kind::Kept } else { Kind::Deleted };
        events.publish(Event::now(kind, ids).reason(error));
    }
}
