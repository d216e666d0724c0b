//! Queues of the command line: a name, a URL or an ARN, and the endpoint of the requests about them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::Region;
use aws_sdk_sqs::types::QueueAttributeName;
use http::Uri;
use http::uri::Scheme;
use requeue::aws::SdkConfig;
use requeue::embedded::loopback::is_loopback;
use requeue::queue::{Arn, CallError, MAX_QUEUE_NAME, QueueArn, QueueUrl};
use requeue::{StartError, printable};
use requeue_aws::SqsEndpoint;

use crate::failed_call::{FailedCall, call_error};
use crate::{Error, bail};

/// The region if neither the option, the environment, the AWS profile nor the queue names one.
const DEFAULT_REGION: &str = "us-east-1";

/// The account of queues in an emulator.
const EMULATED: &str = "000000000000";

#[derive(Clone, Default, clap::Args)]
pub(crate) struct RegionArgument {
    /// The region, if no URL or ARN has one. [default: `AWS_REGION`, that of the AWS profile, or
    /// us-east-1]
    #[arg(long, help_heading = "Queue", value_parser = region_name)]
    region: Option<String>,
    /// The AWS profile, before `AWS_PROFILE` and before keys in the environment.
    #[arg(long, help_heading = "Queue", value_name = "NAME")]
    pub(crate) profile: Option<String>,
}

/// Reads the name of a region; an empty variable counts as unset.
fn region_name(text: &str) -> Result<String, String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if text.chars().all(is_part) {
        return Ok(text.to_owned());
    }
    Err("a region has lower-case letters, digits and hyphens; name it as in eu-west-1".to_owned())
}

impl RegionArgument {
    pub(crate) fn given(&self) -> Option<&str> {
        self.region.as_deref().filter(|region| !region.is_empty())
    }

    /// The region if none is given: that of AWS's environment, or the default.
    pub(crate) fn or_of<'a>(&'a self, sdk: &'a SdkConfig) -> &'a str {
        let of_environment =
            || sdk.region().map(AsRef::as_ref).filter(|region: &&str| !region.is_empty());
        self.given().or_else(of_environment).unwrap_or(DEFAULT_REGION)
    }

    /// The region of this function's ARN, else that of [`or_of`](Self::or_of).
    pub(crate) fn of_function<'a>(&'a self, name: &'a str, sdk: &'a SdkConfig) -> &'a str {
        let of_arn = Some(Arn::of(name).region).filter(|region| !region.is_empty());
        of_arn.unwrap_or_else(|| self.or_of(sdk))
    }
}

#[derive(Clone, Debug)]
pub(crate) enum QueueName {
    /// The text has no user and no password.
    Url {
        text: String,
        url: QueueUrl,
    },
    Arn(QueueArn),
    Name(String),
}

impl FromStr for QueueName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const FORMS: &str = "name a queue as orders, by its URL or by its ARN";
        if text.contains("://") {
            let url = text.parse().map_err(|error| format!("it is {error}; {FORMS}"))?;
            return Ok(Self::Url { text: printable::url(text), url });
        }
        if text.starts_with("arn:") {
            let arn = text.parse().map_err(|error| format!("it is {error}; {FORMS}"))?;
            return Ok(Self::Arn(arn));
        }
        let stem = text.strip_suffix(".fifo").unwrap_or(text);
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if stem.is_empty() || text.len() > MAX_QUEUE_NAME || !stem.chars().all(is_part) {
            return Err(format!(
                "the name of a queue has at most {MAX_QUEUE_NAME} letters, digits, hyphens and \
                 underscores; {FORMS}"
            ));
        }
        Ok(Self::Name(text.to_owned()))
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url { text, .. } | Self::Name(text) => f.write_str(text),
            Self::Arn(arn) => write!(f, "{arn}"),
        }
    }
}

pub(crate) struct FoundQueue {
    pub(crate) arn: QueueArn,
    pub(crate) endpoint: String,
    /// A note for the user if a URL names another host.
    pub(crate) note: Option<String>,
}

impl QueueName {
    /// A name costs a request. `region` counts if the URL has none.
    pub(crate) async fn find(
        &self,
        option: &str,
        region: &RegionArgument,
        sdk: &SdkConfig,
    ) -> Result<FoundQueue, Error> {
        let region = region.or_of(sdk);
        match self {
            Self::Url { text, url } => {
                let arn = url.arn("aws", region);
                let (endpoint, note) = asked(option, text, url, &arn, sdk).await?;
                Ok(FoundQueue { arn, endpoint, note })
            }
            Self::Arn(arn) => {
                let (endpoint, is_set) = endpoint(sdk, arn.region()).await?;
                let is_foreign = is_set && arn.account() != EMULATED;
                let note = is_foreign.then(|| note(option, &arn.to_string(), &endpoint, is_set));
                Ok(FoundQueue { arn: arn.clone(), endpoint, note })
            }
            Self::Name(name) => by_name(name, region, sdk).await,
        }
    }
}

impl FoundQueue {
    /// The error of a worker of this queue that does not start.
    pub(crate) fn not_started(&self, error: StartError) -> Error {
        let error = match &error {
            StartError::Refused { code, .. } => CallError::responded(400, code),
            StartError::Unavailable { code } => CallError::ambiguous(code),
            _ => return error.into(),
        };
        let queue = self.arn.to_string();
        FailedCall::of_sqs("GetQueueAttributes", &queue, &self.endpoint, &error).to_string().into()
    }
}

pub(crate) fn sqs_client(sdk: &SdkConfig, region: &str) -> Client {
    let region = Region::new(region.to_owned());
    Client::from_conf(aws_sdk_sqs::config::Builder::from(sdk).region(region).build())
}

/// How long the queue keeps a message, if it says so.
pub(crate) async fn retention(queue: &QueueArn, sdk: &SdkConfig) -> Option<Duration> {
    const RETENTION: QueueAttributeName = QueueAttributeName::MessageRetentionPeriod;
    let request = sqs_client(sdk, queue.region()).get_queue_attributes().queue_url(queue.url());
    let response = request.attribute_names(RETENTION).send().await.ok()?;
    Some(Duration::from_secs(response.attributes()?.get(&RETENTION)?.parse().ok()?))
}

async fn by_name(name: &str, region: &str, sdk: &SdkConfig) -> Result<FoundQueue, Error> {
    let (endpoint, _) = endpoint(sdk, region).await?;
    let asked = sqs_client(sdk, region).get_queue_url().queue_name(name).send().await;
    let asked = asked.map_err(|error| {
        let error = call_error(&error);
        let queue = format!("arn:aws:sqs:{region}:*:{name}");
        FailedCall::of_sqs("GetQueueUrl", &queue, &endpoint, &error).to_string()
    })?;
    let url = asked.queue_url().unwrap_or_default();
    let url: QueueUrl = url.parse().map_err(|error| {
        let url = printable::url(url);
        format!("{endpoint} says that the URL of {name} is {url}: it is {error}")
    })?;
    Ok(FoundQueue { arn: url.arn("aws", region), endpoint, note: None })
}

/// The endpoint without a slash at its end, and whether the settings name it.
async fn endpoint(sdk: &SdkConfig, region: &str) -> Result<(String, bool), Error> {
    let SqsEndpoint { url, is_set } = SqsEndpoint::of(sdk, region).await.map_err(|error| {
        format!(
            "SQS has no endpoint in the region `{region}`: {error}; correct --region, \
                 AWS_REGION or the AWS profile"
        )
    })?;
    Ok((printable::url(url.trim_end_matches('/')), is_set))
}

/// The endpoint for requests about the queue of a URL, and a note if the URL names another host. The
/// SDK sends requests to the endpoint of its settings or of the region, not to the host of the
/// queue's URL. With an emulator's URL but without its endpoint, they would go to a queue at AWS, so
/// that is an error.
async fn asked(
    option: &str,
    text: &str,
    url: &QueueUrl,
    queue: &QueueArn,
    sdk: &SdkConfig,
) -> Result<(String, Option<String>), Error> {
    let (endpoint, is_set) = endpoint(sdk, queue.region()).await?;
    let named = origin(text);
    if is_same(text, &endpoint) {
        return Ok((endpoint, None));
    }
    if !is_set && !url.is_at_aws() {
        bail!(
            "{option} names {named}, but requests would go to {endpoint}; a queue's URL never sets \
             the endpoint, so set AWS_ENDPOINT_URL_SQS={named}"
        );
    }
    let note = note(option, named, &endpoint, is_set);
    Ok((endpoint, Some(note)))
}

fn note(option: &str, named: &str, endpoint: &str, is_set: bool) -> String {
    let from = if is_set {
        "as AWS_ENDPOINT_URL_SQS, AWS_ENDPOINT_URL or the AWS profile says"
    } else {
        "the endpoint of the region; set AWS_ENDPOINT_URL_SQS for another one"
    };
    format!("{option} names {named}, but requests go to {endpoint}, {from}")
}

/// Scheme, host and port.
fn origin(url: &str) -> &str {
    let host = url.find("://").map_or(0, |at| at + "://".len());
    url[host..].find('/').map_or(url, |path| &url[..host + path])
}

/// Whether the URL's host is that of the endpoint. Emulators name themselves `localhost`.
fn is_same(url: &str, endpoint: &str) -> bool {
    let (Ok(url), Ok(endpoint)) = (url.parse::<Uri>(), endpoint.parse::<Uri>()) else {
        return false;
    };
    let port = |uri: &Uri| {
        uri.port_u16().unwrap_or(if uri.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 })
    };
    let host = url.host().unwrap_or_default().to_ascii_lowercase();
    let is_local = is_loopback(&host)
        || host == "localhost.localstack.cloud"
        || host.ends_with(".localhost.localstack.cloud")
        || ["0.0.0.0", "[::]"].contains(&&*host);
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
            ("https://sqs.us-east-1.amazonaws.com/123456789012/q", None, Some(AWS), ""),
            (
                "https://us-east-1.queue.amazonaws.com/123456789012/q",
                None,
                Some(AWS),
                "names https://us-",
            ),
            (
                "https://eu-west-1.queue.amazonaws.com/123456789012/q",
                None,
                Some("https://sqs.eu-west-1."),
                "names",
            ),
            (
                "https://cn-north-1.queue.amazonaws.com.cn/123456789012/q",
                None,
                Some("https://sqs.cn-n"),
                "names",
            ),
            (
                "http://localhost:9324/000000000000/q",
                None,
                None,
                "--queue names http://localhost:9324, but requests would go to \
                 https://sqs.us-east-1.amazonaws.com; a queue's URL never sets the endpoint, so \
                 set AWS_ENDPOINT_URL_SQS=http://localhost:9324",
            ),
            (
                "http://localhost:9324/000000000000/q",
                Some("http://127.0.0.1:9324"),
                Some("http://127"),
                "",
            ),
            (
                "http://[::1]:9324/000000000000/q",
                Some("http://localhost:9324/"),
                Some("http://local"),
                "",
            ),
            (
                "http://LOCALHOST/000000000000/q",
                Some("http://elasticmq:80"),
                Some("http://elasticmq"),
                "",
            ),
            ("http://mq:9324/000000000000/q", Some("http://mq:9324"), Some("http://mq:9324"), ""),
            (
                "http://mq:9324/000000000000/q",
                Some("http://a:secret@mq:9324"),
                Some("http://mq:9324"),
                "",
            ),
            (
                "http://sqs.us-east-1.localhost.localstack.cloud:4566/000000000000/q",
                Some("http://localstack:4566"),
                Some("http://localstack:4566"),
                "",
            ),
            (
                "http://localhost:9324/000000000000/q",
                Some("http://localhost:4566"),
                Some("http://localhost:4566"),
                "--queue names http://localhost:9324, but requests go to \
                 http://localhost:4566, as AWS_ENDPOINT_URL_SQS",
            ),
            (
                "https://sqs.us-east-1.amazonaws.com/123456789012/q",
                Some("http://127.0.0.1:9324"),
                Some("http://127.0.0.1:9324"),
                "names https://sqs.us-east-1.amazonaws.com, but requests go to http://127",
            ),
            (
                "http://notlocalhost:1/000000000000/q",
                Some("http://mq:1"),
                Some("http://mq:1"),
                "names http",
            ),
        ] {
            let mut sdk = SdkConfig::builder();
            sdk.set_endpoint_url(endpoint.map(str::to_owned));
            let parsed: QueueUrl = url.parse().expect("a queue");
            let queue = parsed.arn("aws", "us-east-1");
            match (super::asked("--queue", url, &parsed, &queue, &sdk.build()).await, asked) {
                (Ok((is, note)), Some(asked)) => {
                    let note = note.unwrap_or_default();
                    assert!(is.starts_with(asked), "{url}: {is}");
                    assert!(note.contains(said) && note.is_empty() == said.is_empty(), "{note}");
                }
                (Err(error), None) => assert_eq!(error.to_string(), said),
                (is, _) => panic!("{url} at {endpoint:?}: {is:?}"),
            }
        }
    }

    #[tokio::test]
    async fn an_arn_of_an_account_at_another_endpoint_is_told() {
        for (account, endpoint, is_told) in [
            ("123456789012", Some("http://127.0.0.1:9324"), true),
            ("000000000000", Some("http://127.0.0.1:9324"), false),
            ("123456789012", None, false),
        ] {
            let mut sdk = SdkConfig::builder();
            sdk.set_endpoint_url(endpoint.map(str::to_owned));
            let arn = format!("arn:aws:sqs:eu-west-1:{account}:orders");
            let name: QueueName = arn.parse().expect("an ARN");
            let found = name.find("--queue", &RegionArgument::default(), &sdk.build()).await;
            let said =
                format!("--queue names {arn}, but requests go to http://127.0.0.1:9324, as ");
            let note = found.expect("an endpoint").note.unwrap_or_default();
            assert_eq!(note.starts_with(&said), is_told, "{note}");
        }
    }

    #[test]
    fn a_queue_is_named_by_its_name_its_url_or_its_arn() {
        for (text, expected) in [
            ("orders", "Name(\"orders\")"),
            ("orders.fifo", "Name(\"orders.fifo\")"),
            ("https://sqs.eu-west-1.amazonaws.com/123456789012/orders", "Url {"),
            ("arn:aws:sqs:eu-west-1:123456789012:orders", "Arn("),
            ("", "the name of a queue has at most 80"),
            (".fifo", "the name of a queue has at most 80"),
            ("a b", "the name of a queue has at most 80"),
            ("https://example.com", "it is "),
            ("arn:aws:sns:eu-west-1:123456789012:orders", "it is "),
        ] {
            let read = text.parse::<QueueName>();
            let read = read.map_or_else(|error| error, |name| format!("{name:?}"));
            assert!(read.starts_with(expected), "{text}: {read}");
        }
        let secret = "https://user:s3cret@sqs.eu-west-1.amazonaws.com/123456789012/orders";
        let name = secret.parse::<QueueName>().expect("a URL");
        assert!(!format!("{name} {name:?}").contains("s3cret"), "{name:?}");
        let long = "x".repeat(MAX_QUEUE_NAME);
        assert!(long.parse::<QueueName>().is_ok() && (long + "x").parse::<QueueName>().is_err());
    }
}
