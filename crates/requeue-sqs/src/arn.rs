//! ARNs: that of a queue, and the parts of any other.

use std::fmt;
use std::str::FromStr;

use crate::url::{is_account, suffix_of};

/// The ARN of a queue: `arn:aws:sqs:eu-west-1:123456789012:orders`.
///
/// ```
/// use requeue::queue::QueueArn;
/// let arn: QueueArn = "arn:aws-cn:sqs:cn-north-1:123456789012:orders".parse().unwrap();
/// assert_eq!(arn.url(), "https://sqs.cn-north-1.amazonaws.com.cn/123456789012/orders");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueArn {
    pub(crate) partition: String,
    pub(crate) region: String,
    pub(crate) account: String,
    pub(crate) name: String,
}

impl QueueArn {
    /// The partition: `aws`, `aws-cn` and so on.
    pub fn partition(&self) -> &str {
        &self.partition
    }

    /// The region.
    pub fn region(&self) -> &str {
        &self.region
    }

    /// The account.
    pub fn account(&self) -> &str {
        &self.account
    }

    /// The queue's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the queue is a FIFO queue: SQS requires the ending `.fifo` for those, and forbids it
    /// for others.
    pub fn is_fifo(&self) -> bool {
        self.name.strip_suffix(".fifo").is_some()
    }

    /// The queue's URL at AWS's own endpoint of its partition.
    pub fn url(&self) -> String {
        self.url_at(&format!("https://sqs.{}.{}", self.region, suffix_of(&self.partition)))
    }

    /// The queue's URL at another endpoint.
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
        let Arn { partition, service: "sqs", region, account, resource: name } = Arn::of(arn)
        else {
            return Err(InvalidQueueArn);
        };
        let is_wrong = |part: &&str| part.is_empty() || part.contains(['/', ':']);
        if [partition, region, name].iter().any(is_wrong) || !is_account(account) {
            return Err(InvalidQueueArn);
        }
        let [partition, region, account, name] =
            [partition, region, account, name].map(str::to_owned);
        Ok(Self { partition, region, account, name })
    }
}

/// The parts of any ARN, such as that of a role or a key. A text that is no ARN is a resource alone. A
/// further part needs a new major version.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Arn<'a> {
    pub partition: &'a str,
    pub service: &'a str,
    pub region: &'a str,
    pub account: &'a str,
    /// The rest, which may have colons of its own.
    pub resource: &'a str,
}

impl<'a> Arn<'a> {
    pub fn of(arn: &'a str) -> Self {
        let Some(parts) = arn.strip_prefix("arn:") else {
            return Self { resource: arn, ..Self::default() };
        };
        let mut parts = parts.splitn(5, ':');
        let mut part = || parts.next().unwrap_or_default();
        let [partition, service, region, account, resource] = [(); 5].map(|()| part());
        Self { partition, service, region, account, resource }
    }

    /// The last part of the resource, without its type and path.
    pub fn name(self) -> &'a str {
        self.resource.rsplit(['/', ':']).next().unwrap_or_default()
    }
}

/// The text is no ARN of an SQS queue.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "not the ARN of an SQS queue with an account of 12 digits, as in \
     arn:aws:sqs:eu-west-1:123456789012:orders"
)]
#[non_exhaustive]
pub struct InvalidQueueArn;

crate::debug_as_display!(InvalidQueueArn);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_queue_arn_is_refused() {
        for arn in [
            "",
            "orders",
            "arn:aws:sns:r:123456789012:t",
            "arn:aws:sqs:r:123456789012:",
            "arn:aws:sqs::123456789012:q",
            "arn:aws:sqs:r:123456789012:q:x",
            "arn:aws:sqs:r:123456789012:a/b",
            "arn:aws:sqs:r::q",
            "arn:aws:sqs:r:1:q",
            "arn:aws:sqs:r:queue:q",
            "arn:aws:sqs:r:1234567890123:q",
            "arn:aws:sqs:r:+12345678901:q",
        ] {
            assert_eq!(arn.parse::<QueueArn>(), Err(InvalidQueueArn), "{arn}");
        }
    }
}
