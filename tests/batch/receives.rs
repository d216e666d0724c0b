//! Receives that end without a response — throttled, timed out, crashed — and their cost for a
//! message without an attempt.

use std::collections::BTreeSet;
use std::time::Duration;

use requeue::embedded::{Batch, InvocationResult};

use crate::world::{Act, DELETE, MAX_RECEIVE_COUNT, Script, Seen, World, secs};

/// The next batch; `None` when the queue is empty.
async fn next_batch(world: &World) -> Option<Batch> {
    while let Some(next) = world.messages().iter().map(|message| world.wait(message)).min() {
        tokio::time::sleep(next).await;
        // A poll may find nothing but messages that the redrive policy moves.
        if let Some(batch) = world.mapping().poll(Duration::ZERO).await.unwrap() {
            return Some(batch);
        }
    }
    None
}

#[tokio::test(start_paused = true)]
async fn a_message_survives_one_receive_less_than_the_redrive_policy_allows() {
    for (lost, is_called) in
        [(0, true), (1, true), (MAX_RECEIVE_COUNT - 1, true), (MAX_RECEIVE_COUNT, false)]
    {
        let world = World::new();
        world.send("{}").await;
        for _ in 0..lost {
            let throttled = next_batch(&world).await.unwrap();
            world.mapping().acknowledge(&throttled, &InvocationResult::FunctionError).unwrap();
        }
        let script = Script::new(|_| Act::Done);
        world.run(&world.processor(script.clone())).await;
        assert_eq!(
            (script.calls().len(), world.dead().len()),
            if is_called { (1, 0) } else { (0, 1) },
            "{lost}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_that_was_never_attempted_is_dead_lettered_though_all_receives_but_one_are_lost() {
    const MESSAGES: usize = 10;
    let mut world = World::new();
    world.function_timeout = secs(20);
    world.settings.limits.concurrency = 1;
    // The first of a batch takes all the time there is, so that the others are never started.
    world.send_numbered(MESSAGES).await;
    let script = Script::new(|seen| match seen.attempt {
        1 => Act::Hang,
        _ => Act::Done,
    });
    let processor = world.processor(script.clone());
    let (mut lost, mut most) = (0, 0);
    while let Some(batch) = next_batch(&world).await {
        let attempted: BTreeSet<Option<String>> =
            script.calls().into_iter().map(|seen| seen.original_id).collect();
        let event = batch.event(&world.queue);
        let receives = |record: &serde_json::Value| -> u32 {
            record["attributes"]["ApproximateReceiveCount"].as_str().unwrap().parse().unwrap()
        };
        let records = event["Records"].as_array().unwrap();
        let worst = records.iter().map(receives).max().unwrap();
        if worst < MAX_RECEIVE_COUNT {
            lost += 1;
            // Throttled, or killed while the first of them runs.
            if worst.is_multiple_of(2) {
                let _ = tokio::time::timeout(secs(5), world.invoke_with(&processor, &event)).await;
            }
            world.mapping().acknowledge(&batch, &InvocationResult::FunctionError).unwrap();
            continue;
        }
        let never = records.iter().filter(|record| {
            let body: serde_json::Value =
                serde_json::from_str(record["body"].as_str().unwrap()).unwrap();
            let id = body["originalMessageId"].as_str().or(record["messageId"].as_str());
            !attempted.contains(&id.map(str::to_owned))
        });
        most = most.max(never.map(receives).max().unwrap_or(0));
        world.deliver(&processor, &event).await;
    }
    let done: BTreeSet<usize> =
        script.calls().iter().filter(|seen| seen.attempt > 1).map(Seen::n).collect();
    assert_eq!(done.len(), MESSAGES);
    assert!(world.dead().is_empty());
    assert!(lost > 2 * MAX_RECEIVE_COUNT, "{lost} receives were lost");
    assert_eq!(most, MAX_RECEIVE_COUNT);
}

#[tokio::test(start_paused = true)]
async fn what_may_have_ended_the_process_is_handled_when_the_others_are_done_and_deleted() {
    let world = World::new();
    world.send_numbered(5).await;
    let mut event = world.receive().await;
    for suspect in [1, 3] {
        event["Records"][suspect]["attributes"]["ApproximateReceiveCount"] = "3".into();
    }
    let script = Script::new(|_| Act::work(secs(2)));
    let report = world.report(&world.processor(script.clone()), &event).await;
    assert_eq!(report.outcomes.len(), 5);
    let begun = script.calls()[0].at;
    let mut calls: Vec<(u64, usize)> =
        script.calls().iter().map(|seen| ((seen.at - begun).as_secs(), seen.n())).collect();
    calls[..3].sort_unstable();
    calls[3..].sort_unstable_by_key(|(at, _)| *at);
    assert_eq!(calls.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 0, 0, 2, 4]);
    assert_eq!(calls[..3].iter().map(|(_, n)| *n).collect::<Vec<_>>(), [0, 2, 4]);
    let deleted: Vec<(u64, usize)> = world
        .requests(DELETE)
        .iter()
        .map(|request| ((request.at - begun).as_secs(), request.entries))
        .collect();
    assert_eq!(deleted, [(2, 3), (4, 1)], "the last one is left to the mapping");
}
