//! The screen "Live" for a deployed function: its log tells of the messages that did not complete, and
//! its metrics tell the counts. The log is all that it has, so the screen is called partial.

use std::collections::HashMap;
use std::time::Duration;

use axum::Router;
use requeue::Clock;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::sleep;

use super::live::{LiveCounts, LiveState, live_routes};
use crate::Error;
use crate::endpoints::shown_endpoint;
use crate::failed_call::{FailedCall, call_error};
use crate::function::{DeployedFunction, LogEvent, log_events};
use crate::observe::{Event, Events, Kind, LogLine, epoch_millis, millis};
use crate::queue_argument::RegionArgument;
use crate::stop::Stop;

/// The interval between two looks at the log. CloudWatch Logs allows five requests a second for an
/// account and region. Source: CloudWatch Logs user guide, "CloudWatch Logs quotas".
const LOOK: Duration = Duration::from_secs(5);
/// The first look goes back so far.
const BEFORE: Duration = Duration::from_mins(10);
/// A line may come so much later than its time.
const LATE: Duration = Duration::from_secs(30);
/// Most requests of one look: up to 10,000 lines each.
const MAX_REQUESTS: u32 = 10;

pub(super) struct FunctionLog {
    function: DeployedFunction,
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
        let function = DeployedFunction::find(name, region).await?;
        let state =
            LiveState { source: "log", queue: function.name.clone(), ..LiveState::default() };
        Ok(Self {
            group: function.log_group(),
            function,
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
        let mut token = None;
        for _ in 0..MAX_REQUESTS {
            match log_events(&self.function.sdk, &self.group, since, None, token.as_deref()).await {
                Ok(lines) => {
                    lines.events.iter().for_each(|line| self.take(line));
                    token = Some(lines.next_token?);
                }
                Err(error) => return Some(self.trouble(&call_error(&error))),
            }
        }
        Some(format!(
            "{} has more lines than {MAX_REQUESTS} requests of a look can read: the later ones \
             follow, or are left out",
            self.group
        ))
    }

    fn trouble(&self, error: &requeue::queue::CallError) -> String {
        if error.code == "ResourceNotFoundException" {
            return format!("there is no log group {}: the function wrote nothing yet", self.group);
        }
        let service = "CloudWatch Logs";
        let endpoint = &shown_endpoint(service, &self.function.sdk);
        let resource = &self.group;
        FailedCall { service, operation: "FilterLogEvents", resource, endpoint, error }.to_string()
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
