//! Secrets that a setting names by ARN. Knows no setting, and shows no stored text.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};

mod fetch;
#[cfg(test)]
mod tests;

pub(crate) use fetch::fetch;

pub(crate) type Texts = BTreeMap<Stored, Result<String, String>>;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stored {
    /// A secret of Secrets Manager, in a version: by default the current one.
    Secret {
        arn: String,
        region: String,
        stage: Option<String>,
        version: Option<String>,
    },
    Parameter {
        arn: String,
        region: String,
    },
}

impl Stored {
    /// The ARN for IAM, without version and label.
    pub(crate) fn plain_arn(&self) -> String {
        match self {
            Self::Secret { arn, .. } => arn.clone(),
            Self::Parameter { arn, .. } => arn.split(':').take(6).collect::<Vec<_>>().join(":"),
        }
    }
}

/// The ARN of a secret of Secrets Manager, in the form of ECS, or of an SSM parameter.
///
/// Sources: ECS developer guide, "Pass Secrets Manager secrets through Amazon ECS environment
/// variables"; SSM API reference, `GetParameter`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SecretArn {
    word: String,
    pub(crate) stored: Stored,
    json_key: Option<String>,
}

impl SecretArn {
    /// `None` for a word that is an ARN of neither service; an error for an invalid one.
    pub(crate) fn parse(word: &str) -> Option<Result<Self, &'static str>> {
        let parts: Vec<&str> = word.splitn(6, ':').collect();
        let (invalid, read): (_, fn(&str, &str, &str) -> _) = match parts[..] {
            ["arn", _, "secretsmanager", ..] => (NO_SECRET, secret),
            ["arn", _, "ssm", ..] => (NO_PARAMETER, parameter),
            _ => return None,
        };
        let read = match parts[..] {
            [_, partition, _, region, account, resource]
                if [partition, region, account].iter().all(|part| is_name(part, "-"))
                    && !word.contains(char::is_control) =>
            {
                read(word, region, resource)
            }
            _ => None,
        };
        Some(read.ok_or(invalid))
    }

    /// Without white space around it, since a text from a file ends in a line break.
    pub(crate) fn pick(&self, text: &str) -> Result<String, String> {
        let mut picked = text.to_owned();
        if let Some(key) = &self.json_key {
            let members: Option<Map<String, Value>> = serde_json::from_str(text).ok();
            let mut members = members.ok_or(
                "the stored text is not a JSON object, so remove the json-key or store an object",
            )?;
            let (member, key) = (members.remove(key), key.escape_debug());
            let member = member.ok_or_else(|| format!("the stored JSON object has no `{key}`"))?;
            let Value::String(member) = member else {
                return Err(format!("`{key}` of the stored JSON object is not a text"));
            };
            picked = member;
        }
        let picked = picked.trim_ascii();
        if picked.is_empty() {
            return Err("the stored text is empty".to_owned());
        }
        Ok(picked.to_owned())
    }
}

impl fmt::Display for SecretArn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.word)
    }
}

/// `secret:<name>`, and perhaps a JSON key, a version stage and a version id.
fn secret(word: &str, region: &str, resource: &str) -> Option<SecretArn> {
    let mut parts = resource.split(':');
    let name = (parts.next()? == "secret").then(|| parts.next())??;
    let more: Vec<&str> = parts.collect();
    if !is_name(name, "/_+=.@!-") || more.len() > 3 {
        return None;
    }
    let more =
        |at: usize| more.get(at).filter(|part| !part.is_empty()).map(|part| (*part).to_owned());
    let arn = arn(word, &format!("secret:{name}"));
    let stored =
        Stored::Secret { arn, region: region.to_owned(), stage: more(1), version: more(2) };
    Some(SecretArn { word: word.to_owned(), stored, json_key: more(0) })
}

/// `parameter/<name>`, and optionally a version or label.
fn parameter(word: &str, region: &str, resource: &str) -> Option<SecretArn> {
    let path = resource.strip_prefix("parameter/")?;
    let (name, selector) = path.split_once(':').unwrap_or((path, "1"));
    if !is_name(name, "/_.-") || !is_name(selector, "_.-") {
        return None;
    }
    let stored = Stored::Parameter { arn: word.to_owned(), region: region.to_owned() };
    Some(SecretArn { word: word.to_owned(), stored, json_key: None })
}

fn arn(word: &str, resource: &str) -> String {
    let head: Vec<&str> = word.splitn(6, ':').take(5).collect();
    format!("{}:{resource}", head.join(":"))
}

fn is_name(text: &str, more: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
}

const NO_SECRET: &str = "the ARN of a secret must have the form \
     arn:aws:secretsmanager:eu-west-1:123456789012:secret:orders-AbCdEf; json-key, version-stage and \
     version-id may follow, as in …:orders-AbCdEf:token::";
const NO_PARAMETER: &str = "the ARN of a parameter must have the form \
     arn:aws:ssm:eu-west-1:123456789012:parameter/orders/token";
