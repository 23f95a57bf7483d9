//! A task that wakes itself while it runs is polled once more at once.
//!
//! hyper hands a request's body to its handler by a channel within one task, which wakes that task; what was woken so is done by
//! the end of the same poll. The runtime puts such a task into its queue and wakes another thread to help with it: one that finds
//! nothing to do, with each request. The same holds for a connection to a server that is polled by the task that asks by it.

use futures_util::task::AtomicWaker;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Polls of a task in a row. One that goes on waking itself leaves its thread to others.
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

/// What is polled with a waker of its own, which tells wakes in the middle of a poll from others.
pub struct OwnWakes {
    own: Arc<OwnWake>,
    waker: Waker,
}

impl Default for OwnWakes {
    fn default() -> Self {
        let own = Arc::new(OwnWake::default());
        Self { waker: Waker::from(own.clone()), own }
    }
}

impl OwnWakes {
    /// Polls, and again as long as that was woken meanwhile, so often in a row at most. A later wake is `runtime`'s.
    pub fn poll<T>(
        &self,
        runtime: &Context<'_>,
        polls_max: usize,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let state = &self.own.state;
        self.own.runtime.register(runtime.waker());
        for _ in 0..polls_max {
            state.swap(POLLED, Ordering::SeqCst);
            let polled = poll(&mut Context::from_waker(&self.waker));
            if polled.is_ready() {
                state.swap(IDLE, Ordering::SeqCst);
                return polled;
            }
            let left = state.compare_exchange(POLLED, IDLE, Ordering::SeqCst, Ordering::SeqCst);
            if left.is_ok() {
                return Poll::Pending;
            }
        }
        state.swap(IDLE, Ordering::SeqCst);
        runtime.waker().wake_by_ref();
        Poll::Pending
    }
}

/// The same future, whose wakes by itself cost no turn of the runtime.
pub async fn polled_again<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let wakes = OwnWakes::default();
    poll_fn(move |runtime| wakes.poll(runtime, POLLS_MAX, |own| future.as_mut().poll(own))).await
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
