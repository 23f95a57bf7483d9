//! A bound on what a server sends before the head of its answer. It may send interim answers (`100 Continue`, `103 Early Hints`) without an
//! end, each of which is read as soon as it is there: others' requests would wait for a thread that does nothing else.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that a server may send from its request on until the head of its answer is read: interim answers, that head, and what has come
/// behind it with the same read.
pub const BYTES_MAX: usize = 256 << 10;

const UNBOUNDED: usize = usize::MAX;

/// What may still come on a connection before the head of an answer, for whoever asks by it.
#[derive(Clone)]
pub struct HeadAllowance(Arc<AtomicUsize>);

impl Default for HeadAllowance {
    fn default() -> Self {
        Self(Arc::new(AtomicUsize::new(UNBOUNDED)))
    }
}

impl HeadAllowance {
    /// A request is sent.
    pub fn begin(&self) {
        self.0.store(BYTES_MAX, Ordering::Relaxed);
    }

    /// The head of the answer is there, and what follows has bounds of its own.
    pub fn end(&self) {
        self.0.store(UNBOUNDED, Ordering::Relaxed);
    }

    /// Takes so many bytes off; false where there are more.
    fn take(&self, bytes: usize) -> bool {
        match self.0.load(Ordering::Relaxed) {
            UNBOUNDED => true,
            left => {
                self.0.store(left.saturating_sub(bytes), Ordering::Relaxed);
                bytes <= left
            }
        }
    }
}

/// A stream whose reads are bounded so.
pub struct BoundedHead<S> {
    stream: S,
    allowance: HeadAllowance,
}

impl<S> BoundedHead<S> {
    pub fn new(stream: S) -> (Self, HeadAllowance) {
        let allowance = HeadAllowance::default();
        (Self { stream, allowance: allowance.clone() }, allowance)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for BoundedHead<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if matches!(read, Poll::Ready(Ok(())))
            && !self.allowance.take(buffer.filled().len() - before)
        {
            let why = format!("more than {BYTES_MAX} bytes before the head of an answer");
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for BoundedHead<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use crate::proxy::open_connection::OpenConnection;
    use axum::body::Body;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn interim_answers_without_end_are_the_end_of_the_connection_and_some_are_none() {
        for (interim, expected) in [(3, Some(200)), (1_000_000, None)] {
            let (ours, mut servers) = tokio::io::duplex(1 << 20);
            let server = tokio::spawn(async move {
                let mut head = [0; 512];
                assert!(servers.read(&mut head).await.expect("read") > 0, "the request");
                for _ in 0..interim {
                    if servers.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.is_err() {
                        return;
                    }
                }
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                servers.write_all(answer).await.expect("it is read");
                // Open until the client has closed it.
                let _ = servers.read(&mut head).await;
            });
            let mut connection = OpenConnection::handshake(ours, ()).await.expect("a connection");
            connection.ready().await.expect("open");
            let request = hyper::Request::get("/").body(Body::empty()).expect("a request");
            let answer = connection.send(request).await.ok();
            assert_eq!(answer.map(|answer| answer.status().as_u16()), expected);
            drop(connection);
            server.await.expect("no panic");
        }
    }
}
