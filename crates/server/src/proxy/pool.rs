//! Connections to one server that answers requests: those that are open are used again, and the requests that it has not answered
//! yet are counted.

use super::timed_body::BodyStalled;
use axum::body::Body;
use axum::http::StatusCode;
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError};
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
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

/// Connections that are kept open for the next requests, and for how long.
const IDLE_MAX: usize = 128;
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

/// How many requests are not answered yet.
#[derive(Default)]
struct RequestCount {
    count: AtomicUsize,
    /// Told at each end of one.
    ended: Notify,
}

/// A request that is not answered yet, until this is dropped.
pub struct Outstanding(Arc<RequestCount>);

impl Outstanding {
    /// Counts one more until this is dropped.
    fn of(counted: &Arc<RequestCount>) -> Self {
        counted.count.fetch_add(1, Relaxed);
        Self(counted.clone())
    }
}

impl Drop for Outstanding {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Relaxed);
        self.0.ended.notify_one();
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
    outstanding: Arc<RequestCount>,
    websockets: Arc<RequestCount>,
    /// The last used is at the end.
    idle: Mutex<Vec<(Sender, Instant)>>,
}

impl ConnectionPool {
    pub fn outstanding(&self) -> usize {
        self.outstanding.count.load(Relaxed)
    }

    pub fn enter(&self) -> Outstanding {
        Outstanding::of(&self.outstanding)
    }

    /// Waits until one of its requests was answered.
    pub async fn one_answered(&self) {
        self.outstanding.ended.notified().await;
    }

    /// Requests that have become WebSockets, or are to: each holds its connection for as long as it likes.
    pub fn websockets(&self) -> usize {
        self.websockets.count.load(Relaxed)
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
    ) -> Result<hyper::Response<AnswerBody>, SendFailure> {
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
    ) -> Result<hyper::Response<AnswerBody>, SendFailure> {
        let has_body = !request.body().is_end_stream();
        // The task of a connection whose last answer was just read may not have taken note of that yet.
        if sender.ready().await.is_err() {
            return Err(SendFailure::NotSent(Box::new(request)));
        }
        let sent = sender.try_send_request(request).await;
        let answer = sent.map_err(|mut failure| match failure.take_message() {
            Some(unsent) => SendFailure::NotSent(Box::new(unsent)),
            None if is_caused_by::<LengthLimitError>(failure.error()) => SendFailure::TooLong,
            None if is_caused_by::<BodyStalled>(failure.error()) => SendFailure::Stalled,
            None => SendFailure::Lost,
        })?;
        let becomes_websocket = answer.status() == StatusCode::SWITCHING_PROTOCOLS;
        let pool = self.clone();
        let connection = (!becomes_websocket).then_some(Connection { sender, pool, has_body });
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
    sender: Sender,
    pool: Arc<ConnectionPool>,
    /// Its request has a body, of which some may not be sent yet.
    has_body: bool,
}

impl Connection {
    /// Keeps it for another request. A server may answer before it has the whole request, and its client leave the rest unsent: nobody
    /// else waits for that.
    fn keep(self) {
        let Self { mut sender, pool, has_body } = self;
        if !has_body || sender.is_ready() {
            pool.keep(sender);
        } else if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                if timeout(REST_TIMEOUT, sender.ready()).await.is_ok_and(|ready| ready.is_ok()) {
                    pool.keep(sender);
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
mod tests {
    use super::*;
    use crate::proxy::timed_body::{AnswerBegun, TimedBody};
    use http_body_util::Limited;
    use std::task::Waker;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// A body that does not end, as that of a client that sends no more.
    struct Unsent;

    impl hyper::body::Body for Unsent {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            Poll::Pending
        }
    }

    /// The answer of a server that sends this text and, where it is cut, closes the connection.
    async fn answer_of(
        pool: &Arc<ConnectionPool>,
        text: &str,
        is_cut: bool,
    ) -> (hyper::Response<AnswerBody>, Option<tokio::io::DuplexStream>) {
        answer_to(pool, hyper::Request::new(Body::empty()), text, is_cut).await
    }

    async fn answer_to(
        pool: &Arc<ConnectionPool>,
        request: hyper::Request<Body>,
        text: &str,
        is_cut: bool,
    ) -> (hyper::Response<AnswerBody>, Option<tokio::io::DuplexStream>) {
        let (ours, mut theirs) = tokio::io::duplex(4096);
        let sender = handshake(ours, ()).await.expect("a connection");
        let answer = async {
            let mut head = [0; 1024];
            let count = theirs.read(&mut head).await.expect("a request");
            assert!(count > 0, "a request");
            theirs.write_all(text.as_bytes()).await.expect("an answer");
            (!is_cut).then_some(theirs)
        };
        let (sent, open) = tokio::join!(pool.send(async { Some(sender) }, request, false), answer);
        let Ok(answer) = sent else { panic!("no answer to {text}") };
        (answer, open)
    }

    const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n";

    #[tokio::test]
    async fn short_answer_is_read_whole_and_lost_whole_where_it_is_cut() {
        let pool = Arc::<ConnectionPool>::default();
        let (answer, _open) = answer_of(&pool, &format!("{HEAD}hello"), false).await;
        let Ok(answer) = read_short(answer).await else { panic!("a whole answer") };
        assert_eq!(pool.idle().len(), 1, "its connection is kept");
        let body = answer.into_body().collect().await.expect("a body").to_bytes();
        assert_eq!(&body[..], b"hello");
        let (cut, _closed) = answer_of(&Arc::default(), &format!("{HEAD}hel"), true).await;
        assert!(matches!(read_short(cut).await, Err(SendFailure::Lost)));
    }

    #[tokio::test]
    async fn connection_with_a_request_that_its_client_does_not_finish_is_nobody_elses() {
        let pool = Arc::<ConnectionPool>::default();
        let text = format!("{HEAD}hello");
        let unsent = hyper::Request::post("/").body(Body::new(Unsent)).expect("a request");
        let (answer, _open) = answer_to(&pool, unsent, &text, false).await;
        answer.into_body().collect().await.expect("a body");
        assert_eq!(pool.idle().len(), 0, "the rest of its request may never come");
        let whole = hyper::Request::post("/").body(Body::from("all of it")).expect("a request");
        let (answer, _open) = answer_to(&pool, whole, &text, false).await;
        answer.into_body().collect().await.expect("a body");
        while pool.idle().is_empty() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn body_that_goes_on_beyond_its_bound_is_told_from_a_lost_connection() {
        // The other side takes so many bytes, never answers, and leaves.
        let send = async |body: Body, most: usize| {
            let (ours, mut theirs) = tokio::io::duplex(64);
            let sender = handshake(ours, ()).await.expect("a connection");
            let request = hyper::Request::post("/").body(body).expect("a request");
            let pool = Arc::<ConnectionPool>::default();
            let read = async move {
                let (mut part, mut taken) = ([0; 64], 0);
                while taken < most {
                    match theirs.read(&mut part).await {
                        Ok(count) if count > 0 => taken += count,
                        _ => break,
                    }
                }
            };
            tokio::join!(pool.send(async { Some(sender) }, request, false), read).0.err()
        };
        let long = Body::new(Limited::new(Body::from(vec![0; 4096]), 1000));
        assert!(matches!(send(long, usize::MAX).await, Some(SendFailure::TooLong)));
        let cut = Body::from(vec![0; 4096]);
        assert!(matches!(send(cut, 1).await, Some(SendFailure::Lost)));
    }

    #[tokio::test]
    async fn body_of_which_nothing_comes_is_told_from_a_lost_connection() {
        let (ours, _theirs) = tokio::io::duplex(4096);
        let sender = handshake(ours, ()).await.expect("a connection");
        let (unsent, silence) = (Body::new(Unsent), Duration::from_millis(20));
        let body = TimedBody::new(unsent, silence, AnswerBegun::default());
        // As `bounded_body` has it.
        let body = Body::new(Limited::new(body, 1000));
        let request = hyper::Request::post("/").body(body).expect("a request");
        let pool = Arc::<ConnectionPool>::default();
        let sent = pool.send(async { Some(sender) }, request, false).await;
        assert!(matches!(sent, Err(SendFailure::Stalled)));
    }

    #[tokio::test]
    async fn body_may_be_silent_once_its_answer_has_begun() {
        let silence = Duration::from_millis(5);
        for is_begun in [false, true] {
            let answer = AnswerBegun::default();
            let mut body = TimedBody::new(Body::new(Unsent), silence, answer.clone());
            let mut context = Context::from_waker(Waker::noop());
            // Its time begins to run.
            let _ = Pin::new(&mut body).poll_frame(&mut context);
            if is_begun {
                answer.note();
            }
            tokio::time::sleep(2 * silence).await;
            let polled = Pin::new(&mut body).poll_frame(&mut context);
            assert_eq!(polled.is_pending(), is_begun);
        }
    }

    #[tokio::test]
    async fn answer_that_does_not_come_is_given_up_with_its_connection() {
        let (ours, mut theirs) = tokio::io::duplex(4096);
        let sender = handshake(ours, ()).await.expect("a connection");
        let pool = Arc::<ConnectionPool>::default();
        let request = hyper::Request::new(Body::empty());
        let exchange = pool.send(async { Some(sender) }, request, false);
        let sent = in_time(Duration::from_millis(20), exchange).await;
        assert!(matches!(sent, Err(SendFailure::TimedOut)));
        let mut asked = Vec::new();
        theirs.read_to_end(&mut asked).await.expect("the connection is closed");
        assert_eq!(pool.idle().len(), 0);
    }

    #[tokio::test]
    async fn answer_lets_in_the_request_that_waits_for_it() {
        let pool = Arc::<ConnectionPool>::default();
        let first = pool.enter();
        let mut waiting = std::pin::pin!(pool.one_answered());
        let polled = std::future::poll_fn(|context| Poll::Ready(waiting.as_mut().poll(context)));
        assert!(polled.await.is_pending());
        drop(first);
        waiting.await;
        assert_eq!(pool.outstanding(), 0);
    }

    #[tokio::test]
    async fn connection_is_kept_once_its_answer_was_read() {
        let pool = Arc::<ConnectionPool>::default();
        let (answer, _open) = answer_of(&pool, &format!("{HEAD}hello"), false).await;
        let body = answer.into_body().counted(pool.enter());
        assert_eq!((pool.outstanding(), pool.idle().len()), (1, 0));
        body.collect().await.expect("a body");
        assert_eq!((pool.outstanding(), pool.idle().len()), (0, 1));
        let (unread, _open) = answer_of(&Arc::default(), &format!("{HEAD}hello"), false).await;
        drop(unread.into_body().counted(pool.enter()));
        assert_eq!((pool.outstanding(), pool.idle().len()), (0, 1), "one that was not is closed");
    }
}
