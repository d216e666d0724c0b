//! The choice of a connection for a request, and the handling of dead ones.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::task::{Context, Poll};

use ::http::Uri;
use tokio::sync::Notify;
use tower::Service;

use super::in_memory::{BUFFER, InMemory, Pipe, Target as _, localhost};
use super::*;

/// The behaviour of a server after the first request of a connection.
#[derive(Clone, Copy, Debug)]
enum Then {
    /// Closes it without a word, before it reads.
    Closes,
    /// The same after it has read.
    ReadsAndCloses,
    /// Begins a response, and closes the connection.
    Breaks,
}

/// A server whose first connections answer so many requests, and then do the other. The connections
/// after them work.
fn dying(connections: usize, requests: usize, then: Then) -> (InMemory, Arc<AtomicUsize>, Seen) {
    let (opened, seen) = (Arc::new(AtomicUsize::new(0)), Seen::default());
    let (count, log) = (Arc::clone(&opened), Arc::clone(&seen));
    let server = InMemory::raw(move |mut stream| {
        let is_dying = count.fetch_add(1, Ordering::SeqCst) < connections;
        let log = Arc::clone(&log);
        async move {
            if !is_dying {
                return serve(stream, ok, log).await;
            }
            for _ in 0..requests {
                read_head(&mut stream).await;
                let mut body = [0; 11];
                let _ = stream.read_exact(&mut body).await;
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone").await;
            }
            match then {
                Then::Closes => {
                    let _ = stream.read_u8().await;
                }
                Then::ReadsAndCloses => read_head(&mut stream).await,
                Then::Breaks => {
                    read_head(&mut stream).await;
                    let _ = stream.write_all(b"HTTP/1.1 5").await;
                }
            }
        }
    });
    (server, opened, seen)
}

#[tokio::test(start_paused = true)]
async fn a_request_is_sent_once_more_only_if_a_connection_that_worked_died_before_a_byte_came() {
    let broken = |evidence| Some((FailureClass::Temporary, evidence));
    for (connections, requests, then, id, expected, opened) in [
        (1, 1, Then::Closes, "id-1", None, 2),
        (1, 1, Then::ReadsAndCloses, "id-1", None, 2),
        (1, 1, Then::Breaks, "id-1", broken(Evidence::Typed), 1),
        // For the first request on a connection, the failure counts as the target's.
        (1, 0, Then::Closes, "id-1", broken(Evidence::Typed), 1),
        (1, 0, Then::ReadsAndCloses, "id-1", broken(Evidence::Typed), 1),
        // Without a key the target could not tell that it is the same.
        (1, 1, Then::ReadsAndCloses, "", broken(Evidence::Connection), 1),
    ] {
        let (server, count, _) = dying(connections, requests, then);
        let target = server.target();
        for _ in 0..requests {
            target.deliver(message()).await.expect("it is accepted");
        }
        let failed = target.deliver(Delivery::new(id, r#"{"order":7}"#)).await.err();
        assert!(failed.as_ref().is_none_or(Failure::is_in_doubt), "{then:?}: it may work on it");
        let failed = failed.map(|failed| (failed.class(), failed.evidence()));
        assert_eq!(failed, expected, "{then:?} after {requests}, id `{id}`");
        assert_eq!(count.load(Ordering::SeqCst), opened, "{then:?} after {requests}, id `{id}`");
    }
}

#[tokio::test(start_paused = true)]
async fn with_a_rate_limit_no_request_is_sent_twice_and_its_message_uses_no_retry() {
    let (server, _, seen) = dying(1, 1, Then::ReadsAndCloses);
    let mut settings = Settings::default();
    let limit = requeue::policy::RateLimit::new(1, Duration::from_secs(1));
    settings.policy.limit = Some(limit);
    let queue = EmbeddedSqs::new(Clock::system());
    let processor = BatchProcessor::new(server.target(), queue, settings);
    let mut waits = Vec::new();
    for n in 0..3 {
        let deadline = Instant::now() + Duration::from_secs(60);
        let report = processor.process(vec![record(&format!("id-{n}"))], deadline).await;
        waits.push(report.outcomes[0].reason());
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(waits, [None, Some("postponed"), None]);
    assert_eq!(seen.lock().expect("no panic").len(), 1, "the third request, on a new connection");
}

/// Like servers that announce the end of an idle connection, or that respond to a request twice.
#[tokio::test(start_paused = true)]
async fn a_response_that_was_there_before_the_request_is_none_to_it() {
    for stale in [
        &b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"[..],
        b"HTTP/1.1 408 Request Timeout\r\n\r\n",
    ] {
        let (opened, seen) = (Arc::new(AtomicUsize::new(0)), Seen::default());
        let (count, log) = (Arc::clone(&opened), Arc::clone(&seen));
        let (say, said) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (heard, done) = (Arc::clone(&say), Arc::clone(&said));
        let target = InMemory::raw(move |mut stream| {
            let is_first = count.fetch_add(1, Ordering::SeqCst) == 0;
            let (log, heard, done) = (Arc::clone(&log), Arc::clone(&heard), Arc::clone(&done));
            async move {
                if !is_first {
                    return serve(stream, ok, log).await;
                }
                read_head(&mut stream).await;
                let _ = stream.read_exact(&mut [0; 11]).await;
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone").await;
                heard.notified().await;
                // Its task is woken first, so that the next request is handed to the connection
                // before that reads what comes now.
                done.notify_one();
                let _ = stream.write_all(stale).await;
                let _ = stream.read_u8().await;
            }
        })
        .target();
        target.deliver(message()).await.expect("it is accepted");
        let next = tokio::spawn(async move {
            said.notified().await;
            target.deliver(message()).await
        });
        tokio::task::yield_now().await;
        say.notify_one();
        next.await.expect("no panic").expect("it is accepted by the second connection");
        assert_eq!((opened.load(Ordering::SeqCst), seen.lock().expect("no panic").len()), (2, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn no_request_is_sent_three_times() {
    let (opened, count) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (connections, requests) = (Arc::clone(&opened), Arc::clone(&count));
    let target = InMemory::raw(move |mut stream| {
        let is_first = connections.fetch_add(1, Ordering::SeqCst) == 0;
        let requests = Arc::clone(&requests);
        async move {
            for n in 0..2 {
                read_head(&mut stream).await;
                requests.fetch_add(1, Ordering::SeqCst);
                if n > 0 || !is_first {
                    return;
                }
                let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await;
            }
        }
    })
    .target();
    target.deliver(Delivery::new("id-1", "")).await.expect("it is accepted");
    let failed = target.deliver(Delivery::new("id-2", "")).await.expect_err("all connections die");
    assert_eq!(
        (failed.evidence(), failed.detail()),
        (Evidence::Typed, "connection closed before the response")
    );
    assert_eq!((opened.load(Ordering::SeqCst), count.load(Ordering::SeqCst)), (2, 3));
}

#[tokio::test(start_paused = true)]
async fn a_repeated_request_is_the_same_but_for_its_signature() {
    let (server, _, seen) = dying(1, 1, Then::ReadsAndCloses);
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse().expect("it is a secret");
    let mut settings = HttpSettings::default().header("X-Key", "one").expect("it may be set");
    settings.signing_secrets.push(secret);
    let target = HttpTarget::with_connector(localhost(), settings, server);
    target.deliver(message()).await.expect("it is accepted");
    let delivery = message().header("x-tenant", "blue").expect("it may be set");
    target.deliver(delivery).await.expect("it is accepted");
    let (head, body) = seen.lock().expect("no test panicked").pop().expect("it arrived");
    assert_eq!(body, r#"{"order":7}"#);
    for (name, value) in
        [("x-key", "one"), ("x-tenant", "blue"), ("idempotency-key", "id-1"), ("host", "localhost")]
    {
        assert_eq!(head.headers[name], value);
    }
    assert!(head.headers.contains_key("webhook-signature"));
}

/// A server that accepts all messages, and counts its connections in `opened`.
fn counting(http2: bool, opened: &Arc<AtomicUsize>) -> InMemory {
    let count = Arc::clone(opened);
    let server = InMemory::raw(move |stream| {
        count.fetch_add(1, Ordering::SeqCst);
        async move {
            if http2 {
                super::http2::serve(stream, None, Arc::default()).await;
            } else {
                serve(stream, ok, Seen::default()).await;
            }
        }
    });
    if http2 { server.over_http2() } else { server }
}

#[tokio::test(start_paused = true)]
async fn an_unused_connection_is_dropped_when_either_clock_says_so() {
    let gaps = [Duration::ZERO, IDLE_TIMEOUT / 2, IDLE_TIMEOUT, IDLE_TIMEOUT * 2];
    for by_timer in gaps {
        for by_clock in gaps {
            for http2 in [false, true] {
                let millis = Arc::new(AtomicU64::new(0));
                let shown = Arc::clone(&millis);
                let clock = Clock::showing(move || {
                    SystemTime::UNIX_EPOCH + Duration::from_millis(shown.load(Ordering::SeqCst))
                });
                let opened = Arc::new(AtomicUsize::new(0));
                let server = counting(http2, &opened);
                let target = HttpTarget::with_connector(
                    localhost(),
                    HttpSettings { clock, ..HttpSettings::default() },
                    server,
                );
                target.deliver(message()).await.expect("it is accepted");
                tokio::time::sleep(Duration::from_millis(1)).await;
                tokio::time::sleep(by_timer).await;
                millis.fetch_add(
                    u64::try_from(by_clock.as_millis()).expect("it is short"),
                    Ordering::SeqCst,
                );
                target.deliver(message()).await.expect("it is accepted");
                let is_kept = by_timer < IDLE_TIMEOUT && by_clock < IDLE_TIMEOUT;
                let expected = if is_kept { 1 } else { 2 };
                assert_eq!(
                    opened.load(Ordering::SeqCst),
                    expected,
                    "{by_timer:?} {by_clock:?} HTTP/2: {http2}"
                );
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_in_use_all_the_time_is_replaced_when_it_is_old() {
    for http2 in [false, true] {
        let opened = Arc::new(AtomicUsize::new(0));
        let target = counting(http2, &opened).target();
        let mut seen = Vec::new();
        for _ in 0..7 {
            target.deliver(message()).await.expect("it is accepted");
            seen.push(opened.load(Ordering::SeqCst));
            for _ in 0..MAX_AGE.as_secs() / 3 {
                target.deliver(message()).await.expect("it is accepted");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
        assert_eq!(seen, [1, 1, 1, 2, 2, 2, 3], "HTTP/2: {http2}");
    }
}

/// Connects once, and never again.
#[derive(Clone)]
struct Once {
    server: InMemory,
    is_used: Arc<AtomicBool>,
}

impl Service<Uri> for Once {
    type Response = Pipe;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Pipe, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        if self.is_used.swap(true, Ordering::SeqCst) {
            Box::pin(std::future::pending())
        } else {
            Box::pin(self.server.call(uri))
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_takes_a_connection_that_comes_back_while_it_connects() {
    for (http2, length) in [(false, 0), (false, 9_000), (true, 0), (true, 9_000)] {
        let (arrived, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (tell, wait) = (Arc::clone(&arrived), Arc::clone(&go));
        let server = InMemory::raw(move |stream| {
            let (tell, wait) = (Arc::clone(&tell), Arc::clone(&wait));
            let answer = service_fn(move |request: Request<Incoming>| {
                let (tell, wait) = (Arc::clone(&tell), Arc::clone(&wait));
                async move {
                    let _ = request.into_body().collect().await;
                    tell.notify_one();
                    wait.notified().await;
                    Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(vec![b'x'; length]))))
                }
            });
            let io = TokioIo::new(stream);
            async move {
                if http2 {
                    let mut server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    let _ = server.max_concurrent_streams(1).serve_connection(io, answer).await;
                } else {
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(io, answer)
                        .await;
                }
            }
        });
        let server = if http2 { server.over_http2() } else { server };
        let settings = HttpSettings { connect_timeout: Duration::MAX, ..HttpSettings::default() };
        let target = HttpTarget::with_connector(
            localhost(),
            settings,
            Once { server, is_used: Arc::default() },
        );
        let respond = async {
            loop {
                arrived.notified().await;
                tokio::task::yield_now().await;
                go.notify_one();
            }
        };
        let delivered = async {
            tokio::join!(
                target.deliver(message()),
                target.deliver(message()),
                target.deliver(message())
            )
        };
        let delivered = tokio::select! {
            delivered = delivered => delivered,
            () = respond => unreachable!("it responds as long as requests come"),
        };
        assert_eq!(delivered, (Ok(()), Ok(()), Ok(())), "HTTP/2: {http2}, {length} bytes");
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_need_come_for_an_unused_connection_to_be_closed() {
    let (closed, mut notice) = tokio::sync::mpsc::unbounded_channel();
    let target = InMemory::raw(move |stream| {
        let closed = closed.clone();
        async move {
            serve(stream, ok, Seen::default()).await;
            let _ = closed.send(());
        }
    })
    .target();
    target.deliver(message()).await.expect("it is accepted");
    let seen = tokio::time::timeout(IDLE_TIMEOUT * 3, notice.recv()).await;
    seen.expect("it is soon").expect("the server sees the end");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_was_dead_lettered_is_closed_although_the_target_does_not_read() {
    for http2 in [false, true] {
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let server = InMemory::raw(move |mut stream| {
            let tell = tell.clone();
            async move {
                tokio::time::sleep(TIMEOUT).await;
                let mut left = Vec::new();
                let _ = stream.read_to_end(&mut left).await;
                let _ = tell.send(left.len());
            }
        });
        let server = if http2 { server.over_http2() } else { server };
        let settings = HttpSettings { timeout: Duration::from_secs(1), ..HttpSettings::default() };
        let target = HttpTarget::with_connector(localhost(), settings, server);
        let delivered = target.deliver(Delivery::new("id-1", "x".repeat(1_000_000))).await;
        assert!(delivered.is_err(), "nobody reads it");
        let left =
            tokio::time::timeout(TIMEOUT * 2, told.recv()).await.expect("the connection is closed");
        assert_eq!(
            left,
            Some(BUFFER),
            "HTTP/2: {http2}: nothing was written once the target read again"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_head_has_a_time_out_of_its_own() {
    for (read, whole, limit) in [(3, 30, 3), (30, 3, 3), (900, 900, 900)] {
        let settings = HttpSettings {
            timeout: Duration::from_secs(whole),
            read_timeout: Some(Duration::from_secs(read)),
            ..HttpSettings::default()
        };
        let silent = InMemory::raw(|mut stream| async move {
            let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
        });
        let begun = Instant::now();
        let failed = failure(&HttpTarget::with_connector(localhost(), settings, silent)).await;
        assert_eq!((failed.detail(), failed.evidence()), ("no response in time", Evidence::Typed));
        assert!(failed.is_in_doubt(), "it may still work on the request");
        assert_eq!(begun.elapsed().as_secs(), limit);
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_short_keeps_its_connection_and_one_that_stalls_does_not_hold_up_the_next() {
    for (rest, opened) in [("done", 1), ("do", 2), ("", 2)] {
        let count = Arc::new(AtomicUsize::new(0));
        let connections = Arc::clone(&count);
        let target = InMemory::raw(move |mut stream| {
            connections.fetch_add(1, Ordering::SeqCst);
            async move {
                loop {
                    read_head(&mut stream).await;
                    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n{rest}");
                    if stream.write_all(answer.as_bytes()).await.is_err() {
                        break;
                    }
                }
            }
        })
        .target();
        for _ in 0..2 {
            let begun = Instant::now();
            target.deliver(Delivery::new("id-1", "")).await.expect("it is accepted");
            assert!(begun.elapsed() < Duration::from_millis(50), "{rest}: {:?}", begun.elapsed());
        }
        assert_eq!(count.load(Ordering::SeqCst), opened, "{rest}");
    }
}
