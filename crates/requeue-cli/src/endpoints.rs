//! The endpoints of an emulator and the AWS profile, in remedies too: a pasted command would
//! otherwise change another account.

use requeue::aws::SdkConfig;
use requeue::printable;
use requeue_aws::set_endpoint;

use crate::sdk;

/// The services of the commands in remedies, as AWS's command line and its settings name them.
const SERVICES: [(&str, &str); 9] = [
    ("cloudwatch", "CloudWatch"),
    ("dynamodb", "DynamoDB"),
    ("iam", "IAM"),
    ("kms", "KMS"),
    ("lambda", "Lambda"),
    ("logs", "CloudWatch Logs"),
    ("secretsmanager", "Secrets Manager"),
    ("sqs", "SQS"),
    ("ssm", "SSM"),
];

/// The service of permissions with this prefix, as AWS's settings name it.
pub(crate) fn service(prefix: &str) -> &'static str {
    SERVICES.iter().find(|(name, _)| *name == prefix).map_or("AWS", |(_, id)| id)
}

/// The endpoint of a service in an error: its URL, if the environment or AWS's files set one.
pub(crate) fn shown_endpoint(service: &'static str, sdk: &SdkConfig) -> String {
    let region = sdk.region().map(AsRef::as_ref).unwrap_or_default();
    set_endpoint(service, sdk).map_or_else(
        || format!("the endpoint of {service} in {region}"),
        |url| printable::url(&url),
    )
}

/// Whether the environment or the AWS profile names an endpoint of SQS.
pub(crate) async fn has_sqs_endpoint() -> bool {
    set_endpoint("SQS", &sdk::endpoints_alone().await).is_some()
}

/// Whether SQS alone has an endpoint, as an emulator: all else would go to AWS, with its keys.
pub(crate) fn has_sqs_alone(sdk: &SdkConfig) -> bool {
    set_endpoint("SQS", sdk).is_some() && set_endpoint("Lambda", sdk).is_none()
}

/// The options of AWS's command line, by service, and the profile.
pub(crate) struct Endpoints(Vec<(&'static str, String)>, Option<String>);

impl Endpoints {
    pub(crate) fn of(sdk: &SdkConfig) -> Self {
        let profile =
            sdk::entered().map(|name| format!("--profile '{}' ", name.replace('\'', "'\\''")));
        let options = |id| {
            let url = set_endpoint(id, sdk).map(|url| printable::url(&url));
            let url = url.map(|url| format!("--endpoint-url {url} ")).unwrap_or_default();
            url + profile.as_deref().unwrap_or_default()
        };
        Self(SERVICES.map(|(name, id)| (name, options(id))).into(), profile)
    }

    /// The text, in which each command names its endpoint and the profile.
    pub(crate) fn named_in(&self, text: &str) -> String {
        let profile = self.1.as_deref().unwrap_or_default();
        let text = text.replace("requeue doctor --", &format!("requeue doctor {profile}--"));
        self.0.iter().fold(text, |text, (service, options)| {
            text.replace(&format!("aws {service} "), &format!("aws {options}{service} "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_of_a_service_with_an_endpoint_names_it() {
        let profile = "--profile 'night' ".to_owned();
        let sqs = format!("--endpoint-url http://localhost:4566 {profile}");
        let endpoints = Endpoints(vec![("sqs", sqs), ("iam", profile.clone())], Some(profile));
        for (text, named) in [
            (
                "aws sqs set-queue-attributes --queue-url URL; then aws sqs purge-queue",
                "aws --endpoint-url http://localhost:4566 --profile 'night' sqs set-queue-attributes --queue-url URL; \
                 then aws --endpoint-url http://localhost:4566 --profile 'night' sqs purge-queue",
            ),
            ("aws iam list-roles", "aws --profile 'night' iam list-roles"),
            ("requeue doctor --function f", "requeue doctor --profile 'night' --function f"),
            ("aws lambda list-functions", "aws lambda list-functions"),
            ("template, below QueueConfig: `sqs`", "template, below QueueConfig: `sqs`"),
        ] {
            assert_eq!(endpoints.named_in(text), named);
        }
    }
}
