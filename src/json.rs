//! JSON as text: facts about it without turning it into values, and the characters that SQS accepts.
//! Nesting of any depth costs no stack.

use std::fmt;

use memchr::memchr_iter;
use serde::Serialize;
use serde::de::{Deserializer as _, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Calls `visit` with the text of every key, with its quotes, and of every value of an object, in
/// their order. `None` if `text` is not one JSON object and white space, or if `visit` returns it.
pub(crate) fn each_member<'a>(
    text: &'a str,
    visit: impl FnMut(&'a str, &'a str) -> Option<()>,
) -> Option<()> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    deserializer.deserialize_map(MemberVisitor(visit)).ok()?;
    deserializer.end().ok()
}

struct MemberVisitor<F>(F);

impl<'a, F: FnMut(&'a str, &'a str) -> Option<()>> Visitor<'a> for MemberVisitor<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<M: MapAccess<'a>>(mut self, mut map: M) -> Result<(), M::Error> {
        while let Some((key, value)) = map.next_entry::<&RawValue, &RawValue>()? {
            (self.0)(key.get(), value.get())
                .ok_or_else(|| M::Error::custom("a member is refused"))?;
        }
        Ok(())
    }
}

/// The text as a value that is printed unchanged; `None` unless it is exactly one JSON value, white
/// space aside.
pub(crate) fn raw(text: &str) -> Option<&RawValue> {
    serde_json::from_str(text).ok()
}

/// The text of a JSON string; `None` for other values and for one with half a surrogate pair, which
/// no Rust string can hold.
pub(crate) fn string(text: &str) -> Option<String> {
    serde_json::from_str(text).ok()
}

/// An integer of digits only: no sign, fraction or exponent. One that exceeds 64 bits counts as the
/// largest. `text` is a JSON value, and so never empty.
pub(crate) fn plain_integer(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

/// Whether SQS would refuse a message with this JSON text: U+FFFE and U+FFFF are the characters that
/// JSON may hold unescaped and SQS refuses. The control characters are escaped in all JSON.
pub(crate) fn is_refused(json: &str) -> bool {
    let json = json.as_bytes();
    memchr_iter(0xEF, json).any(|at| matches!(json[at..], [_, 0xBF, 0xBE | 0xBF, ..]))
}

/// Appends `value` as JSON text that SQS accepts: a forbidden character is escaped.
pub(crate) fn push(out: &mut String, value: &impl Serialize) {
    let json =
        serde_json::to_string(value).expect("strings, numbers and raw values can be printed");
    if is_refused(&json) {
        out.push_str(&json.replace('\u{FFFE}', "\\ufffe").replace('\u{FFFF}', "\\uffff"));
    } else {
        out.push_str(&json);
    }
}
