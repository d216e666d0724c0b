//! CloudWatch's embedded metric format: one JSON object in one line of the standard output.
//! CloudWatch reads the metrics that the object declares. This module knows no message.
//!
//! The value of a metric is a number or an array of numbers. Other writers of the format use an
//! object with `Values` and `Counts` too, but the specification does not have it: CloudWatch may
//! refuse such a line, which shows only in its metric `EMFValidationErrors`.
//!
//! Source: CloudWatch user guide, "Specification: Embedded metric format".

use std::time::SystemTime;

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::clock::epoch_millis;

/// Most values of one metric in one line.
const MAX_VALUES: usize = 100;

pub(super) struct Group<'a> {
    pub(super) namespace: &'a str,
    pub(super) time: SystemTime,
    pub(super) metrics: Vec<Metric>,
    /// Texts that are no dimension.
    pub(super) properties: &'a [(&'a str, &'a str)],
    /// The dimensions, by which CloudWatch tells the metrics of one line from those of others.
    pub(super) dimensions: &'a [(&'a str, &'a str)],
}

pub(super) struct Metric {
    name: &'static str,
    unit: Unit,
    values: Values,
}

#[derive(Clone, Copy, serde::Serialize)]
pub(super) enum Unit {
    Count,
    Seconds,
    Milliseconds,
}

enum Values {
    One(u64),
    Several(Vec<u64>),
}

impl Metric {
    pub(super) fn count(name: &'static str, count: u64) -> Self {
        Self { name, unit: Unit::Count, values: Values::One(count) }
    }

    /// The values of several messages.
    pub(super) fn values(name: &'static str, unit: Unit, values: Vec<u64>) -> Self {
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
    pub(super) fn write(&self, text: &mut Vec<u8>) {
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
