//! The URL of a queue, and the hosts of SQS in each partition. It is the only reader of such URLs.

use std::str::FromStr;

use crate::QueueArn;

/// The partitions, with the suffixes of their host names: the usual one, and that of endpoints with
/// IPv4 and IPv6. `aws-us-gov` has those of `aws`. Source: `partitions.json` of the AWS SDKs.
const PARTITIONS: [(&str, [&str; 2]); 7] = [
    ("aws", ["amazonaws.com", "api.aws"]),
    ("aws-cn", ["amazonaws.com.cn", "api.amazonwebservices.com.cn"]),
    ("aws-eusc", ["amazonaws.eu", "api.amazonwebservices.eu"]),
    ("aws-iso", ["c2s.ic.gov", "api.aws.ic.gov"]),
    ("aws-iso-b", ["sc2s.sgov.gov", "api.aws.scloud"]),
    ("aws-iso-e", ["cloud.adc-e.uk", "api.cloud-aws.adc-e.uk"]),
    ("aws-iso-f", ["csp.hci.ic.gov", "api.aws.hci.ic.gov"]),
];

/// The suffix of the host names in a partition.
pub(crate) fn suffix_of(partition: &str) -> &'static str {
    let known = PARTITIONS.iter().find(|(name, _)| *name == partition);
    known.unwrap_or(&PARTITIONS[0]).1[0]
}

/// The URL of a queue: `https://sqs.eu-west-1.amazonaws.com/123456789012/orders`.
///
/// At AWS the host names partition and region, in each form that AWS documents:
/// `sqs.REGION.amazonaws.com`, `sqs-fips.REGION.…`, `REGION.queue.amazonaws.com`,
/// `queue.amazonaws.com` (us-east-1), the host of a VPC endpoint, and those of other partitions.
/// Any other host of AWS is refused, since the queue of the same name in another region is another
/// queue. Of an emulator, the path may name the region: `/queue/REGION/ACCOUNT/NAME`.
///
/// ```
/// use requeue::queue::QueueUrl;
/// let aws: QueueUrl = "https://us-east-2.queue.amazonaws.com/123456789012/dead".parse()?;
/// let emulator: QueueUrl = "http://localhost:4566/000000000000/dead".parse()?;
/// assert_eq!(aws.arn("aws", "eu-west-1").to_string(), "arn:aws:sqs:us-east-2:123456789012:dead");
/// let arn = emulator.arn("aws", "eu-west-1").to_string();
/// assert_eq!(arn, "arn:aws:sqs:eu-west-1:000000000000:dead");
/// # Ok::<(), requeue::queue::InvalidQueueUrl>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueUrl {
    /// `None` if the host is not AWS's.
    partition: Option<&'static str>,
    region: Option<String>,
    account: String,
    name: String,
}

impl QueueUrl {
    /// The queue's ARN. If the URL names no partition, `partition` counts; if it names no region,
    /// `region` counts.
    #[must_use]
    pub fn arn(&self, partition: &str, region: &str) -> QueueArn {
        QueueArn {
            partition: self.partition.unwrap_or(partition).to_owned(),
            region: self.region.as_deref().unwrap_or(region).to_owned(),
            account: self.account.clone(),
            name: self.name.clone(),
        }
    }

    /// Whether the host is one of AWS, and not that of an emulator.
    #[must_use]
    pub const fn is_at_aws(&self) -> bool {
        self.partition.is_some()
    }
}

impl FromStr for QueueUrl {
    type Err = InvalidQueueUrl;

    fn from_str(url: &str) -> Result<Self, InvalidQueueUrl> {
        let (scheme, rest) = url.split_once("://").ok_or(InvalidQueueUrl)?;
        let is_http = ["https", "http"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
        let (authority, path) = rest.split_once('/').ok_or(InvalidQueueUrl)?;
        let host = host(authority).filter(|_| is_http).ok_or(InvalidQueueUrl)?;
        let path: Vec<&str> = path.strip_suffix('/').unwrap_or(path).split('/').collect();
        let (of_path, account, name) = match path[..] {
            [account, name] => (None, account, name),
            ["queue", region, account, name] if is_region(region) => (Some(region), account, name),
            _ => return Err(InvalidQueueUrl),
        };
        if ![account, name].into_iter().all(is_word) {
            return Err(InvalidQueueUrl);
        }
        let (partition, of_host) = match at_aws(&host) {
            AtAws::Queue(partition, region) if of_path.is_none() => (Some(partition), Some(region)),
            AtAws::Queue(..) | AtAws::Other => return Err(InvalidQueueUrl),
            AtAws::No => (None, of_emulator(&host)),
        };
        let region = of_host.or(of_path).map(str::to_owned);
        Ok(Self { partition, region, account: account.to_owned(), name: name.to_owned() })
    }
}

/// The host in lower case, without a port.
fn host(authority: &str) -> Option<String> {
    let (_, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let host = match host.rsplit_once(':') {
        Some((host, port)) if is_port(port) => host,
        _ => host,
    };
    // A name may end in the point of the root.
    let host = host.strip_suffix('.').unwrap_or(host);
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.[]:".contains(&byte);
    (!host.is_empty() && host.bytes().all(is_host)).then(|| host.to_ascii_lowercase())
}

/// A host, as one of AWS.
enum AtAws<'h> {
    /// Of SQS, with partition and region.
    Queue(&'static str, &'h str),
    /// Of something else, or of a form that AWS does not document.
    Other,
    No,
}

fn at_aws(host: &str) -> AtAws<'_> {
    let found = PARTITIONS.iter().find_map(|(partition, suffixes)| {
        suffixes.iter().find_map(|suffix| {
            let before = host.strip_suffix(suffix)?;
            let is_whole = before.is_empty() || before.ends_with('.');
            is_whole.then_some((*partition, *suffix, before.trim_end_matches('.')))
        })
    });
    let Some((partition, suffix, before)) = found else { return AtAws::No };
    let labels: Vec<&str> = before.split('.').collect();
    let region = match labels[..] {
        ["sqs" | "sqs-fips", region] | [region, "queue"] => region,
        [endpoint, "sqs" | "sqs-fips", region, "vpce"] if endpoint.starts_with("vpce-") => region,
        ["queue"] if suffix == "amazonaws.com" => "us-east-1",
        _ => return AtAws::Other,
    };
    if region.is_empty() {
        return AtAws::Other;
    }
    let partition =
        if partition == "aws" && region.starts_with("us-gov-") { "aws-us-gov" } else { partition };
    AtAws::Queue(partition, region)
}

/// The region in the host of an emulator: `sqs.REGION.…` or `REGION.queue.…`, as `LocalStack` has
/// it.
fn of_emulator(host: &str) -> Option<&str> {
    let mut labels = host.split('.');
    match (labels.next()?, labels.next()?) {
        ("sqs", region) | (region, "queue") if is_region(region) => Some(region),
        _ => None,
    }
}

/// Whether this may be a region, as `eu-west-1` or `us-gov-east-1`.
fn is_region(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let [first, middle @ .., last] = &parts[..] else { return false };
    let is_of = |part: &str, is: fn(&u8) -> bool| !part.is_empty() && part.bytes().all(|b| is(&b));
    !middle.is_empty()
        && (2..=4).contains(&first.len())
        && is_of(last, u8::is_ascii_digit)
        && parts[..parts.len() - 1].iter().all(|part| is_of(part, u8::is_ascii_lowercase))
}

fn is_word(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// The text is no URL of an SQS queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not the URL of an SQS queue, as in \
     https://sqs.eu-west-1.amazonaws.com/123456789012/orders"
)]
#[non_exhaustive]
pub struct InvalidQueueUrl;

#[cfg(test)]
mod tests {
    use super::*;

    /// The ARN by a URL of the queue `q` in the account `1`; partition and region of others are
    /// `own` and `here`.
    fn arn(url: &str) -> Option<String> {
        url.parse::<QueueUrl>().ok().map(|url| url.arn("own", "here").to_string())
    }

    #[test]
    fn each_partition_has_its_own_host() {
        for (partition, region, host) in [
            ("aws", "us-east-2", "sqs.us-east-2.amazonaws.com"),
            ("aws-cn", "cn-north-1", "sqs.cn-north-1.amazonaws.com.cn"),
            ("aws-us-gov", "us-gov-west-1", "sqs.us-gov-west-1.amazonaws.com"),
            ("aws-eusc", "eusc-de-east-1", "sqs.eusc-de-east-1.amazonaws.eu"),
            ("aws-iso", "us-iso-east-1", "sqs.us-iso-east-1.c2s.ic.gov"),
            ("aws-iso-b", "us-isob-east-1", "sqs.us-isob-east-1.sc2s.sgov.gov"),
            ("aws-iso-e", "eu-isoe-west-1", "sqs.eu-isoe-west-1.cloud.adc-e.uk"),
            ("aws-iso-f", "us-isof-south-1", "sqs.us-isof-south-1.csp.hci.ic.gov"),
        ] {
            let text = format!("arn:{partition}:sqs:{region}:123456789012:orders.fifo");
            let queue: QueueArn = text.parse().expect("a queue ARN");
            assert_eq!(queue.url(), format!("https://{host}/123456789012/orders.fifo"));
            assert_eq!(arn(&queue.url()), Some(text));
            assert!(queue.is_fifo());
        }
    }

    #[test]
    fn each_host_of_sqs_names_partition_and_region() {
        for (host, partition, region) in [
            ("sqs.eu-west-1.amazonaws.com", "aws", "eu-west-1"),
            ("SQS.EU-West-1.AmazonAWS.com", "aws", "eu-west-1"),
            ("sqs.eu-west-1.amazonaws.com:443", "aws", "eu-west-1"),
            ("sqs.eu-west-1.amazonaws.com.", "aws", "eu-west-1"),
            ("eu-west-1.queue.amazonaws.com", "aws", "eu-west-1"),
            ("queue.amazonaws.com", "aws", "us-east-1"),
            ("sqs-fips.us-east-2.amazonaws.com", "aws", "us-east-2"),
            ("sqs.eu-west-1.api.aws", "aws", "eu-west-1"),
            ("sqs-fips.ca-west-1.api.aws", "aws", "ca-west-1"),
            ("vpce-0ab1-c2d3.sqs.us-east-1.vpce.amazonaws.com", "aws", "us-east-1"),
            ("vpce-0ab1-c2d3-us-east-1a.sqs.us-east-1.vpce.amazonaws.com", "aws", "us-east-1"),
            ("sqs.us-gov-west-1.amazonaws.com", "aws-us-gov", "us-gov-west-1"),
            ("us-gov-east-1.queue.amazonaws.com", "aws-us-gov", "us-gov-east-1"),
            ("sqs-fips.us-gov-east-1.api.aws", "aws-us-gov", "us-gov-east-1"),
            ("vpce-0.sqs-fips.us-gov-west-1.vpce.amazonaws.com", "aws-us-gov", "us-gov-west-1"),
            ("cn-north-1.queue.amazonaws.com.cn", "aws-cn", "cn-north-1"),
            ("sqs.cn-northwest-1.api.amazonwebservices.com.cn", "aws-cn", "cn-northwest-1"),
            ("vpce-0.sqs.cn-north-1.vpce.amazonaws.com.cn", "aws-cn", "cn-north-1"),
            ("eusc-de-east-1.queue.amazonaws.eu", "aws-eusc", "eusc-de-east-1"),
            ("sqs.eusc-de-east-1.api.amazonwebservices.eu", "aws-eusc", "eusc-de-east-1"),
            ("us-iso-east-1.queue.c2s.ic.gov", "aws-iso", "us-iso-east-1"),
            ("sqs.us-iso-west-1.api.aws.ic.gov", "aws-iso", "us-iso-west-1"),
            ("sqs.us-isob-east-1.api.aws.scloud", "aws-iso-b", "us-isob-east-1"),
            ("sqs.eu-isoe-west-1.api.cloud-aws.adc-e.uk", "aws-iso-e", "eu-isoe-west-1"),
            ("sqs.us-isof-east-1.api.aws.hci.ic.gov", "aws-iso-f", "us-isof-east-1"),
            // Of emulators.
            ("sqs.us-west-2.localhost:4566", "own", "us-west-2"),
            ("sqs.eu-west-1.localhost.localstack.cloud:4566", "own", "eu-west-1"),
            ("eu-west-1.queue.localhost.localstack.cloud:4566", "own", "eu-west-1"),
            ("queue.localhost.localstack.cloud:4566", "own", "here"),
            ("localhost:4566", "own", "here"),
            ("user:secret@mq:9324", "own", "here"),
            ("my-mq-1:9324", "own", "here"),
            ("sqs.internal.example.com", "own", "here"),
            ("[::1]:80", "own", "here"),
            ("[::1]", "own", "here"),
        ] {
            let expected = Some(format!("arn:{partition}:sqs:{region}:1:q_1.fifo"));
            for (before, after) in [("https", ""), ("HTTP", "/")] {
                assert_eq!(
                    arn(&format!("{before}://{host}/1/q_1.fifo{after}")),
                    expected,
                    "{host}"
                );
            }
            assert_eq!(
                format!("https://{host}/1/q").parse::<QueueUrl>().map(|url| url.is_at_aws()),
                Ok(partition != "own"),
            );
        }
    }

    #[test]
    fn the_path_of_an_emulator_may_name_the_region() {
        for (path, expected) in [
            ("/000000000000/q", Some("arn:own:sqs:here:000000000000:q")),
            ("/queue/eu-west-1/000000000000/q", Some("arn:own:sqs:eu-west-1:000000000000:q")),
            ("/queue/us-gov-west-1/0/q/", Some("arn:own:sqs:us-gov-west-1:0:q")),
            ("/queue/west/000000000000/q", None),
            ("/queues/eu-west-1/000000000000/q", None),
            ("/eu-west-1/000000000000/q", None),
        ] {
            assert_eq!(arn(&format!("http://127.0.0.1:4566{path}")).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn a_url_of_nothing_or_of_another_service_is_refused() {
        for url in [
            "",
            "orders",
            "https://",
            "https:///1/q",
            "https://:80/1/q",
            "https://host/q",
            "https://host/1/",
            "https://host/1//",
            "https://host/1/q/x",
            "https://host/1/q//",
            "https://host/1/q?x",
            "https://a host/1/q",
            "ftp://host/1/q",
            "arn:aws:sqs:r:1:q",
            "https://sqs.eu-west-1.amazonaws.com/queue/eu-west-1/1/q",
            "https://s3.eu-west-1.amazonaws.com/1/q",
            "https://sqs.amazonaws.com/1/q",
            "https://amazonaws.com/1/q",
            "https://queue.amazonaws.com.cn/1/q",
            "https://sqs..amazonaws.com/1/q",
            "https://a.sqs.eu-west-1.vpce.amazonaws.com/1/q",
            "https://sqs.eu-west-1.vpce.amazonaws.com/1/q",
            "https://x.sqs.eu-west-1.amazonaws.com/1/q",
        ] {
            assert_eq!(url.parse::<QueueUrl>(), Err(InvalidQueueUrl), "{url}");
        }
        // It only ends like AWS's.
        assert_eq!(arn("https://notamazonaws.com/1/q").as_deref(), Some("arn:own:sqs:here:1:q"));
    }
}
