//! The result of a run, as rows of a table and as JSON.

use std::collections::BTreeSet;
use std::time::Duration;

use requeue::policy::RateLimit;
use serde_json::{Value, json};

use super::calls::{Calls, allowed, rate};
use crate::table::duration;

/// The result of a run.
pub(super) struct RateFigures {
    pub(super) calls: usize,
    /// Until the last call.
    pub(super) took: Duration,
    /// The calls in a second, as a part of the limit.
    throughput: f64,
    /// Lengths of windows, with the most calls in one and the most that the limit allows.
    windows: [(Duration, usize, u64); 3],
    /// The calls above the limit, in the worst window of any length.
    above: f64,
    /// Of the messages on time.
    disorder: Disorder,
    /// The late messages, and how long at most one was called after a later one.
    late: (usize, Duration),
    /// The longest wait of another tenant's message.
    tenant_wait: Option<Duration>,
    pub(super) counts: RunCounts,
    messages: u32,
    sqs_requests: u64,
    store_requests: Option<u64>,
    by_second: Vec<u32>,
}

/// How long messages are called after later ones.
struct Disorder {
    most: Duration,
    /// Of 99 in 100 messages.
    nearly_all: Duration,
}

/// The counts of dispositions.
#[derive(Clone, Copy, Default)]
pub(super) struct RunCounts {
    pub(super) deferrals: u64,
    /// Deferrals since the table took no request, or gave no answer.
    pub(super) put_off: u64,
    /// The calls that the service refused, if it refuses any.
    pub(super) refused: Option<u64>,
}

/// The requests of a run.
pub(super) struct Requests {
    pub(super) sqs: u64,
    pub(super) store: Option<u64>,
}

impl RateFigures {
    pub(super) fn of(
        calls: &Calls,
        limit: &RateLimit,
        messages: u32,
        late: &BTreeSet<u32>,
        tenants: &[Duration],
        counts: RunCounts,
        requests: &Requests,
    ) -> Self {
        let took = calls.last();
        let [disorder, late] = calls.disorder(messages, late);
        let windows = [1, 10, 60].map(|periods| {
            let window = limit.period * periods;
            (window, calls.most_within(window), allowed(limit, window))
        });
        Self {
            calls: calls.count(),
            took,
            throughput: number(calls.count()) / took.as_secs_f64().max(1e-3) / rate(limit),
            windows,
            above: calls.most_above(limit),
            disorder: Disorder {
                most: disorder.last().copied().unwrap_or_default(),
                nearly_all: disorder
                    .get(disorder.len().saturating_sub(1) * 99 / 100)
                    .copied()
                    .unwrap_or_default(),
            },
            late: (late.len(), late.last().copied().unwrap_or_default()),
            tenant_wait: tenants.iter().max().copied(),
            counts,
            messages: messages + u32::try_from(tenants.len()).unwrap_or(u32::MAX),
            sqs_requests: requests.sqs,
            store_requests: requests.store,
            by_second: calls.by_second(),
        }
    }

    pub(super) fn by_second(&self) -> &[u32] {
        &self.by_second
    }

    pub(super) fn json(&self) -> Value {
        let windows = self.windows.map(|(window, most, allowed)| {
            json!({ "seconds": window.as_secs(), "mostCalls": most, "allowed": allowed })
        });
        json!({
            "calls": self.calls,
            "seconds": self.took.as_secs_f64(),
            "throughputOfLimit": self.throughput,
            "windows": windows,
            "callsAboveLimit": self.above,
            "refusedOfCalls": self.refused(),
            "mostSecondsOutOfOrder": self.disorder.most.as_secs_f64(),
            "secondsOutOfOrderOf99Percent": self.disorder.nearly_all.as_secs_f64(),
            "lateMessages": self.late.0,
            "mostSecondsOutOfOrderOfLate": self.late.1.as_secs_f64(),
            "longestWaitOfOtherTenantsSeconds": self.tenant_wait.map(|wait| wait.as_secs_f64()),
            "deferralsPerMessage": self.per_message(self.counts.deferrals),
            "putOff": self.counts.put_off,
            "sqsRequestsPerMessage": self.per_message(self.sqs_requests),
            "storeRequestsPerMessage": self.store_requests.map(|count| self.per_message(count)),
            "callsBySecond": self.by_second,
        })
    }

    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    fn per_message(&self, count: u64) -> f64 {
        count as f64 / f64::from(self.messages)
    }

    /// The part of the calls that the service refused.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    fn refused(&self) -> Option<f64> {
        self.counts.refused.map(|refused| refused as f64 / number(self.calls.max(1)))
    }

    fn window(&self, at: usize) -> String {
        let (_, most, allowed) = self.windows[at];
        format!("{most} of {allowed}")
    }

    /// The rows: names and values.
    pub(super) fn rows(&self) -> Vec<(String, String)> {
        let window = |at: usize| {
            let (window, ..) = self.windows[at];
            (format!("  most in any {}, of those allowed", duration(window)), self.window(at))
        };
        let store = self.store_requests.map(|count| format!("{:.2}", self.per_message(count)));
        let mut rows = vec![
            ("until the last call".to_owned(), duration(self.took)),
            ("calls".to_owned(), self.calls.to_string()),
            window(0),
            window(1),
            window(2),
            (
                "  above limit × time + burst, in any window".to_owned(),
                format!("{:.1}", self.above),
            ),
            ("throughput".to_owned(), format!("{:.1} % of the limit", self.throughput * 100.0)),
            (
                "called after a later message, at most".to_owned(),
                format!(
                    "{:.1} s, of 99 % {:.1} s",
                    self.disorder.most.as_secs_f64(),
                    self.disorder.nearly_all.as_secs_f64()
                ),
            ),
            (
                "  late messages, which do not count".to_owned(),
                match self.late {
                    (0, _) => "0".to_owned(),
                    (count, most) => format!("{count}, at most {:.1} s", most.as_secs_f64()),
                },
            ),
            (
                "deferrals for each message".to_owned(),
                format!("{:.2}", self.per_message(self.counts.deferrals)),
            ),
            ("  put off for the table".to_owned(), self.counts.put_off.to_string()),
            (
                "requests to SQS for each message".to_owned(),
                format!("{:.2}", self.per_message(self.sqs_requests)),
            ),
            (
                "requests to the table for each message".to_owned(),
                store.unwrap_or_else(|| "none".to_owned()),
            ),
        ];
        if let Some(refused) = self.refused() {
            let row = ("  refused".to_owned(), format!("{:.1} % of the calls", refused * 100.0));
            rows.insert(2, row);
        }
        if let Some(wait) = self.tenant_wait {
            rows.push((
                "longest wait of another tenant".to_owned(),
                format!("{:.2} s", wait.as_secs_f64()),
            ));
        }
        rows
    }
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn number(count: usize) -> f64 {
    count as f64
}
