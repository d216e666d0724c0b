//! With `idempotency`, each event is handled once as far as the table can tell. The table never costs a
//! message: while it is in trouble, messages wait or are called.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join, pending};
use requeue::classify::Response;
use requeue::policy::{Idempotency, WhenUnavailable};
use requeue::table::{Key, MemoryTable, Table, TableError, TableResponse, Update};
use requeue::{
    BatchProcessor, Clock, DeadLetterMode, Deferral, Disposition, Failure, IdempotencyNotes, Mode,
    RecursiveLoop, Report, Sampler, SharedTable, Strategy,
};
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep, timeout};

use crate::protection::deferrals;
use crate::world::{Act, Log, SEND, Script, VISIBILITY, World, millis, numbered, secs};

/// A table that answers as it is told.
#[derive(Debug, Default)]
pub struct Told {
    pub items: MemoryTable,
    /// The fates of the next requests.
    pub next: Mutex<VecDeque<Case>>,
    pub requests: Mutex<Vec<Update>>,
    pub latency: Duration,
    /// The time that it tells.
    pub date: Option<SystemTime>,
}

#[derive(Clone, Copy, Debug)]
pub enum Case {
    Answers,
    Throttled,
    /// The request has no effect and no answer.
    Lost,
    /// The request has its effect, and no answer.
    Unsaid,
    /// The request has its effect at once, and its answer after so long.
    Late(Duration),
    Denied,
}

impl Told {
    pub fn next(&self, cases: &[Case]) {
        *self.next.lock().unwrap() = cases.iter().copied().collect();
    }

    pub fn requests(&self) -> usize {
        std::mem::take(&mut *self.requests.lock().unwrap()).len()
    }
}

impl Table for Told {
    fn update<'a>(
        &'a self,
        key: &'a Key,
        update: &'a Update,
    ) -> BoxFuture<'a, Result<TableResponse, TableError>> {
        self.requests.lock().unwrap().push(update.clone());
        let case = self.next.lock().unwrap().pop_front().unwrap_or(Case::Answers);
        async move {
            sleep(self.latency).await;
            match case {
                Case::Answers => self.items.update(key, update).await,
                Case::Throttled => Err(TableError::Throttled),
                Case::Denied => Err(TableError::Unavailable("Denied".into())),
                Case::Lost => pending().await,
                Case::Late(after) => {
                    let answer = self.items.update(key, update).await;
                    sleep(after).await;
                    answer
                }
                Case::Unsaid => {
                    let _ = self.items.update(key, update).await;
                    pending().await
                }
            }
        }
        .boxed()
    }

    fn read<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<TableResponse, TableError>> {
        async move {
            let answer = self.items.read(key).await?;
            Ok(TableResponse { date: self.date, ..answer })
        }
        .boxed()
    }
}

fn by(key: &str) -> Idempotency {
    let mut idempotency = Idempotency::default();
    idempotency.key = (!key.is_empty()).then(|| key.parse().unwrap());
    idempotency
}

fn world(idempotency: Idempotency) -> (World, Arc<Told>) {
    with(World::new(), idempotency, Told::default())
}

fn with(mut world: World, idempotency: Idempotency, table: Told) -> (World, Arc<Told>) {
    let table = Arc::new(table);
    let shared = Arc::clone(&table) as Arc<dyn Table>;
    world.settings.shared_table = Some(SharedTable::by(shared));
    world.settings.policy.idempotency = Some(idempotency);
    (world, table)
}

fn done() -> Script {
    Script::new(|_| Act::Done)
}

async fn next(world: &World, script: &Script) -> Report {
    let event = world.receive().await;
    world.report(&world.processor(script.clone()), &event).await
}

fn notes(report: &Report) -> Vec<IdempotencyNotes> {
    report.outcomes.iter().map(|outcome| outcome.idempotency).collect()
}

fn only_notes(report: &Report) -> IdempotencyNotes {
    let [notes] = <[IdempotencyNotes; 1]>::try_from(notes(report)).unwrap();
    notes
}

/// The messages that completed without a call.
fn already_completed(report: &Report) -> usize {
    let dropped = report.outcomes.iter().filter(|outcome| outcome.idempotency.is_already_done);
    dropped
        .inspect(|outcome| {
            assert_eq!(outcome.disposition, Disposition::Complete);
            assert_eq!((outcome.reason(), outcome.elapsed), (Some("already-completed"), None));
        })
        .count()
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_last_attempt_may_go_on_waits_for_its_dead_letter_queue_and_in_no_copy() {
    for failure in [Act::Hang, Act::Fail(Failure::temporary("no response").in_doubt())] {
        // The event stays taken for longer.
        let world = World::with_queue("orders", &[("VisibilityTimeout", "40")]);
        let (mut world, _) = with(world, by("/n"), Told::default());
        world.settings.policy.max_retries = 0;
        world.settings.dead_letter = Some(DeadLetterMode::Redrive);
        world.set_max_receive_count(3).await;
        world.send_numbered(1).await;
        let script = Script::new(move |_| failure.clone());
        // Each receive is in another environment.
        while world.dead().is_empty() {
            world.invoke(&world.processor(script.clone())).await;
            world.sleep_until_due().await;
            assert!(script.calls().len() <= 3, "it goes round");
        }
        assert_eq!(world.calls(SEND), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn two_environments_that_have_a_message_at_once_call_it_once() {
    for key in ["", "/n"] {
        let (world, _) = world(by(key));
        world.send_numbered(1).await;
        let script = Script::new(|_| Act::work(secs(2)));
        let (one, other) = (world.processor(script.clone()), world.processor(script.clone()));
        let event = world.receive().await;
        let later = async {
            sleep(secs(1)).await;
            world.report(&other, &event).await
        };
        let (first, second) = Box::pin(join(world.report(&one, &event), later)).await;
        assert_eq!(deferrals(&first), [None]);
        // The rest of the handler's 30 s, 2 s for the table, a minute for the service, and 5 s for
        // the clocks.
        assert_eq!(deferrals(&second), [Some((Deferral::InProgress, 96))], "{key}");
        assert_eq!(script.calls().len(), 1);
        // The copy of the second environment.
        world.sleep_until_due().await;
        assert_eq!(already_completed(&next(&world, &script).await), 1, "{key}");
        assert_eq!(script.calls().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn the_second_message_of_an_event_that_is_done_completes_without_a_call() {
    let (world, table) = world(by("/orderId"));
    let log = Log::default();
    let _listening = log.listen();
    let (script, bodies) = (done(), ["7", "7.0", "70e-1", r#""7""#, r#""\u0037""#, "8"]);
    for value in bodies {
        world.send(&format!(r#"{{"orderId":{value}}}"#)).await;
        let invocation = world.invoke(&world.processor(script.clone())).await.unwrap();
        assert!(invocation.failed().is_empty());
    }
    assert_eq!(script.calls().len(), 3, "7, \"7\" and 8");
    assert!(world.messages().is_empty());
    assert_eq!(table.requests(), 3 * 2 + 3);
    assert_eq!(log.text().matches("already-completed").count(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_event_is_forgotten_when_its_time_is_over() {
    let mut idempotency = by("/n");
    idempotency.keep = secs(3_600);
    let (world, _) = world(idempotency);
    let script = done();
    for (wait, calls) in [(0, 1), (3_599, 1), (2, 2)] {
        sleep(secs(wait)).await;
        world.send(&numbered(1)).await;
        world.invoke(&world.processor(script.clone())).await.unwrap();
        assert_eq!(script.calls().len(), calls, "after {wait} s");
    }
}

#[tokio::test(start_paused = true)]
async fn done_is_in_the_store_before_the_response() {
    let (world, table) =
        with(World::new(), by("/n"), Told { latency: millis(200), ..Told::default() });
    world.send_numbered(1).await;
    next(&world, &done()).await;
    let [_, done] = <[Update; 2]>::try_from(table.requests.lock().unwrap().clone()).unwrap();
    assert!(done.conditions().is_empty(), "whoever has the record");
    let mut item = requeue::table::Item::default();
    assert!(done.apply(&mut item));
    let until = item.get(requeue::table::Field::new("doneUntil"));
    let now = world.clock.now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let ended = now.checked_sub(millis(200)).unwrap();
    assert_eq!(until, u64::try_from((ended + secs(1_209_600)).as_millis()).unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_environment_died_is_called_again_when_its_record_is_over() {
    let (world, _) = world(by("/n"));
    world.send_numbered(1).await;
    let began = Instant::now();
    let script = Script::new(move |seen| if seen.at == began { Act::Hang } else { Act::Done });
    let died = timeout(secs(1), next(&world, &script)).await;
    sleep(millis(1)).await;
    assert!(died.is_err() && script.running() == 0);
    // A producer's second message about the same event comes too early.
    world.send_numbered(1).await;
    let report = next(&world, &script).await;
    assert_eq!(deferrals(&report), [Some((Deferral::InProgress, 96))]);
    sleep(VISIBILITY).await;
    let report = world.report(&world.processor(script.clone()), &world.receive().await).await;
    assert_eq!((script.calls().len(), script.done().len()), (2, 1), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn an_environment_whose_clock_is_wrong_keeps_to_the_leases_of_the_others() {
    for ahead in [-3_600_i64, 3_600] {
        let world = World::new();
        let date = Some(world.clock.now());
        let (mut world, table) = with(world, by("/n"), Told { date, ..Told::default() });
        let script = Script::new(|_| Act::work(secs(2)));
        let one = world.processor(script.clone());
        let by = secs(ahead.unsigned_abs());
        let wrong = if ahead < 0 { world.clock.now() - by } else { world.clock.now() + by };
        world.settings.clock = Some(Clock::starting_at(wrong));
        let other = world.processor(script.clone());
        for (first, second) in [(&one, &other), (&other, &one)] {
            world.send_numbered(1).await;
            let event = world.receive().await;
            table.items.clear();
            let both = join(world.report(first, &event), world.report(second, &event));
            let (_, second) = Box::pin(both).await;
            let waits = deferrals(&second);
            assert!(matches!(waits[..], [Some((Deferral::InProgress, 90..=105))]), "{waits:?}");
        }
        assert_eq!(script.calls().len(), 2, "{ahead}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_retried_without_waiting_for_the_record() {
    for failure in [
        Failure::temporary("down"),
        Failure::rate_limit("slowly").retry_after(secs(1)),
        Failure::postpone(secs(1)),
    ] {
        let (world, _) = world(by("/n"));
        world.send_numbered(1).await;
        let script = Script::failing_first(1, failure.clone());
        world.run(&world.processor(script.clone())).await;
        assert_eq!((script.calls().len(), world.entries(SEND)), (2, vec![1]), "{failure:?}");
    }
}

/// The recipe of `docs/concepts/idempotency.md`.
#[tokio::test(start_paused = true)]
async fn a_tombstone_completes_a_message_that_waits() {
    let (mut world, _) = world(by("/orderId"));
    world.settings.recursive_loop = RecursiveLoop::Allow;
    world.send(r#"{"orderId": "A-1001"}"#).await;
    let page = include_str!("../../docs/concepts/idempotency.md");
    let (_, section) = page.split_once("## Cancel a waiting message").unwrap();
    let (_, tombstone) = section.split_once("```json\n").unwrap();
    let (tombstone, _) = tombstone.split_once("```").unwrap();
    let script = Script::new(|seen| {
        if seen.body.contains("cancelled") {
            return Act::Done;
        }
        Act::Fail(Failure::rate_limit("closed").retry_after(secs(7_200)))
    });
    next(&world, &script).await;
    world.send(tombstone).await;
    world.run(&world.processor(script.clone())).await;
    let calls = script.calls();
    let bodies: Vec<bool> = calls.iter().map(|seen| seen.body.contains("cancelled")).collect();
    assert_eq!(bodies, [false, true]);
    assert!(world.messages().is_empty() && world.dead().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_event_that_was_dead_lettered_can_be_handled_again() {
    let (world, _) = world(by("/n"));
    world.send_numbered(1).await;
    let refusing = Script::always(Failure::non_retryable("never"));
    next(&world, &refusing).await;
    world.send_numbered(1).await;
    let script = done();
    next(&world, &script).await;
    assert_eq!(script.done().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_may_go_on_keeps_its_event_until_the_record_ends() {
    let timeout = std::io::Error::from(std::io::ErrorKind::TimedOut);
    let gateway = Response { status: 504, headers: &[], body: b"" };
    for (act, rest) in [
        // The handler's 5 s, 2 s for the table, a minute for the service, 5 s for the clocks.
        (Act::Fail(Failure::classified(&timeout)), 72),
        (Act::Fail(Failure::from_response(&gateway, SystemTime::UNIX_EPOCH)), 72),
        (Act::Fail(Failure::quota("it may still work").retry_after(secs(1)).in_doubt()), 72),
        (Act::after(secs(2), Act::Panic), 70),
        (Act::Hang, 67),
    ] {
        for strategy in [Strategy::Copy, Strategy::Visibility] {
            let (mut world, _) = world(by("/n"));
            world.settings.limits.timeout = secs(5);
            world.settings.strategy = strategy;
            world.send_numbered(1).await;
            let first = act.clone();
            let script =
                Script::new(move |seen| if seen.attempt == 1 { first.clone() } else { Act::Done });
            let report = next(&world, &script).await;
            let wait = report.outcomes[0].disposition.wait().unwrap().total();
            assert!(strategy == Strategy::Copy || wait == secs(rest), "{act:?}: {wait:?}");
            let ended = Instant::now();
            world.run(&world.processor(script.clone())).await;
            let [_, second] = &script.calls()[..] else { panic!("{act:?}: {:?}", script.calls()) };
            assert!(second.at >= ended + secs(rest), "{act:?}: {:?}", second.at - ended);
            // The wait used no retry.
            let receives = if strategy == Strategy::Copy { 1 } else { 2 };
            assert_eq!((second.attempt, second.receive_count), (2, receives), "{act:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_without_the_key_counts_by_its_own_id() {
    let deep = format!("{}1{}", "[".repeat(50_000), "]".repeat(50_000));
    let nested = format!(r#"{{"orderId":{deep}}}"#);
    for body in [
        "{}",
        r#"{"orderId":null}"#,
        r#"{"orderId":""}"#,
        r#"{"orderId":true}"#,
        r#"{"orderId":{"a":1}}"#,
        r#"{"orderId":[1]}"#,
        r#"{"orderId":1"#,
        "no JSON",
        &nested,
    ] {
        let (world, _) = world(by("/orderId"));
        let script = done();
        for _ in 0..2 {
            world.send(body).await;
            let event = world.receive().await;
            let processor = world.processor(script.clone());
            let called = only_notes(&world.report(&processor, &event).await);
            assert!(called.is_key_missing && !called.is_already_done, "{body}");
            // SQS delivers the same message again.
            let again = only_notes(&world.report(&processor, &event).await);
            assert!(again.is_already_done, "{body}");
        }
        assert_eq!(script.calls().len(), 2, "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn two_messages_of_one_event_in_a_batch_are_called_once() {
    let (world, _) = world(by("/n"));
    for _ in 0..2 {
        world.send(&numbered(1)).await;
    }
    let script = Script::new(|_| Act::work(secs(1)));
    world.run(&world.processor(script.clone())).await;
    assert_eq!(script.calls().len(), 1);
    assert_eq!(world.entries(SEND), [1], "one waited");
    assert!(world.dead().is_empty());
}

#[tokio::test(start_paused = true)]
async fn without_an_answer_a_message_is_called_or_waits_as_the_policy_says() {
    for case in [Case::Lost, Case::Unsaid, Case::Denied] {
        let (world, table) = world(by("/n"));
        table.next(&[case; 3]);
        world.send_numbered(1).await;
        let script = done();
        let report = next(&world, &script).await;
        assert_eq!(script.calls().len(), 1, "{case:?}");
        assert!(only_notes(&report).is_unconfirmed, "{case:?}");
        assert_eq!(report.outcomes[0].disposition, Disposition::Complete);

        let mut idempotency = by("/n");
        idempotency.when_unavailable = WhenUnavailable::Defer;
        let (world, table) = self::world(idempotency);
        table.next(&[case]);
        world.send_numbered(1).await;
        let script = done();
        let report = next(&world, &script).await;
        assert_eq!(deferrals(&report), [Some((Deferral::IdempotencyUnavailable, 0))], "{case:?}");
        assert!(!only_notes(&report).is_unconfirmed, "it was not called");
        assert_eq!(script.calls().len(), 0, "{case:?}");
        sleep(secs(60)).await;
        world.run(&world.processor(script.clone())).await;
        assert_eq!(script.calls().len(), 1, "{case:?}: the table answers again");
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_waits_for_the_store_no_more_often_than_it_may_be_deferred() {
    let mut idempotency = by("/n");
    idempotency.when_unavailable = WhenUnavailable::Defer;
    let (mut world, table) = world(idempotency);
    world.settings.policy.max_deferrals = 3;
    table.next(&[Case::Denied; 100]);
    world.send_numbered(1).await;
    let script = done();
    world.run(&world.processor(script.clone())).await;
    assert_eq!((script.calls().len(), world.entries(SEND).len()), (1, 3));
}

#[tokio::test(start_paused = true)]
async fn a_message_that_waits_in_its_place_keeps_a_receive_for_its_call() {
    for case in [Case::Throttled, Case::Denied] {
        let fifo = World::with_queue("orders.fifo", &[("ContentBasedDeduplication", "true")]);
        let mut idempotency = by("/n");
        idempotency.when_unavailable = WhenUnavailable::Defer;
        let (mut world, table) = with(fifo, idempotency, Told::default());
        world.settings.policy.max_retries = 2;
        table.next(&[case; 100]);
        world.send_as(&numbered(1), |message| message.message_group_id("one")).await;
        let script = done();
        world.run(&world.processor(script.clone())).await;
        assert_eq!((script.calls().len(), world.dead().len()), (1, 0), "{case:?}");
        assert_eq!(script.calls()[0].receive_count, 2, "{case:?}");
    }
}

#[test]
fn a_handler_that_was_never_called_has_not_run_out_of_time() {
    let threads = || Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (handlers, runtime) = (threads(), threads());
    runtime.block_on(async {
        let table = Told { latency: millis(30), ..Told::default() };
        let (mut world, _) = with(World::new(), by("/n"), table);
        world.settings.handlers = Some(handlers.handle().clone());
        world.settings.limits.timeout = millis(300);
        world.settings.limits.concurrency = 3;
        world.settings.policy.max_retries = 0;
        world.send_numbered(3).await;
        // The first handler blocks the only thread while the others wait for the table.
        let is_first = AtomicBool::new(true);
        let script = Script::new(move |_| {
            if is_first.swap(false, Ordering::SeqCst) {
                std::thread::sleep(millis(900));
            }
            Act::Done
        });
        let report = next(&world, &script).await;
        let dead_lettered = |disposition| matches!(disposition, Disposition::DeadLetter(_));
        assert!(
            report.outcomes.iter().all(|outcome| !dead_lettered(outcome.disposition)),
            "{:?}",
            report.outcomes
        );
    });
    handlers.shutdown_background();
    runtime.shutdown_background();
}

#[tokio::test(start_paused = true)]
async fn a_throttled_store_puts_messages_off_without_a_deferral() {
    let (mut world, table) = world(by("/n"));
    world.settings.policy.max_deferrals = 1;
    world.settings.sampler = Sampler::always(1.0);
    table.next(&[Case::Throttled; 3]);
    world.send_numbered(1).await;
    let script = done();
    let processor = world.processor(script.clone());
    for wait in [20, 40, 60] {
        let expected = Some((Deferral::TableThrottled, wait));
        let event = world.receive().await;
        assert_eq!(deferrals(&world.report(&processor, &event).await), [expected]);
        world.sleep_until_due().await;
    }
    next(&world, &script).await;
    assert_eq!(script.calls().len(), 1);
    assert_eq!(script.calls()[0].attempt, 1);
}

#[tokio::test(start_paused = true)]
async fn an_event_of_a_wiped_store_is_called_again() {
    let (world, table) = world(by("/n"));
    let script = done();
    for calls in [1, 2] {
        world.send(&numbered(1)).await;
        world.invoke(&world.processor(script.clone())).await.unwrap();
        assert_eq!(script.calls().len(), calls);
        table.items.clear();
    }
}

#[tokio::test(start_paused = true)]
async fn a_success_stays_one_if_the_store_dies_before_it_is_noted() {
    for case in [Case::Lost, Case::Denied, Case::Throttled] {
        let (world, table) = world(by("/n"));
        let log = Log::default();
        let _listening = log.listen();
        world.send_numbered(1).await;
        let script = done();
        table.next(&[Case::Answers, case, case]);
        let processor = world.processor(script.clone());
        let invocation = world.invoke(&processor).await.unwrap();
        assert!(invocation.failed().is_empty() && world.messages().is_empty(), "{case:?}");
        assert!(invocation.elapsed < secs(1), "{case:?}: {:?}", invocation.elapsed);
        assert_eq!(table.requests(), 3, "{case:?}: it asks twice");
        assert_eq!(log.text().matches("did not confirm").count(), 1, "{case:?}");

        // The second answer is enough.
        sleep(VISIBILITY).await;
        world.send(&numbered(2)).await;
        table.next(&[Case::Answers, case]);
        let report = world.report(&processor, &world.receive().await).await;
        assert!(!only_notes(&report).is_unconfirmed, "{case:?}");
        sleep(secs(2)).await;
        world.send(&numbered(2)).await;
        let report = world.report(&processor, &world.receive().await).await;
        assert_eq!(already_completed(&report), 1, "{case:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_ends_with_the_reserve_has_its_success_noted() {
    let (mut world, table) =
        with(World::new(), by("/n"), Told { latency: millis(200), ..Told::default() });
    world.function_timeout = secs(20);
    world.settings.limits.timeout = secs(60);
    world.send_numbered(1).await;
    let script = Script::new(|seen| Act::work(seen.time_left));
    let report = next(&world, &script).await;
    assert_eq!(only_notes(&report), IdempotencyNotes::default());
    assert_eq!((script.done().len(), table.requests()), (1, 2));
    world.send_numbered(1).await;
    assert_eq!(already_completed(&next(&world, &script).await), 1);
}

#[tokio::test(start_paused = true)]
async fn the_handler_has_its_whole_timeout_after_the_answer() {
    let (mut world, _) =
        with(World::new(), by("/n"), Told { latency: millis(240), ..Told::default() });
    world.settings.limits.timeout = millis(500);
    world.send_numbered(3).await;
    let script = Script::new(|_| Act::work(millis(490)));
    let report = next(&world, &script).await;
    assert_eq!(script.done().len(), 3);
    assert!(script.calls().iter().all(|seen| seen.time_left == millis(500)));
    let elapsed: Vec<_> = report.outcomes.iter().filter_map(|outcome| outcome.elapsed).collect();
    assert_eq!(elapsed, [millis(490); 3], "without the time of the table");
}

#[tokio::test(start_paused = true)]
async fn a_short_timeout_does_not_end_the_wait_for_a_new_connection() {
    let (mut world, table) = world(by("/n"));
    world.settings.limits.timeout = millis(500);
    let script = done();
    let processor = world.processor(script.clone());
    for (n, case) in [(1, Case::Answers), (2, Case::Lost)] {
        world.send(&numbered(n)).await;
        table.next(&[case]);
        let report = world.report(&processor, &world.receive().await).await;
        assert_eq!(only_notes(&report).is_unconfirmed, n == 2, "{n}");
        // The connection may be closed by now.
        sleep(secs(5)).await;
    }
    assert_eq!(script.done().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn messages_of_a_group_keep_their_order_and_those_of_one_event_are_called_once() {
    let fifo = World::with_queue("orders.fifo", &[("ContentBasedDeduplication", "false")]);
    let mut idempotency = by("/n");
    idempotency.keep = Duration::MAX;
    let (world, _) = with(fifo, idempotency, Told::default());
    for (position, n) in [1, 1, 2, 1].into_iter().enumerate() {
        let body = numbered(n);
        let sent = world.send_as(&body, |message| {
            message.message_group_id("one").message_deduplication_id(position.to_string())
        });
        sent.await;
    }
    let script = Script::new(|_| Act::work(secs(1)));
    let report = next(&world, &script).await;
    assert_eq!(script.seen(), [numbered(1), numbered(2)]);
    assert_eq!(already_completed(&report), 2);
}

#[tokio::test(start_paused = true)]
async fn queues_and_functions_have_events_of_their_own() {
    let table = Arc::new(Told::default());
    for (queue, namespace, calls) in
        [("orders", "", 1), ("refunds", "", 1), ("orders", "other", 1), ("orders", "", 0)]
    {
        let mut world = World::with_queue(queue, &[]);
        let mut shared_table = SharedTable::by(Arc::clone(&table) as Arc<dyn Table>);
        namespace.clone_into(&mut shared_table.namespace);
        world.settings.shared_table = Some(shared_table);
        world.settings.policy.idempotency = Some(by("/n"));
        world.send_numbered(1).await;
        let script = done();
        next(&world, &script).await;
        assert_eq!(script.calls().len(), calls, "{queue} {namespace}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_waits_in_its_place_waits_for_the_record_there() {
    let (mut world, _) = world(by("/n"));
    world.settings.strategy = Strategy::Visibility;
    for _ in 0..2 {
        world.send(&numbered(1)).await;
    }
    let script = Script::new(|_| Act::work(secs(1)));
    world.run(&world.processor(script.clone())).await;
    assert_eq!((script.calls().len(), world.calls(SEND), world.dead().len()), (1, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn in_the_mode_report_the_store_is_not_asked() {
    let (mut world, table) = world(by("/n"));
    world.settings.mode = Mode::Report;
    let script = done();
    for _ in 0..2 {
        world.send(&numbered(1)).await;
    }
    next(&world, &script).await;
    assert_eq!((script.calls().len(), table.requests()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_message_that_finds_no_slot_asks_nothing() {
    let (mut world, table) = world(by("/n"));
    let mut limit = requeue::policy::RateLimit::new(1, secs(60));
    limit.max_reservation = Duration::ZERO;
    world.settings.policy.limit = Some(limit);
    world.send_numbered(2).await;
    next(&world, &done()).await;
    // One for the limit; acquired and done for one message.
    assert_eq!(table.requests(), 3);
}

#[tokio::test]
async fn a_processor_without_a_store_refuses_the_policy() {
    let mut settings = requeue::Settings::default();
    settings.policy.idempotency = Some(Idempotency::default());
    let world = World::new();
    let queue = requeue::queue::SqsQueue::new(&world.sqs.client());
    let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        BatchProcessor::new(done(), queue, settings)
    }));
    let said = *made.unwrap_err().downcast::<String>().unwrap();
    assert_eq!(
        said,
        "the policy has `idempotency`, which needs a table: set Settings::shared_table, or remove `idempotency`"
    );
}

#[tokio::test(start_paused = true)]
async fn a_full_store_forgets_no_event_in_progress() {
    let (world, table) = world(by("/n"));
    world.send_numbered(1).await;
    let script = Script::new(|_| Act::work(secs(20)));
    let event = world.receive().await;
    let (one, other) = (world.processor(script.clone()), world.processor(script.clone()));
    let later = async {
        sleep(secs(1)).await;
        // Other events that are done, and expire later.
        let done = Update::new().set(requeue::table::Field::EXPIRES, u64::MAX);
        for number in 0..200_000 {
            table.items.update(&Key::of([number.to_string()]), &done).await.unwrap();
        }
        world.report(&other, &event).await
    };
    let (_, second) = Box::pin(join(world.report(&one, &event), later)).await;
    assert!(matches!(deferrals(&second)[..], [Some((Deferral::InProgress, _))]), "{second:?}");
    assert_eq!(script.calls().len(), 1, "two would have run at once");
}
