//! The result of a run, as rows of a table and as JSON.

use std::collections::BTreeSet;
use std::time::Duration;

use requeue::policy::RateLimit;
use serde_json::{Value, json};

use super::calls::{Calls, allowed, rate};
use crate::simulated::Figures;
use crate::table::{decimal, span, thousands};

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

    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    fn per_message(&self, count: u64) -> f64 {
        count as f64 / f64::from(self.messages)
    }

    /// The part of the calls that the service refused.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    fn refused(&self) -> Option<f64> {
        self.counts.refused.map(|refused| refused as f64 / number(self.calls.max(1)))
    }
}

impl Figures for RateFigures {
    fn rows(&self) -> Vec<(String, String)> {
        let seconds = |time: Duration| decimal(time.as_secs_f64(), 1);
        let per_message = |count| decimal(self.per_message(count), 2);
        let windows = self.windows.map(|(window, most, allowed)| {
            let name = format!("  most in any {}, of {} allowed", span(window), thousands(allowed));
            (name, thousands(most))
        });
        let row = |name: &str, value: String| (name.to_owned(), value);
        let mut rows =
            vec![row("until the last call", span(self.took)), row("calls", thousands(self.calls))];
        let refused = self.refused();
        rows.extend(refused.map(|part| row("  refused, in %", decimal(part * 100.0, 1))));
        rows.extend(windows);
        rows.extend([
            row("  above limit × time + burst, in any window", decimal(self.above, 1)),
            row("throughput, in % of the limit", decimal(self.throughput * 100.0, 1)),
            row("called after a later message, by seconds", seconds(self.disorder.most)),
            row("  of 99 % of the messages, by seconds", seconds(self.disorder.nearly_all)),
            row("  late messages, which do not count", thousands(self.late.0)),
            row("    called after a later message, by seconds", seconds(self.late.1)),
            row("deferrals for each message", per_message(self.counts.deferrals)),
            row("  put off for the table", thousands(self.counts.put_off)),
            row("requests to SQS for each message", per_message(self.sqs_requests)),
            row(
                "requests to the table for each message",
                self.store_requests.map_or_else(|| "none".to_owned(), per_message),
            ),
        ]);
        let wait = self.tenant_wait.map(|wait| decimal(wait.as_secs_f64(), 2));
        rows.extend(wait.map(|wait| row("longest wait of another tenant, in seconds", wait)));
        rows
    }
    fn json(&self) -> Value {
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
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn number(count: usize) -> f64 {
    count as f64
}
