use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use requeue_testkit::emf::checked;
use serde_json::{Map, Value, json};

use super::metrics::lines as written;
use crate::delay::Wait;
use crate::disposition::{
    DeadLetterReason, Deferral, Disposition, IdempotencyNotes, ReleaseReason,
};
use crate::failure::FailureClass;
use crate::report::{Outcome, Report, Settlement};
use crate::settings::Metrics;

fn outcome(
    disposition: Disposition,
    class: Option<FailureClass>,
    settlement: Settlement,
) -> Outcome {
    let was_called = class.is_some() || disposition == Disposition::Complete;
    Outcome {
        message_id: Some("m-1".to_owned()),
        original_message_id: Some("m-0".to_owned()),
        queue: Some(Arc::new("arn:aws:sqs:eu-west-1:123456789012:orders".parse().expect("an ARN"))),
        retry_count: 0,
        hops: 0,
        receive_count: 1,
        is_stuck: false,
        class,
        detail: class.map(|_| "status 503".to_owned()),
        disposition,
        limit_key: None,
        retry: None,
        settlement,
        idempotency: IdempotencyNotes::default(),
        elapsed: was_called.then_some(Duration::from_millis(20)),
        joined_call: false,
        age: Duration::from_millis(1_500),
    }
}

fn completed(retry_count: u32, age: Duration) -> Outcome {
    Outcome { retry_count, age, ..outcome(Disposition::Complete, None, Settlement::Done) }
}

fn failed(class: FailureClass, secs: u64) -> Outcome {
    let wait = Wait::from(Duration::from_secs(secs), std::time::UNIX_EPOCH);
    let requeue = Disposition::Requeue { wait, hidden_if_unsent: Duration::from_secs(secs) };
    outcome(requeue, Some(class), Settlement::Moved)
}

/// The lines of a batch, each held against the format's specification.
fn lines(outcomes: Vec<Outcome>) -> Vec<Map<String, Value>> {
    let report = Report { outcomes, elapsed: Duration::from_millis(30) };
    let metrics = Metrics { level: "WARN".to_owned(), ..Metrics::of("billing") };
    let text = String::from_utf8(written(&report, &metrics, std::time::UNIX_EPOCH)).expect("UTF-8");
    assert!(text.is_empty() || text.ends_with('\n'), "{text}");
    text.lines().map(checked).collect()
}

/// The metrics of a line, without what the format needs.
fn metrics(line: &Map<String, Value>) -> Value {
    let rest = line.iter().filter(|(name, _)| {
        !["_aws", "level", "timestamp", "Service", "Queue", "Class"].contains(&name.as_str())
    });
    Value::Object(rest.map(|(name, value)| (name.clone(), value.clone())).collect())
}

fn dimensions(line: &Map<String, Value>) -> Value {
    line["_aws"]["CloudWatchMetrics"][0]["Dimensions"].clone()
}

#[test]
fn every_end_of_a_message_is_counted_under_its_name() {
    let uncalled = json!({ "Received": 1, "MessageAge": 1 });
    let with = |more: Value| {
        let mut all = uncalled.as_object().expect("an object").clone();
        all.extend(more.as_object().expect("an object").clone());
        Value::Object(all)
    };
    let temporary = Some(FailureClass::Temporary);
    let wait = Wait::from(Duration::from_secs(7), std::time::UNIX_EPOCH);
    let requeue = Disposition::Requeue { wait, hidden_if_unsent: Duration::from_secs(7) };
    let code = || "ServiceUnavailable".to_owned();
    let requeued = json!({ "HandlerDuration": 20, "Failed": 1, "FailedAttempt": 1, "Requeued": 1, "RetryDelay": 7 });
    let dead_lettered =
        json!({ "HandlerDuration": 20, "Failed": 1, "FailedAttempt": 1, "DeadLettered": 1 });
    let reason = DeadLetterReason::RetriesExhausted;
    let cases = [
        (outcome(requeue, temporary, Settlement::Moved), with(requeued.clone())),
        (outcome(requeue, temporary, Settlement::Kept), with(requeued.clone())),
        (
            outcome(requeue, temporary, Settlement::KeptNotDelayed { code: code() }),
            with(requeued.clone()),
        ),
        (
            outcome(requeue, temporary, Settlement::Unconfirmed { code: code() }),
            with({
                let mut more = requeued.clone();
                more["SendUnconfirmed"] = 1.into();
                more
            }),
        ),
        (
            outcome(requeue, temporary, Settlement::MovedNotDeleted { code: code() }),
            with({
                let mut more = requeued;
                more["DeleteFailed"] = 1.into();
                more
            }),
        ),
        (
            outcome(Disposition::DeadLetter(reason), temporary, Settlement::Kept),
            with(dead_lettered.clone()),
        ),
        (
            outcome(Disposition::DeadLetter(reason), temporary, Settlement::Moved),
            with(dead_lettered),
        ),
        (
            outcome(Disposition::Defer { reason: Deferral::Paused, wait }, None, Settlement::Moved),
            with(json!({ "Deferred": 1 })),
        ),
        (
            outcome(Disposition::Release(ReleaseReason::Annotated), None, Settlement::Kept),
            with(json!({ "Released": 1 })),
        ),
        (
            outcome(Disposition::Release(ReleaseReason::Abandoned), None, Settlement::Kept),
            with(json!({ "Released": 1, "Abandoned": 1 })),
        ),
        (
            completed(0, Duration::from_millis(1_500)),
            with(
                json!({ "Completed": 1, "HandlerDuration": 20, "RetryCount": 0, "TimeToSuccess": 1_500,
                         "TimeToSuccessFirstAttempt": 1_500 }),
            ),
        ),
        (
            completed(3, Duration::from_millis(1_500)),
            with(
                json!({ "Completed": 1, "HandlerDuration": 20, "RetryCount": 3, "TimeToSuccess": 1_500,
                         "TimeToSuccessAfterRetry": 1_500 }),
            ),
        ),
    ];
    for (outcome, expected) in cases {
        let what = format!("{:?}, {:?}", outcome.disposition, outcome.settlement);
        assert_eq!(metrics(&lines(vec![outcome])[0]), expected, "{what}");
    }
}

#[test]
fn failures_are_counted_for_their_class_as_well_and_nothing_else_is() {
    let quota = failed(FailureClass::Quota, 60);
    let batch = vec![
        failed(FailureClass::Temporary, 2),
        quota.clone(),
        failed(FailureClass::Temporary, 4),
        quota,
    ];
    let lines = lines([batch, vec![completed(0, Duration::ZERO)]].concat());
    let of = |class: &str| {
        lines.iter().find(|line| line.get("Class") == Some(&class.into())).expect("a line")
    };
    assert_eq!(lines.len(), 3);
    assert_eq!(dimensions(&lines[0]), json!([["Service", "Queue"]]));
    assert_eq!([&lines[0]["Failed"], &lines[0]["Requeued"], &lines[0]["Received"]], [4, 4, 5]);
    assert_eq!(dimensions(of("quota")), json!([["Service", "Queue", "Class"]]));
    assert_eq!(metrics(of("quota")), json!({ "Failed": 2, "Requeued": 2, "RetryDelay": [60, 60] }));
    assert_eq!(
        metrics(of("temporary")),
        json!({ "Failed": 2, "Requeued": 2, "RetryDelay": [2, 4] })
    );
}

#[test]
fn every_line_says_whose_it_is_and_has_the_level_and_the_timestamp_that_pass() {
    for line in lines(vec![failed(FailureClass::RateLimit, 9); 101]) {
        assert_eq!(
            [&line["Service"], &line["Queue"], &line["level"], &line["timestamp"]],
            ["billing", "orders", "WARN", "1970-01-01T00:00:00.000Z"]
        );
    }
}

#[test]
fn a_message_whose_event_was_done_is_completed_but_says_nothing_of_the_handler() {
    let notes = |is_already_done, is_key_missing, is_unconfirmed| IdempotencyNotes {
        is_already_done,
        is_key_missing,
        is_unconfirmed,
    };
    let done = Outcome {
        idempotency: notes(true, true, false),
        elapsed: None,
        ..completed(3, Duration::ZERO)
    };
    let line = &lines(vec![done])[0];
    let expected = json!({ "Received": 1, "Completed": 1, "AlreadyCompleted": 1, "IdempotencyKeyMissing": 1, "MessageAge": 0 });
    assert_eq!(metrics(line), expected);
    let unsure = Outcome { idempotency: notes(false, false, true), ..completed(0, Duration::ZERO) };
    let line = &lines(vec![unsure])[0];
    assert_eq!([&line["IdempotencyUnconfirmed"], &line["HandlerDuration"]], [1, 20]);
}

#[test]
fn records_without_a_queue_have_lines_of_their_own() {
    let lost = Outcome { queue: None, ..completed(0, Duration::ZERO) };
    let queues: Vec<Value> = lines(vec![lost, completed(0, Duration::ZERO)])
        .iter()
        .map(|line| line["Queue"].clone())
        .collect();
    assert_eq!(queues, ["orders", "unknown"]);
}

#[test]
fn failures_are_told_apart_by_attempt_and_first_attempts_from_later_ones() {
    let failed_after = |retry_count| Outcome { retry_count, ..failed(FailureClass::Temporary, 1) };
    let secs = Duration::from_secs;
    let outcomes = vec![
        failed_after(0),
        failed_after(0),
        failed_after(6),
        completed(0, secs(1)),
        completed(1, secs(60)),
        completed(2, secs(90)),
    ];
    let line = &lines(outcomes)[0];
    assert_eq!(line["FailedAttempt"], json!([1, 1, 7]));
    assert_eq!(line["TimeToSuccessFirstAttempt"], json!(1_000));
    assert_eq!(line["TimeToSuccessAfterRetry"], json!([60_000, 90_000]));
}

#[test]
fn a_message_that_no_handler_saw_is_no_failed_attempt() {
    let unreadable = Outcome { elapsed: None, ..failed(FailureClass::NonRetryable, 1) };
    let line = &lines(vec![unreadable, failed(FailureClass::Temporary, 1)])[0];
    assert_eq!([&line["Failed"], &line["FailedAttempt"]], [2, 1]);
}

#[test]
fn a_batch_without_messages_writes_nothing() {
    assert!(lines(Vec::new()).is_empty());
}

#[test]
fn nothing_that_may_be_secret_or_that_tells_messages_apart_is_written() {
    let text = format!(
        "{:?}",
        lines(vec![failed(FailureClass::Temporary, 1), completed(0, Duration::ZERO)])
    );
    for word in ["m-1", "m-0", "status 503"] {
        assert!(!text.contains(word), "{word} in {text}");
    }
}

proptest! {
    #[test]
    fn however_many_messages_there_are_every_value_is_written_once(
        ages in prop::collection::vec(0_u64..=1_300_000_000, 1..2_000),
    ) {
        let batch = ages.iter().map(|&age| completed(0, Duration::from_millis(age))).collect();
        let lines = lines(batch);
        prop_assert_eq!(lines.len(), ages.len().div_ceil(100));
        let of = |name: &str| -> Vec<u64> {
            let values = lines.iter().filter_map(|line| line.get(name));
            values
                .flat_map(|value| match value {
                    Value::Array(several) => several.clone(),
                    only => vec![only.clone()],
                })
                .map(|value| value.as_u64().expect("a number"))
                .collect()
        };
        prop_assert_eq!(of("TimeToSuccess"), ages.clone());
        prop_assert_eq!(of("Completed"), vec![ages.len() as u64]);
    }
}

#[test]
fn an_id_in_a_log_line_is_short_and_printable() {
    assert_eq!(
        super::bounded("0b6f1bd4\u{1b}[2J\u{202e}\n"),
        "0b6f1bd4\u{FFFD}[2J\u{FFFD}\u{FFFD}"
    );
    assert_eq!(super::bounded(&"é".repeat(80)).len(), 100);
}

#[test]
fn a_batch_that_had_time_and_no_thread_is_told_from_a_late_one() {
    let wait = Wait::from(Duration::from_secs(1), std::time::UNIX_EPOCH);
    let deferred = |why| outcome(Disposition::Defer { reason: why, wait }, None, Settlement::Moved);
    let no_time = || deferred(Deferral::NoTimeLeft);
    for (outcomes, millis, expected) in [
        (vec![no_time(), no_time()], 1_000, true),
        (vec![no_time(), no_time()], 999, false),
        (vec![no_time(), completed(0, Duration::ZERO)], 6_000, false),
        (vec![deferred(Deferral::Paused)], 6_000, false),
        (vec![], 6_000, false),
    ] {
        let report = Report { outcomes, elapsed: Duration::from_millis(millis) };
        assert_eq!(super::has_no_thread(&report), expected, "{report:?}");
    }
}
