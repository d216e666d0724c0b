//! The strategy `visibility` on a standard queue: a message waits in flight, and
//! Requeue sends nothing.

use std::time::Duration;

use requeue::embedded::{EntryFault, EntryOutcome, Fault, InvocationResult};
use requeue::{
    DeadLetterMode, Deferral, Disposition, Failure, ReleaseReason, Settlement, Strategy,
};
use serde_json::Value;

use crate::world::{
    Act, MAX_RECEIVE_COUNT, SEND, Script, VISIBILITY, VISIBILITY_CHANGE, World, millis, secs, state,
};

fn world() -> World {
    let mut world = World::new();
    world.settings.strategy = Strategy::Visibility;
    world
}

#[tokio::test(start_paused = true)]
async fn ten_that_fail_together_wait_their_time_for_one_request() {
    let world = world();
    let ids = world.send_numbered(10).await;
    let script = Script::failing_first(1, Failure::rate_limit("slowly").retry_after(secs(1_000)));
    let processor = world.processor(script.clone());
    let invocation = world.invoke(&processor).await.unwrap();
    assert_eq!(invocation.failed(), ids);
    assert_eq!(world.all_calls(), (0, 0, 1));
    assert!(world.messages().iter().all(|message| world.wait(message) == secs(1_000)));
    let begun = tokio::time::Instant::now();
    world.run(&processor).await;
    assert_eq!(begun.elapsed(), secs(1_000));
    assert_eq!((script.calls().len(), world.all_calls()), (20, (0, 0, 1)));
    let seen = &script.calls()[19];
    assert_eq!((seen.attempt, seen.receive_count), (2, 2));
    assert_eq!(seen.id, seen.original_id, "it is the same message");
}

#[tokio::test(start_paused = true)]
async fn receives_count_the_retries_and_grow_the_delay() {
    let mut world = world();
    world.settings.policy.max_retries = 3;
    let id = world.send("text, as it was sent").await;
    let script = Script::always(Failure::temporary("no"));
    world.run(&world.processor(script.clone())).await;
    let calls = script.calls();
    let times: Vec<u64> = calls.iter().map(|seen| (seen.at - calls[0].at).as_secs()).collect();
    // 2 s × 3ⁿ, of which the smallest sample leaves half. Then SQS delivers it once more, after the
    // queue's visibility timeout, and it is not handled again.
    assert_eq!(times, [0, 1, 4, 13]);
    assert_eq!(
        calls.iter().map(|seen| seen.is_last).collect::<Vec<_>>(),
        [false, false, false, true]
    );
    let dead = world.dead();
    assert_eq!((dead[0].id.as_str(), dead[0].body.as_str()), (id.as_str(), "text, as it was sent"));
    assert_eq!((world.calls(SEND), world.calls(VISIBILITY_CHANGE)), (0, 3));
}

#[tokio::test(start_paused = true)]
async fn receives_without_a_call_count_but_nothing_is_dead_lettered_uncalled() {
    let mut world = world();
    world.settings.policy.max_retries = 1;
    world.send("{}").await;
    let script = Script::new(|_| Act::Done);
    let mapping = world.mapping();
    for _ in 0..MAX_RECEIVE_COUNT - 1 {
        let batch = mapping.poll(Duration::ZERO).await.unwrap().unwrap();
        mapping.acknowledge(&batch, &InvocationResult::FunctionError).unwrap();
        world.sleep_until_due().await;
    }
    world.run(&world.processor(script.clone())).await;
    assert_eq!((script.calls().len(), world.dead().len()), (1, 0));
    assert_eq!(script.calls()[0].attempt, MAX_RECEIVE_COUNT);
}

#[tokio::test(start_paused = true)]
async fn what_sqs_does_not_mention_keeps_its_delay() {
    let world = world();
    world.send("{}").await;
    let unmentioned = Fault::Entries(vec![EntryFault::new(0, EntryOutcome::Unmentioned)]);
    world.faults_of(VISIBILITY_CHANGE, move |_| unmentioned.clone());
    let processor =
        world.processor(Script::always(Failure::quota("later").retry_after(secs(10_000))));
    let report = world.report(&processor, &world.receive().await).await;
    assert_eq!(
        report.outcomes[0].settlement,
        Settlement::KeptNotDelayed { code: "Unconfirmed".to_owned() }
    );
    assert_eq!(
        (world.wait(&world.only_message()), world.calls(VISIBILITY_CHANGE)),
        (secs(10_000), 1)
    );
}

#[tokio::test(start_paused = true)]
async fn it_waits_up_to_twelve_hours_from_the_earliest_possible_receive_to_the_latest_possible_end()
{
    let longest = 43_200 - 300 - 60 - 900;
    for (named, worked, expected) in [
        (41_000, 0, 41_000),
        (longest, 0, longest),
        (longest + 1, 0, longest),
        (43_200, 9_100, longest),
    ] {
        let world = world();
        world.send("{}").await;
        let act =
            Act::after(millis(worked), Act::Fail(Failure::quota("later").retry_after(secs(named))));
        world.invoke(&world.processor(Script::new(move |_| act.clone()))).await.unwrap();
        assert_eq!(
            world.wait(&world.only_message()),
            secs(expected),
            "{named} s after {worked} ms"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_deferred_uses_up_a_receive_and_so_waits_a_minute_at_least() {
    let mut world = world();
    world.settings.limits.concurrency = 1;
    world.function_timeout = secs(20);
    world.send_numbered(2).await;
    let script = Script::new(|seen| if seen.receive_count == 1 { Act::Hang } else { Act::Done });
    let processor = world.processor(script.clone());
    let report = world.report(&processor, &world.receive().await).await;
    let Disposition::Defer { reason: Deferral::NoTimeLeft, wait, .. } =
        report.outcomes[1].disposition
    else {
        panic!("{:?}", report.outcomes[1]);
    };
    assert_eq!(wait.total(), secs(60));
    let waits: Vec<Duration> = world.messages().iter().map(|message| world.wait(message)).collect();
    assert!(waits.contains(&secs(60)), "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn a_change_that_sqs_cannot_make_now_is_tried_again() {
    let outcome = EntryOutcome::Refused { code: "InternalError".to_owned(), sender_fault: false };
    let failed = Fault::Entries(vec![EntryFault::new(0, outcome)]);
    for (fault, entries) in
        [(Fault::refuse(503, "ServiceUnavailable"), [2, 2, 2]), (failed, [1, 1, 2])]
    {
        let world = world();
        world.send_numbered(2).await;
        world.faults_of(VISIBILITY_CHANGE, move |call| {
            if call.of_operation < 3 { fault.clone() } else { Fault::None }
        });
        world
            .invoke(
                &world.processor(Script::always(Failure::temporary("no").retry_after(secs(40)))),
            )
            .await
            .unwrap();
        assert!(
            world.messages().iter().all(|message| world.wait(message) <= secs(40)),
            "{:?}",
            world.messages()
        );
        assert_eq!(world.entries(VISIBILITY_CHANGE), entries);
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_that_is_not_confirmed_is_reported_and_costs_only_time() {
    for (fault, code) in [
        (Fault::refuse(403, "AccessDenied"), "AccessDenied"),
        (Fault::refuse(500, "InternalFailure"), "InternalFailure"),
        (Fault::Hang, "TimedOut"),
    ] {
        let world = world();
        let id = world.send("{}").await;
        world.faults_of(VISIBILITY_CHANGE, move |_| fault.clone());
        let script = Script::failing_first(1, Failure::temporary("no"));
        let processor = world.processor(script.clone());
        let report = world.report(&processor, &world.receive().await).await;
        assert_eq!(
            report.outcomes[0].settlement,
            Settlement::KeptNotDelayed { code: code.to_owned() }
        );
        assert_eq!(report.failed_ids().unwrap(), [id.as_str()]);
        assert!(world.wait(&world.only_message()) + secs(60) > VISIBILITY, "the queue's own");
        world.run(&processor).await;
        assert_eq!((script.calls().len(), world.messages().len()), (2, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_without_an_id_goes_on_in_a_copy_since_no_answer_could_keep_it() {
    let world = world();
    world.send("{}").await;
    let mut event = world.receive().await;
    event["Records"][0]["messageId"] = Value::Null;
    let processor = world.processor(Script::always(Failure::temporary("no")));
    let invocation = world.deliver(&processor, &event).await;
    assert!(invocation.answer.is_ok());
    assert_eq!(state(&world.only_message())["retryCount"], 1);
}

#[tokio::test(start_paused = true)]
async fn the_copies_of_another_time_go_on_counting() {
    let mut world = World::new();
    world.settings.policy.max_retries = 4;
    world.send("{}").await;
    let script = Script::always(Failure::temporary("no"));
    let processor = world.processor(script.clone());
    for _ in 0..2 {
        world.invoke(&processor).await.unwrap();
        world.sleep_until_due().await;
    }
    world.settings.strategy = Strategy::Visibility;
    world.run(&world.processor(script.clone())).await;
    assert_eq!(script.calls().iter().map(|seen| seen.attempt).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert_eq!((world.calls(SEND), world.dead().len()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn each_way_to_the_dead_letter_queue_is_open() {
    let url = World::new().dead_letters.url().parse().unwrap();
    for (mode, calls, sends) in [
        (DeadLetterMode::Redrive, 3, 0),
        (DeadLetterMode::Annotate, 3, 1),
        (DeadLetterMode::Direct(url), 3, 1),
    ] {
        let mut world = world();
        world.settings.policy.max_retries = 2;
        world.settings.dead_letter = Some(mode.clone());
        world.send("{}").await;
        let script = Script::always(Failure::temporary("no"));
        world.run(&world.processor(script.clone())).await;
        assert_eq!(
            (script.calls().len(), world.dead().len(), world.calls(SEND)),
            (calls, 1, sends),
            "{mode:?}"
        );
        if sends == 1 {
            let why = &state(&world.dead()[0])["retryState"]["deadLetter"];
            assert_eq!(
                (&why["reason"], &why["retryCount"]),
                (&"retries-exhausted".into(), &2.into())
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_without_a_queue_is_left_to_its_visibility_timeout() {
    let world = world();
    world.send("{}").await;
    let mut event = world.receive().await;
    event["Records"][0]["eventSourceARN"] = Value::Null;
    let processor = world.processor(Script::always(Failure::temporary("no")));
    let report = world.report(&processor, &event).await;
    assert_eq!(report.outcomes[0].disposition, Disposition::Release(ReleaseReason::NoQueue));
    assert_eq!(world.all_calls(), (0, 0, 0));
}
