//! A target in this process, over the real HTTP handler: the head of its response is there at once, and the body never ends.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use ::http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use requeue::Failure;
use requeue::http::{Delivery, HttpSettings, HttpTarget, TargetUrl};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tower::Service;

/// Delivers a message to a target that answers so.
pub async fn deliver(status: u16, retry_after: Option<Duration>) -> Result<(), Failure> {
    let url = TargetUrl::parse("http://localhost/").expect("it is loopback");
    let header = retry_after.map(|delay| format!("Retry-After: {}\r\n", delay.as_secs())).unwrap_or_default();
    let head = format!("HTTP/1.1 {status} X\r\n{header}Content-Length: 5\r\n\r\n");
    let settings = HttpSettings::default().timeout(Duration::from_hours(1));
    HttpTarget::with_connector(url, settings, Stalling { head }).deliver(Delivery::new("id", "")).await
}

#[derive(Clone)]
struct Stalling {
    head: String,
}

impl Service<Uri> for Stalling {
    type Response = Pipe;
    type Error = Infallible;
    type Future = Ready<Result<Pipe, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let (near, mut far) = duplex(16 * 1024);
        let head = self.head.clone();
        tokio::spawn(async move {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(far.read_u8().await?);
            }
            far.write_all(head.as_bytes()).await?;
            // Until the client goes away.
            far.read_u8().await
        });
        ready(Ok(Pipe(TokioIo::new(near))))
    }
}

struct Pipe(TokioIo<DuplexStream>);

impl Connection for Pipe {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl Write for Pipe {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
