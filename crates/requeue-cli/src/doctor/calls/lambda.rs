//! Operations of Lambda.

use std::collections::HashMap;

use http::Request;
use requeue::aws::SdkConfig;
use requeue_aws::{CallError, Service, call};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::super::facts::{Logs, State};
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
    pub(crate) logging_config: Option<Logs>,
    #[serde(flatten)]
    pub(crate) state: State,
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
