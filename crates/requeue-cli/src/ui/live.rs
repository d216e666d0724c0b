//! The screen "Live": the events and the state of the worker or function in this process, or of a
//! deployed function, by its log (messages that did not complete) and its metrics (counts).

use std::collections::HashMap;
use std::time::Duration;

use axum::Router;
use axum::response::Response;
use axum::routing::get;
use futures_util::{Stream, stream};
use http::Uri;
use requeue::{Clock, Deferral, Mode, Progress, Scope, ScopePause};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;
use uuid::Uuid;

use super::server;
use crate::Error;
use crate::doctor::Clients;
use crate::function::LogEvent;
use crate::observe::{Downstream, Event, Events, Kind, LogLine, Reader, epoch_millis, millis};
use crate::queue_argument::RegionArgument;
use crate::stop::Stop;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LiveState {
    /// `worker`, `function` or `queue`: the source of the events.
    pub(crate) source: &'static str,
    pub(crate) queue: String,
    pub(crate) target: Option<String>,
    /// Approximate numbers of messages, as SQS counts them.
    pub(crate) waiting: Option<u64>,
    pub(crate) in_flight: Option<u64>,
    pub(crate) delayed: Option<u64>,
    pub(crate) dead: Option<u64>,
    pub(crate) rate: Option<u64>,
    pub(crate) counts: Option<LiveCounts>,
    /// `None` if the pauses and circuits are inside a function, whose log reports them.
    pub(crate) pauses: Option<Vec<LivePause>>,
    pub(crate) troubles: Vec<String>,
    /// The next step for dead-lettered messages.
    pub(crate) dead_lettered: Option<&'static str>,
    pub(crate) is_ending: bool,
    pub(crate) has_ended: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LiveCounts {
    pub(crate) received: u64,
    pub(crate) done: u64,
    /// Those that SQS has not confirmed as deleted, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) not_deleted: Option<u64>,
    pub(crate) retried: u64,
    pub(crate) dead: u64,
    pub(crate) deferred: u64,
    /// In the mode `report`: the receives after which SQS delivers the message again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) left: Option<u64>,
}

impl LiveCounts {
    pub(crate) fn of(progress: &Progress, mode: Mode) -> Self {
        let Progress { received, completed, requeued, dead_lettered, waiting, not_deleted, .. } =
            *progress;
        Self {
            received,
            done: completed,
            not_deleted: Some(not_deleted).filter(|count| *count > 0),
            retried: requeued,
            dead: dead_lettered,
            deferred: waiting,
            left: (mode == Mode::Report).then_some(waiting),
        }
    }
}

pub(crate) const MAX_PAUSES: usize = 50;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LivePause {
    pub(crate) scope: Scope,
    pub(crate) why: Deferral,
    pub(crate) rest: Duration,
    pub(crate) reason: Option<String>,
}

impl LivePause {
    pub(crate) fn all(pauses: &[ScopePause], downstream: &Downstream) -> Vec<Self> {
        let shown = |pause: &ScopePause| Self {
            scope: pause.scope,
            why: pause.reason,
            rest: pause.rest,
            reason: downstream.cause(pause.scope, pause.reason).map(str::to_owned),
        };
        pauses.iter().map(shown).collect()
    }
}

impl Serialize for LivePause {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (scope, why) = (self.scope.to_string(), self.why.as_str());
        let rest = millis(self.rest);
        json!({ "scope": scope, "why": why, "restMs": rest, "reason": self.reason })
            .serialize(serializer)
    }
}

pub(crate) fn live_routes(events: Events, state: watch::Receiver<LiveState>) -> Router {
    // The numbers of events begin at 0 with each start.
    let run = Uuid::new_v4().simple().to_string();
    let follow = get(async move |uri: Uri| -> Response {
        let after = position(&uri).filter(|(of, _)| *of == run);
        let reader = events.read_from(after.map_or(0, |(_, next)| next));
        server::events(follow(reader, state, run))
    });
    Router::new().route("/events", follow)
}

/// The position from which a page continues after a break, of `?run=…&next=…`.
fn position(uri: &Uri) -> Option<(&str, u64)> {
    let pairs =
        || uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    let value = |wanted| pairs().find(|(name, _)| *name == wanted).map(|(_, value)| value);
    Some((value("run")?, value("next")?.parse().ok()?))
}

/// The state and the events: first those that are there, and then each change.
fn follow(
    reader: Reader,
    mut state: watch::Receiver<LiveState>,
    run: String,
) -> impl Stream<Item = String> {
    state.mark_changed();
    stream::unfold((reader, state, run), async |(mut reader, mut state, run)| {
        let item = tokio::select! {
            biased;
            Ok(()) = state.changed() => json!({ "state": *state.borrow_and_update() }),
            batch = reader.next() => json!({
                "run": run,
                "next": batch.next,
                "missed": batch.missed,
                "events": batch.events.iter().map(|event| &**event).collect::<Vec<_>>(),
            }),
        };
        Some((item.to_string(), (reader, state, run)))
    })
}

/// The interval between two looks at the log. CloudWatch Logs allows five requests a second for an
/// account and region. Source: CloudWatch Logs user guide, "CloudWatch Logs quotas".
const LOOK: Duration = Duration::from_secs(5);
/// The first look begins this long ago.
const BEFORE: Duration = Duration::from_mins(10);
/// A line may be this much later than its time.
const LATE: Duration = Duration::from_secs(30);
/// Most requests of one look: up to 10,000 lines each.
const MAX_REQUESTS: u32 = 10;

pub(super) struct FunctionLog {
    clients: Clients,
    group: String,
    events: Events,
    state: watch::Sender<LiveState>,
    counts: LiveCounts,
    /// The time of the latest line, in milliseconds since 1970.
    latest: u64,
    /// The ids and times of the lines that the next look may see again.
    seen: HashMap<String, u64>,
}

impl FunctionLog {
    pub(super) async fn find(name: &str, region: &RegionArgument) -> Result<Self, Error> {
        let sdk = crate::sdk::config().await;
        let clients = Clients::new(&sdk, region.of_function(name, &sdk));
        let configuration = clients.configuration(name).await?;
        let queue = configuration.function_name.unwrap_or_else(|| name.to_owned());
        let group = configuration.logging_config.unwrap_or_default().group_of(&queue);
        let state = LiveState { source: "log", queue, ..LiveState::default() };
        Ok(Self {
            clients: clients.quiet(),
            group,
            events: Events::default(),
            state: watch::Sender::new(state),
            counts: LiveCounts::default(),
            latest: epoch_millis(Clock::system().now()).saturating_sub(millis(BEFORE)),
            seen: HashMap::new(),
        })
    }

    pub(super) fn routes(&self) -> Router {
        live_routes(self.events.clone(), self.state.subscribe())
    }

    pub(super) async fn follow(mut self, stop: &Stop) {
        loop {
            let trouble = tokio::select! {
                trouble = self.look() => trouble,
                () = stop.told() => return,
            };
            self.state.send_modify(|state| {
                state.counts = Some(self.counts.clone());
                state.troubles = trouble.into_iter().collect();
            });
            tokio::select! {
                () = sleep(LOOK) => {}
                () = stop.told() => return,
            }
        }
    }

    async fn look(&mut self) -> Option<String> {
        let since = self.latest.saturating_sub(millis(LATE));
        self.seen.retain(|_, at| *at >= since);
        let read = self.clients.log_lines(&self.group, since, None, MAX_REQUESTS).await;
        let (lines, is_all) = match read {
            Ok(read) => read,
            Err(unread) if unread.error.code == "ResourceNotFoundException" => {
                let group = &self.group;
                return Some(format!(
                    "there is no log group {group}: the function wrote nothing yet"
                ));
            }
            Err(unread) => return Some(self.clients.told(&unread)),
        };
        for line in &lines {
            self.take(line);
        }
        (!is_all).then(|| {
            format!(
                "{} has more lines than {MAX_REQUESTS} requests of a look can read: the later ones \
                 follow, or are left out",
                self.group
            )
        })
    }

    fn take(&mut self, line: &LogEvent) {
        if self.seen.insert(line.event_id.clone(), line.timestamp).is_some() {
            return;
        }
        self.latest = self.latest.max(line.timestamp);
        let text = line.message.trim();
        if !text.starts_with('{') {
            return;
        }
        let Some(event) = LogLine::read(text).and_then(|line| line.event(None)) else {
            return count(&mut self.counts, text);
        };
        let event = Event { at: line.timestamp, ..event };
        // A line is written once its copy is sent.
        let copy = event.delay.map(|_| Event {
            kind: Kind::Copied,
            class: None,
            attempt: None,
            reason: None,
            elapsed_ms: None,
            ..event.clone()
        });
        [Some(event), copy].into_iter().flatten().for_each(|event| self.events.publish(event));
    }
}

fn count(counts: &mut LiveCounts, line: &str) {
    let Ok(line) = serde_json::from_str::<Value>(line) else { return };
    // The metrics of a class are in those of the batch too.
    if !line["_aws"].is_object() || line["Class"].is_string() {
        return;
    }
    let value = |name: &str| line[name].as_u64().unwrap_or_default();
    counts.received += value("Received");
    counts.done += value("Completed");
    counts.retried += value("Requeued");
    counts.deferred += value("Deferred") + value("Released");
    counts.dead += value("DeadLettered");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_goes_on_where_it_was_only_in_the_same_run() {
        for (query, expected) in [
            ("/events?run=a&next=7", Some(("a", 7))),
            ("/events?next=7&run=a", Some(("a", 7))),
            ("/events?run=a&next=-1", None),
            ("/events?next=7", None),
            ("/events", None),
        ] {
            let uri: Uri = query.parse().expect("a URI");
            assert_eq!(position(&uri), expected, "{query}");
        }
    }
}
