//! Connections of HTTP/2 on which nothing is asked. hyper closes one of HTTP/1.1 that sends no head of a request for a while, and of HTTP/2
//! one whose client does not answer pings: who does answer them, and asks for nothing, would keep its place for ever.

use axum::body::Body;
use axum::extract::Request;
use axum::http::Version;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

/// The requests of one connection.
#[derive(Clone, Default)]
pub struct ConnectionRequests(Arc<Counts>);

#[derive(Default)]
struct Counts {
    /// It speaks HTTP/1, which has bounds of its own.
    is_http1: AtomicBool,
    /// Those of HTTP/2 that are not answered to the end.
    open: AtomicUsize,
    /// One has begun since somebody looked.
    is_asked: AtomicBool,
}

/// A request of HTTP/2, until all of its answer was taken.
pub struct OpenRequest(ConnectionRequests);

impl ConnectionRequests {
    /// Takes note of a request; `None` for one of HTTP/1, of which nothing more needs to be known.
    pub fn begin(&self, request: &Request) -> Option<OpenRequest> {
        if request.version() != Version::HTTP_2 {
            self.0.is_http1.store(true, Relaxed);
            return None;
        }
        self.0.open.fetch_add(1, Relaxed);
        self.0.is_asked.store(true, Relaxed);
        Some(OpenRequest(self.clone()))
    }

    fn is_idle(&self) -> bool {
        !self.0.is_asked.swap(false, Relaxed) && self.0.open.load(Relaxed) == 0
    }
}

impl OpenRequest {
    /// Follows the answer to its end.
    pub fn follow(self, answer: Response) -> Response {
        answer.map(|body| Body::new(FollowedBody { body, _open: self }))
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.0.open.fetch_sub(1, Relaxed);
    }
}

struct FollowedBody {
    body: Body,
    _open: OpenRequest,
}

impl hyper::body::Body for FollowedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Comes when a connection had no request for a while, within twice that time.
pub struct IdleTimeout {
    requests: ConnectionRequests,
    time: Duration,
    /// `None` once it is known to speak HTTP/1.
    timer: Option<Pin<Box<Sleep>>>,
    /// Who is woken by the timer.
    waker: Option<Waker>,
}

impl IdleTimeout {
    pub fn new(requests: ConnectionRequests, time: Duration) -> Self {
        Self { requests, time, timer: Some(Box::pin(sleep(time))), waker: None }
    }

    /// To be asked with each poll of the connection: the timer itself is asked where it is over, or another is to be woken.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let Some(timer) = &mut self.timer else { return Poll::Pending };
            let is_known =
                self.waker.as_ref().is_some_and(|known| known.will_wake(context.waker()));
            if is_known && !timer.is_elapsed() {
                return Poll::Pending;
            }
            self.waker = Some(context.waker().clone());
            ready!(timer.as_mut().poll(context));
            if self.requests.0.is_http1.load(Relaxed) {
                self.timer = None;
            } else if self.requests.is_idle() {
                return Poll::Ready(());
            } else {
                timer.as_mut().reset(Instant::now() + self.time);
                self.waker = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::StatusCode;
    use axum::response::IntoResponse;
    use std::future::poll_fn;
    use tokio::time::timeout;

    const TIME: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(60);

    fn request(version: Version) -> Request {
        Request::get("/").version(version).body(Body::empty()).expect("a request")
    }

    #[tokio::test]
    async fn connection_that_asks_for_nothing_is_idle_and_one_with_an_open_request_is_not() {
        let requests = ConnectionRequests::default();
        let mut idle = IdleTimeout::new(requests.clone(), TIME);
        let open = requests.begin(&request(Version::HTTP_2)).expect("it is counted");
        let answer = open.follow(StatusCode::OK.into_response());
        assert!(timeout(10 * TIME, poll_fn(|context| idle.poll(context))).await.is_err());
        drop(answer);
        assert!(timeout(LONG, poll_fn(|context| idle.poll(context))).await.is_ok());
        // One that never asks.
        let mut idle = IdleTimeout::new(ConnectionRequests::default(), TIME);
        assert!(timeout(LONG, poll_fn(|context| idle.poll(context))).await.is_ok());
    }

    #[tokio::test]
    async fn connection_of_version_1_is_left_to_its_own_bound() {
        let requests = ConnectionRequests::default();
        let mut idle = IdleTimeout::new(requests.clone(), TIME);
        assert!(requests.begin(&request(Version::HTTP_11)).is_none());
        assert!(timeout(10 * TIME, poll_fn(|context| idle.poll(context))).await.is_err());
        assert!(idle.timer.is_none(), "nor has it a timer any more");
    }
}
