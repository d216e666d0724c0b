//! `requeue serve --target`: the life of a message until it is done or a dead letter.

use std::fs;
use std::path::PathBuf;

use serde_json::json;

use crate::served::{Served, run};
use crate::target::{POLICY, Runtime, functions};

/// On a FIFO queue, only `direct` gives dead letters a reason. Of the URL, the name counts.
const DIRECT: [(&str, &str); 2] = [
    ("REQUEUE_DEAD_LETTER", "direct"),
    ("REQUEUE_DEAD_LETTER_QUEUE_URL", "http://127.0.0.1:1/000000000000/orders-dlq.fifo"),
];

/// Starts it for this queue with these options; `None` without the tools.
fn serve(
    runtime: Runtime,
    handler: &str,
    queue: &str,
    options: &[&str],
    policy: &str,
) -> Option<Served> {
    let command = runtime.command(handler)?;
    let words = command.iter().map(String::as_str);
    let options = ["--queue", queue].into_iter().chain(options.iter().copied());
    let words: Vec<&str> = options.chain(["--target", "--"]).chain(words).collect();
    let mut variables = vec![("REQUEUE_POLICY", policy), ("PYTHONDONTWRITEBYTECODE", "1")];
    if queue.strip_suffix(".fifo").is_some() {
        variables.extend(DIRECT);
    }
    Some(Served::start_in(&functions(), &words, &variables))
}

/// The calls that the function printed: the id of the message, its name or what it does, and its
/// receive count.
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
        let options = ["--max-receive-count", "100"];
        let mut served = serve(runtime, handler, queue, &options, &policy)?;
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

/// Of ten messages one always throws. On a FIFO queue, each group has two of them.
fn check_poison(runtime: Runtime, handler: &str, queue: &str) {
    let policy = POLICY.1.replace("20", "2");
    let is_fifo = queue == "orders.fifo";
    let receives = if is_fifo { "100" } else { "4" };
    let options = ["--max-receive-count", receives, "--maximum-concurrency", "1"];
    let Some(mut served) = serve(runtime, handler, queue, &options, &policy) else { return };
    served.line("function started");
    let body = |number| {
        let does = if number == 4 { "throw" } else { "ok" };
        // The text before the first hyphen is the group.
        format!(r#"{{"group":"{}-","do":"{does}","name":"n{number}"}}"#, number % 5)
    };
    let bodies: Vec<String> = (0..10).map(body).collect();
    served.send(&bodies.iter().map(String::as_str).collect::<Vec<_>>());
    let dead = served.line(" dead letter ");
    let is_done = |line: &&String| line.contains("  done  ");
    while served.seen.iter().filter(is_done).count() < 9 {
        served.line("  done  ");
    }
    let calls = calls(&served);
    let of = |number: usize| {
        let name = format!("n{number}");
        let places = calls.iter().enumerate().filter(|(_, (_, called, _))| *called == name);
        places.map(|(place, _)| place).collect::<Vec<_>>()
    };
    assert!((3..=6).contains(&of(4).len()), "{calls:?}");
    assert!(dead.contains(&format!(" dead letter {}: ", &calls[of(4)[0]].0[..8])), "{dead}");
    for number in (0..10).filter(|number| *number != 4) {
        let places = of(number);
        assert!((1..=3).contains(&places.len()), "n{number}: {calls:?}");
        let done = format!("  {}  attempt ", &calls[places[0]].0[..8]);
        let lines = served.seen.iter().filter(is_done).filter(|line| line.contains(&done));
        assert_eq!(lines.count(), 1, "n{number}: {:#?}", served.seen);
        if is_fifo && number > 4 {
            assert!(of(number - 5).last() < places.first(), "n{number}: {calls:?}");
        }
    }
    let dead = served.seen.iter().filter(|line| line.contains(" dead letter ")).count();
    assert_eq!(dead, 1, "{:#?}", served.seen);
}

#[test]
fn a_message_that_throws_in_python_is_the_only_dead_letter_of_its_batch() {
    for (handler, queue) in POISONED {
        check_poison(Runtime::Python, handler, queue);
    }
}

#[test]
fn a_message_that_throws_in_node_is_the_only_dead_letter_of_its_batch() {
    for (handler, queue) in POISONED {
        check_poison(Runtime::Node, handler, queue);
    }
}

const POISONED: [(&str, &str); 4] = [
    ("plain", "orders"),
    ("powertools", "orders"),
    ("plain", "orders.fifo"),
    ("powertools_fifo", "orders.fifo"),
];

/// `requeue dlq` with these arguments, on this dead-letter queue of the embedded SQS of this run.
fn dlq(served: &Served, queue: &str, arguments: &[&str]) -> String {
    let endpoint = format!("http://127.0.0.1:{}", served.port);
    let variables = [
        ("AWS_ENDPOINT_URL_SQS", &*endpoint),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "any"),
        ("AWS_SECRET_ACCESS_KEY", "any"),
    ];
    let output = run(&[&["dlq"], arguments, &["--queue", queue]].concat(), &variables);
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{arguments:?}: {said}");
    said
}

/// By SQS's move task, and by a copy.
#[test]
fn a_redriven_message_goes_through_the_mended_function_and_is_done() {
    let policy = POLICY.1.replace("20", "1");
    let all = [
        (Runtime::Python, "plain", "orders", &[][..]),
        (Runtime::Python, "powertools", "orders", &["--copy"]),
        (Runtime::Python, "powertools_fifo", "orders.fifo", &["--copy"]),
        (Runtime::Node, "plain", "orders", &["--copy"]),
        (Runtime::Node, "powertools", "orders", &[]),
        (Runtime::Node, "plain", "orders.fifo", &[]),
    ];
    // All at once, since an annotated copy waits for ten seconds.
    let all = all.into_iter().filter_map(|(runtime, handler, queue, options)| {
        let mut served = serve(runtime, handler, queue, &[], &policy)?;
        let name = format!("mended-{runtime:?}-{handler}-{queue}");
        let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_file(&file);
        served.line("function started");
        served.send(&[&json!({ "do": "needs", "file": file }).to_string()]);
        Some((served, file, queue.replace("orders", "orders-dlq"), options))
    });
    for (mut served, file, dead_letters, options) in all.collect::<Vec<_>>() {
        let dead = served.line(" dead letter ");
        fs::write(&file, "").unwrap();
        let said = dlq(&served, &dead_letters, &[&["redrive", "--yes"], options].concat());
        assert!(said.contains("1 message "), "{said}");
        served.line("  attempt 1  done");
        let calls = calls(&served);
        let first = &calls[0].0;
        assert!(dead.contains(&first[..8]), "{dead} of {first}");
        let calls: Vec<(bool, u32)> = calls.iter().map(|(id, _, n)| (id == first, *n)).collect();
        assert_eq!(calls, [(true, 1), (true, 2), (true, 1)], "{:#?}", served.seen);
        let left = dlq(&served, &dead_letters, &["list"]);
        assert!(left.contains(&format!("{dead_letters}: no message")), "{left}");
    }
}
