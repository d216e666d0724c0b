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
use requeue::{Failure, InvalidPolicy, Message, QueueSettings, Settings};

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
    let receipts: QueueSettings = r#"{"preset": "critical", "maxRetries": 3}"#.parse()?;
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

    fn world() -> World<impl requeue::Handler<String>, String> {
        let world = World::with(handle, "payments", |settings| {
            *settings = with_policies(settings.clone()).expect("the policy is valid");
        });
        world.with_queue("receipts").with_queue("refunds")
    }

    #[tokio::test(start_paused = true)]
    async fn a_receipt_is_dead_lettered_after_three_retries() {
        let mut world = world();
        let id = world.send_text("order 1").to("receipts").await;
        world.run_until_empty().await;
        assert_eq!(world.attempts(&id), 4);
        world.assert_dead(&id, "the mail server is down");
    }

    #[tokio::test(start_paused = true)]
    async fn the_queue_decides_who_handles_a_message() {
        let mut world = world();
        let payment = world.send_text("order 1").await;
        let refund = world.send_text("order 1").to("refunds").await;
        world.run_until_empty().await;
        world.assert_done(&payment);
        world.assert_dead(&refund, "no handler for this queue");
    }
}
