//! `requeue serve`: the endpoint and the queue that other programs are tried against.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::run::{file, requeue, requeue_with};

/// A served endpoint and queue; they end with this value.
struct Served {
    child: Child,
    lines: BufReader<ChildStdout>,
    endpoint: String,
    sqs: String,
    queue: String,
}

impl Served {
    fn start() -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_requeue"))
            .args(["serve", "--port", "0", "--sqs-port", "0"])
            .env_clear()
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut value = |name: &str| {
            let mut line = String::new();
            lines.read_line(&mut line).unwrap();
            line.strip_prefix(name).unwrap_or_else(|| panic!("{line}")).trim().to_owned()
        };
        let (endpoint, sqs) = (value("endpoint"), value("SQS").replace("AWS_ENDPOINT_URL_SQS=", ""));
        let (queue, _) = (value("queue"), value("dead letters"));
        Self { child, lines, endpoint, sqs, queue }
    }

    /// Status line and headers of the answer to this body.
    fn post(&self, body: &str) -> String {
        let (host, path) = self.endpoint.strip_prefix("http://").unwrap().split_once('/').unwrap();
        let mut stream = TcpStream::connect(host).unwrap();
        let length = body.len();
        write!(
            stream,
            "POST /{path} HTTP/1.1\r\nhost: {host}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap_or_default();
        answer
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn each_answer_can_be_asked_for() {
    let served = Served::start();
    for (answer, expected) in [
        ("ok", "HTTP/1.1 200 "),
        ("rate-limit", "HTTP/1.1 429 "),
        ("quota", "HTTP/1.1 403 "),
        ("unavailable", "HTTP/1.1 503 "),
        ("invalid", "HTTP/1.1 400 "),
        ("reset", ""),
    ] {
        let said = served.post(&format!(r#"{{"answer":"{answer}"}}"#));
        assert!(said.starts_with(expected) && said.is_empty() == expected.is_empty(), "{answer}: {said}");
    }
    assert!(served.post(r#"{"answer":"rate-limit"}"#).contains("retry-after: 5\r\n"));
    assert!(served.post("no JSON").starts_with("HTTP/1.1 200 "));
}

#[test]
fn the_readmes_examples_are_answered_as_it_says() {
    let served = Served::start();
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    let examples: Vec<(&str, &str)> = readme
        .lines()
        .filter_map(|line| line.strip_prefix("curl -i -d '")?.split_once("' http://127.0.0.1:8080/orders"))
        .collect();
    assert_eq!(examples.len(), 5);
    for (body, comment) in examples {
        let status = comment.trim().strip_prefix("# ").unwrap();
        assert!(served.post(body).starts_with(&format!("HTTP/1.1 {status} ")), "{body}");
    }
}

#[test]
fn an_invocation_meets_both_the_endpoint_and_the_queue() {
    let mut served = Served::start();
    let variables = [
        ("AWS_ENDPOINT_URL_SQS", served.sqs.as_str()),
        ("AWS_ACCESS_KEY_ID", "any"),
        ("AWS_SECRET_ACCESS_KEY", "any"),
        ("AWS_REGION", "us-east-1"),
    ];
    let options = ["--target-url", served.endpoint.as_str(), "--queue-url", &served.queue];
    // Received now, since the clock is real.
    let event = r#"{"Records": [{"messageId": "m-1", "receiptHandle": "r", "body": "{\"answer\":\"rate-limit\"}"}]}"#;
    let event = file("served-event.json", event);
    let run = requeue_with(&variables, &[&["invoke", &event], &options[..]].concat());
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert!(run.stderr.contains("a copy is in the queue; Lambda deletes the original"), "{}", run.stderr);
    assert_eq!(run.stdout, "{\"batchItemFailures\":[]}\n");
    let mut line = String::new();
    served.lines.read_line(&mut line).unwrap();
    assert_eq!(line, "  429  message m-1, retry 0\n");
}

#[test]
fn a_port_that_is_taken_is_named_with_the_remedy() {
    let served = Served::start();
    let (_, port) = served.sqs.rsplit_once(':').unwrap();
    let run = requeue(&["serve", "--port", "0", "--sqs-port", port]);
    assert_eq!(run.status, 1);
    assert!(run.stderr.starts_with(&format!("error: port {port} of 127.0.0.1 cannot be opened: ")), "{}", run.stderr);
    assert!(run.stderr.trim_end().ends_with("choose another with --sqs-port"), "{}", run.stderr);
}
