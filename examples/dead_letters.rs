//! A function on the dead-letter queue: it opens a ticket for each dead-lettered message, with the
//! reason.
//!
//! Give the dead-letter queue a dead-letter queue of its own. If the function cannot open a ticket,
//! Requeue retries it and dead-letters it at last.

#![allow(
    clippy::disallowed_methods,
    clippy::unused_async,
    clippy::unwrap_used,
    reason = "rules of the library"
)]

use std::sync::{Arc, Mutex};

use requeue::{Failure, FailureClass, Message};

/// The ticket system. Replace it by your own client.
#[derive(Clone, Default)]
struct Tickets(Arc<Mutex<Vec<String>>>);

impl Tickets {
    async fn open(&self, title: String) -> std::io::Result<()> {
        println!("{title}");
        self.0.lock().expect("nothing panics while it is locked").push(title);
        Ok(())
    }
}

async fn handle(tickets: Tickets, message: Message) -> Result<(), Failure> {
    let info = message.dead_letter();
    let title = match &info {
        // Only its sender can repair it.
        Some(info) if info.class() == Some(FailureClass::NonRetryable) => "refused",
        Some(_) => "dead-lettered after its retries",
        // SQS moved it, in the mode `redrive` or after receives without a response.
        None => "received too often",
    };
    let detail = info.as_ref().and_then(|info| info.detail()).unwrap_or("no reason is known");
    let ticket = format!("{title}: {detail} (message {})", message.idempotency_key());
    tickets.open(ticket).await.map_err(|_| Failure::temporary("the ticket is not opened"))
}

#[tokio::main]
async fn main() -> Result<(), requeue::Error> {
    let tickets = Tickets::default();
    requeue::run(move |message| handle(tickets.clone(), message)).await
}

#[cfg(test)]
mod tests {
    use requeue::DeadLetterMode;
    use requeue::testing::World;

    use super::*;

    async fn refuse(_: Message) -> Result<(), Failure> {
        Err(Failure::non_retryable("an order without an amount"))
    }

    #[tokio::test(start_paused = true)]
    async fn a_ticket_says_why_the_message_was_dead_lettered() {
        let mut orders = World::with(refuse, "orders", |settings| {
            settings.dead_letter = Some(DeadLetterMode::Annotate);
        });
        let id = orders.send_text("{}").await;
        orders.run_until_empty().await;

        let tickets = Tickets::default();
        let opened = Arc::clone(&tickets.0);
        let mut dead_letters = World::new(move |message: Message| handle(tickets.clone(), message));
        for letter in orders.dead() {
            dead_letters.send_text(letter.body).await;
        }
        dead_letters.run_until_empty().await;
        let opened = opened.lock().expect("nothing panics while it is locked");
        assert_eq!(*opened, [format!("refused: an order without an amount (message {id})")]);
    }
}
