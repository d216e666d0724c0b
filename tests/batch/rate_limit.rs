//! No downstream service gets more calls than its rate limit allows. The other messages wait in line,
//! and none is lost, dead-lettered or charged a retry for that.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use requeue::policy::{FairShares, RateLimit};
use requeue::queue::SqsQueue;
use requeue::table::MemoryTable;
use requeue::{BatchProcessor, Deferral, Failure, Message, Mode, Scope, SharedTable, Strategy};
use tokio::time::{Instant, sleep};

use crate::protection::deferrals;
use crate::world::{Act, SEND, Script, Seen, World, epoch_millis, millis, numbered, secs, state};

/// Where the limit is kept.
#[derive(Clone, Copy, Debug)]
pub enum Kept {
    /// In the execution environment.
    Alone,
    /// In a table.
    Together,
}

pub const BOTH: [Kept; 2] = [Kept::Alone, Kept::Together];

pub fn world(kept: Kept, limit: u32, burst: u32) -> World {
    with_limit(World::new(), kept, limit, burst)
}

fn with_limit(mut world: World, kept: Kept, limit: u32, burst: u32) -> World {
    world.settings.shared_table = match kept {
        Kept::Alone => None,
        Kept::Together => Some(SharedTable::by(Arc::new(MemoryTable::default()))),
    };
    let mut rate = RateLimit::new(limit, secs(1));
    rate.burst = burst;
    world.settings.policy.limit = Some(rate);
    world
}

fn since(began: Instant, calls: &[Seen]) -> Vec<Duration> {
    calls.iter().map(|seen| seen.at - began).collect()
}

/// A queue whose messages wait in their place.
fn in_place(kept: Kept, name: &str) -> World {
    let attributes: &[_] = match name {
        "orders" => &[],
        _ => &[("ContentBasedDeduplication", "true")],
    };
    let mut world = with_limit(World::with_queue(name, attributes), kept, 1, 1);
    world.settings.strategy = Strategy::Visibility;
    world
}

/// Fails if more than `burst` and one call for each interval came in any window of time.
pub fn assert_within(limit: u32, burst: u32, calls: &[Seen]) {
    let interval = secs(1) / limit;
    for (first, one) in calls.iter().enumerate() {
        for (count, other) in (1_u32..).zip(&calls[first..]) {
            let least = interval * count.saturating_sub(burst);
            // Timers have a resolution of a millisecond.
            assert!(
                other.at - one.at + millis(1) >= least,
                "{count} calls in {:?}",
                other.at - one.at
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_waits_up_to_two_seconds_for_its_slot_and_no_copy_is_sent() {
    for kept in BOTH {
        let world = world(kept, 2, 1);
        world.send_numbered(5).await;
        let script = Script::new(|_| Act::Done);
        let began = Instant::now();
        let invocation = world.invoke(&world.processor(script.clone())).await.unwrap();
        assert!(invocation.failed().is_empty());
        assert_eq!(since(began, &script.calls()), [0, 500, 1_000, 1_500, 2_000].map(millis));
        assert_eq!(world.all_calls(), (0, 0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn the_handler_has_its_whole_timeout_after_its_slot() {
    for kept in BOTH {
        let mut world = world(kept, 1, 1);
        world.settings.limits.timeout = secs(1);
        world.send_numbered(2).await;
        let script = Script::new(|_| Act::work(millis(900)));
        world.invoke(&world.processor(script.clone())).await.unwrap();
        assert_eq!(script.done().len(), 2);
        assert!(script.calls().iter().all(|seen| seen.time_left == secs(1)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_must_wait_longer_takes_its_place_in_line_and_uses_no_retry() {
    for kept in BOTH {
        let mut world = world(kept, 1, 1);
        world.settings.policy.limit.as_mut().unwrap().max_reservation = Duration::ZERO;
        world.send_numbered(3).await;
        let script = Script::new(|_| Act::Done);
        let processor = world.processor(script.clone());
        let now = world.clock.now();
        let event = world.receive().await;
        let report = world.report(&processor, &event).await;
        let limited = |secs| Some((Deferral::RateLimited, secs));
        assert_eq!(deferrals(&report), [None, limited(1), limited(2)]);
        for (copy, wait) in world.messages()[1..].iter().zip([1, 2]) {
            let state = &state(copy)["retryState"];
            let called = u64::try_from(epoch_millis(now + secs(wait))).unwrap();
            assert_eq!(state["ageFrom"], called);
            assert!(state["startTag"].is_u64());
            assert_eq!(state["deferrals"], serde_json::Value::Null);
            assert_eq!(world.wait(copy), secs(wait));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_backlog_is_called_within_the_limit_once_each_and_in_its_order() {
    for kept in BOTH {
        for burst in [1, 5] {
            let world = world(kept, 5, burst);
            world.send_numbered(100).await;
            let script = Script::new(|_| Act::Done);
            let began = Instant::now();
            world.run(&world.processor(script.clone())).await;
            let calls = script.calls();
            assert_within(5, burst, &calls);
            assert_eq!(calls.len(), 100);
            assert!(calls.iter().all(|seen| seen.attempt == 1));
            assert!(world.dead().is_empty());
            assert!(began.elapsed() < secs(22), "{:?}", began.elapsed());
            // Each message is sent again once, as a rule.
            assert!(world.entries(SEND).iter().sum::<usize>() <= 150);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn retries_come_within_the_limit_too_and_do_not_wait_in_line() {
    for kept in BOTH {
        let mut world = world(kept, 5, 1);
        world.settings.policy.limit.as_mut().unwrap().max_reservation = millis(200);
        world.send_numbered(60).await;
        let script = Script::failing_first(1, Failure::temporary("down"));
        world.run(&world.processor(script.clone())).await;
        let calls = script.calls();
        assert_within(5, 1, &calls);
        assert_eq!((calls.len(), script.done().len()), (120, 60));
        assert!(calls.iter().all(|seen| seen.attempt <= 2), "a wait is no attempt");
        assert!(world.dead().is_empty());
        let retried = calls.iter().position(|seen| seen.attempt == 2).unwrap();
        assert!(retried < 60, "the first retry came before the last newcomer");
    }
}

#[tokio::test(start_paused = true)]
async fn time_in_line_is_no_part_of_the_age() {
    for kept in BOTH {
        let mut world = world(kept, 1, 1);
        world.settings.policy.temporary.total_timeout = secs(60);
        world.send_numbered(200).await;
        let last = 199;
        let script = Script::new(move |seen| match (seen.n() == last, seen.attempt) {
            (true, 1) => Act::Fail(Failure::temporary("down")),
            _ => Act::Done,
        });
        let began = Instant::now();
        world.run(&world.processor(script.clone())).await;
        let calls = script.calls();
        let failed = calls.iter().find(|seen| seen.n() == last).unwrap();
        assert!(failed.at - began > secs(150), "it waited longer than its budget");
        assert_eq!(script.done().len(), 200, "and was tried again");
    }
}

#[tokio::test(start_paused = true)]
async fn each_scope_has_its_limit() {
    for kept in BOTH {
        let world = world(kept, 1, 1);
        world.send_numbered(4).await;
        let script = Script::new(|_| Act::Done).scoped(parity);
        let began = Instant::now();
        world.invoke(&world.processor(script.clone())).await.unwrap();
        // The messages of one scope wait a moment for those of the other to ask with them.
        let moment = match kept {
            Kept::Alone => 0,
            Kept::Together => 1,
        };
        let expected = [0, 0, 1_000, 1_000].map(|at| millis(at + moment));
        assert_eq!(since(began, &script.calls()), expected);
    }
}

/// A world whose limit adapts.
fn adaptive(kept: Kept, limit: u32) -> World {
    let mut world = world(kept, limit, 1);
    world.settings.policy.limit.as_mut().unwrap().adaptive = true;
    world
}

/// The times of the calls of so many new messages.
async fn calls_of(
    world: &World,
    processor: &BatchProcessor<Script, SqsQueue>,
    script: &Script,
    count: usize,
) -> Vec<Duration> {
    let before = script.calls().len();
    world.send_numbered(count).await;
    world.invoke(processor).await.unwrap();
    let calls = &script.calls()[before..];
    since(calls[0].at, calls)
}

#[tokio::test(start_paused = true)]
async fn a_refused_call_slows_the_calls_down_at_once_and_for_all_who_share_the_limit() {
    for kept in BOTH {
        for (failure, every) in [
            (None, 100),
            (Some(Failure::rate_limit("slowly")), 143),
            (Some(Failure::temporary("down")), 100),
            (Some(Failure::quota("used up")), 100),
            (Some(Failure::postpone(secs(60))), 100),
        ] {
            let world = adaptive(kept, 10);
            let script = Script::new(move |seen| match (seen.n(), &failure) {
                (9, Some(failure)) => Act::Fail(failure.clone()),
                _ => Act::Done,
            });
            let [one, other] = [0; 2].map(|_| world.processor(script.clone()));
            // The other one has asked before, so it knows the state of before.
            calls_of(&world, &other, &script, 1).await;
            calls_of(&world, &one, &script, 10).await;
            let asks = match kept {
                Kept::Alone => &one,
                Kept::Together => &other,
            };
            let calls = calls_of(&world, asks, &script, 4).await;
            assert_eq!(calls, [0, every, 2 * every, 3 * every].map(millis), "{kept:?}");
            sleep(secs(24)).await;
            // The message that failed may come again with these.
            let calls = calls_of(&world, asks, &script, 4).await;
            assert_eq!(calls[..4], [0, 100, 200, 300].map(millis), "{kept:?}: it is whole again");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_takes_less_than_the_limit_refuses_few_calls_and_gets_all_messages() {
    for kept in BOTH {
        let world = adaptive(kept, 20);
        world.send_numbered(200).await;
        // Ten calls in a second, by a bucket.
        let tokens = Mutex::new((10.0, Instant::now()));
        let refused = Arc::new(AtomicU32::new(0));
        let refusals = Arc::clone(&refused);
        let script = Script::new(move |_| {
            let (tokens, at) = &mut *tokens.lock().unwrap();
            *tokens = (*tokens + 10.0 * at.elapsed().as_secs_f64()).min(10.0);
            *at = Instant::now();
            if *tokens < 1.0 {
                refusals.fetch_add(1, Ordering::Relaxed);
                return Act::Fail(Failure::rate_limit("slowly"));
            }
            *tokens -= 1.0;
            Act::Done
        });
        let began = Instant::now();
        world.run(&world.processor(script.clone())).await;
        assert_within(20, 1, &script.calls());
        assert_eq!((script.done().len(), world.dead().len()), (200, 0));
        let refused = refused.load(Ordering::Relaxed);
        assert!((1..=20).contains(&refused), "{kept:?}: {refused} calls refused");
        assert!(began.elapsed() < secs(45), "{kept:?}: {:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_deployment_all_use_the_newer_limit_without_the_refused_calls_of_before() {
    let mut world = adaptive(Kept::Together, 10);
    let script = Script::new(|seen| match seen.n() {
        9 => Act::Fail(Failure::rate_limit("slowly")),
        _ => Act::Done,
    });
    let old = world.processor(script.clone());
    calls_of(&world, &old, &script, 10).await;
    sleep(secs(1)).await;
    world.settings.policy.limit.as_mut().unwrap().limit = 20;
    let new = world.processor(script.clone());
    for processor in [&new, &old, &new] {
        let calls = calls_of(&world, processor, &script, 3).await;
        assert_eq!(calls, [0, 50, 100].map(millis));
        sleep(millis(500)).await;
    }
}

/// The scope of a numbered message: even or odd.
fn parity(message: &Message) -> Scope {
    let body: serde_json::Value = serde_json::from_str(message.body()).unwrap();
    Scope::of((body["n"].as_u64().unwrap() % 2).to_string())
}

#[tokio::test(start_paused = true)]
async fn the_handler_gives_a_scope_a_limit_of_its_own_and_the_others_have_that_of_the_policy() {
    fn even(scope: Scope) -> Option<RateLimit> {
        let mut limit = RateLimit::new(4, secs(1));
        limit.burst = 2;
        (scope == Scope::of("0")).then_some(limit)
    }
    for kept in BOTH {
        for has_policy in [true, false] {
            let mut world = world(kept, 2, 1);
            if !has_policy {
                world.settings.policy.limit = None;
            }
            world.send_numbered(10).await;
            let script = Script::new(|_| Act::Done).scoped(parity).limited(even);
            // It passes the limits of its handler on.
            let wrapped = requeue::scoped(script.clone(), parity);
            let invocation = world.invoke(&world.processor(wrapped)).await.unwrap();
            assert!(invocation.failed().is_empty());
            let calls = |parity| {
                let calls = script.calls().into_iter().filter(|seen| seen.n() % 2 == parity);
                let calls: Vec<_> = calls.collect();
                since(calls[0].at, &calls)
            };
            assert_eq!(calls(0), [0, 0, 250, 500, 750].map(millis), "{kept:?}");
            let expected = if has_policy { [0, 500, 1_000, 1_500, 2_000] } else { [0; 5] };
            assert_eq!(calls(1), expected.map(millis), "{kept:?}, {has_policy}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_the_handler_changes_holds_from_the_next_call_on() {
    static CALLS: AtomicU32 = AtomicU32::new(1);
    #[expect(clippy::unnecessary_wraps, reason = "as a handler gives it")]
    fn changing(_: Scope) -> Option<RateLimit> {
        Some(RateLimit::new(CALLS.load(Ordering::Relaxed), secs(1)))
    }
    for kept in BOTH {
        let world = world(kept, 100, 1);
        let script = Script::new(|_| Act::Done).limited(changing);
        let processor = world.processor(script.clone());
        let began = Instant::now();
        for calls in [1, 2, 4] {
            CALLS.store(calls, Ordering::Relaxed);
            world.send_numbered(2).await;
            world.invoke(&processor).await.unwrap();
        }
        let expected = [0, 1_000, 2_000, 2_500, 3_000, 3_250].map(millis);
        assert_eq!(since(began, &script.calls()), expected, "{kept:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_limit_holds_for_all_batches_of_an_environment() {
    for kept in BOTH {
        let world = world(kept, 1, 1);
        let script = Script::new(|_| Act::Done);
        let processor = world.processor(script.clone());
        let began = Instant::now();
        for n in 0..3 {
            world.send(&numbered(n)).await;
            world.invoke(&processor).await.unwrap();
        }
        assert_eq!(since(began, &script.calls()), [0, 1_000, 2_000].map(millis));
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_waits_in_its_place_uses_no_receive_while_it_can_wait_for_its_slot() {
    for kept in BOTH {
        for name in ["orders", "orders.fifo"] {
            let world = in_place(kept, name);
            for n in 0..10 {
                world.send_as(&numbered(n), |message| message.message_group_id("one")).await;
            }
            let script = Script::new(|_| Act::Done);
            let began = Instant::now();
            world.run(&world.processor(script.clone())).await;
            let expected: Vec<_> = (0..10).map(secs).collect();
            assert_eq!(since(began, &script.calls()), expected, "{name}");
            assert!(script.calls().iter().all(|seen| seen.receive_count == 1));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_comes_too_late_for_the_invocation_is_left_to_others() {
    for kept in BOTH {
        let mut world = world(kept, 1, 1);
        world.function_timeout = secs(4);
        world.settings.policy.limit.as_mut().unwrap().max_reservation = secs(20);
        world.send_numbered(4).await;
        let script = Script::new(|_| Act::Done);
        let processor = world.processor(script.clone());
        let event = world.receive().await;
        let report = world.report(&processor, &event).await;
        // A reserve of one second, and half of the other three.
        let limited = |secs| Some((Deferral::RateLimited, secs));
        assert_eq!(deferrals(&report), [None, None, limited(2), limited(3)]);
    }
}

#[tokio::test(start_paused = true)]
async fn in_the_mode_report_nothing_waits() {
    for kept in BOTH {
        let mut world = world(kept, 1, 1);
        world.settings.mode = Mode::Report;
        world.send_numbered(10).await;
        let script = Script::new(|_| Act::Done);
        let began = Instant::now();
        world.invoke(&world.processor(script.clone())).await.unwrap();
        assert_eq!((script.calls().len(), began.elapsed()), (10, Duration::ZERO));
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_begins_meanwhile_holds_the_messages_that_wait_for_their_slots() {
    for kept in BOTH {
        let mut world = world(kept, 5, 1);
        world.protect();
        world.send_numbered(10).await;
        let script = Script::new(|seen| match seen.n() {
            2 if seen.attempt == 1 => {
                Act::Fail(Failure::rate_limit("slowly").retry_after(secs(30)))
            }
            _ => Act::Done,
        });
        let processor = world.processor(script.clone());
        let event = world.receive().await;
        let report = world.report(&processor, &event).await;
        assert_eq!(script.calls().len(), 3);
        let paused = deferrals(&report).into_iter().flatten();
        assert!(paused.clone().all(|(why, _)| why == Deferral::Paused), "{:?}", deferrals(&report));
        assert_eq!(paused.count(), 7);
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_freeze_the_slots_that_passed_are_not_used_at_once() {
    for kept in BOTH {
        let world = world(kept, 5, 1);
        world.send_numbered(10).await;
        let script = Script::new(|_| Act::Done);
        let processor = world.processor(script.clone());
        let event = world.receive().await;
        let working = world.report(&processor, &event);
        let frozen = async {
            sleep(millis(500)).await;
            // All timers of this time are due at its end.
            tokio::time::advance(secs(8)).await;
        };
        tokio::join!(working, frozen);
        assert_within(5, 2, &script.calls());
        assert_eq!(script.calls().len(), 10);
    }
}

#[tokio::test(start_paused = true)]
async fn a_backlog_that_waits_in_its_place_is_called_before_its_receives_are_used_up() {
    for kept in BOTH {
        for name in ["orders", "orders.fifo"] {
            let mut world = in_place(kept, name);
            world.settings.policy.limit.as_mut().unwrap().period = secs(10);
            world.function_timeout = secs(15);
            world.batch_size = 1;
            for n in 0..40 {
                let group = format!("group-{n}");
                world.send_as(&numbered(n), |message| message.message_group_id(group)).await;
            }
            let script = Script::new(|_| Act::Done);
            world.run(&world.processor(script.clone())).await;
            assert_eq!((script.calls().len(), world.dead().len()), (40, 0), "{name}");
            let most = script.calls().iter().map(|seen| seen.receive_count).max();
            assert!(most <= Some(3), "{name}: {most:?} receives");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn all_environments_keep_one_limit_together() {
    let world = world(Kept::Together, 5, 1);
    world.send_numbered(100).await;
    let script = Script::failing_first(1, Failure::temporary("down"));
    let processors: Vec<_> = (0..4).map(|_| world.processor(script.clone())).collect();
    let began = Instant::now();
    while script.done().len() < 100 {
        join_all(processors.iter().map(|processor| world.invoke(processor))).await;
        sleep(millis(100)).await;
    }
    let calls = script.calls();
    assert_within(5, 1, &calls);
    assert_eq!(calls.len(), 200);
    assert!(world.dead().is_empty());
    assert!(began.elapsed() < secs(45), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_place_in_the_line_of_a_limit_that_the_handler_gives_is_believed_as_one_of_the_policy() {
    let rare = || Some(RateLimit::new(1, secs(60)));
    for kept in BOTH {
        let copies = async |is_handlers: bool| {
            let mut world = world(kept, 1, 1);
            let policy = &mut world.settings.policy;
            // No other wait is longer.
            policy.max_retry_after = secs(60);
            for class in [&mut policy.rate_limit, &mut policy.quota, &mut policy.temporary] {
                class.max_delay = secs(60);
            }
            policy.limit = if is_handlers { None } else { rare() };
            world.send_numbered(100).await;
            let script = Script::new(|_| Act::Done);
            let script = if is_handlers {
                script.limited(|_| Some(RateLimit::new(1, secs(60))))
            } else {
                script
            };
            world.run(&world.processor(script.clone())).await;
            assert_eq!(script.calls().len(), 100);
            world.entries(SEND).iter().sum::<usize>()
        };
        let (of_handler, of_policy) = (copies(true).await, copies(false).await);
        assert!(of_handler.abs_diff(of_policy) <= 20, "{kept:?}: {of_handler}, {of_policy}");
    }
}

/// The longest wait of a tenant that sends a message each second, behind 500 of another.
async fn longest_wait_behind_a_flood(kept: Kept, shares: Option<FairShares>) -> Duration {
    let mut world = world(kept, 10, 1);
    world.settings.policy.fair_shares = shares;
    for n in 0..500 {
        world.send(&format!(r#"{{"n":{n},"tenant":"flood"}}"#)).await;
    }
    let script = Script::new(|_| Act::Done);
    let processor = world.processor(script.clone());
    let sending = async {
        let mut sent = Vec::new();
        for n in 500..530 {
            sleep(secs(1)).await;
            sent.push(Instant::now());
            world.send(&format!(r#"{{"n":{n},"tenant":"other"}}"#)).await;
        }
        sent
    };
    // Invocations side by side, so that nobody waits for a receive.
    let (_, sent) = tokio::join!(join_all((0..10).map(|_| world.run(&processor))), sending);
    let calls = script.calls();
    assert_within(10, 1, &calls);
    assert_eq!((calls.len(), world.dead().len()), (530, 0));
    let others = calls.iter().filter(|seen| seen.n() >= 500);
    others.map(|seen| seen.at - sent[seen.n() - 500]).max().expect("calls")
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_sends_little_waits_little_behind_a_flood_of_another() {
    for kept in BOTH {
        let shares = FairShares::by("/tenant".parse().unwrap());
        let fair = longest_wait_behind_a_flood(kept, Some(shares)).await;
        assert!(fair <= secs(5), "{kept:?}: {fair:?}");
        let unfair = longest_wait_behind_a_flood(kept, None).await;
        assert!(unfair >= secs(30), "{kept:?}: {unfair:?}");
    }
}
