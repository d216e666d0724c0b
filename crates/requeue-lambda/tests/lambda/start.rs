//! The start of a function: bad settings end it with a message that names them all; a foreign event
//! fails with the remedy.

use std::process::Output;

use serde_json::json;
use tokio::process::Command;

use crate::runtime_api::Ended;
use crate::stage::{Stage, TIMEOUT, UNPROTECTED, failed};

#[tokio::test]
async fn bad_settings_fail_at_start_with_every_problem_named() {
    let stage = Stage::new().await;
    let settings = [
        ("REQUEUE_CONCURRENCY", "0"),
        ("REQUEUE_TIMEOUT_SECONDS", "soon"),
        ("REQUEUE_WARP", "never"),
    ];
    let (code, output) = stage.requeue_lambda(&settings).await.ended().await;
    assert_eq!(code, Some(1), "{output}");
    assert!(output.contains("Error: 3 settings are invalid:\n"), "{output}");
    for named in ["REQUEUE_CONCURRENCY", "REQUEUE_TIMEOUT_SECONDS", "did you mean REQUEUE_WRAP?"] {
        assert!(output.contains(named), "{named} is missing in: {output}");
    }
}

#[tokio::test]
async fn help_and_version_are_printed_without_settings_and_a_runtime() {
    for (option, words) in [
        ("--help", "requeue serve --function PATH"),
        ("-h", "runs in AWS Lambda"),
        ("--version", concat!("requeue-lambda ", env!("CARGO_PKG_VERSION"), "\n")),
    ] {
        let mut program = Command::new(env!("CARGO_BIN_EXE_requeue-lambda"));
        let Output { status, stdout, .. } =
            program.arg(option).env_clear().output().await.expect("it starts");
        let printed = String::from_utf8(stdout).expect("UTF-8");
        assert!(status.success() && printed.contains(words), "{option}: {printed}");
        assert_eq!(option == "--version", printed == words, "{printed}");
    }
}

/// At WARN, Lambda drops the text that a program prints at its end, since plain text counts as
/// INFO.
#[tokio::test]
async fn an_error_of_the_start_is_a_line_of_the_level_error() {
    let stage = Stage::new().await;
    let settings = [("AWS_LAMBDA_LOG_LEVEL", "ERROR"), ("REQUEUE_CONCURRENCY", "0")];
    for function in [stage.requeue_lambda(&settings).await, stage.trouble(&settings).await] {
        let (_, output) = function.ended().await;
        let line = output.lines().next().unwrap_or_default();
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(
            [&line["level"], &line["fields"]["message"]],
            ["ERROR", "the function cannot start"]
        );
        let error = line["fields"]["error"].as_str().unwrap_or_default();
        assert!(error.contains("REQUEUE_CONCURRENCY is `0`: must be "), "{line}");
        assert!(line["timestamp"].is_string(), "{line}");
    }
}

#[tokio::test]
async fn what_is_missing_wrong_or_without_effect_fails_at_start() {
    let stage = Stage::new().await;
    let url = stage.dead_letter_url();
    let rows: [(&[(&str, &str)], &str); 6] = [
        (&[("REQUEUE_TARGET_URL", "")], "REQUEUE_TARGET_URL is missing"),
        (&[("REQUEUE_TARGET_URL", "http://example.com/")], "REQUEUE_TARGET_URL is invalid"),
        (
            &[("REQUEUE_STRATEGY", "fast")],
            "REQUEUE_STRATEGY is `fast`: must be one of copy, visibility",
        ),
        (&[("REQUEUE_DEAD_LETTER", "direct")], "REQUEUE_DEAD_LETTER_QUEUE_URL is missing"),
        (&[("REQUEUE_DEAD_LETTER_QUEUE_URL", &url)], "REQUEUE_DEAD_LETTER_QUEUE_URL has no effect"),
        (
            &[("REQUEUE_DEAD_LETTER", "direct"), ("REQUEUE_DEAD_LETTER_QUEUE_URL", "orders-dlq")],
            "REQUEUE_DEAD_LETTER_QUEUE_URL is `orders-dlq`: not the URL of an SQS queue",
        ),
    ];
    for (settings, named) in rows {
        let (code, output) = stage.requeue_lambda(settings).await.ended().await;
        assert_eq!(code, Some(1), "{output}");
        assert!(output.contains(&format!("Error: 1 setting is invalid:\n  {named}")), "{output}");
    }
}

#[tokio::test]
async fn started_by_hand_it_says_how_to_try_it() {
    let settings = [("AWS_ACCESS_KEY_ID", "test"), ("REQUEUE_TARGET_URL", "http://127.0.0.1:1/")];
    let by_hand =
        Command::new(env!("CARGO_BIN_EXE_requeue-lambda")).env_clear().envs(settings).output();
    let Output { status, stderr, .. } = by_hand.await.unwrap();
    let said = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(1), "{said}");
    let remedy = "AWS_LAMBDA_RUNTIME_API is not set: Lambda starts this program; to try it, run \
                  `requeue serve --function PATH` or `cargo lambda watch`. Delivery to a URL as by \
                  `requeue-lambda` can also be tried by `requeue invoke EVENT.json`";
    assert!(said.contains(remedy), "{said}");
}

#[tokio::test]
async fn a_link_local_target_and_the_runtime_api_are_refused_unless_they_are_allowed() {
    let stage = Stage::new().await;
    // As AWS_LAMBDA_RUNTIME_API it overrides the real address, so the function never gets an event.
    let api = ("AWS_LAMBDA_RUNTIME_API", "127.0.0.1:1");
    let allowed = ("REQUEUE_ALLOW_LINK_LOCAL", "true");
    let link_local = "the target URL must not name a link-local address";
    for (url, refused) in [
        ("https://169.254.169.254/latest/meta-data/?canary", link_local),
        ("https://[::ffff:169.254.169.254]/canary", link_local),
        ("https://[fe80::1]/canary", link_local),
        (
            "http://127.0.0.1:1/2018-06-01/runtime/invocation/next?canary",
            "the target URL must not name Lambda's Runtime API",
        ),
        ("http://LOCALHOST:1/canary", "the target URL must not name Lambda's Runtime API"),
    ] {
        let (code, output) =
            stage.requeue_lambda(&[("REQUEUE_TARGET_URL", url), api]).await.ended().await;
        assert_eq!(code, Some(1), "{output}");
        assert!(
            output.contains(&format!(
                "Error: 1 setting is invalid:\n  REQUEUE_TARGET_URL is invalid: {refused}"
            )),
            "{output}"
        );
        assert!(
            output.contains("; set REQUEUE_ALLOW_LINK_LOCAL=true to allow it")
                && !output.contains("canary"),
            "{output}"
        );

        let mut function = stage.requeue_lambda(&[("REQUEUE_TARGET_URL", url), api, allowed]).await;
        // It continues to ask for work, but no server listens at that address.
        let ended = function.invoke(&json!({}), TIMEOUT).await;
        assert_eq!(ended, Ended::Crashed);
        let output = function.stop().await;
        assert!(!output.contains("REQUEUE_TARGET_URL"), "{output}");
    }
}

#[tokio::test]
async fn a_proxy_of_another_kind_is_refused_where_it_would_be_asked() {
    let stage = Stage::new().await;
    let proxy = ("HTTPS_PROXY", "socks5://user:s3cret@127.0.0.1:1080");
    for (url, exceptions, is_refused) in [
        ("https://example.com/", "", true),
        ("https://example.com/", "example.org", true),
        ("https://127.0.0.1:1/", "127.0.0.0/8", false),
        ("http://127.0.0.1:1/", "", false),
    ] {
        let settings = [("REQUEUE_TARGET_URL", url), proxy, ("NO_PROXY", exceptions)];
        if is_refused {
            let (code, output) = stage.requeue_lambda(&settings).await.ended().await;
            assert_eq!(code, Some(1), "{output}");
            assert!(
                output.contains(
                    "HTTPS_PROXY is not the URL of an HTTP proxy: set it to http://host:port"
                ),
                "{output}"
            );
            assert!(!output.contains("s3cret"), "{output}");
        } else {
            let mut function = stage.requeue_lambda(&settings).await;
            stage.send("{}").await;
            stage.invoke(&mut function, TIMEOUT).await;
            assert!(function.stop().await.contains("connection refused"), "{url}");
        }
    }
}

#[tokio::test]
async fn a_secret_is_refused_without_being_told() {
    let stage = Stage::new().await;
    let settings = [
        ("REQUEUE_TARGET_URL", "https://s3cret:s3cret@example.com/s3cret?s3cret"),
        ("REQUEUE_HEADERS", r#"{"Host": "s3cret", "X-Key": "s3cret\n", "X-Two": ["s3cret"]}"#),
        ("REQUEUE_SIGNING_SECRET", "s3cret whsec_s3cret whsec_s3crets3"),
        ("REQUEUE_CLIENT_CERTIFICATE", "s3cret"),
        (
            "REQUEUE_CLIENT_KEY",
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\ns3cret\n-----END ENCRYPTED PRIVATE KEY-----",
        ),
    ];
    let (code, output) = stage.requeue_lambda(&settings).await.ended().await;
    assert_eq!(code, Some(1), "{output}");
    assert!(output.contains("Error: 8 settings are invalid:\n"), "{output}");
    assert!(!output.contains("s3cret"), "{output}");

    for broken in ["s3cret", r#"{"X-Key": "s3cret", s3cret"#, r#"["s3cret"]"#] {
        let (code, output) =
            stage.requeue_lambda(&[("REQUEUE_HEADERS", broken)]).await.ended().await;
        assert_eq!(code, Some(1), "{output}");
        assert!(!output.contains("s3cret"), "{output}");
    }
}

#[tokio::test]
async fn settings_that_an_own_handler_does_not_read_are_named_at_start_without_their_values() {
    const WARNING: &str = "these settings have no effect";
    let stage = Stage::new().await;
    let settings = [
        ("REQUEUE_SCOPE", "nonsense"),
        ("REQUEUE_HEADERS", r#"{"X-Key": "s3cret"}"#),
        ("REQUEUE_METHOD", ""),
        ("REQUEUE_CONCURRENCY", "2"),
    ];
    for (settings, expected) in [(&settings[..], 1), (&settings[2..], 0)] {
        let mut function = stage.trouble(settings).await;
        stage.send(r#"{"do":"ok"}"#).await;
        stage.invoke(&mut function, TIMEOUT).await;
        let log = function.stop().await;
        let lines: Vec<&str> = log.lines().filter(|line| line.contains(WARNING)).collect();
        assert_eq!(lines.len(), expected, "{log}");
        assert!(lines.iter().all(|line| line.contains("REQUEUE_HEADERS, REQUEUE_SCOPE")), "{log}");
        assert!(!log.contains("nonsense") && !log.contains("s3cret"), "{log}");
    }
    let mut function = stage.requeue_lambda(&settings).await;
    stage.send(r#"{"answer":"ok"}"#).await;
    stage.invoke(&mut function, TIMEOUT).await;
    assert!(!function.stop().await.contains(WARNING));
}

/// Lambda sets these while the log format is Text, its default.
#[tokio::test]
async fn without_a_level_the_log_says_what_became_of_a_message() {
    let stage = Stage::new().await;
    for format in ["Text", "JSON"] {
        let mut function = stage.requeue_lambda(&[("AWS_LAMBDA_LOG_FORMAT", format)]).await;
        let id = stage.send(r#"{"answer":"invalid"}"#).await;
        stage.invoke(&mut function, TIMEOUT).await;
        let log = function.stop().await;
        assert!(log.contains(&id) && log.contains("status 400"), "{format}: {log}");
    }
}

#[tokio::test]
async fn an_event_that_is_none_of_sqs_fails_with_the_remedy() {
    let stage = Stage::new().await;
    let mut function = stage.requeue_lambda(&[]).await;
    let Ended::Error(error) = function.invoke(&json!({"key1": "value1"}), TIMEOUT).await else {
        panic!("an error")
    };
    assert_eq!(error["errorType"], "Requeue.NoRecords");
    assert!(error["errorMessage"].as_str().unwrap().contains("event source mapping"), "{error}");
    let sns = json!({"Records": [{"EventSource": "aws:sns", "Sns": {"Message": "{}"}}]});
    let Ended::Error(error) = function.invoke(&sns, TIMEOUT).await else { panic!("an error") };
    assert_eq!(error["errorType"], "Requeue.NoRecords");
    let text = error["errorMessage"].as_str().unwrap();
    assert!(text.starts_with("the event is one of SNS, not of SQS"), "{error}");
    let answered = function.invoke(&json!({"Records": []}), TIMEOUT).await;
    assert_eq!(answered, Ended::Response(json!({"batchItemFailures": []})));
    let log = function.stop().await;
    assert!(!log.contains("dead-letter") && !log.contains("whole batch"), "{log}");
}

#[tokio::test]
async fn the_bare_list_of_a_pipe_is_a_batch() {
    let stage = Stage::new().await;
    let mut function = stage.requeue_lambda(&[UNPROTECTED]).await;
    stage.send(r#"{"answer":"ok"}"#).await;
    let refused = stage.send(r#"{"answer":"invalid"}"#).await;
    let batch = stage.receive().await;
    let event = batch.event(&stage.queue)["Records"].take();
    let ended = function.invoke(&event, TIMEOUT).await;
    assert_eq!(failed(&ended), [refused]);
    assert_eq!(stage.target.requests().len(), 2);
}

#[tokio::test]
async fn an_invocation_that_the_runtime_cannot_read_ends_the_process_with_the_reason() {
    const DEADLINE: &str = "lambda-runtime-deadline-ms";
    let stage = Stage::new().await;
    for (name, value, reason) in [
        (DEADLINE, None, "without the header lambda-runtime-deadline-ms"),
        (DEADLINE, Some(""), "whose header lambda-runtime-deadline-ms is no whole number"),
        (DEADLINE, Some("soon"), "whose header lambda-runtime-deadline-ms is no whole number"),
        ("lambda-runtime-aws-request-id", None, "without the header lambda-runtime-aws-request-id"),
        ("lambda-runtime-client-context", Some("5"), "whose client context"),
        ("lambda-runtime-cognito-identity", Some("{"), "whose client context or Cognito identity"),
    ] {
        let mut function = stage.requeue_lambda(&[]).await;
        let event = json!({"Records": []});
        let _end = function.begin_changed(&event, TIMEOUT, Some((name, value)));
        let (code, log) = function.ended().await;
        assert!(log.contains(reason), "{name}: {log}");
        assert_ne!(code, Some(0), "{log}");
    }
}

#[tokio::test]
async fn an_invocation_without_a_header_that_requeue_does_not_need_is_handled() {
    let stage = Stage::new().await;
    let mut function = stage.requeue_lambda(&[]).await;
    for (name, value) in [
        ("lambda-runtime-invoked-function-arn", None),
        ("lambda-runtime-trace-id", None),
        ("lambda-runtime-trace-id", Some("garbled")),
        ("lambda-runtime-deadline-ms", Some("0")),
        ("lambda-runtime-client-context", Some("")),
    ] {
        stage.send(r#"{"answer":"ok"}"#).await;
        let batch = stage.receive().await;
        let event = batch.event(&stage.queue);
        let end = function.begin_changed(&event, TIMEOUT, Some((name, value)));
        let ended = tokio::time::timeout(TIMEOUT, end).await.unwrap().unwrap();
        stage.acknowledge(&batch, &ended);
        assert_eq!(ended, Ended::Response(json!({"batchItemFailures": []})), "{name}");
    }
    assert_eq!(stage.target.requests().len(), 5);
}
