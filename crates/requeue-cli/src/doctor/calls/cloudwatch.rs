//! Operations of CloudWatch.

use requeue::aws::SdkConfig;
use requeue_aws::{CallError, Service, call_json};
use serde::Deserialize;
use serde_json::json;

use super::pages;

/// A metric alarm or a composite alarm.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct Alarm {
    #[serde(rename = "AlarmName")]
    pub(crate) name: Option<String>,
    pub(crate) actions_enabled: Option<bool>,
    #[serde(rename = "AlarmActions")]
    pub(crate) actions: Option<Vec<String>>,
    /// Of an alarm on one metric: the metric.
    #[serde(flatten)]
    pub(crate) metric: Metric,
    /// Of an alarm on an expression: its metrics and expressions.
    pub(crate) metrics: Option<Vec<MetricDataQuery>>,
    /// Of a composite alarm.
    #[serde(rename = "AlarmRule")]
    pub(crate) rule: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct Metric {
    pub(crate) namespace: Option<String>,
    #[serde(rename = "MetricName")]
    pub(crate) name: Option<String>,
    pub(crate) dimensions: Option<Vec<Dimension>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct Dimension {
    pub(crate) name: String,
    pub(crate) value: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct MetricDataQuery {
    pub(crate) metric_stat: Option<MetricStat>,
    pub(crate) expression: Option<String>,
    pub(crate) account_id: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct MetricStat {
    pub(crate) metric: Metric,
}

/// All metric alarms and composite alarms of the region. `DescribeAlarmsForMetric` would be
/// narrower, but leaves out alarms on an expression.
pub(crate) async fn describe_alarms(sdk: &SdkConfig) -> Result<Vec<Alarm>, CallError> {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "PascalCase")]
    struct Page {
        metric_alarms: Option<Vec<Alarm>>,
        composite_alarms: Option<Vec<Alarm>>,
        next_token: Option<String>,
    }
    let operation = "GraniteServiceVersion20100801.DescribeAlarms";
    pages(async |token: Option<String>| {
        let mut parameters =
            json!({ "AlarmTypes": ["MetricAlarm", "CompositeAlarm"], "MaxRecords": 100 });
        if let Some(token) = token {
            parameters["NextToken"] = token.into();
        }
        let page: Page = call_json(sdk, Service::CloudWatch, operation, &parameters).await?;
        let alarms = [page.metric_alarms, page.composite_alarms].into_iter().flatten().flatten();
        Ok((alarms.collect(), page.next_token))
    })
    .await
}

/// The sum of a metric's values from `start` on, in seconds of the epoch, for `span` seconds.
/// `None` if it has no values.
pub(crate) async fn sum(
    sdk: &SdkConfig,
    namespace: &str,
    name: &str,
    dimensions: &[(&str, &str)],
    (start, span): (i64, u32),
) -> Result<Option<f64>, CallError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Output {
        #[serde(default)]
        datapoints: Vec<Datapoint>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Datapoint {
        sum: f64,
    }
    let dimension = |(name, value): &(&str, &str)| json!({ "Name": name, "Value": value });
    let parameters = json!({
        "Namespace": namespace,
        "MetricName": name,
        "Dimensions": dimensions.iter().map(dimension).collect::<Vec<_>>(),
        "StartTime": start,
        "EndTime": start + i64::from(span),
        "Period": span,
        "Statistics": ["Sum"],
    });
    let operation = "GraniteServiceVersion20100801.GetMetricStatistics";
    let output: Output = call_json(sdk, Service::CloudWatch, operation, &parameters).await?;
    let sums = output.datapoints.into_iter().map(|point| point.sum);
    Ok(sums.reduce(|sum, more| sum + more))
}
