//! The screen "Live": the events and the state of the worker or function in this process.

use std::time::Duration;

use axum::Router;
use axum::response::Response;
use axum::routing::get;
use futures_util::{Stream, stream};
use http::Uri;
use requeue::{Deferral, Mode, Progress, Scope};
use serde::{Serialize, Serializer};
use serde_json::json;
use tokio::sync::watch;
use uuid::Uuid;

use super::server;
use crate::observe::{Events, Reader, millis};

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
    /// `None` if the pauses and circuits are inside a function, whose log tells of them.
    pub(crate) pauses: Option<Vec<LivePause>>,
    pub(crate) troubles: Vec<String>,
    /// What becomes of the messages that were dead-lettered.
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LivePause {
    pub(crate) scope: Scope,
    pub(crate) why: Deferral,
    /// The time until messages probe.
    pub(crate) rest: Duration,
    pub(crate) reason: Option<String>,
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
    // The numbers of events begin anew with each start.
    let run = Uuid::new_v4().simple().to_string();
    let follow = get(async move |uri: Uri| -> Response {
        let after = position(&uri).filter(|(of, _)| *of == run);
        let reader = events.read_from(after.map_or(0, |(_, next)| next));
        server::events(follow(reader, state, run))
    });
    Router::new().route("/events", follow)
}

/// The place from which a page goes on after a break, of `?run=…&next=…`.
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
