//! `requeue demo` and `requeue invoke`, as the documents show them.

use std::fs;

use requeue_testkit::repository;
use serde_json::{Value, json};

use crate::run::{file, requeue, requeue_reading, requeue_with};

#[test]
fn the_demo_loses_nothing_and_repeats_itself() {
    let run = |seed: &str| requeue(&["demo", "--messages", "40", "--seed", seed]);
    let first = run("1");
    assert_eq!(first.status, 0, "{}", first.stderr);
    let last = first.stdout.lines().last().unwrap();
    assert!(last.starts_with("40 sent = "), "{last}");
    assert!(last.contains(" + 0 left in the queue; 0 lost, 0 done twice; "), "{last}");
    assert_eq!(first.stdout, run("1").stdout, "the same seed gives the same run");
    assert_eq!(run("2").status, 0);
    let json = requeue(&["demo", "--messages", "40", "--json"]);
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((&json["sent"], &json["lost"], &json["left"]), (&json!(40), &json!(0), &json!(0)));
    let sent: u64 =
        json["responses"].as_array().unwrap().iter().filter_map(|of| of["sent"].as_u64()).sum();
    assert_eq!(sent, 40, "{json}");
}

#[test]
fn the_demo_of_a_rate_limit_calls_a_target_at_that_rate_in_real_time() {
    let said = requeue(&["demo", "--rate", "--messages", "30"]).succeeded();
    let lines: Vec<&str> = said.lines().collect();
    let [first, .., calls, waits] = lines[..] else { panic!("{said}") };
    assert!(first.contains("8 execution environments share a limit of 20 calls"), "{said}");
    assert!(
        waits.starts_with("the other tenants' ") && waits.contains(" waited at most "),
        "{said}"
    );
    let numbers: Vec<f64> = calls
        .split(|c: char| !c.is_ascii_digit() && c != '.')
        .filter_map(|number| number.parse().ok())
        .collect();
    let [calls, messages, seconds, most, ..] = numbers[..] else { panic!("{said}") };
    assert!(calls == messages && (30.0..40.0).contains(&calls), "{said}");
    // A busy machine calls late, and then the next call comes sooner after it.
    assert!((1.3..10.0).contains(&seconds) && most <= 24.0, "{said}");
}

/// How many messages of each event remain with SQS, by the documents' word on the file.
const REMAINING: [(&str, usize); 15] = [
    ("article-in-flight.json", 0),
    ("attributes.json", 0),
    ("every-class.json", 1),
    ("exhausted.json", 2),
    ("fair-queue.json", 0),
    ("fifo.json", 2),
    ("later-version.json", 1),
    ("malformed.json", 5),
    ("mixed-batch.json", 1),
    ("one-mebibyte.json", 1),
    ("redriven.json", 0),
    ("s3-pointer.json", 0),
    ("single.json", 0),
    ("sns-wrapped.json", 0),
    ("text-bodies.json", 0),
];

#[test]
fn a_rule_of_the_policy_decides_what_an_answer_of_the_target_means() {
    for (policy, class, shown) in [
        ("{}", "rate-limit", "status 429"),
        (
            r#"{"rules": [{"match": {"status": 429}, "class": "NON_RETRYABLE"}]}"#,
            "non-retryable",
            "status 429, by rules[0]",
        ),
        (
            r#"{"maxRetryAfterSeconds": 2}"#,
            "rate-limit",
            "2 s, cut from 5 s by maxRetryAfterSeconds",
        ),
    ] {
        let arguments = ["invoke", "events/single.json", "--sample", "0"];
        let run = requeue_with(&[("REQUEUE_POLICY", policy)], &arguments);
        assert_eq!(run.status, 0, "{}", run.stderr);
        let row = run.stderr.lines().find(|line| line.contains("947f1875")).unwrap();
        let cells: Vec<&str> =
            row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        assert!(cells.contains(&class) && cells.contains(&shown), "{row}");
    }
}

#[test]
fn each_event_gets_an_answer_that_lambda_understands() {
    let events = repository("events");
    let mut files: Vec<String> = fs::read_dir(events)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    assert_eq!(files, REMAINING.map(|(file, _)| file.to_owned()));

    for (name, remaining) in REMAINING {
        let path = format!("events/{name}");
        let run = requeue(&["invoke", &path, "--sample", "0.5"]);
        assert_eq!(run.status, 0, "{name}: {}", run.stderr);
        assert!(
            run.stderr.contains("where it is now"),
            "{name}: the table is not for Lambda: {}",
            run.stderr
        );
        let response: Value =
            serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{name}: {}", run.stdout));
        let failures = response["batchItemFailures"].as_array().unwrap();
        assert_eq!(failures.len(), remaining, "{name}: {}", run.stdout);

        let event: Value =
            serde_json::from_str(&fs::read_to_string(repository(&path)).unwrap()).unwrap();
        let ids: Vec<&str> = event["Records"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|r| r["messageId"].as_str())
            .collect();
        for failure in failures {
            let id = failure["itemIdentifier"].as_str().unwrap();
            assert!(
                !id.is_empty() && ids.contains(&id),
                "{name}: Lambda would take {id:?} for a failure of all"
            );
        }
    }
}

#[test]
fn an_invocation_shows_where_each_way_leads() {
    let url =
        ("REQUEUE_DEAD_LETTER_QUEUE_URL", "https://sqs.eu-west-1.amazonaws.com/123456789012/dead");
    let (non_retryable, quota) = ("c8e445c3", "13e2df18");
    let [annotate, direct] = ["annotate", "direct"].map(|mode| ("REQUEUE_DEAD_LETTER", mode));
    let table = [
        (vec![], non_retryable, " in orders, visible again in 5 min 30 s", 1),
        (vec![annotate], non_retryable, " copy in orders, visible", 0),
        (vec![direct, url], non_retryable, " copy in dead, visible", 0),
        (vec![], quota, " copy in orders, visible in 60 s", 1),
        (vec![("REQUEUE_STRATEGY", "visibility")], quota, " in orders, visible again in 60 s", 6),
    ];
    for (variables, message, place, remaining) in table {
        let run =
            requeue_with(&variables, &["invoke", "events/every-class.json", "--sample", "0.5"]);
        let row =
            run.stderr.lines().find(|line| line.contains(message)).expect("a row for each message");
        assert!(row.trim_end().ends_with(place), "{variables:?}: {row}");
        assert_eq!(
            run.stdout.matches("itemIdentifier").count(),
            remaining,
            "{variables:?}: {}",
            run.stdout
        );
    }
}

#[test]
fn a_secret_that_is_named_and_cannot_be_fetched_is_told_before_any_message_is_touched() {
    const ARN: &str = "arn:aws:ssm:eu-west-1:123456789012:parameter/orders/token";
    let headers = format!(r#"{{"Authorization": "Bearer {ARN}"}}"#);
    let variables = [
        ("REQUEUE_HEADERS", headers.as_str()),
        // No server listens on the port of tcpmux.
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:1"),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
    ];
    let queue = "http://127.0.0.1:1/000000000000/orders";
    for command in [&["invoke", "events/single.json"][..], &["work", "--queue-url", queue]] {
        let run = requeue_with(&variables, command);
        let expected = format!(
            "error: 1 setting is invalid:\n  REQUEUE_HEADERS has `Authorization`: {ARN}: \
             NoConnection: connection refused: "
        );
        assert_eq!((run.status, run.stdout.as_str()), (1, ""), "{}", run.stderr);
        assert!(run.stderr.starts_with(&expected), "{}", run.stderr);
    }
}

#[test]
fn a_wrapped_copy_is_shown_as_one() {
    let run = requeue(&["invoke", "events/text-bodies.json", "--sample", "0.5"]);
    let rows: Vec<&str> = run.stderr.lines().filter(|line| line.contains("wrapped")).collect();
    assert!(
        rows.len() == 1 && rows[0].trim_end().ends_with(" wrapped copy in orders, visible in 2 s"),
        "{}",
        run.stderr
    );
}

#[test]
fn a_circuit_that_opens_is_told() {
    let event: serde_json::Value =
        serde_json::from_str(include_str!("../../../../events/single.json")).unwrap();
    let opens = |count: usize| {
        let mut event = event.clone();
        let record = event["Records"][0].take();
        let of = |n| {
            let mut record = record.clone();
            record["messageId"] = format!("message-{n}").into();
            record["receiptHandle"] = format!("handle-{n}").into();
            record["body"] = r#"{"answer": "unavailable"}"#.into();
            record
        };
        event["Records"] = (0..count).map(of).collect();
        let path = crate::run::scratch(&format!("outage-{count}.json"));
        std::fs::write(&path, event.to_string()).unwrap();
        let run = requeue(&["invoke", path.to_str().unwrap(), "--sample", "0.5"]);
        assert_eq!(run.status, 0, "{}", run.stderr);
        run.stderr.lines().filter(|line| *line == "circuit opened: 503").count()
    };
    assert_eq!([4, 5, 6].map(opens), [0, 1, 1]);
}

/// An event with so many orders that the endpoint does not accept, sent just now.
fn event(name: &str, records: usize) -> String {
    let now = requeue::Clock::system()
        .now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_millis()
        .to_string();
    let single: Value =
        serde_json::from_str(&fs::read_to_string(repository("events/single.json")).unwrap())
            .unwrap();
    let records: Vec<Value> = (0..records)
        .map(|number| {
            let mut record = single["Records"][0].clone();
            record["messageId"] = format!("{number:08x}-0000-4000-8000-000000000000").into();
            record["receiptHandle"] = format!("AQEB-{number}").into();
            for time in ["SentTimestamp", "ApproximateFirstReceiveTimestamp"] {
                record["attributes"][time] = now.as_str().into();
            }
            record["body"] = r#"{"answer":"unavailable"}"#.into();
            record
        })
        .collect();
    file(name, &serde_json::json!({ "Records": records }).to_string())
}

#[test]
fn the_largest_batch_that_lambda_delivers_is_shown_in_seconds() {
    let event = event("largest.json", 10_000);
    // Seconds of the processor, not of a clock; quadratic it took 280.
    let shell = "ulimit -t 60; exec \"$@\"";
    let run = std::process::Command::new("/bin/sh")
        .args([
            "-c",
            shell,
            "-",
            env!("CARGO_BIN_EXE_requeue"),
            "invoke",
            &event,
            "--timeout",
            "900",
        ])
        .env_clear()
        .env("REQUEUE_POLICY", r#"{"circuitBreaker": "off"}"#)
        .output()
        .unwrap();
    let table = String::from_utf8(run.stderr).unwrap();
    assert!(run.status.success(), "{:?}", run.status);
    assert_eq!(
        table.lines().filter(|line| line.contains(" copy in orders, visible")).count(),
        10_000
    );
}

#[test]
fn in_real_sqs_nothing_is_handled_without_credentials_and_what_is_not_confirmed_is_a_failure() {
    let nobody = ("AWS_ENDPOINT_URL_SQS", "http://127.0.0.1:1");
    let alone = [nobody, ("AWS_EC2_METADATA_DISABLED", "true"), ("HOME", "/nonexistent")];
    let imds = ("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1");
    let keys = [nobody, ("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test")];
    let off = ("REQUEUE_POLICY", r#"{"sqsCalls": "off"}"#);
    let event = event("unsettled.json", 1);
    for place in [&["--sqs"][..], &["--queue-url", "http://127.0.0.1:1/000000000000/orders"]] {
        let arguments = [&["invoke", &event][..], place].concat();
        let run = requeue_with(&alone, &arguments);
        let missing = "error: there are no AWS credentials in the environment or in AWS's files; \
                       log in again with `aws sso login ";
        assert_eq!((run.status, run.stdout.as_str()), (1, ""), "{place:?}: {}", run.stderr);
        assert!(run.stderr.starts_with(missing), "{place:?}: {}", run.stderr);

        let of_aws = [nobody, imds, ("AWS_EC2_METADATA_DISABLED", "false"), alone[2]];
        let run = requeue_with(&of_aws, &arguments);
        let missing = "in AWS's files, and the metadata service did not respond with any; log in ";
        assert!(run.stderr.contains(missing), "{place:?}: {}", run.stderr);
        assert!(run.stderr.contains("a metadata hop limit of 2"), "{place:?}: {}", run.stderr);

        let run = requeue_with(&[&keys[..], &[off]].concat(), &arguments);
        let reason =
            "error: SQS did not confirm 1 of 1 messages (NoConnection: connection refused); ";
        assert!(
            run.stderr.lines().last().unwrap().starts_with(reason),
            "{place:?}: {}",
            run.stderr
        );
        assert_eq!((run.status, run.stdout.matches("itemIdentifier").count()), (1, 1), "{place:?}");
    }
}

#[test]
fn a_sample_is_a_number_from_0_to_1() {
    for (sample, status) in
        [("0", 0), ("1", 0), ("1.01", 2), ("2", 2), ("-0.1", 2), ("NaN", 2), ("half", 2)]
    {
        let run = requeue(&["invoke", "events/single.json", &format!("--sample={sample}")]);
        let told = run.stderr.contains("for '--sample <SAMPLE>': it must be a number from 0 to 1");
        assert_eq!((run.status, told), (status, status == 2), "{sample}: {}", run.stderr);
    }
}

#[test]
fn an_event_that_is_none_is_refused_with_the_reason() {
    let broken = file("broken-event.json", "{");
    let other = file("other-event.json", r#"{"detail": {}}"#);
    let of_sns = file("sns-event.json", r#"{"Records":[{"EventSource":"aws:sns","Sns":{}}]}"#);
    let table = [
        (broken.as_str(), "is not JSON: "),
        (&other, "has no list `Records`; print a valid event"),
        (&of_sns, "is one of SNS, not of SQS; print a valid event"),
        ("events/none.json", "cannot be read: No such file"),
    ];
    for (path, expected) in table {
        let run = requeue(&["invoke", path]);
        assert_eq!((run.status, run.stdout.as_str()), (1, ""), "{path}");
        assert!(
            run.stderr.starts_with(&format!("error: the event {path} {expected}")),
            "{}",
            run.stderr
        );
    }
    let single = fs::read_to_string(repository("events/single.json")).unwrap();
    let run = requeue_reading(&single, &["invoke", "-", "--json"]);
    let json: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((run.stderr.as_str(), &json["messages"][0]["attempt"]), ("", &json!(1)));
    assert_eq!(json["response"]["batchItemFailures"], json!([]));
    let event: Value = serde_json::from_str(&single).unwrap();
    // As EventBridge Pipes hands the records over, and as some editors begin a file.
    for text in [single.clone(), event["Records"].to_string(), format!("\u{feff}{single}")] {
        let run = requeue_reading(&text, &["invoke", "-"]);
        assert_eq!(
            (run.status, run.stdout.as_str()),
            (0, "{\"batchItemFailures\":[]}\n"),
            "{text}"
        );
    }
}

#[test]
fn a_time_stamp_that_no_clock_can_show_is_refused_by_name() {
    for name in ["SentTimestamp", "ApproximateFirstReceiveTimestamp"] {
        for (millis, is_refused) in
            [(253_370_764_799_999, false), (253_402_300_800_000, true), (u64::MAX, true)]
        {
            let record = |attributes| json!({ "messageId": "m", "receiptHandle": "r", "body": "{}", "attributes": attributes });
            let records = [record(json!({})), record(json!({ name: millis.to_string() }))];
            let run = requeue_reading(&json!({ "Records": records }).to_string(), &["invoke", "-"]);
            let refusal = format!(
                "error: Records[1] has the {name} {millis}; it must be milliseconds since 1970, \
                 before the year 9999; correct the event\n"
            );
            assert_eq!(
                (run.status, run.stderr == refusal),
                (i32::from(is_refused), is_refused),
                "{}",
                run.stderr
            );
        }
    }
}

#[test]
fn invoke_sends_what_the_settings_of_the_lambda_say() {
    let run = |variable| {
        requeue_with(&[variable], &["invoke", "events/attributes.json", "--sample", "0.5"])
    };
    let mapped = run((
        "REQUEUE_ATTRIBUTE_HEADERS",
        "tenant=X-Tenant,amount=X-Amount,thumbprint=X-Print,note=X-Note",
    ));
    assert_eq!(mapped.status, 0, "{}", mapped.stderr);
    let refused = "message attribute thumbprint cannot be sent as a header";
    assert_eq!(mapped.stderr.matches("cannot be sent as a header").count(), 1, "{}", mapped.stderr);
    assert!(mapped.stderr.contains(refused), "{}", mapped.stderr);

    let unsigned = run(("REQUEUE_SIGNING_SECRET", "s3cret"));
    assert_eq!(unsigned.status, 1, "{}", unsigned.stderr);
    assert!(
        unsigned.stderr.contains("REQUEUE_SIGNING_SECRET number 1 is invalid"),
        "{}",
        unsigned.stderr
    );
    assert!(!unsigned.stderr.contains("s3cret"), "{}", unsigned.stderr);
}

#[test]
fn an_id_in_an_event_controls_no_terminal() {
    let id = "m\u{1b}[2J\u{9b}\u{202e}-1";
    let record = |id: &str| json!({ "messageId": id, "receiptHandle": "r", "body": r#"{"answer":"invalid"}"# });
    let path = file("hostile-id.json", &json!({ "Records": [record(id)] }).to_string());
    let run = requeue(&["invoke", &path, "--sample", "0.5"]);
    for printed in [&run.stdout, &run.stderr] {
        assert!(
            printed.chars().all(|c| requeue::printable::is_printable(c) || c == '\n'),
            "{run:?}"
        );
    }
    let response: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(
        response["batchItemFailures"][0]["itemIdentifier"], id,
        "the value survives: {run:?}"
    );
}
