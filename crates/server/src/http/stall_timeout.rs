//! A connection that fails when its peer sends nothing at first, or stops reading.

use super::gathered_write::poll_write_pieces;
use axum::http::Extensions;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// How long a connection's writes may make no progress, in milliseconds. It may be changed while the connection lives.
#[derive(Clone)]
pub struct StallTimeout(Arc<AtomicU64>);

impl StallTimeout {
    pub fn new(time: Duration) -> Self {
        let timeout = Self(Arc::default());
        timeout.set(time);
        timeout
    }

    pub fn set(&self, time: Duration) {
        self.0.store(time.as_millis() as u64, Ordering::Relaxed);
    }

    /// Sets that of the connection of a request, by the request's extensions.
    pub fn set_of(extensions: &Extensions, time: Duration) {
        if let Some(timeout) = extensions.get::<Self>() {
            timeout.set(time);
        }
    }

    fn get(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

/// A stream that fails with `TimedOut` when nothing comes at first, or when the peer reads nothing for too long.
pub struct TimedStream<S> {
    inner: S,
    stall_timeout: StallTimeout,
    /// Runs until the first byte has come.
    first_byte: Option<Pin<Box<Sleep>>>,
    /// Runs while a write makes no progress.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> TimedStream<S> {
    pub fn new(inner: S, silence: Duration, stall_timeout: StallTimeout) -> Self {
        let first_byte = Some(Box::pin(tokio::time::sleep(silence)));
        Self { inner, stall_timeout, first_byte, stalled: None }
    }

    /// A write, a flush or a close that is not done in time fails. TLS keeps written bytes back until they are flushed.
    fn check_stall<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let timeout = self.stall_timeout.get();
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        ready!(stalled.as_mut().poll(cx));
        let why = "the client does not read";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, why)))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.inner).poll_read(cx, buffer);
        let Some(first_byte) = &mut self.first_byte else { return read };
        if read.is_ready() {
            self.first_byte = None;
            return read;
        }
        ready!(first_byte.as_mut().poll(cx));
        let why = "the client says nothing";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, why)))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.check_stall(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = poll_write_pieces(Pin::new(&mut self.inner), cx, pieces);
        self.check_stall(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(cx);
        self.check_stall(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.check_stall(cx, closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn stalled_write_times_out_and_a_slow_one_does_not() {
        let (ours, mut theirs) = tokio::io::duplex(16);
        let timeout = StallTimeout::new(Duration::from_secs(1));
        let mut ours = TimedStream::new(ours, Duration::from_secs(60), timeout);
        let reader = tokio::spawn(async move {
            let mut buffer = [0; 64];
            theirs.read_exact(&mut buffer).await.unwrap();
            theirs
        });
        ours.write_all(&[0; 64]).await.expect("it reads piece by piece, but it reads");
        let _theirs = reader.await.unwrap();
        let failed = ours.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
    }

    /// Takes every byte and sends none, as TLS does to a client that does not read.
    struct Unsent;

    impl AsyncWrite for Unsent {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    #[tokio::test]
    async fn stalled_flush_and_close_time_out_too() {
        let timeout = StallTimeout::new(Duration::from_millis(20));
        let mut ours = TimedStream::new(Unsent, Duration::from_secs(60), timeout.clone());
        ours.write_all(b"x").await.expect("taken");
        assert_eq!(ours.flush().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let mut ours = TimedStream::new(Unsent, Duration::from_secs(60), timeout);
        assert_eq!(ours.shutdown().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn silence_times_out_only_before_the_first_byte() {
        let (ours, mut theirs) = tokio::io::duplex(16);
        let silence = Duration::from_millis(50);
        let mut ours = TimedStream::new(ours, silence, StallTimeout::new(silence));
        theirs.write_all(b"x").await.expect("a buffer that is empty");
        assert_eq!(ours.read_u8().await.expect("a byte"), b'x');
        let later = tokio::time::timeout(silence * 4, ours.read_u8()).await;
        assert!(later.is_err(), "after the first byte it waits");
        let (ours, _theirs) = tokio::io::duplex(16);
        let mut ours = TimedStream::new(ours, silence, StallTimeout::new(silence));
        assert_eq!(ours.read_u8().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
