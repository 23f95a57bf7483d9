//! Connections to one server that answers requests: those that are open are used again, and the requests that it has not answered
//! yet are counted.

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

/// Connections that are kept open for the next requests, and for how long.
const IDLE_MAX: usize = 128;
const IDLE: Duration = Duration::from_secs(60);
/// How long a request may take to be sent and to have the head of its answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);
/// Bytes of the head of an answer.
const HEAD_BYTES_MAX: usize = 64 << 10;

pub type Sender = SendRequest<Body>;

/// Why a request has no answer.
pub enum SendFailure {
    /// Nothing of it was sent: another server may get it.
    NotSent(Box<hyper::Request<Body>>),
    /// It was sent, in part at least, and the connection was lost, or what came was no answer.
    Lost,
    TimedOut,
}

/// A request that is not answered yet, until this is dropped.
pub struct Outstanding(Arc<AtomicUsize>);

impl Outstanding {
    /// Counts one more until this is dropped.
    pub fn of(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Relaxed);
        Self(count.clone())
    }
}

impl Drop for Outstanding {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Speaks HTTP on a new connection. `held` is kept until it is closed.
pub async fn handshake<S>(stream: S, held: impl Send + 'static) -> Option<Sender>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_BYTES_MAX);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.ok()?;
    tokio::spawn(async move {
        let _ = connection.with_upgrades().await;
        drop(held);
    });
    Some(sender)
}

#[derive(Default)]
pub struct ConnectionPool {
    outstanding: Arc<AtomicUsize>,
    websockets: Arc<AtomicUsize>,
    /// The last used is at the end.
    idle: Mutex<Vec<(Sender, Instant)>>,
}

impl ConnectionPool {
    pub fn outstanding(&self) -> usize {
        self.outstanding.load(Relaxed)
    }

    pub fn enter(&self) -> Outstanding {
        Outstanding::of(&self.outstanding)
    }

    /// Requests that have become WebSockets, or are to: each holds its connection for as long as it likes.
    pub fn websockets(&self) -> usize {
        self.websockets.load(Relaxed)
    }

    pub fn enter_websocket(&self) -> Outstanding {
        Outstanding::of(&self.websockets)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<(Sender, Instant)>> {
        self.idle.lock().expect("no panic with the connections held")
    }

    /// Closes the connections that nobody has used for a while.
    pub fn close_idle(&self, now: Instant) {
        self.idle().retain(|(sender, since)| {
            !sender.is_closed() && now.saturating_duration_since(*since) < IDLE
        });
    }

    fn keep(&self, sender: Sender) {
        let mut idle = self.idle();
        if idle.len() < IDLE_MAX {
            idle.push((sender, Instant::now()));
        }
    }

    fn take_idle(&self) -> Option<Sender> {
        let mut idle = self.idle();
        while let Some((sender, _)) = idle.pop() {
            if !sender.is_closed() {
                return Some(sender);
            }
        }
        None
    }

    /// Sends a request by a connection that is open, or by a new one. A connection that becomes a websocket is always new.
    pub async fn send(
        self: &Arc<Self>,
        connect: impl Future<Output = Option<Sender>>,
        mut request: hyper::Request<Body>,
        upgrades: bool,
    ) -> Result<hyper::Response<Incoming>, SendFailure> {
        while !upgrades && let Some(sender) = self.take_idle() {
            match self.send_by(sender, request).await {
                // The server has closed it meanwhile.
                Err(SendFailure::NotSent(unsent)) => request = *unsent,
                other => return other,
            }
        }
        match connect.await {
            Some(sender) => self.send_by(sender, request).await,
            None => Err(SendFailure::NotSent(Box::new(request))),
        }
    }

    async fn send_by(
        self: &Arc<Self>,
        mut sender: Sender,
        request: hyper::Request<Body>,
    ) -> Result<hyper::Response<Incoming>, SendFailure> {
        let answer = match timeout(ANSWER_TIMEOUT, sender.try_send_request(request)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(mut failure)) => {
                return Err(match failure.take_message() {
                    Some(unsent) => SendFailure::NotSent(Box::new(unsent)),
                    None => SendFailure::Lost,
                });
            }
            Err(_) => return Err(SendFailure::TimedOut),
        };
        let pool = self.clone();
        // It is ready for another when the whole answer was read; never where it has become a websocket, or is closed.
        tokio::spawn(async move {
            if sender.ready().await.is_ok() {
                pool.keep(sender);
            }
        });
        Ok(answer)
    }
}

/// The body of an answer. Its request is outstanding until all of it was read.
pub struct AnswerBody {
    body: Incoming,
    _outstanding: Outstanding,
}

impl AnswerBody {
    pub fn new(body: Incoming, outstanding: Outstanding) -> Self {
        Self { body, _outstanding: outstanding }
    }
}

impl hyper::body::Body for AnswerBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
