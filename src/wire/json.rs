//! JSON as text: facts about it without turning it into values, and the characters that SQS
//! accepts. Every function is iterative: nesting of any depth costs no stack.

use memchr::memchr_iter;
use serde::Serialize;
use serde_json::value::RawValue;

/// The text as a value that is printed unchanged; `None` unless it is exactly one JSON value, white
/// space aside.
pub(super) fn raw(text: &str) -> Option<&RawValue> {
    serde_json::from_str(text).ok()
}

/// The text of a JSON string; `None` for other values and for one with half a surrogate pair, which
/// no Rust string can hold.
pub(super) fn string(text: &str) -> Option<String> {
    serde_json::from_str(text).ok()
}

/// An integer of nothing but digits: no sign, fraction or exponent. One that exceeds 64 bits counts
/// as the largest. `text` is a JSON value, and so never empty.
pub(super) fn plain_integer(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

/// Whether SQS would refuse a message with this JSON text: U+FFFE and U+FFFF are the characters that
/// JSON may hold unescaped and SQS refuses. The control characters are escaped in all JSON.
pub(super) fn is_refused(json: &str) -> bool {
    let json = json.as_bytes();
    memchr_iter(0xEF, json).any(|at| matches!(json[at..], [_, 0xBF, 0xBE | 0xBF, ..]))
}

/// Appends `value` as JSON text that SQS accepts. A forbidden character can only be part of a
/// string, where an escape means the same.
pub(super) fn push(out: &mut String, value: &impl Serialize) {
    let json =
        serde_json::to_string(value).expect("strings, numbers and raw values can be printed");
    if is_refused(&json) {
        out.push_str(&json.replace('\u{FFFE}', "\\ufffe").replace('\u{FFFF}', "\\uffff"));
    } else {
        out.push_str(&json);
    }
}
