//! Operations of CloudWatch Logs.

use requeue::aws::SdkConfig;
use requeue_aws::{CallError, Service, call_json};
use serde::Deserialize;
use serde_json::json;

/// The class of the log group of this name; `None` if there is none. Names are sorted, so the first
/// page has it.
pub(crate) async fn log_group_class(
    sdk: &SdkConfig,
    name: &str,
) -> Result<Option<String>, CallError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Output {
        log_groups: Vec<LogGroup>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct LogGroup {
        log_group_name: Option<String>,
        log_group_class: Option<String>,
    }
    let parameters = json!({ "logGroupNamePrefix": name });
    let operation = "Logs_20140328.DescribeLogGroups";
    let output: Output = call_json(sdk, Service::Logs, operation, &parameters).await?;
    let mut groups = output.log_groups.into_iter();
    let group = groups.find(|group| group.log_group_name.as_deref() == Some(name));
    // Source: CloudWatch Logs API reference, `CreateLogGroup`.
    Ok(group.map(|group| group.log_group_class.unwrap_or_else(|| "STANDARD".to_owned())))
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
