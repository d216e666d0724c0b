//! A stream with an observer of its bytes, which may end it. Does not know their meaning.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pub(super) trait Watch {
    /// An error ends the connection.
    fn read(&mut self, bytes: &[u8]) -> Result<(), Flooded>;
    fn written(&mut self, bytes: &[u8]);
}

/// The other side sends without end, and no response among it.
#[derive(Debug, thiserror::Error)]
#[error("target sent too much besides its response")]
pub(super) struct Flooded;

pub(super) struct Watched<T, W> {
    pub(super) stream: T,
    pub(super) watch: Arc<Mutex<W>>,
}

impl<T: AsyncRead + Unpin, W: Watch> AsyncRead for Watched<T, W> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        Poll::Ready(lock(&self.watch).read(&buffer.filled()[before..]).map_err(io::Error::other))
    }
}

impl<T: AsyncWrite + Unpin, W: Watch> AsyncWrite for Watched<T, W> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(length)) = written {
            lock(&self.watch).written(&bytes[..length]);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        if let Poll::Ready(Ok(mut length)) = written {
            let mut watch = lock(&self.watch);
            for slice in slices {
                let part = length.min(slice.len());
                watch.written(&slice[..part]);
                length -= part;
            }
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
