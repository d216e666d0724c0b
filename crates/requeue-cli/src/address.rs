//! The URL options of several commands.

use std::net::IpAddr;

use http::Uri;
use http::uri::Scheme;
use requeue::aws::SdkConfig;
use requeue::queue::{QueueArn, QueueUrl};
use requeue_aws::SqsEndpoint;
use requeue_lambda::{TargetRules, TargetUrl};

use crate::Error;

/// Parses `--target-url` by the rules of the environment's settings.
pub(crate) fn target(url: &str, rules: TargetRules) -> Result<TargetUrl, Error> {
    let target = TargetUrl::parse_with(url, rules).map_err(|error| {
        let remedy = error
            .allowed_by()
            .map(|name| format!("; set {name}=true to allow it"))
            .unwrap_or_default();
        format!("--target-url is invalid: {error}{remedy}")
    })?;
    Ok(target)
}

/// The queue of the URL in this option. `region` counts if the URL has none.
pub(crate) fn queue(option: &str, url: &str, region: &str) -> Result<QueueArn, Error> {
    let parsed: QueueUrl = url.parse().map_err(|error| format!("{option} {url} is {error}"))?;
    Ok(parsed.arn("aws", region))
}

/// The endpoint for requests about a queue.
pub(crate) struct Asked {
    pub(crate) endpoint: String,
    /// A note for the user if the URL names another host.
    pub(crate) note: Option<String>,
}

impl Asked {
    /// The SDK sends requests to the endpoint of its settings or of the region, not to the host of
    /// the queue's URL. With an emulator's URL but without its endpoint, they would go to a queue
    /// at AWS, so that is an error.
    pub(crate) async fn of(
        option: &str,
        url: &str,
        queue: &QueueArn,
        sdk: &SdkConfig,
    ) -> Result<Self, Error> {
        let SqsEndpoint { url: endpoint, is_set } =
            SqsEndpoint::of(sdk, queue.region()).await.map_err(|error| error.to_string())?;
        let (named, endpoint) = (origin(url), endpoint.trim_end_matches('/').to_owned());
        if is_same(url, &endpoint) {
            return Ok(Self { endpoint, note: None });
        }
        if !is_set && !AWS.iter().any(|domain| named.contains(domain)) {
            return Err(format!(
                "{option} names {named}, but requests would go to {endpoint}; a queue's URL never \
                 sets the endpoint, so set AWS_ENDPOINT_URL_SQS={named}"
            )
            .into());
        }
        let from = if is_set {
            "as AWS_ENDPOINT_URL_SQS, AWS_ENDPOINT_URL or the AWS profile says"
        } else {
            "the endpoint of the region; set AWS_ENDPOINT_URL_SQS for another one"
        };
        let note = format!("{option} names {named}, but requests go to {endpoint}, {from}");
        Ok(Self { endpoint, note: Some(note) })
    }
}

/// Suffixes of AWS's host names. Source: `partitions.json` of the AWS SDKs.
const AWS: [&str; 6] =
    [".amazonaws.", ".api.aws", ".api.amazonwebservices.", ".ic.gov", ".sgov.gov", ".adc-e.uk"];

/// Scheme, host and port.
fn origin(url: &str) -> &str {
    let host = url.find("://").map_or(0, |at| at + "://".len());
    url[host..].find('/').map_or(url, |path| &url[..host + path])
}

/// Whether the URL's host is that of the endpoint. Emulators name themselves `localhost`, or
/// `LocalStack`'s name for it, on any host.
fn is_same(url: &str, endpoint: &str) -> bool {
    let (Ok(url), Ok(endpoint)) = (url.parse::<Uri>(), endpoint.parse::<Uri>()) else {
        return false;
    };
    let port = |uri: &Uri| {
        uri.port_u16().unwrap_or(if uri.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 })
    };
    let host = url.host().unwrap_or_default().to_ascii_lowercase();
    let is_local = ["localhost", "localhost.localstack.cloud"].iter().any(|local| {
        host.strip_suffix(local).is_some_and(|before| before.is_empty() || before.ends_with('.'))
    }) || host
        .trim_matches(['[', ']'])
        .parse()
        .is_ok_and(|ip: IpAddr| ip.is_loopback() || ip.is_unspecified());
    port(&url) == port(&endpoint)
        && (is_local || endpoint.host().is_some_and(|other| other.eq_ignore_ascii_case(&host)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_url_of_another_host_than_the_endpoint_is_told_or_refused() {
        const AWS: &str = "https://sqs.us-east-1.amazonaws.com";
        for (url, endpoint, asked, said) in [
            ("https://sqs.us-east-1.amazonaws.com/1/q", None, Some(AWS), ""),
            ("https://us-east-1.queue.amazonaws.com/1/q", None, Some(AWS), "names https://us-"),
            (
                "http://localhost:9324/0/q",
                None,
                None,
                "--queue-url names http://localhost:9324, but requests would go to \
                 https://sqs.us-east-1.amazonaws.com; a queue's URL never sets the endpoint, so \
                 set AWS_ENDPOINT_URL_SQS=http://localhost:9324",
            ),
            ("http://localhost:9324/0/q", Some("http://127.0.0.1:9324"), Some("http://127"), ""),
            ("http://[::1]:9324/0/q", Some("http://localhost:9324/"), Some("http://local"), ""),
            ("http://LOCALHOST/0/q", Some("http://elasticmq:80"), Some("http://elasticmq"), ""),
            ("http://mq:9324/0/q", Some("http://mq:9324"), Some("http://mq:9324"), ""),
            (
                "http://sqs.us-east-1.localhost.localstack.cloud:4566/000000000000/q",
                Some("http://localstack:4566"),
                Some("http://localstack:4566"),
                "",
            ),
            (
                "http://localhost:9324/0/q",
                Some("http://localhost:4566"),
                Some("http://localhost:4566"),
                "--queue-url names http://localhost:9324, but requests go to \
                 http://localhost:4566, as AWS_ENDPOINT_URL_SQS",
            ),
            (
                "https://sqs.us-east-1.amazonaws.com/1/q",
                Some("http://127.0.0.1:9324"),
                Some("http://127.0.0.1:9324"),
                "names https://sqs.us-east-1.amazonaws.com, but requests go to http://127",
            ),
            ("http://notlocalhost:1/0/q", Some("http://mq:1"), Some("http://mq:1"), "names http"),
        ] {
            let mut sdk = SdkConfig::builder();
            sdk.set_endpoint_url(endpoint.map(str::to_owned));
            let queue = queue("--queue-url", url, "us-east-1").expect("a queue");
            match (Asked::of("--queue-url", url, &queue, &sdk.build()).await, asked) {
                (Ok(is), Some(asked)) => {
                    let note = is.note.unwrap_or_default();
                    assert!(is.endpoint.starts_with(asked), "{url}: {}", is.endpoint);
                    assert!(note.contains(said) && note.is_empty() == said.is_empty(), "{note}");
                }
                (Err(error), None) => assert_eq!(error.to_string(), said),
                (is, _) => panic!("{url} at {endpoint:?}: {:?}", is.map(|is| is.endpoint)),
            }
        }
    }
}
