//! The values of the effective policy, each with the document or the preset that it comes from.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::Effective;
use crate::Error;
use crate::document::{Document, PolicyName};

pub(super) struct EffectivePolicy {
    pub(super) name: String,
    /// The reason for which there are no values.
    pub(super) note: Option<String>,
    pub(super) values: Vec<Effective>,
}

/// Keys of the document that serve each class without a value of its own.
const SHARED: [(&str, &[&str]); 5] = [
    ("backoff", &["backoff"]),
    ("multiplier", &["baseDelayMultiplier"]),
    ("maxDelay", &["maxDelaySeconds", "backoff"]),
    ("jitter", &["jitter", "jitterPercentage"]),
    ("totalTimeoutSeconds", &["totalTimeoutSeconds"]),
];

/// The older names of a class in documents.
const OLDER: [(&str, [&str; 2]); 3] = [
    ("rate-limit", ["RATE_LIMIT", "RATE_LIMIT_EXCEEDED"]),
    ("quota", ["QUOTA", "QUOTA_EXCEEDED"]),
    ("temporary", ["TEMPORARY", "TEMPORARY_ERROR"]),
];

impl EffectivePolicy {
    pub(super) fn of(
        variables: &BTreeMap<String, String>,
        given: Option<PolicyName>,
        is_function: bool,
    ) -> Result<Self, Error> {
        let variable = variables.get("REQUEUE_POLICY");
        let (name, place) = match (given, variable) {
            (Some(name), _) => (name, "--policy"),
            (None, Some(text)) => {
                let name: PolicyName = text.parse()?;
                if let PolicyName::File(path) = &name {
                    let path = path.display().to_string();
                    if path.starts_with("arn:") || is_function {
                        return Ok(Self::elsewhere(path));
                    }
                }
                (name, "REQUEUE_POLICY")
            }
            (None, None) => (PolicyName::STANDARD, "default"),
        };
        let text = name.text()?;
        let Document { policy, rules, queues, .. } = name.parse(&text)?;
        let document: Map<String, Value> = serde_json::from_str(&text).unwrap_or_default();
        let mut values: Vec<Effective> = Vec::new();
        for (key, value) in policy.to_document() {
            add(&mut values, &document, &key, value);
        }
        add(&mut values, &document, "rules", rules.len().into());
        for (queue, own) in queues {
            let entry = document["queues"][&queue].as_object().cloned().unwrap_or_default();
            let mut of_queue: Vec<Effective> = Vec::new();
            for (key, value) in own.to_document() {
                add(&mut of_queue, &entry, &key, value);
            }
            let rules =
                own.rules.map_or_else(|| "those of all queues".into(), |it| it.len().into());
            add(&mut of_queue, &entry, "rules", rules);
            let named =
                |of: Effective| Effective { name: format!("queues.{queue}.{}", of.name), ..of };
            values.extend(of_queue.into_iter().map(named));
        }
        let name = match &name {
            PolicyName::Inline(_) => place.to_owned(),
            other => format!("{other} ({place})"),
        };
        Ok(Self { name, note: None, values })
    }

    fn elsewhere(place: String) -> Self {
        let note = "Only the function reads this document; name a copy of it with --policy to see \
                    its values.";
        Self { name: place, note: Some(note.to_owned()), values: Vec::new() }
    }
}

fn add(values: &mut Vec<Effective>, document: &Map<String, Value>, key: &str, value: Value) {
    let last = key.rsplit('.').next().unwrap_or(key);
    match value {
        // A proportional jitter is one value.
        Value::Object(members) if last != "jitter" => {
            for (name, value) in members {
                add(values, document, &format!("{key}.{name}"), value);
            }
        }
        value => {
            let preset = document.get("preset").and_then(Value::as_str).unwrap_or("standard");
            let origin = if is_in(document, key) {
                "policy document".to_owned()
            } else {
                format!("preset {preset}")
            };
            values.push(Effective { name: key.to_owned(), value, origin });
        }
    }
}

/// Whether the document sets this value.
fn is_in(document: &Map<String, Value>, key: &str) -> bool {
    let parts: Vec<&str> = key.split('.').collect();
    let ["errorConfigs", class, name] = parts[..] else {
        let mut value = document.get(parts[0]);
        for part in &parts[1..] {
            value = value.and_then(|value| value.get(part));
        }
        return value.is_some();
    };
    let shared = SHARED.iter().find(|(own, _)| *own == name).map_or(&[][..], |(_, keys)| *keys);
    let older = OLDER.iter().filter(|(own, _)| *own == class).flat_map(|(_, names)| names);
    let of_classes = document.get("errorConfigs");
    // The default serves only a class without an entry.
    let names = [class].into_iter().chain(older.copied()).chain(["default", "DEFAULT"]);
    let entry = names.into_iter().find_map(|name| of_classes?.get(name));
    entry.is_some_and(|entry| entry.get(name).is_some())
        || shared.iter().any(|key| document.contains_key(*key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_comes_from_the_document_that_sets_it_or_from_the_preset() {
        for (document, key, expected) in [
            (r#"{"maxRetries": 3}"#, "maxRetries", true),
            (r#"{"maxRetries": 3}"#, "maxDeferrals", false),
            (r#"{"circuitBreaker": {"threshold": 9}}"#, "circuitBreaker.threshold", true),
            (
                r#"{"circuitBreaker": {"threshold": 9}}"#,
                "circuitBreaker.resetTimeoutSeconds",
                false,
            ),
            (r#"{"maxDelaySeconds": 9}"#, "errorConfigs.quota.maxDelay", true),
            (
                r#"{"errorConfigs": {"QUOTA_EXCEEDED": {"maxDelay": 9}}}"#,
                "errorConfigs.quota.maxDelay",
                true,
            ),
            (
                r#"{"errorConfigs": {"default": {"maxDelay": 9}}}"#,
                "errorConfigs.quota.maxDelay",
                true,
            ),
            (
                r#"{"errorConfigs": {"DEFAULT": {"maxDelay": 9}, "quota": {"jitter": "full"}}}"#,
                "errorConfigs.quota.maxDelay",
                false,
            ),
        ] {
            let document = serde_json::from_str(document).expect("JSON");
            assert_eq!(is_in(&document, key), expected, "{document:?} {key}");
        }
    }
}
