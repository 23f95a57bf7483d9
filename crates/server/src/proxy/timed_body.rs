//! The body of a request, which fails when nothing more of it comes for too long before its answer has begun, or when it comes too slowly:
//! a client that does not send it would keep its place at a replica from others. What goes on both ways may be silent in one of them.

use super::outstanding::Outstanding;
use axum::BoxError;
use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

/// Bytes a second that a body has to come with, beyond the time that it may be silent for: a byte now and then is as good as none.
pub const LEAST_RATE: u64 = 1024;

/// Why such a body fails.
#[derive(Debug, thiserror::Error)]
#[error("too little of the request came")]
pub struct BodyStalled;

/// The body of a request that is on its way, as whoever waits for the answer knows it; nothing of it where all of it is there.
#[derive(Clone, Default)]
pub struct Upload(Option<Arc<UploadState>>);

#[derive(Default)]
struct UploadState {
    is_answered: AtomicBool,
    /// That of the replica that gets it, until all of it has come.
    place: Mutex<Option<Outstanding>>,
}

impl Upload {
    fn begin() -> Self {
        Self(Some(Arc::default()))
    }

    pub fn is_under_way(&self) -> bool {
        self.0.is_some()
    }

    /// The answer has begun: from here on the body may be silent for as long as it likes.
    pub fn note_answer(&self) {
        if let Some(state) = &self.0 {
            state.is_answered.store(true, Relaxed);
        }
    }

    /// Holds the place of a replica until the body has come, in place of another's.
    pub fn hold(&self, place: Outstanding) {
        self.set_place(Some(place));
    }

    fn set_place(&self, place: Option<Outstanding>) {
        if let Some(state) = &self.0 {
            *state.place.lock().expect("no panic with the place held") = place;
        }
    }

    fn is_answered(&self) -> bool {
        self.0.as_ref().is_none_or(|state| state.is_answered.load(Relaxed))
    }
}

pub struct TimedBody {
    inner: Body,
    silence: Duration,
    upload: Upload,
    bytes: u64,
    /// How long its client was waited for in all, and since when it is.
    waited: Duration,
    since: Option<Instant>,
    /// Runs while the client sends nothing, and not while the replica takes nothing.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl TimedBody {
    /// `silence`: how long nothing of it may come before the answer begins, and all in all beside what [`LEAST_RATE`] takes.
    pub fn new(inner: Body, silence: Duration) -> (Self, Upload) {
        let upload = Upload::begin();
        let waited = Duration::ZERO;
        let body = Self {
            inner,
            silence,
            upload: upload.clone(),
            bytes: 0,
            waited,
            since: None,
            stalled: None,
        };
        (body, upload)
    }

    /// How long the client may be waited for now.
    fn patience(&self) -> Duration {
        let in_all = self.silence + Duration::from_secs(self.bytes / LEAST_RATE);
        self.silence.min(in_all.saturating_sub(self.waited))
    }

    fn end_wait(&mut self) {
        self.stalled = None;
        self.waited += self.since.take().map_or(Duration::ZERO, |since| since.elapsed());
    }
}

impl Drop for TimedBody {
    fn drop(&mut self) {
        self.upload.set_place(None);
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
            self.end_wait();
            let data = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
            self.bytes += data.map_or(0, |data| data.len() as u64);
            if frame.is_none() || self.inner.is_end_stream() {
                self.upload.set_place(None);
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(BoxError::from)));
        }
        if self.upload.is_answered() {
            self.end_wait();
            return Poll::Pending;
        }
        if self.stalled.is_none() {
            self.since = Some(Instant::now());
            self.stalled = Some(Box::pin(sleep(self.patience())));
        }
        if let Some(stalled) = &mut self.stalled {
            ready!(stalled.as_mut().poll(context));
        }
        Poll::Ready(Some(Err(BodyStalled.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::pool::ConnectionPool;
    use axum::body::Body;
    use futures_util::stream;
    use http_body_util::BodyExt;

    const SILENCE: Duration = Duration::from_millis(100);

    /// A byte every so often, so many times.
    fn dripping(interval: Duration, times: usize) -> Body {
        let parts = stream::unfold(times, move |left| async move {
            let left = left.checked_sub(1)?;
            sleep(interval).await;
            Some((Ok::<_, BoxError>(Bytes::from_static(b"x")), left))
        });
        Body::from_stream(parts)
    }

    #[tokio::test]
    async fn body_that_drips_is_given_up_and_a_slow_one_is_not() {
        let (body, _) = TimedBody::new(dripping(SILENCE / 20, usize::MAX), SILENCE);
        assert!(body.collect().await.expect_err("it is given up").is::<BodyStalled>());
        let (mut body, _) = TimedBody::new(Body::empty(), Duration::from_secs(60));
        for (kib, waited_s, patience_s) in
            [(0, 0, 60), (0, 59, 1), (0, 60, 0), (10, 60, 10), (10, 70, 0), (1 << 20, 3600, 60)]
        {
            (body.bytes, body.waited) = (kib * LEAST_RATE, Duration::from_secs(waited_s));
            assert_eq!(body.patience().as_secs(), patience_s, "{kib} KiB in {waited_s} s");
        }
    }

    #[tokio::test]
    async fn place_is_held_until_the_body_has_come_or_is_given_up() {
        let pool = ConnectionPool::default();
        let (body, upload) = TimedBody::new(Body::from("text"), SILENCE);
        upload.hold(pool.enter());
        upload.hold(pool.enter());
        assert_eq!(pool.outstanding(), 1, "that of one replica");
        body.collect().await.expect("all of it");
        assert_eq!(pool.outstanding(), 0);
        let (body, upload) = TimedBody::new(Body::from("unsent"), SILENCE);
        upload.hold(pool.enter());
        drop(body);
        assert_eq!(pool.outstanding(), 0);
    }
}
