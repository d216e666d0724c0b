//! `requeue-lambda` and a target that is reached through an HTTP proxy, as `HTTPS_PROXY` and
//! `NO_PROXY` say.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hyper::Version;
use requeue_testkit::certificate::Certificate;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::stage::{CANARY, Stage, TIMEOUT, json};
use crate::tls::Target;

/// Only the proxy knows where that is.
const URL: &str = "https://orders.example/?canary-body-text";
const USERINFO: &str = "us%20er:canary%40pass@";
const AUTHORIZATION: &str = "Basic dXMgZXI6Y2FuYXJ5QHBhc3M=";

/// The behaviour of a proxy after the head of a `CONNECT`.
#[derive(Clone)]
enum Manner {
    /// It connects to this address, whatever it is asked for.
    Tunnels(String),
    Answers(String),
    NeverAnswers,
}

/// An HTTP proxy on loopback. Stops when it is dropped.
struct Proxy {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    async fn start(manner: Manner) -> Self {
        Self::over(None, manner).await
    }

    /// Reached over TLS if there is an acceptor.
    async fn over(tls: Option<TlsAcceptor>, manner: Manner) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free loopback port");
        let address = listener.local_addr().expect("a bound address");
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let log = Arc::clone(&heads);
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, manner, log) = (tls.clone(), manner.clone(), Arc::clone(&log));
                connections.spawn(async move {
                    match tls {
                        None => serve(stream, manner, log).await,
                        Some(tls) => {
                            serve(tls.accept(stream).await.expect("it trusts us"), manner, log)
                                .await;
                        }
                    }
                });
            }
        });
        Self { address, heads, accepting }
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    fn url(&self) -> String {
        format!("http://{USERINFO}{}", self.address)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    manner: Manner,
    log: Arc<Mutex<Vec<String>>>,
) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else { return };
        head.push(byte);
    }
    log.lock().unwrap().push(String::from_utf8(head).expect("ASCII"));
    match manner {
        Manner::Tunnels(address) => {
            let mut target = TcpStream::connect(address).await.expect("the target listens");
            let _ = stream
                .write_all(b"HTTP/1.1 200 Connection established\r\nVia: 1.1 proxy\r\n\r\n")
                .await;
            let _ = tokio::io::copy_bidirectional(&mut stream, &mut target).await;
        }
        Manner::Answers(answer) => {
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
        Manner::NeverAnswers => std::future::pending().await,
    }
}

fn path(target: &Target) -> &str {
    target.root.to_str().expect("a path in UTF-8")
}

/// No server listens on the port of tcpmux.
const NOBODY: &str = "http://127.0.0.1:1";

#[tokio::test]
async fn messages_go_through_the_tunnel_of_the_proxy_and_share_it() {
    for (protocols, expected) in
        [(&[&b"h2"[..], b"http/1.1"][..], Version::HTTP_2), (&[b"http/1.1"], Version::HTTP_11)]
    {
        let stage = Stage::new().await;
        let target = Target::start("orders.example", protocols).await;
        let proxy = Proxy::start(Manner::Tunnels(target.server.authority())).await;
        let url = proxy.url();
        // The lower case wins, as with curl.
        let proxies = [
            ("https_proxy", url.as_str()),
            ("HTTPS_PROXY", NOBODY),
            ("NO_PROXY", "127.0.0.1,example.com"),
        ];
        let settings = [
            ("REQUEUE_TARGET_URL", URL),
            ("SSL_CERT_FILE", path(&target)),
            ("AWS_LAMBDA_LOG_LEVEL", "TRACE"),
        ];
        let mut function = stage.requeue_lambda(&[&settings[..], &proxies].concat()).await;
        for _ in 0..3 {
            stage.send("{}").await;
            stage.invoke(&mut function, TIMEOUT).await;
        }
        let log = function.stop().await;
        assert!(stage.messages().is_empty(), "{log}");
        let connect = format!(
            "CONNECT orders.example:443 HTTP/1.1\r\nHost: orders.example:443\r\nProxy-Authorization: {AUTHORIZATION}\r\n\r\n"
        );
        assert_eq!(proxy.heads(), [connect]);
        assert_eq!((target.spoken(), target.server.accepted()), (vec![expected; 3], 1));
        assert!(
            target.headers().iter().all(|headers| !headers.contains_key("proxy-authorization"))
        );
        for told in ["canary", "us er", &AUTHORIZATION[6..]] {
            assert!(!log.contains(told), "{told}: {log}");
        }
    }
}

#[tokio::test]
async fn the_proxy_may_be_reached_over_tls() {
    let stage = Stage::new().await;
    let target = Target::start("orders.example", &[b"h2"]).await;
    let certificate = Certificate::new("127.0.0.1", &[]);
    let both = format!("{}{}", std::fs::read_to_string(&target.root).unwrap(), certificate.pem);
    std::fs::write(&target.root, both).unwrap();
    let proxy =
        Proxy::over(Some(certificate.acceptor), Manner::Tunnels(target.server.authority())).await;
    let url = format!("https://{}", proxy.address);
    let settings =
        [("REQUEUE_TARGET_URL", URL), ("SSL_CERT_FILE", path(&target)), ("HTTPS_PROXY", &url)];
    let mut function = stage.requeue_lambda(&settings).await;
    stage.send("{}").await;
    stage.invoke(&mut function, TIMEOUT).await;
    assert!(stage.messages().is_empty(), "{}", function.stop().await);
    assert_eq!(
        proxy.heads(),
        ["CONNECT orders.example:443 HTTP/1.1\r\nHost: orders.example:443\r\n\r\n"]
    );
    assert_eq!(target.spoken(), [Version::HTTP_2]);
}

#[tokio::test]
async fn an_exception_is_reached_without_the_proxy() {
    let target = Target::start("127.0.0.1", &[b"h2"]).await;
    let proxy = Proxy::start(Manner::Answers("HTTP/1.1 403 Forbidden\r\n\r\n".to_owned())).await;
    let (target_url, proxy_url) = (target.server.url(), proxy.url());
    for (count, exceptions) in [
        [("NO_PROXY", "127.0.0.1"), ("no_proxy", "")],
        [("no_proxy", "example.com, 127.0.0.0/8"), ("NO_PROXY", "example.com")],
        [("NO_PROXY", "*"), ("no_proxy", "")],
    ]
    .into_iter()
    .enumerate()
    {
        let stage = Stage::new().await;
        let settings = [
            ("REQUEUE_TARGET_URL", target_url.as_str()),
            ("SSL_CERT_FILE", path(&target)),
            ("HTTPS_PROXY", &proxy_url),
        ];
        let mut function = stage.requeue_lambda(&[&settings[..], &exceptions].concat()).await;
        stage.send("{}").await;
        stage.invoke(&mut function, TIMEOUT).await;
        assert!(stage.messages().is_empty(), "{}", function.stop().await);
        assert_eq!((target.spoken().len(), proxy.heads().len()), (count + 1, 0));
    }
}

#[tokio::test]
async fn a_message_waits_for_a_proxy_that_refuses_or_is_not_there() {
    let target = Target::start("orders.example", &[b"h2"]).await;
    let answers = |answer: &str| Manner::Answers(answer.to_owned());
    let large = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(9_000));
    for (manner, reason) in [
        (
            answers(
                "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=canary\r\n\r\ncanary",
            ),
            "proxy asks for user and password",
        ),
        (
            answers("HTTP/1.1 502 canary\r\nContent-Length: 6\r\n\r\ncanary"),
            "proxy refused the connection",
        ),
        (
            answers("HTTP/1.1 302 Found\r\nLocation: https://canary/\r\n\r\n"),
            "proxy refused the connection",
        ),
        (answers("SSH-2.0-canary\r\n\r\n"), "proxy refused the connection"),
        (answers(&large), "proxy's response is too large"),
        (answers("HTTP/1.1 200"), "proxy closed the connection"),
        (answers("HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 400 canary\r\n\r\n"), "connection closed early"),
        (Manner::NeverAnswers, "connect timed out"),
    ] {
        let proxy = Proxy::start(manner).await;
        requeued(&target, &proxy.url(), reason).await;
        assert_eq!(proxy.heads().len(), 1, "{reason}");
    }
    requeued(&target, NOBODY, "proxy not reached: connection refused").await;
    requeued(&target, "http://proxy.invalid:3128", "proxy not reached: host name not resolved")
        .await;
}

/// A message that finds no way to `target` is sent again, for this reason.
async fn requeued(target: &Target, proxy: &str, reason: &str) {
    let stage = Stage::new().await;
    let settings = [
        ("REQUEUE_TARGET_URL", URL),
        ("SSL_CERT_FILE", path(target)),
        ("HTTPS_PROXY", proxy),
        ("REQUEUE_CONNECT_TIMEOUT_SECONDS", "1"),
        ("AWS_LAMBDA_LOG_LEVEL", "TRACE"),
    ];
    let mut function = stage.requeue_lambda(&settings).await;
    stage.send(&format!(r#"{{"text":"{CANARY}"}}"#)).await;
    let started = Instant::now();
    stage.invoke(&mut function, TIMEOUT).await;
    assert!(started.elapsed() < Duration::from_secs(8), "{reason}: {:?}", started.elapsed());

    assert_eq!(target.server.accepted(), 0, "{reason}");
    let copies = stage.messages();
    assert_eq!(copies.len(), 1, "{reason}");
    assert_eq!(json(&copies[0].body).unwrap()["retryState"]["class"], "temporary", "{reason}");
    let log = function.stop().await;
    assert!(log.contains(&format!(r#""detail":"{reason}""#)), "{reason}: {log}");
    for told in ["canary", &AUTHORIZATION[6..]] {
        assert!(!log.contains(told), "{told}: {log}");
    }
}
