//! One function behind several queues. One queue has a policy of its own.
//!
//! Give the function one event source mapping for each queue.

#![allow(
    clippy::disallowed_methods,
    clippy::unused_async,
    clippy::unwrap_used,
    reason = "rules of the library"
)]

use requeue::queue::QueueArn;
use requeue::{Failure, InvalidPolicy, Message, Settings};

async fn handle(message: Message<String>) -> Result<(), Failure> {
    match message.queue().map(QueueArn::name) {
        Some("payments") => charge(message.body()).await,
        Some("receipts") => send_receipt(message.body()).await,
        _ => Err(Failure::non_retryable("no handler for this queue")),
    }
}

async fn charge(_order: &str) -> Result<(), Failure> {
    Ok(())
}

async fn send_receipt(_order: &str) -> Result<(), Failure> {
    Err(Failure::temporary("the mail server is down"))
}

/// A late receipt is of no use, so it gets three retries, within a minute.
fn with_policies(settings: Settings) -> Result<Settings, InvalidPolicy> {
    let receipts = r#"{"preset": "critical", "maxRetries": 3}"#.parse()?;
    Ok(settings.policy_for("receipts", receipts))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let settings = with_policies(Settings::from_env()?)?;
    Ok(requeue::run_with(handle, settings).await?)
}

#[cfg(test)]
mod tests {
    use requeue::testing::World;

    use super::*;

    fn world(queue: &str) -> World<impl requeue::Handler<String>, String> {
        World::with(handle, queue, |settings| {
            *settings = with_policies(settings.clone()).expect("the policy is valid");
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_receipt_is_dead_lettered_after_three_retries() {
        let mut world = world("receipts");
        let id = world.send_text("order 1").await;
        world.run_until_empty().await;
        assert_eq!(world.attempts(&id), 4);
        world.assert_dead(&id, "the mail server is down");
    }

    #[tokio::test(start_paused = true)]
    async fn the_queue_decides_who_handles_a_message() {
        let mut payments = world("payments");
        let id = payments.send_text("order 1").await;
        payments.run_until_empty().await;
        payments.assert_done(&id);

        let mut others = world("refunds");
        let id = others.send_text("order 1").await;
        others.run_until_empty().await;
        others.assert_dead(&id, "no handler for this queue");
    }
}
