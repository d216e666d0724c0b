//! The scope of messages: by an attribute, or by a place in the body.

use std::fmt;
use std::str::FromStr;

use requeue::queue::{AttributeValue, is_attribute_name};
use requeue::{Message, Scope};
use serde::de::{Deserializer as _, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// The key by which messages to one target share a pause and a circuit. Without a key, all messages
/// share one scope. Messages without the attribute or value share one scope of their own.
///
/// ```
/// use requeue_lambda::ScopeKey;
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
    /// The value at this JSON pointer (RFC 6901) in the body. An object or an array counts by its
    /// text. If a name occurs more than once, its last value counts. `null` has no scope, and
    /// neither has a body that is not JSON.
    Pointer(String),
}

impl ScopeKey {
    pub(super) fn scope(&self, message: &Message) -> Scope {
        match self {
            Self::Attribute(name) => {
                match message.attributes().get(name).map(|attribute| &attribute.value) {
                    None => none(),
                    Some(AttributeValue::Text(text)) => Scope::of(text),
                    Some(AttributeValue::Binary(bytes)) => Scope::of(bytes),
                }
            }
            Self::Pointer(pointer) => match at(message.body(), pointer) {
                None | Some("null") => none(),
                Some(json) => of_value(json),
            },
        }
    }
}

/// The scope of messages without the key. It is not the default scope, which means that all
/// messages share one.
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

/// The text of the value at a JSON pointer. Bodies may be hostile, so the search builds nothing in
/// memory, and nesting costs no stack.
fn at<'a>(body: &'a str, pointer: &str) -> Option<&'a str> {
    pointer.strip_prefix('/')?.split('/').try_fold(body, |json, token| {
        let token = token.replace("~1", "/").replace("~0", "~");
        match json.trim_ascii_start().as_bytes().first()? {
            b'{' => member(json, &token),
            b'[' => item(json, &token),
            _ => None,
        }
    })
}

fn member<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    let mut deserializer = serde_json::Deserializer::from_str(object);
    let member = deserializer.deserialize_map(Member(name)).ok()?;
    deserializer.end().ok()?;
    member.map(RawValue::get)
}

/// The last value of this name. The others are read too, since the whole text has to be JSON.
struct Member<'n>(&'n str);

impl<'a> Visitor<'a> for Member<'_> {
    type Value = Option<&'a RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<M: MapAccess<'a>>(self, mut members: M) -> Result<Self::Value, M::Error> {
        let mut found = None;
        while let Some((key, value)) = members.next_entry::<&RawValue, _>()? {
            if is_named(key.get(), self.0) {
                found = Some(value);
            }
        }
        Ok(found)
    }
}

/// `key` has its quotes.
fn is_named(key: &str, name: &str) -> bool {
    /// An escape of six characters stands for one byte or more.
    const LONGEST_ESCAPE: usize = "\\u0000".len();
    let text = &key[1..key.len() - 1];
    if !text.contains('\\') {
        return text == name;
    }
    text.len() <= name.len() * LONGEST_ESCAPE
        && serde_json::from_str::<String>(key).is_ok_and(|key| key == name)
}

fn item<'a>(array: &'a str, token: &str) -> Option<&'a str> {
    let is_index = token.bytes().all(|byte| byte.is_ascii_digit())
        && (token == "0" || !token.starts_with('0'));
    let index: usize = if is_index { token.parse().ok()? } else { return None };
    let mut deserializer = serde_json::Deserializer::from_str(array);
    let item = deserializer.deserialize_seq(Item(index)).ok()?;
    deserializer.end().ok()?;
    item.map(RawValue::get)
}

/// The item at an index. The others are read too, since the whole text has to be JSON.
struct Item(usize);

impl<'a> Visitor<'a> for Item {
    type Value = Option<&'a RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a JSON array")
    }

    fn visit_seq<S: SeqAccess<'a>>(self, mut items: S) -> Result<Self::Value, S::Error> {
        let mut found = None;
        let mut index = 0;
        while let Some(item) = items.next_element::<&RawValue>()? {
            if index == self.0 {
                found = Some(item);
            }
            index += 1;
        }
        Ok(found)
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

/// The text is neither a JSON pointer nor the name of a message attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it must be the name of a message attribute, or a JSON pointer such as /account/id")]
#[non_exhaustive]
pub struct InvalidScopeKey;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use requeue::Record;

    use super::super::tests::message_of;
    use super::*;

    /// The result of `serde_json`, which parses the whole body.
    fn built(body: &str, pointer: &str) -> Result<Option<Value>, serde_json::Error> {
        let body: Value = serde_json::from_str(body)?;
        Ok(body.pointer(pointer).cloned())
    }

    fn found(body: &str, pointer: &str) -> Option<Value> {
        at(body, pointer).map(|json| serde_json::from_str(json).expect("JSON"))
    }

    #[test]
    fn a_pointer_leads_to_a_place_in_the_text() {
        for (body, pointer, expected) in [
            (r#"{"a":{"b":"x"}}"#, "/a/b", Some(r#""x""#)),
            (" \r\n{ \"a\" : [ 1 , {\"b\":2.0} ] }\t", "/a/1/b", Some("2.0")),
            (r#"[[0,"x"]]"#, "/0/1", Some(r#""x""#)),
            (r#"{"a/b":{"m~n":{"":7}}}"#, "/a~1b/m~0n/", Some("7")),
            (r#"{"~1":1,"/":2}"#, "/~01", Some("1")),
            (r#"{"\u0061\u00fc\ud83d\ude00":1}"#, "/aü😀", Some("1")),
            (r#"{"a":1,"a":2}"#, "/a", Some("2")),
            (r#"{"a":1,"\u0061":2}"#, "/a", Some("2")),
            (r#"{"a":{"b":1},"a":{}}"#, "/a/b", None),
            (r#"{"a":{"b":1},"a":7}"#, "/a/b", None),
            (r#"{"a":null}"#, "/a", Some("null")),
            (r#"{"0":1}"#, "/0", Some("1")),
            ("[1]", "/1", None),
            ("[1]", "/00", None),
            ("[1]", "/+0", None),
            ("[1]", "/-", None),
            ("[1]", "/", None),
            ("[1]", "/99999999999999999999999", None),
            (r#"{"a":1"#, "/a", None),
            (r#"{"a":1} x"#, "/a", None),
            ("[1", "/0", None),
            ("[1]]", "/0", None),
            ("7", "/a", None),
            ("", "/a", None),
            ("text", "/a", None),
            (r#"{"a":1}"#, "a", None),
        ] {
            assert_eq!(at(body, pointer), expected, "{body} {pointer}");
            if let Ok(built) = built(body, pointer) {
                assert_eq!(found(body, pointer), built, "{body} {pointer}");
            }
        }
    }

    #[test]
    fn a_body_that_no_value_can_hold_has_a_scope_and_costs_no_stack() {
        let deep = format!("{}0{}", "{\"a\":[".repeat(100_000), "]}".repeat(100_000));
        let pointer = "/a/0".repeat(5);
        assert_eq!(at(&deep, &pointer).map(str::len), Some(deep.len() - 5 * "{\"a\":[]}".len()));
        let odd = r#"{"half a pair":"\ud800","too large":1e999,"id":7}"#;
        assert!(built(odd, "/id").is_err());
        assert_eq!(at(odd, "/id"), Some("7"));
    }

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
        for key in ["tenant", "/id", "/tenant"] {
            let scope = key.parse::<ScopeKey>().expect("a key").scope(&message);
            assert_eq!((scope == none(), scope == Scope::default()), (true, false), "{key}");
        }
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(Value::from),
            "[a~/\\\\\"ü]{0,2}".prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            let members = prop::collection::vec(("[a~/\\\\\"ü01]{0,2}", inner.clone()), 0..4);
            prop_oneof![
                prop::collection::vec(inner, 0..4).prop_map(Value::from),
                members.prop_map(|members| Value::from(
                    members.into_iter().collect::<serde_json::Map<_, _>>()
                )),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_place_is_the_one_that_serde_json_finds(json in json(), tokens in prop::collection::vec("[a~/\\\\\"ü01]{0,2}", 1..4)) {
            let escape = |token: &String| format!("/{}", token.replace('~', "~0").replace('/', "~1"));
            let pointer: String = tokens.iter().map(escape).collect();
            for body in [json.to_string(), serde_json::to_string_pretty(&json).expect("it is printed")] {
                prop_assert_eq!(found(&body, &pointer), built(&body, &pointer).expect("JSON"));
            }
        }
    }

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
