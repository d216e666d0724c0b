//! One connection to the target, over HTTP/1.1 or HTTP/2. It returns a response's status as soon as
//! it has arrived. It knows no other connections, and does not decide about resending.

use std::error::Error as _;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use ::http::header::HOST;
use ::http::{Request, Response, StatusCode, response};
use bytes::Bytes;
use futures_util::FutureExt;
use h2::Reason;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper::rt::{Executor, Read, Write};
use hyper_util::client::legacy::connect::Connection as _;
use hyper_util::rt::{TokioIo, TokioTimer};
use requeue::aws::Moment;
use requeue::{Clock, is_last_poll};
use tokio::sync::Semaphore;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::connector::{BoxError, Connector};
use super::frames::{Frames, MAX_HEAD_BYTES};
use super::status_line::StatusLine;
use super::url::Address;
use super::watched::{Watched, lock};

/// The interval of pings over an HTTP/2 connection with open requests. Without them, a connection
/// that died while the environment was frozen would delay every message until its timeout.
pub(super) const PING_INTERVAL: Duration = Duration::from_secs(10);
pub(super) const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// For the orderly end in TLS and HTTP/2: a target that does not read would block it for ever.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// No request begins on an older connection. A busy one is never idle, and would not follow the
/// target's name to another address.
pub(super) const MAX_AGE: Duration = Duration::from_mins(2);
pub(super) const MAX_HEADERS: usize = 1_000;
/// The bytes of a body that an HTTP/2 target may send before they are read: the least that HTTP/2
/// allows, and enough for the beginning of a body.
const STREAM_WINDOW: u32 = 65_535;
const CONNECTION_WINDOW: u32 = 1024 * 1024;

pub(super) enum Connection {
    Http1(Http1),
    Http2(Stream),
}

pub(super) struct Http1 {
    pub(super) sender: http1::SendRequest<Full<Bytes>>,
    status: Arc<Mutex<StatusLine>>,
    pub(super) opened: Moment,
    is_proxied: bool,
    is_proven: bool,
    _tasks: DropGuard,
}

pub(super) struct Http2 {
    sender: http2::SendRequest<Full<Bytes>>,
    frames: Arc<Mutex<Frames>>,
    /// The number of streams that the target allows; 1 until its settings arrive.
    max_streams: Box<dyn Fn() -> usize + Send + Sync>,
    in_flight: AtomicUsize,
    opened: Moment,
    last_use: Mutex<Moment>,
    clock: Clock,
    _tasks: DropGuard,
}

impl Http2 {
    pub(super) fn has_room(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) < (self.max_streams)()
    }

    pub(super) fn is_fit(&self, limit: Duration, now: Moment) -> bool {
        let is_used = self.in_flight.load(Ordering::Relaxed) > 0
            || !lock(&self.last_use).is_older(limit, now);
        is_used && !self.opened.is_older(MAX_AGE, now) && !self.sender.is_closed()
    }
}

pub(super) struct Stream {
    pub(super) connection: Arc<Http2>,
    is_proven: bool,
}

impl Stream {
    pub(super) fn new(connection: Arc<Http2>, is_proven: bool) -> Self {
        connection.in_flight.fetch_add(1, Ordering::Relaxed);
        Self { connection, is_proven }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        *lock(&self.connection.last_use) = Moment::now(self.connection.clock.now());
        self.connection.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(super) struct Received {
    pub(super) head: response::Parts,
    pub(super) body: Option<Incoming>,
}

pub(super) struct NoResponse {
    pub(super) error: BoxError,
    pub(super) repeat: Repeat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeat {
    /// The target may have worked on it, and the failure is the target's.
    Never,
    /// The target may have worked on it, but the connection failed: it had worked before, and no
    /// byte of this response came.
    WithKey,
    /// The target got it, and has not worked on it.
    Always,
    Unsent,
    /// The target has not worked on it, and requires HTTP/1.1.
    OverHttp1,
}

impl Connection {
    pub(super) async fn open<C: Connector>(
        mut connector: C,
        address: &Address,
        clock: &Clock,
        background: &Arc<Semaphore>,
    ) -> Result<Self, BoxError> {
        poll_fn(|context| connector.poll_ready(context)).await.map_err(Into::into)?;
        let io = connector.call(address.root()).await.map_err(Into::into)?;
        let connected = io.connected();
        if connected.is_negotiated_h2() {
            let connection = over_http2(io, clock, background).await?;
            return Ok(Self::Http2(Stream::new(Arc::new(connection), false)));
        }
        let status = Arc::default();
        let io = TokioIo::new(Watched { stream: TokioIo::new(io), watch: Arc::clone(&status) });
        let handshake = http1::Builder::new()
            .max_buf_size(MAX_HEAD_BYTES)
            .max_headers(MAX_HEADERS)
            // A firewall's broken cookie must not hide the headers that decide the class.
            .ignore_invalid_headers_in_responses(true)
            .allow_obsolete_multiline_headers_in_responses(true)
            .allow_spaces_after_header_name_in_responses(true)
            .handshake(io);
        let (mut sender, connection) = handshake.await?;
        let tasks = Tasks::new(background);
        let guard = tasks.guard();
        tasks.execute(connection);
        sender.ready().await?;
        let (opened, is_proxied) = (Moment::now(clock.now()), connected.is_proxied());
        let is_proven = false;
        Ok(Self::Http1(Http1 { sender, status, opened, is_proxied, is_proven, _tasks: guard }))
    }

    /// Sends a request, and waits for the response's head until this time. If the caller is about
    /// to be cancelled, or the connection fails, a complete status line is enough.
    pub(super) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
        address: &Address,
        until: Instant,
    ) -> Result<Received, NoResponse> {
        match self {
            Self::Http1(connection) => connection.send(request, address, until).await,
            Self::Http2(stream) => stream.send(request, address, until).await,
        }
    }
}

async fn over_http2<T>(
    io: T,
    clock: &Clock,
    background: &Arc<Semaphore>,
) -> Result<Http2, hyper::Error>
where
    T: Read + Write + Unpin + Send + 'static,
{
    let tasks = Tasks::new(background);
    let guard = tasks.guard();
    let frames = Arc::default();
    let io = TokioIo::new(Watched { stream: TokioIo::new(io), watch: Arc::clone(&frames) });
    let (sender, connection) = http2::Builder::new(tasks.clone())
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .initial_max_send_streams(1)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(u32::try_from(MAX_HEAD_BYTES).unwrap_or(u32::MAX))
        .handshake(io)
        .await?;
    let connection = Arc::new(Mutex::new(connection));
    let watched = Arc::downgrade(&connection);
    tasks.execute(poll_fn(move |context| Pin::new(&mut *lock(&connection)).poll(context)));
    let opened = Moment::now(clock.now());
    Ok(Http2 {
        sender,
        frames,
        max_streams: Box::new(move || {
            watched.upgrade().map_or(0, |connection| lock(&connection).current_max_send_streams())
        }),
        in_flight: AtomicUsize::new(0),
        opened,
        last_use: Mutex::new(opened),
        clock: clock.clone(),
        _tasks: guard,
    })
}

/// Runs the tasks of one connection, and aborts them if they have not ended some time after it was
/// closed, or at once if too many others are ending.
#[derive(Clone)]
struct Tasks {
    closed: CancellationToken,
    background: Arc<Semaphore>,
}

impl Tasks {
    fn new(background: &Arc<Semaphore>) -> Self {
        Self { closed: CancellationToken::new(), background: Arc::clone(background) }
    }

    fn guard(&self) -> DropGuard {
        self.closed.clone().drop_guard()
    }
}

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        let Self { closed, background } = self.clone();
        tokio::spawn(async move {
            let late = async {
                closed.cancelled().await;
                if let Ok(_permit) = background.try_acquire() {
                    sleep(CLOSE_TIMEOUT).await;
                }
            };
            tokio::select! {
                biased;
                _ = task => {}
                () = late => {}
            }
        });
    }
}

impl Http1 {
    async fn send(
        &mut self,
        mut request: Request<Full<Bytes>>,
        address: &Address,
        until: Instant,
    ) -> Result<Received, NoResponse> {
        let uri = if self.is_proxied { &address.absolute } else { &address.origin };
        *request.uri_mut() = uri.clone();
        request.headers_mut().insert(HOST, address.host.clone());
        *lock(&self.status) = StatusLine::default();
        let mut sent = pin!(self.sender.try_send_request(request));
        let status = || lock(&self.status).status();
        let response = poll_fn(|context| match sent.as_mut().poll(context) {
            Poll::Ready(response) => Poll::Ready(Some(response)),
            Poll::Pending if is_last_poll() && status().is_some() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        });
        let response = in_time(until, response).await.flatten();
        match (response, status()) {
            (Some(Ok(response)), _) => {
                self.is_proven = true;
                Ok(Received::new(response))
            }
            (None | Some(Err(_)), Some(status)) => Ok(Received::status(status)),
            (None, None) => Err(NoResponse { error: TimedOut.into(), repeat: Repeat::Never }),
            (Some(Err(error)), None) => {
                let is_used = self.is_proven && !lock(&self.status).has_begun;
                Err(NoResponse::new(error, if is_used { Repeat::WithKey } else { Repeat::Never }))
            }
        }
    }
}

impl Stream {
    async fn send(
        &mut self,
        mut request: Request<Full<Bytes>>,
        address: &Address,
        until: Instant,
    ) -> Result<Received, NoResponse> {
        *request.uri_mut() = address.absolute.clone();
        let sent = self.connection.sender.clone().try_send_request(request);
        match in_time(until, pin!(sent)).await {
            Some(Ok(response)) => Ok(Received::new(response)),
            Some(Err(error)) => {
                let repeat = self.repeat(error.error());
                Err(NoResponse::new(error, repeat))
            }
            None => Err(NoResponse { error: TimedOut.into(), repeat: Repeat::Never }),
        }
    }

    fn repeat(&self, error: &hyper::Error) -> Repeat {
        let error = error.source().and_then(|source| source.downcast_ref::<h2::Error>());
        match error.and_then(h2::Error::reason) {
            Some(Reason::HTTP_1_1_REQUIRED) => Repeat::OverHttp1,
            Some(Reason::REFUSED_STREAM) if error.is_some_and(h2::Error::is_remote) => {
                Repeat::Always
            }
            // For a stream that the target worked on, the connection ends with another code.
            Some(_) if error.is_some_and(|error| error.is_go_away() && error.is_remote()) => {
                Repeat::Always
            }
            None if self.is_proven && !lock(&self.connection.frames).has_begun() => Repeat::WithKey,
            // The target reset this stream, or a response has begun, or a malformed one broke the
            // connection. Any of these may concern this request.
            Some(_) | None => Repeat::Never,
        }
    }
}

impl Received {
    fn new(response: Response<Incoming>) -> Self {
        let (head, body) = response.into_parts();
        Self { head, body: Some(body) }
    }

    /// Its other fields cannot be read.
    fn status(status: StatusCode) -> Self {
        let (mut head, ()) = Response::new(()).into_parts();
        head.status = status;
        Self { head, body: None }
    }
}

impl NoResponse {
    fn new(mut error: TrySendError<Request<Full<Bytes>>>, repeat: Repeat) -> Self {
        // A returned request was never written.
        let repeat = if error.take_message().is_some() { Repeat::Unsent } else { repeat };
        Self { error: error.into_error().into(), repeat }
    }
}

/// Waits until this time. A response at the same moment is in time.
async fn in_time<F: Future + Unpin>(until: Instant, mut response: F) -> Option<F::Output> {
    if let Ok(response) = timeout_at(until, &mut response).await {
        return Some(response);
    }
    yield_now().await;
    response.now_or_never()
}

#[derive(Debug, thiserror::Error)]
#[error("no response in time")]
pub(super) struct TimedOut;
