//! Unused connections to AWS and to the target that died while Lambda froze the environment. No try
//! is to meet one of them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Request, Response};
use requeue_testkit::http;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::frozen::signal;
use crate::runtime_api::Ended;
use crate::stage::{Stage, TIMEOUT};

/// The answer of a gateway to a packet of a connection that it has forgotten.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Forgotten {
    Reset,
    /// None.
    Swallowed,
}

/// A gateway that can forget all its connections, as they notice only when they send something.
struct Gateway {
    address: SocketAddr,
    /// Counts up whenever it forgets.
    forget: watch::Sender<u32>,
    open: Arc<AtomicUsize>,
    /// The forgotten connections that were used.
    met: Arc<AtomicUsize>,
    accepting: JoinHandle<()>,
}

impl Gateway {
    async fn before(server: &str, forgotten: Forgotten) -> Self {
        let server = server.trim_start_matches("http://").trim_end_matches('/').to_owned();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free loopback port");
        let address = listener.local_addr().unwrap();
        let (forget, told) = watch::channel(0);
        let (open, met) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (opened, used) = (Arc::clone(&open), Arc::clone(&met));
        let accepting = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (server, opened, used) = (server.clone(), opened.clone(), used.clone());
                let mut told = told.clone();
                told.mark_unchanged();
                connections.spawn(async move {
                    opened.fetch_add(1, Ordering::SeqCst);
                    let client = pass(client, &server, &mut told).await;
                    opened.fetch_sub(1, Ordering::SeqCst);
                    if let Some(client) = client {
                        answer(client, forgotten, &used).await;
                    }
                });
            }
        });
        Self { address, forget, open, met, accepting }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Forgets its connections. Returns how many it had.
    async fn forget(&self) -> usize {
        let had = self.open.load(Ordering::SeqCst);
        self.forget.send_modify(|times| *times += 1);
        while self.open.load(Ordering::SeqCst) > 0 {
            sleep(Duration::from_millis(5)).await;
        }
        had
    }

    fn met(&self) -> usize {
        self.met.load(Ordering::SeqCst)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Passes on all bytes until the gateway forgets, and then returns the client's side.
async fn pass(
    mut client: TcpStream,
    server: &str,
    told: &mut watch::Receiver<u32>,
) -> Option<TcpStream> {
    let mut server = TcpStream::connect(server).await.unwrap();
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => None,
        _ = told.changed() => Some(client),
    }
}

async fn answer(mut client: TcpStream, forgotten: Forgotten, used: &AtomicUsize) {
    let mut bytes = [0; 1_024];
    if !client.read(&mut bytes).await.is_ok_and(|read| read > 0) {
        return;
    }
    used.fetch_add(1, Ordering::SeqCst);
    match forgotten {
        // With unread or unsent bytes, the kernel resets. So it does with this setting.
        Forgotten::Reset => client.set_zero_linger().unwrap(),
        Forgotten::Swallowed => {
            while client.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
            let _ = client.shutdown().await;
        }
    }
}

/// DynamoDB that grants everything, but not so soon that one connection is enough.
async fn table() -> http::Server {
    http::Server::start(async |_: Request<hyper::body::Incoming>| {
        sleep(Duration::from_millis(20)).await;
        Response::new(Full::new(Bytes::from_static(b"{}")))
    })
    .await
}

const POLICY: &str = r#"{
    "backoff": [60], "jitter": "none", "maxPauseSeconds": "off", "circuitBreaker": "off",
    "idempotency": { "keepSeconds": 3600 }
}"#;

/// Three connections to SQS and to the table are left unused, and the function is frozen for so
/// long. Returns the forgotten connections that it uses for one message that fails.
async fn freeze(frozen: Duration, forgotten: Forgotten) -> usize {
    let stage = Stage::new().await;
    let table = table().await;
    let sqs = Gateway::before(&stage.url(), forgotten).await;
    let dynamo = Gateway::before(&table.url(), forgotten).await;
    let target = Gateway::before(&stage.target.server.url(), forgotten).await;
    let (sqs_url, dynamo_url, target_url) = (sqs.url(), dynamo.url(), target.url());
    let mut function = stage
        .requeue_lambda(&[
            ("AWS_ENDPOINT_URL_SQS", &sqs_url),
            ("AWS_ENDPOINT_URL_DYNAMODB", &dynamo_url),
            ("REQUEUE_TARGET_URL", &target_url),
            ("REQUEUE_TABLE", "state"),
            ("REQUEUE_CONCURRENCY", "12"),
            ("REQUEUE_POLICY", POLICY),
        ])
        .await;
    let failing = json!({ "answer": "unavailable" }).to_string();
    for _ in 0..12 {
        stage.send(&failing).await;
    }
    let (_, ended) = stage.invoke(&mut function, TIMEOUT).await;
    assert_eq!(ended, Ended::Response(json!({ "batchItemFailures": [] })));
    let calls = stage.target.requests().len();

    assert!(sqs.forget().await > 1, "several copies are sent at once");
    assert!(dynamo.forget().await > 1 && target.forget().await > 1);
    let pid = function.pid().unwrap();
    signal("-STOP", pid);
    sleep(frozen).await;
    let id = stage.send(&failing).await;
    let batch = stage.receive().await;
    let end = function.begin(&batch.event(&stage.queue), TIMEOUT);
    signal("-CONT", pid);
    let ended = end.await.expect("the function answers");
    stage.acknowledge(&batch, &ended);
    assert_eq!(batch.message_ids(), [id.as_str()]);
    assert_eq!(ended, Ended::Response(json!({ "batchItemFailures": [] })), "the copy is sent");
    assert!(stage.messages().iter().all(|message| message.id != id), "the original is deleted");
    assert_eq!(stage.messages().len(), 13, "each message exists once");
    assert_eq!(stage.target.requests().len(), calls + 1, "each attempt is one request");
    let log = function.stop().await;
    let after_freeze = || log.lines().filter(|line| !line.contains(r#""request-1""#));
    for trouble in ["ConnectionLost", "NotSent", "TimedOut", "REQUEUE_TABLE"] {
        assert!(!after_freeze().any(|line| line.contains(trouble)), "{trouble}: {log}");
    }
    sqs.met() + dynamo.met() + target.met()
}

#[tokio::test]
async fn a_freeze_lets_no_try_meet_a_dead_connection() {
    // The target's connections are kept for 4 s by default.
    let frozen = Duration::from_millis(4_200);
    let (reset, swallowed) =
        tokio::join!(freeze(frozen, Forgotten::Reset), freeze(frozen, Forgotten::Swallowed));
    assert_eq!((reset, swallowed), (0, 0));
}
