//! The endpoint of a service, by the settings and AWS's partitions.

use std::sync::LazyLock;

use aws_sdk_sqs::config::endpoint::{DefaultResolver, Params, ResolveEndpoint};
use aws_smithy_runtime_api::box_error::BoxError;
use aws_types::SdkConfig;
use aws_types::region::Region;
use aws_types::service_config::ServiceConfigKey;

use crate::Service;

pub(crate) struct Endpoint {
    pub(crate) url: String,
    /// IAM is in one region of each partition.
    pub(crate) signing_region: Region,
}

/// The endpoint to which a client of SQS sends its requests, whatever host a queue's URL names.
#[derive(Clone, Debug)]
pub struct SqsEndpoint {
    /// As in `https://sqs.eu-west-1.amazonaws.com`.
    pub url: String,
    /// Whether the settings name it.
    pub is_set: bool,
}

impl SqsEndpoint {
    /// The endpoint in a region.
    ///
    /// # Errors
    ///
    /// If the settings contradict each other.
    pub async fn of(sdk: &SdkConfig, region: &str) -> Result<Self, BoxError> {
        let given = set_endpoint("SQS", sdk);
        let is_set = given.is_some();
        let (fips, ipv6) = (sdk.use_fips() == Some(true), sdk.use_dual_stack() == Some(true));
        Ok(Self { url: sqs(region, fips, ipv6, given).await?, is_set })
    }
}

/// The host of IAM, and the region of its signatures, by the beginning of a region's name. AWS's
/// own partition is not listed. Source: AWS General Reference, endpoints of IAM.
const IAM: [(&str, &str, &str); 7] = [
    ("cn-", "iam.cn-north-1.amazonaws.com.cn", "cn-north-1"),
    ("us-gov-", "iam.us-gov.amazonaws.com", "us-gov-west-1"),
    ("us-iso-", "iam.us-iso-east-1.c2s.ic.gov", "us-iso-east-1"),
    ("us-isob-", "iam.us-isob-east-1.sc2s.sgov.gov", "us-isob-east-1"),
    ("us-isof-", "iam.us-isof-south-1.csp.hci.ic.gov", "us-isof-south-1"),
    ("eu-isoe-", "iam.eu-isoe-west-1.cloud.adc-e.uk", "eu-isoe-west-1"),
    ("eusc-", "iam.eusc-de-east-1.amazonaws.eu", "eusc-de-east-1"),
];

impl Endpoint {
    pub(crate) async fn of(service: Service, sdk: &SdkConfig) -> Result<Self, BoxError> {
        let region = sdk.region().ok_or("no region is set")?;
        let (fips, ipv6) = (sdk.use_fips() == Some(true), sdk.use_dual_stack() == Some(true));
        let given = set_endpoint(service.names().1, sdk);
        let is_given = given.is_some();
        // The host of Secrets Manager is the same with IPv6.
        let sqs_ipv6 = ipv6 && (is_given || service != Service::SecretsManager);
        let sqs = sqs(region.as_ref(), fips, sqs_ipv6, given).await?;
        if is_given {
            return Ok(Self { url: sqs, signing_region: region.clone() });
        }
        let (host, signing_region) = if service == Service::Iam {
            iam(region, fips, ipv6)
        } else {
            (beside(&sqs, service, fips)?, region.clone())
        };
        Ok(Self { url: format!("https://{host}"), signing_region })
    }
}

/// Kept, since it holds a copy of AWS's list of regions.
static RESOLVER: LazyLock<DefaultResolver> = LazyLock::new(DefaultResolver::new);

async fn sqs(
    region: &str,
    fips: bool,
    ipv6: bool,
    given: Option<String>,
) -> Result<String, BoxError> {
    let params = Params::builder()
        .region(region.to_owned())
        .use_fips(fips)
        .use_dual_stack(ipv6)
        .set_endpoint(given)
        .build()?;
    Ok(RESOLVER.resolve_endpoint(&params).await?.url().to_owned())
}

/// The host of a service in the region and the partition where SQS has this URL. In us-gov, the
/// usual hosts of SQS, CloudWatch, DynamoDB and Parameter Store meet FIPS, and those of the
/// other services do not. Source: the services' endpoint rules in botocore.
fn beside(sqs: &str, service: Service, fips: bool) -> Result<String, BoxError> {
    let (sqs, domain) = sqs.split_once('.').ok_or("SQS has no host")?;
    let is_as_sqs = [Service::CloudWatch, Service::DynamoDb, Service::Logs, Service::Ssm];
    let fips = if is_as_sqs.contains(&service) { sqs.ends_with("-fips") } else { fips };
    Ok(format!("{}{}.{domain}", service.names().0, if fips { "-fips" } else { "" }))
}

fn iam(region: &Region, fips: bool, ipv6: bool) -> (String, Region) {
    let partition = IAM.iter().find(|(prefix, ..)| region.as_ref().starts_with(prefix));
    let (host, signing) = match (partition, fips, ipv6) {
        (Some((_, host, signing)), ..) => (*host, *signing),
        (None, false, false) => ("iam.amazonaws.com", "us-east-1"),
        (None, false, true) => ("iam.global.api.aws", "us-east-1"),
        (None, true, false) => ("iam-fips.amazonaws.com", "us-east-1"),
        (None, true, true) => ("iam-fips.global.api.aws", "us-east-1"),
    };
    (host.to_owned(), Region::from_static(signing))
}

/// The endpoint in the settings, for the service of this id, such as `CloudWatch Logs`, or for all.
/// Precedence as in the SDK's clients. An empty one is none: the SDK would panic.
pub fn set_endpoint(service_id: &'static str, sdk: &SdkConfig) -> Option<String> {
    let is_set = |url: &String| !url.is_empty();
    let for_all = || sdk.endpoint_url().map(str::to_owned).filter(is_set);
    if sdk.get_origin("endpoint_url").is_client_config() {
        return for_all();
    }
    let key = ServiceConfigKey::builder()
        .service_id(service_id)
        .env("AWS_ENDPOINT_URL")
        .profile("endpoint_url")
        .build()
        .ok()?;
    let for_service = sdk.service_config().and_then(|settings| settings.load_config(key));
    for_service.filter(is_set).or_else(for_all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A service and a region, whether with FIPS and IPv6; the host, and the region of signatures.
    const HOSTS: &[(Service, &str, bool, bool, &str, &str)] = {
        use Service::{CloudWatch, DynamoDb, Iam, Kms, Lambda, Logs, SecretsManager, Ssm};
        &[
            (Lambda, "eu-west-1", false, false, "lambda.eu-west-1.amazonaws.com", "eu-west-1"),
            (Lambda, "eu-west-1", true, false, "lambda-fips.eu-west-1.amazonaws.com", "eu-west-1"),
            (Lambda, "eu-west-1", false, true, "lambda.eu-west-1.api.aws", "eu-west-1"),
            (Ssm, "cn-north-1", false, false, "ssm.cn-north-1.amazonaws.com.cn", "cn-north-1"),
            (Ssm, "us-gov-west-1", true, false, "ssm.us-gov-west-1.amazonaws.com", "us-gov-west-1"),
            (
                SecretsManager,
                "us-gov-west-1",
                true,
                false,
                "secretsmanager-fips.us-gov-west-1.amazonaws.com",
                "us-gov-west-1",
            ),
            (
                SecretsManager,
                "eu-west-1",
                false,
                true,
                "secretsmanager.eu-west-1.amazonaws.com",
                "eu-west-1",
            ),
            (Kms, "eu-west-1", true, false, "kms-fips.eu-west-1.amazonaws.com", "eu-west-1"),
            (
                Kms,
                "us-gov-west-1",
                true,
                false,
                "kms-fips.us-gov-west-1.amazonaws.com",
                "us-gov-west-1",
            ),
            (Logs, "us-east-1", true, false, "logs-fips.us-east-1.amazonaws.com", "us-east-1"),
            (
                Logs,
                "us-gov-east-1",
                true,
                false,
                "logs.us-gov-east-1.amazonaws.com",
                "us-gov-east-1",
            ),
            (Logs, "eu-west-1", false, true, "logs.eu-west-1.api.aws", "eu-west-1"),
            (
                CloudWatch,
                "eu-west-1",
                false,
                false,
                "monitoring.eu-west-1.amazonaws.com",
                "eu-west-1",
            ),
            (
                CloudWatch,
                "us-gov-west-1",
                true,
                false,
                "monitoring.us-gov-west-1.amazonaws.com",
                "us-gov-west-1",
            ),
            (DynamoDb, "eu-west-1", false, false, "dynamodb.eu-west-1.amazonaws.com", "eu-west-1"),
            (
                DynamoDb,
                "eu-west-1",
                true,
                false,
                "dynamodb-fips.eu-west-1.amazonaws.com",
                "eu-west-1",
            ),
            (DynamoDb, "eu-west-1", false, true, "dynamodb.eu-west-1.api.aws", "eu-west-1"),
            (
                DynamoDb,
                "us-gov-west-1",
                true,
                false,
                "dynamodb.us-gov-west-1.amazonaws.com",
                "us-gov-west-1",
            ),
            (
                DynamoDb,
                "us-gov-west-1",
                true,
                true,
                "dynamodb-fips.us-gov-west-1.api.aws",
                "us-gov-west-1",
            ),
            (
                DynamoDb,
                "cn-north-1",
                false,
                false,
                "dynamodb.cn-north-1.amazonaws.com.cn",
                "cn-north-1",
            ),
            (Iam, "eu-west-1", false, false, "iam.amazonaws.com", "us-east-1"),
            (Iam, "eu-west-1", true, false, "iam-fips.amazonaws.com", "us-east-1"),
            (Iam, "cn-northwest-1", false, false, "iam.cn-north-1.amazonaws.com.cn", "cn-north-1"),
            (Iam, "us-gov-east-1", true, false, "iam.us-gov.amazonaws.com", "us-gov-west-1"),
        ]
    };

    #[tokio::test]
    async fn a_service_is_where_the_client_of_the_sdk_finds_it() {
        for &(service, region, fips, ipv6, expected, signing) in HOSTS {
            let sdk = SdkConfig::builder()
                .region(Region::new(region))
                .use_fips(fips)
                .use_dual_stack(ipv6)
                .build();
            let found = Endpoint::of(service, &sdk).await.expect("an endpoint");
            let told = (found.url, found.signing_region.to_string());
            assert_eq!(told, (format!("https://{expected}"), signing.to_owned()));
        }
        let china = SqsEndpoint::of(&SdkConfig::builder().build(), "cn-north-1").await;
        let china = china.expect("an endpoint");
        assert_eq!((&*china.url, china.is_set), ("https://sqs.cn-north-1.amazonaws.com.cn", false));
    }

    #[tokio::test]
    async fn an_endpoint_of_the_settings_is_taken_as_it_is() {
        let sdk = SdkConfig::builder()
            .region(Region::new("eu-west-1"))
            .endpoint_url("http://127.0.0.1:1")
            .build();
        for service in [Service::Iam, Service::Lambda] {
            let found = Endpoint::of(service, &sdk).await.expect("an endpoint");
            assert_eq!(
                (found.url.as_str(), found.signing_region.as_ref()),
                ("http://127.0.0.1:1", "eu-west-1")
            );
        }
        let empty = sdk.to_builder().endpoint_url("").build();
        let found = Endpoint::of(Service::DynamoDb, &empty).await.expect("an endpoint");
        assert_eq!(found.url, "https://dynamodb.eu-west-1.amazonaws.com");
        let sqs = SqsEndpoint::of(&sdk, "us-east-2").await.expect("an endpoint");
        assert_eq!((&*sqs.url, sqs.is_set), ("http://127.0.0.1:1", true));
        let refused =
            Endpoint::of(Service::Iam, &sdk.into_builder().use_fips(true).build()).await.err();
        assert!(refused.is_some(), "FIPS cannot be had there");
    }
}
