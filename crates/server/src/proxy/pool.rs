//! Connections to one server that answers requests: those that are open are used again, and the requests that it has not answered
//! yet are counted.

use super::held_stream::HeldStream;
use super::timed_body::BodyStalled;
use axum::body::Body;
use axum::http::StatusCode;
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError};
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use std::collections::VecDeque;
use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::timeout;

/// Connections to one server that is not said to take fewer: as many as the requests of a gateway to one replica.
const CONNECTIONS_MAX: usize = 1024;
/// How long a connection is kept open for the next request.
const IDLE: Duration = Duration::from_secs(60);
/// Bytes of an answer that is read whole before its client gets any of it, where its request can be made again.
const SHORT_BYTES_MAX: u64 = 64 << 10;
/// How long a connection may take to send the rest of a request that is answered already, before it is given up.
const REST_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of the head of an answer.
const HEAD_BYTES_MAX: usize = 64 << 10;

pub type Sender = SendRequest<Body>;

/// Why a request has no answer.
pub enum SendFailure {
    /// Nothing of it was sent: another server may get it.
    NotSent(Box<hyper::Request<Body>>),
    /// It was sent, in part at least, and the connection was lost, or what came was no answer.
    Lost,
    /// Its body went on beyond the bound of `bounded_body`: it was given up in the middle.
    TooLong,
    /// Nothing more of its body came in the time of `bounded_body`, and no answer.
    Stalled,
    TimedOut,
}

/// Whether a request failed because of this error, which may be one of its own body.
fn is_caused_by<E: Error + 'static>(error: &(dyn Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |&error| error.source());
    causes.any(|error| error.is::<E>())
}

/// One more of what is counted, until this is dropped.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn of(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Relaxed);
        Self(count.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// A request that is not answered yet, until this is dropped.
pub struct Outstanding {
    counted: Option<Counted>,
    /// Told when it was answered and is not counted any more.
    ended: Option<Arc<Notify>>,
}

impl Outstanding {
    fn of(count: &Arc<AtomicUsize>) -> Self {
        Self { counted: Some(Counted::of(count)), ended: None }
    }

    /// Has the end of it told.
    pub fn told_to(mut self, ended: &Arc<Notify>) -> Self {
        self.ended = Some(ended.clone());
        self
    }
}

impl Drop for Outstanding {
    fn drop(&mut self) {
        self.counted = None;
        if let Some(ended) = &self.ended {
            ended.notify_one();
        }
    }
}

/// Speaks HTTP on a new connection. `held` is kept until it is closed, also when it has become a WebSocket.
pub async fn handshake<S>(stream: S, held: impl Send + 'static) -> Option<Sender>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_BYTES_MAX);
    let stream = TokioIo::new(HeldStream::new(stream, held));
    let (sender, connection) = builder.handshake(stream).await.ok()?;
    tokio::spawn(async move {
        let _ = connection.with_upgrades().await;
    });
    Some(sender)
}

/// A connection of a pool, counted while it is open for requests.
struct PooledConnection {
    sender: Sender,
    _open: Counted,
}

pub struct ConnectionPool {
    /// Connections that the server takes: as many are kept, so that no request has to open one while others are closed.
    connections_max: usize,
    outstanding: Arc<AtomicUsize>,
    websockets: Arc<AtomicUsize>,
    /// Connections that are open for requests, those in use and those that wait for one.
    open: Arc<AtomicUsize>,
    /// The last used is at the end.
    idle: Mutex<VecDeque<(PooledConnection, Instant)>>,
}

impl Default for ConnectionPool {
    fn default() -> Self {
        Self::new(CONNECTIONS_MAX)
    }
}

impl ConnectionPool {
    /// To a server that takes so many connections. Its callers hold requests back beyond that number, and the pool opens no more
    /// connections than there are requests.
    pub fn new(connections_max: usize) -> Self {
        Self {
            connections_max,
            outstanding: Arc::default(),
            websockets: Arc::default(),
            open: Arc::default(),
            idle: Mutex::default(),
        }
    }

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

    fn idle(&self) -> MutexGuard<'_, VecDeque<(PooledConnection, Instant)>> {
        self.idle.lock().expect("no panic with the connections held")
    }

    fn is_over_full(&self) -> bool {
        self.open.load(Relaxed) + self.websockets() > self.connections_max
    }

    /// Counts a connection that is about to be opened. Where that is one too many, because WebSockets have taken the place of requests,
    /// the one that has waited longest for a request is closed.
    fn open_one(&self) -> Counted {
        let open = Counted::of(&self.open);
        let mut idle = self.idle();
        while self.is_over_full() && idle.pop_front().is_some() {}
        open
    }

    /// Closes the connections that nobody has used for a while.
    pub fn close_idle(&self, now: Instant) {
        self.idle().retain(|(kept, since)| {
            !kept.sender.is_closed() && now.saturating_duration_since(*since) < IDLE
        });
    }

    fn keep(&self, connection: PooledConnection) {
        let mut idle = self.idle();
        if !self.is_over_full() {
            idle.push_back((connection, Instant::now()));
        }
    }

    fn take_idle(&self) -> Option<PooledConnection> {
        let mut idle = self.idle();
        while let Some((connection, _)) = idle.pop_back() {
            if !connection.sender.is_closed() {
                return Some(connection);
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
    ) -> Result<hyper::Response<AnswerBody>, SendFailure> {
        while !upgrades && let Some(connection) = self.take_idle() {
            match self.send_by(connection, request).await {
                // The server has closed it meanwhile.
                Err(SendFailure::NotSent(unsent)) => request = *unsent,
                other => return other,
            }
        }
        // Counted while it is being made: as many as are on their way at once have their part too.
        let _open = self.open_one();
        match connect.await {
            Some(sender) => self.send_by(PooledConnection { sender, _open }, request).await,
            None => Err(SendFailure::NotSent(Box::new(request))),
        }
    }

    async fn send_by(
        self: &Arc<Self>,
        mut connection: PooledConnection,
        request: hyper::Request<Body>,
    ) -> Result<hyper::Response<AnswerBody>, SendFailure> {
        let has_body = !request.body().is_end_stream();
        // The task of a connection whose last answer was just read may not have taken note of that yet.
        if connection.sender.ready().await.is_err() {
            return Err(SendFailure::NotSent(Box::new(request)));
        }
        let sent = connection.sender.try_send_request(request).await;
        let answer = sent.map_err(|mut failure| match failure.take_message() {
            Some(unsent) => SendFailure::NotSent(Box::new(unsent)),
            None if is_caused_by::<LengthLimitError>(failure.error()) => SendFailure::TooLong,
            None if is_caused_by::<BodyStalled>(failure.error()) => SendFailure::Stalled,
            None => SendFailure::Lost,
        })?;
        let becomes_websocket = answer.status() == StatusCode::SWITCHING_PROTOCOLS;
        let pool = self.clone();
        let connection =
            (!becomes_websocket).then_some(Connection { pooled: connection, pool, has_body });
        Ok(answer.map(|body| AnswerBody {
            content: Content::Stream(body),
            is_over: false,
            connection,
            _outstanding: None,
        }))
    }
}

/// Reads an answer whole that is short and says its length. Its client has had none of it yet, so one that is cut can be asked for again.
pub async fn read_short(
    answer: hyper::Response<AnswerBody>,
) -> Result<hyper::Response<AnswerBody>, SendFailure> {
    let length = answer.body().size_hint().exact();
    if !length.is_some_and(|bytes| (1..=SHORT_BYTES_MAX).contains(&bytes)) {
        return Ok(answer);
    }
    let (head, body) = answer.into_parts();
    let read = body.collect().await.map_err(|_| SendFailure::Lost)?;
    let body = AnswerBody {
        content: Content::Whole(Some(read.to_bytes())),
        is_over: false,
        connection: None,
        _outstanding: None,
    };
    Ok(hyper::Response::from_parts(head, body))
}

/// The outcome of an exchange, which is given up when its time is over.
pub async fn in_time<T>(
    limit: Duration,
    exchange: impl Future<Output = Result<T, SendFailure>>,
) -> Result<T, SendFailure> {
    timeout(limit, exchange).await.unwrap_or(Err(SendFailure::TimedOut))
}

/// The body of an answer. When all of it was read, its connection is kept for the next request; one that was not is closed.
pub struct AnswerBody {
    content: Content,
    is_over: bool,
    connection: Option<Connection>,
    /// Its request is outstanding until all of it was read.
    _outstanding: Option<Outstanding>,
}

/// The connection that an answer comes by.
struct Connection {
    pooled: PooledConnection,
    pool: Arc<ConnectionPool>,
    /// Its request has a body, of which some may not be sent yet.
    has_body: bool,
}

impl Connection {
    /// Keeps it for another request. A server may answer before it has the whole request, and its client leave the rest unsent: nobody
    /// else waits for that.
    fn keep(self) {
        let Self { mut pooled, pool, has_body } = self;
        if !has_body || pooled.sender.is_ready() {
            pool.keep(pooled);
        } else if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                let ready = timeout(REST_TIMEOUT, pooled.sender.ready()).await;
                if ready.is_ok_and(|ready| ready.is_ok()) {
                    pool.keep(pooled);
                }
            });
        }
    }
}

enum Content {
    Stream(Incoming),
    Whole(Option<Bytes>),
}

impl AnswerBody {
    pub fn counted(mut self, outstanding: Outstanding) -> Self {
        self._outstanding = Some(outstanding);
        self
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        let is_read = self.is_over || self.is_end_stream();
        if let Some(connection) = self.connection.take().filter(|_| is_read) {
            connection.keep();
        }
    }
}

impl hyper::body::Body for AnswerBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = match &mut self.content {
            Content::Stream(body) => ready!(Pin::new(body).poll_frame(context)),
            Content::Whole(bytes) => bytes.take().map(|bytes| Ok(Frame::data(bytes))),
        };
        self.is_over |= polled.is_none();
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Stream(body) => body.is_end_stream(),
            Content::Whole(bytes) => bytes.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Stream(body) => body.size_hint(),
            Content::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
        }
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
