//! A Lambda on the library that does to itself what the message says, for the tests of what that
//! does to the others.

use std::time::Duration;

use requeue::{Error, Failure, Message};

#[derive(serde::Deserialize)]
struct Task {
    #[serde(rename = "do")]
    what: String,
}

async fn trouble(message: Message<Task>) -> Result<(), Failure> {
    match message.body().what.as_str() {
        "ok" => Ok(()),
        "panic" => panic!("canary-panic-text"),
        "block" => {
            std::thread::sleep(Duration::from_secs(3_600));
            Ok(())
        }
        "abort" => std::process::abort(),
        "hang" => std::future::pending().await,
        "rate-limit" => Err(Failure::rate_limit("slow down").retry_after(Duration::from_secs(1))),
        "temporary" => Err(Failure::temporary("not just now")),
        _ => Err(Failure::non_retryable("no such task")),
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    requeue::run(trouble).await
}
