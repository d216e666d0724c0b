//! The metrics of one queue in one batch: names, units, dimensions, and what counts towards each.

use std::borrow::Cow;

use metrique::emf::EntryDimensions;
use metrique::writer::unit::NegativeScale;
use metrique::writer::{Entry, EntryWriter, MetricFlags, Observation, Unit, Value, ValueWriter};

use super::counts::Counts;
use super::millis;
use crate::disposition::Disposition;
use crate::failure::FailureClass;
use crate::report::Outcome;

pub(super) const NAMESPACE: &str = "Requeue";
pub(super) const SERVICE: &str = "Service";
pub(super) const QUEUE: &str = "Queue";
const CLASS: &str = "Class";
/// The level of the line in the log.
const LEVEL: &str = "level";

const COUNT: Unit = Unit::Count;
const SECONDS: Unit = Unit::Second(NegativeScale::One);
const MILLISECONDS: Unit = Unit::Second(NegativeScale::Milli);

/// Most values of one metric in one line. Source: CloudWatch embedded metric format specification.
const MAX_VALUES: usize = 100;

/// The figures of all messages, or of those that failed with one class.
#[derive(Default)]
pub(super) struct Figures {
    counts: Counts,
    /// Delays of retries.
    retry_delay: Vec<u64>,
    /// Retries that completed messages had used.
    retry_count: Vec<u64>,
    /// From being sent first to being completed.
    time_to_success: Vec<u64>,
    time_to_success_first_attempt: Vec<u64>,
    time_to_success_after_retry: Vec<u64>,
    /// The calls, counted from 1, that failed.
    failed_attempt: Vec<u64>,
    handler_duration: Vec<u64>,
    /// Since being sent first.
    message_age: Vec<u64>,
}

impl Figures {
    pub(super) fn add(&mut self, outcome: &Outcome) {
        self.counts.add(outcome);
        self.message_age.push(outcome.age.as_secs());
        self.handler_duration.extend(outcome.elapsed.map(millis));
        self.failed_attempt
            .extend(outcome.elapsed.and(outcome.class).map(|_| u64::from(outcome.retry_count) + 1));
        match &outcome.disposition {
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
            Disposition::Defer { .. } | Disposition::Release(_) | Disposition::DeadLetter(_) => {}
        }
    }
}

/// One line: the figures of all messages of a queue, or of those that failed with one class.
pub(super) struct Line<'a> {
    pub(super) service: &'a str,
    pub(super) queue: &'a str,
    pub(super) class: Option<FailureClass>,
    pub(super) level: &'a str,
    pub(super) figures: Figures,
}

static BY_CLASS: EntryDimensions =
    EntryDimensions::new_static(&[Cow::Borrowed(&[Cow::Borrowed(CLASS)])]);

impl Entry for Line<'_> {
    fn write<'a>(&'a self, writer: &mut impl EntryWriter<'a>) {
        writer.value(LEVEL, self.level);
        writer.value(SERVICE, self.service);
        writer.value(QUEUE, self.queue);
        let figures = &self.figures;
        let counts = &figures.counts;
        writer.value("Failed", &Counted(counts.failed));
        writer.value("Requeued", &Counted(counts.requeued));
        writer.value("DeadLettered", &Counted(counts.dead_lettered));
        writer.value("RetryDelay", &Distribution(SECONDS, &figures.retry_delay));
        if let Some(class) = self.class {
            writer.config(&BY_CLASS);
            writer.value(CLASS, class.as_str());
            return;
        }
        writer.value("Received", &Counted(counts.received));
        writer.value("Completed", &Counted(counts.completed));
        writer.value("Deferred", &Counted(counts.deferred));
        writer.value("Released", &Counted(counts.released));
        writer.value("Abandoned", &Counted(counts.abandoned));
        writer.value("SendUnconfirmed", &Counted(counts.send_unconfirmed));
        writer.value("DeleteFailed", &Counted(counts.delete_failed));
        writer.value("FailedAttempt", &Distribution(COUNT, &figures.failed_attempt));
        writer.value("RetryCount", &Distribution(COUNT, &figures.retry_count));
        writer.value("TimeToSuccess", &Distribution(MILLISECONDS, &figures.time_to_success));
        writer.value(
            "TimeToSuccessFirstAttempt",
            &Distribution(MILLISECONDS, &figures.time_to_success_first_attempt),
        );
        writer.value(
            "TimeToSuccessAfterRetry",
            &Distribution(MILLISECONDS, &figures.time_to_success_after_retry),
        );
        writer.value("HandlerDuration", &Distribution(MILLISECONDS, &figures.handler_duration));
        writer.value("MessageAge", &Distribution(SECONDS, &figures.message_age));
    }
}

/// How many; nothing where there were none, since CloudWatch charges for each metric in each hour
/// in which it has a value.
struct Counted(u64);

impl Value for Counted {
    fn write(&self, writer: impl ValueWriter) {
        let observation = (self.0 > 0).then_some(Observation::Unsigned(self.0));
        writer.metric(observation, COUNT, [], MetricFlags::empty());
    }
}

/// The values of several messages.
struct Distribution<'a>(Unit, &'a [u64]);

impl Value for Distribution<'_> {
    fn write(&self, writer: impl ValueWriter) {
        writer.metric(observations(self.1.to_vec()), self.0, [], MetricFlags::empty());
    }
}

/// Equal values are written once, with their number. Where there are more different ones than a
/// line may have, neighbours share their mean; the least, the greatest, the number and the sum
/// remain what they are.
fn observations(mut values: Vec<u64>) -> Vec<Observation> {
    values.sort_unstable();
    let same = values.chunk_by(|one, other| one == other);
    match &values[..] {
        [least, between @ .., greatest] if same.clone().count() > MAX_VALUES => {
            let share = between.len().div_ceil(MAX_VALUES - 2);
            let ends = [least, greatest].map(|&end| Observation::Unsigned(end));
            between.chunks(share).map(joined).chain(ends).collect()
        }
        _ => same.map(joined).collect(),
    }
}

#[allow(clippy::cast_precision_loss, reason = "sums of a batch are far below 2^53")]
fn joined(values: &[u64]) -> Observation {
    match values {
        [value] => Observation::Unsigned(*value),
        _ => Observation::Repeated {
            total: values.iter().sum::<u64>() as f64,
            occurrences: u64::try_from(values.len()).unwrap_or(u64::MAX),
        },
    }
}
