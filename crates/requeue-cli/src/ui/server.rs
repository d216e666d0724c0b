//! The server of the local page: it listens on 127.0.0.1, guards each request, bounds it, and adds
//! the security headers to each response. It does not know the screens.

use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::io;
use std::net::Ipv4Addr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::{Html, IntoResponse, Response};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use requeue::printable;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tower::ServiceExt as _;

use super::connections::{ConnectionUse, Connections};
use super::guard::{Admission, Guard, Refusal};
use crate::Error;

/// The largest body of a request: a policy document has at most 4 KiB on Lambda, and a file more.
pub(super) const MAX_BODY: usize = 256 * 1024;
/// How long the body of a request may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the head of a request may take, and how long a connection without a request stays open.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// The bytes that hyper reads ahead of one connection.
const READ_BUFFER: usize = 64 * 1024;
/// How long to wait when the system has no more connections, so as not to spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long open responses may take after the end of the server.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// Headers of every response. The charts are images from `blob:` URLs.
const HEADERS: [(HeaderName, &str); 8] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()"),
];

pub(super) struct Server {
    listener: TcpListener,
    guard: Arc<Guard>,
}

impl Server {
    pub(super) async fn open(port: u16, option: &str) -> Result<Self, Error> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.map_err(|error| {
            format!(
                "port {port} of 127.0.0.1 cannot be opened: {error}; choose another one with \
                 {option}"
            )
        })?;
        let guard = Arc::new(Guard::new(listener.local_addr()?.port()));
        Ok(Self { listener, guard })
    }

    /// The URL that opens the page, with the token.
    pub(super) fn url(&self) -> String {
        self.guard.url()
    }

    /// Serves until the stop, and then gives open responses a second. Returns the value of the stop.
    pub(super) async fn run<T>(self, router: Router, stop: impl Future<Output = T>) -> T {
        let router = router.fallback(async || {
            (StatusCode::NOT_FOUND, "there is no such page; open the URL that the command printed")
        });
        let (mut connections, mut stop) = (Connections::default(), pin!(stop));
        let stopped = loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                stopped = &mut stop => break stopped,
                Some(_) = connections.tasks.join_next() => continue,
            };
            let Ok((stream, _)) = accepted else {
                sleep(ACCEPT_PAUSE).await;
                continue;
            };
            // The browser opens a refused connection again.
            if !connections.make_room() {
                continue;
            }
            let (guard, router) = (Arc::clone(&self.guard), router.clone());
            connections
                .serve(|connection_use| serve_connection(stream, connection_use, guard, router));
        };
        drop(self.listener);
        let _ =
            timeout(STOP_GRACE, async { while connections.tasks.join_next().await.is_some() {} })
                .await;
        stopped
    }
}

async fn serve_connection(
    stream: TcpStream,
    connection_use: ConnectionUse,
    guard: Arc<Guard>,
    router: Router,
) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let (guard, router) = (Arc::clone(&guard), router.clone());
        let busy = connection_use.begin();
        async move {
            let response = respond(&guard, router, request).await;
            // The request ends with the last part of its response.
            let held = move |part| {
                let _ = &busy;
                part
            };
            Ok::<_, Infallible>(response.map(|body| Body::new(body.map_frame(held))))
        }
    });
    // An error is a browser that is gone.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(READ_BUFFER)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn respond(guard: &Guard, router: Router, request: Request<Incoming>) -> Response {
    let (head, body) = request.into_parts();
    let admission = guard.admit(&head);
    let is_page = head.method == Method::GET && head.uri.path() == "/";
    let mut response = match admission {
        Ok(_) => match read(body).await {
            Ok(body) => routed(router, Request::from_parts(head, Body::from(body))).await,
            Err(refusal) => refused(refusal),
        },
        Err((status, reason)) if is_page => refused_page(status, reason),
        Err(refusal) => refused(refusal),
    };
    let headers = response.headers_mut();
    if admission == Ok(Admission::Opened) {
        headers.insert(header::SET_COOKIE, guard.cookie());
    }
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

async fn routed(router: Router, request: Request<Body>) -> Response {
    let Ok(response) = router.oneshot(request).await;
    response
}

/// The body of a request, within its bounds of size and time.
async fn read(body: Incoming) -> Result<Bytes, Refusal> {
    const TOO_SLOW: Refusal = (StatusCode::REQUEST_TIMEOUT, "the body takes longer than 10 s");
    const TOO_LARGE: Refusal =
        (StatusCode::PAYLOAD_TOO_LARGE, "the body has more than 256 KiB; send less");
    let collected = timeout(BODY_TIMEOUT, Limited::new(body, MAX_BODY).collect()).await;
    let body = collected.map_err(|_| TOO_SLOW)?.map_err(|_| TOO_LARGE)?;
    Ok(body.to_bytes())
}

/// Refuses a request, and closes its connection without reading the rest.
fn refused((status, reason): Refusal) -> Response {
    (status, [(header::CONNECTION, "close")], format!("{reason}\n")).into_response()
}

/// The same for a person, who has opened an address.
fn refused_page(status: StatusCode, reason: &str) -> Response {
    let page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>No access · requeue</title>\
         <h1>No access</h1><p>The page is not shown, since {reason}. Each start of the command \
         prints a new one.</p>"
    );
    (status, [(header::CONNECTION, "close")], Html(page)).into_response()
}

/// A JSON response. Values may come from queues, so its texts have no control characters: `[U+202E]`
/// stands for one.
pub(super) fn json(value: &impl Serialize) -> Response {
    let value = serde_json::to_value(value).expect("its keys are texts");
    let text = printable_value(value).to_string();
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

/// The text with a visible name for each character that a browser hides or obeys.
pub(super) fn visible(text: &str) -> Cow<'_, str> {
    let is_shown = |c: char| printable::is_printable(c) || matches!(c, '\n' | '\t');
    if text.chars().all(is_shown) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_shown(c) {
            shown.push(c);
        } else {
            let _ = write!(shown, "[U+{:04X}]", u32::from(c));
        }
    }
    Cow::Owned(shown)
}

fn printable_value(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(visible(&text).into_owned()),
        Value::Array(values) => values.into_iter().map(printable_value).collect(),
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| (visible(&name).into_owned(), printable_value(value)))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value,
    }
}

/// An error for the page, which shows its text.
#[derive(Debug)]
pub(super) struct FailedRequest {
    status: StatusCode,
    text: String,
}

impl FailedRequest {
    pub(super) fn new(status: StatusCode, text: &(impl ToString + ?Sized)) -> Self {
        Self { status, text: text.to_string() }
    }
}

impl IntoResponse for FailedRequest {
    fn into_response(self) -> Response {
        (self.status, json(&serde_json::json!({ "error": self.text }))).into_response()
    }
}

/// The JSON body of a request.
pub(super) fn parsed<T: DeserializeOwned>(body: &Bytes) -> Result<T, FailedRequest> {
    serde_json::from_slice(body).map_err(|error| {
        FailedRequest::new(StatusCode::BAD_REQUEST, &format!("the body is invalid: {error}"))
    })
}

/// A response of Server-Sent Events. Each item is the data of one event: JSON in one line.
pub(super) fn events(data: impl Stream<Item = String> + Send + 'static) -> Response {
    let events = data.map(|data| Ok::<_, io::Error>(format!("data: {data}\n\n")));
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    (headers, Body::from_stream(events)).into_response()
}
