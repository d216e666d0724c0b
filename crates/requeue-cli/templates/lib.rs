//! Charges orders at a bank. Implement [`Bank`] for your own client and hand it to [`Charge`] in
//! `main.rs`; the tests keep the [`Sandbox`].

use std::collections::HashMap;
use std::future::Future;
use std::sync::Mutex;
use std::time::Duration;

use requeue::{Failure, Handler, Message};
use serde::{Deserialize, Serialize};

/// The body of a message.
#[derive(Deserialize, Serialize)]
pub struct Order {
    pub id: String,
    pub cents: u64,
    pub card: String,
}

/// The handler.
pub struct Charge<B>(pub B);

impl<B: Bank> Handler<Order> for Charge<B> {
    type Error = BankError;

    async fn handle(&self, message: Message<Order>) -> Result<(), BankError> {
        // The key is the same on every attempt, so the bank recognises a retry and charges once.
        self.0.charge(message.body(), message.idempotency_key()).await
    }
}

/// The service that the handler calls.
pub trait Bank: Send + Sync + 'static {
    fn charge(
        &self,
        order: &Order,
        key: &str,
    ) -> impl Future<Output = Result<(), BankError>> + Send;
}

/// The reason for which the bank did not charge.
pub enum BankError {
    TooManyRequests { retry_after: Duration },
    Declined,
}

/// The class decides: Requeue retries a rate limit, and dead-letters a declined card.
impl From<BankError> for Failure {
    fn from(error: BankError) -> Self {
        match error {
            BankError::TooManyRequests { retry_after } => {
                Failure::rate_limit("the bank asks to wait").retry_after(retry_after)
            }
            BankError::Declined => Failure::non_retryable("the card was declined"),
        }
    }
}

/// A bank that responds by the card, like the test cards of payment services. It declines
/// `declined`, accepts `busy` at the second call, and any other card at the first.
#[derive(Default)]
pub struct Sandbox {
    calls: Mutex<HashMap<String, u32>>,
}

impl Bank for Sandbox {
    async fn charge(&self, order: &Order, key: &str) -> Result<(), BankError> {
        let mut calls = self.calls.lock().expect("nothing panics while it is locked");
        let call = calls.entry(key.to_owned()).or_default();
        *call += 1;
        match order.card.as_str() {
            "declined" => Err(BankError::Declined),
            "busy" if *call < 2 => {
                Err(BankError::TooManyRequests { retry_after: Duration::from_secs(2) })
            }
            _ => Ok(()),
        }
    }
}
