//! `requeue send` and `requeue event`.

use std::fs::File;
use std::io::Write;
use std::process::Stdio;

use serde_json::Value;

use crate::served::{Served, bootstrap, requeue, run};

/// The standard output of a run that went well.
#[track_caller]
fn succeeded(arguments: &[&str]) -> String {
    let output = run(arguments, &[]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.as_str()), (Some(0), ""), "{arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn refused(arguments: &[&str], words: &str) {
    let output = run(arguments, &[]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
    assert!(said.starts_with("error: ") && said.contains(words), "{arguments:?}: {said}");
}

#[test]
fn a_message_reaches_the_function_of_a_running_serve() {
    let path = bootstrap("send", "");
    let mut served = Served::start(&["--function", &path], &[]);
    let port = served.port.clone();
    let send = |more: &[&str]| succeeded(&[&["send", "--sqs-port", &port], more].concat());
    let id = send(&["hello"]);
    assert_eq!(id.trim().len(), 36, "{id}");
    served.line("1| gets hello");
    assert_eq!(send(&["again", "--count", "3"]).lines().count(), 3);
    assert_eq!(send(&["later", "--queue", "orders", "--delay", "1"]).lines().count(), 1);
    served.line("gets later");

    let mut reading = requeue(&["send", "-", "--sqs-port", &port], &[]);
    let mut reading = reading.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    reading.stdin.take().unwrap().write_all(b"from stdin").unwrap();
    assert!(reading.wait().unwrap().success());
    served.line("gets from stdin");
    let file = format!("@{path}");
    send(&[&file]);
    served.line("gets #!/bin/sh");

    refused(&["send", "x", "--sqs-port", &port, "--queue", "other"], "there is no queue");
    refused(&["send", "x", "--sqs-port", &port, "--deduplication-id", "d"], "is a standard queue");
    refused(&["send", "", "--sqs-port", &port], "the body is empty");
    refused(&["send", "\u{1}", "--sqs-port", &port], "SQS refuses SendMessage on orders (");
    refused(&["send", "@/no/such/file", "--sqs-port", &port], "the body /no/such/file cannot");
    let endless = "the body /dev/zero cannot be read: it is larger than the 1048576 bytes that SQS";
    refused(&["send", "@/dev/zero", "--sqs-port", &port], endless);
    refused(&["event", "@/dev/zero"], endless);
    let output = requeue(&["event", "-"], &[]).stdin(File::open("/dev/zero").unwrap()).output();
    let said = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(said.contains("the standard input cannot be read: it is larger than the "), "{said}");
}

#[test]
fn a_message_reaches_a_queue_by_its_url_with_the_users_credentials() {
    let path = bootstrap("send-url", "");
    let mut served = Served::start(&["--function", &path], &[]);
    let endpoint = format!("http://127.0.0.1:{}", served.port);
    let url = format!("{endpoint}/000000000000/orders");
    let variables = [
        ("AWS_ENDPOINT_URL_SQS", endpoint.as_str()),
        ("AWS_ACCESS_KEY_ID", "any"),
        ("AWS_SECRET_ACCESS_KEY", "any"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
    ];
    let output = run(&["send", "hello", "--queue-url", &url], &variables);
    assert!(output.status.success(), "{output:?}");
    served.line("1| gets hello");
    let output = run(&["send", "hello", "--queue-url", &url], &variables[..1]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("error: there are no AWS credentials"), "{said}");
    refused(&["send", "x", "--queue-url", &url], "set AWS_ENDPOINT_URL_SQS=http://127.0.0.1:");
    let arn = "arn:aws:sqs:us-east-1:000000000000:orders";
    for (queue, is_json) in [("orders", false), (arn, true)] {
        let options = ["send", "hello", "--queue", queue, "--json"];
        let output = run(&options[..if is_json { 5 } else { 4 }], &variables);
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && said.contains("messageIds") == is_json, "{said}");
        assert_eq!(said.contains(arn), is_json, "{said}");
        served.line("gets hello");
    }
}

#[test]
fn a_message_of_a_fifo_queue_has_a_group_and_a_deduplication_id() {
    let path = bootstrap("send-fifo", "");
    let mut served = Served::start(&["--queue", "jobs.fifo", "--function", &path], &[]);
    let port = served.port.clone();
    let send = |more: &[&str]| succeeded(&[&["send", "--sqs-port", &port], more].concat());
    send(&["job", "--group", "g"]);
    served.line("gets job");
    // Another one, although the body is the same.
    send(&["job", "--group", "g"]);
    served.line("gets job");
    let same = ["job", "--group", "g", "--deduplication-id", "d"];
    assert_eq!(send(&same), send(&same), "one message for SQS");
    refused(&["send", "x", "--sqs-port", &port], "jobs.fifo is a FIFO queue, and each of its");
    refused(
        &["send", "x", "--sqs-port", &port, "--group", "g", "--delay", "1"],
        "have no delay of their own",
    );
}

#[test]
fn a_queue_that_is_named_as_a_dead_letter_queue_is_found() {
    for name in ["x-dlq", "x-dlq.fifo"] {
        let path = bootstrap("send-dlq", "");
        let mut served = Served::start(&["--queue", name, "--function", &path], &[]);
        succeeded(&["send", "hello", "--group", "g", "--sqs-port", &served.port]);
        served.line("gets hello");
    }
}

#[test]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
fn a_port_that_accepts_and_says_nothing_is_named() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let words = format!("port {port} of 127.0.0.1 did not respond within 5 s; another program");
    refused(&["send", "x", "--sqs-port", &port], &words);
    refused(&["send", "x", "--queue", "orders", "--sqs-port", &port], &words);
}

#[test]
fn without_a_serve_the_remedy_is_named() {
    let nobody = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port().to_string()
    };
    refused(&["send", "x", "--sqs-port", &nobody], "start `requeue serve` in another terminal");
}

#[test]
fn an_event_is_what_lambda_would_deliver_now() {
    let printed = succeeded(&["event", "hello", "--attribute", "tenant=acme", "--count", "2"]);
    let event: Value = serde_json::from_str(&printed).unwrap();
    let records = event["Records"].as_array().unwrap();
    assert_eq!(records.len(), 2);
    assert_ne!(records[0]["messageId"], records[1]["messageId"]);
    let record = &records[0];
    // echo -n hello | md5sum
    assert_eq!(record["md5OfBody"], "5d41402abc4b2a76b9719d911017c592");
    assert_eq!(record["messageAttributes"]["tenant"]["stringValue"], "acme");
    assert_eq!(record["md5OfMessageAttributes"].as_str().unwrap().len(), 32);
    assert_eq!(record["eventSourceARN"], "arn:aws:sqs:us-east-1:000000000000:orders");
    let sent: u64 = record["attributes"]["SentTimestamp"].as_str().unwrap().parse().unwrap();
    let now = std::fs::metadata(bootstrap("now", "")).unwrap().modified().unwrap();
    let now = now.duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    assert!(u128::from(sent).abs_diff(now) < 60_000, "{sent} {now}");

    let printed = succeeded(&["event", "hello", "--queue", "jobs.fifo", "--group", "g"]);
    let event: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(event["Records"][0]["attributes"]["MessageGroupId"], "g");
    refused(&["event", "hello", "--queue", "a b"], "--queue a b: ");
    refused(&["event", ""], "the message is invalid: ");
}
