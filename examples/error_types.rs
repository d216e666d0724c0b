//! Handlers with errors of thiserror, anyhow and eyre.
//!
//! With thiserror, you name the class of each variant. With anyhow and eyre, Requeue finds the class
//! by the types, codes and statuses in the chain of sources.

#![allow(
    clippy::disallowed_methods,
    clippy::unused_async,
    clippy::unwrap_used,
    reason = "rules of the library"
)]

use std::io;

use requeue::{Failure, Message, ResultExt};

#[derive(Debug, thiserror::Error)]
enum ChargeError {
    #[error("the card was declined")]
    Declined,
    #[error("the bank does not respond")]
    Unavailable(#[from] io::Error),
}

impl From<ChargeError> for Failure {
    fn from(error: ChargeError) -> Self {
        match error {
            ChargeError::Declined => Failure::non_retryable(error),
            ChargeError::Unavailable(_) => Failure::temporary(error),
        }
    }
}

async fn with_thiserror(message: Message<String>) -> Result<(), ChargeError> {
    if message.body() == "declined" {
        return Err(ChargeError::Declined);
    }
    Ok(bank().await?)
}

async fn with_anyhow(_: Message<String>) -> Result<(), Failure> {
    async fn charge() -> anyhow::Result<()> {
        use anyhow::Context;
        bank().await.context("charging order 1")
    }
    charge().await.classified()
}

async fn with_eyre(_: Message<String>) -> Result<(), Failure> {
    async fn charge() -> eyre::Result<()> {
        use eyre::WrapErr;
        bank().await.wrap_err("charging order 1")
    }
    charge().await.classified()
}

async fn bank() -> io::Result<()> {
    Err(io::ErrorKind::ConnectionRefused.into())
}

#[tokio::main]
async fn main() -> Result<(), requeue::Error> {
    match std::env::var("ERRORS").as_deref() {
        Ok("anyhow") => requeue::run(with_anyhow).await,
        Ok("eyre") => requeue::run(with_eyre).await,
        _ => requeue::run(with_thiserror).await,
    }
}

#[cfg(test)]
mod tests {
    use requeue::FailureClass::{NonRetryable, Temporary};

    use super::*;

    fn message(body: &str) -> Message<String> {
        Message::builder(body.to_owned()).build()
    }

    #[tokio::test]
    async fn each_error_becomes_a_failure_of_a_class() {
        let of = |failure: Failure| (failure.class(), failure.detail().to_owned());
        let declined = with_thiserror(message("declined")).await.unwrap_err();
        assert_eq!(of(declined.into()), (NonRetryable, "the card was declined".to_owned()));
        let refused = with_thiserror(message("order 1")).await.unwrap_err();
        assert_eq!(of(refused.into()), (Temporary, "the bank does not respond".to_owned()));
        for result in [with_anyhow(message("order 1")).await, with_eyre(message("order 1")).await] {
            // The reason holds no text of the error, which may quote a body or a secret.
            let refused = (Temporary, "connection refused".to_owned());
            assert_eq!(of(result.unwrap_err()), refused);
        }
    }
}
