//! HTTP/1.1 for programs on this machine. It knows nothing of SQS. No slow or large request blocks
//! others. No web page can reach the server, not even by a name that it has pointed here.
//!
//! This module is not part of the library's interface, but the command line serves by it as well.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, timeout};

mod request;
#[cfg(test)]
mod tests;

use request::{BodyReader, refusal};
pub use request::{Names, Refusal, Trailers, UnreadRequest, check_host, check_origin, is_loopback};

/// How long the head of a request may take, and how long a connection without a request stays open.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long open requests may take to end after the server was asked to stop.
const STOP_GRACE: Duration = Duration::from_secs(1);
/// How long to wait when the system has no more connections, so as not to spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The bytes that hyper reads ahead of one connection.
const READ_BUFFER: usize = 64 * 1024;
/// No process, or not this one, can open another file: ENFILE and EMFILE, and WSAEMFILE on Windows.
const OUT_OF_FILES: [i32; 3] = [23, 24, 10_024];

/// The bounds of the requests that a server accepts.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Bytes of a request's body; a larger one gets 413.
    pub body: usize,
    /// Bytes of all requests' bodies in memory. A request that does not fit gets 503.
    pub bodies: usize,
    /// Connections at once. A further one ends the connection that has been without an open
    /// response for longest, or else the one whose response has been open for longest.
    pub connections: usize,
}

struct OpenConnection {
    activity: Activity,
    task: AbortHandle,
}

/// The state of a connection, in the order in which connections are closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Doing {
    /// Responses that are open, until their last byte is written.
    open_responses: usize,
    /// When a response began or ended last.
    since: Instant,
}

#[derive(Clone)]
struct Activity(Arc<Mutex<Doing>>);

impl Activity {
    fn idle() -> Self {
        Self(Arc::new(Mutex::new(Doing { open_responses: 0, since: Instant::now() })))
    }

    fn begin(&self) -> OpenResponse {
        self.change(|open| open + 1);
        OpenResponse(self.clone())
    }

    fn change(&self, count: impl FnOnce(usize) -> usize) {
        let mut doing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *doing = Doing { open_responses: count(doing.open_responses), since: Instant::now() };
    }

    fn now(&self) -> Doing {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct OpenResponse(Activity);

impl Drop for OpenResponse {
    fn drop(&mut self) {
        self.0.change(|open| open - 1);
    }
}

/// The response of a request. It is open once the request has been read.
type ResponseOf = Arc<OnceLock<OpenResponse>>;

/// A response's body. hyper drops its parts once they are written.
struct OpenBody<B> {
    body: B,
    response: ResponseOf,
}

struct OpenPart {
    bytes: Bytes,
    _response: ResponseOf,
}

impl AsRef<[u8]> for OpenPart {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for OpenBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let Self { body, response } = self.get_mut();
        let part = |bytes| Bytes::from_owner(OpenPart { bytes, _response: Arc::clone(response) });
        Pin::new(body).poll_frame(context).map_ok(|frame| frame.map_data(part))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Serves requests until `stopped` changes. Then it accepts no more connections, lets open requests
/// end for a second, and breaks those that remain.
///
/// `respond` is called with each request that arrived in full, from no web page of another origin,
/// and for a name of this machine. An error of `respond` breaks its connection. A connection that
/// breaks ends the future that `respond` returned.
pub async fn serve<F, A>(
    listener: TcpListener,
    stopped: watch::Receiver<bool>,
    bounds: Bounds,
    respond: F,
) where
    F: Fn(Request<Bytes>) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = io::Result<Response<Full<Bytes>>>> + Send + 'static,
{
    let respond = move |request| respond_to_whole(request, respond.clone());
    serve_unread(listener, stopped, bounds, respond).await;
}

/// As [`serve`], but `respond` checks and reads the request itself.
pub async fn serve_unread<F, A, B>(
    listener: TcpListener,
    mut stopped: watch::Receiver<bool>,
    bounds: Bounds,
    respond: F,
) where
    F: Fn(UnreadRequest) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = io::Result<Response<B>>> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    B: Unpin + Send + 'static,
{
    let mut connections = JoinSet::new();
    let mut open: Vec<OpenConnection> = Vec::new();
    let reader = BodyReader { bounds, room: Arc::new(Semaphore::new(bounds.bodies)) };
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.changed() => break,
            // Connections are forgotten as they end.
            Some(_) = connections.join_next() => continue,
        };
        open.retain(|connection| !connection.task.is_finished());
        let (stream, _) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                if needs_room(&error) {
                    make_room(&mut open);
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if open.len() >= bounds.connections {
            make_room(&mut open);
        }
        // Without this, each response would wait for a delayed acknowledgement.
        let _ = stream.set_nodelay(true);
        let (activity, stopped) = (Activity::idle(), stopped.clone());
        let connection =
            serve_connection(stream, reader.clone(), activity.clone(), stopped, respond.clone());
        open.push(OpenConnection { activity, task: connections.spawn(connection) });
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    // The remaining connections break when the set is dropped.
    let _ = timeout(STOP_GRACE, ended).await;
}

/// Other errors concern the connection that was to be accepted, and not the open ones.
fn needs_room(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|code| OUT_OF_FILES.contains(&code))
}

fn make_room(open: &mut Vec<OpenConnection>) {
    let least = open.iter().enumerate().min_by_key(|(_, connection)| connection.activity.now());
    if let Some((at, _)) = least {
        open.swap_remove(at).task.abort();
    }
}

async fn respond_to_whole<F, A>(
    request: UnreadRequest,
    respond: F,
) -> io::Result<Response<Full<Bytes>>>
where
    F: Fn(Request<Bytes>) -> A + Send + 'static,
    A: Future<Output = io::Result<Response<Full<Bytes>>>> + Send + 'static,
{
    let headers = &request.head.headers;
    let admitted = check_host(headers, Names::OfThisMachine).and_then(|()| check_origin(headers));
    if let Err(refused) = admitted {
        return refusal(refused);
    }
    // A client that ends after its last byte breaks the connection, and with it this future. A
    // request that has arrived in full is passed on all the same.
    let passed_on = tokio::spawn(async move {
        request.read().await.map(|(request, room)| (respond(request), room))
    });
    match passed_on.await.map_err(io::Error::other)? {
        Ok((response, _room)) => response.await,
        Err(refused) => refusal(refused),
    }
}

async fn serve_connection<S, F, A, B>(
    stream: S,
    reader: BodyReader,
    activity: Activity,
    mut stopped: watch::Receiver<bool>,
    respond: F,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Fn(UnreadRequest) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = io::Result<Response<B>>> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    B: Unpin + Send + 'static,
{
    let service = service_fn(move |request: Request<_>| {
        let (head, body) = request.into_parts();
        let response = ResponseOf::default();
        let (activity, reader) = (activity.clone(), reader.clone());
        let opened = Arc::clone(&response);
        let responded = respond(UnreadRequest { head, body, reader, activity, response: opened });
        async move { Ok::<_, io::Error>(responded.await?.map(|body| OpenBody { body, response })) }
    });
    let mut connection = std::pin::pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(READ_BUFFER)
            // Of the trailers too, which hyper limits to 16 KiB otherwise.
            .max_header_size(READ_BUFFER)
            .auto_date_header(false)
            .serve_connection(TokioIo::new(stream), service)
    );
    tokio::select! {
        // An error is a connection that was broken on purpose, or a client that is gone.
        _ = connection.as_mut() => {}
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}
