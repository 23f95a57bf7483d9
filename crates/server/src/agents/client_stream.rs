//! The connection of a client that an agent or a standby carries. It is closed when another server may lead, whatever its request waits
//! for here: who carries it asks that one.

use crate::shared::Shared;
use nix::sys::socket::{Shutdown, shutdown};
use std::io::{self, Cursor, IoSlice};
use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, Chain, Join, ReadBuf, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio_rustls::server::TlsStream;

/// What follows the message that begins a client's connection.
pub struct ClientStream<S = TlsStream<TcpStream>> {
    /// Dropped before the socket is closed: no other socket has its number until then.
    _closing: Closing,
    stream: Join<ReadSide<S>, WriteHalf<S>>,
}

/// What was read too early comes first.
type ReadSide<S> = Chain<Cursor<Vec<u8>>, ReadHalf<S>>;

impl ClientStream {
    /// `early` is what was read of the stream beyond the message.
    pub fn new(shared: &Arc<Shared>, stream: TlsStream<TcpStream>, early: Vec<u8>) -> Self {
        let socket = stream.get_ref().0.as_raw_fd();
        Self::over(shared, stream, socket, early)
    }
}

impl<S: AsyncRead + AsyncWrite> ClientStream<S> {
    fn over(shared: &Arc<Shared>, stream: S, socket: RawFd, early: Vec<u8>) -> Self {
        let (reader, writer) = tokio::io::split(stream);
        let reader = Cursor::new(early).chain(reader);
        Self { _closing: Closing::of(shared, socket), stream: tokio::io::join(reader, writer) }
    }
}

/// Ends both directions of a socket when another server may lead, until this is dropped. A task does it: that of the connection may
/// stand still.
struct Closing {
    socket: OpenSocket,
    task: AbortHandle,
}

/// The socket, while it is open.
#[derive(Clone)]
struct OpenSocket(Arc<Mutex<Option<RawFd>>>);

impl OpenSocket {
    fn held(&self) -> MutexGuard<'_, Option<RawFd>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Closing {
    fn of(shared: &Arc<Shared>, socket: RawFd) -> Self {
        let socket = OpenSocket(Arc::new(Mutex::new(Some(socket))));
        let (own, shared) = (socket.clone(), shared.clone());
        let closed = async move {
            shared.volatile.servers.contact.doubted().await;
            if let Some(socket) = *own.held() {
                // One whose peer has gone is closed already.
                let _ = shutdown(socket, Shutdown::Both);
            }
        };
        Self { socket, task: tokio::spawn(closed).abort_handle() }
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        *self.socket.held() = None;
        self.task.abort();
    }
}

impl<S: AsyncRead + AsyncWrite> AsyncRead for ClientStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite> AsyncWrite for ClientStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection_limits::ConnectionLimits;
    use crate::http::drain::Drain;
    use crate::http::peer::Peer;
    use crate::http::serve::serve;
    use crate::testing::{TestServer, user};
    use axum::Router;
    use axum::routing::get;
    use std::time::Duration;
    use tokio::io::AsyncWriteExt;
    use tokio::net::UnixStream;
    use tokio::time::timeout;

    #[tokio::test]
    async fn client_whose_answer_never_comes_is_let_go_when_another_server_may_lead() {
        let server = TestServer::start().await;
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let socket = ours.as_raw_fd();
        let stream = ClientStream::over(&server.shared, ours, socket, b"GET / HT".to_vec());
        let router = Router::new().route("/", get(std::future::pending::<()>));
        let (slot, freed) = tokio::sync::oneshot::channel::<()>();
        let limits = ConnectionLimits::default();
        serve(&router, stream, || Peer::Socket(user()), slot, &limits, Drain::never());
        theirs.write_all(b"TP/1.1\r\nhost: server\r\n\r\n").await.expect("a request");
        let mut read = [0];
        let early = timeout(Duration::from_millis(20), theirs.read(&mut read)).await;
        assert!(early.is_err(), "it waits: {early:?}");
        server.shared.volatile.servers.contact.set_in_doubt(true);
        let end = timeout(Duration::from_secs(60), theirs.read(&mut read)).await;
        assert_eq!(end.expect("the connection ends").expect("in order"), 0);
        let freed = timeout(Duration::from_secs(60), freed).await.expect("nobody serves it");
        assert!(freed.is_err(), "its slot is free");
    }
}
