//! A task that wakes itself while it runs is polled once more at once.
//!
//! hyper hands a request's body to its handler by a channel within one task, which wakes that task; what was woken so is done by
//! the end of the same poll. The runtime puts such a task into its queue and wakes another thread to help with it: one that finds
//! nothing to do, with each request.

use futures_util::task::AtomicWaker;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Polls in a row. A task that goes on waking itself leaves its thread to others.
const POLLS_MAX: usize = 2;

/// Nobody polls: a wake goes on to the runtime.
const IDLE: u8 = 0;
/// The task is being polled.
const POLLED: u8 = 1;
/// It was woken, and is polled again: nobody else needs to wake it.
const WOKEN: u8 = 2;

#[derive(Default)]
struct OwnWake {
    state: AtomicU8,
    runtime: AtomicWaker,
}

impl Wake for OwnWake {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Each wake writes: whoever polls next sees what was done before it.
        if self.state.swap(WOKEN, Ordering::SeqCst) == IDLE {
            self.runtime.wake();
        }
    }
}

/// The same future, whose wakes by itself cost no turn of the runtime.
pub async fn polled_again<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let own = Arc::new(OwnWake::default());
    let waker = Waker::from(own.clone());
    poll_fn(move |runtime| {
        own.runtime.register(runtime.waker());
        for _ in 0..POLLS_MAX {
            own.state.swap(POLLED, Ordering::SeqCst);
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Poll::Ready(output);
            }
            let left = own.state.compare_exchange(POLLED, IDLE, Ordering::SeqCst, Ordering::SeqCst);
            if left.is_ok() {
                return Poll::Pending;
            }
        }
        own.state.swap(IDLE, Ordering::SeqCst);
        runtime.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use tokio::sync::Notify;

    /// Counts the wakes that reach the runtime.
    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Polls once; the number of wakes after it.
    fn wakes_of(future: impl Future<Output = ()>) -> usize {
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(wakes.clone());
        let polled = pin!(polled_again(future)).poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        wakes.0.load(Ordering::SeqCst)
    }

    /// Wakes itself with each of its first polls.
    fn waking_itself(times: usize) -> impl Future<Output = ()> {
        let mut left = times;
        poll_fn(move |context| {
            if left > 0 {
                left -= 1;
                context.waker().wake_by_ref();
            }
            Poll::Pending
        })
    }

    #[test]
    fn own_wake_is_one_more_poll_and_a_task_that_goes_on_leaves_its_thread() {
        assert_eq!(wakes_of(waking_itself(0)), 0);
        assert_eq!(wakes_of(waking_itself(1)), 0);
        assert_eq!(wakes_of(waking_itself(POLLS_MAX)), 1);
        assert_eq!(wakes_of(waking_itself(usize::MAX)), 1);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn wake_by_others_is_not_lost() {
        const TIMES: usize = 10_000;
        let (asked, told) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (for_asked, for_told) = (asked.clone(), told.clone());
        let answers = tokio::spawn(polled_again(async move {
            for _ in 0..TIMES {
                for_asked.notified().await;
                for_told.notify_one();
            }
        }));
        for _ in 0..TIMES {
            asked.notify_one();
            told.notified().await;
        }
        answers.await.expect("no panic");
    }
}
