//! The meaning of a function's response for each message of its call. Pure, except for a warning.
//!
//! Only the list of failed records is read, or the error. No reason has a text of the function,
//! except a text that looks like the name of an error.

use std::collections::{BTreeMap, HashMap};
use std::sync::Once;
use std::time::Duration;

use requeue::classify::{Exception, class_named, fold, presentable};
use requeue::{Bulk, Evidence, Failure, FailureClass};
use serde_json::Value;
use serde_json::value::RawValue;

mod thrown;

/// The longest list of failed records, plus [`BYTES_OF_RECORD`] for each record of the call.
const MAX_LIST: usize = 256 * 1024;
/// A text in a `body` in a text is read, but no deeper one.
const MAX_DEPTH: usize = 4;
/// An item with an identifier alone has about half of it.
const BYTES_OF_RECORD: usize = 128;
/// The longest class that a warning repeats.
const MAX_WORD: usize = 32;
/// A longer delay is implausible, as in a `Retry-After`.
const LONGEST_DELAY: Duration = Duration::from_hours(365 * 24);

/// The result for each record of a call. `ids` are the `messageId`s of the function's event, in
/// order.
///
/// | the function | one record | several |
/// |---|---|---|
/// | nothing, `null`, or a value without `batchItemFailures` and `itemIdentifier` | done | all done |
/// | names records | failed | these failed, the others done |
/// | names another record, or writes no such list, or no JSON | temporary | unclear |
/// | throws, times out, exits | by the error | unclear, or each by its cause |
pub(crate) fn read(payload: &[u8], is_error: bool, ids: &[&str]) -> Bulk<Failure> {
    if is_error {
        return thrown::read(payload, ids);
    }
    // A void function of .NET and a stream handler of Java that writes nothing respond so.
    if payload.trim_ascii().is_empty() {
        return Bulk::Done;
    }
    let items = match items(payload, ids.len()) {
        Ok(items) => items,
        Err(why) => return whole(unknown(why), ids),
    };
    let mut results = vec![Ok(()); ids.len()];
    let places: HashMap<&str, usize> = ids.iter().copied().zip(0..).collect();
    for item in &items {
        let place = identifier(item).and_then(|id| places.get(id).copied());
        let Some(place) = place else {
            return whole(unknown("the response names a record that is none of the call"), ids);
        };
        // Of a record that is listed twice, the first item counts.
        if results[place].is_ok() {
            results[place] = Err(failure(item));
        }
    }
    if items.is_empty() { Bulk::Done } else { Bulk::Each(results) }
}

fn whole(failure: Failure, ids: &[&str]) -> Bulk<Failure> {
    if ids.len() == 1 { Bulk::Each(vec![Err(failure)]) } else { Bulk::Unclear(failure) }
}

fn unknown(why: &str) -> Failure {
    Failure::new(FailureClass::Temporary, Evidence::Unrecognised, why)
}

/// The items of the list, of which there are none if the response has no list.
fn items(payload: &[u8], records: usize) -> Result<Vec<Value>, &'static str> {
    let payload: &RawValue =
        serde_json::from_slice(payload).map_err(|_| "the response is no JSON")?;
    let Some(list) = list(payload.get(), MAX_DEPTH) else {
        let names_records = fold(payload.get()).contains("itemidentifier");
        let elsewhere = "the response names failed records, but in no list batchItemFailures";
        return if names_records { Err(elsewhere) } else { Ok(Vec::new()) };
    };
    if list.len() > MAX_LIST.max(records * BYTES_OF_RECORD) {
        return Err("the list of failed records is too long");
    }
    // For Lambda, `null` is an empty list.
    let list: Option<Vec<&RawValue>> =
        serde_json::from_str(&list).map_err(|_| "batchItemFailures is no list")?;
    Ok(list.unwrap_or_default().into_iter().map(|item| object(item.get().as_bytes())).collect())
}

/// The fields of an object. Without those that Rust cannot hold, such as a text that ends in half of
/// an emoji, as JavaScript cuts it: the others still count.
fn object(json: &[u8]) -> Value {
    let fields: BTreeMap<String, &RawValue> = serde_json::from_slice(json).unwrap_or_default();
    let value = |raw: &RawValue| serde_json::from_str::<Value>(raw.get()).ok();
    fields.into_iter().filter_map(|(name, raw)| Some((name, value(raw)?))).collect()
}

/// The list `batchItemFailures`. A mapping finds no list if it is in a text, in the `body` of an
/// HTTP response, or under a name in the case of another language: the messages are lost.
fn list(json: &str, depth: usize) -> Option<String> {
    let depth = depth.checked_sub(1)?;
    if json.starts_with('"') {
        let inner: String = serde_json::from_str(json).ok()?;
        let inner: &RawValue = serde_json::from_str(&inner).ok()?;
        return list(inner.get(), depth);
    }
    let members: BTreeMap<String, &RawValue> = serde_json::from_str(json).ok()?;
    let alike = || members.iter().find(|member| is_named(member.0, "batchItemFailures"));
    let found = members.get("batchItemFailures").or_else(|| alike().map(|member| member.1));
    match found {
        Some(found) => Some(found.get().to_owned()),
        None => list(members.get("body")?.get(), depth),
    }
}

fn identifier(item: &Value) -> Option<&str> {
    let fields = item.as_object()?;
    let alike = || fields.iter().find(|field| is_named(field.0, "itemIdentifier"));
    fields.get("itemIdentifier").or_else(|| alike().map(|field| field.1))?.as_str()
}

/// Whether it is this name: `BatchItemFailures`, `batch_item_failures`.
fn is_named(text: &str, name: &str) -> bool {
    fold(text) == fold(name)
}

/// The failure of an item: by its `class`, else by the rules in force, its `errorType`, its
/// `errorMessage` and its `reason`. A field of another type counts as absent.
fn failure(item: &Value) -> Failure {
    let text = |name: &str| item[name].as_str().unwrap_or_default();
    let (error_type, message, reason) = (text("errorType"), text("errorMessage"), text("reason"));
    let exception = Exception::new(error_type, message);
    let name = presentable(reason).or_else(|| presentable(exception.name()));
    let class = class_named(text("class"));
    if class.is_none() && !item["class"].is_null() {
        static SAID: Once = Once::new();
        warn_of_class(&item["class"], &SAID);
    }
    let failure = if let Some(class) = class {
        Failure::new(class, Evidence::Handler, name.unwrap_or("chosen by the function"))
            .with_text_of(&exception)
    } else if [error_type, message, reason] == [""; 3] {
        unknown("reported by the function")
    } else {
        let failure = Failure::from_exception(&exception.with_code(reason));
        match presentable(reason) {
            Some(reason) if failure.evidence() == Evidence::Unrecognised => unknown(reason),
            Some(_) | None => failure,
        }
    };
    // A rule's own delay comes first. A delay of zero is no wait.
    match seconds(&item["delaySeconds"]) {
        Some(delay)
            if failure.delay().is_none() && failure.class() != FailureClass::NonRetryable =>
        {
            failure.retry_after(delay)
        }
        Some(_) | None => failure,
    }
}

/// Says once that a class is none. Its text may be anything, so only a plain word is repeated.
fn warn_of_class(class: &Value, said: &Once) {
    let is_part = |byte: u8| byte.is_ascii_alphabetic() || b"-_".contains(&byte);
    let is_word = |text: &&str| (1..=MAX_WORD).contains(&text.len()) && text.bytes().all(is_part);
    let class = class.as_str().filter(is_word);
    said.call_once(|| {
        tracing::warn!(
            class,
            "a failed record's class is none of rate-limit, quota, temporary and non-retryable: it \
             counts as absent (said once)"
        );
    });
}

fn seconds(value: &Value) -> Option<Duration> {
    let seconds = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())?;
    let delay = Duration::try_from_secs_f64(seconds).ok()?;
    (!delay.is_zero() && delay <= LONGEST_DELAY).then_some(delay)
}

#[cfg(test)]
mod tests;
