//! FIFO queues: Requeue sends nothing again, and order holds within a group.

use requeue::Failure;
use requeue::embedded::Fault;

use crate::world::{Act, MAX_RECEIVE_COUNT, Script, Seen, World, numbered, secs};

fn world() -> World {
    World::with_queue("orders.fifo", &[("ContentBasedDeduplication", "true")])
}

async fn send(world: &World, group: &str, body: &str) -> String {
    world.send_as(body, |message| message.message_group_id(group)).await
}

fn of_group(script: &Script, group: char) -> Vec<String> {
    let seen = script.seen();
    seen.into_iter().filter(|body| body.starts_with(group)).collect()
}

#[tokio::test(start_paused = true)]
async fn after_a_failure_the_rest_of_the_group_stays_and_other_groups_go_on() {
    let world = world();
    let mut ids = Vec::new();
    for body in ["a1", "b1", "a2", "b2", "a3", "b3"] {
        ids.push(send(&world, &body[..1], body).await);
    }
    let script = Script::new(|seen| match (seen.body.as_str(), seen.receive_count) {
        ("a2", 1) => Act::Fail(Failure::rate_limit("later").retry_after(secs(40))),
        _ => Act::Done,
    });
    let processor = world.processor(script.clone());
    let invocation = world.invoke(&processor).await.unwrap();
    assert_eq!(invocation.failed(), [&ids[2], &ids[4]]);
    assert_eq!(of_group(&script, 'a'), ["a1", "a2"], "a3 must not overtake a2");
    assert_eq!(of_group(&script, 'b'), ["b1", "b2", "b3"]);

    world.run(&processor).await;
    assert_eq!(of_group(&script, 'a'), ["a1", "a2", "a2", "a3"]);
    assert_eq!(of_group(&script, 'b'), ["b1", "b2", "b3"]);
    assert_eq!(
        (world.all_calls().0, world.all_calls().1),
        (0, 0),
        "neither sent nor deleted by us"
    );
    assert!(world.dead().is_empty());
}

#[tokio::test(start_paused = true)]
async fn no_kind_of_failure_sends_a_copy() {
    for act in [
        Act::Fail(Failure::temporary("no")),
        Act::Fail(Failure::rate_limit("no").retry_after(secs(5_000))),
        Act::Fail(Failure::quota("no")),
        Act::Fail(Failure::non_retryable("no")),
        Act::Fail(Failure::postpone(secs(5))),
        Act::Panic,
        Act::Hang,
    ] {
        let world = world();
        let id = send(&world, "a", "a1").await;
        let processor = world.processor(Script::new(move |_| act.clone()));
        let invocation = world.invoke(&processor).await.unwrap();
        assert_eq!(invocation.failed(), [id.as_str()]);
        let message = world.only_message();
        assert_eq!((message.id, message.body.as_str()), (id, "a1"));
        assert_eq!((world.all_calls().0, world.all_calls().1), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn records_of_one_group_run_one_at_a_time_and_groups_side_by_side() {
    let world = world();
    for body in ["a1", "b1", "a2", "b2", "a3"] {
        send(&world, &body[..1], body).await;
    }
    let script = Script::new(|_| Act::work(secs(1)));
    let invocation = world.invoke(&world.processor(script.clone())).await.unwrap();
    assert_eq!(invocation.elapsed, secs(3));
    assert_eq!(of_group(&script, 'a'), ["a1", "a2", "a3"]);
    let began = script.calls()[0].at;
    let at = |body: &str| {
        let seen = script.calls().into_iter().find(|seen| seen.body == body).unwrap();
        seen.at - began
    };
    assert_eq!((at("b1"), at("a2"), at("b2"), at("a3")), (secs(0), secs(1), secs(1), secs(2)));
}

#[tokio::test(start_paused = true)]
async fn groups_of_two_queues_are_two_groups_though_they_bear_one_name() {
    let world = world();
    send(&world, "a", "a1").await;
    let here = world.receive().await;
    let other = world.sqs.create_queue("invoices.fifo", []).unwrap();
    let mut there = here.clone();
    there["Records"][0]["messageId"] = "other".into();
    there["Records"][0]["eventSourceARN"] = other.to_string().into();
    there["Records"][0]["body"] = "i1".into();
    let script = Script::new(|seen| match seen.body.as_str() {
        "a1" => Act::Fail(Failure::temporary("no")),
        _ => Act::Done,
    });
    let processor = world.processor(script.clone());
    let answer =
        world.invoke_with(&processor, &crate::world::joined([&here, &there])).await.unwrap();
    assert_eq!(answer.batch_item_failures.len(), 1);
    assert_eq!(script.calls().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_was_never_started_stays_in_its_place() {
    let mut world = world();
    world.function_timeout = secs(20);
    for body in ["a1", "a2"] {
        send(&world, "a", body).await;
    }
    let script = Script::new(|seen| match seen.receive_count {
        1 => Act::Hang,
        _ => Act::Done,
    });
    let processor = world.processor(script.clone());
    let invocation = world.invoke(&processor).await.unwrap();
    assert_eq!(invocation.failed().len(), 2);
    world.faults(|_| Fault::None);
    world.run(&processor).await;
    assert_eq!(script.seen()[..2], ["a1", "a1"]);
    assert_eq!(script.seen().last().unwrap(), "a2");
}

#[tokio::test(start_paused = true)]
async fn attempts_are_counted_by_receives_and_end_in_the_dead_letter_queue() {
    let world = world();
    let id = send(&world, "a", "a1").await;
    let script = Script::always(Failure::temporary("no"));
    world.run(&world.processor(script.clone())).await;
    let attempts: Vec<u32> = script.calls().iter().map(|seen| seen.attempt).collect();
    assert_eq!(attempts, (1..=MAX_RECEIVE_COUNT).collect::<Vec<_>>());
    assert!(script.calls().iter().all(|seen| seen.original_id.as_deref() == Some(&id)));
    assert_eq!(world.dead().len(), 1);
    assert_eq!(world.dead()[0].body, "a1");
}

#[tokio::test(start_paused = true)]
async fn the_head_waits_for_its_delay_and_the_rest_of_its_group_for_the_head() {
    let world = world();
    for body in ["a1", "a2", "a3"] {
        send(&world, "a", body).await;
    }
    let script = Script::new(|seen| match (seen.body.as_str(), seen.receive_count) {
        ("a1", 1) => Act::Fail(Failure::rate_limit("later").retry_after(secs(40))),
        _ => Act::Done,
    });
    let processor = world.processor(script.clone());
    world.invoke(&processor).await.unwrap();
    let waits: Vec<_> = world.messages().iter().map(|message| world.wait(message)).collect();
    assert_eq!(waits, [secs(40), secs(0), secs(0)]);
    world.run(&processor).await;
    assert_eq!(script.seen(), ["a1", "a1", "a2", "a3"]);
    let calls = script.calls();
    assert_eq!(calls[1].at - calls[0].at, secs(40));
}

#[tokio::test(start_paused = true)]
async fn retries_are_bounded_though_no_copy_counts_them() {
    let mut world = world();
    world.settings.policy.max_retries = 2;
    send(&world, "a", "a1").await;
    let script = Script::always(Failure::temporary("no"));
    world.run(&world.processor(script.clone())).await;
    assert_eq!((script.calls().len(), world.dead().len()), (3, 1));
}

#[tokio::test(start_paused = true)]
async fn a_group_flows_past_a_message_that_was_dead_lettered() {
    let mut world = world();
    world.set_max_receive_count(100).await;
    world.settings.policy.max_retries = 2;
    for n in 0..40 {
        send(&world, "a", &numbered(n)).await;
    }
    let script =
        Script::new(
            |seen| if seen.n() == 0 { Act::Fail(Failure::temporary("no")) } else { Act::Done },
        );
    let begun = tokio::time::Instant::now();
    world.run(&world.processor(script.clone())).await;
    let order: Vec<usize> = script.calls().iter().map(Seen::n).collect();
    assert_eq!(order, [0, 0].into_iter().chain(0..40).collect::<Vec<_>>());
    assert!(script.calls()[41].at - begun < secs(60), "not one batch for each visibility timeout");
    assert_eq!(world.dead().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn without_a_redrive_policy_what_was_dead_lettered_does_not_keep_the_function_busy() {
    let mut world = world();
    world.settings.policy.max_retries = 1;
    world.queue =
        world.sqs.create_queue("lonely.fifo", [("ContentBasedDeduplication", "true")]).unwrap();
    send(&world, "a", "a1").await;
    let script = Script::always(Failure::temporary("no"));
    let processor = world.processor(script.clone());
    let mut invocations = 0;
    let begun = tokio::time::Instant::now();
    while begun.elapsed() < secs(3_600) && world.sleep_until_due().await {
        invocations += u32::from(world.invoke(&processor).await.is_some());
    }
    assert_eq!(script.calls().len(), 2);
    // 22 receives, and from then on one for each visibility timeout of 30 s.
    assert!(invocations <= 22 + 121, "{invocations} invocations in an hour");
}

#[tokio::test(start_paused = true)]
async fn a_notice_that_somebody_forged_does_not_hold_a_group() {
    let world = world();
    let state = r#""retryTimestamp":"2100-01-01T00:00:00.000Z","retryState":{"v":1,"notBefore":4102444800000}"#;
    send(&world, "a", &format!(r#"{{"retryCount":0,"originalMessageId":"x",{state}}}"#)).await;
    let script = Script::new(|_| Act::Done);
    world.invoke(&world.processor(script.clone())).await.unwrap();
    assert_eq!(script.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn retries_that_a_producer_claims_keep_nobody_from_a_call() {
    // As a producer writes it, and as a copy that was moved here from another queue has it.
    let ours = r#","originalMessageId":"x","retryTimestamp":"2100-01-01T00:00:00.000Z","retryState":{"v":1}"#;
    for (claimed, ours) in [(0, ""), (1, ""), (2, ""), (3, ""), (4, ""), (1, ours), (3, ours)] {
        let mut world = world();
        world.settings.policy.max_retries = 3;
        world.set_max_receive_count(10).await;
        send(&world, "a", r#"{"n":0}"#).await;
        send(&world, "a", &format!(r#"{{"n":1,"retryCount":{claimed}{ours}}}"#)).await;
        let script = Script::new(|seen| match (seen.n(), seen.receive_count) {
            (0, 1..=3) => Act::Fail(Failure::temporary("no")),
            _ => Act::Done,
        });
        world.run(&world.processor(script.clone())).await;
        let called: Vec<usize> = script.calls().iter().map(Seen::n).collect();
        assert_eq!(called, [0, 0, 0, 0, 1], "{claimed} retries claimed {ours}");
        assert!(world.dead().is_empty());
    }
}
