//! No window of time, of any length, has more calls than the rate limit allows, whatever holds the
//! process up and whoever sets its clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use requeue::policy::{Idempotency, KeyLimit, MessageKey, RateLimit};
use requeue::{Clock, Failure, SharedTable};
use tokio::time::{Instant, advance, sleep};

use crate::idempotency::Told;
use crate::share;
use crate::world::{Act, Script, World, millis, secs};

/// Fails if a window has more calls than `burst` and one for each interval. No timer is excused.
fn assert_exact(limit: &RateLimit, calls: &[Instant], what: &str) {
    for (first, one) in calls.iter().enumerate() {
        for (count, other) in (1_u32..).zip(&calls[first..]) {
            let least = limit.interval() * count.saturating_sub(limit.burst);
            let window = *other - *one;
            assert!(window >= least, "{what}: {count} calls in {window:?} of {limit:?}");
        }
    }
}

/// A world whose processor has a clock that goes wrong by so many milliseconds.
fn world(limit: RateLimit, latency: Option<Duration>, wrong: &Arc<AtomicI64>) -> World {
    let mut world = World::new();
    world.settings.policy.limit = Some(limit);
    world.settings.limits.concurrency = 60;
    world.batch_size = 100;
    if let Some(latency) = latency {
        let table = Told { latency, ..Told::default() };
        world.settings.shared_table = Some(SharedTable::by(Arc::new(table)));
        world.settings.policy.idempotency = Some(Idempotency::default());
    }
    let (clock, wrong) = (world.clock.clone(), Arc::clone(wrong));
    world.settings.clock = Some(Clock::showing(move || {
        let millis = wrong.load(Ordering::Relaxed);
        let by = Duration::from_millis(millis.unsigned_abs());
        if millis < 0 { clock.now() - by } else { clock.now() + by }
    }));
    world
}

fn times(script: &Script) -> Vec<Instant> {
    script.calls().iter().map(|seen| seen.at).collect()
}

#[tokio::test(start_paused = true)]
async fn calls_that_a_stall_delayed_do_not_come_at_once() {
    for latency in [None, Some(Duration::ZERO)] {
        for stall in [3, 50, 99, 101, 3_000] {
            let limit = RateLimit::new(500, secs(1));
            let world = world(limit, latency, &Arc::default());
            world.send_numbered(100).await;
            let script = Script::new(|_| Act::Done);
            let processor = world.processor(script.clone());
            let stalled = async {
                sleep(millis(20)).await;
                // All timers of this time are due at its end.
                advance(millis(stall)).await;
            };
            tokio::join!(world.invoke(&processor), stalled);
            let calls = times(&script);
            assert_eq!(calls.len(), 100);
            assert_exact(&limit, &calls, &format!("{latency:?}, stalled for {stall} ms"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_a_stall_kept_from_the_limit_of_all_asks_its_key_again() {
    for stall in [3, 101, 1_000, 2_300, 20_000] {
        let limit = RateLimit::new(100, secs(1));
        let mut world = world(limit, Some(Duration::ZERO), &Arc::default());
        // Twenty at once, since the calls may wait for the limit of all.
        let mut each = RateLimit::new(5, secs(1));
        each.burst = 30;
        world.settings.policy.key_limits = vec![KeyLimit::new(MessageKey::MessageGroupId, each)];
        let script = Script::new(|_| Act::Done);
        let [stalled, other] = [(); 2].map(|()| world.processor(script.clone()));
        world.send_numbered(20).await;
        let meanwhile = async {
            sleep(millis(5)).await;
            advance(millis(stall)).await;
            world.send_numbered(20).await;
            world.run(&other).await;
        };
        tokio::join!(world.invoke(&stalled), meanwhile);
        world.run(&other).await;
        let calls = times(&script);
        assert_eq!(calls.len(), 40, "stalled for {stall} ms");
        assert_exact(&each, &calls, &format!("stalled for {stall} ms"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_ahead_lets_no_call_through() {
    for latency in [None, Some(Duration::ZERO)] {
        for ahead in [300, 900, 2_000, 3_600_000] {
            let limit = RateLimit::new(10, secs(1));
            let wrong = Arc::default();
            let world = world(limit, latency, &wrong);
            let script = Script::new(|_| Act::Done);
            let processor = world.processor(script.clone());
            join_all((0..3).map(async |number| {
                sleep(millis(30) * number).await;
                wrong.store(i64::from(number) * ahead, Ordering::Relaxed);
                world.send_numbered(20).await;
                world.invoke(&processor).await
            }))
            .await;
            let calls = times(&script);
            assert!(calls.len() >= 20, "{} calls", calls.len());
            assert_exact(&limit, &calls, &format!("{latency:?}, {ahead} ms ahead"));
        }
    }
}

fn one_of<T: Copy>(random: &mut StdRng, choices: &[T]) -> T {
    choices[random.random_range(0..choices.len())]
}

/// One history: stalls and clocks that are set, while a backlog is worked off. Returns the
/// number of calls.
async fn history(seed: u64) -> usize {
    let mut random = StdRng::seed_from_u64(seed);
    let mut limit = RateLimit::new(one_of(&mut random, &[1, 3, 49, 500]), secs(1));
    limit.burst = one_of(&mut random, &[1, 1, 2, 7]);
    let latency = one_of(&mut random, &[None, Some(millis(0)), Some(millis(40))]);
    let wrong = Arc::default();
    let world = world(limit, latency, &wrong);
    world.send_numbered(80).await;
    let script = Script::failing_first(one_of(&mut random, &[0, 0, 1]), Failure::temporary("down"));
    let processor = world.processor(script.clone());
    let disturbed = async {
        for _ in 0..12 {
            sleep(millis(one_of(&mut random, &[1, 7, 60, 400, 2_500]))).await;
            if one_of(&mut random, &[0, 1]) == 0 {
                advance(millis(one_of(&mut random, &[1, 5, 60, 99, 100, 250, 3_000, 60_000])))
                    .await;
            } else {
                let by = one_of(&mut random, &[5, 80, 900, 1_100, 20_000, 4_000_000]);
                let by = if one_of(&mut random, &[0, 1]) == 0 { by } else { -by };
                wrong.fetch_add(by, Ordering::Relaxed);
            }
        }
    };
    let working = async {
        for _ in 0..12 {
            world.invoke(&processor).await;
            sleep(millis(500)).await;
        }
    };
    tokio::join!(working, disturbed);
    let calls = times(&script);
    assert_exact(&limit, &calls, &format!("seed {seed}, {latency:?}"));
    calls.len()
}

#[tokio::test(start_paused = true)]
async fn no_window_has_more_calls_than_the_limit_whatever_stalls_and_whoever_sets_the_clock() {
    let (histories, mut calls) = (share(1_000), 0);
    for seed in 0..histories {
        calls += history(seed).await as u64;
    }
    assert!(calls > 10 * histories, "{calls} calls");
}
