//! The output of a worker in a terminal, and its behaviour if nobody reads the output.

use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use requeue::Clock;
use requeue::embedded::{EmbeddedSqs, Fault};
use requeue_testkit::terminal::in_terminal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Child;
use tokio::time::{Instant, sleep, timeout};

use crate::shop::Shop;

const PATIENCE: Duration = Duration::from_secs(20);
const CLEARED: &str = "\r\u{1b}[2K";
/// Clears the line above, if there were two.
const CLEARED_ABOVE: &str = "\u{1b}[1A\u{1b}[2K";

/// A worker in a terminal.
fn typed(shop: &Shop, columns: &str, options: &[&str], settings: &[(&str, &str)]) -> Child {
    let path = std::env::var("PATH").unwrap();
    let home = std::env::var("HOME").unwrap_or_default();
    let settings = [&[("PATH", &*path), ("HOME", &home), ("TERM", "xterm")][..], settings].concat();
    let worker = [env!("CARGO_BIN_EXE_requeue"), "work", "--queue-url", &shop.queue];
    let command = [&in_terminal(columns)[..], &worker, options].concat();
    let mut command = shop.command(&command, &settings);
    command.stdin(Stdio::piped()).spawn().unwrap()
}

/// Presses Ctrl-C when this text is on the terminal. Returns the status and everything on it.
async fn ended_at(mut child: Child, text: &str, first: impl FnOnce()) -> (Option<i32>, String) {
    let (mut screen, mut said, mut some) = (child.stdout.take().unwrap(), Vec::new(), [0; 4_096]);
    let (mut keyboard, mut first) = (child.stdin.take(), Some(first));
    let reading = async {
        loop {
            let read = screen.read(&mut some).await.unwrap();
            said.extend_from_slice(&some[..read]);
            let all = String::from_utf8_lossy(&said);
            if read == 0 {
                return all.into_owned();
            }
            if all.contains(text)
                && let (Some(first), Some(mut keyboard)) = (first.take(), keyboard.take())
            {
                first();
                keyboard.write_all(b"\x03").await.unwrap();
            }
        }
    };
    let said = timeout(PATIENCE, reading).await.unwrap();
    (child.wait().await.unwrap().code(), said)
}

/// Everything that comes to be on a terminal on which a worker has a failing message, trouble and
/// then a Ctrl-C.
async fn watched(name: &str, columns: &str, settings: &[(&str, &str)]) -> (Option<i32>, String) {
    let sqs = EmbeddedSqs::new(Clock::system());
    let server = sqs.serve(0).await.unwrap();
    let shop = Shop::open(&server.url(), name).await;
    shop.send(vec![r#"{"n":0,"work":700}"#.to_owned(), r#"{"n":1,"work":4000}"#.to_owned()]).await;
    let mut child = typed(&shop, columns, &[], settings);
    let mut keyboard = child.stdin.take().unwrap();
    // The receiver that is not at work.
    sqs.set_faults(|call| match call.operation.as_str() {
        "ReceiveMessage" if call.of_operation > 2 => Fault::refuse(503, "ServiceUnavailable"),
        "ReceiveMessage" if call.of_operation == 2 => {
            Fault::after(Duration::from_secs(1), Fault::LoseRequest)
        }
        _ => Fault::None,
    });
    shop.called(1).await;
    sleep(Duration::from_millis(1_700)).await;
    keyboard.write_all(b"\x03").await.unwrap();
    let output = timeout(PATIENCE, child.wait_with_output()).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    server.stop().await;
    (output.status.code(), said)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_has_settings_a_line_of_progress_and_a_line_for_each_trouble() {
    let plain = [("NO_COLOR", "1")];
    let (wide, narrow) = tokio::join!(watched("wide", "100", &[]), watched("narrow", "40", &plain));
    for (columns, name, (status, said)) in [(100, "wide", wide), (40, "narrow", narrow)] {
        assert_eq!(status, Some(0), "{said:?}");
        let (begun, drawn) = said.split_once("table         none\r\n").unwrap();
        assert!(begun.contains(&format!(":{name}\r\ntarget        http://127.0.0.1:")), "{said:?}");
        // Log lines have their time.
        let begun = begun.replace("\r\n  ", " ");
        assert!(begun.contains("  WARN the queue's visibility timeout is shorter"), "{said:?}");
        let drawn: Vec<&str> = drawn.split(CLEARED).collect();
        let (last, before) = drawn.split_last().unwrap();
        let last = last.replace(CLEARED_ABOVE, "").replace("\r\n  ", " ");
        let counts = "2 receives: 2 done, 0 to retry, 0 dead-lettered, 0 deferred or released\r\n";
        assert!(last.starts_with(counts), "{said:?}");
        let screens = || before.iter().map(|screen| screen.replace(CLEARED_ABOVE, ""));
        let width = |line: &str| line.chars().count();
        let fits =
            |screen: String| screen.split("\r\n").all(|line| width(line) < columns + "^C".len());
        assert!(screens().all(fits), "{said:?}");
        let screens = || screens().map(|screen| screen.replace("\r\n  ", " "));
        // The narrow terminal has the counts below.
        let counts = if columns == 100 { " │ " } else { "\r\n" };
        let progress = format!("{name} 0 waiting{counts}");
        assert!(screens().any(|screen| screen.starts_with(&progress)), "{said:?}");
        let is_shown = |first: &str, then: &str| {
            screens().any(|screen| screen.contains(first) && screen.contains(then))
        };
        assert!(is_shown("\r\nending: 1 handler still", "a second Ctrl-C"), "{said:?}");
        assert!(is_shown("\r\nSQS http://127", " ×2; "), "{said:?}");
        assert!(!said.contains("receiving fail"), "{said:?}");
        let plain = said.replace(CLEARED, "").replace(CLEARED_ABOVE, "");
        assert!(columns == 100 || !plain.contains('\u{1b}'), "no colour: {said:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_service_that_stops_responding_is_told_before_its_requests_fail() {
    let sqs = EmbeddedSqs::new(Clock::system());
    let server = sqs.serve(0).await.unwrap();
    let shop = Shop::open(&server.url(), "silent").await;
    shop.send(vec![r#"{"n":0,"answer":"invalid"}"#.to_owned()]).await;
    sqs.set_faults(|call| match call.operation.as_str() {
        "DeleteMessage" | "DeleteMessageBatch" => Fault::Hang,
        _ => Fault::None,
    });
    let child = typed(&shop, "80", &[], &[("REQUEUE_DEAD_LETTER", "annotate")]);
    let silent = format!("\r\nSQS {}: no response to sqs:DeleteMessage for ", server.url());
    let (status, said) = ended_at(child, &silent, || sqs.clear_faults()).await;
    assert_eq!(status, Some(0), "{said:?}");
    let said = said.replace("\r\n  ", " ");
    assert!(
        said.contains("note: copies of messages that were dead-lettered may still be in silent"),
        "{said:?}"
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_tells_what_may_be_handled_twice() {
    for (name, body, fault, at, ends) in [
        (
            "cut-off",
            r#"{"n":0,"work":60000}"#,
            None,
            "1 running",
            [
                "receive 1 of 3  left to SQS (shutting-down)",
                "1 receive: 0 done, 0 to retry, 0 dead-lettered, 1 deferred or released",
                "note: 1 call was cut off at the end and may have worked; SQS delivers the messages again",
            ],
        ),
        (
            "not-deleted",
            r#"{"n":0}"#,
            Some(("DeleteMessageBatch", Fault::Hang, 9)),
            "1 done",
            [
                "attempt 1  done",
                "1 receive: 1 done, 0 to retry, 0 dead-lettered, 0 deferred or released; 1 not confirmed",
                "note: done or copied, but not confirmed as deleted: 1 message, which SQS may deliver again",
            ],
        ),
        (
            "in-doubt",
            r#"{"n":0,"answer":"unavailable"}"#,
            Some(("SendMessageBatch", Fault::LoseResponse, 2)),
            "the copy may exist",
            [
                "left to SQS (the copy may exist: ConnectionLost; 503)",
                "0 done, 0 to retry, 0 dead-lettered, ",
                "note: SQS did not confirm 2 copies; those that it stored are handled too",
            ],
        ),
        (
            "sent-twice",
            r#"{"n":0,"answer":"unavailable"}"#,
            Some(("SendMessageBatch", Fault::LoseResponse, 1)),
            "1 retried",
            [
                "attempt 1  503 → retry in ",
                " (1 copy unconfirmed)",
                "note: SQS did not confirm 1 copy; those that it stored are handled too",
            ],
        ),
    ] {
        let sqs = EmbeddedSqs::new(Clock::system());
        let server = sqs.serve(0).await.unwrap();
        let shop = Shop::open(&server.url(), name).await;
        shop.send(vec![body.to_owned()]).await;
        let before = fault.as_ref().map_or(0, |(operation, ..)| sqs.call_count(operation));
        sqs.set_faults(move |call| match &fault {
            Some((operation, fault, times))
                if call.operation == *operation && call.of_operation <= before + *times =>
            {
                fault.clone()
            }
            _ => Fault::None,
        });
        let child = typed(&shop, "120", &["--verbose", "--shutdown-timeout", "2s"], &[]);
        let (status, said) = ended_at(child, at, || {}).await;
        assert_eq!(status, Some(0), "{said:?}");
        for end in ends {
            assert!(said.contains(end), "{name}: {said:?}");
        }
        let left = said.contains(&format!("note: still in {name}: about "));
        // Whether SQS counted the done one before its end depends on the moment.
        assert!(left || name == "not-deleted", "{said:?}");
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
async fn a_log_that_nobody_reads_any_more_ends_no_worker() {
    let server = EmbeddedSqs::new(Clock::system()).serve(0).await.unwrap();
    let shop = Shop::open(&server.url(), "unread").await;
    shop.send((0..50).map(|n| format!(r#"{{"n":{n},"answer":"invalid"}}"#)).collect()).await;
    let worker = [env!("CARGO_BIN_EXE_requeue"), "work", "--queue-url", &shop.queue, "--drain"];
    let mut child = shop.command(&worker, &[("REQUEUE_DEAD_LETTER", "annotate")]).spawn().unwrap();
    // Like `head -1` for both streams.
    let mut log = child.stdout.take().unwrap();
    log.read_u8().await.unwrap();
    drop((log, child.stderr.take()));
    let status = timeout(PATIENCE, child.wait()).await.unwrap().unwrap();
    assert_eq!(
        (status.code(), shop.counts(&shop.queue).await, shop.dead().await.len()),
        (Some(0), [0; 3], 50),
        "{status}"
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
async fn a_log_that_nobody_reads_for_a_while_holds_the_work_up_and_loses_nothing() {
    let server = EmbeddedSqs::new(Clock::system()).serve(0).await.unwrap();
    let shop = Shop::open(&server.url(), "held-up").await;
    // Many times what a pipe holds.
    shop.send(
        (0..1_000).map(|n| format!(r#"{{"n":{n},"answer":"rate-limit","times":1}}"#)).collect(),
    )
    .await;
    let worker = [env!("CARGO_BIN_EXE_requeue"), "work", "--queue-url", &shop.queue, "--drain"];
    let child = shop.command(&worker, &[]).spawn().unwrap();
    sleep(Duration::from_secs(3)).await;
    let called = shop.calls().len();
    sleep(Duration::from_secs(4)).await;
    assert!(called < 1_000 && called == shop.calls().len(), "{called} and {}", shop.calls().len());
    let output = timeout(PATIENCE * 2, child.wait_with_output()).await.unwrap().unwrap();
    assert_eq!(
        (output.status.code(), shop.counts(&shop.queue).await, shop.dead().await.len()),
        (Some(0), [0; 3], 0)
    );
    let mut done: Vec<usize> =
        shop.calls().iter().filter(|call| call.is_accepted).map(|call| call.n).collect();
    done.sort_unstable();
    done.dedup();
    assert_eq!(done.len(), 1_000);
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_a_worker_whose_log_nobody_reads() {
    /// Fills the 64 KiB of a pipe up to a rest that is too small for the lines of ten messages.
    const FILLED: usize = (64 << 10) - 1_500;
    let server = EmbeddedSqs::new(Clock::system()).serve(0).await.unwrap();
    for (signal, status) in [("-TERM", 143), ("-INT", 130)] {
        let shop = Shop::open(&server.url(), &format!("full{signal}")).await;
        shop.send((0..50).map(|n| format!(r#"{{"n":{n},"answer":"invalid"}}"#)).collect()).await;
        let (_unread, mut full) = std::io::pipe().unwrap();
        full.write_all(&vec![b'\n'; FILLED]).unwrap();
        let worker = [env!("CARGO_BIN_EXE_requeue"), "work", "--queue-url", &shop.queue];
        let mut child = shop.command(&worker, &[]).stdout(full).spawn().unwrap();
        shop.called(10).await;
        let id = child.id().unwrap().to_string();
        let end = Instant::now() + PATIENCE;
        // Signals that follow at once may be seen as one.
        let ended = loop {
            assert!(
                std::process::Command::new("kill").args([signal, &id]).status().unwrap().success()
            );
            match timeout(Duration::from_millis(300), child.wait()).await {
                Ok(ended) => break ended.unwrap(),
                Err(_) => assert!(Instant::now() < end, "{signal} does not end it"),
            }
        };
        assert_eq!(ended.code(), Some(status), "{ended}");
    }
}
