//! What messages have in common that are to be paused together: an attribute, or a place in the body.

use std::fmt;
use std::str::FromStr;

use serde_json::Value;

use crate::gate::Scope;
use crate::message::Message;
use crate::queue::{AttributeValue, is_attribute_name};

/// By what the messages to one target are paused together and left alone together; without it, all of them are. Messages that have none
/// of it share one scope.
///
/// ```
/// use requeue::http::ScopeKey;
///
/// assert_eq!("tenant".parse::<ScopeKey>(), Ok(ScopeKey::Attribute("tenant".to_owned())));
/// assert_eq!("/account/id".parse::<ScopeKey>(), Ok(ScopeKey::Pointer("/account/id".to_owned())));
/// assert!("account id".parse::<ScopeKey>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScopeKey {
    /// The value of the message attribute of this name.
    Attribute(String),
    /// The value at this JSON pointer (RFC 6901) in the body.
    Pointer(String),
}

impl ScopeKey {
    pub(super) fn scope(&self, message: &Message) -> Scope {
        match self {
            Self::Attribute(name) => match message.attributes().get(name).map(|attribute| &attribute.value) {
                None => Scope::default(),
                Some(AttributeValue::Text(text)) => Scope::of(text),
                Some(AttributeValue::Binary(bytes)) => Scope::of(bytes),
            },
            Self::Pointer(pointer) => {
                let body: Option<Value> = serde_json::from_str(message.body()).ok();
                match body.as_ref().and_then(|body| body.pointer(pointer)) {
                    None | Some(Value::Null) => Scope::default(),
                    Some(value) => Scope::of(value),
                }
            }
        }
    }
}

impl FromStr for ScopeKey {
    type Err = InvalidScopeKey;

    /// A JSON pointer begins with a slash; anything else is the name of an attribute.
    fn from_str(text: &str) -> Result<Self, InvalidScopeKey> {
        if text.starts_with('/') {
            let escapes = text.split('~').skip(1);
            let is_sound = escapes.into_iter().all(|escape| escape.starts_with(['0', '1']));
            return is_sound.then(|| Self::Pointer(text.to_owned())).ok_or(InvalidScopeKey);
        }
        is_attribute_name(text).then(|| Self::Attribute(text.to_owned())).ok_or(InvalidScopeKey)
    }
}

/// It is neither a JSON pointer nor the name of a message attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidScopeKey;

impl fmt::Display for InvalidScopeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("allowed is the name of a message attribute, or a JSON pointer such as /account/id")
    }
}

impl std::error::Error for InvalidScopeKey {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_an_attribute_or_a_json_pointer() {
        for (text, expected) in [
            ("tenant", Ok(ScopeKey::Attribute("tenant".to_owned()))),
            ("Body.Tenant-1_a", Ok(ScopeKey::Attribute("Body.Tenant-1_a".to_owned()))),
            ("/", Ok(ScopeKey::Pointer("/".to_owned()))),
            ("/a~1b/m~0n/0", Ok(ScopeKey::Pointer("/a~1b/m~0n/0".to_owned()))),
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
