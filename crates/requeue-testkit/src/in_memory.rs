//! Connections to a server task in this process: no socket, so that time can be virtual.

use std::convert::Infallible;
use std::future::{self, Future, Ready};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use ::http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::io::DuplexStream;
use tower::Service;

/// The largest number of unread bytes.
pub const BUFFER: usize = 64 * 1024;

/// A connector to a server behind a pipe.
#[derive(Clone)]
pub struct InMemory {
    accept: Arc<dyn Fn(DuplexStream) + Send + Sync>,
    http2: bool,
}

impl InMemory {
    /// Each connection runs a task of `talk`.
    pub fn raw<F: Future + Send + 'static>(
        talk: impl Fn(DuplexStream) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F::Output: Send,
    {
        Self { accept: Arc::new(move |stream| drop(tokio::spawn(talk(stream)))), http2: false }
    }

    /// As if TLS had negotiated HTTP/2.
    #[must_use]
    pub fn over_http2(self) -> Self {
        Self { http2: true, ..self }
    }
}

impl Service<Uri> for InMemory {
    type Response = Pipe;
    type Error = Infallible;
    type Future = Ready<Result<Pipe, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let (near, far) = tokio::io::duplex(BUFFER);
        (self.accept)(far);
        future::ready(Ok(Pipe { stream: TokioIo::new(near), http2: self.http2 }))
    }
}

/// The client's end of a connection.
pub struct Pipe {
    stream: TokioIo<DuplexStream>,
    http2: bool,
}

impl Connection for Pipe {
    fn connected(&self) -> Connected {
        let connected = Connected::new();
        if self.http2 { connected.negotiated_h2() } else { connected }
    }
}

impl Read for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl Write for Pipe {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // TLS announces the end of a connection, too.
        let _ = ready!(Pin::new(&mut self.stream).poll_write(context, b"."));
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
