//! The URL of a queue, and the hosts of SQS in each partition. It is the only reader of such URLs.

use std::str::FromStr;

use crate::QueueArn;

/// The partitions, with the suffixes of their host names: the usual one, and that of endpoints with
/// IPv4 and IPv6. Source: `partitions.json` of the AWS SDKs.
const PARTITIONS: [(&str, [&str; 2]); 8] = [
    ("aws", ["amazonaws.com", "api.aws"]),
    ("aws-us-gov", ["amazonaws.com", "api.aws"]),
    ("aws-cn", ["amazonaws.com.cn", "api.amazonwebservices.com.cn"]),
    ("aws-eusc", ["amazonaws.eu", "api.amazonwebservices.eu"]),
    ("aws-iso", ["c2s.ic.gov", "api.aws.ic.gov"]),
    ("aws-iso-b", ["sc2s.sgov.gov", "api.aws.scloud"]),
    ("aws-iso-e", ["cloud.adc-e.uk", "api.cloud-aws.adc-e.uk"]),
    ("aws-iso-f", ["csp.hci.ic.gov", "api.aws.hci.ic.gov"]),
];

/// The usual suffix of the host names in a partition.
pub(crate) fn suffix_of(partition: &str) -> &'static str {
    suffixes_of(partition)[0]
}

fn suffixes_of(partition: &str) -> [&'static str; 2] {
    let known = PARTITIONS.iter().find(|(name, _)| *name == partition);
    known.unwrap_or(&PARTITIONS[0]).1
}

/// The partition of a region. The shape of the name decides, so a region that AWS opens tomorrow is
/// one too, and neither `s3` nor `fips-us-east-1` is. Source: the regular expressions in
/// `partitions.json` of the AWS SDKs.
fn partition_of(region: &str) -> Option<&'static str> {
    let (place, number) = region.rsplit_once('-')?;
    let is_number = |text: &str| {
        !text.is_empty() && !text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit())
    };
    let is_name =
        |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase());
    let place: Vec<&str> = place.split('-').collect();
    if !is_number(number) || !place.iter().all(is_name) {
        return None;
    }
    Some(match place[..] {
        ["cn", _] => "aws-cn",
        ["us", "gov", _] => "aws-us-gov",
        ["us", "iso", _] => "aws-iso",
        ["us", "isob", _] => "aws-iso-b",
        ["eu", "isoe", _] => "aws-iso-e",
        ["us", "isof", _] => "aws-iso-f",
        ["eusc", _, _] => "aws-eusc",
        [area, _] if area.len() == 2 => "aws",
        _ => return None,
    })
}

/// Whether this may be the account of a queue. Emulators have accounts of 12 digits too.
pub(crate) fn is_account(text: &str) -> bool {
    text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The URL of a queue: `https://sqs.eu-west-1.amazonaws.com/123456789012/orders`.
///
/// Neither a region nor an account is guessed, since a queue of the same name elsewhere is another
/// queue. A URL of any other form is refused:
///
/// | host | region |
/// |---|---|
/// | `sqs.REGION.amazonaws.com`, `sqs-fips.REGION.amazonaws.com` | `REGION` |
/// | the same with `api.aws`, the suffix for IPv4 and IPv6 | `REGION` |
/// | `REGION.queue.amazonaws.com` | `REGION` |
/// | `queue.amazonaws.com` | us-east-1 |
/// | `vpce-ID.sqs.REGION.vpce.amazonaws.com`, a VPC endpoint, also of one zone | `REGION` |
/// | `sqs.REGION.…` and `REGION.queue.…` of `LocalStack` | `REGION` |
/// | any with its path `/queue/REGION/ACCOUNT/NAME` | `REGION` |
/// | `queue.localhost.…` of `LocalStack` | us-east-1 |
/// | `REGION.…` of `GoAWS` | `REGION` |
/// | any other host that is not AWS's | that of the call |
///
/// In other partitions, the hosts end in the suffix of the partition. A region must belong to a
/// partition with the suffix of the host, and an account has 12 digits.
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
    pub fn arn(&self, partition: &str, region: &str) -> QueueArn {
        QueueArn {
            partition: self.partition.unwrap_or(partition).to_owned(),
            region: self.region.as_deref().unwrap_or(region).to_owned(),
            account: self.account.clone(),
            name: self.name.clone(),
        }
    }

    /// Whether the host is one of AWS, and not that of an emulator.
    pub const fn is_at_aws(&self) -> bool {
        self.partition.is_some()
    }
}

impl FromStr for QueueUrl {
    type Err = InvalidQueueUrl;

    fn from_str(url: &str) -> Result<Self, InvalidQueueUrl> {
        let malformed = || InvalidQueueUrl(String::new());
        let (scheme, rest) = url.split_once("://").ok_or_else(malformed)?;
        let is_http = ["https", "http"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
        let (authority, path) = rest.split_once('/').ok_or_else(malformed)?;
        let host = host(authority).filter(|_| is_http).ok_or_else(malformed)?;
        let path: Vec<&str> = path.strip_suffix('/').unwrap_or(path).split('/').collect();
        let (of_path, account, name) = match path[..] {
            [account, name] => (None, account, name),
            ["queue", region, account, name] if partition_of(region).is_some() => {
                (Some(region), account, name)
            }
            _ => return Err(malformed()),
        };
        if ![account, name].into_iter().all(is_word) {
            return Err(malformed());
        }
        let (partition, of_host) = match at_aws(&host) {
            AtAws::Queue(partition, region) if of_path.is_none() => (Some(partition), Some(region)),
            AtAws::Queue(..) => return Err(malformed()),
            AtAws::Other(suffix) => {
                return Err(InvalidQueueUrl(format!(
                    ": the host `{host}` must name SQS and a region of {suffix}; use the URL that \
                     `aws sqs get-queue-url` prints"
                )));
            }
            AtAws::No => (None, of_emulator(&host)),
        };
        if !is_account(account) {
            return Err(InvalidQueueUrl(format!(
                ": the account `{account}` must have 12 digits; an emulator's is mostly \
                 000000000000"
            )));
        }
        if let (Some(host), Some(path)) = (of_host, of_path)
            && host != path
        {
            return Err(InvalidQueueUrl(format!(
                ": the host names the region `{host}` and the path `{path}`; remove the wrong one"
            )));
        }
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
    let is_ipv6 = host.starts_with('[') && host.ends_with(']');
    let is_host = |byte: u8| {
        byte.is_ascii_alphanumeric() || b"-_".contains(&byte) || is_ipv6 && b"[]:".contains(&byte)
    };
    // An empty label or a port that is none would hide the suffix of AWS.
    let is_label = |label: &str| !label.is_empty() && label.bytes().all(is_host);
    host.split('.').all(is_label).then(|| host.to_ascii_lowercase())
}

/// A host, as one of AWS.
enum AtAws<'h> {
    /// Of SQS, with partition and region.
    Queue(&'static str, &'h str),
    /// Of something else, or of a form that AWS does not document, with its suffix.
    Other(&'static str),
    No,
}

fn at_aws(host: &str) -> AtAws<'_> {
    let suffixes = PARTITIONS.iter().flat_map(|(_, suffixes)| suffixes);
    let found = suffixes.copied().find_map(|suffix| {
        let before = host.strip_suffix(suffix)?;
        let is_whole = before.is_empty() || before.ends_with('.');
        is_whole.then_some((suffix, before.trim_end_matches('.')))
    });
    let Some((suffix, before)) = found else { return AtAws::No };
    let labels: Vec<&str> = before.split('.').collect();
    let region = match labels[..] {
        ["sqs" | "sqs-fips", region] | [region, "queue"] => region,
        [endpoint, "sqs" | "sqs-fips", region, "vpce"] if endpoint.starts_with("vpce-") => region,
        ["queue"] if suffix == "amazonaws.com" => "us-east-1",
        _ => return AtAws::Other(suffix),
    };
    match partition_of(region) {
        Some(partition) if suffixes_of(partition).contains(&suffix) => {
            AtAws::Queue(partition, region)
        }
        _ => AtAws::Other(suffix),
    }
}

/// The region in the host of an emulator. `LocalStack` has `sqs.REGION.…`, `REGION.queue.…` and
/// `queue.…`, and `GoAWS` has `REGION.…`.
fn of_emulator(host: &str) -> Option<&str> {
    // Anyone may call a host `my-mq-1`, so a region here needs the direction that all of AWS have.
    let is_region = |label: &str| {
        partition_of(label).is_some()
            && ["north", "south", "east", "west", "central"].iter().any(|way| label.contains(way))
    };
    let labels: Vec<&str> = host.split('.').collect();
    match labels[..] {
        ["queue", "localhost", ..] => Some("us-east-1"),
        ["sqs", region, ..] | [region, _, ..] if is_region(region) => Some(region),
        _ => None,
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// The text is no URL of an SQS queue.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "not the URL of an SQS queue, as in \
     https://sqs.eu-west-1.amazonaws.com/123456789012/orders{0}"
)]
#[non_exhaustive]
pub struct InvalidQueueUrl(
    /// The part that breaks a rule, with the rule and the fix. Empty if the text has another form.
    String,
);

crate::debug_as_display!(InvalidQueueUrl);

#[cfg(test)]
mod tests {
    use super::*;

    /// The ARN by the URL of a queue; partition and region of others are `own` and `here`.
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
            ("vpce-0ab1-c2d3.sqs.us-east-1.vpce.amazonaws.com.:443", "aws", "us-east-1"),
            ("sqs.mx-central-1.amazonaws.com", "aws", "mx-central-1"),
            ("sqs.ap-southeast-12.amazonaws.com", "aws", "ap-southeast-12"),
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
            ("queue.localhost.localstack.cloud:4566", "own", "us-east-1"),
            ("queue.localhost:4566", "own", "us-east-1"),
            ("us-west-2.goaws.com:4100", "own", "us-west-2"),
            ("us-gov-east-1.localhost:4100", "own", "us-gov-east-1"),
            ("localhost:4566", "own", "here"),
            ("localhost.localstack.cloud:4566", "own", "here"),
            ("queue:9324", "own", "here"),
            ("queue.internal:9324", "own", "here"),
            ("my-mq-1.internal:9324", "own", "here"),
            ("sqs.my-mq-1.internal:9324", "own", "here"),
            ("fips-us-east-1.localhost:4566", "own", "here"),
            ("us-east-1:9324", "own", "here"),
            ("user:secret@mq:9324", "own", "here"),
            ("my-mq-1:9324", "own", "here"),
            ("sqs.internal.example.com", "own", "here"),
            ("[::1]:80", "own", "here"),
            ("[::1]", "own", "here"),
        ] {
            let expected = Some(format!("arn:{partition}:sqs:{region}:123456789012:q_1.fifo"));
            for (before, after) in [("https", ""), ("HTTP", "/")] {
                assert_eq!(
                    arn(&format!("{before}://{host}/123456789012/q_1.fifo{after}")),
                    expected,
                    "{host}"
                );
            }
            assert_eq!(
                format!("https://{host}/123456789012/q")
                    .parse::<QueueUrl>()
                    .map(|url| url.is_at_aws()),
                Ok(partition != "own"),
            );
        }
    }

    #[test]
    fn the_path_of_an_emulator_may_name_the_region() {
        for (path, expected) in [
            ("/000000000000/q", Some("arn:own:sqs:here:000000000000:q")),
            ("/queue/eu-west-1/000000000000/q", Some("arn:own:sqs:eu-west-1:000000000000:q")),
            (
                "/queue/us-gov-west-1/000000000000/q/",
                Some("arn:own:sqs:us-gov-west-1:000000000000:q"),
            ),
            ("/queue/west/000000000000/q", None),
            ("/queues/eu-west-1/000000000000/q", None),
            ("/eu-west-1/000000000000/q", None),
        ] {
            assert_eq!(arn(&format!("http://127.0.0.1:4566{path}")).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn a_url_of_nothing_is_refused() {
        for url in [
            "",
            "orders",
            "https://",
            "https:///123456789012/q",
            "https://:80/123456789012/q",
            "https://host/q",
            "https://host/123456789012/",
            "https://host/123456789012//",
            "https://host/123456789012/q/x",
            "https://host/123456789012/q//",
            "https://host/123456789012/q?x",
            "https://a host/123456789012/q",
            "ftp://host/123456789012/q",
            "arn:aws:sqs:r:123456789012:q",
            "https://sqs.eu-west-1.amazonaws.com/queue/eu-west-1/123456789012/q",
            // Hosts that are none, although a careless reader sees an emulator there.
            "https://sqs.eu-west-1.amazonaws.com../123456789012/q",
            "https://sqs..amazonaws.com/123456789012/q",
            "https://sqs.eu-west-1.amazonaws.com:443x/123456789012/q",
            "https://sqs.eu-west-1.amazonaws.com:1:2/123456789012/q",
            "https://[sqs.eu-west-1.amazonaws.com/123456789012/q",
        ] {
            assert_eq!(url.parse::<QueueUrl>(), Err(InvalidQueueUrl(String::new())), "{url}");
        }
        // It only ends like AWS's.
        assert_eq!(
            arn("https://notamazonaws.com/123456789012/q").as_deref(),
            Some("arn:own:sqs:here:123456789012:q")
        );
    }

    #[test]
    fn a_host_of_aws_without_a_region_of_its_partition_is_refused() {
        for (before, suffix) in [
            // No host of SQS.
            ("", "amazonaws.com"),
            ("sqs.", "amazonaws.com"),
            ("s3.eu-west-1.", "amazonaws.com"),
            ("queue.", "amazonaws.com.cn"),
            ("a.sqs.eu-west-1.vpce.", "amazonaws.com"),
            ("sqs.eu-west-1.vpce.", "amazonaws.com"),
            ("x.sqs.eu-west-1.", "amazonaws.com"),
            // No region.
            ("sqs.s3.", "amazonaws.com"),
            ("sqs.evil.", "amazonaws.com"),
            ("evil.queue.", "amazonaws.com"),
            ("vpce-0.sqs.evil.vpce.", "amazonaws.com"),
            ("sqs.us-east-1-fips.", "amazonaws.com"),
            ("sqs.fips-us-east-1.", "amazonaws.com"),
            ("sqs.us-east-1a.", "amazonaws.com"),
            ("sqs.us-east-01.", "amazonaws.com"),
            ("sqs.us-east-.", "amazonaws.com"),
            ("sqs.us--1.", "amazonaws.com"),
            ("sqs.us-1.", "amazonaws.com"),
            ("sqs.us-west-2-lax-1.", "amazonaws.com"),
            ("sqs.eusc-east-1.", "amazonaws.eu"),
            ("sqs.us-isox-east-1.", "c2s.ic.gov"),
            // A region of another partition.
            ("sqs.cn-north-1.", "amazonaws.com"),
            ("sqs.cn-north-1.", "api.aws"),
            ("sqs.eusc-de-east-1.", "amazonaws.com"),
            ("sqs.us-iso-east-1.", "amazonaws.com"),
            ("us-east-1.queue.", "amazonaws.com.cn"),
            ("sqs.us-gov-west-1.", "amazonaws.com.cn"),
            ("sqs.us-east-1.", "api.amazonwebservices.com.cn"),
            ("sqs.eu-west-1.", "amazonaws.eu"),
            ("sqs.us-isob-east-1.", "c2s.ic.gov"),
            ("sqs.us-gov-west-1.", "c2s.ic.gov"),
            ("sqs.us-iso-east-1.", "sc2s.sgov.gov"),
            ("sqs.eu-west-1.", "cloud.adc-e.uk"),
            ("sqs.us-isob-east-1.", "csp.hci.ic.gov"),
        ] {
            let host = format!("{before}{suffix}");
            let error = format!("https://{host}/123456789012/q").parse::<QueueUrl>();
            let error = error.expect_err(&host).to_string();
            let expected = format!(
                ": the host `{host}` must name SQS and a region of {suffix}; use the URL that `aws \
                 sqs get-queue-url` prints"
            );
            assert!(error.ends_with(&expected), "{error}");
        }
    }

    #[test]
    fn an_account_has_12_digits_and_a_url_one_region() {
        for (url, expected) in [
            ("http://localhost:9324/queue/q", "account `queue` must have 12 digits"),
            ("http://localhost:9324/0/q", "account `0` must have 12 digits"),
            ("http://localhost:9324/1234567890123/q", "account `1234567890123` must have"),
            ("https://sqs.eu-west-1.amazonaws.com/1/q", "account `1` must have 12 digits"),
            (
                "http://sqs.eu-west-1.localhost:4566/queue/us-east-1/000000000000/q",
                "names the region `eu-west-1` and the path `us-east-1`; remove the wrong one",
            ),
        ] {
            let error = url.parse::<QueueUrl>().expect_err(url).to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert_eq!(
            arn("http://eu-west-1.queue.localhost/queue/eu-west-1/100010001000/q").as_deref(),
            Some("arn:own:sqs:eu-west-1:100010001000:q")
        );
    }
}
