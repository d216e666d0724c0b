//! A deployed function, as the user names it: its configuration and its log.

use std::collections::HashMap;
use std::time::Duration;

use http::Request;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use requeue::aws::SdkConfig;
use requeue::queue::MAX_RUN;
use requeue_aws::{CallError, Service, call, call_json};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::endpoints::shown_endpoint;
use crate::failed_call::FailedCall;

pub(crate) fn not_found(name: &str, sdk: &SdkConfig, error: &requeue::queue::CallError) -> String {
    if error.code == "ResourceNotFoundException" {
        let region = sdk.region().map(AsRef::as_ref).unwrap_or_default();
        let check = "check its name, the region and the account of the credentials";
        // A mapping outlives its function, and names it by its ARN.
        let waits = if name.contains(':') {
            format!(
                "; if a mapping invokes it, the queue's messages wait: create it again, or delete \
                 the mapping that `aws lambda list-event-source-mappings --region {region} \
                 --function-name {name}` shows"
            )
        } else {
            String::new()
        };
        return format!("there is no function {name} in {region}; {check}{waits}");
    }
    let (service, operation) = ("Lambda", "GetFunctionConfiguration");
    let endpoint = &shown_endpoint(service, sdk);
    FailedCall { service, operation, resource: name, endpoint, error }.to_string()
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct FunctionConfiguration {
    pub(crate) function_name: Option<String>,
    pub(crate) function_arn: Option<String>,
    pub(crate) role: Option<String>,
    pub(crate) timeout: Option<u64>,
    pub(crate) description: Option<String>,
    pub(crate) last_modified: Option<String>,
    #[serde(rename = "KMSKeyArn")]
    pub(crate) kms_key_arn: Option<String>,
    pub(crate) environment: Option<Environment>,
    pub(crate) logging_config: Option<Logs>,
    #[serde(flatten)]
    pub(crate) state: Readiness,
    pub(crate) vpc_config: Option<VpcConfig>,
    pub(crate) tenancy_config: Option<Value>,
    pub(crate) durable_config: Option<Value>,
}

impl FunctionConfiguration {
    /// How long a call takes at most. A durable function responds at the end of its execution.
    pub(crate) fn longest_call(&self, default: u64) -> Duration {
        let execution = self.durable_config.as_ref().and_then(|it| it["ExecutionTimeout"].as_u64());
        let execution = Duration::from_secs(execution.unwrap_or_default()).min(MAX_RUN);
        Duration::from_secs(self.timeout.unwrap_or(default)).max(execution)
    }
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

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct Encrypted {
    pub(crate) error_code: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct Readiness {
    pub(crate) state: Option<String>,
    pub(crate) state_reason: Option<String>,
    pub(crate) last_update_status: Option<String>,
    pub(crate) last_update_status_reason: Option<String>,
}

impl Readiness {
    /// `Active`, or Lambda's words for a function that it cannot run.
    pub(crate) fn told(&self) -> String {
        let told = |word: &Option<String>, reason: &Option<String>| {
            let word = word.as_deref().unwrap_or("unknown");
            match reason.as_deref().unwrap_or_default() {
                "" => word.to_owned(),
                reason => format!("{word}: {reason}"),
            }
        };
        let state = told(&self.state, &self.state_reason);
        if self.last_update_status.as_deref() == Some("Successful") {
            return state;
        }
        let update = told(&self.last_update_status, &self.last_update_status_reason);
        format!("{state}; last update {update}")
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct Logs {
    /// `JSON` or `Text`.
    pub(crate) log_format: Option<String>,
    pub(crate) application_log_level: Option<String>,
    pub(crate) log_group: Option<String>,
}

impl Logs {
    /// Why the log lacks Requeue's lines, or has them in no form that can be read.
    pub(crate) fn lacks_lines(&self) -> Option<String> {
        let level = self.application_log_level.as_deref().unwrap_or("INFO");
        if self.log_format.as_deref() != Some("JSON") {
            return Some("the log format is Text".to_owned());
        }
        let drops = ["WARN", "ERROR", "FATAL"].contains(&level);
        drops
            .then(|| format!("the application log level is {level}, so Lambda drops lines at INFO"))
    }

    pub(crate) fn group_of(&self, function: &str) -> String {
        self.log_group.clone().unwrap_or_else(|| format!("/aws/lambda/{function}"))
    }
}

pub(crate) async fn function_configuration(
    sdk: &SdkConfig,
    function: &str,
) -> Result<FunctionConfiguration, CallError> {
    get(sdk, &format!("2015-03-31/functions/{}/configuration", encoded(function))).await
}

pub(crate) async fn get<T: DeserializeOwned + Send + Sync + 'static>(
    sdk: &SdkConfig,
    path: &str,
) -> Result<T, CallError> {
    let request = Request::get(format!("/{path}"))
        .body(String::new())
        .map_err(CallError::construction_failure)?;
    call(sdk, Service::Lambda, request, requeue_aws::json).await
}

/// Source: RFC 3986, unreserved characters.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

pub(crate) fn encoded(text: &str) -> impl std::fmt::Display {
    utf8_percent_encode(text, RESERVED)
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct LogEvents {
    pub(crate) events: Vec<LogEvent>,
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

/// The lines of a log group since this time in milliseconds: those that match the pattern, or all.
pub(crate) async fn log_events(
    sdk: &SdkConfig,
    group: &str,
    since: u64,
    pattern: Option<&str>,
    token: Option<&str>,
) -> Result<LogEvents, CallError> {
    let mut parameters = json!({ "logGroupName": group, "startTime": since });
    if let Some(pattern) = pattern {
        parameters["filterPattern"] = pattern.into();
    }
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
