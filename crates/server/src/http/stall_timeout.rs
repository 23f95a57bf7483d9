//! A connection that fails when its other side says nothing at first, or stops reading.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// How long a connection's writes may stand still, in milliseconds.
#[derive(Clone)]
pub struct Patience(Arc<AtomicU64>);

impl Patience {
    pub fn new(time: Duration) -> Self {
        let patience = Self(Arc::default());
        patience.set(time);
        patience
    }

    pub fn set(&self, time: Duration) {
        self.0.store(time.as_millis() as u64, Ordering::Relaxed);
    }

    fn get(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

/// A stream that fails when nothing comes at first, or when the other side takes nothing for too long.
pub struct Impatient<S> {
    inner: S,
    patience: Patience,
    /// Runs until the first byte has come.
    silent: Option<Pin<Box<Sleep>>>,
    /// Runs while a write stands still.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> Impatient<S> {
    pub fn new(inner: S, silence: Duration, patience: Patience) -> Self {
        let silent = Some(Box::pin(tokio::time::sleep(silence)));
        Self { inner, patience, silent, waiting: None }
    }

    fn judge(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let time = self.patience.get();
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(time)));
        ready!(waiting.as_mut().poll(cx));
        let why = "the client does not read";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, why)))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.inner).poll_read(cx, buffer);
        let Some(silent) = &mut self.silent else { return read };
        if read.is_ready() {
            self.silent = None;
            return read;
        }
        ready!(silent.as_mut().poll(cx));
        let why = "the client says nothing";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, why)))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.judge(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, pieces);
        self.judge(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn a_write_that_stands_still_fails_and_one_that_goes_on_does_not() {
        let (ours, mut theirs) = tokio::io::duplex(16);
        let patience = Patience::new(Duration::from_secs(1));
        let mut ours = Impatient::new(ours, Duration::from_secs(60), patience);
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

    #[tokio::test]
    async fn silence_is_borne_for_a_while_and_only_before_the_first_byte() {
        let (ours, mut theirs) = tokio::io::duplex(16);
        let silence = Duration::from_millis(50);
        let mut ours = Impatient::new(ours, silence, Patience::new(silence));
        theirs.write_all(b"x").await.expect("room");
        assert_eq!(ours.read_u8().await.expect("a byte"), b'x');
        let later = tokio::time::timeout(silence * 4, ours.read_u8()).await;
        assert!(later.is_err(), "after the first byte it waits");
        let (ours, _theirs) = tokio::io::duplex(16);
        let mut ours = Impatient::new(ours, silence, Patience::new(silence));
        assert_eq!(ours.read_u8().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
