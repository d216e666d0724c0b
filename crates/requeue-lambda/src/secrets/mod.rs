//! Secrets that a setting names by ARN: the place of each, and the part of the stored text. Knows
//! no setting, and shows no stored text.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};

mod fetch;
#[cfg(test)]
mod tests;

pub(crate) use fetch::fetch;

/// The stored text, or the error, of each requested place.
pub(crate) type Texts = BTreeMap<Stored, Result<String, FetchError>>;

/// The place of a stored text; each place takes one request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stored {
    /// A secret of Secrets Manager, in a version: by default the current one.
    Secret { arn: String, region: String, stage: Option<String>, version: Option<String> },
    /// A parameter of SSM.
    Parameter { arn: String, region: String },
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
    stored: Stored,
    /// The key in the stored JSON object.
    json_key: Option<String>,
}

impl SecretArn {
    /// `None` for a word that is an ARN of neither service; an error for one that should be, and is
    /// invalid.
    pub(crate) fn parse(word: &str) -> Option<Result<Self, InvalidSecretArn>> {
        let parts: Vec<&str> = word.splitn(6, ':').collect();
        let (invalid, read): (_, fn(&str, &str, &str) -> _) = match parts[..] {
            ["arn", _, "secretsmanager", ..] => (InvalidSecretArn::Secret, secret),
            ["arn", _, "ssm", ..] => (InvalidSecretArn::Parameter, parameter),
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

    pub(crate) fn stored(&self) -> &Stored {
        &self.stored
    }

    /// The chosen part of the stored text, without white space around it, since a text from a file
    /// ends in a line break.
    pub(crate) fn pick(&self, text: &str) -> Result<String, Unfit> {
        let member = match &self.json_key {
            None => None,
            Some(key) => {
                let mut members: Map<String, Value> =
                    serde_json::from_str(text).map_err(|_| Unfit::NoObject)?;
                match members.remove(key) {
                    Some(Value::String(member)) => Some(member),
                    Some(_) => return Err(Unfit::NoTextIn(key.clone())),
                    None => return Err(Unfit::Lacks(key.clone())),
                }
            }
        };
        let picked = member.as_deref().unwrap_or(text).trim_ascii();
        if picked.is_empty() { Err(Unfit::Empty) } else { Ok(picked.to_owned()) }
    }
}

/// The ARN, as written in the setting.
impl fmt::Display for SecretArn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.word)
    }
}

/// `secret:<name>`, and up to three further parts that may be empty: JSON key, version stage,
/// version id.
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

/// The ARN `word` with another resource.
fn arn(word: &str, resource: &str) -> String {
    let head: Vec<&str> = word.splitn(6, ':').take(5).collect();
    format!("{}:{resource}", head.join(":"))
}

fn is_name(text: &str, more: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
}

/// The reason for which an ARN names no secret. The text is not shown, since it may be anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidSecretArn {
    #[error(
        "the ARN of a secret must have the form \
         arn:aws:secretsmanager:eu-west-1:123456789012:secret:orders-AbCdEf; json-key, \
         version-stage and version-id may follow, as in …:orders-AbCdEf:token::"
    )]
    Secret,
    #[error(
        "the ARN of a parameter must have the form \
         arn:aws:ssm:eu-west-1:123456789012:parameter/orders/token"
    )]
    Parameter,
}

/// The reason for which a stored text does not fit its ARN.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unfit {
    #[error("the stored text is not a JSON object, so remove the json-key or store an object")]
    NoObject,
    #[error("the stored JSON object has no `{}`", .0.escape_debug())]
    Lacks(String),
    #[error("`{}` of the stored JSON object is not a text", .0.escape_debug())]
    NoTextIn(String),
    #[error("the stored text is empty")]
    Empty,
}

/// The reason for which a text could not be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FetchError {
    /// The service's error code, or a word for the failure of the request.
    pub(crate) code: String,
    /// The remedy, if it is known.
    pub(crate) remedy: Option<String>,
}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.code)?;
        self.remedy.as_ref().map_or(Ok(()), |remedy| write!(f, ": {remedy}"))
    }
}
