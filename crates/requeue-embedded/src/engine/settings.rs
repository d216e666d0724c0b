//! The attributes of a queue: read from strings, checked, and written as strings.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::SqsError;
use super::limits;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    numbers: BTreeMap<&'static str, u64>,
    pub(crate) redrive: Option<RedrivePolicy>,
    pub(crate) redrive_allow: Option<RedriveAllow>,
    /// Those of a FIFO queue; and those that are stored and returned, and change nothing here.
    texts: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RedrivePolicy {
    pub(crate) dead_letter_target_arn: String,
    pub(crate) max_receive_count: u64,
}

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

/// The attributes that are numbers, with their bounds and their defaults.
const NUMBERS: [(&str, RangeInclusive<u64>, u64); 5] = [
    ("DelaySeconds", limits::DELAY_SECS, 0),
    ("MaximumMessageSize", limits::MESSAGE_BYTES, *limits::MESSAGE_BYTES.end()),
    ("MessageRetentionPeriod", limits::RETENTION_SECS, limits::DEFAULT_RETENTION_SECS),
    ("ReceiveMessageWaitTimeSeconds", limits::WAIT_SECS, 0),
    ("VisibilityTimeout", limits::VISIBILITY_SECS, limits::DEFAULT_VISIBILITY_SECS),
];

/// The attributes of a FIFO queue, with their values, the default first.
const FIFO: [(&str, [&str; 2]); 4] = [
    ("FifoQueue", ["true", "true"]),
    ("ContentBasedDeduplication", ["false", "true"]),
    ("DeduplicationScope", ["queue", "messageGroup"]),
    ("FifoThroughputLimit", ["perQueue", "perMessageGroupId"]),
];

const PASSIVE: [&str; 4] =
    ["KmsDataKeyReusePeriodSeconds", "KmsMasterKeyId", "Policy", "SqsManagedSseEnabled"];

impl Settings {
    pub(crate) fn of(is_fifo: bool) -> Self {
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let fifo = FIFO.into_iter().filter(|_| is_fifo).map(|(name, [default, _])| (name, default));
        let texts = fifo.chain([("SqsManagedSseEnabled", "true")]).map(owned).collect();
        let numbers = NUMBERS.map(|(name, _, default)| (name, default)).into();
        Self { numbers, redrive: None, redrive_allow: None, texts }
    }

    pub(crate) fn is_fifo(&self) -> bool {
        self.texts.contains_key("FifoQueue")
    }

    pub(crate) fn is(&self, name: &str, text: &str) -> bool {
        self.texts.get(name).is_some_and(|own| own == text)
    }

    pub(crate) fn number(&self, name: &str) -> u64 {
        self.numbers.get(name).copied().unwrap_or_default()
    }

    pub(crate) fn time(&self, name: &str) -> Duration {
        Duration::from_secs(self.number(name))
    }

    /// These settings with the named attributes changed. If one is refused, nothing is changed.
    pub(crate) fn with(&self, attributes: &BTreeMap<String, String>) -> Result<Self, SqsError> {
        let mut changed = self.clone();
        for (name, value) in attributes {
            changed.set(name, value)?;
        }
        if changed.is("FifoThroughputLimit", "perMessageGroupId")
            && !changed.is("DeduplicationScope", "messageGroup")
        {
            return Err(invalid("FifoThroughputLimit"));
        }
        Ok(changed)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), SqsError> {
        if let Some((name, range, _)) = NUMBERS.iter().find(|row| row.0 == name) {
            let number = value.parse().ok().filter(|number| range.contains(number));
            self.numbers.insert(name, number.ok_or_else(|| invalid(name))?);
            return Ok(());
        }
        let of_fifo = FIFO.iter().find(|row| row.0 == name);
        match name {
            // An empty value removes a policy or a key.
            "RedrivePolicy" if value.is_empty() => self.redrive = None,
            "RedrivePolicy" => self.redrive = Some(redrive_policy(value)?),
            "RedriveAllowPolicy" if value.is_empty() => self.redrive_allow = None,
            "RedriveAllowPolicy" => self.redrive_allow = Some(redrive_allow(value)?),
            _ if PASSIVE.contains(&name) && value.is_empty() => drop(self.texts.remove(name)),
            _ if PASSIVE.contains(&name) || of_fifo.is_some() && self.is_fifo() => {
                let value = switch(value);
                if of_fifo.is_some_and(|(_, values)| !values.contains(&value)) {
                    return Err(invalid(name));
                }
                self.texts.insert(name.to_owned(), value.to_owned());
            }
            _ => return Err(unknown(name)),
        }
        Ok(())
    }

    pub(crate) fn to_attributes(&self) -> BTreeMap<String, String> {
        let numbers = self.numbers.iter().map(|(name, number)| (*name, number.to_string()));
        let redrive = self.redrive.iter().map(|policy| ("RedrivePolicy", json(policy)));
        let allow = self.redrive_allow.iter().map(|policy| ("RedriveAllowPolicy", json(policy)));
        let others = numbers.chain(redrive).chain(allow);
        let others = others.map(|(name, value)| (name.to_owned(), value));
        self.texts.clone().into_iter().chain(others).collect()
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

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("a struct of strings and numbers is JSON")
}

fn invalid(name: &str) -> SqsError {
    SqsError::new("InvalidAttributeValue", format!("Invalid value for the parameter {name}."))
}

pub(crate) fn unknown(name: &str) -> SqsError {
    SqsError::new("InvalidAttributeName", format!("Unknown Attribute {name}."))
}
