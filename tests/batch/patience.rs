//! Long waits: no handler runs in vain, a wait uses no retry, and nothing is forgotten meanwhile.

use std::time::Duration;

use requeue::{Failure, Sampler};
use serde_json::json;

use crate::world::{SEND, Script, World, numbered, secs, state};

/// What a random generator draws at most.
const ALMOST_ONE: f64 = 1.0_f64.next_down();

#[tokio::test(start_paused = true)]
async fn ten_messages_told_to_come_back_in_six_hours_are_called_once_before_and_once_after() {
    const ASKED: u64 = 6 * 3_600;
    // Of the ten per cent on top no more than a minute: half a minute at the sample ½.
    for (sample, on_top) in [(0.0, 0), (0.5, 30), (ALMOST_ONE, 60)] {
        let mut world = World::new();
        world.settings.sampler = Sampler::always(sample);
        world.send_numbered(10).await;
        let script =
            Script::failing_first(1, Failure::rate_limit("later").retry_after(secs(ASKED)));
        let processor = world.processor(script.clone());
        world.invoke(&processor).await.unwrap();
        let mut hops = 0;
        while !world.messages().is_empty() {
            for copy in world.messages() {
                let body = state(&copy);
                assert_eq!(
                    (&body["retryCount"], &body["retryState"]["counts"]),
                    (&1.into(), &json!({ "rate-limit": 1 }))
                );
                assert!(body["retryState"]["deferrals"].is_null());
                hops = body["retryState"]["hops"].as_u64().unwrap_or(0);
            }
            let next = world.messages().iter().map(|message| world.wait(message)).min().unwrap();
            assert!(next <= secs(900));
            tokio::time::sleep(next).await;
            world.invoke(&processor).await.unwrap();
        }
        assert!(hops <= 25, "{hops} hops");
        for n in 0..10 {
            let calls = script.calls();
            let calls: Vec<_> = calls.iter().filter(|seen| seen.body == numbered(n)).collect();
            let attempts: Vec<u32> = calls.iter().map(|seen| seen.attempt).collect();
            assert_eq!(attempts, [1, 2], "{n} at {sample}");
            let waited = calls[1].at - calls[0].at;
            assert!(
                waited >= secs(ASKED + on_top) && waited < secs(ASKED + on_top + 1),
                "{waited:?} at {sample}"
            );
        }
        assert_eq!(world.calls(SEND), 1 + hops, "ten hop in one request");
    }
}

/// Nobody works from Friday evening to Monday morning.
const WEEKEND: Duration = Duration::from_hours(60);

#[tokio::test(start_paused = true)]
async fn a_weekend_before_the_first_receive_uses_up_no_budget() {
    let mut world = World::new();
    world.settings.policy.max_retries = 3;
    let sent = world.clock.now();
    world.send("{}").await;
    tokio::time::sleep(WEEKEND).await;
    let script = Script::always(Failure::temporary("no"));
    world.run(&world.processor(script.clone())).await;
    let calls = script.calls();
    assert_eq!(calls.iter().map(|seen| seen.attempt).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert!(
        calls.iter().all(|seen| seen.first_sent == sent && seen.first_received == sent + WEEKEND)
    );
}

#[tokio::test(start_paused = true)]
async fn a_weekend_between_two_attempts_uses_up_no_retry() {
    // The age budget does run on since the first receive: what it ends was called all the same.
    for (total_timeout, attempts) in
        [(Duration::from_hours(24 * 7), vec![1, 2, 3, 4]), (secs(43_200), vec![1, 2])]
    {
        let mut world = World::new();
        world.settings.policy.max_retries = 3;
        world.settings.policy.temporary.total_timeout = total_timeout;
        world.send("{}").await;
        let script = Script::always(Failure::temporary("no"));
        let processor = world.processor(script.clone());
        world.invoke(&processor).await.unwrap();
        tokio::time::sleep(WEEKEND).await;
        world.run(&processor).await;
        let calls = script.calls();
        assert_eq!(calls.iter().map(|seen| seen.attempt).collect::<Vec<_>>(), attempts);
        assert!(calls[1].at - calls[0].at >= WEEKEND);
        assert!(state(&world.dead()[0])["retryState"]["redrives"].is_null());
    }
}
