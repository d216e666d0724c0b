//! HTTP/1.1 for programs on this machine. It knows nothing of SQS. No request can hold up others, however slow or large it is, and no web
//! page can reach the server by a name that it has pointed here.
//!
//! Not part of the library's interface: the command line serves by it as well.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::uri::Authority;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

/// How long the head of a request may take, and how long a connection without a request stays open.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the body of a request may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// How long open requests may take to end after the server was told to stop.
const STOP_GRACE: Duration = Duration::from_secs(1);
/// How long to wait when the system has no more connections to give, so as not to spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What a server takes.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Bytes of a request's body; more are answered with 413.
    pub body: usize,
    /// Connections at once. One more ends the oldest whose request is not being answered, or else the oldest.
    pub connections: usize,
}

/// A connection that may have to make room.
struct Open {
    is_answering: Arc<AtomicBool>,
    task: AbortHandle,
}

/// Answers requests until `stopped` changes; then accepts no more connections, lets open requests end for a second, and breaks those that
/// have not. An error as an answer breaks its connection.
pub async fn serve<F, A>(listener: TcpListener, mut stopped: watch::Receiver<bool>, bounds: Bounds, answer: F)
where
    F: Fn(Request<Bytes>) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = io::Result<Response<Full<Bytes>>>> + Send + 'static,
{
    let mut connections = JoinSet::new();
    let mut open: VecDeque<Open> = VecDeque::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.changed() => break,
            // Ended connections are forgotten as they end.
            Some(_) = connections.join_next() => continue,
        };
        open.retain(|connection| !connection.task.is_finished());
        let Ok((stream, _)) = accepted else {
            make_room(&mut open);
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        if open.len() >= bounds.connections {
            make_room(&mut open);
        }
        // Answers are small; without this each would wait for the other side's delayed acknowledgement.
        let _ = stream.set_nodelay(true);
        let is_answering = Arc::new(AtomicBool::new(false));
        let conversation = converse(stream, bounds.body, Arc::clone(&is_answering), stopped.clone(), answer.clone());
        open.push_back(Open { is_answering, task: connections.spawn(conversation) });
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    // What is left is broken when the set is dropped.
    let _ = timeout(STOP_GRACE, ended).await;
}

fn make_room(open: &mut VecDeque<Open>) {
    let at = open.iter().position(|connection| !connection.is_answering.load(Ordering::Relaxed)).unwrap_or_default();
    if let Some(oldest) = open.remove(at) {
        oldest.task.abort();
    }
}

async fn converse<S, F, A>(
    stream: S,
    max_body: usize,
    is_answering: Arc<AtomicBool>,
    mut stopped: watch::Receiver<bool>,
    answer: F,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Fn(Request<Bytes>) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = io::Result<Response<Full<Bytes>>>> + Send + 'static,
{
    let service = service_fn(move |request| {
        let (answer, is_answering) = (answer.clone(), Arc::clone(&is_answering));
        async move {
            match whole(request, max_body).await {
                Ok(request) => {
                    is_answering.store(true, Ordering::Relaxed);
                    let answered = answer(request).await;
                    is_answering.store(false, Ordering::Relaxed);
                    answered
                }
                Err((status, why)) => refusal(status, why),
            }
        }
    });
    let mut connection = std::pin::pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .auto_date_header(false)
            .serve_connection(TokioIo::new(stream), service)
    );
    tokio::select! {
        // An error is a connection that was broken on purpose, or a client that went away.
        _ = connection.as_mut() => {}
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

type Refused = (StatusCode, &'static str);

/// The request with its whole body, or why it is refused.
async fn whole(request: Request<Incoming>, max_body: usize) -> Result<Request<Bytes>, Refused> {
    const TOO_LARGE: Refused = (StatusCode::PAYLOAD_TOO_LARGE, "the body is too large");
    if !is_for_this_machine(request.headers()) {
        return Err((StatusCode::FORBIDDEN, "the header Host names another machine: ask 127.0.0.1 or localhost"));
    }
    let (head, body) = request.into_parts();
    if body.size_hint().lower() > u64::try_from(max_body).unwrap_or(u64::MAX) {
        return Err(TOO_LARGE);
    }
    match timeout(BODY_TIMEOUT, Limited::new(body, max_body).collect()).await {
        Ok(Ok(body)) => Ok(Request::from_parts(head, body.to_bytes())),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(TOO_LARGE),
        Ok(Err(_)) => Err((StatusCode::BAD_REQUEST, "the body cannot be read")),
        Err(_) => Err((StatusCode::REQUEST_TIMEOUT, "the body takes too long")),
    }
}

/// What is left of the request is not read.
fn refusal(status: StatusCode, why: &'static str) -> io::Result<Response<Full<Bytes>>> {
    let response = Response::builder().status(status).header(header::CONNECTION, "close");
    response.body(Full::from(format!("{why}\n"))).map_err(io::Error::other)
}

/// Whether a request names this machine as its host. A web page that makes its own name lead to a loopback address can read any answer
/// of a server there, which to the browser is the page's own; but the browser still sends that name. The port does not matter: it may be
/// forwarded.
fn is_for_this_machine(headers: &HeaderMap) -> bool {
    headers.get_all(header::HOST).iter().all(|host| {
        let host = host.to_str().unwrap_or_default();
        host.parse::<Authority>().is_ok_and(|authority| !host.contains('@') && is_loopback(authority.host()))
    })
}

fn is_loopback(name: &str) -> bool {
    let v6 = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    let name = name.to_ascii_lowercase();
    name == "localhost"
        || name.ends_with(".localhost")
        || name.parse().is_ok_and(|address: Ipv4Addr| address.is_loopback())
        || v6.is_some_and(|name| name.parse().is_ok_and(|address: Ipv6Addr| address.is_loopback()))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::{Instant, sleep};

    use super::*;

    #[test]
    fn only_names_of_this_machine_are_answered() {
        let is_ours = |hosts: &[&str]| {
            let hosts = hosts.iter().map(|host| (header::HOST, host.parse().expect("a value")));
            is_for_this_machine(&hosts.collect())
        };
        let ours = [
            "127.0.0.1",
            "127.0.0.1:9324",
            "127.8.9.1:1",
            "localhost",
            "LocalHost:9324",
            "sqs.eu-west-1.localhost:4566",
            "[::1]:80",
        ];
        for host in ours {
            assert!(is_ours(&[host]), "{host}");
        }
        let foreign = [
            "",
            "evil.example",
            "evil.example:9324",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "127.0.0.1@evil.example",
            "evil.example@127.0.0.1",
            "notlocalhost",
            "0.0.0.0:9324",
            "10.0.0.1",
            "[::2]:80",
            "[fe80::1]",
            "localhost evil.example",
            "127.0.0.1, evil.example",
        ];
        for host in foreign {
            assert!(!is_ours(&[host]), "{host}");
        }
        let mut several = HeaderMap::new();
        several.append(header::HOST, header::HeaderValue::from_static("localhost"));
        several.append(header::HOST, header::HeaderValue::from_static("evil.example"));
        assert!(!is_for_this_machine(&several));
        assert!(is_ours(&[]), "HTTP/1.0: no browser");
    }

    /// What is answered to a client that sends this and then nothing more, and after how long the connection is closed.
    async fn answered(sent: &str) -> (String, Duration) {
        let (mut client, server) = tokio::io::duplex(1 << 16);
        let (_stop, stopped) = watch::channel(false);
        let echo = async |request: Request<Bytes>| Ok(Response::new(Full::from(request.into_body())));
        let echo = move |request| Box::pin(echo(request));
        let running = tokio::spawn(converse(server, 100, Arc::default(), stopped, echo));
        let began = Instant::now();
        client.write_all(sent.as_bytes()).await.expect("it reads");
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.expect("text");
        running.await.expect("no panic");
        (answer, began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_or_large_request_ends_in_time_and_is_not_read() {
        let secs = Duration::from_secs;
        let head = "POST / HTTP/1.1\r\nhost: localhost\r\n";
        let close = "connection: close\r\n";
        for (sent, expected, ended) in [
            (String::new(), "", secs(30)),
            (head.to_owned(), "", secs(30)),
            (format!("{head}content-length: 5\r\n\r\nhel"), "HTTP/1.1 408 ", secs(30)),
            (format!("{head}transfer-encoding: chunked\r\n\r\n2\r\nhe\r\n"), "HTTP/1.1 408 ", secs(30)),
            (format!("{head}{close}content-length: 5\r\n\r\nhello"), "HTTP/1.1 200 ", secs(0)),
            (format!("{head}{close}content-length: 100\r\n\r\n{}", "x".repeat(100)), "HTTP/1.1 200 ", secs(0)),
            (format!("{head}content-length: 5\r\n\r\nhello"), "HTTP/1.1 200 ", secs(30)),
            (format!("{head}content-length: 101\r\n\r\n"), "HTTP/1.1 413 ", secs(0)),
            (format!("{head}content-length: 300000000\r\n\r\nx"), "HTTP/1.1 413 ", secs(0)),
            (
                format!("{head}transfer-encoding: chunked\r\n\r\n65\r\n{}\r\n", "x".repeat(101)),
                "HTTP/1.1 413 ",
                secs(0),
            ),
            ("GET / HTTP/1.1\r\nhost: evil.example\r\n\r\n".to_owned(), "HTTP/1.1 403 ", secs(0)),
        ] {
            let (answer, after) = answered(&sent).await;
            assert!(answer.starts_with(expected) && answer.is_empty() == expected.is_empty(), "{sent}: {answer}");
            assert_eq!(after.as_secs(), ended.as_secs(), "{sent}");
        }
    }

    #[tokio::test]
    async fn connections_beyond_the_bound_take_the_place_of_idle_ones_first() {
        let idle = || Open { is_answering: Arc::default(), task: tokio::spawn(sleep(Duration::MAX)).abort_handle() };
        let busy = || Open { is_answering: Arc::new(AtomicBool::new(true)), ..idle() };
        let mut open: VecDeque<Open> = [busy(), idle(), busy(), idle()].into();
        let is_answering = |open: &VecDeque<Open>| -> Vec<bool> {
            open.iter().map(|connection| connection.is_answering.load(Ordering::Relaxed)).collect()
        };
        for expected in [&[true, true, false][..], &[true, true], &[true], &[], &[]] {
            make_room(&mut open);
            assert_eq!(is_answering(&open), expected);
        }
    }
}
