//! The mode `direct`: the function sends given-up messages to a dead-letter queue by its URL.

use aws_sdk_sqs::operation::send_message::builders::SendMessageFluentBuilder;
use aws_sdk_sqs::types::QueueAttributeName;
use requeue::embedded::Fault;
use requeue::{
    DeadLetterMode, DeadLetterReason, Disposition, Failure, ReleaseReason, Settlement, Wrap,
};
use serde_json::json;

use crate::world::{
    Act, DELETE, LIMIT, Log, SEND, Script, World, numbered, object_of, secs, state,
};

fn direct(mut world: World) -> World {
    world.settings.dead_letter =
        Some(DeadLetterMode::Direct(world.dead_letters.url().parse().unwrap()));
    world
}

fn fifo() -> World {
    direct(World::with_queue("orders.fifo", &[("ContentBasedDeduplication", "true")]))
}

#[tokio::test(start_paused = true)]
async fn what_is_dead_lettered_is_sent_there_and_deleted_here() {
    let world = direct(World::new());
    let id = world.send_as(r#"{"order":7}"#, |message| message.message_group_id("tenant")).await;
    let script = Script::always(Failure::non_retryable("no such account"));
    let invocation = world.invoke(&world.processor(script.clone())).await.unwrap();
    assert!(invocation.failed().is_empty());
    assert_eq!((script.calls().len(), world.all_calls()), (1, (1, 1, 0)));
    assert!(world.messages().is_empty());
    let [dead] = &world.dead()[..] else {
        panic!("one message");
    };
    let body = state(dead);
    assert_eq!((&body["order"], &body["originalMessageId"]), (&json!(7), &json!(id)));
    assert_eq!(body["retryState"]["source"], world.queue.to_string());
    let why = &body["retryState"]["deadLetter"];
    assert_eq!(
        (&why["reason"], &why["detail"]),
        (&json!("non-retryable"), &json!("no such account"))
    );
    assert_eq!(dead.system_attributes.get("MessageGroupId").map(String::as_str), Some("tenant"));
    assert_eq!(world.wait(dead), secs(0));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_sent_there_stays_as_in_the_mode_redrive() {
    for (body, wrap, max_retries, code) in [
        ("{}".to_owned(), Wrap::WhenNeeded, 50, "AccessDenied"),
        ("text".to_owned(), Wrap::Never, 50, "NotWrappable"),
        ("text".to_owned(), Wrap::Never, 0, "NotWrappable"),
        (object_of(LIMIT - 9), Wrap::WhenNeeded, 50, "MessageTooLong"),
    ] {
        let mut world = direct(World::new());
        world.settings.wrap = wrap;
        world.settings.policy.max_retries = max_retries;
        world.faults_of(SEND, |_| Fault::refuse(403, "AccessDenied"));
        let id = world.send(&body).await;
        let script = Script::always(Failure::non_retryable("no"));
        let processor = world.processor(script.clone());
        let report = world.report(&processor, &world.receive().await).await;
        assert_eq!(report.failed_ids().unwrap(), [id.as_str()]);
        assert_eq!(
            report.outcomes[0].settlement,
            Settlement::Unconfirmed { code: code.to_owned() }
        );
        assert_eq!(world.all_calls().2, 0, "its visibility timeout stays");
        tokio::time::sleep(secs(360)).await;
        world.run(&processor).await;
        assert_eq!(
            (script.calls().len(), world.dead()[0].id.as_str()),
            (1, id.as_str()),
            "SQS has moved it"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_over_the_limit_of_its_queue_goes_there_by_redrive() {
    for mut world in [direct(World::new()), fifo()] {
        world.settings.policy.max_retries = 2;
        let set = world.sqs.client().set_queue_attributes().queue_url(world.dead_letters.url());
        let set = set.attributes(QueueAttributeName::MaximumMessageSize, "65536");
        set.send().await.expect("the queue exists");
        let group = || world.queue.is_fifo().then(|| "a".to_owned());
        let with_group = |message: SendMessageFluentBuilder| message.set_message_group_id(group());
        let large = world.send_as(&object_of(65_500), with_group).await;
        let small = world.send_as("{}", with_group).await;
        let script = Script::always(Failure::non_retryable("no"));
        world.run(&world.processor(script.clone())).await;
        assert_eq!(script.calls().len(), 2, "each is handled once");
        let dead = world.dead();
        let moved = |id: &str| dead.iter().any(|dead| dead.id == id);
        assert_eq!((dead.len(), moved(&large), moved(&small)), (2, true, false));
        let entries: usize = world.requests(SEND).iter().map(|request| request.entries).sum();
        assert!(entries <= 3, "the large one is not sent on each receive: {entries}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_dead_lettered_and_could_not_be_sent_is_sent_without_a_call_later() {
    let mut world = direct(World::new());
    world.settings.policy.max_retries = 1;
    world.send("{}").await;
    let script = Script::always(Failure::temporary("no"));
    let processor = world.processor(script.clone());
    world.invoke(&processor).await.unwrap();
    tokio::time::sleep(secs(1)).await;
    world.faults_of(SEND, |_| Fault::refuse(403, "AccessDenied"));
    world.invoke(&processor).await.unwrap();
    assert_eq!((script.calls().len(), world.dead().len()), (2, 0));
    world.faults(|_| Fault::None);
    world.run(&processor).await;
    assert_eq!((script.calls().len(), world.dead().len()), (2, 1));
    let why = &state(&world.dead()[0])["retryState"]["deadLetter"];
    assert_eq!((&why["reason"], &why["class"]), (&json!("retries-exhausted"), &json!("temporary")));
}

#[tokio::test(start_paused = true)]
async fn what_an_operator_moves_back_is_handled_afresh_however_soon() {
    for world in [direct(World::new()), fifo()] {
        let mut world = world;
        world.settings.policy.max_retries = 1;
        let is_fifo = world.queue.is_fifo();
        let id = world
            .send_as("{}", |message| message.set_message_group_id(is_fifo.then(|| "a".to_owned())))
            .await;
        let script = Script::always(Failure::temporary("no"));
        let processor = world.processor(script.clone());
        world.run(&processor).await;
        assert_eq!(script.calls().len(), 2);
        for redrive in 1..=10 {
            world.move_back().await;
            world.run(&processor).await;
            assert_eq!(script.calls().len(), 2 + 2 * redrive, "redrive {redrive}");
            let body = state(&world.dead()[0]);
            assert_eq!(
                (&body["originalMessageId"], &body["retryState"]["redrives"]),
                (&json!(id), &json!(redrive))
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_fifo_group_goes_on_as_soon_as_its_dead_letter_is_confirmed() {
    let world = fifo();
    let mut ids = Vec::new();
    for body in ["a1", "b1", "a2", "a3", "b2"] {
        ids.push(world.send_as(body, |message| message.message_group_id(&body[..1])).await);
    }
    let script = Script::new(|seen| match seen.body.as_str() {
        "a1" | "a2" => Act::Fail(Failure::non_retryable("never")),
        _ => Act::Done,
    });
    let invocation = world.invoke(&world.processor(script.clone())).await.unwrap();
    assert!(invocation.failed().is_empty());
    let of_a: Vec<String> =
        script.seen().into_iter().filter(|body| body.starts_with('a')).collect();
    assert_eq!(of_a, ["a1", "a2", "a3"]);
    assert!(world.messages().is_empty());
    let system = |name: &str| -> Vec<String> {
        world.dead().iter().filter_map(|dead| dead.system_attributes.get(name).cloned()).collect()
    };
    assert_eq!(system("MessageGroupId"), ["a", "a"]);
    assert_eq!(system("MessageDeduplicationId"), [ids[0].as_str(), ids[2].as_str()]);
}

#[tokio::test(start_paused = true)]
async fn a_fifo_group_stays_behind_a_dead_letter_that_could_not_be_sent() {
    let world = fifo();
    for body in ["a1", "a2"] {
        world.send_as(body, |message| message.message_group_id("a")).await;
    }
    world.faults_of(SEND, |call| {
        if call.of_operation == 1 { Fault::refuse(403, "AccessDenied") } else { Fault::None }
    });
    let script = Script::new(|seen| match seen.body.as_str() {
        "a1" => Act::Fail(Failure::non_retryable("never")),
        _ => Act::Done,
    });
    let processor = world.processor(script.clone());
    let report = world.report(&processor, &world.receive().await).await;
    let dispositions: Vec<Disposition> =
        report.outcomes.iter().map(|outcome| outcome.disposition).collect();
    assert_eq!(
        dispositions,
        [
            Disposition::DeadLetter(DeadLetterReason::NonRetryable),
            Disposition::Release(ReleaseReason::BehindFailed)
        ]
    );
    world.run(&processor).await;
    assert_eq!(script.seen(), ["a1", "a2"]);
    assert_eq!((world.dead().len(), world.messages().len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_fifo_group_passes_what_can_never_be_sent_once_its_retries_are_spent() {
    for (body, wrap) in [("text".to_owned(), Wrap::Never), (object_of(LIMIT - 9), Wrap::WhenNeeded)]
    {
        let mut world = fifo();
        world.settings.wrap = wrap;
        world.settings.policy.max_retries = 2;
        let bad = world.send_as(&body, |message| message.message_group_id("a")).await;
        world.send_as("{}", |message| message.message_group_id("a")).await;
        let script = Script::new(|seen| match seen.body.as_str() {
            "{}" => Act::Done,
            _ => Act::Fail(Failure::non_retryable("never")),
        });
        world.run(&world.processor(script.clone())).await;
        let seen = script.seen();
        assert_eq!((seen.len(), seen[1].as_str()), (2, "{}"), "the first is called once");
        let dead: Vec<String> = world.dead().into_iter().map(|dead| dead.id).collect();
        assert_eq!(dead, [bad], "SQS has moved it");
    }
}

#[tokio::test(start_paused = true)]
async fn a_fifo_message_whose_retries_are_spent_is_sent_there_with_the_reason() {
    let mut world = fifo();
    world.settings.policy.max_retries = 2;
    world.send_as("{}", |message| message.message_group_id("a")).await;
    let script = Script::always(Failure::temporary("no"));
    world.run(&world.processor(script.clone())).await;
    assert_eq!(script.calls().len(), 3);
    assert_eq!(state(&world.dead()[0])["retryState"]["deadLetter"]["reason"], "retries-exhausted");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_whole_is_not_sent_there() {
    let world = direct(World::new());
    let id = world.send("{}").await;
    let mut event = world.receive().await;
    event["Records"][0]["messageAttributes"] = json!({ "tenant": 5 });
    let processor = world.processor(Script::always(Failure::temporary("no")));
    let report = world.report(&processor, &event).await;
    assert_eq!(
        report.outcomes[0].disposition,
        Disposition::DeadLetter(DeadLetterReason::NonRetryable)
    );
    assert_eq!((report.failed_ids().unwrap(), world.all_calls()), (vec![id.as_str()], (0, 0, 0)));
}

#[tokio::test(start_paused = true)]
async fn a_fifo_dead_letter_that_is_sent_twice_is_there_once() {
    // Deduplication lasts five minutes.
    let attributes = [("ContentBasedDeduplication", "true"), ("VisibilityTimeout", "60")];
    let world = direct(World::with_queue("orders.fifo", &attributes));
    world.send_as("a1", |message| message.message_group_id("a")).await;
    world.faults_of(DELETE, |_| Fault::refuse(500, "InternalFailure"));
    let script = Script::always(Failure::non_retryable("never"));
    let processor = world.processor(script.clone());
    // The environment dies before it answers, so that nobody deletes the original or knows of it.
    world.report(&processor, &world.receive().await).await;
    world.faults(|_| Fault::None);
    world.run(&world.processor(script.clone())).await;
    assert_eq!((script.calls().len(), world.calls(SEND)), (2, 2));
    assert_eq!((world.dead().len(), world.messages().len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_queue_is_not_its_own_dead_letter_queue() {
    let mut world = World::new();
    world.settings.dead_letter = Some(DeadLetterMode::Direct(world.queue.url().parse().unwrap()));
    world.send("{}").await;
    let processor = world.processor(Script::always(Failure::non_retryable("never")));
    let report = world.report(&processor, &world.receive().await).await;
    assert_eq!(
        report.outcomes[0].settlement,
        Settlement::Unconfirmed { code: "NoDeadLetterQueue".to_owned() }
    );
    assert_eq!(world.all_calls(), (0, 0, 0));
    tokio::time::sleep(secs(360)).await;
    world.run(&processor).await;
    assert_eq!(world.dead().len(), 1, "as in the mode redrive");

    let mut world = fifo();
    world.settings.dead_letter = Some(DeadLetterMode::Direct(world.queue.url().parse().unwrap()));
    for body in ["a1", "a2"] {
        world.send_as(body, |message| message.message_group_id("a")).await;
    }
    let script = Script::always(Failure::non_retryable("never"));
    let invocation = world.invoke(&world.processor(script.clone())).await.unwrap();
    assert_eq!((script.seen().len(), invocation.failed().len()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_queue_that_does_not_answer_holds_up_no_retry() {
    let world = direct(World::new());
    world.send_numbered(2).await;
    let dead_letters = world.dead_letters.name().to_owned();
    world.faults_of(SEND, move |call| match &call.queue {
        Some(queue) if *queue == dead_letters => Fault::LoseRequest,
        _ => Fault::None,
    });
    let script = Script::new(|seen| match (seen.n(), seen.receive_count) {
        (0, _) => Act::Fail(Failure::non_retryable("never")),
        _ => Act::Fail(Failure::temporary("no")),
    });
    let processor = world.processor(script.clone());
    for _ in 0..3 {
        world.invoke(&processor).await.unwrap();
        world.sleep_until_due().await;
    }
    let copies =
        world.requests(SEND).iter().filter(|request| request.queue == world.queue.name()).count();
    assert_eq!(copies, 3, "one for each attempt of the other message");
}

#[tokio::test(start_paused = true)]
async fn an_expired_message_holds_back_nobody_though_it_cannot_be_sent() {
    let mut world = fifo();
    world.settings.policy.message_ttl = Some(secs(60));
    world.send_as("a1", |message| message.message_group_id("a")).await;
    tokio::time::sleep(secs(61)).await;
    world.send_as("a2", |message| message.message_group_id("a")).await;
    world.faults_of(SEND, |_| Fault::refuse(403, "AccessDenied"));
    let script = Script::new(|_| Act::Done);
    let invocation = world.invoke(&world.processor(script.clone())).await.unwrap();
    assert_eq!((script.seen(), invocation.failed().len()), (vec!["a2".to_owned()], 1));
}

#[tokio::test(start_paused = true)]
async fn after_the_last_redrive_it_goes_back_with_the_same_words() {
    let world = direct(World::new());
    world.send("{}").await;
    let script = Script::always(Failure::non_retryable("no such account"));
    let processor = world.processor(script.clone());
    world.run(&processor).await;
    let log = Log::default();
    let _listening = log.listen();
    for _ in 1..=12 {
        world.move_back().await;
        world.run(&processor).await;
        let why = &state(&world.dead()[0])["retryState"]["deadLetter"];
        assert_eq!(
            (&why["reason"], &why["detail"]),
            (&json!("non-retryable"), &json!("no such account"))
        );
    }
    assert_eq!(script.calls().len(), 1 + 10, "ten redrives start afresh");
    assert_eq!(log.text().matches(r#"reason="non-retryable""#).count(), 12, "{}", log.text());
}

#[tokio::test(start_paused = true)]
async fn ten_final_failures_of_a_group_wait_for_no_company() {
    let world = fifo();
    for n in 0..10 {
        world.send_as(&numbered(n), |message| message.message_group_id("a")).await;
    }
    let script = Script::always(Failure::non_retryable("never"));
    let invocation = world.invoke(&world.processor(script.clone())).await.unwrap();
    assert_eq!((script.calls().len(), world.dead().len()), (10, 10));
    assert!(invocation.elapsed < secs(1), "{:?}", invocation.elapsed);
}

#[tokio::test(start_paused = true)]
async fn a_fifo_dead_letter_queue_serves_a_standard_queue_and_the_reverse() {
    for (name, dead) in [("orders", "all-dlq.fifo"), ("orders.fifo", "all-dlq")] {
        let mut world = World::with_queue(name, &[]);
        let dead = world.sqs.create_queue(dead, []).unwrap();
        world.settings.dead_letter = Some(DeadLetterMode::Direct(dead.url().parse().unwrap()));
        let is_fifo = world.queue.is_fifo();
        for n in 0..2 {
            let group = (is_fifo || n == 1).then(|| "tenant".to_owned());
            let id = is_fifo.then(|| n.to_string());
            let with = |message: SendMessageFluentBuilder| {
                message.set_message_group_id(group).set_message_deduplication_id(id)
            };
            world.send_as(&numbered(n), with).await;
        }
        let processor = world.processor(Script::always(Failure::non_retryable("never")));
        let invocation = world.invoke(&processor).await.unwrap();
        assert!(invocation.failed().is_empty(), "{name}");
        assert_eq!(world.sqs.messages(&dead).unwrap().len(), 2, "{name}");
    }
}
