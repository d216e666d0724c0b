//! Time-outs and slow servers, in virtual time; and HTTP/2, which TLS would have to negotiate.

use std::task::{Context, Poll};

use ::http::{StatusCode, Uri};
use tower::Service;

use super::*;

pub(super) use requeue_testkit::in_memory::{BUFFER, InMemory, Pipe};

pub(super) trait Target {
    fn target(self) -> HttpTarget<InMemory>;
}

impl Target for InMemory {
    fn target(self) -> HttpTarget<Self> {
        HttpTarget::with_connector(localhost(), HttpSettings::default(), self)
    }
}

pub(super) fn localhost() -> TargetUrl {
    TargetUrl::parse("http://localhost/").expect("it is loopback")
}

#[tokio::test(start_paused = true)]
async fn in_memory_all_is_as_on_a_socket() {
    fn busy(_: &request::Parts) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::from("busy"));
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        response
    }
    let seen = Seen::default();
    let requests = Arc::clone(&seen);
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    let target = InMemory::raw(move |stream| {
        count.fetch_add(1, Ordering::SeqCst);
        serve(stream, busy, Arc::clone(&requests))
    })
    .target();
    for _ in 0..3 {
        assert_eq!(failure(&target).await.detail(), "status 503");
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
    tokio::time::sleep(IDLE_TIMEOUT * 2).await;
    assert_eq!(failure(&target).await.detail(), "status 503");
    assert_eq!(connections.load(Ordering::SeqCst), 2);
    assert_eq!(seen.lock().expect("no test panicked").len(), 4);
}

#[tokio::test(start_paused = true)]
async fn the_body_of_a_success_is_read_only_if_a_rule_names_its_status() {
    const LIMITED: &str = r#"{"ok":false,"error":"ratelimited"}"#;
    let long = format!(r#"{{"error":"ratelimited","rest":"{}"}}"#, "x".repeat(20_000));
    // The status of the rule, the length that the head names, the body; the reason, and the seconds
    // until the end.
    for (named, length, body, reason, secs) in [
        ("200", LIMITED.len(), LIMITED, Some("status 200: ratelimited, by rules[0]"), 0),
        ("\"2xx\"", LIMITED.len(), LIMITED, Some("status 200: ratelimited, by rules[0]"), 0),
        ("200", 8, "{\"ok\":1}", None, 0),
        // The rest does not come: what came counts.
        ("200", 1_000, LIMITED, Some("status 200: ratelimited, by rules[0]"), 2),
        ("201", 1_000, LIMITED, None, 0),
        ("\"4xx\"", 1_000, LIMITED, None, 0),
        ("200", long.len(), &long, None, 0),
    ] {
        let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
        let target = InMemory::raw(move |mut stream| {
            let response = response.clone();
            async move {
                read_head(&mut stream).await;
                let _ = stream.write_all(response.as_bytes()).await;
                std::future::pending::<()>().await;
            }
        })
        .target();
        let rule =
            format!(r#"{{"match":{{"status":{named},"code":"ratelimited"}},"class":"QUOTA"}}"#);
        let rules: requeue::classify::Rules =
            format!(r#"{{"rules":[{rule}]}}"#).parse().expect("a rule");
        let begin = Instant::now();
        let result = rules.scope(target.deliver(message())).await;
        assert_eq!(result.as_ref().err().map(Failure::detail), reason, "{named} {length}");
        assert_eq!(begin.elapsed().as_secs(), secs, "{named} {length}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_challenge_of_a_firewall_is_no_success() {
    for (header, reason) in [
        ("x-amzn-waf-action: challenge", Some("status 202: x-amzn-waf-action")),
        ("cf-mitigated: challenge", Some("status 202: cf-mitigated")),
        ("cf-mitigated: none", None),
        ("Set-Cookie: a=dmo\u{1}OZ\r\ncf-mitigated: challenge", Some("status 202: cf-mitigated")),
        (
            "Set-Cookie: a=b;\r\n folded\r\ncf-mitigated: challenge",
            Some("status 202: cf-mitigated"),
        ),
        ("X-A : b\r\ncf-mitigated : challenge", Some("status 202: cf-mitigated")),
    ] {
        let response = format!("HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n{header}\r\n\r\n");
        let target = InMemory::raw(move |mut stream| {
            let response = response.clone();
            async move {
                read_head(&mut stream).await;
                let _ = stream.write_all(response.as_bytes()).await;
            }
        })
        .target();
        let failed = target.deliver(message()).await.err();
        assert_eq!(failed.as_ref().map(Failure::detail), reason, "{header}");
        assert!(failed.is_none_or(|failure| failure.class() == FailureClass::Temporary));
    }
}

#[tokio::test(start_paused = true)]
async fn messages_share_one_connection_over_http2() {
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    let answer = |request: Request<Incoming>| async move {
        let body = if request.headers()["idempotency-key"] == "endless" {
            "x".repeat(1_000_000)
        } else {
            "done".to_owned()
        };
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(body))))
    };
    let target = InMemory::raw(move |stream| {
        count.fetch_add(1, Ordering::SeqCst);
        let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        async move {
            let _ = server.serve_connection(TokioIo::new(stream), service_fn(answer)).await;
        }
    })
    .over_http2()
    .target();
    target.deliver(message()).await.expect("it is accepted");
    let all = tokio::join!(
        target.deliver(message()),
        target.deliver(Delivery::new("endless", "")),
        target.deliver(message()),
    );
    assert_eq!(all, (Ok(()), Ok(()), Ok(())));
    target.deliver(message()).await.expect("it is accepted");
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

/// A server that takes 16 KiB of headers, as nginx does by default, and closes the connection for
/// what is far beyond.
#[tokio::test(start_paused = true)]
async fn a_message_whose_content_makes_headers_too_long_costs_its_neighbours_nothing() {
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    let answer = |request: Request<Incoming>| async move {
        let _ = request.into_body().collect().await;
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("done")))
    };
    let target = InMemory::raw(move |stream| {
        count.fetch_add(1, Ordering::SeqCst);
        let mut server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        server.max_header_list_size(16 * 1024);
        async move {
            let _ = server.serve_connection(TokioIo::new(stream), service_fn(answer)).await;
        }
    })
    .over_http2()
    .target();
    target.deliver(message()).await.expect("it is accepted");
    let long = "x".repeat(300_000);
    let largest = "x".repeat(4_000);
    let largest = Delivery { content_type: Some(&largest), ..Delivery::new("id-2", "{}") };
    let largest = largest.header("x-tenant", &"x".repeat(4_000)).expect("it may be set");
    let poison = [
        Delivery { content_type: Some(&long), ..message() },
        Delivery::new(&long, "{}"),
        message().header("x-tenant", &long).expect("it may be set"),
    ];
    for poison in poison {
        let (before, poisoned, after) = tokio::join!(
            target.deliver(message()),
            target.deliver(poison),
            target.deliver(largest.clone())
        );
        assert_eq!((before, after), (Ok(()), Ok(())));
        let poisoned = poisoned.expect_err("it is refused");
        assert_eq!(
            (poisoned.class(), poisoned.evidence()),
            (FailureClass::NonRetryable, Evidence::Body)
        );
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_huge_head_is_refused_over_http2_too() {
    let answer = |request: Request<Incoming>| async move {
        let length = request.headers()["idempotency-key"].to_str().expect("it is a number");
        let head =
            Response::builder().header("x", "x".repeat(length.parse().expect("it is a number")));
        Ok::<_, Infallible>(head.body(Full::<Bytes>::default()).expect("it is valid"))
    };
    // Up to about 1.25 times the limit h2 refuses the response, and beyond it the connection.
    let refused = [MAX_HEAD_BYTES / 20 * 21, MAX_HEAD_BYTES / 5 * 6, MAX_HEAD_BYTES * 2, 1_000_000];
    for (length, is_refused) in
        [(MAX_HEAD_BYTES / 4 * 3, false)].into_iter().chain(refused.map(|length| (length, true)))
    {
        let target = InMemory::raw(move |stream| async move {
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let _ = server.serve_connection(TokioIo::new(stream), service_fn(answer)).await;
        })
        .over_http2()
        .target();
        let failed = target.deliver(Delivery::new(&length.to_string(), "")).await.err();
        assert_eq!(failed.is_some(), is_refused, "{length}: {failed:?}");
        if let Some(failed) = failed {
            let told = (failed.class(), failed.evidence(), failed.detail());
            assert_eq!(
                told,
                (
                    FailureClass::Temporary,
                    Evidence::Connection,
                    "head of the response too large or malformed"
                ),
                "{length}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_http2_connection_is_noticed_before_the_time_out() {
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    let target = InMemory::raw(move |mut stream| {
        count.fetch_add(1, Ordering::SeqCst);
        async move {
            // Empty settings, and then nothing but silence.
            let _ = stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await;
            let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
        }
    })
    .over_http2()
    .target();
    for _ in 0..2 {
        let begun = Instant::now();
        assert_eq!(failure(&target).await.detail(), "timed out");
        assert!(begun.elapsed() <= PING_INTERVAL + PING_TIMEOUT + Duration::from_secs(1));
    }
    assert_eq!(connections.load(Ordering::SeqCst), 2);
}

/// A server that sends `head` and from then on one byte a second; without a head, nothing at all.
fn trickling(head: &'static str) -> HttpTarget<InMemory> {
    InMemory::raw(move |mut stream| async move {
        read_head(&mut stream).await;
        if head.is_empty() {
            std::future::pending::<()>().await;
        }
        let _ = stream.write_all(head.as_bytes()).await;
        while stream.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    })
    .target()
}

#[tokio::test(start_paused = true)]
async fn slowness_is_bounded_by_the_time_outs() {
    for (head, reason, limit) in [
        ("", Some("no response in time"), TIMEOUT),
        ("HTTP/1.1 503 Busy\r\nX: ", Some("status 503"), TIMEOUT),
        ("HTTP/1.1 200 OK\r\nX: ", None, TIMEOUT),
        ("HTTP/1.1 503 Busy\r\nContent-Length: 9999\r\n\r\n", Some("status 503"), BODY_TIMEOUT),
        ("HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", None, Duration::ZERO),
        ("HTTP/1.1 200 OK\r\n\r\n", None, Duration::ZERO),
    ] {
        let begun = Instant::now();
        let result = trickling(head).deliver(message()).await;
        assert_eq!(result.err().as_ref().map(Failure::detail), reason, "{head}");
        let took = begun.elapsed();
        assert!(took >= limit && took < limit + Duration::from_millis(50), "{head}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_body_is_not_waited_for_beyond_the_whole_time_out() {
    let settings = HttpSettings { timeout: Duration::from_secs(1), ..HttpSettings::default() };
    let target = InMemory::raw(|mut stream| async move {
        read_head(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 500 No\r\nContent-Length: 9\r\n\r\n").await;
        std::future::pending::<()>().await;
    });
    let begun = Instant::now();
    let failed = failure(&HttpTarget::with_connector(localhost(), settings, target)).await;
    assert_eq!(failed.detail(), "status 500");
    assert!(begun.elapsed() < Duration::from_millis(1_050));
}

/// Never connects.
#[derive(Clone)]
struct Unreachable;

impl Service<Uri> for Unreachable {
    type Response = Pipe;
    type Error = Infallible;
    type Future = std::future::Pending<Result<Pipe, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        std::future::pending()
    }
}

#[tokio::test(start_paused = true)]
async fn connecting_has_a_time_out_of_its_own() {
    let begun = Instant::now();
    let failed =
        failure(&HttpTarget::with_connector(localhost(), HttpSettings::default(), Unreachable))
            .await;
    assert_eq!(
        (failed.class(), failed.evidence(), failed.detail()),
        (FailureClass::Temporary, Evidence::Typed, "connect timed out")
    );
    assert!(!failed.is_in_doubt(), "nothing was handed over");
    let took = begun.elapsed();
    assert!(took >= CONNECT_TIMEOUT && took < CONNECT_TIMEOUT + Duration::from_millis(50));
}

#[tokio::test(start_paused = true)]
async fn a_delivery_that_is_dropped_closes_its_connection() {
    let (closed, mut notice) = tokio::sync::mpsc::unbounded_channel();
    let target = InMemory::raw(move |mut stream| {
        let closed = closed.clone();
        async move {
            let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
            let _ = closed.send(());
        }
    })
    .target();
    let abandoned = tokio::time::timeout(Duration::from_secs(1), target.deliver(message())).await;
    assert!(abandoned.is_err());
    let seen = tokio::time::timeout(Duration::from_secs(1), notice.recv()).await;
    seen.expect("it is soon").expect("the server sees the end");
}

#[tokio::test(start_paused = true)]
async fn a_time_out_without_end_can_be_set() {
    let server = InMemory::raw(|stream| serve(stream, ok, Seen::default()));
    let settings = HttpSettings {
        timeout: Duration::MAX,
        connect_timeout: Duration::MAX,
        ..HttpSettings::default()
    };
    let target = HttpTarget::with_connector(localhost(), settings, server);
    assert_eq!(target.deliver(message()).await, Ok(()));
}
