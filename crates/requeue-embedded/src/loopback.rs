//! HTTP/1.1 for programs on this machine. It knows nothing of SQS. No request can hold up others,
//! however slow or large it is, and no web page can reach the server by a name that it has pointed
//! here.
//!
//! Not part of the library's interface: the command line serves by it as well.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::uri::Authority;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
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

/// What hyper reads ahead of one connection.
const READ_BUFFER: usize = 64 * 1024;
/// No process, or not this one, can open another file: ENFILE and EMFILE, and WSAEMFILE of Windows.
const OUT_OF_FILES: [i32; 3] = [23, 24, 10_024];

/// What a server takes.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Bytes of a request's body; more are answered with 413.
    pub body: usize,
    /// Bytes of all requests' bodies that are held at once. A request that does not fit is answered
    /// with 503.
    pub bodies: usize,
    /// Connections at once. One more ends the oldest whose request is not being answered, or else
    /// the oldest.
    pub connections: usize,
}

/// A connection that may have to make room.
struct Open {
    answers: Answers,
    task: AbortHandle,
}

/// How many requests of a connection are being answered, until the last byte of their responses is
/// written.
#[derive(Clone, Default)]
struct Answers(Arc<AtomicUsize>);

impl Answers {
    fn begin(&self) -> Answering {
        self.0.fetch_add(1, Ordering::Relaxed);
        Answering(self.clone())
    }

    fn is_any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

struct Answering(Answers);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A response's body. hyper drops it once it is written.
struct Sending {
    body: Bytes,
    _answering: Answering,
}

impl AsRef<[u8]> for Sending {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

/// Answers requests until `stopped` changes; then accepts no more connections, lets open requests
/// end for a second, and breaks those that have not. An error as an answer breaks its connection.
pub async fn serve<F, A>(
    listener: TcpListener,
    mut stopped: watch::Receiver<bool>,
    bounds: Bounds,
    answer: F,
) where
    F: Fn(Request<Bytes>) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = io::Result<Response<Full<Bytes>>>> + Send + 'static,
{
    let mut connections = JoinSet::new();
    let mut open: VecDeque<Open> = VecDeque::new();
    let room = Arc::new(Semaphore::new(bounds.bodies));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.changed() => break,
            // Ended connections are forgotten as they end.
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
        // Answers are small; without this each would wait for the other side's delayed
        // acknowledgement.
        let _ = stream.set_nodelay(true);
        let answers = Answers::default();
        let intake = Intake { max_body: bounds.body, room: Arc::clone(&room) };
        let conversation =
            converse(stream, intake, answers.clone(), stopped.clone(), answer.clone());
        open.push_back(Open { answers, task: connections.spawn(conversation) });
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    // What is left is broken when the set is dropped.
    let _ = timeout(STOP_GRACE, ended).await;
}

/// Other errors are of the connection that was to be accepted, and say nothing about those that are
/// open.
fn needs_room(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|code| OUT_OF_FILES.contains(&code))
}

fn make_room(open: &mut VecDeque<Open>) {
    let at = open.iter().position(|connection| !connection.answers.is_any()).unwrap_or_default();
    if let Some(oldest) = open.remove(at) {
        oldest.task.abort();
    }
}

async fn converse<S, F, A>(
    stream: S,
    intake: Intake,
    answers: Answers,
    mut stopped: watch::Receiver<bool>,
    answer: F,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Fn(Request<Bytes>) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = io::Result<Response<Full<Bytes>>>> + Send + 'static,
{
    let service = service_fn(move |request| {
        let (answer, answers, intake) = (answer.clone(), answers.clone(), intake.clone());
        async move {
            match intake.whole(request).await {
                Ok((request, _room)) => {
                    let answering = answers.begin();
                    let (head, body) = answer(request).await?.into_parts();
                    let Ok(body) = body.collect().await;
                    let sending = Sending { body: body.to_bytes(), _answering: answering };
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
        // An error is a connection that was broken on purpose, or a client that went away.
        _ = connection.as_mut() => {}
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

type Refused = (StatusCode, &'static str);

const TOO_LARGE: Refused = (StatusCode::PAYLOAD_TOO_LARGE, "the body is too large");
const TOO_SLOW: Refused = (StatusCode::REQUEST_TIMEOUT, "the body takes too long");
const UNREADABLE: Refused = (StatusCode::BAD_REQUEST, "the body cannot be read");
const NO_ROOM: Refused =
    (StatusCode::SERVICE_UNAVAILABLE, "too many large bodies at once: try again");

/// How much of a request's body is taken in.
#[derive(Clone)]
struct Intake {
    max_body: usize,
    /// For the bodies of all connections.
    room: Arc<Semaphore>,
}

impl Intake {
    /// The request with its whole body, for which there is room as long as the permit is held, or
    /// why it is refused.
    async fn whole(
        &self,
        request: Request<Incoming>,
    ) -> Result<(Request<Bytes>, Option<OwnedSemaphorePermit>), Refused> {
        if !is_for_this_machine(request.headers()) {
            return Err((
                StatusCode::FORBIDDEN,
                "the header Host names another machine: ask 127.0.0.1 or localhost",
            ));
        }
        let (head, body) = request.into_parts();
        if body.size_hint().lower() > u64::try_from(self.max_body).unwrap_or(u64::MAX) {
            return Err(TOO_LARGE);
        }
        let (body, permit) =
            timeout(BODY_TIMEOUT, self.collect(body)).await.unwrap_or(Err(TOO_SLOW))?;
        Ok((Request::from_parts(head, body), permit))
    }

    /// Takes room for what came and not for what was announced, so that no slow request holds up
    /// others.
    async fn collect(
        &self,
        mut body: Incoming,
    ) -> Result<(Bytes, Option<OwnedSemaphorePermit>), Refused> {
        let (mut bytes, mut held) = (BytesMut::new(), None::<OwnedSemaphorePermit>);
        while let Some(frame) = body.frame().await {
            let data = frame.map_err(|_| UNREADABLE)?.into_data().unwrap_or_default();
            if data.len() > self.max_body - bytes.len() {
                return Err(TOO_LARGE);
            }
            let length = u32::try_from(data.len()).map_err(|_| TOO_LARGE)?;
            let permit =
                Arc::clone(&self.room).try_acquire_many_owned(length).map_err(|_| NO_ROOM)?;
            match &mut held {
                Some(held) => held.merge(permit),
                None => held = Some(permit),
            }
            bytes.extend_from_slice(&data);
        }
        Ok((bytes.freeze(), held))
    }
}

/// What is left of the request is not read.
fn refusal(status: StatusCode, why: &'static str) -> io::Result<Response<Full<Bytes>>> {
    let response = Response::builder().status(status).header(header::CONNECTION, "close");
    response.body(Full::from(format!("{why}\n"))).map_err(io::Error::other)
}

/// Whether a request names this machine as its host. A web page that makes its own name lead to a
/// loopback address can read any answer of a server there, which to the browser is the page's own;
/// but the browser still sends that name. The port does not matter: it may be forwarded.
fn is_for_this_machine(headers: &HeaderMap) -> bool {
    headers.get_all(header::HOST).iter().all(|host| {
        let host = host.to_str().unwrap_or_default();
        host.parse::<Authority>()
            .is_ok_and(|authority| !host.contains('@') && is_loopback(authority.host()))
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
    use tokio::net::TcpStream;
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

    /// What is answered to a client that sends this and then nothing more, and after how long the
    /// connection is closed.
    async fn answered(sent: &str, room: &Arc<Semaphore>) -> (String, Duration) {
        let (mut client, server) = tokio::io::duplex(1 << 16);
        let (_stop, stopped) = watch::channel(false);
        let echo =
            async |request: Request<Bytes>| Ok(Response::new(Full::from(request.into_body())));
        let echo = move |request| Box::pin(echo(request));
        let intake = Intake { max_body: 100, room: Arc::clone(room) };
        let running = tokio::spawn(converse(server, intake, Answers::default(), stopped, echo));
        let began = Instant::now();
        client.write_all(sent.as_bytes()).await.expect("it reads");
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.expect("text");
        running.await.expect("no panic");
        (answer, began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_or_large_request_ends_in_time_and_is_not_read() {
        let (secs, room) = (Duration::from_secs, Arc::new(Semaphore::new(100)));
        let head = "POST / HTTP/1.1\r\nhost: localhost\r\n";
        let close = "connection: close\r\n";
        for (sent, expected, ended) in [
            (String::new(), "", secs(30)),
            (head.to_owned(), "", secs(30)),
            (format!("{head}content-length: 5\r\n\r\nhel"), "HTTP/1.1 408 ", secs(30)),
            (
                format!("{head}transfer-encoding: chunked\r\n\r\n2\r\nhe\r\n"),
                "HTTP/1.1 408 ",
                secs(30),
            ),
            (format!("{head}{close}content-length: 5\r\n\r\nhello"), "HTTP/1.1 200 ", secs(0)),
            (
                format!("{head}{close}content-length: 100\r\n\r\n{}", "x".repeat(100)),
                "HTTP/1.1 200 ",
                secs(0),
            ),
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
            let (answer, after) = answered(&sent, &room).await;
            assert!(
                answer.starts_with(expected) && answer.is_empty() == expected.is_empty(),
                "{sent}: {answer}"
            );
            assert_eq!(after.as_secs(), ended.as_secs(), "{sent}");
            assert_eq!(room.available_permits(), 100, "{sent}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_of_all_connections_share_one_bound() {
        let head = "POST / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
        for (room, length, expected) in
            [(9, 9, "HTTP/1.1 200 "), (8, 9, "HTTP/1.1 503 "), (0, 0, "HTTP/1.1 200 ")]
        {
            let room = Arc::new(Semaphore::new(room));
            let body = "x".repeat(length);
            let chunks =
                if length == 0 { String::new() } else { format!("{length:x}\r\n{body}\r\n") };
            for framed in [
                format!("content-length: {length}\r\n\r\n{body}"),
                format!("transfer-encoding: chunked\r\n\r\n{chunks}0\r\n\r\n"),
            ] {
                let (answer, _) = answered(&format!("{head}{framed}"), &room).await;
                assert!(answer.starts_with(expected), "{room:?}, {framed}: {answer}");
            }
        }
    }

    #[tokio::test]
    async fn a_connection_answers_until_its_response_is_written() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let mut client =
            TcpStream::connect(listener.local_addr().expect("bound")).await.expect("it listens");
        let (server, _) = listener.accept().await.expect("a connection");
        let (_stop, stopped) = watch::channel(false);
        // More than the buffers of both sockets hold.
        let length = 64 << 20;
        let answer = move |_| async move { Ok(Response::new(Full::from(vec![b'x'; length]))) };
        let (answers, room) = (Answers::default(), Arc::new(Semaphore::new(0)));
        let running = tokio::spawn(converse(
            server,
            Intake { max_body: 0, room },
            answers.clone(),
            stopped,
            answer,
        ));
        client
            .write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            .await
            .expect("it reads");
        let _ = client.read_u8().await.expect("the response begins");
        assert!(answers.is_any(), "most of it is not written");
        tokio::io::copy(&mut client, &mut tokio::io::sink()).await.expect("it ends");
        running.await.expect("no panic");
        assert!(!answers.is_any(), "all is written");
    }

    #[test]
    fn only_a_lack_of_files_ends_an_open_connection() {
        for (code, expected) in
            [(23, true), (24, true), (4, false), (12, false), (103, false), (104, false)]
        {
            assert_eq!(needs_room(&io::Error::from_raw_os_error(code)), expected, "{code}");
        }
        assert!(!needs_room(&io::Error::from(io::ErrorKind::ConnectionAborted)));
    }

    #[tokio::test]
    async fn connections_beyond_the_bound_take_the_place_of_idle_ones_first() {
        let idle = || Open {
            answers: Answers::default(),
            task: tokio::spawn(sleep(Duration::MAX)).abort_handle(),
        };
        let busy = || Open { answers: Answers(Arc::new(AtomicUsize::new(1))), ..idle() };
        let mut open: VecDeque<Open> = [busy(), idle(), busy(), idle()].into();
        let is_answering = |open: &VecDeque<Open>| -> Vec<bool> {
            open.iter().map(|connection| connection.answers.is_any()).collect()
        };
        for expected in [&[true, true, false][..], &[true, true], &[true], &[], &[]] {
            make_room(&mut open);
            assert_eq!(is_answering(&open), expected);
        }
    }
}
