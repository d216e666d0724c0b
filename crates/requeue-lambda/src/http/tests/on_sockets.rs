//! The requests on the wire, and the handling of responses.

use std::net::SocketAddr;

use hyper_util::client::legacy::connect::HttpConnector;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::rules::Guarded;
use super::*;

/// A server on a loopback socket, and how many connections it accepted.
struct Server {
    address: SocketAddr,
    accepted: Arc<AtomicUsize>,
}

impl Server {
    /// Lets `talk` handle each connection.
    async fn raw<F: Future<Output = ()> + Send + 'static>(
        talk: impl Fn(TcpStream) -> F + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&accepted);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(talk(stream));
            }
        });
        Self { address, accepted }
    }

    /// Sends `answer` unchanged after the request's head, and closes.
    async fn canned(answer: impl Into<Vec<u8>>) -> Self {
        let answer: Arc<[u8]> = answer.into().into();
        Self::raw(move |mut stream| {
            let answer = Arc::clone(&answer);
            async move {
                read_head(&mut stream).await;
                let _ = stream.write_all(&answer).await;
                let _ = stream.shutdown().await;
                // Whatever is unread when a socket closes makes a reset of it.
                let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
            }
        })
        .await
    }

    /// Responds to every request with `answer`, in HTTP.
    async fn answering(answer: fn(&request::Parts) -> Response<Full<Bytes>>) -> (Self, Seen) {
        let seen = Seen::default();
        let requests = Arc::clone(&seen);
        let server = Self::raw(move |stream| serve(stream, answer, Arc::clone(&requests))).await;
        (server, seen)
    }

    fn target(&self) -> HttpTarget {
        self.target_with(HttpSettings::default())
    }

    fn target_with(&self, settings: HttpSettings) -> HttpTarget {
        let url = format!("http://{}/orders?key=s3cret", self.address);
        HttpTarget::new(TargetUrl::parse(&url).expect("it is loopback"), settings)
            .expect("http needs no certificates")
    }
}

#[tokio::test]
async fn a_message_arrives_with_what_the_target_needs_to_know() {
    let (server, seen) = Server::answering(ok).await;
    let settings =
        HttpSettings::default().header("Authorization", "Bearer x").expect("it may be set");
    let target = server.target_with(settings);
    let time = |seconds: u64| SystemTime::UNIX_EPOCH + Duration::from_millis(seconds * 1_000 + 999);
    let delivery = Delivery {
        retry_count: 3,
        receive_count: 2,
        first_received: Some(time(1_700_000_001)),
        first_sent: Some(time(1_700_000_000)),
        ..message()
    };
    let mut delivery = delivery.header("x-tenant", "blue").expect("it may be set");
    delivery.headers.insert("content-length", HeaderValue::from_static("9999"));
    target.deliver(delivery).await.expect("it is accepted");

    let (head, body) = seen.lock().expect("no test panicked").pop().expect("it arrived");
    assert_eq!((head.method, head.uri.to_string().as_str()), (Method::POST, "/orders?key=s3cret"));
    assert_eq!(body, r#"{"order":7}"#);
    for (name, value) in [
        ("host", server.address.to_string().as_str()),
        ("accept-encoding", "identity"),
        ("user-agent", concat!("requeue/", env!("CARGO_PKG_VERSION"))),
        ("content-type", "application/json"),
        ("content-length", "11"),
        ("authorization", "Bearer x"),
        ("x-tenant", "blue"),
        ("idempotency-key", "id-1"),
        ("webhook-id", "id-1"),
        ("x-requeue-retry-count", "3"),
        ("x-requeue-receive-count", "2"),
        ("x-requeue-first-receive-time", "1700000001"),
        ("x-requeue-first-sent-time", "1700000000"),
    ] {
        let values: Vec<_> = head.headers.get_all(name).iter().collect();
        assert_eq!(values, [value], "{name}");
    }
    for absent in ["cookie", "referer"] {
        assert!(!head.headers.contains_key(absent));
    }
}

#[tokio::test]
async fn the_message_names_its_content_type_before_the_settings_do() {
    let (server, seen) = Server::answering(ok).await;
    let configured = HttpSettings::default().content_type("application/cbor").expect("it is valid");
    for (settings, own, expected) in [
        (HttpSettings::default(), None, "application/json"),
        (configured.clone(), None, "application/cbor"),
        (configured, Some("application/cloudevents+json"), "application/cloudevents+json"),
    ] {
        let target = server.target_with(settings);
        let delivery = Delivery { content_type: own, ..message() };
        target.deliver(delivery).await.expect("it is accepted");
        let (head, _) = seen.lock().expect("no test panicked").pop().expect("it arrived");
        assert_eq!(head.headers["content-type"], expected);
    }
}

#[tokio::test]
async fn no_message_smuggles_a_header() {
    let (server, seen) = Server::answering(ok).await;
    let target = server.target();
    for text in ["text/plain\r\nX-Admin: yes", "text/plain\nX", "text/plain\0", "", " ", "täxt"] {
        let by_type = Delivery { content_type: Some(text), ..message() };
        let failure = target.deliver(by_type).await.expect_err("it is refused");
        assert_eq!(failure.class(), FailureClass::NonRetryable, "{text:?}");
        assert_eq!(failure.detail(), "invalid value of header content-type");
    }
    let by_id = Delivery::new("id\r\nX-Admin: yes", "");
    let failure = target.deliver(by_id).await.expect_err("it is refused");
    assert_eq!(failure.class(), FailureClass::NonRetryable);
    assert!(seen.lock().expect("no test panicked").is_empty());
}

#[tokio::test]
async fn the_status_decides_and_the_connection_is_kept() {
    fn echo(head: &request::Parts) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::from("because"));
        let asked = head.headers["x-answer"].to_str().expect("it is a number");
        *response.status_mut() = asked.parse().expect("it is a status");
        response
    }
    let (server, _) = Server::answering(echo).await;
    let target = server.target();
    for (status, expected) in [
        ("200", None),
        ("201", None),
        ("202", None),
        ("204", None),
        ("299", None),
        ("300", Some(FailureClass::NonRetryable)),
        ("304", Some(FailureClass::NonRetryable)),
        ("400", Some(FailureClass::NonRetryable)),
        ("404", Some(FailureClass::NonRetryable)),
        ("408", Some(FailureClass::Temporary)),
        ("410", Some(FailureClass::NonRetryable)),
        ("425", Some(FailureClass::Temporary)),
        ("429", Some(FailureClass::RateLimit)),
        ("500", Some(FailureClass::Temporary)),
        ("501", Some(FailureClass::NonRetryable)),
        ("503", Some(FailureClass::Temporary)),
        ("599", Some(FailureClass::Temporary)),
        ("999", Some(FailureClass::Temporary)),
    ] {
        let delivery = message().header("x-answer", status).expect("it may be set");
        let result = target.deliver(delivery).await;
        assert_eq!(result.err().map(|failure| failure.class()), expected, "{status}");
    }
    assert_eq!(server.accepted.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_delay_is_read_from_the_head_and_from_the_body() {
    let head = "HTTP/1.1 503 Busy\r\nRetry-After: Sun, 06 Nov 1994 08:50:37 GMT\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Length: 0\r\n\r\n";
    let failed = failure(&Server::canned(head).await.target()).await;
    assert_eq!(
        (failed.class(), failed.delay()),
        (FailureClass::Temporary, Some(Duration::from_mins(1)))
    );

    let body = r#"{"error":{"status":"RESOURCE_EXHAUSTED","details":[{"retryDelay":"7s"}]}}"#;
    let answer = format!("HTTP/1.1 429 Slow\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let failed = failure(&Server::canned(answer).await.target()).await;
    assert_eq!(
        (failed.class(), failed.delay()),
        (FailureClass::RateLimit, Some(Duration::from_secs(7)))
    );

    let postponed = "HTTP/1.1 429 Later\r\nRetry-After: 3600\r\nRequeue-Scope: message\r\nContent-Length: 0\r\n\r\n";
    assert!(failure(&Server::canned(postponed).await.target()).await.is_postponed());
}

#[tokio::test]
async fn without_a_date_the_injected_clock_counts() {
    let head = "HTTP/1.1 503 Busy\r\nRetry-After: Sun, 06 Nov 1994 08:50:37 GMT\r\nContent-Length: 0\r\n\r\n";
    let server = Server::canned(head).await;
    let clock = Clock::starting_at(
        httpdate::parse_http_date("Sun, 06 Nov 1994 07:50:37 GMT").expect("it is a date"),
    );
    let target = server.target_with(HttpSettings { clock, ..HttpSettings::default() });
    let delay = failure(&target).await.delay().expect("it is named");
    assert!(delay <= Duration::from_hours(1) && delay > Duration::from_mins(59));
}

#[tokio::test]
async fn a_redirect_is_a_failure_and_not_followed() {
    let (canary, _) = Server::answering(ok).await;
    for status in [301, 302, 303, 307, 308] {
        let answer = format!(
            "HTTP/1.1 {status} Go\r\nLocation: http://{}/\r\nContent-Length: 0\r\n\r\n",
            canary.address
        );
        let failed = failure(&Server::canned(answer).await.target()).await;
        assert_eq!(
            (failed.class(), failed.detail()),
            (FailureClass::NonRetryable, &*format!("status {status}"))
        );
    }
    assert_eq!(canary.accepted.load(Ordering::SeqCst), 0);
}

/// Compressed by gzip: a response that would mean a quota if it were decompressed.
const COMPRESSED: &[u8] = &[
    0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0xab, 0x56, 0x4a, 0x2d, 0x2a, 0xca,
    0x2f, 0x52, 0xb2, 0xaa, 0x86, 0x30, 0x8a, 0x95, 0xac, 0xa2, 0xab, 0x95, 0x8a, 0x52, 0x13, 0x8b,
    0xf3, 0xf3, 0x94, 0xac, 0x94, 0x0a, 0x4b, 0xf3, 0x4b, 0x12, 0x5d, 0x2b, 0x92, 0x53, 0x53, 0x53,
    0x52, 0x53, 0x94, 0x6a, 0x63, 0x6b, 0x6b, 0x01, 0x04, 0x2a, 0xbf, 0xe0, 0x31, 0x00, 0x00, 0x00,
];

#[tokio::test]
async fn a_compressed_answer_is_left_alone() {
    for (encoding, body, expected) in [
        ("gzip", COMPRESSED, FailureClass::NonRetryable),
        ("identity", br#"{"error":{"errors":[{"reason":"quotaExceeded"}]}}"#, FailureClass::Quota),
    ] {
        let head = format!(
            "HTTP/1.1 403 No\r\nContent-Encoding: {encoding}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let failed =
            failure(&Server::canned([head.as_bytes(), body].concat()).await.target()).await;
        assert_eq!(failed.class(), expected, "{encoding}");
    }
}

#[tokio::test]
async fn of_a_huge_answer_only_the_beginning_is_read() {
    for (status, expected) in [("200", None), ("503", Some(FailureClass::Temporary))] {
        for framing in ["Content-Length: 10000000", "Transfer-Encoding: chunked"] {
            let sent = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&sent);
            let server = Server::raw(move |mut stream| {
                let count = Arc::clone(&count);
                async move {
                    read_head(&mut stream).await;
                    let head = format!("HTTP/1.1 {status} X\r\n{framing}\r\n\r\n");
                    let _ = stream.write_all(head.as_bytes()).await;
                    let block = format!("400\r\n{}\r\n", "x".repeat(1_024));
                    while stream.write_all(block.as_bytes()).await.is_ok() {
                        count.fetch_add(block.len(), Ordering::SeqCst);
                    }
                }
            })
            .await;
            let result = server.target().deliver(message()).await;
            assert_eq!(result.err().map(|failure| failure.class()), expected, "{status} {framing}");
            // The rest of what was sent lies in the buffers of the sockets.
            assert!(sent.load(Ordering::SeqCst) < 9_000_000);
        }
    }
}

#[tokio::test]
async fn a_huge_head_counts_by_its_status() {
    let one = |length| format!("X: {}\r\n", "x".repeat(length));
    let many = |count| "x: y\r\n".repeat(count);
    let after = "Retry-After: 40\r\n";
    for (headers, delay) in [
        (one(MAX_HEAD_BYTES / 2), Some(Duration::from_secs(40))),
        (many(MAX_HEADERS - 1), Some(Duration::from_secs(40))),
        (many(MAX_HEADERS), None),
        // hyper reads in blocks, and looks at the bound between them.
        (one(MAX_HEAD_BYTES * 3), None),
        (one(2_000_000), None),
    ] {
        for (status, class) in [
            (200, None),
            (400, Some(FailureClass::NonRetryable)),
            (429, Some(FailureClass::RateLimit)),
            (503, Some(FailureClass::Temporary)),
        ] {
            let head = format!("HTTP/1.1 {status} X\r\n{after}{headers}Content-Length: 0\r\n\r\n");
            let head = head.replacen("x: y\r\n", "", 1);
            let failed = Server::canned(head).await.target().deliver(message()).await.err();
            let expected = class.map(|class| (class, delay));
            let failed = failed.map(|failed| (failed.class(), failed.delay()));
            let without_delay = failed.map(|(class, _)| (class, None));
            let failed = if status == 400 { without_delay } else { failed };
            let expected =
                if status == 400 { expected.map(|(class, _)| (class, None)) } else { expected };
            assert_eq!(failed, expected, "{status}, {} bytes", headers.len());
        }
    }
}

#[tokio::test]
async fn a_status_counts_also_if_its_body_breaks_off() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        "HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        "HTTP/1.1 202 Accepted\r\nX: ",
        "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 202 Accepted\r\nno header",
    ] {
        let target = Server::canned(answer).await.target();
        assert_eq!(target.deliver(message()).await, Ok(()), "{answer}");
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_temporary() {
    for (answer, reason) in [
        ("", "connection closed before the response"),
        ("HTTP/1.1 200", "connection closed before the response"),
        ("HTTP/1.1 503 No\r\nContent-Length: 10\r\n\r\nhalf", "status 503"),
        ("SSH-2.0-OpenSSH_9.6\r\n", "head of the response too large or not HTTP"),
    ] {
        let failed = failure(&Server::canned(answer).await.target()).await;
        assert_eq!(
            (failed.class(), failed.evidence(), failed.detail()),
            (FailureClass::Temporary, Evidence::Typed, reason),
            "{answer}"
        );
        let has_status = answer.starts_with("HTTP/1.1 503");
        assert_eq!(failed.is_in_doubt(), !has_status, "{answer}: it may still work on it");
    }
}

#[tokio::test]
async fn a_reset_is_temporary() {
    for (answer, reason) in [
        ("", "connection reset"),
        ("HTTP/1.1 503 No\r\nContent-Length: 10\r\n\r\nhalf", "status 503"),
    ] {
        let server = Server::raw(move |mut stream| async move {
            // The body of the request stays unread: closing then resets the connection.
            read_head(&mut stream).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        })
        .await;
        let failed = failure(&server.target()).await;
        assert_eq!((failed.class(), failed.detail()), (FailureClass::Temporary, reason));
        assert_eq!(failed.is_in_doubt(), answer.is_empty());
    }
}

#[tokio::test]
async fn no_connection_is_temporary_and_says_why() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let port = nobody.local_addr().expect("it is bound").port();
    drop(nobody);
    let no_tls = Server::raw(|mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    })
    .await;
    for (url, reason) in [
        (format!("http://127.0.0.1:{port}/?key=s3cret"), "connection refused"),
        (format!("https://{}/?key=s3cret", no_tls.address), "TLS failed"),
    ] {
        let url = TargetUrl::parse(&url).expect("it is valid");
        // Without any trusted root.
        let http = TargetUrl::parse("http://localhost/").expect("it is loopback");
        let connectors = connector::for_url(&http, &HttpSettings::default()).expect("no roots");
        let target = HttpTarget::with_connector(url, HttpSettings::default(), connectors.best);
        let failed = failure(&target).await;
        assert_eq!(
            (failed.class(), failed.evidence(), failed.detail()),
            (FailureClass::Temporary, Evidence::Typed, reason)
        );
        assert!(!failed.is_in_doubt(), "nothing was handed over");
    }
}

#[tokio::test]
async fn a_name_that_leads_to_a_link_local_address_is_temporary_and_gets_nothing() {
    let canary = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let port = canary.local_addr().expect("it is bound").port();
    for (address, api, reason) in [
        ("169.254.169.254", "", "host name resolves to a link-local address"),
        ("127.0.0.1", "127.0.0.1", "host name resolves to Lambda's Runtime API"),
    ] {
        let rules = TargetRules::default().allow_http().runtime_api(&format!("{api}:{port}"));
        let url = TargetUrl::parse_with(&format!("http://orders.example:{port}/"), rules.clone())
            .expect("it is valid");
        let address = SocketAddr::new(address.parse().expect("an address"), 0);
        let resolver =
            tower::service_fn(move |_| async move { Ok::<_, io::Error>([address].into_iter()) });
        let connector = HttpConnector::new_with_resolver(Guarded::new(resolver, rules, port));
        let failed =
            failure(&HttpTarget::with_connector(url, HttpSettings::default(), connector)).await;
        assert_eq!((failed.class(), failed.detail()), (FailureClass::Temporary, reason));
    }
    assert!(timeout_at(Instant::now(), canary.accept()).await.is_err(), "nobody connected");
}

#[tokio::test]
async fn connections_are_reused_and_a_dead_one_is_replaced() {
    let (server, seen) = Server::answering(ok).await;
    let target = server.target();
    for _ in 0..5 {
        target.deliver(message()).await.expect("it is accepted");
    }
    assert_eq!(server.accepted.load(Ordering::SeqCst), 1);
    let both = tokio::join!(target.deliver(message()), target.deliver(message()));
    assert_eq!(both, (Ok(()), Ok(())));
    assert!(server.accepted.load(Ordering::SeqCst) <= 2);
    assert_eq!(seen.lock().expect("no test panicked").len(), 7);

    let (server, _) = Server::answering(ok_and_close).await;
    let target = server.target();
    for _ in 0..3 {
        target.deliver(message()).await.expect("it is accepted");
    }
    assert_eq!(server.accepted.load(Ordering::SeqCst), 3);
}

/// As when one zone of a load balancer is down: its address drops what is sent there.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_address_that_does_not_respond_leaves_time_for_the_next() {
    let (server, _) = Server::answering(ok).await;
    let full = TcpSocket::new_v4().expect("a socket is free");
    full.bind(SocketAddr::from(([127, 0, 0, 2], server.address.port()))).expect("it is free");
    let full = full.listen(1).expect("it is bound");
    let silent = full.local_addr().expect("it is bound");
    let mut waiting = Vec::new();
    // The system takes one more than the backlog, and drops all that follow.
    for _ in 0..2 {
        waiting.push(TcpStream::connect(silent).await.expect("there is room"));
    }
    let addresses = [silent, server.address];
    let resolver =
        tower::service_fn(move |_| async move { Ok::<_, io::Error>(addresses.into_iter()) });
    let timeout = Duration::from_secs(2);
    let connector = connector::tcp(HttpConnector::new_with_resolver(resolver), timeout);
    let url = format!("http://localhost:{}/", server.address.port());
    let url = TargetUrl::parse(&url).expect("it is loopback");
    let settings = HttpSettings { connect_timeout: timeout, ..HttpSettings::default() };
    let target = HttpTarget::with_connector(url, settings, connector);
    assert_eq!(target.deliver(message()).await, Ok(()));
}

/// A NAT gateway forgets a connection that is silent for 350 s.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn tcp_keeps_a_silent_connection_alive() {
    let (server, _) = Server::answering(ok).await;
    let target = server.target();
    target.deliver(message()).await.expect("it is accepted");
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the system tells it");
    let peer = format!("0100007F:{:04X}", server.address.port());
    // 01 is ESTABLISHED: a connection to an earlier user of this port may still be in TIME_WAIT.
    let of_target = |row: &&str| row.split_whitespace().skip(2).take(2).eq([peer.as_str(), "01"]);
    let row = table.lines().find(of_target).expect("the connection is kept");
    let timer = row.split_whitespace().nth(5).expect("a row has it");
    let hundredths = timer.strip_prefix("02:").map(|rest| u32::from_str_radix(rest, 16));
    let is_soon = hundredths.is_some_and(|rest| rest.is_ok_and(|rest| rest <= 60 * 100));
    assert!(is_soon, "no timer for the first probe: {row}");
}

#[tokio::test]
async fn neither_target_nor_failure_prints_a_secret() {
    let secret = "whsec_s3crets3crets3crets3crets3crets3".parse().expect("it is one");
    let mut settings = HttpSettings::default().header("X-Key", "s3cret").expect("it may be set");
    settings.signing_secrets.push(secret);
    let target = Server::canned("").await.target_with(settings);
    let delivery =
        Delivery::new("id-1", "s3cret").header("X-Other", "s3cret").expect("it may be set");
    let printed = format!("{delivery:?} {target:?}");
    let failed = target.deliver(delivery).await.expect_err("nobody answers");
    assert!(!format!("{printed} {failed:?}").contains("s3cret"));
}
