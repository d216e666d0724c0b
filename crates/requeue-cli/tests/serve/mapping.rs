//! The end of a batch, by the function's response.

use crate::function;
use crate::served::{Served, bootstrap};

/// Waits of a second.
const POLICY: (&str, &str) =
    ("REQUEUE_POLICY", r#"{"jitter": "none", "errorConfigs": {"DEFAULT": {"backoff": [1]}}}"#);

#[test]
fn the_retries_of_a_handler_are_seen() {
    let function = function::command();
    let words: Vec<&str> = ["--"].into_iter().chain(function.iter().map(String::as_str)).collect();
    // A variable of the user's shell; no such endpoint exists on loopback.
    let fips = ("AWS_USE_FIPS_ENDPOINT", "true");
    let dual_stack = ("AWS_USE_DUALSTACK_ENDPOINT", "true");
    let mut served = Served::start(&words, &[POLICY, fips, dual_stack]);
    served.line("function started; send it a message: requeue send BODY --sqs-port ");
    served.send(&[r#"{"failures":2}"#]);
    for said in [
        "#1 1 message: 1 deleted, 1 copy in 1 s, ",
        "#2 1 message: 1 deleted, 1 copy in 1 s, ",
        "#3 1 message: 1 deleted, ",
    ] {
        let line = served.line(said);
        assert!(line.len() <= 80 && line.ends_with(" ms"), "{line}");
    }
    // A copy with the reason, since the dead-letter mode is that of the template.
    served.send(&[r#"{"failures":0}"#]);
    served.line("#4 1 message: 1 deleted, 1 copy in 10 s, ");
}

#[test]
fn a_partial_response_keeps_its_messages_until_they_are_dead_letters() {
    let path = bootstrap("partial", "");
    let options = ["--visibility-timeout", "1", "--timeout", "1", "--max-receive-count", "2"];
    let mut served = Served::start(&[&options[..], &["--function", &path]].concat(), &[]);
    served.line("1| starts");
    served.send(&["ok-1", "fail-1", "ok-2"]);
    served.line("1| gets ok-1 fail-1 ok-2");
    served.line("#1 3 messages: 2 deleted, 1 kept, ");
    served.line("1| gets fail-1");
    served.line("#2 1 message: 1 kept, ");
    let line = served.line("dead letter ");
    assert!(line.ends_with(": after 2 receives"), "{line}");
}

#[test]
fn a_function_error_keeps_the_batch() {
    let path = bootstrap("error", "");
    let mut served = Served::start(&["--function", &path], &[]);
    served.send(&["ok", "error"]);
    served.line("#1 2 messages: all kept, function error: Refused: no, ");
    served.send(&["ok"]);
    served.line("#2 1 message: 1 deleted, ");
    assert!(!served.seen.iter().any(|line| line.starts_with("2| ")), "{:?}", served.seen);
}

#[test]
fn an_error_at_the_end_of_a_response_in_chunks_keeps_the_batch() {
    let path = bootstrap("chunks", "");
    let mut served = Served::start(&["--function", &path], &[]);
    for (at, body) in ["", "{}", r#"{"batchItemFailures""#].iter().enumerate() {
        served.send(&[&format!("chunks {body}")]);
        let number = at + 1;
        served.line(&format!("#{number} 1 message: all kept, function error: Refused: no, "));
        // The process has its response at the same time.
        if served.seen.iter().filter(|line| *line == "1| status 202").count() < number {
            served.line("1| status 202");
        }
    }
}

#[test]
fn a_response_to_an_unknown_invocation_is_refused_as_lambda_does() {
    let path = bootstrap("unknown", "");
    let mut served = Served::start(&["--function", &path], &[]);
    served.send(&["unknown"]);
    served.line("1| refused (400, 'InvalidRequestID') (400, 'InvalidRequestID')");
    served.line("#1 1 message: 1 deleted, ");
}

#[test]
fn batches_are_as_large_and_as_many_as_they_may_be() {
    let path = bootstrap("large", "");
    let options =
        ["--batch-size", "2", "--maximum-concurrency", "2", "--timeout", "5", "--function"];
    let mut served = Served::start(&[&options[..], &[&path]].concat(), &[]);
    served.line("function started");
    served.send(&["hang", "ok-1", "ok-2", "ok-3", "ok-4", "ok-5"]);
    for _ in 0..2 {
        let line = served.line(" #");
        assert!(line.contains("2 messages: 2 deleted, "), "{line}");
    }
    // All by the second one, since the first one hangs.
    assert!(served.seen.iter().any(|line| line == "2| gets ok-2 ok-3"), "{:?}", served.seen);
    assert!(!served.seen.iter().any(|line| line.starts_with("3| ")), "{:?}", served.seen);
}

#[test]
fn a_function_is_invoked_with_the_messages_of_each_queue() {
    let path = bootstrap("several", "");
    let options = ["--queue", "orders", "--queue", "refunds.fifo", "--visibility-timeout", "1"];
    let options = [&options[..], &["--timeout", "1", "--max-receive-count", "1"]].concat();
    let mut served = Served::start(&[&options[..], &["--function", &path]].concat(), &[]);
    let line = served.line("queue  ");
    assert!(line.ends_with("/refunds.fifo"), "{line}");
    assert!(served.line("dead letters  ").ends_with("/refunds-dlq.fifo"));
    served.line("function started; send it a message: requeue send BODY --queue NAME --group ID ");
    served.send(&["ok"]);
    served.line("| gets ok");
    served.line("#1 orders 1 message: 1 deleted, ");
    served.send_to(&served.url_of("refunds.fifo"), &["fail-1"]);
    served.line("| gets fail-1");
    served.line("#2 refunds.fifo 1 message: 1 kept, ");
    let line = served.line("dead letter refunds.fifo ");
    assert!(line.ends_with(": after 1 receive"), "{line}");
}

#[test]
fn a_full_queue_holds_up_no_other() {
    let path = bootstrap("in-turn", "");
    let options = ["--queue", "full", "--queue", "other", "--batch-size", "1"];
    let options = [&options[..], &["--maximum-concurrency", "1", "--function"]].concat();
    let mut served = Served::start(&[&options[..], &[&path]].concat(), &[]);
    served.send_to(&served.url_of("other"), &["ok-other"]);
    served.send(&["ok-1", "ok-2", "ok-3", "ok-4", "ok-5", "ok-6", "ok-7", "ok-8"]);
    // Batches are numbered as they begin.
    let line = served.line(" other 1 message: 1 deleted, ");
    assert!(line.contains("#1 ") || line.contains("#2 "), "{line}");
}

#[test]
fn a_batch_may_have_ten_thousand_messages() {
    let path = bootstrap("largest", "");
    let options = ["--batch-size", "10000", "--maximum-concurrency", "1", "--timeout", "5"];
    let mut served = Served::start(&[&options[..], &["--function", &path]].concat(), &[]);
    served.line("function started");
    // While the first batch is in hand, others gather.
    served.send(&["hang"]);
    served.line("| gets hang");
    let bodies: Vec<String> = (0..10).map(|n| format!("ok-{n}")).collect();
    let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
    for _ in 0..30 {
        served.send(&bodies);
    }
    let line = served.line("deleted, ");
    let (_, rest) = line.split_once('#').unwrap();
    let count: usize = rest.split(' ').nth(1).unwrap().parse().unwrap();
    assert!(count > 10, "SQS hands out ten in a receive: {line}");
}

#[test]
fn a_group_of_a_fifo_queue_waits_for_its_first_message() {
    let path = bootstrap("fifo", "");
    let options = ["--queue", "jobs.fifo", "--batch-size", "1", "--visibility-timeout", "4"];
    let options = [&options[..], &["--timeout", "2", "--max-receive-count", "2"]].concat();
    let mut served = Served::start(&[&options[..], &["--function", &path]].concat(), &[]);
    served.send(&["fail-1", "fail-2", "ok-1", "ok-2"]);
    let mut gets: Vec<String> = Vec::new();
    while gets.len() < 6 {
        gets.push(served.line("| gets ").split_once("gets ").unwrap().1.to_owned());
    }
    let group = |name| gets.iter().filter(move |body| body.starts_with(name)).collect::<Vec<_>>();
    assert_eq!(group("ok"), ["ok-1", "ok-2"]);
    assert_eq!(group("fail"), ["fail-1", "fail-1", "fail-2", "fail-2"], "{gets:?}");
}
