//! A copy that Requeue cannot send: the original waits in flight, and SQS keeps it.

use std::time::Duration;

use requeue::embedded::{EntryFault, EntryOutcome, Fault, MessageView};
use requeue::{Failure, Settlement, Wrap};

use crate::world::{
    Act, LIMIT, SEND, Script, VISIBILITY, VISIBILITY_CHANGE, World, millis, object_of, secs,
};

/// A world in which no copy can be sent.
fn world() -> World {
    let world = World::new();
    world.faults_of(SEND, |_| Fault::refuse(403, "AccessDenied"));
    world
}

/// A world whose retries have these delays, all longer than the least for which an original waits.
fn with_long_delays() -> World {
    let mut world = World::new();
    let policy = r#"{"errorConfigs": {"TEMPORARY":
        {"backoff": [310, 320, 330, 340, 350], "maxDelay": 900, "jitter": "none"}}}"#;
    world.settings.set_policy(policy).unwrap();
    world
}

async fn wait_after(world: &World, act: Act) -> Duration {
    let id = world.send("{}").await;
    let processor = world.processor(Script::new(move |_| act.clone()));
    let invocation = world.invoke(&processor).await.unwrap();
    assert_eq!(invocation.failed(), [id.as_str()]);
    let message = world.only_message();
    assert_eq!((message.id.as_str(), message.body.as_str()), (id.as_str(), "{}"));
    world.wait(&message)
}

#[tokio::test(start_paused = true)]
async fn it_waits_as_long_as_the_copy_would_have_and_five_minutes_at_least() {
    // The bound is 12 hours less the longest batching window, a minute and the longest invocation.
    let longest = 43_200 - 300 - 60 - 900;
    for (named, expected) in [
        (0, 300),
        (1, 300),
        (299, 300),
        (300, 300),
        (301, 301),
        (899, 899),
        (900, 900),
        (901, 901),
        (longest - 1, longest - 1),
        (longest, longest),
        (longest + 1, longest),
        (43_200, longest),
    ] {
        let failure = Failure::temporary("later").retry_after(secs(named));
        assert_eq!(wait_after(&world(), Act::Fail(failure)).await, secs(expected), "{named} s");
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_that_a_batch_took_beyond_fifteen_minutes_is_taken_from_the_bound() {
    let failure = Failure::quota("later").retry_after(secs(43_200));
    let act = Act::after(secs(1_000), Act::Fail(failure));
    let mut world = World::with_queue("orders", &[("VisibilityTimeout", "12000")]);
    world.faults_of(SEND, |_| Fault::refuse(403, "AccessDenied"));
    world.function_timeout = secs(2_000);
    world.settings.limits.timeout = secs(1_500);
    world.send("{}").await;
    let processor = world.processor(Script::new(move |_| act.clone()));
    world.report(&processor, &world.receive().await).await;
    assert_eq!(world.wait(&world.only_message()), secs(43_200 - 360 - 1_000));
}

#[tokio::test(start_paused = true)]
async fn a_fraction_of_a_second_is_rounded_up_since_a_named_delay_is_a_lower_bound() {
    for (named, expected) in
        [(300_000, 300), (300_001, 301), (300_999, 301), (301_000, 301), (301_001, 302)]
    {
        let failure = Failure::temporary("later").retry_after(millis(named));
        assert_eq!(wait_after(&world(), Act::Fail(failure)).await, secs(expected), "{named} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn receives_count_where_the_message_cannot() {
    let world = with_long_delays();
    world.faults_of(SEND, |_| Fault::refuse(403, "AccessDenied"));
    world.send("{}").await;
    let processor = world.processor(Script::always(Failure::temporary("no")));
    let mut waits = Vec::new();
    for _ in 0..5 {
        world.invoke(&processor).await.unwrap();
        let wait = world.wait(&world.only_message());
        waits.push(wait.as_secs());
        tokio::time::sleep(wait).await;
    }
    assert_eq!(waits, [310, 320, 330, 340, 350]);
    assert!(world.invoke(&processor).await.is_none(), "the redrive policy moves it");
    assert_eq!(world.dead().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refused_send_leaves_twenty_minutes_to_mend_it() {
    let world = world();
    world.send("{}").await;
    let processor = world.processor(Script::always(Failure::temporary("no")));
    let mut waited = Duration::ZERO;
    while world.invoke(&processor).await.is_some() {
        let wait = world.wait(&world.only_message());
        waited += wait;
        tokio::time::sleep(wait).await;
    }
    // The last of the five receives moves the message when its wait ends.
    assert_eq!((waited, world.dead().len()), (secs(5 * 300), 1));
}

#[tokio::test(start_paused = true)]
async fn the_larger_of_retries_and_receives_counts() {
    let world = with_long_delays();
    world.send("{}").await;
    let processor = world.processor(Script::always(Failure::temporary("no")));
    for _ in 0..3 {
        world.invoke(&processor).await.unwrap();
        tokio::time::sleep(world.wait(&world.only_message())).await;
    }
    world.faults_of(SEND, |_| Fault::refuse(403, "AccessDenied"));
    world.invoke(&processor).await.unwrap();
    assert_eq!(world.wait(&world.only_message()), secs(340), "three retries, one receive");
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_is_asked_for_once_more_with_900_seconds_at_most() {
    for (named, expected) in [(600, 600), (900, 900), (901, 900), (43_200, 900)] {
        let world = World::new();
        world.faults(|call| match (call.operation.as_str(), call.of_operation) {
            (SEND, _) => Fault::refuse(403, "AccessDenied"),
            (VISIBILITY_CHANGE, 1) => Fault::Entries(vec![EntryFault::new(
                0,
                EntryOutcome::Refused {
                    code: "InvalidParameterValue".to_owned(),
                    sender_fault: true,
                },
            )]),
            _ => Fault::None,
        });
        let failure = Failure::temporary("later").retry_after(secs(named));
        assert_eq!(wait_after(&world, Act::Fail(failure)).await, secs(expected), "{named}");
        assert_eq!(world.entries(VISIBILITY_CHANGE), [1, 1]);
    }
}

#[tokio::test(start_paused = true)]
async fn best_effort_means_that_its_failure_changes_nothing() {
    for (fault, requests) in [
        (Fault::refuse(500, "InternalFailure"), 5),
        (Fault::refuse(403, "AccessDenied"), 1),
        (Fault::LoseRequest, 2),
        (Fault::Hang, 2),
    ] {
        let world = World::new();
        world.faults(move |call| match call.operation.as_str() {
            SEND => Fault::refuse(403, "AccessDenied"),
            _ => fault.clone(),
        });
        let failure = Failure::temporary("later").retry_after(secs(40));
        let wait = wait_after(&world, Act::Fail(failure)).await;
        assert!(wait <= VISIBILITY && wait + secs(21) >= VISIBILITY, "{wait:?}: the queue's own");
        assert_eq!(world.calls(VISIBILITY_CHANGE), requests);
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_of_exactly_the_limit_is_sent_and_one_byte_more_is_not() {
    let measured = World::new();
    let with_attribute =
        |message: aws_sdk_sqs::operation::send_message::builders::SendMessageFluentBuilder| {
            let value = aws_sdk_sqs::types::MessageAttributeValue::builder();
            let value = value.data_type("String").string_value("acme").build().unwrap();
            message.message_attributes("tenant", value)
        };
    let attribute_bytes = "tenant".len() + "String".len() + "acme".len();
    let failure = Failure::temporary("later").retry_after(secs(40));
    measured.send(&object_of(100)).await;
    measured.invoke(&measured.processor(Script::always(failure.clone()))).await;
    let growth = measured.only_message().body.len() - 100;

    for (size, sent) in [(LIMIT - 1, true), (LIMIT, true), (LIMIT + 1, false)] {
        let world = World::new();
        let body = object_of(size - growth - attribute_bytes);
        let id = world.send_as(&body, with_attribute).await;
        let script = Script::failing_first(1, failure.clone());
        let processor = world.processor(script.clone());
        let invocation = world.invoke(&processor).await.unwrap();
        assert_eq!(invocation.failed().is_empty(), sent, "{size}");
        let expected = if sent { (1, 1, 0) } else { (0, 0, 1) };
        assert_eq!(world.all_calls(), expected, "{size}: what cannot fit is not even tried");
        assert_eq!(world.wait(&world.only_message()), secs(40), "{size}");
        assert_eq!(world.only_message().id == id, !sent, "{size}");
        world.run(&processor).await;
        assert_eq!(script.seen(), [body.clone(), body], "{size}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_is_too_large_does_not_hold_up_its_neighbours() {
    let world = World::new();
    let large = world.send(&object_of(LIMIT)).await;
    world.send(&object_of(100)).await;
    let failure = Failure::temporary("later").retry_after(secs(40));
    let invocation = world.invoke(&world.processor(Script::always(failure))).await.unwrap();
    assert_eq!(invocation.failed(), [large.as_str()]);
    assert_eq!((world.entries(SEND), world.entries(VISIBILITY_CHANGE)), (vec![1], vec![1]));
}

#[tokio::test(start_paused = true)]
async fn a_copy_over_the_limit_of_its_queue_waits_as_one_without_room() {
    // SQS refuses the entry; other servers refuse the request, and then the large copy alone.
    for (limit, refused, size, sends) in
        [("1024", 0, 1_000, vec![2]), ("1048576", 2, 300_000, vec![1, 1, 2])]
    {
        let world = World::with_queue("orders", &[("MaximumMessageSize", limit)]);
        world.faults_of(SEND, move |call| match call.of_operation {
            request if request <= refused => Fault::refuse(400, "BatchRequestTooLong"),
            _ => Fault::None,
        });
        let large = world.send(&object_of(size)).await;
        world.send(&object_of(100)).await;
        let failure = Failure::temporary("later").retry_after(secs(40));
        let processor = world.processor(Script::always(failure));
        let event = world.receive().await;
        let report = world.report(&processor, &event).await;
        assert_eq!(report.failed_ids().unwrap(), [large.as_str()]);
        let too_long = Settlement::Unconfirmed { code: "MessageTooLong".to_owned() };
        assert_eq!(report.outcomes[0].settlement, too_long);
        assert_eq!(world.entries(SEND), sends, "{limit}: and the small copy is confirmed");
        let waits = |world: &World| {
            let large = |message: &MessageView| message.id == large;
            let (large, copies): (Vec<_>, Vec<_>) = world.messages().into_iter().partition(large);
            (world.wait(&large[0]), large[0].receive_count, copies.len())
        };
        assert_eq!(waits(&world), (secs(40), 1, 1));

        // What the queue is known to refuse is not sent. Later its limit may be another.
        let mut before = world.requests(SEND).len();
        for (passed, sent) in [(40, 1), (40, 1), (900, 2)] {
            tokio::time::sleep(secs(passed)).await;
            world.invoke(&processor).await.unwrap();
            let requests = world.requests(SEND);
            let entries = requests[before..].iter().map(|request| request.entries);
            assert_eq!(entries.sum::<usize>(), sent, "{limit}: {passed} s later");
            before = requests.len();
            let is_left = world.messages().iter().any(|message| message.id == large);
            assert_eq!(is_left, limit == "1024" || sent == 1, "{limit}: {passed} s later");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_wrong_response_sets_no_limit_for_the_copies_of_a_queue() {
    let world = World::new();
    world.faults_of(SEND, |call| match call.of_operation {
        1 => Fault::refuse(400, "BatchRequestTooLong"),
        _ => Fault::None,
    });
    let id = world.send(&object_of(100)).await;
    let failure = Failure::temporary("later").retry_after(secs(40));
    let processor = world.processor(Script::always(failure));
    assert_eq!(world.invoke(&processor).await.unwrap().failed(), [id.as_str()]);
    tokio::time::sleep(secs(300)).await;
    assert!(world.invoke(&processor).await.unwrap().failed().is_empty(), "the next copy is sent");
}

#[tokio::test(start_paused = true)]
async fn without_wrapping_a_text_waits_by_visibility_and_an_object_is_sent() {
    let mut world = World::new();
    world.settings.wrap = Wrap::Never;
    let text = world.send("no object").await;
    world.send("{}").await;
    let script = Script::failing_first(1, Failure::temporary("later").retry_after(secs(40)));
    let processor = world.processor(script.clone());
    let invocation = world.invoke(&processor).await.unwrap();
    assert_eq!(invocation.failed(), [text.as_str()]);
    assert_eq!((world.entries(SEND), world.entries(VISIBILITY_CHANGE)), (vec![1], vec![1]));
    assert!(world.messages().iter().all(|message| world.wait(message) == secs(40)));
    world.run(&processor).await;
    assert_eq!(script.calls().len(), 4);
    assert!(script.calls().iter().any(|seen| seen.body == "no object" && seen.receive_count == 2));
}
