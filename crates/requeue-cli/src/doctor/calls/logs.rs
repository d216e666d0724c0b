//! Operations of CloudWatch Logs.

use requeue::aws::SdkConfig;
use requeue_aws::{CallError, Service, call_json};
use serde::Deserialize;
use serde_json::json;

/// Whether there is a log group of this name. Names are sorted, so the first page has it.
pub(crate) async fn has_log_group(sdk: &SdkConfig, name: &str) -> Result<bool, CallError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Output {
        log_groups: Vec<LogGroup>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct LogGroup {
        log_group_name: Option<String>,
    }
    let parameters = json!({ "logGroupNamePrefix": name });
    let operation = "Logs_20140328.DescribeLogGroups";
    let output: Output = call_json(sdk, Service::Logs, operation, &parameters).await?;
    let mut names = output.log_groups.into_iter().filter_map(|group| group.log_group_name);
    Ok(names.any(|group| group == name))
}
