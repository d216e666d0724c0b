//! The mode `report`: Requeue classifies and logs failures. Everything else is as without Requeue.

use requeue::FailureClass::{NonRetryable, Quota, RateLimit, Temporary};
use requeue::{DeadLetterMode, Disposition, Failure, Mode, ReleaseReason, Strategy};

use serde_json::Value;

use crate::world::{Act, Log, SEND, Script, VISIBILITY, World, numbered, secs};

fn world(name: &str) -> World {
    let mut world = World::with_queue(name, &[]);
    world.settings.mode = Mode::Report;
    world.protect();
    world
}

#[tokio::test(start_paused = true)]
async fn every_failure_is_returned_to_sqs_and_nothing_is_sent() {
    for name in ["orders", "orders.fifo"] {
        for strategy in [Strategy::Copy, Strategy::Visibility] {
            for dead_letter in [DeadLetterMode::Redrive, DeadLetterMode::Annotate] {
                let mut world = world(name);
                world.settings.strategy = strategy;
                world.settings.dead_letter = Some(dead_letter);
                world.set_max_receive_count(3).await;
                let mut ids = Vec::new();
                for n in 0..6 {
                    let body = numbered(n);
                    let id = world.send_as(&body, |message| match name {
                        "orders" => message,
                        _ => message
                            .message_group_id(n.to_string())
                            .message_deduplication_id(n.to_string()),
                    });
                    ids.push(id.await);
                }
                let script = Script::new(|seen| match seen.n() {
                    0 => Act::Done,
                    1 => Act::Fail(Failure::rate_limit("slowly").retry_after(secs(30))),
                    2 => Act::Fail(Failure::temporary("no")),
                    3 => Act::Fail(Failure::non_retryable("never")),
                    4 => Act::Panic,
                    _ => Act::Fail(Failure::quota("later")),
                });
                let processor = world.processor(script.clone());
                let event = world.receive().await;
                let report = world.report(&processor, &event).await;
                let classes: Vec<_> = report.outcomes.iter().map(|outcome| outcome.class).collect();
                let expected = [RateLimit, Temporary, NonRetryable, Temporary, Quota].map(Some);
                assert_eq!(classes, [&[None], &expected[..]].concat(), "sorted all the same");
                assert_eq!(
                    report.failed_ids().unwrap(),
                    ids[1..].iter().map(String::as_str).collect::<Vec<_>>()
                );
                assert_eq!(
                    report.outcomes[1].disposition,
                    Disposition::Release(ReleaseReason::Reported)
                );
                tokio::time::sleep(VISIBILITY).await;
                world.run(&processor).await;
                assert_eq!(world.all_calls(), (0, 0, 0), "{name}");
                assert_eq!(world.dead().len(), 5);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_not_due_waits_in_its_place_and_loses_nothing() {
    let mut world = World::new();
    world.send("{}").await;
    let script = Script::new(|seen| match seen.attempt {
        1 => Act::Fail(Failure::quota("tomorrow").retry_after(secs(5_000))),
        _ => Act::Done,
    });
    world.invoke(&world.processor(script.clone())).await.unwrap();
    world.settings.mode = Mode::Report;
    let began = script.calls()[0].at;
    let sent = world.all_calls().0;
    world.run(&world.processor(script.clone())).await;
    let calls = script.calls();
    assert_eq!(calls.len(), 2);
    assert!(calls[1].at - began >= secs(4_999), "not before its time");
    assert_eq!(world.all_calls().0, sent, "nothing is sent");
    assert!(world.dead().is_empty() && world.messages().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_open_circuit_is_not_said_to_defer_anything() {
    let world = world("orders");
    world.send_numbered(10).await;
    let script = Script::always(Failure::temporary("no"));
    let processor = world.processor(script.clone());
    let event = world.receive().await;
    let log = Log::default();
    let listening = log.listen();
    world.report(&processor, &event).await;
    drop(listening);
    assert_eq!(script.calls().len(), 10);
    let text = log.text();
    assert!(text.contains("circuit would open") && !text.contains("deferring"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_even_of_a_record_without_an_id() {
    for failure in [
        Failure::postpone(secs(60)),
        Failure::temporary("no"),
        Failure::non_retryable("never"),
        Failure::rate_limit("slowly").retry_after(secs(2_000)),
    ] {
        let world = world("orders");
        world.send("{}").await;
        let mut event = world.receive().await;
        event["Records"][0]["messageId"] = Value::Null;
        let script = Script::always(failure.clone());
        let report = world.report(&world.processor(script.clone()), &event).await;
        assert!(
            report.failed_ids().is_none(),
            "{failure:?}: SQS keeps it, which only a failed invocation can say"
        );
        assert_eq!((script.calls().len(), world.calls(SEND)), (1, 0), "{failure:?}");
    }
}
