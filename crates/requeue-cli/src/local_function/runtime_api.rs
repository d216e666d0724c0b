//! Lambda's Runtime API for one execution environment, on a loopback port of its own. It passes the
//! function's requests on, and decides nothing.
//!
//! Source of paths, headers and bodies: Lambda developer guide, "Using the Lambda runtime API for
//! custom runtimes" and "Using the Lambda Extensions API".

use std::future::pending;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use requeue::embedded::loopback::{self, Bounds};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};

use super::function_error::ReportedError;

/// Most bytes of a response. Source: Lambda developer guide, "Lambda quotas".
const MAX_RESPONSE: usize = 6 * 1024 * 1024;
/// A runtime has one connection, and an extension in it another.
const BOUNDS: Bounds = Bounds { body: MAX_RESPONSE, bodies: 4 * MAX_RESPONSE, connections: 16 };
/// Requests in the queue. A function waits for each response.
const REQUESTS: usize = 16;

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
        tokio::spawn(loopback::serve(listener, stopped, BOUNDS, move |request| {
            // The response comes at once, since a function that ends does not wait for it.
            let passed_on = said(&request).map(|said| sender.try_send(said).is_ok());
            let sender = sender.clone();
            async move {
                match passed_on {
                    Some(true) => status(StatusCode::ACCEPTED, r#"{"status":"OK"}"#),
                    Some(false) => status(StatusCode::SERVICE_UNAVAILABLE, "too many requests"),
                    None => respond(sender, request).await,
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

/// A reported result or error; `None` for a request.
fn said(request: &Request<Bytes>) -> Option<RuntimeRequest> {
    let (headers, body) = (request.headers(), request.body());
    match (request.method(), path(request).as_slice()) {
        (&Method::POST, ["2018-06-01", "runtime", "invocation", id, "response"]) => {
            Some(RuntimeRequest::Response { id: (*id).to_owned(), body: body.clone() })
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
    request: Request<Bytes>,
) -> io::Result<Response<Full<Bytes>>> {
    match (request.method(), path(&request).as_slice()) {
        (&Method::GET, ["2018-06-01", "runtime", "invocation", "next"]) => {
            let (sender, next) = oneshot::channel();
            let _ = requests.send(RuntimeRequest::Next(sender)).await;
            match next.await {
                Ok(invocation) => invoke(invocation),
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
