//! Execution environments with one table leave a downstream service alone together.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::join_all;
use requeue::policy::RateLimit;
use requeue::queue::SqsQueue;
use requeue::table::MemoryTable;
use requeue::{BatchProcessor, Deferral, Failure, Sampler, SharedTable, Strategy};
use tokio::join;
use tokio::time::{Instant, sleep};

use crate::protection::deferrals;
use crate::world::{Act, Log, Script, Seen, World, epoch_millis, numbered, secs, state};

/// Protection as it is by default, and a table.
fn world(limit: Option<u32>) -> World {
    let mut world = World::new();
    world.protect();
    world.settings.shared_table = Some(SharedTable::by(Arc::new(MemoryTable::default())));
    world.settings.policy.limit = limit.map(|calls| RateLimit::new(calls, secs(1)));
    world.settings.sampler = Sampler::seeded(7);
    world.settings.policy.max_retries = 1_000;
    world.function_timeout = secs(60);
    world
}

fn environments(
    world: &World,
    script: &Script,
    count: usize,
) -> Vec<BatchProcessor<Script, SqsQueue>> {
    (0..count).map(|_| world.processor(script.clone())).collect()
}

/// Hands each batch to the next environment, side by side, until the queue is empty.
async fn run(world: &World, all: &[BatchProcessor<Script, SqsQueue>]) {
    let next = AtomicU64::new(0);
    let poll = async |_| {
        while world.sleep_until_due().await {
            let turn = usize::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap();
            if let Some(invocation) = world.invoke(&all[turn % all.len()]).await {
                invocation.answer.as_ref().expect("the invocation succeeded");
            }
        }
    };
    join_all((0..10).map(poll)).await;
}

fn down() -> Act {
    Act::Fail(Failure::temporary("down"))
}

#[tokio::test(start_paused = true)]
async fn a_pause_of_one_environment_defers_the_messages_of_all() {
    for limit in [None, Some(50)] {
        let world = world(limit);
        let script = Script::new(|seen| match seen.n() {
            0 => Act::Fail(Failure::rate_limit("slowly").retry_after(secs(30))),
            _ => Act::Done,
        });
        let all = environments(&world, &script, 5);
        let log = Log::default();
        let _listening = log.listen();
        world.send(&numbered(0)).await;
        world.invoke(&all[0]).await.unwrap();
        for (n, one) in all.iter().enumerate().skip(1) {
            world.send(&numbered(n)).await;
            let report = world.report(one, &world.receive().await).await;
            let why = deferrals(&report)[0].map(|(why, _)| why);
            // The first one that waits in line begins a line, which the others join.
            let expected =
                if n > 1 && limit.is_some() { Deferral::RateLimited } else { Deferral::Paused };
            assert_eq!(why, Some(expected), "{n}, {limit:?}");
        }
        assert_eq!(script.calls().len(), 1);
        assert_eq!(told_for_all(&log, "paused: "), 1, "by the one that begins it");
    }
}

/// The lines with this text that are about all environments.
fn told_for_all(log: &Log, text: &str) -> usize {
    let is_it = |line: &&str| line.contains(text) && line.contains("isShared=true");
    log.text().lines().filter(is_it).count()
}

#[tokio::test(start_paused = true)]
async fn fifty_environments_hardly_ask_a_service_that_is_down() {
    let world = world(Some(5));
    world.send_numbered(100).await;
    let (began, outage) = (Instant::now(), secs(300));
    let script = Script::new(move |seen| if seen.at - began < outage { down() } else { Act::Done });
    let log = Log::default();
    let _listening = log.listen();
    run(&world, &environments(&world, &script, 50)).await;
    for event in ["circuit-opened", "circuit-closed"] {
        assert_eq!(told_for_all(&log, event), 1, "{event}");
    }
    let during = script.calls().iter().filter(|seen| seen.at - began < outage).count();
    // Five open it, and up to ten others have begun; twelve probe in the first 40 s, and one each
    // 30 s.
    assert!((15..=5 + 10 + 12 + 300 / 30).contains(&during), "{during} calls");
    assert_eq!(script.calls().len(), during + 100, "each is called once when it works again");
    assert!(world.dead().is_empty());
}

#[tokio::test(start_paused = true)]
async fn no_two_messages_of_all_environments_probe_at_the_same_time() {
    let world = world(None);
    world.send_numbered(300).await;
    let (began, outage) = (Instant::now(), secs(300));
    let script = Script::new(move |seen| match seen.at - began {
        since if since < secs(1) => down(),
        since if since < outage => Act::after(secs(3), down()),
        _ => Act::Done,
    });
    run(&world, &environments(&world, &script, 50)).await;
    let probes: Vec<Instant> = script
        .calls()
        .iter()
        .map(|seen| seen.at)
        .filter(|at| (secs(1)..outage).contains(&(*at - began)))
        .collect();
    assert!(probes.len() > 10, "{probes:?}");
    assert!(probes.is_sorted_by(|one, next| *next - *one >= secs(3)), "{probes:?}");
}

#[tokio::test(start_paused = true)]
async fn no_other_message_probes_while_one_waits_in_its_place_for_the_slot_of_its_probe() {
    let mut world = world(None);
    world.settings.strategy = Strategy::Visibility;
    world.settings.policy.limit = Some(RateLimit::new(1, secs(30)));
    world.settings.policy.max_pause = Some(secs(5));
    world.settings.limits.timeout = secs(1);
    world.function_timeout = secs(120);
    let began = Instant::now();
    let script = Script::new(|seen| match seen.n() {
        0 => Act::Fail(Failure::rate_limit("slowly").retry_after(secs(600))),
        _ => Act::Done,
    });
    let all = environments(&world, &script, 2);
    world.send(&numbered(0)).await;
    world.invoke(&all[0]).await.unwrap();
    sleep(secs(6)).await;
    world.send(&numbered(1)).await;
    let probe = world.receive().await;
    let other = async {
        sleep(secs(20)).await;
        world.send(&numbered(2)).await;
        world.report(&all[1], &world.receive().await).await
    };
    let (_, other) = join!(world.report(&all[0], &probe), other);
    assert_eq!(deferrals(&other)[0].map(|(why, _)| why), Some(Deferral::Paused));
    let calls: Vec<_> = script.calls().iter().map(|seen| (seen.n(), seen.at - began)).collect();
    assert_eq!(calls, [(0, secs(0)), (1, secs(30))]);
}

#[tokio::test(start_paused = true)]
async fn after_an_outage_the_calls_of_all_environments_grow_and_no_message_uses_a_retry_for_that() {
    let world = world(None);
    world.send_numbered(1_000).await;
    let (began, outage) = (Instant::now(), secs(20));
    let script = Script::new(move |seen| if seen.at - began < outage { down() } else { Act::Done });
    run(&world, &environments(&world, &script, 50)).await;
    let calls: Vec<Instant> = script.calls().iter().map(|seen| seen.at).collect();
    let back = calls.iter().filter(|at| **at - began >= outage).min().expect("a probe");
    for (from, most) in [(0, 12), (1, 22), (2, 42)] {
        let second = *back + secs(from)..*back + secs(from + 1);
        let made = calls.iter().filter(|at| second.contains(at)).count();
        assert!((5..=most).contains(&made), "{made} calls in second {from}");
    }
    let failed = calls.iter().filter(|at| **at < *back).count();
    assert_eq!(calls.len(), failed + 1_000, "each is called once when it works again");
}

#[tokio::test(start_paused = true)]
async fn held_messages_wait_in_line_and_come_in_order_as_fast_as_the_limit_allows() {
    let world = world(Some(10));
    let (began, outage) = (Instant::now(), secs(60));
    let script = Script::new(move |seen| if seen.at - began < outage { down() } else { Act::Done });
    let all = environments(&world, &script, 20);
    world.send_numbered(600).await;
    run(&world, &all).await;
    let calls = script.calls();
    let after: Vec<&Seen> = calls.iter().filter(|seen| seen.at - began >= outage).collect();
    assert_eq!(after.len(), 600);
    let called: BTreeSet<usize> = after.iter().map(|seen| seen.n()).collect();
    assert_eq!(called.len(), 600);
    let took = after.last().unwrap().at - after[0].at;
    assert!(took <= secs(75), "{took:?}: 60 s are the least");
}

#[tokio::test(start_paused = true)]
async fn messages_that_join_the_line_in_a_pause_return_after_it_one_after_the_other() {
    let mut world = world(Some(10));
    world.settings.sampler = Sampler::always(0.0);
    let script = Script::always(Failure::rate_limit("slowly").retry_after(secs(40)));
    let all = environments(&world, &script, 2);
    world.send(&numbered(0)).await;
    world.invoke(&all[0]).await.unwrap();
    let now = world.clock.now();
    for n in 1..=10 {
        world.send(&numbered(n)).await;
    }
    world.invoke(&all[1]).await.unwrap();
    let end = u64::try_from(epoch_millis(now + secs(40))).unwrap();
    let mut turns: Vec<u64> = world
        .messages()
        .iter()
        .map(|copy| state(copy)["retryState"].clone())
        .filter(|state| state["startTag"].is_u64())
        .map(|state| state["ageFrom"].as_u64().unwrap())
        .collect();
    turns.sort_unstable();
    assert!((end - 1_000..=end).contains(&turns[0]), "{end}: {turns:?}");
    assert_eq!(turns.len(), 10);
}
