//! Operations of Lambda.

use std::collections::HashMap;

use http::Request;
use requeue::aws::SdkConfig;
use requeue_aws::{CallError, Service, call};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{encoded, pages};

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
    pub(crate) logging_config: Option<LoggingConfig>,
    pub(crate) state: Option<String>,
    pub(crate) state_reason: Option<String>,
    pub(crate) last_update_status: Option<String>,
    pub(crate) last_update_status_reason: Option<String>,
    pub(crate) vpc_config: Option<VpcConfig>,
}

#[derive(Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct VpcConfig {
    pub(crate) vpc_id: Option<String>,
    pub(crate) subnet_ids: Option<Vec<String>>,
    #[serde(rename = "Ipv6AllowedForDualStack")]
    pub(crate) allows_ipv6: Option<bool>,
}

#[derive(Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct Environment {
    pub(crate) variables: Option<HashMap<String, String>>,
    pub(crate) error: Option<Encrypted>,
}

/// The reason for a hidden value.
#[derive(Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct Encrypted {
    pub(crate) error_code: Option<String>,
}

#[derive(Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct LoggingConfig {
    pub(crate) log_format: Option<String>,
    pub(crate) application_log_level: Option<String>,
    pub(crate) log_group: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct EventSourceMapping {
    #[serde(rename = "UUID")]
    pub(crate) uuid: Option<String>,
    pub(crate) event_source_arn: Option<String>,
    pub(crate) function_arn: Option<String>,
    pub(crate) state: Option<String>,
    pub(crate) batch_size: Option<u32>,
    pub(crate) maximum_batching_window_in_seconds: Option<u64>,
    pub(crate) function_response_types: Option<Vec<String>>,
    pub(crate) scaling_config: Option<ScalingConfig>,
    pub(crate) provisioned_poller_config: Option<ProvisionedPollerConfig>,
    pub(crate) filter_criteria: Option<FilterCriteria>,
    pub(crate) filter_criteria_error: Option<Encrypted>,
    #[serde(rename = "KMSKeyArn")]
    pub(crate) kms_key_arn: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct ScalingConfig {
    pub(crate) maximum_concurrency: Option<u32>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct ProvisionedPollerConfig {
    pub(crate) maximum_pollers: Option<u32>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct FilterCriteria {
    pub(crate) filters: Option<Vec<Filter>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct Filter {
    pub(crate) pattern: Option<String>,
}

pub(crate) async fn function_configuration(
    sdk: &SdkConfig,
    function: &str,
) -> Result<FunctionConfiguration, CallError> {
    get(sdk, format!("/2015-03-31/functions/{}/configuration", encoded(function))).await
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct AliasConfiguration {
    pub(crate) function_version: String,
    pub(crate) routing_config: Option<RoutingConfig>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct RoutingConfig {
    /// One version at most.
    pub(crate) additional_version_weights: Option<HashMap<String, f64>>,
}

pub(crate) async fn alias(
    sdk: &SdkConfig,
    function: &str,
    name: &str,
) -> Result<AliasConfiguration, CallError> {
    let (function, name) = (encoded(function), encoded(name));
    get(sdk, format!("/2015-03-31/functions/{function}/aliases/{name}")).await
}

pub(crate) async fn recursive_loop(
    sdk: &SdkConfig,
    function: &str,
) -> Result<Option<String>, CallError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Output {
        recursive_loop: Option<String>,
    }
    let path = format!("/2024-08-31/functions/{}/recursion-config", encoded(function));
    get(sdk, path).await.map(|output: Output| output.recursive_loop)
}

pub(crate) async fn reserved_concurrency(
    sdk: &SdkConfig,
    function: &str,
) -> Result<Option<u32>, CallError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Output {
        reserved_concurrent_executions: Option<u32>,
    }
    let path = format!("/2019-09-30/functions/{}/concurrency", encoded(function));
    get(sdk, path).await.map(|output: Output| output.reserved_concurrent_executions)
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct AccountLimit {
    pub(crate) unreserved_concurrent_executions: Option<u32>,
}

pub(crate) async fn account_limit(sdk: &SdkConfig) -> Result<AccountLimit, CallError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Output {
        account_limit: AccountLimit,
    }
    let output = get(sdk, "/2016-08-19/account-settings".to_owned()).await;
    output.map(|output: Output| output.account_limit)
}

/// All mappings with this `FunctionName` or `EventSourceArn`.
pub(crate) async fn event_source_mappings(
    sdk: &SdkConfig,
    parameter: &str,
    value: &str,
) -> Result<Vec<EventSourceMapping>, CallError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Page {
        next_marker: Option<String>,
        event_source_mappings: Option<Vec<EventSourceMapping>>,
    }
    let first = format!("/2015-03-31/event-source-mappings?{parameter}={}", encoded(value));
    pages(async |marker: Option<String>| {
        let marker = marker.map(|marker| format!("&Marker={}", encoded(&marker)));
        let page: Page = get(sdk, format!("{first}{}", marker.unwrap_or_default())).await?;
        Ok((page.event_source_mappings.unwrap_or_default(), page.next_marker))
    })
    .await
}

/// With its filters, even if a key encrypts them.
pub(crate) async fn event_source_mapping(
    sdk: &SdkConfig,
    uuid: &str,
) -> Result<EventSourceMapping, CallError> {
    get(sdk, format!("/2015-03-31/event-source-mappings/{}", encoded(uuid))).await
}

async fn get<T: DeserializeOwned + Send + Sync + 'static>(
    sdk: &SdkConfig,
    path: String,
) -> Result<T, CallError> {
    let request =
        Request::get(path).body(String::new()).map_err(CallError::construction_failure)?;
    call(sdk, Service::Lambda, request, requeue_aws::json).await
}
