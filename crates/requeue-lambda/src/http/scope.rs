//! The scope of messages: by an attribute, or by a place in the body.

use std::str::FromStr;

use requeue::queue::{AttributeValue, is_attribute_name};
use requeue::{JsonPointer, Message, Scope};
use serde_json::Value;

/// The key by which messages to one target share a pause and a circuit. Without a key, all messages
/// share one scope. Messages without the attribute or value share one scope of their own.
///
/// ```
/// use requeue_lambda::ScopeKey;
///
/// assert_eq!("tenant".parse::<ScopeKey>(), Ok(ScopeKey::Attribute("tenant".to_owned())));
/// assert!(matches!("/account/id".parse::<ScopeKey>(), Ok(ScopeKey::Pointer(_))));
/// assert!("account id".parse::<ScopeKey>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScopeKey {
    /// The value of the message attribute of this name. For `MessageGroupId`, and a message without
    /// such an attribute, its message group: the tenant of a fair queue.
    Attribute(String),
    /// The value at this JSON pointer (RFC 6901) in the body. An object or an array counts by its
    /// text. If a name occurs more than once, its last value counts. `null` has no scope, and
    /// neither has a body that is not JSON.
    Pointer(JsonPointer),
}

impl ScopeKey {
    pub(crate) fn scope(&self, message: &Message) -> Scope {
        match self {
            Self::Attribute(name) => {
                match message.attributes().get(name).map(|attribute| &attribute.value) {
                    None if name == "MessageGroupId" => {
                        message.group_id().map_or_else(none, Scope::of)
                    }
                    None => none(),
                    Some(AttributeValue::Text(text)) => Scope::of(text),
                    Some(AttributeValue::Binary(bytes)) => Scope::of(bytes),
                }
            }
            Self::Pointer(pointer) => match pointer.find(message.body()) {
                None | Some("null") => none(),
                Some(json) => of_value(json),
            },
        }
    }
}

/// Of messages without the key. It is not the default scope, which all messages share.
fn none() -> Scope {
    // It is no text, so it equals no other value.
    Scope::of([0xff])
}

/// Equal values have one scope, however they are written. Objects and arrays count by their text,
/// because parsing them would take a hundred times their size in memory.
fn of_value(json: &str) -> Scope {
    let scalar: Option<Value> =
        if json.starts_with(['{', '[']) { None } else { serde_json::from_str(json).ok() };
    scalar.map_or_else(|| Scope::of(json), |value| Scope::of(value.to_string()))
}

impl FromStr for ScopeKey {
    type Err = InvalidScopeKey;

    /// A JSON pointer begins with a slash; anything else is the name of an attribute.
    fn from_str(text: &str) -> Result<Self, InvalidScopeKey> {
        if text.starts_with('/') {
            return text.parse().map(Self::Pointer).map_err(|_| InvalidScopeKey);
        }
        is_attribute_name(text).then(|| Self::Attribute(text.to_owned())).ok_or(InvalidScopeKey)
    }
}

/// The text is neither a JSON pointer nor the name of a message attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "it must be the name of a message attribute, or a JSON pointer such as /account/id, of at most 16 \
     names and 1024 bytes"
)]
#[non_exhaustive]
pub struct InvalidScopeKey;

#[cfg(test)]
mod tests {
    use requeue::Record;

    use super::super::tests::message_of;
    use super::*;

    #[test]
    fn equal_values_are_one_scope_however_they_are_written() {
        for (one, other, is_same) in [
            (r#""a""#, r#""\u0061""#, true),
            ("1.0", "1.00", true),
            ("1e2", "100.0", true),
            ("1", r#""1""#, false),
            ("1", "2", false),
            ("true", r#""true""#, false),
            (r#""\ud800""#, r#""\ud800""#, true),
            (r#""\ud800""#, r#""\ud801""#, false),
            ("[1]", "[1]", true),
            ("[1]", "[2]", false),
            (r#"{"a":1}"#, r#"{"a":1}"#, true),
            (r#"{"a":1}"#, r#"{"a":2}"#, false),
        ] {
            assert_eq!(of_value(one) == of_value(other), is_same, "{one} {other}");
        }
    }

    #[tokio::test]
    async fn messages_without_a_key_share_a_scope_that_is_not_the_one_of_all() {
        let mut record = Record::default();
        record.body = Some(r#"{"id":null}"#.into());
        let message = message_of(record).await;
        for key in ["tenant", "MessageGroupId", "/id", "/tenant"] {
            let scope = key.parse::<ScopeKey>().expect("a key").scope(&message);
            assert_eq!((scope == none(), scope == Scope::default()), (true, false), "{key}");
        }
    }

    #[tokio::test]
    async fn the_message_group_is_a_scope() {
        let mut record = Record::default();
        record.group_id = Some("acme".to_owned());
        let message = message_of(record).await;
        let scope = "MessageGroupId".parse::<ScopeKey>().expect("a key").scope(&message);
        assert_eq!(scope, Scope::of("acme"));
    }

    #[test]
    fn a_key_is_an_attribute_or_a_json_pointer() {
        let pointer = |text: &str| text.parse().expect("a pointer");
        for (text, expected) in [
            ("tenant", Ok(ScopeKey::Attribute("tenant".to_owned()))),
            ("Body.Tenant-1_a", Ok(ScopeKey::Attribute("Body.Tenant-1_a".to_owned()))),
            ("/", Ok(ScopeKey::Pointer(pointer("/")))),
            ("/a~1b/m~0n/0", Ok(ScopeKey::Pointer(pointer("/a~1b/m~0n/0")))),
            ("/a~2", Err(InvalidScopeKey)),
            ("/a~", Err(InvalidScopeKey)),
            ("", Err(InvalidScopeKey)),
            ("a/b", Err(InvalidScopeKey)),
            ("a b", Err(InvalidScopeKey)),
            ("ä", Err(InvalidScopeKey)),
        ] {
            assert_eq!(text.parse::<ScopeKey>(), expected, "{text}");
        }
    }
}
