//! What a function's answer means for each message of its call.

use requeue::{Bulk, Failure};
use serde_json::Value;

/// The result for each record of a call, `ids` being the `messageId`s as the function saw them, in
/// order.
pub(crate) fn read(payload: &[u8], is_error: bool, ids: &[&str]) -> Bulk<Failure> {
    let Some(answer) = serde_json::from_slice::<Value>(payload).ok().filter(|_| !is_error) else {
        return Bulk::Unclear(Failure::temporary("the function failed"));
    };
    let failed: Vec<&str> = answer["batchItemFailures"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|item| item["itemIdentifier"].as_str().unwrap_or_default())
        .collect();
    if failed.iter().any(|id| !ids.contains(id)) {
        return Bulk::Unclear(Failure::temporary("the function named an unknown message"));
    }
    let result = |id| {
        let is_failed = failed.contains(id);
        if is_failed {
            Err(Failure::temporary("the function reported it as failed"))
        } else {
            Ok(())
        }
    };
    ids.iter().map(result).collect()
}
