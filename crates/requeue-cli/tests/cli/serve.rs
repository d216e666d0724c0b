//! `requeue serve`: the endpoint and the queue that other programs are tried against.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use requeue_testkit::repository;

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
        let (endpoint, sqs) = (value("endpoint"), value("SQS"));
        let (queue, _) = (value("queue"), value("dead letters"));
        assert_eq!(
            value("export"),
            format!(
                "AWS_ENDPOINT_URL_SQS={sqs} AWS_REGION=us-east-1 AWS_DEFAULT_REGION=us-east-1 \
                 AWS_ACCESS_KEY_ID=any AWS_SECRET_ACCESS_KEY=any"
            )
        );
        Self { child, lines, endpoint, sqs, queue }
    }

    /// Status line and headers of the response to this body.
    fn post(&self, body: &str) -> String {
        let host = address(&self.endpoint);
        said(
            &self.endpoint,
            &format!(
                "host: {host}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            ),
        )
    }
}

/// Host and port of a URL.
fn address(url: &str) -> &str {
    url.strip_prefix("http://").unwrap().split('/').next().unwrap()
}

/// The response to a request with this text after its first line, as far as the endpoint sends it.
fn said(url: &str, rest: &str) -> String {
    let mut stream = TcpStream::connect(address(url)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let path = url.strip_prefix("http://").unwrap().split_once('/').map_or("", |(_, path)| path);
    // It may have been refused before it was sent.
    let _ = write!(stream, "POST /{path} HTTP/1.1\r\n{rest}");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
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
        ("error", "HTTP/1.1 500 "),
        ("invalid", "HTTP/1.1 400 "),
        ("reset", ""),
    ] {
        let said = served.post(&format!(r#"{{"answer":"{answer}"}}"#));
        assert!(
            said.starts_with(expected) && said.is_empty() == expected.is_empty(),
            "{answer}: {said}"
        );
    }
    assert!(served.post(r#"{"answer":"rate-limit"}"#).contains("retry-after: 5\r\n"));
    assert!(served.post("no JSON").starts_with("HTTP/1.1 200 "));
}

#[test]
fn the_pages_examples_are_answered_as_it_says() {
    let served = Served::start();
    let page = std::fs::read_to_string(repository("docs/start/http-target.md")).unwrap();
    let examples: Vec<&str> = page
        .lines()
        .filter_map(|line| {
            line.strip_prefix("curl -i -d '")?.strip_suffix("' http://127.0.0.1:8080/orders")
        })
        .collect();
    let (_, statuses) = page.split_once("the statuses ").unwrap();
    let (statuses, _) = statuses.split_once(':').unwrap();
    let statuses: Vec<&str> =
        statuses.split([',', ' ', '\n']).filter(|word| word.parse::<u16>().is_ok()).collect();
    assert_eq!((examples.len(), statuses.len()), (5, 5));
    for (body, status) in examples.iter().zip(statuses) {
        assert!(served.post(body).starts_with(&format!("HTTP/1.1 {status} ")), "{body}");
    }
}

#[test]
fn the_page_shows_how_the_service_of_the_example_responds() {
    let text = |path: &str| std::fs::read_to_string(repository(path)).unwrap();
    let page = text("docs/start/http-target.md");
    let (_, shown) = page.split_once("```js\n").unwrap();
    let (shown, _) = shown.split_once("```").unwrap();
    assert!(text("examples/http-service/service.mjs").contains(shown), "{shown}");
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
    assert!(
        run.stderr.contains("a copy is in the queue; Lambda deletes the original"),
        "{}",
        run.stderr
    );
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
    assert!(
        run.stderr.starts_with(&format!("error: port {port} of 127.0.0.1 cannot be opened: ")),
        "{}",
        run.stderr
    );
    assert!(
        run.stderr.trim_end().ends_with("choose another one with --sqs-port"),
        "{}",
        run.stderr
    );
}

#[test]
fn only_requests_to_this_machine_of_no_web_page_and_of_a_bounded_size_are_read() {
    let served = Served::start();
    let list = "x-amz-target: AmazonSQS.ListQueues\r\n";
    for url in [&served.endpoint, &served.sqs] {
        let port = address(url).rsplit_once(':').unwrap().1;
        let own = address(url);
        for (host, status) in [
            (own.to_owned(), 200),
            (format!("localhost:{port}"), 200),
            (format!("{own}\r\norigin: http://{own}\r\nsec-fetch-site: same-origin"), 200),
            ("rebound.example".to_owned(), 421),
            (format!("rebound.example:{port}"), 421),
            (format!("{own}\r\norigin: https://page.example"), 403),
            (format!("{own}\r\norigin: http://localhost:3000"), 403),
            (format!("{own}\r\norigin: null"), 403),
            (format!("{own}\r\nsec-fetch-site: cross-site"), 403),
        ] {
            let answer = said(
                url,
                &format!(
                    "{list}host: {host}\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}"
                ),
            );
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{url} {host}: {answer}");
            assert_eq!(
                answer.contains("orders"),
                status == 200 && *url == served.sqs,
                "{host}: {answer}"
            );
        }
        let large = said(url, "host: localhost\r\ncontent-length: 300000000\r\n\r\n");
        assert!(large.starts_with("HTTP/1.1 413 "), "{url}: {large}");
        // Without a length, the request ends at the bound; the response may be lost with the rest
        // of the request.
        let chunk = format!("100000\r\n{}\r\n", "x".repeat(0x10_0000));
        let endless = said(
            url,
            &format!("host: localhost\r\ntransfer-encoding: chunked\r\n\r\n{}", chunk.repeat(20)),
        );
        assert!(endless.is_empty() || endless.starts_with("HTTP/1.1 413 "), "{url}: {endless}");
    }
    assert!(served.post(r#"{"answer":"quota"}"#).starts_with("HTTP/1.1 403 "));
}

#[test]
fn clients_that_say_nothing_keep_nobody_out() {
    let served = Served::start();
    let mut silent = Vec::new();
    for url in [&served.endpoint, &served.sqs] {
        for begun in [
            "",
            "POST / HTTP/1.1\r\nhost: local",
            "POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{",
        ] {
            for _ in 0..100 {
                let mut stream = TcpStream::connect(address(url)).unwrap();
                stream.write_all(begun.as_bytes()).unwrap();
                silent.push(stream);
            }
        }
    }
    for _ in 0..3 {
        assert!(served.post(r#"{"answer":"ok"}"#).starts_with("HTTP/1.1 200 "));
    }
}
