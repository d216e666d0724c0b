//! Edge cases: defects at the end of an invocation, blocked threads, and extreme settings and
//! responses.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use requeue::embedded::{EventSourceMapping, Fault, MessageState};
use requeue::policy::CircuitBreaker;
use requeue::queue::{CallError, CallErrorKind, SqsQueue};
use requeue::{
    Deferral, Disposition, Failure, Handler, Message, ReleaseReason, Sampler, Worker,
    WorkerSettings, Wrap,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::world::{World, records_of};

/// The batch that is visible now, as an event.
async fn event(world: &World) -> Value {
    let mapping = EventSourceMapping::new(world.sqs.clone(), world.queue.clone(), 10_000);
    let batch = mapping.poll(Duration::ZERO).await.unwrap().unwrap();
    batch.event(&world.queue)
}

#[tokio::test(start_paused = true)]
async fn a_record_that_cannot_be_read_whole_is_never_copied() {
    let world = World::new();
    let due = world.clock.now() + Duration::from_secs(3_600);
    let due = due.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
    let not_due = format!(
        r#"{{"retryCount":0,"originalMessageId":"m","retryTimestamp":"2026-09-21T14:13:20Z","retryState":{{"v":1,"notBefore":{due}}}}}"#
    );
    // The time left, and the body: it is not its turn for either reason.
    for (left, body) in [(Duration::ZERO, "{}"), (Duration::from_secs(60), not_due.as_str())] {
        let world = World::new();
        let id = world.send(body).await;
        let mut event = event(&world).await;
        event["Records"][0]["messageAttributes"] =
            json!({ "key": { "dataType": "Binary", "binaryValue": "%" } });
        let calls = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&calls);
        let processor = world.processor(move |_: Message| {
            counter.fetch_add(1, Ordering::SeqCst);
            async { Ok::<_, Failure>(()) }
        });
        let report = processor.process(records_of(&event), Instant::now() + left).await;
        assert_eq!(report.failed_ids().unwrap(), [id.as_str()]);
        assert_eq!(world.calls("SendMessageBatch"), 0, "the copy would lack its attributes");
        assert_eq!((world.messages().len(), calls.load(Ordering::SeqCst)), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn no_send_begins_when_it_could_only_be_cut_off() {
    for left in [Duration::ZERO, Duration::from_millis(20)] {
        let world = World::new();
        let id = world.send("{}").await;
        let event = event(&world).await;
        let processor = world.processor(async |_: Message| Err(Failure::temporary("no")));
        let report = processor.process(records_of(&event), Instant::now() + left).await;
        assert_eq!(report.failed_ids().unwrap(), [id.as_str()]);
        assert_eq!(world.calls("SendMessageBatch"), 0, "{left:?}");
        assert_eq!(world.messages().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn all_that_completed_is_deleted_in_time_when_the_invocation_must_fail() {
    let world = World::new();
    for _ in 0..600 {
        world.send(r#""done""#).await;
    }
    world.send(r#""fails""#).await;
    world.sqs.set_faults(|call| match call.operation.as_str() {
        "SendMessageBatch" => Fault::refuse(403, "AccessDeniedException"),
        _ => Fault::RespondAfter(Duration::from_secs(1)),
    });
    let processor = world.processor(async |message: Message| match &**message.body() {
        r#""fails""# => Err(Failure::temporary("no")),
        _ => Ok(()),
    });
    let mut event = event(&world).await;
    event["Records"][600]["messageId"] = Value::Null;
    assert!(world.invoke_with(&processor, &event).await.is_err());
    assert_eq!(world.messages().len(), 1);
}

/// Blocks its thread with the message "blocks", until the sender is dropped.
fn blocking() -> (impl Handler, std::sync::mpsc::Sender<()>) {
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = Arc::new(Mutex::new(released));
    let handler = move |message: Message| {
        let released = Arc::clone(&released);
        async move {
            if &**message.body() == "blocks" {
                let _ = released.lock().unwrap().recv();
            }
            Ok::<_, Failure>(())
        }
    };
    (handler, release)
}

#[tokio::test]
async fn what_found_every_thread_blocked_was_not_called_and_is_not_released() {
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let mut world = World::new();
    world.settings.handlers = Some(threads.handle().clone());
    world.settings.limits.timeout = Duration::from_millis(50);
    let blocked = world.send("blocks").await;
    world.send("waits").await;
    let (handler, release) = blocking();
    let event = event(&world).await;
    let deadline = Instant::now() + Duration::from_secs(5);
    let report = world.processor(handler).process(records_of(&event), deadline).await;
    assert!(Instant::now() < deadline);
    drop(release);
    threads.shutdown_background();

    assert_eq!(report.failed_ids().unwrap(), [blocked.as_str()]);
    assert_eq!(report.outcomes[1].elapsed, None);
    let dispositions: Vec<_> = report.outcomes.iter().map(|outcome| outcome.disposition).collect();
    assert!(
        matches!(
            dispositions[..],
            [
                Disposition::Release(ReleaseReason::Abandoned),
                Disposition::Defer { reason: Deferral::NoTimeLeft, .. }
            ]
        ),
        "{dispositions:?}"
    );
    let bodies: Vec<String> = world.messages().into_iter().map(|message| message.body).collect();
    assert!(bodies.iter().any(|body| body == "blocks"), "{bodies:?}");
    assert!(
        bodies.iter().any(|body| body.contains(r#""retryBody":"waits","retryCount":0"#)),
        "{bodies:?}"
    );
}

#[tokio::test]
async fn what_found_every_thread_blocked_when_a_worker_ends_is_receivable_at_once_as_it_is() {
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let mut world = World::new();
    world.settings.handlers = Some(threads.handle().clone());
    world.settings.limits.reserve = Duration::from_secs(1);
    world.send("blocks").await;
    world.send("waits").await;
    let (handler, release) = blocking();
    let mut settings = WorkerSettings::default();
    settings.shutdown_timeout = Duration::from_secs(4);
    let queue = SqsQueue::new(&world.sqs.client());
    let worker = Worker::start(handler, queue, &world.queue, world.settings.clone(), settings)
        .await
        .unwrap();
    let both_received = async {
        while world.messages().iter().any(|message| message.state == MessageState::Visible) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    worker.run(both_received).await;
    drop(release);
    threads.shutdown_background();
    let left = world
        .messages()
        .into_iter()
        .map(|message| (message.body, message.state == MessageState::Visible));
    let mut left: Vec<_> = left.collect();
    left.sort_unstable();
    assert_eq!(left, [("blocks".to_owned(), false), ("waits".to_owned(), true)]);
}

#[tokio::test]
async fn a_thread_that_is_blocked_beyond_the_handlers_time_or_the_invocations_opens_the_circuit() {
    for timeout in [Duration::from_millis(50), Duration::from_secs(900)] {
        let threads =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        let mut world = World::new();
        world.settings.handlers = Some(threads.handle().clone());
        world.settings.limits.timeout = timeout;
        let mut breaker = CircuitBreaker::default();
        (breaker.threshold, breaker.reset_timeout) = (1, Duration::from_secs(900));
        world.settings.policy.circuit_breaker = Some(breaker);
        let (handler, release) = blocking();
        let processor = world.processor(handler);
        let mut dispositions = Vec::new();
        for body in ["blocks", "does not"] {
            world.send(body).await;
            let event = event(&world).await;
            let report = processor
                .process(records_of(&event), Instant::now() + Duration::from_secs(1))
                .await;
            dispositions.push(report.outcomes[0].disposition);
        }
        drop(release);
        threads.shutdown_background();
        assert_eq!(dispositions[0], Disposition::Release(ReleaseReason::Abandoned));
        let is_open =
            matches!(dispositions[1], Disposition::Defer { reason: Deferral::CircuitOpen, .. });
        assert!(is_open, "{dispositions:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn limits_of_nothing_and_of_eternity_work() {
    let mut world = World::new();
    let limits = &mut world.settings.limits;
    (limits.concurrency, limits.timeout, limits.reserve) = (0, Duration::MAX, Duration::MAX);
    let handler = Alone(AtomicUsize::new(0));
    for _ in 0..3 {
        world.send("{}").await;
    }
    let invocation = world.invoke(&world.processor(handler)).await.unwrap();
    assert_eq!(invocation.failed(), Vec::<&str>::new());
    assert!(world.messages().is_empty());
}

/// Insists on being alone.
struct Alone(AtomicUsize);

impl Handler for Alone {
    type Error = Failure;

    async fn handle(&self, _: Message) -> Result<(), Failure> {
        assert_eq!(self.0.fetch_add(1, Ordering::SeqCst), 0);
        tokio::task::yield_now().await;
        self.0.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }
}

#[test]
fn a_sample_is_a_number_from_zero_to_one() {
    for (given, sample) in
        [(f64::NAN, 0.0), (-1.0, 0.0), (2.0, 1.0), (f64::INFINITY, 1.0), (0.5, 0.5)]
    {
        assert!((Sampler::always(given).sample() - sample).abs() < f64::EPSILON, "{given}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_can_be_neither_called_nor_copied_waits_longer_with_each_receive() {
    for (receives, secs) in [("2", 2), ("4", 8), ("5", 16)] {
        let mut world = World::new();
        world.settings.limits.concurrency = 1;
        for body in ["first", "second"] {
            world.send(body).await;
        }
        world.settings.wrap = Wrap::Never;
        // The first message takes all the time there is for handlers.
        let processor =
            world.processor(async |_: Message| std::future::pending::<Result<(), Failure>>().await);
        let mut event = event(&world).await;
        event["Records"][1]["attributes"]["ApproximateReceiveCount"] = receives.into();
        let deadline = Instant::now() + Duration::from_secs(8);
        let report = processor.process(records_of(&event), deadline).await;
        assert_eq!(report.failed_ids().unwrap().len(), 2);
        let until = world.clock.now() + Duration::from_secs(secs);
        assert_eq!(world.messages()[1].state, MessageState::InFlightUntil(until), "{receives}");
    }
}

#[test]
fn a_throttled_call_may_be_made_again() {
    for (status, code) in [
        (400, "RequestThrottled"),
        (403, "ThrottlingException"),
        (400, "com.amazonaws.sqs#RequestThrottledException"),
        (400, "AWS.SimpleQueueService.SlowDown"),
        (400, "KMS.ThrottlingException"),
        (429, "Unknown"),
        (503, "ServiceUnavailable"),
    ] {
        assert_eq!(CallError::responded(status, code).kind, CallErrorKind::Unavailable, "{code}");
    }
    for status in [500, 502, 503, 504, 599] {
        let by_gateway = CallError::responded(status, "Unknown").kind;
        assert_eq!(
            by_gateway,
            CallErrorKind::Ambiguous,
            "{status}: SQS may have gone on behind a gateway"
        );
    }
    for status in [502, 504] {
        assert_eq!(
            CallError::responded(status, "InternalFailure").kind,
            CallErrorKind::Ambiguous,
            "{status}"
        );
    }
    assert_eq!(CallError::responded(403, "AccessDenied").kind, CallErrorKind::Refused);
    let of_the_key = CallError::responded(400, "KMS.AccessDeniedException");
    assert_eq!(
        (of_the_key.kind, of_the_key.code.as_str()),
        (CallErrorKind::Refused, "KMS.AccessDeniedException")
    );
}

#[tokio::test(start_paused = true)]
async fn answers_that_are_lost_for_long_do_not_breed_copies() {
    let world = World::new();
    world.send("{}").await;
    world.sqs.set_faults(|call| match call.operation.as_str() {
        "SendMessageBatch" => Fault::LoseResponse,
        _ => Fault::None,
    });
    let processor = world.processor(async |_: Message| Err(Failure::temporary("no")));
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(300) {
        while world.invoke(&processor).await.is_some() {}
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    // Once in thirty seconds one request of up to ten messages goes out, and is tried once more.
    let there = world.messages().len() + world.dead().len();
    assert!((3..=200).contains(&there), "{there}");

    world.sqs.clear_faults();
    let done = world.processor(async |_: Message| Ok::<_, Failure>(()));
    while !world.messages().is_empty() {
        world.invoke(&done).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
