//! HTTP/1.1 for programs on this machine. It knows nothing of SQS. A request that is slow or large
//! holds up no others. A web page cannot reach the server, not even by a name that it has pointed to
//! this machine.
//!
//! This module is not part of the library's interface, but the command line serves by it as well.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

mod request;
#[cfg(test)]
mod tests;

use request::{RequestReader, refusal};

/// How long the head of a request may take, and how long a connection without a request stays open.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long open requests may take to end after the server was told to stop.
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
    /// Bytes of all requests' bodies that are held at once. A request that does not fit gets
    /// 503.
    pub bodies: usize,
    /// Connections at once. One more ends the oldest connection without an open response, or else
    /// the oldest.
    pub connections: usize,
}

/// A connection that may be ended for a new one.
struct OpenConnection {
    open_responses: OpenResponses,
    task: AbortHandle,
}

/// The number of a connection's responses that are open, until their last byte is written.
#[derive(Clone, Default)]
struct OpenResponses(Arc<AtomicUsize>);

impl OpenResponses {
    fn begin(&self) -> OpenResponse {
        self.0.fetch_add(1, Ordering::Relaxed);
        OpenResponse(self.clone())
    }

    fn is_any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

struct OpenResponse(OpenResponses);

impl Drop for OpenResponse {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A response's body. hyper drops it once it is written.
struct ResponseBody {
    body: Bytes,
    _open: OpenResponse,
}

impl AsRef<[u8]> for ResponseBody {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

/// Serves requests until `stopped` changes. Then it accepts no more connections, lets open requests
/// end for a second, and breaks those that remain.
///
/// `respond` is called with each request that arrived in full. An error of `respond` breaks its
/// connection. A connection that breaks ends the future that `respond` returned.
pub async fn serve<F, A>(
    listener: TcpListener,
    mut stopped: watch::Receiver<bool>,
    bounds: Bounds,
    respond: F,
) where
    F: Fn(Request<Bytes>) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = io::Result<Response<Full<Bytes>>>> + Send + 'static,
{
    let mut connections = JoinSet::new();
    let mut open: VecDeque<OpenConnection> = VecDeque::new();
    let room = Arc::new(Semaphore::new(bounds.bodies));
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
        // Responses are small. Without this, each would wait for the other side's delayed
        // acknowledgement.
        let _ = stream.set_nodelay(true);
        let open_responses = OpenResponses::default();
        let reader = RequestReader { max_body: bounds.body, room: Arc::clone(&room) };
        let connection = serve_connection(
            stream,
            reader,
            open_responses.clone(),
            stopped.clone(),
            respond.clone(),
        );
        open.push_back(OpenConnection { open_responses, task: connections.spawn(connection) });
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    // The remaining connections break when the set is dropped.
    let _ = timeout(STOP_GRACE, ended).await;
}

/// Whether the system has no room for a new connection. Other errors concern the connection that
/// was to be accepted, and not the open ones.
fn needs_room(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|code| OUT_OF_FILES.contains(&code))
}

fn make_room(open: &mut VecDeque<OpenConnection>) {
    let at =
        open.iter().position(|connection| !connection.open_responses.is_any()).unwrap_or_default();
    if let Some(oldest) = open.remove(at) {
        oldest.task.abort();
    }
}

async fn serve_connection<S, F, A>(
    stream: S,
    reader: RequestReader,
    open_responses: OpenResponses,
    mut stopped: watch::Receiver<bool>,
    respond: F,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Fn(Request<Bytes>) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = io::Result<Response<Full<Bytes>>>> + Send + 'static,
{
    let service = service_fn(move |request| {
        let (respond, open_responses, reader) =
            (respond.clone(), open_responses.clone(), reader.clone());
        async move {
            // A client that ends after its last byte breaks the connection, and with it this
            // future. A request that has arrived in full is passed on all the same.
            let passed_on = tokio::spawn(async move {
                reader.read(request).await.map(|(request, room)| (respond(request), room))
            });
            match passed_on.await.map_err(io::Error::other)? {
                Ok((response, _room)) => {
                    let open_response = open_responses.begin();
                    let (head, body) = response.await?.into_parts();
                    let Ok(body) = body.collect().await;
                    let sending = ResponseBody { body: body.to_bytes(), _open: open_response };
                    Ok(Response::from_parts(head, Full::new(Bytes::from_owner(sending))))
                }
                Err((status, why)) => refusal(status, why),
            }
        }
    });
    let mut connection = std::pin::pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(READ_BUFFER)
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
