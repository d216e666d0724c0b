//! With a table and the mode `direct`, the attempts at messages that wait in their place in the
//! queue are counted, and other receives use no retry. While the table is in trouble, receives
//! count.

use std::sync::Arc;

use requeue::embedded::InvocationResult;
use requeue::table::Table;
use requeue::{
    DeadLetterMode, DeadLetterReason, Deferral, Disposition, Failure, Mode, Report, Settlement,
    SharedTable, Strategy,
};
use tokio::time::{Instant, timeout};

use crate::idempotency::{Case, Told};
use crate::protection::deferrals;
use crate::world::{Act, LIMIT, Log, Script, VISIBILITY, World, millis, object_of, secs, state};

/// As the settings of a function with exact attempts: SQS moves no message by its receives.
async fn with(name: &str, table: Told) -> (World, Arc<Told>) {
    let mut world = World::with_queue(name, &[]);
    world.set_max_receive_count(1_000).await;
    let table = Arc::new(table);
    let shared = Arc::clone(&table) as Arc<dyn Table>;
    world.settings.shared_table = Some(SharedTable::by(shared));
    world.settings.dead_letter =
        Some(DeadLetterMode::Direct(world.dead_letters.url().parse().unwrap()));
    world.settings.policy.max_retries = 3;
    (world, table)
}

async fn fifo() -> (World, Arc<Told>) {
    with("orders.fifo", Told::default()).await
}

async fn send(world: &World, body: &str) -> String {
    world
        .send_as(body, |message| message.message_group_id("a").message_deduplication_id(body))
        .await
}

async fn next(world: &World, script: &Script) -> Report {
    world.sleep_until_due().await;
    let event = world.receive().await;
    world.report(&world.processor(script.clone()), &event).await
}

/// SQS delivers everything, and no function gets it.
async fn receive_uncalled(world: &World, times: usize) {
    let mapping = world.mapping();
    for _ in 0..times {
        world.sleep_until_due().await;
        let batch = mapping.poll(millis(0)).await.unwrap().unwrap();
        mapping.acknowledge(&batch, &InvocationResult::FunctionError).unwrap();
    }
}

fn down() -> Script {
    Script::always(Failure::temporary("down"))
}

fn attempts(script: &Script, body: &str) -> Vec<(u32, u32, bool)> {
    let calls = script.calls().into_iter().filter(|seen| seen.body == body);
    calls.map(|seen| (seen.receive_count, seen.attempt, seen.is_last)).collect()
}

fn reason_of(world: &World, at: usize) -> String {
    state(&world.dead()[at])["retryState"]["deadLetter"]["reason"].as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn the_first_receive_costs_no_request_and_each_later_attempt_one() {
    for (fails, requests) in [(0, 0), (1, 1), (2, 2)] {
        let (world, table) = fifo().await;
        send(&world, "a1").await;
        let script = Script::failing_first(fails, Failure::temporary("down"));
        world.run(&world.processor(script.clone())).await;
        assert_eq!((script.done().len(), table.requests()), (1, requests), "{fails}");
    }
}

#[tokio::test(start_paused = true)]
async fn failures_of_its_predecessor_use_no_retry() {
    let (world, table) = fifo().await;
    for body in ["a1", "a2"] {
        send(&world, body).await;
    }
    let script = Script::new(|seen| match (seen.body.as_str(), seen.receive_count) {
        ("a1", 4) => Act::Done,
        _ => Act::Fail(Failure::temporary("down")),
    });
    world.run(&world.processor(script.clone())).await;
    // The first receive counts as an attempt, and the three behind its predecessor as none.
    assert_eq!(attempts(&script, "a2"), [(4, 2, false), (5, 3, false), (6, 4, true)]);
    assert_eq!(table.requests(), 3 + 3);
    assert_eq!((world.dead().len(), reason_of(&world, 0).as_str()), (1, "retries-exhausted"));
}

#[tokio::test(start_paused = true)]
async fn receives_without_a_call_use_no_retry() {
    for name in ["orders.fifo", "orders"] {
        let (mut world, _) = with(name, Told::default()).await;
        world.settings.strategy = Strategy::Visibility;
        if name == "orders" {
            world.send("a1").await;
        } else {
            send(&world, "a1").await;
        }
        receive_uncalled(&world, 9).await;
        let script = down();
        world.run(&world.processor(script.clone())).await;
        assert_eq!(
            attempts(&script, "a1"),
            [(10, 2, false), (11, 3, false), (12, 4, true)],
            "{name}"
        );
        assert_eq!((world.messages().len(), world.dead().len()), (0, 1), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_counts_though_its_environment_dies_and_the_last_one_is_no_call_more() {
    let (world, _) = fifo().await;
    for body in ["a1", "a2"] {
        send(&world, body).await;
    }
    let script = Script::new(|seen| if seen.body == "a1" { Act::Hang } else { Act::Done });
    for _ in 0..4 {
        world.sleep_until_due().await;
        let event = world.receive().await;
        let processor = world.processor(script.clone());
        assert!(timeout(secs(1), world.report(&processor, &event)).await.is_err());
    }
    assert_eq!(
        attempts(&script, "a1"),
        [(1, 1, false), (2, 2, false), (3, 3, false), (4, 4, true)]
    );
    let report = next(&world, &script).await;
    let [dead_lettered, after] = &report.outcomes[..] else { panic!("{report:?}") };
    let why = DeadLetterReason::RetriesExhausted;
    assert_eq!(dead_lettered.disposition, Disposition::DeadLetter(why));
    assert_eq!((dead_lettered.elapsed, dead_lettered.retry_count), (None, 4));
    assert!(matches!(dead_lettered.settlement, Settlement::Moved), "{dead_lettered:?}");
    assert_eq!(after.disposition, Disposition::Complete, "its group goes on");
    assert_eq!(reason_of(&world, 0), "retries-exhausted");
    assert_eq!(attempts(&script, "a1").len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_certainly_had_no_attempt_is_called() {
    for max_retries in [0, 1] {
        let (mut world, _) = fifo().await;
        world.settings.policy.max_retries = max_retries;
        send(&world, "a1").await;
        receive_uncalled(&world, 5).await;
        let script = down();
        world.run(&world.processor(script.clone())).await;
        assert_eq!(attempts(&script, "a1"), [(6, 2, true)], "{max_retries}");
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_store_is_in_trouble_receives_count() {
    for case in [Case::Throttled, Case::Lost, Case::Unsaid, Case::Denied] {
        let (world, table) = fifo().await;
        let log = Log::default();
        let _listening = log.listen();
        send(&world, "a1").await;
        receive_uncalled(&world, 1).await;
        table.next(&[case; 3]);
        let (script, began) = (down(), Instant::now());
        next(&world, &script).await;
        assert!(script.calls()[0].at - began <= VISIBILITY + secs(1), "{case:?}");
        next(&world, &script).await;
        assert_eq!(attempts(&script, "a1"), [(2, 2, false), (3, 3, false)], "{case:?}");
        // The table answers again, and the receives that it missed use no retry.
        receive_uncalled(&world, 3).await;
        table.next(&[]);
        next(&world, &script).await;
        let known = if matches!(case, Case::Unsaid) { 4 } else { 2 };
        assert_eq!(attempts(&script, "a1")[2], (7, known, known == 4), "{case:?}");
        let told = log.text().matches("did not count an attempt").count();
        assert_eq!(told, 2, "{case:?}: each processor says so once a minute");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_in_trouble_costs_no_message() {
    let (world, table) = fifo().await;
    for body in ["a1", "a2"] {
        send(&world, body).await;
    }
    table.next(&[Case::Lost; 100]);
    let script = down();
    world.run(&world.processor(script.clone())).await;
    assert_eq!((world.messages().len(), world.dead().len()), (0, 2));
    assert_eq!(attempts(&script, "a1").len(), 4);
    assert_eq!(attempts(&script, "a2"), [(4, 4, true)], "as without a table");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_lost_its_items_lets_no_message_go() {
    let (world, table) = fifo().await;
    send(&world, "a1").await;
    let script = down();
    for _ in 0..3 {
        next(&world, &script).await;
    }
    table.items.clear();
    world.run(&world.processor(script.clone())).await;
    assert_eq!(attempts(&script, "a1").last(), Some(&(6, 4, true)));
    assert_eq!((world.messages().len(), world.dead().len()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn messages_that_sqs_moves_by_their_receives_are_not_counted() {
    type Change = fn(&mut World);
    let changes: [(&str, Change); 4] = [
        ("redrive", |world| world.settings.dead_letter = Some(DeadLetterMode::Redrive)),
        ("annotate", |world| world.settings.dead_letter = Some(DeadLetterMode::Annotate)),
        ("report", |world| world.settings.mode = Mode::Report),
        ("no table", |world| world.settings.shared_table = None),
    ];
    for (what, change) in changes {
        let (mut world, table) = fifo().await;
        change(&mut world);
        send(&world, "a1").await;
        receive_uncalled(&world, 2).await;
        let script = down();
        next(&world, &script).await;
        assert_eq!((attempts(&script, "a1")[0], table.requests()), ((3, 3, false), 0), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_too_large_for_its_dead_letter_is_not_counted() {
    let (world, table) = fifo().await;
    let body = object_of(LIMIT - 9);
    world
        .send_as(&body, |message| message.message_group_id("a").message_deduplication_id("1"))
        .await;
    receive_uncalled(&world, 2).await;
    let script = down();
    next(&world, &script).await;
    assert_eq!((attempts(&script, &body)[0], table.requests()), ((3, 3, false), 0));
}

#[tokio::test(start_paused = true)]
async fn a_copy_in_a_standard_queue_is_not_counted() {
    let (world, table) = with("orders", Told::default()).await;
    world.send("a1").await;
    receive_uncalled(&world, 2).await;
    let script = Script::failing_first(2, Failure::temporary("down"));
    world.run(&world.processor(script.clone())).await;
    assert_eq!((script.done().len(), table.requests()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn the_handler_has_its_time_after_the_answer() {
    let (mut world, _) =
        with("orders.fifo", Told { latency: millis(240), ..Told::default() }).await;
    world.settings.limits.timeout = secs(5);
    send(&world, "a1").await;
    receive_uncalled(&world, 1).await;
    let script = Script::new(|_| Act::work(millis(4_990)));
    next(&world, &script).await;
    assert_eq!(script.done().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn no_answer_after_the_reserve_began_is_waited_for() {
    let (mut world, table) = fifo().await;
    world.function_timeout = secs(20);
    for body in ["a1", "a2"] {
        send(&world, body).await;
    }
    receive_uncalled(&world, 1).await;
    // Its answer may take a second, and the reserve begins after 15 s.
    table.next(&[Case::Answers, Case::Lost]);
    let script = Script::new(|_| Act::work(millis(14_900)));
    let began = Instant::now() + VISIBILITY;
    let report = next(&world, &script).await;
    assert_eq!(script.seen(), ["a1"]);
    let waits = deferrals(&report);
    assert!(matches!(waits[..], [None, Some((Deferral::NoTimeLeft, _))]), "{waits:?}");
    assert!(began.elapsed() <= secs(16), "{:?}", began.elapsed());
    assert_eq!(table.requests(), 1, "an attempt without a call is not counted");
}
