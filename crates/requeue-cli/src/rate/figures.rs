//! The result of a run.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;

use super::Arguments;
use super::calls::{Calls, allowed, rate};
use crate::simulated::Figures;
use crate::table::{decimal, span, thousands};

#[derive(Clone, Copy, Default)]
pub(super) struct RunCounts {
    pub(super) deferrals: u64,
    /// Those of the backlog's messages.
    pub(super) deferrals_of_backlog: u64,
    /// Deferrals since the table took no request, or gave no answer.
    pub(super) defer_for_table: u64,
    /// The calls that the service refused, if it refuses any.
    pub(super) refused: Option<u64>,
    /// The requests to SQS, and to the table if there is one.
    pub(super) sqs_requests: u64,
    pub(super) table_requests: Option<u64>,
}

/// `late` messages do not count for the order, and `waits` are those of other tenants.
pub(super) fn of(
    calls: &Calls,
    arguments: &Arguments,
    late: &BTreeSet<u32>,
    mut waits: Vec<Duration>,
    counts: RunCounts,
) -> Figures {
    let (limit, messages) = (&arguments.rate_limit(), arguments.messages);
    waits.sort_unstable();
    let took = calls.last();
    let [disorder, late] = calls.disorder(messages, arguments.tenants_of_backlog(), late);
    let throughput = number(calls.count()) / took.as_secs_f64().max(1e-3) / rate(limit);
    let refused = counts.refused.map(|refused| float(refused) / number(calls.count().max(1)));
    let all = f64::from(messages) + number(waits.len());
    let table_requests = counts.table_requests.map(|requests| float(requests) / all);

    let mut of = Figures::default();
    of.row("until the last call", span(took));
    of.value("seconds", took.as_secs_f64());
    of.count("calls", "calls", calls.count());
    of.value("refusedOfCalls", refused);
    if let Some(refused) = refused {
        of.row("  refused, in %", decimal(refused * 100.0, 1));
    }
    let windows = [1, 10, 60].map(|periods| {
        let window = limit.period * periods;
        let (most, allowed) = (calls.most_within(window), allowed(limit, window));
        let head = format!("  most in any {}, of {} allowed", span(window), thousands(allowed));
        of.row(head, thousands(most));
        json!({ "seconds": window.as_secs(), "mostCalls": most, "allowed": allowed })
    });
    of.value("windows", &windows[..]);
    let above = calls.most_above(limit);
    of.decimal("  above limit × time + burst, in any window", "callsAboveLimit", above, 1);
    of.row("throughput, in % of the limit", decimal(throughput * 100.0, 1));
    of.value("throughputOfLimit", throughput);
    let head = "called after a later message, by seconds";
    of.decimal(head, "mostSecondsOutOfOrder", most(&disorder), 1);
    let head = "  of 99 % of the messages, by seconds";
    of.decimal(head, "secondsOutOfOrderOf99Percent", most(nearly_all(&disorder)), 1);
    of.count("  late messages, which do not count", "lateMessages", late.len());
    let head = "    called after a later message, by seconds";
    of.decimal(head, "mostSecondsOutOfOrderOfLate", most(&late), 1);
    let deferrals = float(counts.deferrals) / all;
    of.decimal("deferrals for each message", "deferralsPerMessage", deferrals, 2);
    if arguments.has_shares() {
        let deferrals = float(counts.deferrals_of_backlog) / f64::from(messages);
        of.decimal("  of the backlog", "deferralsPerMessageOfBacklog", deferrals, 2);
    }
    of.count("  deferred for the table", "putOff", counts.defer_for_table);
    let requests = float(counts.sqs_requests) / all;
    of.decimal("requests to SQS for each message", "sqsRequestsPerMessage", requests, 2);
    let shown = table_requests.map_or_else(|| "none".to_owned(), |requests| decimal(requests, 2));
    of.row("requests to the table for each message", shown);
    of.value("tableRequestsPerMessage", table_requests);
    of_tenants(&mut of, calls, arguments, &waits);
    of.value("callsBySecond", calls.by_second());
    of
}

/// How long other tenants wait, and how the tenants of the backlog share the calls.
fn of_tenants(of: &mut Figures, calls: &Calls, arguments: &Arguments, waits: &[Duration]) {
    if arguments.tenants > 0 {
        let head = "longest wait of another tenant, in seconds";
        of.decimal(head, "longestWaitOfOtherTenantsSeconds", most(waits), 2);
        let head = "  of 99 % of their messages";
        of.decimal(head, "waitOf99PercentOfOtherTenantsSeconds", most(nearly_all(waits)), 2);
    }
    let tenants = arguments.tenants_of_backlog();
    if tenants > 1 {
        let shares = calls.shares(arguments.messages, tenants);
        let shown: Vec<_> = shares.iter().map(|share| decimal(share * 100.0, 1)).collect();
        of.row("calls of each tenant while all wait, in %", shown.join(" "));
        of.value("shares", shares);
    }
}

fn most(times: &[Duration]) -> f64 {
    times.last().map_or(0.0, Duration::as_secs_f64)
}

/// Without the longest times, one in a hundred.
fn nearly_all(times: &[Duration]) -> &[Duration] {
    &times[..times.len().min(times.len().saturating_sub(1) * 99 / 100 + 1)]
}

fn number(count: usize) -> f64 {
    float(u64::try_from(count).unwrap_or(u64::MAX))
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn float(count: u64) -> f64 {
    count as f64
}
