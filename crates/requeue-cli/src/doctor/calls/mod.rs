//! The operations of AWS's services that need more than one request or a form of their own. Names as
//! in the services' API references.

use std::collections::HashMap;

use http::Request;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use requeue::aws::SdkConfig;
use requeue_aws::{CallError, Service, call, call_json};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::facts::{Logs, Readiness};

pub(crate) mod iam;

/// The items of all pages. `page` gets the token of a page, and returns its items and the next token.
async fn pages(
    mut page: impl AsyncFnMut(Option<String>) -> Result<(Vec<Value>, Value), CallError>,
) -> Result<Vec<Value>, CallError> {
    let (mut all, mut token) = (Vec::new(), None);
    for _ in 0..MOST_PAGES {
        let (items, next) = page(token.take()).await?;
        all.extend(items);
        token = text(&next);
        if token.is_none() {
            return Ok(all);
        }
    }
    Err(CallError::construction_failure(TooManyPages))
}

/// The error for a longer list.
#[derive(Debug, thiserror::Error)]
#[error("the list has more than {MOST_PAGES} pages")]
pub(crate) struct TooManyPages;

/// Longest list that the doctor reads. Most services have pages of 100.
const MOST_PAGES: u32 = 50;

/// A text that is there and not empty.
pub(crate) fn text(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// The items of a list. A list that is missing is empty.
pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Source: RFC 3986, unreserved characters.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

pub(crate) fn encoded(text: &str) -> impl std::fmt::Display {
    utf8_percent_encode(text, RESERVED)
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct FunctionConfiguration {
    pub(crate) function_name: Option<String>,
    pub(crate) function_arn: Option<String>,
    pub(crate) role: Option<String>,
    pub(crate) timeout: Option<u64>,
    #[serde(rename = "KMSKeyArn")]
    pub(crate) kms_key_arn: Option<String>,
    pub(crate) environment: Option<Environment>,
    pub(crate) logging_config: Option<Logs>,
    #[serde(flatten)]
    pub(crate) state: Readiness,
    pub(crate) vpc_config: Option<VpcConfig>,
}

/// Lambda shows the configuration of no VPC with an empty id.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct VpcConfig {
    pub(crate) vpc_id: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct Environment {
    pub(crate) variables: Option<HashMap<String, String>>,
    pub(crate) error: Option<Encrypted>,
}

/// The reason for a hidden value.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct Encrypted {
    pub(crate) error_code: Option<String>,
}

pub(crate) async fn function_configuration(
    sdk: &SdkConfig,
    function: &str,
) -> Result<FunctionConfiguration, CallError> {
    get(sdk, &format!("2015-03-31/functions/{}/configuration", encoded(function))).await
}

/// All mappings with this `FunctionName` or `EventSourceArn`.
pub(crate) async fn event_source_mappings(
    sdk: &SdkConfig,
    parameter: &str,
    value: &str,
) -> Result<Vec<Value>, CallError> {
    let first = format!("2015-03-31/event-source-mappings?{parameter}={}", encoded(value));
    pages(async |marker: Option<String>| {
        let marker = marker.map(|marker| format!("&Marker={}", encoded(&marker)));
        let page: Value = get(sdk, &format!("{first}{}", marker.unwrap_or_default())).await?;
        Ok((list(&page["EventSourceMappings"]).to_vec(), page["NextMarker"].clone()))
    })
    .await
}

/// The response to a request that reads.
pub(crate) async fn get<T: DeserializeOwned + Send + Sync + 'static>(
    sdk: &SdkConfig,
    path: &str,
) -> Result<T, CallError> {
    let request = Request::get(format!("/{path}"))
        .body(String::new())
        .map_err(CallError::construction_failure)?;
    call(sdk, Service::Lambda, request, requeue_aws::json).await
}

/// All metric alarms and composite alarms of the region. `DescribeAlarmsForMetric` would be
/// narrower, but leaves out alarms on an expression.
pub(crate) async fn describe_alarms(sdk: &SdkConfig) -> Result<Vec<Value>, CallError> {
    let operation = "GraniteServiceVersion20100801.DescribeAlarms";
    pages(async |token| {
        let mut parameters =
            json!({ "AlarmTypes": ["MetricAlarm", "CompositeAlarm"], "MaxRecords": 100 });
        if let Some(token) = token {
            parameters["NextToken"] = token.into();
        }
        let page: Value = call_json(sdk, Service::CloudWatch, operation, &parameters).await?;
        let alarms = [list(&page["MetricAlarms"]), list(&page["CompositeAlarms"])].concat();
        Ok((alarms, page["NextToken"].clone()))
    })
    .await
}

/// The sum of a metric's values from `start` on, in seconds of the epoch, for `span` seconds.
/// `None` if it has no values.
pub(crate) async fn metric_sum(
    sdk: &SdkConfig,
    metric: &str,
    dimensions: [(&str, &str); 2],
    (start, span): (i64, u32),
) -> Result<Option<f64>, CallError> {
    let parameters = json!({
        "Namespace": super::checks::REQUEUE,
        "MetricName": metric,
        "Dimensions": dimensions.map(|(name, value)| json!({ "Name": name, "Value": value })),
        "StartTime": start,
        "EndTime": start + i64::from(span),
        "Period": span,
        "Statistics": ["Sum"],
    });
    let operation = "GraniteServiceVersion20100801.GetMetricStatistics";
    let output: Value = call_json(sdk, Service::CloudWatch, operation, &parameters).await?;
    let sums = list(&output["Datapoints"]).iter().filter_map(|point| point["Sum"].as_f64());
    Ok(sums.reduce(|sum, more| sum + more))
}

/// Log lines of several streams.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct LogEvents {
    pub(crate) events: Vec<LogEvent>,
    /// There are more.
    pub(crate) next_token: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct LogEvent {
    pub(crate) event_id: String,
    pub(crate) log_stream_name: String,
    /// Milliseconds since 1970.
    pub(crate) timestamp: u64,
    pub(crate) message: String,
}

/// The lines of a log group since this time, in milliseconds since 1970.
pub(crate) async fn log_events(
    sdk: &SdkConfig,
    group: &str,
    since: u64,
    token: Option<&str>,
) -> Result<LogEvents, CallError> {
    let mut parameters = json!({ "logGroupName": group, "startTime": since });
    if let Some(token) = token {
        parameters["nextToken"] = token.into();
    }
    call_json(sdk, Service::Logs, "Logs_20140328.FilterLogEvents", &parameters).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_arns_fit_into_paths_and_forms() {
        let arn = "arn:aws:lambda:eu-west-1:123456789012:function:orders_1-a.b~c";
        assert_eq!(
            encoded(arn).to_string(),
            "arn%3Aaws%3Alambda%3Aeu-west-1%3A123456789012%3Afunction%3Aorders_1-a.b~c"
        );
    }
}
