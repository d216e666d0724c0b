//! `--target`: the processes of the function, its output, and the errors of its start.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;

use requeue::printable::is_printable;
use serde_json::json;
use tokio::time::Instant;

use crate::served::{Served, bootstrap, program, run};
use crate::target::{Runtime, functions};

#[test]
fn a_target_that_cannot_be_invoked_is_refused_with_the_remedy() {
    for (arguments, words) in [
        (vec!["serve", "--target"], "<COMMAND>"),
        (vec!["serve", "--target", "--function", "x"], "cannot be used with"),
        (vec!["serve", "--sqs-port", "0", "--target", "--", "no-such"], "no-such does not exist"),
        (
            vec!["serve", "--visibility-timeout", "20", "--target", "--", "x"],
            "is shorter than --timeout 15s and 20 s more for Requeue",
        ),
        (vec!["invoke", "e.json", "--target"], "<COMMAND>"),
        (vec!["invoke", "e.json", "--", "x"], "--target"),
        (vec!["invoke", "e.json", "--target", "--target-url", "http://a", "--", "x"], "cannot be"),
    ] {
        let output = run(&arguments, &[]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(words), "{arguments:?}: {said}");
    }
}

#[test]
fn several_calls_at_once_are_several_processes() {
    let path = bootstrap("target-many", "");
    let options = ["--maximum-concurrency", "2", "--batch-size", "1"];
    let mut served = Served::start(&[&options[..], &["--target", "--", &path]].concat(), &[]);
    served.line("function started");
    served.send(&["hang", "ok-1", "ok-2"]);
    let mut gets: Vec<(String, String)> = Vec::new();
    while gets.len() < 3 {
        let line = served.line("| gets ");
        let (process, body) = line.split_once("| gets ").unwrap();
        gets.push((process.to_owned(), body.to_owned()));
    }
    let process = |of: &str| &gets.iter().find(|(_, body)| body == of).unwrap().0;
    // The one that hangs has a process of its own.
    assert!(process("ok-1") != process("hang") && process("ok-2") == process("ok-1"), "{gets:?}");
}

#[test]
fn a_queue_that_loses_reasons_or_messages_behind_a_target_is_told_so() {
    let path = bootstrap("target-warned", "");
    let (fifo, few) = (&["--queue", "orders.fifo"][..], &["--max-receive-count", "3"][..]);
    let (none, url) = (("OWN", ""), "REQUEUE_DEAD_LETTER_QUEUE_URL=http://127.0.0.1:");
    for (options, variable, warning) in [
        (fifo, none, Some(url)),
        (fifo, ("REQUEUE_DEAD_LETTER", "redrive"), None),
        (fifo, ("REQUEUE_MODE", "report"), None),
        (few, none, Some("--max-receive-count 3 is too small")),
        (few, ("REQUEUE_MESSAGES_PER_CALL", "1"), None),
        (
            fifo,
            ("REQUEUE_POLICY", r#"{"queues": {"orders.fifo": {"deadLetter": "redrive"}}}"#),
            None,
        ),
        (
            &["--queue", "orders", "--queue", "refunds"],
            ("REQUEUE_POLICY", r#"{"queues": {"refunds": {}, "order": {}}}"#),
            Some("an entry for the queue order, which is not served"),
        ),
        (&[few, &["--batch-size", "1"]].concat(), none, None),
        (&["--max-receive-count", "4"], none, None),
    ] {
        let served = Served::start(&[options, &["--target", "--", &path]].concat(), &[variable]);
        let warned = |line: &&String| line.contains(" warning: ");
        let warnings: Vec<&String> = served.seen.iter().filter(warned).collect();
        let is_right = match warning {
            Some(words) => warnings.len() == 1 && warnings[0].contains(words),
            None => warnings.is_empty(),
        };
        assert!(is_right, "{options:?} {variable:?}: {:#?}", served.seen);
    }
}

/// The pauses of the page's first state that has some.
fn pauses_of_page(served: &mut Served) -> String {
    let line = served.line("page  ");
    let (_, url) = line.split_once("http://127.0.0.1:").unwrap();
    let (port, token) = url.split_once("/?token=").unwrap();
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let cookie = format!("requeue-ui-{port}={token}");
    let host = format!("127.0.0.1:{port}");
    write!(stream, "GET /api/live/events HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\n\r\n")
        .unwrap();
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let state = |line: String| Some(line.split_once(r#""pauses":[{"#)?.1.to_owned());
    lines.find_map(state).expect("a state with pauses")
}

#[test]
fn a_pause_of_a_target_has_a_line_and_is_on_the_page() {
    let path = bootstrap("target-paused", "");
    let mut served = Served::start(&["--ui=0", "--target", "--", &path], &[]);
    served.send(&[r#"fail {"class": "rate-limit", "reason": "busy", "delaySeconds": 20}"#]);
    let pauses = pauses_of_page(&mut served);
    for part in [r#""reason":"busy""#, r#""restMs":1"#, r#""why":"paused""#] {
        assert!(pauses.contains(part), "{part}: {pauses}");
    }
    let is_told = |line: &String| line.contains(" paused until ") && line.ends_with("Z: busy");
    assert!(served.seen.iter().any(is_told) || is_told(&served.line(" paused until ")));
}

#[test]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
fn a_circuit_of_a_target_is_told_as_long_as_it_is_open() {
    let path = bootstrap("target-down", "");
    let mut served = Served::start(&["--ui=0", "--target", "--", &path], &[]);
    let down = r#"fail {"errorType": "BankUnavailable", "errorMessage": "status code 503"}"#;
    served.send(&[down; 10]);
    let pauses = pauses_of_page(&mut served);
    for part in [r#""reason":"service down: BankUnavailable""#, r#""why":"circuit-open""#] {
        assert!(pauses.contains(part), "{part}: {pauses}");
    }
    let line = served.line("a circuit is still open");
    let seconds = |name| line.split_once(name)?.1.split(' ').next()?.parse::<u64>().ok();
    assert!(seconds("troubleSeconds=").is_some_and(|time| (30..60).contains(&time)), "{line}");
    assert!(seconds("nextTrySeconds=").is_some_and(|time| time < 60), "{line}");
}

#[test]
fn a_target_has_the_handler_of_its_command() {
    let path = bootstrap("target-variables", "");
    for (variables, handler) in
        [(&[][..], "app.handler"), (&[("_HANDLER", "other.handler")], "other.handler")]
    {
        let arguments = ["--target", "--", &path, "app.handler"];
        let mut served = Served::start(&arguments, variables);
        served.line("function started");
        served.send(&["environment"]);
        served.line("  done  ");
        for line in [format!("_HANDLER={handler}"), "AWS_LAMBDA_FUNCTION_NAME=function".to_owned()]
        {
            let line = format!("1| {line}");
            assert!(served.seen.contains(&line), "{line} is not in {:#?}", served.seen);
        }
        assert!(!served.seen.iter().any(|line| line.contains("| REQUEUE_")), "{:#?}", served.seen);
    }
}

#[test]
fn an_error_at_the_start_is_shown_with_the_remedy() {
    for (runtime, error) in [
        (Runtime::Python, "Runtime.ImportModuleError"),
        (Runtime::Node, "Runtime.ImportModuleError"),
    ] {
        let Some(mut command) = runtime.command("plain") else { return };
        *command.last_mut().unwrap() = "missing.handler".to_owned();
        let words = command.iter().map(String::as_str);
        let words: Vec<&str> = ["--target", "--"].into_iter().chain(words).collect();
        let mut served =
            Served::start_in(&functions(), &words, &[("PYTHONDONTWRITEBYTECODE", "1")]);
        let line = served.line("function failed at its start: ");
        assert!(line.contains(error), "{line}");
        assert!(line.contains("; start in the directory of the handler's file"), "{line}");
        assert!(line.ends_with("; next start in 1 s"), "{line}");
    }
}

#[test]
fn a_program_that_is_no_runtime_interface_client_is_told_what_it_lacks() {
    let path = program("target-no-client", "exit 0");
    let mut served = Served::start(&["--target", "--", &path], &[]);
    served.line("it must be a runtime interface client, as in `-- python3 -m awslambdaric");
}

#[test]
fn a_target_cannot_forge_lines_of_serve() {
    let Some(command) = Runtime::Python.command("plain") else { return };
    let words = command.iter().map(String::as_str);
    let words: Vec<&str> = ["--target", "--"].into_iter().chain(words).collect();
    let mut served = Served::start_in(&functions(), &words, &[("PYTHONDONTWRITEBYTECODE", "1")]);
    served.line("function started");
    served.send(&[&json!({ "do": "forge" }).to_string()]);
    served.line(" #1 1 message: 1 deleted");
    let forged: Vec<&String> =
        served.seen.iter().filter(|line| line.contains("12:00:00")).collect();
    assert_eq!(forged.len(), 2, "{:#?}", served.seen);
    assert!(forged.iter().all(|line| line.starts_with("1| ") && line.chars().all(is_printable)));
}

#[test]
#[cfg(target_os = "linux")]
fn a_signal_ends_the_function_that_invoke_runs() {
    let path = program("target-ended", "sleep 303 & echo child $! >&2; wait");
    let event = crate::target::event(&["ok"], false);
    let mut invoke = crate::target::invoke("ended", &event, &[path], &[]);
    let mut invoke = invoke.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    let mut lines = std::io::BufReader::new(invoke.stderr.take().unwrap());
    while !line.contains("| child ") {
        line.clear();
        assert!(std::io::BufRead::read_line(&mut lines, &mut line).unwrap() > 0, "no child");
    }
    let child = line.split_whitespace().last().unwrap().to_owned();
    let runs = || std::path::Path::new("/proc").join(&child).exists();
    assert!(runs());
    let id = invoke.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    assert_eq!(invoke.wait().unwrap().code(), Some(130));
    let begun = Instant::now();
    // Its new parent reaps it.
    while runs() && begun.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!runs(), "{child}");
}
