//! What a function's answer means for each record.

use std::time::Duration;

use requeue::{Bulk, Failure};
use serde_json::Value;

/// The result for each record of a call, `ids` being the `messageId`s as the function saw them, in
/// order.
pub(crate) fn read(payload: &[u8], is_error: bool, ids: &[&str]) -> Bulk<Failure> {
    let Ok(answer) = serde_json::from_slice::<Value>(payload) else {
        return Bulk::Unclear(Failure::temporary("the response is no JSON"));
    };
    if is_error {
        let text = |name: &str| answer[name].as_str().unwrap_or_default();
        let words = format!("{}: {}", text("errorType"), text("errorMessage"));
        return Bulk::Unclear(if words.starts_with("ThrottlingException") {
            Failure::rate_limit(words)
        } else {
            Failure::temporary(words)
        });
    }
    let failures = match answer.get("batchItemFailures") {
        None | Some(Value::Null) => return Bulk::Done,
        Some(Value::Array(failures)) => failures,
        Some(_) => return Bulk::Unclear(Failure::temporary("batchItemFailures is no list")),
    };
    let mut results: Vec<Result<(), Failure>> = vec![Ok(()); ids.len()];
    for item in failures {
        let at = ids.iter().position(|id| item["itemIdentifier"].as_str() == Some(id));
        let Some(at) = at else {
            return Bulk::Unclear(Failure::temporary("batchItemFailures names an unknown message"));
        };
        results[at] = Err(failure(item));
    }
    Bulk::Each(results)
}

fn failure(item: &Value) -> Failure {
    let reason = item["reason"].as_str().unwrap_or("named in batchItemFailures").to_owned();
    let failure = match item["class"].as_str() {
        Some("RATE_LIMIT") => Failure::rate_limit(reason),
        Some("QUOTA") => Failure::quota(reason),
        Some("NON_RETRYABLE") => Failure::non_retryable(reason),
        _ => Failure::temporary(reason),
    };
    match item["delaySeconds"].as_u64() {
        Some(delay) => failure.retry_after(Duration::from_secs(delay)),
        None => failure,
    }
}
