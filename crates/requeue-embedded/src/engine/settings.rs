//! The attributes of a queue: read from the strings of a request, checked, and written back as
//! strings.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::{SqsError, code};
use super::limits;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) delay: Duration,
    pub(crate) max_message_bytes: u64,
    pub(crate) retention: Duration,
    pub(crate) wait: Duration,
    pub(crate) visibility: Duration,
    pub(crate) redrive: Option<RedrivePolicy>,
    pub(crate) redrive_allow: Option<RedriveAllow>,
    pub(crate) fifo: Option<Fifo>,
    /// Attributes that are stored and returned and change nothing here: encryption and access
    /// policy.
    passive: BTreeMap<String, String>,
}

/// When a message is moved, and to which queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RedrivePolicy {
    pub(crate) dead_letter_target_arn: String,
    pub(crate) max_receive_count: u64,
}

/// The queues that may use this one as their dead-letter queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RedriveAllow {
    redrive_permission: Permission,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    source_queue_arns: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Permission {
    AllowAll,
    DenyAll,
    ByQueue,
}

impl RedriveAllow {
    pub(crate) fn allows(&self, source_arn: &str) -> bool {
        match self.redrive_permission {
            Permission::AllowAll => true,
            Permission::DenyAll => false,
            Permission::ByQueue => self.source_queue_arns.iter().any(|arn| arn == source_arn),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Fifo {
    pub(crate) content_based_deduplication: bool,
    pub(crate) deduplicate_per_group: bool,
    throughput_per_group: bool,
}

const PASSIVE: [&str; 4] =
    ["KmsDataKeyReusePeriodSeconds", "KmsMasterKeyId", "Policy", "SqsManagedSseEnabled"];

impl Settings {
    pub(crate) fn standard() -> Self {
        Self {
            delay: Duration::ZERO,
            max_message_bytes: *limits::MESSAGE_BYTES.end(),
            retention: Duration::from_secs(limits::DEFAULT_RETENTION_SECS),
            wait: Duration::ZERO,
            visibility: Duration::from_secs(limits::DEFAULT_VISIBILITY_SECS),
            redrive: None,
            redrive_allow: None,
            fifo: None,
            passive: BTreeMap::from([("SqsManagedSseEnabled".to_owned(), "true".to_owned())]),
        }
    }

    pub(crate) fn fifo() -> Self {
        Self { fifo: Some(Fifo::default()), ..Self::standard() }
    }

    /// These settings with the named attributes changed. If one is refused, nothing is changed.
    pub(crate) fn with(&self, attributes: &BTreeMap<String, String>) -> Result<Self, SqsError> {
        let mut changed = self.clone();
        for (name, value) in attributes {
            changed.set(name, value)?;
        }
        match &changed.fifo {
            Some(fifo) if fifo.throughput_per_group && !fifo.deduplicate_per_group => {
                Err(invalid("FifoThroughputLimit"))
            }
            _ => Ok(changed),
        }
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), SqsError> {
        let seconds = |range| number(name, value, &range).map(Duration::from_secs);
        match name {
            "DelaySeconds" => self.delay = seconds(limits::DELAY_SECS)?,
            "MaximumMessageSize" => {
                self.max_message_bytes = number(name, value, &limits::MESSAGE_BYTES)?;
            }
            "MessageRetentionPeriod" => self.retention = seconds(limits::RETENTION_SECS)?,
            "ReceiveMessageWaitTimeSeconds" => self.wait = seconds(limits::WAIT_SECS)?,
            "VisibilityTimeout" => self.visibility = seconds(limits::VISIBILITY_SECS)?,
            // An empty policy removes the policy.
            "RedrivePolicy" if value.is_empty() => self.redrive = None,
            "RedrivePolicy" => self.redrive = Some(redrive_policy(value)?),
            "RedriveAllowPolicy" if value.is_empty() => self.redrive_allow = None,
            "RedriveAllowPolicy" => self.redrive_allow = Some(redrive_allow(value)?),
            "FifoQueue"
            | "ContentBasedDeduplication"
            | "DeduplicationScope"
            | "FifoThroughputLimit" => {
                self.set_fifo(name, value)?;
            }
            // An empty value removes a policy or a key.
            name if PASSIVE.contains(&name) && value.is_empty() => {
                self.passive.remove(name);
            }
            name if PASSIVE.contains(&name) => {
                self.passive.insert(name.to_owned(), switch(value).to_owned());
            }
            _ => return Err(unknown(name)),
        }
        Ok(())
    }

    fn set_fifo(&mut self, name: &str, value: &str) -> Result<(), SqsError> {
        let Some(fifo) = &mut self.fifo else {
            return Err(unknown(name));
        };
        match (name, switch(value)) {
            ("FifoQueue", "true") => {}
            ("ContentBasedDeduplication", "true") => fifo.content_based_deduplication = true,
            ("ContentBasedDeduplication", "false") => fifo.content_based_deduplication = false,
            ("DeduplicationScope", "messageGroup") => fifo.deduplicate_per_group = true,
            ("DeduplicationScope", "queue") => fifo.deduplicate_per_group = false,
            ("FifoThroughputLimit", "perMessageGroupId") => fifo.throughput_per_group = true,
            ("FifoThroughputLimit", "perQueue") => fifo.throughput_per_group = false,
            _ => return Err(invalid(name)),
        }
        Ok(())
    }

    pub(crate) fn to_attributes(&self) -> BTreeMap<String, String> {
        let mut out = self.passive.clone();
        let mut put = |name: &str, value: String| out.insert(name.to_owned(), value);
        put("DelaySeconds", self.delay.as_secs().to_string());
        put("MaximumMessageSize", self.max_message_bytes.to_string());
        put("MessageRetentionPeriod", self.retention.as_secs().to_string());
        put("ReceiveMessageWaitTimeSeconds", self.wait.as_secs().to_string());
        put("VisibilityTimeout", self.visibility.as_secs().to_string());
        if let Some(policy) = &self.redrive {
            put("RedrivePolicy", json(policy));
        }
        if let Some(policy) = &self.redrive_allow {
            put("RedriveAllowPolicy", json(policy));
        }
        if let Some(fifo) = &self.fifo {
            let (scope, limit) = (fifo.deduplicate_per_group, fifo.throughput_per_group);
            put("FifoQueue", "true".to_owned());
            put("ContentBasedDeduplication", fifo.content_based_deduplication.to_string());
            put("DeduplicationScope", if scope { "messageGroup" } else { "queue" }.to_owned());
            put(
                "FifoThroughputLimit",
                if limit { "perMessageGroupId" } else { "perQueue" }.to_owned(),
            );
        }
        out
    }
}

fn redrive_policy(value: &str) -> Result<RedrivePolicy, SqsError> {
    let refused = |reason: &str| SqsError::invalid_value(value, "RedrivePolicy", reason);
    let policy: Value = serde_json::from_str(value)
        .map_err(|_| refused("Redrive policy is not a valid JSON map."))?;
    let Some(arn) = policy.get("deadLetterTargetArn").and_then(Value::as_str) else {
        return Err(refused(
            "Redrive policy does not contain mandatory attribute: deadLetterTargetArn.",
        ));
    };
    // Templates write the count as a number or as a string.
    let count = match policy.get("maxReceiveCount") {
        None => Some(limits::DEFAULT_MAX_RECEIVE_COUNT),
        Some(Value::String(text)) => text.parse().ok(),
        Some(other) => other.as_u64(),
    };
    match count.filter(|count| limits::MAX_RECEIVE_COUNT.contains(count)) {
        Some(max_receive_count) => {
            Ok(RedrivePolicy { dead_letter_target_arn: arn.to_owned(), max_receive_count })
        }
        None => Err(refused(
            "Invalid value for maxReceiveCount: must be a whole number from 1 to 1000.",
        )),
    }
}

fn redrive_allow(value: &str) -> Result<RedriveAllow, SqsError> {
    let refused = |reason: &str| SqsError::invalid_value(value, "RedriveAllowPolicy", reason);
    let policy: RedriveAllow = serde_json::from_str(value).map_err(|_| {
        refused(
            "Amazon SQS can't create the redrive allow policy, as it's not in the supported \
                 format.",
        )
    })?;
    let by_queue = policy.redrive_permission == Permission::ByQueue;
    let named = policy.source_queue_arns.len();
    if by_queue != (1..=limits::ALLOWED_SOURCES).contains(&named) {
        return Err(refused(
            "sourceQueueArns must name 1 to 10 queues with byQueue, and none otherwise.",
        ));
    }
    Ok(policy)
}

/// The spelling of a switch. AWS was seen to take `True`, which Python programs write.
fn switch(value: &str) -> &str {
    ["true", "false"].into_iter().find(|word| value.eq_ignore_ascii_case(word)).unwrap_or(value)
}

fn number(name: &str, value: &str, range: &std::ops::RangeInclusive<u64>) -> Result<u64, SqsError> {
    value.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| invalid(name))
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("a struct of strings and numbers is JSON")
}

fn invalid(name: &str) -> SqsError {
    SqsError::new(code::INVALID_ATTRIBUTE_VALUE, format!("Invalid value for the parameter {name}."))
}

pub(crate) fn unknown(name: &str) -> SqsError {
    SqsError::new(code::INVALID_ATTRIBUTE_NAME, format!("Unknown Attribute {name}."))
}
