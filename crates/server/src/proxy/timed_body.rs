//! The body of a request, which fails when nothing more of it comes for too long: a client that does not send it would keep its place at
//! a replica from others.

use axum::BoxError;
use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as _, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Sleep, sleep};

/// Why such a body fails.
#[derive(Debug, thiserror::Error)]
#[error("nothing more of the request came")]
pub struct BodyStalled;

pub struct TimedBody {
    inner: Body,
    silence: Duration,
    /// Runs while the client sends nothing, and not while the replica takes nothing.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl TimedBody {
    /// `silence`: how long nothing of it may come.
    pub fn new(inner: Body, silence: Duration) -> Self {
        Self { inner, silence, stalled: None }
    }
}

impl hyper::body::Body for TimedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(context) {
            self.stalled = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(BoxError::from)));
        }
        let silence = self.silence;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(silence)));
        ready!(stalled.as_mut().poll(context));
        Poll::Ready(Some(Err(BodyStalled.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
