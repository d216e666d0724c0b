//! The target queue of a copy, and batches as large as Lambda makes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use requeue::classify::Response;
use requeue::embedded::{EventSourceMapping, Fault};
use requeue::queue::QueueArn;
use requeue::{DeadLetterMode, Failure, Message, QueueSettings, Record};
use tokio::time::Instant;

use crate::world::{
    Act, DELETE, Log, SEND, Script, VISIBILITY, World, joined, millis, secs, state,
};

#[tokio::test(start_paused = true)]
async fn each_copy_goes_to_the_queue_that_its_record_names() {
    for arn in [
        "arn:aws:sqs:us-east-1:000000000000:invoices",
        "arn:aws:sqs:eu-west-1:123456789012:invoices",
        "arn:aws-cn:sqs:cn-north-1:123456789012:invoices",
        "arn:aws-us-gov:sqs:us-gov-west-1:123456789012:invoices",
        "arn:aws-eusc:sqs:eusc-de-east-1:123456789012:invoices",
    ] {
        let world = World::new();
        let other: QueueArn = arn.parse().unwrap();
        world.sqs.create_queue("invoices", []).unwrap();
        world.send_numbered(2).await;
        let orders = world.receive().await;
        let client = world.sqs.client();
        for _ in 0..2 {
            let invoice =
                client.send_message().queue_url(other.url()).message_body(r#"{"invoice":1}"#);
            invoice.send().await.unwrap();
        }
        let mapping = EventSourceMapping::new(world.sqs.clone(), other.clone(), 10);
        let invoices = mapping.poll(Duration::ZERO).await.unwrap().unwrap().event(&other);

        let processor =
            world.processor(Script::always(Failure::temporary("no").retry_after(secs(40))));
        let invocation = world.deliver(&processor, &joined([&orders, &invoices])).await;
        assert!(invocation.failed().is_empty(), "{arn}");
        for operation in [SEND, DELETE] {
            let mut requests: Vec<_> = world
                .requests(operation)
                .into_iter()
                .map(|request| (request.queue, request.entries))
                .collect();
            requests.sort();
            let expected = [("invoices".to_owned(), 2), ("orders".to_owned(), 2)];
            assert_eq!(requests, expected, "{arn} {operation}");
        }
        assert_eq!(world.messages().len(), 2);
        assert!(world.messages().iter().all(|copy| !state(copy)["n"].is_null()));
        let invoices = world.sqs.messages(&other).unwrap();
        assert_eq!(invoices.len(), 2);
        assert!(invoices.iter().all(|copy| !state(copy)["invoice"].is_null()));
    }
}

#[tokio::test(start_paused = true)]
async fn trouble_with_one_queue_is_no_trouble_with_the_other() {
    let world = World::new();
    let other = world.sqs.create_queue("invoices", []).unwrap();
    world.send("{}").await;
    let orders = world.receive().await;
    world
        .sqs
        .client()
        .send_message()
        .queue_url(other.url())
        .message_body("{}")
        .send()
        .await
        .unwrap();
    let mapping = EventSourceMapping::new(world.sqs.clone(), other.clone(), 10);
    let invoices = mapping.poll(Duration::ZERO).await.unwrap().unwrap().event(&other);
    world.faults_of(SEND, |call| match call.queue.as_deref() {
        Some("invoices") => Fault::refuse(403, "AccessDenied"),
        _ => Fault::None,
    });
    let processor = world.processor(Script::always(Failure::temporary("no").retry_after(secs(40))));
    let invocation = world.deliver(&processor, &joined([&orders, &invoices])).await;
    let failed = invocation.failed();
    assert_eq!(failed.len(), 1);
    assert_eq!(world.sqs.messages(&other).unwrap()[0].id, failed[0]);
    assert_ne!(world.only_message().id, invocation.ids[0], "the order has moved");
}

#[tokio::test(start_paused = true)]
async fn a_record_whose_queue_is_not_known_is_left_in_it() {
    for arn in
        [None, Some("not an ARN"), Some(""), Some("arn:aws:sns:us-east-1:000000000000:orders")]
    {
        let world = World::new();
        let ids = world.send_numbered(2).await;
        let mut event = world.receive().await;
        event["Records"][0]["eventSourceARN"] = arn.into();
        let processor = world.processor(Script::always(Failure::temporary("no")));
        let invocation = world.deliver(&processor, &event).await;
        assert_eq!(invocation.failed(), [ids[0].as_str()], "{arn:?}");
        assert_eq!(world.entries(SEND), [1], "{arn:?}: the neighbour alone");
        assert!(world.messages().iter().any(|message| message.id == ids[0]), "{arn:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn log_lines_name_the_queue_of_their_messages() {
    let world = World::new();
    let other = world.sqs.create_queue("invoices", []).unwrap();
    world.send("{}").await;
    let client = world.sqs.client();
    client.send_message().queue_url(other.url()).message_body("{}").send().await.unwrap();
    let mapping = EventSourceMapping::new(world.sqs.clone(), other.clone(), 10);
    let invoices = mapping.poll(Duration::ZERO).await.unwrap().unwrap().event(&other);
    let orders = world.receive().await;
    let processor = world.processor(Script::always(Failure::temporary("no")));
    let log = Log::default();
    let _listening = log.listen();
    for (event, queue) in [
        (&orders, Some("orders")),
        (&invoices, Some("invoices")),
        (&joined([&orders, &invoices]), None),
    ] {
        world.invoke_with(&processor, event).await.unwrap();
        let text = log.take();
        let of_batch = text.lines().find(|line| line.contains(" message=batch")).unwrap();
        let named = queue.map(|queue| format!(" queue=\"{queue}\""));
        assert_eq!(of_batch.contains(" queue="), named.is_some(), "{of_batch}");
        let Some(named) = named else { continue };
        assert!(of_batch.contains(&named), "{of_batch}");
        for begin in ["message ", "requeue::telemetry message=message "] {
            let line = text
                .lines()
                .find(|line| line.starts_with(begin))
                .unwrap_or_else(|| panic!("{begin}: {text}"));
            assert!(line.contains(&named), "{line}");
        }
    }
}

/// Ten thousand messages that can be received now.
async fn fill(world: &World) {
    for at in 0..10_000 {
        let mut record = Record::default();
        record.message_id = Some(format!("id-{at}"));
        record.receipt_handle = Some(format!("handle-{at}"));
        world.sqs.put_in_flight(&world.queue, record).unwrap();
    }
    tokio::time::sleep(VISIBILITY).await;
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_messages_that_fail_cost_a_fifth_of_a_request_each() {
    let mut world = World::new();
    world.batch_size = 10_000;
    world.settings.limits.concurrency = 100;
    world.function_timeout = secs(60);
    fill(&world).await;
    // Every request takes as long as a request does.
    world.faults(|_| Fault::RespondAfter(Duration::from_millis(20)));
    let script = Script::new(|_| {
        let slow = Failure::temporary("no").retry_after(secs(40));
        Act::after(Duration::from_millis(5), Act::Fail(slow))
    });
    let invocation = world.invoke(&world.processor(script.clone())).await.unwrap();
    assert!(invocation.failed().is_empty());
    assert_eq!(script.calls().len(), 10_000);
    assert_eq!(world.all_calls(), (1_000, 1_000, 0));
    assert!(invocation.elapsed < secs(2), "{:?}", invocation.elapsed);
    assert_eq!(world.messages().len(), 10_000);
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_messages_and_a_queue_that_hangs_are_answered_in_time() {
    let mut world = World::new();
    (world.batch_size, world.settings.limits.concurrency) = (10_000, 1_000);
    fill(&world).await;
    world.faults(|_| Fault::Hang);
    let script = Script::always(Failure::temporary("no"));
    let invocation = world.invoke(&world.processor(script)).await.unwrap();
    assert_eq!(invocation.failed().len(), 10_000);
    assert!(invocation.elapsed < secs(60), "{:?}", invocation.elapsed);
    assert_eq!(world.messages().len(), 10_000);
}

#[tokio::test(start_paused = true)]
async fn fifty_requests_are_under_way_at_once_and_no_more() {
    let mut world = World::new();
    (world.batch_size, world.settings.limits.concurrency) = (1_000, 1_000);
    world.send_numbered(600).await;
    world.faults_of(SEND, |_| Fault::RespondAfter(millis(1_000)));
    world.invoke(&world.processor(Script::always(Failure::temporary("no")))).await.unwrap();
    let sends: Vec<Instant> = world.requests(SEND).iter().map(|request| request.at).collect();
    let together: Vec<usize> =
        sends.chunk_by(|one, other| one == other).map(<[Instant]>::len).collect();
    assert_eq!(together, [50, 10]);
    assert!(sends[50] - sends[0] >= secs(1), "each of them has its answer");
}

#[tokio::test(start_paused = true)]
async fn a_queue_with_a_policy_of_its_own_has_its_retries_pauses_and_circuit() {
    let mut world = World::new();
    world.protect();
    let invoices = world.sqs.create_queue("invoices", []).unwrap();
    let policy: QueueSettings = r#"{"maxRetries": 1}"#.parse().unwrap();
    world.settings = world.settings.policy_for("invoices", policy);
    // Six failures open the circuit of the one queue.
    world.send_numbered(6).await;
    let client = world.sqs.client();
    for body in ["{}", r#"{"retryCount":1}"#, r#"{"retryCount":2}"#] {
        let invoice = client.send_message().queue_url(invoices.url()).message_body(body);
        invoice.send().await.unwrap();
    }
    let processor = world.processor(Script::always(Failure::temporary("no")));
    let orders = world.report(&processor, &world.receive().await).await;
    assert!(orders.outcomes.iter().all(|outcome| outcome.retry.is_none_or(|r| r.max == 50)));
    let mapping = EventSourceMapping::new(world.sqs.clone(), invoices.clone(), 10);
    let batch = mapping.poll(Duration::ZERO).await.unwrap().unwrap();
    let report = world.report(&processor, &batch.event(&invoices)).await;
    let retries: Vec<_> = report
        .outcomes
        .iter()
        .map(|outcome| {
            (outcome.retry_count, outcome.disposition.as_str(), outcome.elapsed.is_some())
        })
        .collect();
    // A count above the policy's own most is not believed.
    assert_eq!(retries, [(0, "requeue", true), (1, "dead-letter", true), (0, "requeue", true)]);
    world.send_numbered(1).await;
    let paused = world.report(&processor, &world.receive().await).await;
    assert_eq!(paused.outcomes[0].disposition.reason(), Some("circuit-open"));
}

#[tokio::test(start_paused = true)]
async fn a_queue_has_its_own_rules_timeout_concurrency_and_dead_letter_mode() {
    let mut world = World::new();
    let invoices = world.sqs.create_queue("invoices", []).unwrap();
    let dead = world.sqs.create_queue("invoices-dead", []).unwrap();
    let document = format!(
        r#"{{
            "rules": [{{"match": {{"status": 404}}, "class": "non-retryable", "reason": "general"}}],
            "queues": {{"invoices": {{
                "rules": [{{"match": {{"status": 404}}, "class": "temporary", "reason": "own"}}],
                "timeoutSeconds": 5, "concurrency": 2, "deadLetter": "{}"
            }}}}
        }}"#,
        dead.url()
    );
    world.settings.set_policy(&document).unwrap();
    world.settings.dead_letter = Some(DeadLetterMode::Annotate);
    world.settings.policy.max_pause = None;
    world.settings.policy.circuit_breaker = None;
    let bodies = [r#"{"act":"classify"}"#, r#"{"act":"hang"}"#, r#"{"act":"die"}"#];
    for queue in [&world.queue, &invoices] {
        for body in bodies {
            let request = world.sqs.client().send_message().queue_url(queue.url());
            request.message_body(body).send().await.unwrap();
        }
    }
    let running = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let seen = (Arc::clone(&running), Arc::clone(&most));
    let handler = move |message: Message| {
        let (running, most) = seen.clone();
        async move {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(millis(10)).await;
            running.fetch_sub(1, Ordering::SeqCst);
            match message.body().to_string() {
                body if body.contains("hang") => std::future::pending().await,
                body if body.contains("die") => Err(Failure::non_retryable("no")),
                _ => {
                    let response = Response { status: 404, headers: &[], body: b"" };
                    Err(Failure::from_response(&response, SystemTime::UNIX_EPOCH))
                }
            }
        }
    };
    let processor = world.processor(handler);
    for (queue, at_once, seconds, class, rule, copies) in [
        (&world.queue, 3, 30, "non-retryable", "general", 0),
        (&invoices, 2, 5, "temporary", "own", 1),
    ] {
        most.store(0, Ordering::SeqCst);
        let mapping = EventSourceMapping::new(world.sqs.clone(), queue.clone(), 10);
        let event = mapping.poll(Duration::ZERO).await.unwrap().unwrap().event(queue);
        let begun = Instant::now();
        let report = world.report(&processor, &event).await;
        assert_eq!(begun.elapsed().as_secs(), seconds, "{queue}");
        assert_eq!(most.load(Ordering::SeqCst), at_once, "{queue}");
        let classified = &report.outcomes[0];
        assert_eq!(classified.class.unwrap().as_str(), class, "{queue}: {classified:?}");
        assert!(classified.detail.as_ref().unwrap().contains(rule), "{queue}: {classified:?}");
        assert_eq!(world.sqs.messages(&dead).unwrap().len(), copies, "{queue}");
    }
}
