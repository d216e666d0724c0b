//! One record never changes the outcome of its neighbours.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use requeue::queue::SqsQueue;
use requeue::{
    BatchProcessor, DeadLetterReason, Deferral, Disposition, Failure, FailureClass, Message,
    Settlement,
};
use tokio::time::Instant;

use crate::world::{Act, Script, World, millis, numbered, secs};

#[tokio::test(start_paused = true)]
async fn ten_fates_in_one_batch() {
    let world = World::new();
    world.send_numbered(10).await;
    let processor = world.processor(Script::new(|seen| match seen.n() {
        0 | 8 => Act::Done,
        1 => Act::Fail(Failure::temporary("no")),
        2 => Act::Panic,
        3 => Act::Hang,
        4 => Act::Fail(Failure::non_retryable("never")),
        5 => Act::Fail(Failure::rate_limit("slowly").retry_after(secs(1_000))),
        6 => Act::after(secs(3), Act::Panic),
        7 => Act::Fail(Failure::postpone(secs(5))),
        _ => Act::Fail(Failure::quota("tomorrow")),
    }));
    let event = world.receive().await;
    let report = world.report(&processor, &event).await;

    assert_eq!(report.elapsed, secs(30), "the one that hangs is cut off after 30 s");
    let (temporary, moved) = (Some(FailureClass::Temporary), Settlement::Moved);
    let expected = [
        ("complete", None, Settlement::Done),
        ("requeue", temporary, moved.clone()),
        ("requeue", temporary, moved.clone()),
        ("requeue", temporary, moved.clone()),
        ("dead-letter", Some(FailureClass::NonRetryable), Settlement::Kept),
        ("requeue", Some(FailureClass::RateLimit), moved.clone()),
        ("requeue", temporary, moved.clone()),
        ("defer", None, moved.clone()),
        ("complete", None, Settlement::Done),
        ("requeue", Some(FailureClass::Quota), moved.clone()),
    ];
    assert_eq!(report.outcomes.len(), expected.len());
    for (n, (outcome, (disposition, class, settlement))) in
        report.outcomes.iter().zip(expected).enumerate()
    {
        assert_eq!(
            outcome.message_id.as_deref(),
            crate::world::records(&event)[n]["messageId"].as_str()
        );
        assert_eq!(outcome.disposition.as_str(), disposition, "{n}");
        assert_eq!((outcome.class, &outcome.settlement), (class, &settlement), "{n}");
    }
    assert_eq!(report.outcomes[2].detail.as_deref(), Some("the handler panicked"));
    assert_eq!(report.outcomes[3].detail.as_deref(), Some("the handler ran out of time"));
}

#[tokio::test(start_paused = true)]
async fn every_fate_beside_every_other() {
    let acts = [
        ("done", Act::Done),
        ("failure", Act::Fail(Failure::temporary("no"))),
        ("panic", Act::Panic),
        ("hang", Act::Hang),
        ("final", Act::Fail(Failure::non_retryable("never"))),
    ];
    let expected = |name: &str| match name {
        "done" => "complete",
        "final" => "dead-letter",
        _ => "requeue",
    };
    for (first_name, first) in &acts {
        for (second_name, second) in &acts {
            let world = World::new();
            world.send_numbered(2).await;
            let pair = [first.clone(), second.clone()];
            let processor = world.processor(Script::new(move |seen| pair[seen.n()].clone()));
            let report = world.report(&processor, &world.receive().await).await;
            let dispositions: Vec<_> =
                report.outcomes.iter().map(|outcome| outcome.disposition.as_str()).collect();
            assert_eq!(
                dispositions,
                [expected(first_name), expected(second_name)],
                "{first_name} beside {second_name}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_uses_a_retry_of_the_class_temporary() {
    let world = World::new();
    world.send("{}").await;
    let processor = world.processor(Script::new(|_| Act::Panic));
    world.invoke(&processor).await.unwrap();
    let copy = crate::world::state(&world.only_message());
    assert_eq!(copy["retryCount"], 1);
    assert_eq!(copy["retryState"]["counts"], serde_json::json!({ "temporary": 1 }));
    assert_eq!(world.wait(&world.only_message()), secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_handler_has_its_own_time_out() {
    for (work, expected) in [(29_999, "complete"), (30_001, "requeue")] {
        let world = World::new();
        world.send("{}").await;
        let script = Script::new(move |_| Act::work(millis(work)));
        let processor = world.processor(script.clone());
        let report = world.report(&processor, &world.receive().await).await;
        assert_eq!(report.outcomes[0].disposition.as_str(), expected, "{work}");
        assert_eq!(script.calls()[0].time_left, secs(30));
        assert!(report.elapsed <= secs(30));
    }
}

#[derive(serde::Deserialize)]
struct Order {
    #[allow(dead_code, reason = "only whether it can be read matters")]
    id: u32,
}

#[tokio::test(start_paused = true)]
async fn a_body_that_the_type_cannot_read_is_final_and_stays_unspoken() {
    let calls = Arc::new(AtomicUsize::new(0));
    let world = World::new();
    for body in [
        r#"{"id":"SECRET-1"}"#,
        r#"{"SECRET-2":1}"#,
        "SECRET-3",
        r#"{"id":7}"#,
        r#"{"id":1,"SECRET-4"#,
    ] {
        world.send(body).await;
    }
    let counted = Arc::clone(&calls);
    let handler = move |_: Message<Order>| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Ok::<(), Failure>(()) }
    };
    let queue = SqsQueue::new(&world.sqs.client());
    let processor: BatchProcessor<_, _, Order> =
        BatchProcessor::new(handler, queue, world.settings.clone());
    let event: requeue::SqsEvent = serde_json::from_value(world.receive().await).unwrap();
    let report = processor.process(event.records.unwrap(), Instant::now() + secs(60)).await;

    assert_eq!(calls.load(Ordering::Relaxed), 1);
    assert_eq!(world.all_calls(), (0, 0, 0));
    for (n, outcome) in report.outcomes.iter().enumerate() {
        if n == 3 {
            assert_eq!(outcome.disposition, Disposition::Complete);
            continue;
        }
        assert_eq!(
            outcome.disposition,
            Disposition::DeadLetter(DeadLetterReason::NonRetryable),
            "{n}"
        );
        assert_eq!(outcome.class, Some(FailureClass::NonRetryable));
        let reason = outcome.detail.as_deref().unwrap();
        assert!(
            reason.starts_with("the body does not fit the handler's type (line 1, column "),
            "{reason}"
        );
        assert!(!format!("{outcome:?}").contains("SECRET"), "{outcome:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_task_outlives_its_batch() {
    let mut world = World::new();
    world.settings.limits.timeout = secs(2);
    world.send_numbered(10).await;
    let script = Script::new(|seen| match seen.n() {
        0..3 => Act::Hang,
        3..6 => Act::work(secs(1)),
        6..8 => Act::Panic,
        _ => Act::work(secs(90)),
    });
    let processor = world.processor(script.clone());
    let before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    world.invoke(&processor).await.unwrap();
    assert_eq!(script.running(), 0);
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), before);
}

#[tokio::test(start_paused = true)]
async fn no_task_outlives_an_invocation_that_is_dropped() {
    let world = World::new();
    world.send_numbered(3).await;
    let script = Script::new(|_| Act::Hang);
    let processor = world.processor(script.clone());
    let event = world.receive().await;
    let before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let cut = tokio::time::timeout(secs(1), world.invoke_with(&processor, &event)).await;
    assert!(cut.is_err());
    tokio::time::sleep(millis(1)).await;
    assert_eq!((script.calls().len(), script.running()), (3, 0));
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), before);
}

#[tokio::test(start_paused = true)]
async fn so_many_handlers_run_at_once_and_no_more() {
    for concurrency in [1, 3, 10] {
        let mut world = World::new();
        world.settings.limits.concurrency = concurrency;
        world.send_numbered(10).await;
        let most = Arc::new(AtomicUsize::new(0));
        let now = Arc::new(AtomicUsize::new(0));
        let handler = {
            let (most, now) = (Arc::clone(&most), Arc::clone(&now));
            move |_: Message| {
                let (most, now) = (Arc::clone(&most), Arc::clone(&now));
                async move {
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    tokio::time::sleep(secs(1)).await;
                    now.fetch_sub(1, Ordering::SeqCst);
                    Ok::<(), Failure>(())
                }
            }
        };
        let invocation = world.invoke(&world.processor(handler)).await.unwrap();
        assert_eq!(most.load(Ordering::SeqCst), concurrency);
        let rounds = 10_u64.div_ceil(u64::try_from(concurrency).unwrap());
        assert_eq!(invocation.elapsed, secs(rounds));
    }
}

#[tokio::test(start_paused = true)]
async fn a_postponement_uses_no_retry_and_comes_at_its_time() {
    for (asked, first_hop, total) in
        [(1, 1, 1), (899, 899, 899), (900, 900, 900), (901, 900, 901), (2_000, 900, 2_000)]
    {
        let world = World::new();
        world.send(&numbered(0)).await;
        let script = Script::failing_first(1, Failure::postpone(secs(asked)));
        let processor = world.processor(script.clone());
        let report = world.report(&processor, &world.receive().await).await;
        let Disposition::Defer { reason: why, wait, .. } = report.outcomes[0].disposition else {
            panic!("{:?}", report.outcomes[0].disposition);
        };
        assert_eq!((why, wait.total()), (Deferral::Postponed, secs(asked)));
        let copy = world.only_message();
        assert_eq!(
            (world.wait(&copy), &crate::world::state(&copy)["retryCount"]),
            (secs(first_hop), &0.into())
        );
        world.run(&processor).await;
        let calls = script.calls();
        assert_eq!((calls.len(), calls[1].at - calls[0].at), (2, secs(total)), "{asked}");
        assert_eq!(calls[1].attempt, 1, "{asked}");
    }
}
