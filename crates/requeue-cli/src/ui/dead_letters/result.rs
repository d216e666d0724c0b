//! The result of a redrive or a discard for the page: its counts by class and failure, and the
//! messages that stayed, with the reason of each.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::dlq::outcome::{JobEnd, Outcome};
use crate::ui::snapshot::Snapshot;

/// Messages that a result lists one by one. The server keeps several results in memory.
const MAX_LISTED: usize = 500;
/// Reasons that a result counts.
const MAX_REASONS: usize = 10;
/// The reason of a message that the job did not receive.
const NOT_RECEIVED: &str = "not received: another reader holds it, SQS's response with it was \
                            lost, or it is no longer in the queue; look again after its \
                            visibility timeout";

#[derive(Clone, Copy, Default)]
struct KindCounts {
    done: usize,
    left: usize,
    /// Of those that are done: the messages that an earlier job copied, and this one only deleted.
    copied_before: usize,
    /// Of those that are left: the messages whose copy SQS did not confirm.
    in_doubt: usize,
}

/// The result for these messages, which the user chose. `is_stopped`: somebody stopped the job.
pub(super) fn result_json(
    end: &JobEnd,
    snapshot: &Snapshot,
    messages: &[usize],
    is_stopped: bool,
) -> Value {
    let outcome_of = |at: usize| end.outcomes.by_id.get(&snapshot.letters[at].id);
    let mut kinds: BTreeMap<(&'static str, Option<&str>), KindCounts> = BTreeMap::new();
    for at in messages {
        let counts = kinds.entry(snapshot.kind(*at)).or_default();
        let outcome = outcome_of(*at);
        let is_done = outcome.is_some_and(|outcome| outcome.is_done);
        *(if is_done { &mut counts.done } else { &mut counts.left }) += 1;
        let was_copied = |outcome: &Outcome| outcome.is_copy && outcome.note.is_none();
        counts.copied_before += usize::from(outcome.is_some_and(was_copied));
        counts.in_doubt += usize::from(outcome.is_some_and(|outcome| outcome.is_in_doubt));
    }
    let (mut listed, unreached): (Vec<&usize>, Vec<&usize>) =
        messages.iter().partition(|at| outcome_of(**at).is_some());
    // The reasons of SQS come first: they differ, and the others are all the same.
    listed.retain(|at| outcome_of(**at).is_some_and(|outcome| outcome.note.is_some()));
    // Those that a stop or an error spared are counted with the others that stayed.
    if !is_stopped && end.outcomes.error.is_none() {
        listed.extend(unreached);
    }
    let why = |at: usize| {
        outcome_of(at).and_then(|outcome| outcome.note.as_deref()).unwrap_or(NOT_RECEIVED)
    };
    let line = |at: &&usize| {
        let (class, code) = snapshot.kind(**at);
        let message_id = &snapshot.letters[**at].id;
        json!({ "messageId": message_id, "class": class, "code": code, "why": why(**at) })
    };
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for at in &listed {
        *reasons.entry(why(**at)).or_default() += 1;
    }
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, count)| Reverse(*count));
    let reason = |(why, count)| json!({ "why": why, "count": count });
    let kind = |((class, code), counts): (&(&str, Option<&str>), &KindCounts)| {
        json!({
            "class": class,
            "code": code,
            "done": counts.done,
            "left": counts.left,
            "copiedBefore": counts.copied_before,
            "inDoubt": counts.in_doubt,
        })
    };
    json!({
        "lines": end.lines,
        "isComplete": end.is_complete,
        "isStopped": is_stopped,
        "error": end.outcomes.error.as_ref().map(ToString::to_string),
        "done": kinds.values().map(|counts| counts.done).sum::<usize>(),
        "left": kinds.values().map(|counts| counts.left).sum::<usize>(),
        "kinds": kinds.iter().map(kind).collect::<Value>(),
        // Of the messages that are or would be listed.
        "reasons": reasons.into_iter().take(MAX_REASONS).map(reason).collect::<Value>(),
        "listed": listed.iter().take(MAX_LISTED).map(line).collect::<Value>(),
        "notListed": listed.len().saturating_sub(MAX_LISTED),
    })
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use requeue::Record;
    use tokio::time::Instant;

    use super::*;
    use crate::dlq::letter::Letter;
    use crate::dlq::outcome::Outcomes;

    #[test]
    fn what_may_be_in_both_queues_is_told_apart_from_what_stayed() {
        let letter = |id: &str| {
            let (id, body) = (Some(id.to_owned()), Some("{}".to_owned()));
            let mut record = Record::default();
            (record.message_id, record.receipt_handle, record.body) = (id.clone(), id, body);
            Letter::new(record, Instant::now()).expect("it has all")
        };
        let letters = ["done", "lost", "refused", "unreached"].map(letter).into();
        let snapshot = Snapshot::new(1, SystemTime::UNIX_EPOCH, letters, None);
        let result = |error: Option<&str>| {
            let outcomes = [
                ("done", Outcome::done()),
                ("lost", Outcome::in_doubt("NoConnection; the copy may exist")),
                ("refused", Outcome::left("InternalError")),
            ];
            let by_id = outcomes.map(|(id, outcome)| (id.to_owned(), outcome)).into();
            let outcomes = Outcomes { by_id, error: error.map(Into::into) };
            let end = JobEnd { lines: Vec::new(), is_complete: false, outcomes };
            result_json(&end, &snapshot, &[0, 1, 2, 3], false)
        };
        let kind = json!({ "class": "unknown", "code": null, "done": 1, "left": 3, "copiedBefore": 0, "inDoubt": 1 });
        for (error, listed) in [(None, 3), (Some("SQS is gone"), 2)] {
            let result = result(error);
            assert_eq!(result["kinds"], json!([kind]), "{error:?}");
            let reasons = result["listed"].as_array().map(Vec::len);
            assert_eq!(reasons, Some(listed), "those that an error spared have no reason");
            let counted = result["reasons"].as_array().map(Vec::len);
            assert_eq!(counted, Some(listed), "each has its own reason");
        }
    }
}
