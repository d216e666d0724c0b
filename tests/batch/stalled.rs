//! Responses with an endless body, over the HTTP handler: their status decides, whenever the
//! handler's time is over.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use ::http::{Request, Response};
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use requeue::queue::SqsQueue;
use requeue::{DeadLetterMode, Worker, WorkerSettings};
use requeue_lambda::{HttpSettings, HttpTarget, TargetUrl};
use requeue_testkit::in_memory::InMemory;
use tokio::io::DuplexStream;
use tokio::time::{sleep, timeout};

use crate::world::{World, millis, secs, state};

/// What a target answers, and what becomes of the message by it: class and delay.
#[derive(Clone, Copy, Debug)]
struct Case {
    status: u16,
    retry_after: Option<u64>,
    /// As much of the body as comes.
    body: &'static str,
    length: Option<u64>,
    expected: Option<(&'static str, Option<u64>)>,
}

const QUOTA: &str = r#"{"error":{"errors":[{"reason":"quotaExceeded"}]}}"#;

const CASES: [Case; 7] = [
    Case { status: 200, retry_after: None, body: "", length: Some(5), expected: None },
    Case { status: 202, retry_after: None, body: "half", length: None, expected: None },
    Case {
        status: 400,
        retry_after: None,
        body: "",
        length: Some(5),
        expected: Some(("non-retryable", None)),
    },
    Case {
        status: 403,
        retry_after: None,
        body: QUOTA,
        length: None,
        expected: Some(("quota", None)),
    },
    Case {
        status: 429,
        retry_after: Some(40),
        body: "",
        length: None,
        expected: Some(("rate-limit", Some(40))),
    },
    Case {
        status: 429,
        retry_after: Some(40),
        body: "{",
        length: Some(9),
        expected: Some(("rate-limit", Some(40))),
    },
    Case {
        status: 503,
        retry_after: Some(50),
        body: "",
        length: Some(5),
        expected: Some(("temporary", Some(50))),
    },
];

/// A body whose end never comes.
struct Stalling {
    beginning: Option<Bytes>,
    length: Option<u64>,
}

impl Body for Stalling {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.beginning
            .take()
            .map_or(Poll::Pending, |beginning| Poll::Ready(Some(Ok(Frame::data(beginning)))))
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map(SizeHint::with_exact).unwrap_or_default()
    }
}

/// A target in this process that answers so, after so long.
#[derive(Clone)]
struct Stalled {
    case: Case,
    after: Duration,
    over_http2: bool,
}

impl Stalled {
    fn target(self, limit: Duration) -> HttpTarget<InMemory> {
        let Self { case, after, over_http2 } = self;
        let url = TargetUrl::parse("http://localhost/").expect("it is loopback");
        let server = InMemory::raw(move |stream| serve(stream, case, after, over_http2));
        let server = if over_http2 { server.over_http2() } else { server };
        let mut settings = HttpSettings::default();
        settings.timeout = limit;
        HttpTarget::with_connector(url, settings, server)
    }
}

async fn serve(stream: DuplexStream, case: Case, after: Duration, over_http2: bool) {
    let service = service_fn(move |_: Request<Incoming>| async move {
        sleep(after).await;
        let mut response = Response::builder().status(case.status);
        if let Some(secs) = case.retry_after {
            response = response.header("Retry-After", secs);
        }
        let beginning = Some(Bytes::from(case.body)).filter(|body| !body.is_empty());
        Ok::<_, Infallible>(
            response.body(Stalling { beginning, length: case.length }).expect("it is valid"),
        )
    });
    // A client that goes away is no failure of the test.
    if over_http2 {
        let _ = http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service)
            .await;
    } else {
        let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
    }
}

fn world(timeout: Duration) -> World {
    let mut world = World::new();
    world.settings.limits.timeout = timeout;
    world.settings.dead_letter = Some(DeadLetterMode::Annotate);
    world
}

/// Runs every case over both versions of HTTP, with the response's head after each of these times.
async fn check<F: Future<Output = World>>(times: &[Duration], run: impl Fn(Stalled) -> F) {
    for case in CASES {
        for after in times.iter().copied() {
            for over_http2 in [false, true] {
                let world = Box::pin(run(Stalled { case, after, over_http2 })).await;
                let what = format!("{case:?} after {after:?}, HTTP/2: {over_http2}");
                let messages = world.messages();
                let told = messages.first().map(|message| {
                    let state = &state(message)["retryState"];
                    let class = state["class"].as_str().or(state["deadLetter"]["class"].as_str());
                    (class.unwrap_or_default().to_owned(), state["delay"].as_u64())
                });
                assert_eq!(
                    told.as_ref().map(|told| told.0.as_str()),
                    case.expected.map(|told| told.0),
                    "{what}"
                );
                if let Some((_, Some(delay))) = case.expected {
                    assert_eq!(told.and_then(|told| told.1), Some(delay), "{what}");
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_decides_when_the_time_of_its_message_is_over() {
    check(&[secs(0), secs(4), millis(4_999), secs(5)], |target| async {
        let world = world(secs(5));
        world.send("{}").await;
        // Both time-outs end together.
        world.invoke(&world.processor(target.target(secs(5)))).await.expect("a message");
        world
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_status_decides_when_the_invocation_is_over() {
    check(&[secs(0), secs(6), millis(7_499), millis(7_500)], |target| async {
        let mut world = world(secs(30));
        world.function_timeout = secs(10);
        world.send("{}").await;
        world.invoke(&world.processor(target.target(secs(30)))).await.expect("a message");
        world
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_status_decides_when_a_worker_ends() {
    check(&[secs(0), secs(6), millis(6_999), secs(7)], |target| async {
        let world = world(secs(30));
        world.send("{}").await;
        let mut settings = WorkerSettings::default();
        settings.shutdown_timeout = secs(8);
        let queue = SqsQueue::new(&world.sqs.client());
        let handler = target.target(secs(30));
        let worker = Worker::start(handler, queue, &world.queue, world.settings.clone(), settings)
            .await
            .expect("it starts");
        // A quarter of the eight seconds is kept for settling.
        timeout(secs(100), Box::pin(worker.run(sleep(secs(1))))).await.expect("it ends");
        world
    })
    .await;
}
