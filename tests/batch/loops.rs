//! Lambda's recursive loop detection: while it is on, no message of this library comes near its
//! limit.

use std::collections::BTreeMap;
use std::time::Duration;

use requeue::embedded::InvocationResult;
use requeue::{DeadLetterMode, Failure, RecursiveLoop, Settings};

use crate::world::{Act, MAX_RECEIVE_COUNT, Script, World, numbered, secs, state};

/// So many invocations in a row, and Lambda refuses the next one.
const LIMIT: u32 = 16;

/// Works on the queue as a mapping whose function may not loop, until it is empty. What an
/// invocation sends continues the longest row of its batch. Returns the longest row that came
/// about.
async fn run_detected(world: &World, script: &Script) -> u32 {
    let processor = world.processor(script.clone());
    let mapping = world.mapping();
    let mut rows: BTreeMap<String, u32> = BTreeMap::new();
    let mut longest = 0;
    while world.sleep_until_due().await {
        let Some(batch) = mapping.poll(Duration::ZERO).await.unwrap() else {
            continue;
        };
        let row = batch
            .message_ids()
            .iter()
            .filter_map(|id| rows.get(*id))
            .max()
            .copied()
            .unwrap_or_default();
        longest = row.max(longest);
        if row >= LIMIT {
            mapping.acknowledge(&batch, &InvocationResult::FunctionError).unwrap();
            continue;
        }
        let response = world.invoke_with(&processor, &batch.event(&world.queue)).await.unwrap();
        for message in world.messages().into_iter().chain(world.dead()) {
            let is_of_batch = batch.message_ids().contains(&message.id.as_str());
            if !is_of_batch {
                rows.entry(message.id).or_insert(row + 1);
            }
        }
        mapping
            .acknowledge(
                &batch,
                &InvocationResult::Response(serde_json::to_vec(&response).unwrap()),
            )
            .unwrap();
    }
    longest
}

#[tokio::test(start_paused = true)]
async fn what_fails_again_and_again_waits_by_its_visibility_after_ten_copies() {
    assert_eq!(Settings::default().recursive_loop, RecursiveLoop::Terminate);
    let mut world = World::new();
    world.settings.recursive_loop = RecursiveLoop::Terminate;
    let id = world.send("{}").await;
    let script = Script::always(Failure::temporary("no"));
    let longest = run_detected(&world, &script).await;
    assert_eq!(longest, 10);
    // Ten copies, and then as many receives of the last one as the redrive policy allows.
    assert_eq!((script.calls().len(), world.calls("SendMessageBatch")), (10 + 5, 10));
    let attempts: Vec<u32> = script.calls().iter().map(|seen| seen.attempt).collect();
    assert_eq!(attempts, (1..=15).collect::<Vec<_>>());
    let dead = state(&world.dead()[0]);
    assert_eq!(
        (&dead["originalMessageId"], &dead["retryState"]["lineage"]),
        (&id.into(), &10.into())
    );
}

#[tokio::test(start_paused = true)]
async fn a_row_is_counted_by_the_invocation_whatever_is_sent_and_why() {
    for mode in [DeadLetterMode::Redrive, DeadLetterMode::Annotate] {
        let mut world = World::new();
        world.settings.recursive_loop = RecursiveLoop::Terminate;
        world.settings.dead_letter = Some(mode.clone());
        world.settings.policy.max_retries = 12;
        // Hops, postponements and retries all are copies; new messages come along all the time.
        for n in 0..40_u64 {
            let body = format!("{{\"n\":{n}}}");
            world
                .send_as(&body, |message| message.delay_seconds(i32::try_from(n * 20).unwrap()))
                .await;
        }
        let script = Script::new(|seen| match (seen.n() % 4, seen.attempt) {
            (0, _) => Act::Fail(Failure::temporary("no")),
            (1, 1) => Act::Fail(Failure::quota("later").retry_after(secs(20_000))),
            (2, _) if seen.receive_count < 3 => Act::Fail(Failure::postpone(secs(30))),
            _ => Act::Done,
        });
        let longest = run_detected(&world, &script).await;
        assert!(longest < LIMIT, "{mode:?}: {longest} in a row");
        let called: std::collections::BTreeSet<usize> =
            script.calls().iter().map(crate::world::Seen::n).collect();
        assert_eq!(called.len(), 40, "{mode:?}: all were called");
    }
}

#[tokio::test(start_paused = true)]
async fn annotated_copies_keep_the_row_short_too() {
    let mut world = World::new();
    world.settings.recursive_loop = RecursiveLoop::Terminate;
    world.settings.dead_letter = Some(DeadLetterMode::Annotate);
    for n in 0..120 {
        world
            .send_as(&numbered(n), |message| message.delay_seconds(i32::try_from(n * 5).unwrap()))
            .await;
    }
    let longest = run_detected(&world, &Script::always(Failure::non_retryable("never"))).await;
    assert!(longest < LIMIT, "{longest} in a row");
    assert_eq!(world.dead().len(), 120);
}

#[tokio::test(start_paused = true)]
async fn receives_without_a_call_use_up_no_retries_of_what_waits_in_copies() {
    // receives without a call of each copy → calls
    for (lost, calls) in [(0, 3), (1, 3), (2, 3), (4, 3)] {
        let mut world = World::new();
        world.settings.recursive_loop = RecursiveLoop::Terminate;
        world.settings.policy.max_retries = 2;
        world.send("{}").await;
        let script = Script::always(Failure::temporary("no"));
        let processor = world.processor(script.clone());
        for attempt in 1..=calls {
            // A copy that was received with all its retries used is taken for one that was handled
            // then.
            for _ in 0..if attempt < calls { lost } else { 0 } {
                world.sleep_until_due().await;
                let throttled = world
                    .mapping()
                    .poll(Duration::ZERO)
                    .await
                    .unwrap()
                    .expect("it is not dead yet");
                world.mapping().acknowledge(&throttled, &InvocationResult::FunctionError).unwrap();
            }
            world.sleep_until_due().await;
            world.invoke(&processor).await;
        }
        let attempts: Vec<u32> = script.calls().iter().map(|seen| seen.attempt).collect();
        assert_eq!(attempts, (1..=calls).collect::<Vec<_>>(), "{lost} receives without a call");
    }
}

#[tokio::test(start_paused = true)]
async fn company_with_a_long_row_costs_no_retries_and_a_bounded_number_of_calls() {
    const MAX_RETRIES: u32 = 2;
    let mut world = World::new();
    world.settings.recursive_loop = RecursiveLoop::Terminate;
    world.settings.policy.max_retries = MAX_RETRIES;
    let script =
        Script::new(
            |seen| if seen.n() == 1 { Act::Fail(Failure::temporary("no")) } else { Act::Done },
        );
    let processor = world.processor(script.clone());
    world.send(&numbered(1)).await;
    for round in 0.. {
        if !world.sleep_until_due().await {
            break;
        }
        if round % 3 != 2 {
            let state =
                r#""retryTimestamp":"2100-01-01T00:00:00.000Z","retryState":{"v":1,"lineage":10}"#;
            world
                .send(&format!(r#"{{"n":0,"retryCount":0,"originalMessageId":"x",{state}}}"#))
                .await;
        }
        world.invoke(&processor).await;
    }
    let calls: Vec<_> = script.calls().into_iter().filter(|seen| seen.n() == 1).collect();
    let attempts: Vec<u32> = calls.iter().map(|seen| seen.attempt).collect();
    assert!(attempts.is_sorted(), "{attempts:?}");
    assert!(attempts.len() <= ((MAX_RETRIES + 1) * MAX_RECEIVE_COUNT) as usize, "{attempts:?}");
    assert_eq!(attempts.last(), Some(&(MAX_RETRIES + 1)), "{attempts:?}: company costs no attempt");
    // Half of 2 s × 3ⁿ: what cannot be noted in a copy is known by the receives.
    let waits: Vec<u64> =
        calls.windows(2).map(|pair| (pair[1].at - pair[0].at).as_secs()).collect();
    assert_eq!(waits[..2], [1, 3], "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn where_loops_are_allowed_every_retry_is_a_copy() {
    let mut world = World::new();
    world.settings.recursive_loop = RecursiveLoop::Allow;
    world.settings.policy.max_retries = 30;
    world.send("{}").await;
    let script = Script::always(Failure::temporary("no"));
    world.run(&world.processor(script.clone())).await;
    assert_eq!((script.calls().len(), world.calls("SendMessageBatch")), (31, 30));
    assert!(state(&world.dead()[0])["retryState"]["lineage"].is_null());
}
