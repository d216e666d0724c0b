//! One script of SQS's documented behaviour. The real SDK client runs it against the embedded SQS
//! (in virtual time, and over loopback HTTP) and against two independent implementations. If these
//! agree with the embedded SQS, tests can trust it.
//!
//! `REQUEUE_TEST_MOTO` and `REQUEUE_TEST_MINISTACK` are the endpoint URLs of the others;
//! `tests/run` starts them. `differences.rs` lists their deviations from the documents. An unlisted
//! deviation fails, and so does a listed one that no longer exists. In `checks/settling.rs` and
//! `redriven.rs` the processor itself works on all of them. `store/` has the same for DynamoDB.

mod bench;
mod checks;
mod differences;
mod function;
mod redriven;
mod table;

use std::time::{Duration, SystemTime};

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::retry::RetryConfig;
use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use futures_util::{StreamExt, stream};
use requeue::Clock;
use requeue::embedded::EmbeddedSqs;
use requeue_testkit::tools::tool;

use bench::{Bench, Check, NO_CODE, Pace};
use differences::{DIFFERENCES, known};

/// Checks at once against an implementation in real time: enough to overlap their waits, few enough
/// not to slow each other down.
const AT_ONCE: usize = 6;

#[tokio::test(start_paused = true)]
async fn the_embedded_sqs_in_virtual_time_does_what_is_documented() {
    let clock = Clock::starting_at(SystemTime::UNIX_EPOCH + Duration::from_hours(500_000));
    let sqs = EmbeddedSqs::new(clock.clone());
    let config = sqs.client_config().retry_config(RetryConfig::disabled());
    let bench = Bench::new(Client::from_conf(config.build()), clock);
    let mut observed = Vec::new();
    for check in checks::all() {
        observed.push(run(check, bench.clone()).await);
    }
    judge("embedded", &observed);
}

#[tokio::test]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
async fn the_embedded_sqs_over_loopback_does_what_is_documented() {
    let server = EmbeddedSqs::new(Clock::system()).serve(0).await.expect("a free port");
    let observed = in_real_time(&server.url()).await;
    server.stop().await;
    judge("embedded", &observed);
}

#[tokio::test]
async fn moto_agrees_but_for_the_known_differences() {
    if let Some(url) = tool("REQUEUE_TEST_MOTO") {
        judge("moto", &in_real_time(&url).await);
    }
}

#[tokio::test]
async fn ministack_agrees_but_for_the_known_differences() {
    if let Some(url) = tool("REQUEUE_TEST_MINISTACK") {
        judge("ministack", &in_real_time(&url).await);
    }
}

#[test]
fn every_difference_names_a_check_and_no_two_checks_share_a_name() {
    let mut names: Vec<&str> = checks::all().iter().map(|check| check.name).collect();
    assert!(DIFFERENCES.iter().all(|row| names.contains(&row.check)));
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

fn client(url: &str) -> Client {
    let config = aws_sdk_sqs::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "test"))
        .retry_config(RetryConfig::disabled())
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .endpoint_url(url)
        .build();
    Client::from_conf(config)
}

async fn in_real_time(url: &str) -> Vec<(Check, String)> {
    let bench = Bench::new(client(url), Clock::system());
    let checks = checks::all().into_iter().filter(|check| check.pace == Pace::Seconds);
    let runs = checks.map(|check| run(check, bench.clone()));
    stream::iter(runs.collect::<Vec<_>>()).buffer_unordered(AT_ONCE).collect().await
}

/// moto now and then answers one of several requests at once with an error page, which says nothing
/// about the rule: then the check is repeated, with queues of its own.
async fn run(check: Check, bench: Bench) -> (Check, String) {
    let mut observed = (check.run)(bench.clone()).await;
    for _ in 0..2 {
        if observed.as_ref().is_err_and(|code| code == NO_CODE) {
            observed = (check.run)(bench.clone()).await;
        }
    }
    (check, observed.unwrap_or_else(|code| format!("unexpected {code}")))
}

fn judge(implementation: &str, observed: &[(Check, String)]) {
    let mut wrong = Vec::new();
    for (check, observed) in observed {
        let (name, documented) = (check.name, check.expected);
        match known(name, implementation) {
            None if observed == documented => {}
            None => wrong.push(format!("{name}\n    documented: {documented}\n    observed:   {observed}")),
            Some(difference) if observed == difference => {}
            // Also when it has become right: the table must stay true.
            Some(difference) => wrong.push(format!(
                "{name}\n    documented: {documented}\n    known difference: {difference}\n    observed:   {observed}"
            )),
        }
    }
    let (count, all) = (wrong.len(), observed.len());
    assert!(wrong.is_empty(), "{implementation}, {count} of {all}:\n{}", wrong.join("\n"));
}
