//! A handler that calls a service with reqwest and lets Requeue classify the response: 429 and 503
//! are retried after `Retry-After`, 422 is dead-lettered, a refused connection is retried.
//!
//! Turn on a TLS feature of reqwest in your project, for example `rustls`.

#![allow(
    clippy::disallowed_methods,
    clippy::unused_async,
    clippy::unwrap_used,
    reason = "rules of the library"
)]

use std::time::SystemTime;

use requeue::classify::Response;
use requeue::{Failure, Handler, Message, ResultExt};
use reqwest::Client;

#[derive(serde::Deserialize, serde::Serialize)]
struct Order {
    id: String,
    cents: u64,
}

struct Charge {
    client: Client,
    url: String,
}

impl Handler<Order> for Charge {
    type Error = Failure;

    async fn handle(&self, message: Message<Order>) -> Result<(), Failure> {
        let request = self
            .client
            .post(&self.url)
            .header("Idempotency-Key", message.idempotency_key())
            // Shorter than the handler's time, so that the log has reqwest's reason.
            .timeout(message.time_left().mul_f32(0.9))
            .json(message.body());
        checked(request.send().await.classified()?).await
    }
}

/// Turns a response into success or a failure, by its status, headers and body.
async fn checked(response: reqwest::Response) -> Result<(), Failure> {
    let (status, headers) = (response.status(), response.headers().clone());
    if status.is_success() {
        return Ok(());
    }
    let headers: Vec<(&str, &[u8])> =
        headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let body = response.bytes().await.classified()?;
    let response = Response { status: status.as_u16(), headers: &headers, body: &body };
    Err(Failure::from_response(&response, SystemTime::now()))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("BANK_URL")?;
    Ok(requeue::run(Charge { client: Client::new(), url }).await?)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use requeue::FailureClass::{NonRetryable, RateLimit, Temporary};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Charges an order at a service with this response.
    async fn charged(response: &'static str) -> Result<(), Failure> {
        let service = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", service.local_addr().unwrap());
        let served = tokio::spawn(async move {
            let (mut stream, _) = service.accept().await.unwrap();
            let read = stream.read(&mut [0; 4096]).await.unwrap();
            stream.write_all(response.as_bytes()).await.unwrap();
            assert!(read > 0);
        });
        let order = Order { id: "o-1".to_owned(), cents: 500 };
        let charge = Charge { client: Client::new(), url };
        let result = charge.handle(Message::builder(order).build()).await;
        served.await.unwrap();
        result
    }

    #[tokio::test]
    async fn the_response_decides() {
        assert_eq!(charged("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await, Ok(()));

        let limit = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n";
        let limit = charged(limit).await.unwrap_err();
        assert_eq!((limit.class(), limit.delay()), (RateLimit, Some(Duration::from_secs(7))));

        let refusal = "HTTP/1.1 422 No\r\ncontent-length: 24\r\n\r\n{\"code\":\"card_declined\"}";
        let refusal = charged(refusal).await.unwrap_err();
        assert_eq!(
            (refusal.class(), refusal.detail()),
            (NonRetryable, "status 422: card_declined")
        );

        // The bank may still work on the order.
        let broken = charged("").await.unwrap_err();
        assert_eq!((broken.class(), broken.is_in_doubt()), (Temporary, true));
    }

    #[tokio::test]
    async fn without_a_connection_the_bank_got_nothing() {
        let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", nobody.local_addr().unwrap());
        drop(nobody);
        let order = Order { id: "o-1".to_owned(), cents: 500 };
        let charge = Charge { client: Client::new(), url };
        let refused = charge.handle(Message::builder(order).build()).await.unwrap_err();
        assert_eq!((refused.class(), refused.is_in_doubt()), (Temporary, false));
    }
}
