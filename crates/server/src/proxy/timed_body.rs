//! The body of a request, which fails when nothing more of it comes for too long before its answer has begun: a client that does not send
//! it would keep its place at a replica from others. What goes on both ways may be silent in one of them.

use axum::BoxError;
use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Sleep, sleep};

/// Why such a body fails.
#[derive(Debug, thiserror::Error)]
#[error("nothing more of the request came")]
pub struct BodyStalled;

/// Whether the answer to a request has begun, as its body knows it.
#[derive(Clone, Default)]
pub struct AnswerBegun(Arc<AtomicBool>);

impl AnswerBegun {
    /// From here on the body may be silent for as long as it likes.
    pub fn note(&self) {
        self.0.store(true, Relaxed);
    }
}

pub struct TimedBody {
    inner: Body,
    silence: Duration,
    answer: AnswerBegun,
    /// Runs while the client sends nothing, and not while the replica takes nothing.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl TimedBody {
    /// `silence`: how long nothing of it may come before the answer begins.
    pub fn new(inner: Body, silence: Duration, answer: AnswerBegun) -> Self {
        Self { inner, silence, answer, stalled: None }
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
        if self.answer.0.load(Relaxed) {
            self.stalled = None;
            return Poll::Pending;
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
