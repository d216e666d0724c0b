//! Handlers and hosts at their worst: Requeue still settles each message in time, and its
//! neighbours are not affected.

use std::future::{Future, pending, poll_fn};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use requeue::policy::CircuitBreaker;
use requeue::queue::SqsQueue;
use requeue::{BatchProcessor, Deferral, Disposition, Failure, Handler, Message, Report, Scope};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, sleep, timeout};

use crate::world::{World, millis, numbered, records_of, secs};

fn threads(count: usize) -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(count)
        .thread_name("handler")
        .enable_all()
        .build()
        .unwrap()
}

/// A world whose handlers have threads of their own, in real time.
fn world(threads: &Runtime) -> World {
    let mut world = World::new();
    world.settings.handlers = Some(threads.handle().clone());
    world.settings.limits.timeout = millis(300);
    world.function_timeout = secs(6);
    world
}

fn fates(report: &Report) -> Vec<(&'static str, Option<&str>)> {
    report
        .outcomes
        .iter()
        .map(|outcome| (outcome.disposition.as_str(), outcome.detail.as_deref()))
        .collect()
}

/// Until so many tasks are left on the handlers' threads.
async fn until_tasks_are(left: usize, threads: &Runtime) {
    let are_left = async {
        while threads.metrics().num_alive_tasks() != left {
            sleep(millis(1)).await;
        }
    };
    timeout(secs(10), are_left).await.expect("they end");
}

/// Its drop panics.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "as scripted, when dropped");
    }
}

const PANICKED: Option<&str> = Some("the handler panicked");
const OUT_OF_TIME: Option<&str> = Some("the handler ran out of time");

#[tokio::test(start_paused = true)]
async fn a_panic_whose_payload_panics_too_is_a_panic_like_any_other() {
    let mut world = World::new();
    world.settings.limits.concurrency = 1;
    world.send_numbered(2).await;
    let processor = world.processor(async |message: Message| {
        if **message.body() == *numbered(0) {
            std::panic::panic_any(Bomb);
        }
        Ok::<_, Failure>(())
    });
    let report = world.report(&processor, &world.receive().await).await;
    assert_eq!(
        (fates(&report), report.elapsed),
        (vec![("requeue", PANICKED), ("complete", None)], Duration::ZERO)
    );
}

fn block(released: &Mutex<Receiver<()>>) {
    let _ = released.lock().unwrap().recv();
}

/// Does what its message's body says.
struct Hostile {
    /// Until the test drops the sender, threads are blocked.
    released: Arc<Mutex<Receiver<()>>>,
}

impl Handler for Hostile {
    type Error = Failure;

    fn scope(&self, message: &Message) -> Scope {
        assert_ne!(&**message.body(), "panics in scope");
        Scope::default()
    }

    fn handle(&self, message: Message) -> impl Future<Output = Result<(), Failure>> + Send {
        let body = message.body().to_string();
        assert_ne!(body, "panics before its future");
        let released = Arc::clone(&self.released);
        async move {
            match body.as_str() {
                "panics" => panic!("as scripted"),
                "panics when it is dropped" => {
                    let _bomb = Bomb;
                    pending::<()>().await;
                }
                "panics when it is done" => drop(Bomb),
                "is never woken" => pending().await,
                "wakes itself for ever" => {
                    let forever = poll_fn(|context| {
                        context.waker().wake_by_ref();
                        Poll::<()>::Pending
                    });
                    forever.await;
                }
                "is woken by others" => {
                    let is_over = Arc::new(AtomicBool::new(false));
                    let over = Over(Arc::clone(&is_over));
                    let waker = poll_fn(|context| Poll::Ready(context.waker().clone())).await;
                    std::thread::spawn(move || {
                        while !is_over.load(Ordering::Relaxed) {
                            waker.wake_by_ref();
                            std::thread::yield_now();
                        }
                    });
                    pending::<()>().await;
                    drop(over);
                }
                "blocks until it is forgotten" => block(&released),
                "blocks, and panics then" => {
                    block(&released);
                    panic!("as scripted");
                }
                "blocks too long and is done" => std::thread::sleep(millis(450)),
                _ => {}
            }
            Ok(())
        }
    }
}

struct Over(Arc<AtomicBool>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn no_fate_of_a_hostile_handler_is_its_neighbours() {
    for (fate, expected) in [
        ("panics in scope", ("requeue", PANICKED)),
        ("panics before its future", ("requeue", PANICKED)),
        ("panics", ("requeue", PANICKED)),
        ("panics when it is dropped", ("requeue", PANICKED)),
        ("panics when it is done", ("requeue", PANICKED)),
        ("is never woken", ("requeue", OUT_OF_TIME)),
        ("wakes itself for ever", ("requeue", OUT_OF_TIME)),
        ("is woken by others", ("requeue", OUT_OF_TIME)),
        ("blocks until it is forgotten", ("release", None)),
        ("blocks, and panics then", ("release", None)),
        ("blocks too long and is done", ("complete", None)),
    ] {
        for concurrency in [1, 10_000] {
            let threads = threads(2);
            let mut world = world(&threads);
            world.settings.limits.concurrency = concurrency;
            for n in 0..10 {
                world.send(if n == 4 { fate } else { "fine" }).await;
            }
            let (release, released) = channel();
            let processor = world.processor(Hostile { released: Arc::new(Mutex::new(released)) });
            let report = world.report(&processor, &world.receive().await).await;
            drop(release);
            assert!(report.elapsed < world.function_timeout, "{fate}: {:?}", report.elapsed);
            let mut all = [("complete", None); 10];
            all[4] = expected;
            assert_eq!(fates(&report), all, "{fate}, {concurrency} at once");
            until_tasks_are(0, &threads).await;
            threads.shutdown_background();
        }
    }
}

/// Where a body waits until it may be read.
static READING: Mutex<Option<(Sender<()>, Receiver<()>)>> = Mutex::new(None);

struct Unreadable;

impl<'de> serde::Deserialize<'de> for Unreadable {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        serde::de::IgnoredAny::deserialize(deserializer)?;
        let (reads, may_go_on) = READING.lock().unwrap().take().expect("one message");
        reads.send(()).unwrap();
        let _ = may_go_on.recv();
        Ok(Self)
    }
}

#[tokio::test]
async fn what_is_dead_lettered_or_dropped_while_its_body_is_read_is_not_handled_later() {
    for is_dropped in [false, true] {
        let threads = threads(2);
        let world = world(&threads);
        world.send("{}").await;
        let (reads, reading) = channel();
        let (go_on, may_go_on) = channel();
        *READING.lock().unwrap() = Some((reads, may_go_on));
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let handler = move |_: Message<Unreadable>| {
            counted.fetch_add(1, Ordering::SeqCst);
            async { Ok::<(), Failure>(()) }
        };
        let queue = SqsQueue::new(&world.sqs.client());
        let processor: BatchProcessor<_, _, Unreadable> =
            BatchProcessor::new(handler, queue, world.settings.clone());
        let batch = records_of(&world.receive().await);
        let working = processor.process(batch, Instant::now() + world.function_timeout);
        let is_read = tokio::task::spawn_blocking(move || reading.recv().unwrap());
        if is_dropped {
            tokio::select! {
                _ = working => unreachable!("the body is never read"),
                read = is_read => read.unwrap(),
            }
        } else {
            assert_eq!(fates(&working.await), [("release", None)]);
            is_read.await.unwrap();
        }
        drop(go_on);
        until_tasks_are(0, &threads).await;
        threads.shutdown_background();
        assert_eq!(calls.load(Ordering::SeqCst), 0, "dropped: {is_dropped}");
    }
}

#[tokio::test]
async fn after_its_end_an_invocation_that_is_dropped_begins_nothing_though_a_thread_is_blocked() {
    let threads = threads(1);
    let mut world = world(&threads);
    world.settings.limits.concurrency = 2;
    for _ in 0..10 {
        world.send("{}").await;
    }
    let (release, released) = channel();
    let released = Arc::new(Mutex::new(released));
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let processor = world.processor(move |_: Message| {
        counted.fetch_add(1, Ordering::SeqCst);
        let released = Arc::clone(&released);
        async move {
            block(&released);
            Ok::<_, Failure>(())
        }
    });
    let event = world.receive().await;
    assert!(timeout(millis(1_500), world.report(&processor, &event)).await.is_err());
    drop(release);
    until_tasks_are(0, &threads).await;
    threads.shutdown_background();
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

/// What it says goes by the first word of the body; "blocks" has a scope of its own.
struct Callee(Mutex<Receiver<()>>);

impl Handler for Callee {
    type Error = Failure;

    fn scope(&self, message: &Message) -> Scope {
        if &**message.body() == "blocks" { Scope::of("another") } else { Scope::default() }
    }

    async fn handle(&self, message: Message) -> Result<(), Failure> {
        match &**message.body() {
            "down" => return Err(Failure::temporary("down")),
            "blocks" => block(&self.0),
            "hangs" => pending().await,
            _ => sleep(millis(20)).await,
        }
        Ok(())
    }
}

/// One failure opens its circuit, a moment later one message probes.
fn fragile(threads: &Runtime) -> World {
    let mut world = world(threads);
    let mut breaker = CircuitBreaker::default();
    (breaker.threshold, breaker.reset_timeout) = (1, millis(1));
    world.settings.policy.circuit_breaker = Some(breaker);
    world.settings.limits.timeout = secs(900);
    world
}

/// An event for each part of what is sent.
async fn parts<const N: usize>(world: &World, parts: [&[&str]; N]) -> [Value; N] {
    for body in parts.concat() {
        world.send(body).await;
    }
    let event = world.receive().await;
    let mut records = event["Records"].as_array().unwrap().iter();
    parts.map(|part| json!({ "Records": records.by_ref().take(part.len()).collect::<Vec<_>>() }))
}

#[tokio::test]
async fn a_probe_whose_invocation_is_dropped_is_not_kept_by_a_neighbour_that_blocks() {
    let threads = threads(3);
    let world = fragile(&threads);
    let (release, released) = channel();
    let processor = world.processor(Callee(Mutex::new(released)));
    let [down, both, fine] = parts(&world, [&["down"], &["blocks", "hangs"], &["fine"]]).await;
    world.report(&processor, &down).await;
    sleep(millis(5)).await;
    assert!(timeout(millis(500), world.report(&processor, &both)).await.is_err());
    until_tasks_are(1, &threads).await;
    let report = world.report(&processor, &fine).await;
    drop(release);
    threads.shutdown_background();
    assert_eq!(fates(&report), [("complete", None)]);
}

/// Tells of each wake, and keeps a handler's thread in it until the test goes on.
struct Slow {
    woken: Sender<()>,
    go_on: Mutex<Option<Receiver<()>>>,
}

impl Wake for Slow {
    fn wake(self: Arc<Self>) {
        let _ = self.woken.send(());
        if std::thread::current().name() == Some("handler")
            && let Some(go_on) = self.go_on.lock().unwrap().take()
        {
            let _ = go_on.recv_timeout(secs(10));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_call_says_of_its_callee_is_known_when_the_report_is_there() {
    let threads = threads(2);
    let world = fragile(&threads);
    let (release, released) = channel();
    let processor = world.processor(Callee(Mutex::new(released)));
    let [down, probe, fine] = parts(&world, [&["down"], &["fine"], &["fine"]]).await;
    world.report(&processor, &down).await;
    sleep(millis(5)).await;
    let (woken, wakes) = channel();
    let (go_on, slow) = channel();
    let tells = Waker::from(Arc::new(Slow { woken, go_on: Mutex::new(Some(slow)) }));
    {
        let mut probing = Box::pin(world.report(&processor, &probe));
        loop {
            match probing.as_mut().poll(&mut Context::from_waker(&tells)) {
                Poll::Ready(report) => break assert_eq!(fates(&report), [("complete", None)]),
                Poll::Pending => wakes.recv_timeout(secs(10)).unwrap(),
            }
        }
    }
    let report = world.report(&processor, &fine).await;
    drop((go_on, release));
    threads.shutdown_background();
    assert_eq!(fates(&report), [("complete", None)]);
}

fn is_deferred(disposition: Disposition) -> bool {
    matches!(disposition, Disposition::Defer { reason: Deferral::NoTimeLeft, .. })
}

#[tokio::test]
async fn what_comes_when_no_time_is_left_is_deferred_and_never_taken_for_abandoned() {
    let threads = threads(2);
    let mut world = world(&threads);
    world.batch_size = 1_000;
    for _ in 0..200 {
        world.send("{}").await;
    }
    let batch = records_of(&world.receive().await);
    let processor = world.processor(async |_: Message| Ok::<_, Failure>(()));
    for _ in 0..50 {
        let report = processor.process(batch.clone(), Instant::now()).await;
        let dispositions = report.outcomes.iter().map(|outcome| outcome.disposition);
        let others: Vec<_> =
            dispositions.filter(|disposition| !is_deferred(*disposition)).collect();
        assert_eq!(others, []);
    }
    threads.shutdown_background();
}

#[tokio::test]
async fn when_the_handlers_threads_have_ended_every_message_is_deferred_in_time_and_nobody_is_busy_meanwhile()
 {
    for (limit, concurrency) in [(Duration::ZERO, 0), (secs(30), 1), (Duration::MAX, 10_000)] {
        let threads = threads(1);
        let mut world = world(&threads);
        threads.shutdown_background();
        world.settings.limits.timeout = limit;
        world.settings.limits.concurrency = concurrency;
        world.function_timeout = secs(4);
        world.send_numbered(10).await;
        let processor = world.processor(async |_: Message| Ok::<_, Failure>(()));
        let event = world.receive().await;
        let mut working = Box::pin(world.report(&processor, &event));
        let mut polls = 0;
        let report = poll_fn(|context| {
            polls += 1;
            working.as_mut().poll(context)
        });
        let report = report.await;
        assert!(report.elapsed < world.function_timeout, "{limit:?}: {:?}", report.elapsed);
        assert_eq!(report.outcomes.len(), 10);
        assert!(
            report.outcomes.iter().all(|outcome| is_deferred(outcome.disposition)),
            "{limit:?}"
        );
        assert!(polls < 600, "{limit:?}: {polls}");
    }
}
