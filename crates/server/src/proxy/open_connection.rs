//! A connection to a server that answers requests. Whoever asks by it polls it: the bytes of an answer wake the task that waits for
//! them, where a task of the connection's own would be woken first, on some thread, to wake that one. Nobody polls it while it waits
//! for a request.

use super::bounded_head::{BoundedHead, HeadAllowance};
use super::held_stream::HeldStream;
use crate::http::own_wakes::OwnWakes;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite};

/// Bytes of the head of an answer.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Polls in a row: what waits for the connection and the connection wake each other a few times with each part of an answer.
const POLLS_MAX: usize = 8;

type Driver = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

pub struct OpenConnection {
    sender: SendRequest<Body>,
    /// Passes its bytes on; `None` when it is closed.
    driver: Option<Driver>,
    wakes: OwnWakes,
    allowance: HeadAllowance,
}

impl OpenConnection {
    /// Speaks HTTP on a new connection. `held` is kept until it is closed, also when it has become a WebSocket.
    pub async fn handshake<S>(stream: S, held: impl Send + 'static) -> Option<Self>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut builder = http1::Builder::new();
        builder.max_buf_size(HEAD_BYTES_MAX);
        let (stream, allowance) = BoundedHead::new(HeldStream::new(stream, held));
        let stream = TokioIo::new(stream);
        let (sender, connection) = builder.handshake(stream).await.ok()?;
        let driver: Driver = Box::pin(connection.with_upgrades());
        Some(Self { sender, driver: Some(driver), wakes: OwnWakes::default(), allowance })
    }

    /// Polls what waits for the connection, and the connection for it.
    pub fn poll_with<T>(
        &mut self,
        context: &mut Context<'_>,
        mut poll: impl FnMut(&mut SendRequest<Body>, &mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let Self { sender, driver, wakes, .. } = self;
        wakes.poll(context, POLLS_MAX, |own| {
            if driver.as_mut().is_some_and(|driver| driver.as_mut().poll(own).is_ready()) {
                *driver = None;
            }
            poll(sender, own)
        })
    }

    pub fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        self.poll_with(context, |sender, own| sender.poll_ready(own))
    }

    /// Waits until it takes a request; an error where the server has closed it.
    pub async fn ready(&mut self) -> hyper::Result<()> {
        poll_fn(|context| self.poll_ready(context)).await
    }

    /// Whether it takes a request, as the last poll has found.
    pub fn is_ready(&self) -> bool {
        self.sender.is_ready()
    }

    /// The head of the answer to a request.
    pub async fn send(
        &mut self,
        request: hyper::Request<Body>,
    ) -> Result<hyper::Response<Incoming>, TrySendError<hyper::Request<Body>>> {
        let mut sent = pin!(self.sender.try_send_request(request));
        self.allowance.begin();
        let answer = poll_fn(|context| self.poll_with(context, |_, own| sent.as_mut().poll(own)));
        let answer = answer.await;
        self.allowance.end();
        answer
    }

    /// Whether the server has closed it while nobody asked by it.
    pub fn is_closed(&mut self) -> bool {
        let _ = self.poll_ready(&mut Context::from_waker(Waker::noop()));
        self.sender.is_closed()
    }

    /// Leaves the connection to a task of its own, until it is closed or has become a WebSocket.
    pub fn run_alone(self) {
        if let Some(driver) = self.driver {
            tokio::spawn(async move {
                let _ = driver.await;
            });
        }
    }
}
