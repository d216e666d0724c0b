//! Reads the function's lines of metrics. They come at every log level, and hold no message.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::checks::REQUEUE;

/// The values of the metrics of one queue, of all its messages (`None`) and by class.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    values: BTreeMap<(Option<String>, String), Vec<u64>>,
    /// The dimension `Service`.
    pub(crate) service: Option<String>,
}

impl Evidence {
    /// Adds a line of the log, if it holds metrics of this queue.
    pub(crate) fn add(&mut self, queue: &str, line: &str) {
        let Ok(line) = serde_json::from_str::<Value>(line) else { return };
        let directives = line["_aws"]["CloudWatchMetrics"].as_array().into_iter().flatten();
        for directive in directives.filter(|directive| directive["Namespace"] == REQUEUE) {
            if line["Queue"] != queue {
                continue;
            }
            self.service = line["Service"].as_str().map(str::to_owned).or(self.service.take());
            let class = line["Class"].as_str();
            let metrics = directive["Metrics"].as_array().into_iter().flatten();
            for name in metrics.filter_map(|metric| metric["Name"].as_str()) {
                let key = (class.map(str::to_owned), name.to_owned());
                let values = self.values.entry(key).or_default();
                match &line[name] {
                    Value::Array(several) => {
                        values.extend(several.iter().filter_map(Value::as_u64));
                    }
                    one => values.extend(one.as_u64()),
                }
            }
        }
    }

    pub(crate) fn values(&self, class: Option<&str>, metric: &str) -> &[u64] {
        let key = (class.map(str::to_owned), metric.to_owned());
        self.values.get(&key).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn sum(&self, class: Option<&str>, metric: &str) -> u64 {
        self.values(class, metric).iter().sum()
    }

    /// The classes with failures, as in `quota 1, temporary 2`; or `none`.
    pub(crate) fn failures(&self) -> String {
        let failed = self.values.iter().filter(|((_, metric), _)| metric == "Failed");
        let classes: Vec<String> = failed
            .filter_map(|((class, _), values)| {
                Some(format!("{} {}", class.as_ref()?, values.iter().sum::<u64>()))
            })
            .collect();
        if classes.is_empty() { "none".to_owned() } else { classes.join(", ") }
    }
}
