//! Answers of functions. The files beside this are what awslambdaric and Powertools for Python print
//! for a batch of two records; paths are shortened.

use std::time::Duration;

use FailureClass::{NonRetryable, Quota, RateLimit, Temporary};
use requeue::FailureClass;
use requeue::classify::Rules;
use requeue_testkit::log::{self, Log};
use serde_json::json;

use super::*;

const TWO: [&str; 2] = ["a", "b"];

/// The class for each record, `-` for one that is done; or that of an unclear call.
fn told(payload: &str, is_error: bool, ids: &[&str]) -> String {
    let class = |result: &Result<(), Failure>| match result {
        Ok(()) => "-".to_owned(),
        Err(failure) => failure.class().to_string(),
    };
    match read(payload.as_bytes(), is_error, ids) {
        Bulk::Done => "done".to_owned(),
        Bulk::Each(results) => results.iter().map(class).collect::<Vec<_>>().join(" "),
        Bulk::Unclear(failure) => format!("unclear: {}", failure.class()),
    }
}

/// The only failure of a call of one record.
fn alone(payload: &str, is_error: bool) -> Failure {
    match read(payload.as_bytes(), is_error, &["a"]) {
        Bulk::Each(results) => match results.as_slice() {
            [Err(failure)] => failure.clone(),
            other => panic!("{payload}: {other:?}"),
        },
        other => panic!("{payload}: {other:?}"),
    }
}

fn item(fields: &str) -> String {
    format!(r#"{{"batchItemFailures": [{{"itemIdentifier": "a"{fields}}}]}}"#)
}

#[test]
fn a_response_says_which_records_failed() {
    let long = format!(r#"{{"batchItemFailures": [], "big": "{}"}}"#, "x".repeat(300_000));
    let bulky = item(&format!(r#", "errorMessage": "{}""#, "x".repeat(MAX_LIST)));
    for (payload, one, several) in [
        ("null", "done", "done"),
        ("", "done", "done"),
        (" \n", "done", "done"),
        ("{}", "done", "done"),
        (r#"{"batchItemFailures": []}"#, "done", "done"),
        (r#"{"batchItemFailures": null}"#, "done", "done"),
        (r#"{"statusCode": 500, "body": "{}"}"#, "done", "done"),
        (r#""OK""#, "done", "done"),
        ("[1, 2]", "done", "done"),
        ("7", "done", "done"),
        (&long, "done", "done"),
        (r#"{"batchItemFailures": [{"itemIdentifier": "a"}]}"#, "temporary", "temporary -"),
        (
            r#"{"batchItemFailures": [{"itemIdentifier": "a"}, {"itemIdentifier": "a"}]}"#,
            "temporary",
            "temporary -",
        ),
        (
            r#"{"other": {"x": [1]}, "batchItemFailures": [{"itemIdentifier": "a", "x": {}}], "y": 1}"#,
            "temporary",
            "temporary -",
        ),
        (
            r#"{"batchItemFailures": [{"itemIdentifier": "a", "reason": "\ud83d", "delaySeconds": 1e999}]}"#,
            "temporary",
            "temporary -",
        ),
        (r#"{"batchItemFailures": [{"itemIdentifier": "c"}]}"#, "temporary", "unclear: temporary"),
        (r#"{"batchItemFailures": [{"itemIdentifier": "A"}]}"#, "temporary", "unclear: temporary"),
        (r#"{"batchItemFailures": [{"itemIdentifier": ""}]}"#, "temporary", "unclear: temporary"),
        (r#"{"batchItemFailures": [{"itemIdentifier": null}]}"#, "temporary", "unclear: temporary"),
        (r#"{"batchItemFailures": [{"itemIdentifier": 7}]}"#, "temporary", "unclear: temporary"),
        (r#"{"batchItemFailures": [{"id": "a"}]}"#, "temporary", "unclear: temporary"),
        (r#"{"batchItemFailures": ["a"]}"#, "temporary", "unclear: temporary"),
        (r#"{"batchItemFailures": [null]}"#, "temporary", "unclear: temporary"),
        (
            r#"{"batchItemFailures": [{"itemIdentifier": "a"}, {"itemIdentifier": "c"}]}"#,
            "temporary",
            "unclear: temporary",
        ),
        (r#"{"batchItemFailures": {}}"#, "temporary", "unclear: temporary"),
        (r#"{"batchItemFailures": "a"}"#, "temporary", "unclear: temporary"),
        (r#"{"batchItemFailures": [{"itemIdentifier": "a"}"#, "temporary", "unclear: temporary"),
        ("OK", "temporary", "unclear: temporary"),
        ("<html>", "temporary", "unclear: temporary"),
        ("{} {}", "temporary", "unclear: temporary"),
        ("null null", "temporary", "unclear: temporary"),
        (&bulky, "temporary", "unclear: temporary"),
    ] {
        assert_eq!(told(payload, false, &["a"]), one, "{payload:.80}");
        assert_eq!(told(payload, false, &TWO), several, "{payload:.80}");
    }
    // Another shape of the same. A mapping would lose these messages.
    let texts = [r#"{"batchItemFailures":[{"itemIdentifier":"a"}]}"#, r#""{}""#, "{"];
    let [named, nothing, broken] = texts.map(|text| serde_json::to_string(text).expect("a text"));
    for (payload, one, several) in [
        (r#"{"BatchItemFailures": [{"ItemIdentifier": "a"}]}"#, "temporary", "temporary -"),
        (r#"{"batch_item_failures": [{"item_identifier": "a"}]}"#, "temporary", "temporary -"),
        (r#"{"batchItemFailures": [{"ItemIdentifier": "a"}]}"#, "temporary", "temporary -"),
        (r#"{"BatchItemFailures": null}"#, "done", "done"),
        (&named, "temporary", "temporary -"),
        (&format!(r#"{{"statusCode": 200, "body": {named}}}"#), "temporary", "temporary -"),
        (&format!(r#"{{"body": {}}}"#, texts[0]), "temporary", "temporary -"),
        (&nothing, "done", "done"),
        (&broken, "done", "done"),
        (r#"{"body": [1]}"#, "done", "done"),
        (r#"{"failures": [{"itemIdentifier": "a"}]}"#, "temporary", "unclear: temporary"),
        (r#"[{"item_identifier": "a"}]"#, "temporary", "unclear: temporary"),
        (
            r#"{"batchItemFailures": [], "BatchItemFailures": [{"itemIdentifier": "a"}]}"#,
            "done",
            "done",
        ),
    ] {
        assert_eq!(told(payload, false, &["a"]), one, "{payload}");
        assert_eq!(told(payload, false, &TWO), several, "{payload}");
    }
    let both = r#"{"batchItemFailures": [{"itemIdentifier": "b", "class": "QUOTA"}, {"itemIdentifier": "a"}]}"#;
    assert_eq!(told(both, false, &TWO), "temporary quota");
}

#[test]
fn every_record_of_a_large_call_may_be_listed() {
    let ids: Vec<String> =
        (0..10_000).map(|id| format!("059f36b4-87a3-44ab-83d2-6619{id:08}")).collect();
    let items: Vec<String> =
        ids.iter().map(|id| format!(r#"{{"itemIdentifier":"{id}"}}"#)).collect();
    let payload = format!(r#"{{"batchItemFailures":[{}]}}"#, items.join(","));
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let Bulk::Each(results) = read(payload.as_bytes(), false, &ids) else { panic!("unclear") };
    assert!(results.len() == 10_000 && results.iter().all(Result::is_err));
}

#[test]
fn an_item_says_class_delay_and_reason() {
    for (fields, class, delay, detail) in [
        ("", Temporary, None, "reported by the function"),
        (r#", "class": "RATE_LIMIT""#, RateLimit, None, "chosen by the function"),
        (
            r#", "class": "rate-limit", "delaySeconds": 30"#,
            RateLimit,
            Some(30),
            "chosen by the function",
        ),
        (r#", "class": "QUOTA_EXCEEDED", "reason": "day-is-full""#, Quota, None, "day-is-full"),
        (
            r#", "class": "NON_RETRYABLE", "delaySeconds": 30"#,
            NonRetryable,
            None,
            "chosen by the function",
        ),
        (
            r#", "class": "TEMPORARY", "errorType": "ValidationError""#,
            Temporary,
            None,
            "ValidationError",
        ),
        (
            r#", "class": "later", "errorType": "ReadTimeout""#,
            Temporary,
            None,
            "timed out: ReadTimeout",
        ),
        (r#", "class": 7, "delaySeconds": "45""#, Temporary, Some(45), "reported by the function"),
        (r#", "delaySeconds": 0"#, Temporary, None, "reported by the function"),
        (r#", "delaySeconds": -1"#, Temporary, None, "reported by the function"),
        (r#", "delaySeconds": 1e99"#, Temporary, None, "reported by the function"),
        (r#", "delaySeconds": [30]"#, Temporary, None, "reported by the function"),
        // Half of an emoji, as JavaScript cuts a text.
        (
            r#", "class": "NON_RETRYABLE", "errorMessage": "no \ud83d""#,
            NonRetryable,
            None,
            "chosen by the function",
        ),
        (r#", "reason": "rateLimitExceeded""#, RateLimit, None, "rate limit: rateLimitExceeded"),
        (r#", "reason": "bank-closed""#, Temporary, None, "bank-closed"),
        (r#", "reason": "Dear Ann, the bank is closed""#, Temporary, None, "unrecognised error"),
        (r#", "errorType": "com.example.BankClosed""#, Temporary, None, "unrecognised: BankClosed"),
        (
            r#", "errorType": "ClientError", "errorMessage": "An error occurred (ThrottlingException) when calling the PutItem operation: Ann""#,
            RateLimit,
            None,
            "throttled: ThrottlingException",
        ),
        (r#", "errorMessage": "429 Too Many Requests""#, RateLimit, None, "too many requests"),
        (
            r#", "errorType": {}, "errorMessage": 7, "reason": []"#,
            Temporary,
            None,
            "reported by the function",
        ),
    ] {
        let failure = alone(&item(fields), false);
        let told = (failure.class(), failure.delay(), failure.detail());
        assert_eq!(told, (class, delay.map(Duration::from_secs), detail), "{fields}");
    }
}

#[test]
fn the_page_shows_a_response_that_is_read_so() {
    let page = include_str!("../../../../../docs/concepts/classification.md");
    let (_, section) = page.split_once("\n## Say it from a Lambda function\n").expect("a section");
    let (payload, _) =
        section.split_once("```json\n").and_then(|rest| rest.1.split_once("```")).expect("a block");
    let Bulk::Each(results) = read(payload.as_bytes(), false, &["059f36b4-…", "2e1424d4-…"])
    else {
        panic!("unclear")
    };
    let details = results.iter().map(|result| result.as_ref().expect_err("it failed").detail());
    assert_eq!(details.collect::<Vec<_>>(), ["bank-closed", "timed out: ReadTimeout"]);
}

#[test]
fn a_class_that_is_none_is_warned_of_once_and_repeated_only_if_it_is_a_plain_word() {
    log::install();
    let [longest, too_long] = [32, 33].map(|length| "x".repeat(length));
    for (class, repeated) in [
        (json!("throttled"), Some("throttled")),
        (json!("RATE_LIMITED"), Some("RATE_LIMITED")),
        (json!(longest), Some(&*longest)),
        (json!(too_long), None),
        (json!(""), None),
        (json!("later for Ann"), None),
        (json!("ann7"), None),
        (json!("é"), None),
        (json!(7), None),
        (json!({ "ann": "ann" }), None),
    ] {
        let log = Log::default();
        let _listening = log.listen();
        let said = Once::new();
        warn_of_class(&class, &said);
        warn_of_class(&json!("other"), &said);
        let text = log.text();
        assert_eq!(text.matches("(said once)").count(), 1, "{text}");
        let word = text.split_once(" class=").map(|(_, rest)| rest.trim_end());
        assert_eq!(word, repeated.map(|word| format!("\"{word}\"")).as_deref(), "{class}: {text}");
    }
}

/// The warning of this process may have been made before.
#[test]
fn no_class_and_a_class_that_is_one_are_not_warned_of() {
    log::install();
    let log = Log::default();
    let _listening = log.listen();
    for fields in ["", r#", "class": null"#, r#", "class": "Rate Limit""#] {
        let _ = alone(&item(fields), false);
    }
    assert!(!log.text().contains("a failed record's class"), "{}", log.text());
}

#[test]
fn a_rule_comes_after_the_class_and_before_the_table() {
    let rules: Rules = r#"{"rules": [
        {"match": {"code": "BankClosed"}, "class": "RATE_LIMIT", "delaySeconds": 60},
        {"match": {"code": "bank-closed"}, "class": "QUOTA"},
        {"match": {"code": "ValidationError"}, "class": "TEMPORARY"}
    ]}"#
    .parse()
    .expect("rules");
    for (fields, class, delay) in [
        (r#", "errorType": "com.example.BankClosed", "delaySeconds": 5"#, RateLimit, Some(60)),
        (r#", "errorType": "BankClosed", "class": "QUOTA", "delaySeconds": 5"#, Quota, Some(5)),
        (r#", "reason": "bank-closed""#, Quota, None),
        (r#", "errorType": "ValidationError""#, Temporary, None),
    ] {
        let failure = rules.within(|| alone(&item(fields), false));
        let told = (failure.class(), failure.delay());
        assert_eq!(told, (class, delay.map(Duration::from_secs)), "{fields}");
    }
    let thrown = r#"{"errorType": "Function<Api::BankClosed>", "errorMessage": "x"}"#;
    assert_eq!(rules.within(|| alone(thrown, true)).class(), RateLimit);
}

/// The error, the class of a lone record, of a call of two, and the detail.
#[rustfmt::skip]
const THROWN: &[(&str, &str, &str, &str)] = &[
    // As awslambdaric prints it
    (r#"{"errorMessage": "x", "errorType": "ValueError", "requestId": "id-1", "stackTrace": ["  File \"/var/task/app.py\", line 32\n"]}"#, "temporary", "unclear: temporary", "unrecognised: ValueError"),
    // As aws-lambda-ric prints it
    (r#"{"errorType":"Error","errorMessage":"connect ECONNREFUSED 127.0.0.1:9","trace":["Error: connect ECONNREFUSED 127.0.0.1:9"]}"#, "temporary", "unclear: temporary", "service not reached"),
    (r#"{"errorType":"Runtime.UnhandledPromiseRejection","errorMessage":"TimeoutError: late","trace":[]}"#, "temporary", "unclear: temporary", "timed out: TimeoutError"),
    // Java
    (r#"{"errorMessage":"no id","errorType":"jakarta.validation.ValidationException","stackTrace":[]}"#, "non-retryable", "unclear: non-retryable", "refused: ValidationException"),
    // .NET
    (r#"{"errorType":"AggregateException","errorMessage":"One or more errors occurred.","cause":{"errorType":"HttpRequestException","errorMessage":"x","cause":{"errorType":"SocketException","errorMessage":"y"}},"causes":[]}"#, "temporary", "unclear: temporary", "service not reached: SocketException"),
    // A text that ends in half of an emoji
    (r#"{"errorType":"ValidationException","errorMessage":"no \ud83d","trace":["no \ud83d"]}"#, "non-retryable", "unclear: non-retryable", "refused: ValidationException"),
    // Ruby
    (r#"{"errorMessage":"Net::ReadTimeout","errorType":"Function<Net::ReadTimeout>","stackTrace":[]}"#, "temporary", "unclear: temporary", "timed out: ReadTimeout"),
    // Lambda
    (r#"{"errorType":"Sandbox.Timedout","errorMessage":"RequestId: 3f1b Error: Task timed out after 3.00 seconds"}"#, "temporary", "unclear: temporary", "the function timed out"),
    (r#"{"errorMessage":"2026-11-28T11:32:54.120Z 3f1b Task timed out after 3.00 seconds"}"#, "temporary", "unclear: temporary", "the function timed out"),
    (r#"{"errorType":"Runtime.ExitError","errorMessage":"RequestId: 3f1b Error: Runtime exited with error: exit status 1"}"#, "temporary", "unclear: temporary", "the function broke off: Runtime.ExitError"),
    (r#"{"errorType":"Runtime.ExitError","errorMessage":"RequestId: 3f1b Error: Runtime exited with error: signal: killed"}"#, "temporary", "unclear: temporary", "the function ran out of memory"),
    (r#"{"errorType":"Runtime.OutOfMemory","errorMessage":"RequestId: 3f1b Error: x"}"#, "temporary", "unclear: temporary", "the function ran out of memory"),
    (r#"{"errorMessage":"RequestId: 3f1b Process exited before completing request"}"#, "temporary", "unclear: temporary", "the function broke off: Runtime.ExitError"),
    (r#"{"errorType":"Extension.Crash","errorMessage":"RequestId: 3f1b Error: exit code 0"}"#, "temporary", "unclear: temporary", "the function broke off: Extension.Crash"),
    (r#"{"errorType":"Function.ResponseSizeTooLarge","errorMessage":"Response payload size exceeded maximum allowed payload size (6291556 bytes)."}"#, "temporary", "unclear: temporary", "the function broke off: Function.ResponseSizeTooLarge"),
    (r#"{"errorType":"Runtime.MarshalError","errorMessage":"Unable to marshal response: Object of type object is not JSON serializable"}"#, "temporary", "unclear: temporary", "the function broke off: Runtime.MarshalError"),
    // A broken deployment: no record was handled.
    (r#"{"errorMessage": "Unable to import module 'app': No module named 'orders'", "errorType": "Runtime.ImportModuleError", "requestId": "", "stackTrace": []}"#, "temporary", "temporary temporary", "the function did not start: Runtime.ImportModuleError"),
    (r#"{"errorType":"Runtime.UserCodeSyntaxError","errorMessage":"SyntaxError: Unexpected token 'export'","trace":[]}"#, "temporary", "temporary temporary", "the function did not start: Runtime.UserCodeSyntaxError"),
    (r#"{"errorType":"Runtime.CallbackHandlerDeprecated","errorMessage":"ERROR: AWS Lambda has removed support for callback-based function handlers","trace":[]}"#, "temporary", "temporary temporary", "the function did not start: Runtime.CallbackHandlerDeprecated"),
    (r#"{"errorMessage":"cannot load such file -- app","errorType":"Init<LoadError>"}"#, "temporary", "temporary temporary", "the function did not start: Init"),
    // Nothing to read
    ("", "temporary", "unclear: temporary", "unrecognised error"),
    ("no JSON", "temporary", "unclear: temporary", "unrecognised error"),
    ("[]", "temporary", "unclear: temporary", "unrecognised error"),
    (r#"{"errorType": 7, "errorMessage": {}}"#, "temporary", "unclear: temporary", "unrecognised error"),
];

#[test]
fn an_error_is_that_of_a_lone_record() {
    for (payload, one, several, detail) in THROWN {
        assert_eq!(told(payload, true, &["a"]), *one, "{payload}");
        assert_eq!(told(payload, true, &TWO), *several, "{payload}");
        assert_eq!(alone(payload, true).detail(), *detail, "{payload}");
    }
}

#[test]
fn powertools_says_that_all_failed_and_why() {
    for (payload, told_of_two, detail) in [
        (
            include_str!("tests/python-network.json"),
            "temporary temporary",
            "service not reached: ConnectionError",
        ),
        (
            include_str!("tests/python-throttle.json"),
            "rate-limit rate-limit",
            "throttled: ThrottlingException",
        ),
        (
            include_str!("tests/python-validation.json"),
            "non-retryable non-retryable",
            "refused: ValidationError",
        ),
        // Either of the two may be invalid, since they may have run at once.
        (include_str!("tests/python-mixed.json"), "temporary temporary", "timed out: TimeoutError"),
        (
            r#"{"errorType":"FullBatchFailureError","errorMessage":"All records failed processing. See individual errors below.","trace":[]}"#,
            "temporary temporary",
            "all records failed",
        ),
        (
            r#"{"errorType":"BatchProcessingException","errorMessage":"Entire batch of '2' record(s) failed processing. See inner exceptions for details. (Failed processing record: 'a'. See inner exception for details.) (Failed processing record: 'b'. See inner exception for details.)",
            "cause":{"errorType":"RecordProcessingException","errorMessage":"Failed processing record: 'b'. See inner exception for details.","cause":{"errorType":"ValidationException","errorMessage":"x"}},
            "causes":[{"errorType":"RecordProcessingException","errorMessage":"Failed processing record: 'b'. See inner exception for details.","cause":{"errorType":"ValidationException","errorMessage":"x"}},
                {"errorType":"RecordProcessingException","errorMessage":"Failed processing record: 'a'. See inner exception for details.","cause":{"errorType":"TimeoutException","errorMessage":"x"}}]}"#,
            "temporary non-retryable",
            "timed out: TimeoutException",
        ),
        // Its first record failed, and the second was not handled.
        (
            include_str!("tests/python-fifo.json"),
            "rate-limit temporary",
            "throttled: ThrottlingException",
        ),
        // A producer's words, in an error of the function itself.
        (
            r#"{"errorType":"ValueError","errorMessage":"All records failed processing. \n\nTraceback (most recent call last):\n  File\nBankClosed: x\n\nTraceback (most recent call last):\n  File\nBankClosed: y"}"#,
            "unclear: temporary",
            "unrecognised: ValueError",
        ),
        (
            r#"{"errorType":"UnexpectedBatchTypeError","errorMessage":"Unexpected batch type. Possible values are: SQS"}"#,
            "unclear: temporary",
            "broken deployment: UnexpectedBatchTypeError",
        ),
    ] {
        assert_eq!(told(payload, true, &TWO), told_of_two, "{payload:.60}");
        let first = match read(payload.as_bytes(), true, &TWO) {
            Bulk::Each(results) => results[0].clone().expect_err("it failed"),
            Bulk::Unclear(failure) => failure,
            Bulk::Done => panic!("it failed"),
        };
        assert_eq!(first.detail(), detail, "{payload:.60}");
    }
}

#[test]
fn a_lone_record_of_powertools_has_its_own_cause() {
    let payload = r#"{"errorType": "BatchProcessingError", "errorMessage": "All records failed processing. 1 individual errors logged separately below.\n\nTraceback (most recent call last):\n  File \"/var/task/app.py\", line 4, in handle\n    raise BankClosed(\"Ann: x\")\napp.BankClosed: Ann: x\n"}"#;
    let failure = alone(payload, true);
    assert_eq!((failure.class(), failure.detail()), (Temporary, "unrecognised: BankClosed"));
}

#[test]
fn no_output_of_the_function_gets_into_a_reason() {
    let secret = "Ann lives at 7 Elm Street";
    for payload in [
        item(&format!(
            r#", "reason": "{secret}", "errorType": "{secret}", "errorMessage": "{secret}""#
        )),
        item(&format!(r#", "class": "QUOTA", "reason": "{secret}", "errorType": "{secret}""#)),
        format!(r#"{{"errorType": "{secret}", "errorMessage": "{secret}: timed out"}}"#),
        format!(r#"{{"errorType": "Runtime.{secret}", "errorMessage": "{secret}"}}"#),
        format!(r#"{{"errorType": "Init<{secret}>", "errorMessage": "{secret}"}}"#),
        format!("\"{secret}"),
    ] {
        for is_error in [true, false] {
            let told = format!("{:?}", read(payload.as_bytes(), is_error, &["a"]));
            assert!(!told.contains("Ann") && !told.contains("Elm"), "{payload}: {told}");
        }
    }
}

#[test]
fn a_deep_or_cyclic_looking_error_is_survived() {
    let deep = (0..100).fold(r#"{"errorType":"TimeoutException"}"#.to_owned(), |inner, _| {
        format!(r#"{{"errorType":"AggregateException","errorMessage":"x","cause":{inner}}}"#)
    });
    assert_eq!(told(&deep, true, &["a"]), "temporary");
    assert_eq!(told(&"[".repeat(100_000), false, &TWO), "unclear: temporary");
}
