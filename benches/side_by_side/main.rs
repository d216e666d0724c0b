//! Requeue beside Lambdas that do less, in one run on one machine. `benches/compare` builds all of them and starts this.
//!
//! What is compared are ratios and counts. Times in milliseconds hold for one machine alone.

#![allow(missing_docs, unreachable_pub)]
#![allow(clippy::unwrap_used, clippy::cast_precision_loss, reason = "a benchmark that cannot go on ends")]
#![allow(clippy::disallowed_methods, reason = "it takes the time of other processes")]

use std::path::PathBuf;
use std::time::Duration;

use hyper::body::Bytes;

#[path = "../../tests/lambda/environment.rs"]
mod environment;
mod events;
#[allow(dead_code, reason = "the tests count connections")]
#[path = "../../tests/lambda/http.rs"]
mod http;
mod lambda;
mod sqs;
mod table;

use events::event;
use lambda::Function;
use sqs::Sqs;
use table::{Bound, Table, median};

/// Invocations of each function for one row.
const ROUNDS: usize = 400;
/// Processes of each function for one row.
const STARTS: usize = 40;

const FAIL: (&str, &str) = ("OUTCOME", "fail");
/// A handler's failures are as many lines in the log; the reference writes none.
const QUIET: (&str, &str) = ("AWS_LAMBDA_LOG_LEVEL", "ERROR");

/// What is built in the same way as this program, beside it.
fn example(name: &str) -> PathBuf {
    std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("examples").join(name)
}

/// The ready Lambda as it is deployed, without what examples and benchmarks need.
fn requeue_lambda() -> PathBuf {
    std::env::var_os("REQUEUE_BENCH_LAMBDA").expect("benches/compare says where it is").into()
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

/// Milliseconds of invocations.
async fn invocations(function: &mut Function, event: &Bytes, rounds: usize) -> f64 {
    let mut took = Vec::new();
    for round in 0..rounds + rounds / 5 {
        let answer = function.invoke(event).await;
        if round >= rounds / 5 {
            took.push(millis(answer.took));
        }
    }
    median(took)
}

/// The same of two functions, which take turns.
async fn side_by_side(one: &mut Function, other: &mut Function, event: &Bytes, rounds: usize) -> [f64; 2] {
    let mut took = [Vec::new(), Vec::new()];
    for _ in 0..10 {
        took[0].push(invocations(one, event, rounds / 10).await);
        took[1].push(invocations(other, event, rounds / 10).await);
    }
    took.map(median)
}

async fn all_done(table: &mut Table) {
    let sqs = Sqs::start(Duration::ZERO).await;
    let mut ours = Function::start(&example("ours"), &sqs, &[]).await;
    let mut bare = Function::start(&example("bare"), &sqs, &[]).await;
    for (count, rounds, most) in [(10, ROUNDS * 4, 1.15), (1_000, ROUNDS, 1.25)] {
        let [ours, bare] = side_by_side(&mut ours, &mut bare, &event(count, 100), rounds).await;
        table.row(
            &format!("{count} of {count} done, beside the bare handler"),
            "ms",
            ours,
            Some(bare),
            Bound::Times(most),
        );
    }
    table.row("requests to SQS for messages that are done", "", sqs.requests(), None, Bound::Exactly(0.0));
}

async fn retried(table: &mut Table) {
    let sqs = Sqs::start(Duration::ZERO).await;
    let mut ours = Function::start(&example("ours"), &sqs, &[FAIL, QUIET]).await;
    let mut by_hand = Function::start(&example("by_hand"), &sqs, &[]).await;
    let ten = event(10, 100);
    let [took, reference] = side_by_side(&mut ours, &mut by_hand, &ten, ROUNDS).await;
    table.row("10 of 10 retried, beside the one by hand", "ms", took, Some(reference), Bound::Times(1.10));
    sqs.requests();
    let cpu = ours.cpu_of(&ten, ROUNDS).await;
    let requests = sqs.requests() / ROUNDS as f64;
    let reference = by_hand.cpu_of(&ten, ROUNDS).await;
    table.row("processor time of each of them", "µs", cpu * 1e5, Some(reference * 1e5), Bound::None);
    table.row("requests to SQS for 10 of 10 retried", "", requests, None, Bound::Exactly(2.0));

    let sqs = Sqs::start(Duration::from_millis(5)).await;
    let mut ours = Function::start(&example("ours"), &sqs, &[FAIL, QUIET]).await;
    let mut by_hand = Function::start(&example("by_hand"), &sqs, &[]).await;
    let [took, reference] = side_by_side(&mut ours, &mut by_hand, &event(1_000, 100), ROUNDS / 4).await;
    table.row("1,000 of 1,000 retried, SQS takes 5 ms", "ms", took, Some(reference), Bound::AtMost(45.0));

    let mut took = Vec::new();
    for _ in 0..20 {
        sqs.refuse_next();
        took.push(millis(ours.invoke(&ten).await.took));
    }
    table.row("10 of 10 retried, SQS answers 503 once", "ms", median(took), None, Bound::AtMost(200.0));
}

async fn delivered(table: &mut Table) {
    const LATENCY: f64 = 20.0;
    let target = http::Server::start(|_| async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        http::status(hyper::StatusCode::OK)
    })
    .await;
    let sqs = Sqs::start(Duration::ZERO).await;
    let url = target.url();
    let environment = [("REQUEUE_TARGET_URL", url.as_str()), ("REQUEUE_CONCURRENCY", "10")];
    let mut function = Function::start(&requeue_lambda(), &sqs, &environment).await;
    let took = invocations(&mut function, &event(10, 100), ROUNDS / 4).await;
    table.row("10 delivered by HTTP, each takes 20 ms", "ms", took, Some(LATENCY), Bound::Times(1.15));
    table.row("most memory of it", "MiB", function.peak_kib() / 1_024.0, None, Bound::AtMost(9.0));

    let prompt = http::Server::start(|_| async { http::status(hyper::StatusCode::OK) }).await;
    let url = prompt.url();
    let environment = [("REQUEUE_TARGET_URL", url.as_str())];
    let (one, mut took) = (event(1, 100), [Vec::new(), Vec::new(), Vec::new()]);
    let functions = [(requeue_lambda(), &environment[..]), (example("bare"), &[]), (example("by_hand"), &[])];
    for _ in 0..STARTS {
        for (took, (binary, environment)) in took.iter_mut().zip(&functions) {
            let mut function = Function::start(binary, &sqs, environment).await;
            took.push(millis(function.first(&one).await));
        }
    }
    let [lambda, bare, by_hand] = took.map(median);
    table.row("start of requeue-lambda to its first answer", "ms", lambda, Some(by_hand), Bound::AtMost(2.5));
    table.row("start of the bare handler to its first answer", "ms", bare, None, Bound::None);
}

async fn large(table: &mut Table) {
    let sqs = Sqs::start(Duration::ZERO).await;
    let mut took = Vec::new();
    for count in [100, 1_000, 10_000] {
        let mut function = Function::start(&example("ours"), &sqs, &[FAIL, QUIET]).await;
        let event = event(count, 600);
        took.push(invocations(&mut function, &event, 5).await / count as f64);
        if count == 10_000 {
            let (most, length) = (function.peak_kib() / 1_024.0, event.len() as f64 / 1_048_576.0);
            table.row(
                "memory for 10,000 of 600 bytes, beside their event",
                "MiB",
                most,
                Some(length),
                Bound::Times(4.0),
            );
        }
    }
    table.row("each of 10,000 retried, beside each of 1,000", "ms", took[2], Some(took[1]), Bound::Times(1.25));
}

#[tokio::main]
async fn main() {
    let mut table = Table::default();
    all_done(&mut table).await;
    retried(&mut table).await;
    delivered(&mut table).await;
    large(&mut table).await;
    table.print();
}
