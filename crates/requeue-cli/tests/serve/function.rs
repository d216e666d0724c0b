//! A function that is made of a handler: this test binary itself, started for the test below.

use requeue::{Failure, Message};
use serde::Deserialize;

/// Fails so many times.
#[derive(Deserialize)]
struct Order {
    failures: u32,
}

async fn handle(message: Message<Order>) -> Result<(), Failure> {
    if message.body().failures == 0 {
        return Err(Failure::non_retryable("an order without failures"));
    }
    if message.retry_count() < message.body().failures {
        return Err(Failure::temporary("not yet"));
    }
    Ok(())
}

/// The command that runs this binary as a function.
pub(crate) fn command() -> Vec<String> {
    let binary = std::env::current_exe().unwrap();
    let run = ["function::serves_as_a_function", "--exact", "--ignored", "--nocapture"];
    [binary.to_str().unwrap()].into_iter().chain(run).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the function of the other tests"]
async fn serves_as_a_function() {
    if std::env::var_os("AWS_LAMBDA_RUNTIME_API").is_some() {
        requeue::run(handle).await.unwrap();
    }
}
