//! A JSON pointer into the text of a body. It knows no message.

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserializer as _, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::json::each_member;

/// A place in a JSON document (RFC 6901), such as `/account/id`, but not the whole document. A
/// pointer has at most 16 names and indices, and at most 1,024 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonPointer(String);

/// The most names and indices of a pointer. Each one reads the text of its parent once, which a
/// sender chooses. So the longest search takes this many times as long as reading the body.
const MAX_TOKENS: usize = 16;
const MAX_BYTES: usize = 1_024;

impl JsonPointer {
    /// The text of the value at this place. If a name occurs more than once, its last value counts.
    /// `None` if there is no value, or no JSON around it.
    ///
    /// Bodies may be hostile, so the search builds nothing in memory, and nesting costs no stack.
    pub fn find<'a>(&self, json: &'a str) -> Option<&'a str> {
        self.0.strip_prefix('/')?.split('/').try_fold(json, |json, token| {
            let token = token.replace("~1", "/").replace("~0", "~");
            match json.trim_ascii_start().as_bytes().first()? {
                b'{' => member(json, &token),
                b'[' => item(json, &token),
                _ => None,
            }
        })
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for JsonPointer {
    type Err = InvalidJsonPointer;

    fn from_str(text: &str) -> Result<Self, InvalidJsonPointer> {
        let is_sound = text.starts_with('/')
            && text.len() <= MAX_BYTES
            && text.split('/').skip(1).count() <= MAX_TOKENS
            && text.split('~').skip(1).all(|escape| escape.starts_with(['0', '1']));
        is_sound.then(|| Self(text.to_owned())).ok_or(InvalidJsonPointer)
    }
}

impl fmt::Display for JsonPointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The text is no JSON pointer to a place within a document.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "it must be a JSON pointer such as /account/id, of at most {MAX_TOKENS} names and {MAX_BYTES} bytes"
)]
#[non_exhaustive]
pub struct InvalidJsonPointer;

requeue_sqs::debug_as_display!(InvalidJsonPointer);

/// The name that a text or a number gives to an event: equal values have the same name in any
/// notation. `None` for every other value, and for the empty text.
pub(crate) fn name(json: &str) -> Option<String> {
    match json.as_bytes().first()? {
        b'"' if json == "\"\"" => None,
        // No Rust string can hold half a surrogate pair. As JSON, it begins with a quote.
        b'"' => Some(match serde_json::from_str::<String>(json) {
            Ok(text) => format!("text {text}"),
            Err(_) => format!("json {json}"),
        }),
        b'-' | b'0'..=b'9' => Some(format!("number {}", decimal(json))),
        _ => None,
    }
}

/// The name of a text that is no JSON.
pub(crate) fn name_of_text(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| format!("text {text}"))
}

/// The name of a number in a text, if nothing else is in it.
pub(crate) fn name_of_number(text: &str) -> Option<String> {
    let is_number = text.starts_with(|first: char| first == '-' || first.is_ascii_digit())
        && text.ends_with(|last: char| last.is_ascii_digit())
        && serde_json::from_str::<&RawValue>(text).is_ok();
    if is_number { name(text) } else { None }
}

/// A number in one form for all its notations. As floats, different large numbers could be equal.
fn decimal(number: &str) -> String {
    let (sign, number) = match number.strip_prefix('-') {
        Some(number) => ("-", number),
        None => ("", number),
    };
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = [whole, fraction].concat();
    let digits = digits.trim_start_matches('0');
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() {
        return "0".to_owned();
    }
    let moved = i128::try_from(digits.len() - significant.len()).unwrap_or(0)
        - i128::try_from(fraction.len()).unwrap_or(0);
    match exponent.parse::<i64>() {
        Ok(exponent) => format!("{sign}{significant}e{}", i128::from(exponent) + moved),
        // An exponent of 20 digits: its spelling counts.
        Err(_) => format!("{sign}{number}"),
    }
}

/// The last value of this name. The others are read too, since the whole text has to be JSON.
fn member<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    let mut found = None;
    each_member(object, |key, value| {
        if is_named(key, name) {
            found = Some(value);
        }
        Some(())
    })?;
    found
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
    let item = deserializer.deserialize_seq(ElementAt(index)).ok()?;
    deserializer.end().ok()?;
    item.map(RawValue::get)
}

/// The element at an index. The others are read too, since the whole text has to be JSON.
struct ElementAt(usize);

impl<'a> Visitor<'a> for ElementAt {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn at<'a>(body: &'a str, pointer: &str) -> Option<&'a str> {
        pointer.parse::<JsonPointer>().expect("a pointer").find(body)
    }

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
        ] {
            assert_eq!(at(body, pointer), expected, "{body} {pointer}");
            if let Ok(built) = built(body, pointer) {
                assert_eq!(found(body, pointer), built, "{body} {pointer}");
            }
        }
    }

    #[test]
    fn a_body_that_no_value_can_hold_costs_no_stack() {
        let deep = format!("{}0{}", "{\"a\":[".repeat(100_000), "]}".repeat(100_000));
        let pointer = "/a/0".repeat(5);
        assert_eq!(at(&deep, &pointer).map(str::len), Some(deep.len() - 5 * "{\"a\":[]}".len()));
        let odd = r#"{"half a pair":"\ud800","too large":1e999,"id":7}"#;
        assert!(built(odd, "/id").is_err());
        assert_eq!(at(odd, "/id"), Some("7"));
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
    fn a_pointer_begins_with_a_slash_and_has_only_two_escapes() {
        for sound in ["/", "/a", "/a~1b/m~0n/0", "//"] {
            assert_eq!(sound.parse::<JsonPointer>().expect("a pointer").as_str(), sound);
        }
        for unsound in ["", "a", "a/b", "/a~2", "/a~", "#/a"] {
            assert_eq!(unsound.parse::<JsonPointer>(), Err(InvalidJsonPointer), "{unsound}");
        }
    }

    #[test]
    fn a_pointer_has_bounds_since_each_name_reads_the_body_again() {
        for (pointer, is_sound) in [
            ("/a".repeat(16), true),
            ("/a".repeat(17), false),
            ("/a".repeat(2_000), false),
            (format!("/{}", "a".repeat(1_023)), true),
            (format!("/{}", "a".repeat(1_024)), false),
        ] {
            assert_eq!(pointer.parse::<JsonPointer>().is_ok(), is_sound, "{}", pointer.len());
        }
    }

    #[test]
    fn equal_values_have_one_name_however_they_are_written() {
        for (one, other, is_same) in [
            (r#""a""#, r#""\u0061""#, true),
            ("1", "1.0", true),
            ("1", "-1", false),
            ("100", "1e2", true),
            ("100", "1E+2", true),
            ("0.015", "1.50e-2", true),
            ("10", "1", false),
            ("0", "-0.0e9", true),
            ("123456789012345678901", "123456789012345678902", false),
            ("1e99999999999999999999", "1e99999999999999999998", false),
            ("1e400", "1e401", false),
            ("1", r#""1""#, false),
            ("1e0", r#""1e0""#, false),
            (r#""\ud800""#, r#""\ud801""#, false),
            (r#""\ud800""#, r#""\\ud800""#, false),
        ] {
            let (first, second) = (name(one), name(other));
            assert!(first.is_some() && second.is_some(), "{one} {other}");
            assert_eq!(first == second, is_same, "{one} {other}: {first:?} {second:?}");
        }
    }

    #[test]
    fn a_value_that_tells_no_events_apart_is_no_name() {
        for json in ["null", "true", "false", r#""""#, "{}", "[]", r#"{"a":1}"#, "[7]", ""] {
            assert_eq!(name(json), None, "{json}");
        }
    }
}
