//! A queue's attribute `RedrivePolicy`, in any form that SQS accepts.

use serde_json::Value;

pub(crate) struct RedrivePolicy {
    /// The ARN of the dead-letter queue.
    pub(crate) target: String,
    pub(crate) max_receive_count: Option<u64>,
}

/// `None` if the text names no dead-letter queue.
pub(crate) fn read(text: &str) -> Option<RedrivePolicy> {
    let policy: Value = serde_json::from_str(text).ok()?;
    let target = policy["deadLetterTargetArn"].as_str()?.to_owned();
    // SQS accepts a number or a text.
    let count = &policy["maxReceiveCount"];
    let max_receive_count = count.as_u64().or_else(|| count.as_str()?.parse().ok());
    Some(RedrivePolicy { target, max_receive_count })
}
