//! Operations of Lambda.

use std::collections::HashMap;

use http::Request;
use requeue::aws::SdkConfig;
use requeue_aws::{CallError, Service, call};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{encoded, list, pages};

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

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct LoggingConfig {
    pub(crate) log_format: Option<String>,
    pub(crate) application_log_level: Option<String>,
    pub(crate) log_group: Option<String>,
}

pub(crate) async fn function_configuration(
    sdk: &SdkConfig,
    function: &str,
) -> Result<FunctionConfiguration, CallError> {
    get(sdk, format!("/2015-03-31/functions/{}/configuration", encoded(function))).await
}

pub(crate) async fn recursive_loop(sdk: &SdkConfig, function: &str) -> Result<Value, CallError> {
    get(sdk, format!("/2024-08-31/functions/{}/recursion-config", encoded(function))).await
}

pub(crate) async fn concurrency(sdk: &SdkConfig, function: &str) -> Result<Value, CallError> {
    get(sdk, format!("/2019-09-30/functions/{}/concurrency", encoded(function))).await
}

pub(crate) async fn account_settings(sdk: &SdkConfig) -> Result<Value, CallError> {
    get(sdk, "/2016-08-19/account-settings".to_owned()).await
}

/// All mappings with this `FunctionName` or `EventSourceArn`.
pub(crate) async fn event_source_mappings(
    sdk: &SdkConfig,
    parameter: &str,
    value: &str,
) -> Result<Vec<Value>, CallError> {
    let first = format!("/2015-03-31/event-source-mappings?{parameter}={}", encoded(value));
    pages(async |marker: Option<String>| {
        let marker = marker.map(|marker| format!("&Marker={}", encoded(&marker)));
        let page: Value = get(sdk, format!("{first}{}", marker.unwrap_or_default())).await?;
        Ok((list(&page["EventSourceMappings"]).to_vec(), page["NextMarker"].clone()))
    })
    .await
}

/// With its filters, even if a key encrypts them.
pub(crate) async fn event_source_mapping(sdk: &SdkConfig, uuid: &str) -> Result<Value, CallError> {
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
