//! A target in this process, over the real HTTP handler. It sends the head of its response at once,
//! and never ends the body.

use std::io;
use std::time::Duration;

use requeue::Failure;
use requeue_lambda::{Delivery, HttpSettings, HttpTarget, TargetUrl};
use requeue_testkit::in_memory::InMemory;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

/// Delivers a message to a target that answers so.
pub async fn deliver(status: u16, retry_after: Option<Duration>) -> Result<(), Failure> {
    let url = TargetUrl::parse("http://localhost/").expect("it is loopback");
    let header = retry_after
        .map(|delay| format!("Retry-After: {}\r\n", delay.as_secs()))
        .unwrap_or_default();
    let head = format!("HTTP/1.1 {status} X\r\n{header}Content-Length: 5\r\n\r\n");
    let mut settings = HttpSettings::default();
    settings.timeout = Duration::from_hours(1);
    let server = InMemory::raw(move |stream| stall(stream, head.clone()));
    HttpTarget::with_connector(url, settings, server).deliver(Delivery::new("id", "")).await
}

async fn stall(mut stream: DuplexStream, head: String) -> io::Result<u8> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(stream.read_u8().await?);
    }
    stream.write_all(head.as_bytes()).await?;
    // Until the client goes away.
    stream.read_u8().await
}
