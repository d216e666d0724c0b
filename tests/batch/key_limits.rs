//! A limit for each value of a key, beside that of all messages: neither gets more calls than it
//! allows, and the calls that one leaves over go to the others.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use requeue::policy::{FairShares, KeyLimit, RateLimit};
use requeue::table::Table;
use requeue::{Failure, LimitControl, Message, Scope, SharedTable};
use tokio::time::{Instant, sleep};

use crate::idempotency::Told;
use crate::rate_limit::{BOTH, Kept, assert_within, world};
use crate::world::{Act, SEND, Script, Seen, World, millis, secs};

/// Five calls in a second for each tenant. So many may come together, since a call may wait for the
/// limit of all.
fn with_keys(kept: Kept, limit: u32) -> World {
    let mut world = world(kept, limit, 1);
    let mut each = RateLimit::new(5, secs(1));
    each.burst = BURST;
    world.settings.policy.key_limits = vec![KeyLimit::new("/tenant".parse().unwrap(), each)];
    world
}

const BURST: u32 = 11;

async fn send(world: &World, n: usize, tenant: &str) {
    world.send(&format!(r#"{{"n":{n},"tenant":"{tenant}"}}"#)).await;
}

/// Runs environments until so many messages are done. Returns the time and the calls.
async fn run(world: &World, script: &Script, messages: usize) -> (Duration, Vec<Seen>) {
    let environments: Vec<_> = (0..5).map(|_| world.processor(script.clone())).collect();
    let began = Instant::now();
    while script.done().len() < messages {
        let all = environments.iter().flat_map(|one| [one, one, one]);
        join_all(all.map(|one| world.invoke(one))).await;
        sleep(millis(100)).await;
        assert!(began.elapsed() < secs(1_000), "{} of {messages}", script.done().len());
    }
    assert!(world.dead().is_empty());
    (began.elapsed(), script.calls())
}

/// The calls of each tenant, of which those with the number `n` are `n % tenants`.
fn by_tenant(calls: &[Seen], tenants: usize) -> BTreeMap<usize, Vec<Seen>> {
    let mut of = BTreeMap::<_, Vec<_>>::new();
    for seen in calls {
        of.entry(seen.n() % tenants).or_default().push(seen.clone());
    }
    of
}

#[tokio::test(start_paused = true)]
async fn many_tenants_use_the_limit_of_all_and_none_more_than_its_own() {
    let world = with_keys(Kept::Together, 50);
    for n in 0..1_260 {
        send(&world, n, &format!("tenant {}", n % 21)).await;
    }
    let script = Script::failing_first(1, Failure::temporary("down"));
    let (took, calls) = run(&world, &script, 1_260).await;
    assert_within(50, 1, &calls);
    for calls in by_tenant(&calls, 21).values() {
        assert_within(5, BURST, calls);
    }
    assert_eq!(calls.len(), 2_520);
    // 50 s at the limit of all, and the delays of the last retries.
    assert!(took <= secs(65), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_key_keeps_as_much_of_its_burst_as_its_calls_may_wait_for_the_limit_of_all() {
    for kept in BOTH {
        // A call of a key may wait two seconds for the limit of all, in which ten more may come.
        for (burst, total, at_once) in [
            (5, true, 1),
            (BURST, true, 1),
            (BURST + 1, true, 2),
            (BURST + 3, true, 4),
            (BURST + 3, false, 14),
        ] {
            let mut world = with_keys(kept, 1_000);
            let policy = &mut world.settings.policy;
            policy.key_limits[0].limit.burst = burst;
            policy.limit = policy.limit.filter(|_| total);
            world.settings.limits.concurrency = 20;
            world.batch_size = 20;
            for n in 0..20 {
                send(&world, n, "one").await;
            }
            let script = Script::new(|_| Act::Done);
            world.invoke(&world.processor(script.clone())).await;
            let calls = script.calls();
            let soon = |seen: &&Seen| seen.at < calls[0].at + millis(100);
            assert_eq!(calls.iter().filter(soon).count(), at_once, "{kept:?} {burst} {total}");
            assert_within(5, burst.max(BURST), &calls);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_joins_the_line_of_the_limit_of_all_before_it_asks_its_key() {
    let mut world = with_keys(Kept::Together, 1);
    world.settings.policy.limit.as_mut().unwrap().max_reservation = Duration::ZERO;
    let processor = world.processor(Script::new(|_| Act::Done));
    for n in 0..4 {
        send(&world, n, "first").await;
    }
    world.invoke(&processor).await;
    send(&world, 4, "other").await;
    world.invoke(&processor).await;
    let shared = world.settings.shared_table.as_ref().unwrap();
    let (policy, key) = (&world.settings.policy, "/tenant".parse().unwrap());
    for (tenant, is_new) in [("first", false), ("other", true)] {
        let limit = LimitControl::of_key(shared, policy, None, Scope::default(), &key, tenant);
        let limit = limit.unwrap().with_clock(world.clock.clone());
        assert_eq!(limit.status().await.unwrap().is_new, is_new, "{tenant}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_with_keys_costs_few_requests_and_copies() {
    let mut world = with_keys(Kept::Together, 50);
    let table = Arc::new(Told { latency: millis(5), ..Told::default() });
    world.settings.shared_table = Some(SharedTable::by(Arc::clone(&table) as Arc<dyn Table>));
    for n in 0..1_260 {
        send(&world, n, &format!("tenant {}", n % 21)).await;
    }
    let script = Script::new(|_| Act::Done);
    let (took, calls) = run(&world, &script, 1_260).await;
    assert_eq!(calls.len(), 1_260);
    assert_within(50, 7, &calls);
    // 25.2 s at the limit of all.
    assert!(took <= secs(29), "{took:?}");
    let copies = world.entries(SEND).iter().sum::<usize>();
    let requests = table.requests();
    assert!(requests <= 3 * 1_260 && copies <= 2 * 1_260, "{requests} requests, {copies} copies");
}

#[tokio::test(start_paused = true)]
async fn a_limit_with_a_key_costs_a_request_for_each_value_in_a_batch() {
    // The messages ask for the limit of all when their keys have answered: together, or in two parts.
    for (values, most) in [(0, 1), (1, 2), (3, 5), (10, 12)] {
        // None waits.
        let mut world = with_keys(Kept::Together, 1_000);
        let limit = &mut world.settings.policy.key_limits[0].limit;
        (limit.limit, limit.burst) = (1_000, 3_000);
        world.settings.policy.key_limits.retain(|_| values > 0);
        let table = Arc::new(Told { latency: millis(5), ..Told::default() });
        world.settings.shared_table = Some(SharedTable::by(Arc::clone(&table) as Arc<dyn Table>));
        for n in 0..10 {
            send(&world, n, &format!("tenant {}", n % values.max(1))).await;
        }
        world.invoke(&world.processor(Script::new(|_| Act::Done))).await;
        let requests = table.requests();
        assert!((values + 1..=most).contains(&requests), "{values}: {requests}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_flood_gets_the_calls_of_its_key_and_leaves_the_others_the_rest() {
    for fair in [false, true] {
        let mut world = with_keys(Kept::Together, 20);
        world.settings.policy.fair_shares =
            fair.then(|| FairShares::by("/tenant".parse().unwrap()));
        for n in 0..500 {
            send(&world, n * 2, "flood").await;
        }
        for n in 0..250 {
            send(&world, n * 2 + 1, &format!("tenant {}", n % 25)).await;
        }
        let script = Script::new(|_| Act::Done);
        let (took, calls) = run(&world, &script, 750).await;
        assert_within(20, 1, &calls);
        let of = by_tenant(&calls, 2);
        assert_within(5, BURST, &of[&0]);
        // 500 messages at 5 in a second.
        assert!(took <= secs(115), "{fair}: {took:?}");
        let others = of[&1].iter().map(|seen| seen.at).max().unwrap() - calls[0].at;
        let longest = if fair { secs(25) } else { secs(50) };
        assert!(others <= longest, "{fair}: {others:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn keys_have_limits_without_one_of_all_and_messages_without_a_value_share_one() {
    for kept in BOTH {
        let mut world = with_keys(kept, 1);
        world.settings.policy.limit = None;
        world.settings.policy.key_limits[0].limit.burst = 1;
        for n in 0..100 {
            let body = if n % 4 == 0 {
                format!(r#"{{"n":{n}}}"#)
            } else {
                format!(r#"{{"n":{n},"tenant":{}}}"#, n % 4)
            };
            world.send(&body).await;
        }
        let script = Script::new(|_| Act::Done);
        let began = Instant::now();
        let processor = world.processor(script.clone());
        join_all((0..4).map(|_| world.run(&processor))).await;
        let calls = script.calls();
        assert_eq!((calls.len(), world.dead().len()), (100, 0));
        for calls in by_tenant(&calls, 4).values() {
            assert_within(5, 1, calls);
        }
        let last = calls.iter().map(|seen| seen.at).max().unwrap() - began;
        assert!(last <= secs(8), "{kept:?}: {last:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_counts_the_units_of_calls() {
    for kept in BOTH {
        let mut world = world(kept, 100, 1);
        world.settings.policy.units = Some("/tokens".parse().unwrap());
        let tokens = |n: usize| [1, 50, 7, 100, 1_000][n % 5];
        for n in 0..50 {
            world.send(&format!(r#"{{"n":{n},"tokens":{}}}"#, tokens(n))).await;
        }
        let script = Script::new(|_| Act::Done);
        let began = Instant::now();
        let processor = world.processor(script.clone());
        join_all((0..3).map(|_| world.run(&processor))).await;
        let calls = script.calls();
        assert_eq!((calls.len(), world.dead().len()), (50, 0));
        for (first, one) in calls.iter().enumerate() {
            let mut units = 0;
            for other in &calls[first..] {
                assert!(other.at - one.at + millis(1) >= millis(10) * units, "{kept:?}: {units}");
                // More than the limit count as all of it.
                units += tokens(other.n()).min(100);
            }
        }
        // 2,580 units, of which the last call may not have paid 99. At least 97 % of the limit.
        let last = calls.iter().map(|seen| seen.at).max().unwrap() - began;
        assert!((secs(24)..=millis(26_600)).contains(&last), "{kept:?}: {last:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_report_names_the_limit_for_which_a_message_waits() {
    let world = with_keys(Kept::Together, 50);
    for n in 0..40 {
        send(&world, n, "acme").await;
    }
    let processor = world.processor(Script::new(|_| Act::Done));
    let (events, mut keys) = (join_all((0..4).map(|_| world.receive())).await, Vec::new());
    for report in join_all(events.iter().map(|event| world.report(&processor, event))).await {
        let waits = report.outcomes.iter().filter(|outcome| outcome.disposition.wait().is_some());
        keys.extend(waits.map(|outcome| outcome.limit_key.clone()));
    }
    assert!(
        keys.len() > 10 && keys.iter().all(|key| key.as_deref() == Some("/tenant")),
        "{keys:?}"
    );
}

/// Runs 120 calls of 20 units each, of which `used` are used.
async fn run_using(kept: Kept, used: u32) -> (Duration, Duration) {
    let mut world = world(kept, 100, 1);
    world.settings.policy.units = Some("/tokens".parse().unwrap());
    for n in 0..120 {
        world.send(&format!(r#"{{"n":{n},"tokens":20}}"#)).await;
    }
    let began = Instant::now();
    let calls = Arc::new(Mutex::new(Vec::new()));
    let processor = world.processor({
        let calls = Arc::clone(&calls);
        move |message: Message| {
            calls.lock().unwrap().push(Instant::now());
            async move {
                message.used(used);
                Ok::<_, Failure>(())
            }
        }
    });
    join_all((0..3).map(|_| world.run(&processor))).await;
    let calls = calls.lock().unwrap();
    assert_eq!((calls.len(), world.dead().len()), (120, 0));
    (calls[119] - began, calls[119] - calls[60])
}

#[tokio::test(start_paused = true)]
async fn the_units_that_calls_used_count_instead_of_the_estimated_ones() {
    for kept in BOTH {
        // At 100 units in a second, a call each 0.2 s, 0.1 s and 0.4 s.
        for (used, rest) in [(20, 11_800), (10, 5_900), (40, 23_600)] {
            let (all, half) = run_using(kept, used).await;
            let told = format!("{kept:?}, {used} of 20: {all:?}, {half:?}");
            // The units of calls that run are estimated ones.
            assert!(half + secs(1) >= millis(rest), "{told}");
            assert!(half <= millis(rest) + secs(2), "{told}");
        }
    }
}
