//! Connections to one server that answers requests: those that are open are used again, and the requests that it has not answered
//! yet are counted.

use super::access_log::Entry;
use super::noted_body::{BodyNote, noted};
use super::open_connection::OpenConnection;
use super::outstanding::{Counted, Outstanding};
use super::place_use::PlaceUse;
use super::timed_body::BodyStalled;
use crate::connection_limits::TUNNEL_IDLE;
use crate::http::event_loops::LoopNumber;
use axum::BoxError;
use axum::body::Body;
use axum::http::StatusCode;
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError};
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use std::collections::VecDeque;
use std::error::Error;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep, timeout};

/// Connections to one server that is not said to take fewer: as many as the requests of a gateway to one replica.
const CONNECTIONS_MAX: usize = 1024;
/// How long a connection is kept open for the next request.
const IDLE: Duration = Duration::from_secs(60);
/// So many requests at once leave the threads time for each other's connections. A server that answers one connection at a time keeps the one
/// that it has.
const QUIET_MAX: usize = 4;
/// Connections that are looked at in a row while no request can have one.
const LOOKED_AT_MAX: usize = 16;
/// Bytes of an answer that is read whole before its client gets any of it, where its request can be made again.
const SHORT_BYTES_MAX: u64 = 64 << 10;
/// How long a connection may take to send the rest of a request that is answered already, before it is given up.
const REST_TIMEOUT: Duration = Duration::from_secs(10);

/// Why the body of an answer fails that came in part.
#[derive(Debug, thiserror::Error)]
#[error("nothing more of the answer came")]
struct AnswerSilent;

/// Why a request has no answer.
pub enum SendFailure {
    /// Nothing of it was sent: another server may get it.
    NotSent(Box<hyper::Request<Body>>),
    /// It was sent, in part at least, and the connection was lost.
    Lost,
    /// It was sent, in part at least, and what came back is no answer.
    BadAnswer,
    /// Its body cannot be read from its client.
    BadBody,
    /// Its body went on beyond the bound of `bounded_body`: it was given up in the middle.
    TooLong,
    /// Its body came too slowly for `bounded_body`, and no answer.
    Stalled,
    TimedOut,
}

impl SendFailure {
    /// What its server did, where it had the request: it may have carried it out.
    pub fn of_server(&self) -> Option<&'static str> {
        match self {
            Self::Lost => Some("ended without an answer"),
            Self::BadAnswer => Some("gave an answer that is no HTTP, or whose head is too long"),
            Self::NotSent(_) | Self::BadBody | Self::TooLong | Self::Stalled | Self::TimedOut => {
                None
            }
        }
    }
}

/// Whether a request failed because of this error, which may be one of its own body.
pub fn is_caused_by<E: Error + 'static>(error: &(dyn Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |&error| error.source());
    causes.any(|error| error.is::<E>())
}

/// A connection of a pool, counted while it is open for requests.
struct PooledConnection {
    connection: OpenConnection,
    /// The event loop that is told of its bytes.
    home: LoopNumber,
    _open: Counted,
}

/// The connection by which a request goes.
enum NextConnection {
    Kept(PooledConnection),
    /// A new one, counted while it is being made: as many as are on their way at once have their part too.
    New(Counted),
}

pub struct ConnectionPool {
    /// Connections that the server takes: as many are kept, so that no request has to open one while others are closed.
    connections_max: usize,
    outstanding: Arc<AtomicUsize>,
    websockets: Arc<AtomicUsize>,
    uploads: Arc<AtomicUsize>,
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
            uploads: Arc::default(),
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

    /// Requests whose bodies are on their way, beside which each is outstanding.
    pub fn enter_upload(&self) -> Outstanding {
        Outstanding::of(&self.uploads)
    }

    /// Whether as many places of a server are held for this use as may be, of so many in all.
    pub fn is_full(&self, place_use: PlaceUse, places: usize) -> bool {
        let held = match place_use {
            PlaceUse::Whole => self.outstanding(),
            PlaceUse::Upload => self.uploads.load(Relaxed),
            PlaceUse::WebSocket => self.websockets(),
        };
        held >= place_use.most(places)
    }

    fn idle(&self) -> MutexGuard<'_, VecDeque<(PooledConnection, Instant)>> {
        self.idle.lock().expect("no panic with the connections held")
    }

    fn is_over_full(&self) -> bool {
        self.open.load(Relaxed) + self.websockets() > self.connections_max
    }

    /// Closes the connections that nobody has used for a while. Requests wait for a few of them to be looked at, and not for all.
    pub fn close_idle(&self, now: Instant) {
        let mut next = Some(0);
        while let Some(from) = next {
            // Closed when the others can be used again.
            let mut closed = Vec::new();
            next = self.take_unusable(from, now, &mut closed);
        }
    }

    /// Takes those out of the connections from one on, of which a few are looked at; the next one, if there are more.
    fn take_unusable(
        &self,
        from: usize,
        now: Instant,
        closed: &mut Vec<PooledConnection>,
    ) -> Option<usize> {
        let (mut idle, mut at) = (self.idle(), from);
        for _ in 0..LOOKED_AT_MAX {
            let (kept, since) = idle.get_mut(at)?;
            if now.saturating_duration_since(*since) < IDLE && !kept.connection.is_closed() {
                at += 1;
            } else {
                closed.extend(idle.remove(at).map(|(kept, _)| kept));
            }
        }
        Some(at)
    }

    /// Since when the connection waits that has waited longest for a request.
    pub fn idle_since(&self) -> Option<Instant> {
        self.idle().front().map(|(_, since)| *since)
    }

    /// Closes that connection.
    pub fn close_oldest(&self) {
        drop(self.idle().pop_front());
    }

    fn keep(&self, connection: PooledConnection) {
        let mut idle = self.idle();
        if !self.is_over_full() {
            idle.push_back((connection, Instant::now()));
        }
    }

    /// The connection that was used last, of those whose bytes come to this thread. Where there is none, a new one while many ask and there
    /// is room: with another thread's connection each answer wakes that thread to wake this one. A connection that becomes a websocket is
    /// always new; where it is one too many, because WebSockets have taken the place of requests, the one is closed that has waited longest
    /// for a request.
    fn next_connection(&self, has_room: &impl Fn() -> bool, upgrades: bool) -> NextConnection {
        let own = LoopNumber::of_this_thread();
        let mut idle = self.idle();
        if !upgrades {
            let at = match idle.iter().rposition(|(kept, _)| kept.home == own) {
                Some(near) => Some(near),
                None if self.opens_another(has_room) => None,
                None => idle.len().checked_sub(1),
            };
            if let Some((kept, _)) = at.and_then(|at| idle.remove(at)) {
                return NextConnection::Kept(kept);
            }
        }
        let open = Counted::of(&self.open);
        while self.is_over_full() && idle.pop_front().is_some() {}
        NextConnection::New(open)
    }

    /// Whether a thread opens a connection of its own while those of others wait for a request.
    fn opens_another(&self, has_room: &impl Fn() -> bool) -> bool {
        let is_full = self.open.load(Relaxed) + self.websockets() >= self.connections_max;
        self.outstanding() > QUIET_MAX && !is_full && has_room()
    }

    fn take_last(&self) -> Option<PooledConnection> {
        self.idle().pop_back().map(|(kept, _)| kept)
    }

    /// Sends a request by a connection that is open, or by a new one.
    pub async fn send<C>(
        self: &Arc<Self>,
        connect: impl FnOnce() -> C,
        request: hyper::Request<Body>,
        upgrades: bool,
    ) -> Result<hyper::Response<AnswerBody>, SendFailure>
    where
        C: Future<Output = Option<OpenConnection>>,
    {
        self.send_where(|| true, connect, request, upgrades).await
    }

    /// The same where other pools have a part of the connections. `has_room`: whether there is one for a connection that this pool could do
    /// without; asked with the pool held.
    pub async fn send_where<C>(
        self: &Arc<Self>,
        has_room: impl Fn() -> bool,
        connect: impl FnOnce() -> C,
        mut request: hyper::Request<Body>,
        upgrades: bool,
    ) -> Result<hyper::Response<AnswerBody>, SendFailure>
    where
        C: Future<Output = Option<OpenConnection>>,
    {
        let open = loop {
            match self.next_connection(&has_room, upgrades) {
                NextConnection::Kept(connection) => match self.send_by(connection, request).await {
                    // The server has closed it meanwhile.
                    Err(SendFailure::NotSent(unsent)) => request = *unsent,
                    other => return other,
                },
                NextConnection::New(open) => break open,
            }
        };
        // Few requests have to connect: what that needs has no room in all of them.
        if let Some(connection) = Box::pin(connect()).await {
            let home = LoopNumber::of_this_thread();
            let pooled = PooledConnection { connection, home, _open: open };
            return self.send_by(pooled, request).await;
        }
        drop(open);
        // It may have been to be one more than needed.
        let kept = if upgrades { None } else { self.take_last() };
        match kept {
            Some(connection) => Box::pin(self.send_by(connection, request)).await,
            None => Err(SendFailure::NotSent(Box::new(request))),
        }
    }

    async fn send_by(
        self: &Arc<Self>,
        mut pooled: PooledConnection,
        request: hyper::Request<Body>,
    ) -> Result<hyper::Response<AnswerBody>, SendFailure> {
        // Its server may have closed it while nobody asked.
        if pooled.connection.ready().await.is_err() {
            return Err(SendFailure::NotSent(Box::new(request)));
        }
        let (request, body_note) = noted(request);
        let sent = pooled.connection.send(request).await;
        let answer = sent.map_err(|mut failure| match failure.take_message() {
            Some(unsent) => SendFailure::NotSent(Box::new(unsent)),
            None if is_caused_by::<LengthLimitError>(failure.error()) => SendFailure::TooLong,
            None if is_caused_by::<BodyStalled>(failure.error()) => SendFailure::Stalled,
            // The client's own body was bad: no other error on the way is one of axum.
            None if is_caused_by::<axum::Error>(failure.error()) => SendFailure::BadBody,
            None if failure.error().is_parse() => SendFailure::BadAnswer,
            None => SendFailure::Lost,
        })?;
        let way = if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            pooled.connection.run_alone();
            None
        } else {
            Some(AnswerWay::of(pooled, self.clone(), &body_note))
        };
        Ok(answer.map(|body| AnswerBody {
            content: Content::Stream(body),
            is_over: false,
            way,
            entry: None,
            idle: TUNNEL_IDLE,
            silence: None,
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
        way: None,
        entry: None,
        idle: TUNNEL_IDLE,
        silence: None,
        _outstanding: None,
    };
    Ok(hyper::Response::from_parts(head, body))
}

/// The outcome of an exchange, which is given up when its time is over. It stays where it was made: it is large.
pub async fn in_time<T>(
    limit: Duration,
    exchange: Pin<&mut impl Future<Output = Result<T, SendFailure>>>,
) -> Result<T, SendFailure> {
    timeout(limit, exchange).await.unwrap_or(Err(SendFailure::TimedOut))
}

/// The body of an answer. When all of it was read, its connection is kept for the next request; one that was not is closed.
pub struct AnswerBody {
    content: Content,
    is_over: bool,
    way: Option<AnswerWay>,
    /// The line of the access log, where its bytes are counted.
    entry: Option<Entry>,
    /// How long nothing may come of it after its request was read whole, and the time of that while something is waited for. One whose request
    /// goes on may be silent for longer.
    idle: Duration,
    silence: Option<Pin<Box<Sleep>>>,
    /// Its request is outstanding until all of it was read.
    _outstanding: Option<Outstanding>,
}

/// The way by which an answer comes.
enum AnswerWay {
    /// A connection whose request was read whole from its client. Who reads the answer polls it.
    Polled { pooled: PooledConnection, pool: Arc<ConnectionPool>, has_body: bool },
    /// One whose request goes on while its answer comes, in a task of its own: it goes on also where the client does not take the answer
    /// meanwhile. Told when all of the answer was read.
    Alone(oneshot::Sender<()>),
}

impl AnswerWay {
    fn of(pooled: PooledConnection, pool: Arc<ConnectionPool>, body: &BodyNote) -> Self {
        if body.is_read() {
            return Self::Polled { pooled, pool, has_body: body.has_been() };
        }
        let (read, is_read) = oneshot::channel();
        tokio::spawn(keep_when_sent(pooled, pool, is_read));
        Self::Alone(read)
    }

    fn poll<T>(
        &mut self,
        context: &mut Context<'_>,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        match self {
            Self::Polled { pooled, .. } => pooled.connection.poll_with(context, |_, own| poll(own)),
            Self::Alone(_) => poll(context),
        }
    }

    /// Has the connection take note of the end of its answer.
    fn note_end(&mut self, context: &mut Context<'_>) {
        if let Self::Polled { pooled, has_body: true, .. } = self {
            let _ = pooled.connection.poll_ready(context);
        }
    }

    /// Keeps the connection for another request, now that the answer was read. A server may answer before it has the whole request, and
    /// its client leave the rest unsent: nobody else waits for that.
    fn keep(self) {
        match self {
            Self::Polled { pooled, pool, has_body }
                if !has_body || pooled.connection.is_ready() =>
            {
                pool.keep(pooled);
            }
            Self::Polled { pooled, pool, .. } => {
                if let Ok(runtime) = Handle::try_current() {
                    let (read, is_read) = oneshot::channel();
                    let _ = read.send(());
                    runtime.spawn(keep_when_sent(pooled, pool, is_read));
                }
            }
            Self::Alone(read) => drop(read.send(())),
        }
    }
}

/// Keeps a connection once its request is sent and its answer was read. One whose answer nobody reads any more is closed.
async fn keep_when_sent(
    mut pooled: PooledConnection,
    pool: Arc<ConnectionPool>,
    mut is_read: oneshot::Receiver<()>,
) {
    let sent = {
        let mut ready = pin!(pooled.connection.ready());
        tokio::select! {
            ready = &mut ready => ready.is_ok() && is_read.await.is_ok(),
            read = &mut is_read => {
                read.is_ok() && timeout(REST_TIMEOUT, ready).await.is_ok_and(|ready| ready.is_ok())
            }
        }
    };
    if sent {
        pool.keep(pooled);
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

    /// Without a body of the log's own around it.
    pub fn logged(mut self, entry: Option<Entry>) -> Self {
        self.entry = entry;
        self
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        let is_read = self.is_over || self.is_end_stream();
        if let Some(way) = self.way.take().filter(|_| is_read) {
            way.keep();
        }
    }
}

impl hyper::body::Body for AnswerBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Self { content, is_over, way, entry, idle, silence, .. } = &mut *self;
        let polled = match (content, way) {
            (Content::Stream(body), Some(way)) => {
                match way.poll(context, |own| Pin::new(&mut *body).poll_frame(own)) {
                    Poll::Ready(polled) => {
                        *silence = None;
                        if polled.is_none() || body.is_end_stream() {
                            way.note_end(context);
                        }
                        polled.map(|frame| frame.map_err(BoxError::from))
                    }
                    Poll::Pending if matches!(way, AnswerWay::Polled { .. }) => {
                        let silence = silence.get_or_insert_with(|| Box::pin(sleep(*idle)));
                        ready!(silence.as_mut().poll(context));
                        Some(Err(AnswerSilent.into()))
                    }
                    Poll::Pending => return Poll::Pending,
                }
            }
            (Content::Stream(body), None) => {
                let polled = ready!(Pin::new(body).poll_frame(context));
                polled.map(|frame| frame.map_err(BoxError::from))
            }
            (Content::Whole(bytes), _) => bytes.take().map(|bytes| Ok(Frame::data(bytes))),
        };
        if let (Some(entry), Some(Ok(frame))) = (entry, &polled) {
            entry.count(frame);
        }
        *is_over |= polled.is_none();
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
