//! The bytes of a connection that is no longer HTTP, both ways. Who is there and sends nothing does not keep its place for ever.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional};
use tokio::time::{Instant, sleep_until};

/// Passes bytes on until one side ends the connection, or none has come from either for `idle`.
pub async fn pass<A, B>(client: A, job: B, idle: Option<Duration>)
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let last = LastByte::now();
    let mut client = NotedStream { inner: client, last: last.clone() };
    let mut job = NotedStream { inner: job, last: last.clone() };
    let unused = async {
        match idle {
            Some(idle) => last.is_long_ago(idle).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut job) => {}
        () = unused => {}
    }
}

/// When the last byte came.
#[derive(Clone)]
struct LastByte(Arc<Mutex<Instant>>);

impl LastByte {
    fn now() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    fn held(&self) -> MutexGuard<'_, Instant> {
        self.0.lock().expect("no panic with the time held")
    }

    /// Waits until none has come for so long.
    async fn is_long_ago(&self, idle: Duration) {
        loop {
            let end = *self.held() + idle;
            if Instant::now() >= end {
                return;
            }
            sleep_until(end).await;
        }
    }
}

/// A stream of which is noted when bytes come.
struct NotedStream<S> {
    inner: S,
    last: LastByte,
}

impl<S: AsyncRead + Unpin> AsyncRead for NotedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.inner).poll_read(context, buffer);
        if read.is_ready() {
            *self.last.held() = Instant::now();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for NotedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn websocket_without_a_byte_is_closed_when_its_time_is_over() {
        let (mut client, of_client) = tokio::io::duplex(64);
        let (mut job, of_job) = tokio::io::duplex(64);
        client.write_all(b"hello").await.expect("room");
        let passed = tokio::spawn(pass(of_client, of_job, Some(Duration::from_millis(20))));
        let mut seen = Vec::new();
        job.read_to_end(&mut seen).await.expect("the end");
        assert_eq!(seen, b"hello");
        assert_eq!(client.read(&mut [0]).await.expect("the end"), 0, "on both sides");
        passed.await.expect("no panic");
    }

    #[tokio::test]
    async fn time_without_a_byte_begins_anew_with_each() {
        let (mut ours, theirs) = tokio::io::duplex(64);
        let last = LastByte::now();
        let mut noted = NotedStream { inner: theirs, last: last.clone() };
        let before = *last.held();
        while Instant::now() == before {
            tokio::task::yield_now().await;
        }
        ours.write_all(b"x").await.expect("room");
        assert_eq!(noted.read_u8().await.expect("a byte"), b'x');
        assert!(*last.held() > before);
    }
}
