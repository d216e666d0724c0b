//! The cost of a decision. The policy decides once for each failed message, beside two calls to SQS
//! of several milliseconds, so a decision must not add to the wait.

use std::time::{Duration, SystemTime};

use divan::{Bencher, black_box};
use requeue::policy::{Backoff, History, Jitter, RetryPolicy};
use requeue::{Disposition, Failure};

fn main() {
    divan::main();
}

const RETRIES: [u32; 3] = [0, 10, u32::MAX - 1];

fn received() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_hours(500_000)
}

fn history(retries: u32) -> History {
    let mut history = History::starting(received());
    (history.retries, history.class_retries) = (retries, retries);
    history.previous = Some(Duration::from_mins(1));
    history
}

fn unlimited(backoff: Backoff, jitter: Jitter) -> RetryPolicy {
    let mut policy = RetryPolicy::standard();
    policy.max_retries = u32::MAX;
    policy.temporary.backoff = backoff;
    policy.temporary.jitter = jitter;
    policy
}

fn decide(bencher: Bencher<'_, '_>, policy: &RetryPolicy, history: &History, failure: &Failure) {
    let now = received() + Duration::from_secs(5);
    bencher.bench_local(|| -> Disposition {
        policy.decide(black_box(history), black_box(failure), black_box(now), black_box(0.5))
    });
}

#[divan::bench(args = RETRIES)]
fn exponential(bencher: Bencher<'_, '_>, retries: u32) {
    let backoff = Backoff::Exponential { base: Duration::from_secs(2), multiplier: 3.0 };
    decide(
        bencher,
        &unlimited(backoff, Jitter::Equal),
        &history(retries),
        &Failure::temporary("503"),
    );
}

#[divan::bench(args = RETRIES)]
fn fibonacci(bencher: Bencher<'_, '_>, retries: u32) {
    let backoff = Backoff::Fibonacci { base: Duration::from_secs(2) };
    decide(
        bencher,
        &unlimited(backoff, Jitter::Equal),
        &history(retries),
        &Failure::temporary("503"),
    );
}

#[divan::bench(args = RETRIES)]
fn list_of_delays(bencher: Bencher<'_, '_>, retries: u32) {
    let backoff =
        Backoff::List { first: Duration::from_secs(5), then: vec![Duration::from_secs(30); 99] };
    decide(
        bencher,
        &unlimited(backoff, Jitter::Full),
        &history(retries),
        &Failure::temporary("503"),
    );
}

#[divan::bench]
fn decorrelated(bencher: Bencher<'_, '_>) {
    let backoff = Backoff::Exponential { base: Duration::from_secs(2), multiplier: 3.0 };
    decide(
        bencher,
        &unlimited(backoff, Jitter::Decorrelated),
        &history(10),
        &Failure::temporary("503"),
    );
}

#[divan::bench]
fn named_delay(bencher: Bencher<'_, '_>) {
    let failure = Failure::rate_limit("429").retry_after(Duration::from_hours(1));
    decide(bencher, &RetryPolicy::standard(), &history(10), &failure);
}

#[divan::bench]
fn retries_exhausted(bencher: Bencher<'_, '_>) {
    decide(bencher, &RetryPolicy::standard(), &history(50), &Failure::quota("used up"));
}
