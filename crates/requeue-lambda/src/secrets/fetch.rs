//! Fetches stored texts from Secrets Manager and SSM, all at once and within a bounded time.

use std::collections::BTreeSet;
use std::time::Duration;

use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::timeout::TimeoutConfig;
use futures_util::future::join_all;
use requeue::aws::{self, UNREADABLE};
use requeue_aws::{CallError, Region, SdkConfig, Service, call_json};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::{Stored, Texts};

/// For all fetches, with the SDK's own retries. Lambda allows 10 s for the start of a function.
const TIMEOUT: Duration = Duration::from_secs(8);
/// The time for one attempt, so that another one is possible.
const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(2_500);

/// The text at each of these places. Without places, no client is made.
pub(crate) async fn fetch(wanted: BTreeSet<Stored>) -> Texts {
    if wanted.is_empty() {
        return Texts::new();
    }
    let deadline = Instant::now() + TIMEOUT;
    let config = timeout_at(deadline, aws::config()).await.ok();
    let fetched = wanted.into_iter().map(async |stored| {
        let fetched = match &config {
            Some(config) => timeout_at(deadline, text(&stored, config)).await.ok(),
            None => None,
        };
        (stored, fetched.unwrap_or_else(|| Err(no_response("TimedOut"))))
    });
    join_all(fetched).await.into_iter().collect()
}

/// Each client asks in its own region.
async fn text(stored: &Stored, config: &SdkConfig) -> Result<String, String> {
    let timeouts = TimeoutConfig::builder().operation_attempt_timeout(ATTEMPT_TIMEOUT).build();
    let at = |region: &str| {
        let config = config.to_builder().timeout_config(timeouts);
        config.region(Region::new(region.to_owned())).build()
    };
    match stored {
        Stored::Secret { arn, region, stage, version } => {
            let mut parameters = json!({ "SecretId": arn });
            for (name, value) in [("VersionStage", stage), ("VersionId", version)] {
                if let Some(value) = value {
                    parameters[name] = value.as_str().into();
                }
            }
            let operation = "secretsmanager.GetSecretValue";
            let response: Value =
                call_json(&at(region), Service::SecretsManager, operation, &parameters)
                    .await
                    .map_err(|error| fetch_error(&error, "secretsmanager:GetSecretValue"))?;
            let text = response["SecretString"]
                .as_str()
                .ok_or("SecretBinary: it has no text: store it as SecretString")?;
            log(arn, response["VersionId"].as_str());
            Ok(text.to_owned())
        }
        Stored::Parameter { arn, region } => {
            let parameters = json!({ "Name": arn, "WithDecryption": true });
            let response: Value =
                call_json(&at(region), Service::Ssm, "AmazonSSM.GetParameter", &parameters)
                    .await
                    .map_err(|error| fetch_error(&error, "ssm:GetParameter"))?;
            let parameter = &response["Parameter"];
            let text = parameter["Value"].as_str().ok_or(UNREADABLE)?;
            log(arn, parameter["Version"].as_u64().map(|version| version.to_string()).as_deref());
            Ok(text.to_owned())
        }
    }
}

/// Logs which version of a stored text this process uses until it ends.
fn log(arn: &str, version: Option<&str>) {
    tracing::info!(arn, version, "fetched a stored setting");
}

/// A code, and the remedy if it is known.
fn fetch_error(error: &CallError, action: &str) -> String {
    match error {
        SdkError::TimeoutError(_) => no_response("TimedOut"),
        SdkError::DispatchFailure(failure) if failure.is_timeout() => no_response("TimedOut"),
        SdkError::DispatchFailure(failure) if failure.is_io() => {
            no_response(aws::connection_code(error))
        }
        SdkError::DispatchFailure(_) | SdkError::ConstructionFailure(_) => {
            "RequestNotBuilt: set AWS credentials in the environment, if there are none".to_owned()
        }
        SdkError::ServiceError(refusal) => {
            refused(refusal.err().code(), refusal.err().message(), action)
        }
        _ => UNREADABLE.to_owned(),
    }
}

/// Only the service's message mentions KMS. It is not shown, since it may quote the request.
fn refused(code: Option<&str>, message: Option<&str>, action: &str) -> String {
    let is_code = |code: &&str| !code.is_empty() && code.chars().all(|c| c.is_ascii_alphanumeric());
    let code = code.filter(is_code).unwrap_or("Unknown");
    let message = message.unwrap_or_default().to_lowercase();
    let is_about_kms =
        ["kms", "ciphertext", "master key"].iter().any(|word| message.contains(word));
    let role = format!("the role needs {action} on it");
    let remedy = match code {
        "DecryptionFailure" | "InvalidKeyId" => KMS,
        "AccessDeniedException" if is_about_kms => KMS,
        "AccessDeniedException" => &role,
        "ResourceNotFoundException" | "ParameterNotFound" | "ParameterVersionNotFound" => {
            "nothing is stored at this ARN, or not in this version"
        }
        "InvalidRequestException" => "it may be scheduled for deletion",
        "ExpiredTokenException" | "InvalidSignatureException" | "UnrecognizedClientException" => {
            "AWS does not accept the credentials"
        }
        "ThrottlingException" => "too many starts at once; raise the throughput of Parameter Store",
        _ => return code.to_owned(),
    };
    format!("{code}: {remedy}")
}

const KMS: &str = "its KMS key must be enabled, and the role needs kms:Decrypt on that key";

fn no_response(code: &str) -> String {
    let remedy = "a function in a VPC needs a NAT gateway or an interface endpoint of the service";
    format!("{code}: {remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_to_do_and_shows_no_message() {
        let remedy = |action: &str| format!("the role needs {action} on it");
        let none = "nothing is stored at this ARN, or not in this version".to_owned();
        for (code, message, expected_code, expected_remedy) in [
            (
                "AccessDeniedException",
                "s3cret",
                "AccessDeniedException",
                Some(remedy("ssm:GetParameter")),
            ),
            (
                "AccessDeniedException",
                "Access to KMS is not allowed",
                "AccessDeniedException",
                Some(KMS.to_owned()),
            ),
            (
                "AccessDeniedException",
                "The ciphertext refers to …",
                "AccessDeniedException",
                Some(KMS.to_owned()),
            ),
            ("DecryptionFailure", "", "DecryptionFailure", Some(KMS.to_owned())),
            ("ParameterNotFound", "", "ParameterNotFound", Some(none.clone())),
            ("ResourceNotFoundException", "kms", "ResourceNotFoundException", Some(none)),
            ("InternalServiceError", "", "InternalServiceError", None),
            ("s3cret s3cret\n", "", "Unknown", None),
            ("", "", "Unknown", None),
        ] {
            let told = refused(Some(code), Some(message), "ssm:GetParameter");
            let expected: Vec<String> =
                [Some(expected_code.to_owned()), expected_remedy].into_iter().flatten().collect();
            assert_eq!(told, expected.join(": "), "{code}");
            assert!(!told.contains("s3cret"));
        }
        assert_eq!(refused(None, None, "ssm:GetParameter"), "Unknown");
    }
}
