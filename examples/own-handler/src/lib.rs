//! Charges orders. Replace `Bank` by your own client.

use std::io;

use requeue::{Failure, Message, ResultExt};
use serde::{Deserialize, Serialize};

#[derive(Deserialize, Serialize)]
pub struct Order {
    pub id: String,
    pub cents: u64,
}

pub async fn charge(message: Message<Order>) -> Result<(), Failure> {
    let order = message.body();
    if order.cents == 0 {
        // To the dead-letter queue: trying again cannot help.
        return Err(Failure::non_retryable("an order without an amount"));
    }
    let key = message.idempotency_key();
    Bank.charge(&order.id, order.cents, key).await.classified()
}

struct Bank;

impl Bank {
    async fn charge(&self, _order: &str, _cents: u64, _key: &str) -> io::Result<()> {
        Ok(())
    }
}
