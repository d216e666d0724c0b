//! The metrics of one batch: names, units and dimensions, and the messages that count towards each; in
//! CloudWatch's embedded metric format, one JSON object in one line of the standard output.
//!
//! The specification has no object with `Values` and `Counts`, which other writers use. Source:
//! CloudWatch user guide, "Specification: Embedded metric format".

use std::collections::BTreeMap;
use std::io::Write;
use std::time::SystemTime;

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::millis;
use crate::clock::{epoch_millis, timestamp_text};
use crate::disposition::{Deferral, Disposition, IdempotencyNotes, ReleaseReason};
use crate::failure::FailureClass;
use crate::observer::{Event, Observer};
use crate::report::{Outcome, Report, Settlement};
use crate::settings::Metrics;

/// The usual length of a line of ten messages.
const USUAL_LEN: usize = 1_536;
const NAMESPACE: &str = "Requeue";
const SERVICE: &str = "Service";
const QUEUE: &str = "Queue";
const CLASS: &str = "Class";
/// Lambda filters lines by their level, metrics too, so a line has the level of the function's
/// filter. A line without a valid RFC 3339 `timestamp` counts as INFO. Source: Lambda developer
/// guide, "Log-level filtering".
const LEVEL: &str = "level";
const TIMESTAMP: &str = "timestamp";
/// The dimension of messages whose record does not name its queue. All records of Lambda do.
const UNKNOWN: &str = "unknown";

/// The observer that writes the metrics of each batch to the standard output. A line that cannot be
/// written is lost, as a log line is.
impl Observer for Metrics {
    fn observe(&self, event: &Event<'_>) {
        if let Event::BatchSettled { report, at, .. } = *event {
            let _ = std::io::stdout().lock().write_all(&lines(report, self, at));
        }
    }
}

/// A line for each queue, and one for each class of its failures. A batch of more than 100 messages
/// needs several.
pub(super) fn lines(report: &Report, settings: &Metrics, now: SystemTime) -> Vec<u8> {
    let mut figures: BTreeMap<(&str, Option<FailureClass>), Figures> = BTreeMap::new();
    for outcome in &report.outcomes {
        let queue = outcome.queue.as_ref().map_or(UNKNOWN, |queue| queue.name());
        let figures_of_queue = || Figures::of_batch(report.outcomes.len());
        figures.entry((queue, None)).or_insert_with(figures_of_queue).add(outcome);
        if outcome.class.is_some() {
            figures.entry((queue, outcome.class)).or_default().add(outcome);
        }
    }
    let mut lines = Vec::with_capacity(USUAL_LEN);
    let timestamp = timestamp_text(now);
    for ((queue, class), figures) in figures {
        let class = class.map(|class| (CLASS, class.as_str()));
        let mut dimensions = vec![(SERVICE, settings.service.as_str()), (QUEUE, queue)];
        dimensions.extend(class);
        let group = Group {
            namespace: NAMESPACE,
            time: now,
            metrics: figures.metrics(class.is_some()),
            properties: &[(LEVEL, &settings.level), (TIMESTAMP, &timestamp)],
            dimensions: &dimensions,
        };
        group.write(&mut lines);
    }
    lines
}

/// The number of messages of a batch for each outcome. Each number is a metric. All but `failed`,
/// `abandoned` and those about the table or `idempotency` are fields of the batch's log line too.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) received: u64,
    pub(super) completed: u64,
    /// Of the completed: their event was already done, so they were not called.
    pub(super) already_completed: u64,
    /// The body had no name for the event.
    pub(super) idempotency_key_missing: u64,
    /// The table did not respond about the event, or did not confirm that it is done.
    pub(super) idempotency_unconfirmed: u64,
    /// The handler was called and failed, or the record did not allow a call.
    pub(super) failed: u64,
    pub(super) requeued: u64,
    pub(super) deferred: u64,
    /// Of the deferred: the table of the rate limits was throttled.
    pub(super) table_throttled: u64,
    /// Of the deferred: the table of the rate limits did not respond.
    pub(super) table_unavailable: u64,
    pub(super) released: u64,
    /// Of the released: handlers that were cancelled and did not yield.
    pub(super) abandoned: u64,
    pub(super) dead_lettered: u64,
    pub(super) send_unconfirmed: u64,
    pub(super) delete_failed: u64,
}

impl Counts {
    pub(super) fn add(&mut self, outcome: &Outcome) {
        self.received += 1;
        self.failed += u64::from(outcome.class.is_some());
        let IdempotencyNotes { is_already_done, is_key_missing, is_unconfirmed } =
            outcome.idempotency;
        self.already_completed += u64::from(is_already_done);
        self.idempotency_key_missing += u64::from(is_key_missing);
        self.idempotency_unconfirmed += u64::from(is_unconfirmed);
        match outcome.disposition {
            Disposition::Complete => self.completed += 1,
            Disposition::Requeue { .. } => self.requeued += 1,
            Disposition::Defer { reason: why, .. } => {
                self.deferred += 1;
                self.table_throttled += u64::from(why == Deferral::TableThrottled);
                self.table_unavailable += u64::from(matches!(
                    why,
                    Deferral::TableUnavailable | Deferral::IdempotencyUnavailable
                ));
            }
            Disposition::Release(reason) => {
                self.released += 1;
                self.abandoned += u64::from(reason == ReleaseReason::Abandoned);
            }
            Disposition::DeadLetter(_) => self.dead_lettered += 1,
        }
        match outcome.settlement {
            Settlement::Unconfirmed { .. } => self.send_unconfirmed += 1,
            Settlement::MovedNotDeleted { .. } => self.delete_failed += 1,
            Settlement::Done
            | Settlement::Kept
            | Settlement::KeptNotDelayed { .. }
            | Settlement::Moved => {}
        }
    }
}

/// The figures of all messages, or of those that failed with one class.
#[derive(Default)]
struct Figures {
    counts: Counts,
    retry_delay: Vec<u64>,
    /// Waits in the waiting list of a rate limit, and for a reservation.
    rate_limit_delay: Vec<u64>,
    /// Retries that completed messages had used.
    retry_count: Vec<u64>,
    /// The time from the first send to completion.
    time_to_success: Vec<u64>,
    time_to_success_first_attempt: Vec<u64>,
    time_to_success_after_retry: Vec<u64>,
    /// The numbers of the calls that failed, from 1.
    failed_attempt: Vec<u64>,
    handler_duration: Vec<u64>,
    message_age: Vec<u64>,
}

impl Figures {
    /// With room for the values that most messages have.
    fn of_batch(messages: usize) -> Self {
        let values = || Vec::with_capacity(messages);
        Self {
            retry_count: values(),
            time_to_success: values(),
            time_to_success_first_attempt: values(),
            handler_duration: values(),
            message_age: values(),
            ..Self::default()
        }
    }

    fn add(&mut self, outcome: &Outcome) {
        self.counts.add(outcome);
        self.message_age.push(outcome.age.as_secs());
        self.handler_duration.extend(outcome.elapsed.filter(|_| !outcome.joined_call).map(millis));
        self.failed_attempt
            .extend(outcome.elapsed.and(outcome.class).map(|_| u64::from(outcome.retry_count) + 1));
        match &outcome.disposition {
            // It needed no call, so its time is not the handler's.
            Disposition::Complete if outcome.idempotency.is_already_done => {}
            Disposition::Complete => {
                let time = millis(outcome.age);
                self.retry_count.push(outcome.retry_count.into());
                self.time_to_success.push(time);
                match outcome.retry_count {
                    0 => self.time_to_success_first_attempt.push(time),
                    1.. => self.time_to_success_after_retry.push(time),
                }
            }
            Disposition::Requeue { wait, .. } => self.retry_delay.push(wait.total().as_secs()),
            Disposition::Defer { reason: Deferral::RateLimited, wait } => {
                self.rate_limit_delay.push(wait.total().as_secs());
            }
            Disposition::Defer { .. } | Disposition::Release(_) | Disposition::DeadLetter(_) => {}
        }
    }

    /// A class has the first three counts, and the first of the other metrics. One without values is
    /// left out, since CloudWatch charges for each metric in each hour in which it has a value.
    fn metrics(self, is_of_class: bool) -> Vec<Metric> {
        let counts = [
            ("Failed", self.counts.failed),
            ("Requeued", self.counts.requeued),
            ("DeadLettered", self.counts.dead_lettered),
            ("Received", self.counts.received),
            ("Completed", self.counts.completed),
            ("AlreadyCompleted", self.counts.already_completed),
            ("IdempotencyKeyMissing", self.counts.idempotency_key_missing),
            ("IdempotencyUnconfirmed", self.counts.idempotency_unconfirmed),
            ("Deferred", self.counts.deferred),
            ("TableThrottled", self.counts.table_throttled),
            ("TableUnavailable", self.counts.table_unavailable),
            ("Released", self.counts.released),
            ("Abandoned", self.counts.abandoned),
            ("SendUnconfirmed", self.counts.send_unconfirmed),
            ("DeleteFailed", self.counts.delete_failed),
        ];
        let values = [
            ("RetryDelay", Unit::Seconds, self.retry_delay),
            ("RateLimitDelay", Unit::Seconds, self.rate_limit_delay),
            ("FailedAttempt", Unit::Count, self.failed_attempt),
            ("RetryCount", Unit::Count, self.retry_count),
            ("TimeToSuccess", Unit::Milliseconds, self.time_to_success),
            ("TimeToSuccessFirstAttempt", Unit::Milliseconds, self.time_to_success_first_attempt),
            ("TimeToSuccessAfterRetry", Unit::Milliseconds, self.time_to_success_after_retry),
            ("HandlerDuration", Unit::Milliseconds, self.handler_duration),
            ("MessageAge", Unit::Seconds, self.message_age),
        ];
        let (most_counts, most_values) =
            if is_of_class { (3, 1) } else { (counts.len(), values.len()) };
        let counts = counts.into_iter().take(most_counts).filter(|(_, count)| *count > 0);
        let values = values.into_iter().take(most_values);
        let values = values.filter(|(_, _, values)| !values.is_empty());
        counts
            .map(|(name, count)| Metric::count(name, count))
            .chain(values.map(|(name, unit, values)| Metric::values(name, unit, values)))
            .collect()
    }
}

/// Most values of one metric in one line.
const MAX_VALUES: usize = 100;

struct Group<'a> {
    namespace: &'a str,
    time: SystemTime,
    metrics: Vec<Metric>,
    /// Texts that are no dimension.
    properties: &'a [(&'a str, &'a str)],
    /// The dimensions, by which CloudWatch distinguishes the metrics of lines.
    dimensions: &'a [(&'a str, &'a str)],
}

struct Metric {
    name: &'static str,
    unit: Unit,
    values: Values,
}

#[derive(Clone, Copy, serde::Serialize)]
enum Unit {
    Count,
    Seconds,
    Milliseconds,
}

enum Values {
    One(u64),
    Several(Vec<u64>),
}

impl Metric {
    fn count(name: &'static str, count: u64) -> Self {
        Self { name, unit: Unit::Count, values: Values::One(count) }
    }

    /// The values of several messages.
    fn values(name: &'static str, unit: Unit, values: Vec<u64>) -> Self {
        Self { name, unit, values: Values::Several(values) }
    }

    /// The values for each line.
    fn parts(&self) -> std::slice::Chunks<'_, u64> {
        match &self.values {
            Values::One(value) => std::slice::from_ref(value),
            Values::Several(values) => values.as_slice(),
        }
        .chunks(MAX_VALUES)
    }
}

impl Group<'_> {
    /// Appends one line, and further ones if a metric has more values than a line may have.
    fn write(&self, text: &mut Vec<u8>) {
        let lines = self.metrics.iter().map(|metric| metric.parts().len()).max();
        for line in 0..lines.unwrap_or_default() {
            let part = |metric| Part::of(metric, line);
            let metrics = self.metrics.iter().filter_map(part).collect();
            let line = Line { group: self, metrics };
            serde_json::to_writer(&mut *text, &line).expect("numbers and texts can be written");
            text.push(b'\n');
        }
    }
}

struct Line<'a> {
    group: &'a Group<'a>,
    metrics: Vec<Part<'a>>,
}

/// The values of a metric in one line.
#[derive(serde::Serialize)]
#[serde(rename_all = "PascalCase")]
struct Part<'a> {
    name: &'static str,
    unit: Unit,
    #[serde(skip)]
    values: &'a [u64],
}

impl<'a> Part<'a> {
    fn of(metric: &'a Metric, line: usize) -> Option<Self> {
        let values = metric.parts().nth(line)?;
        Some(Self { name: metric.name, unit: metric.unit, values })
    }
}

impl Serialize for Line<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Group { namespace, time, properties, dimensions, .. } = *self.group;
        let directive = Directive {
            namespace,
            dimensions: [dimensions.iter().map(|(name, _)| *name).collect()],
            metrics: &self.metrics,
        };
        let about = About { cloud_watch_metrics: [directive], timestamp: epoch_millis(time) };
        let mut line = serializer.serialize_map(None)?;
        line.serialize_entry("_aws", &about)?;
        for Part { name, values, .. } in &self.metrics {
            match values {
                [only] => line.serialize_entry(name, only)?,
                several => line.serialize_entry(name, several)?,
            }
        }
        for (name, text) in properties.iter().chain(dimensions) {
            line.serialize_entry(name, text)?;
        }
        line.end()
    }
}

#[derive(serde::Serialize)]
#[serde(rename_all = "PascalCase")]
struct About<'a> {
    cloud_watch_metrics: [Directive<'a>; 1],
    timestamp: u64,
}

#[derive(serde::Serialize)]
#[serde(rename_all = "PascalCase")]
struct Directive<'a> {
    namespace: &'a str,
    dimensions: [Vec<&'a str>; 1],
    metrics: &'a [Part<'a>],
}
