//! The body of a request, of which is noted when all of it was read from its client.

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as _, Frame, SizeHint};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

/// What is known of the body of a request that was given away.
pub struct BodyNote(Option<Weak<()>>);

impl BodyNote {
    /// Whether the request has a body.
    pub fn has_been(&self) -> bool {
        self.0.is_some()
    }

    /// Whether nothing more of it is to be read.
    pub fn is_read(&self) -> bool {
        self.0.as_ref().is_none_or(|body| body.strong_count() == 0)
    }
}

/// The same request, and a note of its body.
pub fn noted(request: hyper::Request<Body>) -> (hyper::Request<Body>, BodyNote) {
    if request.body().is_end_stream() {
        return (request, BodyNote(None));
    }
    let there = Arc::new(());
    let note = BodyNote(Some(Arc::downgrade(&there)));
    (request.map(|inner| Body::new(NotedBody { inner, _there: there })), note)
}

/// It is dropped by who sends it when it is at its end.
struct NotedBody {
    inner: Body,
    _there: Arc<()>,
}

impl hyper::body::Body for NotedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.inner).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
