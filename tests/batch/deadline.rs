//! The invocation ends before its deadline without losing a message, whatever handlers and queue
//! do.

use std::time::Duration;

use requeue::embedded::Fault;
use requeue::{Deferral, Disposition, Failure, FailureClass, ReleaseReason, Sampler, Settlement};
use serde_json::json;
use tokio::time::Instant;

use crate::world::{
    Act, DELETE, SEND, Script, VISIBILITY_CHANGE, World, joined, millis, secs, state,
};

/// What the function may take, and when the reserve begins: 5 s before the end, but at most a
/// quarter of the whole.
const CUTOFFS: [(Duration, Duration); 4] =
    [(secs(60), secs(55)), (secs(20), secs(15)), (secs(8), secs(6)), (millis(400), millis(300))];

#[tokio::test(start_paused = true)]
async fn a_handler_that_overruns_is_cancelled_and_requeued_as_temporary() {
    for (function_timeout, cutoff) in CUTOFFS {
        let mut world = World::new();
        world.function_timeout = function_timeout;
        world.settings.limits.timeout = secs(900);
        world.send_numbered(2).await;
        let script = Script::new(|seen| if seen.n() == 0 { Act::Hang } else { Act::Done });
        let processor = world.processor(script.clone());
        let event = world.receive().await;
        let report = world.report(&processor, &event).await;
        assert_eq!(report.elapsed, cutoff, "{function_timeout:?}");
        assert_eq!(script.calls()[0].time_left, cutoff);
        let outcome = &report.outcomes[0];
        assert_eq!(outcome.class, Some(FailureClass::Temporary));
        assert_eq!(outcome.settlement, Settlement::Moved);
        assert_eq!(report.outcomes[1].disposition, Disposition::Complete);
        let copy = world
            .messages()
            .into_iter()
            .find(|message| message.body.contains("retryCount"))
            .unwrap();
        assert_eq!(state(&copy)["retryCount"], 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_ends_just_before_the_cutoff_is_done() {
    for (work, done) in [(14_999, true), (15_001, false)] {
        let mut world = World::new();
        world.function_timeout = secs(20);
        world.send("{}").await;
        let processor = world.processor(Script::new(move |_| Act::work(millis(work))));
        let invocation = world.invoke(&processor).await.unwrap();
        assert!(invocation.failed().is_empty());
        assert_eq!(world.messages().is_empty(), done, "{work}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_never_started_is_deferred_and_not_failed() {
    for (sample, wait) in [(0.0, 0), (0.01, 1), (0.99, 1)] {
        let mut world = World::new();
        world.function_timeout = secs(20);
        world.settings.limits.concurrency = 1;
        world.settings.sampler = Sampler::always(sample);
        let ids = world.send_numbered(3).await;
        let script = Script::new(|seen| if seen.n() == 0 { Act::Hang } else { Act::Done });
        let processor = world.processor(script.clone());
        let invocation = world.invoke(&processor).await.unwrap();
        assert!(invocation.failed().is_empty(), "no receive is burnt");
        assert!(invocation.elapsed < secs(20), "{:?}", invocation.elapsed);
        assert_eq!(script.calls().len(), 1);
        let never_started =
            world.messages().into_iter().filter(|message| !message.body.contains(r#""n":0"#));
        let mut originals = Vec::new();
        for copy in never_started {
            let body = state(&copy);
            assert_eq!(
                (&body["retryCount"], &body["retryState"]["deferrals"]),
                (&0.into(), &1.into())
            );
            assert!(body["retryState"]["class"].is_null());
            assert_eq!(world.wait(&copy), secs(wait), "{sample}");
            assert_eq!(copy.receive_count, 0);
            originals.push(body["originalMessageId"].as_str().unwrap().to_owned());
        }
        assert_eq!(originals, ids[1..]);
        world.run(&world.processor(Script::new(|_| Act::Done))).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_deferred_again_and_again_waits_longer_keeps_its_retries_and_is_left_to_sqs_in_the_end()
 {
    let mut world = World::new();
    world.settings.policy.max_deferrals = 12;
    world.settings.limits.concurrency = 1;
    world.function_timeout = secs(20);
    world.send("{}").await;
    // A neighbour takes all the time there is.
    let neighbour = json!({ "Records": [{ "messageId": "neighbour", "body": "{}" }] });
    let script = Script::new(|seen| match seen.id.as_deref() {
        Some("neighbour") => Act::Hang,
        _ => Act::Done,
    });
    let processor = world.processor(script.clone());
    let mut waits = Vec::new();
    for deferrals in 1..=12 {
        let event = joined([&neighbour, &world.receive().await]);
        let report = world.report(&processor, &event).await;
        let Disposition::Defer { reason: why, wait, .. } = report.outcomes[1].disposition else {
            panic!("{:?}", report.outcomes[1].disposition);
        };
        assert_eq!(why, Deferral::NoTimeLeft);
        let copy = state(&world.only_message());
        assert_eq!(
            (&copy["retryCount"], &copy["retryState"]["deferrals"]),
            (&0.into(), &deferrals.into())
        );
        waits.push(wait.total().as_secs());
        tokio::time::sleep(wait.total()).await;
    }
    assert_eq!(waits, [0, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60, 60]);
    let event = joined([&neighbour, &world.receive().await]);
    let report = world.report(&processor, &event).await;
    assert_eq!(
        report.outcomes[1].disposition,
        Disposition::Release(ReleaseReason::DeferredTooOften)
    );
    assert_eq!(report.outcomes[1].settlement, Settlement::Kept);
    world.run(&processor).await;
    let called: Vec<_> = script
        .calls()
        .iter()
        .filter(|seen| seen.id.as_deref() != Some("neighbour"))
        .map(|seen| seen.attempt)
        .collect();
    assert_eq!(called, [1]);
}

#[tokio::test(start_paused = true)]
async fn calls_that_hang_do_not_keep_the_response() {
    for operation in [SEND, DELETE, VISIBILITY_CHANGE] {
        for (function_timeout, _) in CUTOFFS {
            for act in [Act::Fail(Failure::temporary("no")), Act::Hang] {
                let mut world = World::new();
                world.function_timeout = function_timeout;
                let ids = world.send_numbered(10).await;
                world.faults(move |call| match call.operation.as_str() {
                    hanging if hanging == operation => Fault::Hang,
                    // So that a visibility is to be changed at all.
                    SEND if operation == VISIBILITY_CHANGE => Fault::refuse(403, "AccessDenied"),
                    _ => Fault::None,
                });
                let processor = world.processor(Script::new(move |_| act.clone()));
                let invocation = world.invoke(&processor).await.unwrap();
                assert!(
                    invocation.elapsed < function_timeout,
                    "{operation}: {:?} of {function_timeout:?}",
                    invocation.elapsed
                );
                let failed = if operation == DELETE { Vec::new() } else { ids };
                assert_eq!(invocation.failed(), failed, "{operation} {function_timeout:?}");
                assert_eq!(world.messages().len(), 10, "{operation}: neither lost nor doubled");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn slow_calls_are_waited_for_while_there_is_time() {
    let world = World::new();
    world.send_numbered(10).await;
    world.faults(|_| Fault::RespondAfter(millis(9_900)));
    let invocation =
        world.invoke(&world.processor(Script::always(Failure::temporary("no")))).await.unwrap();
    assert!(invocation.failed().is_empty());
    assert_eq!(world.all_calls(), (1, 1, 0));
    assert_eq!(invocation.elapsed, millis(19_800));
}

#[tokio::test(start_paused = true)]
async fn an_original_is_deleted_as_soon_as_its_copy_is_confirmed() {
    let world = World::new();
    let ids = world.send_numbered(2).await;
    let script =
        Script::new(
            |seen| if seen.n() == 0 { Act::Fail(Failure::temporary("no")) } else { Act::Hang },
        );
    let processor = world.processor(script.clone());
    let event = world.receive().await;
    // The function is killed long before its handlers' time is over.
    let killed = tokio::time::timeout(secs(5), world.invoke_with(&processor, &event)).await;
    assert!(killed.is_err());
    let left = world.messages();
    assert_eq!(left.len(), 2);
    assert!(left.iter().all(|message| message.id != ids[0]), "one copy and no second one to come");
    assert!(left.iter().any(|message| message.id == ids[1]));
}

#[tokio::test(start_paused = true)]
async fn an_invocation_without_time_left_calls_nobody_and_says_so() {
    let mut world = World::new();
    world.function_timeout = Duration::ZERO;
    let id = world.send("{}").await;
    let script = Script::new(|_| Act::Done);
    let processor = world.processor(script.clone());
    let started = Instant::now();
    let event = world.receive().await;
    let report = world.report(&processor, &event).await;
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert!(script.calls().is_empty());
    let settled = &report.outcomes[0].settlement;
    let is_listed = report.failed_ids().unwrap() == [id.as_str()];
    assert_eq!(is_listed, settled.is_kept());
    assert!(!world.messages().is_empty());
}
