//! A flaky HTTP endpoint: each message names its response. Inside the process it uses no socket, so
//! time may be virtual; `serve.rs` puts it on one.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::{Ready, pending, ready};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Body;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, duplex};
use tokio::time::{Instant, sleep};

use parking_lot::Mutex;

pub(crate) const URL: &str = "http://localhost/orders";
const LATENCY: Duration = Duration::from_millis(80);
const BUFFER: usize = 64 * 1024;

/// The response that a message names: `{"answer": "unavailable", "times": 2}` is refused twice and
/// then accepted. In a body that is not a JSON object, `answer=unavailable&times=2` means the same.
#[derive(Default, Deserialize)]
struct RequestedResponse {
    #[serde(default, rename = "answer")]
    kind: ResponseKind,
    /// The number of attempts that get this response. Without it, all of them do.
    times: Option<u32>,
}

impl RequestedResponse {
    fn of(body: &[u8]) -> Self {
        serde_json::from_slice(body).unwrap_or_else(|_| {
            let text = String::from_utf8_lossy(body);
            let value = |name| {
                let words = text.split(|c: char| c.is_whitespace() || "&,;".contains(c));
                words
                    .filter_map(|word| word.split_once('='))
                    .find(|(key, _)| *key == name)
                    .map(|(_, value)| value)
            };
            Self {
                kind: value("answer")
                    .and_then(|word| serde_json::from_value(word.into()).ok())
                    .unwrap_or_default(),
                times: value("times").and_then(|times| times.parse().ok()),
            }
        })
    }
}

#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize,
)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ResponseKind {
    #[default]
    Ok,
    RateLimit,
    Quota,
    Unavailable,
    Error,
    Hang,
    Reset,
    Invalid,
}

impl ResponseKind {
    /// In the order of the demo's table, with their words in it.
    pub(crate) const ALL: [(Self, &'static str); 8] = [
        (Self::Ok, "200"),
        (Self::RateLimit, "429, Retry-After"),
        (Self::Quota, "403 quotaExceeded"),
        (Self::Unavailable, "503"),
        (Self::Error, "500"),
        (Self::Hang, "no response"),
        (Self::Reset, "connection reset"),
        (Self::Invalid, "400"),
    ];
}

/// The endpoint, and a connector to it. Clones share the log.
#[derive(Clone, Default)]
pub(crate) struct Endpoint {
    log: Arc<Mutex<EndpointLog>>,
}

#[derive(Default)]
struct EndpointLog {
    calls: HashMap<String, MessageCalls>,
    done: usize,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MessageCalls {
    pub(crate) count: u32,
    pub(crate) accepted: u32,
    pub(crate) accepted_at: Option<Instant>,
}

impl Endpoint {
    pub(crate) fn calls(&self, original_id: &str) -> MessageCalls {
        self.log.lock().calls.get(original_id).copied().unwrap_or_default()
    }

    pub(crate) fn done(&self) -> usize {
        self.log.lock().done
    }

    pub(crate) async fn respond<B>(&self, request: Request<B>) -> io::Result<Response<Full<Bytes>>>
    where
        B: Body<Error: std::error::Error + Send + Sync + 'static>,
    {
        let (head, body) = request.into_parts();
        let id = header(&head.headers, "idempotency-key").unwrap_or_default().to_owned();
        let attempts_before = header(&head.headers, "x-requeue-retry-count")
            .and_then(|n| n.parse().ok())
            .unwrap_or(0);
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        let requested = RequestedResponse::of(&body);
        let kind = if requested.times.is_some_and(|times| attempts_before >= times) {
            ResponseKind::Ok
        } else {
            requested.kind
        };
        sleep(LATENCY).await;
        self.note(id, kind);
        response(kind).await
    }

    fn note(&self, id: String, kind: ResponseKind) {
        let mut log = self.log.lock();
        let calls = log.calls.entry(id).or_default();
        calls.count += 1;
        if kind == ResponseKind::Ok {
            calls.accepted += 1;
            calls.accepted_at.get_or_insert_with(Instant::now);
            let is_first = calls.accepted == 1;
            log.done += usize::from(is_first);
        }
    }
}

async fn response(kind: ResponseKind) -> io::Result<Response<Full<Bytes>>> {
    let builder = |status: u16| Response::builder().status(status);
    let plain = |status| builder(status).body(Full::default());
    match kind {
        ResponseKind::Ok => plain(200),
        ResponseKind::RateLimit => builder(429).header("retry-after", "5").body(Full::default()),
        ResponseKind::Quota => {
            let error = serde_json::json!({ "domain": "usageLimits", "reason": "quotaExceeded" });
            let body =
                serde_json::json!({ "error": { "code": 403, "errors": [error] } }).to_string();
            builder(403).header("content-type", "application/json").body(Full::from(body))
        }
        ResponseKind::Unavailable => plain(503),
        ResponseKind::Error => plain(500),
        ResponseKind::Hang => pending().await,
        ResponseKind::Reset => return Err(io::ErrorKind::ConnectionReset.into()),
        ResponseKind::Invalid => plain(400),
    }
    .map_err(io::Error::other)
}

pub(crate) fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Each connection is a pipe to the endpoint.
impl tower::Service<Uri> for Endpoint {
    type Response = TokioIo<Pipe>;
    type Error = Infallible;
    type Future = Ready<Result<TokioIo<Pipe>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let (ours, theirs) = duplex(BUFFER);
        let endpoint = self.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| endpoint.respond(request));
            // An error: the endpoint reset the connection on purpose, or the client closed it.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(theirs), service).await;
        });
        ready(Ok(TokioIo::new(Pipe(ours))))
    }
}

pub(crate) struct Pipe(DuplexStream);

impl AsyncRead for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

impl Connection for Pipe {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}
