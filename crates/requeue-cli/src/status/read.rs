//! Reads the facts of a status: each from the service that has it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::join_all;
use requeue::Clock;
use requeue::queue::{Description, QueueArn};
use serde_json::Value;

use super::{Age, Arguments, Depth, FunctionStatus, METRICS, Status};
use crate::Error;
use crate::config::PREFIX;
use crate::dlq::sqs::Sqs;
use crate::doctor::{Arn, Clients, Invoked, Known, text, unknown};
use crate::function::{FunctionConfiguration, LogEvent, Readiness};
use crate::observe::{
    CIRCUIT_CLOSED_FOR_ALL, CIRCUIT_OPENED_FOR_ALL, Kind, LogLine, epoch_millis,
};
use crate::table::span;

/// SQS writes its metrics each minute, and late. Source: SQS developer guide, "Available CloudWatch
/// metrics for Amazon SQS".
const AGE_SPAN: u32 = 600;
const AGE_PERIOD: u32 = 60;
/// Requests for the lines of a log: up to 1 MB or 10,000 lines each.
const MAX_PAGES: u32 = 10;
/// An outage may fill the log, and its lines come the oldest first: the last ones are read alone then.
const SHORT: Duration = Duration::from_secs(60);
const MAX_FUNCTIONS: usize = 10;

pub(super) struct Reader {
    sqs: Sqs,
    /// `None` at an SQS without AWS's other services.
    clients: Option<Clients>,
    status: Status,
}

impl Reader {
    pub(super) fn new(arguments: &Arguments, sqs: Sqs, clients: Option<Clients>) -> Self {
        let (now, since) = (Clock::system().now(), arguments.since);
        let (queues, functions, unknown) = Default::default();
        Self { sqs, clients, status: Status { now, since, queues, functions, unknown } }
    }

    pub(super) async fn of_function(mut self, invoked: Invoked) -> Result<Status, Error> {
        let queues = invoked.mappings.iter().filter_map(|mapping| text(&mapping["EventSourceArn"]));
        let queues: BTreeSet<String> = queues.collect();
        for queue in queues.iter().filter_map(|queue| queue.parse().ok()) {
            self.queue(&queue).await?;
        }
        self.function(invoked.configuration, &invoked.mappings).await;
        Ok(self.status)
    }

    pub(super) async fn of_queue(mut self, queue: &QueueArn) -> Result<Status, Error> {
        self.queue(queue).await?;
        let Some(clients) = &self.clients else {
            self.tell(
                "oldest message, circuit and failures: this endpoint is an SQS alone; `requeue serve` and \
                 `requeue work` tell of them in their output, and on their page with --ui"
                    .to_owned(),
            );
            return Ok(self.status);
        };
        let consumers = clients.consumers(&queue.to_string()).await;
        let Some(consumers) = self.known("circuit and failures", consumers) else {
            return Ok(self.status);
        };
        let mut functions: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for mapping in consumers {
            if let Some(function) = text(&mapping["FunctionArn"]) {
                functions.entry(function).or_default().push(mapping);
            }
        }
        if functions.is_empty() {
            let name = queue.name();
            self.tell(format!(
                "circuit and failures: {name} invokes no function; a worker tells of them in its \
                 output, and on its page with --ui"
            ));
        }
        for (function, mappings) in functions.into_iter().take(MAX_FUNCTIONS) {
            let Some(clients) = &self.clients else { break };
            match clients.configuration(&function).await {
                Ok(configuration) => self.function(configuration, &mappings).await,
                Err(error) => self.tell(error.to_string()),
            }
        }
        Ok(self.status)
    }

    fn tell(&mut self, unknown: String) {
        self.status.unknown.push(unknown);
    }

    fn known<T>(&mut self, what: &str, fact: Known<T>) -> Option<T> {
        fact.inspect_err(|unread| {
            let (found, remedy) = unknown(unread);
            self.status.unknown.push(format!("{what}: {found}; {remedy}"));
        })
        .ok()
    }

    /// A queue, and its dead-letter queue.
    async fn queue(&mut self, queue: &QueueArn) -> Result<(), Error> {
        let described = self.sqs.describe(queue).await?;
        let dead_letters = described.dead_letter_queue.clone();
        self.depth(described, false).await;
        let Some(dead_letters) = dead_letters else { return Ok(()) };
        match self.sqs.describe(&dead_letters).await {
            Ok(described) => self.depth(described, true).await,
            Err(error) => {
                self.tell(error.to_string());
                let (queue, oldest) = (dead_letters, Age::Unknown);
                let depth = Depth { queue, is_of_dead_letters: true, counts: None, oldest };
                self.status.queues.push(depth);
            }
        }
        Ok(())
    }

    async fn depth(&mut self, described: Description, is_of_dead_letters: bool) {
        let queue = described.arn.clone();
        let oldest =
            if described.messages == 0 { Age::Empty } else { self.oldest(queue.name()).await };
        let counts = Some(described);
        self.status.queues.push(Depth { queue, is_of_dead_letters, counts, oldest });
    }

    async fn oldest(&mut self, queue: &str) -> Age {
        let Some(clients) = &self.clients else { return Age::Unknown };
        let metric = ("AWS/SQS", "ApproximateAgeOfOldestMessage", "Maximum");
        let times = (self.epoch_secs() - i64::from(AGE_SPAN), AGE_SPAN);
        let ages = clients.statistic(metric, &[("QueueName", queue)], times, AGE_PERIOD).await;
        let what = format!("oldest message of {queue}");
        match self.known(&what, ages).map(|ages| ages.last().copied()) {
            Some(Some((_, secs))) => Age::Of(Duration::try_from_secs_f64(secs).unwrap_or_default()),
            Some(None) => {
                self.tell(format!("{what}: CloudWatch has no value of the last 10 min"));
                Age::Unknown
            }
            None => Age::Unknown,
        }
    }

    fn epoch_secs(&self) -> i64 {
        i64::try_from(epoch_millis(self.status.now) / 1_000).unwrap_or_default()
    }

    async fn function(&mut self, configuration: FunctionConfiguration, mappings: &[Value]) {
        let name = configuration.function_name.clone().unwrap_or_default();
        let environment = configuration.environment.unwrap_or_default();
        let variables: BTreeMap<String, String> =
            environment.variables.unwrap_or_default().into_iter().collect();
        let variable = |name: &str| variables.get(&format!("{PREFIX}{name}"));
        let each = mappings.iter().map(|mapping| {
            let arn = text(&mapping["EventSourceArn"]).unwrap_or_default();
            let state = text(&mapping["State"]).unwrap_or_else(|| "unknown".to_owned());
            (Arn::of(&arn).resource.to_owned(), state)
        });
        let mappings: Vec<_> = each.collect();
        if mappings.is_empty() {
            self.tell(format!(
                "queues and counts: no event source mapping invokes {name}; if one invokes an alias, name it as \
                 {name}:ALIAS"
            ));
        }
        let service = variable("SERVICE").unwrap_or(&name);
        let counts = if variable("METRICS").is_some_and(|metrics| metrics == "off") {
            self.tell(format!("counts of {name}: REQUEUE_METRICS is off"));
            None
        } else {
            self.counts(service, &mappings).await
        };
        let logs = configuration.logging_config.unwrap_or_default();
        // An emulator may not return the format.
        let (log, log_since) = match logs.lacks_lines().filter(|_| logs.log_format.is_some()) {
            Some(why) => {
                self.tell(format!("log of {name}: {why}; run `requeue doctor --function {name}`"));
                (None, self.status.since)
            }
            None => self.log(&logs.group_of(&name)).await,
        };
        let has_scopes = variable("SCOPE").is_some();
        let state = state(&configuration.state);
        let status = FunctionStatus { name, state, mappings, counts, log, log_since, has_scopes };
        self.status.functions.push(status);
    }

    /// The counts of the function's queues together.
    async fn counts(
        &mut self,
        service: &str,
        mappings: &[(String, String)],
    ) -> Option<[u64; METRICS.len()]> {
        // Without a queue, the metrics have no name.
        let clients = self.clients.as_ref().filter(|_| !mappings.is_empty())?;
        let secs = u32::try_from(self.status.since.as_secs().next_multiple_of(60)).ok()?;
        let times = (self.epoch_secs() - i64::from(secs), secs);
        let sums = join_all(mappings.iter().flat_map(|(queue, _)| {
            METRICS.iter().enumerate().map(move |(at, (_, metric))| async move {
                let dimensions = [("Service", service), ("Queue", queue.as_str())];
                clients.metric_sum(metric, dimensions, times).await.map(|sum| (at, sum))
            })
        }));
        let what = format!("counts of {service}");
        let sums = sums.await.into_iter().collect::<Known<Vec<_>>>();
        let sums = self.known(&what, sums)?;
        if sums.iter().all(|(_, sum)| sum.is_none()) {
            self.tell(format!(
                "{what}: CloudWatch has no metrics of the last {}; no batch ran, each invocation failed, or they are late",
                span(self.status.since)
            ));
            return None;
        }
        let mut counts = [0; METRICS.len()];
        for (at, sum) in sums {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
            let sum = sum.unwrap_or_default() as u64;
            counts[at] += sum;
        }
        Some(counts)
    }

    async fn log(&mut self, group: &str) -> (Option<LogFacts>, Duration) {
        let mut since = self.status.since;
        for last in [since, SHORT] {
            since = last;
            let from = epoch_millis(self.status.now - since);
            let Some(clients) = &self.clients else { break };
            let lines = clients.log_lines(group, from, Some(PATTERN), MAX_PAGES).await;
            let Some(lines) = self.known("circuit and failures", lines) else { break };
            if let Some(lines) = lines {
                let mut facts = LogFacts::default();
                for line in &lines {
                    facts.take(line);
                }
                return (Some(facts), since);
            }
            let read = span(since);
            self.tell(format!(
                "circuit and failures of the last {read}: {group} has more lines than {MAX_PAGES} \
                 requests read; name a shorter time with --since"
            ));
        }
        (None, since)
    }
}

/// `Active`, or Lambda's words for a function that it cannot run.
fn state(of: &Readiness) -> String {
    let with_reason = |state: &str, reason: Option<&String>| match reason {
        Some(reason) if !reason.is_empty() => format!("{state}: {reason}"),
        _ => state.to_owned(),
    };
    let update = of.last_update_status.as_deref().unwrap_or("Successful");
    let state = with_reason(of.state.as_deref().unwrap_or("unknown"), of.state_reason.as_ref());
    if update == "Successful" {
        return state;
    }
    let update = with_reason(update, of.last_update_status_reason.as_ref());
    format!("{state}; last update {update}")
}

/// The lines of circuits, of messages that did not simply complete, and of failed starts.
pub(super) const PATTERN: &str = r#"{ ($.fields.messageId = "*") || ($.messageId = "*") || ($.fields.event = "circuit-*") || ($.event = "circuit-*") || ($.fields.event = "cannot-start") || ($.event = "cannot-start") }"#;

/// Groups of failures that are kept. A service may invent codes.
const MAX_GROUPS: usize = 1_000;

/// The log stream of the circuit that all execution environments share.
const ALL: &str = "";

#[derive(Debug, Default)]
pub(super) struct LogFacts {
    /// The last change of each execution environment's circuit, by its log stream.
    changes: BTreeMap<String, Change>,
    /// The last deferral by an open circuit, by log stream, and the time at which its message is due.
    deferrals: BTreeMap<String, (u64, u64)>,
    /// The number of messages with each failure, and the time of the last one.
    failures: BTreeMap<Failure, (u64, u64)>,
    /// The last time that the function could not start, and why.
    pub(super) cannot_start: Option<(u64, String)>,
}

#[derive(Clone, Debug)]
struct Change {
    at: u64,
    is_open: bool,
    cause: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Failure {
    /// `retried`, `dead-lettered` or `left to SQS`.
    pub(super) result: &'static str,
    pub(super) class: &'static str,
    pub(super) reason: String,
}

/// Times are in milliseconds since 1970.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Circuit {
    /// No line reports an open one.
    NotOpened,
    Closed {
        at: u64,
    },
    Open {
        /// The first time that is known.
        since: u64,
        /// The execution environments; `None` for all.
        environments: Option<usize>,
        cause: Option<String>,
    },
}

impl LogFacts {
    pub(super) fn take(&mut self, line: &LogEvent) {
        let Some(log_line) = LogLine::read(line.message.trim()) else { return };
        let (at, stream) = (line.timestamp, &line.log_stream_name);
        if log_line.event.as_deref() == Some("cannot-start") {
            let why = log_line.error.as_ref().and_then(text).unwrap_or_default();
            self.cannot_start = self.cannot_start.take().max(Some((at, why)));
        }
        let Some(event) = log_line.event(None) else { return };
        let result = match event.kind {
            Kind::CircuitOpened | Kind::CircuitClosed => {
                let is_open = event.kind == Kind::CircuitOpened;
                let stream = match log_line.event.as_deref() {
                    Some(CIRCUIT_OPENED_FOR_ALL | CIRCUIT_CLOSED_FOR_ALL) => ALL,
                    _ => stream,
                };
                let change = Change { at, is_open, cause: event.reason };
                let known = self.changes.entry(stream.to_owned());
                let known = known.or_insert_with(|| change.clone());
                // Lines of several streams come in no order.
                if change.at >= known.at {
                    *known = change;
                }
                return;
            }
            Kind::Deferred if event.reason.as_deref() == Some("circuit-open") => {
                let latest = self.deferrals.entry(stream.clone()).or_default();
                *latest = (at, at + 1_000 * event.delay.unwrap_or_default()).max(*latest);
                return;
            }
            Kind::Requeued => "retried",
            Kind::DeadLettered => "dead-lettered",
            Kind::Released => "left to SQS",
            _ => return,
        };
        let Some(class) = event.class else { return };
        let reason = event.reason.unwrap_or_else(|| "no reason given".to_owned());
        let mut key = Failure { result, class, reason };
        if self.failures.len() >= MAX_GROUPS && !self.failures.contains_key(&key) {
            "other reasons".clone_into(&mut key.reason);
        }
        let (count, last) = self.failures.entry(key).or_default();
        (*count, *last) = (*count + 1, at.max(*last));
    }

    /// The circuit, by its changes and its deferrals: it may have opened before the first line.
    pub(super) fn circuit(&self) -> Circuit {
        let open = |(_, change): &(&String, &Change)| change.is_open;
        if let Some(all) = self.changes.get(ALL).filter(|change| change.is_open) {
            return Circuit::Open { since: all.at, environments: None, cause: all.cause.clone() };
        }
        let closed = self.changes.values().filter(|change| !change.is_open);
        let closed_at = closed.map(|change| change.at).max();
        let latest = self.changes.iter().filter(open).max_by_key(|(_, change)| change.at);
        let since = self.changes.iter().filter(open).map(|(_, change)| change.at).min();
        if let (Some((_, latest)), Some(since)) = (latest, since) {
            let environments = Some(self.changes.iter().filter(open).count());
            return Circuit::Open { since, environments, cause: latest.cause.clone() };
        }
        // Deferrals after the last change of their stream and of all.
        let changed = |stream: &str| self.changes.get(stream).map_or(0, |change| change.at);
        let deferred = self.deferrals.iter();
        let deferred = deferred.filter(|(stream, (at, _))| *at > changed(stream).max(changed(ALL)));
        let (since, count) = (deferred.clone().map(|(_, (at, _))| *at).min(), deferred.count());
        match (since, closed_at) {
            (Some(since), _) => Circuit::Open { since, environments: Some(count), cause: None },
            (None, Some(at)) => Circuit::Closed { at },
            (None, None) => Circuit::NotOpened,
        }
    }

    /// The earliest time after `now` at which a message that an open circuit deferred is due.
    pub(super) fn next_due(&self, now: u64) -> Option<u64> {
        self.deferrals.values().map(|(_, due)| *due).filter(|due| *due > now).min()
    }

    /// The latest first, each with the number of messages and the time of the last one.
    pub(super) fn failures(&self) -> Vec<(&Failure, u64, u64)> {
        let each = self.failures.iter().map(|(failure, (count, at))| (failure, *count, *at));
        let mut each: Vec<_> = each.collect();
        each.sort_by_key(|(.., at)| std::cmp::Reverse(*at));
        each
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(lines: &[(&str, u64, &str)]) -> LogFacts {
        let mut facts = LogFacts::default();
        for (stream, at, message) in lines {
            facts.take(&LogEvent {
                log_stream_name: (*stream).to_owned(),
                timestamp: *at,
                message: (*message).to_owned(),
                ..LogEvent::default()
            });
        }
        facts
    }

    const OPENED: &str = r#"{"fields":{"event":"circuit-opened","cause":"status 503"}}"#;
    const CLOSED: &str = r#"{"fields":{"event":"circuit-closed"}}"#;
    const ALL_OPENED: &str =
        r#"{"fields":{"event":"circuit-opened-for-all","cause":"timeout"}}"#;
    const ALL_CLOSED: &str = r#"{"fields":{"event":"circuit-closed-for-all"}}"#;
    const DEFERRED: &str = r#"{"fields":{"messageId":"m","disposition":"defer","reason":"circuit-open","delaySeconds":21}}"#;

    #[test]
    fn a_circuit_is_open_until_a_line_of_the_same_environment_closes_it() {
        let open = |since, environments, cause: &str| {
            let cause = Some(cause.to_owned()).filter(|cause| !cause.is_empty());
            Circuit::Open { since, environments, cause }
        };
        for (lines, expected) in [
            (&[][..], Circuit::NotOpened),
            (&[("a", 1, OPENED)], open(1, Some(1), "status 503")),
            (&[("a", 1, OPENED), ("a", 2, CLOSED)], Circuit::Closed { at: 2 }),
            (&[("a", 2, CLOSED), ("a", 1, OPENED)], Circuit::Closed { at: 2 }),
            (&[("a", 1, OPENED), ("b", 2, CLOSED)], open(1, Some(1), "status 503")),
            (&[("a", 1, OPENED), ("b", 2, OPENED)], open(1, Some(2), "status 503")),
            (&[("a", 1, ALL_OPENED)], open(1, None, "timeout")),
            (&[("a", 1, ALL_OPENED), ("b", 2, ALL_CLOSED)], Circuit::Closed { at: 2 }),
            (&[("a", 5, DEFERRED)], open(5, Some(1), "")),
            (&[("a", 5, DEFERRED), ("a", 6, CLOSED)], Circuit::Closed { at: 6 }),
            (&[("a", 5, DEFERRED), ("b", 6, ALL_CLOSED)], Circuit::Closed { at: 6 }),
        ] {
            assert_eq!(facts(lines).circuit(), expected, "{lines:?}");
        }
    }

    #[test]
    fn failures_are_counted_by_result_class_and_reason_and_the_latest_is_first() {
        let line = |disposition: &str, detail: &str| {
            format!(
                r#"{{"fields":{{"messageId":"m","disposition":"{disposition}","class":"temporary","detail":"{detail}"}}}}"#
            )
        };
        let (retried, dead) = (line("requeue", "status 503"), line("dead-letter", "status 500"));
        let lines = [("a", 3, retried.as_str()), ("b", 1, &retried), ("a", 2, &dead)];
        let failures = facts(&[&lines[..], &[("a", 9, DEFERRED), ("a", 9, "START")]].concat());
        assert_eq!(
            [8, 9, 21_008, 21_009].map(|now| failures.next_due(now)),
            [Some(21_009), Some(21_009), Some(21_009), None]
        );
        let shown = failures.failures().into_iter();
        let shown: Vec<_> =
            shown.map(|(one, count, at)| (one.result, &*one.reason, count, at)).collect();
        assert_eq!(shown, [("retried", "status 503", 2, 3), ("dead-lettered", "status 500", 1, 2)]);
    }

    #[test]
    fn the_last_start_that_failed_is_known() {
        let line = |error: &str| {
            let fields = serde_json::json!({ "event": "cannot-start", "error": error });
            serde_json::json!({ "fields": fields }).to_string()
        };
        let (first, last) =
            (line("REQUEUE_POLICY is no JSON"), line("REQUEUE_TARGET_URL is missing"));
        let facts = facts(&[("b", 9, last.as_str()), ("a", 3, &first)]);
        assert_eq!(facts.cannot_start, Some((9, "REQUEUE_TARGET_URL is missing".to_owned())));
    }

    #[test]
    fn the_groups_of_failures_are_bounded() {
        let lines: Vec<String> = (0..2 * MAX_GROUPS)
            .map(|number| {
                format!(
                    r#"{{"messageId":"m","disposition":"requeue","class":"temporary","detail":"{number}"}}"#
                )
            })
            .collect();
        let lines: Vec<_> = lines.iter().map(|line| ("a", 1, line.as_str())).collect();
        assert_eq!(facts(&lines).failures().len(), MAX_GROUPS + 1);
    }
}
