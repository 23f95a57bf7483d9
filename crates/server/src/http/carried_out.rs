//! A call that is carried out to its end, also where its client goes away meanwhile.
//!
//! It is polled by the task of its request. A task of its own from the beginning would be two more turns of the runtime with each call: a
//! runtime gives three turns in a row to tasks that wake one another, and wakes another thread for the fourth. A submit that is committed by
//! its caller is a task of its own already.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::runtime::Handle;

/// What the call comes to; nothing where it panicked. Where this is dropped before, the call goes on as a task.
pub async fn carried_out<F>(call: F) -> Option<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let mut call = CarriedOut(Some(Box::pin(call)));
    poll_fn(move |context| call.poll(context)).await
}

struct CarriedOut<F>(Option<Pin<Box<F>>>)
where
    F: Future + Send + 'static,
    F::Output: Send + 'static;

impl<F> CarriedOut<F>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<F::Output>> {
        let Some(call) = &mut self.0 else { return Poll::Ready(None) };
        // What a call leaves behind that panics is what a task would leave: it is polled no more.
        let polled = catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(context)));
        let done = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(done)) => Some(done),
            Err(_) => None,
        };
        self.0 = None;
        Poll::Ready(done)
    }
}

impl<F> Drop for CarriedOut<F>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn drop(&mut self) {
        // Without a runtime the server is at its end.
        if let Some(call) = self.0.take()
            && let Ok(runtime) = Handle::try_current()
        {
            drop(runtime.spawn(call));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tokio::sync::{Notify, oneshot};

    #[tokio::test]
    async fn call_is_of_the_task_that_waits_for_it() {
        let request = tokio::spawn(async {
            let own = tokio::task::id();
            let of_call = carried_out(async {
                tokio::task::yield_now().await;
                tokio::task::id()
            });
            (own, of_call.await)
        });
        let (own, of_call) = request.await.expect("no panic");
        assert_eq!(of_call, Some(own));
    }

    #[tokio::test]
    async fn call_goes_on_when_nobody_waits_for_it_any_more() {
        let (begun, may_end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (has_begun, go_on) = (begun.clone(), may_end.clone());
        let (to, done) = oneshot::channel();
        let request = tokio::spawn(carried_out(async move {
            has_begun.notify_one();
            go_on.notified().await;
            let _ = to.send("done");
        }));
        begun.notified().await;
        request.abort();
        assert!(request.await.is_err_and(|error| error.is_cancelled()));
        may_end.notify_one();
        assert_eq!(done.await, Ok("done"));
    }

    #[tokio::test]
    async fn call_that_panics_is_no_panic_of_its_request() {
        let told = carried_out(async {
            assert!(Handle::try_current().is_err(), "as a defect would");
        });
        assert!(told.await.is_none());
    }
}
