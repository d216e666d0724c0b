//! `requeue serve --target`: the life of a message until it is done or a dead letter.

use std::fs;
use std::path::PathBuf;

use serde_json::json;

use crate::served::{Served, run};
use crate::target::{POLICY, Runtime, functions};

/// Starts it with these options; `None` without the tools.
fn serve(runtime: Runtime, handler: &str, options: &[&str], policy: &str) -> Option<Served> {
    let command = runtime.command(handler)?;
    let words = command.iter().map(String::as_str);
    let words: Vec<&str> = options.iter().copied().chain(["--target", "--"]).chain(words).collect();
    let variables = [("REQUEUE_POLICY", policy), ("PYTHONDONTWRITEBYTECODE", "1")];
    Some(Served::start_in(&functions(), &words, &variables))
}

/// The calls that the function printed: the id of the message, what it does, and its receive count.
fn calls(served: &Served) -> Vec<(String, String, u32)> {
    let calls = served.seen.iter().filter_map(|line| {
        let (_, call) = line.split_once("gets ")?;
        let mut words = call.split_whitespace();
        let mut word = || words.next().map(str::to_owned);
        Some((word()?, word()?, word()?.parse().ok()?))
    });
    calls.collect()
}

/// Twelve attempts, each as if SQS had delivered the message again.
fn check_twelve_attempts(runtime: Runtime) {
    let policy = POLICY.1.replace("[1]", "[0.001]");
    let all = [
        ("orders", "plain"),
        ("orders", "powertools"),
        ("orders.fifo", "plain"),
        ("orders.fifo", "powertools_fifo"),
    ];
    // All at once, since a retry waits for a second.
    let all = all.into_iter().filter_map(|(queue, handler)| {
        let options = ["--queue", queue, "--max-receive-count", "100"];
        let mut served = serve(runtime, handler, &options, &policy)?;
        served.line("function started; send it a message: requeue send BODY");
        served.send(&[&json!({ "do": "work", "failures": 11 }).to_string()]);
        Some(served)
    });
    for mut served in all.collect::<Vec<_>>() {
        let line = served.line("  attempt 12  done");
        let calls = calls(&served);
        let counts: Vec<u32> = calls.iter().map(|(.., count)| *count).collect();
        assert_eq!(counts, (1..=12).collect::<Vec<_>>(), "{:#?}", served.seen);
        let first = &calls[0].0;
        assert!(calls.iter().all(|(id, ..)| id == first), "{calls:?}");
        assert!(line.contains(&format!("  {}  ", &first[..8])), "{line} of {first}");
        let retries = served.seen.iter().filter(|line| line.contains("→ retry in")).count();
        assert_eq!(retries, 11, "{:#?}", served.seen);
    }
}

#[test]
fn a_function_in_python_sees_each_attempt_as_a_redelivery() {
    check_twelve_attempts(Runtime::Python);
}

#[test]
fn a_function_in_node_sees_each_attempt_as_a_redelivery() {
    check_twelve_attempts(Runtime::Node);
}

/// Of ten messages one always throws.
fn check_poison(runtime: Runtime, handler: &str) {
    let policy = POLICY.1.replace("20", "2");
    let options = ["--max-receive-count", "4", "--maximum-concurrency", "1"];
    let Some(mut served) = serve(runtime, handler, &options, &policy) else { return };
    served.line("function started");
    let body = |number| {
        let does = if number == 4 { "throw" } else { "ok" };
        json!({ "do": does, "number": number }).to_string()
    };
    let bodies: Vec<String> = (0..10).map(body).collect();
    served.send(&bodies.iter().map(String::as_str).collect::<Vec<_>>());
    let dead = served.line(" dead letter ");
    let calls = calls(&served);
    let poison: Vec<_> = calls.iter().filter(|(_, does, _)| does == "throw").collect();
    assert!((3..=6).contains(&poison.len()), "{calls:?}");
    assert!(dead.contains(&format!(" dead letter {}: ", &poison[0].0[..8])), "{dead}");
    for (id, ..) in calls.iter().filter(|(_, does, _)| does == "ok") {
        let count = calls.iter().filter(|(other, ..)| other == id).count();
        assert!(count <= 3, "{id} was called {count} times: {calls:?}");
        let done = format!("  {}  attempt ", &id[..8]);
        let is_done = |line: &&String| line.contains(&done) && line.contains("  done  ");
        assert_eq!(served.seen.iter().filter(is_done).count(), 1, "{id}: {:#?}", served.seen);
    }
    assert!(
        !served.seen[..served.seen.len() - 1].iter().any(|line| line.contains(" dead letter "))
    );
}

#[test]
fn a_message_that_throws_in_python_is_the_only_dead_letter_of_its_batch() {
    for handler in ["plain", "powertools"] {
        check_poison(Runtime::Python, handler);
    }
}

#[test]
fn a_message_that_throws_in_node_is_the_only_dead_letter_of_its_batch() {
    for handler in ["plain", "powertools"] {
        check_poison(Runtime::Node, handler);
    }
}

/// `requeue dlq` with these arguments, on the embedded SQS of this run.
fn dlq(served: &Served, arguments: &[&str]) -> String {
    let endpoint = format!("http://127.0.0.1:{}", served.port);
    let variables = [
        ("AWS_ENDPOINT_URL_SQS", &*endpoint),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "any"),
        ("AWS_SECRET_ACCESS_KEY", "any"),
    ];
    let output = run(&[&["dlq"], arguments, &["--queue", "orders-dlq"]].concat(), &variables);
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{arguments:?}: {said}");
    said
}

/// By SQS's move task, and by a copy.
#[test]
fn a_redriven_message_goes_through_the_mended_function_and_is_done() {
    let policy = POLICY.1.replace("20", "1");
    let all = [("plain", &[][..]), ("powertools", &["--copy"])];
    // Both at once, since an annotated copy waits for ten seconds.
    let all = all.into_iter().filter_map(|(handler, options)| {
        let mut served = serve(Runtime::Python, handler, &[], &policy)?;
        let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("mended-{handler}"));
        let _ = fs::remove_file(&file);
        served.line("function started");
        served.send(&[&json!({ "do": "needs", "file": file }).to_string()]);
        Some((served, file, options))
    });
    for (mut served, file, options) in all.collect::<Vec<_>>() {
        let dead = served.line(" dead letter ");
        fs::write(&file, "").unwrap();
        let said = dlq(&served, &[&["redrive", "--yes"], options].concat());
        assert!(said.contains("1 message "), "{said}");
        served.line("  attempt 1  done");
        let calls = calls(&served);
        let first = &calls[0].0;
        assert!(dead.contains(&first[..8]), "{dead} of {first}");
        let calls: Vec<(bool, u32)> = calls.iter().map(|(id, _, n)| (id == first, *n)).collect();
        assert_eq!(calls, [(true, 1), (true, 2), (true, 1)], "{:#?}", served.seen);
        let left = dlq(&served, &["list"]);
        assert!(left.contains("orders-dlq: no message"), "{left}");
    }
}
