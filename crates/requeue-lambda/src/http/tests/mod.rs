//! The target against real servers: on loopback sockets in real time, and in memory in virtual
//! time.

use std::convert::Infallible;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use ::http::{HeaderValue, Method, Request, Response, request};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use requeue::embedded::EmbeddedSqs;
use requeue::{BatchProcessor, Clock, FailureClass, Record, Settings};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

use super::connection::{MAX_AGE, MAX_HEADERS, PING_INTERVAL, PING_TIMEOUT};
use super::frames::MAX_HEAD_BYTES;
use super::settings::{CONNECT_TIMEOUT, IDLE_TIMEOUT, TIMEOUT};
use super::*;

mod connections;
mod fuzz;
mod http2;
mod in_memory;
mod on_sockets;

/// The requests that a server received.
type Seen = Arc<Mutex<Vec<(request::Parts, Bytes)>>>;

async fn serve<S>(stream: S, answer: fn(&request::Parts) -> Response<Full<Bytes>>, seen: Seen)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let seen = Arc::clone(&seen);
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.expect("the body arrives").to_bytes();
            let response = answer(&head);
            seen.lock().expect("no test panicked").push((head, body));
            Ok::<_, Infallible>(response)
        }
    });
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn read_head(stream: &mut (impl AsyncRead + Unpin)) {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
}

fn ok(_: &request::Parts) -> Response<Full<Bytes>> {
    Response::new(Full::from("done"))
}

fn ok_and_close(_: &request::Parts) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from("done"));
    response.headers_mut().insert("connection", HeaderValue::from_static("close"));
    response
}

fn message() -> Delivery<'static> {
    Delivery::new("id-1", r#"{"order":7}"#)
}

/// A record with this id.
fn record(id: &str) -> Record {
    let mut record = Record::default();
    record.body = Some(r#"{"order":7}"#.to_owned());
    complete(record, id)
}

fn complete(mut record: Record, id: &str) -> Record {
    let arn = "arn:aws:sqs:eu-west-1:123456789012:orders".parse().expect("an ARN");
    record.message_id = Some(id.to_owned());
    record.receipt_handle = Some("handle".to_owned());
    record.body.get_or_insert_with(|| "{}".to_owned());
    record.queue = Some(Arc::new(arn));
    record.attributes.get_or_insert_default();
    record
}

/// A record as a handler sees it.
pub(super) async fn message_of(record: Record) -> Message {
    let (sender, mut seen) = mpsc::unbounded_channel();
    let handler = move |message: Message| {
        sender.send(message).expect("the test waits for it");
        std::future::ready(Ok::<_, Failure>(()))
    };
    let record = complete(record, "id-1");
    let queue = EmbeddedSqs::new(Clock::system());
    let deadline = Instant::now() + Duration::from_secs(60);
    let processor = BatchProcessor::new(handler, queue, Settings::default());
    let report = processor.process(vec![record], deadline).await;
    seen.try_recv().unwrap_or_else(|_| panic!("{report:?}"))
}

async fn failure(target: &HttpTarget<impl Connector>) -> Failure {
    target.deliver(message()).await.expect_err("the delivery fails")
}
