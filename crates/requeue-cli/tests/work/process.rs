//! How the process begins and ends.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Incoming;
use hyper::{Request, Response};
use requeue::embedded::{EmbeddedSqs, Fault};
use requeue::{Clock, DeadLetter};
use requeue_testkit::http;
use tokio::time::{Instant, sleep, timeout};

use crate::proxy::Proxy;
use crate::shop::{Shop, epoch_millis};

fn working(n: usize, millis: u64) -> String {
    format!(r#"{{"n":{n},"work":{millis}}}"#)
}

#[tokio::test(flavor = "multi_thread")]
async fn it_drains_a_queue_and_ends() {
    let server = EmbeddedSqs::new(Clock::system()).serve(0).await.unwrap();
    let shop = Shop::open(&server.url(), "drained").await;
    shop.send((0..25).map(|n| working(n, 1)).collect()).await;
    let (status, said) = shop.worker(&["--drain", "--wait-for-target", "5"], &[]).ended().await;
    assert_eq!(
        (status, shop.calls().len(), shop.counts(&shop.queue).await),
        (Some(0), 25, [0; 3]),
        "{said}"
    );
    assert!(said.contains("received=25 completed=25") && !said.contains("\"n\""), "{said}");
}

/// The copies of dead-lettered messages wait for ten seconds, so they are still in the queue.
#[tokio::test(flavor = "multi_thread")]
async fn it_notes_why_it_gave_a_message_up_unless_an_option_says_otherwise() {
    let annotated = vec!["non-retryable", "retries-exhausted", "retries-exhausted"];
    // With the policies of some queues, of which each run has one.
    let once = r#"{"maxRetries": 0, "circuitBreaker": "off", "maxPauseSeconds": "off", "queues": {
        "entry": {"maxRetries": 0, "circuitBreaker": "off", "maxPauseSeconds": "off",
                  "deadLetter": "redrive", "concurrency": 3, "timeoutSeconds": 4},
        "said": {"maxRetries": 0, "circuitBreaker": "off", "maxPauseSeconds": "off",
                 "deadLetter": "redrive", "concurrency": 3, "timeoutSeconds": 4}}}"#;
    let redrive = ("REQUEUE_DEAD_LETTER", "redrive");
    let own = ["--dead-letter", "annotate", "--concurrency", "7", "--timeout", "9s"];
    for (name, arguments, setting, reasons, settings) in [
        ("bare", &[][..], None, &annotated, ("10, timeout 20 s", "annotate")),
        ("set", &[], Some(redrive), &vec![], ("10, timeout 20 s", "redrive")),
        ("entry", &[], None, &vec![], ("3, timeout 4 s", "redrive")),
        ("said", &own, Some(redrive), &annotated, ("7, timeout 9 s", "annotate")),
    ] {
        let sqs = EmbeddedSqs::new(Clock::system());
        let server = sqs.serve(0).await.unwrap();
        let shop = Shop::open(&server.url(), name).await;
        let answers = ["invalid", "unavailable", "quota"];
        let bodies = answers.iter().enumerate();
        shop.send(bodies.map(|(n, of)| format!(r#"{{"n":{n},"answer":"{of}"}}"#)).collect()).await;
        let json = [("REQUEUE_POLICY", once), ("AWS_LAMBDA_LOG_FORMAT", "json")];
        let environment: Vec<_> = json.into_iter().chain(setting).collect();
        let worker = shop.worker(arguments, &environment);
        shop.called(3).await;
        worker.signal("-TERM");
        let (status, said) = worker.ended().await;
        let queue = format!("arn:aws:sqs:us-east-1:000000000000:{name}").parse().unwrap();
        let letters = sqs.messages(&queue).unwrap();
        let letters = letters.iter().map(|letter| DeadLetter::read(&letter.body));
        let mut found: Vec<_> =
            letters.filter_map(|letter| letter.reason().map(str::to_owned)).collect();
        found.sort_unstable();
        assert_eq!(
            (status, found.iter().map(String::as_str).collect()),
            (Some(0), reasons.clone()),
            "{name}: {said}"
        );
        let warned = said.matches("has an entry for a queue that does not exist").count();
        assert_eq!(warned, if ["entry", "said"].contains(&name) { 1 } else { 2 }, "{said}");
        let (limits, mode) = settings;
        assert!(
            said.contains(&format!(r#""concurrency":"{limits}","deadLetter":"{mode}""#)),
            "{said}"
        );
    }
}

/// Beside a message that always fails: that one uses up its retries meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn an_outage_uses_up_no_retries_of_a_single_message() {
    let server = EmbeddedSqs::new(Clock::system()).serve(0).await.unwrap();
    let shop = Shop::open(&server.url(), "quiet").await;
    let policy = r#"{"maxRetries": 3, "jitter": "none",
        "circuitBreaker": {"threshold": 3, "resetTimeoutSeconds": 1},
        "errorConfigs": {"DEFAULT": {"backoff": "constant", "baseDelay": 1, "maxDelay": 1}}}"#;
    let until = epoch_millis() + 15_000;
    let sound = format!(r#"{{"n":0,"answer":"unavailable","until":{until}}}"#);
    shop.send(vec![sound, r#"{"n":1,"answer":"broken"}"#.to_owned()]).await;
    let settings = [("REQUEUE_POLICY", policy), ("REQUEUE_DEAD_LETTER", "redrive")];
    let (status, said) = shop.worker(&["--drain"], &settings).ended().await;
    let calls = |n| shop.calls().iter().filter(|call| call.n == n).count();
    // Without an outage, four calls would have been its last.
    assert!(status == Some(0) && (6..30).contains(&calls(0)), "{} calls: {said}", calls(0));
    assert!(shop.calls().iter().any(|call| call.n == 0 && call.is_accepted), "{said}");
    assert_eq!((calls(1), shop.dead().await), (4, BTreeMap::from([(1, 1)])), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_of_a_drain_says_what_it_waits_for_and_what_a_signal_leaves() {
    let sqs = EmbeddedSqs::new(Clock::system());
    let server = sqs.serve(0).await.unwrap();
    let shop = Shop::open(&server.url(), "waiting").await;
    shop.send(vec![working(0, 1)]).await;
    let queue = "arn:aws:sqs:us-east-1:000000000000:waiting".parse().unwrap();
    assert_eq!(sqs.receive(&queue, 1, Duration::ZERO).await.unwrap().len(), 1);
    let worker = shop.worker(&["--drain"], &[]);
    sleep(Duration::from_millis(2_500)).await;
    worker.signal("-TERM");
    let (status, said) = worker.ended().await;
    let waiting = "not empty: waiting for messages that are in flight or delayed";
    assert!(status == Some(0) && said.contains(waiting), "{said}");
    assert!(said.contains("messages=1 inFlight=1"), "{said}");
    assert!(said.contains("note: still in waiting: about 1 message"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_of_warnings_has_what_may_be_handled_twice() {
    let server = EmbeddedSqs::new(Clock::system()).serve(0).await.unwrap();
    let shop = Shop::open(&server.url(), "warned").await;
    shop.send(vec![working(0, 60_000)]).await;
    let worker = shop.worker(&["--shutdown-timeout", "1s"], &[("AWS_LAMBDA_LOG_LEVEL", "WARN")]);
    shop.begun(1).await;
    worker.signal("-TERM");
    let (status, said) = worker.ended().await;
    let note = "WARN note: 1 call was cut off at the end and may have worked";
    assert!(status == Some(0) && said.contains(note), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn its_log_has_the_settings_each_message_if_asked_and_a_silent_target_once() {
    let server = EmbeddedSqs::new(Clock::system()).serve(0).await.unwrap();
    let shop = Shop::open(&server.url(), "logged").await;
    let json = ("AWS_LAMBDA_LOG_FORMAT", "json");
    for (arguments, lines) in [(&["--drain"][..], 0), (&["--drain", "--verbose"], 3)] {
        shop.send((0..3).map(|n| working(n, 1)).collect()).await;
        let (status, said) = shop.worker(arguments, &[json]).ended().await;
        let count = |text: &str| said.matches(text).count();
        assert_eq!(
            (status, count(r#""message":"settings""#), count(r#""message":"done""#)),
            (Some(0), 1, lines),
            "{said}"
        );
        assert!(said.contains(r#""policy":"3 retries; "#), "{said}");
    }
    // No server listens there.
    let arguments = ["--drain", "--target-url", "http://127.0.0.1:9/orders"];
    let settings = [
        ("REQUEUE_POLICY", r#"{"maxRetries": 0, "circuitBreaker": "off"}"#),
        ("REQUEUE_DEAD_LETTER", "annotate"),
    ];
    shop.send((0..20).map(|n| working(n, 1)).collect()).await;
    let (status, said) = shop.worker(&arguments, &settings).ended().await;
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("does not respond")).collect();
    assert!(status == Some(0) && lines.len() == 1, "{said}");
    assert!(lines[0].contains(r#"cause="connection refused" calls="#), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_level_brings_a_message_or_a_credential_into_its_log() {
    for level in [
        ("RUST_LOG", "trace"),
        ("RUST_LOG", "aws_sdk_sqs=trace,hyper=trace,aws_smithy_runtime=trace,info"),
    ] {
        let server = EmbeddedSqs::new(Clock::system()).serve(0).await.unwrap();
        let shop = Shop::open(&server.url(), "discreet").await;
        let bodies = [
            r#"{"n":1,"text":"canary"}"#,
            r#"{"n":2,"text":"canary","answer":"unavailable","times":1}"#,
        ];
        shop.send(bodies.map(str::to_owned).into()).await;
        let settings = [
            level,
            ("AWS_ACCESS_KEY_ID", "AKIACANARYKEYID"),
            ("AWS_SECRET_ACCESS_KEY", "canary-key"),
        ];
        let (status, said) =
            shop.worker(&["--drain", "--wait-for-target", "5"], &settings).ended().await;
        assert!(status == Some(0) && said.contains("received="), "{said}");
        for secret in ["canary", "AKIACANARYKEYID", "AQEB"] {
            let line = said.lines().find(|line| line.contains(secret));
            assert!(line.is_none(), "{level:?}: {secret} in {line:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn told_to_end_it_lets_handlers_finish_and_told_twice_it_does_not() {
    for (signals, status, done, took_at_most) in [
        (&["-TERM"][..], 0, 2, 5_000),
        // As from GNU `timeout`, which sends two at once.
        (&["-TERM", "-TERM"], 0, 2, 5_000),
        (&["-TERM", "-INT"], 128 + 2, 0, 1_000),
        (&["-INT", "-INT"], 128 + 2, 0, 1_000),
    ] {
        let server = EmbeddedSqs::new(Clock::system()).serve(0).await.unwrap();
        let shop = Shop::open(&server.url(), "ended").await;
        shop.send((0..4).map(|n| working(n, 1_500)).collect()).await;
        let worker =
            shop.worker(&[], &[("REQUEUE_CONCURRENCY", "2"), ("AWS_LAMBDA_LOG_FORMAT", "json")]);
        shop.begun(2).await;
        let told = Instant::now();
        for signal in signals {
            worker.signal(signal);
            sleep(Duration::from_millis(200)).await;
        }
        let (ended, said) = worker.ended().await;
        assert_eq!(ended, Some(status), "{said}");
        assert!(told.elapsed() < Duration::from_millis(took_at_most), "{:?}", told.elapsed());
        let calls = shop.calls().len();
        assert_eq!(calls, done, "{said}");
        assert_eq!(
            shop.counts(&shop.queue).await,
            [2, 0, 2 - done],
            "only what is done is deleted"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_signals_at_once_are_one_request() {
    for signals in ["-INT $0 && kill -TERM", "-TERM $0 && kill -HUP"] {
        let server = EmbeddedSqs::new(Clock::system()).serve(0).await.unwrap();
        let shop = Shop::open(&server.url(), "twice").await;
        shop.send((0..2).map(|n| working(n, 1_000)).collect()).await;
        let worker = shop.worker(&[], &[]);
        shop.begun(2).await;
        let both = format!("kill {signals} $0");
        let kill = std::process::Command::new("/bin/sh")
            .args(["-c", &both])
            .arg(worker.id().to_string())
            .status();
        assert!(kill.unwrap().success());
        let (ended, said) = worker.ended().await;
        assert_eq!((ended, shop.calls().len()), (Some(0), 2), "{signals}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg(target_os = "linux")]
async fn it_opens_as_many_files_as_the_system_allows() {
    let server = EmbeddedSqs::new(Clock::system()).serve(0).await.unwrap();
    let shop = Shop::open(&server.url(), "files").await;
    shop.send(vec![working(0, 1)]).await;
    let limited = "ulimit -Sn 100; ulimit -Hn 500; exec \"$@\"";
    let work = [env!("CARGO_BIN_EXE_requeue"), "work", &shop.queue];
    let worker = shop.started(&[&["/bin/sh", "-c", limited, "-"][..], &work].concat(), &[]);
    shop.begun(1).await;
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", worker.id())).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert_eq!(files.split_whitespace().nth(3), Some("500"), "{files}");
    worker.signal("-TERM");
    let (status, said) = worker.ended().await;
    assert_eq!(status, Some(0), "{said}");
}

/// Beyond what the pipe holds, each write of the log blocks.
#[tokio::test(flavor = "multi_thread")]
#[cfg(target_os = "linux")]
async fn told_to_end_it_ends_although_nobody_reads_its_log() {
    let server = EmbeddedSqs::new(Clock::system()).serve(0).await.unwrap();
    let shop = Shop::open(&server.url(), "unread").await;
    shop.send((0..10).map(|n| working(n, 1)).collect()).await;
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(&vec![b'-'; 65_536]).unwrap();
    let command = [env!("CARGO_BIN_EXE_requeue"), "work", &shop.queue, "--shutdown-timeout", "1s"];
    let mut worker = shop.command(&command, &[]).stdout(writer).spawn().unwrap();
    let id = worker.id().expect("it runs");
    while !is_caught(id, 15) {
        sleep(Duration::from_millis(10)).await;
    }
    let kill = std::process::Command::new("kill").args(["-TERM", &id.to_string()]).status();
    assert!(kill.unwrap().success());
    let ended = timeout(Duration::from_secs(30), worker.wait()).await.expect("it ends").unwrap();
    assert_eq!(ended.code(), Some(128 + 15));
    drop(reader);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_terminal_ends_it_in_peace_unless_it_was_started_to_ignore_that() {
    // A shell cannot undo signals that the tests were started to ignore, as by `nohup`.
    let deaf = "trap '' HUP; exec \"$@\"";
    let hearing = "exec env --default-signal=HUP \"$@\"";
    for (shell, ends) in [(hearing, true), (deaf, false)] {
        let server = EmbeddedSqs::new(Clock::system()).serve(0).await.unwrap();
        let shop = Shop::open(&server.url(), "hung-up").await;
        shop.send((0..4).map(|n| working(n, 1_000)).collect()).await;
        let work = [env!("CARGO_BIN_EXE_requeue"), "work", "--queue-url", &shop.queue];
        let command = [&["/bin/sh", "-c", shell, "-"][..], &work].concat();
        let worker =
            shop.started(&command, &[("REQUEUE_CONCURRENCY", "2"), ("PATH", "/usr/bin:/bin")]);
        shop.begun(2).await;
        worker.signal("-HUP");
        if !ends {
            shop.called(4).await;
            worker.signal("-TERM");
        }
        let (ended, said) = worker.ended().await;
        assert_eq!(ended, Some(0), "{said}");
        let left = if ends { [2, 0, 0] } else { [0; 3] };
        assert_eq!(shop.counts(&shop.queue).await, left, "nothing stays hidden: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg(target_os = "linux")]
async fn told_to_end_before_it_has_begun_it_ends_in_peace() {
    // No server listens there.
    let waiting = ["--wait-for-target", "300", "--target-url", "http://127.0.0.1:9/"];
    for (arguments, signal) in
        [(&waiting[..], "-TERM"), (&waiting, "-INT"), (&[], "-TERM"), (&[], "-INT")]
    {
        let sqs = EmbeddedSqs::new(Clock::system());
        let server = sqs.serve(0).await.unwrap();
        let shop = Shop::open(&server.url(), "not-begun").await;
        let asked = sqs.call_count("GetQueueAttributes");
        sqs.set_faults(|call| {
            if call.operation == "GetQueueAttributes" { Fault::Hang } else { Fault::None }
        });
        let worker = shop.worker(arguments, &[]);
        let begun = Instant::now();
        let listens = || {
            is_caught(worker.id(), 15)
                && (!arguments.is_empty() || sqs.call_count("GetQueueAttributes") > asked)
        };
        while !listens() && begun.elapsed() < Duration::from_secs(10) {
            sleep(Duration::from_millis(10)).await;
        }
        let told = Instant::now();
        worker.signal(signal);
        let (status, said) = worker.ended().await;
        assert_eq!(status, Some(0), "{arguments:?} {signal}: {said}");
        assert!(
            told.elapsed() < Duration::from_secs(5),
            "{arguments:?} {signal}: {:?}",
            told.elapsed()
        );
        assert!(said.contains("stopped before it started") && !said.contains("error"), "{said}");
        assert_eq!(sqs.call_count("ReceiveMessage"), 0);
    }
}

/// Whether a process listens to a signal.
#[cfg(target_os = "linux")]
fn is_caught(process: u32, signal: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| u64::from_str_radix(line.strip_prefix("SigCgt:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}

/// A message reaches a worker that is stopped, and becomes visible again before the worker goes on.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
async fn a_worker_that_was_stopped_with_a_delivery_under_way_sends_no_second_copy() {
    let sqs = EmbeddedSqs::new(Clock::system());
    let server = sqs.serve(0).await.unwrap();
    let shop = Shop::open(&server.url(), "stopped").await;
    // The first request for messages is under way for as long as it takes to stop the worker.
    sqs.set_faults(|call| match call.operation.as_str() {
        "ReceiveMessage" if call.of_operation == 1 => {
            Fault::after(Duration::from_secs(3), Fault::None)
        }
        _ => Fault::None,
    });
    let stopped = shop.worker(&[], &[]);
    let reached = async |counts| {
        while shop.counts(&shop.queue).await != counts {
            sleep(Duration::from_millis(5)).await;
        }
    };
    while sqs.call_count("ReceiveMessage") == 0 {
        sleep(Duration::from_millis(5)).await;
    }
    stopped.signal("-STOP");
    shop.send(vec![r#"{"n":1,"answer":"unavailable","times":1}"#.to_owned()]).await;
    timeout(Duration::from_secs(10), reached([0, 0, 1])).await.expect("it is delivered");
    assert_eq!(shop.calls().len(), 0, "nobody has read it");
    let other = shop.worker(&[], &[]);
    shop.called(1).await;
    stopped.signal("-CONT");
    shop.called(2).await;
    // A second copy would come within 2 s.
    sleep(Duration::from_secs(4)).await;
    stopped.signal("-TERM");
    other.signal("-TERM");
    let ((one, said), (two, _)) = (stopped.ended().await, other.ended().await);
    assert_eq!((one, two), (Some(0), Some(0)), "{said}");
    let accepted: Vec<bool> = shop.calls().iter().map(|call| call.is_accepted).collect();
    assert_eq!((accepted, shop.counts(&shop.queue).await), (vec![false, true], [0; 3]), "{said}");
    assert!(said.contains("visibility-lapsed"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_says_why_it_does_not_begin() {
    const REMEDY: &str = "or allow to work without one by --without-dead-letter-queue";
    let server = EmbeddedSqs::new(Clock::system()).serve(0).await.unwrap();
    let mut shop = Shop::open(&server.url(), "refused").await;
    let nobody = "http://127.0.0.1:9/";
    // The kernel takes the one for this machine, and the other one for incomplete.
    let (elsewhere, link_local) = ("http://0.0.0.0:9/", "http://[fe80::1]:9/");
    let (http, any_address) =
        (("REQUEUE_ALLOW_HTTP", "true"), ("REQUEUE_ALLOW_LINK_LOCAL", "true"));
    let anonymous = [
        ("AWS_ACCESS_KEY_ID", ""),
        ("AWS_EC2_METADATA_DISABLED", "true"),
        ("HOME", "/nonexistent"),
    ];
    let table = [
        (
            &[][..],
            &[("REQUEUE_TARGET_URL", "")][..],
            "REQUEUE_TARGET_URL is missing: set it to the URL",
        ),
        (&["--target-url", "ftp://x"], &[], "--target-url is invalid"),
        (&["--target-url", "localhost:8080/x"], &[], "URL, as in http://localhost:8080/orders"),
        (
            &["--target-url", elsewhere],
            &[],
            "http is allowed explicitly; set REQUEUE_ALLOW_HTTP=true to allow it",
        ),
        (&["--target-url", elsewhere, "--wait-for-target", "0"], &[http], "accepted no connection"),
        (
            &["--target-url", link_local],
            &[http],
            "unless that is allowed explicitly; set REQUEUE_ALLOW_LINK_LOCAL=true to allow it",
        ),
        (
            &["--target-url", link_local, "--wait-for-target", "0"],
            &[http, any_address],
            "accepted no connection",
        ),
        (
            &["--target-url", nobody, "--wait-for-target", "1"],
            &[],
            "accepted no connection within 1 s",
        ),
        (
            &[],
            &anonymous,
            "error: there are no AWS credentials in the environment or in AWS's files; log in \
             again with `aws sso login",
        ),
        (&[], &[("REQUEUE_CONCURRENCY", "0")], "REQUEUE_CONCURRENCY is `0`"),
    ];
    let both = shop.worker(&["--queue", "refused"], &[]).ended().await;
    assert!(both.0 == Some(2) && both.1.contains("cannot be used with"), "{both:?}");
    for (arguments, settings, words) in table {
        let (status, said) = shop.worker(arguments, settings).ended().await;
        assert!(
            status == Some(1) && said.contains("error: ") && said.contains(words),
            "{status:?} {said}"
        );
    }
    let (status, said) = shop.worker(&[], &[("AWS_ENDPOINT_URL_SQS", nobody)]).ended().await;
    assert_eq!(status, Some(1), "{said}");
    for words in [
        "error: there is no connection to http://127.0.0.1:9 (NoConnection: connection refused); ",
        "AWS_ENDPOINT_URL_SQS sets this endpoint: start the server there",
        "but requests go to http://127.0.0.1:9, as AWS_ENDPOINT_URL_SQS",
    ] {
        assert!(said.contains(words), "{said}");
    }
    let metadata = [
        ("AWS_EC2_METADATA_DISABLED", "false"),
        // No service of metadata, which the SDK says at length.
        ("AWS_EC2_METADATA_SERVICE_ENDPOINT", &*server.url()),
    ];
    for (level, is_told) in [(&[][..], false), (&[("RUST_LOG", "info")], true)] {
        let settings = [&anonymous[..], &metadata, level].concat();
        let (status, said) = shop.worker(&[], &settings).ended().await;
        assert!(
            status == Some(1) && said.contains("error: there are no AWS credentials"),
            "{said}"
        );
        assert_eq!(said.contains("provider failed to provide credentials"), is_told, "{said}");
    }
    shop.queue = shop.dead_letters.clone();
    let (status, said) = shop.worker(&[], &[]).ended().await;
    assert!(
        status == Some(1)
            && said.contains("refused-dlq has no redrive policy")
            && said.contains(REMEDY),
        "{said}"
    );
    let direct = format!("{}-gone", shop.dead_letters);
    let direct = [("REQUEUE_DEAD_LETTER", "direct"), ("REQUEUE_DEAD_LETTER_QUEUE_URL", &*direct)];
    let (status, said) = shop.worker(&[], &direct).ended().await;
    assert!(
        status == Some(1)
            && said.contains("error: REQUEUE_DEAD_LETTER_QUEUE_URL names arn:aws:sqs:"),
        "{said}"
    );
    assert!(said.contains(REMEDY) && !said.contains("Warn"), "{said}");
    let (status, said) =
        shop.worker(&["--without-dead-letter-queue", "--drain"], &[]).ended().await;
    assert!(status == Some(0) && said.contains("no redrive policy"), "{said}");
}

/// The SDK alone would use expired ones until the process ends, or until their own end.
#[tokio::test(flavor = "multi_thread")]
async fn it_reads_credentials_anew_that_sqs_refuses() {
    const KEYS: [&str; 2] = ["AKIAOLD", "AKIANEW"];
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("renewed-credentials");
    let path = file.to_str().unwrap().to_owned();
    let offered = Arc::new(Mutex::new(KEYS[0]));
    let asked = Arc::clone(&offered);
    let container = http::Server::start(move |_: Request<Incoming>| {
        let key = *asked.lock().unwrap();
        async move {
            Response::new(Full::from(format!(
                r#"{{"AccessKeyId":"{key}","SecretAccessKey":"s","Token":"t","Expiration":"2100-01-01T00:00:00Z"}}"#
            )))
        }
    })
    .await;
    let url = container.url();
    let nowhere = [("AWS_ACCESS_KEY_ID", ""), ("AWS_CONFIG_FILE", "/dev/null")];
    for source in
        [("AWS_SHARED_CREDENTIALS_FILE", &*path), ("AWS_CONTAINER_CREDENTIALS_FULL_URI", &*url)]
    {
        let offer = |key| {
            *offered.lock().unwrap() = key;
            let text = format!("[default]\naws_access_key_id={key}\naws_secret_access_key=s\n");
            std::fs::write(&file, text).unwrap();
        };
        offer(KEYS[0]);
        let server = EmbeddedSqs::new(Clock::system()).serve(0).await.unwrap();
        let proxy = Proxy::start(&server.url()).await;
        let shop = Shop::open(&proxy.url(), "renewed").await;
        let worker = shop.worker(&[], &[&nowhere[..], &[source]].concat());
        shop.send(vec![working(0, 1)]).await;
        shop.called(1).await;
        while shop.counts(&shop.queue).await != [0; 3] {
            sleep(Duration::from_millis(20)).await;
        }
        proxy.expire(KEYS[0]);
        sleep(Duration::from_millis(300)).await;
        offer(KEYS[1]);
        shop.send(vec![working(1, 1)]).await;
        shop.called(2).await;
        worker.signal("-TERM");
        let (status, said) = worker.ended().await;
        assert_eq!((status, shop.counts(&shop.queue).await), (Some(0), [0; 3]), "{said}");
        assert!((1..=6).contains(&proxy.seen().refused), "{source:?}: {}", proxy.seen().refused);
    }
}
