//! Connections that are used again, and what is told of answers that do not come.

use super::*;
use crate::http::event_loops::EventLoops;
use crate::proxy::timed_body::TimedBody;
use http_body_util::Limited;
use std::task::Waker;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;

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

/// A body that cannot be read, as one of a client whose chunks have no length.
struct Broken;

impl hyper::body::Body for Broken {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(Some(Err(std::io::Error::other("a chunk without a length"))))
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
    let sender = OpenConnection::handshake(ours, ()).await.expect("a connection");
    let answer = async {
        let mut head = [0; 1024];
        let count = theirs.read(&mut head).await.expect("a request");
        assert!(count > 0, "a request");
        theirs.write_all(text.as_bytes()).await.expect("an answer");
        (!is_cut).then_some(theirs)
    };
    let (sent, open) = tokio::join!(pool.send(|| async { Some(sender) }, request, false), answer);
    let Ok(answer) = sent else { panic!("no answer to {text}") };
    (answer, open)
}

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n";
const HELLO: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";

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

/// A body of one part, which its client sends when it is told to.
struct Gated(Option<oneshot::Receiver<()>>);

impl hyper::body::Body for Gated {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Some(gate) = &mut self.0 else { return Poll::Ready(None) };
        let _ = ready!(Pin::new(gate).poll(context));
        self.0 = None;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"the rest")))))
    }
}

#[tokio::test]
async fn request_goes_on_while_nobody_takes_its_answer() {
    let pool = Arc::<ConnectionPool>::default();
    let (told, gate) = oneshot::channel();
    let request = hyper::Request::post("/").body(Body::new(Gated(Some(gate))));
    let request = request.expect("a request");
    let (answer, open) = answer_to(&pool, request, &format!("{HEAD}hello"), false).await;
    told.send(()).expect("a body that waits");
    let (mut server, mut seen) = (open.expect("a connection"), String::new());
    while !seen.contains("the rest") {
        let mut part = [0; 64];
        let read = timeout(Duration::from_secs(60), server.read(&mut part)).await;
        let count = read.expect("in time").expect("the rest of the request");
        assert!(count > 0, "{seen}");
        seen += &String::from_utf8_lossy(&part[..count]);
    }
    assert_eq!(pool.idle().len(), 0, "its answer is not read");
    answer.into_body().collect().await.expect("a body");
    while pool.idle().is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn connection_that_its_server_closes_is_kept_no_longer() {
    let pool = Arc::<ConnectionPool>::default();
    let (answer, open) = answer_of(&pool, &format!("{HEAD}hello"), false).await;
    answer.into_body().collect().await.expect("a body");
    pool.close_idle(Instant::now());
    assert_eq!(pool.idle().len(), 1);
    drop(open);
    pool.close_idle(Instant::now());
    assert_eq!(pool.idle().len(), 0);
}

#[tokio::test]
async fn answer_of_which_nothing_more_comes_ends_when_its_time_is_over() {
    let pool = Arc::<ConnectionPool>::default();
    let text = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n";
    let (answer, open) = answer_of(&pool, text, false).await;
    let mut body = answer.into_body();
    let first = body.frame().await.expect("a part").expect("no error");
    assert_eq!(first.into_data().ok().as_deref(), Some(&b"hello"[..]));
    // The time for what comes next: its server sends nothing more.
    body.idle = Duration::ZERO;
    assert!(body.frame().await.is_some_and(|next| next.is_err()), "not as if it were all");
    drop(body);
    let read = open.expect("a connection").read(&mut [0]).await;
    assert_eq!(read.expect("the end"), 0, "its connection is closed");
}

#[tokio::test]
async fn connections_that_are_closed_are_found_among_many() {
    const ALL: usize = 3 * LOOKED_AT_MAX;
    let pool = Arc::<ConnectionPool>::default();
    let mut servers = Vec::new();
    let exchanges = (0..ALL).map(|_| answer_of(&pool, HELLO, false));
    for (answer, open) in futures_util::future::join_all(exchanges).await {
        answer.into_body().collect().await.expect("a body");
        servers.push(open.expect("a connection"));
    }
    assert_eq!(pool.idle().len(), ALL);
    let mut number = 0;
    servers.retain(|_| {
        number += 1;
        number % 2 == 0
    });
    pool.close_idle(Instant::now());
    assert_eq!(pool.idle().len(), servers.len());
    pool.close_idle(Instant::now() + IDLE);
    assert_eq!(pool.idle().len(), 0);
}

#[tokio::test]
async fn body_that_goes_on_beyond_its_bound_is_told_from_a_lost_connection() {
    // The other side takes so many bytes, never answers, and leaves.
    let send = async |body: Body, most: usize| {
        let (ours, mut theirs) = tokio::io::duplex(64);
        let sender = OpenConnection::handshake(ours, ()).await.expect("a connection");
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
        tokio::join!(pool.send(|| async { Some(sender) }, request, false), read).0.err()
    };
    let long = Body::new(Limited::new(Body::from(vec![0; 4096]), 1000));
    assert!(matches!(send(long, usize::MAX).await, Some(SendFailure::TooLong)));
    let cut = Body::from(vec![0; 4096]);
    assert!(matches!(send(cut, 1).await, Some(SendFailure::Lost)));
    let broken = Body::new(Broken);
    assert!(matches!(send(broken, usize::MAX).await, Some(SendFailure::BadBody)));
}

#[tokio::test]
async fn answer_that_cannot_be_read_is_told_from_a_lost_connection() {
    let lengths = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello";
    for text in ["\0 nothing of HTTP\r\n\r\n", lengths] {
        let (ours, mut theirs) = tokio::io::duplex(4096);
        let sender = OpenConnection::handshake(ours, ()).await.expect("a connection");
        let pool = Arc::<ConnectionPool>::default();
        let answer = async {
            let mut head = [0; 1024];
            let count = theirs.read(&mut head).await.expect("a request");
            assert!(count > 0, "a request");
            theirs.write_all(text.as_bytes()).await.expect("an answer");
        };
        let request = hyper::Request::new(Body::empty());
        let sent = pool.send(|| async { Some(sender) }, request, false);
        let (sent, ()) = tokio::join!(sent, answer);
        assert!(matches!(sent, Err(SendFailure::BadAnswer)), "{text:?}");
    }
}

#[tokio::test]
async fn body_of_which_nothing_comes_is_told_from_a_lost_connection() {
    let (ours, _theirs) = tokio::io::duplex(4096);
    let sender = OpenConnection::handshake(ours, ()).await.expect("a connection");
    let (unsent, silence) = (Body::new(Unsent), Duration::from_millis(20));
    let (body, _) = TimedBody::new(unsent, silence);
    // As `bounded_body` has it.
    let body = Body::new(Limited::new(body, 1000));
    let request = hyper::Request::post("/").body(body).expect("a request");
    let pool = Arc::<ConnectionPool>::default();
    let sent = pool.send(|| async { Some(sender) }, request, false).await;
    assert!(matches!(sent, Err(SendFailure::Stalled)));
}

#[tokio::test]
async fn body_may_be_silent_once_its_answer_has_begun() {
    let silence = Duration::from_millis(5);
    let (mut answered, upload) = TimedBody::new(Body::new(Unsent), silence);
    let (mut unanswered, _) = TimedBody::new(Body::new(Unsent), silence);
    let mut context = Context::from_waker(Waker::noop());
    // Its time begins to run, before that of the other.
    let _ = Pin::new(&mut answered).poll_frame(&mut context);
    upload.note_answer();
    let end = std::future::poll_fn(|context| Pin::new(&mut unanswered).poll_frame(context)).await;
    assert!(matches!(end, Some(Err(_))), "its time is over, and so is that of the one before it");
    assert!(Pin::new(&mut answered).poll_frame(&mut context).is_pending());
}

#[tokio::test]
async fn answer_that_does_not_come_is_given_up_with_its_connection() {
    let (ours, mut theirs) = tokio::io::duplex(4096);
    let sender = OpenConnection::handshake(ours, ()).await.expect("a connection");
    let pool = Arc::<ConnectionPool>::default();
    let request = hyper::Request::new(Body::empty());
    let exchange = pool.send(|| async { Some(sender) }, request, false);
    let sent = in_time(Duration::from_millis(20), pin!(exchange)).await;
    assert!(matches!(sent, Err(SendFailure::TimedOut)));
    let mut asked = Vec::new();
    theirs.read_to_end(&mut asked).await.expect("the connection is closed");
    assert_eq!(pool.idle().len(), 0);
}

#[tokio::test]
async fn what_a_connection_holds_is_held_until_its_websocket_is_closed() {
    let (ours, mut theirs) = tokio::io::duplex(4096);
    let held = Arc::new(());
    let sender = OpenConnection::handshake(ours, held.clone()).await.expect("a connection");
    let pool = Arc::<ConnectionPool>::default();
    let request = hyper::Request::get("/").header("connection", "upgrade");
    let request = request.header("upgrade", "websocket").body(Body::empty());
    let request = request.expect("a request");
    let answer = async {
        let mut head = [0; 1024];
        let count = theirs.read(&mut head).await.expect("a request");
        assert!(count > 0, "a request");
        let head = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n";
        let answer = format!("{head}upgrade: websocket\r\n\r\n");
        theirs.write_all(answer.as_bytes()).await.expect("an answer");
    };
    let (sent, ()) = tokio::join!(pool.send(|| async { Some(sender) }, request, true), answer);
    let Ok(mut answer) = sent else { panic!("no answer") };
    let websocket = hyper::upgrade::on(&mut answer).await.expect("a websocket");
    assert_eq!(Arc::strong_count(&held), 2);
    drop(websocket);
    assert_eq!(Arc::strong_count(&held), 1);
}

#[tokio::test]
async fn end_of_a_request_is_told_when_it_is_no_longer_counted() {
    let (pool, ended) = (ConnectionPool::default(), Arc::<Notify>::default());
    let first = pool.enter().told_to(&ended);
    let mut told = std::pin::pin!(ended.notified());
    let polled = std::future::poll_fn(|context| Poll::Ready(told.as_mut().poll(context)));
    assert!(polled.await.is_pending());
    drop(first);
    told.await;
    assert_eq!(pool.outstanding(), 0);
    drop(pool.enter().told_to(&ended));
    ended.notified().await;
}

/// A server that counts its connections, and says how many of them are open. It answers so many requests together.
#[derive(Clone)]
struct CountingServer {
    together: usize,
    asked: Arc<AtomicUsize>,
    opened: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
}

impl CountingServer {
    fn new(together: usize) -> Self {
        let (asked, opened, open) = Default::default();
        Self { together, asked, opened, open }
    }

    async fn connect(self) -> Option<OpenConnection> {
        let (ours, mut theirs) = tokio::io::duplex(4096);
        self.opened.fetch_add(1, Relaxed);
        let open = Counted::of(&self.open);
        tokio::spawn(async move {
            let (_open, mut head) = (open, [0; 1024]);
            while theirs.read(&mut head).await.is_ok_and(|count| count > 0) {
                let number = self.asked.fetch_add(1, Relaxed) + 1;
                while self.asked.load(Relaxed) < number.next_multiple_of(self.together) {
                    tokio::task::yield_now().await;
                }
                let _ = theirs.write_all(format!("{HEAD}hello").as_bytes()).await;
            }
        });
        OpenConnection::handshake(ours, ()).await
    }
}

#[tokio::test]
async fn as_many_connections_as_requests_are_kept_and_none_is_opened_while_they_are() {
    const REQUESTS: usize = 240;
    let server = CountingServer::new(REQUESTS);
    let pool = Arc::new(ConnectionPool::new(REQUESTS));
    for _ in 0..3 {
        let exchanges = (0..REQUESTS).map(|_| async {
            let outstanding = pool.enter();
            let request = hyper::Request::new(Body::empty());
            let sent = pool.send(|| server.clone().connect(), request, false).await;
            let Ok(answer) = sent else { panic!("no answer") };
            answer.into_body().counted(outstanding).collect().await.expect("a body");
        });
        futures_util::future::join_all(exchanges).await;
        assert_eq!(pool.idle().len(), REQUESTS);
    }
    assert_eq!(server.opened.load(Relaxed), REQUESTS, "all rounds had the same connections");
}

/// The number of an event loop that is not this thread's.
async fn other_thread() -> LoopNumber {
    let place = EventLoops::start("test").expect("threads").place();
    let (told, number) = oneshot::channel();
    place.spawn(async move {
        let _ = told.send(LoopNumber::of_this_thread());
    });
    number.await.expect("its number")
}

#[tokio::test]
async fn thread_opens_a_connection_of_its_own_where_many_ask_and_there_is_room() {
    let other_thread = other_thread().await;
    let server = CountingServer::new(1);
    let pool = Arc::new(ConnectionPool::new(2));
    // The number of connections after one more request, for which those that wait are another thread's.
    let opened = async |has_room: bool| {
        pool.idle().iter_mut().for_each(|(kept, _)| kept.home = other_thread);
        let request = hyper::Request::new(Body::empty());
        let connect = || server.clone().connect();
        let sent = pool.send_where(|| has_room, connect, request, false).await;
        let Ok(answer) = sent else { panic!("no answer") };
        answer.into_body().collect().await.expect("a body");
        server.opened.load(Relaxed)
    };
    assert_eq!((opened(true).await, opened(true).await), (1, 1), "few ask");
    let _others: Vec<Outstanding> = (0..=QUIET_MAX).map(|_| pool.enter()).collect();
    assert_eq!((opened(false).await, opened(true).await), (1, 2), "where there is room");
    assert_eq!(opened(true).await, 2, "as many as the server takes");
    let lost = pool.send(|| std::future::ready(None), hyper::Request::new(Body::empty()), true);
    let lost = lost.await;
    assert!(matches!(lost, Err(SendFailure::NotSent(_))), "a websocket needs its own");
}

#[tokio::test]
async fn request_goes_by_a_kept_connection_where_no_other_can_be_made() {
    let other_thread = other_thread().await;
    let pool = Arc::<ConnectionPool>::default();
    let server = CountingServer::new(1);
    let request = || hyper::Request::new(Body::empty());
    let Ok(answer) = pool.send(|| server.clone().connect(), request(), false).await else {
        panic!("no answer");
    };
    answer.into_body().collect().await.expect("a body");
    pool.idle().iter_mut().for_each(|(kept, _)| kept.home = other_thread);
    let _others: Vec<Outstanding> = (0..=QUIET_MAX).map(|_| pool.enter()).collect();
    let sent = pool.send(|| std::future::ready(None), request(), false).await;
    assert!(sent.is_ok_and(|answer| answer.status() == StatusCode::OK));
}

#[tokio::test]
async fn websocket_takes_the_place_of_the_connection_that_was_used_longest_ago() {
    let server = CountingServer::new(1);
    let pool = Arc::new(ConnectionPool::new(3));
    let ask = async |upgrades: bool| {
        let request = hyper::Request::new(Body::empty());
        let sent = pool.send(|| server.clone().connect(), request, upgrades).await;
        sent.unwrap_or_else(|_| panic!("no answer"))
    };
    let all = [ask(false).await, ask(false).await, ask(false).await];
    for answer in all {
        answer.into_body().collect().await.expect("a body");
    }
    assert_eq!(pool.idle().len(), 3);
    let websocket = ask(true).await;
    assert_eq!(pool.idle().len(), 2);
    while server.open.load(Relaxed) > 3 {
        tokio::task::yield_now().await;
    }
    drop(websocket);
    assert_eq!(pool.open.load(Relaxed), 2);
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
