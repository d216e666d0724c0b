//! Requeue leaves a downstream service alone while it asks for a pause or fails. The messages wait
//! in the queue, and none is lost or dead-lettered for that.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::future::join_all;
use requeue::embedded::Fault;
use requeue::policy::{CircuitBreaker, RateLimit};
use requeue::{Deferral, Disposition, Failure, Report, Sampler, Scope};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::world::{Act, Log, SEND, Script, Seen, World, numbered, secs, state};

/// One message after the other, and protection as it is by default.
fn world() -> World {
    let mut world = World::new();
    world.settings.limits.concurrency = 1;
    world.protect();
    world
}

fn limited(seconds: u64) -> Act {
    Act::Fail(Failure::rate_limit("slowly").retry_after(secs(seconds)))
}

fn down() -> Act {
    Act::Fail(Failure::temporary("down"))
}

async fn next(world: &World, script: &Script) -> Report {
    let event = world.receive().await;
    world.report(&world.processor(script.clone()), &event).await
}

/// Why each message was deferred, and for how many seconds.
pub fn deferrals(report: &Report) -> Vec<Option<(Deferral, u64)>> {
    let deferral = |disposition| match disposition {
        Disposition::Defer { reason: why, wait, .. } => Some((why, wait.total().as_secs())),
        _ => None,
    };
    report.outcomes.iter().map(|outcome| deferral(outcome.disposition)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_names_a_delay_defers_those_not_yet_started_for_a_minute_at_most() {
    for (named, paused) in [(1, 1), (7, 7), (60, 60), (21_600, 60)] {
        for failure in [Failure::rate_limit("slowly"), Failure::quota("no more today")] {
            let world = world();
            world.send_numbered(3).await;
            let script = Script::always(failure.retry_after(secs(named)));
            let report = next(&world, &script).await;
            assert_eq!(script.calls().len(), 1, "{named}");
            let wait = Some((Deferral::Paused, paused));
            assert_eq!(deferrals(&report), [None, wait, wait], "{named}");
            assert_eq!(
                report.outcomes[0].disposition.wait().unwrap().total(),
                secs(named),
                "its own delay"
            );
            for copy in world.messages().iter().filter(|copy| !copy.body.contains(r#""n":0"#)) {
                let copy = state(copy);
                assert_eq!(
                    (&copy["retryCount"], &copy["retryState"]["deferrals"]),
                    (&0.into(), &1.into())
                );
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_holds_for_later_batches_of_the_environment_and_one_message_ends_it() {
    let world = world();
    let script =
        Script::new(
            |seen| if seen.n() == 9 && seen.attempt == 1 { limited(10) } else { Act::Done },
        );
    let processor = world.processor(script.clone());
    world.send(&numbered(9)).await;
    world.invoke(&processor).await.unwrap();
    let paused = Instant::now();
    world.send_numbered(3).await;
    world.invoke(&processor).await.unwrap();
    assert_eq!(script.calls().len(), 1, "the second batch is deferred");
    world.run(&processor).await;
    let calls = script.calls();
    assert!(calls[1..].iter().all(|seen| seen.at - paused >= secs(10)), "{calls:?}");
    assert_eq!(calls.len(), 5, "one each, and one again");
    assert!(world.dead().is_empty());
}

#[tokio::test(start_paused = true)]
async fn after_a_pause_one_message_probes_unless_it_ended_as_long_ago_as_it_lasted() {
    for (after, calls) in [(10, 1), (19, 1), (20, 4)] {
        let mut world = world();
        world.settings.limits.concurrency = 10;
        world.send_numbered(5).await;
        let script = Script::new(|seen| match seen.n() {
            0 => limited(10),
            _ => Act::work(secs(3)),
        });
        let processor = world.processor(script.clone());
        let event = world.receive().await;
        let (first, rest) = event["Records"].as_array().unwrap().split_at(1);
        world.report(&processor, &json!({ "Records": first })).await;
        sleep(secs(after)).await;
        let report = world.report(&processor, &json!({ "Records": rest })).await;
        assert_eq!(script.calls().len(), 1 + calls, "{after}");
        assert_eq!(deferrals(&report)[calls..], vec![Some((Deferral::Paused, 1)); 4 - calls]);
        let report = world.report(&processor, &json!({ "Records": rest })).await;
        assert_eq!(deferrals(&report), [None; 4], "the probe was answered");
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_postponed_by_six_hours_delays_no_other() {
    let world = world();
    world.send_numbered(10).await;
    let script = Script::new(|seen| match (seen.n(), seen.attempt) {
        (0, 1) => Act::Fail(Failure::postpone(secs(21_600))),
        _ => Act::Done,
    });
    let report = next(&world, &script).await;
    assert_eq!(deferrals(&report)[1..], [None; 9]);
    assert_eq!(script.calls().len(), 10);
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_one_tenant_does_not_delay_another() {
    let mut world = world();
    world.settings.limits.concurrency = 10;
    world.send_numbered(20).await;
    world.batch_size = 20;
    let tenant = |n: usize| n % 2;
    let script =
        Script::new(move |seen| if tenant(seen.n()) == 0 { limited(3_600) } else { Act::Done });
    let script = script.scoped(|message| {
        let body: Value = serde_json::from_str(message.body()).unwrap();
        Scope::of((body["n"].as_u64().unwrap() % 2).to_string())
    });
    let processor = world.processor(script.clone());
    let log = Log::default();
    let _listening = log.listen();
    let report = world.report(&processor, &world.receive().await).await;
    let text = log.text();
    let told: Vec<&str> = text.lines().filter(|line| line.contains("paused: ")).collect();
    let fields =
        [format!("scope={}", Scope::of("0")), r#"class="rate-limit""#.into(), "until=".into()];
    assert!(fields.iter().all(|field| told[0].contains(field)), "{told:?}");
    assert_eq!(told.len(), 1, "once for all calls that ask for it");
    let (limited, others): (Vec<&Seen>, Vec<&Seen>) =
        script.calls().leak().iter().partition(|seen| tenant(seen.n()) == 0);
    assert_eq!(others.len(), 10, "each of them is called");
    assert!(limited.len() < 10, "{}", limited.len());
    let paused = deferrals(&report).iter().filter(|deferral| deferral.is_some()).count();
    assert_eq!(paused, 10 - limited.len());
}

#[tokio::test(start_paused = true)]
async fn a_callee_that_is_down_is_hardly_asked() {
    let mut world = world();
    world.settings.sampler = Sampler::seeded(7);
    world.settings.policy.max_retries = 1_000;
    world.send_numbered(50).await;
    let began = Instant::now();
    let outage = secs(600);
    let script = Script::new(move |seen| if seen.at - began < outage { down() } else { Act::Done });
    let log = Log::default();
    let _listening = log.listen();
    world.run(&world.processor(script.clone())).await;
    for line in ["circuit opened", "circuit closed"] {
        assert_eq!(log.text().matches(line).count(), 1, "{line}");
    }
    let opened = log.text().lines().find(|line| line.contains("circuit opened")).map(str::to_owned);
    let fields = [r#"event="circuit-opened""#, "scope=-", "down", "firstProbe="];
    let has_all = |line: &String| fields.iter().all(|field| line.contains(field));
    assert!(opened.as_ref().is_some_and(has_all), "{opened:?}");
    let during = script.calls().iter().filter(|seen| seen.at - began < outage).count();
    // Five open it, twelve probe in the first 40 s, and one each 30 s.
    assert!((25..=5 + 12 + 600 / 30).contains(&during), "{during} calls");
    assert_eq!(script.calls().len(), during + 50, "each is called once when it works again");
    let most = script.calls().iter().map(|seen| seen.attempt).max().unwrap();
    assert!(most <= 1 + 5, "{most}: deferrals use up no retry");
    assert!(world.dead().is_empty());
}

#[tokio::test(start_paused = true)]
async fn after_an_outage_the_calls_of_an_environment_alone_grow_and_use_no_retry() {
    for limit in [None, Some(1_000)] {
        let mut world = world();
        world.settings.limits.concurrency = 100;
        world.settings.sampler = Sampler::seeded(7);
        world.settings.policy.max_retries = 1_000;
        world.settings.policy.limit = limit.map(|calls| RateLimit::new(calls, secs(1)));
        world.function_timeout = secs(60);
        world.send_numbered(1_000).await;
        let (began, outage) = (Instant::now(), secs(40));
        let script =
            Script::new(move |seen| if seen.at - began < outage { down() } else { Act::Done });
        let processor = world.processor(script.clone());
        // Ten batches at the same time.
        let poll = async |_| world.run(&processor).await;
        join_all((0..10).map(poll)).await;
        let calls: Vec<Instant> = script.calls().iter().map(|seen| seen.at).collect();
        let back = *calls.iter().filter(|at| **at - began >= outage).min().expect("a probe");
        let made = |from: u64| {
            let second = back + secs(from)..back + secs(from + 1);
            calls.iter().filter(|at| second.contains(at)).count()
        };
        if limit.is_none() {
            for (second, most) in [(0, 13), (1, 22), (2, 42), (3, 82)] {
                assert!((4..=most).contains(&made(second)), "{} calls in {second}", made(second));
            }
        } else {
            assert!(made(0) > 13, "the limit is enough: {}", made(0));
        }
        let failed = calls.iter().filter(|at| **at < back).count();
        assert_eq!(calls.len(), failed + 1_000, "each is called once when it works again");
        assert!(world.dead().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn what_says_nothing_about_the_callee_opens_no_circuit() {
    for act in [Act::Panic, Act::Fail(Failure::non_retryable("no"))] {
        let world = world();
        world.send_numbered(10).await;
        let script = Script::new(move |_| act.clone());
        let report = next(&world, &script).await;
        assert_eq!((script.calls().len(), deferrals(&report)), (10, vec![None; 10]));
    }
}

#[tokio::test(start_paused = true)]
async fn time_outs_of_handlers_open_the_circuit_and_the_end_of_the_invocation_does_not() {
    for (function_timeout, calls) in [(secs(60), 5), (secs(16), 2)] {
        let mut world = world();
        world.settings.limits.timeout = secs(9);
        world.function_timeout = function_timeout;
        world.send_numbered(10).await;
        let script = Script::new(|_| Act::Hang);
        let processor = world.processor(script.clone());
        let report = world.report(&processor, &world.receive().await).await;
        assert_eq!(script.calls().len(), calls, "{function_timeout:?}");
        let why = deferrals(&report)[9].unwrap().0;
        assert_eq!(why, if calls == 5 { Deferral::CircuitOpen } else { Deferral::NoTimeLeft });
    }
}

#[tokio::test(start_paused = true)]
async fn handlers_that_began_late_and_were_cut_off_say_nothing_however_many_they_are() {
    for timeout in [secs(11), secs(12), secs(900)] {
        // Handlers end at 12 s. The first five take this long, and then the others hang.
        for (first, called) in [(secs(1), 0), (secs(7), 3)] {
            let mut world = world();
            world.settings.limits.concurrency = 5;
            world.settings.limits.timeout = timeout;
            world.function_timeout = secs(16);
            world.send_numbered(10).await;
            let begun = AtomicU32::new(0);
            let script = Script::new(move |_| match begun.fetch_add(1, Ordering::Relaxed) {
                0..5 => Act::work(first),
                5..10 => Act::Hang,
                _ => Act::Done,
            });
            let processor = world.processor(script.clone());
            world.report(&processor, &world.receive().await).await;
            for n in 10..13 {
                world.send(&numbered(n)).await;
            }
            world.report(&processor, &world.receive().await).await;
            assert_eq!(script.calls().len(), 10 + called, "{timeout:?} {first:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_is_called_once_when_it_was_deferred_as_often_as_is_allowed() {
    let mut world = world();
    world.settings.policy.max_deferrals = 4;
    world.settings.policy.max_deferral = secs(2);
    // It never opens again by itself.
    let mut breaker = CircuitBreaker::default();
    (breaker.threshold, breaker.reset_timeout) = (1, secs(900));
    world.settings.policy.circuit_breaker = Some(breaker);
    world.settings.policy.max_pause = Some(secs(900));
    world.settings.policy.max_retries = 2;
    world.settings.policy.temporary.total_timeout = secs(1_000_000);
    world.send_numbered(2).await;
    let script = Script::new(|_| down());
    world.run(&world.processor(script.clone())).await;
    let second: Vec<u32> =
        script.calls().iter().filter(|seen| seen.n() == 1).map(|seen| seen.attempt).collect();
    assert_eq!(second, [1, 2, 3], "deferred and called, with all its retries");
    assert_eq!(world.dead().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_message_is_called_once_when_its_time_is_up_and_never_dead_lettered_uncalled() {
    for strategy in [requeue::Strategy::Copy, requeue::Strategy::Visibility] {
        for sends_fail in [false, true] {
            for budget in [1, 10, 100, 1_000, 20_000] {
                let mut world = world();
                world.settings.strategy = strategy;
                world.set_max_receive_count(5).await;
                for class in ["temporary", "quota", "rate-limit"] {
                    let policy = &mut world.settings.policy;
                    match class {
                        "temporary" => policy.temporary.total_timeout = secs(budget),
                        "quota" => policy.quota.total_timeout = secs(budget),
                        _ => policy.rate_limit.total_timeout = secs(budget),
                    }
                }
                if sends_fail {
                    world.faults_of(SEND, |_| Fault::refuse(403, "AccessDenied"));
                }
                world.send_numbered(10).await;
                let script =
                    Script::new(|seen| if seen.n() % 2 == 0 { limited(3_600) } else { down() });
                world.run(&world.processor(script.clone())).await;
                let mut called: Vec<usize> = script.calls().iter().map(Seen::n).collect();
                called.sort_unstable();
                called.dedup();
                let context = format!("{strategy:?}, sends fail: {sends_fail}, {budget} s");
                assert_eq!(called, (0..10).collect::<Vec<_>>(), "{context}");
                assert_eq!(world.dead().len(), 10, "{context}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_thousand_that_are_deferred_together_do_not_come_back_together() {
    let mut world = world();
    world.batch_size = 1_000;
    world.settings.sampler = Sampler::seeded(3);
    world.send_numbered(1_000).await;
    let script = Script::new(|_| limited(30));
    next(&world, &script).await;
    let mut by_second = BTreeMap::<u64, usize>::new();
    for message in world.messages() {
        *by_second.entry(world.wait(&message).as_secs()).or_default() += 1;
    }
    assert!(by_second.keys().all(|second| (30..=60).contains(second)), "{by_second:?}");
    assert!(by_second.values().all(|count| *count < 60), "{by_second:?}");
}

#[tokio::test(start_paused = true)]
async fn batches_side_by_side_share_the_probes() {
    let world = world();
    let script = Script::new(|seen| match seen.attempt {
        1 if seen.n() < 5 => down(),
        _ => Act::work(secs(2)),
    });
    let processor = world.processor(script.clone());
    world.send_numbered(5).await;
    world.invoke(&processor).await.unwrap();
    sleep(secs(30)).await;
    for n in 5..9 {
        world.send(&numbered(n)).await;
    }
    let mut events = Vec::new();
    let event = world.receive().await;
    for record in event["Records"].as_array().unwrap() {
        events.push(json!({ "Records": [record] }));
    }
    let reports = events.iter().map(|event| world.report(&processor, event));
    let reports = join_all(reports).await;
    let called = reports.iter().filter(|report| report.outcomes[0].elapsed.is_some()).count();
    assert_eq!((called, script.calls().len()), (3, 8), "three of {} probe", reports.len());
}

#[tokio::test(start_paused = true)]
async fn switched_off_nothing_is_held() {
    let mut world = World::new();
    world.settings.limits.concurrency = 1;
    world.send_numbered(10).await;
    let script = Script::new(|seen| if seen.n() % 2 == 0 { limited(60) } else { down() });
    let report = next(&world, &script).await;
    assert_eq!((script.calls().len(), deferrals(&report)), (10, vec![None; 10]));
}

#[tokio::test(start_paused = true)]
async fn a_pause_costs_no_message_of_a_fifo_queue_its_call_whatever_count_its_producer_claims() {
    for claimed in 0..=2 {
        let mut world = World::with_queue("orders.fifo", &[]);
        world.settings.limits.concurrency = 1;
        world.settings.policy.max_retries = 2;
        world.protect();
        for body in [r#"{"n":0}"#.to_owned(), format!(r#"{{"n":1,"retryCount":{claimed}}}"#)] {
            let group = body.len().to_string();
            world
                .send_as(&body, |message| {
                    message.message_group_id(&group).message_deduplication_id(group)
                })
                .await;
        }
        let script =
            Script::new(
                |seen| if seen.n() == 0 && seen.attempt == 1 { limited(30) } else { Act::Done },
            );
        world.run(&world.processor(script.clone())).await;
        let called = script.calls().iter().filter(|seen| seen.n() == 1).count();
        assert_eq!((called, world.dead().len()), (1, 0), "{claimed} retries claimed");
    }
}

#[tokio::test(start_paused = true)]
async fn a_few_bad_messages_do_not_keep_the_good_ones_from_a_callee_that_works() {
    let mut world = world();
    world.settings.sampler = Sampler::seeded(5);
    world.settings.limits.concurrency = 10;
    let is_bad = |n: usize| n >= 1_000;
    let script = Script::new(move |seen| if is_bad(seen.n()) { down() } else { Act::Done });
    let processor = world.processor(script.clone());
    for n in 0..20 {
        world.send(&numbered(1_000 + n)).await;
    }
    // A good one every minute, for half an hour.
    let began = Instant::now();
    for n in 0..33 {
        let due = began + secs(60 * n);
        while Instant::now() < due {
            sleep(secs(1)).await;
            world.invoke(&processor).await;
        }
        if n < 30 {
            world.send(&numbered(usize::try_from(n).unwrap())).await;
        }
    }
    let late = |seen: &&Seen| seen.at - (began + secs(60 * u64::try_from(seen.n()).unwrap()));
    let calls = script.calls();
    let good: Vec<_> =
        calls.iter().filter(|seen| !is_bad(seen.n())).map(|seen| late(&seen)).collect();
    assert_eq!(good.len(), 30);
    assert!(good.iter().all(|late| *late <= secs(120)), "{good:?}");
}

#[tokio::test(start_paused = true)]
async fn a_probe_of_which_nobody_hears_leaves_its_place_to_the_next() {
    // what becomes of the probe, and when its invocation is dropped
    for (act, dropped_after) in
        [(Act::Panic, secs(60)), (Act::Hang, secs(60)), (Act::Hang, secs(1))]
    {
        let mut world = world();
        world.function_timeout = secs(20);
        world.send_numbered(3).await;
        let script = Script::new(move |seen| match seen.n() {
            0 => limited(60),
            1 => act.clone(),
            _ => Act::Done,
        });
        let processor = world.processor(script.clone());
        let event = world.receive().await;
        let [limited, probe, next] = [0, 1, 2].map(|n| json!({ "Records": [event["Records"][n]] }));
        world.report(&processor, &limited).await;
        sleep(secs(60)).await;
        let _ = timeout(dropped_after, world.report(&processor, &probe)).await;
        // A tenth of the pause.
        sleep(secs(6)).await;
        let report = world.report(&processor, &next).await;
        assert_eq!(
            (script.calls().len(), deferrals(&report)),
            (3, vec![None]),
            "{dropped_after:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn with_the_extremes_of_the_policy_document_every_message_is_done_in_the_end() {
    for (document, concurrency) in [
        (r#"{"maxDeferrals": 0}"#, 10),
        (r#"{"maxDeferralSeconds": 86400}"#, 1),
        (r#"{"maxDeferralSeconds": 0.001, "maxPauseSeconds": 900}"#, 1),
        (
            r#"{"maxPauseSeconds": 0.001, "circuitBreaker": {"threshold": 1, "resetTimeoutSeconds": 0.001}}"#,
            1_000,
        ),
        (
            r#"{"maxPauseSeconds": 900, "circuitBreaker": {"threshold": 1, "resetTimeoutSeconds": 900}}"#,
            1_000,
        ),
        (
            r#"{"maxPostponements": 0, "circuitBreaker": {"threshold": 1000, "resetTimeoutSeconds": 900}}"#,
            10,
        ),
    ] {
        for failure in
            [Failure::temporary("down"), Failure::rate_limit("slowly").retry_after(secs(1_200))]
        {
            let mut world = World::new();
            world.settings.policy = document.parse().unwrap();
            world.settings.limits.concurrency = concurrency;
            world.settings.sampler = Sampler::seeded(5);
            world.batch_size = 100;
            world.send_numbered(100).await;
            let (began, failure) = (Instant::now(), failure.clone());
            let is_out = move |seen: &Seen| seen.at - began < secs(300);
            let script =
                Script::new(
                    move |seen| if is_out(seen) { Act::Fail(failure.clone()) } else { Act::Done },
                );
            world.run(&world.processor(script.clone())).await;
            assert_eq!((script.done().len(), world.dead().len()), (100, 0), "{document}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_may_not_be_held_probes_an_open_circuit() {
    let mut world = world();
    world.settings.strategy = requeue::Strategy::Visibility;
    world.set_max_receive_count(100).await;
    world.send_numbered(20).await;
    let begun = Instant::now();
    let script = Script::new(move |_| if begun.elapsed() < secs(5) { down() } else { Act::Done });
    let log = Log::default();
    let listening = log.listen();
    let processor = world.processor(script.clone());
    let mut batches = 0;
    // SQS has delivered each of them before.
    while !log.text().contains("circuit closed") {
        batches += 1;
        assert!(batches < 100, "{}", log.text());
        world.invoke(&processor).await;
        sleep(secs(1)).await;
    }
    drop(listening);
    let done = script.done().len();
    assert!(done <= 10, "{done} messages were done before the circuit closed");
}
