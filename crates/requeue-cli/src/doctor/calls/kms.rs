//! Operations of KMS.

use requeue::aws::SdkConfig;
use requeue_aws::{CallError, Service, call_json};
use serde::Deserialize;
use serde_json::json;

/// A key of KMS.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct KeyMetadata {
    pub(crate) arn: Option<String>,
    pub(crate) key_state: Option<String>,
    /// `AWS` or `CUSTOMER`.
    pub(crate) key_manager: Option<String>,
}

/// The key of this ARN or alias.
pub(crate) async fn describe_key(sdk: &SdkConfig, key: &str) -> Result<KeyMetadata, CallError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Output {
        key_metadata: KeyMetadata,
    }
    let parameters = json!({ "KeyId": key });
    let output = call_json(sdk, Service::Kms, "TrentService.DescribeKey", &parameters).await;
    output.map(|output: Output| output.key_metadata)
}

/// The policy of the key of this ARN. A key has one policy, `default`.
pub(crate) async fn key_policy(sdk: &SdkConfig, key: &str) -> Result<String, CallError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Output {
        policy: String,
    }
    let parameters = json!({ "KeyId": key, "PolicyName": "default" });
    let output = call_json(sdk, Service::Kms, "TrentService.GetKeyPolicy", &parameters).await;
    output.map(|output: Output| output.policy)
}
