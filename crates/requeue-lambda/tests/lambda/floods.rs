//! A target that sends without end: frames of HTTP/2, and bodies of responses. It takes neither the
//! memory nor the descriptors of the process.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use requeue_testkit::certificate::Certificate;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::hostile::peak_memory;
use crate::runtime_api::{Ended, Function};
use crate::stage::{Stage, UNPROTECTED, failed, json};

/// One frame on a stream.
type FrameOf = fn(u32) -> Vec<u8>;

/// Frames that a peer may repeat.
const FLOODS: [(&str, FrameOf); 8] = [
    // The status 103 as a literal, and a field that the client would keep.
    ("interim", |id| frame(1, 4, id, b"\x08\x03103\x00\x04link\x0a0123456789")),
    ("ping", |_| frame(6, 0, 0, &[0; 8])),
    ("settings", |_| frame(4, 0, 0, &[0, 4, 0, 0, 255, 255])),
    ("window", |id| frame(8, 0, id, &[0, 0, 0, 1])),
    ("priority", |id| frame(2, 0, id, &[0; 5])),
    ("unknown", |id| frame(99, 0, id, &[0; 255])),
    ("continuation", |id| frame(9, 0, id, b"\x00\x04link\x0a0123456789")),
    ("data", |id| frame(0, 0, id, b"")),
];

fn frame(kind: u8, flags: u8, id: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [length[1], length[2], length[3], kind, flags];
    [&head[..], &id.to_be_bytes(), payload].concat()
}

/// The head of a response with the status 200, and whether it is all of it.
fn ok(id: u32, is_whole: bool) -> Vec<u8> {
    frame(1, if is_whole { 5 } else { 4 }, id, &[0x88])
}

/// Listens until it is dropped, and notes the bodies of the requests that it responds to.
struct Target {
    address: SocketAddr,
    bodies: Arc<Mutex<Vec<String>>>,
    accepting: JoinHandle<()>,
}

impl Target {
    /// Over TLS and HTTP/2, or over plain HTTP/1.1.
    async fn start(tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let bodies = Arc::<Mutex<Vec<String>>>::default();
        let log = Arc::clone(&bodies);
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, log) = (tls.clone(), Arc::clone(&log));
                connections.spawn(async move {
                    match tls {
                        Some(tls) => {
                            let Ok(stream) = tls.accept(stream).await else { return };
                            let _ = over_http2(stream, &log).await;
                        }
                        None => drop(without_end(stream, &log).await),
                    }
                });
            }
        });
        Self { address, bodies, accepting }
    }

    fn bodies(&self) -> Vec<String> {
        self.bodies.lock().unwrap().clone()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Floods the stream of each request as its body says, or responds to it.
async fn over_http2(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    log: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    stream.write_all(&frame(4, 0, 0, &[])).await?;
    stream.read_exact(&mut [0; 24]).await?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut payload).await?;
        let id = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        match (head[3], head[4] & 1) {
            (4, 0) => stream.write_all(&frame(4, 1, 0, &[])).await?,
            // Requests are small, so that one frame has the whole body.
            (0, 1) => {
                let body = String::from_utf8(payload).unwrap();
                let flood = json(&body).unwrap()["flood"].as_str().unwrap_or_default().to_owned();
                let Some((name, again)) = FLOODS.iter().find(|row| row.0 == flood) else {
                    stream.write_all(&ok(id, true)).await?;
                    log.lock().unwrap().push(body);
                    continue;
                };
                match *name {
                    "data" => stream.write_all(&ok(id, false)).await?,
                    "continuation" => stream.write_all(&frame(1, 0, id, &[0x88])).await?,
                    _ => {}
                }
                let flood = again(id).repeat(500);
                loop {
                    stream.write_all(&flood).await?;
                }
            }
            _ => {}
        }
    }
}

/// Responds with 200 and a body that never ends.
async fn without_end(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    log: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    loop {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some(body) = text.split_once("\r\n\r\n").map(|(_, body)| body)
            && json(body).is_some()
        {
            log.lock().unwrap().push(body.to_owned());
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nhalf").await?;
            bytes.clear();
        }
    }
}

/// Limits a running process with the `prlimit` of util-linux.
async fn limit(function: &Function, what: &str) {
    let pid = function.pid().unwrap().to_string();
    let limited = Command::new("prlimit").args(["--pid", &pid, what]).status().await;
    assert!(limited.expect("util-linux is installed").success());
}

#[tokio::test]
async fn frames_without_end_cost_little_memory_and_no_healthy_neighbour() {
    const TIMEOUT: Duration = Duration::from_secs(60);
    let certificate = Certificate::new("127.0.0.1", &[b"h2"]);
    let target = Target::start(Some(certificate.acceptor)).await;
    let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("floods-{}.pem", target.address.port()));
    std::fs::write(&root, certificate.pem).unwrap();
    let url = format!("https://{}/", target.address);
    for concurrency in ["10", "60"] {
        let stage = Stage::new().await;
        let settings = [
            ("REQUEUE_TARGET_URL", url.as_str()),
            ("SSL_CERT_FILE", root.to_str().unwrap()),
            ("REQUEUE_TIMEOUT_SECONDS", "10"),
            // Nobody reads the log while the function works.
            ("AWS_LAMBDA_LOG_LEVEL", "ERROR"),
            ("REQUEUE_METRICS", "off"),
            ("REQUEUE_CONCURRENCY", concurrency),
            UNPROTECTED,
        ];
        let mut function = stage.requeue_lambda(&settings).await;
        stage.send(r#"{"healthy":0}"#).await;
        stage.invoke(&mut function, TIMEOUT).await;
        limit(&function, "--data=268435456").await;
        let before = peak_memory(function.pid().unwrap());
        for (name, _) in FLOODS {
            for _ in 0..10 {
                stage.send(&format!(r#"{{"flood":"{name}"}}"#)).await;
            }
            stage.send(&format!(r#"{{"healthy":"{name}"}}"#)).await;
        }
        let begun = Instant::now();
        let (batch, ended) = stage.invoke(&mut function, TIMEOUT).await;
        assert_eq!(batch.message_ids().len(), FLOODS.len() * 11);
        // Nearly always each flood ends by its bound, within a second. On a busy machine some may last
        // for the timeout of their message; if all did, the batch would take longer than its timeout.
        assert!(begun.elapsed() < Duration::from_secs(45), "{:?}", begun.elapsed());
        assert!(matches!(ended, Ended::Response(_)), "{ended:?}: {}", function.stop().await);
        let grown = peak_memory(function.pid().unwrap()) - before;
        println!("at concurrency {concurrency}: {grown} KiB more than before");
        assert!(grown < 48 * 1024, "{grown} KiB more than before");
        // On a busy machine, one may still share a connection with a flood.
        for _ in 0..3 {
            stage.send(r#"{"healthy":1}"#).await;
            stage.invoke(&mut function, TIMEOUT).await;
        }
        let is_there = |body: &&str| target.bodies().iter().any(|seen| seen == body);
        assert!(is_there(&r#"{"healthy":1}"#), "the process works on");
        target.bodies.lock().unwrap().clear();
    }
    std::fs::remove_file(root).unwrap();
}

#[tokio::test]
async fn bodies_without_end_after_a_success_use_up_no_descriptors() {
    const MESSAGES: usize = 300;
    const TIMEOUT: Duration = Duration::from_secs(20);
    let target = Target::start(None).await;
    let stage = Stage::new().await;
    let url = format!("http://{}/", target.address);
    let settings =
        [("REQUEUE_TARGET_URL", url.as_str()), ("REQUEUE_CONCURRENCY", "10"), UNPROTECTED];
    let mut function = stage.requeue_lambda(&settings).await;
    limit(&function, "--nofile=64").await;
    for n in 0..MESSAGES {
        stage.send(&format!(r#"{{"n":{n}}}"#)).await;
    }
    let mut done = 0;
    while done < MESSAGES {
        let (batch, ended) = stage.invoke(&mut function, TIMEOUT).await;
        assert!(failed(&ended).is_empty(), "{ended:?}: {}", function.stop().await);
        done += batch.message_ids().len();
    }
    assert!(stage.messages().is_empty(), "nothing is sent again: {}", function.stop().await);
    let mut bodies = target.bodies();
    bodies.sort_unstable();
    bodies.dedup();
    assert_eq!((bodies.len(), target.bodies().len()), (MESSAGES, MESSAGES), "each was sent once");
}
