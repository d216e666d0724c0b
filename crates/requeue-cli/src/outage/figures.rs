//! The result of a run, as rows of a table and as JSON.

use std::time::Duration;

use serde_json::{Value, json};

use crate::simulated::Figures;
use crate::table::{decimal, span, thousands};

/// The result of a run.
pub(super) struct OutageFigures {
    pub(super) calls_while_down: u64,
    pub(super) done_while_down: u64,
    /// Messages done in a second, until the service was back or all were done.
    pub(super) throughput_while_down: f64,
    pub(super) calls_afterwards: u64,
    pub(super) peak: u64,
    pub(super) refused: u64,
    pub(super) drained: Duration,
    /// The ratio to the least time for all messages; `None` if some were not delivered.
    pub(super) ratio: Option<f64>,
    pub(super) retries: u64,
    pub(super) most_retries: u32,
    pub(super) longest_open: Duration,
    pub(super) deferrals: u64,
    pub(super) dead: usize,
    pub(super) requests_per_message: f64,
    /// Whether Lambda delivers: of such runs one has a table.
    pub(super) is_delivered: bool,
    /// Requests to the table, if there is one.
    pub(super) store_requests_per_message: Option<f64>,
}

impl Figures for OutageFigures {
    fn rows(&self) -> Vec<(String, String)> {
        let rows = ROWS.into_iter().chain(self.is_delivered.then_some(TABLE_ROW));
        rows.map(|(name, value)| (name.to_owned(), value(self))).collect()
    }

    fn json(&self) -> Value {
        json!({
            "callsWhileDown": self.calls_while_down,
            "doneWhileDown": self.done_while_down,
            "throughputWhileDown": self.throughput_while_down,
            "callsAfterwards": self.calls_afterwards,
            "peakCallsPerSecond": self.peak,
            "refused": self.refused,
            "drainedSeconds": self.drained.as_secs_f64(),
            "ratio": self.ratio,
            "retries": self.retries,
            "mostRetries": self.most_retries,
            "longestOpenSeconds": self.longest_open.as_secs_f64(),
            "deferrals": self.deferrals,
            "deadLetters": self.dead,
            "requestsPerMessage": self.requests_per_message,
            "storeRequestsPerMessage": self.store_requests_per_message,
        })
    }
}

type OutageRow = (&'static str, fn(&OutageFigures) -> String);

const ROWS: [OutageRow; 14] = [
    ("calls during the outage", |figures| thousands(figures.calls_while_down)),
    ("done during the outage", |figures| thousands(figures.done_while_down)),
    ("  in each second", |figures| decimal(figures.throughput_while_down, 1)),
    ("calls after the outage", |figures| thousands(figures.calls_afterwards)),
    ("  most in one second", |figures| thousands(figures.peak)),
    ("  refused by the rate limit", |figures| thousands(figures.refused)),
    ("until the backlog was gone, after the outage", |figures| seconds(figures.drained)),
    ("  as a multiple of the least time", |figures| {
        figures.ratio.map_or_else(|| NOT_ALL.to_owned(), |ratio| decimal(ratio, 2))
    }),
    ("retries used", |figures| thousands(figures.retries)),
    ("  most for one message", |figures| thousands(figures.most_retries)),
    ("longest time that a circuit was open", |figures| seconds(figures.longest_open)),
    ("deferrals", |figures| thousands(figures.deferrals)),
    ("dead letters", |figures| thousands(figures.dead)),
    ("requests to SQS for each message", |figures| decimal(figures.requests_per_message, 1)),
];

/// The cell of a ratio that would be too good, since some messages were not delivered.
const NOT_ALL: &str = "–";

/// A row for runs of which one has a table.
const TABLE_ROW: OutageRow = ("requests to the table for each message", |figures| {
    let requests = figures.store_requests_per_message;
    requests.map_or_else(|| "none".to_owned(), |requests| decimal(requests, 2))
});

fn seconds(time: Duration) -> String {
    span(Duration::from_secs(time.as_secs()))
}
