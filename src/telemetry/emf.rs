//! CloudWatch's embedded metric format: one JSON object in one line of the standard output.
//! CloudWatch reads the metrics that the object declares. This module knows no message.
//!
//! Source: CloudWatch user guide, "Specification: Embedded metric format".

use std::time::SystemTime;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Number;

use crate::clock::epoch_millis;

/// Most values of one metric in one line.
const MAX_VALUES: usize = 100;

/// One line.
pub(super) struct Line<'a> {
    pub(super) namespace: &'a str,
    pub(super) time: SystemTime,
    pub(super) metrics: Vec<Metric>,
    /// Texts that are no dimension.
    pub(super) properties: &'a [(&'a str, &'a str)],
    /// The dimensions, by which CloudWatch tells the metrics of one line from those of others.
    pub(super) dimensions: &'a [(&'a str, &'a str)],
}

/// A metric of a line.
#[derive(serde::Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Metric {
    name: &'static str,
    unit: Unit,
    #[serde(skip)]
    value: Value,
}

#[derive(Clone, Copy, serde::Serialize)]
pub(super) enum Unit {
    Count,
    Seconds,
    Milliseconds,
}

#[derive(serde::Serialize)]
#[serde(untagged)]
enum Value {
    One(u64),
    #[serde(rename_all = "PascalCase")]
    Several {
        values: Vec<Number>,
        counts: Vec<usize>,
    },
}

impl Metric {
    pub(super) fn count(name: &'static str, count: u64) -> Self {
        Self { name, unit: Unit::Count, value: Value::One(count) }
    }

    /// The values of several messages. Equal values are written once, with their number. If there
    /// are more different values than a line may have, neighbours share their mean. Minimum,
    /// maximum, number and sum stay the same.
    pub(super) fn values(name: &'static str, unit: Unit, mut values: Vec<u64>) -> Self {
        values.sort_unstable();
        let same = values.chunk_by(|one, other| one == other);
        let shared: Vec<&[u64]> = match &values[..] {
            [only] => return Self { name, unit, value: Value::One(*only) },
            [least, between @ .., greatest] if same.clone().count() > MAX_VALUES => {
                let share = between.len().div_ceil(MAX_VALUES - 2);
                let ends = [least, greatest].map(std::slice::from_ref);
                between.chunks(share).chain(ends).collect()
            }
            _ => same.collect(),
        };
        let (values, counts) = shared.into_iter().map(|share| (mean(share), share.len())).unzip();
        Self { name, unit, value: Value::Several { values, counts } }
    }
}

#[allow(clippy::cast_precision_loss, reason = "sums of a batch are far below 2^53")]
fn mean(values: &[u64]) -> Number {
    let (sum, count) = (values.iter().sum::<u64>(), values.len() as u64);
    if sum.is_multiple_of(count) {
        return (sum / count).into();
    }
    Number::from_f64(sum as f64 / count as f64).expect("a mean is finite")
}

impl Serialize for Line<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let directive = Directive {
            namespace: self.namespace,
            dimensions: [self.dimensions.iter().map(|(name, _)| *name).collect()],
            metrics: &self.metrics,
        };
        let about = About { cloud_watch_metrics: [directive], timestamp: epoch_millis(self.time) };
        let mut line = serializer.serialize_map(None)?;
        line.serialize_entry("_aws", &about)?;
        for metric in &self.metrics {
            line.serialize_entry(metric.name, &metric.value)?;
        }
        for (name, text) in self.properties.iter().chain(self.dimensions) {
            line.serialize_entry(name, text)?;
        }
        line.end()
    }
}

/// The metadata of a line.
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
    metrics: &'a [Metric],
}
