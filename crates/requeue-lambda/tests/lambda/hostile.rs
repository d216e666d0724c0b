//! A target that means harm: it can neither hold up the function, nor fill its memory, nor send it
//! elsewhere, nor write into its log.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use requeue_testkit::http;
use requeue_testkit::tools::tool;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::frozen::Server;
use crate::stage::{Stage, TIMEOUT, UNPROTECTED, failed, json};

/// Compressed by gzip: 100,000 bytes of JSON that would mean a quota if they were decompressed.
const BOMB: &str = "H4sIAAAAAAACA+3GsQ2DMBAAwFXQj+E+UyAKFL7FwhApkuXdKViC4q66HtlabVH6kzPK3KPletY9Shy/eq2f/zdzyy3GMsYEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAvNYNbuXHKNGGAQA=";

/// A behaviour of the target, and its result: the class, whether the message is dead-lettered, and the
/// reason in the log.
const FATES: [(&str, &str, bool, &str); 16] = [
    ("silence", "temporary", false, " time"),
    ("a head that does not end", "temporary", false, "status 503"),
    ("headers that do not end", "temporary", false, "status 503"),
    ("a header of a megabyte", "temporary", false, "status 503"),
    ("interim answers that do not end", "temporary", false, "target sent too much"),
    ("no HTTP", "temporary", false, "head of the response too large or not HTTP"),
    ("one byte of the body at a time", "temporary", false, "status 503"),
    ("a body that does not end", "temporary", false, "status 503"),
    ("chunks that do not end", "temporary", false, "status 503"),
    ("a bomb", "non-retryable", true, "status 403"),
    ("a redirect for GET", "non-retryable", true, "status 302"),
    ("a redirect for POST", "non-retryable", true, "status 307"),
    ("a reset before the answer", "temporary", false, "connection reset"),
    ("a reset within the body", "temporary", false, "status 503"),
    ("secrets in the answer", "non-retryable", true, "status 400"),
    ("a delay without end", "rate-limit", false, "retry-after ignored: past, or over a year away"),
];

/// Responds to every message as its field `answer` says; redirects point to `elsewhere`.
struct Target {
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl Target {
    async fn start(elsewhere: String) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free loopback port");
        let address = listener.local_addr().expect("a bound address");
        let elsewhere: Arc<str> = elsewhere.into();
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(answer(stream, Arc::clone(&elsewhere)));
            }
        });
        Self { address, accepting }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// The body of the one request of this connection: whatever is answered must not leave it open for
/// another.
async fn request(stream: &mut TcpStream) -> Option<Value> {
    let mut bytes = Vec::new();
    loop {
        let read = stream.read_buf(&mut bytes).await.ok().filter(|read| *read > 0);
        read?;
        if let Some(body) =
            String::from_utf8_lossy(&bytes).split_once("\r\n\r\n").and_then(|(_, body)| json(body))
        {
            return Some(body);
        }
    }
}

async fn pour(stream: &mut TcpStream, head: &str, again: &[u8], pause: Duration) {
    let _ = stream.write_all(head.as_bytes()).await;
    while stream.write_all(again).await.is_ok() {
        tokio::time::sleep(pause).await;
    }
}

async fn answer(mut stream: TcpStream, elsewhere: Arc<str>) {
    const BUSY: &str = "HTTP/1.1 503 Busy\r\n";
    let Some(message) = request(&mut stream).await else { return };
    let reset = |stream: &TcpStream| stream.set_zero_linger().unwrap();
    let closing = "Content-Length: 0\r\nConnection: close\r\n\r\n";
    let (slowly, at_once) = (Duration::from_millis(100), Duration::ZERO);
    let whole = match message["answer"].as_str().unwrap() {
        "silence" => std::future::pending().await,
        "a head that does not end" => {
            return pour(&mut stream, &format!("{BUSY}X: "), b"x", slowly).await;
        }
        "one byte of the body at a time" => {
            return pour(&mut stream, &format!("{BUSY}Content-Length: 9999\r\n\r\n"), b"x", slowly)
                .await;
        }
        "a body that does not end" => {
            return pour(
                &mut stream,
                &format!("{BUSY}Content-Encoding: gzip\r\n\r\n"),
                &[0; 8 * 1024],
                at_once,
            )
            .await;
        }
        "chunks that do not end" => {
            return pour(
                &mut stream,
                &format!("{BUSY}Transfer-Encoding: chunked\r\n\r\n"),
                &b"1\r\nx\r\n".repeat(100),
                at_once,
            )
            .await;
        }
        "a bomb" => {
            let bomb = BASE64_STANDARD.decode(BOMB).unwrap();
            let head = format!(
                "HTTP/1.1 403 No\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                bomb.len()
            );
            [head.as_bytes(), &bomb].concat()
        }
        "a header of a megabyte" => {
            format!("{BUSY}X: {}\r\n{closing}", "x".repeat(1_000_000)).into()
        }
        "headers that do not end" => {
            return pour(&mut stream, BUSY, &b"X: y\r\n".repeat(100), at_once).await;
        }
        "interim answers that do not end" => {
            return pour(
                &mut stream,
                "",
                &b"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(100),
                at_once,
            )
            .await;
        }
        "a redirect for GET" => {
            format!("HTTP/1.1 302 Go\r\nLocation: {elsewhere}\r\n{closing}").into()
        }
        "a redirect for POST" => {
            format!("HTTP/1.1 307 Go\r\nLocation: {elsewhere}\r\n{closing}").into()
        }
        "a reset before the answer" => return reset(&stream),
        "a reset within the body" => {
            let _ = stream
                .write_all(format!("{BUSY}Content-Length: 9999\r\n\r\nhalf").as_bytes())
                .await;
            tokio::time::sleep(slowly).await;
            return reset(&stream);
        }
        "no HTTP" => b"SSH-2.0-OpenSSH_9.6\r\n".to_vec(),
        "secrets in the answer" => {
            format!("HTTP/1.1 400 canary\r\nSet-Cookie: canary\r\nLocation: /canary\r\n{closing}")
                .into()
        }
        "a delay without end" => {
            format!("HTTP/1.1 429 Slow\r\nRetry-After: 99999999999999999999\r\n{closing}").into()
        }
        unknown => panic!("{unknown}"),
    };
    let _ = stream.write_all(&whole).await;
    // Whatever is unread when a socket closes makes a reset of it.
    let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
}

/// The most memory that a process had at once, in KiB.
#[cfg(target_os = "linux")]
pub fn peak_memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[cfg(not(target_os = "linux"))]
pub fn peak_memory(_: u32) -> u64 {
    0
}

#[tokio::test]
async fn no_answer_costs_time_or_memory_or_is_followed_or_told() {
    for format in ["JSON", "Text"] {
        let stage = Stage::new().await;
        let elsewhere =
            http::Server::start(|_| async { http::status(hyper::StatusCode::OK) }).await;
        let target = Target::start(format!("{}/canary", elsewhere.url())).await;
        let url = format!("http://{}/canary?canary", target.address);
        let secret = format!("whsec_{}", BASE64_STANDARD.encode("canary, canary, canary, canary"));
        let settings = [
            ("REQUEUE_TARGET_URL", url.as_str()),
            ("REQUEUE_TIMEOUT_SECONDS", "2.5"),
            ("REQUEUE_CONCURRENCY", "100"),
            UNPROTECTED,
            ("REQUEUE_HEADERS", r#"{"Authorization": "Bearer canary"}"#),
            ("REQUEUE_ATTRIBUTE_HEADERS", "tenant=X-Tenant"),
            ("REQUEUE_SIGNING_SECRET", secret.as_str()),
            ("AWS_LAMBDA_LOG_LEVEL", "TRACE"),
            ("AWS_LAMBDA_LOG_FORMAT", format),
        ];
        let mut function = stage.requeue_lambda(&settings).await;
        let attributes = [("tenant", "canary-tenant"), ("Body.ContentType", "text/canary")];
        let body = |answer: &str| format!(r#"{{"text":"canary","answer":"{answer}"}}"#);
        stage.send_with(&body("secrets in the answer"), &attributes).await;
        stage.invoke(&mut function, TIMEOUT).await;
        let before = peak_memory(function.pid().unwrap());

        let mut ids = Vec::new();
        for (answer, ..) in FATES {
            ids.push(stage.send_with(&body(answer), &attributes).await);
        }
        let begun = Instant::now();
        let (batch, ended) = stage.invoke(&mut function, TIMEOUT).await;
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        assert_eq!(batch.message_ids().len(), FATES.len());
        let grown = peak_memory(function.pid().unwrap()) - before;
        assert!(grown < 16 * 1024, "{grown} KiB more than before");
        assert_eq!(elsewhere.accepted(), 0, "no redirect is followed");

        let log = function.stop().await;
        for (id, (answer, class, is_dead_lettered, reason)) in ids.iter().zip(FATES) {
            assert_eq!(failed(&ended).contains(id), is_dead_lettered, "{answer}");
            let of_it = |line: &&str| {
                line.contains(id.as_str()) && line.contains(class) && line.contains(reason)
            };
            assert!(log.lines().any(|line| of_it(&line)), "{answer}: {log}");
        }
        assert!(!log.contains("signing request"), "not even what the SDK redacts: {log}");
        // Searches for it as text, as the bytes of a `Debug`, and as base64.
        for told in ["canary", "99, 97, 110, 97, 114, 121", "whsec_", "v1,", "Y2FuYXJ5"] {
            assert!(!log.contains(told), "{told} in the log: {log}");
        }
    }
}

#[tokio::test]
async fn bodies_that_do_not_end_cost_no_more_memory_if_they_are_many() {
    let stage = Stage::new().await;
    let target = Target::start(String::new()).await;
    let url = format!("http://{}/", target.address);
    let mut function =
        stage.requeue_lambda(&[("REQUEUE_TARGET_URL", &url), ("REQUEUE_CONCURRENCY", "100")]).await;
    let body = r#"{"answer":"a body that does not end"}"#;
    stage.send(body).await;
    stage.invoke(&mut function, TIMEOUT).await;
    let before = peak_memory(function.pid().unwrap());
    for _ in 0..30 {
        stage.send(body).await;
    }
    let begun = Instant::now();
    stage.invoke(&mut function, TIMEOUT).await;
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let grown = peak_memory(function.pid().unwrap()) - before;
    assert!(grown < 16 * 1024, "{grown} KiB more than before");
    assert_eq!(
        stage.ids().iter().filter(|(_, original)| original.is_some()).count(),
        31,
        "all are to be tried again"
    );
}

/// A body of many small objects, which take a hundred times their text in memory.
#[tokio::test]
async fn a_scope_in_the_body_costs_no_more_memory_than_none() {
    let body = format!(r#"{{"account":{{"id":7}},"all":[{}0]}}"#, r#"{"":0},"#.repeat(140_000));
    let mut peaks = Vec::new();
    for settings in [&[][..], &[("REQUEUE_SCOPE", "/account/id")]] {
        let stage = Stage::new().await;
        let mut function = stage.requeue_lambda(settings).await;
        for _ in 0..4 {
            stage.send(&body).await;
        }
        stage.invoke(&mut function, TIMEOUT).await;
        assert_eq!(stage.target.requests().len(), 4);
        peaks.push(peak_memory(function.pid().unwrap()));
    }
    println!("KiB at most, without a scope and with one: {peaks:?}");
    assert!(peaks[1] < peaks[0] + 8 * 1024, "KiB at most, without a scope and with one: {peaks:?}");
}

/// nginx closes a connection for a header that is too long. Over HTTP/2 other messages share that
/// connection.
#[tokio::test]
async fn a_message_that_makes_headers_too_long_fails_no_neighbour_before_nginx() {
    let Some(nginx) = tool("REQUEUE_TEST_NGINX") else { return };
    let server = Server::nginx(&nginx, TIMEOUT, true).started().await;
    let stage = Stage::new().await;
    let root = server.root().expect("it has a certificate");
    let settings = [
        ("REQUEUE_TARGET_URL", server.url.as_str()),
        ("SSL_CERT_FILE", &root),
        ("REQUEUE_ATTRIBUTE_HEADERS", "tenant=X-Tenant"),
    ];
    let mut function = stage.requeue_lambda(&settings).await;
    let (long, parent) =
        ("x".repeat(40_000), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    let mut poison = Vec::new();
    for n in 0..60 {
        match n {
            20 => poison.push(stage.send_with("{}", &[("tenant", &long)]).await),
            25 => poison.push(stage.send_with("{}", &[("Body.ContentType", &long)]).await),
            // Goes without its state.
            30 => {
                drop(
                    stage.send_with("{}", &[("traceparent", parent), ("tracestate", &long)]).await,
                );
            }
            _ => drop(stage.send("{}").await),
        }
    }
    poison.sort_unstable();
    let (batch, ended) = stage.invoke(&mut function, TIMEOUT).await;
    assert_eq!(batch.message_ids().len(), 60);
    assert_eq!(failed(&ended), poison);
    let left = stage.messages();
    assert_eq!(left.len(), poison.len(), "no neighbour is tried again: {}", function.stop().await);
}
