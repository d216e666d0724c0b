//! Compares Requeue with Lambdas that do less, in one run on one machine. `benches/compare` builds
//! all of them and starts this program.
//!
//! It compares ratios and counts. A wrong count fails; a time does not, since milliseconds hold for
//! one machine alone. `cargo test --bench side_by_side` takes the counts alone, with the program
//! that `cargo build --example ours` has built.

#![allow(missing_docs, unreachable_pub)]
#![allow(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    reason = "a benchmark that cannot go on ends"
)]
#![allow(clippy::disallowed_methods, reason = "it takes the time of other processes")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::handshake;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use requeue_testkit::certificate::Certificate;
use requeue_testkit::events::event;
use requeue_testkit::http;
use tokio::net::TcpStream;

mod lambda;
mod sqs;
mod table;

use lambda::Function;
use sqs::Sqs;
use table::{Bound, Table, median};

/// Invocations of each function for one row.
const ROUNDS: usize = 400;
/// Processes of each function for one row.
const STARTS: usize = 40;

const FAIL: (&str, &str) = ("OUTCOME", "fail");
/// Switches off Requeue's lines for batches and failures, since the references write no log.
const QUIET: (&str, &str) = ("AWS_LAMBDA_LOG_LEVEL", "ERROR");

/// An example, which cargo built in the same way as this program, beside it.
fn example(name: &str) -> PathBuf {
    std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("examples").join(name)
}

/// The ready Lambda as it is deployed, without the features that examples and benchmarks need.
fn requeue_lambda() -> PathBuf {
    std::env::var_os("REQUEUE_BENCH_LAMBDA").expect("benches/compare says where it is").into()
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

/// The peak memory of the process.
fn mib(function: &Function) -> f64 {
    function.peak_kib() / 1_024.0
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

/// The same messages from a FIFO queue, in one message group.
fn fifo(event: &Bytes) -> Bytes {
    let event = std::str::from_utf8(event).unwrap().replace(":orders\"", ":orders.fifo\"");
    let group = r#""MessageGroupId":"A-1","SequenceNumber":"18849496460467696128","SenderId""#;
    Bytes::from(event.replace("\"SenderId\"", group))
}

/// Milliseconds of invocations of two functions, which take turns.
async fn side_by_side(
    one: &mut Function,
    other: &mut Function,
    event: &Bytes,
    rounds: usize,
) -> [f64; 2] {
    with_events((one, event), (other, event), rounds).await
}

async fn with_events(
    one: (&mut Function, &Bytes),
    other: (&mut Function, &Bytes),
    rounds: usize,
) -> [f64; 2] {
    let mut took = [Vec::new(), Vec::new()];
    for _ in 0..10 {
        took[0].push(invocations(one.0, one.1, rounds / 10).await);
        took[1].push(invocations(other.0, other.1, rounds / 10).await);
    }
    took.map(median)
}

async fn all_done(table: &mut Table) {
    let sqs = Sqs::start(Duration::ZERO).await;
    let mut bare = Function::start(&example("bare"), &sqs, &[]).await;
    for (with, variables) in [("", &[QUIET][..]), (" and logged", &[])] {
        let mut ours = Function::start(&example("ours"), &sqs, variables).await;
        for (count, rounds, most) in [(10, ROUNDS * 4, 1.15), (1_000, ROUNDS, 1.25)] {
            let [ours, bare] = side_by_side(&mut ours, &mut bare, &event(count, 100), rounds).await;
            let bound = if with.is_empty() { Bound::Times(most) } else { Bound::None };
            let what = format!("{count} of {count} done{with}, beside the bare handler");
            table.row(&what, "ms", ours, Some(bare), bound);
        }
    }
    let mut standard = Function::start(&example("ours"), &sqs, &[QUIET]).await;
    let mut ordered = Function::start(&example("ours"), &sqs, &[QUIET]).await;
    let ten = event(10, 100);
    let [ordered, standard] =
        with_events((&mut ordered, &fifo(&ten)), (&mut standard, &ten), ROUNDS * 4).await;
    let what = "10 of 10 done in one message group, beside a standard queue";
    table.row(what, "ms", ordered, Some(standard), Bound::Times(1.15));
}

async fn retried(table: &mut Table) {
    let sqs = Sqs::start(Duration::ZERO).await;
    let mut ours = Function::start(&example("ours"), &sqs, &[FAIL, QUIET]).await;
    let mut by_hand = Function::start(&example("by_hand"), &sqs, &[]).await;
    let ten = event(10, 100);
    let [took, reference] = side_by_side(&mut ours, &mut by_hand, &ten, ROUNDS).await;
    table.row(
        "10 of 10 retried, beside the one by hand",
        "ms",
        took,
        Some(reference),
        Bound::Times(1.10),
    );
    let cpu = ours.cpu_of(&ten, ROUNDS).await;
    let reference = by_hand.cpu_of(&ten, ROUNDS).await;
    table.row(
        "processor time of 10 of 10 retried, each",
        "µs",
        cpu * 1e5,
        Some(reference * 1e5),
        Bound::None,
    );

    let sqs = Sqs::start(Duration::from_millis(5)).await;
    let mut ours = Function::start(&example("ours"), &sqs, &[FAIL, QUIET]).await;
    let mut by_hand = Function::start(&example("by_hand"), &sqs, &[]).await;
    let [took, reference] =
        side_by_side(&mut ours, &mut by_hand, &event(1_000, 100), ROUNDS / 4).await;
    table.row(
        "1,000 of 1,000 retried, SQS takes 5 ms",
        "ms",
        took,
        Some(reference),
        Bound::Times(45.0 / 78.0),
    );

    let mut took = Vec::new();
    for _ in 0..20 {
        sqs.refuse_next();
        took.push(millis(ours.invoke(&ten).await.took));
    }
    table.row(
        "10 of 10 retried, SQS responds with 503 once",
        "ms",
        median(took),
        None,
        Bound::AtMost(200.0),
    );
}

async fn delivered(table: &mut Table) {
    const LATENCY: f64 = 20.0;
    let target = http::Server::start(|_| async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        http::status(StatusCode::OK)
    })
    .await;
    let sqs = Sqs::start(Duration::ZERO).await;
    let url = target.url();
    let environment = [("REQUEUE_TARGET_URL", url.as_str()), ("REQUEUE_CONCURRENCY", "10")];
    let mut function = Function::start(&requeue_lambda(), &sqs, &environment).await;
    let took = invocations(&mut function, &event(10, 100), ROUNDS / 4).await;
    table.row(
        "10 delivered by HTTP, each takes 20 ms",
        "ms",
        took,
        Some(LATENCY),
        Bound::Times(1.15),
    );

    let mut most = Vec::new();
    for _ in 0..5 {
        let mut function = Function::start(&requeue_lambda(), &sqs, &environment).await;
        invocations(&mut function, &event(10, 100), 20).await;
        most.push(mib(&function));
    }
    table.row(
        "most memory of requeue-lambda, 10 delivered by HTTP",
        "MiB",
        median(most),
        None,
        Bound::AtMost(9.0),
    );

    let prompt = http::Server::start(|_| async { http::status(StatusCode::OK) }).await;
    let url = prompt.url();
    let environment = [("REQUEUE_TARGET_URL", url.as_str())];
    let functions =
        [(requeue_lambda(), &environment[..]), (example("bare"), &[]), (example("by_hand"), &[])];
    for (count, most) in [(1, 2.5 / 1.2), (10, 1.8)] {
        let event = event(count, 100);
        let (mut polled, mut took) = ([const { Vec::new() }; 3], [const { Vec::new() }; 3]);
        for _ in 0..STARTS {
            for (at, (binary, environment)) in functions.iter().enumerate() {
                let mut function = Function::start(binary, &sqs, environment).await;
                took[at].push(millis(function.first(&event).await));
                polled[at].push(millis(function.until_polled()));
            }
        }
        let [lambda, bare, by_hand] = took.map(median);
        let what =
            format!("start to the first response, {count} delivered, beside the bare handler");
        table.row(&what, "ms", lambda, Some(bare), Bound::Times(most));
        let [polls, bare_polls, _] = polled.map(median);
        if count == 1 {
            let what = "start to the first response of the one by hand";
            table.row(what, "ms", by_hand, None, Bound::None);
            let what = "start to the first poll, beside the bare handler";
            table.row(what, "ms", polls, Some(bare_polls), Bound::Times(1.3));
        }
    }
}

/// A function as target, of which Lambda's stub answers at once or after 100 ms.
async fn invoked(table: &mut Table) {
    let sqs = Sqs::start(Duration::ZERO).await;
    for (delay, count) in [(0, 10), (100, 1_000)] {
        let lambda = http::Server::start(move |request: Request<Incoming>| async move {
            // A server that does not read the event closes the connection.
            request.into_body().collect().await.unwrap();
            // Even a sleep of 0 ms ends with the next tick of the runtime's clock, 1 ms or 2 ms later.
            if delay > 0 {
                tokio::time::sleep(Duration::from_millis(delay)).await;
            }
            http::status(StatusCode::OK)
        });
        let lambda = lambda.await;
        let url = lambda.url();
        let environment = [
            ("REQUEUE_TARGET_FUNCTION", "charge"),
            ("AWS_ENDPOINT_URL_LAMBDA", url.as_str()),
            ("REQUEUE_CONCURRENCY", "10"),
            QUIET,
        ];
        let mut function = Function::start(&requeue_lambda(), &sqs, &environment).await;
        let event = event(count, 100);
        if delay == 0 {
            let took = invocations(&mut function, &event, ROUNDS).await;
            let what = "10 invoked in one call, without the time of the call";
            let own = took - posts(&lambda.authority(), &event).await;
            table.row(what, "ms", own, None, Bound::AtMost(0.6));
            let what = "most memory of requeue-lambda, 10 invoked in one call";
            table.row(what, "MiB", mib(&function), None, Bound::AtMost(12.0));
        } else {
            let took = invocations(&mut function, &event, 10).await;
            let what = "1,000 invoked, ten in a call of 100 ms";
            table.row(what, "ms", took, Some(1_000.0), Bound::Times(1.15));
        }
        let what = "requests to SQS for invoked messages that are done";
        table.row(what, "", sqs.requests(), None, Bound::Exactly(0.0));
    }
}

/// Milliseconds of a request with these bytes, on a connection that is open.
async fn posts(authority: &str, event: &Bytes) -> f64 {
    let stream = TokioIo::new(TcpStream::connect(authority).await.unwrap());
    let (mut sender, connection) = handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let mut took = Vec::new();
    for _ in 0..ROUNDS {
        let request = Request::post("/").header("host", authority);
        let request = request.body(Full::new(event.clone())).unwrap();
        // Its last response may not be over yet.
        sender.ready().await.unwrap();
        let began = Instant::now();
        let response = sender.send_request(request).await.unwrap();
        response.into_body().collect().await.unwrap();
        took.push(millis(began.elapsed()));
    }
    median(took)
}

/// The first retry of a process. It includes credentials, client, certificates, connection and TLS,
/// but not the start of the process.
async fn first_retry(table: &mut Table) {
    let certificate = Certificate::new("127.0.0.1", &[b"http/1.1"]);
    let system = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];
    let roots = system
        .iter()
        .find_map(|file| std::fs::read_to_string(file).ok())
        .expect("certificates of the system");
    let file = concat!(env!("CARGO_TARGET_TMPDIR"), "/roots.pem");
    std::fs::write(file, roots + &certificate.pem).expect("it is written");
    let sqs = Sqs::over(Some(certificate.acceptor), Duration::ZERO).await;

    let is_up = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&is_up);
    let target = http::Server::start(move |_| {
        let is_up = asked.load(Ordering::SeqCst);
        async move { http::status(if is_up { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }) }
    });
    let target = target.await;
    let url = target.url();
    let environment = [("SSL_CERT_FILE", file), ("REQUEUE_TARGET_URL", &url)];
    // The function by hand fails every message, so its first event has none.
    let functions = [(requeue_lambda(), event(10, 100)), (example("by_hand"), event(0, 0))];
    let (ten, mut took, mut cpu) =
        (event(10, 100), [const { Vec::new() }; 2], [const { Vec::new() }; 2]);
    for _ in 0..STARTS {
        for (at, (binary, done)) in functions.iter().enumerate() {
            is_up.store(true, Ordering::SeqCst);
            let mut function = Function::start(binary, &sqs, &environment).await;
            function.invoke(done).await;
            is_up.store(false, Ordering::SeqCst);
            let before = function.cpu();
            took[at].push(millis(function.invoke(&ten).await.took));
            cpu[at].push((function.cpu() - before) * 1e3);
        }
    }
    let [ours, by_hand] = took.map(median);
    table.row("first retry after start, over TLS", "ms", ours, Some(by_hand), Bound::AtMost(15.0));
    let [ours, by_hand] = cpu.map(median);
    table.row(
        "processor time of the first retry after start",
        "ms",
        ours,
        Some(by_hand),
        Bound::None,
    );
    let requests = sqs.requests() / (STARTS * 2) as f64;
    table.row(
        "requests to SQS for the first retry after start",
        "",
        requests,
        None,
        Bound::Exactly(2.0),
    );
}

async fn large(table: &mut Table) {
    const MANY: usize = 10_000;
    let sqs = Sqs::start(Duration::ZERO).await;
    let mut took = Vec::new();
    for count in [100, 1_000, MANY] {
        let mut function = Function::start(&example("ours"), &sqs, &[FAIL, QUIET]).await;
        let event = event(count, 600);
        if count == MANY {
            function.invoke(&event).await;
            let (most, length) = (mib(&function), event.len() as f64 / 1_048_576.0);
            table.row(
                "memory for 10,000 of 600 bytes, beside the event",
                "MiB",
                most,
                Some(length),
                Bound::Times(4.0),
            );
        }
        took.push(invocations(&mut function, &event, 5).await / count as f64);
        if count == MANY {
            let mut bare = Function::start(&example("bare"), &sqs, &[]).await;
            invocations(&mut bare, &event, 6).await;
            table.row(
                "memory after seven batches of 10,000, beside the bare handler",
                "MiB",
                mib(&function),
                Some(mib(&bare)),
                Bound::None,
            );
        }
    }
    table.row(
        "each of 10,000 retried, beside each of 1,000",
        "ms",
        took[2],
        Some(took[1]),
        Bound::Times(1.25),
    );
}

/// The requests to SQS for each invocation, the same on every machine.
async fn requests(table: &mut Table) {
    const INVOCATIONS: usize = 5;
    let sqs = Sqs::start(Duration::ZERO).await;
    for (what, count, variables, expected) in [
        ("requests to SQS for messages that are done", 1_000, &[][..], 0.0),
        ("requests to SQS for 10 of 10 retried", 10, &[FAIL, QUIET], 2.0),
        ("requests to SQS for 1,000 of 1,000 retried", 1_000, &[FAIL, QUIET], 200.0),
    ] {
        let mut ours = Function::start(&example("ours"), &sqs, variables).await;
        for _ in 0..INVOCATIONS {
            ours.invoke(&event(count, 100)).await;
        }
        table.row(what, "", sqs.requests() / INVOCATIONS as f64, None, Bound::Exactly(expected));
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let mut table = Table::default();
    requests(&mut table).await;
    // `cargo bench` adds this argument, and `cargo test` does not.
    let with_times = std::env::args().any(|argument| argument == "--bench");
    if with_times {
        all_done(&mut table).await;
        retried(&mut table).await;
        delivered(&mut table).await;
        invoked(&mut table).await;
        first_retry(&mut table).await;
        large(&mut table).await;
        table.print();
    }
    let miscounts = table.miscounts();
    for miscount in &miscounts {
        eprintln!("{miscount}");
    }
    if !with_times {
        // The closing line of every other test, so that `tests/run` counts this one too.
        let result = if miscounts.is_empty() { "ok" } else { "FAILED" };
        println!(
            "test result: {result}. {} passed; {} failed",
            table.len() - miscounts.len(),
            miscounts.len()
        );
    }
    ExitCode::from(u8::from(!miscounts.is_empty()))
}
