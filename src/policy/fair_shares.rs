//! The shares of tenants in a rate limit, and their own limits.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::RateLimit;
use crate::pointer::{self, JsonPointer};

/// A rate limit is shared fairly between tenants: while several of them have messages that wait, each
/// gets calls in proportion to its weight.
///
/// Only texts and numbers name a tenant. Equal values are one tenant, however they are written, and
/// all messages without such a value are one tenant too.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FairShares {
    /// The place of a message's tenant.
    pub by: MessageKey,
    /// The weights of tenants by their values; a number is written as a text. Other tenants have
    /// the weight 1, and 0 counts as 1.
    pub weights: BTreeMap<String, u8>,
}

impl FairShares {
    /// Equal shares for all tenants.
    pub const fn by(by: MessageKey) -> Self {
        Self { by, weights: BTreeMap::new() }
    }

    /// The weights by the [names](pointer::name) of the values. A number may be a text too.
    pub(crate) fn by_name(&self) -> BTreeMap<String, u8> {
        let named = self.weights.iter().flat_map(|(value, weight)| {
            let both = [pointer::name_of_text(value), pointer::name_of_number(value)];
            both.into_iter().flatten().map(|name| (name, (*weight).max(1)))
        });
        named.collect()
    }
}

/// A rate limit for each value at a place of the messages, such as a tenant. No value gets more
/// calls, even if the limit of all messages allows more.
///
/// Values are distinguished as in [`FairShares`]; all messages without one share one limit. It is
/// never adaptive.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyLimit {
    /// The place of the value.
    pub key: MessageKey,
    /// The limit of the messages with the same value.
    pub limit: RateLimit,
    /// The place of the units of a message's call, as [`RetryPolicy::units`](super::RetryPolicy::units).
    pub units: Option<MessageKey>,
}

impl KeyLimit {
    /// A limit for each value.
    pub const fn new(key: MessageKey, limit: RateLimit) -> Self {
        Self { key, limit, units: None }
    }
}

/// A place in a message.
///
/// ```
/// use requeue::policy::MessageKey;
///
/// assert_eq!("tenant".parse(), Ok(MessageKey::Attribute("tenant".to_owned())));
/// assert_eq!("MessageGroupId".parse(), Ok(MessageKey::MessageGroupId));
/// assert!(matches!("/account/id".parse(), Ok(MessageKey::Body(_))));
/// assert!("account id".parse::<MessageKey>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MessageKey {
    /// The value at this place in the body as first delivered.
    Body(JsonPointer),
    /// The message group.
    MessageGroupId,
    /// The text of the message attribute of this name.
    Attribute(String),
}

const GROUP: &str = "MessageGroupId";
/// The longest name of a message attribute. Source: SQS developer guide, "Amazon SQS message
/// metadata".
pub(crate) const MAX_ATTRIBUTE_NAME: usize = 256;

impl FromStr for MessageKey {
    type Err = InvalidMessageKey;

    fn from_str(text: &str) -> Result<Self, InvalidMessageKey> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        match text {
            GROUP => Ok(Self::MessageGroupId),
            _ if text.starts_with('/') => {
                text.parse().map(Self::Body).map_err(|_| InvalidMessageKey)
            }
            _ if (1..=MAX_ATTRIBUTE_NAME).contains(&text.len()) && text.bytes().all(is_allowed) => {
                Ok(Self::Attribute(text.to_owned()))
            }
            _ => Err(InvalidMessageKey),
        }
    }
}

impl fmt::Display for MessageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Body(pointer) => pointer.as_str(),
            Self::MessageGroupId => GROUP,
            Self::Attribute(name) => name,
        })
    }
}

/// The text names no place in a message.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it must be {}", Self::ALLOWED)]
#[non_exhaustive]
pub struct InvalidMessageKey;

requeue_sqs::debug_as_display!(InvalidMessageKey);

impl InvalidMessageKey {
    pub(crate) const ALLOWED: &str = "a JSON pointer such as /tenant, of at most 16 names and 1024 bytes, MessageGroupId, or the \
                                      name of a message attribute";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_written_as_it_is_read() {
        let longest = "a".repeat(256);
        for text in ["/tenant", "/a~1b/0", "MessageGroupId", "tenant", "x-Tenant_1.a", &longest] {
            assert_eq!(text.parse::<MessageKey>().map(|key| key.to_string()), Ok(text.to_owned()));
        }
        let too_long = "a".repeat(257);
        for text in ["", "a b", "tenant/id", "/a~2", "#/a", "ü", &too_long, &"/a".repeat(17)] {
            assert_eq!(text.parse::<MessageKey>(), Err(InvalidMessageKey), "{text}");
        }
    }

    #[test]
    fn a_weight_is_found_by_the_name_of_a_text_or_a_number() {
        let mut shares = FairShares::by(MessageKey::MessageGroupId);
        shares.weights = [("acme", 3), ("7.0", 2), ("", 9), ("none", 0), (" 8", 4)]
            .map(|(value, weight)| (value.to_owned(), weight))
            .into();
        let weights = shares.by_name();
        let of = |json| weights.get(&pointer::name(json).expect("a name")).copied();
        for (json, weight) in [
            (r#""acme""#, Some(3)),
            (r#""\u0061cme""#, Some(3)),
            ("7", Some(2)),
            ("70e-1", Some(2)),
            (r#""7.0""#, Some(2)),
            (r#""7""#, None),
            (r#""none""#, Some(1)),
            ("8", None),
            (r#"" 8""#, Some(4)),
        ] {
            assert_eq!(of(json), weight, "{json}");
        }
        assert_eq!(weights.len(), 5, "{weights:?}");
    }
}
