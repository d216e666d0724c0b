//! Lambda's Runtime API for one execution environment, on a loopback port of its own. It passes the
//! function's requests on, and decides nothing.
//!
//! Source of paths, headers, trailers and bodies: Lambda developer guide, "Using the Lambda runtime
//! API for custom runtimes", "Building a custom runtime" and "Using the Lambda Extensions API".

use std::future::pending;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::Full;
use parking_lot::Mutex;
use requeue::embedded::loopback::{self, Bounds, Trailers};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};

use super::show;
use crate::endpoint::header;

/// Most bytes of a response. Source: Lambda developer guide, "Lambda quotas".
const MAX_RESPONSE: usize = 6 * 1024 * 1024;
/// A runtime has one connection, and an extension in it another.
const BOUNDS: Bounds = Bounds { body: MAX_RESPONSE, bodies: 4 * MAX_RESPONSE, connections: 16 };
/// Requests in the queue. A function waits for each response.
const REQUESTS: usize = 16;
const ERROR_TYPE: &str = "lambda-runtime-function-error-type";
/// In Base64, after a response in chunks.
const ERROR_BODY: &str = "lambda-runtime-function-error-body";

/// A server that ends when this is dropped.
pub(super) struct RuntimeApi {
    pub(super) address: SocketAddr,
    requests: mpsc::Receiver<RuntimeRequest>,
    _stop: watch::Sender<bool>,
}

pub(super) enum RuntimeRequest {
    /// `GET /runtime/invocation/next`
    Next(oneshot::Sender<Invocation>),
    /// `POST /runtime/invocation/{id}/response`
    Response { id: String, body: Bytes },
    /// `POST /runtime/invocation/{id}/error`, or without an id `POST /runtime/init/error`
    Error { id: Option<String>, error: ReportedError },
}

#[derive(Clone)]
pub(super) struct Invocation {
    pub(super) request_id: String,
    pub(super) deadline_millis: u128,
    pub(super) function_arn: String,
    /// The value of `x-amzn-trace-id`, which identifies the messages that the function sends.
    pub(super) trace: String,
    pub(super) event: Bytes,
}

impl RuntimeApi {
    pub(super) async fn listen() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (stop, stopped) = watch::channel(false);
        let (sender, requests) = mpsc::channel(REQUESTS);
        let given = GivenId::default();
        tokio::spawn(loopback::serve(listener, stopped, BOUNDS, move |request| {
            // The response is immediate, since a function that ends does not wait for it.
            let accepted = said(&request).map(|said| accept(said, &sender, &given.lock()));
            let (sender, given) = (sender.clone(), Arc::clone(&given));
            async move {
                match accepted {
                    Some(response) => response,
                    None => respond(sender, given, request).await,
                }
            }
        }));
        Ok(Self { address, requests, _stop: stop })
    }

    pub(super) async fn request(&mut self) -> RuntimeRequest {
        match self.requests.recv().await {
            Some(request) => request,
            // The server ends only when this value is dropped.
            None => pending().await,
        }
    }
}

type GivenId = Arc<Mutex<String>>;

fn accept(
    said: RuntimeRequest,
    requests: &mpsc::Sender<RuntimeRequest>,
    given: &str,
) -> io::Result<Response<Full<Bytes>>> {
    let id = match &said {
        RuntimeRequest::Next(_) => None,
        RuntimeRequest::Response { id, .. } => Some(id),
        RuntimeRequest::Error { id, .. } => id.as_ref(),
    };
    if id.is_some_and(|id| id != given) {
        let body = r#"{"errorMessage":"Invalid request ID","errorType":"InvalidRequestID"}"#;
        return status(StatusCode::BAD_REQUEST, body);
    }
    match requests.try_send(said) {
        Ok(()) => status(StatusCode::ACCEPTED, r#"{"status":"OK"}"#),
        Err(_) => status(StatusCode::SERVICE_UNAVAILABLE, "too many requests"),
    }
}

/// A reported result or error; `None` for a request.
fn said(request: &Request<Bytes>) -> Option<RuntimeRequest> {
    let (headers, body) = (request.headers(), request.body());
    match (request.method(), path(request).as_slice()) {
        (&Method::POST, ["2018-06-01", "runtime", "invocation", id, "response"]) => {
            let (id, trailers) = ((*id).to_owned(), request.extensions().get::<Trailers>());
            Some(match trailers.and_then(|trailers| ReportedError::in_trailers(&trailers.0)) {
                Some(error) => RuntimeRequest::Error { id: Some(id), error },
                None => RuntimeRequest::Response { id, body: body.clone() },
            })
        }
        (&Method::POST, ["2018-06-01", "runtime", "invocation", id, "error"]) => {
            let (id, error) = (Some((*id).to_owned()), ReportedError::read(headers, body));
            Some(RuntimeRequest::Error { id, error })
        }
        (&Method::POST, ["2018-06-01", "runtime", "init", "error"]) => {
            Some(RuntimeRequest::Error { id: None, error: ReportedError::read(headers, body) })
        }
        _ => None,
    }
}

async fn respond(
    requests: mpsc::Sender<RuntimeRequest>,
    given: GivenId,
    request: Request<Bytes>,
) -> io::Result<Response<Full<Bytes>>> {
    match (request.method(), path(&request).as_slice()) {
        (&Method::GET, ["2018-06-01", "runtime", "invocation", "next"]) => {
            let (sender, next) = oneshot::channel();
            let _ = requests.send(RuntimeRequest::Next(sender)).await;
            match next.await {
                Ok(invocation) => {
                    given.lock().clone_from(&invocation.request_id);
                    invoke(invocation)
                }
                Err(_) => status(StatusCode::GONE, "the environment ends"),
            }
        }
        // A runtime registers as an extension to get SIGTERM; it gets no events.
        (&Method::POST, ["2020-01-01", "extension", "register"]) => registered(),
        (&Method::GET, ["2020-01-01", "extension", "event", "next"]) => pending().await,
        _ => status(StatusCode::NOT_FOUND, "no such path of the Runtime API"),
    }
}

fn path(request: &Request<Bytes>) -> Vec<&str> {
    request.uri().path().trim_matches('/').split('/').collect()
}

fn invoke(invocation: Invocation) -> io::Result<Response<Full<Bytes>>> {
    Response::builder()
        .header("content-type", "application/json")
        .header("lambda-runtime-aws-request-id", invocation.request_id)
        .header("lambda-runtime-deadline-ms", invocation.deadline_millis.to_string())
        .header("lambda-runtime-invoked-function-arn", invocation.function_arn)
        .header("lambda-runtime-trace-id", invocation.trace)
        .body(Full::from(invocation.event))
        .map_err(io::Error::other)
}

fn registered() -> io::Result<Response<Full<Bytes>>> {
    let body = r#"{"functionName":"function","functionVersion":"$LATEST","handler":"bootstrap"}"#;
    Response::builder()
        .header("content-type", "application/json")
        .header("lambda-extension-identifier", "00000000-0000-0000-0000-000000000001")
        .body(Full::from(body))
        .map_err(io::Error::other)
}

fn status(status: StatusCode, body: &'static str) -> io::Result<Response<Full<Bytes>>> {
    Response::builder().status(status).body(Full::from(body)).map_err(io::Error::other)
}

const MAX_ERROR: usize = 400;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FunctionError {
    pub(crate) why: String,
    /// The error in JSON, as the caller of the function gets it.
    pub(crate) payload: Bytes,
    pub(super) has_ended: bool,
}

impl FunctionError {
    fn of_process(why: String, error_type: &str, message: &str) -> Self {
        Self { why, payload: payload(error_type, message), has_ended: true }
    }

    pub(super) fn timed_out(request_id: &str, limit: Duration) -> Self {
        let secs = limit.as_secs_f64();
        Self::of_process(
            format!("timed out after {secs} s and was killed"),
            "Sandbox.Timedout",
            &format!("RequestId: {request_id} Error: Task timed out after {secs:.2} seconds"),
        )
    }

    pub(super) fn exited(request_id: &str, why: String, status: ExitStatus) -> Self {
        let how = match status.code() {
            Some(0) => "Runtime exited without providing a reason".to_owned(),
            Some(code) => format!("Runtime exited with error: exit status {code}"),
            None => format!("Runtime exited with error: {status}"),
        };
        let message = format!("RequestId: {request_id} Error: {how}");
        Self::of_process(why, "Runtime.ExitError", &message)
    }

    /// The program never asked for an invocation.
    pub(super) fn silent(why: String) -> Self {
        let message = format!("Error: {why}");
        Self::of_process(why, "Runtime.InvalidEntrypoint", &message)
    }

    /// The error of a call without a process, with that of the start if there is one.
    pub(super) fn not_started(payload: Option<Bytes>) -> Self {
        let error = Self::silent("the function did not start".to_owned());
        Self { payload: payload.unwrap_or(error.payload), ..error }
    }

    pub(super) fn restarted() -> Self {
        let why = "function restarted without a response".to_owned();
        let message = format!("Error: {why}");
        Self { has_ended: false, ..Self::of_process(why, "Runtime.ExitError", &message) }
    }

    pub(super) fn reported(error: ReportedError) -> Self {
        let why = format!("function error: {}", error.words);
        Self { why, payload: error.payload, has_ended: false }
    }

    pub(super) fn reported_at_start(error: ReportedError) -> Self {
        let remedy = show::remedy(&error.error_type);
        let remedy = remedy.map(|remedy| format!("; {remedy}")).unwrap_or_default();
        let why = format!("function failed at its start: {}{remedy}", error.words);
        Self { why, payload: error.payload, has_ended: true }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct ReportedError {
    error_type: String,
    words: String,
    payload: Bytes,
}

impl ReportedError {
    fn in_trailers(trailers: &HeaderMap) -> Option<Self> {
        let body = trailers.get(ERROR_BODY);
        body.or_else(|| trailers.get(ERROR_TYPE))?;
        let body = body.and_then(|body| BASE64.decode(body).ok()).unwrap_or_default();
        Some(Self::read(trailers, &body.into()))
    }

    pub(super) fn read(headers: &HeaderMap, body: &Bytes) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct ErrorRequest {
            error_message: Option<String>,
            error_type: Option<String>,
        }
        let error: ErrorRequest = serde_json::from_slice(body).unwrap_or_default();
        let by_header = header(headers, ERROR_TYPE).map(str::to_owned);
        let (error_type, message) = (error.error_type.or(by_header), error.error_message);
        let words: Vec<&str> =
            [&error_type, &message].into_iter().flatten().map(|text| &**text).collect();
        let words = if words.is_empty() {
            "no reason given".to_owned()
        } else {
            show::one_line(&words.join(": "), MAX_ERROR)
        };
        let error_type = error_type.unwrap_or_default();
        let is_json = serde_json::from_slice::<Value>(body).is_ok();
        let payload = if is_json {
            body.clone()
        } else {
            payload(&error_type, message.as_deref().unwrap_or_default())
        };
        Self { error_type, words, payload }
    }
}

fn payload(error_type: &str, message: &str) -> Bytes {
    json!({ "errorType": error_type, "errorMessage": message }).to_string().into()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn an_error_is_read_as_far_as_it_says_something() {
        let mut headers = HeaderMap::new();
        let read = |headers: &HeaderMap, body: &str| {
            ReportedError::read(headers, &Bytes::copy_from_slice(body.as_bytes()))
        };
        assert_eq!(read(&headers, "").words, "no reason given");
        assert_eq!(read(&headers, r#"{"errorMessage":"no disk"}"#).words, "no disk");
        headers.insert(ERROR_TYPE, HeaderValue::from_static("Runtime.Exit"));
        let by_header = read(&headers, "{");
        assert_eq!(by_header.words, "Runtime.Exit");
        assert_eq!(by_header.payload, r#"{"errorMessage":"","errorType":"Runtime.Exit"}"#);
        let body = r#"{"errorMessage":"no disk","errorType":"Io","stackTrace":[]}"#;
        let error = read(&headers, body);
        assert_eq!((&*error.words, &error.payload[..]), ("Io: no disk", body.as_bytes()));
        let body = r#"{"errorMessage":" no\ndisk ","errorType":"Io\r\n00:00:00 #1"}"#;
        assert_eq!(read(&headers, body).words, "Io 00:00:00 #1: no disk");
        let body = format!(r#"{{"errorMessage":"{}"}}"#, "x".repeat(1_000));
        headers.clear();
        assert_eq!(read(&headers, &body).words, "x".repeat(MAX_ERROR - 1) + "…");
    }

    #[test]
    fn either_trailer_makes_a_response_an_error() {
        let body = r#"{"errorMessage":"no","errorType":"Refused"}"#;
        let encoded = BASE64.encode(body);
        for (trailers, words) in [
            (&[][..], None),
            (&[("server-timing", "x")], None),
            (&[(ERROR_TYPE, "Io")], Some("Io")),
            (&[(ERROR_BODY, &*encoded)], Some("Refused: no")),
            (&[(ERROR_TYPE, "Io"), (ERROR_BODY, &encoded)], Some("Refused: no")),
            (&[(ERROR_TYPE, "Io"), (ERROR_BODY, "{")], Some("Io")),
            (&[(ERROR_TYPE, ""), (ERROR_BODY, "")], Some("")),
        ] {
            let all = trailers.iter().map(|(name, value)| {
                (name.parse().expect("a name"), HeaderValue::from_str(value).expect("a value"))
            });
            let error = ReportedError::in_trailers(&all.collect());
            assert_eq!(error.as_ref().map(|error| &*error.words), words, "{trailers:?}");
        }
    }

    #[test]
    fn an_error_at_the_start_names_its_remedy() {
        for (error_type, remedy) in [
            ("Runtime.ImportModuleError", "; start in the directory of the handler's file"),
            ("Runtime.HandlerNotFound", "; name the handler as FILE.FUNCTION"),
            ("ValueError", ""),
        ] {
            let body = json!({ "errorType": error_type, "errorMessage": "no" }).to_string();
            let error = ReportedError::read(&HeaderMap::new(), &body.clone().into());
            let error = FunctionError::reported_at_start(error);
            let why = format!("function failed at its start: {error_type}: no{remedy}");
            assert!(error.why.starts_with(&why), "{}", error.why);
            assert_eq!(error.payload, body);
        }
    }

    #[test]
    fn a_timeout_has_the_words_of_lambda() {
        let error = FunctionError::timed_out("id", Duration::from_secs(3));
        let payload: Value = serde_json::from_slice(&error.payload).expect("JSON");
        assert_eq!(payload["errorType"], "Sandbox.Timedout");
        assert_eq!(
            payload["errorMessage"],
            "RequestId: id Error: Task timed out after 3.00 seconds"
        );
        assert_eq!(error.why, "timed out after 3 s and was killed");
    }
}
