//! The figures of a run, for the terminal and as JSON, and the bounds that it broke.

use std::time::Duration;

use serde_json::Value;

use super::Arguments;
use super::calls::{Calls, float};
use super::limits::Bound;
use crate::simulated::Figures;
use crate::table::{decimal, span};

#[derive(Clone, Copy, Default)]
pub(super) struct RunCounts {
    pub(super) deferrals: u64,
    /// Those of the backlog's messages.
    pub(super) deferrals_of_backlog: u64,
    /// Deferrals since the table throttled, or gave no response.
    pub(super) defer_for_table: u64,
    /// The calls that the service refused, if it refuses any.
    pub(super) refused: Option<u64>,
    /// The requests to SQS, and to the table if there is one.
    pub(super) sqs_requests: u64,
    pub(super) table_requests: Option<u64>,
}

/// The calls of a run, as the first limit counts them, and the bounds that they broke.
pub(crate) struct Kept {
    pub(super) calls: Calls,
    pub(super) broken: Vec<String>,
}

/// `tenant` is that of a message, and `waits` are those of the other tenants' messages.
pub(super) fn figures(
    arguments: &Arguments,
    bounds: &[Bound],
    calls: &Calls,
    tenant: impl Fn(u32) -> usize,
    mut waits: Vec<Duration>,
    counts: RunCounts,
) -> (Figures, Kept) {
    let messages = arguments.messages;
    waits.sort_unstable();
    let took = calls.last();
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
    let (mut keys, mut broken) = (Vec::new(), Vec::new());
    for bound in bounds {
        let sender = |message| if bound.is_of_key() { tenant(message) } else { 0 };
        let values = calls.by(sender, |units| bound.units(units));
        let kept = bound.add(&mut of, &values, &mut broken);
        if bound.is_of_key() {
            keys.push(Value::Object(kept));
        } else {
            kept.into_iter().for_each(|(name, value)| of.value(&name, value));
        }
    }
    of.value("keys", keys);
    let deferrals = float(counts.deferrals) / all;
    of.decimal("deferrals for each message", "deferralsPerMessage", deferrals, 2);
    if arguments.has_shares() {
        let deferrals = float(counts.deferrals_of_backlog) / f64::from(messages);
        of.decimal("  of the backlog", "deferralsPerMessageOfBacklog", deferrals, 2);
    }
    of.count("  deferred for the table", "deferredForTable", counts.defer_for_table);
    let requests = float(counts.sqs_requests) / all;
    of.decimal("requests to SQS for each message", "sqsRequestsPerMessage", requests, 2);
    let shown = table_requests.map_or_else(|| "none".to_owned(), |requests| decimal(requests, 2));
    of.row("requests to the table for each message", shown);
    of.value("tableRequestsPerMessage", table_requests);
    of_tenants(&mut of, calls, arguments, &waits);
    let counted = calls.by(|_| 0, |units| bounds[0].units(units)).swap_remove(0);
    of.value("callsBySecond", counted.by_second());
    (of, Kept { calls: counted, broken })
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
