//! Operations of Secrets Manager and of SSM, which show the key of a stored text, and never the text.

use requeue::aws::SdkConfig;
use requeue_aws::{CallError, Service, call_json};
use serde::Deserialize;
use serde_json::json;

/// The name of the key; `None` for the one that AWS manages.
pub(crate) async fn key_of_secret(sdk: &SdkConfig, arn: &str) -> Result<Option<String>, CallError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Output {
        kms_key_id: Option<String>,
    }
    let parameters = json!({ "SecretId": arn });
    let operation = "secretsmanager.DescribeSecret";
    let output = call_json(sdk, Service::SecretsManager, operation, &parameters).await;
    output.map(|output: Output| output.kms_key_id)
}

/// A parameter, as far as its encryption concerns.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ParameterMetadata {
    /// Of a `SecureString`.
    pub(crate) key_id: Option<String>,
}

/// `None` if there is no such parameter in this account. Its name alone, since the operation finds no
/// ARN.
pub(crate) async fn describe_parameter(
    sdk: &SdkConfig,
    arn: &str,
) -> Result<Option<ParameterMetadata>, CallError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Output {
        parameters: Vec<ParameterMetadata>,
    }
    let name = arn.split_once(":parameter/").map_or(arn, |(_, name)| name);
    // The ARN has one slash there, whether the name begins with one or not.
    let names = [name.to_owned(), format!("/{name}")];
    let filter = json!({ "Key": "Name", "Option": "Equals", "Values": names });
    let parameters = json!({ "ParameterFilters": [filter] });
    let operation = "AmazonSSM.DescribeParameters";
    let output: Output = call_json(sdk, Service::Ssm, operation, &parameters).await?;
    Ok(output.parameters.into_iter().next())
}
