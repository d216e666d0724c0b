//! A producer's limits for its own message: Requeue keeps them if they are tighter than the policy,
//! however the message waits.

use std::sync::Arc;
use std::time::Duration;

use requeue::{
    DeadLetterMode, DeadLetterReason, Deferral, Disposition, Failure, ProducerLimits, SharedTable,
    Strategy,
};
use serde_json::json;

use crate::idempotency::Told;
use crate::world::{Act, SEND, Script, World, secs, state};

type Builder = aws_sdk_sqs::operation::send_message::builders::SendMessageFluentBuilder;

fn limit(message: Builder, name: &str, value: &str) -> Builder {
    let attribute = aws_sdk_sqs::types::MessageAttributeValue::builder()
        .data_type("String")
        .string_value(value);
    message.message_attributes(name, attribute.build().unwrap())
}

/// Sends a message with one limit, to a group if the queue has some.
async fn send(world: &World, name: &str, value: &str) -> String {
    let is_fifo = world.queue.is_fifo();
    let send = |message: Builder| {
        let message = limit(message, name, value);
        if is_fifo {
            message.message_group_id("a").message_deduplication_id(value)
        } else {
            message
        }
    };
    world.send_as("{}", send).await
}

/// The time in so many seconds.
fn time_in(world: &World, wait: Duration) -> String {
    jiff::Timestamp::try_from(world.clock.now() + wait).unwrap().to_string()
}

fn attempts(script: &Script) -> Vec<u32> {
    script.calls().iter().map(|seen| seen.attempt).collect()
}

#[tokio::test(start_paused = true)]
async fn a_producer_may_allow_fewer_retries_and_no_more() {
    for (queue, strategy) in [
        ("orders", Strategy::Copy),
        ("orders", Strategy::Visibility),
        ("orders.fifo", Strategy::Copy),
    ] {
        for (asked, calls) in [("1", 2), ("2", 3), ("3", 4), ("4", 4), ("4294967295", 4)] {
            let mut world = World::with_queue(queue, &[]);
            world.settings.strategy = strategy;
            world.settings.policy.max_retries = 3;
            send(&world, "requeue.maxRetries", asked).await;
            let script = Script::always(Failure::temporary("no"));
            world.run(&world.processor(script.clone())).await;
            let last: Vec<u32> = script
                .calls()
                .iter()
                .filter(|seen| seen.is_last)
                .map(|seen| seen.attempt)
                .collect();
            assert_eq!(
                last.first(),
                Some(&calls),
                "{queue} {strategy:?} {asked}: the last attempt knows it"
            );
            assert_eq!(
                attempts(&script),
                (1..=calls).collect::<Vec<_>>(),
                "{queue} {strategy:?} {asked}"
            );
            assert_eq!(world.dead().len(), 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_producer_may_set_a_shorter_time_to_live_and_no_longer_one() {
    for queue in ["orders", "orders.fifo"] {
        for (asked, policy, age, is_handled) in [
            ("100", None, 100, true),
            ("100", None, 101, false),
            ("100", Some(50), 51, false),
            ("100", Some(50), 50, true),
            ("0", Some(50), 1, false),
        ] {
            let mut world = World::with_queue(queue, &[]);
            world.settings.policy.message_ttl = policy.map(secs);
            send(&world, "requeue.ttlSeconds", asked).await;
            tokio::time::sleep(secs(age)).await;
            let script = Script::new(|_| Act::Done);
            let report =
                world.report(&world.processor(script.clone()), &world.receive().await).await;
            let expired = Disposition::DeadLetter(DeadLetterReason::Expired);
            assert_eq!(
                report.outcomes[0].disposition == expired,
                !is_handled,
                "{queue}: {asked}, {policy:?}, {age}"
            );
            assert_eq!(script.calls().len(), usize::from(is_handled));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_scheduled_message_is_handled_when_it_is_due_with_all_its_retries_and_all_its_time() {
    const MAX_RETRIES: u32 = 2;
    for (queue, strategy) in [
        ("orders", Strategy::Copy),
        ("orders", Strategy::Visibility),
        ("orders.fifo", Strategy::Copy),
    ] {
        // Among them about as long as a receive can wait, and twice as long.
        for secs_of_wait in
            [30, 3_630, 41_939, 41_940, 42_500, 43_000, 43_200, 46_830, 83_880, 108_030]
        {
            let mut world = World::with_queue(queue, &[]);
            world.settings.strategy = strategy;
            world.settings.policy.max_retries = MAX_RETRIES;
            world.settings.policy.temporary.total_timeout = secs(600);
            world.set_max_receive_count(10).await;
            let wait = secs(secs_of_wait);
            send(&world, "requeue.notBefore", &time_in(&world, wait)).await;
            let begun = tokio::time::Instant::now();
            let script = Script::failing_first(2, Failure::temporary("no"));
            world.run(&world.processor(script.clone())).await;
            assert_eq!(attempts(&script), [1, 2, 3], "{queue} {strategy:?} {secs_of_wait} s");
            let late =
                (script.calls()[0].at - begun).checked_sub(wait).expect("not before its time");
            assert!(late <= secs(61), "{queue} {strategy:?} {secs_of_wait} s: {late:?} late");
            assert!(world.dead().is_empty());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_due_between_its_receive_and_its_turn_has_no_attempt_too_many() {
    for (queue, strategy) in [("orders", Strategy::Visibility), ("orders.fifo", Strategy::Copy)] {
        for (asked, calls) in [(None, 3), (Some("1"), 2), (Some("0"), 1)] {
            for is_exact in [false, true] {
                let mut world = World::with_queue(queue, &[]);
                world.settings.strategy = strategy;
                world.settings.policy.max_retries = 2;
                world.set_max_receive_count(10).await;
                let url = world.dead_letters.url().parse().unwrap();
                world.settings.dead_letter = Some(DeadLetterMode::Direct(url));
                if is_exact {
                    world.settings.shared_table = Some(SharedTable::by(Arc::new(Told::default())));
                }
                let (is_fifo, due) = (world.queue.is_fifo(), time_in(&world, secs(1)));
                let limits = |message: Builder| {
                    let message = limit(message, "requeue.notBefore", &due);
                    match asked {
                        Some(asked) => limit(message, "requeue.maxRetries", asked),
                        None => message,
                    }
                };
                let send = |message: Builder| {
                    let message = limits(message);
                    if is_fifo {
                        message.message_group_id("a").message_deduplication_id("1")
                    } else {
                        message
                    }
                };
                world.send_as("{}", send).await;
                let script = Script::always(Failure::temporary("no"));
                let event = world.receive().await;
                tokio::time::sleep(secs(2)).await;
                world.deliver(&world.processor(script.clone()), &event).await;
                world.run(&world.processor(script.clone())).await;
                let told: Vec<u32> = (1..=calls).collect();
                assert_eq!(attempts(&script), told, "{queue} {asked:?}, exact: {is_exact}");
                assert_eq!(world.dead().len(), 1);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_behind_a_scheduled_one_has_no_attempt_too_many() {
    let mut world = World::with_queue("orders.fifo", &[]);
    world.settings.policy.max_retries = 2;
    world.set_max_receive_count(10).await;
    send(&world, "requeue.notBefore", &time_in(&world, secs(100))).await;
    let script = Script::new(|seen| match seen.body.as_str() {
        "{}" => Act::Done,
        _ => Act::Fail(Failure::temporary("no")),
    });
    let processor = world.processor(script.clone());
    world.invoke(&processor).await;
    let second = |message: Builder| message.message_group_id("a").message_deduplication_id("2");
    world.send_as("second", second).await;
    // SQS learns nothing of the end of the first one, so both come once more.
    world.sleep_until_due().await;
    let event = world.receive().await;
    world.invoke_with(&processor, &event).await.unwrap();
    world.run(&processor).await;
    let seconds = script.calls().into_iter().filter(|seen| seen.body == "second");
    assert_eq!(seconds.map(|seen| seen.attempt).collect::<Vec<_>>(), [1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn what_waits_behind_a_scheduled_message_of_its_group_has_all_its_attempts_too() {
    for max_retries in [0, 2] {
        let mut world = World::with_queue("orders.fifo", &[]);
        world.settings.policy.max_retries = max_retries;
        world.set_max_receive_count(20).await;
        let wait = secs(50_000);
        send(&world, "requeue.notBefore", &time_in(&world, wait)).await;
        for name in ["second", "third"] {
            let body = json!({ "name": name }).to_string();
            world
                .send_as(&body, |message| {
                    message.message_group_id("a").message_deduplication_id(name)
                })
                .await;
        }
        let script = Script::always(Failure::temporary("no"));
        // By its first process each message is dead-lettered; others know nothing of it.
        while world.sleep_until_due().await {
            world.invoke(&world.processor(script.clone())).await;
        }
        let calls =
            |body: &str| script.calls().iter().filter(|seen| seen.body.contains(body)).count();
        let attempts = usize::try_from(max_retries).unwrap() + 1;
        assert_eq!(
            script.calls().len() - calls("second") - calls("third"),
            attempts,
            "{max_retries}: the first"
        );
        assert!(
            calls("second") >= 1 && calls("third") >= 1,
            "{max_retries}: {} {}",
            calls("second"),
            calls("third")
        );
        assert_eq!(world.dead().len(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_time_is_past_or_whose_limits_are_switched_off_is_handled_at_once() {
    for (limits, name, value) in [
        (ProducerLimits::On, "requeue.notBefore", "2001-01-01T00:00:00Z"),
        (ProducerLimits::Off, "requeue.notBefore", "2999-01-01T00:00:00Z"),
        (ProducerLimits::Off, "requeue.ttlSeconds", "0"),
        (ProducerLimits::Off, "requeue.maxRetries", "many"),
    ] {
        let mut world = World::new();
        world.settings.producer_limits = limits;
        send(&world, name, value).await;
        tokio::time::sleep(secs(1)).await;
        let script = Script::new(|_| Act::Done);
        let report = world.report(&world.processor(script.clone()), &world.receive().await).await;
        assert_eq!(
            report.outcomes[0].disposition,
            Disposition::Complete,
            "{limits:?} {name} {value}"
        );
        assert_eq!(script.calls().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_cannot_be_read_is_non_retryable_without_a_call() {
    let url: requeue::queue::QueueUrl = World::new().dead_letters.url().parse().unwrap();
    for (name, value) in [
        ("requeue.maxRetries", "-1"),
        ("requeue.ttlSeconds", "1h"),
        ("requeue.notBefore", "1795334400"),
        ("requeue.notBefore", "2999-01-01T00:00:00Z"),
    ] {
        for mode in
            [DeadLetterMode::Redrive, DeadLetterMode::Annotate, DeadLetterMode::Direct(url.clone())]
        {
            let mut world = World::new();
            world.settings.dead_letter = Some(mode.clone());
            let id = send(&world, name, value).await;
            let script = Script::new(|_| Act::Done);
            world.run(&world.processor(script.clone())).await;
            assert!(script.calls().is_empty(), "{name} {value}");
            let dead = world.dead();
            assert_eq!(dead.len(), 1, "{name} {value} {mode:?}");
            if mode == DeadLetterMode::Redrive {
                assert_eq!(dead[0].id, id);
                continue;
            }
            let why = &state(&dead[0])["retryState"]["deadLetter"];
            assert_eq!(why["reason"], "non-retryable");
            let detail = why["detail"].as_str().unwrap();
            assert!(detail.contains(name) && !detail.contains(value), "{detail}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_scheduled_message_hops_with_its_attributes_and_uses_up_nothing() {
    let world = World::new();
    send(&world, "requeue.notBefore", &time_in(&world, secs(2_000))).await;
    let script = Script::new(|_| Act::Done);
    let processor = world.processor(script.clone());
    for hop in 1..=3 {
        world.sleep_until_due().await;
        let report = world.report(&processor, &world.receive().await).await;
        let Disposition::Defer { reason: Deferral::NotDue, wait, .. } =
            report.outcomes[0].disposition
        else {
            panic!("{:?}", report.outcomes[0].disposition)
        };
        assert_eq!(u64::from(wait.delay().as_secs()), [900, 900, 200][hop - 1]);
        let copy = world.only_message();
        let body = state(&copy);
        assert_eq!((&body["retryCount"], &body["retryState"]["hops"]), (&json!(0), &json!(hop)));
        assert!(copy.attributes.contains_key("requeue.notBefore"));
    }
    world.sleep_until_due().await;
    world.invoke(&processor).await;
    assert_eq!((attempts(&script), world.calls(SEND)), (vec![1], 3));
}
