//! The scope of messages: by an attribute, by their group, or by a place in the body.

use requeue::policy::MessageKey;
use requeue::queue::AttributeValue;
use requeue::{Message, Scope};
use serde_json::Value;

/// The default scope without a key. Messages without the key share one scope of their own.
pub(crate) fn of(key: Option<&MessageKey>, message: &Message) -> Scope {
    let attribute = |name: &str| {
        let attribute = message.attributes().get(name)?;
        Some(match &attribute.value {
            AttributeValue::Text(text) => Scope::of(text),
            AttributeValue::Binary(bytes) => Scope::of(bytes),
        })
    };
    let scope = match key {
        None => return Scope::default(),
        Some(MessageKey::Attribute(name)) => attribute(name),
        // An attribute may have this name too.
        Some(group @ MessageKey::MessageGroupId) => {
            attribute(&group.to_string()).or_else(|| message.group_id().map(Scope::of))
        }
        Some(MessageKey::Body(pointer)) => pointer.find(message.body()).and_then(of_value),
        Some(_) => None,
    };
    // It is no text, so it equals no other value.
    scope.unwrap_or_else(|| Scope::of([0xff]))
}

/// Equal values have one scope, in any notation. Objects and arrays count by their text, because
/// parsing them would take a hundred times their size in memory. `null` is no value.
fn of_value(json: &str) -> Option<Scope> {
    let scalar: Option<Value> =
        if json.starts_with(['{', '[']) { None } else { serde_json::from_str(json).ok() };
    match scalar {
        Some(Value::Null) => None,
        Some(value) => Some(Scope::of(value.to_string())),
        None => Some(Scope::of(json)),
    }
}

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
            let scope = of(Some(&key.parse().expect("a key")), &message);
            assert_eq!(scope, of(Some(&MessageKey::Attribute("other".to_owned())), &message));
            assert_ne!(scope, Scope::default(), "{key}");
        }
    }

    #[tokio::test]
    async fn the_message_group_is_a_scope() {
        let mut record = Record::default();
        record.group_id = Some("acme".to_owned());
        let message = message_of(record).await;
        let scope = of(Some(&MessageKey::MessageGroupId), &message);
        assert_eq!(scope, Scope::of("acme"));
    }
}
