//! The ARN of a queue, and its URL.

use std::fmt;
use std::str::FromStr;

/// The ARN of a queue: `arn:aws:sqs:eu-west-1:123456789012:orders`.
///
/// ```
/// use requeue::queue::QueueArn;
/// let arn: QueueArn = "arn:aws-cn:sqs:cn-north-1:123456789012:orders".parse().unwrap();
/// assert_eq!(arn.url(), "https://sqs.cn-north-1.amazonaws.com.cn/123456789012/orders");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueArn {
    partition: String,
    region: String,
    account: String,
    name: String,
}

impl QueueArn {
    /// The partition: `aws`, `aws-cn` and so on.
    #[must_use]
    pub fn partition(&self) -> &str {
        &self.partition
    }

    /// The region.
    #[must_use]
    pub fn region(&self) -> &str {
        &self.region
    }

    /// The queue's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the queue is a FIFO queue: SQS requires the ending `.fifo` for those, and forbids it
    /// for others.
    #[must_use]
    pub fn is_fifo(&self) -> bool {
        self.name.strip_suffix(".fifo").is_some()
    }

    /// The queue's URL at AWS's own endpoint of its partition.
    ///
    /// Source of the endings: `partitions.json` of the AWS SDKs.
    #[must_use]
    pub fn url(&self) -> String {
        let suffix = match self.partition.as_str() {
            "aws-cn" => "amazonaws.com.cn",
            "aws-eusc" => "amazonaws.eu",
            "aws-iso" => "c2s.ic.gov",
            "aws-iso-b" => "sc2s.sgov.gov",
            "aws-iso-e" => "cloud.adc-e.uk",
            "aws-iso-f" => "csp.hci.ic.gov",
            _ => "amazonaws.com",
        };
        self.url_at(&format!("https://sqs.{}.{suffix}", self.region))
    }

    /// The queue's URL at another endpoint.
    #[must_use]
    pub fn url_at(&self, endpoint: &str) -> String {
        format!("{}/{}/{}", endpoint.trim_end_matches('/'), self.account, self.name)
    }
}

impl fmt::Display for QueueArn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "arn:{}:sqs:{}:{}:{}", self.partition, self.region, self.account, self.name)
    }
}

impl FromStr for QueueArn {
    type Err = InvalidQueueArn;

    fn from_str(arn: &str) -> Result<Self, InvalidQueueArn> {
        let parts: Vec<&str> = arn.split(':').collect();
        let ["arn", partition, "sqs", region, account, name] = parts[..] else {
            return Err(InvalidQueueArn);
        };
        if [partition, region, account, name]
            .iter()
            .any(|part| part.is_empty() || part.contains('/'))
        {
            return Err(InvalidQueueArn);
        }
        let [partition, region, account, name] =
            [partition, region, account, name].map(str::to_owned);
        Ok(Self { partition, region, account, name })
    }
}

/// The text is no ARN of an SQS queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the ARN of an SQS queue, as in arn:aws:sqs:eu-west-1:123456789012:orders")]
#[non_exhaustive]
pub struct InvalidQueueArn;

/// The URL of a queue: `https://sqs.eu-west-1.amazonaws.com/123456789012/orders`. A host that is
/// not AWS's, such as that of an emulator, does not name the region.
///
/// ```
/// use requeue::queue::QueueUrl;
/// let aws: QueueUrl = "https://sqs.us-east-2.amazonaws.com/123456789012/dead".parse()?;
/// let emulator: QueueUrl = "http://localhost:4566/000000000000/dead".parse()?;
/// assert_eq!(aws.arn("aws", "eu-west-1").to_string(), "arn:aws:sqs:us-east-2:123456789012:dead");
/// let arn = emulator.arn("aws", "eu-west-1").to_string();
/// assert_eq!(arn, "arn:aws:sqs:eu-west-1:000000000000:dead");
/// # Ok::<(), requeue::queue::InvalidQueueUrl>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueUrl {
    region: Option<String>,
    account: String,
    name: String,
}

impl QueueUrl {
    /// The queue's ARN in this partition. If the URL names no region, `region` counts.
    #[must_use]
    pub fn arn(&self, partition: &str, region: &str) -> QueueArn {
        QueueArn {
            partition: partition.to_owned(),
            region: self.region.as_deref().unwrap_or(region).to_owned(),
            account: self.account.clone(),
            name: self.name.clone(),
        }
    }
}

impl FromStr for QueueUrl {
    type Err = InvalidQueueUrl;

    fn from_str(url: &str) -> Result<Self, InvalidQueueUrl> {
        let rest = url
            .strip_prefix("https://")
            .or_else(|| url.strip_prefix("http://"))
            .ok_or(InvalidQueueUrl)?;
        let [host, account, name] = rest.split('/').collect::<Vec<_>>()[..] else {
            return Err(InvalidQueueUrl);
        };
        let is_word = |text: &str| {
            !text.is_empty()
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        };
        if host.is_empty() || ![account, name].into_iter().all(is_word) {
            return Err(InvalidQueueUrl);
        }
        let region = match host.split('.').collect::<Vec<_>>()[..] {
            ["sqs", region, _, ..] => Some(region.to_owned()),
            _ => None,
        };
        Ok(Self { region, account: account.to_owned(), name: name.to_owned() })
    }
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
            let arn = format!("arn:{partition}:sqs:{region}:123456789012:orders.fifo");
            let queue: QueueArn = arn.parse().expect("a queue ARN");
            assert_eq!(queue.url(), format!("https://{host}/123456789012/orders.fifo"));
            assert_eq!(queue.to_string(), arn);
            assert!(queue.is_fifo());
        }
    }

    #[test]
    fn a_url_names_account_and_queue_and_at_aws_the_region() {
        for (url, arn) in [
            (
                "https://sqs.us-east-2.amazonaws.com/123456789012/orders",
                "arn:aws:sqs:us-east-2:123456789012:orders",
            ),
            ("https://sqs.r-2.amazonaws.com.cn/1/orders.fifo", "arn:aws:sqs:r-2:1:orders.fifo"),
            (
                "http://sqs.us-west-2.localhost:4566/000000000000/q",
                "arn:aws:sqs:us-west-2:000000000000:q",
            ),
            ("http://localhost:4566/000000000000/q_1", "arn:aws:sqs:here:000000000000:q_1"),
            ("http://[::1]:80/0/q", "arn:aws:sqs:here:0:q"),
        ] {
            assert_eq!(
                url.parse::<QueueUrl>().map(|url| url.arn("aws", "here").to_string()),
                Ok(arn.to_owned())
            );
        }
        for url in [
            "",
            "orders",
            "https://",
            "https:///1/q",
            "https://host/q",
            "https://host/1/",
            "https://host/1/q/x",
            "https://host/1/q?x",
            "ftp://host/1/q",
            "arn:aws:sqs:r:1:q",
        ] {
            assert_eq!(url.parse::<QueueUrl>(), Err(InvalidQueueUrl), "{url}");
        }
    }

    #[test]
    fn what_is_no_queue_arn_is_refused() {
        for arn in [
            "",
            "orders",
            "arn:aws:sns:r:1:t",
            "arn:aws:sqs:r:1:",
            "arn:aws:sqs::1:q",
            "arn:aws:sqs:r:1:q:x",
            "arn:aws:sqs:r:1:a/b",
        ] {
            assert_eq!(arn.parse::<QueueArn>(), Err(InvalidQueueArn), "{arn}");
        }
    }
}
