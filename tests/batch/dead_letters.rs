//! The mode `annotate`: a given-up message says why, its handler runs once, and SQS moves it.

use std::time::{Duration, SystemTime};

use requeue::classify::{Exception, Response};
use requeue::embedded::Fault;
use requeue::policy::CircuitBreaker;
use requeue::{
    Clock, DeadLetter, DeadLetterMode, DeadLetterReason, Deferral, DetailText, Disposition,
    Failure, FailureClass, Message, RecursiveLoop, ReleaseReason, Settlement, Strategy,
};
use serde_json::{Value, json};

use crate::world::{Act, MAX_RECEIVE_COUNT, SEND, Script, VISIBILITY_CHANGE, World, secs, state};

fn world() -> World {
    let mut world = World::new();
    world.settings.dead_letter = Some(DeadLetterMode::Annotate);
    world
}

#[tokio::test(start_paused = true)]
async fn a_final_failure_is_handled_once_and_its_dead_letter_says_why() {
    let world = world();
    let id = world.send(r#"{"order":7}"#).await;
    let script = Script::always(Failure::non_retryable("no such account"));
    world.run(&world.processor(script.clone())).await;

    assert_eq!(script.seen().len(), 1, "the handler ran once");
    let dead = world.dead();
    assert_eq!(dead.len(), 1);
    let body = state(&dead[0]);
    assert_eq!(body["originalMessageId"], id);
    let why = &body["retryState"]["deadLetter"];
    assert_eq!(why["class"], "non-retryable");
    assert_eq!(
        (&why["reason"], &why["detail"]),
        (&json!("non-retryable"), &json!("no such account"))
    );
    assert_eq!(why["retryCount"], 0);
    assert!(why["failedAt"].as_str().unwrap().ends_with('Z'), "{why}");
    let moved_by = dead[0].system_attributes.get("DeadLetterQueueSourceArn").map(String::as_str);
    assert_eq!(moved_by, Some(world.queue.to_string().as_str()), "SQS moved it");
}

#[tokio::test(start_paused = true)]
async fn on_a_fifo_queue_nothing_is_annotated_since_a_copy_would_lose_its_place() {
    let mut world = World::with_queue("orders.fifo", &[("ContentBasedDeduplication", "true")]);
    world.settings.dead_letter = Some(DeadLetterMode::Annotate);
    world.send_as("{}", |message| message.message_group_id("a")).await;
    let processor = world.processor(Script::always(Failure::non_retryable("never")));
    let report = world.report(&processor, &world.receive().await).await;
    assert_eq!(
        report.outcomes[0].disposition,
        Disposition::DeadLetter(DeadLetterReason::NonRetryable)
    );
    assert_eq!(world.requests(SEND).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_keeps_the_words_of_the_service_only_if_the_operator_asks_for_them() {
    const BODY: &[u8] = br#"{"error":{"code":"card_declined","message":"Ann Miller's card 4242 4242 4242 4242 was declined, ask ann@example.com about 'gold'"}}"#;
    let said = "… card … was declined, ask … about …";
    for (text, kept) in [(DetailText::Off, None), (DetailText::On, Some(said))] {
        let mut world = world();
        world.settings.detail_text = text;
        world.send(r#"{"customer":"ann miller"}"#).await;
        let handler = async |_: Message| {
            let response = Response { status: 402, headers: &[], body: BODY };
            Err::<(), _>(Failure::from_response(&response, SystemTime::UNIX_EPOCH))
        };
        world.run(&world.processor(handler)).await;
        let [dead] = &world.dead()[..] else { panic!("{:?}", world.dead()) };
        let why = &state(dead)["retryState"]["deadLetter"];
        assert_eq!(why["detail"], "status 402: card_declined");
        assert_eq!(why.get("text").and_then(Value::as_str), kept);
        let read = DeadLetter::read(&dead.body);
        assert_eq!(read.text(), kept);
        assert_eq!(read.payload(), r#"{"customer":"ann miller"}"#);
        // Also if the class comes from the function, and not from its exception.
        let mut world = self::world();
        world.settings.detail_text = text;
        world.send("{}").await;
        let handler = async |_: Message| {
            let exception = Exception::new("CardError", "the card was declined");
            Err::<(), _>(Failure::non_retryable("chosen").with_text_of(&exception))
        };
        world.run(&world.processor(handler)).await;
        let dead = world.dead();
        let said = kept.map(|_| "the card was declined");
        assert_eq!(DeadLetter::read(&dead[0].body).text(), said);
    }
}

#[tokio::test(start_paused = true)]
async fn used_up_retries_are_annotated_too() {
    let mut world = world();
    world.settings.policy.max_retries = 2;
    world.send("text").await;
    let script = Script::always(Failure::temporary("not now"));
    world.run(&world.processor(script.clone())).await;
    assert_eq!(script.seen().len(), 3);
    let why = &state(&world.dead()[0])["retryState"]["deadLetter"];
    assert_eq!((&why["reason"], &why["class"]), (&json!("retries-exhausted"), &json!("temporary")));
    assert_eq!(why["retryCount"], 2);
}

#[tokio::test(start_paused = true)]
async fn what_expired_is_annotated_once_and_never_handled() {
    let mut world = world();
    world.settings.policy.message_ttl = Some(secs(100));
    world.send("{}").await;
    tokio::time::sleep(secs(101)).await;
    let script = Script::always(Failure::temporary("no"));
    world.run(&world.processor(script.clone())).await;
    assert!(script.seen().is_empty());
    assert_eq!(state(&world.dead()[0])["retryState"]["deadLetter"]["reason"], "expired");
    assert_eq!(world.calls("SendMessageBatch"), 1);
}

/// An annotated copy is enqueued with this delay.
const DELAY: Duration = secs(10);

#[tokio::test(start_paused = true)]
async fn an_annotated_message_passes_through_its_receives_at_once() {
    let world = world();
    world.send("{}").await;
    let processor = world.processor(Script::always(Failure::non_retryable("no")));
    world.invoke(&processor).await.expect("the message");
    tokio::time::sleep(DELAY).await;
    for receive in 1..=5 {
        assert!(world.invoke(&processor).await.is_some(), "receive {receive} of the copy");
    }
    assert!(world.invoke(&processor).await.is_none(), "it has moved");
    assert_eq!(world.dead().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn without_a_redrive_policy_it_is_hurried_ten_times_and_no_more() {
    let mut world = world();
    world.queue = world.sqs.create_queue("lonely", [("VisibilityTimeout", "360")]).unwrap();
    world.send("{}").await;
    let processor = world.processor(Script::always(Failure::non_retryable("no")));
    world.invoke(&processor).await.expect("the message");
    tokio::time::sleep(DELAY).await;
    for receive in 1..=11 {
        assert!(world.invoke(&processor).await.is_some(), "receive {receive} of the copy");
    }
    assert!(
        world.invoke(&processor).await.is_none(),
        "it waits for its visibility timeout from now on"
    );
    assert_eq!(world.messages().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_that_cannot_be_sent_is_tried_again_on_each_receive_without_a_call() {
    let url: requeue::queue::QueueUrl = World::new().dead_letters.url().parse().unwrap();
    for (mode, strategy) in [
        (DeadLetterMode::Annotate, Strategy::Copy),
        (DeadLetterMode::Annotate, Strategy::Visibility),
        (DeadLetterMode::Direct(url.clone()), Strategy::Copy),
        (DeadLetterMode::Direct(url), Strategy::Visibility),
    ] {
        for refused in [0, 1, 4, u64::MAX] {
            let what = format!("{mode:?}, {strategy:?}, {refused} sends are refused");
            let mut world = World::new();
            world.settings.dead_letter = Some(mode.clone());
            world.settings.strategy = strategy;
            let id = world.send(r#"{"order":7}"#).await;
            world.faults_of(SEND, move |call| match call.of_operation {
                number if number <= refused => Fault::refuse(403, "AccessDeniedException"),
                _ => Fault::None,
            });
            let script = Script::always(Failure::non_retryable("no such account"));
            world.run(&world.processor(script.clone())).await;
            assert_eq!(script.calls().len(), 1, "{what}");
            assert_eq!(
                world.calls(SEND),
                u64::from(MAX_RECEIVE_COUNT).min(refused.saturating_add(1)),
                "{what}"
            );
            let [dead] = &world.dead()[..] else { panic!("{what}: {:?}", world.dead()) };
            if refused == u64::MAX {
                assert_eq!(
                    (dead.id.as_str(), dead.body.as_str()),
                    (id.as_str(), r#"{"order":7}"#),
                    "{what}"
                );
                assert_eq!(world.calls(VISIBILITY_CHANGE), 0, "{what}");
            } else {
                let why = &state(dead)["retryState"]["deadLetter"];
                assert_eq!(
                    (&why["class"], &why["reason"], &why["detail"]),
                    (&json!("non-retryable"), &json!("non-retryable"), &json!("no such account")),
                    "{what}"
                );
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_comes_back_from_the_dead_letter_queue_is_handled_afresh_however_soon() {
    // In the queue for so long before a function is free; in the dead-letter queue for so long
    // before that.
    for (dead_for, queued_for) in [(0, 0), (0, 8), (100, 8), (115, 30), (600, 0), (600, 3_600)] {
        let mut world = world();
        world.settings.policy.max_retries = 1;
        let id = world.send("{}").await;
        let script = Script::always(Failure::temporary("no"));
        let processor = world.processor(script.clone());
        world.run(&processor).await;
        assert_eq!(script.seen().len(), 2);
        for redrive in 1..=10 {
            tokio::time::sleep(secs(dead_for)).await;
            world.move_back().await;
            tokio::time::sleep(secs(queued_for)).await;
            world.run(&processor).await;
            assert_eq!(
                script.seen().len(),
                2 + 2 * redrive,
                "a full budget, {redrive} ({dead_for} s, {queued_for} s)"
            );
            let body = state(&world.dead()[0]);
            assert_eq!(
                (&body["originalMessageId"], &body["retryState"]["redrives"]),
                (&json!(id), &json!(redrive))
            );
        }
        world.move_back().await;
        world.run(&processor).await;
        assert_eq!(
            (script.seen().len(), world.dead().len()),
            (22, 1),
            "the eleventh time nothing starts afresh"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_annotated_copy_is_no_redrive_though_clocks_differ_and_it_waits_in_a_backlog() {
    for (ahead, behind) in [(0, 100), (0, 0), (100, 0)] {
        for backlog in [0, 5, 3_600] {
            let mut world = world();
            // Lambda's deadline, too, is of the clock that differs.
            world.function_timeout = secs(200);
            world.settings.clock =
                Some(Clock::starting_at(world.clock.now() + secs(ahead) - secs(behind)));
            world.send("{}").await;
            let script = Script::always(Failure::non_retryable("no"));
            let processor = world.processor(script.clone());
            world.invoke(&processor).await.unwrap();
            tokio::time::sleep(DELAY + secs(backlog)).await;
            world.run(&processor).await;
            assert_eq!(
                (script.seen().len(), world.dead().len()),
                (1, 1),
                "{ahead} s ahead, {behind} s behind, {backlog} s in a backlog"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_report_says_what_was_intended() {
    let world = world();
    world.send("{}").await;
    let processor = world.processor(Script::always(Failure::non_retryable("no")));
    let event = world.receive().await;
    let report = world.report(&processor, &event).await;
    assert_eq!(
        report.outcomes[0].disposition,
        Disposition::DeadLetter(DeadLetterReason::NonRetryable)
    );
    assert_eq!(
        report.outcomes[0].settlement,
        Settlement::Moved,
        "the copy that says why is in the queue"
    );
    tokio::time::sleep(DELAY).await;
    let event = world.receive().await;
    let report = world.report(&processor, &event).await;
    assert_eq!(report.outcomes[0].disposition, Disposition::Release(ReleaseReason::Annotated));
}

#[tokio::test(start_paused = true)]
async fn a_function_on_the_dead_letter_queue_works_on_its_messages_anew() {
    let url: requeue::queue::QueueUrl = World::new().dead_letters.url().parse().unwrap();
    for mode in [DeadLetterMode::Redrive, DeadLetterMode::Annotate, DeadLetterMode::Direct(url)] {
        let mut world = World::new();
        world.settings.policy.max_retries = 2;
        world.settings.dead_letter = Some(mode.clone());
        let id = world.send("{}").await;
        world.run(&world.processor(Script::always(Failure::temporary("no")))).await;
        assert_eq!(world.dead().len(), 1);

        world.queue = world.dead_letters.clone();
        let script = Script::failing_first(1, Failure::temporary("no"));
        world.run(&world.processor(script.clone())).await;
        let attempts: Vec<u32> = script.calls().iter().map(|seen| seen.attempt).collect();
        assert_eq!(attempts, [1, 2], "{mode:?}");
        assert_eq!(script.calls()[1].original_id.as_deref(), Some(id.as_str()), "{mode:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_works_on_the_dead_letter_queue_learns_on_each_attempt_why_a_message_is_there() {
    let url: requeue::queue::QueueUrl = World::new().dead_letters.url().parse().unwrap();
    let words = Some(("retries-exhausted", "no"));
    for (mode, expected) in [
        (DeadLetterMode::Redrive, None),
        (DeadLetterMode::Annotate, words),
        (DeadLetterMode::Direct(url), words),
    ] {
        let mut world = World::new();
        world.settings.policy.max_retries = 2;
        world.settings.dead_letter = Some(mode.clone());
        world.send("text").await;
        let script = Script::always(Failure::temporary("no"));
        world.run(&world.processor(script.clone())).await;
        assert!(
            script.calls().iter().all(|seen| seen.dead_letter.is_none()),
            "it is not there yet"
        );

        let orders = world.queue.to_string();
        world.queue = world.dead_letters.clone();
        let script = Script::failing_first(2, Failure::temporary("not now"));
        world.run(&world.processor(script.clone())).await;
        let calls = script.calls();
        assert_eq!(calls.len(), 3, "{mode:?}");
        for seen in calls {
            let info = seen.dead_letter.expect("it is a dead letter");
            assert_eq!(info.reason().zip(info.detail()), expected, "{mode:?}");
            assert_eq!(
                (info.class(), info.retry_count()),
                (Some(FailureClass::Temporary), Some(2)),
                "{mode:?}"
            );
            assert_eq!(info.source(), Some(orders.as_str()), "{mode:?}");
            assert_eq!(info.failed_at().is_some(), expected.is_some(), "{mode:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_was_brought_back_says_why_it_had_been_dead_lettered() {
    let world = world();
    world.send("{}").await;
    world.run(&world.processor(Script::always(Failure::non_retryable("no such account")))).await;
    world.move_back().await;
    let script = Script::failing_first(1, Failure::temporary("not now"));
    world.run(&world.processor(script.clone())).await;
    let details: Vec<_> = script
        .calls()
        .iter()
        .map(|seen| seen.dead_letter.clone()?.detail().map(str::to_owned))
        .collect();
    assert_eq!(details, vec![Some("no such account".to_owned()); 2]);
}

/// Has SQS move a message that no function ever answered for, and works on the dead-letter queue
/// from now on. The dead letters of that go to a queue of their own after so many receives more.
async fn work_on_dead_letters(world: &mut World, body: &str, more: u32) {
    let is_fifo = world.queue.is_fifo();
    let grouped =
        |message: aws_sdk_sqs::operation::send_message::builders::SendMessageFluentBuilder| {
            if is_fifo {
                message.message_group_id("a").message_deduplication_id("1")
            } else {
                message
            }
        };
    world.send_as(body, grouped).await;
    for _ in 0..MAX_RECEIVE_COUNT {
        world.sleep_until_due().await;
        assert_eq!(world.receive().await["Records"].as_array().unwrap().len(), 1);
    }
    world.sleep_until_due().await;
    assert!(world.mapping().poll(Duration::ZERO).await.unwrap().is_none(), "SQS moves it");
    let name = if world.queue.is_fifo() { "buried.fifo" } else { "buried" };
    let buried = world.sqs.create_queue(name, []).unwrap();
    world.queue = std::mem::replace(&mut world.dead_letters, buried);
    let client = world.sqs.client();
    let visibility = client.set_queue_attributes().queue_url(world.queue.url());
    let name = aws_sdk_sqs::types::QueueAttributeName::VisibilityTimeout;
    visibility.attributes(name, "360").send().await.unwrap();
    // SQS counts the receives in the source queue too.
    world.set_max_receive_count(MAX_RECEIVE_COUNT + more).await;
}

#[tokio::test(start_paused = true)]
async fn in_a_dead_letter_queue_neither_age_nor_receives_of_the_source_queue_count() {
    for recursive_loop in [RecursiveLoop::Allow, RecursiveLoop::Terminate] {
        for dead_for in [0, 13 * 3_600] {
            let mut world = World::new();
            world.settings.recursive_loop = recursive_loop;
            world.settings.policy.max_retries = 3;
            world.settings.policy.message_ttl = Some(secs(3_600));
            work_on_dead_letters(&mut world, "{}", 5).await;
            tokio::time::sleep(secs(dead_for)).await;
            let script = Script::always(Failure::temporary("no"));
            world.run(&world.processor(script.clone())).await;
            let attempts: Vec<u32> = script.calls().iter().map(|seen| seen.attempt).collect();
            assert_eq!(attempts, [1, 2, 3, 4], "{recursive_loop:?}, dead for {dead_for} s");
            assert_eq!(script.calls()[0].receive_count, MAX_RECEIVE_COUNT + 1, "as SQS counts");
            assert_eq!(world.dead().len(), 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn in_a_dead_letter_queue_the_age_begins_with_the_first_receive_there() {
    let mut world = World::new();
    world.settings.policy.temporary.total_timeout = secs(100);
    work_on_dead_letters(&mut world, "{}", 5).await;
    tokio::time::sleep(secs(13 * 3_600)).await;
    let script = Script::always(Failure::temporary("no").retry_after(secs(40)));
    world.run(&world.processor(script.clone())).await;
    let calls = script.calls();
    let times: Vec<u64> =
        calls.iter().take(3).map(|seen| (seen.at - calls[0].at).as_secs()).collect();
    assert_eq!(times, [0, 40, 80]);
    assert_eq!(
        state(&world.dead()[0])["retryCount"],
        2,
        "a delay that does not fit ends the retries"
    );
}

#[tokio::test(start_paused = true)]
async fn in_a_dead_letter_queue_what_waits_in_its_place_has_its_retries_and_no_more() {
    for (name, strategy) in [("orders.fifo", Strategy::Copy), ("orders", Strategy::Visibility)] {
        let mut world = World::with_queue(name, &[]);
        world.settings.strategy = strategy;
        world.settings.policy.max_retries = 3;
        work_on_dead_letters(&mut world, r#"{"deduplicated":1}"#, 12).await;
        tokio::time::sleep(secs(13 * 3_600)).await;
        let script = Script::always(Failure::temporary("no"));
        world.run(&world.processor(script.clone())).await;
        let attempts: Vec<u32> = script.calls().iter().map(|seen| seen.attempt).collect();
        assert_eq!(attempts, [1, 2, 3, 4], "{name}");
        assert_eq!(world.dead().len(), 1, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_environment_that_did_not_see_a_dead_letter_come_begins_afresh_and_still_ends() {
    let mut world = World::with_queue("orders.fifo", &[]);
    world.settings.policy.max_retries = 1;
    work_on_dead_letters(&mut world, "{}", 9).await;
    let script = Script::always(Failure::temporary("no"));
    // A new environment for each two invocations.
    while world.sleep_until_due().await {
        let processor = world.processor(script.clone());
        world.invoke(&processor).await;
        world.sleep_until_due().await;
        world.invoke(&processor).await;
    }
    let attempts: Vec<u32> = script.calls().iter().map(|seen| seen.attempt).collect();
    assert_eq!(attempts, [1, 2, 1, 2, 1, 2, 1, 2, 1], "a call for each receive");
    assert_eq!(world.dead().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn in_a_dead_letter_queue_an_open_circuit_holds_messages_back() {
    let mut world = World::new();
    let mut breaker = CircuitBreaker::default();
    (breaker.threshold, breaker.reset_timeout) = (1, secs(30));
    world.settings.policy.circuit_breaker = Some(breaker);
    world.settings.limits.concurrency = 1;
    work_on_dead_letters(&mut world, r#"{"n":1}"#, 5).await;
    world.send(r#"{"n":0}"#).await;
    let script = Script::new(|seen| match seen.attempt {
        1 => Act::Fail(Failure::temporary("no").retry_after(secs(60))),
        _ => Act::Done,
    });
    let processor = world.processor(script.clone());
    // A suspect is handled after the others.
    let report = world.report(&processor, &world.receive().await).await;
    let paused = report.outcomes.iter().filter(|outcome| {
        matches!(outcome.disposition, Disposition::Defer { reason: Deferral::CircuitOpen, .. })
    });
    assert_eq!((paused.count(), script.calls().len()), (1, 1));
}
