use std::net::Ipv4Addr;

use http::{HeaderMap, header};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use super::*;

#[test]
fn only_names_of_this_machine_are_answered() {
    let is_ours = |hosts: &[&str]| {
        let hosts = hosts.iter().map(|host| (header::HOST, host.parse().expect("a value")));
        check_host(&hosts.collect(), Names::OfThisMachine).is_ok()
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
    assert!(check_host(&several, Names::OfThisMachine).is_err());
    assert!(is_ours(&[]), "HTTP/1.0: no browser");
}

#[test]
fn pages_of_other_origins_are_not_answered() {
    let host = ("host", "127.0.0.1:9324");
    for (headers, is_own) in [
        (&[host][..], true),
        (&[host, ("origin", "http://127.0.0.1:9324")], true),
        (&[("host", "LocalHost:9324"), ("origin", "http://localhost:9324")], true),
        (&[host, ("sec-fetch-site", "same-origin")], true),
        (&[host, ("sec-fetch-site", "none")], true),
        (&[host, ("origin", "")], false),
        (&[host, ("origin", "null")], false),
        (&[host, ("origin", "https://127.0.0.1:9324")], false),
        (&[host, ("origin", "http://127.0.0.1")], false),
        (&[host, ("origin", "http://127.0.0.1:9325")], false),
        (&[host, ("origin", "http://localhost:9324")], false),
        (&[host, ("origin", "http://127.0.0.1:9324.evil.example")], false),
        (&[host, ("origin", "https://evil.example")], false),
        (&[("origin", "http://127.0.0.1:9324")], false),
        (&[host, ("origin", "http://127.0.0.1:9324"), ("origin", "null")], false),
        // An image or a script of a page comes without an origin.
        (&[host, ("sec-fetch-site", "cross-site")], false),
        (&[host, ("sec-fetch-site", "same-site")], false),
        (&[host, ("sec-fetch-site", "")], false),
        (&[host, ("sec-fetch-site", "none"), ("sec-fetch-site", "cross-site")], false),
    ] {
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            all.append(*name, header::HeaderValue::from_static(value));
        }
        assert_eq!(check_origin(&all).is_ok(), is_own, "{headers:?}");
    }
}

fn reader(max_body: usize, room: &Arc<Semaphore>) -> BodyReader {
    let bounds = Bounds { body: max_body, bodies: 0, connections: 1 };
    BodyReader { bounds, room: Arc::clone(room) }
}

/// What is answered to a client that sends this and then nothing more, and after how long the
/// connection is closed.
async fn answered(sent: &str, room: &Arc<Semaphore>) -> (String, Duration) {
    let (mut client, server) = tokio::io::duplex(1 << 16);
    let (_stop, stopped) = watch::channel(false);
    let echo = async |request: Request<Bytes>| Ok(Response::new(Full::from(request.into_body())));
    let echo = move |request| Box::pin(echo(request));
    let respond = move |request| respond_to_whole(request, echo);
    let running = tokio::spawn(serve_connection(
        server,
        reader(100, room),
        Activity::idle(),
        stopped,
        respond,
    ));
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
        (format!("{head}transfer-encoding: chunked\r\n\r\n2\r\nhe\r\n"), "HTTP/1.1 408 ", secs(30)),
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
        ("GET / HTTP/1.1\r\nhost: evil.example\r\n\r\n".to_owned(), "HTTP/1.1 421 ", secs(0)),
        (format!("{head}origin: null\r\ncontent-length: 5\r\n\r\nhello"), "HTTP/1.1 403 ", secs(0)),
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
        let chunks = if length == 0 { String::new() } else { format!("{length:x}\r\n{body}\r\n") };
        for framed in [
            format!("content-length: {length}\r\n\r\n{body}"),
            format!("transfer-encoding: chunked\r\n\r\n{chunks}0\r\n\r\n"),
        ] {
            let (answer, _) = answered(&format!("{head}{framed}"), &room).await;
            assert!(answer.starts_with(expected), "{room:?}, {framed}: {answer}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn trailers_come_with_the_request_and_are_no_headers() {
    let (mut client, server) = tokio::io::duplex(1 << 16);
    let (_stop, stopped) = watch::channel(false);
    let (long, room) = ("x".repeat(40_000), Arc::new(Semaphore::new(100)));
    let respond = |request| {
        respond_to_whole(request, |request: Request<Bytes>| async move {
            let trailers = &request.extensions().get::<Trailers>().expect("they are read").0;
            assert_eq!((trailers.len(), &request.body()[..]), (1, &b"he"[..]));
            assert_eq!((trailers["x-error"].len(), request.headers().len()), (40_000, 3));
            Ok(Response::default())
        })
    };
    let reader = reader(100, &room);
    tokio::spawn(serve_connection(server, reader, Activity::idle(), stopped, respond));
    let head = "POST / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
    let sent =
        format!("{head}transfer-encoding: chunked\r\n\r\n2\r\nhe\r\n0\r\nx-error: {long}\r\n\r\n");
    client.write_all(sent.as_bytes()).await.expect("it reads");
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.expect("text");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
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
    let respond = move |request| respond_to_whole(request, answer);
    let (activity, reader) = (Activity::idle(), reader(0, &Arc::new(Semaphore::new(0))));
    let running =
        tokio::spawn(serve_connection(server, reader, activity.clone(), stopped, respond));
    client
        .write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .await
        .expect("it reads");
    let _ = client.read_u8().await.expect("the response begins");
    assert_eq!(activity.now().open_responses, 1, "most of it is not written");
    tokio::io::copy(&mut client, &mut tokio::io::sink()).await.expect("it ends");
    running.await.expect("no panic");
    assert_eq!(activity.now().open_responses, 0, "all is written");
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

#[tokio::test(start_paused = true)]
async fn the_longest_idle_connection_makes_room_and_one_with_a_response_only_at_last() {
    let mut open = Vec::new();
    let mut responses = Vec::new();
    let tick = || tokio::time::advance(Duration::from_millis(1));
    for _ in 0..4 {
        let activity = Activity::idle();
        responses.push(activity.begin());
        let task = tokio::spawn(sleep(Duration::MAX)).abort_handle();
        open.push(OpenConnection { activity, task });
        tick().await;
    }
    let [first, second, third, fourth] = [0, 1, 2, 3].map(|at: usize| open[at].task.clone());
    drop(responses.remove(2));
    tick().await;
    drop(responses.remove(0));
    for (ended, reason) in [
        (third, "idle for longer"),
        (first, "idle"),
        (second, "its response is open for longer"),
        (fourth, "the last one"),
    ] {
        make_room(&mut open);
        tick().await;
        assert!(ended.is_finished(), "{reason}");
    }
    make_room(&mut open);
}
