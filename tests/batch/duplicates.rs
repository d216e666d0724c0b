//! The same message twice in one batch, and records without an id.

use requeue::embedded::Fault;
use requeue::{DeadLetterMode, Failure, InvocationError, Settlement};
use serde_json::{Value, json};

use crate::world::{
    Act, DELETE, SEND, Script, VISIBILITY, World, joined, numbered, records, secs, state,
};

/// The message of the queue, received twice: the first receive's visibility has lapsed.
async fn received_twice(world: &World) -> (Value, Value) {
    let first = world.receive().await;
    tokio::time::sleep(VISIBILITY).await;
    (first, world.receive().await)
}

fn acts() -> [(&'static str, Act); 6] {
    [
        ("done", Act::Done),
        ("failure", Act::Fail(Failure::temporary("no"))),
        ("panic", Act::Panic),
        ("hang", Act::Hang),
        ("final", Act::Fail(Failure::non_retryable("never"))),
        ("postponed", Act::Fail(Failure::postpone(secs(60)))),
    ]
}

#[tokio::test(start_paused = true)]
async fn one_message_has_one_outcome_however_often_it_is_in_the_batch() {
    for (first, first_act) in acts() {
        for (second, second_act) in acts() {
            for newest_first in [false, true] {
                let pair = format!("{first}, {second}, newest first: {newest_first}");
                let world = World::new();
                let id = world.send("{}").await;
                let acts = [first_act.clone(), second_act.clone()];
                let calls = std::sync::atomic::AtomicUsize::new(0);
                let script = Script::new(move |_| {
                    let call = calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    acts[call].clone()
                });
                let processor = world.processor(script.clone());
                let (older, newer) = received_twice(&world).await;
                let event =
                    if newest_first { joined([&newer, &older]) } else { joined([&older, &newer]) };
                let invocation = world.deliver(&processor, &event).await;

                assert_eq!(script.calls().len(), 1, "{pair}");
                assert_eq!(
                    script.calls()[0].receive_count,
                    2,
                    "{pair}: as the latest receive says"
                );
                match first {
                    "done" => assert!(world.messages().is_empty(), "{pair}"),
                    "final" => {
                        assert_eq!(invocation.failed(), [id.as_str()], "{pair}");
                        assert_eq!(world.only_message().id, id, "{pair}");
                    }
                    _ => {
                        assert!(invocation.failed().is_empty(), "{pair}");
                        assert_eq!(world.calls(SEND), 1, "{pair}");
                        assert_eq!(
                            state(&world.only_message())["originalMessageId"],
                            id.as_str(),
                            "{pair}"
                        );
                    }
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_id_in_another_queue_is_another_message() {
    let world = World::new();
    world.send("{}").await;
    let script = Script::always(Failure::temporary("no"));
    let processor = world.processor(script.clone());
    let mut event = world.receive().await;
    let mut other = event["Records"][0].clone();
    other["eventSourceARN"] = json!("arn:aws:sqs:eu-west-1:123456789012:elsewhere");
    event["Records"].as_array_mut().unwrap().push(other);
    let _ = world.invoke_with(&processor, &event).await;
    assert_eq!(script.calls().len(), 2, "none is deleted without a call");
}

#[tokio::test(start_paused = true)]
async fn the_original_is_deleted_by_its_latest_receipt_handle() {
    for newest_first in [false, true] {
        let world = World::new();
        let id = world.send("{}").await;
        let processor = world.processor(Script::always(Failure::temporary("no")));
        let (older, newer) = received_twice(&world).await;
        let event = if newest_first { joined([&newer, &older]) } else { joined([&older, &newer]) };
        // Nothing is acknowledged, so the deletion is ours.
        let report = world.report(&processor, &event).await;
        assert_eq!(report.outcomes.len(), 1);
        assert_eq!(report.outcomes[0].settlement, Settlement::Moved);
        assert_ne!(world.only_message().id, id);
        assert_eq!(world.entries(DELETE)[..2], [1, 1], "the other handle is not forgotten");
    }
}

#[tokio::test(start_paused = true)]
async fn an_outcome_stands_where_its_message_stood_first() {
    let world = World::new();
    world.send(&numbered(0)).await;
    let (older, newer) = received_twice(&world).await;
    world.send(&numbered(1)).await;
    let other = world.receive().await;
    let processor = world.processor(Script::always(Failure::non_retryable("no")));
    let report = world.report(&processor, &joined([&older, &other, &newer])).await;
    let expected = [&older, &other].map(|event| records(event)[0]["messageId"].as_str());
    let ids: Vec<_> = report.outcomes.iter().map(|outcome| outcome.message_id.as_deref()).collect();
    assert_eq!(ids, expected);
}

/// The same event with this in the place of the id of one record.
fn with_id(mut event: Value, at: usize, id: Option<Value>) -> Value {
    let record = event["Records"][at].as_object_mut().unwrap();
    match id {
        Some(id) => record.insert("messageId".to_owned(), id),
        None => record.remove("messageId"),
    };
    event
}

#[tokio::test(start_paused = true)]
async fn a_record_without_an_id_is_sent_again_and_deleted_by_its_handle() {
    for id in [Some(json!(null)), Some(json!("")), Some(json!(7)), None] {
        let world = World::new();
        world.send_numbered(3).await;
        let script = Script::failing_first(1, Failure::temporary("no"));
        let processor = world.processor(script.clone());
        let event = with_id(world.receive().await, 1, id.clone());
        let invocation = world.deliver(&processor, &event).await;
        assert!(invocation.failed().is_empty(), "{id:?}");
        assert_eq!((world.entries(SEND), world.entries(DELETE)), (vec![3], vec![3]), "{id:?}");
        world.run(&processor).await;
        assert_eq!(script.calls().len(), 6, "{id:?}");
        let second = script.calls().into_iter().filter(|seen| seen.n() == 1).nth(1).unwrap();
        assert!(second.original_id.is_some_and(|id| !id.is_empty()), "from now on it has one");
    }
}

#[tokio::test(start_paused = true)]
async fn records_without_an_id_are_not_the_same_message() {
    let world = World::new();
    world.send_numbered(2).await;
    let script = Script::new(|_| Act::Done);
    let event = with_id(with_id(world.receive().await, 0, None), 1, None);
    let invocation = world.deliver(&world.processor(script.clone()), &event).await;
    assert!(invocation.failed().is_empty());
    assert_eq!(script.seen(), [numbered(0), numbered(1)]);
    assert_eq!(world.all_calls(), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn the_invocation_fails_when_a_record_without_an_id_must_stay() {
    let mut world = World::new();
    (world.batch_size, world.settings.limits.concurrency) = (15, 15);
    let ids = world.send_numbered(15).await;
    world.faults_of(SEND, |_| Fault::refuse(403, "AccessDenied"));
    let script = Script::new(|seen| match seen.n() {
        0 | 2 => Act::Fail(Failure::temporary("no")),
        1 => Act::Fail(Failure::non_retryable("never")),
        _ => Act::Done,
    });
    let processor = world.processor(script.clone());
    let event = with_id(world.receive().await, 0, None);
    let invocation = world.deliver(&processor, &event).await;
    assert_eq!(invocation.answer.unwrap_err(), InvocationError::Unreportable);
    assert_eq!(world.entries(DELETE), [2, 10], "the twelve that completed must not run again");
    let left: Vec<String> = world.messages().into_iter().map(|message| message.id).collect();
    assert_eq!(left, ids[..3]);

    world.faults(|_| Fault::None);
    world.run(&processor).await;
    assert!((3..15).all(|n| script.calls().iter().filter(|seen| seen.n() == n).count() == 1));
}

#[tokio::test(start_paused = true)]
async fn the_invocation_does_not_fail_when_only_the_delete_does() {
    let world = World::new();
    world.send_numbered(2).await;
    world.faults_of(DELETE, |_| Fault::refuse(500, "InternalFailure"));
    let event = with_id(world.receive().await, 0, None);
    let processor = world.processor(Script::always(Failure::temporary("no")));
    let invocation = world.deliver(&processor, &event).await;
    assert!(invocation.failed().is_empty(), "the mapping deletes what is not listed");
    assert_eq!(world.messages().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_record_without_an_id_that_failed_for_good_gets_one_and_then_reaches_the_dead_letter_queue()
 {
    let world = World::new();
    world.send("{}").await;
    let script = Script::always(Failure::non_retryable("never"));
    let processor = world.processor(script.clone());
    let event = with_id(world.receive().await, 0, None);
    let invocation = world.deliver(&processor, &event).await;
    assert!(invocation.failed().is_empty());
    assert_eq!(state(&world.only_message())["retryCount"], 0);
    world.run(&processor).await;
    assert_eq!(world.dead().len(), 1);
    assert_eq!(
        script.calls().len(),
        2,
        "its copy has another id, by which it is known from then on"
    );
}

#[tokio::test(start_paused = true)]
async fn a_message_that_was_dead_lettered_and_comes_without_its_id_gets_another_one() {
    let mut world = World::new();
    world.settings.policy.max_retries = 1;
    world.send("{}").await;
    let script = Script::always(Failure::temporary("no"));
    let processor = world.processor(script.clone());
    for dead_lettered in [0, 1] {
        assert_eq!(world.invoke(&processor).await.unwrap().failed().len(), dead_lettered);
        assert!(world.sleep_until_due().await);
    }
    let event = with_id(world.receive().await, 0, None);
    let invocation = world.deliver(&processor, &event).await;
    assert!(invocation.failed().is_empty());
    assert_eq!((world.all_calls(), script.calls().len()), ((2, 2, 0), 2));
    world.run(&processor).await;
    assert_eq!(world.dead().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_record_without_a_receipt_handle_is_left_to_the_mapping() {
    let world = World::new();
    let id = world.send("{}").await;
    let mut event = world.receive().await;
    event["Records"][0].as_object_mut().unwrap().remove("receiptHandle");
    let processor = world.processor(Script::always(Failure::temporary("no")));
    let invocation = world.deliver(&processor, &event).await;
    assert!(invocation.failed().is_empty());
    assert_eq!(world.all_calls(), (1, 0, 0));
    assert!(world.messages().iter().any(|message| message.id != id));
}

#[tokio::test(start_paused = true)]
async fn an_event_without_records_is_refused_and_an_empty_one_is_not() {
    let world = World::new();
    let processor = world.processor(Script::new(|_| Act::Done));
    for event in [json!({}), json!({ "Records": null }), json!({ "detail": 1 }), json!([])] {
        let answer = world.invoke_with(&processor, &event).await;
        let none = InvocationError::NoRecords { service: None };
        assert_eq!(answer.unwrap_err(), none, "{event}");
    }
    let answer = world.invoke_with(&processor, &json!({ "Records": [] })).await.unwrap();
    assert!(answer.batch_item_failures.is_empty());
}

/// SQS confirms a delete by the handle of the first receive, which deletes nothing.
#[tokio::test(start_paused = true)]
async fn an_original_that_was_received_again_while_its_copy_was_sent_is_not_handled_beside_it() {
    let direct = |world: &World| DeadLetterMode::Direct(world.dead_letters.url().parse().unwrap());
    for (what, failure, mode) in [
        ("retry", Failure::temporary("no"), None),
        ("deferral", Failure::postpone(secs(60)), None),
        ("annotated", Failure::non_retryable("never"), Some(false)),
        ("direct", Failure::non_retryable("never"), Some(true)),
    ] {
        let mut world = World::with_queue("orders", &[("VisibilityTimeout", "5")]);
        world.settings.dead_letter = Some(match mode {
            None => DeadLetterMode::Redrive,
            Some(false) => DeadLetterMode::Annotate,
            Some(true) => direct(&world),
        });
        let id = world.send(&numbered(0)).await;
        world.faults_of(SEND, |_| Fault::RespondAfter(secs(8)));
        let script = Script::always(failure);
        let processor = world.processor(script.clone());
        let event = world.receive().await;
        let again = async {
            tokio::time::sleep(secs(6)).await;
            // The copy may be visible too.
            let mut event = world.receive().await;
            let records = event["Records"].as_array_mut().expect("an event");
            records.retain(|record| record["messageId"] == id.as_str());
            assert_eq!(records.len(), 1, "{what}");
            event
        };
        let (first, again) = tokio::join!(world.deliver(&processor, &event), again);
        assert!(first.failed().is_empty(), "{what}");
        let second = world.deliver(&processor, &again).await;
        assert!(second.failed().is_empty(), "{what}: it is deleted");
        assert_eq!((script.calls().len(), world.calls(SEND)), (1, 1), "{what}");
        let left: Vec<_> = world.messages().into_iter().filter(|one| one.id == id).collect();
        assert!(left.is_empty(), "{what}: {left:?}");
    }
}
