//! A worker keeps the rules of Lambda's poller, extends the visibility of its messages, and ends
//! without losing any.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_sdk_sqs::operation::send_message::builders::SendMessageFluentBuilder;
use requeue::embedded::{EntryFault, EntryOutcome, Fault, MessageState};
use requeue::policy::{Backoff, Jitter};
use requeue::queue::{
    CallError, CallErrorKind, Confirmation, Description, Outgoing, Queue, QueueArn, ReceiveRequest,
    Source, SqsQueue,
};
use requeue::{
    Clock, DeadLetterMode, Failure, Handler, Limits, Message, Mode, Progress, Record, Sampler,
    Scope, Settings, StartError, Strategy, Until, WithoutDeadLetterQueue, Worker, WorkerSettings,
};
use tokio::time::{Instant, sleep, timeout};

use crate::world::{
    Act, DELETE, Log, SEND, Script, Seen, VISIBILITY_CHANGE, World, millis, numbered, secs,
};

fn draining() -> WorkerSettings {
    let mut settings = WorkerSettings::default();
    settings.until = Until::Empty;
    settings
}

/// With one batch at a time.
fn alone() -> WorkerSettings {
    let mut settings = WorkerSettings::default();
    settings.receivers = Some(1);
    settings
}

async fn start<H: Handler>(
    world: &World,
    handler: H,
    settings: WorkerSettings,
) -> Worker<H, SqsQueue> {
    let queue = SqsQueue::new(&world.sqs.client());
    Worker::start(handler, queue, &world.queue, world.settings.clone(), settings).await.unwrap()
}

/// Works until the queue is empty.
async fn drain(world: &World, script: &Script) -> Progress {
    let worker = start(world, script.clone(), draining()).await;
    timeout(secs(100_000), worker.run(pending())).await.expect("the queue becomes empty")
}

fn with_visibility(name: &str, secs: &str) -> World {
    World::with_queue(name, &[("VisibilityTimeout", secs)])
}

/// How often each message was handled, by its number.
fn calls(script: &Script) -> BTreeMap<usize, usize> {
    script.calls().iter().fold(BTreeMap::new(), |mut counts, seen| {
        *counts.entry(seen.n()).or_default() += 1;
        counts
    })
}

#[tokio::test(start_paused = true)]
async fn what_the_report_does_not_keep_is_deleted_and_the_rest_comes_back() {
    let world = World::new();
    world.send_numbered(40).await;
    let script = Script::new(|seen| match seen.n() {
        n if n < 5 => Act::Fail(Failure::non_retryable("no")),
        n if n < 20 && seen.attempt <= 2 => Act::Fail(Failure::temporary("later")),
        20 if seen.attempt == 1 => Act::Panic,
        _ => Act::Done,
    });
    let progress = drain(&world, &script).await;
    let dead: Vec<String> = world.dead().into_iter().map(|message| message.body).collect();
    assert_eq!(dead.len(), 5, "{dead:?}");
    assert_eq!((progress.completed, progress.not_deleted), (35, 0), "{progress:?}");
    assert_eq!(
        progress.dead_lettered, 5,
        "each once, though SQS delivers it until it moves it: {progress:?}"
    );
    let calls = calls(&script);
    assert!((5..20).all(|n| calls[&n] == 3) && (21..40).all(|n| calls[&n] == 1), "{calls:?}");
    assert!(world.requests(DELETE).len() < 40, "deleted in batches");
    assert!(world.entries(DELETE).iter().chain(&world.entries(SEND)).all(|entries| *entries <= 10));
}

#[tokio::test(start_paused = true)]
async fn a_worker_names_its_queue_from_its_begin_to_its_end() {
    let mut world = World::new();
    world.protect();
    world.send_numbered(2).await;
    let log = Log::default();
    let _listening = log.listen();
    let failures = [Failure::rate_limit("slow").retry_after(secs(40)), Failure::temporary("no")];
    let script = Script::new(move |seen| match seen.attempt {
        1 => Act::Fail(failures[seen.n()].clone()),
        _ => Act::Done,
    });
    drain(&world, &script).await;
    let text = log.text();
    for said in ["receiving stopped", "receiving resumed", "ended"] {
        let line = text.lines().find(|line| line.contains(&format!(" message={said}")));
        assert!(line.is_some_and(|line| line.contains(" queue=\"orders\"")), "{said}: {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_warns_once_of_each_entry_for_a_queue_that_does_not_exist() {
    let mut world = World::new();
    world.sqs.create_queue("invoices", []).unwrap();
    let document =
        r#"{"queues": {"orders": {"concurrency": 3}, "invoices": {}, "refundz": {}, "order": {}}}"#;
    world.settings.set_policy(document).unwrap();
    world.send_numbered(1).await;
    let log = Log::default();
    let _listening = log.listen();
    drain(&world, &Script::new(|_| Act::Done)).await;
    let text = log.text();
    let warned: Vec<&str> =
        text.lines().filter(|line| line.contains("a queue that does not exist")).collect();
    assert_eq!(warned.len(), 2, "{text}");
    assert!(warned[0].contains("queue=\"order\"") && warned[1].contains("queue=\"refundz\""));
    assert!(text.contains("concurrency=3"), "{text}");

    // Without the permission nobody knows.
    world.faults(|_| Fault::None);
    world.sqs.set_faults(|call| match call.queue.as_deref() {
        Some("orders") | None => Fault::None,
        Some(_) if call.operation == "GetQueueAttributes" => Fault::refuse(403, "AccessDenied"),
        Some(_) => Fault::None,
    });
    log.take();
    start(&world, Script::new(|_| Act::Done), draining()).await;
    assert!(!log.text().contains("a queue that does not exist"), "{}", log.text());
}

#[tokio::test(start_paused = true)]
async fn a_message_left_to_sqs_on_its_last_receive_counts_as_dead() {
    let no_room = format!(r#"{{"n":0,"padding":"{}"}}"#, "x".repeat(1_048_550));
    for (strategy, mode, retried, waiting) in [
        (Strategy::Visibility, Mode::Requeue, 4, 4),
        (Strategy::Copy, Mode::Report, 0, 8),
        (Strategy::Copy, Mode::Requeue, 0, 8),
    ] {
        let mut world = World::new();
        (world.settings.strategy, world.settings.mode) = (strategy, mode);
        world.settings.dead_letter = Some(DeadLetterMode::Redrive);
        let is_copy = (strategy, mode) == (Strategy::Copy, Mode::Requeue);
        world.send(&if is_copy { no_room.clone() } else { numbered(0) }).await;
        world.send(&numbered(1)).await;
        let script = Script::new(|seen| match seen.n() {
            0 => Act::Fail(Failure::temporary("later")),
            _ => Act::Fail(Failure::non_retryable("no")),
        });
        let log = Log::default();
        let listening = log.listen();
        let progress = drain(&world, &script).await;
        drop(listening);
        assert_eq!(world.dead().len(), 2);
        let counts = (progress.requeued, progress.waiting, progress.dead_lettered);
        assert_eq!(counts, (retried, waiting, 2), "{strategy:?} {mode:?}");
        let warns = log.text().contains("maxReceiveCount=5 maxRetries=50");
        assert_eq!(warns, strategy == Strategy::Visibility, "{}", log.text());
    }
}

/// It is received after the signal too, and after the queue has lost its redrive policy.
#[tokio::test(start_paused = true)]
async fn a_message_counts_as_dead_once_however_often_sqs_delivers_it() {
    for (mode, max, is_removed, end, receives) in [
        (DeadLetterMode::Redrive, 5, false, 1_435, 5),
        (DeadLetterMode::Redrive, 5, true, 1_500, 5),
        (DeadLetterMode::Redrive, 5, true, 2_155, 7),
        (DeadLetterMode::Annotate, 12, false, 365, 12),
        (DeadLetterMode::Annotate, 5, true, 365, 12),
        (DeadLetterMode::Annotate, 5, true, 1_085, 14),
    ] {
        let mut world = World::new();
        world.set_max_receive_count(max).await;
        world.settings.dead_letter = Some(mode.clone());
        world.send_numbered(1).await;
        let log = Log::default();
        let listening = log.listen();
        let script = Script::new(|_| Act::Fail(Failure::non_retryable("no")));
        let worker = start(&world, script, alone()).await;
        let removing = async {
            sleep(secs(5)).await;
            if is_removed {
                world.remove_redrive_policy().await;
            }
        };
        let (progress, ()) = tokio::join!(worker.run(sleep(secs(end))), removing);
        drop(listening);
        let case = format!("{mode:?} {max} {is_removed} {end}: {progress:?}");
        let is_warned = log.text().contains("high receive count");
        assert_eq!(is_warned, receives > max, "{case}");
        assert_eq!(progress.dead_lettered, 1, "{case}");
        assert_eq!(world.only_message().receive_count, receives, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn receives_after_the_end_of_a_redrive_policy_are_retries() {
    let mut world = World::new();
    world.settings.strategy = Strategy::Visibility;
    world.set_max_receive_count(3).await;
    world.send_numbered(1).await;
    let worker =
        start(&world, Script::always(Failure::temporary("later")), WorkerSettings::default()).await;
    let running = worker.run(sleep(secs(600)));
    let (progress, ()) = tokio::join!(running, world.remove_redrive_policy());
    assert!(progress.received > 4, "{progress:?}");
    let retried = progress.requeued + progress.waiting;
    assert_eq!((retried, progress.dead_lettered), (progress.received - 1, 1), "{progress:?}");
}

#[tokio::test(start_paused = true)]
async fn too_few_receives_for_a_killed_worker_are_told_at_its_start() {
    for (count, is_told) in [(1, true), (3, true), (4, false)] {
        let world = World::new();
        world.set_max_receive_count(count).await;
        let log = Log::default();
        let listening = log.listen();
        drain(&world, &Script::new(|_| Act::Done)).await;
        drop(listening);
        let text = format!("maxReceiveCount={count}");
        assert_eq!(log.text().contains(&text), is_told, "{}", log.text());
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_done_is_deleted_though_a_neighbour_takes_long() {
    for name in ["orders", "orders.fifo"] {
        let mut world = World::with_queue(name, &[]);
        world.settings.limits.timeout = secs(900);
        for n in 0..10 {
            let own = |message: SendMessageFluentBuilder| match name {
                "orders" => message,
                _ => message
                    .message_group_id(if n == 9 { "slow" } else { "g" })
                    .message_deduplication_id(n.to_string()),
            };
            world.send_as(&numbered(n), own).await;
        }
        world.faults(|_| Fault::None);
        let script =
            Script::new(|seen| Act::work(if seen.n() == 9 { secs(800) } else { millis(10) }));
        let worker = start(&world, script, draining()).await;
        let begun = Instant::now();
        worker.run(pending()).await;
        let deletes: Vec<(usize, u128)> = world
            .requests(DELETE)
            .iter()
            .map(|call| (call.entries, (call.at - begun).as_millis()))
            .collect();
        assert_eq!(deletes, [(9, 260), (1, 800_000)], "{name}: 250 ms after the first one is done");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_done_together_is_deleted_together_and_at_once() {
    for count in [10, 3] {
        let world = World::new();
        world.send_numbered(count).await;
        let worker = start(&world, Script::new(|_| Act::work(secs(1))), draining()).await;
        let begun = Instant::now();
        worker.run(pending()).await;
        let deletes: Vec<(usize, Duration)> =
            world.requests(DELETE).iter().map(|call| (call.entries, call.at - begun)).collect();
        assert_eq!(deletes, [(count, secs(1))]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_delete_that_fails_is_tried_once_more_and_again_on_the_next_receive() {
    let world = World::new();
    world.send_numbered(3).await;
    let script = Script::new(|_| Act::Done);
    world.faults_of(DELETE, |call| {
        if call.of_operation == 1 { Fault::refuse(503, "ServiceUnavailable") } else { Fault::None }
    });
    assert_eq!(drain(&world, &script).await.not_deleted, 0);
    assert_eq!(script.calls().len(), 3);

    world.send(&numbered(3)).await;
    let before = world.calls(DELETE);
    world.faults_of(DELETE, move |call| {
        if call.of_operation <= 2 { Fault::refuse(503, "ServiceUnavailable") } else { Fault::None }
    });
    let log = Log::default();
    let listening = log.listen();
    let progress = drain(&world, &script).await;
    drop(listening);
    assert!(log.text().contains("done or copied, but not deleted"), "{}", log.text());
    assert_eq!((progress.received, progress.completed, progress.waiting), (2, 1, 1));
    assert_eq!((progress.not_deleted, script.calls().len()), (0, 4), "it is called once");
    assert_eq!(world.calls(DELETE) - before, 3);
}

#[tokio::test(start_paused = true)]
async fn a_message_stays_invisible_while_it_is_worked_on_however_long_that_takes() {
    for every_other_fails in [false, true] {
        let mut world = with_visibility("orders", "6");
        world.settings.limits.timeout = secs(900);
        world.send_numbered(2).await;
        world.faults_of(VISIBILITY_CHANGE, move |call| {
            let fails = every_other_fails && call.of_operation % 2 == 0;
            if fails { Fault::LoseRequest } else { Fault::None }
        });
        let script = Script::new(|seen| Act::work(secs(if seen.n() == 0 { 300 } else { 1 })));
        // Another one waits for what becomes visible too early.
        let (one, other) =
            (start(&world, script.clone(), draining()), start(&world, script.clone(), draining()));
        let (one, other) = (one.await, other.await);
        tokio::join!(one.run(pending()), other.run(pending()));
        assert_eq!(script.calls().len(), 2, "fails: {every_other_fails}");
        let changes = world.requests(VISIBILITY_CHANGE);
        assert!((145..=150).contains(&changes.len()), "a call each 2 s: {}", changes.len());
        let ended = Instant::now();
        assert!(
            changes.iter().all(|change| change.at < ended - millis(900)),
            "none when it is done"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_extended_beyond_the_twelve_hours_of_sqs() {
    for visibility in [600, 43_200] {
        let mut world = with_visibility("orders", &visibility.to_string());
        world.settings.limits.timeout = secs(100_000);
        world.send_numbered(1).await;
        let worker = start(&world, Script::new(|_| Act::Hang), alone()).await;
        let begun = Instant::now();
        let ended = timeout(secs(43_300), worker.run(pending())).await;
        assert!(ended.is_err());
        let extended: Vec<Duration> =
            world.requests(VISIBILITY_CHANGE).iter().map(|call| call.at - begun).collect();
        assert_eq!(extended.len(), if visibility == 600 { 213 } else { 0 });
        assert!(extended.iter().all(|at| *at < secs(43_200)));
        assert_eq!(world.only_message().state, MessageState::Visible);
    }
}

#[tokio::test(start_paused = true)]
async fn no_extension_comes_after_what_settling_asked_for() {
    let mut world = with_visibility("orders.fifo", "6");
    world.settings.limits.timeout = secs(60);
    // The other one keeps the batch, and with it the extensions, going.
    for n in 0..2 {
        let group = |message: SendMessageFluentBuilder| message.message_group_id(format!("g{n}"));
        world
            .send_as(&numbered(n), |message| group(message).message_deduplication_id(n.to_string()))
            .await;
    }
    // The first extension, begun after 2 s, arrives when the handler has failed already.
    world.faults_of(VISIBILITY_CHANGE, |call| {
        if call.of_operation == 1 { Fault::after(secs(1), Fault::None) } else { Fault::None }
    });
    let later = Failure::rate_limit("busy").retry_after(secs(100));
    let script = Script::new(move |seen| match seen.receive_count {
        _ if seen.n() == 1 => Act::work(secs(20)),
        1 => Act::after(millis(2_500), Act::Fail(later.clone())),
        _ => Act::Done,
    });
    drain(&world, &script).await;
    let calls: Vec<Seen> = script.calls().into_iter().filter(|seen| seen.n() == 0).collect();
    assert_eq!((calls.len(), script.calls().len()), (2, 3));
    let pause = calls[1].at - calls[0].at;
    assert!(pause >= secs(102), "the delay of settling is what counts: {pause:?}");
}

/// Two workers on a queue of 6 s of which nothing can extend the visibility: the first one to
/// receive the message takes 10 s.
async fn lapse(
    mut world: World,
    strategy: Strategy,
    dead_letter: DeadLetterMode,
    failure: Option<Failure>,
) -> Lapsed {
    world.settings.limits.timeout = secs(60);
    world.settings.strategy = strategy;
    world.settings.dead_letter = Some(dead_letter);
    world.send_numbered(1).await;
    world.faults_of(VISIBILITY_CHANGE, |_| Fault::LoseRequest);
    let script = Script::new(move |seen| {
        let act = match &failure {
            Some(failure) if seen.attempt == 1 => Act::Fail(failure.clone()),
            _ => Act::Done,
        };
        // The second one is done before it extends.
        Act::after(
            if (seen.attempt, seen.receive_count) == (1, 1) { secs(10) } else { millis(500) },
            act,
        )
    });
    let (one, other) = (
        start(&world, script.clone(), draining()).await,
        start(&world, script.clone(), draining()).await,
    );
    let (one, other) = tokio::join!(one.run(pending()), other.run(pending()));
    Lapsed { world, calls: script.calls(), ended: [one, other] }
}

struct Lapsed {
    world: World,
    calls: Vec<Seen>,
    ended: [Progress; 2],
}

#[tokio::test(start_paused = true)]
async fn of_a_message_that_may_be_in_other_hands_no_copy_is_sent() {
    let direct = || {
        DeadLetterMode::Direct(
            "https://sqs.us-east-1.amazonaws.com/000000000000/orders-dlq".parse().unwrap(),
        )
    };
    let table = [
        (DeadLetterMode::Redrive, Failure::temporary("later"), 1, 0),
        (DeadLetterMode::Annotate, Failure::non_retryable("no"), 1, 1),
        (direct(), Failure::non_retryable("no"), 1, 1),
    ];
    for (dead_letter, failure, copies, dead) in table {
        let what = format!("{dead_letter:?} {failure:?}");
        let lapsed = Box::pin(lapse(
            with_visibility("orders", "6"),
            Strategy::Copy,
            dead_letter,
            Some(failure),
        ))
        .await;
        let first = &lapsed.calls[..2];
        assert!(
            first.iter().all(|seen| seen.attempt == 1),
            "{what}: both handle the original: {first:?}"
        );
        assert_eq!(lapsed.world.entries(SEND), vec![1; copies], "{what}");
        assert_eq!((lapsed.world.dead().len(), lapsed.world.messages().len()), (dead, 0), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn nor_of_a_message_whose_delivery_is_read_when_its_visibility_has_run_out() {
    // Read at 2.6 s, when the message still counts as hidden, and at 3.6 s, when another worker has
    // it.
    for (late, calls, released) in [(2_600, 2, 0), (3_600, 2, 1)] {
        let world = with_visibility("orders", "3");
        world.send_numbered(1).await;
        let receives = world.sqs.call_count("ReceiveMessage");
        world.sqs.set_faults(move |call| match call.operation.as_str() {
            "ReceiveMessage" if call.of_operation == receives + 1 => {
                Fault::RespondAfter(millis(late))
            }
            _ => Fault::None,
        });
        let script = Script::new(|seen| match seen.attempt {
            1 => Act::after(millis(200), Act::Fail(Failure::temporary("later"))),
            _ => Act::Done,
        });
        let (one, other) = (
            start(&world, script.clone(), draining()).await,
            start(&world, script.clone(), draining()).await,
        );
        let (one, other) = tokio::join!(one.run(pending()), other.run(pending()));
        let attempts: Vec<u32> = script.calls().iter().map(|seen| seen.attempt).collect();
        assert_eq!(attempts, [1, 2][..calls], "{late}: one copy");
        assert_eq!(
            (one.waiting, one.requeued, other.waiting),
            (released, 1 - released, 0),
            "{late}: {one:?} {other:?}"
        );
        assert_eq!(one.completed + other.completed, 1, "{late}");
    }
}

/// Whenever a message comes during a long poll: enough of its time is left.
#[tokio::test(start_paused = true)]
async fn a_long_poll_leaves_a_message_enough_of_its_visibility_timeout() {
    for (visibility, end, step) in
        [(1, 2_100, 170), (2, 2_100, 170), (3, 2_100, 170), (6, 4_200, 170), (30, 11_000, 990)]
    {
        for at in (0..=end).step_by(step) {
            let what = format!("{visibility} s, sent at {at} ms");
            let world = with_visibility("orders", &visibility.to_string());
            let script = Script::failing_first(1, Failure::temporary("later"));
            let worker = start(&world, script.clone(), WorkerSettings::default()).await;
            let sending = async {
                sleep(millis(at)).await;
                world.send(&numbered(0)).await;
                sleep(secs(30)).await;
            };
            let progress = worker.run(sending).await;
            assert_eq!(
                (progress.requeued, progress.completed, progress.waiting),
                (1, 1, 0),
                "{what}"
            );
            assert!(script.calls().iter().all(|seen| seen.receive_count == 1), "{what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_worker_asks_three_times_within_a_visibility_timeout_and_once_a_second_at_most() {
    for (visibility, receives) in [(1, 60), (2, 60), (3, 60), (6, 30), (30, 6), (60, 3), (600, 3)] {
        let world = with_visibility("orders", &visibility.to_string());
        let worker = start(&world, Script::new(|_| Act::Done), WorkerSettings::default()).await;
        let before = world.sqs.call_count("ReceiveMessage");
        worker.run(sleep(millis(59_500))).await;
        assert_eq!(world.sqs.call_count("ReceiveMessage") - before, receives, "{visibility} s");
    }
}

/// An emulator that responds at once although no message came.
struct Hasty(SqsQueue);

impl Queue for Hasty {
    async fn send(
        &self,
        queue: &QueueArn,
        entries: &[Outgoing<'_>],
    ) -> Result<Vec<Confirmation>, CallError> {
        self.0.send(queue, entries).await
    }

    async fn delete(
        &self,
        queue: &QueueArn,
        receipt_handles: &[&str],
    ) -> Result<Vec<Confirmation>, CallError> {
        self.0.delete(queue, receipt_handles).await
    }

    async fn change_visibility(
        &self,
        queue: &QueueArn,
        entries: &[(&str, Duration)],
    ) -> Result<Vec<Confirmation>, CallError> {
        self.0.change_visibility(queue, entries).await
    }

    fn clock(&self) -> Clock {
        self.0.clock()
    }
}

impl Source for Hasty {
    async fn describe(&self, queue: &QueueArn) -> Result<Description, CallError> {
        self.0.describe(queue).await
    }

    async fn receive(
        &self,
        queue: &QueueArn,
        ask: ReceiveRequest,
    ) -> Result<Vec<Record>, CallError> {
        let ask = ReceiveRequest::new(ask.max, Duration::ZERO, ask.visibility);
        sleep(millis(20)).await;
        self.0.receive(queue, ask).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_does_not_wait_for_a_message_is_asked_once_a_second() {
    let world = World::new();
    let queue = Hasty(SqsQueue::new(&world.sqs.client()));
    let (script, settings) = (Script::new(|_| Act::Done), WorkerSettings::default());
    let worker = Worker::start(script, queue, &world.queue, world.settings.clone(), settings);
    let worker = worker.await.unwrap();
    let before = world.sqs.call_count("ReceiveMessage");
    worker.run(sleep(millis(59_500))).await;
    assert_eq!(world.sqs.call_count("ReceiveMessage") - before, 60);
}

#[tokio::test(start_paused = true)]
async fn the_first_extension_counts_from_when_the_message_was_asked_for() {
    let mut world = with_visibility("orders", "6");
    world.settings.limits.timeout = secs(60);
    world.faults(|_| Fault::None);
    let worker =
        start(&world, Script::new(|_| Act::work(secs(5))), WorkerSettings::default()).await;
    let begun = Instant::now();
    let sending = async {
        sleep(millis(1_500)).await;
        world.send(&numbered(0)).await;
        sleep(secs(10)).await;
    };
    assert_eq!(worker.run(sending).await.completed, 1);
    let at: Vec<Duration> =
        world.requests(VISIBILITY_CHANGE).iter().map(|call| call.at - begun).collect();
    assert_eq!(at, [2, 4, 6].map(secs), "the message came at 1.5 s");
}

#[tokio::test(start_paused = true)]
async fn what_is_done_is_done_though_its_visibility_has_lapsed() {
    let world = with_visibility("orders", "6");
    let Lapsed { world, calls, ended } =
        Box::pin(lapse(world, Strategy::Copy, DeadLetterMode::Redrive, None)).await;
    assert_eq!((calls.len(), ended.map(|progress| progress.completed)), (2, [1, 1]));
    assert!(world.messages().is_empty());
}

#[tokio::test(start_paused = true)]
async fn nor_is_the_visibility_of_a_message_changed_that_may_be_in_other_hands() {
    let world = with_visibility("orders", "6");
    let failure = Some(Failure::temporary("later"));
    let lapsed =
        Box::pin(lapse(world, Strategy::Visibility, DeadLetterMode::Redrive, failure)).await;
    let begun = lapsed.calls[0].at;
    let changes = lapsed.world.requests(VISIBILITY_CHANGE);
    let at: Vec<Duration> = changes.iter().map(|call| call.at - begun).collect();
    assert_eq!(
        (lapsed.calls.len(), at),
        (2, vec![secs(2), secs(4)]),
        "none at 10 s, when it fails"
    );
}

#[tokio::test(start_paused = true)]
async fn a_hidden_message_that_comes_before_the_response_is_called() {
    let mut world = with_visibility("orders", "30");
    world.settings.strategy = Strategy::Visibility;
    world.settings.policy.temporary.backoff = Backoff::Constant { base: secs(1) };
    world.settings.policy.temporary.jitter = Jitter::None;
    world.send_numbered(1).await;
    world.faults_of(VISIBILITY_CHANGE, |_| Fault::RespondAfter(secs(3)));
    let script = Script::new(|seen| match seen.receive_count {
        1 => Act::Fail(Failure::temporary("later")),
        _ => Act::Done,
    });
    let mut settings = draining();
    settings.receivers = Some(2);
    let worker = start(&world, script.clone(), settings).await;
    timeout(secs(1_000), worker.run(pending())).await.expect("the queue becomes empty");
    let receives: Vec<u32> = script.calls().iter().map(|seen| seen.receive_count).collect();
    assert_eq!(receives, [1, 2], "another receiver has it after a second");
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_own_extension_fails_is_released_alone() {
    let mut world = with_visibility("orders", "6");
    world.settings.limits.timeout = secs(60);
    world.send_numbered(2).await;
    world.faults_of(VISIBILITY_CHANGE, |call| {
        if call.entries < 2 {
            return Fault::None;
        }
        let outcome =
            EntryOutcome::Refused { code: "InternalError".to_owned(), sender_fault: false };
        Fault::Entries(vec![EntryFault::new(0, outcome)])
    });
    let slow = Script::new(|seen| match (seen.attempt, seen.receive_count) {
        (1, 1) => Act::after(secs(20), Act::Fail(Failure::temporary("later"))),
        _ => Act::Done,
    });
    let mut settings = alone();
    settings.until = Until::Empty;
    let progress = start(&world, slow, settings).await.run(pending()).await;
    assert_eq!(
        (progress.waiting, progress.requeued, progress.completed),
        (1, 1, 2),
        "{progress:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_message_that_sqs_refuses_to_extend_is_no_longer_ours_whatever_the_clock_says() {
    for (sender_fault, released) in [(true, 1), (false, 0)] {
        let world = with_visibility("orders", "6");
        world.send_numbered(1).await;
        world.faults_of(VISIBILITY_CHANGE, move |_| {
            let outcome =
                EntryOutcome::Refused { code: "MessageNotInflight".to_owned(), sender_fault };
            Fault::Entries(vec![EntryFault::new(0, outcome)])
        });
        let script = Script::new(|seen| match (seen.attempt, seen.receive_count) {
            (1, 1) => Act::after(secs(3), Act::Fail(Failure::temporary("later"))),
            _ => Act::Done,
        });
        let progress = drain(&world, &script).await;
        assert_eq!(
            (progress.waiting, progress.requeued),
            (released, 1 - released),
            "{sender_fault}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_send_that_is_tried_again_ends_when_the_visibility_lapses() {
    let mut world = with_visibility("orders", "6");
    let calls = &mut world.settings.policy.sqs_calls;
    calls.max_attempts = 10;
    calls.backoff = Backoff::Constant { base: secs(4) };
    calls.max_delay = secs(4);
    calls.jitter = Jitter::None;
    world.send_numbered(1).await;
    world.faults(|call| match call.operation.as_str() {
        VISIBILITY_CHANGE => Fault::LoseRequest,
        SEND => Fault::refuse(503, "ServiceUnavailable"),
        _ => Fault::None,
    });
    let script = Script::new(|seen| match seen.receive_count {
        1 => Act::after(secs(1), Act::Fail(Failure::temporary("later"))),
        _ => Act::Done,
    });
    let progress = drain(&world, &script).await;
    assert_eq!(
        (world.calls(SEND), progress.completed, script.calls().len()),
        (2, 1, 2),
        "at 1 s and at 5 s"
    );
    assert_eq!(
        world.calls(VISIBILITY_CHANGE),
        2,
        "those that were to extend it, at 2 s and at 4 s"
    );
}

#[tokio::test(start_paused = true)]
async fn no_handler_begins_for_a_message_that_may_be_in_other_hands() {
    let mut world = with_visibility("orders.fifo", "6");
    world.settings.limits.timeout = secs(60);
    for n in 0..2 {
        let own = |message: SendMessageFluentBuilder| {
            message.message_group_id("g").message_deduplication_id(n.to_string())
        };
        world.send_as(&numbered(n), own).await;
    }
    world.faults_of(VISIBILITY_CHANGE, |_| Fault::LoseRequest);
    let script = Script::new(|seen| {
        Act::work(secs(if (seen.n(), seen.receive_count) == (0, 1) { 10 } else { 1 }))
    });
    let (one, other) = (
        start(&world, script.clone(), draining()).await,
        start(&world, script.clone(), draining()).await,
    );
    tokio::join!(one.run(pending()), other.run(pending()));
    assert_eq!(calls(&script), BTreeMap::from([(0, 2), (1, 1)]));
}

#[tokio::test(start_paused = true)]
async fn a_fifo_group_keeps_its_order() {
    let world = World::with_queue("orders.fifo", &[("ContentBasedDeduplication", "true")]);
    for n in 0..40 {
        world
            .send_as(&numbered(n), |message| message.message_group_id(format!("g{}", n % 4)))
            .await;
    }
    let script = Script::new(|seen| {
        let fails = seen.n() % 7 == 3 && seen.receive_count == 1;
        Act::after(
            millis(300),
            if fails { Act::Fail(Failure::temporary("later")) } else { Act::Done },
        )
    });
    let mut settings = draining();
    settings.receivers = Some(3);
    let worker = start(&world, script.clone(), settings).await;
    worker.run(pending()).await;
    for group in 0..4 {
        let mut seen: Vec<usize> =
            script.calls().iter().map(Seen::n).filter(|n| n % 4 == group).collect();
        let all = seen.clone();
        seen.dedup();
        assert!(seen.is_sorted() && seen.len() == 10, "group {group}: {all:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_deleted_while_a_neighbour_works_is_counted() {
    let world = World::new();
    world.send_numbered(2).await;
    // Both tries for the first one.
    world.faults_of(DELETE, |call| {
        if call.of_operation <= 2 { Fault::refuse(403, "AccessDenied") } else { Fault::None }
    });
    let script = Script::new(|seen| if seen.n() == 0 { Act::Done } else { Act::work(secs(5)) });
    let progress = drain(&world, &script).await;
    assert_eq!((progress.completed, progress.not_deleted), (2, 0), "{progress:?}");
}

/// Its receivers get it again and again while its handler still runs, and SQS confirms a delete by the
/// first receive, which deletes nothing.
#[tokio::test(start_paused = true)]
async fn a_message_that_is_not_extended_is_handled_once_by_its_worker() {
    let world = with_visibility("orders", "4");
    world.send_numbered(10).await;
    world.faults_of(VISIBILITY_CHANGE, |_| Fault::refuse(403, "AccessDenied"));
    let script = Script::new(|_| Act::work(secs(9)));
    let mut settings = draining();
    settings.receivers = Some(3);
    let worker = start(&world, script.clone(), settings).await;
    timeout(secs(1_000), worker.run(pending())).await.expect("the queue becomes empty");
    assert_eq!((script.calls().len(), world.dead().len()), (10, 0));
}

/// Without the permission to delete, each message would be done again on each of its receives.
#[tokio::test(start_paused = true)]
async fn a_worker_that_may_not_delete_does_each_message_once_and_slows_down() {
    for failure in [None, Some(Failure::temporary("later"))] {
        let world = World::new();
        world.send_numbered(30).await;
        world.faults_of(DELETE, |_| Fault::refuse(403, "AccessDenied"));
        let first = failure.clone();
        let script = Script::new(move |_| first.clone().map_or(Act::Done, Act::Fail));
        let mut settings = WorkerSettings::default();
        settings.receivers = Some(1);
        let worker = start(&world, script.clone(), settings).await;
        timeout(secs(3_600), worker.run(pending())).await.expect_err("it goes on");
        let at: Vec<Instant> = script.calls().iter().step_by(10).map(|seen| seen.at).collect();
        let pauses: Vec<_> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(pauses[0] >= millis(400) && pauses[1] >= millis(800), "{pauses:?}");
        let progress = worker.progress();
        let copies = world.entries(SEND).iter().sum::<usize>();
        if failure.is_none() {
            assert_eq!((script.calls().len(), progress.completed), (30, 30), "{progress:?}");
            assert_eq!((progress.not_deleted, world.dead().len()), (30, 30), "{progress:?}");
        } else {
            assert_eq!(script.calls().len(), copies, "one copy of each");
        }
    }
}

/// The other receivers still wait for messages, and would each receive a message that was released.
#[tokio::test(start_paused = true)]
async fn a_message_that_comes_at_the_end_is_received_once() {
    let world = World::new();
    let mut settings = WorkerSettings::default();
    settings.receivers = Some(10);
    let script = Script::new(|_| Act::Done);
    let worker = start(&world, script.clone(), settings).await;
    let sending = async {
        sleep(millis(5_100)).await;
        world.send(&numbered(0)).await;
    };
    let (progress, ()) = tokio::join!(worker.run(sleep(secs(5))), sending);
    let message = world.only_message();
    assert_eq!((message.state, message.receive_count), (MessageState::Visible, 1), "{progress:?}");
    assert_eq!((progress.received, progress.dead_lettered, script.calls().len()), (1, 0, 0));
}

/// Handlers that end, fail and are not begun, at whatever moment the signal comes.
#[tokio::test(start_paused = true)]
async fn a_shutdown_at_any_moment_loses_nothing_and_gives_back_what_was_not_handled() {
    for (name, shutdown_timeout) in
        [("orders", 30), ("orders", 1), ("orders.fifo", 30), ("orders.fifo", 1)]
    {
        for at in (0..=6_000).step_by(200) {
            let what = format!("{name}, {shutdown_timeout} s, at {at} ms");
            let mut world = World::with_queue(name, &[]);
            world.settings.limits.concurrency = 4;
            let is_fifo = world.queue.is_fifo();
            for n in 0..12 {
                world
                    .send_as(&numbered(n), |message| {
                        let group = is_fifo.then(|| format!("g{}", n % 3));
                        message
                            .set_message_group_id(group)
                            .set_message_deduplication_id(is_fifo.then(|| n.to_string()))
                    })
                    .await;
            }
            let script = Script::new(|seen| match seen.n() {
                1 | 5 if seen.receive_count == 1 && seen.attempt == 1 => {
                    Act::after(millis(500), Act::Fail(Failure::temporary("later")))
                }
                _ => Act::work(millis(1_300)),
            });
            let mut settings = WorkerSettings::default();
            settings.shutdown_timeout = secs(shutdown_timeout);
            let worker = start(&world, script.clone(), settings).await;
            let begun = Instant::now();
            worker.run(sleep(Duration::from_millis(at))).await;
            let took = begun.elapsed().saturating_sub(Duration::from_millis(at));
            assert!(took <= secs(shutdown_timeout) && took <= secs(20), "{what}: {took:?}");
            let failed = script.calls().iter().filter(|seen| [1, 5].contains(&seen.n())).count();
            let states: Vec<MessageState> =
                world.messages().into_iter().map(|message| message.state).collect();
            let hidden = states
                .iter()
                .filter(|state| matches!(state, MessageState::InFlightUntil(_)))
                .count();
            assert!(hidden <= if is_fifo { failed } else { 0 }, "{what}: {states:?}");

            let done = worker.progress().completed;
            assert!(states.len() >= 12 - usize::try_from(done).unwrap(), "{what}");
            let rest = drain(&world, &script).await;
            assert_eq!(done + rest.completed, 12, "{what}");
            assert!(world.messages().is_empty() && world.dead().is_empty(), "{what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_handled_when_the_time_is_over_is_cancelled_and_receivable_at_once() {
    let mut world = World::new();
    world.settings.limits.timeout = secs(900);
    world.send_numbered(1).await;
    let script = Script::new(|_| Act::Hang);
    let worker = start(&world, script.clone(), WorkerSettings::default()).await;
    let begun = Instant::now();
    worker.run(sleep(secs(5))).await;
    assert_eq!(begun.elapsed(), secs(5 + 30 - 5), "the reserve is kept for settling");
    assert_eq!(script.running(), 0);
    let message = world.only_message();
    assert_eq!(
        (message.state, message.body),
        (MessageState::Visible, numbered(0)),
        "no retry is used up"
    );
}

#[tokio::test(start_paused = true)]
async fn a_receive_under_way_at_the_signal_hides_no_message() {
    let world = World::new();
    let script = Script::new(|_| Act::Done);
    let worker = start(&world, script.clone(), WorkerSettings::default()).await;
    world.sqs.set_faults(|call| match call.operation.as_str() {
        "ReceiveMessage" => Fault::RespondAfter(millis(500)),
        _ => Fault::None,
    });
    let shutdown = async {
        sleep(secs(3)).await;
        world.send(&numbered(0)).await;
    };
    worker.run(shutdown).await;
    assert_eq!((world.only_message().state, script.calls().len()), (MessageState::Visible, 0));
}

/// SQS may give a message to a long poll that nobody waits for, and hide it.
#[tokio::test(start_paused = true)]
async fn a_worker_ends_no_earlier_than_its_long_poll_and_releases_what_it_brings() {
    for (shutdown_timeout, after, received) in
        [(30, 0, 1), (30, 2_000, 1), (30, 13_900, 1), (30, 16_000, 0), (10, 1_000, 1), (1, 300, 0)]
    {
        let what = format!("{shutdown_timeout} s, after {after} ms");
        let world = World::new();
        let mut settings = WorkerSettings::default();
        settings.shutdown_timeout = secs(shutdown_timeout);
        let script = Script::new(|_| Act::Done);
        let worker = start(&world, script.clone(), settings).await;
        let sending = async {
            sleep(secs(6) + millis(after)).await;
            world.send(&numbered(0)).await;
        };
        let ending = async {
            let begun = Instant::now();
            let progress = worker.run(sleep(secs(6))).await;
            (progress, begun.elapsed().saturating_sub(secs(6)))
        };
        let ((progress, took), ()) = tokio::join!(ending, sending);
        assert!(took <= secs(shutdown_timeout.min(15)), "{what}: {took:?}");
        let message = world.only_message();
        assert_eq!(message.state, MessageState::Visible, "{what}");
        let counts = (u64::from(message.receive_count), progress.received, progress.waiting);
        assert_eq!(counts, (received, received, received), "{what}");
        assert_eq!(script.calls().len(), 0, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn receiving_backs_off_and_goes_on() {
    let lost = [400, 800, 1_600, 3_200, 6_400, 8_000, 8_000];
    let refused = [8_000; 7];
    let own = r#"{"receiveCalls": {"baseDelay": 3, "maxDelay": 20, "jitter": "none"}}"#;
    for (policy, fault, pauses) in [
        ("{}", Fault::refuse(503, "ServiceUnavailable"), lost),
        ("{}", Fault::LoseRequest, lost),
        ("{}", Fault::refuse(400, "AWS.SimpleQueueService.NonExistentQueue"), refused),
        ("{}", Fault::refuse(403, "AccessDenied"), refused),
        (own, Fault::LoseRequest, [3_000, 6_000, 12_000, 20_000, 20_000, 20_000, 20_000]),
    ] {
        let mut world = World::new();
        world.settings.policy = policy.parse().unwrap();
        world.send(&numbered(0)).await;
        let script = Script::new(|_| Act::Done);
        let worker = start(&world, script.clone(), draining()).await;
        let begun: Arc<Mutex<Vec<Instant>>> = Arc::default();
        let (log, failing) = (Arc::clone(&begun), fault.clone());
        world.sqs.set_faults(move |call| {
            if call.operation != "ReceiveMessage" {
                return Fault::None;
            }
            log.lock().unwrap().push(Instant::now());
            if call.of_operation <= 7 { failing.clone() } else { Fault::None }
        });
        let text = Log::default();
        let listening = text.listen();
        worker.run(pending()).await;
        drop(listening);
        let (text, begun) = (text.text(), begun.lock().unwrap().clone());
        let queue = format!("queue={}", world.queue);
        let says = |line: &&str, what: &str| line.contains(what) && line.contains(&queue);
        let failed = text.lines().filter(|line| says(line, "receiving fail")).count();
        let again: Vec<_> = text.lines().filter(|line| says(line, "works again")).collect();
        let secs = pauses.iter().sum::<u128>() / 1_000;
        let [again] = again[..] else { panic!("{text}") };
        assert_eq!(text.matches(r#"endpoint="https://sqs."#).count(), 7, "{text}");
        assert!(failed == 7 && again.contains(&format!("troubleSeconds={secs}")), "{text}");
        let waited: Vec<u128> =
            begun.windows(2).take(7).map(|pair| (pair[1] - pair[0]).as_millis()).collect();
        assert_eq!(waited, pauses, "{fault:?}");
        assert_eq!(script.calls().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_does_not_tell_its_count_is_drained_when_it_does_again() {
    let world = World::new();
    world.send(&numbered(0)).await;
    let script = Script::new(|_| Act::Done);
    let worker = start(&world, script.clone(), draining()).await;
    let begun = Instant::now();
    world.sqs.set_faults(move |call| match call.operation.as_str() {
        "GetQueueAttributes" if begun.elapsed() < secs(70) => Fault::refuse(403, "AccessDenied"),
        _ => Fault::None,
    });
    let text = Log::default();
    let listening = text.listen();
    let progress = worker.run(pending()).await;
    drop(listening);
    assert_eq!((progress.completed, begun.elapsed().as_secs() / 10), (1, 7));
    let text = text.text();
    let told = text.lines().filter(|line| {
        line.contains("not known whether the queue is empty")
            && line.contains("sqs:GetQueueAttributes")
            && line.contains(&format!("queue={}", world.queue))
            && line.contains("AccessDenied")
    });
    assert_eq!(told.count(), 3, "{text}");
}

#[tokio::test(start_paused = true)]
async fn what_would_lose_messages_or_double_them_is_refused_at_the_start() {
    let world = World::new();
    let bare = world.sqs.create_queue("bare", []).unwrap();
    let fleeting = world.sqs.create_queue("fleeting", [("VisibilityTimeout", "0")]).unwrap();
    let missing = "arn:aws:sqs:us-east-1:000000000000:missing".parse().unwrap();
    let queue = SqsQueue::new(&world.sqs.client());
    let ask = async |queue_arn, settings: &Settings, without| {
        let mut worker = WorkerSettings::default();
        worker.without_dead_letter_queue = without;
        let script = Script::new(|_| Act::Done);
        Worker::start(script, queue.clone(), queue_arn, settings.clone(), worker).await.err()
    };
    let (settings, refuse) = (&world.settings, WithoutDeadLetterQueue::Refuse);
    let error = ask(&missing, settings, refuse).await.unwrap();
    assert!(error.to_string().starts_with("there is no queue missing in us-east-1"), "{error}");
    let refused = StartError::NoDeadLetterQueue { queue: bare.clone() };
    assert_eq!(ask(&bare, settings, refuse).await, Some(refused));
    assert_eq!(ask(&bare, settings, WithoutDeadLetterQueue::Warn).await, None);
    assert_eq!(ask(&fleeting, settings, refuse).await, Some(StartError::NoVisibilityTimeout));

    for (seconds, is_refused) in [(0, false), (60, false), (61, true)] {
        let now = world.clock.now();
        for wrong in [now - secs(seconds), now + secs(seconds)] {
            let mut settings = world.settings.clone();
            settings.clock = Some(requeue::Clock::starting_at(wrong));
            let error = ask(&world.queue, &settings, refuse).await;
            assert_eq!(
                matches!(error, Some(StartError::Clock { .. })),
                is_refused,
                "{seconds}: {error:?}"
            );
        }
    }

    world.sqs.set_faults(|_| Fault::LoseRequest);
    let begun = Instant::now();
    let error = ask(&world.queue, settings, refuse).await;
    assert_eq!(error, Some(StartError::Unavailable { code: "ConnectionLost".to_owned() }));
    assert_eq!(begun.elapsed(), millis(400 + 800), "after three attempts");
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_queue_that_does_not_exist_is_refused_like_none() {
    let world = World::new();
    let gone = world.sqs.create_queue("gone", []).unwrap();
    let policy = format!(r#"{{"deadLetterTargetArn":"{gone}","maxReceiveCount":5}}"#);
    let orphan = world.sqs.create_queue("orphan", [("RedrivePolicy", policy.as_str())]).unwrap();
    let bare = world.sqs.create_queue("bare", []).unwrap();
    let there = world.sqs.create_queue("there", []).unwrap();
    world.sqs.client().delete_queue().queue_url(gone.url()).send().await.unwrap();

    let direct = |url: String| DeadLetterMode::Direct(url.parse().unwrap());
    let missing =
        |is_direct| Some(StartError::MissingDeadLetterQueue { queue: gone.clone(), is_direct });
    for (queue, dead_letter, refused) in [
        (&orphan, DeadLetterMode::Redrive, missing(false)),
        (&orphan, DeadLetterMode::Annotate, missing(false)),
        // What is dead-lettered is sent elsewhere.
        (&orphan, direct(there.url()), None),
        (&bare, direct(there.url()), None),
        (&bare, direct(gone.url()), missing(true)),
        (&world.queue, direct(gone.url()), missing(true)),
        (&world.queue, DeadLetterMode::Redrive, None),
    ] {
        for without in [WithoutDeadLetterQueue::Refuse, WithoutDeadLetterQueue::Warn] {
            let expected = refused.clone().filter(|_| without == WithoutDeadLetterQueue::Refuse);
            let mut worker = WorkerSettings::default();
            worker.without_dead_letter_queue = without;
            let mut settings = world.settings.clone();
            settings.dead_letter = Some(dead_letter.clone());
            let source = SqsQueue::new(&world.sqs.client());
            let started =
                Worker::start(Script::new(|_| Act::Done), source, queue, settings, worker).await;
            assert_eq!(started.err(), expected, "{queue} {dead_letter:?}");
        }
    }
    let mut settings = world.settings.clone();
    settings.dead_letter = Some(direct(world.queue.url()));
    let source = SqsQueue::new(&world.sqs.client());
    let worker = WorkerSettings::default();
    let script = Script::new(|_| Act::Done);
    let itself = Worker::start(script, source, &world.queue, settings, worker).await.err();
    assert_eq!(itself, Some(StartError::OwnDeadLetterQueue { queue: world.queue.clone() }));

    let said = missing(false).unwrap().to_string();
    assert!(
        said.starts_with(&format!(
            "the queue's redrive policy names {gone} as the dead-letter queue"
        )),
        "{said}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_of_a_worker_says_why_unless_a_setting_says_otherwise() {
    for (mode, reason) in [
        (None, Some("non-retryable")),
        (Some(DeadLetterMode::Annotate), Some("non-retryable")),
        (Some(DeadLetterMode::Redrive), None),
    ] {
        let mut world = World::new();
        world.settings.dead_letter = mode.clone();
        world.send_numbered(1).await;
        let script = Script::new(|_| Act::Fail(Failure::non_retryable("no")));
        start(&world, script, draining()).await.run(pending()).await;
        let reasons: Vec<_> = world
            .dead()
            .iter()
            .map(|letter| requeue::DeadLetter::read(&letter.body).reason().map(str::to_owned))
            .collect();
        assert_eq!(reasons, [reason.map(str::to_owned)], "{mode:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn another_dead_letter_queue_than_that_of_the_redrive_policy_is_said_at_the_start() {
    for (name, times) in [("orders-dlq", 0), ("invoices", 1)] {
        let mut world = World::with_queue("orders", &[]);
        world.sqs.create_queue("invoices", []).unwrap();
        let url = format!("https://sqs.us-east-1.amazonaws.com/000000000000/{name}");
        world.settings.dead_letter = Some(DeadLetterMode::Direct(url.parse().unwrap()));
        let log = Log::default();
        let listening = log.listen();
        start(&world, Script::new(|_| Act::Done), WorkerSettings::default()).await;
        drop(listening);
        let text = log.text();
        assert_eq!(text.matches("names another queue than").count(), times, "{name}: {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_mode_for_dead_letters_that_does_nothing_on_a_fifo_queue_is_said_at_the_start() {
    let direct = || {
        DeadLetterMode::Direct(
            "https://sqs.us-east-1.amazonaws.com/000000000000/orders-dlq".parse().unwrap(),
        )
    };
    for (name, dead_letter, mode, times) in [
        ("orders.fifo", Some(DeadLetterMode::Annotate), Mode::Requeue, 1),
        ("orders.fifo", None, Mode::Requeue, 1),
        ("orders.fifo", Some(DeadLetterMode::Annotate), Mode::Report, 0),
        ("orders.fifo", Some(DeadLetterMode::Redrive), Mode::Requeue, 0),
        ("orders", Some(DeadLetterMode::Annotate), Mode::Requeue, 0),
        ("orders", None, Mode::Requeue, 0),
        ("orders", Some(direct()), Mode::Requeue, 0),
    ] {
        let mut world = World::with_queue(name, &[]);
        world.settings.dead_letter = dead_letter.clone();
        world.settings.mode = mode;
        let log = Log::default();
        let listening = log.listen();
        let worker = start(&world, Script::new(|_| Act::Done), WorkerSettings::default()).await;
        worker.run(sleep(secs(60))).await;
        drop(listening);
        let text = log.text();
        let said = text.lines().filter(|line| line.contains("annotate acts as redrive"));
        assert_eq!(said.count(), times, "{name} {dead_letter:?}: {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_may_not_ask_about_its_dead_letter_queue_starts() {
    let world = World::new();
    let calls = world.sqs.call_count("GetQueueAttributes");
    world.sqs.set_faults(move |call| match call.operation.as_str() {
        "GetQueueAttributes" if call.of_operation > calls + 1 => Fault::refuse(403, "AccessDenied"),
        _ => Fault::None,
    });
    start(&world, Script::new(|_| Act::Done), WorkerSettings::default()).await;
    assert_eq!(world.sqs.call_count("GetQueueAttributes"), calls + 2, "asked once");
}

#[tokio::test(start_paused = true)]
async fn the_embedded_queue_is_a_source_without_the_sdk_too() {
    let world = World::new();
    world.send_numbered(12).await;
    let script = Script::new(|_| Act::Done);
    let mut settings = world.settings.clone();
    settings.limits.concurrency = 3;
    let worker =
        Worker::start(script.clone(), world.sqs.clone(), &world.queue, settings, draining())
            .await
            .unwrap();
    assert_eq!(worker.run(pending()).await.completed, 12);
    assert_eq!(world.entries(DELETE), [3, 3, 3, 3], "as many as there are handlers");

    let (by_sdk, by_port) = (SqsQueue::new(&world.sqs.client()), world.sqs.clone());
    let (one, other) = (
        by_sdk.describe(&world.queue).await.unwrap(),
        by_port.describe(&world.queue).await.unwrap(),
    );
    assert_eq!(
        (one.arn, one.visibility, one.messages),
        (other.arn, other.visibility, other.messages)
    );
    let gone = "arn:aws:sqs:us-east-1:000000000000:gone".parse().unwrap();
    assert_eq!(by_port.describe(&gone).await.unwrap_err().kind, CallErrorKind::Refused);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_fails_the_first_call_of_each_message_is_not_starved_by_its_circuit() {
    let mut world = World::new();
    world.protect();
    world.settings.sampler = Sampler::seeded(5);
    world.send_numbered(40).await;
    let script = Script::new(|seen| {
        if seen.attempt == 1 { Act::Fail(Failure::temporary("503")) } else { Act::Done }
    });
    let begun = Instant::now();
    let progress = drain(&world, &script).await;
    assert_eq!((progress.completed, script.calls().len()), (40, 80));
    assert!(begun.elapsed() < secs(60), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn no_limit_is_too_long_for_either_host() {
    let limits = |timeout, reserve| {
        let mut limits = Limits::default();
        (limits.timeout, limits.reserve) = (timeout, reserve);
        limits
    };
    for limits in [
        limits(Duration::MAX, secs(5)),
        limits(secs(30), Duration::MAX),
        limits(Duration::MAX, Duration::MAX),
        limits(Duration::MAX / 10, Duration::MAX / 2),
        limits(secs(u64::MAX / 20), Duration::ZERO),
        limits(Duration::ZERO, Duration::ZERO),
        limits(secs(1), Duration::MAX),
    ] {
        let ends = !limits.timeout.is_zero();
        let mut world = World::new();
        world.settings.limits = limits.clone();
        world.send_numbered(20).await;
        // Fails once, so that there is a copy to settle.
        let script = Script::failing_first(20, Failure::temporary("later"));
        if ends {
            let mut settings = draining();
            settings.shutdown_timeout = Duration::MAX;
            let worker = start(&world, script.clone(), settings).await;
            let progress = timeout(secs(10_000), worker.run(pending()))
                .await
                .expect("the queue becomes empty");
            assert_eq!((progress.completed, progress.not_deleted), (20, 0), "{limits:?}");
        }
        world.send_numbered(20).await;
        let processor = world.processor(Script::always(Failure::temporary("no")));
        assert!(world.invoke(&processor).await.expect("a batch").answer.is_ok(), "{limits:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_does_not_receive_what_it_could_only_defer() {
    let (mut requests, mut copies) = (Vec::new(), Vec::new());
    for scopes in [1, 2] {
        let mut world = World::new();
        world.protect();
        world.settings.sampler = Sampler::seeded(5);
        world.send_numbered(200).await;
        let begun = Instant::now();
        let script = Script::new(move |seen| {
            let is_down = seen.at - begun < secs(300);
            if is_down { Act::Fail(Failure::temporary("503")) } else { Act::Done }
        });
        // Even and odd ones.
        let two = |message: &Message| {
            Scope::of([message.body().bytes().rev().nth(1).map_or(2, |digit| digit % 2)])
        };
        let script = if scopes == 1 { script } else { script.scoped(two) };
        let log = Log::default();
        let listening = log.listen();
        let mut settings = draining();
        settings.receivers = Some(2);
        let worker = start(&world, script.clone(), settings).await;
        let progress =
            timeout(secs(100_000), worker.run(pending())).await.expect("the queue becomes empty");
        drop(listening);
        assert_eq!((progress.completed, world.dead().len()), (200, 0), "{scopes}");
        copies.push(world.entries(SEND).iter().sum::<usize>());
        for line in ["receiving stopped", "receiving resumed"] {
            assert_eq!(log.text().matches(line).count(), usize::from(scopes == 1), "{line}");
        }
        requests.push(
            ["ReceiveMessage", SEND, DELETE]
                .map(|operation| world.calls(operation))
                .iter()
                .sum::<u64>(),
        );
    }
    // Each once, so that any of them may probe, and those that did.
    assert!(copies[0] < 300 && 5 * copies[0] < copies[1], "{copies:?}");
    assert!(2 * requests[0] < requests[1], "{requests:?}");
}

/// The service responds with 503 for the messages of one kind, which come in a row, and works for the
/// others.
#[tokio::test(start_paused = true)]
async fn a_row_of_messages_that_fail_for_their_own_reasons_does_not_keep_a_circuit_open() {
    const ROW: usize = 300;
    let mut world = World::new();
    world.protect();
    world.settings.sampler = Sampler::seeded(5);
    world.send_numbered(2 * ROW).await;
    let script =
        Script::new(
            |seen| {
                if seen.n() < ROW { Act::Fail(Failure::temporary("503")) } else { Act::Done }
            },
        );
    let worker = start(&world, script.clone(), WorkerSettings::default()).await;
    worker.run(sleep(secs(90))).await;
    let others = script.calls().iter().filter(|seen| seen.n() >= ROW).count();
    assert!(others > ROW * 9 / 10, "{others}");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_stops_receiving_says_why_and_for_how_long() {
    let pause = Failure::rate_limit("slowly").retry_after(secs(60));
    for (failure, expected) in [
        (pause, [r#"reason="paused""#, "delaySeconds=60"]),
        (Failure::temporary("503"), [r#"reason="circuit-open""#, "delaySeconds=1"]),
    ] {
        let mut world = World::new();
        world.protect();
        world.send_numbered(30).await;
        let worker = start(&world, Script::always(failure), WorkerSettings::default()).await;
        let log = Log::default();
        let listening = log.listen();
        worker.run(sleep(millis(500))).await;
        drop(listening);
        let text = log.text();
        let said: Vec<&str> =
            text.lines().filter(|line| line.contains("receiving stopped")).collect();
        let [said] = said[..] else { panic!("{said:?}") };
        assert!(expected.iter().all(|field| said.split(' ').any(|word| word == *field)), "{said}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_of_the_only_tenant_so_far_keeps_no_worker_from_the_messages_of_others() {
    let mut world = World::new();
    world.protect();
    world.send("paused").await;
    let script = Script::new(|seen| match &*seen.body {
        "paused" => Act::Fail(Failure::rate_limit("slowly").retry_after(secs(60))),
        _ => Act::Done,
    });
    let script = script.scoped(|message| Scope::of(&**message.body()));
    let worker = start(&world, script.clone(), WorkerSettings::default()).await;
    let sending = async {
        sleep(secs(5)).await;
        world.send("another").await;
    };
    tokio::join!(worker.run(sleep(secs(10))), sending);
    assert_eq!(
        (script.seen(), script.done()),
        (vec!["paused".into(), "another".into()], vec!["another".into()])
    );
}

#[tokio::test(start_paused = true)]
async fn a_worker_goes_on_when_one_probe_has_ended_however_long_another_one_takes() {
    let mut world = World::new();
    world.protect();
    world.settings.limits.timeout = secs(900);
    world.settings.sampler = Sampler::seeded(5);
    world.send_numbered(200).await;
    let begun = Instant::now();
    let after = AtomicUsize::new(0);
    let script = Script::new(move |seen| {
        if seen.at - begun < secs(3) {
            return Act::Fail(Failure::temporary("503"));
        }
        match after.fetch_add(1, Ordering::SeqCst) {
            0 => Act::work(secs(600)),
            _ => Act::Done,
        }
    });
    let mut settings = draining();
    settings.receivers = Some(2);
    let worker = start(&world, script.clone(), settings).await;
    let progress =
        timeout(secs(100_000), worker.run(pending())).await.expect("the queue becomes empty");
    assert_eq!((progress.completed, world.dead().len()), (200, 0));
    let late = script.calls().iter().filter(|call| call.at - begun > secs(300)).count();
    assert_eq!(late, 0, "the others did not wait for the slow one");
}

#[tokio::test(start_paused = true)]
async fn a_probe_does_not_wait_behind_messages_on_their_way_to_the_dead_letter_queue() {
    let mut world = World::new();
    world.protect();
    world.settings.dead_letter = Some(DeadLetterMode::Annotate);
    world.set_max_receive_count(5).await;
    let copies = 1_000;
    world.send_numbered(copies).await;
    let refusing = Script::always(Failure::non_retryable("no"));
    start(&world, refusing, WorkerSettings::default()).await.run(sleep(secs(5))).await;
    assert_eq!(world.entries(SEND).iter().sum::<usize>(), copies, "annotated, and still delayed");
    let begun = Instant::now();
    for n in copies..copies + 10 {
        world.send(&numbered(n)).await;
    }
    let script = Script::new(move |_| {
        if begun.elapsed() < secs(20) { Act::Fail(Failure::temporary("503")) } else { Act::Done }
    });
    let progress = drain(&world, &script).await;
    assert_eq!((progress.completed, world.dead().len()), (10, copies));
    let times = script.calls().into_iter().map(|call| call.at - begun);
    let first = times.filter(|time| *time > secs(20)).min().unwrap();
    assert!(first < secs(45), "{first:?}");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_receives_nothing_for_a_pause_ends_at_once_all_the_same() {
    let mut world = World::new();
    world.protect();
    world.send_numbered(30).await;
    let pause = Failure::rate_limit("slowly").retry_after(secs(60));
    let worker = start(&world, Script::always(pause.clone()), WorkerSettings::default()).await;
    let begun = Instant::now();
    worker.run(sleep(secs(5))).await;
    assert!(begun.elapsed() <= secs(6), "told to: {:?}", begun.elapsed());

    let mut world = World::new();
    world.protect();
    world.settings.policy.max_retries = 0;
    let dead_letters =
        "https://sqs.us-east-1.amazonaws.com/000000000000/orders-dlq".parse().unwrap();
    world.settings.dead_letter = Some(DeadLetterMode::Direct(dead_letters));
    world.send_numbered(1).await;
    let begun = Instant::now();
    drain(&world, &Script::always(pause)).await;
    assert!(begun.elapsed() <= secs(5), "drained: {:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_slow_call_leaves_no_handler_idle_and_equal_ones_make_whole_batches() {
    for (slow, most_secs, most_receives) in [(10, 11, 12), (1, 4, 100)] {
        let mut world = World::new();
        world.settings.limits.concurrency = 10;
        world.send_numbered(100).await;
        let script = Script::new(move |seen| {
            Act::work(if seen.n() % 10 < slow { millis(1_000) } else { millis(10) })
        });
        let begun = Instant::now();
        let progress = drain(&world, &script).await;
        assert_eq!(progress.completed, 100);
        let last = script.calls().into_iter().map(|call| call.at).max().unwrap() - begun;
        let receives = world.requests("ReceiveMessage").len();
        assert!(last < secs(most_secs) && receives <= most_receives, "{last:?} {receives}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_other_call_runs_beside_a_message_that_may_have_ended_the_process() {
    let mut world = World::new();
    world.settings.limits.concurrency = 30;
    world.send(&numbered(100)).await;
    let client = world.sqs.client();
    for _ in 0..2 {
        let receive = client.receive_message().queue_url(world.queue.url());
        receive.visibility_timeout(0).send().await.unwrap();
    }
    world.send_numbered(60).await;
    let script = Script::new(|_| Act::work(secs(1)));
    let progress = drain(&world, &script).await;
    assert_eq!(progress.completed, 61);
    let calls = script.calls();
    let suspect = calls.iter().find(|call| call.n() == 100).expect("it was called");
    let beside = calls.iter().filter(|call| {
        let between = call.at.max(suspect.at) - call.at.min(suspect.at);
        between < secs(1)
    });
    assert_eq!((suspect.receive_count, beside.count()), (3, 1));
}
