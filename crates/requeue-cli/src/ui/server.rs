//! The server of the local page: its bounds, security headers and files. It knows no screen. It refuses
//! other hosts (DNS rebinding), other origins (CSRF), and programs without the token of this start.

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
use http::header::{self, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use requeue::embedded::loopback::{
    self, Bounds, Names, Refusal, UnreadRequest, check_host, check_origin,
};
use requeue::printable;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tower::ServiceExt as _;
use uuid::Uuid;

use crate::{Error, serve};

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
        let listener = serve::listen(port, option).await?;
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
        // It never changes: a page that is open goes on asking for a moment after the stop.
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

/// Each POST has this header. A form of another page cannot set it, and a script of another origin
/// needs a CORS permission that the server never gives.
const OWN_HEADER: HeaderName = HeaderName::from_static("x-requeue-ui");
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

pub(super) struct Guard {
    port: u16,
    token: String,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// The browser has the cookie.
    Known,
    /// The URL has the token, so the response sets the cookie.
    Opened,
}

const NO_TOKEN: Refusal = (
    StatusCode::FORBIDDEN,
    "the request has no token of this start; open the URL that the command printed",
);
const NOT_OWN: Refusal = (
    StatusCode::FORBIDDEN,
    "the request does not come from the page; open the URL that the command printed",
);
const OTHER_METHOD: Refusal =
    (StatusCode::METHOD_NOT_ALLOWED, "the method is not allowed; use GET or POST");
const NOT_JSON: Refusal =
    (StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body is not application/json; send JSON");

impl Guard {
    /// With a new token of 122 random bits.
    pub(super) fn new(port: u16) -> Self {
        Self { port, token: Uuid::new_v4().simple().to_string() }
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/?token={}", self.port, self.token)
    }

    pub(super) fn admit(&self, head: &Parts) -> Result<Admission, Refusal> {
        check_host(&head.headers, Names::WithPort(self.port))?;
        match head.method {
            Method::GET | Method::HEAD => {}
            Method::POST => check_post(&head.headers)?,
            _ => return Err(OTHER_METHOD),
        }
        let token = head.uri.query().and_then(|query| query.strip_prefix("token="));
        let is_open = token.is_some_and(|token| self.is_token(token));
        if head.method == Method::GET && head.uri.path() == "/" && is_open {
            return Ok(Admission::Opened);
        }
        check_origin(&head.headers)?;
        if self.has_cookie(&head.headers) { Ok(Admission::Known) } else { Err(NO_TOKEN) }
    }

    /// Cookies know no ports, so the name has the port.
    fn cookie_name(&self) -> String {
        format!("requeue-ui-{}", self.port)
    }

    pub(super) fn cookie(&self) -> HeaderValue {
        let (name, token) = (self.cookie_name(), &self.token);
        let cookie = format!("{name}={token}; Path=/; SameSite=Strict; HttpOnly");
        HeaderValue::from_str(&cookie).expect("a name and a token are visible ASCII")
    }

    fn has_cookie(&self, headers: &HeaderMap) -> bool {
        let name = self.cookie_name();
        let cookies =
            headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        cookies.flat_map(|value| value.split(';')).any(|pair| {
            pair.trim()
                .split_once('=')
                .is_some_and(|(its, token)| its == name && self.is_token(token))
        })
    }

    /// The time of the comparison tells nothing about the token.
    fn is_token(&self, other: &str) -> bool {
        let differences =
            self.token.bytes().zip(other.bytes()).fold(0, |all, (own, its)| all | (own ^ its));
        self.token.len() == other.len() && differences == 0
    }
}

/// A browser sends the origin with each POST, so a POST without one is refused.
fn check_post(headers: &HeaderMap) -> Result<(), Refusal> {
    check_origin(headers)?;
    let is_own = headers.contains_key(header::ORIGIN)
        && headers.get_all(SEC_FETCH_SITE).iter().all(|site| site == "same-origin")
        && headers.get(OWN_HEADER).is_some_and(|value| value == "1");
    if !is_own {
        return Err(NOT_OWN);
    }
    match headers.get(header::CONTENT_TYPE) {
        Some(kind) if kind == "application/json" => Ok(()),
        _ => Err(NOT_JSON),
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

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

    fn guard() -> Guard {
        Guard { port: 9326, token: "secret".to_owned() }
    }

    fn admitted(method: &str, path: &str, headers: &[(&str, &str)]) -> Result<Admission, u16> {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).expect("a request").into_parts();
        guard().admit(&head).map_err(|(status, _)| status.as_u16())
    }

    const HOST: (&str, &str) = ("host", "127.0.0.1:9326");
    const COOKIE: (&str, &str) = ("cookie", "a=b; requeue-ui-9326=secret");

    #[test]
    fn a_page_of_another_name_gets_nothing() {
        for (host, is_own) in [
            ("127.0.0.1:9326", true),
            ("localhost:9326", true),
            ("[::1]:9326", true),
            ("127.0.0.1", false),
            ("127.0.0.1:9327", false),
            ("127.0.0.1:09326", false),
            ("localhost.:9326", false),
            ("LOCALHOST:9326", false),
            ("evil.example:9326", false),
            ("127.0.0.1.evil.example:9326", false),
            ("evil.example@127.0.0.1:9326", false),
            ("0.0.0.0:9326", false),
            ("", false),
        ] {
            let expected = if is_own { Ok(Admission::Known) } else { Err(421) };
            assert_eq!(admitted("GET", "/", &[("host", host), COOKIE]), expected, "{host}");
            let expected = if is_own { Ok(Admission::Opened) } else { Err(421) };
            assert_eq!(admitted("GET", "/?token=secret", &[("host", host)]), expected, "{host}");
        }
        assert_eq!(admitted("GET", "/", &[COOKIE]), Err(421), "without a host");
        assert_eq!(admitted("GET", "/", &[HOST, HOST, COOKIE]), Err(421), "with two hosts");
    }

    #[test]
    fn without_the_token_of_this_start_nothing_is_served() {
        for (path, headers, expected) in [
            ("/", &[HOST][..], Err(403)),
            ("/?token=secret", &[HOST], Ok(Admission::Opened)),
            ("/?token=secret", &[HOST, ("sec-fetch-site", "cross-site")], Ok(Admission::Opened)),
            ("/?token=secre", &[HOST], Err(403)),
            ("/?token=secrets", &[HOST], Err(403)),
            ("/?token=", &[HOST], Err(403)),
            ("/?token=secret&more", &[HOST], Err(403)),
            ("/api/page?token=secret", &[HOST], Err(403)),
            ("/", &[HOST, ("cookie", "requeue-ui-9326=secreT")], Err(403)),
            ("/", &[HOST, ("cookie", "requeue-ui-9327=secret")], Err(403)),
            ("/", &[HOST, ("cookie", "requeue-ui-9326=")], Err(403)),
            ("/", &[HOST, COOKIE], Ok(Admission::Known)),
        ] {
            assert_eq!(admitted("GET", path, headers), expected, "{path} {headers:?}");
        }
    }

    #[test]
    fn another_origin_gets_nothing_even_with_the_cookie() {
        for (name, value, is_own) in [
            ("sec-fetch-site", "same-origin", true),
            ("sec-fetch-site", "none", true),
            ("sec-fetch-site", "same-site", false),
            ("sec-fetch-site", "cross-site", false),
            ("origin", "http://127.0.0.1:9326", true),
            ("origin", "http://localhost:9326", false),
            ("origin", "http://127.0.0.1:3000", false),
            ("origin", "https://127.0.0.1:9326", false),
            ("origin", "null", false),
        ] {
            let expected = if is_own { Ok(Admission::Known) } else { Err(403) };
            let headers = [HOST, COOKIE, (name, value)];
            assert_eq!(admitted("GET", "/api/page", &headers), expected, "{name}: {value}");
        }
    }

    #[test]
    fn a_post_needs_all_marks_of_the_own_page() {
        let whole = [
            HOST,
            COOKIE,
            ("origin", "http://127.0.0.1:9326"),
            ("sec-fetch-site", "same-origin"),
            ("x-requeue-ui", "1"),
            ("content-type", "application/json"),
        ];
        assert_eq!(admitted("POST", "/api/x", &whole), Ok(Admission::Known));
        assert_eq!(admitted("POST", "/?token=secret", &whole), Ok(Admission::Known));
        for (at, status) in [(0, 421), (1, 403), (2, 403), (4, 403), (5, 415)] {
            let mut headers = whole.to_vec();
            let (name, _) = headers.remove(at);
            assert_eq!(admitted("POST", "/api/x", &headers), Err(status), "without {name}");
        }
        for (at, value, status) in [
            (2, "http://localhost:9326", 403),
            (2, "null", 403),
            (3, "same-site", 403),
            (3, "none", 403),
            (4, "2", 403),
            (5, "text/plain", 415),
        ] {
            let mut headers = whole.to_vec();
            headers[at].1 = value;
            assert_eq!(admitted("POST", "/api/x", &headers), Err(status), "{:?}", headers[at]);
        }
        for method in ["PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"] {
            assert_eq!(admitted(method, "/api/x", &whole), Err(405), "{method}");
        }
    }

    #[test]
    fn each_start_has_another_token() {
        let [one, other] = [(), ()].map(|()| Guard::new(9326));
        assert_ne!(one.url(), other.url());
        assert_eq!(one.token.len(), 32);
        assert!(one.cookie().to_str().expect("ASCII").ends_with("SameSite=Strict; HttpOnly"));
    }
}
