//! Whole systems in virtual time, each from one seed. A system has a producer, a queue, and
//! Lambda's event source mapping with several execution environments, or workers. Their clocks are
//! wrong, and they die. The handler does anything, an operator redrives, and requests fail in every
//! way. After each invocation and at the end, the test checks the invariants.
//!
//! | command | runs |
//! |---|---|
//! | `cargo test --test simulation` | 300 seeds through the port, 30 through the real SDK client |
//! | `tests/run rust` | 1,000 seeds and 100 |
//! | `REQUEUE_TEST_SEEDS=1000000 cargo test --profile proof --test simulation -- --nocapture` | that many through the port, a tenth of them through the client, on all cores, with lines of progress |
//! | the same with `REQUEUE_TEST_FIRST_SEED=400000` | the seeds from that one on, so that a long run can be divided |
//! | `REQUEUE_TEST_SEED=4711 cargo test --test simulation -- --nocapture` | that seed alone, with its history |
//!
//! The first history that breaks an invariant ends the run. With `REQUEUE_TEST_KEEP_GOING=1` the
//! run goes on, and names the seeds of all such histories.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "tests")]
#![allow(clippy::struct_excessive_bools, reason = "facts of a message, seen from outside")]

mod asked;
mod book;
mod bulk;
mod control;
mod copies;
mod counted;
mod faults;
mod handler;
mod history;
mod in_hand;
mod invariants;
mod letters;
mod life;
mod limits;
mod idempotency;
mod plan;
mod poller;
mod probes;
mod producer;
mod renewed;
mod stalled;
mod starved;
mod table;
mod system;
mod undeleted;
mod wire;
mod witness;
mod worker;

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use requeue::embedded::EmbeddedSqs;
use requeue::queue::SqsQueue;
use tokio::time::Instant;

use history::History;
use plan::{Host, Plan, Told};
use system::Ended;

const SEEDS: u64 = 300;
/// After so many there is a line of progress.
const PROGRESS: u64 = 10_000;

fn through_the_port(seed: u64) -> Ended {
    system::run(seed, EmbeddedSqs::clone)
}

fn through_the_client(seed: u64) -> Ended {
    system::run(seed, |sqs| SqsQueue::new(&sqs.client()))
}

#[expect(clippy::disallowed_methods, reason = "this is no setting of the library")]
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// Lives through all seeds, on all cores; ends with the report of the first that went wrong.
fn all(live: fn(u64) -> Ended, seeds: Range<u64>) {
    if let Some(seed) = number("REQUEUE_TEST_SEED") {
        let ended = live(seed);
        println!("{}\n{}", ended.plan, History::of(&ended.events, None));
        assert!(ended.violation.is_none(), "{}", ended.report(seed).unwrap_or_default());
        return;
    }
    let keeps_going = number("REQUEUE_TEST_KEEP_GOING").is_some();
    let (began, next, failed) = (Instant::now(), AtomicU64::new(seeds.start), Mutex::new(None));
    let work = || {
        while failed.lock().unwrap().is_none() || keeps_going {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                break;
            }
            if let Some(report) = live(seed).report(seed) {
                eprintln!("{}", report.lines().next().unwrap_or_default());
                failed.lock().unwrap().get_or_insert(report);
            }
            let lived = seed - seeds.start + 1;
            if lived.is_multiple_of(PROGRESS) {
                eprintln!("{lived} histories after {} s", began.elapsed().as_secs());
            }
        }
    };
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(work);
        }
    });
    if let Some(report) = failed.into_inner().unwrap() {
        panic!("{report}");
    }
}

fn seeds() -> u64 {
    number("REQUEUE_TEST_SEEDS").unwrap_or(SEEDS)
}

fn first_seed() -> u64 {
    number("REQUEUE_TEST_FIRST_SEED").unwrap_or_default()
}

#[test]
fn every_history_through_the_port_keeps_the_invariants() {
    let first = first_seed();
    all(through_the_port, first..first + seeds());
}

#[test]
fn every_history_through_the_client_keeps_the_invariants() {
    let first = first_seed() + seeds();
    all(through_the_client, first..first + seeds() / 10);
}

#[test]
fn each_kind_of_history_is_played() {
    const PLANS: usize = 10_000;
    let plans: Vec<_> = (0..).map(Plan::new).take(PLANS).collect();
    let check = |kind: &str, permille: usize, is: &dyn Fn(&&Plan) -> bool| {
        let of = plans.iter().filter(is).count();
        println!("{kind}: {of} of {PLANS}");
        assert!(of * 1_000 >= permille * PLANS, "{kind}: {of} of {PLANS}");
    };
    let has_total = |plan: &Plan| plan.policy.limit.is_some();
    let has_key = |plan: &Plan| !plan.policy.key_limits.is_empty();
    let may_fail =
        |plan: &Plan| plan.table.is_some_and(|faults| faults > 0) || plan.trouble.deaths > 0;
    check("several messages in a call", 240, &|plan| plan.per_call.is_some());
    check("a limit of all messages", 240, &|plan| has_total(plan));
    check("a key beside it", 90, &|plan| has_total(plan) && has_key(plan));
    check("a key alone", 65, &|plan| !has_total(plan) && has_key(plan));
    check("two keys", 45, &|plan| plan.policy.key_limits.len() == 2);
    check("units of a key", 40, &|plan| {
        plan.policy.key_limits.iter().any(|limit| limit.units.is_some())
    });
    check("a key by workers", 30, &|plan| has_key(plan) && plan.host != Host::Mapping);
    check("a key of calls of several", 40, &|plan| has_key(plan) && plan.per_call.is_some());
    check("used units, and faults", 10, &|plan| {
        may_fail(plan) && matches!(plan.told, Told::Used(_))
    });
    check("headers, and faults", 10, &|plan| may_fail(plan) && plan.told == Told::Headers);
}

#[test]
fn the_same_seed_is_the_same_history() {
    let first = first_seed();
    for seed in first..first + seeds() / 100 {
        for live in [through_the_port, through_the_client] {
            let (one, other) = (live(seed), live(seed));
            assert!(one.events.len() > 2, "seed {seed}: {} events", one.events.len());
            let differs = one.events.iter().zip(&other.events).find(|(one, other)| one != other);
            assert_eq!(differs, None, "seed {seed}");
            assert_eq!(one.events.len(), other.events.len(), "seed {seed}");
        }
    }
}
