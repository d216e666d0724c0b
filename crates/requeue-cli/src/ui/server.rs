//! The server of the local page: its bounds, security headers and files. It knows no screen.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use http::header::{self, CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use requeue::embedded::loopback::{self, Bounds, Refusal, UnreadRequest};
use requeue::printable;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tower::ServiceExt as _;

use super::guard::{Admission, Guard};
use crate::Error;
use crate::local_sqs::listen;

/// The largest body of a request: a policy document has at most 4 KiB on Lambda, and a file more.
pub(super) const MAX_BODY: usize = 256 * 1024;
/// A browser opens six connections for a page.
const BOUNDS: Bounds = Bounds { body: MAX_BODY, bodies: 64 * MAX_BODY, connections: 64 };
/// How long open pages are served after the end of the command's work, so that they see its result.
const STOP_GRACE: Duration = Duration::from_secs(1);
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

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
        let listener = listen(port, option).await?;
        let guard = Arc::new(Guard::new(listener.local_addr()?.port()));
        Ok(Self { listener, guard })
    }

    pub(super) fn url(&self) -> String {
        self.guard.url()
    }

    /// Serves until the stop, and an opened page a second longer. Returns the value of the stop.
    pub(super) async fn run<T>(self, router: Router, stop: impl Future<Output = T>) -> T {
        let router = router.fallback(async || {
            (StatusCode::NOT_FOUND, "there is no such page; open the URL that the command printed")
        });
        let (guard, is_used) = (self.guard, Arc::new(AtomicBool::new(false)));
        // It never changes: a page that is open asks for a moment more after the stop.
        let (_sender, stopped) = watch::channel(false);
        let used = Arc::clone(&is_used);
        let serving = loopback::serve_unread(self.listener, stopped, BOUNDS, move |request| {
            used.store(true, Ordering::Relaxed);
            let (guard, router) = (Arc::clone(&guard), router.clone());
            async move { Ok(respond(&guard, router, request).await) }
        });
        let stopping = async {
            let value = stop.await;
            if is_used.load(Ordering::Relaxed) {
                sleep(STOP_GRACE).await;
            }
            value
        };
        tokio::select! {
            value = stopping => value,
            () = serving => unreachable!("nothing stops it"),
        }
    }
}

async fn respond(guard: &Guard, router: Router, request: UnreadRequest) -> Response {
    let admission = guard.admit(&request.head);
    let is_page = request.head.method == Method::GET && request.head.uri.path() == "/";
    let mut response = match admission {
        Ok(_) => routed(router, request).await.unwrap_or_else(refused),
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

async fn routed(router: Router, request: UnreadRequest) -> Result<Response, Refusal> {
    const TOO_SLOW: Refusal = (StatusCode::REQUEST_TIMEOUT, "the body takes longer than 10 s");
    let read = timeout(BODY_TIMEOUT, request.read()).await.unwrap_or(Err(TOO_SLOW));
    let (request, _room) = read?;
    let Ok(response) = router.oneshot(request.map(Body::from)).await;
    Ok(response)
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
         <h1>No access</h1><p>The page is not shown: {reason}. Open the URL that the command \
         printed; each start prints a new one.</p>"
    );
    (status, [(header::CONNECTION, "close")], Html(page)).into_response()
}

/// Values may come from queues: `[U+202E]` stands for a control character in its texts.
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

macro_rules! files {
    ($($name:literal),+ $(,)?) => {
        [$(($name, include_str!(concat!("assets/", $name)))),+]
    };
}

#[rustfmt::skip]
const FILES: [(&str, &str); 16] = files![
    "index.html", "style.css", "icon.svg", "app.js", "api.js", "dom.js", "job.js", "result.js",
    "selection.js", "dead_letter.js", "dead_letters.js", "live.css", "live.js", "live_chart.js",
    "live_messages.js", "policy.js",
];

pub(super) fn assets() -> Router {
    FILES.into_iter().fold(Router::new(), |router, (name, text)| {
        let (path, kind) = match name.rsplit_once('.') {
            Some((_, "css")) => (name, "text/css; charset=utf-8"),
            Some((_, "js")) => (name, "text/javascript; charset=utf-8"),
            Some((_, "svg")) => (name, "image/svg+xml"),
            _ => ("", "text/html; charset=utf-8"),
        };
        let file = get(async move || ([(CONTENT_TYPE, kind)], text).into_response());
        router.route(&format!("/{path}"), file)
    })
}

#[cfg(test)]
mod tests {
    use super::FILES;

    /// Bytes of the whole page. The bound keeps it light.
    const MAX_BYTES: usize = 300 * 1024;

    #[test]
    fn the_whole_page_is_small_and_loads_nothing_from_elsewhere() {
        let bytes: usize = FILES.iter().map(|(_, text)| text.len()).sum();
        assert!(bytes <= MAX_BYTES, "{bytes} bytes");
        for (path, text) in FILES {
            let text = text.replace("http://www.w3.org/", "");
            assert!(!text.contains("http://") && !text.contains("https://"), "{path}");
        }
    }

    #[test]
    fn no_script_writes_markup() {
        for (path, text) in FILES {
            for sink in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "srcdoc",
            ] {
                assert!(!text.contains(sink), "{path}: {sink}");
            }
        }
    }
}
